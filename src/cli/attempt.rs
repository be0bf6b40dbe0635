//! An attempt at a step in words for people.
//!
//! Owns: how an error is told, with the element of the fan-out where it happened. Never: colours.

use crate::step::verdict::{ADVICE, OUTPUT_INVALID};
use crate::store::query::{ExecutionRow, Spread};

use super::out::{clean, short};

/// Letters of an error.
const ROOM: usize = 200;

/// The error of an attempt on one line; nothing where it had none.
pub fn error(execution: &ExecutionRow) -> Option<String> {
    let result = execution.result?;
    let message = execution.error_message.as_deref().map(str::trim);
    let message = message.filter(|message| !message.is_empty());
    let class = execution.error_class.as_deref();
    Some(told(result.as_str(), class, message))
}

/// The advice at the end of an error's message, for a line of its own: a narrow terminal would cut it off.
pub fn advice(execution: &ExecutionRow) -> Option<&str> {
    let message = execution.error_message.as_deref()?;
    let output = execution.error_class.as_deref() == Some(OUTPUT_INVALID);
    parted(message).1.filter(|_| output)
}

/// A message and the advice at its end.
fn parted(message: &str) -> (&str, Option<&str>) {
    let at = ADVICE.iter().find_map(|advice| message.rfind(advice));
    match at {
        Some(at) => (
            message[..at].trim_end_matches([' ', '.']),
            Some(&message[at..]),
        ),
        None => (message, None),
    }
}

/// An error in words. A class is for programs; people read what it stands for, where the message does not say so.
pub fn told(result: &str, class: Option<&str>, message: Option<&str>) -> String {
    let message = match class {
        Some(OUTPUT_INVALID) => message.map(|message| parted(message).0),
        _ => message,
    };
    let inner = |name: &str| {
        let inner = class?.strip_prefix(name)?.strip_prefix('(')?;
        inner.strip_suffix(')')
    };
    let class = match (inner("ExitStatus"), class) {
        (Some(code), _) => format!("exit status {code}"),
        // Its message names the signal.
        (None, Some(class)) if class.starts_with("Signal(") && message.is_some() => String::new(),
        (None, Some(class)) if class != result && result != "error" => {
            format!("{}, {class}", result.replace('_', " "))
        }
        (None, class) => class.unwrap_or(result).replace('_', " "),
    };
    let text = match message {
        None => class,
        Some(message) if message.starts_with(&class) => message.to_owned(),
        Some(message) => format!("{class}: {message}"),
    };
    short(&text, ROOM)
}

/// Which element of the fan-out: nothing on a run's root branch. Of fan-outs inside of each other the
/// nodes are told as well, outermost first.
pub fn element(spreads: &[Spread]) -> String {
    // A path of a divide has a node of its own, whose name says enough.
    let expands = spreads.iter().rev().filter(|spread| spread.via == "expand");
    let expands: Vec<&Spread> = expands.collect();
    let one = |spread: &&Spread| {
        let place = format!("element {} of {}", spread.ordinal + 1, spread.width);
        match expands.len() {
            1 => place,
            _ => format!("{place} from {}", clean(&spread.node)),
        }
    };
    expands.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_and_in_words() {
        for (result, class, message, text) in [
            (
                "error",
                Some("ExitStatus(3)"),
                Some("exit status 3"),
                "exit status 3",
            ),
            ("error", Some("ExitStatus(3)"), None, "exit status 3"),
            (
                "error",
                Some("ExitStatus(1)"),
                Some("boom"),
                "exit status 1: boom",
            ),
            (
                "error",
                Some("Signal(SEGV)"),
                Some("killed by SIGSEGV"),
                "killed by SIGSEGV",
            ),
            (
                "error",
                Some("output_invalid"),
                Some("not JSON"),
                "output invalid: not JSON",
            ),
            (
                "error",
                Some("Teapot"),
                Some("short\nand stout"),
                "Teapot: short\\nand stout",
            ),
            (
                "process_crashed",
                Some("process_crashed"),
                None,
                "process crashed",
            ),
            ("timed_out", None, Some("after 3s"), "timed out: after 3s"),
            (
                "timed_out",
                Some("timed_out"),
                Some("timed out after 1s"),
                "timed out after 1s",
            ),
            (
                "error",
                Some("output_invalid"),
                Some(
                    "stdout is not one JSON value: it begins \"x\". Print only the value, or else",
                ),
                "output invalid: stdout is not one JSON value: it begins \"x\"",
            ),
        ] {
            assert_eq!(told(result, class, message), text);
        }
    }

    #[test]
    fn an_element_is_counted_from_one_and_outermost_first() {
        let spread = |node: &str, ordinal, width, via: &str| Spread {
            node: node.to_owned(),
            via: via.to_owned(),
            ordinal,
            width,
        };
        let inner = spread("B", 2, 3, "expand");
        let path = spread("C", 0, 2, "divide");
        let outer = spread("A", 16, 56, "expand");
        assert_eq!(
            element(&[inner, path, outer]),
            "element 17 of 56 from A, element 3 of 3 from B"
        );
        let outer = spread("A", 16, 56, "expand");
        assert_eq!(element(&[outer]), "element 17 of 56");
        assert_eq!(element(&[]), "");
    }
}
