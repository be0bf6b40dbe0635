//! Worlds: their beginnings and their actors.
//!
//! Owns: the list of scenarios: every pair of kinds of actors, and the triples that are known to
//! cause trouble in systems of this sort. Never: decides an order.

use std::sync::Arc;
use std::time::Duration;

use super::actors::{Actor, Advancer, Cx, Fault, Verb, Worker};
use super::fair::{self, Allowed};
use super::flows::{self, Flow, LEASE, flow};
use super::search::{Limits, State, at_once};
use crate::model::RunId;
use crate::store::definition::Definitions;
use crate::store::trigger::{self, NewRun};
use crate::store::{Conn, Error};

/// A world.
pub struct Scenario {
    pub name: String,
    /// The flows of the existing runs, and their progress: all was run, and then all was advanced,
    /// this many times.
    pub flows: Vec<Flow>,
    halves: Vec<usize>,
    who: Vec<Who>,
    pub limits: Limits,
    mode: Mode,
}

/// The mode that searches a world to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Both,
    /// It has too many states for the other.
    Long,
    /// A part of a wide world, which covers it in the long mode: with fewer actors, or with one kind of fault at a time.
    Short,
}

/// The actors, and their runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A worker, with the number of its slots.
    Worker(usize),
    /// A worker that leases following steps.
    Leasing(usize),
    /// A worker that has claimed already.
    Holding,
    /// A worker that has claimed already, and may put it back.
    PutsBack,
    /// A worker of two slots, which may set a result aside.
    SetsAside,
    /// A worker that has yet to register.
    Booting,
    /// An advancer, with the number of branches that it claims.
    Advancer(usize),
    /// A reaper.
    Reaper,
    /// A reaper that may find claims locked.
    ReaperAmongLocks,
    /// The same for an advancer, which claims so many at once.
    AdvancerAmongLocks(usize),
    /// Triggers the first flow again, with a key.
    Trigger,
    /// Triggers the first flow again, without a key.
    TriggerUnkeyed,
    Cancel(usize),
    /// Cancels a run branch by branch.
    CancelParts(usize),
    Revive(usize),
    Resume(usize),
    /// Decides questions that nobody has answered in time.
    Deadlines,
    Pause,
    Unpause,
    Prune,
    /// Prunes runs that ended a tick ago.
    PruneOld,
    /// A worker that has claimed already, and may end in order.
    LeavingWorker,
    /// An advancer that may end in order.
    LeavingAdvancer,
}

impl Scenario {
    fn new(
        name: impl Into<String>,
        runs: &[(&str, usize)],
        who: &[Who],
        limits: (u8, u8, u8),
    ) -> Self {
        let (crashes, ticks, faults) = limits;
        Self {
            name: name.into(),
            flows: runs.iter().map(|(name, _)| flow(name)).collect(),
            halves: runs.iter().map(|(_, halves)| *halves).collect(),
            who: who.to_vec(),
            limits: Limits {
                crashes,
                ticks,
                faults,
                late: 0,
            },
            mode: Mode::Both,
        }
    }

    /// The same, for the long mode alone.
    fn wide(mut self) -> Self {
        self.mode = Mode::Long;
        self
    }

    /// The same, for the short mode alone.
    fn narrow(mut self) -> Self {
        self.mode = Mode::Short;
        self
    }

    /// The same, where one message may arrive after its connection was given up.
    fn late(mut self) -> Self {
        self.limits.late = 1;
        self
    }

    /// Makes the runs and the actors.
    pub fn begin(
        &self,
        conn: &mut Conn,
        definitions: &Definitions,
        state: &mut State,
    ) -> Result<(), Error> {
        let mut runs = Vec::new();
        for (flow, halves) in self.flows.iter().zip(&self.halves) {
            let run = [NewRun {
                key: None,
                input: flows::INPUT,
            }];
            let triggered = trigger::trigger(conn, &flow.definition, &run, Duration::ZERO);
            runs.push(at_once(triggered)?[0].run_id);
            fair::drive(conn, definitions, state, *halves)?;
            conn.as_local().hide();
        }
        conn.as_local().show();
        for who in &self.who {
            state.actors.push(self.actor(*who, &runs));
            let first: &[u8] = match who {
                Who::Holding | Who::PutsBack | Who::LeavingWorker => b"rc",
                Who::Worker(_)
                | Who::Leasing(_)
                | Who::SetsAside
                | Who::Advancer(_)
                | Who::AdvancerAmongLocks(_)
                | Who::LeavingAdvancer => b"r",
                _ => b"",
            };
            let index = state.actors.len() - 1;
            for verb in first {
                let mut cx = Cx {
                    conn,
                    definitions,
                    crashed: &[],
                    clock: state.clock,
                    fault: Fault::None,
                    may_refuse: false,
                };
                at_once(state.actors[index].act(*verb, &mut cx))?;
            }
        }
        if self.limits.late > 0 {
            state.actors.push(Actor::Network(None));
        }
        Ok(())
    }

