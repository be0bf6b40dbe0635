//! Where a halted branch resumes its work in the run that is made from its own, and whether that
//! run may have another definition.

use std::collections::BTreeSet;
use std::fmt;

use crate::definition::{Definition, Edge, Target, Then};
use crate::model::{StepStatus, Via};

/// A branch that halted by itself (not because branches of its fan-out halted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltedView {
    /// How its current step had ended.
    pub step: StepStatus,
    /// It had been split at its current step, and halted when all its branches had arrived.
    pub split: bool,
    /// A person gave the output of its current step.
    pub asked: bool,
    /// The transition that follows can take the output (`advance::fits`).
    pub fits: bool,
}

/// The move that sets a halted branch in motion again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Its step is run again, with the same input.
    Run,
    /// A person is asked again.
    Ask,
    /// Its step has an output: the branch is advanced again.
    Advance,
    /// Its branches have all arrived: one of them arrives again, and the barrier fires again.
    Arrive,
}

/// Decides where a halted branch resumes its work; `None` for a state that no halt leaves.
///
/// The reason for the halt does not matter: whichever budget ran out, the decision depends on
/// whether the step has an output, and whether that output can be used. A step that crashed too
/// often has none, and must never be advanced as if it had. An output that the next transition
/// cannot take would halt the new run as it halted the old one, so the step makes it again.
pub fn restart(view: HaltedView) -> Option<Restart> {
    match (view.step, view.split) {
        // Nobody answered in time.
        (StepStatus::Failed, false) if view.asked => Some(Restart::Ask),
        (StepStatus::Failed, false) => Some(Restart::Run),
        (StepStatus::Completed, false) if view.fits => Some(Restart::Advance),
        (StepStatus::Completed, false) if view.asked => Some(Restart::Ask),
        (StepStatus::Completed, false) => Some(Restart::Run),
        (StepStatus::Completed, true) => Some(Restart::Arrive),
        _ => None,
    }
}

/// The rows of a halted run that a definition may disagree with; each kind of row once, however
/// many rows there are of it.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Its steps.
    pub steps: Vec<StepFact>,
    /// Its barriers.
    pub fan_outs: Vec<FanOutFact>,
    /// Where branches of its fan-outs ended.
    pub ends: Vec<EndFact>,
}

/// A step, and how its branch reached it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFact {
    /// Its node.
    pub node: String,
    /// The step's name.
    pub step: String,
    /// The transition by which it was reached.
    pub via: String,
    /// The place that its branch came from.
    pub from: Origin,
}

/// How a branch left a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// With the output of its step.
    Whole,
    /// With an empty list, in which an expand finds nothing.
    Empty,
    /// It was split there, and went on from the barrier, or ended with the array of that fan-out.
    Split,
}

/// The place that a branch came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// There is none: the run began there.
    Start,
    /// Another node.
    Node {
        /// The name of the node.
        node: String,
        /// How the branch left it.
        left: Left,
    },
    /// A fan-out, of which this is a branch's first step.
    FanOut {
        /// The node that was split.
        node: String,
        /// The path of a divide.
        path: Option<i64>,
    },
}

/// A barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOutFact {
    /// The node that was split.
    pub node: String,
    /// The number of paths of a divide; none for an expand.
    pub paths: Option<i64>,
}

/// The end of a branch of a fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndFact {
    /// Its last node.
    pub node: String,
    /// How the branch left it.
    pub left: Left,
}

/// A row that a definition could not have produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// The node is not in the definition.
    Missing(String),
    /// The node stands for another step.
    OtherStep(String),
    /// The definition begins elsewhere.
    OtherStart(String),
    /// The first node does not lead to the second one, or not in this way.
    NotNext(String, String),
    /// This path of the fan-out does not begin with this node.
    NotPath(String, i64, String),
    /// The output of the first node is not expanded to the second one.
    NotElement(String, String),
    /// The node does not divide into this many paths.
    NotDivided(String, i64),
    /// The node does not expand.
    NotExpanded(String),
    /// Branches that ended after the node have more to do.
    NotEnd(String),
}

impl fmt::Display for Disagreement {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(node) => write!(to, "it has no `{node}`"),
            Self::OtherStep(node) => write!(to, "`{node}` is another step there"),
            Self::OtherStart(node) => write!(to, "it does not begin with `{node}`"),
            Self::NotNext(from, node) => {
                write!(
                    to,
                    "`{from}` does not lead to `{node}` there as it did in the run"
                )
            }
            Self::NotPath(from, path, node) => {
                let path = path + 1;
                write!(
                    to,
                    "path {path} of the divide after `{from}` does not begin with `{node}` there"
                )
            }
            Self::NotElement(from, node) => {
                write!(to, "`{from}` does not expand to `{node}` there")
            }
            Self::NotDivided(node, paths) => {
                write!(to, "`{node}` does not divide into {paths} paths there")
            }
            Self::NotExpanded(node) => write!(to, "`{node}` does not expand there"),
            Self::NotEnd(node) => {
                write!(
                    to,
                    "branches that ended after `{node}` would have more to do there"
                )
            }
        }
    }
}

