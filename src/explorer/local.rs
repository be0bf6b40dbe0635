//! A SQLite in this thread's memory, behind the same `Conn` as the real ones.
//!
//! Owns: running the product's own SQLite statements without a thread in between, a clock that stands
//! still until it is moved, and undoing everything since a mark. Never: changes a statement, except for
//! the one condition that a mutant drops.
//!
//! Marks are savepoints, and so are the store's transactions here: within an outer savepoint, `BEGIN
//! IMMEDIATE` opens one and `COMMIT` releases it.

#![expect(unsafe_code, reason = "SQLite's own settings are told in C")]

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Once};

use libsqlite3_sys::{SQLITE_CONFIG_MEMSTATUS, sqlite3_config};
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags};

use super::mutants::{self, Mutant};
use crate::model::ProcessId;
use crate::store::backend::sqlite::connection::{Answer, Session};
use crate::store::backend::sqlite::rows_table;
use crate::store::conn::sqlite_values;
use crate::store::error::{Error, Source};
use crate::store::statement::{Args, Statement};
use crate::store::{Dialect, migrate};

/// The clock's first moment, in µs: far from zero, so that no span before it is negative.
pub const EPOCH: i64 = 1_000_000_000_000_000;

/// The number of statements after which a loop counts as endless: more than any fair schedule here takes.
const ENDLESS: u32 = 20_000;

/// Ended rows stay as they are, a process writes only to rows that it holds, and a reaper only to rows
/// that the dead held: no invariant of a single state can express that. But a copy of a step may have to
/// be left once more.
const TRIPWIRES: &str = "
    CREATE TEMP TRIGGER ended_execution BEFORE UPDATE ON ductwork_executions
      WHEN old.result IS NOT NULL
     BEGIN SELECT RAISE(ABORT, 'tripwire: an execution that has ended is changed'); END;
    CREATE TEMP TRIGGER ended_advancement BEFORE UPDATE ON ductwork_advancements
      WHEN old.result IS NOT NULL
     BEGIN SELECT RAISE(ABORT, 'tripwire: an advancement that has ended is changed'); END;
    CREATE TEMP TRIGGER ended_transition BEFORE UPDATE ON ductwork_transitions
      WHEN old.completed_at IS NOT NULL
     BEGIN SELECT RAISE(ABORT, 'tripwire: a transition that is complete is changed'); END;
    CREATE TEMP TRIGGER ended_branch BEFORE UPDATE ON ductwork_branches
      WHEN old.status IN ('completed', 'halted', 'cancelled') AND new.status <> old.status
     BEGIN SELECT RAISE(ABORT, 'tripwire: a branch that has ended goes on'); END;
    CREATE TEMP TRIGGER ended_run BEFORE UPDATE ON ductwork_runs
      WHEN old.status IN ('completed', 'halted', 'cancelled') AND new.status <> old.status
     BEGIN SELECT RAISE(ABORT, 'tripwire: a run that has ended goes on'); END;
    CREATE TEMP TRIGGER ended_step BEFORE UPDATE ON ductwork_steps
      WHEN old.status IN ('completed', 'failed', 'cancelled') AND new.status <> old.status
       AND NOT (new.status = 'advancing' AND old.source_step_id IS NOT NULL)
     BEGIN SELECT RAISE(ABORT, 'tripwire: a step that has ended goes on'); END;
    CREATE TEMP TRIGGER held_execution BEFORE UPDATE ON ductwork_executions
      WHEN old.process_id <> acting()
     BEGIN SELECT RAISE(ABORT, 'tripwire: an execution that another holds is changed'); END;
    CREATE TEMP TRIGGER held_advancement BEFORE UPDATE ON ductwork_advancements
      WHEN old.process_id <> acting()
     BEGIN SELECT RAISE(ABORT, 'tripwire: an advancement that another holds is changed'); END";

