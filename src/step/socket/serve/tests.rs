//! Commands that ask, and commands that ask badly.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::value::RawValue;

use super::super::ask;
use super::*;
use crate::model::{ExecutionId, ProcessId, RunId};
use crate::step::context::{BoxFuture, Tuples};

/// The longest that a test waits for something that should be a matter of milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

const MAX: usize = 1_000;

#[derive(Default)]
struct Memory {
    all: Mutex<BTreeMap<(RunId, String), Box<RawValue>>>,
    asked: AtomicUsize,
    /// This run is never answered.
    silent: Option<RunId>,
}

impl Memory {
    async fn answer(&self, run: RunId) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.silent == Some(run) {
            std::future::pending().await
        }
    }
}

impl ContextStore for Memory {
    fn get(
        &self,
        run: RunId,
        key: String,
    ) -> BoxFuture<'_, Result<Option<Box<RawValue>>, ContextError>> {
        Box::pin(async move {
            self.answer(run).await;
            Ok(lock(&self.all).get(&(run, key)).cloned())
        })
    }

    fn set(
        &self,
        by: Attempt,
        key: String,
        value: Box<RawValue>,
    ) -> BoxFuture<'_, Result<(), ContextError>> {
        Box::pin(async move {
            self.answer(by.run_id).await;
            lock(&self.all).insert((by.run_id, key), value);
            Ok(())
        })
    }

    fn list(&self, run: RunId, after: String) -> BoxFuture<'_, Result<Tuples, ContextError>> {
        Box::pin(async move {
            let all = lock(&self.all);
            let mine = all.iter().filter(|((of, _), _)| *of == run);
            // One at a time.
            let next = mine.filter(|((_, key), _)| *key > after).take(1);
            Ok(next.map(|((_, key), v)| (key.clone(), v.clone())).collect())
        })
    }
}

struct Stage {
    directory: tempfile::TempDir,
    memory: Arc<Memory>,
    service: Service,
}

impl Stage {
    fn new(memory: Memory) -> Self {
        let memory = Arc::new(memory);
        Self {
            directory: tempfile::tempdir().unwrap(),
            service: Service::new(Arc::clone(&memory) as Arc<dyn ContextStore>, MAX),
            memory,
        }
    }

    fn admit(&self, run_id: RunId) -> Pass {
        let attempt = Attempt {
            run_id,
            execution_id: ExecutionId::new(),
            process: ProcessId::new(),
        };
        self.service.admit(self.directory.path(), attempt).unwrap()
    }
}

/// A command is another process: it blocks, as it does here, on another thread.
async fn command<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let work = tokio::task::spawn_blocking(work);
    timeout(PATIENCE, work).await.unwrap().unwrap()
}

