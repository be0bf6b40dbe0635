//! Sending traces of ended runs to a collector.
//!
//! Owns: the duty by which one of all consoles does it, its pace, and the requests. Never: decides which runs
//! are next (`store::tracer`), the content of a span (`machine::trace`), or what follows an answer
//! (`machine::export`).
//!
//! Where no collector is configured, none of this runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Uri;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::config::Collector;
use crate::machine::export::{Follows, fit, follows};
use crate::machine::retry_after::asked_for;
use crate::machine::stuck::{AWAY, UNSENT};
use crate::machine::trace::Facts;
use crate::store::chance;
use crate::store::query;
use crate::store::tracer::{Look, Tracer};
use crate::telemetry;
use crate::wire::trace::{rejected, request, written};

use super::Site;
use super::request::{self, Response, clipped};
use super::source::ReadError;

/// The pause between two looks for runs,
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// or this many times the duration of a look that found nothing.
const TIMES_AS_LONG: u32 = 20;

/// The name of the duty.
const DUTY: &str = "traces";

/// A duty that was not renewed for this long is free for another console: it is longer than a request takes.
const LEASE: Duration = Duration::from_secs(30);

/// The walk through the runs, while this console has the duty.
type Shared = Arc<Mutex<Option<Tracer>>>;

struct Sender {
    site: Arc<Site>,
    endpoint: Uri,
    collector: Collector,
    has_duty: bool,
    tracer: Shared,
    /// Failed requests since the last one that arrived.
    failures: u32,
    /// The time until which the collector is left alone, and the reason.
    rests: Option<(Instant, String)>,
}

/// Sends traces for as long as the console lives, while no other console does.
pub async fn work(site: Arc<Site>) {
    let collector = site.terms.traces.clone();
    let Some(endpoint) = collector.endpoint.clone() else {
        return;
    };
    let mut sender = Sender {
        site,
        endpoint,
        collector,
        has_duty: false,
        tracer: Shared::default(),
        failures: 0,
        rests: None,
    };
    loop {
        let pause = sender.turn().await;
        tokio::time::sleep(pause).await;
    }
}

impl Sender {
    /// Looks for runs and sends their spans; returns the pause until the next turn.
    async fn turn(&mut self) -> Duration {
        let began = Instant::now();
        let left = self
            .rests
            .as_ref()
            .map(|(until, _)| *until - began.min(*until));
        let rests = left.is_some_and(|left| !left.is_zero());
        let looked = self.look(rests).await;
        match looked {
            Ok(Some(look)) => {
                if !self.has_duty {
                    tracing::info!("traces of runs are sent by this console");
                }
                self.has_duty = true;
                if let Some((_, why)) = self.rests.as_ref().filter(|_| rests) {
                    (self.site.terms.exporting)(Some(why));
                    return left.unwrap_or_default().min(LEASE / 3);
                }
                match look {
                    Look::Nothing => LOOK_EVERY
                        .max(began.elapsed() * TIMES_AS_LONG)
                        .min(LEASE / 3),
                    Look::More => Duration::ZERO,
                    Look::Runs(runs) => {
                        self.send(&runs).await;
                        Duration::ZERO
                    }
                }
            }
            // Another console has the duty, and reports its own troubles.
            Ok(None) => {
                if self.has_duty {
                    self.works();
                }
                self.has_duty = false;
                LEASE / 2
            }
            Err(
                ReadError::Away(_)
                | ReadError::OnlyReads(_)
                | ReadError::Hindered(_)
                | ReadError::Late
                | ReadError::Crowded,
            ) => LOOK_EVERY,
            Err(error) => {
                let why = format!("{UNSENT}: {}", telemetry::chain(&error));
                (self.site.terms.exporting)(Some(&why));
                self.failures = self.failures.saturating_add(1);
                LEASE / 3
            }
        }
    }

