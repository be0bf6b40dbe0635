//! The errors that a server can be made to raise, each raised by a real server: the class that each is given.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ductwork::store::sandbox::Sandbox;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Purpose};

use crate::{another, is_mariadb, statement, text, with};

const PATIENCE: Duration = Duration::from_secs(120);

/// The class of an error, by its variant and whether it blames the value.
fn class(error: &Error) -> (&'static str, bool) {
    let variant = match error {
        Error::Unavailable {
            in_commit: true, ..
        } => "unknown",
        Error::Unavailable { .. } => "unavailable",
        Error::Hindered { .. } => "hindered",
        Error::Retryable { .. } => "retryable",
        Error::Constraint { .. } => "constraint",
        Error::Refused { .. } => "refused",
        Error::Corrupt(_) => "corrupt",
        _ => "another",
    };
    (variant, error.blames_the_value())
}

async fn raised(conn: &mut Conn, sql: impl Into<String>) -> Error {
    let sql = sql.into();
    match conn.execute(statement(sql.clone()), &[]).await {
        Ok(written) => panic!("{sql} raised nothing, and wrote {written}"),
        Err(error) => error,
    }
}

const SETUP: &str = "
    CREATE TABLE checked (n int PRIMARY KEY, text varchar(3), id binary(16), CONSTRAINT positive CHECK (n > 0)) ENGINE=InnoDB CHARSET=utf8mb4;
    CREATE UNIQUE INDEX texts ON checked (text);
    CREATE TABLE referring (n int, FOREIGN KEY (n) REFERENCES checked (n)) ENGINE=InnoDB;
    INSERT INTO checked VALUES (1, 'a', NULL), (2, 'b', NULL)";

#[tokio::test]
async fn what_one_statement_can_raise_is_blamed_on_the_value_or_on_the_program() {
    with(|_sandbox, mut conn| async move {
        conn.script("SETUP", SETUP).await.unwrap();
        for (sql, variant, blames) in [
            (
                "INSERT INTO checked VALUES (1, 'c', NULL)",
                "constraint",
                true,
            ),
            (
                "INSERT INTO checked VALUES (3, 'a', NULL)",
                "constraint",
                true,
            ),
            (
                "INSERT INTO checked VALUES (0, 'c', NULL)",
                "constraint",
                true,
            ),
            ("INSERT INTO referring VALUES (7)", "refused", true),
            (
                "INSERT INTO checked VALUES (NULL, 'c', NULL)",
                "refused",
                true,
            ),
            (
                "INSERT INTO checked VALUES (3, 'long', NULL)",
                "refused",
                true,
            ),
            (
                "INSERT INTO checked VALUES (99999999999, 'c', NULL)",
                "refused",
                true,
            ),
            (
                "INSERT INTO checked VALUES ('x', 'c', NULL)",
                "refused",
                true,
            ),
            (
                "INSERT INTO checked VALUES (3, x'ff', NULL)",
                "refused",
                true,
            ),
            (
                "INSERT INTO checked VALUES (3, 'c', x'0123456789abcdef0123456789abcdef01')",
                "refused",
                true,
            ),
            ("SELECT 9223372036854775807 + (1 <> 2)", "retryable", false),
            ("SELECT nothing FROM checked", "refused", false),
            // A foreign trigger may name a missing table: the environment is to blame, never the value.
            ("SELECT 1 FROM nowhere", "hindered", false),
            ("SELEKT 1", "refused", false),
            ("SELECT n, max(text) FROM checked", "refused", false),
        ] {
            let error = raised(&mut conn, sql).await;
            assert_eq!(class(&error), (variant, blames), "{sql}: {error:?}");
            assert!(!conn.is_broken(), "{sql}");
        }
        let error = raised(&mut conn, "INSERT INTO checked VALUES (3, 'a', NULL)").await;
        assert_eq!(error.to_string(), "the constraint texts refused the write");
        let error = raised(&mut conn, "INSERT INTO checked VALUES (0, 'c', NULL)").await;
        assert_eq!(
            error.to_string(),
            "the constraint positive refused the write"
        );
        // Nothing was truncated, and no transaction was left open.
        assert_eq!(
            text(
                &mut conn,
                "SELECT CAST(count(*) AS CHAR) AS it FROM checked"
            )
            .await,
            "2"
        );
        let open = "SELECT CAST(count(*) AS CHAR) AS it FROM information_schema.INNODB_TRX
                     WHERE trx_mysql_thread_id = CONNECTION_ID()";
        assert_eq!(text(&mut conn, open).await, "0");
        conn.close().await;
    })
    .await;
}

