//! Changes of runs, as they happen, for programs.
//!
//! Owns: reading the changes for all listeners, and sending each listener the events that it requested and
//! may know. Never: decides what an event is (`feed` does).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::http::header::{HeaderMap, HeaderName};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::model::*;
use crate::store::event::{self, Changed};
use crate::store::query;
use crate::task;
use crate::wire::Time;
use crate::wire::event::{EventDataJson, EventJson};

use super::super::Site;
use super::super::api::given::{About, Given, Param, Text};
use super::super::failed_sign_ins::Remote;
use super::super::pages::clip;
use super::super::refusal::{Refusal, no_run};
use super::super::source::ReadError;
use super::super::visitor::{self, Visitor};
use super::feed::{Log, Place};
use super::seal::Seal;
use super::{BEAT, READ_AGAIN, Stream, hurried, lock, open, pause};

/// The parameters.
pub static PARAMS: [&About; 2] = [&PIPELINE.about, &RUN.about];

/// A filter: the pipeline may have yet to come.
static PIPELINE: Param<Text> = Param::query("pipeline", "Limits the answer to this pipeline");

/// A filter: there will never be an event of a run that does not exist.
static RUN: Param<RunId> = Param::query("run", "Limits the answer to this run").must_exist();

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Some events were missed.
const LOST: &str = "event: events.lost\ndata: {}\n\n";

/// The number of a name's letters that a refusal shows.
const LETTERS: usize = 200;

/// The number of events in one part of a stream.
const AT_ONCE: usize = 100;

/// The changes of runs, while somebody listens.
pub struct Feed {
    state: Mutex<Listened>,
    /// The number of readings, and the outcome of the last one.
    read: watch::Sender<(u64, Option<ReadError>)>,
    /// Held while the past is read.
    past: tokio::sync::Mutex<()>,
    seal: Seal,
}

struct Listened {
    log: Log,
    listeners: usize,
    is_read: bool,
}

impl Default for Feed {
    fn default() -> Self {
        let epoch = uuid::Uuid::new_v4().simple().to_string();
        Self {
            state: Mutex::new(Listened {
                log: Log::new(epoch),
                listeners: 0,
                is_read: false,
            }),
            read: watch::Sender::new((0, None)),
            past: tokio::sync::Mutex::default(),
            seal: Seal::new(),
        }
    }
}

/// A listener: while there is one, the changes are read.
struct Listener(Arc<Site>);

impl Listener {
    /// A listener, and true if nobody listened before.
    fn new(site: &Arc<Site>) -> (Self, bool) {
        let mut state = lock(&site.live.feed.state);
        state.listeners += 1;
        let is_first = !state.is_read;
        if is_first {
            state.is_read = true;
            task::anywhere(keep_reading(Arc::clone(site)));
        }
        (Self(Arc::clone(site)), is_first)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.0.live.feed.state).listeners -= 1;
    }
}

/// Reads the changes while somebody listens. A panic is a bug, and must not end the feed for those who listen.
async fn keep_reading(site: Arc<Site>) {
    while task::anywhere(read(Arc::clone(&site))).await.is_err() {
        tracing::error!("the reader of the console's changes ended unexpectedly");
        let failed = Some(ReadError::Panicked);
        site.live
            .feed
            .read
            .send_modify(|read| *read = (read.0 + 1, failed));
        tokio::time::sleep(READ_AGAIN).await;
    }
}

/// Reads the changes again and again while somebody listens.
async fn read(site: Arc<Site>) {
    let feed = &site.live.feed;
    loop {
        let since = {
            let mut state = lock(&feed.state);
            state.is_read = state.listeners > 0;
            if !state.is_read {
                return;
            }
            state.log.since()
        };
        let began = Instant::now();
        let changes = site
            .source
            .read(async move |conn| event::changes(conn, since).await);
        let (failed, pause) = match changes.await {
            Ok(changes) => {
                let mut state = lock(&feed.state);
                state.log.take(changes);
                let pause = match state.log.has_more() {
                    true => hurried(began.elapsed()),
                    false => pause(began.elapsed()),
                };
                (None, pause)
            }
            Err(error) => (Some(error), READ_AGAIN),
        };
        feed.read.send_modify(|read| *read = (read.0 + 1, failed));
        tokio::time::sleep(pause).await;
    }
}

/// Reads the past that the log lacks for a listener that has received everything up to this place from
/// another console.
async fn remember(site: &Arc<Site>, last: &Place) -> Result<(), ReadError> {
    let feed = &site.live.feed;
    // Listeners that come at the same time need the same past.
    let _turn = feed.past.lock().await;
    let lacks = lock(&feed.state).log.lacks(last);
    let Some((from, until)) = lacks else {
        return Ok(());
    };
    let past = site
        .source
        .read(async move |conn| event::past(conn, from, until).await)
        .await?;
    let mut state = lock(&feed.state);
    // The log may have begun anew meanwhile.
    if state.log.lacks(last) == lacks {
        state.log.take_past((from, until), past);
    }
    Ok(())
}

/// The events that a listener receives.
struct Wanted {
    visitor: Arc<Visitor>,
    pipeline: Option<String>,
    run: Option<RunId>,
    from: i64,
}

impl Wanted {
    fn is(&self, change: &Changed) -> bool {
        change.at >= self.from
            && self.visitor.may_see(&change.pipeline)
            && self
                .pipeline
                .as_ref()
                .is_none_or(|it| *it == change.pipeline)
            && self.run.is_none_or(|it| it == change.run)
    }
}

