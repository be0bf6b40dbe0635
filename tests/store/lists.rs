//! The list of runs, of which a pipeline's own are looked for among all.

use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::model::{self, RunId, RunStatus};
use ductwork::store::cancel;
use ductwork::store::query::{Found, RunFilter, find_run, find_run_among, runs_by};

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

on_every_database! {
    /// An id begins with the time and ends in random digits: those made together share the first.
    async fn a_run_is_found_by_some_first_or_last_digits(db: Db) {
        let mut driver = Driver::new(&db).await;
        let pipeline = Pipeline::named("P").start("A").build().unwrap();
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(driver.trigger(&pipeline, "1").await);
        }
        let conn = &mut driver.conn;
        for run in &runs {
            let digits = run.0.simple().to_string();
            for given in [&digits[24..], &digits[24..].to_uppercase(), &digits[20..], &run.to_string()[24..]] {
                assert_eq!(find_run(conn, given).await.unwrap(), Found::One(*run), "{given}");
            }
            assert_eq!(find_run(conn, &digits).await.unwrap(), Found::One(*run));
        }
        let shared = runs[0].0.simple().to_string()[..6].to_owned();
        let Found::Ambiguous(candidates) = find_run(conn, &shared).await.unwrap() else {
            panic!("all of them begin with {shared}");
        };
        assert_eq!(candidates, runs);
        assert_eq!(find_run(conn, "0000aaaabbbb").await.unwrap(), Found::None);
        for given in ["", "abc", "zzzz", "%%%%", &"a".repeat(33)] {
            assert_eq!(find_run(conn, given).await.unwrap(), Found::Malformed, "{given}");
        }
        // The oldest is beyond what is looked through: its last digits do not lead to it, its first do.
        let [old, .., new] = runs[..] else { unreachable!() };
        let last = |run: RunId| model::short(run);
        assert_eq!(find_run_among(conn, &last(old), 2).await.unwrap(), Found::None);
        assert_eq!(find_run_among(conn, &last(new), 2).await.unwrap(), Found::One(new));
        let whole = old.0.simple().to_string();
        assert_eq!(find_run_among(conn, &whole, 2).await.unwrap(), Found::One(old));
    }
}
