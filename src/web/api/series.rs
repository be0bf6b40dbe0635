//! Counts of a pipeline over time.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::metrics::series::{GRAINS, Grain, Point};
use crate::store::{query, series};
use crate::time::micros;
use crate::web::{Site, deeds};
use crate::wire::series::PointJson;

use super::actions::NAME;
use super::cursor::AfterPoint;
use super::given::{Given, LIMIT, Param, Span, Value};
use super::runs::LIMIT_;
use super::{Answer, Answered};

/// A filter.
pub static SINCE: Param<Span> = Param::query(
    "since",
    "Only points that begin at most this long ago: a number of seconds, or a number with a unit (`90m`, `24h`, `7d`)",
);
/// The length of time of a point.
pub static GRAIN: Param<Of> = Param::query(
    "grain",
    "The length of a point: a minute, kept for a week, or an hour, kept for 400 days",
);
/// The page.
pub static AFTER: Param<AfterPoint> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// The grain of points.
pub struct Of(Grain);

impl Value for Of {
    fn read(text: &str) -> Result<Self, String> {
        let known = GRAINS.into_iter().find(|it| it.as_str() == text);
        let grains = GRAINS.map(Grain::as_str).join(", ");
        known
            .map(Self)
            .ok_or_else(|| format!("one of these is expected: {grains}"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "enum": GRAINS.map(Grain::as_str), "default": Grain::Minute.as_str() })
    }
}

/// `GET /api/v1/pipelines/{name}/series`
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let name = given.need(&NAME)?.0;
    let grain = given.get(&GRAIN).map_or(Grain::Minute, |it| it.0);
    let since = given.get(&SINCE).map(|it| it.0);
    let before = given.get(&AFTER).map_or(i64::MAX, |it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let pipeline = name.clone();
    let read = site.source.read(async move |conn| {
        let from = match since {
            Some(since) => query::now(conn).await?.saturating_sub(micros(since)),
            None => i64::MIN,
        };
        series::of_pipeline(conn, &pipeline, grain, (from, before), limit + 1).await
    });
    let points = read.await?;
    if points.is_empty() {
        deeds::known(&site, &name).await?;
    }
    let next = |it: &Point| (AFTER.about.name, AfterPoint(it.at).text());
    Answer::page(&points, limit, PointJson::of, next)
}
