//! The worker's end of the socket.
//!
//! Owns: the listener, the right to ask, and the bounds on questions at a time. Never: does any of that on the
//! thread that beats, works on more than one question of an execution at a time, or answers one whose execution
//! is over.
//!
//! All steps of a worker have one listener, and each has a token. A step that never asks costs a token;
//! a worker that is never asked has no thread for it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getsid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::task;

use super::super::context::{Attempt, ContextError, ContextStore, too_large};
use super::super::output::{half, parse_json};
use super::{Address, Answer, Ask, LINE_MAX, Request, line, reachable};

/// The socket's name in the directory of the outputs.
const NAME: &str = "context";

/// The name of the thread that answers.
const THREAD: &str = "context";

/// Connections of one session at a time. A step is a session, with all that it starts.
const OF_ONE: usize = 16;

/// Connections of all sessions together.
const OF_ALL: usize = 256;

/// The longest that a command may take to send its request, to send a value, or to read one.
const TALK_MAX: Duration = Duration::from_secs(30);

/// The time between two looks whether a command is still there.
const LOOK: Duration = Duration::from_millis(200);

/// The longest reason, in characters.
const REASON_MAX: usize = 1_000;

/// The wait before something that failed for want of resources is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// The contexts of a worker's runs, for the commands among its steps.
pub struct Service {
    shared: Arc<Shared>,
    bound: Mutex<Bound>,
}

#[derive(Default)]
struct Bound {
    listener: Option<Listener>,
    /// The socket could not be had, and that was reported.
    failed: bool,
}

/// Answers as long as it is there.
struct Listener {
    path: PathBuf,
    _open: watch::Sender<()>,
}

struct Shared {
    store: Arc<dyn ContextStore>,
    /// The longest value.
    max: usize,
    holders: Mutex<HashMap<String, Arc<Holder>>>,
    places: Arc<Mutex<Places>>,
}

/// An execution that may ask.
struct Holder {
    attempt: Attempt,
    /// One question at a time, from the value that comes with it to the last byte of the answer.
    turn: Arc<Semaphore>,
    /// Whether the execution is over.
    over: watch::Sender<bool>,
}

/// The right of one execution to ask, as long as it runs.
pub struct Pass {
    shared: Arc<Shared>,
    address: Address,
}

