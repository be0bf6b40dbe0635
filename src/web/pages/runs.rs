//! The list of runs: its address holds the filters, and for older runs the last run of the page before.

use std::collections::BTreeSet;
use std::sync::Arc;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::duration;
use crate::machine::bulk::{Filter, states};
use crate::model::{RunId, RunStatus, Verb};
use crate::number::grouped;
use crate::percent::encoded;
use crate::store::Error;
use crate::store::conn::Conn;
use crate::store::list::{self, RunFilter};
use crate::store::page as store;
use crate::store::query::{self, Found, Run};
use crate::view;
use crate::web::api::PAYLOAD_BYTES;
use crate::web::refusal::Refusal;
use crate::web::{Site, visitor};

use super::asked::{self, Asked, missing, wrong};
use super::bulks::address;
use super::parts::{self, Moment, RunLink, State};
use super::text::clip;
use super::{Frame, elsewhere, page};

/// Runs per page.
const LIMIT: usize = 50;

/// The number of pipelines that the filter offers.
const PIPELINES: usize = 10_000;

/// A key is looked up in at most this many pipelines at once.
const LOOKED_UP: usize = 20;

/// The longest key in a row, in characters.
const LETTERS: usize = 60;

/// The spans that the filter offers.
const SPANS: [(&str, &str); 5] = [
    ("1h", "the last hour"),
    ("24h", "the last 24 hours"),
    ("7d", "the last 7 days"),
    ("30d", "the last 30 days"),
    ("", "any time"),
];

#[derive(Template)]
#[template(path = "runs.html")]
struct Page {
    frame: Frame,
    form: Form,
    runs: Vec<Row>,
    /// The address of the next page.
    older: Option<String>,
    /// The address of the first page, if this is a later one.
    first: Option<String>,
    /// Several runs whose ids have these digits.
    digits: Option<String>,
    may_act: bool,
    /// The deeds that may be done to all matching runs, each with the address of its question.
    all: Vec<(&'static str, String)>,
}

struct Form {
    pipelines: Vec<Choice>,
    statuses: Vec<(Choice, State)>,
    spans: Vec<Choice>,
    key: String,
}

struct Choice {
    value: String,
    text: String,
    is_chosen: bool,
}

struct Row {
    run: RunLink,
    pipeline: String,
    encoded: String,
    state: State,
    triggered: Moment,
    took: String,
    key: String,
    remarks: String,
}

/// The filters of an address.
#[derive(Clone, Default)]
struct Filters {
    pipeline: Option<String>,
    statuses: Vec<RunStatus>,
    since: Option<String>,
    key: Option<String>,
    before: Option<RunId>,
}

impl Filters {
    fn of(asked: &Asked) -> Result<Self, Refusal> {
        let statuses: Result<Vec<RunStatus>, Refusal> = asked.all("status").map(status).collect();
        let since = asked.one("since")?;
        if let Some(Err(error)) = since.map(duration::parse) {
            let notation = duration::NOTATION;
            return Err(wrong(format!("`since` is wrong: {error}; {notation}")));
        }
        let before = asked.one("before")?;
        Ok(Self {
            pipeline: asked.one("pipeline")?.map(str::to_owned),
            statuses: statuses?,
            since: since.map(str::to_owned),
            key: asked.one("key")?.map(str::to_owned),
            before: before.map(|id| asked::id(id, "a run")).transpose()?,
        })
    }

    /// The bulk actions that change anything in runs with these filters, each with the address of its
    /// question.
    fn bulks(&self) -> Vec<(&'static str, String)> {
        let verbs = [
            (Verb::Revive, "revive"),
            (Verb::Cancel, "cancel"),
            (Verb::Resume, "resume"),
        ];
        let mut bulks = Vec::new();
        for (verb, name) in verbs {
            let states = states(verb).iter().copied();
            let meant = |it: &RunStatus| self.statuses.is_empty() || self.statuses.contains(it);
            let filter = Filter {
                pipeline: self.pipeline.clone(),
                statuses: states.filter(meant).collect(),
                ..Filter::default()
            };
            if !filter.statuses.is_empty() {
                bulks.push((name, address(verb, &filter, self.since.as_deref())));
            }
        }
        bulks
    }

