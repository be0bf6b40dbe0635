//! The meaning of MySQL's and MariaDB's errors.
//!
//! Owns: the only table of the servers' error numbers. A number that is not in it is the program's
//! own mistake. Never: connects, or decides what follows from an error.

use mysql_async::DriverError::UnknownAuthPlugin;
use mysql_async::{Error as Driver, IoError, ServerError};

use super::super::{DriverError, UNREACHED};
use crate::store::blame::Blame;

/// Why a request was not answered as it should have been.
#[derive(Debug)]
pub enum Failure {
    /// An error of the driver, or of the server.
    Driver(Driver),
    /// A server that answers but cannot be used now: a node that its cluster has left behind, or
    /// one that takes no writes.
    Node(String),
    /// A file that the address names and that cannot be read.
    File(String),
    /// A right that the user lacks, and that the server does not name.
    Right(String),
    /// A write that did not write as many rows as it had to.
    Count {
        /// The required number of rows.
        wanted: i64,
        /// The number of rows that it wrote.
        written: i64,
    },
    /// A statement that was answered with success, although its transaction had been rolled back.
    Undone,
}

impl From<Driver> for Failure {
    fn from(error: Driver) -> Self {
        Self::Driver(error)
    }
}

impl Failure {
    fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Driver(Driver::Server(error)) => Some(error),
            _ => None,
        }
    }

    /// The server's error number; zero where it did not answer with an error.
    pub fn code(&self) -> u16 {
        self.server().map_or(0, |error| error.code)
    }
}

impl Failure {
    /// True where a write did not write as many rows as it had to: no other sum of ours can be out of range.
    pub fn is_count(&self) -> bool {
        matches!(self, Self::Count { .. }) || self.code() == 1690
    }

    /// True where the transaction was rolled back to let another one through.
    pub fn is_deadlock(&self) -> bool {
        matches!(self, Self::Undone) || self.code() == 1213
    }

    /// True where the user lacks a right.
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), 1044 | 1142 | 1143 | 1227 | 1370)
    }

    /// The same, for a temporary table that was to be created: the server names the user and the database, but not the
    /// right.
    pub fn of_temporary_table(self) -> Self {
        let told = self.server().filter(|error| error.code == 1044);
        let told = told.and_then(|error| {
            let (user, database) = error.message.split_once(" to database ")?;
            let user = user.rsplit_once("for user ")?.1;
            let database = database.trim_matches('\'');
            Some(format!(
                "the user has no right to CREATE TEMPORARY TABLES: GRANT CREATE TEMPORARY TABLES ON `{database}`.* TO {user}"
            ))
        });
        told.map_or(self, Self::Right)
    }

    /// True where a database could not be dropped because its directory still holds a file.
    pub fn is_not_empty(&self) -> bool {
        self.code() == 1010
    }

    /// True where the server, or the session, takes no writes.
    pub fn only_reads(&self) -> bool {
        matches!(self.code(), 1290 | 1792 | 1836)
    }

    /// True where a disk of the server is full.
    fn is_full(&self) -> bool {
        let is_told = |error: &ServerError| error.message.contains("No space left on device");
        match self.code() {
            20 | 1021 | 1114 => true,
            3 | 1004 | 1005 | 1026 | 1030 => self.server().is_some_and(is_told),
            _ => self.server().is_some_and(is_of_own_table),
        }
    }

    /// True where the server has no such table.
    pub fn is_unknown_table(&self) -> bool {
        matches!(self.code(), 1109 | 1146)
    }

    /// True when a change of the schema was made already: the table, the column, the index or the constraint
    /// exists already, or is already gone.
    pub fn is_done_already(&self) -> bool {
        matches!(self.code(), 1050 | 1060 | 1061 | 1091 | 1826 | 3822)
    }
}

/// The driver itself refuses what the server would refuse, with these words.
const TOO_LARGE: &str = "Packet is larger than max_allowed_packet";

