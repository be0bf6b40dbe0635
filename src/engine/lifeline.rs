//! The second connection of a process: its heartbeat, and everything that must not wait for the work.
//!
//! Owns: registration, heartbeats, the process's incarnation; notifications from other hosts; the
//! run contexts of steps; for a role that runs alone, the sweep as well.
//! Never: claims work, or waits for anything so long that it beats late (ADR 0021).
//!
//! Its statements can wait for the locks listed below. Its connection waits for a lock for less time
//! than passes from one beat to the next, and for an answer for less than two such intervals
//! (`store::patience`). A lock that it cannot get is left for a later turn, and is no error.
//!
//! - `register` inserts a row that nobody else knows; that of a worker waits for anybody who pauses or unpauses its
//!   pipeline, and for another worker of that pipeline that registers. After the process was declared dead, it
//!   also marks its death, in a row that is otherwise only inserted and forgotten.
//! - A beat writes the process's own row. The process's own claims and commits lock it, each for the length of
//!   one statement, which waits for a lock for less time than the beat does; so does a reaper
//!   that gives back the process's claims.
//! - It reads the held executions without a lock, and extends leases that nobody has locked.
//! - A sweep reads, and deletes rows of dead processes: it waits for a claim or a commit of theirs that is under way.
//!   Rows that they held, and that somebody has locked, are left to a later sweep. Between two dead processes it lets a
//!   beat through.
//! - A sweep of a supervisor that has registered anew writes the rows of its children: it waits for their beats.
//! - A context is read without a lock; `set` waits for another step that sets the same key, for a deletion of
//!   the run, and for a reaper or a cancellation that closes the execution that sets it.
//! - `notify` queues behind the commit of another notification.
//! - The question whether there is any work is read without a lock.
//! - The counts of the process are a row that nobody else writes while the process lives; a sweeper that takes
//!   the process for dead locks it for a moment.
//! - `deregister` waits as a beat does; it ends the process, whose supervisor waits that long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::machine::stuck::UNSET;
use crate::model::{Intake, ProcessId, RunId};
use crate::store::process::{self, Beaten, NewProcess, Orders};
use crate::store::{Conn, Error, Location, Work, context, migrate};
use crate::telemetry::events;
use crate::telemetry::growing::Growing;

use super::counting::{self, Writing};
use super::keeping::Keeping;
use super::reaper::Sweeper;
use super::shared::{Mode, Shared};
use super::trouble::{Lasting, Trouble};
use super::worker::bearable;
use super::{Link, Policy, Waker};

/// The channel of the database's notifications. The payload is a pipeline with new work, or empty
/// when branches are ready.
pub const CHANNEL: &str = "ductwork";

/// A loop that shows no progress for this long is wedged, and its process must not look alive (H8).
/// This is longer than any of our statements: the widest fan-out takes seconds.
pub const WEDGED_AFTER: Duration = Duration::from_secs(300);

/// The pause before a request that could not get its lock is tried again.
const LATER: Duration = Duration::from_millis(50);

/// A process that is to end waits this long for another connection.
const ANOTHER: Duration = Duration::from_secs(1);

/// A process that holds nothing asks for its claims once in a lease, and no more often than this unless it has found some.
const LOOK_AT_CLAIMS: Duration = Duration::from_secs(30);

/// The time between two looks for work that was left half done: that of this many sweeps, but no longer than this
/// duration.
const LOOK_EVERY: (u32, Duration) = (10, Duration::from_secs(15));

/// How often a supervisor, or an advancer without one, deletes old runs.
pub const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Something to do on the second connection.
pub enum Request {
    /// Read a value of a run's context.
    Get(RunId, String, Reply<Option<Box<RawValue>>>),
    /// Write a value of a run's context.
    Set(context::Writer, String, Box<RawValue>, Reply<bool>),
    /// Read the next of a run's context, after this key.
    List(RunId, String, Reply<Vec<(String, Box<RawValue>)>>),
    /// Wake other hosts.
    Notify(String),
    /// Sweep at once; answered when it is done.
    Sweep(oneshot::Sender<()>),
    /// Is any work left in these pipelines (`None`: in any)?
    AnyWork(Option<Vec<String>>, Reply<Option<Work>>),
    /// Can this program work with the schema, and is it newer than this program?
    Schema(Reply<Option<i64>>),
    /// Delete the runs that ended longer ago than this.
    Prune(Duration),
}

