//! The settings of a step in a pipeline file.
//!
//! Owns: reading these settings. Never: judges values that can be read (`check`).

use super::{Field, Reader};
use crate::definition::builder::{Declared, Name};
use crate::definition::check::{MAX_BUDGET, as_list, shown};
use crate::definition::graph::{Backoff, StepRunner, StepSpec};
use crate::definition::schema::{BACKOFF_KEYS, PLANNED_RUNNERS, SECRET_KEYS, STEP_KEYS};
use crate::definition::tree::{Tree, Value};
use crate::problem::meant;

/// How to do without a kind of step that does not exist yet.
fn planned_runner(key: &str) -> Option<&'static str> {
    let mut planned = PLANNED_RUNNERS.iter();
    planned
        .find(|(kind, _)| *kind == key)
        .map(|(_, help)| *help)
}

impl Reader {
    /// Reads a step; its command may be beside it by mistake.
    pub(super) fn step(&mut self, name: Name, tree: &Tree, is_beside: bool) -> Declared {
        let at = name.place.unwrap_or(tree.place);
        let of = shown(name.text.as_deref().unwrap_or("?"));
        let mut declared = Declared {
            name,
            spec: StepSpec::native(),
            places: Vec::new(),
        };
        let help = "write a map: `{ command: [program, argument] }`";
        let entries = match &tree.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => {
                let message = format!("step {of} must be a map, not {}", tree.what());
                self.report(tree.place, message, help);
                return declared;
            }
        };
        let (planned, entries): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|(key, _)| {
            key.scalar()
                .is_some_and(|key| planned_runner(key).is_some())
        });
        for (key, _) in &planned {
            let kind = key.scalar().unwrap_or_default();
            let message = format!("`{kind}` steps are not supported by this version yet");
            let help = planned_runner(kind).unwrap_or_default();
            self.report(key.place, message, help);
        }
        let mut runner: Option<&str> = None;
        for field in self.fields(&entries, &STEP_KEYS, "a step") {
            declared
                .places
                .push((field.key.to_owned(), field.value.place));
            let spec = &mut declared.spec;
            if matches!(field.key, "command" | "native") {
                if let Some(other) = runner {
                    let message = format!("step {of} has both `{other}` and `{}`", field.key);
                    self.report(field.at, message, "keep the one that should run");
                }
                runner = Some(field.key);
            }
            match field.key {
                "command" => {
                    if let Some(argv) = self.command(field.value) {
                        spec.run = StepRunner::Command(argv);
                    }
                }
                "native" => self.native(field.value),
                "timeout" => spec.timeout = self.duration(&field),
                "delay" => spec.delay = self.duration(&field),
                "max_retry" => spec.max_retry = self.count(&field),
                "max_crash" => spec.max_crash = self.count(&field),
                "backoff" => self.backoff(field.value, &mut declared),
                "env" => self.env(field.value, &mut declared),
                _ => spec.cwd = self.text(&field),
            }
        }
        // One mistake is enough: it is unknown what the wrong kind of step would be.
        let misspelt = |key: &Tree| {
            let meant = key.scalar().and_then(|key| meant(key, STEP_KEYS));
            meant.is_some_and(|meant| ["command", "native"].contains(&meant))
        };
        let misspelt = runner.is_none() && entries.iter().any(|(key, _)| misspelt(key));
        if runner.is_none() && planned.is_empty() && !misspelt && !is_beside {
            let message = format!("step {of} does not say what runs");
            self.report(at, message, help);
        }
        if runner != Some("native") && declared.spec.run == StepRunner::Native {
            // The step is not native, only unreadable; its `env` and `cwd` must not be blamed for
            // that.
            declared.spec.env.clear();
            declared.spec.secrets.clear();
            declared.spec.cwd = None;
        }
        declared
    }

    fn command(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let help = "write the program and its arguments: `[python3, step.py]`";
        match &tree.value {
            Value::Text(program) if program.contains(char::is_whitespace) => {
                let message = "a command is not a line for a shell";
                self.report(tree.place, message, as_list(program));
                None
            }
            Value::Text(program) => Some(vec![program.clone()]),
            Value::List(items) => {
                let before = self.findings.len();
                let mut argv = Vec::new();
                for item in items {
                    match item.scalar() {
                        Some(text) => argv.push(text.to_owned()),
                        None => {
                            let message = format!("{} cannot be an argument", item.what());
                            let help =
                                "an argument is a text; quote it, or write `\"\"` for an empty one";
                            self.report(item.place, message, help);
                        }
                    }
                }
                (self.findings.len() == before).then_some(argv)
            }
            _ => {
                let message = format!("a command must be a list, not {}", tree.what());
                self.report(tree.place, message, help);
                None
            }
        }
    }

    fn native(&mut self, tree: &Tree) {
        let fine = match &tree.value {
            Value::Bool(text) => text.eq_ignore_ascii_case("true"),
            Value::Map(entries) => entries.is_empty(),
            _ => false,
        };
        if !fine {
            let help = "write `native: true` for a step of the program that embeds the library";
            self.report(tree.place, "`native` has no settings", help);
        }
    }

    fn count(&mut self, field: &Field<'_>) -> Option<u32> {
        let count = match &field.value.value {
            Value::Number(text) => text.parse().ok().filter(|count| *count <= MAX_BUDGET),
            _ => None,
        };
        if count.is_none() {
            let message = format!("`{}` is not a number from 0 to {MAX_BUDGET}", field.key);
            self.report(
                field.value.place,
                message,
                "write a whole number, without quotes",
            );
        }
        count
    }

    fn fraction(&mut self, field: &Field<'_>) -> Option<f64> {
        let number = match &field.value.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let message = format!("`{}` is not a number", field.key);
            self.report(field.value.place, message, "write a number such as `0.5`");
        }
        number
    }

    fn text(&mut self, field: &Field<'_>) -> Option<String> {
        let text = field.value.scalar().map(str::to_owned);
        if text.is_none() {
            let message = format!("`{}` must be a text, not {}", field.key, field.value.what());
            self.report(field.value.place, message, "write it after the colon");
        }
        text
    }

    fn backoff(&mut self, tree: &Tree, declared: &mut Declared) {
        let Value::Map(entries) = &tree.value else {
            let message = format!("`backoff` must be a map, not {}", tree.what());
            let help = "write `{ initial: 10s, factor: 2, max: 1h, jitter: 0.1 }`";
            return self.report(tree.place, message, help);
        };
        let mut backoff = Backoff::default();
        let mut longest = None;
        let before = self.findings.len();
        for field in self.fields(entries, &BACKOFF_KEYS, "a backoff") {
            let place = field.value.place;
            declared
                .places
                .push((format!("backoff.{}", field.key), place));
            match field.key {
                "initial" => backoff.initial = self.duration(&field).unwrap_or_default(),
                "max" => longest = self.duration(&field),
                "factor" => backoff.factor = self.fraction(&field).unwrap_or(1.0),
                _ => backoff.jitter = self.fraction(&field).unwrap_or_default(),
            }
        }
        // A long first wait without a bound of its own is meant literally.
        backoff.max = longest.unwrap_or(backoff.max.max(backoff.initial));
        if self.findings.len() == before {
            declared.spec.backoff = Some(backoff);
        }
    }

    fn env(&mut self, tree: &Tree, declared: &mut Declared) {
        let Value::Map(entries) = &tree.value else {
            let message = format!("`env` must be a map, not {}", tree.what());
            return self.report(tree.place, message, "write `{ NAME: value }`");
        };
        for (key, value) in entries {
            if let (Some(name), Value::Map(entries)) = (key.scalar(), &value.value) {
                declared.places.push((format!("env.{name}"), key.place));
                self.secret(name, value, entries, declared);
                continue;
            }
            let (Some(name), Some(text)) = (key.scalar(), value.scalar()) else {
                let wrong = if key.scalar().is_none() { key } else { value };
                let message = format!("`env` needs a string here, and has {}", wrong.what());
                let help = "quote it; an empty value is written `\"\"`";
                self.report(wrong.place, message, help);
                continue;
            };
            declared.places.push((format!("env.{name}"), key.place));
            declared.spec.env.insert(name.to_owned(), text.to_owned());
        }
    }

    fn secret(
        &mut self,
        variable: &str,
        tree: &Tree,
        entries: &[(Tree, Tree)],
        declared: &mut Declared,
    ) {
        let before = self.findings.len();
        let mut secret = None;
        for field in self.fields(entries, &SECRET_KEYS, "a variable of `env`") {
            secret = self.text(&field);
        }
        match secret {
            Some(secret) => {
                declared.spec.secrets.insert(variable.to_owned(), secret);
            }
            None if self.findings.len() == before => {
                let message = format!("{} names no secret", shown(variable));
                self.report(
                    tree.place,
                    message,
                    "write `{ secret: NAME }`, or the value itself",
                );
            }
            None => {}
        }
    }
}
