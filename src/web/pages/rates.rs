//! Counts over time as pages show them: rates, small rows of bars, and the chart of a pipeline.
//!
//! Owns: their words, and the hours and minutes of each picture. Never: reads anything.

use crate::metrics::Histogram;
use crate::metrics::series::{Grain, HOUR, MINUTE, Point, Sum};
use crate::number::grouped;
use crate::svg::chart::{self, Bar};
use crate::time;
use crate::web::series::{Day, Glance, HOURS, MINUTES};

use super::parts::{self, Moment};

/// A look that comes later than this counts as one that comes then.
const MONTH: i64 = 30 * 24 * HOUR;

/// The number of the last minutes that a rate covers.
pub const LATELY: i64 = 5;

/// Runs of all pipelines per minute.
pub struct Rate {
    pub name: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    pub text: String,
    /// The last hour, as a picture.
    pub row: String,
}

/// The rates of the overview: started runs and ended runs.
pub fn rates(glance: &Glance) -> [Rate; 2] {
    let rate = |name, meaning, of: &dyn Fn(&Sum) -> (u64, u64)| {
        let mut bars = [(0, 0); MINUTES];
        let (mut lately, mut since) = (0_u64, glance.until - LATELY * MINUTE);
        let (mut all, mut halted) = (0_u64, 0_u64);
        for point in &glance.minutes {
            let (whole, part) = of(&point.sum);
            (all, halted) = (all.saturating_add(whole), halted.saturating_add(part));
            // A point of several minutes counts for all of them: nobody knows which minute had more.
            let last = place(glance.until, point.at);
            let first = place(glance.until, point.since).max(0);
            let minutes = last.saturating_sub(place(glance.until, point.since)) + 1;
            let share = |n: u64| n.div_ceil(minutes.max(1).unsigned_abs());
            for at in first..=last {
                let bar = usize::try_from(at).ok().and_then(|at| bars.get_mut(at));
                if let Some(bar) = bar {
                    *bar = (share(whole), share(part));
                }
            }
            if point.at >= glance.until - LATELY * MINUTE {
                lately = lately.saturating_add(whole);
                since = since.min(point.since);
            }
        }
        let minutes = glance.until.saturating_sub(since).max(MINUTE) as f64 / MINUTE as f64;
        let most = bars.iter().map(|it| it.0).max().unwrap_or(0);
        let mut told = format!(
            "{name} by the minute in the last hour: {} in all, at most {} in a minute",
            grouped(all),
            grouped(most)
        );
        if halted > 0 {
            told.push_str(&format!(", {} halted", grouped(halted)));
        }
        Rate {
            name,
            meaning,
            text: format!("{}/min", rounded(lately as f64 / minutes)),
            row: chart::row(&told, &bars),
        }
    };
    [
        rate(
            "Runs started",
            "Runs whose first attempt ended, by the minute: in the last five, and each of the last hour",
            &|sum| (sum.started, 0),
        ),
        rate(
            "Runs ended",
            "Runs that completed or halted, by the minute: in the last five, and each of the last hour",
            &|sum| (sum.completed.saturating_add(sum.halted), sum.halted),
        ),
    ]
}

/// The index of the minute of this time among those that end at `until`: the last one has `MINUTES - 1`, and those
/// before the first are below 0.
fn place(until: i64, at: i64) -> i64 {
    let back = until.saturating_sub(at).clamp(0, MONTH) / MINUTE;
    MINUTES as i64 - back
}

