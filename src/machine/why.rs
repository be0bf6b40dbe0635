//! Why a run does not move: the one fact that keeps it, and the remedy.
//!
//! Decided from facts that were loaded in one snapshot; all times are the database's.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::definition::Definition;
use crate::model::*;
use crate::time;

use super::halt::{self, HALTS_MAX, HaltFact};
use super::intake::{self, Closed, Taker};
use super::pause::Pause;
use super::stuck::{self, DIES};

/// The words in which a worker says that somebody's lock keeps a part of its work from being done.
pub const LOCKED: &str = "wait for rows that another session of the database has locked";

/// The claims that a recovery leaves because of such a lock.
pub const LEFT: &str = "claims of dead processes";

/// The remedy for a lock of somebody's.
pub const END_TRANSACTION: &str = "end that transaction: PostgreSQL's pg_stat_activity and MySQL's \
     information_schema.INNODB_TRX list the sessions that have one open";

/// The remedy for such a lock: `holder`, the way to end the transaction of a known session, or else
/// [`END_TRANSACTION`].
pub fn end_transaction(holder: Option<&str>) -> String {
    holder.unwrap_or(END_TRANSACTION).to_owned()
}

/// The facts about a run, and about the processes that could move it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The run.
    pub run_id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// If the run is being cancelled, when that work last continued.
    pub cancelling_at: Option<i64>,
    /// The run that continues it.
    pub revived_as: Option<RunId>,
    /// The hook that was called when it ended, unless the hook has succeeded.
    pub hook: Option<HookFact>,
    /// The hook of a question that its deadline has decided, if the hook has failed for good.
    pub untold: Option<HookFact>,
    /// The questions that people have yet to answer: the first [`QUESTIONS_MAX`].
    pub questions: Vec<Question>,
    /// Its input: all of it, or none if it is too long for a command line.
    pub input: Option<String>,
    /// The database's time.
    pub now: i64,
    /// The age at which a heartbeat is stale.
    pub stale_after: Duration,
    /// All processes.
    pub processes: Vec<ProcessFact>,
    /// Its active branches that wait for no other branches; those nearest to moving come first.
    pub leaves: Vec<Leaf>,
    /// Barriers that are still to fire.
    pub barriers: Vec<BarrierFact>,
    /// Why branches halted by themselves: the first [`HALTS_MAX`].
    pub halts: Vec<HaltFact>,
    /// Why this version cannot read its definition, if it cannot.
    pub unreadable: Option<Unreadable>,
    /// The first digits of its definition's digest, by which troubles name it.
    pub definition: String,
    /// Its definition, if this version can read it.
    pub graph: Option<Arc<Definition>>,
    /// The way to end the transaction that has locked rows for which work waits, if its session is known.
    pub holder: Option<String>,
    /// Executions of its pipeline that are due; `None` when it is not queued.
    pub backlog: Option<u64>,
    /// The pause of its pipeline, if it is paused.
    pub pause: Option<Pause>,
}

/// A definition that cannot be used.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The cause.
    pub fact: String,
    /// The way out.
    pub remedy: &'static str,
}

/// A process.
#[derive(Clone, Debug)]
pub struct ProcessFact {
    /// Its key.
    pub id: ProcessId,
    /// Its supervisor, if it has one.
    pub supervisor: Option<ProcessId>,
    /// Its purpose.
    pub role: Role,
    /// The pipeline whose jobs it works on.
    pub pipeline: Option<String>,
    /// Its host.
    pub host: String,
    /// Its pid there.
    pub pid: u32,
    /// The time since its last heartbeat.
    pub age: Duration,
    /// Its host knows that it is dead, or it was declared dead.
    pub dead: bool,
    /// It was declared dead, and holds claims that could not be given back yet.
    pub condemned: bool,
    /// Whether it takes new work.
    pub intake: Intake,
    /// How much it holds: steps that it runs or has claimed, or branches that it advances.
    pub holds: u64,
    /// The trouble that keeps it from making progress.
    pub trouble: Option<String>,
}