    fn actor(&self, who: Who, runs: &[RunId]) -> Actor {
        let worker = |slots, leases, puts_back| match Actor::worker(slots) {
            Actor::Worker(mut worker) => {
                (worker.leases, worker.puts_back) = (leases, puts_back);
                Actor::Worker(worker)
            }
            actor => actor,
        };
        let leaving = |mut actor: Actor| {
            match &mut actor {
                Actor::Worker(Worker { life, .. }) | Actor::Advancer(Advancer { life, .. }) => {
                    life.leaves = true;
                }
                _ => {}
            }
            actor
        };
        let trigger = |key| Verb::Trigger {
            definition: Arc::new(self.flows[0].definition.clone()),
            key,
        };
        match who {
            Who::Worker(slots) => Actor::worker(slots),
            Who::Leasing(slots) => worker(slots, true, false),
            Who::Holding | Who::Booting => Actor::worker(1),
            Who::PutsBack => worker(1, false, true),
            Who::SetsAside => match worker(2, true, false) {
                Actor::Worker(mut worker) => {
                    worker.sets_aside = true;
                    Actor::Worker(worker)
                }
                actor => actor,
            },
            Who::Advancer(slots) => Actor::advancer(slots),
            Who::AdvancerAmongLocks(slots) => match Actor::advancer(slots) {
                Actor::Advancer(mut advancer) => {
                    advancer.sets_aside = true;
                    Actor::Advancer(advancer)
                }
                actor => actor,
            },
            Who::Reaper => Actor::reaper(false),
            Who::ReaperAmongLocks => Actor::reaper(true),
            Who::Trigger => Actor::person(trigger(Some("key"))),
            Who::TriggerUnkeyed => Actor::person(trigger(None)),
            Who::Cancel(run) => Actor::person(Verb::Cancel(runs[run])),
            Who::CancelParts(run) => Actor::person(Verb::CancelParts(runs[run])),
            Who::Revive(run) => Actor::person(Verb::Revive(runs[run])),
            Who::Resume(run) => Actor::person(Verb::Resume(runs[run])),
            Who::Deadlines => Actor::person(Verb::Deadlines),
            Who::Pause => Actor::person(Verb::Pause),
            Who::Unpause => Actor::person(Verb::Unpause),
            Who::Prune => Actor::person(Verb::Prune(Duration::ZERO)),
            Who::PruneOld => Actor::person(Verb::Prune(LEASE)),
            Who::LeavingWorker => leaving(Actor::worker(1)),
            Who::LeavingAdvancer => leaving(Actor::advancer(1)),
        }
    }

    /// The outcomes that are possible so far.
    pub fn allowed(&self, state: &State) -> Allowed {
        let keyed = |actor: &Actor| actor.triggered(true);
        Allowed {
            cancelled: self
                .who
                .iter()
                .any(|who| matches!(who, Who::Cancel(_) | Who::CancelParts(_))),
            pruned: self.who.contains(&Who::Prune) || self.who.contains(&Who::PruneOld),
            runs: self.flows.len()
                + usize::from(state.actors.iter().any(keyed))
                + state
                    .actors
                    .iter()
                    .filter(|actor| actor.triggered(false))
                    .count(),
        }
    }
}