impl DriverError for Failure {
    /// The server's own message. The message about a duplicate repeats the value, which must not be shown.
    fn describe(&self) -> String {
        match self {
            Self::Driver(Driver::Server(error)) => {
                match (error.code, key(error.code, &error.message)) {
                    (1062 | 1586, Some(key)) => format!("there is such a row already, says {key}"),
                    (1062 | 1586, None) => "there is such a row already".to_owned(),
                    _ if is_of_own_table(error) => format!(
                        "{}: a table of this session, in the `tmpdir` of the server, whose disk is full or fails",
                        error.message
                    ),
                    _ => error.message.clone(),
                }
            }
            Self::Driver(Driver::Io(IoError::Io(error))) => error.to_string(),
            Self::Driver(Driver::Io(IoError::Tls(error))) => error.to_string(),
            // For a user that it does not know, MySQL names any of its login methods.
            Self::Driver(Driver::Driver(UnknownAuthPlugin { name })) => format!(
                "the server knows no such user, or one who logs in by {name}, which ductworkd does not"
            ),
            Self::Driver(Driver::Driver(error)) => error.to_string(),
            Self::Driver(error) => error.to_string(),
            Self::Node(text) | Self::File(text) | Self::Right(text) => text.clone(),
            Self::Count { wanted, written } => {
                format!("it was to write {wanted} rows, and wrote {written}")
            }
            Self::Undone => {
                "the server has rolled back the transaction without saying so".to_owned()
            }
        }
    }

    fn blame(&self) -> Blame {
        match self {
            // The server reports a value that is longer than a packet under the number of "Unknown
            // error".
            Self::Driver(Driver::Server(error))
                if error.code == 1105 && error.message.contains("max_allowed_packet") =>
            {
                Blame::Value
            }
            Self::Driver(Driver::Server(error)) if is_of_trigger(error) => Blame::Environment,
            Self::Driver(Driver::Server(error)) => of_code(error.code, &error.state),
            Self::Driver(Driver::Io(IoError::Io(error)))
                if error.to_string().contains(TOO_LARGE) =>
            {
                Blame::Value
            }
            Self::Driver(Driver::Io(_) | Driver::Other(_))
            | Self::Node(_)
            | Self::File(_)
            | Self::Right(_) => Blame::Connection,
            Self::Driver(Driver::Driver(error)) => match error {
                mysql_async::DriverError::PacketTooLarge => Blame::Value,
                // Too many parameters, or not as many as the statement has: the program's mistake.
                mysql_async::DriverError::StmtParamsMismatch { .. }
                | mysql_async::DriverError::StmtParamsNumberExceedsLimit { .. }
                | mysql_async::DriverError::MixedParams
                | mysql_async::DriverError::Params(_)
                | mysql_async::DriverError::FromValue { .. }
                | mysql_async::DriverError::FromRow { .. } => Blame::Program,
                _ => Blame::Connection,
            },
            Self::Driver(Driver::Url(_)) => Blame::Program,
            // Some servers answer a statement that was killed while it waited with success and no rows.
            Self::Count { .. } => Blame::Contention,
            // A node of a cluster lets a commit of another node through.
            Self::Undone => Blame::Contention,
        }
    }

