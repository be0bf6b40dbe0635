//! Sending traces of runs that have ended to a collector.
//!
//! Owns: the duty by which one console of all does it, its pace, and the requests. Never: decides which runs are
//! next (`store::tracer`), what a span says (`machine::trace`), or what follows an answer (`machine::export`).
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

/// Between two looks for runs,
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// or so many times as long as a look took that found nothing.
const TIMES_AS_LONG: u32 = 20;

/// The name of the duty.
const DUTY: &str = "traces";

/// The duty is another's when it was not renewed for so long: longer than a request takes.
const LEASE: Duration = Duration::from_secs(30);

/// The walk, while this console has the duty.
type Shared = Arc<Mutex<Option<Tracer>>>;

struct Sender {
    site: Arc<Site>,
    endpoint: Uri,
    collector: Collector,
    has_duty: bool,
    tracer: Shared,
    /// Since the last request that arrived.
    failures: u32,
    /// Until then the collector is left alone, and why.
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
    /// Looks for runs and sends what there is to send; the pause until the next turn.
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
            // Another console has the duty, and tells of its troubles.
            Ok(None) => {
                if self.has_duty {
                    self.works();
                }
                self.has_duty = false;
                LEASE / 2
            }
            Err(ReadError::Away(_) | ReadError::Late | ReadError::Crowded) => LOOK_EVERY,
            Err(error) => {
                let why = format!("{UNSENT}: {}", telemetry::chain(&error));
                (self.site.terms.exporting)(Some(&why));
                self.failures = self.failures.saturating_add(1);
                LEASE / 3
            }
        }
    }

    /// Takes the duty, or keeps it, and looks for runs unless the collector is left alone.
    async fn look(&self, rests: bool) -> Result<Option<Look>, ReadError> {
        let (tracer, duties) = (Arc::clone(&self.tracer), Arc::clone(&self.site.duties));
        let definitions = Arc::clone(&self.site.definitions);
        let asked = self.site.duty_acts.read(async move |conn| {
            let mut tracer = tracer.lock().await;
            if !duties.take(conn, DUTY, LEASE).await? {
                // Nobody knows here which are sent from now on.
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
            tracer.look(conn, &definitions).await.map(Some)
        });
        asked.await
    }

    /// Sends these runs, in as many requests as they need. Those that fail on the way are looked for again.
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
            // The next ones may be as unwelcome: of a collector that is mended soon little is lost.
            let are = if spans == 1 { "span is" } else { "spans are" };
            self.rest(wait, format!("{why}; {spans} {are} given up"));
        }
    }

    /// One request; what follows it, and what to tell of a failure.
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

    /// The database's time, by which a collector's date is read.
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
