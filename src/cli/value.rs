//! A JSON value for people: indented and coloured, with long parts cut, and a list of flat objects as
//! a table.
//!
//! Owns: the layout, pure. Never: shows a number or a string with a text other than the value's own.

use anstyle::{AnsiColor, Style};
use serde_json::value::RawValue;

use super::columns::{cut_with, width};
use super::out::{DIM, clean, paint};

/// The number of a list's elements that are shown.
const ELEMENTS: usize = 20;
/// The number of a table's rows that are shown.
const ROWS: usize = 100;
/// Nobody reads a table with more columns.
const COLUMNS: usize = 12;
/// The number of a string's characters that are shown.
const LETTERS: usize = 400;
/// The width of a table's cell, in columns.
const CELL: usize = 40;

const KEY: Style = AnsiColor::Blue.on_default();
const STRING: Style = AnsiColor::Green.on_default();
const NUMBER: Style = AnsiColor::Cyan.on_default();
const WORD: Style = AnsiColor::Yellow.on_default();

/// A value in its original text.
enum Node<'a> {
    Scalar(&'a str),
    List(Vec<Node<'a>>),
    Object(Vec<(&'a str, Node<'a>)>),
}

/// The lines of a value for a terminal of this many columns; the caller that prints them drops
/// unwanted colours.
pub fn lines(value: &RawValue, columns: usize) -> String {
    let node = Reader { rest: value.get() }.node();
    let mut text = String::new();
    draw(&node, 0, columns, &mut text);
    text.push('\n');
    text
}

/// Reads text that is known to be JSON.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn node(&mut self) -> Node<'a> {
        match self.peek() {
            Some('{') => {
                let mut members = Vec::new();
                self.each('}', |reader| {
                    let key = reader.token();
                    reader.peek();
                    reader.skip();
                    members.push((key, reader.node()));
                });
                Node::Object(members)
            }
            Some('[') => {
                let mut elements = Vec::new();
                self.each(']', |reader| elements.push(reader.node()));
                Node::List(elements)
            }
            _ => Node::Scalar(self.token()),
        }
    }

    /// The parts between the brackets, until the closing one.
    fn each(&mut self, closing: char, mut part: impl FnMut(&mut Self)) {
        self.skip();
        while let Some(next) = self.peek() {
            if next == closing {
                self.skip();
                return;
            }
            if next == ',' {
                self.skip();
            }
            let before = self.rest.len();
            part(self);
            if self.rest.len() == before {
                return;
            }
        }
    }

    /// The next character that is not a space.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn skip(&mut self) {
        let mut letters = self.rest.chars();
        letters.next();
        self.rest = letters.as_str();
    }

    /// A string with its quotes, a number or a word.
    fn token(&mut self) -> &'a str {
        self.peek();
        let mut escaped = false;
        let end = match self.rest.strip_prefix('"') {
            Some(inner) => inner
                .find(|char: char| {
                    let ends = char == '"' && !escaped;
                    escaped = char == '\\' && !escaped;
                    ends
                })
                .map(|at| at + 2),
            None => self
                .rest
                .find(|char: char| ",]}:".contains(char) || char.is_whitespace()),
        };
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        token
    }
}

fn draw(node: &Node<'_>, indent: usize, columns: usize, text: &mut String) {
    if let Some(line) = inline(node, indent, columns) {
        return text.push_str(&line);
    }
    let inner = indent + 2;
    let pad = " ".repeat(inner);
    match node {
        Node::Scalar(token) => text.push_str(&scalar(token)),
        Node::Object(members) => {
            text.push('{');
            for (at, (key, value)) in members.iter().enumerate() {
                text.push_str(&format!("\n{pad}{}:", paint(KEY, &clean(key))));
                if let Some(table) = table(value, inner, columns) {
                    text.push_str(&table);
                    continue;
                }
                text.push(' ');
                draw(value, inner, columns, text);
                if at + 1 < members.len() {
                    text.push(',');
                }
            }
            text.push_str(&format!("\n{}}}", " ".repeat(indent)));
        }
        Node::List(elements) => {
            if let Some(table) = table(node, indent, columns) {
                return text.push_str(table.trim_start_matches('\n').trim_start());
            }
            text.push('[');
            for (at, element) in elements.iter().take(ELEMENTS).enumerate() {
                text.push_str(&format!("\n{pad}"));
                draw(element, inner, columns, text);
                if at + 1 < elements.len() {
                    text.push(',');
                }
            }
            if let Some(more @ 1..) = elements.len().checked_sub(ELEMENTS) {
                text.push_str(&format!("\n{pad}{}", paint(DIM, &format!("… {more} more"))));
            }
            text.push_str(&format!("\n{}]", " ".repeat(indent)));
        }
    }
}

