//! The actors: workers, advancers, reapers and people, one transaction at a time.
//!
//! Owns: when each may make its next operation, and what happens to the answer on its way. The memory of a
//! worker and an advancer between two transactions, their next one, and their conclusions from its answer are
//! the daemon's own (`engine::worker_state`, `engine::advancer_state`), and so is the reaper's witness.
//!
//! They differ from the daemon's loops in the following ways. The omitted parts concern only time, the number of
//! things at once, or notifications:
//! - A worker commits all finished executions that it holds, or the first one. Nothing here is refused for its
//!   value.
//! - A worker claims whenever it has a free slot; the daemon first checks whether anything is due, and puts back
//!   claims for slots that are not free. Here a worker puts back at any time.
//! - Definitions are loaded once, without a move: they never change.
//!
//! Never: writes a row of its own; nor waits, wakes or runs anything: a step's outcome follows from its name and
//! input, and exists as soon as the step is claimed.

mod advancer;
mod worker;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::canon::Canon;
use super::flows::{self, LEASE};
use super::local::{EPOCH, is_tripped, refused, tripped};
use crate::definition::{Backoff, Definition};
use crate::engine::advancer_state::AdvancerState;
use crate::engine::reaper::Witness;
use crate::engine::worker_state::WorkerState;
use crate::machine::advance::AdvanceLimits;
use crate::machine::outcome::StepLimits;
use crate::model::*;
use crate::store::claim::Claimed;
use crate::store::definition::Definitions;
use crate::store::error::Source;
use crate::store::process::{self, Claimant, Counters, NewProcess, Orders, ProcessRow};
use crate::store::recovery::{self, Death, Locked, Recovered};
use crate::store::statement::Statement;
use crate::store::trigger::{self, NewRun};
use crate::store::{Conn, Error, action, advance, cancel, claim, pause, prune, resume, revive};

/// A fault of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// It was committed, and the answer is lost.
    Lost,
    /// It was rolled back, and every retry failed: deadlocks.
    Refused,
    /// It was rolled back, because the connection is gone.
    Cut,
    /// It is still on its way, the connection is given up, and it arrives later.
    Late,
}

/// The world of an actor.
pub struct Cx<'a> {
    pub conn: &'a mut Conn,
    pub definitions: &'a Definitions,
    /// Processes that are known to be dead, from the one that started them.
    pub crashed: &'a [ProcessId],
    pub clock: i64,
    pub fault: Fault,
    /// An error of the store counts as an ordinary refusal.
    pub may_refuse: bool,
}

impl Cx<'_> {
    /// The answer of a transaction as its sender gets it; the outer error is a defect.
    async fn outcome<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Error> {
        let gone = |in_commit| {
            let source = Arc::new(Source::Gone);
            Err(Error::Unavailable { source, in_commit })
        };
        match self.fault {
            Fault::None | Fault::Lost => match work(self.conn).await {
                Ok(done) if self.fault == Fault::None => Ok(Ok(done)),
                Ok(_) => Ok(gone(true)),
                Err(error) if self.may_refuse && !is_tripped(&error) => Ok(Err(error)),
                Err(error) => Err(error),
            },
            Fault::Late => Ok(gone(true)),
            Fault::Refused | Fault::Cut => {
                // This uses the product's own exit from a transaction that fails at its end; a statement that
                // ran alone is undone by the mark.
                self.conn.as_local().mark();
                self.conn.as_local().refuses = true;
                let _ = work(self.conn).await;
                self.conn.as_local().refuses = false;
                self.conn.as_local().undo();
                Ok(match self.fault {
                    Fault::Refused => Err(refused("COMMIT", "deadlocks".to_owned())),
                    _ => gone(false),
                })
            }
        }
    }
}

/// An actor.
#[derive(Clone)]
pub enum Actor {
    Worker(Worker),
    Advancer(Advancer),
    Reaper(Reaper),
    Person(Person),
    /// Messages that were sent and have not arrived yet: the sender as it was then, and its move.
    Network(Option<Box<(Actor, u8)>>),
}