/// Every statement that was run in any world whose statements lack no condition.
pub static RUN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// The connection.
pub struct Local {
    pub(super) session: Session,
    clock: Arc<AtomicI64>,
    acting: Arc<Mutex<Option<ProcessId>>>,
    /// By the statement's address: its text as it is sent.
    known: HashMap<usize, Known>,
    mutants: Vec<Mutant>,
    /// Statements since the last mark.
    statements: u32,
    /// The number of statements that counts as endless.
    pub(super) most: u32,
    /// The next COMMIT fails, and its transaction is rolled back.
    pub(super) refuses: bool,
}

#[derive(Clone, Copy)]
struct Known {
    name: &'static str,
    sql: &'static str,
}

impl Local {
    /// The product's schema without rows, and statements that lack the conditions that `mutants` drop.
    pub fn open(mutants: &[Mutant]) -> Self {
        count_no_memory();
        // One thread uses it: there is nobody to keep out.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_in_memory_with_flags(flags).expect("memory for a database");
        // No new plan is made for each bound value.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .expect("a setting that SQLite has");
        // Small pages: a mark keeps whole pages.
        let pragmas = "PRAGMA page_size = 1024; PRAGMA journal_mode = MEMORY;
                       PRAGMA temp_store = MEMORY; PRAGMA foreign_keys = OFF";
        db.execute_batch(pragmas)
            .expect("pragmas of a new database");
        rows_table::register(&db).expect("SQLite takes the module");
        db.execute_batch(&migrate::script(Dialect::Sqlite))
            .expect("the product's schema");
        let clock = Arc::new(AtomicI64::new(EPOCH));
        let read = Arc::clone(&clock);
        // The product's `{now}` calls SQLite's `unixepoch`; here the explorer answers.
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        db.create_scalar_function("unixepoch", 1, flags, move |_| {
            Ok(read.load(Ordering::Relaxed) / 1_000_000)
        })
        .expect("SQLite takes the clock");
        let acting = Arc::new(Mutex::new(None::<ProcessId>));
        let read = Arc::clone(&acting);
        let flags = FunctionFlags::SQLITE_UTF8;
        db.create_scalar_function("acting", 0, flags, move |_| {
            let acting = *read.lock().expect("nobody panics with it");
            Ok(acting.map(|process| process.0.as_bytes().to_vec()))
        })
        .expect("SQLite takes the function");
        db.execute_batch(TRIPWIRES).expect("our own text");
        let session = Session::new(db);
        Self {
            session,
            clock,
            acting,
            known: HashMap::new(),
            mutants: mutants.to_vec(),
            statements: 0,
            most: ENDLESS,
            refuses: false,
        }
    }

    /// Sets the clock, in µs.
    pub fn set_clock(&self, now: i64) {
        self.clock.store(now, Ordering::Relaxed);
    }

    /// Sets the process that writes from now on; `None` may write to every row.
    pub fn acts(&self, process: Option<ProcessId>) {
        *self.acting.lock().expect("nobody panics with it") = process;
    }

