//! A command's end of the socket.
//!
//! Owns: one exchange with the worker, repeated while the worker has too many of them. Never: waits longer than
//! [`WAIT_MAX`], or for a worker that is gone.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{Address, Answer, Ask, LINE_MAX, Request, line, reachable};

/// The longest that an answer may take. Within it the database may be away, and come back.
pub const WAIT_MAX: Duration = Duration::from_secs(300);

/// The wait before a busy worker is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The worker refuses.
    #[error("{0}")]
    Refused(String),
    /// It does not answer in time.
    #[error("the worker of this step has not answered for {} s", WAIT_MAX.as_secs())]
    Late,
    /// There is no worker.
    #[error("the worker of this step does not answer")]
    Gone(#[source] io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Gone(error),
        }
    }
}

/// The value of a key, if it was ever set.
pub fn get(address: &Address, key: &str) -> Result<Option<String>, Error> {
    let ask = || Ask::Get {
        key: key.to_owned(),
    };
    exchange(address, ask, "", |first, from| match first {
        Answer::Unset => Ok(None),
        Answer::Value { length, .. } => value(from, length).map(Some),
        other => Err(unexpected(&other)),
    })
}

/// Sets a key to one JSON value.
pub fn set(address: &Address, key: &str, value: &str) -> Result<(), Error> {
    let ask = || Ask::Set {
        key: key.to_owned(),
        length: value.len(),
    };
    exchange(address, ask, value, |first, _| match first {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    })
}

/// All keys and values, ordered by key.
pub fn list(address: &Address) -> Result<Vec<(String, String)>, Error> {
    exchange(
        address,
        || Ask::List,
        "",
        |first, from| {
            let mut all = Vec::new();
            let mut next = first;
            loop {
                match next {
                    Answer::Done => return Ok(all),
                    Answer::Value { key, length } => all.push((key, value(from, length)?)),
                    Answer::Refused { message } => return Err(Error::Refused(message)),
                    other => return Err(unexpected(&other)),
                }
                next = answer(from)?;
            }
        },
    )
}

fn exchange<T>(
    address: &Address,
    ask: impl Fn() -> Ask,
    value: &str,
    read: impl Fn(Answer, &mut BufReader<UnixStream>) -> Result<T, Error>,
) -> Result<T, Error> {
    let began = Instant::now();
    let request = line(&Request {
        token: address.token.clone(),
        ask: ask(),
    });
    loop {
        let left = WAIT_MAX.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(Error::Late);
        }
        let (path, _held) = reachable(&address.path)?;
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))?;
        // A worker that refuses does not read the whole request; its answer is there to be read.
        let sent = stream
            .write_all(&request)
            .and_then(|()| stream.write_all(value.as_bytes()));
        let mut from = BufReader::new(stream);
        match (answer(&mut from), sent) {
            (Ok(Answer::Busy), _) => std::thread::sleep(AGAIN.min(left)),
            (Ok(Answer::Refused { message }), _) => return Err(Error::Refused(message)),
            (Ok(first), Ok(())) => return read(first, &mut from),
            (_, Err(error)) | (Err(Error::Gone(error)), Ok(())) => return Err(error.into()),
            (Err(error), Ok(())) => return Err(error),
        }
    }
}

fn answer(from: &mut BufReader<UnixStream>) -> Result<Answer, Error> {
    let mut line = Vec::new();
    // A reason may be longer than a request.
    from.take(16 * LINE_MAX as u64)
        .read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    serde_json::from_slice(&line).map_err(|error| Error::Gone(error.into()))
}

fn value(from: &mut BufReader<UnixStream>, length: usize) -> Result<String, Error> {
    let mut text = String::new();
    from.take(length as u64).read_to_string(&mut text)?;
    match text.len() == length {
        true => Ok(text),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Gone(io::Error::other(format!(
        "its answer makes no sense to this version: {answer:?}"
    )))
}