impl ProcessFact {
    fn taker(&self) -> Taker<'_> {
        Taker {
            id: self.id,
            supervisor: self.supervisor,
            role: self.role,
            pid: self.pid,
            host: &self.host,
            intake: self.intake,
        }
    }

    fn is_alive(&self, stale_after: Duration) -> bool {
        !self.dead && self.age < stale_after
    }

    /// True if it has missed a heartbeat: it beats six times in the time after which it is stale.
    fn is_silent(&self, stale_after: Duration) -> bool {
        self.age >= stale_after / 3
    }
}

/// A branch that waits for no other branches.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The node at which it stands.
    pub node: String,
    /// The question that a person is asked there.
    pub prompt: Option<String>,
    /// The consequence if nobody answers, and its time, in words.
    pub deadline: Option<String>,
    /// The number of the current attempt at its step.
    pub attempt: Option<u32>,
    /// The error of the attempt before.
    pub error: Option<String>,
    /// The thing that it waits for.
    pub state: LeafState,
}

/// The thing that such a branch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafState {
    /// A process performs its step.
    Running {
        /// The process.
        process: ProcessId,
        /// Since when.
        since: i64,
    },
    /// Its step is in the queue.
    Queued {
        /// The earliest time at which it may be claimed.
        due_at: i64,
    },
    /// It may be advanced.
    Ready {
        /// The earliest time.
        from: i64,
    },
    /// A process advances it.
    Advancing {
        /// The process.
        process: ProcessId,
        /// Since when.
        since: i64,
    },
    /// A person has to answer.
    Asked,
    /// Nothing that could move it is known.
    Nothing,
}

/// A barrier that is still to fire.
#[derive(Clone, Debug)]
pub struct BarrierFact {
    /// The node whose output was spread.
    pub node: String,
    /// How many branches it has.
    pub width: i64,
    /// How many have ended.
    pub arrived: i64,
}

/// A time from which on a wait is told, in µs.
const SOON: i64 = 1_000_000;

/// The remedy for work that a process holds which is gone.
const HELD_BY_GONE: &str =
    "it is recovered once its lease has expired; start `ductworkd` if none runs";

/// The remedy if the worker dies as often as it is started.
const DEADLY: &str = "find what ends it: a step that kills its parent, a limit of memory, or a person; \
     `ductworkd show` tells of the run's last attempts";

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// For programs.
    pub cause: &'static str,
    /// The reason why the run does not move.
    pub fact: String,
    /// The remedy; `None` when nothing has to be done.
    pub remedy: Option<String>,
    /// The [questions](Facts::questions) that people have yet to answer.
    pub questions: Vec<Question>,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The step that waits for the answer.
    pub step: StepId,
    /// Its node.
    pub node: String,
    /// The text of the question, if the definition has one.
    pub prompt: Option<String>,
    /// Since when it waits, in µs since 1970.
    pub since: i64,
    /// The deadline, in µs since 1970, and the stored word for the consequence when it passes.
    pub deadline: Option<(i64, String)>,
    /// The hook that was called when it was asked, if the hook has failed for good.
    pub failed_hook: Option<HookFact>,
}

impl Why {
    fn new(cause: &'static str, fact: String) -> Self {
        Self {
            cause,
            fact,
            remedy: None,
            questions: Vec::new(),
        }
    }

    fn remedy(mut self, remedy: String) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

/// The number of questions that are looked at, of all that a run asks.
pub const QUESTIONS_MAX: usize = 100;

/// A hook that has not succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookFact {
    /// `on_halt`, `on_complete` or `on_wait`.
    pub via: String,
    /// The error of the last of its attempts that have ended.
    pub error: Option<String>,
    /// How far it is.
    pub state: HookState,
}

/// How far a hook is that has not succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookState {
    /// It has failed for good.
    Failed,
    /// A process runs an attempt.
    Running {
        /// The number of the attempt.
        attempt: u32,
        /// The process has sent a heartbeat lately.
        is_alive: bool,
    },
    /// An attempt is in the queue.
    Queued {
        /// The number of the attempt.
        attempt: u32,
        /// The earliest time at which it may be claimed.
        due_at: i64,
    },
}

