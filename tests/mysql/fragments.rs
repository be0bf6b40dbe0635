//! Each fragment on a real server: it has the same value there as on SQLite.

use ductwork::store::statement::{Args, Rows};
use ductwork::store::{Conn, Error, Location, Purpose};
use uuid::Uuid;

use crate::{statement, with};

/// Texts that a server might change.
const TEXTS: [Option<&str>; 9] = [
    Some(""),
    Some("a"),
    Some("a "),
    Some("A"),
    Some("it's \"quoted\" \\ and \\n not a line; -- or a comment"),
    Some("\u{0}\u{1f}\u{7f}"),
    Some("𝄞 é ß"),
    Some("[null, {\"a\": 1}]"),
    None,
];

/// All values of the answer, as texts.
async fn answer(conn: &mut Conn, sql: &str, args: Args<'_>) -> Result<Vec<Option<String>>, Error> {
    let rows = conn.fetch(statement(sql), args).await?;
    rows.iter().map(|row| row.get("it")).collect()
}

async fn same(mysql: &mut Conn, sqlite: &mut Conn, sql: &str, args: Args<'_>) {
    let (ours, theirs) = (
        answer(mysql, sql, args).await,
        answer(sqlite, sql, args).await,
    );
    let theirs = theirs.unwrap_or_else(|error| panic!("SQLite: {sql}: {error:?}"));
    let ours = ours.unwrap_or_else(|error| panic!("MySQL: {sql}: {error:?}"));
    assert!(!theirs.is_empty(), "{sql}");
    assert_eq!(ours, theirs, "{sql}");
}

#[tokio::test]
async fn a_fragment_means_what_it_means_on_sqlite() {
    with(|_sandbox, mut mysql| async move {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::sqlite(directory.path().join("x.db"));
        let mut sqlite = location.connect(Purpose::Engine).await.unwrap();
        ductwork::store::migrate::migrate(&mut sqlite).await.unwrap();
        let (mysql, sqlite) = (&mut mysql, &mut sqlite);
        let ids = [Some(Uuid::from_u128(0)), Some(Uuid::from_u128(u128::MAX)), None];
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

        let batch = Rows::new()
            .ints("at", (0..).take(TEXTS.len()))
            .optional_texts("text", TEXTS)
            .optional_ids("id", TEXTS.iter().zip(ids.into_iter().cycle()).map(|(_, id)| id))
            .optional_ints("n", [Some(i64::MIN), Some(i64::MAX), Some(0), Some(-1), None, Some(1), Some(2), Some(3), Some(4)]);
        let args: Args<'_> = &[("b", (&batch).into())];
        for value in [
            "b.text",
            "CASE WHEN b.id IS NOT NULL THEN {hex:b.id} END",
            "'<' || b.text || '>'",
            "CASE WHEN b.text IS NULL THEN 'none' ELSE 'some' END",
            "CASE WHEN b.id IS NULL THEN 'none' ELSE 'some' END",
            "CASE WHEN b.text = 'a' THEN 'yes' ELSE 'no' END",
            "CASE WHEN b.n IS NULL THEN 'none' WHEN b.n > 1 THEN 'more' ELSE 'less' END",
        ] {
            let sql = format!("SELECT {value} AS it FROM {{rows:b(at int, text text, id id, n int)}} ORDER BY b.at");
            same(mysql, sqlite, &sql, args).await;
        }
        let none = Rows::new().ids("id", std::iter::empty::<Uuid>());
        let count = "SELECT CASE WHEN count(*) = 0 THEN 'none' ELSE 'some' END AS it FROM {rows:b(id id)}";
        same(mysql, sqlite, count, &[("b", (&none).into())]).await;

        // Ids.
        let args: Args<'_> = &[("id", id.into()), ("to", Uuid::from_u128(7 << 64).into()), ("time", 1_700_000_000_000_i64.into())];
        same(mysql, sqlite, "SELECT {hex:it} AS it FROM (SELECT {copied:id} AS it FROM (SELECT :id AS id) b) c", args).await;
        same(mysql, sqlite, "SELECT {hex:it} AS it FROM (SELECT {made:1;7} AS it) c", args).await;
        same(mysql, sqlite, "SELECT {hex:it} AS it FROM (SELECT {made:4095;n * 3 + 1} AS it FROM (SELECT 123456789 AS n) b) c", args).await;
        same(mysql, sqlite, "SELECT CASE WHEN it IS NULL THEN 'none' END AS it FROM (SELECT {copied:id} AS it FROM (SELECT CAST(NULL AS {id}) AS id) b) c", args).await;

        // Numbers in a row.
        let args: Args<'_> = &[("first", 3_i64.into()), ("last", 5_000_i64.into())];
        same(mysql, sqlite, "SELECT count(*) || ' ' || min(n) || ' ' || max(n) AS it FROM {series}", args).await;

        // Rows of a table, by key.
        let insert = statement(
            "INSERT INTO ductwork_steps (id, run_id, branch_id, ordinal, node, step, via, status, input, output, created_at, completed_at)
             SELECT b.id, :id, :id, b.n, 'a', 'b', 'start', 'completed', b.input, b.output, 1, 2
               FROM {rows:b(id id, n int, input text, output text)}",
        );
        let steps = Rows::new()
            .ids("id", (1..=5).map(Uuid::from_u128))
            .ints("n", 1..=5)
            .texts("input", ["1", "\"\\u0000\"", "null", "\"𝄞\"", "{\"b\":1,\"a\": 2}"])
            .texts("output", ["5", "4", "[3]", "\"2\"", "{\"1\":1}"]);
        for conn in [&mut *mysql, &mut *sqlite] {
            let written = conn.execute(insert, &[("b", (&steps).into()), ("id", id.into())]).await.unwrap();
            assert_eq!(written, 5);
        }
        let some = Rows::new().ids("id", [2, 4, 9].map(Uuid::from_u128));
        let args: Args<'_> = &[("b", (&some).into())];
        for sql in [
            "SELECT {array:s.output;s.ordinal} AS it FROM ductwork_steps s",
            "SELECT {array:s.output;s.ordinal} AS it FROM ductwork_steps s WHERE s.ordinal > 7",
            "SELECT s.input AS it FROM {rows:b(id id)} JOIN ductwork_steps s ON {key:s.id;b.id} ORDER BY s.id",
            "SELECT s.input AS it FROM ductwork_steps s WHERE {any:s.id;b(id id)} ORDER BY s.id",
            "SELECT s.input AS it FROM ductwork_steps s WHERE s.id IN (SELECT b.id FROM {rows:b(id id)}) ORDER BY s.id",
            "SELECT s.input AS it FROM ductwork_steps s WHERE {hex:s.id} LIKE '%' || '02' ORDER BY s.id {lock}",
            "SELECT s.input AS it FROM ductwork_steps s ORDER BY s.id {skip_locked}",
            "SELECT s.input AS it FROM ductwork_steps s ORDER BY s.id {share}",
            "SELECT substr(s.input, 1, 1) AS it FROM ductwork_steps s ORDER BY s.id",
            "SELECT CASE WHEN CAST(NULL AS {int}) IS NULL THEN 'none' END AS it FROM ductwork_steps s",
        ] {
            same(mysql, sqlite, sql, args).await;
        }
        clocks(mysql, sqlite).await;
        fingerprints(mysql).await;
    })
    .await;
}

