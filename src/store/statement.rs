//! Statements: named, `'static`, rendered once per database.
//!
//! Owns: the type of a statement and its arguments. Never: a statement itself; these stand
//! beside the functions that use them, and `store::catalogue` lists them all.

use std::fmt::Write;
use std::sync::OnceLock;

use uuid::Uuid;

use super::dialect::Dialect;

/// A statement with `:named` parameters and `{fragments}`.
pub struct Statement {
    /// Its name, for goldens and errors.
    pub name: &'static str,
    text: &'static str,
    rendered: [OnceLock<Rendered>; 2],
}

/// A statement as one database takes it.
pub(super) struct Rendered {
    pub(super) sql: &'static str,
    pub(super) parameters: Vec<String>,
}

impl Statement {
    /// One text for all databases.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            rendered: [OnceLock::new(), OnceLock::new()],
        }
    }

    /// The text as `dialect` takes it.
    pub(super) fn rendered(&self, dialect: Dialect) -> &Rendered {
        self.rendered[dialect as usize].get_or_init(|| {
            let (sql, parameters) = dialect.render(self.text);
            Rendered {
                // Once per statement and database, for the life of the process.
                sql: Box::leak(sql.into_boxed_str()),
                parameters,
            }
        })
    }

    /// The SQL for `dialect`, for goldens and EXPLAIN.
    pub fn sql(&self, dialect: Dialect) -> &'static str {
        self.rendered(dialect).sql
    }
}

/// Declares statements, and the list of them for the catalogue.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* static $name: $crate::store::statement::Statement =
            $crate::store::statement::Statement::new(stringify!($name), $text);)*

        /// Every statement of this module.
        pub(super) static STATEMENTS: &[&$crate::store::statement::Statement] = &[$(&$name),*];
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
    usize => |value| Arg::Int(Some(value as i64));
    Option<i64> => |value| Arg::Int(value);
    &'a Rows<'a> => |value| Arg::Rows(value);
}

/// Named arguments.
pub type Args<'a> = &'a [(&'static str, Arg<'a>)];

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

    /// The batch as a JSON array of arrays, the columns in the order of the fragment (which
    /// is the order in which they were added).
    pub(super) fn json(&self) -> String {
        let length = match self.columns.first() {
            Some((_, Column::Ids(values))) => values.len(),
            Some((_, Column::Texts(values))) => values.len(),
            Some((_, Column::Ints(values))) => values.len(),
            None => 0,
        };
        let mut json = String::from("[");
        for row in 0..length {
            json.push_str(if row == 0 { "[" } else { ",[" });
            for (index, (_, column)) in self.columns.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                match column {
                    Column::Ids(values) => match values[row] {
                        Some(id) => write!(json, "\"{}\"", id.simple()),
                        None => write!(json, "null"),
                    },
                    Column::Ints(values) => match values[row] {
                        Some(int) => write!(json, "{int}"),
                        None => write!(json, "null"),
                    },
                    Column::Texts(values) => match values[row] {
                        Some(text) => {
                            let text = serde_json::to_string(text).expect("a string is JSON");
                            json.push_str(&text);
                            Ok(())
                        }
                        None => write!(json, "null"),
                    },
                }
                .expect("a string takes all");
            }
            json.push(']');
        }
        json.push(']');
        json
    }
}
