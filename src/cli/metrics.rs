//! `metrics`: all counts and measurements, for systems that collect text and have no console.

use crate::metrics::text::{Format, render};
use crate::metrics::{Reading, SNAPSHOT_AGE, json};
use crate::problem::Problem;
use crate::store::{Purpose, metrics};

use super::exit::Failure;
use super::setup::{self, CliContext};

/// Prints all metrics as Prometheus reads them: what every process of the database has counted, those that are
/// gone among them, and what there is at the moment.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd metrics | grep queue_
  ductworkd metrics > /var/lib/node_exporter/ductwork.prom.new
  ductworkd metrics --json | jq '.[] | select(.kind == \"gauge\") | .name'
")]
pub struct Metrics {
    /// Use the format of OpenMetrics
    #[arg(long)]
    openmetrics: bool,
}

impl Metrics {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        if cli.out.json && self.openmetrics {
            let problem = Problem::new("`--openmetrics` and `--json` exclude each other");
            return Err(Failure::usage(problem.help("leave one of the two out")));
        }
        let config = cli.config()?;
        let format = match self.openmetrics {
            true => Format::OpenMetrics,
            false => Format::Text,
        };
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let (counts, mut readings) = metrics::counts(&mut conn).await?;
            let lease = config.supervisor.reaper_timeout;
            readings.extend(metrics::readings(&mut conn, lease).await?);
            readings.extend(metrics::runs(&mut conn).await?);
            // The readings are as of this moment.
            readings.push(Reading::new(&SNAPSHOT_AGE, &[], 0.0));
            match cli.out.json {
                true => cli.out.value(&json::values(&counts, &readings)),
                false => cli.out.text(&render(&counts, &readings, format)),
            }
        })
    }
}
