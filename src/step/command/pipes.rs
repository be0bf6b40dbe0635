//! The pipes to and from a program: its input, its output, and its log.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::failpoint::failpoint;
use crate::step::StepError;
use crate::step::spawn::Ends;
use crate::step::verdict::PRINTED_END;

use super::CHUNK;

/// Input that the pipe did not take whole at once, and how much it took.
pub(super) struct Rest {
    pipe: pipe::Sender,
    taken: usize,
}

/// All ends, registered with the runtime before the program exists, so that nothing can fail any more
/// once it does.
pub(super) fn open_pipes(
    input: &[u8],
) -> io::Result<(Ends, Option<Rest>, pipe::Receiver, pipe::Receiver)> {
    let (stdin, to_stdin) = io::pipe()?;
    let (from_stdout, stdout) = io::pipe()?;
    let (from_stderr, stderr) = io::pipe()?;
    let ends = Ends {
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    Ok((
        ends,
        fill(to_stdin.into(), input)?,
        pipe::Receiver::from_owned_fd(OwnedFd::from(from_stdout))?,
        pipe::Receiver::from_owned_fd(OwnedFd::from(from_stderr))?,
    ))
}

/// Writes as much of the input as the pipe holds, which is nearly always all of it.
///
/// RACE: when this process dies, its end of the pipe is closed a moment before the kernel kills the
/// program, which would take what it has read so far, be it nothing, for the whole input. Input that
/// was written before the program started is all there, whichever process dies. Proven by
/// `a_program_has_its_input_before_it_starts`.
fn fill(to_stdin: OwnedFd, input: &[u8]) -> io::Result<Option<Rest>> {
    // It does not wait: nobody reads yet.
    let pipe = pipe::Sender::from_owned_fd(to_stdin)?;
    let parts = [io::IoSlice::new(input), io::IoSlice::new(b"\n")];
    let taken = nix::sys::uio::writev(&pipe, &parts)?;
    Ok((taken <= input.len()).then_some(Rest { pipe, taken }))
}

/// Writes the rest of the input and closes the pipe. A step need not read it.
pub(super) async fn feed(rest: Option<Rest>, input: &[u8]) {
    let Some(Rest { mut pipe, taken }) = rest else {
        return;
    };
    failpoint!("exec.half_fed");
    if pipe.write_all(&input[taken..]).await.is_ok() {
        let _ = pipe.write_all(b"\n").await;
    }
}

/// Hands on all that it reads, until there is no more.
pub(super) async fn pump(from: &mut pipe::Receiver, chunk: usize, mut take: impl FnMut(&[u8])) {
    let mut chunk = vec![0; chunk];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        take(&chunk[..length]);
        // A step that never stops writing must not keep the heart from beating.
        tokio::task::yield_now().await;
    }
}

/// Takes the bytes that are in the pipe right now. When the program has ended, all that it wrote
/// itself is there, so nothing of that is lost, however late we are.
pub(super) fn leftovers(from: &pipe::Receiver, mut take: impl FnMut(&[u8])) {
    // The longest pipe that there is, unless root made a longer one: a process that holds the other
    // end open must not keep us here.
    const LONGEST_PIPE: usize = 1024 * 1024;
    let mut chunk = [0; CHUNK];
    let mut room = LONGEST_PIPE;
    while let Ok(length @ 1..) = nix::unistd::read(from.as_fd(), &mut chunk) {
        take(&chunk[..length]);
        room = room.saturating_sub(length);
        if room == 0 {
            break;
        }
    }
}

/// The error of a step that is ended because it does not stop printing.
pub(super) fn printed_too_much(max_payload: usize) -> StepError {
    let printed = max_payload.saturating_mul(PRINTED_MAX);
    let message = format!(
        "the step printed more than {printed} bytes, {PRINTED_MAX} times the {max_payload} bytes (max_payload) of an \
         output: print less, and write the output to $DUCTWORK_OUTPUT"
    );
    StepError::new("output_too_large", message)
}

/// The printed text, up to the limit. More than that is no output, but may be a report of progress, where the output is in
/// its file.
pub(super) struct Printed {
    /// All of it, or the last of it if that is more than the limit.
    pub(super) bytes: Vec<u8>,
    max: usize,
    count: usize,
    pub(super) overflowed: bool,
}

/// A step that has printed this many times the limit is ended.
const PRINTED_MAX: usize = 64;

impl Printed {
    pub(super) fn new(max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            max,
            count: 0,
            overflowed: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], overflow: &Notify) {
        self.count = self.count.saturating_add(bytes.len());
        if self.count <= self.max {
            self.bytes.extend_from_slice(bytes);
            return;
        }
        if !self.overflowed {
            self.overflowed = true;
            let whole = std::mem::take(&mut self.bytes);
            self.keep(&whole);
        }
        self.keep(bytes);
        if self.count / PRINTED_MAX > self.max {
            overflow.notify_one();
        }
    }

    /// Keeps the end of an output over the limit, without a gap, in case the step fails.
    fn keep(&mut self, bytes: &[u8]) {
        if bytes.len() >= PRINTED_END {
            self.bytes.clear();
        }
        self.bytes
            .extend_from_slice(&bytes[bytes.len().saturating_sub(PRINTED_END)..]);
        if self.bytes.len() > 2 * PRINTED_END {
            self.bytes.drain(..self.bytes.len() - PRINTED_END);
        }
    }
}

/// Everything that moves bytes, driven beside the event that we wait for.
pub(super) struct Pumps<'a, F, R> {
    pub(super) feed: Option<Pin<&'a mut F>>,
    pub(super) read: Option<Pin<&'a mut R>>,
}

impl<F: Future<Output = ()>, R: Future<Output = ()>> Pumps<'_, F, R> {
    /// Moves bytes for as long as it is polled.
    pub(super) async fn work(&mut self) -> Infallible {
        poll_fn(|context| {
            advance(&mut self.feed, context);
            advance(&mut self.read, context);
            Poll::Pending
        })
        .await
    }

    /// Reads until both outputs are closed.
    pub(super) async fn finish(&mut self) {
        poll_fn(|context| {
            advance(&mut self.read, context);
            match self.read {
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            }
        })
        .await;
    }
}

fn advance<F: Future<Output = ()>>(slot: &mut Option<Pin<&mut F>>, context: &mut Context<'_>) {
    if let Some(future) = slot
        && future.as_mut().poll(context).is_ready()
    {
        *slot = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A secret would not be found in two texts that were put together.
    #[test]
    fn the_kept_end_of_an_output_over_the_limit_has_no_gap() {
        let overflow = Notify::new();
        let mut printed = Printed::new(1_000);
        let text: String = (0..30_000).map(|line| format!("line {line}\n")).collect();
        let (mut rest, mut all) = (text.as_bytes(), 0);
        for size in [
            16 << 10,
            3,
            16 << 10,
            9_000,
            16 << 10,
            16 << 10,
            8 << 10,
            100,
            7_000,
        ] {
            let (chunk, later) = rest.split_at(size);
            printed.push(chunk, &overflow);
            (rest, all) = (later, all + size);
            assert!(text.as_bytes()[..all].ends_with(&printed.bytes), "{all}");
            let kept = printed.bytes.len();
            assert!((PRINTED_END..=2 * PRINTED_END).contains(&kept), "{kept}");
        }
    }
}
