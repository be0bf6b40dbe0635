//! The speed of this program on the configured database, and its cost.
//!
//! Owns: the workloads, their measurement and their report. Everything happens in schemas or files
//! of its own beside the configured one, which are removed afterwards in any case; each workload
//! begins with empty tables. The daemon is the real one, as a process of its own (`daemon`); the
//! benchmark is an ordinary client that triggers runs and looks at the database. The database's
//! limit is measured beside it (`workloads::limits`). Never: touches real runs.

mod daemon;
mod pipelines;
mod proc;
mod report;
mod workloads;

use std::io::IsTerminal;
use std::str::FromStr;

use serde::Serialize;

use crate::config::Config;
use crate::process::signal::Signals;
use crate::process::start;
use crate::process::wakeup;
use crate::store::audit::{self, INVARIANTS};
use crate::store::bench::measure;
use crate::store::sandbox::Sandbox;
use crate::store::{self, Conn};

pub use pipelines::embedded;
pub use report::{Audit, BenchReport};

use daemon::{Daemon, Processes, Set};

/// The default number of runs of the chain.
pub const RUNS: u32 = 2_000;

/// The default width of the widest fan-out.
pub const WIDTH: u32 = 10_000;

/// The default length of the longest queue.
pub const BACKLOG: u32 = 20_000;

/// The default number of finished executions that are audited.
pub const HISTORY: u32 = 100_000;

/// The options of a benchmark.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Runs of the chain workload; the others scale with it.
    pub runs: u32,
    /// The workloads to run; empty for all.
    pub workloads: Vec<Workload>,
    /// Executions at once per worker; `None` for the configured value.
    pub slots: Option<u32>,
    /// The widest fan-out.
    pub width: u32,
    /// The longest queue; the history is five times as long.
    pub backlog: u32,
    /// The number of finished executions that are audited.
    pub history: u32,
    /// How often a worker is killed; `None` for each workload's own default.
    pub kills: Option<u32>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            runs: RUNS,
            workloads: Vec::new(),
            slots: None,
            width: WIDTH,
            backlog: BACKLOG,
            history: HISTORY,
            kills: None,
        }
    }
}

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Runs of five steps, all queued beforehand.
    Chain5,
    /// Ten times as many runs of one step, all queued beforehand.
    Flat,
    /// Runs that are only triggered.
    Trigger,
    /// One run that splits into many branches, which meet again.
    Fanout,
    /// Commands that do nothing, and the same commands without Ductwork.
    Commands,
    /// The same work with a short queue, a long queue and a long history.
    Backlog,
    /// Every invariant, on a long history.
    Audit,
    /// The deletion of a long history, alone and beside the chain.
    Retention,
    /// Commands that a person types at a prompt, on a long history, a long queue and a wide run.
    Prompt,
    /// Pages of the console, on a long history, a long queue and a wide run.
    Pages,
    /// The same work while nobody looks at the console, and while very many do.
    Watched,
    /// The same work with more and more workers, and with wider and wider advancers.
    Contention,
    /// One run of five steps at a time on an idle daemon.
    Latency,
    /// Nothing.
    Idle,
    /// Workers that are killed while they hold work.
    Recovery,
    /// Workers that are killed while everything is busy.
    Storm,
}

impl Workload {
    /// All workloads, in the order in which they run.
    pub const ALL: [Self; 16] = [
        Self::Chain5,
        Self::Flat,
        Self::Trigger,
        Self::Latency,
        Self::Idle,
        Self::Fanout,
        Self::Commands,
        Self::Backlog,
        Self::Audit,
        Self::Retention,
        Self::Prompt,
        Self::Pages,
        Self::Watched,
        Self::Contention,
        Self::Recovery,
        Self::Storm,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chain5 => "chain5",
            Self::Flat => "flat",
            Self::Latency => "latency",
            Self::Idle => "idle",
            Self::Recovery => "recovery",
            Self::Trigger => "trigger",
            Self::Fanout => "fanout",
            Self::Commands => "commands",
            Self::Backlog => "backlog",
            Self::Audit => "audit",
            Self::Retention => "retention",
            Self::Prompt => "prompt",
            Self::Pages => "pages",
            Self::Watched => "watched",
            Self::Contention => "contention",
            Self::Storm => "storm",
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
                format!("there is no workload `{text}`; there are: {names}, all")
            })
    }
}

