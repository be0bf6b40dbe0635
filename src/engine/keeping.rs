//! Work that may take long and that no turn of a loop does: deleting runs whose retention is over,
//! finishing cancellations and deletions that were left half done, and deciding questions that nobody
//! has answered in time.
//!
//! Owns: its pace, and a connection of its own, which is open only during this work: no heartbeat
//! waits for it ([ADR 20](docs/adr/0020-wide-runs-part-by-part.md)). Never: claims work.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::machine::stuck::UNKEPT;
use crate::machine::why::LOCKED;
use crate::model::RunId;
use crate::store::cancel::{self, Cancelling};
use crate::store::cursor::Cursor;
use crate::store::prune::{self, Pruning};
use crate::store::resume::Deadlines;
use crate::store::{Conn, Error, Location, Purpose};
use crate::task;
use crate::telemetry::events;

use super::shared::Shared;
use super::trouble::Trouble;

/// How often the number of deleted runs is logged while the deletion goes on.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Old runs may take hours to delete, and wide runs minutes to cancel. Each of the two has a turn of this length, and
/// between two turns deadlines are passed.
const TURN: Duration = Duration::from_secs(5);

// Nobody takes over a cancellation that only waits for the other two turns.
const _: () = assert!(2 * TURN.as_secs() < cancel::PAUSES_FOR.as_secs());

/// The task that does this work, one at a time.
#[derive(Default)]
pub struct Keeping {
    task: Option<JoinHandle<()>>,
    stopped: Rc<Stopped>,
    places: Rc<RefCell<Places>>,
    /// The last look without and the last one with retention lost their connection.
    lost: [bool; 2],
}

/// The places after which the next look begins. Work that cannot be done now lies before these places, so it never
/// hides the work behind them. Once a look has reached the end, the next one begins at the start again.
#[derive(Clone, Copy, Debug)]
struct Places {
    deadlines: Cursor,
    cancellations: Cursor,
    deletions: prune::Places,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            deadlines: Cursor::FIRST,
            cancellations: Cursor::FIRST,
            deletions: prune::Places::default(),
        }
    }
}

/// The request to stop. A pause ends with it: the process removes its row only after this task has ended. Proven by
/// `a_stop_does_not_wait_for_the_pause_of_a_slow_deletion`.
#[derive(Default)]
struct Stopped {
    is: Cell<bool>,
    wakes: Notify,
}

impl Stopped {
    fn set(&self) {
        self.is.set(true);
        self.wakes.notify_one();
    }

    fn is_set(&self) -> bool {
        self.is.get()
    }

    /// Waits for it for this long.
    async fn within(&self, pause: Duration) {
        if !self.is_set() {
            let _ = tokio::time::timeout(pause, self.wakes.notified()).await;
        }
    }
}

impl Keeping {
    /// Begins, unless the task is running: deletes runs that ended longer ago than `retention`, if
    /// that is given, and finishes cancellations that nobody continues.
    pub fn begin(
        &mut self,
        shared: &Arc<Shared>,
        location: &Location,
        retention: Option<Duration>,
        lease: Duration,
    ) {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (shared, location) = (Arc::clone(shared), location.clone());
        let (stopped, places) = (Rc::clone(&self.stopped), Rc::clone(&self.places));
        self.task = Some(task::local(async move {
            let mut reached = *places.borrow();
            keep(
                &shared,
                &location,
                retention,
                cancel::left_after(lease),
                &stopped,
                &mut reached,
            )
            .await;
            *places.borrow_mut() = reached;
        }));
    }

    /// Reports the outcome of the lifeline's look for this work.
    pub fn looked(
        &mut self,
        shared: &Shared,
        retention: Option<Duration>,
        left: &Result<bool, Error>,
    ) {
        if self.reports(retention, left) {
            keeps(shared, retention, left);
        }
    }

    /// RACE: whichever statement meets an outage first is refused by it, and the lifeline reports the outage. A look that
    /// loses one connection after the other is no victim, and is reported. Raced by
    /// `work_goes_on_after_any_connection_of_a_daemon_has_gone_silent`.
    fn reports(&mut self, retention: Option<Duration>, left: &Result<bool, Error>) -> bool {
        let is_lost = left.as_ref().is_err_and(Error::is_unavailable);
        let lost = &mut self.lost[usize::from(retention.is_some())];
        let was_lost = std::mem::replace(lost, is_lost);
        match left {
            // The work reports its own errors.
            Ok(true) => false,
            _ => !is_lost || was_lost,
        }
    }

