//! `bulk`: the same deed in many runs, on which the console works: the progress of each bulk action,
//! and stopping it.

use uuid::Uuid;

use crate::machine::bulk::Selection;
use crate::model::short;
use crate::number::{grouped, whole};
use crate::problem::Problem;
use crate::store::bulk::{self, Bulk, Listed};
use crate::store::query::{self, FEWEST_DIGITS};
use crate::store::{Conn, Error, Purpose};
use crate::view;
use crate::wire::bulk::{BulkJson, ListedJson, StoppedJson};

use super::exit::Failure;
use super::follow::say;
use super::out::{self, Cell, clean};
use super::person;
use super::setup::{self, CliContext};

/// The longest name in a list, in characters.
const LETTERS: usize = 60;

/// The number of bulk actions that are searched for some digits.
const NEWEST: usize = 500;

/// List, show and stop bulk actions: revivals and the like of many runs.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd bulk list
  ductworkd bulk stop 0c1de001
  ductworkd bulk show 0c1de001 --json | jq .failures

A console carries them out; its pages and its API start them. Stopping a bulk action undoes nothing.
")]
pub struct BulkActions {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List bulk actions, newest first
    List {
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(1..=500))]
        limit: u32,
    },
    /// Show a bulk action, and the runs that it left unchanged
    Show {
        /// Its id, or four or more of its first or last digits
        id: String,
    },
    /// Stop a bulk action: no further run is changed
    Stop {
        /// Its id, or four or more of its first or last digits
        id: String,
        /// The person who stops it [default: your user name and this host]
        #[arg(long, value_name = "NAME")]
        by: Option<String>,
    },
}

impl BulkActions {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            match self.verb {
                Verb::List { limit } => {
                    let mut conn = setup::connect(&config, Purpose::Query).await?;
                    list(cli, &mut conn, limit as usize).await
                }
                Verb::Show { id } => {
                    let mut conn = setup::connect(&config, Purpose::Query).await?;
                    let id = find(&mut conn, &id).await?;
                    show(cli, &mut conn, id).await
                }
                Verb::Stop { id, by } => {
                    let by = person::actor(by)?;
                    let mut conn = setup::connect(&config, Purpose::Engine).await?;
                    let id = find(&mut conn, &id).await?;
                    stop(cli, &mut conn, id, &by.name).await
                }
            }
        })
    }
}

/// A bulk action by its id, or by digits with which only one id of the newest begins or ends.
async fn find(conn: &mut Conn, given: &str) -> Result<Uuid, Failure> {
    let shown = out::short(given, LETTERS);
    let Some(digits) = query::digits(given) else {
        let help = format!(
            "give an id, or at least {FEWEST_DIGITS} of its first or last hexadecimal digits; `ductworkd bulk list` lists them"
        );
        let problem = Problem::new(format!("`{shown}` is not the id of a bulk action"));
        return Err(Failure::usage(problem.help(help)));
    };
    if let Ok(id) = Uuid::try_parse(&digits) {
        return Ok(id);
    }
    let listed = bulk::latest(conn, None, NEWEST).await?;
    let ids = listed.iter().map(|it| match it {
        Listed::Bulk(bulk) => bulk.id,
        Listed::Unreadable(id) => *id,
    });
    let has = |id: &Uuid| {
        let id = id.simple().to_string();
        id.starts_with(&digits) || id.ends_with(&digits)
    };
    let found: Vec<Uuid> = ids.filter(has).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(missing(&shown)),
        [first, second, ..] => {
            let problem = Problem::new(format!(
                "several bulk actions have an id that begins or ends with `{shown}`"
            ));
            Err(Failure::failed(problem.help(format!(
                "give more digits; there are {first} and {second}"
            ))))
        }
    }
}

async fn list(cli: &CliContext, conn: &mut Conn, limit: usize) -> Result<(), Failure> {
    let mut listed = bulk::latest(conn, None, limit + 1).await?;
    let more = listed.len() > limit;
    listed.truncate(limit);
    if cli.out.json {
        let forms: Vec<ListedJson<'_>> = listed.iter().map(ListedJson::of).collect();
        return cli.out.value(&forms);
    }
    if listed.is_empty() {
        return cli.out.text("there are no bulk actions\n");
    }
    let now = query::now(conn).await?;
    let id = |id: Uuid| match cli.out.terminal {
        true => Cell::styled(short(id), out::BOLD),
        false => Cell::styled(id.to_string(), out::BOLD),
    };
    let row = |it: &Listed| match it {
        Listed::Bulk(bulk) => vec![
            id(bulk.id),
            Cell::new(bulk.verb.as_str()),
            state(bulk),
            Cell::new(grouped(bulk.done.unsigned_abs())),
            Cell::new(grouped(bulk.skipped.unsigned_abs())),
            Cell::new(grouped((bulk.failed - bulk.aside()).unsigned_abs())),
            Cell::new(out::short(&bulk.by, LETTERS)),
            Cell::new(cli.out.time(bulk.created_at, now)),
        ],
        Listed::Unreadable(unread) => vec![
            id(*unread),
            Cell::new(""),
            Cell::styled("unreadable", out::BAD),
        ],
    };
    let rows: Vec<Vec<Cell>> = listed.iter().map(row).collect();
    let headings = [
        "ID",
        "VERB",
        "STATE",
        "DONE",
        "NOTHING TO DO",
        "FAILED",
        "BY",
        "REQUESTED",
    ];
    let spare = ["NOTHING TO DO", "BY"];
    cli.out
        .text(&cli.out.table_with_ids(&headings, &rows, &spare))?;
    if more {
        say("note: there are older ones: `--limit` lists more");
    }
    Ok(())
}

