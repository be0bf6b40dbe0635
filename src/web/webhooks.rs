//! Telling endpoints of runs.
//!
//! Owns: the duty by which one console of all does it, its pace, and how many messages are on their way. Never:
//! decides what an endpoint hears of, or when an attempt is made again (`machine::webhook` does).
//!
//! Where no endpoint is configured, none of this runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::config::Endpoint;
use crate::engine::counting;
use crate::machine::webhook::{Follows, Interest, LONG, follows};
use crate::store::delivery::{self, Delivery, Due, Found};
use crate::store::finder::Finder;
use crate::store::{duty, query};
use crate::telemetry::growing::Growing;
use crate::wire::webhook::MessageJson;

use super::Site;
use super::deeds;
use super::post::{self, Answer, Message};
use super::refusal::Refusal;
use super::source::ReadError;

/// Between two looks for runs,
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// or so many times as long as a look took: then the database spends a twentieth of its time on them.
const TIMES_AS_LONG: u32 = 20;

/// The name of the duty.
const DUTY: &str = "webhooks";

/// The duty is another's when it was not renewed for so long: a few looks.
const LEASE: Duration = Duration::from_secs(8);

/// A message that was taken is nobody else's for so long: longer than an attempt and its record take.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// Messages to one endpoint that are on their way at once: a slow one keeps no other from its messages.
const AT_ONCE: usize = 4;

/// The work on deliveries.
#[derive(Default)]
pub struct Webhooks {
    /// Somebody wants a message sent.
    asked: Notify,
}

/// A message that came to an end, by its endpoint's place.
type Sent = (usize, Due, Answer);

/// The messages on their way.
struct Post {
    endpoints: Arc<[Endpoint]>,
    sends: JoinSet<Sent>,
    /// By endpoint.
    under_way: Vec<usize>,
    refusing: Refusing,
}

/// The endpoints that take nothing, by their places.
#[derive(Default)]
struct Refusing {
    since: BTreeMap<usize, Instant>,
    given_up: Growing<usize>,
    long: Growing<usize>,
}

/// The part of it that the log is told.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    GivenUp,
    Long(Duration),
}

impl Refusing {
    /// Takes note of how an attempt ended, then; with pauses that grow it is to be said.
    fn meet(&mut self, place: usize, follows: Follows, now: Instant) -> Option<Said> {
        let since = match follows {
            Follows::Delivered => {
                self.since.remove(&place);
                self.long.over(&place);
                return None;
            }
            Follows::Failed | Follows::Again(_) => *self.since.entry(place).or_insert(now),
        };
        let lasted = now.saturating_duration_since(since);
        match follows {
            Follows::Failed => self.given_up.meet(&place, now).map(|_| Said::GivenUp),
            _ if lasted >= LONG => self.long.meet(&place, now).map(|_| Said::Long(lasted)),
            _ => None,
        }
    }
}

/// Tells endpoints of runs for as long as the console lives, while no other console does.
pub async fn work(site: Arc<Site>) {
    let endpoints = Arc::clone(&site.terms.webhooks);
    if endpoints.is_empty() {
        return;
    }
    let holder = Uuid::new_v4();
    let (mut finder, mut has_duty) = (None, false);
    let mut post = Post {
        under_way: vec![0; endpoints.len()],
        sends: JoinSet::new(),
        refusing: Refusing::default(),
        endpoints,
    };
    loop {
        let began = Instant::now();
        let looked = look(&site, holder, &post.endpoints, finder.take()).await;
        let mut pause = LOOK_EVERY.max(began.elapsed() * TIMES_AS_LONG);
        match looked {
            Ok(Some((next, more))) => {
                if !has_duty {
                    let endpoints = post.endpoints.len();
                    tracing::info!(endpoints, "endpoints are told of runs by this console");
                }
                has_duty = true;
                finder = Some(next);
                post.fill(&site).await;
                if more {
                    pause = Duration::ZERO;
                }
            }
            // Another console has the duty: what it found is not known here.
            Ok(None) => {
                has_duty = false;
                pause = LEASE / 2;
            }
            Err(_) => {}
        }
        // A message that is on its way is recorded, whoever has the duty by then.
        let until = Instant::now() + pause.min(LEASE / 2);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => break,
                () = site.webhooks.asked.notified() => break,
                Some(sent) = post.sends.join_next() => {
                    if let Ok(sent) = sent {
                        post.record(&site, sent, has_duty).await;
                    }
                }
            }
        }
    }
}

/// Looks for runs, while this console has the duty; where it was, and whether there is more at once.
async fn look(
    site: &Arc<Site>,
    holder: Uuid,
    endpoints: &Arc<[Endpoint]>,
    finder: Option<Finder>,
) -> Result<Option<(Finder, bool)>, ReadError> {
    let endpoints = Arc::clone(endpoints);
    let asked = site.duty_acts.read(async move |conn| {
        if !duty::take(conn, DUTY, holder, LEASE).await? {
            return Ok(None);
        }
        let mut finder = match &finder {
            Some(finder) => finder.clone(),
            None => {
                let named = endpoints
                    .iter()
                    .map(|it| (it.name.clone(), it.interest.clone()));
                let named: Vec<(String, Interest)> = named.collect();
                Finder::begin(conn, &named).await?
            }
        };
        let more = finder.look(conn, &worded).await?;
        Ok(Some((finder, more)))
    });
    asked.await
}

