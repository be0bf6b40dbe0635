//! Payloads: they pass every transition unchanged, to the letter.

use super::fixed::{Demand, demand, divert, divide, expand, same};
use super::fixture::EngineFixture;
use super::flow::{Flow, Item};
use super::json::Json;
use crate::on_every_database;
use crate::support::Db;

/// Values that a careless reader would change, or fail on.
const ODD: &[&str] = &[
    r#""\u0000""#,
    r#""\u0000\u001f\u2028\"\\\/""#,
    "\"\u{7f}\u{2028}\u{feff}é漢😀\"",
    r#""\ud83d\ude00""#,
    "1e400",
    "-0",
    "-0.0",
    "1E+2",
    "0.1000",
    "9007199254740993",
    "123456789012345678901234567890",
    r#"{"a":1,"b":2,"a":3}"#,
    r#"{"":{"":[]}}"#,
    r#"{"\u0000":null,"\u0061":1,"a":2,"\ud83d\ude00":3}"#,
    "[[],{},[[]]]",
    "null",
    r#""'{}$1:?%s{now}'""#,
];

/// Every transition with this payload.
fn everywhere(odd: &str) -> Vec<Demand> {
    let given = Item::Dampen(Some(Json::parse(odd)));
    let next = || Item::Chain("Same");
    let pair = format!("[{odd},{odd}]");
    let pairs = format!("[{pair},[],{pair}]");
    let entries = format!(r#"{{"b":{odd},"a":{odd},"b":{odd}}}"#);
    let array = format!(r#"[["b",{odd}],["a",{odd}],["b",{odd}]]"#);
    let mut all = vec![
        same([next()], odd, odd),
        same([Item::Dampen(None), next()], odd, odd),
        same([given, next()], "0", odd),
        same([divert("Same", "Same", Some("Same"))], odd, odd),
        same([expand("Same", Some("Same"))], &entries, &array),
    ];
    for fan_in in [None, Some("Same")] {
        let divided = divide(["Same".into(), "Same".into()], fan_in);
        let nested = expand(Flow::new("Same", [expand("Same", fan_in)]), fan_in);
        all.push(same([divided], odd, &pair));
        all.push(same([expand("Same", fan_in)], &pair, &pair));
        all.push(same([nested], &pairs, &pairs));
    }
    if odd.starts_with('"') {
        let entries = format!("{{{odd}:1,{odd}:2}}");
        let array = format!("[[{odd},1],[{odd},2]]");
        all.push(same([expand("Same", Some("Same"))], &entries, &array));
    }
    all
}

on_every_database! {
    async fn every_payload_passes_every_transition_to_the_letter(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let all: Vec<Demand> = ODD.iter().flat_map(|odd| everywhere(odd)).collect();
        demand(fixture, &all).await;
        fixture.close().await;
    }
}
