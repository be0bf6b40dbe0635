//! A connection to PostgreSQL.
//!
//! Owns: connecting with the settings that the engine relies on, running a statement with its
//! arguments, its rows, notifications. Never: knows the purpose of a statement, or the meaning of
//! its error (`store::error`).

use std::time::{Duration, Instant};

use sqlx::postgres::{PgArguments, PgConnectOptions, PgListener, PgPoolOptions, PgRow};
use sqlx::{Arguments, ConnectOptions, Connection, Executor, PgConnection, Row as _};

use super::servers::{Chosen, ServerRef, Servers};
use crate::store::backend::abandon;
use crate::store::conn::Purpose;
use crate::store::dialect::Dialect;
use crate::store::error::{Error, Source};
use crate::store::patience::Patience;
use crate::store::statement::{Arg, Args, Column, Statement, find};

/// The number of the schema in which a session finds our tables, or an empty text.
macro_rules! schema {
    () => {
        "coalesce((SELECT relnamespace::text FROM pg_class WHERE oid = to_regclass('ductwork_processes')), '')"
    };
}

/// A connection. One that receives notifications is of another type in the driver, and so in every
/// function here.
pub enum Postgres {
    /// It receives none.
    Plain(PgConnection),
    /// It receives those of one channel.
    Listener(Box<Listener>),
}

impl Postgres {
    /// Connects to the right server, within this time; where there are several, the `ServerRef` says
    /// which one.
    ///
    /// # Errors
    /// `Configured` when the server cannot be used as it is, `Unavailable` in all other cases.
    pub async fn connect(
        servers: &Servers,
        purpose: Purpose,
        patience: Patience,
        within: Duration,
    ) -> Result<(Self, Option<ServerRef>), Error> {
        let configured = |options: &PgConnectOptions| configured(options, purpose, patience);
        let Some(only) = servers.only() else {
            let chosen = servers.choose(configured, purpose, within).await?;
            return Ok((Self::Plain(chosen.conn), Some(chosen.server)));
        };
        let options = configured(only);
        let attempt = async {
            let mut conn = PgConnection::connect_with(&options).await?;
            settings_arrived(&mut conn).await?;
            Ok(Self::Plain(conn))
        };
        Ok((bounded(attempt, within).await?, None))
    }

    /// Connects for the engine, and listens.
    ///
    /// # Errors
    /// As for [`Postgres::connect`].
    pub async fn listen(
        servers: &Servers,
        channel: &str,
        patience: Patience,
        within: Duration,
    ) -> Result<(Self, Option<ServerRef>), Error> {
        let purpose = Purpose::Lifeline;
        let configured = |options: &PgConnectOptions| configured(options, purpose, patience);
        let Some(only) = servers.only() else {
            let until = Instant::now() + within;
            // The listener opens a connection of its own, on which the server is checked again.
            let Chosen { server, conn } = servers.choose(configured, purpose, within).await?;
            drop(conn);
            let options = configured(servers.options(&server));
            let within = until.saturating_duration_since(Instant::now());
            let mut conn = Self::listener(options, channel, within).await?;
            if let Self::Listener(listener) = &mut conn {
                let confirmed = servers.confirm(&server, listener.get(), purpose);
                let confirmed = tokio::time::timeout_at(until.into(), confirmed).await;
                confirmed.map_err(|_| Error::too_late(within))??;
            }
            return Ok((conn, Some(server)));
        };
        let listener = Self::listener(configured(only), channel, within).await?;
        Ok((listener, None))
    }

