//! How a program ends, by itself or by us, and what it leaves behind.

use super::*;

#[tokio::test]
async fn every_exit_status_is_what_the_contract_says() {
    // All 256 are judged in `verdict`; these are the ones that could go wrong on the way.
    for code in [
        1, 2, 64, 65, 66, 75, 77, 78, 126, 127, 128, 130, 137, 143, 255,
    ] {
        let error = error(Stage::new("1").sh(&format!("exit {code}")).await);
        assert_eq!(error.class, format!("ExitStatus({code})"));
        assert_eq!(error.message, format!("exit status {code}"));
        assert_eq!(error.retryable, code != 65);
    }
}

#[tokio::test]
async fn a_failure_is_explained_by_the_end_of_stderr() {
    let script = "echo first >&2; echo printed; printf 'last\\n\\n' >&2; exit 7";
    let error = error(Stage::new("1").sh(script).await);
    assert_eq!(error.message, "last");
    let log = "first\nlast\n[standard output]\nprinted";
    assert_eq!(error.backtrace.as_deref(), Some(log));
}

#[tokio::test]
async fn a_failure_with_an_empty_stderr_is_explained_by_the_end_of_stdout() {
    let script = "echo 'ERROR: disk quota exceeded'; exit 1";
    let error = error(Stage::new("1").sh(script).await);
    assert_eq!(error.message, "ERROR: disk quota exceeded");
    let log = "[standard output]\nERROR: disk quota exceeded";
    assert_eq!(error.backtrace.as_deref(), Some(log));
}

#[tokio::test]
async fn the_end_of_a_failure_that_printed_more_than_is_allowed_is_kept() {
    let stage = Stage::new("1").max_payload(40_000);
    let script = "i=0; while [ $i -lt 9000 ]; do echo \"line $i\"; i=$((i+1)); done; exit 1";
    let error = error(stage.sh(script).await);
    assert_eq!(error.message, "line 8999");
    let log = error.backtrace.unwrap();
    assert!(log.starts_with("[standard output]\n…\nline "), "{log}");
    assert!(log.len() > 8_000 && log.len() < 9_000, "{}", log.len());
}

#[tokio::test]
async fn a_failure_can_explain_itself() {
    let script =
        r#"echo '{"error":{"type":"Busy","message":"later","retry_after":"90s"}}'; exit 1"#;
    let said = error(Stage::new("1").sh(script).await);
    assert_eq!(
        (said.class.as_str(), said.message.as_str()),
        ("Busy", "later")
    );
    assert_eq!(said.retry_after, Some(Duration::from_secs(90)));
    let script = r#"echo '{"error":{"retryable":true}}' > "$DUCTWORK_OUTPUT"; exit 65"#;
    assert!(error(Stage::new("1").sh(script).await).retryable);
}

#[tokio::test]
async fn signals_from_outside_are_crashes_and_the_others_errors() {
    for signal in ["KILL", "TERM", "INT", "HUP"] {
        let message = crashed(Stage::new("1").sh(&format!("kill -{signal} $$")).await);
        assert!(message.contains(&format!("SIG{signal}")), "{message}");
    }
    for signal in [
        "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "VTALRM", "PROF", "XCPU", "XFSZ", "SYS", "IO", "PWR",
    ] {
        // Without core dumps, which the directory of the tests does not need.
        let script = format!("ulimit -c 0; kill -{signal} $$; sleep 600");
        let error = error(Stage::new("1").sh(&script).await);
        assert_eq!(error.class, format!("Signal({signal})"));
        assert!(error.retryable);
    }
    let script = "import os; os.kill(os.getpid(), 40)";
    assert_eq!(
        error(Stage::new("1").python(script).await).class,
        "Signal(40)"
    );
}

