//! `runs`: the list of runs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::config::Config;
use crate::model::*;
use crate::number::whole;
use crate::problem::Problem;
use crate::process::start;
use crate::store::list::{self, RunFilter};
use crate::store::query::{self, Run};
use crate::store::{Conn, Purpose, pause};
use crate::view::{remarks, took, word};
use crate::wire::run::RunJson;

use super::exit::Failure;
use super::follow::{self, is_drawable, say};
use super::interrupt;
use super::live::{Frame, Screen};
use super::out::{self, Cell, Out};
use super::outage::Outages;
use super::setup::{self, CliContext};
use super::{shot, terminal};

/// Lists runs.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd runs --status halted --since 1d
  ductworkd runs --pipeline Import --limit 100 --json | jq -r '.[].id'
")]
pub struct Runs {
    /// Only runs of this pipeline
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Only runs in this state; may be given several times
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = statuses())]
    status: Vec<RunStatus>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(1..=u32::MAX))]
    limit: u32,
    /// Only runs triggered within this time: `1h`, `7d`
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    since: Option<Duration>,
    /// Only runs older than this one: the last of the previous page
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
    /// Keep the list up to date until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// The pause between two looks at the list.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The longest payload that is read for the table, in bytes: it shows none, but says which runs are damaged.
const SHORT: i64 = 16 << 10;

impl Runs {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let before = match &self.before {
                Some(before) => Some(setup::find_run(&mut conn, before).await?),
                None => None,
            };
            let filter = RunFilter {
                pipeline: self.pipeline.as_deref(),
                statuses: &self.status,
                since: self.since,
                before,
                limit: self.limit as usize,
                key: None,
                whole: if cli.out.json { query::WHOLE } else { SHORT },
            };
            if self.watch {
                if !is_drawable() || cli.out.json {
                    let problem = Problem::new("`--watch` needs a terminal, and no --json");
                    return Err(Failure::usage(
                        problem.help("`ductworkd runs --json` lists them once"),
                    ));
                }
                let people = Out {
                    terminal: true,
                    ..cli.out
                };
                let outages = Outages::new(config.location()?);
                return watch(&mut conn, &filter, people, outages).await;
            }
            let runs = list::runs(&mut conn, &filter).await?;
            if runs.is_empty() {
                self.known(&mut conn, &config, cli).await?;
            }
            if cli.out.json {
                let runs: Vec<RunJson<'_>> = runs.iter().map(RunJson::of).collect();
                return cli.out.value(&runs);
            }
            let now = query::now(&mut conn).await?;
            for pause in pause::pauses(&mut conn).await? {
                let is_listed = runs.iter().any(|run| run.pipeline == pause.pipeline);
                if is_listed || self.pipeline.as_ref() == Some(&pause.pipeline) {
                    say(&out::clean(&format!("note: {}", pause.fact(now))));
                }
            }
            if runs.is_empty() {
                return cli.out.text("no runs\n");
            }
            cli.out.text(&as_text(&runs, cli.out, now))?;
            let last = runs.last().filter(|_| runs.len() == filter.limit);
            if let Some(last) = last
                && cli.out.terminal
            {
                let (n, last) = (runs.len(), last.id);
                say(&format!(
                    "note: this lists {n}; `--before {last}` lists older ones, if there are any"
                ));
            }
            Ok(())
        })
    }
}

impl Runs {
    /// Refuses a pipeline that is not known.
    async fn known(
        &self,
        conn: &mut Conn,
        config: &Config,
        cli: &CliContext,
    ) -> Result<(), Failure> {
        let Some(name) = self.pipeline.as_deref() else {
            return Ok(());
        };
        // If no pipeline is defined here, another host may define this one.
        let (here, _) = start::look(config, &cli.embedded);
        match here.is_empty() {
            true => Ok(()),
            false => setup::known(conn, config, cli, name).await,
        }
    }
}

