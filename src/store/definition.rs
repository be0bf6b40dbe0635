//! Definitions, stored once per digest and read once per process.
//!
//! Owns: what a process remembers of them, those included that it cannot read. Never: what a
//! definition must satisfy (`definition::canonical`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::definition::{Definition, canonical};

use super::conn::Conn;
use super::error::Error;
use super::statement::statements;

statements! {
    LOAD_DEFINITION = "SELECT body FROM ductwork_definitions WHERE digest = :digest";
    SAVE_DEFINITION = "
        INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
        VALUES (:digest, :pipeline, :body, {now})
        ON CONFLICT (digest) DO NOTHING";
}

/// For how long what cannot be read is left to others, at first and at most: a newer version may be
/// there to take it, and this one does not come back for nothing all the time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// This version, as its messages name it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A stored definition that this version cannot use, and so nothing that rests on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "definition {} cannot be read by this version ({VERSION}): {reason}",
    short(digest)
)]
pub struct Unreadable {
    /// Its digest.
    pub digest: String,
    /// Why.
    pub reason: String,
    /// For how long it is not tried again.
    pub pause: Duration,
}

impl Unreadable {
    /// A mistake that was found only now that it is used.
    pub(super) fn now(digest: String, reason: String) -> Self {
        Self {
            digest,
            reason,
            pause: PAUSES.1,
        }
    }
}

/// As much of a digest as people compare.
pub fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

impl From<Unreadable> for Error {
    fn from(unreadable: Unreadable) -> Self {
        Self::Corrupt(unreadable.to_string())
    }
}

/// The definitions a process has met. They never change, so they are never read twice; but those that
/// it could not read are tried again.
#[derive(Default)]
pub struct Definitions {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    read: HashMap<String, Arc<Definition>>,
    unread: HashMap<String, Unread>,
}

struct Unread {
    reason: String,
    /// The pause after the last attempt.
    pause: Duration,
    until: Instant,
}

impl Definitions {
    /// The definition with this digest, for those that can do nothing without it.
    pub async fn load(&self, conn: &mut Conn, digest: &str) -> Result<Arc<Definition>, Error> {
        Ok(self.read(conn, digest).await??)
    }

    /// The definition with this digest, or why there is none that this version can use.
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
            Some(row) => Definition::from_canonical(&row.get::<String>("body")?).map_err(why),
            None => Err("it is not there".to_owned()),
        };
        Ok(self.known().learn(digest, read, Instant::now()))
    }

    /// The definition with this digest, if it was met before.
    pub fn get(&self, digest: &str) -> Option<Arc<Definition>> {
        self.known().read.get(digest).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn why(error: canonical::Error) -> String {
    match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Known {
    /// The cached answer at this time; `None` when it has to be asked for.
    fn get(&self, digest: &str, now: Instant) -> Option<Result<Arc<Definition>, Unreadable>> {
        if let Some(read) = self.read.get(digest) {
            return Some(Ok(Arc::clone(read)));
        }
        let unread = self.unread.get(digest)?;
        let pause = unread.until.checked_duration_since(now)?;
        (!pause.is_zero()).then(|| Err(unread.error(digest, pause)))
    }

    /// Takes note of what came of reading it.
    fn learn(
        &mut self,
        digest: &str,
        read: Result<Definition, String>,
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
        // Nobody asks for most of them any more.
        self.unread
            .retain(|_, unread| now < unread.until + PAUSES.1 * 10);
        let until = now + pause;
        let unread = Unread {
            reason,
            pause,
            until,
        };
        let error = unread.error(digest, pause);
        self.unread.insert(digest.to_owned(), unread);
        Err(error)
    }
}

impl Unread {
    fn error(&self, digest: &str, pause: Duration) -> Unreadable {
        Unreadable {
            digest: digest.to_owned(),
            reason: self.reason.clone(),
            pause,
        }
    }
}

/// Stores a definition, unless it is there; its digest. Definitions are never deleted, so what
/// was stored on a connection is not stored again.
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

    #[test]
    fn what_cannot_be_read_is_tried_again_after_a_pause_that_grows_to_a_minute_and_is_known_once_it_can()
     {
        let mut known = Known::default();
        let mut now = Instant::now();
        for seconds in [5, 10, 20, 40, 60, 60] {
            assert!(known.get("d", now).is_none(), "it is asked for");
            let read = known.learn("d", Err("it is new".to_owned()), now);
            let pause = Duration::from_secs(seconds);
            let expected = Unreadable {
                digest: "d".to_owned(),
                reason: "it is new".to_owned(),
                pause,
            };
            assert_eq!(read.unwrap_err(), expected);
            let left = known.get("d", now + pause / 2).expect("it is remembered");
            assert_eq!(left.unwrap_err().pause, pause / 2);
            now += pause;
        }
        let definition = Pipeline::named("P").start("A").build().expect("one");
        assert!(known.learn("d", Ok(definition), now).is_ok());
        assert!(matches!(known.get("d", now), Some(Ok(_))));
        assert!(known.unread.is_empty());
    }
}
