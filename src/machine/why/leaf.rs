//! Why a branch that waits for no other branches does not move.

use std::time::Duration;

use crate::definition::Then;
use crate::machine::halt;
use crate::machine::intake;
use crate::machine::stuck::{self, DIES, GRACE, UNKEPT};
use crate::model::*;
use crate::time;

use super::{
    BarrierFact, Facts, LEFT, Leaf, LeafState, ProcessFact, QUESTIONS_MAX, Question, Why, answer,
    end_transaction,
};

/// A time from which on a wait is told, in µs.
pub(super) const SOON: i64 = 1_000_000;

/// The remedy for work that a process holds which is gone.
pub(super) const HELD_BY_GONE: &str =
    "it is recovered once its lease has expired; start `ductworkd` if none runs";

/// A step that runs longer than this without a timeout may hang.
const LONG: Duration = Duration::from_secs(60);

/// The remedy if the worker dies as often as it is started.
const DEADLY: &str = "find what ends it: a step that kills its parent, a limit of memory, or a person; \
     `ductworkd show` prints the run's last attempts";

/// A branch that moves outranks one that will move, which outranks one that waits for somebody.
pub(super) fn active(facts: &Facts, run: &RunId) -> Why {
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
        LeafState::Asked => undecided(facts, leaf).unwrap_or_else(|| asked(facts, leaf, run)),
        _ => Why::new(
            "unknown",
            format!("nothing is known that could move {}{place}", leaf.node),
        )
        .remedy("this should not happen: run `ductworkd audit`".into()),
    }
}

/// A question that a person has yet to answer.
fn asked(facts: &Facts, leaf: &Leaf, run: &RunId) -> Why {
    let prompt = match &leaf.prompt {
        Some(prompt) => format!(": {prompt}"),
        None => String::new(),
    };
    let deadline = match &leaf.deadline {
        Some(deadline) => format!(" ({deadline})"),
        None => String::new(),
    };
    let asks = |leaf: &&Leaf| matches!(leaf.state, LeafState::Asked);
    let questions = match facts.questions.len() {
        0 => facts.leaves.iter().filter(asks).count(),
        known => known,
    };
    let fact = format!(
        "it waits for a person at {}{prompt}{deadline}{}",
        leaf.node,
        others(questions, facts.questions.len())
    );
    Why::new("dampened", fact).remedy(match are_late(facts) {
        true => "no answer counts any more: a daemon decides within 15 seconds; start `ductworkd` if none runs".to_owned(),
        false => answer(run, questions),
    })
}

/// The number of the other questions that wait: of a run with many branches, only some branches are known.
fn others(questions: usize, known: usize) -> String {
    let at_least = match known {
        1..QUESTIONS_MAX => "",
        _ => "at least ",
    };
    match questions.saturating_sub(1) {
        0 => String::new(),
        1 => format!(" (and {at_least}1 more question waits)"),
        more => format!(" (and {at_least}{more} more questions wait)"),
    }
}

/// True where no answer counts any more.
fn are_late(facts: &Facts) -> bool {
    let known = facts.questions.as_slice();
    let are_all = (1..QUESTIONS_MAX).contains(&known.len());
    are_all && known.iter().all(|it| it.is_late)
}

