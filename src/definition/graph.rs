//! The graph of a pipeline: nodes joined by edges, as frozen into every run.
//!
//! Owns: the data types and their JSON form. Never: validates (`check`) or names nodes
//! (`canonical`). A graph is acyclic and well nested by construction: the only ways to make
//! one are the builder and deserialising the canonical form of one that was built.
//!
//! **How fan-outs nest.** A branch that crosses a `divide` or `expand` edge waits, and one child
//! branch per path or element goes on. A child that reaches [`Edge::End`] arrives at the barrier;
//! when all have arrived, the *waiting* branch goes on as the fan-out's [`Then`] says. So a
//! fan-in needs no search for "the matching fan-out": the fan-out itself records it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{Schema, Violation, halves, judge};
use crate::model::Hook;

/// Position of a node in [`Definition::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIndex(pub usize);

/// A pipeline, as a run is started with it and keeps it until the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The pipeline's name.
    pub pipeline: String,
    /// A step that runs once, durably, for each run that halts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_halt: Option<String>,
    /// A step that runs once, durably, for each run that completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_complete: Option<String>,
    /// A step that runs once, durably, for each wait for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_wait: Option<String>,
    /// The input that a run takes; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<Schema>>,
    /// The trace that its runs are in.
    #[serde(default, skip_serializing_if = "RunTrace::is_own")]
    pub trace: RunTrace,
    /// All nodes, in the order in which they are written; the first is the start.
    pub nodes: Vec<Node>,
    /// Delay before the start step, on top of the trigger's own.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis_opt")]
    pub start_delay: Option<Duration>,
    /// How each step runs, by the step's name. Every step named by a node or by a hook is here.
    pub steps: BTreeMap<String, StepSpec>,
}

/// The trace that a run is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunTrace {
    /// Its own trace, with a link to the caller's span.
    #[default]
    Own,
    /// The caller's trace, if the caller has passed one.
    Parent,
}

impl RunTrace {
    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// A step's place in the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Stable, readable, unique in its definition: `LoadUser`, then `LoadUser.2`.
    pub name: String,
    /// The step that runs here; `None` if the branch waits for a person (dampen).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The question of a dampen node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The time within which somebody must answer at a dampen node; `None` is without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// The edge that leaves the node.
    pub next: Edge,
}

/// How long a question waits for its answer, and the consequence if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// How long a person has to answer.
    #[serde(with = "millis")]
    pub timeout: Duration,
    /// The move that is made in the person's place.
    pub then: Unanswered,
}

/// The move of a branch whose question nobody has answered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unanswered {
    /// It halts.
    #[default]
    Halt,
    /// It goes on with the value that the question was about.
    Approve,
}

/// The target of a transition, and how long it waits before it may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The node that runs next.
    pub node: NodeIndex,
    /// Overrides the step's own `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis_opt")]
    pub delay: Option<Duration>,
}

/// The edge that leaves a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// The branch ends here: it arrives at its barrier, or the run is complete.
    End,
    /// The next step, on the same branch.
    Chain(Target),
    /// Diverted paths meet: the next step, on the same branch.
    Converge(Target),
    /// The branch waits for a person at the given (step-less) node.
    Dampen(NodeIndex),
    /// One new branch per path, the same input to each.
    Divide {
        /// The first step of each path, in the listed order.
        paths: Vec<Target>,
        /// The next move when all have arrived.
        then: Then,
    },
    /// One new branch per element of the output.
    Expand {
        /// The first step of each element's branch.
        to: Target,
        /// The next move when all have arrived.
        then: Then,
    },
    /// The output chooses the path, on the same branch.
    Divert {
        /// The paths, in the listed order; the first that matches is taken.
        cases: Vec<Case>,
        /// The target of an output that matches no case.
        otherwise: Target,
    },
}

/// One path of a divert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Compared with the text of the output (or of its `divert` field).
    pub when: String,
    /// The path's first step.
    pub to: Target,
}

/// A branch's next move when all branches of its fan-out have arrived. Its value is the array
/// of their outputs, in listed or element order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// No fan-in was written: the branch ends, with the array as its output.
    End,
    /// Fan-in of a divide.
    Combine(Target),
    /// Fan-in of an expand.
    Collapse(Target),
    /// A fan-out without fan-in at the end of a diverted path: the paths meet.
    Converge(Target),
}

