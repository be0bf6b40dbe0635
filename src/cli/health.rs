//! `health`: the processes, and work that does not move although it should.

use std::time::Instant;

use crate::config::Config;
use crate::machine::pause::Pause;
use crate::machine::stuck::{self, Stuck};
use crate::machine::webhook::{self, Waits};
use crate::model::{Intake, ProcessId, Role};
use crate::problem::{Problem, Problems};
use crate::proc::stat;
use crate::process::{live, proof, wakeup};
use crate::store::delivery::{self, COUNTED};
use crate::store::departed;
use crate::store::process::{self, ProcessRow};
use crate::store::writable::{self, Locked};
use crate::store::{self, Conn, Purpose, query};
use crate::time;
use crate::wire::health::{HealthJson, KeptJson, StuckJson};
use crate::wire::pipeline::PausedJson;
use crate::wire::process::{DepartedJson, State};

use super::exit::{Code, Failure, quietly, verdict};
use super::follow::say;
use super::out;
use super::processes::{self, Witness, json, table};
use super::setup::{self, CliContext, Obstacle};

/// Tells whether all supervisors are healthy, and whether anything does not move although it should.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd health                  # of all hosts: for monitoring, cron
  ductworkd health --here           # of this host, or of this container alone
  ductworkd health --live           # for a liveness probe: asks no database
  ductworkd health --pid 1 -v
")]
pub struct Health {
    /// Only the process with this pid on this host
    #[arg(short, long)]
    pid: Option<u32>,
    /// Only the supervisors of this host; in a container, only those of this container
    #[arg(long, conflicts_with = "pid")]
    here: bool,
    /// Check only that the loops of this host or container run; an unreachable database makes no process unhealthy
    #[arg(long, conflicts_with_all = ["pid", "here", "verbose"])]
    live: bool,
    /// List all processes
    #[arg(short, long)]
    verbose: bool,
}

/// The answer from the stamps that this host's processes leave.
///
/// A daemon goes on with the configuration that it has read, whatever the file says by now: a probe that fails because
/// of the file would end it, and it could not start again. So without a database to ask for, all of them are asked for.
/// Proven by `a_daemon_lives_on_although_its_configuration_can_no_longer_be_read`.
fn live(cli: &CliContext, config: Result<Config, Failure>) -> Result<(), Failure> {
    let database = config.and_then(|config| Ok(config.location()?.identity()));
    let directories = wakeup::directories(database.as_deref().ok());
    let found: Result<Vec<_>, _> = directories.iter().map(|it| live::living(it)).collect();
    let found: Vec<_> = found
        .map(|found| found.into_iter().flatten().collect())
        .map_err(|error| {
            let problem = Problem::new(format!(
                "the liveness files of the processes cannot be read: {error}"
            ));
            Failure::failed(problem.help("run it as the user that `ductworkd` runs as"))
        })?;
    if let Err(failure) = database {
        if found.is_empty() {
            return Err(failure);
        }
        say(
            "note: the configuration cannot be read (`ductworkd check` says why): every `ductworkd` of this user on this host is checked",
        );
    }
    let still = found.iter().find(|living| !living.is_live());
    let fine = !found.is_empty() && still.is_none();
    if cli.out.json {
        let processes = found.iter().map(|living| {
            let age = living.age.as_millis() as u64;
            serde_json::json!({ "pid": living.pid, "age_ms": age, "live": living.is_live() })
        });
        let processes: Vec<_> = processes.collect();
        let answer = serde_json::json!({ "live": fine, "processes": processes });
        return verdict(cli.out.value(&answer), quietly(fine, Code::Failed));
    }
    match still {
        Some(still) => Err(Failure::failed(Problem::new(still.to_string()).help(
            continued(still.pid).unwrap_or_else(|| {
                "its service manager restarts it; TTIN makes it log where its threads are".to_owned()
            }),
        ))),
        None if found.is_empty() => Err(Failure::failed(
            Problem::new("no `ductworkd` of this user runs here with this database").help(
                "start `ductworkd`; if another user runs it, ask as that user; if one runs, its log says why it cannot \
                 write its liveness file; `ductworkd processes` shows those of all hosts",
            ),
        )),
        None => cli.out.text(&format!("live: {n} of {n}\n", n = found.len())),
    }
}

