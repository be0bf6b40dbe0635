//! `context`: the key/value store that the steps of a run share.

use serde_json::json;

use crate::model::RunId;
use crate::problem::Problem;
use crate::store::{Conn, Purpose, context, query};

use super::exit::Failure;
use super::out::short;
use super::setup::{self, CliContext};

/// Names the run inside of a step.
const RUN_VARIABLE: &str = "DUCTWORK_RUN_ID";

/// Reads and writes the context of a run.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd context set cursor '{\"page\":3}'        # inside a step
  ductworkd context get cursor --run 0192f3a1
  ductworkd context list --json
")]
pub struct Context {
    /// The run's id, or the first digits of it [default: $DUCTWORK_RUN_ID]
    #[arg(long, global = true, value_name = "RUN")]
    run: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print the value of a key; exit 1 when it is not set
    Get {
        /// The key
        key: String,
    },
    /// Set a key to one JSON value
    Set {
        /// The key
        key: String,
        /// One JSON value, or `-` for standard input
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// Print all keys and values
    List,
}

impl Context {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let variable = || {
            std::env::var(RUN_VARIABLE)
                .ok()
                .filter(|run| !run.is_empty())
        };
        let Some(run) = self.run.or_else(variable) else {
            let problem = Problem::new("which run?");
            let help = format!("give --run RUN; inside of a step {RUN_VARIABLE} says it");
            return Err(Failure::usage(problem.help(help)));
        };
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Engine).await?;
            let run = setup::find_run(&mut conn, &run).await?;
            match self.verb {
                Verb::Get { key } => get(cli, &mut conn, run, &key).await,
                Verb::List => list(cli, &mut conn, run).await,
                Verb::Set { key, value } => {
                    check(&key)?;
                    let state = query::run_state(&mut conn, run).await?;
                    let pipeline = state.map(|state| state.pipeline).unwrap_or_default();
                    let value =
                        setup::json(&value, "value", config.job_worker.max_payload(&pipeline))?;
                    match context::set(&mut conn, run, &key, value.get()).await? {
                        true => Ok(()),
                        false => Err(setup::no_run(&run.to_string())),
                    }
                }
            }
        })
    }
}

fn check(key: &str) -> Result<(), Failure> {
    match key.chars().count() {
        1..=context::MAX_KEY => Ok(()),
        _ => Err(Failure::usage(Problem::new(format!(
            "a key has 1 to {} characters",
            context::MAX_KEY
        )))),
    }
}

async fn get(cli: &CliContext, conn: &mut Conn, run: RunId, key: &str) -> Result<(), Failure> {
    match context::get(conn, run, key).await? {
        Some(tuple) => cli.out.text(&format!("{}\n", tuple.value)),
        None => {
            let problem = Problem::new(format!(
                "the key `{}` is not set in the run {run}",
                short(key, 60)
            ));
            Err(Failure::failed(
                problem.help("`ductworkd context list` shows those that are"),
            ))
        }
    }
}

async fn list(cli: &CliContext, conn: &mut Conn, run: RunId) -> Result<(), Failure> {
    let mut tuples = Vec::new();
    let mut after = String::new();
    loop {
        let page = context::list(conn, run, &after).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.key);
        tuples.extend(page);
    }
    if cli.out.json {
        let mut all = serde_json::Map::new();
        for tuple in tuples {
            let value = serde_json::from_str(&tuple.value).unwrap_or_else(|_| json!(tuple.value));
            all.insert(tuple.key, value);
        }
        return cli.out.value(&all);
    }
    let line = |tuple: &context::Tuple| {
        format!("{}\t{}\n", short(&tuple.key, context::MAX_KEY), tuple.value)
    };
    cli.out.text(&tuples.iter().map(line).collect::<String>())
}
