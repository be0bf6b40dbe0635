//! The help of the command line.
//!
//! Owns: its order: first the purpose of the program or verb, then the usage, examples last; the groups of
//! the verbs; the options of every verb, listed once. Never: describes a verb or an option: each has its
//! description beside it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ColorChoice, Command, CommandFactory};

use crate::process::{start, watcher};

use super::Cli;

/// The verbs, grouped by purpose. A test compares them with the existing verbs.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Begin", &["init", "check", "migrate", "copy"]),
    ("Run", &["start", "console", "run", "trigger"]),
    (
        "Look",
        &[
            "runs",
            "show",
            "logs",
            "watch",
            "why",
            "processes",
            "health",
            "metrics",
            "top",
        ],
    ),
    (
        "Mend",
        &[
            "resume", "revive", "cancel", "bulk", "pause", "unpause", "context", "prune",
        ],
    ),
    ("Prove", &["audit", "drill", "bench"]),
    (
        "Set up",
        &[
            "token",
            "schema",
            "completions",
            "symbolize",
            "version",
            "help",
        ],
    ),
];

/// The options that every verb has; a verb's own help does not repeat them.
const OF_ALL: [&str; 4] = ["config", "env", "json", "color"];

const OF_A_VERB: &str = "\
{about-with-newline}
{usage-heading} {usage}

{all-args}{after-help}

Every verb has -c FILE, -e NAME, --json and --color: see `ductworkd --help`.

{before-help}";

/// These verbs print nothing that has a form for programs.
const FOR_PEOPLE: [&str; 2] = ["top", "completions"];

/// The words of other tools, and the verbs that do here as they say there.
const ELSEWHERE: [(&[&str], &[&str]); 17] = [
    (&["new", "create", "setup"], &["init"]),
    (&["doctor", "validate", "lint", "config"], &["check"]),
    (&["upgrade", "db"], &["migrate"]),
    (&["daemon", "serve", "server", "up", "worker"], &["start"]),
    (&["dashboard", "ui", "web"], &["console"]),
    (&["add", "enqueue", "push", "submit"], &["trigger"]),
    (&["list", "ls", "jobs", "history"], &["runs"]),
    (&["describe", "get", "info", "inspect"], &["show"]),
    (&["log", "tail"], &["logs"]),
    (&["diagnose", "explain"], &["why"]),
    (&["ps", "workers"], &["processes"]),
    (&["status", "ping"], &["health", "processes"]),
    (&["stats"], &["top", "metrics"]),
    (&["rerun", "retry"], &["revive"]),
    (&["kill", "abort"], &["cancel", "pause"]),
    (&["drain", "quiet"], &["pause"]),
    (&["clean", "delete", "gc", "purge", "rm"], &["prune"]),
];

/// The words of other tools for which there is no verb, and the other way. A similar verb would mislead: `cancel` ends a
/// run for good.
const OTHERWISE: [(&[&str], &str); 4] = [
    (
        &["stop", "shutdown", "quit"],
        "to stop the daemon, send it TERM; `ductworkd cancel RUN` ends a run for good",
    ),
    (
        &["restart"],
        "to restart the daemon, send it TERM and start it again; to reload its configuration, send it HUP",
    ),
    (
        &["reload"],
        "to reload the configuration, send HUP to the daemon",
    ),
    (
        &["schedule", "cron"],
        "Ductwork has no schedules: let cron or a systemd timer call `ductworkd trigger NAME`",
    ),
];

/// The options that `run` and `trigger` may be expected to have, and the other way.
const NO_OPTIONS: [(&[&str], &str); 2] = [
    (
        &["--after", "--at", "--in", "--when"],
        "to start a run later, `ductworkd trigger` has `--delay 2h`; for a time of day, let cron or a systemd timer call it",
    ),
    (
        &["--timeout"],
        "each step has its own `timeout: 5m`, in the pipeline's file",
    ),
];

/// The same mistake, with the way to do what an option was meant to do that does not exist.
fn without_option(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let mut known = NO_OPTIONS.iter();
    let way = known.find(|(options, _)| options.contains(&option.as_str()));
    let is_of_run = |arg: &OsString| arg == "run" || arg == "trigger";
    if let Some((_, way)) = way.filter(|_| args.iter().any(is_of_run)) {
        let _similar = error.remove(ContextKind::SuggestedArg);
        let way = ContextValue::StyledStrs(vec![(*way).into()]);
        let _as_value = error.insert(ContextKind::Suggested, way);
    }
    error
}

/// A mistake in these arguments, with the verbs for a word of another tool where a verb is expected.
pub fn hinted(error: clap::Error, args: &[OsString]) -> clap::Error {
    let mut error = without_option(error, args);
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let word = word.clone();
    // The daemon's own verbs are no advice.
    if let Some(ContextValue::Strings(similar)) = error.remove(ContextKind::SuggestedSubcommand) {
        let hidden = [start::CHILD_VERB, watcher::VERB];
        let shown = similar
            .into_iter()
            .filter(|verb| !hidden.contains(&verb.as_str()));
        let shown: Vec<String> = shown.collect();
        if !shown.is_empty() {
            let similar = ContextValue::Strings(shown);
            let _removed = error.insert(ContextKind::SuggestedSubcommand, similar);
        }
    }
    if super::verbs().any(|verb| args.iter().any(|arg| *arg == *verb)) {
        return error;
    }
    let mut known = OTHERWISE.iter();
    if let Some((_, way)) = known.find(|(words, _)| words.contains(&word.as_str())) {
        let _similar = error.remove(ContextKind::SuggestedSubcommand);
        let way = ContextValue::StyledStrs(vec![(*way).into()]);
        let _none = error.insert(ContextKind::Suggested, way);
        return error;
    }
    let mut known = ELSEWHERE.iter();
    if let Some((_, verbs)) = known.find(|(words, _)| words.contains(&word.as_str())) {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let _similar = error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(verbs),
        );
    }
    error
}

