//! `bench`: how fast this program is on the configured database.

use crate::bench::{self, BenchOptions, Error, RUNS, Workload};
use crate::problem::Problem;
use crate::telemetry;

use super::exit::{Code, Failure};
use super::house::House;
use super::start::{block_signals, log};

/// Measures throughput, latency and cost on the configured database.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd bench
  ductworkd bench latency idle
  ductworkd bench chain5 --runs 10000 --slots 50 --json

It works in a schema (PostgreSQL) or a file (SQLite) of its own beside the configured one, and
removes it afterwards. It loads the server like any busy daemon does.
")]
pub struct Bench {
    /// What to run: chain5, flat, latency, idle, recovery [default: all]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Workload>,
    /// Runs of the chain; the other workloads follow it in proportion
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    runs: u32,
    /// Executions at once [default: job_worker.count]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    slots: Option<u32>,
}

impl Bench {
    pub fn execute(self, house: &House) -> Result<(), Failure> {
        block_signals()?;
        let config = house.config()?;
        let _guard = log(&config, "bench", None);
        let options = BenchOptions {
            runs: self.runs,
            workloads: self.workloads,
            slots: self.slots,
        };
        let report = bench::run(config, options)?;
        match house.out.json {
            true => house.out.value(&report)?,
            false => house.out.text(&report.to_string())?,
        }
        match report.is_sound() {
            true => Ok(()),
            false => Err(Failure::Quiet(Code::Failed)),
        }
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
