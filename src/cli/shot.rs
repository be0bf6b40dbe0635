//! One run from its trigger to its end, on a daemon of its own.
//!
//! Owns: following the run, and what is shown of it meanwhile and at its end. Never: starts or
//! stops processes itself (`process::start` does).

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::config::Config;
use crate::definition::Definition;
use crate::engine::lifeline::Request;
use crate::model::{RunId, RunStatus};
use crate::process::start::{self, Embedded, Error, Options};
use crate::process::supervisor::Handle;
use crate::store::query::{self, NodeProgress};
use crate::store::trigger::{self, NewRun};
use crate::store::{self, Conn, Location, Purpose};
use crate::telemetry::Level;

use super::live::{Screen, Style, Tree, span};

/// Between two looks at the run.
const LOOK_EVERY: Duration = Duration::from_millis(80);

/// How long a halted run's hook is waited for.
const HOOK_MAX: Duration = Duration::from_secs(60);

/// Where a halted run's step is looked up: enough to see what is wrong.
const FAILURES_SHOWN: usize = 5;

/// A run to make.
pub struct Shot {
    /// Of which pipeline.
    pub definition: Definition,
    /// With which input.
    pub input: Box<RawValue>,
    /// The key that makes it one run however often it is asked for.
    pub key: Option<String>,
    /// Print the run as JSON instead of its output.
    pub json: bool,
    /// Colours on the terminal.
    pub style: Style,
}

/// Runs it. The exit code is 0 when the run completed, 1 when it did not.
pub fn run(
    config: Config,
    embedded: Embedded,
    options: &Options,
    shot: Shot,
) -> Result<ExitCode, Error> {
    let location = start::location(&config)?;
    start::start_until(config, embedded, options, async |handle, _| {
        match follow(&location, handle, &shot).await {
            Ok(RunStatus::Completed) => 0,
            Ok(_) => 1,
            Err(error) => {
                eprintln!(
                    "error: the run cannot be followed: {}",
                    crate::telemetry::chain(&error)
                );
                69
            }
        }
    })
}