/// A process is alive that should have decided a question by now, and has reported why it does not.
fn undecided(facts: &Facts, leaf: &Leaf) -> Option<Why> {
    let is_overdue = |question: &Question| {
        let deadline = question.deadline.as_ref();
        deadline.is_some_and(|(at, _)| time::between(*at, facts.now) >= GRACE)
    };
    if !are_late(facts) || !facts.questions.iter().any(is_overdue) {
        return None;
    }
    let unkept = |trouble: &&String| trouble.starts_with(UNKEPT);
    let lives = |process: &&ProcessFact| process.is_alive(facts.stale_after);
    let mut processes = facts.processes.iter().filter(lives);
    let (process, trouble) =
        processes.find_map(|process| Some((process, process.trouble.as_ref().filter(unkept)?)))?;
    let fact = format!(
        "{} waits: nobody has answered in time, and the {} (pid {} on {}) cannot decide: {trouble}",
        leaf.node, process.role, process.pid, process.host
    );
    let remedy = stuck::remedy(trouble, facts.holder.as_deref());
    Some(Why {
        remedy,
        ..Why::new("trouble", fact)
    })
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
    let time = time::between(since, facts.now);
    let span = time::whole(time);
    let holder = format!(
        "the {} with pid {} on {}",
        process.role, process.pid, process.host
    );
    if process.is_alive(facts.stale_after) {
        let attempt = attempt(leaf);
        let trouble = process.trouble.as_deref().filter(|it| !is_of_a_start(it));
        let remedy = trouble.and_then(|it| stuck::remedy(it, facts.holder.as_deref()));
        let trouble = trouble.map_or_else(String::new, |trouble| {
            format!("; its {} has trouble: {trouble}", process.role)
        });
        let fact = format!(
            "{}{attempt} has been {verb} on {}, in the {} with pid {}, for {span}{place}{trouble}",
            leaf.node, process.host, process.role, process.pid
        );
        let why = Why::new("running", fact);
        let hangs = || {
            let is_long = verb == "running" && time > LONG && is_without_timeout(facts, leaf);
            is_long.then(|| {
                format!(
                    "if it hangs: the log of `ductworkd` on {} has the lines that it writes; ductworkd cancel {} ends \
                     the run; with a `timeout` of the step, or `job_worker.timeout`, an attempt that hangs is ended",
                    process.host, facts.run_id
                )
            })
        };
        return Some(match process.let_go_on().or(remedy).or_else(hangs) {
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
            "{} is held by {holder}, which is dead{place}; {left}",
            leaf.node
        );
        return Some(
            Why::new("process_gone", fact).remedy(end_transaction(facts.holder.as_deref())),
        );
    }
    if process.dead {
        let fact = format!("{} is held by {holder}, which is dead{place}", leaf.node);
        let remedy = "a `ductworkd` on that host recovers it within seconds, any other once its lease has \
             expired; start one if none runs";
        return Some(Why::new("process_gone", fact).remedy(remedy.into()));
    }
    let fact = format!(
        "{} is held by {holder}, whose heartbeat is {age} old{place}",
        leaf.node
    );
    let recovered = format!(
        "it is recovered within {} by any process that is alive; start `ductworkd` if none is",
        time::whole(facts.stale_after)
    );
    let remedy = match process.let_go_on() {
        Some(remedy) => format!("{remedy}. Otherwise {recovered}"),
        None => recovered,
    };
    Some(Why::new("process_stale", fact).remedy(remedy))
}

/// True where neither the definition nor the configuration has a timeout for the leaf's step.
fn is_without_timeout(facts: &Facts, leaf: &Leaf) -> bool {
    let step = facts.graph.as_ref().and_then(|graph| {
        let step = graph.node(graph.find(&leaf.node)?).step.as_ref()?;
        Some((step, graph.steps.get(step)?))
    });
    step.is_some_and(|(name, step)| step.timeout.is_none() && !facts.limited.contains(name))
}

/// True for a trouble that keeps something else from starting: this leaf's work has started.
fn is_of_a_start(trouble: &str) -> bool {
    ["definition ", "an execution ", "step "]
        .iter()
        .any(|of| trouble.starts_with(of))
}

/// A leaf that waits for an advancer.
fn ready(facts: &Facts, leaf: &Leaf, place: &str) -> Why {
    let all = facts.processes.iter();
    let all = all.filter(|process| process.role == Role::Advancer);
    let (advancers, others): (Vec<_>, Vec<_>) =
        all.partition(|process| process.is_alive(facts.stale_after));
    match advancers.first() {
        Some(_) if let Some(closed) = facts.closed(&advancers) => Why::new(
            closed.cause,
            format!(
                "{} has ended, but no advancer claims: {}{place}",
                leaf.node, closed.fact
            ),
        )
        .remedy(closed.remedy),
        Some(_) => about_to_be_advanced(facts, leaf, &advancers, place),
        None => Why::new(
            "no_advancer",
            format!("{} has ended, but no advancer is alive{place}", leaf.node),
        )
        .remedy(match stopped(&others) {
            Some(remedy) => remedy,
            None => intake::start(Role::Advancer, &facts.living()).to_owned(),
        }),
    }
}

/// The remedy if a signal has stopped one of these processes, none of which is alive.
fn stopped(processes: &[&ProcessFact]) -> Option<String> {
    processes.iter().find_map(|process| {
        let (role, pid, host) = (process.role, process.pid, &process.host);
        let remedy = process.let_go_on()?;
        Some(format!("the {role} {pid} on {host}: {remedy}"))
    })
}

/// A leaf that an advancer is about to take, or that none takes.
fn about_to_be_advanced(
    facts: &Facts,
    leaf: &Leaf,
    advancers: &[&ProcessFact],
    place: &str,
) -> Why {
    let node = &leaf.node;
    let open = advancers.iter().copied();
    let open: Vec<_> = open.filter(|it| it.intake.is_open()).collect();
    if let LeafState::Ready { from } = leaf.state
        && let waited = time::between(from, facts.now)
        && waited >= TAKEN_WITHIN
    {
        let held = held_by(facts, &open);
        // An advancer holds nothing between two batches.
        let moves = |it: &&ProcessFact| time::between(it.moved_at, facts.now) <= GRACE;
        if held > 0 || open.iter().any(moves) {
            let fact = format!(
                "{node} has ended, and has been ready to be advanced for {}; the advancers are busy (branches that \
                 they hold: {held}){place}",
                time::whole(waited)
            );
            return Why::new("ready", fact);
        }
        let been = format!("{node} has ended, and has been ready to be advanced");
        if let Some(untaken) = untaken(facts, &been, waited, &open, place) {
            return untaken;
        }
    }
    let fact = format!("{node} has ended, and is about to be advanced{place}");
    Why::new("ready", fact)
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
        return Why::new("no_worker", fact).remedy(match stopped(&others) {
            Some(remedy) => remedy,
            None if others.is_empty() => intake::start_worker(pipeline, &facts.living()),
            None => intake::start(Role::Worker, &facts.living()).to_owned(),
        });
    }
    if let Some(closed) = facts.closed(&alive) {
        let told = closed.fact;
        let fact = format!("{node} is due, but no worker of {pipeline} claims: {told}{place}");
        return Why::new(closed.cause, fact).remedy(closed.remedy);
    }
    let alive: Vec<_> = alive.into_iter().filter(|it| it.intake.is_open()).collect();
    let held = held_by(facts, &alive);
    if held == 0
        && let LeafState::Queued { due_at } = leaf.state
    {
        let waited = time::between(due_at, facts.now);
        let is_silent = longest_silent(&alive).is_some_and(|it| it.is_silent(facts.stale_after));
        if !is_silent && waited < TAKEN_WITHIN {
            let fact = format!("{node} is due, and is about to be taken{place}");
            return Why::new("due", fact);
        }
        let been = format!("{node} has been due");
        if let Some(untaken) = untaken(facts, &been, waited, &alive, place) {
            return untaken;
        }
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

/// How much those of them hold that have missed no heartbeat.
fn held_by(facts: &Facts, alive: &[&ProcessFact]) -> u64 {
    let at_work = |process: &&&ProcessFact| !process.is_silent(facts.stale_after);
    alive.iter().filter(at_work).map(|it| it.holds).sum()
}

fn longest_silent<'a>(alive: &[&'a ProcessFact]) -> Option<&'a ProcessFact> {
    alive.iter().copied().max_by_key(|process| process.age)
}

