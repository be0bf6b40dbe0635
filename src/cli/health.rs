//! `health`: the processes, and work that does not move although it should.

use std::time::Instant;

use crate::config::Config;
use crate::machine::pause::Pause;
use crate::machine::stuck::{self, Stuck};
use crate::machine::webhook::{self, Waits};
use crate::machine::why::let_go_on;
use crate::model::{Intake, ProcessId, Role};
use crate::problem::{Problem, Problems};
use crate::proc::stat;
use crate::process::{live, proof, wakeup};
use crate::store::delivery::{self, COUNTED};
use crate::store::departed::{self, Departed};
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

/// The number of endpoints that take no messages and are named.
const UNDELIVERED: usize = 3;

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

    /// Only the processes of one host, or one process, are asked about: the answer decides whether these are restarted.
    fn is_narrow(&self) -> bool {
        self.here || self.pid.is_some()
    }

    async fn look(&self, cli: &CliContext, config: &Config) -> Result<(), Failure> {
        let mut conn = setup::connect(config, Purpose::Look).await?;
        let locked = match !self.is_narrow() || writable::tells_at_once(&conn) {
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
        let mut found = Found::of(Witness::of(config), processes, now);
        if !self.is_narrow() {
            found.read(&mut conn, config, locked).await?;
        }
        let asked = self.asked(&found);
        match cli.out.json {
            true => self.print_json(cli, &found, &asked),
            false => self.print(cli, &found, &asked),
        }
    }

    /// The processes that this command was asked about. Without a supervisor above it, a process in the foreground answers
    /// for itself.
    fn asked<'a>(&self, found: &'a Found) -> Asked<'a> {
        let (witness, me) = (&found.witness, &found.witness.me);
        let is_asked = |process: &&ProcessRow| match self.pid {
            Some(pid) => process.pid == pid && process.host == me.host,
            None if self.here => {
                process.supervisor.is_none() && me.would_know(&proof::identity(process))
            }
            None => process.supervisor.is_none(),
        };
        let asked: Vec<&ProcessRow> = found.processes.iter().filter(is_asked).collect();
        let in_state = |state| move |process: &&ProcessRow| witness.state(process) == state;
        let stale = asked.iter().copied();
        let stale: Vec<&ProcessRow> = stale.filter(|it| !in_state(State::Healthy)(it)).collect();
        let dead = stale.iter().copied().filter(in_state(State::Dead)).count();
        // A console that runs alone moves nothing: it answers for itself, and does not count as a supervisor.
        let counts = |process: &&&ProcessRow| self.is_narrow() || process.role != Role::Console;
        let stopping = asked.iter().filter(counts);
        let stopping = stopping.filter(|it| it.intake == Intake::Stopping).count();
        Asked {
            counted: asked.iter().filter(counts).count(),
            stopping,
            dead,
            stale,
            all: asked,
        }
    }

    fn print_json(
        &self,
        cli: &CliContext,
        found: &Found,
        asked: &Asked<'_>,
    ) -> Result<(), Failure> {
        let fine = found.is_fine() && asked.is_fine();
        let obstacle = found.obstacle.as_ref();
        let kept = found.kept();
        let undelivered = found.undelivered();
        let printed = cli.out.value(&HealthJson {
            healthy: fine,
            supervisors: asked.counted,
            stale: asked.stale.len(),
            dead: asked.dead,
            stopping: asked.stopping,
            obstacle: obstacle.map(|it| it.fact.as_str()),
            writer: obstacle.and_then(|it| Some(it.writer.as_ref()?.pid)),
            stuck: found.stuck.iter().map(StuckJson::of).collect(),
            paused: found.pauses.iter().map(PausedJson::of).collect(),
            undelivered: (!undelivered.is_empty()).then(|| undelivered.join("; ")),
            kept: kept.iter().map(|(it, n)| KeptJson::of(it, *n)).collect(),
            untraced: found.untraced.as_ref().map(|it| it.fact.as_str()),
            careless: found.careless.as_deref(),
            lost: found.lost.iter().map(DepartedJson::of).collect(),
            processes: self.verbose.then(|| json(&found.processes, &found.witness)),
        });
        verdict(printed, quietly(fine, Code::Failed))
    }

    fn print(&self, cli: &CliContext, found: &Found, asked: &Asked<'_>) -> Result<(), Failure> {
        let mut told = match self.verbose {
            true => details(cli, found),
            false => String::new(),
        };
        told += &notes(found);
        let problem = self.problem(&found.witness, asked);
        let obstacle = found.obstacle.as_ref().map(mend);
        let stuck = found.stuck.iter().map(problem_of);
        let problems: Vec<Problem> = obstacle.into_iter().chain(problem).chain(stuck).collect();
        if !problems.is_empty() {
            let problems = Failure::Problems(Code::Failed, Problems(problems));
            return verdict(cli.out.text(&told), Err(problems));
        }
        let counted = asked.counted;
        let stopping = match asked.stopping {
            0 => String::new(),
            stopping => format!(", of which {stopping} stopping"),
        };
        told += &format!("healthy: {counted} of {counted}{stopping}\n");
        cli.out.text(&told)
    }

    /// True when this command would wait for the holder of this lock. For a single host or process, it reads only
    /// heartbeats.
    fn cannot_read(&self, locked: &Locked) -> bool {
        locked.hidden && (!self.is_narrow() || locked.table == "ductwork_processes")
    }

    /// The problem of the selected supervisors that give no signs of life, if there are any.
    fn problem(&self, witness: &Witness, asked: &Asked<'_>) -> Option<Problem> {
        let me = &witness.me;
        let stale = &asked.stale;
        match (asked.all.len(), stale.first()) {
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
                let what = match asked.dead {
                    0 => "stale",
                    dead if dead == stale.len() => "dead",
                    _ => "dead or stale",
                };
                let supervisors = asked.all.iter().all(|it| it.role == Role::Supervisor);
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
                        match me.is_stopped(&proof::identity(first)) {
                            true => let_go_on(pid),
                            false => {
                                "`ductworkd processes` lists all; the daemon's log says what it waits for".to_owned()
                            }
                        },
                    ),
                };
                let stale = stale.len();
                let message = format!("unhealthy: {stale} of {n} {which} {are} {what}: {fact}");
                Some(Problem::new(message).help(help))
            }
            (_, None) if asked.counted == 0 => {
                let message = "unhealthy: no supervisor is registered, only a console";
                Some(Problem::new(message).help("`ductworkd` starts one"))
            }
            (_, None) => None,
        }
    }
}

