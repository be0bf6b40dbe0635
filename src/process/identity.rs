//! A process's identity, beyond its number.
//!
//! Owns: the facts that tell one incarnation of a process from every other, and the proof
//! that one is dead. Never: guesses; what cannot be proven is left to the reaper.

use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid as NixPid;

use crate::model::{ProcessId, Role};
use crate::store::process::NewProcess;

use super::roster::Pid;
use crate::proc::Stat;
pub(super) use crate::proc::stat;

/// The facts recorded in a process's row. A fact that could not be read is empty or
/// zero, and proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The host's name: for people only, since two hosts may share one.
    pub host: String,
    /// Changes with every boot of the kernel; the same in all of its containers.
    pub boot_id: String,
    /// The namespace in which the number means something, as `pid:[4026531836]`.
    pub pid_namespace: String,
    /// The pid.
    pub pid: Pid,
    /// When the kernel started it, in clock ticks since boot.
    pub started_ticks: u64,
}

impl Identity {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id() as Pid;
        Self {
            host: nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map(|id| id.trim().to_owned())
                .unwrap_or_default(),
            pid_namespace: std::fs::read_link(Path::new("/proc/self/ns/pid"))
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
            pid,
            started_ticks: stat(pid).map_or(0, |stat| stat.started_ticks),
        }
    }

    /// The row in which a process with this identity registers.
    pub fn row(
        &self,
        id: ProcessId,
        supervisor: Option<ProcessId>,
        role: Role,
        pipeline: Option<String>,
    ) -> NewProcess {
        NewProcess {
            id,
            supervisor,
            role,
            pipeline,
            host: self.host.clone(),
            boot_id: self.boot_id.clone(),
            pid_namespace: self.pid_namespace.clone(),
            pid: self.pid as u32,
            pid_started_at: self.started_ticks,
        }
    }

    /// True when this process can be certain that the other one is dead: here the pid would mean the
    /// other one (same boot, same pid namespace), but it means no process, a corpse, or a process
    /// that was started at another time.
    ///
    /// Two containers with the same machine id and host name, both pid 1, are in different
    /// pid namespaces and prove nothing about each other (H12).
    pub fn is_provably_dead(&self, other: &Self) -> bool {
        self.would_know(other) && is_gone(other.pid, other.started_ticks)
    }

    /// True when a signal has stopped the other one, and this process can be certain of it.
    pub fn is_stopped(&self, other: &Self) -> bool {
        let is = |stat: Stat| stat.state == b'T' && stat.started_ticks == other.started_ticks;
        self.would_know(other) && stat(other.pid).is_some_and(is)
    }

    /// True when it is a child of this very process that has died and was not waited for.
    pub fn is_unreaped_child(&self) -> bool {
        let me = std::process::id() as Pid;
        stat(self.pid).is_some_and(|stat| {
            stat.is_corpse() && stat.parent == me && stat.started_ticks == self.started_ticks
        })
    }

    /// True when the other one's number means here what it means there: both are on this boot of
    /// this host, and in one container or in none.
    pub fn would_know(&self, other: &Self) -> bool {
        let same = |mine: &str, theirs: &str| !mine.is_empty() && mine == theirs;
        same(&self.boot_id, &other.boot_id)
            && same(&self.pid_namespace, &other.pid_namespace)
            && other.pid > 0
            && other.started_ticks > 0
    }
}

fn is_gone(pid: Pid, started_ticks: u64) -> bool {
    // We ask by signal and not by /proc, which may hide the processes of others from us.
    match nix::sys::signal::kill(NixPid::from_raw(pid), None) {
        Err(Errno::ESRCH) => true,
        _ => stat(pid).is_some_and(|stat| stat.started_ticks != started_ticks || stat.is_corpse()),
    }
}

