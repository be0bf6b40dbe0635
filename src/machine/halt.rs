//! Why a branch halted, in words, and the remedy that works.
//!
//! Owns: the explanation of each halt reason, from the rows that the halt left behind and from the
//! run's definition. Never: decides that a branch halts (`advance` and `outcome` do).

use serde_json::value::RawValue;

use crate::definition::{Definition, Edge, Then};
use crate::model::{HaltReason, RunId, StepId, Via};
use crate::time;

use super::advance;
use super::revive::listed;

/// A branch that halted by itself.
#[derive(Clone, Debug, Default)]
pub struct HaltFact {
    /// Why, as stored: a newer version may have written a word that this one does not know.
    pub reason: String,
    /// The step at which it halted.
    pub step: Option<StepId>,
    /// The node of that step.
    pub node: String,
    /// The transition by which the step there was reached.
    pub via: String,
    /// The error of the last attempt: at its step, or at advancing from it.
    pub error: Option<String>,
    /// The class of that error, if it is an error of a step.
    pub class: Option<String>,
    /// The output of its step, if the step has one.
    pub output: Option<OutputFact>,
    /// The number of branches into which it had been split there.
    pub width: Option<i64>,
}

/// The output of a step.
#[derive(Clone, Debug)]
pub struct OutputFact {
    /// Its length in bytes.
    pub size: u64,
    /// Its text: all of it, or its first characters.
    pub text: String,
    /// The output is withheld: the reader may not see it.
    pub is_withheld: bool,
}

/// The most characters of an output that an explanation quotes.
const QUOTED: usize = 40;

impl OutputFact {
    /// The kind of value, as people call it.
    fn kind(&self) -> &'static str {
        match self.text.as_bytes().first() {
            Some(b'"') => "a string",
            Some(b'[') => "a list",
            Some(b'{') => "an object",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn quoted(&self) -> String {
        if self.is_withheld {
            return format!("its {} bytes are withheld", self.size);
        }
        let mut chars = self.text.chars();
        let begins: String = chars.by_ref().take(QUOTED).collect();
        match chars.next().is_some() || self.size > begins.len() as u64 {
            true => format!("it begins `{begins}`"),
            false => format!("it is `{begins}`"),
        }
    }

    /// The number of its elements, if all of the text is here.
    fn elements(&self) -> Option<usize> {
        let whole = self.text.len() as u64 == self.size;
        let value: &RawValue = serde_json::from_str(&self.text).ok().filter(|_| whole)?;
        advance::elements(value).map(|elements| elements.len())
    }
}

impl HaltFact {
    fn is(&self, reason: HaltReason) -> bool {
        self.reason == reason.as_str()
    }

    fn place(&self) -> String {
        format!("{} at {}", self.reason, self.node)
    }

    /// The reason and the node, with the explanation.
    pub fn with_explanation(&self, definition: Option<&Definition>) -> String {
        match self.explanation(definition) {
            Some(explanation) => format!("{}: {explanation}", self.place()),
            None => self.place(),
        }
    }

    /// True if a failed step explains the halt: nothing was wrong with a transition.
    pub fn is_of_step(&self) -> bool {
        self.output.is_none() && self.width.is_none() && self.error.is_some()
    }

    /// Leaves the output out of every explanation, except for its kind and its size.
    pub fn withhold(&mut self) {
        if let Some(output) = &mut self.output {
            output.is_withheld = true;
        }
    }

    /// The words for the output: a person's answer is not the output of a step.
    fn returned(&self, what: &str) -> String {
        match self.via == Via::Dampen.as_str() {
            true => format!("the answer at {} is {what}", self.node),
            false => format!("{} returned {what}", self.node),
        }
    }

