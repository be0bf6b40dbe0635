//! Native steps that wait, block, panic and lie about their types.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::*;
use crate::model::RunId;
use crate::step::command::tests::{alone, assignment};
use crate::step::context::{Attempt, BoxFuture, ContextError, Tuples};

#[derive(Default)]
struct Memory(Mutex<BTreeMap<(RunId, String), Box<RawValue>>>);

impl ContextStore for Memory {
    fn get(
        &self,
        run: RunId,
        key: String,
    ) -> BoxFuture<'_, Result<Option<Box<RawValue>>, ContextError>> {
        Box::pin(async move { Ok(self.0.lock().unwrap().get(&(run, key)).cloned()) })
    }

    fn set(
        &self,
        by: Attempt,
        key: String,
        value: Box<RawValue>,
    ) -> BoxFuture<'_, Result<(), ContextError>> {
        let run = by.run_id;
        Box::pin(async move {
            self.0.lock().unwrap().insert((run, key), value);
            Ok(())
        })
    }

    fn list(&self, run: RunId, after: String) -> BoxFuture<'_, Result<Tuples, ContextError>> {
        Box::pin(async move {
            let all = self.0.lock().unwrap();
            let mine = all.iter().filter(|((of, _), _)| *of == run);
            // One at a time.
            let next = mine.filter(|((_, key), _)| *key > after).take(1);
            Ok(next.map(|((_, key), v)| (key.clone(), v.clone())).collect())
        })
    }
}

struct Stage {
    runner: NativeRunner,
    stop: watch::Sender<Option<StopCause>>,
    timeout: Option<Duration>,
}

impl Stage {
    fn new(registry: Registry) -> Self {
        let limits = Limits {
            max_payload: 10_000,
            ..Limits::default()
        };
        Self {
            runner: NativeRunner::new(registry, limits),
            stop: watch::channel(None).0,
            timeout: None,
        }
    }

    fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    fn grace(mut self, grace: Duration) -> Self {
        self.runner.limits.kill_grace = grace;
        self
    }

    async fn run(&self, input: &str) -> Outcome {
        let mut assignment = assignment(input);
        assignment.timeout = self.timeout;
        let running = self.runner.run(
            Arc::new(assignment),
            self.stop.subscribe(),
            Arc::new(Memory::default()),
        );
        let patience = Duration::from_secs(20);
        timeout(patience, running)
            .await
            .expect("the step wedged the runner")
    }
}

