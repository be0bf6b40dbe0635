//! The bells of one process: those of its own host, and those of the database.
//!
//! Owns: the choice between the two. On the same host a datagram wakes the other process
//! within microseconds; other hosts hear the database's notification, sent outside of any hot
//! transaction and at most so often.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::engine::Ring;
use crate::engine::lifeline::Request;
use crate::model::{ProcessId, Role};
use crate::store::{Dialect, Location};

use super::bell::{self, Bell, BellName, Ringer, Target};

/// The shortest time between two notifications: a NOTIFY serialises commits with others, and
/// whoever was woken looks until nothing is left.
const NOTIFY_EVERY: Duration = Duration::from_millis(50);

/// The bells of one process.
pub struct Bells {
    dir: Option<PathBuf>,
    requests: Option<mpsc::UnboundedSender<Request>>,
}

impl Bells {
    /// The bells of the house that uses the database at `location`.
    pub fn new(location: &Location, requests: mpsc::UnboundedSender<Request>) -> Self {
        let dir = bell::directory(&location.identity())
            .map_err(|error| tracing::warn!(%error, "no bells: work is found by polling"))
            .ok();
        let remote = location.dialect() == Dialect::Postgres;
        Self {
            dir,
            requests: remote.then_some(requests),
        }
    }

    /// The prefix that tells this house's notifications from those of other hosts: only processes that
    /// share the directory hear each other's bells.
    pub fn house(&self) -> String {
        use std::os::unix::fs::MetadataExt;

        let metadata = self
            .dir
            .as_ref()
            .and_then(|dir| std::fs::metadata(dir).ok());
        let boot = super::identity::Identity::current().boot_id;
        match metadata {
            Some(metadata) => format!("{boot}:{}:{}:", metadata.dev(), metadata.ino()),
            // Without a directory nobody hears us but through the database.
            None => format!("{}:", uuid::Uuid::new_v4()),
        }
    }

    /// Rings others.
    pub fn ringer(&self) -> Arc<dyn Ring> {
        Arc::new(Handles {
            ringer: self.dir.as_deref().map(Ringer::new),
            requests: self.requests.clone(),
            house: self.house(),
            last: Mutex::new(None),
        })
    }

    /// Hears rings for a role, in a task of its own, until the process ends.
    pub fn listen(
        &self,
        role: Role,
        pipeline: Option<&str>,
        process: ProcessId,
        rung: impl Fn() + Send + 'static,
    ) {
        let name = match (role, pipeline) {
            (Role::Worker, pipeline) => BellName::Worker(pipeline.unwrap_or_default()),
            (Role::Advancer, _) => BellName::Advancer,
            (Role::Supervisor, _) => BellName::Supervisor,
        };
        self.hear(&name, process, rung);
    }

    /// Hears that claims may have been taken away, likewise.
    pub fn listen_for_claims(&self, process: ProcessId, rung: impl Fn() + Send + 'static) {
        self.hear(&BellName::Claims, process, rung);
    }

    fn hear(&self, name: &BellName<'_>, process: ProcessId, rung: impl Fn() + Send + 'static) {
        let Some(dir) = &self.dir else { return };
        match Bell::bind(dir, name, process.0) {
            Ok(mut bell) => {
                tokio::task::spawn_local(async move {
                    loop {
                        bell.rung().await;
                        rung();
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "no bell: work is found by polling"),
        }
    }
}

struct Handles {
    ringer: Option<Ringer>,
    requests: Option<mpsc::UnboundedSender<Request>>,
    house: String,
    last: Mutex<Option<Instant>>,
}

impl Handles {
    fn ring(&self, target: Target<'_>, payload: &str) {
        if let Some(ringer) = &self.ringer {
            ringer.ring(target);
        }
        let Some(requests) = &self.requests else {
            return;
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= NOTIFY_EVERY) {
            *last = Some(Instant::now());
            // The lifeline may have ended: then so has this process.
            let _ = requests.send(Request::Notify(format!("{}{payload}", self.house)));
        }
    }
}

impl Ring for Handles {
    fn claims(&self) {
        if let Some(ringer) = &self.ringer {
            ringer.ring(Target::Claims);
        }
    }

    fn born(&self) {
        if let Some(ringer) = &self.ringer {
            ringer.ring(Target::Supervisor);
        }
    }

    fn work(&self, pipeline: &str) {
        self.ring(Target::Worker(pipeline), pipeline);
    }

    fn branches(&self) {
        self.ring(Target::Advancer, "");
    }
}
