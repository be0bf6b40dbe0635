//! The state that the tasks of one process share: its identity, its work, its mode.
//!
//! Owns: the process's present incarnation, its counters, the list of its claims.
//! Never: touches the database.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::machine::why::LOCKED;
use crate::metrics::Own;
use crate::model::{ExecutionId, ProcessId};
use crate::step::{Assignment, StopCause};
use crate::store::Error;
use crate::store::definition::Definitions;
use crate::store::process::Counters;
use crate::telemetry::Note;

use super::trouble::{Lasting, Trouble, Troubles};

/// The mode of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Claim and work.
    Run,
    /// Claim nothing, finish what is in flight, and wait.
    Quiet,
    /// Claim nothing, finish what is in flight until the deadline, end the rest, and stop.
    Drain {
        /// When the rest is to be ended.
        until: Instant,
        /// The cause that ended steps are given.
        cause: StopCause,
    },
}

/// The longest that work from another host waits when the database notifies nobody of it.
const UNHEARD: Duration = Duration::from_millis(250);

/// The time between two looks for work while no wakeup comes: as configured, but at most `UNHEARD` while there are
/// processes whose wakeups do not come here.
fn polls(configured: Duration, unheard: bool) -> Duration {
    match unheard {
        true => configured.min(UNHEARD),
        false => configured,
    }
}

/// Longer than any drain.
const RESTS: Duration = Duration::from_secs(365 * 24 * 3600);

/// The state that the tasks of a process share.
pub struct Shared {
    state: Mutex<State>,
    mode: watch::Sender<Mode>,
    /// Wakes the loop: there may be work.
    pub wake: Notify,
    /// Wakes the lifeline: this process was declared dead, or must check its claims at once.
    pub check: Notify,
    counters: AtomicCounters,
    /// A worker's slots.
    slots: OnceLock<u64>,
    /// Counts, for metrics.
    pub counts: Arc<Own>,
    /// The loop may hold something that is not in `state`.
    holding: AtomicBool,
    /// There are processes whose wakeups do not come here.
    unheard: AtomicBool,
    troubles: Mutex<Troubles>,
    /// Called with each new incarnation.
    on_new_identity: OnceLock<Box<dyn Fn(ProcessId) + Send + Sync>>,
}

struct State {
    process: ProcessId,
    held: HashMap<ExecutionId, HeldExecution>,
    /// The claims that the database attributes to this process and that are not in `held`, and when each was first
    /// found: executions of a worker, branches of an advancer. The loop knows them, or nobody does.
    others: HashMap<uuid::Uuid, Instant>,
    /// When a heartbeat last asked for the claims.
    looked: Instant,
    /// The loop's last sign of progress.
    progress: Instant,
    /// The last heartbeat that was written.
    beat: Instant,
    /// Whether the last heartbeat found the pipeline paused.
    paused: bool,
    /// The value that a heartbeat has set in `paused`, until the loop has taken note of it.
    told: Option<bool>,
}

/// An execution that this process has claimed.
pub struct HeldExecution {
    /// The step.
    pub assignment: Arc<Assignment>,
    /// Since when it is held.
    pub since: Instant,
    /// Since when it runs; until then it waits for a slot.
    pub started: Option<Instant>,
    /// The pid of its command.
    pub pid: Option<u32>,
    stop: watch::Sender<Option<StopCause>>,
}

impl HeldExecution {
    /// Tells the step to end; true if nobody has told it before. A step that is to end at once gets no time back.
    fn end(&self, cause: StopCause) -> bool {
        let mut is_new = false;
        self.stop.send_if_modified(|told| {
            is_new = told.is_none();
            let changes = *told != Some(StopCause::Abandon);
            if changes {
                *told = Some(cause);
            }
            changes
        });
        is_new
    }
}

#[derive(Default)]
struct AtomicCounters {
    claimed: AtomicU64,
    succeeded: AtomicU64,
    errored: AtomicU64,
    crashed: AtomicU64,
    advanced: AtomicU64,
    stale: AtomicU64,
    statements: AtomicU64,
}

impl Shared {
    /// The state of a process that has just started.
    pub fn new(process: ProcessId) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            state: Mutex::new(State {
                process,
                held: HashMap::new(),
                others: HashMap::new(),
                looked: now,
                progress: now,
                beat: now,
                paused: false,
                told: None,
            }),
            mode: watch::Sender::new(Mode::Run),
            wake: Notify::new(),
            check: Notify::new(),
            counters: AtomicCounters::default(),
            slots: OnceLock::new(),
            counts: Arc::default(),
            holding: AtomicBool::new(false),
            unheard: AtomicBool::new(false),
            troubles: Mutex::default(),
            on_new_identity: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Code that holds the lock does no more than assign, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present incarnation.
    pub fn process(&self) -> ProcessId {
        self.state().process
    }

