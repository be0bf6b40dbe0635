//! `why`: the one fact that keeps a run from moving, and the remedy.

use serde_json::json;

use crate::definition::Definition;
use crate::machine::halt::{self, HaltFact};
use crate::machine::why::why;
use crate::model::RunId;
use crate::process::identity::Identity;
use crate::process::proof;
use crate::store::definition::Definitions;
use crate::store::{Conn, Purpose, process, resume};

use super::exit::Failure;
use super::follow;
use super::hint;
use super::out::{self, paint};
use super::patiently::waiting;
use super::setup::{self, CliContext};
use super::shot;

/// Values to decide on that are shown.
const ASKED: usize = 5;

/// Explains a run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd why 5d91c07e
")]
pub struct Why {
    /// The run's id, or some of its first or last digits
    run: String,
}

impl Why {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let stale_after = config.supervisor.reaper_timeout;
            let definitions = Definitions::default();
            let facts = crate::store::why::facts(&mut conn, run, stale_after, &definitions);
            let facts = waiting("looking at the run", facts).await?;
            let Some(mut facts) = facts else {
                return Err(setup::no_run(&run.to_string()));
            };
            let processes = process::processes(&mut conn).await?;
            let me = Identity::current();
            for process in &mut facts.processes {
                let row = processes.iter().find(|row| row.id == process.id);
                process.dead = row.is_some_and(|row| proof::is_dead(&me, row));
            }
            let mut why = why(&facts);
            // Nothing moves then, whatever else there is to say of a run that could.
            if !facts.status.is_terminal()
                && let (Some(fact), writer) =
                    setup::obstacle(&mut conn, &config, &processes).await?
            {
                let (cause, remedy) = match writer {
                    Some(_) => (
                        "write_lock_held",
                        "wait until it has ended its transaction, or end it",
                    ),
                    None => (
                        "not_writable",
                        "mend that; a daemon that runs goes on by itself, and where none does, start `ductworkd`",
                    ),
                };
                (why.cause, why.fact, why.remedy) = (cause, fact, Some(remedy.to_owned()));
            }
            if cli.out.json {
                return cli.out.value(&json!({
                    "run_id": run,
                    "status": facts.status,
                    "cause": why.cause,
                    "fact": why.fact,
                    "remedy": why.remedy.as_deref().map(hint::pasteable),
                }));
            }
            let mut text = format!("{}\n", out::clean(&why.fact));
            if why.cause == "dampened" {
                for step in resume::waiting(&mut conn, run).await?.iter().take(ASKED) {
                    text.push_str(&format!("  {}\n", out::clean(&step.node)));
                    for line in follow::decide(&step.input, shot::style()) {
                        text.push_str(&format!("    {line}\n"));
                    }
                }
            }
            if let Some(remedy) = &why.remedy {
                text.push_str(&format!(
                    "{} {}\n",
                    paint(out::DIM, "remedy:"),
                    out::clean(&hint::pasteable(remedy))
                ));
            }
            cli.out.text(&text)
        })
    }
}

/// A branch that halted, and what there is to say of that.
pub struct Halt {
    /// Where and why.
    pub fact: HaltFact,
    /// The same in words.
    pub explanation: Option<String>,
}

/// Halts of a run that are told.
const TOLD: usize = 5;

/// The first halts of a run, explained by its definition.
pub async fn halts(
    conn: &mut Conn,
    run: RunId,
    definition: Option<&Definition>,
) -> Result<Vec<Halt>, Failure> {
    let facts = crate::store::why::halts(conn, run, TOLD).await?;
    let halts = facts.into_iter().map(|fact| Halt {
        explanation: fact.explanation(definition),
        fact,
    });
    Ok(halts.collect())
}

/// The halts that no failed step shows, a line for each, and the remedy of the run.
pub fn halted(halts: &[Halt], run: RunId, revived_as: Option<RunId>) -> String {
    let mut text = String::new();
    for halt in halts.iter().filter(|halt| !halt.fact.is_of_step()) {
        let (node, reason) = (&halt.fact.node, &halt.fact.reason);
        let explanation = halt
            .explanation
            .as_deref()
            .unwrap_or("nothing more is known");
        let line = format!("{reason} at {node}: {explanation}");
        text.push_str(&format!("{}\n", paint(out::BAD, &out::clean(&line))));
    }
    if !text.is_empty() {
        let facts: Vec<HaltFact> = halts.iter().map(|halt| halt.fact.clone()).collect();
        let remedy = match revived_as {
            Some(next) => format!("it was revived as {next}"),
            None => out::clean(&halt::remedy(&facts, run)),
        };
        text.push_str(&format!("{} {remedy}\n", paint(out::DIM, "remedy:")));
    }
    text
}
