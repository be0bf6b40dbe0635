//! The live view of one run: a picture of its steps, drawn over the last one.
//!
//! Owns: turning progress into lines, and drawing them so that a terminal of any size shows whole lines; log
//! lines go above. Never: queries the database.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use crate::definition::Definition;
use crate::store::query::NodeProgress;

use super::columns::{cut, width, wrapped};
use super::flow::{self, Place};
use super::glyphs::{Glyphs, glyphs};

/// The widest and the narrowest bar.
const BAR: usize = 24;
const BAR_MIN: usize = 6;

/// The branches of a pipeline as an indented list.
pub struct Tree {
    places: Vec<Place>,
    width: usize,
}

impl Tree {
    /// The tree of a definition.
    pub fn of(definition: &Definition) -> Self {
        let places = flow::places(definition);
        let width = places
            .iter()
            .map(|place| place.depth * 2 + width(&place.label));
        let width = width.max().unwrap_or_default();
        Self { places, width }
    }

    /// The row of the first node that has begun and is not done; otherwise the row after the last node that has
    /// begun. Paths that are not taken never begin.
    pub fn first_open(&self, progress: &[NodeProgress]) -> usize {
        let of = |place: &Place| progress.iter().find(|found| found.node == place.node);
        let open = |place: &Place| of(place).is_some_and(|node| node.completed < node.total);
        let open_at = self.places.iter().position(open);
        let last = self.places.iter().rposition(|place| of(place).is_some());
        open_at.unwrap_or_else(|| last.map_or(0, |last| last + 1))
    }

    /// One line per node, for this many columns.
    pub fn lines(&self, progress: &[NodeProgress], look: Look) -> Vec<String> {
        let found = |place: &Place| progress.iter().find(|found| found.node == place.node);
        let counts = |place: &Place| found(place).map_or(0, |node| width(&counts(node, look)));
        let counted = self.places.iter().map(counts).max().unwrap_or_default();
        // A space, a mark, a space, the label, two spaces; then the bar, a space, and the counts.
        let left = look
            .columns
            .saturating_sub(3 + self.width + 2 + 1 + counted);
        let bar = if left < BAR_MIN { 0 } else { left.min(BAR) };
        let line = |place: &Place| {
            let style = look.style;
            let (mark, label, rest) = match found(place) {
                None => (
                    style.dim(look.glyphs.ahead),
                    style.dim(&place.label),
                    String::new(),
                ),
                Some(node) => (mark(node, look), place.label.clone(), rest(node, bar, look)),
            };
            let indent = "  ".repeat(place.depth);
            let used = place.depth * 2 + width(&place.label);
            let pad = " ".repeat(self.width.saturating_sub(used) + 2);
            format!(" {mark} {indent}{label}{pad}{rest}")
                .trim_end()
                .to_owned()
        };
        self.places.iter().map(line).collect()
    }
}

/// The appearance of one picture.
#[derive(Clone, Copy)]
pub struct Look {
    /// The number of the picture.
    pub frame: usize,
    /// Colours.
    pub style: Style,
    /// Marks.
    pub glyphs: &'static Glyphs,
    /// The columns of the terminal.
    pub columns: usize,
}

fn mark(node: &NodeProgress, look: Look) -> String {
    let (style, glyphs) = (look.style, look.glyphs);
    if node.failed > 0 {
        style.red(glyphs.failed)
    } else if node.completed == node.total {
        style.green(glyphs.done)
    } else if node.running > 0 {
        style.yellow(glyphs.spinner[look.frame % glyphs.spinner.len()])
    } else if node.waiting > 0 {
        style.yellow(glyphs.asks)
    } else {
        style.yellow(glyphs.queued)
    }
}

/// The numbers of a node's steps that are done, failed, and tried again.
fn counts(node: &NodeProgress, look: Look) -> String {
    let (style, glyphs) = (look.style, look.glyphs);
    let mut parts = Vec::new();
    if node.total > 1 {
        parts.push(format!("{}/{}", node.completed, node.total));
    }
    if node.failed > 0 {
        parts.push(style.red(&format!("{} failed", node.failed)));
    }
    if node.retrying > 0 {
        let text = format!("{} {}", glyphs.again, node.retrying);
        parts.push(style.yellow(&text));
    }
    if node.waiting > 0 {
        parts.push(style.yellow("waits for a person"));
    }
    parts.join("  ")
}

