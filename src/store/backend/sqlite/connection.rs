//! A connection to SQLite, on a thread of its own.
//!
//! Owns: opening a database file, running a statement with its arguments, its rows. A request is one
//! message to the thread and one back, however many statements and rows it has: a message costs as much as
//! a small statement, because a thread has to be woken up for it. Never: knows the purpose of a statement,
//! or the meaning of its error (`store::error`).
//!
//! A request that nobody waits for any more is answered all the same. A caller that gives one up within a
//! transaction has to close the connection.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::busy;
use super::file::File;
use super::fingerprint;
use super::names;
use super::rows_table;
use crate::store::conn::Purpose;
use crate::store::error::{Error, Source};
use crate::store::patience;
use crate::store::statement::Request;

/// The oldest SQLite without the bug that corrupts a WAL written by two processes.
const VERSION_MIN: i32 = 3_051_003;

/// Bytes of a WAL that are kept when it starts over: more than a WAL takes where nobody reads for
/// long.
const WAL_LEFT: u32 = 8 << 20;

/// How many statements stay prepared.
const PREPARED: usize = 256;

/// The time of a page's statement is checked after this many operations of SQLite's machine: some
/// tens of µs.
const OPERATIONS: i32 = 1_000;

/// The longest value that an error shows, in bytes.
const SHOWN: usize = 40;

thread_local! {
    /// When this thread received the request that it answers now.
    static ASKED: Cell<Instant> = Cell::new(Instant::now());
}

/// The names of a statement's columns.
type Names = Arc<[String]>;

/// A row of an answer.
pub struct Row {
    names: Names,
    values: Vec<Value>,
}

/// A type that a column can be read as.
pub trait FromValue: Sized {
    /// The value, if it is of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }
}

impl FromValue for i32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl FromValue for Uuid {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Self::from_slice(bytes).ok(),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl Row {
    /// The value of a column.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T, Error> {
        let index = self.names.iter().position(|name| name == column);
        let value = index.and_then(|index| self.values.get(index));
        let read = value.and_then(T::from_value);
        read.ok_or_else(|| {
            Error::Corrupt(match value {
                Some(Value::Blob(bytes)) if bytes.len() > SHOWN => {
                    format!("{column} is {} bytes of another kind", bytes.len())
                }
                value => format!("{column} is {value:?}"),
            })
        })
    }
}

/// The value of a column. A text that is no text, because the file is damaged or somebody has written to it, becomes
/// bytes: then its own row cannot be read, and all others of the answer can.
fn value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Blob(bytes.to_owned()),
        },
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
    }
}

/// The answer to a request.
#[derive(Default)]
pub struct Answer {
    /// The rows of all statements, in their order.
    pub rows: Vec<Row>,
    /// How many rows the statements wrote in total.
    pub written: u64,
}

/// Why a request was not answered.
#[derive(Debug)]
pub struct Failed {
    /// SQLite's error, or that the thread is gone.
    pub source: Source,
    /// The statement that ends the transaction failed, or may have failed.
    pub at_end: bool,
}

impl Failed {
    fn at(error: rusqlite::Error, at_end: bool) -> Self {
        let source = Source::Sqlite(error);
        Self { source, at_end }
    }
}

/// An open database, owned by one thread.
pub struct Session {
    /// The database.
    pub db: Connection,
    /// The names of a statement's columns, by the address of its text, which stays there for ever.
    names: RefCell<HashMap<usize, Names>>,
}

impl Session {
    /// A session of an open database.
    pub fn new(db: Connection) -> Self {
        db.set_prepared_statement_cache_capacity(PREPARED);
        Self {
            db,
            names: RefCell::default(),
        }
    }

