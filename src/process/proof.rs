//! Proofs of death for rows of the database, from what the kernel knows.
//!
//! Owns: the proof that a row's process cannot exist any more, nor anything that its steps left behind: that is
//! ended first. Never: guesses; a row of another boot or pid namespace proves nothing, whatever its pid (H12).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::reaper::{Proof, ProvenDeath};
use crate::model::{ProcessId, Role};
use crate::store::process::ProcessRow;

use super::identity::Identity;
use super::orphan::{self, Sweep};
use super::roster::Pid;

/// The longest hunt for the processes that one dead worker's steps left behind. The caller waits for it.
const HUNT_BOUND: Duration = Duration::from_millis(100);

/// How long a death is in doubt because of processes that do not even die of SIGKILL. They do nothing of their own any
/// more, and may sit in the kernel for as long as a disk is gone.
const DOUBTED: Duration = Duration::from_millis(500);

/// How long a dead child is left to its supervisor, which itself may have to wait for `DOUBTED`.
const ITS_SUPERVISORS: Duration = Duration::from_secs(1);

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

/// True when a row's process is dead and nothing is left of what its steps started, by a single look.
pub fn is_gone(me: &Identity, row: &ProcessRow) -> bool {
    is_dead(me, row) && Proofs::default().is_gone(row, &[], Keeper::Nobody)
}

/// The process that ends what a dead process's steps left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// This process is the supervisor.
    Me {
        /// True when it is certain of that; false when it cannot tell.
        nothing_is_left: bool,
    },
    /// The supervisor lives on this host.
    ItsSupervisor,
    /// The supervisor is gone, or there was none.
    Nobody,
}

impl Keeper {
    /// The process that answers for a row's process, as another process sees it.
    pub fn of(me: &Identity, row: &ProcessRow, rows: &[ProcessRow]) -> Self {
        let supervisor = rows.iter().find(|it| Some(it.id) == row.supervisor);
        let lives = |it: &ProcessRow| me.would_know(&identity(it)) && !is_dead(me, it);
        match supervisor.is_some_and(lives) {
            true => Self::ItsSupervisor,
            false => Self::Nobody,
        }
    }

    /// How long after a death it alone looks for what is left.
    fn precedence(self) -> Duration {
        match self {
            Self::Me { .. } => DOUBTED,
            Self::ItsSupervisor => ITS_SUPERVISORS,
            Self::Nobody => Duration::ZERO,
        }
    }
}

/// The proofs that one process gives, which remembers since when it has known of each death.
#[derive(Debug, Default)]
pub struct Proofs {
    known: HashMap<ProcessId, Instant>,
}

impl Proofs {
    /// True when nothing is left of what the steps of a dead process started: only then may they run again.
    ///
    /// RACE: a worker was killed together with its supervisor, which would have hunted what the worker's
    /// steps left behind. So the process that proves the death hunts it before it reports the death; where
    /// there was more than it could find in time, the next look tries again. Proven by
    /// `what_the_steps_of_the_dead_left_behind_is_gone_before_they_run_again`.
    ///
    /// RACE: the supervisor lives, and another one proves the death of its child first. Only the supervisor finds what
    /// hides from a hunt, and only it knows whether it has stopped the child. So the other one leaves the child to it.
    /// Proven by `a_dead_child_is_left_to_its_supervisor_while_that_lives`.
    ///
    /// RACE: a step was sent SIGKILL in a system call, which still takes effect when a disk answers. So the proof waits
    /// for its end, but not for long. Proven by `a_process_that_does_not_die_is_waited_for_and_not_for_ever`.
    pub fn is_gone(&mut self, row: &ProcessRow, rows: &[ProcessRow], keeper: Keeper) -> bool {
        self.known
            .retain(|id, _| rows.iter().any(|row| row.id == *id));
        self.is_gone_at(Instant::now(), row, keeper, &hunt)
    }

    fn is_gone_at(
        &mut self,
        now: Instant,
        row: &ProcessRow,
        keeper: Keeper,
        hunt: &dyn Fn(ProcessId) -> Option<Sweep>,
    ) -> bool {
        let known = now.saturating_duration_since(*self.known.entry(row.id).or_insert(now));
        match keeper {
            Keeper::Me {
                nothing_is_left: true,
            } => true,
            _ if known < keeper.precedence() => false,
            _ if row.role != Role::Worker => true,
            _ => match hunt(row.id) {
                // Without a look nothing is proven. The next look tries again, and until one succeeds the worker is
                // judged by its heartbeat alone.
                None => false,
                Some(hunt) => hunt.left == 0 && (hunt.in_doubt == 0 || known >= DOUBTED),
            },
        }
    }
}

