//! A dump of every thread of this process, for a person who asks with TTIN.
//!
//! Owns: copying each thread's registers and stack, and a line of log for each. Never: unwinds,
//! allocates or locks in a signal handler, stops a thread, or waits for one without a bound; names a
//! function, since reading the debug information would cost the process more memory than it has.
//!
//! - `capture` makes each thread copy its own registers and the end of its stack into one buffer, in
//!   a signal handler that makes no call but the one that copies.
//! - `unwind` (pure) follows the frame pointers through the copy. The crate is built with
//!   frame pointers, and so is the standard library.
//! - `image` turns addresses into those of the program's file, which are the same in every process of a build.
//! - `symbols` names them, in the process of `ductworkd symbolize`.

mod capture;
mod image;
pub mod symbols;
mod unwind;

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::telemetry::Note;

use self::capture::{Capture, Recorder};
use self::image::{Image, Mappings};

/// A person who keeps the key pressed gets one dump per this interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread that answers TTIN.
#[derive(Debug)]
pub struct Dumper {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    request: Mutex<Request>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Request {
    state: Option<Vec<Note>>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dumper {
    /// Starts the dumper of this process; called once, at the start. Dumps go to the log, whatever its
    /// level is.
    pub fn start() -> io::Result<Self> {
        Self::start_into(INTERVAL, crate::telemetry::tell)
    }

    fn start_into(interval: Duration, tell: impl Fn(&Note) + Send + 'static) -> io::Result<Self> {
        let mut recorder = Recorder::install()?;
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("dw-dump".to_owned())
            .spawn(move || {
                let mut image = None;
                while let Some(state) = next_request(&seen) {
                    let started = Instant::now();
                    let image = image.get_or_insert_with(Image::of_self);
                    state.iter().for_each(&tell);
                    let threads = dump(&mut recorder, image, &tell);
                    tell(
                        &Note::new("end of dump")
                            .with("threads", threads)
                            .with("ms", started.elapsed().as_millis() as u64),
                    );
                    std::thread::sleep(interval.saturating_sub(started.elapsed()));
                }
            })?;
        Ok(Self { shared })
    }

    /// Asks for a dump, headed by what the process holds (slots, executions, steps' pids). Returns at
    /// once. Several requests within a second are one, with the state of the last.
    pub fn request(&self, state: Vec<Note>) {
        self.shared.lock().state = Some(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Dumper {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        // We do not wait for the thread: the reader of its output may have stopped reading, and that
        // must not hold up the end of the process.
    }
}

/// Waits for a request; `None` when there will be no more.
fn next_request(shared: &Shared) -> Option<Vec<Note>> {
    let mut request = shared.lock();
    loop {
        // A request from before the end is still answered.
        if let Some(state) = request.state.take() {
            return Some(state);
        }
        if request.ended {
            return None;
        }
        request = shared
            .changed
            .wait(request)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// The state of a thread, as the kernel reports it.
#[derive(Default)]
struct Standing {
    state: String,
    waits_in: String,
    call: String,
    cpu_ms: u64,
}

/// Tells of every other thread; returns how many there are.
fn dump(recorder: &mut Recorder, image: &Image, tell: &impl Fn(&Note)) -> usize {
    let mappings = Mappings::of_self();
    let threads = other_threads().into_iter();
    threads
        .filter_map(|tid| look_at(tid, recorder, &mappings, image))
        .inspect(tell)
        .count()
}

/// Every thread but the one that asks.
fn other_threads() -> Vec<i32> {
    let me = nix::unistd::gettid().as_raw();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let mut threads: Vec<i32> = tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
        .filter(|tid| *tid != me)
        .collect();
    threads.sort_unstable();
    threads
}

/// `None` when it has ended meanwhile.
fn look_at(tid: i32, recorder: &mut Recorder, mappings: &Mappings, image: &Image) -> Option<Note> {
    // Read before the signal, which would wake the thread.
    let standing = standing_of(tid);
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok()?;
    let (frames, note) = match recorder.capture(tid) {
        Capture::Gone => return None,
        Capture::Silent => (Vec::new(), Some("did not answer: it sits in the kernel")),
        Capture::Busy => (
            Vec::new(),
            Some("not asked: an earlier one is still copying"),
        ),
        Capture::Taken(snapshot) => {
            let walk = unwind::walk(&snapshot, mappings);
            (
                walk.frames,
                walk.cut.then_some("deeper than what was copied"),
            )
        }
    };
    let mut line = Note::new("thread")
        .with("thread", name.trim_end())
        .with("tid", tid)
        .with("state", standing.state)
        .with("cpu_ms", standing.cpu_ms);
    if !standing.waits_in.is_empty() {
        line = line.with("waits_in", standing.waits_in);
    }
    if frames.is_empty() && !standing.call.is_empty() {
        line = line.with("call", standing.call);
    }
    if let Some(note) = note {
        line = line.with("note", note);
    }
    if frames.is_empty() {
        return Some(line);
    }
    // A return address is one past the call.
    let places = frames.iter().enumerate().map(|(number, address)| {
        let address = address.saturating_sub(usize::from(number > 0));
        mappings.place(image, address)
    });
    let places: Vec<String> = places.collect();
    line = line.with("frames", places.join(" "));
    if !image.build_id.is_empty() {
        line = line.with("build_id", image.build_id.as_str());
    }
    Some(line)
}

fn standing_of(tid: i32) -> Standing {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).unwrap_or_default()
    };
    let stat = read("stat");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_ascii_whitespace().collect())
        .unwrap_or_default();
    let ticks = |number: usize| -> u64 {
        fields
            .get(number - 3)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0)
    };
    Standing {
        state: fields.first().unwrap_or(&"?").to_string(),
        waits_in: match read("wchan").as_str() {
            "0" => String::new(),
            place => place.to_owned(),
        },
        call: read("syscall").trim_end().to_owned(),
        // Linux shows processor time in hundredths of a second on every platform that we support.
        cpu_ms: (ticks(14) + ticks(15)) * 10,
    }
}

#[cfg(test)]
mod tests;
