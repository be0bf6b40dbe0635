//! The known pipelines, and one of them: its graph and its versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State as Extract};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::definition::difference::{by_line, differences};
use crate::definition::input::Schema;
use crate::machine::layout::Layout;
use crate::metrics::series::{Grain, complete};
use crate::percent::encoded;
use crate::store::definition::short;
use crate::store::{definition, known, page as store, pause, query, series};
use crate::svg::Picture;
use crate::web::refusal::Refusal;
use crate::web::{Site, deeds};

use super::asked::{Asked, missing};
use super::parts::{self, Moment};
use super::rates::{self, Chart, SPANS};
use super::text::clip;
use super::{Frame, page};

/// The number of pipelines that are listed.
const PIPELINES: usize = 10_000;

/// The number of versions that are read of one pipeline, the newest of them.
const VERSIONS: usize = 10_000;

/// The number of one pipeline's versions that are listed.
const LISTED: usize = 100;

/// The number of changes that are told in words.
const CHANGES: usize = 50;

/// The longest text about a pause, in characters.
const LETTERS: usize = 700;

#[derive(Template)]
#[template(path = "pipelines.html")]
struct Page {
    frame: Frame,
    pipelines: Vec<Row>,
}

struct Row {
    name: String,
    encoded: String,
    versions: u64,
    /// Present if there was a run.
    first: Option<Moment>,
    last: Option<Moment>,
}

#[derive(Template)]
#[template(path = "pipeline.html")]
struct One {
    frame: Frame,
    /// Present for a visitor who may act on the pipeline.
    proof: Option<String>,
    /// The fact that it is paused.
    pause: Option<String>,
    name: String,
    encoded: String,
    graph: Option<String>,
    /// The reason why there is no graph.
    unreadable: String,
    /// The schema of its input, if it has one, and the author's words about it.
    input: Option<String>,
    about: String,
    /// Present if there was a run.
    shown: Option<Version>,
    /// A run of it can be started from this page.
    is_defined: bool,
    versions: Vec<Version>,
    more: usize,
    /// The changes in the shown version, if an earlier one can be read as well.
    changes: Option<Changes>,
    chart: Chart,
    spans: Vec<Span>,
}

/// The changes since the version before.
struct Changes {
    before: Version,
    told: Vec<String>,
    more: usize,
    by_line: String,
}

/// A time span for the chart.
struct Span {
    text: &'static str,
    address: String,
    is_chosen: bool,
}

#[derive(Clone)]
struct Version {
    digest: String,
    short: String,
    first: Moment,
    is_shown: bool,
    is_latest: bool,
}

/// `GET /pipelines`
pub async fn pipelines(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    let shared = Arc::clone(&site);
    let read = site.source.read(async move |conn| {
        Ok((
            store::pipelines(conn, PIPELINES).await?,
            known::pipelines(conn, shared.terms.names()).await?,
            query::now(conn).await?,
        ))
    });
    let (versions, names, now) = read.await?;
    let names = names.iter().map(|name| (name.as_str(), None));
    let mut pipelines: BTreeMap<&str, Option<&store::Versions>> = names.collect();
    let seen = versions.iter().map(|it| (it.pipeline.as_str(), Some(it)));
    pipelines.extend(seen);
    let row = |(name, seen): (&str, Option<&store::Versions>)| Row {
        name: name.to_owned(),
        encoded: encoded(name),
        versions: seen.map_or(0, |it| it.n),
        first: seen.map(|it| parts::ago(it.first_at, now)),
        last: seen.map(|it| parts::ago(it.last_at, now)),
    };
    page(&Page {
        frame: Frame::of("pipelines", now),
        pipelines: pipelines.into_iter().map(row).collect(),
    })
}

/// The time span that the chart was requested for.
fn span(asked: Option<&str>) -> Result<(&'static str, &'static str, usize), Refusal> {
    let Some(asked) = asked else {
        return Ok(SPANS[0]);
    };
    let known = SPANS.into_iter().find(|(value, ..)| *value == asked);
    known.ok_or_else(|| {
        let detail = "the `span` of a chart must be `24h` or `7d`";
        Refusal::new(StatusCode::BAD_REQUEST, detail)
    })
}

fn spans(name: &str, version: Option<&str>, chosen: &str) -> Vec<Span> {
    let version = version.map_or_else(String::new, |it| format!("&version={}", encoded(it)));
    let one = |(value, text, _)| Span {
        text,
        address: format!("/pipelines/{}?span={value}{version}", encoded(name)),
        is_chosen: value == chosen,
    };
    SPANS.into_iter().map(one).collect()
}