    /// A line that says what went wrong; `None` if the reason says everything.
    pub fn explanation(&self, definition: Option<&Definition>) -> Option<String> {
        let node = definition.and_then(|it| Some(it.node(it.find(&self.node)?)));
        let name = |to: crate::definition::Target| {
            definition.map_or("", |it| it.node(to.node).name.as_str())
        };
        let edge = node.map(|node| &node.next);
        if self.is(HaltReason::TransitionInvalid) {
            let Some(output) = &self.output else {
                return Some(format!(
                    "{} has neither an output nor an attempt",
                    self.node
                ));
            };
            let quoted = output.quoted();
            let returned = self.returned(output.kind());
            return Some(match edge {
                Some(Edge::Expand { to, .. }) => format!(
                    "{returned}; `expand: {}` needs a list or an object; {quoted}",
                    name(*to)
                ),
                _ => format!("{returned}, which its transition cannot use; {quoted}"),
            });
        }
        if self.is(HaltReason::Unanswered) {
            let within = node
                .and_then(|node| node.deadline)
                .map(|it| format!(" within {}", time::whole(it.timeout)));
            return Some(format!(
                "nobody answered at {}{}",
                self.node,
                within.unwrap_or_default()
            ));
        }
        if self.is(HaltReason::ConditionUnmatched) {
            let quoted = self.output.as_ref().map(OutputFact::quoted);
            let quoted = quoted.unwrap_or_else(|| "it has none".to_owned());
            return Some(format!(
                "the output of {} matches no path of its `divert`; {quoted}",
                self.node
            ));
        }
        if self.is(HaltReason::MaxFanoutExceeded) {
            const MORE: &str = "more than `pipeline_advancer.steps.max_depth` allows";
            return Some(match (edge, &self.output) {
                (Some(Edge::Divide { paths, .. }), _) => {
                    format!(
                        "{} divides into {} branches, {MORE}",
                        self.node,
                        paths.len()
                    )
                }
                (_, Some(output)) => match output.elements() {
                    Some(elements) => {
                        format!("{}, {MORE}", self.returned(&format!("{elements} elements")))
                    }
                    None => {
                        let what = format!("{} of {} bytes", output.kind(), output.size);
                        format!("{}, with elements {MORE}", self.returned(&what))
                    }
                },
                _ => format!("{} would split into branches {MORE}", self.node),
            });
        }
        if self.is(HaltReason::PayloadTooLarge) && self.error.is_none() {
            let branches = match self.width {
                Some(width) => format!("the {width} branches of {}", self.node),
                None => format!("the branches of {}", self.node),
            };
            let to = match edge.and_then(then) {
                Some(Then::Combine(to) | Then::Collapse(to) | Then::Converge(to)) => {
                    format!(", the input of {},", name(to))
                }
                _ => String::new(),
            };
            return Some(format!(
                "the outputs of {branches} together{to} are longer than `job_worker.max_payload` allows"
            ));
        }
        if self.is(HaltReason::AdvancerCrashesExhausted) {
            return Some(format!(
                "the process that advanced from {} died each time; its log may say why",
                self.node
            ));
        }
        if self.is(HaltReason::AdvancerRetriesExhausted) {
            let error = self
                .error
                .as_deref()
                .unwrap_or("the log of the advancer says why");
            return Some(format!(
                "advancing from {} failed each time: {error}",
                self.node
            ));
        }
        self.error.clone()
    }

    /// True if the step itself refused, so that it refuses again until somebody changes it or its input.
    /// Time, memory and the machine may be different at the next attempt.
    fn is_certain(&self) -> bool {
        match self.is(HaltReason::JobRetriesExhausted) {
            true => !self.is_killed(),
            false => self.is(HaltReason::StepRefused),
        }
    }

    /// The remedy if the step could not begin, for lack of a program, a directory or a variable: no other input helps.
    fn lack(&self) -> Option<String> {
        let node = &self.node;
        let of_step = self.is(HaltReason::JobRetriesExhausted);
        match self.class.as_deref().filter(|_| of_step)? {
            "command_not_found" => {
                Some(format!("install the program of {node}, or create its file"))
            }
            "cwd_not_found" => Some(format!("make the working directory of {node}")),
            "secret_unusable" => Some(format!(
                "set or correct the secret of {node}, and restart `ductworkd` unless the secret is in a file"
            )),
            "variable_not_set" => Some(format!(
                "set the variable of {node} where `ductworkd` runs, and restart it"
            )),
            // No shell and no `env` finds a program whose name ends with a carriage return, which they print in their ways.
            "ExitStatus(127)" => {
                let error = self.error.as_deref().unwrap_or_default();
                let names = ["\r:", "\\r'", "\\r’"]
                    .iter()
                    .any(|end| error.contains(end));
                names.then(|| {
                    format!("save the script of {node} with the line ends of Unix (sed -i 's/\\r$//' FILE)")
                })
            }
            _ => None,
        }
    }

    /// True if a signal ended the last attempt: a fault of the step, or a limit.
    fn is_killed(&self) -> bool {
        let killed = |class: &String| class.starts_with("Signal(");
        self.class.as_ref().is_some_and(killed)
    }

