//! `prune`: deletes runs that ended long ago.

use std::time::Duration;

use crate::problem::Problem;
use crate::store::{Purpose, prune};

use super::exit::Failure;
use super::house::{self, House};

/// Deletes old runs.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd prune --older-than 30d

Only runs that have ended are deleted, with all that belongs to them. `retention:` in the
configuration makes the daemon do so by itself.
")]
pub struct Prune {
    /// How long ago they ended, at least [default: `retention` of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    older_than: Option<Duration>,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

impl Prune {
    pub fn execute(self, house: &House) -> Result<(), Failure> {
        let config = house.config()?;
        let Some(older_than) = self.older_than.or(config.retention) else {
            let problem = Problem::new("how old is old?");
            return Err(Failure::usage(problem.help(
                "give --older-than 30d, or set `retention` in the configuration",
            )));
        };
        house::block_on(async {
            let mut conn = house::connect(&config, Purpose::Engine).await?;
            let pruned =
                prune::prune(&mut conn, older_than, self.limit.unwrap_or(u64::MAX)).await?;
            match house.out.json {
                true => house.out.value(&serde_json::json!({ "pruned": pruned })),
                false => house.out.text(&format!("{pruned} runs deleted\n")),
            }
        })
    }
}
