//! How a graph nests: rows of blocks, where a fork contains paths and a frame contains a row; and the
//! size of each of them.
//!
//! Owns: reading the nesting from a definition, and the sizes. Never: places anything.
//!
//! Nodes are numbered depth first in writing order, so reading them in the order in which the graph is
//! traversed gives the numbers 0, 1, 2, … without a gap. A stored definition that somebody has edited
//! may be another graph; it gives `None`.

use crate::definition::check::{MAX_DEPTH, MAX_NODES};
use crate::definition::graph::Case;
use crate::definition::{Definition, Edge, NodeIndex, Target, Then};

use super::text::{cut, title, width};
use super::{Finish, Label};

/// The columns of a name and of a condition; longer texts are cut.
const NAME: usize = 28;
const CONDITION: usize = 24;
/// The columns for the counts of a node, below its name.
pub const COUNTS: usize = 22;
/// The least columns of a frame's head.
pub const HEAD_COLUMNS: usize = 36;
/// The width of a letter of a name, and of a smaller one, in pixels: no monospace font of 13 and 11 pixels has wider
/// ones.
const LETTER: u32 = 8;
const SMALL: u32 = 7;

/// The height of a box.
pub const BOX: u32 = 44;
/// The space between a box's side and its name, and between a frame's side and its head.
pub const INSIDE: u32 = 12;
/// The length of an edge that joins two neighbours.
pub const GAP: u32 = 36;
/// The distance from a node to the line at which its paths part, and from the longest path to the line at
/// which they meet.
pub const PART: u32 = 16;
/// The distance from the line at which paths part to their first boxes, and from the line at which they meet
/// to the next box.
pub const LEAD: u32 = 28;
/// The space between a condition and the line before it and the box after it.
const AROUND: u32 = 8;
/// The space between two paths.
const BETWEEN: u32 = 20;
/// The space between a frame's head and the boxes inside, and between its sides and these boxes.
pub const HEAD: u32 = 40;
pub const SIDE: u32 = 18;
/// The paths of a fork are not bent for less than this.
const BEND: u32 = 16;

/// Boxes and their containers, one after the other.
pub struct Row {
    pub blocks: Vec<Block>,
    pub size: Size,
}

/// The space of a block: to the right of where it begins, above the line on which it stands, and below that
/// line.
#[derive(Clone, Copy, Default)]
pub struct Size {
    pub width: u32,
    pub up: u32,
    pub down: u32,
}

/// One part of a row.
pub struct Block {
    pub kind: Kind,
    pub size: Size,
}

pub enum Kind {
    /// A box.
    Node(NodeIndex),
    /// The paths of a divide or a divert, with the lines that join them to the node before and the node after.
    Fork(Vec<Path>),
    /// The steps that an expand runs for each element; and those whose completion ends an element's branch.
    Frame(Row, Finish),
}

/// One path of a fork.
pub struct Path {
    pub row: Row,
    /// The condition of a divert.
    pub label: Option<Label>,
    /// The distance from the top of the fork to the line on which the path stands.
    pub axis: u32,
}

impl Block {
    /// The space before it.
    pub fn gap(&self, before: Option<&Block>) -> u32 {
        match (before.map(|block| &block.kind), &self.kind) {
            (None, _) | (_, Kind::Fork(_)) => 0,
            (Some(Kind::Fork(_)), _) => LEAD,
            _ => GAP,
        }
    }
}

/// The width of a box of that name.
pub fn box_width(name: &str) -> u32 {
    let name = width(name) as u32 * LETTER;
    name.max(COUNTS as u32 * SMALL) + 2 * INSIDE
}

/// A node's or a step's name, as a box shows it.
pub fn name(text: &str) -> String {
    cut(text, NAME)
}

/// The nesting of a whole definition.
pub fn read(definition: &Definition) -> Option<Row> {
    if definition.nodes.len() > MAX_NODES {
        return None;
    }
    let mut meets = vec![0; definition.nodes.len()];
    for node in &definition.nodes {
        if let Edge::Converge(to)
        | Edge::Divide {
            then: Then::Converge(to),
            ..
        }
        | Edge::Expand {
            then: Then::Converge(to),
            ..
        } = &node.next
        {
            *meets.get_mut(to.node.0)? += 1;
        }
    }
    let mut reader = Reader {
        definition,
        meets,
        next: 0,
    };
    match reader.row(NodeIndex(0), 0)? {
        (row, None) if reader.next == definition.nodes.len() => Some(row),
        _ => None,
    }
}

struct Reader<'a> {
    definition: &'a Definition,
    /// How many ends of diverted paths lead to each node.
    meets: Vec<usize>,
    /// The number of the node that comes next.
    next: usize,
}

/// The node at which a row and other paths meet, and how many ends of the row lead there.
type Exit = Option<(NodeIndex, usize)>;

