//! The connection through which the console reads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Error, Location, Purpose, migrate, query};
use ductwork::web::source::{FRESH, FRESH_FOR_READS, ReadError, Source};

use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::support::Db;
use crate::{on_every_database, on_servers};

/// Statements that take minutes.
static LONG: [Statement; 3] = [
    Statement::new(
        "TEST_LONG",
        "SELECT count(*) AS n FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
    ),
    Statement::new(
        "TEST_LONG",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS n FROM n",
    ),
    Statement::new(
        "TEST_LONG",
        "SELECT count(*) AS n FROM information_schema.COLLATIONS a, information_schema.COLLATIONS b,
                information_schema.COLLATIONS c, information_schema.COLLATIONS d",
    ),
];
static WRITE: Statement = Statement::new("TEST_WRITE", "DELETE FROM ductwork_runs");

async fn write(conn: &mut Conn) -> Result<u64, Error> {
    conn.execute(&WRITE, &[]).await
}

async fn work(source: &Source) -> Result<bool, ReadError> {
    source
        .read(async |conn| Ok(ductwork::store::any_work(conn, None).await?.is_some()))
        .await
}

on_every_database! {
    async fn the_console_reads_and_writes_nothing_and_no_question_takes_long(db: Db) {
        // Creates the schema.
        db.conn().await.close().await;
        let location = Location::parse(&db.url).unwrap();
        let dialect = location.dialect();
        let local = tokio::task::LocalSet::new();
        local.run_until(async move {
            let source = Source::open(location, Arc::new(|_, _| {}));
            assert!(!work(&source).await.unwrap());
            let refused = source.read(async |conn| write(conn).await).await;
            assert!(refused.is_err(), "{refused:?}");

            let long = match dialect {
                Dialect::Postgres => &LONG[0],
                Dialect::Sqlite => &LONG[1],
                Dialect::Mysql => &LONG[2],
            };
            let began = Instant::now();
            // Reads that queue behind it wait, and get their answers.
            let asked = source.read(async |conn| conn.fetch(long, &[]).await.map(drop));
            let (cut, after) = tokio::join!(asked, work(&source));
            assert!(matches!(cut, Err(ReadError::Late)), "{cut:?}");
            assert!(!after.unwrap());
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(1_900), "{took:?}");
            assert!(took < Duration::from_secs(30), "{took:?}");

            // Several statements together have the same time limit as one.
            let several = source.read(async |conn| loop {
                query::run_state(conn, ductwork::model::RunId::new()).await?;
            });
            let several: Result<(), ReadError> = several.await;
            assert!(matches!(several, Err(ReadError::Late)), "{several:?}");
            assert!(!work(&source).await.unwrap());

            // Nothing more is read for a visitor who has gone.
            let (began, second) = (Instant::now(), source.clone());
            for _ in 0..3 {
                let gone = second.read(async |conn| conn.fetch(long, &[]).await.map(drop));
                let _gone = tokio::time::timeout(Duration::from_millis(10), gone).await;
            }
            assert!(!work(&source).await.unwrap());
            assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        })
        .await;
    }

    async fn more_questions_than_can_be_answered_soon_are_refused(db: Db) {
        db.conn().await.close().await;
        let location = Location::parse(&db.url).unwrap();
        let local = tokio::task::LocalSet::new();
        local.run_until(async move {
            let source = Source::open(location, Arc::new(|_, _| {}));
            let asked: Vec<_> = (0..200)
                .map(|_| {
                    let source = source.clone();
                    tokio::task::spawn_local(async move { work(&source).await })
                })
                .collect();
            let mut refused = 0;
            for asked in asked {
                match asked.await.unwrap() {
                    Ok(work) => assert!(!work),
                    Err(error) => {
                        assert!(matches!(error, ReadError::Crowded), "{error:?}");
                        refused += 1;
                    }
                }
            }
            assert!((1..200).contains(&refused), "{refused}");
            assert!(!work(&source).await.unwrap());
        })
        .await;
    }
}

/// An action is asked for once, so it must not be sent on a connection that is gone. A server that takes no writes
/// answers, and has done nothing.
#[tokio::test]
async fn the_first_act_after_an_outage_finds_a_connection() {
    static OTHERS: Statement = Statement::new(
        "TEST_OTHERS",
        "SELECT pid FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    static CUT: Statement = Statement::new(
        "TEST_CUT",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    /// Ends the other sessions, and waits until they are gone, and until a look at them is due.
    async fn cut(killer: &mut Conn) -> usize {
        let cut = killer.fetch(&CUT, &[]).await.unwrap().len();
        while !killer.fetch(&OTHERS, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(FRESH + Duration::from_millis(10)).await;
        cut
    }
    const READ_ONLY: &str = "DO $$ BEGIN EXECUTE format(
        'ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$";
    const WRITABLE: &str = "DO $$ BEGIN EXECUTE format(
        'ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$";
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).unwrap();
    let mut killer = location.connect(Purpose::Query).await.unwrap();
    migrate::migrate(&mut killer).await.unwrap();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            let told = Arc::new(Mutex::new(Vec::new()));
            let to = Arc::clone(&told);
            let refused = move |_: &str, why: Option<&str>| {
                to.lock().unwrap().extend(why.map(str::to_owned));
            };
            let source = Source::that_acts(location, Arc::new(refused));
            let act = || source.read(async |conn| write(conn).await);
            act().await.unwrap();
            assert_eq!(cut(&mut killer).await, 1, "the connection that acts");
            act().await.unwrap();

            killer.script("TEST_READ_ONLY", READ_ONLY).await.unwrap();
            cut(&mut killer).await;
            let only_reads = act().await.unwrap_err();
            assert!(
                matches!(only_reads, ReadError::OnlyReads(_)),
                "{only_reads:?}"
            );
            let why = told.lock().unwrap().join("\n");
            assert!(why.contains("read-only transaction"), "{why}");
            killer.script("TEST_WRITABLE", WRITABLE).await.unwrap();
            act().await.unwrap();
        })
        .await;
}

on_servers! {
/// Nobody is told that the packets of a connection vanish: it would be waited for until the page is late.
async fn the_first_page_after_a_silence_finds_a_connection(db: Db) {
        db.conn().await.close().await;
        let (_, server) = db.url.rsplit_once('@').unwrap();
        let (server, _) = server.split_once('/').unwrap();
        let address = server.replace("localhost", "127.0.0.1");
        let relay = Relay::to(address.parse().unwrap());
        let through = format!("127.0.0.1:{}", relay.port);
        let location = Location::parse(&db.url.replace(server, &through)).unwrap();
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async move {
                let source = Source::open(location, Arc::new(|_, _| {}));
                assert!(!work(&source).await.unwrap());
                let lines: BTreeSet<u16> = relay.lines().keys().copied().collect();
                assert_eq!(lines.len(), 1, "{lines:?}");
                relay.silence(&lines);
                tokio::time::sleep(FRESH_FOR_READS + Duration::from_millis(10)).await;
                assert!(!work(&source).await.unwrap());
                let lost: usize = relay.lines().values().map(|line| line.lost).sum();
                assert!(lost > 0, "nothing was sent to the silent connection");
                assert_eq!(relay.lines().len(), 2);
            })
            .await;
}
}