    /// Runs one statement to its end.
    ///
    /// # Errors
    /// SQLite's own errors, about the statement or about a value that is no text.
    pub fn run<'v>(
        &self,
        sql: &'static str,
        values: impl Iterator<Item = &'v Value>,
        answer: &mut Answer,
    ) -> rusqlite::Result<()> {
        let mut statement = self.db.prepare_cached(sql)?;
        // The explorer's statements may lack the condition that uses the last of the values.
        let taken = statement.parameter_count();
        for (index, value) in values.take(taken).enumerate() {
            statement.raw_bind_parameter(index + 1, value)?;
        }
        let columns = statement.column_count();
        if columns > 0 {
            let names = self.names(sql, &statement);
            let mut found = statement.raw_query();
            while let Some(row) = found.next()? {
                let values = (0..columns).map(|index| row.get_ref(index).map(value));
                answer.rows.push(Row {
                    names: Arc::clone(&names),
                    values: values.collect::<Result<_, _>>()?,
                });
            }
        } else {
            statement.raw_execute()?;
        }
        if !statement.readonly() {
            answer.written += self.db.changes();
        }
        Ok(())
    }

    fn names(&self, sql: &'static str, statement: &rusqlite::Statement<'_>) -> Names {
        let mut known = self.names.borrow_mut();
        let names = known.entry(sql.as_ptr().addr()).or_insert_with(|| {
            let names = statement.column_names().into_iter();
            names.map(str::to_owned).collect()
        });
        Arc::clone(names)
    }

    /// Runs several statements, one after another, until one of them fails.
    fn run_all(
        &self,
        bounds: [Option<&'static str>; 2],
        asked: &[Request],
        values: &[Value],
    ) -> Result<Answer, Failed> {
        let [begin, end] = bounds;
        let bound = |sql, at_end| match sql {
            Some(sql) => self
                .run(sql, [].iter(), &mut Answer::default())
                .map_err(|error| Failed::at(error, at_end)),
            None => Ok(()),
        };
        let mut answer = Answer::default();
        bound(begin, false)?;
        for one in asked {
            let given = one.given.iter().map(|index| &values[*index]);
            let run = self.run(one.sql, given, &mut answer);
            run.map_err(|error| Failed::at(error, false))?;
        }
        bound(end, true)?;
        Ok(answer)
    }
}

type Question = Box<dyn FnOnce(&Session) + Send>;

