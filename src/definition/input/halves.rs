//! Halves of surrogate pairs.
//!
//! Owns: finding the strings of a value that contain half of a surrogate pair, `\ud83d` alone, which no text
//! has: programs that read the run would refuse everything that they are sent with it. Never: looks twice at a
//! value that has none.

use super::judge::{VIOLATIONS_MAX, Violation, pointer_token};
use super::text::Json;

/// The strings with such a half, in the value's order, up to [`VIOLATIONS_MAX`]. `input` is one JSON value.
pub fn halves(input: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    look(Json::of(input), "", &mut found);
    found
}

fn look(value: Json<'_>, pointer: &str, found: &mut Vec<Violation>) {
    let Some(half) = first(value.text()) else {
        return;
    };
    if found.len() >= VIOLATIONS_MAX {
        return;
    }
    let mut violation = |what: &str, half: &str| {
        let detail = format!(
            "{what} half of a surrogate pair, `{half}`, which is not a character: send the whole pair"
        );
        let pointer = pointer.to_owned();
        found.push(Violation { pointer, detail });
    };
    if value.text().starts_with('"') {
        violation("has", half);
    }
    // No pointer can name such a key.
    for half in value.members().filter_map(|(key, _)| first(key.text())) {
        violation("has a key with", half);
    }
    for (at, element) in value.elements().enumerate() {
        look(element, &format!("{pointer}/{at}"), found);
    }
    for (key, member) in value.members() {
        if let Some(key) = key.string() {
            look(member, &format!("{pointer}/{}", pointer_token(&key)), found);
        }
    }
    found.truncate(VIOLATIONS_MAX);
}

/// The first half of a pair that stands alone. Escapes occur only in strings, so the search need not know where
/// these are.
fn first(json: &str) -> Option<&str> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut at = 0;
    while let Some(next) = json.get(at..)?.find('\\') {
        at += next;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => return json.get(at..at + 6),
            (Some(_), _) => 6,
            (None, _) => 2,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(input: &str) -> Vec<String> {
        halves(input).into_iter().map(|it| it.pointer).collect()
    }

    #[test]
    fn a_half_alone_is_found_where_it_stands() {
        for (input, expected) in [
            (r#""\ud83d""#, vec![""]),
            (r#"["\uDE00"]"#, vec!["/0"]),
            (
                r#"{"a/b": [1, "x\ud83d\n"], "c": "\ud83d\ud83d\ude00"}"#,
                vec!["/a~1b/1", "/c"],
            ),
            (r#"{"o": {"\udc00": 1}}"#, vec!["/o"]),
        ] {
            assert_eq!(pointers(input), expected, "{input}");
        }
        assert_eq!(
            halves(r#"["\ud83d"]"#)[0].to_string(),
            "`/0` has half of a surrogate pair, `\\ud83d`, which is not a character: send the whole pair"
        );
        let many = format!("[{}]", vec![r#""\ud83d""#; 50].join(","));
        assert_eq!(halves(&many).len(), VIOLATIONS_MAX);
    }

    #[test]
    fn text_has_none() {
        for input in [
            r#""\ud83d\ude00""#,
            r#""\\ud83d""#,
            r#"["\u0000", "ud83d", "漢\"", 1e400]"#,
            r#"{"\ud83d\ude00": "\ud83d\ude00\ud83d\ude00"}"#,
        ] {
            assert_eq!(pointers(input), Vec::<String>::new(), "{input}");
        }
    }
}
