//! The session that the engine relies on.
//!
//! Owns: the settings of a session, the variables that are read back, and the servers that are refused, each with
//! one clear error. Never: sends anything (`connection`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use super::error::Failure;
use crate::store::batch::{self, Kind};
use crate::store::conn::Purpose;
use crate::store::error::{Error, Source};
use crate::store::patience::Patience;

/// The oldest servers that have everything that the statements need: SKIP LOCKED, JSON_TABLE, and checks that are
/// enforced.
const MARIADB_MIN: (u16, u16, u16) = (10, 6, 0);
const MYSQL_MIN: (u16, u16, u16) = (8, 0, 19);

/// The packet size that a server must accept for values of this size: a row has up to two values, and each quote of a
/// JSON text takes two characters when rows go to the server as JSON. With a smaller limit, a worker may have a result
/// that it can never commit.
pub const fn packet_for(value: u64) -> u64 {
    value.saturating_mul(IN_PACKET)
}

/// The largest value that fits in this packet.
pub const fn largest_in(packet: u64) -> u64 {
    packet / IN_PACKET
}

const IN_PACKET: u64 = 4;

/// The packet for the largest value that a step may return by default.
const PACKET_MIN: u64 = packet_for(16 << 20);

/// With smaller pages an index takes no key of 3,072 bytes.
const PAGE_MIN: u64 = 16 << 10;

/// Nothing is cut off, in any mode of the server; and the words of the standard have their standard meaning.
pub const SQL_MODE: &str = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY,\
                        PIPES_AS_CONCAT,ANSI_QUOTES";

/// A client that vanished or hangs must not hold its locks for long: the recovery of its process waits for them.
/// Between two statements, our code only decides.
const IDLE_IN_TRANSACTION: u64 = 10;

/// MySQL has no such limit, but ends a session that is silent for this long. A lifeline is never silent for so
/// long.
const IDLE_ON_MYSQL: u64 = 60;

/// The kind of the server, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// True for MariaDB, false for MySQL.
    pub is_mariadb: bool,
    /// Its version.
    pub version: (u16, u16, u16),
}

impl Server {
    /// Parsed from the version that the server reports: `10.11.19-MariaDB-…`, `8.0.44`.
    pub fn told(version: &str) -> Option<Self> {
        let is_mariadb = version.contains("MariaDB");
        // Some servers add this prefix for clients that would not understand a version above 5.
        let version = version.strip_prefix("5.5.5-").unwrap_or(version);
        let digits = version.split(|char: char| !char.is_ascii_digit() && char != '.');
        let mut parts = digits.take(1).flat_map(|it| it.split('.')).map(str::parse);
        let mut next = || parts.next()?.ok();
        let version = (next()?, next()?, next()?);
        Some(Self {
            is_mariadb,
            version,
        })
    }

    /// The collation that treats texts as equal exactly when their bytes are.
    pub fn collation(self) -> &'static str {
        match self.is_mariadb {
            true => "utf8mb4_nopad_bin",
            false => "utf8mb4_0900_bin",
        }
    }

    /// A statement in the words of this server: each kind of server has its own name for the
    /// collation.
    pub fn words(self, sql: &str) -> Cow<'_, str> {
        match self.is_mariadb {
            true => Cow::Borrowed(sql),
            false => Cow::Owned(sql.replace("utf8mb4_nopad_bin", self.collation())),
        }
    }

    fn name(self) -> &'static str {
        match self.is_mariadb {
            true => "MariaDB",
            false => "MySQL",
        }
    }

    /// Refuses a server that is too old.
    pub fn check(self) -> Result<(), Error> {
        let oldest = match self.is_mariadb {
            true => MARIADB_MIN,
            false => MYSQL_MIN,
        };
        if self.version >= oldest {
            return Ok(());
        }
        let dotted = |(major, minor, patch): (u16, u16, u16)| format!("{major}.{minor}.{patch}");
        Err(Error::Configured(format!(
            "the server is {0} {1}, and lacks what ductworkd needs: {0} {2} or newer",
            self.name(),
            dotted(self.version),
            dotted(oldest)
        )))
    }
}

/// Whole seconds, at least one: a server knows no smaller unit.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0).max(u64::from(time.is_zero()))
}

/// How long a lock is waited for by default.
const LOCK: Duration = Duration::from_secs(10);