/// How a step runs. Absent values come from the configuration, when the step runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSpec {
    /// The runner.
    #[serde(flatten)]
    pub run: StepRunner,
    /// The longest that an attempt may take; `None` is without limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis_opt")]
    pub timeout: Option<Duration>,
    /// The wait before the step may be claimed, unless the transition says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "millis_opt")]
    pub delay: Option<Duration>,
    /// How many attempts after the first may be spent on errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retry: Option<u32>,
    /// The number of crashes at which the step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_crash: Option<u32>,
    /// The wait between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Added to the environment of a command. The worker that starts it replaces `${VAR}` and
    /// `${VAR:-default}` with its own variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The same, by the name of a secret, which the worker that starts the command looks up: in a
    /// variable of its environment, or in the file that `NAME_FILE` names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The working directory of a command, relative to the configuration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The runner of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRunner {
    /// A program: argv, without a shell.
    Command(Vec<String>),
    /// A function of the program that embeds the library.
    Native,
}

impl StepSpec {
    /// A step with nothing but its runner; everything else comes from the configuration.
    pub fn new(run: StepRunner) -> Self {
        Self {
            run,
            timeout: None,
            delay: None,
            max_retry: None,
            max_crash: None,
            backoff: None,
            env: BTreeMap::new(),
            secrets: BTreeMap::new(),
            cwd: None,
        }
    }
}

/// The wait before attempt *n* + 1 after *n* errors: `initial × factor^(n-1)`, at most `max`,
/// spread by ± `jitter` of itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    /// The wait after the first error.
    #[serde(with = "millis")]
    pub initial: Duration,
    /// Growth per further error; 1 is constant.
    pub factor: f64,
    /// The upper bound, before jitter.
    #[serde(with = "millis")]
    pub max: Duration,
    /// The fraction of the wait by which it varies, 0 to 1.
    pub jitter: f64,
}

impl Default for Backoff {
    /// A constant ten seconds, give or take one.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            factor: 1.0,
            max: Duration::from_secs(3_600),
            jitter: 0.1,
        }
    }
}

impl Definition {
    /// A definition of which only the pipeline's name is known.
    pub fn silent(pipeline: &str) -> Self {
        Self {
            pipeline: pipeline.to_owned(),
            on_halt: None,
            on_complete: None,
            on_wait: None,
            input: None,
            trace: RunTrace::Own,
            nodes: Vec::new(),
            start_delay: None,
            steps: BTreeMap::new(),
        }
    }

    /// Everything that keeps a value from being the input of a run.
    pub fn violations(&self, input: &str) -> Vec<Violation> {
        let halves = halves(input);
        match self.input.as_deref() {
            Some(schema) if halves.is_empty() => judge(schema, input),
            _ => halves,
        }
    }

    /// The step that this hook calls.
    pub fn hook(&self, hook: Hook) -> Option<&str> {
        match hook {
            Hook::Halt => self.on_halt.as_deref(),
            Hook::Complete => self.on_complete.as_deref(),
            Hook::Wait => self.on_wait.as_deref(),
        }
    }

    /// The node at `index`.
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.0]
    }

    /// Finds a node by its name.
    pub fn find(&self, name: &str) -> Option<NodeIndex> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .map(NodeIndex)
    }

    /// The wait before the first step may be claimed.
    pub fn first_delay(&self) -> Duration {
        let (node, delay) = (NodeIndex(0), self.start_delay);
        self.delay(Target { node, delay })
    }

    /// The wait before the step at `target` may be claimed: the transition's, or else the step's.
    pub fn delay(&self, target: Target) -> Duration {
        let of_step = || {
            let step = self.node(target.node).step.as_ref()?;
            self.steps.get(step)?.delay
        };
        target.delay.or_else(of_step).unwrap_or_default()
    }
}

/// Durations as whole milliseconds, their only form in canonical JSON.
mod millis {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.as_millis() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

mod millis_opt {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::millis::serialize(value, to),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}
