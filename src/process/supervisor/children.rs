//! The children: started, replaced, judged by their heartbeats, killed and reaped, as the roster orders.

use std::ffi::OsString;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::counting;
use crate::engine::lifeline::Request;
use crate::engine::trouble::Trouble;
use crate::failpoint::failpoint;
use crate::machine::stuck::DIES;
use crate::process::child::GAVE_UP;
use crate::process::orphan::{self, Living};
use crate::process::roster::{self, Cause, ChildKind, Order, Pid, SlotId, Standing};
use crate::process::spawn;
use crate::step::CHILD;
use crate::store::process::ProcessRow;

use super::{Child, Supervisor, lock, wanted};

/// How long the orphans of one dead child are hunted before the loop looks at the next event.
const ORPHANS_BOUND: Duration = Duration::from_millis(250);

/// If a child has not registered after this time, something is in its way.
const REGISTERS_WITHIN: Duration = Duration::from_secs(10);

impl Supervisor {
    /// Replaces all children with new ones, except for these.
    pub(super) fn replace(&mut self, stays: Vec<ChildKind>) {
        // A child that replaces another one, and fares no better, meets its trouble again.
        let kinds = self.roster.children().map(|child| child.kind.clone());
        for kind in kinds.collect::<Vec<_>>() {
            if !stays.contains(&kind) {
                self.me.over(Trouble::Dying, &kind.to_string());
                self.me.over(Trouble::Registering, &kind.to_string());
            }
        }
        if self.roster.is_draining() {
            tracing::info!("those before them still drain: replacing them when these have ended");
        }
        let (at, wanted) = (self.at(), wanted(&self.setup));
        self.handle(roster::Event::Replace { wanted, stays, at });
    }

    /// Tells the roster which of its children stand still: they no longer beat, and they keep what they hold.
    pub(super) fn look(&mut self) {
        let at = self.at();
        let children = self.children.iter();
        let seen: Vec<_> = children
            .map(|(pid, child)| roster::Event::Seen {
                slot: child.slot,
                pid: *pid,
                frozen: spawn::is_frozen(*pid),
                at,
            })
            .collect();
        for event in seen {
            self.handle(event);
        }
    }

    /// Tells the roster how old its children's heartbeats are.
    pub(super) fn judge(&mut self, rows: &[ProcessRow]) {
        let children: Vec<(SlotId, Pid)> = self
            .children
            .iter()
            .map(|(pid, child)| (child.slot, *pid))
            .collect();
        for (slot, pid) in children {
            let age = rows
                .iter()
                .filter(|row| {
                    row.pid as Pid == pid
                        && row.boot_id == self.identity.boot_id
                        && row.pid_namespace == self.identity.pid_namespace
                        // The row of a process that has died stays for as long as its claims cannot be taken over.
                        && row.condemned.is_none()
                })
                .map(|row| row.age)
                .min();
            let at = self.at();
            self.handle(roster::Event::Heartbeat { slot, pid, age, at });
        }
        self.watch_who_registers();
    }

    /// Reports a child that cannot register, because nobody's table shows it.
    pub(super) fn watch_who_registers(&mut self) {
        let now = self.at();
        for child in self.roster.children() {
            let kind = child.kind.to_string();
            let since = child.unregistered_since;
            match since.map(|since| now.saturating_sub(since)) {
                Some(time) if time > REGISTERS_WITHIN => {
                    let pid = child.pid.unwrap_or_default();
                    let text = format!(
                        "the {kind} (pid {pid}) runs and cannot register; its log says what it waits for"
                    );
                    self.me.trouble(Trouble::Registering, &kind, &text);
                }
                Some(_) => {}
                None if child.standing == Standing::Up => {
                    self.me.over(Trouble::Registering, &kind);
                }
                None => {}
            }
        }
    }

    pub(super) fn handle(&mut self, event: roster::Event) {
        let orders = self.roster.handle(event);
        self.carry_out_all(orders);
    }

