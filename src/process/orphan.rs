//! The processes that dead children leave behind.
//!
//! Owns: finding, ending and reaping the steps of a killed worker, which the kernel hands to the
//! nearest subreaper, the supervisor, or, where that was killed as well, to a process that knows
//! nothing of them. Never: touches a child of the roster, a process that a living worker's step
//! started, or, as pid 1, a process that never was ours.
//!
//! Only an orphan's environment tells from which child it descends: it may have left its group and its
//! session and may have lost its parents one after the other. So every child gets an environment variable
//! of its own ([`CHILD`]), which steps inherit. A supervisor knows the tags of its own children. Only the
//! database knows the children of others, so each step also has the key of its worker's row ([`PROCESS`]).

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid as NixPid;

use crate::model::ProcessId;
use crate::proc::{Stat, environment, try_stat, variables};
use crate::step::{CHILD, PROCESS};

use super::identity;
use super::roster::Pid;
use super::spawn::{self, Spawned};

/// The time between two looks; a killed process needs about that long to die.
const ROUND: Duration = Duration::from_millis(5);

/// The time between two looks at a process that executes another program.
const MOMENT: Duration = Duration::from_millis(1);

/// The processes that are not orphans.
#[derive(Clone, Debug, Default)]
pub struct Living {
    /// The children of the roster.
    pub pids: HashSet<Pid>,
    /// Their tags.
    pub tags: HashSet<String>,
    /// Children from before those of the roster, with their start times: no child of the roster started them.
    pub elders: HashSet<(Pid, u64)>,
}

impl Living {
    /// Before the first child of the roster: the children that this process has by now are its start hooks', or those
    /// of the program that became this one.
    pub fn before_the_first() -> io::Result<Self> {
        let with_start = |pid: Pid| Some((pid, identity::stat(pid)?.started_ticks));
        let elders = children_of_self()?.into_iter().filter_map(with_start);
        Ok(Self {
            elders: elders.collect(),
            ..Self::default()
        })
    }
}

/// The result of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Processes that were sent SIGKILL (again, if they were still there at the next look).
    pub killed: usize,
    /// Zombies that were reaped.
    pub reaped: usize,
    /// Processes that are still there, and must be looked for again.
    pub left: usize,
}

/// Looks once at the children of this process that nobody answers for: reaps zombies, and kills the
/// orphans of dead children. Never blocks.
pub fn sweep_once(living: &Living) -> io::Result<Sweep> {
    let is_init = std::process::id() == 1;
    let mut sweep = Sweep::default();
    for pid in children_of_self()? {
        if living.pids.contains(&pid) || spawn::is_spared(pid) {
            continue;
        }
        let Some(stat) = identity::stat(pid) else {
            continue;
        };
        if stat.is_corpse() {
            sweep.reaped += usize::from(spawn::wait_for(pid)?.is_some());
            continue;
        }
        if living.elders.contains(&(pid, stat.started_ticks)) {
            continue;
        }
        match is_orphan(&tag_of(pid), living, is_init) {
            Some(true) => {}
            Some(false) => continue,
            None => {
                sweep.left += 1;
                continue;
            }
        }
        // Neither number can have come to mean another process: it is our child and not reaped. We kill
        // its group only if it leads the group, so that we never hit the group of a living worker's step.
        if stat.group == pid {
            let _gone = signal::killpg(NixPid::from_raw(pid), Signal::SIGKILL);
        }
        // A process of another user may not be killed.
        let killed = signal::kill(NixPid::from_raw(pid), Signal::SIGKILL);
        sweep.killed += usize::from(killed.is_ok());
        sweep.left += 1;
    }
    Ok(sweep)
}

