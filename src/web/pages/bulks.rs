//! Actions in many runs at once: the question before one, their list, and the page of each
//! one.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;
use uuid::Uuid;

use crate::duration;
use crate::machine::bulk::{Filter, Kind, Selection};
use crate::machine::kind;
use crate::model::*;
use crate::number::grouped;
use crate::percent::encoded;
use crate::store::bulk::{self, Bulk, Chosen, Listed};
use crate::store::definition::short;
use crate::store::{halted, query};
use crate::view;
use crate::web::Site;
use crate::web::bulks::{self, Wanted};
use crate::web::deeds;
use crate::web::refusal::Refusal;
use crate::web::visitor::Visitor;

use super::asked::{self, Asked, wrong};
use super::form::Form;
use super::parts::{self, Moment, RunLink};
use super::text::clip;
use super::{Frame, elsewhere, page};

type Who = Extension<Arc<Visitor>>;

/// Bulk actions per page.
const LISTED: usize = 50;

/// The number up to which runs are counted before a bulk action.
const COUNTED: usize = 10_000;

/// The number of chosen runs that are named.
const NAMED: usize = 50;

/// The longest text, in characters.
const LETTERS: usize = 300;

/// The names of the parameters that describe a bulk action.
const PARAMETERS: [&str; 12] = [
    "verb", "all", "run", "pipeline", "status", "since", "kind", "node", "reason", "class",
    "error", "newest",
];

/// The deed, as people read it before and after.
struct Words {
    /// "Revive"
    begins: &'static str,
    /// "revived"
    done: &'static str,
    effect: &'static str,
}

fn words(verb: Verb) -> Words {
    match verb {
        Verb::Revive => Words {
            begins: "Revive",
            done: "revived",
            effect: "Each is continued as a new run, which repeats only the work that had not been completed.",
        },
        Verb::Cancel => Words {
            begins: "Cancel",
            done: "cancelled",
            effect: "Each ends for good: its running steps are stopped, and no part of it continues. A cancelled run cannot be revived.",
        },
        _ => Words {
            begins: "Resume",
            done: "resumed",
            effect: "Each of their steps that waits for a person now, and whose deadline has not passed, is resumed with the value that it asks about.",
        },
    }
}

/// The selected runs, for people.
struct Meant {
    runs: Vec<RunLink>,
    more: String,
    facts: Vec<(&'static str, String)>,
}

impl Meant {
    fn of(selection: &Selection, since: Option<String>) -> Self {
        let filter = match selection {
            Selection::Chosen(runs) => {
                return Self {
                    runs: runs.iter().take(NAMED).copied().map(parts::run).collect(),
                    more: match runs.len().saturating_sub(NAMED) {
                        0 => String::new(),
                        more => grouped(more as u64),
                    },
                    facts: Vec::new(),
                };
            }
            Selection::Matching(filter) => filter,
        };
        let facts = view::filter(filter, since).into_iter();
        let facts = facts
            .map(|(name, text)| (name, clip(&text, LETTERS)))
            .collect();
        Self {
            runs: Vec::new(),
            more: String::new(),
            facts,
        }
    }
}

#[derive(Template)]
#[template(path = "ask_bulk.html")]
struct Ask {
    frame: Frame,
    words: Words,
    meant: Meant,
    /// How many runs the deed changes.
    number: String,
    /// How many were chosen, if it changes fewer of them.
    chosen: Option<String>,
    /// The chosen runs that it leaves as they are, and why.
    left: Vec<(RunLink, &'static str)>,
    /// The number of them that are not named.
    more_left: Option<String>,
    is_none: bool,
    is_bad: bool,
    /// The runs are those that match a filter, not chosen ones.
    is_all: bool,
    /// The configuration has the named pipeline, so its newest definition can be requested.
    offers_latest: bool,
    /// The fields that the form sends.
    fields: Vec<(&'static str, String)>,
    back: String,
}

/// The bulk action that an address or a form describes.
fn wanted<'a>(get: impl Fn(&'static str) -> Vec<&'a str>) -> Result<Wanted, Refusal> {
    let one = |name| {
        let all = get(name);
        match all.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some((*one).to_owned())),
            _ => Err(wrong(format!("the parameter `{name}` is given twice"))),
        }
    };
    let verb = match one("verb")?.as_deref() {
        Some("revive") => Verb::Revive,
        Some("cancel") => Verb::Cancel,
        Some("resume") => Verb::Resume,
        _ => return Err(wrong("`verb` is one of `revive`, `cancel` and `resume`")),
    };
    let newest = one("newest")?.map(|id| asked::id(&id, "a run"));
    let runs = get("run");
    let since = one("since")?;
    let since = since.as_deref().map(duration::parse).transpose();
    let since = since
        .map_err(|error| wrong(format!("`since` is wrong: {error}; {}", duration::NOTATION)))?;
    let is_all = one("all")?.is_some();
    let selection = match is_all {
        false if runs.is_empty() => {
            let refusal = wrong("no run is chosen: choose some runs in the list first");
            return Err(refusal.leads_to("runs", "Choose some runs"));
        }
        false => {
            let runs: Result<Vec<RunId>, Refusal> =
                runs.iter().map(|id| asked::id(id, "a run")).collect();
            Selection::chosen(runs?)
        }
        true if !runs.is_empty() => {
            return Err(wrong("choose runs, or all that match, but not both"));
        }
        true => {
            let mut statuses = Vec::new();
            for text in get("status") {
                statuses.push(super::runs::status(text)?);
            }
            let chosen = Kind {
                node: one("node")?,
                reason: one("reason")?,
                class: one("class")?.as_deref().and_then(kind::class),
                error: one("error")?.unwrap_or_default(),
            };
            Selection::Matching(Filter {
                pipeline: one("pipeline")?,
                statuses,
                since: None,
                kind: one("kind")?.map(|_| chosen),
            })
        }
    };
    Ok(Wanted {
        verb,
        selection,
        since,
        latest: !get("latest").is_empty(),
        newest: newest.transpose()?,
    })
}

