//! Text on a picture: the part of it that is shown, and the space that it takes.
//!
//! Owns: making visible the characters that would reorder or hide a text, and cutting it. Never:
//! escapes markup.

use crate::machine::letters::is_hidden;

/// The columns of a title, which is shown when somebody points at a part that is cut.
const TITLE: usize = 400;

/// The text in this many columns, with an ellipsis if it is cut.
pub fn cut(text: &str, columns: usize) -> String {
    let (mut shown, mut used, mut fits) = (String::new(), 0, 0);
    for part in text.chars().map(visible) {
        used += width(&part);
        // The ellipsis takes the space of the last letter.
        if used + ELLIPSIS <= columns {
            fits = shown.len() + part.len();
        }
        if used > columns {
            shown.truncate(fits);
            shown.push('…');
            return shown;
        }
        shown.push_str(&part);
    }
    shown
}

/// The whole text, up to the length that anybody would read.
pub fn title(text: &str) -> String {
    cut(text, TITLE)
}

/// The columns of an ellipsis, which is not ASCII.
const ELLIPSIS: usize = 2;

/// The columns of a text. Letters beyond ASCII may be two columns wide, and are counted as two:
/// overestimating a text's width leaves a little space, while underestimating it lets the text run out
/// of its box.
pub fn width(text: &str) -> usize {
    text.chars()
        .map(|char| 1 + usize::from(!char.is_ascii()))
        .sum()
}

/// A letter, or the name of one that would be invisible.
fn visible(char: char) -> String {
    match is_hidden(char) {
        true => char.escape_unicode().to_string(),
        false => char.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_its_room_and_what_hides_is_named() {
        assert_eq!(cut("LoadUser", 8), "LoadUser");
        assert_eq!(cut("LoadUsers", 8), "LoadUs…");
        assert_eq!(cut("", 8), "");
        assert_eq!(cut("a\u{202e}b", 20), "a\\u{202e}b");
        assert_eq!(cut("\u{1b}[2J\0\u{feff}", 30), "\\u{1b}[2J\\u{0}\\u{feff}");
        assert_eq!(
            cut("ab\u{202e}cd", 8),
            "ab…",
            "a name of a letter is not cut in two"
        );
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        for columns in 2..40 {
            for text in [
                "abcdefghijklmnop",
                "漢字漢字漢字漢字漢字",
                "a\u{202e}\u{202e}b漢\tc",
            ] {
                assert!(width(&cut(text, columns)) <= columns, "{text:?} {columns}");
            }
        }
        assert!(title(&"x".repeat(10_000)).len() < 410);
    }
}
