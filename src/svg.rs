//! A pipeline's graph as SVG, with the state of each node.
//!
//! Owns: the markup, escaped; the signs, words and classes of states. Never: decides where anything
//! is placed (`machine::layout`), or reads a run.
//!
//! A picture is embedded in a page that forbids scripts and styles within it: colours come by class
//! from a stylesheet, which is [`STYLE`] in a file of its own.

pub mod chart;
#[cfg(test)]
mod tests;
pub mod timeline;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::machine::layout::{
    COUNTS, Frame, HEAD_COLUMNS, INSIDE, Layout, Line, Part, Placed, Point, title, width,
};
use crate::number::grouped;
use crate::percent::encoded;

/// The stylesheet of pictures, light and dark.
pub const STYLE: &str = include_str!("svg.css");

/// Counts of the steps of a node, or of the elements of a fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// All of them so far.
    pub total: u64,
    /// Those that are done.
    pub completed: u64,
    /// Those that a process holds at this moment.
    pub running: u64,
    /// Those whose open attempt is not their first.
    pub retrying: u64,
    /// Those that wait for a person.
    pub waiting: u64,
    /// Those that are out of budget.
    pub failed: u64,
    /// Those of a cancelled run.
    pub cancelled: u64,
}

/// The state of a node in a word, derived from the states of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ahead,
    Queued,
    Running,
    Retrying,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl State {
    /// The worst of the visible states, as in the live view of a terminal.
    fn of(steps: &NodeState) -> Self {
        match steps {
            NodeState { total: 0, .. } => Self::Ahead,
            NodeState { failed: 1.., .. } => Self::Failed,
            NodeState { waiting: 1.., .. } => Self::Waiting,
            _ if steps.completed >= steps.total => Self::Completed,
            _ if steps.completed + steps.cancelled >= steps.total => Self::Cancelled,
            NodeState { retrying: 1.., .. } => Self::Retrying,
            NodeState { running: 1.., .. } => Self::Running,
            _ => Self::Queued,
        }
    }

    /// The sign, the word, and the class for its colour.
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Ahead => ("·", "not reached", "word"),
            Self::Queued => ("○", "queued", "busy"),
            Self::Running => ("●", "running", "busy"),
            Self::Retrying => ("↻", "retrying", "busy"),
            Self::Waiting => ("?", "waiting", "asks"),
            Self::Completed => ("✓", "completed", "good"),
            Self::Failed => ("✗", "failed", "bad"),
            Self::Cancelled => ("–", "cancelled", "word"),
        }
    }
}

impl NodeState {
    /// The counts of each kind that occurs, with a rank: the highest rank is left out first.
    fn counts(&self) -> impl Iterator<Item = (usize, State, u64)> {
        let counts = [
            (4, State::Completed, self.completed),
            (2, State::Running, self.running),
            (3, State::Retrying, self.retrying),
            (1, State::Waiting, self.waiting),
            (0, State::Failed, self.failed),
            (5, State::Cancelled, self.cancelled),
        ];
        counts.into_iter().filter(|(_, _, count)| *count > 0)
    }

    /// A sentence with all counts: `failed; of 1,000 steps 730 completed, 20 running, 2 failed`.
    fn told(&self, what: &str) -> String {
        let (_, word, _) = State::of(self).look();
        if self.total <= 1 {
            return word.to_owned();
        }
        let count =
            |(_, state, count): (_, State, _)| format!("{} {}", grouped(count), state.look().1);
        let counts: Vec<String> = self.counts().map(count).collect();
        let counts = if counts.is_empty() {
            "none has begun".to_owned()
        } else {
            counts.join(", ")
        };
        format!("{word}; of {} {what} {counts}", grouped(self.total))
    }

    /// The same as signs, in this many columns: the least important ones are left out if they do not
    /// fit.
    fn signs(&self, columns: usize) -> String {
        let of = |state: State, text: &str| {
            let (sign, _, class) = state.look();
            (
                format!("{sign} {text}"),
                format!("<tspan class=\"{class}\">{sign}</tspan> {text}"),
            )
        };
        let state = State::of(self);
        let mut counts: Vec<(usize, (String, String))> = self
            .counts()
            .map(|(rank, state, count)| (rank, of(state, &short(count))))
            .collect();
        if self.total <= 1 || counts.is_empty() {
            return of(state, state.look().1).1;
        }
        while counts.len() > 1 {
            let used: usize = counts.iter().map(|(_, (plain, _))| width(plain) + 2).sum();
            if used <= columns + 2 {
                break;
            }
            let least = counts.iter().map(|(rank, _)| *rank).max();
            counts.retain(|(rank, _)| Some(*rank) != least);
        }
        let counts: Vec<String> = counts.into_iter().map(|(_, (_, marked))| marked).collect();
        counts.join(APART)
    }
}

