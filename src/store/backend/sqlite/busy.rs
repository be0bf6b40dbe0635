//! Waiting for SQLite's single writer.
//!
//! Owns: how long a connection sleeps before it retries a lock that another process holds. Never:
//! decides that a transaction has waited too long; it only reports this to SQLite, which refuses
//! the statement, and `Conn` retries the whole transaction.
//!
//! SQLite's own waits grow to 100 ms, in steps that all processes share. Several busy writers then
//! sleep together while nobody writes, and a heartbeat wakes ten times a second to find that
//! another writer was quicker. Here a wait is a fraction of the time waited so far.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a connection waits for a lock before SQLite reports that the database is busy, unless
/// the connection was told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// The shortest time between two tries of a lock: about as long as a small commit takes.
const SHORTEST: Duration = Duration::from_micros(100);

/// The longest: at worst, a lock stays free for this long while everybody waits.
const LONGEST: Duration = Duration::from_millis(2);

thread_local! {
    /// When this thread began to wait: SQLite tells how often it has asked, not for how long.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How long this thread waits at most.
    static LIMIT: Cell<Duration> = const { Cell::new(PATIENCE) };
}

/// From now on this thread waits no longer than this.
pub fn waits(limit: Duration) {
    LIMIT.set(limit);
}

/// Returns true, after a pause, when the lock should be tried again. SQLite calls this on the
/// thread that wants the lock.
pub fn wait(asked: i32) -> bool {
    let since = match SINCE.get() {
        Some(since) if asked > 0 => since,
        _ => Instant::now(),
    };
    SINCE.set(Some(since));
    let pause = pause(since.elapsed(), LIMIT.get());
    pause.inspect(|pause| std::thread::sleep(*pause)).is_some()
}

/// The next pause of a thread that has waited for `waited`; `None` after too long.
fn pause(waited: Duration, limit: Duration) -> Option<Duration> {
    (waited < limit).then(|| (waited / 8).clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_fraction_of_what_was_waited_within_bounds() {
        assert_eq!(pause(Duration::ZERO, PATIENCE), Some(SHORTEST));
        assert_eq!(
            pause(Duration::from_millis(8), PATIENCE),
            Some(Duration::from_millis(1))
        );
        assert_eq!(pause(Duration::from_secs(5), PATIENCE), Some(LONGEST));
    }

    #[test]
    fn patience_ends() {
        assert_eq!(pause(PATIENCE, PATIENCE), None);
        let limit = Duration::from_millis(250);
        assert_eq!(pause(limit, limit), None);
    }
}
