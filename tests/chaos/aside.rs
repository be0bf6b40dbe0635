//! Runs that only the faults themselves trigger, of a separate pipeline that the oracle does not know: wide
//! runs that are cancelled half-way, old runs that are deleted, and runs that only a newer version can read.
//! Each fault repeats its request until it gets an answer, whatever happens to the database meanwhile. The
//! invariants hold for these runs as for all others.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, yaml};
use ductwork::model::{RunId, RunStatus};
use ductwork::store::cancel::{self, Cancel};
use ductwork::store::prune;
use ductwork::store::query;
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Dialect, Error, Location, Purpose};
use rusqlite::config::DbConfig;
use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::dice::Dice;
use crate::foreign::{NO_ROOM, ServerLog};
use crate::history::uptime;
use crate::plan::Blow;
use crate::scene::Scene;

/// This pipeline makes a branch for each element of its input.
pub const ASIDE: &str = "
pipeline: Aside
steps:
  All: { command: [cat] }
  Each: { command: [cat] }
  Sum: { command: [wc, -c] }
flow: [{ start: All }, { expand: Each }, { collapse: Sum }]
";

/// The branches of a wide run are delayed, so that no worker executes them: the machine has enough
/// to do.
const LATER: [&str; 2] = ["expand: Each", "expand: { to: Each, delay: 1h }"];

/// An advancer needs several transactions for this many elements.
const WIDE: usize = 2_500;

/// The size of a giant value, far above that of any other value.
const GIANT: usize = 8 << 20;

/// A fault that takes too long gives up this long before the storm does, so that its reason is printed.
const SPARE: Duration = Duration::from_secs(30);

/// The largest number of runs that one fault deletes: three, and a wide one or two. On a busy machine each
/// takes a while.
const AT_ONCE: usize = 5;

/// The age that a fault gives to runs that must look old, and the age beyond which runs are
/// deleted.
const AGED: Duration = Duration::from_secs(48 * 3_600);
const OLD: Duration = Duration::from_secs(24 * 3_600);

/// A part of a definition that this version knows, and the part of a newer version that takes its
/// place.
const KNOWN: &str = "\"command\":";
const UNKNOWN: &str = "\"http\":";

/// The database that the faults ask, and the runs that are finished with.
#[derive(Clone)]
pub struct Aside {
    location: Location,
    /// How long a fault may take.
    patience: Duration,
    /// Runs that have ended and that no fault looks at any more.
    over: Arc<Mutex<Vec<RunId>>>,
}

impl Aside {
    /// Creates one for this database; the storm waits this long for the end of a fault.
    pub fn new(location: Location, storm: Duration) -> Self {
        Self {
            location,
            patience: storm - SPARE,
            over: Arc::default(),
        }
    }

    /// Takes some of the runs that are over.
    fn take(&self) -> Vec<RunId> {
        let mut over = self.over.lock().unwrap();
        let first = over.len().saturating_sub(AT_ONCE);
        over.split_off(first)
    }

    /// Returns a client that asks this database for a fault.
    pub fn asking(&self, blow: &Blow) -> Asking {
        Asking {
            aside: self.clone(),
            blow: blow.to_string(),
            conn: None,
            latest: Instant::now() + self.patience,
        }
    }
}

impl Scene {
    /// Cancels a wide run while its fan-out is being made, or once it is made; one run in three has
    /// a giant value.
    pub fn cancel_wide(&mut self, blow: &Blow) {
        let at = uptime();
        let partly = blow.amount.is_multiple_of(2);
        let giant = blow.pick.is_multiple_of(3);
        let (number, mut asking) = (blow.number, self.aside.asking(blow));
        self.beside(blow, move || async move {
            asking.cancel_wide(number, partly, giant).await.is_some()
        });
        let when = if partly { "partly made" } else { "made" };
        let value = if giant { ", with a giant value" } else { "" };
        let target = format!("when it is {when}{value}");
        self.note(blow, target, at, Duration::ZERO, Vec::new());
    }

    /// Deletes runs that were made for this, and runs that other faults are done with.
    pub fn prune(&mut self, blow: &Blow) {
        let at = uptime();
        let (number, mut asking) = (blow.number, self.aside.asking(blow));
        let url = self.url.clone();
        self.beside(blow, move || async move {
            asking.prune(number, &url).await.is_some()
        });
        self.note(blow, String::new(), at, Duration::ZERO, Vec::new());
    }

    /// Triggers a run of a definition that this version cannot read, and then makes the definition
    /// readable or cancels the run.
    pub fn newer(&mut self, blow: &Blow) {
        let at = uptime();
        let mended = !blow.amount.is_multiple_of(4);
        let (number, lasts, mut asking) = (blow.number, blow.lasts, self.aside.asking(blow));
        self.beside(blow, move || async move {
            asking.newer(number, lasts, mended).await.is_some()
        });
        let then = if mended { "mended" } else { "cancelled" };
        let target = format!("{then} after {lasts:?}");
        self.note(blow, target, at, Duration::ZERO, Vec::new());
    }
}

