//! The console's pages.
//!
//! Owns: the content of each page, the frame around all of them, and their stylesheet. Each page is a GET whose
//! address describes it completely, works without a script, and shows the time at which it was read. Never: decides
//! anything, or reads except through the `Source`.
//!
//! A page is a file here, which queries the database and words the answer, and a template of the same name in
//! `templates/`.

mod acts;
mod asked;
mod bulks;
mod elements;
mod fields;
mod form;
mod halted;
mod overview;
mod parts;
mod payload;
mod pipelines;
mod processes;
mod rates;
mod run;
mod runs;
mod sign_in;
mod step;
mod text;
mod trigger;
mod trust;
mod waiting;
mod webhooks;

use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::percent::encoded;
use crate::store::definition::VERSION;
use crate::svg;

use super::refusal::Refusal;
use super::visitor::{self, Asking, Visitor};

pub use acts::{actions, ask_cancel, cancel, pause, resume, revive, unpause};
pub use bulks::{all_bulks, ask_bulk, bulk, one_bulk, stop_bulk};
pub use elements::elements;
pub use halted::halted;
pub use overview::overview;
pub use payload::{input, output, step_input, step_output};
pub use pipelines::{pipeline, pipelines};
pub use processes::processes;
pub use run::run;
pub use runs::runs;
pub use sign_in::{ask_sign_in, sign_in, sign_out};
pub use step::step;
pub use text::clip;
pub use trigger::{ask_trigger, trigger};
pub use trust::trust;
pub use waiting::waiting;
pub use webhooks::{send_webhook, webhooks};

/// The stylesheet of all pages, and of the pictures in them.
static STYLE: LazyLock<String> =
    LazyLock::new(|| format!("{}\n{}", include_str!("style.css"), svg::STYLE));

/// The script by which a page renews itself.
const SCRIPT: &str = include_str!("live.js");

/// The script that gives a page its keys.
const KEYS: &str = include_str!("keys.js");

/// The script by which a form is not sent twice at once.
const ONCE: &str = include_str!("once.js");

/// The names of these files, under which browsers may keep them for good.
static STYLE_NAME: LazyLock<String> = LazyLock::new(|| name(&STYLE, "style", "css"));
static SCRIPT_NAME: LazyLock<String> = LazyLock::new(|| name(SCRIPT, "live", "js"));
static KEYS_NAME: LazyLock<String> = LazyLock::new(|| name(KEYS, "keys", "js"));
static ONCE_NAME: LazyLock<String> = LazyLock::new(|| name(ONCE, "once", "js"));

fn name(text: &str, name: &str, kind: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
    format!("{name}-{}.{kind}", digits.collect::<String>())
}

/// Serves a file that pages need.
pub async fn asset(Path(name): Path<String>) -> Result<Response, Refusal> {
    let (kind, text) = match name {
        name if name == *STYLE_NAME => ("text/css; charset=utf-8", STYLE.as_str()),
        name if name == *SCRIPT_NAME => ("text/javascript; charset=utf-8", SCRIPT),
        name if name == *KEYS_NAME => ("text/javascript; charset=utf-8", KEYS),
        name if name == *ONCE_NAME => ("text/javascript; charset=utf-8", ONCE),
        _ => {
            let detail =
                "there is no such file; the page that asks for it is an old one: load it again";
            return Err(Refusal::new(StatusCode::NOT_FOUND, detail));
        }
    };
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, text).into_response())
}

/// The parts around every page.
struct Frame {
    /// The pages to which every page links: their paths, names, and whether this is one of them.
    pages: Vec<(String, &'static str, bool)>,
    /// The database's time when it was read, for people.
    read_at: Option<String>,
    style: &'static str,
    script: &'static str,
    keys: &'static str,
    once: &'static str,
    version: &'static str,
    visitor: Option<Arc<Visitor>>,
}

/// The pages to which every page links.
const PAGES: [(&str, &str); 9] = [
    ("", "Overview"),
    ("runs", "Runs"),
    ("halted", "Halted"),
    ("waiting", "Waiting"),
    ("pipelines", "Pipelines"),
    ("processes", "Processes"),
    ("actions", "Actions"),
    ("bulk", "Bulk actions"),
    ("trust", "Trust"),
];

/// The pages that this visitor may see: with a token for one pipeline, the pages of that pipeline.
fn pages_for(asking: Option<&Asking>) -> Vec<(String, &'static str)> {
    let only = asking.and_then(|it| it.visitor.pipelines.as_deref());
    let mut pages: Vec<(String, &str)> = match only {
        None => PAGES.map(|(path, name)| (path.to_owned(), name)).into(),
        Some([]) => Vec::new(),
        Some([one]) => {
            let one = encoded(one);
            vec![
                (format!("runs?pipeline={one}"), "Runs"),
                (format!("halted?pipeline={one}"), "Halted"),
                ("waiting".to_owned(), "Waiting"),
                (format!("pipelines/{one}"), "Pipeline"),
            ]
        }
        Some(_) => vec![
            (String::new(), "Pipelines"),
            ("waiting".to_owned(), "Waiting"),
        ],
    };
    if asking.is_some_and(|it| it.has_webhooks) && !pages.is_empty() {
        pages.push(("webhooks".to_owned(), "Webhooks"));
    }
    pages
}

impl Frame {
    /// The frame of a page that was read at this time (µs since 1970, by the database); `here` is the first part of
    /// its path.
    fn of(here: &'static str, now: i64) -> Self {
        Self {
            read_at: Some(parts::seconds(now)),
            ..Self::without_time(here)
        }
    }

