//! Telling endpoints about runs.
//!
//! Owns: the duty by which one of all consoles does it, its pace, and the number of messages on their way.
//! Never: decides which events an endpoint gets, or when an attempt is made again (`machine::webhook` does).
//!
//! Where no endpoint is configured, none of this runs.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::config::Endpoint;
use crate::engine::counting;
use crate::machine::retry_after::asked_for;
use crate::machine::webhook::{Follows, GONE, Interest, Pace, SOON, follows, is_busy};
use crate::model::Channel;
use crate::store::chance;
use crate::store::delivery::{self, Attempt, Delivery, Due, Found};
use crate::store::finder::Finder;
use crate::store::query;
use crate::task;
use crate::telemetry::growing::Growing;
use crate::time::micros;
use crate::wire::webhook::MessageJson;

use super::Site;
use super::deeds;
use super::post::{self, Answer, Message};
use super::refusal::Refusal;
use super::source::ReadError;
use super::visitor::{Visitor, alone};

/// The pause between two looks for runs,
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// or this many times the duration of a look: then the database spends a twentieth of its time on them.
const TIMES_AS_LONG: u32 = 20;

/// The name of the duty.
const DUTY: &str = "webhooks";

/// A duty that was not renewed for this long is free for another console: it is a few looks.
const LEASE: Duration = Duration::from_secs(8);

/// A taken message belongs to this console for this long: longer than an attempt and its record take.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// An attempt begins within this time after its message was taken, or waits for another time: it takes 15 s at
/// most.
const BEGUN_WITHIN: Duration = Duration::from_secs(3);

/// The work on deliveries.
#[derive(Default)]
pub struct Webhooks {
    /// Notified when somebody wants a message sent.
    asked: Notify,
}

/// A message whose attempt ended, by its endpoint's place.
type Sent = (usize, Due, Answer);

/// The messages on their way.
struct Post {
    endpoints: Arc<[Endpoint]>,
    sends: JoinSet<Sent>,
    /// By endpoint.
    lines: Vec<Line>,
    /// Attempts that are not recorded yet.
    ended: Vec<Ended>,
    refusing: Refusing,
}

/// The messages to one endpoint.
struct Line {
    pace: Pace,
    under_way: usize,
    /// Messages that were taken ahead,
    stock: VecDeque<Due>,
    /// at this moment, which is this time by the database: seconds since 1970.
    taken: Instant,
    at: i64,
    /// No attempt begins before this.
    next: Instant,
    /// Nothing more was due at the last look.
    is_done: bool,
}

impl Line {
    fn new(now: Instant) -> Self {
        Self {
            pace: Pace::default(),
            under_way: 0,
            stock: VecDeque::new(),
            taken: now,
            at: 0,
            next: now,
            is_done: false,
        }
    }

    /// The number of messages to take for it.
    fn wants(&self, now: Instant) -> usize {
        let is_free = self.under_way < self.pace.at_once() && self.stock.is_empty();
        match is_free && !self.is_done && now >= self.next {
            true => self.pace.stock(),
            false => 0,
        }
    }
}

/// An attempt that ended.
struct Ended {
    due: Due,
    follows: Follows,
    status: Option<u16>,
    error: Option<String>,
}

/// The endpoints that accept nothing, by their places.
#[derive(Default)]
struct Refusing {
    since: BTreeMap<usize, Refused>,
    said: Growing<(Said, usize)>,
}

/// A line of the log about an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    /// Messages to it are given up.
    GivenUp,
    /// It has accepted nothing for long.
    Long,
    /// Another console has the duty, and has not looked for runs for this endpoint for long.
    Unheard,
}

/// The time since which an endpoint accepts nothing, and its last answer.
#[derive(Clone, Debug)]
struct Refused {
    since: Instant,
    status: Option<u16>,
    error: Option<String>,
}

