//! Every edge, with every way a step ends, every state of the budgets, every shape of output
//! and every limit.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::code;
use crate::definition::{Definition, NodeIndex, Pipeline, Target, Then};
use crate::machine::advance::*;
use crate::model::{HaltReason, Via};

mod cases;
mod chapter;

use cases::{CASES, EdgeCase, Meaning, Shape, edges, shapes};
pub use chapter::chapter;

/// The budgets of the cells: small enough that `<`, `=` and `>` are numbers next to each other.
const MAX_RETRY: u32 = 4;
const MAX_CRASH: u32 = 2;
/// No limit, then limits around the widths of the cells.
const LIMITS: [Option<u64>; 5] = [None, Some(0), Some(1), Some(2), Some(1_000)];

/// The expectation for a step that succeeded within its budgets.
fn crossing(meaning: &Meaning, shape: &Shape, limit: Option<u64>) -> String {
    let halts = |reason: &str| format!("halts: `{reason}`");
    let too_wide = |width: u64| match limit {
        Some(limit) => width > limit,
        None => false,
    };
    match meaning {
        Meaning::Always(plan) => (*plan).to_owned(),
        Meaning::Paths(width, _) if too_wide(*width) => halts("max_fanout_exceeded"),
        Meaning::Paths(_, plan) => (*plan).to_owned(),
        Meaning::Elements(nothing) => match &shape.elements {
            None => halts("transition_invalid"),
            Some(elements) if too_wide(elements.len() as u64) => halts("max_fanout_exceeded"),
            Some(elements) if elements.is_empty() => (*nothing).to_owned(),
            Some(elements) => format!("branches at `P` with {}", list(elements)),
        },
        Meaning::Key => {
            let chosen = CASES.iter().find(|(case, _)| Some(*case) == shape.key);
            let to = chosen.map_or("O", |(_, to)| *to);
            format!("divert to `{to}` with the output")
        }
    }
}

/// The expectation for any cell: budgets before edges, and a failed step before everything else.
fn expected(meaning: &Meaning, shape: &Shape, cell: Cell) -> String {
    if let Some(reason) = cell.failed {
        return format!("halts: `{reason}`");
    }
    // An expand that has begun goes on.
    if cell.begun {
        return crossing(meaning, shape, None);
    }
    match (cell.crashes >= MAX_CRASH, cell.retries > MAX_RETRY) {
        (true, _) => "halts: `advancer_crashes_exhausted`".to_owned(),
        (false, true) => "halts: `advancer_retries_exhausted`".to_owned(),
        (false, false) => crossing(meaning, shape, cell.limit),
    }
}

/// Everything about a cell except the edge and the output.
#[derive(Clone, Copy, Debug)]
struct Cell {
    failed: Option<HaltReason>,
    retries: u32,
    crashes: u32,
    limit: Option<u64>,
    begun: bool,
}

/// The numbers around a budget: none of it, just below it, all of it, beyond it, and as far beyond
/// as numbers go.
fn around(max: u32) -> [u32; 5] {
    [0, max - 1, max, max + 1, u32::MAX]
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let reasons = HaltReason::ALL.iter().copied().map(Some);
    for failed in std::iter::once(None).chain(reasons) {
        for retries in around(MAX_RETRY) {
            for crashes in around(MAX_CRASH) {
                for (limit, begun) in LIMITS.iter().flat_map(|it| [(*it, false), (*it, true)]) {
                    cells.push(Cell {
                        failed,
                        retries,
                        crashes,
                        limit,
                        begun,
                    });
                }
            }
        }
    }
    cells
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("JSON")
}

fn node(definition: &Definition) -> NodeIndex {
    definition.find("A").expect("the node whose edge is tried")
}

/// The plan, as text.
fn actual(definition: &Definition, output: &RawValue, cell: Cell) -> String {
    let view = BranchView {
        node: node(definition),
        step: match cell.failed {
            Some(reason) => StepView::Failed(reason),
            None => StepView::Succeeded(output),
        },
        retries: cell.retries,
        crashes: cell.crashes,
        begun: cell.begun,
    };
    let limits = AdvanceLimits {
        max_retry: MAX_RETRY,
        max_crash: MAX_CRASH,
        max_fan_out: cell.limit,
        max_payload: usize::MAX,
    };
    words(definition, &decide(&view, definition, &limits))
}

fn words(definition: &Definition, advance: &Advance<'_>) -> String {
    let name = |target: &Target| code(&definition.node(target.node).name);
    let value = |value: &Value| match value {
        Value::Output => "the output",
        Value::EmptyArray => "`[]`",
    };
    match advance {
        Advance::End { value: with } => format!("ends with {}", value(with)),
        Advance::Continue {
            to,
            via,
            value: with,
        } => {
            format!("{via} to {} with {}", name(to), value(with))
        }
        Advance::Split { paths } => {
            let paths: Vec<String> = paths.iter().map(name).collect();
            format!("branches at {}", paths.join(", "))
        }
        Advance::Spread { to, elements } => {
            let texts = (0..elements.len()).map(|index| {
                let text = elements.text(index).into_owned();
                assert_eq!(elements.bytes(index), text.len());
                text
            });
            format!(
                "branches at {} with {}",
                name(to),
                list(&texts.collect::<Vec<_>>())
            )
        }
        Advance::Hold { at } => {
            format!("waits for a person at {}", code(&definition.node(*at).name))
        }
        Advance::Halt { reason } => format!("halts: {}", code(reason)),
    }
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(code).collect();
    texts.join(", ")
}