/// The state of the deployment. For a narrow question, only the processes are read.
struct Found {
    witness: Witness,
    processes: Vec<ProcessRow>,
    now: i64,
    obstacle: Option<Obstacle>,
    stuck: Vec<Stuck>,
    /// The first of those whose fault is elsewhere: no daemon can mend it.
    untraced: Option<Stuck>,
    pauses: Vec<Pause>,
    /// The oldest unsent message of each endpoint.
    waits: Vec<Waits>,
    /// The supervisors that died lately.
    lost: Vec<Departed>,
    /// The setting by which the database may lose what it has confirmed.
    careless: Option<String>,
}

impl Found {
    fn of(witness: Witness, processes: Vec<ProcessRow>, now: i64) -> Self {
        Self {
            witness,
            processes,
            now,
            obstacle: None,
            stuck: Vec::new(),
            untraced: None,
            pauses: Vec::new(),
            waits: Vec::new(),
            lost: Vec::new(),
            careless: None,
        }
    }

    /// Reads the rest.
    async fn read(
        &mut self,
        conn: &mut Conn,
        config: &Config,
        locked: Option<Locked>,
    ) -> Result<(), Failure> {
        self.obstacle = match locked {
            Some(locked) => Some(locked.into()),
            None => setup::obstacle(conn, config, &self.processes).await?,
        };
        let locked = setup::locked_rows(conn, &self.processes, self.witness.lease).await?;
        let is_told = self.obstacle.as_ref().is_some_and(|it| it.is_total);
        let (stuck, pauses) = stuck(conn, &self.witness, &self.processes, &locked, is_told).await?;
        let (away, stuck): (Vec<_>, Vec<_>) = stuck.into_iter().partition(Stuck::is_elsewhere);
        self.stuck = stuck;
        self.untraced = away.into_iter().next();
        self.pauses = pauses;
        self.waits = delivery::unsent(conn, &config.console.endpoints).await?;
        self.lost = departed::lost_lately(conn, self.now).await?;
        let lease = config.supervisor.reaper_timeout;
        self.careless = writable::careless(conn, lease).await?;
        Ok(())
    }