/// A process's row, and the process's knowledge of it.
#[derive(Clone)]
pub struct Life {
    /// None: not registered, or no longer.
    pub process: Option<ProcessId>,
    pub crashed: bool,
    /// It may end in order, whatever it holds at that time.
    pub leaves: bool,
    /// It has ended in order.
    pub left: bool,
    /// It was told that it is dead: it makes a new row, and then lets the old claims go.
    reborn: bool,
    /// It must check at once whether it is dead.
    check: bool,
    beat: i64,
    /// Its last beat reported that its pipeline is paused.
    paused: bool,
    /// The number of connections that it has given up.
    epoch: u32,
}

/// A worker process.
#[derive(Clone)]
pub struct Worker {
    pub life: Life,
    /// The number of executions that it may hold at once.
    pub slots: usize,
    /// Following steps may be leased when they are created.
    pub leases: bool,
    /// An execution may be put back before it was started.
    pub puts_back: bool,
    /// A result may be set aside, as if somebody had locked a row of it.
    pub sets_aside: bool,
    running: Vec<Held>,
    /// Executions that it received while its pipeline was paused: put back before anything else.
    back: Vec<ExecutionId>,
    executions: WorkerState,
}

#[derive(Clone)]
struct Held {
    claimed: Arc<Claimed>,
    cancelled: bool,
}

/// An advancer process.
#[derive(Clone)]
pub struct Advancer {
    pub life: Life,
    /// The number of branches that it may claim at once.
    pub slots: usize,
    /// A claimed branch may be set aside, as if somebody had locked a row of it.
    pub sets_aside: bool,
    branches: AdvancerState,
}

/// A supervisor in its function as a reaper.
#[derive(Clone, Default)]
pub struct Reaper {
    /// A claim may be left, as if somebody had locked its rows.
    pub leaves_claims: bool,
    witness: Witness,
    todo: Vec<(ProcessId, Option<i64>)>,
}

/// A person at a command line.
#[derive(Clone)]
pub struct Person {
    pub verb: Verb,
    done: bool,
    /// How often the act happened, whether or not the person knows.
    happened: usize,
}

/// A person's act.
#[derive(Clone)]
pub enum Verb {
    Trigger {
        definition: Arc<Definition>,
        key: Option<&'static str>,
    },
    Cancel(RunId),
    /// One branch per transaction.
    CancelParts(RunId),
    Revive(RunId),
    Resume(RunId),
    /// Decides questions whose deadline has passed.
    Deadlines,
    Pause,
    Unpause,
    /// Deletes runs that ended this long ago.
    Prune(Duration),
}

/// Budgets without waits; crashes only end a step that cannot succeed anyway.
fn step_limits(_: &Definition, step: &str) -> StepLimits {
    StepLimits {
        max_retry: 1,
        max_crash: if step == "Bad" { 1 } else { 20 },
        backoff: Backoff {
            initial: Duration::ZERO,
            factor: 1.0,
            max: Duration::ZERO,
            jitter: 0.0,
        },
    }
}

fn advance_limits(_: &str) -> AdvanceLimits {
    AdvanceLimits {
        max_retry: 20,
        max_crash: 20,
        max_fan_out: None,
        max_payload: 1 << 20,
    }
}

impl Actor {
    /// A worker with this many slots.
    pub fn worker(slots: usize) -> Self {
        Self::Worker(Worker {
            life: Life::new(),
            slots,
            leases: false,
            puts_back: false,
            sets_aside: false,
            running: Vec::new(),
            back: Vec::new(),
            executions: WorkerState::default(),
        })
    }

    /// An advancer that claims this many branches at once.
    pub fn advancer(slots: usize) -> Self {
        Self::Advancer(Advancer {
            life: Life::new(),
            slots,
            sets_aside: false,
            branches: AdvancerState::default(),
        })
    }

    /// A reaper that has seen nothing; it may leave claims.
    pub fn reaper(leaves_claims: bool) -> Self {
        Self::Reaper(Reaper {
            leaves_claims,
            ..Reaper::default()
        })
    }

    /// A person.
    pub fn person(verb: Verb) -> Self {
        Self::Person(Person {
            verb,
            done: false,
            happened: 0,
        })
    }

    /// Takes a message, to deliver it later.
    pub fn send(&mut self, from: Actor, verb: u8) {
        match self {
            Self::Network(letter) => *letter = Some(Box::new((from, verb))),
            _ => unreachable!("only a network takes what is sent"),
        }
    }

