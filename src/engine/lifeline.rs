//! The second connection of a process: its heartbeat, and all that must not wait for the work.
//!
//! Owns: registration, heartbeats, the process's incarnation; notifications from other hosts;
//! the run contexts of native steps; for a role that runs alone, the sweep as well.
//! Never: claims work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::model::{ProcessId, RunId};
use crate::store::process::{self, NewProcess};
use crate::store::{Conn, Error, Location, context};
use crate::telemetry::events;

use super::reaper::Sweeper;
use super::shared::{Mode, Shared};
use super::{Link, Policy, Ring};

/// The channel of the database's notifications. The payload is a pipeline with new work, or
/// empty when branches are ready.
pub const CHANNEL: &str = "ductwork";

/// A loop that shows no progress for this long is wedged, and its process must not look alive
/// (H8). Longer than any statement of ours: the widest fan-out takes seconds.
const WEDGED_AFTER: Duration = Duration::from_secs(300);

/// Runs deleted per request: a bound on how long a heartbeat waits behind it.
const PRUNE_AT_ONCE: u64 = 1_000;

/// Something to do on the second connection.
pub enum Request {
    /// Read a value of a run's context.
    Get(RunId, String, Reply<Option<Box<RawValue>>>),
    /// Write a value of a run's context.
    Set(RunId, String, Box<RawValue>, Reply<()>),
    /// Read a run's whole context.
    List(RunId, Reply<Vec<(String, Box<RawValue>)>>),
    /// Ring other hosts.
    Notify(String),
    /// Sweep at once; answered when it is done.
    Sweep(oneshot::Sender<()>),
    /// Is any work left in these pipelines (`None`: in any)?
    AnyWork(Option<Vec<String>>, Reply<bool>),
    /// Delete runs that ended longer ago than this.
    Prune(Duration),
}

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// The task that keeps a process alive in the database.
pub struct Lifeline {
    /// Where to connect.
    pub location: Location,
    /// The process's row; its id changes with every incarnation.
    pub row: NewProcess,
    /// What the process's tasks share.
    pub shared: Arc<Shared>,
    /// Intervals and leases.
    pub policy: Policy,
    /// Requests of other tasks.
    pub requests: mpsc::UnboundedReceiver<Request>,
    /// Reaps and recovers this often: in a supervisor, or a role that runs without one.
    pub sweeper: Option<(Sweeper, Duration)>,
    /// Tells whether the database can be reached.
    pub connected: watch::Sender<bool>,
    /// What tells this host's own rings from those of others.
    pub house: String,
    /// Rings after a recovery.
    pub ring: Arc<dyn Ring>,
}

impl Lifeline {
    /// Connects and registers, however long the database takes.
    pub async fn begin(&mut self) -> Conn {
        let mut link = Link::new(self.location.clone());
        loop {
            let begun = async {
                let mut conn = self.location.listen(CHANNEL).await?;
                process::register(&mut conn, &self.row).await?;
                Ok::<Conn, Error>(conn)
            };
            match begun.await {
                Ok(conn) => {
                    link.worked();
                    self.shared.beaten();
                    self.connected.send_replace(true);
                    events::registered(self.row.id);
                    self.ring.born();
                    return conn;
                }
                Err(Error::Constraint { .. }) => {
                    // The first attempt had been committed although its answer was lost. A row is
                    // never adopted, not even one's own: the reaper will remove it.
                    let _ = self.be_born();
                    self.shared.reincarnate(self.row.id);
                }
                Err(error) => tokio::time::sleep(link.failed(&error)).await,
            }
        }
    }

    /// Beats, listens and answers until `stopped`; then removes the process's row.
    pub async fn run(mut self, conn: Conn, mut stopped: oneshot::Receiver<()>) {
        let mut link = Link::new(self.location.clone());
        let mut conn = Some(conn);
        let mut beat = tokio::time::Instant::now();
        let mut sweep = tokio::time::Instant::now();
        let mut retry = tokio::time::Instant::now();
        loop {
            let Some(open) = &mut conn else {
                tokio::select! {
                    _ = &mut stopped => return,
                    () = tokio::time::sleep_until(retry) => {}
                }
                let connected = tokio::select! {
                    _ = &mut stopped => return,
                    connected = self.location.listen(CHANNEL) => connected,
                };
                match connected {
                    Ok(open) => {
                        conn = Some(open);
                        // What was rung in between was not heard (D8).
                        self.shared.wake.notify_one();
                        if let Some((sweeper, _)) = &mut self.sweeper {
                            sweeper.forget();
                        }
                        beat = tokio::time::Instant::now();
                    }
                    Err(error) => retry = tokio::time::Instant::now() + link.failed(&error),
                }
                continue;
            };
            let shared = Arc::clone(&self.shared);
            let sweeps = self.sweeper.is_some();
            // Only waiting is cancelled here, never a statement: each branch that runs one runs
            // it to its end after the select.
            let next = tokio::select! {
                biased;
                _ = &mut stopped => Next::Stop,
                () = tokio::time::sleep_until(beat) => Next::Beat,
                () = shared.check.notified() => Next::Beat,
                Some(request) = self.requests.recv() => Next::Answer(request),
                () = tokio::time::sleep_until(sweep), if sweeps => Next::Sweep,
                heard = open.notified() => Next::Heard(heard),
            };
            let done = match next {
                Next::Stop => {
                    if let Err(error) = process::deregister(open, self.shared.process()).await {
                        events::deregister_failed(&error);
                    }
                    if let Some(open) = conn {
                        open.close().await;
                    }
                    return;
                }
                Next::Beat => {
                    beat = tokio::time::Instant::now() + self.policy.beat_interval();
                    let beaten = self.beat(open).await;
                    // A database that can be reached but not written (a full disk, a standby) is
                    // not back: only a beat says so.
                    if beaten.is_ok() && !*self.connected.borrow() {
                        link.worked();
                        self.connected.send_replace(true);
                    }
                    beaten
                }
                Next::Answer(Request::Sweep(done)) => {
                    let swept = self.sweep(open).await;
                    // Whoever asked may have gone; if it failed, the next sweep finds the same.
                    let _ = done.send(());
                    swept
                }
                Next::Answer(request) => answer(open, request).await,
                Next::Sweep => {
                    let every = self.sweeper.as_ref().map(|(_, every)| *every);
                    sweep = tokio::time::Instant::now() + every.unwrap_or_default();
                    self.sweep(open).await
                }
                Next::Heard(Ok(first)) => {
                    let mut from_elsewhere = !first.starts_with(&self.house);
                    while let Some(payload) = open.notified_already() {
                        from_elsewhere |= !payload.starts_with(&self.house);
                    }
                    if from_elsewhere {
                        self.shared.wake.notify_one();
                    }
                    Ok(())
                }
                Next::Heard(Err(error)) => Err(error),
            };
            match done {
                Ok(()) => {}
                Err(error) if error.is_unavailable() || open.is_broken() => {
                    retry = tokio::time::Instant::now() + link.failed(&error);
                    self.connected.send_replace(false);
                    conn = None;
                }
                Err(error) => {
                    events::lifeline_failed(&error);
                    beat = tokio::time::Instant::now() + Duration::from_secs(1);
                }
            }
        }
    }

