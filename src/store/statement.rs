//! Statements: named, `'static`, rendered once per database.
//!
//! Owns: the type of a statement and its arguments, and how several are sent at once, in a row.
//! Never: a statement itself. Statements that all databases share are next to the functions that
//! use them; those that each database has in its own SQL are in `backend/*/*.sql`.
//! `store::catalogue` lists them all.

use std::sync::OnceLock;

use uuid::Uuid;

use super::backend::Asks;
use super::dialect::Dialect;
use super::render::{render, with_variables};

/// A statement with `:named` parameters and `{fragments}`.
pub struct Statement {
    /// Its name, for goldens and errors.
    pub name: &'static str,
    text: Text,
    only: Option<Only>,
    /// The statements that do the same on MySQL, in order; none where MySQL takes this one.
    on_mysql: &'static [&'static Statement],
    rendered: [OnceLock<Rendered>; Dialect::COUNT],
}

/// Where a statement can be sent, if not everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// On SQLite only: a hot operation, or a statement that only SQLite takes.
    Sqlite,
    /// Where a hot operation is several statements, each of which sees the writes of those before it.
    InTurn,
    /// On PostgreSQL only.
    Postgres,
    /// On MySQL and MariaDB only.
    Mysql,
    /// Nowhere: it consists of several in a row.
    Row,
}

enum Text {
    One(&'static str),
    Row(&'static [&'static Statement]),
}

/// One request to the database: the text of a statement, and the arguments that it uses.
pub struct Request {
    /// The text, with `?1`, `?2`, ….
    pub(super) sql: &'static str,
    /// The position of the value of each of these.
    pub(crate) given: Vec<usize>,
    /// The text with the types of the values, where a database needs them: it is fixed with the first
    /// values, and never changes afterwards.
    pub(super) typed: OnceLock<String>,
}

/// A statement in the form of one database.
pub(crate) struct Rendered {
    pub(crate) sql: &'static str,
    pub(crate) parameters: Vec<String>,
    /// With variables in place of its parameters, for a database that runs several statements as one.
    pub(crate) compound: String,
    /// The statements to send in turn, on SQLite and MySQL.
    pub(crate) asked: &'static [Request],
}

impl Request {
    /// A text, and the positions of its values.
    pub(super) fn new(sql: &'static str, given: Vec<usize>) -> Self {
        let typed = OnceLock::new();
        Self { sql, given, typed }
    }
}