    async fn listener(
        options: PgConnectOptions,
        channel: &str,
        within: Duration,
    ) -> Result<Self, Error> {
        let attempt = async {
            // The listener needs a pool; this one has one connection, which is the listener's.
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(within.saturating_sub(ASKED_WITHIN))
                // Our own lines report a database that is slow to connect to.
                .acquire_slow_threshold(Duration::MAX)
                .idle_timeout(None)
                .max_lifetime(None)
                .connect_with(options.clone())
                .await;
            let pool = match pool {
                // The pool has tried again and again, and does not report the server's answer.
                Err(sqlx::Error::PoolTimedOut) => {
                    let refused = PgConnection::connect_with(&options).await.err();
                    return Err(refused.unwrap_or(sqlx::Error::PoolTimedOut));
                }
                pool => pool?,
            };
            let mut listener = Listener {
                driver: Some(PgListener::connect_with(&pool).await?),
                schema: String::new(),
            };
            let heard = listener.get();
            // A lost connection must be noticed, and everything looked at anew (D8).
            heard.eager_reconnect(false);
            settings_arrived(&mut *heard).await?;
            const ASK: &str = concat!("SELECT ", schema!());
            let schema = heard.fetch_one(sqlx::raw_sql(ASK)).await?;
            heard.listen(channel).await?;
            listener.schema = schema.try_get_unchecked(0)?;
            Ok(Self::Listener(Box::new(listener)))
        };
        bounded(attempt, within).await
    }

    /// Runs a statement, and returns how many rows it wrote.
    pub async fn execute(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<u64, sqlx::Error> {
        let query = sqlx::query_with(statement.sql(Dialect::Postgres), arguments(statement, args));
        let done = match self {
            Self::Plain(conn) => query.execute(conn).await,
            Self::Listener(conn) => conn.get().execute(query).await,
        };
        done.map(|done| done.rows_affected())
    }

    /// Runs a statement, and returns its rows.
    pub async fn fetch(
        &mut self,
        statement: &Statement,
        args: Args<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = sqlx::query_with(statement.sql(Dialect::Postgres), arguments(statement, args));
        match self {
            Self::Plain(conn) => query.fetch_all(conn).await,
            Self::Listener(conn) => conn.get().fetch_all(query).await,
        }
    }

    /// Runs text of several statements without parameters.
    pub async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        let script = sqlx::raw_sql(text);
        let done = match self {
            Self::Plain(conn) => script.execute(conn).await,
            Self::Listener(conn) => conn.get().execute(script).await,
        };
        done.map(drop)
    }

    /// Makes the server parse a statement and resolve its names, without running it.
    #[cfg(feature = "internals")]
    pub async fn check(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let sql = sqlx::SqlSafeStr::into_sql_str(sql);
        let prepared = match self {
            Self::Plain(conn) => conn.prepare(sql).await,
            Self::Listener(conn) => conn.get().prepare(sql).await,
        };
        prepared.map(drop)
    }

    /// Wakes the processes that listen to the channel and use the same tables.
    pub async fn notify(&mut self, channel: &str, payload: &str) -> Result<(), sqlx::Error> {
        const NOTIFY: &str = concat!("SELECT pg_notify($1, $2 || '@' || ", schema!(), ")");
        let query = sqlx::query(NOTIFY).bind(channel);
        let query = query.bind(payload);
        let done = match self {
            Self::Plain(conn) => query.execute(conn).await,
            Self::Listener(conn) => conn.get().execute(query).await,
        };
        done.map(drop)
    }

    /// Waits for the next notification, and returns its payload. Waits for ever on a connection
    /// that receives none.
    ///
    /// May be dropped while it waits: it reads only whole messages off a buffered stream.
    pub async fn notified(&mut self) -> Result<String, sqlx::Error> {
        let Self::Listener(listener) = self else {
            return std::future::pending().await;
        };
        loop {
            let Some(notification) = listener.get().try_recv().await? else {
                return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()));
            };
            if let Some(payload) = of_schema(notification.payload(), &listener.schema) {
                return Ok(payload.to_owned());
            }
        }
    }

    /// A notification that has already arrived.
    pub fn notified_already(&mut self) -> Option<String> {
        match self {
            Self::Plain(_) => None,
            Self::Listener(listener) => loop {
                let notification = listener.get().next_buffered()?;
                if let Some(payload) = of_schema(notification.payload(), &listener.schema) {
                    return Some(payload.to_owned());
                }
            },
        }
    }

    /// Ends the connection politely. A listener needs no goodbye.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Plain(conn) => conn.close().await,
            Self::Listener(_) => Ok(()),
        }
    }
}

