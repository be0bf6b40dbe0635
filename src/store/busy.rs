//! Waiting for SQLite's one writer at a time.
//!
//! Owns: how long a connection sleeps before it tries a lock again that another process has.
//! Never: decides that a transaction has waited too long; it only says so to SQLite, which
//! refuses the statement, and `Conn` tries again whole.
//!
//! SQLite's own waits grow to 100 ms, in steps that all processes share. Several busy writers then
//! sleep together while nobody writes, and a heartbeat wakes ten times a second to find that
//! somebody else was quicker. Here a wait is a fraction of what has been waited already.
#![expect(unsafe_code, reason = "SQLite is told in C, and asks in C")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use libsqlite3_sys::{SQLITE_OK, sqlite3_busy_handler};
use sqlx::SqliteConnection;

/// How long a connection waits for a lock before SQLite says that the database is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A lock is not tried more often than this; about what a small commit takes.
const SHORTEST: Duration = Duration::from_micros(100);

/// Nor more seldom: what a lock lies idle when everybody waits, at the worst.
const LONGEST: Duration = Duration::from_millis(2);

/// Lets a connection wait this way.
pub async fn wait_in_fractions(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut handle = conn.lock_handle().await?;
    let db = handle.as_raw_handle().as_ptr();
    // SAFETY: the handle is open and locked while `handle` lives; the function is static.
    let code = unsafe { sqlite3_busy_handler(db, Some(busy), ptr::null_mut()) };
    if code == SQLITE_OK {
        return Ok(());
    }
    let text = format!("SQLite takes no busy handler: error {code}");
    Err(sqlx::Error::Configuration(text.into()))
}

thread_local! {
    /// Since when this thread waits: SQLite tells how often it has asked, not for how long.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// True, after a while, when the lock is to be tried again.
///
/// # Safety
/// Called by SQLite, on the thread that wants the lock.
unsafe extern "C" fn busy(_: *mut c_void, asked: c_int) -> c_int {
    let since = match SINCE.get() {
        Some(since) if asked > 0 => since,
        _ => Instant::now(),
    };
    SINCE.set(Some(since));
    match pause(since.elapsed()) {
        Some(pause) => {
            std::thread::sleep(pause);
            1
        }
        None => 0,
    }
}

/// The next wait of somebody who has waited for `waited`; `None` after too long.
fn pause(waited: Duration) -> Option<Duration> {
    (waited < PATIENCE).then(|| (waited / 8).clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_fraction_of_what_was_waited_within_bounds() {
        assert_eq!(pause(Duration::ZERO), Some(SHORTEST));
        assert_eq!(
            pause(Duration::from_millis(8)),
            Some(Duration::from_millis(1))
        );
        assert_eq!(pause(Duration::from_secs(5)), Some(LONGEST));
    }

    #[test]
    fn patience_ends() {
        assert_eq!(pause(PATIENCE), None);
    }
}