impl Service {
    /// Serves the contexts that `store` keeps, with values of at most this many bytes.
    pub fn new(store: Arc<dyn ContextStore>, max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                max,
                holders: Mutex::default(),
                places: Arc::default(),
            }),
            bound: Mutex::default(),
        }
    }

    /// Lets an execution ask, through a socket in this directory. `None` if there can be none. Must be
    /// called in a tokio runtime.
    pub fn admit(&self, directory: &Path, attempt: Attempt) -> Option<Pass> {
        let path = match self.listen(directory) {
            Ok(path) => path,
            Err(error) => {
                let mut bound = lock(&self.bound);
                if !std::mem::replace(&mut bound.failed, true) {
                    tracing::warn!(%error, directory = %directory.display(),
                        "commands cannot be given their run's context without the database");
                }
                return None;
            }
        };
        let token = Uuid::new_v4().simple().to_string();
        let holder = Holder {
            attempt,
            turn: Arc::new(Semaphore::new(1)),
            over: watch::Sender::new(false),
        };
        lock(&self.shared.holders).insert(token.clone(), Arc::new(holder));
        let run = attempt.run_id;
        Some(Pass {
            shared: Arc::clone(&self.shared),
            address: Address { run, token, path },
        })
    }

    /// The socket in this directory, made if need be: the directory is a new one after the last one
    /// was tidied away.
    fn listen(&self, directory: &Path) -> io::Result<PathBuf> {
        let mut bound = lock(&self.bound);
        if let Some(listener) = &bound.listener
            && listener.path.parent() == Some(directory)
        {
            return Ok(listener.path.clone());
        }
        let path = directory.join(NAME);
        let (reachable, _held) = reachable(&path)?;
        let listener = StdListener::bind(reachable)?;
        listener.set_nonblocking(true)?;
        let (open, closed) = watch::channel(());
        task::anywhere(wait_for_the_first(
            listener,
            Arc::clone(&self.shared),
            closed,
        ));
        *bound = Bound {
            listener: Some(Listener {
                path: path.clone(),
                _open: open,
            }),
            failed: false,
        };
        Ok(path)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Pass {
    /// The value of the variable.
    pub fn text(&self) -> OsString {
        self.address.text()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(holder) = lock(&self.shared.holders).remove(&self.address.token) {
            holder.over.send_replace(true);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No thread answers until somebody asks.
async fn wait_for_the_first(
    listener: StdListener,
    shared: Arc<Shared>,
    mut closed: watch::Receiver<()>,
) {
    loop {
        let first = tokio::select! {
            _ = closed.changed() => return,
            first = accept(&listener) => first,
        };
        let (ready, is_ready) = oneshot::channel();
        let began = first.and_then(|first| {
            let (listener, shared, closed) =
                (listener.try_clone()?, Arc::clone(&shared), closed.clone());
            std::thread::Builder::new()
                .name(THREAD.to_owned())
                .spawn(move || serve_here(listener, first, shared, closed, ready))
        });
        let began = match began {
            Ok(_) => is_ready
                .await
                .unwrap_or_else(|gone| Err(io::Error::other(gone))),
            Err(error) => Err(error),
        };
        match began {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(%error, "nobody can answer a command about its context yet");
                sleep(AGAIN).await;
            }
        }
    }
}

async fn accept(listener: &StdListener) -> io::Result<StdStream> {
    let listener = UnixListener::from_std(listener.try_clone()?)?;
    listener.accept().await?.0.into_std()
}

fn serve_here(
    listener: StdListener,
    first: StdStream,
    shared: Arc<Shared>,
    closed: watch::Receiver<()>,
    ready: oneshot::Sender<io::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // Somebody may have stopped waiting: then nobody asks any more.
    match runtime {
        Err(error) => drop(ready.send(Err(error))),
        Ok(runtime) => runtime.block_on(async {
            let sockets = UnixListener::from_std(listener)
                .and_then(|listener| Ok((listener, UnixStream::from_std(first)?)));
            match sockets {
                Err(error) => drop(ready.send(Err(error))),
                Ok((listener, first)) => {
                    drop(ready.send(Ok(())));
                    serve(listener, first, shared, closed).await;
                }
            }
        }),
    }
}

async fn serve(
    listener: UnixListener,
    first: UnixStream,
    shared: Arc<Shared>,
    mut closed: watch::Receiver<()>,
) {
    let mut next = Some(first);
    loop {
        let stream = match next.take() {
            Some(stream) => stream,
            None => {
                let accepted = tokio::select! {
                    _ = closed.changed() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => stream,
                    Err(_) => {
                        sleep(AGAIN).await;
                        continue;
                    }
                }
            }
        };
        match Place::take(&shared.places, session(&stream)) {
            Some(place) => {
                task::anywhere(converse(stream, place, Arc::clone(&shared)));
            }
            None => {
                // The answer fits into an empty socket, or nobody waits for it.
                let _ = stream
                    .into_std()
                    .and_then(|mut stream| stream.write(&line(&Answer::Busy)));
            }
        }
        // The connections that are being served go on.
        tokio::task::yield_now().await;
    }
}

/// The session of the process that connected, if it is known; all unknown ones are one session.
fn session(stream: &UnixStream) -> Option<Pid> {
    let pid = stream.peer_cred().ok()?.pid()?;
    getsid(Some(Pid::from_raw(pid))).ok()
}

/// The connections that are open, by session.
#[derive(Default)]
struct Places {
    by_session: HashMap<Option<Pid>, usize>,
    all: usize,
}

/// One of these connections.
struct Place {
    session: Option<Pid>,
    of: Arc<Mutex<Places>>,
}

impl Place {
    fn take(places: &Arc<Mutex<Places>>, session: Option<Pid>) -> Option<Self> {
        let mut taken = lock(places);
        let own = taken.by_session.get(&session).copied().unwrap_or_default();
        (own < OF_ONE && taken.all < OF_ALL).then_some(())?;
        taken.by_session.insert(session, own + 1);
        taken.all += 1;
        Some(Self {
            session,
            of: Arc::clone(places),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.of);
        taken.all -= 1;
        if let Some(own) = taken.by_session.get_mut(&self.session) {
            *own -= 1;
            if *own == 0 {
                taken.by_session.remove(&self.session);
            }
        }
    }
}

/// One exchange. A command that goes away in the middle of it is no error.
async fn converse(mut stream: UnixStream, place: Place, shared: Arc<Shared>) {
    let _gone = exchange(&mut stream, &shared).await;
    // We do not read the rest of what the command sends: it has its answer before it notices that.
    drop(stream);
    drop(place);
}

async fn exchange(stream: &mut UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    let watched = stream.as_fd().try_clone_to_owned()?;
    let (reading, mut writing) = stream.split();
    let mut reading = BufReader::new(reading);
    let mut asked = Vec::new();
    let mut first = (&mut reading).take(LINE_MAX as u64);
    timeout(TALK_MAX, first.read_until(b'\n', &mut asked)).await??;
    let Ok(Request { token, ask }) = serde_json::from_slice(&asked) else {
        let answer = Answer::refused("this is not a valid request; `ductworkd context` sends one");
        return say(&mut writing, &answer, b"").await;
    };
    let holder = lock(&shared.holders).get(&token).cloned();
    let Some(holder) = holder else {
        let answer = Answer::refused("this attempt of the step is over");
        return say(&mut writing, &answer, b"").await;
    };
    let mut over = holder.over.subscribe();
    let answered = async {
        let turn = Arc::clone(&holder.turn).acquire_owned().await;
        let turn = turn.map_err(io::Error::other)?;
        let asked = Asked {
            shared,
            attempt: holder.attempt,
            turn: Some(turn),
        };
        match ask {
            Ask::Get { key } => asked.get(&mut writing, key).await,
            Ask::Set { key, length } => asked.set(&mut reading, &mut writing, key, length).await,
            Ask::List => asked.list(&mut writing).await,
        }
    };
    tokio::select! {
        _ = over.wait_for(|over| *over) => Ok(()),
        () = gone(&watched) => Ok(()),
        answered = answered => answered,
    }
}

/// Resolves some time after the command has gone, which then waits neither for its turn nor for an answer.
async fn gone(command: &OwnedFd) {
    loop {
        sleep(LOOK).await;
        let mut asked = [PollFd::new(command.as_fd(), PollFlags::empty())];
        // A poll that asks for no events reports only the command's end.
        if poll(&mut asked, PollTimeout::ZERO).is_ok_and(|told| told > 0) {
            return;
        }
    }
}

/// A question whose turn it is.
struct Asked<'a> {
    shared: &'a Arc<Shared>,
    attempt: Attempt,
    /// Given to the task that works on it, for whose end perhaps nobody waits any more.
    turn: Option<OwnedSemaphorePermit>,
}

impl Asked<'_> {
    async fn get(
        mut self,
        writing: &mut (impl AsyncWriteExt + Unpin),
        key: String,
    ) -> io::Result<()> {
        let (run, wanted) = (self.attempt.run_id, key.clone());
        let store = Arc::clone(&self.shared.store);
        let got = self.of_store(async move { store.get(run, wanted).await });
        let (answer, value) = match got.await? {
            Ok(Some(value)) => (found(key, value.get()), Some(value)),
            Ok(None) => (Answer::Unset, None),
            Err(error) => (failed(&error), None),
        };
        let value = value.as_deref().map_or("", |value| value.get());
        say(writing, &answer, value.as_bytes()).await
    }

    async fn set(
        mut self,
        reading: &mut (impl AsyncReadExt + Unpin),
        writing: &mut (impl AsyncWriteExt + Unpin),
        key: String,
        length: usize,
    ) -> io::Result<()> {
        let max = self.shared.max;
        if length > max {
            let message = too_large(length, max);
            return say(writing, &Answer::refused(message), b"").await;
        }
        let mut value = vec![0; length];
        timeout(TALK_MAX, reading.read_exact(&mut value)).await??;
        let value = match parse_json(&value, max) {
            Ok(value) => value,
            Err(problem) => {
                let message = format!("the value is not one JSON value: {problem}");
                return say(writing, &Answer::refused(message), b"").await;
            }
        };
        if let Some(half) = half(value.get()) {
            return say(writing, &Answer::refused(format!("the value {half}")), b"").await;
        }
        let attempt = self.attempt;
        let store = Arc::clone(&self.shared.store);
        let set = self.of_store(async move { store.set(attempt, key, value).await });
        let answer = match set.await? {
            Ok(()) => Answer::Done,
            Err(error) => failed(&error),
        };
        say(writing, &answer, b"").await
    }

    async fn list(mut self, writing: &mut (impl AsyncWriteExt + Unpin)) -> io::Result<()> {
        let run = self.attempt.run_id;
        let mut after = String::new();
        loop {
            let store = Arc::clone(&self.shared.store);
            let listed = self.of_store(async move { store.list(run, after).await });
            let page = match listed.await? {
                Ok(page) => page,
                Err(error) => return say(writing, &failed(&error), b"").await,
            };
            let Some((last, _)) = page.last() else {
                return say(writing, &Answer::Done, b"").await;
            };
            after = last.clone();
            for (key, value) in page {
                let answer = found(key, value.get());
                say(writing, &answer, value.get().as_bytes()).await?;
            }
        }
    }

    /// The store's answer. There is none while the database is away: then only as many questions wait as there
    /// are executions, because a question keeps its turn until the store has answered, even when the command has
    /// gone.
    async fn of_store<T: Send + 'static>(
        &mut self,
        answer: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn.take();
        let answered = task::anywhere(async move { (answer.await, turn) });
        let (answer, turn) = answered.await.map_err(io::Error::other)?;
        self.turn = turn;
        Ok(answer)
    }
}

fn found(key: String, value: &str) -> Answer {
    let length = value.len();
    Answer::Value { key, length }
}

fn failed(error: &ContextError) -> Answer {
    let reason = match error {
        ContextError::Store(source) => source.to_string(),
        ContextError::Value { .. } => error.to_string(),
        // The command asks again.
        ContextError::Away(_) => return Answer::Busy,
    };
    Answer::refused(reason.chars().take(REASON_MAX).collect::<String>())
}

async fn say(
    writing: &mut (impl AsyncWriteExt + Unpin),
    answer: &Answer,
    value: &[u8],
) -> io::Result<()> {
    let line = line(answer);
    let said = async {
        writing.write_all(&line).await?;
        writing.write_all(value).await
    };
    timeout(TALK_MAX, said).await?
}

#[cfg(test)]
mod tests;
