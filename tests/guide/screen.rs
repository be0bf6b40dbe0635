//! A command on its own terminal, and all that it leaves on the screen.

use std::path::Path;
use std::process::{Command, Stdio};

/// The width at which the guide is read. A longer line is shown whole: a reader can scroll.
const COLUMNS: usize = 100;

/// More than any block shows, so that nothing scrolls away.
const ROWS: usize = 400;

/// Returns the lines that are left, and the exit status.
pub fn of(line: &str, directory: &Path, command: &mut Command) -> (Vec<String>, i32) {
    // The columns are those of this terminal, whatever the runner's are.
    let line = format!("stty rows {ROWS} cols {COLUMNS}\n{line}");
    command.args([
        "--quiet",
        "--return",
        "--flush",
        "--command",
        &line,
        "/dev/null",
    ]);
    // The end of standard input would end the session.
    command.stdin(Stdio::piped()).current_dir(directory);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("script(1) starts");
    let input = child.stdin.take();
    let output = child.wait_with_output().expect("it ends");
    drop(input);
    let text = String::from_utf8_lossy(&output.stdout);
    let status = output.status.code().expect("it exits");
    (left(&text), status)
}

/// The lines that a terminal shows after these characters.
pub fn left(text: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => {
                let mut number = String::new();
                let end = letters.by_ref().find(|next| {
                    let inner = next.is_ascii_digit() || "[?;".contains(*next);
                    number.extend(next.is_ascii_digit().then_some(*next));
                    !inner
                });
                let number = number.parse().unwrap_or(1);
                match end {
                    Some('A') => row -= number.min(row),
                    Some('K') => rows[row].truncate(column),
                    Some('J') => {
                        rows[row].truncate(column);
                        rows.truncate(row + 1);
                    }
                    Some('m' | 'h' | 'l') => {}
                    other => panic!("this terminal does not know {other:?}"),
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            _ => {
                while rows.len() <= row {
                    rows.push(Vec::new());
                }
                let cells = &mut rows[row];
                while cells.len() <= column {
                    cells.push(' ');
                }
                cells[column] = letter;
                column += 1;
            }
        }
        while rows.len() <= row {
            rows.push(Vec::new());
        }
    }
    let line = |row: Vec<char>| row.into_iter().collect::<String>().trim_end().to_owned();
    let mut lines: Vec<String> = rows.into_iter().map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::left;

    #[test]
    fn a_picture_that_is_drawn_again_is_there_once() {
        let text = "\x1b[?25lone\r\n\x1b[1mtwo\x1b[0m\r\n\x1b[2A\r\x1b[KONE\r\n\x1b[Jend\r\n";
        assert_eq!(left(text), ["ONE", "end"]);
    }
}
