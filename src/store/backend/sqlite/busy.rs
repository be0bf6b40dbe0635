//! Waiting for SQLite's one writer at a time.
//!
//! Owns: how long a connection sleeps before it tries a lock again that another process has.
//! Never: decides that a transaction has waited too long; it only says so to SQLite, which
//! refuses the statement, and `Conn` tries again whole.
//!
//! SQLite's own waits grow to 100 ms, in steps that all processes share. Several busy writers then
//! sleep together while nobody writes, and a heartbeat wakes ten times a second to find that
//! somebody else was quicker. Here a wait is a fraction of what has been waited already.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a connection waits for a lock before SQLite says that the database is busy, unless it
/// was told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lock is not tried more often than this; about what a small commit takes.
const SHORTEST: Duration = Duration::from_micros(100);

/// Nor more seldom: what a lock lies idle when everybody waits, at the worst.
const LONGEST: Duration = Duration::from_millis(2);

thread_local! {
    /// Since when this thread waits: SQLite tells how often it has asked, not for how long.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How long this thread waits at most.
    static LIMIT: Cell<Duration> = const { Cell::new(PATIENCE) };
}

/// From now on this thread waits no longer than this.
pub fn waits(limit: Duration) {
    LIMIT.set(limit);
}

/// True, after a while, when the lock is to be tried again. Asked by SQLite, on the thread that
/// wants the lock.
pub fn wait(asked: i32) -> bool {
    let since = match SINCE.get() {
        Some(since) if asked > 0 => since,
        _ => Instant::now(),
    };
    SINCE.set(Some(since));
    let pause = pause(since.elapsed(), LIMIT.get());
    pause.inspect(|pause| std::thread::sleep(*pause)).is_some()
}

/// The next wait of somebody who has waited for `waited`; `None` after too long.
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
