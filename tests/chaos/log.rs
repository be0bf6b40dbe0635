//! The reader of a host's log, which may stop for a while; the text goes into the log's file.

use std::fs::OpenOptions;
use std::io::{PipeReader, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};

/// A full pipe holds not much more than a page of log.
const SIZE: usize = 4_096;

/// No line is longer than this.
const LINE: usize = 1_024;

/// A thread that reads a pipe.
pub struct LogReader {
    stopped: Arc<AtomicBool>,
    full: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// The reading end and the writing end of a pipe.
pub fn pipe() -> (PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let size = fcntl(&reader, FcntlArg::F_SETPIPE_SZ(SIZE as i32)).expect("a small pipe");
    assert_eq!(size as usize, SIZE);
    (reader, writer.into())
}

impl LogReader {
    /// Reads into this file until the end.
    pub fn start(mut from: PipeReader, into: PathBuf) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let full = Arc::new(AtomicUsize::new(0));
        let (stop, found) = (Arc::clone(&stopped), Arc::clone(&full));
        let thread = std::thread::spawn(move || {
            let mut file = OpenOptions::new().append(true).open(into).expect("the log");
            let mut bytes = [0; 2 * SIZE];
            loop {
                let stood = stop.load(Ordering::Relaxed);
                while stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let read = from.read(&mut bytes).expect("the log");
                if read == 0 {
                    return;
                }
                file.write_all(&bytes[..read]).expect("the log");
                // The next line did not fit: its writer has been waiting.
                found.fetch_add(usize::from(stood && read + LINE > SIZE), Ordering::Relaxed);
            }
        });
        Self {
            stopped,
            full,
            thread: Some(thread),
        }
    }

    /// Stops reading from now on, until the returned function is called.
    pub fn stops(&self) -> Box<dyn FnOnce() + Send> {
        let stopped = Arc::clone(&self.stopped);
        stopped.store(true, Ordering::Relaxed);
        Box::new(move || stopped.store(false, Ordering::Relaxed))
    }

    /// Reads the rest, once all writers are gone; returns how often the pipe was full.
    pub fn ended(&mut self) -> usize {
        self.stopped.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the log was read");
        }
        self.full.load(Ordering::Relaxed)
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.stopped.store(false, Ordering::Relaxed);
    }
}
