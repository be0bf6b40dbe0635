//! Rows as people are told them, in a terminal and on a page.
//!
//! Owns: the words for states and spans, and which counts belong to which part of a picture. Pure. Never:
//! reads a row, or writes a text in the form of one medium.

pub mod attempt;
pub mod graph;

use crate::machine::bulk::Filter;
use crate::machine::why::Successor;
use crate::model::*;
use crate::store::process::ProcessRow;
use crate::store::query::Run;
use crate::time;

/// The word for a run's state that people know; programs read the state's own.
pub fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Dampened => "waiting",
        RunStatus::InProgress => "running",
        other => other.as_str(),
    }
}

/// The continuation of a run that was revived, in words.
pub fn continued(next: &Successor) -> String {
    let is = next.status.map_or("being deleted", word);
    format!("was revived as {}, which is {is}", next.newest)
}

/// The trouble that a process reports, in a sentence.
pub fn trouble(process: &ProcessRow) -> Option<String> {
    let (trouble, since) = process.trouble.as_ref()?;
    let pipeline = process.pipeline.iter();
    let pipeline: String = pipeline.map(|name| format!(" {name}")).collect();
    Some(format!(
        "{}{pipeline} (pid {} on {}) has had trouble for {}: {trouble}",
        process.role,
        process.pid,
        process.host,
        time::whole(time::between(*since, process.seen_at)),
    ))
}

/// An action's verb, in the past; a newer version may know further ones.
pub fn did(verb: &str) -> &str {
    match verb.parse() {
        Ok(Verb::Trigger) => "triggered",
        Ok(Verb::Revive) => "revived",
        Ok(Verb::Cancel) => "cancelled",
        Ok(Verb::Resume) => "resumed",
        Ok(Verb::Pause) => "paused",
        Ok(Verb::Unpause) => "unpaused",
        Ok(Verb::Send) => "resent the message about",
        Err(_) => verb,
    }
}

/// An action's channel; a newer version may know further ones.
pub fn channel(channel: &str) -> &str {
    match channel.parse() {
        Ok(Channel::Cli) => "command line",
        Ok(Channel::Api) => "API",
        Ok(Channel::Console) => "console",
        Err(_) => channel,
    }
}

/// The properties of the runs that a bulk action changes, each with its name; `since` is the time in the filter, in
/// words.
pub fn filter(filter: &Filter, since: Option<String>) -> Vec<(&'static str, String)> {
    let states: Vec<&str> = filter.statuses.iter().map(|it| word(*it)).collect();
    let any = || "any".to_owned();
    let pipeline = filter.pipeline.clone().unwrap_or_else(any);
    let mut facts = vec![("Pipeline", pipeline), ("State", states.join(" or "))];
    facts.extend(since.map(|since| ("Triggered", since)));
    if let Some(kind) = &filter.kind {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let class = kind.class.as_deref().map(attempt::class);
        facts.extend([
            ("Node", text(&kind.node)),
            ("Reason", text(&kind.reason)),
            ("Error", class.unwrap_or_default()),
            ("Message", kind.error.clone()),
        ]);
    }
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

/// A run's state by the word that people know, or by its own.
pub fn status(given: &str) -> Option<RunStatus> {
    let known = |it: &&RunStatus| word(**it) == given || it.as_str() == given;
    RunStatus::ALL.iter().find(known).copied()
}

/// All words by which a run's state is known: its own, then that of people where it is another.
pub fn words() -> Vec<&'static str> {
    let own = RunStatus::ALL.iter().map(|it| it.as_str());
    let others = RunStatus::ALL.iter().filter(|it| word(**it) != it.as_str());
    own.chain(others.map(|it| word(*it))).collect()
}

/// A step's state by the word that people know, or by its own.
pub fn step_status(given: &str) -> Option<StepStatus> {
    match given {
        "running" => Some(StepStatus::InProgress),
        "dampened" => Some(StepStatus::Waiting),
        own => own.parse().ok(),
    }
}

/// The run as which a run goes on, when it begins, the reasons for which its branches have halted, and whether it can be
/// read. A run that goes on although a branch has halted will halt.
pub fn remarks(run: &Run, now: i64) -> String {
    let begins = run
        .due_at
        .map(|at| format!("begins {}", time::relative(at, now)));
    let damaged = run.damaged.as_ref().map(|_| "damaged".to_owned());
    let reasons = run.halt_reasons.iter().cloned();
    let mut remarks: Vec<String> = begins.into_iter().chain(reasons).chain(damaged).collect();
    if !run.status.is_terminal() && !run.halt_reasons.is_empty() {
        remarks.insert(0, "will halt".to_owned());
    }
    if let Some(next) = run.revived_as {
        remarks.insert(0, format!("revived as {}", short(next)));
    }
    remarks.join(", ")
}

/// How long a run took from its trigger, or has taken so far.
pub fn took(triggered_at: i64, ended_at: Option<i64>, now: i64) -> String {
    let span = time::between(triggered_at, ended_at.unwrap_or(now));
    match ended_at {
        Some(_) => time::span(span),
        None => format!("{}…", time::whole(span)),
    }
}
