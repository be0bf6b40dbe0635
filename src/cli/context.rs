//! `context`: the key/value store that the steps of a run share.

use serde_json::json;

use crate::model::{RunId, RunStatus};
use crate::problem::{Problem, Problems};
use crate::step::socket::{self, Address, ask};
use crate::store::{Conn, Purpose, context, query};
use crate::telemetry;

use super::exit::{Code, Failure};
use super::follow::say;
use super::out::short;
use super::setup::{self, CliContext};

/// Names the run inside a step.
const RUN_VARIABLE: &str = "DUCTWORK_RUN_ID";

/// The greatest possible `job_worker.max_payload`.
const MAX_PAYLOAD: u64 = 256 << 20;

/// Reads and writes the context of a run.
#[derive(Debug, clap::Args)]
#[command(
    before_long_help = "Examples:
  ductworkd context set cursor '{\"page\":3}'        # inside a step
  ductworkd context get cursor --run 5d91c07e
  ductworkd context list --json
",
    after_help = "Inside a step, the worker that runs the step answers for the step's own run (DUCTWORK_CONTEXT says \
                  where), so the step needs neither the configuration nor the database. A step that its worker has \
                  lost sets nothing. For another run, and outside a step, the verb asks the database."
)]
pub struct Context {
    /// The run's id, or four or more of its first or last digits [default: the run of the step, $DUCTWORK_RUN_ID]
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
        let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        let own = variable(socket::VARIABLE).and_then(|text| Address::parse(&text));
        let named = variable(RUN_VARIABLE).map(|run| run.to_string_lossy().into_owned());
        let run = self.run.or(named);
        if let Verb::Get { key } | Verb::Set { key, .. } = &self.verb {
            check(key)?;
        }
        match (own, run) {
            (Some(own), None) => of_worker(cli, &own, self.verb),
            (Some(own), Some(run)) if run.parse() == Ok(own.run) => of_worker(cli, &own, self.verb),
            (_, Some(run)) => of_database(cli, &run, self.verb),
            (None, None) => {
                let problem = Problem::new("no run given");
                let help = format!("add --run RUN (inside a step it is taken from {RUN_VARIABLE})");
                Err(Failure::usage(problem.help(help)))
            }
        }
    }
}

/// Inside a step, this needs neither the configuration nor the database.
fn of_worker(cli: &CliContext, own: &Address, verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Get { key } => got(cli, own.run, &key, ask::get(own, &key)?),
        Verb::List => listed(cli, &ask::list(own)?),
        Verb::Set { key, value } => {
            // The worker knows the limit.
            let value = setup::value(&value, MAX_PAYLOAD)?;
            Ok(ask::set(own, &key, value.get())?)
        }
    }
}

fn of_database(cli: &CliContext, run: &str, verb: Verb) -> Result<(), Failure> {
    let config = cli.config()?;
    setup::block_on_telling(&config, async {
        let mut conn = setup::connect(&config, Purpose::Engine).await?;
        let run = setup::find_run(&mut conn, run).await?;
        match verb {
            Verb::Get { key } => {
                let tuple = context::get(&mut conn, run, &key).await?;
                got(cli, run, &key, tuple.map(|tuple| tuple.value))
            }
            Verb::List => listed(cli, &all(&mut conn, run).await?),
            Verb::Set { key, value } => {
                let state = query::brief(&mut conn, run).await?;
                let Some(state) = state else {
                    return Err(setup::no_run(&run.to_string()));
                };
                let max = config.job_worker.max_payload(&state.pipeline);
                let value = setup::value(&value, max)?;
                if !context::set(&mut conn, run, &key, value.get()).await? {
                    return Err(setup::no_run(&run.to_string()));
                }
                // A halted run may be revived.
                if matches!(state.status, RunStatus::Completed | RunStatus::Cancelled) {
                    say(&format!(
                        "note: the run has ended ({}), so at most a hook will read this value",
                        state.status
                    ));
                }
                Ok(())
            }
        }
    })
}

impl From<ask::Error> for Failure {
    fn from(error: ask::Error) -> Self {
        let problem = Problem::new(telemetry::chain(&error));
        let (code, help) = match error {
            ask::Error::Refused(_) => (Code::Failed, None),
            ask::Error::Late => (
                Code::Unavailable,
                Some(
                    "the database may be unreachable, or the step sends too many requests at once",
                ),
            ),
            ask::Error::Gone(_) => (
                Code::Unavailable,
                Some("after the death of a worker, another one runs the step again"),
            ),
        };
        let problem = match help {
            Some(help) => problem.help(help),
            None => problem,
        };
        Self::Problems(code, Problems(vec![problem]))
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

fn got(cli: &CliContext, run: RunId, key: &str, value: Option<String>) -> Result<(), Failure> {
    match value {
        Some(value) => cli.out.text(&format!("{value}\n")),
        None => {
            let problem = Problem::new(format!(
                "the key `{}` is not set in the run {run}",
                short(key, 60)
            ));
            Err(Failure::failed(problem.help(format!(
                "`ductworkd context list --run {run}` shows those that are"
            ))))
        }
    }
}

async fn all(conn: &mut Conn, run: RunId) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = context::list(conn, run, &after).await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after.clone_from(&last.key);
        all.extend(page.into_iter().map(|tuple| (tuple.key, tuple.value)));
    }
}

fn listed(cli: &CliContext, tuples: &[(String, String)]) -> Result<(), Failure> {
    if cli.out.json {
        let mut all = serde_json::Map::new();
        for (key, value) in tuples {
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            all.insert(key.clone(), value);
        }
        return cli.out.value(&all);
    }
    if tuples.is_empty() {
        say("no values are set");
    }
    let line =
        |(key, value): &(String, String)| format!("{}\t{value}\n", short(key, context::MAX_KEY));
    cli.out.text(&tuples.iter().map(line).collect::<String>())
}