impl HookFact {
    /// The rest of a sentence.
    fn told(&self, of: &str, facts: &Facts) -> String {
        let error = |before: &str| match &self.error {
            Some(error) => format!("{before}{error}"),
            None => String::new(),
        };
        let again = || error("; the previous attempt failed: ");
        let told = match self.state {
            HookState::Failed => format!("has failed{}", error(": ")),
            HookState::Running { attempt, is_alive } => {
                let does = match is_alive {
                    true => "is running",
                    false => "is held by a process that has died or hangs",
                };
                match attempt {
                    0 | 1 => does.to_owned(),
                    _ => format!("{does} (attempt {attempt}){}", again()),
                }
            }
            HookState::Queued { .. } if let Some(pause) = &facts.pause => {
                format!("waits: {}{}", pause.fact(facts.now), again())
            }
            HookState::Queued { due_at, .. } if due_at.saturating_sub(facts.now) >= SOON => {
                let when = time::relative(due_at, facts.now);
                format!("is due {when}{}", again())
            }
            HookState::Queued { attempt: 0 | 1, .. } => "has yet to run".to_owned(),
            HookState::Queued { attempt, .. } => {
                format!("has yet to run again (attempt {attempt}){}", again())
            }
        };
        format!("; {of} {told}")
    }

    /// The remedy of a run that has completed, but for this.
    fn remedy(&self, facts: &Facts) -> Option<String> {
        let (run, pipeline) = (facts.run_id, &facts.pipeline);
        match (self.state, &facts.pause) {
            (HookState::Failed, _) => Some(format!(
                "do the work of the hook by hand, because no hook is called again: `ductworkd show {run} --json` has its \
                 input, and `ductworkd logs {run}` its log"
            )),
            (HookState::Queued { .. }, Some(pause)) => Some(pause.remedy()),
            (HookState::Queued { due_at, .. }, None)
                if time::between(due_at, facts.now) >= TAKEN_WITHIN =>
            {
                Some(format!(
                    "`ductworkd health` says whether a worker of {pipeline} is alive; start `ductworkd` if none is"
                ))
            }
            (
                HookState::Running {
                    is_alive: false, ..
                },
                _,
            ) => Some(HELD_BY_GONE.to_owned()),
            (HookState::Queued { .. } | HookState::Running { .. }, _) => None,
        }
    }
}

/// The one fact that keeps a run from moving, and the remedy; for a run that has ended, how, and how far its hook is.
pub fn why(facts: &Facts) -> Why {
    let mut why = of_run(facts);
    why.questions.clone_from(&facts.questions);
    let untold = facts.questions.iter();
    let untold: Vec<&HookFact> = untold.filter_map(|it| it.failed_hook.as_ref()).collect();
    if let Some(hook) = untold.first() {
        let at_least = match facts.questions.len() {
            QUESTIONS_MAX.. => "at least ",
            _ => "",
        };
        let of = match (untold.len(), facts.questions.len()) {
            (1, 1) => "its `on_wait` hook".to_owned(),
            (1, _) => format!("the `on_wait` hook of {at_least}one question"),
            (n, _) => format!("the `on_wait` hook of {at_least}{n} questions"),
        };
        why.fact.push_str(&hook.told(&of, facts));
    }
    if let Some(hook) = &facts.untold {
        let of = "the `on_wait` hook of a question that nobody answered in time";
        why.fact.push_str(&hook.told(of, facts));
    }
    if let Some(hook) = &facts.hook {
        let of = format!("its `{}` hook", hook.via);
        why.fact.push_str(&hook.told(&of, facts));
        if why.cause == "completed" {
            why.remedy = hook.remedy(facts);
        }
    }
    why
}

fn of_run(facts: &Facts) -> Why {
    let run = facts.run_id;
    let ended = || match facts.ended_at {
        Some(at) => format!(" {}", time::relative(at, facts.now)),
        None => String::new(),
    };
    match facts.status {
        RunStatus::Completed => Why::new("completed", format!("it completed{}", ended())),
        RunStatus::Cancelled => Why::new("cancelled", format!("it was cancelled{}", ended()))
            .remedy(trigger_again(
                &facts.pipeline,
                facts.input.as_deref().unwrap_or_default(),
                run,
            )),
        RunStatus::Halted => halted(facts, &ended()),
        RunStatus::InProgress | RunStatus::Dampened if facts.cancelling_at.is_some() => {
            cancelling(facts)
        }
        RunStatus::InProgress | RunStatus::Dampened => match facts.leaves.first() {
            None => Why::new("unknown", "nothing is known that could move it".into())
                .remedy("this should not happen: run `ductworkd audit`".into()),
            Some(_) => match &facts.unreadable {
                None => doomed(facts, active(facts, &run)),
                Some(unreadable) => Why::new("unreadable", format!("its {}", unreadable.fact))
                    .remedy(unreadable.remedy.into()),
            },
        },
    }
}

