//! TLS to PostgreSQL: the requested mode is in effect, and no connection is made without it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use ductwork::store::{Location, Purpose, migrate};
use sqlx::{Connection, Executor};

use crate::certify::certify;
use crate::cluster::Cluster;
use crate::fixture::*;

const WORK: &str = "
pipeline: Work
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { divide: [A, B] }, { combine: B }]
";

/// It must appear nowhere.
const PASSWORD: &str = "correct-horse-battery";

/// Lets the user `duct` in with TLS and the password, and not at all otherwise.
async fn secure(cluster: &Cluster, directory: &Path) {
    let mut conn = sqlx::PgConnection::connect(&cluster.url).await.unwrap();
    for sql in [
        format!("CREATE ROLE duct LOGIN PASSWORD '{PASSWORD}'"),
        "CREATE DATABASE duct OWNER duct".to_owned(),
    ] {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        conn.execute(sql).await.unwrap();
    }
    conn.close().await.unwrap();
    cluster.down();
    let owner = std::fs::metadata(cluster.data("PG_VERSION")).unwrap().uid();
    for name in ["server.crt", "server.key"] {
        std::fs::copy(directory.join(name), cluster.data(name)).unwrap();
        let private = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(cluster.data(name), private).unwrap();
        chown(cluster.data(name), Some(owner), None).unwrap();
    }
    let prepend = |name: &str, text: &str| {
        let old = std::fs::read_to_string(cluster.data(name)).unwrap();
        std::fs::write(cluster.data(name), format!("{text}{old}")).unwrap();
    };
    prepend("postgresql.conf", "ssl = on\n");
    prepend(
        "pg_hba.conf",
        "hostssl all duct all scram-sha-256\nhost all duct all reject\n",
    );
    cluster.up();
}

#[tokio::test]
async fn tls_is_as_strict_as_the_url_says_and_the_password_is_seen_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path(), "right");
    let stranger = tempfile::tempdir().unwrap();
    certify(stranger.path(), "wrong");
    let cluster = Cluster::start();
    secure(&cluster, directory.path()).await;
    let right = directory.path().join("right.crt");
    let wrong = stranger.path().join("wrong.crt");
    let (right, wrong) = (right.to_str().unwrap(), wrong.to_str().unwrap());
    let port = cluster.url.rsplit_once(':').unwrap().1.split('/').next();
    let port = port.unwrap();
    let url =
        |host: &str, query: &str| format!("postgres://duct:{PASSWORD}@{host}:{port}/duct?{query}");

    for good in [
        // Encrypted, whatever the server's identity.
        url("127.0.0.1", "sslmode=require"),
        url(
            "127.0.0.1",
            &format!("sslmode=verify-ca&sslrootcert={right}"),
        ),
        url(
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={right}"),
        ),
    ] {
        let location = Location::parse(&good).unwrap();
        let mut conn = location.connect(Purpose::Engine).await.unwrap();
        migrate::migrate(&mut conn).await.unwrap();
        let mut fixture = DaemonFixture::at(&good, conn, Settings::default(), &[WORK]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 3).await;
        fixture.completed(PATIENCE).await;
        let shown = fixture.run(&[], &["processes"]);
        assert!(shown.status.success(), "{shown:?}");
        // Every existing connection, including those of this test.
        let mut conn = sqlx::PgConnection::connect(&cluster.url).await.unwrap();
        let plain: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
              WHERE usename = 'duct' AND NOT ssl",
        )
        .fetch_one(&mut conn)
        .await
        .unwrap();
        let all: i64 =
            sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE usename = 'duct'")
                .fetch_one(&mut conn)
                .await
                .unwrap();
        conn.close().await.unwrap();
        assert!(plain == 0 && all >= 5, "{plain} of {all} are not encrypted");
        daemon.stop().await;
        assert!(!daemon.text().contains(PASSWORD));
        fixture.audited().await;
    }

    let location = Location::parse(&url("127.0.0.1", "sslmode=require")).unwrap();
    let without = Cluster::start();
    let unencrypted = format!("{}?sslmode=verify-full", without.url);
    for (bad, says) in [
        (unencrypted, "server does not support TLS"),
        (
            url(
                "localhost",
                &format!("sslmode=verify-full&sslrootcert={wrong}"),
            ),
            "UnknownIssuer",
        ),
        (
            url(
                "127.0.0.1",
                &format!("sslmode=verify-ca&sslrootcert={wrong}"),
            ),
            "UnknownIssuer",
        ),
        (
            url(
                "127.0.0.1",
                &format!("sslmode=verify-full&sslrootcert={right}"),
            ),
            "not valid for name",
        ),
        // No connection fell back to anything: without TLS there is no way in.
        (url("127.0.0.1", "sslmode=disable"), "pg_hba.conf"),
    ] {
        let conn = location.connect(Purpose::Engine).await.unwrap();
        let fixture = DaemonFixture::at(&bad, conn, Settings::default(), &[WORK]).await;
        for words in [&["processes"][..], &["trigger", "Work"], &["start"]] {
            let done = fixture.run(&[], words);
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(69), "{words:?}: {said}");
            assert!(said.contains(says), "{words:?}: {said}");
            let remedy = match says {
                "pg_hba.conf" => says,
                "server does not support TLS" => "add `?sslmode=disable`",
                _ => "name the authority that signed the server's certificate",
            };
            assert!(said.contains(remedy), "{words:?}: {said}");
            assert!(!said.contains(PASSWORD), "{said}");
            assert!(done.stdout.is_empty(), "{done:?}");
            let errors = said.lines().filter(|line| line.starts_with("error"));
            assert_eq!(errors.count(), 1, "{said}");
        }
    }
}
