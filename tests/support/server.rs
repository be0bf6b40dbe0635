//! A database server of either kind that belongs to one test alone.

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Location, Purpose, migrate};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::mariadb::Mariadb;

/// A separate server, with its own data and port, which can be stopped and started.
pub enum Server {
    /// PostgreSQL.
    Postgres(Cluster),
    /// MariaDB.
    Mysql(Mariadb),
}

impl Server {
    /// The URL of a user who may do everything.
    pub fn url(&self) -> &str {
        match self {
            Self::Postgres(cluster) => &cluster.url,
            Self::Mysql(server) => &server.url,
        }
    }

    /// The same.
    pub fn location(&self) -> Location {
        Location::parse(self.url()).expect("the server's URL")
    }

    /// A connection.
    pub async fn connect(&self) -> Conn {
        let conn = self.location().connect(Purpose::Engine).await;
        conn.expect("the server")
    }

    /// A connection to the database with its schema.
    pub async fn conn(&self) -> Conn {
        let mut conn = self.connect().await;
        migrate::migrate(&mut conn).await.expect("the schema");
        conn
    }

    /// The URL of a user to whom it applies that the server takes no writes.
    pub fn ordinary(&self) -> String {
        match self {
            Self::Postgres(cluster) => cluster.url.clone(),
            Self::Mysql(server) => server.ordinary(),
        }
    }

    /// Sets whether it takes writes, from now on.
    pub async fn take_writes(&self, takes: bool) {
        let order = match (self, takes) {
            (Self::Postgres(_), false) => "ALTER SYSTEM SET default_transaction_read_only = on",
            (Self::Postgres(_), true) => "ALTER SYSTEM RESET default_transaction_read_only",
            (Self::Mysql(server), takes) => return server.take_writes(takes),
        };
        let mut conn = self.connect().await;
        for sql in [order, "SELECT pg_reload_conf()"] {
            conn.script("take writes", sql).await.expect("an order");
        }
    }

    /// Stops it like a crash.
    pub fn down(&self) {
        match self {
            Self::Postgres(cluster) => cluster.down(),
            Self::Mysql(server) => server.down(),
        }
    }

    /// The number of sessions other than the one that asks.
    pub async fn sessions(&self, conn: &mut Conn) -> usize {
        let sessions = match self {
            Self::Postgres(_) => &SERVERS,
            Self::Mysql(_) => &SESSIONS,
        };
        numbers(conn, sessions).await.len()
    }

    /// Stops the processes that serve all other connections; on MariaDB, where one process serves all, this
    /// connection stops too. Returns the ids of those who were served.
    pub async fn freeze(&self, conn: &mut Conn) -> Vec<i32> {
        match self {
            Self::Postgres(_) => {
                let mut others = numbers(conn, &SERVERS).await;
                // A session may have ended since it was listed.
                others.retain(|pid| signal(*pid, Signal::SIGSTOP));
                others
            }
            Self::Mysql(server) => {
                let others = numbers(conn, &SESSIONS).await;
                server.freeze();
                others
            }
        }
    }

    /// Lets it go on.
    pub fn thaw(&self, frozen: &[i32]) {
        match self {
            Self::Postgres(_) => {
                for pid in frozen {
                    // One that was ending when it was stopped has ended.
                    signal(*pid, Signal::SIGCONT);
                }
            }
            Self::Mysql(server) => server.thaw(),
        }
    }

    /// Starts it again.
    pub fn up(&self) {
        match self {
            Self::Postgres(cluster) => cluster.up(),
            Self::Mysql(server) => server.up(),
        }
    }
}

/// The processes that serve other sessions than the one that asks.
static SERVERS: Statement = Statement::new(
    "TEST_SERVERS",
    "SELECT CAST(pid AS bigint) AS n FROM pg_stat_activity
      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
);
/// The sessions other than the one that asks.
static SESSIONS: Statement = Statement::new(
    "TEST_SESSIONS",
    "SELECT CAST(ID AS SIGNED) AS n FROM information_schema.PROCESSLIST
      WHERE DB = DATABASE() AND ID <> CONNECTION_ID()",
);

async fn numbers(conn: &mut Conn, statement: &'static Statement) -> Vec<i32> {
    let rows = conn.fetch(statement, &[]).await.expect("an answer");
    let number = |row: &ductwork::store::Row| row.get::<i64>("n").expect("a number") as i32;
    rows.iter().map(number).collect()
}

/// Sends a process a signal. False if there is no such process.
fn signal(pid: i32, signal: Signal) -> bool {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) => true,
        Err(Errno::ESRCH) => false,
        Err(error) => panic!("{signal} to {pid}: {error}"),
    }
}

/// One test for each kind of server: `name::postgres`, and `name::mysql` where that is wanted.
#[macro_export]
macro_rules! on_every_server {
    ($($(#[$doc:meta])* async fn $name:ident($server:ident: Server) $body:block)*) => {$(
        $(#[$doc])*
        mod $name {
            use super::*;

            async fn body($server: Server) $body

            #[tokio::test]
            async fn postgres() {
                body(Server::Postgres($crate::cluster::Cluster::start())).await;
            }

            #[tokio::test]
            async fn mysql() {
                body(Server::Mysql($crate::mariadb::Mariadb::start())).await;
            }
        }
    )*};
}
