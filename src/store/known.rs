//! The pipelines that are known here.
//!
//! Owns: the only answer to whether a pipeline is known, for those who pause one, make a token for one, or ask
//! for one. Never: reads a configuration, or a definition.

use std::collections::BTreeSet;

use super::conn::Conn;
use super::error::Error;
use super::statement::statements;

statements! {
    /// The definition of each run is kept; a worker with another host's configuration may exist before the first
    /// run.
    KNOWN_PIPELINES = "
        SELECT d.pipeline FROM ductwork_definitions d
        UNION SELECT w.pipeline FROM ductwork_processes w WHERE w.pipeline IS NOT NULL
        UNION SELECT p.pipeline FROM ductwork_pauses p
        ORDER BY pipeline LIMIT :n";
}

/// More pipelines than any deployment has.
const PIPELINES: usize = 10_000;

/// The known pipelines: those that a configuration defines, `here`, and those that ever had a run, have a worker
/// or are paused.
pub async fn pipelines(
    conn: &mut Conn,
    here: impl IntoIterator<Item = &str>,
) -> Result<BTreeSet<String>, Error> {
    let rows = conn
        .fetch(&KNOWN_PIPELINES, &[("n", PIPELINES.into())])
        .await?;
    let known: Result<BTreeSet<String>, Error> =
        rows.iter().map(|row| row.get("pipeline")).collect();
    let mut known = known?;
    known.extend(here.into_iter().map(str::to_owned));
    Ok(known)
}
