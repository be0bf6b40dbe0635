//! A step: its attempts, their logs and errors, its payloads.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;

use crate::model::{RunId, RunStatus, StepId, StepStatus};
use crate::number::grouped;
use crate::store::fan_out::{self, FanOut};
use crate::store::page::{self as store, Attempt, Holder, StepHead, StepWhole};
use crate::store::query::{self, Spread};
use crate::store::steps::ATTEMPTS;
use crate::store::{Conn, Error};
use crate::time;
use crate::view;
use crate::web::Site;
use crate::web::refusal::{Refusal, no_run};
use crate::web::visitor::may_see_payloads;

use super::asked::{self, Asked, missing, wrong};
use super::parts::{self, Bar, Moment, Place, RunLink, State};
use super::text::{self, Value, clip};
use super::{Frame, page, waiting};

/// The longest error in a row, in characters.
const LETTERS: usize = 300;

/// The number of listed fan-outs that begin at this step.
const FAN_OUTS: usize = 20;

#[derive(Template)]
#[template(path = "step.html")]
struct Page {
    frame: Frame,
    run: RunLink,
    pipeline: String,
    address: String,
    node: String,
    step: String,
    via: String,
    id: StepId,
    state: State,
    reached: Moment,
    /// The fan-outs around it, outermost first.
    places: Vec<Link>,
    fan_outs: Vec<Link>,
    copied: bool,
    answered_by: Option<String>,
    /// The address at which a visitor who may act on the run answers.
    question: Option<String>,
    attempts: Vec<Row>,
    is_cut: bool,
    /// The number of all attempts.
    total: String,
    told: Option<Told>,
    input: Value,
    output: Option<Value>,
}

struct Link {
    address: String,
    text: String,
}

struct Row {
    number: u32,
    state: State,
    place: Option<Place>,
    claimed: Option<Moment>,
    waited: String,
    ran: String,
    bar: Bar,
    error: String,
    has_more: bool,
    is_told: bool,
}

/// An attempt that is shown in full.
struct Told {
    number: u32,
    /// The visitor may not see its log.
    is_withheld: bool,
    class: Option<String>,
    message: Option<String>,
    log: Option<String>,
    log_is_cut: bool,
    backtrace: Option<String>,
}

/// `GET /runs/{id}/steps/{step}`
pub async fn step(
    Extract(site): Extract<Arc<Site>>,
    Path((run, id)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["attempt"])?;
    let run: RunId = asked::id(&run, "a run")?;
    let id: StepId = asked::id(&id, "a step")?;
    let wanted = asked.number("attempt")?.map(u32::try_from).transpose();
    let wanted = wanted.map_err(|_| wrong("no step has so many attempts"))?;
    let read = site.source.read(async move |conn| {
        let Some(head) = store::run(conn, run).await? else {
            return Ok(None);
        };
        let read = match store::step(conn, run, id).await? {
            Some(step) => Some(Read::of(conn, step, wanted).await?),
            None => None,
        };
        Ok(Some((head, read)))
    });
    let Some((head, read)) = read.await? else {
        return Err(no_run(run));
    };
    let Some(mut read) = read else {
        return Err(missing(format!("run {run} has no step {id}")));
    };
    let log = read.log.take();
    if let (Some(wanted), None) = (wanted, &log) {
        return Err(missing(format!("this step has no attempt {wanted}")));
    }
    let told = log.map(|(number, log)| told(number, log, &read.attempts));
    let (now, step) = (read.now, &read.step.head);
    let address = format!("/runs/{run}/steps/{id}");
    let frame = Frame::of("runs", now);
    let asks = step.status == StepStatus::Waiting && head.status == RunStatus::Dampened;
    page(&Page {
        question: (asks && frame.may_act_on(Some(&head.pipeline)))
            .then(|| waiting::address_of(run, Some(id))),
        frame,
        run: parts::run(run),
        pipeline: head.pipeline,
        node: step.node.clone(),
        step: step.step.clone(),
        via: step.via.clone(),
        id,
        state: parts::of_step(step),
        reached: parts::ago(step.created_at, now),
        places: places(run, &read.spreads, step.place),
        fan_outs: read
            .fan_outs
            .iter()
            .take(FAN_OUTS)
            .map(|it| Link {
                address: format!("/runs/{run}/fan-outs/{}", it.id),
                text: format!("{} elements", grouped(it.width)),
            })
            .collect(),
        copied: step.source_step_id.is_some(),
        answered_by: step.answered_by.clone(),
        attempts: read.rows(told.as_ref().map(|it| it.number)),
        is_cut: read.attempts.len() > ATTEMPTS,
        total: grouped(read.attempts.first().map_or(0, |last| last.number.into())),
        input: Value::of(&read.step.input, format!("{address}/input")),
        output: read
            .step
            .output
            .as_ref()
            .map(|it| Value::of(it, format!("{address}/output"))),
        told,
        address,
    })
}

/// The rows about a step.
struct Read {
    step: StepWhole,
    /// The latest first, and one more than are listed, if there are so many.
    attempts: Vec<Attempt>,
    /// The number and the log of the attempt that is shown in full.
    log: Option<(u32, store::Log)>,
    /// Those that begin at the step.
    fan_outs: Vec<FanOut>,
    holders: Vec<Holder>,
    spreads: Vec<Spread>,
    now: i64,
}

