//! Metrics, as Prometheus asks for them.
//!
//! Owns: how often the database is queried, and which format is wanted. Never: makes a number of its own: all
//! numbers are sums and counts of rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};

use crate::metrics::text::{Format, render};
use crate::metrics::{Counts, Reading, SNAPSHOT_AGE};
use crate::store::metrics as rows;

use super::Site;
use super::source::ReadError;

/// One answer of the database serves all requests within this time,
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// or within this many times the time that the answer took: then the database spends a twentieth of its time
/// on it,
const TIMES_AS_LONG: u32 = 20;

/// but no longer than this.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// The last answer of the database.
#[derive(Default)]
pub struct Scrapes {
    /// Held while the database is queried: other requests wait for the same answer.
    last: tokio::sync::Mutex<Option<Last>>,
}

struct Last {
    /// The time when the database was queried.
    began: Instant,
    until: Instant,
    scraped: Arc<(Counts, Vec<Reading>)>,
}

impl Scrapes {
    /// The last answer of the database, which is queried again if that answer is old. The counts are
    /// required; of the rest, everything that takes too long to read is left out.
    async fn scrape(
        &self,
        site: &Site,
    ) -> Result<(Arc<(Counts, Vec<Reading>)>, Duration), ReadError> {
        let mut last = self.last.lock().await;
        let began = Instant::now();
        if let Some(last) = last.as_ref().filter(|last| began < last.until) {
            return Ok((Arc::clone(&last.scraped), last.began.elapsed()));
        }
        let (source, stale_after) = (&site.source, site.terms.witness.stale_after);
        let counted = source.read(async |conn| rows::counts(conn).await);
        let (counts, mut readings) = counted.await?;
        let more = source.read(async move |conn| rows::readings(conn, stale_after).await);
        readings.extend(in_time(more.await)?);
        let runs = source.read(async |conn| rows::runs(conn).await).await;
        readings.extend(in_time(runs)?);
        let took = began.elapsed();
        let kept = (took * TIMES_AS_LONG).clamp(ASKED_EVERY, KEPT_MAX);
        let scraped = Arc::new((counts, readings));
        *last = Some(Last {
            began,
            until: Instant::now() + kept,
            scraped: Arc::clone(&scraped),
        });
        Ok((scraped, began.elapsed()))
    }
}

fn in_time(readings: Result<Vec<Reading>, ReadError>) -> Result<Vec<Reading>, ReadError> {
    match readings {
        Err(ReadError::Late | ReadError::OnlyReads(_) | ReadError::Hindered(_)) => Ok(Vec::new()),
        readings => readings,
    }
}

fn snapshot_age(age: Duration) -> Reading {
    Reading::new(&SNAPSHOT_AGE, &[], age.as_secs_f64())
}

/// All metrics.
pub async fn metrics(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    let format = wanted(&headers);
    match site.metrics.scrape(&site).await {
        Ok((scraped, age)) => {
            let (counts, readings) = scraped.as_ref();
            let mut readings = readings.clone();
            readings.push(snapshot_age(age));
            let text = render(counts, &readings, format);
            let headers = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
            (headers, text).into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// The requested format: OpenMetrics if it is accepted and no other format is preferred.
fn wanted(headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted = accepted.filter_map(|header| header.to_str().ok());
    let (mut open, mut text) = (0.0_f32, 0.0_f32);
    for range in accepted.flat_map(|header| header.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut quality: f32 = 1.0;
        let mut is_ours = true;
        for part in parts {
            match part.split_once('=') {
                Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                Some(("version", version)) => is_ours = version == "1.0.0",
                _ => {}
            }
        }
        match kind.as_str() {
            "application/openmetrics-text" if is_ours => open = quality.max(open),
            "text/plain" | "text/*" | "*/*" => text = quality.max(text),
            _ => {}
        }
    }
    match open > 0.0 && open >= text {
        true => Format::OpenMetrics,
        false => Format::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_accept_it_and_prefer_nothing_else() {
        // The headers that Prometheus 2.42 and 3 send.
        let old = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let new = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                   text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (old, Format::OpenMetrics),
            (new, Format::OpenMetrics),
            (
                "application/openmetrics-text; version=1.0.0",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            (
                "application/openmetrics-text;q=0.1,text/plain",
                Format::Text,
            ),
            ("text/html,*/*;q=0.8", Format::Text),
            ("", Format::Text),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(wanted(&headers), format, "{accept}");
        }
        assert_eq!(wanted(&HeaderMap::new()), Format::Text);
    }
}
