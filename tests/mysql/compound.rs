//! Several statements in one request: with all their writes or with none.

use ductwork::store::statement::{Only, Rows, Statement};
use ductwork::store::{Conn, Error};
use uuid::Uuid;

use crate::{is_mariadb, text, with};

static INSERT: Statement = Statement::new(
    "INSERT",
    "INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
     SELECT new_runs.id, :pipeline, '', new_runs.input, new_runs.trigger_key, {now} FROM {rows:new_runs}",
);
static MOVE: Statement = Statement::new(
    "MOVE",
    "UPDATE {into:ductwork_runs;new_runs} SET revived_from = new_runs.step_id, dampened = :n {from:new_runs}
      WHERE ductwork_runs.id = new_runs.id AND ductwork_runs.status = 'in_progress'",
);
static ALL: Statement = Statement::only(Only::Mysql, "ALL", "{whole:ROW_COUNT();:count}");
static QUEUE: Statement = Statement::new(
    "QUEUE",
    "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
     SELECT new_runs.execution_id, :pipeline, {now} + :n FROM {rows:new_runs}",
);
static LATER: Statement = Statement::new(
    "LATER",
    "UPDATE ductwork_availabilities SET due_at = due_at + 1 WHERE pipeline = :pipeline AND execution_id = :first",
);
static ROW: Statement = Statement::row("ROW", &[&INSERT, &MOVE, &ALL, &QUEUE, &LATER]);
/// The same, with a statement that returns rows: each of its parts is sent alone.
static READ: Statement = Statement::new(
    "READ",
    "SELECT new_runs.input AS it FROM {rows:new_runs} ORDER BY new_runs.id",
);
static ALONE: Statement = Statement::row("ALONE", &[&INSERT, &MOVE, &ALL, &READ, &QUEUE]);

const INPUTS: [&str; 3] = ["\"it's\"", "\"\\u0000 \\\\ 𝄞\"", "null"];

fn id(of: u128, at: u128) -> Uuid {
    Uuid::from_u128((of << 100) + 0xff00_0000_0000_c328 + at)
}

fn batch(of: u128, input: &str) -> Rows<'_> {
    let inputs = INPUTS
        .iter()
        .map(|it| if input.is_empty() { it } else { input });
    let ids = |kind: u128| (0..3).map(move |at| id(of, kind * 8 + at));
    Rows::new()
        .ids("id", ids(1))
        .texts("input", inputs)
        .optional_texts("trigger_key", [Some("a'b"), None, Some("𝄞")])
        .ids("branch_id", ids(2))
        .ids("step_id", ids(3))
        .ids("execution_id", ids(4))
}

async fn run(
    conn: &mut Conn,
    statement: &'static Statement,
    of: u128,
    count: i64,
    input: &str,
    commit: bool,
) -> Result<usize, Error> {
    let rows = batch(of, input);
    let pipeline = format!("p{of}");
    let args = [
        ("new_runs", (&rows).into()),
        ("pipeline", pipeline.as_str().into()),
        ("n", 7_i64.into()),
        ("count", count.into()),
        ("first", id(of, 32).into()),
    ];
    conn.transaction(async |conn| {
        let rows = match commit {
            true => conn.fetch_and_commit(statement, &args).await?,
            false => conn.fetch(statement, &args).await?,
        };
        Ok(rows.len())
    })
    .await
}

const WRITTEN: &str = "
    SELECT coalesce(group_concat(hex(r.id) || hex(r.revived_from) || r.dampened || r.input || coalesce(r.trigger_key, '-') ORDER BY r.id), '')
           || ' ' || (SELECT count(*) FROM ductwork_availabilities) AS it
      FROM ductwork_runs r";

#[tokio::test]
async fn all_is_written_or_nothing_however_it_is_sent() {
    with(|_sandbox, mut conn| async move {
        let conn = &mut conn;
        let (nothing, mariadb) = (text(conn, WRITTEN).await, is_mariadb(conn).await);
        for (statement, answers) in [(&ROW, 0), (&ALONE, 3)] {
            for commit in [false, true] {
                // A part wrote fewer rows than it had to.
                let error = run(conn, statement, 1, 4, "", commit).await.unwrap_err();
                assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
                assert!(!conn.is_broken());
                assert_eq!(text(conn, WRITTEN).await, nothing, "{}", statement.name);
                conn.take_statements();
                assert_eq!(
                    run(conn, statement, 1, 3, "", commit).await.unwrap(),
                    answers
                );
                let sent = conn.take_statements();
                let written = text(conn, WRITTEN).await;
                for input in INPUTS {
                    assert!(written.contains(input), "{written}");
                }
                assert!(written.ends_with(" 3"), "{written}");
                // One packet, if no part returns an answer that is waited for; otherwise one for each of them.
                // MySQL has no compound statements.
                let packets = match (answers, commit) {
                    _ if !mariadb => 8,
                    (0, true) => 1,
                    (0, false) => 2,
                    _ => 8,
                };
                assert_eq!(sent, packets, "{} {commit}", statement.name);
                conn.script(
                    "EMPTY",
                    "DELETE FROM ductwork_runs; DELETE FROM ductwork_availabilities",
                )
                .await
                .unwrap();
            }
        }
        // The second duplicate fails in the middle.
        run(conn, &ROW, 1, 3, "", true).await.unwrap();
        let before = text(conn, WRITTEN).await;
        for statement in [&ROW, &ALONE] {
            let error = run(conn, statement, 1, 3, "", true).await.unwrap_err();
            assert!(
                matches!(&error, Error::Constraint { constraint, .. } if constraint == "PRIMARY"),
                "{error:?}"
            );
            assert_eq!(text(conn, WRITTEN).await, before);
        }
    })
    .await;
}

