//! Where each part of a pipeline's graph is drawn.
//!
//! Owns: every coordinate of a picture. Transitions nest, so a picture is composed of pictures: a chain is
//! a row, a divide or a divert is a stack of rows between two lines, an expand is one frame around the
//! steps of each element. So no edge crosses another edge or a box. Never: knows the state of a node, or
//! writes a picture (`svg`). Tested in `tests/layout.rs`, also with random pipelines.
//!
//! Lengths are pixels. The text is monospace, so its width is known without a font. The work is linear in the
//! number of nodes and in the depth of the nesting, which `definition::check` bounds.

mod nest;
mod text;

use std::ops::Range;

use crate::definition::{Definition, NodeIndex};
use crate::model::Hook;

use nest::{BOX, Block, GAP, Kind, PART, Row};
pub use nest::{COUNTS, HEAD_COLUMNS, INSIDE};
pub use text::{title, width};

/// A text in this many columns.
pub fn label(text: &str, columns: usize) -> Label {
    Label {
        text: text::cut(text, columns),
        title: title(text),
    }
}

/// The space around the whole picture.
const MARGIN: u32 = 16;
/// The space between the graph and the hooks, which holds the hooks' captions.
const ABOVE_HOOKS: u32 = 48;

/// A picture of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of the whole picture.
    pub width: u32,
    /// The size of the whole picture.
    pub height: u32,
    /// A box for each node, in the order of the nodes; then one for each hook.
    pub boxes: Vec<Placed>,
    /// A frame for each expand, an outer one before those inside.
    pub frames: Vec<Frame>,
    /// A line for each edge.
    pub lines: Vec<Line>,
}

/// A part of a picture that has a state of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A step, or the wait for a person.
    Node(NodeIndex),
    /// The fan-out of the expand that leaves this node.
    Fan(NodeIndex),
    /// A hook's step.
    Hook(Hook),
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The part of the pipeline that the box shows.
    pub part: Part,
    /// The name, cut to fit and whole.
    pub label: Label,
    /// A person is asked here.
    pub asks: bool,
    /// Where it is.
    pub rect: Rect,
}

/// The frame of an expand, around the steps of each element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The node that the expand leaves.
    pub opener: NodeIndex,
    /// The nodes inside; the first is where each element's branch begins.
    pub nodes: Range<usize>,
    /// The nodes at which an element's branch ends.
    pub finish: Finish,
    /// Where it is.
    pub rect: Rect,
}

/// An edge: a line of horizontal and vertical pieces that ends in an arrow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The node that the branch comes from.
    pub from: NodeIndex,
    /// The node that it goes to.
    pub to: NodeIndex,
    /// The corners.
    pub points: Vec<Point>,
    /// The condition of a divert, and where its text begins; the line passes below it.
    pub label: Option<(Label, Point)>,
}

/// A text cut to fit, and whole up to the length that anybody would read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The text cut to fit.
    pub text: String,
    /// The whole text.
    pub title: String,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Its left side.
    pub x: u32,
    /// Its upper side.
    pub y: u32,
    /// Its size.
    pub width: u32,
    /// Its size.
    pub height: u32,
}

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// From the left.
    pub x: u32,
    /// From the top.
    pub y: u32,
}

/// How many elements of an expand are done, counted by completed steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As many elements as completed steps of this node.
    Node(NodeIndex),
    /// All paths of a divide: the slowest counts.
    All(Vec<Finish>),
    /// One of the paths of a divert: their counts add up.
    Any(Vec<Finish>),
    /// The elements end in an expand of their own, so completed steps do not count them.
    Unknown,
}

impl Finish {
    /// The number of elements that are done, if the steps count them.
    pub fn count(&self, completed: &dyn Fn(NodeIndex) -> u64) -> Option<u64> {
        let counts = |parts: &[Self]| -> Option<Vec<u64>> {
            parts.iter().map(|part| part.count(completed)).collect()
        };
        match self {
            Self::Node(node) => Some(completed(*node)),
            Self::All(paths) => counts(paths)?.into_iter().min(),
            Self::Any(paths) => Some(counts(paths)?.into_iter().sum()),
            Self::Unknown => None,
        }
    }
}

impl Layout {
    /// The picture of a definition; `None` for a graph that no pipeline has. Only a stored definition that
    /// somebody has edited can be such a graph.
    pub fn of(definition: &Definition) -> Option<Self> {
        let row = nest::read(definition)?;
        let axis = MARGIN + row.size.up;
        let mut layout = Self {
            width: row.size.width + 2 * MARGIN,
            height: axis + row.size.down + MARGIN,
            boxes: Vec::new(),
            frames: Vec::new(),
            lines: Vec::new(),
        };
        let start = Point { x: MARGIN, y: axis };
        let mut drawing = Drawing {
            definition,
            layout: &mut layout,
        };
        drawing.row(&row, start, Vec::new());
        layout.hooks(definition);
        Some(layout)
    }

