//! The process that may write to a SQLite database at the moment, as the kernel knows it.
//!
//! Owns: finding the process that holds the lock, and the rule by which a process that stands still
//! with it is ended. Never: ends a program that is not registered as a process of ours.
//!
//! SQLite has one lock for all writers. A process that keeps it keeps every heartbeat from being written, so
//! no heartbeat tells which process it is. The lock is on a byte of the file beside the database, and the
//! kernel lists all locks.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::stat::{major, minor};

use crate::store::process::ProcessRow;

use super::identity::{self, Identity};
use super::proof;
use super::roster::Pid;

/// The byte that a writer locks.
const WRITE_LOCK: &str = "120";

/// A process that holds the lock at two looks this far apart keeps it. Many may hold it one after the other, and the
/// last one is not at fault.
const APART: Duration = Duration::from_millis(500);

/// The looks at the holder of the lock.
///
/// RACE: this process stood still for longer than a lease, and goes on. Its heartbeat is old, although nobody was in its
/// way, and each process that writes at that moment looks like one that keeps the lock. Two looks may follow each other at
/// once; the heartbeat is written before two that are apart. Proven by `one_that_holds_the_lock_for_a_moment_is_not_at_fault`.
#[derive(Debug, Default)]
pub struct Looks(Option<(Pid, Instant, bool)>);

/// A process keeps the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// This look is the first that shows it.
    Newly,
    /// An earlier look has shown it.
    Still,
}

impl Looks {
    /// Takes note of the holder at this look, if there is one; tells whether it keeps the lock.
    pub fn look(&mut self, found: Option<&Writer>, now: Instant) -> Option<Lasts> {
        let before = self.0.take();
        let pid = found?.pid;
        let (_, since, told) = before
            .filter(|(before, ..)| *before == pid)
            .unwrap_or((pid, now, false));
        let lasts = now.saturating_duration_since(since) >= APART;
        self.0 = Some((pid, since, lasts));
        lasts.then_some(if told { Lasts::Still } else { Lasts::Newly })
    }
}

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its pid.
    pub pid: Pid,
    /// The kernel's name for it; empty where the kernel hides it.
    pub name: String,
    /// It stands still: stopped by a signal, or by a debugger.
    pub stopped: bool,
    started_ticks: u64,
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stands = if self.stopped {
            ", which stands still"
        } else {
            ""
        };
        match self.name.as_str() {
            "" => write!(f, "pid {}{stands}", self.pid),
            name => write!(f, "pid {} ({name}){stands}", self.pid),
        }
    }
}

/// The process that holds the lock of this database; none if nobody holds it, or nobody whom we can see.
pub fn of(database: &Path) -> Option<Writer> {
    let mut shared = database.as_os_str().to_owned();
    shared.push("-shm");
    let file = std::fs::metadata(Path::new(&shared)).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = find(&locks, (major(file.dev()), minor(file.dev()), file.ino()))?;
    let stat = identity::stat(pid);
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Writer {
        pid,
        name: name.trim().to_owned(),
        stopped: stat.is_some_and(|stat| matches!(stat.state, b'T' | b't')),
        started_ticks: stat.map_or(0, |stat| stat.started_ticks),
    })
}

