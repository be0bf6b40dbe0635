//! `copy`: everything to another database, of any kind.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::config::database::DatabaseUrl;
use crate::number::grouped;
use crate::problem::{Problem, Problems};
use crate::process::identity::Identity;
use crate::process::proof;
use crate::store::copy::{self, Copied};
use crate::store::process::ProcessRow;
use crate::store::{self, Location, Purpose};
use crate::telemetry::chain;
use crate::time::span;

use super::exit::{Code, Failure};
use super::live::counted;
use super::patiently::patiently;
use super::setup::{self, CliContext};

/// Copies all that the configured database has to another one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd copy --to postgres://ductwork@db.example/ductwork
  DUCTWORK_COPY_TO=postgres://… ductworkd copy         # a password stays out of the list of processes

Stop all daemons before, and let nobody trigger runs meanwhile. The other database has to be empty; it gets the
schema, and every row with its id and its times. The database that is copied stays as it is. Until the copy is
complete no program works with it. When it is, set `database.url` to it, and start the daemons again.
")]
pub struct Copy {
    /// The database that gets the copy, as `database.url` would name it
    #[arg(
        long,
        value_name = "URL",
        env = "DUCTWORK_COPY_TO",
        hide_env_values = true
    )]
    to: String,
}

impl Copy {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        let from = config.location()?;
        let lease = config.supervisor.reaper_timeout;
        // As a path of the shell is meant.
        let url = DatabaseUrl::parse(&self.to, Path::new(".")).map_err(|error| {
            Failure::usage(Problem::new(format!("`--to`: {}", error.message)).help(error.help))
        })?;
        let to = match url.sqlite_path() {
            Some(path) => Location::sqlite(path),
            None => Location::parse(url.expose())?,
        };
        let copied = setup::block_on(async {
            let mut source = setup::connect(&config, Purpose::Query).await?;
            if from.identity() == to.identity() {
                let problem = Problem::new("`--to` names the configured database itself");
                return Err(Failure::usage(
                    problem.help("name another one, which is empty"),
                ));
            }
            let mut target = to.connect(Purpose::Query).await.map_err(of_target)?;
            let rows = Cell::new(0);
            let mut report = |copied| rows.set(copied);
            // Of a process of this host the kernel knows more than its heartbeats tell: it may stand still, and go on.
            let me = Identity::current();
            let is_at_work = |row: &ProcessRow| {
                !proof::is_gone(&me, row)
                    && (me.would_know(&proof::identity(row)) || row.age < lease)
            };
            let copied = patiently(
                || format!("copying: {} rows", grouped(rows.get())),
                copy::copy(&mut source, &mut target, &is_at_work, &mut report),
            );
            let copied = copied.await?;
            target.close().await;
            source.close().await;
            Ok(copied)
        })?;
        let (runs, rows) = match copied {
            Copied::Done { runs, rows } => (runs, rows),
            refused => return Err(Failure::failed(refusal(&refused, &url, lease))),
        };
        if cli.out.json {
            return cli
                .out
                .value(&json!({ "to": url.to_string(), "rows": rows }));
        }
        cli.out.text(&format!(
            "copied {}, in {} rows, to {url}\nset `database.url` to it; `ductworkd audit` checks every invariant there\n",
            counted(runs, "run"),
            grouped(rows.values().sum()),
        ))
    }
}

/// A database that cannot be used, in the words for one that `--to` names.
fn of_target(error: store::Error) -> Failure {
    let remedy = match &error {
        store::Error::Unavailable { source, .. } | store::Error::Hindered { source, .. } => {
            source.remedy().replace("`database.url`", "`--to`")
        }
        _ => return Failure::from(error),
    };
    let problem = Problem::new(format!("`--to`: {}", chain(&error))).help(remedy);
    Failure::Problems(Code::Unavailable, Problems(vec![problem]))
}

fn refusal(refused: &Copied, to: &DatabaseUrl, lease: Duration) -> Problem {
    match refused {
        Copied::InUse(processes) => {
            let names = processes.iter().take(3).map(|process| {
                format!("{} (pid {} on {})", process.role.as_str(), process.pid, process.host)
            });
            let names = names.collect::<Vec<_>>().join(", ");
            let more = processes.len().saturating_sub(3);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            Problem::new(format!("the database is in use: {names}{more}")).help(format!(
                "stop all daemons and consoles; one that was killed on another host counts for {} after its \
                 last heartbeat (`supervisor.reaper_timeout`)",
                span(lease)
            ))
        }
        Copied::Newer(version) => Problem::new(format!(
            "the database is at version {version} of the schema, of which this program would not copy everything"
        ))
        .help("copy it with the newer ductworkd"),
        Copied::NotEmpty(table) => {
            Problem::new(format!("{to} is not empty: {table} has rows")).help("make the copy to a fresh database")
        }
        Copied::Done { .. } => unreachable!("it was not refused"),
    }
}
