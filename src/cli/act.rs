//! `revive`, `cancel`, `resume`: what a person does to a run.

use std::cell::Cell;

use serde_json::json;

use crate::model::{RunId, RunStatus, StepId};
use crate::problem::Problem;
use crate::process::start;
use crate::store::resume::WaitingStep;
use crate::store::{Conn, Purpose, cancel, query, resume, revive};

use super::exit::Failure;
use super::out::short;
use super::patiently::patiently;
use super::setup::{self, CliContext};

/// Continues a halted run as a new one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd revive 0192f3a1
  ductworkd runs --status halted --json | jq -r '.[].id' | xargs -n1 ductworkd revive

What was completed is not done again: the new run begins where the other halted.
")]
pub struct Revive {
    /// The run's id, or the first digits of it
    run: String,
}

/// Ends a run for good.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd cancel 0192f3a1

A run of many branches is cancelled some of them at a time. Where that was interrupted, a daemon
finishes it, or the same command given again.
")]
pub struct Cancel {
    /// The run's id, or the first digits of it
    run: String,
}

/// Answers a run that waits for a person.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd resume 0192f3a1                     # go on with what was asked about
  ductworkd resume 0192f3a1 '{\"approved\":true}' # go on with this instead
  ductworkd resume 0192f3a1 true --step Approve.2
")]
pub struct Resume {
    /// The run's id, or the first digits of it
    run: String,
    /// One JSON value that replaces the output asked about, or `-` for standard input
    #[arg(allow_negative_numbers = true)]
    value: Option<String>,
    /// Only this one, where several wait: the id of the step, or the name of its node
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
}

impl Revive {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let revived = match revive::revive(&mut conn, run).await? {
                revive::Revive::Done(revived) => revived,
                revive::Revive::NotFound => return Err(setup::no_run(&run.to_string())),
                revive::Revive::NotHalted(status) => {
                    let problem = Problem::new(format!(
                        "the run {run} is {status}: only halted runs are revived"
                    ));
                    return Err(Failure::failed(
                        problem.help(format!("`ductworkd why {run}` says what keeps it")),
                    ));
                }
                revive::Revive::AlreadyRevived(next) => {
                    let problem =
                        Problem::new(format!("the run {run} was revived before, as {next}"));
                    return Err(Failure::failed(
                        problem.help(format!("`ductworkd show {next}` shows it")),
                    ));
                }
            };
            let pipeline = wake(&mut conn, &config, revived).await?;
            match cli.out.json {
                true => cli.out.value(&json!({
                    "run_id": revived, "pipeline": pipeline, "revived_from": run,
                })),
                false => cli.out.text(&format!("{revived}\n")),
            }
        })
    }
}

impl Cancel {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let before = query::run_state(&mut conn, run).await?;
            let was_active = before.is_some_and(|before| !before.status.is_terminal());
            let count = Cell::new(0);
            let mut report = |closed| count.set(closed);
            let cancelled = patiently(
                || format!("cancelling: {} branches", count.get()),
                cancel::cancel_by(&mut conn, run, cancel::BATCH, &mut report),
            );
            let cancelled = cancelled.await;
            let stopping = match cancelled? {
                cancel::Cancel::Done { held } => held.len(),
                // Somebody else asked for the same, and got there first.
                cancel::Cancel::NotActive(RunStatus::Cancelled) if was_active => 0,
                cancel::Cancel::NotFound => return Err(setup::no_run(&run.to_string())),
                cancel::Cancel::NotActive(status) => return Err(ended(run, status)),
            };
            // A process that runs a step of it learns so at its next beat at the latest.
            wake(&mut conn, &config, run).await?;
            match cli.out.json {
                true => cli.out.value(&json!({
                    "run_id": run, "status": RunStatus::Cancelled, "processes": stopping,
                })),
                false => cli.out.text(&format!("{run} cancelled\n")),
            }
        })
    }
}

