//! Each transition alone, with its output written down; every transition in and after every
//! other, against the reference.

use super::evaluate::evaluate;
use super::fixture::{Case, EngineFixture};
use super::flow::{Flow, Item, Step};
use super::json::Json;
use crate::on_every_database;
use crate::support::Db;

pub fn divide<const N: usize>(paths: [Flow; N], combine: Option<Step>) -> Item {
    let paths = paths.into();
    Item::Divide { paths, combine }
}

pub fn expand(each: impl Into<Flow>, collapse: Option<Step>) -> Item {
    let each = each.into();
    Item::Expand { each, collapse }
}

pub fn divert(ok: impl Into<Flow>, otherwise: impl Into<Flow>, converge: Option<Step>) -> Item {
    Item::Divert {
        cases: vec![
            ("ok", ok.into()),
            ("2", "Sum".into()),
            ("true", "Wrap".into()),
        ],
        otherwise: otherwise.into(),
        converge,
    }
}

/// A flow, its input and its output.
pub type Demand = (Flow, String, String);

/// `Same` and the items after it, its input and its output.
pub fn same<const N: usize>(then: [Item; N], input: &str, output: &str) -> Demand {
    (Flow::new("Same", then), input.to_owned(), output.to_owned())
}

/// Runs flows and demands these outputs, from both the engine and the reference.
pub async fn demand(fixture: &mut EngineFixture, all: &[Demand]) {
    let mut cases = Vec::new();
    for (flow, input, output) in all {
        let input = Json::parse(input);
        let expected = evaluate(flow, &input, usize::MAX).expect("no limit");
        let said = expected.output.map(|output| output.to_string());
        assert_eq!(said.as_ref(), Some(output), "the reference, of\n{flow:?}");
        cases.push(case(flow.clone(), [input]));
    }
    agree(fixture, &cases).await;
}

/// Runs flows and demands the reference's results.
pub async fn agree(fixture: &mut EngineFixture, cases: &[Case]) {
    if let Err((index, why)) = fixture.check(cases, usize::MAX).await {
        panic!("{why}\nof\n{:?}", cases[index].flow);
    }
}

pub fn case(flow: Flow, inputs: impl IntoIterator<Item = Json>) -> Case {
    Case {
        flow,
        inputs: inputs.into_iter().collect(),
        blows: Vec::new(),
    }
}

