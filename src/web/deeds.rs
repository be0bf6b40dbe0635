//! The deeds of visitors.
//!
//! Owns: the execution of a deed that an API request or a page's form asks for, once, in the visitor's name,
//! and the refusals that follow from a run's state. Never: asks who the visitor is, or writes SQL.
//!
//! A deed uses a connection of its own. If that connection is lost midway, nobody knows whether the deed was
//! done, and the refusal says so. A trigger with a key, a revival, a cancellation and an answer to a named step do
//! nothing twice if they are asked for again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::value::RawValue;

use crate::definition::Definition;
use crate::engine::counting;
use crate::machine::pause::Pause;
use crate::machine::why::Successor;
use crate::model::*;
use crate::problem::nearest;
use crate::step::output::{half, parse_json};
use crate::store::action::{self, Actor};
use crate::store::cancel::{self, Cancel, Cancelling};
use crate::store::pause::{self, REASON_MAX};
use crate::store::resume::{self, Resume};
use crate::store::revive::{self, Revive, Wanted};
use crate::store::trigger::{self, KEY_MAX, NewRun, Triggered};
use crate::store::{Conn, Error, definition, known, page, query, why};
use crate::view::{continued, word};

use super::pages::clip;
use super::refusal::{Refusal, no_run};
use super::source::{ACTS_WITHIN, ReadError};
use super::{Site, visitor};

/// The number of a name's letters that a refusal shows.
const LETTERS: usize = 200;

/// After this time, the rest of a run that is still being cancelled is left to a daemon.
const CANCELS_FOR: Duration = Duration::from_secs(2);

/// The refusal of a deed that may have been done.
pub fn unsure(error: ReadError) -> Refusal {
    let remedy = "look whether it was; a trigger with a key, a revival, a cancellation and an answer that names its \
                  `step` may be asked for again: they do nothing twice";
    unsure_with(error, remedy)
}

/// The same, with another remedy.
pub fn unsure_with(error: ReadError, remedy: &'static str) -> Refusal {
    match error {
        ReadError::Away(_) | ReadError::Hindered(_) | ReadError::Late => {
            let detail = format!("{error}; this may have been done or not");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .later(2)
                .remedy(remedy)
        }
        error => error.into(),
    }
}

pub fn conflict(detail: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, detail)
}

/// A value from a visitor.
pub fn value(what: &str, text: &str, max: u64) -> Result<Box<RawValue>, Refusal> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    parse_json(text.as_bytes(), max).map_err(|problem| {
        let detail = format!("the {what} is not one JSON value: {problem}");
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    })
}

/// The greatest length of an answer to this run, in bytes: that of all values of its pipeline.
pub async fn answer_max(site: &Arc<Site>, run: RunId) -> Result<u64, Refusal> {
    let read = site
        .source
        .read(async move |conn| query::brief(conn, run).await);
    let state = read.await?.ok_or_else(|| no_run(run))?;
    Ok((site.terms.max_payload)(&state.pipeline))
}

/// The answer to a question, of at most this length. It becomes the output of its step as it is, so nobody else
/// checks it.
pub fn answer(text: &str, max: u64) -> Result<Box<RawValue>, Refusal> {
    let value = value("value", text, max)?;
    match half(value.get()) {
        Some(half) => Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the value {half}"),
        )),
        None => Ok(value),
    }
}

/// The definition with which a run of this pipeline starts: the configuration's, or that of its newest run.
pub async fn definition_of(site: &Arc<Site>, pipeline: &str) -> Result<Arc<Definition>, Refusal> {
    if let Some(definition) = site.terms.definition_of(pipeline) {
        return Ok(Arc::clone(definition));
    }
    let (wanted, definitions) = (pipeline.to_owned(), Arc::clone(&site.definitions));
    let read =
        site.source.read(
            async move |conn| match definition::latest_of(conn, &wanted).await? {
                Some(digest) => definitions.read(conn, &digest).await.map(Some),
                None => Ok(None),
            },
        );
    match read.await? {
        Some(Ok(definition)) => Ok(definition),
        Some(Err(unreadable)) => Err(conflict(format!("{pipeline}: {unreadable}"))),
        None => {
            known(site, pipeline).await?;
            Err(conflict(format!(
                "the definition of {pipeline} is only where its workers are configured: start its first run there"
            )))
        }
    }
}

