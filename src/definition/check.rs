//! Everything that can be wrong with a pipeline, found at once.
//!
//! Owns: the rules of names, steps and transitions, and the limits. Never: reads YAML
//! (`yaml` reports what cannot even be read) or makes the graph (`canonical`).
//! Tested in `builder` for Rust, and in `yaml` with the place of every problem.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::builder::{Declared, Draft, Item, Kind, Name, Path, Question, To, Undeclared};
use super::graph::StepRunner;
use super::tree::Tree;
use super::{input, variables};
use crate::yaml::Mark;
use crate::{duration, problem};

/// The deepest nesting of transitions: paths in paths, and open expands.
pub const MAX_DEPTH: usize = 64;
/// The most nodes in one definition.
pub const MAX_NODES: usize = 10_000;
/// The most characters in a pipeline's or step's name.
pub const MAX_NAME: usize = 128;
/// Upper bound of `max_retry` and `max_crash`. The database keeps these counters in 32 bits; a
/// million attempts is as good as unlimited.
pub const MAX_BUDGET: u32 = 1_000_000;
/// Upper bound of a backoff's `factor`.
pub const MAX_FACTOR: f64 = 1_000.0;

/// The name under which metrics count all pipelines, or steps, that have no row of their own.
const OTHER: &str = "_other";

/// The name of dampen nodes, and the key of a divert's fallback.
const DAMPEN: &str = "dampen";
const OTHERWISE: &str = "otherwise";

/// The search for similar names costs the product of both lists; nobody reads more suggestions than
/// this.
const MAX_SUGGESTIONS: usize = 50;

/// One mistake, not yet tied to a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub place: Option<Mark>,
    pub message: String,
    pub help: Option<String>,
}

/// Everything that is wrong with `draft`.
pub(super) fn check(draft: &Draft) -> Vec<Finding> {
    let mut check = Check {
        draft,
        declared: HashSet::new(),
        used: HashSet::new(),
        nodes: 0,
        suggestions: 0,
        started: false,
        complete: true,
        findings: Vec::new(),
    };
    check.name(&draft.name, "pipeline");
    if let Some(tree) = &draft.input {
        check.findings.extend(input::read::read(tree).1);
    }
    check.steps();
    for name in draft.hooks.values() {
        check.step_named(name);
    }
    if let Some(items) = &draft.flow {
        check.flow(items);
        check.unused();
    }
    check.findings
}

struct Check<'a> {
    draft: &'a Draft,
    declared: HashSet<&'a str>,
    used: HashSet<&'a str>,
    nodes: usize,
    suggestions: usize,
    started: bool,
    /// False once a part of the flow was skipped, because then unused steps cannot be determined.
    complete: bool,
    findings: Vec<Finding>,
}

