//! The live view of one run: what `run` shows while it waits.
//!
//! Owns: turning a definition and its progress into lines, and drawing them over the last
//! ones. Never: asks the database.

use std::io::Write;
use std::time::Duration;

use crate::definition::{Definition, Edge, NodeIndex, Then};
use crate::store::query::NodeProgress;

/// Frames of the mark before a node that runs.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Cells of a progress bar.
const BAR: usize = 24;

/// The branches of a pipeline as an indented list.
pub struct Tree {
    rows: Vec<Row>,
    width: usize,
}

struct Row {
    node: String,
    label: String,
    depth: usize,
}

impl Tree {
    /// The tree of a definition: what runs inside a fan-out or on a path is indented.
    pub fn of(definition: &Definition) -> Self {
        let mut rows = Vec::new();
        let mut seen = vec![false; definition.nodes.len()];
        walk(definition, NodeIndex(0), 0, "", &mut seen, &mut rows);
        let width = rows
            .iter()
            .map(|row| row.depth * 2 + row.label.chars().count());
        let width = width.max().unwrap_or_default();
        Self { rows, width }
    }

    /// The first row of a node that has begun and is not done, or the one after the last that is. Paths
    /// that are not taken never begin.
    pub fn first_open(&self, progress: &[NodeProgress]) -> usize {
        let of = |row: &Row| progress.iter().find(|found| found.node == row.node);
        let open = |row: &Row| of(row).is_some_and(|node| node.completed < node.total);
        let open_at = self.rows.iter().position(open);
        let last = self.rows.iter().rposition(|row| of(row).is_some());
        open_at.unwrap_or_else(|| last.map_or(0, |last| last + 1))
    }

    /// One line per node.
    pub fn lines(&self, progress: &[NodeProgress], frame: usize, style: Style) -> Vec<String> {
        let line = |row: &Row| {
            let found = progress.iter().find(|found| found.node == row.node);
            let (mark, rest) = match found {
                None => (style.dim("·"), String::new()),
                Some(node) => (mark(node, frame, style), count(node, style)),
            };
            let indent = "  ".repeat(row.depth);
            let label = match found {
                None => style.dim(&row.label),
                Some(_) => row.label.clone(),
            };
            let used = row.depth * 2 + row.label.chars().count();
            let pad = " ".repeat(self.width.saturating_sub(used) + 2);
            format!(" {mark} {indent}{label}{pad}{rest}")
        };
        self.rows.iter().map(line).collect()
    }
}

