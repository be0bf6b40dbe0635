//! A run as a trace: it contains every attempt, however it ended.

use ductwork::model::RunStatus;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;

/// Its first attempt is killed, its second fails, and its third is the last.
const TRIES: &str = "pipeline: Tries\n\
     steps: { A: { command: [sh, -c, 'echo $$ >> pids; if [ $(wc -l < pids) = 1 ]; then exec sleep 600; fi; echo no luck >&2; exit 1'],\n\
                   max_retry: 1, backoff: { initial: 0s } } }\n\
     flow: [{ start: A }]\n";

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a Value> {
    let mut all = span["attributes"].as_array().unwrap().iter();
    all.find(|it| it["key"] == key).map(|it| &it["value"])
}

on_every_database! {
    async fn a_trace_has_each_attempt_with_its_end_and_the_one_before(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[TRIES]).await;
        fixture.configure("  console: { listen: \"127.0.0.1:0\" }\n");
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let run = fixture.trigger("Tries", "1", 1).await[0];
        let step = fixture.pids("pids", 1).await[0];
        let going = console.json(&format!("/api/v1/runs/{run}/trace"));
        let spans = |trace: &Value| trace["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        assert_eq!(spans(&going)[0]["status"], json!({"code": 0}));
        let worker = daemon.child("worker Tries", None).await;
        send(worker, Signal::SIGKILL);
        gone(step, PATIENCE).await;
        assert_eq!(fixture.ended(PATIENCE).await, [RunStatus::Halted]);

        let trace = console.json(&format!("/api/v1/runs/{run}/trace"));
        assert_eq!(trace["resourceSpans"][0]["resource"]["attributes"][0]["key"], "service.name");
        let spans = spans(&trace);
        let results: Vec<_> = spans.iter().map(|it| attribute(it, "ductwork.result").map(|it| it["stringValue"].clone())).collect();
        let result = |text: &str| Some(json!(text));
        assert_eq!(results, [None, result("process_crashed"), result("error"), result("error")]);
        let id = run.0.simple().to_string();
        let executions = console.json(&format!("/api/v1/runs/{run}/steps"))[0]["executions"].clone();
        for (at, span) in spans.iter().enumerate() {
            assert_eq!(span["traceId"], id.as_str());
            let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
            if at == 0 {
                assert_eq!((span["name"].as_str(), &span["kind"]), (Some("Tries"), &json!(1)));
                assert_eq!(span["spanId"], id[16..]);
                assert_eq!(span["status"]["code"], 2);
                continue;
            }
            assert_eq!((span["name"].as_str(), &span["kind"]), (Some("A"), &json!(5)));
            assert_eq!(span["parentSpanId"], spans[0]["spanId"]);
            let execution = executions[at - 1]["id"].as_str().unwrap().replace('-', "");
            assert_eq!(span["spanId"], execution[16..]);
            assert_eq!(attribute(span, "ductwork.attempt").unwrap()["intValue"], at.to_string());
            assert!(attribute(span, "host.name").is_some(), "of one that is gone too: {span}");
            match at {
                1 => assert_eq!(span["links"], json!([])),
                _ => assert_eq!(span["links"][0]["spanId"], spans[at - 1]["spanId"]),
            }
        }
        assert!(spans[3]["status"]["message"].as_str().unwrap().contains("no luck"), "{}", spans[3]);
        daemon.stop().await;
    }
}
