//! The roster: children × events → orders.
//!
//! Owns: which child should live, when a dead one comes back, when a living one is ended.
//! Never: starts, signals or waits for a process, reads a clock, or touches the database;
//! it is a pure table that the supervisor asks, and whose orders it carries out.
//!
//! Times are spans since any fixed moment of a monotonic clock, handed in with each event.

mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;

pub use self::words::{Cause, Child, ChildKind, Event, Limits, Order, Pid, SlotId, Standing};

/// The wait before the second replacement in a row; the first is immediate.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// The longest wait before a replacement.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A child that was up for this long is healthy: its death starts a new count.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// How long a SIGKILLed child may take to die before the roster reports it.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How long a child may take to find that the database is back, after its supervisor has found it:
/// the longest wait between two attempts, and the longest attempt.
const RECONNECTING: Duration = Duration::from_secs(7);
/// A child that nobody looked at for this long may have been continued and stopped again meanwhile:
/// the supervisor looks every second, unless it stood still itself.
const LOOKED_AWAY: Duration = Duration::from_secs(5);
/// A child may take this many times as long to register for the first time as it may go without a heartbeat.
const REGISTERING: u32 = 4;
/// The children that show the stop to people are told to end this long before the end of a stop, at the latest:
/// the console gives requests under way 5 s.
const LAST_CALL: Duration = Duration::from_secs(6);
/// How long a child that was asked whether it reaches the database has for its answer.
const ANSWERING: Duration = Duration::from_secs(1);
/// This many deaths in a row are a crash loop.
const CRASH_LOOP_DEATHS: u32 = 5;

impl Limits {
    /// The age of a heartbeat at which the supervisor acts: a little before a peer would reap the process.
    fn stale_after(&self) -> Duration {
        self.reaper_timeout * 5 / 6
    }

    /// The age of a heartbeat at which the supervisor asks its child whether it reaches the database. A child that does
    /// not reach it ends before its leases are over, unless the supervisor looks less often than once in a heartbeat
    /// interval.
    fn asked_after(&self) -> Duration {
        self.reaper_timeout * 4 / 6
    }

    /// The last part of a stop, in which nobody watches the others any more.
    fn last_call(&self) -> Duration {
        LAST_CALL.min(self.shutdown_timeout / 2)
    }

    /// After an outage: the time that a child takes to come back, and one heartbeat interval.
    fn grace(&self) -> Duration {
        RECONNECTING + self.reaper_timeout / 6
    }
}

/// One living process in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Incarnation {
    pid: Pid,
    /// The time for registering counts from here; a lost database moves it.
    since: Duration,
    /// When it was first seen registered.
    up_since: Option<Duration>,
    /// Stopped by a signal: when it was first and last seen so.
    frozen: Option<(Duration, Duration)>,
    /// When it was first asked whether it reaches the database, since it was last seen there.
    asked: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No process; one is wanted from `until` on.
    Waiting { until: Duration },
    /// A spawn was ordered, and the answer is due.
    Ordered,
    /// Living, not registered.
    Starting(Incarnation),
    /// Living and registered.
    Up(Incarnation),
    /// Asked to end.
    Stopping {
        who: Incarnation,
        deadline: Duration,
    },
    /// Sent SIGKILL; replaced only after its exit was seen.
    Killed {
        who: Incarnation,
        at: Duration,
        cause: Cause,
        reported: bool,
    },
}

impl State {
    fn incarnation(&self) -> Option<Incarnation> {
        match *self {
            Self::Waiting { .. } | Self::Ordered => None,
            Self::Starting(who) | Self::Up(who) => Some(who),
            Self::Stopping { who, .. } | Self::Killed { who, .. } => Some(who),
        }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    kind: ChildKind,
    state: State,
    /// Deaths since it was last healthy.
    deaths: u32,
    /// False: it was replaced, and is freed when its process is gone.
    wanted: bool,
}

/// Whether anybody may be judged by heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Database {
    Reachable { judge_from: Duration },
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping { deadline: Duration },
    Exited,
}

/// The children that are wanted, and those of them that go on if they are there.
#[derive(Clone, Debug)]
struct Replacement {
    wanted: Vec<ChildKind>,
    stays: Vec<ChildKind>,
}