impl Reader<'_> {
    /// The row that begins at `at`.
    fn row(&mut self, mut at: NodeIndex, depth: usize) -> Option<(Row, Exit)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let definition = self.definition;
        let mut blocks = Vec::new();
        let exit = loop {
            let node = definition.nodes.get(at.0)?;
            if std::mem::replace(&mut self.next, at.0 + 1) != at.0 {
                return None;
            }
            blocks.push(of_node(at, &node.name));
            let then = match &node.next {
                Edge::End => break None,
                Edge::Converge(to) => break Some((to.node, 1)),
                Edge::Chain(to) => {
                    at = to.node;
                    continue;
                }
                Edge::Dampen(to) => {
                    at = *to;
                    continue;
                }
                Edge::Divert { cases, otherwise } => {
                    let (fork, exit) = self.divert(cases, otherwise, depth)?;
                    blocks.push(fork);
                    match exit {
                        // The innermost divert that contains all ends that lead there is the one whose paths
                        // meet there.
                        Some((to, ends)) if self.meets.get(to.0) == Some(&ends) => at = to,
                        exit => break exit,
                    }
                    continue;
                }
                Edge::Divide { paths, then } => {
                    let paths = paths.iter().map(|path| self.inner(path, depth));
                    let paths = paths.map(|row| Some((row?, None)));
                    blocks.push(of_fork(paths.collect::<Option<_>>()?)?);
                    then
                }
                Edge::Expand { to, then } => {
                    blocks.push(of_frame(self.inner(to, depth)?, self.definition));
                    then
                }
            };
            match then {
                Then::End => break None,
                Then::Converge(to) => break Some((to.node, 1)),
                Then::Combine(to) | Then::Collapse(to) => at = to.node,
            }
        };
        Some((of_row(blocks), exit))
    }

    /// A row inside a fan-out; no diverted path leads out of it.
    fn inner(&mut self, to: &Target, depth: usize) -> Option<Row> {
        match self.row(to.node, depth + 1)? {
            (row, None) => Some(row),
            _ => None,
        }
    }

    fn divert(
        &mut self,
        cases: &[Case],
        otherwise: &Target,
        depth: usize,
    ) -> Option<(Block, Exit)> {
        let mut ways = Vec::new();
        let mut exits: Vec<Exit> = Vec::new();
        let named = cases.iter().map(|case| (case.when.as_str(), &case.to));
        for (when, to) in named.chain([("otherwise", otherwise)]) {
            let (row, exit) = self.row(to.node, depth + 1)?;
            let label = Label {
                text: cut(when, CONDITION),
                title: title(when),
            };
            ways.push((row, Some(label)));
            exits.push(exit);
        }
        let target = |exit: &Exit| exit.map(|(to, _)| to);
        let meeting = target(exits.first()?);
        if exits.iter().any(|exit| target(exit) != meeting) {
            return None;
        }
        let ends = exits.iter().flatten().map(|(_, ends)| ends).sum();
        Some((of_fork(ways)?, meeting.map(|to| (to, ends))))
    }
}

fn of_node(at: NodeIndex, of: &str) -> Block {
    let size = Size {
        width: box_width(&name(of)),
        up: BOX / 2,
        down: BOX / 2,
    };
    Block {
        kind: Kind::Node(at),
        size,
    }
}

fn of_row(blocks: Vec<Block>) -> Row {
    let mut size = Size::default();
    let mut before = None;
    for block in &blocks {
        size.width += block.gap(before) + block.size.width;
        size.up = size.up.max(block.size.up);
        size.down = size.down.max(block.size.down);
        before = Some(block);
    }
    Row { blocks, size }
}

/// The width of the lines before the first boxes of a fork, which is the width of its longest condition.
pub fn lead(paths: &[Path]) -> u32 {
    let labels = paths.iter().filter_map(|path| path.label.as_ref());
    let widest = labels
        .map(|label| width(&label.text) as u32 * SMALL + 2 * AROUND)
        .max();
    PART + LEAD + widest.unwrap_or_default()
}

fn of_fork(ways: Vec<(Row, Option<Label>)>) -> Option<Block> {
    let mut paths = Vec::new();
    let (mut height, mut widest) = (0, 0);
    for (row, label) in ways {
        let between = if height == 0 { 0 } else { BETWEEN };
        let axis = height + between + row.size.up;
        height = axis + row.size.down;
        widest = widest.max(row.size.width);
        paths.push(Path { row, label, axis });
    }
    let middle = (paths.first()?.axis + paths.last()?.axis) / 2;
    let nearest = paths
        .iter()
        .map(|path| path.axis)
        .min_by_key(|axis| axis.abs_diff(middle))?;
    let straight = paths.len() % 2 == 1 || nearest.abs_diff(middle) < BEND;
    let up = if straight { nearest } else { middle };
    let size = Size {
        width: lead(&paths) + widest + PART,
        up,
        down: height - up,
    };
    Some(Block {
        kind: Kind::Fork(paths),
        size,
    })
}

fn of_frame(row: Row, definition: &Definition) -> Block {
    let size = Size {
        width: (row.size.width + 2 * SIDE).max(HEAD_COLUMNS as u32 * SMALL + 2 * INSIDE),
        up: row.size.up + HEAD,
        down: row.size.down + SIDE,
    };
    let finish = finish(&row, definition);
    Block {
        kind: Kind::Frame(row, finish),
        size,
    }
}

/// The nodes whose completion ends a row.
fn finish(row: &Row, definition: &Definition) -> Finish {
    let [.., before, last] = row.blocks.as_slice() else {
        return match row.blocks.first().map(|block| &block.kind) {
            Some(Kind::Node(node)) => Finish::Node(*node),
            _ => Finish::Unknown,
        };
    };
    match (&before.kind, &last.kind) {
        (_, Kind::Node(node)) => Finish::Node(*node),
        (Kind::Node(opener), Kind::Fork(paths)) => {
            let paths = paths.iter().map(|path| finish(&path.row, definition));
            match definition.node(*opener).next {
                Edge::Divert { .. } => Finish::Any(paths.collect()),
                _ => Finish::All(paths.collect()),
            }
        }
        _ => Finish::Unknown,
    }
}