impl Facts {
    /// Why none of these takes new work.
    fn closed(&self, alive: &[&ProcessFact]) -> Option<Closed> {
        let takers: Vec<_> = alive.iter().map(|it| it.taker()).collect();
        intake::closed(&takers, &self.living())
    }

    /// The living processes.
    fn living(&self) -> Vec<Taker<'_>> {
        let processes = self.processes.iter();
        let living = processes.filter(|it| it.is_alive(self.stale_after));
        living.map(ProcessFact::taker).collect()
    }

    /// The living supervisors.
    fn supervisors(&self) -> impl Iterator<Item = &ProcessFact> {
        let processes = self.processes.iter();
        processes.filter(|it| it.role == Role::Supervisor && it.is_alive(self.stale_after))
    }

    /// Leaves inputs and outputs out of every fact and remedy.
    pub fn withhold_payloads(&mut self) {
        self.input = None;
        self.halts.iter_mut().for_each(HaltFact::withhold);
    }
}

/// The most characters of an input in a command line.
pub const INPUT_MAX: usize = 200;

/// The command that answers a run with so many questions: a value answers one, and none answers all.
pub fn answer(run: impl Display, questions: usize) -> String {
    let value = match questions {
        0 | 1 => "[VALUE]",
        _ => "[--step STEP [VALUE]]",
    };
    format!("ductworkd resume {run} {value}")
}

/// The command that starts a run like this one; if the input is empty here, or longer than that
/// limit, it is too long for a command line.
pub fn trigger_again(pipeline: &str, input: &str, run: RunId) -> String {
    match input {
        "null" => format!("ductworkd trigger {pipeline}"),
        "" => trigger_by_show(pipeline, run),
        long if long.len() > INPUT_MAX || long.chars().any(char::is_control) => {
            trigger_by_show(pipeline, run)
        }
        // Quoted for a shell.
        input => format!(
            "ductworkd trigger {pipeline} '{}'",
            input.replace('\'', r"'\''")
        ),
    }
}

/// The command that starts a run like this one, however long its input is.
pub fn trigger_by_show(pipeline: &str, run: RunId) -> String {
    format!("ductworkd show {run} --json | jq -c .input | ductworkd trigger {pipeline} -")
}

fn cancelling(facts: &Facts) -> Why {
    let at = facts.cancelling_at.unwrap_or(facts.now);
    let last = time::relative(at, facts.now);
    let fact = format!("it is being cancelled in batches; the last batch was {last}");
    let why = Why::new("cancelling", fact);
    let idle = Duration::from_micros(facts.now.saturating_sub(at).max(0).unsigned_abs());
    match idle >= facts.stale_after {
        true => why.remedy(format!(
            "ductworkd cancel {}    # continues this; a running daemon does so by itself",
            facts.run_id
        )),
        false => why,
    }
}

fn halted(facts: &Facts, ended: &str) -> Why {
    let mut fact = format!("it halted{ended}");
    if let Some(told) = halt::told(&facts.halts, facts.graph.as_deref()) {
        fact = format!("{fact}: {told}");
    }
    match facts.revived_as {
        Some(next) => Why::new("halted", format!("{fact}; it was revived as {next}")).remedy(
            format!("`ductworkd why {next}` explains the run that goes on"),
        ),
        None => Why::new("halted", fact).remedy(halt::remedy(&facts.halts, facts.run_id)),
    }
}

