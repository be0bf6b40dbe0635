//! Deciding, by two witnesses, that a process is dead without having seen it die.
//!
//! Owns: the second witness. The first is the database's clock, which says that the heartbeat is
//! stale; the second is this reaper's own monotonic clock, by which the reaper itself has seen no
//! sign of life for as long, since it last connected. A stepped clock, a suspended host or a long
//! outage fools one of them, never both (H4, H20). The supervisor judges its children by the same
//! two. This module also corrects rows that are left waiting after the database's clock was set
//! back.
//! Never: removes anything by itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::machine::why::LEFT;
use crate::model::{ProcessId, Role};
use crate::store::clock::{self, Overtaken, Rescheduling};
use crate::store::definition::Definitions;
use crate::store::process::{self, Condemned, ProcessRow};
use crate::store::recovery::{self, Death, Left};
use crate::store::{Conn, Error, metrics};
use crate::telemetry::events;
use crate::telemetry::growing::Growing;

use super::counting;
use super::shared::Shared;
use super::stuck::Reports;
use super::{Policy, Waker};

/// How many sweeps pass between two looks for claims without a process. Such claims cannot exist;
/// looking for them is a net under the net.
const ORPHANS_EVERY: u32 = 10;

/// How far the database's clock may fall behind ours from one sweep to the next without having
/// been set back: it is slewed, or a statement took long.
const SLEW_MAX: Duration = Duration::from_secs(1);

/// The first pause before another sweep looks at claims that were left because somebody had locked their rows. As a
/// rule, the lock is that of a commit of the dead process which is still under way. The pause doubles with each further
/// sweep that leaves such claims, up to `LEFT_MAX`; from then on, the lock is taken for somebody else's and reported.
const LEFT_FIRST: Duration = Duration::from_millis(50);
const LEFT_MAX: Duration = Duration::from_secs(1);

/// The pause before another sweep looks at a death that is in doubt.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long one sweep may spend on making work due that waits for a time from before the clock was set back.
const PUTTING_RIGHT: Duration = Duration::from_millis(500);

/// The beats that a reaper has seen of every process.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    seen: HashMap<ProcessId, (i64, Instant)>,
}

impl Witness {
    /// Forgets everything: after a reconnect no process has been watched.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// The beats that it has seen: each process, its beat, and since when.
    #[cfg(test)]
    pub fn seen(&self) -> impl Iterator<Item = (ProcessId, i64, Instant)> {
        let seen = self.seen.iter();
        seen.map(|(id, (beat_seq, since))| (*id, *beat_seq, *since))
    }

    /// Forgets one process: it was kept from beating.
    fn forget_one(&mut self, id: ProcessId) {
        self.seen.remove(&id);
    }

    /// Looks at all processes, and leaves in each row the age of its heartbeat that both
    /// witnesses vouch for.
    pub fn look(&mut self, rows: &mut [ProcessRow], now: Instant) {
        self.seen
            .retain(|id, _| rows.iter().any(|row| row.id == *id));
        for row in rows {
            let (beat_seq, since) = self.seen.entry(row.id).or_insert((row.beat_seq, now));
            if *beat_seq != row.beat_seq {
                (*beat_seq, *since) = (row.beat_seq, now);
            }
            let unseen = now.saturating_duration_since(*since);
            // A heartbeat that is later than the database's clock does not tell its age: the clock
            // has been set back since.
            row.age = match row.last_heartbeat_at > row.seen_at {
                true => unseen,
                false => row.age.min(unseen),
            };
        }
    }
}

