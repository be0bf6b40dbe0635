//! `show`: one run whole, as JSON, as a page, or as a picture.

mod page;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::machine::halt::remedy;
use crate::model::*;
use crate::problem::Problem;
use crate::store::definition::Definitions;
use crate::store::query::{self, ExecutionRow, StepRow};
use crate::store::{Conn, Purpose};
use crate::time;
use crate::view::graph;

use super::exit::Failure;
use super::glyphs::glyphs;
use super::hint;
use super::out;
use super::patiently::waiting;
use super::runs::RunJson;
use super::setup::{self, CliContext};
use super::why;

/// The steps of a larger run are counted by the database.
const STEPS_MAX: usize = 2_000;

/// Steps with errors that are told in full.
const TROUBLED: usize = 5;

/// Shows one run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd show 5d91c07e
  ductworkd show 5d91c07e --json | jq '.steps[] | select(.status == \"failed\")'
  ductworkd show 5d91c07e --svg > run.svg
")]
pub struct Show {
    /// The run's id, or some of its first or last digits
    run: String,
    /// At most this many steps [default: all of them as JSON]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Print the pipeline's graph as a picture (SVG), with the state of each step
    #[arg(long, conflicts_with = "limit")]
    svg: bool,
}

/// While a wide run is read.
const READING: &str = "reading the run";

impl Show {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        if self.svg && cli.out.json {
            let problem = Problem::new("`--svg` is a picture, and `--json` is none");
            return Err(Failure::usage(problem.help("leave one of the two out")));
        }
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            if self.svg {
                return cli.out.raw(&picture(&mut conn, run).await?);
            }
            let limit = self.limit.map(|limit| limit as usize);
            let limit = limit.or((!cli.out.json).then_some(STEPS_MAX));
            let detail = waiting(READING, query::show(&mut conn, run, limit)).await?;
            let Some(detail) = detail else {
                return Err(setup::no_run(&run.to_string()));
            };
            let definitions = Definitions::default();
            let definition = definitions.read(&mut conn, &detail.run.definition).await?;
            let goes_on = !detail.run.status.is_terminal();
            let unreadable = definition.as_ref().err().filter(|_| goes_on);
            let halts = match detail.run.status {
                RunStatus::Halted => {
                    let definition = definition.as_deref().ok();
                    why::halts(&mut conn, run, definition).await?
                }
                _ => Vec::new(),
            };
            if cli.out.json {
                return cli.out.value(&Whole {
                    run: RunJson::of(&detail.run),
                    definition_was: detail.definition_was.as_deref(),
                    halts: halts.iter().map(HaltJson::of).collect(),
                    unreadable: unreadable.map(ToString::to_string),
                    steps: detail.steps.iter().map(StepJson::of).collect(),
                    truncated: detail.truncated.then_some(true),
                });
            }
            let wide = detail.truncated && self.limit.is_none();
            let (nodes, failed) = match wide {
                true => {
                    let nodes = waiting(READING, query::progress(&mut conn, run)).await?;
                    let failed = query::failed_steps(&mut conn, run, TROUBLED + 1);
                    (page::of_progress(&nodes), waiting(READING, failed).await?)
                }
                false => (page::by_node(&detail.steps), Vec::new()),
            };
            let (troubled, more) = troubled(if wide { &failed } else { &detail.steps });
            let mut placed = Vec::new();
            for step in troubled {
                placed.push((step, query::spreads(&mut conn, step.branch_id).await?));
            }
            let asks = |step: &&StepRow| step.status == StepStatus::Waiting;
            let revived_as = match detail.run.status {
                RunStatus::Halted => crate::store::why::revived_as(&mut conn, run).await?,
                _ => None,
            };
            let facts: Vec<_> = halts.iter().map(|halt| halt.fact.clone()).collect();
            let mut text = page::draw(&page::Page {
                detail: &detail,
                revived_as,
                explained: why::explained(&halts),
                remedy: (!facts.is_empty()).then(|| remedy(&facts, run)),
                definition: definition.as_deref().ok(),
                nodes,
                troubled: placed,
                more,
                waiting: detail.steps.iter().filter(asks).take(TROUBLED).collect(),
                columns: cli.out.columns(),
                glyphs: glyphs(),
            });
            if let Some(unreadable) = unreadable {
                let unreadable = out::clean(&unreadable.to_string());
                text.push_str(&format!("its {unreadable}; start a newer `ductworkd`\n"));
            }
            cli.out.text(&hint::pasteable(&text))
        })
    }
}