/// Adds the end of a run that is already certain although the run goes on: a barrier waits for all of its
/// branches, and the branch behind it halts if one of them has halted, up to the root.
fn doomed(facts: &Facts, mut why: Why) -> Why {
    let Some(first) = facts.halts.first() else {
        return why;
    };
    let halted = match facts.halts.len() {
        1 => "a branch has halted".to_owned(),
        n @ HALTS_MAX.. => format!("at least {n} branches have halted, the first one"),
        n => format!("{n} branches have halted, the first one"),
    };
    why.fact.push_str(&format!(
        "; the run will halt when its other branches have ended, because {halted}: {}",
        first.told(facts.graph.as_deref())
    ));
    why
}

/// When the first step of a run that was triggered for a later time becomes due; `None` if any of its branches
/// may move, or has moved.
pub fn scheduled(facts: &Facts) -> Option<i64> {
    let is_open = facts.status == RunStatus::InProgress && facts.cancelling_at.is_none();
    match &facts.leaves[..] {
        [
            Leaf {
                attempt: Some(1),
                state: LeafState::Queued { due_at },
                ..
            },
        ] if is_open && facts.barriers.is_empty() && *due_at > facts.now => Some(*due_at),
        _ => None,
    }
}

/// A branch that moves outranks one that will move, which outranks one that waits for somebody.
fn active(facts: &Facts, run: &RunId) -> Why {
    let place = barrier(facts);
    let leaf = telling(facts);
    if let Some(held) = held(facts, leaf, &place) {
        return held;
    }
    if let Some(paused) = paused(facts, leaf, &place) {
        return paused;
    }
    if let Some(troubled) = troubled(facts, leaf, &place) {
        return troubled;
    }
    match leaf.state {
        LeafState::Queued { due_at } if due_at > facts.now => {
            Why::new("not_due", not_due(facts, leaf, due_at, &place))
        }
        LeafState::Queued { .. } => queued(facts, leaf, &place),
        LeafState::Ready { from } if from > facts.now => {
            let when = time::relative(from, facts.now);
            let fact = format!(
                "advancing from {} failed, and is retried {when}{place}{}",
                leaf.node,
                before(leaf)
            );
            Why::new("advance_not_due", fact)
        }
        LeafState::Ready { .. } => ready(facts, leaf, &place),
        LeafState::Asked => {
            let prompt = match &leaf.prompt {
                Some(prompt) => format!(": {prompt}"),
                None => String::new(),
            };
            let deadline = match &leaf.deadline {
                Some(deadline) => format!(" ({deadline})"),
                None => String::new(),
            };
            // Only the first leaves are known, so they are not counted.
            let asks = |leaf: &&Leaf| matches!(leaf.state, LeafState::Asked);
            let questions = facts.leaves.iter().filter(asks).count();
            let others = match questions {
                0 | 1 => "",
                _ => " (and for other answers)",
            };
            let fact = format!(
                "it waits for a person at {}{prompt}{deadline}{others}",
                leaf.node
            );
            Why::new("dampened", fact).remedy(answer(run, questions))
        }
        _ => Why::new(
            "unknown",
            format!("nothing is known that could move {}{place}", leaf.node),
        )
        .remedy("this should not happen: run `ductworkd audit`".into()),
    }
}

fn process(facts: &Facts, id: ProcessId) -> Option<&ProcessFact> {
    facts.processes.iter().find(|process| process.id == id)
}

/// The leaf of a run that says most: one that a living process moves, else one that could be moved now,
/// else any other.
fn telling(facts: &Facts) -> &Leaf {
    let live = |id: ProcessId| {
        process(facts, id).is_some_and(|process| process.is_alive(facts.stale_after))
    };
    let first =
        |wanted: &dyn Fn(LeafState) -> bool| facts.leaves.iter().find(|leaf| wanted(leaf.state));
    let by_live = |state| match state {
        LeafState::Running { process, .. } | LeafState::Advancing { process, .. } => live(process),
        _ => false,
    };
    let due = |state| match state {
        LeafState::Queued { due_at } => due_at <= facts.now,
        LeafState::Ready { from } => from <= facts.now,
        _ => false,
    };
    first(&by_live)
        .or_else(|| {
            first(&|state| !matches!(state, LeafState::Asked | LeafState::Nothing) && due(state))
        })
        .or_else(|| {
            first(&|state| {
                matches!(
                    state,
                    LeafState::Running { .. } | LeafState::Advancing { .. }
                )
            })
        })
        .or_else(|| {
            first(&|state| matches!(state, LeafState::Queued { .. } | LeafState::Ready { .. }))
        })
        .or_else(|| first(&|state| state == LeafState::Asked))
        .unwrap_or(&facts.leaves[0])
}