fn rest(node: &NodeProgress, bar: usize, look: Look) -> String {
    let counts = counts(node, look);
    if node.total <= 1 || bar == 0 {
        return counts;
    }
    let done = (node.completed as usize * bar) / (node.total as usize).max(1);
    let (full, empty) = (
        look.glyphs.full.repeat(done),
        look.glyphs.empty.repeat(bar - done),
    );
    format!("{} {counts}", look.style.dim(&format!("{full}{empty}")))
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

    /// For success.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// For failure.
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// For work under way.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// For secondary text.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// For text to read first.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// One picture of a run.
pub struct Frame {
    /// The line above everything else.
    pub title: String,
    /// One line per node.
    pub rows: Vec<String>,
    /// The row that must be visible if not all rows fit.
    pub first: usize,
    /// The lines below everything else; the first shows the run's state.
    pub last: Vec<String>,
    /// The frame is final, and is shown whole.
    pub ended: bool,
}

impl Frame {
    /// The same without colours.
    pub fn plain(self) -> Self {
        let plain = |line: String| anstream::adapter::strip_str(&line).to_string();
        Self {
            title: plain(self.title),
            rows: self.rows.into_iter().map(plain).collect(),
            last: self.last.into_iter().map(plain).collect(),
            ..self
        }
    }

    /// The lines that a terminal of this many rows and columns shows. A picture that is drawn over must fit:
    /// the cursor goes up to its first row, and a line that is too long takes two rows.
    fn fit(&self, rows: usize, columns: usize) -> Vec<String> {
        if self.ended {
            let title = std::iter::once(&self.title);
            return title.chain(&self.rows).chain(&self.last).cloned().collect();
        }
        // Two rows are for the title and for the cursor.
        let last = &self.last[..self.last.len().min(rows.saturating_sub(2)).max(1)];
        let room = rows.saturating_sub(2 + last.len()).min(self.rows.len());
        // If rows are left out, one row says how many, unless that would leave no others.
        let told = room < self.rows.len() && room > 2;
        let room = room - usize::from(told);
        // One row that is done stays in sight.
        let from = self.first.saturating_sub(1).min(self.rows.len() - room);
        let shown = &self.rows[from..from + room];
        let more = told.then(|| left_out(from, self.rows.len() - from - room));
        let lines = std::iter::once(&self.title).chain(shown);
        let lines = lines.chain(&more).chain(last);
        lines.map(|line| cut(line, columns)).collect()
    }
}

/// The line that replaces rows that do not fit.
fn left_out(above: usize, below: usize) -> String {
    let places = [(above, "above"), (below, "below")];
    let some = places.iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some.map(|(count, at)| format!("{count} {at}")).collect();
    format!("{} {}", glyphs().more, some.join(", "))
}

/// Draws frames over each other.
pub struct Screen {
    terminal: File,
    /// The number of columns of each line of the last frame.
    drawn: Vec<usize>,
}

impl Screen {
    /// A screen on this terminal.
    pub fn on(terminal: File) -> Self {
        Self {
            terminal,
            drawn: Vec::new(),
        }
    }

    /// The rows and columns of the terminal; a terminal that reports none, or zero, gets the smallest usual
    /// size.
    pub fn size(&self) -> (usize, usize) {
        match terminal_size::terminal_size_of(&self.terminal) {
            Some((width, height)) if width.0 > 0 && height.0 > 0 => {
                (height.0.into(), width.0.into())
            }
            _ => (24, 80),
        }
    }

    /// Replaces the last frame with these lines and this frame. A terminal that has gone away is no error of
    /// the run.
    pub fn draw(&mut self, above: &[String], frame: &Frame) {
        let (rows, columns) = self.size();
        let lines = frame.fit(rows, columns);
        let text = over(&self.drawn, above, &lines, columns);
        self.drawn = lines.iter().map(|line| width(line)).collect();
        // One write, so that nobody sees half of it.
        let _ = self.terminal.write_all(text.as_bytes());
        let _ = self.terminal.flush();
    }
}

/// The text that replaces a frame, whose lines had these widths, with permanent lines and a new frame.
fn over(drawn: &[usize], above: &[String], lines: &[String], columns: usize) -> String {
    // A terminal that has become narrower has wrapped the last frame.
    let rows = |width: &usize| width.div_ceil(columns.max(1)).max(1);
    let up: usize = drawn.iter().map(rows).sum();
    let mut text = String::new();
    // Terminals that know this sequence show nothing until its end.
    text.push_str("\x1b[?2026h\r");
    if up > 0 {
        text.push_str(&format!("\x1b[{up}A"));
    }
    let above = above.iter().flat_map(|line| wrapped(line, columns));
    for line in above.chain(lines.iter().cloned()) {
        // The last frame's line may have been longer. It is cleared first, because after a line as wide as the
        // terminal the cursor still stands on its last character. If the line takes several rows, those are
        // cleared as well.
        text.push_str(match width(&line) > columns {
            true => "\x1b[J",
            false => "\x1b[K",
        });
        text.push_str(&line);
        text.push_str("\r\n");
    }
    text.push_str("\x1b[J\x1b[?2026l");
    text
}

/// A count of things, in words.
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

/// A time span, in words.
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
    use super::super::glyphs::UNICODE;
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
            retrying: 0,
            moving: total - completed,
            waiting: 0,
            failed: 0,
            cancelled: 0,
            copied: 0,
            first_at: None,
            last_at: None,
        }
    }

    fn look(columns: usize) -> Look {
        Look {
            frame: 0,
            style: Style { colour: false },
            glyphs: &UNICODE,
            columns,
        }
    }

    #[test]
    fn a_frame_without_colours_has_the_same_text() {
        let painted = || "\x1b[31mfailed\x1b[0m 3".to_owned();
        let frame = Frame {
            title: painted(),
            rows: vec![painted()],
            first: 0,
            last: vec![painted()],
            ended: false,
        };
        let plain = frame.plain();
        assert_eq!(
            [&plain.title, &plain.rows[0], &plain.last[0]],
            ["failed 3"; 3]
        );
    }

    #[test]
    fn a_frame_fits_its_terminal_and_shows_what_is_under_way() {
        let frame = |ended| Frame {
            title: "T".repeat(100),
            rows: (0..30).map(|row| format!("row {row}")).collect(),
            first: 12,
            last: vec!["\x1b[33mrunning\x1b[0m  12 steps".to_owned()],
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
        assert_eq!(late.fit(10, 80)[6], "row 29");
        let more = glyphs().more;
        assert_eq!(late.fit(10, 80)[7], format!("{more} 24 above"));
        assert_eq!(
            frame(false).fit(10, 80)[7],
            format!("{more} 11 above, 13 below")
        );
        let more = Frame {
            last: (0..5).map(|line| format!("last {line}")).collect(),
            ..frame(false)
        };
        assert_eq!(
            more.fit(5, 80),
            ["T".repeat(80).as_str(), "last 0", "last 1", "last 2"]
        );
    }

    #[test]
    fn whatever_runs_inside_a_fan_out_is_indented_and_counted() {
        let definition = Pipeline::named("P")
            .start("Read")
            .expand("Clean")
            .divide([Path::to("A"), Path::to("B")])
            .combine("Merge")
            .collapse("Report")
            .build()
            .expect("it is well formed");
        let tree = Tree::of(&definition);
        let now = [progress("Read", 1, 1, 0), progress("Clean", 4, 2, 1)];
        let lines = tree.lines(&now, look(80));
        assert_eq!(lines[0], " ✓ Read");
        assert_eq!(
            lines[1],
            format!(" ⠋   Clean  {}{} 2/4", "█".repeat(12), "░".repeat(12))
        );
        assert_eq!(lines[2], " ·     A");
        assert_eq!(lines[4], " ·   Merge");
        assert_eq!(lines[5], " · Report");
        // With less room, the bar becomes shorter, and then disappears.
        assert_eq!(tree.lines(&now, look(24))[1], " ⠋   Clean  ████░░░░ 2/4");
        assert_eq!(tree.lines(&now, look(20))[1], " ⠋   Clean  2/4");
        let at = |of: &[NodeProgress]| tree.first_open(of);
        assert_eq!(at(&[]), 0);
        assert_eq!(at(&now), 1);
        // A node that was passed by is no longer waited for.
        assert_eq!(at(&[progress("Read", 1, 1, 0), progress("B", 4, 4, 0)]), 4);
    }

    #[test]
    fn a_frame_is_drawn_over_the_last_one_even_where_that_was_wrapped() {
        let lines = ["abcd".to_owned()];
        let first = over(&[], &[], &lines, 4);
        assert_eq!(first, "\x1b[?2026h\r\x1b[Kabcd\r\n\x1b[J\x1b[?2026l");
        assert!(over(&[4, 4], &[], &lines, 4).contains("\x1b[2A"));
        assert!(over(&[4, 4], &[], &lines, 3).contains("\x1b[4A"));
        // The rows below are cleared before a line that continues there.
        assert!(over(&[4, 4], &[], &lines, 3).contains("\x1b[Jabcd\r\n"));
        let above = ["a line of log".to_owned()];
        let text = over(&[4], &above, &lines, 8);
        assert!(
            text.contains("\x1b[1A\x1b[Ka line o\r\n\x1b[Kf log\r\n\x1b[Kabcd\r\n"),
            "{text:?}"
        );
    }
}