impl Request {
    /// True if the other one is a write of the same run.
    fn precedes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(own, ..), Self::Set(other, ..)) => own.run == other.run,
            _ => false,
        }
    }
}

/// The channel that an answer goes to.
pub type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// The task that keeps a process alive in the database.
pub struct Lifeline {
    /// Where to connect.
    pub location: Location,
    /// The process's row; its id changes with every incarnation.
    pub row: NewProcess,
    /// The state that the process's tasks share.
    pub shared: Arc<Shared>,
    /// Intervals and leases.
    pub policy: Policy,
    /// Requests of other tasks.
    pub requests: mpsc::UnboundedReceiver<Request>,
    /// Reaps and recovers this often: in a supervisor, or a role that runs without one.
    pub sweeper: Option<(Sweeper, Duration)>,
    /// Tells whether the database can be reached.
    pub connected: watch::Sender<bool>,
    /// The prefix that tells this host's own wakeups from those of others.
    pub origin: String,
    /// Wakes others after a recovery.
    pub waker: Arc<dyn Waker>,
    /// It is the first, or the only, lifeline of this program.
    pub is_first: bool,
}

impl Lifeline {
    /// Connects and registers, however long the database takes.
    pub async fn begin(&mut self) -> Conn {
        let (role, pipeline) = (self.row.role, self.row.pipeline.as_deref());
        let counts = &self.shared.counts;
        let sweeps = self.sweeper.is_some();
        counts.count(|counts| counting::begin(counts, role, pipeline, sweeps));
        let mut link = Link::new(self.location.clone());
        let mut refused = false;
        loop {
            let begun = async {
                let mut conn = self.location.listen(CHANNEL).await?;
                let registered = process::register(&mut conn, &self.row).await;
                // Shows the rows of the processes although ours is missing: the supervisor may find among them the
                // process that keeps us from registering.
                if let (Err(error), Some((sweeper, _))) = (&registered, &self.sweeper)
                    && error.is_not_now()
                {
                    sweeper.look(&mut conn).await?;
                }
                registered?;
                Ok::<Conn, Error>(conn)
            };
            match begun.await {
                Ok(conn) => {
                    link.worked();
                    self.shared.beaten();
                    self.connected.send_replace(true);
                    events::registered(self.row.id, self.location.server());
                    self.waker.registered();
                    return conn;
                }
                Err(error) => {
                    let again = refused;
                    refused = matches!(error, Error::Constraint { .. });
                    if refused {
                        // The first attempt had been committed although its answer was lost. A row is
                        // never adopted, not even our own: the reaper will remove it.
                        let _ = self.replace_id();
                        self.shared.replace_identity(self.row.id);
                    }
                    // If a constraint also refuses the new id, the id is not the cause.
                    if !refused || again {
                        tokio::time::sleep(link.failed(&error)).await;
                    }
                }
            }
        }
    }

