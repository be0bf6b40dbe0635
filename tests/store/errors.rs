//! The errors that a PostgreSQL server can be made to raise, each raised by a real server: the class
//! that each is given. The table itself is `store::blame`.

use std::path::Path;
use std::time::Duration;

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Location, Purpose};
use sqlx::{Connection, Executor, PgConnection};

use crate::cluster::Cluster;
use crate::support::{self, Db};

/// A connection next to the engine's, for the actions of a foreign session.
async fn stranger(db: &Db) -> PgConnection {
    PgConnection::connect(&db.url).await.unwrap()
}

async fn run(conn: &mut PgConnection, sql: &str) {
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
    conn.execute(sql).await.unwrap();
}

/// The class of this statement's error: its variant and whether it blames the value.
async fn raised(conn: &mut Conn, sql: &'static str) -> (&'static str, bool, String) {
    let statement: &'static Statement = Box::leak(Box::new(Statement::new("RAISES", sql)));
    let Err(error) = conn.execute(statement, &[]).await else {
        panic!("{sql} raised nothing");
    };
    let variant = match &error {
        Error::Unavailable { .. } => "unavailable",
        Error::Hindered { .. } => "hindered",
        Error::Retryable { .. } => "retryable",
        Error::Constraint { .. } => "constraint",
        Error::Refused { .. } => "refused",
        Error::Configured(_) => "configured",
        Error::Gone(_) => "gone",
        Error::LeftBehind(_) => "left behind",
        Error::Schema(_) => "schema",
        Error::Misplaced(_) => "misplaced",
        Error::Corrupt(_) => "corrupt",
        Error::Damaged { .. } => "damaged",
    };
    (variant, error.blames_the_value(), format!("{error:?}"))
}

const SETUP: &str = "
    CREATE TABLE checked (n int PRIMARY KEY CHECK (n > 0), text varchar(3));
    CREATE TABLE referring (n int REFERENCES checked);
    CREATE FUNCTION objects() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'not here'; END $$;
    CREATE TABLE guarded (n int);
    CREATE TRIGGER guard BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION objects();
    INSERT INTO checked VALUES (1, 'a')";