/// The process that runs or advances a leaf, if there is one.
fn held(facts: &Facts, leaf: &Leaf, place: &str) -> Option<Why> {
    let (id, since, verb) = match leaf.state {
        LeafState::Running { process, since } => (process, since, "running"),
        LeafState::Advancing { process, since } => (process, since, "advancing"),
        _ => return None,
    };
    let Some(process) = process(facts, id) else {
        let fact = format!(
            "{} is held by process {id}, which is gone{place}",
            leaf.node
        );
        return Some(Why::new("process_gone", fact).remedy(HELD_BY_GONE.into()));
    };
    let span = time::whole(time::between(since, facts.now));
    let at = format!("{} (pid {})", process.host, process.pid);
    if process.is_alive(facts.stale_after) {
        let attempt = attempt(leaf);
        let trouble = process.trouble.as_deref().filter(|it| !is_of_a_start(it));
        let remedy = trouble.and_then(|it| stuck::remedy(it, facts.holder.as_deref()));
        let trouble = trouble.map_or_else(String::new, |trouble| {
            format!("; its {} has trouble: {trouble}", process.role)
        });
        let fact = format!(
            "{}{attempt} has been {verb} on {at} for {span}{place}{trouble}",
            leaf.node
        );
        let why = Why::new("running", fact);
        return Some(match remedy {
            Some(remedy) => why.remedy(remedy),
            None => why,
        });
    }
    let age = time::whole(process.age);
    // A process that recovers has reported why it does not recover everything.
    let lives = |process: &&ProcessFact| process.is_alive(facts.stale_after);
    let mut troubles = facts
        .processes
        .iter()
        .filter(lives)
        .filter_map(|it| it.trouble.as_deref());
    let concerns = |trouble: &&str| {
        trouble.starts_with(LEFT) && (process.condemned || trouble.contains(&id.to_string()))
    };
    if let Some(left) = troubles.find(concerns) {
        let fact = format!(
            "{} is held by {at}, which is dead{place}; {left}",
            leaf.node
        );
        return Some(
            Why::new("process_gone", fact).remedy(end_transaction(facts.holder.as_deref())),
        );
    }
    if process.dead {
        let fact = format!("{} is held by {at}, which is dead{place}", leaf.node);
        let remedy = "a `ductworkd` on that host recovers it within seconds, any other once its lease has \
             expired; start one if none runs";
        return Some(Why::new("process_gone", fact).remedy(remedy.into()));
    }
    let fact = format!(
        "{} is held by {at}, whose heartbeat is {age} old{place}",
        leaf.node
    );
    let remedy = format!(
        "it is recovered within {} by any process that is alive; start `ductworkd` if none is",
        time::whole(facts.stale_after)
    );
    Some(Why::new("process_stale", fact).remedy(remedy))
}

/// True for a trouble that keeps something else from starting: this leaf's work has started.
fn is_of_a_start(trouble: &str) -> bool {
    ["definition ", "an execution ", "step "]
        .iter()
        .any(|of| trouble.starts_with(of))
}

/// A leaf that waits for an advancer.
fn ready(facts: &Facts, leaf: &Leaf, place: &str) -> Why {
    let advancer = |process: &&ProcessFact| {
        process.role == Role::Advancer && process.is_alive(facts.stale_after)
    };
    let advancers: Vec<_> = facts.processes.iter().filter(advancer).collect();
    match advancers.first() {
        Some(_) if let Some(closed) = facts.closed(&advancers) => Why::new(
            closed.cause,
            format!(
                "{} has ended, but no advancer claims: {}{place}",
                leaf.node, closed.fact
            ),
        )
        .remedy(closed.remedy),
        Some(_) => Why::new(
            "ready",
            format!(
                "{} has ended, and is about to be advanced{place}",
                leaf.node
            ),
        ),
        None => Why::new(
            "no_advancer",
            format!("{} has ended, but no advancer is alive{place}", leaf.node),
        )
        .remedy(intake::start(Role::Advancer, &facts.living()).to_owned()),
    }
}

