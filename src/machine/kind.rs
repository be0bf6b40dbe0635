//! The kinds of errors: errors of one kind differ only in details that are particular to a run.
//!
//! Owns: the kind of a message. Never: knows what a message means.

/// A kind is no longer than this, in characters.
const LONGEST: usize = 200;

/// The kind of an error's message: its first line, with `…` in place of quoted texts, and `#` in place
/// of numbers and of ids.
pub fn of(message: &str) -> String {
    let line = message.trim_start().lines().next().unwrap_or_default();
    // A terminal shows what follows the last return of the carriage.
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut kind = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if kind.chars().count() >= LONGEST {
            kind.push('…');
            break;
        }
        let (shown, length) = match first {
            '"' | '\'' | '`' => quoted(rest, first),
            first if first.is_alphanumeric() => word(rest),
            first => (first.to_string(), first.len_utf8()),
        };
        kind.push_str(&shown);
        rest = &rest[length..];
    }
    kind
}

/// The class of an error in one line; `None` if it is blank. A browser sends no other form of it back: it sends other
/// ends of lines, and blanks at the ends of a field are those of a person who typed.
pub fn class(class: &str) -> Option<String> {
    let words: Vec<&str> = class.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The kind of a text in quotes, and the length of that text. A quote that nothing closes, or that
/// stands within a word ("isn't"), is a character like any other.
fn quoted(text: &str, quote: char) -> (String, usize) {
    let inner = &text[quote.len_utf8()..];
    match inner.find(quote) {
        Some(end) if end > 0 => (format!("{quote}…{quote}"), end + 2 * quote.len_utf8()),
        _ => (quote.to_string(), quote.len_utf8()),
    }
}

/// The kind of a word, and its length. A word with a digit is a number or an id, unless it begins
/// with letters only: `sha256` is a name.
fn word(text: &str) -> (String, usize) {
    let mut length = 0;
    for (at, char) in text.char_indices() {
        // Ids and decimal numbers continue.
        let joins = matches!(char, '-' | '_' | '.' | ':' | '\'')
            && text[at + 1..].starts_with(|next: char| next.is_alphanumeric());
        if !char.is_alphanumeric() && !joins {
            break;
        }
        length = at + char.len_utf8();
    }
    let word = &text[..length];
    let is_number = word.starts_with(|first: char| first.is_ascii_digit());
    let is_id = word.len() >= 8
        && word.chars().any(|char| char.is_ascii_digit())
        && word
            .chars()
            .all(|char| char.is_ascii_hexdigit() || char == '-');
    match is_number || is_id {
        true => ("#".to_owned(), length),
        false => (word.to_owned(), length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_one_line_without_blanks_at_its_ends() {
        for (class, one_line) in [
            ("OutOfLuck", Some("OutOfLuck")),
            (" Out\nof\r\n\tluck \n", Some("Out of luck")),
            (" \n", None),
            ("", None),
        ] {
            assert_eq!(super::class(class).as_deref(), one_line, "{class:?}");
        }
    }

    #[test]
    fn errors_that_differ_in_numbers_ids_and_quoted_texts_are_of_one_kind() {
        for (messages, kind) in [
            (
                ["HTTP 503 after 12.5 s", "HTTP 500 after 3 s"],
                "HTTP # after # s",
            ),
            (
                ["no user \"ana\" (17)", "no user \"bob\" (4711)"],
                "no user \"…\" (#)",
            ),
            (
                [
                    "order 0192f3a1-7c11-7abc-8def-001122334455 is gone",
                    "order 7 is gone",
                ],
                "order # is gone",
            ),
            (
                [
                    "commit deadbeef01 differs\nat line 3",
                    "commit 00ff00ff differs",
                ],
                "commit # differs",
            ),
            (["2026-11-24T10:00:01 late", "10:00 late"], "# late"),
            (["it isn't 3", "it isn't 4"], "it isn't #"),
            (["sha256 differs", "  sha256 differs"], "sha256 differs"),
            (["`a` and `", "`b` and `"], "`…` and `"),
        ] {
            for message in messages {
                assert_eq!(of(message), kind, "{message}");
            }
        }
        assert_ne!(of("connection refused"), of("connection reset"));
    }

    #[test]
    fn a_kind_is_one_line_and_not_long_whatever_the_message() {
        // As a progress bar writes it.
        assert_eq!(of("10%\r100% boom\r\nmore"), "#% boom");
        for message in [
            String::new(),
            "\n\n".to_owned(),
            "é".repeat(100_000),
            "'".repeat(999),
            "a-".repeat(9_999),
            "9".repeat(100_000),
        ] {
            let kind = of(&message);
            assert!(
                kind.chars().count() <= LONGEST + 1 || !kind.contains(' '),
                "{kind}"
            );
            assert!(!kind.contains('\n'));
        }
        assert_eq!(of(""), "");
    }
}
