//! Interventions in many runs at once.

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::machine::bulk::{Failure, Filter, Kind, Selection};
use crate::model::*;
use crate::store::bulk::{Bulk, Listed};

use super::Time;

/// A bulk action: the same deed in many runs, one after the other.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Bulk")]
pub struct BulkJson<'a> {
    /// Its id.
    id: Uuid,
    /// `revive`, `cancel` or `resume`.
    verb: &'a str,
    /// `open` while it is worked on, then `ended` or `stopped`.
    state: &'static str,
    /// The runs that were chosen, where they were.
    runs: Option<&'a [RunId]>,
    /// The properties of its runs, where they were not chosen.
    filter: Option<FilterJson<'a>>,
    /// The digest of the definition with which revived runs go on; none: each with its own.
    definition: Option<&'a str>,
    /// No run with a greater id is among them.
    newest: RunId,
    /// All runs up to this one have been dealt with.
    dealt: RunId,
    /// Runs that were changed.
    done: i64,
    /// Runs in which there was nothing to do any more.
    skipped: i64,
    /// Runs that were left as they are; those in `aside` are not among them yet.
    failed: i64,
    /// Runs that somebody else has locked: they are tried again later.
    aside: i64,
    /// Up to 20 of those that failed, and all that are to be tried again.
    failures: Vec<FailureJson<'a>>,
    /// When it was asked for.
    created_at: Time,
    /// The person or the program that asked.
    by: &'a str,
    /// The way: `api` or `console`.
    channel: &'a str,
    /// When it ended, or was stopped.
    ended_at: Option<Time>,
    /// The person or the program that stopped it.
    stopped_by: Option<&'a str>,
}

/// The properties of runs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkFilter")]
struct FilterJson<'a> {
    /// Their pipeline; none: any.
    pipeline: Option<&'a str>,
    /// Their states.
    status: &'a [RunStatus],
    /// Triggered then or later.
    since: Option<Time>,
    /// Halted in this way.
    kind: Option<KindJson<'a>>,
}

/// A way in which runs halt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkKind")]
struct KindJson<'a> {
    /// The node.
    node: Option<&'a str>,
    /// Why, for machines.
    reason: Option<&'a str>,
    /// The class of the error.
    class: Option<&'a str>,
    /// The error's message, without what is particular to a run.
    kind: &'a str,
}

/// A run that was left as it is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BulkFailure")]
struct FailureJson<'a> {
    /// The run.
    run_id: RunId,
    /// The reason, for people.
    why: &'a str,
    /// It is tried again, not before this; none: it has failed.
    again_at: Option<Time>,
}

impl<'a> BulkJson<'a> {
    /// Of a bulk action.
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

/// A bulk action of a list.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "BulkOfList")]
pub enum ListedJson<'a> {
    /// One that can be read.
    Bulk(Box<BulkJson<'a>>),
    /// One whose row is damaged, or of a newer version: it can be stopped.
    Unreadable {
        /// Its id.
        id: Uuid,
        /// `unreadable`.
        state: &'static str,
    },
}

impl<'a> ListedJson<'a> {
    /// Of a bulk action.
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
    /// False: it had ended before.
    pub was_open: bool,
}
