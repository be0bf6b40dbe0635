//! Properties of every pipeline that can be built, tested with random flows.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::definition::builder::To;

/// A random list of transitions, from which [`valid`] makes a legal one.
#[derive(Clone, Debug)]
enum Op {
    Chain(Step),
    Dampen(bool),
    Expand(Step),
    Collapse(Step),
    Divide(Vec<Way>, Option<Step>),
    Divert(Vec<Way>, Way, Option<Step>),
}

#[derive(Clone, Debug)]
struct Step {
    name: &'static str,
    delay_ms: Option<u64>,
}

#[derive(Clone, Debug)]
struct Way {
    first: Step,
    ops: Vec<Op>,
}

impl Step {
    fn to(&self) -> To {
        let to = To::step(self.name);
        match self.delay_ms {
            Some(delay) => to.delay(Duration::from_millis(delay)),
            None => to,
        }
    }

    fn json(&self) -> Value {
        match self.delay_ms {
            Some(delay) => json!({ "to": self.name, "delay": format!("{delay}ms") }),
            None => json!(self.name),
        }
    }
}

impl Way {
    fn path(&self) -> Path {
        on_path(Path::to(self.first.to()), &self.ops)
    }

    fn json(&self) -> Value {
        if self.ops.is_empty() {
            return self.first.json();
        }
        let first = [self.first.json()].into_iter();
        Value::Array(first.chain(items(&self.ops)).collect())
    }
}

impl Op {
    /// The transition in YAML, and the fan-in after it.
    fn json(&self) -> Value {
        match self {
            Self::Chain(step) => json!({ "chain": step.json() }),
            Self::Dampen(false) => json!("dampen"),
            Self::Dampen(true) => json!({ "dampen": "sure?" }),
            Self::Expand(step) => json!({ "expand": step.json() }),
            Self::Collapse(step) => json!({ "collapse": step.json() }),
            Self::Divide(ways, _) => {
                json!({ "divide": ways.iter().map(Way::json).collect::<Vec<_>>() })
            }
            Self::Divert(ways, otherwise, _) => {
                let mut map = serde_json::Map::new();
                map.insert("otherwise".into(), otherwise.json());
                for (number, way) in ways.iter().enumerate() {
                    map.insert(format!("case {number}"), way.json());
                }
                json!({ "divert": map })
            }
        }
    }

    fn fan_in(&self) -> Option<Value> {
        match self {
            Self::Divide(_, step) => step.as_ref().map(|step| json!({ "combine": step.json() })),
            Self::Divert(_, _, step) => {
                step.as_ref().map(|step| json!({ "converge": step.json() }))
            }
            _ => None,
        }
    }
}

/// The longest legal part of a list: it closes nothing that is not open, and has nothing
/// after a fan-out that does not come together again.
fn valid(ops: &[Op]) -> Vec<&Op> {
    let mut open = 0;
    let mut valid = Vec::new();
    for op in ops {
        match op {
            Op::Expand(_) => open += 1,
            Op::Collapse(_) if open == 0 => continue,
            Op::Collapse(_) => open -= 1,
            _ => {}
        }
        valid.push(op);
        if matches!(op, Op::Divide(_, None) | Op::Divert(_, _, None)) {
            break;
        }
    }
    valid
}

fn items(ops: &[Op]) -> Vec<Value> {
    let both = |op: &&Op| [Some(op.json()), op.fan_in()];
    valid(ops).iter().flat_map(both).flatten().collect()
}

/// Makes the same calls on a pipeline and on a path.
macro_rules! apply {
    ($name:ident, $owner:ty) => {
        fn $name(owner: $owner, ops: &[Op]) -> $owner {
            valid(ops).into_iter().fold(owner, |owner, op| match op {
                Op::Chain(step) => owner.chain(step.to()),
                Op::Dampen(asks) => owner.dampen(if *asks { "sure?" } else { "" }),
                Op::Expand(step) => owner.expand(step.to()),
                Op::Collapse(step) => owner.collapse(step.to()),
                Op::Divide(ways, fan_in) => {
                    let owner = owner.divide(ways.iter().map(Way::path));
                    match fan_in {
                        Some(step) => owner.combine(step.to()),
                        None => owner,
                    }
                }
                Op::Divert(ways, otherwise, fan_in) => {
                    let cases = ways.iter().enumerate();
                    let cases = cases.map(|(number, way)| (format!("case {number}"), way.path()));
                    let owner = owner.divert(cases, otherwise.path());
                    match fan_in {
                        Some(step) => owner.converge(step.to()),
                        None => owner,
                    }
                }
            })
        }
    };
}

apply!(on_pipeline, Pipeline);
apply!(on_path, Path);

fn step() -> impl Strategy<Value = Step> {
    let name = prop::sample::select(vec!["A", "B", "C", "D-1", "_e"]);
    let delay = prop::option::weighted(0.2, 0..100_000_u64);
    (name, delay).prop_map(|(name, delay_ms)| Step { name, delay_ms })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let leaf = || {
        prop_oneof![
            3 => step().prop_map(Op::Chain),
            1 => any::<bool>().prop_map(Op::Dampen),
            2 => step().prop_map(Op::Expand),
            2 => step().prop_map(Op::Collapse),
        ]
    };
    let flat = prop::collection::vec(leaf(), 0..4);
    flat.prop_recursive(3, 60, 5, move |inner| {
        let way = || (step(), inner.clone()).prop_map(|(first, ops)| Way { first, ops });
        let ways = || prop::collection::vec(way(), 1..4);
        let fan_in = || prop::option::weighted(0.7, step());
        let nested = prop_oneof![
            2 => leaf(),
            1 => (ways(), fan_in()).prop_map(|(ways, fan_in)| Op::Divide(ways, fan_in)),
            1 => (ways(), way(), fan_in())
                .prop_map(|(ways, otherwise, fan_in)| Op::Divert(ways, otherwise, fan_in)),
        ];
        prop::collection::vec(nested, 0..5)
    })
}

