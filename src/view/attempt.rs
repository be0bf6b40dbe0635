//! An attempt in words for people, in a terminal and on a page.
//!
//! Owns: the meaning of an error's class, and the error of an attempt in a sentence. Never: shortens or colours.

use crate::step::verdict::{ADVICE, OUTPUT_INVALID};

/// A message and the advice at its end.
pub fn parted(message: &str) -> (&str, Option<&str>) {
    let at = ADVICE.iter().find_map(|advice| message.rfind(advice));
    match at {
        Some(at) => (
            message[..at].trim_end_matches([' ', '.']),
            Some(&message[at..]),
        ),
        None => (message, None),
    }
}

/// The words for the class of a command that has ended with a status other than 0.
fn exit_status(class: Option<&str>) -> Option<String> {
    let status = class?.strip_prefix("ExitStatus(")?.strip_suffix(')')?;
    Some(format!("exit status {status}"))
}

/// A class in words; programs read the class itself.
pub fn class(class: &str) -> String {
    exit_status(Some(class)).unwrap_or_else(|| class.to_owned())
}

/// An error in words. A class is for programs; people read its meaning, unless the message says it.
pub fn error(result: &str, class: Option<&str>, message: Option<&str>) -> String {
    let message = match class {
        Some(OUTPUT_INVALID) => message.map(|message| parted(message).0),
        _ => message,
    };
    let class = match (exit_status(class), class) {
        (Some(status), _) => status,
        // Its message names the signal.
        (None, Some(class)) if class.starts_with("Signal(") && message.is_some() => String::new(),
        // `process_crashed, crashed` would say it twice.
        (None, Some(class)) if result.ends_with(class) => result.replace('_', " "),
        (None, Some(class)) if result != "error" => {
            format!("{}, {class}", result.replace('_', " "))
        }
        (None, class) => class.unwrap_or(result).replace('_', " "),
    };
    match message {
        None => class,
        Some(message) if message.starts_with(&class) => message.to_owned(),
        Some(message) => format!("{class}: {message}"),
    }
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
                "Teapot: short\nand stout",
            ),
            (
                "process_crashed",
                Some("process_crashed"),
                None,
                "process crashed",
            ),
            (
                "process_crashed",
                Some("crashed"),
                Some("killed by SIGKILL: by a person"),
                "process crashed: killed by SIGKILL: by a person",
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
            assert_eq!(error(result, class, message), text);
        }
    }

    #[test]
    fn a_class_that_is_no_exit_status_is_told_as_it_is() {
        assert_eq!(class("ExitStatus(65)"), "exit status 65");
        for other in ["ExitStatus(", "Signal(SEGV)", "Teapot"] {
            assert_eq!(class(other), other);
        }
    }
}
