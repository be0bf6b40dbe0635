//! The processes that a command has left behind.
//!
//! Owns: finding them when the command has ended, and ending them. Never: touches a process that another
//! execution or a native step has started.
//!
//! When its parents end, a process that has left the command's group comes to the nearest subreaper, which is
//! the worker itself. So to learn that a command has left nobody behind, which is the rule, the worker reads one
//! list, that of its first thread's children: running commands are not in it, because other threads have started them.
//! A child there is the execution's when it is in the command's session, or was born with the execution's id in its
//! environment. Nobody can tell to whom a process belongs
//! that has thrown away both; it ends with the worker.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid as NixPid;

use crate::exec;
use crate::proc::{self, Pid, Stat};

/// The time between two looks; a killed process needs about that long to die.
const ROUND: Duration = Duration::from_millis(1);

/// How long strays are hunted. A process that is not dead by then sits in the kernel.
const BOUND: Duration = Duration::from_secs(1);

/// Hunts what commands have left behind.
#[derive(Debug, Default)]
pub struct Strays {
    /// The processes that were waited for in vain, each with the time at which it started: the steps that end after
    /// that do not wait for them again.
    stuck: Mutex<HashSet<(Pid, u64)>>,
}

impl Strays {
    fn stuck(&self) -> MutexGuard<'_, HashSet<(Pid, u64)>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True for a process that was waited for in vain.
    fn is_stuck(&self, pid: Pid, stat: &Stat) -> bool {
        self.stuck().contains(&(pid, stat.started_ticks))
    }

    fn give_up(&self, left: Vec<(Pid, u64)>) {
        let mut stuck = self.stuck();
        stuck.retain(|(pid, started)| {
            proc::stat(*pid).is_some_and(|it| it.started_ticks == *started)
        });
        stuck.extend(left);
    }

    /// Ends all processes that a command has left behind, which has led a session and was collected; `mark` is in the
    /// environment of all that it started. Returns how many there were.
    pub async fn end(&self, leader: Pid, mark: &str) -> usize {
        let began = Instant::now();
        let mut killed = HashSet::new();
        let mut ended = 0;
        // The kernel may not be able to list children; then only the command's group was ended.
        while let Ok(children) = proc::children_of_first_thread() {
            let look = self.look(&children, leader, mark.as_bytes(), &mut killed);
            ended += look.killed;
            // RACE: a process dies between the list and the look at it, and its own children, which the list
            // lacks, come to us. A corpse has no children any more, so we read the list once more. Raced by
            // `what_an_execution_left_behind_is_gone_when_its_attempt_has_ended`.
            let is_whole = || proc::children_of_first_thread().is_ok_and(|now| now == children);
            if look.left.is_empty() && (!look.died || is_whole()) {
                break;
            }
            if began.elapsed() >= BOUND {
                tracing::warn!(
                    leader,
                    "what a step has left behind does not die, or cannot be told from what others have left"
                );
                self.give_up(look.left);
                break;
            }
            if !look.left.is_empty() {
                tokio::time::sleep(ROUND).await;
            }
        }
        ended
    }

    /// Kills those of our children that the command has left behind, and reaps those of them that are dead.
    fn look(&self, children: &[Pid], leader: Pid, mark: &[u8], killed: &mut HashSet<Pid>) -> Look {
        let mut look = Look::default();
        for pid in children {
            let Some(stat) = proc::stat(*pid) else {
                continue;
            };
            let is_ours = stat.session == leader || killed.contains(pid);
            let number = NixPid::from_raw(*pid);
            if stat.is_corpse() {
                look.died = true;
                if is_ours {
                    let _status = exec::wait(number, libc::WNOHANG);
                    // Its pid may come to mean another process.
                    killed.remove(pid);
                }
                continue;
            }
            let has_mark = match is_ours {
                true => Some(true),
                // When nobody can tell, for lack of descriptors, only the command's group was ended.
                false => proc::has(*pid, |it| it == mark).unwrap_or(Some(false)),
            };
            if has_mark == Some(true) {
                // Its pid means no other process: it is our child, and only we reap it.
                if stat.group == *pid {
                    let _gone = killpg(number, Signal::SIGKILL);
                }
                if kill(number, Signal::SIGKILL).is_ok() {
                    look.killed += usize::from(killed.insert(*pid));
                }
                look.left.push((*pid, stat.started_ticks));
            // One that executes another program is looked at again. So is one that is about to be a corpse: it has no
            // environment any more, and may have children that are ours.
            } else if (has_mark.is_none() || is_dying(*pid, &stat)) && !self.is_stuck(*pid, &stat) {
                look.left.push((*pid, stat.started_ticks));
            }
        }
        look
    }
}

/// The result of one look.
#[derive(Debug, Default)]
struct Look {
    /// How many were killed for the first time.
    killed: usize,
    /// The processes that are to be looked for again, each with the time at which it started.
    left: Vec<(Pid, u64)>,
    /// A process is dead.
    died: bool,
}

/// True when all threads of a process are ending. If its first thread alone has ended, it may go on for ever, and the
/// others still have its environment.
fn is_dying(pid: Pid, stat: &Stat) -> bool {
    if !stat.is_exiting || stat.threads <= 1 {
        return stat.is_exiting;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    let threads = threads.flatten();
    let threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    threads.filter_map(proc::stat).all(|it| it.is_exiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_waited_for_in_vain_is_not_waited_for_again() {
        let stat = Stat {
            state: b'D',
            parent: 1,
            group: 7,
            session: 7,
            is_exiting: true,
            environment: Some((0, 0)),
            threads: 1,
            started_ticks: 100,
        };
        let strays = Strays::default();
        assert!(!strays.is_stuck(7, &stat));
        strays.give_up(vec![(7, 100)]);
        assert!(strays.is_stuck(7, &stat));
        // Its pid may come to mean another process.
        let later = Stat {
            started_ticks: 101,
            ..stat
        };
        assert!(!strays.is_stuck(7, &later));
    }
}
