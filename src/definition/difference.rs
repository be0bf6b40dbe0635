//! The differences between two definitions of one pipeline, in people's words.
//!
//! Owns: the comparison, by the names of steps and nodes. Never: judges whether a run may change from
//! the one to the other (`machine::revive` does).

use std::collections::BTreeSet;

use super::graph::{Definition, Edge, Node, Target, Then};
use crate::model::Hook;

/// The differences between `old` and `new`, each as a few words.
pub fn differences(old: &Definition, new: &Definition) -> Vec<String> {
    let mut found = Vec::new();
    let steps: BTreeSet<&String> = old.steps.keys().chain(new.steps.keys()).collect();
    for step in steps {
        match (old.steps.get(step), new.steps.get(step)) {
            (Some(_), None) => found.push(format!("the step `{step}` is gone")),
            (None, Some(_)) => found.push(format!("the step `{step}` is new")),
            (old, new) if old != new => found.push(format!("the step `{step}` has changed")),
            _ => {}
        }
    }
    for node in &old.nodes {
        let (name, old) = (&node.name, spelled(old, node));
        let there = new.find(name).map(|index| spelled(new, new.node(index)));
        match there {
            Some(new) if new != old => found.push(format!("what follows `{name}` has changed")),
            None if node.step.as_ref() != Some(name) => found.push(format!("`{name}` is gone")),
            _ => {}
        }
    }
    for hook in Hook::ALL {
        if old.hook(*hook) != new.hook(*hook) {
            found.push(format!("`{hook}` has changed"));
        }
    }
    if old.input != new.input {
        found.push("`input` has changed".to_owned());
    }
    if old.trace != new.trace {
        found.push("`trace` has changed".to_owned());
    }
    if found.is_empty() && old != new {
        found.push("its order or a delay has changed".to_owned());
    }
    found
}

/// A node's question and edge, with names in place of positions.
fn spelled(definition: &Definition, node: &Node) -> String {
    let name = |to: &Target| {
        let name = &definition.node(to.node).name;
        format!("{name} {:?}", to.delay)
    };
    let then = |then: &Then| match then {
        Then::End => "end".to_owned(),
        Then::Combine(to) => format!("combine {}", name(to)),
        Then::Collapse(to) => format!("collapse {}", name(to)),
        Then::Converge(to) => format!("converge {}", name(to)),
    };
    let edge = match &node.next {
        Edge::End => "end".to_owned(),
        Edge::Chain(to) => format!("chain {}", name(to)),
        Edge::Converge(to) => format!("converge {}", name(to)),
        Edge::Dampen(at) => format!("dampen {}", definition.node(*at).name),
        Edge::Divide { paths, then: after } => {
            let paths: Vec<String> = paths.iter().map(name).collect();
            format!("divide {paths:?} {}", then(after))
        }
        Edge::Expand { to, then: after } => format!("expand {} {}", name(to), then(after)),
        Edge::Divert { cases, otherwise } => {
            let cases = cases.iter().map(|case| (&case.when, name(&case.to)));
            let cases: Vec<(&String, String)> = cases.collect();
            format!("divert {cases:?} {}", name(otherwise))
        }
    };
    format!("{:?} {:?} {edge}", node.prompt, node.deadline)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::definition::{Pipeline, RunTrace, StepSpec};

    fn built(pipeline: Pipeline) -> Definition {
        pipeline.build().expect("it is well formed")
    }

    #[test]
    fn what_differs_is_named() {
        let pipeline = || Pipeline::named("P").start("A").chain("B").chain("C");
        let old = built(pipeline());
        assert_eq!(differences(&old, &old), [""; 0]);
        let slow = StepSpec::command(["b"]).timeout(Duration::from_secs(9));
        let new = built(pipeline().step("B", slow));
        assert_eq!(differences(&old, &new), ["the step `B` has changed"]);
        let new = built(pipeline().on_halt("A"));
        assert_eq!(differences(&old, &new), ["`on_halt` has changed"]);
        let new = built(pipeline().input(BTreeMap::from([("type", "string")])));
        assert_eq!(differences(&old, &new), ["`input` has changed"]);
        let new = built(pipeline().trace(RunTrace::Parent));
        assert_eq!(differences(&old, &new), ["`trace` has changed"]);
        let new = built(Pipeline::named("P").start("A").chain("X").chain("C"));
        assert_eq!(
            differences(&old, &new),
            [
                "the step `B` is gone",
                "the step `X` is new",
                "what follows `A` has changed",
            ]
        );
        let new = built(Pipeline::named("P").start("A").chain("B").expand("C"));
        assert_eq!(differences(&old, &new), ["what follows `B` has changed"]);
    }
}
