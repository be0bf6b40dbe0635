//! How a program starts, what it finds, and why it does not start.

use super::*;
use crate::definition::StepSpec;

#[tokio::test]
async fn a_step_finds_what_the_contract_promises() {
    let mut stage = Stage::new("1")
        .env("MINE", "a b")
        .env("DATABASE_URL", "asked-for");
    stage.assignment.baggage = Some("user=ada".to_owned());
    let script = "import json, os, signal
mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
status = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)
env = {k: v for k, v in os.environ.items() if k.startswith('DUCTWORK_') or k in ('TRACEPARENT', 'TRACESTATE', 'BAGGAGE', 'MINE', 'DATABASE_URL', 'PWD')}
try:
    os.write(3, b'x'); third = 'open'
except OSError as e:
    third = e.errno
try:
    open('/dev/tty'); tty = True
except OSError:
    tty = False
print(json.dumps({'env': env, 'mask': len(mask), 'sid': os.getsid(0) == os.getpid(),
  'pgid': os.getpgid(0) == os.getpid(), 'third': third, 'tty': tty, 'cwd': os.getcwd(),
  'blocked': status['SigBlk']}))";
    let found: serde_json::Value =
        serde_json::from_str(&value(stage.python(script).await)).unwrap();
    let Assignment {
        process,
        run_id,
        step_id,
        execution_id,
        span,
        ..
    } = &stage.assignment;
    let env = &found["env"];
    assert_eq!(env["DUCTWORK_PROCESS"], process.to_string());
    assert_eq!(env["DUCTWORK_RUN_ID"], run_id.to_string());
    assert_eq!(env["DUCTWORK_PIPELINE"], "Tests");
    assert_eq!(env["DUCTWORK_STEP"], "Step");
    assert_eq!(env["DUCTWORK_STEP_ID"], step_id.to_string());
    let key = stage.assignment.idempotency_key();
    assert_eq!(env["DUCTWORK_IDEMPOTENCY_KEY"], key.to_string());
    assert_ne!(key, step_id.0);
    assert_eq!(env["DUCTWORK_EXECUTION_ID"], execution_id.to_string());
    assert_eq!(env["DUCTWORK_ATTEMPT"], "3");
    assert_eq!(env["DUCTWORK_FENCING_TOKEN"], "3");
    assert_eq!(env["TRACEPARENT"], span.to_string());
    assert_eq!(
        (&env["TRACESTATE"], &env["BAGGAGE"]),
        (&serde_json::Value::Null, &"user=ada".into())
    );
    assert_eq!(env["MINE"], "a b");
    assert_eq!(env["DATABASE_URL"], "asked-for");
    let directory = stage.directory.path().canonicalize().unwrap();
    assert_eq!(found["cwd"], directory.to_str().unwrap());
    assert_eq!(env["PWD"], stage.directory.path().to_str().unwrap());
    assert_eq!(
        (&found["sid"], &found["pgid"]),
        (&true.into(), &true.into())
    );
    assert_eq!(found["third"], libc::EBADF);
    assert_eq!(found["tty"], false);
    assert_eq!(found["blocked"], "0000000000000000");
}

#[tokio::test]
async fn a_descriptor_that_the_daemon_was_started_with_is_not_passed_on() {
    let (read, _write) = nix::unistd::pipe().unwrap();
    // Made without CLOEXEC, as a careless parent would.
    let number = std::os::fd::AsRawFd::as_raw_fd(&read);
    let script = format!("test -e /proc/self/fd/{number} && echo true || echo false");
    assert_eq!(value(Stage::new("1").sh(&script).await), "false");
}

#[tokio::test]
async fn sigpipe_ends_a_step_as_it_does_in_a_shell() {
    let script = "grep SigIgn /proc/self/status | cut -f2 | sed 's/.*/\"&\"/'";
    assert_eq!(
        value(Stage::new("1").sh(script).await),
        r#""0000000000000000""#
    );
}

#[tokio::test]
async fn what_a_step_does_to_itself_stays_with_it() {
    let stage = Stage::new("1");
    let before = (
        std::env::current_dir().unwrap(),
        nix::sys::stat::umask(nix::sys::stat::Mode::empty()),
    );
    nix::sys::stat::umask(before.1);
    let outcome = stage
        .sh("umask 0777; ulimit -n 10; cd /; stty raw 2>/dev/null; echo 1")
        .await;
    assert_eq!(value(outcome), "1");
    assert_eq!(std::env::current_dir().unwrap(), before.0);
    let now = nix::sys::stat::umask(before.1);
    assert_eq!(now, before.1);
}

#[tokio::test]
async fn a_step_may_delete_its_working_directory() {
    let mut stage = Stage::new("1");
    std::fs::create_dir(stage.path("here")).unwrap();
    stage.cwd = Some("here".into());
    assert_eq!(value(stage.sh("rmdir ../here; echo 1").await), "1");
    let missing = error(stage.sh("echo 1").await);
    assert_eq!(missing.class, "cwd_not_found");
    assert!(
        missing.message.ends_with("/here` does not exist"),
        "{}",
        missing.message
    );
}

