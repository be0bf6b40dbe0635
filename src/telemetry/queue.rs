//! The lines on their way to standard error.
//!
//! Owns: a bounded queue and the one thread that writes from it. A reader that stopped reading fills
//! the pipe; then only this thread waits: a thread that logs puts a line in the queue or, when the
//! queue is full, counts the line as dropped. A line that cannot be written, because the disk is full, say, is counted
//! too, and the number is written before the next line for which there is room. Never: blocks in `push`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// The pause between two attempts to start the thread, on a machine that is short of threads.
const START_AGAIN: Duration = Duration::from_secs(1);

/// Lines waiting to be written.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// Something was pushed.
    pushed: Condvar,
    /// Everything is written.
    idle: Condvar,
    /// The thread's work, until it is started.
    unstarted: Mutex<Option<Unstarted>>,
}

type Work = Arc<dyn Fn(&Queue) + Send + Sync>;

struct Unstarted {
    work: Work,
    /// Not before this time.
    next: Instant,
}

impl std::fmt::Debug for Unstarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unstarted").finish_non_exhaustive()
    }
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
    /// A queue, and the thread that empties it with `write`, which returns how many bytes it has written. `notice` makes
    /// the line that tells how many were dropped, and `mute` the one that tells that the thread cannot be started: a
    /// later `push` tries again.
    pub fn start(
        write: impl Fn(&[u8]) -> usize + Send + Sync + 'static,
        notice: impl Fn(u64) -> String + Send + Sync + 'static,
        mute: impl Fn(&io::Error) -> String,
    ) -> Arc<Self> {
        let work: Work = Arc::new(move |queue| queue.run(&write, &notice));
        let next = Instant::now();
        let queue = Arc::new(Self {
            unstarted: Mutex::new(Some(Unstarted { work, next })),
            ..Self::default()
        });
        if let Err(error) = queue.start_thread() {
            // Until then the queue fills and drops lines: nothing blocks.
            let _ = nix::unistd::write(io::stderr(), mute(&error).as_bytes());
        }
        queue
    }

    /// Starts the thread, if it has not been started and it is time to.
    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let unstarted = self.unstarted.lock();
        let mut unstarted = unstarted.unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Some(waiting) = unstarted.as_mut().filter(|waiting| now >= waiting.next) else {
            return Ok(());
        };
        waiting.next = now + START_AGAIN;
        let (queue, work) = (Arc::clone(self), Arc::clone(&waiting.work));
        let thread = std::thread::Builder::new().name("log".into());
        thread.spawn(move || work(&queue))?;
        *unstarted = None;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves nothing in here half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or counts it as dropped.
    pub fn push(self: &Arc<Self>, line: String) {
        let _ = self.start_thread();
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
    pub fn flush(self: &Arc<Self>, limit: Duration) -> bool {
        let _ = self.start_thread();
        let state = self.lock();
        let waited = self
            .idle
            .wait_timeout_while(state, limit, |state| !state.is_idle());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_idle()
    }

    fn run(&self, write: &dyn Fn(&[u8]) -> usize, notice: &dyn Fn(u64) -> String) {
        let mut end = End { write, torn: false };
        // Lines that could not be written, and of which nobody has been told.
        let mut lost = 0;
        loop {
            let entry = self.next();
            if lost > 0 && end.takes(&notice(lost)) {
                lost = 0;
            }
            let (line, lines, uncounted) = match entry {
                Entry::Line(line) => (line, 1, 1),
                Entry::Dropped(lines) => (notice(lines), lines, 0),
            };
            if lost > 0 || !end.takes(&line) {
                lost += lines;
                DROPPED.fetch_add(uncounted, Ordering::Relaxed);
            }
        }
    }

    fn next(&self) -> Entry {
        let mut state = self.lock();
        state.writing = false;
        loop {
            let entry = state.entries.pop_front().or_else(|| {
                let dropped = std::mem::take(&mut state.dropped);
                (dropped > 0).then_some(Entry::Dropped(dropped))
            });
            if let Some(entry) = entry {
                state.writing = true;
                if let Entry::Line(line) = &entry {
                    state.bytes -= line.len();
                }
                return entry;
            }
            self.idle.notify_all();
            state = self
                .pushed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The end of the log.
struct End<'a> {
    write: &'a dyn Fn(&[u8]) -> usize,
    /// A line was written in part: the next begins on a line of its own.
    torn: bool,
}

impl End<'_> {
    /// Writes a line; false if some of it is missing.
    fn takes(&mut self, line: &str) -> bool {
        if self.torn {
            self.torn = (self.write)(b"\n") == 0;
            if self.torn {
                return false;
            }
        }
        let written = (self.write)(line.as_bytes());
        self.torn = (1..line.len()).contains(&written);
        written == line.len()
    }
}

/// Writes to standard error without its lock, for as long as it takes; returns how many bytes were written. When standard
/// error is closed the others are gone, and the daemon goes on.
pub fn write_to_stderr(bytes: &[u8]) -> usize {
    write_to(io::stderr(), bytes)
}

fn write_to(fd: impl AsFd, bytes: &[u8]) -> usize {
    let mut left = bytes;
    while !left.is_empty() {
        match nix::unistd::write(&fd, left) {
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            // A process that shares the other end may have made it non-blocking.
            Err(Errno::EAGAIN) => {
                let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)];
                if nix::poll::poll(&mut ready, PollTimeout::NONE).is_err_and(|e| e != Errno::EINTR)
                {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    bytes.len() - left.len()
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
            |error| panic!("{error}"),
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

    /// A disk that has room for half a line more, and later for all.
    #[test]
    fn what_a_full_disk_did_not_take_is_counted_and_the_next_line_is_whole() {
        let room = Arc::new(Mutex::new(15_usize));
        let text = Arc::new(Mutex::new(String::new()));
        let (left, written) = (Arc::clone(&room), Arc::clone(&text));
        let write = move |bytes: &[u8]| {
            let mut left = left.lock().unwrap();
            let taken = bytes.len().min(*left);
            *left -= taken;
            written
                .lock()
                .unwrap()
                .push_str(std::str::from_utf8(&bytes[..taken]).unwrap());
            taken
        };
        let notice = |lines| format!("dropped {lines}\n");
        let queue = Queue::start(write, notice, |error| panic!("{error}"));
        let push = |line: &str| {
            queue.push(format!("{line}\n"));
            assert!(queue.flush(Duration::from_secs(10)));
        };
        for line in ["the first", "the second", "the third"] {
            push(line);
        }
        *room.lock().unwrap() = 1_000;
        push("the fourth");
        let text = text.lock().unwrap();
        assert_eq!(*text, "the first\nthe s\ndropped 2\nthe fourth\n");
    }

    #[test]
    fn a_thread_that_could_not_be_started_is_started_by_a_later_line() {
        let text = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&text);
        let work: Work = Arc::new(move |queue| {
            let write = |bytes: &[u8]| {
                let mut text = written.lock().unwrap();
                text.push_str(std::str::from_utf8(bytes).unwrap());
                bytes.len()
            };
            queue.run(&write, &|lines| format!("dropped {lines}\n"));
        });
        let next = Instant::now() + START_AGAIN;
        let queue = Arc::new(Queue {
            unstarted: Mutex::new(Some(Unstarted { work, next })),
            ..Queue::default()
        });
        queue.push("the first\n".into());
        assert!(!queue.flush(Duration::ZERO), "it is too early");
        queue.unstarted.lock().unwrap().as_mut().unwrap().next = Instant::now();
        queue.push("the second\n".into());
        assert!(queue.flush(Duration::from_secs(10)));
        assert_eq!(*text.lock().unwrap(), "the first\nthe second\n");
        assert!(queue.unstarted.lock().unwrap().is_none());
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
