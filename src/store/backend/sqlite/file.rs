//! SQLite's file and its place.
//!
//! Owns: the checks whether the file is still the one that was opened first, and whether its log exists
//! without it. Never: opens it.
//!
//! A file that is moved, replaced or deleted while a process has it open takes every later commit
//! along, and no statement fails. SQLite leaves the log in its old place. A new file in the old place
//! is not the log's database: SQLite empties a log beside an empty file, and applies it to any other.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::store::error::Error;

/// A place for a database, and the file that was opened there first. Clones share that.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
    opened: Arc<Mutex<Option<Identity>>>,
    /// The files beside it that this process had open and saw in their places.
    sides: Arc<Mutex<[Vec<Open>; 2]>>,
}

/// A descriptor, and the file that it refers to. Where the file system tells when a file was created, this
/// tells it from another file that has got its number.
type Open = (std::ffi::OsString, Identity, Option<std::time::SystemTime>);

/// The device of a file, and its number there.
type Identity = (u64, u64);

/// A file that SQLite keeps beside its database while somebody has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// `-wal`: the last commits.
    Log,
    /// `-shm`: the index of the log's contents, and the holders of locks.
    Index,
}

impl Side {
    fn suffix(self) -> &'static str {
        match self {
            Self::Log => "-wal",
            Self::Index => "-shm",
        }
    }

    /// The consequence of a missing side file.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Log => {
                "the -wal file beside the database was deleted or moved while it was in use: no other process sees \
                 this daemon's commits. As the last process to close the database, it writes them to it"
            }
            Self::Index => {
                "the -shm file beside the database was deleted or moved while it was in use: a process that opens the \
                 database now does not see this daemon's locks, and together they would ruin the file. \
                 Stop every process that has it open, and start again"
            }
        }
    }
}

impl File {
    /// A place where nothing was opened yet.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            opened: Arc::default(),
            sides: Arc::default(),
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails with `Misplaced` when the place holds another file than the one opened first, or none;
    /// and where a log exists there without its database.
    pub fn check(&self) -> Result<(), Error> {
        let opened = *self.lock();
        let what = match self.path.metadata() {
            Ok(now) if opened.is_some_and(|opened| opened != identity(&now)) => "replaced",
            Err(error) if opened.is_some() && error.kind() == std::io::ErrorKind::NotFound => {
                "moved or deleted"
            }
            // A file that cannot be inspected may be the same.
            _ => return self.check_log(),
        };
        let (path, log) = (self.path.display(), self.log());
        if self.is_deleted() {
            let log = match length(&log) {
                0 => String::new(),
                _ => format!(
                    ", and move {} away first, which ruins any other file",
                    log.display()
                ),
            };
            return Err(Error::Misplaced(format!(
                "{path} was deleted while it was in use, and nothing that is committed now is kept: put back a \
                 backup, or begin anew{log}"
            )));
        }
        let log = match length(&log) {
            0 => String::new(),
            _ => format!(
                ". Its last commits are in {}, which ruins any other file",
                log.display()
            ),
        };
        Err(Error::Misplaced(format!(
            "{path} was {what} while it was in use: put that very file back before the next start{log}"
        )))
    }

    /// The side file that this process has open and that is no longer in its place: deleted, moved or
    /// replaced; where both are, the index. Called again and again: a file that was never seen in its
    /// place is recognised only by the name that the kernel gives to a deleted file.
    pub fn displaced(&self) -> Option<Side> {
        let real = self.path.canonicalize().ok()?.into_os_string();
        let beside = |suffix: &str| {
            let mut path = real.clone();
            path.push(suffix);
            path
        };
        let in_place = ["", "-wal", "-shm"].map(beside);
        let entries = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
        let open: Vec<(Open, PathBuf)> = entries
            .filter_map(|entry| {
                let file = std::fs::metadata(entry.path()).ok()?;
                let name = std::fs::read_link(entry.path()).ok()?;
                let born = file.created().ok();
                Some(((entry.file_name(), identity(&file), born), name))
            })
            .collect();
        let mut sides = self.sides.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = |(side, seen): (Side, &mut Vec<Open>)| {
            let path = beside(side.suffix());
            let deleted = beside(&format!("{} (deleted)", side.suffix()));
            // RACE: the last connection deletes both; the next new file gets the number of one of them, and the
            // free descriptor. Only its time of creation differs. Proven by
            // `another_file_under_the_number_and_the_descriptor_of_a_side_file_is_no_sign`.
            let gone = open.iter().any(|(held, name)| {
                let elsewhere = !in_place.iter().any(|path| *name == *path);
                *name == deleted || elsewhere && seen.contains(held)
            });
            if !gone {
                let there = open.iter().filter(|(_, name)| *name == path);
                *seen = there.map(|(held, _)| held.clone()).collect();
            }
            gone.then_some(side)
        };
        let all = [Side::Log, Side::Index].into_iter().zip(sides.iter_mut());
        all.filter_map(displaced).max()
    }

