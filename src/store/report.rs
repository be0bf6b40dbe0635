//! Reports: the findings of audits and drills, kept for later readers.
//!
//! Owns: their rows, the newest of each kind, and the form of their figures. Never: audits anything, or
//! decides when to do so.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::audit::{INVARIANTS, Violation};
use super::conn::{Conn, Row};
use super::error::Error;
use super::statement::statements;

/// How many reports of each kind are kept.
pub const KEPT: usize = 100;

/// How many older reports one write forgets: there is one of them, unless clocks have disagreed.
const FORGOTTEN_AT_ONCE: usize = 500;

/// How many letters of a drill's result are kept.
const LETTERS: usize = 500;

statements! {
    // A damaged row may have texts of any length: this bounds how much of them is read.
    RECORD_REPORT = "
        INSERT INTO ductwork_reports (id, kind, at, ok, figures) VALUES (:id, :kind, {now}, :ok, :figures)";
    /// Ids begin with the time: the last are the newest, as far as the clocks agree.
    OLD_REPORTS = "
        SELECT r.id FROM ductwork_reports r WHERE r.kind = :kind
         ORDER BY r.kind DESC, r.id DESC LIMIT :n OFFSET :kept";
    FORGET_REPORTS = "{delete:ductwork_reports;b(id id)} WHERE {of:ductwork_reports.id;b(id id)}";
    REPORTS = "
        SELECT r.id, substr(r.kind, 1, 1000) AS kind, r.at, r.ok, substr(r.figures, 1, 100000) AS figures
          FROM ductwork_reports r WHERE r.id < :before ORDER BY r.id DESC LIMIT :n";
    REPORTS_OF_KIND = "
        SELECT r.id, substr(r.kind, 1, 1000) AS kind, r.at, r.ok, substr(r.figures, 1, 100000) AS figures
          FROM ductwork_reports r WHERE r.kind = :kind AND r.id < :before
         ORDER BY r.kind DESC, r.id DESC LIMIT :n";
}

/// The subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every invariant was checked.
    Audit,
    /// Races were played through beside the database.
    Drill,
}

/// The kinds that this version knows.
pub const KINDS: [Kind; 2] = [Kind::Audit, Kind::Drill];

impl Kind {
    /// The stored word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::Drill => "drill",
        }
    }
}

/// The findings of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditFigures {
    /// The version of the program.
    pub version: String,
    /// How long it took.
    pub took_ms: u64,
    /// The grace period: younger breaches were left out.
    pub grace_ms: u64,
    /// Each checked invariant, with how many rows break it; for a thousand or more, at least a thousand.
    pub invariants: BTreeMap<String, u64>,
}

impl AuditFigures {
    /// The figures of an audit by this program.
    pub fn of(violations: &[Violation], grace: Duration, took: Duration) -> Self {
        let names = INVARIANTS.iter().map(|it| (it.name.to_owned(), 0));
        let mut invariants: BTreeMap<String, u64> = names.collect();
        for violation in violations {
            *invariants
                .entry(violation.invariant.to_owned())
                .or_default() += 1;
        }
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            took_ms: milliseconds(took),
            grace_ms: milliseconds(grace),
            invariants,
        }
    }
}

/// The results of drills.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrillFigures {
    /// The version of the program.
    pub version: String,
    /// The database, and how carefully it keeps committed data.
    pub database: String,
    /// How long all drills took.
    pub took_ms: u64,
    /// The result of each drill.
    pub drills: Vec<Drilled>,
}

/// The result of a drill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drilled {
    /// Its name.
    pub drill: String,
    /// The story that it plays.
    pub title: String,
    /// True where it has shown what it is meant to show.
    pub ok: bool,
    /// The proof, or the failure.
    pub text: String,
}

impl Drilled {
    /// The result of a drill; a long text is cut to its beginning.
    pub fn new(drill: &str, title: &str, ok: bool, text: &str) -> Self {
        Self {
            drill: drill.to_owned(),
            title: title.to_owned(),
            ok,
            text: text.chars().take(LETTERS).collect(),
        }
    }
}

/// A time, in milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its key.
    pub id: Uuid,
    /// Its kind: a newer version may know further ones.
    pub kind: String,
    /// µs since 1970.
    pub at: i64,
    /// True where nothing was wrong.
    pub ok: bool,
    /// The figures, as they are stored.
    pub figures: String,
}

impl Report {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("kind")?,
            at: row.get("at")?,
            ok: row.get::<i64>("ok")? != 0,
            figures: row.get("figures")?,
        })
    }

    /// The parsed figures; none where they cannot be read.
    pub fn figures<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(&self.figures).ok()
    }
}

/// Keeps a report, and forgets the oldest of its kind.
pub async fn record(
    conn: &mut Conn,
    kind: Kind,
    ok: bool,
    figures: &impl Serialize,
) -> Result<(), Error> {
    let figures = serde_json::to_string(figures).expect("texts and numbers are JSON");
    let kind = ("kind", kind.as_str().into());
    conn.transaction(async |conn| {
        let args = [
            ("id", Uuid::now_v7().into()),
            kind.clone(),
            ("ok", i64::from(ok).into()),
            ("figures", (&figures).into()),
        ];
        conn.write(&RECORD_REPORT, &args, 1).await?;
        let args = [
            kind.clone(),
            ("n", FORGOTTEN_AT_ONCE.into()),
            ("kept", KEPT.into()),
        ];
        super::forget(conn, &OLD_REPORTS, &FORGET_REPORTS, &args).await?;
        Ok(())
    })
    .await
}

/// Reports, newest first: at most `n` that are older than `before`, of this kind or of any.
pub async fn latest(
    conn: &mut Conn,
    kind: Option<Kind>,
    before: Option<Uuid>,
    n: usize,
) -> Result<Vec<Report>, Error> {
    let mut args = vec![
        ("before", before.unwrap_or(Uuid::max()).into()),
        ("n", n.into()),
    ];
    let rows = match kind {
        None => conn.fetch(&REPORTS, &args).await?,
        Some(kind) => {
            args.push(("kind", kind.as_str().into()));
            conn.fetch(&REPORTS_OF_KIND, &args).await?
        }
    };
    rows.iter().map(Report::read).collect()
}