fn walk(
    definition: &Definition,
    at: NodeIndex,
    depth: usize,
    via: &str,
    seen: &mut [bool],
    rows: &mut Vec<Row>,
) {
    // Diverted paths meet again: the node where they do is listed once.
    if std::mem::replace(&mut seen[at.0], true) {
        return;
    }
    let node = definition.node(at);
    rows.push(Row {
        node: node.name.clone(),
        label: match via {
            "" => node.name.clone(),
            via => format!("{via} {}", node.name),
        },
        depth,
    });
    let mut go = |to: NodeIndex, deeper: usize, via: &str| {
        walk(definition, to, depth + deeper, via, seen, rows);
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

fn mark(node: &NodeProgress, frame: usize, style: Style) -> String {
    if node.failed > 0 {
        style.red("✗")
    } else if node.completed == node.total {
        style.green("✓")
    } else if node.running > 0 {
        style.yellow(SPINNER[frame % SPINNER.len()])
    } else {
        style.yellow("○")
    }
}

fn count(node: &NodeProgress, style: Style) -> String {
    if node.total <= 1 && node.failed == 0 {
        return String::new();
    }
    let done = (node.completed as usize * BAR) / (node.total as usize).max(1);
    let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR - done));
    let mut text = format!("{} {}/{}", style.dim(&bar), node.completed, node.total);
    if node.failed > 0 {
        text.push_str(&style.red(&format!("  {} failed", node.failed)));
    }
    text
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// False: plain text.
    pub colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Something went well.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Something failed.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Something is under way.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Something to look at second.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Something to look at first.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// One picture of a run.
pub struct Frame {
    /// Above all.
    pub title: String,
    /// One line per node.
    pub rows: Vec<String>,
    /// The row that has to be seen where not all can.
    pub first: usize,
    /// Below all.
    pub last: String,
    /// It stays, whole.
    pub ended: bool,
}

impl Frame {
    /// The lines that a terminal of so many rows and columns shows. A picture that is drawn over it must fit: a
    /// cursor goes up to its first row, and a line that is too long takes two.
    fn fit(&self, rows: usize, columns: usize) -> Vec<String> {
        // The title, the last line, and where the cursor waits.
        let room = match self.ended {
            true => self.rows.len(),
            false => rows.saturating_sub(3).min(self.rows.len()),
        };
        // One that is done stays in sight.
        let from = self.first.saturating_sub(1).min(self.rows.len() - room);
        let shown = self.rows[from..from + room].iter();
        let lines = std::iter::once(&self.title).chain(shown);
        let lines = lines.chain(std::iter::once(&self.last));
        match self.ended {
            true => lines.cloned().collect(),
            false => lines.map(|line| cut(line, columns)).collect(),
        }
    }
}

/// As much of a line as fits, with the colours in it.
fn cut(line: &str, columns: usize) -> String {
    let (mut text, mut used, mut colour) = (String::new(), 0, false);
    for letter in line.chars() {
        // A colour is `ESC [ … m`.
        colour |= letter == '\x1b';
        if colour || used < columns {
            text.push(letter);
        }
        used += usize::from(!colour);
        colour &= letter != 'm';
    }
    text
}

/// Draws frames over each other.
#[derive(Default)]
pub struct Screen {
    drawn: usize,
}

impl Screen {
    /// Replaces the last frame by this one. A terminal that went away is no error of the run.
    pub fn draw(&mut self, frame: &Frame) {
        let size = terminal_size::terminal_size_of(std::io::stderr());
        // One that does not tell, or says zero, is as small as they come.
        let (columns, rows) = match size {
            Some((width, height)) if width.0 > 0 && height.0 > 0 => (width.0, height.0),
            _ => (80, 24),
        };
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        let lines = frame.fit(rows.into(), columns.into());
        for line in &lines {
            // The last frame's line may have been longer. Cleared before, because after a line that
            // is as wide as the terminal the cursor still stands on its last letter.
            text.push_str("\x1b[K");
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        let mut terminal = std::io::stderr().lock();
        let _ = terminal.write_all(text.as_bytes());
        let _ = terminal.flush();
    }
}

/// So many things, as people say it.
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

/// A span as people say it.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!(
            "{:.0} h {:02.0} min",
            (s / 3600.0).floor(),
            (s % 3600.0) / 60.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Path, Pipeline};
    use crate::model::Via;

    fn progress(node: &str, total: u64, completed: u64, running: u64) -> NodeProgress {
        NodeProgress {
            node: node.to_owned(),
            step: node.to_owned(),
            via: Via::Chain.to_string(),
            total,
            completed,
            running,
            failed: 0,
            cancelled: 0,
        }
    }

    #[test]
    fn a_frame_fits_its_terminal_and_shows_what_is_under_way() {
        let frame = |ended| Frame {
            title: "T".repeat(100),
            rows: (0..30).map(|row| format!("row {row}")).collect(),
            first: 12,
            last: "\x1b[33mrunning\x1b[0m  12 steps".to_owned(),
            ended,
        };
        let lines = frame(false).fit(10, 8);
        assert_eq!(lines.len(), 9, "and the cursor below");
        assert_eq!(lines[0], "TTTTTTTT");
        assert_eq!(lines[1..3], ["row 11", "row 12"]);
        assert_eq!(lines[8], "\x1b[33mrunning\x1b[0m ", "no colour is left on");
        assert_eq!(frame(false).fit(2, 80).len(), 2);
        assert_eq!(frame(false).fit(80, 80).len(), 32);
        let end = frame(true).fit(10, 80);
        assert_eq!((end.len(), end[0].len()), (32, 100), "what stays is whole");
        let late = Frame {
            first: 30,
            ..frame(false)
        };
        assert_eq!(late.fit(10, 80)[7], "row 29");
    }

    #[test]
    fn what_runs_inside_a_fan_out_is_indented_and_counted() {
        let definition = Pipeline::named("P")
            .start("Read")
            .expand("Clean")
            .divide([Path::to("A"), Path::to("B")])
            .combine("Merge")
            .collapse("Report")
            .build()
            .expect("it is well formed");
        let tree = Tree::of(&definition);
        let plain = Style { colour: false };
        let lines = tree.lines(
            &[progress("Read", 1, 1, 0), progress("Clean", 4, 2, 1)],
            0,
            plain,
        );
        assert_eq!(lines[0].trim_end(), " ✓ Read");
        assert_eq!(
            lines[1],
            format!(" ⠋   Clean  {}{} 2/4", "█".repeat(12), "░".repeat(12))
        );
        assert_eq!(lines[2].trim_end(), " ·     A");
        assert_eq!(lines[4].trim_end(), " ·   Merge");
        assert_eq!(lines[5].trim_end(), " · Report");
        let at = |of: &[NodeProgress]| tree.first_open(of);
        assert_eq!(at(&[]), 0);
        assert_eq!(
            at(&[progress("Read", 1, 1, 0), progress("Clean", 4, 2, 1)]),
            1
        );
        // One that was passed by is waited for no more.
        assert_eq!(at(&[progress("Read", 1, 1, 0), progress("B", 4, 4, 0)]), 4);
    }
}