/// Looks again and again, since a dying process leaves its own children to us, until nobody is left
/// or the time is over. Returns how many were killed and reaped, and how many are left.
pub async fn sweep(living: &Living, bound: Duration) -> io::Result<Sweep> {
    let started = Instant::now();
    let mut total = Sweep::default();
    loop {
        let one = sweep_once(living)?;
        total.killed += one.killed;
        total.reaped += one.reaped;
        total.left = one.left;
        if (one.left == 0 && one.reaped == 0) || started.elapsed() >= bound {
            return Ok(total);
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// True when no dead child of this process can have left a descendant behind: each child of this process is
/// one of the living, descends from one of them, is spared, is an elder, or is dead. Must be called in the thread that
/// reaps, so that the kernel's list cannot shrink while it is read. False means that there may be one.
///
/// RACE: an orphan dies between the list and the look at it, and its own children, which the list lacks,
/// come to us. A corpse has no children any more, so we read the list once more after the look. Raced by
/// `a_process_that_hides_from_the_hunt_is_gone_before_its_step_runs_again`.
pub fn left_nothing(living: &Living) -> io::Result<bool> {
    if !nix::sys::prctl::get_child_subreaper()? {
        return Ok(false);
    }
    let listed = || Ok::<HashSet<Pid>, io::Error>(children_of_self()?.into_iter().collect());
    let is_accounted_for = |pid: &Pid| {
        let is_elder = |stat: &Stat| living.elders.contains(&(*pid, stat.started_ticks));
        living.pids.contains(pid)
            || spawn::is_spared(*pid)
            || identity::stat(*pid).is_some_and(|stat| stat.is_corpse() || is_elder(&stat))
            || matches!(tag_of(*pid), Tag::Of(tag) if living.tags.contains(&tag))
    };
    let before = listed()?;
    Ok(
        living.pids.is_subset(&before)
            && before.iter().all(is_accounted_for)
            && listed()? == before,
    )
}

/// The result of a hunt, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Processes that were sent SIGKILL for the first time.
    pub killed: usize,
    /// Processes that were found too late to be killed.
    pub late: usize,
    /// Processes that were sent SIGKILL and are not dead yet, and those that execute another program, so that nobody can
    /// tell yet whose they are.
    pub in_doubt: usize,
}

/// Ends the processes that the steps of dead workers have left behind on this host.
///
/// It kills every process that was born with the key of such a worker, and every process that shares a
/// process group with one of them: a step has a group and a session of its own, which nobody can join
/// from outside. When descriptors or memory are short nobody can tell whose a process is: that is an error, and proves
/// nothing.
#[derive(Debug)]
pub struct Hunt {
    marks: HashSet<Vec<u8>>,
    /// The steps of these workers started later than this, in clock ticks since boot.
    since: u64,
    /// The processes that were sent SIGKILL, with their start times.
    killed: HashMap<Pid, u64>,
}

/// One look of a hunt at a process.
enum Look {
    Marked,
    Unmarked,
    /// It has no environment: it may have ended since it was listed.
    Nothing,
    Unknown,
}

impl Hunt {
    /// A hunt that has not begun. `since`: when the first of these workers was started, in clock ticks since boot.
    pub fn new(workers: &[ProcessId], since: u64) -> Self {
        // A step of such a worker started this very process: a daemon, say. It is no judge of that.
        let own = std::env::var(PROCESS).unwrap_or_default();
        let workers = workers.iter().map(ToString::to_string);
        let workers = workers.filter(|worker| *worker != own);
        Self {
            marks: workers.map(|it| format!("{PROCESS}={it}").into()).collect(),
            since,
            killed: HashMap::new(),
        }
    }

    /// Goes on until nobody is left, or until this time is over. Blocks for about as long as the killed processes take to
    /// die.
    ///
    /// RACE: a process ends, or executes another program, between the list and the look at it, and its child is not in
    /// the list. So the processes are listed again, until each one that is new was looked at while it lived; or a few
    /// times, because on a busy host others end all the time. Raced by
    /// `a_process_that_ends_at_once_hides_no_child_from_a_hunt`.
    pub fn go_on(&mut self, bound: Duration) -> io::Result<Found> {
        const LISTS: u32 = 4;
        let (started, before) = (Instant::now(), self.killed.len());
        if self.marks.is_empty() {
            return Ok(Found::default());
        }
        let ours = nix::unistd::getpgrp().as_raw();
        let (mut others, mut groups) = (HashSet::new(), HashSet::new());
        let mut lists = 0;
        loop {
            lists += 1;
            let (mut marked, mut unknown, mut is_whole) = (HashSet::new(), 0, true);
            for pid in pids()? {
                if others.contains(&pid) {
                    continue;
                }
                match self.look(pid)? {
                    Look::Marked => drop(marked.insert(pid)),
                    Look::Unmarked => drop(others.insert(pid)),
                    Look::Nothing => is_whole &= !others.insert(pid),
                    Look::Unknown => unknown += 1,
                }
            }
            for pid in &marked {
                let group = try_stat(*pid)?.map(|stat| stat.group);
                groups.extend(group.filter(|group| *group != ours));
            }
            let left = match marked.is_empty() && groups.is_empty() {
                true => Vec::new(),
                false => living(|pid, stat| marked.contains(&pid) || groups.contains(&stat.group))?,
            };
            let is_late =
                |(pid, stat): &&(Pid, Stat)| self.killed.get(pid) != Some(&stat.started_ticks);
            let late = left.iter().filter(is_late).count();
            for (pid, _) in &left {
                self.kill(*pid, &groups)?;
            }
            // A group that nobody is in may come to be another's.
            groups.retain(|group| left.iter().any(|(_, stat)| stat.group == *group));
            let dying = self.dying()?;
            let is_over = left.is_empty() && dying == 0 && unknown == 0;
            if (is_over && (is_whole || lists >= LISTS)) || started.elapsed() >= bound {
                return Ok(Found {
                    killed: self.killed.len() - before,
                    late,
                    in_doubt: dying.saturating_sub(late) + unknown,
                });
            }
            std::thread::sleep(match is_over {
                true => Duration::ZERO,
                false if left.is_empty() && dying == 0 => MOMENT,
                false => ROUND,
            });
        }
    }

    fn look(&self, pid: Pid) -> io::Result<Look> {
        let is_mark = |variable: &[u8]| self.marks.contains(variable);
        Ok(match environment(pid)? {
            Some(environment) if environment.is_empty() => Look::Nothing,
            Some(environment) if variables(&environment).any(is_mark) => Look::Marked,
            Some(_) => Look::Unmarked,
            None => match try_stat(pid)? {
                Some(stat) if stat.started_ticks < self.since => Look::Unmarked,
                Some(_) => Look::Unknown,
                None => Look::Nothing,
            },
        })
    }

    /// Kills a process that is in one of these groups or has the mark. The pid may have come to mean another process since
    /// the look at it. So we take the handle first, and then look again: if the pid means yet another process by then, the
    /// handle's process is gone.
    fn kill(&mut self, pid: Pid, groups: &HashSet<Pid>) -> io::Result<()> {
        let Ok(handle) = Spawned::stranger(pid) else {
            return Ok(());
        };
        let Some(stat) = try_stat(pid)? else {
            return Ok(());
        };
        if !groups.contains(&stat.group) && !matches!(self.look(pid)?, Look::Marked) {
            return Ok(());
        }
        match handle.send(Signal::SIGKILL) {
            Ok(()) => drop(self.killed.insert(pid, stat.started_ticks)),
            // A program that has become another user's is not ours to kill; the others are.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// How many of those that were sent SIGKILL are not dead yet.
    fn dying(&self) -> io::Result<usize> {
        let mut dying = 0;
        for (pid, started_ticks) in &self.killed {
            let stat = try_stat(*pid)?.filter(|stat| stat.started_ticks == *started_ticks);
            dying += usize::from(stat.is_some_and(|stat| !stat.is_corpse()));
        }
        Ok(dying)
    }
}

/// The processes that live, of these.
fn living(is_one: impl Fn(Pid, &Stat) -> bool) -> io::Result<Vec<(Pid, Stat)>> {
    let mut living = Vec::new();
    for pid in pids()? {
        let stat = try_stat(pid)?.filter(|stat| !stat.is_corpse() && is_one(pid, stat));
        living.extend(stat.map(|stat| (pid, stat)));
    }
    Ok(living)
}

/// Stops these children and all their descendants, known by their tags. Returns the processes that it stopped.
///
/// RACE: a process executes another program at the moment of the look, and has no environment for that long.
/// Once its parents are stopped, nothing new appears, so a few looks that find nobody are enough. Raced by
/// `a_run_on_a_terminal_is_suspended_and_goes_on_like_any_program`.
pub fn stop_family<'a>(
    children: impl Iterator<Item = &'a Pid>,
    tags: &HashSet<String>,
) -> HashSet<Pid> {
    const LOOKS: u32 = 4;
    const MOST: u32 = 20;
    let stop = |pid: Pid| {
        let _gone = signal::kill(NixPid::from_raw(pid), Signal::SIGSTOP);
    };
    // The children first, so that nobody starts a step meanwhile.
    let mut stopped: HashSet<Pid> = children.copied().collect();
    stopped.iter().copied().for_each(stop);
    let mut in_vain = 0;
    for _ in 0..MOST {
        let mut found = Vec::new();
        let all = pids();
        let mut is_whole = all.is_ok();
        for pid in all.unwrap_or_default() {
            match tag_of(pid) {
                _ if stopped.contains(&pid) || identity::is_corpse(pid) => {}
                Tag::Of(tag) if tags.contains(&tag) => found.push(pid),
                Tag::Unknown => is_whole = false,
                Tag::Of(_) | Tag::Missing => {}
            }
        }
        in_vain = match found.is_empty() && is_whole {
            true => in_vain + 1,
            false => 0,
        };
        if in_vain == LOOKS {
            break;
        }
        found.iter().copied().for_each(stop);
        stopped.extend(found);
        std::thread::sleep(ROUND);
    }
    stopped
}

/// Continues the processes that were stopped.
pub fn go_on(stopped: HashSet<Pid>) {
    for pid in stopped {
        let _gone = signal::kill(NixPid::from_raw(pid), Signal::SIGCONT);
    }
}

/// Every process that can be seen from here.
fn pids() -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<Pid>().ok()));
    }
    Ok(pids)
}