/// All children, and the work to be done about them.
#[derive(Clone, Debug)]
pub struct Roster {
    limits: Limits,
    slots: BTreeMap<SlotId, Slot>,
    next_slot: u32,
    phase: Phase,
    quiet: bool,
    database: Database,
    /// A replacement that waits until the predecessors of its children have drained.
    next: Option<Replacement>,
    /// The children that hold definitions are to be replaced, when their predecessors have drained.
    redefined: bool,
}

impl Roster {
    /// A roster of children that all wait for the first tick.
    pub fn new(wanted: Vec<ChildKind>, limits: Limits) -> Self {
        let mut roster = Self {
            limits,
            slots: BTreeMap::new(),
            next_slot: 0,
            phase: Phase::Running,
            quiet: false,
            database: Database::Reachable {
                judge_from: Duration::ZERO,
            },
            next: None,
            redefined: false,
        };
        for kind in wanted {
            roster.add(kind, Duration::ZERO);
        }
        roster
    }

    /// Takes note of an event and returns the orders for now. Any event is fine at any time.
    #[must_use = "orders that nobody carries out leave the table wrong"]
    pub fn handle(&mut self, event: Event) -> Vec<Order> {
        let mut orders = Vec::new();
        match event {
            Event::Spawned { slot, pid, at } => self.spawned(slot, pid, at, &mut orders),
            Event::SpawnFailed { slot, at } => {
                self.spawn_failed(slot, at, &mut orders);
                self.replace_next(at, &mut orders);
                self.end_the_last(at, &mut orders);
            }
            Event::Exited { pid, at } | Event::GaveUp { pid, at } => {
                let gave_up = matches!(event, Event::GaveUp { .. });
                self.exited(pid, gave_up, at, &mut orders);
                self.replace_next(at, &mut orders);
                self.end_the_last(at, &mut orders);
            }
            Event::Heartbeat { slot, pid, age, at } => {
                self.heartbeat(slot, pid, age, at, &mut orders);
            }
            Event::Seen {
                slot,
                pid,
                frozen,
                at,
            } => self.seen(slot, pid, frozen, at, &mut orders),
            Event::Tick { at } => {
                self.tick(at, &mut orders);
                self.replace_next(at, &mut orders);
                self.end_the_last(at, &mut orders);
            }
            Event::Stop { at, immediate } => {
                self.stop(at, immediate, &mut orders);
                self.end_the_last(at, &mut orders);
            }
            Event::DatabaseLost => self.database = Database::Lost,
            Event::DatabaseBack { at } => self.database_back(at),
            Event::Replace { wanted, stays, at } => {
                let mut next = Replacement { wanted, stays };
                if let Some(before) = &self.next {
                    next.stays.retain(|kind| before.stays.contains(kind));
                }
                self.next = Some(next);
                self.replace_next(at, &mut orders);
            }
            Event::Redefined { at } => {
                self.redefined = true;
                self.replace_next(at, &mut orders);
            }
            Event::Quiet(quiet) => self.quiet(quiet, &mut orders),
        }
        self.exit_when_all_are_gone(&mut orders);
        orders
    }

