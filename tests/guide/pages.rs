//! The pages that repeat the program's own texts: the command line and the keys of the
//! configuration.
//!
//! Owns: the layout of these pages. Never: words of its own about a verb or a key.

use std::process::Command;

use ductwork::metrics::METRICS;

use super::book::{read, root, source};

/// The answer of the program to these arguments.
pub fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ductworkd"));
    let output = command.args(arguments).env("COLUMNS", "96").output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The verbs that its help lists.
pub fn verbs(help: &str) -> Vec<String> {
    let verb = |line: &str| {
        let rest = line.strip_prefix("  ")?;
        let (name, about) = rest.split_once("  ")?;
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase());
        let is_verb = is_name(name) && !name.is_empty() && name != "ductworkd";
        (is_verb && !about.is_empty()).then(|| name.to_owned())
    };
    let verbs: Vec<String> = help.lines().filter_map(verb).collect();
    assert!(verbs.len() > 15, "{verbs:?}");
    verbs
}

const NOTICE: &str =
    "*This page is written by `tests/guide` (`DUCTWORK_BLESS=1`), from what the program says.*";

pub fn command_line() -> String {
    let whole = help(&["--help"]);
    let mut page = format!("# Command line\n\n{NOTICE}\n\n```text\n{whole}\n```\n");
    for verb in verbs(&whole).iter().filter(|verb| *verb != "help") {
        let help = help(&[verb, "--help"]);
        page.push_str(&format!("\n## {verb}\n\n```text\n{help}\n```\n"));
        // The help of a verb with subcommands lists them in the same form.
        let inner = help.split_once("Commands:\n").map(|(_, rest)| rest);
        let inner = inner.and_then(|rest| rest.split("\n\n").next());
        for line in inner.unwrap_or_default().lines() {
            let name = line.split_whitespace().next().unwrap_or("help");
            if name != "help" {
                let help = self::help(&[verb, name, "--help"]);
                page.push_str(&format!("\n### {verb} {name}\n\n```text\n{help}\n```\n"));
            }
        }
    }
    page
}

/// The page on metrics, whose table is made from the program's list.
pub fn metrics() -> String {
    const HEADING: &str = "\n## All metrics\n";
    let page = read(&source().join("metrics.md"));
    let (before, _) = page.split_once(HEADING).expect("the heading");
    let mut page =
        format!("{before}{HEADING}\n| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|it| format!("`{it}`")).collect();
        let (name, kind, labels) = (metric.full_name(), metric.kind.as_str(), labels.join(" "));
        page.push_str(&format!(
            "| `{name}` | {kind} | {labels} | {} |\n",
            metric.help
        ));
    }
    page
}

/// A key of `config/ductwork.yml` with the comment before it.
struct Key {
    path: Vec<String>,
    value: String,
    about: String,
}

fn keys() -> Vec<Key> {
    let text = read(&root().join("config/ductwork.yml"));
    let (_, text) = text
        .split_once("\ndefault: &default\n")
        .expect("the section");
    let (text, _) = text.split_once("\ndevelopment:").expect("the next section");
    let mut path: Vec<String> = Vec::new();
    let mut about = String::new();
    let mut keys = Vec::new();
    for line in text.lines() {
        let inner = line.trim_start();
        if let Some(comment) = inner.strip_prefix("# ") {
            about.push_str(if about.is_empty() { "" } else { " " });
            match comment.strip_prefix("  ") {
                Some(example) => about.push_str(&format!("`{example}`")),
                None => about.push_str(comment),
            }
            continue;
        }
        let Some((key, value)) = inner.split_once(':') else {
            about.clear();
            continue;
        };
        path.truncate((line.len() - inner.len()) / 2 - 1);
        path.push(key.to_owned());
        keys.push(Key {
            path: path.clone(),
            value: value.trim().to_owned(),
            about: std::mem::take(&mut about),
        });
    }
    assert!(keys.len() > 30, "only {} keys", keys.len());
    keys
}

impl Key {
    /// The sample's value may differ from the default, and its comment says so then.
    fn default(&self) -> &str {
        let told = self.about.split_once(" (the default)");
        let quoted = told.and_then(|(before, _)| before.split('`').nth_back(1));
        quoted.unwrap_or(&self.value)
    }

    fn entry(&self) -> String {
        let name = self.path.join(".");
        // A star is an ordinary character here.
        let about = self.about.replace('*', "\\*");
        if self.value.is_empty() {
            let about = if about.is_empty() {
                about
            } else {
                format!("\n{about}\n")
            };
            return format!("\n### `{name}`\n{about}");
        }
        let variable = self.path.join("__").to_uppercase();
        format!(
            "\n**`{name}`** · default `{}` · `DUCTWORK_{variable}`\n\n{about}\n",
            self.default()
        )
    }
}

pub fn configuration_keys() -> String {
    let mut page = format!(
        "# Every key of the configuration\n\n{NOTICE}\n\nThe same list, as a file to begin with, is \
         `config/ductwork.yml`. The variable of a key overrides the file.\n\n## At the top\n"
    );
    let keys = keys();
    let is_alone = |key: &&Key| key.path.len() == 1 && !key.value.is_empty();
    for key in keys.iter().filter(is_alone) {
        page.push_str(&key.entry());
    }
    for key in keys.iter().filter(|key| !is_alone(key)) {
        let entry = match key.path.as_slice() {
            [section] if key.about.is_empty() => format!("\n## `{section}`\n"),
            [section] => format!("\n## `{section}`\n\n{}\n", key.about),
            _ => key.entry(),
        };
        page.push_str(&entry);
    }
    page
}