/// A step that waits for its time, for a retry or for its first attempt.
fn not_due(facts: &Facts, leaf: &Leaf, due_at: i64, place: &str) -> String {
    let (node, at) = (&leaf.node, time::rfc3339(due_at));
    let when = time::relative(due_at, facts.now);
    match leaf.attempt {
        Some(attempt @ 2..) => {
            let failed = match &leaf.error {
                Some(error) => format!("; attempt {} failed: {error}", attempt - 1),
                None => String::new(),
            };
            format!("{node} waits to retry: attempt {attempt} is due {when} ({at}){place}{failed}")
        }
        _ => format!("scheduled: {node} is due {when} ({at}){place}"),
    }
}

/// The process that could move the leaf is alive, and has reported why it does not.
fn troubled(facts: &Facts, leaf: &Leaf, place: &str) -> Option<Why> {
    let role = match leaf.state {
        LeafState::Queued { .. } => Role::Worker,
        LeafState::Ready { .. } => Role::Advancer,
        _ => return None,
    };
    let serves = |process: &&ProcessFact| {
        let own = process.pipeline.as_deref();
        process.role == role
            && own.is_none_or(|own| own == facts.pipeline)
            && process.is_alive(facts.stale_after)
    };
    // A definition that cannot be read concerns its own runs alone.
    let concerns = |trouble: &&String| {
        !trouble.starts_with(LEFT)
            && (!trouble.starts_with("definition ") || trouble.contains(&facts.definition))
    };
    let mut processes = facts.processes.iter().filter(serves);
    let (process, trouble) = processes
        .find_map(|process| Some((process, process.trouble.as_ref().filter(concerns)?)))?;
    let fact = format!(
        "{} waits: the {} (pid {} on {}) cannot proceed: {trouble}{place}",
        leaf.node, process.role, process.pid, process.host
    );
    let remedy = stuck::remedy(trouble, facts.holder.as_deref()).unwrap_or_else(|| {
        "fix that problem; if the version of that process is too old, start a newer `ductworkd`"
            .to_owned()
    });
    Some(Why::new("trouble", fact).remedy(remedy))
}

/// A leaf in the queue of a paused pipeline: nobody takes it, whatever else applies to it.
fn paused(facts: &Facts, leaf: &Leaf, place: &str) -> Option<Why> {
    let pause = facts.pause.as_ref()?;
    let is_queued = matches!(leaf.state, LeafState::Queued { .. });
    is_queued.then(|| {
        let fact = format!("{} waits: {}{place}", leaf.node, pause.fact(facts.now));
        Why::new("paused", fact).remedy(pause.remedy())
    })
}

