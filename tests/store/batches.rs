//! Batches of rows in the form that statements take, and a SQLite file that is shared by its
//! connections.

use ductwork::store::Error;
use ductwork::store::statement::{Only, Rows, Statement};
use uuid::Uuid;

use crate::on_every_database;
use crate::support::Db;

static ECHO: Statement = Statement::new(
    "ECHO",
    "SELECT b.id, b.body, b.n, b.n + 1 AS next FROM {rows:b(at int, id id, body text, n int)}
      ORDER BY b.at",
);
static COUNTS: Statement = Statement::new(
    "COUNTS",
    "SELECT (SELECT count(*) FROM {rows:a(n int)}) AS a,
            (SELECT count(*) FROM {rows:b(n int)}) AS b,
            (SELECT count(*) FROM {rows:a(n int)} WHERE a.n IN (SELECT b.n FROM {rows:b(n int)}))
                AS shared",
);
static KEEP: Statement = Statement::new(
    "KEEP",
    "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
     SELECT b.id, b.pipeline, b.due_at FROM {rows:b(id id, pipeline text, due_at int)} WHERE true
     RETURNING execution_id AS id",
)
.on_mysql(&[&KEEP_ALONE, &KEPT]);
static KEEP_ALONE: Statement = Statement::only(
    Only::Mysql,
    "KEEP_ALONE",
    "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
     SELECT b.id, b.pipeline, b.due_at FROM {rows:b(id id, pipeline text, due_at int)}",
);
static KEPT: Statement = Statement::only(
    Only::Mysql,
    "KEPT",
    "SELECT b.id FROM {rows:b(id id, pipeline text, due_at int)}",
);

on_every_database! {
    async fn values_arrive_as_they_were_given(db: Db) {
        let mut conn = db.connect().await;
        let texts = [
            "", "null", "NULL", "'", "\"\\", "\\u0000", "\"\\ud800\"", "ü€🦀", "a\nb\r\n", "17",
            "1e999", "[1,{\"a\":\"\\\"\"}]",
        ];
        let texts: Vec<Option<&str>> = texts.into_iter().map(Some).chain([None]).collect();
        let ids: Vec<Option<Uuid>> = [None, Some(Uuid::nil()), Some(Uuid::max()), Some(Uuid::now_v7())]
            .into_iter().cycle().take(texts.len()).collect();
        let ints: Vec<Option<i64>> = [Some(0), None, Some(i64::MAX - 1), Some(i64::MIN), Some(-1)]
            .into_iter().cycle().take(texts.len()).collect();
        let rows = Rows::new()
            .ints("at", 0..texts.len() as i64)
            .optional_ids("id", ids.iter().copied())
            .optional_texts("body", texts.iter().copied())
            .optional_ints("n", ints.iter().copied());
        let echo = conn.fetch(&ECHO, &[("b", (&rows).into())]).await.unwrap();
        assert_eq!(echo.len(), texts.len());
        for (at, row) in echo.iter().enumerate() {
            assert_eq!(row.get::<Option<Uuid>>("id").unwrap(), ids[at]);
            assert_eq!(row.get::<Option<String>>("body").unwrap().as_deref(), texts[at]);
            assert_eq!(row.get::<Option<i64>>("n").unwrap(), ints[at]);
            assert_eq!(row.get::<Option<i64>>("next").unwrap(), ints[at].map(|n| n + 1));
        }
    }

    async fn several_batches_in_one_statement_are_kept_apart(db: Db) {
        let mut conn = db.connect().await;
        for (a, b, shared) in [(0..0, 0..0, 0), (0..1, 0..0, 0), (0..1000, 990..1001, 10)] {
            let counts = [a.clone(), b.clone()].map(|range| range.count() as i64);
            let (a, b) = (Rows::new().ints("n", a), Rows::new().ints("n", b));
            let args = [("a", (&a).into()), ("b", (&b).into())];
            let row = conn.fetch_optional(&COUNTS, &args).await.unwrap().unwrap();
            assert_eq!(["a", "b"].map(|name| row.get::<i64>(name).unwrap()), counts);
            assert_eq!(row.get::<i64>("shared").unwrap(), shared);
        }
    }

    /// One row of the second batch already exists: no reader sees any row of that batch, and the
    /// next batch is complete.
    async fn a_batch_is_written_whole_or_not_at_all(db: Db) {
        let mut conn = db.conn().await;
        let ids: Vec<Uuid> = (0..300).map(|_| Uuid::now_v7()).collect();
        let batch = |ids: &[Uuid]| {
            let rows = Rows::new().ids("id", ids.to_vec());
            let rows = rows.texts("pipeline", ids.iter().map(|_| "P"));
            rows.ints("due_at", (0..).take(ids.len()))
        };
        let rows = batch(&ids[..100]);
        let written = conn.fetch(&KEEP, &[("b", (&rows).into())]).await.unwrap();
        assert_eq!(written.len(), 100);
        let rows = batch(&ids[99..200]);
        assert!(conn.fetch(&KEEP, &[("b", (&rows).into())]).await.is_err());
        let rolled_back: Result<(), Error> = conn.transaction(async |conn| {
            let rows = batch(&ids[200..]);
            assert_eq!(conn.execute(&KEEP, &[("b", (&rows).into())]).await?, 100);
            let rows = batch(&ids[..1]);
            conn.execute(&KEEP, &[("b", (&rows).into())]).await?;
            Ok(())
        }).await;
        assert!(rolled_back.is_err());
        let rows = batch(&ids[100..]);
        assert_eq!(conn.execute(&KEEP, &[("b", (&rows).into())]).await.unwrap(), 200);
    }
}

#[tokio::test]
async fn a_zero_byte_is_text_on_sqlite() {
    let db = Db::sqlite();
    let mut conn = db.connect().await;
    let rows = Rows::new().ints("at", [1]).ids("id", [Uuid::nil()]);
    let rows = rows.texts("body", ["a\0b"]).ints("n", [1]);
    let echo = conn.fetch(&ECHO, &[("b", (&rows).into())]).await.unwrap();
    assert_eq!(echo[0].get::<String>("body").unwrap(), "a\0b");
}

/// This process's lock on the database shows that the WAL is in use. A process that closes the
/// file, however it opened it, loses the lock; the next process that ends would then remove the
/// WAL.
#[tokio::test]
async fn a_second_connection_leaves_the_first_its_lock_on_sqlite() {
    use std::os::unix::fs::MetadataExt;
    let db = Db::sqlite();
    let path = db.url.strip_prefix("sqlite://").unwrap();
    let first = db.conn().await;
    let inode = format!(":{}", std::fs::metadata(path).unwrap().ino());
    let locked = || {
        let pid = std::process::id().to_string();
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.contains("POSIX")
                && words.any(|word| word == pid)
                && words.any(|word| word.ends_with(&inode))
        })
    };
    assert!(locked());
    let second = db.connect().await;
    assert!(locked());
    second.close().await;
    assert!(locked());
    first.close().await;
    assert!(!locked());
}