    /// Registers a callback that receives each new incarnation before that can claim anything.
    pub fn announce(&self, to: impl Fn(ProcessId) + Send + Sync + 'static) {
        let _once = self.on_new_identity.set(Box::new(to));
    }

    /// Becomes a new incarnation: all held executions belonged to the old one, which is dead, so
    /// they are ended. Their results would match no row.
    pub fn replace_identity(&self, process: ProcessId) {
        if let Some(announce) = self.on_new_identity.get() {
            announce(process);
        }
        self.counts.begin_anew();
        let mut state = self.state();
        state.process = process;
        state.others.clear();
        for held in state.held.values() {
            held.end(StopCause::Cancel);
        }
    }

    /// The mode of the process.
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    /// Follows the mode of the process.
    pub fn modes(&self) -> watch::Receiver<Mode> {
        self.mode.subscribe()
    }

    /// Sets the mode of the process; a heartbeat shows it at once.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
        self.wake.notify_one();
        self.check.notify_one();
    }

    /// Takes note of an execution that was claimed; returns the channel by which it is told to stop.
    pub fn hold(&self, assignment: Arc<Assignment>) -> watch::Receiver<Option<StopCause>> {
        let (stop, stopped) = watch::channel(None);
        let held = HeldExecution {
            since: Instant::now(),
            started: None,
            pid: None,
            stop,
            assignment,
        };
        let id = held.assignment.execution_id;
        self.state().held.insert(id, held);
        stopped
    }

    /// Takes note of an execution that starts.
    pub fn started(&self, execution: ExecutionId) {
        if let Some(held) = self.state().held.get_mut(&execution) {
            held.started = Some(Instant::now());
        }
    }

    /// The assignments of the executions that run at the moment.
    pub fn at_work(&self) -> Vec<Arc<Assignment>> {
        let state = self.state();
        let started = state.held.values().filter(|held| held.started.is_some());
        started.map(|held| Arc::clone(&held.assignment)).collect()
    }

    /// Takes note of how many executions may run at once.
    pub fn set_slots(&self, slots: u64) {
        let _once = self.slots.set(slots);
    }

    /// How many executions may run at once, and how many do run; none for a process that never runs any.
    pub fn slots(&self) -> Option<(u64, u64)> {
        let slots = *self.slots.get()?;
        let state = self.state();
        let busy = state.held.values().filter(|held| held.started.is_some());
        Some((slots, busy.count() as u64))
    }

    /// Takes note of the pid of an execution's command.
    pub fn set_pid(&self, execution: ExecutionId, pid: u32) {
        if let Some(held) = self.state().held.get_mut(&execution) {
            held.pid = Some(pid);
        }
    }

    /// True once it has one.
    pub fn has_pid(&self, execution: ExecutionId) -> bool {
        let state = self.state();
        state
            .held
            .get(&execution)
            .is_some_and(|held| held.pid.is_some())
    }

    /// Ends an execution at once: it is another's.
    pub fn abandon(&self, execution: ExecutionId) {
        if let Some(held) = self.state().held.get(&execution) {
            held.end(StopCause::Abandon);
        }
    }

    /// Takes note of an execution whose result was taken, or that was put back.
    pub fn let_go(&self, execution: ExecutionId) {
        self.state().held.remove(&execution);
    }

    /// True while there may be claims whose leases a heartbeat has to extend.
    pub fn holds(&self) -> bool {
        self.holding.load(Ordering::Relaxed) || !self.state().held.is_empty()
    }

    /// True when a heartbeat has to ask for the claims although none is known: nobody has asked for this long, or claims
    /// were found that may be unknown.
    pub fn is_to_look(&self, every: Duration) -> bool {
        let state = self.state();
        state.looked.elapsed() >= every || !state.others.is_empty()
    }

    /// Takes note of the claims that a heartbeat has found, when it asked for them at this time.
    pub fn found(&self, claims: impl Iterator<Item = uuid::Uuid>, asked: Instant) {
        let mut state = self.state();
        state.looked = asked;
        let State { held, others, .. } = &mut *state;
        let before = std::mem::take(others);
        let unknown = claims.filter(|id| !held.contains_key(&ExecutionId(*id)));
        others.extend(unknown.map(|id| (id, before.get(&id).copied().unwrap_or(asked))));
    }

    /// True while the heartbeats find claims that are not known here.
    pub fn has_others(&self) -> bool {
        !self.state().others.is_empty()
    }

    /// Those of the found claims that have not been known here for this long. The caller's loop may know them, or has
    /// given them away since.
    pub fn take_others(&self, after: Duration) -> Vec<uuid::Uuid> {
        let mut state = self.state();
        let is_old = |_: &uuid::Uuid, first: &mut Instant| first.elapsed() >= after;
        let old = state.others.extract_if(is_old);
        old.map(|(claim, _)| claim).collect()
    }

    /// Takes note of whether the loop may hold something besides the executions that are known here.
    pub fn set_holding(&self, holding: bool) {
        self.holding.store(holding, Ordering::Relaxed);
    }

    /// Ends everything that runs.
    pub fn stop_all(&self, cause: StopCause) {
        for held in self.state().held.values() {
            held.end(cause);
        }
    }

    /// Ends the executions that run here although the database says that they are not ours any
    /// more, of those that were held before `asked`, when the database was asked. Returns how many
    /// it ended.
    pub fn stop_all_but(&self, ours: &[ExecutionId], asked: Instant) -> usize {
        let state = self.state();
        let lost = state
            .held
            .iter()
            .filter(|(id, held)| held.since < asked && !ours.contains(id));
        lost.filter(|(_, held)| held.end(StopCause::Cancel)).count()
    }

    /// The loop's sign that work is progressing.
    pub fn progress(&self) {
        self.state().progress = Instant::now();
    }

    /// The loop has ended: no more signs will come, and none are missed.
    pub fn rest(&self) {
        self.state().progress = Instant::now() + RESTS;
    }

    /// Since the loop's last sign of progress.
    pub fn since_progress(&self) -> Duration {
        self.state().progress.elapsed()
    }

    /// Takes note of a heartbeat that was written.
    pub fn beaten(&self) {
        self.state().beat = Instant::now();
    }

    /// Takes note of whether a heartbeat found the pipeline paused, and wakes the loop if that has changed.
    pub fn tell(&self, paused: bool) {
        let mut state = self.state();
        let is_new = std::mem::replace(&mut state.paused, paused) != paused;
        state.told = Some(paused);
        drop(state);
        if is_new {
            self.wake.notify_one();
        }
    }

    /// False when no step may begin: the process is to end or to claim nothing, or a heartbeat has found the pipeline
    /// paused and the loop, which puts back what waits, has not taken that yet.
    pub fn may_begin(&self) -> bool {
        self.mode() == Mode::Run && self.state().told != Some(true)
    }

    /// Whether the pipeline is paused, if a heartbeat has reported it since the last call.
    pub fn take_told(&self) -> Option<bool> {
        self.state().told.take()
    }

    /// Takes note of whether there are processes whose wakeups do not come here, and wakes the loop if that is
    /// new: it may be in the middle of a long wait.
    pub fn set_unheard(&self, unheard: bool) {
        let before = self.unheard.swap(unheard, Ordering::Relaxed);
        if unheard && !before {
            self.wake.notify_one();
        }
    }

    /// The time between two looks for work while no wakeup comes.
    pub fn polls(&self, configured: Duration) -> Duration {
        polls(configured, self.unheard.load(Ordering::Relaxed))
    }

    /// Since the last heartbeat that was written.
    pub fn since_beat(&self) -> Duration {
        self.state().beat.elapsed()
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a row that cannot be claimed out of the next claims, for a while, and says so. False if too many are left
    /// out.
    pub fn leaves_out(
        &self,
        definitions: &Definitions,
        row: &str,
        id: uuid::Uuid,
        error: &Error,
    ) -> bool {
        let why = crate::telemetry::chain(error);
        let text = format!(
            "{row} cannot be claimed: {why}; `ductworkd audit` tells what is wrong with it"
        );
        self.trouble(Trouble::Damaged, row, &text);
        definitions.leave_out(id).is_zero()
    }

    /// Takes note of something that keeps the process from making progress, and logs it if it is time to.
    pub fn trouble(&self, trouble: Trouble, about: &str, text: &str) {
        self.troubles().meet(trouble, about, text, Instant::now());
    }

    /// The same for one that had lasted since this time if it was unknown.
    pub fn trouble_since(&self, first: Instant, trouble: Trouble, text: &str) {
        let times = [first, Instant::now()];
        self.troubles().meet_since(trouble, "", text, times);
    }

    /// Takes note of the rows that somebody has locked, and for which `about` wait: one line of the log for all of them,
    /// because a transaction may have locked very many. If there are none, that trouble is over. `then` says what happens
    /// to `about` when the transaction ends.
    pub fn locked<T: Display>(&self, about: &str, rows: impl IntoIterator<Item = T>, then: &str) {
        let mut rows = rows.into_iter();
        let Some(first) = rows.next() else {
            return self.over(Trouble::Locked, about);
        };
        let now = 1 + rows.count();
        let text = format!(
            "{about} {LOCKED} (now: {now}; the first is {first}): {then} when its transaction ends"
        );
        self.trouble(Trouble::Locked, about, &text);
    }

    /// Takes note of a connection that cannot be used. It concerns nobody unless this process can write its heartbeats
    /// meanwhile, by another connection: without them, its row tells enough, and the first heartbeat after the outage ends
    /// this trouble.
    pub fn cannot_reach(&self, error: &Error) {
        let text = crate::telemetry::chain(error);
        self.trouble(Trouble::Reaching, "", &text);
    }

    /// That trouble is over.
    pub fn over(&self, trouble: Trouble, about: &str) {
        self.troubles().over(trouble, about);
    }

    /// The database can be reached again: the troubles that its absence may have caused are over. Another one is met again.
    pub fn back(&self) {
        let mut troubles = self.troubles();
        for trouble in [Trouble::Reaching, Trouble::Keeping, Trouble::Refused] {
            troubles.all_over(trouble);
        }
    }

    /// The trouble that has kept the process from making progress for a while.
    pub fn troubled(&self) -> Option<Lasting> {
        self.troubles().longest(Instant::now())
    }

    /// Adds to the counters.
    pub fn count(&self, more: Counters) {
        let counters = &self.counters;
        for (counter, more) in [
            (&counters.claimed, more.claimed),
            (&counters.succeeded, more.succeeded),
            (&counters.errored, more.errored),
            (&counters.crashed, more.crashed),
            (&counters.advanced, more.advanced),
            (&counters.stale, more.stale),
            (&counters.statements, more.statements),
        ] {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Adds to the statements sent.
    pub fn sent(&self, statements: u64) {
        self.counters
            .statements
            .fetch_add(statements, Ordering::Relaxed);
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            claimed: read(&counters.claimed),
            succeeded: read(&counters.succeeded),
            errored: read(&counters.errored),
            crashed: read(&counters.crashed),
            advanced: read(&counters.advanced),
            stale: read(&counters.stale),
            statements: read(&counters.statements),
        }
    }

    /// The state of the process, and the executions that it runs, the oldest first: for a person who looks.
    pub fn describe(&self) -> Vec<Note> {
        let state = self.state();
        let mut held: Vec<&HeldExecution> = state.held.values().collect();
        held.sort_by_key(|held| held.since);
        // The waiting ones are many and alike.
        let waiting = held.iter().filter(|held| held.started.is_none()).count();
        let head = Note::new("dump")
            .with("process_id", state.process.to_string())
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("mode", format!("{:?}", self.mode()))
            .with("beat_ms", state.beat.elapsed().as_millis() as u64)
            .with("progress_ms", state.progress.elapsed().as_millis() as u64)
            .with("running", held.len() - waiting)
            .with("claimed_ahead", waiting);
        let running = held.into_iter().filter_map(|held| {
            let (assignment, lasted) = (&held.assignment, held.started?.elapsed());
            let mut note = Note::new("running step")
                .since(lasted)
                .with("ms", lasted.as_millis() as u64)
                .with("run_id", assignment.run_id.to_string())
                .with("step", assignment.step.as_str())
                .with("attempt", assignment.attempt)
                .with("execution_id", assignment.execution_id.to_string());
            if let Some(pid) = held.pid {
                note = note.with("step_pid", pid);
            }
            if let Some(timeout) = assignment.timeout {
                note = note.with("timeout_ms", timeout.as_millis() as u64);
            }
            Some(note)
        });
        std::iter::once(head).chain(running).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_looked_for_more_often_only_while_somebody_is_not_heard() {
        let [tenth, second, hour] = [100, 1_000, 3_600_000].map(Duration::from_millis);
        for (configured, unheard, is) in [
            (second, false, second),
            (second, true, UNHEARD),
            (hour, false, hour),
            (hour, true, UNHEARD),
            (tenth, false, tenth),
            (tenth, true, tenth),
        ] {
            assert_eq!(polls(configured, unheard), is, "{configured:?} {unheard}");
        }
    }

    #[test]
    fn a_loop_is_woken_when_others_come_that_it_does_not_hear_and_not_at_every_beat() {
        let shared = Shared::new(ProcessId::new());
        let woken = || {
            let mut woken = std::pin::pin!(shared.wake.notified());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            woken.as_mut().poll(&mut cx).is_ready()
        };
        for (unheard, wakes) in [
            (false, false),
            (true, true),
            (true, false),
            (false, false),
            (true, true),
        ] {
            shared.set_unheard(unheard);
            assert_eq!(woken(), wakes);
        }
    }
}