/// True for the one sweeper that corrects waiting work after the clock was set back and reports stuck work in the log:
/// the sweeper with the oldest row. If that process does not beat, the next one takes its place, even while the oldest
/// row cannot be removed. A console never sweeps. A worker of several pipelines, which has no supervisor, sweeps under
/// one of its rows.
fn is_first(mine: &ProcessRow, others: &[ProcessRow], lease: Duration) -> bool {
    // A heartbeat that is later than the database's clock does not tell its age; the witness does.
    let beats = |row: &ProcessRow| row.age.max(silence(row)) < lease;
    let may_sweep =
        |row: &&ProcessRow| row.supervisor.is_none() && row.role != Role::Console && beats(row);
    others.iter().find(may_sweep).is_none_or(|oldest| {
        (mine.started_at, mine.id) < (oldest.started_at, oldest.id) || oldest.is_same_process(mine)
    })
}

/// Whether the database's clock was set back, as far as a sweeper can tell.
#[derive(Debug)]
struct Clock {
    last: Option<(i64, Instant)>,
    /// It may have been set back, and not everything was done about that yet.
    set_back: bool,
    /// The correction, as far as it has come.
    rescheduling: Rescheduling,
}

impl Default for Clock {
    /// Nobody looked before, so the clock may have been set back.
    fn default() -> Self {
        Self {
            last: None,
            set_back: true,
            rescheduling: Rescheduling::default(),
        }
    }
}

impl Clock {
    /// Compares it with ours: `seen_at` is the database's time, `now` is ours.
    fn look(&mut self, seen_at: i64, now: Instant) {
        if let Some((last, then)) = self.last {
            let ours = now.saturating_duration_since(then).as_micros() as i64;
            let behind = ours.saturating_sub(seen_at.saturating_sub(last));
            if behind > SLEW_MAX.as_micros() as i64 {
                self.set_back = true;
                self.rescheduling.restart();
            }
        }
        self.last = Some((seen_at, now));
    }

    /// Corrects the work that waits for a time of before, until this moment, and the rest in the next sweep.
    async fn put_right(&mut self, conn: &mut Conn, until: Instant) -> Result<(), Error> {
        // After an error, `set_back` stays true: the branches that revealed the change of the clock may already be
        // corrected and the executions not, and then no later look would reveal the change again.
        if !std::mem::replace(&mut self.set_back, true) {
            self.set_back = clock::may_have_been_set_back(conn, &mut self.rescheduling).await?;
        }
        while self.set_back {
            self.set_back = self.rescheduling.step(conn).await?;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }
}

/// Tells whether a row's process cannot exist any more, given the rows of all others.
pub type Proof = dyn FnMut(&ProcessRow, &[ProcessRow]) -> Finding + Send;

/// The result of a look for a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing is proven.
    MayLive,
    /// The process is dead, but its claims may not be given back yet: something that its steps started may still be
    /// running, or its supervisor has precedence. The next look comes soon.
    Doubted,
    /// Its claims may be given back.
    Dead(ProvenDeath),
}

/// A death that somebody can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvenDeath {
    /// Its executions have crashed; the text says how that is known.
    Crashed(String),
    /// It was ended because the daemon stops; its claims are released.
    Stopped,
}

/// Sweeps: recovers the claims of dead processes.
pub struct Sweeper {
    policy: Policy,
    definitions: Arc<Definitions>,
    proof: Box<Proof>,
    witness: Witness,
    clock: Clock,
    sweeps: u32,
    /// The processes whose rows were locked by somebody at the last sweep.
    locked: Vec<ProcessId>,
    reports: Reports,
    /// Failures of parts of the last sweeps.
    sweeping: Growing<()>,
    /// Failures to add the counts of processes that are gone.
    folding: Growing<()>,
    /// Processes that could not be recovered, and when to report it.
    failed: Growing<ProcessId>,
    /// Processes that could not be recovered the last time.
    vain: HashSet<ProcessId>,
    /// The database's environment has refused a recovery.
    hindered: Option<Error>,
    /// The receiver of the rows of each sweep.
    seen: Option<watch::Sender<Arc<[ProcessRow]>>>,
    /// The claims that the last sweep left.
    left: Vec<(ProcessId, Left)>,
    /// The processes of which an earlier sweep left something.
    known: HashSet<ProcessId>,
    /// The pause before the next sweep looks at the claims that were left.
    pause: Duration,
    /// The last sweep doubted a death.
    doubted: bool,
    /// The last sweep doubted the death of a child of the sweeping process.
    doubted_own: bool,
    /// The process that recovers.
    shared: Option<Arc<Shared>>,
    /// The keys of its rows, the present one last: it may have been declared dead, and registered anew.
    own: Vec<ProcessId>,
}