/// The command line, with its help in this order and with these colours.
pub fn command(colour: ColorChoice) -> Command {
    // Verbs get it when they are built.
    let mut command = Cli::command().color(colour);
    // Only after this does each verb have the global options.
    command.build();
    let template = of_program(&command);
    command.mut_subcommands(of_verb).help_template(template)
}

fn of_verb(verb: Command) -> Command {
    if verb.get_name() == "help" {
        return verb;
    }
    let is_of_all = |arg: &Arg| OF_ALL.iter().any(|option| arg.get_id() == option);
    let verb = verb.mut_args(|arg| match is_of_all(&arg) {
        true => arg.hide(true),
        false => arg,
    });
    let examples = verb
        .get_before_long_help()
        .map(|it| joined(&it.to_string()));
    let verb = match examples {
        Some(examples) => verb.before_long_help(examples),
        None => verb,
    };
    let template = match FOR_PEOPLE.contains(&verb.get_name()) {
        true => OF_A_VERB.replace("-e NAME, --json and --color", "-e NAME and --color"),
        false => OF_A_VERB.to_owned(),
    };
    verb.mut_subcommands(of_verb).help_template(template)
}

/// Joins each paragraph of prose into one line, which is wrapped at the terminal's width. Examples are
/// indented, and stay as they are.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut prose = false;
    for line in text.lines() {
        let continues = !line.is_empty() && !line.starts_with(' ');
        if !joined.is_empty() {
            joined.push(if prose && continues { ' ' } else { '\n' });
        }
        joined.push_str(line);
        prose = continues;
    }
    joined
}

fn of_program(command: &Command) -> String {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (heading, verbs) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for name in verbs {
            let about = command
                .find_subcommand(name)
                .and_then(Command::get_about)
                .map(ToString::to_string);
            text.push_str(&format!("  {name:<12} {}\n", about.unwrap_or_default()));
        }
        text.push('\n');
    }
    text.push_str("Options:\n{options}{after-help}\n\n{before-help}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_and_nothing_else_is() {
        let mut command = Cli::command();
        command.build();
        let mut there: Vec<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut told: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, verbs)| verbs.iter().copied())
            .collect();
        there.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, there);
    }

    #[test]
    fn a_word_of_another_tool_leads_to_a_verb_where_a_verb_is_expected() {
        let told = |args: &[&str]| {
            let args = args.iter().map(OsString::from).collect::<Vec<_>>();
            let error = command(ColorChoice::Never).try_get_matches_from(&args);
            hinted(error.unwrap_err(), &args).to_string()
        };
        let verbs: Vec<String> = super::super::verbs().collect();
        for (words, leads) in ELSEWHERE {
            for word in words {
                assert!(!verbs.iter().any(|verb| verb == word), "{word}");
                let told = told(&["ductworkd", word]);
                for verb in leads {
                    assert!(verbs.iter().any(|it| it == verb), "{verb}");
                    assert!(told.contains(&format!("'{verb}'")), "{told}");
                }
            }
        }
        for (words, way) in OTHERWISE {
            for word in words {
                assert!(!verbs.iter().any(|verb| verb == word), "{word}");
                let told = told(&["ductworkd", word]);
                assert!(told.contains(&format!("tip: {way}\n")), "{told}");
                assert!(!told.contains("similar"), "{told}");
            }
        }
        for (options, way) in NO_OPTIONS {
            for (option, verb) in options.iter().zip(["run", "trigger"].iter().cycle()) {
                let told = told(&["ductworkd", verb, "Hello", option, "5"]);
                assert!(told.contains(&format!("tip: {way}\n")), "{told}");
                assert!(!told.contains("as a value"), "{told}");
            }
        }
        let nested = told(&["ductworkd", "token", "rm"]);
        assert!(!nested.contains("prune"), "{nested}");
        let similar = told(&["ductworkd", "wat"]);
        assert!(
            similar.contains("'watch'") && !similar.contains("watcher"),
            "{similar}"
        );
    }

    #[test]
    fn a_line_of_the_list_fits_a_terminal() {
        for line in of_program(&Cli::command()).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn an_example_fits_a_terminal_and_prose_is_broken_nowhere_but_at_its_end() {
        let mut verbs = vec![command(ColorChoice::Auto)];
        while let Some(verb) = verbs.pop() {
            verbs.extend(verb.get_subcommands().cloned());
            let Some(examples) = verb.get_before_long_help().map(ToString::to_string) else {
                continue;
            };
            for line in examples.lines().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= 80, "{}: {line}", verb.get_name());
            }
            assert_eq!(
                joined(&examples),
                examples.trim_end(),
                "{}",
                verb.get_name()
            );
        }
        let text = "Examples:\n  one\n  two\n\nThis goes\non.\n\nThis is\nanother.";
        let broken = "Examples:\n  one\n  two\n\nThis goes on.\n\nThis is another.";
        assert_eq!(joined(text), broken);
    }

    #[test]
    fn the_command_line_is_sound() {
        command(ColorChoice::Auto).debug_assert();
    }
}
