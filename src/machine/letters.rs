//! Letters that a reader does not see, and the rules for texts that somebody else has to see.
//!
//! Owns: which letters these are; the names under which actions are recorded. Never: checks anybody's identity.

/// The longest name of a person or a program, in characters.
pub const NAME_MAX: usize = 200;

/// An account that has only a number is recorded under this prefix and the number.
pub const UID: &str = "uid ";

/// True for a letter that is invisible, or that changes the order of the letters beside it.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{fffe}'..='\u{ffff}'
                | '\u{e0000}'..='\u{e00ff}'
                | '\u{e01f0}'..='\u{e0fff}'
        )
}

/// True for a letter that is drawn as nothing.
fn is_blank(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180e}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{ffa0}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{16fe4}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
    )
}

/// True for a letter that only changes the form of those beside it: an emoji has one, and so have some ideographs and
/// many names in Persian.
fn is_selector(char: char) -> bool {
    matches!(char, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// True for a letter that a reader sees.
pub fn is_shown(char: char) -> bool {
    !char.is_whitespace() && !is_hidden(char) && !is_blank(char) && !is_selector(char)
}

/// The form of a name, for the person who gives one.
pub fn form_of_a_name() -> String {
    format!(
        "a name has 1 to {NAME_MAX} letters that are shown, with single spaces between them, and neither `(` nor `{UID}` \
         at its beginning"
    )
}

/// True for the name of a person or a program: one line that stands neither for a deadline nor for an account by its
/// number, and that no reader takes for one. It has letters that are shown, with single spaces between them.
pub fn is_name(name: &str) -> bool {
    let drawn: String = name.chars().filter(|char| !is_selector(*char)).collect();
    let is_reserved = drawn.starts_with('(') || drawn.to_lowercase().starts_with(UID);
    let is_spaced = drawn.split(' ').all(|word| !word.is_empty());
    let is_plain = |char: char| char == ' ' || is_shown(char);
    name.chars().count() <= NAME_MAX && !is_reserved && is_spaced && drawn.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_named_like_a_deadline_or_an_account() {
        for name in [
            "(deadline)",
            " (deadline)",
            " ana",
            "ana ",
            "ana  ruiz",
            "uid 0",
            "Uid 0",
            "u\u{fe0f}id 0",
            "uid\u{a0}0",
            "uid\u{3164}0",
            "\u{fe0f}",
            "\u{3164}",
            "u\u{34f}id 0",
            "u\u{200d}id 0",
            "u\u{1bca0}id 0",
            "u\u{fff0}id 0",
            "u\u{e01f0}id 0",
            "ana\u{202e}",
            "<input value=\"\u{202e}x\">",
            "",
            " ",
            "a\nb",
            "a\u{1b}[1m",
        ] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in [
            "ana",
            "uid",
            "Ana Uid 0",
            "shop (test)",
            "Müller, 漢字",
            "葛\u{e0100}城",
            "on call \u{2764}\u{fe0f}",
            "علی\u{200c}رضا",
        ] {
            assert!(is_name(name), "{name:?}");
        }
        assert!(is_name(&"a".repeat(NAME_MAX)) && !is_name(&"a".repeat(NAME_MAX + 1)));
    }
}
