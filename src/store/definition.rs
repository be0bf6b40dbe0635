//! Definitions, stored once per digest and read once per process.
//!
//! Owns: the definitions that a process remembers, and those that it cannot read, which its claims
//! leave out for a while. Never: the requirements on a definition (`definition::canonical`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::definition::{Definition, canonical};
use crate::model::RunStatus;

use super::conn::Conn;
use super::error::Error;
use super::page;
use super::statement::{Rows, statements};

statements! {
    /// A row per version of a pipeline that was ever triggered, without its contents.
    LATEST_DEFINITIONS = "
        SELECT x.pipeline, x.digest, x.versions
          FROM (SELECT d.pipeline, d.digest, count(*) OVER (PARTITION BY d.pipeline) AS versions,
                       row_number() OVER (PARTITION BY d.pipeline ORDER BY d.created_at DESC, d.digest DESC) AS place
                  FROM ductwork_definitions d) x
         WHERE x.place = 1 ORDER BY x.pipeline LIMIT :n";
    /// For each pipeline the newest run that was triggered. The revivals that follow it are passed over one by one; they
    /// are few, because a person has asked for each, or for all of a bulk action.
    NEWEST_COMPLETED = "
        SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r {by:ductwork_runs_completed}
                             WHERE r.status = 'completed' AND {key:r.pipeline;b.pipeline}
                               AND r.revived_from IS NULL AND r.pruning_at IS NULL
                             ORDER BY r.pipeline DESC, r.id DESC LIMIT 1) AS id
          FROM {rows:b(pipeline text)}";
    NEWEST_OF_STATUS = "
        SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r {by:ductwork_runs_others}
                             WHERE r.status <> 'completed' AND r.status = :status AND {key:r.pipeline;b.pipeline}
                               AND r.revived_from IS NULL AND r.pruning_at IS NULL
                             ORDER BY r.status DESC, r.pipeline DESC, r.id DESC LIMIT 1) AS id
          FROM {rows:b(pipeline text)}";
    DEFINITIONS_OF_RUNS = "
        SELECT r.pipeline, r.definition FROM {rows:b(id id)} JOIN ductwork_runs r ON {key:r.id;b.id}";
    STORED_DEFINITION = "
        SELECT digest, pipeline, body, created_at FROM ductwork_definitions WHERE digest = :digest";
    LOAD_DEFINITION = "SELECT body FROM ductwork_definitions WHERE digest = :digest";
    SAVE_DEFINITION = "
        INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
        VALUES (:digest, :pipeline, :body, {now})
        {keep:ductwork_definitions;digest}";
}

/// How long a process leaves to others what it cannot read, at first and at most, so that it does not keep
/// trying in vain. Others may have it at once, because one of them may be of a newer version.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// A process leaves out at most this many definitions, and this many rows, at once: each of its claims
/// sends them all. The rest is given back with a delay for everybody.
const LEFT_OUT_MAX: usize = 1_000;

/// This version, as its messages name it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A stored definition that this version cannot use, and with it everything that depends on the definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("definition {} {}: {reason}", short(digest), trouble(*is_damaged))]
pub struct Unreadable {
    /// Its digest.
    pub digest: String,
    /// The reason.
    pub reason: String,
    /// It differs from what was stored: no version can read it.
    pub is_damaged: bool,
    /// The delay with which everything that depends on it is given back: none, where this process
    /// leaves it out.
    pub delay: Duration,
}

impl Unreadable {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self.is_damaged {
            true => DAMAGED_REMEDY,
            false => "start a newer `ductworkd`",
        }
    }
}

/// The remedy where a definition is damaged.
pub const DAMAGED_REMEDY: &str =
    "put a backup of the database back, or cancel the runs that have this definition";

fn trouble(is_damaged: bool) -> String {
    match is_damaged {
        true => "is damaged in the database".to_owned(),
        false => format!("cannot be read by this version ({VERSION})"),
    }
}

/// The part of a digest that people compare.
pub fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

impl From<Unreadable> for Error {
    fn from(unreadable: Unreadable) -> Self {
        Self::Corrupt(unreadable.to_string())
    }
}

/// The definitions and rows that a process currently leaves out when it claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    digests: Vec<String>,
    rows: Vec<Uuid>,
}

impl LeftOut {
    /// True where nothing is left out, which is the rule.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty() && self.rows.is_empty()
    }

    /// Leaves out these rows as well.
    #[must_use]
    pub fn and(mut self, rows: impl Iterator<Item = Uuid>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// The rows and the definitions, for the statements that skip them when they claim.
    pub(super) fn rows(&self) -> [Rows<'_>; 2] {
        [
            Rows::new().ids("id", self.rows.iter().copied()),
            Rows::new().texts("digest", self.digests.iter().map(String::as_str)),
        ]
    }
}

