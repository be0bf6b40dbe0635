//! Fan-outs wider than any batch or chunk.

use super::fixed::{agree, case, divide, expand};
use super::fixture::EngineFixture;
use super::flow::{Flow, Item};
use super::json::Json;
use crate::on_every_database;
use crate::support::Db;

/// More than two chunks of rows, and no multiple of anything.
const WIDTH: &str = "2003";

on_every_database! {
    async fn thousands_of_branches_collapse_in_order(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let flow = Flow::new("Range", [expand("Wrap", Some("Same"))]);
        agree(fixture, &[case(flow, [Json::parse(WIDTH)])]).await;
        fixture.close().await;
    }

    async fn thousands_of_branches_may_divide_and_combine_on_their_way(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let divided = divide(["Wrap".into(), "Same".into()], Some("Reverse"));
        let each = Flow::new("Same", [divided, Item::Chain("Wrap")]);
        let flow = Flow::new("Range", [expand(each, Some("Same"))]);
        agree(fixture, &[case(flow, [Json::parse(WIDTH)])]).await;
        fixture.close().await;
    }

    async fn a_wide_fan_out_may_be_the_output_of_its_run(db: Db) {
        let fixture = &mut EngineFixture::open(&db, false).await;
        let row = Flow::new("Same", [Item::Chain("Range"), expand("Same", None)]);
        let flow = Flow::new("Range", [expand(row, None)]);
        agree(fixture, &[case(flow, [Json::parse("60")])]).await;
        fixture.close().await;
    }
}
