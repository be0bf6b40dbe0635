//! underway.
//!
//! Owns: its job of five steps. A step's transaction contains its completion and the next step.
//! Never: measures by itself; works off a queue, because its worker takes up one task per
//! notification, and jobs that existed before the worker trigger no notification.

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;
use underway::{Job, To};

use crate::{Asked, Result, latencies, report_times};

const OPEN: &str = "select 1 from underway.task where state in ('pending', 'in_progress') limit 1";

/// The context of every step.
#[derive(Clone, Deserialize, Serialize)]
struct Nothing;

/// Measures the requested workload.
pub async fn measure(asked: Asked) -> Result<()> {
    if !asked.is_latency() {
        return Err(format!("underway is not measured in {}", asked.workload).into());
    }
    let pool = PgPoolOptions::new()
        .max_connections(asked.connections())
        .connect(&asked.url)
        .await?;
    underway::run_migrations(&pool).await?;
    let job = Job::<Nothing, ()>::builder()
        .step(|_, Nothing| async { To::next(Nothing) })
        .step(|_, Nothing| async { To::next(Nothing) })
        .step(|_, Nothing| async { To::next(Nothing) })
        .step(|_, Nothing| async { To::next(Nothing) })
        .step(|_, Nothing| async { To::done() })
        .name("steps")
        .pool(pool)
        .build()
        .await?;
    let stop = CancellationToken::new();
    let mut worker = job.worker();
    worker.set_concurrency_limit(asked.concurrency);
    worker.set_shutdown_token(stop.clone());
    let running = tokio::spawn(async move { worker.run().await });
    let trigger = async || {
        job.enqueue(&Nothing).await?;
        Ok(())
    };
    report_times(latencies(&asked, trigger, OPEN).await?);
    stop.cancel();
    running.await??;
    Ok(())
}