async fn follow(
    location: &Location,
    mut handle: Handle,
    shot: &Shot,
) -> Result<RunStatus, store::Error> {
    // The children start; nobody waits longer for them than for the first look.
    let _ = handle.ready.wait_for(|ready| *ready).await;
    let mut conn = location.connect(Purpose::Query).await?;
    let new = NewRun {
        key: shot.key.as_deref(),
        input: shot.input.get(),
    };
    let triggered = trigger::trigger(&mut conn, &shot.definition, &[new], Duration::ZERO).await?;
    let Some(id) = triggered.first().map(|run| run.run_id) else {
        return Ok(RunStatus::Cancelled);
    };
    handle.ring.work(&shot.definition.pipeline);
    let mut view = View::new(shot, id);
    let status = loop {
        let state = query::run_state(&mut conn, id).await?;
        let status = state
            .as_ref()
            .map_or(RunStatus::Cancelled, |state| state.status);
        view.show(&query::progress(&mut conn, id).await?, status);
        if status != RunStatus::InProgress {
            break status;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    if status == RunStatus::Halted {
        await_hook(&handle, &shot.definition).await;
    }
    report(&mut conn, shot, id, status).await?;
    Ok(status)
}

/// Waits until the hook of a halted run has run: the daemon stops after this.
async fn await_hook(handle: &Handle, definition: &Definition) {
    if definition.on_halt.is_none() {
        return;
    }
    let until = Instant::now() + HOOK_MAX;
    while Instant::now() < until {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let pipelines = Some(vec![definition.pipeline.clone()]);
        let asked = handle.requests.send(Request::AnyWork(pipelines, reply));
        if asked.is_err() || matches!(answer.await, Ok(Ok(false))) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The output on stdout, everything else on stderr.
async fn report(
    conn: &mut Conn,
    shot: &Shot,
    id: RunId,
    status: RunStatus,
) -> Result<(), store::Error> {
    let style = shot.style;
    match status {
        RunStatus::Completed => {
            let state = query::run_state(conn, id).await?;
            if let Some(output) = state.and_then(|state| state.output) {
                print(&output, shot.json);
            }
        }
        RunStatus::Halted => {
            eprintln!("{}", style.red(&format!("run {id} halted")));
            for failed in query::failed_steps(conn, id, FAILURES_SHOWN).await? {
                let last = failed.executions.last();
                let class = last
                    .and_then(|last| last.error_class.as_deref())
                    .unwrap_or("error");
                let message = last
                    .and_then(|last| last.error_message.as_deref())
                    .unwrap_or("");
                let attempts = failed.executions.len();
                eprintln!(
                    "  {} ({attempts} attempts): {class}: {message}",
                    failed.node
                );
            }
            eprintln!("  look at it:  ductworkd show {id}");
            eprintln!("  go on:       ductworkd revive {id}");
        }
        RunStatus::Dampened => {
            eprintln!("{}", style.yellow(&format!("run {id} waits for a person")));
            eprintln!("  why:    ductworkd why {id}");
            eprintln!("  go on:  ductworkd resume {id}");
        }
        _ => eprintln!("run {id} is {status}"),
    }
    Ok(())
}

/// Prints a value: indented for people, as it is for programs.
fn print(output: &RawValue, as_is: bool) {
    let mut stdout = std::io::stdout().lock();
    let value: Option<serde_json::Value> = match stdout.is_terminal() && !as_is {
        // A number that no f64 holds is shown as it is stored.
        true => serde_json::from_str(output.get()).ok(),
        false => None,
    };
    // Whoever closed the pipe has seen enough.
    let _ = match value.and_then(|value| serde_json::to_string_pretty(&value).ok()) {
        Some(pretty) => writeln!(stdout, "{pretty}"),
        None => writeln!(stdout, "{}", output.get()),
    };
}

/// Shows progress: a tree on a terminal, plain lines elsewhere.
struct View<'a> {
    shot: &'a Shot,
    id: RunId,
    tree: Tree,
    screen: Option<Screen>,
    since: Instant,
    frame: usize,
    said: Vec<(String, u64)>,
    last_said: Option<Instant>,
}

impl<'a> View<'a> {
    fn new(shot: &'a Shot, id: RunId) -> Self {
        let terminal = std::io::stderr().is_terminal() && !shot.json;
        if !terminal {
            eprintln!("run {id} of {} triggered", shot.definition.pipeline);
        }
        Self {
            shot,
            id,
            tree: Tree::of(&shot.definition),
            screen: terminal.then(Screen::default),
            since: Instant::now(),
            frame: 0,
            said: Vec::new(),
            last_said: None,
        }
    }

    fn show(&mut self, progress: &[NodeProgress], status: RunStatus) {
        let done: u64 = progress.iter().map(|node| node.completed).sum();
        let took = span(self.since.elapsed());
        let Some(screen) = &mut self.screen else {
            return self.say(progress, status, done, &took);
        };
        let style = self.shot.style;
        let state = match status {
            RunStatus::Completed => style.green("completed"),
            RunStatus::Halted => style.red("halted"),
            RunStatus::InProgress => style.yellow("running"),
            other => other.to_string(),
        };
        let pipeline = style.bold(&self.shot.definition.pipeline);
        let id = style.dim(&self.id.to_string());
        let mut lines = vec![format!("{pipeline} {id}")];
        lines.extend(self.tree.lines(progress, self.frame, style));
        lines.push(format!("{state}  {done} steps  {took}"));
        screen.draw(&lines);
        self.frame += 1;
    }

    /// What has changed, at most once a second.
    fn say(&mut self, progress: &[NodeProgress], status: RunStatus, done: u64, took: &str) {
        if status != RunStatus::InProgress {
            eprintln!("{status}: {done} steps in {took}");
            return;
        }
        if self
            .last_said
            .is_some_and(|last| last.elapsed() < Duration::from_secs(1))
        {
            return;
        }
        let now: Vec<(String, u64)> = progress
            .iter()
            .map(|node| {
                (
                    format!("{} {}/{}", node.node, node.completed, node.total),
                    node.completed,
                )
            })
            .collect();
        if now != self.said {
            let nodes: Vec<&str> = now.iter().map(|(text, _)| text.as_str()).collect();
            eprintln!("{took}: {}", nodes.join(", "));
            self.said = now;
        }
        self.last_said = Some(Instant::now());
    }
}

/// A live view wants warnings only from the daemon, whose lines would tear it; unless somebody
/// has asked for more.
pub fn wants_quiet(config: &Config) -> bool {
    let asked = std::env::var_os("RUST_LOG").is_some()
        || std::env::var_os("DUCTWORK_LOGGER__LEVEL").is_some();
    std::io::stderr().is_terminal() && !asked && config.logger.level == Level::Info
}

/// Colours as the command line wants them, on the terminal that shows the view.
pub fn style() -> Style {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    Style {
        colour: choice != anstream::ColorChoice::Never,
    }
}
