//! Messages to endpoints about runs.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::model::*;
use crate::store::delivery::{self, Listed, STATES};
use crate::web::Site;
use crate::web::webhooks;
use crate::wire::webhook::{DeliveryJson, ListedDeliveryJson};

use super::actions::NoBody;
use super::cursor::AfterDelivery;
use super::given::{Given, Key, LIMIT, Param, Value};
use super::runs::LIMIT_;
use super::{Answer, Answered, Deed};

/// The delivery in the path.
pub static ID: Param<Key> = Param::path("delivery", "The delivery's id");
/// A filter.
pub static STATE: Param<State> = Param::query("state", "In this state only");
/// The page.
pub static AFTER: Param<AfterDelivery> = Param::query(
    "after",
    "Go on where a page ended: out of its `Link` header, and not to be made by hand",
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
    let state = given.get(&STATE).map(|it| it.0);
    let before = given.get(&AFTER).map(|it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let read = site
        .source
        .read(async move |conn| delivery::latest(conn, state, before, limit + 1).await);
    let deliveries = read.await?;
    let next = |it: &Listed| (AFTER.about.name, AfterDelivery(it.id()).text());
    let told = |it| ListedDeliveryJson::of(it, |endpoint| webhooks::is_configured(&site, endpoint));
    Answer::page(&deliveries, limit, told, next)
}

/// `POST /api/v1/webhooks/{delivery}/send`
pub async fn send(deed: Deed) -> Answered {
    let id = deed.given.need(&ID)?.0;
    let NoBody {} = deed.body()?;
    let delivery = webhooks::send_again(&deed.site, id, deed.visitor.actor(Channel::Api)).await?;
    // One that is not is refused.
    Answer::json(&DeliveryJson::of(&delivery, true))
}