    /// Lets the current transaction end, and no other begin.
    pub async fn stop(self) {
        self.stopped.set();
        if let Some(task) = self.task {
            let _ = task.await;
        }
    }
}

/// Reports that this work fails, or that it no longer does. Looks with and without retention take turns, and the success
/// of the one says nothing about the other. The next look finds the rest.
pub fn keeps<T>(shared: &Shared, retention: Option<Duration>, kept: &Result<T, Error>) {
    let about = about(retention);
    match kept {
        Err(error) => shared.trouble(Trouble::Keeping, about, &told(error)),
        Ok(_) => shared.over(Trouble::Keeping, about),
    }
}

/// The words for this failure. Where somebody has locked a row, the other rows were taken, and the remedy is another.
fn told(error: &Error) -> String {
    let why = crate::telemetry::chain(error);
    match error.is_lock_wait() {
        true => format!("{UNKEPT}: they {LOCKED}: {why}"),
        false => format!("{UNKEPT}: {why}"),
    }
}

fn about(retention: Option<Duration>) -> &'static str {
    match retention {
        Some(_) => "with retention",
        None => "",
    }
}

async fn keep(
    shared: &Shared,
    location: &Location,
    retention: Option<Duration>,
    left_after: Duration,
    stopped: &Stopped,
    places: &mut Places,
) {
    let mut conn = match location.connect(Purpose::Engine).await {
        Ok(conn) => conn,
        Err(error) => return keeps(shared, retention, &Err::<(), _>(error)),
    };
    let mut cancelling = Cancellations::default();
    let mut deleting = Deleting::new(retention, places.deletions);
    let mut failed = Ok(());
    loop {
        let mut turn = Turn {
            left_after,
            stopped,
            failed: &mut failed,
        };
        let worked = turn.work(&mut conn, places, &mut cancelling, &mut deleting);
        let worked = worked.await;
        let (more, kept) = match worked {
            Ok((more, Ok(()))) => (more, failed.clone().and_then(|()| cancelling.reason())),
            Ok((more, undecided)) => (more, undecided),
            Err(error) => (false, Err(error)),
        };
        // Only at its end does a deletion say that it has passed over runs: until then, no trouble is known to be over.
        if kept.is_err() || !more {
            keeps(shared, retention, &kept);
        }
        if !more {
            break;
        }
    }
    conn.close().await;
}

/// The cancellations that this task finishes.
#[derive(Default)]
struct Cancellations {
    under_way: VecDeque<Cancelling>,
    /// When those that could not go on were last tried, and why they could not.
    failed: HashMap<RunId, (Instant, Error)>,
}

/// At most this many cancellations go on in turns: then a turn is long enough for one transaction of each, and none stands
/// still for as long as an abandoned one does.
const TOGETHER: usize = 10;

/// The time after which one that could not go on is tried again, if it still has to be finished.
const TRIED_AGAIN: Duration = Duration::from_secs(15);

impl Cancellations {
    /// How many more may go on.
    fn room(&self) -> usize {
        TOGETHER.saturating_sub(self.under_way.len())
    }

    fn add(&mut self, runs: Vec<RunId>) {
        self.failed
            .retain(|_, (tried, _)| tried.elapsed() < TRIED_AGAIN);
        for run in runs {
            let is_known = self.under_way.iter().any(|it| it.run_id == run);
            if !is_known && !self.failed.contains_key(&run) {
                let cancelling = Cancelling::of(run, cancel::BATCH);
                self.under_way.push_back(cancelling);
            }
        }
    }

