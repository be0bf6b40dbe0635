//! `processes` and `health`: who is there, and whether they give signs of life.

use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::model::{ProcessId, Role};
use crate::problem::{Problem, Problems};
use crate::process::identity::Identity;
use crate::process::proof;
use crate::store::process::{self, ProcessRow};
use crate::store::{Purpose, query};
use crate::time;

use super::exit::{Code, Failure};
use super::health::{self, StuckJson};
use super::out::{self, Cell};
use super::setup::{self, CliContext};

/// Lists the registered processes.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd processes
  ductworkd processes --json | jq '.[] | select(.healthy | not)'
")]
pub struct Processes {}

/// Tells whether all supervisors are healthy, and whether anything does not move although it should.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd health                  # of all hosts: for monitoring, cron
  ductworkd health --here           # of this host, or of this container alone
  ductworkd health --pid 1 -v
")]
pub struct Health {
    /// Only the process with this pid on this host
    #[arg(short, long)]
    pid: Option<u32>,
    /// Only the supervisors of this host; in a container, only of this container
    #[arg(long, conflicts_with = "pid")]
    here: bool,
    /// List all processes
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    id: ProcessId,
    role: Role,
    pipeline: Option<&'a str>,
    pid: u32,
    host: &'a str,
    version: &'a str,
    started_at: String,
    last_heartbeat_at: String,
    heartbeat_age_ms: u64,
    healthy: bool,
    dead: bool,
    quiet: bool,
}

impl<'a> ProcessJson<'a> {
    fn of(process: &'a ProcessRow, witness: &Witness) -> Self {
        let state = witness.state(process);
        Self {
            id: process.id,
            role: process.role,
            pipeline: process.pipeline.as_deref(),
            pid: process.pid,
            host: &process.host,
            version: &process.version,
            started_at: time::rfc3339(process.started_at),
            last_heartbeat_at: time::rfc3339(process.last_heartbeat_at),
            heartbeat_age_ms: u64::try_from(process.age.as_millis()).unwrap_or(u64::MAX),
            healthy: state == State::Healthy,
            dead: state == State::Dead,
            quiet: process.quiet,
        }
    }
}

/// The state of a process, as far as this host can know it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Healthy,
    /// Its heartbeat is too old.
    Stale,
    /// Its host, which is this one, knows that it is dead.
    Dead,
}

/// Judges processes, from this host.
struct Witness {
    me: Identity,
    lease: Duration,
}

impl Witness {
    fn of(config: &Config) -> Self {
        Self {
            me: Identity::current(),
            lease: config.supervisor.reaper_timeout,
        }
    }

    fn state(&self, process: &ProcessRow) -> State {
        match process.age < self.lease {
            _ if proof::is_dead(&self.me, process) => State::Dead,
            true => State::Healthy,
            false => State::Stale,
        }
    }
}

impl Processes {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let processes = process::processes(&mut conn).await?;
            let now = query::now(&mut conn).await?;
            let witness = Witness::of(&config);
            if cli.out.json {
                return cli.out.value(&json(&processes, &witness));
            }
            match processes.is_empty() {
                true => cli
                    .out
                    .text("no processes are registered: `ductworkd` starts them\n"),
                false => cli.out.text(&table(cli, &processes, &witness, now)),
            }
        })
    }
}

fn json<'a>(processes: &'a [ProcessRow], witness: &Witness) -> Vec<ProcessJson<'a>> {
    processes
        .iter()
        .map(|process| ProcessJson::of(process, witness))
        .collect()
}

fn table(cli: &CliContext, processes: &[ProcessRow], witness: &Witness, now: i64) -> String {
    let row = |process: &ProcessRow| {
        let (word, style) = match witness.state(process) {
            State::Healthy if process.quiet => ("quiet", out::ASKS),
            State::Healthy => ("healthy", out::GOOD),
            State::Stale => ("stale", out::BAD),
            State::Dead => ("dead", out::BAD),
        };
        vec![
            Cell::styled(process.role.as_str(), out::BOLD),
            Cell::new(process.pipeline.as_deref().unwrap_or("")),
            Cell::new(&process.host),
            Cell::new(process.pid.to_string()),
            Cell::styled(word, style),
            Cell::new(format!("{} ago", time::whole(process.age))),
            Cell::new(cli.out.time(process.started_at, now)),
            Cell::styled(process.id.to_string(), out::DIM),
        ]
    };
    let rows: Vec<Vec<Cell>> = processes.iter().map(row).collect();
    let headings = [
        "ROLE",
        "PIPELINE",
        "HOST",
        "PID",
        "STATE",
        "HEARTBEAT",
        "STARTED",
        "ID",
    ];
    out::table(&headings, &rows)
}

