//! A place in an order of rows by time and id: the place from which a scan in batches continues.
//!
//! Owns: the place. Never: the order, which is the statement's (`cancel`, `claim`, `delivery`, `event`, `prune`, `resume`).

use uuid::Uuid;

use super::conn::Row;
use super::error::Error;
use super::statement::Arg;

/// The time of a row, and its id: rows that were written in one transaction have the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(i64, Uuid);

impl Cursor {
    /// Before all rows.
    pub const FIRST: Self = Self(i64::MIN, Uuid::nil());

    /// Before all rows of this time, in µs since 1970.
    pub fn at(time: i64) -> Self {
        Self(time, Uuid::nil())
    }

    /// At the row with this time and id.
    pub fn new(time: i64, id: Uuid) -> Self {
        Self(time, id)
    }

    /// Its id.
    pub(super) fn id(&self) -> Uuid {
        self.1
    }

    /// Its time, in µs since 1970.
    pub fn time(&self) -> i64 {
        self.0
    }

    /// The place of a row, read from these two columns.
    pub(super) fn of(row: &Row, time: &str, id: &str) -> Result<Self, Error> {
        Ok(Self(row.get(time)?, row.get(id)?))
    }

    /// The arguments with which the next query begins after this place.
    pub(super) fn args(&self) -> [(&'static str, Arg<'static>); 2] {
        [("behind", self.0.into()), ("behind_id", self.1.into())]
    }
}
