//! The lists of runs, and finding a run by some digits of its id.

use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::model::{self, RunId, RunStatus};
use ductwork::store::cancel;
use ductwork::store::list::{self, RunFilter};
use ductwork::store::query::{self, Found, find_run, find_run_among};
use ductwork::store::statement::Statement;

use crate::driver::{Did, Driver};
use crate::on_every_database;
use crate::support::Db;

/// Checks every combination of filters against the same filters over all runs.
struct Filters<'a> {
    all: &'a [query::Run],
}

impl Filters<'_> {
    fn expected(&self, filter: &RunFilter<'_>) -> Vec<RunId> {
        let fits = |run: &&query::Run| {
            filter.pipeline.is_none_or(|name| run.pipeline == name)
                && (filter.statuses.is_empty() || filter.statuses.contains(&run.status))
                && filter.before.is_none_or(|before| run.id < before)
        };
        let ids = self.all.iter().filter(fits).map(|run| run.id);
        ids.take(filter.limit).collect()
    }
}

on_every_database! {
    async fn a_list_has_the_newest_runs_that_fit_its_filters_and_no_others(db: Db) {
        let mut driver = Driver::new(&db).await;
        let pipelines = ["Often", "Rare", "Other"]
            .map(|name| Pipeline::named(name).start("A").build().unwrap());
        let mut runs = Vec::new();
        for n in 0..24 {
            let definition = &pipelines[[0, 0, 1, 0, 2][n % 5]];
            runs.push(driver.trigger(definition, "1").await);
        }
        let mut n = 0;
        for pipeline in ["Often", "Rare", "Other"] {
            driver
                .work(pipeline, |_| {
                    n += 1;
                    if n % 6 == 0 { Did::Refused } else { Did::Returned(1.into()) }
                })
                .await;
        }
        for n in 0..9 {
            runs.push(driver.trigger(&pipelines[n % 3], "1").await);
        }
        for run in [24, 25, 29] {
            let cancelled = cancel::cancel(&mut driver.conn, runs[run]).await.unwrap();
            assert!(matches!(cancelled, cancel::Cancel::Done { .. }));
        }
        let whole = RunFilter { pipeline: None, statuses: &[], since: None, before: None, limit: 99, key: None, whole: query::WHOLE };
        let all = list::runs(&mut driver.conn, &whole).await.unwrap();
        runs.reverse();
        assert_eq!(all.iter().map(|run| run.id).collect::<Vec<_>>(), runs);
        let filters = Filters { all: &all };
        use RunStatus::{Cancelled, Completed, Halted, InProgress};
        let mut found_some = 0;
        for pipeline in [None, Some("Often"), Some("Rare"), Some("None such")] {
            for statuses in [
                &[][..],
                &[Completed],
                &[Cancelled],
                &[Halted],
                &[InProgress, Completed],
                &[Cancelled, InProgress],
                RunStatus::ALL,
            ] {
                for before in [None, Some(runs[3]), Some(runs[20]), Some(runs[32])] {
                    for since in [None, Some(Duration::from_secs(3_600))] {
                        for limit in [1, 2, 5, 99] {
                            let filter = RunFilter { pipeline, statuses, since, before, limit, key: None, whole: query::WHOLE };
                            let found = list::runs(&mut driver.conn, &filter).await.unwrap();
                            let found: Vec<RunId> = found.iter().map(|run| run.id).collect();
                            assert_eq!(found, filters.expected(&filter), "{filter:?}");
                            found_some += usize::from(!found.is_empty());
                        }
                    }
                }
            }
        }
        assert!(found_some > 300, "{found_some}");
    }
}

on_every_database! {
    /// An id begins with the time and ends in random digits: runs that were made together share the
    /// first digits.
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
            for given in [&digits[24..], &digits[24..].to_uppercase(), &digits[20..], &digits[24..30], &run.to_string()[24..]] {
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
        // The oldest run is beyond the search range: its last digits do not find it, its first ones do.
        let [old, .., new] = runs[..] else { unreachable!() };
        let last = |run: RunId| model::short(run);
        assert_eq!(find_run_among(conn, &last(old), 2).await.unwrap(), Found::None);
        assert_eq!(find_run_among(conn, &last(new), 2).await.unwrap(), Found::One(new));
        let whole = old.0.simple().to_string();
        assert_eq!(find_run_among(conn, &whole, 2).await.unwrap(), Found::One(old));
    }

    /// A few digits stand for many runs, and the payloads of many fit in no page.
    async fn a_search_reads_no_payload_that_a_list_leaves_out(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE", "UPDATE ductwork_runs SET output = 'x' WHERE id = :id");
        let mut driver = Driver::new(&db).await;
        let pipeline = Pipeline::named("P").start("A").build().unwrap();
        let run = driver.trigger(&pipeline, "\"a long one\"").await;
        driver.work("P", |_| Did::Returned(1.into())).await;
        let conn = &mut driver.conn;
        assert_eq!(conn.execute(&DAMAGE, &[("id", run.0.into())]).await.unwrap(), 1);
        let digits = run.0.simple().to_string();
        for given in [&digits[..6], &digits[24..]] {
            assert_eq!(find_run(conn, given).await.unwrap(), Found::One(run), "{given}");
        }
        let listed = query::run_up_to(conn, run, 5).await.unwrap().unwrap();
        assert_eq!((listed.left_out.input, listed.damaged.is_some()), (Some(12), true));
        let brief = query::brief(conn, run).await.unwrap().unwrap();
        assert_eq!((brief.pipeline.as_str(), brief.status), ("P", RunStatus::Completed));
    }
}