/// Refuses a pipeline that is neither in the configuration nor known to the database.
pub async fn known(site: &Arc<Site>, pipeline: &str) -> Result<(), Refusal> {
    if site.terms.definition_of(pipeline).is_some() {
        return Ok(());
    }
    let shared = Arc::clone(site);
    let read = site
        .source
        .read(async move |conn| known::pipelines(conn, shared.terms.names()).await);
    let names = read.await?;
    if names.contains(pipeline) {
        return Ok(());
    }
    let names = names.iter().filter(|it| visitor::may_see(it));
    let near = match nearest(pipeline, names.map(String::as_str)) {
        Some(near) => format!("; did you mean `{}`?", clip(near, LETTERS)),
        None => String::new(),
    };
    let detail = format!("there is no pipeline `{}`{near}", clip(pipeline, LETTERS));
    let remedy = "the lists of pipelines, on `/pipelines` and at `/api/v1/pipelines`, have those that there are";
    Err(Refusal::new(StatusCode::NOT_FOUND, detail).remedy(remedy))
}

/// The reason why this cannot be the key of a run, if it cannot.
pub fn key_fault(key: Option<&str>) -> Option<String> {
    let is_wrong =
        |key: &str| key.is_empty() || key.chars().count() > KEY_MAX || key.contains('\0');
    let fault = || format!("a key has 1 to {KEY_MAX} characters, none of them NUL");
    key.is_some_and(is_wrong).then(fault)
}