    /// Its process, for actors that have one.
    pub fn life(&self) -> Option<&Life> {
        match self {
            Self::Worker(worker) => Some(&worker.life),
            Self::Advancer(advancer) => Some(&advancer.life),
            _ => None,
        }
    }

    /// Whether it has made a run, with a key or without.
    pub fn triggered(&self, keyed: bool) -> bool {
        match self {
            Self::Person(person) => match &person.verb {
                Verb::Trigger { key, .. } => person.happened > 0 && key.is_some() == keyed,
                _ => false,
            },
            _ => false,
        }
    }

    /// Loses its memory; returns the process that died.
    pub fn crash(&mut self) -> Option<ProcessId> {
        let crashed = |life: &mut Life| {
            let process = life.process.take();
            *life = Life {
                crashed: true,
                ..Life::new()
            };
            process
        };
        match self {
            Self::Worker(worker) => {
                worker.crash();
                crashed(&mut worker.life)
            }
            Self::Advancer(advancer) => {
                advancer.crash();
                crashed(&mut advancer.life)
            }
            _ => None,
        }
    }

    /// A new process takes the place of one that crashed.
    pub fn boot(&mut self) {
        match self {
            Self::Worker(worker) => worker.life.crashed = false,
            Self::Advancer(advancer) => advancer.life.crashed = false,
            _ => {}
        }
    }

    /// Its possible next moves: a letter for each.
    pub fn verbs(&self, clock: i64) -> Vec<u8> {
        let mut verbs = Vec::new();
        match self {
            Self::Worker(worker) => {
                if worker.life.verbs(clock, &mut verbs) {
                    worker.verbs(&mut verbs);
                }
            }
            Self::Advancer(advancer) => {
                if advancer.life.verbs(clock, &mut verbs) {
                    verbs.push(advancer.verb());
                    if advancer.sets_aside && advancer.verb() == b'd' {
                        verbs.push(b'h');
                    }
                }
            }
            Self::Reaper(reaper) if reaper.todo.is_empty() => verbs.extend([b'l', b'o']),
            Self::Reaper(reaper) => {
                verbs.push(b'k');
                if reaper.leaves_claims {
                    verbs.extend([b'e', b'f', b'a']);
                }
            }
            Self::Person(person) if person.done => {}
            Self::Person(_) => verbs.push(b'x'),
            Self::Network(letter) if letter.is_none() => {}
            Self::Network(_) => verbs.push(b'z'),
        }
        verbs
    }

    /// True for a verb that only reads, or whose faults make no difference.
    pub fn is_safe(verb: u8) -> bool {
        matches!(
            verb,
            b'b' | b'h' | b'l' | b'o' | b'q' | b'r' | b'u' | b'v' | b'z'
        )
    }

    /// Performs the move.
    pub async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        if let Self::Network(letter) = self {
            let (mut from, verb) = *letter.take().expect("what was sent");
            // Nobody learns of the outcome.
            return match Box::pin(from.act(verb, cx)).await {
                Err(error) if is_tripped(&error) => Err(error),
                _ => Ok(()),
            };
        }
        let acting = match &*self {
            Self::Reaper(reaper) if matches!(verb, b'k' | b'e' | b'f' | b'a') => {
                reaper.todo.first().map(|(id, _)| *id)
            }
            actor => actor.life().and_then(|life| life.process),
        };
        cx.conn.as_local().acts(acting);
        let acted = match self {
            Self::Worker(worker) if verb == b'q' => worker.life.leave(cx).await,
            Self::Advancer(advancer) if verb == b'q' => advancer.life.leave(cx).await,
            Self::Worker(worker) => worker.act(verb, cx).await,
            Self::Advancer(advancer) => advancer.act(verb, cx).await,
            Self::Reaper(reaper) => reaper.act(verb, cx).await,
            Self::Person(person) => person.act(cx).await,
            Self::Network(_) => unreachable!("it has delivered"),
        };
        cx.conn.as_local().acts(None);
        acted
    }

    /// Its memory.
    pub fn write(&self, to: &mut Canon) {
        match self {
            Self::Worker(worker) => {
                worker.life.write(to);
                worker.write(to);
            }
            Self::Advancer(advancer) => {
                advancer.life.write(to);
                advancer.write(to);
            }
            Self::Reaper(reaper) => {
                let mut seen: Vec<_> = reaper.witness.seen().collect();
                seen.sort();
                for (id, beat, since) in seen {
                    to.beat(id.0.as_u128(), beat);
                    let since = since.duration_since(instant(EPOCH));
                    to.time(EPOCH + since.as_micros() as i64);
                }
                to.number(-2);
                for (id, seen) in &reaper.todo {
                    to.id(id.0.as_u128());
                    match seen {
                        Some(beat) => to.beat(id.0.as_u128(), *beat),
                        None => to.number(-3),
                    }
                }
            }
            Self::Person(person) => {
                to.number(i64::from(person.done));
                to.number(person.happened as i64);
            }
            Self::Network(None) => {}
            Self::Network(Some(letter)) => {
                to.number(i64::from(letter.1));
                letter.0.write(to);
            }
        }
        to.number(-4);
    }
}