fn refused<T: std::fmt::Debug>(asked: Result<T, ask::Error>) -> String {
    match asked {
        Err(ask::Error::Refused(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_sets_gets_and_lists_what_is_of_its_run_alone() {
    let stage = Stage::new(Memory::default());
    let (pass, other) = (stage.admit(RunId::new()), stage.admit(RunId::new()));
    let (address, elsewhere) = (pass.address.clone(), other.address.clone());
    command(move || {
        assert_eq!(ask::get(&address, "a").unwrap(), None);
        for (key, value) in [("b", "\"é\""), ("a", "{\"n\": 1}"), ("b", "2")] {
            ask::set(&address, key, value).unwrap();
        }
        assert_eq!(ask::get(&address, "b").unwrap().as_deref(), Some("2"));
        let all = [("a", "{\"n\": 1}"), ("b", "2")];
        let all = all.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(ask::list(&address).unwrap(), all);
        assert_eq!(ask::list(&elsewhere).unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_execution_that_is_over_is_not_answered_and_neither_is_a_stranger() {
    let stage = Stage::new(Memory::default());
    let pass = stage.admit(RunId::new());
    let over = pass.address.clone();
    let guessed = Address {
        token: Uuid::new_v4().simple().to_string(),
        ..over.clone()
    };
    drop(pass);
    let said =
        command(move || [over, guessed].map(|asks| refused(ask::set(&asks, "a", "1")))).await;
    assert_eq!(said, ["this attempt of the step is over"; 2]);
    assert_eq!(stage.memory.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_is_too_long_or_no_json_is_refused_and_said_to_be() {
    let stage = Stage::new(Memory::default());
    let pass = stage.admit(RunId::new());
    let address = pass.address.clone();
    command(move || {
        let long = refused(ask::set(&address, "a", &"1".repeat(MAX + 1)));
        assert!(
            long.contains("1001 bytes") && long.contains("max_payload"),
            "{long}"
        );
        // More than a socket holds: the worker does not read it.
        refused(ask::set(&address, "a", &"1".repeat(4 << 20)));
        let wrong = refused(ask::set(&address, "a", "{1"));
        assert!(wrong.contains("not one JSON value"), "{wrong}");
        for nonsense in ["\n", "nonsense\n", &"x".repeat(LINE_MAX + 1)] {
            let mut stream = StdStream::connect(&address.path).unwrap();
            stream.write_all(nonsense.as_bytes()).unwrap();
            let mut said = String::new();
            // The worker may have closed it before it has read everything.
            let _ = stream.read_to_string(&mut said);
            assert!(said.contains("refused"), "{said}");
        }
        ask::set(&address, "a", "1").unwrap();
    })
    .await;
}

#[tokio::test]
async fn while_the_store_is_silent_one_question_of_an_execution_waits_and_others_are_answered() {
    let (silent, run) = (RunId::new(), RunId::new());
    let stage = Stage::new(Memory {
        silent: Some(silent),
        ..Memory::default()
    });
    let (pass, other) = (stage.admit(silent), stage.admit(run));
    let (address, answered) = (pass.address.clone(), other.address.clone());
    let memory = Arc::clone(&stage.memory);
    command(move || {
        // Each command that does not wait for the answer gives up its place.
        for _ in 0..3 * OF_ONE {
            let began = Instant::now();
            loop {
                let mut stream = StdStream::connect(&address.path).unwrap();
                let request = Request {
                    token: address.token.clone(),
                    ask: Ask::Get { key: "a".into() },
                };
                // A connection that is too many may be closed before it has said anything.
                let _ = stream.write_all(&line(&request));
                stream
                    .set_read_timeout(Some(Duration::from_millis(5)))
                    .unwrap();
                let mut said = [0; 16];
                match stream.read(&mut said) {
                    Ok(_) => assert!(said.starts_with(b"\"busy\"")),
                    Err(_) => break,
                }
                assert!(began.elapsed() < PATIENCE);
            }
            if memory.asked.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        assert_eq!(memory.asked.load(Ordering::SeqCst), 1);
        ask::set(&answered, "a", "1").unwrap();
        assert_eq!(ask::get(&answered, "a").unwrap().as_deref(), Some("1"));
    })
    .await;
}

#[test]
fn a_session_has_so_many_connections_and_leaves_others_theirs() {
    let places = Arc::<Mutex<Places>>::default();
    let session = |number: i32| Some(Pid::from_raw(number));
    let mut taken: Vec<Place> = (0..OF_ONE)
        .map(|_| Place::take(&places, session(1)).unwrap())
        .collect();
    assert!(Place::take(&places, session(1)).is_none());
    taken.push(Place::take(&places, session(2)).unwrap());
    taken.remove(0);
    taken.push(Place::take(&places, session(1)).unwrap());
    assert!(Place::take(&places, session(1)).is_none());
    drop(taken);
    assert!(lock(&places).by_session.is_empty() && lock(&places).all == 0);
    let all: Vec<Place> = (0..OF_ALL)
        .map(|number| Place::take(&places, session((number / OF_ONE) as i32)).unwrap())
        .collect();
    assert!(Place::take(&places, None).is_none());
    drop(all);
}

#[tokio::test]
async fn a_socket_whose_directory_was_tidied_away_is_made_again() {
    let mut stage = Stage::new(Memory::default());
    let before = stage.admit(RunId::new());
    stage.directory = tempfile::tempdir().unwrap();
    let after = stage.admit(RunId::new());
    assert_ne!(before.address.path, after.address.path);
    let address = after.address.clone();
    command(move || ask::set(&address, "a", "1").unwrap()).await;
}
