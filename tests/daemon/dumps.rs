//! Thread dumps for an operator on a bad night: quick, small, and part of the log.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::support::{self, Db};

const QUICK: &str = "
pipeline: Quick
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
";

/// Workers beside the one that is busy, and one advancer: twenty children.
const WAITING: usize = 18;

fn waiting(name: &str) -> String {
    format!(
        "pipeline: {name}\n\
         steps: {{ Wait: {{ command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.5; done; cat'] }} }}\n\
         flow: [{{ start: Wait }}]\n"
    )
}

/// The resident memory of a process, in kilobytes.
fn resident(pid: i32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// The database that the children wait for does not affect their dumps.
#[tokio::test]
async fn a_dump_of_twenty_busy_children_is_quick_and_small_and_every_line_is_json() {
    support::with(Db::postgres().await, dumped).await;
}

async fn dumped(db: Db) {
    let names: Vec<String> = (0..WAITING).map(|n| format!("W{n}")).collect();
    let texts: Vec<String> = names.iter().map(|name| waiting(name)).collect();
    let mut pipelines: Vec<&str> = texts.iter().map(String::as_str).collect();
    pipelines.push(QUICK);
    let settings = Settings {
        level: "warn",
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &pipelines).await;
    let mut daemon = fixture.start();
    for name in &names {
        fixture.trigger(name, "1", 1).await;
    }
    fixture.trigger("Quick", "1", 2_000).await;
    fixture.pids("pids", WAITING).await;
    let daemons = daemon.processes().into_iter();
    let daemons = daemons.filter(|it| {
        ["supervisor", "advancer", "worker"]
            .iter()
            .any(|kind| it.kind.starts_with(kind))
    });
    let pids: Vec<i32> = daemons.map(|it| it.pid).collect();
    assert_eq!(pids.len(), 1 + 1 + WAITING + 1);

    // Over the dumps alone: the cache of a busy connection grows with its work.
    let mut grown = vec![0; pids.len()];
    let mut quickest = Duration::MAX;
    for dump in 1..=4 {
        let before: Vec<i64> = pids.iter().map(|pid| resident(*pid)).collect();
        let asked = Instant::now();
        daemon.send(Signal::SIGTTIN);
        eventually(PATIENCE, "everybody has answered", async || {
            let ended = daemon.logged("end of dump");
            let answers = |pid: &i32| ended.iter().filter(|it| it["pid"] == *pid).count();
            pids.iter().all(|pid| answers(pid) == dump).then_some(())
        })
        .await;
        quickest = quickest.min(asked.elapsed());
        for ((grown, pid), before) in grown.iter_mut().zip(&pids).zip(&before) {
            *grown += resident(*pid) - before;
        }
        // A process makes at most one dump a second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    eprintln!(
        "the quickest of 4 dumps of {} processes took {quickest:?}; they grew by {grown:?} kB",
        pids.len()
    );
    assert!(quickest < Duration::from_millis(500), "{quickest:?}");
    assert!(grown.iter().all(|grown| *grown < 2_048), "{grown:?} kB");

    for line in daemon.text().lines() {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(
            object["ts"].is_string() && object["msg"].is_string(),
            "{line}"
        );
    }
    let steps = daemon.logged("running step");
    for name in &names {
        let of = |it: &&serde_json::Value| it["pipeline"] == name.as_str() && it["step"] == "Wait";
        let step = steps.iter().rfind(of).unwrap();
        assert!(
            step["ms"].as_u64() > Some(1_000) && step["since"].is_string(),
            "{step}"
        );
    }

    // The same program names the functions in which a thread of ductworkd waits.
    let threads = daemon.logged("thread");
    let log = threads
        .iter()
        .find(|it| it["pipeline"] == "W3" && it["thread"] == "log")
        .unwrap();
    let named = fixture.run(&[], &["symbolize", &log.to_string()]);
    let text = String::from_utf8(named.stdout).unwrap();
    assert!(
        named.status.success(),
        "{}",
        String::from_utf8_lossy(&named.stderr)
    );
    assert!(
        text.contains("telemetry::queue::Queue::next") && text.contains("src/telemetry/queue.rs:"),
        "{text}"
    );
    let foreign = log
        .to_string()
        .replace(log["build_id"].as_str().unwrap(), "0123");
    let refused = fixture.run(&[], &["symbolize", &foreign]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("some frames are of build 0123; this program is build "),
        "{said}"
    );

    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    fixture.audited().await;
}