/// A connection: the channel to its thread. The thread ends with it.
pub struct Sqlite {
    questions: mpsc::Sender<Question>,
    /// Fails when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl Sqlite {
    /// Opens the database of `file`, within this time, and creates it if it does not exist. `waits`
    /// is the longest wait for a lock.
    ///
    /// # Errors
    /// `Configured` or `Misplaced` when the file cannot be used where it is, `Unavailable` in all other cases.
    pub async fn open(
        file: File,
        purpose: Purpose,
        waits: Option<Duration>,
        within: Duration,
    ) -> Result<Self, Error> {
        let (questions, asked) = mpsc::channel::<Question>();
        let (opened, open) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        let thread = move || {
            // Dropped last, when the session is closed.
            let _ends: oneshot::Sender<()> = ends;
            let until = Instant::now() + within;
            waits.into_iter().for_each(busy::waits);
            let session = match open_file(&file, purpose, until) {
                Ok(session) => session,
                Err(error) => return drop(opened.send(Err(error))),
            };
            if opened.send(Ok(())).is_ok() {
                for question in &asked {
                    ASKED.set(Instant::now());
                    question(&session);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("sqlite".to_owned())
            .spawn(thread);
        thread.map_err(|error| Error::unavailable(Source::Io(error)))?;
        // If the disk hangs, only the thread waits for it.
        match tokio::time::timeout(within, open).await {
            Ok(Ok(opened)) => opened.map(|()| Self { questions, ended }),
            Ok(Err(_)) => Err(Error::unavailable(Source::Gone)),
            Err(_) => Err(Error::too_late(within)),
        }
    }

    /// `None` where the thread is gone.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        let (answers, answer) = oneshot::channel();
        let question: Question = Box::new(move |session| {
            // Nobody may be left to receive the answer.
            let _ = answers.send(question(session));
        });
        // A thread that is gone drops the request, and with it the sender of the answer.
        let _ = self.questions.send(question);
        answer.await.ok()
    }

    /// Runs statements one after another, between the statements that begin and end the
    /// transaction, where these are to be sent with them. Stops at the first statement that fails.
    pub async fn run(
        &self,
        bounds: [Option<&'static str>; 2],
        asked: &'static [Request],
        values: Vec<Value>,
    ) -> Result<Answer, Failed> {
        let answer = self.ask(move |session| session.run_all(bounds, asked, &values));
        answer.await.unwrap_or(Err(Failed {
            source: Source::Gone,
            at_end: bounds[1].is_some(),
        }))
    }

    /// Runs text of several statements without parameters.
    pub async fn script(&self, text: &'static str) -> Result<(), Source> {
        let done = self.ask(move |session| session.db.execute_batch(text));
        Ok(done.await.ok_or(Source::Gone)??)
    }

    /// Makes SQLite parse a statement, without running it.
    #[cfg(feature = "internals")]
    pub async fn check(&self, sql: &'static str) -> Result<(), Source> {
        let prepared = self.ask(move |session| session.db.prepare(sql).map(drop));
        Ok(prepared.await.ok_or(Source::Gone)??)
    }

    /// Closes the connection, and returns when it is closed.
    pub async fn close(self) {
        drop(self.questions);
        let _ = self.ended.await;
    }
}

fn open_file(file: &File, purpose: Purpose, until: Instant) -> Result<Session, Error> {
    let path = file.path();
    let version = version();
    if version < VERSION_MIN {
        let text = format!("SQLite {version} corrupts databases; 3.51.3 or newer is needed");
        return Err(Error::Configured(text));
    }
    if path.is_dir() {
        return Err(Error::Configured(format!(
            "{0} is a directory, not a database file: let `database.url` name a file in it, such as {0}/ductwork.db",
            path.display()
        )));
    }
    if let Some(name) = network_file_system(path) {
        return Err(Error::Configured(format!(
            "{}: SQLite's locks do not work on {name}; use a local disk, or PostgreSQL",
            path.display()
        )));
    }
    file.check()?;
    let _opening = names::check(path, || create(file))?;
    loop {
        match configured(file, purpose) {
            // When several processes open a new file at once, one turns it into a WAL; SQLite tells
            // the others that it is locked, without waiting for the busy timeout.
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(Error::unavailable(Source::Sqlite(error))),
            Ok(session) => return file.opened().map(|()| session),
        }
    }
}

/// Makes the file, if it is not there, before SQLite creates it with the umask's mode: others must not read payloads. The
/// -wal and -shm files take the mode of the database.
///
/// RACE: another process that starts in this moment turns the new file into a WAL, and our connection locks it as one
/// that is in use. Closing the file after that would release the lock, and the other process, as it ends, would remove
/// the log that we write. So the file is closed before SQLite opens it, and one that is there is not opened here. Raced
/// by `four_supervisors_that_start_at_once_migrate_once`.
fn create(file: &File) -> Result<(), Error> {
    let made = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(file.target());
    match made.map(drop) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let text = format!("{}: {error}", file.path().display());
            let error = std::io::Error::new(error.kind(), text);
            Err(Error::unavailable(Source::Io(error)))
        }
        _ => Ok(()),
    }
}

fn configured(file: &File, purpose: Purpose) -> rusqlite::Result<Session> {
    // One thread owns the connection: there is nobody to keep out.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file.path(), flags)?;
    if purpose == Purpose::Engine && file.log_length() > u64::from(WAL_LEFT) {
        shorten_log(&db);
    }
    db.busy_handler(Some(busy::wait))?;
    // The log is as long as the longest reader made it: it is cut when it starts over (D2).
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF;
         PRAGMA journal_size_limit = {WAL_LEFT}; PRAGMA trusted_schema = OFF;
         PRAGMA cache_size = -{}",
        cache_kib(purpose)
    ))?;
    rows_table::register(&db)?;
    fingerprint::register(&db)?;
    if purpose == Purpose::Page {
        db.execute_batch("PRAGMA query_only = ON")?;
        db.progress_handler(OPERATIONS, Some(is_too_late))?;
    }
    Ok(Session::new(db))
}

