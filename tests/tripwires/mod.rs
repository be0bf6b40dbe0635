//! Triggers in a test's database that record forbidden changes to a row, so that a violation is
//! noticed even if it is gone before anyone looks.
//!
//! The invariants are checked on a state; these are checked on each change. The state machine's own table
//! (`machine::transition`) contains the changes of status. The record of a transaction that rolled back is gone
//! with it, as it should be.

use std::collections::BTreeSet;

use ductwork::machine::transition::{ExecutionStatus, Happening, Lifecycle};
use ductwork::model::{BranchStatus, RunStatus, StepStatus};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect};

/// A forbidden change.
pub struct Tripwire {
    /// Its description.
    pub name: &'static str,
    table: &'static str,
    event: Event,
    /// A condition on OLD and NEW, in SQL for both databases.
    when: String,
    /// A statement that trips it, on the database of the test for that.
    pub example: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Insert,
    Update,
    Delete,
}

use Event::{Delete, Insert, Update};

/// True where a status changes in a way that no transition allows. A revival writes the copies of a
/// run's rows, and then changes them, in one transaction.
fn moves_wrongly<S: Lifecycle>(status: impl Fn(&str) -> String) -> String {
    let (old, new) = (status("OLD"), status("NEW"));
    let mut known = BTreeSet::new();
    for from in S::EVERY {
        let after = <S::Event as Happening>::EVERY
            .iter()
            .map(|event| from.next(*event));
        for to in after.flatten().filter(|to| to != from) {
            known.insert(format!(
                "({old} = '{}' AND {new} = '{}')",
                from.word(),
                to.word()
            ));
        }
    }
    let known: Vec<String> = known.into_iter().collect();
    format!("{old} <> {new} AND NOT ({})", known.join(" OR "))
}

/// True where a row is inserted with a status in which nothing begins.
fn born_wrongly<S: Lifecycle>() -> String {
    let known: Vec<String> = S::BORN
        .iter()
        .map(|status| format!("'{}'", status.word()))
        .collect();
    format!("NEW.status NOT IN ({})", known.join(", "))
}

/// The status column of the row before or after the change.
fn status(row: &str) -> String {
    format!("{row}.status")
}

/// The state of an execution.
fn stands(row: &str) -> String {
    format!(
        "CASE WHEN {row}.result IS NOT NULL THEN {row}.result
              WHEN {row}.process_id IS NOT NULL THEN 'claimed' ELSE 'queued' END"
    )
}

/// True where one of the columns changes.
fn changes(columns: &[&str]) -> String {
    let change = |column: &&str| format!("NEW.{column} IS DISTINCT FROM OLD.{column}");
    let changes: Vec<String> = columns.iter().map(change).collect();
    format!("({})", changes.join(" OR "))
}

/// True where the row belongs to a run that is not over.
fn of_an_active_run(run: &str) -> String {
    let active: Vec<String> = RunStatus::ALL
        .iter()
        .filter(|status| !status.is_terminal())
        .map(|status| format!("'{status}'"))
        .collect();
    format!(
        "EXISTS (SELECT 1 FROM ductwork_runs r WHERE r.id = {run} AND r.status IN ({}))",
        active.join(", ")
    )
}

const NO_REVIVAL: &str = "NOT EXISTS (SELECT 1 FROM ductwork_runs r
    WHERE r.id = OLD.run_id AND r.revived_from IS NOT NULL)";
const NOT_REVIVED: &str = "NOT EXISTS (SELECT 1 FROM ductwork_runs r
    WHERE r.id = NEW.run_id AND r.revived_from IS NOT NULL)";