    /// The next moment at which a tick has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.slots
            .values()
            .filter_map(|slot| match slot.state {
                State::Waiting { until } => Some(until),
                State::Stopping { deadline, .. } => Some(deadline),
                State::Killed {
                    at,
                    reported: false,
                    ..
                } => Some(at + KILL_PATIENCE),
                State::Starting(who) | State::Up(who) => {
                    let frozen = who
                        .frozen
                        .map(|(since, _)| since + self.limits.stale_after());
                    let last = match self.phase {
                        Phase::Stopping { deadline } => Some(deadline - self.limits.last_call()),
                        Phase::Running | Phase::Exited => None,
                    };
                    frozen.into_iter().chain(last).min()
                }
                State::Ordered | State::Killed { .. } => None,
            })
            .min()
    }

    /// The table of children, in the order of their slots.
    pub fn children(&self) -> impl Iterator<Item = Child<'_>> {
        self.slots.iter().map(|(id, slot)| Child {
            slot: *id,
            kind: &slot.kind,
            pid: slot.state.incarnation().map(|who| who.pid),
            standing: match slot.state {
                State::Waiting { .. } | State::Ordered => Standing::Waiting,
                State::Starting(_) => Standing::Starting,
                State::Up(_) => Standing::Up,
                State::Stopping { .. } => Standing::Stopping,
                State::Killed { .. } => Standing::Killed,
            },
            unregistered_since: match slot.state {
                State::Starting(who) | State::Killed { who, .. } if who.up_since.is_none() => {
                    Some(who.since)
                }
                _ => None,
            },
            killed: match slot.state {
                State::Killed { cause, .. } => Some(cause),
                _ => None,
            },
            deaths: slot.deaths,
        })
    }

    /// True when every wanted child that moves work has registered.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running
            && self
                .slots
                .values()
                .filter(|slot| slot.wanted && slot.kind.moves_work())
                .all(|slot| matches!(slot.state, State::Up(_)))
    }

    /// True from the first `Stop` on.
    pub fn is_stopping(&self) -> bool {
        self.phase != Phase::Running
    }

    /// True while replaced children still drain. Nobody waits for one that does not even die of SIGKILL.
    pub fn is_draining(&self) -> bool {
        self.slots
            .values()
            .any(|slot| !slot.wanted && !matches!(slot.state, State::Killed { reported: true, .. }))
    }

    fn add(&mut self, kind: ChildKind, at: Duration) {
        let id = SlotId(self.next_slot);
        self.next_slot += 1;
        self.slots.insert(
            id,
            Slot {
                kind,
                state: State::Waiting { until: at },
                deaths: 0,
                wanted: true,
            },
        );
    }

    fn spawned(&mut self, id: SlotId, pid: Pid, at: Duration, orders: &mut Vec<Order>) {
        let Some(slot) = self
            .slots
            .get_mut(&id)
            .filter(|slot| slot.state == State::Ordered)
        else {
            // Nobody ordered it, so nobody would ever watch it.
            orders.push(signal(id, pid, Signal::SIGKILL));
            return;
        };
        let who = Incarnation {
            pid,
            since: at,
            up_since: None,
            frozen: None,
            asked: None,
        };
        slot.state = State::Starting(who);
        // A stop or a removal that came while the child was being started is handed on to it: it is
        // born with these signals blocked, so that it finds them when it looks (S1).
        match self.phase {
            Phase::Running if slot.wanted => {
                if self.quiet {
                    orders.push(signal(id, pid, Signal::SIGTSTP));
                }
            }
            Phase::Running => {
                let deadline = at + self.limits.shutdown_timeout;
                terminate(id, slot, deadline, orders);
            }
            Phase::Stopping { deadline } if at < deadline => {
                terminate(id, slot, deadline, orders);
            }
            Phase::Stopping { .. } | Phase::Exited => {
                kill(id, slot, at, Cause::Stopped, orders);
            }
        }
    }

    fn spawn_failed(&mut self, id: SlotId, at: Duration, orders: &mut Vec<Order>) {
        let Some(slot) = self
            .slots
            .get_mut(&id)
            .filter(|slot| slot.state == State::Ordered)
        else {
            return;
        };
        if self.phase != Phase::Running || !slot.wanted {
            self.slots.remove(&id);
            return;
        }
        slot.deaths = slot.deaths.saturating_add(1);
        // The kernel would refuse the next attempt at once, so even the first failure waits.
        let wait = backoff(slot.deaths).max(BACKOFF_FIRST);
        slot.state = State::Waiting { until: at + wait };
        report_crash_loop(id, slot, wait, orders);
    }

    fn exited(&mut self, pid: Pid, gave_up: bool, at: Duration, orders: &mut Vec<Order>) {
        let found = self.slots.iter_mut().find_map(|(id, slot)| {
            let who = slot.state.incarnation()?;
            (who.pid == pid).then_some((*id, slot, who))
        });
        let Some((id, slot, who)) = found else {
            return;
        };
        // A step of the program itself may end its process with any status, at any time.
        let cause = match slot.state {
            State::Stopping { .. } => Cause::Stopped,
            // It may have been on its way when it was killed.
            _ if gave_up && who.asked.is_some() => Cause::Stopped,
            State::Killed { cause, .. } => cause,
            _ => Cause::Crash,
        };
        orders.push(Order::Recover {
            slot: id,
            pid,
            cause,
        });
        if self.phase != Phase::Running || !slot.wanted {
            self.slots.remove(&id);
            return;
        }
        let healthy = who
            .up_since
            .is_some_and(|up| at.saturating_sub(up) >= HEALTHY_AFTER);
        slot.deaths = if healthy {
            1
        } else {
            slot.deaths.saturating_add(1)
        };
        let wait = backoff(slot.deaths);
        report_crash_loop(id, slot, wait, orders);
        if wait.is_zero() {
            spawn(id, slot, orders);
        } else {
            slot.state = State::Waiting { until: at + wait };
        }
    }

    fn heartbeat(
        &mut self,
        id: SlotId,
        pid: Pid,
        age: Option<Duration>,
        at: Duration,
        orders: &mut Vec<Order>,
    ) {
        let stale_after = self.limits.stale_after();
        let may_judge = match self.database {
            Database::Reachable { judge_from } => at >= judge_from,
            Database::Lost => false,
        };
        // RACE: the database lets us in, and our child no more (a limit of connections, after it was restarted).
        // Nothing that the child runs is to blame. It has to end, and its claims have to be released, before its
        // leases are over and anybody takes it for dead, also while it still has time to come back. Proven by
        // `a_child_that_is_not_let_in_again_costs_its_steps_no_crash`.
        let (asked_after, lost) = (self.limits.asked_after(), self.database == Database::Lost);
        let asks = |age| age > asked_after && !lost;
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let who = match &mut slot.state {
            State::Starting(who) | State::Up(who) if who.pid == pid => *who,
            State::Stopping { who, .. } if who.pid == pid => {
                // Its deadline binds it now, not its heartbeat. But a child that came up only after
                // it was told to end is told again (S1).
                if age.is_some() && who.up_since.is_none() {
                    who.up_since = Some(at);
                    orders.push(signal(id, pid, Signal::SIGTERM));
                }
                if age.is_some_and(asks) {
                    orders.push(signal(id, pid, Signal::SIGTTOU));
                }
                return;
            }
            _ => return,
        };
        let registering = match (age, slot.state) {
            (Some(_), _) => None,
            (None, State::Up(_)) => {
                // Its row is gone (a peer reaped it): it registers anew as a new process, and gets as
                // much time for that as a child that was just born.
                slot.state = State::Starting(Incarnation { since: at, ..who });
                return;
            }
            (None, _) => Some(at.saturating_sub(who.since)),
        };
        // The database may refuse a new child and not us: another child would wait as long.
        let patience = match who.up_since {
            Some(_) => stale_after,
            None => stale_after * REGISTERING,
        };
        let stale = age.is_some_and(|age| age > stale_after)
            || registering.is_some_and(|time| time > patience);
        let is_asked = age.is_some_and(asks) && who.up_since.is_some();
        let asked = match is_asked {
            true => who.asked.or(Some(at)),
            // While the database is lost nobody can tell.
            false => who.asked.filter(|_| lost),
        };
        let answers = asked.is_some_and(|first| at.saturating_sub(first) < ANSWERING);
        if stale && may_judge && !answers {
            kill(id, slot, at, Cause::Crash, orders);
            return;
        }
        if is_asked {
            orders.push(signal(id, pid, Signal::SIGTTOU));
        }
        let who = Incarnation { asked, ..who };
        slot.state = match slot.state {
            _ if age.is_some() && !stale => State::Up(Incarnation {
                up_since: who.up_since.or(Some(at)),
                ..who
            }),
            State::Up(_) => State::Up(who),
            _ => State::Starting(who),
        };
    }

    /// A stopped process beats as little as a dead one, whatever the database does. If it was stopped
    /// in the middle of a write and keeps all others from writing, the database says nothing until
    /// the process is gone. So the roster judges it without the database.
    fn seen(&mut self, id: SlotId, pid: Pid, frozen: bool, at: Duration, orders: &mut Vec<Order>) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let (State::Starting(who) | State::Up(who)) = &mut slot.state else {
            // A deadline bounds its end, or its end was ordered already.
            return;
        };
        if who.pid != pid {
            return;
        }
        let since = match who.frozen {
            Some((since, last)) if at.saturating_sub(last) <= LOOKED_AWAY => since,
            _ => at,
        };
        who.frozen = frozen.then_some((since, at));
        if frozen && at.saturating_sub(since) >= self.limits.stale_after() {
            kill(id, slot, at, Cause::Crash, orders);
        }
    }

    fn tick(&mut self, at: Duration, orders: &mut Vec<Order>) {
        for (id, slot) in &mut self.slots {
            match &mut slot.state {
                State::Waiting { until } if *until <= at => spawn(*id, slot, orders),
                State::Stopping { deadline, .. } if *deadline <= at => {
                    kill(*id, slot, at, Cause::Stopped, orders);
                }
                State::Killed {
                    who,
                    at: killed_at,
                    reported,
                    ..
                } if !*reported && *killed_at + KILL_PATIENCE <= at => {
                    *reported = true;
                    orders.push(Order::ReportUnkillable {
                        slot: *id,
                        pid: who.pid,
                    });
                }
                _ => {}
            }
        }
    }

    fn stop(&mut self, at: Duration, immediate: bool, orders: &mut Vec<Order>) {
        let deadline = match self.phase {
            Phase::Exited => return,
            _ if immediate => at,
            Phase::Stopping { deadline } => deadline,
            Phase::Running => at + self.limits.shutdown_timeout,
        };
        self.phase = Phase::Stopping { deadline };
        self.next = None;
        self.redefined = false;
        self.slots
            .retain(|_, slot| !matches!(slot.state, State::Waiting { .. }));
        for (id, slot) in &mut self.slots {
            match &mut slot.state {
                State::Waiting { .. } | State::Ordered => {}
                State::Starting(_) | State::Up(_) | State::Stopping { .. } if immediate => {
                    kill(*id, slot, at, Cause::Stopped, orders);
                }
                // People watch the drain of the others on it.
                State::Starting(_) | State::Up(_) if !slot.kind.moves_work() => {}
                State::Starting(_) | State::Up(_) => terminate(*id, slot, deadline, orders),
                State::Stopping { deadline: own, .. } => *own = deadline.min(*own),
                State::Killed { .. } => {}
            }
        }
    }

    /// Ends the children that were left to watch the others, when the others are gone or little time is left.
    fn end_the_last(&mut self, at: Duration, orders: &mut Vec<Order>) {
        let Phase::Stopping { deadline } = self.phase else {
            return;
        };
        let is_waited_for = |slot: &Slot| {
            slot.kind.moves_work() && !matches!(slot.state, State::Killed { reported: true, .. })
        };
        if at + self.limits.last_call() < deadline && self.slots.values().any(is_waited_for) {
            return;
        }
        for (id, slot) in &mut self.slots {
            match slot.state {
                // Nobody looked in time.
                State::Starting(_) | State::Up(_) if at >= deadline => {
                    kill(*id, slot, at, Cause::Stopped, orders);
                }
                State::Starting(_) | State::Up(_) => terminate(*id, slot, deadline, orders),
                _ => {}
            }
        }
    }

    fn database_back(&mut self, at: Duration) {
        self.database = Database::Reachable {
            judge_from: at + self.limits.grace(),
        };
        for slot in self.slots.values_mut() {
            // No child could register while the database could not be reached.
            if let State::Starting(who) = &mut slot.state {
                who.since = who.since.max(at);
            }
        }
    }

    /// Starts new children beside the old ones, which drain: at every moment somebody claims. But it
    /// starts no third generation: each works as many steps as it is allowed to. A replacement that
    /// comes while another drains waits for its end; of several that come, the last one counts, and a child goes
    /// on only if each of them lets it.
    fn replace_next(&mut self, at: Duration, orders: &mut Vec<Order>) {
        if self.phase != Phase::Running || self.is_draining() {
            return;
        }
        // Children that have not been started yet read the definitions when they start.
        let redefined = std::mem::take(&mut self.redefined);
        let next = match self.next.take() {
            Some(next) => next,
            None if redefined => {
                let wanted: Vec<ChildKind> = self.wanted().cloned().collect();
                let stays = wanted.iter().filter(|kind| !kind.holds_definitions());
                let stays = stays.cloned().collect();
                Replacement { wanted, stays }
            }
            None => return,
        };
        let mut missing = next.wanted;
        let mut stays = next.stays;
        stays.retain(|kind| missing.contains(kind));
        // One that does not even die works no more, and one that waits for its turn has nothing to lose.
        let lives = |slot: &Slot| {
            !matches!(
                slot.state,
                State::Waiting { .. } | State::Killed { reported: true, .. }
            )
        };
        let is_replaced = |slot: &Slot| !slot.wanted || !stays.contains(&slot.kind) || !lives(slot);
        let deadline = at + self.limits.shutdown_timeout;
        self.slots
            .retain(|_, slot| !is_replaced(slot) || !matches!(slot.state, State::Waiting { .. }));
        for (id, slot) in &mut self.slots {
            if !is_replaced(slot) {
                continue;
            }
            slot.wanted = false;
            if let State::Starting(_) | State::Up(_) = slot.state {
                terminate(*id, slot, deadline, orders);
            }
        }
        for kind in self.wanted() {
            if let Some(at) = missing.iter().position(|other| other == kind) {
                missing.remove(at);
            }
        }
        for kind in missing {
            self.add(kind, at);
        }
        self.tick(at, orders);
    }

    fn wanted(&self) -> impl Iterator<Item = &ChildKind> {
        let slots = self.slots.values().filter(|slot| slot.wanted);
        slots.map(|slot| &slot.kind)
    }

    fn quiet(&mut self, quiet: bool, orders: &mut Vec<Order>) {
        self.quiet = quiet;
        let word = if quiet {
            Signal::SIGTSTP
        } else {
            Signal::SIGCONT
        };
        for (id, slot) in &self.slots {
            // A child that is stopping claims nothing any more.
            if let State::Starting(who) | State::Up(who) = slot.state {
                orders.push(signal(*id, who.pid, word));
            }
        }
    }

    fn exit_when_all_are_gone(&mut self, orders: &mut Vec<Order>) {
        if !matches!(self.phase, Phase::Stopping { .. }) {
            return;
        }
        let gone = self
            .slots
            .values()
            .all(|slot| matches!(slot.state, State::Killed { reported: true, .. }));
        if gone {
            self.phase = Phase::Exited;
            let code = u8::from(!self.slots.is_empty());
            orders.push(Order::Exit { code });
        }
    }
}

