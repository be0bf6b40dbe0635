//! Processes that are writing to a database, and a freeze that hits none of them.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Dialect};
use nix::sys::signal::Signal;
use nix::sys::stat::{major, minor};

use crate::fixture::{freeze, send};
use crate::support::Db;

/// Sessions that hold a transaction open for a program that does not go on. On PostgreSQL, tests share a database, and
/// each has its schema.
static OPEN_ON_POSTGRES: Statement = Statement::new(
    "OPEN_ON_POSTGRES",
    "SELECT a.pid AS id FROM pg_stat_activity a
      WHERE a.datname = current_database() AND a.state LIKE 'idle in transaction%'
        AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                     WHERE l.pid = a.pid AND c.relnamespace = current_schema()::regnamespace)",
);
static OPEN_ON_MYSQL: Statement = Statement::new(
    "OPEN_ON_MYSQL",
    "SELECT p.ID AS id FROM information_schema.INNODB_TRX t
       JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
      WHERE p.DB = DATABASE() AND p.COMMAND = 'Sleep'",
);

/// Freezes a process outside of a write: one that stands still while it writes is another case. On SQLite, it is
/// killed for that; on a server, its rows stay locked.
pub async fn freeze_outside_of_a_write(db: &Db, pid: i32) {
    let path = db.url.strip_prefix("sqlite://").map(Path::new);
    loop {
        freeze(pid).await;
        let writes = match path {
            Some(path) => writer(path) == Some(pid),
            None => a_transaction_stays_open(&mut db.conn().await).await,
        };
        if !writes {
            return;
        }
        send(pid, Signal::SIGCONT);
    }
}

/// False once no transaction of the database waits for its program. The transactions of programs that run end soon.
async fn a_transaction_stays_open(conn: &mut Conn) -> bool {
    let open = match conn.dialect() {
        Dialect::Mysql => &OPEN_ON_MYSQL,
        _ => &OPEN_ON_POSTGRES,
    };
    for _ in 0..20 {
        // MariaDB's list is up to 100 ms old.
        tokio::time::sleep(Duration::from_millis(150)).await;
        if conn
            .fetch(open, &[])
            .await
            .expect("the sessions")
            .is_empty()
        {
            return false;
        }
    }
    true
}

/// The process that currently holds the write lock of this SQLite database, according to the kernel: SQLite
/// locks a byte of the file beside it.
pub fn writer(database: &Path) -> Option<i32> {
    const WRITE_LOCK: &str = "120";
    let shared = format!("{}-shm", database.display());
    let file = std::fs::metadata(shared).expect("a database that is open");
    let (major, minor) = (major(file.dev()), minor(file.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "POSIX", _, "WRITE", pid, on, WRITE_LOCK, WRITE_LOCK] if on == file => {
                pid.parse().ok()
            }
            _ => None,
        }
    })
}