    /// The actions after which a revival does not halt here again; `None` for a halt that a revival
    /// alone may fix.
    fn fix(&self, definition: Option<&Definition>) -> Option<Fix> {
        let node = &self.node;
        let limit = |key| Fix::of(format!("raise `{key}`, and send SIGHUP to `ductworkd`"));
        if self.is(HaltReason::MaxFanoutExceeded) {
            return Some(limit("pipeline_advancer.steps.max_depth"));
        }
        if self.is(HaltReason::PayloadTooLarge) && self.error.is_none() {
            return Some(limit("job_worker.max_payload"));
        }
        if self.is(HaltReason::Unanswered) {
            let answer = Fix::of("have an answer ready".to_owned());
            return Some(answer.with_effect("asks again".to_owned()));
        }
        if self.is(HaltReason::JobTimedOut) {
            let spec = definition.and_then(|it| {
                let step = it.node(it.find(node)?).step.as_ref()?;
                it.steps.get(step)
            });
            let unless = match spec.is_some_and(|spec| spec.timeout.is_some()) {
                true => "made the step faster",
                false => {
                    "raised `job_worker.timeout` and sent SIGHUP to `ductworkd`, or made the step faster"
                }
            };
            let raise = Fix::of(format!(
                "raise the `timeout` of {node} in the pipeline's file"
            ));
            return Some(raise.with_latest(Latest::Unless(unless)));
        }
        if self.is(HaltReason::StepUndefined) {
            return Some(Fix::of(format!(
                "deploy the program that has the step {node}"
            )));
        }
        if self.is(HaltReason::JobCrashesExhausted) {
            // The kernel takes memory back with this signal alone.
            let other = |error: &String| {
                error.starts_with("killed by ") && !error.starts_with("killed by SIGKILL")
            };
            let memory = match self.error.as_ref().is_some_and(other) {
                true => "",
                false => ", often a lack of memory",
            };
            let look = Fix::of(format!("look for what kills {node}{memory}"));
            return Some(look.with_latest(Latest::IfEdited));
        }
        if self.is(HaltReason::JobRetriesExhausted) && self.is_killed() {
            let look = Fix::of(format!("look for what kills {node}"));
            return Some(look.with_latest(Latest::IfEdited));
        }
        if let Some(first) = self.lack() {
            return Some(Fix::of(first).with_latest(Latest::IfEdited));
        }
        if self.is_certain() {
            let first = match self.class.as_deref() {
                Some("output_too_large") => format!(
                    "let {node} return less, or raise `job_worker.max_payload` and send SIGHUP to `ductworkd`"
                ),
                _ => format!("fix {node}"),
            };
            let fix = Fix::of(first).with_latest(Latest::IfEdited);
            return Some(Fix {
                or_anew: true,
                ..fix
            });
        }
        if !self.is(HaltReason::TransitionInvalid) && !self.is(HaltReason::ConditionUnmatched) {
            return None;
        }
        let (first, effect) = match (&self.output, self.via == Via::Dampen.as_str()) {
            (None, _) => {
                let first = "this should not happen: run `ductworkd audit`";
                return Some(Fix::of(first.to_owned()));
            }
            (Some(_), true) => (
                "have another answer ready".to_owned(),
                "asks again".to_owned(),
            ),
            (Some(_), false) => (format!("fix {node}"), format!("reruns {node}")),
        };
        let fix = Fix::of(first).with_effect(effect);
        Some(fix.with_latest(Latest::IfEdited))
    }
}

/// The actions before a revival, and the form of the revival itself.
struct Fix {
    first: String,
    latest: Latest,
    /// The step with which the revival begins, in words, where nobody would expect that.
    effect: Option<String>,
    /// A new run with another input is another way on.
    or_anew: bool,
}

impl Fix {
    fn of(first: String) -> Self {
        Self {
            first,
            latest: Latest::Never,
            effect: None,
            or_anew: false,
        }
    }

    fn with_latest(self, latest: Latest) -> Self {
        Self { latest, ..self }
    }

