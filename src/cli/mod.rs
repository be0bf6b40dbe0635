//! The command line.
//!
//! Owns: the verbs, their help, and their output. Never: SQL, decisions about runs. A program that embeds the
//! library gets all of it from [`main`].

mod about;
mod attempt;
mod audit;
mod bench;
mod bulk;
mod cancel;
mod check;
mod columns;
mod context;
mod copy;
mod drill;
pub mod exit;
mod flow;
mod follow;
mod glyphs;
mod health;
mod help;
mod hint;
mod init;
mod interrupt;
mod keyed;
mod live;
mod logs;
mod metrics;
mod migrate;
mod nobody;
mod out;
mod outage;
mod patiently;
mod pause;
mod person;
mod processes;
mod prune;
mod refusal;
mod reported;
mod resume;
mod revive;
mod run;
mod runs;
mod setup;
mod shot;
mod show;
mod start;
mod symbolize;
mod terminal;
mod token;
mod top;
mod trigger;
mod value;
mod watch;
mod why;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

pub use crate::process::start::Embedded;

use crate::problem::Problem;
use exit::Failure;
use out::{Color, Out};
use setup::CliContext;

const EXAMPLES: &str = "\
Examples:
  ductworkd init hello && cd hello   # a pipeline to begin with
  ductworkd                          # run the daemon; Ctrl-C stops it cleanly
  ductworkd trigger Hello '\"world\"' --wait
  ductworkd runs --status halted
  ductworkd why 5d91c07e
";

/// Durable pipelines in one binary, on the database you already have.
///
/// Ductwork finishes work of several steps, in any language, whatever dies on the way.
#[derive(Debug, Parser)]
#[command(
    name = "ductworkd",
    version,
    before_long_help = EXAMPLES,
    after_help = "Without a verb: start. Exit status: 0 fine, 1 failed, 2 wrong usage or configuration, \
                  3 the run waits for a person, 69 database unreachable, 130 stopped before the run, the copy or (with \
                  --until-idle) all work was done. With --json, an error is JSON too, on standard error."
)]
pub(crate) struct Cli {
    /// The configuration [default: ductwork.yml, then config/ductwork.yml]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The environment: a section of the configuration [default: development]
    #[arg(short, long, global = true, value_name = "NAME")]
    env: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Color,
    #[command(flatten)]
    start: start::Start,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the daemon in the foreground (the default)
    Start(start::Start),
    /// Run the console alone: pages about runs, over HTTP
    ///
    /// It listens at the address of `--listen` or `console.listen`, and without these at 127.0.0.1:9410. A daemon
    /// that has `console.listen` runs a console itself.
    Console(start::Console),
    /// Run one pipeline to its end, and print its output
    Run(run::Run),
    /// Create a starter project
    Init(init::Init),
    /// Check the configuration, the pipelines and their programs
    Check(check::Check),
    /// Create or upgrade the schema of the database
    Migrate(migrate::Migrate),
    /// Copy everything to another database
    Copy(copy::Copy),
    /// Start a run, and print its id
    Trigger(trigger::Trigger),
    /// List runs, newest first
    Runs(runs::Runs),
    /// Show one run: its steps on a timeline, and its errors
    Show(show::Show),
    /// Print what the steps of a run wrote to standard error
    Logs(logs::Logs),
    /// Watch a run until it ends
    Watch(watch::Watch),
    /// Explain what blocks a run and how to fix it
    Why(why::Why),
    /// Continue a halted run as a new one
    Revive(revive::Revive),
    /// End a run for good
    Cancel(cancel::Cancel),
    /// Resume a run that waits for a person
    Resume(resume::Resume),
    /// List, show and stop bulk actions on many runs
    Bulk(bulk::BulkActions),
    /// Stop claiming the steps of a pipeline, for a reason
    Pause(pause::Pause),
    /// Let a paused pipeline continue
    Unpause(pause::Unpause),
    /// List processes and their last heartbeats
    Processes(processes::Processes),
    /// Report whether all supervisors are healthy, for scripts
    Health(health::Health),
    /// Print all metrics in the format of Prometheus
    Metrics(metrics::Metrics),
    /// Show queues, rates and processes as they change
    Top(top::Top),
    /// Make, list and revoke the tokens of the console's visitors
    Token(token::Token),
    /// Read and write the values that the steps of a run share
    Context(context::Context),
    /// Check every invariant against the live database
    Audit(audit::Audit),
    /// Measure throughput and latency on the configured database
    Bench(bench::Bench),
    /// Force races and crashes, and show the outcome
    Drill(drill::DrillArgs),
    /// Delete runs that ended long ago
    Prune(prune::Prune),
    /// Name the functions in a thread dump (SIGTTIN)
    Symbolize(symbolize::Symbolize),
    /// Print a JSON Schema, for editors
    Schema(about::Schema),
    /// Print a completion script for a shell
    Completions(about::Completions),
    /// Print the version
    Version(about::Version),
    #[command(hide = true, name = crate::process::start::CHILD_VERB)]
    Child(start::ChildOf),
    #[command(hide = true, name = crate::process::watcher::VERB)]
    Watcher(start::WatcherOf),
}

