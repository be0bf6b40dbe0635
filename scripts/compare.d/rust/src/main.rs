//! The peers of `scripts/compare` that are Rust crates.
//!
//! Owns: the parts that each of them needs for its measurement. It is called with PEER SETTING
//! WORKLOAD RUNS CONCURRENCY and `COMPARE_DATABASE_URL`, and prints one line of JSON:
//! `steps_per_second`, or `p50_ms` and `p99_ms`. Never: decides what is compared.

mod graphile;
mod underway;

use std::error::Error;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The pause between two runs of the latency workload, so that each finds an idle system;
/// `ductworkd bench` uses the same.
const PAUSE: Duration = Duration::from_millis(10);

/// The pause between two looks at something that takes less than a millisecond; `ductworkd bench`
/// uses the same.
const SHORT_LOOK: Duration = Duration::from_micros(100);

/// A run without progress for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The request.
struct Asked {
    url: String,
    setting: String,
    workload: String,
    runs: usize,
    concurrency: usize,
}

impl Asked {
    /// Steps of each run.
    fn steps(&self) -> usize {
        if self.workload == "flat" { 1 } else { 5 }
    }

    /// Runs before the measured ones.
    fn warm_up(&self) -> usize {
        match self.workload.as_str() {
            "latency" => 10,
            _ => self.runs.div_ceil(10),
        }
    }

    fn is_latency(&self) -> bool {
        self.workload == "latency"
    }

    fn connections(&self) -> u32 {
        // Some connections are for listening.
        u32::try_from(self.concurrency).unwrap_or(100).max(10) + 5
    }

    async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.url).await?)
    }
}

/// The steps of one batch of runs, as counted by the steps themselves, which do nothing else.
struct Progress {
    began: OnceLock<Instant>,
    left: AtomicUsize,
    all: Notify,
}

impl Progress {
    fn of(runs: usize) -> Self {
        Self {
            began: OnceLock::new(),
            left: AtomicUsize::new(runs),
            all: Notify::new(),
        }
    }

    fn step(&self) {
        self.began.get_or_init(Instant::now);
    }

    fn last_step(&self) {
        self.step();
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all.notify_one();
        }
    }

    /// Steps per second, measured until `open` returns no more rows.
    async fn rate(&self, steps: usize, conn: &mut PgConnection, open: &'static str) -> Result<f64> {
        self.all.notified().await;
        while sqlx::query(open)
            .fetch_optional(&mut *conn)
            .await?
            .is_some()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let began = self.began.get().ok_or("nothing was done")?;
        Ok(steps as f64 / began.elapsed().as_secs_f64())
    }
}

/// One run at a time, by a client that has this thread to itself: `trigger` starts a run, and
/// `open` returns a row until the run is completed in the database.
async fn latencies(
    asked: &Asked,
    trigger: impl AsyncFn() -> Result<()>,
    open: &'static str,
) -> Result<Vec<Duration>> {
    let mut conn = asked.connect().await?;
    let mut times = Vec::with_capacity(asked.runs);
    for run in 0..asked.warm_up() + asked.runs {
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        trigger().await?;
        while sqlx::query(open).fetch_optional(&mut conn).await?.is_some() {
            if began.elapsed() > PATIENCE {
                return Err("a run was not completed within a minute".into());
            }
            std::thread::sleep(SHORT_LOOK);
        }
        if run >= asked.warm_up() {
            times.push(began.elapsed());
        }
    }
    Ok(times)
}

/// The smallest of the sorted times that `fraction` of them do not exceed, in milliseconds.
fn percentile(sorted: &[Duration], fraction: f64) -> f64 {
    let rank = (sorted.len() as f64 * fraction).ceil() as usize;
    sorted[rank.saturating_sub(1)].as_secs_f64() * 1e3
}

fn report_rate(rate: f64) {
    println!("{}", serde_json::json!({ "steps_per_second": rate }));
}

fn report_times(mut times: Vec<Duration>) {
    times.sort();
    let [p50, p99] = [0.5, 0.99].map(|fraction| percentile(&times, fraction));
    println!("{}", serde_json::json!({ "p50_ms": p50, "p99_ms": p99 }));
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, setting, workload, runs, concurrency] = args.as_slice() else {
        return Err("usage: PEER SETTING WORKLOAD RUNS CONCURRENCY".into());
    };
    let asked = Asked {
        url: std::env::var("COMPARE_DATABASE_URL")?,
        setting: setting.clone(),
        workload: workload.clone(),
        runs: runs.parse()?,
        concurrency: concurrency.parse()?,
    };
    match peer.as_str() {
        "graphile_worker" => crate::graphile::measure(asked).await,
        "underway" => crate::underway::measure(asked).await,
        other => Err(format!("there is no peer {other}").into()),
    }
}
