//! One scan of every table, which clears invariants without looking up any row.
//!
//! Owns: one statement per large table, and the conclusions from its answer. Never: reports that
//! something is broken; only the invariant's own statement does that, and it is sent whenever the
//! prefilter does not clear the invariant.
//!
//! Most invariants say that two columns hold the same ids, each equally often: the steps that have
//! succeeded, say, and the executions that are successes. Joining the tables would take a lookup
//! for each row of a long history. One scan computes the sum of a hash over each column, and two
//! sums of 64 bits agree by chance once in 2⁶⁴ times. That is less often than a disk returns a bit
//! other than the one written, and it takes two mistakes whose sums cancel each other.

use super::conn::{Conn, Row};
use super::error::Error;
use super::statement::statements;

macro_rules! part_claimed {
    () => {
        "((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL))"
    };
}
macro_rules! part_ended {
    () => {
        "((completed_at IS NULL) <> (result IS NULL))"
    };
}
macro_rules! spent_at_first {
    () => {
        "(attempt = 1 AND (retry_count <> 0 OR crash_count <> 0))"
    };
}
macro_rules! odd_output {
    () => {
        "(status <> 'cancelled' AND (output IS NOT NULL) <> (status IN ('advancing', 'completed')))"
    };
}
/// Only a step that has succeeded is copied. A copy that is advanced again may be cancelled, and keeps
/// its output.
macro_rules! odd_copy {
    () => {
        "(source_step_id IS NOT NULL AND (output IS NULL OR status NOT IN ('advancing', 'completed', 'cancelled')))"
    };
}
macro_rules! part_crossed {
    () => {
        "((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL))"
    };
}
macro_rules! odd_times {
    () => {
        "((completed_at IS NOT NULL) <> (status = 'completed') OR (halted_at IS NOT NULL) <> (status = 'halted')
            OR (cancelled_at IS NOT NULL) <> (status = 'cancelled') OR (output IS NOT NULL) <> (status = 'completed'))"
    };
}
pub(super) use {
    odd_copy, odd_output, odd_times, part_claimed, part_crossed, part_ended, spent_at_first,
};

