//! `trigger`: starts a run, and waits for its end on request.

use std::io::IsTerminal as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::{Config, keys};
use crate::definition::Definition;
use crate::model::{Caller, RunId, RunStatus};
use crate::problem::Problem;
use crate::store::trigger::{self, KEY_MAX, NewRun, Triggered, trigger_by};
use crate::store::why::newest;
use crate::store::{Conn, Purpose, query};
use crate::wire::Time;

use super::exit::{Code, Failure, verdict};
use super::follow::{self, Follow, say};
use super::interrupt;
use super::keyed;
use super::nobody::{self, Lookout};
use super::outage::Outages;
use super::patiently::waiting;
use super::person;
use super::setup::{self, CliContext};
use super::shot;

/// The variables in which a program finds the span that started it.
const CALLER: [&str; 3] = ["TRACEPARENT", "TRACESTATE", "BAGGAGE"];

/// The longest pause between two looks at a run for which the command waits.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);

/// Starts a run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd trigger Hello '\"world\"'
  ductworkd trigger Import - < input.json
  ductworkd trigger Report '{\"day\":\"2026-01-31\"}' --key report-2026-01-31
  ductworkd trigger Hello --wait && echo it worked
")]
pub struct Trigger {
    /// The pipeline's name
    pipeline: String,
    /// One JSON value, or `-` for standard input [default: null]
    #[arg(
        default_value = "null",
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    input: String,
    /// A second trigger with this key and the same input returns the first run, until that is deleted; if it halted, revive
    /// it, or give another key
    #[arg(long)]
    key: Option<String>,
    /// Wait for the end; exit 1 unless the run completes, 3 when it waits for a person
    #[arg(long)]
    wait: bool,
    /// Wait before the first step may run: `10s`, `5m`
    #[arg(long, value_parser = super::duration, default_value = "0", hide_default_value = true)]
    delay: Duration,
    /// The person who triggers it [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// The outcome of a trigger, for programs.
#[derive(Serialize)]
pub struct Answer<'a> {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: &'a str,
    /// False: its key had started it before. Absent if the command has not just requested the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// The newest run that continues it, if it was revived before this command: the state, the output and the halts are
    /// those of that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revived_as: Option<RunId>,
    /// Its outcome, if the command waited for it; its state, if its key had started it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// When it begins, if it has been triggered for later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Time>,
    /// Its output, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RawValue>>,
    /// The first places at which it halted, if it did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub halts: Vec<Halted>,
}

/// A place at which a run halted, for programs.
#[derive(Serialize)]
pub struct Halted {
    reason: String,
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
}

/// The first places at which a run in this state halted.
pub async fn halted(
    conn: &mut Conn,
    run: RunId,
    status: Option<RunStatus>,
) -> Result<Vec<Halted>, Failure> {
    if status != Some(RunStatus::Halted) {
        return Ok(Vec::new());
    }
    let halts = super::why::halts(conn, run, None).await?.into_iter();
    let halts = halts.take(super::why::TOLD).map(|halt| Halted {
        reason: halt.fact.reason,
        node: halt.fact.node,
        error_class: halt.fact.class,
        error_message: halt.fact.error,
    });
    Ok(halts.collect())
}

