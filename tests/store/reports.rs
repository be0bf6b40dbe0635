//! Reports of audits and drills: the newest of each kind are kept, and a scrape contains the last audit's
//! figures.

use std::time::Duration;

use ductwork::metrics::Reading;
use ductwork::store::audit::{GRACE, INVARIANTS, Violation};
use ductwork::store::report::{self, AuditFigures, DrillFigures, Drilled, KEPT, Kind, Report};
use ductwork::store::{Conn, metrics};

use crate::on_every_database;
use crate::support::Db;

fn figures(broken: usize) -> AuditFigures {
    let violation = Violation {
        invariant: "I4",
        title: "",
        entity: "step".to_owned(),
        id: uuid::Uuid::nil(),
        detail: String::new(),
    };
    let violations = vec![violation; broken];
    AuditFigures::of(&violations, GRACE, Duration::from_millis(1_500))
}

async fn audit(conn: &mut Conn, broken: usize) {
    let (ok, figures) = (broken == 0, figures(broken));
    report::record(conn, Kind::Audit, ok, &figures)
        .await
        .unwrap();
}

async fn readings(conn: &mut Conn, name: &str) -> Vec<Reading> {
    let all = metrics::readings(conn, Duration::from_secs(30))
        .await
        .unwrap();
    all.into_iter()
        .filter(|it| it.metric.name == name)
        .collect()
}

/// The number of rows that broke I4 in each report, newest first.
fn broken(reports: &[Report]) -> Vec<u64> {
    let of = |it: &Report| it.figures::<AuditFigures>().unwrap().invariants["I4"];
    reports.iter().map(of).collect()
}

on_every_database! {
    async fn of_each_kind_the_newest_reports_are_kept_and_listed_page_by_page(db: Db) {
        let mut conn = db.conn().await;
        assert_eq!(report::latest(&mut conn, None, None, 9).await.unwrap(), []);
        let drilled = DrillFigures {
            drills: vec![Drilled::new("lease-race", "a race", false, &"x".repeat(9_999))],
            ..DrillFigures::default()
        };
        report::record(&mut conn, Kind::Drill, false, &drilled).await.unwrap();
        for broken in 1..=KEPT + 3 {
            audit(&mut conn, broken).await;
        }
        let all = report::latest(&mut conn, None, None, 999).await.unwrap();
        assert_eq!(all.len(), KEPT + 1);
        let drill = all.last().unwrap();
        assert_eq!((drill.kind.as_str(), drill.ok), ("drill", false));
        assert_eq!(drill.figures::<DrillFigures>().unwrap().drills[0].text.len(), 500);
        let audits = report::latest(&mut conn, Some(Kind::Audit), None, 999).await.unwrap();
        let expected: Vec<u64> = (4..=KEPT as u64 + 3).rev().collect();
        assert_eq!(broken(&audits), expected);
        let page = report::latest(&mut conn, Some(Kind::Audit), Some(audits[1].id), 2).await.unwrap();
        assert_eq!(page, audits[2..4]);
        let page = report::latest(&mut conn, None, Some(audits[1].id), 2).await.unwrap();
        assert_eq!(page, audits[2..4]);
        assert!(audits[0].at > 1_000_000_000_000_000, "{}", audits[0].at);
    }

    async fn a_scrape_has_what_the_last_audit_found(db: Db) {
        let mut conn = db.conn().await;
        for name in ["audit_broken", "audit_age_seconds"] {
            assert_eq!(readings(&mut conn, name).await, []);
        }
        audit(&mut conn, 5).await;
        audit(&mut conn, 2).await;
        report::record(&mut conn, Kind::Drill, true, &DrillFigures::default()).await.unwrap();
        let found = readings(&mut conn, "audit_broken").await;
        assert_eq!(found.len(), INVARIANTS.len());
        let of = |name: &str| found.iter().find(|it| it.labels == [name]).unwrap().value;
        assert_eq!((of("I1"), of("I4")), (0.0, 2.0));
        let age = readings(&mut conn, "audit_age_seconds").await;
        assert!(age[0].value < 60.0, "{age:?}");
        // A newer version may write other figures: then only the age is reported.
        report::record(&mut conn, Kind::Audit, true, &["other"]).await.unwrap();
        assert_eq!(readings(&mut conn, "audit_broken").await, []);
        assert_eq!(readings(&mut conn, "audit_age_seconds").await.len(), 1);
    }
}