impl Refused {
    /// The list that has the messages which the endpoint has not accepted.
    fn list(&self) -> &'static str {
        match self.status {
            Some(GONE) => "`/api/v1/webhooks?state=failed` lists those that are given up",
            _ => "`/api/v1/webhooks?state=waiting` lists those that wait",
        }
    }
}

impl Refusing {
    /// Records the outcome of an attempt at this time. True if the log should say that messages are given up.
    fn meet(&mut self, place: usize, follows: Follows, answer: &Answer, now: Instant) -> bool {
        if follows == Follows::Delivered {
            self.since.remove(&place);
            self.said.over(&(Said::Long, place));
            return false;
        }
        let Answer { status, error, .. } = answer.clone();
        let since = self.since.get(&place).map_or(now, |it| it.since);
        let refused = Refused {
            since,
            status,
            error,
        };
        self.since.insert(place, refused);
        follows == Follows::Failed && self.is_due(Said::GivenUp, place, now)
    }

    /// The endpoints about which the log should say that they accept nothing, at growing intervals.
    fn long(&mut self, now: Instant) -> Vec<(usize, Duration, Refused)> {
        let lasting = self.since.iter().map(|(place, refused)| {
            let lasted = now.saturating_duration_since(refused.since);
            (*place, lasted, refused.clone())
        });
        let mut lasting: Vec<_> = lasting.filter(|(_, lasted, _)| *lasted >= SOON).collect();
        lasting.retain(|(place, ..)| self.is_due(Said::Long, *place, now));
        lasting
    }

    /// True if the log should say this about an endpoint, for which it holds now: at growing intervals.
    fn is_due(&mut self, said: Said, place: usize, now: Instant) -> bool {
        self.said.meet(&(said, place), now).is_some()
    }
}

/// Tells endpoints about runs for as long as the console lives, while no other console does.
pub async fn work(site: Arc<Site>) {
    let endpoints = Arc::clone(&site.terms.webhooks);
    if endpoints.is_empty() {
        return;
    }
    let (mut finder, mut has_duty) = (None, false);
    let mut post = Post {
        lines: endpoints
            .iter()
            .map(|_| Line::new(Instant::now()))
            .collect(),
        sends: JoinSet::new(),
        ended: Vec::new(),
        refusing: Refusing::default(),
        endpoints,
    };
    loop {
        let began = Instant::now();
        let endpoints = Arc::clone(&post.endpoints);
        let looked = post.meanwhile(look(&site, &endpoints, finder.take()));
        let looked = looked.await;
        let took = began.elapsed();
        let mut pause = LOOK_EVERY.max(took * TIMES_AS_LONG);
        match looked {
            Ok(Looked::Found(mut next, more)) => {
                for run in next.take_damaged() {
                    tracing::warn!(%run, "the row of a run is damaged: no endpoint is notified of the run");
                }
                if !has_duty {
                    let endpoints = post.endpoints.len();
                    tracing::info!(endpoints, "this console notifies endpoints of runs");
                }
                has_duty = true;
                finder = Some(next);
                if more {
                    // Messages are sent for as long as it took to find them.
                    pause = took;
                }
            }
            // Another console has the duty: this one does not know what that one found.
            Ok(Looked::IsOthers(waiting)) => {
                post.tell_of_unheard(&waiting);
                has_duty = false;
                pause = LEASE / 2;
            }
            Err(_) => {}
        }
        post.tell_of_long();
        post.lines.iter_mut().for_each(|it| it.is_done = false);
        post.turn(&site, has_duty).await;
        // A message on its way is recorded, whichever console has the duty by then.
        let until = Instant::now() + pause.min(LEASE / 2);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => break,
                () = site.webhooks.asked.notified() => break,
                // Attempts ended while the database answered another question.
                () = std::future::ready(()), if !post.ended.is_empty() => {
                    post.turn(&site, has_duty).await;
                }
                Some(sent) = post.sends.join_next() => {
                    post.end(sent.ok());
                    post.turn(&site, has_duty).await;
                }
            }
        }
    }
}

