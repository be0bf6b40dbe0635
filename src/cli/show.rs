//! `show`: one run whole, as JSON, as a page, or as a picture.

mod page;

use serde_json::value::RawValue;

use crate::machine::halt::{Prospects, remedy};
use crate::model::*;
use crate::number::whole;
use crate::problem::Problem;
use crate::store::action;
use crate::store::definition::Definitions;
use crate::store::page::{self as stored, Part};
use crate::store::query::{self, LISTED_ATTEMPTS, StepRow};
use crate::store::why::newest;
use crate::store::{Conn, Error, Purpose, pause, resume, revive};
use crate::view::graph::{self, Progress};
use crate::view::word;
use crate::wire::action::ActionJson;
use crate::wire::run::{AloneJson, HaltJson, RunJson, WholeJson};
use crate::wire::step::StepJson;

use super::exit::Failure;
use super::glyphs::glyphs;
use super::hint;
use super::out;
use super::patiently::waiting;
use super::setup::{self, CliContext};
use super::why;

/// For a run with more steps, the database counts them.
const STEPS_MAX: usize = 2_000;

/// The number of steps with errors that are shown in full.
const TROUBLED: usize = 5;

/// Shows one run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd show 5d91c07e
  ductworkd show 5d91c07e --json | jq '.steps[] | select(.status == \"failed\")'
  ductworkd show 5d91c07e --svg > run.svg
  ductworkd show 5d91c07e --input | ductworkd trigger Import -
")]
pub struct Show {
    /// The run's id, or four or more of its first or last digits
    run: String,
    /// At most this many steps [default: 2000; as JSON: all]
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    limit: Option<u32>,
    /// Print the pipeline's graph as a picture (SVG), with the state of each step
    #[arg(long, conflicts_with = "limit")]
    svg: bool,
    /// Print the run's input and nothing else: in a pipe or a file exactly as it is stored
    #[arg(long, conflicts_with_all = ["limit", "svg"])]
    input: bool,
    /// Print the run's output and nothing else, in the same way
    #[arg(long, conflicts_with_all = ["limit", "svg", "input"])]
    output: bool,
}

/// At most this many actions are read: those that came last.
const ACTIONS: usize = 100;

/// Shown while a wide run is read.
const READING: &str = "reading the run";