    /// Beats, listens and answers until `stopped`; then removes the process's row.
    pub async fn run(mut self, conn: Conn, mut stopped: oneshot::Receiver<()>) {
        let mut link = Link::new(self.location.clone());
        let mut agenda = Agenda::new(self.is_first);
        let mut conn = Some(conn);
        loop {
            let Some(open) = &mut conn else {
                tokio::select! {
                    _ = &mut stopped => {
                        // RACE: the heartbeat that shows that the process is stopping finds that its connection is
                        // lost, and the process ends before there is another one. Proven by
                        // `a_worker_of_several_pipelines_is_as_many_workers`.
                        if agenda.lost.is_some_and(|lost| lost.elapsed() < ANOTHER)
                            && let Some(another) = self.last_connection().await
                        {
                            self.leave(another, &mut agenda).await;
                        }
                        return;
                    }
                    connected = self.connect(&mut agenda, &mut link) => conn = connected,
                }
                continue;
            };
            // The other connection has found the heir of this one's server.
            if open.is_broken() {
                self.connected.send_replace(false);
                agenda.lost = Some(Instant::now());
                conn = None;
                continue;
            }
            if std::mem::take(&mut agenda.is_worn)
                && let Some(another) = self.another(&mut agenda).await
            {
                conn = Some(another);
                continue;
            }
            let next = self.next(open, &mut agenda, &mut stopped).await;
            let done = match next {
                Next::Stop => {
                    if let Some(open) = conn {
                        self.leave(open, &mut agenda).await;
                    }
                    return;
                }
                Next::Beat => self.beat_and_report(open, &mut agenda, &mut link).await,
                Next::Answer(request) => self.serve(open, request, &mut agenda).await,
                Next::Again(request) => self.answer(open, request, &mut agenda).await,
                Next::Sweep => self.sweep_in_turn(open, &mut agenda).await,
                Next::Look => self.look_in_turn(open, &mut agenda).await,
                Next::Write => {
                    agenda
                        .writing
                        .write_in_turn(open, &self.shared, self.row.role)
                        .await
                }
                Next::Heard(heard) => heard.map(|first| self.heard(open, &first)),
            };
            match done {
                Ok(()) => {}
                Err(error) if error.is_unavailable() || open.is_broken() => {
                    agenda.retry = tokio::time::Instant::now() + link.failed(&error);
                    self.connected.send_replace(false);
                    agenda.lost = Some(Instant::now());
                    conn = None;
                }
                Err(error) if error.is_not_now() => {
                    // Somebody else holds a lock that this needs: the next sweep may find it free.
                    agenda.wear(&error, &self.policy);
                    let waits = matches!(error, Error::Retryable { .. });
                    match agenda.hindered.meet(&waits, Instant::now()) {
                        Some(_) if waits => events::lifeline_waits(&error),
                        Some(_) => events::database_hindered(&error),
                        None => {}
                    }
                }
                Err(error) => {
                    let text = crate::telemetry::chain(&error);
                    if agenda.failed.meet(&text, Instant::now()).is_some() {
                        events::lifeline_failed(&text);
                    }
                    // The next beat comes soon, and never later than it was due, because sweeps may fail more often than
                    // that. Proven by `a_sweep_that_always_fails_keeps_no_heartbeat_from_being_sent`.
                    let soon = tokio::time::Instant::now() + Duration::from_secs(1);
                    agenda.beat = agenda.beat.min(soon);
                }
            }
        }
    }

    /// Writes the last counts, and removes the process's row.
    ///
    /// A connection that sent no statement may have ended long ago, and where nobody notifies, nobody notices
    /// that. So another one is tried, once. Proven by `a_worker_of_several_pipelines_is_as_many_workers`.
    async fn leave(&mut self, mut open: Conn, agenda: &mut Agenda) {
        std::mem::take(&mut agenda.keeping).stop().await;
        let mut left = self.sign_off(&mut open, agenda).await;
        if left.as_ref().is_err_and(Error::is_unavailable)
            && let Some(another) = self.last_connection().await
        {
            open = another;
            left = self.sign_off(&mut open, agenda).await;
        }
        if let Err(error) = left {
            events::deregister_failed(&error);
        }
        open.close().await;
    }

    /// Another connection for a process that ends; `None` if there is none soon.
    async fn last_connection(&self) -> Option<Conn> {
        let another = self.location.listen(CHANNEL);
        tokio::time::timeout(ANOTHER, another).await.ok()?.ok()
    }

    async fn sign_off(&self, open: &mut Conn, agenda: &mut Agenda) -> Result<(), Error> {
        // If that fails, the deregistration logs why.
        let _ = self.write_counts(open, agenda).await;
        process::deregister(open, self.shared.process()).await
    }

