//! How far ahead of its slots a worker claims, and how soon it tries again after it got nothing.
//!
//! Owns: both decisions, the first from how long its steps take. Never: claims.
//!
//! A step that takes microseconds costs far less than the transaction that fetches it, so a worker of such
//! steps holds some that wait, and its commits carry many. An idle process elsewhere cannot run an execution
//! that waits here, so the waiting work never takes more than a moment: a worker of slow steps claims nothing
//! ahead. And each execution that a process holds when it dies has lost an attempt, whether it ran or not. So
//! after a claim that brings an execution that has already seen a process die, nothing is claimed ahead, and
//! a step that kills its process again takes no more with it than the steps that ran beside it.

use std::time::Duration;

/// The executions that are claimed ahead are at most this much work for all slots together.
const HORIZON: Duration = Duration::from_millis(20);

/// The most that is claimed ahead: enough that the fixed cost of a commit is small beside the cost of its
/// rows.
const AHEAD_MAX: usize = 500;

/// The weight of the newest step in the mean.
const NEWEST: f64 = 1.0 / 16.0;

/// The first and the longest wait for somebody who holds a lock on everything that is due.
const VAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// The wait after a claim that took nothing although something was due, when this many claims before
/// it took nothing either.
pub fn in_vain(before: u32) -> Duration {
    let [first, longest] = VAIN;
    first.saturating_mul(1 << before.min(16)).min(longest)
}

/// A worker's knowledge about its steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prefetch {
    /// Seconds per step, the newest step weighing most; `None` before the first.
    mean: Option<f64>,
    /// The last claim brought an execution that has seen a process die.
    suspect: bool,
}

impl Prefetch {
    /// Takes note of a step that took this long.
    pub fn took(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        let mean = self.mean.unwrap_or(took);
        self.mean = Some(mean + (took - mean) * NEWEST);
    }

    /// Takes note of whether a claim brought an execution that has seen a process die.
    pub fn suspect(&mut self, suspect: bool) {
        self.suspect = suspect;
    }

    /// True when the last claim brought an execution that has seen a process die.
    pub fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// How many executions to hold beyond those that run in `slots`, one of which has run for `longest`.
    pub fn ahead(&self, slots: usize, longest: Duration) -> usize {
        let Some(mean) = self.mean.filter(|_| !self.suspect) else {
            return 0;
        };
        if longest > HORIZON {
            return 0;
        }
        let ahead = slots as f64 * HORIZON.as_secs_f64() / mean.max(1e-6);
        (ahead as usize).min(AHEAD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(took: Duration) -> Prefetch {
        let mut prefetch = Prefetch::default();
        (0..100).for_each(|_| prefetch.took(took));
        prefetch
    }

    #[test]
    fn what_is_asked_for_in_vain_is_asked_for_more_and_more_seldom() {
        let waits: Vec<u128> = (0..9).map(|before| in_vain(before).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(in_vain(u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn nothing_is_claimed_ahead_before_a_step_has_ended() {
        assert_eq!(Prefetch::default().ahead(5, Duration::ZERO), 0);
    }

    #[test]
    fn steps_that_take_nothing_are_claimed_ahead_up_to_the_bound() {
        let prefetch = after(Duration::from_micros(20));
        assert_eq!(prefetch.ahead(5, Duration::ZERO), AHEAD_MAX);
        assert_eq!(after(Duration::ZERO).ahead(1, Duration::ZERO), AHEAD_MAX);
    }

    #[test]
    fn what_waits_is_a_moments_work() {
        let prefetch = after(Duration::from_millis(5));
        assert_eq!(prefetch.ahead(5, Duration::ZERO), 20);
        assert_eq!(prefetch.ahead(1, Duration::ZERO), 4);
        assert_eq!(after(Duration::from_secs(1)).ahead(5, Duration::ZERO), 0);
    }

    #[test]
    fn a_slot_that_is_taken_for_long_ends_claiming_ahead() {
        let prefetch = after(Duration::from_micros(20));
        assert_eq!(prefetch.ahead(5, HORIZON + Duration::from_micros(1)), 0);
    }

    #[test]
    fn nothing_is_claimed_ahead_of_what_has_seen_a_process_die() {
        let mut prefetch = after(Duration::from_micros(20));
        prefetch.suspect(true);
        assert_eq!(prefetch.ahead(5, Duration::ZERO), 0);
        prefetch.suspect(false);
        assert_eq!(prefetch.ahead(5, Duration::ZERO), AHEAD_MAX);
    }

    #[test]
    fn a_slow_step_after_fast_ones_slows_it_down_at_once() {
        let mut prefetch = after(Duration::from_micros(20));
        prefetch.took(Duration::from_secs(10));
        assert_eq!(prefetch.ahead(5, Duration::ZERO), 0);
    }
}