/// True when it is dead and only waits to be reaped.
pub(super) fn is_corpse(pid: Pid) -> bool {
    stat(pid).is_none_or(|stat| stat.is_corpse())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::super::testing::eventually;
    use super::*;

    fn identity_of(pid: Pid) -> Identity {
        Identity {
            pid,
            started_ticks: stat(pid).expect("it lives").started_ticks,
            ..Identity::current()
        }
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn the_living_are_not_provably_dead() {
        let me = Identity::current();
        assert!(me.started_ticks > 0 && !me.boot_id.is_empty() && !me.host.is_empty());
        assert!(me.pid_namespace.starts_with("pid:["), "{me:?}");
        assert!(!me.is_provably_dead(&me));
        let mut child = sleeper();
        assert!(!me.is_provably_dead(&identity_of(child.id() as Pid)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_reaped_and_the_unreaped_dead_are_provably_dead() {
        let me = Identity::current();
        let mut child = sleeper();
        let other = identity_of(child.id() as Pid);
        child.kill().unwrap();
        eventually("a zombie counts as dead", || {
            me.is_provably_dead(&other).then_some(())
        });
        assert_eq!(stat(other.pid).unwrap().state, b'Z');
        assert!(other.is_unreaped_child() && !me.is_unreaped_child());
        child.wait().unwrap();
        assert!(me.is_provably_dead(&other));
        assert!(!other.is_unreaped_child());
    }

    #[test]
    fn a_number_that_was_given_to_another_process_proves_the_death_of_the_first() {
        let me = Identity::current();
        let mut predecessor = me.clone();
        predecessor.started_ticks -= 1;
        assert!(me.is_provably_dead(&predecessor));
    }

    #[test]
    fn nothing_is_proven_across_boots_namespaces_or_without_facts() {
        let me = Identity::current();
        let mut child = sleeper();
        let dead = identity_of(child.id() as Pid);
        child.kill().unwrap();
        child.wait().unwrap();
        let change = |with: fn(&mut Identity)| {
            let mut other = dead.clone();
            with(&mut other);
            other
        };
        assert!(me.is_provably_dead(&change(|other| other.host = "elsewhere".into())));
        for other in [
            change(|other| other.boot_id = "another".into()),
            change(|other| other.boot_id.clear()),
            change(|other| other.pid_namespace = "pid:[1]".into()),
            change(|other| other.pid_namespace.clear()),
            change(|other| other.started_ticks = 0),
            change(|other| other.pid = 0),
            change(|other| other.pid = -1),
        ] {
            assert!(!me.is_provably_dead(&other), "{other:?}");
        }
        let blind = Identity {
            boot_id: String::new(),
            ..me
        };
        assert!(!blind.is_provably_dead(&Identity {
            boot_id: String::new(),
            ..dead
        }));
    }

    /// H12: both are pid 1, on one host, with one machine id.
    #[test]
    fn two_containers_prove_nothing_about_each_other() {
        let container = || {
            Command::new("unshare")
                .args(["--pid", "--fork", "--kill-child", "sh", "-c"])
                .arg("readlink /proc/self/ns/pid; cat >/dev/null")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
        };
        let me = Identity::current();
        let mut namespaces = vec![];
        let mut containers = vec![];
        for (mut child, constructed) in [container(), container()].into_iter().flatten().zip(7..) {
            let mut line = String::new();
            let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            // Where unshare is not permitted, the identities are made up instead.
            if line.is_empty() {
                line = format!("pid:[{constructed}]");
            }
            namespaces.push(line.trim().to_owned());
            containers.push(child);
        }
        if namespaces.is_empty() {
            namespaces = vec!["pid:[7]".to_owned(), "pid:[8]".to_owned()];
        }
        let identities: Vec<_> = namespaces
            .into_iter()
            .zip(1..)
            .map(|(pid_namespace, started_ticks)| Identity {
                pid_namespace,
                pid: 1,
                started_ticks,
                ..me.clone()
            })
            .collect();
        assert_ne!(identities[0].pid_namespace, identities[1].pid_namespace);
        for one in &identities {
            assert!(!me.is_provably_dead(one), "{one:?}");
            for other in &identities {
                let same = one.pid_namespace == other.pid_namespace;
                assert_eq!(one.would_know(other), same);
            }
        }
        for mut child in containers {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
