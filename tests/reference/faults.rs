//! The same with steps that fail at first, and with processes that die, or are declared dead,
//! while they work: the result must not change.

use super::fixed::{agree, divide, expand};
use super::fixture::{Blow, Case, EngineFixture};
use super::flow::{Flow, Item};
use super::json::Json;
use super::random::{case, explore};
use crate::on_every_database;
use crate::support::Db;

on_every_database! {
    async fn steps_that_fail_at_first_change_no_output(db: Db) {
        let fixture = &mut EngineFixture::open(&db, true).await;
        explore(fixture, 15, case(0..1)).await;
        fixture.close().await;
    }

    async fn processes_that_die_or_are_taken_for_dead_change_no_output(db: Db) {
        let fixture = &mut EngineFixture::open(&db, true).await;
        explore(fixture, 20, case(1..12)).await;
        fixture.close().await;
    }

    async fn a_wide_fan_out_survives_every_blow(db: Db) {
        let fixture = &mut EngineFixture::open(&db, true).await;
        let divided = divide(["Wrap".into(), "Same".into()], Some("Reverse"));
        let each = Flow::new("Same", [divided, Item::Chain("Wrap")]);
        let flow = Flow::new("Range", [expand(each, Some("Same"))]);
        let blow = |number| match number % 3 {
            0 => Blow::Kill(number),
            _ => Blow::Misjudge(number),
        };
        let blows = (0..40).map(blow).collect();
        // Wide enough to be still under way when the last blow falls.
        let inputs = vec![Json::parse("2000")];
        agree(fixture, &[Case { flow, inputs, blows }]).await;
        assert!(fixture.recovered > 0, "no blow hit anybody who held anything");
        fixture.close().await;
    }
}