impl Trigger {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?;
        let (definition, note) = &cli.pipeline(&config, &self.pipeline)?;
        note.iter().for_each(|note| say(note));
        let pipeline = &definition.pipeline;
        let max = config.job_worker.max_payload(pipeline);
        check_key(self.key.as_deref())?;
        let input = input(definition, &self.input, max, self.key.as_deref())?;
        let [span, state, baggage] = CALLER.map(|it| std::env::var(it).ok());
        let caller = Caller::read(span.as_deref(), state.as_deref(), baggage.as_deref());
        setup::block_on(async {
            let mut conn = setup::connect_or_create(&config, Purpose::Engine).await?;
            let runs = [NewRun {
                key: self.key.as_deref(),
                input: input.get(),
            }];
            let known = repeated(&mut conn, definition, &runs[0], max);
            let triggered = match waiting(setup::CONNECTING, known).await? {
                Some(known) => vec![known],
                None => {
                    let (by, caller) = (Some(&by), Some(&caller));
                    let triggered =
                        trigger_by(&mut conn, definition, &runs, self.delay, by, caller);
                    waiting(setup::CONNECTING, triggered).await?
                }
            };
            let triggered = &triggered[0];
            // Before anybody learns of the run, and can interrupt the wait.
            let enough = self.wait.then(interrupt::caught).transpose()?;
            if triggered.created {
                setup::wake(&mut conn, &config.location()?, pipeline).await;
            }
            same_input(triggered)?;
            // A run that halted may have been continued since: then the outcome of that run counts.
            let run = match triggered.created {
                true => triggered.run_id,
                false => {
                    let newest = newest(&mut conn, triggered.run_id);
                    match waiting(setup::CONNECTING, newest).await {
                        Err(_) if !self.wait => triggered.run_id,
                        newest => newest?,
                    }
                }
            };
            let mut answer = Answer {
                run_id: triggered.run_id,
                revived_as: (run != triggered.run_id).then_some(run),
                pipeline,
                created: Some(triggered.created),
                status: None,
                due_at: None,
                output: None,
                halts: Vec::new(),
            };
            let there = format!("the run {run} is there: `ductworkd show {run}` shows it");
            let unread = |failure: Failure| failure.help(&there);
            match self.wait {
                _ if cli.out.json => {}
                false => {
                    let printed = cli.out.text(&format!("{}\n", triggered.run_id));
                    printed.map_err(unread)?;
                    if !triggered.created {
                        keyed::note(&mut conn, triggered.run_id, definition).await;
                    }
                }
                // Standard output is for the result alone.
                true => say(&made(triggered, run, pipeline)),
            }
            if !self.wait {
                nobody::note(&mut conn, &config, pipeline).await;
            }
            if cli.out.json && !self.wait && !(triggered.created && self.delay.is_zero()) {
                // The trigger has had its effect, so nothing that fails here is a failure of the command.
                let found = query::run_without_payloads(&mut conn, run).await;
                let found = found.ok().flatten();
                answer.due_at = found.as_ref().and_then(|run| run.due_at).map(Time::of);
                let known = found.filter(|_| !triggered.created);
                answer.status = known.map(|run| run.status);
            }
            if let Some(mut enough) = enough {
                nobody::note_pause(&mut conn, pipeline).await;
                let end = tokio::select! {
                    biased;
                    _ = enough.recv() => {
                        if cli.out.json {
                            let printed = cli.out.value(&answer).map_err(unread);
                            return verdict(printed, Err(follow::interrupted(run)));
                        }
                        // Below the `^C` of a terminal.
                        if std::io::stderr().is_terminal() {
                            say("");
                        }
                        say(&format!("the run goes on; ductworkd watch {run} shows it"));
                        return Err(Failure::Quiet(Code::Interrupted));
                    }
                    end = wait(&mut conn, run, &config) => end?,
                };
                answer.status = Some(end.status);
                answer.output = end.output;
                let halts = halted(&mut conn, run, answer.status).await;
                answer.halts = halts.map_err(unread)?;
            }
            let printed = match &answer.output {
                _ if cli.out.json => cli.out.value(&answer).map_err(unread),
                Some(output) => cli.out.result(output).map_err(unread),
                None => Ok(()),
            };
            let outcome = answer.status.filter(|_| self.wait);
            let ended = match outcome {
                None | Some(RunStatus::Completed) => Ok(()),
                Some(RunStatus::Dampened) if cli.out.json => Err(Failure::Quiet(Code::Waiting)),
                Some(_) if cli.out.json => Err(Failure::Quiet(Code::Failed)),
                status => {
                    let how = Follow {
                        run,
                        definition,
                        latest: Ok(definition),
                        style: shot::style(),
                        patient: false,
                        others: None,
                    };
                    follow::report(&mut conn, &how, status).await
                }
            };
            verdict(printed, ended)
        })
    }
}