/// The definitions that a process has met. They never change, so they are never read twice; but those that the
/// process could not read are tried again.
#[derive(Default)]
pub struct Definitions {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    read: HashMap<String, Arc<Definition>>,
    unread: HashMap<String, Unread>,
    /// Rows that could not be read although their definitions could, and the end of the time for which they are
    /// left out.
    rows: HashMap<Uuid, Instant>,
}

struct Unread {
    reason: Reason,
    /// The pause after the last attempt.
    pause: Duration,
    until: Instant,
}

impl Definitions {
    /// The definition with this digest, for callers that can do nothing without it.
    pub async fn load(&self, conn: &mut Conn, digest: &str) -> Result<Arc<Definition>, Error> {
        Ok(self.read(conn, digest).await??)
    }

    /// The definition with this digest, or the reason why this version cannot use it.
    pub async fn read(
        &self,
        conn: &mut Conn,
        digest: &str,
    ) -> Result<Result<Arc<Definition>, Unreadable>, Error> {
        if let Some(known) = self.known().get(digest, Instant::now()) {
            return Ok(known);
        }
        let args = [("digest", digest.into())];
        let row = conn.fetch_optional(&LOAD_DEFINITION, &args).await?;
        let read = match row {
            Some(row) => {
                let body: String = row.get("body")?;
                Definition::from_canonical(&body).map_err(|error| Reason::of(&error, digest, &body))
            }
            None => Err(Reason::new("it is not there", true)),
        };
        Ok(self.known().learn(digest, read, Instant::now()))
    }

    /// Leaves out a row that cannot be read, whatever its definition. Returns the delay with which it is
    /// given back: none, unless too many are left out.
    pub fn leave_out(&self, row: Uuid) -> Duration {
        self.known().leave_out(row, Instant::now())
    }

    /// The definitions and rows that this process currently leaves to others.
    pub fn left_out(&self) -> LeftOut {
        self.known().left_out(Instant::now())
    }

