//! `drill`: forces races on the configured database.

use std::time::Instant;

use crate::drill::{self, Drill, Error};
use crate::problem::Problem;
use crate::store::report::Kind;
use crate::telemetry;

use super::exit::{Code, Failure, quietly, verdict};
use super::reported;
use super::setup::{self, CliContext};
use super::start::{block_signals, log};

/// Forces the races that lose work elsewhere, and shows what becomes of them here.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd drill                          # all of them: a few seconds
  ductworkd drill lease-race fan-in-race
  ductworkd drill --json | jq '.drills[] | {drill, shown}'

Each drill uses a schema (PostgreSQL), database (MySQL, MariaDB) or file (SQLite) of its own, beside the
configured one, and removes it afterwards. It prints which actor did what and which one was refused, checks every
invariant, and states the result. Exit status 1: something was not as it must be. The result is kept in the
configured database, if that is one of Ductwork's, for the console's page /trust.
")]
pub struct DrillArgs {
    /// The drills: lease-race, zombie-advancer, crash-before-effect, crash-after-effect,
    /// double-reaper, lost-acknowledgement, fan-in-race, database-away [default: all]
    #[arg(value_name = "DRILL")]
    drills: Vec<Drill>,
}

impl DrillArgs {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        block_signals()?;
        let config = cli.config()?;
        let _guard = log(&config, "drill", None);
        let drills = match self.drills.is_empty() {
            true => Drill::ALL.to_vec(),
            false => self.drills,
        };
        let (began, mut unwritten) = (Instant::now(), Ok(()));
        let report = drill::run(&config, &drills, &mut |played| {
            if !cli.out.json && unwritten.is_ok() {
                unwritten = cli.out.text(&format!("{played}\n"));
            }
        })?;
        let figures = report.figures(began.elapsed());
        setup::block_on(async {
            reported::keep(&config, Kind::Drill, report.is_sound(), &figures).await;
            Ok(())
        })?;
        unwritten?;
        let printed = if cli.out.json {
            cli.out.value(&report)
        } else {
            let shown = report
                .drills
                .iter()
                .filter(|played| played.shown.is_some())
                .count();
            let text = format!(
                "{shown} of {} drills, on {}\n",
                report.drills.len(),
                report.database
            );
            cli.out.text(&text)
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
