//! Deliberate faults at every point where the program could be interrupted: the work goes on,
//! nothing counts twice, no budget is spent, and each fault has happened.
//!
//! Needs the feature `failpoints`; `src/failpoint.rs` lists the points and the possible actions.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../daemon/fixture.rs"]
mod fixture;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/foreign.rs"]
mod foreign;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/clock.rs"]
mod clock;

mod daemon;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};

use ductwork::failpoint::POINTS;

use fixture::DaemonFixture;

/// A point, and the action there.
type Fault = (&'static str, &'static str);

/// The variables that make each fault happen once.
fn armed(fixture: &DaemonFixture, faults: &[Fault]) -> BTreeMap<&'static str, String> {
    let rules: Vec<String> = faults
        .iter()
        .map(|(point, action)| format!("{point}=1*{action}"))
        .collect();
    let log = fixture.path("hits");
    BTreeMap::from([
        ("DUCTWORK_FAIL", rules.join(";")),
        ("DUCTWORK_FAIL_LOG", log.display().to_string()),
    ])
}

/// The faults that have not happened yet.
fn to_come(fixture: &DaemonFixture, faults: &[Fault]) -> Vec<Fault> {
    let hits = fixture.lines("hits");
    let happened = |(point, _): &&Fault| {
        let of = |line: &&String| line.split(' ').next() == Some(*point);
        hits.iter().any(|line| of(&line))
    };
    faults
        .iter()
        .filter(|fault| !happened(fault))
        .copied()
        .collect()
}

#[test]
fn every_place_is_reached_by_some_test() {
    let daemon = daemon::all().into_iter().map(|(point, _)| point);
    let tried: BTreeSet<&str> = daemon.chain(verbs::all().map(|(point, _)| point)).collect();
    let known: BTreeSet<&str> = POINTS.iter().copied().collect();
    assert_eq!(tried, known);
}