/// The address of the question before a bulk action in all matching runs.
pub fn address(verb: Verb, filter: &Filter, since: Option<&str>) -> String {
    let mut path = format!("/bulk/new?verb={verb}&all=1");
    let mut add = |name: &str, value: &str| {
        path.push_str(&format!("&{name}={}", encoded(value)));
    };
    if let Some(pipeline) = &filter.pipeline {
        add("pipeline", pipeline);
    }
    for status in &filter.statuses {
        add("status", view::word(*status));
    }
    if let Some(since) = since {
        add("since", since);
    }
    if let Some(kind) = &filter.kind {
        add("kind", "1");
        let word = |it: &Option<String>| it.clone().unwrap_or_default();
        add("node", &word(&kind.node));
        add("reason", &word(&kind.reason));
        add("class", &word(&kind.class));
        add("error", &kind.error);
    }
    path
}

/// The chosen runs that a deed leaves as they are, each with the reason.
fn left(verb: Verb, runs: &[RunId], states: &[Chosen]) -> Vec<(RunId, &'static str)> {
    let why = |run: &RunId| match states.iter().find(|it| it.id == *run) {
        None => Some("does not exist"),
        Some(run) if run.is_for(verb) => None,
        Some(run) => Some(match run.status {
            RunStatus::Halted if run.successor.is_some() => "was revived before",
            RunStatus::Halted => "has halted",
            RunStatus::InProgress => "is in progress",
            RunStatus::Dampened => "waits for a person",
            RunStatus::Completed => "has completed",
            RunStatus::Cancelled => "was cancelled",
        }),
    };
    let left = runs.iter().filter_map(|run| Some((*run, why(run)?)));
    left.collect()
}

