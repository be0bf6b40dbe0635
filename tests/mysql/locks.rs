//! Statements that lock the rows of a batch lock only these, and in the batch's order.

use ductwork::store::catalogue::catalogue;
use ductwork::store::fault_injection::{session, waits};
use ductwork::store::statement::{Arg, Rows, Statement};
use ductwork::store::{Conn, Purpose};
use uuid::Uuid;

use crate::{another, statement, text, with};

/// Four rows in each table: with so few, the planner would rather read all than look any up.
const FILL: &str = "
    INSERT INTO ductwork_branches (id, run_id, pipeline, status, step_id, ordinal)
    SELECT id, id, 'P', 'in_progress', id, 0 FROM four;
    INSERT INTO ductwork_fan_outs (id, run_id, branch_id, node, via, width, created_at)
    SELECT id, id, id, 'A', 'divide', 4, 1 FROM four;
    INSERT INTO ductwork_executions (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until)
    SELECT id, id, 'P', 1, x'00000000000000000000000000000009', 1, 1 FROM four;
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at) SELECT id, 'P', 1 FROM four;
    INSERT INTO ductwork_advancements
        (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until)
    SELECT id, id, id, x'00000000000000000000000000000009', id, 1, 1 FROM four;
    INSERT INTO ductwork_transitions (id, run_id, branch_id, from_step_id, opened_at)
    SELECT id, id, id, id, 1 FROM four;
    ANALYZE TABLE ductwork_branches, ductwork_fan_outs, ductwork_executions, ductwork_availabilities,
                  ductwork_advancements, ductwork_transitions";

const ADVANCING: &str = "
    UPDATE ductwork_branches SET status = 'advancing', claim_token = id, claimed_for_advancing_at = 1";
const DAMPENED: &str = "
    UPDATE ductwork_branches SET status = 'dampened', claim_token = NULL, claimed_for_advancing_at = NULL";

/// A statement, the table that it locks, and the change to the rows beforehand.
const LOCKING: &[(&str, &str, &str)] = &[
    ("LOCK_FENCED", "branches", ADVANCING),
    ("LOCK_BRANCHES", "branches", ADVANCING),
    ("HOLD_DAMPENED", "branches", DAMPENED),
    ("CANCEL_HOLD_BRANCHES", "branches", DAMPENED),
    ("LOCK_FAN_OUTS", "fan_outs", ""),
    ("LAST_AT_BARRIERS", "fan_outs", ""),
    ("LOCK_CLAIMED", "executions", ""),
    ("CANCEL_HOLD_EXECUTIONS", "executions", ""),
    ("CANCEL_HOLD_PLACES", "availabilities", ""),
    ("LOCK_ADVANCEMENTS", "advancements", ""),
    // Statements that write.
    ("LOST_EXECUTIONS", "executions", ""),
    ("RELEASE_BRANCHES", "branches", ADVANCING),
    ("ARRIVE_ALONE", "fan_outs", ""),
    ("EXTEND_ADVANCEMENTS", "advancements", ""),
    ("COMPLETE_TRANSITIONS", "transitions", ""),
    ("COMPLETE_ADVANCEMENTS", "advancements", ""),
];

fn named(name: &str) -> &'static Statement {
    let all = catalogue().into_iter();
    let mut of_name = all.filter(|statement| statement.name == name);
    of_name
        .next()
        .unwrap_or_else(|| panic!("there is no {name}"))
}