impl<'a> Check<'a> {
    fn report(&mut self, place: Option<Mark>, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding {
            place,
            message: message.into(),
            help: Some(help.into()),
        });
    }

    /// Whether `name` is a legal name. `whose` is `pipeline` or `step`.
    fn name(&mut self, name: &Name, whose: &str) -> bool {
        let Some(text) = &name.text else {
            return false;
        };
        if text == OTHER {
            let message = format!("`{OTHER}` cannot be the name of a {whose}");
            let help =
                "metrics use this name for everything that has no row of its own; choose another";
            self.report(name.place, message, help);
            return false;
        }
        let mut chars = text.chars();
        let starts = chars
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        let goes_on = chars.all(|char| char.is_ascii_alphanumeric() || "_-".contains(char));
        if starts && goes_on && text.len() <= MAX_NAME {
            return true;
        }
        let message = if text.is_empty() {
            format!("the {whose}'s name is empty")
        } else if starts && goes_on {
            format!("the {whose}'s name is longer than {MAX_NAME} characters")
        } else {
            format!("{} is not a name for a {whose}", shown(text))
        };
        let help = format!(
            "a name begins with a letter or `_` and goes on with letters, digits, `_` and `-` \
             (ASCII, at most {MAX_NAME} characters)"
        );
        self.report(name.place, message, help);
        false
    }

    /// The declared steps, each on its own.
    fn steps(&mut self) {
        let mut first_at: HashMap<&str, Option<Mark>> = HashMap::new();
        for declared in &self.draft.declared {
            if !self.name(&declared.name, "step") {
                continue;
            }
            let Some(name) = declared.name.text.as_deref() else {
                continue;
            };
            if name == DAMPEN {
                let message = "`dampen` is the transition, and cannot be a step's name";
                self.report(declared.name.place, message, "call the step something else");
            }
            if let Some(first) = first_at.insert(name, declared.name.place) {
                let before = first.map_or(String::new(), |at| format!(" in line {}", at.line));
                let message = format!("step `{name}` is declared twice");
                let help = format!("it is declared{before} already; remove one of the two");
                self.report(declared.name.place, message, help);
            }
            self.declared.insert(name);
            self.settings(declared);
        }
    }

    /// The settings of one step.
    fn settings(&mut self, declared: &Declared) {
        let spec = &declared.spec;
        match &spec.run {
            StepRunner::Command(argv) => {
                let place = declared.place("command");
                if argv.first().is_none_or(String::is_empty) {
                    let message = "the command is empty";
                    let help = "write the program and its arguments: `command: [python3, step.py]`";
                    self.report(place, message, help);
                }
                if argv.iter().any(|argument| argument.contains('\0')) {
                    let message =
                        "the command contains a NUL character, which cannot be passed to a program";
                    self.report(place, message, "remove it, or pass it in the step's input");
                }
            }
            StepRunner::Native => {
                let variables = !(spec.env.is_empty() && spec.secrets.is_empty());
                for (key, given) in [("env", variables), ("cwd", spec.cwd.is_some())] {
                    if given {
                        let message = format!("`{key}` has no meaning for a native step");
                        let help = format!("remove `{key}`; it belongs to a command");
                        self.report(declared.place(key), message, help);
                    }
                }
            }
        }
        if spec.timeout.is_some_and(|timeout| timeout < MILLISECOND) {
            let message = "`timeout` is zero";
            let help = "leave it out: then `job_worker.timeout` of the configuration holds, which is without limit by default";
            self.report(declared.place("timeout"), message, help);
        }
        for (key, span) in [("timeout", spec.timeout), ("delay", spec.delay)] {
            self.span(declared.place(key), key, span.unwrap_or_default());
        }
        for (key, count) in [("max_retry", spec.max_retry), ("max_crash", spec.max_crash)] {
            if count.is_some_and(|count| count > MAX_BUDGET) {
                let message = format!("`{key}` is above {MAX_BUDGET}");
                let help = format!("write a number from 0 to {MAX_BUDGET}");
                self.report(declared.place(key), message, help);
            }
        }
        self.backoff(declared);
        for name in spec.env.keys().chain(spec.secrets.keys()) {
            if name.is_empty() || name.contains(['=', '\0']) {
                let message = format!("{} cannot be an environment variable", shown(name));
                let help = "its name must not be empty, nor contain `=` or NUL";
                self.report(declared.place(&format!("env.{name}")), message, help);
            }
        }
        for name in spec.env.keys().chain(spec.secrets.keys()) {
            if variables::OF_THE_WORKER.contains(&name.as_str()) {
                let message = format!("`{name}` is a variable that the worker gives to the step");
                let help = "take another name";
                self.report(declared.place(&format!("env.{name}")), message, help);
            }
        }
        for (name, secret) in &spec.secrets {
            if !variables::is_name(secret) {
                let message = format!("{} cannot be the name of a secret", shown(secret));
                let help = "name the variable that holds it: letters, digits and `_`; the value itself \
                            never belongs here";
                self.report(declared.place(&format!("env.{name}")), message, help);
            }
        }
        for (name, value) in &spec.env {
            let place = declared.place(&format!("env.{name}"));
            for mistake in variables::mistakes(value) {
                let message = format!("the value of {}: {}", shown(name), mistake.message);
                self.report(place, message, mistake.help);
            }
            if value.contains('\0') {
                let message = format!("the value of {} contains NUL", shown(name));
                self.report(place, message, "no environment can hold it; remove it");
            }
        }
        if spec
            .cwd
            .as_ref()
            .is_some_and(|cwd| cwd.is_empty() || cwd.contains('\0'))
        {
            let message = "`cwd` is not a directory's name";
            let help = "write a path, relative to the directory of the configuration";
            self.report(declared.place("cwd"), message, help);
        }
    }

    fn backoff(&mut self, declared: &Declared) {
        let Some(backoff) = declared.spec.backoff else {
            return;
        };
        for (key, span) in [("initial", backoff.initial), ("max", backoff.max)] {
            self.span(declared.place(&format!("backoff.{key}")), key, span);
        }
        // Written so that NaN is refused as well.
        if !(backoff.factor >= 1.0 && backoff.factor <= MAX_FACTOR) {
            let message = format!("`factor` is {}", backoff.factor);
            let help = format!("write a number from 1, for a constant wait, to {MAX_FACTOR}");
            self.report(declared.place("backoff.factor"), message, help);
        }
        if !(backoff.jitter >= 0.0 && backoff.jitter <= 1.0) {
            let message = format!("`jitter` is {}", backoff.jitter);
            let help = "write a fraction of the wait, from 0 to 1";
            self.report(declared.place("backoff.jitter"), message, help);
        }
        if backoff.initial > backoff.max {
            let message = "`initial` is longer than `max`";
            let help = "raise `max` of the backoff, or shorten `initial`";
            self.report(declared.place("backoff.initial"), message, help);
        }
    }

    fn span(&mut self, place: Option<Mark>, key: &str, span: Duration) {
        if span > duration::LONGEST {
            let message = format!("`{key}` is longer than 100 years");
            self.report(place, message, duration::NOTATION);
        }
    }

    /// The whole flow: its start, and everything after it.
    fn flow(&mut self, items: &'a [Item]) {
        let Some((first, rest)) = items.split_first() else {
            let message = "the flow is empty";
            return self.report(None, message, "begin it with `- start: SomeStep`");
        };
        if let Kind::Start(to) = &first.kind {
            self.started = true;
            self.to(to);
            return self.list(rest, 0);
        }
        let later = rest.iter().any(|item| matches!(item.kind, Kind::Start(_)));
        if !later && !matches!(first.kind, Kind::Broken) {
            let message = "the flow does not begin with `start`";
            self.report(first.place, message, "begin it with `- start: SomeStep`");
        }
        self.list(items, 0);
    }

    /// The items after a step, up to the end of its list, which is nested `depth` levels deep.
    fn list(&mut self, items: &'a [Item], depth: usize) {
        let mut open_expands = 0;
        let mut before = None;
        let mut too_deep = false;
        for item in items {
            self.order(before, item, open_expands);
            let depth = depth + open_expands + 1;
            match &item.kind {
                Kind::Start(to) | Kind::Chain(to) | Kind::Combine(to) | Kind::Converge(to) => {
                    self.to(to);
                }
                Kind::Expand(to) => {
                    open_expands += 1;
                    if depth > MAX_DEPTH && !too_deep {
                        // Once per list: the items inside it are nested even deeper.
                        too_deep = true;
                        self.too_deep(item.place);
                    }
                    self.to(to);
                }
                Kind::Collapse(to) => {
                    open_expands = open_expands.saturating_sub(1);
                    self.to(to);
                }
                Kind::Divide(paths) => {
                    if paths.is_empty() {
                        let message = "the divide has no paths";
                        let help = "list at least one step: `- divide: [StepA, StepB]`";
                        self.report(item.place, message, help);
                    }
                    self.paths(paths.iter(), item.place, depth);
                }
                Kind::Divert { cases, otherwise } => {
                    self.divert(item.place, cases, otherwise.as_ref());
                    let paths = cases.iter().map(|(_, path)| path).chain(otherwise);
                    self.paths(paths, item.place, depth);
                }
                Kind::Dampen(question) => {
                    self.node(item.place);
                    self.question(question);
                }
                Kind::Broken => self.complete = false,
            }
            before = Some(&item.kind);
        }
    }

    /// Whether `item` may stand after `before` in its list.
    fn order(&mut self, before: Option<&Kind>, item: &Item, open_expands: usize) {
        let place = item.place;
        match (before, &item.kind) {
            // An item that could not be read has already been reported, and may have been anything.
            (_, Kind::Broken) | (Some(Kind::Broken), _) => {}
            (_, Kind::Start(_)) if !self.started => {
                self.started = true;
                let message = "`start` is not at the front of the flow";
                self.report(place, message, "move it there; nothing runs before it");
            }
            (_, Kind::Start(_)) => {
                let message = "a second `start`";
                let help = "a flow has one start, at its front; write `chain` for the next step";
                self.report(place, message, help);
            }
            (Some(Kind::Divide(_)), Kind::Combine(_))
            | (Some(Kind::Divert { .. }), Kind::Converge(_)) => {}
            (Some(Kind::Divide(_)), kind) => {
                let verb = kind.verb();
                let message =
                    format!("`{verb}` cannot follow a divide: only `combine` can, or nothing");
                let help = format!(
                    "add a `combine` before it, or write what one path does in that path's own \
                     list: `- [SomeStep, {{ {verb}: … }}]`"
                );
                self.report(place, message, help);
            }
            (Some(Kind::Divert { .. }), kind) => {
                let verb = kind.verb();
                let message =
                    format!("`{verb}` cannot follow a divert: only `converge` can, or nothing");
                let help = format!(
                    "add a `converge` before it, or write what one path does in that path's own \
                     list: `key: [SomeStep, {{ {verb}: … }}]`"
                );
                self.report(place, message, help);
            }
            (_, Kind::Combine(_)) => {
                let message = "`combine` without a divide directly before it";
                let help = match open_expands {
                    0 => "write `chain` for the next step, or `divide` before it",
                    _ => "write `collapse` to wait for the branches of an expand",
                };
                self.report(place, message, help);
            }
            (_, Kind::Converge(_)) => {
                let message = "`converge` without a divert directly before it";
                let help = "write `chain` for the next step, or `divert` before it";
                self.report(place, message, help);
            }
            (_, Kind::Collapse(_)) if open_expands == 0 => {
                let message = "`collapse` without an open expand in the same list";
                let help = "add an `expand` before it; if the `expand` stands outside this path's list, put \
                            the `collapse` outside as well";
                self.report(place, message, help);
            }
            _ => {}
        }
    }

    fn divert(&mut self, place: Option<Mark>, cases: &'a [(Name, Path)], otherwise: Option<&Path>) {
        if otherwise.is_none() && cases.is_empty() {
            let message = "the divert has no paths";
            let help = "write `- divert: { some: StepA, otherwise: StepB }`";
            return self.report(place, message, help);
        }
        if otherwise.is_none() {
            let message = "the divert has no `otherwise`";
            let help = "say where an output that matches no key goes: `otherwise: SomeStep`";
            self.report(place, message, help);
        }
        if cases.is_empty() {
            let message = "the divert has nothing to choose from";
            let help = "write at least one key besides `otherwise`, or `chain` if there is one way";
            self.report(place, message, help);
        }
        let mut seen = HashSet::new();
        for (when, _) in cases {
            let Some(text) = &when.text else {
                continue;
            };
            if text == OTHERWISE {
                let message = "`otherwise` is the fallback, and cannot be a case";
                self.report(when.place, message, "pass its path as the fallback");
            }
            if !seen.insert(text) {
                let message = format!("the divert has the key {} twice", shown(text));
                self.report(when.place, message, "remove one of the two");
            }
        }
    }

    fn paths(&mut self, paths: impl Iterator<Item = &'a Path>, place: Option<Mark>, depth: usize) {
        if depth > MAX_DEPTH {
            // How deep this recursion goes must not depend on the author of the file.
            self.complete = false;
            return self.too_deep(place);
        }
        for path in paths {
            self.to(&path.first);
            self.list(&path.items, depth);
        }
    }

    fn too_deep(&mut self, place: Option<Mark>) {
        let message = format!("transitions are nested more than {MAX_DEPTH} deep");
        let help = "collapse an expand earlier, or move a part into a pipeline of its own";
        self.report(place, message, help);
    }

    /// A transition's target.
    fn to(&mut self, to: &'a To) {
        self.node(to.step.place);
        self.span(to.step.place, "delay", to.delay.unwrap_or_default());
        self.step_named(&to.step);
    }

    fn question(&mut self, question: &Question) {
        match (question.timeout, question.then) {
            (Some(timeout), _) if timeout < MILLISECOND => {
                let help = "give a person some time, for example `timeout: 3d`, or leave it out to wait without limit";
                self.report(
                    question.place,
                    "a question with a timeout of 0 cannot be answered",
                    help,
                );
            }
            (None, Some(_)) => {
                let help =
                    "say how long a person has: `dampen: { prompt: …, timeout: 3d, then: halt }`";
                self.report(
                    question.place,
                    "`then` without a `timeout` has no effect",
                    help,
                );
            }
            _ => {}
        }
    }

    fn node(&mut self, place: Option<Mark>) {
        self.nodes += 1;
        if self.nodes == MAX_NODES + 1 {
            let message = format!("the pipeline has more than {MAX_NODES} nodes");
            let help = "an `expand` does the same steps for any number of elements";
            self.report(place, message, help);
        }
    }

    /// A step that the flow or a hook names.
    fn step_named(&mut self, name: &'a Name) {
        let Some(text) = name.text.as_deref() else {
            self.complete = false;
            return;
        };
        let first_time = self.used.insert(text);
        if self.declared.contains(text) || (!first_time && name.place.is_none()) {
            return;
        }
        if text == DAMPEN {
            let message = "`dampen` is the transition, and cannot be a step's name";
            let help = "write `- dampen` to wait for a person";
            return self.report(name.place, message, help);
        }
        if !self.name(name, "step") {
            return;
        }
        if self.draft.undeclared == Undeclared::Unknown {
            self.unknown(name, text);
        }
    }

    fn unknown(&mut self, name: &Name, text: &'a str) {
        self.suggestions += 1;
        let similar = match self.suggestions <= MAX_SUGGESTIONS && text.len() <= MAX_NAME {
            true => problem::nearest(text, BTreeSet::from_iter(self.declared.iter().copied())),
            false => None,
        };
        let help = match similar {
            Some(similar) => {
                // One mistake is enough: the step that the author meant does not count as unused.
                self.used.insert(similar);
                format!("did you mean `{similar}`?")
            }
            None => format!("say under `steps` how it runs: `{text}: {{ command: [program] }}`"),
        };
        self.report(name.place, format!("unknown step `{text}`"), help);
    }

    /// Steps that are declared but never used, which is more often a typo than a plan.
    fn unused(&mut self) {
        if !self.complete {
            return;
        }
        for declared in &self.draft.declared {
            let Some(name) = declared.name.text.as_deref() else {
                continue;
            };
            if self.declared.contains(name) && !self.used.contains(name) {
                let message = format!("step `{name}` is not used");
                let help = "use it in the flow or as a hook (`on_halt`, `on_complete`, `on_wait`), or remove it";
                self.report(declared.name.place, message, help);
            }
        }
    }
}

