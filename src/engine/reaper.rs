//! Deciding that a process is dead without having seen it die: two witnesses.
//!
//! Owns: the second witness. The first is the database's clock, which says that the heartbeat
//! is stale; the second is this reaper's own monotonic clock, on which it has itself seen no
//! sign of life for as long, since it last connected. A stepped clock, a suspended host or a
//! long outage fools one of them, never both (H4, H20). Never: removes anything by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::model::ProcessId;
use crate::store::definition::Definitions;
use crate::store::process::{self, Death, ProcessRow};
use crate::store::{Conn, Error};
use crate::telemetry::events;

use super::{Policy, Ring};

/// How many sweeps pass between two looks for claims without a process. They cannot exist;
/// looking for them is a net under the net.
const ORPHANS_EVERY: u32 = 10;

/// What a reaper has seen of every process.
#[derive(Debug, Default)]
pub struct Witness {
    seen: HashMap<ProcessId, (i64, Instant)>,
}

/// A process that both witnesses call dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The process.
    pub id: ProcessId,
    /// The last sign of life that was seen: the removal is guarded by it.
    pub beat_seq: i64,
}

impl Witness {
    /// Forgets everything: after a reconnect nobody has been watched.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// Looks at all processes; those that are dead by both witnesses.
    pub fn look(
        &mut self,
        rows: &[ProcessRow],
        now: Instant,
        stale_after: Duration,
    ) -> Vec<Suspect> {
        self.seen
            .retain(|id, _| rows.iter().any(|row| row.id == *id));
        let mut suspects = Vec::new();
        for row in rows {
            let (beat_seq, since) = self.seen.entry(row.id).or_insert((row.beat_seq, now));
            if *beat_seq != row.beat_seq {
                (*beat_seq, *since) = (row.beat_seq, now);
            }
            let unseen = now.saturating_duration_since(*since);
            if row.age >= stale_after && unseen >= stale_after {
                suspects.push(Suspect {
                    id: row.id,
                    beat_seq: row.beat_seq,
                });
            }
        }
        suspects
    }
}

/// Tells whether a row's process cannot exist any more.
pub type Proof = dyn Fn(&ProcessRow) -> Option<ProvenDeath> + Send + Sync;

/// A death that somebody can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvenDeath {
    /// What it held has crashed; how it is known.
    Crashed(String),
    /// It was ended because the daemon stops; what it held is released.
    Stopped,
}

/// Sweeps: recovers what dead processes held.
pub struct Sweeper {
    policy: Policy,
    definitions: Arc<Definitions>,
    proof: Box<Proof>,
    witness: Witness,
    sweeps: u32,
    /// Where the rows of each sweep go.
    seen: Option<watch::Sender<Arc<[ProcessRow]>>>,
}

impl Sweeper {
    /// A sweeper that has seen nothing yet.
    pub fn new(policy: Policy, definitions: Arc<Definitions>, proof: Box<Proof>) -> Self {
        Self {
            policy,
            definitions,
            proof,
            witness: Witness::default(),
            sweeps: 0,
            seen: None,
        }
    }

    /// Shows the rows of each sweep.
    pub fn showing(mut self, seen: watch::Sender<Arc<[ProcessRow]>>) -> Self {
        self.seen = Some(seen);
        self
    }

    /// Forgets what it has seen: to be called after every reconnect.
    pub fn forget(&mut self) {
        self.witness.forget();
    }

    /// One sweep over all processes but `me`: nobody reaps itself (H2).
    pub async fn sweep(
        &mut self,
        conn: &mut Conn,
        me: ProcessId,
        ring: &dyn Ring,
    ) -> Result<(), Error> {
        let mut rows = process::processes(conn).await?;
        rows.retain(|row| row.id != me);
        if let Some(seen) = &self.seen {
            seen.send_replace(rows.as_slice().into());
        }
        let stale_after = self.policy.lease();
        for row in &rows {
            match (self.proof)(row) {
                Some(ProvenDeath::Crashed(how)) => {
                    self.recover(conn, row.id, Death::Proven { how: &how }, ring)
                        .await?;
                }
                Some(ProvenDeath::Stopped) => {
                    self.recover(conn, row.id, Death::Stopped, ring).await?;
                }
                None => {}
            }
        }
        for suspect in self.witness.look(&rows, Instant::now(), stale_after) {
            let death = Death::Witnessed {
                beat_seq: suspect.beat_seq,
                stale_after,
            };
            self.recover(conn, suspect.id, death, ring).await?;
        }
        self.sweeps += 1;
        if self.sweeps % ORPHANS_EVERY == 1 {
            for id in process::orphans(conn).await? {
                let how = "its row is gone and its leases are over";
                self.recover(conn, id, Death::Proven { how }, ring).await?;
            }
        }
        Ok(())
    }

    /// Gives back what a dead process held, and rings for it.
    pub async fn recover(
        &self,
        conn: &mut Conn,
        id: ProcessId,
        death: Death<'_>,
        ring: &dyn Ring,
    ) -> Result<(), Error> {
        let policy = self.policy.clone();
        let limits = move |definition: &_, step: &_| policy.step(definition, step);
        let recovered = process::recover(conn, id, death, &limits, &self.definitions).await?;
        if recovered != process::Recovered::default() {
            events::recovered(id, death, &recovered);
        }
        for pipeline in &recovered.pipelines {
            ring.work(pipeline);
        }
        if recovered.branches > 0 {
            ring.branches();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Role;
    use crate::store::process::Counters;

    const STALE: Duration = Duration::from_secs(30);

    fn row(id: ProcessId, beat_seq: i64, age_s: u64) -> ProcessRow {
        ProcessRow {
            id,
            supervisor: None,
            role: Role::Worker,
            pipeline: None,
            host: String::new(),
            boot_id: String::new(),
            pid_namespace: String::new(),
            pid: 1,
            pid_started_at: 0,
            version: String::new(),
            started_at: 0,
            last_heartbeat_at: 0,
            beat_seq,
            age: Duration::from_secs(age_s),
            counters: Counters::default(),
        }
    }

    #[test]
    fn a_process_is_dead_only_when_both_witnesses_say_so() {
        let (id, start) = (ProcessId::new(), Instant::now());
        let mut witness = Witness::default();
        // The database's clock was stepped by an hour: stale by it, but just seen by us.
        assert_eq!(witness.look(&[row(id, 1, 3600)], start, STALE), []);
        // It beats: whatever the clock says, it lives.
        let later = start + STALE;
        assert_eq!(witness.look(&[row(id, 2, 3600)], later, STALE), []);
        // Unseen for long, but fresh by the database.
        let later = later + STALE * 2;
        assert_eq!(witness.look(&[row(id, 2, 1)], later, STALE), []);
        // Both.
        let suspects = witness.look(&[row(id, 2, 31)], later, STALE);
        assert_eq!(suspects, [Suspect { id, beat_seq: 2 }]);
    }

    #[test]
    fn after_a_reconnect_nobody_is_dead_for_a_whole_lease() {
        let (id, start) = (ProcessId::new(), Instant::now());
        let mut witness = Witness::default();
        witness.look(&[row(id, 1, 60)], start, STALE);
        witness.forget();
        let back = start + STALE * 4;
        assert_eq!(witness.look(&[row(id, 1, 160)], back, STALE), []);
        let suspects = witness.look(&[row(id, 1, 190)], back + STALE, STALE);
        assert_eq!(suspects, [Suspect { id, beat_seq: 1 }]);
    }
}
