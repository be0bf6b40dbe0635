//! The steps of a pipeline in the order in which they are shown.
//!
//! Owns: that order, and the depth of each step inside fan-outs and paths. Pure.

use crate::definition::{Definition, Edge, NodeIndex, Then};

/// A place in the flow.
pub struct Place {
    /// The node.
    pub node: String,
    /// The node, after the case of a divert that leads to it.
    pub label: String,
    /// The number of fan-outs or paths around it.
    pub depth: usize,
}

/// The places of a definition: a node inside a fan-out or on a path is deeper.
pub fn places(definition: &Definition) -> Vec<Place> {
    let mut places = Vec::new();
    let mut seen = vec![false; definition.nodes.len()];
    walk(definition, NodeIndex(0), 0, "", &mut seen, &mut places);
    places
}

fn walk(
    definition: &Definition,
    at: NodeIndex,
    depth: usize,
    via: &str,
    seen: &mut [bool],
    places: &mut Vec<Place>,
) {
    // Diverted paths meet again: the node where they meet is listed once.
    if std::mem::replace(&mut seen[at.0], true) {
        return;
    }
    let node = definition.node(at);
    places.push(Place {
        node: node.name.clone(),
        label: match via {
            "" => node.name.clone(),
            via => format!("{via} {}", node.name),
        },
        depth,
    });
    let mut go = |to: NodeIndex, deeper: usize, via: &str| {
        walk(definition, to, depth + deeper, via, seen, places);
    };
    let then = match &node.next {
        Edge::End => return,
        Edge::Chain(to) => return go(to.node, 0, ""),
        Edge::Converge(to) => return go(to.node, 0, ""),
        Edge::Dampen(at) => return go(*at, 0, ""),
        Edge::Divert { cases, otherwise } => {
            for case in cases {
                go(case.to.node, 1, &format!("{}:", case.when));
            }
            return go(otherwise.node, 1, "otherwise:");
        }
        Edge::Divide { paths, then } => {
            for path in paths {
                go(path.node, 1, "");
            }
            then
        }
        Edge::Expand { to, then } => {
            go(to.node, 1, "");
            then
        }
    };
    match then {
        Then::End => {}
        Then::Combine(to) | Then::Collapse(to) | Then::Converge(to) => go(to.node, 0, ""),
    }
}
