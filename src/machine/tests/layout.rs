//! The picture of every pipeline that can be built: each part is in it once, and nothing is in the way.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;

use crate::definition::{Definition, Edge, NodeIndex, Path, Pipeline, Then, properties};
use crate::machine::layout::{Finish, Layout, Line, Part, Point, Rect};
use crate::model::Hook;

fn built(pipeline: Pipeline) -> Definition {
    let built = pipeline.build();
    built.unwrap_or_else(|problems| panic!("{problems}"))
}

fn of(definition: &Definition) -> Layout {
    Layout::of(definition).expect("what was built can be drawn")
}

/// The next move after a fan-out.
fn after(then: &Then) -> Option<NodeIndex> {
    match then {
        Then::End => None,
        Then::Combine(to) | Then::Collapse(to) | Then::Converge(to) => Some(to.node),
    }
}

/// The edges that a branch crosses from a given node on, and the nodes where it ends; derived a second
/// time, without any notion of nesting.
#[derive(Default)]
struct Walk {
    edges: BTreeSet<(usize, usize)>,
    seen: BTreeSet<usize>,
    ends: BTreeSet<usize>,
}

impl Walk {
    fn from(definition: &Definition, start: NodeIndex) -> Self {
        let mut walk = Self::default();
        let mut next = vec![start];
        while let Some(at) = next.pop() {
            if !walk.seen.insert(at.0) {
                continue;
            }
            let mut go = |walk: &mut Self, to: NodeIndex| {
                walk.edges.insert((at.0, to.0));
                next.push(to);
            };
            let (inner, then) = match &definition.node(at).next {
                Edge::End => {
                    walk.ends.insert(at.0);
                    continue;
                }
                Edge::Chain(to) | Edge::Converge(to) => {
                    go(&mut walk, to.node);
                    continue;
                }
                Edge::Dampen(to) => {
                    go(&mut walk, *to);
                    continue;
                }
                Edge::Divert { cases, otherwise } => {
                    let cases = cases.iter().map(|case| case.to.node);
                    for to in cases.chain([otherwise.node]) {
                        go(&mut walk, to);
                    }
                    continue;
                }
                Edge::Divide { paths, then } => {
                    (paths.iter().map(|path| path.node).collect(), then)
                }
                Edge::Expand { to, then } => (vec![to.node], then),
            };
            for first in inner {
                let inside = Self::from(definition, first);
                walk.edges.insert((at.0, first.0));
                walk.edges.extend(inside.edges);
                walk.seen.extend(inside.seen);
                match after(then) {
                    // All of its ends wait for one another, and go on together.
                    Some(to) => {
                        walk.edges
                            .extend(inside.ends.iter().map(|end| (*end, to.0)));
                        next.push(to);
                    }
                    None => walk.ends.extend(inside.ends),
                }
            }
        }
        walk
    }
}

fn right(rect: &Rect) -> u32 {
    rect.x + rect.width
}

fn bottom(rect: &Rect) -> u32 {
    rect.y + rect.height
}

fn disjoint(one: &Rect, other: &Rect) -> bool {
    right(one) <= other.x
        || right(other) <= one.x
        || bottom(one) <= other.y
        || bottom(other) <= one.y
}

fn within(inner: &Rect, outer: &Rect) -> bool {
    inner.x > outer.x
        && inner.y > outer.y
        && right(inner) < right(outer)
        && bottom(inner) < bottom(outer)
}

/// The rectangle that a piece of a line covers.
fn piece(ends: &[Point]) -> Rect {
    let [from, to] = ends else {
        panic!("two ends, not {ends:?}");
    };
    assert!(
        (from.x == to.x) != (from.y == to.y),
        "{ends:?} is not straight"
    );
    Rect {
        x: from.x.min(to.x),
        y: from.y.min(to.y),
        width: from.x.abs_diff(to.x),
        height: from.y.abs_diff(to.y),
    }
}

