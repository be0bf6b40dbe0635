//! A connection to a MySQL or MariaDB server.
//!
//! Owns: connecting to the first usable address, a request of one or more statements, their rows and counts. A
//! server is sent one statement at a time, and the next after its answer: when several share a packet, the error
//! of one may be lost. Never: knows the purpose of a statement, or the meaning of its error (`error`).

use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, Params, SslOpts, Value};
use tokio_rustls::rustls;

use super::compound::{self, Compound};
use super::error::Failure;
use super::nodes::{Berth, Nodes};
use super::session::{self, Server, Told};
use super::url::{Address, Host, Mode};
use super::value::{self, Row};
use super::{WHOLE, inline, script, staged, staging};
use crate::store::backend::DriverError;
use crate::store::backend::abandon;
use crate::store::batch;
use crate::store::conn::Purpose;
use crate::store::dialect::Dialect;
use crate::store::error::{Error, Source};
use crate::store::patience::Patience;
#[cfg(feature = "internals")]
use crate::store::statement::Request;
use crate::store::statement::{Arg, Args, Rows, Statement};

/// The statements that end a transaction.
const ENDS: [&str; 2] = ["COMMIT", ROLLBACK];
const ROLLBACK: &str = "ROLLBACK";

/// How many statements stay prepared, on the server as well.
const PREPARED: usize = 256;

/// The shortest time that each address is given, however many addresses there are.
const WITHIN_MIN: Duration = Duration::from_secs(2);

/// A connection.
pub struct Mysql {
    conn: Option<Conn>,
    server: Server,
    /// The node of a cluster; none while the session is being set up.
    berth: Option<Berth>,
    in_cluster: bool,
    /// True where each read of this connection sees what was committed at other nodes.
    sees_all: bool,
    /// The session's own lock wait, which a transaction may change for itself.
    lock_wait: String,
    is_lock_wait_changed: bool,
    /// A word that no other session has.
    own: String,
    /// Packets sent since the last call of `take_sent`.
    sent: u64,
    /// The last answer told that a transaction is open.
    is_open: bool,
    /// Statements may be sent as one; only MariaDB takes that.
    compounds: bool,
}

/// The answer to a request.
#[derive(Default)]
pub struct Answer {
    /// The rows of all statements, in their order.
    pub rows: Vec<Row>,
    /// How many rows the last writing statement wrote.
    pub written: u64,
}

/// Why a request was not answered.
pub struct Failed {
    /// The reason.
    pub source: Source,
    /// The statement that ends the transaction failed, or may have failed.
    pub at_end: bool,
}

impl Failed {
    fn before_end(failure: impl Into<Failure>) -> Self {
        let source = Source::Mysql(failure.into());
        Self {
            source,
            at_end: false,
        }
    }

    fn at_end(failure: impl Into<Failure>) -> Self {
        let source = Source::Mysql(failure.into());
        Self {
            source,
            at_end: true,
        }
    }
}

impl Mysql {
    /// Connects to the first usable address, within this time.
    ///
    /// # Errors
    /// `Configured` when no server can be used as it is, `Unavailable` in all other cases.
    pub async fn connect(
        nodes: &Nodes,
        purpose: Purpose,
        patience: Patience,
        within: Duration,
    ) -> Result<Self, Error> {
        let hosts = nodes.in_order();
        let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let each = (within / count).max(WITHIN_MIN.min(within));
        // A mistake, and another failure.
        let (mut refused, mut failed) = (None, None);
        for (node, host) in hosts {
            let attempt = Self::open(&nodes.address, host, purpose, patience);
            // A connection attempt is the one future that may be dropped: it holds nothing yet.
            let error = match tokio::time::timeout(each, attempt).await {
                Ok(Ok(mut opened)) => {
                    opened.berth = Some(nodes.take(node));
                    return Ok(opened);
                }
                Ok(Err(error)) => error,
                Err(_) => Error::too_late(each),
            };
            // Another node may be in better health, or have better settings.
            match (error, host) {
                (Error::Configured(text), Some(host)) if count > 1 => {
                    let _ = refused.get_or_insert(Error::Configured(format!("{text} (at {host})")));
                }
                (error, _) if error.is_unavailable() => failed = Some(error),
                (error, _) => return Err(error),
            }
        }
        let failed = failed.or(refused);
        Err(failed.unwrap_or_else(|| Error::too_late(within)))
    }

