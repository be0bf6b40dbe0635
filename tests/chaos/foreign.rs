//! Foreign sessions on a PostgreSQL server that affect Ductwork without having to do with it: they
//! lock a table, end statements, and leave no room on the server's disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::sync::oneshot;

use crate::cluster::Cluster;
use crate::history::uptime;
use crate::plan::{Blow, HOSTS};
use crate::scene::{Scene, UNPROVEN};
use crate::server::Server;
use crate::space::Space;
use crate::strangers;

/// The database users of the hosts and, last, of the clients that trigger and cancel: a foreign
/// session can tell by them whose a session is.
pub static ROLES: [&str; HOSTS + 1] = ["host_0", "host_1", "people"];

/// The tables that some process queries all the time.
const TABLES: [&str; 9] = [
    "ductwork_runs",
    "ductwork_branches",
    "ductwork_fan_outs",
    "ductwork_steps",
    "ductwork_executions",
    "ductwork_availabilities",
    "ductwork_transitions",
    "ductwork_advancements",
    "ductwork_processes",
];

/// In the first mode nobody else can write to the table, in the second nobody can even read it.
const MODES: [&str; 2] = ["SHARE", "ACCESS EXCLUSIVE"];

/// Statements that take longer are ended.
const TOO_LONG: &str = "2 ms";

/// The words in the server's log for a statement that was ended on request.
const ENDED: &str = "canceling statement due to user request";

/// The words for a full disk.
pub const NO_ROOM: &str = "No space left on device";

impl Scene {
    /// Locks a table, as a session does that makes an index or alters the table.
    pub async fn lock_table(&mut self, blow: &Blow) {
        let table = TABLES[blow.pick as usize % TABLES.len()];
        let mode = MODES[blow.amount as usize % MODES.len()];
        let (taken, told) = oneshot::channel();
        let (lasts, url) = (blow.lasts, self.url.clone());
        match &self.server {
            Some(Server::Mysql(_)) => {
                let lock = strangers::Lock {
                    url,
                    table,
                    hides: mode != MODES[0],
                };
                self.beside(blow, move || lock.hold(lasts, taken));
            }
            _ => {
                let lock = Lock { url, table, mode };
                self.beside(blow, move || lock.hold(lasts, taken));
            }
        }
        told.await.expect("the lock is taken");
        let target = format!("{table} in {mode} mode for {lasts:?}");
        self.note(blow, target, uptime(), lasts, Vec::new());
    }

    /// Ends slow statements of one host or of all hosts, as an administrator's watchdog does.
    pub fn end_statements(&mut self, blow: &Blow) {
        let roles = match blow.host {
            HOSTS => &ROLES[..],
            host => &ROLES[host..=host],
        };
        let (at, lasts, url) = (uptime(), blow.lasts, self.url.clone());
        match &self.server {
            Some(Server::Postgres(cluster)) => {
                let log = ServerLog::of(cluster);
                let ending = Ending { url, roles, log };
                self.beside(blow, move || ending.last(lasts));
            }
            _ => {
                let urls = match &self.nodes {
                    Some(nodes) => nodes.urls(),
                    None => vec![url],
                };
                let ended = Arc::new(AtomicBool::new(false));
                for url in urls {
                    let ended = Arc::clone(&ended);
                    let ending = strangers::Ending {
                        url,
                        roles,
                        patience: self.patience(),
                        ended,
                    };
                    self.beside(blow, move || ending.last(lasts));
                }
            }
        }
        let target = format!("whatever takes {roles:?} more than {TOO_LONG}, for {lasts:?}");
        self.note(blow, target, at, lasts, Vec::new());
    }

    /// Fills the disk, as other files on it could, until there was no room for something.
    pub fn fill_space(&mut self, blow: &Blow) {
        let space = self.space.as_ref().expect("a disk of the server's own");
        let log = || match &self.server {
            Some(Server::Postgres(cluster)) => ServerLog::of(cluster),
            _ => unreachable!("only PostgreSQL has tables elsewhere"),
        };
        let (lasts, number, mut asking) = (blow.lasts, blow.number, self.aside.asking(blow));
        let (said, says) = (log(), log());
        let at = uptime();
        let end = space.filled();
        self.ends(blow, lasts, move || said.says(NO_ROOM), end);
        self.beside(blow, move || async move {
            asking.take_room(number, &says).await.is_some()
        });
        self.note(blow, format!("for {lasts:?}"), at, lasts, Vec::new());
    }
}