    /// Why one of them could not go on; a reason other than somebody's lock comes first.
    fn reason(&self) -> Result<(), Error> {
        let errors = || self.failed.values().map(|(_, error)| error);
        let other = errors().find(|error| !matches!(error, Error::Retryable { .. }));
        match other.or_else(|| errors().next()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// One round of this work.
struct Turn<'a> {
    /// The time after which nobody continues a cancellation.
    left_after: Duration,
    stopped: &'a Stopped,
    /// The first error of the deletions, or of a look for cancellations. A later error replaces it only if somebody's lock was
    /// its cause.
    failed: &'a mut Result<(), Error>,
}

impl Turn<'_> {
    /// Passes all deadlines, then cancels for one turn and deletes for one turn. Returns whether more work is left, and
    /// the error of the deadlines. As long as the database can be reached, a job that fails holds up no other job, and
    /// neither does a cancellation that waits for somebody's lock.
    async fn work(
        &mut self,
        conn: &mut Conn,
        places: &mut Places,
        cancelling: &mut Cancellations,
        deleting: &mut Deleting,
    ) -> Result<(bool, Result<(), Error>), Error> {
        let decided = match pass_deadlines(conn, self.stopped, &mut places.deadlines).await {
            Err(error) if error.is_unavailable() => return Err(error),
            decided => decided,
        };
        if let room @ 1.. = cancelling.room() {
            let found = cancel::unfinished(conn, self.left_after, places.cancellations, room);
            match found.await {
                Ok((runs, next)) => {
                    places.cancellations = next;
                    cancelling.add(runs);
                }
                Err(error) => {
                    // This task does not look again at once.
                    places.cancellations = Cursor::FIRST;
                    self.then(Err(error))?;
                }
            }
        }
        let until = Instant::now() + TURN;
        // Each has a share of the turn, so that none stands still for as long as an abandoned one does.
        let shares = u32::try_from(cancelling.under_way.len().max(1)).unwrap_or(u32::MAX);
        while !self.stopped.is_set()
            && Instant::now() < until
            && let Some(mut first) = cancelling.under_way.pop_front()
        {
            let share = until.min(Instant::now() + TURN / shares);
            match go_on(conn, &mut first, self.stopped, share).await {
                Ok(true) => cancelling.under_way.push_back(first),
                Ok(false) => {}
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    let failed = (Instant::now(), error);
                    cancelling.failed.insert(first.run_id, failed);
                }
            }
        }
        let deleted = deleting.turn(conn, self.stopped).await;
        places.deletions = deleting.pruning.places;
        let deletes = match deleted {
            Ok(more) => more,
            Err(error) => self.then(Err(error)).map(|()| false)?,
        };
        // Behind this place, the next look may find others.
        let cancels = !cancelling.under_way.is_empty() || places.cancellations != Cursor::FIRST;
        let more = !self.stopped.is_set() && (deletes || cancels);
        Ok((more, decided))
    }

    fn then(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        match done {
            Err(error) if error.is_unavailable() => Err(error),
            done => {
                if matches!(self.failed, Ok(()) | Err(Error::Retryable { .. })) && done.is_err() {
                    *self.failed = done;
                }
                Ok(())
            }
        }
    }
}

async fn pass_deadlines(
    conn: &mut Conn,
    stopped: &Stopped,
    place: &mut Cursor,
) -> Result<(), Error> {
    let mut deadlines = Deadlines::behind(*place);
    loop {
        let passed = deadlines.step(conn).await;
        *place = deadlines.place;
        let passed = passed?;
        if passed.approved + passed.halted > 0 {
            events::deadlines_passed(passed.approved, passed.halted);
        }
        if stopped.is_set() {
            return Ok(());
        }
        if !passed.more {
            *place = Cursor::FIRST;
            return deadlines.end();
        }
    }
}

/// Continues a cancellation for its share of the turn. True if more of it is left. A cancellation that has closed
/// nothing, as a rule because somebody has locked rows of its run, is left to the next look, and the result is the
/// reason.
async fn go_on(
    conn: &mut Conn,
    cancelling: &mut Cancelling,
    stopped: &Stopped,
    until: Instant,
) -> Result<bool, Error> {
    let before = cancelling.closed;
    loop {
        let (asked, closed) = (Instant::now(), cancelling.closed);
        if cancelling.step(conn).await?.is_some() {
            events::cancellation_finished(cancelling.run_id);
            return Ok(false);
        }
        // A run that cannot be closed yet is not asked for all the time; but a wait for somebody's lock is no work after which
        // others need the database.
        let rest = match cancelling.closed > closed {
            true => pause(asked.elapsed()).max(cancel::AGAIN),
            false => cancel::AGAIN,
        };
        stopped.within(rest).await;
        if stopped.is_set() {
            return Ok(false);
        }
        if Instant::now() >= until {
            break;
        }
    }
    match cancelling.closed > before {
        true => Ok(true),
        false => Err(cancelling.reason()),
    }
}

/// A deletion of old runs, turn by turn.
struct Deleting {
    pruning: Pruning,
    by_retention: bool,
    /// How many deleted runs were logged, and when.
    reported: (u64, Instant),
}

