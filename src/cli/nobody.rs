//! Work for which no process is running: a person who asks or waits for it is told so.
//!
//! Owns: when that is reported, once, and in which words. Never: decides what keeps a run (`machine::why`
//! does).

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::machine::intake::{self, Taker};
use crate::model::{Role, RunId};
use crate::store::process::{self, ProcessRow};
use crate::store::{Conn, pause, query};
use crate::wire::process::State;

use super::exit::Failure;
use super::follow::say;
use super::hint;
use super::out::clean;
use super::processes::Witness;

/// By this time, a running daemon has taken the work.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// The pause between two later looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The causes that no running process will soon mend.
const CAUSES: [&str; 10] = [
    "paused",
    "no_worker",
    "no_advancer",
    "process_gone",
    "quiet",
    "stopping",
    "trouble",
    "unreadable",
    "write_lock_held",
    "not_writable",
];

/// Tells a person who has just given work to a pipeline that it is paused. The work is in the database, so nothing that
/// fails here is a failure of the command. Proven by `a_command_whose_work_is_done_does_not_fail_for_a_note`.
pub async fn note_pause(conn: &mut Conn, pipeline: &str) {
    let _ = pause_of(conn, pipeline).await;
}

/// True if it is paused.
async fn pause_of(conn: &mut Conn, pipeline: &str) -> Result<bool, Failure> {
    let Some(pause) = pause::of_pipeline(conn, pipeline).await? else {
        return Ok(false);
    };
    let (fact, remedy) = (pause.fact(query::now(conn).await?), pause.remedy());
    say(&clean(&format!("note: {fact}")));
    say(&clean(&hint::pasteable(&format!("remedy: {remedy}"))));
    Ok(true)
}

/// A living worker of a pipeline, if there is any.
pub fn worker<'a>(
    processes: &'a [ProcessRow],
    witness: &Witness,
    pipeline: &str,
) -> Option<&'a ProcessRow> {
    let works = |it: &&ProcessRow| it.pipeline.as_deref() == Some(pipeline);
    let lives = |it: &&ProcessRow| witness.state(it) == State::Healthy;
    processes.iter().find(|it| works(it) && lives(it))
}

/// Tells a person who has just given work to a pipeline that it is paused; and, at a terminal, that no living
/// process works on it. Nothing fails here, as in `note_pause`.
pub async fn note(conn: &mut Conn, config: &Config, pipeline: &str) {
    let _ = nobody_of(conn, config, pipeline).await;
}

async fn nobody_of(conn: &mut Conn, config: &Config, pipeline: &str) -> Result<(), Failure> {
    if pause_of(conn, pipeline).await? || !std::io::stderr().is_terminal() {
        return Ok(());
    }
    let processes = process::processes(conn).await?;
    let witness = Witness::of(config);
    if worker(&processes, &witness, pipeline).is_some() {
        return Ok(());
    }
    let lives = |it: &&ProcessRow| witness.state(it) == State::Healthy;
    let living: Vec<_> = processes.iter().filter(lives).map(taker).collect();
    let works = |it: &ProcessRow| it.pipeline.as_deref() == Some(pipeline);
    let mut remedy = match processes.iter().any(works) {
        false => intake::start_worker(pipeline, &living),
        true => intake::start(Role::Worker, &living).to_owned(),
    };
    if remedy == intake::START {
        remedy.push_str(", or `ductworkd start --until-idle`");
    }
    say(&clean(&format!(
        "note: no `ductworkd` works on {pipeline} now: {remedy}"
    )));
    Ok(())
}

fn taker(row: &ProcessRow) -> Taker<'_> {
    Taker {
        id: row.id,
        supervisor: row.supervisor,
        role: row.role,
        pid: row.pid,
        host: &row.host,
        intake: row.intake,
    }
}

/// While a person waits for a run, checks now and then whether any process is there to move it.
pub struct Lookout<'a> {
    config: &'a Config,
    next: Instant,
    /// The causes that were told.
    told: Vec<&'static str>,
}

impl<'a> Lookout<'a> {
    /// A lookout that begins now.
    pub fn new(config: &'a Config) -> Self {
        Self {
            config,
            next: Instant::now() + FIRST_LOOK,
            told: Vec::new(),
        }
    }

    /// Postpones the next look: the database was away, and the workers have to reconnect to it first.
    pub fn later(&mut self) {
        self.next = Instant::now() + LOOK_EVERY;
    }

    /// The lines that say why nobody moves the run, the first time that this is so for this cause.
    pub async fn look(&mut self, conn: &mut Conn, run: RunId) -> Result<Vec<String>, Failure> {
        if Instant::now() < self.next {
            return Ok(Vec::new());
        }
        let why = super::why::ask(conn, self.config, run).await?;
        self.next = Instant::now() + LOOK_EVERY;
        let is_new = |cause| CAUSES.contains(&cause) && !self.told.contains(&cause);
        let Some(why) = why.filter(|why| is_new(why.cause)) else {
            return Ok(Vec::new());
        };
        self.told.push(why.cause);
        let remedy = why.remedy.as_deref().unwrap_or_default();
        Ok(vec![
            clean(&format!("note: {}", why.fact)),
            clean(&hint::pasteable(&format!("remedy: {remedy}"))),
        ])
    }
}
