//! A run as a picture of its pipeline's graph: `show --svg`, the page of a run, the API.
//!
//! Owns: which counts belong to which part. Pure.

use std::collections::BTreeMap;

use crate::definition::{Definition, NodeIndex};
use crate::machine::layout::{Layout, Part};
use crate::store::fan_out::FanOut;
use crate::store::query::{NodeProgress, Run};
use crate::svg::{NodeState, Picture, STYLE};

/// How far a run is, as it was read.
#[derive(Debug)]
pub enum Progress {
    /// Node by node.
    Nodes(Vec<NodeProgress>),
    /// Of a run that is too wide for that: the fan-outs of its root branch.
    FanOuts(Vec<FanOut>),
}

/// The picture, to be kept in a file; `None` for a definition that no pipeline has.
pub fn draw(run: &Run, definition: &Definition, progress: &Progress) -> Option<String> {
    let layout = Layout::of(definition)?;
    let title = format!("{} {}", run.pipeline, run.id);
    let states = match progress {
        Progress::Nodes(nodes) => states(definition, &layout, nodes),
        Progress::FanOuts(fan_outs) => barriers(definition, fan_outs),
    };
    let picture = Picture {
        title: &title,
        layout: &layout,
        states: &states,
        link: None,
        style: Some(STYLE),
    };
    Some(picture.svg())
}

/// The state of fan-outs, from what their barriers know; other parts show none.
fn barriers(definition: &Definition, fan_outs: &[FanOut]) -> BTreeMap<Part, NodeState> {
    let state = |fan_out: &FanOut| {
        let state = NodeState {
            total: fan_out.width,
            completed: fan_out.arrived.saturating_sub(fan_out.halted),
            failed: fan_out.halted,
            ..NodeState::default()
        };
        Some((Part::Fan(definition.find(&fan_out.node)?), state))
    };
    fan_outs.iter().filter_map(state).collect()
}

/// The state of every part, from the steps of each node.
pub fn states(
    definition: &Definition,
    layout: &Layout,
    progress: &[NodeProgress],
) -> BTreeMap<Part, NodeState> {
    let found: BTreeMap<&str, &NodeProgress> =
        progress.iter().map(|it| (it.node.as_str(), it)).collect();
    let of = |name: &str| found.get(name).map_or(NodeState::default(), |it| steps(it));
    let of_node = |node: NodeIndex| of(&definition.node(node).name);
    let boxes = layout.boxes.iter().map(|placed| {
        let state = match placed.part {
            Part::Node(node) | Part::Fan(node) => of_node(node),
            Part::Hook(hook) => of(hook.node()),
        };
        (placed.part, state)
    });
    let frames = layout.frames.iter().map(|frame| {
        let inside = frame.nodes.clone().map(|at| of_node(NodeIndex(at)));
        let mut state = NodeState {
            total: of_node(NodeIndex(frame.nodes.start)).total,
            ..NodeState::default()
        };
        // Where the steps do not tell, an element is done when all of them are.
        state.completed = match frame.finish.count(&|node| of_node(node).completed) {
            Some(completed) => completed,
            None if inside.clone().all(|it| it.completed == it.total) => state.total,
            None => 0,
        };
        for it in inside {
            state.running += it.running;
            state.retrying += it.retrying;
            state.waiting += it.waiting;
            state.failed += it.failed;
            state.cancelled += it.cancelled;
        }
        (Part::Fan(frame.opener), state)
    });
    boxes.chain(frames).collect()
}

fn steps(node: &NodeProgress) -> NodeState {
    NodeState {
        total: node.total,
        completed: node.completed,
        running: node.running,
        retrying: node.retrying,
        waiting: node.waiting,
        failed: node.failed,
        cancelled: node.cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Path, Pipeline};
    use crate::model::{BranchId, FanOutId, Hook};

    fn progress(node: &str, total: u64, completed: u64, failed: u64) -> NodeProgress {
        NodeProgress {
            node: node.to_owned(),
            step: node.to_owned(),
            via: String::new(),
            total,
            completed,
            running: total - completed - failed,
            retrying: 0,
            moving: 0,
            waiting: 0,
            failed,
            cancelled: 0,
            copied: 0,
            first_at: None,
            last_at: None,
        }
    }

    #[test]
    fn a_fan_out_of_a_wide_run_counts_its_arrivals_and_nothing_else_is_told() {
        let pipeline = Pipeline::named("P").start("Read").expand("Clean");
        let definition = pipeline.collapse("Report").build().expect("one");
        let fan_out = FanOut {
            id: FanOutId::new(),
            branch_id: BranchId::new(),
            node: "Read".to_owned(),
            via: "expand".to_owned(),
            width: 1_000_000,
            made: 1_000_000,
            arrived: 734_000,
            halted: 38,
            created_at: 0,
            fired_at: None,
        };
        let states = barriers(&definition, &[fan_out]);
        let expected = NodeState {
            total: 1_000_000,
            completed: 733_962,
            failed: 38,
            ..NodeState::default()
        };
        assert_eq!(
            states,
            BTreeMap::from([(Part::Fan(NodeIndex(0)), expected)])
        );
    }

    #[test]
    fn a_fan_out_counts_its_elements_and_what_its_steps_do() {
        let paths = [Path::to("Extent"), Path::to("Words")];
        let pipeline = Pipeline::named("P")
            .start("Read")
            .expand("Clean")
            .divide(paths);
        let pipeline = pipeline
            .combine("Describe")
            .collapse("Report")
            .on_halt("Notify");
        let definition = pipeline.build().expect("a sound pipeline");
        let layout = Layout::of(&definition).expect("a picture");
        let states = states(
            &definition,
            &layout,
            &[
                progress("Read", 1, 1, 0),
                progress("Clean", 50, 40, 0),
                progress("Extent", 40, 39, 1),
                progress("Words", 40, 30, 0),
                progress("Describe", 29, 20, 2),
                progress(Hook::Halt.node(), 1, 0, 0),
            ],
        );
        let of = |part| states[&part];
        let fan = of(Part::Fan(NodeIndex(0)));
        let expected = NodeState {
            total: 50,
            completed: 20,
            running: 10 + 10 + 7,
            failed: 3,
            ..NodeState::default()
        };
        assert_eq!(fan, expected);
        assert_eq!(of(Part::Node(NodeIndex(1))).completed, 40);
        assert_eq!(
            of(Part::Node(NodeIndex(5))),
            NodeState::default(),
            "not reached"
        );
        assert_eq!(of(Part::Hook(Hook::Halt)).running, 1);
    }
}