    fn without_time(here: &'static str) -> Self {
        Self::asked_by(visitor::asked_by(), here)
    }

    fn asked_by(asking: Option<Asking>, here: &'static str) -> Self {
        let pages = pages_for(asking.as_ref()).into_iter();
        let is_here = |path: &str| path.split(['?', '/']).next() == Some(here);
        Self {
            pages: pages
                .map(|(path, name)| (is_here(&path), path, name))
                .map(|(is_here, path, name)| (path, name, is_here))
                .collect(),
            read_at: None,
            style: &STYLE_NAME,
            script: &SCRIPT_NAME,
            keys: &KEYS_NAME,
            once: &ONCE_NAME,
            version: VERSION,
            visitor: asking.map(|it| it.visitor),
        }
    }

    /// The path of a page about all pipelines; for a visitor who may not see all of these, the visitor's own first
    /// page.
    fn way<'a>(&self, path: &'a str) -> &'a str {
        match self.sees_all() {
            true => path,
            false => "/",
        }
    }

    /// True if no page is beyond the visitor's rights.
    fn sees_all(&self) -> bool {
        let visitor = self.visitor.as_ref();
        visitor.is_none_or(|it| it.may_see_all())
    }

    /// The proof for forms that act on this pipeline; none if the visitor may not act on it.
    fn proof_on(&self, pipeline: &str) -> Option<String> {
        let visitor = self.visitor.as_ref()?;
        visitor.may_act_on(pipeline).then(|| visitor.proof.clone())
    }

    /// True when the visitor may act on this pipeline, or on all.
    fn may_act_on(&self, pipeline: Option<&str>) -> bool {
        let may = |visitor: &Arc<Visitor>| match pipeline {
            Some(pipeline) => visitor.may_act_on(pipeline),
            None => visitor.may_act_on_all(),
        };
        self.visitor.as_ref().is_some_and(may)
    }

    /// The proof for forms on a page to which the gate has admitted the visitor.
    fn proof(&self) -> &str {
        self.visitor.as_ref().map_or("", |it| it.proof.as_str())
    }
}

/// A page as a response.
fn page(template: &impl Template) -> Result<Response, Refusal> {
    let page = template.render().map_err(|error| {
        tracing::error!(%error, "a page cannot be made");
        let detail = "the console's log says why";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })?;
    let kind = [(CONTENT_TYPE, HTML)];
    Ok((kind, text::visible(&page)).into_response())
}

/// The inside of a page, and the time at which it was read: the part that is renewed while somebody looks at the
/// page. None for a page that shows no time.
pub fn main_of(page: &str) -> Option<(&str, &str)> {
    let (_, rest) = page.split_once("<main id=\"main\" tabindex=\"-1\">\n")?;
    let (main, _) = rest.rsplit_once("\n</main>")?;
    let rest = main.strip_prefix("<p class=\"asof\">As of <span class=\"id\">")?;
    let (read_at, _) = rest.split_once('<')?;
    Some((main, read_at))
}

const HTML: &str = "text/html; charset=utf-8";

/// A redirect to another page of ours.
fn elsewhere(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response()
}

#[derive(Template)]
#[template(path = "refused.html")]
struct Refused<'a> {
    frame: Frame,
    code: u16,
    title: &'a str,
    detail: &'a str,
    remedy: &'a str,
    /// Links for the visitor: paths and names.
    ways: Vec<(String, &'static str)>,
}

/// The page of a refused request, with its content type. The texts: the title, the reason and the remedy.
pub fn refused(
    status: StatusCode,
    [title, detail, remedy]: [&str; 3],
    way: Option<(String, &'static str)>,
    asking: Option<Asking>,
) -> (&'static str, String) {
    let is_limited = asking.as_ref().is_some_and(|it| !it.visitor.may_see_all());
    let mut ways = match is_limited {
        true => pages_for(asking.as_ref()),
        false => vec![(String::new(), "Overview"), ("runs".to_owned(), "All runs")],
    };
    if let Some(way) = way {
        ways.insert(0, way);
    }
    let refused = Refused {
        frame: Frame::asked_by(asking, "nowhere"),
        code: status.as_u16(),
        title,
        detail,
        remedy,
        ways,
    };
    match refused.render() {
        Ok(page) => (HTML, text::visible(&page)),
        // No words at all would be worse.
        Err(_) => ("text/plain; charset=utf-8", format!("{status}: {detail}\n")),
    }
}
