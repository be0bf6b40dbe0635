//! Health, as orchestrators ask for it.
//!
//! Owns: the three answers, and the database query behind two of them. Never: queries the database while
//! nobody asks, or says that a process is dead because the database is away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;

use crate::store::{Error, migrate};

use super::Site;
use super::refusal::word;
use super::source::{ReadError, Source};

/// A process whose loop does not turn for this long hangs.
const TURNS_WITHIN: Duration = Duration::from_secs(5);

/// One answer of the database serves all requests within this time.
const ASKED_EVERY: Duration = Duration::from_secs(2);

/// A database that has not answered for this long is away.
const MET_WITHIN: Duration = Duration::from_secs(10);

/// The process as its health endpoints know it.
pub struct Health {
    turned: Mutex<Instant>,
    draining: AtomicBool,
    /// Held while the database is queried: other requests wait for the same answer.
    met: tokio::sync::Mutex<Met>,
}

/// The last answer of the database.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    /// The time of the last query.
    asked: Option<Instant>,
    /// The time of the last answer.
    answered: Option<Instant>,
    /// As far as is known, this program can work with its schema.
    fits: bool,
}

impl Health {
    /// The health of a process that has just started.
    pub fn new() -> Self {
        Self {
            turned: Mutex::new(Instant::now()),
            draining: AtomicBool::new(false),
            met: tokio::sync::Mutex::default(),
        }
    }

    /// Records that the loop turns.
    pub fn turn(&self) {
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Records that the process drains.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn since_turn(&self) -> Duration {
        let turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        turned.elapsed()
    }

    /// The last answer of the database, which is queried again if that answer is old.
    async fn meet(&self, source: &Source) -> Met {
        let mut met = self.met.lock().await;
        if met.asked.is_some_and(|asked| asked.elapsed() < ASKED_EVERY) {
            return *met;
        }
        let answer = source.read(async |conn| migrate::check(conn).await).await;
        let now = Instant::now();
        met.asked = Some(now);
        match answer {
            Ok(()) => (met.answered, met.fits) = (Some(now), true),
            Err(ReadError::Failed(Error::Schema(_))) => {
                (met.answered, met.fits) = (Some(now), false);
            }
            Err(_) => {}
        }
        *met
    }
}

/// The word for the reason why a process is not ready.
fn unready(draining: bool, since_answer: Option<Duration>, fits: bool) -> Option<&'static str> {
    if draining {
        return Some("draining");
    }
    match since_answer {
        Some(since) if since < MET_WITHIN => (!fits).then_some("schema"),
        _ => Some("database"),
    }
}

/// The process's loop turns. The answer waits for nothing, so an outage of the database restarts no
/// process.
pub async fn livez(State(site): State<Arc<Site>>) -> Response {
    let hangs = site.health.since_turn() > TURNS_WITHIN;
    word(hangs.then_some("hangs"))
}

/// A visitor who is sent here gets an answer.
pub async fn readyz(State(site): State<Arc<Site>>) -> Response {
    let draining = site.health.draining.load(Ordering::Relaxed);
    let met = match draining {
        true => Met::default(),
        false => site.health.meet(&site.source).await,
    };
    let since = met.answered.map(|answered| answered.elapsed());
    word(unready(draining, since, met.fits))
}

/// The database has answered once, and had the schema.
pub async fn startupz(State(site): State<Arc<Site>>) -> Response {
    let met = site.health.meet(&site.source).await;
    let obstacle = match met.answered {
        None => Some("database"),
        Some(_) => (!met.fits).then_some("schema"),
    };
    word(obstacle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_while_the_database_was_met_a_short_while_ago_and_it_does_not_drain() {
        let s = |seconds| Some(Duration::from_secs(seconds));
        for (draining, since, fits, word) in [
            (false, s(0), true, None),
            (false, s(9), true, None),
            (false, s(10), true, Some("database")),
            (false, None, false, Some("database")),
            (false, s(0), false, Some("schema")),
            (false, s(11), false, Some("database")),
            (true, s(0), true, Some("draining")),
            (true, None, false, Some("draining")),
        ] {
            assert_eq!(unready(draining, since, fits), word);
        }
    }
}