fn definition(text: &str) -> Definition {
    yaml::parse(text, Path::new("aside.yml")).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A list with this many elements, one of which may be giant.
fn list(elements: usize, giant: bool) -> String {
    let each = (0..elements).map(|at| match giant && at == elements / 2 {
        true => format!("\"{}\"", giant_text()),
        false => at.to_string(),
    });
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

/// A text that takes its full room on a disk: no part of it repeats.
fn giant_text() -> String {
    let mut dice = Dice::of(GIANT as u64);
    let letters = std::iter::repeat_with(|| dice.below(u64::MAX));
    letters
        .map(|letters| format!("{letters:016x}"))
        .take(GIANT / 16)
        .collect()
}

/// A client that repeats its request until it gets an answer; none if that took too long.
pub struct Asking {
    aside: Aside,
    /// The fault, for the reader of a failure.
    blow: String,
    conn: Option<Conn>,
    latest: Instant,
}

impl Asking {
    async fn answered<T>(
        &mut self,
        mut ask: impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Option<T> {
        let mut last = None;
        while Instant::now() < self.latest {
            let conn = match self.conn.take().filter(|conn| !conn.is_broken()) {
                Some(conn) => Ok(conn),
                None => self.aside.location.connect(Purpose::Engine).await,
            };
            let error = match conn {
                Ok(mut conn) => {
                    let answer = ask(&mut conn).await;
                    self.conn = Some(conn);
                    match answer {
                        Ok(answer) => return Some(answer),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let later = error.is_unavailable() || error.is_not_now();
            assert!(later, "{error:?}");
            last = Some(error);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (blow, patience) = (&self.blow, self.aside.patience);
        eprintln!("{blow}: it took longer than {patience:?}; the last error: {last:?}");
        None
    }

    /// Repeats the question until the answer is yes.
    async fn until(
        &mut self,
        mut so: impl AsyncFnMut(&mut Conn) -> Result<bool, Error>,
    ) -> Option<()> {
        while !self.answered(&mut so).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Some(())
    }

    async fn trigger(&mut self, of: &Definition, key: &str, input: &str) -> Option<RunId> {
        let new = [NewRun {
            key: Some(key),
            input,
        }];
        let triggered =
            self.answered(async |conn| trigger::trigger(conn, of, &new, Duration::ZERO).await);
        Some(triggered.await?[0].run_id)
    }

    /// Cancels a run and returns the status that it then has.
    async fn cancel(&mut self, run: RunId) -> Option<RunStatus> {
        let cancelled = self.answered(async |conn| cancel::cancel(conn, run).await);
        Some(match cancelled.await? {
            Cancel::Done { .. } => RunStatus::Cancelled,
            Cancel::NotActive(status) => status,
            Cancel::NotFound => panic!("{run} was there a moment ago"),
        })
    }

    /// The number of branches that the run's fan-out has, and how many of those are cancelled.
    async fn made(&mut self, run: RunId) -> Option<[usize; 2]> {
        static MADE: Statement = Statement::new(
            "TEST_MADE",
            "SELECT count(*) AS made, {big:coalesce(sum(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END), 0)} AS cancelled
               FROM ductwork_branches WHERE run_id = :run AND fan_out_id IS NOT NULL",
        );
        let args = [("run", run.0.into())];
        let row = self.answered(async |conn| conn.fetch_optional(&MADE, &args).await);
        let row = row.await?.expect("a count is a row");
        Some(["made", "cancelled"].map(|name| row.get::<i64>(name).expect("a count") as usize))
    }

    /// Starts over where the fan-out was complete before the cancellation.
    async fn cancel_wide(&mut self, number: usize, partly: bool, giant: bool) -> Option<()> {
        let definition = definition(&ASIDE.replace(LATER[0], LATER[1]));
        let input = list(WIDE, giant);
        for again in 0.. {
            let key = format!("wide-{number}-{again}");
            let run = self.trigger(&definition, &key, &input).await?;
            let least = if partly { 1 } else { WIDE };
            let found = loop {
                let [made, _] = self.made(run).await?;
                if made >= least {
                    break made;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            let status = self.cancel(run).await?;
            assert_eq!(status, RunStatus::Cancelled, "{run}");
            let [made, cancelled] = self.made(run).await?;
            self.aside.over.lock().unwrap().push(run);
            assert!(
                made >= found && cancelled == made,
                "{cancelled} of {made}, {found} before"
            );
            if !partly || found < WIDE {
                return Some(());
            }
        }
        None
    }

    async fn prune(&mut self, number: usize, url: &str) -> Option<()> {
        static LEFT: Statement = Statement::new(
            "TEST_LEFT",
            "SELECT pruning_at FROM ductwork_runs WHERE id = :run",
        );
        static YOUNG: Statement = Statement::new(
            "TEST_YOUNG",
            "SELECT id FROM ductwork_runs WHERE id = :run AND triggered_at > {now} - :age",
        );
        let definition = definition(ASIDE);
        for each in 0..3 {
            let key = format!("old-{number}-{each}");
            let run = self
                .trigger(&definition, &key, &list(each + 1, false))
                .await?;
            self.ended(run).await?;
            self.aside.over.lock().unwrap().push(run);
        }
        let old = self.aside.take();
        let before = self.others().await?;
        self.age(&old, url).await?;
        // Another node of a cluster may see the change a little later.
        for run in &old {
            let args = [
                ("run", run.0.into()),
                ("age", (OLD.as_micros() as i64).into()),
            ];
            self.until(async |conn| Ok(conn.fetch(&YOUNG, &args).await?.is_empty()))
                .await?;
        }
        // Another fault of this kind may be faster, or share the work.
        self.answered(async |conn| prune::prune(conn, OLD, u64::MAX).await)
            .await?;
        // The daemons finish the work that a lost connection left half done. Where the session behind that connection
        // held a run, and its transaction was rolled back later, nobody has begun.
        for run in old {
            let args = [("run", run.0.into())];
            self.until(async |conn| {
                let Some(left) = conn.fetch_optional(&LEFT, &args).await? else {
                    return Ok(true);
                };
                if left.get::<Option<i64>>("pruning_at")?.is_none() {
                    prune::prune(conn, OLD, u64::MAX).await?;
                }
                Ok(false)
            })
            .await?;
        }
        let after = self.others().await?;
        let lost: Vec<_> = before.difference(&after).collect();
        assert!(lost.is_empty(), "it deleted others: {lost:?}");
        Some(())
    }

    async fn ended(&mut self, run: RunId) -> Option<()> {
        self.until(async |conn| {
            let state = query::run_state(conn, run).await?;
            Ok(state.expect("it was triggered").status.is_terminal())
        })
        .await
    }

    /// The runs that this fault must not delete, as far as they have ended.
    async fn others(&mut self) -> Option<BTreeSet<Uuid>> {
        static OTHERS: Statement = Statement::new(
            "TEST_OTHERS",
            "SELECT id FROM ductwork_runs WHERE status <> 'in_progress' AND pipeline <> 'Aside'",
        );
        let rows = self.answered(async |conn| conn.fetch(&OTHERS, &[]).await);
        let rows = rows.await?;
        Some(
            rows.iter()
                .map(|row| row.get("id").expect("an id"))
                .collect(),
        )
    }

    /// Makes these runs look as if everything in them had happened long ago. This is not a change that
    /// Ductwork makes, so the tripwires are switched off.
    async fn age(&mut self, runs: &[RunId], url: &str) -> Option<()> {
        let by = AGED.as_micros();
        let older = |column: &str| format!("{column} = {column} - {by}");
        let columns = ["triggered_at", "completed_at", "halted_at", "cancelled_at"];
        let columns = columns.map(older).join(", ");
        let dialect = self.aside.location.dialect();
        let ids = runs.iter().map(|run| match dialect {
            Dialect::Postgres => format!("'{}'", run.0),
            _ => format!("x'{}'", run.0.simple()),
        });
        let ids = ids.collect::<Vec<_>>().join(", ");
        let older = format!("UPDATE ductwork_runs SET {columns} WHERE id IN ({ids})");
        while Instant::now() < self.latest {
            let aged = match dialect {
                Dialect::Sqlite => age_on_sqlite(url, &older),
                Dialect::Postgres => age_on_postgres(url, &older).await.is_ok(),
                Dialect::Mysql => age_on_mysql(url, &older).await.is_ok(),
            };
            if aged {
                return Some(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// Stores giant values until the disk has no room for one; once there is room again, all of
    /// these runs complete.
    pub async fn take_room(&mut self, number: usize, log: &ServerLog) -> Option<()> {
        let definition = definition(ASIDE);
        let input = list(3, true);
        let mut runs = Vec::new();
        while !log.says(NO_ROOM) {
            let key = format!("room-{number}-{}", runs.len());
            runs.push(self.trigger(&definition, &key, &input).await?);
        }
        for run in runs {
            self.ended(run).await?;
            let state = self.answered(async |conn| query::run_state(conn, run).await);
            let status = state.await?.expect("it was triggered").status;
            assert_eq!(status, RunStatus::Completed, "{run}");
            self.aside.over.lock().unwrap().push(run);
        }
        Some(())
    }

    async fn newer(&mut self, number: usize, lasts: Duration, mended: bool) -> Option<()> {
        static STORE: Statement = Statement::new(
            "TEST_STORE_NEWER",
            "INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
             VALUES (:digest, 'Aside', :body, 0) {keep:ductwork_definitions;digest}",
        );
        static MEND: Statement = Statement::new(
            "TEST_MEND_NEWER",
            "UPDATE ductwork_definitions SET body = :body WHERE digest = :digest",
        );
        // A lost execution is followed by another one; the same execution has a new place in the queue only
        // when it was claimed and put back, because its definition cannot be read.
        static PLACE: Statement = Statement::new(
            "TEST_PLACE",
            "SELECT e.id, a.due_at FROM ductwork_runs r
               JOIN ductwork_steps s ON s.run_id = r.id
               JOIN ductwork_executions e ON e.step_id = s.id AND e.process_id IS NULL
               JOIN ductwork_availabilities a ON a.execution_id = e.id
              WHERE r.id = :run",
        );
        // With this timeout no process has read the definition yet.
        let seconds = 10_000 + number;
        let definition = definition(&format!(
            "pipeline: Aside\nsteps: {{ Echo: {{ command: [cat], timeout: {seconds}s }} }}\n\
             flow: [{{ start: Echo }}]\n"
        ));
        let (digest, body) = (definition.digest(), definition.canonical());
        let unread = body.replace(KNOWN, UNKNOWN);
        assert_ne!(unread, body);
        let began = Instant::now();
        let args = [("digest", (&digest).into()), ("body", (&unread).into())];
        self.answered(async |conn| conn.execute(&STORE, &args).await)
            .await?;
        let (key, input) = (format!("newer-{number}"), number.to_string());
        let run = self.trigger(&definition, &key, &input).await?;
        let args = [("run", run.0.into())];
        let mut seen: Option<(Uuid, i64)> = None;
        self.until(async |conn| {
            let Some(row) = conn.fetch_optional(&PLACE, &args).await? else {
                return Ok(false);
            };
            let place = (row.get("id")?, row.get("due_at")?);
            let before = seen.replace(place);
            Ok(before.is_some_and(|(id, due_at)| id == place.0 && due_at != place.1))
        })
        .await?;
        tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
        if mended {
            let args = [("digest", (&digest).into()), ("body", (&body).into())];
            self.answered(async |conn| conn.execute(&MEND, &args).await)
                .await?;
            self.ended(run).await?;
        } else {
            let status = self.cancel(run).await?;
            assert_eq!(status, RunStatus::Cancelled, "{run}");
        }
        let state = self.answered(async |conn| query::run_state(conn, run).await);
        let state = state.await?.expect("it was triggered");
        let output = state.output.as_ref().map(|output| output.get());
        match mended {
            true => assert_eq!(
                (state.status, output),
                (RunStatus::Completed, Some(&*input))
            ),
            false => assert_eq!((state.status, output), (RunStatus::Cancelled, None)),
        }
        // Being left to newer versions has cost the run no retry.
        let spent = self.spent(run).await?;
        assert_eq!(spent, 0, "{run}");
        self.aside.over.lock().unwrap().push(run);
        Some(())
    }

    /// The number of retries that the run's steps have spent.
    async fn spent(&mut self, run: RunId) -> Option<i64> {
        static SPENT: Statement = Statement::new(
            "TEST_SPENT",
            "SELECT coalesce(max(e.retry_count), 0) AS n FROM ductwork_steps s
               JOIN ductwork_executions e ON e.step_id = s.id WHERE s.run_id = :run",
        );
        let args = [("run", run.0.into())];
        let row = self.answered(async |conn| conn.fetch_optional(&SPENT, &args).await);
        Some(row.await?.expect("a row").get("n").expect("a number"))
    }
}

async fn age_on_postgres(url: &str, older: &str) -> Result<(), sqlx::Error> {
    let mut conn = PgConnection::connect(url).await?;
    let script = format!("BEGIN; SET LOCAL session_replication_role = replica; {older}; COMMIT");
    conn.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(script)))
        .await?;
    conn.close().await
}

async fn age_on_mysql(url: &str, older: &str) -> Result<(), Error> {
    let location = Location::parse(url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Query).await?;
    let script = format!("SET @tripwires_are_off = 1; {older}");
    conn.script("AGE", script.leak()).await
}

/// False if another connection is writing.
fn age_on_sqlite(url: &str, older: &str) -> bool {
    let conn = rusqlite::Connection::open(url.trim_start_matches("sqlite://")).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)
        .unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    conn.execute_batch(older).is_ok()
}