/// One transaction of a deadlock is rolled back entirely, and retried; the other one goes on.
#[tokio::test]
async fn a_deadlock_is_tried_again_and_both_get_through() {
    with(|sandbox, mut conn| async move {
        conn.script("SETUP", SETUP).await.unwrap();
        let met = tokio::sync::Barrier::new(2);
        let attempts = std::cell::Cell::new(0);
        let both = async |first: i64, second: i64| {
            let mut conn = another(&sandbox, Purpose::Engine).await;
            let mut times = 0;
            conn.transaction(async |conn| {
                attempts.set(attempts.get() + 1);
                let update = statement("UPDATE checked SET text = text WHERE n = :n");
                conn.execute(update, &[("n", first.into())]).await?;
                times += 1;
                if times == 1 {
                    met.wait().await;
                }
                assert_eq!(conn.execute(update, &[("n", second.into())]).await?, 1);
                Ok(())
            })
            .await
            .unwrap();
            conn.close().await;
        };
        tokio::join!(both(1, 2), both(2, 1));
        assert_eq!(attempts.get(), 3);
        conn.close().await;
    })
    .await;
}

async fn id(conn: &mut Conn) -> String {
    text(conn, "SELECT CAST(CONNECTION_ID() AS CHAR) AS it").await
}

/// Waits until a session executes a statement like this, and does something to it.
async fn when_within(sandbox: &Sandbox, id: &str, like: &str, then: &str) {
    let mut conn = another(sandbox, Purpose::Query).await;
    let sql = format!(
        "SELECT CAST(count(*) AS CHAR) AS it FROM information_schema.PROCESSLIST WHERE ID = {id} AND INFO LIKE '{like}' AND COMMAND <> 'Prepare'"
    );
    while text(&mut conn, sql.clone()).await != "1" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    conn.script("THEN", then.replace("ID", id).leak())
        .await
        .unwrap();
    conn.close().await;
}