/// A random pipeline.
pub fn definition() -> impl Strategy<Value = Definition> {
    (ops(), step()).prop_map(|(ops, first)| {
        let (pipeline, _) = both(&ops, &first);
        let built = pipeline.build();
        built.unwrap_or_else(|problems| panic!("{problems}"))
    })
}

fn spec(number: usize) -> StepSpec {
    StepSpec::command(["program", &number.to_string()])
        .timeout(Duration::from_millis(1_500 + number as u64))
        .backoff(Backoff {
            factor: 1.0 + number as f64 * 0.3,
            jitter: 0.1 * number as f64,
            ..Backoff::default()
        })
        .env("NUMBER", number.to_string())
        .secret("TOKEN", "SOME_TOKEN")
}

/// The pipeline in Rust, and the text of the same pipeline in YAML.
fn both(ops: &[Op], first: &Step) -> (Pipeline, String) {
    let flow = on_pipeline(Pipeline::named("Random").start(first.to()), ops);
    // Only steps that are used may be declared, so the flow is built once to find them.
    let used = match flow.clone().build() {
        Ok(definition) => definition.steps.into_keys().collect(),
        Err(problems) => panic!("{problems}"),
    };
    let used: BTreeSet<String> = used;
    let declare =
        |pipeline: Pipeline, (number, name): (usize, &String)| pipeline.step(name, spec(number));
    let pipeline = used.iter().enumerate().fold(flow, declare);
    let steps = used.iter().enumerate().map(|(number, name)| {
        let settings = json!({
            "command": ["program", number],
            "timeout": format!("{}ms", 1_500 + number),
            "backoff": { "factor": 1.0 + number as f64 * 0.3, "jitter": 0.1 * number as f64 },
            "env": { "NUMBER": number, "TOKEN": { "secret": "SOME_TOKEN" } },
        });
        (name.clone(), settings)
    });
    let start = json!({ "start": first.json() });
    let flow: Vec<Value> = [start].into_iter().chain(items(ops)).collect();
    let steps: serde_json::Map<String, Value> = steps.collect();
    let text = json!({ "pipeline": "Random", "steps": steps, "flow": flow }).to_string();
    (pipeline, text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_graph_is_acyclic_with_all_nodes_reachable_and_named_once(ops in ops(), first in step()) {
        let (pipeline, _) = both(&ops, &first);
        let definition = pipeline.build().unwrap_or_else(|problems| panic!("{problems}"));
        let names: HashSet<_> = definition.nodes.iter().map(|node| &node.name).collect();
        prop_assert_eq!(names.len(), definition.nodes.len());
        let mut reached = vec![false; definition.nodes.len()];
        reached[0] = true;
        for (index, node) in definition.nodes.iter().enumerate() {
            // All edges lead forward, so a node is reached either before its turn or never.
            prop_assert!(reached[index], "{} is not reachable", node.name);
            for NodeIndex(next) in node.next.leads_to() {
                prop_assert!(next > index);
                reached[next] = true;
            }
        }
    }

    #[test]
    fn the_canonical_form_is_read_back_unchanged(ops in ops(), first in step()) {
        let (pipeline, _) = both(&ops, &first);
        let definition = pipeline.build().unwrap_or_else(|problems| panic!("{problems}"));
        let canonical = definition.canonical();
        let back = Definition::from_canonical(&canonical).expect("a sound definition");
        prop_assert_eq!(&back, &definition);
        prop_assert_eq!(back.canonical(), canonical);
        prop_assert_eq!(back.digest(), definition.digest());
    }

    #[test]
    fn yaml_and_rust_agree(ops in ops(), first in step()) {
        let (pipeline, text) = both(&ops, &first);
        let rust = pipeline.build().unwrap_or_else(|problems| panic!("{problems}"));
        let yaml = yaml::parse(&text, std::path::Path::new("random.yml"))
            .unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        prop_assert_eq!(&yaml, &rust);
        prop_assert_eq!(yaml.digest(), rust.digest());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-a-zA-Z0-9:{}\\[\\],&*!|>'\"%#\\n\\t ~.é\u{0}]{0,80}") {
        let _ = yaml::parse(&text, std::path::Path::new("random.yml"));
    }

    #[test]
    fn no_damaged_pipeline_makes_the_parser_panic(
        ops in ops(), first in step(), at in any::<prop::sample::Index>(), with in "[-:{}\\[\\],\"x ]{0,3}",
    ) {
        let (_, text) = both(&ops, &first);
        let at = at.index(text.len());
        let damaged = format!("{}{with}{}", &text[..at], &text[at + 1..]);
        if let Err(problems) = yaml::parse(&damaged, std::path::Path::new("random.yml")) {
            prop_assert!(!problems.0.is_empty());
            prop_assert!(problems.0.iter().all(|problem| problem.help.is_some()));
        }
    }
}
