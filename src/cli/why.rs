//! `why`: the one fact that keeps a run from moving, and the remedy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::definition::Definition;
use crate::machine::halt::{HALTS_MAX, HaltFact};
use crate::machine::why::{Why as Answer, why};
use crate::model::{RunId, RunStatus};
use crate::problem::Problem;
use crate::process::identity::Identity;
use crate::process::proof;
use crate::store::definition::Definitions;
use crate::store::{Conn, Purpose, process, query, resume, revive};
use crate::wire::run::WhyJson;

use super::exit::Failure;
use super::follow;
use super::hint;
use super::out::{self, paint, short};
use super::patiently::waiting;
use super::setup::{self, CliContext};
use super::shot;

/// The number of values to decide on that are shown.
const ASKED: usize = 5;

/// The most characters of a fact that are shown: the message of an error has up to 8 KiB.
const FACT_MAX: usize = 500;

/// Explains a run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd why 5d91c07e
")]
pub struct Why {
    /// The run's id, or four or more of its first or last digits
    run: String,
}

impl Why {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let began = Instant::now();
            match self.look(cli, &config).await {
                Err(failure) => match setup::lock_in_the_way(&config, &failure, began).await {
                    Some(locked) => {
                        let help = locked.remedy();
                        Err(Failure::failed(Problem::new(locked.fact).help(help)))
                    }
                    None => Err(failure),
                },
                done => done,
            }
        })
    }

    async fn look(&self, cli: &CliContext, config: &Config) -> Result<(), Failure> {
        let mut conn = setup::connect(config, Purpose::Look).await?;
        let run = setup::find_run(&mut conn, &self.run).await?;
        let asked = asked(&mut conn, config, run, Some(cli));
        let Some((status, why)) = waiting("looking at the run", asked).await? else {
            return Err(setup::no_run(&run.to_string()));
        };
        if cli.out.json {
            let remedy = why.remedy.as_deref().map(hint::pasteable);
            return cli.out.value(&WhyJson::of(run, status, &why, remedy));
        }
        let mut text = format!("{}\n", told(&why.fact, run));
        if why.cause == "dampened" {
            let steps = resume::waiting(&mut conn, run).await?;
            for step in steps.iter().take(ASKED) {
                let place = follow::place(step, steps.len());
                text.push_str(&format!("  {place}\n"));
                for line in follow::decide(step, shot::style()) {
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
    }
}

/// A fact, and the command that prints all of it where only its beginning is shown.
fn told(fact: &str, run: RunId) -> String {
    let shown = short(fact, FACT_MAX);
    match shown == out::clean(fact) {
        true => shown,
        false => {
            let whole = hint::pasteable(&format!("ductworkd why {run} --json"));
            format!("{shown} (all of it: `{whole}`)")
        }
    }
}

/// The one fact that keeps a run; `None` when there is no such run.
pub async fn ask(conn: &mut Conn, config: &Config, run: RunId) -> Result<Option<Answer>, Failure> {
    Ok(asked(conn, config, run, None).await?.map(|(_, why)| why))
}

/// The same, and the run's state; of a halted run with its remedy as far as the pipeline's file decides it.
async fn asked(
    conn: &mut Conn,
    config: &Config,
    run: RunId,
    cli: Option<&CliContext>,
) -> Result<Option<(RunStatus, Answer)>, Failure> {
    let stale_after = config.supervisor.reaper_timeout;
    let definitions = Definitions::default();
    let facts = crate::store::why::facts(conn, run, stale_after, &definitions);
    let Some(mut facts) = facts.await? else {
        return Ok(None);
    };
    facts.is_for_programs = cli.is_some_and(|it| it.out.json);
    let processes = process::processes(conn).await?;
    let me = Identity::current();
    let locked = setup::locked_rows(conn, &processes, stale_after).await?;
    for process in &mut facts.processes {
        let row = processes.iter().find(|row| row.id == process.id);
        process.dead = row.is_some_and(|row| proof::is_dead(&me, row));
        process.stopped = row.is_some_and(|row| me.is_stopped(&proof::identity(row)));
        if locked.contains(&process.id) {
            process.age = Duration::ZERO;
        }
    }
    if facts.status == RunStatus::Halted
        && facts.revived_as.is_none()
        && let Some(cli) = cli
    {
        let latest = cli.latest(config, &facts.pipeline);
        let latest = latest.as_ref().map_err(Clone::clone);
        facts.prospects = revive::prospects(conn, run, latest).await?;
    }
    let pipeline = facts.pipeline.clone();
    facts.limit(|step| config.job_worker.timeout(&pipeline, step).is_some());
    let mut why = why(&facts);
    // An obstacle stops every run that could move, so this reason replaces the other.
    if !facts.status.is_terminal()
        && let Some(obstacle) = setup::obstacle(conn, config, &processes).await?
    {
        why.cause = match obstacle.writer {
            Some(_) => "write_lock_held",
            None => "not_writable",
        };
        why.fact = obstacle.fact;
        let fix =
            "fix that; a running daemon goes on by itself; if none is running, start `ductworkd`";
        why.remedy = obstacle.remedy.or_else(|| Some(fix.to_owned()));
    }
    Ok(Some((facts.status, why)))
}

/// A branch that halted, with the explanation.
pub struct Halt {
    /// The place and the reason.
    pub fact: HaltFact,
    /// The explanation in words.
    pub explanation: Option<String>,
}

/// The number of a run's halts that are shown.
pub const TOLD: usize = 5;

/// The definition with which a run began; none if the run is gone, or this version cannot read it.
pub async fn own_definition(
    conn: &mut Conn,
    run: RunId,
) -> Result<Option<Arc<Definition>>, Failure> {
    let Some(digest) = query::definition_of(conn, run).await? else {
        return Ok(None);
    };
    Ok(Definitions::default().read(conn, &digest).await?.ok())
}

/// The halts of a run that its remedy counts, explained by its definition.
pub async fn halts(
    conn: &mut Conn,
    run: RunId,
    definition: Option<&Definition>,
) -> Result<Vec<Halt>, Failure> {
    let facts = crate::store::why::halts(conn, run, HALTS_MAX).await?;
    let halts = facts.into_iter().map(|fact| Halt {
        explanation: fact.explanation(definition),
        fact,
    });
    Ok(halts.collect())
}

/// The first halts that no failed step shows, one line for each.
pub fn explained(halts: &[Halt]) -> String {
    let mut text = String::new();
    let mut halts = halts.iter().filter(|halt| !halt.fact.is_of_step());
    for halt in halts.by_ref().take(TOLD) {
        let (node, reason) = (&halt.fact.node, &halt.fact.reason);
        let explanation = halt
            .explanation
            .as_deref()
            .unwrap_or("nothing more is known");
        let line = format!("{reason} at {node}: {explanation}");
        text.push_str(&format!("{}\n", paint(out::BAD, &out::clean(&line))));
    }
    if halts.next().is_some() {
        text.push_str("and more\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_fact_is_shown_up_to_500_characters_with_the_command_that_prints_all_of_it() {
        let run = RunId::new();
        let fits = "é".repeat(FACT_MAX);
        assert_eq!(told(&fits, run), fits);
        let long = told(&"é".repeat(8 * 1024), run);
        let command = format!("`ductworkd why {} --json`", crate::model::short(run));
        assert_eq!(long, format!("{fits}… (all of it: {command})"));
    }
}