/// True when it may be killed; `None` when nobody can tell at the moment.
fn is_orphan(tag: &Tag, living: &Living, is_init: bool) -> Option<bool> {
    match tag {
        Tag::Of(tag) => Some(!living.tags.contains(tag)),
        // A process that a subreaper adopts descends from it, even with another environment.
        // Pid 1 adopts strangers as well (processes that `docker exec` left behind).
        Tag::Missing => Some(!is_init),
        // A living child's step may have detached it, if there is a living child.
        Tag::Unknown if living.tags.is_empty() && !is_init => Some(true),
        Tag::Unknown => None,
    }
}

/// The child that a process descends from, as far as its environment tells.
#[derive(Debug, PartialEq, Eq)]
enum Tag {
    Of(String),
    Missing,
    /// The process executes another program, or nobody can look.
    Unknown,
}

fn tag_of(pid: Pid) -> Tag {
    let Ok(Some(environment)) = environment(pid) else {
        return Tag::Unknown;
    };
    let mut variables = variables(&environment);
    let tag = variables.find_map(|it| it.strip_prefix(CHILD.as_bytes())?.strip_prefix(b"="));
    match tag {
        Some(tag) => Tag::Of(String::from_utf8_lossy(tag).into_owned()),
        None => Tag::Missing,
    }
}