fn signal(slot: SlotId, pid: Pid, signal: Signal) -> Order {
    Order::Signal { slot, pid, signal }
}

fn spawn(id: SlotId, slot: &mut Slot, orders: &mut Vec<Order>) {
    slot.state = State::Ordered;
    orders.push(Order::Spawn {
        slot: id,
        kind: slot.kind.clone(),
    });
}

fn terminate(id: SlotId, slot: &mut Slot, deadline: Duration, orders: &mut Vec<Order>) {
    if let Some(who) = slot.state.incarnation() {
        slot.state = State::Stopping { who, deadline };
        orders.push(signal(id, who.pid, Signal::SIGTERM));
    }
}

fn kill(id: SlotId, slot: &mut Slot, at: Duration, cause: Cause, orders: &mut Vec<Order>) {
    if let Some(who) = slot.state.incarnation() {
        slot.state = State::Killed {
            who,
            at,
            cause,
            reported: false,
        };
        orders.push(signal(id, who.pid, Signal::SIGKILL));
    }
}

fn report_crash_loop(id: SlotId, slot: &Slot, retry_in: Duration, orders: &mut Vec<Order>) {
    if slot.deaths >= CRASH_LOOP_DEATHS {
        orders.push(Order::ReportCrashLoop {
            slot: id,
            deaths: slot.deaths,
            retry_in,
        });
    }
}

/// The wait before the replacement that follows this many deaths in a row.
fn backoff(deaths: u32) -> Duration {
    match deaths.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => 2u32
            .checked_pow(doublings)
            .and_then(|factor| BACKOFF_FIRST.checked_mul(factor))
            .map_or(BACKOFF_MAX, |wait| wait.min(BACKOFF_MAX)),
    }
}

#[cfg(test)]
mod tests;