impl Sweeper {
    /// A sweeper that has seen nothing yet.
    pub fn new(policy: Policy, definitions: Arc<Definitions>, proof: Box<Proof>) -> Self {
        Self {
            policy,
            definitions,
            proof,
            witness: Witness::default(),
            clock: Clock::default(),
            sweeps: 0,
            locked: Vec::new(),
            reports: Reports::default(),
            sweeping: Growing::default(),
            folding: Growing::default(),
            failed: Growing::default(),
            hindered: None,
            vain: HashSet::new(),
            seen: None,
            left: Vec::new(),
            known: HashSet::new(),
            pause: LEFT_FIRST,
            doubted: false,
            doubted_own: false,
            shared: None,
            own: Vec::new(),
        }
    }

    /// Counts its recoveries among those of this process, and reports its troubles.
    pub fn reporting(mut self, shared: Arc<Shared>) -> Self {
        self.own.push(shared.process());
        self.shared = Some(shared);
        self
    }

    /// Shows the rows of each sweep.
    pub fn showing(mut self, seen: watch::Sender<Arc<[ProcessRow]>>) -> Self {
        self.seen = Some(seen);
        self
    }

    /// Forgets what it has seen; to be called after every reconnect, and when a heartbeat could not be written: until
    /// others can write theirs again, none of them is dead, and no work is stuck for want of them.
    pub fn forget(&mut self) {
        self.witness.forget();
        self.reports.later(Instant::now());
    }

    /// Shows the rows as they are, and judges no process.
    pub async fn look(&self, conn: &mut Conn) -> Result<(), Error> {
        if let Some(seen) = &self.seen {
            seen.send_replace(process::processes(conn).await?.into());
        }
        Ok(())
    }

    /// One sweep over all processes except `me`: no process reaps itself (H2). False: `until` came, when a
    /// heartbeat has to be written, and the other dead processes are left to the next sweep.
    pub async fn sweep(
        &mut self,
        conn: &mut Conn,
        me: ProcessId,
        waker: &dyn Waker,
        until: Instant,
    ) -> Result<bool, Error> {
        self.left.clear();
        (self.doubted, self.doubted_own) = (false, false);
        let swept = self.sweep_once(conn, me, waker, until).await;
        // A sweep that was cut short may have seen none of them.
        if !self.left.is_empty() || matches!(swept, Ok(true)) {
            self.report_left();
        }
        swept
    }

    /// The pause until another sweep looks at the claims that the last one left, and at the deaths that it doubted, if
    /// there are any.
    pub fn look_again_in(&self) -> Option<Duration> {
        let left = (!self.left.is_empty()).then_some(self.pause);
        let doubted = self.doubted.then_some(LOOK_AGAIN);
        left.into_iter().chain(doubted).min()
    }

    /// True while the death of a child of the process that sweeps is in doubt.
    pub fn doubts_own(&self) -> bool {
        self.doubted_own
    }

    /// Reports the claims that a sweep left. One line of the log for all of them: a transaction may have locked very
    /// many.
    fn report_left(&mut self) {
        let known: HashSet<ProcessId> = self.left.iter().map(|(id, _)| *id).collect();
        let is_new = !known.is_subset(&self.known);
        self.known = known;
        if !self.left.is_empty() {
            self.pause = match is_new {
                true => LEFT_FIRST,
                false => (self.pause * 2).min(LEFT_MAX),
            };
        }
        let lasts = self.pause == LEFT_MAX;
        if let Some(shared) = &self.shared
            && (self.left.is_empty() || lasts)
        {
            let left = self.left.iter().map(|(process, left)| match left {
                Left::Execution(id) => format!("the execution {id} of the process {process}"),
                Left::Branch(id) => format!("the branch {id} of the process {process}"),
                Left::All => format!("the row of the process {process} itself"),
            });
            shared.locked(LEFT, left, "they are given back");
        }
    }

