//! A foreign session that holds locks.

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect, Location, Purpose};

/// A session on a server, which may stay in a transaction for as long as it likes.
pub struct Foreign(pub Conn);

impl Foreign {
    /// A session on the database of this URL.
    pub async fn on(url: &str) -> Self {
        let location = Location::parse(url).expect("the server's URL");
        let conn = location.connect(Purpose::Query).await.expect("the server");
        let mut foreign = Self(conn);
        let stay = match foreign.0.dialect() {
            Dialect::Postgres => "SET idle_in_transaction_session_timeout = 0",
            Dialect::Mysql => "SET SESSION idle_transaction_timeout = 0",
            Dialect::Sqlite => unreachable!("SQLite has no sessions"),
        };
        foreign.run(stay).await;
        foreign
    }

    /// Locks rows: a table, and WHERE.
    pub async fn lock_rows(&mut self, rows: &str) {
        self.run("START TRANSACTION").await;
        self.run(format!("SELECT 1 FROM {rows} FOR UPDATE").leak())
            .await;
    }

    /// Locks the supervisor's row, even if another session has locked the others' rows.
    pub async fn lock_supervisor(&mut self) {
        static SUPERVISOR: Statement = Statement::new(
            "TEST_SUPERVISOR",
            "SELECT id FROM ductwork_processes WHERE role = 'supervisor'",
        );
        static LOCK: Statement = Statement::new(
            "TEST_LOCK",
            "SELECT id FROM ductwork_processes WHERE id = :id FOR UPDATE",
        );
        self.run("START TRANSACTION").await;
        let row = self.0.fetch_optional(&SUPERVISOR, &[]).await;
        let id: uuid::Uuid = row
            .expect("an answer")
            .expect("a supervisor")
            .get("id")
            .expect("a key");
        let locked = self.0.fetch(&LOCK, &[("id", id.into())]).await;
        assert_eq!(locked.expect("a lock").len(), 1);
    }

    /// Locks whole tables, so that they can be read but not written: as during the creation of an
    /// index.
    pub async fn lock_tables(&mut self, tables: &[&str]) {
        let lock = match self.0.dialect() {
            Dialect::Mysql => format!("LOCK TABLES {} READ", tables.join(" READ, ")),
            _ => format!("BEGIN; LOCK TABLE {} IN SHARE MODE", tables.join(", ")),
        };
        self.run(lock.leak()).await;
    }

    /// Locks a whole table, so that nobody can even read it: as during a change of the table.
    pub async fn hide_table(&mut self, table: &str) {
        let lock = match self.0.dialect() {
            Dialect::Mysql => format!("LOCK TABLES {table} WRITE"),
            _ => format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
        };
        self.run(lock.leak()).await;
    }

    /// Releases its locks.
    pub async fn release(&mut self) {
        self.run("COMMIT").await;
        if self.0.dialect() == Dialect::Mysql {
            self.run("UNLOCK TABLES").await;
        }
    }

    async fn run(&mut self, sql: &'static str) {
        let done = self.0.script("FOREIGN", sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}