/// Refuses a run of whose events this visitor would get none, also because they are to be those of another pipeline.
async fn known(
    site: &Site,
    run: RunId,
    visitor: &Visitor,
    pipeline: Option<&Text>,
) -> Result<(), Refusal> {
    let brief = site
        .source
        .read(async move |conn| query::brief(conn, run).await);
    match (brief.await?, &visitor.pipelines) {
        (Some(brief), _) => {
            visitor::need(&brief.pipeline)?;
            match pipeline {
                Some(asked) if asked.0 != brief.pipeline => {
                    let (own, asked) = (&brief.pipeline, clip(&asked.0, LETTERS));
                    let detail = format!("the run {run} is one of `{own}`, not of `{asked}`");
                    let refusal = Refusal::new(StatusCode::NOT_FOUND, detail);
                    Err(refusal
                        .remedy("leave out `pipeline`: with `run` the events are those of one run"))
                }
                _ => Ok(()),
            }
        }
        (None, None) => Err(no_run(run)),
        // The run of another pipeline has the same answer.
        (None, Some(own)) => Err(visitor::alone(own)),
    }
}

/// `GET /api/v1/events`
pub async fn events(
    State(site): State<Arc<Site>>,
    Extension(visitor): Extension<Arc<Visitor>>,
    Extension(from): Extension<Remote>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let given = Given::read(&PARAMS, std::iter::empty(), uri.query().unwrap_or_default())?;
    let last = headers
        .get(LAST_EVENT_ID)
        .map(|it| site.live.feed.seal.read(it.to_str().unwrap_or_default()));
    let last = match last {
        Some(None) => {
            let detail = "`Last-Event-ID` is no id of an event of this route";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, detail));
        }
        last => last.flatten(),
    };
    let pipeline = given.get(&PIPELINE);
    if let Some(pipeline) = &pipeline {
        visitor::need(&pipeline.0)?;
    }
    if let Some(run) = given.get(&RUN) {
        known(&site, run, &visitor, pipeline.as_ref()).await?;
    }
    let (stream, response) = open(&site, &visitor, from)?;
    let feed = &site.live.feed;
    let mut read = feed.read.subscribe();
    let (listener, is_first) = Listener::new(&site);
    // The response's head is sent when the log goes on: every event from then on is sent.
    let mut waits = is_first;
    while waits || lock(&feed.state).log.is_new() {
        if read.changed().await.is_ok() {
            let failed = read.borrow_and_update().1.clone();
            failed.map_or(Ok(()), Err)?;
        }
        waits = false;
    }
    if let Some(last) = &last {
        remember(&site, last).await?;
    }
    let (start, place) = {
        let log = &lock(&feed.state).log;
        let start = log.start(last.as_ref());
        (start, log.begins(&start, last.as_ref()))
    };
    let mut begin = format!("retry: 1000\nid: {}\n\n", feed.seal.write(&place));
    if start.lost {
        begin.push_str(LOST);
    }
    let wanted = Wanted {
        from: start.from,
        pipeline: pipeline.map(|it| it.0),
        run: given.get(&RUN),
        visitor,
    };
    task::anywhere(tell(stream, listener, read, wanted, (start.next, begin)));
    Ok(response)
}

/// Sends a listener its events.
async fn tell(
    mut stream: Stream,
    listener: Listener,
    mut read: watch::Receiver<(u64, Option<ReadError>)>,
    mut wanted: Wanted,
    (mut next, mut part): (u64, String),
) {
    let feed = &listener.0.live.feed;
    let seal = &feed.seal;
    loop {
        if !stream.tell(part).await {
            return;
        }
        let beat = Instant::now() + BEAT;
        part = loop {
            {
                let log = &lock(&feed.state).log;
                let Some((text, passed)) = next_events(log, next, &wanted, seal) else {
                    // The listener reads too slowly, or too much has happened for the console: the listener
                    // goes on from now.
                    let anew = log.start(None);
                    (next, wanted.from) = (anew.next, anew.from);
                    break format!("id: {}\n{LOST}", seal.write(&log.here()));
                };
                next = passed;
                if !text.is_empty() {
                    break text;
                }
                if Instant::now() >= beat {
                    break format!(":\nid: {}\n\n", seal.write(&log.here()));
                }
            }
            let read = stream.unless_over(timeout_at(beat.into(), read.changed()));
            if let None | Some(Ok(Err(_))) = read.await {
                return;
            }
        };
    }
}

/// The next events that are wanted, in the form in which they are sent, and the number of the event behind
/// them.
fn next_events(log: &Log, next: u64, wanted: &Wanted, seal: &Seal) -> Option<(String, u64)> {
    let (mut text, mut number, mut count) = (String::new(), next, 0);
    for change in log.from(next)? {
        number += 1;
        if !wanted.is(change) {
            continue;
        }
        let kind = kind(change.status);
        let event = EventJson {
            kind,
            timestamp: Time::of(change.at),
            data: EventDataJson {
                run_id: change.run,
                pipeline: &change.pipeline,
                status: change.status.as_str(),
            },
        };
        let place = seal.write(&log.behind(number - 1));
        // Ids and texts can always be written as JSON.
        let event = serde_json::to_string(&event).unwrap_or_default();
        text.push_str(&format!("id: {place}\nevent: {kind}\ndata: {event}\n\n"));
        count += 1;
        if count == AT_ONCE {
            break;
        }
    }
    Some((text, number))
}

fn kind(status: RunStatus) -> &'static str {
    match status {
        RunStatus::InProgress => "run.started",
        RunStatus::Dampened => "run.dampened",
        RunStatus::Completed => "run.completed",
        RunStatus::Halted => "run.halted",
        RunStatus::Cancelled => "run.cancelled",
    }
}
