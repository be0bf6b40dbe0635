//! Proofs of death for rows of the database, from what the kernel knows.
//!
//! Owns: the proof that a row's process cannot exist any more, nor anything that its steps left behind: that is
//! ended first. Never: guesses; a row of another boot or pid namespace proves nothing, whatever its pid (H12).

use std::time::Duration;

use crate::engine::reaper::{Proof, ProvenDeath};
use crate::model::{ProcessId, Role};
use crate::store::process::ProcessRow;

use super::identity::Identity;
use super::orphan;
use super::roster::Pid;

/// The longest hunt for the processes that one dead worker's steps left behind. The caller waits for it.
const HUNT_BOUND: Duration = Duration::from_millis(100);

/// The identity that a row recorded.
pub fn identity(row: &ProcessRow) -> Identity {
    Identity {
        host: row.host.clone(),
        boot_id: row.boot_id.clone(),
        pid_namespace: row.pid_namespace.clone(),
        pid: row.pid as Pid,
        started_ticks: row.pid_started_at,
    }
}

/// True when it can be proven from here that a row's process is dead, or when it was declared dead. Ends nothing.
pub fn is_dead(me: &Identity, row: &ProcessRow) -> bool {
    row.condemned.is_some() || me.is_provably_dead(&identity(row))
}

/// True when it can be proven from here that a row's process is dead, and when nothing is left of what
/// its steps started: only then may they run again.
///
/// RACE: a worker was killed together with its supervisor, which would have hunted what the worker's
/// steps left behind. So the process that proves the death hunts it before it reports the death; where
/// there was more than it could find in time, the next look tries again. Proven by
/// `what_the_steps_of_the_dead_left_behind_is_gone_before_they_run_again`.
pub fn is_gone(me: &Identity, row: &ProcessRow) -> bool {
    is_dead(me, row) && (row.role != Role::Worker || left_nothing(row.id))
}

fn left_nothing(worker: ProcessId) -> bool {
    match orphan::hunt(worker, HUNT_BOUND) {
        Ok(hunt) => {
            if hunt.killed > 0 {
                tracing::warn!(
                    %worker,
                    processes = hunt.killed,
                    "ended what a dead worker's steps left behind"
                );
            }
            hunt.left == 0
        }
        // Without a look nothing is proven. The next look tries again, and until one succeeds the worker is judged by
        // its heartbeat alone.
        Err(error) => {
            tracing::error!(
                %worker,
                %error,
                "cannot look for what a dead worker's steps left behind; trying again"
            );
            false
        }
    }
}

/// The proof that a process without children can give: predecessors on this host that are gone.
pub fn of_strangers() -> Box<Proof> {
    let me = Identity::current();
    Box::new(move |row| {
        is_gone(&me, row).then(|| ProvenDeath::Crashed("it does not exist any more".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::super::testing::{Half, eventually, part};
    use super::*;
    use crate::step::PROCESS;

    #[test]
    fn nothing_is_proven_while_there_are_no_descriptors_for_a_look() {
        let test =
            "process::proof::tests::nothing_is_proven_while_there_are_no_descriptors_for_a_look";
        if part().is_none() {
            let place = tempfile::tempdir().unwrap();
            Half::start(test, "hunter", place.path(), &[]).succeeded();
            return;
        }
        let worker = ProcessId::new();
        let mut command = std::process::Command::new("sleep");
        let command = command.arg("1000").env(PROCESS, worker.to_string());
        let mut left = command.spawn().unwrap();

        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 256, hard).unwrap();
        let mut held = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            held.push(file);
        }
        // Without a descriptor nobody can list the processes. With one, processes can be listed and looked at, but not
        // ended.
        for free in ["none", "one"] {
            assert!(!left_nothing(worker), "{free}");
            assert_eq!(left.try_wait().unwrap(), None, "{free}");
            held.pop().expect("it held some");
        }
        drop(held);
        eventually("nothing is left", || left_nothing(worker).then_some(()));
        let _killed = eventually("it is dead", || left.try_wait().unwrap());
    }
}
