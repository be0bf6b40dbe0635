//! Random flows on random inputs.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::evaluate::{Expected, evaluate};
use super::fixture::{Blow, Case, EngineFixture, STEPS_MAX};
use super::flow::{Flow, Item, Step};
use super::json::Json;
use super::steps::{FAIL, KEYERS, MAKERS, SHAPERS};
use crate::on_every_database;
use crate::support::Db;

/// Cases that run side by side.
const AT_ONCE: usize = 10;

/// How long the shrinking of a failure may take.
const SHRINK_FOR: Duration = Duration::from_secs(120);

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => prop::sample::select(SHAPERS),
        20 => prop::sample::select(MAKERS),
        8 => prop::sample::select(KEYERS),
        1 => Just(FAIL),
    ]
}

fn fan_in() -> impl Strategy<Value = Option<Step>> {
    prop::option::weighted(0.7, step())
}

fn single() -> impl Strategy<Value = Item> {
    prop_oneof![
        6 => step().prop_map(Item::Chain),
        1 => Just(Item::Dampen(None)),
        1 => json().prop_map(|value| Item::Dampen(Some(value))),
    ]
}

/// A list of transitions, up to four deep.
fn list() -> impl Strategy<Value = Vec<Item>> {
    let leaf = prop::collection::vec(single(), 0..3);
    leaf.prop_recursive(4, 96, 6, |inner| {
        let flow = (step(), inner).prop_map(|(first, then)| Flow { first, then });
        let flow = flow.boxed();
        let expand = (
            prop::option::weighted(0.93, prop::sample::select(MAKERS)),
            flow.clone(),
            fan_in(),
        )
            .prop_map(|(maker, each, collapse)| {
                let expand = Item::Expand { each, collapse };
                maker.map(Item::Chain).into_iter().chain([expand]).collect()
            });
        let divide = (prop::collection::vec(flow.clone(), 1..4), fan_in())
            .prop_map(|(paths, combine)| vec![Item::Divide { paths, combine }]);
        let cases = prop::sample::subsequence(vec!["ok", "thin", "true", "2", "1e400", ""], 1..4);
        let divert = (
            prop::option::weighted(0.8, prop::sample::select(KEYERS)),
            cases,
            prop::collection::vec(flow.clone(), 4),
            flow,
            fan_in(),
        )
            .prop_map(|(keyer, cases, paths, otherwise, converge)| {
                let divert = Item::Divert {
                    cases: cases.into_iter().zip(paths).collect(),
                    otherwise,
                    converge,
                };
                keyer.map(Item::Chain).into_iter().chain([divert]).collect()
            });
        let single = single().prop_map(|item| vec![item]);
        let segment = prop_oneof![2 => single, 3 => expand, 2 => divide, 2 => divert];
        prop::collection::vec(segment, 1..4).prop_map(|segments: Vec<Vec<Item>>| segments.concat())
    })
}

pub fn flow() -> impl Strategy<Value = Flow> {
    (step(), list()).prop_map(|(first, then)| Flow { first, then }.closed())
}

fn json() -> impl Strategy<Value = Json> {
    let words = [
        "null",
        "true",
        "2",
        "-0.0",
        "1e400",
        "9007199254740993",
        r#""""#,
        r#""ok""#,
        r#""thin""#,
        r#""\u0000""#,
        r#""\ud83d\ude00é""#,
        "\"漢\u{2028}\"",
    ];
    let scalar = prop::sample::select(words.to_vec()).prop_map(Json::parse);
    scalar.prop_recursive(3, 12, 4, |inner| {
        let keys = vec![r#""a""#, r#""b""#, r#""divert""#, r#""\u0000""#, r#""""#];
        let entry = (
            prop::sample::select(keys).prop_map(str::to_owned),
            inner.clone(),
        );
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Json::Array),
            prop::collection::vec(entry, 0..4).prop_map(Json::Object),
        ]
    })
}