    fn is_fine(&self) -> bool {
        self.stuck.is_empty() && self.obstacle.is_none()
    }

    /// The endpoints that are no longer configured, and how many messages are kept for each.
    fn kept(&self) -> Vec<(&str, u64)> {
        let kept = self.waits.iter();
        kept.filter_map(|it| Some((it.oldest.endpoint.as_str(), it.kept(self.now)?)))
            .collect()
    }

    /// The facts about the first configured endpoints that get no messages, and the number of the others.
    fn undelivered(&self) -> Vec<String> {
        let waits = self.waits.iter();
        let configured = waits.filter(|it| it.kept(self.now).is_none());
        let facts = configured.filter_map(|it| it.oldest.fact(self.now));
        let mut facts: Vec<String> = facts.collect();
        let more = match facts.len().saturating_sub(UNDELIVERED) {
            0 => return facts,
            1 => "1 more endpoint has".to_owned(),
            more => format!("{more} more endpoints have"),
        };
        facts.truncate(UNDELIVERED);
        facts.push(format!(
            "{more} not taken a message for long: the console's page `/webhooks` has them"
        ));
        facts
    }
}

/// The processes that the command was asked about.
struct Asked<'a> {
    all: Vec<&'a ProcessRow>,
    /// Those that give no signs of life.
    stale: Vec<&'a ProcessRow>,
    /// How many of these are dead.
    dead: usize,
    /// How many count as supervisors.
    counted: usize,
    /// How many of these are stopping.
    stopping: usize,
}

impl Asked<'_> {
    fn is_fine(&self) -> bool {
        self.counted > 0 && self.stale.is_empty()
    }
}

/// The lines that only verbose output has: no action is needed.
fn details(cli: &CliContext, found: &Found) -> String {
    let mut told = String::new();
    if !found.processes.is_empty() {
        told += &table(cli, &found.processes, &found.witness, found.now);
    }
    for (endpoint, n) in found.kept() {
        let endpoint = out::clean(&webhook::short(endpoint));
        let more = if n >= COUNTED as u64 { " or more" } else { "" };
        told +=
            &format!("kept for {endpoint}, an endpoint that is no longer configured: {n}{more}\n");
    }
    told
}

/// The lines about what is no fault of the deployment.
fn notes(found: &Found) -> String {
    let mut told = String::new();
    // Somebody may have forgotten the pause.
    for pause in &found.pauses {
        let fact = out::clean(&pause.fact(found.now));
        told += &format!("{fact}\n");
    }
    // Others have taken over its work, but there may be one host less.
    if let Some(line) = processes::lost(&found.lost, found.now) {
        told += &format!("{line}\n");
    }
    // Nothing is lost before the server's host goes down.
    if let Some(fact) = &found.careless {
        told += &format!("{fact}\n");
    }
    // The fault is the endpoint's, and no daemon can mend it.
    for fact in found.undelivered() {
        told += &format!("{}\n", out::clean(&fact));
    }
    // Nor can a daemon mend a collector.
    if let Some(Stuck { fact, remedy, .. }) = &found.untraced {
        let (fact, remedy) = (out::clean(fact), out::clean(remedy));
        told += &format!("{fact}; {remedy}\n");
    }
    told
}

/// The remedy for a process of this host that a signal has stopped.
fn continued(pid: i32) -> Option<String> {
    let is_stopped = stat(pid).is_some_and(|stat| stat.state == b'T');
    is_stopped.then(|| let_go_on(pid))
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