    fn constraint(&self) -> Option<String> {
        let error = self.server()?;
        match error.code {
            1062 | 1586 | 3819 | 4025 => Some(
                key(error.code, &error.message)
                    .unwrap_or_else(|| "which the server does not name".to_owned()),
            ),
            _ => None,
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Node(text) if text.contains("read_only") => {
                "turn its read_only off, or, where it is a replica, name another server in `database.url`"
            }
            Self::Node(text) if text.contains("wsrep_max_ws_rows") => {
                "turn it off, at each node: SET GLOBAL wsrep_max_ws_rows = 0"
            }
            Self::Node(text) if text.contains("wsrep_max_ws_size") => {
                "set it to its default, at each node: SET GLOBAL wsrep_max_ws_size = 2147483647"
            }
            Self::Right(_) => of_answer(1044),
            Self::File(_) => "put the file there, or correct its path in `database.url`",
            Self::Node(_) => {
                "wait until the node has joined its cluster again, or name another node in `database.url`"
            }
            Self::Driver(Driver::Io(IoError::Tls(_))) => TLS,
            // The driver reports an error of its TLS library as an error of the connection to the
            // server.
            Self::Driver(Driver::Io(IoError::Io(error)))
                if error
                    .get_ref()
                    .is_some_and(|inner| inner.to_string().contains("certificate")) =>
            {
                TLS
            }
            Self::Driver(Driver::Driver(mysql_async::DriverError::NoClientSslFlagFromServer)) => {
                "the server speaks no TLS: give it a certificate, or, where nobody else can listen, set \
                 ssl-mode=disabled in `database.url`"
            }
            Self::Driver(Driver::Driver(UnknownAuthPlugin { .. })) => of_answer(1045),
            // Other settings share this number.
            Self::Driver(Driver::Server(error))
                if error.code == 1290 && !error.message.contains("read") =>
            {
                SAYS
            }
            _ if self.is_full() => {
                "make room on the disk of the server: that of its tables, and that of its tmpdir"
            }
            _ => of_answer(self.code()),
        }
    }

    fn has_answered(&self) -> bool {
        matches!(
            self,
            Self::Driver(Driver::Server(_) | Driver::Driver(UnknownAuthPlugin { .. }))
                | Self::Node(_)
                | Self::File(_)
                | Self::Right(_)
                | Self::Count { .. }
                | Self::Undone
        )
    }

    fn is_lock_wait(&self) -> bool {
        self.code() == 1205
    }

    fn only_reads(&self) -> bool {
        Self::only_reads(self)
    }

    fn is_denied(&self) -> bool {
        Self::is_denied(self)
    }

    fn is_cut_short(&self) -> bool {
        matches!(self.code(), 1317 | 1969 | 3024)
    }

    fn is_out_of_memory(&self) -> bool {
        matches!(self.code(), 1037 | 1038 | 1041)
    }
}

/// True for damage to a table that the server has made for this session alone, by itself or because we asked for it, and
/// that it names with or without its directory: without room for it, the server finds what it could not write damaged.
fn is_of_own_table(error: &ServerError) -> bool {
    matches!(error.code, 1..=999 | 1034 | 1194 | 1195) && error.message.contains("#sql")
}

/// True for a mistake in somebody's trigger on a table of ours, or in an object that the trigger names: we have no
/// triggers. Where statements are killed while a trigger is read, MariaDB 10.11 reports the same for a correct
/// trigger.
fn is_of_trigger(error: &ServerError) -> bool {
    match error.code {
        1064 => error.message.contains("has an error in its body"),
        1146 => !error.message.contains(".ductwork_"),
        _ => false,
    }
}

/// The remedy where TLS could not be established.
const TLS: &str = "let ssl-ca in `database.url` name the authority that signed the server's certificate, and \
                   the host be one that it is for";

/// The remedy where none is better than the server's own words.
const SAYS: &str = "the server answers, and says what is in the way";

fn of_answer(code: u16) -> &'static str {
    match code {
        0 => UNREACHED,
        1045 | 1698 | 1251 | 4151 => {
            "check the user and the password in `database.url`, and the host from which the server lets this user in"
        }
        1044 | 1142 | 1227 | 1370 => "give the user of `database.url` all rights on its database",
        1049 => "create the database, or correct its name in `database.url`",
        1130 => "let the server accept this user from this host",
        1040 | 1203 | 1226 => {
            "raise max_connections, or the limit of the user, or end other sessions"
        }
        1290 | 1792 | 1836 => "the server takes no writes: is it a replica, or is read_only on?",
        1047 | 1180 | 3168 | 3169 => {
            "the node is not part of its cluster's majority: see to it, or name another node in `database.url`"
        }
        1153 => "raise max_allowed_packet of the server",
        _ => SAYS,
    }
}

