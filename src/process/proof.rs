//! Proofs of death for rows of the database, from what the kernel knows.
//!
//! Owns: the proof that a row's process cannot exist any more, nor anything that its steps left behind: that is
//! ended first. Never: guesses; a row of another boot or pid namespace proves nothing, whatever its pid (H12).

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crate::engine::reaper::{Finding, Proof, ProvenDeath};
use crate::model::{ProcessId, Role};
use crate::store::process::ProcessRow;
use crate::telemetry::growing::Growing;

use super::identity::Identity;
use super::orphan::{Found, Hunt};
use super::roster::Pid;

/// The longest hunt for the processes that one dead worker's steps left behind. The caller waits for it.
const HUNT_BOUND: Duration = Duration::from_millis(100);

/// How long a death stays in doubt because of processes that do not die even of SIGKILL, or of which nobody can tell
/// whether the dead process's steps started them. Such a process may sit in the kernel for as long as a disk does not
/// answer.
pub const DOUBT_MAX: Duration = Duration::from_millis(500);

/// How long a dead child is left to its living supervisor, which may have to wait for `DOUBT_MAX` twice.
const SUPERVISOR_FIRST: Duration = Duration::from_secs(2);

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

/// True when a row's process is dead and nothing is left of what its steps started. Blocks for `DOUBT_MAX`
/// at most.
pub fn is_gone(me: &Identity, row: &ProcessRow) -> bool {
    let found = || {
        let found = go_on(&mut hunt(row), row.id, DOUBT_MAX);
        found.inspect_err(|error| log(row.id, error))
    };
    is_dead(me, row) && (row.role != Role::Worker || found().is_ok_and(|found| found.late == 0))
}

/// How long a dead process is left to its supervisor, from the time at which this process knows of the death.
pub fn precedence(me: &Identity, row: &ProcessRow, rows: &[ProcessRow]) -> Duration {
    let supervisor = rows.iter().find(|it| Some(it.id) == row.supervisor);
    let lives = |it: &Identity| me.would_know(it) && !me.is_provably_dead(it);
    match supervisor.map(identity).is_some_and(|it| lives(&it)) {
        true => SUPERVISOR_FIRST,
        false => Duration::ZERO,
    }
}

/// The proofs that one process gives, which remembers since when it has known of each death.
#[derive(Debug, Default)]
pub struct Proofs {
    known: HashMap<ProcessId, Known>,
    /// The workers whose last hunts failed.
    failed: Growing<ProcessId>,
}

#[derive(Debug)]
struct Known {
    since: Instant,
    hunt: Hunt,
    /// When a hunt first left nobody but processes in doubt.
    doubted: Option<Instant>,
}

impl Proofs {
    /// The steps of a dead process may run again only when nothing is left of what they started. For as long as
    /// `precedence` says, its supervisor ends that.
    ///
    /// RACE: a worker was killed together with its supervisor, which would have hunted what the worker's
    /// steps left behind. So the process that proves the death hunts it before it reports the death; where
    /// there was more than it could find in time, the next look tries again. Proven by
    /// `what_the_steps_of_the_dead_left_behind_is_gone_before_they_run_again`.
    ///
    /// RACE: the supervisor lives, and another process proves the death of its child first. Only the supervisor finds
    /// the processes that hide from a hunt, and only it knows whether it has stopped the child. So the other process leaves
    /// the child to it. Proven by `a_dead_child_is_left_to_its_supervisor_while_that_lives`.
    ///
    /// RACE: a step was sent SIGKILL in a system call, which still takes effect when a disk answers. So the proof waits
    /// for the step's end, but not for long. Proven by `a_process_that_does_not_die_is_waited_for_and_not_for_ever`.
    pub fn finding(
        &mut self,
        row: &ProcessRow,
        rows: &[ProcessRow],
        precedence: Duration,
        death: ProvenDeath,
    ) -> Finding {
        self.known
            .retain(|id, _| rows.iter().any(|row| row.id == *id));
        let go_on = |hunt: &mut Hunt| go_on(hunt, row.id, HUNT_BOUND);
        self.finding_at(Instant::now(), row, precedence, death, &go_on)
    }