#[tokio::test]
async fn a_step_that_ended_before_it_was_told_to_is_judged_by_its_exit_status() {
    for cause in [StopCause::Cancel, StopCause::Abandon, StopCause::Shutdown] {
        let stage = || Stage::new("1").stopped_after_its_end(cause);
        let done = stage().sh("touch mark; sleep 0.1; echo 2").await;
        assert_eq!(value(done), "2", "{cause:?}");
        let failed = error(stage().sh("touch mark; sleep 0.1; exit 7").await);
        assert_eq!(failed.class, "ExitStatus(7)", "{cause:?}");
    }
}

#[tokio::test]
async fn half_an_output_of_a_killed_step_is_no_output() {
    crashed(Stage::new("1").sh("printf 1; kill -9 $$").await);
    crashed(
        Stage::new("1")
            .sh("printf 1 > $DUCTWORK_OUTPUT; kill -9 $$")
            .await,
    );
    crashed(Stage::new("1").sh("echo '{\"error\":{}}'; kill -9 0").await);
}

#[tokio::test]
async fn a_step_that_kills_its_process_group_is_alone_in_it() {
    crashed(Stage::new("1").sh("kill -9 0; sleep 600").await);
    crashed(Stage::new("1").sh("kill -TERM 0; sleep 600").await);
}

#[tokio::test]
async fn a_step_that_has_itself_traced_is_ended_all_the_same() {
    // We are its tracer then, and never look: its first signal stops it for good.
    let stage = Stage::new("1")
        .stopped_at_mark(StopCause::Cancel)
        .grace(Duration::from_millis(200));
    let script = "import ctypes, os, signal\n\
                  traced = ctypes.CDLL(None).ptrace(0, 0, 0, 0)\n\
                  open('traced', 'w').write(str(traced))\n\
                  os.rename('traced', 'mark')\n\
                  os.kill(os.getpid(), signal.SIGUSR1)";
    let outcome = stage.python(script).await;
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(stage.path("mark")).unwrap(), "0");
    stage.assert_nothing_is_left();
}

#[tokio::test]
async fn ten_thousand_children_that_nobody_waits_for_are_the_kernels_matter() {
    // A small program: the cost of a fork is the memory of the process that forks.
    let script = "for (1..10_000) { fork or kill 9, $$ } print 10_000";
    let stage = Stage::new("1");
    let outcome = stage.run(&["/usr/bin/perl", "-e", script]).await;
    assert_eq!(value(outcome), "10000");
}

