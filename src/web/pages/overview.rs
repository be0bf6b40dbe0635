//! The overview: everything at a glance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::machine::stuck::{self, Facts, Mover};
use crate::model::{Intake, Role, RunStatus};
use crate::number::grouped;
use crate::percent::encoded;
use crate::store::overview::{self, Count, Queue};
use crate::store::{halted, page as store};
use crate::time;
use crate::web::refusal::Refusal;
use crate::web::series::Glance;
use crate::web::{Site, visitor};
use crate::wire::process::State as Judged;

use super::asked::Asked;
use super::halted::{Kind, NoneLeft};
use super::parts::{self, State};
use super::rates::{self, LastDay, Rate};
use super::text::clip;
use super::{Frame, elsewhere, page};

/// Counting stops at this number.
const MOST: u64 = 10_000;

/// Work that has waited for longer is marked.
const OLD: Duration = Duration::from_secs(60);

/// The number of kinds of halted runs, and of questions, that are shown here.
const FEW: usize = 5;

/// The number up to which questions are counted.
const QUESTIONS: usize = 1_000;

/// The longest name of a pipeline, and the longest fact with its reason, in characters.
const NAME: usize = 200;
const LETTERS: usize = 1_000;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    troubles: Vec<Trouble>,
    pauses: Vec<String>,
    rates: [Rate; 2],
    /// Each with its meaning.
    states: [(State, &'static str); 5],
    pipelines: Vec<Pipeline>,
    halted: Vec<Kind>,
    none_halted: NoneLeft,
    waiting: String,
    oldest_question: Option<String>,
    hosts: Vec<Host>,
}

struct Trouble {
    fact: String,
    remedy: String,
    run: Option<parts::RunLink>,
}

struct Pipeline {
    name: String,
    /// The name as a part of an address.
    encoded: String,
    /// Runs by state, in the order of the states.
    counts: [Number; 5],
    due: String,
    later: String,
    oldest: Option<String>,
    is_old: bool,
    busy: u64,
    workers: u64,
    is_unworked: bool,
    is_paused: bool,
    day: LastDay,
}

struct Number {
    text: String,
    is_none: bool,
    /// The address of the list of these runs, without the pipeline at its end.
    path: String,
}

struct Host {
    name: String,
    processes: Vec<Process>,
}

struct Process {
    role: &'static str,
    pipeline: String,
    pid: u32,
    state: State,
    beat: String,
    holds: u64,
}

/// The states in the order in which they are shown: those of unfinished runs first.
const STATES: [RunStatus; 5] = [
    RunStatus::InProgress,
    RunStatus::Dampened,
    RunStatus::Halted,
    RunStatus::Completed,
    RunStatus::Cancelled,
];

#[derive(Template)]
#[template(path = "own.html")]
struct Own {
    frame: Frame,
    /// Names, each with its form in an address.
    pipelines: Vec<(String, String)>,
}

/// The first page of a visitor whose token is for some pipelines: with one pipeline its runs, else a
/// choice.
fn own(only: &[String]) -> Result<Response, Refusal> {
    match only {
        [] => Err(visitor::alone(only)),
        [one] => Ok(elsewhere(&format!("/runs?pipeline={}", encoded(one)))),
        several => {
            let several = several.iter().map(|it| (clip(it, NAME), encoded(it)));
            page(&Own {
                frame: Frame::without_time(""),
                pipelines: several.collect(),
            })
        }
    }
}

/// `GET /`
pub async fn overview(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    if let Some(only) = visitor::asking().and_then(|it| it.pipelines.clone()) {
        return own(&only);
    }
    let stale_after = site.terms.witness.stale_after;
    let read = site.source.read(async move |conn| {
        Ok((
            overview::counts(conn, None, MOST).await?,
            overview::queues(conn, MOST).await?,
            crate::store::stuck::facts(conn, stale_after).await?,
            halted::by_kind(conn, None).await?,
            store::questions(conn, None, QUESTIONS).await?,
        ))
    });
    let (counts, queues, facts, halted, (n, oldest)) = read.await?;
    let glance = site.series.glance(&site.source).await?;
    let now = facts.now;
    let judged = |mover: &Mover| Judged::of(mover.age, stale_after, || mover.dead);
    let troubles = stuck::stuck(&facts).into_iter().map(|stuck| Trouble {
        run: stuck.run_id.map(parts::run),
        fact: clip(&stuck.fact, LETTERS),
        remedy: stuck.remedy,
    });
    page(&Overview {
        frame: Frame::of("", now),
        troubles: troubles.collect(),
        pauses: facts
            .pauses
            .iter()
            .map(|it| clip(&it.fact(now), LETTERS))
            .collect(),
        rates: rates::rates(&glance),
        states: STATES.map(|status| {
            let meaning = match status {
                RunStatus::Halted => "It stopped for good, and nobody has revived it",
                status => parts::meaning(status),
            };
            (parts::of_run(status), meaning)
        }),
        pipelines: pipelines(&counts, &queues, &facts, &glance, &judged),
        none_halted: NoneLeft::of(&halted, None),
        halted: halted
            .kinds
            .iter()
            .take(FEW)
            .map(|kind| Kind::of(kind, now))
            .collect(),
        waiting: match n < QUESTIONS as u64 {
            true => n.to_string(),
            false => format!("{}+", grouped(n)),
        },
        oldest_question: oldest.map(|at| time::whole(time::between(at, now))),
        hosts: hosts(&facts.processes, &judged),
    })
}

fn pipelines(
    counts: &[Count],
    queues: &[Queue],
    facts: &Facts,
    glance: &Glance,
    judged: &dyn Fn(&Mover) -> Judged,
) -> Vec<Pipeline> {
    let movers = &facts.processes;
    let pauses = facts.pauses.iter().map(|it| it.pipeline.as_str());
    let names = counts.iter().map(|it| it.pipeline.as_str());
    let names = names.chain(queues.iter().map(|it| it.pipeline.as_str()));
    let names = names.chain(movers.iter().filter_map(|it| it.pipeline.as_deref()));
    let names = names.chain(pauses.clone());
    let names: std::collections::BTreeSet<&str> = names.collect();
    let pipeline = |name: &str| {
        let count = |status: RunStatus| {
            let found = counts
                .iter()
                .find(|it| it.pipeline == name && it.status == status);
            let n = found.map_or(0, |it| it.runs);
            let is_more = found.is_some_and(|it| it.is_more);
            let more = if is_more { "+" } else { "" };
            Number {
                text: format!("{}{more}", grouped(n)),
                is_none: n == 0 && !is_more,
                path: match status {
                    RunStatus::Halted => "/halted?pipeline=".to_owned(),
                    status => format!("/runs?status={}&pipeline=", crate::view::word(status)),
                },
            }
        };
        let queue = queues.iter().find(|it| it.pipeline == name);
        let oldest = queue.and_then(|it| it.oldest);
        let workers: Vec<&Mover> = movers
            .iter()
            .filter(|it| it.role == Role::Worker && it.pipeline.as_deref() == Some(name))
            .filter(|it| judged(it) == Judged::Healthy)
            .collect();
        // One that was told to take nothing, or to end, finishes what it holds.
        let takers = workers.iter().filter(|it| it.intake == Intake::Open);
        let takers = takers.count();
        let due = queue.map_or(0, |it| it.due);
        let is_paused = pauses.clone().any(|it| it == name);
        Pipeline {
            name: clip(name, NAME),
            encoded: encoded(name),
            counts: STATES.map(count),
            due: up_to(due),
            later: up_to(queue.map_or(0, |it| it.later)),
            is_old: !is_paused && oldest.is_some_and(|it| it >= OLD),
            oldest: oldest.map(time::whole),
            busy: workers.iter().map(|it| it.holds).sum(),
            is_unworked: !is_paused && takers == 0 && due > 0,
            is_paused,
            workers: takers as u64,
            day: rates::last_day(glance.days.get(name)),
        }
    };
    names.into_iter().map(pipeline).collect()
}

/// A number that was counted up to a bound.
fn up_to(n: u64) -> String {
    match n < MOST {
        true => grouped(n),
        false => format!("{}+", grouped(MOST)),
    }
}

fn hosts(movers: &[Mover], judged: &dyn Fn(&Mover) -> Judged) -> Vec<Host> {
    let mut hosts: BTreeMap<&str, Vec<Process>> = BTreeMap::new();
    let mut movers: Vec<&Mover> = movers.iter().collect();
    movers.sort_by(|a, b| (a.role, &a.pipeline, a.pid).cmp(&(b.role, &b.pipeline, b.pid)));
    for mover in movers {
        let trouble = mover.trouble.as_ref().map(|(text, _)| text.as_str());
        let judged = judged(mover).with(mover.role, trouble);
        hosts.entry(&mover.host).or_default().push(Process {
            role: mover.role.as_str(),
            pipeline: mover.pipeline.clone().unwrap_or_default(),
            pid: mover.pid,
            state: parts::of_process(judged, mover.intake),
            beat: time::whole(mover.age),
            holds: mover.holds,
        });
    }
    let host = |(name, processes): (&str, Vec<Process>)| Host {
        name: name.to_owned(),
        processes,
    };
    hosts.into_iter().map(host).collect()
}
