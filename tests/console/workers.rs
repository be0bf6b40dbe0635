//! Workers that hold much, and workers that take nothing, as the console shows them.

use std::time::Duration;

use ductwork::model::{Intake, ProcessId, Role};
use ductwork::store::Conn;
use ductwork::store::process::{self, NewProcess};
use ductwork::store::statement::Statement;

use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

/// A worker on another host, which nobody takes for dead.
async fn registered(conn: &mut Conn, pipeline: &str, pid: u32) -> ProcessId {
    static ALIVE: Statement = Statement::new(
        "TEST_ALIVE",
        "UPDATE ductwork_processes SET last_heartbeat_at = 9000000000000000 WHERE id = :id",
    );
    let worker = NewProcess {
        id: ProcessId::new(),
        supervisor: None,
        role: Role::Worker,
        pipeline: Some(pipeline.to_owned()),
        host: "far".to_owned(),
        boot_id: "boot".to_owned(),
        pid_namespace: "pid:[1]".to_owned(),
        pid,
        pid_started_at: 1,
    };
    process::register(conn, &worker).await.unwrap();
    let args = [("id", worker.id.0.into())];
    conn.execute(&ALIVE, &args).await.unwrap();
    worker.id
}

on_every_database! {
    async fn however_much_one_worker_holds_what_the_others_hold_is_shown(db: Db) {
        static HOLD: Statement = Statement::new(
            "TEST_HOLD",
            "UPDATE ductwork_executions
                SET process_id = :process, claimed_at = 1, lease_until = 9000000000000000
              WHERE pipeline = :pipeline",
        );
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        for (pipeline, held, pid) in [("Plain", 521, 4_711), ("Halts", 1, 4_712)] {
            fixture.trigger_in(Duration::from_secs(3_600), pipeline, "1", held).await;
            let process = registered(&mut fixture.conn, pipeline, pid).await;
            let args = [("process", process.0.into()), ("pipeline", pipeline.into())];
            fixture.conn.execute(&HOLD, &args).await.unwrap();
        }
        let page = console.get("/processes").body;
        let row = |pid: u32| {
            let pid = format!("<td class=\"number\">{pid}</td>");
            let row = page.split("<tr>").find(|row| row.contains(&pid));
            row.unwrap_or_else(|| panic!("{page}"))
        };
        let (much, little) = (row(4_711), row(4_712));
        assert_eq!((much.matches("/steps/").count(), little.matches("/steps/").count()), (20, 1));
        assert!(much.contains("and 501 more") && !little.contains(" more"), "{page}");
        daemon.stop().await;
    }

    async fn a_process_in_trouble_is_told_as_such_everywhere_and_still_counts_as_alive(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let worker = registered(&mut fixture.conn, "Elsewhere", 4_711).await;
        let trouble = "no <b>claims</b>";
        let reported = Some((trouble, Duration::from_secs(65)));
        process::report_trouble(&mut fixture.conn, worker, reported).await.unwrap();
        let sentence = "worker Elsewhere (pid 4711 on far) has had trouble for 1m ";
        let text = String::from_utf8(fixture.run(&[], &["processes"]).stdout).unwrap();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("Elsewhere")).collect();
        assert!(rows[0].contains(" trouble "), "{text}");
        assert!(rows[1].starts_with(sentence) && rows[1].ends_with(trouble), "{text}");
        let told = fixture.run(&[], &["processes", "--json"]).stdout;
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        for told in [told, console.json("/api/v1/processes")] {
            for process in told.as_array().unwrap() {
                let is_it = process["id"] == worker.to_string();
                assert_eq!(process["healthy"], !is_it, "{told}");
                assert_eq!(process["trouble"].as_str(), is_it.then_some(trouble), "{told}");
                assert_eq!(process["troubled_at"].is_string(), is_it, "{told}");
            }
        }
        for path in ["/", "/processes"] {
            let page = console.get(path).body;
            assert!(page.contains("no &#60;b&#62;claims"), "{page}");
            let row = page.split("<tr>").find(|row| row.contains("<td class=\"number\">4711</td>"));
            assert!(row.is_some_and(|row| row.contains("trouble")), "{page}");
        }
        let pipelines = console.json("/api/v1/pipelines");
        let own = pipelines.as_array().unwrap().iter().find(|it| it["name"] == "Elsewhere");
        assert_eq!(own.unwrap()["workers"], 1, "{pipelines}");
        daemon.stop().await;
    }

    async fn a_worker_that_takes_nothing_is_not_counted_among_those_that_do(db: Db) {
        static DUE: Statement = Statement::new(
            "TEST_DUE",
            "INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at) VALUES (:id, 'Elsewhere', 1)",
        );
        static INTAKE: Statement = Statement::new(
            "TEST_INTAKE",
            "UPDATE ductwork_processes SET quiet = :code WHERE id = :id",
        );
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let worker = registered(&mut fixture.conn, "Elsewhere", 4_711).await;
        let due = [("id", ProcessId::new().0.into())];
        fixture.conn.execute(&DUE, &due).await.unwrap();
        for (intake, takers) in [(Intake::Stopping, 0), (Intake::Quiet, 0), (Intake::Open, 1)] {
            let args = [("code", intake.code().into()), ("id", worker.0.into())];
            fixture.conn.execute(&INTAKE, &args).await.unwrap();
            let page = console.get("/").body;
            let row = page.split("<tr>").find(|row| row.contains("/pipelines/Elsewhere\""));
            let row = row.unwrap_or_else(|| panic!("{page}"));
            assert_eq!(row.contains("nobody"), takers == 0, "{intake:?}: {row}");
            let pipelines = console.json("/api/v1/pipelines");
            let all = pipelines.as_array().unwrap();
            let own = all.iter().find(|it| it["name"] == "Elsewhere").unwrap();
            assert_eq!(own["workers"], takers, "{intake:?}: {own}");
        }
        daemon.stop().await;
    }
}