impl Health {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        if self.live {
            return live(cli, cli.config());
        }
        let config = cli.config()?;
        setup::block_on(async {
            let began = Instant::now();
            match self.look(cli, &config).await {
                // RACE: the table was locked after this command had checked for a lock, or so shortly before that the
                // lock might have been momentary. Proven by
                // `a_lock_that_is_as_young_as_the_question_is_told_all_the_same`.
                Err(failure) => match setup::lock_in_the_way(&config, &failure, began).await {
                    Some(locked) => unreadable(cli, &locked),
                    None => Err(failure),
                },
                done => done,
            }
        })
    }

    async fn look(&self, cli: &CliContext, config: &Config) -> Result<(), Failure> {
        let mut conn = setup::connect(config, Purpose::Look).await?;
        // The answer for a single host or process decides whether that is restarted.
        let narrow = self.here || self.pid.is_some();
        let locked = match !narrow || writable::tells_at_once(&conn) {
            true => writable::locked(&mut conn).await?,
            false => None,
        };
        if let Some(locked) = &locked
            && self.cannot_read(locked)
        {
            return unreadable(cli, locked);
        }
        let processes = process::processes(&mut conn).await?;
        let now = query::now(&mut conn).await?;
        let witness = Witness::of(config);
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
        let stale: Vec<&ProcessRow> = asked
            .iter()
            .copied()
            .filter(|process| witness.state(process) != State::Healthy)
            .collect();
        let obstacle = match (narrow, locked) {
            (true, _) => None,
            (false, Some(locked)) => Some(locked.into()),
            (false, None) => setup::obstacle(&mut conn, config, &processes).await?,
        };
        let (stuck, pauses) = match narrow {
            true => Default::default(),
            false => {
                let locked = setup::locked_rows(&mut conn, &processes, witness.lease).await?;
                let is_told = obstacle.as_ref().is_some_and(|it| it.is_total);
                stuck(&mut conn, &witness, &processes, &locked, is_told).await?
            }
        };
        let (away, stuck): (Vec<Stuck>, Vec<Stuck>) =
            stuck.into_iter().partition(Stuck::is_elsewhere);
        let untraced = away.first();
        let waits = match narrow {
            true => Vec::new(),
            false => delivery::unsent(&mut conn, &config.console.endpoints).await?,
        };
        let lost = match narrow {
            true => Vec::new(),
            false => departed::lost_lately(&mut conn, now).await?,
        };
        let careless = match narrow {
            true => None,
            false => {
                let lease = config.supervisor.reaper_timeout;
                writable::careless(&mut conn, lease).await?
            }
        };
        let (kept, waits): (Vec<&Waits>, Vec<&Waits>) =
            waits.iter().partition(|it| it.kept(now).is_some());
        let undelivered = waits.iter().find_map(|it| it.oldest.fact(now));
        let kept: Vec<(&str, u64)> = kept
            .iter()
            .filter_map(|it| Some((it.oldest.endpoint.as_str(), it.kept(now)?)))
            .collect();
        let dead = |process: &&&ProcessRow| witness.state(process) == State::Dead;
        let dead = stale.iter().filter(dead).count();
        // A console that runs alone moves nothing: it answers for itself, and does not count as a supervisor.
        let counted = |process: &&&ProcessRow| narrow || process.role != Role::Console;
        let stopping = asked.iter().filter(counted);
        let stopping = stopping.filter(|it| it.intake == Intake::Stopping).count();
        let counted = asked.iter().filter(counted).count();
        let fine = counted > 0 && stale.is_empty() && stuck.is_empty() && obstacle.is_none();
        if cli.out.json {
            let printed = cli.out.value(&HealthJson {
                healthy: fine,
                supervisors: counted,
                stale: stale.len(),
                dead,
                stopping,
                obstacle: obstacle.as_ref().map(|it| it.fact.as_str()),
                writer: obstacle
                    .as_ref()
                    .and_then(|it| Some(it.writer.as_ref()?.pid)),
                stuck: stuck.iter().map(StuckJson::of).collect(),
                paused: pauses.iter().map(PausedJson::of).collect(),
                undelivered: undelivered.as_deref(),
                kept: kept.iter().map(|(it, n)| KeptJson::of(it, *n)).collect(),
                untraced: untraced.map(|it| it.fact.as_str()),
                careless: careless.as_deref(),
                lost: lost.iter().map(DepartedJson::of).collect(),
                processes: self.verbose.then(|| json(&processes, &witness)),
            });
            return verdict(printed, quietly(fine, Code::Failed));
        }
        let mut told = String::new();
        if self.verbose && !processes.is_empty() {
            told += &table(cli, &processes, &witness, now);
        }
        // This needs no action, so only verbose output shows it.
        for (endpoint, n) in kept.iter().filter(|_| self.verbose) {
            let endpoint = out::clean(&webhook::short(endpoint));
            let more = if *n >= COUNTED as u64 { " or more" } else { "" };
            told += &format!(
                "kept for {endpoint}, an endpoint that is no longer configured: {n}{more}\n"
            );
        }
        // This is no fault, but somebody may have forgotten the pause.
        for pause in &pauses {
            let fact = out::clean(&pause.fact(now));
            told += &format!("{fact}\n");
        }
        // Others have taken over its work, but there may be one host less.
        if let Some(line) = processes::lost(&lost, now) {
            told += &format!("{line}\n");
        }
        // Nothing is lost before the server's host goes down.
        if let Some(fact) = &careless {
            told += &format!("{fact}\n");
        }
        // The fault is the endpoint's, and no daemon can mend it.
        if let Some(fact) = &undelivered {
            told += &format!("{}\n", out::clean(fact));
        }
        // Nor can a daemon mend a collector.
        if let Some(Stuck { fact, remedy, .. }) = untraced {
            let (fact, remedy) = (out::clean(fact), out::clean(remedy));
            told += &format!("{fact}; {remedy}\n");
        }
        let problem = self.problem(&witness, &asked, counted, &stale, dead);
        let obstacle = obstacle.as_ref().map(mend);
        let stuck = stuck.iter().map(problem_of);
        let problems: Vec<Problem> = obstacle.into_iter().chain(problem).chain(stuck).collect();
        if !problems.is_empty() {
            let problems = Failure::Problems(Code::Failed, Problems(problems));
            return verdict(cli.out.text(&told), Err(problems));
        }
        let stopping = match stopping {
            0 => String::new(),
            stopping => format!(", of which {stopping} stopping"),
        };
        told += &format!("healthy: {counted} of {counted}{stopping}\n");
        cli.out.text(&told)
    }

    /// True when this command would wait for the holder of this lock. For a single host or process, it reads only
    /// heartbeats.
    fn cannot_read(&self, locked: &Locked) -> bool {
        let narrow = self.here || self.pid.is_some();
        locked.hidden && (!narrow || locked.table == "ductwork_processes")
    }

    /// The problem of the selected supervisors that give no signs of life, if there are any.
    fn problem(
        &self,
        witness: &Witness,
        asked: &[&ProcessRow],
        counted: usize,
        stale: &[&ProcessRow],
        dead: usize,
    ) -> Option<Problem> {
        let me = &witness.me;
        match (asked.len(), stale.first()) {
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
                         lists all"
                            .to_owned(),
                    ),
                    _ => (
                        format!(
                            "the last heartbeat of the {role} {pid} on {host} is {} old",
                            time::whole(first.age)
                        ),
                        me.would_know(&proof::identity(first))
                            .then(|| continued(pid as i32))
                            .flatten()
                            .unwrap_or_else(|| {
                                "`ductworkd processes` lists all; the daemon's log says what it waits for"
                                    .to_owned()
                            }),
                    ),
                };
                let stale = stale.len();
                let message = format!("unhealthy: {stale} of {n} {which} {are} {what}: {fact}");
                Some(Problem::new(message).help(help))
            }
            (_, None) if counted == 0 => {
                let message = "unhealthy: no supervisor is registered, only a console";
                Some(Problem::new(message).help("`ductworkd` starts one"))
            }
            (_, None) => None,
        }
    }
}

