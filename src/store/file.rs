//! SQLite's file, where it lies.
//!
//! Owns: whether it is still the file that was opened, and whether its log lies there without it.
//! Never: opens it.
//!
//! A file that is moved, replaced or deleted under a process that has it open takes every later commit
//! along, and no statement fails. SQLite leaves the log where it was. A new file in the old one's
//! place is not its database: SQLite empties the log beside an empty file, and applies it to another.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::Error;

/// A file that was opened.
pub struct Opened {
    path: PathBuf,
    /// Its device and its number there.
    identity: (u64, u64),
}

impl Opened {
    /// The file that is at `path` now; `None`: there is none.
    pub fn at(path: &Path) -> Option<Self> {
        let (path, file) = (path.to_owned(), path.metadata().ok()?);
        let identity = identity(&file);
        Some(Self { path, identity })
    }

    /// Fails with `Misplaced` when it is not where it was.
    pub fn check(&self) -> Result<(), Error> {
        let what = match self.path.metadata() {
            Ok(now) if identity(&now) != self.identity => "replaced",
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "moved or deleted",
            // One that cannot be looked at may be the same.
            _ => return Ok(()),
        };
        let (path, log) = (self.path.display(), log(&self.path));
        Err(Error::Misplaced(format!(
            "{path} was {what} while it was in use: put that file back before the next start. What was \
             committed last is in {}, which belongs to it alone",
            log.display()
        )))
    }
}

/// Fails with `Misplaced` where the log of a database lies at `path`, and no database.
pub fn check_log(path: &Path) -> Result<(), Error> {
    let length = |path: &Path| path.metadata().map_or(0, |file| file.len());
    let log = log(path);
    if length(path) > 0 || length(&log) == 0 {
        return Ok(());
    }
    Err(Error::Misplaced(format!(
        "{} is missing, but its log {} is there, with what was committed last: put the database back \
         beside it, or move the log away to begin with an empty database",
        path.display(),
        log.display()
    )))
}

fn identity(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn log(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}
