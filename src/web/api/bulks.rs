//! Actions in many runs at once.

use std::sync::Arc;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration;
use crate::machine::bulk::{CHOSEN_MAX, Filter, Kind, Selection};
use crate::machine::kind;
use crate::model::*;
use crate::store::bulk::{self, Listed};
use crate::view;
use crate::web::Site;
use crate::web::bulks::{self, Wanted, unfit};
use crate::web::refusal::Refusal;
use crate::web::visitor;
use crate::wire::bulk::{BulkJson, ListedJson, StoppedJson};

use super::actions::NoBody;
use super::cursor::AfterBulk;
use super::given::{Given, Key, LIMIT, Param};
use super::runs::LIMIT_;
use super::{Answer, Answered, Deed, body};

/// The bulk action in the path.
pub static ID: Param<Key> = Param::path("bulk", "The bulk action's id");
/// The page.
pub static AFTER: Param<AfterBulk> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// The actions that can be made in many runs.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BulkVerb")]
enum BulkVerb {
    Revive,
    Cancel,
    Resume,
}

/// A bulk action to start, in the runs in `runs` or in all runs that match `filter`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewBulk", extend("oneOf" = [
    { "required": ["runs"], "properties": {
        "runs": { "type": "array" }, "filter": { "type": "null" }, "newest": { "type": "null" },
    } },
    { "required": ["filter"], "properties": { "runs": { "type": "null" }, "filter": { "type": "object" } } },
]))]
pub struct BulkBody {
    /// The action. `resume` lets every waiting step continue with the value that it asks about.
    #[serde(deserialize_with = "body::word")]
    verb: BulkVerb,
    /// The chosen runs: at most 500. All of them have to exist.
    #[serde(default)]
    #[schemars(extend("minItems" = 1, "maxItems" = CHOSEN_MAX))]
    runs: Option<Vec<RunId>>,
    /// Selects all runs that have these properties.
    #[serde(default, deserialize_with = "body::optional")]
    filter: Option<FilterBody>,
    /// If true, revived runs continue with the newest definition of the pipeline that the filter names.
    #[serde(default)]
    latest: bool,
    /// Of the runs that match the filter, those with a greater id are not included; if omitted, the limit is the newest
    /// run of the filter's pipeline, or of all. A request that is sent again makes another bulk action; with the same
    /// limit, that one reaches no later run.
    #[serde(default)]
    newest: Option<RunId>,
}

/// The properties that select runs.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "NewBulkFilter")]
pub struct FilterBody {
    /// Their pipeline; if omitted, any.
    pipeline: Option<String>,
    /// Their states; if omitted, all in which the action changes anything.
    #[schemars(extend("items" = { "type": "string", "enum": view::words() }))]
    status: Vec<String>,
    /// Only runs that were triggered at most this long ago: `24h`.
    #[serde(deserialize_with = "body::span")]
    #[schemars(extend("pattern" = duration::PATTERN))]
    since: Option<String>,
    /// Only runs that halted in this way: a kind from `/api/v1/halted`.
    #[serde(deserialize_with = "body::optional")]
    kind: Option<KindBody>,
    /// True for all runs of all pipelines: a filter without another property needs it.
    all: bool,
}

/// A way in which runs halt: an entry of `/api/v1/halted`. Its counts and its runs may be left out.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewBulkKind", extend("required" = ["node", "reason", "class", "kind"]))]
pub struct KindBody {
    /// The pipeline of the runs, which the filter may name as well.
    #[serde(default)]
    pipeline: Option<String>,
    /// The node.
    #[serde(deserialize_with = "given")]
    node: Option<String>,
    /// The reason for the halt, for machines.
    #[serde(deserialize_with = "given")]
    reason: Option<String>,
    /// The class of the error.
    #[serde(deserialize_with = "given")]
    class: Option<String>,
    /// The error's message, without the details that are particular to a run.
    kind: String,
}

/// A field that may be null but not missing: without it, the kind would be another one.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)
}

