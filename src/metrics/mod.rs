//! Counts and measurements, and their form for Prometheus.
//!
//! Owns: the closed list of metrics; counts, which add up whatever the order ([`Counts`]); the two text formats
//! ([`text`]), and JSON ([`json`]). Never: any effect; events are counted where they happen, and the rows are
//! `store`'s.
//!
//! Each process has counts of its own and keeps them in a row ([ADR
//! 39](docs/adr/0039-counts-are-rows.md)). A scrape adds up all rows.

use std::collections::BTreeSet;

mod counts;
mod histogram;
pub mod json;
mod measured;
pub mod series;
pub mod text;
pub mod window;

#[cfg(test)]
mod tests;

pub use counts::{Counts, Own};
pub use histogram::{BOUNDS, Histogram};
pub use measured::{Measured, Owner, Processes};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It never falls.
    Counter,
    /// How long something took.
    Histogram,
    /// The state of things at the moment.
    Gauge,
}

impl Kind {
    /// The word of both formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Gauge => "gauge",
        }
    }
}

/// A metric: a name, under which there is a series for each combination of its labels.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Without [`PREFIX`], and of a counter without `_total`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The names of its labels, in their order.
    pub labels: &'static [&'static str],
    /// One sentence for people, without a full stop.
    pub help: &'static str,
}

impl Metric {
    /// Its name in the text format, and in the guide.
    pub fn full_name(&self) -> String {
        let total = match self.kind {
            Kind::Counter => "_total",
            _ => "",
        };
        format!("{PREFIX}{}{total}", self.name)
    }

    /// True for a metric whose highest value matters, and not the sum.
    fn is_an_age(&self) -> bool {
        self.kind == Kind::Gauge && self.name.ends_with("_seconds")
    }
}

/// The beginning of all names.
pub const PREFIX: &str = "ductwork_";

/// The label value of everything beyond the bounds.
pub const OTHER: &str = "_other";

/// This many pipelines have series of their own.
pub const PIPELINES_MAX: usize = 200;

/// This many steps of a pipeline have series of their own,
pub const STEPS_MAX: usize = 64;

/// and this many of all pipelines together.
pub const STEPS_IN_ALL_MAX: usize = 1_000;

/// This many processes have series of their own.
pub const PROCESSES_MAX: usize = 500;

macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub static $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )+

        /// All metrics, in the order in which they are shown.
        pub static METRICS: &[&Metric] = &[$(&$constant),+];
    };
}