/// Each transition alone, with its output.
fn alone() -> Vec<Demand> {
    let given = Item::Dampen(Some(Json::parse("[2]")));
    let wrap = || Item::Chain("Wrap");
    let odd_routes = [
        r#"["ok"]"#,
        "null",
        r#""OK""#,
        r#"{"divert":{"divert":"ok"}}"#,
    ];
    let fallback = odd_routes.map(|input| same([divert("Wrap", "Same", None)], input, input));
    let mut all = vec![
        same([], "1", "1"),
        same([wrap()], "1", r#"{"got":1}"#),
        same(
            [wrap(), Item::Chain("Pair")],
            "1",
            r#"[{"got":1},{"got":1}]"#,
        ),
        same([Item::Dampen(None)], "1", "1"),
        same([Item::Dampen(None), wrap()], "1", r#"{"got":1}"#),
        same([given.clone()], "1", "[2]"),
        same([given, wrap()], "1", r#"{"got":[2]}"#),
        same(
            [divide(["Wrap".into(), "Same".into()], Some("Reverse"))],
            "1",
            r#"[1,{"got":1}]"#,
        ),
        same(
            [divide(["Wrap".into(), "Same".into()], None)],
            "1",
            r#"[{"got":1},1]"#,
        ),
        same([divide(["Wrap".into()], None)], "1", r#"[{"got":1}]"#),
        same(
            [expand("Wrap", Some("Reverse"))],
            "[1,2]",
            r#"[{"got":2},{"got":1}]"#,
        ),
        same([expand("Wrap", None)], "[1,2]", r#"[{"got":1},{"got":2}]"#),
        same(
            [expand("Same", Some("Wrap"))],
            r#"{"b":1,"a":{},"c":[2]}"#,
            r#"{"got":[["b",1],["a",{}],["c",[2]]]}"#,
        ),
        same([expand("Wrap", Some("Wrap"))], "[]", r#"{"got":[]}"#),
        same([expand("Wrap", Some("Wrap"))], "{}", r#"{"got":[]}"#),
        same([expand("Wrap", None)], "[]", "[]"),
        same(
            [divert("Wrap", "Same", Some("Pair"))],
            r#""ok""#,
            r#"[{"got":"ok"},{"got":"ok"}]"#,
        ),
        same([divert("Wrap", "Same", None)], r#""ok""#, r#"{"got":"ok"}"#),
        same(
            [divert("Wrap", "Same", None)],
            r#"{"a":1,"divert":"ok"}"#,
            r#"{"got":{"a":1,"divert":"ok"}}"#,
        ),
        same([divert("Pair", "Same", None)], "true", r#"{"got":true}"#),
        same([divert("Pair", "Wrap", None)], "2", "2"),
        same([divert("Wrap", "Pair", None)], "2.0", "[2.0,2.0]"),
    ];
    all.extend(fallback);
    all
}

/// Nested fan-outs, full and empty, with and without their fan-ins.
fn nested() -> Vec<Demand> {
    let twice = |outer, inner| {
        let within = Flow::new("Same", [expand("Same", inner)]);
        expand(within, outer)
    };
    let input = r#"[[1,2],[],[3],{},{"a":4}]"#;
    let output = r#"[[1,2],[],[3],[],[["a",4]]]"#;
    let deepest = Flow::new("Same", [twice(None, None)]);
    let deep = "[[[],[[]]],[]]";
    let ends = [
        "Wrap".into(),
        Flow::new("Pair", [expand("Same", None)]),
        Flow::new("Empty", [expand("Wrap", None)]),
    ];
    // Eight of them, open and closed.
    let eight = |fan_in: Option<&'static str>| {
        (1..8).fold(expand("Same", fan_in), |inner, _| {
            expand(Flow::new("Same", [inner]), fan_in)
        })
    };
    let eightfold = "[[[[[[[[1,2],[]],[]]]],[[]]],[]]]";
    vec![
        same([eight(Some("Same"))], eightfold, eightfold),
        same([eight(None)], eightfold, eightfold),
        same([twice(Some("Same"), Some("Same"))], input, output),
        same([twice(None, Some("Same"))], input, output),
        same([twice(None, None)], input, output),
        same([twice(None, None)], "[[],[]]", "[[],[]]"),
        same([twice(Some("Same"), Some("Same"))], "[[],[]]", "[[],[]]"),
        same([expand(deepest, None)], deep, deep),
        same([divide(ends, None)], "1", r#"[{"got":1},[1,1],[]]"#),
    ]
}

/// Paths that end in a fan-out converge with its array, even if that is empty.
fn met() -> Case {
    let full = Flow::new("Three", [expand("Count", None)]);
    let empty = Flow::new("Empty", [expand("Wrap", None)]);
    let flow = Flow::new("Word", [divert(full, empty, Some("Wrap"))]);
    case(flow, ["1", "11", "111", "1111"].map(Json::parse))
}

/// Every other transition in this one, open and closed, and after it.
fn pairs(outer: usize) -> Vec<Case> {
    let inputs = [r#"["ok",[],2]"#, r#"{"divert":"ok","x":[]}"#].map(Json::parse);
    let mut cases = Vec::new();
    for inner in 0..KINDS {
        let alone = || kind(inner, Vec::new());
        for then in [
            // A pair before it, so that an expand finds an array.
            vec![
                kind(outer, vec![Item::Chain("Pair"), alone()]),
                Item::Chain("Wrap"),
            ],
            vec![kind(outer, vec![alone()])],
            vec![kind(outer, Vec::new()), Item::Chain("Pair"), alone()],
            vec![kind(outer, Vec::new()), alone()],
        ] {
            let flow = Flow::new("Pair", then).closed();
            cases.push(case(flow, inputs.clone()));
        }
    }
    cases
}

on_every_database! {
    async fn each_transition_does_what_it_says(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        demand(fixture, &alone()).await;
        fixture.close().await;
    }

    async fn an_expand_of_what_has_no_elements_halts_its_run(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let flow = Flow::new("Same", [expand("Wrap", Some("Wrap"))]);
        let inputs = ["1", "null", r#""[]""#, "false"].map(Json::parse);
        agree(fixture, &[case(flow, inputs)]).await;
        fixture.close().await;
    }

    async fn a_branch_that_halts_keeps_its_fan_in_from_firing_but_no_sibling(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let failing = Flow::new("Same", [Item::Chain("Fail"), Item::Chain("Wrap")]);
        let other = Flow::new("Wrap", [Item::Chain("Pair")]);
        let divided = divide([failing, other], Some("Sum"));
        let flow = Flow::new("Same", [divided, Item::Chain("Count")]);
        agree(fixture, &[case(flow, [Json::parse("1")])]).await;
        fixture.close().await;
    }

    async fn fan_outs_nest_in_order_and_keep_their_emptiness(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        demand(fixture, &nested()).await;
        agree(fixture, &[met()]).await;
        fixture.close().await;
    }

    async fn every_transition_may_stand_in_and_after_every_other(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        for outer in 0..KINDS {
            agree(fixture, &pairs(outer)).await;
        }
        fixture.close().await;
    }
}

const KINDS: usize = 9;

/// The kinds of transitions, with content in those that can have content.
fn kind(which: usize, inside: Vec<Item>) -> Item {
    let path = Flow::new("Same", inside);
    match which {
        0 => Item::Chain("Wrap"),
        1 => Item::Dampen(None),
        2 => Item::Dampen(Some(Json::parse(r#"["ok",{"divert":"ok"}]"#))),
        3 => divide([path.clone(), "Count".into(), path], Some("Same")),
        4 => divide(["Count".into(), path], None),
        5 => expand(path, Some("Same")),
        6 => expand(path, None),
        7 => divert(path.clone(), path, Some("Same")),
        _ => divert(path.clone(), path, None),
    }
}
