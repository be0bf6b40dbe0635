//! The process that is writing to a SQLite database, and a freeze that does not hit it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::stat::{major, minor};

use crate::fixture::{freeze, send};
use crate::support::Db;

/// Freezes a process outside of a write: one that stands still while it writes is another case, and
/// is killed for that.
pub async fn freeze_outside_of_a_write(db: &Db, pid: i32) {
    let path = db.url.strip_prefix("sqlite://").map(Path::new);
    loop {
        freeze(pid).await;
        if path.and_then(writer) != Some(pid) {
            return;
        }
        send(pid, Signal::SIGCONT);
    }
}

/// The process that currently holds the write lock of this SQLite database, according to the kernel: SQLite
/// locks a byte of the file beside it.
pub fn writer(database: &Path) -> Option<i32> {
    const WRITE_LOCK: &str = "120";
    let shared = format!("{}-shm", database.display());
    let file = std::fs::metadata(shared).expect("a database that is open");
    let (major, minor) = (major(file.dev()), minor(file.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "POSIX", _, "WRITE", pid, on, WRITE_LOCK, WRITE_LOCK] if on == file => {
                pid.parse().ok()
            }
            _ => None,
        }
    })
}
