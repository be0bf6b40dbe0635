//! Foreign sessions on a MariaDB server that affect Ductwork without having to do with it: they lock a table, and
//! end statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Error, Location, Purpose};
use tokio::sync::oneshot;

use crate::scene::UNPROVEN;

/// Statements that take longer, in milliseconds, are ended.
const TOO_LONG: f64 = 2.0;

/// A session that holds a lock on a whole table.
pub struct Lock {
    pub url: String,
    pub table: &'static str,
    /// True when nobody else can even read it.
    pub hides: bool,
}

impl Lock {
    /// Holds the lock for this long, and until some session has waited for it; takes it again if
    /// the server crashes before that. True when a session has waited.
    pub async fn hold(self, lasts: Duration, taken: oneshot::Sender<()>) -> bool {
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
                    conn.script("UNLOCK", "UNLOCK TABLES").await.ok();
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

    /// Other sessions queue behind this one for the same table, so it gives up after a second.
    async fn take(&self) -> Result<Conn, Error> {
        let location = Location::parse(&self.url).expect("the server's URL");
        let mut conn = location.connect(Purpose::Query).await?;
        let mode = if self.hides { "WRITE" } else { "READ" };
        let lock = format!("LOCK TABLES {} {mode} WAIT 1", self.table);
        conn.script("LOCK", lock.leak()).await?;
        Ok(conn)
    }

    /// True when a session is waiting for the lock at this moment.
    async fn waiting(&self, conn: &mut Conn) -> Result<bool, Error> {
        static WAITING: Statement = Statement::new(
            "TEST_WAITING",
            "SELECT ID FROM information_schema.PROCESSLIST
              WHERE STATE = 'Waiting for table metadata lock' AND INFO LIKE :table LIMIT 1",
        );
        let table = format!("%{}%", self.table);
        let found = conn.fetch(&WAITING, &[("table", (&table).into())]).await?;
        Ok(!found.is_empty())
    }
}

/// A session that ends statements.
pub struct Ending {
    pub url: String,
    pub roles: &'static [&'static str],
    /// How long it waits for such a statement in the end.
    pub patience: Duration,
    /// True when a statement was ended, here or by the same fault at another node.
    pub ended: Arc<AtomicBool>,
}

impl Ending {
    /// Ends statements for this long, and until one was ended; true when one was.
    pub async fn last(self, lasts: Duration) -> bool {
        let location = Location::parse(&self.url).expect("the server's URL");
        let ended = self.end_for(lasts, &location).await;
        // A server that is down opens its tables anew by itself.
        if let Ok(mut conn) = location.connect(Purpose::Query).await {
            for sql in ["SET lock_wait_timeout = 5", "FLUSH LOCAL TABLES"] {
                // Tables that are in use are opened anew later.
                let _done_or_begun = conn.script("FLUSH", sql).await;
            }
        }
        ended
    }

    async fn end_for(&self, lasts: Duration, location: &Location) -> bool {
        let (began, mut conn) = (Instant::now(), None);
        while began.elapsed() < lasts + self.patience {
            if began.elapsed() >= lasts && self.ended.load(Ordering::Relaxed) {
                return true;
            }
            // The server is down, so no statement takes long there.
            let open = match conn.take() {
                Some(open) => Ok(open),
                None => location.connect(Purpose::Query).await,
            };
            let Ok(mut open) = open else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if let Ok(some) = self.end(&mut open).await {
                self.ended.fetch_or(some, Ordering::Relaxed);
                conn = Some(open);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.ended.load(Ordering::Relaxed)
    }

    /// True when a statement that took too long was ended. A statement that opens tables is left alone: a server whose
    /// parsing of a trigger is ended, after its start, takes the trigger for faulty until it opens the table anew, and
    /// only the tripwires of this test are triggers. The statement may begin to open them before its end arrives: so all
    /// tables are opened anew afterwards.
    async fn end(&self, conn: &mut Conn) -> Result<bool, Error> {
        static UNDER_WAY: Statement = Statement::new(
            "TEST_UNDER_WAY",
            "SELECT CAST(ID AS SIGNED) AS id, USER AS user, CAST(TIME_MS * 1000 AS SIGNED) AS took
               FROM information_schema.PROCESSLIST
              WHERE COMMAND IN ('Query', 'Execute') AND STATE <> 'Opening tables'",
        );
        let mut ended = false;
        for row in conn.fetch(&UNDER_WAY, &[]).await? {
            let (user, took): (String, i64) = (row.get("user")?, row.get("took")?);
            if self.roles.contains(&user.as_str()) && took as f64 > TOO_LONG * 1_000.0 {
                let kill = format!("KILL QUERY {}", row.get::<i64>("id")?);
                // The statement may have ended by itself, and its session too.
                ended |= conn.script("KILL", kill.leak()).await.is_ok();
            }
        }
        Ok(ended)
    }
}
