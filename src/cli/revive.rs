//! `revive`: a halted run goes on as a new one.

use serde_json::json;

use crate::problem::Problem;
use crate::store::{Purpose, revive};

use super::exit::Failure;
use super::setup::{self, CliContext};

/// Continues a halted run as a new one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd revive 0192f3a1
  ductworkd runs --status halted --json | jq -r '.[].id' | xargs -n1 ductworkd revive

The new run begins where the other halted: no completed step runs again.
")]
pub struct Revive {
    /// The run's id, or the first digits of it
    run: String,
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
            let pipeline = setup::wake_for(&mut conn, &config, revived).await?;
            match cli.out.json {
                true => cli.out.value(&json!({
                    "run_id": revived, "pipeline": pipeline, "revived_from": run,
                })),
                false => cli.out.text(&format!("{revived}\n")),
            }
        })
    }
}
