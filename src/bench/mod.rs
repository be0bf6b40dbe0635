//! How fast this program is on the configured database, and what it costs.
//!
//! Owns: the workloads, their measurement and their report. Everything happens in a schema or
//! a file of its own beside the configured one, removed afterwards whatever happens. The daemon
//! is the real one, as a process of its own (`daemon`); the benchmark is a client that
//! triggers runs and looks at the database, like any other. Never: touches real runs.

mod daemon;
mod pipelines;
mod proc;
mod report;
mod workloads;

use std::io::IsTerminal;
use std::str::FromStr;

use serde::Serialize;

use crate::config::Config;
use crate::process::bell;
use crate::process::signal::Signals;
use crate::process::start;
use crate::store::audit::{self, INVARIANTS};
use crate::store::sandbox::Sandbox;
use crate::store::{self, Conn, measure};

pub use pipelines::embedded;
pub use report::{Audit, BenchReport, Measure};

use daemon::{Daemon, Processes, Set};

/// Runs of the chain where nobody says otherwise.
pub const RUNS: u32 = 2_000;

/// What a benchmark does.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Runs of the chain workload; the others follow it in proportion.
    pub runs: u32,
    /// What to run; empty for all.
    pub workloads: Vec<Workload>,
    /// Executions at once per worker; `None` for what the configuration says.
    pub slots: Option<u32>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            runs: RUNS,
            workloads: Vec::new(),
            slots: None,
        }
    }
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Runs of five steps, all queued beforehand.
    Chain5,
    /// Ten times as many runs of one step, all queued beforehand; and how fast they were.
    Flat,
    /// One run of five steps at a time on an idle daemon.
    Latency,
    /// Nothing.
    Idle,
    /// Workers that are killed while they hold work.
    Recovery,
}

impl Workload {
    /// All, in the order in which they are run.
    pub const ALL: [Self; 5] = [
        Self::Chain5,
        Self::Flat,
        Self::Latency,
        Self::Idle,
        Self::Recovery,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chain5 => "chain5",
            Self::Flat => "flat",
            Self::Latency => "latency",
            Self::Idle => "idle",
            Self::Recovery => "recovery",
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|workload| workload.as_str() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::as_str).join(", ");
                format!("there is no workload `{text}`; there are: {names}")
            })
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] store::Error),
    /// Nothing could be started.
    #[error("the benchmark cannot be started")]
    Start(#[from] start::Error),
    /// The operating system refuses something basic.
    #[error("{what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The daemon has said why.
    #[error("the daemon ended in the middle of the benchmark; its log says why")]
    DaemonEnded,
    /// Something that takes milliseconds took a minute.
    #[error("{0}")]
    Stuck(&'static str),
    /// What was measured makes no sense.
    #[error("{0}")]
    Nonsense(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The benchmark's own schema or file is still there.
    #[error("`{name}` could not be removed; remove it yourself")]
    NotRemoved {
        /// The schema, or the end of the file's name.
        name: String,
        /// Why.
        #[source]
        source: store::Error,
    },
}

/// Measures. Call it from the main thread, with the control signals blocked
/// ([`crate::process::signal::block_early`]); the program must bring [`embedded`] along when it
/// is started as a daemon.
pub fn run(config: Config, options: BenchOptions) -> Result<BenchReport, Error> {
    start::run_local(async { Ok(guarded(config, options).await) })?
}

/// Measures, and cleans up whatever happens short of SIGKILL.
async fn guarded(config: Config, options: BenchOptions) -> Result<BenchReport, Error> {
    let mut signals = Signals::of_single_role().map_err(|source| Error::System {
        what: "signals cannot be read",
        source,
    })?;
    let sandbox = Sandbox::beside(config.database.url.expose(), "bench")?;
    let mut bench = Bench {
        slots: options
            .slots
            .unwrap_or_else(|| config.job_worker.count(pipelines::CHAIN)),
        config,
        options,
        sandbox,
        daemon: None,
        progress: Progress::default(),
    };
    let measured = tokio::select! {
        biased;
        () = signals.stop_asked() => Err(Error::Interrupted),
        measured = bench.measure() => measured,
    };
    bench.progress.clear();
    if let Err(error) = bench.stop().await {
        tracing::warn!(error = crate::telemetry::chain(&error), "stopping");
    }
    // Where its processes rang each other: named after the database, so nobody else's.
    if let Ok(directory) = bell::directory(&bench.sandbox.location().identity()) {
        // At worst an empty directory stays behind.
        let _ = std::fs::remove_dir_all(directory);
    }
    let name = || bench.sandbox.name().to_owned();
    match (measured, bench.sandbox.remove().await) {
        (Ok(_), Err(source)) => Err(Error::NotRemoved {
            name: name(),
            source,
        }),
        (Err(error), Err(left)) => {
            let left = crate::telemetry::chain(&left);
            tracing::warn!(error = left, name = name(), "not removed: do it yourself");
            Err(error)
        }
        (measured, Ok(())) => measured,
    }
}

/// A benchmark under way.
struct Bench {
    config: Config,
    options: BenchOptions,
    slots: u32,
    sandbox: Sandbox,
    daemon: Option<Daemon>,
    progress: Progress,
}

impl Bench {
    async fn measure(&mut self) -> Result<BenchReport, Error> {
        self.progress.say("making a place of its own");
        let mut conn = self.sandbox.create().await?;
        let mut report = BenchReport {
            version: env!("CARGO_PKG_VERSION"),
            database: measure::server(&mut conn).await?,
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            slots: self.slots,
            measures: Vec::new(),
            audits: Vec::new(),
        };
        for workload in Workload::ALL {
            let asked = &self.options.workloads;
            if !asked.is_empty() && !asked.contains(&workload) {
                continue;
            }
            self.perform(workload, &mut conn, &mut report).await?;
            self.stop().await?;
            self.progress.say(&format!("{}: audit", workload.as_str()));
            let violations = audit::audit(&mut conn, audit::GRACE).await?;
            report.audits.push(Audit {
                workload,
                invariants: INVARIANTS.len(),
                violations: violations
                    .iter()
                    .map(|v| format!("{} {} {}: {}", v.invariant, v.entity, v.id, v.detail))
                    .collect(),
            });
        }
        conn.close().await;
        Ok(report)
    }

    /// Starts a daemon, and waits until it is ready.
    async fn start(&mut self, conn: &mut Conn, set: Set<'_>) -> Result<Processes, Error> {
        self.stop().await?;
        let daemon = Daemon::start(&self.config, &self.sandbox, set)?;
        // Kept before anything is awaited: it has to be stopped whatever happens.
        self.daemon.insert(daemon).ready(conn).await
    }

    /// Stops the daemon, if there is one.
    async fn stop(&mut self) -> Result<(), Error> {
        match self.daemon.take() {
            Some(daemon) => daemon.stop().await,
            None => Ok(()),
        }
    }

    /// The daemon that was started; an error when it has ended.
    fn daemon(&self) -> Result<&Daemon, Error> {
        let daemon = self.daemon.as_ref().ok_or(Error::DaemonEnded)?;
        daemon.check()?;
        Ok(daemon)
    }
}

/// One line on a terminal that says what is going on; nothing anywhere else.
struct Progress {
    shown: bool,
}

impl Default for Progress {
    fn default() -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { shown }
    }
}

impl Progress {
    fn say(&self, what: &str) {
        if self.shown {
            anstream::eprint!("\r\x1b[K{what} …");
        }
    }

    fn clear(&self) {
        if self.shown {
            anstream::eprint!("\r\x1b[K");
        }
    }
}