/// `GET /pipelines/{name}`
pub async fn pipeline(
    Extract(site): Extract<Arc<Site>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["version", "span"])?;
    let version = asked.one("version")?.map(str::to_owned);
    let (span, words, hours) = span(asked.one("span")?)?;
    let definitions = Arc::clone(&site.definitions);
    let (of, wanted) = (name.clone(), version.clone());
    let own = site.terms.definition_of(&name).cloned();
    let configured = own.as_ref().map(|own| own.digest());
    let read = site.source.read(async move |conn| {
        let versions = store::versions(conn, &of, VERSIONS).await?;
        let latest = match &configured {
            Some(digest) => Some(digest.clone()),
            None => definition::latest_of(conn, &of).await?,
        };
        let chosen = wanted.as_ref().or(latest.as_ref());
        let place = versions.iter().position(|it| Some(&it.digest) == chosen);
        let before = place.and_then(|place| versions.get(place + 1));
        let before = match before {
            Some(before) => Some((
                before.clone(),
                definitions.read(conn, &before.digest).await?,
            )),
            None => None,
        };
        let shown = match place.map(|place| &versions[place]) {
            Some(shown) => Some((shown.clone(), definitions.read(conn, &shown.digest).await?)),
            None => None,
        };
        let pause = pause::of_pipeline(conn, &of).await?;
        let now = query::now(conn).await?;
        let until = complete(now);
        let within = (rates::first_hour(until, hours), until);
        let points = series::of_pipeline(conn, &of, Grain::Hour, within, hours).await?;
        Ok((versions, latest, shown, before, pause, points, now))
    });
    let (versions, latest, shown, before, pause, mut points, now) = read.await?;
    points.reverse();
    let chart = rates::chart(
        &clip(&name, LETTERS),
        &points,
        complete(now),
        (words, hours),
    );
    let spans = spans(&name, version.as_deref(), span);
    let (shown, definition) = match (shown, version) {
        (Some((shown, definition)), _) => (Some(shown), Some(definition)),
        (None, Some(version)) => {
            let (name, version) = (clip(&name, LETTERS), clip(&version, LETTERS));
            return Err(missing(format!("{name} has no version {version}")));
        }
        (None, None) => {
            deeds::known(&site, &name).await?;
            (None, own.map(Ok))
        }
    };
    let is_defined = definition.is_some();
    let schema = definition.as_ref().and_then(|it| it.as_ref().ok());
    let schema = schema.and_then(|it| it.input.as_deref());
    let input = schema.map(Schema::pretty);
    let about = schema
        .and_then(|it| it.description.clone())
        .unwrap_or_default();
    let changed = match (&definition, &before) {
        (Some(Ok(new)), Some((before, Ok(old)))) if shown.is_some() => {
            Some((before, differences(old, new), by_line(old, new)))
        }
        _ => None,
    };
    let (graph, unreadable) = match &definition {
        None => (
            None,
            "its definition is known only where its workers are configured".to_owned(),
        ),
        Some(Ok(definition)) => match Layout::of(definition) {
            Some(layout) => {
                let picture = Picture {
                    title: &format!("The graph of {name}"),
                    layout: &layout,
                    states: &BTreeMap::new(),
                    link: None,
                    style: None,
                };
                (Some(picture.svg()), String::new())
            }
            None => (None, "its definition does not form a graph".to_owned()),
        },
        Some(Err(unreadable)) => (None, format!("its {unreadable}; {}", unreadable.remedy())),
    };
    let version = |it: &store::Version| Version {
        short: short(&it.digest).to_owned(),
        first: parts::ago(it.created_at, now),
        is_shown: shown
            .as_ref()
            .is_some_and(|shown| it.digest == shown.digest),
        is_latest: Some(&it.digest) == latest.as_ref(),
        digest: it.digest.clone(),
    };
    let changes = changed.map(|(before, told, by_line)| Changes {
        before: version(before),
        more: told.len().saturating_sub(CHANGES),
        told: told
            .iter()
            .take(CHANGES)
            .map(|it| clip(it, LETTERS))
            .collect(),
        by_line,
    });
    let frame = Frame::of("pipelines", now);
    page(&One {
        changes,
        proof: frame.proof_on(&name),
        chart,
        spans,
        pause: pause.map(|pause| clip(&pause.fact(now), LETTERS)),
        frame,
        encoded: encoded(&name),
        name,
        graph,
        unreadable,
        input,
        about,
        shown: shown.as_ref().map(version),
        is_defined,
        more: versions.len().saturating_sub(LISTED),
        versions: versions.iter().take(LISTED).map(version).collect(),
    })
}
