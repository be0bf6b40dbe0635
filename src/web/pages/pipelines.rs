//! The pipelines that are known here, and one of them: its graph and its versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State as Extract};
use axum::http::Uri;
use axum::response::Response;

use crate::definition::input::Schema;
use crate::machine::layout::Layout;
use crate::store::definition::short;
use crate::store::{known, page as store, pause, query};
use crate::svg::Picture;
use crate::web::refusal::Refusal;
use crate::web::{Site, deeds};

use super::asked::{Asked, encoded, missing};
use super::parts::{self, Moment};
use super::text::clip;
use super::{Frame, page};

/// Versions that are read: of all pipelines together.
const VERSIONS: usize = 10_000;

/// Versions of one pipeline that are listed.
const LISTED: usize = 100;

/// Letters of a pause.
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
    versions: usize,
    /// There where there was a run.
    first: Option<Moment>,
    last: Option<Moment>,
}

#[derive(Template)]
#[template(path = "pipeline.html")]
struct One {
    frame: Frame,
    /// There for a visitor who may act on it.
    proof: Option<String>,
    /// The fact that it is paused.
    pause: Option<String>,
    name: String,
    encoded: String,
    graph: Option<String>,
    /// Why there is no graph.
    unreadable: String,
    /// The schema of its input, where it has one, and the author's words about it.
    input: Option<String>,
    about: String,
    /// There where there was a run.
    shown: Option<Version>,
    /// A run of it can be started from here.
    is_defined: bool,
    versions: Vec<Version>,
    more: usize,
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
            store::versions(conn, VERSIONS).await?,
            known::pipelines(conn, shared.terms.names()).await?,
            query::now(conn).await?,
        ))
    });
    let (versions, names, now) = read.await?;
    let names = names.iter().map(|name| (name.as_str(), Vec::new()));
    let mut pipelines: BTreeMap<&str, Vec<i64>> = names.collect();
    for version in &versions {
        let seen = pipelines.entry(&version.pipeline).or_default();
        seen.push(version.created_at);
    }
    let row = |(name, seen): (&str, Vec<i64>)| Row {
        name: name.to_owned(),
        encoded: encoded(name),
        versions: seen.len(),
        first: seen.iter().min().map(|at| parts::ago(*at, now)),
        last: seen.iter().max().map(|at| parts::ago(*at, now)),
    };
    page(&Page {
        frame: Frame::of("pipelines", now),
        pipelines: pipelines.into_iter().map(row).collect(),
    })
}

/// `GET /pipelines/{name}`
pub async fn pipeline(
    Extract(site): Extract<Arc<Site>>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["version"])?;
    let version = asked.one("version")?.map(str::to_owned);
    let definitions = Arc::clone(&site.definitions);
    let (of, wanted) = (name.clone(), version.clone());
    let read = site.source.read(async move |conn| {
        let mut versions = store::versions(conn, VERSIONS).await?;
        versions.retain(|version| version.pipeline == of);
        let shown = match &wanted {
            Some(digest) => versions.iter().find(|it| it.digest == *digest),
            None => versions.last(),
        };
        let shown = match shown {
            Some(shown) => Some((shown.clone(), definitions.read(conn, &shown.digest).await?)),
            None => None,
        };
        let pause = pause::of_pipeline(conn, &of).await?;
        Ok((versions, shown, pause, query::now(conn).await?))
    });
    let (versions, shown, pause, now) = read.await?;
    let latest = versions.last().map(|it| it.digest.clone());
    let (shown, definition) = match (shown, version) {
        (Some((shown, definition)), _) => (Some(shown), Some(definition)),
        (None, Some(version)) => {
            let (name, version) = (clip(&name, LETTERS), clip(&version, LETTERS));
            return Err(missing(format!("{name} has no version {version}")));
        }
        (None, None) => {
            deeds::known(&site, &name).await?;
            let own = site.terms.definition_of(&name);
            (None, own.map(|own| Ok(Arc::clone(own))))
        }
    };
    let is_defined = definition.is_some();
    let schema = definition.as_ref().and_then(|it| it.as_ref().ok());
    let schema = schema.and_then(|it| it.input.as_deref());
    let input = schema.map(Schema::pretty);
    let about = schema
        .and_then(|it| it.description.clone())
        .unwrap_or_default();
    let (graph, unreadable) = match definition {
        None => (
            None,
            "its definition is only where its workers are configured".to_owned(),
        ),
        Some(Ok(definition)) => match Layout::of(&definition) {
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
            None => (None, "its definition is no pipeline's graph".to_owned()),
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
    let frame = Frame::of("pipelines", now);
    page(&One {
        proof: frame.proof_on(&name),
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
        versions: versions.iter().rev().take(LISTED).map(version).collect(),
    })
}