fn queued(facts: &Facts, leaf: &Leaf, place: &str) -> Why {
    let workers = facts.processes.iter().filter(|process| {
        process.role == Role::Worker && process.pipeline.as_deref() == Some(&facts.pipeline)
    });
    let (alive, others): (Vec<_>, Vec<_>) =
        workers.partition(|process| process.is_alive(facts.stale_after));
    let (node, pipeline) = (&leaf.node, &facts.pipeline);
    if alive.is_empty() {
        let dead = others.iter().filter(|process| process.dead).count();
        let known = match (dead, others.len() - dead) {
            (0, 0) => String::new(),
            (0, stale) => format!(" ({stale} with a stale heartbeat)"),
            (dead, 0) => format!(" ({dead} dead)"),
            (dead, stale) => format!(" ({dead} dead, {stale} with a stale heartbeat)"),
        };
        let fact = format!("{node} is due, but no worker of {pipeline} is alive{known}{place}");
        // A worker that has just died is there again in a moment, and dies of the same.
        let own = format!("the worker {pipeline} {DIES}");
        let troubles = facts.supervisors();
        let mut troubles = troubles.filter_map(|it| it.trouble.as_deref());
        if let Some(dying) = troubles.find(|trouble| trouble.starts_with(&own)) {
            let fact = format!("{node} waits: {dying}{place}");
            return Why::new("worker_dies", fact).remedy(DEADLY.to_owned());
        }
        // A daemon whose worker has died starts another: it knows the pipeline.
        return Why::new("no_worker", fact).remedy(match others.is_empty() {
            true => intake::start_worker(pipeline, &facts.living()),
            false => intake::start(Role::Worker, &facts.living()).to_owned(),
        });
    }
    if let Some(closed) = facts.closed(&alive) {
        let told = closed.fact;
        let fact = format!("{node} is due, but no worker of {pipeline} claims: {told}{place}");
        return Why::new(closed.cause, fact).remedy(closed.remedy);
    }
    let alive: Vec<_> = alive.into_iter().filter(|it| it.intake.is_open()).collect();
    let at_work = |process: &&&ProcessFact| !process.is_silent(facts.stale_after);
    let held: u64 = alive.iter().filter(at_work).map(|it| it.holds).sum();
    if held == 0
        && let Some(untaken) = untaken(facts, leaf, &alive, place)
    {
        return untaken;
    }
    let due = match facts.backlog.unwrap_or_default() {
        BACKLOG_MAX.. => format!("at least {BACKLOG_MAX}"),
        due => due.to_string(),
    };
    let workers = match alive.len() {
        1 => "its worker is".to_owned(),
        n => format!("its {n} workers are"),
    };
    let fact = format!(
        "{node} is due (steps of {pipeline} that are due: {due}); {workers} busy (steps that run or are claimed: \
         {held}){place}"
    );
    Why::new("backlog", fact).remedy("raise `job_worker.count`, or start more workers".into())
}

/// A leaf in the queue that no worker takes, although none is known to be at work: the worker that has been silent
/// for the longest time is named.
fn untaken(facts: &Facts, leaf: &Leaf, alive: &[&ProcessFact], place: &str) -> Option<Why> {
    let LeafState::Queued { due_at } = leaf.state else {
        return None;
    };
    let worker = alive.iter().max_by_key(|process| process.age)?;
    let node = &leaf.node;
    let waited = time::between(due_at, facts.now);
    let silent = worker.is_silent(facts.stale_after);
    if !silent && waited < TAKEN_WITHIN {
        let fact = format!("{node} is due, and is about to be taken{place}");
        return Some(Why::new("due", fact));
    }
    let workers = match alive.len() {
        1 => "its worker takes nothing".to_owned(),
        n => format!("none of its {n} workers takes it"),
    };
    let fact = format!(
        "{node} has been due for {}, but {workers}: the last heartbeat of pid {} on {} is {} old (steps \
         that it holds: {}){place}",
        time::whole(waited),
        worker.pid,
        worker.host,
        time::whole(worker.age),
        worker.holds
    );
    let locked =
        "`ductworkd health` names the database session that has locked its rows, if there is one";
    let remedy = match silent {
        true => format!(
            "wait: it is replaced, or its work goes to others, if it stays silent for {}; {locked}",
            time::whole(facts.stale_after)
        ),
        false => {
            format!("{locked}; the log of that process may say more; restart `ductworkd` there")
        }
    };
    Some(Why::new("not_taken", fact).remedy(remedy))
}

/// The number up to which a backlog is counted.
pub const BACKLOG_MAX: u64 = 10_000;

/// A worker that has a free slot takes a step that is due sooner than this.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

fn attempt(leaf: &Leaf) -> String {
    match leaf.attempt {
        Some(attempt @ 2..) => format!(" (attempt {attempt})"),
        _ => String::new(),
    }
}

/// The error of the attempt before this one.
fn before(leaf: &Leaf) -> String {
    match &leaf.error {
        Some(error) => format!("; the previous attempt failed: {error}"),
        None => String::new(),
    }
}

/// The barrier at which the most branches are still to arrive.
fn barrier(facts: &Facts) -> String {
    let widest = facts
        .barriers
        .iter()
        .max_by_key(|barrier| barrier.width - barrier.arrived);
    match widest {
        Some(BarrierFact {
            node,
            width,
            arrived,
        }) => {
            format!("; {arrived} of the {width} branches of {node} have arrived")
        }
        None => String::new(),
    }
}