    /// Another session beside the present one, which may still beat; `None` if the server has none to give, or not soon.
    async fn another(&self, agenda: &mut Agenda) -> Option<Conn> {
        agenda.opened = Instant::now();
        let location = self.location.clone().leased(self.policy.lease());
        let another = location.listen(CHANNEL);
        let another = tokio::time::timeout(self.policy.beat_interval(), another).await;
        let another = another.ok()?.ok()?;
        // A wakeup in between was heard by the session that is given up.
        self.shared.wake.notify_one();
        agenda.beat = tokio::time::Instant::now();
        Some(another)
    }

    /// Connects again, when it is time; `None` if that failed.
    async fn connect(&mut self, agenda: &mut Agenda, link: &mut Link) -> Option<Conn> {
        tokio::time::sleep_until(agenda.retry).await;
        // The lease may have changed its length by now.
        let location = self.location.clone().leased(self.policy.lease());
        match location.listen(CHANNEL).await {
            Ok(open) => {
                // Wakeups in between were not heard (D8).
                self.shared.wake.notify_one();
                if let Some((sweeper, _)) = &mut self.sweeper {
                    sweeper.forget();
                }
                agenda.opened = Instant::now();
                agenda.beat = tokio::time::Instant::now();
                Some(open)
            }
            Err(error) => {
                agenda.retry = tokio::time::Instant::now() + link.failed(&error);
                None
            }
        }
    }

    /// Waits for the next event. Only waiting is cancelled here, never a statement.
    async fn next(
        &mut self,
        open: &mut Conn,
        agenda: &mut Agenda,
        stopped: &mut oneshot::Receiver<()>,
    ) -> Next {
        let shared = Arc::clone(&self.shared);
        let sweeps = self.sweeper.is_some();
        let is_later = !agenda.later.is_empty();
        tokio::select! {
            biased;
            _ = stopped => Next::Stop,
            () = tokio::time::sleep_until(agenda.beat) => Next::Beat,
            () = shared.check.notified() => Next::Beat,
            () = tokio::time::sleep_until(agenda.writing.due) => Next::Write,
            // A sweep goes before requests, because steps may send them without end.
            () = tokio::time::sleep_until(agenda.sweep), if sweeps => Next::Sweep,
            () = tokio::time::sleep_until(agenda.look), if sweeps => Next::Look,
            heard = open.notified() => Next::Heard(heard),
            () = tokio::time::sleep_until(agenda.again), if is_later => {
                agenda.later.pop_front().map_or(Next::Beat, Next::Again)
            }
            Some(request) = next(&mut agenda.waiting, &mut self.requests) => Next::Answer(request),
        }
    }

    async fn write_counts(&self, open: &mut Conn, agenda: &mut Agenda) -> Result<(), Error> {
        let role = self.row.role;
        agenda.writing.write(open, &self.shared, role).await
    }

    async fn beat_and_report(
        &mut self,
        open: &mut Conn,
        agenda: &mut Agenda,
        link: &mut Link,
    ) -> Result<(), Error> {
        agenda.beat = tokio::time::Instant::now() + self.policy.beat_interval();
        let beaten = self.beat(open, agenda).await;
        let role = self.row.role;
        let counts = &self.shared.counts;
        counts.count(|counts| counting::beaten(counts, role, &beaten));
        let is_written = matches!(beaten, Ok(Beat::Written | Beat::Dead));
        let is_back = is_written && !*self.connected.borrow();
        if is_back {
            // The outage was not that of one connection.
            self.shared.back();
        }
        let beaten = match beaten {
            Ok(beat) if is_written => report_trouble(open, &self.shared, &mut agenda.reported)
                .await
                .map(|()| beat),
            beaten => beaten,
        };
        // A database that can be reached but not written (a full disk, a standby) is not back: only a
        // beat proves that it is.
        if is_back && beaten.is_ok() {
            link.worked();
            self.connected.send_replace(true);
        }
        if matches!(beaten, Ok(Beat::Waits)) {
            agenda.beat = tokio::time::Instant::now() + self.policy.beat_interval() / 4;
        }
        beaten.map(drop)
    }

