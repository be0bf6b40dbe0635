//! Files that people wrote.
//!
//! Owns: reading a file as a whole, within a bound, without waiting for anybody. Never: knows what
//! is in it, or says what is wrong with it.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why a file was not read.
#[derive(Debug)]
pub enum Refused {
    /// The system's reason.
    Io(io::Error),
    /// It is a directory.
    Directory,
    /// It is a pipe, a socket or a device.
    Special,
    /// It is larger than the bound.
    TooLarge,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(to),
            Self::Directory => to.write_str("it is a directory"),
            Self::Special => to.write_str("it is not a file"),
            Self::TooLarge => to.write_str("it is too large"),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a regular file of at most `max` bytes.
///
/// Nothing else is read. Opening a pipe waits until somebody writes to it, and a daemon that waits
/// here, with its signals unread, can only be killed.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>, Refused> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(Refused::Directory);
    }
    if !kind.is_file() {
        return Err(Refused::Special);
    }
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(Refused::TooLarge),
        false => Ok(bytes),
    }
}

/// True for a text that an editor saved as UTF-16.
pub fn is_utf_16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_within_the_bound_is_read() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("file"), "four").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read(&at("file"), 4).unwrap(), b"four");
        assert_eq!(read(&at("link"), 9).unwrap(), b"four");
        let refused = |name: &str, max| read(&at(name), max).unwrap_err();
        assert!(matches!(refused("file", 3), Refused::TooLarge));
        assert!(matches!(refused("", 9), Refused::Directory));
        assert!(matches!(refused("pipe", 9), Refused::Special));
        assert!(matches!(refused("socket", 9), Refused::Io(_)));
        assert!(matches!(refused("none", 9), Refused::Io(_)));
        let zero = read(Path::new("/dev/zero"), 9).unwrap_err();
        assert!(matches!(zero, Refused::Special));
    }
}
