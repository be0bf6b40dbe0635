//! The end of a worker: its steps come to an end, and their results are stored.
//!
//! Owns: when a worker that drains is done, and when it gives up. Never: begins a drain (a signal does), or stops a step
//! by itself (`slots` do).

use std::time::{Duration, Instant};

use crate::engine::shared::Mode;
use crate::step::StopCause;
use crate::telemetry::events;

use super::{Loop, Worker};

/// How long a worker that is to end tries to store its last results when the database is away. The time counts from
/// the end of its last step, which may have taken all the time between TERM and KILL. Then the worker ends without
/// storing them: its claims are recovered, and the steps run again.
pub const LAST_COMMIT: Duration = Duration::from_secs(5);

/// How far the end of a worker has come.
#[derive(Default)]
pub(super) struct Drain {
    has_begun: bool,
    /// The cause for which everything that runs was told to end.
    stopped_for: Option<StopCause>,
    last_step_ended: Option<Instant>,
}

impl Drain {
    /// The longest wait that misses no deadline of a drain.
    pub(super) fn longest(&self, mode: Mode, wait: Duration) -> Duration {
        match mode {
            Mode::Drain { until, cause } if self.stopped_for != Some(cause) => {
                wait.min(until.saturating_duration_since(Instant::now()))
            }
            _ => wait,
        }
    }
}

impl Worker {
    /// Whether the worker can end: everything in flight is committed, or the time for that is over. Once `until` has
    /// come, the steps that still run are told to end.
    pub(super) fn is_drained(&self, state: &mut Loop, until: Instant, cause: StopCause) -> bool {
        if !std::mem::replace(&mut state.drain.has_begun, true) {
            let left = until.saturating_duration_since(Instant::now());
            events::draining(self.shared.at_work(), left);
            // The last try.
            let now = Instant::now();
            state.unstored.values_mut().for_each(|again| *again = now);
            state.look_aside = now;
        }
        let (work, now) = (&state.work, Instant::now());
        // Executions that may be claimed for us without our knowledge would count as lost.
        if state.is_empty()
            && work.aside().iter().all(|it| state.is_unstored(it))
            && (work.is_sure() || now >= until)
        {
            if !work.aside().is_empty() {
                events::results_lost(work.aside().len());
            }
            return true;
        }
        // Again when it is to end at once, because its steps may still be in their grace.
        if now >= until && state.drain.stopped_for != Some(cause) {
            state.drain.stopped_for = Some(cause);
            self.shared.stop_all(cause);
        }
        if state.slots.is_empty() {
            let ended = *state.drain.last_step_ended.get_or_insert(now);
            if now >= until.max(ended) + LAST_COMMIT {
                events::results_lost(work.finished().len() + work.aside().len());
                return true;
            }
        }
        false
    }
}