#[tokio::test]
async fn what_one_statement_can_raise_is_blamed_on_the_value_or_on_the_program() {
    support::with(Db::postgres().await, |db| async move {
        run(&mut stranger(&db).await, SETUP).await;
        let mut conn = db.connect().await;
        for (sql, variant, blames_the_value) in [
            ("INSERT INTO checked VALUES (1, 'b')", "constraint", true),
            ("INSERT INTO checked VALUES (0, 'b')", "constraint", true),
            ("INSERT INTO referring VALUES (7)", "constraint", true),
            ("INSERT INTO checked VALUES (NULL, 'b')", "refused", true),
            ("INSERT INTO checked VALUES (2, 'long')", "refused", true),
            ("SELECT 'x'::int", "refused", true),
            ("SELECT chr(0)", "refused", true),
            ("SELECT '\\ud800'::json ->> 0", "refused", true),
            // More than a field can hold: reported as an internal error of the server's memory.
            (
                "SELECT length(quote_literal(repeat(repeat('x', 1000), 540000)))",
                "refused",
                true,
            ),
            ("SELECT repeat('x', 1100000000)", "refused", true),
            ("INSERT INTO guarded VALUES (1)", "refused", true),
            ("SELECT 1/0", "corrupt", false),
            ("SELECT nothing FROM checked", "refused", false),
            ("SELECT 1 FROM nowhere", "refused", false),
            ("SELEKT 1", "refused", false),
        ] {
            let (is, blames, error) = raised(&mut conn, sql).await;
            assert_eq!((is, blames), (variant, blames_the_value), "{sql}: {error}");
            assert!(!conn.is_broken(), "{sql}");
        }
        conn.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_the_servers_environment_raises_blames_no_value_and_leaves_the_connection() {
    support::with(Db::postgres().await, |db| async move {
        let mut stranger = stranger(&db).await;
        run(&mut stranger, SETUP).await;
        run(&mut stranger, "CREATE TABLE revoked (n int)").await;
        let mut conn = db.connect().await;
        let hindered = async |conn: &mut Conn, sql| {
            let (is, blames, error) = raised(conn, sql).await;
            assert_eq!((is, blames), ("hindered", false), "{sql}: {error}");
            assert!(!conn.is_broken(), "{sql}");
            error
        };

        // A statement that exceeds its time limit, and one that another session cancels.
        conn.script("SET", "SET statement_timeout = '50ms'")
            .await
            .unwrap();
        hindered(&mut conn, "SELECT pg_sleep(60)").await;
        conn.script("SET", "SET statement_timeout = 0")
            .await
            .unwrap();
        // A cancellation that arrives between two messages affects nothing, so it is repeated.
        let cancels = async {
            let sql = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                        WHERE query LIKE 'SELECT pg_sleep(61)%' AND pid <> pg_backend_pid()";
            loop {
                stranger.execute(sql).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = hindered(&mut conn, "SELECT pg_sleep(61)") => {}
            () = cancels => {}
        }

        // Temporary files larger than the configured limit.
        let limits = "SET temp_file_limit = '64kB'; SET work_mem = '64kB'";
        conn.script("SET", limits).await.unwrap();
        let sorted = "SELECT count(*) FROM (SELECT md5(n::text) AS hash
                        FROM generate_series(1, 100000) AS n ORDER BY 1 OFFSET 1) AS sorted";
        let error = hindered(&mut conn, sorted).await;
        assert!(error.contains("53400"), "{error}");
        conn.script("RESET", "RESET temp_file_limit; RESET work_mem")
            .await
            .unwrap();

        // A revoked privilege.
        let role = format!("reader_{}", uuid::Uuid::now_v7().simple());
        run(
            &mut stranger,
            &format!("CREATE ROLE {role}; GRANT {role} TO CURRENT_USER"),
        )
        .await;
        let become_it: &'static str = Box::leak(format!("SET ROLE {role}").into_boxed_str());
        conn.script("SET", become_it).await.unwrap();
        let (is, blames, error) = raised(&mut conn, "SELECT n FROM checked").await;
        // The role cannot see the schema; either the table is not found, or it may not be read.
        assert!(matches!(is, "hindered" | "refused") && !blames, "{error}");
        conn.script("SET", "RESET ROLE").await.unwrap();
        run(&mut stranger, &format!("DROP ROLE {role}")).await;
        conn.close().await;
    })
    .await;
}

/// On a separate server: while this lasts, no session of the server gets another lock.
#[tokio::test]
async fn a_full_table_of_locks_blames_no_value_and_leaves_the_connection() {
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    let locks = "SELECT pg_advisory_lock(n) FROM generate_series(1, 1000000) AS n";
    let (is, blames, error) = raised(&mut conn, locks).await;
    assert_eq!((is, blames), ("hindered", false), "{error}");
    assert!(error.contains("53200"), "{error}");
    assert!(!conn.is_broken());
    conn.close().await;
}

/// An error could not be stored whose text has a character that the encoding lacks.
#[tokio::test]
async fn a_database_in_an_encoding_that_lacks_characters_is_refused() {
    let cluster = Cluster::start();
    let mut stranger = PgConnection::connect(&cluster.url).await.unwrap();
    for (encoding, is_refused) in [("LATIN1", true), ("SQL_ASCII", false), ("UTF8", false)] {
        let name = format!("in_{}", encoding.to_lowercase());
        let create = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        run(&mut stranger, &create).await;
        let (server, _) = cluster.url.rsplit_once('/').unwrap();
        let location = Location::parse(&format!("{server}/{name}")).unwrap();
        let refused = location.connect(Purpose::Engine).await.err();
        let is_configured =
            matches!(&refused, Some(Error::Configured(text)) if text.contains("LATIN1"));
        assert_eq!(is_configured, is_refused, "{encoding}: {refused:?}");
        assert_eq!(refused.is_some(), is_refused, "{encoding}: {refused:?}");
    }
}

/// A tablespace of one MiB, in memory.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        Self::of("size=1m,mode=0777")
    }

    fn of(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let small = Self { dir };
        let at = small.dir.path();
        nix::mount::mount(
            Some("tmpfs"),
            at,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            Some(options),
        )
        .expect("only root can give a server a small disk");
        small
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.dir.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[tokio::test]
async fn a_full_disk_blames_no_value() {
    support::with(Db::postgres().await, |db| async move {
        let mut stranger = stranger(&db).await;
        let disk = SmallDisk::mount();
        let space = format!("small_{}", uuid::Uuid::now_v7().simple());
        // The directory has to belong to the server's user.
        let owner = "SELECT pg_read_file('postmaster.pid', 0, 0)";
        run(&mut stranger, owner).await;
        own_as_the_server(&mut stranger, disk.path()).await;
        run(
            &mut stranger,
            &format!("CREATE TABLESPACE {space} LOCATION '{}'", disk.path()),
        )
        .await;
        run(
            &mut stranger,
            &format!("CREATE TABLE filled (text text) TABLESPACE {space}"),
        )
        .await;
        let mut conn = db.connect().await;
        let fill = "INSERT INTO filled SELECT md5(n::text) FROM generate_series(1, 100000) AS n";
        let (is, blames, error) = raised(&mut conn, fill).await;
        assert_eq!((is, blames), ("hindered", false), "{error}");
        assert!(error.contains("53100"), "{error}");
        conn.close().await;
        run(&mut stranger, "DROP TABLE filled").await;
        run(&mut stranger, &format!("DROP TABLESPACE {space}")).await;
    })
    .await;
}

/// A reader has kept the log from being checkpointed until it filled the disk. Once the reader is
/// gone, the next connection makes room: no commit could.
#[tokio::test]
async fn a_log_that_has_filled_the_disk_is_cut_by_the_next_connection() {
    let disk = SmallDisk::of("size=24m,mode=0777");
    let location = Location::sqlite(Path::new(disk.path()).join("small.db"));
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    let table = "CREATE TABLE filled (n, text); INSERT INTO filled VALUES (1, '')";
    conn.script("CREATE", table).await.unwrap();
    // The same row again and again: the database has room for it, as after a deletion.
    let write = "UPDATE filled SET n = n + 1, text = hex(randomblob(100000))";
    let room =
        "INSERT INTO filled VALUES (2, hex(randomblob(1000000))); DELETE FROM filled WHERE n = 2;
                PRAGMA wal_checkpoint(TRUNCATE)";
    conn.script("INSERT", room).await.unwrap();
    let mut reader = location.connect(Purpose::Query).await.unwrap();
    let read = "BEGIN; SELECT * FROM filled";
    reader.script("BEGIN", read).await.unwrap();
    let full = loop {
        if let Err(error) = conn.script("UPDATE", write).await {
            break error;
        }
    };
    assert!(full.is_unavailable(), "{full:?}");
    conn.close().await;
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    let full = conn.script("UPDATE", write).await;
    assert!(
        full.is_err(),
        "the reader is still there: the test is empty"
    );
    // The reader's transaction ends; its connection stays open, so that no connection is the last
    // to close, which would truncate the log.
    reader.script("ROLLBACK", "ROLLBACK").await.unwrap();
    conn.close().await;
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    conn.script("UPDATE", write).await.unwrap();
    conn.close().await;
    reader.close().await;
}

/// Gives a directory to the user that the server runs as, which owns the server's data.
async fn own_as_the_server(conn: &mut PgConnection, directory: &str) {
    let data: (String,) = sqlx::query_as("SHOW data_directory")
        .fetch_one(conn)
        .await
        .unwrap();
    let of = std::fs::metadata(data.0).expect("a server on this machine");
    let (user, group) = (
        std::os::unix::fs::MetadataExt::uid(&of),
        std::os::unix::fs::MetadataExt::gid(&of),
    );
    std::os::unix::fs::chown(directory, Some(user), Some(group)).unwrap();
}

#[tokio::test]
async fn what_another_transaction_raises_is_tried_again() {
    support::with(Db::postgres().await, |db| async move {
        let mut stranger = stranger(&db).await;
        run(&mut stranger, SETUP).await;
        let mut conn = db.connect().await;
        run(&mut stranger, "BEGIN; UPDATE checked SET text = 'b'").await;
        conn.script("SET", "SET lock_timeout = '20ms'")
            .await
            .unwrap();
        let (is, blames, error) = raised(&mut conn, "UPDATE checked SET text = 'c'").await;
        assert_eq!((is, blames), ("retryable", false), "{error}");

        // A snapshot from before another session's commit.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM checked";
        conn.script("BEGIN", begin).await.unwrap();
        run(&mut stranger, "COMMIT").await;
        let (is, blames, error) = raised(&mut conn, "UPDATE checked SET text = 'c'").await;
        assert_eq!((is, blames), ("retryable", false), "{error}");
        conn.script("ROLLBACK", "ROLLBACK").await.unwrap();

        // Two sessions wait for each other: one of them gets the error.
        run(
            &mut stranger,
            "INSERT INTO checked VALUES (2, 'a'); SET deadlock_timeout = '1h'",
        )
        .await;
        conn.script("SET", "SET lock_timeout = 0; SET deadlock_timeout = '10ms'")
            .await
            .unwrap();
        run(
            &mut stranger,
            "BEGIN; UPDATE checked SET text = 'x' WHERE n = 1",
        )
        .await;
        conn.script("BEGIN", "BEGIN; UPDATE checked SET text = 'x' WHERE n = 2")
            .await
            .unwrap();
        let (mine, ()) = tokio::join!(
            async {
                let raised = raised(&mut conn, "UPDATE checked SET text = 'y' WHERE n = 1").await;
                conn.script("ROLLBACK", "ROLLBACK").await.unwrap();
                raised
            },
            run(&mut stranger, "UPDATE checked SET text = 'y' WHERE n = 2")
        );
        assert_eq!((mine.0, mine.1), ("retryable", false), "{}", mine.2);
        run(&mut stranger, "ROLLBACK").await;
        conn.close().await;
    })
    .await;
}

#[tokio::test]
async fn what_ends_a_session_or_keeps_it_from_writing_asks_for_another_connection() {
    const OF_CHECKED: &str = "SELECT text FROM checked";
    support::with(Db::postgres().await, |db| async move {
        let mut stranger = stranger(&db).await;
        run(&mut stranger, SETUP).await;
        let unavailable = async |mut conn: Conn, sql| {
            let (is, blames, error) = raised(&mut conn, sql).await;
            assert_eq!((is, blames), ("unavailable", false), "{sql}: {error}");
            assert!(conn.is_broken(), "{sql}");
        };

        // A server that only reads.
        let mut conn = db.connect().await;
        conn.script("SET", "SET default_transaction_read_only = on")
            .await
            .unwrap();
        unavailable(conn, "UPDATE checked SET text = 'c'").await;

        // A session that another session ends, and one that the server ends for being idle.
        let conn = db.connect().await;
        unavailable(conn, "SELECT pg_terminate_backend(pg_backend_pid())").await;
        let mut conn = db.connect().await;
        conn.script(
            "SET",
            "SET idle_in_transaction_session_timeout = '10ms'; BEGIN",
        )
        .await
        .unwrap();
        let gone = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'
                       AND application_name = 'ductworkd' AND query LIKE 'SET idle_in%'";
        while stranger.execute(gone).await.unwrap().rows_affected() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unavailable(conn, "SELECT 1").await;

        // A statement whose table was changed since this session prepared it.
        let mut conn = db.connect().await;
        static TEXTS: Statement = Statement::new("TEXTS", OF_CHECKED);
        conn.execute(&TEXTS, &[]).await.unwrap();
        run(&mut stranger, "ALTER TABLE checked ALTER text TYPE text").await;
        unavailable(conn, OF_CHECKED).await;

        // A statement that this session has never prepared.
        let conn = db.connect().await;
        unavailable(conn, "EXECUTE nothing_of_the_kind").await;
    })
    .await;
}

#[tokio::test]
async fn a_session_is_called_as_its_address_says() {
    static NAME: Statement =
        Statement::new("NAME", "SELECT current_setting('application_name') AS name");
    support::with(Db::postgres().await, |db| async move {
        for (more, name) in [("", "ductworkd"), ("&application_name=orders", "orders")] {
            let location = Location::parse(&format!("{}{more}", db.url)).unwrap();
            let mut conn = location.connect(Purpose::Engine).await.unwrap();
            let row = conn.fetch_optional(&NAME, &[]).await.unwrap().unwrap();
            assert_eq!(row.get::<String>("name").unwrap(), name);
            conn.close().await;
        }
    })
    .await;
}