    fn with_effect(self, effect: String) -> Self {
        let effect = Some(effect);
        Self { effect, ..self }
    }
}

/// The use of `--latest` by a fix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Latest {
    /// The definition has nothing to do with it.
    Never,
    /// For a fix in the pipeline's file.
    IfEdited,
    /// The fix is in the pipeline's file, unless the person did this instead: the words after "if you".
    Unless(&'static str),
}

/// The end of the fan-out that begins with this edge.
pub(super) fn then(edge: &Edge) -> Option<Then> {
    match edge {
        Edge::Divide { then, .. } | Edge::Expand { then, .. } => Some(*then),
        _ => None,
    }
}

/// The most halts that are read of one run.
pub const HALTS_MAX: usize = 100;

/// The most different actions that a remedy names.
const NAMED: usize = 3;

/// The most other reasons and places that are named beside the first one.
const OTHERS: usize = 3;

/// The first of these halts with its explanation, the number of the others, and the reasons and places of those that
/// differ from it.
pub fn summary(halts: &[HaltFact], definition: Option<&Definition>) -> Option<String> {
    let [first, others @ ..] = halts else {
        return None;
    };
    let of_first = first.with_explanation(definition);
    let at_least = match halts.len() {
        HALTS_MAX.. => "at least ",
        _ => "",
    };
    let mut places: Vec<String> = Vec::new();
    for place in others.iter().map(HaltFact::place) {
        if place != first.place() && !places.contains(&place) {
            places.push(place);
        }
    }
    let more = match places.len().saturating_sub(OTHERS) {
        0 => String::new(),
        1 => ", and 1 other".to_owned(),
        more => format!(", and {more} others"),
    };
    places.truncate(OTHERS);
    Some(match (others.len(), places.is_empty()) {
        (0, _) => of_first,
        (n, true) => format!("{of_first} (and {at_least}{n} more)"),
        (n, false) => format!(
            "{of_first} (and {at_least}{n} more: also {}{more})",
            places.join(", ")
        ),
    })
}

/// The facts on which the way on from a halt depends, beside the halts themselves.
#[derive(Clone, Debug, Default)]
pub struct Prospects {
    /// The run has a trigger key, or the run has that it continues: the key leads to that run for good.
    pub has_key: bool,
    /// The obstacle to going on with the definition that is in use now, if there may be one.
    pub obstacle: Option<Obstacle>,
}

/// A reason for which `--latest` may be refused: the run does not go on with the definition that is in use now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// That definition disagrees with the run in these ways.
    Disagrees(Vec<String>),
    /// The run has too many branches to know that.
    Unknown,
    /// The configuration has no such pipeline, perhaps because of the mistake at this place in a pipeline's file.
    Mistake(String),
    /// The configuration has no such pipeline.
    Gone,
}

/// The remedy for a run that halted in these ways, and has this definition.
pub fn remedy(
    halts: &[HaltFact],
    definition: Option<&Definition>,
    run: RunId,
    prospects: &Prospects,
) -> String {
    let mut fixes: Vec<Fix> = Vec::new();
    for fix in halts.iter().filter_map(|halt| halt.fix(definition)) {
        if fixes.iter().all(|known| known.first != fix.first) {
            fixes.push(fix);
        }
    }
    match &fixes[..] {
        [] => format!("ductworkd revive {run}"),
        [fix] => revival(fix, run, prospects),
        fixes => revival(&several(fixes, halts.len()), run, prospects),
    }
}

