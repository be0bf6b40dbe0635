//! Why a run does not move: the one fact that keeps it, and the remedy.
//!
//! Decided from facts that were loaded in one snapshot; all times are the database's.

mod facts;
mod hook;
mod leaf;

use std::fmt::Display;
use std::time::Duration;

use crate::model::*;
use crate::time;

use super::halt::{self, HALTS_MAX};

pub use facts::*;
pub use leaf::BACKLOG_MAX;

use leaf::active;

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

/// The remedy for a process that a signal has stopped.
pub fn let_go_on(pid: impl Display) -> String {
    format!("a signal has stopped it; let it go on: kill -CONT {pid}")
}

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
        Some(at) if facts.is_for_programs => format!(" at {}", time::rfc3339(at)),
        Some(at) => format!(" {}", time::relative(at, facts.now)),
        None => String::new(),
    };
    match facts.status {
        RunStatus::Completed => Why::new("completed", format!("it completed{}", ended())),
        RunStatus::Cancelled => {
            let mut fact = format!("it was cancelled{}", ended());
            if let Some(actor) = &facts.cancelled_by {
                fact.push_str(&format!(" by {actor}"));
            }
            let input = facts.input.as_deref().unwrap_or_default();
            Why::new("cancelled", fact).remedy(trigger_again(&facts.pipeline, input, run))
        }
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
    format!("ductworkd show {run} --input | ductworkd trigger {pipeline} -")
}

fn cancelling(facts: &Facts) -> Why {
    let at = facts.cancelling_at.unwrap_or(facts.now);
    let last = time::relative(at, facts.now);
    let fact = match &facts.cancelled_by {
        Some(actor) => {
            format!("it is being cancelled by {actor}, in batches; the last batch was {last}")
        }
        None => format!("it is being cancelled in batches; the last batch was {last}"),
    };
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
    if let Some(summary) = halt::summary(&facts.halts, facts.graph.as_deref()) {
        fact = format!("{fact}: {summary}");
    }
    match facts.revived_as {
        Some(next) => {
            let mut fact = format!("{fact}; it was revived as {}", next.run);
            if next.newest != next.run {
                fact = format!("{fact}, and last as {}", next.newest);
            }
            let ended = match next.status {
                Some(RunStatus::Cancelled) => "was cancelled",
                None => "is being deleted",
                Some(_) => {
                    let explains = format!(
                        "`ductworkd why {}` explains the run that goes on",
                        next.newest
                    );
                    return Why::new("halted", fact).remedy(explains);
                }
            };
            let fact = format!("{fact}, which {ended}");
            let input = facts.input.as_deref().unwrap_or_default();
            let again = trigger_again(&facts.pipeline, input, facts.run_id);
            Why::new("halted", fact).remedy(format!("{again}    # a new run does all work again"))
        }
        None => {
            let remedy = halt::remedy(
                &facts.halts,
                facts.graph.as_deref(),
                facts.run_id,
                &facts.prospects,
            );
            Why::new("halted", fact).remedy(remedy)
        }
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
        first.with_explanation(facts.graph.as_deref())
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