/// All of them.
#[expect(clippy::too_many_lines, reason = "it is a list")]
pub fn tripwires() -> Vec<Tripwire> {
    let mut all = Vec::new();
    let mut add = |name, table, event, when: String, example| {
        all.push(Tripwire {
            name,
            table,
            event,
            when,
            example,
        });
    };
    let and = |one: &str, other: &str| format!("({one}) AND ({other})");

    add(
        "a run's status changed as none may",
        "ductwork_runs",
        Update,
        moves_wrongly::<RunStatus>(status),
        "UPDATE ductwork_runs SET status = 'in_progress', completed_at = NULL, output = NULL
          WHERE status = 'completed'",
    );
    add(
        "a run began otherwise than any does",
        "ductwork_runs",
        Insert,
        born_wrongly::<RunStatus>(),
        "INSERT INTO ductwork_runs (id, pipeline, definition, input, status, output, triggered_at, completed_at)
         SELECT step_id, 'Spread', 'none', '1', 'completed', '1', 5, 5 FROM ductwork_branches
          WHERE status = 'completed' AND fan_out_id IS NULL",
    );
    add(
        "what a run ended with was rewritten",
        "ductwork_runs",
        Update,
        and(
            "OLD.status NOT IN ('in_progress', 'dampened')",
            &changes(&[
                "output",
                "completed_at",
                "halted_at",
                "cancelled_at",
                "dampened",
            ]),
        ),
        "UPDATE ductwork_runs SET output = '9' WHERE status = 'completed'",
    );
    add(
        "what a run was triggered with was rewritten",
        "ductwork_runs",
        Update,
        changes(&[
            "id",
            "pipeline",
            "definition",
            "input",
            "trigger_key",
            "revived_from",
            "triggered_at",
        ]),
        "UPDATE ductwork_runs SET input = '9'",
    );
    add(
        "an active run was deleted",
        "ductwork_runs",
        Delete,
        "OLD.status IN ('in_progress', 'dampened')".to_owned(),
        "DELETE FROM ductwork_runs WHERE status = 'in_progress'",
    );

    add(
        "a branch's status changed as none may",
        "ductwork_branches",
        Update,
        and(&moves_wrongly::<BranchStatus>(status), NO_REVIVAL),
        "UPDATE ductwork_branches SET status = 'in_progress' WHERE status = 'completed'",
    );
    add(
        "a branch began otherwise than any does",
        "ductwork_branches",
        Insert,
        and(&born_wrongly::<BranchStatus>(), NOT_REVIVED),
        "INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id)
         SELECT step_id, run_id, pipeline, 'completed', step_id FROM ductwork_branches",
    );
    add(
        "a claim token changed under its claim",
        "ductwork_branches",
        Update,
        and(
            "OLD.status = 'advancing' AND NEW.status = 'advancing'",
            &changes(&["claim_token", "claimed_for_advancing_at"]),
        ),
        "UPDATE ductwork_branches SET claim_token = id WHERE status = 'advancing'",
    );
    add(
        "a branch went back",
        "ductwork_branches",
        Update,
        "(SELECT n.ordinal FROM ductwork_steps n WHERE n.id = NEW.step_id)
            < (SELECT o.ordinal FROM ductwork_steps o WHERE o.id = OLD.step_id)"
            .to_owned(),
        "UPDATE ductwork_branches SET step_id = (SELECT s.id FROM ductwork_steps s
            WHERE s.branch_id = ductwork_branches.id AND s.ordinal = 0)
          WHERE status = 'completed' AND fan_out_id IS NULL",
    );
    add(
        "a branch went over to another run or place",
        "ductwork_branches",
        Update,
        changes(&["id", "run_id", "pipeline", "fan_out_id", "ordinal"]),
        "UPDATE ductwork_branches SET ordinal = ordinal + 10",
    );
    add(
        "a branch of an active run was deleted",
        "ductwork_branches",
        Delete,
        of_an_active_run("OLD.run_id"),
        "DELETE FROM ductwork_branches",
    );

    add(
        "arrivals at a barrier were taken back",
        "ductwork_fan_outs",
        Update,
        and(
            "NEW.arrived < OLD.arrived OR NEW.halted < OLD.halted",
            NO_REVIVAL,
        ),
        "UPDATE ductwork_fan_outs SET arrived = 0 WHERE arrived > 0 AND fired_at IS NULL",
    );
    add(
        "a barrier changed after it had fired",
        "ductwork_fan_outs",
        Update,
        and(
            "OLD.fired_at IS NOT NULL",
            &and(&changes(&["arrived", "halted", "fired_at"]), NO_REVIVAL),
        ),
        "UPDATE ductwork_fan_outs SET fired_at = fired_at + 1 WHERE fired_at IS NOT NULL",
    );
    add(
        "a fan-out was built otherwise",
        "ductwork_fan_outs",
        Update,
        changes(&[
            "id",
            "run_id",
            "branch_id",
            "node",
            "via",
            "width",
            "parent_fan_out_id",
            "parent_ordinal",
        ]),
        "UPDATE ductwork_fan_outs SET width = width + 1 WHERE fired_at IS NULL",
    );
    add(
        "a fan-out of an active run was deleted",
        "ductwork_fan_outs",
        Delete,
        of_an_active_run("OLD.run_id"),
        "DELETE FROM ductwork_fan_outs",
    );

    add(
        "a step's status changed as none may",
        "ductwork_steps",
        Update,
        and(&moves_wrongly::<StepStatus>(status), NO_REVIVAL),
        "UPDATE ductwork_steps SET status = 'advancing' WHERE status = 'completed'",
    );
    add(
        "a step began otherwise than any does",
        "ductwork_steps",
        Insert,
        and(&born_wrongly::<StepStatus>(), NOT_REVIVED),
        "INSERT INTO ductwork_steps (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
         SELECT branch_id, run_id, branch_id, 100, node, step, via, 'failed', input, 5
           FROM ductwork_steps WHERE ordinal = 0",
    );
    add(
        "an output was rewritten",
        "ductwork_steps",
        Update,
        and("OLD.output IS NOT NULL", &changes(&["output"])),
        "UPDATE ductwork_steps SET output = '9' WHERE output IS NOT NULL",
    );
    add(
        "a step was made another",
        "ductwork_steps",
        Update,
        changes(&[
            "id",
            "run_id",
            "branch_id",
            "ordinal",
            "node",
            "step",
            "via",
            "transition_id",
            "source_step_id",
            "input",
        ]),
        "UPDATE ductwork_steps SET input = '9'",
    );
    add(
        "a step of an active run was deleted",
        "ductwork_steps",
        Delete,
        of_an_active_run("OLD.run_id"),
        "DELETE FROM ductwork_steps",
    );

    add(
        "an execution's status changed as none may",
        "ductwork_executions",
        Update,
        moves_wrongly::<ExecutionStatus>(stands),
        "UPDATE ductwork_executions SET result = 'error' WHERE result = 'success'",
    );
    add(
        "an execution was changed after its end",
        "ductwork_executions",
        Update,
        and(
            "OLD.completed_at IS NOT NULL",
            &changes(&[
                "process_id",
                "claimed_at",
                "lease_until",
                "completed_at",
                "result",
                "error_class",
                "error_message",
                "error_backtrace",
                "log",
            ]),
        ),
        "UPDATE ductwork_executions SET lease_until = 5 WHERE completed_at IS NOT NULL",
    );
    add(
        "an execution went from one process to another",
        "ductwork_executions",
        Update,
        "NEW.process_id <> OLD.process_id".to_owned(),
        "UPDATE ductwork_executions SET process_id = id WHERE process_id IS NOT NULL",
    );
    add(
        "an attempt was made another",
        "ductwork_executions",
        Update,
        changes(&[
            "id",
            "step_id",
            "pipeline",
            "attempt",
            "retry_count",
            "crash_count",
        ]),
        "UPDATE ductwork_executions SET retry_count = retry_count + 1",
    );
    add(
        "an attempt was made after a success",
        "ductwork_executions",
        Insert,
        "EXISTS (SELECT 1 FROM ductwork_executions e
                  WHERE e.step_id = NEW.step_id AND e.result = 'success' AND e.id <> NEW.id)"
            .to_owned(),
        "INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
         SELECT step_id, step_id, pipeline, attempt + 1 FROM ductwork_executions WHERE result = 'success'",
    );
    add(
        "an execution of an active run was deleted",
        "ductwork_executions",
        Delete,
        of_an_active_run("(SELECT s.run_id FROM ductwork_steps s WHERE s.id = OLD.step_id)"),
        "DELETE FROM ductwork_executions",
    );

    add(
        "what has ended was queued",
        "ductwork_availabilities",
        Insert,
        "EXISTS (SELECT 1 FROM ductwork_executions e
                  WHERE e.id = NEW.execution_id AND e.completed_at IS NOT NULL)"
            .to_owned(),
        "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
         SELECT id, pipeline, 5 FROM ductwork_executions WHERE result = 'success'",
    );

    add(
        "a transition was changed after its end",
        "ductwork_transitions",
        Update,
        and(
            "OLD.completed_at IS NOT NULL",
            &changes(&[
                "via",
                "produced",
                "retry_count",
                "crash_count",
                "completed_at",
            ]),
        ),
        "UPDATE ductwork_transitions SET produced = produced + 1 WHERE completed_at IS NOT NULL",
    );
    add(
        "a transition was made another",
        "ductwork_transitions",
        Update,
        changes(&["id", "run_id", "branch_id", "from_step_id", "opened_at"]),
        "UPDATE ductwork_transitions SET branch_id = id",
    );
    add(
        "a transition of an active run was deleted",
        "ductwork_transitions",
        Delete,
        of_an_active_run("OLD.run_id"),
        "DELETE FROM ductwork_transitions",
    );

    add(
        "an advancement was changed after its end",
        "ductwork_advancements",
        Update,
        and(
            "OLD.completed_at IS NOT NULL",
            &changes(&["lease_until", "completed_at", "result", "error_class"]),
        ),
        "UPDATE ductwork_advancements SET result = 'error' WHERE result = 'success'",
    );
    add(
        "an advancement was made another",
        "ductwork_advancements",
        Update,
        changes(&[
            "id",
            "transition_id",
            "branch_id",
            "process_id",
            "claim_token",
            "claimed_at",
        ]),
        "UPDATE ductwork_advancements SET claim_token = id",
    );

    add(
        "a heartbeat was taken back",
        "ductwork_processes",
        Update,
        "NEW.beat_seq < OLD.beat_seq".to_owned(),
        "UPDATE ductwork_processes SET beat_seq = beat_seq - 1",
    );
    all
}

