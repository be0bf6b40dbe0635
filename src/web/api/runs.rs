//! Runs: their list, one run, the reason why it does not move, its pictures.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::machine::halt::HaltFact;
use crate::machine::timeline;
use crate::machine::why::{Why, why};
use crate::model::*;
use crate::store::list::{self, RunFilter};
use crate::store::query::{self, Run};
use crate::store::{Conn, Error, fan_out, page, process, writable};
use crate::svg;
use crate::view::graph::{self, Progress};
use crate::web::refusal::{Refusal, no_run};
use crate::web::visitor;
use crate::web::{Site, deeds};
use crate::wire::fan_out::HaltedJson;
use crate::wire::process::State;
use crate::wire::run::{AloneJson, HaltJson, RunJson, WhyJson};
use crate::wire::trace::TraceJson;

use super::cursor::AfterRun;
use super::given::{Given, LIMIT, Limit, Param, Span, Statuses, Text};
use super::{Answer, Answered, payload_bytes};

/// The run in the path.
pub static ID: Param<RunId> = Param::path("id", "The run's id");
/// A filter. A misspelled name must not pass for a pipeline that has nothing.
pub static PIPELINE: Param<Text> =
    Param::query("pipeline", "Limits the answer to this pipeline").must_exist();
/// A filter.
pub static STATUS: Param<Statuses> = Param::query(
    "status",
    "Only runs in one of these states; repeat it, or separate the states with commas. `running` means `in_progress`, \
     and `waiting` means `dampened`: these are the words that people see; answers have `in_progress` and `dampened`",
);
/// A filter.
pub static SINCE: Param<Span> = Param::query(
    "since",
    "Only runs that were triggered at most this long ago: a number of seconds, or a number with a unit (`90m`, \
     `24h`, `7d`)",
);
/// A filter.
pub static KEY: Param<Text> = Param::query(
    "key",
    "Only the run with this trigger key. A key belongs to its pipeline: `pipeline` is required as well",
);
/// The length of a page.
pub static LIMIT_: Param<Limit> = Param::query(
    "limit",
    "The most items to return. A page has fewer if they are large; the `Link` header says whether there are more",
);
/// The page.
pub static AFTER: Param<AfterRun> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// The number of a run's halts in the answer.
const HALTS: usize = 5;

/// The list of runs, newest first.
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let pipeline = given.get(&PIPELINE).map(|it| it.0);
    let key = given.get(&KEY).map(|it| it.0);
    if key.is_some() && pipeline.is_none() {
        let detail = "a key belongs to a run of its pipeline: give `pipeline` as well";
        return Err(Refusal::parameter("key", detail));
    }
    let statuses = given.get(&STATUS).map_or(Vec::new(), |it| it.0);
    let since = given.get(&SINCE).map(|it| it.0);
    let before = given.get(&AFTER).map(|it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let (whole, of) = (payload_bytes(), pipeline.clone());
    let runs = site.source.read(async move |conn| {
        let filter = RunFilter {
            pipeline: pipeline.as_deref(),
            key: key.as_deref(),
            statuses: &statuses,
            since,
            before,
            // One more, to know whether there is a next page.
            limit: limit + 1,
            whole,
        };
        list::runs(conn, &filter).await
    });
    let runs = runs.await?;
    if let Some(pipeline) = of.filter(|_| runs.is_empty()) {
        deeds::known(&site, &pipeline).await?;
    }
    let next = |run: &Run| (AFTER.about.name, AfterRun(run.id).text());
    Answer::page(&runs, limit, RunJson::of, next)
}

/// A run without its steps.
struct Alone {
    run: Run,
    definition_was: Option<String>,
    halts: Vec<(HaltFact, Option<String>)>,
    unreadable: Option<String>,
}

/// One run, complete except for its steps.
pub async fn one(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let definitions = Arc::clone(&site.definitions);
    let may_see_payloads = visitor::may_see_payloads();
    let read = site.source.read(async move |conn| {
        let alone = async |conn: &mut Conn| {
            let Some(run) = query::run_as_it_is(conn, id).await? else {
                return Ok(None);
            };
            let definition_was = match run.revived_from {
                Some(from) => query::definition_of(conn, from).await?,
                None => None,
            };
            let definition = definitions.read(conn, &run.definition).await?;
            let facts = match run.status {
                RunStatus::Halted => crate::store::why::halts(conn, id, HALTS).await?,
                _ => Vec::new(),
            };
            let known = definition.as_deref().ok();
            let told = |mut fact: HaltFact| {
                if !may_see_payloads {
                    fact.withhold();
                }
                let explanation = fact.explanation(known);
                (fact, explanation)
            };
            let halts = facts.into_iter().map(told).collect();
            let unreadable = definition.err().filter(|_| !run.status.is_terminal());
            Ok(Some(Alone {
                definition_was: definition_was.filter(|was| *was != run.definition),
                halts,
                unreadable: unreadable.map(|it| it.to_string()),
                run,
            }))
        };
        conn.snapshot(alone).await
    });
    let mut alone = read.await?.ok_or_else(|| no_run(id))?;
    if !may_see_payloads {
        alone.run.leave_out_payloads();
    }
    let halts = alone.halts.iter();
    Answer::json(&AloneJson {
        run: RunJson::of(&alone.run),
        definition_was: alone.definition_was.as_deref(),
        halts: halts
            .map(|(fact, explanation)| HaltJson::of(fact, explanation.as_deref()))
            .collect(),
        unreadable: alone.unreadable,
    })
}

