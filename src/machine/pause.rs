//! A pipeline that a person has paused, in words.

use crate::time;

/// The pause of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The pipeline.
    pub pipeline: String,
    /// The reason that was given.
    pub reason: String,
    /// The person who paused it.
    pub by: String,
    /// µs since 1970.
    pub at: i64,
}

impl Pause {
    /// The pause in one line, as seen from `now`.
    pub fn fact(&self, now: i64) -> String {
        let Self {
            pipeline,
            reason,
            by,
            at,
        } = self;
        let when = time::relative(*at, now);
        format!("the pipeline {pipeline} is paused (by {by}, {when}): {reason}")
    }

    /// The command that ends the pause.
    pub fn remedy(&self) -> String {
        format!("ductworkd unpause {}", self.pipeline)
    }
}