/// True when SQLite should give up the statement of a page. SQLite calls this on the thread that runs
/// the statement.
fn is_too_late() -> bool {
    ASKED.get().elapsed() > patience::PAGE
}

/// How much of the file a connection caches, in KiB. Never below the default: a small cache spills a
/// long transaction to the WAL early.
fn cache_kib(purpose: Purpose) -> u32 {
    match purpose {
        Purpose::Engine => 8_000,
        Purpose::Bulk | Purpose::Lifeline | Purpose::Query | Purpose::Look | Purpose::Page => 2_000,
    }
}

/// Writes a long log to the database and cuts it, if nobody reads its contents. SQLite does so by itself
/// with a commit; where the log has filled the disk, no commit is possible until somebody does this.
fn shorten_log(db: &Connection) {
    // Most of the log is copied while others write; only the rest takes the lock. Where somebody reads
    // the log, or is already shortening it, nobody waits: the next connection tries again.
    const SHORTEN: &str = "PRAGMA busy_timeout = 0; PRAGMA wal_checkpoint(PASSIVE);
                           PRAGMA wal_checkpoint(TRUNCATE)";
    let _ = db.execute_batch(SHORTEN);
}

/// The network file system that `path` is on, if any: two hosts that both believe that they hold the lock
/// corrupt the file (D4).
fn network_file_system(path: &Path) -> Option<&'static str> {
    const KNOWN: [(u32, &str); 4] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
    ];
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let found = nix::sys::statfs::statfs(directory.unwrap_or(Path::new("."))).ok()?;
    // The type of this field differs between C libraries; the magic number has 32 bits in all of
    // them.
    let magic = found.filesystem_type().0 as u32;
    let known = KNOWN.iter().find(|(number, _)| *number == magic);
    known.map(|(_, name)| *name)
}