    async fn open(
        address: &Address,
        host: Option<&Host>,
        purpose: Purpose,
        patience: Patience,
    ) -> Result<Self, Error> {
        let conn = handshake(address, host, patience).await?;
        let mut opened = Self {
            conn: Some(conn),
            server: Server {
                is_mariadb: false,
                version: (0, 0, 0),
            },
            berth: None,
            in_cluster: false,
            sees_all: session::sees_all(purpose),
            lock_wait: session::lock_wait(patience),
            is_lock_wait_changed: false,
            own: uuid::Uuid::new_v4().simple().to_string(),
            sent: 0,
            is_open: false,
            compounds: false,
        };
        match opened.set_up(purpose, patience).await {
            Ok(()) => Ok(opened),
            Err(error) => {
                opened.give_up();
                Err(error)
            }
        }
    }

    async fn set_up(&mut self, purpose: Purpose, patience: Patience) -> Result<(), Error> {
        let version = self.first("SELECT VERSION()").await?.unwrap_or_default();
        self.server = Server::told(&version).ok_or_else(|| {
            Error::Configured(format!(
                "the server says that it is {version:?}, and that is neither MariaDB nor MySQL"
            ))
        })?;
        self.server.check()?;
        self.compounds = self.server.is_mariadb;
        let variables = self.variables(session::READ_BACK).await?;
        self.in_cluster = session::is_in_cluster(&variables);
        if self.in_cluster {
            session::check_node(&self.variables(session::CLUSTER).await?)?;
            session::check_limit(&variables)?;
        } else if session::may_be_in_cluster(&variables) {
            session::check_alone(&self.variables(session::CLUSTER).await?)?;
        }
        for setting in session::settings(self.server, purpose, patience, self.in_cluster) {
            self.send(&setting).await?;
        }
        let variables = self.variables(session::READ_BACK).await?;
        session::check(&variables, self.server, patience)?;
        session::check_writable(&variables, purpose)?;
        self.catch_up().await.map_err(refused)?;
        self.check_engine().await?;
        self.check_pooler().await?;
        if purpose != Purpose::Page {
            self.check_counts().await?;
            for table in session::staging(self.server, &variables) {
                self.send(&table).await?;
            }
        }
        Ok(())
    }

    async fn check_engine(&mut self) -> Result<(), Error> {
        const SUPPORT: &str =
            "SELECT max(SUPPORT) FROM information_schema.ENGINES WHERE ENGINE = 'InnoDB'";
        const OTHERS: &str = "
            SELECT max(TABLE_NAME || ' is a table of ' || ENGINE) FROM information_schema.TABLES
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ductwork\\_%' AND ENGINE <> 'InnoDB'";
        let support = self.first(SUPPORT).await?.unwrap_or_default();
        if !["DEFAULT", "YES"].contains(&support.as_str()) {
            return Err(session::wrong_engine("the server has no InnoDB"));
        }
        match self.first(OTHERS).await? {
            Some(what) => Err(session::wrong_engine(&what)),
            None => Ok(()),
        }
    }

    /// Checks that the session outlives its transactions.
    async fn check_pooler(&mut self) -> Result<(), Error> {
        const ASK: &str = "SELECT CONNECTION_ID() || '/' || hex(coalesce(@d_probe, ''))";
        let probe = uuid::Uuid::new_v4().simple();
        self.send(&format!("SET @d_probe = x'{probe}'")).await?;
        self.send("START TRANSACTION").await?;
        let tells = self.is_open;
        let within = self.first(ASK).await?;
        self.send("COMMIT").await?;
        let behind = self.first(ASK).await?;
        let ours = |told: &Option<String>| {
            let probe = probe.to_string().to_uppercase();
            told.as_ref()
                .is_some_and(|told| told.ends_with(&format!("/{probe}")))
        };
        match within == behind && ours(&within) {
            true if tells => Ok(()),
            true => Err(session::flagless()),
            false => Err(session::pooled()),
        }
    }

