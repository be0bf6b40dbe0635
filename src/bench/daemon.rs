//! The daemon under test: the same program that runs now, started as a user starts it, on the
//! benchmark's own database.
//!
//! Owns: its environment, its start, its stop, and the identity of its processes. Never: reaches
//! into it: the benchmark measures the daemon that an operator gets, from outside.

use std::cell::Cell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::config::Config;
use crate::model::{ProcessId, Role};
use crate::process::spawn::{self, Spawned};
use crate::store::process::{self, ProcessRow};
use crate::store::{Conn, sandbox::Sandbox};

use super::{Error, pipelines};

/// The time in which a daemon must become ready, and must stop, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks at something that takes milliseconds.
const LOOK: Duration = Duration::from_millis(1);

/// The differences between the daemons of a benchmark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'a> {
    /// Its pipelines, separated by commas.
    pub pipelines: &'a str,
    /// Executions at once, per worker.
    pub slots: u32,
    /// `pipeline_advancer.count`; `None` for the configured value.
    pub advancers: Option<u32>,
    /// A worker that runs alone, beside another daemon.
    pub alone: bool,
    /// A console that runs alone, at this address.
    pub console: Option<SocketAddr>,
    /// It will be killed: it stops at once, and does not complain.
    pub target: bool,
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    spawned: Spawned,
    /// The number of its workers.
    workers: usize,
    /// It is a worker that runs alone.
    alone: bool,
    /// It was reaped: from now on its number may mean another process.
    ended: Cell<bool>,
}

/// The processes of a daemon that is ready.
#[derive(Clone, Debug)]
pub(super) struct Processes {
    /// The supervisor first.
    pub all: Vec<ProcessRow>,
}

impl Processes {
    /// The process with this role.
    pub fn of(&self, role: Role) -> Option<&ProcessRow> {
        self.all.iter().find(|row| row.role == role)
    }
}

impl Daemon {
    /// Starts a daemon.
    pub fn start(config: &Config, sandbox: &Sandbox, set: Set<'_>) -> Result<Self, Error> {
        let spawned = spawn::spawn(&argv(config), &environment(sandbox, set), None);
        let spawned = spawned.map_err(|source| Error::System {
            what: "the daemon cannot be started",
            source,
        })?;
        Ok(Self {
            spawned,
            workers: set.pipelines.split(',').count(),
            alone: set.alone || set.console.is_some(),
            ended: Cell::new(false),
        })
    }

