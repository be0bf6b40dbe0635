//! Conditions that may be lacking, one at a time, and why.
//!
//! Owns: the list, and which others have to be lacking as well before it is missed. Never: a
//! condition of which the explorer finds what goes wrong without it; the list is held against
//! that.
//!
//! Most are spare on SQLite alone, where a transaction is alone from its first statement: what was
//! looked at before still is so. On PostgreSQL it need not be, and there they are what stops a
//! race; `tests/store` forces those.

use super::mutants::Mutant;

/// Conditions that are spare for one reason: each with those without which it is missed; none
/// where no promise depends on it.
struct Spare {
    why: &'static str,
    conditions: &'static [(&'static str, &'static [&'static str])],
}

const SPARE: &[Spare] = &[
    Spare {
        why: "said again where it is written, after it was looked at in the same transaction",
        conditions: &[
            ("READY.1", &["READY.2"]),
            ("READY.2", &["READY.1"]),
            ("CLAIM_BRANCHES.1", &["READY.1", "READY.2"]),
            (
                "CLAIM_BRANCHES.2",
                &["CLAIM_BRANCHES.1", "READY.1", "READY.2"],
            ),
            ("OPEN_TRANSITIONS.1", &[]),
            ("OPEN_ADVANCEMENTS.1", &[]),
            ("MOVE_BRANCHES.1", &[]),
            ("MOVE_BRANCHES.2", &[]),
            ("MOVE_BRANCHES.3", &[]),
            ("MOVE_BRANCHES.4", &[]),
            ("MOVE_BRANCHES.5", &[]),
            ("CANCEL_EXECUTIONS.1", &[]),
            ("CANCEL_BRANCHES.1", &[]),
            ("CANCEL_RUN.1", &[]),
            ("WAITING_STEPS.1", &[]),
            ("WAITING_STEPS.2", &[]),
            ("RESUME_BRANCHES.1", &[]),
            ("RESUME_BRANCHES.2", &["WAITING_STEPS.1", "WAITING_STEPS.2"]),
            ("RESUME_STEPS.1", &[]),
            ("RESUME_RUN.1", &[]),
            ("ENDED_RUNS.4", &["STILL_PRUNABLE.2"]),
            ("STILL_PRUNABLE.2", &["ENDED_RUNS.4"]),
            ("LOAD_CLAIMED.1", &[]),
        ],
    },
    Spare {
        why: "follows from the guard that let the row through, and from an invariant: an open \
              execution's step is in progress and its branch stands there (I14, I19), a branch \
              that may be advanced has one open transition and one open advancement (I9, I10), a \
              run is not over while a branch is not (I15), what is queued is neither closed nor \
              claimed (I31)",
        conditions: &[
            ("OPEN_ADVANCEMENTS.2", &[]),
            ("COUNT_RETRIES.1", &[]),
            ("STAMP_EXECUTIONS.1", &[]),
            ("STAMP_EXECUTIONS.2", &[]),
            ("END_STEPS.2", &[]),
            ("MOVE_WITH_RESULT.2", &[]),
            ("MOVE_WITH_RESULT.3", &[]),
            ("END_RUNS.3", &[]),
            ("COMPLETE_RUNS.1", &[]),
            ("HALT_RUNS.1", &[]),
            ("DAMPEN_RUNS.1", &[]),
            ("COMPLETE_TRANSITIONS.1", &[]),
            ("COMPLETE_ADVANCEMENTS.1", &[]),
            ("WAITING_BRANCHES.1", &[]),
            ("FAIL_STEPS.1", &[]),
            ("FAILED_BRANCHES.1", &[]),
            ("COUNT_CRASHES.1", &[]),
            ("GIVE_BACK_BRANCHES.1", &[]),
            ("ENDED_RUNS.1", &[]),
        ],
    },
    Spare {
        why: "an attempt is a row of its own, which only its holder's hand brings back to the \
              queue: whoever holds it no more finds it closed",
        conditions: &[
            ("CLOSE_EXECUTIONS.1", &[]),
            ("UNCLAIM.1", &[]),
            ("CLOSED_AS.1", &[]),
            ("HELD.1", &[]),
            ("HELD.2", &[]),
        ],
    },
    Spare {
        why: "either of the two signs of life is enough to spare a process (H1)",
        conditions: &[
            ("REMOVE_PROCESS.1", &["REMOVE_PROCESS.2"]),
            ("REMOVE_PROCESS.2", &["REMOVE_PROCESS.1"]),
        ],
    },
    Spare {
        why: "costs work, or a budget, or time, but breaks no promise about what is stored: \
              something is begun before its wait is over, given back to be done again, kept \
              longer than need be, or counted once too often",
        conditions: &[
            ("TAKE_AVAILABILITIES.2", &[]),
            ("COUNT_RETRIES.2", &[]),
            ("HELD_BRANCHES.1", &[]),
            ("HELD_BRANCHES.2", &[]),
            ("EXTEND_ADVANCEMENTS.1", &[]),
            ("LOST_ADVANCEMENTS.1", &[]),
            ("ENDED_RUNS.2", &[]),
            ("ENDED_RUNS.3", &[]),
            ("STILL_PRUNABLE.1", &[]),
            ("STILL_PRUNABLE.3", &[]),
            ("STILL_PRUNABLE.4", &[]),
            ("STILL_PRUNABLE.5", &[]),
            ("STILL_PRUNABLE.6", &[]),
            ("DEREGISTER.1", &[]),
            ("DEREGISTER.2", &[]),
            ("DEREGISTER.4", &[]),
            ("DEREGISTER.5", &[]),
        ],
    },
    Spare {
        why: "is about what no world here has: a second pipeline, a claim behind another, a claim without a process (it \
              cannot be, I22), a process that signs off with what it holds, a fan-in that halts because its array is too large, a row that \
              arrives nowhere",
        conditions: &[
            ("TAKE_AVAILABILITIES.1", &[]),
            ("TAKE_AVAILABILITIES.3", &[]),
            ("ORPHANS.1", &[]),
            ("ORPHANS.2", &[]),
            ("ORPHANS.3", &[]),
            ("ORPHANS.4", &[]),
            ("ORPHANS.5", &[]),
            ("ORPHANS.6", &[]),
            ("DEREGISTER.3", &[]),
            ("DEREGISTER.6", &[]),
            ("HALTED_BRANCHES.1", &[]),
            ("REOPEN_STEPS.1", &[]),
            ("REOPEN_FAN_OUT.1", &[]),
            ("ARRIVE_WITH_RESULT.1", &[]),
        ],
    },
];

/// With which others it is missed, if it is spare.
pub fn of(mutant: &Mutant) -> Option<&'static [&'static str]> {
    let name = mutant.to_string();
    let mut conditions = SPARE.iter().flat_map(|spare| spare.conditions);
    let found = conditions.find(|(spare, _)| *spare == name);
    found.map(|(_, others)| *others)
}

#[test]
fn every_spare_condition_exists_and_has_a_reason() {
    let all: Vec<String> = super::mutants::mutants()
        .iter()
        .map(Mutant::to_string)
        .collect();
    for spare in SPARE {
        assert!(!spare.why.is_empty());
        for (name, others) in spare.conditions {
            for name in others.iter().chain([name]) {
                assert!(
                    all.iter().any(|known| known == name),
                    "there is no condition {name}"
                );
            }
        }
    }
}
