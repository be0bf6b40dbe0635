//! The lines on their way to standard error.
//!
//! Owns: a bounded queue and the one thread that writes from it. A reader that stopped reading fills
//! the pipe; then only this thread waits: a thread that logs puts a line in the queue or, when the
//! queue is full, counts the line as dropped. Never: blocks in `push`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::os::fd::AsFd;

/// How much of its log a process may hold while nobody reads it.
const MAX_BYTES: usize = 1024 * 1024;

/// Lines that were dropped since this was last taken.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Takes the number of lines that were dropped: each line is counted in one answer.
pub fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Lines waiting to be written.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// Something was pushed.
    pushed: Condvar,
    /// Everything is written.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    dropped: u64,
    writing: bool,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// This many lines are missing here.
    Dropped(u64),
}

impl State {
    fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.dropped == 0 && !self.writing
    }
}

impl Queue {
    /// A queue, and the thread that empties it with `write`. `notice` makes the line that
    /// tells how many were dropped.
    pub fn start(
        write: impl FnMut(&[u8]) + Send + 'static,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> Arc<Self> {
        let queue = Arc::new(Self::default());
        let writer = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("log".into());
        if let Err(error) = thread.spawn(move || writer.run(write, notice)) {
            // Without its thread the queue fills and drops lines: silent, but nothing blocks.
            let text = format!("the log's thread cannot be started: {error}\n");
            let _ = nix::unistd::write(io::stderr(), text.as_bytes());
        }
        queue
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves nothing in here half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or counts it as dropped.
    pub fn push(&self, line: String) {
        let mut state = self.lock();
        // Once it drops lines, it goes on until half is free: one gap with one notice, and not a
        // notice for every line that a slow reader makes room for.
        let limit = match state.dropped {
            0 => MAX_BYTES,
            _ => MAX_BYTES / 2,
        };
        if state.bytes + line.len() > limit {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if state.dropped > 0 {
            let dropped = std::mem::take(&mut state.dropped);
            state.entries.push_back(Entry::Dropped(dropped));
        }
        state.bytes += line.len();
        state.entries.push_back(Entry::Line(line));
        self.pushed.notify_one();
    }

    /// Waits until everything is written, but not longer than `limit`. True when it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .idle
            .wait_timeout_while(state, limit, |state| !state.is_idle());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_idle()
    }

    fn run(&self, mut write: impl FnMut(&[u8]), notice: impl Fn(u64) -> String) {
        loop {
            let line = self.next(&notice);
            write(line.as_bytes());
        }
    }

    fn next(&self, notice: &impl Fn(u64) -> String) -> String {
        let mut state = self.lock();
        state.writing = false;
        loop {
            let entry = state.entries.pop_front().or_else(|| {
                let dropped = std::mem::take(&mut state.dropped);
                (dropped > 0).then_some(Entry::Dropped(dropped))
            });
            if let Some(entry) = entry {
                state.writing = true;
                return match entry {
                    Entry::Line(line) => {
                        state.bytes -= line.len();
                        line
                    }
                    Entry::Dropped(lines) => notice(lines),
                };
            }
            self.idle.notify_all();
            state = self
                .pushed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes to standard error without its lock, for as long as it takes. When standard error
/// is closed the bytes are gone, and the daemon goes on.
pub fn write_to_stderr(bytes: &[u8]) {
    write_to(io::stderr(), bytes);
}

fn write_to(fd: impl AsFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match nix::unistd::write(&fd, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            // A process that shares the other end may have made it non-blocking.
            Err(Errno::EAGAIN) => {
                let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
                if nix::poll::poll(&mut ready, PollTimeout::NONE).is_err_and(|e| e != Errno::EINTR)
                {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::time::Instant;

    fn into_pipe(non_blocking: bool) -> (Arc<Queue>, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        if non_blocking {
            use nix::fcntl::{FcntlArg, OFlag, fcntl};
            fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        }
        let queue = Queue::start(
            move |bytes| write_to(&writer, bytes),
            |lines| format!("dropped {lines}\n"),
        );
        (queue, reader)
    }

    #[test]
    fn lines_come_out_in_order_and_a_flush_waits_for_them() {
        let (queue, reader) = into_pipe(false);
        for number in 0..100 {
            queue.push(format!("{number}\n"));
        }
        assert!(queue.flush(Duration::from_secs(10)));
        let lines = BufReader::new(reader).lines().take(100);
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        let expected: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_reader_that_does_not_read_blocks_nobody_and_learns_what_it_missed() {
        for non_blocking in [false, true] {
            let (queue, reader) = into_pipe(non_blocking);
            let line = format!("{}\n", "x".repeat(999));
            let began = Instant::now();
            // Ten times what pipe and queue can hold.
            for _ in 0..10_000 {
                queue.push(line.clone());
            }
            assert!(!queue.flush(Duration::from_millis(50)), "nobody has read");
            assert!(began.elapsed() < Duration::from_secs(10));
            let mut kept = 0;
            let mut notice = None;
            for line in BufReader::new(&reader).lines() {
                let line = line.unwrap();
                match line.strip_prefix("dropped ") {
                    Some(number) => {
                        notice = Some(number.parse::<u64>().unwrap());
                        break;
                    }
                    None => kept += 1,
                }
            }
            assert_eq!(notice.map(|dropped| dropped + kept), Some(10_000));
            assert!(kept >= 1_000, "the queue holds a megabyte: {kept}");
            queue.push("after\n".into());
            assert!(queue.flush(Duration::from_secs(10)));
        }
    }

    #[test]
    fn a_closed_stream_ends_nothing() {
        let (queue, reader) = into_pipe(false);
        drop(reader);
        for _ in 0..3 {
            queue.push("gone\n".into());
            assert!(queue.flush(Duration::from_secs(10)));
        }
    }
}