/// Installs all of them in a database with its schema.
pub async fn install(conn: &mut Conn) {
    let mut script =
        "CREATE TABLE IF NOT EXISTS tripped (name text NOT NULL, id text NOT NULL);\n".to_owned();
    for (number, wire) in tripwires().iter().enumerate() {
        script.push_str(&trigger(conn.dialect(), number, wire));
    }
    // Once per test.
    let script = Box::leak(script.into_boxed_str());
    let installed = conn.script("tripwires", script).await;
    installed.expect("the tripwires");
}

fn trigger(dialect: Dialect, number: usize, wire: &Tripwire) -> String {
    let Tripwire {
        name,
        table,
        event,
        when,
        ..
    } = wire;
    let name = name.replace('\'', "''");
    let (event, row) = match event {
        Insert => ("INSERT", "NEW"),
        Update => ("UPDATE", "OLD"),
        Delete => ("DELETE", "OLD"),
    };
    let key = match *table {
        "ductwork_availabilities" => "execution_id",
        _ => "id",
    };
    match dialect {
        Dialect::Sqlite => format!(
            "CREATE TRIGGER IF NOT EXISTS tripwire_{number} AFTER {event} ON {table} WHEN {when} BEGIN
                INSERT INTO tripped VALUES ('{name}', hex({row}.{key}));
             END;\n"
        ),
        Dialect::Postgres => format!(
            "CREATE OR REPLACE FUNCTION tripwire_{number}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF ({when}) THEN INSERT INTO tripped VALUES ('{name}', {row}.{key}); END IF;
                RETURN NULL;
             END $$;
             CREATE OR REPLACE TRIGGER tripwire_{number} AFTER {event} ON {table}
                FOR EACH ROW EXECUTE FUNCTION tripwire_{number}();\n"
        ),
        // Such a server splits a text at its semicolons, so each tripwire is one statement. A session can switch
        // them off, as on PostgreSQL.
        Dialect::Mysql => format!(
            "CREATE TRIGGER IF NOT EXISTS tripwire_{number} AFTER {event} ON {table} FOR EACH ROW
                INSERT INTO tripped SELECT '{name}', hex({row}.{key}) FROM DUAL
                 WHERE @tripwires_are_off IS NULL AND ({});\n",
            without_distinct(when)
        ),
    }
}

