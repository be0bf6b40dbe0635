//! The watcher of a worker that has no supervisor: a small process that outlives it.
//!
//! Owns: ending what the steps of such a worker started, once the worker is dead. Never: looks at a living worker's
//! steps, opens the database, or decides that a worker is dead: the kernel closes the worker's end of a pipe.
//!
//! The kernel ends the commands of a killed worker, but not the processes that they started. A supervisor hunts
//! those; without one they would go on beside the next attempt, on another host perhaps, until somebody starts a
//! daemon here. See ADR 29.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use tokio::task::JoinHandle;

use crate::model::ProcessId;
use crate::task;
use crate::telemetry::LogFormat;

use super::orphan::Hunt;
use super::spawn::{self, Spawned};

/// The hidden verb of its command line.
pub const VERB: &str = "watcher";

/// The word with which a worker that ends in order says that nothing is left.
const DONE: &str = "done";

/// How long the watcher hunts at most. A process that is not dead by then sits in the kernel.
const HUNT_BOUND: Duration = Duration::from_secs(10);

/// The time between a look that failed and the next one.
const HUNT_AGAIN: Duration = Duration::from_millis(50);

/// The time between two attempts to start a watcher.
const RESTART_EVERY: Duration = Duration::from_secs(1);

/// How long a worker that ends waits for its watcher.
const END_MAX: Duration = Duration::from_secs(1);

/// The bound on a line, which is the key of a process's row.
const LINE_MAX: u64 = 64;

/// The worker's side: keeps a watcher alive, and tells it what to look for.
#[derive(Debug)]
pub struct Watched {
    told: Arc<Mutex<Told>>,
    keeper: JoinHandle<()>,
}

/// The keys of the worker's rows, and the pipe to the watcher that knows them.
#[derive(Debug)]
struct Told {
    processes: BTreeSet<ProcessId>,
    pipe: Option<OwnedFd>,
    format: LogFormat,
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    /// A watcher that does not read is as good as none.
    fn write(&self, text: &str) {
        if let Some(pipe) = &self.pipe {
            let _ = nix::unistd::write(pipe, format!("{text}\n").as_bytes());
        }
    }
}

impl Watched {
    /// Starts a watcher for the steps of these processes, and another whenever it dies. `None` where this process is
    /// the first of its pid namespace, as in a container: the kernel ends all others with it. Needs a local task
    /// set, and the thread that calls this has to live as long as the process.
    pub fn start(
        processes: impl IntoIterator<Item = ProcessId>,
        format: LogFormat,
    ) -> Option<Self> {
        if std::process::id() == 1 {
            return None;
        }
        let told = Told {
            processes: processes.into_iter().collect(),
            pipe: None,
            format,
        };
        let told = Arc::new(Mutex::new(told));
        // Started before the first step.
        let first = start(&told);
        let keeper = task::local(keep(first, Arc::clone(&told)));
        Some(Self { told, keeper })
    }

    /// Tells of another row, before anything is claimed for it.
    pub fn announcer(&self) -> impl Fn(ProcessId) + Send + Sync + 'static {
        let told = Arc::clone(&self.told);
        move |process| {
            let mut told = lock(&told);
            if told.processes.insert(process) {
                told.write(&process.to_string());
            }
        }
    }

    /// Ends the watcher of a worker whose steps have left nothing behind.
    pub async fn end(self) {
        {
            let mut told = lock(&self.told);
            told.write(DONE);
            told.pipe = None;
        }
        let mut keeper = self.keeper;
        if tokio::time::timeout(END_MAX, &mut keeper).await.is_err() {
            keeper.abort();
        }
    }
}

/// A watcher that runs.
type Watcher = (Spawned, spawn::Spared);

/// Starts a watcher that knows all keys that there are.
fn start(told: &Mutex<Told>) -> io::Result<Watcher> {
    let mut told = lock(told);
    let name = std::env::args_os().next();
    let name = name.unwrap_or_else(|| "ductworkd".into());
    let argv = [name, VERB.into(), told.format.as_str().into()];
    let (theirs, ours) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    // Only our end does not block: theirs waits.
    nix::fcntl::fcntl(&ours, nix::fcntl::F_SETFL(OFlag::O_NONBLOCK))?;
    told.pipe = Some(ours);
    // RACE: this worker is killed as soon as the watcher exists, which then knows no keys. So we write them
    // into the pipe before the watcher exists. Raced by
    // `what_the_steps_of_a_lone_worker_left_is_gone_as_soon_as_the_worker_is_killed`.
    for process in &told.processes {
        told.write(&process.to_string());
    }
    // Otherwise it would itself be a step of the worker that started us as one.
    let nobody: (OsString, Option<OsString>) = (crate::step::PROCESS.into(), None);
    let watcher = spawn::spawn_reading(&argv, &[nobody], theirs.as_fd());
    if watcher.is_err() {
        told.pipe = None;
    }
    watcher
}

/// Waits for the end of each watcher, and starts the next until the worker has taken back the pipe.
async fn keep(first: io::Result<Watcher>, told: Arc<Mutex<Told>>) {
    let mut watcher = first;
    let mut failed = false;
    loop {
        let began = Instant::now();
        match watcher {
            Ok((process, spared)) => {
                failed = false;
                ended(&process).await;
                drop(spared);
                let _reaped = spawn::wait_for(process.pid());
                if lock(&told).pipe.take().is_none() {
                    return;
                }
                tracing::warn!("the watcher of this worker has died; starting another");
                if began.elapsed() < RESTART_EVERY {
                    tokio::time::sleep(RESTART_EVERY).await;
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    let remedy = spawn::remedy(&error);
                    tracing::error!(
                        %error,
                        remedy,
                        "no watcher can be started: if this worker is killed, what its steps have started goes on; \
                         trying again"
                    );
                }
                tokio::time::sleep(RESTART_EVERY).await;
            }
        }
        watcher = start(&told);
    }
}

async fn ended(process: &Spawned) {
    if let Ok(end) = process.end()
        && end.readable().await.is_ok()
    {
        return;
    }
    while !super::identity::is_corpse(process.pid()) {
        tokio::time::sleep(RESTART_EVERY).await;
    }
}

/// The watcher's side: reads from `input` until the worker is dead, and ends what its steps have left. Returns how
/// many it killed.
///
/// TERM and its like are blocked, as in all of our processes: a signal to the group or to all of a service ends the
/// worker, and with it the watcher.
pub fn watch(input: impl Read) -> usize {
    let mut processes = BTreeSet::new();
    let mut input = BufReader::new(input);
    loop {
        let mut line = String::new();
        match input.by_ref().take(LINE_MAX).read_line(&mut line) {
            Ok(0) => break,
            Ok(_) if line.trim_end() == DONE => return 0,
            Ok(_) => processes.extend(line.trim_end().parse::<ProcessId>().ok()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let processes: Vec<ProcessId> = processes.into_iter().collect();
    let mut hunt = Hunt::new(&processes, 0);
    let began = Instant::now();
    let mut killed = 0;
    loop {
        let left = HUNT_BOUND.saturating_sub(began.elapsed());
        let found = hunt.go_on(left);
        killed += found.as_ref().map_or(0, |found| found.killed);
        // A shortage, of descriptors for example, may last as long as the hunt.
        if found.is_err() {
            std::thread::sleep(HUNT_AGAIN.min(left));
        }
        if left.is_zero() || found.is_ok_and(|found| found.late == 0) {
            break;
        }
    }
    killed
}
