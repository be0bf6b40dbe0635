//! Commands in messages, ready to be pasted.
//!
//! Owns: that a suggested command names the same configuration and environment as the command that
//! suggests it, and names runs by their short ids. Never: decides what is suggested.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use uuid::Uuid;

use crate::model;

/// The name by which messages call the program.
const PROGRAM: &str = "ductworkd ";

/// Verbs that read no configuration, or make one.
const WITHOUT: [&str; 4] = ["completions", "init", "schema", "version"];

/// The options `-c` and `-e` of this command line, as text.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Keeps the options that suggested commands repeat.
pub fn repeat(file: Option<&Path>, env: Option<&str>) {
    // The first command line of a process is its only one.
    let _ = GIVEN.set(options(file, env));
}

fn options(file: Option<&Path>, env: Option<&str>) -> String {
    let file = file.map(|file| file.to_string_lossy());
    let mut text = String::new();
    for (option, value) in [("-c", file), ("-e", env.map(Cow::from))] {
        if let Some(value) = value {
            text.push_str(&format!("{option} {} ", quoted(&value)));
        }
    }
    text
}

/// A word, quoted for a shell.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |char: char| char.is_alphanumeric() || "-_./:=+@%".contains(char);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

/// The text, with its commands in the form in which they must be typed here.
pub fn pasteable(text: &str) -> String {
    rewritten(text, GIVEN.get().map_or("", String::as_str))
}

fn rewritten(text: &str, given: &str) -> String {
    let mut parts = text.split(PROGRAM);
    let mut rewritten = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rewritten.push_str(PROGRAM);
        let (verb, rest) = word(part);
        let known = super::verbs().any(|known| known == verb);
        if !known || WITHOUT.contains(&verb) {
            rewritten.push_str(part);
            continue;
        }
        rewritten.push_str(given);
        rewritten.push_str(verb);
        let (argument, rest) = match rest.strip_prefix(' ').map(word) {
            Some((argument, rest)) if argument.len() == 36 => (argument, rest),
            _ => ("", rest),
        };
        match Uuid::try_parse(argument) {
            Ok(run) => rewritten.push_str(&format!(" {}", model::short(run))),
            Err(_) if argument.is_empty() => {}
            Err(_) => rewritten.push_str(&format!(" {argument}")),
        }
        rewritten.push_str(rest);
    }
    rewritten
}

/// The first word, and the rest.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_alphanumeric() && char != '-');
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggested_command_repeats_the_options_and_shortens_the_run() {
        let given = options(Some(Path::new("my conf.yml")), Some("prod"));
        assert_eq!(given, "-c 'my conf.yml' -e prod ");
        let run = "0192f3a1-0000-7000-8000-00005d91c07e";
        let text = format!("`ductworkd show {run}` has it; ductworkd resume {run} [VALUE]");
        assert_eq!(
            rewritten(&text, &given),
            "`ductworkd -c 'my conf.yml' -e prod show 5d91c07e` has it; \
             ductworkd -c 'my conf.yml' -e prod resume 5d91c07e [VALUE]"
        );
        assert_eq!(
            rewritten(&text, ""),
            "`ductworkd show 5d91c07e` has it; ductworkd resume 5d91c07e [VALUE]"
        );
    }

    #[test]
    fn only_commands_that_read_a_configuration_are_rewritten() {
        for text in [
            "start `ductworkd` with this pipeline",
            "let `ductworkd init` make one",
            "a ductworkd that runs goes on by itself",
            "ductworkd",
            "",
        ] {
            assert_eq!(rewritten(text, "-e prod "), text);
        }
        assert_eq!(
            rewritten("`ductworkd runs` lists them", "-e prod "),
            "`ductworkd -e prod runs` lists them"
        );
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
