//! The socket through which a command reaches the context of its own run, without the database.
//!
//! Owns: the place of the socket, and the exchange on it. Never: knows where a context is kept.
//!
//! One connection is one exchange. A line of JSON asks, followed by the value where one is set; a
//! line of JSON answers, followed by the value where there is one. The answer to a list is many
//! values, and then `done`. Both ends are this program, so the exchange may change with its version.

pub mod ask;
pub mod serve;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::RunId;

/// The variable that tells a step where its worker answers.
pub const VARIABLE: &str = "DUCTWORK_CONTEXT";

/// The longest line, in bytes: a key has up to 256 characters, each of which JSON may write with twelve.
const LINE_MAX: usize = 4 * 1024;

/// The longest path that fits into a socket's address.
const PATH_MAX: usize = 107;

/// The question of a command.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// Proves that a step asks, and which one.
    token: String,
    ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ask {
    Get {
        key: String,
    },
    /// This many bytes follow.
    Set {
        key: String,
        length: usize,
    },
    List,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// This many bytes follow.
    Value { key: String, length: usize },
    /// The key was never set.
    Unset,
    /// The key was set, or all were listed.
    Done,
    /// Too much is asked at once: ask again.
    Busy,
    /// The request is refused, for this reason.
    Refused { message: String },
}

impl Answer {
    fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
        }
    }
}

/// One line of the exchange.
fn line(said: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The address at which a step's worker answers, and the run for which it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The run whose context it is.
    pub run: RunId,
    token: String,
    path: PathBuf,
}

impl Address {
    /// The value of [`VARIABLE`].
    pub fn text(&self) -> OsString {
        let mut text = format!("{}:{}:", self.run, self.token).into_bytes();
        text.extend_from_slice(self.path.as_os_str().as_bytes());
        OsString::from_vec(text)
    }

    /// Reads such a value.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let mut parts = text.as_bytes().splitn(3, |byte| *byte == b':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let word = |bytes| std::str::from_utf8(bytes).ok();
        Some(Self {
            run: word(next()?)?.parse().ok()?,
            token: word(next()?)?.to_owned(),
            path: OsStr::from_bytes(next()?).into(),
        })
    }
}

/// The path itself, or, if it is too long for a socket's address, another path to the same place, which holds as
/// long as the directory is held.
fn reachable(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    if path.as_os_str().len() <= PATH_MAX {
        return Ok((path.to_owned(), None));
    }
    let directory = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(directory)?;
    let fd = directory.as_raw_fd();
    let path = Path::new("/proc/self/fd").join(fd.to_string()).join(name);
    Ok((path, Some(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for path in ["/tmp/a/context", "/tmp/a:b c/é"] {
            let address = Address {
                run: RunId::new(),
                token: "t0".into(),
                path: path.into(),
            };
            assert_eq!(Address::parse(&address.text()), Some(address));
        }
        let run = RunId::new();
        for wrong in [
            "",
            "x",
            "x:t:/a",
            &format!("{run}:t"),
            &format!("{run}::/a"),
            &format!("{run}:t:"),
        ] {
            assert_eq!(Address::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn the_longest_key_fits_into_a_line() {
        let request = Request {
            token: "0".repeat(32),
            ask: Ask::Set {
                key: "\u{1}".repeat(256),
                length: usize::MAX,
            },
        };
        assert!(line(&request).len() <= LINE_MAX);
    }

    #[test]
    fn a_place_that_is_too_deep_for_an_address_is_reached_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("context");
        assert!(std::os::unix::net::UnixListener::bind(&path).is_err());
        let (short, _held) = reachable(&path).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(short).unwrap();
        let (short, _held) = reachable(&path).unwrap();
        std::os::unix::net::UnixStream::connect(short).unwrap();
    }
}