    /// The definition with this digest, if it was met before.
    pub fn get(&self, digest: &str) -> Option<Arc<Definition>> {
        self.known().read.get(digest).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a stored definition cannot be used.
#[derive(Clone)]
struct Reason {
    text: String,
    is_damaged: bool,
}

impl Reason {
    fn new(text: impl Into<String>, is_damaged: bool) -> Self {
        let text = text.into();
        Self { text, is_damaged }
    }

    /// No version writes a text that is no JSON, or that has another digest. An unknown word is nevertheless
    /// attributed to a newer version: a person who tried such a version may have edited the row.
    fn of(error: &canonical::Error, digest: &str, body: &str) -> Self {
        let text = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let is_damaged = match error {
            canonical::Error::Unknown(_) => false,
            _ => canonical::digest(body) != digest,
        };
        Self::new(text, is_damaged)
    }
}

impl Known {
    /// The cached answer at this time; `None` when the database has to be asked.
    fn get(&self, digest: &str, now: Instant) -> Option<Result<Arc<Definition>, Unreadable>> {
        if let Some(read) = self.read.get(digest) {
            return Some(Ok(Arc::clone(read)));
        }
        let unread = self.unread.get(digest)?;
        (now < unread.until).then(|| Err(unreadable(digest, &unread.reason, Duration::ZERO)))
    }

    /// Records the result of reading it.
    fn learn(
        &mut self,
        digest: &str,
        read: Result<Definition, Reason>,
        now: Instant,
    ) -> Result<Arc<Definition>, Unreadable> {
        let before = self.unread.remove(digest);
        let reason = match read {
            Ok(definition) => {
                let definition = Arc::new(definition);
                self.read.insert(digest.to_owned(), Arc::clone(&definition));
                return Ok(definition);
            }
            Err(reason) => reason,
        };
        let pause = match before {
            Some(before) => (before.pause * 2).min(PAUSES.1),
            None => PAUSES.0,
        };
        // Most of them are not requested any more.
        self.unread
            .retain(|_, unread| now < unread.until + PAUSES.1 * 10);
        if self.unread.len() >= LEFT_OUT_MAX {
            return Err(unreadable(digest, &reason, PAUSES.1));
        }
        let error = unreadable(digest, &reason, Duration::ZERO);
        let until = now + pause;
        let unread = Unread {
            reason,
            pause,
            until,
        };
        self.unread.insert(digest.to_owned(), unread);
        Err(error)
    }

    fn leave_out(&mut self, row: Uuid, now: Instant) -> Duration {
        self.rows.retain(|_, until| now < *until);
        if self.rows.len() >= LEFT_OUT_MAX && !self.rows.contains_key(&row) {
            return PAUSES.1;
        }
        self.rows.insert(row, now + PAUSES.1);
        Duration::ZERO
    }

    fn left_out(&self, now: Instant) -> LeftOut {
        let unread = self.unread.iter().filter(|(_, it)| now < it.until);
        let rows = self.rows.iter().filter(|(_, until)| now < **until);
        LeftOut {
            digests: unread.map(|(digest, _)| digest.clone()).collect(),
            rows: rows.map(|(row, _)| *row).collect(),
        }
    }
}

fn unreadable(digest: &str, reason: &Reason, delay: Duration) -> Unreadable {
    Unreadable {
        digest: digest.to_owned(),
        reason: reason.text.clone(),
        is_damaged: reason.is_damaged,
        delay,
    }
}

/// A stored definition, whether this version can read it or not.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its digest.
    pub digest: String,
    /// Its pipeline.
    pub pipeline: String,
    /// Its canonical form.
    pub body: String,
    /// It is no JSON: somebody has edited it, or the file is damaged.
    pub is_damaged: bool,
    /// When it was first triggered, in µs since 1970.
    pub created_at: i64,
}

/// The definition with this digest; `None` where it does not exist.
pub async fn stored(conn: &mut Conn, digest: &str) -> Result<Option<Stored>, Error> {
    let args = [("digest", digest.into())];
    let row = conn.fetch_optional(&STORED_DEFINITION, &args).await?;
    row.map(|row| {
        let body: String = row.get("body")?;
        Ok(Stored {
            digest: row.get("digest")?,
            pipeline: row.get("pipeline")?,
            is_damaged: serde_json::from_str::<serde::de::IgnoredAny>(&body).is_err(),
            body,
            created_at: row.get("created_at")?,
        })
    })
    .transpose()
}

/// The pipelines that were ever triggered, at most `n`, each with the digest of its latest definition.
pub async fn latest(conn: &mut Conn, n: usize) -> Result<Vec<(String, String)>, Error> {
    conn.snapshot(async |conn| {
        let (mut stored, mut several) = (Vec::new(), Vec::new());
        for row in conn.fetch(&LATEST_DEFINITIONS, &[("n", n.into())]).await? {
            let pipeline: String = row.get("pipeline")?;
            if row.get::<i64>("versions")? > 1 {
                several.push(pipeline.clone());
            }
            stored.push((pipeline, row.get("digest")?));
        }
        let mut triggered = of_newest_runs(conn, &several).await?;
        let latest = |(pipeline, stored): (String, String)| {
            let digest = triggered.remove(&pipeline).unwrap_or(stored);
            (pipeline, digest)
        };
        Ok(stored.into_iter().map(latest).collect())
    })
    .await
}

/// The digest of a pipeline's latest definition: that of its newest run, or the one that was stored last where the
/// runs have been deleted.
pub async fn latest_of(conn: &mut Conn, pipeline: &str) -> Result<Option<String>, Error> {
    conn.snapshot(async |conn| {
        let mut triggered = of_newest_runs(conn, &[pipeline.to_owned()]).await?;
        if let Some(digest) = triggered.remove(pipeline) {
            return Ok(Some(digest));
        }
        let stored = page::versions(conn, pipeline, 1).await?;
        Ok(stored.into_iter().next().map(|it| it.digest))
    })
    .await
}

/// For each of these pipelines the definition of the newest run that was triggered, if it has one. The definition that
/// was stored last may have been abandoned: one to which somebody has gone back is not stored again. Revivals do not
/// count, because they go on with the definitions of old runs.
async fn of_newest_runs(
    conn: &mut Conn,
    pipelines: &[String],
) -> Result<BTreeMap<String, String>, Error> {
    if pipelines.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut newest: BTreeMap<String, Uuid> = BTreeMap::new();
    for status in RunStatus::ALL {
        let rows = Rows::new().texts("pipeline", pipelines.iter().map(String::as_str));
        let args = [("b", (&rows).into()), ("status", status.as_str().into())];
        let (statement, args) = match status {
            RunStatus::Completed => (&NEWEST_COMPLETED, &args[..1]),
            _ => (&NEWEST_OF_STATUS, &args[..]),
        };
        for row in conn.fetch(statement, args).await? {
            if let Some(id) = row.get::<Option<Uuid>>("id")? {
                let known = newest.entry(row.get("pipeline")?).or_insert(id);
                *known = id.max(*known);
            }
        }
    }
    let rows = Rows::new().ids("id", newest.into_values());
    let args = [("b", (&rows).into())];
    let rows = conn.fetch(&DEFINITIONS_OF_RUNS, &args).await?;
    let of = |row: &super::Row| Ok((row.get("pipeline")?, row.get("definition")?));
    rows.iter().map(of).collect()
}

/// Stores a definition, unless it exists already, and returns its digest. Definitions are never deleted, so
/// one that was stored on a connection is not stored again.
pub async fn save(conn: &mut Conn, definition: &Definition) -> Result<String, Error> {
    let digest = definition.digest();
    if conn.saved.contains(&digest) {
        return Ok(digest);
    }
    let body = definition.canonical();
    conn.execute(
        &SAVE_DEFINITION,
        &[
            ("digest", (&digest).into()),
            ("pipeline", (&definition.pipeline).into()),
            ("body", (&body).into()),
        ],
    )
    .await?;
    conn.saved.insert(digest.clone());
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Pipeline;

    fn new() -> Reason {
        Reason::new("it is new", false)
    }

    #[test]
    fn what_is_not_as_it_was_stored_is_damaged_and_what_is_new_is_not() {
        let definition = Pipeline::named("P").start("A").build().expect("one");
        let (body, digest) = (definition.canonical(), definition.digest());
        for (text, is_damaged) in [
            (body.replace('{', "["), true),
            (body[..body.len() / 2].to_owned(), true),
            (String::new(), true),
            ("{}".to_owned(), true),
            (body.replacen('{', r#"{"era":1,"#, 1), false),
        ] {
            let error = Definition::from_canonical(&text).expect_err("it cannot be used");
            let reason = Reason::of(&error, &digest, &text);
            assert_eq!(reason.is_damaged, is_damaged, "{text}: {}", reason.text);
            let told = unreadable(&digest, &reason, Duration::ZERO);
            assert_eq!(told.to_string().contains("is damaged"), is_damaged);
            assert_eq!(told.remedy().contains("backup"), is_damaged);
        }
        // A definition of another shape whose digest is right was stored like this.
        let shape = canonical::Error::Unsound("it has no end".to_owned());
        assert!(!Reason::of(&shape, &canonical::digest("{}"), "{}").is_damaged);
    }

    #[test]
    fn what_cannot_be_read_is_left_out_for_a_pause_that_grows_to_a_minute_and_is_known_once_it_can()
    {
        let mut known = Known::default();
        let mut now = Instant::now();
        for seconds in [5, 10, 20, 40, 60, 60] {
            assert!(known.get("d", now).is_none(), "it is asked for");
            assert!(known.left_out(now).is_empty());
            let read = known.learn("d", Err(new()), now);
            let expected = unreadable("d", &new(), Duration::ZERO);
            assert_eq!(read.unwrap_err(), expected);
            let pause = Duration::from_secs(seconds);
            let left = known.get("d", now + pause / 2).expect("it is remembered");
            assert_eq!(left.unwrap_err(), expected);
            assert_eq!(known.left_out(now + pause / 2).digests, ["d"]);
            now += pause;
        }
        let definition = Pipeline::named("P").start("A").build().expect("one");
        assert!(known.learn("d", Ok(definition), now).is_ok());
        assert!(matches!(known.get("d", now), Some(Ok(_))));
        assert!(known.unread.is_empty() && known.left_out(now).is_empty());
    }

    #[test]
    fn more_than_a_process_leaves_out_waits_for_everybody() {
        let mut known = Known::default();
        let now = Instant::now();
        let mut unread = |digest: String, now| {
            let read = known.learn(&digest, Err(new()), now);
            read.unwrap_err().delay
        };
        for n in 0..LEFT_OUT_MAX {
            assert_eq!(unread(n.to_string(), now), Duration::ZERO);
        }
        assert_eq!(unread("more".to_owned(), now), PAUSES.1);
        assert_eq!(
            unread("0".to_owned(), now),
            Duration::ZERO,
            "it is one of them"
        );
        let rows: Vec<Uuid> = (0..LEFT_OUT_MAX).map(|_| Uuid::now_v7()).collect();
        for row in &rows {
            assert_eq!(known.leave_out(*row, now), Duration::ZERO);
        }
        let more = Uuid::now_v7();
        assert_eq!(known.leave_out(more, now), PAUSES.1);
        assert_eq!(known.leave_out(rows[0], now), Duration::ZERO);
        assert_eq!(known.left_out(now).rows.len(), LEFT_OUT_MAX);
        // The rows are forgotten when their pause ends.
        let later = now + PAUSES.1;
        assert!(known.left_out(later).is_empty());
        assert_eq!(known.leave_out(more, later), Duration::ZERO);
        assert_eq!(known.left_out(later).rows, [more]);
    }
}
