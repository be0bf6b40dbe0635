//! Where a halted branch takes up its work again in the run that is made from its own.

use crate::model::StepStatus;

/// A branch that halted by itself (not because branches of its fan-out did).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltedView {
    /// How its current step had ended.
    pub step: StepStatus,
    /// It had been split at its current step: it halted when all its branches had arrived.
    pub split: bool,
}

/// The move that sets a halted branch in motion again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Its step is run again, with the same input.
    Run,
    /// Its step has an output: the branch is advanced again.
    Advance,
    /// Its branches have all arrived: one of them arrives anew, and the barrier fires again.
    Arrive,
}

/// Decides where a halted branch takes up its work again; `None` for what no halt leaves.
///
/// The halt's reason is not asked: whichever budget ran out, what counts is whether the step
/// has an output. A step that crashed too often has none, and must never be advanced as if
/// it had.
pub fn restart(view: HaltedView) -> Option<Restart> {
    match (view.step, view.split) {
        (StepStatus::Failed, false) => Some(Restart::Run),
        (StepStatus::Completed, false) => Some(Restart::Advance),
        (StepStatus::Completed, true) => Some(Restart::Arrive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_step_with_an_output_is_advanced_again() {
        for step in StepStatus::ALL.iter().copied() {
            for split in [false, true] {
                let restart = restart(HaltedView { step, split });
                let expected = match (step.as_str(), split) {
                    ("failed", false) => Some(Restart::Run),
                    ("completed", false) => Some(Restart::Advance),
                    ("completed", true) => Some(Restart::Arrive),
                    _ => None,
                };
                assert_eq!(restart, expected, "{step} {split}");
            }
        }
    }
}