impl Statement {
    /// One text for all databases.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self::of(name, Text::One(text), None)
    }

    /// A text that cannot be sent everywhere.
    pub const fn only(only: Only, name: &'static str, text: &'static str) -> Self {
        Self::of(name, Text::One(text), Some(only))
    }

    /// Several statements in one round trip within a transaction, for SQLite and MySQL: in order, each of
    /// which sees the writes of those before it. Their arguments are sent once.
    pub const fn row(name: &'static str, statements: &'static [&'static Statement]) -> Self {
        Self::of(name, Text::Row(statements), Some(Only::Row))
    }

    const fn of(name: &'static str, text: Text, only: Option<Only>) -> Self {
        Self {
            name,
            text,
            only,
            on_mysql: &[],
            rendered: [const { OnceLock::new() }; Dialect::COUNT],
        }
    }

    /// The same, with the statements that do it on MySQL, which does not return the rows that it
    /// writes.
    pub const fn on_mysql(mut self, statements: &'static [&'static Statement]) -> Self {
        self.on_mysql = statements;
        self
    }

    /// True where it has a form of its own on MySQL.
    #[cfg(test)]
    pub(crate) fn has_form_on_mysql(&self) -> bool {
        !self.on_mysql.is_empty()
    }

    /// True where it can be sent to `dialect` as it is.
    pub fn is_for(&self, dialect: Dialect) -> bool {
        if dialect == Dialect::Mysql && !self.on_mysql.is_empty() {
            return true;
        }
        match self.only {
            None => true,
            Some(Only::InTurn) => dialect.backend().asks() == Asks::InTurn,
            Some(Only::Sqlite) => dialect == Dialect::Sqlite,
            Some(Only::Postgres) => dialect == Dialect::Postgres,
            Some(Only::Mysql) => dialect == Dialect::Mysql,
            Some(Only::Row) => false,
        }
    }

    fn write_text(&self, dialect: Dialect, to: &mut String) {
        match self.text {
            _ if dialect == Dialect::Mysql && !self.on_mysql.is_empty() => {
                for statement in self.on_mysql {
                    statement.write_text(dialect, to);
                    to.push_str(";\n");
                }
            }
            Text::One(text) => {
                #[cfg(feature = "failpoints")]
                let text = &crate::failpoint::lacking(self.name, text);
                let comment = |line: &&str| line.trim_start().starts_with("--");
                for line in text.split_inclusive('\n').filter(|line| !comment(line)) {
                    to.push_str(line);
                }
            }
            Text::Row(statements) => {
                for statement in statements {
                    statement.write_text(dialect, to);
                    to.push_str(";\n");
                }
            }
        }
    }

    /// The statements that this consists of on `dialect`, in a row; none when it is a single one
    /// there.
    pub(crate) fn parts(&self, dialect: Dialect) -> Vec<&'static Statement> {
        let parts = match dialect {
            Dialect::Mysql if !self.on_mysql.is_empty() => self.on_mysql,
            _ => self.in_row(),
        };
        let inner = |part: &&'static Statement| match part.parts(dialect) {
            parts if parts.is_empty() => vec![*part],
            parts => parts,
        };
        parts.iter().flat_map(inner).collect()
    }

    /// The statements that this consists of, in a row; none when it is a single one.
    pub(crate) fn in_row(&self) -> &'static [&'static Statement] {
        match self.text {
            Text::Row(statements) => statements,
            _ => &[],
        }
    }

    /// The statement in the form of `dialect`.
    pub(crate) fn rendered(&self, dialect: Dialect) -> &Rendered {
        self.rendered[dialect as usize].get_or_init(|| {
            let mut text = String::new();
            self.write_text(dialect, &mut text);
            let (sql, parameters) = render(dialect.backend(), &text);
            let compound = match dialect {
                Dialect::Mysql => with_variables(dialect.backend(), &text),
                _ => String::new(),
            };
            // This leaks once per statement and database, for the life of the process.
            let sql = Box::leak(sql.into_boxed_str());
            Rendered {
                asked: Box::leak(self.asked(sql, &parameters, dialect)),
                sql,
                parameters,
                compound,
            }
        })
    }

    fn asked(&self, sql: &'static str, parameters: &[String], dialect: Dialect) -> Box<[Request]> {
        let place = |name: &String| parameters.iter().position(|known| known == name);
        let one = |statement: &&Statement| {
            let own = statement.rendered(dialect);
            Request::new(own.sql, own.parameters.iter().filter_map(place).collect())
        };
        match self.parts(dialect) {
            parts if parts.is_empty() => {
                Box::new([Request::new(sql, (0..parameters.len()).collect())])
            }
            parts => parts.iter().map(one).collect(),
        }
    }

    /// Its own text, with fragments and comments.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &'static str {
        match self.text {
            Text::One(text) => text,
            Text::Row(_) => unreachable!("{} is several", self.name),
        }
    }

    /// The SQL for MySQL with variables of the session, `@d_name`, in place of parameters: for EXPLAIN.
    #[cfg(feature = "internals")]
    pub fn with_variables(&self) -> &str {
        &self.rendered(Dialect::Mysql).compound
    }

    /// The SQL for `dialect`, for goldens and EXPLAIN.
    pub fn sql(&self, dialect: Dialect) -> &'static str {
        self.rendered(dialect).sql
    }
}

