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
  ductworkd prune                    # the same, of what the daemon would delete by itself

Only runs that have ended are deleted, with all that belongs to them. `retention:` in the
configuration makes the daemon do so by itself, and is the age here as well where --older-than
names none. Without a terminal there is nobody to ask: then --older-than is enough, and without
it --yes is needed.
")]
pub struct Prune {
    /// How long ago they ended, at least [default: `retention` of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    older_than: Option<Duration>,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Say how many would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Prune {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let Some(older_than) = self.older_than.or(config.retention) else {
            let problem = Problem::new("how old is old?");
            return Err(Failure::usage(problem.help(
                "give --older-than 30d, or set `retention` in the configuration",
            )));
        };
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        // A script that names an age means it; that of the configuration may be nobody's thought.
        let sure = self.yes || (self.older_than.is_some() && !terminal);
        if !sure && !terminal && !self.dry_run {
            let problem = Problem::new("nothing was deleted: there is nobody to ask");
            return Err(Failure::usage(problem.help(format!(
                "give --older-than 30d, or --yes for the `retention` of the configuration ({})",
                time::span(older_than)
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
                        "{} would be deleted: ended at least {} ago\n",
                        counted(old, "run"),
                        time::span(older_than)
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
                    0 => {
                        "deleting: no run is gone yet, others may have locked what runs consist of"
                            .to_owned()
                    }
                    runs => format!("deleting: {runs} runs"),
                },
                prune::prune_reporting(&mut conn, older_than, limit, &mut report),
            );
            let pruned = pruned.await?;
            match cli.out.json {
                true => cli.out.value(&serde_json::json!({ "pruned": pruned })),
                false => cli
                    .out
                    .text(&format!("{} deleted\n", counted(pruned, "run"))),
            }
        })
    }
}

/// The answer of the person at the terminal. Asked on standard error: the other is for the result.
fn confirmed(old: u64, older_than: Duration, by_configuration: bool) -> bool {
    let (runs, age) = (counted(old, "run"), time::span(older_than));
    let of = match by_configuration {
        true => " (`retention` of the configuration)",
        false => "",
    };
    eprint!(
        "{runs} ended at least {age} ago{of}.\n\
         Delete {}, with all that belongs to {}? [y/N] ",
        if old == 1 { "it" } else { "them" },
        if old == 1 { "it" } else { "them" },
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    // An answer that cannot be read is no yes.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}
