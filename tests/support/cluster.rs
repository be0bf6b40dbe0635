//! A PostgreSQL server that a test has for itself alone.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A server of its own, with its data and its port, that can be stopped and started.
pub struct Cluster {
    dir: tempfile::TempDir,
    /// The superuser's way to it.
    pub url: String,
}

impl Cluster {
    /// Makes and starts it.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let said = postgres(&["start", path(dir.path())]);
        let url = said
            .lines()
            .find_map(|line| line.split_once("TEST_POSTGRES_URL="))
            .map(|(_, url)| url.replace('\\', ""));
        let url = url.unwrap_or_else(|| panic!("no URL: {said}"));
        Self { dir, url }
    }

    /// A standby of this one, which follows it as long as both run.
    pub fn standby(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        postgres(&["standby", path(dir.path()), path(self.dir.path())]);
        Self {
            dir,
            url: self.url.clone(),
        }
    }

    /// Starts it where `other` was, which is down.
    pub fn up_instead_of(&self, other: &Self) {
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

    /// Stops it as a crash would.
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
