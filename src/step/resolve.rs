//! The file that a command names, and the reason why it could not be executed.
//!
//! Owns: the words for every way in which a program does not start. Never: starts one, and
//! never lets a shell guess.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::{Outcome, StepError, is_of_the_machine};

/// Where programs are looked for when nobody says where.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file to execute, as seen from `cwd`. A name with a slash is taken as written; a bare
/// name is looked for in `path`, never in the working directory.
pub fn resolve(program: &str, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, StepError> {
    if program.contains('/') {
        return Ok(program.into());
    }
    if program.is_empty() {
        return Err(StepError::new("command_invalid", "the command is empty").no_retry());
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let (mut not_executable, mut failing) = (None, None);
    for directory in std::env::split_paths(path) {
        if directory.as_os_str().is_empty() {
            continue;
        }
        let file = directory.join(program);
        match cwd.join(&file).metadata() {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(file);
            }
            Ok(_) => not_executable = not_executable.or(Some(file)),
            Err(error) if is_of_the_machine(&error) => failing = failing.or(Some(file)),
            Err(_) => {}
        }
    }
    // The file is there, but not fit to be executed, or its disk fails: executing it gives the better error.
    failing.or(not_executable).ok_or_else(|| {
        let message = format!(
            "`{program}` was not found in PATH ({}); for a file of your own, write its path, e.g. \
             `steps/{program}`",
            first_of(path)
        );
        StepError::new("command_not_found", message)
    })
}

/// The first directories of a PATH, and how many more there are: a whole PATH drowns a message.
fn first_of(path: &OsStr) -> String {
    const SHOWN: usize = 3;
    let all: Vec<PathBuf> = std::env::split_paths(path)
        .filter(|directory| !directory.as_os_str().is_empty())
        .collect();
    let first = all.iter().take(SHOWN);
    let first: Vec<String> = first.map(|it| it.display().to_string()).collect();
    match (all.len(), all.len().saturating_sub(SHOWN)) {
        (0, _) => "it is empty".to_owned(),
        (_, 0) => first.join(", "),
        (_, more) => format!("{} and {more} more", first.join(", ")),
    }
}

/// Why `file` did not start in `cwd`: looked up afterwards, for a person.
pub fn explain(error: &io::Error, file: &Path, cwd: &Path) -> Outcome {
    let shown = file.display();
    let absolute = cwd.join(file);
    let errno = error.raw_os_error().map(Errno::from_raw);
    let (class, message) = match errno {
        _ if is_of_the_machine(error) => {
            return Outcome::NotStarted {
                message: format!("`{shown}` could not be started: {error}"),
            };
        }
        Some(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) if !cwd.is_dir() => (
            "cwd_not_found",
            format!("the working directory `{}` does not exist", cwd.display()),
        ),
        Some(Errno::ENOENT | Errno::ENOTDIR) if absolute.exists() => (
            "interpreter_not_found",
            match interpreter(&absolute) {
                Some(name) if name.ends_with('\r') => {
                    format!(
                        "`{shown}` names the interpreter {name:?}: save it with Unix line ends (sed -i 's/\\r$//' {shown})"
                    )
                }
                Some(name) => {
                    format!("`{shown}` needs the interpreter `{name}`, which does not exist")
                }
                None => format!("the loader for which `{shown}` was linked does not exist"),
            },
        ),
        Some(Errno::ENOENT | Errno::ENOTDIR) => (
            "command_not_found",
            format!("there is no `{shown}` (looked for in `{}`)", cwd.display()),
        ),
        Some(Errno::EACCES) if absolute.is_dir() => (
            "command_not_executable",
            format!("`{shown}` is a directory"),
        ),
        Some(Errno::EACCES | Errno::EPERM) => (
            "command_not_executable",
            format!("`{shown}` may not be executed: {error} (try `chmod +x {shown}`)"),
        ),
        Some(Errno::ENOEXEC) if start(&absolute).is_some_and(|it| it.starts_with(MARKED)) => (
            "command_not_executable",
            format!(
                "`{shown}` begins with a byte order mark, which hides its `#!` line: save it without one"
            ),
        ),
        Some(Errno::ENOEXEC) => (
            "command_not_executable",
            format!(
                "`{shown}` is neither a program for this machine nor a script with a `#!` line"
            ),
        ),
        Some(Errno::ETXTBSY) => (
            "command_busy",
            format!("`{shown}` is open for writing: somebody is still installing it"),
        ),
        Some(Errno::E2BIG) => (
            "command_too_large",
            format!(
                "the arguments and the environment of `{shown}` are larger than the system \
                 allows; the input arrives on stdin"
            ),
        ),
        _ => (
            "command_not_started",
            format!("`{shown}` could not be started: {error}"),
        ),
    };
    Outcome::Error(StepError::new(class, message))
}

/// A `#!` line after a byte order mark, which the kernel does not skip.
const MARKED: &[u8] = b"\xef\xbb\xbf#!";

/// The beginning of a file, as far as the kernel itself reads a `#!` line.
fn start(file: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    let mut file = File::open(file).ok()?.take(256);
    file.read_to_end(&mut start).ok()?;
    Some(start)
}

/// The interpreter that a script names after `#!`.
fn interpreter(file: &Path) -> Option<String> {
    let start = start(file)?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    let line = line.trim_matches([' ', '\t']);
    Some(line.split([' ', '\t']).next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_machine_cannot_start_is_not_the_steps_fault() {
        for (errno, is_the_steps) in [
            (Errno::EIO, false),
            (Errno::ESTALE, false),
            (Errno::ETIMEDOUT, false),
            (Errno::ENOTCONN, false),
            (Errno::ENOMEM, false),
            (Errno::ENOENT, true),
            (Errno::EACCES, true),
            (Errno::ENOEXEC, true),
        ] {
            let error = io::Error::from(errno);
            match explain(&error, Path::new("steps/a"), Path::new("/")) {
                Outcome::NotStarted { message } => {
                    assert!(!is_the_steps && message.contains("steps/a"), "{message}");
                }
                Outcome::Error(error) => assert!(is_the_steps, "{error:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