/// The whole command line, for a program with these pipelines and native steps: parses the arguments of this
/// process, carries them out, and returns the exit code.
///
/// Call it first in `main`, before any thread is started: the daemon forks and execs this very program as its own
/// children.
pub fn main(embedded: Embedded) -> ExitCode {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    crate::process::names::keep_to_built_in_services();
    run(std::env::args_os(), embedded)
}

fn run(args: impl IntoIterator<Item = OsString>, embedded: Embedded) -> ExitCode {
    // No kernel refuses a handler for this signal.
    let _ = crate::process::signal::survive_long_files();
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = help::command(color_of(&args))
        .try_get_matches_from(&args)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| help::hinted(error, &args));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() && args.iter().any(|arg| arg == "--json") {
                let text = format!("{}\n", refusal::of_usage(&error.to_string()));
                let _ = std::io::stderr().write_all(text.as_bytes());
                return ExitCode::from(error.exit_code() as u8);
            }
            // Help and version go to standard output with 0, everything else to standard error with 2. If nobody
            // reads, there is nobody to tell; but a full disk must be reported.
            let flushed = error.print().and_then(|()| std::io::stdout().flush());
            return match flushed {
                Err(lost)
                    if lost.kind() != std::io::ErrorKind::BrokenPipe && !error.use_stderr() =>
                {
                    let _ = writeln!(std::io::stderr(), "error: {}", out::unwritten(&lost));
                    ExitCode::FAILURE
                }
                _ => ExitCode::from(error.exit_code() as u8),
            };
        }
    };
    let json = cli.json;
    if std::process::id() == 1 && !handles_signals(cli.verb.as_ref()) {
        interrupt::end_the_first_process();
    }
    let ended = dispatch(cli, embedded);
    let flushed = std::io::stdout().flush();
    match ended {
        Ok(code) => match flushed {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ => code,
        },
        Err(failure) => failure.report(json),
    }
}

/// True for a verb that handles every signal itself: it starts processes, or is one that was started so.
fn handles_signals(verb: Option<&Verb>) -> bool {
    matches!(
        verb,
        None | Some(
            Verb::Start(_)
                | Verb::Console(_)
                | Verb::Run(_)
                | Verb::Drill(_)
                | Verb::Bench(_)
                | Verb::Child(_)
                | Verb::Watcher(_)
        )
    )
}

/// The colours of the help and of a mistake in the arguments, which are not understood yet.
fn color_of(args: &[OsString]) -> clap::ColorChoice {
    let text = |index: usize| args.get(index)?.to_str();
    let wanted = |index: usize| match text(index)? {
        "--color" => text(index + 1),
        arg => arg.strip_prefix("--color="),
    };
    match (0..args.len()).rev().find_map(wanted) {
        Some("never") => clap::ColorChoice::Never,
        Some("always") => clap::ColorChoice::Always,
        _ => clap::ColorChoice::Auto,
    }
}

