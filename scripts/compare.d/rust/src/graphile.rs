//! graphile_worker.
//!
//! Owns: its settings and its steps. It has no chains: a job enqueues the next one before it is
//! completed, as its users do. Never: measures by itself.

use std::sync::Arc;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker,
    WorkerContext, WorkerContextExt, WorkerOptions, runner::WorkerRuntimeError,
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use crate::{Asked, Progress, Result, latencies, report_rate, report_times};

/// Runs per call when they are queued.
const BATCH: usize = 1_000;

/// How long a completion waits to be written together with others.
const BATCH_DELAY: Duration = Duration::from_millis(1);

const OPEN: &str = "select 1 from graphile_worker._private_jobs limit 1";

#[derive(Clone, Deserialize, Serialize)]
struct Step {
    /// The steps of the run that are still to be done, including this one.
    left: usize,
}

#[derive(Clone)]
struct Watched(Arc<Progress>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Watched")
    }
}

impl TaskHandler for Step {
    const IDENTIFIER: &'static str = "step";

    async fn run(self, ctx: WorkerContext) -> impl IntoTaskHandlerResult {
        self.take(&ctx).await
    }
}

impl Step {
    async fn take(self, ctx: &WorkerContext) -> std::result::Result<(), String> {
        let Watched(progress) = ctx.get_ext::<Watched>().ok_or("nobody watches")?;
        if self.left > 1 {
            progress.step();
            let next = Step {
                left: self.left - 1,
            };
            let added = ctx.add_job(next, JobSpec::default()).await;
            added.map_err(|error| error.to_string())?;
        } else {
            progress.last_step();
        }
        Ok(())
    }
}

async fn worker(asked: &Asked, progress: &Arc<Progress>) -> Result<Arc<Worker>> {
    let mut options = WorkerOptions::default()
        .database_url(&asked.url)
        .max_pg_conn(asked.connections())
        .concurrency(asked.concurrency)
        .add_extension(Watched(Arc::clone(progress)))
        .define_job::<Step>();
    if asked.setting == "batched" {
        // Nothing is lost by it: a crash makes jobs run again that were already done.
        options = options
            .local_queue(LocalQueueConfig::default().with_size(500))
            .complete_job_batch_delay(BATCH_DELAY)
            .fail_job_batch_delay(BATCH_DELAY);
    }
    Ok(Arc::new(options.init().await?))
}

fn start(worker: &Arc<Worker>) -> JoinHandle<std::result::Result<(), WorkerRuntimeError>> {
    let worker = Arc::clone(worker);
    tokio::spawn(async move { worker.run().await })
}

/// Queues runs, then works them off; returns when the database has none left.
async fn work(asked: &Asked, conn: &mut PgConnection, runs: usize) -> Result<f64> {
    let progress = Arc::new(Progress::of(runs));
    let worker = worker(asked, &progress).await?;
    let utils = worker.create_utils();
    let mut left = runs;
    while left > 0 {
        let spec = |_| RawJobSpec {
            identifier: Step::IDENTIFIER.to_owned(),
            payload: serde_json::json!({ "left": asked.steps() }),
            spec: JobSpec::default(),
        };
        let batch: Vec<RawJobSpec> = (0..left.min(BATCH)).map(spec).collect();
        utils.add_raw_jobs(&batch).await?;
        left -= batch.len();
    }
    let analyze = "analyze graphile_worker._private_jobs";
    sqlx::query(analyze).execute(&mut *conn).await?;
    let running = start(&worker);
    let rate = progress.rate(runs * asked.steps(), conn, OPEN).await?;
    worker.request_shutdown();
    running.await??;
    Ok(rate)
}

/// Measures the requested workload.
pub async fn measure(asked: Asked) -> Result<()> {
    if asked.is_latency() {
        let progress = Arc::new(Progress::of(usize::MAX));
        let worker = worker(&asked, &progress).await?;
        let running = start(&worker);
        let utils = worker.create_utils();
        let trigger = async || {
            let first = Step {
                left: asked.steps(),
            };
            utils.add_job(first, JobSpec::default()).await?;
            Ok(())
        };
        report_times(latencies(&asked, trigger, OPEN).await?);
        worker.request_shutdown();
        running.await??;
    } else {
        let mut conn = asked.connect().await?;
        work(&asked, &mut conn, asked.warm_up()).await?;
        report_rate(work(&asked, &mut conn, asked.runs).await?);
    }
    Ok(())
}