impl Read {
    async fn of(conn: &mut Conn, step: StepWhole, wanted: Option<u32>) -> Result<Self, Error> {
        let StepHead { id, branch_id, .. } = step.head;
        let attempts = store::attempts(conn, id, ATTEMPTS + 1).await?;
        let told = wanted.or_else(|| default_attempt(&attempts));
        let log = match told {
            Some(number) => store::log(conn, id, number).await?,
            None => None,
        };
        let mut fan_outs = fan_out::of_branch(conn, branch_id).await?;
        fan_outs.retain(|it| it.node == step.head.node && it.via == "expand");
        let holders: Vec<_> = attempts.iter().filter_map(|it| it.process_id).collect();
        Ok(Self {
            log: told.zip(log),
            fan_outs,
            holders: store::holders(conn, holders).await?,
            spreads: query::spreads(conn, branch_id).await?,
            now: query::now(conn).await?,
            attempts,
            step,
        })
    }

    /// The listed attempts, of which the one with the number `told` is shown in full.
    fn rows(&self, told: Option<u32>) -> Vec<Row> {
        let (created, now) = (self.step.head.created_at, self.now);
        let span = (created, self.step.head.completed_at.unwrap_or(now));
        let span_of = |from: i64, to: i64| time::span(time::between(from, to));
        let row = |(at, attempt): (usize, &Attempt)| {
            // An attempt waits from the end of the previous one.
            let before = self.attempts.get(at + 1).and_then(|it| it.completed_at);
            let since = before.unwrap_or(created);
            let ended = attempt.completed_at.unwrap_or(now);
            let state = parts::of_attempt(attempt);
            let due = attempt
                .due_at
                .filter(|at| *at > now)
                .map(|at| format!("due {}", time::relative(at, now)));
            let error = parts::error(attempt).or(due).unwrap_or_default();
            Row {
                number: attempt.number,
                place: parts::place(attempt.process_id, &self.holders),
                claimed: attempt.claimed_at.map(parts::at),
                waited: span_of(since, attempt.claimed_at.unwrap_or(ended)),
                ran: attempt
                    .claimed_at
                    .map_or_else(String::new, |claimed| span_of(claimed, ended)),
                bar: Bar::of(span, since, attempt.claimed_at, ended, state.class),
                error: clip(&error, LETTERS),
                has_more: attempt.has_log || attempt.error_message.is_some(),
                is_told: told == Some(attempt.number),
                state,
            }
        };
        let listed = self.attempts.iter().take(ATTEMPTS).enumerate();
        listed.map(row).collect()
    }
}

/// The attempt that is shown if nobody asks for one: the last with a log or an error.
fn default_attempt(attempts: &[Attempt]) -> Option<u32> {
    let left = |it: &&Attempt| it.has_log || it.error_message.is_some();
    attempts.iter().find(left).map(|it| it.number)
}

fn told(number: u32, mut log: store::Log, attempts: &[Attempt]) -> Told {
    let is_withheld = !may_see_payloads();
    if is_withheld {
        (log.log, log.backtrace) = (None, None);
    }
    let attempt = attempts.iter().find(|it| it.number == number);
    // The last output of a failed command is stored in the backtrace's place.
    let (log_of, backtrace) = match log.log {
        Some(text) => (Some(text), log.backtrace),
        None => (log.backtrace, None),
    };
    let cut = |text: String, room: usize| {
        let end = text::end(&text, room);
        (end.to_owned(), end.len() < text.len())
    };
    let is_same = |text: &String| {
        let log = log_of.as_deref().unwrap_or_default();
        log.trim_end().ends_with(text.trim_end())
    };
    let backtrace = backtrace.filter(|text| !is_same(text));
    let log_of = log_of.map(|text| cut(text, text::ROOM));
    Told {
        number,
        is_withheld,
        class: attempt
            .and_then(|it| it.error_class.as_deref())
            .map(view::attempt::class),
        message: log.error_message.map(|text| cut(text, text::ROOM / 8).0),
        backtrace: backtrace.map(|text| cut(text, text::ROOM / 4).0),
        log_is_cut: log_of.as_ref().is_some_and(|(_, is_cut)| *is_cut),
        log: log_of.map(|(text, _)| text),
    }
}

/// The fan-outs around a step, outermost first; only the innermost has a link, by its id.
fn places(
    run: RunId,
    spreads: &[Spread],
    innermost: Option<(crate::model::FanOutId, u64)>,
) -> Vec<Link> {
    let link = |(at, spread): (usize, &Spread)| {
        let what = match spread.via.as_str() {
            "divide" => "path",
            _ => "element",
        };
        let (number, width) = (
            spread.ordinal.unsigned_abs() + 1,
            spread.width.unsigned_abs(),
        );
        Link {
            text: format!(
                "{what} {} of {} from {}",
                grouped(number),
                grouped(width),
                spread.node
            ),
            address: match (at, innermost) {
                (0, Some((id, place))) => format!("/runs/{run}/fan-outs/{id}?from={place}"),
                _ => String::new(),
            },
        }
    };
    let mut places: Vec<Link> = spreads.iter().enumerate().map(link).collect();
    places.reverse();
    places
}