    /// Adds the hooks, in a row below the graph: they belong to the run, not to a place in the graph.
    fn hooks(&mut self, definition: &Definition) {
        let mut x = MARGIN;
        for hook in Hook::ALL {
            let Some(step) = definition.hook(*hook) else {
                continue;
            };
            let y = self.height - MARGIN + ABOVE_HOOKS;
            let placed = placed(Part::Hook(*hook), step, false, x, y);
            x += placed.rect.width + GAP;
            self.boxes.push(placed);
        }
        if x > MARGIN {
            self.width = self.width.max(x - GAP + MARGIN);
            self.height += ABOVE_HOOKS + BOX;
        }
    }
}

fn placed(part: Part, name: &str, asks: bool, x: u32, y: u32) -> Placed {
    let label = Label {
        text: nest::name(name),
        title: title(name),
    };
    let rect = Rect {
        x,
        y,
        width: nest::box_width(&label.text),
        height: BOX,
    };
    Placed {
        part,
        label,
        asks,
        rect,
    }
}

/// A line that is not finished yet.
struct Open {
    from: NodeIndex,
    points: Vec<Point>,
    label: Option<(Label, Point)>,
}

impl Open {
    fn new(from: NodeIndex, at: Point) -> Self {
        Self {
            from,
            points: vec![at],
            label: None,
        }
    }

    /// Continues to a place in the same row or column.
    fn go(&mut self, to: Point) {
        if let [.., before, last] = self.points.as_slice() {
            let straight =
                (before.x == last.x && last.x == to.x) || (before.y == last.y && last.y == to.y);
            if straight {
                self.points.pop();
            }
        }
        if self.points.last() != Some(&to) {
            self.points.push(to);
        }
    }
}

struct Drawing<'a> {
    definition: &'a Definition,
    layout: &'a mut Layout,
}

impl Drawing<'_> {
    /// Draws a row from `at` on, to which the lines `open` lead; returns the lines that leave it.
    fn row(&mut self, row: &Row, mut at: Point, mut open: Vec<Open>) -> Vec<Open> {
        let mut before = None;
        for block in &row.blocks {
            at.x += block.gap(before);
            open = self.block(block, at, open);
            at.x += block.size.width;
            before = Some(block);
        }
        open
    }

    fn block(&mut self, block: &Block, at: Point, open: Vec<Open>) -> Vec<Open> {
        match &block.kind {
            Kind::Node(index) => {
                for mut line in open {
                    line.go(at);
                    let Open {
                        from,
                        points,
                        label,
                    } = line;
                    self.layout.lines.push(Line {
                        from,
                        to: *index,
                        points,
                        label,
                    });
                }
                let node = self.definition.node(*index);
                let part = Part::Node(*index);
                let placed = placed(part, &node.name, node.step.is_none(), at.x, at.y - BOX / 2);
                self.layout.boxes.push(placed);
                vec![Open::new(
                    *index,
                    Point {
                        x: at.x + block.size.width,
                        y: at.y,
                    },
                )]
            }
            Kind::Fork(paths) => {
                let lead = nest::lead(paths);
                let (parts, meets) = (at.x + PART, at.x + block.size.width);
                let mut ends = Vec::new();
                for path in paths {
                    let axis = at.y - block.size.up + path.axis;
                    let mut lines = Vec::new();
                    // The lines come from the node before: a fork is never the first in a row.
                    for from in &open {
                        let mut line = Open::new(from.from, at);
                        line.go(Point { x: parts, y: at.y });
                        line.go(Point { x: parts, y: axis });
                        let place = Point {
                            x: parts + PART,
                            y: axis,
                        };
                        line.label = path.label.clone().map(|label| (label, place));
                        lines.push(line);
                    }
                    let start = Point {
                        x: at.x + lead,
                        y: axis,
                    };
                    for mut line in self.row(&path.row, start, lines) {
                        line.go(Point { x: meets, y: axis });
                        line.go(Point { x: meets, y: at.y });
                        ends.push(line);
                    }
                }
                ends
            }
            Kind::Frame(row, finish) => {
                let opener = open.first().map_or(NodeIndex(0), |line| line.from);
                let first = self.layout.boxes.len();
                let frame = self.layout.frames.len();
                self.layout.frames.push(Frame {
                    opener,
                    nodes: first..first,
                    finish: finish.clone(),
                    rect: Rect {
                        x: at.x,
                        y: at.y - block.size.up,
                        width: block.size.width,
                        height: block.size.up + block.size.down,
                    },
                });
                // If the head makes the frame wider than its row, the row is centred.
                let side = (block.size.width - row.size.width) / 2;
                let start = Point {
                    x: at.x + side,
                    y: at.y,
                };
                let open = self.row(row, start, open);
                self.layout.frames[frame].nodes.end = self.layout.boxes.len();
                open
            }
        }
    }
}
