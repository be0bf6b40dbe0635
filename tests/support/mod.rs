//! A separate database for each test, and each body on every database.

use std::path::PathBuf;
use std::sync::Arc;

use ductwork::store::sandbox::Sandbox;
use ductwork::store::{Conn, Location, Purpose, migrate};
use sqlx::{Connection, Executor};

/// Names the PostgreSQL server that tests may use.
const POSTGRES: &str = "DUCTWORK_TEST_POSTGRES_URL";
/// Names the MySQL or MariaDB server that tests may use.
const MYSQL: &str = "DUCTWORK_TEST_MYSQL_URL";

/// A database that no other test uses.
#[derive(Clone)]
pub struct Db {
    /// How to connect to it.
    pub location: Location,
    /// The same, as a URL.
    pub url: String,
    kept: Arc<Kept>,
}

enum Kept {
    Sqlite { _dir: tempfile::TempDir },
    Postgres { server: String, schema: String },
    Mysql { sandbox: Sandbox },
}

impl Db {
    /// A fresh SQLite file.
    pub fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path: PathBuf = dir.path().join("ductwork.db");
        Self {
            location: Location::sqlite(&path),
            url: format!("sqlite://{}", path.display()),
            kept: Arc::new(Kept::Sqlite { _dir: dir }),
        }
    }

    /// A fresh schema on the PostgreSQL server.
    pub async fn postgres() -> Self {
        let server = std::env::var(POSTGRES).unwrap_or_else(|_| {
            panic!(
                "{POSTGRES} is not set, so nothing was tested on PostgreSQL. Run scripts/test, \
                 which starts a server, or set it to a server that tests may use."
            )
        });
        let schema = format!("test_{}", uuid::Uuid::now_v7().simple());
        run(&server, format!("CREATE SCHEMA {schema}")).await;
        let mark = if server.contains('?') { '&' } else { '?' };
        // No test cuts the power of this server, so no commit has to wait for its disk.
        let url = format!(
            "{server}{mark}options=-c%20search_path%3D{schema}%20-c%20synchronous_commit%3Doff"
        );
        Self {
            location: Location::parse(&url).expect("the server's URL"),
            url,
            kept: Arc::new(Kept::Postgres { server, schema }),
        }
    }

    /// A fresh database on the MySQL or MariaDB server.
    pub async fn mysql() -> Self {
        let server = std::env::var(MYSQL).unwrap_or_else(|_| {
            panic!(
                "{MYSQL} is not set, so nothing was tested on MySQL. Run scripts/test, which starts a server, or set \
                 it to a server that tests may use."
            )
        });
        let sandbox = Sandbox::beside(&server, "test").expect("the server's URL");
        sandbox.make().await.expect("a database for the test");
        Self {
            location: sandbox.location().clone(),
            url: sandbox.url().to_owned(),
            kept: Arc::new(Kept::Mysql { sandbox }),
        }
    }

    /// A connection to the database in its present state.
    pub async fn connect(&self) -> Conn {
        let conn = self.location.connect(Purpose::Engine).await;
        conn.expect("the test's database")
    }

    /// A connection to the database with its schema.
    pub async fn conn(&self) -> Conn {
        let mut conn = self.connect().await;
        migrate::migrate(&mut conn).await.expect("the schema");
        conn
    }

    /// Removes what `drop` cannot.
    pub async fn remove(self) {
        if let Kept::Postgres { server, schema } = &*self.kept {
            run(server, format!("DROP SCHEMA {schema} CASCADE")).await;
        }
        if let Kept::Mysql { sandbox } = &*self.kept {
            sandbox
                .remove()
                .await
                .expect("a database that nobody uses any more");
        }
    }
}

async fn run(server: &str, sql: String) {
    let mut conn = sqlx::PgConnection::connect(server)
        .await
        .unwrap_or_else(|error| panic!("{POSTGRES}={server}: {error}"));
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    conn.execute(sql).await.expect("a schema for the test");
    conn.close().await.expect("a connection can be closed");
}

/// Runs a test's body, and removes its database whatever the outcome.
pub async fn with<F: Future<Output = ()> + 'static>(db: Db, body: impl FnOnce(Db) -> F) {
    let body = body(db.clone());
    let local = tokio::task::LocalSet::new();
    let done = local.run_until(async { tokio::task::spawn_local(body).await });
    let done = done.await;
    // Processes that the body left behind hold connections, so they are dropped first.
    drop(local);
    db.remove().await;
    if let Err(error) = done {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// One test for each database with a server: `name::postgres`, and `name::mysql` where that is wanted.
#[macro_export]
macro_rules! on_servers {
    ($($(#[$doc:meta])* async fn $name:ident($db:ident: Db) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn body($db: Db) $body

            #[tokio::test]
            async fn postgres() {
                $crate::support::with(Db::postgres().await, body).await;
            }

            #[tokio::test]
            async fn mysql() {
                $crate::support::with(Db::mysql().await, body).await;
            }
        }
    )*};
}

/// One test for each database: `name::sqlite` and `name::postgres`, and `name::mysql` where those are
/// wanted.
#[macro_export]
macro_rules! on_every_database {
    ($($(#[$doc:meta])* async fn $name:ident($db:ident: Db) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn body($db: Db) $body

            #[tokio::test]
            async fn sqlite() {
                $crate::support::with(Db::sqlite(), body).await;
            }

            #[tokio::test]
            async fn postgres() {
                $crate::support::with(Db::postgres().await, body).await;
            }

            #[tokio::test]
            async fn mysql() {
                $crate::support::with(Db::mysql().await, body).await;
            }
        }
    )*};
}