/// Reaps zombies in a process that waits for its own steps by their numbers.
///
/// A step's status belongs to the code that runs the step, which takes it within moments of its end.
/// So a zombie that is still there at the next look was adopted, and nobody waits for it.
#[derive(Debug, Default)]
pub struct ZombieReaper {
    seen: HashSet<Pid>,
}

impl ZombieReaper {
    /// Looks once, and returns how many it reaped. Must be called seconds apart.
    pub fn reap(&mut self) -> io::Result<usize> {
        let mut dead = HashSet::new();
        let mut reaped = 0;
        for pid in children_of_self()? {
            let is_dead = identity::stat(pid).is_some_and(|stat| stat.state == b'Z');
            if is_dead && self.seen.contains(&pid) {
                reaped += usize::from(spawn::wait_for(pid)?.is_some());
            } else if is_dead {
                dead.insert(pid);
            }
        }
        self.seen = dead;
        Ok(reaped)
    }
}

/// The children of every thread of this process, the dead ones included.
pub(super) fn children_of_self() -> io::Result<Vec<Pid>> {
    let first = std::process::id().to_string();
    let mut children = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let list = match std::fs::read_to_string(task.path().join("children")) {
            Ok(list) => list,
            // The first thread lives as long as we do, and has the processes that come to us.
            Err(error) if task.file_name().to_str() == Some(&first) => return Err(error),
            // A thread that ended meanwhile has handed its children to another one.
            Err(_) => continue,
        };
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<Pid>().ok()),
        );
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::testing::{Half, Killed, eventually, lives, part, place, said, say};
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn the_tag_decides_who_is_an_orphan() {
        let living = Living {
            tags: HashSet::from(["alive".to_owned()]),
            ..Living::default()
        };
        let tag = |name: &str| Tag::Of(name.to_owned());
        for (tag, is_init, expected) in [
            (tag("alive"), false, Some(false)),
            (tag("alive"), true, Some(false)),
            (tag("dead"), false, Some(true)),
            (tag("dead"), true, Some(true)),
            (Tag::Missing, false, Some(true)),
            (Tag::Missing, true, Some(false)),
            (Tag::Unknown, false, None),
            (Tag::Unknown, true, None),
        ] {
            let found = is_orphan(&tag, &living, is_init);
            assert_eq!(found, expected, "{tag:?} {is_init}");
        }
        let nobody = Living::default();
        assert_eq!(is_orphan(&Tag::Unknown, &nobody, false), Some(true));
        assert_eq!(is_orphan(&Tag::Unknown, &nobody, true), None);
    }

    /// Plays a worker with a step that daemonises and starts more processes; their pids are written
    /// into the place.
    fn play_worker(name: &str) -> ! {
        let script = r#"
            put() { echo "$2" > "$0/.$1" && mv "$0/.$1" "$0/$1"; }
            ( setsid sh -c 'sleep 1000 & echo "$$ $!" > "$1/.$0" && mv "$1/.$0" "$1/$0"; wait' "$NAME-daemon" "$0" & )
            ( trap "" TERM HUP; sleep 1000 & put "$NAME-background" "$!"; wait ) &
            put "$NAME-leader" "$$"
            wait
        "#;
        let mut command = std::process::Command::new("sh");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let status = command
            .args(["-c", script])
            .arg(place())
            .env("NAME", name)
            .status();
        panic!("the step ended: {status:?}");
    }

    fn pids(name: &str) -> Vec<Pid> {
        ["daemon", "background", "leader"]
            .iter()
            .flat_map(|file| {
                said(&place(), &format!("{name}-{file}"))
                    .split_whitespace()
                    .map(|pid| pid.parse().unwrap())
                    .collect::<Vec<Pid>>()
            })
            .collect()
    }

    #[test]
    fn what_a_killed_workers_step_leaves_is_killed_and_reaped_and_nobody_else() {
        let test = "process::orphan::tests::what_a_killed_workers_step_leaves_is_killed_and_reaped_and_nobody_else";
        match part().as_deref() {
            Some("supervisor") => {
                spawn::become_subreaper().unwrap();
                let start = |name: &str| {
                    let tag: &OsStr = name.as_ref();
                    Half::start(test, name, &place(), &[(CHILD, tag)])
                };
                let mut dead = start("dead");
                let alive = start("alive");
                let (of_dead, of_alive) = (pids("dead"), pids("alive"));
                assert_eq!(of_dead.len(), 4);
                let living = Living {
                    pids: HashSet::from([alive.pid()]),
                    tags: HashSet::from(["alive".to_owned()]),
                    ..Living::default()
                };
                dead.send(Signal::SIGKILL);
                dead.ended();

                let sweep = runtime()
                    .block_on(sweep(&living, Duration::from_secs(20)))
                    .unwrap();
                assert_eq!(sweep.left, 0);
                assert!(
                    sweep.killed >= 2 && sweep.reaped >= of_dead.len(),
                    "{sweep:?}"
                );
                for pid in of_dead {
                    assert_eq!(identity::stat(pid), None, "{pid} is left");
                }
                // The daemon that the living worker's step started has been adopted, too.
                for pid in &of_alive {
                    assert!(lives(*pid), "{pid} was killed");
                }
                assert_eq!(sweep_once(&living).unwrap(), Sweep::default());

                drop(alive);
                let nobody = Living::default();
                let sweep = runtime()
                    .block_on(super::sweep(&nobody, Duration::from_secs(20)))
                    .unwrap();
                assert_eq!(sweep.left, 0);
                for pid in of_alive {
                    assert_eq!(identity::stat(pid), None, "{pid} is left");
                }
                assert!(children_of_self().unwrap().is_empty());
                say("done", "");
            }
            Some(name) => play_worker(name),
            None => {
                let place = tempfile::tempdir().unwrap();
                Half::start(test, "supervisor", place.path(), &[]).succeeded();
                said(place.path(), "done");
            }
        }
    }

    #[test]
    fn a_dead_child_that_left_somebody_behind_is_told_from_one_that_left_nobody() {
        use std::io::BufRead;
        use std::process::{Command, Stdio};

        let test = "process::orphan::tests::a_dead_child_that_left_somebody_behind_is_told_from_one_that_left_nobody";
        if part().is_none() {
            let place = tempfile::tempdir().unwrap();
            Half::start(test, "supervisor", place.path(), &[]).succeeded();
            return;
        }
        let nobody = Living::default();
        assert!(!left_nothing(&nobody).unwrap(), "it does not adopt yet");
        spawn::become_subreaper().unwrap();
        assert!(left_nothing(&nobody).unwrap());

        let mut command = Command::new("sh");
        let script = "sleep 1000 & echo $!; wait";
        let tag = "told";
        let mut child = command
            .args(["-c", script])
            .env(CHILD, tag)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let left: Pid = line.trim().parse().unwrap();
        let family = Living {
            pids: HashSet::from([child.id() as Pid]),
            ..Living::default()
        };
        assert!(left_nothing(&family).unwrap(), "a living child's own");
        assert!(!left_nothing(&nobody).unwrap(), "a child of nobody");

        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!left_nothing(&nobody).unwrap(), "{left} is left");
        assert!(!left_nothing(&family).unwrap(), "{left} is left");
        let others = Living {
            tags: HashSet::from([tag.to_owned()]),
            ..Living::default()
        };
        assert!(left_nothing(&others).unwrap(), "a living child's, adopted");

        signal::kill(NixPid::from_raw(left), Signal::SIGKILL).unwrap();
        eventually("it is dead", || identity::is_corpse(left).then_some(()));
        assert!(left_nothing(&nobody).unwrap(), "a corpse is nobody");
        assert!(spawn::wait_for(left).unwrap().is_some());
    }

    /// A hook that a program brings along runs in this process, and may start anything.
    #[test]
    fn a_child_from_before_the_first_of_the_roster_is_nobodys_orphan() {
        use std::process::Command;

        let test =
            "process::orphan::tests::a_child_from_before_the_first_of_the_roster_is_nobodys_orphan";
        if part().is_none() {
            let place = tempfile::tempdir().unwrap();
            Half::start(test, "supervisor", place.path(), &[]).succeeded();
            return;
        }
        spawn::become_subreaper().unwrap();
        let sleeper = || Command::new("sleep").arg("1000").spawn().unwrap();
        let [mut elder, mut dead] = [sleeper(), sleeper()];
        let living = Living::before_the_first().unwrap();
        assert_eq!(living.elders.len(), 2);
        // One that is dead is reaped like any other.
        dead.kill().unwrap();
        eventually("it is dead", || {
            identity::is_corpse(dead.id() as Pid).then_some(())
        });
        assert!(left_nothing(&living).unwrap());
        let looked = Sweep {
            reaped: 1,
            ..Sweep::default()
        };
        assert_eq!(sweep_once(&living).unwrap(), looked);
        assert_eq!(elder.try_wait().unwrap(), None, "it was killed");

        let mut orphan = sleeper();
        assert!(!left_nothing(&living).unwrap());
        eventually("it has begun its program, and was killed", || {
            (sweep_once(&living).unwrap().killed == 1).then_some(())
        });
        orphan.wait().unwrap();
        assert_eq!(elder.try_wait().unwrap(), None, "it was killed");
        elder.kill().unwrap();
        elder.wait().unwrap();
    }

    #[test]
    fn a_thousand_daemonising_steps_leave_no_zombie() {
        let test = "process::orphan::tests::a_thousand_daemonising_steps_leave_no_zombie";
        if part().is_none() {
            let place = tempfile::tempdir().unwrap();
            Half::start(test, "supervisor", place.path(), &[]).succeeded();
            return;
        }
        spawn::become_subreaper().unwrap();
        let script = "i=0; while [ $i -lt 1000 ]; do ( : & ); i=$((i+1)); done";
        let mut command = std::process::Command::new("sh");
        let mut shell = command.args(["-c", script]).spawn().unwrap();
        let shell_pid = shell.id() as Pid;
        let living = Living {
            pids: HashSet::from([shell_pid]),
            // Without the tags of the dead: nobody is killed here, the processes end by themselves.
            ..Living::default()
        };
        let mut reaped = 0;
        let status = eventually("the shell ends", || {
            reaped += sweep_once(&living).unwrap().reaped;
            shell.try_wait().unwrap()
        });
        assert!(status.success());
        runtime()
            .block_on(sweep(&living, Duration::from_secs(20)))
            .unwrap();
        assert!(reaped > 0);
        assert!(children_of_self().unwrap().is_empty());
    }

    /// It is held on its way to the end, as by a system call that waits for a disk.
    #[test]
    fn a_process_that_was_killed_and_does_not_die_is_in_doubt() {
        use std::process::{Command, Stdio};

        let hold = "import ctypes, os, sys\n\
                    system = ctypes.CDLL(None)\n\
                    pid = os.fork()\n\
                    die_with_the_parent, SIGKILL = 1, 9\n\
                    if pid == 0:\n\
                    \x20   system.prctl(die_with_the_parent, SIGKILL)\n\
                    \x20   os.execvpe('sleep', ['sleep', '1000'], {**os.environ, sys.argv[1]: sys.argv[2]})\n\
                    seize, stop_at_its_end = 0x4206, ctypes.c_void_p(0x40)\n\
                    assert system.ptrace(seize, pid, None, stop_at_its_end) == 0\n\
                    print(pid, flush=True)\n\
                    sys.stdin.read()";
        let worker = ProcessId::new();
        let mut command = Command::new("python3");
        let command = command.args(["-c", hold, PROCESS, &worker.to_string()]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Killed(piped.spawn().unwrap());
        let mut said = std::io::BufReader::new(holder.0.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let held: Pid = line.trim().parse().unwrap();
        let mut hunt = Hunt::new(&[worker], 0);
        let moment = Duration::from_millis(20);
        eventually("it has begun its program, and was killed", || {
            (hunt.go_on(moment).unwrap().killed == 1).then_some(())
        });
        // It is not killed again, and another hunt finds the same.
        for hunt in [&mut hunt, &mut Hunt::new(&[worker], 0)] {
            eventually("nothing is left but a doubt", || {
                let found = hunt.go_on(moment).unwrap();
                (found.late == 0 && found.in_doubt > 0).then_some(())
            });
        }
        assert_eq!(hunt.go_on(moment).unwrap().killed, 0);
        assert!(!identity::is_corpse(held));
        drop(holder.0.stdin.take());
        assert!(holder.0.wait().unwrap().success());
        eventually("it is dead", || {
            let found = hunt.go_on(moment).unwrap();
            (found.late == 0 && found.in_doubt == 0).then_some(())
        });
    }

    /// A shell that executes itself again and again, for as long as we live: at one look of twenty it has no environment.
    fn shell(name: &str, value: &str) -> Killed {
        let script = r#"[ "$PPID" = "$1" ] && exec sh -c "$0" "$0" "$1""#;
        let mut command = std::process::Command::new("sh");
        let command = command.args(["-c", script, script, &std::process::id().to_string()]);
        Killed(command.env(name, value).spawn().unwrap())
    }

    #[test]
    fn a_process_that_executes_one_program_after_the_other_never_hides() {
        let workers = [ProcessId::new(), ProcessId::new()];
        for times in 0..100 {
            let mut shell = shell(PROCESS, &workers[times % 2].to_string());
            let mut hunt = Hunt::new(&workers, 0);
            let found = hunt.go_on(Duration::from_secs(60)).unwrap();
            assert_eq!((found.killed, found.late), (1, 0), "after {times} times");
            assert!(shell.0.wait().unwrap().code().is_none());
        }
    }

    /// It leaves a child with an environment of its own name, and a group of its own.
    #[test]
    fn a_process_that_ends_at_once_hides_no_child_from_a_hunt() {
        for times in 0..100 {
            let worker = ProcessId::new();
            let mut command = std::process::Command::new("sh");
            let command = command.args(["-c", "setsid sleep 60 &"]);
            let mut shell = Killed(command.env(PROCESS, worker.to_string()).spawn().unwrap());
            let mut hunt = Hunt::new(&[worker], 0);
            let first = hunt.go_on(Duration::from_secs(60)).unwrap();
            shell.0.wait().unwrap();
            let second = hunt.go_on(Duration::from_secs(60)).unwrap();
            assert_eq!(second.killed, 0, "after {times} times, and {first:?}");
        }
    }

    #[test]
    fn what_a_living_childs_step_has_detached_is_no_orphan_between_two_programs() {
        let test = "process::orphan::tests::what_a_living_childs_step_has_detached_is_no_orphan_between_two_programs";
        if part().is_none() {
            let place = tempfile::tempdir().unwrap();
            Half::start(test, "supervisor", place.path(), &[]).succeeded();
            return;
        }
        let living = Living {
            tags: HashSet::from(["alive".to_owned()]),
            ..Living::default()
        };
        let mut shell = shell(CHILD, "alive");
        let mut unknown = 0;
        eventually("it was looked at between two programs", || {
            let sweep = sweep_once(&living).unwrap();
            assert_eq!(sweep.killed, 0);
            unknown += sweep.left;
            (unknown > 20).then_some(())
        });
        assert_eq!(shell.0.try_wait().unwrap(), None);
    }
}