    /// Checks that a write counts the rows that it finds, and not those that it changes.
    async fn check_counts(&mut self) -> Result<(), Error> {
        const MAKE: &str = "CREATE TEMPORARY TABLE ductwork_counts (n bigint NOT NULL PRIMARY KEY, m bigint) ENGINE=InnoDB";
        // This is the first temporary table of a session.
        self.text(MAKE)
            .await
            .map_err(|failure| refused(failure.of_temporary_table()))?;
        self.send("INSERT INTO ductwork_counts VALUES (1, 1)")
            .await?;
        let counted = self
            .send("UPDATE ductwork_counts SET m = 1 WHERE n = 1")
            .await?;
        self.send("DROP TEMPORARY TABLE ductwork_counts").await?;
        match counted {
            1 => Ok(()),
            _ => Err(session::counts_changes()),
        }
    }

    /// From now on each statement goes alone to MariaDB, too.
    #[cfg(feature = "internals")]
    pub fn sends_each_alone(&mut self) {
        self.compounds = false;
    }

    /// True at a node of a cluster.
    pub fn is_in_cluster(&self) -> bool {
        self.in_cluster
    }

    /// True when this process works on another node by now.
    pub fn is_left(&self) -> bool {
        self.berth.as_ref().is_some_and(Berth::is_left)
    }

    /// Host and port of its server, where the address names several.
    pub fn place(&self) -> Option<String> {
        self.berth.as_ref()?.host.clone()
    }

