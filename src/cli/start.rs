//! `start`, and the hidden verb with which the daemon starts its own children.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::config::{Config, DaemonRole};
use crate::model::ProcessId;
use crate::problem::Problem;
use crate::process::roster::ChildKind;
use crate::process::start::Embedded;
use crate::process::{signal, start, watcher};
use crate::telemetry::{self, Level, LogFormat, ProcessLabel};

use super::check::suspicions;
use super::exit::Failure;
use super::setup::CliContext;
use super::token;

/// The number of suspicions that a start or a reload reports; `check` reports all.
const SUSPICIONS: usize = 20;

/// Runs the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Start {
    /// End when no work is left
    ///
    /// A delayed step counts as work, however long the delay; a question that waits for a person does not. A daemon that is told
    /// to stop before that has exit status 130.
    #[arg(long)]
    until_idle: bool,
}

impl Start {
    /// Options before the verb count as well as those after it.
    pub fn or(self, other: Self) -> Self {
        Self {
            until_idle: self.until_idle || other.until_idle,
        }
    }

    pub fn execute(self, cli: CliContext) -> Result<ExitCode, Failure> {
        block_signals()?;
        let config = cli.config()?;
        self.execute_with(cli, config)
    }

    fn execute_with(self, cli: CliContext, config: Config) -> Result<ExitCode, Failure> {
        config.complete()?;
        let role = match config.role {
            DaemonRole::All => "supervisor",
            DaemonRole::Advancer => "advancer",
            DaemonRole::Worker => "worker",
            DaemonRole::Console => "console",
        };
        let _guard = log(&config, role, None);
        warn(&config, &cli.embedded);
        let options = start::Options {
            leaves_out_mistakes: false,
            file: cli.file,
            env: cli.env,
            until_idle: self.until_idle,
            suspends: false,
            environment: Vec::new(),
            warn,
        };
        Ok(start::start(config, cli.embedded, options)?)
    }
}

/// The console alone, as `role: console` is.
#[derive(Debug, clap::Args)]
pub struct Console {
    /// Listen at this address only, whatever `console.listen` and `console.socket` say
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    #[command(subcommand)]
    verb: Option<ConsoleVerb>,
}

#[derive(Debug, clap::Subcommand)]
enum ConsoleVerb {
    Link(token::Link),
}

impl Console {
    pub fn execute(self, cli: CliContext) -> Result<ExitCode, Failure> {
        if let Some(ConsoleVerb::Link(link)) = self.verb {
            return link.execute(&cli).map(|()| ExitCode::SUCCESS);
        }
        block_signals()?;
        let mut config = match &self.listen {
            Some(address) => cli.config_with("console.listen", address, "--listen")?,
            None => cli.config()?,
        };
        config.role = DaemonRole::Console;
        if self.listen.is_some() {
            // Listen only there: the socket belongs to the configured console.
            config.console.socket = None;
        }
        Start::default().execute_with(cli, config)
    }
}

/// Logs one line for each suspicion about a configuration, with its place.
pub(super) fn warn(config: &Config, embedded: &Embedded) {
    let suspicions = suspicions(config, embedded);
    for problem in suspicions.iter().take(SUSPICIONS) {
        let file = problem.place();
        let help = problem.help.as_deref();
        tracing::warn!(file, help, "{}", problem.message);
    }
    if let Some(more @ 1..) = suspicions.len().checked_sub(SUSPICIONS) {
        tracing::warn!(more, "`ductworkd check` prints more like these");
    }
}

/// One child of a supervisor. Its configuration comes on standard input, as the supervisor
/// had read it.
#[derive(Debug, clap::Args)]
pub struct ChildOf {
    #[arg(long)]
    supervisor: ProcessId,
    #[arg(long)]
    parent: i32,
    kind: String,
    pipeline: Option<OsString>,
}

impl ChildOf {
    pub fn execute(self, cli: CliContext) -> Result<ExitCode, Failure> {
        block_signals()?;
        let handed = serde_json::from_reader(std::io::stdin().lock()).map_err(|error| {
            let message = format!("the supervisor handed over no configuration: {error}");
            Failure::usage(Problem::new(message).help("run `ductworkd start`"))
        })?;
        let config = Config::load_here_as(cli.file, cli.env, Some(handed))?;
        let pipeline = self
            .pipeline
            .map(|name| name.to_string_lossy().into_owned());
        let kind = match (self.kind.as_str(), &pipeline) {
            ("advancer", None) => ChildKind::Advancer,
            ("worker", Some(pipeline)) => ChildKind::Worker {
                pipeline: pipeline.clone(),
            },
            ("console", None) => ChildKind::Console,
            _ => {
                let problem = Problem::new("this verb is for the daemon itself");
                return Err(Failure::usage(problem.help("run `ductworkd start`")));
            }
        };
        let role = match kind {
            ChildKind::Advancer => "advancer",
            ChildKind::Worker { .. } => "worker",
            ChildKind::Console => "console",
        };
        let _guard = log(&config, role, pipeline);
        Ok(start::child(
            config,
            cli.embedded,
            kind,
            self.supervisor,
            self.parent,
        )?)
    }
}

/// The watcher of a worker without a supervisor.
#[derive(Debug, clap::Args)]
pub struct WatcherOf {
    /// The form of the worker's log
    format: String,
}

impl WatcherOf {
    pub fn execute(self) -> Result<ExitCode, Failure> {
        block_signals()?;
        let killed = watcher::watch(std::io::stdin());
        if killed > 0 {
            let label = ProcessLabel {
                role: "watcher",
                pipeline: None,
            };
            let formats = [LogFormat::Json, LogFormat::Pretty];
            let format = formats.into_iter().find(|it| it.as_str() == self.format);
            let _guard = telemetry::init(Level::Info, format.unwrap_or(LogFormat::Auto), label);
            tracing::warn!(
                processes = killed,
                "the worker has died; ended what its steps left behind"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Blocks the signals: one that arrives during start-up waits until somebody reads it.
pub fn block_signals() -> Result<(), Failure> {
    signal::block_early().map_err(|error| {
        Failure::failed(Problem::new(format!("signals cannot be blocked: {error}")))
    })
}

/// Logging as configured, until the guard is dropped.
pub fn log(config: &Config, role: &'static str, pipeline: Option<String>) -> telemetry::Guard {
    let label = ProcessLabel { role, pipeline };
    telemetry::init(config.logger.level, config.logger.format, label)
}