    /// Waits until all its processes are in the database.
    pub async fn ready(&self, conn: &mut Conn) -> Result<Processes, Error> {
        let since = Instant::now();
        loop {
            self.check()?;
            let rows = process::processes(conn).await?;
            let mine = |row: &&ProcessRow| row.pid as i32 == self.spawned.pid();
            if let Some(supervisor) = rows.iter().find(mine) {
                let id = supervisor.id;
                let mut all = vec![supervisor.clone()];
                all.extend(rows.into_iter().filter(|row| row.supervisor == Some(id)));
                let processes = Processes { all };
                let count = |role| processes.all.iter().filter(|row| row.role == role).count();
                let complete = count(Role::Advancer) == 1 && count(Role::Worker) == self.workers;
                if complete || self.alone {
                    return Ok(processes);
                }
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::Stuck("the daemon is not ready after a minute"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The worker that replaced `dead`, once it is in the database.
    pub async fn successor(&self, conn: &mut Conn, dead: ProcessId) -> Result<ProcessId, Error> {
        let since = Instant::now();
        loop {
            self.check()?;
            let rows = process::processes(conn).await?;
            let mut workers = rows.iter().filter(|row| row.role == Role::Worker);
            if let Some(row) = workers.find(|row| row.id != dead) {
                return Ok(row.id);
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::Stuck("the worker was not replaced within a minute"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Fails if the daemon has ended.
    pub fn check(&self) -> Result<(), Error> {
        match self.ended()? {
            true => Err(Error::DaemonEnded),
            false => Ok(()),
        }
    }

    fn ended(&self) -> Result<bool, Error> {
        if self.ended.get() {
            return Ok(true);
        }
        let reaped = spawn::wait_for(self.spawned.pid()).map_err(|source| Error::System {
            what: "the daemon cannot be waited for",
            source,
        })?;
        self.ended.set(reaped.is_some());
        Ok(reaped.is_some())
    }

    /// Stops the daemon, and returns when it has ended.
    pub async fn stop(self) -> Result<(), Error> {
        let send = |signal| {
            self.spawned.send(signal).map_err(|source| Error::System {
                what: "the daemon cannot be signalled",
                source,
            })
        };
        send(Signal::SIGTERM)?;
        let since = Instant::now();
        let mut killed = false;
        while !self.ended()? {
            if since.elapsed() > PATIENCE && !killed {
                killed = true;
                send(Signal::SIGKILL)?;
            }
            tokio::time::sleep(LOOK).await;
        }
        match killed {
            true => Err(Error::Stuck("the daemon did not stop within a minute")),
            false => Ok(()),
        }
    }
}

/// The arguments, the last of which is the daemon's subcommand.
pub(super) fn argv(config: &Config) -> Vec<OsString> {
    let name = std::env::args_os().next();
    let mut argv = vec![name.unwrap_or_else(|| "ductworkd".into())];
    if let Some(file) = &config.file {
        argv.extend(["-c".into(), file.into()]);
    }
    argv.extend(["-e".into(), OsString::from(&config.environment)]);
    argv.push("start".into());
    argv
}

/// The configuration remains, except for settings that would make the benchmark do anything else
/// than run its own pipelines on its own database.
pub(super) fn environment(sandbox: &Sandbox, set: Set<'_>) -> Vec<(OsString, Option<OsString>)> {
    let (level, patience) = match set.target {
        true => ("error", Some("0".to_owned())),
        false => ("warn", None),
    };
    let role = match set.console {
        Some(_) => "console",
        None if set.alone => "worker",
        None => "all",
    };
    let console = set.console.map(|address| address.to_string());
    let changes = [
        (pipelines::VARIABLE, Some("1".to_owned())),
        ("DUCTWORK_DATABASE_URL", Some(sandbox.url().to_owned())),
        ("DUCTWORK_PIPELINES", Some(format!("[{}]", set.pipelines))),
        // Not a directory: only the program's own pipelines exist.
        ("DUCTWORK_PIPELINES_PATH", Some("/dev/null".to_owned())),
        ("DUCTWORK_ROLE", Some(role.to_owned())),
        ("DUCTWORK_RETENTION", Some("never".to_owned())),
        ("DUCTWORK_LOGGER__LEVEL", Some(level.to_owned())),
        ("RUST_LOG", None),
        // Fan-outs may be as wide as requested.
        (
            "DUCTWORK_PIPELINE_ADVANCER__STEPS__MAX_DEPTH",
            Some("-1".to_owned()),
        ),
        ("DUCTWORK_JOB_WORKER__COUNT", Some(set.slots.to_string())),
        (
            "DUCTWORK_CONSOLE__LISTEN",
            console.or_else(|| Some("none".to_owned())),
        ),
        // The socket belongs to the configured console, and the configured endpoints and collector
        // must receive nothing of this.
        ("DUCTWORK_CONSOLE__SOCKET", Some("none".to_owned())),
        ("DUCTWORK_CONSOLE__WEBHOOKS", Some("[]".to_owned())),
        (
            "DUCTWORK_CONSOLE__TRACES__ENDPOINT",
            Some("none".to_owned()),
        ),
        ("DUCTWORK_CONSOLE__VISITORS", Some("anybody".to_owned())),
        ("DUCTWORK_CONSOLE__HOSTS", Some("[]".to_owned())),
        ("DUCTWORK_CONSOLE__PROXY__FROM", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__SUPERVISOR__START", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__SUPERVISOR__STOP", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__ADVANCER__START", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__ADVANCER__STOP", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__WORKER__START", Some("[]".to_owned())),
        ("DUCTWORK_HOOKS__WORKER__STOP", Some("[]".to_owned())),
    ];
    let mut environment: Vec<(OsString, Option<OsString>)> = changes
        .into_iter()
        .map(|(name, value)| (name.into(), value.map(OsString::from)))
        .collect();
    if patience.is_some() {
        let name = "DUCTWORK_JOB_WORKER__SHUTDOWN_TIMEOUT";
        environment.push((name.into(), patience.map(OsString::from)));
    }
    if let Some(count) = set.advancers {
        let name = "DUCTWORK_PIPELINE_ADVANCER__COUNT";
        environment.push((name.into(), Some(count.to_string().into())));
    }
    environment
}
