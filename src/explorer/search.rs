//! Every schedule, depth first; states that were met before are not entered again.
//!
//! Owns: the possible next moves, doing and undoing them, and the checks of each state: that the
//! invariants hold, that no transaction met an unexpected error, and that a fair schedule from
//! there ends as the definition promises.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::pin;
use std::str::FromStr;
use std::task::{Context, Poll, Waker};

use super::actors::{Actor, Cx, Fault};
use super::canon::{Canon, Words};
use super::fair;
use super::flows::LEASE;
use super::invariants;
use super::local::{EPOCH, Local, is_tripped};
use super::mutants::Mutant;
use super::scenario::Scenario;
use crate::model::*;
use crate::store::definition::Definitions;
use crate::store::{Conn, Error};

/// The value of a future that never waits: a local database answers at once.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("something waits that is not the database"),
    }
}

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub crashes: u8,
    pub ticks: u8,
    pub faults: u8,
    /// A message arrives after its connection was given up.
    pub late: u8,
}

impl Limits {
    fn without(mut self, fault: Fault) -> Self {
        match fault {
            Fault::None => {}
            Fault::Late => self.late -= 1,
            Fault::Lost | Fault::Refused | Fault::Cut => self.faults -= 1,
        }
        self
    }
}

/// Everything that is not in the database.
#[derive(Clone)]
pub struct State {
    pub actors: Vec<Actor>,
    pub clock: i64,
    pub crashed: Vec<ProcessId>,
    pub left: Limits,
    ids: u64,
}

/// One move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// An actor makes the move of this letter.
    Act(usize, u8, Fault),
    /// Its process dies and loses its whole memory.
    Crash(usize),
    /// A new process takes its place, and registers at once.
    Boot(usize),
    /// The clock goes on by a lease.
    Tick,
}

/// `ac`: actor a claims; `ac+`: and the answer is lost; `ac-`: it is refused; `ac/`: it is cut off;
/// `ac~`: it arrives later; `a!`: a crashes; `a^`: a boots; `tick`.
impl fmt::Display for Move {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |index: usize| char::from(b'a' + index as u8);
        match *self {
            Self::Act(index, verb, fault) => {
                let mark = match fault {
                    Fault::None => "",
                    Fault::Lost => "+",
                    Fault::Refused => "-",
                    Fault::Cut => "/",
                    Fault::Late => "~",
                };
                write!(to, "{}{}{mark}", name(index), char::from(verb))
            }
            Self::Crash(index) => write!(to, "{}!", name(index)),
            Self::Boot(index) => write!(to, "{}^", name(index)),
            Self::Tick => to.write_str("tick"),
        }
    }
}

impl FromStr for Move {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "tick" {
            return Ok(Self::Tick);
        }
        let index = |name: u8| usize::from(name.wrapping_sub(b'a'));
        match *text.as_bytes() {
            [name, b'!'] => Ok(Self::Crash(index(name))),
            [name, b'^'] => Ok(Self::Boot(index(name))),
            [name, verb] => Ok(Self::Act(index(name), verb, Fault::None)),
            [name, verb, b'+'] => Ok(Self::Act(index(name), verb, Fault::Lost)),
            [name, verb, b'-'] => Ok(Self::Act(index(name), verb, Fault::Refused)),
            [name, verb, b'~'] => Ok(Self::Act(index(name), verb, Fault::Late)),
            [name, verb, b'/'] => Ok(Self::Act(index(name), verb, Fault::Cut)),
            _ => Err(format!("{text:?} is no move")),
        }
    }
}

/// A defect, and the schedule that led to it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub scenario: String,
    pub mutants: Vec<Mutant>,
    pub schedule: Vec<Move>,
    pub what: String,
}