metrics! {
    RUNS_STARTED = Counter "runs_started" ["pipeline"]
        "Runs whose first attempt has ended";
    RUNS_ENDED = Counter "runs_ended" ["pipeline", "status"]
        "Runs that completed or halted; those that a person cancelled are not counted";
    EXECUTIONS_ENDED = Counter "executions_ended" ["pipeline", "step", "result"]
        "Attempts at steps that ended; those of cancelled runs are not counted";
    RETRIES = Counter "retries" ["pipeline", "step", "cause"]
        "Attempts that were followed by another after an error, a timeout or a crash";
    HOOKS_FAILED = Counter "hooks_failed" ["pipeline", "hook"]
        "Hooks that failed for good, so perhaps nobody was told that a run halted, completed or waits";
    STALE_WRITES = Counter "stale_writes" ["role"]
        "Results and advances that came too late and were refused";
    LEASES_GRANTED = Counter "leases_granted" ["kind"]
        "Claims of executions and advancements";
    LEASES_EXTENDED = Counter "leases_extended" ["kind"]
        "Leases that a heartbeat extended";
    LEASES_EXPIRED = Counter "leases_expired" ["kind"]
        "Claims that were taken away from a process because its heartbeat had stopped";
    RECOVERIES = Counter "recoveries" ["proof"]
        "Dead processes that were recovered, by how their death was known: from their exit, from their stop, or from their silence";
    SUPERVISORS_LOST = Counter "supervisors_lost" []
        "Supervisors that others found dead: they were killed, or their host is gone or stands still";
    ADVANCEMENTS = Counter "advancements" ["pipeline", "result"]
        "Branches that were moved";
    HEARTBEATS = Counter "heartbeats" ["role", "outcome"]
        "Heartbeats, by what became of them";
    PROCESS_STARTS = Counter "process_starts" ["role", "cause"]
        "Processes that a supervisor started";
    PROCESS_EXITS = Counter "process_exits" ["role", "cause"]
        "Processes of a supervisor that ended";
    SHUTDOWNS = Counter "shutdowns" ["role", "outcome"]
        "Processes that ended because they were told to";
    DB_STATEMENTS = Counter "db_statements" ["role"]
        "Round trips to the database";
    DB_ERRORS = Counter "db_errors" ["class"]
        "Statements and connections that failed, by the cause";
    LOG_LINES_DROPPED = Counter "log_lines_dropped" []
        "Lines of log that were lost: nobody read them in time, or they could not be written";
    DUPLICATE_TRIGGERS = Counter "duplicate_triggers" ["pipeline"]
        "Triggers by the API and by the pages of consoles whose key a run had already; those by commands are not counted";
    WEBHOOK_DELIVERIES = Counter "webhook_deliveries" ["outcome"]
        "Attempts to notify an endpoint of a run: delivered, failed and to be retried, or failed for good";
    STEP_WAIT = Histogram "step_wait_seconds" ["pipeline"]
        "For how long executions had been due when they were claimed; a step that was claimed with the result of the step before it is not counted";
    STEP_DURATION = Histogram "step_duration_seconds" ["pipeline", "step"]
        "How long attempts at steps ran";
    RUN_DURATION = Histogram "run_duration_seconds" ["pipeline", "status"]
        "From when a run was triggered, by the clock of the host that did so, until its end, by the clock of the host that saw it";
    COMMIT = Histogram "commit_seconds" ["role"]
        "How long the transactions took that store what was done";
    RECOVERY = Histogram "recovery_seconds" []
        "From a dead process's last heartbeat until what it held was given back";
    SHUTDOWN = Histogram "shutdown_seconds" ["role"]
        "How long processes took to end after they were told to";
    HTTP_REQUEST = Histogram "http_request_seconds" ["route", "status"]
        "How long consoles took until the beginning of a response, by the route's pattern and the class of the status";
    QUEUE_DEPTH = Gauge "queue_depth" ["pipeline", "state"]
        "Executions in the queue that are due, or due later; counted up to 10000";
    QUEUE_OLDEST_AGE = Gauge "queue_oldest_age_seconds" ["pipeline"]
        "For how long the first execution in the queue has been due";
    PIPELINE_PAUSED = Gauge "pipeline_paused" ["pipeline"]
        "Always 1, for each pipeline that is paused";
    RUNS = Gauge "runs" ["pipeline", "status"]
        "Existing runs, without halted ones that were revived; counted up to 10000, and among the newest 10000 halted ones";
    EXECUTIONS_HELD = Gauge "executions_held" ["pipeline"]
        "Executions that workers have claimed: those that run, and those that wait for a slot";
    LEASES_HELD = Gauge "leases_held" ["kind"]
        "Claims of executions and advancements that processes hold";
    PROCESSES = Gauge "processes" ["role", "state"]
        "Registered processes: up, quiet, stopping, in trouble, or silent for longer than a lease";
    HEARTBEAT_AGE = Gauge "heartbeat_age_seconds" ["role", "host"]
        "Age of the oldest last heartbeat";
    SLOTS = Gauge "slots" ["pipeline", "state"]
        "Slots of workers, busy and free, as each worker wrote last, which it does every 10 s";
    PROCESS_MEMORY = Gauge "process_resident_memory_bytes" ["host", "role", "pipeline", "slot"]
        "Memory of a living process, without that of its steps, as it wrote last";
    PROCESS_CPU = Counter "process_cpu_seconds" ["host", "role", "pipeline", "slot"]
        "Time of a living process on processors, without that of its steps, as it wrote last";
    PROCESS_FDS = Gauge "process_open_fds" ["host", "role", "pipeline", "slot"]
        "Files, sockets and pipes that a living process has open, as it wrote last";
    AUDIT_BROKEN = Gauge "audit_broken" ["invariant"]
        "Rows that broke an invariant when `ductworkd audit` ran last";
    AUDIT_AGE = Gauge "audit_age_seconds" []
        "For how long `ductworkd audit` has not run; nothing, where it never has";
    SNAPSHOT_AGE = Gauge "snapshot_age_seconds" []
        "Age of the numbers themselves: a console answers from memory for a while";
    BUILD_INFO = Gauge "build_info" ["version", "database"]
        "Always 1: the version of the program that was scraped, and the database";
}

/// The metric of this name.
pub fn named(name: &str) -> Option<&'static Metric> {
    METRICS.iter().copied().find(|metric| metric.name == name)
}

/// A number that is read at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// A gauge, or a count since a process began.
    pub metric: &'static Metric,
    /// The values of its labels.
    pub labels: Vec<String>,
    /// Its value.
    pub value: f64,
}

/// Readings in which no more pipelines have series of their own than in counts: the readings of the
/// others become one, their sum, or for ages the highest.
pub fn bounded(readings: Vec<Reading>) -> Vec<Reading> {
    let place = |metric: &Metric| metric.labels.iter().position(|label| *label == "pipeline");
    let named = |reading: &Reading| Some(reading.labels[place(reading.metric)?].clone());
    let names: BTreeSet<String> = readings.iter().filter_map(named).collect();
    let Some(first_beyond) = names.into_iter().nth(PIPELINES_MAX) else {
        return readings;
    };
    let mut bounded: Vec<Reading> = Vec::new();
    for mut reading in readings {
        match place(reading.metric) {
            Some(place) if reading.labels[place] >= first_beyond => {
                reading.labels[place] = OTHER.to_owned();
            }
            _ => {
                bounded.push(reading);
                continue;
            }
        }
        let same = |it: &&mut Reading| it.metric == reading.metric && it.labels == reading.labels;
        match bounded.iter_mut().find(same) {
            Some(other) if reading.metric.is_an_age() => {
                other.value = other.value.max(reading.value);
            }
            Some(other) => other.value += reading.value,
            None => bounded.push(reading),
        }
    }
    bounded
}

impl Reading {
    /// A reading.
    pub fn new(metric: &'static Metric, labels: &[&str], value: f64) -> Self {
        Self {
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            metric,
            value,
        }
    }
}