impl Show {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let alone = [
            (self.svg, "--svg"),
            (self.input, "--input"),
            (self.output, "--output"),
        ];
        if let Some((_, option)) = alone.iter().find(|(given, _)| *given)
            && cli.out.json
        {
            let problem = Problem::new(format!("`{option}` and `--json` exclude each other"));
            return Err(Failure::usage(problem.help("leave one of the two out")));
        }
        let config = cli.config()?;
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            if self.svg {
                return cli.out.raw(&picture(&mut conn, run).await?);
            }
            let part = match (self.input, self.output) {
                (true, _) => Some(Part::Input),
                (_, true) => Some(Part::Output),
                _ => None,
            };
            if let Some(part) = part {
                return cli.out.result(&payload(&mut conn, run, part).await?);
            }
            // A program gets everything, unless it wants less.
            let (steps, attempts) = match cli.out.json {
                true => (usize::MAX, usize::MAX),
                false => (STEPS_MAX, LISTED_ATTEMPTS),
            };
            let steps = self.limit.map_or(steps, |limit| limit as usize);
            let detail = waiting(READING, query::show(&mut conn, run, steps, attempts)).await?;
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
            let actions = action::latest(&mut conn, action::Of::Run(run), None, ACTIONS).await?;
            if cli.out.json {
                let told = halts.iter().take(why::TOLD);
                let told = told.map(|it| HaltJson::of(&it.fact, it.explanation.as_deref()));
                return cli.out.value(&WholeJson {
                    alone: AloneJson {
                        run: RunJson::of(&detail.run),
                        definition_was: detail.definition_was.as_deref(),
                        halts: told.collect(),
                        unreadable: unreadable.map(ToString::to_string),
                    },
                    steps: detail.steps.iter().map(StepJson::of).collect(),
                    actions: actions.iter().map(ActionJson::of).collect(),
                    truncated: detail.truncated.then_some(true),
                });
            }
            // The revival is an action in the run that was revived.
            let revival = match detail.run.revived_from {
                Some(from) => {
                    let of = action::Of::Run(from);
                    let actions = action::latest(&mut conn, of, None, ACTIONS).await?;
                    actions.into_iter().find(|it| it.made == Some(run))
                }
                None => None,
            };
            let wide = detail.truncated && self.limit.is_none();
            let (nodes, failed) = match wide {
                true => {
                    let nodes = waiting(READING, query::progress(&mut conn, run)).await?;
                    let failed = query::failed_steps(&mut conn, run, TROUBLED + 1);
                    let failed = waiting(READING, failed).await?;
                    let retried = waiting(READING, query::retried(&mut conn, run)).await?;
                    (page::of_progress(&nodes, &retried), failed)
                }
                false => (page::by_node(&detail.steps), Vec::new()),
            };
            let (troubled, more) = troubled(if wide { &failed } else { &detail.steps });
            let mut placed = Vec::new();
            for step in troubled {
                placed.push((step, query::spreads(&mut conn, step.branch_id).await?));
            }
            let asks = |step: &&StepRow| step.status == StepStatus::Waiting;
            let asked = match detail.steps.iter().any(|step| asks(&step)) {
                true => resume::asked(&mut conn, run).await?,
                false => Vec::new(),
            };
            let mut waiting = Vec::new();
            for step in detail.steps.iter().filter(asks).take(TROUBLED) {
                let spreads = query::spreads(&mut conn, step.branch_id).await?;
                let asked = asked.iter().find(|it| it.step_id == step.id);
                let deadline = asked.and_then(|it| it.deadline.as_ref());
                waiting.push((step, spreads, deadline));
            }
            let facts: Vec<_> = halts.iter().map(|halt| halt.fact.clone()).collect();
            let prospects = match detail.run.revived_as {
                None if !facts.is_empty() => {
                    let latest = cli.latest(&config, &detail.run.pipeline);
                    let latest = latest.as_ref().map_err(Clone::clone);
                    revive::prospects(&mut conn, run, latest).await?
                }
                _ => Prospects::default(),
            };
            let newest = match detail.run.revived_as {
                Some(next) => Some(newest(&mut conn, next).await?),
                None => None,
            };
            let mut text = page::draw(&page::Page {
                detail: &detail,
                newest,
                explained: why::explained(&halts),
                remedy: (!facts.is_empty())
                    .then(|| remedy(&facts, definition.as_deref().ok(), run, &prospects)),
                definition: definition.as_deref().ok(),
                nodes,
                is_summary: wide,
                troubled: placed,
                more,
                waiting,
                actions: &actions,
                revival: revival.as_ref(),
                columns: cli.out.columns(),
                glyphs: glyphs(),
            });
            if let Some(unreadable) = unreadable {
                let told = format!("its {unreadable}; {}", unreadable.remedy());
                text.push_str(&format!("{}\n", out::clean(&told)));
            }
            if goes_on
                && let Some(pause) = pause::of_pipeline(&mut conn, &detail.run.pipeline).await?
            {
                let fact = pause.fact(query::now(&mut conn).await?);
                text.push_str(&format!("{}\n", out::clean(&fact)));
            }
            cli.out.text(&hint::pasteable(&text))
        })
    }
}

/// A payload of the run, in its stored text.
async fn payload(conn: &mut Conn, id: RunId, part: Part) -> Result<Box<RawValue>, Failure> {
    let text = waiting(READING, stored::payload_of_run(conn, id, part)).await?;
    let Some(text) = text else {
        let Some(run) = query::brief(conn, id).await? else {
            return Err(setup::no_run(&id.to_string()));
        };
        let (status, part) = (word(run.status), part.as_str());
        let problem = Problem::new(format!("the run {id} is {status} and has no {part}"));
        return Err(Failure::failed(
            problem.help("a run has an output once it has completed"),
        ));
    };
    let damaged = |problem: serde_json::Error| Error::Damaged {
        column: part.as_str(),
        entity: "run",
        id: id.0,
        problem: problem.to_string(),
    };
    Ok(RawValue::from_string(text).map_err(damaged)?)
}

/// The run as a picture.
async fn picture(conn: &mut Conn, id: RunId) -> Result<String, Failure> {
    let Some(run) = query::run_without_payloads(conn, id).await? else {
        return Err(setup::no_run(&id.to_string()));
    };
    let definition = Definitions::default().read(conn, &run.definition).await?;
    let definition = definition.map_err(|unreadable| {
        let problem = Problem::new(out::clean(&format!("its {unreadable}")));
        Failure::failed(problem.help(unreadable.remedy()))
    })?;
    let progress = waiting(READING, query::progress(conn, id)).await?;
    graph::draw(&run, &definition, &Progress::Nodes(progress)).ok_or_else(|| {
        let problem = Problem::new(format!("the definition of run {id} does not form a graph"));
        let help = "somebody has edited it in the database; without `--svg` its steps are listed";
        Failure::failed(problem.help(help))
    })
}

/// The steps with errors that are shown in full, failed ones first, and the number of the others.
fn troubled(steps: &[StepRow]) -> (Vec<&StepRow>, usize) {
    let mut troubled: Vec<&StepRow> = steps.iter().filter(|it| page::is_troubled(it)).collect();
    troubled.sort_by_key(|step| step.status != StepStatus::Failed);
    let more = troubled.len().saturating_sub(TROUBLED);
    troubled.truncate(TROUBLED);
    (troubled, more)
}