/// Lets the session wait for a lock as long as the connection does.
pub fn lock_wait(patience: Patience) -> String {
    let wait = seconds(patience.lock.unwrap_or(LOCK));
    format!("SET SESSION lock_wait_timeout = {wait}, innodb_lock_wait_timeout = {wait}")
}

/// The settings of a session, one statement each.
pub fn settings(
    server: Server,
    purpose: Purpose,
    patience: Patience,
    in_cluster: bool,
) -> Vec<String> {
    let collation = server.collation();
    let silence = seconds(patience.silence);
    let mut sent = vec![
        format!("SET NAMES utf8mb4 COLLATE {collation}"),
        format!(
            "SET SESSION sql_mode = '{SQL_MODE}', lc_messages = 'en_US', autocommit = 1, completion_type = 'NO_CHAIN', \
             group_concat_max_len = 4294967295, foreign_key_checks = 1, unique_checks = 1, \
             default_storage_engine = 'InnoDB', sql_safe_updates = 0, sql_select_limit = 18446744073709551615, sql_big_selects = 1, \
             net_read_timeout = {silence}, net_write_timeout = {silence}"
        ),
        lock_wait(patience),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        match purpose {
            Purpose::Page => "SET SESSION TRANSACTION READ ONLY".to_owned(),
            _ => "SET SESSION TRANSACTION READ WRITE".to_owned(),
        },
    ];
    let statement = patience.statement;
    sent.push(match server.is_mariadb {
        true => format!(
            "SET SESSION idle_transaction_timeout = {IDLE_IN_TRANSACTION}, wait_timeout = 31536000, \
             max_statement_time = {}, max_recursive_iterations = 4294967295",
            statement.map_or(0.0, |time| time.as_secs_f64())
        ),
        false => format!(
            "SET SESSION wait_timeout = {IDLE_ON_MYSQL}, max_execution_time = {}, \
             cte_max_recursion_depth = 4294967295",
            statement.map_or(0, |time| time.as_millis())
        ),
    });
    if in_cluster {
        let waits = u8::from(sees_all(purpose));
        sent.push(format!("SET SESSION wsrep_sync_wait = {waits}"));
    }
    sent
}

/// True where each read sees everything committed at other nodes before: for people, and for their programs.
pub fn sees_all(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Query | Purpose::Look | Purpose::Page)
}

/// The temporary tables of the declared batches, which no other session sees. A batch is written before it is read, so
/// rows that a rolled back transaction leaves in one do no harm. That is why MariaDB's tables use Aria: it empties
/// them at once, where InnoDB marks each row as deleted, and every statement of a commit scans the rows of earlier
/// ones.
pub fn staging(server: Server, told: &Told) -> impl Iterator<Item = String> {
    let collation = server.collation();
    let engine = match server.is_mariadb && get(told, "enforce_storage_engine").is_empty() {
        true => "Aria TRANSACTIONAL=0 ROW_FORMAT=DYNAMIC",
        false => "InnoDB",
    };
    batch::NAMES.into_iter().map(move |name| {
        let columns = batch::columns(name);
        let (key, _) = columns[0];
        let column = |(name, kind): &batch::Declared| {
            let kind = match kind {
                Kind::Id => "binary(16)".to_owned(),
                Kind::Text => format!("longtext CHARACTER SET utf8mb4 COLLATE {collation}"),
                Kind::Int => "bigint".to_owned(),
            };
            format!("{name} {kind}")
        };
        let columns: Vec<String> = columns.iter().map(column).collect();
        format!(
            "CREATE TEMPORARY TABLE ductwork_{name} ({}, PRIMARY KEY ({key})) ENGINE={engine}",
            columns.join(", ")
        )
    })
}

/// The variables that are read back.
pub const READ_BACK: &str = "
    SHOW SESSION VARIABLES WHERE Variable_name IN
        ('tx_isolation', 'transaction_isolation', 'sql_mode', 'character_set_client', 'character_set_results',
         'collation_connection', 'innodb_lock_wait_timeout', 'max_allowed_packet', 'binlog_format', 'log_bin',
         'autocommit', 'idle_transaction_timeout', 'read_only', 'innodb_page_size', 'enforce_storage_engine',
         'wsrep_on', 'wsrep_provider', 'wsrep_desync', 'wsrep_max_ws_rows', 'wsrep_max_ws_size')";

/// The state of a node.
pub const CLUSTER: &str = "
    SHOW GLOBAL STATUS WHERE Variable_name IN
        ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_local_state_comment')";