    /// True when the file that was opened first has no name any more. It disappears as soon as the last
    /// process closes it. Only a process that has it open can tell.
    pub fn is_deleted(&self) -> bool {
        let Some(opened) = *self.lock() else {
            return false;
        };
        let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let files = entries
            .flatten()
            .filter_map(|it| std::fs::metadata(it.path()).ok());
        files
            .into_iter()
            .any(|file| identity(&file) == opened && file.nlink() == 0)
    }

    /// Records that a file was opened; fails when it is not the first one.
    pub(super) fn opened(&self) -> Result<(), Error> {
        if let Ok(now) = self.path.metadata() {
            self.lock().get_or_insert_with(|| identity(&now));
        }
        // Records the side files, which exist since the mode of its journal was queried.
        let _ = self.displaced();
        self.check()
    }

    /// The file was removed on purpose: the next file counts as the first.
    pub(in crate::store) fn forget(&self) {
        *self.lock() = None;
    }

    /// RACE: another process creates the database between our two checks. Its first page exists
    /// before its log has any content, so the log is checked first. Raced by
    /// `four_supervisors_that_start_at_once_migrate_once`.
    fn check_log(&self) -> Result<(), Error> {
        let log = self.log();
        if length(&log) == 0 || length(&self.path) > 0 {
            return Ok(());
        }
        let what = match self.path.exists() {
            true => "empty",
            false => "missing",
        };
        let (path, log) = (self.path.display(), log.display());
        Err(Error::Misplaced(format!(
            "{path} is {what}, but its log {log} is there, with what was committed last: put that very \
             file back beside it, or move the log away first, to put back a backup or to begin \
             anew. A backup beside this log is ruined by it"
        )))
    }

    /// The length of the log in bytes; zero where there is no log.
    pub(super) fn log_length(&self) -> u64 {
        length(&self.log())
    }

    /// The log is beside the file itself, not beside a link to it.
    fn log(&self) -> PathBuf {
        let mut log = self.target().into_os_string();
        log.push("-wal");
        PathBuf::from(log)
    }