    async fn sweep(&mut self, conn: &mut Conn) -> Result<(), Error> {
        match &mut self.sweeper {
            Some((sweeper, _)) => {
                let me = self.shared.process();
                sweeper.sweep(conn, me, self.ring.as_ref()).await
            }
            None => Ok(()),
        }
    }

    async fn beat(&mut self, conn: &mut Conn) -> Result<(), Error> {
        let since = self.shared.since_progress();
        if since > WEDGED_AFTER {
            events::wedged(since);
            return Ok(());
        }
        let asked = Instant::now();
        let id = self.shared.process();
        let holds = self.shared.holds();
        self.shared.sent(conn.take_statements());
        let counters = self.shared.counters();
        let (quiet, lease) = (self.shared.mode() == Mode::Quiet, self.policy.lease());
        match process::beat(conn, id, counters, quiet, lease, holds).await? {
            Some(held) => {
                // A database that took no writes for so long let nobody beat: whoever was
                // watched meanwhile was not seen to be dead.
                let late = self.shared.since_beat() > self.policy.lease() / 2;
                if let Some((sweeper, _)) = self.sweeper.as_mut().filter(|_| late) {
                    sweeper.forget();
                }
                self.shared.beaten();
                if holds {
                    let lost = self.shared.stop_all_but(&held, asked);
                    if lost > 0 {
                        events::claims_lost(lost);
                    }
                }
            }
            None => {
                let old = self.be_born();
                process::register(conn, &self.row).await?;
                events::declared_dead(old, self.row.id);
                self.shared.reincarnate(self.row.id);
                self.shared.beaten();
                self.shared.wake.notify_one();
            }
        }
        Ok(())
    }

    /// A new id for the row; the old one.
    fn be_born(&mut self) -> ProcessId {
        let id = ProcessId::new();
        std::mem::replace(&mut self.row.id, id)
    }
}

enum Next {
    Stop,
    Beat,
    Answer(Request),
    Sweep,
    Heard(Result<String, Error>),
}

async fn answer(conn: &mut Conn, request: Request) -> Result<(), Error> {
    /// Sends the answer, whether anybody still waits for it or not; keeps what breaks the link.
    fn send<T>(reply: Reply<T>, answer: Result<T, Error>) -> Result<(), Error> {
        let broken = answer
            .as_ref()
            .err()
            .filter(|error| error.is_unavailable())
            .cloned();
        let _ = reply.send(answer);
        broken.map_or(Ok(()), Err)
    }

    match request {
        Request::Get(run, key, reply) => {
            let tuple = context::get(conn, run, &key).await;
            send(reply, tuple.and_then(|tuple| tuple.map(value).transpose()))
        }
        Request::Set(run, key, value, reply) => {
            // A run that was deleted under its step has no context to keep.
            let set = context::set(conn, run, &key, value.get()).await;
            send(reply, set.map(drop))
        }
        Request::List(run, reply) => {
            let entry = |tuple: context::Tuple| Ok((tuple.key.clone(), value(tuple)?));
            let tuples = context::list(conn, run).await;
            send(
                reply,
                tuples.and_then(|tuples| tuples.into_iter().map(entry).collect()),
            )
        }
        Request::Notify(payload) => conn.notify(CHANNEL, &payload).await,
        Request::AnyWork(pipelines, reply) => send(
            reply,
            crate::store::any_work(conn, pipelines.as_deref()).await,
        ),
        Request::Prune(older_than) => {
            let pruned = crate::store::prune::prune(conn, older_than, PRUNE_AT_ONCE).await?;
            if pruned > 0 {
                events::pruned(pruned);
            }
            Ok(())
        }
        Request::Sweep(_) => Ok(()),
    }
}

fn value(tuple: context::Tuple) -> Result<Box<RawValue>, Error> {
    RawValue::from_string(tuple.value)
        .map_err(|error| Error::Corrupt(format!("a tuple is not JSON: {error}")))
}