/// The version of the SQLite that is linked in, as SQLite numbers it.
pub fn version() -> i32 {
    rusqlite::version_number()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conn::{Conn, Location, Purpose};
    use crate::store::statement::Statement;

    static ADD: Statement = Statement::new("ADD", "INSERT INTO t (n, word) VALUES (:n, :word)");
    static ALL: Statement =
        Statement::new("ALL", "SELECT n, word FROM t WHERE n > :than ORDER BY n");
    static DOUBLE: Statement =
        Statement::new("DOUBLE", "UPDATE t SET n = n * 2 RETURNING n AS twice");
    static REFUSED: Statement = Statement::new("REFUSED", "SELECT abs(0x8000000000000000)");
    static IN_A_ROW: Statement = Statement::row("IN_A_ROW", &[&DOUBLE, &ALL, &ADD]);
    static REFUSED_AT_LAST: Statement = Statement::row("REFUSED_AT_LAST", &[&DOUBLE, &REFUSED]);

    async fn opened() -> (tempfile::TempDir, Location, Conn) {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::sqlite(directory.path().join("t.db"));
        let mut conn = location.connect(Purpose::Query).await.unwrap();
        let table = "CREATE TABLE t (n INTEGER UNIQUE, word TEXT)";
        conn.script("TABLE", table).await.unwrap();
        add(&mut conn, 1).await.unwrap();
        (directory, location, conn)
    }

    async fn add(conn: &mut Conn, n: i64) -> Result<u64, Error> {
        conn.execute(&ADD, &[("n", n.into()), ("word", "a".into())])
            .await
    }

    async fn numbers(conn: &mut Conn) -> Vec<i64> {
        let rows = conn.fetch(&ALL, &[("than", 0_i64.into())]).await.unwrap();
        rows.iter().map(|row| row.get("n").unwrap()).collect()
    }

    #[tokio::test]
    async fn a_row_of_statements_is_one_question_and_each_takes_its_own_values() {
        let (_directory, _, mut conn) = opened().await;
        add(&mut conn, 5).await.unwrap();
        conn.take_statements();
        let args = [
            ("word", "b".into()),
            ("than", 2_i64.into()),
            ("n", 7_i64.into()),
        ];
        let rows = conn.fetch(&IN_A_ROW, &args).await.unwrap();
        assert_eq!(conn.take_statements(), 1);
        let twice: Vec<i64> = rows[..2]
            .iter()
            .map(|row| row.get("twice").unwrap())
            .collect();
        assert_eq!(twice, [2, 10]);
        assert_eq!(rows[2].get::<i64>("n").unwrap(), 10);
        assert_eq!(rows.len(), 3);
        assert_eq!(numbers(&mut conn).await, [2, 7, 10]);
        // Three rows updated and one inserted; rows that were read do not count.
        let args = [
            ("word", "c".into()),
            ("than", 2_i64.into()),
            ("n", 1_i64.into()),
        ];
        assert_eq!(conn.execute(&IN_A_ROW, &args).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_text_that_is_no_text_damages_its_own_row_alone() {
        static BREAK: Statement = Statement::new(
            "BREAK",
            "UPDATE t SET word = CAST(x'ff' AS text) WHERE n = 1",
        );
        let (_directory, _, mut conn) = opened().await;
        add(&mut conn, 5).await.unwrap();
        assert_eq!(conn.execute(&BREAK, &[]).await.unwrap(), 1);
        let rows = conn.fetch(&ALL, &[("than", 0_i64.into())]).await.unwrap();
        let words = rows.iter().map(|row| row.get::<Option<String>>("word"));
        let words: Vec<_> = words.map(Result::ok).collect();
        assert_eq!(words, [None, Some(Some("a".to_owned()))]);
    }

    #[tokio::test]
    async fn a_transaction_is_as_many_questions_as_it_has_statements() {
        let (_directory, location, mut conn) = opened().await;
        conn.take_statements();
        let done = conn.transaction(async |conn| {
            add(conn, 2).await?;
            conn.fetch_and_commit(&ADD, &[("n", 3_i64.into()), ("word", "b".into())])
                .await
        });
        done.await.unwrap();
        assert_eq!(conn.take_statements(), 2);
        let mut other = location.connect(Purpose::Query).await.unwrap();
        assert_eq!(numbers(&mut other).await, [1, 2, 3]);
        // A transaction without statements sends no request.
        conn.transaction(async |_| Ok(())).await.unwrap();
        assert_eq!(conn.take_statements(), 0);
        // A transaction whose last statement is unknown is committed by a request of its own.
        conn.transaction(async |conn| add(conn, 4).await)
            .await
            .unwrap();
        assert_eq!(numbers(&mut other).await, [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn what_fails_in_the_last_statement_is_not_committed() {
        let (_directory, location, mut conn) = opened().await;
        let refused = conn.transaction(async |conn| {
            add(conn, 7).await?;
            conn.fetch_and_commit(&REFUSED_AT_LAST, &[]).await
        });
        assert!(matches!(refused.await, Err(Error::Corrupt(_))));
        let constraint = conn.transaction(async |conn| {
            add(conn, 2).await?;
            conn.fetch_and_commit(&ADD, &[("n", 1_i64.into()), ("word", "b".into())])
                .await
        });
        assert!(matches!(constraint.await, Err(Error::Constraint { .. })));
        let said_no = conn.transaction(async |_| Err::<(), _>(Error::Corrupt("no".to_owned())));
        assert!(matches!(said_no.await, Err(Error::Corrupt(_))));
        assert_eq!(numbers(&mut conn).await, [1]);
        // Nothing is left open: others may write, and so may we.
        let mut other = location.connect(Purpose::Query).await.unwrap();
        add(&mut other, 8).await.unwrap();
        conn.transaction(async |conn| add(conn, 9).await)
            .await
            .unwrap();
        assert_eq!(numbers(&mut other).await, [1, 8, 9]);
        conn.close().await;
        other.close().await;
    }

    #[tokio::test]
    async fn what_a_full_disk_refuses_before_the_end_is_known_to_be_undone() {
        static LARGE: Statement = Statement::new(
            "LARGE",
            "INSERT INTO t (n, word) VALUES (:n, zeroblob(1000000))",
        );
        let (_directory, location, mut conn) = opened().await;
        conn.script("FULL", "PRAGMA max_page_count = 1")
            .await
            .unwrap();
        for last in [false, true] {
            let full = conn.transaction(async |conn| {
                let args = [("n", 2_i64.into())];
                match last {
                    true => conn.fetch_and_commit(&LARGE, &args).await,
                    false => conn.fetch(&LARGE, &args).await,
                }
            });
            let Err(error) = full.await else {
                panic!("it was written");
            };
            let unknown = matches!(error, Error::Unavailable { in_commit, .. } if in_commit);
            assert!(error.is_unavailable() && !unknown, "{error:?}");
        }
        let mut other = location.connect(Purpose::Query).await.unwrap();
        assert_eq!(numbers(&mut other).await, [1]);
    }

    #[tokio::test]
    async fn a_page_writes_nothing_and_its_statements_are_ended() {
        static LONG: Statement = Statement::new(
            "LONG",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        );
        let (_directory, location, _conn) = opened().await;
        let mut page = location.connect(Purpose::Page).await.unwrap();
        assert!(add(&mut page, 2).await.is_err());
        let began = Instant::now();
        let ended = page.fetch(&LONG, &[]).await.err().unwrap();
        assert!(ended.is_not_now(), "{ended:?}");
        assert!(began.elapsed() >= patience::PAGE);
        assert_eq!(numbers(&mut page).await, [1]);
    }

    #[test]
    fn a_transaction_says_whether_it_failed_at_its_end() {
        let db = Connection::open_in_memory().unwrap();
        let tables = "PRAGMA foreign_keys = ON;
                      CREATE TABLE parent (id INTEGER PRIMARY KEY);
                      CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
        db.execute_batch(tables).unwrap();
        let session = Session::new(db);
        let bounds = [Some("BEGIN IMMEDIATE"), Some("COMMIT")];
        for (sql, at_end) in [
            ("INSERT INTO child VALUES (1)", true),
            ("INSERT INTO parent VALUES ('no number')", false),
        ] {
            let given = Vec::new();
            let failed = session.run_all(bounds, &[Request::new(sql, given)], &[]);
            assert_eq!(
                failed.err().map(|failed| failed.at_end),
                Some(at_end),
                "{sql}"
            );
            session.db.execute_batch("ROLLBACK").unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_whose_thread_is_gone_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.db");
        let sqlite = Sqlite::open(File::at(path), Purpose::Query, None, Duration::from_secs(5))
            .await
            .unwrap();
        let gone = sqlite.ask(|_| -> () { panic!("on purpose") });
        assert_eq!(gone.await, None);
        let mut conn = Conn::sqlite(sqlite);
        let error = add(&mut conn, 1).await.err().unwrap();
        assert!(error.is_unavailable() && conn.is_broken());
        conn.close().await;
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::sqlite(directory.path().join("none/t.db"));
        let error = location.connect(Purpose::Query).await.err().unwrap();
        assert!(error.is_unavailable());
        let said = crate::telemetry::chain(&error);
        assert!(said.contains("none/t.db: No such file"), "{said}");
    }
}
