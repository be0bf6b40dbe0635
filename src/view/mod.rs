//! Rows as people are told them, in a terminal and on a page.
//!
//! Owns: the words for states and spans, and which counts belong to which part of a picture. Pure. Never:
//! reads a row, or writes a text in the form of one medium.

pub mod graph;

use crate::model::*;
use crate::time;

/// The word for a run's state that people know; programs read the state's own.
pub fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Dampened => "waiting",
        RunStatus::InProgress => "running",
        other => other.as_str(),
    }
}

/// How long a run took from its trigger, or has taken so far.
pub fn took(triggered_at: i64, ended_at: Option<i64>, now: i64) -> String {
    let span = time::between(triggered_at, ended_at.unwrap_or(now));
    match ended_at {
        Some(_) => time::span(span),
        None => format!("{}…", time::whole(span)),
    }
}
