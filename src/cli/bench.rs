//! `bench`: the speed of this program on the configured database.

use std::str::FromStr;

use crate::bench::{self, BACKLOG, BenchOptions, Error, HISTORY, RUNS, WIDTH, Workload};
use crate::number::whole;
use crate::problem::Problem;
use crate::telemetry;

use super::exit::{Code, Failure, quietly, verdict};
use super::setup::CliContext;
use super::start::{block_signals, log};

/// Measures throughput, latency and cost on the configured database.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd bench
  ductworkd bench latency idle
  ductworkd bench chain5 --runs 10000 --slots 50 --json
  ductworkd bench fanout --width 100000
  ductworkd bench backlog --backlog 1000000   # a while, and gigabytes
  ductworkd bench audit retention --history 1000000

It works in schemas (PostgreSQL), databases (MySQL, MariaDB) or files (SQLite) of its own beside the configured
one, and removes them afterwards. It loads the server as any busy daemon does.
")]
pub struct Bench {
    /// The workloads: chain5, flat, trigger, latency, idle, fanout, commands, backlog,
    /// audit, retention, prompt, pages, watched, contention, recovery,
    /// storm, or all [default: all]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Choice>,
    /// Runs of the chain; the other workloads scale in proportion
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = whole(10..=1_000_000))]
    runs: u32,
    /// Concurrent executions [default: job_worker.count]
    #[arg(long, value_name = "N", value_parser = whole(1..=1_000))]
    slots: Option<u32>,
    /// The widest fan-out
    #[arg(long, value_name = "N", default_value_t = WIDTH, value_parser = whole(1..=1_000_000))]
    width: u32,
    /// The longest queue; five times as many executions make the history
    #[arg(long, value_name = "N", default_value_t = BACKLOG, value_parser = whole(10..=10_000_000))]
    backlog: u32,
    /// Finished executions to audit, and to delete
    #[arg(long, value_name = "N", default_value_t = HISTORY, value_parser = whole(10..=10_000_000))]
    history: u32,
    /// How often a worker is killed [default: 20; storm: 5]
    #[arg(long, value_name = "N", value_parser = whole(1..=1_000))]
    kills: Option<u32>,
}

/// One workload, or all of them.
#[derive(Clone, Copy, Debug)]
enum Choice {
    All,
    One(Workload),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::One),
        }
    }
}

impl Bench {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        block_signals()?;
        let config = cli.config()?;
        let _guard = log(&config, "bench", None);
        let chosen = self.workloads.iter().map(|choice| match choice {
            Choice::All => None,
            Choice::One(workload) => Some(*workload),
        });
        let options = BenchOptions {
            runs: self.runs,
            // An empty list stands for all.
            workloads: chosen.collect::<Option<Vec<_>>>().unwrap_or_default(),
            slots: self.slots,
            width: self.width,
            backlog: self.backlog,
            history: self.history,
            kills: self.kills,
        };
        let report = bench::run(config, options)?;
        let printed = match cli.out.json {
            true => cli.out.value(&report),
            false => cli.out.text(&report.to_string()),
        };
        verdict(printed, quietly(report.is_sound(), Code::Failed))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Start(error) => error.into(),
            error => Self::failed(Problem::new(telemetry::chain(&error))),
        }
    }
}