    /// Takes or keeps the duty, and looks for runs unless the collector is left alone.
    async fn look(&self, rests: bool) -> Result<Option<Look>, ReadError> {
        let (tracer, duties) = (Arc::clone(&self.tracer), Arc::clone(&self.site.duties));
        let definitions = Arc::clone(&self.site.definitions);
        let asked = self.site.duty_acts.read(async move |conn| {
            let mut tracer = tracer.lock().await;
            if !duties.take(conn, DUTY, LEASE).await? {
                // Nobody here knows which runs are sent from now on.
                *tracer = None;
                return Ok(None);
            }
            if rests {
                return Ok(Some(Look::Nothing));
            }
            let tracer = match &mut *tracer {
                Some(tracer) => tracer,
                none => none.insert(Tracer::begin(conn).await?),
            };
            let look = tracer.look(conn, &definitions).await?;
            for run in tracer.take_damaged() {
                tracing::warn!(%run, "the row of a run is damaged: its trace is not sent");
            }
            Ok(Some(look))
        });
        asked.await
    }

    /// Sends these runs, in as many requests as they need. Runs that fail on the way are found again later.
    async fn send(&mut self, runs: &[Facts]) {
        let spans: Vec<Box<RawValue>> = runs.iter().flat_map(written).collect();
        let mut left = vec![spans.as_slice()];
        let mut given_up = None;
        while let Some(some) = left.pop() {
            let (now, later) =
                some.split_at(fit(some.iter().map(|it| it.get().len())).min(some.len()));
            if !later.is_empty() {
                left.push(later);
            }
            if now.is_empty() {
                continue;
            }
            let (follows, why) = self.attempt(now).await;
            match follows {
                Follows::Sent => self.works(),
                Follows::Again(wait) => return self.rest(wait, why),
                Follows::Halved if now.len() > 1 => {
                    let (one, other) = now.split_at(now.len() / 2);
                    left.extend([other, one]);
                }
                Follows::Halved | Follows::GivenUp => {
                    let (spans, _) = given_up.unwrap_or((0, String::new()));
                    given_up = Some((spans + now.len(), why));
                }
            }
        }
        if let Some(tracer) = &mut *self.tracer.lock().await {
            tracer.sent(runs.len());
        }
        if let Some((spans, why)) = given_up
            && let Follows::Again(wait) = follows(None, None, self.failures, chance())
        {
            // The next spans may be refused too; if the collector is mended soon, little is lost.
            let are = if spans == 1 { "span is" } else { "spans are" };
            self.rest(wait, format!("{why}; {spans} {are} given up"));
        }
    }

    /// Sends one request; returns what follows it, and the report of a failure.
    async fn attempt(&self, spans: &[Box<RawValue>]) -> (Follows, String) {
        let collector = &self.collector;
        let headers = &collector.headers;
        let posted = request::post(
            &self.endpoint,
            collector.ca.as_deref(),
            |request| {
                let with = |request: hyper::http::request::Builder, (name, value)| {
                    request.header(name, value)
                };
                headers
                    .iter()
                    .map(|(name, value)| (name, value))
                    .fold(request, with)
            },
            request(spans),
        );
        let response = match posted.await {
            Ok(response) => response,
            Err(why) => {
                return (follows(None, None, self.failures, chance()), why);
            }
        };
        let Response {
            status,
            retry_after,
            text,
        } = response;
        let wait = match retry_after {
            Some(header) => self.now().await.and_then(|now| asked_for(&header, now)),
            None => None,
        };
        let follows = follows(Some(status), wait, self.failures, chance());
        if follows == Follows::Sent
            && let Some((spans, why)) = rejected(&text)
        {
            let why = clipped(&why);
            tracing::warn!(spans, why, "a collector took spans and did not keep them");
        }
        (
            follows,
            format!("the collector answered {status}: {}", clipped(&text)),
        )
    }

    /// The database's time, against which a collector's date is read.
    async fn now(&self) -> Option<i64> {
        let asked = self
            .site
            .duty_acts
            .read(async move |conn| query::now(conn).await);
        asked.await.ok()
    }

    fn rest(&mut self, wait: Duration, why: String) {
        let host = self.endpoint.authority().map_or("", |it| it.as_str());
        let why = format!("{AWAY} {host}: {why}");
        (self.site.terms.exporting)(Some(&why));
        self.failures = self.failures.saturating_add(1);
        self.rests = Some((Instant::now() + wait, why));
    }

    fn works(&mut self) {
        if self.failures > 0 {
            (self.site.terms.exporting)(None);
            tracing::info!("traces of runs are sent again");
        }
        self.failures = 0;
        self.rests = None;
    }
}
