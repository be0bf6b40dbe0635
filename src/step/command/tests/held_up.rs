//! Programs and directories on file systems that do not answer.

use super::*;

/// A program that says that it ran, and which cannot be executed at the moment.
fn held_up(stage: &Stage) -> Lease {
    Lease::on(&stage.file("held_up", "#!/bin/sh\necho >> ran\n", 0o755))
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_in_time_is_given_up_and_blamed_for_nothing() {
    // However short the step's own timeout.
    let stage = Stage::new("1").timeout(Duration::from_millis(1));
    let lease = held_up(&stage);
    let began = Instant::now();
    match stage.run(&["./held_up"]).await {
        Outcome::NotStarted { message } => {
            assert!(
                message.contains("`./held_up` could not be started within 5s"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() >= START_LIMIT);
    drop(lease);
    let stage = stage.timeout(Duration::from_secs(60));
    assert_eq!(value(stage.run(&["./held_up"]).await), "null");
    let ran = std::fs::read_to_string(stage.path("ran")).unwrap();
    assert_eq!(ran, "\n", "it ran after it was given up");
}

#[tokio::test]
async fn a_start_that_hangs_is_given_up_although_its_step_has_no_timeout() {
    let mut stage = Stage::new("1");
    assert_eq!(stage.assignment.timeout, None);
    assert_eq!(stage.limits.start, Duration::from_secs(60));
    stage.limits.start = Duration::from_millis(300);
    let lease = held_up(&stage);
    match timeout(PATIENCE, stage.run(&["./held_up"])).await {
        Ok(Outcome::NotStarted { message }) => {
            assert!(
                message.contains("`./held_up` could not be started within 300ms"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
    drop(lease);
    stage.limits.start = PATIENCE;
    assert_eq!(value(stage.run(&["./held_up"]).await), "null");
    let ran = std::fs::read_to_string(stage.path("ran")).unwrap();
    assert_eq!(ran, "\n", "it ran after it was given up");
}

#[tokio::test]
async fn a_step_that_is_held_up_hears_that_it_is_to_end() {
    for (cause, is_released) in [
        (StopCause::Shutdown, true),
        (StopCause::Abandon, true),
        (StopCause::Cancel, false),
    ] {
        let stage = Stage::new("1");
        let _lease = held_up(&stage);
        let stop = async {
            while !a_process_is_in(stage.directory.path()) {
                sleep(Duration::from_millis(5)).await;
            }
            stage.stop.send_replace(Some(cause));
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            () = stop => unreachable!("only the step ends"),
            outcome = stage.run(&["./held_up"]) => outcome,
        };
        match outcome {
            Outcome::Released => assert!(is_released),
            Outcome::Cancelled => assert!(!is_released),
            other => panic!("{other:?}"),
        }
    }
}

/// True when a process has this working directory: a step has it before its program is executed.
fn a_process_is_in(directory: &Path) -> bool {
    let directory = directory.canonicalize().unwrap();
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.any(|it| std::fs::read_link(it.path().join("cwd")).is_ok_and(|cwd| cwd == directory))
}

/// One that still reads its input, of which the worker has the other end, and one that starts afterwards.
#[tokio::test]
async fn a_start_that_is_held_up_keeps_no_other_step_waiting() {
    let long = format!("\"{}\"", "x".repeat(500_000));
    let (stage, next, held) = (Stage::new(&long), Stage::new("2"), Stage::new("1"));
    let _lease = held_up(&held);
    let runner = CommandRunner::new(stage.directory.path().into(), None, &[], Limits::default());
    let argv =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).into()).collect() };
    let env = BTreeMap::new();
    let run = |stage: &Stage, argv: Vec<String>, on_started: fn(u32)| {
        let (assignment, stop) = (stage.assignment.clone(), stage.stop.subscribe());
        let (runner, env) = (&runner, &env);
        async move {
            let running = runner.run(&assignment, &argv, env, None, stop, on_started);
            running.await.outcome
        }
    };
    let begins = "touch mark; until [ -e go ]; do sleep 0.1; done; exec cat";
    let reads = run(&stage, argv(&["/bin/sh", "-c", begins]), |_| ());
    let program = held.path("held_up");
    let begun = async {
        while !stage.path("mark").exists() {
            sleep(Duration::from_millis(5)).await;
        }
        let never = run(&held, argv(&[program.to_str().unwrap()]), |_| {
            panic!("it was executed")
        });
        let others = async {
            let echoed = value(run(&next, argv(&["cat"]), |_| ()).await);
            std::fs::write(stage.path("go"), "").unwrap();
            echoed
        };
        let mut never = pin!(never);
        let echoed = tokio::select! {
            biased;
            other = &mut never => panic!("{other:?}"),
            echoed = others => echoed,
        };
        assert_eq!(echoed, "2");
        never.await
    };
    tokio::select! {
        biased;
        other = begun => panic!("{other:?}"),
        read = timeout(PATIENCE, reads) => {
            let read = value(read.expect("its input never ends"));
            assert_eq!(read.len(), long.len());
        }
    }
    stage.assert_nothing_is_left();
}