impl Deleting {
    fn new(retention: Option<Duration>, behind: prune::Places) -> Self {
        Self {
            pruning: Pruning::of(retention, u64::MAX).behind(behind),
            by_retention: retention.is_some(),
            reported: (0, Instant::now()),
        }
    }

    /// Deletes for a turn. True where there may be more to delete.
    async fn turn(&mut self, conn: &mut Conn, stopped: &Stopped) -> Result<bool, Error> {
        let began = Instant::now();
        let mut more = true;
        while more && !stopped.is_set() && began.elapsed() < TURN {
            let asked = Instant::now();
            more = self.pruning.step(conn).await?;
            stopped.within(pause(asked.elapsed())).await;
            let (before, at) = self.reported;
            let due = at.elapsed() >= REPORT_EVERY || !more || stopped.is_set();
            if due && self.pruning.runs > before {
                events::pruned(self.pruning.runs - before, self.by_retention);
                self.reported = (self.pruning.runs, Instant::now());
            }
        }
        Ok(more && !stopped.is_set())
    }
}

/// The pause after a transaction of this work: three times as long as the transaction took. So three quarters of the
/// database's time are left to the engine, and still more than half as many runs can be deleted as are created
/// meanwhile (`bench retention`).
pub(crate) fn pause(took: Duration) -> Duration {
    took * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Pipeline;
    use crate::engine::actor::Actor;
    use crate::model::{ProcessId, RunStatus};
    use crate::store::statement::Statement;
    use crate::store::{migrate, query};

    #[test]
    fn a_look_is_reported_that_loses_one_connection_after_the_other() {
        let away = || Err(Error::too_late(Duration::from_secs(1)));
        let retention = Some(Duration::from_secs(1));
        let mut keeping = Keeping::default();
        let mut is_told = |retention, left| keeping.reports(retention, &left);
        assert!(!is_told(None, away()), "the lifeline reports an outage");
        assert!(!is_told(retention, away()), "another look");
        assert!(is_told(None, away()) && is_told(None, away()));
        assert!(is_told(None, Ok(false)), "that trouble is over");
        assert!(!is_told(None, away()), "another outage");
        assert!(is_told(retention, away()));
        assert!(!is_told(retention, Ok(true)) && !is_told(retention, away()));
        let refused = || Err(Error::Corrupt("a row".to_owned()));
        assert!(is_told(None, refused()), "no outage");
        assert!(!is_told(None, away()), "an outage after it");
    }

    static ABANDONED: Statement = Statement::new(
        "TEST_ABANDONED",
        "UPDATE ductwork_runs SET cancelling_at = 5",
    );

    /// As many as one look finds cannot go on, and these come first.
    #[tokio::test]
    async fn cancellations_that_cannot_go_on_hold_up_none_behind_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let location = Location::sqlite(directory.path().join("t.db"));
        let conn = location.connect(Purpose::Engine).await;
        let mut conn = conn.expect("a file of its own");
        migrate::migrate(&mut conn).await.expect("a new schema");
        let actor = Actor::register(conn, "here", Duration::from_secs(30));
        let mut actor = actor.await.expect("a process");
        let mut runs = Vec::new();
        for (pipeline, n) in [("Held", 10), ("Free", 2)] {
            let definition = Pipeline::named(pipeline).start("A").build();
            let definition = definition.expect("a definition");
            for _ in 0..n {
                let run = actor.trigger(&definition, "1").await;
                runs.push((pipeline, run.expect("a run")));
            }
        }
        let conn = &mut actor.conn;
        let abandoned = conn.execute(&ABANDONED, &[]).await;
        assert_eq!(abandoned.expect("all of them"), 12);
        let held =
            "CREATE TRIGGER held BEFORE UPDATE ON ductwork_branches WHEN NEW.pipeline = 'Held'
                    BEGIN SELECT RAISE(ABORT, 'it is held'); END";
        conn.script("HELD", held).await.expect("a trigger");
        let shared = Shared::new(ProcessId::new());
        let (stopped, mut places) = (Stopped::default(), Places::default());
        let lease = Duration::from_secs(30);
        keep(&shared, &location, None, lease, &stopped, &mut places).await;
        for (pipeline, run) in runs {
            let state = query::run_state(conn, run).await.expect("an answer");
            let expected = match pipeline {
                "Held" => RunStatus::InProgress,
                _ => RunStatus::Cancelled,
            };
            assert_eq!(state.expect("the run").status, expected, "{pipeline}");
        }
    }
}
