//! The reports of audits and drills: the page that shows them, the API, and metrics.

use ductwork::store::report::{self, Kind};
use ductwork::store::statement::Statement;
use serde_json::Value;

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;

const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn reports(console: &Console, query: &str) -> Vec<Value> {
    let answer = console.get(&format!("/api/v1/reports{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

on_every_database! {
    async fn an_audit_is_told_of_with_each_invariant_in_a_sentence(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE", "UPDATE ductwork_executions SET retry_count = 1");
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let page = console.get("/trust");
        assert!(page.body.contains("Nobody has audited this database yet. <code>ductworkd audit</code>"), "{page:?}");
        assert!(page.body.contains("No drill has been run yet. <code>ductworkd drill</code>"), "{page:?}");
        assert!(console.get("/").body.contains("<a href=\"/trust\">Trust</a>"));
        assert_eq!(reports(&console, ""), Vec::<Value>::new());

        fixture.trigger("Plain", "1", 2).await;
        fixture.completed(PATIENCE).await;
        let audited = fixture.run(&[], &["audit"]);
        assert!(audited.status.success(), "{audited:?}");
        assert_eq!(text(&audited.stderr), "");
        let page = console.get("/trust").body;
        for part in [
            "Each invariant held ",
            "<th scope=\"row\">I1</th><td class=\"wrap\">A step has at most one open execution.</td>",
            "<h2 id=\"h-reports\">Reports</h2>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let whole = reports(&console, "?kind=audit");
        assert_eq!((&whole[0]["ok"], &whole[0]["figures"]["invariants"]["I7"]), (&true.into(), &0.into()));

        fixture.conn.execute(&DAMAGE, &[]).await.unwrap();
        let audited = fixture.run(&[], &["audit", "--json"]);
        assert_eq!(audited.status.code(), Some(1), "{audited:?}");
        let rows: Vec<Value> = serde_json::from_slice(&audited.stdout).unwrap();
        let broken = rows.iter().filter(|it| it["invariant"] == "I7").count();
        assert!(broken >= 2, "{rows:?}");
        let newest = &reports(&console, "?limit=1")[0];
        assert_eq!((&newest["ok"], &newest["figures"]["invariants"]["I7"]), (&false.into(), &broken.into()));
        let page = console.get("/trust").body;
        assert!(page.contains("broken</span> "), "{page}");
        // The broken invariants come first.
        let first = page.split_once("<tbody>").unwrap().1.split_once("</tr>").unwrap().0;
        assert!(first.contains("I7") && first.contains("<span aria-hidden=\"true\">✗</span> broken"), "{first}");
        let metrics = text(&fixture.run(&[], &["metrics"]).stdout);
        let counted = format!("ductwork_audit_broken{{invariant=\"I7\"}} {broken}\n");
        assert!(metrics.contains(&counted), "{metrics}");
        assert!(metrics.contains("\nductwork_audit_age_seconds "), "{metrics}");
        for (path, status) in [("/trust?before=x", 400), ("/trust?x=1", 400), ("/api/v1/reports?kind=x", 400)] {
            assert_eq!(console.get(path).status, status, "{path}");
        }
        daemon.stop().await;
    }

    async fn drills_are_told_of_where_they_were_played_beside(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        let drilled = fixture.run(&[], &["drill", "lease-race", "double-reaper"]);
        assert!(drilled.status.success(), "{drilled:?}");
        let kept = report::latest(&mut fixture.conn, None, None, 9).await.unwrap();
        assert_eq!((kept.len(), kept[0].kind.as_str(), kept[0].ok), (1, Kind::Drill.as_str(), true));
        let page = console.answers("/trust", 200).await.body;
        for part in [
            "Each drill passed ",
            "<th scope=\"row\">double-reaper</th>",
            "two reapers find the same dead worker",
            "Nobody has audited this database yet.",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let drills = &reports(&console, "?kind=drill")[0]["figures"]["drills"];
        assert_eq!((&drills[0]["drill"], &drills[0]["ok"]), (&"lease-race".into(), &true.into()));
        alone.stop().await;
    }

    async fn a_report_that_cannot_be_kept_fails_no_audit(db: Db) {
        static GONE: Statement = Statement::new("TEST_GONE", "DROP TABLE ductwork_reports");
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.conn.execute(&GONE, &[]).await.unwrap();
        let audited = fixture.run(&[], &["audit"]);
        assert!(audited.status.success(), "{audited:?}");
        assert!(text(&audited.stdout).contains("invariants hold"), "{audited:?}");
        let said = text(&audited.stderr);
        assert!(said.starts_with("warning: this audit is not kept for the console and for metrics: "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    async fn reports_that_nobody_here_can_read_hide_no_page(db: Db) {
        static STRANGE: Statement = Statement::new(
            "TEST_STRANGE", "UPDATE ductwork_reports SET figures = :figures");
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        for kind in [Kind::Audit, Kind::Drill] {
            report::record(&mut fixture.conn, kind, true, &1).await.unwrap();
        }
        for figures in [
            "1",
            "{",
            r#"{"invariants": {"<script>X99</script>": 3}}"#,
            r#"{"drills": [{"drill": "<script>", "text": "\u0000"}]}"#,
        ] {
            fixture.conn.execute(&STRANGE, &[("figures", figures.into())]).await.unwrap();
            let page = console.answers("/trust", 200).await.body;
            assert!(!page.contains("<script>X99") && !page.contains("<script></th>"), "{page}");
            let listed = reports(&console, "");
            assert_eq!((listed.len(), listed[0]["figures"].is_null()), (2, figures == "{"), "{listed:?}");
            let scraped = console.answers("/metrics", 200).await.body;
            assert!(scraped.contains("ductwork_audit_age_seconds"), "{scraped}");
        }
        alone.stop().await;
    }
}
