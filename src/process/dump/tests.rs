//! Dumps of real threads in awkward places. Each in a process of its own: the signals would
//! interrupt the other tests' system calls.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::testing::{Half, eventually, part};
use super::*;

/// Where dumps go in tests.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<String>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.lock().unwrap().push(text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Page {
    fn dumps(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Threads that do what threads do, until dropped.
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
        let dumper =
            Dumper::start_into("worker Test", Duration::ZERO, Box::new(page.clone())).unwrap();
        // Threads take a moment to get to their place.
        let text = eventually("everybody is in place", || {
            let before = page.dumps().len();
            dumper.request("SLOT 1 BUSY 3s\n".to_owned());
            let dumps = eventually("the dump", || {
                let dumps = page.dumps();
                (dumps.len() > before).then_some(dumps)
            });
            let text = dumps.last().unwrap().clone();
            let in_place = [
                "recursion_without_end",
                "allocates_and_frees",
                "park",
                "read",
            ]
            .iter()
            .all(|function| text.contains(function));
            (in_place && text.contains("identical threads")).then_some(text)
        });
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("=== ductworkd thread dump 20"), "{first}");
        assert!(first.contains("worker Test"), "{first}");
        assert_eq!(text.lines().nth(1), Some("SLOT 1 BUSY 3s"));
        for name in NAMES {
            assert!(text.contains(&format!("\"{name}\"")), "no {name} in {text}");
        }
        assert!(text.contains("dump/tests.rs:"), "{text}");
        assert!(text.contains("deeper than what was copied"), "{text}");
        assert!(text.contains(" times)"), "{text}");
        assert!(!text.contains("did not answer"), "{text}");
        let locked = text
            .split("THREAD ")
            .find(|part| part.starts_with("\"locked\""))
            .unwrap();
        assert!(
            locked.contains("Mutex") && locked.contains("futex"),
            "{locked}"
        );
    });
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
        // Everybody runs on.
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
        let dumper = Dumper::start_into("x", interval, Box::new(page.clone())).unwrap();
        let started = Instant::now();
        dumper.request("first".to_owned());
        eventually("the first dump", || (page.dumps().len() == 1).then_some(()));
        for number in 0..500 {
            dumper.request(format!("state {number}"));
        }
        eventually("the last dump", || {
            page.dumps()
                .last()
                .unwrap()
                .contains("state 499")
                .then_some(())
        });
        let most = 2 + started.elapsed().as_millis() / interval.as_millis();
        assert!(
            page.dumps().len() as u128 <= most,
            "{} dumps",
            page.dumps().len()
        );
        drop(dumper);
    });
}
