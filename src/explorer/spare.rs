//! Conditions whose lack alone shows in no world, and the proof that they are needed.
//!
//! Owns: the list. Never: a condition whose lack the explorer detects; the list is checked against
//! that.
//!
//! On SQLite, a transaction is alone from its first statement: an earlier check in it still holds. A
//! condition that repeats the check is spare there, and may be the one that stops a race on
//! PostgreSQL; then the test that forces the race is named.

use super::mutants::Mutant;
use guarded::GUARDED;

#[path = "../../tests/store/guarded.rs"]
mod guarded;

/// The proof that a condition is needed.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// Its lack shows if these, each of which stands in for it, are lacking too.
    With(&'static [&'static str]),
    /// If these are lacking, this condition makes the store refuse, and no harm is done; if it is
    /// lacking as well, there is harm.
    Behind(&'static [&'static str]),
    /// A test of `tests/store` fails without it: on PostgreSQL, and on SQLite as well if the test
    /// makes a wrong row by hand.
    Test,
    /// Without it the result is the same, with more work.
    Cost(&'static str),
    /// It repeats a check that was made earlier in the transaction, under a lock or a fence of its
    /// own. It is there for the case that this is mistaken: a wrong write then finds no row.
    Depth(&'static str),
}

use Shown::*;

const SPARE: &[(&str, Shown)] = &[
    // Checked by the look and by the claim, in one transaction.
    ("READY.1", With(&["READY.2"])),
    ("READY.2", With(&["READY.1"])),
    ("CLAIM_BRANCHES.1", With(&["READY.1", "READY.2"])),
    (
        "CLAIM_BRANCHES.2",
        With(&["CLAIM_BRANCHES.1", "READY.1", "READY.2"]),
    ),
    ("ASKED_STEPS.1", Cost("it is the condition of the index")),
    (
        "ASKED_STEPS.2",
        With(&["HOLD_DAMPENED.2", "RESUME_BRANCHES.2"]),
    ),
    (
        "HOLD_DAMPENED.2",
        With(&["ASKED_STEPS.2", "RESUME_BRANCHES.2"]),
    ),
    (
        "RESUME_BRANCHES.2",
        With(&["ASKED_STEPS.2", "HOLD_DAMPENED.2"]),
    ),
    ("HELD.1", With(&["LOAD_CLAIMED.1"])),
    ("LOAD_CLAIMED.1", With(&["HELD.1"])),
    ("ENDED_RUNS.1", With(&["ENDED_RUNS.2"])),
    ("ENDED_RUNS.4", With(&["STILL_PRUNABLE.2"])),
    ("STILL_PRUNABLE.2", With(&["ENDED_RUNS.4"])),
    // Held rows are selected, and closed, by the same conditions.
    (
        "CANCEL_EXECUTIONS.1",
        With(&["CANCEL_OPEN_EXECUTIONS.2", "CANCEL_HOLD_EXECUTIONS.1"]),
    ),
    (
        "CANCEL_OPEN_EXECUTIONS.2",
        With(&["CANCEL_HOLD_EXECUTIONS.1", "CANCEL_EXECUTIONS.1"]),
    ),
    (
        "CANCEL_HOLD_EXECUTIONS.1",
        With(&["CANCEL_OPEN_EXECUTIONS.2", "CANCEL_EXECUTIONS.1"]),
    ),
    // Rows are locked, and then written, by the same conditions. Without the first, the second
    // refuses.
    ("UNCLAIM.2", With(&["LOCK_CLAIMED.2"])),
    ("LOST_EXECUTIONS.1", With(&["LOCK_CLAIMED.1", "HELD.1"])),
    ("LOST_EXECUTIONS.2", With(&["LOCK_CLAIMED.2", "HELD.2"])),
    (
        "LOST_ADVANCEMENTS.1",
        With(&["LOCK_ADVANCEMENTS.1", "HELD_BRANCHES.1"]),
    ),
    (
        "LOST_ADVANCEMENTS.2",
        With(&["LOCK_ADVANCEMENTS.2", "HELD_BRANCHES.2"]),
    ),
    ("EXTEND_LEASES.1", With(&["LEASED_EXECUTIONS.1"])),
    ("EXTEND_LEASES.2", With(&["LEASED_EXECUTIONS.2"])),
    ("EXTEND_ADVANCEMENTS.1", With(&["LEASED_ADVANCEMENTS.1"])),
    ("EXTEND_ADVANCEMENTS.2", With(&["LEASED_ADVANCEMENTS.2"])),
    (
        "UNCLAIM.1",
        Depth("those are put back that are locked as ours in this transaction"),
    ),
    (
        "GIVE_BACK_BRANCHES.1",
        Depth("those are given back that are locked under their claims in this transaction"),
    ),
    (
        "RESUME_BRANCHES.1",
        Depth("those are resumed that are locked at their steps in this transaction"),
    ),
    // Either of the two signs of life is enough to spare a process (H1).
    ("REMOVE_PROCESS.1", With(&["REMOVE_PROCESS.2"])),
    ("REMOVE_PROCESS.2", With(&["REMOVE_PROCESS.1"])),
    ("CONDEMN_PROCESS.1", With(&["CONDEMN_PROCESS.2"])),
    ("CONDEMN_PROCESS.2", With(&["CONDEMN_PROCESS.1"])),
    (
        "LOCK_ADVANCEMENTS.1",
        Cost("`LOST_ADVANCEMENTS` refuses the others, and the recovery is made again"),
    ),
    (
        "LOCK_ADVANCEMENTS.2",
        Cost("`LOST_ADVANCEMENTS` refuses the others, and the recovery is made again"),
    ),
    // The second line of defence, if the first has let through something wrong.
    ("MOVE_BRANCHES.3", Behind(&["LOAD_FENCED.1"])),
    // Conditions that exist because they save work.
    (
        "ORPHANS.2",
        Cost("what is not claimed has no lease; but the index of claims says so"),
    ),
    (
        "TAKE_AVAILABILITIES.3",
        Cost("a claim begins where the last one ended, and not at what it has taken"),
    ),
    (
        "ENDED_RUNS.5",
        Cost(
            "it says where the index is entered, and the next one what of that is behind the place",
        ),
    ),
    (
        "ENDED_RUNS.6",
        Cost("what is held back is looked at once in a pass"),
    ),
    (
        "ASKED_STEPS.4",
        Cost(
            "it says where the index is entered, and the next one what of that is behind the place",
        ),
    ),
    (
        "ASKED_STEPS.5",
        Cost("what was answered does not wait any more"),
    ),
    (
        "PASSED_DEADLINES.4",
        Cost(
            "it says where the index is entered, and the next one what of that is behind the place",
        ),
    ),
    (
        "PASSED_DEADLINES.5",
        Cost("what was passed over is looked at once in a pass"),
    ),
    (
        "LAST_AT_BARRIERS.1",
        Cost("whoever is not the last may leave its arrival to an advancer as well"),
    ),
    (
        "ARRIVE_WITH_RESULT.1",
        Cost("what arrives nowhere matches no barrier"),
    ),
    (
        "STILL_PRUNABLE.3",
        Cost("nothing but a hook can be open in a run that has halted"),
    ),
    (
        "STILL_PRUNABLE.6",
        Cost("a hook stands on the root branch; the others need not be looked at"),
    ),
    (
        "QUEUE_AGAIN.1",
        Cost(
            "before all that is due anywhere is before all of its pipeline; an index has the latter",
        ),
    ),
    ("QUEUE_ATTEMPTS.1", Cost("the same")),
    ("INSERT_AVAILABILITIES.1", Cost("the same")),
    (
        "INSERT_AVAILABILITIES.2",
        Cost("the head of a queue is looked up only where something goes before it"),
    ),
    (
        "PRUNABLE_PLACES.1",
        Cost("an execution that has ended has no place in the queue"),
    ),
    // Checked once more at the write.
    ("OPEN_TRANSITIONS.1", Depth("claimed in this transaction")),
    ("OPEN_ADVANCEMENTS.1", Depth("claimed in this transaction")),
    (
        "MOVE_BRANCHES.1",
        Depth("as long as its claim is ours, a branch stands where it was read"),
    ),
    (
        "MOVE_BRANCHES.2",
        Depth("what is claimed has not ended, and what waits was seen to wait"),
    ),
    (
        "HOLD_BRANCHES.1",
        Depth("a branch was read under its claim, and is ours until the transaction ends"),
    ),
    (
        "CANCEL_BRANCHES.1",
        Depth("those are closed that were found open under a lock, in this transaction"),
    ),
    (
        "CANCEL_SOME.1",
        Depth("a run of which an open branch is ours has not ended"),
    ),
    (
        "WAITING_BRANCHES.1",
        Depth("a barrier that has not fired has a branch that waits there, and we hold its row"),
    ),
    (
        "COMPLETE_TRANSITIONS.1",
        Depth("a branch under our claim has not left its step"),
    ),
    (
        "COMPLETE_ADVANCEMENTS.1",
        Depth("a branch under our claim has not left its step"),
    ),
    (
        "LEAVE_STEPS.1",
        Depth("a step with an output, from which an advancer moves its branch, is being advanced"),
    ),
    (
        "COUNT_RETRIES.1",
        Depth("a branch under our claim has not left its step"),
    ),
    (
        "END_STEPS.2",
        Depth("the execution that we closed just now was open, and so was its step"),
    ),
    (
        "FAIL_STEPS.1",
        Depth("the execution that we closed just now was open, and so was its step"),
    ),
    (
        "FAILED_BRANCHES.1",
        Depth("the branch of a step that was open a moment ago"),
    ),
    (
        "FAIL_UNANSWERED.1",
        Depth("a branch that waits for a person stands at a step that does, and its row is ours"),
    ),
    (
        "PASSED_DEADLINES.1",
        Depth("the write that gives a branch to an advancer asks the same"),
    ),
    (
        "RESUME_STEPS.1",
        Depth("the branch that we resumed just now waited at it"),
    ),
    (
        "REOPEN_STEPS.1",
        Depth("read in this transaction, of a run that nobody else has seen yet"),
    ),
];

/// The proof that the condition is needed, unless a world shows it.
pub fn of(mutant: &Mutant) -> Option<Shown> {
    let name = mutant.to_string();
    let spare = SPARE.iter().find(|(spare, _)| *spare == name);
    let guarded = || GUARDED.iter().find(|guarded| guarded.0 == name);
    spare
        .map(|(_, shown)| *shown)
        .or_else(|| guarded().map(|_| Test))
}

#[test]
fn every_spare_condition_exists_and_stands_here_once() {
    let all = super::mutants::mutants();
    for mutant in &all {
        eprintln!("{mutant}: {}", mutant.condition);
    }
    let find = |name: &str| {
        let found = all.iter().find(|mutant| mutant.to_string() == name);
        found.unwrap_or_else(|| panic!("there is no condition {name}"))
    };
    for (name, shown) in SPARE {
        find(name);
        match shown {
            With(others) | Behind(others) => others.iter().for_each(|name| {
                find(name);
            }),
            Cost(why) | Depth(why) => assert!(!why.is_empty(), "{name}"),
            Test => panic!("{name}: tests stand in the other list"),
        }
    }
    // The removed text there is the condition that is meant here.
    for (name, _, condition, _) in GUARDED {
        let until = condition.find([':', '{']).unwrap_or(condition.len());
        let meant = &find(name).condition;
        assert!(meant.starts_with(&condition[..until]), "{name}: {meant}");
    }
    let names = SPARE.iter().map(|(name, _)| *name);
    let mut names: Vec<_> = names
        .chain(GUARDED.iter().map(|guarded| guarded.0))
        .collect();
    let known = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known, "one stands there twice");
}