#[test]
fn every_cell_gives_the_plan_that_was_written_down_for_it() {
    let cells = cells();
    for shape in shapes() {
        let output = raw(&shape.json);
        for edge in edges() {
            for cell in &cells {
                assert_eq!(
                    actual(&edge.definition, &output, *cell),
                    expected(&edge.meaning, &shape, *cell),
                    "{} after {} {cell:?}",
                    edge.name,
                    shape.label
                );
            }
        }
    }
}

#[test]
fn a_worker_crosses_with_its_result_where_that_leads_to_one_step_or_none() {
    for edge in edges() {
        let from = node(&edge.definition);
        let two_phases = matches!(edge.meaning, Meaning::Paths(..) | Meaning::Elements(_))
            || edge.name == "dampen";
        for shape in shapes() {
            let output = raw(&shape.json);
            let simple = decide_simple(&output, from, &edge.definition);
            let simple = simple.map(|advance| words(&edge.definition, &advance));
            let whole = crossing(&edge.meaning, &shape, None);
            assert_eq!(simple, (!two_phases).then_some(whole), "{}", edge.name);
        }
    }
}

#[test]
fn the_step_after_a_person_was_asked_is_reached_like_any_other() {
    let pipeline = Pipeline::named("P").start("A").dampen("sure?").chain("B");
    let definition = pipeline.build().expect("a legal pipeline");
    let at = definition.find("dampen").expect("the dampen's node");
    assert_eq!(definition.node(at).step, None);
    let output = raw("1");
    let advance = decide_simple(&output, at, &definition).expect("a chain");
    assert_eq!(words(&definition, &advance), "chain to `B` with the output");
}

/// The fan-in of each fan-out, by the name of its edge.
fn after(name: &str) -> Option<&'static str> {
    let (_, then) = name.split_once(", then ")?;
    Some(match then {
        "nothing" => "ends with the output",
        "combine" => "combine to `B` with the output",
        "collapse" => "collapse to `B` with the output",
        _ => "converge to `C` with the output",
    })
}

#[test]
fn a_fan_out_that_is_over_goes_on_as_it_says() {
    for edge in edges() {
        let then = then_of(&edge.definition, node(&edge.definition));
        let actual = then.map(|then| words(&edge.definition, &after_fan_in(then, Value::Output)));
        assert_eq!(actual.as_deref(), after(edge.name), "{}", edge.name);
    }
}

#[test]
fn an_empty_fan_in_hands_on_the_empty_array_whatever_follows() {
    let to = Target {
        node: NodeIndex(0),
        delay: None,
    };
    let mut ways = BTreeSet::new();
    for then in [
        Then::End,
        Then::Combine(to),
        Then::Collapse(to),
        Then::Converge(to),
    ] {
        match after_fan_in(then, Value::EmptyArray) {
            Advance::End { value } => assert_eq!(value, Value::EmptyArray),
            Advance::Continue {
                value,
                via,
                to: led,
            } => {
                assert_eq!((value, led), (Value::EmptyArray, to));
                ways.insert(via);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        ways,
        BTreeSet::from([Via::Combine, Via::Collapse, Via::Converge])
    );
}

/// Any JSON, including JSON that no serialiser writes: duplicate keys, spaces, numbers in any
/// notation.
fn any_json() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::Value::String(text).to_string()),
        "\"(\\\\u[0-9a-fA-F]{4}|[a-d]|\\\\\\\\|\\\\\"){0,6}\"",
    ];
    let key = prop_oneof![
        Just(r#""divert""#.to_owned()),
        "\"(\\\\u[0-9a-fA-F]{4}|[a-d]){0,4}\"",
    ];
    scalar.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(|items| format!("[ {} ]", items.join(" , "))),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                let entries = entries
                    .iter()
                    .map(|(key, value)| format!("{key} : {value}"));
                format!("{{ {} }}", entries.collect::<Vec<_>>().join(" , "))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_output_at_any_edge_gives_a_plan(
        json in any_json(),
        retries in any::<u32>(),
        crashes in any::<u32>(),
        limit in prop::option::of(any::<u64>()),
    ) {
        let output = raw(&json);
        let edges = edges();
        for edge in &edges {
            for (retries, crashes) in [(retries, crashes), (0, 0)] {
                let cell = Cell { failed: None, retries, crashes, limit, begun: false };
                prop_assert!(!actual(&edge.definition, &output, cell).is_empty());
            }
        }
    }

    #[test]
    fn the_elements_of_an_output_are_its_elements_as_written(items in prop::collection::vec(any_json(), 1..6)) {
        let edges = edges();
        let expand = edges.iter().find(|edge| edge.name == "expand, then collapse").expect("listed");
        let cell = Cell { failed: None, retries: 0, crashes: 0, limit: None, begun: false };
        let output = raw(&format!("[{}]", items.join(",")));
        let wanted = format!("branches at `P` with {}", list(&items));
        prop_assert_eq!(actual(&expand.definition, &output, cell), wanted);
        let entries: Vec<String> = items.iter().map(|item| format!(r#""k":{item}"#)).collect();
        let output = raw(&format!("{{{}}}", entries.join(",")));
        let pairs: Vec<String> = items.iter().map(|item| format!(r#"["k",{item}]"#)).collect();
        let wanted = format!("branches at `P` with {}", list(&pairs));
        prop_assert_eq!(actual(&expand.definition, &output, cell), wanted);
    }
}