/// The run that this key has started, if there is one. It is looked up before a definition is read or an input judged:
/// a client whose answer was lost sends its request again, and the pipeline may ask for other inputs by now.
pub async fn repeated(
    site: &Arc<Site>,
    pipeline: &str,
    input: &RawValue,
    key: Option<&str>,
) -> Result<Option<Triggered>, Refusal> {
    if let Some(fault) = key_fault(key) {
        let detail = format!("`Idempotency-Key`: {fault}");
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let Some(key) = key.map(str::to_owned) else {
        return Ok(None);
    };
    let (name, input) = (pipeline.to_owned(), input.to_owned());
    let read = site.source.read(async move |conn| {
        let run = NewRun {
            key: Some(&key),
            input: input.get(),
        };
        trigger::repeated(conn, &name, &run).await
    });
    let known = read.await?;
    if known.is_some() {
        let counts = &site.terms.counts;
        counts.count(|counts| counting::triggered_again(counts, pipeline));
    }
    Ok(known)
}

/// Starts a run with an input that conforms to its definition, unless its key, which [`repeated`] has judged, starts
/// one at the same moment.
pub async fn trigger(
    site: &Arc<Site>,
    definition: Arc<Definition>,
    input: Box<RawValue>,
    key: Option<String>,
    delay: Duration,
    by: Actor,
    within: Option<Caller>,
) -> Result<Triggered, Refusal> {
    let violations = definition.violations(input.get());
    if !violations.is_empty() {
        return Err(Refusal::input(&definition, &violations));
    }
    let woken = Arc::clone(site);
    let pipeline = definition.pipeline.clone();
    let asked = site.acts.read(async move |conn| {
        let runs = [NewRun {
            key: key.as_deref(),
            input: input.get(),
        }];
        let made = trigger::trigger_by(conn, &definition, &runs, delay, Some(&by), within.as_ref())
            .await?;
        (woken.terms.wake)(conn, &definition.pipeline).await;
        Ok(made.into_iter().next())
    });
    let made = asked.await.map_err(unsure)?;
    let refusal = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no run was made");
    let made = made.ok_or_else(refusal)?;
    if !made.created {
        let counts = &site.terms.counts;
        counts.count(|counts| counting::triggered_again(counts, &pipeline));
    }
    Ok(made)
}

/// Revives a run: the run that continues it, and whether this request made that run.
pub async fn revive(
    site: &Arc<Site>,
    run: RunId,
    latest: bool,
    context: bool,
    by: Actor,
) -> Result<(RunId, bool), Refusal> {
    let shared = Arc::clone(site);
    let asked = site.acts.read(async move |conn| {
        let Some(state) = query::brief(conn, run).await? else {
            return Ok(Err(no_run(run)));
        };
        let own = shared.terms.definition_of(&state.pipeline);
        let definition = match (latest, own) {
            (false, _) => None,
            (true, Some(own)) => Some(&**own),
            (true, None) => {
                return Ok(Err(conflict(format!(
                    "the console's configuration has no pipeline {}",
                    state.pipeline
                ))));
            }
        };
        let wanted = Wanted {
            definition,
            context,
            by: Some(&by),
        };
        let revived = revive::revive_as(conn, run, wanted).await?;
        if let Revive::Done(_) = revived {
            (shared.terms.wake)(conn, &state.pipeline).await;
        }
        Ok(Ok(revived))
    });
    let began = Instant::now();
    let asked = asked.await;
    match asked.map_err(|error| unrevived(error, run, began))?? {
        Revive::Done(next) => Ok((next, true)),
        Revive::AlreadyRevived(next) => Ok((next, false)),
        Revive::NotFound => Err(no_run(run)),
        Revive::NotHalted(status) => Err(conflict(format!(
            "the run {run} is {}: only halted runs are revived",
            word(status)
        ))),
        Revive::Disagrees(found) => Err(conflict(format!(
            "the run {run} cannot go on with the newest definition: {}",
            found.join(", ")
        ))),
    }
}

/// The refusal of a revival that was asked for at this time. One that took all the time that the console has for it takes
/// as long the next time.
fn unrevived(error: ReadError, run: RunId, asked: Instant) -> Refusal {
    if !matches!(error, ReadError::Late) || asked.elapsed() < ACTS_WITHIN {
        return unsure(error);
    }
    let detail = format!(
        "the database needs more time to revive the run {run} than the console has; this may have been done or not"
    );
    let remedy = "look whether it was revived; if not, it is too wide for the console, or others hold its rows: \
                  `ductworkd revive` takes as long as it needs";
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        .later(60)
        .remedy(remedy)
}

/// Ends a run for good; true while part of it has yet to end.
pub async fn cancel(site: &Arc<Site>, run: RunId, by: Actor) -> Result<bool, Refusal> {
    let shared = Arc::clone(site);
    let asked = site.acts.read(async move |conn| {
        let mut cancelling = Cancelling::of(run, cancel::BATCH).by(Some(by.clone()));
        let until = Instant::now() + CANCELS_FOR;
        let ended = loop {
            let before = cancelling.closed;
            match cancelling.step(conn).await? {
                Some(ended) => break Some(ended),
                // The run is marked as being cancelled: a daemon closes the rest.
                None if Instant::now() >= until => break None,
                None if cancelling.closed == before => tokio::time::sleep(cancel::AGAIN).await,
                None => {}
            }
        };
        wake_for(&shared, conn, run).await;
        let is_marked = match ended {
            Some(_) => false,
            // Somebody else who cancels the run may have locked its rows.
            None => cancelling.closed > 0 || is_marked(conn, run).await?,
        };
        let next = match ended {
            Some(Cancel::NotActive(RunStatus::Halted)) => why::continued(conn, run).await?,
            _ => None,
        };
        Ok((ended, is_marked, next))
    });
    let asked = match asked.await {
        Err(ReadError::Late) if is_ending(site, run).await => return Ok(true),
        asked => asked.map_err(unsure)?,
    };
    match asked {
        (Some(Cancel::Done { .. } | Cancel::NotActive(RunStatus::Cancelled)), ..) => Ok(false),
        (Some(Cancel::NotFound), ..) => Err(no_run(run)),
        (Some(Cancel::NotActive(status)), _, next) => Err(has_ended(run, status, next, true)),
        (None, true, _) => Ok(true),
        (None, false, _) => {
            let detail = "others have locked the run's rows: nothing was done";
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).later(2))
        }
    }
}

