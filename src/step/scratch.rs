//! The file that a command step may write its output to (`$DUCTWORK_OUTPUT`).
//!
//! Owns: a directory of this process alone, made with the first file and removed with the
//! last owner. Never: trusts what it finds there afterwards, because the step could do with
//! it as it liked.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{Flock, FlockArg};

use crate::model::ExecutionId;

const PREFIX: &str = "ductwork-outputs-";

/// Hands out output files.
#[derive(Debug, Default)]
pub struct Scratch {
    directory: Mutex<Option<Directory>>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// Held as long as the process lives: a process that can take the lock knows that the directory
    /// is nobody's.
    _owned: Flock<File>,
}

/// One execution's file; removed when dropped.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    /// Held from before the start: when the step is done, there may be no descriptor left to read
    /// what it wrote.
    file: File,
}

impl Scratch {
    /// An empty file that only this user can read.
    pub fn file(&self, execution: ExecutionId) -> io::Result<OutputFile> {
        let name = execution.to_string();
        let mut directory = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = &*directory {
            match OutputFile::make(directory.path.join(&name)) {
                // Somebody tidies temporary directories: make another one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => return made,
            }
        }
        let made = directory.insert(Directory::make(&parent()?)?);
        OutputFile::make(made.path.join(&name))
    }
}

/// The directory for temporary files. An empty TMPDIR names none; a step that runs elsewhere would take a relative one for
/// another directory.
pub fn parent() -> io::Result<PathBuf> {
    match std::env::temp_dir() {
        none if none.as_os_str().is_empty() => Ok(PathBuf::from("/tmp")),
        named => std::path::absolute(named),
    }
}

impl Directory {
    fn make(parent: &Path) -> io::Result<Self> {
        remove_orphans(parent);
        let mut tries = 0;
        loop {
            let path = parent.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
            DirBuilder::new().mode(0o700).create(&path)?;
            // RACE: until the directory is locked, another process that tidies up takes it for an
            // orphan, and may even have removed what we then lock. Looking again with the lock held
            // stops this; proven by `directories_made_at_once_are_not_taken_for_orphans`.
            let error = match own(&path) {
                Ok(owned) if is_at(&owned, &path) => {
                    return Ok(Self {
                        path,
                        _owned: owned,
                    });
                }
                Ok(_) => io::ErrorKind::NotFound.into(),
                Err(error) => error,
            };
            if tries == TRIES_MAX || !is_tidied(&error) {
                // Nobody else removes it as long as descriptors are short.
                let _ = std::fs::remove_dir(&path);
                return Err(error);
            }
            tries += 1;
        }
    }
}

/// True for the error of a directory that another process has locked or removed.
fn is_tidied(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotFound
    )
}

/// More processes than this do not tidy up in the same instant.
const TRIES_MAX: u32 = 100;

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(held), Ok(found)) => (held.dev(), held.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Best effort: what stays behind is removed by the next process that needs one.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes what killed processes left behind.
fn remove_orphans(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            continue;
        }
        let mine = entry
            .metadata()
            .is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw());
        // Locked until it is removed, so that nobody makes it theirs in between.
        if mine && let Ok(_held) = own(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn own(directory: &Path) -> io::Result<Flock<File>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(directory)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

impl OutputFile {
    fn make(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self { path, file })
    }

    /// The value of the variable.
    pub fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// The directory, which is this process's alone.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// How much there is to read: in the file that the step was given, or in the one that it put in its place.
    pub fn length(&self) -> u64 {
        let length = |file: io::Result<std::fs::Metadata>| file.map_or(0, |file| file.len());
        length(self.file.metadata()).max(length(std::fs::symlink_metadata(&self.path)))
    }

    /// The text that the step wrote, at most one byte more than `max`; empty when it removed the file.
    pub fn read(&self, max: usize) -> io::Result<Vec<u8>> {
        if is_at(&self.file, &self.path) {
            return read_all(&self.file, max);
        }
        let opened = OpenOptions::new()
            .read(true)
            // The step may have put a link or a named pipe in its place: neither follow nor wait.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no longer a regular file"));
        }
        read_all(&file, max)
    }
}

fn read_all(mut file: &File, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_private_and_gone_with_its_owner() {
        let scratch = Scratch::default();
        let file = scratch.file(ExecutionId::new()).unwrap();
        let path = PathBuf::from(file.path());
        let directory = path.parent().unwrap().to_owned();
        assert_eq!((mode(&path), mode(&directory)), (0o600, 0o700));
        assert_eq!(file.read(10).unwrap(), b"");
        drop(file);
        assert!(!path.exists());
        drop(scratch);
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_that_was_tidied_away_is_made_again() {
        let scratch = Scratch::default();
        let file = scratch.file(ExecutionId::new()).unwrap();
        std::fs::remove_dir_all(Path::new(file.path()).parent().unwrap()).unwrap();
        assert_eq!(file.read(10).unwrap(), b"");
        let again = scratch.file(ExecutionId::new()).unwrap();
        assert!(Path::new(again.path()).exists());
    }

    #[test]
    fn only_orphaned_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let living = Directory::make(parent.path()).unwrap();
        let orphan = parent.path().join(format!("{PREFIX}orphan"));
        std::fs::create_dir(&orphan).unwrap();
        let strange = parent.path().join("strange");
        std::fs::create_dir(&strange).unwrap();
        remove_orphans(parent.path());
        assert!(living.path.exists() && strange.exists());
        assert!(!orphan.exists());
    }

    #[test]
    fn directories_made_at_once_are_not_taken_for_orphans() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let made = Directory::make(parent.path()).unwrap();
                        OutputFile::make(made.path.join("file")).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_or_a_link_in_its_place_is_refused_without_waiting() {
        let scratch = Scratch::default();
        let file = scratch.file(ExecutionId::new()).unwrap();
        std::fs::remove_file(file.path()).unwrap();
        nix::unistd::mkfifo(file.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(
            file.read(10)
                .unwrap_err()
                .to_string()
                .contains("regular file")
        );
        std::fs::remove_file(file.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", file.path()).unwrap();
        assert!(file.read(10).is_err());
    }
}
