//! The steps of a run, its fan-outs, and the logs of its attempts.

use std::sync::Arc;

use axum::http::StatusCode;

use crate::model::*;
use crate::store::fan_out::{self, Element};
use crate::store::steps::{self, Listed, Place};
use crate::store::{logs, query};
use crate::web::Site;
use crate::web::refusal::{Refusal, no_run};
use crate::web::visitor;
use crate::wire::fan_out::{ElementJson, FanOutJson};
use crate::wire::step::{LogJson, StepJson};

use super::cursor::AfterStep;
use super::given::{Given, LIMIT, Ordinal, Param};
use super::runs::{ID, LIMIT_};
use super::{Answer, Answered, payload_bytes};

/// The page.
pub static AFTER: Param<AfterStep> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);
/// The step in the path.
pub static STEP: Param<StepId> = Param::path("step", "The step's id");
/// The fan-out in the path.
pub static FAN_OUT: Param<FanOutId> = Param::path("fan_out", "The fan-out's id");
/// The attempt in the path.
pub static EXECUTION: Param<ExecutionId> = Param::path("id", "The execution's id");
/// A branch that was split.
pub static BRANCH: Param<BranchId> = Param::query(
    "branch",
    "The fan-outs of this branch, instead of those of the run's root branch",
);
/// The first element.
pub static FROM: Param<Ordinal> =
    Param::query("from", "The place of the first element to list: 0, 1, …");

/// The steps of a run.
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?;
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let place = match given.get(&AFTER) {
        Some(after) if after.run != id => {
            let detail = "it is of another run's list";
            return Err(Refusal::parameter(AFTER.about.name, detail));
        }
        Some(after) => after.place,
        None => Place::FIRST,
    };
    let whole = payload_bytes();
    let read = site.source.read(async move |conn| {
        if query::is_there(conn, id).await? {
            let steps = steps::after(conn, id, place, limit + 1, whole).await?;
            return Ok(Some(steps));
        }
        Ok(None)
    });
    let steps = read.await?.ok_or_else(|| no_run(id))?;
    let next = |step: &Listed| {
        let after = AfterStep {
            run: id,
            place: step.place,
        };
        (AFTER.about.name, after.text())
    };
    Answer::page(&steps, limit, StepJson::listed, next)
}

/// One step, complete.
pub async fn one(site: Arc<Site>, given: Given) -> Answered {
    let (run, step) = (given.need(&ID)?, given.need(&STEP)?);
    let read = site.source.read(async move |conn| {
        if query::is_there(conn, run).await? {
            return Ok(Some(steps::one(conn, run, step).await?));
        }
        Ok(None)
    });
    let found = read.await?.ok_or_else(|| no_run(run))?;
    let Some(mut found) = found else {
        let detail = format!("the run {run} has no step {step}");
        let remedy = "`/api/v1/runs/{id}/steps` lists them";
        return Err(Refusal::new(StatusCode::NOT_FOUND, detail).remedy(remedy));
    };
    if !visitor::may_see_payloads() {
        found.leave_out_payloads();
    }
    Answer::json(&StepJson::listed(&found))
}

/// The fan-outs of a run.
pub async fn fan_outs(site: Arc<Site>, given: Given) -> Answered {
    let (id, branch) = (given.need(&ID)?, given.get(&BRANCH));
    let read = site.source.read(async move |conn| {
        if !query::is_there(conn, id).await? {
            return Ok(None);
        }
        let found = match branch {
            Some(branch) => {
                let found = fan_out::of_branch(conn, branch).await?;
                // All belong to the branch's run, which may be another run.
                match found.first() {
                    Some(it) if fan_out::one(conn, id, it.id).await?.is_none() => Vec::new(),
                    _ => found,
                }
            }
            None => fan_out::of_root(conn, id).await?,
        };
        Ok(Some(found))
    });
    let found = read.await?.ok_or_else(|| no_run(id))?;
    let forms: Vec<FanOutJson<'_>> = found.iter().map(FanOutJson::of).collect();
    Answer::json(&forms)
}

/// The elements of a fan-out.
pub async fn elements(site: Arc<Site>, given: Given) -> Answered {
    let (run, id) = (given.need(&ID)?, given.need(&FAN_OUT)?);
    let from = given.get(&FROM).map_or(0, |it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let read = site.source.read(async move |conn| {
        if !query::is_there(conn, run).await? || fan_out::one(conn, run, id).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(fan_out::elements(conn, id, from, limit + 1).await?))
    });
    let Some(found) = read.await? else {
        let detail = format!("there is no fan-out {id} in a run {run}");
        let remedy = "`/api/v1/runs/{id}/fan-outs` lists them";
        return Err(Refusal::new(StatusCode::NOT_FOUND, detail).remedy(remedy));
    };
    let next = |last: &Element| (FROM.about.name, (last.ordinal + 1).to_string());
    Answer::page(&found, limit, ElementJson::of, next)
}

/// The end of an attempt's log.
pub async fn log(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&EXECUTION)?;
    visitor::need_payloads()?;
    let is_limited = visitor::asking().is_none_or(|it| !it.may_see_all());
    let read = site.source.read(async move |conn| {
        let Some(attempt) = logs::one(conn, id).await? else {
            return Ok(None);
        };
        let spreads = query::spreads(conn, attempt.branch_id).await?;
        // The pipeline matters only for a visitor that may not see all of them.
        let state = match is_limited {
            true => query::brief(conn, attempt.run_id).await?,
            false => None,
        };
        Ok(Some((attempt, spreads, state)))
    });
    let Some((attempt, spreads, state)) = read.await? else {
        let detail = format!("there is no execution {id}");
        let remedy = "`/api/v1/runs/{id}/steps` lists those of a run";
        return Err(Refusal::new(StatusCode::NOT_FOUND, detail).remedy(remedy));
    };
    if is_limited {
        visitor::need(&state.map_or_else(String::new, |it| it.pipeline))?;
    }
    Answer::json(&LogJson::attempt(&attempt, &spreads))
}
