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

/// Draws frames over each other.
#[derive(Default)]
pub struct Screen {
    drawn: usize,
}

impl Screen {
    /// Replaces the last frame by this one. A terminal that went away is no error of the run.
    pub fn draw(&mut self, lines: &[String]) {
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in lines {
            // Clear to the end of the line: the last frame's may have been longer.
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        let mut terminal = std::io::stderr().lock();
        let _ = terminal.write_all(text.as_bytes());
        let _ = terminal.flush();
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
            via: Via::Chain,
            total,
            completed,
            running,
            failed: 0,
            cancelled: 0,
        }
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
    }
}
