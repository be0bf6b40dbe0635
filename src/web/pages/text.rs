//! Text from others on a page: names, errors, logs, payloads.
//!
//! Owns: how much of it fits on a page, JSON in lines, and that nothing hides in it. Never: escapes markup:
//! the templates do.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::machine::letters::is_hidden;
use crate::store::page::Payload;
use crate::web::visitor::may_see_payloads;

/// The number of bytes that a payload or a log may add to a page, as markup.
pub const ROOM: usize = 80 << 10;

/// The number of its bytes that are shown open; a longer text is folded.
const OPEN: usize = 2 << 10;

/// A finished page that spells out the names of invisible characters, whichever element or attribute they
/// are in. No template can forget it. Only the values of a form stay as they are, because the browser sends them
/// back. Every attribute of a template is in double quotes.
pub fn visible(page: &str) -> String {
    let mut shown = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        spell(&rest[..at], &mut shown);
        let end = end_of_tag(&rest[at..]);
        let (tag, after) = rest[at..].split_at(end);
        rest = after;
        let name = tag[1..].split(|char: char| !char.is_ascii_alphanumeric());
        match name.into_iter().next().unwrap_or_default() {
            "input" | "option" | "button" | "select" => spell_control(tag, &mut shown),
            "textarea" => {
                spell_control(tag, &mut shown);
                let (value, after) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
                shown.push_str(value);
                rest = after;
            }
            _ => spell(tag, &mut shown),
        }
    }
    spell(rest, &mut shown);
    shown
}

/// The length of the tag with which this text begins.
fn end_of_tag(text: &str) -> usize {
    let mut is_quoted = false;
    let mut ends = |char| {
        is_quoted ^= char == '"';
        char == '>' && !is_quoted
    };
    let end = text.char_indices().find(|(_, char)| ends(*char));
    end.map_or(text.len(), |(at, _)| at + 1)
}

fn spell(text: &str, to: &mut String) {
    let stays = |char: char| char == '\n' || char == '\t' || !is_hidden(char);
    for char in text.chars() {
        match stays(char) {
            true => to.push(char),
            false => to.extend(char.escape_unicode()),
        }
    }
}

/// The tag of a form's control: its name and its value stay as they are.
fn spell_control(tag: &str, to: &mut String) {
    let mut is_sent = false;
    for (at, part) in tag.split('"').enumerate() {
        if at > 0 {
            to.push('"');
        }
        match is_sent {
            true => to.push_str(part),
            false => spell(part, to),
        }
        // Every second part is the text of an attribute.
        is_sent = at % 2 == 0 && (part.ends_with(" name=") || part.ends_with(" value="));
    }
}

/// The bytes of a character on a page.
fn cost(char: char) -> usize {
    match char {
        '<' | '>' | '&' | '"' | '\'' => 5,
        '\n' | '\t' => 1,
        char if is_hidden(char) => char.escape_unicode().len(),
        char => char.len_utf8(),
    }
}

/// The beginning of a text, as long as its markup fits.
fn beginning(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, char) in text.char_indices() {
        used += cost(char);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// The end of a text, as long as its markup fits.
pub fn end(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, char) in text.char_indices().rev() {
        used += cost(char);
        if used > room {
            return &text[at + char.len_utf8()..];
        }
    }
    text
}

