//! Conditions of the store's statements whose absence no schedule of the explorer notices, and the
//! tests that notice it.
//!
//! Owns: the list, which the explorer relies on (`src/explorer/spare.rs` includes it).

/// The explorer's name of the condition; its position among equal conditions in the statement's
/// text; its text there; and the test that fails without it.
pub type Guarded = (&'static str, usize, &'static str, &'static str);

const ACTIVE: &str = "coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')";
const ENDED: &str = "a_run_that_is_over_stays_as_it_ended";
const LESS: &str = "a_claim_or_commit_that_finds_less_than_it_is_to_write_writes_nothing";
const ORPHANED: &str = "claims_without_a_process_are_found_when_their_leases_are_over";

/// All of them.
pub const GUARDED: &[Guarded] = &[
    // Races that occur on PostgreSQL only.
    (
        "CANCEL_RUN.1",
        1,
        "status IN ('in_progress', 'dampened')",
        "a_run_that_ends_while_it_is_cancelled_has_ended",
    ),
    (
        "HOLD_DAMPENED.1",
        1,
        "br.step_id = b.step_id",
        "a_branch_that_waits_elsewhere_by_now_is_not_resumed",
    ),
    // A deadline that a program without deadlines left behind, and that is set again at that
    // moment.
    (
        "END_PASSED_DEADLINES.1",
        1,
        "answer_by <= :until",
        "a_deadline_that_is_set_meanwhile_is_kept",
    ),
    // With an answer or without one, the worlds' runs have the same result.
    (
        "PASSED_DEADLINES.2",
        1,
        "d.answer_by <= {now}",
        "without_an_answer_a_branch_goes_on_or_halts_when_its_time_is_over",
    ),
    (
        "PASSED_DEADLINES.3",
        1,
        "d.unanswered IN ('halt', 'approve')",
        "a_deadline_of_a_newer_version_is_left_to_it",
    ),
    // The worlds' answers take one transaction.
    (
        "ASKED_STEPS.3",
        1,
        "s.created_at <= :until",
        "an_answer_to_all_questions_reaches_none_that_is_asked_later",
    ),
    (
        "REVIVE_FAILED_STEPS.2",
        1,
        "s.via <> 'dampen'",
        "a_run_that_halted_without_an_answer_is_revived_to_ask_again",
    ),
    // A run's context: no world has any.
    (
        "PRUNE_KEYS.1",
        1,
        "\"key\" <= :last",
        "a_context_with_many_keys_is_deleted_in_parts",
    ),
    // The record of processes that are gone makes no difference to a run.
    (
        "OLD_DEPARTED.1",
        1,
        "gone_at <= {now} - :age",
        "a_process_that_is_gone_is_remembered_with_how_it_went_until_history_is_pruned",
    ),
    // Nor does the record of actions, nor do the console's visitors.
    (
        "OLD_ACTIONS.1",
        1,
        "x.at <= {now} - :age",
        "actions_are_forgotten_with_the_history",
    ),
    (
        "COUNT_IN_BULK.1",
        1,
        "ended_at IS NULL",
        "after_a_bulk_action_was_stopped_no_run_is_changed",
    ),
    (
        "COUNT_IN_BULK.2",
        1,
        "dealt < :run",
        "a_bulk_action_never_goes_back_to_a_run_that_was_dealt_with",
    ),
    (
        "PASS_BULK.1",
        1,
        "ended_at IS NULL",
        "one_who_finds_it_stopped_passes_no_run",
    ),
    (
        "PASS_BULK.2",
        1,
        "dealt < :run",
        "one_who_finds_it_further_on_passes_no_run",
    ),
    (
        "PASS_BULK.3",
        1,
        "failures = :before",
        "one_who_has_read_another_list_of_failures_passes_no_run",
    ),
    (
        "SETTLE_BULK.1",
        1,
        "ended_at IS NULL",
        "after_a_stop_a_run_that_was_set_aside_stays_as_it_is",
    ),
    (
        "SETTLE_BULK.2",
        1,
        "failures = :before",
        "a_run_that_was_set_aside_is_counted_once_whoever_comes_back_to_it",
    ),
    (
        "END_BULK.1",
        1,
        "failures = :before",
        "one_who_has_read_another_list_of_failures_does_not_end_the_action",
    ),
    (
        "STOP_BULK.1",
        1,
        "ended_at IS NULL",
        "after_a_bulk_action_was_stopped_no_run_is_changed",
    ),
    (
        "OLD_BULKS.1",
        1,
        "x.ended_at <= {now} - :age",
        "bulk_actions_are_listed_and_forgotten_when_they_have_ended",
    ),
    (
        "OLD_REPORTS.1",
        1,
        "r.kind = :kind",
        "of_each_kind_the_newest_reports_are_kept_and_listed_page_by_page",
    ),
    // Nor do counts over time.
    (
        "FOLLOW_SERIES.1",
        1,
        "turn = :turn",
        "of_two_who_tell_the_same_minute_one_does_and_nothing_is_counted_twice",
    ),
    (
        "FORGET_SERIES.1",
        1,
        "s.grain = :grain",
        "minutes_are_kept_for_a_week_and_hours_for_400_days",
    ),
    (
        "FORGET_SERIES.2",
        1,
        "s.at <= {now} - :age",
        "minutes_are_kept_for_a_week_and_hours_for_400_days",
    ),
    // Nor do the messages to endpoints.
    (
        "SEE_WEBHOOK.1",
        1,
        "name = :name",
        "an_endpoint_never_goes_back_to_what_was_found",
    ),
    (
        "SEE_WEBHOOK.2",
        1,
        "(seen < :seen OR seen > {now})",
        "an_endpoint_never_goes_back_to_what_was_found",
    ),
    (
        "LEASE_DELIVERIES.1",
        1,
        "due_at <= {now}",
        "of_two_who_would_send_a_message_one_does",
    ),
    (
        "PUT_NAMELESS_ASIDE.1",
        1,
        "state = 'waiting'",
        "a_message_whose_id_is_none_is_put_aside_and_the_others_are_sent",
    ),
    (
        "PUT_NAMELESS_ASIDE.2",
        1,
        "length(id) <> 16",
        "a_message_whose_id_is_none_is_put_aside_and_the_others_are_sent",
    ),
    (
        "RECORD_DELIVERIES.1",
        1,
        "ductwork_deliveries.due_at IS NOT NULL",
        "a_late_result_of_an_attempt_changes_nothing",
    ),
    (
        "RECORD_DELIVERIES.2",
        1,
        "ductwork_deliveries.attempts = b.made",
        "a_late_result_of_an_attempt_changes_nothing",
    ),
    (
        "TAKE_DUTY.1",
        1,
        "ductwork_duties.holder = :holder OR ductwork_duties.until <= {now} OR ductwork_duties.until > {now} + :longest",
        "a_duty_is_one_holders_until_its_lease_is_over",
    ),
    (
        "END_TOKEN.1",
        1,
        "ended_at IS NULL",
        "of_two_browsers_that_open_one_link_one_is_let_in",
    ),
    (
        "END_OPENED.1",
        1,
        "parent = :id",
        "a_session_ends_with_what_it_was_opened_with",
    ),
    (
        "END_OPENED.2",
        1,
        "ended_at IS NULL",
        "a_session_ends_with_what_it_was_opened_with",
    ),
    (
        "END_OPENED.3",
        1,
        "expires_at > {now}",
        "a_session_ends_with_what_it_was_opened_with",
    ),
    (
        "OLD_TOKENS.1",
        1,
        "kind IN ('link', 'session')",
        "sessions_and_links_that_are_over_are_forgotten_and_tokens_are_not",
    ),
    (
        "OLD_TOKENS.2",
        1,
        "expires_at < {now} - :kept",
        "sessions_and_links_that_are_over_are_forgotten_and_tokens_are_not",
    ),
    // Two connections are given up one after the other, and the fence of the first arrives last.
    (
        "FENCE_EARLIER.1",
        1,
        "epoch < :epoch",
        "a_claim_through_a_connection_that_was_given_up_claims_nothing",
    ),
    // Branches that are split twice, one after the other, and a run that is half deleted.
    (
        "LOAD_FENCED.3",
        1,
        "f.fired_at IS NULL",
        "an_expand_that_follows_another_begins_anew",
    ),
    (
        "CANCEL_TRANSITIONS.1",
        1,
        "f.fired_at IS NULL",
        "what_is_cancelled_between_two_fan_outs_has_produced_nothing",
    ),
    (
        "HOLD_HALTED_RUN.2",
        1,
        "pruning_at IS NULL",
        "a_run_that_is_deleted_part_by_part_is_gone_at_once_and_sound_after_each",
    ),
    (
        "INSERT_DELIVERIES.1",
        1,
        "r.pruning_at IS NULL",
        "no_message_is_written_about_a_run_that_is_being_deleted",
    ),
    // Rows that contradict an invariant, which no schedule brings about.
    (
        "OPEN_ADVANCEMENTS.2",
        1,
        "t.completed_at IS NULL",
        "a_crossing_that_was_made_is_not_made_again",
    ),
    (
        "STAMP_EXECUTIONS.1",
        1,
        "ductwork_executions.process_id IS NULL",
        LESS,
    ),
    (
        "STAMP_EXECUTIONS.2",
        1,
        "ductwork_executions.result IS NULL",
        LESS,
    ),
    (
        "MOVE_WITH_RESULT.2",
        1,
        "ductwork_branches.step_id = held.step_id",
        LESS,
    ),
    (
        "MOVE_WITH_RESULT.3",
        1,
        "ductwork_branches.status = 'in_progress'",
        LESS,
    ),
    ("END_RUNS.3", 1, ACTIVE, ENDED),
    ("COMPLETE_RUNS.1", 1, ACTIVE, ENDED),
    ("HALT_RUNS.1", 1, ACTIVE, ENDED),
    ("DAMPEN_RUNS.1", 1, ACTIVE, ENDED),
    (
        "RESUME_RUNS.1",
        1,
        "coalesce(ductwork_runs.status, '') = 'dampened'",
        ENDED,
    ),
    (
        "LOCK_BRANCHES.1",
        1,
        "br.claim_token = b.token",
        "a_branch_under_another_claim_is_not_given_back_with_the_dead",
    ),
    (
        "REOPEN_FAN_OUT.1",
        1,
        "arrived = width",
        "a_barrier_that_has_not_fired_is_not_reopened",
    ),
    // An attempt is a row of its own, which only its holder brings back to the queue: no actor
    // presents an execution that another holds.
    (
        "CLOSE_EXECUTIONS.1",
        1,
        "ductwork_executions.process_id = :process",
        "nobody_commits_what_another_holds",
    ),
    // A process that beats although it was declared dead claims in vain until it is recovered as a whole.
    (
        "BEAT.1",
        1,
        "epoch < 4294967296",
        "a_process_of_which_a_part_was_recovered_beats_and_claims_no_more",
    ),
    (
        "BEAT_ALONE.1",
        1,
        "epoch < 4294967296",
        "a_process_of_which_a_part_was_recovered_beats_and_claims_no_more",
    ),
    (
        "LOCK_CLAIMED.1",
        1,
        "e.process_id = :process",
        "nobody_puts_back_what_another_holds",
    ),
    (
        "CLOSED_AS.1",
        1,
        "e.process_id = :process",
        "what_another_committed_has_not_landed",
    ),
    // Cases that no world contains: a second pipeline, a claim without a process (I22).
    (
        "TAKE_AVAILABILITIES.1",
        1,
        "pipeline = :pipeline",
        "a_worker_claims_of_its_own_pipeline_alone",
    ),
    (
        "INSERT_AVAILABILITIES.3",
        1,
        "heads.pipeline = b.pipeline",
        "branches_of_two_pipelines_are_advanced_together",
    ),
    (
        "END_PAUSE.1",
        1,
        "pipeline = :pipeline",
        "a_pause_and_its_end_concern_their_own_pipeline_alone",
    ),
    // A process of an older version.
    (
        "MARK_PROCESSES.2",
        1,
        "paused IS NOT NULL",
        "a_worker_of_a_version_that_knows_no_pauses_is_told_and_not_marked",
    ),
    (
        "UNMARK.1",
        1,
        "version = :version",
        "every_value_of_every_column_comes_back_from_a_copy_of_a_copy",
    ),
    ("ORPHANS.1", 1, "completed_at IS NULL", ORPHANED),
    ("ORPHANS.3", 1, "lease_until < {now}", ORPHANED),
    ("ORPHANS.4", 2, "completed_at IS NULL", ORPHANED),
    ("ORPHANS.5", 2, "lease_until < {now}", ORPHANED),
    (
        "ORPHANS.6",
        1,
        "NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE {key:p.id;x.process_id})",
        ORPHANED,
    ),
];
