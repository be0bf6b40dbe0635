//! `cancel`: a run ends for good.

use std::cell::Cell;

use serde_json::json;

use crate::model::RunStatus;
use crate::store::{Purpose, cancel, query};

use super::exit::Failure;
use super::patiently::patiently;
use super::person;
use super::setup::{self, CliContext};

/// Ends a run for good.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd cancel 5d91c07e

A run of many branches is cancelled in batches. If the cancellation is interrupted, a daemon finishes
it, or the same command does when it is given again.
")]
pub struct Cancel {
    /// The run's id, or four or more of its first or last digits
    run: String,
    /// The person who cancels it [default: your user name and this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Cancel {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let by = person::actor(self.by)?;
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let before = query::brief(&mut conn, run).await?;
            let was_active = before.is_some_and(|before| !before.status.is_terminal());
            let (count, locked) = (Cell::new(0_usize), Cell::new(false));
            let mut report = |closed: usize| {
                locked.set(closed == count.get());
                count.set(closed);
            };
            let cancelled = patiently(
                || match (count.get(), locked.get()) {
                    (0, false) => "cancelling".to_owned(),
                    (branches, false) => format!("cancelling: {branches} branches"),
                    (0, true) => "waiting for other sessions, which have locked the run's branches"
                        .to_owned(),
                    (branches, true) => format!(
                        "cancelling: {branches} branches; waiting for other sessions, which have locked the next ones"
                    ),
                },
                cancel::cancel_by(
                    &mut conn,
                    run,
                    cancel::BATCH,
                    Some(by),
                    cancel::PATIENCE,
                    &mut report,
                ),
            );
            let cancelled = cancelled.await;
            let stopping = match cancelled? {
                cancel::Cancel::Done { held } => held.len(),
                // Somebody else made the same request first.
                cancel::Cancel::NotActive(RunStatus::Cancelled) if was_active => 0,
                cancel::Cancel::NotFound => return Err(setup::no_run(&run.to_string())),
                cancel::Cancel::NotActive(status) => {
                    return Err(setup::has_ended(&mut conn, run, status, "cancel").await?);
                }
            };
            // A process that runs a step of the run learns of this at its next beat at the latest.
            setup::wake_for(&mut conn, &config, run).await;
            match cli.out.json {
                true => cli.out.value(&json!({
                    "run_id": run, "status": RunStatus::Cancelled, "processes": stopping,
                })),
                false => cli.out.text(&format!("{run} cancelled\n")),
            }
        })
    }
}
