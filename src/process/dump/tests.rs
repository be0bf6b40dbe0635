//! Dumps of real threads in awkward places. Each test runs in a process of its own: the signals would
//! interrupt the system calls of the others.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::testing::{Half, eventually, part};
use super::symbols::{Symbols, frames};
use super::*;

/// Where dumps go in tests.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<Note>>>);

impl Page {
    fn start(&self, interval: Duration) -> Dumper {
        let page = Arc::clone(&self.0);
        Dumper::start_into(interval, move |note| {
            page.lock().unwrap().push(note.clone())
        })
        .unwrap()
    }

    fn notes(&self) -> Vec<Note> {
        self.0.lock().unwrap().clone()
    }

    /// How many dumps there are.
    fn dumps(&self) -> usize {
        let ends = |note: &&Note| note.message() == "end of dump";
        self.notes().iter().filter(ends).count()
    }
}

/// Threads in all kinds of ordinary activity, until dropped.
struct Crowd {
    ended: Arc<AtomicBool>,
    progress: Arc<AtomicU64>,
    _writer: io::PipeWriter,
}

const NAMES: [&str; 6] = [
    "allocating",
    "locked",
    "reading",
    "deep",
    "idle-1",
    "idle-2",
];

#[inline(never)]
fn recursion_without_end(depth: usize, ended: &AtomicBool) -> usize {
    if depth == 0 {
        while !ended.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
        return 0;
    }
    std::hint::black_box(recursion_without_end(depth - 1, ended)) + 1
}

#[inline(never)]
fn allocates_and_frees(ended: &AtomicBool, progress: &AtomicU64) {
    let mut size = 1;
    while !ended.load(Ordering::Relaxed) {
        let block = std::hint::black_box(vec![7u8; size]);
        size = (size * 3 + block.len()) % 300_000 + 1;
        progress.fetch_add(1, Ordering::Relaxed);
    }
}

fn crowd() -> Crowd {
    let ended = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(AtomicU64::new(0));
    let (mut reader, writer) = io::pipe().unwrap();
    let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .unwrap()
    };
    let (flag, count) = (Arc::clone(&ended), Arc::clone(&progress));
    start(
        "allocating",
        Box::new(move || allocates_and_frees(&flag, &count)),
    );
    let lock = Arc::new(Mutex::new(()));
    let held = Arc::clone(&lock);
    start(
        "locked",
        Box::new(move || {
            std::mem::forget(held.lock().unwrap());
            drop(held.lock());
        }),
    );
    start(
        "reading",
        Box::new(move || {
            let _end = reader.read(&mut [0; 8]);
        }),
    );
    let flag = Arc::clone(&ended);
    start(
        "deep",
        Box::new(move || {
            recursion_without_end(2_000, &flag);
        }),
    );
    for name in ["idle-1", "idle-2"] {
        start(
            name,
            Box::new(|| {
                loop {
                    std::thread::park()
                }
            }),
        );
    }
    Crowd {
        ended,
        progress,
        _writer: writer,
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    if part().is_some() {
        return body();
    }
    let place = tempfile::tempdir().unwrap();
    let test = format!("process::dump::tests::{test}");
    Half::start(&test, "it", place.path(), &[]).succeeded();
}

#[test]
fn every_thread_is_named_with_what_it_does() {
    in_a_process_of_its_own("every_thread_is_named_with_what_it_does", || {
        let _crowd = crowd();
        let page = Page::default();
        let dumper = page.start(Duration::ZERO);
        let symbols = Symbols::of_self();
        // Threads take a moment to get to their place.
        let notes = eventually("everybody is in place", || {
            let (dumps, from) = (page.dumps(), page.notes().len());
            dumper.request(vec![Note::new("dump").with("running", 1)]);
            eventually("the dump", || (page.dumps() > dumps).then_some(()));
            let notes = page.notes().split_off(from);
            let place = |name: &str, function: &str| {
                notes.iter().any(|note| {
                    let named = note.text("thread") == Some(name);
                    named && functions(&symbols, note).contains(function)
                })
            };
            let in_place = place("deep", "recursion_without_end")
                && place("allocating", "allocates_and_frees")
                && place("idle-1", "park")
                && place("idle-2", "park")
                && place("locked", "Mutex")
                && place("reading", "read");
            in_place.then_some(notes)
        });
        assert_eq!(notes[0], Note::new("dump").with("running", 1));
        for name in NAMES {
            let of = notes
                .iter()
                .filter(|note| note.text("thread") == Some(name));
            assert_eq!(of.count(), 1, "{name} in {notes:#?}");
        }
        let deep = notes
            .iter()
            .find(|note| note.text("thread") == Some("deep"));
        let deep = deep.unwrap();
        assert_eq!(deep.text("note"), Some("deeper than what was copied"));
        assert!(functions(&symbols, deep).contains("dump/tests.rs:"));
        assert_eq!(deep.text("build_id"), Some(symbols.build_id()));
    });
}