impl Violation {
    /// One line that can be replayed.
    pub fn line(&self) -> String {
        let moves: Vec<String> = self.schedule.iter().map(Move::to_string).collect();
        let without: Vec<String> = self.mutants.iter().map(Mutant::to_string).collect();
        let without = match without.is_empty() {
            true => String::new(),
            false => format!(" without {}", without.join(" ")),
        };
        format!("{}{without}: {}", self.scenario, moves.join(" "))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}\nDUCTWORK_SCHEDULE='{}'", self.what, self.line())
    }
}

/// The key of a state.
struct Digests {
    /// The whole state.
    own: u128,
    /// The stored rows.
    stored: u128,
    /// Each actor's memory, in the names of the stored rows.
    actors: Vec<u128>,
}

/// The digest of a whole state. If two actors remember the same deleted row, the digest does not
/// show that it is the same: it makes no difference to either actor.
fn whole(stored: u128, left: Limits, actors: &[u128]) -> u128 {
    let mut words = Words::new();
    let left = [left.crashes, left.ticks, left.faults, left.late].map(u64::from);
    for digest in actors {
        words.mix_digest(*digest);
    }
    words.mix_digest(stored);
    for word in left {
        words.mix(word);
    }
    words.digest()
}

/// An actor's move in some state.
struct Deed {
    actor: usize,
    fault: Fault,
    /// Of the stored rows, the actor's memory, and the move.
    words: Words,
}

impl Deed {
    fn of(next: Move, here: &Digests) -> Option<Self> {
        let Move::Act(actor, verb, fault) = next else {
            return None;
        };
        let mut words = Words::new();
        words.mix_digest(here.stored);
        words.mix_digest(here.actors[actor]);
        words.mix((actor as u64) << 16 | u64::from(verb) << 8 | fault as u64);
        // An actor that leaves is then known to have ended.
        (verb != b'q').then_some(Self {
            actor,
            fault,
            words,
        })
    }

    /// The digest of the move.
    fn own(&self) -> u128 {
        self.words.digest()
    }

    /// The digest of the move and the memory of another actor.
    fn beside(&self, other: usize, memory: u128) -> u128 {
        let mut words = self.words;
        words.mix(other as u64);
        words.mix_digest(memory);
        words.digest()
    }
}

/// A part of a digest is its hash.
#[derive(Default)]
struct Part(u64);

impl Hasher for Part {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests are hashed");
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Set = HashSet<u128, BuildHasherDefault<Part>>;
type Map<T> = HashMap<u128, T, BuildHasherDefault<Part>>;

/// The reason why a schedule did not end well.
#[derive(Debug)]
pub enum Replayed {
    /// It met a defect.
    Violated(Violation),
    /// This move was not possible there.
    Impossible(Move),
}

impl From<Violation> for Replayed {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

/// The states that a search has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub states: usize,
    pub moves: usize,
    pub leaves: usize,
    pub deepest: usize,
    /// It was ended before all states were seen.
    pub cut: bool,
}

/// The checks of every state.
pub struct Promises {
    /// The audit's invariants, as one query.
    pub always: String,
    /// An error is not a violation: the store has refused, and rolled back. Then only the stored
    /// state is checked, not its further course.
    pub may_refuse: bool,
}

impl Promises {
    /// All checks.
    pub fn all() -> Self {
        Self {
            always: invariants::joined(),
            may_refuse: false,
        }
    }

    /// Only that nothing wrong is stored, even if nothing is done.
    pub fn safety() -> Self {
        Self {
            may_refuse: true,
            ..Self::all()
        }
    }
}

/// The number of statements of a move, unless it never ends.
const MOST_OF_A_MOVE: u32 = 500;

/// A search of one scenario.
pub struct Search<'a> {
    scenario: &'a Scenario,
    mutants: &'a [Mutant],
    conn: Conn,
    definitions: Definitions,
    visited: Set,
    /// The contents of the database whose invariants were found to hold.
    sound: Set,
    finished: Set,
    /// The stored rows and an actor's memory after its move.
    became: Map<(u128, u128)>,
    /// The memory of another actor, which may count differently after the move.
    meanwhile: Map<u128>,
    schedule: Vec<Move>,
    promises: &'a Promises,
    pub seen: Seen,
    most: usize,
}

