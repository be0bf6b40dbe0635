//! Reporting in the log the work that does not move.
//!
//! Owns: when it looks, and when it reports: the findings that `machine::stuck` made at two looks in a
//! row, and then again with a growing pause. A worker that is being replaced is missing at one look only.
//! Never: decides what is stuck; sweeps.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::machine::stuck::{self, Stuck};
use crate::model::ProcessId;
use crate::store::{Conn, Error, stuck as store};
use crate::telemetry::events;
use crate::telemetry::growing::Growing;

/// The pause between two looks. With `machine::stuck::GRACE` and the second look, work that does not
/// move is in the log within a minute.
const LOOK_EVERY: Duration = Duration::from_secs(8);

/// While our own heartbeats cannot be written, looks are put off for this long at most.
const PUT_OFF_MAX: Duration = Duration::from_secs(120);

type Key = (&'static str, Option<String>);

/// The findings of the last look, and the reports that were made.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// When it last looked, was first called, or last put off its looks. The first look waits, because a process that
    /// has just started has more urgent work.
    looked: Option<Instant>,
    /// When it last looked, or was first called; putting off looks does not change this time.
    last: Option<Instant>,
    found: HashSet<Key>,
    reported: Growing<Key>,
}

impl Reports {
    /// The next look is a whole pause away, unless looks have been put off for too long.
    pub fn later(&mut self, now: Instant) {
        if self.last.is_none_or(|last| now < last + PUT_OFF_MAX) {
            self.looked = Some(now);
        }
    }

    /// Looks and reports, if it is time. A heartbeat is stale after `stale_after`, unless somebody has locked the row
    /// that it would be written to.
    pub async fn look(
        &mut self,
        conn: &mut Conn,
        stale_after: Duration,
        locked: &[ProcessId],
        now: Instant,
    ) -> Result<(), Error> {
        self.last.get_or_insert(now);
        let looked = self.looked.get_or_insert(now);
        if now < *looked + LOOK_EVERY {
            return Ok(());
        }
        *looked = now;
        self.last = Some(now);
        let stuck = match store::may_be(conn).await? {
            true => {
                let mut facts = store::facts(conn, stale_after).await?;
                facts.spare(locked);
                stuck::stuck(&facts)
            }
            false => Vec::new(),
        };
        for stuck in self.due(stuck, now) {
            events::stuck(&stuck);
        }
        Ok(())
    }

    /// The findings that are to be reported now.
    fn due(&mut self, stuck: Vec<Stuck>, now: Instant) -> Vec<Stuck> {
        let key = |stuck: &Stuck| (stuck.cause, stuck.pipeline.clone());
        let before = std::mem::replace(&mut self.found, stuck.iter().map(key).collect());
        for key in before.difference(&self.found) {
            self.reported.over(key);
        }
        let mut due = stuck;
        due.retain(|stuck| {
            let key = key(stuck);
            before.contains(&key) && self.reported.meet(&key, now).is_some()
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_move_is_reported_at_the_second_look_and_then_with_a_pause_that_grows() {
        let found = |names: &[&str]| -> Vec<Stuck> {
            let stuck = |name: &&str| Stuck {
                cause: "no_worker",
                pipeline: Some((*name).to_owned()),
                run_id: None,
                since: 0,
                fact: String::new(),
                remedy: String::new(),
            };
            names.iter().map(stuck).collect()
        };
        let mut reports = Reports::default();
        let start = Instant::now();
        for (second, look, reported) in [
            (0, &["a"][..], &[][..]),
            (10, &["a", "b"], &["a"]),
            (20, &["a"], &[]),
            // It was worked on meanwhile.
            (30, &["b"], &[]),
            (40, &["a", "b"], &["b"]),
            (50, &["a", "b"], &["a"]),
            (100, &["a", "b"], &["b"]),
            (110, &["a", "b"], &["a"]),
            (120, &["a", "b"], &[]),
            (220, &["a", "b"], &["b"]),
            (230, &[], &[]),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(reports.due(found(look), now), found(reported), "{second}");
        }
    }
}