impl Life {
    fn new() -> Self {
        Self {
            process: None,
            crashed: false,
            leaves: false,
            left: false,
            reborn: false,
            check: false,
            beat: EPOCH,
            paused: false,
            epoch: 0,
        }
    }

    /// False if there is nothing else to do.
    fn verbs(&self, clock: i64, verbs: &mut Vec<u8>) -> bool {
        if self.crashed || self.left {
            return false;
        }
        if self.leaves && self.process.is_some() {
            verbs.push(b'q');
        }
        if self.process.is_none() || self.reborn {
            verbs.push(b'r');
        } else if self.check || self.beat != clock {
            verbs.push(b'b');
        }
        self.process.is_some()
    }

    fn write(&self, to: &mut Canon) {
        match self.process {
            Some(process) => to.id(process.0.as_u128()),
            None => to.number(-1),
        }
        to.number(
            i64::from(self.crashed)
                | i64::from(self.reborn) << 1
                | i64::from(self.check) << 2
                | i64::from(self.left) << 3,
        );
        to.time(self.beat);
        to.number(i64::from(self.epoch));
    }

    /// The process, as it claims through its present connection.
    fn claimant(&self) -> Claimant {
        Claimant {
            process: self.process(),
            epoch: self.epoch,
        }
    }

    fn process(&self) -> ProcessId {
        self.process
            .expect("whoever is not registered registers first")
    }

    /// Begins a new process: the old one's claims belong to nobody then.
    async fn register(&mut self, role: Role, cx: &mut Cx<'_>) -> Result<(), Error> {
        let id = register(cx.conn, role).await?;
        let beat = cx.clock;
        *self = Self {
            process: Some(id),
            beat,
            leaves: self.leaves,
            epoch: self.epoch,
            ..Self::new()
        };
        Ok(())
    }

    /// Ends in order: the row goes if nothing is held, and stays for the reaper if anything is.
    async fn leave(&mut self, cx: &mut Cx<'_>) -> Result<(), Error> {
        let process = self.process.take().expect("who leaves was there");
        self.left = true;
        process::deregister(cx.conn, process).await?;
        let rows = process::processes(cx.conn).await?;
        let stays = rows.iter().any(|row| row.id == process);
        let holds = !asked(cx.conn, &HOLDS, process).await?.is_empty();
        match stays == holds {
            true => Ok(()),
            false => Err(tripped(format!(
                "{process:?} leaves: row {stays}, holds {holds}"
            ))),
        }
    }

    /// The executions that the process still holds; `None` if it is dead.
    async fn beat(
        &mut self,
        holds: bool,
        cx: &mut Cx<'_>,
    ) -> Result<Option<Vec<ExecutionId>>, Error> {
        let counters = Counters::default();
        let beaten = process::beat(
            cx.conn,
            self.process(),
            Role::Worker,
            counters,
            Intake::Open,
        )
        .await?;
        let orders = beaten.orders;
        let alive = orders != Orders::Dead;
        self.paused = orders == Orders::Pause;
        (self.beat, self.check) = (cx.clock, false);
        self.reborn = !alive;
        match alive && holds {
            true => Ok(Some(
                process::hold_on(cx.conn, self.process(), LEASE)
                    .await?
                    .executions,
            )),
            false => Ok(alive.then(Vec::new)),
        }
    }
}

