//! Patterns of texts.
//!
//! Owns: which regular expressions a schema may have, and the matching. Never: backtracks: a pattern
//! becomes an automaton of bounded size, which reads a text once, whatever the pattern is.
//!
//! JSON Schema means the expressions of ECMAScript. Syntax that both have is written the same; `\d`, `\w` and `\s` are
//! the sets of ECMAScript, and lookaround and backreferences, which no automaton can have, are refused.

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::start;
use regex_automata::{Anchored, util::syntax};

/// The most bytes of an automaton, and of the memory that it takes to build it.
const SIZE_MAX: usize = 256 << 10;

/// The most characters of a pattern.
pub const LENGTH_MAX: usize = 1_000;

/// A pattern that is ready for matching.
pub struct Pattern(dense::DFA<Vec<u32>>);

impl Pattern {
    /// Builds the automaton; the error says why that is impossible.
    pub fn of(text: &str) -> Result<Self, String> {
        if text.chars().count() > LENGTH_MAX {
            return Err(format!("it is longer than {LENGTH_MAX} characters"));
        }
        let text = translated(text)?;
        let built = dense::Builder::new()
            .syntax(syntax::Config::new().unicode(true).utf8(true))
            .thompson(thompson::Config::new().nfa_size_limit(Some(SIZE_MAX)))
            .configure(
                dense::Config::new()
                    .start_kind(StartKind::Unanchored)
                    .dfa_size_limit(Some(SIZE_MAX))
                    .determinize_size_limit(Some(SIZE_MAX)),
            )
            .build(&text);
        built.map(Self).map_err(|error| reason(&error))
    }

    /// Whether a part of the text matches the pattern.
    pub fn is_in(&self, text: &str) -> bool {
        let dfa = &self.0;
        let Ok(mut state) = dfa.start_state(&start::Config::new().anchored(Anchored::No)) else {
            return false;
        };
        for byte in text.bytes() {
            state = dfa.next_state(state, byte);
            if dfa.is_special_state(state)
                && (dfa.is_match_state(state) || dfa.is_dead_state(state))
            {
                return dfa.is_match_state(state);
            }
        }
        dfa.is_match_state(dfa.next_eoi_state(state))
    }
}

/// The pattern with the classes of ECMAScript written out.
fn translated(text: &str) -> Result<String, String> {
    const SPACE: &str = r"\t\n\x0B\f\r \u{a0}\u{feff}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}";
    let mut to = String::with_capacity(text.len() + 16);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            to.push(char);
            continue;
        }
        match chars.next() {
            Some('d') => to.push_str("[0-9]"),
            Some('D') => to.push_str("[^0-9]"),
            Some('w') => to.push_str("[A-Za-z0-9_]"),
            Some('W') => to.push_str("[^A-Za-z0-9_]"),
            Some('s') => to.push_str(&format!("[{SPACE}]")),
            Some('S') => to.push_str(&format!("[^{SPACE}]")),
            Some('/') => to.push('/'),
            Some('p' | 'P') => {
                return Err("it asks for a class of Unicode; list the characters".into());
            }
            Some('b' | 'B') => return Err("it asks for the edge of a word".into()),
            Some(other) => to.extend(['\\', other]),
            None => return Err("it ends with a backslash".into()),
        }
    }
    Ok(to)
}

/// The reason in one line: the parser's own message draws the place of a mistake on several lines.
fn reason(error: &dense::BuildError) -> String {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        said = error.to_string();
        source = error.source();
    }
    if said.contains("exceeded") {
        return "it is too large; leave lengths to `minLength` and `maxLength`".to_owned();
    }
    let last = said.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(pattern: &str, text: &str) -> bool {
        match Pattern::of(pattern) {
            Ok(pattern) => pattern.is_in(text),
            Err(reason) => panic!("{pattern}: {reason}"),
        }
    }

    #[test]
    fn patterns_find_what_ecmascript_finds() {
        for (pattern, good, bad) in [
            (
                "^[A-Z]{2}[0-9]+$",
                vec!["AB1", "ZZ123"],
                vec!["ab1", "AB", "xAB1", "AB1\n"],
            ),
            ("b", vec!["abc", "b"], vec!["ac", ""]),
            (r"^\d{3}-\w+$", vec!["123-a_B9"], vec!["٣٤٥-a", "123-é"]),
            (r"^[\d.]+$", vec!["1.2"], vec!["1,2"]),
            (r"^\S+\s\S+$", vec!["a b", "a\u{a0}b"], vec!["ab"]),
            ("^.$", vec!["x", "漢", "😀"], vec!["", "xy", "\n"]),
            ("^[^a]$", vec!["漢"], vec!["a", "bb"]),
            ("", vec!["", "x"], vec![]),
            ("^$", vec![""], vec!["x"]),
            (r"^.{1,100}$", vec!["x"], vec![""]),
            ("^(a|b)*c$", vec!["c", "ababc"], vec!["abd"]),
            (r"^\/x\u0041$", vec!["/xA"], vec!["/x"]),
        ] {
            for text in good {
                assert!(is_in(pattern, text), "{pattern} {text:?}");
            }
            for text in bad {
                assert!(!is_in(pattern, text), "{pattern} {text:?}");
            }
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_had_is_refused_with_a_reason_in_one_line() {
        let long = "a".repeat(LENGTH_MAX + 1);
        for (pattern, reason) in [
            ("(", "unclosed group"),
            ("[z-a]", "invalid character class range"),
            ("(?=a)", "look-around"),
            (r"(a)\1", "backreferences"),
            ("^.{1,5000}$", "too large"),
            (r"\p{L}", "a class of Unicode"),
            (r"\bx", "the edge of a word"),
            ("x\\", "ends with a backslash"),
            ("((((a{1,100}){1,100}){1,100}){1,100})", "too large"),
            ("(a|b)*a(a|b){20}", "too large"),
            (&long, "longer than 1000"),
        ] {
            let Err(said) = Pattern::of(pattern) else {
                panic!("{pattern} is a pattern");
            };
            assert!(
                said.contains(reason) && !said.contains('\n'),
                "{pattern}: {said}"
            );
        }
    }

    #[test]
    fn a_text_is_read_once_whatever_the_pattern_is() {
        // Many ways to fail: a matcher that tried them all would never return.
        let pattern = Pattern::of("^(a+)+$").expect("it is a pattern");
        let text = format!("{}b", "a".repeat(1 << 20));
        assert!(!pattern.is_in(&text));
    }
}