/// The reason why there is no report.
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
        /// The operation that was refused.
        what: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The daemon has given the reason.
    #[error("the daemon ended in the middle of the benchmark; its log says why")]
    DaemonEnded,
    /// Something that takes milliseconds took a minute.
    #[error("{0}")]
    Stuck(&'static str),
    /// The measurement makes no sense.
    #[error("{0}")]
    Nonsense(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The benchmark's own schema or file still exists.
    #[error("`{name}` could not be removed; remove it yourself")]
    NotRemoved {
        /// The schema, or the end of the directory's name.
        name: String,
        /// The reason.
        #[source]
        source: store::Error,
    },
}

/// Measures. Call it from the main thread, with the control signals blocked
/// ([`crate::process::signal::block_early`]); the program must include [`embedded`] when it is
/// started as a daemon.
pub fn run(config: Config, options: BenchOptions) -> Result<BenchReport, Error> {
    start::run_local(async { Ok(guarded(config, options).await) })?
}

/// Measures, and cleans up in any case short of SIGKILL.
async fn guarded(config: Config, options: BenchOptions) -> Result<BenchReport, Error> {
    let mut signals = Signals::of_single_role().map_err(|source| Error::System {
        what: "signals cannot be read",
        source,
    })?;
    let sandbox = Sandbox::beside(config.database.url.expose(), "bench")?;
    let yard = Sandbox::beside(config.database.url.expose(), "limit")?;
    let mut bench = Bench {
        slots: options
            .slots
            .unwrap_or_else(|| config.job_worker.count(pipelines::CHAIN)),
        config,
        options,
        sandbox,
        yard,
        daemons: Vec::new(),
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
    // The directory through which its processes woke each other: named after the database, so it is
    // nobody else's.
    if let Ok(directory) = wakeup::directory(&bench.sandbox.location().identity()) {
        // At worst an empty directory stays behind.
        let _ = std::fs::remove_dir_all(directory);
    }
    let mut measured = measured;
    for place in [&bench.yard, &bench.sandbox] {
        let name = || place.name().to_owned();
        measured = match (measured, place.remove().await) {
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
        };
    }
    measured
}

/// A benchmark under way.
struct Bench {
    config: Config,
    options: BenchOptions,
    slots: u32,
    sandbox: Sandbox,
    /// The place where the database's own limit is measured.
    yard: Sandbox,
    /// In the order of their start.
    daemons: Vec<Daemon>,
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
            if !report.audits.is_empty() {
                conn.close().await;
                self.sandbox.remove().await?;
                conn = self.sandbox.create().await?;
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

    /// Starts a daemon in place of the running ones, and waits until it is ready.
    async fn start(&mut self, conn: &mut Conn, set: Set<'_>) -> Result<Processes, Error> {
        self.stop().await?;
        self.start_another(conn, set).await
    }

    /// Starts a daemon beside the running ones, and waits until it is ready.
    async fn start_another(&mut self, conn: &mut Conn, set: Set<'_>) -> Result<Processes, Error> {
        let daemon = Daemon::start(&self.config, &self.sandbox, set)?;
        // Stored before anything is awaited: the daemon must be stopped in any case.
        self.daemons.push(daemon);
        let last = self.daemons.last().ok_or(Error::DaemonEnded)?;
        last.ready(conn).await
    }

    /// Stops all daemons, the first one last.
    async fn stop(&mut self) -> Result<(), Error> {
        let mut stopped = Ok(());
        while let Some(daemon) = self.daemons.pop() {
            stopped = stopped.and(daemon.stop().await);
        }
        stopped
    }

    /// The daemon that was started first; an error if any daemon has ended.
    fn daemon(&self) -> Result<&Daemon, Error> {
        for daemon in &self.daemons {
            daemon.check()?;
        }
        self.daemons.first().ok_or(Error::DaemonEnded)
    }
}

/// One line on a terminal that shows the current activity; nothing anywhere else.
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
