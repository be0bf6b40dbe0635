//! `watch`: the live view of a run on which a daemon works.

use std::process::ExitCode;

use crate::model::RunStatus;
use crate::problem::Problem;
use crate::store::Purpose;
use crate::store::definition::Definitions;
use crate::store::query;

use super::exit::{Code, Failure, verdict};
use super::follow::{self, Follow, View, is_drawable};
use super::interrupt;
use super::live::Screen;
use super::outage::Outages;
use super::setup::{self, CliContext};
use super::trigger::{Answer, halted};
use super::{shot, terminal};

/// Watches a run until it ends.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd watch 5d91c07e
  ductworkd watch 5d91c07e > output.json   # the output, once it has completed

The command ends when the run ends, with 0 if the run completed and with 1 if it did not. It watches a run that \
waits for a person until somebody answers. Ctrl-C ends the command with 130; the run goes on. If the database goes \
away, the command waits for it, five minutes at most.
")]
pub struct Watch {
    /// The run's id, or four or more of its first or last digits
    run: String,
}

impl Watch {
    pub fn execute(self, cli: &CliContext) -> Result<ExitCode, Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let Some(found) = query::run_without_payloads(&mut conn, run).await? else {
                return Err(setup::no_run(&run.to_string()));
            };
            let definitions = Definitions::default();
            let definition = definitions.read(&mut conn, &found.definition).await?;
            let definition = definition.map_err(|unreadable| {
                let problem = Problem::new(format!("its {unreadable}"));
                Failure::failed(problem.help(unreadable.remedy()))
            })?;
            let how = Follow {
                run,
                definition: &definition,
                latest: Ok(&definition),
                style: shot::style(),
                patient: true,
                others: Some(&config),
            };
            let screen = match !cli.out.json && is_drawable() {
                true => Some(Screen::on(terminal::stderr()?)),
                false => None,
            };
            let mut outages = Outages::new(config.location()?);
            let now = query::now(&mut conn).await?;
            let mut enough = interrupt::caught()?;
            let status = {
                let mut view = View::new(&how, screen, None).of(&found, now);
                tokio::select! {
                    biased;
                    _ = enough.recv() => {
                        if cli.out.json {
                            return Err(follow::interrupted(run));
                        }
                        follow::say(&format!("the run goes on; ductworkd watch {run} shows it again"));
                        return Ok(ExitCode::from(Code::Interrupted as u8));
                    }
                    status = follow::to_rest(&mut conn, &how, &mut view, &|| false, &mut outages) => status?,
                }
            };
            // Perhaps somebody has changed the file meanwhile.
            let latest = match status {
                Some(RunStatus::Halted) => Some(cli.latest(&config, &found.pipeline)),
                _ => None,
            };
            let latest = latest.as_ref().map(Result::as_ref);
            let how = Follow {
                latest: latest.map_or(Ok(&*definition), |it| it.map_err(Clone::clone)),
                ..how
            };
            let state = query::run_state(&mut conn, run).await?;
            let printed = match state.and_then(|state| state.output) {
                output if cli.out.json => cli.out.value(&Answer {
                    run_id: run,
                    revived_as: None,
                    pipeline: &found.pipeline,
                    created: None,
                    status,
                    due_at: None,
                    output,
                    halts: halted(&mut conn, run, status).await?,
                }),
                Some(output) => cli.out.result(&output),
                None => Ok(()),
            };
            verdict(printed, follow::report(&mut conn, &how, status).await)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}