impl<'a> Search<'a> {
    /// A world as the scenario begins, and its first state.
    pub fn new(
        scenario: &'a Scenario,
        mutants: &'a [Mutant],
        promises: &'a Promises,
        most: usize,
    ) -> Result<(Self, State), Violation> {
        counted::set(Some(0));
        let mut search = Self {
            scenario,
            conn: Conn::local(Local::open(mutants)),
            mutants,
            definitions: Definitions::default(),
            visited: Set::default(),
            sound: Set::default(),
            finished: Set::default(),
            became: Map::default(),
            meanwhile: Map::default(),
            schedule: Vec::new(),
            promises,
            seen: Seen::default(),
            most,
        };
        let mut state = State {
            actors: Vec::new(),
            clock: EPOCH,
            crashed: Vec::new(),
            left: scenario.limits,
            ids: 0,
        };
        search.conn.as_local().set_clock(EPOCH);
        if promises.may_refuse {
            search.conn.as_local().most = MOST_OF_A_MOVE;
        }
        let began = scenario.begin(&mut search.conn, &search.definitions, &mut state);
        began.map_err(|error| search.violation(format!("it cannot begin: {error:?}")))?;
        state.ids = counted::last().unwrap_or_default();
        Ok((search, state))
    }

    /// Searches everything.
    pub fn run(&mut self, state: &State) -> Result<Seen, Violation> {
        let digests = self.digests(state);
        self.visited.insert(digests.own);
        self.enter(digests.stored)?;
        self.below(state, &digests)?;
        counted::set(None);
        Ok(self.seen)
    }

