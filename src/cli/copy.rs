//! `copy`: copies everything to another database, of any kind.

use std::cell::{Cell, RefCell};
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
use super::interrupt;
use super::live::counted;
use super::out::clean;
use super::patiently::patiently;
use super::setup::{self, CliContext};

/// Copies all that the configured database has to another one.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd copy --to postgres://ductwork@db.example/ductwork
  DUCTWORK_COPY_TO=postgres://… ductworkd copy   # no password in `ps`

Stop all daemons first, and let nobody trigger runs during the copy. The target database must be empty; it gets the
schema, and every row with its id and its times. The source database stays as it is. No program works with the target
until the copy is complete; if the source has changed meanwhile, `copy` fails. Then set `database.url` to the target, or the
variable that outranks it, and start the daemons again. Start none on the source: it bears no mark.
")]
pub struct Copy {
    /// The database to copy to, in the form of `database.url`
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
        // A relative path is relative to the shell's directory.
        let url = DatabaseUrl::parse(&self.to, Path::new(".")).map_err(|error| {
            Failure::usage(Problem::new(format!("`--to`: {}", error.message)).help(error.help))
        })?;
        let to = match url.sqlite_path() {
            Some(path) => Location::sqlite(path),
            None => Location::parse(url.expose())?,
        };
        let silent = RefCell::new(Vec::new());
        let copying = async {
            if from.identity() == to.identity() {
                let problem = Problem::new("`--to` names the configured database itself");
                return Err(Failure::usage(
                    problem.help("name another database, an empty one"),
                ));
            }
            let mut source = setup::connect(&config, Purpose::Query).await?;
            let rows = Cell::new(0);
            let mut report = |copied| rows.set(copied);
            // The kernel knows more about a process of this host than its heartbeats show: the process may be stopped,
            // and go on later.
            let me = Identity::current();
            let is_at_work = |row: &ProcessRow| {
                if proof::is_gone(&me, row) {
                    return false;
                }
                let is_at_work = me.would_know(&proof::identity(row)) || row.age < lease;
                let (name, mut silent) = (name(row), silent.borrow_mut());
                if !is_at_work && !silent.contains(&name) {
                    silent.push(name);
                }
                is_at_work
            };
            // SQLite makes the file of a database when it connects to it.
            if let Some(refused) = copy::hindrance(&mut source, &is_at_work).await? {
                return Ok(refused);
            }
            // The copy looks at them again, at its own moment.
            silent.borrow_mut().clear();
            let mut target = to.connect(Purpose::Query).await.map_err(of_target)?;
            let copied = patiently(
                || format!("copying: {} rows", grouped(rows.get())),
                copy::copy(&mut source, &mut target, &is_at_work, &mut report),
            );
            let copied = copied.await?;
            target.close().await;
            source.close().await;
            Ok(copied)
        };
        let copied = setup::block_on(async {
            let mut enough = interrupt::caught()?;
            tokio::select! {
                biased;
                _ = enough.recv() => Err(stopped(&url)),
                copied = copying => copied,
            }
        })?;
        let silent = silent.take();
        let (runs, rows) = match copied {
            Copied::Done { runs, rows } => (runs, rows),
            refused => return Err(Failure::failed(refusal(&refused, &url, lease))),
        };
        if cli.out.json {
            return cli
                .out
                .value(&json!({ "to": url.to_string(), "rows": rows, "silent": silent }));
        }
        let set = match config.database.is_from_variable() {
            true => format!(
                "set `{}` to it, because that outranks `database.url`",
                config.database.origin
            ),
            false => "set `database.url` to it".to_owned(),
        };
        cli.out.text(&format!(
            "copied {}, in {} rows, to {url}\n{set}; `ductworkd audit` checks every invariant there\n\
             the old database is not marked as copied: a daemon that is started there does the same work again\n",
            counted(runs, "run"),
            grouped(rows.values().sum()),
        ))?;
        if silent.is_empty() {
            return Ok(());
        }
        cli.out.text(&format!(
            "silent for longer than {}, and presumed dead: {}; make sure that none of them comes back: it would go on \
             working in the database that was copied\n",
            span(lease),
            listed(&silent)
        ))
    }
}

/// The error for a database that cannot be used, worded for the one that `--to` names.
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

fn stopped(to: &DatabaseUrl) -> Failure {
    let problem = Problem::new(format!(
        "stopped before the copy was complete: if {to} holds a part of it, no program works with that database"
    ));
    let help = "the source database is unchanged; make the copy again, to a fresh database";
    Failure::Problems(Code::Interrupted, Problems(vec![problem.help(help)]))
}

fn name(process: &ProcessRow) -> String {
    let host = clean(&process.host);
    format!("{} (pid {} on {host})", process.role.as_str(), process.pid)
}

/// The first of these names, and their number.
fn listed(names: &[String]) -> String {
    let few = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(3) {
        0 => few,
        more => format!("{few}, and {more} more"),
    }
}

fn refusal(refused: &Copied, to: &DatabaseUrl, lease: Duration) -> Problem {
    match refused {
        Copied::InUse(processes) => {
            let names: Vec<String> = processes.iter().map(name).collect();
            Problem::new(format!("the database is in use: {}", listed(&names))).help(format!(
                "stop all daemons and consoles; one that was killed on another host counts as running for {} after its \
                 last heartbeat (`supervisor.reaper_timeout`)",
                span(lease)
            ))
        }
        Copied::Newer(version) => Problem::new(format!(
            "the database is at version {version} of the schema, and this program is too old to copy all of it"
        ))
        .help("copy it with the newer ductworkd"),
        Copied::NotEmpty(table) => {
            Problem::new(format!("{to} is not empty: {table} has rows")).help("make the copy to a fresh database")
        }
        Copied::Outdated => Problem::new(format!(
            "{to} is out of date: a process worked in the source while it was copied, or somebody triggered, changed or \
             deleted something there; no program will work with this copy"
        ))
        .help("make sure that nobody does that, drop the copy, and make it again, to a fresh database"),
        Copied::Done { .. } => unreachable!("it was not refused"),
    }
}
