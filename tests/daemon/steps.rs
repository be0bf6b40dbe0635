//! Steps that behave badly, in a daemon that tolerates it.

use std::time::Duration;

use ductwork::model::RunStatus;
use ductwork::store::query;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// A step's action, how each of its attempts ends, the class of the error, and how many of two
/// attempts it gets.
const ROWS: [(&str, &str, &str, &str, u32); 14] = [
    ("NotJson", "[echo, hello]", "error", "output_invalid", 2),
    (
        "Trailing",
        "[sh, -c, 'echo 1 2']",
        "error",
        "output_invalid",
        2,
    ),
    ("NotANumber", "[echo, NaN]", "error", "output_invalid", 2),
    (
        "NotUtf8",
        r#"[printf, '"\377"']"#,
        "error",
        "output_invalid",
        2,
    ),
    (
        "TooMuch",
        "[sh, -c, 'printf \\\"; head -c 20000000 /dev/zero | tr \"\\0\" x; printf \\\"']",
        "error",
        "output_too_large",
        2,
    ),
    (
        "DataError",
        "[sh, -c, 'exit 65']",
        "error",
        "ExitStatus(65)",
        1,
    ),
    (
        "TempFail",
        "[sh, -c, 'exit 75']",
        "error",
        "ExitStatus(75)",
        2,
    ),
    (
        "Fails",
        "[sh, -c, 'echo no >&2; exit 3']",
        "error",
        "ExitStatus(3)",
        2,
    ),
    (
        "Missing",
        "[/no/such/program]",
        "error",
        "command_not_found",
        2,
    ),
    (
        "NotExecutable",
        "[./ductwork.yml]",
        "error",
        "command_not_executable",
        2,
    ),
    (
        "Segfault",
        "[sh, -c, 'kill -SEGV $$']",
        "error",
        "Signal(SEGV)",
        2,
    ),
    (
        "KeepsPipe",
        "[sh, -c, 'sleep 1000 & echo 1']",
        "success",
        "",
        1,
    ),
    (
        "ClosesAll",
        "[sh, -c, 'exec <&- >&- 2>&-; exit 0']",
        "success",
        "",
        1,
    ),
    (
        "Says",
        r#"[sh, -c, 'echo "{\"error\":{\"type\":\"Own\",\"message\":\"m\",\"retryable\":false}}"; exit 1']"#,
        "error",
        "Own",
        1,
    ),
];

const QUICK: &str = "
pipeline: Quick
steps: { A: { command: [cat] } }
flow: [{ start: A }]
";

/// Outputs with the greatest allowed depth, and a fan-in that ends the run, or is given to
/// `fan_in`.
fn deepest(name: &str, fan_in: Option<&str>) -> String {
    let (step, edge) = match fan_in {
        Some(command) => (
            format!("  In: {{ command: {command} }}\n"),
            ", { collapse: In }",
        ),
        None => (String::new(), ""),
    };
    format!(
        r#"pipeline: {name}
steps:
  Two: {{ command: [echo, '[1, 2]'] }}
  Deepest: {{ command: [python3, -c, "print('[' * 128 + ']' * 128)"] }}
{step}flow: [{{ start: Two }}, {{ expand: Deepest }}{edge}]
"#
    )
}

on_every_database! {
    async fn a_fan_in_of_the_deepest_outputs_is_handed_on_but_not_taken_back(db: Db) {
        let count = deepest("Deep", Some(r#"[sh, -c, 'tr -cd "[" | wc -c']"#));
        let (back, ends) = (deepest("Back", Some("[cat]")), deepest("Ends", None));
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&count, &back, &ends]).await;
        let mut daemon = fixture.start();
        let deep = fixture.trigger("Deep", "0", 1).await[0];
        let back = fixture.trigger("Back", "0", 1).await[0];
        let ends = fixture.trigger("Ends", "0", 1).await[0];
        fixture.ended(PATIENCE).await;
        assert_eq!(fixture.output(deep).await, 1 + 2 * 128);
        let whole = query::run_state(&mut fixture.conn, ends).await.unwrap().unwrap();
        let deepest = "[".repeat(128) + &"]".repeat(128);
        assert_eq!(whole.output.unwrap().get(), format!("[{deepest},{deepest}]"));
        let refused = query::run_state(&mut fixture.conn, back).await.unwrap().unwrap();
        assert_eq!(refused.status, RunStatus::Halted);
        let executions = fixture.executions().await;
        let returned = executions.iter().find(|e| e.step == "In" && e.result() != "success").unwrap();
        assert_eq!(returned.error_class.as_deref(), Some("output_invalid"));
        let message = returned.error_message.as_deref().unwrap();
        assert!(message.contains("nests deeper than 128 levels at line 1, column 129"), "{message}");
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn bad_steps_get_their_own_errors_and_cost_the_daemon_nothing(db: Db) {
        let steps: String = ROWS.iter().map(|(name, command, ..)| format!("  {name}: {{ command: {command} }}\n")).collect();
        let mut pipelines = vec![QUICK.to_owned()];
        // All of them side by side, in the slots of one worker.
        let names: Vec<&str> = ROWS.iter().map(|row| row.0).collect();
        pipelines.push(format!(
            "pipeline: Bad\nsteps:\n  Start: {{ command: [cat] }}\n{steps}flow: [{{ start: Start }}, {{ divide: [{}] }}]\n",
            names.join(", ")
        ));
        let pipelines: Vec<&str> = pipelines.iter().map(String::as_str).collect();
        let settings = Settings { max_retry: 1, max_crash: 1, level: "info", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &pipelines).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let children: Vec<i32> = ["advancer", "worker Bad", "worker Quick"]
            .iter()
            .flat_map(|kind| daemon.children(kind))
            .collect();
        fixture.trigger("Bad", "1", 2).await;
        fixture.ended(PATIENCE).await;
        let executions = fixture.executions().await;
        for (name, _, result, class, attempts) in ROWS {
            let of_step: Vec<_> = executions.iter().filter(|e| e.step == name).collect();
            assert_eq!(of_step.len(), 2 * attempts as usize, "{of_step:#?}");
            for execution in of_step {
                assert_eq!(execution.result(), result, "{execution:?}");
                assert_eq!(execution.error_class.as_deref().unwrap_or_default(), class, "{execution:?}");
                assert_eq!(execution.crash_count, 0, "{execution:?}");
                if result == "error" {
                    assert!(!execution.error_message.as_deref().unwrap_or_default().is_empty(), "{execution:?}");
                }
            }
        }
        // No child was replaced, and good steps run as before.
        let runs = fixture.trigger("Quick", "1", 3).await;
        fixture.ended(PATIENCE).await;
        assert_eq!(fixture.output(runs[2]).await, 1);
        assert_eq!(children.len(), 3);
        for pid in &children {
            assert!(lives(*pid), "{pid} has ended");
        }
        eventually_every(SCAN, Duration::from_secs(5), "no step has left anything behind", async || {
            (daemon.processes().len() == 4).then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.audited().await;
    }
}