    async fn serve(
        &mut self,
        open: &mut Conn,
        request: Request,
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        match request {
            Request::Sweep(done) => {
                // One sweep answers everybody who asked before it began.
                agenda.asked.push(done);
                agenda.waiting = loop {
                    match self.requests.try_recv() {
                        Ok(Request::Sweep(done)) => agenda.asked.push(done),
                        other => break other.ok(),
                    }
                };
                self.sweep(open, agenda).await
            }
            Request::Prune(older_than) => {
                self.keep(open, Some(older_than), &mut agenda.keeping).await
            }
            // The writes of a run keep their order.
            request if agenda.later.iter().any(|later| later.precedes(&request)) => {
                agenda.later.push_back(request);
                Ok(())
            }
            request => self.answer(open, request, agenda).await,
        }
    }

    /// Answers a request, or tries it again later: after those of other runs, and before the later ones of its own.
    async fn answer(
        &self,
        open: &mut Conn,
        request: Request,
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let asked = tokio::time::Instant::now();
        if let Some((request, error)) = answer(open, request).await? {
            agenda.wear(&error, &self.policy);
            let why = crate::telemetry::chain(&error);
            self.shared
                .trouble(Trouble::Context, "", &format!("{UNSET}: {why}"));
            let later = std::mem::take(&mut agenda.later).into_iter();
            let (own, others): (VecDeque<_>, _) = later.partition(|later| request.precedes(later));
            agenda.later = others;
            agenda.later.push_back(request);
            agenda.later.extend(own);
            // At least half of the time is left to everything else.
            agenda.again = tokio::time::Instant::now() + asked.elapsed().max(LATER);
        } else if agenda.later.is_empty() {
            self.shared.over(Trouble::Context, "");
        }
        Ok(())
    }

    async fn sweep_in_turn(&mut self, open: &mut Conn, agenda: &mut Agenda) -> Result<(), Error> {
        agenda.sweep = tokio::time::Instant::now() + self.sweeps_every();
        self.sweep(open, agenda).await
    }

    async fn look_in_turn(&self, open: &mut Conn, agenda: &mut Agenda) -> Result<(), Error> {
        let (sweeps, most) = LOOK_EVERY;
        agenda.look = tokio::time::Instant::now() + (self.sweeps_every() * sweeps).min(most);
        match bearable(crate::store::writable::hidden(open).await)? {
            Some(Some(hidden)) => self.shared.trouble(Trouble::Hidden, "", &hidden),
            Some(None) => self.shared.over(Trouble::Hidden, ""),
            // For example, another session has locked the catalogue. The next look repeats the query.
            None => {}
        }
        self.keep(open, None, &mut agenda.keeping).await
    }

    fn sweeps_every(&self) -> Duration {
        let every = self.sweeper.as_ref().map(|(_, every)| *every);
        every.unwrap_or_default()
    }

    /// Wakes this process when another host has announced work.
    fn heard(&self, open: &mut Conn, first: &str) {
        let mut from_elsewhere = !first.starts_with(&self.origin);
        while let Some(payload) = open.notified_already() {
            from_elsewhere |= !payload.starts_with(&self.origin);
        }
        if from_elsewhere {
            self.shared.wake.notify_one();
        }
    }

    /// Sweeps until a beat is due; the sweep continues after that. Until then the callers that asked for it wait, and
    /// also while the death of a child is in doubt.
    async fn sweep(&mut self, conn: &mut Conn, agenda: &mut Agenda) -> Result<(), Error> {
        let until = agenda.beat.into_std();
        let mut doubts = false;
        let swept = match &mut self.sweeper {
            Some((sweeper, _)) => {
                let me = self.shared.process();
                let swept = sweeper.sweep(conn, me, self.waker.as_ref(), until).await;
                if let Some(pause) = sweeper.look_again_in() {
                    let again = tokio::time::Instant::now() + pause;
                    agenda.sweep = agenda.sweep.min(again);
                }
                doubts = sweeper.doubts_own();
                if let Some(error) = sweeper.take_hindered() {
                    agenda.wear(&error, &self.policy);
                }
                swept
            }
            None => Ok(true),
        };
        if matches!(swept, Ok(false)) {
            agenda.sweep = agenda.beat;
        } else if !doubts {
            // The last sweep of a daemon that stops is over when all that its children held is given back.
            for done in agenda.asked.drain(..) {
                // The caller may be gone; if the sweep failed, the next one finds the same.
                let _ = done.send(());
            }
        }
        swept.map(drop)
    }

