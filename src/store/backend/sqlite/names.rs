//! A database that somebody uses under another name.
//!
//! Owns: the question whether SQLite's file is in use, but not under the name by which this process is about to open it.
//! Never: opens a connection, or looks while this process has one.
//!
//! SQLite names the log and its index after the database's path. A file that has two names (a hard link, or a file that
//! is mounted alone into a container) has two logs, and those who write them ruin the file without an error. Each
//! connection holds a shared lock on the file itself (`SHARED` in SQLite's `os_unix.c`), and one on the index beside
//! the name that it knows (`UNIX_SHM_DMS` there).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};

use crate::store::error::Error;

/// The bytes of a database that a reader or writer locks.
const SHARED: (i64, i64) = (0x4000_0002, 510);

/// The byte of an index that each of its users locks.
const USERS: (i64, i64) = (128, 1);

/// Where the first page says that the database has a log, and how.
const VERSIONS: std::ops::Range<usize> = 18..20;
const HAS_LOG: [u8; 2] = [2, 2];

/// RACE: another process opens the file in this moment, and has locked the file, but not yet the index. Each look finds
/// that again only where it lasts. Raced by `four_supervisors_that_start_at_once_migrate_once`.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(25);

/// How many connections this process is opening. Nobody begins to open one while it looks, or makes the file.
static OPENING: Mutex<usize> = Mutex::new(0);

/// A connection that is being opened.
pub struct Opening;

impl Drop for Opening {
    fn drop(&mut self) {
        *count() -= 1;
    }
}

fn count() -> MutexGuard<'static, usize> {
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails with `Misplaced` when other processes use the file under another name; then makes the file, if it is not there.
/// The connection is to be opened while the returned value lasts.
///
/// RACE: a process that closes a file gives up all the locks that it has on it, also those of its connections, and the
/// next process to open it would ruin what these write. So a process looks only while it has no connection to the file,
/// and opens none, also while it makes the file. Raced by `a_new_child_is_what_its_supervisor_had_read`.
pub fn check(path: &Path, make: impl FnOnce() -> Result<(), Error>) -> Result<Opening, Error> {
    let mut opening = count();
    let looks = *opening == 0 && matches!(is_open_here(path), Ok(false));
    if looks {
        look(path)?;
    }
    make()?;
    *opening += 1;
    Ok(Opening)
}

fn look(path: &Path) -> Result<(), Error> {
    for _ in 0..LOOKS {
        // A file that cannot be read is refused with the reason when it is opened.
        if !is_used_elsewhere(path).unwrap_or(false) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(Error::Misplaced(format!(
        "{} is in use under another name, and two names have two logs, which together ruin the file: let every process use the \
         same name. Mount the directory into a container, and not the file alone; use no hard link; and if somebody has removed \
         the -shm file, stop every process that has the database open",
        path.display()
    )))
}

/// Whether this process has the file open. Fails where the file is not there.
fn is_open_here(path: &Path) -> io::Result<bool> {
    let file = path.metadata()?;
    let is_it = |open: std::fs::Metadata| (open.dev(), open.ino()) == (file.dev(), file.ino());
    let open = std::fs::read_dir("/proc/self/fd")?.flatten();
    Ok(open
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .any(is_it))
}

fn is_used_elsewhere(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut page = [0; VERSIONS.end];
    // An empty file has no user yet. Without a log, everybody uses the file alone.
    if file.read_exact(&mut page).is_err() || page[VERSIONS] != HAS_LOG {
        return Ok(false);
    }
    if lock(&file, SHARED)? != libc::F_RDLCK {
        return Ok(false);
    }
    let mut index = path.canonicalize()?.into_os_string();
    index.push("-shm");
    match File::open(index) {
        Ok(index) => Ok(lock(&index, USERS)? == libc::F_UNLCK),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The kind of lock that somebody has on these bytes.
fn lock(file: &File, (start, length): (i64, i64)) -> io::Result<i32> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    /// Locks these bytes as a connection of another process does, until the file is dropped.
    fn locked(path: &Path, kind: i32, (start, length): (i64, i64)) -> File {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock)).unwrap();
        file
    }

    #[test]
    fn a_file_with_a_log_that_is_in_use_without_its_index_has_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a)")
            .unwrap();
        drop(db);
        let index = directory.path().join("a.db-shm");
        assert!(!is_used_elsewhere(&path).unwrap(), "nobody uses it");
        let user = locked(&path, libc::F_RDLCK, SHARED);
        assert!(is_used_elsewhere(&path).unwrap());
        // A process that was killed has left an index here.
        std::fs::write(&index, [0; 200]).unwrap();
        assert!(is_used_elsewhere(&path).unwrap());
        let users = locked(&index, libc::F_RDLCK, USERS);
        assert!(
            !is_used_elsewhere(&path).unwrap(),
            "it is used under this name"
        );
        drop((user, users));
        // The last one to close it, or one that wants it alone.
        let _alone = locked(&path, libc::F_WRLCK, SHARED);
        assert!(!is_used_elsewhere(&path).unwrap());
    }
}
