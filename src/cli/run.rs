//! `run`: one shot. Supervise, trigger, show progress, print the output, stop.

use std::process::ExitCode;

use crate::process::start::Options;
use crate::telemetry::{self, Level, ProcessLabel};

use super::exit::Failure;
use super::follow::say;
use super::setup::{CliContext, note_elsewhere};
use super::shot::{self, Shot};
use super::start::{block_signals, warn};
use super::trigger::{check_key, input};

/// Runs one run from its trigger to its end.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd run Hello '\"world\"'
  cat input.json | ductworkd run Import - > output.json

Until the run has ended, this command is a daemon like any other: its workers also take work that waits in the
database for other runs and other pipelines.
")]
pub struct Run {
    /// The pipeline's name
    pipeline: String,
    /// One JSON value, or `-` for standard input
    #[arg(
        default_value = "null",
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    input: String,
    /// A second run with this key and the same input returns the output of the first, or of the run that continues it
    #[arg(long)]
    key: Option<String>,
}

impl Run {
    pub fn execute(self, cli: CliContext) -> Result<ExitCode, Failure> {
        let config = cli.config()?;
        check_key(self.key.as_deref())?;
        let (definition, note) = cli.pipeline(&config, &self.pipeline)?;
        note.iter().for_each(|note| say(note));
        note_elsewhere(&config);
        let max = config.job_worker.max_payload(&self.pipeline);
        let quiet = shot::wants_quiet(&config);
        let shot = Shot {
            input: input(&definition, &self.input, max, self.key.as_deref())?,
            max,
            definition,
            key: self.key,
            out: cli.out,
            style: shot::style(),
            quiet,
        };
        // Signals are not blocked earlier: until here there is nothing to end, and standard input
        // may be a person.
        block_signals()?;
        let level = if quiet {
            Level::Warn
        } else {
            config.logger.level
        };
        let label = ProcessLabel {
            role: "supervisor",
            pipeline: None,
        };
        let _guard = telemetry::init(level, config.logger.format, label);
        let options = Options {
            file: cli.file,
            env: cli.env,
            until_idle: false,
            suspends: true,
            leaves_out_mistakes: true,
            environment: shot::environment(&config, quiet),
            warn,
        };
        shot::run(config, cli.embedded, &options, shot)
    }
}