    /// The statements that were run.
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.known.values().map(|known| known.name).collect()
    }

    /// Marks a state to return to.
    pub fn mark(&mut self) {
        self.statements = 0;
        self.plain("SAVEPOINT mark");
    }

    /// Returns to the last mark, and forgets it.
    pub fn undo(&self) {
        self.plain("ROLLBACK TO mark");
        self.plain("RELEASE mark");
    }

    /// Hides everything that may be claimed now, so that the next run can be driven alone.
    pub fn hide(&self) {
        self.batch(
            "CREATE TEMP TABLE IF NOT EXISTS queue AS SELECT * FROM ductwork_availabilities LIMIT 0;
             CREATE TEMP TABLE IF NOT EXISTS ready AS SELECT id, ready_at FROM ductwork_branches LIMIT 0;
             INSERT INTO queue SELECT * FROM ductwork_availabilities;
             DELETE FROM ductwork_availabilities;
             INSERT INTO ready SELECT id, ready_at FROM ductwork_branches WHERE ready_at IS NOT NULL;
             UPDATE ductwork_branches SET ready_at = NULL",
        );
    }

    /// Shows everything that was hidden.
    pub fn show(&self) {
        self.batch(
            "INSERT INTO ductwork_availabilities SELECT * FROM queue;
             UPDATE ductwork_branches SET ready_at = r.ready_at FROM ready r
              WHERE r.id = ductwork_branches.id;
             DROP TABLE queue;
             DROP TABLE ready",
        );
    }

    fn batch(&self, sql: &str) {
        self.session.db.execute_batch(sql).expect("our own text");
    }

    fn plain(&self, sql: &str) {
        let mut statement = self.session.db.prepare_cached(sql).expect("our own text");
        statement.raw_execute().expect("a savepoint");
    }

    /// Runs a statement, or several that are sent in a row.
    pub fn run(&mut self, statement: &Statement, args: Args<'_>) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        match statement.in_row() {
            [] => self.run_one(statement, args, &mut answer)?,
            row => {
                for statement in row {
                    self.run_one(statement, args, &mut answer)?;
                }
            }
        }
        Ok(answer)
    }

    fn run_one(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        self.statements += 1;
        if self.statements > self.most {
            return Err(refused(statement.name, "it is asked for ever".to_owned()));
        }
        let known = self.known(statement);
        let values = sqlite_values(statement, args);
        let run = self.session.run(known.sql, values.iter(), answer);
        run.map_err(|error| Error::of(error.into(), statement.name))
    }

    fn known(&mut self, statement: &Statement) -> Known {
        let key = std::ptr::from_ref(statement).addr();
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let sql = statement.sql(Dialect::Sqlite);
        let sql = match mutants::without(&self.mutants, statement.name, sql) {
            // Leaked once in each world of a mutant, which lives as long as the test.
            Some(without) => String::leak(without),
            None => sql,
        };
        if self.mutants.is_empty() {
            let mut run = RUN.lock().expect("nobody panics with it");
            run.insert(statement.name);
        }
        let known = Known {
            name: statement.name,
            sql,
        };
        self.known.insert(key, known);
        known
    }

    /// Runs text without parameters; the bounds of a transaction become those of a savepoint.
    pub fn script(&mut self, name: &'static str, text: &str) -> Result<(), Error> {
        match name {
            "BEGIN" => self.plain("SAVEPOINT work"),
            "COMMIT" if std::mem::take(&mut self.refuses) => {
                return Err(refused("COMMIT", "the explorer refuses it".to_owned()));
            }
            "COMMIT" => self.plain("RELEASE work"),
            "ROLLBACK" => {
                self.plain("ROLLBACK TO work");
                self.plain("RELEASE work");
            }
            _ => {
                return self
                    .session
                    .db
                    .execute_batch(text)
                    .map_err(|error| Error::of(error.into(), name));
            }
        }
        Ok(())
    }
}

/// A defect that the explorer itself finds during a transaction.
pub fn tripped(what: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("tripwire: {what}"))
}

/// True for a defect, whichever layer reports it.
pub fn is_tripped(error: &Error) -> bool {
    format!("{error:?}").contains("tripwire: ")
}

/// SQLite counts the memory of all its connections under one lock, for which two concurrent searches wait
/// a fifth of their time.
fn count_no_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let off: c_int = 0;
        // SAFETY: the setting takes one number. Once SQLite is in use, the setting is refused, which does
        // no harm: the memory is counted then.
        unsafe { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, off) };
    });
}

/// An error that is the statement's fault.
pub fn refused(statement: &'static str, text: String) -> Error {
    Error::Refused {
        statement,
        source: Arc::new(Source::Io(std::io::Error::other(text))),
    }
}

/// An error that is the value's fault.
pub fn refused_for_its_value(statement: &'static str) -> Error {
    let too_big = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_TOOBIG);
    let source = Source::Sqlite(rusqlite::Error::SqliteFailure(too_big, None));
    Error::of(source, statement)
}