/// `GET /bulk/new`
pub async fn ask_bulk(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &PARAMETERS)?;
    let get = |name| asked.all(name).collect::<Vec<&str>>();
    let wanted = wanted(get)?.checked()?;
    bulks::own_alone(&site, &wanted.selection, &who).await?;
    if let Selection::Matching(filter) = &wanted.selection
        && let Some(name) = &filter.pipeline
    {
        deeds::known(&site, name).await?;
    }
    let (selection, since, verb) = (wanted.selection.clone(), wanted.since, wanted.verb);
    let read = site.source.read(async move |conn| {
        let now = query::now(conn).await?;
        let newest = bulk::newest_of(conn, &selection).await?;
        let mut states = Vec::new();
        let number = match &selection {
            Selection::Chosen(runs) => {
                states = bulk::chosen(conn, runs).await?;
                let meant = states.iter().filter(|it| it.is_for(verb));
                (meant.count(), false)
            }
            Selection::Matching(Filter {
                kind: Some(kind),
                pipeline,
                ..
            }) => {
                let halted = halted::by_kind(conn, pipeline.as_deref()).await?;
                let same = halted.kinds.iter().filter(|it| it.kind == *kind);
                let runs: u64 = same.map(|it| it.runs).sum();
                (usize::try_from(runs).unwrap_or(COUNTED), halted.is_partial)
            }
            Selection::Matching(filter) => {
                let filter = bulks::since(filter, since, now);
                let found = bulk::count(conn, &filter, newest, COUNTED).await?;
                (found, found == COUNTED)
            }
        };
        Ok((number, newest, now, states))
    });
    let ((number, is_more), newest, now, states) = read.await?;
    let left = match &wanted.selection {
        Selection::Chosen(runs) => left(verb, runs, &states),
        Selection::Matching(_) => Vec::new(),
    };
    let mut fields: Vec<(&'static str, String)> = Vec::new();
    for name in PARAMETERS.into_iter().filter(|it| *it != "newest") {
        fields.extend(asked.all(name).map(|value| (name, value.to_owned())));
    }
    if let Selection::Matching(_) = &wanted.selection {
        fields.push(("newest", newest.to_string()));
    }
    let pipeline = match &wanted.selection {
        Selection::Matching(filter) => filter.pipeline.clone(),
        Selection::Chosen(_) => None,
    };
    let own = |name: &String| site.terms.pipelines.iter().any(|it| it.pipeline == *name);
    let since = asked.one("since")?;
    page(&Ask {
        frame: Frame::of("bulk", now),
        words: words(wanted.verb),
        meant: Meant::of(
            &wanted.selection,
            since.map(|it| format!("within the last {it}")),
        ),
        number: match is_more {
            true => format!("{} or more", grouped(number as u64)),
            false => grouped(number as u64),
        },
        chosen: (!left.is_empty()).then(|| grouped((number + left.len()) as u64)),
        more_left: match left.len().saturating_sub(NAMED) {
            0 => None,
            more => Some(grouped(more as u64)),
        },
        left: left
            .into_iter()
            .take(NAMED)
            .map(|(run, why)| (parts::run(run), why))
            .collect(),
        is_none: number == 0 && !is_more,
        is_bad: wanted.verb == Verb::Cancel,
        is_all: matches!(wanted.selection, Selection::Matching(_)),
        offers_latest: wanted.verb == Verb::Revive && pipeline.as_ref().is_some_and(own),
        fields,
        back: match wanted.verb {
            Verb::Revive => "/halted".to_owned(),
            _ => "/runs".to_owned(),
        },
    })
}

/// `POST /bulk`
pub async fn bulk(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    body: Bytes,
) -> Result<Response, Refusal> {
    let form = Form::of(&body, &who)?;
    let wanted = wanted(|name| form.all(name).collect())?;
    if let (Selection::Chosen(runs), Some(_)) = (&wanted.selection, wanted.newest) {
        // The question of an older version sends a newest run beside chosen ones.
        let runs: String = runs.iter().map(|run| format!("&run={run}")).collect();
        let refusal =
            bulks::unfit("this page is out of date: an older version of the console made it");
        return Err(refusal
            .remedy("nothing has been changed; load the page again, and confirm it there")
            .leads_to(
                format!("bulk/new?verb={}{runs}", wanted.verb),
                "The page, loaded again",
            ));
    }
    let by = who.actor(Channel::Console);
    let id = bulks::create(&site, wanted, &who, by).await?;
    Ok(elsewhere(&format!("/bulk/{id}")))
}

/// A bulk action, for people.
struct Shown {
    id: Uuid,
    words: Words,
    state: &'static str,
    by: String,
    at: Moment,
    ended: Option<Moment>,
    stopped_by: String,
    done: String,
    skipped: String,
    failed: String,
    /// `None` if there are none.
    aside: Option<String>,
    failures: Vec<(RunLink, String)>,
    has_more_failures: bool,
    meant: Meant,
    latest: String,
}