    async fn sweep_once(
        &mut self,
        conn: &mut Conn,
        me: ProcessId,
        waker: &dyn Waker,
        until: Instant,
    ) -> Result<bool, Error> {
        let mut rows = process::processes(conn).await?;
        let now = Instant::now();
        if let Some(row) = rows.first() {
            self.clock.look(row.seen_at, now);
        }
        let postponed = rows.iter().any(|row| row.postponed);
        let mine = rows.iter().find(|row| row.id == me).cloned();
        rows.retain(|row| row.id != me);
        self.vain.retain(|id| rows.iter().any(|row| row.id == *id));
        self.witness.look(&mut rows, now);
        self.adopt(conn, me, &mut rows).await?;
        let first = mine.is_some_and(|mine| is_first(&mine, &rows, self.policy.lease()));
        // Before everything else: work waits for the recovery of their claims, and nobody waits for the
        // rest.
        let late = self.recover_proven(conn, me, &rows, now, waker, until);
        let late = late.await?;
        self.spare_the_locked(conn, &mut rows).await?;
        if let Some(seen) = &self.seen {
            seen.send_replace(rows.as_slice().into());
        }
        if late {
            return Ok(false);
        }
        // Only work that waits for a later time can be affected by a clock that was set back.
        if first && (self.clock.set_back || postponed) {
            self.look_after_the_clock(conn, waker, now, until).await?;
        }
        let stale_after = self.policy.lease();
        rows.retain(|row| row.age >= stale_after && row.condemned.is_none());
        let stale: Vec<ProcessId> = rows.iter().map(|row| row.id).collect();
        if !stale.is_empty() {
            let under_lease = process::under_lease(conn, &stale).await?;
            rows.retain(|row| !under_lease.contains(&row.id));
        }
        rows.sort_by_key(|row| self.vain.contains(&row.id));
        for row in &rows {
            let death = Death::Witnessed {
                beat_seq: row.beat_seq,
                stale_after,
            };
            let since = silent_since(row, now);
            self.recover_one(conn, row.id, death, since, waker).await?;
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        self.sweeps += 1;
        if self.sweeps % ORPHANS_EVERY == 1 {
            for id in recovery::orphans(conn).await? {
                let how = "its row is gone and its leases are over";
                let death = Death::Proven { how };
                self.recover_one(conn, id, death, None, waker).await?;
            }
            self.fold(conn).await?;
        }
        if first {
            self.reports
                .look(conn, stale_after, &self.locked, now)
                .await?;
        }
        Ok(true)
    }

    /// Makes the children that name an earlier row of this process name the present one. A child that has registered
    /// anew names the row that its supervisor had when it was started. One whose row is locked is left to the next sweep.
    async fn adopt(
        &mut self,
        conn: &mut Conn,
        me: ProcessId,
        rows: &mut [ProcessRow],
    ) -> Result<(), Error> {
        if self.own.last() != Some(&me) {
            self.own.push(me);
        }
        let earlier = &self.own[..self.own.len() - 1];
        for row in rows {
            if let Some(supervisor) = row.supervisor.filter(|id| earlier.contains(id)) {
                row.supervisor = Some(me);
                if let Err(error) = process::adopt(conn, row.id, supervisor, me).await {
                    return broken(conn, error);
                }
            }
        }
        Ok(())
    }

    /// Recovers the processes that are known to be dead, whatever their heartbeats say; true when it is
    /// time to write our own.
    async fn recover_proven(
        &mut self,
        conn: &mut Conn,
        me: ProcessId,
        rows: &[ProcessRow],
        now: Instant,
        waker: &dyn Waker,
        until: Instant,
    ) -> Result<bool, Error> {
        // One that could not be recovered the last time may take all of the time again.
        let mut order: Vec<&ProcessRow> = rows.iter().collect();
        order.sort_by_key(|row| self.vain.contains(&row.id));
        for row in order {
            let since = silent_since(row, now);
            // A process that was declared dead may still beat, if its program is an older one.
            let finding = match row.condemned {
                Some(Condemned::Crashed) => {
                    Finding::Dead(ProvenDeath::Crashed("it was declared dead".to_owned()))
                }
                Some(Condemned::Stopped) => Finding::Dead(ProvenDeath::Stopped),
                None => (self.proof)(row, rows),
            };
            match finding {
                Finding::Dead(ProvenDeath::Crashed(how)) => {
                    let death = Death::Proven { how: &how };
                    self.recover_one(conn, row.id, death, since, waker).await?;
                }
                Finding::Dead(ProvenDeath::Stopped) => {
                    self.recover_one(conn, row.id, Death::Stopped, since, waker)
                        .await?;
                }
                // The look for a proof may have taken its time. So the others come first the next time.
                Finding::Doubted => {
                    self.doubted = true;
                    self.doubted_own |= row.supervisor == Some(me);
                    self.vain.insert(row.id);
                }
                Finding::MayLive => continue,
            }
            if Instant::now() >= until {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes due the work that is not due only because the clock was set back, and reports it.
    async fn look_after_the_clock(
        &mut self,
        conn: &mut Conn,
        waker: &dyn Waker,
        now: Instant,
        until: Instant,
    ) -> Result<(), Error> {
        let until = until.min(now + PUTTING_RIGHT);
        let put_right = self.clock.put_right(conn, until).await;
        announce(&self.clock.rescheduling.overtaken(), waker);
        match put_right {
            Ok(()) => {
                self.sweeping.over(&());
                Ok(())
            }
            Err(error) => {
                // The loss of the connection is logged where the next connection is waited for.
                if !conn.is_broken() && self.sweeping.meet(&(), now).is_some() {
                    events::sweep_failed(&error);
                }
                broken(conn, error)
            }
        }
    }

    /// Judges no process whose row somebody has locked: no heartbeat can be written there.
    async fn spare_the_locked(
        &mut self,
        conn: &mut Conn,
        rows: &mut [ProcessRow],
    ) -> Result<(), Error> {
        let silent = rows.iter().filter(|row| row.age > self.policy.lease() / 2);
        let silent: Vec<ProcessId> = silent.map(|row| row.id).collect();
        let locked = match silent.is_empty() {
            true => silent,
            false => process::kept_from_beating(conn, silent).await?,
        };
        for row in rows.iter_mut().filter(|row| locked.contains(&row.id)) {
            row.age = Duration::ZERO;
            // One such finding may have been another reaper, which makes the same check.
            if self.locked.contains(&row.id) {
                self.witness.forget_one(row.id);
            }
        }
        self.locked = locked;
        Ok(())
    }

    /// The error of a recovery that the database's environment has refused since the last call.
    pub fn take_hindered(&mut self) -> Option<Error> {
        self.hindered.take()
    }

    /// Gives back the claims of one dead process. If that fails, the others are recovered all the
    /// same, unless the connection is gone.
    async fn recover_one(
        &mut self,
        conn: &mut Conn,
        id: ProcessId,
        death: Death<'_>,
        since: Option<Instant>,
        waker: &dyn Waker,
    ) -> Result<(), Error> {
        let Err(error) = self.recover(conn, id, death, since, waker).await else {
            self.failed.over(&id);
            self.vain.remove(&id);
            return Ok(());
        };
        self.vain.insert(id);
        if error.is_of_environment() {
            self.hindered = Some(error.clone());
        }
        if self.failed.meet(&id, Instant::now()).is_some() {
            events::recovery_failed(id, &error);
        }
        broken(conn, error)
    }

    /// Adds the counts of the processes that are gone to the total of all of them. This is not urgent: a
    /// scrape finds them in either place.
    async fn fold(&mut self, conn: &mut Conn) -> Result<(), Error> {
        match metrics::fold(conn).await {
            Ok(_) => {
                self.folding.over(&());
                Ok(())
            }
            Err(error) if error.is_not_now() || conn.is_broken() => broken(conn, error),
            Err(error) => {
                if self.folding.meet(&(), Instant::now()).is_some() {
                    events::sweep_failed(&error);
                }
                broken(conn, error)
            }
        }
    }

    /// Gives back the claims of a dead process, and wakes others for them; `since`: its last heartbeat.
    pub async fn recover(
        &mut self,
        conn: &mut Conn,
        id: ProcessId,
        death: Death<'_>,
        since: Option<Instant>,
        waker: &dyn Waker,
    ) -> Result<(), Error> {
        let policy = self.policy.clone();
        let limits = move |definition: &_, step: &_| policy.step(definition, step);
        let recovered = recovery::recover(conn, id, death, &limits, &self.definitions).await?;
        self.left
            .extend(recovered.left.iter().map(|left| (id, *left)));
        if let Some(shared) = &self.shared {
            let silence = since.map(|since| since.elapsed());
            let counts = &shared.counts;
            counts.count(|counts| counting::recovered(counts, death, &recovered, silence));
        }
        events::recovered(id, death, &recovered);
        for pipeline in &recovered.pipelines {
            waker.job_available(pipeline);
        }
        if recovered.branches > 0 {
            waker.branch_available();
        }
        Ok(())
    }
}

/// Reports the work that was made due again.
fn announce(overtaken: &Overtaken, waker: &dyn Waker) {
    if *overtaken != Overtaken::default() {
        events::clock_set_back(overtaken);
    }
    for pipeline in &overtaken.pipelines {
        waker.job_available(pipeline);
    }
    if overtaken.branches > 0 {
        waker.branch_available();
    }
}

/// When a process gave its last sign of life, if `now` is the time at which its row was read.
fn silent_since(row: &ProcessRow, now: Instant) -> Option<Instant> {
    now.checked_sub(silence(row))
}

/// The time since a process's last heartbeat by the database's clock.
fn silence(row: &ProcessRow) -> Duration {
    let silence = row.seen_at.saturating_sub(row.last_heartbeat_at).max(0);
    Duration::from_micros(silence as u64)
}

/// The error, if this connection is of no further use.
fn broken(conn: &Conn, error: Error) -> Result<(), Error> {
    match error.is_unavailable() || conn.is_broken() {
        true => Err(error),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, LoadOptions};
    use crate::model::Intake;
    use crate::store::process::Counters;
    use crate::store::{Location, Purpose};
    use crate::telemetry::testing::Logged;

    const STALE: Duration = Duration::from_secs(30);

    fn row(id: ProcessId, beat_seq: i64, age_s: i64) -> ProcessRow {
        const NOW: i64 = 1_000_000_000_000;
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
            last_heartbeat_at: NOW - age_s * 1_000_000,
            beat_seq,
            seen_at: NOW,
            age: Duration::from_secs(age_s.max(0) as u64),
            intake: Intake::Open,
            paused: false,
            trouble: None,
            condemned: None,
            postponed: false,
            counters: Counters::default(),
        }
    }

    /// The age of a heartbeat that both witnesses vouch for.
    fn age(witness: &mut Witness, row: ProcessRow, now: Instant) -> Duration {
        let mut rows = [row];
        witness.look(&mut rows, now);
        rows[0].age
    }

    #[test]
    fn a_heartbeat_is_as_old_as_both_witnesses_say() {
        let (id, start) = (ProcessId::new(), Instant::now());
        let mut witness = Witness::default();
        // The database's clock was stepped by an hour: stale by that clock, but just seen by us.
        assert_eq!(age(&mut witness, row(id, 1, 3600), start), Duration::ZERO);
        // It beats: whatever the clock says, it lives.
        let later = start + STALE;
        assert_eq!(age(&mut witness, row(id, 2, 3600), later), Duration::ZERO);
        // Unseen for long, but fresh by the database's clock.
        let later = later + STALE * 2;
        let fresh = Duration::from_secs(1);
        assert_eq!(age(&mut witness, row(id, 2, 1), later), fresh);
        // Stale by both.
        assert!(age(&mut witness, row(id, 2, 31), later) > STALE);
    }

    #[test]
    fn where_the_clock_was_set_back_only_what_was_seen_counts() {
        let (id, start) = (ProcessId::new(), Instant::now());
        let mut witness = Witness::default();
        let ahead = || row(id, 1, -3600);
        assert_eq!(age(&mut witness, ahead(), start), Duration::ZERO);
        assert_eq!(age(&mut witness, ahead(), start + STALE), STALE);
    }

    #[test]
    fn after_a_reconnect_nobody_is_dead_for_a_whole_lease() {
        let (id, start) = (ProcessId::new(), Instant::now());
        let mut witness = Witness::default();
        age(&mut witness, row(id, 1, 60), start);
        witness.forget();
        let back = start + STALE * 4;
        assert_eq!(age(&mut witness, row(id, 1, 160), back), Duration::ZERO);
        assert_eq!(age(&mut witness, row(id, 1, 190), back + STALE), STALE);
    }

    #[test]
    fn the_oldest_sweeper_that_beats_looks_after_the_rest() {
        let of = |age_s| {
            let mut rows = [(); 3].map(|()| row(ProcessId::new(), 1, 0));
            let [child, oldest, heir] = &mut rows;
            child.supervisor = Some(oldest.id);
            *oldest = row(oldest.id, 1, age_s);
            (heir.started_at, heir.pid, oldest.pid) = (1, 3, 2);
            let [child, oldest, heir] = rows;
            let heirs_turn = is_first(&heir, &[child.clone(), oldest.clone()], STALE);
            (is_first(&oldest, &[child, heir], STALE), heirs_turn)
        };
        assert_eq!(of(29), (true, false));
        // The first one is dead, and its row cannot be removed.
        assert!(of(30).1);
    }

    /// A heartbeat that is later than the clock, which was set back, does not tell its age.
    #[test]
    fn a_dead_sweeper_is_not_the_first_until_the_clock_has_come_to_its_last_heartbeat() {
        let mut dead = [row(ProcessId::new(), 1, -3_600)];
        let mut mine = row(ProcessId::new(), 1, 0);
        (mine.started_at, mine.pid) = (1, 2);
        let (mut witness, start) = (Witness::default(), Instant::now());
        witness.look(&mut dead, start);
        assert!(!is_first(&mine, &dead, STALE));
        witness.look(&mut dead, start + STALE);
        assert!(is_first(&mine, &dead, STALE));
    }

    /// A console that has no supervisor sweeps nothing, and a worker that has none sweeps under one of its rows.
    #[test]
    fn a_row_under_which_nobody_sweeps_leaves_nobody_without_a_first() {
        let mut others = [(); 2].map(|()| row(ProcessId::new(), 1, 0));
        (others[0].role, others[0].pid) = (Role::Console, 2);
        let mut mine = row(ProcessId::new(), 1, 0);
        mine.started_at = 1;
        assert!(is_first(&mine, &others, STALE));
        others[1].boot_id = "another host".to_owned();
        assert!(!is_first(&mine, &others, STALE));
    }

    struct Nobody;

    impl Waker for Nobody {
        fn job_available(&self, _pipeline: &str) {}
        fn branch_available(&self) {}
        fn claims_revoked(&self) {}
        fn registered(&self) {}
    }

    /// A sweeper by the defaults of the configuration.
    fn sweeper(directory: &Path, proof: Box<Proof>) -> Sweeper {
        let config = Config::load(LoadOptions {
            file: None,
            env: None,
            vars: &|_| None,
            names: &[],
            cwd: directory.into(),
            handed: None,
        });
        let config = config.expect("the defaults are right");
        let policy = Policy::new(Arc::new(config));
        Sweeper::new(policy, Arc::new(Definitions::default()), proof)
    }

    #[tokio::test]
    async fn a_death_in_doubt_is_looked_at_again_soon_and_after_the_others() {
        let directory = tempfile::tempdir().unwrap();
        // Nothing is asked of a database before a death is proven.
        let url = format!("sqlite://{}/empty.db", directory.path().display());
        let location = Location::parse(&url).unwrap();
        let mut conn = location.connect(Purpose::Engine).await.unwrap();
        let (dead, alive) = (ProcessId::new(), ProcessId::new());
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let order = Arc::clone(&asked);
        let proof = move |of: &ProcessRow, rows: &[ProcessRow]| {
            assert_eq!(rows.len(), 2);
            order.lock().unwrap().push(of.id);
            match of.id == dead {
                true => Finding::Doubted,
                false => Finding::MayLive,
            }
        };
        let mut sweeper = sweeper(directory.path(), Box::new(proof));
        assert_eq!(sweeper.look_again_in(), None);
        let me = ProcessId::new();
        let mut rows = [row(dead, 1, 0), row(alive, 1, 0)];
        let now = Instant::now();
        for late in [true, false] {
            // A sweep that is late goes on with the others the next time.
            let until = if late { now } else { now + STALE };
            let swept = sweeper.recover_proven(&mut conn, me, &rows, now, &Nobody, until);
            assert_eq!(swept.await.unwrap(), late);
            assert_eq!(sweeper.look_again_in(), Some(LOOK_AGAIN));
            assert_eq!(sweeper.doubts_own(), !late);
            rows[0].supervisor = Some(me);
        }
        assert_eq!(*asked.lock().unwrap(), [dead, alive, dead]);
        conn.close().await;
    }

    #[tokio::test]
    async fn counts_that_cannot_be_added_up_are_told_of_once() {
        let directory = tempfile::tempdir().unwrap();
        // A file without a schema fails each statement.
        let url = format!("sqlite://{}/empty.db", directory.path().display());
        let location = Location::parse(&url).unwrap();
        let mut conn = location.connect(Purpose::Engine).await.unwrap();
        let logged = Logged::begin();
        let mut sweeper = sweeper(directory.path(), Box::new(|_, _| Finding::MayLive));
        for _ in 0..3 {
            sweeper.fold(&mut conn).await.unwrap();
        }
        assert_eq!(logged.count("a part of a sweep failed"), 1);
        conn.close().await;
    }

    /// The answer may be lost after the branches, which are all that shows it, were corrected.
    #[tokio::test]
    async fn a_look_at_the_clock_that_fails_is_made_again_as_if_the_clock_was_set_back() {
        let directory = tempfile::tempdir().unwrap();
        // A file without a schema fails each statement.
        let url = format!("sqlite://{}/empty.db", directory.path().display());
        let location = Location::parse(&url).unwrap();
        let mut conn = location.connect(Purpose::Engine).await.unwrap();
        let mut clock = Clock {
            set_back: false,
            ..Clock::default()
        };
        assert!(clock.put_right(&mut conn, Instant::now()).await.is_err());
        assert!(clock.set_back);
        conn.close().await;
    }

    #[test]
    fn a_clock_that_was_set_back_is_noticed_and_one_that_is_slow_or_jumps_ahead_is_not() {
        let start = Instant::now();
        let noticed = |later_s: i64| {
            let mut clock = Clock::default();
            assert!(clock.set_back, "nobody knows what was before");
            clock.look(0, start);
            clock.set_back = false;
            clock.look(later_s * 1_000_000, start + Duration::from_secs(10));
            clock.set_back
        };
        for (later_s, set_back) in [
            (10, false),
            (9, false),
            (8, true),
            (-3590, true),
            (3610, false),
        ] {
            assert_eq!(noticed(later_s), set_back, "{later_s}");
        }
    }
}