#[tokio::test]
async fn a_grandchild_that_keeps_the_pipes_wedges_nothing_and_is_killed() {
    let stage = Stage::new(&format!("\"{}\"", "x".repeat(200_000)));
    let start = Instant::now();
    assert_eq!(value(stage.sh("sleep 600 & echo 1").await), "1");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_grandchild_that_never_stops_writing_wedges_nothing() {
    let stage = Stage::new("1");
    let outcome = stage
        .sh("(while :; do echo noise >&2; done) & echo 1")
        .await;
    assert_eq!(value(outcome), "1");
}

#[tokio::test]
async fn what_a_pipeline_writes_just_after_the_step_has_ended_counts() {
    let script = "import os, time
step = os.getpid()
if os.fork() == 0:
    while os.getppid() == step:
        time.sleep(0.001)
    print('[1]')";
    assert_eq!(value(Stage::new("1").python(script).await), "[1]");
}

#[tokio::test]
async fn a_daemon_with_a_session_of_its_own_wedges_nothing_though_it_keeps_the_pipe() {
    // It cannot be killed with the group; the supervisor kills it. Here it gives up by itself when it
    // finds that nobody reads any more.
    let script = "import os, signal, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
print('1', flush=True)
if os.fork() == 0:
    os.setsid()
    while True:
        time.sleep(0.3)
        os.write(1, b' ')
";
    assert_eq!(value(Stage::new("1").python(script).await), "1");
}

#[tokio::test]
async fn what_was_written_is_read_however_late_we_are() {
    let stage = Stage::new("1");
    let runner = CommandRunner::new(stage.directory.path().into(), None, &[], Limits::default());
    let script = "import os, time
print(list(range(9000)), flush=True)
if os.fork() == 0:
    time.sleep(600)";
    let argv = ["python3", "-c", script].map(String::from);
    let env = BTreeMap::new();
    // Everything has happened before anybody looks, and then there is hardly any time.
    let hog = tokio::spawn(async {
        loop {
            std::thread::sleep(2 * EXIT_GRACE);
            tokio::task::yield_now().await;
        }
    });
    let late = |pid: u32| {
        wait_until("the step has ended", || !is_alive(pid as i32));
    };
    let stop = stage.stop.subscribe();
    let performed = runner
        .run(&stage.assignment, &argv, &env, None, stop, late)
        .await;
    hog.abort();
    assert!(value(performed.outcome).ends_with("8999]"));
    stage.assert_nothing_is_left();
}

#[tokio::test]
async fn a_dropped_execution_takes_its_processes_with_it() {
    let stage = Stage::new("1");
    let runner = CommandRunner::new(stage.directory.path().into(), None, &[], Limits::default());
    let argv = [
        "/bin/sh",
        "-c",
        "trap '' TERM; sleep 600 & touch mark; sleep 600",
    ];
    let argv = argv.map(String::from);
    let started = Cell::new(None);
    {
        let stop = stage.stop.subscribe();
        let env = BTreeMap::new();
        let running = runner.run(&stage.assignment, &argv, &env, None, stop, |pid| {
            started.set(Some(pid))
        });
        let marked = async {
            while started.get().is_none() || !stage.path("mark").exists() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            outcome = running => panic!("{outcome:?}"),
            marked = timeout(PATIENCE, marked) => marked.unwrap(),
        }
    }
    // On a busy machine the kernel takes longer over a kill than a drop waits, and a thread collects the child. The look
    // leaves that to it.
    let child = Pid::from_raw(started.get().unwrap() as i32);
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    wait_until("the child is collected", || {
        waitid(Id::Pid(child), look) == Err(Errno::ECHILD)
    });
    stage.assert_nothing_is_left();
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_asked_to_end() {
    let stage = Stage::new("1").timeout(Duration::from_millis(1500));
    let script = "echo working >&2; echo waiting for db7; sleep 600";
    let (message, log) = timed_out(stage.sh(script).await);
    assert_eq!(message, "timed out after 1.5s; ended by SIGTERM");
    let both = "working\n[standard output]\nwaiting for db7";
    assert_eq!(log.as_deref(), Some(both));
}

#[tokio::test]
async fn a_step_that_ignores_term_is_killed() {
    let stage = Stage::new("1")
        .timeout(Duration::from_millis(1500))
        .grace(Duration::from_millis(300));
    let (message, _) = timed_out(stage.sh("trap '' TERM; sleep 600 & wait; sleep 600").await);
    assert_eq!(message, "timed out after 1.5s; killed 300ms after SIGTERM");
}

#[tokio::test]
async fn a_step_in_its_grace_is_killed_at_once_when_it_is_abandoned() {
    // Longer than a step is waited for.
    let stage = Stage::new("1").grace(10 * PATIENCE);
    let marked = async |name: &str| {
        while !stage.path(name).exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let stops = async {
        marked("mark").await;
        stage.stop.send_replace(Some(StopCause::Cancel));
        marked("asked").await;
        stage.stop.send_replace(Some(StopCause::Abandon));
        std::future::pending::<()>().await;
    };
    let script = "trap 'touch asked' TERM; touch mark; while :; do sleep 0.05; done";
    tokio::select! {
        outcome = stage.sh(script) => assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}"),
        () = stops => unreachable!("only the step ends"),
    }
}

#[tokio::test]
async fn a_step_that_stopped_itself_times_out() {
    let stage = Stage::new("1").timeout(Duration::from_millis(200));
    timed_out(stage.sh("kill -STOP $$").await);
}

#[tokio::test]
async fn a_value_that_comes_after_the_timeout_is_too_late() {
    let stage = Stage::new("1").timeout(Duration::from_millis(300));
    timed_out(
        stage
            .sh("trap 'echo 1; exit 0' TERM; sleep 600 & wait")
            .await,
    );
}

#[tokio::test]
async fn a_byte_now_and_then_does_not_keep_a_step_alive() {
    let stage = Stage::new("1").timeout(Duration::from_millis(700));
    timed_out(stage.sh("while :; do printf 1; sleep 0.1; done").await);
}

#[tokio::test]
async fn an_endless_log_at_full_speed_is_drained_until_the_timeout_and_starves_nobody() {
    let subscriber = tracing_subscriber::fmt().json().with_writer(std::io::sink);
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let stage = Stage::new("1").timeout(Duration::from_secs(2));
    let beats = async {
        let mut longest = Duration::ZERO;
        loop {
            let start = Instant::now();
            sleep(Duration::from_millis(1)).await;
            longest = longest.max(start.elapsed());
            BEATS.set((BEATS.get().0 + 1, longest));
        }
    };
    let beating = tokio::spawn(beats);
    let (_, log) = timed_out(stage.sh("exec yes x >&2").await);
    beating.abort();
    let (beats, longest) = BEATS.get();
    assert!(beats > 0, "{beats}");
    assert!(
        longest < Duration::from_secs(2),
        "others had to wait for {longest:?}"
    );
    let log = log.unwrap();
    assert!(
        log.starts_with("…\n") && log.len() <= 64 * 1024 + 8,
        "{}",
        log.len()
    );
}

thread_local! {
    static BEATS: std::cell::Cell<(u32, Duration)> = const { std::cell::Cell::new((0, Duration::ZERO)) };
}

#[tokio::test]
async fn a_shutdown_releases_what_runs_and_a_cancel_cancels_it() {
    let stage = Stage::new("1").stopped_at_mark(StopCause::Shutdown);
    let outcome = stage.sh("touch mark; sleep 600").await;
    assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
    let stage = Stage::new("1")
        .stopped_at_mark(StopCause::Cancel)
        .grace(Duration::from_millis(300));
    let outcome = stage
        .sh("trap '' TERM; touch mark; sleep 600 & wait; sleep 600")
        .await;
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
}

#[tokio::test]
async fn work_that_is_finished_while_the_daemon_stops_counts() {
    let finishing = "trap 'echo 1; exit 0' TERM; touch mark; sleep 600 & wait";
    let stage = Stage::new("1").stopped_at_mark(StopCause::Shutdown);
    assert_eq!(value(stage.sh(finishing).await), "1");
    let stage = Stage::new("1").stopped_at_mark(StopCause::Cancel);
    let outcome = stage.sh(finishing).await;
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
    let stage = Stage::new("1").stopped_at_mark(StopCause::Shutdown);
    let outcome = stage
        .sh("trap 'echo half[; exit 0' TERM; touch mark; sleep 600 & wait")
        .await;
    assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
}

#[tokio::test]
async fn nothing_is_started_once_the_daemon_stops() {
    for (cause, expected) in [
        (StopCause::Shutdown, "Released"),
        (StopCause::Cancel, "Cancelled"),
    ] {
        let stage = Stage::new("1");
        stage.stop.send_replace(Some(cause));
        let outcome = stage.sh("touch mark").await;
        assert_eq!(format!("{outcome:?}"), expected);
        assert!(!stage.path("mark").exists());
    }
}

#[tokio::test]
async fn the_end_of_a_log_is_kept_once_however_the_step_ended() {
    let stated = r#"echo beside >&2; echo '{"error":{"backtrace":"own"}}'; exit 1"#;
    for (script, outcome, log) in [
        ("cat", "Success", None),
        ("echo said >&2; cat", "Success", Some("said")),
        ("echo said >&2; kill -9 $$", "Crashed", Some("said")),
        ("echo said >&2; exit 1", "Error", None),
        (stated, "Error", Some("beside")),
    ] {
        let performed = Stage::new("1").performed(&["/bin/sh", "-c", script]).await;
        let ended = format!("{:?}", performed.outcome);
        assert!(ended.starts_with(outcome), "{script}: {ended}");
        assert_eq!(performed.log.as_deref(), log, "{script}");
    }
    let long = Stage::new("1")
        .performed(&["/bin/sh", "-c", "seq 100000 >&2; cat"])
        .await;
    let log = long.log.expect("a log");
    assert!(log.starts_with("…\n") && log.ends_with("\n100000"), "{log}");
    assert!(log.len() <= LOG_MAX + "…\n".len());
}

#[test]
fn what_a_command_detached_is_gone_when_it_has_ended_and_nothing_of_another_one() {
    let test = "ends::what_a_command_detached_is_gone_when_it_has_ended_and_nothing_of_another_one";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = in_a_process_of_its_own(test, directory.path()) {
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // It stands for a child of a native step.
    let mut native = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let (ends, goes_on) = (Stage::new("1"), Stage::new("1"));
    let works = async {
        while !goes_on.path("mark").exists() {
            sleep(Duration::from_millis(5)).await;
        }
        let script = "setsid sh -c 'setsid sleep 1000 & touch detached; wait' >/dev/null 2>&1 &
            (setsid sleep 1000 &) >/dev/null 2>&1
            until [ -e detached ]; do sleep 0.1; done; echo 2";
        let done = ends.sh(script).await;
        let left = goes_on.processes();
        std::fs::write(goes_on.path("go"), "").unwrap();
        (value(done), left)
    };
    let other = goes_on.sh(
        "setsid sleep 1000 >/dev/null 2>&1 & touch mark; until [ -e go ]; do sleep 0.1; done; echo 3",
    );
    let ((done, left), other) = runtime.block_on(async { tokio::join!(works, other) });
    assert_eq!((done.as_str(), value(other).as_str()), ("2", "3"));
    assert!(
        left.len() >= 2,
        "of the one that went on only {left:?} is left"
    );
    assert!(is_alive(native.id() as i32), "it was killed with a command");
    native.kill().unwrap();
    native.wait().unwrap();
}

/// A process that we adopted, and that is no step's.
struct Foreign(Pid);

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

#[test]
fn a_foreign_process_whose_first_thread_has_ended_delays_no_step() {
    let test = "ends::a_foreign_process_whose_first_thread_has_ended_delays_no_step";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = in_a_process_of_its_own(test, directory.path()) {
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let ends = format!(
        "import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({}, 0)",
        libc::SYS_exit
    );
    let script = r#"python3 -c "$0" </dev/null >/dev/null 2>&1 & echo $!"#;
    let left = std::process::Command::new("sh")
        .args(["-c", script, &ends])
        .output()
        .unwrap();
    let pid: i32 = String::from_utf8_lossy(&left.stdout)
        .trim()
        .parse()
        .unwrap();
    let _foreign = Foreign(Pid::from_raw(pid));
    wait_until("its first thread has ended", || {
        crate::proc::stat(pid).is_some_and(|stat| stat.is_exiting && stat.threads > 1)
    });
    let adopted = crate::proc::children_of_first_thread().unwrap();
    assert!(adopted.contains(&pid), "nobody looks at it");

    // A step that waits for it in vain says so.
    let log = directory.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let subscriber = tracing_subscriber::fmt().with_writer(Mutex::new(file));
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let done = runtime.block_on(async { Stage::new("1").sh("echo 2").await });
    assert_eq!(value(done), "2");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains("does not die"), "{said}");
    let goes_on = crate::proc::stat(pid).is_some_and(|stat| !stat.is_corpse());
    assert!(goes_on, "it was killed with a step");
}
