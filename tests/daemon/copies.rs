//! Work that goes on in a copy of its database.

use ductwork::model::RunStatus;
use ductwork::store::query;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const PIPELINES: [&str; 2] = [
    "
pipeline: Each
steps: { Many: { command: [cat] }, One: { command: [cat] }, All: { command: [cat] } }
flow: [{ start: Many }, { expand: One }, { collapse: All }]
",
    "
pipeline: Ask
steps: { A: { command: [cat] } }
flow: [{ start: A }, { dampen: Go on? }, { chain: A }]
",
];

on_every_database! {
    async fn a_stopped_daemons_work_goes_on_in_the_copy(db: Db) {
        let source = Db::sqlite();
        let mut before = DaemonFixture::new(&source, Settings::default(), &PIPELINES).await;
        let mut daemon = before.start();
        daemon.ready().await;
        let done = before.trigger("Each", "[1,2,3]", 1).await[0];
        before.run_ended(done).await;
        let asked = before.trigger("Ask", "\"a\"", 1).await[0];
        let conn = &mut before.conn;
        eventually(PATIENCE, "the run waits", async || {
            let state = query::run_state(conn, asked).await.unwrap().unwrap();
            (state.status == RunStatus::Dampened).then_some(())
        })
        .await;
        let refused = before.run(&["env", &format!("DUCTWORK_COPY_TO={}", db.url)], &["copy"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains("the database is in use: ") && said.contains(" (pid "), "{said}");
        daemon.stop().await;
        // Nobody works for it yet.
        let queued = before.trigger("Each", "[[],{}]", 1).await[0];

        let copied = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&copied.stdout);
        assert!(copied.status.success() && said.starts_with("copied 3 runs, in "), "{copied:?}");
        let again = before.run(&[], &["copy", "--to", &db.url]);
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.code() == Some(1) && said.contains("is not empty"), "{said}");

        let mut after = DaemonFixture::new(&db, Settings::default(), &PIPELINES).await;
        let mut daemon = after.start();
        daemon.ready().await;
        after.run_ended(queued).await;
        assert_eq!(after.output(queued).await, serde_json::json!([[], {}]));
        let resumed = after.run(&[], &["resume", &asked.to_string(), "\"b\""]);
        assert!(resumed.status.success(), "{resumed:?}");
        after.run_ended(asked).await;
        assert_eq!(after.output(asked).await, serde_json::json!("b"));
        daemon.stop().await;
        after.audited().await;
        before.audited().await;
    }
}
