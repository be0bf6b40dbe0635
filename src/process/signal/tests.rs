//! Real signals, sent to real processes.

use std::path::Path;

use super::super::testing::{Half, argv, eventually, part, place, said, say};
use super::*;

const ME: &str = "process::signal::tests";

/// Waits for the go, installs, and writes down the events until one tells it to stop for good.
fn play_recorder(install: fn() -> io::Result<Signals>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    say("ready", "");
    said(&place(), "go");
    runtime.block_on(async {
        let mut signals = install().unwrap();
        let mut seen = String::new();
        loop {
            let event = signals.recv().await.unwrap();
            let word = match event {
                Event::Stop {
                    immediate, signal, ..
                } => format!("{signal} {immediate}"),
                Event::Unseen { .. } => "Unseen".to_owned(),
                other => format!("{other:?}"),
            };
            seen.push_str(&word);
            seen.push('\n');
            say("seen", &seen);
            if matches!(
                event,
                Event::Stop {
                    immediate: true,
                    ..
                }
            ) {
                return;
            }
        }
    });
}

fn go(place: &Path) {
    std::fs::write(place.join("go"), "").unwrap();
}

/// Waits until the recorder has written `count` lines.
fn seen(place: &Path, count: usize) -> Vec<String> {
    eventually("the recorder sees it", || {
        let text = std::fs::read_to_string(place.join("seen")).ok()?;
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn every_signal_becomes_its_event_and_a_second_term_means_now() {
    let test = format!("{ME}::every_signal_becomes_its_event_and_a_second_term_means_now");
    if part().is_some() {
        return play_recorder(Signals::of_single_role);
    }
    let place = tempfile::tempdir().unwrap();
    let mut half = Half::start(&test, "recorder", place.path(), &[]);
    go(place.path());
    let table = [
        (Signal::SIGHUP, "Reload"),
        (Signal::SIGTSTP, "Quiet"),
        (Signal::SIGCONT, "Resume"),
        (Signal::SIGTTIN, "Dump"),
        (Signal::SIGTTOU, "Unseen"),
        (Signal::SIGUSR1, "ReopenLog"),
        (Signal::SIGUSR2, "RollingRestart"),
        (Signal::SIGTTIN, "Dump"),
        (Signal::SIGTERM, "SIGTERM false"),
        (Signal::SIGINT, "SIGINT true"),
    ];
    for (count, (signal, word)) in table.into_iter().enumerate() {
        half.send(signal);
        assert_eq!(seen(place.path(), count + 1)[count], word);
    }
    half.succeeded();
}

#[test]
fn the_same_signal_at_once_is_the_same_request_and_another_or_a_later_one_is_not() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    let (term, int) = (Signal::SIGTERM, Signal::SIGINT);
    for (signals, expected) in [
        (
            &[(term, 0), (term, 1), (term, 99), (term, 100)][..],
            &[Some(false), None, None, Some(true)][..],
        ),
        (&[(term, 0), (int, 1)], &[Some(false), Some(true)]),
        (
            &[(int, 0), (int, 50), (term, 60)],
            &[Some(false), None, Some(true)],
        ),
    ] {
        let mut first = None;
        let again = signals
            .iter()
            .map(|(signal, at)| is_again(&mut first, *signal, start + ms(*at)));
        assert_eq!(again.collect::<Vec<_>>(), expected, "{signals:?}");
    }
}

#[test]
fn a_child_takes_a_repeated_term_calmly_and_quit_at_its_word() {
    let test = format!("{ME}::a_child_takes_a_repeated_term_calmly_and_quit_at_its_word");
    if part().is_some() {
        return play_recorder(Signals::of_child);
    }
    let place = tempfile::tempdir().unwrap();
    let mut half = Half::start(&test, "recorder", place.path(), &[]);
    go(place.path());
    for count in 1..=3 {
        half.send(Signal::SIGTERM);
        assert_eq!(seen(place.path(), count)[count - 1], "SIGTERM false");
        // The same signal at once would not be a second one.
        std::thread::sleep(2 * SAME_STOP);
    }
    half.send(Signal::SIGQUIT);
    assert_eq!(seen(place.path(), 4)[3], "SIGQUIT true");
    half.succeeded();
}

#[test]
fn a_signal_sent_before_anybody_looks_is_not_lost() {
    let test = format!("{ME}::a_signal_sent_before_anybody_looks_is_not_lost");
    if part().is_some() {
        return play_recorder(Signals::of_single_role);
    }
    let place = tempfile::tempdir().unwrap();
    let mut half = Half::start(&test, "recorder", place.path(), &[]);
    // At its very birth, and again when it runs but has not installed anything.
    half.send(Signal::SIGTERM);
    half.send(Signal::SIGTTIN);
    said(place.path(), "ready");
    half.send(Signal::SIGINT);
    half.send(Signal::SIGHUP);
    go(place.path());
    half.succeeded();
    let seen = seen(place.path(), 1);
    let stops = seen.iter().filter(|line| line.starts_with("SIG")).count();
    assert_eq!(stops, 2, "{seen:?}");
    assert!(seen.last().unwrap().ends_with("true"), "{seen:?}");
}

#[test]
fn a_term_at_any_moment_of_a_start_ends_it_cleanly() {
    let test = format!("{ME}::a_term_at_any_moment_of_a_start_ends_it_cleanly");
    if part().is_some() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(async {
            let mut signals = Signals::of_child().unwrap();
            let event = signals.recv().await.unwrap();
            assert!(matches!(event, Event::Stop { .. }), "{event:?}");
        });
    }
    let place = tempfile::tempdir().unwrap();
    for moment in 0..40u64 {
        let mut half = Half::start(&test, "child", place.path(), &[]);
        std::thread::sleep(std::time::Duration::from_micros(moment * 700));
        half.send(Signal::SIGTERM);
        half.succeeded();
    }
}

#[test]
fn it_works_as_pid_1() {
    let test = format!("{ME}::it_works_as_pid_1");
    if part().is_some() {
        say("pid", &std::process::id().to_string());
        return play_recorder(Signals::of_supervisor);
    }
    let place = tempfile::tempdir().unwrap();
    let mut unshare = std::process::Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(&argv(&test)[1..])
        .env("DUCTWORK_TEST_PART", "recorder")
        .env("DUCTWORK_TEST_PLACE", place.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut init = Killed(
        super::super::spawn::born_blocked(&mut unshare)
            .spawn()
            .unwrap(),
    );
    // Where unshare is not permitted, the process plays the same part with an ordinary pid.
    let permitted = eventually("it starts or is refused", || {
        if place.path().join("ready").exists() {
            return Some(true);
        }
        init.0.try_wait().unwrap().map(|_| false)
    });
    let half = (!permitted).then(|| Half::start(&test, "recorder", place.path(), &[]));
    go(place.path());
    let pid: i32 = match &half {
        Some(half) => half.pid(),
        None => {
            assert_eq!(said(place.path(), "pid"), "1");
            let children = format!("/proc/{0}/task/{0}/children", init.0.id());
            let children = std::fs::read_to_string(children).unwrap();
            children.trim().parse().unwrap()
        }
    };
    let send = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    assert_eq!(seen(place.path(), 1)[0], "ChildEnded");
    send(Signal::SIGTERM);
    assert_eq!(seen(place.path(), 2)[1], "SIGTERM false");
    send(Signal::SIGCHLD);
    assert_eq!(seen(place.path(), 3)[2], "ChildEnded");
    std::thread::sleep(2 * SAME_STOP);
    send(Signal::SIGTERM);
    assert_eq!(seen(place.path(), 4)[3], "SIGTERM true");
    match half {
        Some(mut half) => half.succeeded(),
        None => assert!(init.0.wait().unwrap().success()),
    }
}

/// A process that is ended at the latest when this is dropped.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_full_disk_quota_and_a_closed_pipe_are_errors_and_not_the_end() {
    let test = format!("{ME}::a_full_disk_quota_and_a_closed_pipe_are_errors_and_not_the_end");
    if part().is_some() {
        use std::io::Write;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _guard = runtime.enter();
        let _signals = Signals::of_child().unwrap();
        survive_long_files().unwrap();
        use nix::sys::resource::{Resource, setrlimit};
        setrlimit(Resource::RLIMIT_FSIZE, 16, 16).unwrap();
        let mut file = std::fs::File::create(place().join("file")).unwrap();
        file.write_all(&[0; 16]).unwrap();
        let error = file.write_all(&[0; 16]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EFBIG));
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(reader);
        let error = (&writer).write_all(&[0; 16]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        // A step starts with nothing ignored or blocked.
        let mut grep = std::process::Command::new("grep");
        grep.args(["-E", "^Sig(Ign|Blk)", "/proc/self/status"]);
        let output = super::super::spawn::unblocked(&mut grep).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let sets: Vec<u64> = text
            .lines()
            .map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap())
            // The C library keeps two numbers for itself.
            .map(|set| set & !(0b11 << 31))
            .collect();
        assert_eq!(sets, [0, 0], "{text}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    Half::start(&test, "child", place.path(), &[]).succeeded();
}