/// One kind of actor, and the run on which it acts.
struct Kind {
    name: &'static str,
    run: Option<(&'static str, usize)>,
    who: fn(usize) -> Who,
}

const fn kind(
    name: &'static str,
    run: Option<(&'static str, usize)>,
    who: fn(usize) -> Who,
) -> Kind {
    Kind { name, run, who }
}

/// The kinds whose pairs are all searched. `cancel` acts on the other's run.
const KINDS: &[Kind] = &[
    kind("work", Some(("chain", 0)), |_| Who::Leasing(1)),
    kind("fail", Some(("flaky", 0)), |_| Who::Worker(1)),
    kind("divert", Some(("divert", 0)), |_| Who::Worker(2)),
    kind("arrive", Some(("divide", 2)), |_| Who::Worker(2)),
    kind("divide", Some(("divide", 1)), |_| Who::Advancer(2)),
    kind("combine", Some(("divide", 3)), |_| Who::Advancer(2)),
    kind("expand", Some(("expand", 1)), |_| Who::Advancer(1)),
    kind("collapse", Some(("expand", 3)), |_| Who::Advancer(1)),
    kind("none", Some(("none", 1)), |_| Who::Advancer(2)),
    kind("hold", Some(("dampen", 1)), |_| Who::Advancer(2)),
    kind("halt", Some(("bad", 1)), |_| Who::Advancer(2)),
    kind("end", Some(("split end", 3)), |_| Who::Advancer(2)),
    kind("reap", None, |_| Who::Reaper),
    kind("beat", Some(("chain", 0)), |_| Who::Holding),
    kind("put back", Some(("chain", 0)), |_| Who::PutsBack),
    kind("trigger", None, |_| Who::Trigger),
    kind("revive", Some(("bad", 4)), Who::Revive),
    kind("resume", Some(("dampen", 2)), Who::Resume),
    kind("tell", Some(("told end", 1)), |_| Who::Advancer(2)),
    kind("cancel", None, Who::Cancel),
    kind("prune", Some(("chain", 1)), |_| Who::Prune),
];

/// The faults of a pair: the numbers of crashes, of ticks of the clock, and of failing
/// transactions.
fn troubles(reaps: u8) -> Vec<(&'static str, (u8, u8, u8))> {
    match long() {
        true => vec![("long", (2, reaps, 1))],
        false => vec![("crash", (1, reaps, 0)), ("fault", (0, 0, 1))],
    }
}

/// The part and the number of parts from `DUCTWORK_EXPLORER=long` or `long:2/8`.
fn mode() -> Option<(usize, usize)> {
    let mode = std::env::var("DUCTWORK_EXPLORER").ok()?;
    let part = match mode.strip_prefix("long")? {
        "" => Some((1, 1)),
        part => part.strip_prefix(':').and_then(|part| {
            let (part, parts) = part.split_once('/')?;
            Some((part.parse().ok()?, parts.parse().ok()?))
        }),
    };
    let part = part.filter(|(part, parts)| (1..=*parts).contains(part));
    Some(part.expect("DUCTWORK_EXPLORER is `long`, or `long:2/8`"))
}

/// True if more of everything is requested.
pub fn long() -> bool {
    mode().is_some()
}

/// True if everything is searched.
pub fn is_whole() -> bool {
    mode().is_none_or(|(_, parts)| parts == 1)
}

/// The requested part.
pub fn piece<T>(all: Vec<T>) -> Vec<T> {
    let (part, parts) = mode().unwrap_or((1, 1));
    let mine = all.into_iter().enumerate();
    let mine = mine.filter(|(index, _)| index % parts + 1 == part);
    mine.map(|(_, one)| one).collect()
}

/// Every pair of kinds, including each kind with itself.
pub fn pairs() -> Vec<Scenario> {
    let mut pairs = Vec::new();
    for (index, one) in KINDS.iter().enumerate() {
        for other in &KINDS[index..] {
            let mut runs: Vec<_> = [one.run, other.run].into_iter().flatten().collect();
            if runs.is_empty() {
                runs.push(("chain", 0));
            }
            let of = |kind: &Kind, own: usize, others: usize| match kind.run {
                Some(_) => (kind.who)(own),
                None => (kind.who)(others),
            };
            let last = runs.len() - 1;
            let who = [of(one, 0, last), of(other, last, 0)];
            // Without a reaper, a crash or an old lease would show only later.
            let reaps = u8::from(who.contains(&Who::Reaper));
            for (trouble, limits) in troubles(reaps) {
                let name = format!("{} + {}, {trouble}", one.name, other.name);
                pairs.push(Scenario::new(name, &runs, &who, limits));
            }
        }
    }
    pairs
}

/// Three actors at once, and more if necessary.
pub fn triples() -> Vec<Scenario> {
    use Who::*;
    let more = u8::from(long());
    let two = |name: &str, runs: &[_], who: &[_], (crashes, ticks, faults): (u8, u8, u8)| {
        Scenario::new(name, runs, who, (crashes + more, ticks, faults + more))
    };
    vec![
        two(
            "zombie worker",
            &[("chain", 0)],
            &[Leasing(1), Holding, Reaper],
            (1, 1, 0),
        )
        .wide(),
        two(
            "zombie worker, crash",
            &[("chain", 0)],
            &[Leasing(1), Holding, Reaper],
            (1, 0, 0),
        )
        .narrow(),
        two(
            "zombie worker, tick",
            &[("chain", 0)],
            &[Leasing(1), Holding, Reaper],
            (0, 1, 0),
        )
        .narrow(),
        two(
            "zombie that fails",
            &[("flaky", 0)],
            &[Worker(1), Holding, Reaper],
            (0, 1, 0),
        ),
        two(
            "two advancers",
            &[("divide", 1)],
            &[Advancer(1), Advancer(1), Reaper],
            (1, 1, 0),
        )
        .wide(),
        two(
            "two advancers, crash",
            &[("divide", 1)],
            &[Advancer(1), Advancer(1), Reaper],
            (1, 0, 0),
        )
        .narrow(),
        two(
            "two advancers, tick",
            &[("divide", 1)],
            &[Advancer(1), Advancer(1), Reaper],
            (0, 1, 0),
        )
        .narrow(),
        two(
            "last arrivals",
            &[("divide", 3)],
            &[Advancer(1), Advancer(1), Reaper],
            (1, 1, 0),
        )
        .wide(),
        two(
            "last arrivals, crash",
            &[("divide", 3)],
            &[Advancer(1), Advancer(1), Reaper],
            (1, 0, 0),
        )
        .narrow(),
        two(
            "last arrivals, tick",
            &[("divide", 3)],
            &[Advancer(1), Advancer(1), Reaper],
            (0, 1, 0),
        )
        .narrow(),
        two(
            "a give-back behind a recovery",
            &[("divide", 1)],
            &[Advancer(1), Reaper],
            (0, 1, 1),
        )
        .narrow(),
        two(
            "a claim that a recovery leaves",
            &[("flaky", 0), ("chain", 0)],
            &[Worker(2), ReaperAmongLocks],
            (0, 1, 1),
        ),
        two(
            "a failing step that a recovery leaves",
            &[("bad", 0)],
            &[Worker(1), ReaperAmongLocks],
            (1, 1, 0),
        ),
        two(
            "an advancement that a recovery leaves",
            &[("divide", 1)],
            &[Advancer(2), ReaperAmongLocks],
            (1, 1, 1),
        ),
        two(
            "a branch that is set aside",
            &[("divide", 1), ("bad", 1)],
            &[AdvancerAmongLocks(2), Reaper],
            (1, 0, 1),
        ),
        two(
            "a result that is set aside",
            &[("divide", 2)],
            &[SetsAside, Reaper],
            (1, 1, 1),
        ),
        two(
            "a result that is set aside, and a person",
            &[("chain", 0), ("flaky", 0)],
            &[SetsAside, Cancel(0)],
            (0, 0, 1),
        ),
        two(
            "siblings",
            &[("divide", 2)],
            &[Worker(1), Worker(1), Reaper],
            (0, 1, 0),
        ),
        two(
            "a sibling fails",
            &[("half bad", 2)],
            &[Worker(1), Worker(1), Advancer(1)],
            (0, 0, 0),
        ),
        two(
            "boot",
            &[("chain", 0)],
            &[Booting, Reaper, Worker(1)],
            (0, 1, 0),
        ),
        two(
            "boot anew",
            &[("chain", 0)],
            &[Booting, Reaper, Worker(1)],
            (1, 0, 0),
        ),
        two(
            "two reapers",
            &[("chain", 0)],
            &[Holding, Reaper, Reaper],
            (1, 1, 0),
        ),
        two(
            "nested",
            &[("nested", 4)],
            &[Worker(1), Advancer(1), Worker(1)],
            (0, 0, 0),
        ),
        two(
            "a person and a deadline",
            &[("told", 2)],
            &[Resume(0), Deadlines, Advancer(1)],
            (0, 1, 0),
        ),
        two(
            "a wait that nobody was told of",
            &[("told", 2)],
            &[Cancel(0), Prune, Worker(1)],
            (0, 0, 0),
        ),
        two(
            "paused and dead",
            &[("chain", 0)],
            &[Leasing(1), Pause, Reaper],
            (1, 1, 0),
        ),
        two(
            "paused in a fan-out",
            &[("divide", 1)],
            &[Advancer(1), Worker(1), Pause, Unpause],
            (0, 0, 0),
        ),
        two(
            "late and paused",
            &[("chain", 0)],
            &[Leasing(1), Pause, Unpause],
            (0, 0, 0),
        )
        .late(),
        two(
            "late claims and commits",
            &[("chain", 0), ("flaky", 0)],
            &[Leasing(2), PutsBack],
            (0, 0, 0),
        )
        .late(),
        two(
            "late arrivals",
            &[("divide", 2)],
            &[Worker(1), Worker(1), Cancel(0)],
            (0, 0, 0),
        )
        .late(),
        two(
            "late results of the dead",
            &[("chain", 0)],
            &[Leasing(1), Reaper],
            (1, 1, 0),
        )
        .late(),
        two(
            "late advances of the dead",
            &[("divide", 1)],
            &[Advancer(1), Reaper],
            (1, 1, 0),
        )
        .late(),
        two(
            "late, and gone",
            &[("chain", 0), ("divide", 1)],
            &[LeavingWorker, LeavingAdvancer, Reaper],
            (0, 0, 0),
        )
        .late()
        .wide(),
        two(
            "late, and a worker is gone",
            &[("chain", 0)],
            &[LeavingWorker, Reaper],
            (0, 0, 0),
        )
        .late()
        .narrow(),
        two(
            "late, and an advancer is gone",
            &[("divide", 1)],
            &[LeavingAdvancer, Reaper],
            (0, 0, 0),
        )
        .late()
        .narrow(),
    ]
}

/// Small worlds, each about few guards, in which a mutant is found quickly.
pub fn sharp() -> Vec<Scenario> {
    use Who::*;
    let new = Scenario::new;
    vec![
        new(
            "cancelled advance",
            &[("divide", 1), ("divide", 2)],
            &[Advancer(1), Cancel(0), Cancel(1)],
            (0, 0, 0),
        ),
        new(
            "cancelled arrivals, part by part",
            &[("divide", 2)],
            &[Worker(2), Advancer(2), CancelParts(0)],
            (1, 1, 0),
        ),
        new(
            "cancelled waits, part by part",
            &[("half bad", 3), ("dampen", 2)],
            &[Worker(1), Advancer(1), CancelParts(0), CancelParts(0)],
            (0, 0, 0),
        ),
        new(
            "a part of what a silent worker holds",
            &[("chain", 0)],
            &[Worker(1), ReaperAmongLocks],
            (0, 1, 0),
        ),
        new(
            "cancelled give-back",
            &[("divide", 1)],
            &[Advancer(1), Cancel(0)],
            (0, 0, 1),
        ),
        new(
            "revived too early",
            &[("bad", 1)],
            &[Advancer(1), Revive(0)],
            (0, 0, 0),
        ),
        new(
            "half of them fail",
            &[("half bad", 2)],
            &[Worker(2), Advancer(2)],
            (0, 0, 0),
        ),
        new(
            "last one comes late",
            &[("nested", 5)],
            &[Worker(2), Advancer(2)],
            (0, 0, 0),
        ),
        new(
            "lineage",
            &[("bad", 4), ("chain", 1)],
            &[Revive(0), Revive(0), Prune],
            (0, 0, 0),
        ),
        new(
            "cancelled wait",
            &[("dampen", 2), ("half bad", 2)],
            &[Resume(0), Cancel(0), Cancel(1), Advancer(1)],
            (0, 0, 0),
        ),
        new(
            "revived fan-out",
            &[("half bad", 6), ("split end", 6)],
            &[Revive(0), Worker(2), Prune],
            (0, 0, 0),
        ),
        new(
            "arrivals",
            &[("divide", 2)],
            &[Worker(2), Worker(1), Advancer(2)],
            (0, 0, 0),
        ),
        new(
            "resumed twice",
            &[("dampen", 2), ("dampen", 2)],
            &[Resume(0), Resume(0), Resume(1), Advancer(1)],
            (0, 0, 0),
        ),
        new(
            "answered in time or not",
            &[("told", 2)],
            &[Resume(0), Deadlines, Worker(1), Prune],
            (0, 1, 0),
        ),
        new(
            "answered too late",
            &[("told", 2), ("dampen", 2)],
            &[Deadlines, Cancel(0), Advancer(1)],
            (0, 1, 0),
        ),
        new(
            "told of its end",
            &[("told end", 1)],
            &[Advancer(1), Worker(1), Prune],
            (0, 0, 0),
        ),
        new(
            "hook and prune",
            &[("bad", 2), ("chain", 0)],
            &[Worker(1), Prune, Revive(0)],
            (0, 0, 0),
        ),
        new(
            "two keys",
            &[("chain", 4)],
            &[Trigger, Trigger, TriggerUnkeyed, Prune],
            (0, 0, 1),
        ),
        new(
            "refused advances",
            &[("divide", 1), ("dampen", 1)],
            &[Advancer(2), Advancer(1)],
            (0, 0, 1),
        ),
        new(
            "cancelled work",
            &[("chain", 0), ("chain", 0)],
            &[Holding, PutsBack, Cancel(0)],
            (0, 0, 0),
        ),
        new(
            "given away",
            &[("chain", 0)],
            &[PutsBack, Reaper],
            (0, 1, 1),
        ),
        new(
            "dead advancer",
            &[("divide", 1)],
            &[Advancer(1), Reaper],
            (1, 1, 0),
        ),
        new(
            "dead behind a fan-in",
            &[("bad end", 5)],
            &[Advancer(1), Reaper],
            (1, 1, 0),
        ),
        new(
            "lost answers",
            &[("chain", 0), ("flaky", 0)],
            &[Leasing(2), PutsBack],
            (0, 0, 1),
        ),
        new(
            "late advancer",
            &[("divide", 1)],
            &[Advancer(1), Advancer(1), Reaper],
            (0, 1, 0),
        ),
        new(
            "late worker",
            &[("chain", 0)],
            &[Holding, Worker(1), Reaper],
            (0, 1, 0),
        ),
        new(
            "leaving",
            &[("chain", 0), ("chain", 0), ("divide", 1)],
            &[LeavingWorker, LeavingAdvancer, Reaper],
            (0, 0, 0),
        ),
        new(
            "cancelled fan-in",
            &[("divide", 3)],
            &[Advancer(1), Cancel(0)],
            (0, 0, 0),
        ),
        new("deadly", &[("bad", 0)], &[Holding, Reaper], (1, 0, 0)),
        new(
            "paused",
            &[("chain", 0), ("chain", 0)],
            &[Leasing(2), Pause, Unpause],
            (0, 0, 1),
        ),
        new(
            "paused at boot",
            &[("chain", 0)],
            &[Booting, Advancer(1), Pause, Unpause],
            (1, 1, 0),
        ),
        new("later", &[("later", 0)], &[Worker(1)], (0, 1, 0)),
        new(
            "what is old",
            &[("chain", 4), ("chain", 0)],
            &[PruneOld, Worker(1)],
            (0, 1, 0),
        ),
        new(
            "revived behind a fan-in",
            &[("bad end", 7)],
            &[Revive(0), Advancer(1)],
            (0, 0, 0),
        ),
        new(
            "late give-back",
            &[("divide", 1)],
            &[Advancer(1), Advancer(1), Reaper],
            (0, 1, 1),
        )
        .wide(),
        new(
            "both hold and beat",
            &[("divide", 1), ("divide", 1)],
            &[Advancer(1), Advancer(1)],
            (0, 1, 0),
        ),
        new("late claim", &[("chain", 0)], &[Leasing(1)], (0, 0, 0)).late(),
        new("late advance", &[("divide", 1)], &[Advancer(1)], (0, 0, 0)).late(),
    ]
}

fn every() -> Vec<Scenario> {
    let mut all = triples();
    all.extend(sharp());
    all.extend(pairs());
    all
}

/// All that are searched to their end.
pub fn all() -> Vec<Scenario> {
    let mut all = every();
    let other = if long() { Mode::Short } else { Mode::Long };
    all.retain(|scenario| scenario.mode != other);
    all
}

/// The scenario with this name.
pub fn named(name: &str) -> Scenario {
    let found = every().into_iter().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("there is no scenario {name}"))
}
