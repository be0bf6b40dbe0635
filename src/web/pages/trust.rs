//! The evidence for the stored state: the results of the last audit and of the last drills.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;
use uuid::Uuid;

use crate::number::grouped;
use crate::store::audit::{INVARIANTS, ROWS_MAX};
use crate::store::query;
use crate::store::report::{self, AuditFigures, DrillFigures, Kind, Report};
use crate::time;
use crate::web::Site;
use crate::web::refusal::Refusal;

use super::asked::{self, Asked};
use super::parts::{self, Moment, State};
use super::text::clip;
use super::{Frame, page};

/// Reports per page.
const LISTED: usize = 20;

/// The longest text, in characters.
const LETTERS: usize = 500;

/// The greatest number of an audit's checks, and of drills, of any version: there are fewer.
const CHECKS: usize = 100;

#[derive(Template)]
#[template(path = "trust.html")]
struct Page {
    frame: Frame,
    /// The number of invariants that this version knows.
    known: usize,
    audit: Option<Audit>,
    drills: Option<Drills>,
    reports: Vec<Listed>,
    older: Option<String>,
}

/// An audit, for people.
struct Audit {
    at: Moment,
    ok: bool,
    broken: usize,
    took: String,
    grace: String,
    version: String,
    /// Empty if its figures cannot be read.
    checks: Vec<Check>,
}

struct Check {
    state: State,
    name: String,
    /// The invariant as a sentence.
    sentence: String,
    rows: String,
}

/// Drills, for people.
struct Drills {
    at: Moment,
    ok: bool,
    took: String,
    version: String,
    database: String,
    drills: Vec<Drill>,
}

struct Drill {
    state: State,
    name: String,
    title: String,
    text: String,
}

/// A report in the list of all.
struct Listed {
    kind: String,
    at: Moment,
    state: State,
}

impl Audit {
    fn of(report: &Report, now: i64) -> Self {
        let figures: AuditFigures = report.figures().unwrap_or_default();
        let checks = checks(&figures.invariants);
        let is_broken = |it: &&u64| **it > 0;
        Self {
            at: parts::ago(report.at, now),
            ok: report.ok,
            broken: figures.invariants.values().filter(is_broken).count(),
            took: time::span(Duration::from_millis(figures.took_ms)),
            grace: time::span(Duration::from_millis(figures.grace_ms)),
            version: clip(&figures.version, LETTERS),
            checks,
        }
    }
}

/// The invariants of this version, and those that only the version that ran the audit knew: the broken ones first.
fn checks(found: &BTreeMap<String, u64>) -> Vec<Check> {
    let known = INVARIANTS.iter().map(|it| {
        let sentence = sentence(it.title);
        check(it.name, sentence, found.get(it.name).copied())
    });
    let is_known = |name: &str| INVARIANTS.iter().any(|it| it.name == name);
    let further = found.iter().filter(|(name, _)| !is_known(name));
    let further = further.map(|(name, rows)| {
        let sentence = "Another version of the program knows this one.".to_owned();
        check(name, sentence, Some(*rows))
    });
    let mut checks: Vec<(bool, Check)> = known.chain(further.take(CHECKS)).collect();
    checks.sort_by_key(|(is_broken, _)| !is_broken);
    match found.is_empty() {
        true => Vec::new(),
        false => checks.into_iter().map(|(_, check)| check).collect(),
    }
}

fn check(name: &str, sentence: String, rows: Option<u64>) -> (bool, Check) {
    let at_least = match rows {
        Some(rows) if rows >= ROWS_MAX as u64 => "at least ",
        _ => "",
    };
    let check = Check {
        state: parts::of_check(rows.map(|rows| rows == 0)),
        name: clip(name, LETTERS),
        sentence,
        rows: rows.map_or_else(String::new, |rows| format!("{at_least}{}", grouped(rows))),
    };
    (rows.is_some_and(|rows| rows > 0), check)
}

/// A title as a sentence.
fn sentence(title: &str) -> String {
    let mut chars = title.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), chars.as_str())
}

impl Drills {
    fn of(report: &Report, now: i64) -> Self {
        let figures: DrillFigures = report.figures().unwrap_or_default();
        let drill = |it: &report::Drilled| Drill {
            state: parts::of_drill(it.ok),
            name: clip(&it.drill, LETTERS),
            title: clip(&it.title, LETTERS),
            text: clip(&it.text, LETTERS),
        };
        Self {
            at: parts::ago(report.at, now),
            ok: report.ok,
            took: time::span(Duration::from_millis(figures.took_ms)),
            version: clip(&figures.version, LETTERS),
            database: clip(&figures.database, LETTERS),
            drills: figures.drills.iter().take(CHECKS).map(drill).collect(),
        }
    }
}

impl Listed {
    fn of(report: &Report, now: i64) -> Self {
        Self {
            kind: clip(&report.kind, LETTERS),
            at: parts::ago(report.at, now),
            state: match report.kind == Kind::Drill.as_str() {
                true => parts::of_drill(report.ok),
                false => parts::of_check(Some(report.ok)),
            },
        }
    }
}

/// `GET /trust`
pub async fn trust(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    let asked = Asked::of(&uri, &["before"])?;
    let before: Option<Uuid> = match asked.one("before")? {
        Some(text) => Some(asked::id(text, "a report")?),
        None => None,
    };
    let read = site.source.read(async move |conn| {
        Ok((
            report::latest(conn, Some(Kind::Audit), None, 1).await?,
            report::latest(conn, Some(Kind::Drill), None, 1).await?,
            report::latest(conn, None, before, LISTED + 1).await?,
            query::now(conn).await?,
        ))
    });
    let (audits, drills, reports, now) = read.await?;
    let last = reports.get(LISTED - 1).filter(|_| reports.len() > LISTED);
    page(&Page {
        frame: Frame::of("trust", now),
        known: INVARIANTS.len(),
        audit: audits.first().map(|it| Audit::of(it, now)),
        drills: drills.first().map(|it| Drills::of(it, now)),
        older: last.map(|it| format!("/trust?before={}", it.id)),
        reports: reports
            .iter()
            .take(LISTED)
            .map(|it| Listed::of(it, now))
            .collect(),
    })
}