/// The payload of a notification, unless it comes from a session that finds our tables in another schema: deployments in
/// one database share the channel. Older versions do not name theirs.
fn of_schema<'a>(payload: &'a str, own: &str) -> Option<&'a str> {
    match payload.rsplit_once('@') {
        Some((text, schema)) if schema.bytes().all(|byte| byte.is_ascii_digit()) => {
            (schema == own || schema.is_empty() || own.is_empty()).then_some(text)
        }
        _ => Some(payload),
    }
}

/// The driver's listener, which is abandoned when it is dropped.
pub struct Listener {
    driver: Option<PgListener>,
    schema: String,
}

impl Listener {
    fn get(&mut self) -> &mut PgListener {
        self.driver
            .as_mut()
            .expect("it is there until it is dropped")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.driver.take().into_iter().for_each(abandon);
    }
}

/// A connection attempt is the one future that may be dropped: it holds nothing yet.
async fn bounded(
    attempt: impl Future<Output = Result<Postgres, sqlx::Error>>,
    within: Duration,
) -> Result<Postgres, Error> {
    match tokio::time::timeout(within, attempt).await {
        Ok(connected) => connected.map_err(connect_error),
        Err(_) => Err(Error::too_late(within)),
    }
}

/// A pooler's sessions are not those of its clients: it refuses the settings that we begin with, or
/// drops them, and gives the next transaction to a session that knows none of our statements (D10).
const POOLER: &str = "a connection pooler stands before the PostgreSQL server, and settings and prepared \
                      statements do not pass it; let `database.url` lead to the server itself \
                      (each process needs two connections)";

/// The longest time that a server that has refused a connection may take to say why.
const ASKED_WITHIN: Duration = Duration::from_millis(500);

/// Reads one of the settings of every connection, without a prepared statement, and the database's encoding. Lifts a limit on idle
/// sessions: some of ours send nothing but a heartbeat. Servers before version 14 have no such limit.
pub(super) async fn settings_arrived<'c>(
    conn: impl Executor<'c, Database = sqlx::Postgres>,
) -> Result<(), sqlx::Error> {
    const ASK: &str = "
        SELECT current_setting('idle_in_transaction_session_timeout'),
               CASE WHEN current_setting('idle_session_timeout', true) IS NOT NULL
                    THEN set_config('idle_session_timeout', '0', false) END,
               current_setting('server_encoding')";
    let row = conn.fetch_one(sqlx::raw_sql(ASK)).await?;
    // Texts have characters that other encodings lack, and so have our own messages about errors. SQL_ASCII takes any.
    let encoding = row.try_get_unchecked::<String, _>(2)?;
    if !matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") {
        let text = format!(
            "the encoding of the database is {encoding}, which lacks characters that steps may print: create another \
             one with ENCODING 'UTF8'"
        );
        return Err(sqlx::Error::Configuration(text.into()));
    }
    match row.try_get_unchecked::<String, _>(0)?.as_str() {
        IDLE_TIMEOUT => Ok(()),
        _ => Err(sqlx::Error::Configuration(POOLER.into())),
    }
}

/// A client that vanished without a word, or hangs, must not hold its locks for long: the recovery
/// of its process waits for them. Between two statements, our code only decides.
const IDLE_TIMEOUT: &str = "10s";

/// A connection that cannot be opened is unavailable, for any reason: a server that is starting
/// says so in many ways. Wrong passwords and missing databases are told apart by their text, which
/// is shown.
pub(super) fn connect_error(error: sqlx::Error) -> Error {
    match error {
        sqlx::Error::Configuration(text) => Error::Configured(text.to_string()),
        sqlx::Error::Database(error) if error.message().contains("startup parameter") => {
            Error::Configured(format!("{POOLER}; it says: {}", error.message()))
        }
        error => Error::unavailable(Source::Postgres(error)),
    }
}

