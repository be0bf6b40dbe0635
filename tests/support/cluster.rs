//! A PostgreSQL server that belongs to one test alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest time that the system takes to reap killed orphans.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// A separate server, with its own data and port, which can be stopped and started.
pub struct Cluster {
    dir: tempfile::TempDir,
    /// The superuser's URL.
    pub url: String,
}

impl Cluster {
    /// Creates and starts it.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let url = url(&postgres(&["start", path(dir.path())]));
        Self { dir, url }
    }

    /// A standby of this server, which follows it as long as both run.
    pub fn standby(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let url = url(&postgres(&[
            "standby",
            path(dir.path()),
            path(self.dir.path()),
        ]));
        Self { dir, url }
    }

    /// Starts it at the address of `other`, which is down.
    pub fn up_instead_of(&mut self, other: &Self) {
        self.url.clone_from(&other.url);
        std::fs::copy(other.dir.path().join("port"), self.dir.path().join("port")).expect("a port");
        self.up();
    }

    /// Makes a standby take writes.
    pub fn promote(&self) {
        postgres(&["promote", path(self.dir.path())]);
    }

    /// A file of its data directory.
    pub fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    /// Host and port.
    pub fn place(&self) -> &str {
        let rest = self.url.rsplit_once('@').expect("a user").1;
        rest.split_once('/').expect("a database").0
    }

    /// Stops it in order: it ends its sessions, and leaves nothing that a standby lacks.
    pub fn stop(&self) {
        postgres(&["stop", path(self.dir.path()), "fast"]);
    }

    /// Leaves it this many transactions, while it is stopped.
    pub fn leave_transactions(&self, left: u32) {
        postgres(&["exhaust", path(self.dir.path()), &left.to_string()]);
    }

    /// Kills all of its processes at once, like the loss of its host.
    pub fn kill(&self) {
        let pid = std::fs::read_to_string(self.data("postmaster.pid")).expect("a server");
        let pid: i32 = pid
            .lines()
            .next()
            .and_then(|pid| pid.parse().ok())
            .expect("a pid");
        let signal = |pid: i32, signal| {
            // The process may have ended by itself.
            let _ = kill(Pid::from_raw(pid), signal);
        };
        // Stopped first, so that it forks no process meanwhile, and tells none.
        signal(pid, Signal::SIGSTOP);
        let mut all = children(pid);
        all.push(pid);
        for pid in &all {
            signal(*pid, Signal::SIGKILL);
        }
        // Until it is reaped, it counts as a running server.
        let began = Instant::now();
        while all.iter().any(|pid| parent(*pid).is_some()) {
            assert!(began.elapsed() < GONE_WITHIN, "nobody waits for orphans");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it like a crash.
    pub fn down(&self) {
        postgres(&["stop", path(self.dir.path()), "immediate"]);
    }

    /// Starts it again.
    pub fn up(&self) {
        postgres(&["start", path(self.dir.path())]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = script(&["stop", path(self.dir.path()), "immediate"]);
        } else {
            self.down();
        }
    }
}

fn url(said: &str) -> String {
    let url = said
        .lines()
        .find_map(|line| line.split_once("TEST_POSTGRES_URL="))
        .map(|(_, url)| url.replace('\\', ""));
    url.unwrap_or_else(|| panic!("no URL: {said}"))
}

/// The parent of a process; `None` if the process does not exist.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.nth(1)?.parse().ok()
}

fn children(of: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(of)).collect()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn script(args: &[&str]) -> std::io::Result<std::process::Output> {
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres");
    Command::new(script).args(args).output()
}

fn postgres(args: &[&str]) -> String {
    let output = script(args).expect("scripts/postgres runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}