static HOLDS: Statement = Statement::new(
    "EXPLORER_HOLDS",
    "SELECT id FROM ductwork_executions WHERE result IS NULL AND process_id = :process
     UNION ALL
     SELECT branch_id FROM ductwork_advancements WHERE result IS NULL AND process_id = :process",
);
static WAITS: Statement = Statement::new(
    "EXPLORER_WAITS",
    "SELECT execution_id AS id FROM ductwork_availabilities WHERE due_at > {now}",
);
/// A run that prune leaves although nothing prevents its deletion; runs with a pending hook are excluded.
static KEPT: Statement = Statement::new(
    "EXPLORER_KEPT",
    "SELECT r.id FROM ductwork_runs r
      WHERE coalesce(r.completed_at, r.halted_at, r.cancelled_at) <= {now} - :age
        AND r.id NOT IN (SELECT n.revived_from FROM ductwork_runs n WHERE n.revived_from IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM ductwork_steps s
                         WHERE s.via IN ('on_halt', 'on_complete') AND s.status = 'in_progress')",
);
static ENDED_LATELY: Statement = Statement::new(
    "EXPLORER_ENDED_LATELY",
    "SELECT count(*) AS n FROM ductwork_runs r
      WHERE coalesce(r.completed_at, r.halted_at, r.cancelled_at, {now}) > {now} - :age",
);

/// Ids, from one of our own statements about a process.
async fn asked(
    conn: &mut Conn,
    statement: &'static Statement,
    process: ProcessId,
) -> Result<Vec<uuid::Uuid>, Error> {
    let rows = conn
        .fetch(statement, &[("process", process.0.into())])
        .await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// Checks that a process holds each execution that it takes up again.
async fn holds(
    conn: &mut Conn,
    process: ProcessId,
    mut said: Vec<uuid::Uuid>,
) -> Result<(), Error> {
    let mut held = asked(conn, &HOLDS, process).await?;
    held.sort();
    said.sort();
    match held == said {
        true => Ok(()),
        false => Err(tripped(format!(
            "{process:?} holds {held:?}, and is told {said:?}"
        ))),
    }
}

/// A process row.
pub async fn register(conn: &mut Conn, role: Role) -> Result<ProcessId, Error> {
    let id = ProcessId::new();
    let row = NewProcess {
        id,
        supervisor: None,
        role,
        pipeline: (role == Role::Worker).then(|| flows::PIPELINE.to_owned()),
        host: String::new(),
        boot_id: String::new(),
        pid_namespace: String::new(),
        pid: 1,
        pid_started_at: 1,
    };
    process::register(conn, &row).await.map(|()| id)
}

/// The name under which pauses are recorded.
pub fn somebody() -> action::Actor {
    action::Actor::new("who", Channel::Cli)
}

/// The reaper's own clock stands still and moves with the database's.
fn instant(clock: i64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_micros((clock - EPOCH) as u64)
}

impl Reaper {
    async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        match verb {
            b'l' => {
                let mut rows = process::processes(cx.conn).await?;
                let is_proven =
                    |row: &ProcessRow| row.condemned.is_some() || cx.crashed.contains(&row.id);
                let proven = rows.iter().filter(|row| is_proven(row));
                self.todo = proven.map(|row| (row.id, None)).collect();
                self.witness.look(&mut rows, instant(cx.clock));
                for row in rows.iter().filter(|row| row.age >= LEASE) {
                    if !is_proven(row) {
                        self.todo.push((row.id, Some(row.beat_seq)));
                    }
                }
            }
            b'o' => {
                let orphans = recovery::orphans(cx.conn).await?;
                self.todo = orphans.into_iter().map(|id| (id, None)).collect();
            }
            _ => {
                let (id, seen) = self.todo.remove(0);
                let death = match seen {
                    None => Death::Proven { how: "killed" },
                    Some(beat_seq) => Death::Witnessed {
                        beat_seq,
                        stale_after: LEASE,
                    },
                };
                let rows = process::processes(cx.conn).await?;
                let beat = rows.iter().find(|row| row.id == id).map(|row| row.beat_seq);
                let definitions = cx.definitions;
                let mut locked = Locked::default();
                if verb != b'k' {
                    let first = claim::held(cx.conn, id).await?.whole;
                    let first = first.first().map(|it| it.execution_id);
                    match verb {
                        b'e' => locked.executions.extend(first),
                        b'f' => locked.steps.extend(first),
                        _ => {
                            let held = advance::held(cx.conn, id).await?;
                            locked.branches.extend(held.first().map(|it| it.id));
                        }
                    }
                }
                let recover = async |conn: &mut Conn| {
                    let limits = &step_limits;
                    recovery::recover_all_but(conn, id, death, limits, definitions, &locked).await
                };
                match cx.outcome(recover).await? {
                    // H1: a process that has shown a sign of life since the look is spared.
                    Ok(recovered)
                        if recovered != Recovered::default()
                            && seen.is_some_and(|seen| Some(seen) != beat) =>
                    {
                        return Err(tripped(format!("H1: {id:?} has beaten, and is removed")));
                    }
                    Ok(_) => {}
                    Err(_) => self.todo.clear(),
                }
            }
        }
        Ok(())
    }
}