statements! {
    SKETCH_RUNS = concat!("
        SELECT count(CASE WHEN ", odd_times!(), " THEN 1 END) AS odd_times,
               count(CASE WHEN status = 'halted' THEN 1 END) AS halted,
               {fingerprint:id;;;id IS NOT NULL} AS runs
          FROM ductwork_runs");
    SKETCH_BRANCHES = "
        SELECT {fingerprint:run_id;;;fan_out_id IS NULL} AS roots,
               {fingerprint:step_id;id;;status IN ('in_progress', 'advancing', 'dampened')} AS standing
          FROM ductwork_branches";
    /// `done` counts the steps of the run itself: no copies, and no dampens.
    SKETCH_STEPS = concat!("
        SELECT count(CASE WHEN ", odd_output!(), " THEN 1 END) AS odd_output,
               count(CASE WHEN source_step_id IS NOT NULL THEN 1 END) AS copies,
               count(CASE WHEN via IN ('on_halt', 'on_complete') THEN 1 END) AS hooks,
               count(CASE WHEN transition_id IS NULL AND source_step_id IS NULL
                                  AND via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') THEN 1 END) AS unproduced,
               {fingerprint:id;;;source_step_id IS NULL AND via <> 'dampen'} AS done,
               {fingerprint:id;;;source_step_id IS NULL AND via <> 'dampen'
                    AND (status IN ('advancing', 'completed') OR (status = 'cancelled' AND output IS NOT NULL))} AS succeeded,
               {fingerprint:id;;;status = 'in_progress'} AS in_progress,
               {fingerprint:id;branch_id;;status IN ('in_progress', 'advancing', 'waiting') AND via NOT IN ('on_halt', 'on_complete', 'on_wait')} AS standing,
               {fingerprint:id;;;source_step_id IS NULL AND via NOT IN ('on_halt', 'on_complete', 'on_wait') AND status IN ('completed', 'failed')} AS passed,
               {fingerprint:transition_id;run_id;;via NOT IN ('on_halt', 'on_complete', 'on_wait')} AS produced
          FROM ductwork_steps");
    SKETCH_EXECUTIONS = concat!("
        SELECT count(CASE WHEN ", part_claimed!(), " THEN 1 END) AS part_claimed,
               count(CASE WHEN ", part_ended!(), " THEN 1 END) AS part_ended,
               count(CASE WHEN ", spent_at_first!(), " THEN 1 END) AS spent_at_first,
               count(CASE WHEN attempt <> 1 THEN 1 END) AS later,
               {fingerprint:step_id;;;attempt = 1} AS done,
               {fingerprint:step_id;;;result = 'success'} AS succeeded,
               {fingerprint:step_id;;;completed_at IS NULL} AS in_progress
          FROM ductwork_executions");
    SKETCH_TRANSITIONS = concat!("
        SELECT count(CASE WHEN ", part_crossed!(), " THEN 1 END) AS part_crossed,
               count(CASE WHEN completed_at IS NULL THEN 1 END) AS under_way,
               count(CASE WHEN retry_count <> 0 OR crash_count <> 0 THEN 1 END) AS spent,
               {fingerprint:from_step_id;;;completed_at IS NOT NULL} AS passed,
               {fingerprint:id;run_id;produced;produced IS NOT NULL} AS produced,
               {fingerprint:id;branch_id;;completed_at IS NOT NULL} AS crossed
          FROM ductwork_transitions");
    SKETCH_ADVANCEMENTS = concat!("
        SELECT count(CASE WHEN ", part_ended!(), " THEN 1 END) AS part_ended,
               count(CASE WHEN coalesce(result, '') <> 'success' THEN 1 END) AS in_vain,
               {fingerprint:transition_id;branch_id;;result = 'success'} AS crossed
          FROM ductwork_advancements");
}

/// The findings of the scan of each table.
pub(super) struct Prefilter {
    runs: Row,
    branches: Row,
    steps: Row,
    executions: Row,
    transitions: Row,
    advancements: Row,
}

impl Prefilter {
    /// Scans the tables, in the transaction that `conn` is in.
    pub(super) async fn take(conn: &mut Conn) -> Result<Self, Error> {
        let mut rows = Vec::with_capacity(STATEMENTS.len());
        for statement in STATEMENTS {
            let row = conn.fetch_optional(statement, &[]).await?;
            let none = || Error::Corrupt(format!("{} says nothing", statement.name));
            rows.push(row.ok_or_else(none)?);
        }
        let rows: Result<[Row; 6], _> = rows.try_into();
        let Ok([runs, branches, steps, executions, transitions, advancements]) = rows else {
            unreachable!("there are six statements");
        };
        Ok(Self {
            runs,
            branches,
            steps,
            executions,
            transitions,
            advancements,
        })
    }

    pub(super) fn claims_are_whole(&self) -> Result<bool, Error> {
        none(&self.executions, "part_claimed")
    }

    pub(super) fn results_are_whole(&self) -> Result<bool, Error> {
        Ok(none(&self.executions, "part_ended")? && none(&self.advancements, "part_ended")?)
    }

    /// Each step that succeeded has one success, and there are no other successes.
    pub(super) fn successes_are_those_of_steps(&self) -> Result<bool, Error> {
        Ok(none(&self.steps, "odd_output")? && same(&self.steps, &self.executions, "succeeded")?)
    }

    /// Each step that was done in its run has one first attempt.
    pub(super) fn each_step_has_a_first_attempt(&self) -> Result<bool, Error> {
        same(&self.steps, &self.executions, "done")
    }

    pub(super) fn first_attempts_are_unspent(&self) -> Result<bool, Error> {
        none(&self.executions, "spent_at_first")
    }

    pub(super) fn there_are_no_later_attempts(&self) -> Result<bool, Error> {
        none(&self.executions, "later")
    }

    pub(super) fn each_crossing_went_well(&self) -> Result<bool, Error> {
        Ok(none(&self.transitions, "spent")? && none(&self.advancements, "in_vain")?)
    }

    pub(super) fn no_transition_is_under_way(&self) -> Result<bool, Error> {
        none(&self.transitions, "under_way")
    }

    /// This does not see a transition that was cancelled while it was under way.
    pub(super) fn each_ended_step_was_left_once(&self) -> Result<bool, Error> {
        Ok(self.no_transition_is_under_way()? && same(&self.steps, &self.transitions, "passed")?)
    }

    /// Each transition produced as many steps as it says, all in its own run.
    pub(super) fn products_are_those_of_transitions(&self) -> Result<bool, Error> {
        same(&self.steps, &self.transitions, "produced")
    }

    pub(super) fn transitions_are_whole(&self) -> Result<bool, Error> {
        Ok(none(&self.transitions, "part_crossed")? && self.products_are_those_of_transitions()?)
    }

    pub(super) fn each_step_was_produced(&self) -> Result<bool, Error> {
        Ok(none(&self.steps, "unproduced")? && self.products_are_those_of_transitions()?)
    }

    /// Each step in progress has one open execution, and there are no other open executions.
    pub(super) fn open_executions_are_those_of_steps(&self) -> Result<bool, Error> {
        same(&self.steps, &self.executions, "in_progress")
    }

    pub(super) fn times_of_runs_agree(&self) -> Result<bool, Error> {
        none(&self.runs, "odd_times")
    }

    /// Branches are at the unfinished steps.
    pub(super) fn branches_stand_at_unfinished_steps(&self) -> Result<bool, Error> {
        same(&self.steps, &self.branches, "standing")
    }

    pub(super) fn nothing_has_halted(&self) -> Result<bool, Error> {
        Ok(none(&self.runs, "halted")? && none(&self.steps, "hooks")?)
    }

    pub(super) fn there_are_no_copies(&self) -> Result<bool, Error> {
        none(&self.steps, "copies")
    }

    /// Each run has one branch that belongs to no fan-out.
    pub(super) fn each_run_has_its_root(&self) -> Result<bool, Error> {
        let roots: String = self.branches.get("roots")?;
        Ok(roots == self.runs.get::<String>("runs")?)
    }

    /// Each crossed transition has one successful attempt, on its branch.
    pub(super) fn each_transition_was_crossed_once(&self) -> Result<bool, Error> {
        same(&self.transitions, &self.advancements, "crossed")
    }

    pub(super) fn each_attempt_crossed(&self) -> Result<bool, Error> {
        none(&self.advancements, "in_vain")
    }
}

fn none(row: &Row, column: &'static str) -> Result<bool, Error> {
    Ok(row.get::<i64>(column)? == 0)
}

fn same(one: &Row, other: &Row, column: &'static str) -> Result<bool, Error> {
    Ok(one.get::<String>(column)? == other.get::<String>(column)?)
}
