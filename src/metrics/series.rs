//! Counts over time: the counts of each pipeline in a minute and in an hour, from sums that never fall.
//!
//! Owns: which sums are followed, the difference between two looks at them, and the minute and the hour for
//! which it is reported. Never: reads a row or a clock, or makes up counts that nobody has counted.
//!
//! A late look finds the counts of several minutes. They are reported for the last of these, with the time from
//! which on they count: nobody can tell them apart any more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::{Counts, Metric, OTHER, RETRIES, RUN_DURATION, RUNS_ENDED, RUNS_STARTED, STEP_WAIT};

/// A minute, in µs.
pub const MINUTE: i64 = 60_000_000;

/// An hour, in µs.
pub const HOUR: i64 = 60 * MINUTE;

/// Processes write their rows this often, so that all of a minute is there this long after its end. In µs.
pub const LAG: i64 = 10_000_000;

/// We wait for a clock that was set back by less than this. In µs.
const SET_BACK: i64 = 10 * MINUTE;

/// All pipelines together, in place of a pipeline's name: none has this one.
pub const ALL: &str = "";

/// The length of the time that a point is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grain {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

/// Both.
pub const GRAINS: [Grain; 2] = [Grain::Minute, Grain::Hour];

impl Grain {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    /// Its length, in µs.
    pub const fn micros(self) -> i64 {
        match self {
            Self::Minute => MINUTE,
            Self::Hour => HOUR,
        }
    }

    /// The beginning of the minute or hour in which this time is.
    pub const fn of(self, at: i64) -> i64 {
        at - at.rem_euclid(self.micros())
    }
}

/// The counts of one pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sum {
    /// Runs whose first attempt has ended.
    pub started: u64,
    /// Runs that completed.
    pub completed: u64,
    /// Runs that halted.
    pub halted: u64,
    /// Attempts that were followed by another.
    pub retries: u64,
    /// For how long steps had been due when they were claimed.
    pub waited: Histogram,
    /// How long runs lasted, from the trigger to the end.
    pub lasted: Histogram,
}

impl Sum {
    /// Adds all that the other one has.
    pub fn merge(&mut self, other: &Self) {
        self.started = self.started.saturating_add(other.started);
        self.completed = self.completed.saturating_add(other.completed);
        self.halted = self.halted.saturating_add(other.halted);
        self.retries = self.retries.saturating_add(other.retries);
        self.waited.merge(&other.waited);
        self.lasted.merge(&other.lasted);
    }

    /// The counts that were not yet in an earlier sum. A sum that fell counts nothing.
    fn since(&self, earlier: &Self) -> Self {
        let mut since = Self {
            started: self.started.saturating_sub(earlier.started),
            completed: self.completed.saturating_sub(earlier.completed),
            halted: self.halted.saturating_sub(earlier.halted),
            retries: self.retries.saturating_sub(earlier.retries),
            ..self.clone()
        };
        since.waited.subtract(&earlier.waited);
        since.lasted.subtract(&earlier.lasted);
        since
    }

    fn is_nothing(&self) -> bool {
        let counted = [self.started, self.completed, self.halted, self.retries];
        counted == [0; 4] && self.waited.is_empty() && self.lasted.is_empty()
    }

    fn has_fallen(&self, earlier: &Self) -> bool {
        self.started < earlier.started
            || self.completed < earlier.completed
            || self.halted < earlier.halted
            || self.retries < earlier.retries
    }
}

/// The sums of all pipelines, by name, and of all together.
pub type Sums = BTreeMap<String, Sum>;

/// The sums in the counts of all processes.
pub fn sums(counts: &Counts) -> Sums {
    let mut sums = Sums::new();
    let mut add = |pipeline: &str, change: &dyn Fn(&mut Sum)| {
        for name in [ALL, pipeline] {
            match sums.get_mut(name) {
                Some(sum) => change(sum),
                None => change(sums.entry(name.to_owned()).or_default()),
            }
        }
    };
    let mut count = |metric: &Metric, change: &dyn Fn(&mut Sum, &[&str], u64)| {
        for (labels, n) in counts.counters(metric) {
            add(labels[0], &|sum| change(sum, &labels, n));
        }
    };
    count(&RUNS_STARTED, &|sum, _, n| sum.started += n);
    count(&RUNS_ENDED, &|sum, labels, n| match labels.get(1) {
        Some(&"completed") => sum.completed += n,
        Some(&"halted") => sum.halted += n,
        _ => {}
    });
    count(&RETRIES, &|sum, _, n| sum.retries += n);
    for (labels, waited) in counts.histograms(&STEP_WAIT) {
        add(labels[0], &|sum| sum.waited.merge(waited));
    }
    for (labels, lasted) in counts.histograms(&RUN_DURATION) {
        add(labels[0], &|sum| sum.lasted.merge(lasted));
    }
    sums
}

/// The counts of a pipeline in a minute or an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The pipeline, or [`ALL`].
    pub pipeline: String,
    /// How long it is.
    pub grain: Grain,
    /// When it begins: µs since 1970.
    pub at: i64,
    /// The time from which on it counts: before it begins, where nobody had looked in time.
    pub since: i64,
    /// The counts.
    pub sum: Sum,
}