    fn finding_at(
        &mut self,
        now: Instant,
        row: &ProcessRow,
        precedence: Duration,
        death: ProvenDeath,
        go_on: &dyn Fn(&mut Hunt) -> io::Result<Found>,
    ) -> Finding {
        let known = self.known.entry(row.id).or_insert_with(|| Known {
            since: now,
            hunt: hunt(row),
            doubted: None,
        });
        if now < known.since + precedence {
            return Finding::Doubted;
        }
        if row.role != Role::Worker {
            return Finding::Dead(death);
        }
        match go_on(&mut known.hunt) {
            // Without a look nothing is proven. The next sweep tries again, and until one succeeds the worker is judged by
            // its heartbeat alone.
            Err(error) => {
                if self.failed.meet(&row.id, now).is_some() {
                    log(row.id, &error);
                }
                Finding::MayLive
            }
            Ok(found) if found.late > 0 => Finding::Doubted,
            Ok(found)
                if found.in_doubt > 0 && now < *known.doubted.get_or_insert(now) + DOUBT_MAX =>
            {
                Finding::Doubted
            }
            Ok(_) => Finding::Dead(death),
        }
    }
}

/// The hunt for what the steps of a row's process have left behind on this host.
fn hunt(row: &ProcessRow) -> Hunt {
    Hunt::new(&[row.id], row.pid_started_at)
}

fn go_on(hunt: &mut Hunt, worker: ProcessId, bound: Duration) -> io::Result<Found> {
    let found = hunt.go_on(bound)?;
    if found.killed > 0 {
        tracing::warn!(
            %worker,
            processes = found.killed,
            "ended what a dead worker's steps left behind"
        );
    }
    Ok(found)
}

/// Tells of a hunt that failed.
fn log(worker: ProcessId, error: &io::Error) {
    tracing::error!(
        %worker,
        %error,
        "cannot look for what a dead worker's steps left behind; trying again"
    );
}