#[tokio::test]
async fn escapes_and_forged_lines_arrive_as_they_are() {
    let script = "printf '\\033[31mred\\033[0m\\n{\"level\":\"ERROR\"}\\n\\0nul\\n' >&2; exit 1";
    let log = error(Stage::new("1").sh(script).await).backtrace.unwrap();
    assert_eq!(
        log,
        "\u{1b}[31mred\u{1b}[0m\n{\"level\":\"ERROR\"}\n\u{fffd}nul"
    );
}

#[tokio::test]
async fn a_program_is_looked_for_where_the_step_runs_or_in_its_path() {
    let mut stage = Stage::new("1");
    stage.file("one", "#!/bin/sh\necho 1\n", 0o755);
    std::fs::create_dir(stage.path("deep")).unwrap();
    stage.file("deep/two", "#!/bin/sh\necho 2\n", 0o755);
    assert_eq!(value(stage.run(&["./one"]).await), "1");
    assert_eq!(value(stage.run(&["deep/two"]).await), "2");
    assert_eq!(error(stage.run(&["one"]).await).class, "command_not_found");
    stage.cwd = Some("deep".into());
    assert_eq!(value(stage.run(&["./two"]).await), "2");
    assert_eq!(value(stage.run(&["../one"]).await), "1");
    let path = stage.directory.path().to_str().unwrap().to_owned();
    let stage =
        Stage { cwd: None, ..stage }.env("PATH", &format!("::/nowhere:{path}:/bin:/usr/bin"));
    assert_eq!(value(stage.run(&["one"]).await), "1");
}

#[tokio::test]
async fn what_cannot_be_executed_is_an_error_that_says_why() {
    let stage = Stage::new("1");
    stage.file("plain", "#!/bin/sh\necho 1\n", 0o644);
    stage.file("wants", "#!/no/such/shell -x\n", 0o755);
    stage.file("windows", "#!/bin/sh\r\necho 1\r\n", 0o755);
    stage.file("without", "echo 1\n", 0o755);
    stage.file("marked", "\u{feff}#!/bin/sh\necho 1\n", 0o755);
    stage.file("elf", "\x7fELF not really", 0o755);
    stage.file("empty", "", 0o755);
    std::fs::create_dir(stage.path("directory")).unwrap();
    std::os::unix::fs::symlink("loop", stage.path("loop")).unwrap();
    let huge = "x".repeat(200_000);
    for (argv, class, part) in [
        (
            &["./missing"][..],
            "command_not_found",
            "there is no `./missing`",
        ),
        (&["plain/x"], "command_not_found", "there is no `plain/x`"),
        (
            &["no-such-program"],
            "command_not_found",
            "`steps/no-such-program`",
        ),
        (&[""], "command_invalid", "the command is empty"),
        (&[], "command_invalid", "the command is empty"),
        (&["./plain"], "command_not_executable", "chmod +x ./plain"),
        (&["./directory"], "command_not_executable", "is a directory"),
        (&["./wants"], "interpreter_not_found", "`/no/such/shell`"),
        (
            &["./windows"],
            "interpreter_not_found",
            "Unix line ends (sed -i 's/\\r$//' ./windows)",
        ),
        (&["./without"], "command_not_executable", "`#!`"),
        (
            &["./marked"],
            "command_not_executable",
            "begins with a byte order mark",
        ),
        (&["./elf"], "command_not_executable", "for this machine"),
        (&["./empty"], "command_not_executable", "`#!`"),
        (&["./loop"], "command_not_started", "symbolic links"),
        (&["true", &huge], "command_too_large", "stdin"),
        (&["true", "a\0b"], "command_invalid", "NUL"),
    ] {
        let error = error(stage.run(argv).await);
        assert_eq!(error.class, class, "{argv:.40?}: {}", error.message);
        assert!(
            error.message.contains(part),
            "{argv:.40?}: {}",
            error.message
        );
    }
    let outcome = Stage::new("1").env("A=B", "c").sh("true").await;
    assert_eq!(error(outcome).class, "command_invalid");
}

#[tokio::test]
async fn arguments_are_passed_on_as_they_are() {
    let stage = Stage::new("1");
    let script = "import json, sys; print(json.dumps(sys.argv[1:]))";
    let outcome = stage
        .run(&["python3", "-c", script, "-x", "$HOME", "a b", "*", "é", ""])
        .await;
    assert_eq!(
        value(outcome),
        r#"["-x", "$HOME", "a b", "*", "\u00e9", ""]"#
    );
}

#[tokio::test]
async fn a_program_that_is_being_installed_is_waited_for_a_little() {
    let stage = Stage::new("1");
    let path = stage.path("busy");
    std::fs::copy("/bin/true", &path).unwrap();
    let open = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    assert_eq!(error(stage.run(&["./busy"]).await).class, "command_busy");
    let closing = async {
        sleep(Duration::from_millis(30)).await;
        drop(open);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = stage.run(&["./busy"]) => assert_eq!(value(outcome), "null"),
        () = closing => unreachable!("it waits for ever"),
    }
}

