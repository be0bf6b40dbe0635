//! Reports of audits and drills.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::store::report::{self, KINDS, Kind, Report};
use crate::web::Site;
use crate::wire::report::ReportJson;

use super::cursor::AfterReport;
use super::given::{Given, LIMIT, Param, Value};
use super::runs::LIMIT_;
use super::{Answer, Answered};

/// A filter.
pub static KIND: Param<Of> = Param::query("kind", "Only reports of this kind");
/// The page.
pub static AFTER: Param<AfterReport> = Param::query(
    "after",
    "The end of the previous page, as its `Link` header gives it; not to be made by hand",
);

/// A kind of reports.
pub struct Of(Kind);

impl Value for Of {
    fn read(text: &str) -> Result<Self, String> {
        let known = KINDS.into_iter().find(|it| it.as_str() == text);
        let kinds = KINDS.map(Kind::as_str).join(", ");
        known
            .map(Self)
            .ok_or_else(|| format!("one of these is expected: {kinds}"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "enum": KINDS.map(Kind::as_str) })
    }
}

/// `GET /api/v1/reports`
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    let kind = given.get(&KIND).map(|it| it.0);
    let before = given.get(&AFTER).map(|it| it.0);
    let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
    let read = site
        .source
        .read(async move |conn| report::latest(conn, kind, before, limit + 1).await);
    let reports = read.await?;
    let next = |it: &Report| (AFTER.about.name, AfterReport(it.id).text());
    Answer::page(&reports, limit, ReportJson::of, next)
}