/// The proof that a process without children can give: predecessors on this host that are gone.
pub fn of_strangers() -> Box<Proof> {
    let me = Identity::current();
    let mut proofs = Proofs::default();
    Box::new(move |row, rows| {
        if !is_dead(&me, row) {
            return Finding::MayLive;
        }
        let death = ProvenDeath::Crashed("it does not exist any more".to_owned());
        proofs.finding(row, rows, precedence(&me, row, rows), death)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::super::testing::{self, Half, Killed, eventually, part};
    use super::*;
    use crate::step::PROCESS;
    use crate::store::process::Condemned;
    use crate::telemetry::testing::Logged;

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
        let mut hunt = Hunt::new(&[worker], 0);
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
            assert!(go_on(&mut hunt, worker, HUNT_BOUND).is_err(), "{free}");
            assert_eq!(left.try_wait().unwrap(), None, "{free}");
            held.pop().expect("it held some");
        }
        drop(held);
        eventually("nothing is left", || {
            let found = go_on(&mut hunt, worker, HUNT_BOUND);
            found
                .ok()
                .filter(|found| found.late == 0 && found.in_doubt == 0)
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
        let mut sleep = std::process::Command::new("sleep");
        let mut supervisor = Killed(sleep.arg("1000").spawn().unwrap());
        let its_row = row(ProcessId::new(), supervisor.0.id() as Pid);
        let dead = ProcessRow {
            supervisor: Some(its_row.id),
            ..row(ProcessId::new(), Pid::MAX)
        };
        assert!(is_dead(&me, &dead));
        let rows = [dead.clone(), its_row];
        assert_eq!(precedence(&me, &dead, &rows), SUPERVISOR_FIRST);
        let lone = row(ProcessId::new(), Pid::MAX);
        assert_eq!(precedence(&me, &lone, &rows), Duration::ZERO);
        assert_eq!(precedence(&me, &dead, &rows[..1]), Duration::ZERO);
        let mut elsewhere = rows.clone();
        elsewhere[1].boot_id = "another".to_owned();
        assert_eq!(precedence(&me, &dead, &elsewhere), Duration::ZERO);
        // It was declared dead, but goes on.
        let mut declared = rows.clone();
        declared[1].condemned = Some(Condemned::Crashed);
        assert_eq!(precedence(&me, &dead, &declared), SUPERVISOR_FIRST);
        let mut proof = of_strangers();
        assert_eq!(proof(&dead, &rows), Finding::Doubted);
        let is_proven = |finding| matches!(finding, Finding::Dead(ProvenDeath::Crashed(_)));
        let mut eventually_proven = |row: &ProcessRow| {
            eventually("the death is proven", || {
                is_proven(proof(row, &rows)).then_some(())
            })
        };
        eventually_proven(&lone);
        supervisor.0.kill().unwrap();
        supervisor.0.wait().unwrap();
        assert_eq!(precedence(&me, &dead, &rows), Duration::ZERO);
        eventually_proven(&dead);
    }

    #[test]
    fn nobody_looks_for_what_is_left_before_its_turn() {
        let began = Instant::now();
        let moment = Duration::from_millis(1);
        // An advancer has left nothing, but only its supervisor knows whether it has crashed.
        for role in [Role::Worker, Role::Advancer] {
            let dead = ProcessRow {
                role,
                ..row(ProcessId::new(), Pid::MAX)
            };
            for precedence in [Duration::ZERO, DOUBT_MAX, SUPERVISOR_FIRST] {
                let mut proofs = Proofs::default();
                let hunts = Cell::new(0);
                let go_on = |_: &mut Hunt| {
                    hunts.set(hunts.get() + 1);
                    Ok(Found::default())
                };
                let mut finding = |after: Duration| {
                    let stopped = ProvenDeath::Stopped;
                    proofs.finding_at(began + after, &dead, precedence, stopped, &go_on)
                };
                if !precedence.is_zero() {
                    assert_eq!(finding(Duration::ZERO), Finding::Doubted);
                    assert_eq!(finding(precedence - moment), Finding::Doubted);
                }
                assert_eq!(hunts.get(), 0);
                let death = Finding::Dead(ProvenDeath::Stopped);
                assert_eq!(finding(precedence), death);
                assert_eq!(hunts.get(), usize::from(role == Role::Worker));
            }
        }
    }

    #[test]
    fn a_process_that_does_not_die_is_waited_for_and_not_for_ever() {
        let dead = row(ProcessId::new(), Pid::MAX);
        let found = |late, in_doubt| {
            Some(Found {
                killed: 1,
                late,
                in_doubt,
            })
        };
        let (began, death) = (Instant::now(), ProvenDeath::Stopped);
        let proven = || Finding::Dead(death.clone());
        for (found, at_once, later) in [
            (found(0, 0), proven(), proven()),
            (found(0, 1), Finding::Doubted, proven()),
            (found(1, 0), Finding::Doubted, Finding::Doubted),
            (found(1, 1), Finding::Doubted, Finding::Doubted),
            (None, Finding::MayLive, Finding::MayLive),
        ] {
            // The wait begins with the first hunt, however long its supervisor had precedence.
            for precedence in [Duration::ZERO, SUPERVISOR_FIRST] {
                let mut proofs = Proofs::default();
                let mut finding = |after: Duration| {
                    let go_on = |_: &mut Hunt| found.ok_or_else(|| io::ErrorKind::Other.into());
                    proofs.finding_at(began + after, &dead, precedence, death.clone(), &go_on)
                };
                finding(Duration::ZERO);
                assert_eq!(finding(precedence), at_once, "{found:?}");
                assert_eq!(finding(precedence + DOUBT_MAX), later, "{found:?}");
            }
        }
    }

    #[test]
    fn a_hunt_that_fails_again_and_again_is_logged_at_growing_intervals() {
        let logged = Logged::begin();
        let rows = [(); 2].map(|()| row(ProcessId::new(), Pid::MAX));
        let (began, mut proofs) = (Instant::now(), Proofs::default());
        let fails = |_: &mut Hunt| Err(io::ErrorKind::Other.into());
        for (seconds, lines) in [(0, 2), (1, 2), (59, 2), (60, 4)] {
            for row in &rows {
                let now = began + Duration::from_secs(seconds);
                let stopped = ProvenDeath::Stopped;
                let finding = proofs.finding_at(now, row, Duration::ZERO, stopped, &fails);
                assert_eq!(finding, Finding::MayLive);
            }
            assert_eq!(logged.count("cannot look for what"), lines, "{seconds}");
        }
    }
}