/// Both servers use this machine's clock.
async fn clocks(mysql: &mut Conn, sqlite: &mut Conn) {
    let mut read = [0_i64; 2];
    for (conn, now) in [sqlite, mysql].into_iter().zip(&mut read) {
        let rows = conn
            .fetch(statement("SELECT {now} AS it"), &[])
            .await
            .unwrap();
        *now = rows[0].get("it").unwrap();
    }
    assert!((read[1] - read[0]).abs() < 60_000_000, "{read:?}");
}

/// A sum that does not depend on the order of its rows, but on each of them.
async fn fingerprints(mysql: &mut Conn) {
    let of = async |mysql: &mut Conn, salt: &str, weight: &str, condition: &str| {
        let sql = format!(
            "SELECT {{fingerprint:id;{salt};{weight};{condition}}} AS it FROM ductwork_steps"
        );
        answer(mysql, &sql, &[])
            .await
            .unwrap()
            .pop()
            .flatten()
            .unwrap()
    };
    let all = of(mysql, "", "", "id IS NOT NULL").await;
    assert!(
        all.len() > 15 && all.bytes().all(|byte| byte.is_ascii_digit()),
        "{all}"
    );
    assert_eq!(of(mysql, "", "", "ordinal > 9").await, "0");
    let salted = of(mysql, "run_id", "", "id IS NOT NULL").await;
    assert_ne!(all, salted);
    let weighted = of(mysql, "", "2", "id IS NOT NULL").await;
    assert_eq!(
        weighted.parse::<u128>().unwrap(),
        2 * all.parse::<u128>().unwrap()
    );
    let some = of(mysql, "", "", "ordinal > 2")
        .await
        .parse::<u128>()
        .unwrap();
    let others = of(mysql, "", "", "ordinal <= 2")
        .await
        .parse::<u128>()
        .unwrap();
    assert_eq!(some + others, all.parse::<u128>().unwrap());
}

#[tokio::test]
async fn values_come_back_as_they_were_sent() {
    with(|_sandbox, mut conn| async move {
        for text in TEXTS {
            let sent = conn
                .fetch(statement("SELECT :it AS it"), &[("it", text.into())])
                .await
                .unwrap();
            assert_eq!(
                sent[0].get::<Option<String>>("it").unwrap().as_deref(),
                text
            );
        }
        for number in [i64::MIN, -1, 0, i64::MAX] {
            let sent = conn
                .fetch(statement("SELECT :it AS it"), &[("it", number.into())])
                .await
                .unwrap();
            assert_eq!(sent[0].get::<i64>("it").unwrap(), number);
        }
        for id in [0, 0xff, 0xc3_28 << 64, u128::MAX].map(Uuid::from_u128) {
            let sent = conn
                .fetch(
                    statement("SELECT CAST(:it AS {id}) AS it"),
                    &[("it", id.into())],
                )
                .await
                .unwrap();
            assert_eq!(sent[0].get::<Uuid>("it").unwrap(), id);
        }
        conn.close().await;
    })
    .await;
}