/// The names of the verbs.
fn verbs() -> impl Iterator<Item = String> {
    let command = <Cli as clap::CommandFactory>::command();
    let verbs = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned());
    verbs.collect::<Vec<_>>().into_iter()
}

fn dispatch(parsed: Cli, embedded: Embedded) -> Result<ExitCode, Failure> {
    hint::repeat(parsed.config.as_deref(), parsed.env.as_deref());
    let cli = CliContext {
        file: parsed.config,
        env: parsed.env,
        out: Out::new(parsed.json, parsed.color),
        // The daemon of a benchmark runs the benchmark's pipelines and nothing else.
        embedded: crate::bench::embedded().unwrap_or(embedded),
    };
    let done = |ended: Result<(), Failure>| ended.map(|()| ExitCode::SUCCESS);
    let Some(verb) = parsed.verb else {
        return parsed.start.execute(cli);
    };
    if parsed.start != start::Start::default() && !matches!(verb, Verb::Start(_)) {
        let problem = Problem::new("`--until-idle` belongs to `start`");
        return Err(Failure::usage(
            problem.help("write it after the verb `start`, or leave the verb out"),
        ));
    }
    match verb {
        Verb::Start(args) => args.or(parsed.start).execute(cli),
        Verb::Console(args) => args.execute(cli),
        Verb::Child(args) => args.execute(cli),
        Verb::Watcher(args) => args.execute(),
        Verb::Run(args) => args.execute(cli),
        Verb::Init(args) => done(args.execute(&cli)),
        Verb::Check(args) => done(args.execute(&cli)),
        Verb::Migrate(args) => done(args.execute(&cli)),
        Verb::Copy(args) => done(args.execute(&cli)),
        Verb::Trigger(args) => done(args.execute(&cli)),
        Verb::Runs(args) => done(args.execute(&cli)),
        Verb::Show(args) => done(args.execute(&cli)),
        Verb::Watch(args) => args.execute(&cli),
        Verb::Logs(args) => done(args.execute(&cli)),
        Verb::Why(args) => done(args.execute(&cli)),
        Verb::Revive(args) => done(args.execute(&cli)),
        Verb::Cancel(args) => done(args.execute(&cli)),
        Verb::Resume(args) => done(args.execute(&cli)),
        Verb::Bulk(args) => done(args.execute(&cli)),
        Verb::Pause(args) => done(args.execute(&cli)),
        Verb::Unpause(args) => done(args.execute(&cli)),
        Verb::Processes(args) => done(args.execute(&cli)),
        Verb::Health(args) => done(args.execute(&cli)),
        Verb::Metrics(args) => done(args.execute(&cli)),
        Verb::Top(args) => args.execute(&cli),
        Verb::Token(args) => done(args.execute(&cli)),
        Verb::Context(args) => done(args.execute(&cli)),
        Verb::Audit(args) => done(args.execute(&cli)),
        Verb::Bench(args) => done(args.execute(&cli)),
        Verb::Drill(args) => done(args.execute(&cli)),
        Verb::Prune(args) => done(args.execute(&cli)),
        Verb::Symbolize(args) => done(args.execute(&cli)),
        Verb::Schema(args) => done(args.execute(&cli)),
        Verb::Completions(args) => done(args.execute(&cli)),
        Verb::Version(args) => done(args.execute(&cli)),
    }
}

/// Reads a duration with a unit: a bare number may be meant as days, where a mistake is noticed too late.
fn duration_in_units(text: &str) -> Result<std::time::Duration, String> {
    let bare = text
        .trim()
        .ends_with(|last: char| last.is_ascii_digit() || last == '.');
    match bare && text.trim() != "0" {
        true => Err("write the unit as well: `30d`, `12h`, `0s`".to_owned()),
        false => duration(text),
    }
}

/// Reads a duration of the command line.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    crate::duration::parse(text).map_err(|error| format!("{error}; {}", crate::duration::NOTATION))
}