/// A value on its line, if it is empty or holds only scalars, and fits.
fn inline(node: &Node<'_>, indent: usize, columns: usize) -> Option<String> {
    let flat = |node: &Node<'_>| matches!(node, Node::Scalar(_));
    let line = match node {
        Node::Scalar(token) => return Some(scalar(token)),
        Node::Object(members) if members.is_empty() => "{}".to_owned(),
        Node::List(elements) if elements.len() <= ELEMENTS && elements.iter().all(flat) => {
            let parts: Vec<String> = elements
                .iter()
                .filter_map(|it| inline(it, 0, columns))
                .collect();
            format!("[{}]", parts.join(", "))
        }
        // An object on its own is easier to read over several lines; one within a list is one of many.
        Node::Object(members) if indent > 0 && members.iter().all(|(_, value)| flat(value)) => {
            let part = |(key, value): &(&str, Node<'_>)| {
                Some(format!(
                    "{}: {}",
                    paint(KEY, &clean(key)),
                    inline(value, 0, columns)?
                ))
            };
            let parts: Option<Vec<String>> = members.iter().map(part).collect();
            format!("{{ {} }}", parts?.join(", "))
        }
        _ => return None,
    };
    // The room for a key and a comma.
    (width(&line) + indent + 20 <= columns.max(40)).then_some(line)
}

fn scalar(token: &str) -> String {
    let style = match token.chars().next() {
        Some('"') => STRING,
        Some('t' | 'f' | 'n') => WORD,
        _ => NUMBER,
    };
    let long = token.chars().count();
    match long > LETTERS {
        false => paint(style, &clean(token)),
        true => {
            let begun: String = token.chars().take(LETTERS).collect();
            let more = paint(DIM, &format!("… ({long} characters)"));
            format!("{}{more}", paint(style, &clean(&begun)))
        }
    }
}

/// The form of a string in a cell, without its quotes, or of another scalar.
fn cell(token: &str) -> String {
    let text = token.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let text = match text {
        // Escapes that are only spelling.
        Some(text) => text.replace("\\\"", "\"").replace("\\/", "/"),
        None if token == "null" => String::new(),
        None => token.to_owned(),
    };
    cut_with(&clean(&text), CELL, "…")
}

/// A list of flat objects, on lines of its own.
fn table(node: &Node<'_>, indent: usize, columns: usize) -> Option<String> {
    let Node::List(elements) = node else {
        return None;
    };
    if elements.len() < 2 {
        return None;
    }
    let mut keys: Vec<&str> = Vec::new();
    for element in elements {
        let Node::Object(members) = element else {
            return None;
        };
        for (key, value) in members {
            if !matches!(value, Node::Scalar(_)) {
                return None;
            }
            if !keys.contains(key) {
                keys.push(key);
            }
        }
        if members.is_empty() || keys.len() > COLUMNS {
            return None;
        }
    }
    let rows: Vec<Vec<&str>> = elements
        .iter()
        .take(ROWS)
        .map(|element| row(element, &keys))
        .collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|token| cell(token)).collect())
        .collect();
    let heads: Vec<String> = keys.iter().map(|key| cell(key)).collect();
    let widest = |at: usize| {
        let widths = cells.iter().map(|row| width(&row[at]));
        widths.max().unwrap_or_default().max(width(&heads[at]))
    };
    let widths: Vec<usize> = (0..keys.len()).map(widest).collect();
    if indent + widths.iter().map(|width| width + 2).sum::<usize>() > columns {
        return None;
    }
    let number = |token: &str| token.starts_with(|char: char| char == '-' || char.is_ascii_digit());
    let numeric: Vec<bool> = (0..keys.len())
        .map(|at| {
            rows.iter()
                .all(|row| row[at] == "null" || row[at].is_empty() || number(row[at]))
        })
        .collect();
    let pad = " ".repeat(indent);
    let mut text = String::new();
    let mut line = |cells: &[String], style: &dyn Fn(usize) -> Style| {
        let mut line = pad.clone();
        let last = cells
            .iter()
            .rposition(|cell| !cell.is_empty())
            .unwrap_or_default();
        for (at, cell) in cells.iter().enumerate().take(last + 1) {
            let space = " ".repeat(widths[at] - width(cell));
            let cell = paint(style(at), cell);
            line.push_str(&match numeric[at] {
                true => format!("{space}{cell}"),
                false if at == last => cell,
                false => format!("{cell}{space}"),
            });
            if at < last {
                line.push_str("  ");
            }
        }
        text.push_str(&format!("\n{line}"));
    };
    line(&heads, &|_| DIM);
    for (cells, row) in cells.iter().zip(&rows) {
        line(cells, &|at| match row[at].chars().next() {
            Some('"') | None => Style::new(),
            Some('t' | 'f' | 'n') => WORD,
            _ => NUMBER,
        });
    }
    if let Some(more @ 1..) = elements.len().checked_sub(ROWS) {
        text.push_str(&format!("\n{pad}{}", paint(DIM, &format!("… {more} more"))));
    }
    Some(text)
}