    /// The address of a list with these filters.
    fn address(&self, before: Option<RunId>) -> String {
        let mut pairs = Vec::new();
        let mut add = |name: &str, value: &str| pairs.push(format!("{name}={}", encoded(value)));
        if let Some(pipeline) = &self.pipeline {
            add("pipeline", pipeline);
        }
        for status in &self.statuses {
            add("status", view::word(*status));
        }
        if let Some(since) = &self.since {
            add("since", since);
        }
        if let Some(before) = before {
            add("before", &before.to_string());
        }
        match pairs.is_empty() {
            true => "/runs".to_owned(),
            false => format!("/runs?{}", pairs.join("&")),
        }
    }
}

/// A state, by the word that people know or by the stored word.
pub fn status(text: &str) -> Result<RunStatus, Refusal> {
    view::status(text).ok_or_else(|| {
        let words: Vec<&str> = RunStatus::ALL.iter().map(|it| view::word(*it)).collect();
        wrong(format!(
            "`{text}` is not a state of a run: the states are {}",
            words.join(", ")
        ))
    })
}

/// The answer of the database.
enum Listed {
    Runs(Vec<Run>),
    /// The digits of an id identify this run.
    One(RunId),
    /// The digits stand for these runs.
    Several(Vec<Run>),
    NoRun,
    /// The key may be that of a run of too many pipelines.
    NoPipeline,
}

const PARAMETERS: [&str; 6] = ["pipeline", "status", "since", "key", "id", "before"];

/// `GET /runs`
pub async fn runs(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &PARAMETERS)?;
    let filters = Filters::of(&asked)?;
    let digits = asked.one("id")?.map(str::to_owned);
    if digits
        .as_deref()
        .is_some_and(|id| query::digits(id).is_none())
    {
        return Err(wrong(format!(
            "`{}` is not part of a run's id: give 4 to 32 hexadecimal digits",
            digits.unwrap_or_default()
        )));
    }
    let (of, wanted) = (filters.clone(), digits.clone());
    let read = site.source.read(async move |conn| {
        let pipelines = store::pipelines(conn, PIPELINES).await?;
        let listed = match &wanted {
            Some(digits) => found(conn, digits).await?,
            None => listed(conn, &of, &pipelines).await?,
        };
        Ok((listed, pipelines, query::now(conn).await?))
    });
    let (listed, pipelines, now) = read.await?;
    let mut several = None;
    let mut runs = match listed {
        Listed::Runs(runs) => runs,
        Listed::Several(runs) => {
            several = digits;
            runs
        }
        Listed::One(run) => return Ok(elsewhere(&format!("/runs/{run}"))),
        Listed::NoRun => {
            return Err(missing(format!(
                "no run's id, long or short, begins or ends with {}; the run may have been deleted, and the digits \
                 of a short id find only the newest {} runs",
                digits.unwrap_or_default(),
                grouped(query::NEWEST as u64)
            )));
        }
        Listed::NoPipeline => {
            return Err(wrong(format!(
                "a key belongs to a run of its pipeline, and there are more than {LOOKED_UP} pipelines: choose one"
            )));
        }
    };
    let more = several.is_none() && runs.len() > LIMIT;
    if more {
        runs.truncate(LIMIT);
    }
    let last = runs.last().map(|run| run.id);
    let names = pipelines.iter().map(|it| it.pipeline.as_str());
    let names: BTreeSet<&str> = names.filter(|it| visitor::may_see(it)).collect();
    let frame = Frame::of("runs", now);
    let may_act = frame.may_act_on(filters.pipeline.as_deref());
    page(&Page {
        may_act,
        all: match several.is_none() && filters.key.is_none() {
            true => filters.bulks(),
            false => Vec::new(),
        },
        frame,
        form: form(&filters, &names),
        older: last
            .filter(|_| more)
            .map(|last| filters.address(Some(last))),
        first: filters.before.map(|_| filters.address(None)),
        digits: several,
        runs: runs.iter().map(|run| row(run, now)).collect(),
    })
}

