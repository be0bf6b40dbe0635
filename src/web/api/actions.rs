//! Actions: their list, and making one.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::duration;
use crate::model::*;
use crate::store::action::{self, Action};
use crate::store::pause::REASON_MAX;
use crate::store::trigger::Triggered;
use crate::web::Site;
use crate::web::bulks::unfit;
use crate::web::deeds;
use crate::web::refusal::Refusal;
use crate::wire::action::{ActionJson, CancelledJson, MadeJson, ResumedJson, UnpausedJson};
use crate::wire::pipeline::PauseJson;

use super::cursor::AfterAction;
use super::given::{Given, Key, LIMIT, Param, Text};
use super::runs::{ID, LIMIT_};
use super::{Answer, Answered, Deed, body};

/// The pipeline in the path.
pub static NAME: Param<Text> = Param::path("name", "The pipeline's name");
/// A filter.
pub static RUN: Param<RunId> = Param::query("run", "Limits the answer to this run");
/// A filter.
pub static BULK: Param<Key> = Param::query("bulk", "Limits the answer to this bulk action");
/// The page.
pub static AFTER: Param<AfterAction> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// The list of actions, newest first.
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let of = match (given.get(&RUN), given.get(&BULK)) {
        (None, None) => action::Of::All,
        (Some(run), None) => action::Of::Run(run),
        (None, Some(bulk)) => action::Of::Bulk(bulk.0),
        (Some(_), Some(_)) => {
            let detail = "it does not go together with `run`";
            return Err(Refusal::parameter(BULK.about.name, detail));
        }
    };
    let before = given.get(&AFTER).map(|it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let read = site
        .source
        .read(async move |conn| action::latest(conn, of, before, limit + 1).await);
    let actions = read.await?;
    let next = |it: &Action| (AFTER.about.name, AfterAction(it.id).text());
    Answer::page(&actions, limit, ActionJson::of, next)
}

/// A run to start.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Trigger")]
pub struct TriggerBody {
    /// Its input.
    input: Box<RawValue>,
    /// The time from now until its first step is due: `90s`, `5m`, `2h`.
    #[serde(default, deserialize_with = "body::span")]
    #[schemars(extend("pattern" = duration::PATTERN))]
    delay: Option<String>,
}

/// How to continue a halted run.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Revive")]
pub struct ReviveBody {
    /// If true, continue with the newest definition instead of the one that the run was started with.
    latest: bool,
    /// If true, continue without the values that the steps of the run share.
    without_context: bool,
}

/// The body of an action that needs no further data.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Nothing")]
pub struct NoBody {}

/// An answer to a run that waits for a person.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Resume", extend("anyOf" = [
    { "properties": { "value": { "type": "null" } } },
    { "required": ["step"], "properties": { "step": { "type": "string" } } },
]))]
pub struct ResumeBody {
    /// The waiting step that is answered; if omitted, all that wait. A request that names its step can be sent again:
    /// it never answers a later question. A value requires a step.
    step: Option<StepId>,
    /// The value with which the run continues; if omitted or null, the value that was asked about.
    value: Option<Box<RawValue>>,
}

