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
    let mut walk = Walk {
        definition,
        listed: vec![None; definition.nodes.len()],
        places: Vec::new(),
    };
    walk.node(NodeIndex(0), 0, "");
    walk.places
}

struct Walk<'a> {
    definition: &'a Definition,
    /// The place of each node that is listed.
    listed: Vec<Option<usize>>,
    places: Vec<Place>,
}

impl Walk<'_> {
    /// Lists a node and everything behind it. Returns the node at which diverted paths meet, if that is to be listed
    /// when all of them are.
    fn node(&mut self, at: NodeIndex, depth: usize, via: &str) -> Option<NodeIndex> {
        if self.listed[at.0].is_some() {
            return None;
        }
        let began = self.places.len();
        self.listed[at.0] = Some(began);
        let node = self.definition.node(at);
        self.places.push(Place {
            node: node.name.clone(),
            label: match via {
                "" => node.name.clone(),
                via => format!("{via} {}", node.name),
            },
            depth,
        });
        let then = match &node.next {
            Edge::End => return None,
            Edge::Chain(to) => return self.node(to.node, depth, ""),
            Edge::Converge(to) => return Some(to.node),
            Edge::Dampen(at) => return self.node(*at, depth, ""),
            Edge::Divert { cases, otherwise } => {
                let mut meets = None;
                for case in cases {
                    let via = format!("{}:", case.when);
                    meets = self.node(case.to.node, depth + 1, &via).or(meets);
                }
                let last = self.node(otherwise.node, depth + 1, "otherwise:");
                let meets = last.or(meets)?;
                // Paths around this divert may meet there, too.
                return match self.leads_only_from(began, meets) {
                    true => self.node(meets, depth, ""),
                    false => Some(meets),
                };
            }
            Edge::Divide { paths, then } => {
                for path in paths {
                    self.node(path.node, depth + 1, "");
                }
                then
            }
            Edge::Expand { to, then } => {
                self.node(to.node, depth + 1, "");
                then
            }
        };
        match then {
            Then::End => None,
            Then::Combine(to) | Then::Collapse(to) => self.node(to.node, depth, ""),
            Then::Converge(to) => Some(to.node),
        }
    }

    /// True if all paths that meet at this node have been listed since then.
    fn leads_only_from(&self, began: usize, meets: NodeIndex) -> bool {
        let leads = |edge: &Edge| match edge {
            Edge::Converge(to) => to.node == meets,
            Edge::Divide { then, .. } | Edge::Expand { then, .. } => {
                matches!(then, Then::Converge(to) if to.node == meets)
            }
            _ => false,
        };
        let nodes = self.definition.nodes.iter().enumerate();
        let mut from = nodes.filter(|(_, node)| leads(&node.next));
        from.all(|(at, _)| self.listed[at] >= Some(began))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::definition::yaml;

    fn listed(flow: &str) -> String {
        let steps = "ABCDEFGH"
            .chars()
            .map(|name| format!("  {name}: {{ command: [cat] }}\n"));
        let steps: String = steps
            .filter(|step| flow.contains(step.trim().split(':').next().unwrap_or(" ")))
            .collect();
        let text = format!("pipeline: P\nsteps:\n{steps}flow: {flow}\n");
        let definition = yaml::parse(&text, Path::new("p.yml"));
        let definition = definition.unwrap_or_else(|problems| panic!("{problems}"));
        let line = |place: &Place| format!("{}{}", "-".repeat(place.depth), place.label);
        places(&definition)
            .iter()
            .map(line)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn diverted_paths_are_listed_before_the_node_at_which_they_meet() {
        assert_eq!(
            listed(
                "[{ start: A }, { divert: { x: B, y: C, otherwise: D } }, { converge: E }, { chain: F }]"
            ),
            "A -x: B -y: C -otherwise: D E F"
        );
        // A fan-out at the end of a path, and a path with steps of its own.
        assert_eq!(
            listed(
                "[{ start: A }, { divert: { x: [B, { expand: C }], otherwise: [D, { chain: E }] } }, { converge: F }]"
            ),
            "A -x: B --C -otherwise: D -E F"
        );
        // One divert in a path of another.
        assert_eq!(
            listed(
                "[{ start: A }, { divert: { x: [B, { divert: { y: C, otherwise: D } }, { converge: E }], otherwise: F } }, \
                 { converge: G }]"
            ),
            "A -x: B --y: C --otherwise: D -E -otherwise: F G"
        );
        assert_eq!(
            listed(
                "[{ start: A }, { divert: { x: [B, { divert: { y: C, otherwise: D } }], otherwise: F } }, { converge: G }]"
            ),
            "A -x: B --y: C --otherwise: D -otherwise: F G"
        );
        assert_eq!(
            listed("[{ start: A }, { divert: { x: B, otherwise: C } }]"),
            "A -x: B -otherwise: C"
        );
    }
}
