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
    /// It counts from then on. That is before it begins where no console was there in time: then it has the counts of
    /// the minutes before it as well. It is after it begins where the first console of all began in it.
    since: Time,
    /// From `since` until its end, for a rate; of an hour that is not over, what will be.
    seconds: f64,
    /// Runs whose first attempt ended.
    started: u64,
    /// Runs that ended. One that a person cancelled is not counted.
    ended: EndedJson,
    /// Attempts that were followed by another after an error, a timeout or a crash.
    retries: u64,
    /// For how long steps had been due when they were claimed. One that was leased with the result before it is not
    /// among them.
    step_wait: TimesJson,
    /// How long the runs lasted that ended, from the trigger on.
    run_duration: TimesJson,
}

/// Runs that ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ended")]
struct EndedJson {
    completed: u64,
    halted: u64,
}

/// Times, in few numbers; each is exact to a fifth of itself.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Times")]
struct TimesJson {
    /// How many there were.
    count: u64,
    /// Half of them were no longer; null where there are none.
    p50_seconds: Option<f64>,
    /// 95 of 100 were no longer; null where there are none.
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
