//! Counts over time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::metrics::Histogram;
use crate::metrics::series::Point;
use crate::time;

use super::Time;

/// The counts of a pipeline in a minute or an hour.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Point")]
pub struct PointJson {
    /// When the minute or the hour begins.
    at: Time,
    /// The time from which it counts. This is before `at` if no console ran in time: the point then includes the
    /// counts of the minutes before it. It is after `at` if the very first console started within the point's time.
    since: Time,
    /// The time from `since` to the point's end, as the divisor for a rate; the end of an hour that is not over is
    /// still to come.
    seconds: f64,
    /// The number of runs whose first attempt ended.
    started: u64,
    /// The number of runs that ended. Runs that a person cancelled are not counted.
    ended: EndedJson,
    /// The number of attempts that were followed by another after an error, a timeout or a crash.
    retries: u64,
    /// How long steps had been due when they were claimed. A step that was leased together with the result before
    /// it is not included.
    step_wait: TimesJson,
    /// How long the runs that ended had lasted since they were triggered.
    run_duration: TimesJson,
}

/// Runs that ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ended")]
struct EndedJson {
    completed: u64,
    halted: u64,
}

/// Durations, summarised in a few numbers; each is accurate to within a fifth of its value.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Times")]
struct TimesJson {
    /// The number of durations.
    count: u64,
    /// Half of the durations were no longer than this; null if there are none.
    p50_seconds: Option<f64>,
    /// 95 of 100 durations were no longer than this; null if there are none.
    p95_seconds: Option<f64>,
}

impl TimesJson {
    fn of(times: &Histogram) -> Self {
        let quantile = |share| times.quantile(share).as_ref().map(Duration::as_secs_f64);
        Self {
            count: times.count(),
            p50_seconds: quantile(0.5),
            p95_seconds: quantile(0.95),
        }
    }
}

impl PointJson {
    /// The form of this point.
    pub fn of(point: &Point) -> Self {
        let ends = point.at.saturating_add(point.grain.micros());
        let sum = &point.sum;
        Self {
            at: Time::of(point.at),
            since: Time::of(point.since),
            seconds: time::between(point.since, ends).as_secs_f64(),
            started: sum.started,
            ended: EndedJson {
                completed: sum.completed,
                halted: sum.halted,
            },
            retries: sum.retries,
            step_wait: TimesJson::of(&sum.waited),
            run_duration: TimesJson::of(&sum.lasted),
        }
    }
}
