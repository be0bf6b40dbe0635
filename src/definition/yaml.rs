//! Pipelines written in YAML.
//!
//! Owns: what a pipeline file may say, and where each part of it was said. Never: judges the pipeline;
//! it fills the draft that the Rust builder fills, and the same rules (`check`) and the same lowering
//! (`canonical`) follow. Nothing is expanded in a pipeline, because its digest must not depend on a
//! host: the worker that starts a step expands its `env`. Tested in `yaml/tests.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path as FilePath;
use std::time::Duration;

use super::builder::{Declared, Draft, Item, Kind, Name, Path, Question, To, Undeclared};
use super::canonical;
use super::check::{self, Finding, shown, unknown_key};
use super::graph::{Definition, RunTrace, Unanswered};
use super::schema::{
    PIPELINE_KEYS, PLANNED_KEYS, QUESTION_KEYS, STEP_KEYS, TARGET_KEYS, UNANSWERED, VERBS,
};
use super::tree::{self, MAX_BYTES, Tree, Value};
use crate::duration;
use crate::model::Hook;
use crate::problem::{Position, Problem, Problems, lines, meant};
use crate::yaml::Mark;

mod load;
mod step;
#[cfg(test)]
mod tests;

#[cfg(test)]
use load::{load_dir, load_file};
pub use load::{look_into, misnamed, nested};

/// The definition that `text` describes, or everything that is wrong with it. `file` only names the
/// file in the problems; nothing is read from it.
#[cfg(feature = "internals")]
pub fn parse(text: &str, file: &FilePath) -> Result<Definition, Problems> {
    Ok(read(text, file)?.definition)
}

/// A definition, and the places of its parts.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The content of the file.
    pub definition: Definition,
    /// The steps that it describes, by their names.
    pub steps_at: HashMap<String, Position>,
    name_at: Option<Position>,
}

fn read(text: &str, file: &FilePath) -> Result<Loaded, Problems> {
    if text.len() > MAX_BYTES {
        return Err(load::too_large(file));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = lines(text).collect();
    let position = |place: Mark| {
        let line = lines.get(place.line.saturating_sub(1)).unwrap_or(&"");
        let mut at = Position::of(line, 1, place.column, place.width);
        at.line = place.line;
        at
    };
    let mut reader = Reader::default();
    let (tree, findings) = tree::read(text);
    reader.findings = findings;
    // A tree with faults lacks the parts that these concern, which would look like mistakes of the
    // pipeline.
    let draft = match reader.findings.is_empty() {
        true => tree.and_then(|tree| reader.pipeline(&tree)),
        false => None,
    };
    if let Some(draft) = &draft {
        reader.findings.extend(check::check(draft));
    }
    if let Some(draft) = &draft
        && reader.findings.is_empty()
    {
        let step_at = |step: &Declared| Some((step.name.text.clone()?, position(step.name.place?)));
        return Ok(Loaded {
            definition: canonical::lower(draft),
            steps_at: draft.declared.iter().filter_map(step_at).collect(),
            name_at: draft.name.place.map(position),
        });
    }
    let mut findings = reader.findings;
    // Problems without a place concern the whole file, and come first.
    findings.sort_by_key(|finding| finding.place);
    // A mistake in a value that several aliases refer to is reported once.
    let mut reported = BTreeSet::new();
    findings.retain(|finding| reported.insert((finding.place, finding.message.clone())));
    let problem = |finding: Finding| Problem {
        file: Some(file.to_owned()),
        at: finding.place.map(position),
        message: finding.message,
        help: finding.help,
    };
    Err(Problems(findings.into_iter().map(problem).collect()))
}

/// True for an entry of `steps` that is no step, but a setting that should be indented under one.
fn is_setting(key: &Tree, value: &Tree) -> bool {
    let is_key = |key: &Tree| key.scalar().is_some_and(|key| STEP_KEYS.contains(&key));
    let is_step = match &value.value {
        Value::Map(entries) => entries.iter().any(|(key, _)| is_key(key)),
        _ => false,
    };
    is_key(key) && !is_step
}

/// Walks the tree, and collects the parts that it does not understand.
#[derive(Default)]
struct Reader {
    findings: Vec<Finding>,
}

/// A map's entry with a known key.
struct Field<'t> {
    key: &'t str,
    at: Mark,
    value: &'t Tree,
}

