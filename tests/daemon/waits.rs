//! People who wait for a run while its database goes away, and comes back.

use ductwork::store::statement::Statement;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::*;
use crate::on_every_server;
use crate::server::Server;

const OUT: &str = r#"
pipeline: Out
steps:
  A: { command: [sh, -c, 'echo first >&2; cat'] }
  B: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo second >&2; cat'] }
flow: [{ start: A }, { chain: B }]
"#;

const NO: &str = r#"
pipeline: No
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; exit 65'] }
flow: [{ start: A }]
"#;

const AWAY: &str = "note: the database is away; waiting for it";
const BACK: &str = "note: the database is back";

/// Starts a verb whose standard output goes to a file of this name.
fn start(fixture: &DaemonFixture, to: &str, verb: &[&str]) -> Daemon {
    let line = format!("exec \"$0\" \"$@\" > {to}");
    fixture.start_as(&["sh", "-c", &line], verb)
}

async fn told(verb: &Daemon, part: &str) {
    eventually(PATIENCE, &format!("`{part}` is told"), async || {
        verb.text().contains(part).then_some(())
    })
    .await;
}

on_every_server! {
    async fn whoever_waits_for_a_run_waits_an_outage_out_and_gets_the_end_of_the_run(server: Server) {
        let conn = server.conn().await;
        let settings = Settings::default();
        let mut fixture = DaemonFixture::at(server.url(), conn, settings, &[OUT, NO]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let id = fixture.trigger("Out", "7", 1).await[0].to_string();
        let watch = start(&fixture, "watch.out", &["watch", &id, "--json"]);
        let logs = start(&fixture, "logs.out", &["logs", &id, "--follow", "--json"]);
        let trigger = start(&fixture, "trigger.out", &["trigger", "No", "--wait"]);
        let run = start(&fixture, "run.out", &["run", "Out", "8", "--json"]);
        let mut ended = start(&fixture, "ended.out", &["watch", &id]);

        // All of them wait.
        fixture.pids("pids", 3).await;
        fixture.said("logs.out", 1).await;
        told(&trigger, "triggered").await;
        for follows in [&watch, &run, &ended] {
            told(follows, "A 1/1").await;
        }
        server.down();
        for waits in [&watch, &logs, &trigger, &run, &ended] {
            told(waits, AWAY).await;
        }
        // A person may have seen enough.
        ended.send(Signal::SIGINT);
        assert_eq!(ended.ended(PATIENCE).await.0.code(), Some(130));
        server.up();
        for waits in [&watch, &logs, &trigger, &run] {
            told(waits, BACK).await;
        }
        fixture.conn = server.connect().await;
        std::fs::write(fixture.path("go"), "").unwrap();

        for (mut waits, code) in [(watch, 0), (logs, 0), (trigger, 1), (run, 0)] {
            let (status, _) = waits.ended(PATIENCE).await;
            let text = waits.text();
            assert_eq!(status.code(), Some(code), "{text}");
            let times = [AWAY, BACK].map(|note| text.matches(note).count());
            assert_eq!(times, [1, 1], "{text}");
            assert!(!text.contains("works on"), "nobody is missed: {text}");
        }
        // Each answer appears once, and nothing else does.
        let said = |name: &str| -> Vec<Value> {
            let lines = fixture.lines(name).join("\n");
            let values = serde_json::Deserializer::from_str(&lines).into_iter();
            values.map(Result::unwrap).collect()
        };
        for (name, output) in [("watch.out", 7), ("run.out", 8)] {
            let answers = said(name);
            assert_eq!(answers.len(), 1, "{answers:?}");
            assert_eq!(
                (&answers[0]["status"], &answers[0]["output"]),
                (&"completed".into(), &output.into())
            );
        }
        let logged = said("logs.out");
        let logged: Vec<_> = logged
            .iter()
            .map(|it| (it["node"].as_str(), it["log"].as_str()))
            .collect();
        assert_eq!(
            logged,
            [(Some("A"), Some("first")), (Some("B"), Some("second"))]
        );
        assert_eq!(fixture.lines("trigger.out"), [""; 0]);
        // No run was requested twice.
        static RUNS: Statement = Statement::new("TEST_RUNS", "SELECT id FROM ductwork_runs");
        assert_eq!(fixture.conn.fetch(&RUNS, &[]).await.unwrap().len(), 3);
        daemon.stop().await;
        fixture.audited().await;
    }
}