/// A picture, and what is known about its parts.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Its name, for people who cannot see it.
    pub title: &'a str,
    /// The position of everything.
    pub layout: &'a Layout,
    /// The states of its parts; a part without an entry shows none.
    pub states: &'a BTreeMap<Part, NodeState>,
    /// The address of every node, with `{}` in place of its name. Without it no node is a link.
    pub link: Option<&'a str>,
    /// The stylesheet, for a picture in a file of its own.
    pub style: Option<&'a str>,
}

impl Picture<'_> {
    /// The picture as text.
    pub fn svg(&self) -> String {
        let Layout { width, height, .. } = self.layout;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" role=\"group\" aria-label=\"{}\" \
             width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n",
            escaped(self.title),
        );
        if let Some(style) = self.style {
            let _ = writeln!(svg, "<title>{}</title>", escaped(self.title));
            let _ = writeln!(svg, "<style>\n{style}</style>");
            let _ = writeln!(
                svg,
                "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>"
            );
        }
        svg.push_str("<defs>");
        for tip in TIPS {
            let _ = write!(
                svg,
                "<marker id=\"{tip}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
                 markerHeight=\"8\" markerUnits=\"userSpaceOnUse\"><path class=\"{tip}\" d=\"M0 0L8 4L0 8z\"/></marker>"
            );
        }
        svg.push_str("</defs>\n");
        for frame in &self.layout.frames {
            self.frame(frame, &mut svg);
        }
        for went in [false, true] {
            // The edges that branches have taken are drawn on top of the others.
            let lines = self.layout.lines.iter();
            for line in lines.filter(|line| self.went(line) == went) {
                edge(line, went, &mut svg);
            }
        }
        for (label, at) in self
            .layout
            .lines
            .iter()
            .filter_map(|line| line.label.as_ref())
        {
            let _ = writeln!(
                svg,
                "<text class=\"when\" x=\"{}\" y=\"{}\"><title>{}</title>{}</text>",
                at.x,
                at.y - 6,
                escaped(&label.title),
                escaped(&label.text),
            );
        }
        for placed in &self.layout.boxes {
            self.placed(placed, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn state(&self, part: Part) -> Option<&NodeState> {
        self.states.get(&part)
    }

    /// A branch has taken this edge.
    fn went(&self, line: &Line) -> bool {
        let state = |node| self.state(Part::Node(node));
        state(line.from).is_some_and(|from| from.completed > 0)
            && state(line.to).is_some_and(|to| to.total > 0)
    }

    fn frame(&self, frame: &Frame, svg: &mut String) {
        let rect = frame.rect;
        let (left, right) = (rect.x + INSIDE, rect.x + rect.width - INSIDE);
        let state = self.state(Part::Fan(frame.opener));
        let class = state.map_or(String::new(), |state| format!(" {}", class(state)));
        let told = match state {
            Some(state) => format!("expand: {}", state.told("elements")),
            None => "expand: once for each element".to_owned(),
        };
        let head = match state {
            Some(NodeState {
                total: total @ 1..10_000_000,
                ..
            }) => format!("× {}", grouped(*total)),
            Some(NodeState {
                total: total @ 1.., ..
            }) => format!("× {}", short(*total)),
            _ => "× expand".to_owned(),
        };
        let _ = writeln!(
            svg,
            "<g class=\"fan{class}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>\
             <rect class=\"frame\" x=\"{1}\" y=\"{2}\" width=\"{3}\" height=\"{4}\" rx=\"10\"/>\
             <text class=\"name\" x=\"{left}\" y=\"{5}\">{head}</text>",
            escaped(&told),
            rect.x,
            rect.y,
            rect.width,
            rect.height,
            rect.y + 20,
        );
        if let Some(state) = state {
            let columns = HEAD_COLUMNS.saturating_sub(width(&head) + 1);
            let signs = state.signs(columns);
            let _ = writeln!(
                svg,
                "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{signs}</text>",
                rect.y + 20,
            );
            if state.total > 0 {
                let room = right - left;
                let done = u128::from(state.completed.min(state.total)) * u128::from(room);
                let done = done / u128::from(state.total);
                for (class, width) in [("track", u128::from(room)), ("done", done)] {
                    let _ = writeln!(
                        svg,
                        "<rect class=\"{class}\" x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"4\" rx=\"2\"/>",
                        rect.y + 27,
                    );
                }
            }
        }
        svg.push_str("</g>\n");
    }

    fn placed(&self, placed: &Placed, svg: &mut String) {
        let (rect, state) = (placed.rect, self.state(placed.part));
        let (caption, node) = match placed.part {
            Part::Hook(hook) => (Some(hook.via().as_str()), hook.node()),
            _ => (None, placed.label.title.as_str()),
        };
        let mut told = placed.label.title.clone();
        if placed.asks {
            told.push_str(", which asks a person");
        }
        if let Some(caption) = caption {
            let _ = write!(told, ", the step of {caption}");
        }
        if let Some(state) = state {
            let _ = write!(told, ": {}", state.told("steps"));
        }
        let told = escaped(&told);
        let mut class_of = "node".to_owned();
        if let Some(state) = state {
            let _ = write!(class_of, " {}", class(state));
        }
        // The title names a link: a separate label would have to repeat the counts in the title.
        let (open, close) = match self.link {
            Some(link) => {
                let address = link.replace("{}", &encoded(node));
                (format!("a href=\"{}\"", markup(&address)), "a")
            }
            None => (format!("g role=\"img\" aria-label=\"{told}\""), "g"),
        };
        let round = if placed.asks { rect.height / 2 } else { 6 };
        let _ = writeln!(
            svg,
            "<{open} class=\"{class_of}\"><title>{told}</title>\
             <rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{round}\"/>",
            rect.x, rect.y, rect.width, rect.height,
        );
        let left = rect.x + INSIDE + if placed.asks { 4 } else { 0 };
        let name_at = rect.y + if state.is_some() { 19 } else { 27 };
        let name = escaped(&placed.label.text);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{left}\" y=\"{name_at}\">{name}</text>"
        );
        if let Some(state) = state {
            let signs = state.signs(COUNTS);
            let at = rect.y + 35;
            let _ = write!(
                svg,
                "<text class=\"state\" x=\"{left}\" y=\"{at}\">{signs}</text>"
            );
        }
        if let Some(caption) = caption {
            let at = rect.y - 8;
            let _ = write!(
                svg,
                "<text class=\"caption\" x=\"{}\" y=\"{at}\">{caption}</text>",
                rect.x
            );
        }
        let _ = writeln!(svg, "</{close}>");
    }
}