/// The index or the constraint that a message names, without the name of its table.
fn key(code: u16, message: &str) -> Option<String> {
    let name = match code {
        // "Duplicate entry '…' for key 'table.name'", where the entry may contain any text.
        1062 | 1586 => message.rsplit_once(" for key '")?.1.strip_suffix('\'')?,
        // "CONSTRAINT `name` failed for `database`.`table`"; "Check constraint 'name' is violated."
        _ => message.split(['`', '\'']).nth(1)?,
    };
    let name = name.rsplit('.').next().unwrap_or(name);
    Some(name.to_owned())
}

/// The blame of an error number.
fn of_code(code: u16, state: &str) -> Blame {
    match code {
        // A deadlock, or a commit that came second at two nodes; a lock that could not be obtained in
        // time; a row that has changed since it was read (snapshot isolation); a table that a DDL changed
        // meanwhile; a statement that has to be prepared anew; a count that was not as required.
        1213 | 1205 | 1020 | 1412 | 1615 | 1690 | 3101 | 3572 => Blame::Contention,
        // Somebody killed the statement, or it ran out of time. It leaves its transaction open.
        1317 | 1969 | 3024 => Blame::Contention,
        // The outcome of a COMMIT that failed in the engine or in the cluster is unknown.
        1180 => Blame::Connection,
        // A node that refuses to write batches: the next connection finds out why, or finds another node.
        4165 => Blame::Connection,
        // Too many connections; a node without a majority; a group that refuses a commit; offline mode; shutdown; the wire; a user's limits; read only;
        // killed; gone; a session that was ended because it was silent.
        1040
        | 1047
        | 1053
        | 1077..=1081
        | 1129
        | 1130
        | 1152
        | 1154..=1161
        | 1184
        | 1189
        | 1190
        | 1203
        | 1226
        | 1290
        | 1792
        | 1836
        | 1927
        | 2006
        | 2013
        | 3032
        | 3100
        | 3168
        | 3169
        | 4031 => Blame::Connection,
        // No such user, database or way to authenticate.
        1044 | 1045 | 1049 | 1251 | 1698 | 1862 | 1873 | 4151 => Blame::Connection,
        // A duplicate; a check; a key of another table.
        1022 | 1062 | 1586 | 3819 | 4025 | 1216 | 1217 | 1451 | 1452 => Blame::Value,
        // A packet that is too large; out of range; cut off; a text that is invalid in its charset; null; too
        // long.
        1048 | 1118 | 1139 | 1153 | 1162 | 1260 | 1264 | 1265 | 1292 | 1300 | 1301 | 1366
        | 1367 | 1406 | 1411 | 3140 | 3141 | 3854 | 4038 | 4037 => Blame::Value,
        // A file error that a storage engine reports under its own number; or a damaged table, which is one of the
        // session's own where the disk was full: another session has its own tables.
        1..=999 | 1034 | 1035 | 1194 | 1195 => Blame::Connection,
        // Somebody's trigger.
        1643..=1645 => Blame::Value,
        // Memory, files, the disk; temporary space.
        1004
        | 1005
        | 1021
        | 1023..=1026
        | 1030
        | 1037
        | 1038
        | 1041
        | 1114
        | 1135
        | 1197
        | 1206
        | 1296
        | 1297
        | 1461
        | 1534
        | 1598
        | 1665
        | 1785
        | 3170
        | 3186 => Blame::Environment,
        // A revoked right may be granted again.
        1142 | 1143 | 1227 | 1370 => Blame::Environment,
        _ => of_state(state),
    }
}