/// The process that holds the lock on a file, which is given by its device and its number there.
fn find(locks: &str, (major, minor, inode): (u64, u64, u64)) -> Option<Pid> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // A process that waits has an arrow before the kind.
            [_, "POSIX", _, "WRITE", pid, on, WRITE_LOCK, WRITE_LOCK] if on == file => {
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

/// True when it is to be ended: it stands still, it is registered as a process of ours that this one
/// would know, and its lease is over.
pub fn is_to_be_ended(
    writer: &Writer,
    me: &Identity,
    rows: &[ProcessRow],
    lease: Duration,
) -> bool {
    let is_it = |row: &&ProcessRow| {
        let identity = proof::identity(row);
        me.would_know(&identity)
            && identity.pid == writer.pid
            && identity.started_ticks == writer.started_ticks
    };
    let over = |row: &ProcessRow| {
        // This is not the age that a witness knows: while nobody can write, nobody is watched.
        let silent = row.seen_at.saturating_sub(row.last_heartbeat_at);
        u128::try_from(silent).is_ok_and(|silent| silent >= lease.as_micros())
    };
    writer.stopped && writer.pid != me.pid && rows.iter().find(is_it).is_some_and(over)
}

/// Ends it, if it is still the process that was found.
///
/// # Errors
/// The kernel's error, but none when the process is gone.
pub fn end(writer: &Writer) -> std::io::Result<()> {
    super::spawn::kill_if(writer.pid, || {
        let stat = identity::stat(writer.pid);
        stat.is_some_and(|stat| stat.started_ticks == writer.started_ticks)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, row};
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn the_one_that_writes_is_found_among_those_that_wait_or_read() {
        let locks = "\
            1: POSIX  ADVISORY  READ  11 08:01:77 123 123\n\
            2: POSIX  ADVISORY  WRITE 12 08:01:78 120 120\n\
            3: FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF\n\
            4: POSIX  ADVISORY  WRITE 14 08:01:77 120 120\n\
            4: -> POSIX  ADVISORY  WRITE 15 08:01:77 120 120\n";
        assert_eq!(find(locks, (8, 1, 77)), Some(14));
        assert_eq!(find(locks, (8, 1, 78)), Some(12));
        assert_eq!(find(locks, (8, 2, 77)), None);
        // A process of another pid namespace.
        let hidden = "1: POSIX  ADVISORY  WRITE 0 08:01:77 120 120\n";
        assert_eq!(find(hidden, (8, 1, 77)), None);
    }

    #[test]
    fn one_that_holds_the_lock_for_a_moment_is_not_at_fault() {
        let began = Instant::now();
        let mut looks = Looks::default();
        let mut look = |pid: Option<Pid>, after: Duration| {
            let writer = pid.map(|pid| Writer {
                pid,
                name: String::new(),
                stopped: false,
                started_ticks: 7,
            });
            looks.look(writer.as_ref(), began + after)
        };
        let moment = Duration::from_millis(1);
        // However many looks follow each other at once.
        for n in 0..3 {
            assert_eq!(look(Some(12), moment * n), None);
        }
        assert_eq!(look(Some(12), APART), Some(Lasts::Newly));
        assert_eq!(look(Some(12), APART), Some(Lasts::Still));
        // Another one, and one that had let it go.
        assert_eq!(look(Some(13), APART), None);
        assert_eq!(look(None, APART * 2), None);
        assert_eq!(look(Some(13), APART * 2), None);
        assert_eq!(look(Some(13), APART * 3), Some(Lasts::Newly));
    }

    #[test]
    fn only_one_of_ours_that_stands_still_and_whose_lease_is_over_is_to_be_ended() {
        let me = Identity::current();
        let other = Identity {
            pid: me.pid + 1,
            started_ticks: 7,
            ..me.clone()
        };
        let stopped = Writer {
            pid: other.pid,
            name: "ductworkd".to_owned(),
            stopped: true,
            started_ticks: 7,
        };
        let ended = |writer: &Writer, row: ProcessRow| is_to_be_ended(writer, &me, &[row], LEASE);
        assert!(ended(&stopped, row(&other, LEASE)));
        assert!(!ended(&stopped, row(&other, LEASE / 2)), "its lease");
        let runs = Writer {
            stopped: false,
            ..stopped.clone()
        };
        assert!(!ended(&runs, row(&other, LEASE)), "it works");
        for stranger in [
            Identity {
                started_ticks: 8,
                ..other.clone()
            },
            Identity {
                pid: me.pid + 2,
                ..other.clone()
            },
            Identity {
                boot_id: "another".to_owned(),
                ..other.clone()
            },
            Identity {
                pid_namespace: "pid:[1]".to_owned(),
                ..other.clone()
            },
        ] {
            assert!(!ended(&stopped, row(&stranger, LEASE)), "{stranger:?}");
        }
        assert!(
            !is_to_be_ended(&stopped, &me, &[], LEASE),
            "somebody's shell"
        );
    }

    #[test]
    fn the_writer_of_a_database_is_named_and_one_that_was_replaced_is_not_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n)")
            .unwrap();
        assert_eq!(of(&path), None);
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let writer = of(&path).unwrap();
        assert_eq!(writer.pid, std::process::id() as Pid);
        assert!(!writer.stopped && !writer.name.is_empty());
        db.execute_batch("COMMIT").unwrap();
        assert_eq!(of(&path), None);

        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id() as Pid;
        let mut found = Writer {
            pid,
            name: String::new(),
            stopped: true,
            started_ticks: identity::stat(pid).unwrap().started_ticks - 1,
        };
        end(&found).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        found.started_ticks += 1;
        end(&found).unwrap();
        testing::eventually("it has ended", || child.try_wait().unwrap());
        end(&found).unwrap();
    }
}
