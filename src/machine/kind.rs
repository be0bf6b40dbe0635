//! The kinds of errors: errors of one kind differ only in details that are particular to a run.
//!
//! Owns: the kind of a message. Never: knows what a message means.

/// A kind is no longer than this, in characters.
const LONGEST: usize = 200;

/// The class of an error whose message begins with the quoted name of the program that is missing.
const NOT_FOUND: &str = "command_not_found";

/// A short number after one of these words tells how something failed, and not for which run.
const STATUS_WORDS: [&str; 7] = ["status", "code", "error", "errno", "http", "exit", "signal"];

/// The kind of an error's message: its first line, with `…` in place of quoted texts, and `#` in place
/// of numbers and of ids. The name of a missing program stays, and so do exit statuses and those of HTTP.
pub fn of(class: Option<&str>, message: &str) -> String {
    let line = message.trim_start().lines().next().unwrap_or_default();
    // A terminal shows what follows the last return of the carriage.
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut names_program = class == Some(NOT_FOUND);
    let mut kind = String::new();
    let mut rest = line;
    // The word of which a number would be the status.
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        if kind.chars().count() >= LONGEST {
            kind.push('…');
            break;
        }
        let (shown, length) = match first {
            '"' | '\'' | '`' => {
                let (shown, length) = quoted(rest, first);
                match std::mem::take(&mut names_program) {
                    true => (rest[..length].to_owned(), length),
                    false => (shown, length),
                }
            }
            first if first.is_alphanumeric() => {
                let length = length_of_word(rest);
                let found = &rest[..length];
                let is_status = match before {
                    Some(word) => is_status_of(word, found),
                    None => kind.is_empty() && is_http_failure(found, &rest[length..]),
                };
                // `HTTP/1.1 404`
                if !(first.is_ascii_digit() && found.contains('.')) {
                    before = Some(found);
                }
                match is_status {
                    true => (found.to_owned(), length),
                    false => (word(found), length),
                }
            }
            first => {
                before = before.filter(|_| " :=/([".contains(first));
                (first.to_string(), first.len_utf8())
            }
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

fn is_short_number(text: &str) -> bool {
    text.len() <= 3 && text.chars().all(|char| char.is_ascii_digit())
}

fn is_status_of(word: &str, number: &str) -> bool {
    let mut words = STATUS_WORDS.iter();
    is_short_number(number) && words.any(|status| word.eq_ignore_ascii_case(status))
}

/// True for a number as in `404 Not Found`, and not for one as in `437 of 1000 rows`.
fn is_http_failure(number: &str, rest: &str) -> bool {
    let names_it = rest.starts_with(':')
        || rest
            .strip_prefix(' ')
            .is_some_and(|name| name.starts_with(char::is_uppercase));
    number.len() == 3 && is_short_number(number) && number.starts_with(['4', '5']) && names_it
}

/// The length of the word at the beginning of a text.
fn length_of_word(text: &str) -> usize {
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
    length
}

/// The kind of a word. A word with a digit is a number or an id, unless it begins with letters only: `sha256` is a name.
fn word(word: &str) -> String {
    let is_number = word.starts_with(|first: char| first.is_ascii_digit());
    let is_id = word.len() >= 8
        && word.chars().any(|char| char.is_ascii_digit())
        && word
            .chars()
            .all(|char| char.is_ascii_hexdigit() || char == '-');
    match is_number || is_id {
        true => "#".to_owned(),
        false => word.to_owned(),
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
                ["HTTP 503 after 12.5 s", "HTTP 503 after 3 s"],
                "HTTP 503 after # s",
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
                assert_eq!(of(None, message), kind, "{message}");
            }
        }
        let of = |message| of(None, message);
        assert_ne!(of("connection refused"), of("connection reset"));
    }

    #[test]
    fn statuses_and_the_name_of_a_missing_program_tell_kinds_apart() {
        for (message, kind) in [
            (
                "curl: (22) The requested URL returned error: 404",
                "curl: (#) The requested URL returned error: 404",
            ),
            ("HTTP/1.1 502 Bad Gateway", "HTTP/# 502 Bad Gateway"),
            ("404 Client Error: no page 7", "404 Client Error: no page #"),
            ("status=503, try 2", "status=503, try #"),
            ("exit status 7", "exit status 7"),
            ("Exit code (137) of 12", "Exit code (137) of #"),
            ("error 4711", "error #"),
            ("an error. 12 rows", "an error. # rows"),
            ("12 rows and 404 more", "# rows and # more"),
            ("503: busy since 12:00", "503: busy since #"),
            ("437 of 1000 rows were refused", "# of # rows were refused"),
        ] {
            assert_eq!(of(None, message), kind, "{message}");
        }
        let message = "`jq` was not found in PATH (/bin); e.g. `steps/jq`";
        let kind = "`jq` was not found in PATH (/bin); e.g. `…`";
        assert_eq!(of(Some("command_not_found"), message), kind);
        assert!(of(Some("Other"), message).starts_with("`…` was"));
    }

    #[test]
    fn a_kind_is_one_line_and_not_long_whatever_the_message() {
        // As a progress bar writes it.
        let of = |message: &str| of(None, message);
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