/// `POST /api/v1/pipelines/{name}/runs`
pub async fn trigger(deed: Deed) -> Answered {
    let name = deed.given.need(&NAME)?.0;
    let body: TriggerBody = deed.body()?;
    let delay = match &body.delay {
        None => Duration::ZERO,
        Some(text) => duration::parse(text).map_err(|problem| {
            let detail = format!("`delay`: {problem}; {}", duration::NOTATION);
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        })?,
    };
    // Only its form is judged here: the pipeline's bound and its schema are for a new run alone.
    let input = deeds::value("input", body.input.get(), u64::MAX)?;
    let known = deeds::repeated(&deed.site, &name, &input, deed.key.as_deref()).await?;
    let made = match known {
        Some(known) => known,
        None => start(&deed, &name, &input, delay).await?,
    };
    if made.input_differs {
        let detail = format!(
            "this key already belongs to the run {}, which had a different input",
            made.run_id
        );
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    answer(made.run_id, made.created)
}

/// Starts a new run, whose input has to be as its pipeline asks.
async fn start(
    deed: &Deed,
    pipeline: &str,
    input: &RawValue,
    delay: Duration,
) -> Result<Triggered, Refusal> {
    let definition = deeds::definition_of(&deed.site, pipeline).await?;
    let max = (deed.site.terms.max_payload)(pipeline);
    let input = deeds::value("input", input.get(), max)?;
    let by = deed.visitor.actor(Channel::Api);
    let (key, caller) = (deed.key.clone(), Some(deed.caller.clone()));
    deeds::trigger(&deed.site, definition, input, key, delay, by, caller).await
}

fn answer(run_id: RunId, created: bool) -> Answered {
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let made = Answer::json(&MadeJson { run_id, created })?;
    let path = format!("/api/v1/runs/{run_id}");
    Ok(made.status(status).location(path))
}

/// `POST /api/v1/runs/{id}/revive`
pub async fn revive(deed: Deed) -> Answered {
    let run = deed.given.need(&ID)?;
    let body: ReviveBody = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let (next, created) =
        deeds::revive(&deed.site, run, body.latest, !body.without_context, by).await?;
    answer(next, created)
}

/// `POST /api/v1/runs/{id}/cancel`
pub async fn cancel(deed: Deed) -> Answered {
    let run_id = deed.given.need(&ID)?;
    let NoBody {} = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let ending = deeds::cancel(&deed.site, run_id, by).await?;
    let status = match ending {
        true => StatusCode::ACCEPTED,
        false => StatusCode::OK,
    };
    Ok(Answer::json(&CancelledJson { run_id, ending })?.status(status))
}

/// `POST /api/v1/runs/{id}/resume`
pub async fn resume(deed: Deed) -> Answered {
    let run_id = deed.given.need(&ID)?;
    let body: ResumeBody = deed.body()?;
    // After a lost answer the run may have gone on to its next question, which the same request must not answer.
    if body.value.is_some() && body.step.is_none() {
        let detail = "a `value` requires a `step`: the waiting step that it answers";
        return Err(unfit(detail).remedy(
            "`/api/v1/runs/{id}/steps` lists the run's steps; a question is one whose status is `waiting`",
        ));
    }
    let value = match &body.value {
        Some(value) => {
            let max = deeds::answer_max(&deed.site, run_id).await?;
            Some(deeds::answer(value.get(), max)?)
        }
        None => None,
    };
    let by = deed.visitor.actor(Channel::Api);
    let resumed = deeds::resume(&deed.site, run_id, body.step, value, by);
    let (resumed, late) = resumed.await?;
    Answer::json(&ResumedJson {
        run_id,
        resumed,
        late,
    })
}

/// A text in one line, at least one of whose letters is shown: `pause::reason_of`, but for letters beyond U+FFFF.
const A_LINE: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*\
                      [^\\u0000-\\u0020\\u007f-\\u00a0\\u00ad\\u034f\\u061c\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\
                      \\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u2800\\u3000\\u3164\\ufe00-\\ufe0f\\ufeff\
                      \\uffa0\\ufff0-\\ufffb\\ufffe\\uffff]\
                      [^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// A request to pause a pipeline.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PauseReason")]
pub struct PauseBody {
    /// The reason for the pause, in one line.
    #[schemars(extend("minLength" = 1, "maxLength" = REASON_MAX, "pattern" = A_LINE))]
    reason: String,
}

/// `POST /api/v1/pipelines/{name}/pause`
pub async fn pause(deed: Deed) -> Answered {
    let name = deed.given.need(&NAME)?.0;
    let body: PauseBody = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let (pause, created) = deeds::pause(&deed.site, name, &body.reason, by).await?;
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok(Answer::json(&PauseJson::of(&pause))?.status(status))
}

/// `POST /api/v1/pipelines/{name}/unpause`
pub async fn unpause(deed: Deed) -> Answered {
    let pipeline = deed.given.need(&NAME)?.0;
    let NoBody {} = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let was_paused = deeds::unpause(&deed.site, pipeline, by).await?;
    Answer::json(&UnpausedJson { was_paused })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::pause::reason_of;

    /// The letters that a class excludes whose text has a form such as `\u0000-\u0020\u00ad`.
    fn excluded(class: &str) -> BTreeSet<u32> {
        let hex = |text: &str| u32::from_str_radix(text, 16).unwrap();
        let parts = class.replace("-\\u", "-");
        let parts = parts.split("\\u").filter(|it| !it.is_empty());
        let ranges = parts.map(|part| part.split_once('-').unwrap_or((part, part)));
        ranges
            .flat_map(|(first, last)| hex(first)..=hex(last))
            .collect()
    }

    #[test]
    fn the_description_takes_the_reasons_of_a_pause_that_the_route_takes() {
        let class = A_LINE
            .split("[^")
            .nth(2)
            .unwrap()
            .split(']')
            .next()
            .unwrap();
        let excluded = excluded(class);
        for letter in (0..=0xffff).filter_map(char::from_u32) {
            let is_taken = reason_of(&letter.to_string()).is_some();
            assert_eq!(
                is_taken,
                !excluded.contains(&u32::from(letter)),
                "{letter:?}"
            );
        }
    }
}