/// The gap between two counts: two spaces, both of which markup keeps.
const APART: &str = "\u{a0} ";

/// The arrows of an edge that no branch has taken yet, and of one that a branch has taken.
const TIPS: [&str; 2] = ["tip", "went-tip"];

/// The class of a state.
fn class(state: &NodeState) -> String {
    match State::of(state) {
        State::Ahead => "is-ahead".to_owned(),
        state => format!("is-{}", state.look().1),
    }
}

/// The radius of a corner.
const ROUND: u32 = 8;

/// A line with round corners.
fn edge(line: &Line, went: bool, svg: &mut String) {
    let mut path = String::new();
    let last = line.points.len().saturating_sub(1);
    for (at, point) in line.points.iter().enumerate() {
        if at == 0 {
            let _ = write!(path, "M{} {}", point.x, point.y);
        } else if at == last {
            // The arrow's tip ends where the box begins, and covers the line's end.
            let _ = write!(path, "L{} {}", point.x.saturating_sub(1), point.y);
        } else {
            let (before, after) = (line.points[at - 1], line.points[at + 1]);
            let (from, to) = (towards(*point, before), towards(*point, after));
            let corner = format!("Q{} {} {} {}", point.x, point.y, to.x, to.y);
            let _ = write!(path, "L{} {}{corner}", from.x, from.y);
        }
    }
    let class = if went { "edge went" } else { "edge" };
    let tip = TIPS[usize::from(went)];
    let _ = writeln!(
        svg,
        "<path class=\"{class}\" d=\"{path}\" marker-end=\"url(#{tip})\"/>"
    );
}

/// The point one corner's radius away from a corner, or half of the way to the next corner.
fn towards(corner: Point, other: Point) -> Point {
    let step = |from: u32, to: u32| {
        let by = ROUND.min(from.abs_diff(to) / 2);
        if to > from { from + by } else { from - by }
    };
    Point {
        x: step(corner.x, other.x),
        y: step(corner.y, other.y),
    }
}

/// Anybody's text, made visible and escaped for markup.
fn escaped(text: &str) -> String {
    markup(&title(text))
}

/// Text, escaped for markup.
fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            char => safe.push(char),
        }
    }
    safe
}

/// A number in four letters, rounded down: nothing looks done before it is done.
fn short(number: u64) -> String {
    let mut units = ["", "k", "M", "G", "T", "P", "E"].into_iter();
    let (mut whole, mut rest, mut unit) = (number, 0, units.next());
    while whole >= 1_000 {
        (rest, whole) = (whole % 1_000, whole / 1_000);
        unit = units.next();
    }
    let unit = unit.unwrap_or_default();
    match rest / 100 {
        tenths @ 1.. if whole < 10 => format!("{whole}.{tenths}{unit}"),
        _ => format!("{whole}{unit}"),
    }
}
