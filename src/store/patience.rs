//! How long a connection waits for an answer of the database.
//!
//! Owns: the bounds of a connection, by its purpose and by the length of a lease. Never: decides what a
//! lost answer means (`error`), or closes anything (`conn`).
//!
//! A connection may go silent: its packets vanish without any error. The driver would wait for ever, so
//! every request has a bound here, after which the connection is given up. A statement that takes long on
//! a live connection must not look like that, so the server ends it by itself a little sooner, and answers
//! that it did.

use std::time::Duration;

use super::conn::Purpose;
use super::error::Source;

/// The lease of processes that were told none: as long as the configuration's default.
pub const LEASE: Duration = Duration::from_secs(30);

/// No statement of the engine is cut off sooner than this: a wide one on a busy machine takes seconds, and
/// would never complete.
const WORK_MIN: Duration = Duration::from_secs(10);

/// No statement of the lifeline is cut off sooner than this; they are all short.
const LIFELINE_MIN: Duration = Duration::from_secs(1);

/// An audit of a large database takes minutes for one statement. Only a person waits for it.
const QUERY: Duration = Duration::from_secs(30 * 60);

/// A person who asks for a diagnosis waits this long for a lock. Then the lock is known to be permanent, and is
/// reported (`writable::locked`).
pub const LOOK: Duration = Duration::from_secs(6);

/// No statement of a page takes longer: by then the reader has gone, and others wait for their pages.
pub const PAGE: Duration = Duration::from_secs(2);

/// In a bulk action, a run whose row is locked for longer than this is left for later.
const BULK: Duration = Duration::from_millis(500);

/// The bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The connection is given up after this long without an answer.
    pub answer: Duration,
    /// The server ends a statement after this long; never, where there is none.
    pub statement: Option<Duration>,
    /// A lock is waited for this long.
    pub lock: Option<Duration>,
    /// A row that could not be locked within that time is left for later, and not tried again at once: other
    /// work has to be done in time.
    pub hurried: bool,
    /// A transaction in conflict with others is tried again for this long. On a cluster, conflicts are frequent,
    /// and each attempt is short.
    pub contended: Duration,
    /// The caller asks which row is locked where it has waited for a lock in vain, and does not try again before.
    pub asks: bool,
    /// The server ends a session whose client does not acknowledge received data for this long.
    pub silence: Duration,
}

impl Patience {
    /// The bounds of a connection for this purpose, where a lease lasts this long.
    pub fn of(purpose: Purpose, lease: Duration) -> Self {
        let silence = lease.max(WORK_MIN);
        // In a hurry, a transaction that has waited for a lock in vain is not tried again.
        let contended = |hurried: bool, lock: Option<Duration>| match lock {
            Some(lock) if hurried => lock / 2,
            _ => lease / 3,
        };
        let bounded = |answer: Duration, lock: Duration, hurried| Self {
            answer,
            statement: Some(answer.mul_f64(0.9)),
            lock: Some(lock),
            hurried,
            contended: contended(hurried, Some(lock)),
            asks: false,
            silence,
        };
        match purpose {
            // A commit holds the row of its process while it waits for another lock. The lifeline
            // waits longer for that row than the commit does for the lock, so that it gets its turn.
            Purpose::Engine => bounded(silence, lease / 12, false),
            Purpose::Bulk => bounded(silence, BULK, true),
            // Twice the time between two beats, so that another connection can be opened, and a beat
            // sent on it, before anybody takes the process for dead.
            Purpose::Lifeline => bounded((lease / 3).max(LIFELINE_MIN), lease / 8, true),
            Purpose::Page => Self {
                answer: PAGE + PAGE / 8,
                statement: Some(PAGE),
                lock: Some(PAGE / 4),
                hurried: true,
                contended: contended(true, Some(PAGE / 4)),
                asks: false,
                silence,
            },
            Purpose::Query | Purpose::Look => Self {
                answer: QUERY,
                statement: None,
                lock: (purpose == Purpose::Look).then_some(LOOK),
                hurried: purpose == Purpose::Look,
                contended: contended(purpose == Purpose::Look, Some(LOOK)),
                asks: false,
                silence,
            },
        }
    }
}

impl Patience {
    /// Waits for an answer, but not for ever. A connection that is given up here is in the middle of a
    /// request: no further request may be sent on it.
    pub async fn answered<T, E: Into<Source>>(
        self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Source> {
        match tokio::time::timeout(self.answer, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(silent(self.answer)),
        }
    }
}

/// The error for a connection that was given up.
fn silent(answer: Duration) -> Source {
    let text = format!(
        "no answer within {} s; the connection is given up",
        answer.as_secs_f64().round()
    );
    Source::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the shortest lease that can be configured to a long one.
    const LEASES: [u64; 5] = [1, 2, 10, 30, 600];

    #[test]
    fn the_server_answers_before_the_connection_is_given_up_and_a_lock_is_left_long_before() {
        for lease in LEASES.map(Duration::from_secs) {
            for purpose in [Purpose::Engine, Purpose::Lifeline] {
                let bounds = Patience::of(purpose, lease);
                let (statement, lock) = (bounds.statement.unwrap(), bounds.lock.unwrap());
                assert!(statement < bounds.answer, "{purpose:?} {bounds:?}");
                assert!(lock < statement / 2, "{purpose:?} {bounds:?}");
            }
        }
    }

    #[test]
    fn a_heartbeat_waits_for_a_lock_for_less_than_a_beat_and_longer_than_the_work_does() {
        for lease in LEASES.map(Duration::from_secs) {
            let [work, lifeline] =
                [Purpose::Engine, Purpose::Lifeline].map(|of| Patience::of(of, lease).lock);
            assert!(work < lifeline && lifeline < Some(lease / 6));
        }
    }

    #[test]
    fn a_lifeline_that_falls_silent_is_replaced_before_its_process_counts_as_dead() {
        // The shortest leases leave no time for that: then the process registers anew.
        for lease in LEASES.into_iter().skip(1).map(Duration::from_secs) {
            let last_beat_to_reconnect = lease / 6 + Patience::of(Purpose::Lifeline, lease).answer;
            assert!(last_beat_to_reconnect < lease * 5 / 6, "{lease:?}");
        }
    }
}