/// The two lines have a point in common that is an end of neither.
fn cross(one: &Rect, other: &Rect) -> bool {
    let crosses = |flat: &Rect, high: &Rect| {
        flat.height == 0
            && high.width == 0
            && flat.x < high.x
            && high.x < right(flat)
            && high.y < flat.y
            && flat.y < bottom(high)
    };
    crosses(one, other) || crosses(other, one)
}

/// Everything that holds for every picture.
fn check(definition: &Definition) {
    let layout = of(definition);
    let whole = Rect {
        x: 0,
        y: 0,
        width: layout.width,
        height: layout.height,
    };

    // A box for each node, and one for each hook.
    let nodes = (0..definition.nodes.len()).map(|at| Part::Node(NodeIndex(at)));
    let hooks = Hook::ALL
        .iter()
        .filter(|hook| definition.hook(**hook).is_some());
    let expected: Vec<Part> = nodes.chain(hooks.map(|hook| Part::Hook(*hook))).collect();
    let parts: Vec<Part> = layout.boxes.iter().map(|placed| placed.part).collect();
    assert_eq!(parts, expected);
    for (at, node) in definition.nodes.iter().enumerate() {
        assert_eq!(layout.boxes[at].label.title, node.name);
        assert_eq!(layout.boxes[at].asks, node.step.is_none());
    }
    for (at, placed) in layout.boxes.iter().enumerate() {
        assert!(within(&placed.rect, &whole), "{placed:?}");
        assert!(placed.label.text.chars().count() as u32 * 8 <= placed.rect.width - 24);
        for other in &layout.boxes[at + 1..] {
            assert!(disjoint(&placed.rect, &other.rect), "{placed:?} {other:?}");
        }
    }

    // A frame for each expand, around what is inside it.
    let mut openers = BTreeSet::new();
    for frame in &layout.frames {
        assert!(openers.insert(frame.opener));
        let Edge::Expand { to, .. } = &definition.node(frame.opener).next else {
            panic!("{frame:?}");
        };
        let inside = Walk::from(definition, to.node).seen;
        assert_eq!(BTreeSet::from_iter(frame.nodes.clone()), inside);
        assert_eq!(frame.nodes.start, to.node.0);
        for (at, placed) in layout.boxes.iter().enumerate() {
            match inside.contains(&at) {
                true => assert!(within(&placed.rect, &frame.rect), "{frame:?} {placed:?}"),
                false => assert!(disjoint(&placed.rect, &frame.rect), "{frame:?} {placed:?}"),
            }
        }
        for other in layout.frames.iter().filter(|other| *other != frame) {
            let nested = within(&other.rect, &frame.rect) || within(&frame.rect, &other.rect);
            assert!(
                nested || disjoint(&frame.rect, &other.rect),
                "{frame:?} {other:?}"
            );
        }
        assert!(within(&frame.rect, &whole));
    }
    let is_expand = |at: &NodeIndex| matches!(definition.node(*at).next, Edge::Expand { .. });
    let expands = (0..definition.nodes.len()).map(NodeIndex).filter(is_expand);
    assert_eq!(openers, expands.collect());

    // A line for each edge.
    let drawn: Vec<(usize, usize)> = layout.lines.iter().map(|it| (it.from.0, it.to.0)).collect();
    let once: BTreeSet<_> = drawn.iter().copied().collect();
    assert_eq!(once.len(), drawn.len(), "twice: {drawn:?}");
    assert_eq!(once, Walk::from(definition, NodeIndex(0)).edges);
    let pieces: Vec<Vec<Rect>> = layout
        .lines
        .iter()
        .map(|line| line.points.windows(2).map(piece).collect())
        .collect();
    for (at, line) in layout.lines.iter().enumerate() {
        let (from, to) = (
            &layout.boxes[line.from.0].rect,
            &layout.boxes[line.to.0].rect,
        );
        let begins = Point {
            x: right(from),
            y: from.y + from.height / 2,
        };
        let ends = Point {
            x: to.x,
            y: to.y + to.height / 2,
        };
        assert_eq!(
            (line.points.first(), line.points.last()),
            (Some(&begins), Some(&ends))
        );
        for step in line.points.windows(2) {
            assert!(step[0].x <= step[1].x, "it goes back: {line:?}");
        }
        for piece in &pieces[at] {
            assert!(within(piece, &whole));
            for frame in &layout.frames {
                let inside = [line.from.0, line.to.0].map(|end| frame.nodes.contains(&end));
                assert!(
                    inside != [false; 2] || disjoint(piece, &frame.rect),
                    "{line:?} {frame:?}"
                );
            }
            for (other, placed) in layout.boxes.iter().enumerate() {
                // A piece touches the two boxes that its line joins, at the line's ends.
                let joins = [line.from.0, line.to.0].contains(&other);
                let free = disjoint(piece, &placed.rect) && !in_the_way(piece, &placed.rect);
                let apart = right(piece) < placed.rect.x
                    || right(&placed.rect) < piece.x
                    || bottom(piece) < placed.rect.y
                    || bottom(&placed.rect) < piece.y;
                assert!(apart || joins && free, "{line:?} {placed:?}");
            }
            for (other, with) in layout.lines[..at].iter().enumerate() {
                if with.from == line.from || with.to == line.to {
                    continue;
                }
                let crossed = pieces[other].iter().find(|other| cross(piece, other));
                assert_eq!(crossed, None, "{line:?} {with:?}");
            }
        }
        if let Some((label, place)) = &line.label {
            let columns: usize = label
                .text
                .chars()
                .map(|it| 1 + usize::from(!it.is_ascii()))
                .sum();
            let width = columns as u32 * 7;
            let rect = Rect {
                x: place.x,
                y: place.y - 18,
                width,
                height: 16,
            };
            assert!(right(&rect) <= to.x, "{label:?}");
            assert!(
                layout
                    .boxes
                    .iter()
                    .all(|placed| disjoint(&rect, &placed.rect))
            );
            for piece in pieces.iter().flatten() {
                assert!(!in_the_way(piece, &rect), "{label:?} {piece:?}");
            }
        }
    }
    // Its conditions are at the edges that leave it.
    for (at, node) in definition.nodes.iter().enumerate() {
        let of_node = layout.lines.iter().filter(|line| line.from.0 == at);
        let labels: Vec<&str> = of_node
            .filter_map(|line| Some(line.label.as_ref()?.0.title.as_str()))
            .collect();
        match &node.next {
            Edge::Divert { cases, .. } => {
                let cases = cases.iter().map(|case| case.when.as_str());
                assert_eq!(labels, cases.chain(["otherwise"]).collect::<Vec<_>>());
            }
            _ => assert!(labels.is_empty()),
        }
    }
}

