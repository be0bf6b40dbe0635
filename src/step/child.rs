//! A started command until nothing is left of it.
//!
//! Owns: waiting for its end, signalling its group, and collecting it. Never: signals a group whose
//! number could belong to somebody else: the dead leader stays uncollected until the group has been
//! killed, and until then its number is taken.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;

use super::spawn::{self, Process};

/// How often a child is looked at where the kernel cannot say when it ends.
const POLL: Duration = Duration::from_millis(20);

/// The longest time that dropping waits for a killed child, in steps of a millisecond.
const COLLECT_MS_MAX: u32 = 50;

/// A child process and its group.
#[derive(Debug)]
pub struct Child {
    process: Option<Process>,
    pid: Pid,
    /// `None` before it is watched, on an old kernel, or if there is no descriptor to be had; then the child is
    /// polled.
    ended: Option<AsyncFd<OwnedFd>>,
}

impl Child {
    /// Takes charge of a child that leads a process group. Can be called on any thread.
    pub fn new(process: Process) -> Self {
        Self {
            pid: process.id(),
            process: Some(process),
            ended: None,
        }
    }

    /// The same child, whose end the kernel tells to this runtime.
    pub fn watched(mut self) -> Self {
        self.ended = spawn::pidfd(self.pid).ok();
        self
    }

    /// The child's pid.
    pub fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Resolves when the child has ended; it is not collected yet.
    pub async fn ended(&self) {
        while !self.has_ended() {
            match &self.ended {
                // Readiness is not cleared: should it come early, we poll and do not wait without end.
                Some(fd) if fd.readable().await.is_ok() && self.has_ended() => return,
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// True when the child has ended, as the kernel says.
    pub fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.pid), flags) {
            // A child that has itself traced shows up whenever it stops, though nobody asked for that.
            Ok(status) => matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)),
            // This is an end as well: somebody else collected the child, or it died of a real-time
            // signal, for which there is no name.
            Err(_) => true,
        }
    }

    /// Sends `signal` to whatever is left of the group.
    pub fn signal(&self, signal: Signal) {
        match killpg(self.pid, signal) {
            // ESRCH: they are gone. EPERM: a group of other users' processes only (sudo).
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => {}
            Err(error) => tracing::warn!(pid = self.id(), %error, "a step could not be signalled"),
        }
    }

    /// True when the program may not be signalled: it runs as another user.
    pub fn is_foreign(&self) -> bool {
        kill(self.pid, None) == Err(Errno::EPERM)
    }

    /// Kills what is left of the group and returns how the child ended. Call it only after [`Self::ended`].
    pub fn collect(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        match self.process.take() {
            Some(mut process) => process.wait(),
            None => Err(Errno::ECHILD.into()),
        }
    }
}

impl Drop for Child {
    /// A caller that loses interest in a step ends it.
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        self.signal(Signal::SIGKILL);
        for _ in 0..COLLECT_MS_MAX {
            match process.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // The child is stuck in the kernel, and dies when the kernel lets go of it. If there is not
        // even a thread to be had, the zombie goes with the daemon.
        let _ = std::thread::Builder::new()
            .name("step-collector".into())
            .spawn(move || process.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_is_noticed_without_help_from_the_kernel() {
        let process = std::process::Command::new("sleep")
            .arg("0.1")
            .spawn()
            .unwrap();
        let child = Child::new(process.into());
        child.ended().await;
        assert!(child.collect().unwrap().success());
    }

    #[tokio::test]
    async fn a_child_that_somebody_else_collected_is_ended() {
        let process = std::process::Command::new("true").spawn().unwrap();
        let child = Child::new(process.into()).watched();
        nix::sys::wait::waitpid(child.pid, None).unwrap();
        child.ended().await;
        assert!(child.collect().is_err());
    }
}