/// The server rolls back, and answers with success, as a node of a cluster may answer a read.
static UNDO: Statement = Statement::new("UNDO", "ROLLBACK");
static UNDONE: Statement = Statement::row("UNDONE", &[&INSERT, &UNDO, &QUEUE]);

#[tokio::test]
async fn a_transaction_that_the_server_undoes_without_saying_so_is_run_again_as_a_whole() {
    with(|_sandbox, mut conn| async move {
        let conn = &mut conn;
        let rows = batch(1, "");
        let args = [
            ("new_runs", (&rows).into()),
            ("pipeline", "p1".into()),
            ("n", 7_i64.into()),
        ];
        let mut tries = 0;
        let done = conn.transaction(async |conn| {
            tries += 1;
            match tries {
                // Alone, and in the middle of a statement that consists of several.
                1 => {
                    conn.fetch(&INSERT, &args).await?;
                    conn.fetch(&UNDO, &[]).await?;
                }
                2 => drop(conn.fetch(&UNDONE, &args).await?),
                3 => drop(conn.fetch_and_commit(&UNDONE, &args).await?),
                _ => {
                    conn.fetch(&INSERT, &args).await?;
                    conn.fetch(&MOVE, &args).await?;
                }
            }
            if tries < 4 {
                conn.fetch(&QUEUE, &args).await?;
            }
            Ok(())
        });
        done.await.unwrap();
        assert_eq!(tries, 4);
        let written = text(conn, WRITTEN).await;
        assert!(written.contains(INPUTS[0]), "{written}");
        assert!(written.ends_with(" 0"), "a part that came later: {written}");
    })
    .await;
}

/// The same in the middle of a compound statement.
static UNDO_WITHIN: Statement = Statement::new(
    "UNDO_WITHIN",
    "DELETE FROM ductwork_tuples WHERE 1 = 0; ROLLBACK",
);
static UNDONE_WITHIN: Statement = Statement::row("UNDONE_WITHIN", &[&INSERT, &UNDO_WITHIN, &QUEUE]);

#[tokio::test]
async fn a_compound_statement_does_nothing_more_once_its_transaction_is_undone() {
    with(|_sandbox, mut conn| async move {
        let conn = &mut conn;
        if !is_mariadb(conn).await {
            return;
        }
        let rows = batch(1, "");
        let args = [
            ("new_runs", (&rows).into()),
            ("pipeline", "p1".into()),
            ("n", 7_i64.into()),
        ];
        let mut tries = 0;
        let done = conn.transaction(async |conn| {
            tries += 1;
            match tries {
                1 => drop(conn.fetch(&UNDONE_WITHIN, &args).await?),
                2 => drop(conn.fetch_and_commit(&UNDONE_WITHIN, &args).await?),
                _ => {
                    conn.fetch(&INSERT, &args).await?;
                    conn.fetch(&MOVE, &args).await?;
                }
            }
            Ok(())
        });
        done.await.unwrap();
        assert_eq!(tries, 3);
        let written = text(conn, WRITTEN).await;
        assert!(written.contains(INPUTS[0]), "{written}");
        assert!(written.ends_with(" 0"), "a part that came later: {written}");
    })
    .await;
}

/// Beyond one MiB, the rows are sent beforehand, as values.
#[tokio::test]
async fn a_large_batch_is_staged_before() {
    with(|_sandbox, mut conn| async move {
        let large = format!("\"{}\"", "𝄞".repeat(1 << 18));
        run(&mut conn, &ROW, 2, 3, &large, true).await.unwrap();
        let is = text(&mut conn, "SELECT group_concat(DISTINCT sha2(input, 256) || length(input)) AS it FROM ductwork_runs").await;
        let expected = text(&mut conn, "SELECT sha2(it, 256) || length(it) AS it FROM (SELECT CONCAT('\"', REPEAT('𝄞', 262144), '\"') AS it) x").await;
        assert_eq!(is, expected);
        conn.close().await;
    })
    .await;
}
