//! Values to and from a MySQL server.
//!
//! Owns: the parameters of a statement as the driver takes them, and a row of an answer. Never:
//! sends anything.

use std::sync::Arc;

use mysql_async::{Column, Value};
use uuid::Uuid;

use super::literal;
use crate::store::dialect::Dialect;
use crate::store::error::Error;
use crate::store::statement::{Arg, Args, Statement, find};

/// A row of an answer.
pub struct Row {
    columns: Arc<[Column]>,
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
            Value::Int(number) => Some(*number),
            Value::UInt(number) => (*number).try_into().ok(),
            // A sum is a decimal number, which arrives as digits.
            Value::Bytes(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
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
            Value::Bytes(bytes) => Self::from_utf8(bytes.clone()).ok(),
            _ => None,
        }
    }
}

impl FromValue for Uuid {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Self::from_slice(bytes).ok(),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::NULL => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl Row {
    /// The driver's row.
    pub fn of(row: mysql_async::Row) -> Self {
        let columns = row.columns();
        let values = row.unwrap();
        Self { columns, values }
    }

    /// The value of a column.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T, Error> {
        let named = |known: &Column| known.name_str() == column;
        let index = self.columns.iter().position(named);
        let value = index.and_then(|index| self.values.get(index));
        let read = value.and_then(T::from_value);
        read.ok_or_else(|| Error::Corrupt(format!("{column} is {}", told(value))))
    }
}

/// The kind of a value: the value itself must not be shown.
fn told(value: Option<&Value>) -> String {
    match value {
        None => "not there".to_owned(),
        Some(Value::NULL) => "null".to_owned(),
        Some(Value::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Some(Value::Int(_) | Value::UInt(_)) => "a number".to_owned(),
        Some(_) => "of another type".to_owned(),
    }
}

/// The values of a statement's parameters, in the order of its marks.
pub fn parameters<'a>(statement: &Statement, args: Args<'a>) -> Vec<&'a Arg<'a>> {
    let names = statement.rendered(Dialect::Mysql).parameters.iter();
    names.map(|name| find(statement, args, name)).collect()
}

/// A statement's text in which each key is cast to bytes. The driver sends bytes as text; where these bytes are
/// no valid text, a server that stores a text, in a table of its own or in a column, returns other bytes.
pub fn typed(sql: &str, given: &[&Arg<'_>]) -> String {
    let mut to = String::with_capacity(sql.len() + 32);
    let mut given = given.iter();
    let mut quote = None;
    for char in sql.chars() {
        match (quote, char) {
            (Some(open), _) if open == char => quote = None,
            (None, '\'' | '"') => quote = Some(char),
            (None, '?') if matches!(given.next(), Some(Arg::Id(_))) => {
                to.push_str("CAST(? AS binary(16))");
                continue;
            }
            _ => {}
        }
        to.push(char);
    }
    to
}

/// A value as the driver sends it.
pub fn value(arg: &Arg<'_>) -> Value {
    match arg {
        Arg::Id(id) => id.map_or(Value::NULL, |id| Value::Bytes(id.as_bytes().to_vec())),
        Arg::Text(text) => text.map_or(Value::NULL, |text| Value::Bytes(text.as_bytes().to_vec())),
        Arg::Int(int) => int.map_or(Value::NULL, Value::Int),
        Arg::Rows(rows) => Value::Bytes(literal::rows(rows).into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_texts_and_numbers() {
        let (id, text, int) = (Arg::Id(None), Arg::Text(Some("?")), Arg::Int(Some(1)));
        assert_eq!(
            typed("SELECT '?', \"?\", ?, ?, ? || '''?'", &[&text, &id, &int]),
            "SELECT '?', \"?\", ?, CAST(? AS binary(16)), ? || '''?'"
        );
    }
}