impl Kind {
    /// The transition's word.
    fn verb(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Chain(_) => "chain",
            Self::Divide(_) => "divide",
            Self::Combine(_) => "combine",
            Self::Expand(_) => "expand",
            Self::Collapse(_) => "collapse",
            Self::Divert { .. } => "divert",
            Self::Converge(_) => "converge",
            Self::Dampen(_) | Self::Broken => "dampen",
        }
    }
}

/// The finest span that the canonical form can hold.
const MILLISECOND: Duration = Duration::from_millis(1);

/// The most words of a command that a remedy repeats.
const WORDS: usize = 40;

/// How to write a line of words as a command, which no shell splits.
pub fn as_list(line: &str) -> String {
    // Words in quotes, and everything else that a shell interprets, are left for a shell to split.
    let is_plain = |char: char| char.is_alphanumeric() || char == ' ' || "-_./=:+@".contains(char);
    let words: Vec<&str> = line.split_whitespace().take(WORDS + 1).collect();
    match line.chars().all(is_plain) && words.len() <= WORDS {
        true => format!("write it as a list: `[{}]`", words.join(", ")),
        false => "write it as a list: `[sh, -c, '…']` with the line between the quotes, or each argument as an \
                  element of its own"
            .to_owned(),
    }
}

/// A user's text in the form that a message can show: one short line, whatever the text contains.
pub(super) fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    let visible = |char: char| !char.is_control() && !is_bidi(char);
    if short.chars().all(visible) {
        return format!("`{short}`");
    }
    let escaped = |char: char| match visible(char) {
        true => char.to_string(),
        false => char.escape_unicode().to_string(),
    };
    format!("`{}`", short.chars().map(escaped).collect::<String>())
}

/// The message about an unknown key, and the remedy.
pub(super) fn unknown_key(key: &Tree, known: &[&str], whose: &str) -> (String, String) {
    let keys = known.join(", ");
    let Some(name) = key.scalar() else {
        let message = format!("{} cannot be a key of {whose}", key.what());
        return (message, format!("valid keys: {keys}"));
    };
    let help = match problem::meant(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? valid keys: {keys}"),
        None => format!("valid keys: {keys}"),
    };
    (format!("unknown key {} in {whose}", shown(name)), help)
}

/// Characters that reverse the direction of the rest of a line.
fn is_bidi(char: char) -> bool {
    matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