/// Creates a database there and returns its URL.
pub async fn database_in(space: &Space, url: &str) -> String {
    let mut conn = PgConnection::connect(url).await.expect("the server");
    let path = space.path().display();
    for make in [
        format!("CREATE TABLESPACE small LOCATION '{path}'"),
        "CREATE DATABASE chaos TABLESPACE small".to_owned(),
    ] {
        run(&mut conn, make).await.expect("a database");
    }
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{server}/chaos")
}

async fn run(conn: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    conn.execute(sql).await.map(drop)
}

struct Lock {
    url: String,
    table: &'static str,
    mode: &'static str,
}

impl Lock {
    /// Holds the lock for this long, and until some session has waited for it; takes it again if
    /// the server crashes before that. True when a session has waited.
    async fn hold(self, lasts: Duration, taken: oneshot::Sender<()>) -> bool {
        let mut taken = Some(taken);
        let mut waited = false;
        let mut until: Option<Instant> = None;
        let latest = Instant::now() + lasts + UNPROVEN;
        while Instant::now() < latest {
            let Ok(mut conn) = self.take().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if let Some(taken) = taken.take() {
                let _gone = taken.send(());
            }
            let until = *until.get_or_insert_with(|| Instant::now() + lasts);
            while let Ok(waiting) = self.waiting(&mut conn).await {
                waited |= waiting;
                if waited && Instant::now() >= until {
                    run(&mut conn, "COMMIT".to_owned()).await.ok();
                    return true;
                }
                if Instant::now() >= latest {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // The server has crashed, and with it the lock.
            if waited && Instant::now() >= until {
                return true;
            }
        }
        false
    }

    /// Sessions that want the same table queue behind this one, so it waits only briefly.
    async fn take(&self) -> Result<PgConnection, sqlx::Error> {
        let mut conn = PgConnection::connect(&self.url).await?;
        let Self { table, mode, .. } = self;
        let lock =
            format!("BEGIN; SET LOCAL lock_timeout = '200ms'; LOCK TABLE {table} IN {mode} MODE");
        run(&mut conn, lock).await?;
        Ok(conn)
    }

    /// True when a session is waiting for the lock at this moment.
    async fn waiting(&self, conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let waiting = format!(
            "SELECT EXISTS (SELECT 1 FROM pg_locks
               WHERE NOT granted AND relation = '{}'::regclass
                 AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))",
            self.table
        );
        let row = conn
            .fetch_one(sqlx::raw_sql(sqlx::AssertSqlSafe(waiting)))
            .await?;
        row.try_get_unchecked::<String, _>(0)
            .map(|told| told == "t")
    }
}

struct Ending {
    url: String,
    roles: &'static [&'static str],
    log: ServerLog,
}

impl Ending {
    /// Ends statements for this long, and until it has ended one; true when it has.
    async fn last(self, lasts: Duration) -> bool {
        let whose: Vec<String> = self.roles.iter().map(|role| format!("'{role}'")).collect();
        let end = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
              WHERE usename IN ({}) AND state = 'active'
                AND clock_timestamp() - query_start > interval '{TOO_LONG}'",
            whose.join(", ")
        );
        let began = Instant::now();
        let mut conn = None;
        while began.elapsed() < lasts + UNPROVEN {
            if began.elapsed() >= lasts && self.log.says(ENDED) {
                return true;
            }
            let mut open = match conn.take() {
                Some(open) => open,
                // The server is down, so no statement takes long there.
                None => match PgConnection::connect(&self.url).await {
                    Ok(open) => open,
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            if run(&mut open, end.clone()).await.is_ok() {
                conn = Some(open);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        false
    }
}

/// The part of the server's log from now on.
pub struct ServerLog {
    file: PathBuf,
    from: u64,
}

impl ServerLog {
    /// The log of this server.
    pub fn of(cluster: &Cluster) -> Self {
        let file = cluster.data("../server.log");
        let from = std::fs::metadata(&file).expect("the server's log").len();
        Self { file, from }
    }

    /// True when the log contains these words.
    pub fn says(&self, what: &str) -> bool {
        let mut log = File::open(&self.file).expect("the server's log");
        let mut said = Vec::new();
        log.seek(SeekFrom::Start(self.from)).expect("a file");
        log.read_to_end(&mut said).expect("a file");
        String::from_utf8_lossy(&said).contains(what)
    }
}