    /// Looks for something to delete or to finish; another task does that work.
    async fn keep(
        &self,
        conn: &mut Conn,
        retention: Option<Duration>,
        keeping: &mut Keeping,
    ) -> Result<(), Error> {
        let lease = self.policy.lease();
        let left = crate::store::left_to_do(conn, retention, lease).await;
        keeping.looked(&self.shared, retention, &left);
        if left? {
            keeping.begin(&self.shared, &self.location, retention, lease);
        }
        Ok(())
    }

    /// Extends the leases of what the process holds, and stops the work that it does not hold any more, as of a moment
    /// after `asked`.
    async fn hold_on(
        &self,
        conn: &mut Conn,
        agenda: &mut Agenda,
        asked: Instant,
    ) -> Result<(), Error> {
        let id = self.shared.process();
        let held = match process::hold_on(conn, id, self.policy.lease()).await {
            // Nobody can tell at the moment: the work goes on until somebody can.
            Err(error) if error.is_not_now() && !conn.is_broken() => {
                agenda.wear(&error, &self.policy);
                return Ok(());
            }
            held => held?,
        };
        let counts = &self.shared.counts;
        counts.count(|counts| counting::extended(counts, &held));
        let executions = held.executions.iter().map(|id| id.0);
        let branches = held.branches.iter().map(|id| id.0);
        self.shared.found(executions.chain(branches), asked);
        let lost = self.shared.stop_all_but(&held.executions, asked);
        if lost > 0 {
            events::claims_lost(lost);
        }
        Ok(())
    }

    async fn beat(&mut self, conn: &mut Conn, agenda: &mut Agenda) -> Result<Beat, Error> {
        let since = self.shared.since_progress();
        if since > WEDGED_AFTER {
            events::wedged(since);
            return Ok(Beat::Withheld);
        }
        let asked = Instant::now();
        let id = self.shared.process();
        let holds = self.shared.holds();
        self.shared.sent(conn.take_statements());
        let counters = self.shared.counters();
        let intake = match self.shared.mode() {
            Mode::Run => Intake::Open,
            Mode::Quiet => Intake::Quiet,
            Mode::Drain { .. } => Intake::Stopping,
        };
        let role = self.row.role;
        let beaten = match process::beat(conn, id, role, counters, intake).await {
            Err(error) if error.is_not_now() && !conn.is_broken() => {
                // Beside work a beat waits now and then for a moment, which need not be logged.
                let late = self.shared.since_beat() > self.policy.lease() / 3;
                if late && !std::mem::replace(&mut agenda.beat_waits, true) {
                    events::beat_waits(&error);
                }
                agenda.wear(&error, &self.policy);
                self.forget();
                // Our row is locked. The other nodes of a cluster do not see that lock, but they see our leases, which
                // are in other rows: extending these leases shows them that we live.
                if holds {
                    self.hold_on(conn, agenda, asked).await?;
                }
                return Ok(Beat::Waits);
            }
            // A trigger that somebody wrote, or a limit of the server, may refuse everybody's heartbeats.
            Err(error) => {
                self.forget();
                return Err(error);
            }
            Ok(beaten) => beaten,
        };
        let Beaten { orders, elsewhere } = beaten;
        let waited = std::mem::take(&mut agenda.beat_waits);
        match orders {
            Orders::Claim | Orders::Pause => {
                self.shared.tell(orders == Orders::Pause);
                self.shared.set_unheard(elsewhere);
                if waited {
                    events::beat_written(self.shared.since_beat());
                }
                // A database that took no writes for this long let nobody beat: the silence of a
                // process that was watched meanwhile does not prove its death.
                let late = self.shared.since_beat() > self.policy.lease() / 2;
                if late {
                    self.forget();
                }
                self.shared.beaten();
                if holds {
                    self.hold_on(conn, agenda, asked).await?;
                } else if self
                    .shared
                    .is_to_look(self.policy.lease().max(LOOK_AT_CLAIMS))
                {
                    self.look_for_claims(conn, asked).await?;
                }
            }
            Orders::Dead => {
                let old = self.replace_id();
                let in_time = self.shared.since_beat() < self.policy.lease() / 2;
                process::register_anew(conn, &self.row, old).await?;
                events::declared_dead(old, self.row.id, in_time);
                self.shared.replace_identity(self.row.id);
                self.shared.beaten();
                self.shared.wake.notify_one();
                // The new row says that it takes work, although it does not, until the next heartbeat.
                if self.shared.mode() != Mode::Run {
                    self.shared.check.notify_one();
                }
                return Ok(Beat::Dead);
            }
        }
        Ok(Beat::Written)
    }