impl Resume {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let Some(state) = query::run_state(&mut conn, run).await? else {
                return Err(setup::no_run(&run.to_string()));
            };
            let max = config.job_worker.max_payload(&state.pipeline);
            let value = self
                .value
                .as_deref()
                .map(|value| setup::json(value, "value", max));
            let value = value.transpose()?;
            let step = match &self.step {
                Some(step) => Some(find_step(&mut conn, run, step).await?),
                None => None,
            };
            let value = value.as_deref().map(serde_json::value::RawValue::get);
            let resumed = match resume::resume(&mut conn, run, step, value).await? {
                resume::Resume::Done(resumed) => resumed,
                resume::Resume::NotFound => return Err(setup::no_run(&run.to_string())),
                resume::Resume::NotDampened(status) if status.is_terminal() => {
                    return Err(ended(run, status));
                }
                resume::Resume::NotDampened(status) => {
                    let problem = Problem::new(format!(
                        "the run {run} is {status}: it does not wait for a person"
                    ));
                    return Err(Failure::failed(
                        problem.help(format!("`ductworkd why {run}` says what it waits for")),
                    ));
                }
                resume::Resume::Ambiguous(steps) => {
                    let message =
                        format!("{} steps of the run {run} wait for a person", steps.len());
                    let problem = Problem::new(message);
                    return Err(Failure::failed(
                        problem.help(format!("say which, with --step: {}", names(&steps))),
                    ));
                }
            };
            wake(&mut conn, &config, run).await?;
            match cli.out.json {
                true => cli.out.value(&json!({ "run_id": run, "resumed": resumed })),
                false => cli.out.text(&format!("{run} resumed\n")),
            }
        })
    }
}

/// A waiting step by its node's name, or by its id or the beginning of that.
async fn find_step(conn: &mut Conn, run: RunId, given: &str) -> Result<StepId, Failure> {
    let waiting = resume::waiting(conn, run).await?;
    let digits = given.replace('-', "").to_ascii_lowercase();
    let is = |step: &&WaitingStep| {
        step.node == given
            || (digits.len() >= query::SHORTEST_PREFIX
                && step.step_id.0.simple().to_string().starts_with(&digits))
    };
    let found: Vec<&WaitingStep> = waiting.iter().filter(is).collect();
    match found.as_slice() {
        [one] => Ok(one.step_id),
        [] if waiting.is_empty() => {
            let problem = Problem::new(format!("no step of the run {run} waits for a person"));
            Err(Failure::failed(problem.help(format!(
                "`ductworkd why {run}` says what it waits for"
            ))))
        }
        [] => {
            let problem = Problem::new(format!(
                "no step `{}` of the run {run} waits for a person",
                short(given, 60)
            ));
            Err(Failure::failed(
                problem.help(format!("there are: {}", names(&waiting))),
            ))
        }
        several => {
            let problem = Problem::new(format!(
                "{} steps `{}` wait for a person",
                several.len(),
                short(given, 60)
            ));
            let found: Vec<WaitingStep> = several.iter().map(|step| (*step).clone()).collect();
            Err(Failure::failed(
                problem.help(format!("say which by its id: {}", names(&found))),
            ))
        }
    }
}

fn names(steps: &[WaitingStep]) -> String {
    let name = |step: &WaitingStep| format!("{} ({})", step.node, step.step_id);
    steps
        .iter()
        .take(20)
        .map(name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn ended(run: RunId, status: RunStatus) -> Failure {
    let problem = Problem::new(format!("the run {run} has ended: it is {status}"));
    Failure::failed(problem.help(format!("`ductworkd show {run}` shows it")))
}

async fn wake(
    conn: &mut Conn,
    config: &crate::config::Config,
    run: RunId,
) -> Result<String, Failure> {
    let pipeline = query::run_state(conn, run)
        .await?
        .map(|state| state.pipeline);
    let pipeline = pipeline.unwrap_or_default();
    setup::wake(conn, &start::location(config)?, &pipeline).await;
    Ok(pipeline)
}