/// The refusal to change a run that is over. Where another run continues it, the person means that one, which can be
/// changed in the same way if it `takes` that while it is open.
fn has_ended(run: RunId, status: RunStatus, next: Option<Successor>, takes: bool) -> Refusal {
    let ended = format!("the run {run} has ended: it is {}", word(status));
    let Some(next) = next else {
        return conflict(ended);
    };
    let refusal = conflict(format!("{ended}, and {}", continued(&next)))
        .leads_to(format!("runs/{}", next.newest), "The run that continues it");
    match next.status {
        Some(now) if takes && !now.is_terminal() => {
            refusal.remedy("make the request for the run that continues it")
        }
        _ => refusal,
    }
}

/// Whether somebody cancels this run, as far as the database tells in time.
async fn is_ending(site: &Arc<Site>, run: RunId) -> bool {
    let marked = site
        .source
        .read(async move |conn| is_marked(conn, run).await);
    marked.await.unwrap_or(false)
}

async fn is_marked(conn: &mut Conn, run: RunId) -> Result<bool, Error> {
    let found = query::run_without_payloads(conn, run).await?;
    Ok(found.is_some_and(|it| it.cancelling_at.is_some()))
}

/// Only a hint: the action is in the database.
async fn wake_for(site: &Arc<Site>, conn: &mut Conn, run: RunId) {
    if let Ok(Some(state)) = query::brief(conn, run).await {
        (site.terms.wake)(conn, &state.pipeline).await;
    }
}

/// Answers a run that waits for a person; returns how many of its steps go on, and the number of questions of which the
/// deadlines have passed.
pub async fn resume(
    site: &Arc<Site>,
    run: RunId,
    step: Option<StepId>,
    value: Option<Box<RawValue>>,
    by: Actor,
) -> Result<(usize, usize), Refusal> {
    let shared = Arc::clone(site);
    let asked = site.acts.read(async move |conn| {
        let value = value.as_deref().map(RawValue::get);
        let resumed = resume::resume(conn, run, step, value, Some(&by)).await?;
        let (mut answered, mut next) = (Answered::Unknown, None);
        match (&resumed, step) {
            (Resume::Done(_) | Resume::Partly { .. }, _) => wake_for(&shared, conn, run).await,
            (Resume::NotDampened(status), step) => {
                answered = match step {
                    None => Answered::of(who_answered(conn, run).await?),
                    Some(step) => match page::step(conn, run, step).await? {
                        Some(found) => Answered::of(found.head.answered_by),
                        None => Answered::NoStep(step),
                    },
                };
                if *status == RunStatus::Halted {
                    next = why::continued(conn, run).await?;
                }
            }
            (Resume::NotFound | Resume::Ambiguous(_) | Resume::Late | Resume::TooMany, _) => {}
        }
        Ok((resumed, answered, next))
    });
    let (resumed, answered, next) = asked.await.map_err(unsure)?;
    let answered = match answered {
        Answered::Unknown => String::new(),
        Answered::By(by) if by == resume::DEADLINE => "; the deadline has passed".to_owned(),
        Answered::By(by) => format!("; {} has answered", clip(&by, LETTERS)),
        Answered::NoStep(step) => {
            let detail = format!("the run {run} has no step {step}");
            let remedy = "`/api/v1/runs/{id}/steps` lists the run's steps";
            return Err(Refusal::new(StatusCode::NOT_FOUND, detail)
                .remedy(remedy)
                .about(run));
        }
    };
    match resumed {
        Resume::Done(resumed) => Ok((resumed, 0)),
        Resume::Partly { resumed, late } => Ok((resumed, late)),
        Resume::NotFound => Err(no_run(run)),
        Resume::NotDampened(status) if next.is_some() => {
            let is_asking = next.is_some_and(|it| it.status == Some(RunStatus::Dampened));
            Err(has_ended(run, status, next, is_asking))
        }
        Resume::NotDampened(status) if status.is_terminal() => Err(conflict(format!(
            "the run {run} has ended: it is {}{answered}",
            word(status)
        ))
        .about(run)),
        Resume::NotDampened(_) => {
            let what = if step.is_some() { "this step" } else { "it" };
            Err(conflict(format!(
                "the run {run}: {what} does not wait for a person{answered}"
            ))
            .about(run))
        }
        Resume::Late => Err(conflict(resume::late(run, step))
            .remedy(resume::LATE)
            .about(run)),
        Resume::TooMany => Err(conflict(resume::too_many(run))
        .remedy("`ductworkd resume` answers all of them in batches; a request with a `step` answers one")
        .about(run)),
        Resume::Ambiguous(steps) => {
            let names: Vec<String> = steps
                .iter()
                .take(20)
                .map(|step| format!("{} ({})", step.node, step.step_id))
                .collect();
            let at_least = match steps.len() {
                resume::LISTED.. => "at least ",
                _ => "",
            };
            Err(conflict(format!(
                "{at_least}{} steps of the run {run} wait for a person, and a value is for one: {}",
                steps.len(),
                names.join(", ")
            )))
        }
    }
}