/// The blame of a number that is in no table, by its class in the SQL standard.
fn of_state(state: &str) -> Blame {
    match state.get(..2).unwrap_or_default() {
        "08" => Blame::Connection,
        "40" => Blame::Contention,
        "22" | "23" | "44" => Blame::Value,
        _ => Blame::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, message: &str) -> Failure {
        Failure::Driver(Driver::Server(ServerError {
            code,
            message: message.to_owned(),
            state: "HY000".to_owned(),
        }))
    }

    #[test]
    fn every_number_that_a_running_system_meets_has_its_blame() {
        for (blame, codes) in [
            (
                Blame::Contention,
                [1213, 1205, 1020, 1317, 1412, 1615, 1690, 1969, 3024, 3101].as_slice(),
            ),
            (
                Blame::Connection,
                &[
                    1180, 1040, 1047, 1053, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161,
                    1203, 1226, 1290, 1792, 1836, 1927, 2006, 2013, 3032, 3100, 3168, 3169, 4031,
                    1045, 1049, 1044, 4165,
                ],
            ),
            (
                Blame::Value,
                &[1062, 3819, 4025, 1153, 1264, 1301, 1366, 1406],
            ),
            (Blame::Connection, &[3, 28, 126, 145, 1034, 1194]),
            (Blame::Environment, &[1005, 1021, 1114, 1030, 1142, 1461]),
            (Blame::Program, &[1064, 1054, 1210, 1267]),
        ] {
            for code in codes {
                assert_eq!(of(*code, "").blame(), blame, "{code}");
            }
        }
    }

    #[test]
    fn a_disk_without_room_is_told_with_the_remedy() {
        let full = "Can't create table `d`.`ductwork_held` (errno: 28 \"No space left on device\")";
        assert!(of(1005, full).remedy().starts_with("make room"));
        assert!(
            of(1114, "The table 'x' is full")
                .remedy()
                .starts_with("make room")
        );
        let other = "Can't create table `d`.`x` (errno: 150 \"Foreign key constraint is incorrectly formed\")";
        assert!(!of(1005, other).remedy().starts_with("make room"));
    }

    #[test]
    fn somebodys_trigger_is_no_mistake_of_ours() {
        let said = "Unknown trigger has an error in its body: 'Query was empty'";
        assert_eq!(of(1064, said).blame(), Blame::Environment);
        let said = "Table 'd.tripped' doesn't exist";
        assert_eq!(of(1146, said).blame(), Blame::Environment);
        let said = "Table 'd.ductwork_runs' doesn't exist";
        assert_eq!(of(1146, said).blame(), Blame::Program);
        assert_eq!(of(1064, "near 'x'").blame(), Blame::Program);
        // The words may be part of somebody's value.
        let said = "Duplicate entry 'has an error in its body' for key 'k'";
        assert_eq!(of(1062, said).blame(), Blame::Value);
    }

    #[test]
    fn a_constraint_is_known_by_its_name_and_a_value_stays_untold() {
        for (code, message, name) in [
            (
                1062,
                "Duplicate entry 'a' for key 'x' for key 'ductwork_runs_trigger_key'",
                "ductwork_runs_trigger_key",
            ),
            (
                1062,
                "Duplicate entry 'a' for key 'ductwork_runs.PRIMARY'",
                "PRIMARY",
            ),
            (
                4025,
                "CONSTRAINT `ductwork_runs_times` failed for `d`.`ductwork_runs`",
                "ductwork_runs_times",
            ),
            (
                3819,
                "Check constraint 'ductwork_runs_times' is violated.",
                "ductwork_runs_times",
            ),
        ] {
            let failure = of(code, message);
            assert_eq!(failure.constraint().as_deref(), Some(name), "{message}");
        }
        let failure = of(1062, "Duplicate entry 'secret' for key 'k'");
        assert_eq!(failure.describe(), "there is such a row already, says k");
        let failure = of(1062, "Doppelter Eintrag 'secret' für Schlüssel 'k'");
        let told = format!("{} {:?}", failure.describe(), failure.constraint());
        assert!(!told.contains("secret"), "{told}");
        assert_eq!(of(1064, "near 'x'").constraint(), None);
        for table in ["#sql-temptable-1-2.MAI", "/tmp/#sql-temptable-1-2.MAI"] {
            let full = format!("Got error '126 \"Index is corrupted\"' for '{table}'");
            for code in [126, 127] {
                let full = of(code, &full);
                assert!(full.describe().ends_with("whose disk is full or fails"));
                assert!(full.remedy().contains("that of its tmpdir"));
            }
        }
        let damaged = of(126, "Index for table 'ductwork_runs' is corrupt");
        assert!(!damaged.describe().contains("tmpdir"));
    }
}