async fn found(conn: &mut Conn, digits: &str) -> Result<Listed, Error> {
    Ok(match query::find_run(conn, digits).await? {
        Found::One(run) => Listed::One(run),
        Found::None | Found::Malformed => Listed::NoRun,
        Found::Ambiguous(ids) => Listed::Several(of_ids(conn, &ids).await?),
    })
}

async fn listed(
    conn: &mut Conn,
    filters: &Filters,
    pipelines: &[store::Versions],
) -> Result<Listed, Error> {
    if let Some(key) = &filters.key {
        let names: Vec<&str> = match &filters.pipeline {
            Some(pipeline) => vec![pipeline],
            None if pipelines.len() > LOOKED_UP => return Ok(Listed::NoPipeline),
            None => pipelines.iter().map(|it| it.pipeline.as_str()).collect(),
        };
        let mut runs = Vec::new();
        for name in names {
            runs.extend(list::runs(conn, &filter(filters, Some(name), Some(key))).await?);
        }
        runs.sort_by_key(|run| std::cmp::Reverse(run.id));
        return Ok(Listed::Runs(runs));
    }
    let filter = filter(filters, filters.pipeline.as_deref(), None);
    Ok(Listed::Runs(list::runs(conn, &filter).await?))
}

fn filter<'a>(
    filters: &'a Filters,
    pipeline: Option<&'a str>,
    key: Option<&'a str>,
) -> RunFilter<'a> {
    let since = filters.since.as_deref();
    RunFilter {
        pipeline,
        key,
        statuses: &filters.statuses,
        since: since.and_then(|since| duration::parse(since).ok()),
        before: filters.before,
        limit: LIMIT + 1,
        // The page shows no payload, but names each run with a damaged one.
        whole: PAYLOAD_BYTES,
    }
}

/// These runs, as they are in a list.
async fn of_ids(conn: &mut Conn, ids: &[RunId]) -> Result<Vec<Run>, Error> {
    let mut runs = Vec::new();
    for id in ids.iter().take(LIMIT) {
        runs.extend(query::run_up_to(conn, *id, PAYLOAD_BYTES).await?);
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.id));
    Ok(runs)
}

fn row(run: &Run, now: i64) -> Row {
    Row {
        run: parts::run(run.id),
        encoded: encoded(&run.pipeline),
        pipeline: run.pipeline.clone(),
        state: match run.due_at {
            Some(_) => parts::SCHEDULED,
            None => parts::of_run(run.status),
        },
        triggered: parts::ago(run.triggered_at, now),
        took: view::took(run.triggered_at, run.ended_at(), now),
        key: clip(run.trigger_key.as_deref().unwrap_or_default(), LETTERS),
        remarks: view::remarks(run, now),
    }
}

fn form(filters: &Filters, names: &BTreeSet<&str>) -> Form {
    let chosen = filters.pipeline.as_deref();
    // A pipeline without runs is still the requested one.
    let unknown = chosen.filter(|name| !names.contains(name));
    let pipelines = names.iter().copied().chain(unknown).map(|name| Choice {
        value: name.to_owned(),
        text: name.to_owned(),
        is_chosen: chosen == Some(name),
    });
    let statuses = RunStatus::ALL.iter().map(|status| {
        let choice = Choice {
            value: view::word(*status).to_owned(),
            text: view::word(*status).to_owned(),
            is_chosen: filters.statuses.contains(status),
        };
        (choice, parts::of_run(*status))
    });
    let since = filters.since.as_deref().unwrap_or_default();
    let span = |value: &str, text: &str| Choice {
        value: value.to_owned(),
        text: text.to_owned(),
        is_chosen: value == since,
    };
    let mut spans: Vec<Choice> = SPANS
        .iter()
        .map(|(value, text)| span(value, text))
        .collect();
    if spans.iter().all(|span| !span.is_chosen) {
        spans.push(span(since, &format!("the last {since}")));
    }
    Form {
        pipelines: pipelines.collect(),
        statuses: statuses.collect(),
        spans,
        key: filters.key.clone().unwrap_or_default(),
    }
}
