//! Pipelines as a whole: their runs and queues, counted; their definitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::model::{Intake, Role, RunStatus};
use crate::store::definition::DAMAGED_REMEDY;
use crate::store::overview::{self, Count, Queue};
use crate::store::{definition, pause, process, stuck};
use crate::web::refusal::Refusal;
use crate::web::source::{ReadError, Source};
use crate::web::{Site, deeds, visitor};
use crate::wire::pipeline::{
    DefinitionJson, DepthJson, PauseJson, PipelineJson, QueueJson, StatsJson,
};
use crate::wire::process::State;

use super::given::{Digest, Given, Param};
use super::runs::PIPELINE;
use super::{Answer, Answered};

/// The definition in the path.
pub static DIGEST: Param<Digest> = Param::path("digest", "The definition's digest");

/// Counting stops at this number.
const MOST: u64 = 10_000;

/// More pipelines than anybody has.
const PIPELINES: usize = 10_000;

/// All pipelines.
pub async fn list(site: Arc<Site>, _: Given) -> Answered {
    let read = site.source.read(async |conn| {
        Ok((
            overview::counts(conn, None, MOST).await?,
            overview::queues(conn, MOST).await?,
            process::processes(conn).await?,
            definition::latest(conn, PIPELINES).await?,
            pause::pauses(conn).await?,
        ))
    });
    let (counts, queues, processes, definitions, pauses) = read.await?;
    let mut found = counted(counts);
    let mut of = |name: String, change: &mut dyn FnMut(&mut PipelineJson)| {
        change(found.entry(name).or_default());
    };
    for queue in queues {
        let form = QueueJson {
            due: queue.due,
            later: queue.later,
            oldest_seconds: queue.oldest.map(|oldest| oldest.as_secs_f64()),
        };
        let mut form = Some(form);
        of(queue.pipeline, &mut |it| {
            it.queue = form.take().unwrap_or_default();
        });
    }
    for row in processes.iter().filter(|row| row.role == Role::Worker) {
        let healthy = site.terms.witness.state(row) == State::Healthy;
        let takes = healthy && row.intake == Intake::Open;
        if let Some(name) = &row.pipeline {
            of(name.clone(), &mut |it| it.workers += u64::from(takes));
        }
    }
    for (name, digest) in definitions {
        of(name, &mut |it| it.definition = Some(digest.clone()));
    }
    for pause in &pauses {
        of(pause.pipeline.clone(), &mut |it| {
            it.paused = Some(PauseJson::of(pause));
        });
    }
    let named = |(name, pipeline)| PipelineJson { name, ..pipeline };
    let forms: Vec<PipelineJson> = found.into_iter().map(named).collect();
    Answer::json(&forms)
}

/// The pipelines that have runs, with nothing but their numbers.
fn counted(counts: Vec<Count>) -> BTreeMap<String, PipelineJson> {
    let mut found: BTreeMap<String, PipelineJson> = BTreeMap::new();
    let there = |count: &Count| count.runs > 0 || count.is_more;
    for count in counts.into_iter().filter(there) {
        let form = found.entry(count.pipeline).or_default();
        form.runs.insert(count.status.as_str(), count.runs);
        form.halted_is_partial |= count.status == RunStatus::Halted && count.is_more;
    }
    found
}

/// One definition.
pub async fn one_definition(site: Arc<Site>, given: Given) -> Answered {
    let digest = given.need(&DIGEST)?.0;
    let asked = digest.clone();
    let read = site
        .source
        .read(async move |conn| definition::stored(conn, &asked).await);
    let Some(stored) = read.await? else {
        let detail = format!("there is no definition {digest}");
        let remedy = "`/api/v1/pipelines` has the newest of each pipeline, and a run names its own";
        return Err(Refusal::new(StatusCode::NOT_FOUND, detail).remedy(remedy));
    };
    visitor::need(&stored.pipeline)?;
    if stored.is_damaged {
        let detail = format!(
            "definition {} of {} is damaged in the database: it is no JSON",
            stored.digest, stored.pipeline
        );
        return Err(Refusal::new(StatusCode::CONFLICT, detail).remedy(DAMAGED_REMEDY));
    }
    Answer::json(&DefinitionJson::of(&stored))
}

