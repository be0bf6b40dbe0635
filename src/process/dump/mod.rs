//! A dump of every thread of this process, for a person who asks with TTIN.
//!
//! Owns: copying each thread's registers and stack, and making text of it. Never: unwinds,
//! allocates or locks in a signal handler, stops a thread, or waits for one without a bound.
//!
//! - `capture` makes each thread copy its own registers and the end of its stack into one
//!   buffer, in a signal handler that makes no other call than that for the copy.
//! - `unwind` (pure) follows the frame pointers through the copy. The crate is built with
//!   frame pointers, and so is the standard library.
//! - Names are looked up here, in the dumper's own thread, while everybody else runs on.

mod capture;
mod unwind;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::capture::{Capture, Recorder};
use self::unwind::Mappings;

/// A person who keeps the key pressed gets one dump in this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Beyond this many remembered names the memory starts anew.
const NAMES_MAX: usize = 16_384;

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
    state: Option<String>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dumper {
    /// Starts the dumper of this process, once, at its start; `name` is what the process is
    /// called, such as `worker EnrichUserData`. Dumps go to stderr.
    pub fn start(name: &str) -> io::Result<Self> {
        Self::start_into(name, INTERVAL, Box::new(io::stderr()))
    }

    fn start_into(
        name: &str,
        interval: Duration,
        mut to: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let mut recorder = Recorder::install()?;
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let name = name.to_owned();
        std::thread::Builder::new()
            .name("dw-dump".to_owned())
            .spawn(move || {
                let mut names = Names::default();
                while let Some(state) = next_request(&seen) {
                    let started = Instant::now();
                    let text = dump(&name, &state, &mut recorder, &mut names);
                    // One write, so that nothing else gets in between. Nobody is left to be
                    // told when stderr is gone.
                    let _unread = to.write_all(text.as_bytes());
                    let _unread = to.flush();
                    std::thread::sleep(interval.saturating_sub(started.elapsed()));
                }
            })?;
        Ok(Self { shared })
    }

    /// Asks for a dump, headed by what the process holds (slots, executions, steps' pids).
    /// Returns at once. Several requests within a second are one, with the last one's state.
    pub fn request(&self, state: String) {
        self.shared.lock().state = Some(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Dumper {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        // Not waited for: whoever should read its output may have stopped reading, and that
        // must not hold up the end of the process.
    }
}

/// Waits for a request; `None` when there will be no more.
fn next_request(shared: &Shared) -> Option<String> {
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

/// One thread, as found.
struct Thread {
    tid: i32,
    name: String,
    standing: Standing,
    /// Code addresses, innermost first; empty when it did not answer.
    frames: Vec<usize>,
    note: Option<&'static str>,
}

/// The kernel's word about a thread's state.
#[derive(Default)]
struct Standing {
    state: String,
    waits_in: String,
    call: String,
    cpu_ticks: u64,
}

fn dump(name: &str, state: &str, recorder: &mut Recorder, names: &mut Names) -> String {
    let mappings = Mappings::of_self();
    let threads: Vec<Thread> = other_threads()
        .into_iter()
        .filter_map(|tid| look_at(tid, recorder, &mappings))
        .collect();
    let mut text = format!(
        "=== ductworkd thread dump {}  pid {} {name}  v{} ===\n",
        crate::telemetry::wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        std::process::id(),
        env!("CARGO_PKG_VERSION"),
    );
    let state = state.trim_end();
    if !state.is_empty() {
        text.push_str(state);
        text.push('\n');
    }
    for group in groups(&threads) {
        // Writing to a string cannot fail.
        let _infallible = write_group(&mut text, &group, names);
    }
    text.push_str("=== end of dump ===\n");
    text
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
fn look_at(tid: i32, recorder: &mut Recorder, mappings: &Mappings) -> Option<Thread> {
    // Asked before the signal, which would wake it.
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
                walk.cut.then_some("… deeper than what was copied"),
            )
        }
    };
    Some(Thread {
        tid,
        name: name.trim_end().to_owned(),
        standing,
        frames,
        note,
    })
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
        cpu_ticks: ticks(14) + ticks(15),
    }
}