    /// Follows one schedule, and ends it fairly.
    pub fn replay(&mut self, state: &State, schedule: &[Move]) -> Result<(), Replayed> {
        let mut state = state.clone();
        let stored = self.digests(&state).stored;
        self.enter(stored)?;
        for next in schedule {
            if !self.moves(&state).contains(next) {
                return Err(Replayed::Impossible(*next));
            }
            self.schedule.push(*next);
            state = self.perform(&state, *next)?;
            let stored = self.digests(&state).stored;
            self.enter(stored)?;
        }
        Ok(self.finish(&state)?)
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            scenario: self.scenario.name.clone(),
            mutants: self.mutants.to_vec(),
            schedule: self.schedule.clone(),
            what,
        }
    }

    /// Checks the invariants of a state that was not seen before; the actors' memory is not part of
    /// them.
    fn enter(&mut self, stored: u128) -> Result<(), Violation> {
        self.seen.states += 1;
        if !self.sound.insert(stored) {
            return Ok(());
        }
        match invariants::broken(self.conn.as_local(), &self.promises.always) {
            Some(broken) => Err(self.violation(broken)),
            None => Ok(()),
        }
    }

    fn below(&mut self, state: &State, here: &Digests) -> Result<(), Violation> {
        if self.seen.states >= self.most {
            self.seen.cut = true;
            return Ok(());
        }
        self.seen.deepest = self.seen.deepest.max(self.schedule.len());
        let mut leaf = true;
        for next in self.moves(state) {
            self.seen.moves += 1;
            let foreseen = self.foreseen(state, here, next);
            if foreseen.is_some_and(|own| self.visited.contains(&own)) {
                leaf &= foreseen == Some(here.own);
                continue;
            }
            self.conn.as_local().mark();
            self.schedule.push(next);
            let after = self.perform(state, next)?;
            let there = self.digests(&after);
            assert!(
                foreseen.is_none_or(|own| own == there.own),
                "{next} did not come to what it came to before: {}",
                self.violation(String::new()).line()
            );
            self.remember(next, here, &there);
            leaf &= there.own == here.own;
            if self.visited.insert(there.own) {
                self.enter(there.stored)?;
                self.below(&after, &there)?;
            }
            self.schedule.pop();
            self.conn.as_local().undo();
            self.conn.as_local().set_clock(state.clock);
        }
        // At the ends, where nothing more can happen, and at some other places on the way.
        if leaf || here.own.is_multiple_of(64) {
            self.finish(state)?;
        }
        Ok(())
    }

    /// The state to which a move leads, if everything that it does was seen before: an actor's move
    /// depends on the stored rows and on its own memory, whatever the others remember.
    fn foreseen(&self, state: &State, here: &Digests, next: Move) -> Option<u128> {
        let deed = Deed::of(next, here)?;
        let (stored, own) = *self.became.get(&deed.own())?;
        let mut actors = Vec::with_capacity(here.actors.len());
        for (index, actor) in here.actors.iter().enumerate() {
            actors.push(match index == deed.actor {
                true => own,
                false => *self.meanwhile.get(&deed.beside(index, *actor))?,
            });
        }
        Some(whole(stored, state.left.without(deed.fault), &actors))
    }

    fn remember(&mut self, done: Move, here: &Digests, there: &Digests) {
        let Some(deed) = Deed::of(done, here) else {
            return;
        };
        let became = (there.stored, there.actors[deed.actor]);
        self.became.insert(deed.own(), became);
        for (index, actor) in here.actors.iter().enumerate() {
            let beside = deed.beside(index, *actor);
            self.meanwhile.insert(beside, there.actors[index]);
        }
    }

    fn digests(&mut self, state: &State) -> Digests {
        counted::set(Some(state.ids));
        let mut canon = Canon::of(self.conn.as_local(), state.clock);
        // The reaper knows which processes have crashed.
        for process in &state.crashed {
            canon.process(process.0.as_u128());
        }
        let stored = canon.digest();
        let of = |actor: &Actor| {
            let mut canon = canon.clone();
            actor.write(&mut canon);
            canon.digest()
        };
        let actors: Vec<u128> = state.actors.iter().map(of).collect();
        Digests {
            own: whole(stored, state.left, &actors),
            stored,
            actors,
        }
    }

    fn moves(&self, state: &State) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, actor) in state.actors.iter().enumerate() {
            for verb in actor.verbs(state.clock) {
                moves.push(Move::Act(index, verb, Fault::None));
                if state.left.faults > 0 && !Actor::is_safe(verb) {
                    let faults = [Fault::Lost, Fault::Refused, Fault::Cut];
                    moves.extend(faults.map(|fault| Move::Act(index, verb, fault)));
                }
                // An act that a person sends twice happens twice.
                let late = state.left.late > 0 && actor.life().is_some();
                if late && !Actor::is_safe(verb) {
                    moves.push(Move::Act(index, verb, Fault::Late));
                }
            }
            match actor.life() {
                Some(life) if life.crashed => moves.push(Move::Boot(index)),
                Some(life) if state.left.crashes > 0 && life.process.is_some() => {
                    moves.push(Move::Crash(index));
                }
                _ => {}
            }
        }
        if state.left.ticks > 0 {
            moves.push(Move::Tick);
        }
        moves
    }

    fn perform(&mut self, before: &State, next: Move) -> Result<State, Violation> {
        let mut state = before.clone();
        counted::set(Some(state.ids));
        self.conn.as_local().set_clock(state.clock);
        let acted = match next {
            Move::Act(index, verb, fault) => {
                state.left = state.left.without(fault);
                if fault == Fault::Late {
                    let from = state.actors[index].clone();
                    let network = state.actors.last_mut().expect("a network");
                    network.send(from, verb);
                }
                let left = state.actors[index].life().and_then(|life| life.process);
                let acted = self.act(&mut state, index, verb, fault);
                // Its supervisor sees it exit.
                state.crashed.extend(left.filter(|_| verb == b'q'));
                acted
            }
            Move::Crash(index) => {
                state.left.crashes -= 1;
                state.crashed.extend(state.actors[index].crash());
                Ok(())
            }
            Move::Boot(index) => {
                state.actors[index].boot();
                self.act(&mut state, index, b'r', Fault::None)
            }
            Move::Tick => {
                state.left.ticks -= 1;
                state.clock += LEASE.as_micros() as i64;
                Ok(())
            }
        };
        match acted {
            Ok(()) => {}
            Err(error) if self.promises.may_refuse && !is_tripped(&error) => state = before.clone(),
            // None of these schedules makes the database refuse a statement.
            Err(error) => return Err(self.violation(format!("{next} met {error:?}"))),
        }
        self.conn.as_local().set_clock(state.clock);
        state.ids = counted::last().unwrap_or_default();
        Ok(state)
    }

    fn act(
        &mut self,
        state: &mut State,
        index: usize,
        verb: u8,
        fault: Fault,
    ) -> Result<(), Error> {
        let mut cx = Cx {
            conn: &mut self.conn,
            definitions: &self.definitions,
            crashed: &state.crashed,
            clock: state.clock,
            fault,
            may_refuse: self.promises.may_refuse,
        };
        at_once(state.actors[index].act(verb, &mut cx))
    }

    /// Liveness, and the outcome.
    fn finish(&mut self, state: &State) -> Result<(), Violation> {
        if self.promises.may_refuse {
            return Ok(());
        }
        self.seen.leaves += 1;
        let digest = {
            let left = Limits::default();
            self.digests(&State {
                left,
                ..state.clone()
            })
            .own
        };
        if !self.finished.insert(digest) {
            return Ok(());
        }
        counted::set(Some(state.ids));
        self.conn.as_local().mark();
        let (conn, definitions) = (&mut self.conn, &self.definitions);
        let allowed = self.scenario.allowed(state);
        let done = fair::finish(conn, definitions, state, &self.scenario.flows, allowed);
        let broken = invariants::broken(self.conn.as_local(), &self.promises.always);
        self.conn.as_local().undo();
        self.conn.as_local().set_clock(state.clock);
        match (done, broken) {
            (Err(what), _) => Err(self.violation(format!("liveness: {what}"))),
            (_, Some(broken)) => Err(self.violation(format!("after the fair schedule: {broken}"))),
            _ => Ok(()),
        }
    }
}