/// The text of a message.
fn worded(run: &Found, reasons: &[&str], now: i64) -> String {
    let message = MessageJson::of(run, reasons, now);
    serde_json::to_string(&message).expect("texts and numbers can be written")
}

impl Post {
    /// Sends what is due, to each endpoint as much as it may have at once.
    async fn fill(&mut self, site: &Arc<Site>) {
        for place in 0..self.endpoints.len() {
            self.fill_one(site, place).await;
        }
    }

    async fn fill_one(&mut self, site: &Arc<Site>, place: usize) {
        let Some(endpoint) = self.endpoints.get(place) else {
            return;
        };
        let free = AT_ONCE.saturating_sub(self.under_way[place]);
        if free == 0 {
            return;
        }
        let name = endpoint.name.clone();
        let asked = site.duty_acts.read(async move |conn| {
            let due = delivery::take(conn, &name, free, SENT_WITHIN).await?;
            let at = query::now(conn).await? / 1_000_000;
            Ok((due, at))
        });
        // A message that was taken, which is not known here, is due again when its time is over.
        let Ok((due, at)) = asked.await else {
            return;
        };
        for due in due {
            self.under_way[place] += 1;
            let endpoints = Arc::clone(&self.endpoints);
            self.sends.spawn_local(async move {
                let endpoint = &endpoints[place];
                let id = format!("{}:{}", due.run, due.event);
                let message = Message {
                    id: &id,
                    at,
                    body: &due.body,
                };
                let answer = {
                    let ca = endpoint.ca.as_deref();
                    post::send(&endpoint.url, ca, &endpoint.secret, &message).await
                };
                (place, due, answer)
            });
        }
    }

    /// Writes down how an attempt ended, and sends what is due next.
    async fn record(&mut self, site: &Arc<Site>, sent: Sent, has_duty: bool) {
        let (place, due, (status, error)) = sent;
        self.under_way[place] = self.under_way[place].saturating_sub(1);
        let spread = f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        let follows = follows(status, due.attempts, spread);
        self.tell(place, follows, status, error.as_deref());
        let asked = site.duty_acts.read(async move |conn| {
            delivery::record(conn, &due, follows, status, error.as_deref()).await
        });
        // A message of which nothing could be written is sent once more.
        if matches!(asked.await, Ok(true)) {
            let counts = &site.terms.counts;
            counts.count(|counts| counting::delivered(counts, follows));
        }
        if has_duty {
            self.fill_one(site, place).await;
        }
    }

    fn tell(&mut self, place: usize, follows: Follows, status: Option<u16>, error: Option<&str>) {
        let endpoint = &self.endpoints[place].name;
        match self.refusing.meet(place, follows, Instant::now()) {
            None => {}
            Some(Said::GivenUp) => tracing::warn!(
                endpoint,
                status,
                error,
                "messages to an endpoint are given up: `/api/v1/webhooks?state=failed` lists them"
            ),
            Some(Said::Long(lasted)) => tracing::warn!(
                endpoint,
                status,
                error,
                seconds = lasted.as_secs(),
                "an endpoint takes no messages: `/api/v1/webhooks?state=waiting` lists those that wait"
            ),
        }
    }
}

/// Has a message sent once more, at once.
pub async fn send_again(site: &Arc<Site>, id: Uuid) -> Result<Delivery, Refusal> {
    let read = site
        .source
        .read(async move |conn| delivery::find(conn, id).await);
    let missing = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no delivery {id}"));
    let found = read.await?.ok_or_else(missing)?;
    let endpoint = &found.endpoint;
    if !site.terms.webhooks.iter().any(|it| it.name == *endpoint) {
        let detail = format!("the console's configuration has no endpoint {endpoint}");
        return Err(deeds::conflict(detail));
    }
    let asked = site.acts.read(
        async move |conn| match delivery::send_again(conn, id).await? {
            true => delivery::find(conn, id).await,
            false => Ok(None),
        },
    );
    let found = asked.await.map_err(deeds::unsure)?.ok_or_else(missing)?;
    site.webhooks.asked.notify_one();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_takes_nothing_for_long_is_told_of_with_pauses_that_grow() {
        let mut refusing = Refusing::default();
        let (start, again) = (Instant::now(), Follows::Again(LONG));
        let mut meet = |place, follows, seconds| {
            let said = refusing.meet(place, follows, start + Duration::from_secs(seconds));
            said.map(|said| match said {
                Said::GivenUp => 0,
                Said::Long(lasted) => lasted.as_secs(),
            })
        };
        assert_eq!(meet(0, again, 0), None);
        assert_eq!(meet(0, again, 599), None);
        assert_eq!(meet(0, again, 600), Some(600));
        assert_eq!(meet(0, again, 601), None);
        // Another endpoint is another matter, and so is a message that is given up.
        assert_eq!(meet(1, again, 602), None);
        assert_eq!(meet(0, Follows::Failed, 603), Some(0));
        assert_eq!(meet(0, Follows::Failed, 604), None);
        assert_eq!(meet(0, Follows::Delivered, 605), None);
        assert_eq!(meet(0, again, 700), None);
        assert_eq!(meet(0, again, 1_300), Some(600));
    }
}