fn configured(
    options: &PgConnectOptions,
    purpose: Purpose,
    patience: Patience,
) -> PgConnectOptions {
    let ms = |time: Duration| time.as_millis().max(1).to_string();
    // Zero would mean the system's own value.
    let seconds = |time: Duration| time.as_secs().max(1).to_string();
    let bound = |time: Option<Duration>| time.map_or("0".to_owned(), ms);
    // A name from the address, or from PGAPPNAME, tells the sessions of several deployments apart.
    let name = options.get_application_name().unwrap_or("ductworkd");
    let options = options
        .clone()
        .application_name(name)
        .statement_cache_capacity(256)
        .disable_statement_logging()
        .options([("default_transaction_isolation", "read committed")])
        .options([("idle_in_transaction_session_timeout", IDLE_TIMEOUT)])
        .options([
            ("statement_timeout", bound(patience.statement)),
            ("lock_timeout", bound(patience.lock)),
            // The server is not told when a client becomes unreachable. With these settings it
            // probes the client, and ends the session, with its locks. For local sockets the
            // settings are accepted and do nothing.
            ("tcp_user_timeout", ms(patience.silence)),
            ("tcp_keepalives_idle", seconds(patience.silence / 2)),
            ("tcp_keepalives_interval", seconds(patience.silence / 6)),
            ("tcp_keepalives_count", "3".to_owned()),
        ]);
    let options = match purpose {
        Purpose::Page => options.options([("default_transaction_read_only", "on")]),
        _ => options,
    };
    match purpose {
        Purpose::Query | Purpose::Look => options,
        Purpose::Engine | Purpose::Bulk | Purpose::Lifeline | Purpose::Page => options.options([
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
            ("jit", "off"),
            // Planning costs more than running, and every plan is the same, by design. This does not hold
            // for a page: for a range of ids that covers all of them, a plan for any values expects next
            // to nothing.
            (
                "plan_cache_mode",
                match purpose {
                    Purpose::Page => "force_custom_plan",
                    _ => "force_generic_plan",
                },
            ),
            // With these settings a scan that cannot be avoided seems so expensive that workers for it
            // seem cheap; each of them is a process that has to be started.
            ("max_parallel_workers_per_gather", "0"),
        ]),
    }
}

fn arguments(statement: &Statement, args: Args<'_>) -> PgArguments {
    let mut to = PgArguments::default();
    for name in &statement.rendered(Dialect::Postgres).parameters {
        let added = match name.split_once('.') {
            Some((rows, column)) => {
                let Arg::Rows(rows) = find(statement, args, rows) else {
                    unreachable!("{name} of {} is rows", statement.name)
                };
                let column = rows.columns.iter().find(|(known, _)| *known == column);
                match &column.expect("rows have the fragment's columns").1 {
                    Column::Ids(values) => to.add(values),
                    Column::Texts(values) => to.add(values),
                    Column::Ints(values) => to.add(values),
                }
            }
            None => match find(statement, args, name) {
                Arg::Id(value) => to.add(value),
                Arg::Text(value) => to.add(value),
                Arg::Int(value) => to.add(value),
                Arg::Rows(_) => unreachable!("{name} of {} is a value", statement.name),
            },
        };
        added.expect("ids, texts and numbers can be encoded");
    }
    to
}

#[cfg(test)]
mod tests {
    use super::of_schema;

    #[test]
    fn a_notification_of_another_schema_is_not_heard() {
        assert_eq!(of_schema("boot:1:2:P@77", "77"), Some("boot:1:2:P"));
        assert_eq!(of_schema("boot:1:2:P@78", "77"), None);
        assert_eq!(of_schema("boot:1:2:@", "77"), Some("boot:1:2:"));
        assert_eq!(of_schema("boot:1:2:@77", ""), Some("boot:1:2:"));
        assert_eq!(
            of_schema("of another version", "77"),
            Some("of another version")
        );
        assert_eq!(of_schema("boot:1:2:P@Q", "77"), Some("boot:1:2:P@Q"));
    }
}