    pub(super) fn carry_out_all(&mut self, orders: Vec<Order>) {
        let mut orders: std::collections::VecDeque<Order> = orders.into();
        while let Some(order) = orders.pop_front() {
            if let Some(event) = self.carry_out(order) {
                orders.extend(self.roster.handle(event));
            }
        }
    }

    /// Carries out an order of the roster; returns the answer, if the roster wants one.
    pub(super) fn carry_out(&mut self, order: Order) -> Option<roster::Event> {
        match order {
            Order::Spawn { slot, kind } => return Some(self.spawn(slot, &kind)),
            Order::Signal { slot, pid, signal } => {
                if signal == nix::sys::signal::Signal::SIGKILL {
                    failpoint!("supervisor.killing");
                    self.say_killed(slot, pid);
                }
                if let Some(child) = self.children.get(&pid)
                    && let Err(error) = child.spawned.send(signal)
                {
                    tracing::error!(child_pid = pid, %signal, %error, "a child cannot be signalled");
                }
            }
            Order::Recover { pid, cause, .. } => {
                if cause == Cause::Stopped {
                    lock(&self.pids).stopped.insert(pid);
                }
                self.ask_for_a_sweep();
            }
            Order::ReportCrashLoop {
                slot,
                deaths,
                retry_in,
            } => {
                let children: Vec<_> = self.roster.children().filter(|c| c.slot == slot).collect();
                let kind = children.first().map(|child| child.kind.to_string());
                if let Some(kind) = &kind {
                    let text =
                        format!("the {kind} {DIES} ({deaths} times by now); the log says why");
                    self.me.trouble(Trouble::Dying, kind, &text);
                }
                tracing::error!(
                    child = kind,
                    deaths,
                    retry_in_ms = retry_in.as_millis() as u64,
                    "a child dies again and again"
                );
            }
            Order::ReportUnkillable { pid, .. } => {
                tracing::error!(
                    child_pid = pid,
                    "a child does not die of SIGKILL; not waiting for it"
                );
            }
            Order::Exit { code } => self.exit = Some(code),
        }
        None
    }

    /// Nobody waits for the answer: the next sweep does the work that this one cannot.
    pub(super) fn ask_for_a_sweep(&self) {
        let (done, _) = oneshot::channel();
        let _ = self.requests.send(Request::Sweep(done));
    }

    pub(super) fn say_killed(&self, slot: SlotId, pid: Pid) {
        let Some(child) = self.roster.children().find(|child| child.slot == slot) else {
            return;
        };
        let why = match child.killed {
            Some(Cause::Crash) if child.unregistered_since.is_some() => "it has not registered",
            Some(Cause::Crash) => "it stands still",
            _ if self.stopping.as_ref().is_some_and(|it| it.at_once) => {
                let why = "stopping at once was asked for";
                tracing::info!(child_pid = pid, child = %child.kind, why, "killing a child");
                return;
            }
            _ => "it was told to end, and did not",
        };
        tracing::warn!(child_pid = pid, child = %child.kind, why, "killing a child");
    }

    pub(super) fn spawn(&mut self, slot: SlotId, kind: &ChildKind) -> roster::Event {
        if self.roster.is_draining() {
            failpoint!("supervisor.replacing");
        }
        let tag = uuid::Uuid::new_v4().simple().to_string();
        let config = &self.setup.config;
        let argv = (self.setup.argv)(config, kind, self.me.process());
        let mut environment = self.setup.environment.clone();
        environment.push((OsString::from(CHILD), Some(OsString::from(&tag))));
        let handed = serde_json::to_vec(config.handed()).expect("texts are JSON");
        let at = self.at();
        match spawn::spawn(&argv, &environment, Some(&handed)) {
            Ok(spawned) => {
                let pid = spawned.pid();
                let again = self
                    .roster
                    .children()
                    .any(|it| it.slot == slot && it.deaths > 0);
                let counts = &self.me.counts;
                counts.count(|counts| counting::started(counts, kind.role(), again));
                tracing::debug!(child_pid = pid, child = %kind, "child started");
                // A pid that comes again is another process: it owes nothing to the old one.
                let mut pids = lock(&self.pids);
                pids.stopped.remove(&pid);
                pids.living.pids.insert(pid);
                pids.living.tags.insert(tag.clone());
                drop(pids);
                self.children.insert(pid, Child { slot, spawned, tag });
                roster::Event::Spawned { slot, pid, at }
            }
            Err(error) => {
                let remedy = spawn::remedy(&error);
                tracing::error!(child = %kind, %error, remedy, "a child cannot be started");
                roster::Event::SpawnFailed { slot, at }
            }
        }
    }

