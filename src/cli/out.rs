//! Standard output: text for people, JSON for programs.
//!
//! Owns: colours and whether they are wanted, tables, and that no text from a step or a user can
//! control a terminal. Never: decides what is shown.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::problem::Problem;
use crate::time;

use super::columns::{cut_with, width};
use super::exit::Failure;
use super::glyphs::glyphs;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR forbids or CLICOLOR_FORCE forces them.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The requested form of output.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// For programs.
    pub json: bool,
    /// People read it as it appears.
    pub terminal: bool,
}

impl Out {
    /// The output as requested; `color` holds for the whole process.
    pub fn new(json: bool, color: Color) -> Self {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::AlwaysAnsi,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        let terminal = std::io::stdout().is_terminal();
        Self { json, terminal }
    }

    /// Prints text; colours are dropped if they are not wanted.
    pub fn text(self, text: &str) -> Result<(), Failure> {
        let mut stdout = anstream::stdout().lock();
        written(
            stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush()),
        )
    }

    /// Prints text that must not be changed: the output of a run.
    pub fn raw(self, text: &str) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        written(
            stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush()),
        )
    }

    /// Prints the output of a run: formatted for a person, or as it is.
    pub fn result(self, output: &RawValue) -> Result<(), Failure> {
        match self.terminal {
            true => self.text(&super::value::lines(output, self.columns())),
            false => self.raw(&format!("{}\n", output.get())),
        }
    }

    /// The columns of the terminal; for a pipe, as many as people expect.
    pub fn columns(self) -> usize {
        let size = terminal_size::terminal_size_of(std::io::stdout());
        match size {
            Some((width, _)) if width.0 > 0 => width.0.into(),
            _ => 80,
        }
    }

    /// A table; on a terminal, no line of it is wider than the terminal.
    pub fn table(self, headings: &[&str], rows: &[Vec<Cell>]) -> String {
        if !self.terminal {
            return table(headings, rows);
        }
        let (columns, more) = (self.columns(), glyphs().more);
        let mut text = table(headings, rows);
        if text.lines().any(|line| width(line) > columns) {
            // No cell but the last may take so much that nothing is left for the others.
            let most = columns / 2;
            let narrow = |row: &Vec<Cell>| {
                let (last, others) = row.split_last()?;
                let cut = |cell: &Cell| Cell {
                    text: cut_with(&cell.text, most, more),
                    ..cell.clone()
                };
                Some(others.iter().map(cut).chain([last.clone()]).collect())
            };
            let rows: Vec<Vec<Cell>> = rows.iter().filter_map(narrow).collect();
            text = table(headings, &rows);
        }
        // The rest of a long line is cut off, because no other row continues it.
        let cut = text.lines().map(|line| cut_with(line, columns, more));
        cut.map(|line| format!("{line}\n")).collect()
    }

    /// A table whose last column is never cut on a terminal: ids are there, and people copy them. Where it would be wider
    /// than the terminal, it leaves out these columns, the first one first, and then cuts the widest.
    pub fn table_with_ids(self, headings: &[&str], rows: &[Vec<Cell>], spare: &[&str]) -> String {
        let (mut headings, mut rows) = (headings.to_vec(), rows.to_vec());
        if !self.terminal {
            return table(&headings, &rows);
        }
        let columns = self.columns();
        let excess = |headings: &[&str], rows: &[Vec<Cell>]| {
            let text = table(headings, rows);
            let widest = text.lines().map(width).max();
            widest.unwrap_or_default().saturating_sub(columns)
        };
        for spare in spare {
            if excess(&headings, &rows) == 0 {
                break;
            }
            let place = headings.iter().position(|heading| heading == spare);
            let place = place.expect("it is a heading of this table");
            headings.remove(place);
            // A row that cannot be read is short.
            for row in rows.iter_mut().filter(|row| place < row.len()) {
                row.remove(place);
            }
        }
        let excess = excess(&headings, &rows);
        if excess > 0 {
            let last = headings.len() - 1;
            let taken = |column: &usize| {
                let cells = rows.iter().filter_map(|row| row.get(*column));
                cells
                    .map(|cell| width(&cell.text))
                    .max()
                    .unwrap_or_default()
            };
            let widest = (0..last).max_by_key(taken).unwrap_or_default();
            let most = taken(&widest).saturating_sub(excess).max(1);
            for cell in rows.iter_mut().filter_map(|row| row.get_mut(widest)) {
                cell.text = cut_with(&cell.text, most, glyphs().more);
            }
        }
        self.table(&headings, &rows)
    }

    /// Prints one JSON value and ends the line.
    pub fn value(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = match self.terminal {
            true => serde_json::to_string_pretty(value),
            false => serde_json::to_string(value),
        }
        .map_err(|error| {
            Failure::failed(Problem::new(format!("cannot be written as JSON: {error}")))
        })?;
        text.push('\n');
        let mut stdout = std::io::stdout().lock();
        written(
            stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush()),
        )
    }

    /// A time: as an age for people, as RFC 3339 for readers of a pipe.
    pub fn time(self, at: i64, now: i64) -> String {
        match self.terminal {
            true => time::relative(at, now),
            false => time::rfc3339(at),
        }
    }
}

fn written(done: std::io::Result<()>) -> Result<(), Failure> {
    match done {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::NobodyReads),
        Err(error) => Err(Failure::failed(Problem::new(unwritten(&error)))),
    }
}