/// A text on one line, with at most this many characters.
pub fn clip(text: &str, letters: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(letters) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

/// A payload as a page shows it.
pub struct Value {
    /// JSON in lines, or the beginning of the text as it is.
    pub text: String,
    /// The reason why the text is not complete, if it is not.
    pub note: Option<String>,
    /// The reason why it is not JSON, if it is not.
    pub damaged: Option<String>,
    /// The address of the whole payload.
    pub raw: String,
    /// Its length.
    pub size: String,
    /// It is short enough to be shown open.
    pub is_open: bool,
    /// The visitor may not see it.
    pub is_withheld: bool,
}

impl Value {
    /// The value of this payload, all of which is at `raw`, as far as the visitor may see it.
    pub fn of(payload: &Payload, raw: String) -> Self {
        match may_see_payloads() {
            true => Self::shown(payload, raw),
            false => Self {
                text: String::new(),
                note: None,
                damaged: None,
                raw: String::new(),
                size: bytes(payload.size),
                is_open: false,
                is_withheld: true,
            },
        }
    }

    fn shown(payload: &Payload, raw: String) -> Self {
        let size = bytes(payload.size);
        let (text, damaged) = match payload.is_whole() {
            false => (payload.text.clone(), None),
            true => match serde_json::from_str::<&RawValue>(&payload.text) {
                Ok(_) => (lines(&payload.text, 2 * ROOM), None),
                Err(problem) => (payload.text.clone(), Some(problem.to_string())),
            },
        };
        let shown = beginning(&text, ROOM);
        let is_cut = shown.len() < text.len() || !payload.is_whole();
        Self {
            note: is_cut.then(|| format!("the beginning; the whole value is {size}")),
            is_open: text.len() <= OPEN,
            text: shown.to_owned(),
            damaged,
            raw,
            size,
            is_withheld: false,
        }
    }
}

/// A number of bytes.
pub fn bytes(n: u64) -> String {
    match n {
        1 => "1 byte".to_owned(),
        0..1_024 => format!("{n} bytes"),
        1_024..1_048_576 => format!("{}.{} KiB", n / 1_024, n % 1_024 * 10 / 1_024),
        _ => format!("{}.{} MiB", n >> 20, (n % (1 << 20)) * 10 / (1 << 20)),
    }
}

/// JSON with a line for each element and member, and with each number and string as it was written. If it
/// nests so deeply that its indentation would be longer than `most`, it stays as it is.
fn lines(json: &str, most: usize) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut rest = json.trim().chars().peekable();
    while let Some(char) = rest.next() {
        if text.len() > most {
            return json.to_owned();
        }
        if quoted {
            text.push(char);
            quoted = escaped || char != '"';
            escaped = char == '\\' && !escaped;
            continue;
        }
        match char {
            '"' => {
                quoted = true;
                text.push(char);
            }
            '{' | '[' => {
                text.push(char);
                while rest.peek().is_some_and(|next| next.is_ascii_whitespace()) {
                    rest.next();
                }
                if rest.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    text.extend(rest.next());
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(char);
            }
            ',' => {
                text.push(char);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => text.push(other),
        }
    }
    text
}

fn line(text: &mut String, depth: usize) {
    let _ = write!(text, "\n{:1$}", "", depth * 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_a_line_for_each_member_and_keeps_its_words() {
        assert_eq!(
            lines(r#" {"a":[1e400,"x,:{}\"]"],"b":{ },"c":[],"d":-0} "#, 1_000),
            "{\n  \"a\": [\n    1e400,\n    \"x,:{}\\\"]\"\n  ],\n  \"b\": {},\n  \"c\": [],\n  \"d\": -0\n}"
        );
        assert_eq!(lines("\"\\\\\"", 100), "\"\\\\\"");
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert!(lines(&deep, ROOM).len() < 2 * ROOM);
    }

    #[test]
    fn what_hides_is_named_and_what_is_long_is_cut_by_its_markup() {
        assert_eq!(
            visible("a\u{202e}b\u{1b}\0\n\t漢"),
            "a\\u{202e}b\\u{1b}\\u{0}\n\t漢"
        );
        // The values of a form come back as they are.
        let form = |char: &str| {
            format!(
                "<p title=\"a>{char}\">{char}</p><input name=\"n{char}\" title=\"{char}\" value=\"{char}>\">{char}\
                 <option value=\"{char}\">{char}</option><textarea name=\"t\" id=\"{char}\">\n{char}</textarea>{char}"
            )
        };
        let named = form("\\u{200d}");
        let mut expected = named.replacen("name=\"n\\u{200d}", "name=\"n\u{200d}", 1);
        for sent in ["value=\"", "<option value=\"", ">\n"] {
            expected =
                expected.replacen(&format!("{sent}\\u{{200d}}"), &format!("{sent}\u{200d}"), 1);
        }
        assert_eq!(visible(&form("\u{200d}")), expected);
        assert_eq!(beginning("<<<<", 11), "<<");
        assert_eq!(end("ab<c", 7), "b<c");
        assert_eq!(clip("漢字漢字", 2), "漢字…");
        let hostile = "\"<\u{202e}\u{1b}".repeat(40_000);
        let shown = beginning(&hostile, ROOM);
        assert!(shown.chars().map(cost).sum::<usize>() <= ROOM);
    }

    #[test]
    fn a_payload_that_is_no_json_is_shown_and_told() {
        let payload = |text: &str, size: u64| Payload {
            text: text.to_owned(),
            size,
        };
        let damaged = Value::shown(&payload("{\"a\":", 5), String::new());
        assert!(damaged.damaged.is_some() && damaged.text == "{\"a\":");
        let cut = Value::shown(&payload("[1,", 5_000_000), String::new());
        assert!(cut.damaged.is_none());
        assert_eq!(
            cut.note.as_deref(),
            Some("the beginning; the whole value is 4.7 MiB")
        );
        assert_eq!(bytes(1_500), "1.4 KiB");
    }
}
