//! Small pipelines, the outcomes of their steps, and their own outcomes.
//!
//! Owns: one flow for each kind of transition, with the outcome that its definition promises,
//! written by hand. Never: the store.

use std::time::Duration;

use serde_json::{Value, json};

use crate::definition::builder::To;
use crate::definition::{Definition, Path, Pipeline, Question, Unanswered};
use crate::model::RunStatus;

/// All flows belong to one pipeline, so that any worker may run any of them.
pub const PIPELINE: &str = "P";

/// The input of every run.
pub const INPUT: &str = "\"x\"";

/// The time for which claims hold and heartbeats count, and the length of a tick of the clock.
pub const LEASE: Duration = Duration::from_secs(60);

/// A flow, and its outcome.
pub struct Flow {
    pub name: &'static str,
    pub definition: Definition,
    /// The output with which a run of it ends; `None`: it halts.
    pub output: Option<&'static str>,
}

impl Flow {
    /// The status in which a run of it ends.
    pub fn status(&self) -> RunStatus {
        match self.output {
            Some(_) => RunStatus::Completed,
            None => RunStatus::Halted,
        }
    }
}

/// The flow with this name.
pub fn flow(name: &str) -> Flow {
    let p = || Pipeline::named(PIPELINE);
    let x = || [("x", Path::to("B"))];
    let flows = [
        ("chain", p().start("A").chain("B"), Some("xAB")),
        ("flaky", p().start("Flaky").chain("B"), Some("xFlakyB")),
        ("bad", p().on_halt("Hook").start("Bad"), None),
        (
            "divide",
            p().start("A").divide(["B", "C"]).combine("D"),
            Some("[xAB,xAC]D"),
        ),
        (
            "split end",
            p().start("A").divide(["B", "C"]),
            Some("[xAB,xAC]"),
        ),
        (
            "half bad",
            p().start("A").divide(["Bad", "C"]).combine("D"),
            None,
        ),
        (
            "expand",
            p().start("Many").expand("B").collapse("C"),
            Some("[x0B,x1B]C"),
        ),
        (
            "none",
            p().start("None").expand("B").collapse("C"),
            Some("[]C"),
        ),
        (
            "divert",
            p().start("Same").divert(x(), "C").converge("D"),
            Some("xBD"),
        ),
        (
            "later",
            p().start("A").chain(To::step("B").delay(LEASE / 2)),
            Some("xAB"),
        ),
        (
            "bad end",
            p().start("A")
                .divide(["B", "C"])
                .combine("D")
                .expand("E")
                .collapse("F"),
            None,
        ),
        (
            "dampen",
            p().start("A").dampen("sure?").chain("B"),
            Some("xAB"),
        ),
        // With or without an answer, the outcome is the same.
        (
            "told",
            p().on_wait("Hook")
                .on_complete("Hook")
                .start("A")
                .dampen(Question::new("sure?").within(LEASE / 2, Unanswered::Approve))
                .chain("B"),
            Some("xAB"),
        ),
        ("told end", p().on_complete("Hook").start("A"), Some("xA")),
        (
            "nested",
            p().start("Many")
                .expand("B")
                .divide(["C", "D"])
                .combine("E")
                .collapse("F"),
            Some("[[x0BC,x0BD]E,[x1BC,x1BD]E]F"),
        ),
    ];
    let found = flows.into_iter().find(|flow| flow.0 == name);
    let (name, pipeline, output) = found.unwrap_or_else(|| panic!("there is no flow {name}"));
    let definition = pipeline.build();
    Flow {
        name,
        definition: definition.unwrap_or_else(|error| panic!("{name}: {error:?}")),
        output,
    }
}

/// A value as text, so that an output shows its whole path.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}

/// A step's output for an input; `None`: it refuses. A step writes its name after its input.
pub fn run(step: &str, input: &str, errors: u32) -> Option<String> {
    let value: Value = serde_json::from_str(input).expect("inputs are JSON");
    let output = match step {
        "Bad" => return None,
        "Flaky" if errors == 0 => return None,
        "Many" => (0..2).map(|i| format!("{}{i}", text(&value))).collect(),
        "None" => json!([]),
        "Same" => value,
        "Hook" => json!("told"),
        step => json!(format!("{}{step}", text(&value))),
    };
    Some(output.to_string())
}