/// A condition whose comparisons treat two nulls as equal, in MySQL's syntax.
fn without_distinct(when: &str) -> String {
    const WORDS: &str = " IS DISTINCT FROM ";
    let (mut said, mut rest) = (String::new(), when);
    while let Some((before, after)) = rest.split_once(WORDS) {
        let from = before.rfind([' ', '(']).map_or(0, |at| at + 1);
        let to = after.find([' ', ')']).unwrap_or(after.len());
        said.push_str(&before[..from]);
        said.push_str(&format!("NOT ({} <=> {})", &before[from..], &after[..to]));
        rest = &after[to..];
    }
    said + rest
}

/// The records so far.
pub async fn tripped(conn: &mut Conn) -> Vec<String> {
    static TRIPPED: Statement = Statement::new(
        "TEST_TRIPPED",
        "SELECT name, count(*) AS n, min(id) AS id FROM tripped GROUP BY name ORDER BY name",
    );
    let rows = conn.fetch(&TRIPPED, &[]).await.expect("the record");
    let line = |row: &ductwork::store::Row| {
        let name: String = row.get("name").expect("a name");
        let id: String = row.get("id").expect("an id");
        let n: i64 = row.get("n").expect("a number");
        format!("{name}: {n} times, {id} among them")
    };
    rows.iter().map(line).collect()
}
