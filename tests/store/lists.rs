//! The list of runs, of which a pipeline's own are looked for among all.

use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::model::{RunId, RunStatus};
use ductwork::store::cancel;
use ductwork::store::query::{RunFilter, runs_by};

use crate::driver::Driver;
use crate::on_every_database;
use crate::support::Db;

on_every_database! {
    /// Page by page the same runs are found, whatever the page, and no more of them than asked for.
    async fn the_runs_of_a_pipeline_are_found_page_by_page(db: Db) {
        let mut driver = Driver::new(&db).await;
        let [often, rare] = ["Often", "Rare"]
            .map(|name| Pipeline::named(name).start("A").build().unwrap());
        let mut wanted: Vec<RunId> = Vec::new();
        for n in 0..12 {
            let definition = if n % 4 == 1 { &rare } else { &often };
            let run = driver.trigger(definition, "1").await;
            if n % 4 == 1 {
                wanted.insert(0, run);
            }
        }
        assert!(matches!(
            cancel::cancel(&mut driver.conn, wanted[1]).await.unwrap(),
            cancel::Cancel::Done { .. }
        ));
        for page in [1, 2, 3, 11, 12, 13] {
            for limit in 1..5 {
                for (since, statuses, expected) in [
                    (None, &[][..], wanted.clone()),
                    (Some(Duration::from_secs(3_600)), &[], wanted.clone()),
                    (None, &[RunStatus::Cancelled], vec![wanted[1]]),
                ] {
                    let filter = RunFilter {
                        pipeline: Some("Rare"),
                        statuses,
                        since,
                        before: None,
                        limit,
                    };
                    let mut looked = 0;
                    let mut told = |runs| looked = runs;
                    let found = runs_by(&mut driver.conn, &filter, page, &mut told).await.unwrap();
                    let found: Vec<RunId> = found.iter().map(|run| run.id).collect();
                    let expected: Vec<RunId> = expected.into_iter().take(limit).collect();
                    assert_eq!(found, expected, "{page} at a time, {limit} at most");
                    // All twelve, where there are fewer than asked for and none can be left out.
                    if limit > 3 && statuses.is_empty() {
                        assert!(looked >= 12, "{looked}");
                    }
                }
            }
        }
        let filter = RunFilter {
            pipeline: Some("Rare"),
            statuses: &[],
            since: None,
            before: Some(wanted[0]),
            limit: 9,
        };
        let found = runs_by(&mut driver.conn, &filter, 2, &mut |_| {}).await.unwrap();
        assert_eq!(found.iter().map(|run| run.id).collect::<Vec<_>>(), wanted[1..]);
    }
}