/// The text of a section of a file, from `-- name: NAME` to the next such line. A name that the
/// file lacks does not compile.
pub(in crate::store) const fn section(file: &'static str, name: &str) -> &'static str {
    const MARK: &[u8] = b"\n-- name: ";
    let (bytes, name) = (file.as_bytes(), name.as_bytes());
    let mut at = find_bytes(bytes, 0, MARK);
    while at < bytes.len() {
        let from = at + MARK.len();
        let next = find_bytes(bytes, from, MARK);
        let until = from + name.len();
        if starts(bytes, from, name) && starts(bytes, until, b"\n") {
            return file.split_at(next).0.split_at(until).1;
        }
        at = next;
    }
    panic!("the file has no section of this name")
}

/// The position of `wanted`, at or after `from`; the end, when it does not occur.
const fn find_bytes(bytes: &[u8], from: usize, wanted: &[u8]) -> usize {
    let mut at = from;
    while at < bytes.len() && !starts(bytes, at, wanted) {
        at += 1;
    }
    at
}

const fn starts(bytes: &[u8], at: usize, wanted: &[u8]) -> bool {
    let mut index = 0;
    while index < wanted.len() {
        if at + index >= bytes.len() || bytes[at + index] != wanted[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Declares statements, and the list of them for the catalogue.
///
/// `NAME = "…";` is for all databases, and `NAME in Postgres = "…";` for one.
/// `NAME in Sqlite from "backend/sqlite/….sql";` is the section of that name, for one. `NAME runs [&FIRST, …];` sends
/// several at once, where statements are sent in turn. `NAME = "…", on Mysql [&FIRST, …];` replaces the text by these
/// statements on MySQL.
macro_rules! statements {
    ($($(#[$doc:meta])* $vis:vis $name:ident $(in $only:ident)? $(from $file:literal)? $(runs $row:tt)? $(= $text:expr)? $(, on Mysql $parts:tt)?;)*) => {
        $($(#[$doc])* $vis static $name: $crate::store::statement::Statement =
            $crate::store::statement::statements!(@ $name $(in $only)? $(from $file)? $(runs $row)? $(= $text)?)
                $(.on_mysql(&$parts))?;)*

        /// Every statement of this module.
        #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "the catalogue is for tests"))]
        pub(in crate::store) static STATEMENTS: &[&$crate::store::statement::Statement] = &[$(&$name),*];
    };
    (@ $name:ident = $text:expr) => {
        $crate::store::statement::Statement::new(stringify!($name), $text)
    };
    (@ $name:ident in $only:ident = $text:expr) => {
        $crate::store::statement::Statement::only(
            $crate::store::statement::Only::$only, stringify!($name), $text)
    };
    (@ $name:ident in $only:ident from $file:literal) => {
        $crate::store::statement::Statement::only(
            $crate::store::statement::Only::$only,
            stringify!($name),
            $crate::store::statement::section(include_str!($file), stringify!($name)),
        )
    };
    (@ $name:ident from $file:literal) => {
        $crate::store::statement::Statement::new(
            stringify!($name),
            $crate::store::statement::section(include_str!($file), stringify!($name)),
        )
    };
    (@ $name:ident runs $row:tt) => {
        $crate::store::statement::Statement::row(stringify!($name), &$row)
    };
}
pub(super) use statements;

/// The value of a parameter.
#[derive(Clone, Debug)]
pub enum Arg<'a> {
    /// A key, or none.
    Id(Option<Uuid>),
    /// A text, or none.
    Text(Option<&'a str>),
    /// A whole number (also a time in µs), or none.
    Int(Option<i64>),
    /// The rows of a `{rows:…}` fragment.
    Rows(&'a Rows<'a>),
}

macro_rules! args {
    ($($from:ty => |$value:ident| $arg:expr;)*) => {$(
        impl<'a> From<$from> for Arg<'a> {
            fn from($value: $from) -> Self { $arg }
        }
    )*};
}

args! {
    Uuid => |value| Arg::Id(Some(value));
    Option<Uuid> => |value| Arg::Id(value);
    &'a str => |value| Arg::Text(Some(value));
    &'a String => |value| Arg::Text(Some(value));
    Option<&'a str> => |value| Arg::Text(value);
    i64 => |value| Arg::Int(Some(value));
    u32 => |value| Arg::Int(Some(i64::from(value)));
    usize => |value| Arg::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)));
    Option<i64> => |value| Arg::Int(value);
    &'a Rows<'a> => |value| Arg::Rows(value);
}

/// Named arguments.
pub type Args<'a> = &'a [(&'static str, Arg<'a>)];

/// The argument with this name.
pub(super) fn find<'a>(statement: &Statement, args: Args<'a>, name: &str) -> &'a Arg<'a> {
    match args.iter().find(|(known, _)| *known == name) {
        Some((_, arg)) => arg,
        None => unreachable!("{} is not given its {name}", statement.name),
    }
}

/// A batch of rows, by column.
#[derive(Clone, Debug, Default)]
pub struct Rows<'a> {
    pub(super) columns: Vec<(&'static str, Column<'a>)>,
}

/// One column of a batch.
#[derive(Clone, Debug)]
pub enum Column<'a> {
    /// Keys.
    Ids(Vec<Option<Uuid>>),
    /// Texts.
    Texts(Vec<Option<&'a str>>),
    /// Whole numbers.
    Ints(Vec<Option<i64>>),
}

impl<'a> Rows<'a> {
    /// A batch without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column of keys.
    pub fn ids<T: Into<Uuid>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let values = values.into_iter().map(|id| Some(id.into())).collect();
        self.columns.push((name, Column::Ids(values)));
        self
    }

    /// Adds a column of keys that may be absent.
    pub fn optional_ids<T: Into<Uuid>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<T>>,
    ) -> Self {
        let values = values.into_iter().map(|id| id.map(Into::into)).collect();
        self.columns.push((name, Column::Ids(values)));
        self
    }

    /// Adds a column of texts.
    pub fn texts(mut self, name: &'static str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let values = values.into_iter().map(Some).collect();
        self.columns.push((name, Column::Texts(values)));
        self
    }

    /// Adds a column of texts that may be absent.
    pub fn optional_texts(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let values = values.into_iter().collect();
        self.columns.push((name, Column::Texts(values)));
        self
    }

    /// Adds a column of whole numbers.
    pub fn ints(mut self, name: &'static str, values: impl IntoIterator<Item = i64>) -> Self {
        let values = values.into_iter().map(Some).collect();
        self.columns.push((name, Column::Ints(values)));
        self
    }

    /// Adds a column of whole numbers that may be absent.
    pub fn optional_ints(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<i64>>,
    ) -> Self {
        let values = values.into_iter().collect();
        self.columns.push((name, Column::Ints(values)));
        self
    }
}

impl Rows<'_> {
    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// About how many bytes its values have.
    pub(super) fn weight(&self) -> usize {
        let of = |column: &Column<'_>| match column {
            Column::Ids(values) => values.len() * 20,
            Column::Texts(values) => {
                let texts = values.iter().flatten().map(|text| text.len());
                texts.sum::<usize>() + values.len() * 8
            }
            Column::Ints(values) => values.len() * 8,
        };
        self.columns.iter().map(|(_, column)| of(column)).sum()
    }
}

impl Column<'_> {
    /// How many rows it has values for.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Ids(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::Ints(values) => values.len(),
        }
    }
}