/// Searches everything that can follow from a scenario, up to `most` states; the error is the first
/// violation, with the shortest schedule found for it.
pub fn search(
    scenario: &Scenario,
    mutants: &[Mutant],
    promises: &Promises,
    most: usize,
) -> Result<Seen, Violation> {
    let (mut search, state) = Search::new(scenario, mutants, promises, most)?;
    let seen = search.run(&state);
    seen.map_err(|violation| shortened(scenario, promises, violation))
}

/// The statements that run in a scenario: the lack of any other statement's condition does not
/// affect it.
pub fn statements(
    scenario: &Scenario,
    promises: &Promises,
    most: usize,
) -> Result<BTreeSet<&'static str>, Violation> {
    let (mut search, state) = Search::new(scenario, &[], promises, most)?;
    search.run(&state)?;
    Ok(search.conn.as_local().names())
}

/// Makes the moves of a schedule in a separate world.
pub fn replay(
    scenario: &Scenario,
    mutants: &[Mutant],
    promises: &Promises,
    schedule: &[Move],
) -> Result<(), Replayed> {
    let (mut search, state) = Search::new(scenario, mutants, promises, usize::MAX)?;
    search.replay(&state, schedule)
}

/// Leaves out one move after another, as long as a violation remains.
fn shortened(scenario: &Scenario, promises: &Promises, mut violation: Violation) -> Violation {
    let mut at = violation.schedule.len();
    while at > 0 {
        at -= 1;
        let mut fewer = violation.schedule.clone();
        fewer.remove(at);
        let mutants = violation.mutants.clone();
        if let Err(Replayed::Violated(shorter)) = replay(scenario, &mutants, promises, &fewer) {
            violation = shorter;
            at = at.min(violation.schedule.len());
        }
    }
    violation
}