#[tokio::test]
async fn a_statement_that_is_killed_or_takes_too_long_is_tried_again_and_leaves_its_session() {
    with(|sandbox, mut conn| async move {
        conn.script("SETUP", SETUP).await.unwrap();
        let session = id(&mut conn).await;
        // A query would be sent again.
        let (error, ()) = tokio::join!(
            raised(&mut conn, "UPDATE checked SET n = n WHERE sleep(60) = 0"),
            when_within(&sandbox, &session, "UPDATE checked%", "KILL QUERY ID")
        );
        assert_eq!(class(&error), ("retryable", false), "{error:?}");
        assert!(!conn.is_broken());
        let sleep = "SELECT sleep(60) FROM checked";
        let short = match is_mariadb(&mut conn).await {
            true => "SET SESSION max_statement_time = 0.05",
            false => "SET SESSION max_execution_time = 50",
        };
        conn.script("SET", short).await.unwrap();
        let error = raised(&mut conn, sleep).await;
        assert_eq!(class(&error), ("retryable", false), "{error:?}");
        assert!(!conn.is_broken());
        assert_eq!(id(&mut conn).await, session);
        conn.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_killed_is_unavailable() {
    with(|sandbox, mut conn| async move {
        conn.script("SETUP", SETUP).await.unwrap();
        let session = id(&mut conn).await;
        let sleep = "SELECT sleep(60) FROM checked";
        let (error, ()) = tokio::join!(
            raised(&mut conn, sleep),
            when_within(&sandbox, &session, "SELECT sleep%", "KILL ID")
        );
        assert_eq!(class(&error), ("unavailable", false), "{error:?}");
        assert!(conn.is_broken());
        conn.close().await;
        // Between two statements of a transaction: the next one reports it.
        let mut conn = another(&sandbox, Purpose::Engine).await;
        let session = id(&mut conn).await;
        let mut killer = another(&sandbox, Purpose::Query).await;
        let error = conn
            .transaction(async |conn| {
                conn.execute(statement("UPDATE checked SET text = 'x' WHERE n = 1"), &[])
                    .await?;
                killer
                    .script("KILL", format!("KILL {session}").leak())
                    .await
                    .unwrap();
                conn.execute(statement("UPDATE checked SET text = 'y' WHERE n = 2"), &[])
                    .await
            })
            .await
            .unwrap_err();
        assert_eq!(class(&error), ("unavailable", false), "{error:?}");
        assert!(conn.is_broken());
        conn.close().await;
        assert_eq!(
            text(
                &mut killer,
                "SELECT group_concat(text ORDER BY n) AS it FROM checked"
            )
            .await,
            "a,b"
        );
        killer.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_lock_is_waited_for_as_long_as_the_connection_waits_and_rolled_back() {
    with(|sandbox, mut conn| async move {
        conn.script("SETUP", SETUP).await.unwrap();
        conn.script(
            "BEGIN",
            "START TRANSACTION; UPDATE checked SET text = 'x' WHERE n = 1",
        )
        .await
        .unwrap();
        // It waits for a second at most, and is not retried at once.
        let mut bulk = another(&sandbox, Purpose::Bulk).await;
        let error = bulk
            .transaction(async |conn| {
                conn.execute(statement("UPDATE checked SET text = 'y' WHERE n = 2"), &[])
                    .await?;
                conn.execute(statement("UPDATE checked SET text = 'y' WHERE n = 1"), &[])
                    .await
            })
            .await
            .unwrap_err();
        assert_eq!(class(&error), ("retryable", false), "{error:?}");
        assert!(!bulk.is_broken());
        // The server rolls back only that statement; the store rolls back the transaction.
        conn.script("UPDATE", "UPDATE checked SET text = 'z' WHERE n = 2")
            .await
            .unwrap();
        conn.script("COMMIT", "COMMIT").await.unwrap();
        assert_eq!(
            text(
                &mut bulk,
                "SELECT group_concat(text ORDER BY n) AS it FROM checked"
            )
            .await,
            "x,z"
        );
        bulk.close().await;
        conn.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_value_that_no_packet_holds_is_to_blame_itself() {
    with(|_sandbox, mut conn| async move {
        conn.script(
            "SETUP",
            "CREATE TABLE large (text longtext CHARACTER SET utf8mb4) ENGINE=InnoDB",
        )
        .await
        .unwrap();
        let insert = statement("INSERT INTO large VALUES (:text)");
        let fits = "x".repeat(16 << 20);
        assert_eq!(
            conn.execute(insert, &[("text", fits.as_str().into())])
                .await
                .unwrap(),
            1
        );
        let too_large = "x".repeat(65 << 20);
        let error = conn
            .execute(insert, &[("text", too_large.as_str().into())])
            .await
            .unwrap_err();
        assert_eq!(class(&error), ("refused", true), "{error:?}");
        conn.close().await;
    })
    .await;
}

static INSERT: Statement = Statement::new(
    "INSERT",
    "INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at) VALUES (:name, '', '', 1)",
);
static AGAIN: Statement = Statement::new(
    "AGAIN",
    "UPDATE ductwork_pauses SET reason = 'a' WHERE pipeline = :name",
);
static BOTH: Statement = Statement::row("BOTH", &[&INSERT, &AGAIN]);

/// A server may be told to end a statement while the COMMIT in it is under way. Each name is written once: a commit
/// that was taken for one that was rolled back would be run again, and fail.
#[tokio::test]
async fn a_commit_that_is_killed_is_never_taken_for_one_that_was_rolled_back() {
    with(|sandbox, mut conn| async move {
        let session = "SELECT CAST(CONNECTION_ID() AS CHAR) AS it";
        let victim = Rc::new(RefCell::new(text(&mut conn, session).await));
        let mut killer = another(&sandbox, Purpose::Query).await;
        let mariadb = is_mariadb(&mut conn).await;
        let (told, sent) = (Rc::clone(&victim), Rc::new(Cell::new(0)));
        let kills = Rc::clone(&sent);
        let killing = tokio::task::spawn_local(async move {
            loop {
                let kill = format!("KILL QUERY {}", told.borrow());
                // The session may have ended.
                let done = killer.script("KILL", kill.leak()).await;
                kills.set(kills.get() + usize::from(done.is_ok()));
            }
        });
        let (mut committed, began) = (0, Instant::now());
        // MySQL commits by a statement of its own, which no kill is known to have met.
        while sent.get() < 1_000 || (mariadb && committed == 0) {
            assert!(
                began.elapsed() < PATIENCE,
                "{} kills met no commit",
                sent.get()
            );
            let name = format!("p{}", uuid::Uuid::now_v7());
            let args = [("name", name.as_str().into())];
            let done = conn
                .transaction(async |conn| conn.fetch_and_commit(&BOTH, &args).await)
                .await;
            let unknown = match done {
                Ok(_) => continue,
                Err(Error::Unavailable {
                    in_commit: true, ..
                }) => true,
                // It was killed again and again.
                Err(Error::Retryable { .. }) => false,
                Err(error) => panic!("{error:?}"),
            };
            let mut looks = another(&sandbox, Purpose::Query).await;
            let count = format!(
                "SELECT CAST(count(*) AS CHAR) AS it FROM ductwork_pauses WHERE pipeline = '{name}'"
            );
            let is_there = text(&mut looks, count).await == "1";
            looks.close().await;
            assert!(unknown || !is_there, "it was committed after all");
            committed += usize::from(is_there);
            if conn.is_broken() {
                conn.close().await;
                conn = another(&sandbox, Purpose::Engine).await;
                victim.replace(text(&mut conn, session).await);
            }
        }
        killing.abort();
        conn.close().await;
    })
    .await;
}

static WAITS: Statement = Statement::row("WAITS", &[&AGAIN, &AGAIN]);

/// It waits for a lock, so its COMMIT is not under way.
#[tokio::test]
async fn what_is_killed_before_its_commit_is_tried_again_on_the_same_connection() {
    with(|sandbox, mut conn| async move {
        let name = [("name", "p".into())];
        conn.execute(&INSERT, &name).await.unwrap();
        let session = text(&mut conn, "SELECT CAST(CONNECTION_ID() AS CHAR) AS it").await;
        let mut foreign = another(&sandbox, Purpose::Query).await;
        let lock = "START TRANSACTION; SELECT 1 FROM ductwork_pauses FOR UPDATE";
        foreign.script("LOCK", lock).await.unwrap();
        let killed = tokio::task::spawn_local(async move {
            // Nothing here takes as long, unless it waits for the lock.
            let waits = format!(
                "SELECT CAST(count(*) AS CHAR) AS it FROM information_schema.PROCESSLIST
                  WHERE ID = {session} AND COMMAND IN ('Query', 'Execute') AND TIME >= 1"
            );
            let began = Instant::now();
            while text(&mut foreign, waits.clone()).await == "0" {
                assert!(began.elapsed() < PATIENCE, "it waits for no lock");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let kill = format!("KILL QUERY {session}");
            foreign.script("KILL", kill.leak()).await.unwrap();
            foreign.script("COMMIT", "COMMIT").await.unwrap();
            foreign.close().await;
        });
        let done = conn
            .transaction(async |conn| conn.fetch_and_commit(&WAITS, &name).await)
            .await;
        killed.await.unwrap();
        done.unwrap();
        assert!(!conn.is_broken());
        conn.close().await;
    })
    .await;
}
