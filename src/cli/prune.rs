//! `prune`: deletes runs that ended long ago.

use std::cell::Cell;
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use crate::problem::Problem;
use crate::store::{Purpose, prune};
use crate::time;

use super::exit::Failure;
use super::live::counted;
use super::patiently::patiently;
use super::setup::{self, CliContext};

/// Deletes old runs.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd prune --older-than 30d --dry-run
  ductworkd prune --older-than 30d   # says how many, and asks first
  ductworkd prune                    # what the daemon would delete by itself

Only runs that have ended are deleted, with everything that belongs to them. The records of actions,
of bulk actions and of processes that are gone go as well, if they are as old. `retention:` in the
configuration makes the daemon delete them by itself, and is also the age here unless --older-than
gives one. Without a terminal there is nobody to ask: then --older-than is enough, and without it
--yes is needed.
")]
pub struct Prune {
    /// Delete runs that ended at least this long ago [default: `retention` of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_in_units)]
    older_than: Option<Duration>,
    /// At most this many; of a run that was revived, the next deletion completes what this one has begun
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print how many runs would be deleted, and delete none; a run stays until the run that revived it is deleted
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Prune {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let Some(older_than) = self.older_than.or(config.retention) else {
            let problem = Problem::new("no age is given");
            return Err(Failure::usage(problem.help(
                "give --older-than 30d, or set `retention` in the configuration",
            )));
        };
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        // A script that names an age means it; nobody may have thought of the configuration's age.
        let sure = self.yes || (self.older_than.is_some() && !terminal);
        if !sure && !terminal && !self.dry_run {
            let problem = Problem::new("nothing was deleted: there is no terminal to confirm on");
            return Err(Failure::usage(problem.help(format!(
                "give --older-than 30d, or --yes for the `retention` of the configuration ({})",
                age(older_than)
            ))));
        }
        let limit = self.limit.unwrap_or(u64::MAX);
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            if self.dry_run {
                let old = prune::count(&mut conn, older_than).await?.min(limit);
                let said = match cli.out.json {
                    true => cli.out.value(&serde_json::json!({ "would_prune": old })),
                    false => cli.out.text(&format!(
                        "{} that ended more than {} ago would be deleted\n",
                        counted(old, "run"),
                        age(older_than)
                    )),
                };
                return said;
            }
            if !sure {
                let old = prune::count(&mut conn, older_than).await?.min(limit);
                if old > 0 && !confirmed(old, older_than, self.older_than.is_none()) {
                    return Err(Failure::failed(Problem::new("nothing was deleted")));
                }
            }
            let count = Cell::new(0);
            let mut report = |runs| count.set(runs);
            let pruned = patiently(
                || match count.get() {
                    0 => "deleting: no run is gone yet; other sessions may hold locks on them"
                        .to_owned(),
                    runs => format!("deleting: {runs} runs"),
                },
                prune::prune_reporting(&mut conn, older_than, limit, &mut report),
            );
            let (pruned, failed) = match pruned.await {
                Ok(pruned) => (pruned, None),
                // Those that are gone are gone.
                Err(error) if count.get() == 0 => return Err(error.into()),
                Err(error) => (count.get(), Some(error)),
            };
            let told = match cli.out.json {
                true => cli.out.value(&serde_json::json!({ "pruned": pruned })),
                false => cli
                    .out
                    .text(&format!("{} deleted\n", counted(pruned, "run"))),
            };
            failed.map_or(told, |error| Err(error.into()))
        })
    }
}

/// An age in the form in which people write it: `30d`, not `30d 0h`.
fn age(of: Duration) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = of.as_secs();
    let even = |(unit, _): &&(u64, &str)| seconds >= *unit && seconds.is_multiple_of(*unit);
    match units.iter().find(even) {
        _ if of.is_zero() => "0s".to_owned(),
        Some((unit, name)) if of.subsec_nanos() == 0 => format!("{}{name}", seconds / unit),
        _ => time::span(of),
    }
}

/// The answer of the person at the terminal. The question goes to standard error: standard output is for the
/// result.
fn confirmed(old: u64, older_than: Duration, by_configuration: bool) -> bool {
    let (runs, age) = (counted(old, "run"), age(older_than));
    let of = match by_configuration {
        true => " (`retention` of the configuration)",
        false => "",
    };
    eprint!(
        "Delete {runs} that ended more than {age} ago{of}, with {} steps and logs? [y/N] ",
        if old == 1 { "its" } else { "their" },
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    // An answer that cannot be read is not a yes.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}
