//! `health`: the processes, and work that does not move although it should.

use serde::Serialize;

use crate::config::Config;
use crate::machine::stuck::{self, Stuck};
use crate::model::RunId;
use crate::problem::Problem;
use crate::store::{self, Conn};
use crate::time;

use super::exit::Failure;
use super::out;

#[derive(Serialize)]
pub struct StuckJson<'a> {
    cause: &'a str,
    pipeline: Option<&'a str>,
    run_id: Option<RunId>,
    since: String,
    fact: &'a str,
    remedy: &'a str,
}

impl<'a> StuckJson<'a> {
    pub fn of(stuck: &'a Stuck) -> Self {
        Self {
            cause: stuck.cause,
            pipeline: stuck.pipeline.as_deref(),
            run_id: stuck.run_id,
            since: time::rfc3339(stuck.since),
            fact: &stuck.fact,
            remedy: &stuck.remedy,
        }
    }
}

/// All that does not move in this database.
pub async fn stuck(conn: &mut Conn, config: &Config) -> Result<Vec<Stuck>, Failure> {
    let facts = store::stuck::facts(conn, config.supervisor.reaper_timeout).await?;
    Ok(stuck::stuck(&facts))
}

/// The same, for people.
pub fn problem(stuck: &Stuck) -> Problem {
    let message = format!("unhealthy: {}", out::clean(&stuck.fact));
    Problem::new(message).help(out::clean(&stuck.remedy))
}