/// The remedy for a process of this host that a signal has stopped.
fn continued(pid: i32) -> Option<String> {
    let is_stopped = stat(pid).is_some_and(|stat| stat.state == b'T');
    is_stopped.then(|| format!("a signal has stopped it; let it go on: kill -CONT {pid}"))
}

/// While nobody can read, nothing is known about any process.
fn unreadable(cli: &CliContext, locked: &Locked) -> Result<(), Failure> {
    if cli.out.json {
        let answer = serde_json::json!({ "healthy": false, "obstacle": locked.fact });
        return verdict(cli.out.value(&answer), quietly(false, Code::Failed));
    }
    Err(Failure::failed(mended_by(&locked.fact, &locked.remedy())))
}

/// The problem that an obstacle is in everybody's way.
fn mend(obstacle: &Obstacle) -> Problem {
    let remedy = obstacle.remedy.as_deref();
    mended_by(&obstacle.fact, remedy.unwrap_or("fix that, or wait"))
}

fn mended_by(fact: &str, remedy: &str) -> Problem {
    Problem::new(format!("unhealthy: {fact}"))
        .help(format!("{remedy}; a running daemon goes on by itself"))
}

/// Everything that does not move in this database, and the paused pipelines. A process that this host knows to be dead
/// moves nothing, and its last report is no longer valid.
async fn stuck(
    conn: &mut Conn,
    witness: &Witness,
    processes: &[ProcessRow],
    locked: &[ProcessId],
    is_told: bool,
) -> Result<(Vec<Stuck>, Vec<Pause>), Failure> {
    let mut facts = store::stuck::facts(conn, witness.lease).await?;
    facts.spare(locked);
    if is_told {
        facts.without_consequences();
    }
    for process in &mut facts.processes {
        let row = processes.iter().find(|row| row.id == process.id);
        process.dead = row.is_some_and(|row| witness.state(row) == State::Dead);
    }
    Ok((stuck::stuck(&facts), facts.pauses))
}

/// The same, for people.
fn problem_of(stuck: &Stuck) -> Problem {
    let message = format!("unhealthy: {}", out::clean(&stuck.fact));
    Problem::new(message).help(out::clean(&stuck.remedy))
}
