//! One run from its trigger to its end, on a daemon of its own.
//!
//! Owns: the trigger, and the consequences of the run's end. Never: starts or stops processes itself
//! (`process::start` does).

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::config::Config;
use crate::definition::Definition;
use crate::model::{Hook, RunId, RunStatus, Via};
use crate::problem::{Problem, Problems};
use crate::process::start::{self, Embedded, Options};
use crate::process::supervisor::Handle;
use crate::store;
use crate::store::pause;
use crate::store::process;
use crate::store::query::{self, NodeProgress};
use crate::store::trigger::{self, NewRun, Triggered};
use crate::store::why::newest;
use crate::store::{Conn, Location, Purpose};
use crate::task;
use crate::telemetry::{Level, LogFormat};

use super::exit::{Code, Failure, verdict};
use super::follow::{self, Follow, View, is_drawable, say};
use super::live::{Screen, Style};
use super::nobody;
use super::out::{Out, clean};
use super::outage::Outages;
use super::person;
use super::processes::Witness;
use super::terminal::Terminal;
use super::trigger::{Answer, halted, made, repeated, same_input};

/// The longest wait for a run's hooks.
const HOOK_MAX: Duration = Duration::from_secs(60);

/// After this time, a person is told what the command waits for.
const HOOK_TOLD: Duration = Duration::from_secs(1);

/// The same, once the run has ended.
const STOP_TOLD: Duration = Duration::from_secs(1);

/// A run to make.
pub struct Shot {
    /// Its pipeline.
    pub definition: Definition,
    /// Its input; with a key, not judged yet.
    pub input: Box<RawValue>,
    /// The greatest size of an input, in bytes.
    pub max: u64,
    /// The key that makes it one run, however often it is requested.
    pub key: Option<String>,
    /// The requested form of its output: for programs, with the run's outcome.
    pub out: Out,
    /// Colours on the terminal.
    pub style: Style,
    /// Nobody has requested the log.
    pub quiet: bool,
}

/// The run that was requested.
#[derive(Clone)]
struct Requested {
    triggered: Triggered,
    /// The run whose outcome counts: the newest one that continues it, if a key had started it before.
    run: RunId,
}

/// How far the run was followed.
#[derive(Default)]
struct Followed {
    /// The run may have been triggered.
    asked: bool,
    triggered: Option<Requested>,
    end: Option<Result<(), Failure>>,
}

/// Runs it: successful if the run completed and its output was printed.
pub fn run(
    config: Config,
    embedded: Embedded,
    options: &Options,
    shot: Shot,
) -> Result<ExitCode, Failure> {
    let location = config.location()?;
    let witness = Witness::of(&config);
    let followed = RefCell::new(Followed::default());
    // Before there are children, which inherit this process's descriptors.
    let drawn = !shot.out.json && is_drawable();
    let terminal = drawn.then(|| Terminal::take(!shot.quiet)).transpose()?;
    let terminal = terminal.as_ref();
    let code = start::start_until(config, embedded, options, async |handle, _| {
        let end = follow(&location, handle, &shot, terminal, &followed).await;
        followed.borrow_mut().end = Some(end);
        if shot.quiet {
            // The daemon's own line about it is not shown.
            task::local(async {
                tokio::time::sleep(STOP_TOLD).await;
                say("stopping: waiting for running steps of other runs; Ctrl-C stops at once");
            });
        }
        0
    })?;
    let followed = followed.into_inner();
    if let Some(end) = followed.end {
        return end.map(|()| code);
    }
    // The command was told to stop.
    if let Some(requested) = followed.triggered {
        let left = async { Ok(left(&location, &witness, &shot, &requested).await) };
        return start::run_local(left)?.map(|()| code);
    }
    Err(Failure::failed(match followed.asked {
        true => Problem::new("stopped while the run was being triggered: it may exist")
            .help("`ductworkd runs` lists them"),
        false => Problem::new("stopped before the run was triggered"),
    }))
}