#[track_caller]
fn value(outcome: Outcome) -> String {
    match outcome {
        Outcome::Success(value) => value.get().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn error(outcome: Outcome) -> StepError {
    match outcome {
        Outcome::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

async fn double(_: StepContext, number: u64) -> Result<u64, StepError> {
    Ok(number * 2)
}

#[tokio::test]
async fn a_step_takes_and_returns_what_serde_can() {
    let stage = Stage::new(Registry::new().step("Step", double));
    assert_eq!(value(stage.run("21").await), "42");
    let stage = Stage::new(
        Registry::new().blocking_step("Step", |_, words: Vec<String>| -> Result<_, StepError> {
            Ok(words.concat())
        }),
    );
    assert_eq!(value(stage.run(r#"["a","b"]"#).await), r#""ab""#);
}

#[tokio::test]
async fn an_input_of_another_type_is_final() {
    let error = error(
        Stage::new(Registry::new().step("Step", double))
            .run("\"x\"")
            .await,
    );
    assert_eq!(
        (error.class.as_str(), error.retryable),
        ("input_invalid", false)
    );
    assert!(error.message.contains("u64"), "{}", error.message);
}

#[tokio::test]
async fn a_step_that_nobody_registered_is_undefined() {
    let error = error(Stage::new(Registry::new()).run("1").await);
    assert_eq!(
        (error.class.as_str(), error.retryable),
        ("step_undefined", false)
    );
}

#[test]
fn registering_a_name_twice_is_a_problem() {
    let registry = Registry::new().step("A", double).step("A", double);
    assert_eq!(registry.problems().len(), 1);
    assert_eq!(registry.names().collect::<Vec<_>>(), ["A"]);
}

#[tokio::test]
async fn an_error_keeps_its_type_its_wait_and_its_finality() {
    async fn parse(_: StepContext, text: String) -> Result<u64, std::num::ParseIntError> {
        text.parse()
    }
    let stage = Stage::new(Registry::new().step("Step", parse));
    let said = error(stage.run("\"x\"").await);
    assert!(said.class.contains("ParseIntError"), "{}", said.class);
    assert!(said.retryable);
    let stage = Stage::new(Registry::new().blocking_step(
        "Step",
        |_, (): ()| -> Result<(), StepError> {
            let error = StepError::new("busy", "later").no_retry();
            Err(error.retry_after(Duration::from_secs(9)))
        },
    ));
    let said = error(stage.run("null").await);
    assert_eq!((said.class.as_str(), said.retryable), ("busy", false));
    assert_eq!(said.retry_after, Some(Duration::from_secs(9)));
}

#[tokio::test]
async fn a_panic_is_an_error_with_its_place_and_harms_nobody() {
    async fn late(_: StepContext, number: u64) -> Result<u64, StepError> {
        tokio::task::yield_now().await;
        match number {
            0 => panic!("no {}", "zero"),
            number => Ok(number),
        }
    }
    fn early(_: StepContext, _: u64) -> std::future::Ready<Result<u64, StepError>> {
        panic!("at once")
    }
    let stage = Stage::new(Registry::new().step("Step", late));
    let said = error(stage.run("0").await);
    assert_eq!(said.class, "panic");
    assert!(
        said.message
            .starts_with("no zero, at src/step/native/tests.rs:"),
        "{}",
        said.message
    );
    assert_eq!(value(stage.run("1").await), "1");
    let said = error(
        Stage::new(Registry::new().step("Step", early))
            .run("0")
            .await,
    );
    assert!(said.message.starts_with("at once, at "), "{}", said.message);
    let stage = Stage::new(
        Registry::new().blocking_step("Step", |_, _: u64| -> Result<u64, StepError> {
            std::panic::panic_any(7_u8)
        }),
    );
    let said = error(stage.run("0").await);
    assert!(
        said.message.starts_with("something that is not text"),
        "{}",
        said.message
    );
}

#[tokio::test]
async fn outputs_are_held_to_the_limits() {
    let step = |_, length: usize| async move { Ok::<_, StepError>("x".repeat(length)) };
    let stage = Stage::new(Registry::new().step("Step", step));
    assert_eq!(value(stage.run("9998").await).len(), 10_000);
    assert_eq!(error(stage.run("9999").await).class, "output_too_large");
    let nest = |_, depth: usize| async move {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        Ok::<_, StepError>(RawValue::from_string(text)?)
    };
    let stage = Stage::new(Registry::new().step("Step", nest));
    value(stage.run("128").await);
    assert_eq!(error(stage.run("129").await).class, "output_invalid");
    let half = |_, (): ()| async move {
        let text = r#"["\ud83d"]"#.to_owned();
        Ok::<_, StepError>(RawValue::from_string(text)?)
    };
    let stage = Stage::new(Registry::new().step("Step", half));
    assert_eq!(error(stage.run("null").await).class, "output_invalid");
    let map = |_, (): ()| async move { Ok::<_, StepError>(BTreeMap::from([((1, 2), 3)])) };
    let stage = Stage::new(Registry::new().step("Step", map));
    assert_eq!(error(stage.run("null").await).class, "output_invalid");
}

struct SetWhenDropped(Arc<AtomicBool>);

impl Drop for SetWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_async_step_is_dropped_at_its_timeout() {
    let dropped = Arc::new(AtomicBool::new(false));
    let step = {
        let dropped = Arc::clone(&dropped);
        move |_, (): ()| {
            let held = SetWhenDropped(Arc::clone(&dropped));
            async move {
                let _held = held;
                std::future::pending::<Result<(), StepError>>().await
            }
        }
    };
    let stage = Stage::new(Registry::new().step("Step", step));
    let outcome = stage.timeout(Duration::from_millis(50)).run("null").await;
    let Outcome::TimedOut { message, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(message, "timed out after 50ms; it was ended");
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_blocking_step_is_told_of_its_timeout_and_left_when_it_does_not_listen() {
    let listens = |context: StepContext, (): ()| -> Result<(), StepError> {
        while !context.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let stage = Stage::new(Registry::new().blocking_step("Step", listens));
    let outcome = stage.timeout(Duration::from_millis(50)).run("null").await;
    let Outcome::TimedOut { message, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(message.ends_with("it was ended"), "{message}");

    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let deaf = move |_, (): ()| -> Result<(), StepError> {
        let _ = released.lock().unwrap().recv();
        Ok(())
    };
    let stage = Stage::new(Registry::new().blocking_step("Step", deaf));
    // Long enough for its thread to have begun.
    let stage = stage
        .timeout(Duration::from_secs(1))
        .grace(Duration::from_millis(100));
    let Outcome::TimedOut { message, .. } = stage.run("null").await else {
        panic!("it listened");
    };
    assert!(message.ends_with("left to itself"), "{message}");
    drop(release);
}

#[tokio::test]
async fn a_step_that_blocks_all_threads_blocks_nobody_else() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let rude = move |_, (): ()| {
        let released = Arc::clone(&released);
        async move {
            let _ = released.lock().unwrap().recv();
            Ok::<_, StepError>(())
        }
    };
    let stage = Stage::new(Registry::new().step("Step", rude))
        .timeout(Duration::from_millis(50))
        .grace(Duration::from_millis(100));
    let start = Instant::now();
    let (a, b, c) = tokio::join!(stage.run("null"), stage.run("null"), stage.run("null"));
    for outcome in [a, b, c] {
        assert!(matches!(outcome, Outcome::TimedOut { .. }), "{outcome:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(release);
}

#[tokio::test]
async fn a_step_may_finish_while_the_daemon_stops() {
    for (cause, expected) in [
        (StopCause::Shutdown, "Success(RawValue(true))"),
        (StopCause::Cancel, "Cancelled"),
    ] {
        let step = |context: StepContext, (): ()| async move {
            context.cancelled().await;
            Ok::<_, StepError>(context.is_cancelled())
        };
        let stage = Stage::new(Registry::new().step("Step", step));
        let running = stage.run("null");
        let stopping = async {
            stage.stop.send_replace(Some(cause));
        };
        // The step starts first, because `join` polls in this order.
        let (outcome, ()) = tokio::join!(running, stopping);
        assert_eq!(format!("{outcome:?}"), expected);
    }
}

#[tokio::test]
async fn a_step_that_does_not_finish_is_released_at_a_shutdown() {
    let step = |_, (): ()| std::future::pending::<Result<(), StepError>>();
    let stage = Stage::new(Registry::new().step("Step", step)).grace(Duration::from_millis(100));
    let (outcome, ()) = tokio::join!(stage.run("null"), async {
        stage.stop.send_replace(Some(StopCause::Shutdown));
    });
    assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
    let outcome = stage.run("null").await;
    assert!(matches!(outcome, Outcome::Released), "started: {outcome:?}");
}

#[tokio::test]
async fn a_step_that_is_abandoned_has_no_grace() {
    for is_in_grace in [false, true] {
        let [begun, told, dropped] = [false; 3].map(|no| Arc::new(AtomicBool::new(no)));
        let step = {
            let (begun, told) = (Arc::clone(&begun), Arc::clone(&told));
            let dropped = Arc::clone(&dropped);
            move |context: StepContext, (): ()| {
                let told = Arc::clone(&told);
                let held = SetWhenDropped(Arc::clone(&dropped));
                begun.store(true, Ordering::SeqCst);
                async move {
                    let _held = held;
                    context.cancelled().await;
                    told.store(true, Ordering::SeqCst);
                    std::future::pending::<Result<(), StepError>>().await
                }
            }
        };
        // Longer than `run` waits.
        let stage =
            Stage::new(Registry::new().step("Step", step)).grace(Duration::from_secs(3_600));
        let stopping = async {
            is_set(&begun).await;
            if is_in_grace {
                stage.stop.send_replace(Some(StopCause::Shutdown));
                is_set(&told).await;
            }
            stage.stop.send_replace(Some(StopCause::Abandon));
        };
        let (outcome, ()) = tokio::join!(stage.run("null"), stopping);
        assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
        is_set(&dropped).await;
    }

    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let deaf = move |_, (): ()| -> Result<(), StepError> {
        let _ = released.lock().unwrap().recv();
        Ok(())
    };
    let stage = Stage::new(Registry::new().blocking_step("Step", deaf));
    let stage = stage.grace(Duration::from_secs(3_600));
    let (outcome, ()) = tokio::join!(stage.run("null"), async {
        stage.stop.send_replace(Some(StopCause::Abandon));
    });
    assert!(matches!(outcome, Outcome::Released), "{outcome:?}");
    drop(release);
}

async fn is_set(flag: &AtomicBool) {
    let set = async {
        while !flag.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let patience = Duration::from_secs(20);
    timeout(patience, set).await.expect("it is not set");
}

#[tokio::test]
async fn blocking_steps_that_never_end_take_no_more_threads_than_a_bound() {
    let (let_go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let step = move |_: StepContext, deaf: bool| -> Result<u8, StepError> {
        if deaf {
            // Until the other end is dropped.
            let _ = gone.lock().unwrap().recv();
        }
        Ok(1)
    };
    let stage = Stage::new(Registry::new().blocking_step("Step", step));
    let stage = stage
        .timeout(Duration::from_millis(1))
        .grace(Duration::ZERO);
    for _ in 0..LEFT_MAX {
        let outcome = stage.run("true").await;
        assert!(matches!(outcome, Outcome::TimedOut { .. }), "{outcome:?}");
    }
    match stage.run("true").await {
        Outcome::NotStarted { message } => assert!(message.contains("still run"), "{message}"),
        other => panic!("{other:?}"),
    }
    drop(let_go);
    let stage = stage.timeout(Duration::from_secs(20));
    loop {
        match stage.run("false").await {
            Outcome::NotStarted { .. } => tokio::time::sleep(Duration::from_millis(1)).await,
            outcome => break assert_eq!(value(outcome), "1"),
        }
    }
}

#[test]
fn a_user_short_of_threads_starts_no_blocking_step_and_blames_nobody() {
    /// No other process runs as this user, so that no other counts.
    const ALONE: u32 = 64_319;
    let test =
        "step::native::tests::a_user_short_of_threads_starts_no_blocking_step_and_blames_nobody";
    let directory = tempfile::tempdir().unwrap();
    if let Some(mut command) = alone(test, directory.path()) {
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if nix::unistd::geteuid().is_root() {
        // Root may have as many threads as it likes.
        let alone = nix::unistd::Uid::from_raw(ALONE);
        nix::unistd::setresuid(alone, alone, alone).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let begun = AtomicUsize::new(0);
    let counts = move |_: StepContext, (): ()| -> Result<usize, StepError> {
        Ok(begun.fetch_add(1, Ordering::SeqCst))
    };
    let waits = Stage::new(Registry::new().step("Step", double));
    let blocks = Stage::new(Registry::new().blocking_step("Step", counts));
    waits.runner.begin();
    blocks.runner.begin();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
    setrlimit(Resource::RLIMIT_NPROC, 1, hard).unwrap();
    // Its threads are there.
    assert_eq!(value(runtime.block_on(waits.run("21"))), "42");
    for _ in 0..3 {
        match runtime.block_on(blocks.run("null")) {
            Outcome::NotStarted { message } => {
                assert!(message.contains("temporarily unavailable"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    setrlimit(Resource::RLIMIT_NPROC, soft, hard).unwrap();
    // None of the refused attempts runs after all.
    for begun in ["0", "1"] {
        assert_eq!(value(runtime.block_on(blocks.run("null"))), begun);
    }
}

#[tokio::test]
async fn the_context_is_shared_and_typed() {
    let step = |context: StepContext, (): ()| async move {
        let store = context.context();
        assert_eq!(store.get::<u64>("n").await?, None);
        store.set("n", &7).await?;
        assert!(store.get::<String>("n").await.is_err());
        let listed = store.list().await?;
        assert_eq!(listed.len(), 1);
        assert_eq!(context.fencing_token(), 3);
        assert_eq!((context.pipeline(), context.step()), ("Tests", "Step"));
        Ok::<_, StepError>(store.get::<u64>("n").await?)
    };
    let stage = Stage::new(Registry::new().step("Step", step));
    assert_eq!(value(stage.run("null").await), "7");
    let step = |context: StepContext, (): ()| -> Result<Option<u64>, StepError> {
        context.context().set_blocking("n", &8)?;
        Ok(context.context().get_blocking("n")?)
    };
    let stage = Stage::new(Registry::new().blocking_step("Step", step));
    assert_eq!(value(stage.run("null").await), "8");
}