/// The number of differences that are named.
const NAMED: usize = 5;

/// The first of these differences or disagreements, in a line.
pub fn listed(found: &[String]) -> String {
    let more = match found.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", found[..found.len().min(NAMED)].join(", "))
}

/// Everything that keeps a halted run from going on with `definition`; if there is nothing, the run
/// may go on.
///
/// The run that goes on is one that the definition could have produced by itself: every step stands
/// where it would stand, was reached as it would be, and every branch that has ended would end
/// there. So no barrier waits for branches that the definition does not have, and no step is
/// skipped. The path of a divert that an output chooses is not checked again.
pub fn disagreements(definition: &Definition, shape: &Shape) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let mut missing = BTreeSet::new();
    for step in &shape.steps {
        let Some(index) = definition.find(&step.node) else {
            if missing.insert(&step.node) {
                found.push(Disagreement::Missing(step.node.clone()));
            }
            continue;
        };
        let node = definition.node(index);
        if node.step.as_deref().unwrap_or(Via::Dampen.as_str()) != step.step {
            found.push(Disagreement::OtherStep(step.node.clone()));
        }
        found.extend(origin(definition, step));
    }
    for fan_out in &shape.fan_outs {
        found.extend(fan_out_of(definition, fan_out));
    }
    for end in &shape.ends {
        let edge = edge(definition, &end.node);
        let ends = match edge {
            // The missing node is reported by its own step.
            None => true,
            Some(Edge::End) => end.left != Left::Split,
            Some(Edge::Expand { then, .. }) => end.left != Left::Whole && *then == Then::End,
            Some(Edge::Divide { then, .. }) => end.left == Left::Split && *then == Then::End,
            Some(_) => false,
        };
        if !ends {
            found.push(Disagreement::NotEnd(end.node.clone()));
        }
    }
    found.dedup();
    found
}

fn edge<'a>(definition: &'a Definition, node: &str) -> Option<&'a Edge> {
    Some(&definition.node(definition.find(node)?).next)
}

fn origin(definition: &Definition, step: &StepFact) -> Option<Disagreement> {
    let here = |to: &Target| definition.node(to.node).name == step.node;
    match &step.from {
        Origin::Start => {
            let first = definition.nodes.first()?;
            (first.name != step.node).then(|| Disagreement::OtherStart(step.node.clone()))
        }
        Origin::Node { node, left } => {
            // The missing node is reported by its own step.
            let edge = edge(definition, node)?;
            let follows = leads(edge, &step.via, *left, &here)
                || matches!(edge, Edge::Dampen(at) if *left != Left::Split && definition.node(*at).name == step.node);
            (!follows).then(|| Disagreement::NotNext(node.clone(), step.node.clone()))
        }
        Origin::FanOut { node, path } => match (edge(definition, node)?, path) {
            (Edge::Divide { paths, .. }, Some(path)) => {
                let to = usize::try_from(*path).ok().and_then(|path| paths.get(path));
                let differs = !to.is_some_and(here);
                differs.then(|| Disagreement::NotPath(node.clone(), *path, step.node.clone()))
            }
            (Edge::Expand { to, .. }, None) => {
                (!here(to)).then(|| Disagreement::NotElement(node.clone(), step.node.clone()))
            }
            // This is reported with the barrier.
            _ => None,
        },
    }
}

/// True when a branch may cross `edge` by `via` to the node that `here` accepts.
fn leads(edge: &Edge, via: &str, left: Left, here: &dyn Fn(&Target) -> bool) -> bool {
    let fan_in = |then: &Then| match then {
        Then::End => false,
        Then::Combine(to) => via == Via::Combine.as_str() && here(to),
        Then::Collapse(to) => via == Via::Collapse.as_str() && here(to),
        Then::Converge(to) => via == Via::Converge.as_str() && here(to),
    };
    let through = [Via::Chain, Via::Converge, Via::Divert];
    let through = left != Left::Split && through.iter().any(|it| it.as_str() == via);
    match edge {
        Edge::End | Edge::Dampen(_) => false,
        // These pass the output on as it is, to one step.
        Edge::Chain(to) | Edge::Converge(to) => through && here(to),
        Edge::Divert { cases, otherwise } => {
            through && (here(otherwise) || cases.iter().any(|case| here(&case.to)))
        }
        Edge::Divide { then, .. } => left == Left::Split && fan_in(then),
        Edge::Expand { then, .. } => left != Left::Whole && fan_in(then),
    }
}

fn fan_out_of(definition: &Definition, fan_out: &FanOutFact) -> Option<Disagreement> {
    let node = &fan_out.node;
    match (edge(definition, node)?, fan_out.paths) {
        (Edge::Divide { paths, .. }, Some(width)) if paths.len() as i64 == width => None,
        (_, Some(width)) => Some(Disagreement::NotDivided(node.clone(), width)),
        (Edge::Expand { .. }, None) => None,
        (_, None) => Some(Disagreement::NotExpanded(node.clone())),
    }
}
