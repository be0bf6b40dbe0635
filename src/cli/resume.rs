//! `resume`: a run that waits for a person goes on.

use std::cell::Cell;

use serde_json::json;

use crate::model::{self, RunId, RunStatus, StepId};
use crate::problem::Problem;
use crate::store::resume::WaitingStep;
use crate::store::{Conn, Purpose, query, resume};
use crate::view::word;

use super::exit::Failure;
use super::follow::say;
use super::nobody;
use super::out::short;
use super::patiently::patiently;
use super::person;
use super::setup::{self, CliContext};

/// Resumes a run that waits for a person.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd resume 5d91c07e                       # with what was asked about
  ductworkd resume 5d91c07e '{\"approved\":true}'   # with this instead
  ductworkd resume 5d91c07e true --step Approve.2

Many questions of one run are answered in batches. If that is interrupted, the same command answers those that are left.
")]
pub struct Resume {
    /// The run's id, or four or more of its first or last digits
    run: String,
    /// One JSON value that replaces the output in question, or `-` for standard input
    #[arg(allow_negative_numbers = true)]
    value: Option<String>,
    /// Only this step, where several wait: its id, or the name of its node
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// The person who resumes it, recorded with the step [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Resume {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let Some(state) = query::brief(&mut conn, run).await? else {
                return Err(setup::no_run(&run.to_string()));
            };
            let max = config.job_worker.max_payload(&state.pipeline);
            let value = self.value.as_deref().map(|value| setup::value(value, max));
            let value = value.transpose()?;
            if state.status == RunStatus::Halted {
                return Err(setup::has_ended(&mut conn, run, state.status, "resume").await?);
            }
            let step = match &self.step {
                Some(step) => Some(find_step(&mut conn, run, step).await?),
                None => None,
            };
            let value = value.as_deref().map(serde_json::value::RawValue::get);
            let (count, by) = (Cell::new(0_usize), Some(&by));
            let answering = async {
                match (step, value) {
                    (None, None) => {
                        let report = |resumed| count.set(resumed);
                        resume::resume_all(&mut conn, run, by, resume::BATCH, report).await
                    }
                    _ => resume::resume(&mut conn, run, step, value, by).await,
                }
            };
            let progress = || match count.get() {
                0 => "answering".to_owned(),
                resumed => format!("answering: {resumed} questions"),
            };
            let answered = patiently(progress, answering).await;
            if answered.is_err() && count.get() > 0 {
                say(&format!(
                    "note: {} questions were answered; the same command answers those that are left",
                    count.get()
                ));
                setup::wake_for(&mut conn, &config, run).await;
            }
            let (resumed, late) = match answered? {
                resume::Resume::Done(resumed) => (resumed, 0),
                resume::Resume::Partly { resumed, late } => (resumed, late),
                resume::Resume::NotFound => return Err(setup::no_run(&run.to_string())),
                resume::Resume::NotDampened(status) if status.is_terminal() => {
                    return Err(setup::has_ended(&mut conn, run, status, "resume").await?);
                }
                resume::Resume::NotDampened(status) => {
                    let problem = Problem::new(format!(
                        "the run {run} does not wait for an answer: it has been answered, or asks nothing; it is {}",
                        word(status)
                    ));
                    return Err(Failure::failed(
                        problem.help(format!("`ductworkd why {run}` says what it is doing")),
                    ));
                }
                resume::Resume::Late => {
                    let problem = Problem::new(resume::late(run, step));
                    return Err(Failure::failed(problem.help(resume::LATE)));
                }
                resume::Resume::TooMany => {
                    return Err(Failure::failed(Problem::new(resume::too_many(run))));
                }
                resume::Resume::Ambiguous(steps) => {
                    let message = format!(
                        "{} steps of the run {run} wait for a person",
                        number(&steps)
                    );
                    let problem = Problem::new(message);
                    return Err(Failure::failed(
                        problem.help(format!("say which, with --step: {}", names(&steps))),
                    ));
                }
            };
            if let Some(pipeline) = setup::wake_for(&mut conn, &config, run).await {
                nobody::note(&mut conn, &config, &pipeline).await;
            }
            let after = query::brief(&mut conn, run).await;
            match after.ok().flatten().map(|run| run.status) {
                Some(RunStatus::Cancelled) => say("note: the run was cancelled meanwhile"),
                Some(RunStatus::Dampened) if step.is_some() => {
                    say("note: the run waits for further answers");
                }
                _ => {}
            }
            match late {
                0 => {}
                1 => say("note: another question was not answered: its deadline has passed"),
                late => say(&format!(
                    "note: {late} other questions were not answered: their deadlines have passed"
                )),
            }
            match cli.out.json {
                true => cli
                    .out
                    .value(&json!({ "run_id": run, "resumed": resumed, "late": late })),
                false if resumed > 1 => cli.out.text(&format!(
                    "{run} resumed: {resumed} questions were answered\n"
                )),
                false => cli.out.text(&format!("{run} resumed\n")),
            }
        })
    }
}

/// A waiting step, by its node's name, by its id, or by some of the id's first or last digits.
async fn find_step(conn: &mut Conn, run: RunId, given: &str) -> Result<StepId, Failure> {
    let digits = query::digits(given);
    let has = |step: &WaitingStep, digits: &String| {
        let id = step.step_id.0.simple().to_string();
        id.starts_with(digits) || id.ends_with(digits)
    };
    let is = |step: &WaitingStep| {
        step.node == given || digits.as_ref().is_some_and(|digits| has(step, digits))
    };
    let found = resume::find(conn, run, is).await?;
    let given = short(given, 60);
    let (problem, help) = match found.as_slice() {
        [one] => return Ok(one.step_id),
        [] => match resume::asked(conn, run).await?.as_slice() {
            [] => (
                format!("no step of the run {run} waits for a person"),
                format!("`ductworkd why {run}` says what it waits for"),
            ),
            others => (
                format!("no step `{given}` of the run {run} waits for a person"),
                format!("there are: {}", names(others)),
            ),
        },
        several => (
            format!("{} steps `{given}` wait for a person", number(several)),
            format!("say which by its id: {}", names(several)),
        ),
    };
    Err(Failure::failed(Problem::new(problem).help(help)))
}

/// The most steps that a message names.
const NAMED: usize = 20;

/// How many there are, as far as they are listed.
fn number(steps: &[WaitingStep]) -> String {
    match steps.len() {
        n @ resume::LISTED.. => format!("at least {n}"),
        n => n.to_string(),
    }
}

fn names(steps: &[WaitingStep]) -> String {
    let name = |step: &WaitingStep| format!("{} ({})", step.node, model::short(step.step_id));
    let names: Vec<String> = steps.iter().take(NAMED).map(name).collect();
    let others = match steps.len() > NAMED {
        true => " and others",
        false => "",
    };
    format!("{}{others}", names.join(", "))
}