impl BulkBody {
    fn wanted(self) -> Result<Wanted, Refusal> {
        let mut since = Ok(None);
        let selection = match (self.runs, self.filter) {
            (Some(runs), None) => Selection::chosen(runs),
            (None, Some(filter)) => {
                since = filter.since.as_deref().map(duration::parse).transpose();
                Selection::Matching(filter.read()?)
            }
            _ => return Err(unfit("give either `runs` or a `filter`")),
        };
        Ok(Wanted {
            verb: match self.verb {
                BulkVerb::Revive => Verb::Revive,
                BulkVerb::Cancel => Verb::Cancel,
                BulkVerb::Resume => Verb::Resume,
            },
            selection,
            since: since
                .map_err(|problem| unfit(format!("`since`: {problem}; {}", duration::NOTATION)))?,
            latest: self.latest,
            newest: self.newest,
        })
    }
}

impl FilterBody {
    /// True if it has no property. A program that has lost the value of its only property must not reach all runs.
    fn is_empty(&self) -> bool {
        let one = self.pipeline.is_some() || self.since.is_some() || self.kind.is_some();
        !one && self.status.is_empty()
    }

    fn read(self) -> Result<Filter, Refusal> {
        if self.is_empty() && !self.all {
            let detail = "the filter is empty: name a `pipeline`, a `status`, `since` or a `kind`, or write \
                          `\"all\": true` for all runs of all pipelines";
            return Err(unfit(detail));
        }
        let mut statuses = Vec::new();
        for text in &self.status {
            let status = view::status(text).ok_or_else(|| {
                let words = view::words().join(", ");
                unfit(format!("`status`: a state is one of {words}"))
            })?;
            if !statuses.contains(&status) {
                statuses.push(status);
            }
        }
        let of_kind = self.kind.as_ref().and_then(|it| it.pipeline.clone());
        let pipeline = match (self.pipeline, of_kind) {
            (Some(own), Some(other)) if own != other => {
                let detail = format!("the filter names `{own}`, and its kind `{other}`");
                return Err(unfit(detail));
            }
            (own, other) => own.or(other),
        };
        Ok(Filter {
            pipeline,
            statuses,
            since: None,
            kind: self.kind.map(|it| Kind {
                node: it.node,
                reason: it.reason,
                class: it.class.as_deref().and_then(kind::class),
                error: it.kind,
            }),
        })
    }
}

/// `POST /api/v1/bulk`
pub async fn create(deed: Deed) -> Answered {
    let body: BulkBody = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let wanted = body.wanted()?.checked()?;
    bulks::all_there(&deed.site, &wanted.selection, &deed.visitor).await?;
    let id = bulks::create(&deed.site, wanted, &deed.visitor, by).await?;
    let (bulk, _) = bulks::find(&deed.site, id, &deed.visitor).await?;
    Ok(Answer::json(&BulkJson::of(&bulk))?.status(StatusCode::CREATED))
}

/// `GET /api/v1/bulk`
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let before = given.get(&AFTER).map(|it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let read = site
        .source
        .read(async move |conn| bulk::latest(conn, before, limit + 1).await);
    let bulks = read.await?;
    let next = |it: &Listed| (AFTER.about.name, AfterBulk(it.id()).text());
    Answer::page(&bulks, limit, ListedJson::of, next)
}

/// `GET /api/v1/bulk/{bulk}`
pub async fn one(site: Arc<Site>, given: Given) -> Answered {
    let id = given.need(&ID)?.0;
    let visitor = visitor::asking().ok_or_else(|| bulks::missing(id))?;
    let (bulk, _) = bulks::find(&site, id, &visitor).await?;
    Answer::json(&BulkJson::of(&bulk))
}

/// `DELETE /api/v1/bulk/{bulk}`
pub async fn stop(deed: Deed) -> Answered {
    let id = deed.given.need(&ID)?.0;
    let NoBody {} = deed.body()?;
    let by = deed.visitor.actor(Channel::Api);
    let was_open = bulks::stop(&deed.site, id, &deed.visitor, by).await?;
    Answer::json(&StoppedJson { was_open })
}