impl Health {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let processes = process::processes(&mut conn).await?;
            let now = query::now(&mut conn).await?;
            let witness = Witness::of(&config);
            let me = &witness.me;
            // Without a supervisor above it, a process in the foreground answers for itself.
            let asked = |process: &&ProcessRow| match self.pid {
                Some(pid) => process.pid == pid && process.host == me.host,
                None if self.here => {
                    process.supervisor.is_none() && me.would_know(&proof::identity(process))
                }
                None => process.supervisor.is_none(),
            };
            let asked: Vec<&ProcessRow> = processes.iter().filter(asked).collect();
            let stale: Vec<&&ProcessRow> = asked
                .iter()
                .filter(|process| witness.state(process) != State::Healthy)
                .collect();
            // An answer for one host or process alone decides whether that is restarted.
            let (obstacle, writer, stuck) = match self.here || self.pid.is_some() {
                true => (None, None, Vec::new()),
                false => {
                    let (what, who) = setup::obstacle(&mut conn, &config, &processes).await?;
                    (what, who, health::stuck(&mut conn, &config).await?)
                }
            };
            let dead = |process: &&&&ProcessRow| witness.state(process) == State::Dead;
            let dead = stale.iter().filter(dead).count();
            let fine =
                !asked.is_empty() && stale.is_empty() && stuck.is_empty() && obstacle.is_none();
            if cli.out.json {
                let shown = if self.verbose {
                    json(&processes, &witness)
                } else {
                    Vec::new()
                };
                let answer = serde_json::json!({
                    "healthy": fine,
                    "supervisors": asked.len(),
                    "stale": stale.len(),
                    "dead": dead,
                    "obstacle": obstacle,
                    "writer": writer.as_ref().map(|writer| writer.pid),
                    "stuck": stuck.iter().map(StuckJson::of).collect::<Vec<_>>(),
                    "processes": self.verbose.then_some(shown),
                });
                cli.out.value(&answer)?;
                return if fine {
                    Ok(())
                } else {
                    Err(Failure::Quiet(Code::Failed))
                };
            }
            if self.verbose && !processes.is_empty() {
                cli.out.text(&table(cli, &processes, &witness, now))?;
            }
            let problem = match (asked.len(), stale.first()) {
                (0, _) => {
                    let message = match self.pid {
                        Some(pid) => {
                            format!("unhealthy: no process {pid} of {} is registered", me.host)
                        }
                        None if self.here => {
                            "unhealthy: no supervisor is registered from here".to_owned()
                        }
                        None => "unhealthy: no supervisor is registered".to_owned(),
                    };
                    Some(Problem::new(message).help("`ductworkd` starts one"))
                }
                (n, Some(first)) => {
                    let what = match dead {
                        0 => "stale",
                        dead if dead == stale.len() => "dead",
                        _ => "dead or stale",
                    };
                    let supervisors = asked.iter().all(|it| it.role == Role::Supervisor);
                    let which = match supervisors {
                        true => "supervisors",
                        false => "processes",
                    };
                    let are = if stale.len() == 1 { "is" } else { "are" };
                    let (role, pid, host) = (first.role, first.pid, &first.host);
                    let (fact, help) = match witness.state(first) {
                        State::Dead => (
                            format!("the {role} {pid} on {host} does not exist any more"),
                            "`ductworkd` starts one and recovers what the dead held; `ductworkd processes` \
                             lists all",
                        ),
                        _ => (
                            format!(
                                "the last heartbeat of the {role} {pid} on {host} is {} old",
                                time::whole(first.age)
                            ),
                            "`ductworkd processes` lists all; the daemon's log says what it waits for",
                        ),
                    };
                    let stale = stale.len();
                    let message = format!("unhealthy: {stale} of {n} {which} {are} {what}: {fact}");
                    Some(Problem::new(message).help(help))
                }
                (_, None) => None,
            };
            let obstacle = obstacle.map(|fact| {
                Problem::new(format!("unhealthy: {fact}"))
                    .help("mend that, or wait; a daemon that runs goes on by itself")
            });
            let stuck = stuck.iter().map(health::problem);
            let problems: Vec<Problem> = obstacle.into_iter().chain(problem).chain(stuck).collect();
            if !problems.is_empty() {
                return Err(Failure::Problems(Code::Failed, Problems(problems)));
            }
            let n = asked.len();
            cli.out.text(&format!("healthy: {n} of {n}\n"))
        })
    }
}