    /// Asks for claims of a process that holds none, as far as it knows: its own heartbeats would keep them for it for
    /// ever. Proven by `a_claim_that_its_process_does_not_know_is_given_back`.
    async fn look_for_claims(&self, conn: &mut Conn, asked: Instant) -> Result<(), Error> {
        let claims = process::claims(conn, self.shared.process(), self.row.role).await;
        if let Some(claims) = bearable(claims)? {
            self.shared.found(claims.into_iter(), asked);
        }
        Ok(())
    }

    /// RACE: somebody keeps everybody from writing. As long as we cannot write, nobody else's
    /// silence is a sign of death, and the first to write afterwards may be this process, with a
    /// sweep. So the second witness starts afresh whenever a beat could not be written. Raced by
    /// `a_lock_that_outlasts_two_leases_costs_nobody_anything_and_its_holder_is_named` and
    /// `heartbeats_that_the_database_refuses_are_nobodys_death`.
    fn forget(&mut self) {
        if let Some((sweeper, _)) = &mut self.sweeper {
            sweeper.forget();
        }
    }

    /// Gives the row a new id; returns the old one.
    fn replace_id(&mut self) -> ProcessId {
        let id = ProcessId::new();
        std::mem::replace(&mut self.row.id, id)
    }
}

/// How a heartbeat ended.
pub enum Beat {
    /// It is in the database.
    Written,
    /// The process had been declared dead, and has registered anew.
    Dead,
    /// Somebody else has locked the process's row, or SQLite's file. That is no sign of death, and no error.
    Waits,
    /// The process stands still, so it may not look alive.
    Withheld,
}

/// The process whose row reports a trouble, and the text of the trouble.
#[derive(Default)]
struct Reported(Option<(ProcessId, String)>);

/// Reports in the process's row what keeps it from making progress, unless the row says so already.
async fn report_trouble(
    conn: &mut Conn,
    shared: &Shared,
    reported: &mut Reported,
) -> Result<(), Error> {
    let process = shared.process();
    let trouble = shared.troubled();
    let now = trouble
        .as_ref()
        .map(|trouble| (process, trouble.text.clone()));
    if now == reported.0 {
        return Ok(());
    }
    let trouble = trouble.as_ref();
    let trouble = trouble.map(|Lasting { text, lasted }| (text.as_str(), *lasted));
    process::report_trouble(conn, process, trouble).await?;
    reported.0 = now;
    Ok(())
}

/// The waiting request, or else the next one that comes.
async fn next(
    waiting: &mut Option<Request>,
    requests: &mut mpsc::UnboundedReceiver<Request>,
) -> Option<Request> {
    match waiting.take() {
        Some(request) => Some(request),
        None => requests.recv().await,
    }
}

