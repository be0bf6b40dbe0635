//! Why no process takes new work, and the remedy.
//!
//! Owns: that decision, for one run (`why`), for a deployment (`stuck`), and for a command that starts runs
//! (`cli::nobody`).
//! Never: knows runs, or reads rows.

use crate::model::Intake;

/// The remedy if work waits for a worker and there is no daemon, or none that only needs a reload.
pub const START: &str = "start `ductworkd`";

/// The remedy if all processes that could do the work are stopping.
pub const STOPPING: &str =
    "none, if it is being restarted; otherwise start `ductworkd` again when it has stopped";

/// The same if their daemon goes on.
pub const REPLACED: &str = "none, if the pipeline is still configured: the daemon starts another one when this one has ended";

/// The remedy if nobody can do the work, where these are the living supervisors.
pub fn start(mut supervisors: impl Iterator<Item = Intake>) -> &'static str {
    match supervisors.next() {
        Some(Intake::Stopping) if supervisors.all(|it| it == Intake::Stopping) => STOPPING,
        _ => START,
    }
}

/// The remedy if all that could do the work are stopping, where these are the living supervisors of their host.
fn stopping(mut supervisors: impl Iterator<Item = Intake>) -> &'static str {
    match supervisors.any(|it| it != Intake::Stopping) {
        true => REPLACED,
        false => STOPPING,
    }
}

/// The remedy if a running daemon has no worker of a pipeline: it does not know the pipeline, or cannot start the worker.
pub fn reload(pipeline: &str, pid: u32) -> String {
    format!(
        "the running daemon has no worker for {pipeline}. If it has tried to start one, its log says why that failed. \
         Otherwise, check that the pipeline's file exists and that `pipelines` includes it, then reload the daemon: \
         kill -HUP {pid}"
    )
}

/// The remedy if no process claims because all are quiet; `supervisors` are the pids of the quiet ones on the host
/// of the process `pid`. A supervisor passes the signal on to its children; a process without one takes it itself.
fn claim_again(pid: u32, host: &str, supervisors: &[u32]) -> String {
    let pid = match supervisors {
        [] => pid,
        [supervisor] => *supervisor,
        _ => return format!("send SIGCONT to `ductworkd` on {host}: it claims again"),
    };
    format!("let it claim again, on {host}: kill -CONT {pid}")
}

/// A living process, and whether it takes new work.
#[derive(Clone, Copy)]
pub struct Taker<'a> {
    /// Its pid, on its host.
    pub pid: u32,
    /// Its host.
    pub host: &'a str,
    /// Whether it takes new work.
    pub intake: Intake,
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

/// The reason, if none of these processes takes new work; `supervisors` are the living ones. A quiet process, which can
/// take work at once, is named first.
pub fn closed(takers: &[Taker<'_>], supervisors: &[Taker<'_>]) -> Option<Closed> {
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
    let here = supervisors.iter().filter(|it| it.host == first.host);
    Some(match first.intake {
        Intake::Stopping => Closed {
            cause: "stopping",
            fact: format!("{named} is stopping"),
            remedy: stopping(here.map(|it| it.intake)).to_owned(),
        },
        _ => {
            let quiet = here.filter(|it| it.intake == Intake::Quiet);
            let quiet: Vec<u32> = quiet.map(|it| it.pid).collect();
            Closed {
                cause: "quiet",
                fact: format!("{named} is quiet (SIGTSTP)"),
                remedy: claim_again(first.pid, first.host, &quiet),
            }
        }
    })
}