/// The input of a run of this pipeline, given as text or, as `-`, on standard input. With a key it is not judged yet:
/// the key's run may exist (see [`repeated`]).
pub fn input(
    definition: &Definition,
    given: &str,
    max: u64,
    key: Option<&str>,
) -> Result<Box<RawValue>, Failure> {
    match key {
        None => setup::input(definition, given, max),
        Some(_) => setup::json(given, "input", keys::PAYLOAD_MAX),
    }
}

/// The run that this key has started, if there is one: its command may be given again after the pipeline has come to
/// ask for other inputs. Without such a run, the input has to be as the pipeline asks today.
pub async fn repeated(
    conn: &mut Conn,
    definition: &Definition,
    run: &NewRun<'_>,
    max: u64,
) -> Result<Option<Triggered>, Failure> {
    let known = trigger::repeated(conn, &definition.pipeline, run).await?;
    if known.is_none() && run.key.is_some() {
        setup::input(definition, run.input, max)?;
    }
    Ok(known)
}

/// Refuses a key that no run can have.
pub fn check_key(key: Option<&str>) -> Result<(), Failure> {
    match key {
        Some(key) if key.is_empty() || key.chars().count() > KEY_MAX => {
            let problem = Problem::new(format!("a key has 1 to {KEY_MAX} characters"));
            Err(Failure::usage(problem.help(
                "a hash of what identifies the work makes a good key",
            )))
        }
        _ => Ok(()),
    }
}

/// How the run came into being, and which run continues it now.
pub fn made(triggered: &Triggered, newest: RunId, pipeline: &str) -> String {
    let run = triggered.run_id;
    match triggered.created {
        true => format!("run {run} of {pipeline} triggered"),
        false if newest == run => {
            format!("run {run} of {pipeline} was triggered before, with this key")
        }
        false => format!(
            "run {run} of {pipeline} was triggered before, with this key; it halted, and its outcome is that of the run {newest}, \
             which continues it"
        ),
    }
}

/// Refuses a key that leads to a run with another input: the outcome of that run is no answer to this
/// request.
pub fn same_input(triggered: &Triggered) -> Result<(), Failure> {
    if !triggered.input_differs {
        return Ok(());
    }
    let run = triggered.run_id;
    let problem = Problem::new(format!(
        "this key already belongs to the run {run}, which had a different input"
    ));
    Err(Failure::failed(problem.help(format!(
        "give another key, or the same input; `ductworkd show {run} --input` prints that of the run"
    ))))
}

/// Waits until a run has ended, or until nothing of it goes on unless a person answers. It looks at
/// growing intervals, because nobody wakes it.
async fn wait(conn: &mut Conn, run: RunId, config: &Config) -> Result<query::RunState, Failure> {
    let mut look_every = Duration::from_millis(10);
    let mut lookout = Lookout::new(config);
    let mut outages = Outages::new(config.location()?);
    loop {
        match look(conn, run, &mut lookout).await {
            Ok(Some(state)) => return Ok(state),
            Ok(None) => {
                tokio::time::sleep(look_every).await;
                look_every = (look_every * 3 / 2).min(LOOK_EVERY_MAX);
            }
            Err(failure) => {
                let mut tell = |note: String| say(&note);
                outages.ride_out(conn, failure, &mut tell).await?;
                lookout.later();
            }
        }
    }
}

/// Looks once: the state of a run that has ended, or that rests.
async fn look(
    conn: &mut Conn,
    run: RunId,
    lookout: &mut Lookout<'_>,
) -> Result<Option<query::RunState>, Failure> {
    let Some(state) = query::run_state(conn, run).await? else {
        return Err(setup::no_run(&format!(
            "{run} any more: it was pruned, or a backup of the database was restored"
        )));
    };
    if state.status.is_terminal() {
        return Ok(Some(state));
    }
    if state.status == RunStatus::Dampened {
        let progress = query::progress(conn, run).await?;
        let rests = progress.iter().all(|node| node.moving == 0);
        if rests && follow::still_waits(conn, run).await? {
            return Ok(Some(state));
        }
    }
    for line in lookout.look(conn, run).await? {
        say(&line);
    }
    Ok(None)
}