/// The rows 3, 2 and 1, in this order: each of a row's keys is its number.
fn batch(name: &str) -> Rows<'static> {
    let ids = || [3, 2, 1].map(Uuid::from_u128);
    match name {
        "LOCK_BRANCHES" => Rows::new().ids("id", ids()).ids("token", ids()),
        "HOLD_DAMPENED" => Rows::new().ids("branch_id", ids()).ids("step_id", ids()),
        "LAST_AT_BARRIERS" => {
            let rows = Rows::new().ids("execution_id", ids()).ids("step_id", ids());
            rows.ids("arrives_at", ids())
        }
        "RELEASE_BRANCHES" => {
            let rows = Rows::new().ids("branch_id", ids()).ids("token", ids());
            rows.ints("delay", [0, 0, 0])
        }
        "ARRIVE_ALONE" => {
            let rows = Rows::new().ids("id", ids());
            rows.ints("arriving", [1, 1, 1]).ints("halting", [0, 0, 0])
        }
        "COMPLETE_TRANSITIONS" => {
            let rows = Rows::new().ids("id", ids()).ids("branch_id", ids());
            rows.texts("kind", ["chain"; 3]).ints("steps", [1, 1, 1])
        }
        "COMPLETE_ADVANCEMENTS" => Rows::new().ids("id", ids()).ids("branch_id", ids()),
        _ => Rows::new().ids("id", ids()),
    }
}

async fn run(conn: &mut Conn, name: &str) {
    let (rows, process) = (batch(name), Uuid::from_u128(9));
    let args: [(&'static str, Arg<'_>); 7] = [
        ("b", (&rows).into()),
        ("process", process.into()),
        ("id", process.into()),
        ("result", "process_crashed".into()),
        ("class", "process_crashed".into()),
        ("message", "killed".into()),
        ("lease", 1_i64.into()),
    ];
    let locked = conn.transaction(async |conn| conn.fetch(named(name), &args).await);
    locked.await.unwrap();
}

/// A deadlock costs both sessions a wait and one of them all of its work, so locks are taken in one order; and a
/// plan that reads the whole table waits for rows that do not concern the statement.
#[tokio::test]
async fn a_batch_is_locked_row_by_row_in_its_order_and_nothing_else_is() {
    with(|sandbox, mut conn| async move {
        let four = "CREATE TABLE four (id binary(16) PRIMARY KEY) ENGINE=InnoDB;
            INSERT INTO four VALUES (x'00000000000000000000000000000001'), (x'00000000000000000000000000000002'),
                                    (x'00000000000000000000000000000003'), (x'00000000000000000000000000000004')";
        conn.script("FOUR", four).await.unwrap();
        conn.script("FILL", FILL).await.unwrap();
        let mut watch = another(&sandbox, Purpose::Engine).await;
        for (name, table, before) in LOCKING {
            conn.script("BEFORE", before).await.unwrap();
            let key = match *table {
                "availabilities" => "execution_id",
                "advancements" => "branch_id",
                _ => "id",
            };
            // Another session holds the second row.
            let second = format!("SELECT 1 FROM ductwork_{table} WHERE {key} = (SELECT max(id) FROM four WHERE id < x'00000000000000000000000000000003') FOR UPDATE");
            conn.script("BEGIN", "START TRANSACTION").await.unwrap();
            conn.fetch(statement(second), &[]).await.unwrap();
            let mut locks = another(&sandbox, Purpose::Engine).await;
            let locking = session(&mut locks).await.unwrap().unwrap();
            let asked = tokio::task::spawn_local(async move {
                run(&mut locks, name).await;
                locks.close().await;
            });
            while !waits(&mut watch, locking).await.unwrap() {
                assert!(!asked.is_finished(), "{name} waits for nobody");
                tokio::time::sleep(ductwork::store::fault_injection::LOOK_AGAIN).await;
            }
            let free = format!(
                "SELECT HEX(RIGHT({key}, 1)) AS it FROM ductwork_{table} ORDER BY {key} FOR UPDATE SKIP LOCKED"
            );
            let rows = crate::rows(&mut watch, free).await.unwrap();
            let free: Vec<String> = rows.iter().map(|row| row.get("it").unwrap()).collect();
            conn.script("COMMIT", "COMMIT").await.unwrap();
            asked.await.unwrap();
            assert_eq!(free, ["01", "04"], "{name} came to the third row first, and then to the second");
        }
        assert_eq!(text(&mut conn, "SELECT 'here' AS it").await, "here");
        watch.close().await;
        conn.close().await;
    })
    .await;
}
