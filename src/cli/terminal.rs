//! Standard error while a picture is on it: everything that this process and its children write there
//! comes here first, so that it does not run through the picture.
//!
//! Owns: taking the descriptor and giving it back, and which of the captured lines are shown, within
//! bounds. Never: draws.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::RunId;
use crate::problem::Problem;

use super::exit::Failure;

/// The number of lines that are kept until somebody takes them; further ones are only counted.
const KEPT: usize = 500;

/// The longest line, in bytes; the rest of a longer one becomes the next line.
const LONGEST: u64 = 16 * 1024;

/// The time for which to wait for lines that were already written.
const LAST_LINES: Duration = Duration::from_millis(300);

/// The line that marks the moment at which standard error was given back.
const MARK: &str = "\0";

/// Standard error, for drawing.
pub fn stderr() -> Result<File, Failure> {
    let terminal = std::io::stderr().as_fd().try_clone_to_owned();
    let refused = |error| {
        let message = format!("standard error cannot be used: {error}");
        Failure::failed(Problem::new(message))
    };
    Ok(File::from(terminal.map_err(refused)?))
}

/// The terminal, whose standard error is taken until this is dropped.
pub struct Terminal {
    real: File,
    caught: Arc<Mutex<Caught>>,
    /// Lines about runs are shown too.
    log: bool,
}

/// The captured lines.
#[derive(Default)]
struct Caught {
    lines: VecDeque<String>,
    more: u64,
    marked: bool,
    ended: bool,
}

/// Some of the captured lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines to show, in order.
    pub shown: Vec<String>,
    /// The number of lines that are not shown.
    pub hidden: u64,
}

impl Terminal {
    /// Takes the standard error of this process and of its future children. Lines about runs are only
    /// counted, because a picture shows the run, unless `log` requests them.
    pub fn take(log: bool) -> Result<Self, Failure> {
        let real = stderr()?;
        Self::catch(real, log).map_err(|error| {
            let message = format!("standard error cannot be taken: {error}");
            Failure::failed(Problem::new(message))
        })
    }

    fn catch(real: File, log: bool) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let caught: Arc<Mutex<Caught>> = Arc::default();
        let kept = Arc::clone(&caught);
        std::thread::Builder::new()
            .name("stderr".to_owned())
            .spawn(move || read(reader, &kept))?;
        nix::unistd::dup2_stderr(writer)?;
        Ok(Self { real, caught, log })
    }

    /// The terminal itself.
    pub fn file(&self) -> Result<File, Failure> {
        self.real.try_clone().map_err(|error| {
            let message = format!("standard error cannot be used: {error}");
            Failure::failed(Problem::new(message))
        })
    }

    /// The lines that have come since the last call. Lines about other runs than `of` are not even
    /// counted.
    pub fn lines(&self, of: Option<RunId>) -> Lines {
        let of = of.map_or_else(String::new, |run| run.to_string());
        let mut caught = locked(&self.caught);
        let mut lines = Lines {
            shown: Vec::new(),
            hidden: std::mem::take(&mut caught.more),
        };
        for line in caught.lines.drain(..) {
            match self.log || !line.contains("run_id=") {
                true => lines.shown.push(line),
                false => lines.hidden += u64::from(line.contains(&of)),
            }
        }
        lines
    }

    /// Gives this process's standard error back; living children keep the one that they were given.
    pub fn give_back(&self) {
        let marked = std::io::stderr().write_all(format!("{MARK}\n").as_bytes());
        if nix::unistd::dup2_stderr(&self.real).is_ok() && marked.is_ok() {
            self.wait(|caught| caught.marked);
        }
    }

    fn wait(&self, until: impl Fn(&Caught) -> bool) {
        let began = Instant::now();
        while began.elapsed() < LAST_LINES && !until(&locked(&self.caught)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// By now the children have ended, or never began.
impl Drop for Terminal {
    fn drop(&mut self) {
        if nix::unistd::dup2_stderr(&self.real).is_ok() {
            self.wait(|caught| caught.ended);
        }
        for line in self.lines(None).shown {
            let _ = self.real.write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn locked(caught: &Mutex<Caught>) -> MutexGuard<'_, Caught> {
    caught.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads until nobody can write any more, whether or not the lines are taken: no writer may wait.
fn read(reader: PipeReader, caught: &Mutex<Caught>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while let Ok(1..) = reader.by_ref().take(LONGEST).read_until(b'\n', &mut bytes) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        let mut caught = locked(caught);
        match caught.lines.len() < KEPT {
            _ if line == MARK => caught.marked = true,
            true => caught.lines.push_back(line),
            false => caught.more += 1,
        }
    }
    locked(caught).ended = true;
}
