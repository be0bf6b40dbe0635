//! Messages to endpoints about runs.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::model::*;
use crate::store::delivery::{self, Filter, Listed, STATES};
use crate::web::{Site, deeds, visitor, webhooks};
use crate::wire::webhook::{DeliveryJson, ListedDeliveryJson};

use super::actions::NoBody;
use super::cursor::AfterDelivery;
use super::given::{Given, Key, LIMIT, Param, Text, Value};
use super::runs::LIMIT_;
use super::{Answer, Answered, Deed};

/// The delivery in the path.
pub static ID: Param<Key> = Param::path("delivery", "The delivery's id");
/// A filter.
pub static STATE: Param<State> = Param::query("state", "Only messages in this state");
/// A filter.
pub static ENDPOINT: Param<Text> =
    Param::query("endpoint", "Only messages to the endpoint of this name");
/// A filter.
pub static PIPELINE: Param<Text> = Param::query(
    "pipeline",
    "Only messages about runs of this pipeline; if omitted, of all pipelines that the token is for",
)
.must_exist();
/// The page.
pub static AFTER: Param<AfterDelivery> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// A state of deliveries.
pub struct State(&'static str);

impl Value for State {
    fn read(text: &str) -> Result<Self, String> {
        let known = STATES.into_iter().find(|it| *it == text);
        known
            .map(Self)
            .ok_or_else(|| format!("one of these is expected: {}", STATES.join(", ")))
    }

    fn schema() -> Json {
        json!({ "type": "string", "enum": STATES })
    }
}

/// `GET /api/v1/webhooks`
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let pipeline = given.get(&PIPELINE).map(|it| it.0);
    let pipelines = match visitor::asking() {
        Some(visitor) => webhooks::pipelines(&visitor, pipeline)?,
        None => Some(Vec::new()),
    };
    let filter = Filter {
        state: given.get(&STATE).map(|it| it.0),
        endpoint: given.get(&ENDPOINT).map(|it| it.0),
        pipelines,
        before: given.get(&AFTER).map(|it| it.0),
        limit: limit + 1,
    };
    let read = site
        .source
        .read(async move |conn| delivery::latest(conn, &filter).await);
    let deliveries = read.await?;
    if let Some(Text(pipeline)) = given.get(&PIPELINE).filter(|_| deliveries.is_empty()) {
        deeds::known(&site, &pipeline).await?;
    }
    let next = |it: &Listed| (AFTER.about.name, AfterDelivery(it.id()).text());
    let told = |it| ListedDeliveryJson::of(it, |endpoint| webhooks::is_configured(&site, endpoint));
    Answer::page(&deliveries, limit, told, next)
}

/// `POST /api/v1/webhooks/{delivery}/send`
pub async fn send(deed: Deed) -> Answered {
    let id = deed.given.need(&ID)?.0;
    let NoBody {} = deed.body()?;
    let delivery = webhooks::send_again(&deed.site, id, &deed.visitor, Channel::Api).await?;
    // A delivery to any other endpoint is refused.
    Answer::json(&DeliveryJson::of(&delivery, true))
}
