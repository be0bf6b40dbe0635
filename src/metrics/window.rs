//! The counts of the last minute.
//!
//! Owns: which of several readings of the sum are kept, and the counts between the oldest of them and the
//! newest. Never: reads a row or a clock.

use std::collections::VecDeque;
use std::time::Duration;

use super::counts::Counts;

/// The window, in µs.
const SPAN: i64 = 60_000_000;

/// Processes write their rows this often: readings that are closer together tell no more. In µs.
const STEP: i64 = 10_000_000;

/// Readings of the sum of all rows, each with the database's time.
#[derive(Debug, Default)]
pub struct Window {
    /// The oldest first.
    kept: VecDeque<(i64, Counts)>,
}

/// The counts between two readings.
#[derive(Debug)]
pub struct Lately {
    /// The time between them.
    pub span: Duration,
    /// All that was counted in it.
    pub counts: Counts,
}

impl Window {
    /// Adds a reading, which is the newest.
    pub fn push(&mut self, at: i64, counts: Counts) {
        while self.kept.get(1).is_some_and(|(next, _)| *next <= at - SPAN) {
            self.kept.pop_front();
        }
        // The newest reading stays as it is only if it is far enough from the one before it.
        if let [.., (before, _), (last, _)] = self.kept.make_contiguous()
            && *last - *before < STEP
        {
            self.kept.pop_back();
        }
        self.kept.push_back((at, counts));
    }

    /// All that was counted in the window; none until each process has had the time to write its row.
    pub fn lately(&self) -> Option<Lately> {
        let ((from, before), (to, now)) = (self.kept.front()?, self.kept.back()?);
        (to - from >= STEP).then(|| Lately {
            span: crate::time::between(*from, *to),
            counts: now.since(before),
        })
    }
}

impl Lately {
    /// A count in this span, as a rate per minute.
    pub fn per_minute(&self, count: u64) -> f64 {
        count as f64 * 60.0 / self.span.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{RUNS_STARTED, STEP_WAIT};

    const SECOND: i64 = 1_000_000;

    fn started(runs: u64) -> Counts {
        let mut counts = Counts::default();
        counts.add(&RUNS_STARTED, &["P"], runs);
        counts
    }

    fn counted(lately: &Lately) -> u64 {
        let mut series = lately.counts.counters(&RUNS_STARTED);
        series.next().map_or(0, |(_, count)| count)
    }

    #[test]
    fn a_window_covers_a_minute_and_keeps_few_readings() {
        let mut window = Window::default();
        for second in 0..600 {
            window.push(second * SECOND, started(second as u64 * 5));
            assert!(window.kept.len() <= 9, "{}", window.kept.len());
            let Some(lately) = window.lately() else {
                assert!(second < 10, "{second}");
                continue;
            };
            let covered = lately.span.as_secs();
            assert!(
                second < 60 || (60..=70).contains(&covered),
                "{covered} s at {second}"
            );
            assert_eq!(counted(&lately), covered * 5);
            assert!((lately.per_minute(counted(&lately)) - 300.0).abs() < 0.001);
        }
    }

    #[test]
    fn readings_that_are_far_apart_are_told_for_the_time_between_them() {
        let mut window = Window::default();
        window.push(0, started(1));
        window.push(300 * SECOND, started(11));
        let lately = window.lately().expect("two readings");
        assert_eq!((lately.span.as_secs(), counted(&lately)), (300, 10));
        assert!((lately.per_minute(10) - 2.0).abs() < 0.001);
        window.push(360 * SECOND, started(13));
        let lately = window.lately().expect("three readings");
        assert_eq!((lately.span.as_secs(), counted(&lately)), (60, 2));
    }

    #[test]
    fn a_database_that_begins_anew_counts_nothing_below_zero() {
        let mut window = Window::default();
        window.push(0, started(100));
        window.push(10 * SECOND, started(3));
        assert_eq!(counted(&window.lately().expect("two readings")), 0);
    }

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_that_it_lies_in() {
        let mut counts = Counts::default();
        for millis in [1, 1, 1, 1, 1, 1, 1, 1, 1, 1_000] {
            counts.observe(&STEP_WAIT, &["P"], Duration::from_millis(millis));
        }
        let (_, waited) = counts
            .histograms(&STEP_WAIT)
            .next()
            .expect("it has a series");
        let within = |share| {
            waited
                .quantile(share)
                .expect("there are some")
                .as_secs_f64()
        };
        assert!((0.001..0.0012).contains(&within(0.5)), "{}", within(0.5));
        assert!((0.001..0.0012).contains(&within(0.9)));
        assert!((1.0..1.2).contains(&within(0.95)));
        assert!(crate::metrics::Histogram::default().quantile(0.5).is_none());
    }
}