/// A rate to two significant digits.
fn rounded(rate: f64) -> String {
    match rate {
        _ if rate >= 10.0 || rate == 0.0 => grouped(rate.round() as u64),
        _ if rate >= 0.1 => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}

/// The last day of a pipeline.
pub struct LastDay {
    /// The times within which 95 of 100 stayed, lately.
    pub waited: String,
    pub lasted: String,
    pub row: String,
    /// The number of runs that halted, if any did.
    pub halted: Option<String>,
}

/// The last day of a pipeline; without a day, nothing was counted.
pub fn last_day(day: Option<&Day>) -> LastDay {
    let none = Day::default();
    let day = day.unwrap_or(&none);
    let mut bars = [(0, 0); HOURS];
    for (bar, sum) in bars.iter_mut().zip(&day.hours) {
        *bar = (sum.completed.saturating_add(sum.halted), sum.halted);
    }
    let sum = |of: fn(&(u64, u64)) -> u64| bars.iter().map(of).fold(0_u64, u64::saturating_add);
    let (ended, halted) = (sum(|it| it.0), sum(|it| it.1));
    let most = bars.iter().map(|it| it.0).max().unwrap_or(0);
    let told = match ended {
        0 => "no run ended in the last 24 hours".to_owned(),
        _ => format!(
            "runs that ended by the hour in the last 24: {} in all, at most {} in an hour, {} halted",
            grouped(ended),
            grouped(most),
            grouped(halted)
        ),
    };
    LastDay {
        waited: quantile(&day.lately.waited, 0.95),
        lasted: quantile(&day.lately.lasted, 0.95),
        row: chart::row(&told, &bars),
        halted: (halted > 0).then(|| grouped(halted)),
    }
}

fn quantile(times: &Histogram, share: f64) -> String {
    let found = times.quantile(share).map(time::span);
    found.unwrap_or_default()
}

/// The time spans of a chart: the value in the address, the words, and the hours.
pub const SPANS: [(&str, &str, usize); 2] = [("24h", "24 hours", 24), ("7d", "7 days", 168)];

/// An hour in numbers.
pub struct Hour {
    pub at: Moment,
    /// The time from which it counts, if that is another one.
    pub since: Option<String>,
    pub started: String,
    pub completed: String,
    pub halted: String,
    pub has_halted: bool,
    pub retries: String,
    /// Half of them, and 95 of 100, waited and lasted no longer than this.
    pub waited: [String; 2],
    pub lasted: [String; 2],
}

/// The chart of a pipeline, and its numbers.
pub struct Chart {
    pub picture: String,
    /// The newest first, without hours in which nothing happened.
    pub hours: Vec<Hour>,
    pub has_odd: bool,
}

/// The first hour of a chart of this many hours, the last of which is not over.
pub fn first_hour(until: i64, hours: usize) -> i64 {
    Grain::Hour.of(until - 1) - (hours as i64 - 1) * HOUR
}

/// The chart of these hours of a pipeline.
pub fn chart(pipeline: &str, points: &[Point], until: i64, (words, hours): (&str, usize)) -> Chart {
    let from = first_hour(until, hours);
    // The distance between two times below the chart.
    let every = hours as i64 / 8;
    let bar = |at: usize| {
        let hour = from + at as i64 * HOUR;
        let point = points.iter().find(|it| it.at == hour);
        let sum = point.map(|it| it.sum.clone()).unwrap_or_default();
        let clock = parts::seconds(hour);
        let (day, clock) = (
            clock.get(5..10).unwrap_or_default(),
            clock.get(11..16).unwrap_or_default(),
        );
        let tick = match (hour / HOUR).rem_euclid(every) {
            0 if every < 24 && hours <= 24 => Some(clock.to_owned()),
            _ if hours > 24 && (hour / HOUR).rem_euclid(24) == 0 => Some(day.to_owned()),
            _ => None,
        };
        Bar {
            told: format!(
                "{day} {clock} UTC: {} started, {} completed, {} halted",
                grouped(sum.started),
                grouped(sum.completed),
                grouped(sum.halted)
            ),
            tick,
            is_odd: point.is_some_and(|it| it.since != it.at),
            started: sum.started,
            completed: sum.completed,
            halted: sum.halted,
        }
    };
    let bars: Vec<Bar> = (0..hours).map(bar).collect();
    let sum = |of: fn(&Bar) -> u64| grouped(bars.iter().map(of).fold(0_u64, u64::saturating_add));
    let label = format!(
        "Runs of {pipeline} by the hour in the last {words}: {} started, {} completed, {} halted",
        sum(|it| it.started),
        sum(|it| it.completed),
        sum(|it| it.halted)
    );
    Chart {
        picture: chart::chart(&label, &bars),
        hours: points.iter().rev().map(hour).collect(),
        has_odd: bars.iter().any(|it| it.is_odd),
    }
}

fn hour(point: &Point) -> Hour {
    let Sum {
        started,
        completed,
        halted,
        retries,
        waited,
        lasted,
    } = &point.sum;
    Hour {
        at: parts::at(point.at),
        since: (point.since != point.at).then(|| parts::seconds(point.since)),
        started: grouped(*started),
        completed: grouped(*completed),
        halted: grouped(*halted),
        has_halted: *halted > 0,
        retries: grouped(*retries),
        waited: [0.5, 0.95].map(|share| quantile(waited, share)),
        lasted: [0.5, 0.95].map(|share| quantile(lasted, share)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-01 10:00:00.
    const TEN: i64 = 1_772_359_200_000_000;

    fn point(grain: Grain, at: i64, since: i64, completed: u64, halted: u64) -> Point {
        let started = completed + halted;
        Point {
            pipeline: "P".to_owned(),
            grain,
            at,
            since,
            sum: Sum {
                started,
                completed,
                halted,
                ..Sum::default()
            },
        }
    }

    #[test]
    fn a_rate_is_of_the_last_minutes_and_of_all_that_a_late_look_told_together() {
        let minute = |back: i64, since: i64, completed| {
            point(
                Grain::Minute,
                TEN - back * MINUTE,
                TEN - since * MINUTE,
                completed,
                0,
            )
        };
        let text = |minutes| {
            let glance = Glance {
                until: TEN,
                minutes,
                ..Glance::default()
            };
            rates(&glance).map(|it| it.text)
        };
        assert_eq!(text(Vec::new()), ["0/min", "0/min"]);
        let steady = vec![minute(6, 6, 1_000), minute(5, 5, 100), minute(1, 1, 150)];
        assert_eq!(text(steady), ["50/min", "50/min"]);
        assert_eq!(text(vec![minute(1, 20, 30)]), ["1.5/min", "1.5/min"]);
        assert_eq!(text(vec![minute(1, 1, 1)]), ["0.2/min", "0.2/min"]);
        // Nobody knows that all of them fell into one of the two minutes.
        let glance = |minutes| Glance {
            until: TEN,
            minutes,
            ..Glance::default()
        };
        let [started, _] = rates(&glance(vec![minute(1, 2, 235)]));
        let told = "235 in all, at most 118 in a minute";
        assert!(started.row.contains(told), "{}", started.row);
        // Somebody has edited these rows.
        let damaged = point(Grain::Minute, i64::MIN, i64::MIN, 1, 0);
        let odd = point(Grain::Minute, TEN - MINUTE, i64::MIN, u64::MAX, 0);
        rates(&glance(vec![damaged, odd, minute(1, 1, u64::MAX)]));
    }

    #[test]
    fn a_row_of_a_day_tells_its_numbers() {
        let mut hours = vec![Sum::default(); HOURS];
        hours[3] = point(Grain::Hour, 0, 0, 1_200, 3).sum;
        let day = Day {
            hours,
            lately: Sum::default(),
        };
        let told = last_day(Some(&day));
        assert_eq!(told.halted.as_deref(), Some("3"));
        assert!(
            told.row
                .contains("1,203 in all, at most 1,203 in an hour, 3 halted"),
            "{}",
            told.row
        );
        assert!(
            last_day(None)
                .row
                .contains("no run ended in the last 24 hours")
        );
    }

    #[test]
    fn a_chart_has_a_bar_for_each_hour_and_says_where_one_is_of_another_time() {
        let points = [
            point(Grain::Hour, TEN - 2 * HOUR, TEN - 2 * HOUR, 5, 0),
            point(Grain::Hour, TEN, TEN - HOUR, 7, 2),
        ];
        for (_, words, hours) in SPANS {
            let told = chart("P", &points, TEN + 5 * MINUTE, (words, hours));
            assert_eq!(told.picture.matches("<g").count(), hours, "{words}");
            assert!(
                told.picture.contains("14 started, 12 completed, 2 halted"),
                "{}",
                told.picture
            );
            assert!(told.has_odd && told.picture.matches("class=\"odd\"").count() == 1);
            let since: Vec<Option<&str>> =
                told.hours.iter().map(|it| it.since.as_deref()).collect();
            assert_eq!(since, [Some("2026-03-01 09:00:00 UTC"), None]);
            let ticks = told.picture.matches("text-anchor=\"middle\"").count();
            assert!((6..=9).contains(&ticks), "{ticks}");
        }
    }
}