/// Reports the state of a run that nobody followed to its end. The steps at work were allowed to end, so
/// the run may have ended with them. Other daemons may continue it.
async fn left(
    location: &Location,
    witness: &Witness,
    shot: &Shot,
    requested: &Requested,
) -> Result<(), Failure> {
    let id = requested.run;
    let asked = async {
        let mut conn = location.connect(Purpose::Query).await?;
        let state = query::brief(&mut conn, id).await?;
        let processes = process::processes(&mut conn).await?;
        let pause = pause::of_pipeline(&mut conn, &shot.definition.pipeline).await?;
        Ok::<_, store::Error>((conn, state, processes, pause))
    };
    let interrupted = |problem| Failure::Problems(Code::Interrupted, Problems(vec![problem]));
    let left = match asked.await {
        Ok((mut conn, state, processes, pause)) => {
            let status = state.map(|state| state.status);
            if status != Some(RunStatus::InProgress) {
                return report(&mut conn, shot, &shot.follow(id), requested, status).await;
            }
            let pipeline = &shot.definition.pipeline;
            let other = nobody::worker(&processes, witness, pipeline);
            if pause.is_some() {
                let more = match other {
                    Some(_) => "",
                    None => ", and `ductworkd start` works on it",
                };
                return Err(interrupted(
                    Problem::new(format!(
                        "stopped; no further step of the run {id} begins: the pipeline {pipeline} is paused"
                    ))
                    .help(format!("`ductworkd unpause {pipeline}` ends the pause{more}")),
                ));
            }
            if let Some(other) = other {
                let (pid, host) = (other.pid, clean(&other.host));
                return Err(interrupted(
                    Problem::new(format!(
                        "stopped; the run {id} goes on: the worker {pid} on {host} works on {pipeline}"
                    ))
                    .help(format!("follow it with `ductworkd watch {id}`")),
                ));
            }
            format!("stopped, and the run {id} is left in progress")
        }
        // The daemon has said so, and has ended with the same error.
        Err(error @ store::Error::Misplaced(_)) => return Err(error.into()),
        Err(error) => {
            let error = crate::telemetry::chain(&error);
            format!("stopped, and the run {id} may be left in progress: {error}")
        }
    };
    Err(interrupted(Problem::new(left).help(format!(
        "continue it with `ductworkd start`; then follow it with `ductworkd watch {id}`"
    ))))
}

/// Follows a run until it rests, and prints its outcome.
async fn follow(
    location: &Location,
    mut handle: Handle,
    shot: &Shot,
    terminal: Option<&Terminal>,
    followed: &RefCell<Followed>,
) -> Result<(), Failure> {
    // The children start; this waits no longer for them than until their first look.
    let _ = handle.ready.wait_for(|ready| *ready).await;
    let mut conn = location.connect(Purpose::Query).await?;
    let new = NewRun {
        key: shot.key.as_deref(),
        input: shot.input.get(),
    };
    let triggered = match repeated(&mut conn, &shot.definition, &new, shot.max).await? {
        Some(known) => vec![known],
        None => {
            followed.borrow_mut().asked = true;
            let (by, now) = (person::actor(None)?, Duration::ZERO);
            trigger::trigger_by(&mut conn, &shot.definition, &[new], now, Some(&by), None).await?
        }
    };
    let triggered = &triggered[0];
    let mut requested = Requested {
        triggered: triggered.clone(),
        run: triggered.run_id,
    };
    followed.borrow_mut().triggered = Some(requested.clone());
    same_input(triggered)?;
    if !triggered.created {
        requested.run = newest(&mut conn, triggered.run_id).await?;
        followed.borrow_mut().triggered = Some(requested.clone());
    }
    let (requested, id) = (&requested, requested.run);
    let pipeline = &shot.definition.pipeline;
    if terminal.is_none() || !triggered.created {
        say(&made(triggered, id, pipeline));
    }
    nobody::note_pause(&mut conn, pipeline).await;
    handle.waker.job_available(pipeline);
    let how = shot.follow(id);
    let mut outages = Outages::new(location.clone());
    let status = {
        let screen = terminal.map(Terminal::file).transpose()?.map(Screen::on);
        let mut view = View::new(&how, screen, terminal);
        // A run of an earlier command has its own time span.
        if !triggered.created
            && let Some(run) = query::run_without_payloads(&mut conn, id).await?
        {
            view = view.of(&run, query::now(&mut conn).await?);
        }
        let stopping = || *handle.stopping.borrow();
        follow::to_rest(&mut conn, &how, &mut view, &stopping, &mut outages).await?
    };
    let reported = report(&mut conn, shot, &how, requested, status).await;
    let hooks = await_hooks(&mut conn, id, &shot.definition, &mut outages).await;
    // The command ends with the outcome of the run, whatever keeps its hooks.
    reported?;
    hooks
}