/// The tokens of an object in the order of the keys; nothing for a missing key.
fn row<'a>(element: &Node<'a>, keys: &[&str]) -> Vec<&'a str> {
    let Node::Object(members) = element else {
        return Vec::new();
    };
    let token = |key: &&str| {
        let found = members.iter().find(|(known, _)| known == key);
        match found {
            Some((_, Node::Scalar(token))) => *token,
            _ => "",
        }
    };
    keys.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(json: &str, columns: usize) -> String {
        let raw = RawValue::from_string(json.to_owned()).expect("it is JSON");
        anstream::adapter::strip_str(&lines(&raw, columns)).to_string()
    }

    #[test]
    fn scalars_keep_their_own_text() {
        for json in [
            "1e400",
            "9007199254740993",
            "-0",
            "null",
            "\"a\\u0000\\\"b\"",
            "\"漢\"",
            "[]",
            "{}",
        ] {
            assert_eq!(plain(json, 80), format!("{json}\n"));
        }
        assert_eq!(
            plain("\"\u{202e}\u{9b}2J\"", 80),
            "\"\\u{202e}\\u{9b}2J\"\n"
        );
    }

    #[test]
    fn objects_are_indented_and_short_lists_stay_on_a_line() {
        let json = r#"{"a":1,"b":[1,2,{"c":"x"}],"d":[1,2],"e":{"f":{"g":[]}},"a":2}"#;
        let expected = "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2,\n    { \"c\": \"x\" }\n  ],\n  \"d\": [1, 2],\n  \"e\": {\n    \"f\": { \"g\": [] }\n  },\n  \"a\": 2\n}\n";
        // The list within `g` is not a scalar.
        let expected = expected.replace(
            "    \"f\": { \"g\": [] }\n",
            "    \"f\": {\n      \"g\": []\n    }\n",
        );
        assert_eq!(plain(json, 80), expected);
    }

    #[test]
    fn a_long_list_and_a_long_string_are_cut_with_a_count() {
        let list = format!("[{}]", vec!["1"; 56].join(","));
        let text = plain(&list, 80);
        assert!(
            text.ends_with("    … 36 more\n]\n".trim_start_matches("  ")),
            "{text}"
        );
        let text = plain(&format!("\"{}\"", "x".repeat(1_000)), 80);
        assert!(text.ends_with("… (1002 characters)\n"), "{text}");
        let deep = "[".repeat(128) + &"]".repeat(128);
        assert!(!plain(&deep, 80).is_empty());
    }

    #[test]
    fn a_list_of_flat_objects_is_a_table_where_it_has_room() {
        let json = r#"{"n":2,"states":[{"state":"Alaska","km":271.2},{"state":"Guam","km":7,"few":true},{"state":"Ohio","km":null}]}"#;
        let expected = "{\n  \"n\": 2,\n  \"states\":\n  state      km  few\n  Alaska  271.2\n  Guam        7  true\n  Ohio\n}\n";
        assert_eq!(plain(json, 80), expected);
        assert!(plain(json, 12).contains("\"state\": \"Alaska\""));
        let json = r#"[{"a":1},{"a":{}}]"#;
        assert!(!plain(json, 80).contains("a\n"), "it is not flat");
        let many = format!("[{}]", vec![r#"{"a":"\"q\""}"#; 150].join(","));
        let text = plain(&many, 80);
        assert!(
            text.starts_with("a\n\"q\"\n") && text.ends_with("\n… 50 more\n"),
            "{text}"
        );
    }
}