impl Person {
    async fn act(&mut self, cx: &mut Cx<'_>) -> Result<(), Error> {
        let verb = &self.verb;
        let prunes = match verb {
            Verb::Prune(age) => Some(*age),
            _ => None,
        };
        let age = [("age", prunes.unwrap_or_default().as_micros() as usize)];
        let age = age.map(|(name, age)| (name, age.into()));
        let lately = async |conn: &mut Conn| {
            let row = conn.fetch_optional(&ENDED_LATELY, &age).await?;
            row.map_or(Ok(0), |row| row.get::<i64>("n"))
        };
        let before = match prunes {
            Some(_) => lately(cx.conn).await?,
            None => 0,
        };
        let said = cx.outcome(async |conn: &mut Conn| match verb {
            Verb::Trigger { definition, key } => {
                let run = NewRun {
                    key: *key,
                    input: flows::INPUT,
                };
                trigger::trigger(conn, definition, &[run], Duration::ZERO)
                    .await
                    .map(|_| 1)
            }
            // Nobody else acts meanwhile, so one transaction is enough for runs as small as these.
            Verb::Cancel(run) => {
                let mut cancelling = cancel::Cancelling::of(*run, cancel::BATCH);
                match cancelling.step(conn).await {
                    Ok(Some(_)) => Ok(1),
                    Ok(None) => Err(tripped("a cancellation does not get on")),
                    Err(error) => Err(error),
                }
            }
            Verb::CancelParts(run) => {
                let ended = cancel::Cancelling::of(*run, 1).step(conn).await;
                ended.map(|ended| u64::from(ended.is_none()))
            }
            Verb::Revive(run) => revive::revive(conn, *run).await.map(|_| 1),
            Verb::Resume(run) => resume::resume(conn, *run, None, None, None)
                .await
                .map(|_| 1),
            Verb::Deadlines => resume::pass_deadlines(conn).await.map(|_| 1),
            Verb::Pause => {
                let paused = pause::pause(conn, flows::PIPELINE, "why", &somebody()).await;
                paused.map(|_| 1)
            }
            Verb::Unpause => pause::unpause(conn, flows::PIPELINE, &somebody())
                .await
                .map(|_| 1),
            // One run per transaction, until none is left.
            Verb::Prune(age) => prune::prune(conn, *age, 1).await,
        });
        let unkeyed = matches!(verb, Verb::Trigger { key: None, .. });
        let told = said.await?;
        if prunes.is_some() {
            if lately(cx.conn).await? != before {
                return Err(tripped("a run is pruned before its time"));
            }
            let kept = cx.conn.fetch_optional(&KEPT, &age).await?;
            if matches!(told, Ok(0)) && kept.is_some() {
                return Err(tripped("nothing is pruned, though a run is old enough"));
            }
        }
        let prunes = prunes.is_some() || matches!(verb, Verb::CancelParts(_));
        let lost = matches!(
            told,
            Err(Error::Unavailable {
                in_commit: true,
                ..
            })
        );
        // Repeated pruning makes no difference, nor does the next part of a cancellation.
        if !prunes && (told.is_ok() || lost) {
            self.happened = 1;
        }
        self.done = match told {
            Ok(pruned) => !prunes || pruned == 0,
            // An actor that does not know the outcome asks again, except for an act that would happen twice.
            Err(_) => lost && unkeyed,
        };
        Ok(())
    }
}
