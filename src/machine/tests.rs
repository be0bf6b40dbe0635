//! The state machine, cell by cell; the tables of `docs/state-machine.md` come from here.
//!
//! Each part compares every cell with an expectation that was written independently, then
//! returns its tables; `document` puts them together and compares them with the file.

mod advance;
mod barrier;
mod document;
mod layout;
mod outcome;
mod revive;
mod transition;
mod why;

/// A table of Markdown.
fn table<R: AsRef<[String]>>(head: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let row = row.as_ref();
        assert_eq!(row.len(), head.len(), "{row:?}");
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// The text as Markdown code.
fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}