/// The one fact that keeps a run from moving.
pub async fn why_not(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let asker = Arc::clone(&site);
    let may_see_payloads = visitor::may_see_payloads();
    let read = site.source.read(async move |conn| {
        match asked(&asker, conn, id, may_see_payloads).await {
            // The run exists, but its payload is not JSON.
            Err(error @ Error::Damaged { .. }) => Ok(Err(error.to_string())),
            asked => asked.map(Ok),
        }
    });
    let (status, why) = match read.await? {
        Ok(asked) => asked.ok_or_else(|| no_run(id))?,
        Err(damage) => {
            let remedy = "`ductworkd audit` tells what else is wrong; the run can be cancelled";
            return Err(Refusal::new(StatusCode::CONFLICT, damage).remedy(remedy));
        }
    };
    Answer::json(&WhyJson::of(id, status, &why, why.remedy.clone()))
}

async fn asked(
    site: &Site,
    conn: &mut Conn,
    id: RunId,
    may_see_payloads: bool,
) -> Result<Option<(RunStatus, Why)>, Error> {
    let Some(mut facts) = site.facts(conn, id, may_see_payloads).await? else {
        return Ok(None);
    };
    facts.is_for_programs = true;
    for row in process::processes(conn).await? {
        let dead = site.terms.witness.state(&row) == State::Dead;
        let process = facts.processes.iter_mut().find(|it| it.id == row.id);
        if let Some(process) = process {
            process.dead = dead;
        }
    }
    let mut why = why(&facts);
    // A locked database stops every run that could move, so that is the only answer.
    if !facts.status.is_terminal()
        && let Some(locked) = writable::locked(conn).await?
    {
        let remedy = locked.remedy();
        (why.cause, why.fact, why.remedy) = ("not_writable", locked.fact, Some(remedy));
    }
    Ok(Some((facts.status, why)))
}

/// A run as a picture of its pipeline's graph.
pub async fn picture(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let definitions = Arc::clone(&site.definitions);
    let read = site.source.read(async move |conn| {
        let Some(run) = query::run_without_payloads(conn, id).await? else {
            return Ok(None);
        };
        let definition = match definitions.read(conn, &run.definition).await? {
            Ok(definition) => definition,
            Err(unreadable) => {
                let remedy = unreadable.remedy();
                return Ok(Some(Err((format!("its {unreadable}"), remedy))));
            }
        };
        // For a wide run, only the progress that its barriers know.
        let progress = match crate::store::why::is_wide(conn, id).await? {
            true => Progress::FanOuts(fan_out::of_root(conn, id).await?),
            false => Progress::Nodes(query::progress(conn, id).await?),
        };
        Ok(Some(Ok((run, definition, progress))))
    });
    let drawn = match read.await?.ok_or_else(|| no_run(id))? {
        Ok((run, definition, progress)) => {
            graph::draw(&run, &definition, &progress).ok_or_else(|| {
                let remedy = "somebody has edited it in the database: look at the run's steps";
                ("its definition does not form a graph".to_owned(), remedy)
            })
        }
        Err(unreadable) => Err(unreadable),
    };
    let svg = drawn
        .map_err(|(detail, remedy)| Refusal::new(StatusCode::CONFLICT, detail).remedy(remedy))?;
    Ok(Answer::svg(svg))
}

/// A run as a picture of its times.
pub async fn times(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let read = site.source.read(async move |conn| {
        let Some(head) = page::run(conn, id).await? else {
            return Ok(None);
        };
        let facts = crate::store::timeline::facts(conn, &head).await?;
        Ok(Some((head, facts)))
    });
    let (head, facts) = read.await?.ok_or_else(|| no_run(id))?;
    let picture = svg::timeline::Picture {
        title: &format!("{} {id}", head.pipeline),
        timeline: &timeline::place(&facts),
        link: None,
        style: Some(svg::STYLE),
    };
    Ok(Answer::svg(picture.svg()))
}

/// A run as a trace.
pub async fn trace(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let definitions = Arc::clone(&site.definitions);
    let read = site.source.read(async move |conn| {
        let Some(head) = page::run(conn, id).await? else {
            return Ok(None);
        };
        let facts = crate::store::trace::facts(conn, &head, &definitions).await?;
        Ok(Some(facts))
    });
    let facts = read.await?.ok_or_else(|| no_run(id))?;
    Answer::json(&TraceJson::of(&facts))
}

/// The runs that have halted, by kind.
pub async fn halted(site: Arc<Site>, given: Given) -> Answered {
    let pipeline = given.get(&PIPELINE).map(|it| it.0);
    let of = pipeline.clone();
    let read = site
        .source
        .read(async move |conn| crate::store::halted::by_kind(conn, of.as_deref()).await);
    let halted = read.await?;
    if let Some(pipeline) = pipeline.filter(|_| halted.kinds.is_empty()) {
        deeds::known(&site, &pipeline).await?;
    }
    Answer::json(&HaltedJson::of(&halted))
}