#[test]
fn a_process_short_of_descriptors_starts_nothing_and_blames_nobody() {
    let test = "starts::a_process_short_of_descriptors_starts_nothing_and_blames_nobody";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = in_a_process_of_its_own(test, directory.path()) {
        let key = directory.path().join("key");
        std::fs::write(&key, "a secret").unwrap();
        let done = command.env("KEY_FILE", key).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stage = Stage::new("1");
    let mut held = Vec::new();
    // Fewer and fewer descriptors are left, so it fails at each one that it needs.
    use nix::sys::resource::{Resource, setrlimit};
    setrlimit(Resource::RLIMIT_NOFILE, 128, 128).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    let mut not_started = 0;
    let runner = CommandRunner::new(stage.directory.path().into(), None, &[], Limits::default());
    let argv = ["/bin/true".to_owned()];
    let plain = StepSpec::command(["/bin/true"]);
    // A secret is read from its file for each attempt.
    let secret = StepSpec::command(["/bin/true"]).secret("TOKEN", "KEY");
    loop {
        let outcomes = [&plain, &secret].map(|step| {
            let stop = stage.stop.subscribe();
            let run = runner.run(&stage.assignment, &argv, step, None, stop, |_| ());
            runtime.block_on(run).outcome
        });
        let mut succeeded = 0;
        for outcome in outcomes {
            match outcome {
                Outcome::NotStarted { .. } => not_started += 1,
                Outcome::Success(_) => succeeded += 1,
                other => panic!("{other:?}"),
            }
        }
        if succeeded == 2 {
            break;
        }
        held.pop().expect("it starts when there are enough");
        // The one that is in use, if there is one.
        let found = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let names = found.map(|entry| entry.file_name().into_string().unwrap());
        let made = names.filter(|name| name.starts_with("ductwork-outputs-"));
        assert!(made.count() <= 1, "directories are left behind");
    }
    assert!(not_started > 10, "{not_started}");
}

#[test]
fn a_user_short_of_processes_starts_nothing_and_blames_nobody() {
    /// No other process runs as this user, so that no other counts.
    const ALONE: u32 = 64_320;
    let test = "starts::a_user_short_of_processes_starts_nothing_and_blames_nobody";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = in_a_process_of_its_own(test, directory.path()) {
        let anybody = PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(directory.path(), anybody).unwrap();
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if nix::unistd::geteuid().is_root() {
        // Root may have as many processes as it likes.
        let alone = nix::unistd::Uid::from_raw(ALONE);
        nix::unistd::setresuid(alone, alone, alone).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stage = Stage::new("1");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
    setrlimit(Resource::RLIMIT_NPROC, 1, hard).unwrap();
    match runtime.block_on(stage.run(&["/bin/true"])) {
        Outcome::NotStarted { message } => {
            assert!(message.contains("`/bin/true`"), "{message}");
            assert!(message.contains("temporarily unavailable"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    setrlimit(Resource::RLIMIT_NPROC, soft, hard).unwrap();
    assert_eq!(value(runtime.block_on(stage.run(&["/bin/true"]))), "null");
}

#[test]
fn a_step_dies_with_the_process_that_started_it() {
    let test = "starts::a_step_dies_with_the_process_that_started_it";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = in_a_process_of_its_own(test, directory.path()) {
        let mark = directory.path().join("mark");
        let command = command.stdout(std::process::Stdio::null());
        let mut daemon = command.spawn().unwrap();
        let mut step = None;
        wait_until("the step runs", || {
            step = std::fs::read_to_string(&mark)
                .ok()
                .and_then(|pid| pid.trim().parse().ok());
            step.is_some()
        });
        let step: i32 = step.unwrap();
        assert!(is_alive(step));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        wait_until("the step is dead", || !is_alive(step));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let script = "echo $$ > $TMPDIR/new; mv $TMPDIR/new $TMPDIR/mark; exec sleep 600";
    runtime.block_on(async { Stage::new("1").sh(script).await });
}

/// Nobody feeds it here: the process that started it may be dead by then.
#[tokio::test]
async fn a_program_has_its_input_before_it_starts() {
    let long = format!("\"{}\"", "x".repeat(60_000));
    for input in ["[1,2]", &long] {
        let stage = Stage::new(input);
        let directory = stage.directory.path().into();
        let runner = CommandRunner::new(directory, None, &[], stage.limits.clone());
        let argv = ["sh", "-c", "cat > got; mv got all"].map(str::to_owned);
        let stop = stage.stop.subscribe();
        let running = runner.run(&stage.assignment, &argv, &stage.env, None, stop, |_| {
            wait_until("it has read its input to the end", || {
                stage.path("all").exists()
            });
        });
        assert_eq!(value(running.await.outcome), "null");
        let got = std::fs::read_to_string(stage.path("all")).unwrap();
        assert_eq!(got, format!("{input}\n"));
        stage.assert_nothing_is_left();
    }
}