impl Shown {
    fn of(bulk: &Bulk, now: i64) -> Self {
        let count = |n: i64| grouped(u64::try_from(n).unwrap_or_default());
        let since = match &bulk.selection {
            Selection::Matching(filter) => filter.since,
            Selection::Chosen(_) => None,
        };
        let failures = bulk.failures.iter();
        let aside = bulk.aside();
        Self {
            id: bulk.id,
            words: words(bulk.verb),
            state: match (bulk.ended_at, &bulk.stopped_by) {
                (None, _) => "at work",
                (Some(_), None) => "ended",
                (Some(_), Some(_)) => "stopped",
            },
            by: clip(&bulk.by, LETTERS),
            at: parts::ago(bulk.created_at, now),
            ended: bulk.ended_at.map(|at| parts::ago(at, now)),
            stopped_by: clip(bulk.stopped_by.as_deref().unwrap_or_default(), LETTERS),
            done: count(bulk.done),
            skipped: count(bulk.skipped),
            failed: count(bulk.failed - aside),
            aside: (aside > 0).then(|| count(aside)),
            failures: failures
                .map(|it| {
                    let again = it.again.filter(|_| bulk.ended_at.is_none());
                    let again = again.map(|it| format!(" Attempt {} will follow.", it.tries + 1));
                    let why = clip(&it.why, LETTERS);
                    (parts::run(it.run), why + &again.unwrap_or_default())
                })
                .collect(),
            has_more_failures: bulk.failed > bulk.failures.len() as i64,
            meant: Meant::of(
                &bulk.selection,
                since.map(|at| format!("since {}", parts::seconds(at))),
            ),
            latest: bulk
                .definition
                .as_deref()
                .map_or_else(String::new, |digest| short(digest).to_owned()),
        }
    }
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct One {
    frame: Frame,
    bulk: Shown,
    may_stop: bool,
    /// The list of its actions is for a visitor who may see every pipeline.
    may_list: bool,
}

/// `GET /bulk/{id}`
pub async fn one_bulk(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    let (bulk, now) = bulks::find(&site, asked::id(&id, "a bulk action")?, &who).await?;
    page(&One {
        frame: Frame::of("bulk", now),
        may_stop: who.scope >= Scope::Operate && bulk.ended_at.is_none(),
        may_list: who.may_see_all(),
        bulk: Shown::of(&bulk, now),
    })
}

/// `POST /bulk/{id}/stop`
pub async fn stop_bulk(
    Extract(site): Extract<Arc<Site>>,
    Extension(who): Who,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Refusal> {
    Form::of(&body, &who)?;
    let id = asked::id(&id, "a bulk action")?;
    bulks::stop(&site, id, &who, who.actor(Channel::Console)).await?;
    Ok(elsewhere(&format!("/bulk/{id}")))
}

#[derive(Template)]
#[template(path = "bulks.html")]
struct List {
    frame: Frame,
    bulks: Vec<Shown>,
    /// Bulk actions that only another version can read.
    unreadable: Vec<Uuid>,
    may_stop: bool,
    older: Option<String>,
}

/// `GET /bulk`
pub async fn all_bulks(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["before"])?;
    let before: Option<Uuid> = match asked.one("before")? {
        Some(text) => Some(asked::id(text, "a bulk action")?),
        None => None,
    };
    let read = site.source.read(async move |conn| {
        let bulks = bulk::latest(conn, before, LISTED + 1).await?;
        Ok((bulks, query::now(conn).await?))
    });
    let (mut listed, now) = read.await?;
    let more = listed.len() > LISTED;
    listed.truncate(LISTED);
    let last = listed.last().filter(|_| more).map(Listed::id);
    let (mut bulks, mut unreadable) = (Vec::new(), Vec::new());
    for bulk in &listed {
        match bulk {
            Listed::Bulk(bulk) => bulks.push(Shown::of(bulk, now)),
            Listed::Unreadable(id) => unreadable.push(*id),
        }
    }
    let frame = Frame::of("bulk", now);
    page(&List {
        may_stop: frame.may_act_on(None),
        frame,
        bulks,
        unreadable,
        older: last.map(|last| format!("/bulk?before={last}")),
    })
}