/// The reason why a question is no longer asked.
enum Answered {
    Unknown,
    By(String),
    /// The run has no such step.
    NoStep(StepId),
}

impl Answered {
    fn of(by: Option<String>) -> Self {
        by.map_or(Self::Unknown, Self::By)
    }
}

/// The number of actions among which the last answer is looked for.
const ACTIONS: usize = 20;

/// The actor that answered this run last, if there was one of late.
async fn who_answered(conn: &mut Conn, run: RunId) -> Result<Option<String>, Error> {
    let actions = action::latest(conn, action::Of::Run(run), None, ACTIONS).await?;
    let answer = actions
        .into_iter()
        .find(|it| it.verb == Verb::Resume.as_str());
    Ok(answer.map(|it| it.by))
}

/// Pauses a pipeline, unless it is paused: the pause, and whether this request made it.
pub async fn pause(
    site: &Arc<Site>,
    pipeline: String,
    reason: &str,
    by: Actor,
) -> Result<(Pause, bool), Refusal> {
    let Some(reason) = pause::reason_of(reason).map(str::to_owned) else {
        let detail = format!(
            "a pause has a reason of up to {REASON_MAX} characters in one line, at least one of which can be seen: why \
             nothing is to begin"
        );
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    };
    known(site, &pipeline).await?;
    let shared = Arc::clone(site);
    let asked = site.acts.read(async move |conn| {
        let paused = pause::pause(conn, &pipeline, &reason, &by).await?;
        // Processes that hold work that they have not begun put it back at once.
        (shared.terms.wake)(conn, &pipeline).await;
        Ok(paused)
    });
    let paused = asked.await.map_err(unsure)?;
    Ok((paused.pause, paused.created))
}

/// Lets a pipeline go on; false if it was not paused.
pub async fn unpause(site: &Arc<Site>, pipeline: String, by: Actor) -> Result<bool, Refusal> {
    known(site, &pipeline).await?;
    let shared = Arc::clone(site);
    let asked = site.acts.read(async move |conn| {
        let ended = pause::unpause(conn, &pipeline, &by).await?;
        (shared.terms.wake)(conn, &pipeline).await;
        Ok(ended.is_some())
    });
    asked.await.map_err(unsure)
}
