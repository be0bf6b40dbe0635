//! The width of text on a terminal.
//!
//! Owns: the width of a line, cutting and wrapping it, with the colours in it. Never: writes.

/// Characters that take two columns: the scripts of East Asia, and pictographs.
const WIDE: [(char, char); 16] = [
    ('\u{1100}', '\u{115f}'),
    ('\u{231a}', '\u{231b}'),
    ('\u{23e9}', '\u{23f3}'),
    ('\u{25fd}', '\u{25fe}'),
    ('\u{2614}', '\u{2615}'),
    ('\u{2648}', '\u{2653}'),
    ('\u{26a1}', '\u{26a1}'),
    ('\u{2705}', '\u{2705}'),
    ('\u{2728}', '\u{2728}'),
    ('\u{274c}', '\u{274c}'),
    ('\u{2b50}', '\u{2b55}'),
    ('\u{2e80}', '\u{a4cf}'),
    ('\u{ac00}', '\u{d7a3}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{fe30}', '\u{ff60}'),
    ('\u{1f000}', '\u{3fffd}'),
];

/// The columns of one character. A combining mark is counted too: a line whose width is
/// overestimated is cut early, and a line whose width is underestimated tears a picture.
fn of(letter: char) -> usize {
    let wide = |(first, last): &(char, char)| (*first..=*last).contains(&letter);
    1 + usize::from(letter >= '\u{1100}' && WIDE.iter().any(wide))
}

/// The columns of a line, not counting its colours.
pub fn width(line: &str) -> usize {
    letters(line).map(|(_, columns)| columns).sum()
}

/// The characters of a line with their columns: a colour, `ESC [ … m`, has none.
fn letters(line: &str) -> impl Iterator<Item = (char, usize)> {
    let mut colour = false;
    line.chars().map(move |letter| {
        colour |= letter == '\x1b';
        let columns = if colour { 0 } else { of(letter) };
        colour &= letter != 'm';
        (letter, columns)
    })
}

/// The part of a line that fits, with all its colours.
pub fn cut(line: &str, columns: usize) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for (letter, more) in letters(line) {
        used += more;
        if more == 0 || used <= columns {
            text.push(letter);
        }
    }
    text
}

/// The same, with an ellipsis if something is left out.
pub fn cut_with(line: &str, columns: usize, ellipsis: &str) -> String {
    match width(line) > columns {
        false => line.to_owned(),
        true => {
            let room = columns.saturating_sub(width(ellipsis));
            format!("{}{ellipsis}", cut(line, room))
        }
    }
}

/// A line, split into as many lines as it needs.
pub fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for (letter, more) in letters(line) {
        used += more;
        if used > columns && used > more {
            lines.push(String::new());
            used = more;
        }
        if let Some(last) = lines.last_mut() {
            last.push(letter);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_two_columns_and_colours_of_none_are_counted_so() {
        assert_eq!(width("ä✓█é"), 4);
        assert_eq!(width("漢字🎉✅"), 8);
        assert_eq!(width("\x1b[1;33mab\x1b[0m"), 2);
        assert_eq!(cut("\x1b[33m漢字\x1b[0m", 3), "\x1b[33m漢\x1b[0m");
        assert_eq!(cut_with("abcdef", 4, "…"), "abc…");
        assert_eq!(cut_with("abcd", 4, "…"), "abcd");
        assert_eq!(wrapped("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(wrapped("漢字", 3), ["漢", "字"]);
        assert_eq!(wrapped("漢字", 1), ["漢", "字"], "no letter is lost");
        assert_eq!(wrapped("", 3), [""]);
    }
}