/// The outcome of a look.
enum Looked {
    /// This console had the duty: the place that it reached, and whether there is more at once.
    Found(Finder, bool),
    /// Another console has the duty, and has not looked for the endpoints at these places for long.
    IsOthers(Vec<usize>),
}

/// Looks for runs, while this console has the duty.
async fn look(
    site: &Arc<Site>,
    endpoints: &Arc<[Endpoint]>,
    finder: Option<Finder>,
) -> Result<Looked, ReadError> {
    let (endpoints, duties) = (Arc::clone(endpoints), Arc::clone(&site.duties));
    let asked = site.duty_acts.read(async move |conn| {
        if !duties.take(conn, DUTY, LEASE).await? {
            let long_ago = query::now(conn).await? - micros(SOON);
            let mut waiting = Vec::new();
            for (place, endpoint) in endpoints.iter().enumerate() {
                // An endpoint with a new name begins now, whichever console has the duty.
                if delivery::heard(conn, &endpoint.name).await?.seen < long_ago {
                    waiting.push(place);
                }
            }
            return Ok(Looked::IsOthers(waiting));
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
        Ok(Looked::Found(finder, more))
    });
    asked.await
}

/// The text of a message.
fn worded(run: &Found, reasons: &[&str], now: i64) -> String {
    let message = MessageJson::of(run, reasons, now);
    serde_json::to_string(&message).expect("texts and numbers can be written")
}

impl Post {
    /// Waits for this answer, and goes on sending meanwhile.
    async fn meanwhile<T>(&mut self, asked: impl Future<Output = T>) -> T {
        let mut asked = pin!(asked);
        loop {
            tokio::select! {
                answer = &mut asked => return answer,
                Some(sent) = self.sends.join_next() => self.end(sent.ok()),
            }
        }
    }

    /// Records all attempts that have ended by now, in one write, and takes the messages that are due next.
    async fn turn(&mut self, site: &Arc<Site>, has_duty: bool) {
        while let Some(sent) = self.sends.try_join_next() {
            self.end(sent.ok());
        }
        self.record(site).await;
        if has_duty {
            self.fill(site).await;
        }
    }

    /// Takes and sends the messages that are due, to each endpoint as many as it may get.
    async fn fill(&mut self, site: &Arc<Site>) {
        let now = Instant::now();
        let wants = self.lines.iter().map(|line| line.wants(now)).enumerate();
        let wants: Vec<(usize, usize)> = wants.filter(|(_, n)| *n > 0).collect();
        if wants.is_empty() {
            return;
        }
        let name = |(place, n): &(usize, usize)| (self.endpoints[*place].name.clone(), *n);
        let named: Vec<(String, usize)> = wants.iter().map(name).collect();
        let asked = site.duty_acts.read(async move |conn| {
            let named: Vec<(&str, usize)> = named.iter().map(|(it, n)| (it.as_str(), *n)).collect();
            let due = delivery::take(conn, &named, SENT_WITHIN).await?;
            let at = query::now(conn).await? / 1_000_000;
            Ok((due, at))
        });
        // A message that was taken without this console's knowledge is due again when its time is over.
        let Ok((taken, at)) = self.meanwhile(asked).await else {
            return;
        };
        if taken.nameless > 0 {
            tracing::warn!(
                messages = taken.nameless,
                "rows of messages to endpoints are damaged and have no ids: the messages are not sent, and no list has them"
            );
        }
        for delivery in taken.aside {
            tracing::warn!(
                %delivery,
                "the row of a message to an endpoint is damaged: the message is not sent, and `ductworkd audit` says more"
            );
        }
        for ((place, n), due) in wants.into_iter().zip(taken.due) {
            let line = &mut self.lines[place];
            line.pace.used_up(now.saturating_duration_since(line.taken));
            // The lease began at this moment or later.
            (line.taken, line.at, line.is_done) = (now, at, due.len() < n);
            line.stock = due.into();
            self.start(place);
        }
    }

    /// Sends messages that were taken for an endpoint, as many as it may get at once.
    fn start(&mut self, place: usize) {
        let line = &mut self.lines[place];
        let since = line.taken.elapsed();
        if since > BEGUN_WITHIN {
            // They are due again when their time is over.
            line.stock.clear();
        }
        let at = line.at + i64::try_from(since.as_secs()).unwrap_or_default();
        while line.under_way < line.pace.at_once()
            && let Some(due) = line.stock.pop_front()
        {
            line.under_way += 1;
            let endpoints = Arc::clone(&self.endpoints);
            self.sends.spawn_local(task::boxed(async move {
                let endpoint = &endpoints[place];
                let id = format!("{}:{}", due.run, due.event);
                let message = Message {
                    id: &id,
                    at,
                    body: &due.body,
                };
                let answer = post::send(endpoint, &message).await;
                (place, due, answer)
            }));
        }
    }

    /// Takes an attempt that ended, and sends further messages that were taken for its endpoint.
    fn end(&mut self, sent: Option<Sent>) {
        let Some((place, due, answer)) = sent else {
            return;
        };
        let now = Instant::now();
        let header = answer.retry_after.as_deref();
        let header = header.filter(|_| is_busy(answer.status));
        // The time by the database's clock, counted from the moment when the message was taken.
        let line = &self.lines[place];
        let since = i64::try_from(line.taken.elapsed().as_micros()).unwrap_or_default();
        let now_us = line.at * 1_000_000 + since;
        let asked = header.and_then(|it| asked_for(it, now_us));
        let follows = follows(answer.status, asked, due.attempts, chance());
        let line = &mut self.lines[place];
        line.under_way = line.under_way.saturating_sub(1);
        line.pace.meet(follows);
        line.next = now + line.pace.pause();
        if self.refusing.meet(place, follows, &answer, now) {
            tracing::warn!(
                endpoint = self.endpoints[place].name,
                status = answer.status,
                error = answer.error,
                "messages to an endpoint are given up: `/api/v1/webhooks?state=failed` lists them"
            );
        }
        let Answer { status, error, .. } = answer;
        self.ended.push(Ended {
            due,
            follows,
            status,
            error,
        });
        self.start(place);
    }

    /// Records the outcomes of attempts.
    async fn record(&mut self, site: &Arc<Site>) {
        if self.ended.is_empty() {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        let asked = site.duty_acts.read(async move |conn| {
            let attempt = |it| {
                let Ended { due, .. }: &Ended = it;
                Attempt {
                    due,
                    follows: it.follows,
                    status: it.status,
                    error: it.error.as_deref(),
                }
            };
            let attempts: Vec<Attempt<'_>> = ended.iter().map(attempt).collect();
            let recorded = delivery::record(conn, &attempts).await?;
            let counted = ended.iter().filter(|it| recorded.contains(&it.due.id));
            Ok(counted.map(|it| it.follows).collect::<Vec<_>>())
        });
        // Messages without a record are sent once more.
        for follows in self.meanwhile(asked).await.unwrap_or_default() {
            let counts = &site.terms.counts;
            counts.count(|counts| counting::delivered(counts, follows));
        }
    }

    fn tell_of_unheard(&mut self, places: &[usize]) {
        for place in places {
            if self.refusing.is_due(Said::Unheard, *place, Instant::now()) {
                tracing::warn!(
                    endpoint = self.endpoints[*place].name,
                    "an endpoint of this console waits: another console has the duty to notify endpoints of runs, and has \
                     not looked for this one for a minute"
                );
            }
        }
    }

    fn tell_of_long(&mut self) {
        for (place, lasted, refused) in self.refusing.long(Instant::now()) {
            let list = refused.list();
            tracing::warn!(
                endpoint = self.endpoints[place].name,
                status = refused.status,
                error = refused.error,
                seconds = lasted.as_secs(),
                "an endpoint takes no messages: {list}"
            );
        }
    }
}

/// True if an endpoint of this name is configured. This console sends messages to no other endpoint.
pub fn is_configured(site: &Site, endpoint: &str) -> bool {
    site.terms.webhooks.iter().any(|it| it.name == endpoint)
}

/// The pipelines of a list of messages, for a visitor who asks for one pipeline's messages or for all; none: all
/// pipelines.
pub fn pipelines(visitor: &Visitor, asked: Option<String>) -> Result<Option<Vec<String>>, Refusal> {
    match asked {
        Some(pipeline) if visitor.may_see(&pipeline) => Ok(Some(vec![pipeline])),
        Some(_) => Err(beyond(visitor)),
        None => Ok(visitor.pipelines.clone()),
    }
}

fn beyond(visitor: &Visitor) -> Refusal {
    alone(visitor.pipelines.as_deref().unwrap_or_default())
}

/// Sends a message once more, at once.
pub async fn send_again(
    site: &Arc<Site>,
    id: Uuid,
    visitor: &Visitor,
    channel: Channel,
) -> Result<Delivery, Refusal> {
    let read = site
        .source
        .read(async move |conn| delivery::find(conn, id).await);
    let missing = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no delivery {id}"));
    let found = read.await?.ok_or_else(missing)?;
    if !visitor.may_act_on(&found.pipeline) {
        return Err(beyond(visitor));
    }
    let (endpoint, by) = (&found.endpoint, visitor.actor(channel));
    if !is_configured(site, endpoint) {
        let detail = format!("the console's configuration has no endpoint {endpoint}");
        return Err(deeds::conflict(detail));
    }
    let asked =
        site.acts.read(
            async move |conn| match delivery::send_again(conn, id, &by).await? {
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
    fn the_log_tells_of_an_endpoint_that_takes_nothing_within_a_minute_and_then_more_rarely() {
        let mut refusing = Refusing::default();
        let (start, again) = (Instant::now(), Follows::Again(SOON));
        let at = |seconds| start + Duration::from_secs(seconds);
        let answer = Answer {
            status: Some(503),
            ..Answer::default()
        };
        let long = |refusing: &mut Refusing, seconds| {
            let said = refusing.long(at(seconds)).into_iter();
            said.map(|(place, lasted, _)| (place, lasted.as_secs()))
                .collect::<Vec<_>>()
        };
        assert!(!refusing.meet(0, again, &answer, at(0)));
        assert_eq!(long(&mut refusing, 59), []);
        // This takes no further attempt.
        assert_eq!(long(&mut refusing, 60), [(0, 60)]);
        assert!(!refusing.meet(0, again, &answer, at(61)));
        assert_eq!(long(&mut refusing, 62), []);
        assert_eq!(long(&mut refusing, 120), [(0, 120)]);
        // Another endpoint counts by itself, and so does a message that is given up.
        assert!(refusing.meet(1, Follows::Failed, &answer, at(121)));
        assert!(!refusing.meet(1, Follows::Failed, &answer, at(122)));
        assert!(!refusing.meet(0, Follows::Delivered, &answer, at(123)));
        assert_eq!(long(&mut refusing, 181), [(1, 60)]);
        assert!(!refusing.meet(0, again, &answer, at(200)));
        assert_eq!(long(&mut refusing, 260), [(0, 60), (1, 139)]);
        // None of them waits for an endpoint that is gone.
        assert!(refusing.since[&1].list().contains("?state=waiting"));
        let gone = Answer {
            status: Some(GONE),
            ..Answer::default()
        };
        refusing.meet(1, Follows::Failed, &gone, at(261));
        assert!(refusing.since[&1].list().contains("?state=failed"));
    }
}