    /// The file itself, where the path is a link; it need not exist.
    pub(super) fn target(&self) -> PathBuf {
        let link = || {
            let target = self.path.read_link().ok()?;
            Some(self.path.parent()?.join(target))
        };
        let file = self.path.canonicalize().ok().or_else(link);
        file.unwrap_or_else(|| self.path.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Identity>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Zero where the file does not exist.
fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

fn identity(file: &std::fs::Metadata) -> Identity {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_database_that_is_a_link_lies_beside_the_database() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("data")).unwrap();
        std::os::unix::fs::symlink("data/real.db", at("link.db")).unwrap();
        let file = File::at(at("link.db"));
        assert_eq!(file.log(), at("data/real.db-wal"), "of a link to nothing");
        file.check().unwrap();
        std::fs::write(at("data/real.db-wal"), "frames").unwrap();
        assert!(matches!(file.check(), Err(Error::Misplaced(_))));
        std::fs::write(at("data/real.db"), "pages").unwrap();
        assert_eq!(file.log(), at("data/real.db-wal"));
        file.check().unwrap();
    }

    #[test]
    fn a_side_file_that_is_not_in_its_place_any_more_is_noticed_and_of_both_the_index() {
        use std::os::unix::ffi::OsStringExt;
        let directory = tempfile::tempdir().unwrap();
        // The name is not valid text.
        let name = std::ffi::OsString::from_vec(b"n\xff (deleted)".to_vec());
        let path = directory.path().join(name);
        std::fs::write(&path, "pages").unwrap();
        let beside = |suffix: &str| {
            let mut path = path.clone().into_os_string();
            path.push(suffix);
            path
        };
        let away = directory.path().join("away");
        let open = |suffix| std::fs::File::create(beside(suffix)).unwrap();

        let file = File::at(path.clone());
        let _held = ["-wal", "-shm"].map(open);
        assert_eq!(file.displaced(), None);
        std::fs::remove_file(beside("-wal")).unwrap();
        assert_eq!(file.displaced(), Some(Side::Log));
        let _another = open("-wal");
        assert_eq!(file.displaced(), Some(Side::Log), "replaced");
        std::fs::rename(beside("-shm"), &away).unwrap();
        assert_eq!(file.displaced(), Some(Side::Index), "moved");
        std::fs::rename(&away, beside("-shm")).unwrap();
        assert_eq!(file.displaced(), Some(Side::Log), "put back");
        // For a file that was never checked before, the kernel's name tells.
        std::fs::remove_file(beside("-shm")).unwrap();
        assert_eq!(File::at(path.clone()).displaced(), Some(Side::Index));
    }

    #[test]
    fn another_file_under_the_number_and_the_descriptor_of_a_side_file_is_no_sign() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        std::fs::write(&path, "pages").unwrap();
        let file = File::at(path);
        let index = directory.path().join("a.db-shm");
        let mut reused = 0;
        // A file system that gives out each number once shows nothing here; the test below does.
        for n in 0..100 {
            let held = std::fs::File::create(&index).unwrap();
            assert_eq!(file.displaced(), None);
            let number = held.metadata().unwrap().ino();
            let descriptor = std::os::fd::AsRawFd::as_raw_fd(&held);
            std::fs::remove_file(&index).unwrap();
            drop(held);
            let other = directory.path().join(format!("other-{n}"));
            let other = std::fs::File::create(other).unwrap();
            let is_same = std::os::fd::AsRawFd::as_raw_fd(&other) == descriptor;
            reused += u32::from(is_same && other.metadata().unwrap().ino() == number);
            assert_eq!(file.displaced(), None, "after {reused} of the same number");
        }
        eprintln!("{reused} of 100 files got the number and the descriptor of the one before");
        // The same without a file system: an entry whose name is none of ours.
        let entry = |born| {
            let born = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(born);
            ("3".into(), (1, 2), Some(born))
        };
        let seen: Vec<Open> = vec![entry(1)];
        assert!(seen.contains(&entry(1)) && !seen.contains(&entry(2)));
    }

    #[test]
    fn a_file_without_a_name_is_deleted_and_one_that_was_moved_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, away) = (directory.path().join("a.db"), directory.path().join("away"));
        let file = File::at(path.clone());
        let _held = std::fs::File::create(&path).unwrap();
        file.opened().unwrap();
        assert!(!file.is_deleted());
        std::fs::rename(&path, &away).unwrap();
        assert!(!file.is_deleted());
        assert!(
            file.check()
                .unwrap_err()
                .to_string()
                .contains("moved or deleted")
        );
        std::fs::remove_file(&away).unwrap();
        assert!(file.is_deleted());
        let error = file.check().unwrap_err().to_string();
        assert!(
            error.contains(
                "was deleted while it was in use, and nothing that is committed now is kept"
            ),
            "{error}"
        );
        std::fs::write(&path, "another").unwrap();
        assert!(file.is_deleted(), "replaced");
    }

    #[test]
    fn the_first_file_that_was_opened_counts_for_all_clones_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let file = File::at(path.clone());
        std::fs::write(&path, "1").unwrap();
        file.clone().opened().unwrap();
        file.check().unwrap();
        std::fs::rename(&path, directory.path().join("away")).unwrap();
        assert!(file.check().unwrap_err().to_string().contains("moved"));
        std::fs::write(&path, "2").unwrap();
        assert!(file.opened().unwrap_err().to_string().contains("replaced"));
        file.forget();
        file.opened().unwrap();
    }
}