/// Threads at the same place are shown once: those of an idle pool all are.
fn groups(threads: &[Thread]) -> Vec<Vec<&Thread>> {
    let mut groups: Vec<Vec<&Thread>> = Vec::new();
    for thread in threads {
        let alike = |other: &&Thread| {
            !thread.frames.is_empty()
                && other.frames == thread.frames
                && other.note == thread.note
                && other.standing.state == thread.standing.state
        };
        match groups.iter_mut().find(|group| group.iter().any(alike)) {
            Some(group) => group.push(thread),
            None => groups.push(vec![thread]),
        }
    }
    groups
}

fn write_group(
    text: &mut String,
    group: &[&Thread],
    names: &mut Names,
) -> Result<(), std::fmt::Error> {
    let Some((first, rest)) = group.split_first() else {
        return Ok(());
    };
    let standing = &first.standing;
    write!(
        text,
        "THREAD \"{}\" tid {} {}",
        first.name, first.tid, standing.state
    )?;
    if !standing.waits_in.is_empty() {
        write!(text, " {}", standing.waits_in)?;
    }
    writeln!(text, "  cpu {}", cpu_time(standing.cpu_ticks))?;
    if first.frames.is_empty() && !standing.call.is_empty() {
        writeln!(text, "   system call {}", standing.call)?;
    }
    let mut number = 0;
    // A function that calls itself is shown once.
    for alike in first.frames.chunk_by(|one, other| one == other) {
        let address = alike[0];
        // A return address is one past the call.
        let call = if number == 0 {
            address
        } else {
            address.saturating_sub(1)
        };
        write!(text, "{number:4} {address:#018x} {}", names.of(call))?;
        match alike.len() {
            1 => text.push('\n'),
            times => writeln!(text, "   ({times} times)")?,
        }
        number += alike.len();
    }
    if let Some(note) = first.note {
        writeln!(text, "     {note}")?;
    }
    if !rest.is_empty() {
        let others: Vec<String> = rest
            .iter()
            .map(|thread| format!("\"{}\" tid {}", thread.name, thread.tid))
            .collect();
        writeln!(
            text,
            "     ({} identical threads: {})",
            group.len(),
            others.join(", ")
        )?;
    }
    Ok(())
}

fn cpu_time(ticks: u64) -> String {
    // Linux shows processor time in hundredths of a second on every platform of ours.
    format!("{}.{:02}s", ticks / 100, ticks % 100)
}

/// The names of code addresses, as far as they have been looked up.
#[derive(Default)]
struct Names(HashMap<usize, String>);

impl Names {
    fn of(&mut self, address: usize) -> &str {
        if self.0.len() > NAMES_MAX {
            self.0.clear();
        }
        self.0.entry(address).or_insert_with(|| name_of(address))
    }
}

fn name_of(address: usize) -> String {
    let mut name = String::new();
    backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
        // Several where functions were inlined into one another, innermost first.
        if !name.is_empty() {
            name.push_str("\n                        ");
        }
        match symbol.name() {
            // Without the hash at its end.
            Some(function) => {
                let _infallible = write!(name, "{function:#}");
            }
            None => name.push('?'),
        }
        if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
            let file = file.to_string_lossy();
            let _infallible = write!(name, "   {}:{line}", shortened(&file));
        }
    });
    if name.is_empty() {
        name.push('?');
    }
    name
}

/// Without the directory in which the standard library was built.
fn shortened(file: &str) -> &str {
    file.strip_prefix("/rustc/")
        .and_then(|rest| rest.split_once('/'))
        .map_or(file, |(_, rest)| rest)
}

#[cfg(test)]
mod tests;
