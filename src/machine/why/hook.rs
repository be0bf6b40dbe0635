//! How far a hook is that has not succeeded, and the remedy.

use crate::time;

use super::leaf::{HELD_BY_GONE, SOON, TAKEN_WITHIN};
use super::{Facts, HookFact, HookState};

impl HookFact {
    /// The rest of a sentence.
    pub(super) fn told(&self, of: &str, facts: &Facts) -> String {
        let error = |before: &str| match &self.error {
            Some(error) => format!("{before}{error}"),
            None => String::new(),
        };
        let again = || error("; the previous attempt failed: ");
        let told = match self.state {
            HookState::Failed => format!("has failed{}", error(": ")),
            HookState::Running { attempt, is_alive } => {
                let does = match is_alive {
                    true => "is running",
                    false => "is held by a process that has died or hangs",
                };
                match attempt {
                    0 | 1 => does.to_owned(),
                    _ => format!("{does} (attempt {attempt}){}", again()),
                }
            }
            HookState::Queued { .. } if let Some(pause) = &facts.pause => {
                format!("waits: {}{}", pause.fact(facts.now), again())
            }
            HookState::Queued { due_at, .. } if due_at.saturating_sub(facts.now) >= SOON => {
                let when = time::relative(due_at, facts.now);
                format!("is due {when}{}", again())
            }
            HookState::Queued { attempt: 0 | 1, .. } => "has yet to run".to_owned(),
            HookState::Queued { attempt, .. } => {
                format!("has yet to run again (attempt {attempt}){}", again())
            }
        };
        format!("; {of} {told}")
    }

    /// The remedy of a run that has completed, but for this.
    pub(super) fn remedy(&self, facts: &Facts) -> Option<String> {
        let (run, pipeline) = (facts.run_id, &facts.pipeline);
        match (self.state, &facts.pause) {
            (HookState::Failed, _) => Some(format!(
                "do the work of the hook by hand, because no hook is called again: `ductworkd show {run} --json` has its \
                 input, and `ductworkd logs {run}` its log"
            )),
            (HookState::Queued { .. }, Some(pause)) => Some(pause.remedy()),
            (HookState::Queued { due_at, .. }, None)
                if time::between(due_at, facts.now) >= TAKEN_WITHIN =>
            {
                Some(format!(
                    "`ductworkd health` says whether a worker of {pipeline} is alive; start `ductworkd` if none is"
                ))
            }
            (
                HookState::Running {
                    is_alive: false, ..
                },
                _,
            ) => Some(HELD_BY_GONE.to_owned()),
            (HookState::Queued { .. } | HookState::Running { .. }, _) => None,
        }
    }
}