/// A line runs through a rectangle, or along its side.
fn in_the_way(piece: &Rect, rect: &Rect) -> bool {
    let through = |from: u32, to: u32, low: u32, high: u32| from < high && low < to;
    match piece.height {
        0 => {
            (rect.y..=bottom(rect)).contains(&piece.y)
                && through(piece.x, right(piece), rect.x, right(rect))
        }
        _ => {
            (rect.x..=right(rect)).contains(&piece.x)
                && through(piece.y, bottom(piece), rect.y, bottom(rect))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pipeline_has_a_picture_with_all_of_it_once_and_nothing_in_the_way(
        definition in properties::definition(),
        hooks in prop::collection::vec(any::<bool>(), 3),
    ) {
        let mut definition = definition;
        let step = definition.nodes[0].step.clone();
        definition.on_halt = step.clone().filter(|_| hooks[0]);
        definition.on_complete = step.clone().filter(|_| hooks[1]);
        definition.on_wait = step.filter(|_| hooks[2]);
        check(&definition);
    }

    #[test]
    fn a_graph_that_no_pipeline_has_is_not_drawn_and_harms_nobody(
        definition in properties::definition(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4),
    ) {
        let mut definition = definition;
        let nodes = definition.nodes.len();
        for (at, to) in damages {
            // An edge may lead anywhere ahead, as far as a stored definition is trusted.
            let at = at.index(nodes);
            let node = NodeIndex(at + 1 + to.index(nodes));
            match &mut definition.nodes[at].next {
                Edge::Chain(to) | Edge::Converge(to) => to.node = node,
                Edge::Dampen(to) => *to = node,
                Edge::Divert { otherwise, .. } => otherwise.node = node,
                Edge::Divide { paths, .. } => paths[0].node = node,
                Edge::Expand { to, .. } => to.node = node,
                Edge::End => continue,
            }
        }
        if let Some(layout) = Layout::of(&definition) {
            prop_assert_eq!(layout.boxes.len(), nodes);
        }
    }
}

fn range(layout: &Layout, frame: usize) -> Range<usize> {
    layout.frames[frame].nodes.clone()
}

#[test]
fn a_chain_is_a_straight_row() {
    let definition = built(Pipeline::named("P").start("A").chain("B").chain("C"));
    let layout = of(&definition);
    check(&definition);
    assert!(layout.lines.iter().all(|line| line.points.len() == 2));
    assert!(
        layout
            .boxes
            .iter()
            .all(|placed| placed.rect.y == layout.boxes[0].rect.y)
    );
    assert_eq!(
        layout.height,
        layout.boxes[0].rect.height + 2 * layout.boxes[0].rect.y
    );
}

#[test]
fn the_paths_of_a_divide_are_a_stack_whose_middle_goes_straight_on() {
    let paths = [Path::to("B"), Path::to("C").chain("D"), Path::to("E")];
    let definition = built(Pipeline::named("P").start("A").divide(paths).combine("F"));
    check(&definition);
    let layout = of(&definition);
    let bent = |from: usize, to: usize| {
        let joins = |line: &&Line| (line.from.0, line.to.0) == (from, to);
        layout
            .lines
            .iter()
            .find(joins)
            .map(|line| line.points.len() > 2)
    };
    let (a, b, c, d, e, f) = (0, 1, 2, 3, 4, 5);
    for (from, to) in [(a, c), (c, d), (d, f)] {
        assert_eq!(bent(from, to), Some(false));
    }
    for (from, to) in [(a, b), (b, f), (a, e), (e, f)] {
        assert_eq!(bent(from, to), Some(true));
    }
}

#[test]
fn a_divert_whose_paths_meet_later_shares_the_meeting_with_the_one_around_it() {
    let inner = || Path::to("X").divert([("x", Path::to("Y"))], "Z");
    let outer = Pipeline::named("P").start("A");
    // The inner divert has no converge of its own; it is the last path, and then the first.
    for pipeline in [
        outer
            .clone()
            .divert([("a", Path::to("B"))], inner())
            .converge("M"),
        outer.clone().divert([("a", inner())], "B").converge("M"),
        outer
            .divert([("a", inner().converge("N"))], inner().converge("N"))
            .converge("M"),
    ] {
        check(&built(pipeline));
    }
}

#[test]
fn a_fan_out_that_never_comes_together_goes_on_where_the_one_around_it_does() {
    let open = || Path::to("B").divide([Path::to("C"), Path::to("D").expand("E")]);
    let pipeline = Pipeline::named("P").start("A").expand("X");
    for pipeline in [
        pipeline
            .clone()
            .divide([open(), open()])
            .combine("F")
            .collapse("G"),
        pipeline
            .clone()
            .divert([("b", open())], open())
            .converge("F")
            .collapse("G"),
        pipeline.clone().divide([open(), open()]),
        pipeline.expand("Y").expand("Z"),
    ] {
        check(&built(pipeline));
    }
}

#[test]
fn a_frame_knows_when_an_element_is_done() {
    let of_pipeline = |pipeline: Pipeline| {
        let definition = built(pipeline);
        check(&definition);
        of(&definition)
    };
    let start = || Pipeline::named("P").start("A").expand("B");
    let node = |at| Finish::Node(NodeIndex(at));
    let layout = of_pipeline(start().chain("C").collapse("D"));
    assert_eq!(
        (range(&layout, 0), &layout.frames[0].finish),
        (1..3, &node(2))
    );
    let layout = of_pipeline(start().divide(["C", "D"].map(Path::to)));
    assert_eq!(layout.frames[0].finish, Finish::All(vec![node(2), node(3)]));
    let layout = of_pipeline(start().divert([("c", Path::to("C"))], "D"));
    assert_eq!(layout.frames[0].finish, Finish::Any(vec![node(2), node(3)]));
    let layout = of_pipeline(start().expand("C"));
    assert_eq!(layout.frames[0].finish, Finish::Unknown);
    assert_eq!((range(&layout, 0), range(&layout, 1)), (1..3, 2..3));
    assert_eq!(layout.frames[1].finish, node(2));
    let layout = of_pipeline(start().expand("C").collapse("D").collapse("E"));
    assert_eq!(layout.frames[0].finish, node(3));

    let completed = |node: NodeIndex| [0, 0, 7, 5][node.0];
    let of_both = || vec![node(2), node(3)];
    assert_eq!(node(2).count(&completed), Some(7));
    assert_eq!(Finish::All(of_both()).count(&completed), Some(5));
    assert_eq!(Finish::Any(of_both()).count(&completed), Some(12));
    assert_eq!(
        Finish::Any(vec![node(2), Finish::Unknown]).count(&completed),
        None
    );
}

#[test]
fn a_long_name_is_cut_and_its_title_is_whole() {
    let name = "a_name_as_long_as_any_may_be_".repeat(4);
    let condition = "\u{202e}<b>\u{1b}[2J".repeat(1_000);
    let definition = built(
        Pipeline::named("P")
            .start(name.as_str())
            .divert([(condition.as_str(), Path::to("B"))], "C"),
    );
    let layout = of(&definition);
    let placed = &layout.boxes[0];
    assert_eq!(placed.label.title, name);
    assert!(placed.label.text.ends_with('…') && placed.label.text.chars().count() < 30);
    let labels: Vec<_> = layout
        .lines
        .iter()
        .filter_map(|line| line.label.as_ref())
        .collect();
    let (label, _) = labels[0];
    assert_eq!(label.text, "\\u{202e}<b>\\u{1b}[2J…");
    assert!(label.title.len() < 450, "{}", label.title.len());
}

#[test]
fn a_chain_of_thousands_and_the_deepest_nesting_are_drawn() {
    let long = (0..5_000).fold(Pipeline::named("P").start("A"), |flow, _| flow.chain("A"));
    let layout = of(&built(long));
    assert_eq!((layout.boxes.len(), layout.lines.len()), (5_001, 5_000));

    let wide = Pipeline::named("P")
        .start("A")
        .divide(vec![Path::to("B"); 5_000])
        .combine("C");
    let layout = of(&built(wide));
    assert_eq!((layout.boxes.len(), layout.lines.len()), (5_002, 10_000));

    let expands = (0..64).fold(Pipeline::named("P").start("A"), |flow, _| flow.expand("A"));
    let definition = built(expands.clone());
    check(&definition);
    assert_eq!(of(&definition).frames.len(), 64);
    check(&built((0..64).fold(expands, |flow, _| flow.collapse("B"))));

    let leaf = Path::to("L").expand("E");
    for meets in [true, false] {
        let nested = (0..60).fold(leaf.clone(), |inner, _| {
            let divided = Path::to("D").divide([inner, Path::to("S")]);
            if meets { divided.combine("C") } else { divided }
        });
        check(&built(
            Pipeline::named("P")
                .start("A")
                .divide([nested])
                .combine("Z"),
        ));
        let nested = (0..60).fold(Path::to("L"), |inner, _| {
            let diverted = Path::to("D").divert([("x", inner)], "S");
            if meets {
                diverted.converge("C")
            } else {
                diverted
            }
        });
        let way = [("x", nested)];
        check(&built(
            Pipeline::named("P")
                .start("A")
                .divert(way, "B")
                .converge("Z"),
        ));
    }
}