    /// Packets sent since the last call.
    pub fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }

    /// True for MariaDB.
    pub(super) fn is_mariadb(&self) -> bool {
        self.server.is_mariadb
    }

    /// The statement that restores the session's own lock wait.
    pub(super) fn lock_wait(&self) -> String {
        self.lock_wait.clone()
    }

    /// The connection, for the next packet.
    pub(super) fn conn(&mut self) -> Result<&mut Conn, Failure> {
        self.sent += 1;
        self.uncounted()
    }

    /// The connection, for a statement that is prepared as a rule, or for a packet that nothing answers.
    fn uncounted(&mut self) -> Result<&mut Conn, Failure> {
        let closed = mysql_async::DriverError::ConnectionClosed;
        let closed = Failure::Driver(mysql_async::Error::Driver(closed));
        self.conn.as_mut().ok_or(closed)
    }

    /// Sends one statement without values, and returns how many rows it wrote.
    pub(super) async fn text(&mut self, sql: &str) -> Result<u64, Failure> {
        let written = self.text_unchecked(sql).await;
        match &written {
            Ok(_) if !ENDS.contains(&sql) => self.check_open()?,
            Ok(_) => self.is_open = self.has_open(),
            // A transaction that was rolled back to let another one through needs no end.
            Err(failure) if ENDS.contains(&sql) && failure.is_deadlock() => {
                self.is_open = false;
                if sql == ROLLBACK {
                    return Ok(0);
                }
            }
            Err(_) => {}
        }
        written
    }

    async fn text_unchecked(&mut self, sql: &str) -> Result<u64, Failure> {
        let answer = self.conn()?.query_iter(sql).await?;
        let written = answer.affected_rows();
        answer.drop_result().await?;
        Ok(written)
    }

    /// True where the last answer tells that a transaction is open.
    fn has_open(&self) -> bool {
        let told = self.conn.as_ref().and_then(Conn::last_ok_packet);
        told.is_some_and(|told| {
            told.status_flags()
                .contains(StatusFlags::SERVER_STATUS_IN_TRANS)
        })
    }

    /// Checks, after a statement that ends no transaction, that an open transaction is still open.
    ///
    /// RACE: a node of a cluster rolls the transaction back while it answers a read, and answers with success. The rest
    /// of the transaction would run, and be committed, alone. Proven by
    /// `a_transaction_that_the_server_undoes_without_saying_so_is_run_again_as_a_whole`, raced by
    /// `of_a_thousand_transactions_that_write_one_row_none_is_lost_or_partial`.
    fn check_open(&mut self) -> Result<(), Failure> {
        let was_open = self.is_open;
        self.is_open = self.has_open();
        match was_open && !self.is_open {
            true => Err(Failure::Undone),
            false => Ok(()),
        }
    }

    /// The same, while the session is being set up.
    async fn send(&mut self, sql: &str) -> Result<u64, Error> {
        self.text(sql).await.map_err(refused)
    }

    /// The first value of an answer.
    async fn first(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let asked = async {
            let row: Option<mysql_async::Row> = self.conn()?.query_first(sql).await?;
            Ok(row.and_then(|row| text_of(row.as_ref(0)?)))
        };
        asked.await.map_err(refused)
    }

    /// Names and values, from the rows of an answer.
    async fn variables(&mut self, sql: &str) -> Result<Told, Error> {
        let asked = async {
            let rows: Vec<mysql_async::Row> = self.conn()?.query(sql).await?;
            let pair = |row: &mysql_async::Row| {
                Some((
                    text_of(row.as_ref(0)?)?.to_lowercase(),
                    text_of(row.as_ref(1)?)?,
                ))
            };
            Ok(rows.iter().filter_map(pair).collect())
        };
        asked.await.map_err(refused)
    }

    /// Waits until this node of a cluster has everything that was committed at the others before. A node that has
    /// been cut off cannot do so: it fails, or does not answer until it knows that it is cut off.
    pub async fn catch_up(&mut self) -> Result<(), Failure> {
        // On a connection for reading, each read has waited already.
        let lags = self.in_cluster && !self.sees_all;
        let asked: &[&str] = match self.server.is_mariadb {
            _ if !lags => &[],
            true => &["SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1"],
            false => &[
                "SET SESSION wsrep_sync_wait = 1",
                "SELECT 1",
                "SET SESSION wsrep_sync_wait = 0",
            ],
        };
        for sql in asked {
            self.text(sql).await?;
        }
        Ok(())
    }

    /// Sends one statement with its values, prepared.
    async fn one(
        &mut self,
        sql: &str,
        values: Vec<Value>,
        answer: &mut Answer,
    ) -> Result<u64, Failure> {
        let params = match values.is_empty() {
            true => Params::Empty,
            false => Params::Positional(values),
        };
        let sql = self.server.words(sql);
        let prepared = self.uncounted()?.prep(sql.as_ref()).await?;
        let done = self.execute(&prepared, params).await;
        if done.is_err() {
            // MariaDB (10.11) crashes when it executes a prepared statement again that was interrupted while it
            // planned it: by KILL QUERY, or by another node's transaction
            // (`a_statement_that_failed_is_prepared_anew`). No answer is waited for.
            drop(self.uncounted()?.close(prepared).await);
        }
        let (rows, written) = done?;
        answer.rows.extend(rows.into_iter().map(Row::of));
        // A reading statement counts nothing.
        if !is_read(sql.as_ref()) {
            answer.written = written;
        }
        Ok(written)
    }

    /// The rows that a prepared statement returns, and how many it wrote.
    async fn execute(
        &mut self,
        prepared: &mysql_async::Statement,
        params: Params,
    ) -> Result<(Vec<mysql_async::Row>, u64), Failure> {
        let mut asked = self.conn()?.exec_iter(prepared, params).await?;
        let rows = asked.collect().await?;
        let written = asked.affected_rows();
        asked.drop_result().await?;
        self.check_open()?;
        Ok((rows, written))
    }

    /// Sends a request: its statements one after another, between the statements that begin and end
    /// the transaction, where these are to be sent with it. Stops at the first statement that fails.
    pub async fn ask(
        &mut self,
        bounds: [Option<&'static str>; 2],
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Answer, Failed> {
        match self.compounds && compound::is_fit(statement) {
            true => self.ask_at_once(bounds, statement, args).await,
            false => self.ask_in_turn(bounds, statement, args).await,
        }
    }

    async fn ask_in_turn(
        &mut self,
        [begin, end]: [Option<&'static str>; 2],
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Answer, Failed> {
        let mut answer = Answer::default();
        let first = begin.and_then(|begin| self.with_begin(begin, statement, args));
        let sent = usize::from(first.is_some());
        if let Some(first) = first {
            self.is_open = true;
            // A compound statement has only the count of its last part.
            answer.written = self.text(&first).await.map_err(Failed::before_end)?;
        } else if let Some(begin) = begin {
            self.script(begin).await.map_err(Failed::before_end)?;
            if !self.is_open {
                return Err(Failed::before_end(Failure::Undone));
            }
        }
        for (batch, rows) in batches(statement, args) {
            self.stage(batch, rows).await.map_err(Failed::before_end)?;
        }
        let values = value::parameters(statement, args);
        let (mut written, mut found) = (answer.written, 0);
        let parts = statement.parts(Dialect::Mysql);
        let asked = statement.rendered(Dialect::Mysql).asked.iter();
        for (at, asked) in asked.enumerate().skip(sent) {
            // A marked statement is always one of several. By itself, it is explained.
            if let Some(one) = parts.get(at)
                && inline::is_marked(asked.sql)
            {
                let text = &one.rendered(Dialect::Mysql).compound;
                let text = inline::filled(one, text, args);
                let text = self.server.words(&text).into_owned();
                written = self.text(&text).await.map_err(Failed::before_end)?;
                answer.written = written;
                continue;
            }
            let given: Vec<&Arg<'_>> = asked.given.iter().map(|index| values[*index]).collect();
            if let Some(counts) = asked.sql.trim_start().strip_prefix(WHOLE) {
                let wanted = wanted(counts, given.first().copied(), found);
                check_count(written, wanted).map_err(Failed::before_end)?;
                continue;
            }
            let sql = asked.typed.get_or_init(|| value::typed(asked.sql, &given));
            let given = given.into_iter().map(value::value).collect();
            let before = answer.rows.len();
            let run = self.one(sql, given, &mut answer).await;
            written = run.map_err(Failed::before_end)?;
            if is_read(sql) {
                found = (answer.rows.len() - before) as i64;
            }
        }
        if let Some(end) = end {
            self.script(end).await.map_err(Failed::at_end)?;
        }
        Ok(answer)
    }

    /// The first of several statements, together with the beginning of its transaction as one statement. This is
    /// possible where the first writes and the second reads.
    fn with_begin(&self, begin: &str, statement: &Statement, args: Args<'_>) -> Option<String> {
        let parts = statement.parts(Dialect::Mysql);
        let [first, second, ..] = parts.as_slice() else {
            return None;
        };
        let reads = |one: &Statement| is_read(one.sql(Dialect::Mysql));
        let is_fit = self.compounds && compound::writes(first) && reads(second);
        if !is_fit || !batches(first, args).is_empty() {
            return None;
        }
        let mut text = Compound::begin();
        text.set(first, args);
        text.then(begin);
        text.then(&first.rendered(Dialect::Mysql).compound);
        Some(text.end())
    }

    /// Sends everything as one statement. A long batch goes ahead of it.
    async fn ask_at_once(
        &mut self,
        [begin, end]: [Option<&'static str>; 2],
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Answer, Failed> {
        let staged = batches(statement, args);
        let mut text = Compound::begin();
        text.set(statement, args);
        let is_long = text.bytes() + compound::weight(args) > compound::LONGEST;
        for (batch, rows) in staged {
            match is_long {
                true => self.stage(batch, rows).await.map_err(Failed::before_end)?,
                false => text.stage(batch, rows),
            }
        }
        begin.into_iter().for_each(|begin| text.then(begin));
        self.is_open |= begin.is_some();
        text.run(statement, args, self.is_open);
        end.into_iter().for_each(|end| text.then(end));
        let text = text.end();
        let asked = match end {
            Some(_) => self.text_unchecked(&text).await,
            None => self.text(&text).await,
        };
        self.is_open &= end.is_none() || asked.is_err();
        match asked {
            // A compound statement has only the count of its last part; the parts check their own counts.
            Ok(_) => Ok(Answer::default()),
            Err(failure) if end.is_none() || self.has_left_open(&failure).await => {
                Err(Failed::before_end(failure))
            }
            Err(failure) => Err(Failed::at_end(failure)),
        }
    }

    /// True where a statement that was cut short has left its transaction open, so that it is known not to be committed.
    async fn has_left_open(&mut self, failure: &Failure) -> bool {
        let ask = "SELECT @@in_transaction";
        failure.is_cut_short() && matches!(self.first(ask).await, Ok(Some(open)) if open == "1")
    }

    /// Fills the table of a declared batch.
    async fn stage(&mut self, batch: &str, rows: &Rows<'_>) -> Result<(), Failure> {
        self.text(&compound::emptying(batch)).await?;
        if rows.len() == 0 {
            return Ok(());
        }
        // A server reads literals faster than JSON; a batch with long texts goes as a value.
        let written = match compound::weight_of(rows) <= compound::LONGEST {
            true => self.text(&compound::filling(batch, rows)).await?,
            false => {
                let json = vec![value::value(&Arg::Rows(rows))];
                self.one(&staging(batch), json, &mut Answer::default())
                    .await?
            }
        };
        check_count(written, rows.len() as i64)
    }

    /// Runs a text of several statements without parameters, one after another. `{bin}` in it stands for the
    /// collation that treats texts as equal exactly when their bytes are, and `{own}` for a word that no other
    /// session has.
    pub async fn script(&mut self, text: &str) -> Result<(), Failure> {
        let text = text.replace("{bin}", self.server.collation());
        let text = text.replace("{own}", &self.own);
        for one in script::statements(&text) {
            self.text(&one).await?;
            self.is_lock_wait_changed |=
                one.starts_with("SET SESSION") && one.contains("lock_wait_timeout");
            if self.is_lock_wait_changed && ENDS.contains(&one.as_str()) {
                let lock_wait = self.lock_wait.clone();
                self.text(&lock_wait).await?;
                self.is_lock_wait_changed = false;
            }
        }
        Ok(())
    }

    /// Changes the schema by one statement, which may have been run before.
    pub async fn change_schema(&mut self, one: &str) -> Result<(), Failure> {
        match self
            .text(&one.replace("{bin}", self.server.collation()))
            .await
        {
            Err(failure) if failure.is_done_already() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Makes the server parse a statement and resolve its names, without running it.
    #[cfg(feature = "internals")]
    pub async fn check(&mut self, asked: &'static [Request]) -> Result<(), Failure> {
        for one in asked {
            let sql = self.server.words(one.sql);
            let prepared = self.conn()?.prep(sql.as_ref()).await?;
            self.conn()?.close(prepared).await?;
        }
        Ok(())
    }

    /// Ends the connection politely.
    pub async fn close(mut self) -> Result<(), Failure> {
        match self.conn.take() {
            Some(conn) => Ok(conn.disconnect().await?),
            None => Ok(()),
        }
    }

    /// Ends the connection without a goodbye: it is in the middle of a request, or has gone silent.
    pub fn give_up(&mut self) {
        self.conn.take().into_iter().for_each(abandon);
    }
}

impl Drop for Mysql {
    /// On its own, the driver would read the rest of an answer, in a task of its own, and say goodbye; on a
    /// connection that has gone silent nothing arrives, and the socket would stay open.
    fn drop(&mut self) {
        self.give_up();
    }
}

/// True for a statement that writes nothing.
fn is_read(sql: &str) -> bool {
    sql.trim_start().starts_with("SELECT")
}

/// The batches of a statement that have a table of their own.
fn batches<'a>(statement: &Statement, args: Args<'a>) -> Vec<(&'static str, &'a Rows<'a>)> {
    let sql = statement.sql(Dialect::Mysql);
    let uses = |batch: &&str| sql.contains(&format!("{} ", staged(batch)));
    let used = batch::NAMES.into_iter().filter(uses);
    let rows = used.filter_map(|batch| {
        let (_, arg) = args.iter().find(|(name, _)| *name == batch)?;
        match arg {
            Arg::Rows(rows) => Some((batch, *rows)),
            _ => None,
        }
    });
    rows.collect()
}

fn check_count(written: u64, wanted: i64) -> Result<(), Failure> {
    let written = i64::try_from(written).unwrap_or(i64::MAX);
    match wanted == written {
        true => Ok(()),
        false => Err(Failure::Count { wanted, written }),
    }
}

/// The number of rows that the statement before a check of counts must have written: a parameter, the number of rows
/// that the last read has found, or a number in the text of the check.
fn wanted(counts: &str, given: Option<&Arg<'_>>, found: i64) -> i64 {
    let (_, wanted) = counts.rsplit_once("<> ").expect("a check compares two");
    match (given, wanted.trim_end().strip_suffix(')')) {
        (Some(&Arg::Int(Some(wanted))), Some("?")) => wanted,
        (None, Some("FOUND_ROWS()")) => found,
        (None, Some(wanted)) => wanted.parse().expect("a number of rows"),
        _ => panic!("a check of counts knows no number: {counts}"),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A connection that cannot be opened is unavailable, for any reason: a server that is starting says so in many
/// ways.
fn refused(failure: Failure) -> Error {
    Error::unavailable(Source::Mysql(failure))
}

async fn handshake(
    address: &Address,
    host: Option<&Host>,
    patience: Patience,
) -> Result<Conn, Error> {
    if let Some(unread) = address.tls.unread() {
        return Err(refused(Failure::File(unread)));
    }
    let failed = match Conn::new(options(address, host, patience, None)).await {
        Ok(conn) => return Ok(conn),
        Err(error) => error,
    };
    let Some(name) = certified(&failed).filter(|_| address.tls.mode == Mode::VerifyCa) else {
        return Err(configured(failed));
    };
    // Only the authority counts here. The driver would check the name as well, so it is told to expect a name
    // that the certificate is for.
    let again = Conn::new(options(address, host, patience, Some(name))).await;
    again.map_err(configured)
}

/// Waiting does not help when files of the configuration do not exist or are empty.
fn configured(error: mysql_async::Error) -> Error {
    match &error {
        mysql_async::Error::Driver(mysql_async::DriverError::NoKeyFound) => Error::Configured(
            "the file of ssl-key in `database.url` holds no private key".to_owned(),
        ),
        // The answer is not the greeting of a MySQL server.
        mysql_async::Error::Io(mysql_async::IoError::Io(io))
            if io.to_string().starts_with("Packet") =>
        {
            let other = std::io::Error::other("the program there is not a MySQL server");
            refused(Failure::Driver(mysql_async::Error::Io(other.into())))
        }
        _ => refused(Failure::Driver(error)),
    }
}

/// The first name that a certificate is for, when it is not for the requested host.
fn certified(error: &mysql_async::Error) -> Option<String> {
    use rustls::{CertificateError, Error as Tls};
    let tls = match error {
        mysql_async::Error::Io(mysql_async::IoError::Tls(mysql_async::TlsError::Tls(tls))) => tls,
        mysql_async::Error::Io(mysql_async::IoError::Io(error)) => {
            error.get_ref()?.downcast_ref::<Tls>()?
        }
        _ => return None,
    };
    let Tls::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) = tls
    else {
        return None;
    };
    let named = presented.iter().find_map(|name| {
        let dns = name
            .strip_prefix("DnsName(\"")
            .and_then(|name| name.strip_suffix("\")"));
        let ip = name
            .strip_prefix("IpAddress(")
            .and_then(|name| name.strip_suffix(')'));
        dns.or(ip)
    })?;
    // A wildcard certificate is for one of the domain's names.
    Some(named.replacen('*', "any", 1))
}

fn options(
    address: &Address,
    host: Option<&Host>,
    patience: Patience,
    name: Option<String>,
) -> Opts {
    let builder = OptsBuilder::default()
        .user(Some(&address.user))
        .pass(address.password.0.clone())
        .db_name(Some(&address.database))
        .prefer_socket(false)
        .stmt_cache_size(PREPARED)
        .client_found_rows(true)
        .tcp_keepalive(Some(patience.silence / 2))
        .tcp_nodelay(true)
        .ssl_opts(tls(address, name));
    let builder = match host {
        Some(host) => builder.ip_or_hostname(&host.name).tcp_port(host.port),
        None => builder.socket(address.socket.as_deref()),
    };
    builder.into()
}

fn tls(address: &Address, name: Option<String>) -> Option<SslOpts> {
    let tls = &address.tls;
    if tls.mode == Mode::Disabled {
        return None;
    }
    let authorities = tls.authorities.iter().map(|file| file.clone().into());
    let identity = tls.identity.clone();
    let identity =
        identity.map(|(certificate, key)| ClientIdentity::new(certificate.into(), key.into()));
    let options = SslOpts::default()
        .with_disable_built_in_roots(tls.authorities.is_some())
        .with_root_certs(authorities.collect())
        .with_client_identity(identity)
        .with_danger_accept_invalid_certs(tls.mode == Mode::Required)
        .with_danger_tls_hostname_override(name);
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::statement::Statement;

    /// MySQL, where each statement is a request of its own, checks counts here, and MariaDB checks them itself.
    #[test]
    fn the_number_of_rows_that_a_check_wants_is_a_parameter_a_read_or_its_own() {
        static PARAMETER: Statement = Statement::new("PARAMETER", "{whole:ROW_COUNT();:all}");
        static READ: Statement = Statement::new("READ", "{whole:ROW_COUNT();FOUND_ROWS()}");
        static OWN: Statement = Statement::new("OWN", "{whole:ROW_COUNT();1}");
        let given = Arg::Int(Some(7));
        for (check, given, wants) in [
            (&PARAMETER, Some(&given), 7),
            (&READ, None, 3),
            (&OWN, None, 1),
        ] {
            let sql = check.sql(Dialect::Mysql);
            let counts = sql.trim_start().strip_prefix(WHOLE).expect("a check");
            assert_eq!(wanted(counts, given, 3), wants, "{sql}");
        }
    }
}
