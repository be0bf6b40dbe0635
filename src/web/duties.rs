//! The duties that this console has among all consoles.
//!
//! Owns: the name under which it has them, and giving them back at the end, so that another console goes on at
//! once. Never: decides which console has a duty (`store::duty` does).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::store::{Conn, Error, duty};

use super::source::Source;

/// The time limit for giving them back: a lease later another console can take them anyway.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(1);

/// The duties of a console.
pub struct Duties {
    holder: Uuid,
    held: Mutex<BTreeSet<&'static str>>,
}

impl Duties {
    /// No duties yet.
    pub fn new() -> Self {
        Self {
            holder: Uuid::new_v4(),
            held: Mutex::default(),
        }
    }

    /// Takes a duty, or keeps it, for this long; false while another console has it.
    pub async fn take(
        &self,
        conn: &mut Conn,
        name: &'static str,
        lease: Duration,
    ) -> Result<bool, Error> {
        let is_held = duty::take(conn, name, self.holder, lease).await?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match is_held {
            true => held.insert(name),
            false => held.remove(name),
        };
        Ok(is_held)
    }

    /// Gives all duties back, once nothing here works on them any more.
    pub async fn give_back(&self, acts: &Source) {
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        if held.is_empty() {
            return;
        }
        let holder = self.holder;
        let given = acts.read(async move |conn| {
            for name in &held {
                duty::give_back(conn, name, holder).await?;
            }
            Ok(())
        });
        // The database may be away.
        let _ = tokio::time::timeout(GIVEN_BACK_WITHIN, given).await;
    }
}
