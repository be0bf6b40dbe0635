//! The decision which failures of a connection are logged.
//!
//! Owns: that decision, from the times of the failures. Never: logs them, reads a clock.
//!
//! An outage is logged when it begins, now and then while it lasts, and when it is over. A connection
//! that comes and goes (a limit on idle sessions, somebody who ends all of them) would be logged many
//! times a second: after a few times, only an outage that lasts is logged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::telemetry::growing::Growing;

/// Up to this many outages within [`WITHIN`] are logged one by one.
const EACH: usize = 3;

/// The connection comes and goes if more than [`EACH`] outages have begun within this time.
const WITHIN: Duration = Duration::from_secs(180);

/// An outage that lasts this long is logged, whatever happened before it.
const LONG: Duration = Duration::from_secs(5);

/// The outages of one connection.
#[derive(Debug, Default)]
pub struct Outages {
    /// When the present outage began.
    since: Option<Instant>,
    /// When the last outages began.
    recent: VecDeque<Instant>,
    /// The present outage, by its kind: true if the database answers but cannot do the work now, false if the database
    /// cannot be reached.
    lasts: Growing<bool>,
    comes_and_goes: Growing<()>,
    said: bool,
}

/// The log line that a failure is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// Nothing.
    Nothing,
    /// An outage has begun, or lasts.
    Lost,
    /// The connection comes and goes.
    ComesAndGoes,
}

impl Outages {
    /// A failure at `now`, for this reason.
    pub fn failed(&mut self, hindered: bool, now: Instant) -> Say {
        let since = *self.since.get_or_insert_with(|| {
            self.recent.push_back(now);
            if self.recent.len() > EACH + 1 {
                self.recent.pop_front();
            }
            now
        });
        let often = self.recent.len() > EACH
            && self
                .recent
                .front()
                .is_some_and(|first| now.duration_since(*first) < WITHIN);
        if often && now.duration_since(since) < LONG {
            return match self.comes_and_goes.meet(&(), now) {
                // If the database answers, no connection was lost.
                Some(_) if hindered => Say::Lost,
                Some(_) => Say::ComesAndGoes,
                None => Say::Nothing,
            };
        }
        match self.lasts.meet(&hindered, now) {
            Some(_) => {
                self.said = true;
                Say::Lost
            }
            None => Say::Nothing,
        }
    }

    /// The connection works again; true when that is to be logged.
    pub fn over(&mut self) -> bool {
        self.since = None;
        self.lasts = Growing::default();
        std::mem::take(&mut self.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_comes_and_goes_is_said_a_few_times_and_one_that_stays_away_at_once() {
        let mut outages = Outages::default();
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for n in 0..3 {
            assert_eq!(outages.failed(false, at(n * 100)), Say::Lost);
            assert_eq!(outages.failed(false, at(n * 100 + 50)), Say::Nothing);
            assert!(outages.over());
        }
        assert_eq!(outages.failed(false, at(300)), Say::ComesAndGoes);
        assert!(!outages.over());
        for n in 4..500 {
            assert_eq!(outages.failed(n % 2 == 0, at(n * 100)), Say::Nothing);
            assert!(!outages.over());
        }
        // This one lasts.
        assert_eq!(outages.failed(false, at(50_000)), Say::Nothing);
        assert_eq!(outages.failed(false, at(55_000)), Say::Lost);
        assert!(outages.over());
        // And after a quiet time, everything is as in the beginning.
        assert_eq!(outages.failed(false, at(500_000)), Say::Lost);
    }

    #[test]
    fn a_database_that_answers_again_and_again_that_somebody_is_in_the_way_has_lost_no_connection()
    {
        let mut outages = Outages::default();
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for n in 0..4 {
            assert_eq!(outages.failed(true, at(n * 100)), Say::Lost);
            outages.over();
        }
        assert_eq!(outages.failed(true, at(400)), Say::Nothing);
    }

    #[test]
    fn an_outage_that_turns_into_another_is_said_again() {
        let mut outages = Outages::default();
        let start = Instant::now();
        assert_eq!(outages.failed(false, start), Say::Lost);
        assert_eq!(outages.failed(true, start), Say::Lost);
        assert_eq!(outages.failed(true, start), Say::Nothing);
    }
}