/// A lifeline's plans, and the requests that it has not answered yet.
struct Agenda {
    beat: tokio::time::Instant,
    sweep: tokio::time::Instant,
    /// When to connect again.
    retry: tokio::time::Instant,
    /// When the session began.
    opened: Instant,
    /// When a connection was lost last.
    lost: Option<Instant>,
    /// The session is to be replaced.
    is_worn: bool,
    /// Writes that could not get their locks, and those of the same runs that came after them.
    later: VecDeque<Request>,
    /// When the first of them is tried again.
    again: tokio::time::Instant,
    /// The request that followed a request for a sweep.
    waiting: Option<Request>,
    /// The callers that wait for the end of a sweep.
    asked: Vec<oneshot::Sender<()>>,
    reported: Reported,
    /// Whether it was somebody else's lock.
    hindered: Growing<bool>,
    /// The texts of errors.
    failed: Growing<String>,
    keeping: Keeping,
    writing: Writing,
    look: tokio::time::Instant,
    /// Somebody holds a lock that the last beat needed, and that was logged.
    beat_waits: bool,
}

impl Agenda {
    fn new(is_first: bool) -> Self {
        let now = tokio::time::Instant::now();
        Self {
            beat: now,
            sweep: now,
            retry: now,
            opened: Instant::now(),
            lost: None,
            is_worn: false,
            later: VecDeque::new(),
            again: now,
            waiting: None,
            asked: Vec::new(),
            reported: Reported::default(),
            hindered: Growing::default(),
            failed: Growing::default(),
            keeping: Keeping::default(),
            writing: Writing::new(is_first),
            look: now,
            beat_waits: false,
        }
    }

    /// The database's environment may refuse an old session what it allows a new one: a session keeps the settings of
    /// its role and database with which it began. Proven by
    /// `a_heartbeat_that_only_its_session_is_refused_is_sent_by_another`.
    fn wear(&mut self, error: &Error, policy: &Policy) {
        self.is_worn |= error.is_of_environment() && self.opened.elapsed() > policy.beat_interval();
    }
}

enum Next {
    Stop,
    Beat,
    Answer(Request),
    /// A request that could not get its lock.
    Again(Request),
    Sweep,
    /// A look for work that was left half done.
    Look,
    Write,
    Heard(Result<String, Error>),
}

/// A write that could not be done, and the reason.
type Undone = (Request, Error);

/// Answers a request; returns a write that somebody else's lock, or an obstacle in the database, keeps out.
async fn answer(conn: &mut Conn, request: Request) -> Result<Option<Undone>, Error> {
    /// Sends the answer, whether or not anybody still waits for it; keeps an error that breaks the link.
    fn send<T>(reply: Reply<T>, answer: Result<T, Error>) -> Result<Option<Undone>, Error> {
        let broken = answer
            .as_ref()
            .err()
            .filter(|error| error.is_unavailable())
            .cloned();
        let _ = reply.send(answer);
        broken.map_or(Ok(None), Err)
    }

    match request {
        Request::Get(run, key, reply) => {
            let tuple = context::get(conn, run, &key).await;
            send(reply, tuple.and_then(|tuple| tuple.map(value).transpose()))
        }
        Request::Set(writer, key, value, reply) => {
            match context::set_as(conn, writer, &key, value.get()).await {
                Err(error) if error.is_not_now() && !conn.is_broken() => {
                    Ok(Some((Request::Set(writer, key, value, reply), error)))
                }
                set => send(reply, set),
            }
        }
        Request::List(run, after, reply) => {
            let entry = |tuple: context::Tuple| Ok((tuple.key.clone(), value(tuple)?));
            let tuples = context::list(conn, run, &after).await;
            send(
                reply,
                tuples.and_then(|tuples| tuples.into_iter().map(entry).collect()),
            )
        }
        Request::Notify(payload) => conn.notify(CHANNEL, &payload).await.map(|()| None),
        Request::AnyWork(pipelines, reply) => send(
            reply,
            crate::store::any_work(conn, pipelines.as_deref()).await,
        ),
        Request::Schema(reply) => send(reply, migrate::newer(conn).await),
        Request::Prune(_) | Request::Sweep(_) => Ok(None),
    }
}

fn value(tuple: context::Tuple) -> Result<Box<RawValue>, Error> {
    RawValue::from_string(tuple.value)
        .map_err(|error| Error::Corrupt(format!("a tuple is not JSON: {error}")))
}