/// The sums at the last look, from which the next one goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// All counts up to then are reported: the end of a minute, in µs since 1970.
    pub until: i64,
    sums: Sums,
    /// The hour that is not over yet, the time from which on it is counted, and the times in it so far.
    hour: i64,
    hour_since: i64,
    hours: BTreeMap<String, (Histogram, Histogram)>,
}

/// The result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The minute is not over yet.
    Early,
    /// Nothing was counted: nothing has to be written.
    Quiet(Looked),
    /// These are to be added to the existing ones. The times of an hour are all times of that hour.
    Points(Looked, Vec<Point>),
}

/// The end of the last minute that is complete at this time.
pub fn complete(now: i64) -> i64 {
    Grain::Minute.of(now.saturating_sub(LAG))
}

impl Looked {
    /// Begins with these sums: earlier counts belong to no minute.
    pub fn begin(now: i64, sums: Sums) -> Self {
        let until = complete(now);
        Self {
            until,
            sums,
            hour: Grain::Hour.of(until),
            hour_since: until,
            hours: BTreeMap::new(),
        }
    }

    /// Looks again, at that time.
    pub fn look(&self, now: i64, sums: Sums) -> Look {
        let until = complete(now);
        // We do not wait for a clock that was set back for good.
        if until <= self.until && self.until - until < SET_BACK {
            return Look::Early;
        }
        let at = until - MINUTE;
        let since = self.until.min(at);
        let mut next = Self {
            until,
            ..self.clone()
        };
        if Grain::Hour.of(at) != self.hour {
            next.hour = Grain::Hour.of(at);
            next.hour_since = since;
            next.hours.clear();
        }
        let nothing = Sum::default();
        let before = |name: &str| self.sums.get(name).unwrap_or(&nothing);
        // Where more pipelines come and go than have series of their own, the counts of one move to the rest.
        let moved = sums.iter().any(|(name, sum)| sum.has_fallen(before(name)))
            || self.sums.keys().any(|name| !sums.contains_key(name));
        // And back: the first sum of such a pipeline is its whole history.
        let had_rest = self.sums.contains_key(OTHER);
        let mut points = Vec::new();
        for (name, sum) in &sums {
            let is_new = !self.sums.contains_key(name);
            let sum = sum.since(before(name));
            if sum.is_nothing() || moved && name == OTHER || had_rest && is_new {
                continue;
            }
            let (waited, lasted) = next.hours.entry(name.clone()).or_default();
            waited.merge(&sum.waited);
            lasted.merge(&sum.lasted);
            let of_hour = Sum {
                waited: waited.clone(),
                lasted: lasted.clone(),
                ..sum
            };
            let point = |grain, at, since, sum| Point {
                pipeline: name.clone(),
                grain,
                at,
                since,
                sum,
            };
            points.push(point(Grain::Minute, at, since, sum));
            points.push(point(Grain::Hour, next.hour, next.hour_since, of_hour));
        }
        let is_same = sums == self.sums;
        next.sums = sums;
        match is_same {
            true => Look::Quiet(next),
            false => Look::Points(next, points),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 2026-03-01 10:00:00.
    const TEN: i64 = 1_772_359_200_000_000;

    const SECOND: i64 = 1_000_000;

    fn counted(pipeline: &str, started: u64, halted: u64) -> Counts {
        let mut counts = Counts::default();
        counts.add(&RUNS_STARTED, &[pipeline], started);
        counts.add(&RUNS_ENDED, &[pipeline, "halted"], halted);
        counts.add(&RUNS_ENDED, &[pipeline, "completed"], started - halted);
        for _ in 0..started {
            counts.observe(&STEP_WAIT, &[pipeline], Duration::from_secs(1));
        }
        counts
    }

    fn points(look: Look) -> (Looked, Vec<Point>) {
        match look {
            Look::Points(looked, points) => (looked, points),
            other => panic!("{other:?}"),
        }
    }

    /// Of the pipeline alone: the grain, the minute or hour, since when, and the runs.
    fn told(points: &[Point]) -> Vec<(Grain, i64, i64, u64, u64)> {
        let own = points.iter().filter(|it| it.pipeline == "P");
        let point = |it: &Point| {
            let minutes = |at| (at - TEN) / MINUTE;
            (
                it.grain,
                minutes(it.at),
                minutes(it.since),
                it.sum.started,
                it.sum.waited.count(),
            )
        };
        own.map(point).collect()
    }

    #[test]
    fn a_minute_is_told_when_all_of_it_is_there_and_its_hour_grows() {
        let looked = Looked::begin(TEN + 15 * SECOND, sums(&counted("P", 100, 0)));
        let early = looked.look(TEN + 69 * SECOND, sums(&counted("P", 102, 0)));
        assert_eq!(early, Look::Early);
        let (looked, first) = points(looked.look(TEN + 70 * SECOND, sums(&counted("P", 103, 1))));
        assert_eq!(
            told(&first),
            [(Grain::Minute, 0, 0, 3, 3), (Grain::Hour, 0, 0, 3, 3)]
        );
        let all = first
            .iter()
            .find(|it| it.pipeline == ALL)
            .expect("the sum of all");
        assert_eq!(
            (all.sum.started, all.sum.halted, all.sum.completed),
            (3, 1, 2)
        );
        let (_, next) = points(looked.look(TEN + 130 * SECOND, sums(&counted("P", 107, 1))));
        // The number is the one to be added; the times are all times of the hour.
        assert_eq!(
            told(&next),
            [(Grain::Minute, 1, 1, 4, 4), (Grain::Hour, 0, 0, 4, 7)]
        );
    }

    #[test]
    fn what_a_late_look_finds_is_told_once_for_the_last_minute_and_says_since_when() {
        let looked = Looked::begin(TEN + 10 * SECOND, sums(&counted("P", 5, 0)));
        let late = TEN + 75 * MINUTE + 20 * SECOND;
        let (looked, found) = points(looked.look(late, sums(&counted("P", 65, 0))));
        assert_eq!(
            told(&found),
            [(Grain::Minute, 74, 0, 60, 60), (Grain::Hour, 60, 0, 60, 60)]
        );
        assert_eq!(looked.until, TEN + 75 * MINUTE);
        assert_eq!(
            looked.look(late + SECOND, sums(&counted("P", 66, 0))),
            Look::Early
        );
    }

    #[test]
    fn quiet_minutes_were_looked_at() {
        let looked = Looked::begin(TEN + 10 * SECOND, sums(&counted("P", 5, 0)));
        let quiet = looked.look(TEN + 10 * MINUTE + 10 * SECOND, sums(&counted("P", 5, 0)));
        let Look::Quiet(looked) = quiet else {
            panic!("{quiet:?}")
        };
        let (_, found) =
            points(looked.look(TEN + 11 * MINUTE + 10 * SECOND, sums(&counted("P", 6, 0))));
        assert_eq!(
            told(&found),
            [(Grain::Minute, 10, 10, 1, 1), (Grain::Hour, 0, 0, 1, 1)]
        );
    }

    #[test]
    fn a_clock_that_was_set_back_a_little_is_waited_for_and_no_longer() {
        let looked = Looked::begin(TEN + 10 * SECOND, sums(&counted("P", 5, 0)));
        let more = || sums(&counted("P", 6, 0));
        assert_eq!(looked.look(TEN - 5 * MINUTE, more()), Look::Early);
        let (looked, found) = points(looked.look(TEN - 20 * MINUTE + 10 * SECOND, more()));
        assert_eq!(
            told(&found),
            [
                (Grain::Minute, -21, -21, 1, 1),
                (Grain::Hour, -60, -21, 1, 1)
            ]
        );
        assert_eq!(looked.until, TEN - 20 * MINUTE);
    }

    #[test]
    fn counts_that_move_from_a_pipeline_to_the_rest_are_no_new_ones() {
        let before = |own: u64, other: u64| {
            let mut counts = counted("P", own, 0);
            counts.merge(&counted(OTHER, other, 0));
            sums(&counts)
        };
        let looked = Looked::begin(TEN + 10 * SECOND, before(50, 10));
        let (_, found) = points(looked.look(TEN + 70 * SECOND, before(20, 43)));
        let names: Vec<(&str, u64)> = found
            .iter()
            .map(|it| (&*it.pipeline, it.sum.started))
            .collect();
        assert_eq!(names, [(ALL, 3), (ALL, 3)]);
    }

    #[test]
    fn a_pipeline_that_leaves_the_rest_brings_no_history_along() {
        let rest = sums(&counted(OTHER, 50_010, 0));
        let mut apart = counted(OTHER, 9, 0);
        apart.merge(&counted("P", 50_001, 0));
        let looked = Looked::begin(TEN + 10 * SECOND, rest);
        let (looked, found) = points(looked.look(TEN + 70 * SECOND, sums(&apart)));
        assert_eq!(found, []);
        apart.merge(&counted("P", 2, 0));
        let (_, found) = points(looked.look(TEN + 130 * SECOND, sums(&apart)));
        assert_eq!(
            told(&found),
            [(Grain::Minute, 1, 1, 2, 2), (Grain::Hour, 0, 0, 2, 2)]
        );
    }

    #[test]
    fn a_look_is_stored_as_text_and_read_again() {
        let looked = Looked::begin(TEN, sums(&counted("P", 5, 1)));
        let (looked, _) = points(looked.look(TEN + 80 * SECOND, sums(&counted("P", 9, 1))));
        let body = serde_json::to_string(&looked).expect("numbers and texts");
        assert_eq!(
            serde_json::from_str::<Looked>(&body).expect("the same"),
            looked
        );
        // The body of a newer version.
        let newer = body.replacen('{', r#"{"further":1,"#, 1);
        assert_eq!(
            serde_json::from_str::<Looked>(&newer).expect("the same"),
            looked
        );
    }
}