impl Reader {
    fn report(&mut self, place: Mark, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding {
            place: Some(place),
            message: message.into(),
            help: Some(help.into()),
        });
    }

    /// The entries of a map whose keys are `known`; the others are reported.
    fn fields<'t>(
        &mut self,
        entries: &'t [(Tree, Tree)],
        known: &[&str],
        whose: &str,
    ) -> Vec<Field<'t>> {
        let mut fields = Vec::new();
        for (key, value) in entries {
            let at = key.place;
            match key.scalar() {
                Some(key) if known.contains(&key) => fields.push(Field { key, at, value }),
                _ => {
                    let (message, help) = unknown_key(key, known, whose);
                    self.report(at, message, help);
                }
            }
        }
        fields
    }

    fn pipeline(&mut self, tree: &Tree) -> Option<Draft> {
        let entries = match &tree.value {
            Value::Map(entries) => entries,
            Value::Null => {
                let help = "a pipeline has the keys `pipeline`, `steps` and `flow`";
                let place = Mark {
                    line: 1,
                    column: 1,
                    width: 1,
                };
                self.report(place, "the file is empty", help);
                return None;
            }
            _ => {
                let message = format!("a pipeline must be a map, not {}", tree.what());
                let help = "write the keys `pipeline`, `steps` and `flow`";
                self.report(tree.place, message, help);
                return None;
            }
        };
        let mut draft = Draft {
            name: Name {
                text: None,
                place: None,
            },
            hooks: BTreeMap::new(),
            input: None,
            trace: RunTrace::default(),
            declared: Vec::new(),
            undeclared: Undeclared::Unjudged,
            flow: None,
        };
        // Keys that begin with `x-` are the author's own, for example for anchors.
        let is_own = |key: &Tree| key.scalar().is_some_and(|key| key.starts_with("x-"));
        let planned = |key: &Tree| {
            let name = key.scalar()?;
            PLANNED_KEYS.iter().find(|(planned, _)| *planned == name)
        };
        for (key, _) in entries {
            if let Some((name, help)) = planned(key) {
                let message = format!("`{name}` is not supported by this version yet");
                self.report(key.place, message, *help);
            }
        }
        let entries: Vec<_> = entries
            .iter()
            .filter(|(key, _)| !is_own(key) && planned(key).is_none())
            .cloned()
            .collect();
        let fields = self.fields(&entries, &PIPELINE_KEYS, "a pipeline");
        for field in &fields {
            match field.key {
                "pipeline" => draft.name = self.name(field.value, "pipeline"),
                "input" => draft.input = Some(field.value.clone()),
                "trace" => draft.trace = self.trace(field.value),
                "steps" => self.steps(field.value, &mut draft),
                "flow" => draft.flow = self.flow(field),
                key => {
                    if let Ok(hook) = key.parse::<Hook>() {
                        let name = self.name(field.value, "step");
                        draft.hooks.insert(hook, name);
                    }
                }
            }
        }
        for (key, help) in [
            ("pipeline", "name it: `pipeline: SomeName`"),
            (
                "steps",
                "say how each step runs: `steps: { SomeStep: { command: [program] } }`",
            ),
            ("flow", "begin it with `- start: SomeStep`"),
        ] {
            // One mistake is enough: a misspelt key has been reported.
            let is_meant = |(other, _): &(Tree, Tree)| {
                let other = other.scalar().filter(|name| !PIPELINE_KEYS.contains(name));
                other.and_then(|name| meant(name, PIPELINE_KEYS)) == Some(key)
            };
            if !fields.iter().any(|field| field.key == key) && !entries.iter().any(is_meant) {
                self.report(
                    tree.place,
                    format!("this pipeline's file has no `{key}`"),
                    help,
                );
            }
        }
        Some(draft)
    }

    fn trace(&mut self, tree: &Tree) -> RunTrace {
        match tree.scalar() {
            Some("own") => RunTrace::Own,
            Some("parent") => RunTrace::Parent,
            given => {
                let given = given.map_or_else(|| tree.what().to_owned(), shown);
                let message = format!("`trace` is `own` or `parent`, and not {given}");
                let help = "`own`, the default, makes each run a trace that has a link to its caller's span; \
                            `parent` makes it a part of its caller's trace";
                self.report(tree.place, message, help);
                RunTrace::default()
            }
        }
    }

    fn name(&mut self, tree: &Tree, whose: &str) -> Name {
        let place = Some(tree.place);
        let text = match &tree.value {
            Value::Text(text) => Some(text.clone()),
            Value::Null => {
                let message = format!("the {whose}'s name is missing");
                self.report(tree.place, message, "write the name after the colon");
                None
            }
            _ => {
                let message = format!("{} is not a name for a {whose}", tree.what());
                let help = "a name is a text that begins with a letter or `_`; quote it if it \
                            only looks like something else";
                self.report(tree.place, message, help);
                None
            }
        };
        Name { text, place }
    }

    fn steps(&mut self, tree: &Tree, draft: &mut Draft) {
        let Value::Map(entries) = &tree.value else {
            let message = format!("`steps` must be a map of names, not {}", tree.what());
            let help = "say how each step runs: `SomeStep: { command: [program] }`";
            return self.report(tree.place, message, help);
        };
        draft.undeclared = Undeclared::Unknown;
        let mut above = None;
        for (at, (key, value)) in entries.iter().enumerate() {
            if is_setting(key, value) {
                let setting = shown(key.scalar().unwrap_or_default());
                let message = format!("{setting} is a key of a step, and is not inside one");
                let help = match &above {
                    Some(step) => {
                        format!("move it further to the right than {step}, to which it belongs")
                    }
                    None => "write it inside a step: `SomeStep: { command: [program] }`".to_owned(),
                };
                self.report(key.place, message, help);
                continue;
            }
            above = key.scalar().map(shown);
            let name = self.name(key, "step");
            let next = entries.get(at + 1);
            let is_beside = next.is_some_and(|(key, value)| is_setting(key, value));
            let declared = self.step(name, value, is_beside);
            draft.declared.push(declared);
        }
    }

    fn duration(&mut self, field: &Field<'_>) -> Option<Duration> {
        let tree = field.value;
        let text = match &tree.value {
            Value::Number(text) | Value::Text(text) => text,
            _ => {
                let message = format!("`{}` must be a duration, not {}", field.key, tree.what());
                self.report(tree.place, message, duration::NOTATION);
                return None;
            }
        };
        match duration::parse(text) {
            Ok(duration) => Some(duration),
            Err(reason) => {
                let message = format!("`{}`: {reason}", field.key);
                self.report(tree.place, message, duration::NOTATION);
                None
            }
        }
    }

    fn flow(&mut self, field: &Field<'_>) -> Option<Vec<Item>> {
        let tree = field.value;
        match &tree.value {
            Value::List(items) if !items.is_empty() => {
                let items = items.iter().enumerate();
                Some(items.map(|(at, item)| self.item(item, at == 0)).collect())
            }
            Value::List(_) | Value::Null => {
                let help = "begin it with `- start: SomeStep`";
                self.report(field.at, "the flow is empty", help);
                None
            }
            _ => {
                let message = format!("a flow must be a list, not {}", tree.what());
                let help = "begin it with `- start: SomeStep`";
                self.report(tree.place, message, help);
                None
            }
        }
    }

    fn item(&mut self, tree: &Tree, is_first: bool) -> Item {
        let (place, kind) = match &tree.value {
            Value::Text(text) if text == "dampen" => {
                (tree.place, Kind::Dampen(Question::default()))
            }
            Value::Text(text) => {
                if VERBS.contains(&text.as_str()) {
                    let message = format!("`{text}` does not say where to");
                    let help = format!("write `- {text}: SomeStep`");
                    self.report(tree.place, message, help);
                } else {
                    let message = format!("{} is not a transition", shown(text));
                    let help = match meant(text, VERBS) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None if is_first => format!("write `- start: {text}` for the first step"),
                        None => format!("write `- chain: {text}` for the next step"),
                    };
                    self.report(tree.place, message, help);
                }
                (tree.place, Kind::Broken)
            }
            Value::Map(entries) => match entries.as_slice() {
                [(verb, value)] => (verb.place, self.transition(verb, value)),
                [] => {
                    let message = "this transition is empty";
                    self.report(tree.place, message, "write `- chain: SomeStep`");
                    (tree.place, Kind::Broken)
                }
                [(first, _), (second, _), ..] => {
                    let message = "more than one key in one transition";
                    let verb = first.scalar().unwrap_or("chain");
                    let help = match second.scalar() {
                        Some(key) if TARGET_KEYS.contains(&key) => {
                            format!("write `- {verb}: {{ to: SomeStep, delay: 10s }}`")
                        }
                        _ => "begin every transition with a `-` of its own".to_owned(),
                    };
                    self.report(second.place, message, help);
                    (first.place, Kind::Broken)
                }
            },
            _ => {
                let message = format!("{} is not a transition", tree.what());
                self.report(tree.place, message, "write `- chain: SomeStep`");
                (tree.place, Kind::Broken)
            }
        };
        let place = Some(place);
        Item { place, kind }
    }

    fn transition(&mut self, verb: &Tree, value: &Tree) -> Kind {
        match verb.scalar() {
            Some("start") => Kind::Start(self.target(value)),
            Some("chain") => Kind::Chain(self.target(value)),
            Some("divide") => self.divide(value),
            Some("combine") => Kind::Combine(self.target(value)),
            Some("expand") => Kind::Expand(self.target(value)),
            Some("collapse") => Kind::Collapse(self.target(value)),
            Some("divert") => self.divert(value),
            Some("converge") => Kind::Converge(self.target(value)),
            Some("dampen") => match &value.value {
                Value::Null => Kind::Dampen(Question::default()),
                Value::Text(prompt) => Kind::Dampen(Question::new(prompt)),
                Value::Map(entries) => Kind::Dampen(self.question(entries)),
                _ => {
                    let help = "write `- dampen: \"the question\"`, or only `- dampen`";
                    let message = format!("a dampen asks with a text, not with {}", value.what());
                    self.report(value.place, message, help);
                    Kind::Broken
                }
            },
            other => {
                let word = other.unwrap_or("?");
                let message = format!("unknown transition {}", shown(word));
                let help = match meant(word, VERBS) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the transitions are {}", VERBS.join(", ")),
                };
                self.report(verb.place, message, help);
                Kind::Broken
            }
        }
    }

    /// `{ prompt: …, timeout: …, then: … }`.
    fn question(&mut self, entries: &[(Tree, Tree)]) -> Question {
        let mut question = Question::default();
        // One mistake is enough.
        let mut unread = false;
        for field in self.fields(entries, &QUESTION_KEYS, "a dampen") {
            match (field.key, &field.value.value) {
                ("timeout", _) => {
                    question.timeout = self.duration(&field);
                    unread = question.timeout.is_none();
                    question.place = Some(field.value.place);
                }
                ("prompt", Value::Text(prompt)) => question.prompt = Some(prompt.clone()),
                ("prompt", Value::Null) => {}
                ("then", Value::Text(then)) if UNANSWERED.contains(&then.as_str()) => {
                    question.then = Some(match then.as_str() {
                        "approve" => Unanswered::Approve,
                        _ => Unanswered::Halt,
                    });
                    question.place = question.place.or(Some(field.value.place));
                }
                (key, value) => {
                    let given = match value {
                        Value::Text(text) => shown(text),
                        _ => field.value.what().to_owned(),
                    };
                    let (message, help) = match key {
                        "then" => (
                            format!("`then` is `halt` or `approve`, not {given}"),
                            "write `halt`, or `approve` to go on with the value that was asked about",
                        ),
                        _ => (
                            format!("a dampen asks with a text, not with {given}"),
                            "write `prompt: \"the question\"`",
                        ),
                    };
                    self.report(field.value.place, message, help);
                }
            }
        }
        if unread {
            question.then = None;
        }
        question
    }

    /// A step, or `{ to: …, delay: … }`.
    fn target(&mut self, tree: &Tree) -> To {
        let place = Some(tree.place);
        let mut to = To {
            step: Name { text: None, place },
            delay: None,
        };
        match &tree.value {
            Value::Map(entries) => {
                let is_verb =
                    |(key, _): &&(Tree, Tree)| key.scalar().is_some_and(|key| VERBS.contains(&key));
                if let Some((verb, _)) = entries.iter().find(is_verb) {
                    let message = "a transition where a step belongs";
                    let help = format!(
                        "a path is a step's name, or a list that begins with one: \
                         `[SomeStep, {{ {}: … }}]`; a step with `command: [cat]` passes its input on",
                        verb.scalar().unwrap_or_default()
                    );
                    self.report(verb.place, message, help);
                    return to;
                }
                let mut given = false;
                for field in self.fields(entries, &TARGET_KEYS, "a transition's target") {
                    if field.key == "to" {
                        given = true;
                        to.step = self.name(field.value, "step");
                    } else {
                        to.delay = self.duration(&field);
                    }
                }
                if !given {
                    let help = "write `{ to: SomeStep, delay: 10s }`";
                    self.report(tree.place, "the target has no `to`", help);
                }
            }
            Value::List(_) => {
                let message = "a list where one step belongs";
                let help = "write one transition after the other; only `divide` and `divert` \
                            have several ways out";
                self.report(tree.place, message, help);
            }
            _ => to.step = self.name(tree, "step"),
        }
        to
    }

    /// A step, or a list that begins with one and continues like a flow.
    fn path(&mut self, tree: &Tree) -> Path {
        let Value::List(items) = &tree.value else {
            let first = self.target(tree);
            let items = Vec::new();
            return Path { first, items };
        };
        let Some((first, rest)) = items.split_first() else {
            let help = "write a step's name, or a list that begins with one";
            self.report(tree.place, "this path is empty", help);
            let place = Some(tree.place);
            return Path {
                first: To {
                    step: Name { text: None, place },
                    delay: None,
                },
                items: Vec::new(),
            };
        };
        let first = self.target(first);
        let items = rest.iter().map(|item| self.item(item, false)).collect();
        Path { first, items }
    }

    fn divide(&mut self, tree: &Tree) -> Kind {
        match &tree.value {
            Value::List(paths) => Kind::Divide(paths.iter().map(|path| self.path(path)).collect()),
            Value::Null => Kind::Divide(Vec::new()),
            _ => {
                let message = format!("a divide must be a list of paths, not {}", tree.what());
                self.report(tree.place, message, "write `- divide: [StepA, StepB]`");
                Kind::Broken
            }
        }
    }

    fn divert(&mut self, tree: &Tree) -> Kind {
        let entries = match &tree.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => {
                let message = format!("a divert must be a map of paths, not {}", tree.what());
                let help = "write `- divert: { some: StepA, otherwise: StepB }`";
                self.report(tree.place, message, help);
                return Kind::Broken;
            }
        };
        let mut cases = Vec::new();
        let mut otherwise = None;
        for (key, value) in entries {
            let path = self.path(value);
            match key.scalar() {
                Some("otherwise") => otherwise = Some(path),
                Some(text) => {
                    let name = Name {
                        text: Some(text.to_owned()),
                        place: Some(key.place),
                    };
                    cases.push((name, path));
                }
                None => {
                    let message = format!("{} cannot be a key of a divert", key.what());
                    let help = "a key is a text, a number or a boolean, as the output has it";
                    self.report(key.place, message, help);
                }
            }
        }
        Kind::Divert { cases, otherwise }
    }
}
