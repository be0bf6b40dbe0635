//! `processes`: the registered processes, and whether they give signs of life.

use std::time::Duration;

use crate::config::Config;
use crate::model::{Intake, short};
use crate::number::whole;
use crate::process::identity::Identity;
use crate::process::proof;
use crate::store::departed::{self, Departed};
use crate::store::process::{self, ProcessRow};
use crate::store::{Purpose, query};
use crate::time;
use crate::view;
use crate::wire::process::{DepartedJson, ProcessJson, State};

use super::exit::Failure;
use super::out::{self, Cell};
use super::setup::{self, CliContext};

/// Lists the registered processes.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd processes
  ductworkd processes --json | jq '.[] | select(.healthy | not)'
  ductworkd processes --gone --limit 5
")]
pub struct Processes {
    /// List processes that are gone instead, the last one first
    #[arg(long)]
    gone: bool,
    /// At most this many processes that are gone
    #[arg(long, value_name = "N", default_value_t = 20, requires = "gone",
          value_parser = whole(1..=u32::MAX))]
    limit: u32,
}

/// Judges processes, from this host.
pub(super) struct Witness {
    pub(super) me: Identity,
    pub(super) lease: Duration,
}

impl Witness {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            me: Identity::current(),
            lease: config.supervisor.reaper_timeout,
        }
    }

    pub(super) fn state(&self, process: &ProcessRow) -> State {
        let is_dead = || proof::is_dead(&self.me, process);
        State::of(process.age, self.lease, is_dead)
    }
}

impl Processes {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on_telling(&config, async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            if self.gone {
                let departed = departed::latest(&mut conn, self.limit as usize).await?;
                let now = query::now(&mut conn).await?;
                return gone(cli, &departed, now);
            }
            let processes = process::processes(&mut conn).await?;
            let now = query::now(&mut conn).await?;
            let witness = Witness::of(&config);
            if cli.out.json {
                return cli.out.value(&json(&processes, &witness));
            }
            match processes.is_empty() {
                true => cli
                    .out
                    .text("no processes are registered: `ductworkd` starts them\n")?,
                false => cli.out.text(&table(cli, &processes, &witness, now))?,
            }
            cli.out.text(&troubles(&processes, &witness))?;
            match lost(&departed::lost_lately(&mut conn, now).await?, now) {
                Some(line) => cli.out.text(&format!("{line}\n")),
                None => Ok(()),
            }
        })
    }
}

/// A line for each living process that reports a trouble.
fn troubles(processes: &[ProcessRow], witness: &Witness) -> String {
    let living = processes.iter().filter(|it| witness.state(it).lives());
    let lines = living.filter_map(view::trouble);
    lines
        .map(|line| format!("{}\n", out::clean(&line)))
        .collect()
}

/// The line about supervisors that were lost lately.
pub(super) fn lost(lost: &[Departed], now: i64) -> Option<String> {
    let last = lost.first()?;
    let many = if lost.len() == 1 { "" } else { "s" };
    Some(out::clean(&format!(
        "{n} supervisor{many} died in the last hour; last pid {pid} on {host}, {ago} ago: {how}; \
         `ductworkd processes --gone` lists them",
        n = lost.len(),
        pid = last.pid,
        host = last.host,
        ago = time::whole(time::between(last.gone_at, now)),
        how = last.death.as_deref().unwrap_or_default(),
    )))
}

fn gone(cli: &CliContext, departed: &[Departed], now: i64) -> Result<(), Failure> {
    if cli.out.json {
        let departed: Vec<DepartedJson<'_>> = departed.iter().map(DepartedJson::of).collect();
        return cli.out.value(&departed);
    }
    if departed.is_empty() {
        return cli.out.text("no process is known to be gone\n");
    }
    let row = |process: &Departed| {
        let how = process.how();
        let style = match (&how, process.went_on_as) {
            (Some(_), None) => out::BAD,
            _ => out::DIM,
        };
        vec![
            Cell::styled(&process.role, out::BOLD),
            Cell::new(process.pipeline.as_deref().unwrap_or("")),
            Cell::new(&process.host),
            Cell::new(process.pid.to_string()),
            Cell::new(cli.out.time(process.started_at, now)),
            Cell::new(cli.out.time(process.gone_at, now)),
            Cell::styled(how.unwrap_or_else(|| "ended cleanly".to_owned()), style),
            Cell::styled(short(process.id), out::DIM),
        ]
    };
    let rows: Vec<Vec<Cell>> = departed.iter().map(row).collect();
    let headings = [
        "ROLE", "PIPELINE", "HOST", "PID", "STARTED", "GONE", "HOW", "ID",
    ];
    let spare = ["STARTED", "HOST"];
    cli.out
        .text(&cli.out.table_with_ids(&headings, &rows, &spare))
}

pub(super) fn json<'a>(processes: &'a [ProcessRow], witness: &Witness) -> Vec<ProcessJson<'a>> {
    processes
        .iter()
        .map(|process| ProcessJson::of(process, witness.state(process)))
        .collect()
}

pub(super) fn table(
    cli: &CliContext,
    processes: &[ProcessRow],
    witness: &Witness,
    now: i64,
) -> String {
    // Two daemons on one host have the same kinds of children.
    let above = |process: &ProcessRow| {
        let above = process.supervisor?;
        let above = processes.iter().find(|it| it.id == above)?;
        Some(above.pid.to_string())
    };
    let above = |process: &ProcessRow| above(process).unwrap_or_default();
    let row = |process: &ProcessRow| {
        let trouble = process.trouble.as_ref().map(|(text, _)| text.as_str());
        let (word, style) = match witness.state(process).with(process.role, trouble) {
            State::Healthy if process.intake == Intake::Quiet => ("quiet", out::ASKS),
            State::Healthy if process.intake == Intake::Stopping => ("stopping", out::ASKS),
            State::Healthy if process.paused => ("paused", out::ASKS),
            State::Healthy => ("healthy", out::GOOD),
            State::Troubled => ("trouble", out::BAD),
            State::Stale => ("stale", out::BAD),
            State::Dead => ("dead", out::BAD),
        };
        vec![
            Cell::styled(process.role.as_str(), out::BOLD),
            Cell::new(process.pipeline.as_deref().unwrap_or("")),
            Cell::styled(word, style),
            Cell::new(format!("{} ago", time::whole(process.age))),
            Cell::new(&process.host),
            Cell::new(process.pid.to_string()),
            Cell::new(above(process)),
            Cell::new(cli.out.time(process.started_at, now)),
            Cell::styled(short(process.id), out::DIM),
        ]
    };
    let rows: Vec<Vec<Cell>> = processes.iter().map(row).collect();
    let headings = [
        "ROLE",
        "PIPELINE",
        "STATE",
        "HEARTBEAT",
        "HOST",
        "PID",
        "UNDER",
        "STARTED",
        "ID",
    ];
    // On one host, its name says nothing.
    let elsewhere = processes.iter().any(|it| it.host != processes[0].host);
    let spare = match elsewhere {
        true => ["STARTED", "UNDER", "HOST"],
        false => ["STARTED", "HOST", "UNDER"],
    };
    cli.out.table_with_ids(&headings, &rows, &spare)
}
