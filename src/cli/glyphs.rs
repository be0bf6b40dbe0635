//! The marks beside a step, and the cells of a bar: in Unicode, or in ASCII if the locale requires it.
//!
//! Owns: both sets, and the choice between them. Never: colours.

use std::sync::OnceLock;

/// A set of marks.
#[derive(Debug, PartialEq, Eq)]
pub struct Glyphs {
    /// All went well.
    pub done: &'static str,
    /// Something failed.
    pub failed: &'static str,
    /// It runs; for a page that does not change.
    pub running: &'static str,
    /// It runs; shown one after the other.
    pub spinner: &'static [&'static str],
    /// It has begun, and no process runs it.
    pub queued: &'static str,
    /// It waits for a person.
    pub asks: &'static str,
    /// It was cancelled.
    pub cancelled: &'static str,
    /// It has not begun.
    pub ahead: &'static str,
    /// It was tried again.
    pub again: &'static str,
    /// A filled cell of a bar.
    pub full: &'static str,
    /// An empty cell of a bar.
    pub empty: &'static str,
    /// Before a number of times.
    pub times: &'static str,
    /// There is more.
    pub more: &'static str,
}

/// Marks that most terminals have.
pub const UNICODE: Glyphs = Glyphs {
    done: "✓",
    failed: "✗",
    running: "●",
    spinner: &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"],
    queued: "○",
    asks: "?",
    cancelled: "–",
    ahead: "·",
    again: "↻",
    full: "█",
    empty: "░",
    times: "×",
    more: "…",
};

const ASCII: Glyphs = Glyphs {
    done: "+",
    failed: "x",
    running: "*",
    spinner: &["|", "/", "-", "\\"],
    queued: "o",
    asks: "?",
    cancelled: "-",
    ahead: ".",
    again: "retried",
    full: "#",
    empty: ".",
    times: "x",
    more: "...",
};

/// The set for the locale of this process.
pub fn glyphs() -> &'static Glyphs {
    static CHOSEN: OnceLock<&Glyphs> = OnceLock::new();
    CHOSEN.get_or_init(|| chosen(&|name| std::env::var(name).ok()))
}

/// The first variable that is set decides; if none is set, terminals speak UTF-8.
fn chosen(var: &dyn Fn(&str) -> Option<String>) -> &'static Glyphs {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| var(name).filter(|value| !value.is_empty()));
    let speaks = |locale: &str| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    };
    match locale {
        Some(locale) if !speaks(&locale) => &ASCII,
        _ => &UNICODE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_without_utf_8_is_drawn_in_ascii() {
        let of = |vars: &[(&str, &str)]| {
            chosen(&|name| {
                let found = vars.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), &UNICODE);
        assert_eq!(of(&[("LC_ALL", "C")]), &ASCII);
        assert_eq!(of(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]), &ASCII);
        assert_eq!(of(&[("LC_ALL", ""), ("LANG", "en_GB.utf8")]), &UNICODE);
        assert_eq!(of(&[("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]), &UNICODE);
        let marks = [
            ASCII.done,
            ASCII.failed,
            ASCII.full,
            ASCII.empty,
            ASCII.more,
            ASCII.again,
        ];
        assert!(marks.iter().all(|mark| mark.is_ascii()));
    }
}
