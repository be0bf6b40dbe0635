//! Definitions, stored once per digest and read once per process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::definition::Definition;

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

/// The definitions a process has met. They never change, so they are never read twice.
#[derive(Default)]
pub struct Definitions {
    known: Mutex<HashMap<String, Arc<Definition>>>,
}

impl Definitions {
    /// The definition with this digest.
    pub async fn load(&self, conn: &mut Conn, digest: &str) -> Result<Arc<Definition>, Error> {
        if let Some(known) = self.get(digest) {
            return Ok(known);
        }
        let row = conn
            .fetch_optional(&LOAD_DEFINITION, &[("digest", digest.into())])
            .await?
            .ok_or_else(|| Error::Corrupt(format!("there is no definition {digest}")))?;
        let definition = Definition::from_canonical(&row.get::<String>("body")?)
            .map_err(|error| Error::Corrupt(format!("definition {digest}: {error}")))?;
        let definition = Arc::new(definition);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(digest.to_owned(), Arc::clone(&definition));
        Ok(definition)
    }

    /// The definition with this digest, if it was met before.
    pub fn get(&self, digest: &str) -> Option<Arc<Definition>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).cloned()
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
