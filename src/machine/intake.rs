//! Why no process takes new work, and the remedy.
//!
//! Owns: that decision, for one run (`why`), for a deployment (`stuck`), and for a command that starts runs
//! (`cli::nobody`).
//! Never: knows runs, or reads rows.

use crate::model::{Intake, ProcessId, Role};

/// The remedy if nobody can do the work, and no living daemon only needs a reload.
pub const START: &str = "start `ductworkd`";

/// The same where other processes run in a role of their own: another one like them would not help.
const START_ADVANCER: &str = "start an advancer, too: DUCTWORK_ROLE=advancer ductworkd";
const START_WORKER: &str =
    "start a worker that serves the pipeline, too: DUCTWORK_ROLE=worker ductworkd";

/// The remedy if all processes that could do the work are stopping.
pub const STOPPING: &str =
    "none, if it is being restarted; otherwise start `ductworkd` again when it has stopped";

/// The same if their daemon goes on.
pub const REPLACED: &str = "none, if the pipeline is still configured: the daemon starts another one when this one has ended";

/// A living process, and whether it takes new work.
#[derive(Clone, Copy)]
pub struct Taker<'a> {
    /// Its key.
    pub id: ProcessId,
    /// Its supervisor, if it has one.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// Its pid, on its host.
    pub pid: u32,
    /// Its host.
    pub host: &'a str,
    /// Whether it takes new work.
    pub intake: Intake,
}

impl Taker<'_> {
    /// True if it works without a supervisor.
    fn is_alone(&self) -> bool {
        self.supervisor.is_none() && matches!(self.role, Role::Worker | Role::Advancer)
    }
}

/// The remedy if nobody of this role can do the work, where these are all living processes.
pub fn start(role: Role, living: &[Taker<'_>]) -> &'static str {
    let mut supervisors = living.iter().filter(|it| it.role == Role::Supervisor);
    match supervisors.next() {
        Some(first) if [first].into_iter().chain(supervisors).all(is_stopping) => STOPPING,
        Some(_) => START,
        None if !living.iter().any(Taker::is_alone) => START,
        None if role == Role::Advancer => START_ADVANCER,
        None => START_WORKER,
    }
}

fn is_stopping(it: &Taker<'_>) -> bool {
    it.intake == Intake::Stopping
}

/// The remedy if no worker of a pipeline is known, where these are all living processes: a running daemon does not know
/// the pipeline, or cannot start the worker.
pub fn start_worker(pipeline: &str, living: &[Taker<'_>]) -> String {
    let mut supervisors = living.iter().filter(|it| it.role == Role::Supervisor);
    match supervisors.find(|it| !is_stopping(it)) {
        Some(Taker { host, pid, .. }) => format!(
            "the running daemon has no worker for {pipeline}. If it has tried to start one, its log says why that \
             failed. Otherwise, start a daemon that works on {pipeline}, or check that the pipeline's file exists and \
             that `pipelines` includes it, then reload the daemon, on {host}: kill -HUP {pid}"
        ),
        None => start(Role::Worker, living).to_owned(),
    }
}

/// The remedy if no process claims because all are quiet, where these are the living supervisors. A supervisor passes the
/// signal on to its children; a process without one takes it itself.
fn claim_again(quiet: &Taker<'_>, supervisors: &[&Taker<'_>]) -> String {
    // A supervisor that registers anew has another key: then the only one of the host is meant.
    let mut here = supervisors.iter().filter(|it| it.host == quiet.host);
    let only = here.next().filter(|_| here.next().is_none());
    let only = only.filter(|_| quiet.supervisor.is_some()).copied();
    let pid = match supervisor_of(quiet, supervisors).or(only) {
        Some(own) if own.intake == Intake::Quiet => own.pid,
        _ => quiet.pid,
    };
    format!("let it claim again, on {}: kill -CONT {pid}", quiet.host)
}

/// The remedy if all that could do the work are stopping, and this is one of them.
fn stopping(it: &Taker<'_>, supervisors: &[&Taker<'_>]) -> &'static str {
    match supervisor_of(it, supervisors) {
        Some(own) if !is_stopping(own) => REPLACED,
        _ => STOPPING,
    }
}

/// Its living supervisor.
fn supervisor_of<'a, 'b>(
    it: &Taker<'_>,
    supervisors: &'b [&'b Taker<'a>],
) -> Option<&'b Taker<'a>> {
    let own = it.supervisor?;
    supervisors.iter().copied().find(|other| other.id == own)
}

/// Why nobody takes new work: the cause, the fact and the remedy.
pub struct Closed {
    /// A word for machines.
    pub cause: &'static str,
    /// Words that follow a colon or a comma.
    pub fact: String,
    /// The remedy, in words.
    pub remedy: String,
}

/// The reason, if none of these processes takes new work, where `living` are all living ones. A quiet process, which can
/// take work at once, is named first.
pub fn closed(takers: &[Taker<'_>], living: &[Taker<'_>]) -> Option<Closed> {
    if takers.iter().any(|it| it.intake.is_open()) {
        return None;
    }
    let quiet = takers.iter().find(|it| it.intake == Intake::Quiet);
    let first = quiet.or(takers.first())?;
    let more = takers.iter().filter(|it| it.intake == first.intake).count() - 1;
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let named = format!("pid {} on {}{more}", first.pid, first.host);
    let supervisors = living.iter().filter(|it| it.role == Role::Supervisor);
    let supervisors: Vec<_> = supervisors.collect();
    Some(match first.intake {
        Intake::Stopping => Closed {
            cause: "stopping",
            fact: format!("{named} is stopping"),
            remedy: stopping(first, &supervisors).to_owned(),
        },
        _ => Closed {
            cause: "quiet",
            fact: format!("{named} is quiet (SIGTSTP)"),
            remedy: claim_again(first, &supervisors),
        },
    })
}