/// Several fixes, of so many halts, as one.
fn several(fixes: &[Fix], halts: usize) -> Fix {
    let is_of_file = |fix: &Fix| matches!(fix.latest, Latest::Unless(_));
    let latest = match &fixes[0] {
        first if fixes.iter().all(|fix| fix.latest == first.latest) && is_of_file(first) => {
            first.latest
        }
        // One of them counts with the option alone.
        _ if fixes.iter().any(is_of_file) => {
            Latest::Unless("fixed everything outside the pipeline's file")
        }
        _ if fixes.iter().all(|fix| fix.latest == Latest::Never) => Latest::Never,
        _ => Latest::IfEdited,
    };
    let mut effects: Vec<&str> = Vec::new();
    for effect in fixes.iter().filter_map(|fix| fix.effect.as_deref()) {
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    if effects.len() > NAMED {
        effects.truncate(NAMED);
        effects.push("and more");
    }
    Fix {
        effect: (!effects.is_empty()).then(|| effects.join(", ")),
        or_anew: fixes.iter().all(|fix| fix.or_anew),
        ..Fix::of(named(fixes, halts)).with_latest(latest)
    }
}

/// The actions of several fixes, of so many halts.
fn named(fixes: &[Fix], halts: usize) -> String {
    let named: Vec<&str> = fixes.iter().take(NAMED).map(|it| &*it.first).collect();
    // Of more halts than these, others may have fixes of their own.
    let at_least = match halts {
        HALTS_MAX.. => "at least ",
        _ => "",
    };
    let (first, last) = match fixes.len().checked_sub(NAMED) {
        Some(more @ 1..) => (&named[..], format!("{at_least}{more} more")),
        _ => (&named[..named.len() - 1], named[named.len() - 1].to_owned()),
    };
    // An action that is a list itself ends before a semicolon.
    let is_list = |it: &&str| it.contains(", ") || it.contains(" and ");
    match named.iter().any(is_list) {
        true => format!("{}; and {last}", first.join("; ")),
        false => format!("{} and {last}", first.join(", ")),
    }
}

/// The fix, the command after it, and the way around an obstacle to `--latest`.
fn revival(fix: &Fix, run: RunId, prospects: &Prospects) -> String {
    let Fix { first, latest, .. } = fix;
    let (another, anew) = match prospects.has_key {
        true => (" and another key", " with another key"),
        false => ("", ""),
    };
    let obstacle = prospects.obstacle.as_ref();
    let obstacle = obstacle.filter(|_| *latest != Latest::Never);
    let mut notes: Vec<String> = fix.effect.iter().cloned().collect();
    if let (Some(Obstacle::Disagrees(found)), Latest::IfEdited) = (obstacle, latest) {
        notes.push(format!(
            "not with --latest: the pipeline's file cannot continue this run ({}); undo that change of the file, or \
             trigger a new run{anew}, which does all work again",
            listed(found)
        ));
        return format!("{first}, then: {}", command(run, "", &notes));
    }
    let option = match latest {
        Latest::Never => "",
        Latest::IfEdited => {
            notes.push("add --latest if you edited the pipeline's file".to_owned());
            ""
        }
        Latest::Unless(other) => {
            notes.push(format!("without --latest if you {other}"));
            " --latest"
        }
    };
    if fix.or_anew {
        notes.push(format!("or trigger it again with another input{another}"));
    }
    let remedy = format!("{first}, then: {}", command(run, option, &notes));
    match obstacle {
        None => remedy,
        // A raised `timeout` counts with the option alone.
        Some(Obstacle::Disagrees(found)) => format!(
            "undo the change of the pipeline's file with which it cannot continue this run ({}); {remedy}; or trigger a \
             new run{anew}, which does all work again",
            listed(found)
        ),
        Some(Obstacle::Unknown) => format!(
            "{remedy}; --latest is refused if the file has changed so that it cannot continue this run"
        ),
        Some(Obstacle::Mistake(place)) => format!(
            "{remedy}; --latest and a new run need the mistake in a pipeline's file fixed ({place}), which \
             `ductworkd check` explains"
        ),
        Some(Obstacle::Gone) => {
            format!("{remedy}; --latest and a new run need a configuration that has this pipeline")
        }
    }
}

fn command(run: RunId, option: &str, notes: &[String]) -> String {
    let command = format!("ductworkd revive {run}{option}");
    match notes.is_empty() {
        true => command,
        false => format!("{command}    # {}", notes.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::definition::{Path, Pipeline, StepSpec};

    fn definition() -> Definition {
        let pipeline = Pipeline::named("P")
            .start("List")
            .expand("Load")
            .divide([Path::to("A"), Path::to("B")])
            .combine("Merge")
            .collapse("Report");
        pipeline.build().expect("it is well formed")
    }

    fn fact(reason: HaltReason, node: &str, output: Option<&str>) -> HaltFact {
        HaltFact {
            reason: reason.to_string(),
            node: node.to_owned(),
            via: "chain".to_owned(),
            output: output.map(|text| OutputFact {
                is_withheld: false,
                size: text.len() as u64,
                text: text.to_owned(),
            }),
            ..HaltFact::default()
        }
    }

    fn said(fact: &HaltFact) -> String {
        fact.explanation(Some(&definition())).unwrap_or_default()
    }

    #[test]
    fn an_output_that_cannot_be_expanded_is_named_and_quoted() {
        let of = |output| said(&fact(HaltReason::TransitionInvalid, "List", Some(output)));
        assert_eq!(
            of("\"in\""),
            "List returned a string; `expand: Load` needs a list or an object; it is `\"in\"`"
        );
        let long = format!("\"{}\"", "é".repeat(100));
        assert!(
            of(&long).ends_with(&format!("it begins `\"{}`", "é".repeat(39))),
            "{}",
            of(&long)
        );
        for (output, kind) in [("1.5", "a number"), ("true", "a boolean"), ("null", "null")] {
            assert!(
                of(output).starts_with(&format!("List returned {kind}; ")),
                "{}",
                of(output)
            );
        }
        let mut asked = fact(HaltReason::TransitionInvalid, "List", Some("7"));
        asked.via = "dampen".to_owned();
        assert!(
            said(&asked).starts_with("the answer at List is a number; "),
            "{}",
            said(&asked)
        );
        let mut cut = fact(HaltReason::TransitionInvalid, "List", Some("\"abc"));
        cut.output.as_mut().expect("it has one").size = 9_000_000;
        assert!(said(&cut).ends_with("it begins `\"abc`"), "{}", said(&cut));
    }

    #[test]
    fn a_remedy_names_the_actions_against_all_halts() {
        let run = RunId(uuid::Uuid::nil());
        let refused = |node| fact(HaltReason::StepRefused, node, None);
        let timed_out = fact(HaltReason::JobTimedOut, "Load", None);
        let of = |halts: &[HaltFact]| remedy(halts, None, run, &Prospects::default());
        let end = |note| format!(", then: ductworkd revive {run}    # {note}");
        let alone = end(
            "add --latest if you edited the pipeline's file; or trigger it again with another input",
        );
        assert_eq!(of(&[refused("A"), refused("A")]), format!("fix A{alone}"));
        let all = ["A", "B", "C", "D"].map(refused);
        assert_eq!(of(&all[..3]), format!("fix A, fix B and fix C{alone}"));
        assert_eq!(of(&all), format!("fix A, fix B, fix C and 1 more{alone}"));
        // One of them counts with the option alone.
        let left = "without --latest if you fixed everything outside the pipeline's file";
        assert_eq!(
            of(&[refused("A"), timed_out.clone(), refused("A")]),
            format!(
                "fix A and raise the `timeout` of Load in the pipeline's file, then: ductworkd revive {run} --latest    # {left}"
            )
        );
        let both = of(&[fact(HaltReason::JobTimedOut, "A", None), timed_out.clone()]);
        let raised = "    # without --latest if you raised `job_worker.timeout` and sent SIGHUP to `ductworkd`, or made";
        assert!(both.contains(&format!(" --latest{raised}")), "{both}");
        // A definition has no part in these.
        let undefined = ["A", "B"].map(|node| fact(HaltReason::StepUndefined, node, None));
        let deployed = of(&undefined);
        assert!(
            deployed.ends_with(&format!(", then: ductworkd revive {run}")),
            "{deployed}"
        );
        // An action with a comma is not one of a list with commas.
        let unfound = HaltFact {
            class: Some("command_not_found".to_owned()),
            ..fact(HaltReason::JobRetriesExhausted, "B", None)
        };
        let edited = end("add --latest if you edited the pipeline's file");
        assert_eq!(
            of(&[refused("A"), unfound]),
            format!("fix A; and install the program of B, or create its file{edited}")
        );
        // Another option is no remedy where the file's definition is refused.
        let obstacle = "it has no `B`";
        let refused_there = format!(
            ", then: ductworkd revive {run}    # not with --latest: the pipeline's file cannot continue this run \
             ({obstacle}); undo that change of the file, or trigger a new run, which does all work again"
        );
        let prospects = |obstacle| Prospects {
            has_key: false,
            obstacle: Some(obstacle),
        };
        let disagrees = prospects(Obstacle::Disagrees(vec![obstacle.to_owned()]));
        let timed_out = [fact(HaltReason::JobTimedOut, "A", None)];
        // A raised `timeout` counts with the option alone.
        let undone_first = format!(
            "undo the change of the pipeline's file with which it cannot continue this run ({obstacle}); raise the `timeout` \
             of A in the pipeline's file, then: ductworkd revive {run} --latest    # without --latest if you raised \
             `job_worker.timeout` and sent SIGHUP to `ductworkd`, or made the step faster; or trigger a new run, which \
             does all work again"
        );
        let mixed = [all[0].clone(), timed_out[0].clone()];
        assert_eq!(
            remedy(&mixed, None, run, &disagrees),
            format!(
                "undo the change of the pipeline's file with which it cannot continue this run ({obstacle}); fix A and raise \
                 the `timeout` of A in the pipeline's file, then: ductworkd revive {run} --latest    # {left}; or trigger a \
                 new run, which does all work again"
            )
        );
        assert_eq!(remedy(&timed_out, None, run, &disagrees), undone_first);
        assert_eq!(remedy(&undefined, None, run, &disagrees), deployed);
        let (quick, none) = (Duration::from_secs(1), Prospects::default());
        let spec = StepSpec::command(["a"]).timeout(quick);
        let own = Pipeline::named("P").start("A").step("A", spec).build();
        let own = own.expect("it is well formed");
        assert_eq!(
            remedy(&timed_out, Some(&own), run, &none),
            format!(
                "raise the `timeout` of A in the pipeline's file, then: ductworkd revive {run} --latest    # without --latest \
                 if you made the step faster"
            )
        );
        let told = remedy(&all[..1], None, run, &disagrees);
        assert!(told.ends_with(&refused_there), "{told}");
        for halts in [&all[..1], &timed_out] {
            // These may be in the way, or are as soon as the option is used; the rest of the remedy stays.
            for (obstacle, end) in [
                (
                    Obstacle::Unknown,
                    "; --latest is refused if the file has changed so that it cannot continue this run",
                ),
                (
                    Obstacle::Mistake("p.yml:3".to_owned()),
                    "; --latest and a new run need the mistake in a pipeline's file fixed (p.yml:3), which `ductworkd check` explains",
                ),
                (
                    Obstacle::Gone,
                    "; --latest and a new run need a configuration that has this pipeline",
                ),
            ] {
                let told = remedy(halts, None, run, &prospects(obstacle));
                assert_eq!(told, format!("{}{end}", of(halts)));
            }
        }
        let deploy = [fact(HaltReason::StepUndefined, "A", None)];
        for obstacle in [
            Obstacle::Disagrees(vec![]),
            Obstacle::Unknown,
            Obstacle::Gone,
        ] {
            assert_eq!(
                remedy(&deploy, None, run, &prospects(obstacle)),
                of(&deploy)
            );
        }
        // The key of a run leads to that run for good.
        let keyed = Prospects {
            has_key: true,
            ..Prospects::default()
        };
        assert_eq!(
            remedy(&all[..1], None, run, &keyed),
            format!("fix A{alone} and another key")
        );
        let keyed = Prospects {
            has_key: true,
            ..disagrees
        };
        let told = remedy(&all[..1], None, run, &keyed);
        let anew = "or trigger a new run with another key, which does all work again";
        assert!(told.ends_with(anew), "{told}");
        let most = all.iter().cycle().take(HALTS_MAX).cloned();
        assert_eq!(
            of(&most.collect::<Vec<_>>()),
            format!("fix A, fix B, fix C and at least 1 more{alone}")
        );
    }

    #[test]
    fn the_first_of_several_halts_is_explained_and_the_others_are_named() {
        let failed = |node: &str| HaltFact {
            error: Some("no disk".to_owned()),
            ..fact(HaltReason::JobRetriesExhausted, node, None)
        };
        let unanswered = fact(HaltReason::Unanswered, "Ask", None);
        let of = |halts: &[HaltFact]| summary(halts, None).unwrap_or_default();
        assert_eq!(summary(&[], None), None);
        let load = "job_retries_exhausted at Load: no disk";
        assert_eq!(of(&[failed("Load")]), load);
        assert_eq!(
            of(&[failed("Load"), failed("Load")]),
            format!("{load} (and 1 more)")
        );
        let mixed = [failed("Load"), unanswered, failed("Load"), failed("A")];
        assert_eq!(
            of(&mixed),
            format!("{load} (and 3 more: also unanswered at Ask, job_retries_exhausted at A)")
        );
        let many: Vec<HaltFact> = ["Load", "A", "B", "C", "D", "E"].map(failed).to_vec();
        let named = ["A", "B", "C"].map(|node| format!("job_retries_exhausted at {node}"));
        assert_eq!(
            of(&many),
            format!(
                "{load} (and 5 more: also {}, and 2 others)",
                named.join(", ")
            )
        );
        let most = vec![failed("Load"); HALTS_MAX];
        assert_eq!(of(&most), format!("{load} (and at least 99 more)"));
    }

    #[test]
    fn every_reason_is_explained_or_has_the_error_of_its_step() {
        for reason in HaltReason::ALL {
            let mut fact = fact(*reason, "List", None);
            fact.error = Some("exit status 3".to_owned());
            let known = said(&fact);
            fact.error = None;
            let unknown = fact.explanation(None).unwrap_or_default();
            let of_step = ["job_", "step_"]
                .iter()
                .any(|it| reason.as_str().starts_with(it));
            assert_eq!(
                known == "exit status 3",
                of_step || reason.as_str() == "payload_too_large"
            );
            assert_eq!(unknown.is_empty(), of_step, "{reason}: {unknown}");
        }
    }

    #[test]
    fn a_fan_out_or_a_fan_in_beyond_a_limit_is_counted() {
        let of = |node, output| said(&fact(HaltReason::MaxFanoutExceeded, node, output));
        let more = "more than `pipeline_advancer.steps.max_depth` allows";
        assert_eq!(
            of("List", Some("[1,2,[3]]")),
            format!("List returned 3 elements, {more}")
        );
        assert_eq!(
            of("Load", Some("[1,2]")),
            format!("Load divides into 2 branches, {more}")
        );
        let mut wide = fact(HaltReason::MaxFanoutExceeded, "List", Some("[1,2"));
        wide.output.as_mut().expect("it has one").size = 9_000_000;
        assert_eq!(
            said(&wide),
            format!("List returned a list of 9000000 bytes, with elements {more}")
        );
        let mut large = fact(HaltReason::PayloadTooLarge, "List", Some("[1,2,3]"));
        large.width = Some(3);
        assert_eq!(
            said(&large),
            "the outputs of the 3 branches of List together, the input of Report, are longer than \
             `job_worker.max_payload` allows"
        );
    }

    #[test]
    fn the_remedy_is_one_that_works() {
        let run = RunId(uuid::Uuid::nil());
        let revive = format!("ductworkd revive {run}");
        let alone = Prospects::default();
        let of = |reason, output| remedy(&[fact(reason, "List", output)], None, run, &alone);
        assert_eq!(of(HaltReason::AdvancerRetriesExhausted, None), revive);
        // Only the present definition has the new timeout.
        let late = of(HaltReason::JobTimedOut, None);
        let raised = "raise the `timeout` of List in the pipeline's file";
        assert!(
            late.starts_with(&format!("{raised}, then: {revive} --latest    # ")),
            "{late}"
        );
        assert_eq!(
            of(HaltReason::StepUndefined, None),
            format!("deploy the program that has the step List, then: {revive}")
        );
        let edited = "    # add --latest if you edited the pipeline's file";
        let kills = "look for what kills List";
        assert_eq!(
            of(HaltReason::JobCrashesExhausted, None),
            format!("{kills}, often a lack of memory, then: {revive}{edited}")
        );
        for (by, memory) in [
            ("SIGKILL: by", ", often a lack of memory"),
            ("SIGTERM: by", ""),
        ] {
            let mut killed = fact(HaltReason::JobCrashesExhausted, "List", None);
            killed.error = Some(format!("killed by {by} a person"));
            let told = format!("{kills}{memory}, then: {revive}{edited}");
            assert_eq!(remedy(&[killed], None, run, &alone), told);
        }
        let invalid = of(HaltReason::TransitionInvalid, Some("1"));
        assert!(
            invalid.starts_with(&format!("fix List, then: {revive} ")),
            "{invalid}"
        );
        assert!(invalid.contains("--latest"), "{invalid}");
        let refused = of(HaltReason::StepRefused, None);
        assert!(
            refused.starts_with(&format!("fix List, then: {revive} ")),
            "{refused}"
        );
        // A step that refuses once refuses again, unless something else is changed.
        let exhausted = |class: &str| {
            let mut fact = fact(HaltReason::JobRetriesExhausted, "List", None);
            fact.class = Some(class.to_owned());
            remedy(&[fact], None, run, &alone)
        };
        for (class, first) in [
            (
                "command_not_found",
                "install the program of List, or create its file",
            ),
            ("cwd_not_found", "make the working directory of List"),
            (
                "secret_unusable",
                "set or correct the secret of List, and restart `ductworkd` unless the secret is in a file",
            ),
            (
                "variable_not_set",
                "set the variable of List where `ductworkd` runs, and restart it",
            ),
        ] {
            assert_eq!(
                exhausted(class),
                format!(
                    "{first}, then: {revive}    # add --latest if you edited the pipeline's file"
                )
            );
        }
        for (error, is_of_windows) in [
            ("env: 'python3\\r': No such file or directory", true),
            ("d.sh: line 1: $'ls\\r': command not found", true),
            ("d.sh: 1: ls\r: not found", true),
            ("d.sh: 1: rls: not found", false),
        ] {
            let mut fact = fact(HaltReason::JobRetriesExhausted, "List", None);
            fact.class = Some("ExitStatus(127)".to_owned());
            fact.error = Some(error.to_owned());
            let told = remedy(&[fact], None, run, &alone);
            let first = "save the script of List with the line ends of Unix (sed -i 's/\\r$//' FILE), then: ";
            assert_eq!(told.starts_with(first), is_of_windows, "{told}");
        }
        for class in ["ExitStatus(1)", "output_invalid"] {
            assert_eq!(
                exhausted(class),
                format!(
                    "fix List, then: {revive}    # add --latest if you edited the pipeline's file; or \
                     trigger it again with another input"
                )
            );
        }
        assert_eq!(
            exhausted("Signal(SEGV)"),
            format!("{kills}, then: {revive}{edited}")
        );
        let printed = exhausted("output_too_large");
        let less = "let List return less, or raise `job_worker.max_payload` and send SIGHUP to `ductworkd`, then: ";
        assert!(printed.starts_with(less), "{printed}");
        let wide = of(HaltReason::MaxFanoutExceeded, Some("[]"));
        assert!(
            wide.starts_with("raise `pipeline_advancer.steps.max_depth`"),
            "{wide}"
        );
        let large = of(HaltReason::PayloadTooLarge, None);
        assert!(
            large.starts_with("raise `job_worker.max_payload`"),
            "{large}"
        );
        // Of several halts, the one that a revival alone does not fix is reported.
        let both = [
            fact(HaltReason::AdvancerRetriesExhausted, "Load", None),
            fact(HaltReason::TransitionInvalid, "List", Some("1")),
        ];
        assert!(remedy(&both, None, run, &alone).starts_with("fix List"));
        // Of several halts, it says with which steps the revival begins.
        let both = [
            fact(HaltReason::Unanswered, "Ask", None),
            fact(HaltReason::TransitionInvalid, "List", Some("1")),
        ];
        assert_eq!(
            remedy(&both, None, run, &alone),
            format!(
                "have an answer ready and fix List, then: {revive}    # asks again, reruns List; add --latest if \
                 you edited the pipeline's file"
            )
        );
    }
}