/// Variables by name, in lower case.
pub type Told = HashMap<String, String>;

fn get<'a>(told: &'a Told, name: &str) -> &'a str {
    told.get(name).map_or("", String::as_str)
}

/// True for a node of a cluster.
pub fn is_in_cluster(told: &Told) -> bool {
    get(told, "wsrep_on") == "ON"
}

/// True for a server that would be a node of a cluster if its `wsrep_on` were on.
pub fn may_be_in_cluster(told: &Told) -> bool {
    !matches!(get(told, "wsrep_provider"), "" | "none") && !is_in_cluster(told)
}

/// Refuses a node whose `wsrep_on` was turned off while it is in its cluster: no other node learns of the writes
/// there, and the cluster's work is done there a second time. A server that was started without it has no cluster.
pub fn check_alone(status: &Told) -> Result<(), Error> {
    match get(status, "wsrep_cluster_status") {
        "Primary" => Err(unavailable(
            "the node is in a cluster, and its wsrep_on is off: no other node receives what is written there".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn unavailable(text: String) -> Error {
    Error::unavailable(Source::Mysql(Failure::Node(text)))
}

/// The limits of a transaction's rows and bytes that a node has if nobody has set another.
const LIMITS: [(&str, &str); 2] = [
    ("wsrep_max_ws_rows", "0"),
    ("wsrep_max_ws_size", "2147483647"),
];

/// Refuses a node that limits the rows or the bytes of a transaction: with any other limit it refuses each UPDATE that
/// names two tables, as that of a batch does.
pub fn check_limit(told: &Told) -> Result<(), Error> {
    for (name, unlimited) in LIMITS {
        let limit = get(told, name);
        if !limit.is_empty() && limit != unlimited {
            return Err(unavailable(format!(
                "the node's {name} is {limit}, with which it refuses to write batches"
            )));
        }
    }
    Ok(())
}

/// Refuses a node that its cluster has left behind, or is about to leave behind.
pub fn check_node(status: &Told) -> Result<(), Error> {
    let state = get(status, "wsrep_local_state_comment");
    let cluster = get(status, "wsrep_cluster_status");
    if get(status, "wsrep_ready") != "ON" || cluster != "Primary" {
        return Err(unavailable(format!(
            "the node is not part of its cluster's majority (it is {state}, and its cluster {cluster})"
        )));
    }
    match state {
        "Synced" => Ok(()),
        _ => Err(unavailable(format!("the node is {state}, and not Synced"))),
    }
}

/// Refuses a session whose settings are not those that were set, and a server on which no session
/// would work.
pub fn check(told: &Told, server: Server, patience: Patience) -> Result<(), Error> {
    let isolation = match told.get("tx_isolation") {
        Some(isolation) => isolation,
        None => get(told, "transaction_isolation"),
    };
    let wait = seconds(patience.lock.unwrap_or(LOCK)).to_string();
    let mode = get(told, "sql_mode");
    let modes = |text: &str| {
        let mut words: Vec<String> = text.split(',').map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    let idle = match server.is_mariadb {
        true => get(told, "idle_transaction_timeout"),
        false => "10",
    };
    for (name, is, wanted) in [
        ("transaction_isolation", isolation, "READ-COMMITTED"),
        (
            "character_set_client",
            get(told, "character_set_client"),
            "utf8mb4",
        ),
        (
            "character_set_results",
            get(told, "character_set_results"),
            "utf8mb4",
        ),
        (
            "collation_connection",
            get(told, "collation_connection"),
            server.collation(),
        ),
        (
            "innodb_lock_wait_timeout",
            get(told, "innodb_lock_wait_timeout"),
            &wait,
        ),
        ("idle_transaction_timeout", idle, "10"),
        ("autocommit", get(told, "autocommit"), "ON"),
    ] {
        if is != wanted {
            return Err(unset(name, wanted, is));
        }
    }
    if modes(mode) != modes(SQL_MODE) {
        return Err(unset("sql_mode", SQL_MODE, mode));
    }
    if get(told, "log_bin") == "ON" && get(told, "binlog_format") == "STATEMENT" {
        return Err(Error::Configured(
            "the server has binlog_format=STATEMENT, with which it refuses READ COMMITTED: set it to ROW".to_owned(),
        ));
    }
    let packet: u64 = get(told, "max_allowed_packet").parse().unwrap_or(0);
    if packet < PACKET_MIN {
        return Err(Error::Configured(format!(
            "the server has max_allowed_packet={packet}, with which two of the largest values that steps may return do not \
             go to it together: set it to {PACKET_MIN} (64M) or more, in its configuration, or until its next start by SET \
             GLOBAL max_allowed_packet = {PACKET_MIN}"
        )));
    }
    let page: u64 = get(told, "innodb_page_size").parse().unwrap_or(0);
    if page < PAGE_MIN {
        return Err(Error::Configured(format!(
            "the server has innodb_page_size={page}, with which its keys are too short for those of the schema: a server \
             with {PAGE_MIN} or more is needed, and the size is chosen when its data directory is made"
        )));
    }
    Ok(())
}

/// Refuses a server that takes no writes, to connections that write. The others only read from it, and
/// may report that.
pub fn check_writable(told: &Told, purpose: Purpose) -> Result<(), Error> {
    match (get(told, "read_only"), purpose) {
        ("OFF" | "0", _) | (_, Purpose::Query | Purpose::Look | Purpose::Page) => Ok(()),
        _ => Err(unavailable(
            "the server takes no writes: its read_only is on".to_owned(),
        )),
    }
}

fn unset(name: &str, wanted: &str, is: &str) -> Error {
    Error::Configured(format!(
        "{name} was set to {wanted}, and is {is}: something between ductworkd and the server does not keep the \
         settings of a session; let `database.url` lead to the server itself"
    ))
}

/// The session after a transaction's end is not the one from before it.
pub fn pooled() -> Error {
    Error::Configured(
        "a connection pooler stands before the server, and gives every transaction another session; let \
         `database.url` lead to the server itself (each process needs two connections)"
            .to_owned(),
    )
}

/// No answer tells whether a transaction is open.
pub fn flagless() -> Error {
    Error::Configured(
        "something stands before the server, and hides from its answers whether a transaction is open; let \
         `database.url` lead to the server itself"
            .to_owned(),
    )
}

/// The server counts something else than the rows that match.
pub fn counts_changes() -> Error {
    Error::Configured(
        "something between ductworkd and the server does not pass on that rows are counted that a statement \
         finds (CLIENT_FOUND_ROWS); let `database.url` lead to the server itself"
            .to_owned(),
    )
}

/// A table of ours, or every new one, uses another engine than InnoDB.
pub fn wrong_engine(what: &str) -> Error {
    Error::Configured(format!(
        "{what}: without InnoDB there are no transactions; let the server have it, and give a table back by \
         ALTER TABLE … ENGINE=InnoDB"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        Server::told(text).expect(text)
    }

    #[test]
    fn a_server_is_known_by_its_version() {
        for (text, is_mariadb, version) in [
            ("10.11.19-MariaDB-0+deb12u1", true, (10, 11, 19)),
            ("5.5.5-10.6.4-MariaDB-log", true, (10, 6, 4)),
            ("8.0.44", false, (8, 0, 44)),
            ("9.7.4-2", false, (9, 7, 4)),
        ] {
            assert_eq!(
                server(text),
                Server {
                    is_mariadb,
                    version
                },
                "{text}"
            );
        }
        assert_eq!(Server::told("TiDB"), None);
        for (text, is_fit) in [
            ("10.6.0-MariaDB", true),
            ("10.5.29-MariaDB", false),
            ("8.0.19", true),
            ("8.0.18", false),
            ("5.7.44", false),
        ] {
            assert_eq!(server(text).check().is_ok(), is_fit, "{text}");
        }
    }

    fn told(changes: &[(&str, &str)]) -> Told {
        let mut told: Told = [
            ("tx_isolation", "READ-COMMITTED"),
            ("sql_mode", "PIPES_AS_CONCAT,ANSI_QUOTES,ONLY_FULL_GROUP_BY,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"),
            ("character_set_client", "utf8mb4"),
            ("character_set_results", "utf8mb4"),
            ("collation_connection", "utf8mb4_nopad_bin"),
            ("innodb_lock_wait_timeout", "3"),
            ("max_allowed_packet", "67108864"),
            ("binlog_format", "MIXED"),
            ("log_bin", "OFF"),
            ("autocommit", "ON"),
            ("idle_transaction_timeout", "10"),
            ("read_only", "OFF"),
            ("innodb_page_size", "16384"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        for (name, value) in changes {
            told.insert((*name).to_owned(), (*value).to_owned());
        }
        told
    }

    /// Without this check, a proxy that drops settings that it does not know would show only in a
    /// wrong run.
    #[test]
    fn a_session_that_is_not_what_was_set_is_refused() {
        let server = server("10.11.19-MariaDB");
        let patience = Patience::of(Purpose::Engine, Duration::from_secs(30));
        let check = |changes: &[(&str, &str)]| check(&told(changes), server, patience);
        assert!(check(&[]).is_ok());
        for (name, value, says) in [
            (
                "tx_isolation",
                "REPEATABLE-READ",
                "transaction_isolation was set to READ-COMMITTED",
            ),
            ("sql_mode", "STRICT_TRANS_TABLES", "sql_mode was set to"),
            (
                "collation_connection",
                "utf8mb4_general_ci",
                "collation_connection was set to utf8mb4_nopad_bin",
            ),
            (
                "character_set_results",
                "latin1",
                "character_set_results was set to utf8mb4",
            ),
            (
                "innodb_lock_wait_timeout",
                "50",
                "innodb_lock_wait_timeout was set to 3, and is 50",
            ),
            (
                "idle_transaction_timeout",
                "0",
                "idle_transaction_timeout was set to 10",
            ),
            ("autocommit", "OFF", "autocommit was set to ON"),
            (
                "max_allowed_packet",
                "16777216",
                "max_allowed_packet=16777216",
            ),
            ("innodb_page_size", "8192", "innodb_page_size=8192"),
        ] {
            match check(&[(name, value)]) {
                Err(Error::Configured(text)) => assert!(text.contains(says), "{name}: {text}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        let statement = check(&[("log_bin", "ON"), ("binlog_format", "STATEMENT")]);
        assert!(
            matches!(statement, Err(Error::Configured(text)) if text.contains("binlog_format"))
        );
    }

    #[test]
    fn a_server_that_takes_no_writes_is_refused_where_something_is_to_be_written() {
        for (purpose, writes) in [
            (Purpose::Engine, true),
            (Purpose::Bulk, true),
            (Purpose::Lifeline, true),
            (Purpose::Query, false),
            (Purpose::Look, false),
            (Purpose::Page, false),
        ] {
            assert!(check_writable(&told(&[]), purpose).is_ok());
            for is_on in ["ON", "1", "NO_LOCK"] {
                let refused = check_writable(&told(&[("read_only", is_on)]), purpose);
                let refused = refused.is_err_and(|error| error.is_unavailable());
                assert_eq!(refused, writes, "{purpose:?} {is_on}");
            }
        }
    }

    #[test]
    fn a_node_that_is_not_synced_is_unavailable() {
        let node = |ready: &str, cluster: &str, state: &str| {
            let told = [
                ("wsrep_ready", ready),
                ("wsrep_cluster_status", cluster),
                ("wsrep_local_state_comment", state),
            ];
            let told = told
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
            check_node(&told.collect())
        };
        assert!(node("ON", "Primary", "Synced").is_ok());
        for (ready, cluster, state) in [
            ("OFF", "Primary", "Synced"),
            ("ON", "non-Primary", "Synced"),
            ("ON", "Primary", "Donor/Desynced"),
            ("ON", "Primary", "Joined"),
            ("OFF", "non-Primary", "Initialized"),
        ] {
            let error = node(ready, cluster, state).expect_err(state);
            assert!(error.is_unavailable(), "{state}: {error}");
        }
    }

    #[test]
    fn a_node_that_tells_its_cluster_nothing_is_unavailable() {
        let told = |name: &str, value: &str| Told::from([(name.to_owned(), value.to_owned())]);
        for (provider, may) in [("", false), ("none", false), ("/usr/lib/galera.so", true)] {
            assert_eq!(may_be_in_cluster(&told("wsrep_provider", provider)), may);
        }
        let refused = check_alone(&told("wsrep_cluster_status", "Primary"));
        assert!(refused.is_err_and(|error| error.is_unavailable()));
        assert!(check_alone(&told("wsrep_cluster_status", "Disconnected")).is_ok());
    }

    #[test]
    fn a_lock_is_waited_for_in_whole_seconds_and_never_for_none() {
        for (time, is) in [(0, 1), (1, 1), (500, 1), (1_000, 1), (1_001, 2), (2_500, 3)] {
            assert_eq!(seconds(Duration::from_millis(time)), is, "{time} ms");
        }
    }
}
