//! The end of a step's stderr is stored with its attempt, and printed by `logs`.

use std::process::Output;
use std::time::Duration;

use ductwork::model::RunId;
use ductwork::store::prune;
use ductwork::store::statement::Statement;
use serde_json::Value;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

const CHATTY: &str = r#"
pipeline: Chatty
steps:
  Talks: { command: [sh, -c, 'echo first >&2; echo last >&2; cat'] }
  Silent: { command: [cat] }
  Flaky: { command: [sh, -c, 'echo "try $DUCTWORK_ATTEMPT" >&2; [ $DUCTWORK_ATTEMPT -gt 1 ] && cat'] }
  Long: { command: [sh, -c, 'seq 100000 >&2; cat'] }
  Says: { command: [sh, -c, 'echo beside >&2; [ $DUCTWORK_ATTEMPT -gt 1 ] && exec cat; echo "{\"error\":{\"type\":\"Own\",\"backtrace\":[\"own\"]}}"; exit 1'] }
  Dies: { command: [sh, -c, 'echo dying >&2; [ $DUCTWORK_ATTEMPT -gt 1 ] && exec cat; kill -9 $$'] }
flow: [{ start: Talks }, { chain: Silent }, { chain: Flaky }, { chain: Long }, { chain: Says }, { chain: Dies }]
"#;

const WAITS: &str = "
pipeline: Waits
steps:
  A: { command: [sh, -c, 'echo one >&2; cat'] }
  B: { command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done; echo two >&2; cat'] }
flow: [{ start: A }, { chain: B }]
";

static KEPT: Statement = Statement::new(
    "TEST_KEPT",
    "SELECT s.step, e.log, e.error_backtrace FROM ductwork_executions e
       JOIN ductwork_steps s ON s.id = e.step_id ORDER BY s.id, e.attempt",
);

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The lines of each attempt: its node, its number, its result, and its output.
fn attempts(text: &str) -> Vec<(String, Value, String, String)> {
    let attempt = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |name: &str| line[name].as_str().unwrap().to_owned();
        (
            word("node"),
            line["attempt"].clone(),
            word("result"),
            word("log"),
        )
    };
    text.lines().map(attempt).collect()
}

on_every_database! {
    async fn what_attempts_wrote_is_printed_in_the_order_of_the_flow_and_pruned_with_them(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[CHATTY]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Chatty", "1", 1).await[0];
        fixture.completed(PATIENCE).await;
        let run = run.to_string();

        let text = printed(&fixture.run(&[], &["logs", &run, "--json"]));
        let all = attempts(&text);
        let names = |name: &str| all.iter().filter(|attempt| attempt.0 == name).count();
        let heads: Vec<(&str, &str)> = all.iter().map(|a| (a.0.as_str(), a.2.as_str())).collect();
        assert_eq!(
            heads,
            [
                ("Talks", "success"), ("Flaky", "error"), ("Flaky", "success"), ("Long", "success"),
                ("Says", "error"), ("Says", "success"), ("Dies", "process_crashed"), ("Dies", "success"),
            ],
            "{text}"
        );
        assert_eq!(names("Silent"), 0);
        let logs: Vec<&str> = all.iter().map(|attempt| attempt.3.as_str()).collect();
        assert_eq!(logs[..3], ["first\nlast", "try 1", "try 2"]);
        assert!(logs[3].starts_with("…\n") && logs[3].ends_with("99999\n100000"), "{}", logs[3]);
        assert!(logs[3].len() <= 16 * 1024 + "…\n".len());
        assert_eq!(logs[4..], ["beside", "beside", "dying", "dying"]);

        // Nothing is stored for an attempt that has printed nothing, and text that explains an error is
        // not stored twice.
        let rows = fixture.conn.fetch(&KEPT, &[]).await.unwrap();
        let kept = |index: usize, column: &str| rows[index].get::<Option<String>>(column).unwrap();
        assert_eq!(rows.len(), 9);
        assert_eq!((kept(1, "log"), kept(1, "error_backtrace")), (None, None));
        assert_eq!((kept(2, "log"), kept(2, "error_backtrace").as_deref()), (None, Some("try 1")));
        assert_eq!((kept(5, "log").as_deref(), kept(5, "error_backtrace").as_deref()), (Some("beside"), Some("own")));

        let text = printed(&fixture.run(&[], &["logs", &run, "Flaky"]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("Flaky  attempt 1  error  ") && lines[0].ends_with("  try 1"), "{text}");
        assert_eq!(lines[1..3], ["  try 1", ""]);
        assert!(lines[3].starts_with("Flaky  attempt 2  success  "), "{text}");
        assert_eq!(lines[4..], ["  try 2"]);
        let text = printed(&fixture.run(&[], &["logs", &run, "Silent"]));
        assert!(text.starts_with("the step Silent wrote nothing to stderr"), "{text}");
        let wrong = fixture.run(&[], &["logs", &run, "Flakey"]);
        let said = String::from_utf8_lossy(&wrong.stderr);
        assert_eq!(wrong.status.code(), Some(1));
        assert!(said.contains("did you mean `Flaky`?"), "{said}");

        daemon.stop().await;
        fixture.audited().await;
        prune::prune(&mut fixture.conn, Duration::ZERO, 99).await.unwrap();
        let gone = fixture.run(&[], &["logs", &run]);
        assert_eq!(gone.status.code(), Some(1));
        assert!(fixture.conn.fetch(&KEPT, &[]).await.unwrap().is_empty());
    }

    async fn a_run_under_way_is_followed_to_its_end(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run: RunId = fixture.trigger("Waits", "1", 1).await[0];
        let to_a_file = ["sh", "-c", "exec \"$0\" \"$@\" > followed"];
        let mut follows = fixture.start_as(&to_a_file, &["logs", &run.to_string(), "--follow"]);
        let said = fixture.said("followed", 2).await;
        assert_eq!(said[1], "  one");
        std::fs::write(fixture.path("go"), "").unwrap();
        let ended = eventually(PATIENCE, "nobody follows any more", async || follows.has_ended()).await;
        assert!(ended.success());
        assert!(fixture.all_ended().await);
        let said = fixture.lines("followed");
        assert!(said[0].starts_with("A  attempt 1  success") && said[3].starts_with("B  attempt 1  success"), "{said:?}");
        assert_eq!(said[4..], ["  two"]);
        daemon.stop().await;
    }
}