/// A random case, with this many blows.
pub fn case(blows: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let blow = prop_oneof![
        (0..4_usize).prop_map(Blow::Misjudge),
        (0..4_usize).prop_map(Blow::Kill),
    ];
    let blows = prop::collection::vec(blow, blows);
    let case = (flow(), prop::collection::vec(json(), 1..4), blows);
    case.prop_map(|(flow, inputs, blows)| Case {
        flow,
        inputs,
        blows,
    })
}

/// Checks this many cases (`PROPTEST_CASES`), several at once; shrinks one that fails.
pub async fn explore(
    fixture: &mut EngineFixture,
    cases: u32,
    strategy: impl Strategy<Value = Case>,
) {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    let mut left = config.cases as usize;
    let mut runner = TestRunner::new(config);
    while left > 0 {
        let at_once = left.min(AT_ONCE);
        left -= at_once;
        let tree = || strategy.new_tree(&mut runner).expect("a case");
        let mut trees: Vec<_> = std::iter::repeat_with(tree).take(at_once).collect();
        let cases: Vec<Case> = trees.iter().map(ValueTree::current).collect();
        if let Err((index, why)) = fixture.check(&cases, STEPS_MAX).await {
            let all = format!("of {at_once} at once:\n{why}\n\n{:?}", cases[index]);
            match smallest(fixture, &mut trees[index]).await {
                Some((case, why)) => panic!("{all}\n\nThe smallest alone:\n{why}\n\n{case:?}"),
                None => panic!("{all}"),
            }
        }
    }
}

/// The smallest case that fails by itself, if there is one. The search stops while a part of the
/// failure is still under way: every check would see that part, whatever it runs.
async fn smallest(
    fixture: &mut EngineFixture,
    tree: &mut impl ValueTree<Value = Case>,
) -> Option<(Case, String)> {
    let mut smallest = None;
    let deadline = Instant::now() + SHRINK_FOR;
    let mut simpler = true;
    while simpler && fixture.settled && Instant::now() < deadline {
        let case = tree.current();
        simpler = match fixture.check(std::slice::from_ref(&case), STEPS_MAX).await {
            Err((_, why)) => {
                smallest = Some((case, why));
                tree.simplify()
            }
            Ok(()) => smallest.is_some() && tree.complicate(),
        };
    }
    smallest
}

on_every_database! {
    async fn random_flows_come_to_what_the_reference_says(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        explore(fixture, 60, case(0..1)).await;
        fixture.close().await;
    }
}

/// The drawn flows are worth running: most end well, some halt, hardly any are too long, and
/// every transition occurs, within others as well.
#[test]
fn random_flows_are_of_all_kinds() {
    let mut runner = TestRunner::new(ProptestConfig::default());
    let (mut ended, mut halted, mut skipped, mut deep) = (0, 0, 0, 0);
    let mut text = String::new();
    for _ in 0..1_000 {
        let case = case(0..1).new_tree(&mut runner).expect("a case").current();
        for input in &case.inputs {
            match evaluate(&case.flow, input, STEPS_MAX) {
                None => skipped += 1,
                Some(Expected { output: None, .. }) => halted += 1,
                Some(Expected { ran, .. }) => {
                    ended += 1;
                    deep += usize::from(ran.len() > 20);
                }
            }
        }
        text.push_str(&format!("{:?}", case.flow));
    }
    let all = ended + halted + skipped;
    let found = format!("{ended} ended, {deep} of them late, {halted} halted, {skipped} skipped");
    assert!(ended * 2 > all && halted * 20 > all, "{found}");
    assert!(deep * 20 > all && skipped * 20 < all, "{found}");
    for verb in [
        "dampen", "expand", "collapse", "divide", "combine", "divert", "converge",
    ] {
        let deep = format!("            - {verb}");
        let deep = text.lines().filter(|line| line.starts_with(&deep));
        assert!(deep.count() > 10, "hardly any {verb} in a path of a path");
    }
}
