//! `pause` and `unpause`: nothing of a pipeline is claimed from its queue until the pause ends.

use serde::Serialize;

use crate::problem::Problem;
use crate::store::pause::{self, REASON_MAX, Unaware};
use crate::store::{Purpose, query};
use crate::wire::pipeline::PausedJson;

use super::exit::Failure;
use super::follow::say;
use super::out::clean;
use super::patiently::waiting;
use super::person;
use super::setup::{self, CliContext};

/// Stops the claims of a pipeline: what runs goes on to its end, and nothing more begins.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd pause Import --reason 'the warehouse moves until noon'
  ductworkd pause Import --reason 'bad feed' --by ana

Runs can still be triggered: they wait in the queue. A pipeline that is already paused stays as it
is, with its own reason. Hooks are steps of their pipeline, so they wait as well.
")]
pub struct Pause {
    /// The pipeline's name
    pipeline: String,
    /// The reason, in one line, for anyone who asks
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The person who pauses it [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Lets a paused pipeline go on.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd unpause Import
  ductworkd unpause Import --by ana
")]
pub struct Unpause {
    /// The pipeline's name
    pipeline: String,
    /// The person who unpauses it [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// The answer of `pause`, for programs.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    pause: PausedJson<'a>,
    /// False: it was paused before, and stays as it was.
    created: bool,
    /// Workers of an older version, which go on claiming.
    unaware: Vec<UnawareJson<'a>>,
}

#[derive(Serialize)]
struct UnawareJson<'a> {
    id: String,
    host: &'a str,
    pid: u32,
    version: &'a str,
}

impl Pause {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let reason = pause::reason_of(&self.reason).filter(|it| clean(it) == *it);
        let Some(reason) = reason else {
            let problem = Problem::new(format!(
                "a reason has up to {REASON_MAX} characters, at least one visible one, and no control characters"
            ));
            return Err(Failure::usage(problem.help(
                "say in one line why nothing is to begin: `--reason 'bad feed'`",
            )));
        };
        let by = person::actor(self.by)?;
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let pipeline = &self.pipeline;
            setup::known(&mut conn, &config, cli, pipeline).await?;
            let paused = pause::pause(&mut conn, pipeline, reason, &by);
            let paused = waiting("waiting for claims that are under way", paused).await?;
            // Processes that hold work that they have not begun put it back at once.
            setup::wake(&mut conn, &config.location()?, pipeline).await;
            for worker in &paused.unaware {
                say(&clean(&format!("note: {}", heedless(worker))));
            }
            if cli.out.json {
                let unaware = paused.unaware.iter().map(|worker| UnawareJson {
                    id: worker.id.to_string(),
                    host: &worker.host,
                    pid: worker.pid,
                    version: &worker.version,
                });
                return cli.out.value(&Answer {
                    pause: PausedJson::of(&paused.pause),
                    created: paused.created,
                    unaware: unaware.collect(),
                });
            }
            match paused.created {
                true => cli.out.text(&format!("{pipeline} paused\n")),
                false => {
                    let fact = paused.pause.fact(query::now(&mut conn).await?);
                    let note = "note: it was already paused, and keeps its reason; for another reason, unpause it first";
                    say(note);
                    cli.out.text(&format!("{}\n", clean(&fact)))
                }
            }
        })
    }
}

fn heedless(worker: &Unaware) -> String {
    let Unaware {
        pid, host, version, ..
    } = worker;
    format!(
        "the worker with pid {pid} on {host} has version {version}, which does not know pauses: it goes on claiming \
         until it is replaced"
    )
}

impl Unpause {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?;
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let pipeline = &self.pipeline;
            let unpaused = pause::unpause(&mut conn, pipeline, &by);
            let ended = waiting("waiting for workers that register", unpaused).await?;
            if ended.is_none() {
                setup::known(&mut conn, &config, cli, pipeline).await?;
            }
            // This also happens if the pipeline was not paused: the command that ended the pause may have died
            // before it woke anybody.
            setup::wake(&mut conn, &config.location()?, pipeline).await;
            if cli.out.json {
                return cli.out.value(&serde_json::json!({
                    "pipeline": pipeline, "was_paused": ended.as_ref().map(PausedJson::of),
                }));
            }
            cli.out.text(&match ended {
                Some(_) => format!("{pipeline} unpaused\n"),
                None => format!("{pipeline} was not paused\n"),
            })
        })
    }
}
