//! The store's connection to a MySQL or MariaDB server: its session, its fragments, its schema and its errors, on
//! a real server.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

mod compound;
mod errors;
mod fragments;
mod locks;
mod schema;
mod servers;
mod statements;
mod wire;

use std::sync::Arc;

use ductwork::store::sandbox::Sandbox;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Purpose, Row};

/// Names the server that tests may use.
const MYSQL: &str = "DUCTWORK_TEST_MYSQL_URL";

/// The server's address.
fn url() -> String {
    std::env::var(MYSQL).unwrap_or_else(|_| {
        panic!(
            "{MYSQL} is not set, so nothing was tested on MySQL. Run scripts/mariadb, which starts a server, or set \
             it to a server on which tests may make databases."
        )
    })
}

/// Runs a test in its own database, with the schema; the database is removed afterwards.
async fn with<F: Future<Output = ()> + 'static>(test: impl FnOnce(Arc<Sandbox>, Conn) -> F) {
    let sandbox = Arc::new(Sandbox::beside(&url(), "test").unwrap());
    let conn = sandbox.create().await.unwrap();
    let body = test(Arc::clone(&sandbox), conn);
    let local = tokio::task::LocalSet::new();
    let done = local
        .run_until(async { tokio::task::spawn_local(body).await })
        .await;
    // Connections that the body left behind hold locks, so they are closed first.
    drop(local);
    sandbox.remove().await.unwrap();
    if let Err(error) = done {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Another connection to the same database.
async fn another(sandbox: &Sandbox, purpose: Purpose) -> Conn {
    sandbox.location().connect(purpose).await.unwrap()
}

/// A statement of a test.
fn statement(sql: impl Into<String>) -> &'static Statement {
    let sql = Box::leak(sql.into().into_boxed_str());
    Box::leak(Box::new(Statement::new("TEST", sql)))
}

async fn rows(conn: &mut Conn, sql: impl Into<String>) -> Result<Vec<Row>, Error> {
    conn.fetch(statement(sql), &[]).await
}

/// True on MariaDB, false on MySQL.
async fn is_mariadb(conn: &mut Conn) -> bool {
    text(conn, "SELECT VERSION() AS it")
        .await
        .contains("MariaDB")
}

/// The only text in a statement's answer.
async fn text(conn: &mut Conn, sql: impl Into<String>) -> String {
    let rows = rows(conn, sql).await.unwrap();
    rows[0].get("it").unwrap()
}