/// The functions of a thread, named as `ductworkd symbolize` does it, from its line in the log.
fn functions(symbols: &Symbols, note: &Note) -> String {
    let Some(places) = note.text("frames").and_then(frames_of) else {
        return String::new();
    };
    let functions = places.iter().flat_map(|place| symbols.of(place));
    functions
        .map(|it| format!("{} {:?}\n", it.name, it.source))
        .collect()
}

fn frames_of(text: &str) -> Option<Vec<String>> {
    Some(frames(&format!("thread frames=\"{text}\""))?.places)
}

#[test]
fn ten_thousand_dumps_under_load_hang_nobody() {
    in_a_process_of_its_own("ten_thousand_dumps_under_load_hang_nobody", || {
        let crowd = crowd();
        let mut recorder = Recorder::install().unwrap();
        let mappings = Mappings::of_self();
        let (mut taken, mut silent) = (0u32, 0u32);
        let before = crowd.progress.load(Ordering::Relaxed);
        for _ in 0..10_000u32 {
            for tid in other_threads() {
                match recorder.capture(tid) {
                    Capture::Taken(snapshot) => {
                        assert!(!unwind::walk(&snapshot, &mappings).frames.is_empty());
                        taken += 1;
                    }
                    Capture::Gone => {}
                    Capture::Silent | Capture::Busy => silent += 1,
                }
            }
        }
        assert!(taken > 60_000, "{taken} taken, {silent} silent");
        assert!(silent < taken / 100, "{taken} taken, {silent} silent");
        // All threads run on.
        let after = crowd.progress.load(Ordering::Relaxed);
        assert!(after > before);
        eventually("it goes on", || {
            (crowd.progress.load(Ordering::Relaxed) > after).then_some(())
        });
    });
}

#[test]
fn a_thread_that_cannot_answer_is_passed_over_in_time() {
    in_a_process_of_its_own("a_thread_that_cannot_answer_is_passed_over_in_time", || {
        let blocked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&blocked);
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("deaf".to_owned())
            .spawn(move || {
                nix::sys::signal::SigSet::all().thread_block().unwrap();
                tell.send(nix::unistd::gettid().as_raw()).unwrap();
                while !flag.load(Ordering::Relaxed) {
                    std::thread::park();
                }
                nix::sys::signal::SigSet::all().thread_unblock().unwrap();
                // By now the late signal has been handled, and has touched nothing.
            })
            .unwrap();
        let deaf = told.recv().unwrap();
        let mut recorder = Recorder::install().unwrap();
        let started = Instant::now();
        assert!(matches!(recorder.capture(deaf), Capture::Silent));
        assert!(started.elapsed() >= PATIENCE_AT_LEAST);
        assert!(started.elapsed() < Duration::from_secs(20));
        let main = std::process::id() as i32;
        assert!(matches!(recorder.capture(main), Capture::Taken(_)));
        blocked.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        thread.join().unwrap();
        assert!(matches!(recorder.capture(main), Capture::Taken(_)));
        assert!(matches!(recorder.capture(deaf), Capture::Gone));
        assert!(Recorder::install().is_err(), "there is one buffer");
    });
}

const PATIENCE_AT_LEAST: Duration = Duration::from_millis(190);

#[test]
fn requests_within_a_second_are_one() {
    in_a_process_of_its_own("requests_within_a_second_are_one", || {
        let page = Page::default();
        let interval = Duration::from_millis(300);
        let dumper = page.start(interval);
        let started = Instant::now();
        let asked = |number: usize| vec![Note::new("dump").with("number", number)];
        dumper.request(asked(0));
        eventually("the first dump", || (page.dumps() == 1).then_some(()));
        for number in 1..500 {
            dumper.request(asked(number));
        }
        eventually("the last dump", || {
            page.notes().contains(&asked(499)[0]).then_some(())
        });
        let most = 2 + started.elapsed().as_millis() / interval.as_millis();
        assert!(page.dumps() as u128 <= most, "{} dumps", page.dumps());
        drop(dumper);
    });
}