/// The run as a picture.
async fn picture(conn: &mut Conn, id: RunId) -> Result<String, Failure> {
    let Some(run) = query::run(conn, id).await? else {
        return Err(setup::no_run(&id.to_string()));
    };
    let definition = Definitions::default().read(conn, &run.definition).await?;
    let definition = definition.map_err(|unreadable| {
        let problem = Problem::new(out::clean(&format!("its {unreadable}")));
        Failure::failed(problem.help("start a newer `ductworkd`"))
    })?;
    let progress = waiting(READING, query::progress(conn, id)).await?;
    graph::draw(&run, &definition, &progress).ok_or_else(|| {
        let problem = Problem::new(format!("the definition of run {id} is no pipeline's graph"));
        let help = "somebody has edited it in the database; without `--svg` its steps are listed";
        Failure::failed(problem.help(help))
    })
}

/// The steps with errors that are told in full, those that failed first, and how many more there are.
fn troubled(steps: &[StepRow]) -> (Vec<&StepRow>, usize) {
    let mut troubled: Vec<&StepRow> = steps.iter().filter(|it| page::is_troubled(it)).collect();
    troubled.sort_by_key(|step| (step.status != StepStatus::Failed, step.id));
    let more = troubled.len().saturating_sub(TROUBLED);
    troubled.truncate(TROUBLED);
    (troubled, more)
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    run: RunJson<'a>,
    /// Only of a run that was revived with another definition: that of the run it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition_was: Option<&'a str>,
    /// Only of a run that halted: where and why, as far as they are few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    halts: Vec<HaltJson<'a>>,
    /// Only where this version cannot read the definition of a run that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
    steps: Vec<StepJson<'a>>,
    /// Only where a limit was asked for, and reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

#[derive(Serialize)]
struct HaltJson<'a> {
    reason: &'a str,
    node: &'a str,
    explanation: Option<&'a str>,
}

impl<'a> HaltJson<'a> {
    fn of(halt: &'a why::Halt) -> Self {
        Self {
            reason: &halt.fact.reason,
            node: &halt.fact.node,
            explanation: halt.explanation.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct StepJson<'a> {
    id: StepId,
    node: &'a str,
    step: &'a str,
    via: &'a str,
    branch_id: BranchId,
    status: StepStatus,
    input: &'a RawValue,
    output: Option<&'a RawValue>,
    started_at: Option<String>,
    completed_at: Option<String>,
    /// Only where somebody has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered_by: Option<&'a str>,
    executions: Vec<ExecutionJson<'a>>,
}

#[derive(Serialize)]
struct ExecutionJson<'a> {
    id: ExecutionId,
    attempt: u32,
    retry_count: u32,
    crash_count: u32,
    process_id: Option<ProcessId>,
    claimed_at: Option<String>,
    completed_at: Option<String>,
    result: Option<ExecutionResult>,
    error_class: Option<&'a str>,
    error_message: Option<&'a str>,
    error_backtrace: Option<&'a str>,
}

impl<'a> StepJson<'a> {
    fn of(step: &'a StepRow) -> Self {
        Self {
            id: step.id,
            node: &step.node,
            step: &step.step,
            via: &step.via,
            branch_id: step.branch_id,
            status: step.status,
            input: &step.input,
            output: step.output.as_deref(),
            started_at: step.started_at().map(time::rfc3339),
            completed_at: step.completed_at.map(time::rfc3339),
            answered_by: step.answered_by.as_deref(),
            executions: step.executions.iter().map(ExecutionJson::of).collect(),
        }
    }
}

impl<'a> ExecutionJson<'a> {
    fn of(execution: &'a ExecutionRow) -> Self {
        Self {
            id: execution.id,
            attempt: execution.attempt,
            retry_count: execution.retry_count,
            crash_count: execution.crash_count,
            process_id: execution.process_id,
            claimed_at: execution.claimed_at.map(time::rfc3339),
            completed_at: execution.completed_at.map(time::rfc3339),
            result: execution.result,
            error_class: execution.error_class.as_deref(),
            error_message: execution.error_message.as_deref(),
            error_backtrace: execution.error_backtrace.as_deref(),
        }
    }
}
