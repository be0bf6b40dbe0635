//! Counts over time: the duty by which one of all consoles makes them, and the part of them that the overview shows.
//!
//! Owns: when the console looks at the sums, and how long an answer is valid. Never: decides the content of a point
//! (`metrics::series`), or guards that it is written once (`store::series`).
//!
//! A minute in which nothing was counted costs one statement, through the connection that reads. A write happens only
//! if something was counted, through a connection that exists for writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::metrics::Counts;
use crate::metrics::series::{
    ALL, Grain, HOUR, LAG, Look, Looked, MINUTE, Point, Sum, complete, sums,
};
use crate::store::series::{self, Stored};
use crate::store::{metrics, query};

use super::Site;
use super::source::{ReadError, Source};

/// The name of the duty.
const DUTY: &str = "series";

/// A duty that was not renewed for this long is free for another console: it is longer than from one minute to the
/// next.
const LEASE: Duration = Duration::from_secs(90);

/// The pause after a failure of the database.
const AGAIN: Duration = Duration::from_secs(5);

/// A look comes a little after the minute is complete, so that it never comes slightly too early.
const BEHIND: Duration = Duration::from_millis(200);

/// The interval at which old points are deleted.
const FORGETS_EVERY: Duration = Duration::from_secs(3600);

/// The minutes of the overview,
pub const MINUTES: usize = 60;

/// and its hours.
pub const HOURS: usize = 24;

/// An answer of the database is valid for this long: there are new points once a minute.
const KEPT: Duration = Duration::from_secs(5);

/// Makes the points for as long as the console lives, while no other console does.
pub async fn work(site: Arc<Site>) {
    let mut watch = Watch {
        known: None,
        forgets_at: Instant::now(),
    };
    loop {
        let pause = match watch.turn(&site).await {
            Ok(pause) => pause,
            Err(_) => AGAIN,
        };
        tokio::time::sleep(pause).await;
    }
}

/// Looks at the sums, again and again.
struct Watch {
    /// The turn and the stored look, as this console wrote or read it, and the time up to which nothing was counted
    /// since.
    known: Option<(i64, Looked)>,
    forgets_at: Instant,
}

impl Watch {
    /// Looks once; returns the pause until the next look.
    async fn turn(&mut self, site: &Arc<Site>) -> Result<Duration, ReadError> {
        let is_known = self.known.is_some();
        let read = site.source.read(async move |conn| {
            // The look is read first: sums that are read later are no smaller than those in it.
            let stored = match is_known {
                true => None,
                false => series::last(conn).await?,
            };
            let summed = match metrics::at_a_time(conn).await? {
                Some(summed) => summed,
                None => (query::now(conn).await?, Counts::default()),
            };
            Ok((stored, summed))
        });
        let (stored, (now, counts)) = read.await?;
        let sums = sums(&counts);
        let next = complete(now) + MINUTE + LAG - now;
        let next = Duration::from_micros(next.unsigned_abs()) + BEHIND;
        let (turn, looked) = match (self.known.take(), stored) {
            (Some(known), _) => known,
            (None, Some(Stored { turn, looked })) => match looked {
                Some(looked) => (turn, looked),
                // The counts since then are unknown.
                None => {
                    tracing::warn!(
                        "the last look at the counts of pipelines cannot be read: their series go on from now"
                    );
                    let anew = Looked::begin(now, sums);
                    self.follow(site, turn, anew, Vec::new()).await?;
                    return Ok(next);
                }
            },
            (None, None) => {
                let first = Looked::begin(now, sums);
                let begun = site
                    .duty_acts
                    .read(async move |conn| series::begin(conn, &first).await);
                begun.await?;
                return Ok(next);
            }
        };
        match looked.look(now, sums) {
            Look::Early => self.known = Some((turn, looked)),
            Look::Quiet(looked) => self.known = Some((turn, looked)),
            Look::Points(looked, points) => {
                let written = self.follow(site, turn, looked.clone(), points).await?;
                self.known = written.then_some((turn + 1, looked));
            }
        }
        Ok(next)
    }

    /// Writes the counts. False: another console has the duty, or has written them already.
    async fn follow(
        &mut self,
        site: &Arc<Site>,
        turn: i64,
        looked: Looked,
        points: Vec<Point>,
    ) -> Result<bool, ReadError> {
        let duties = Arc::clone(&site.duties);
        let forgets = Instant::now() >= self.forgets_at;
        let asked = site.duty_acts.read(async move |conn| {
            if !duties.take(conn, DUTY, LEASE).await? {
                return Ok(false);
            }
            let written = series::follow(conn, turn, &looked, &points).await?;
            if written && forgets {
                series::forget(conn).await?;
            }
            Ok(written)
        });
        let written = asked.await?;
        if written && forgets {
            self.forgets_at = Instant::now() + FORGETS_EVERY;
        }
        Ok(written)
    }
}

/// The counts of a pipeline, by the hours of a day.
#[derive(Clone, Debug, Default)]
pub struct Day {
    /// Each hour, the oldest first; the last one is not over.
    pub hours: Vec<Sum>,
    /// This hour and the one before it, with their times.
    pub lately: Sum,
}

/// All counts over time that the overview shows.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// The end of the last minute.
    pub until: i64,
    /// The last minutes of all pipelines together, the oldest first.
    pub minutes: Vec<Point>,
    /// By pipeline.
    pub days: BTreeMap<String, Day>,
}

/// The last answer of the database.
#[derive(Default)]
pub struct Series {
    /// Held while the database is queried: other requests wait for the same answer.
    last: tokio::sync::Mutex<Option<(Instant, Arc<Glance>)>>,
}

impl Series {
    /// The last hour and the last day, at most a few seconds old.
    pub async fn glance(&self, source: &Source) -> Result<Arc<Glance>, ReadError> {
        let mut last = self.last.lock().await;
        if let Some((at, glance)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(glance));
        }
        let read = source.read(async move |conn| {
            let now = query::now(conn).await?;
            let until = complete(now);
            let from = until - MINUTES as i64 * MINUTE;
            let minutes =
                series::of_pipeline(conn, ALL, Grain::Minute, (from, until), MINUTES).await?;
            let hour = Grain::Hour.of(until - 1);
            let from = hour - (HOURS as i64 - 1) * HOUR;
            let hours = series::of_all(conn, Grain::Hour, (from, until), hour - HOUR).await?;
            Ok((until, from, minutes, hours))
        });
        let (until, from, mut minutes, hours) = read.await?;
        minutes.reverse();
        let mut days: BTreeMap<String, Day> = BTreeMap::new();
        for point in hours {
            let day = days.entry(point.pipeline).or_default();
            day.hours.resize(HOURS, Sum::default());
            let place = usize::try_from((point.at - from) / HOUR).unwrap_or(HOURS);
            if place + 2 >= HOURS {
                day.lately.merge(&point.sum);
            }
            if let Some(hour) = day.hours.get_mut(place) {
                *hour = point.sum;
            }
        }
        let glance = Arc::new(Glance {
            until,
            minutes,
            days,
        });
        *last = Some((Instant::now(), Arc::clone(&glance)));
        Ok(glance)
    }
}
