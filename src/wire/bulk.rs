//! Actions in many runs at once.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::machine::bulk::{Failure, Filter, Kind, Selection};
use crate::model::*;
use crate::store::bulk::{Bulk, Listed};

use super::Time;

/// A bulk action: the same action in many runs, one after the other.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Bulk")]
pub struct BulkJson<'a> {
    /// Its id.
    id: Uuid,
    /// `revive`, `cancel` or `resume`.
    verb: &'a str,
    /// `open` while it is worked on, then `ended` or `stopped`.
    state: &'static str,
    /// The chosen runs; null if a filter selects them.
    runs: Option<&'a [RunId]>,
    /// The properties that select its runs; null if the runs were chosen.
    filter: Option<FilterJson<'a>>,
    /// The digest of the definition with which revived runs continue; null: each continues with its own.
    definition: Option<&'a str>,
    /// Runs with a greater id are not included.
    newest: RunId,
    /// All runs up to this one have been dealt with.
    dealt: RunId,
    /// The number of runs that were changed.
    done: i64,
    /// The number of runs in which there was nothing left to do, or no question that had been
    /// asked at the request and whose deadline has not passed.
    skipped: i64,
    /// The number of runs that were left unchanged; those in `aside` are not included yet.
    failed: i64,
    /// The number of runs that somebody else has locked: they are tried again later.
    aside: i64,
    /// Up to 20 of the runs that failed, and all runs that are to be tried again.
    failures: Vec<FailureJson<'a>>,
    /// When it was requested.
    created_at: Time,
    /// The person or the program that requested it.
    by: &'a str,
    /// The channel: `api` or `console`.
    channel: &'a str,
    /// When it ended, or was stopped.
    ended_at: Option<Time>,
    /// The person or the program that stopped it.
    stopped_by: Option<&'a str>,
}

/// The properties that select runs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkFilter")]
struct FilterJson<'a> {
    /// Their pipeline; null: any.
    pipeline: Option<&'a str>,
    /// Their states.
    status: &'a [RunStatus],
    /// Only runs that were triggered at this time or later.
    since: Option<Time>,
    /// Only runs that halted in this way.
    kind: Option<KindJson<'a>>,
}

/// A way in which runs halt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkKind")]
struct KindJson<'a> {
    /// The node.
    node: Option<&'a str>,
    /// The reason for the halt, for machines.
    reason: Option<&'a str>,
    /// The class of the error.
    class: Option<&'a str>,
    /// The error's message, without the details that are particular to a run.
    kind: &'a str,
}

/// A run that was left unchanged.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkFailure")]
struct FailureJson<'a> {
    /// The run.
    run_id: RunId,
    /// The reason, for people.
    why: &'a str,
    /// The earliest time at which it is tried again; null: it has failed.
    again_at: Option<Time>,
}

impl<'a> BulkJson<'a> {
    /// The form of a bulk action.
    pub fn of(bulk: &'a Bulk) -> Self {
        let (runs, filter) = match &bulk.selection {
            Selection::Chosen(runs) => (Some(runs.as_slice()), None),
            Selection::Matching(filter) => (None, Some(FilterJson::of(filter))),
        };
        let is_open = bulk.ended_at.is_none();
        let failure = |it: &'a Failure| FailureJson {
            run_id: it.run,
            why: &it.why,
            again_at: it.again.filter(|_| is_open).map(|it| Time::of(it.at)),
        };
        let aside = bulk.aside();
        Self {
            id: bulk.id,
            verb: bulk.verb.as_str(),
            state: match (bulk.ended_at, &bulk.stopped_by) {
                (None, _) => "open",
                (Some(_), None) => "ended",
                (Some(_), Some(_)) => "stopped",
            },
            runs,
            filter,
            definition: bulk.definition.as_deref(),
            newest: RunId(bulk.newest),
            dealt: RunId(bulk.dealt),
            done: bulk.done,
            skipped: bulk.skipped,
            failed: bulk.failed - aside,
            aside,
            failures: bulk.failures.iter().map(failure).collect(),
            created_at: Time::of(bulk.created_at),
            by: &bulk.by,
            channel: &bulk.channel,
            ended_at: bulk.ended_at.map(Time::of),
            stopped_by: bulk.stopped_by.as_deref(),
        }
    }
}

impl<'a> FilterJson<'a> {
    fn of(filter: &'a Filter) -> Self {
        let kind = |it: &'a Kind| KindJson {
            node: it.node.as_deref(),
            reason: it.reason.as_deref(),
            class: it.class.as_deref(),
            kind: &it.error,
        };
        Self {
            pipeline: filter.pipeline.as_deref(),
            status: &filter.statuses,
            since: filter.since.map(Time::of),
            kind: filter.kind.as_ref().map(kind),
        }
    }
}

/// A bulk action in a list.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "BulkOfList")]
pub enum ListedJson<'a> {
    /// A bulk action that can be read.
    Bulk(Box<BulkJson<'a>>),
    /// A bulk action whose row is damaged, or of a newer version: it can be stopped.
    Unreadable {
        /// Its id.
        id: Uuid,
        /// Always `unreadable`.
        state: &'static str,
    },
}

impl<'a> ListedJson<'a> {
    /// The form of a bulk action in a list.
    pub fn of(listed: &'a Listed) -> Self {
        match listed {
            Listed::Bulk(bulk) => Self::Bulk(Box::new(BulkJson::of(bulk))),
            Listed::Unreadable(id) => Self::Unreadable {
                id: *id,
                state: "unreadable",
            },
        }
    }
}

/// The end of a bulk action.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkStopped")]
pub struct StoppedJson {
    /// False if it had already ended.
    pub was_open: bool,
}
