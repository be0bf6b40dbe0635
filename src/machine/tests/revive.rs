//! The table of what a revived branch does first; its cells are tested in `machine::revive`.

use super::{code, table};
use crate::machine::revive::{HaltedView, Restart, restart};
use crate::model::StepStatus;

pub fn chapter() -> String {
    let rows = StepStatus::ALL.iter().map(|step| {
        let mut row = vec![code(step)];
        row.extend([false, true].map(|split| {
            let restart = restart(HaltedView { step: *step, split });
            match restart {
                Some(Restart::Run) => "its step runs again, with the same input",
                Some(Restart::Advance) => "it is advanced again",
                Some(Restart::Arrive) => "its last branch arrives anew, the barrier fires again",
                None => "–",
            }
            .to_owned()
        }));
        row
    });
    let head = ["its step is", "not split", "split, and all had arrived"];
    format!(
        "## 5. Reviving a halted branch\n\n\
         For a branch that halted by itself; one that halted because branches of its fan-out did\n\
         waits for them again. The reason of the halt is not asked: what counts is whether the step\n\
         has an output. A dash is what no halt leaves behind.\n\n{}",
        table(&head, rows)
    )
}