fn state(bulk: &Bulk) -> Cell {
    match (bulk.ended_at, &bulk.stopped_by) {
        (None, _) => Cell::styled("at work", out::BUSY),
        (Some(_), None) => Cell::styled("ended", out::GOOD),
        (Some(_), Some(_)) => Cell::styled("stopped", out::DIM),
    }
}

async fn show(cli: &CliContext, conn: &mut Conn, id: Uuid) -> Result<(), Failure> {
    let found = match bulk::find(conn, id).await {
        Ok(found) => found.ok_or_else(|| missing(&id.to_string()))?,
        Err(Error::Corrupt(why)) => {
            let problem = Problem::new(out::short(&clean(&why), 5 * LETTERS));
            let help =
                "it is damaged, or of a newer version; `ductworkd bulk stop` ends it all the same";
            return Err(Failure::failed(problem.help(help)));
        }
        Err(error) => return Err(error.into()),
    };
    if cli.out.json {
        return cli.out.value(&BulkJson::of(&found));
    }
    let now = query::now(conn).await?;
    cli.out
        .text(&clean_lines(&lines(&found, |at| cli.out.time(at, now))))
}

/// A bulk action, line by line.
fn lines(bulk: &Bulk, time: impl Fn(i64) -> String) -> Vec<String> {
    let state = match (bulk.ended_at, &bulk.stopped_by) {
        (None, _) => "at work".to_owned(),
        (Some(at), None) => format!("ended {}", time(at)),
        (Some(at), Some(by)) => format!("stopped {} by {by}", time(at)),
    };
    let (runs, properties) = match &bulk.selection {
        Selection::Chosen(runs) => {
            let (n, s) = (runs.len(), if runs.len() == 1 { "" } else { "s" });
            (format!("{} chosen run{s}", grouped(n as u64)), Vec::new())
        }
        Selection::Matching(filter) => {
            let since = filter.since.map(|since| format!("since {}", time(since)));
            (
                "all runs that match:".to_owned(),
                view::filter(filter, since),
            )
        }
    };
    let count = |n: i64| grouped(n.unsigned_abs());
    let mut lines = vec![
        format!("{} {} {state}", bulk.id, bulk.verb),
        format!(
            "{:>14}  {} by {}",
            "asked for",
            time(bulk.created_at),
            bulk.by
        ),
        format!("{:>14}  {runs}", "of"),
    ];
    let properties = properties.iter();
    lines.extend(properties.map(|(name, text)| {
        let text = out::short(text, LETTERS);
        format!("{:>14}  {text}", name.to_lowercase())
    }));
    lines.extend([
        format!("{:>14}  {}", "done", count(bulk.done)),
        format!("{:>14}  {}", "nothing to do", count(bulk.skipped)),
        format!("{:>14}  {}", "failed", count(bulk.failed - bulk.aside())),
    ]);
    if bulk.aside() > 0 {
        let aside = count(bulk.aside());
        lines.push(format!("{:>14}  {aside}, to be tried again", "locked"));
    }
    let failures = bulk.failures.iter();
    lines.extend(failures.map(|it| format!("{} {}", it.run, it.why)));
    if bulk.failed > bulk.failures.len() as i64 {
        lines.push("these are the first of those that failed".to_owned());
    }
    lines
}

fn clean_lines(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("{}\n", clean(line)))
        .collect()
}

async fn stop(cli: &CliContext, conn: &mut Conn, id: Uuid, by: &str) -> Result<(), Failure> {
    let was_open = bulk::stop(conn, id, by).await?;
    if !was_open && !bulk::is_there(conn, id).await? {
        return Err(missing(&id.to_string()));
    }
    match (cli.out.json, was_open) {
        (true, _) => cli.out.value(&StoppedJson { was_open }),
        (false, true) => cli.out.text(&format!("{id} stopped\n")),
        (false, false) => cli.out.text(&format!("{id} had ended\n")),
    }
}

fn missing(id: &str) -> Failure {
    let problem = Problem::new(format!("there is no bulk action {id}"));
    let help = "`ductworkd bulk list` lists them; one that ended is deleted with the history";
    Failure::failed(problem.help(help))
}