/// Ends what a dead worker's steps have left behind on this host.
fn hunt(worker: ProcessId) -> Option<Sweep> {
    match orphan::hunt(worker, HUNT_BOUND) {
        Ok(hunt) => {
            if hunt.killed > 0 {
                tracing::warn!(
                    %worker,
                    processes = hunt.killed,
                    "ended what a dead worker's steps left behind"
                );
            }
            Some(hunt)
        }
        Err(error) => {
            tracing::error!(
                %worker,
                %error,
                "cannot look for what a dead worker's steps left behind; trying again"
            );
            None
        }
    }
}

/// The proof that a process without children can give: predecessors on this host that are gone.
pub fn of_strangers() -> Box<Proof> {
    let me = Identity::current();
    let mut proofs = Proofs::default();
    Box::new(move |row, rows| {
        let is_gone = is_dead(&me, row) && proofs.is_gone(row, rows, Keeper::of(&me, row, rows));
        is_gone.then(|| ProvenDeath::Crashed("it does not exist any more".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::super::testing::{self, Half, eventually, part};
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
            assert_eq!(hunt(worker), None, "{free}");
            assert_eq!(left.try_wait().unwrap(), None, "{free}");
            held.pop().expect("it held some");
        }
        drop(held);
        eventually("nothing is left", || {
            hunt(worker).filter(|hunt| hunt.left == 0 && hunt.in_doubt == 0)
        });
        let _killed = eventually("it is dead", || left.try_wait().unwrap());
    }

    /// A process that lives, as a row with this key.
    fn row(id: ProcessId, pid: Pid) -> ProcessRow {
        let identity = Identity {
            pid,
            started_ticks: crate::proc::stat(pid).map_or(7, |stat| stat.started_ticks),
            ..Identity::current()
        };
        ProcessRow {
            id,
            ..testing::row(&identity, Duration::ZERO)
        }
    }

    #[test]
    fn a_dead_child_is_left_to_its_supervisor_while_that_lives() {
        let me = Identity::current();
        let mut supervisor = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let its_row = row(ProcessId::new(), supervisor.id() as Pid);
        let dead = ProcessRow {
            supervisor: Some(its_row.id),
            ..row(ProcessId::new(), Pid::MAX)
        };
        assert!(is_dead(&me, &dead));
        let rows = [dead.clone(), its_row];
        assert_eq!(Keeper::of(&me, &dead, &rows), Keeper::ItsSupervisor);
        let lone = row(ProcessId::new(), Pid::MAX);
        assert_eq!(Keeper::of(&me, &lone, &rows), Keeper::Nobody);
        assert_eq!(Keeper::of(&me, &dead, &rows[..1]), Keeper::Nobody);
        let mut elsewhere = rows.clone();
        elsewhere[1].boot_id = "another".to_owned();
        assert_eq!(Keeper::of(&me, &dead, &elsewhere), Keeper::Nobody);
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        assert_eq!(Keeper::of(&me, &dead, &rows), Keeper::Nobody);

        // The advancer has left nothing; its supervisor knows whether it has crashed.
        for role in [Role::Worker, Role::Advancer] {
            let dead = ProcessRow {
                role,
                ..dead.clone()
            };
            let mut proofs = Proofs::default();
            let began = Instant::now();
            let mut is_gone = |after: Duration, keeper| {
                proofs.is_gone_at(began + after, &dead, keeper, &|_| Some(Sweep::default()))
            };
            let moment = Duration::from_millis(1);
            let mine = |nothing_is_left| Keeper::Me { nothing_is_left };
            assert!(!is_gone(Duration::ZERO, Keeper::ItsSupervisor), "{role}");
            assert!(!is_gone(ITS_SUPERVISORS - moment, Keeper::ItsSupervisor));
            assert!(is_gone(ITS_SUPERVISORS - moment, Keeper::Nobody));
            assert!(is_gone(ITS_SUPERVISORS, Keeper::ItsSupervisor));
            assert!(is_gone(Duration::ZERO, mine(true)));
            assert!(!is_gone(DOUBTED - moment, mine(false)));
            assert!(is_gone(DOUBTED, mine(false)));
        }
    }

    #[test]
    fn a_process_that_does_not_die_is_waited_for_and_not_for_ever() {
        let dead = row(ProcessId::new(), Pid::MAX);
        let sweep = |left, in_doubt| {
            Some(Sweep {
                left,
                in_doubt,
                ..Sweep::default()
            })
        };
        let began = Instant::now();
        for (found, at_once, later) in [
            (sweep(0, 0), true, true),
            (sweep(0, 1), false, true),
            (sweep(1, 0), false, false),
            (sweep(1, 1), false, false),
            (None, false, false),
        ] {
            let mut proofs = Proofs::default();
            for (after, expected) in [(Duration::ZERO, at_once), (DOUBTED, later)] {
                let is_gone = proofs.is_gone_at(began + after, &dead, Keeper::Nobody, &|_| found);
                assert_eq!(is_gone, expected, "{found:?} after {after:?}");
            }
        }
    }
}
