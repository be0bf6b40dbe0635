//! The one form of a definition: nodes in writing order with stable names, stable JSON, and
//! its digest.
//!
//! Owns: how a checked draft becomes the graph, how nodes are named, and the conditions that a
//! stored definition must satisfy to be trusted. Never: judges a person's text (`check`).
//!
//! Nodes are numbered in writing order, depth first, a divert's `otherwise` after its cases
//! wherever it was written. So every edge leads to a higher number. That is why a definition cannot
//! have a cycle, and why [`Definition::from_canonical`] can detect one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::builder::{Draft, Item, Kind, Path, To};
use super::graph::{
    Backoff, Case, Deadline, Definition, Edge, Node, NodeIndex, StepSpec, Target, Then,
};
use super::input;
use crate::model::Hook;

/// The reason why a stored definition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of this shape.
    #[error("stored definition cannot be read")]
    Shape(#[source] serde_json::Error),
    /// It contains something that this version does not know: a newer version wrote it.
    #[error("{0}")]
    Unknown(String),
    /// The shape is right, but the graph is not.
    #[error("stored definition is not sound: {0}")]
    Unsound(String),
}

/// SHA-256 of a canonical form, in hexadecimal.
pub fn digest(canonical: &str) -> String {
    let digest = Sha256::digest(canonical.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Definition {
    /// The canonical JSON: equal for equal definitions, on every host and from every source.
    pub fn canonical(&self) -> String {
        serde_json::to_string(self).expect("a definition has only text keys and finite numbers")
    }

    /// SHA-256 of the canonical form, in hexadecimal.
    pub fn digest(&self) -> String {
        digest(&self.canonical())
    }

    /// Reads a canonical form back, and makes sure that no value in it is out of range, and that no
    /// field in it was skipped: a version that does not know a field would run something else than
    /// the author meant.
    pub fn from_canonical(text: &str) -> Result<Self, Error> {
        let definition: Self = serde_json::from_str(text).map_err(|error| {
            let stored = serde_json::from_str(text).unwrap_or_default();
            match unknown_kind(&stored) {
                Some(unknown) => Error::Unknown(unknown),
                None => Error::Shape(error),
            }
        })?;
        let canonical = definition.canonical();
        if canonical != text {
            let stored = serde_json::from_str(text).map_err(Error::Shape)?;
            let read = serde_json::from_str(&canonical).map_err(Error::Shape)?;
            if let Some(field) = passed_over(&stored, &read) {
                return Err(Error::Unknown(format!("it has an unknown field `{field}`")));
            }
        }
        sound(&definition).map_err(Error::Unsound)?;
        Ok(definition)
    }
}

/// The kind of a step whose kind this version does not know: the JSON reader only reports that none
/// of the known kinds fits.
fn unknown_kind(stored: &Value) -> Option<String> {
    const KINDS: [&str; 2] = ["command", "native"];
    const SETTINGS: [&str; 7] = [
        "timeout",
        "delay",
        "max_retry",
        "max_crash",
        "backoff",
        "env",
        "cwd",
    ];
    stored
        .get("steps")?
        .as_object()?
        .iter()
        .find_map(|(step, spec)| {
            let mut keys = spec.as_object()?.keys().map(String::as_str);
            if keys.clone().any(|key| KINDS.contains(&key)) {
                return None;
            }
            let kind = keys.find(|key| !SETTINGS.contains(key))?;
            Some(format!("its step `{step}` is of an unknown kind, `{kind}`"))
        })
}

/// The first field of `stored` that `read` does not have, with its path.
fn passed_over(stored: &Value, read: &Value) -> Option<String> {
    let below = |name: &str, stored, read| {
        let field = passed_over(stored, read)?;
        Some(format!("{name}.{field}"))
    };
    match (stored, read) {
        (Value::Object(stored), Value::Object(read)) => {
            stored
                .iter()
                .find_map(|(name, stored)| match read.get(name) {
                    Some(read) => below(name, stored, read),
                    // A null value carries no meaning and is skipped without harm.
                    None => (!stored.is_null()).then(|| name.clone()),
                })
        }
        (Value::Array(stored), Value::Array(read)) => {
            let mut both = stored.iter().zip(read).enumerate();
            both.find_map(|(index, (stored, read))| below(&index.to_string(), stored, read))
        }
        _ => None,
    }
}

/// The conditions that every definition from the builder satisfies.
fn sound(definition: &Definition) -> Result<(), String> {
    let nodes = &definition.nodes;
    if nodes.is_empty() {
        return Err("it has no nodes".into());
    }
    for hook in Hook::ALL {
        if let Some(step) = definition.hook(*hook)
            && !definition.steps.contains_key(step)
        {
            return Err(format!("{hook} names the step `{step}`, which is missing"));
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        if let Some(step) = &node.step
            && !definition.steps.contains_key(step)
        {
            let name = &node.name;
            return Err(format!("node `{name}` names a missing step `{step}`"));
        }
        for NodeIndex(next) in node.next.leads_to() {
            if next <= index || next >= nodes.len() {
                let name = &node.name;
                return Err(format!("node `{name}` ({index}) leads to {next}"));
            }
        }
    }
    Ok(())
}

impl Edge {
    /// All nodes that a branch, or the branches made from it, may reach next from here.
    pub fn leads_to(&self) -> Vec<NodeIndex> {
        let after = |then: &Then| match then {
            Then::End => None,
            Then::Combine(to) | Then::Collapse(to) | Then::Converge(to) => Some(to.node),
        };
        match self {
            Self::End => Vec::new(),
            Self::Chain(to) | Self::Converge(to) => vec![to.node],
            Self::Dampen(node) => vec![*node],
            Self::Divide { paths, then } => {
                let paths = paths.iter().map(|to| to.node);
                paths.chain(after(then)).collect()
            }
            Self::Expand { to, then } => [to.node].into_iter().chain(after(then)).collect(),
            Self::Divert { cases, otherwise } => {
                let cases = cases.iter().map(|case| case.to.node);
                cases.chain([otherwise.node]).collect()
            }
        }
    }
}

/// Where a list of transitions continues when its last step is done.
#[derive(Clone, Copy)]
enum Exit {
    /// Nowhere: the branch ends.
    End,
    /// At the node where the paths of the surrounding divert meet.
    Converge(Target),
}

impl Exit {
    fn edge(self) -> Edge {
        match self {
            Self::End => Edge::End,
            Self::Converge(target) => Edge::Converge(target),
        }
    }

    fn then(self) -> Then {
        match self {
            Self::End => Then::End,
            Self::Converge(target) => Then::Converge(target),
        }
    }
}

/// The graph of a draft in which `check` found no mistake.
pub(super) fn lower(draft: &Draft) -> Definition {
    let mut lowering = Lowering::default();
    let mut start_delay = None;
    if let Some((first, items)) = draft.flow.as_deref().and_then(<[Item]>::split_first)
        && let Kind::Start(to) = &first.kind
    {
        start_delay = lowering.target(to).delay;
        lowering.list(0, items, Exit::End);
    }
    let nodes = lowering.nodes;
    let hook = |hook| draft.hooks.get(&hook).and_then(|name| name.text.clone());
    let hooks = Hook::ALL.iter().filter_map(|it| hook(*it));
    let mut steps: BTreeMap<String, StepSpec> = nodes
        .iter()
        .filter_map(|node| node.step.clone())
        .chain(hooks)
        .map(|step| (step, StepSpec::native()))
        .collect();
    for declared in &draft.declared {
        let name = declared.name.text.clone().unwrap_or_default();
        steps.insert(name, normal(&declared.spec));
    }
    Definition {
        pipeline: draft.name.text.clone().unwrap_or_default(),
        on_halt: hook(Hook::Halt),
        on_complete: hook(Hook::Complete),
        on_wait: hook(Hook::Wait),
        input: draft
            .input
            .as_ref()
            .map(|tree| Box::new(input::read::read(tree).0)),
        trace: draft.trace,
        nodes,
        start_delay,
        steps,
    }
}

#[derive(Default)]
struct Lowering {
    nodes: Vec<Node>,
    appearances: HashMap<String, usize>,
}

impl Lowering {
    /// Appends a node; its edge is set once its successor is known.
    fn push(&mut self, step: Option<String>) -> NodeIndex {
        let base = step.clone().unwrap_or_else(|| "dampen".into());
        let appearance = self.appearances.entry(base.clone()).or_insert(0);
        *appearance += 1;
        // No step's name contains a point, so no step can have the name of a second node.
        let name = match *appearance {
            1 => base,
            many => format!("{base}.{many}"),
        };
        self.nodes.push(Node {
            name,
            step,
            prompt: None,
            deadline: None,
            next: Edge::End,
        });
        NodeIndex(self.nodes.len() - 1)
    }

    fn target(&mut self, to: &To) -> Target {
        Target {
            node: self.push(to.step.text.clone()),
            delay: to.delay.map(whole_millis),
        }
    }

    fn path(&mut self, path: &Path, exit: Exit) -> Target {
        let target = self.target(&path.first);
        self.list(target.node.0, &path.items, exit);
        target
    }

    /// Lowers the items after the node `current`, up to the end of their list.
    fn list(&mut self, mut current: usize, items: &[Item], exit: Exit) {
        // The nodes whose expand is not closed yet, outermost first.
        let mut open: Vec<usize> = Vec::new();
        let mut items = items.iter().map(|item| &item.kind).peekable();
        while let Some(kind) = items.next() {
            // Inside an open expand the list's end is the element's end; the outermost expand is
            // the one that continues where the list continues.
            let exit = if open.is_empty() { exit } else { Exit::End };
            match kind {
                Kind::Chain(to) => {
                    let target = self.target(to);
                    self.nodes[current].next = Edge::Chain(target);
                    current = target.node.0;
                }
                Kind::Dampen(question) => {
                    let node = self.push(None);
                    let asked = &mut self.nodes[node.0];
                    asked.prompt = question.prompt.clone().filter(|it| !it.is_empty());
                    asked.deadline = question.timeout.map(|timeout| Deadline {
                        timeout: whole_millis(timeout),
                        then: question.then.unwrap_or_default(),
                    });
                    self.nodes[current].next = Edge::Dampen(node);
                    current = node.0;
                }
                Kind::Expand(to) => {
                    let to = self.target(to);
                    let then = exit.then();
                    self.nodes[current].next = Edge::Expand { to, then };
                    open.push(current);
                    current = to.node.0;
                }
                Kind::Collapse(to) => {
                    let target = self.target(to);
                    let opener = open.pop().expect("check: a collapse has an open expand");
                    if let Edge::Expand { then, .. } = &mut self.nodes[opener].next {
                        *then = Then::Collapse(target);
                    }
                    current = target.node.0;
                }
                Kind::Divide(paths) => {
                    let to_end = |path| self.path(path, Exit::End);
                    let paths = paths.iter().map(to_end).collect();
                    let Some(Kind::Combine(to)) = items.peek() else {
                        let then = exit.then();
                        self.nodes[current].next = Edge::Divide { paths, then };
                        return;
                    };
                    items.next();
                    let target = self.target(to);
                    let then = Then::Combine(target);
                    self.nodes[current].next = Edge::Divide { paths, then };
                    current = target.node.0;
                }
                Kind::Divert { cases, otherwise } => {
                    let ways = || cases.iter().map(|(_, path)| path).chain(otherwise);
                    let meeting = match items.peek() {
                        Some(Kind::Converge(to)) => Some(Target {
                            // The paths are written first, so the node where they meet has the
                            // number after all of theirs.
                            node: NodeIndex(self.nodes.len() + ways().map(size).sum::<usize>()),
                            delay: to.delay.map(whole_millis),
                        }),
                        _ => None,
                    };
                    let inner = meeting.map_or(exit, Exit::Converge);
                    let mut targets: Vec<Target> =
                        ways().map(|path| self.path(path, inner)).collect();
                    let otherwise = targets.pop().expect("check: a divert has an otherwise");
                    let cases = cases.iter().zip(targets).map(|((when, _), to)| Case {
                        when: when.text.clone().unwrap_or_default(),
                        to,
                    });
                    let cases = cases.collect();
                    self.nodes[current].next = Edge::Divert { cases, otherwise };
                    let Some(Kind::Converge(to)) = items.next() else {
                        return;
                    };
                    current = self.target(to).node.0;
                    debug_assert_eq!(meeting.map(|target| target.node.0), Some(current));
                }
                Kind::Start(_) | Kind::Combine(_) | Kind::Converge(_) | Kind::Broken => {
                    unreachable!("check: a start is first, a fan-in follows its fan-out")
                }
            }
        }
        let exit = if open.is_empty() { exit } else { Exit::End };
        self.nodes[current].next = exit.edge();
    }
}

/// How many nodes a path makes.
fn size(path: &Path) -> usize {
    let of_item = |item: &Item| match &item.kind {
        Kind::Divide(paths) => paths.iter().map(size).sum(),
        Kind::Divert { cases, otherwise } => {
            let ways = cases.iter().map(|(_, path)| path).chain(otherwise);
            ways.map(size).sum()
        }
        _ => 1,
    };
    1 + path.items.iter().map(of_item).sum::<usize>()
}

/// A span, as precise as the canonical form can hold it.
fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(span.as_millis() as u64)
}

/// A step's settings, as precise as the canonical form can hold them, so that reading it back gives
/// the very same definition.
fn normal(spec: &StepSpec) -> StepSpec {
    let thousandths = |number: f64| (number * 1_000.0).round() / 1_000.0;
    StepSpec {
        run: spec.run.clone(),
        timeout: spec.timeout.map(whole_millis),
        delay: spec
            .delay
            .map(whole_millis)
            .filter(|delay| !delay.is_zero()),
        max_retry: spec.max_retry,
        max_crash: spec.max_crash,
        backoff: spec.backoff.map(|backoff| Backoff {
            initial: whole_millis(backoff.initial),
            // Every JSON reader reads short decimals back exactly; longer ones may change.
            factor: thousandths(backoff.factor),
            max: whole_millis(backoff.max),
            jitter: thousandths(backoff.jitter),
        }),
        env: spec.env.clone(),
        secrets: spec.secrets.clone(),
        cwd: spec.cwd.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Pipeline;

    fn definition() -> Definition {
        Pipeline::named("P")
            .on_halt("Tell")
            .start("A")
            .dampen("sure?")
            .divide(["B", "B"])
            .combine("A")
            .build()
            .expect("a definition")
    }

    #[test]
    fn the_canonical_form_leaves_out_what_was_not_said() {
        assert_eq!(
            definition().canonical(),
            concat!(
                r#"{"pipeline":"P","on_halt":"Tell","nodes":["#,
                r#"{"name":"A","step":"A","next":{"dampen":1}},"#,
                r#"{"name":"dampen","prompt":"sure?","next":{"divide":"#,
                r#"{"paths":[{"node":2},{"node":3}],"then":{"combine":{"node":4}}}}},"#,
                r#"{"name":"B","step":"B","next":"end"},{"name":"B.2","step":"B","next":"end"},"#,
                r#"{"name":"A.2","step":"A","next":"end"}],"#,
                r#""steps":{"A":{"native":null},"B":{"native":null},"Tell":{"native":null}}}"#,
            )
        );
    }

    #[test]
    fn spans_finer_than_the_canonical_form_are_cut_before_they_are_used() {
        let odd = std::time::Duration::from_nanos(1_500_999_999);
        let definition = Pipeline::named("P")
            .step("A", StepSpec::command(["a"]).timeout(odd))
            .start(("A", odd))
            .build()
            .expect("a definition");
        let back = Definition::from_canonical(&definition.canonical()).expect("a definition");
        assert_eq!(back, definition);
        assert_eq!(back.start_delay, Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_stored_form_that_cannot_be_right_is_refused() {
        let good = definition().canonical();
        assert!(Definition::from_canonical(&good).is_ok());
        for (part, damage, reason) in [
            (r#"{"dampen":1}"#, r#"{"dampen":9}"#, "leads to 9"),
            (r#"{"dampen":1}"#, r#"{"dampen":0}"#, "leads to 0"),
            (
                r#"{"combine":{"node":4}}"#,
                r#"{"combine":{"node":1}}"#,
                "leads to 1",
            ),
            (r#"{"node":3}"#, r#"{"node":5}"#, "leads to 5"),
            (r#""B":{"native":null},"#, "", "missing step `B`"),
            (r#","Tell":{"native":null}"#, "", "`Tell`, which is missing"),
            (
                r#""next":{"dampen":1}"#,
                r#""next":"back""#,
                "cannot be read",
            ),
            ("}}", "", "cannot be read"),
        ] {
            let bad = good.replacen(part, damage, 1);
            assert_ne!(bad, good, "{part}");
            let error = Definition::from_canonical(&bad).expect_err(damage);
            assert!(error.to_string().contains(reason), "{error}");
        }
        for (part, addition, reason) in [
            (
                r#""B":{"native":null}"#,
                r#""B":{"http":"GET /"}"#,
                "its step `B` is of an unknown kind, `http`",
            ),
            (
                r#""B":{"native":null}"#,
                r#""B":{"native":null,"cpus":2}"#,
                "it has an unknown field `steps.B.cpus`",
            ),
            (
                r#""next":{"dampen":1}"#,
                r#""next":{"dampen":1},"priority":3"#,
                "it has an unknown field `nodes.0.priority`",
            ),
            (
                r#"{"combine":{"node":4}}"#,
                r#"{"combine":{"node":4,"any":2}}"#,
                "it has an unknown field `nodes.1.next.divide.then.combine.any`",
            ),
        ] {
            let newer = good.replacen(part, addition, 1);
            assert_ne!(newer, good, "{part}");
            let error = Definition::from_canonical(&newer).expect_err(addition);
            assert_eq!(error.to_string(), reason);
        }
        // A different spelling does not change it.
        let spaced = good.replace(',', ", ");
        assert!(Definition::from_canonical(&spaced).is_ok());
        let empty = r#"{"pipeline":"P","nodes":[],"steps":{}}"#;
        assert!(Definition::from_canonical(empty).is_err());
    }
}
