//! A run's context: keys and values shared by its steps.
//!
//! Owns: the tuples of a run. Of two steps that set one key at once the later one counts;
//! whoever needs more makes the key their own (`<step id>/…`). Never: judges keys or values;
//! the caller has.

use crate::model::*;

use super::conn::Conn;
use super::error::Error;
use super::statement::statements;

statements! {
    GET_TUPLE = "
        SELECT key, value, first_set_at, last_set_at FROM ductwork_tuples
         WHERE run_id = :run AND key = :key";
    LIST_TUPLES = "
        SELECT key, value, first_set_at, last_set_at FROM ductwork_tuples
         WHERE run_id = :run ORDER BY key";
    /// RACE: prune deletes the run meanwhile. Our lock on its row waits for prune's, and prune's skips
    /// ours, so either it finds the tuple, or we find the run gone. Proven by
    /// `a_tuple_that_is_set_while_its_run_is_pruned_goes_with_it`. (I33)
    SET_TUPLE = "
        INSERT INTO ductwork_tuples (run_id, key, value, first_set_at, last_set_at)
        SELECT r.id, :key, :value, {now}, {now} FROM ductwork_runs r
         WHERE r.id = :run AND r.pruning_at IS NULL {share}
        ON CONFLICT (run_id, key) DO UPDATE
           SET value = excluded.value, last_set_at = excluded.last_set_at";
}

/// The longest key, in characters.
pub const MAX_KEY: usize = 256;

/// A key of a run's context, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// At most [`MAX_KEY`] characters.
    pub key: String,
    /// One JSON value.
    pub value: String,
    /// µs since 1970.
    pub first_set_at: i64,
    /// µs since 1970.
    pub last_set_at: i64,
}

impl Tuple {
    fn read(row: &super::Row) -> Result<Self, Error> {
        Ok(Self {
            key: row.get("key")?,
            value: row.get("value")?,
            first_set_at: row.get("first_set_at")?,
            last_set_at: row.get("last_set_at")?,
        })
    }
}

/// One tuple of a run.
pub async fn get(conn: &mut Conn, run_id: RunId, key: &str) -> Result<Option<Tuple>, Error> {
    let args = [("run", run_id.0.into()), ("key", key.into())];
    let row = conn.fetch_optional(&GET_TUPLE, &args).await?;
    row.as_ref().map(Tuple::read).transpose()
}

/// All tuples of a run, by key.
pub async fn list(conn: &mut Conn, run_id: RunId) -> Result<Vec<Tuple>, Error> {
    let rows = conn
        .fetch(&LIST_TUPLES, &[("run", run_id.0.into())])
        .await?;
    rows.iter().map(Tuple::read).collect()
}

/// Sets a key to one JSON value; false when there is no such run.
pub async fn set(conn: &mut Conn, run_id: RunId, key: &str, value: &str) -> Result<bool, Error> {
    let args = [
        ("run", run_id.0.into()),
        ("key", key.into()),
        ("value", value.into()),
    ];
    Ok(conn.execute(&SET_TUPLE, &args).await? == 1)
}
