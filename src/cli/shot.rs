//! One run from its trigger to its end, on a daemon of its own.
//!
//! Owns: following the run, and what is shown of it meanwhile and at its end. Never: starts or
//! stops processes itself (`process::start` does).

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::config::Config;
use crate::definition::Definition;
use crate::engine::lifeline::Request;
use crate::machine::halt::remedy;
use crate::model::{RunId, RunStatus};
use crate::problem::Problem;
use crate::process::start::{self, Embedded, Options};
use crate::process::supervisor::Handle;
use crate::store;
use crate::store::query::{self, NodeProgress};
use crate::store::trigger::{self, NewRun, Triggered};
use crate::store::{Conn, Location, Purpose};
use crate::telemetry::Level;

use super::exit::{Code, Failure};
use super::hint;
use super::live::{Frame, Screen, Style, Tree, counted, span};
use super::out::Out;
use super::trigger::{Answer, note_other_input};

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
    /// How its output is wanted: for programs, with what became of the run.
    pub out: Out,
    /// Colours on the terminal.
    pub style: Style,
}

/// How far a run was followed.
#[derive(Default)]
struct Followed {
    /// It may have been triggered.
    asked: bool,
    triggered: Option<Triggered>,
    end: Option<Result<(), Failure>>,
}

/// Runs it: good when the run completed and its output was printed.
pub fn run(
    config: Config,
    embedded: Embedded,
    options: &Options,
    shot: Shot,
) -> Result<ExitCode, Failure> {
    let location = config.location()?;
    let followed = RefCell::new(Followed::default());
    let code = start::start_until(config, embedded, options, async |handle, _| {
        let end = follow(&location, handle, &shot, &followed).await;
        followed.borrow_mut().end = Some(end);
        0
    })?;
    let followed = followed.into_inner();
    if let Some(end) = followed.end {
        return end.map(|()| code);
    }
    // It was told to stop.
    if let Some(triggered) = followed.triggered {
        let left = async { Ok(left(&location, &shot, &triggered).await) };
        return start::run_local(left)?.map(|()| code);
    }
    Err(Failure::failed(match followed.asked {
        true => Problem::new("stopped while the run was triggered: there may be one")
            .help("`ductworkd runs` lists them"),
        false => Problem::new("stopped before there was a run"),
    }))
}

/// Says what became of a run that nobody followed to its end: the steps at work were let end, so it
/// may have ended with them.
async fn left(location: &Location, shot: &Shot, triggered: &Triggered) -> Result<(), Failure> {
    let run = triggered.run_id;
    let asked = async {
        let mut conn = location.connect(Purpose::Query).await?;
        let state = query::run_state(&mut conn, run).await?;
        Ok::<_, store::Error>((conn, state))
    };
    let left = match asked.await {
        Ok((mut conn, state)) => {
            let status = state.map_or(RunStatus::Cancelled, |state| state.status);
            if status != RunStatus::InProgress {
                return report(&mut conn, shot, triggered, status).await;
            }
            format!("stopped, and the run {run} is left in progress")
        }
        // The daemon has said so, and ended with the same.
        Err(error @ store::Error::Misplaced(_)) => return Err(error.into()),
        Err(error) => {
            let error = crate::telemetry::chain(&error);
            format!("stopped, and the run {run} may be left in progress: {error}")
        }
    };
    Err(Failure::failed(
        Problem::new(left).help("`ductworkd` goes on with it"),
    ))
}

/// Follows a run to its end, and prints what came of it.
async fn follow(
    location: &Location,
    mut handle: Handle,
    shot: &Shot,
    followed: &RefCell<Followed>,
) -> Result<(), Failure> {
    // The children start; nobody waits longer for them than for the first look.
    let _ = handle.ready.wait_for(|ready| *ready).await;
    let mut conn = location.connect(Purpose::Query).await?;
    let new = NewRun {
        key: shot.key.as_deref(),
        input: shot.input.get(),
    };
    followed.borrow_mut().asked = true;
    let triggered = trigger::trigger(&mut conn, &shot.definition, &[new], Duration::ZERO).await?;
    let triggered = &triggered[0];
    let id = triggered.run_id;
    followed.borrow_mut().triggered = Some(triggered.clone());
    note_other_input(triggered);
    handle.waker.job_available(&shot.definition.pipeline);
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
    report(&mut conn, shot, triggered, status).await
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
    triggered: &Triggered,
    status: RunStatus,
) -> Result<(), Failure> {
    let (style, id) = (shot.style, triggered.run_id);
    let output = query::run_state(conn, id)
        .await?
        .and_then(|state| state.output);
    let written = match output {
        output if shot.out.json => shot.out.value(&Answer {
            run_id: id,
            pipeline: &shot.definition.pipeline,
            created: triggered.created,
            status: Some(status),
            output,
        }),
        Some(output) => shot.out.result(&output),
        None => Ok(()),
    };
    match status {
        RunStatus::Completed => return written,
        RunStatus::Halted => {
            say(&style.red(&format!("run {id} halted")));
            for failed in query::failed_steps(conn, id, FAILURES_SHOWN).await? {
                let last = failed.executions.last();
                let class = last
                    .and_then(|last| last.error_class.as_deref())
                    .unwrap_or("error");
                let message = last
                    .and_then(|last| last.error_message.as_deref())
                    .unwrap_or("");
                let attempts = failed.executions.len();
                say(&format!(
                    "  {} ({}): {class}: {message}",
                    failed.node,
                    counted(attempts as u64, "attempt")
                ));
            }
            let halts = super::why::halts(conn, id, Some(&shot.definition)).await?;
            for halt in halts.iter().filter(|halt| !halt.fact.is_of_step()) {
                let explanation = halt.explanation.as_deref().unwrap_or_default();
                say(&format!("  {}: {explanation}", halt.fact.reason));
            }
            let facts: Vec<_> = halts.into_iter().map(|halt| halt.fact).collect();
            say(&format!("  look at it:  ductworkd show {id}"));
            say(&format!("  go on:       {}", remedy(&facts, id)));
        }
        RunStatus::Dampened => {
            say(&style.yellow(&format!("run {id} waits for a person")));
            say(&format!("  why:    ductworkd why {id}"));
            say(&format!("  go on:  ductworkd resume {id}"));
        }
        _ => say(&format!("run {id} is {status}")),
    }
    match written {
        Err(failure @ Failure::Problems(..)) => Err(failure),
        // Whether anybody reads it or not.
        _ => Err(Failure::Quiet(Code::Failed)),
    }
}

/// A line for people. Where nobody reads it, nobody is told; a run is not given up for that.
fn say(line: &str) {
    let line = format!("{}\n", hint::pasteable(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
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
        let terminal = std::io::stderr().is_terminal() && !shot.out.json;
        if !terminal {
            say(&format!(
                "run {id} of {} triggered",
                shot.definition.pipeline
            ));
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
        let title = format!("{pipeline} {id}");
        let last = format!("{state}  {}  {took}", counted(done, "step"));
        let ended = status != RunStatus::InProgress;
        screen.draw(&Frame {
            title,
            rows: self.tree.lines(progress, self.frame, style),
            first: self.tree.first_open(progress),
            last,
            ended,
        });
        self.frame += 1;
    }

    /// The changes, at most once a second.
    fn say(&mut self, progress: &[NodeProgress], status: RunStatus, done: u64, took: &str) {
        if status != RunStatus::InProgress {
            say(&format!("{status}: {} in {took}", counted(done, "step")));
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
            say(&format!("{took}: {}", nodes.join(", ")));
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