    /// Reaps dead children, and ends what they left behind.
    ///
    /// RACE: the steps of a dead worker left processes behind, and the lifeline, which shares our thread,
    /// proves the worker's death while we wait. So we await nothing before these processes are sent
    /// SIGKILL. Then the lifeline may ask the database; the successors are started while that takes its
    /// time. Raced by `a_process_that_hides_from_the_hunt_is_gone_before_its_step_runs_again`.
    pub(super) async fn reap(&mut self) {
        let mut orders = Vec::new();
        let mut died = false;
        loop {
            match spawn::wait_any() {
                Ok(Some((pid, status))) => {
                    if let Some(child) = self.children.remove(&pid) {
                        let mut pids = lock(&self.pids);
                        pids.living.pids.remove(&pid);
                        pids.living.tags.remove(&child.tag);
                        drop(pids);
                        failpoint!("supervisor.reaped");
                        died = true;
                        let child = self.roster.children().find(|child| child.pid == Some(pid));
                        if let Some(child) = &child {
                            let role = child.kind.role();
                            let counts = &self.me.counts;
                            counts.count(|counts| counting::exited(counts, role, status));
                        }
                        if let Some(child) = child
                            && !self.roster.is_stopping()
                            && !status.success()
                        {
                            tracing::warn!(child_pid = pid, child = %child.kind, %status, "a child died");
                        }
                        let at = self.at();
                        orders.extend(self.roster.handle(match status.code() {
                            Some(GAVE_UP) => roster::Event::GaveUp { pid, at },
                            _ => roster::Event::Exited { pid, at },
                        }));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot wait for children");
                    break;
                }
            }
        }
        // A process of which nobody could tell whose it is may have executed its program by now.
        if !died && !self.orphans_are_left {
            return;
        }
        let looked = orphan::sweep_once(&self.living());
        self.orphans_are_left = looked.as_ref().map_or(true, |sweep| sweep.left > 0);
        if !died {
            // It may be one that was killed before, and does not die: so this is no line of the log.
            tracing::debug!(?looked, "looked again at what was left behind");
            return;
        }
        let (recover, others): (Vec<_>, Vec<_>) = orders
            .into_iter()
            .partition(|order| matches!(order, Order::Recover { .. }));
        self.carry_out_all(recover);
        tokio::task::yield_now().await;
        self.carry_out_all(others);
        // Most children leave nothing behind. Anything that was left takes its time to die, and the
        // proof has waited for that.
        if !matches!(looked, Ok(sweep) if sweep == orphan::Sweep::default()) {
            self.end_orphans(looked.map_or(0, |sweep| sweep.killed))
                .await;
            self.ask_for_a_sweep();
        }
    }

    pub(super) fn living(&self) -> Living {
        lock(&self.pids).living.clone()
    }

    /// `killed`: how many were sent SIGKILL already.
    pub(super) async fn end_orphans(&mut self, killed: usize) {
        let swept = orphan::sweep(&self.living(), ORPHANS_BOUND).await;
        self.orphans_are_left = swept.as_ref().map_or(true, |sweep| sweep.left > 0);
        match swept {
            Ok(sweep) if killed.max(sweep.killed) > 0 => {
                tracing::warn!(
                    processes = killed.max(sweep.killed),
                    "ended what a dead worker's steps left behind"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot look for orphans"),
        }
    }
}