/// The list as text.
fn as_text(runs: &[Run], to: Out, now: i64) -> String {
    let ids = ids(runs, to.terminal);
    let row = |run: &Run| {
        let tone = match run.due_at {
            Some(_) => out::DIM,
            None => out::BAD,
        };
        vec![
            Cell::new(&ids[&run.id]),
            Cell::styled(&run.pipeline, out::BOLD),
            Cell::styled(word(run.status), style(run.status)),
            Cell::new(to.time(run.triggered_at, now)),
            Cell::new(took(run.triggered_at, run.ended_at(), now)),
            Cell::styled(remarks(run, now), tone),
        ]
    };
    let rows: Vec<Vec<Cell>> = runs.iter().map(row).collect();
    let headings = ["RUN", "PIPELINE", "STATUS", "TRIGGERED", "TOOK", ""];
    to.table(&headings, &rows)
}

/// Draws the list over itself until a person ends that.
async fn watch(
    conn: &mut Conn,
    filter: &RunFilter<'_>,
    to: Out,
    mut outages: Outages,
) -> Result<(), Failure> {
    let terminal = terminal::stderr()?;
    let mut screen = Screen::on(terminal);
    // Signals are caught before the first picture, which says how to end this.
    let mut enough = interrupt::caught()?;
    let drawing = async {
        let mut frame = picture("");
        loop {
            let began = Instant::now();
            match listed(conn, filter, to).await {
                Ok(text) => {
                    frame = picture(&text);
                    screen.draw(&[], &frame);
                    tokio::time::sleep(follow::pause(began, WATCH_EVERY)).await;
                }
                Err(failure) => {
                    let mut tell = |note| screen.draw(&[note], &frame);
                    outages.ride_out(conn, failure, &mut tell).await?;
                }
            }
        }
    };
    tokio::select! {
        biased;
        _ = enough.recv() => Ok(()),
        failed = drawing => failed,
    }
}

/// The list as it is now.
async fn listed(conn: &mut Conn, filter: &RunFilter<'_>, to: Out) -> Result<String, Failure> {
    let runs = list::runs(conn, filter).await?;
    let now = query::now(conn).await?;
    let text = as_text(&runs, to, now);
    Ok(match shot::style().colour {
        true => text,
        false => anstream::adapter::strip_str(&text).to_string(),
    })
}

/// A list as a frame that is drawn over itself.
fn picture(list: &str) -> Frame {
    let mut lines = list.lines().map(str::to_owned);
    Frame {
        title: lines.next().unwrap_or_default(),
        rows: lines.collect(),
        first: 0,
        last: vec!["Ctrl-C ends the watching".to_owned()],
        ended: false,
    }
}

/// The ids of these runs: for people in their short form, except where two of them would look the
/// same.
fn ids(runs: &[Run], people: bool) -> HashMap<RunId, String> {
    let mut shared: HashMap<String, usize> = HashMap::new();
    for run in runs {
        *shared.entry(short(run.id)).or_default() += 1;
    }
    let id = |run: &Run| match short(run.id) {
        id if people && shared[&id] == 1 => (run.id, id),
        _ => (run.id, run.id.to_string()),
    };
    runs.iter().map(id).collect()
}

/// The words for states: those in the list, and those that programs read.
fn statuses() -> impl TypedValueParser<Value = RunStatus> {
    let value = |status: &RunStatus| match (word(*status), status.as_str()) {
        (word, stored) if word == stored => PossibleValue::new(word),
        (word, stored) => PossibleValue::new(word).alias(stored),
    };
    let words: Vec<PossibleValue> = RunStatus::ALL.iter().map(value).collect();
    PossibleValuesParser::new(words).try_map(|given| {
        crate::view::status(&given).ok_or_else(|| format!("`{given}` is no state"))
    })
}

/// The colour of a run's state.
pub fn style(status: RunStatus) -> anstyle::Style {
    match status {
        RunStatus::Completed => out::GOOD,
        RunStatus::Halted => out::BAD,
        RunStatus::Dampened => out::ASKS,
        RunStatus::InProgress => out::BUSY,
        RunStatus::Cancelled => out::DIM,
    }
}