/// Waits until the run's hooks have ended: the daemon stops after this. By then the run is over, and its
/// output written.
async fn await_hooks(
    conn: &mut Conn,
    run: RunId,
    definition: &Definition,
    outages: &mut Outages,
) -> Result<(), Failure> {
    if !Hook::ALL.iter().any(|it| definition.hook(*it).is_some()) {
        return Ok(());
    }
    let is_open = |node: &NodeProgress| {
        let is_hook = node.via.parse().is_ok_and(Via::is_hook);
        is_hook && node.completed + node.failed + node.cancelled < node.total
    };
    let (began, mut told) = (Instant::now(), false);
    loop {
        let looks = Instant::now();
        let progress = match query::progress(conn, run).await {
            Ok(progress) => progress,
            Err(error) => {
                let mut tell = |note: String| say(&note);
                outages.ride_out(conn, error.into(), &mut tell).await?;
                continue;
            }
        };
        let Some(open) = progress.into_iter().find(is_open) else {
            return Ok(());
        };
        if began.elapsed() >= HOOK_MAX {
            say(&format!(
                "note: the hook {} has not ended, and is left to the next `ductworkd start`",
                open.node
            ));
            return Ok(());
        }
        if began.elapsed() >= HOOK_TOLD && !std::mem::replace(&mut told, true) {
            let longest = HOOK_MAX.as_secs();
            say(&format!(
                "waiting for the hook {}, {longest} s at most",
                open.node
            ));
        }
        tokio::time::sleep(follow::pause(looks, follow::LOOK_EVERY)).await;
    }
}

/// The output on stdout, everything else on stderr.
async fn report(
    conn: &mut Conn,
    shot: &Shot,
    how: &Follow<'_>,
    requested: &Requested,
    status: Option<RunStatus>,
) -> Result<(), Failure> {
    let Requested { triggered, run } = requested;
    let output = query::run_state(conn, *run)
        .await?
        .and_then(|state| state.output);
    let written = match output {
        output if shot.out.json => shot.out.value(&Answer {
            run_id: triggered.run_id,
            pipeline: &shot.definition.pipeline,
            created: Some(triggered.created),
            revived_as: (*run != triggered.run_id).then_some(*run),
            status,
            due_at: None,
            output,
            halts: halted(conn, *run, status).await?,
        }),
        Some(output) => shot.out.result(&output),
        None => Ok(()),
    };
    verdict(written, follow::report(conn, how, status).await)
}

impl Shot {
    fn follow(&self, run: RunId) -> Follow<'_> {
        Follow {
            run,
            definition: &self.definition,
            latest: Ok(&self.definition),
            style: self.style,
            patient: false,
            others: None,
        }
    }
}

/// A live view wants only warnings from the daemon, whose lines would tear it; unless somebody has
/// requested more.
pub fn wants_quiet(config: &Config) -> bool {
    let asked = std::env::var_os("RUST_LOG").is_some()
        || std::env::var_os("DUCTWORK_LOGGER__LEVEL").is_some();
    std::io::stderr().is_terminal() && !asked && config.logger.level == Level::Info
}

/// Changes to the environment of the children: a log for a person reaches the person through a pipe.
pub fn environment(config: &Config, quiet: bool) -> Vec<(OsString, Option<OsString>)> {
    let mut environment = Vec::new();
    if quiet {
        environment.push(("DUCTWORK_LOGGER__LEVEL".into(), Some("warn".into())));
    }
    if std::io::stderr().is_terminal() && config.logger.format == LogFormat::Auto {
        environment.push(("DUCTWORK_LOGGER__FORMAT".into(), Some("pretty".into())));
    }
    environment
}

/// Colours as the command line wants them, on the terminal that shows the view.
pub fn style() -> Style {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    Style {
        colour: choice != anstream::ColorChoice::Never,
    }
}