/// The words for an output that is lost.
pub fn unwritten(error: &std::io::Error) -> String {
    format!("standard output cannot be written: {error}")
}

/// Text in a colour.
pub fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Done.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Failed.
pub const BAD: Style = AnsiColor::Red.on_default();
/// Under way.
pub const BUSY: Style = AnsiColor::Cyan.on_default();
/// Waiting for a person.
pub const ASKS: Style = AnsiColor::Yellow.on_default();
/// Secondary.
pub const DIM: Style = Style::new().dimmed();
/// Names.
pub const BOLD: Style = Style::new().bold();

/// A cell of a table.
#[derive(Clone)]
pub struct Cell {
    text: String,
    style: Style,
    /// It is aligned to the right of its column.
    is_number: bool,
}

impl Cell {
    /// A text, made safe.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::styled(text, Style::new())
    }

    /// Text in a colour, made safe.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: clean(text.as_ref()),
            style,
            is_number: false,
        }
    }

    /// A number, aligned with the others of its column.
    pub fn number(text: impl AsRef<str>) -> Self {
        Self {
            is_number: true,
            ..Self::new(text)
        }
    }

    /// The same in a colour.
    pub fn painted(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// Lines of aligned columns, headings first; the last column is as wide as it needs.
pub fn table(headings: &[&str], rows: &[Vec<Cell>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.text.chars().count()).max();
        widest.unwrap_or(0).max(headings[column].chars().count())
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let is_number = |column: usize| {
        let cell = rows.first().and_then(|row| row.get(column));
        cell.is_some_and(|cell| cell.is_number)
    };
    let headings = headings.iter().enumerate().map(|(column, text)| Cell {
        is_number: is_number(column),
        ..Cell::styled(text, DIM)
    });
    let headings = headings.collect();
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(rows) {
        // No padding follows the last text of a line.
        let used = row.iter().rposition(|cell| !cell.text.is_empty());
        for (column, cell) in row.iter().enumerate().take(used.map_or(0, |last| last + 1)) {
            let padding = widths[column].saturating_sub(cell.text.chars().count());
            // The widest padding that a format takes: a damaged row may have a name of a megabyte.
            let padding = padding.min(usize::from(u16::MAX) - 2);
            if cell.is_number {
                let _ = write!(text, "{:padding$}", "");
            }
            text.push_str(&paint(cell.style, &cell.text));
            if Some(column) != used {
                let padding = if cell.is_number { 2 } else { padding + 2 };
                let _ = write!(text, "{:padding$}", "");
            }
        }
        text.push('\n');
    }
    text
}

/// One line without control characters: output of a step must not control a terminal, nor forge a
/// line of output.
pub fn clean(text: &str) -> String {
    let steers = |char: char| {
        // Bidirectional controls reorder the text beside them.
        char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut cleaned = String::with_capacity(text.len());
    for char in text.chars() {
        match steers(char) {
            true => cleaned.extend(char.escape_default()),
            false => cleaned.push(char),
        }
    }
    cleaned
}

/// The beginning of a text, as far as it fits on a line.
pub fn short(text: &str, room: usize) -> String {
    let text = clean(text);
    match text.char_indices().nth(room) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_printed_cannot_steer_a_terminal() {
        assert_eq!(
            clean("a\u{1b}[2Jb\nc\u{202e}d"),
            "a\\u{1b}[2Jb\\nc\\u{202e}d"
        );
        assert_eq!(clean("naïve 漢字 🎉"), "naïve 漢字 🎉");
    }

    #[test]
    fn a_name_as_wide_as_the_terminal_leaves_room_for_the_other_cells() {
        let to = Out {
            json: false,
            terminal: true,
        };
        let rows = [vec![Cell::new("n".repeat(300)), Cell::new("halted")]];
        let text = to.table(&["PIPELINE", "STATUS"], &rows);
        assert!(text.contains("halted"), "{text}");
    }

    #[test]
    fn a_table_that_is_too_wide_leaves_out_columns_but_cuts_no_id() {
        let to = Out {
            json: false,
            terminal: true,
        };
        let (columns, headings) = (to.columns(), ["ROLE", "PIPELINE", "STARTED", "HOST", "ID"]);
        let said = |pipeline: usize, host: usize| {
            let texts = [
                "worker",
                &"p".repeat(pipeline),
                "5m ago",
                &"h".repeat(host),
                "01234567",
            ];
            let row = texts.map(Cell::new).to_vec();
            // One that cannot be read has fewer cells.
            let rows = [row, vec![Cell::new("odd")]];
            let text = to.table_with_ids(&headings, &rows, &["STARTED", "HOST"]);
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(
                text.contains("01234567") && text.contains("worker"),
                "{text}"
            );
            assert!(text.lines().all(|line| width(line) <= columns), "{text}");
            text
        };
        let quarter = columns / 4;
        assert!(said(quarter, quarter).contains("STARTED"));
        let text = said(quarter, columns - quarter - 20);
        assert!(text.contains("HOST") && !text.contains("STARTED"), "{text}");
        assert!(!said(quarter, columns).contains("HOST"));
        assert!(said(columns, columns).contains("ppp"));
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let rows = [
            vec![Cell::new("ä"), Cell::new("1")],
            vec![Cell::new("bbb"), Cell::new("2")],
        ];
        let plain = anstream::adapter::strip_str(&table(&["X", "Y"], &rows)).to_string();
        assert_eq!(plain, "X    Y\nä    1\nbbb  2\n");
    }
}
