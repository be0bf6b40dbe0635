//! The halted runs, by kind.

use std::sync::Arc;

use askama::Template;
use askama::filters::HtmlSafe;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::machine::bulk::Filter;
use crate::model::Verb;
use crate::number::grouped;
use crate::percent::encoded;
use crate::store::halted::{self, Halted, HaltedKind};
use crate::store::query;
use crate::view;
use crate::web::Site;
use crate::web::refusal::Refusal;

use super::asked::Asked;
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
    none: NoneLeft,
}

/// The words where no halted run is to be shown.
#[derive(Template)]
#[template(
    source = "{% if let Some(looked_at) = looked_at %}None of the newest {{ looked_at }} halted runs is left: each was \
              revived. Older ones are not looked at here: <a href=\"{{ all }}\">all halted runs</a>.{% else %}No halted \
              runs, apart from those that were revived.{% endif %}",
    ext = "html"
)]
pub struct NoneLeft {
    /// The number of runs that were looked at, if there are older ones.
    looked_at: Option<String>,
    /// The address of the list with the older ones.
    all: String,
}

impl HtmlSafe for NoneLeft {}

impl NoneLeft {
    /// The words about these halted runs, of a pipeline or of all.
    pub fn of(halted: &Halted, pipeline: Option<&str>) -> Self {
        let pipeline = pipeline.map(|it| format!("&pipeline={}", encoded(it)));
        Self {
            looked_at: halted.is_partial.then(|| grouped(halted.looked_at)),
            all: format!("/runs?status=halted{}", pipeline.unwrap_or_default()),
        }
    }
}

/// A kind, as pages show it.
pub struct Kind {
    pub pipeline: String,
    pub encoded: String,
    pub node: String,
    pub reason: String,
    pub class: String,
    pub error: String,
    /// The message of the newest run, if it tells more.
    pub message: Option<String>,
    pub number: String,
    pub runs: Vec<RunLink>,
    /// The number of its runs that are not in this list; it ends with `+` where older runs were not looked at.
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
        let counted = |n: u64| match kind.is_partial {
            true => format!("{}+", grouped(n)),
            false => grouped(n),
        };
        let message = kind.message.trim();
        let class = kind.kind.class.as_deref().map(view::attempt::class);
        Self {
            encoded: encoded(&kind.pipeline),
            pipeline: kind.pipeline.clone(),
            node: clip(&word(&kind.kind.node), LETTERS),
            reason: word(&kind.kind.reason),
            class: clip(&class.unwrap_or_default(), LETTERS),
            error: clip(&kind.kind.error, LETTERS),
            message: (message != kind.kind.error).then(|| clip(message, LETTERS)),
            number: counted(kind.runs),
            more: match kind.runs.saturating_sub(runs.len() as u64) {
                0 => String::new(),
                more => counted(more),
            },
            runs,
            first: parts::ago(kind.first_at, now),
            last: parts::ago(kind.last_at, now),
            is_one: kind.runs == 1 && !kind.is_partial,
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
        none: NoneLeft::of(&halted, pipeline.as_deref()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::bulk;
    use crate::model::RunId;

    #[test]
    fn a_number_says_that_older_halted_runs_were_not_looked_at() {
        let kind = |is_partial, runs| HaltedKind {
            pipeline: "P".to_owned(),
            kind: bulk::Kind {
                node: None,
                reason: None,
                class: None,
                error: String::new(),
            },
            message: String::new(),
            runs,
            ids: vec![RunId::new()],
            first_at: 1,
            last_at: 1,
            is_partial,
        };
        let told = |is_partial, runs| {
            let kind = Kind::of(&kind(is_partial, runs), 2);
            (kind.number, kind.more, kind.is_one)
        };
        let texts = |number: &str, more: &str| (number.to_owned(), more.to_owned());
        for (is_partial, runs, (number, more), is_one) in [
            (false, 1, texts("1", ""), true),
            (true, 1, texts("1+", ""), false),
            (true, 1_501, texts("1,501+", "1,500+"), false),
        ] {
            assert_eq!(told(is_partial, runs), (number, more, is_one));
        }
    }

    #[test]
    fn there_are_no_halted_runs_only_if_all_were_looked_at() {
        let halted = |is_partial| Halted {
            is_partial,
            looked_at: 2_000,
            ..Halted::default()
        };
        let none = NoneLeft::of(&halted(false), Some("P")).to_string();
        assert_eq!(none, "No halted runs, apart from those that were revived.");
        let left = NoneLeft::of(&halted(true), Some("P")).to_string();
        assert!(
            left.starts_with("None of the newest 2,000 halted runs is left: each was revived.")
        );
        assert!(left.contains("pipeline=P\">all halted runs</a>"), "{left}");
    }
}
