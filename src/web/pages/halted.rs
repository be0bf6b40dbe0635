//! The halted runs, by kind.

use std::sync::Arc;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::machine::bulk::Filter;
use crate::model::Verb;
use crate::number::grouped;
use crate::store::halted::{self, HaltedKind};
use crate::store::query;
use crate::view;
use crate::web::Site;
use crate::web::refusal::Refusal;

use super::asked::{Asked, encoded};
use super::bulks::address;
use super::parts::{self, Moment, RunLink};
use super::text::clip;
use super::{Frame, page};

/// The number of kinds that are shown.
const KINDS: usize = 100;

/// The number of a kind's runs that are shown.
const RUNS: usize = 20;

/// The longest error, in characters.
const LETTERS: usize = 240;

#[derive(Template)]
#[template(path = "halted.html")]
struct Page {
    frame: Frame,
    pipeline: Option<String>,
    kinds: Vec<Kind>,
    more_kinds: usize,
    is_partial: bool,
}

/// A kind, as pages show it.
pub struct Kind {
    pub pipeline: String,
    pub encoded: String,
    pub node: String,
    pub reason: String,
    pub class: String,
    pub error: String,
    pub number: String,
    pub runs: Vec<RunLink>,
    /// The number of its runs that are not in this list.
    pub more: String,
    pub first: Moment,
    pub last: Moment,
    pub is_one: bool,
    /// The address of the question that comes before all of them are revived.
    pub revive: String,
}

impl Kind {
    /// A kind, as seen at this time.
    pub fn of(kind: &HaltedKind, now: i64) -> Self {
        let runs: Vec<RunLink> = kind
            .ids
            .iter()
            .take(RUNS)
            .copied()
            .map(parts::run)
            .collect();
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let class = kind.kind.class.as_deref().map(view::attempt::class);
        Self {
            encoded: encoded(&kind.pipeline),
            pipeline: kind.pipeline.clone(),
            node: clip(&word(&kind.kind.node), LETTERS),
            reason: word(&kind.kind.reason),
            class: clip(&class.unwrap_or_default(), LETTERS),
            error: clip(&kind.kind.error, LETTERS),
            number: grouped(kind.runs),
            more: match kind.runs.saturating_sub(runs.len() as u64) {
                0 => String::new(),
                more => grouped(more),
            },
            runs,
            first: parts::ago(kind.first_at, now),
            last: parts::ago(kind.last_at, now),
            is_one: kind.runs == 1,
            revive: address(Verb::Revive, &of_kind(kind), None),
        }
    }
}

fn of_kind(kind: &HaltedKind) -> Filter {
    Filter {
        pipeline: Some(kind.pipeline.clone()),
        kind: Some(kind.kind.clone()),
        ..Filter::default()
    }
}

/// `GET /halted`
pub async fn halted(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["pipeline"])?;
    let pipeline = asked.one("pipeline")?.map(str::to_owned);
    let of = pipeline.clone();
    let read = site.source.read(async move |conn| {
        let halted = halted::by_kind(conn, of.as_deref()).await?;
        Ok((halted, query::now(conn).await?))
    });
    let (halted, now) = read.await?;
    page(&Page {
        frame: Frame::of("halted", now),
        pipeline,
        more_kinds: halted.kinds.len().saturating_sub(KINDS),
        kinds: halted
            .kinds
            .iter()
            .take(KINDS)
            .map(|kind| Kind::of(kind, now))
            .collect(),
        is_partial: halted.is_partial,
    })
}