/// A leaf that no process takes, although none is known to be at work: the process that has been silent for the longest
/// time is named.
fn untaken(
    facts: &Facts,
    been: &str,
    waited: Duration,
    alive: &[&ProcessFact],
    place: &str,
) -> Option<Why> {
    let process = longest_silent(alive)?;
    let (own, held) = match process.role {
        Role::Advancer => ("the", "branches"),
        _ => ("its", "steps"),
    };
    let role = process.role;
    let nobody = match alive.len() {
        1 => format!("{own} {role} takes nothing"),
        n => format!("none of {own} {n} {role}s takes it"),
    };
    let fact = format!(
        "{been} for {}, but {nobody}: the last heartbeat of pid {} on {} is {} old ({held} that it holds: {}){place}",
        time::whole(waited),
        process.pid,
        process.host,
        time::whole(process.age),
        process.holds
    );
    let locked =
        "`ductworkd health` names the database session that has locked its rows, if there is one";
    let remedy = match process.is_silent(facts.stale_after) {
        _ if let Some(remedy) = process.let_go_on() => remedy,
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
pub(super) const TAKEN_WITHIN: Duration = Duration::from_secs(5);

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
            let to = facts.graph.as_ref().and_then(|graph| {
                match halt::then(&graph.node(graph.find(node)?).next)? {
                    Then::Combine(to) | Then::Collapse(to) | Then::Converge(to) => {
                        Some(&graph.node(to.node).name)
                    }
                    Then::End => None,
                }
            });
            // A branch that has halted arrives nowhere.
            let place = match to.filter(|_| facts.halts.is_empty()) {
                Some(to) => format!("arrived at {to}"),
                None => "ended".to_owned(),
            };
            format!("; {arrived} of the {width} branches of {node} have {place}")
        }
        None => String::new(),
    }
}