/// One query of the database serves all requests within this time.
const KEPT: Duration = Duration::from_secs(1);

/// By pipeline.
type All = Arc<BTreeMap<String, StatsJson>>;

/// The load of every pipeline, as it was a moment ago.
#[derive(Default)]
pub struct Load {
    /// Held while the database is queried: other requests wait for the same answer.
    last: tokio::sync::Mutex<Option<(Instant, All)>>,
}

impl Load {
    async fn of(&self, source: &Source) -> Result<All, ReadError> {
        let mut last = self.last.lock().await;
        if let Some((at, load)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(Arc::clone(load));
        }
        let read = source.read(async |conn| {
            let queues = overview::queues(conn, MOST).await?;
            let pauses = pause::pauses(conn).await?;
            Ok((queues, pauses, stuck::movers(conn).await?))
        });
        let (queues, pauses, movers) = read.await?;
        let mut load: BTreeMap<String, StatsJson> = BTreeMap::new();
        for queue in queues {
            let is_paused = pauses.iter().any(|it| it.pipeline == queue.pipeline);
            let depth = depth(&queue, is_paused);
            load.entry(queue.pipeline).or_default().queue = depth;
        }
        for mover in movers {
            if let Some(pipeline) = mover.pipeline {
                load.entry(pipeline).or_default().running += mover.holds;
            }
        }
        let load = Arc::new(load);
        *last = Some((Instant::now(), Arc::clone(&load)));
        Ok(load)
    }
}

fn depth(queue: &Queue, is_paused: bool) -> DepthJson {
    DepthJson {
        depth: queue.due,
        claimable: if is_paused { 0 } else { queue.due },
        oldest_seconds: queue.oldest.unwrap_or_default().as_secs_f64(),
    }
}

/// The amount of pending work, for a scaler.
pub async fn stats(site: Arc<Site>, given: Given) -> Answered {
    let load = site.load.of(&site.source).await?;
    let stats = match given.get(&PIPELINE) {
        Some(pipeline) => match load.get(&pipeline.0) {
            Some(stats) => stats.clone(),
            // A pipeline that nobody has triggered has no work. A misspelled name would scale to nothing for
            // good.
            None => {
                deeds::known(&site, &pipeline.0).await?;
                StatsJson::default()
            }
        },
        None => load.values().fold(StatsJson::default(), |all, one| {
            let oldest = all.queue.oldest_seconds.max(one.queue.oldest_seconds);
            StatsJson {
                queue: DepthJson {
                    depth: all.queue.depth + one.queue.depth,
                    claimable: all.queue.claimable + one.queue.claimable,
                    oldest_seconds: oldest,
                },
                running: all.running + one.running,
            }
        }),
    };
    Answer::json(&stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_halted_runs_that_were_not_looked_at_the_answer_tells() {
        let count = |pipeline: &str, status, runs, is_more| Count {
            pipeline: pipeline.to_owned(),
            status,
            runs,
            is_more,
        };
        let found = counted(vec![
            count("Revived", RunStatus::Halted, 0, true),
            count("Busy", RunStatus::Completed, 10_000, true),
            count("Busy", RunStatus::Halted, 3, false),
            count("Idle", RunStatus::Halted, 0, false),
        ]);
        let told: Vec<_> = found
            .iter()
            .map(|(name, it)| (name.as_str(), it.runs.get("halted"), it.halted_is_partial))
            .collect();
        assert_eq!(
            told,
            [("Busy", Some(&3), false), ("Revived", Some(&0), true)]
        );
    }
}
