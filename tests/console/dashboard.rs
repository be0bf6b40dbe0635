//! The dashboard and the alerts: they name existing metrics, and a real Prometheus has an answer for each panel.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ductwork::metrics::{Kind, METRICS, Metric};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;

fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file)
}

/// The title of each panel, with one of its expressions in the form that Grafana would send.
fn panels() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(deployed("grafana/ductwork.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            let asked = expression
                .replace("$pipeline", ".*")
                .replace("$__rate_interval", "1m");
            assert!(!asked.contains('$'), "{title}: {expression}");
            found.push((title.to_owned(), asked));
        }
    }
    assert!(found.len() > 20, "{found:#?}");
    found
}

/// The expressions of the alerts.
fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(deployed("prometheus/alerts.yml")).unwrap();
    let mut found = Vec::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            name = alert.to_owned();
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            found.push((name.clone(), expression.to_owned()));
        }
    }
    assert!(found.len() > 5, "{found:#?}");
    found
}

/// The operator of Prometheus takes the same alerts: `scripts/kubernetes --write` copies them.
#[test]
fn the_rules_for_kubernetes_are_the_alerts() {
    let alerts = std::fs::read_to_string(deployed("prometheus/alerts.yml")).unwrap();
    let rules =
        std::fs::read_to_string(deployed("kubernetes/components/monitoring/rules.yml")).unwrap();
    let groups = |text: &str| -> Vec<String> {
        let after = text
            .lines()
            .skip_while(|line| line.trim() != "groups:")
            .skip(1);
        let said: Vec<String> = after.map(|line| line.trim().to_owned()).collect();
        assert!(said.len() > 20, "{text}");
        said
    };
    assert_eq!(
        groups(&rules),
        groups(&alerts),
        "run scripts/kubernetes --write, which copies the alerts"
    );
}

/// The metric that a series belongs to: a histogram has the series `_bucket`, `_sum` and `_count`.
fn metric(series: &str) -> Option<&'static Metric> {
    METRICS.iter().copied().find(|metric| {
        let name = metric.full_name();
        match metric.kind {
            Kind::Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| series.strip_suffix(end) == Some(&name)),
            _ => series == name,
        }
    })
}

/// Every name in an expression that is not a metric of Ductwork's, or not a label of its metric.
fn mistakes(expression: &str) -> Vec<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut mistakes = Vec::new();
    let mut labels: Vec<BTreeSet<&str>> = Vec::new();
    for (at, _) in expression.match_indices("ductwork_") {
        let rest = &expression[at..];
        let end = rest.find(|it| !is_name(it)).unwrap_or(rest.len());
        let Some(metric) = metric(&rest[..end]) else {
            mistakes.push(format!("there is no series {}", &rest[..end]));
            continue;
        };
        let mut known: BTreeSet<&str> = metric.labels.iter().copied().collect();
        let matched = rest[end..]
            .strip_prefix('{')
            .and_then(|it| it.split_once('}'));
        for matcher in matched.map_or("", |(inner, _)| inner).split(", ") {
            let label = matcher.split(|it| !is_name(it)).next().unwrap_or_default();
            if !label.is_empty() && !known.contains(label) {
                mistakes.push(format!("{} has no label {label}", metric.name));
            }
        }
        if metric.kind == Kind::Histogram {
            known.insert("le");
        }
        labels.push(known);
    }
    for by in expression.split(" by (").skip(1) {
        for label in by.split(')').next().unwrap_or_default().split(", ") {
            if !labels.iter().all(|known| known.contains(label)) {
                mistakes.push(format!("nothing has the label {label}"));
            }
        }
    }
    mistakes
}

#[test]
fn panels_and_alerts_name_metrics_and_labels_that_there_are() {
    for (name, expression) in panels().into_iter().chain(alerts()) {
        assert_eq!(
            mistakes(&expression),
            Vec::<String>::new(),
            "{name}: {expression}"
        );
    }
    assert_eq!(
        mistakes(
            r#"sum by (host) (rate(ductwork_runs_ended_total{pipelin="P"}[5m])) + ductwork_rums"#
        ),
        [
            "runs_ended has no label pipelin",
            "there is no series ductwork_rums",
            "nothing has the label host"
        ]
    );
}

/// A tool that comes with Prometheus.
fn promtool(directory: &Path, arguments: &[&str]) {
    let tool = Path::new(&program("prometheus")).with_file_name("promtool");
    let mut command = Command::new(tool);
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.expect("promtool runs");
    assert!(output.status.success(), "{arguments:?}: {output:#?}");
}

#[test]
fn panels_are_expressions_and_each_alert_fires_when_it_is_to() {
    let directory = tempfile::tempdir().unwrap();
    let rule = |(at, (_, expression)): (usize, &(String, String))| {
        let expression = serde_json::to_string(expression).unwrap();
        format!("    - {{ record: 'panel_{at}', expr: {expression} }}\n")
    };
    let rules: String = panels().iter().enumerate().map(rule).collect();
    let rules = format!("groups:\n- name: panels\n  rules:\n{rules}");
    std::fs::write(directory.path().join("panels.yml"), rules).unwrap();
    promtool(
        directory.path(),
        &["check", "rules", "--lint-fatal", "panels.yml"],
    );
    let prometheus = deployed("prometheus");
    promtool(
        &prometheus,
        &["check", "rules", "--lint-fatal", "alerts.yml"],
    );
    promtool(&prometheus, &["test", "rules", "alerts_test.yml"]);
}

/// A Prometheus that scrapes one console every second.
struct Prometheus {
    child: Child,
    served: Console,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    async fn of(console: &Console) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let target = &console.address;
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: ductwork\n  \
             static_configs: [{{ targets: ['{target}'] }}]\n"
        );
        std::fs::write(directory.path().join("prometheus.yml"), text).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut command = Command::new(program("prometheus"));
        command
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log")).unwrap());
        let prometheus = Self {
            child: command.spawn().expect("it starts"),
            served: Console {
                address,
                socket: None,
            },
            _directory: directory,
        };
        prometheus.served.answers("/-/ready", 200).await;
        prometheus
    }

    /// The numbers that Prometheus has for an expression now.
    fn numbers(&self, expression: &str) -> Vec<f64> {
        let letter = |byte: u8| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        let asked: String = expression.bytes().map(letter).collect();
        // An answer in an older version of HTTP has no chunked body.
        let request = format!("GET /api/v1/query?query={asked} HTTP/1.0\r\n\r\n");
        let answer = self.served.exchange(&request).expect("a response");
        let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(answer["status"], "success", "{expression}: {answer:#}");
        let series = answer["data"]["result"].as_array().expect("a vector");
        let number = |one: &Value| one["value"][1].as_str()?.parse().ok();
        series
            .iter()
            .filter_map(number)
            .filter(|number: &f64| number.is_finite())
            .collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

const PIPELINES: [&str; 3] = [
    // One step that fails once, and one that succeeds.
    "pipeline: Retries\n\
     steps: { A: { command: [sh, -c, 'test $DUCTWORK_ATTEMPT -gt 1 && cat'] }, B: { command: [cat] } }\n\
     flow: [{ start: A }, { chain: B }]\n",
    "pipeline: Halts\n\
     steps: { A: { command: [sh, -c, 'exit 1'], max_retry: 0 } }\n\
     flow: [{ start: A }]\n",
    // A queue that is never worked off.
    "pipeline: Waits\n\
     steps: { A: { command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done; cat'] } }\n\
     flow: [{ start: A }]\n",
];

on_every_database! {
    async fn a_real_prometheus_has_numbers_for_every_panel(db: Db) {
        let settings = Settings { reaper_timeout: "2s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &PIPELINES).await;
        fixture.configure("  console: { listen: \"127.0.0.1:0\" }\n");
        let mut daemon = fixture.start();
        daemon.ready().await;
        let prometheus = Prometheus::of(&Console::of(&daemon).await).await;
        fixture.trigger("Waits", "1", 30).await;
        assert!(fixture.run(&[], &["audit"]).status.success());
        let worker = daemon.child("worker Retries", None).await;
        send(worker, Signal::SIGKILL);
        let mut silent = panels();
        let began = Instant::now();
        let mut triggered = None;
        eventually(PATIENCE, "every panel has a number", async || {
            // Counts are written every ten seconds, and a rate needs counts in between.
            if triggered.is_none_or(|at: Instant| at.elapsed() > Duration::from_millis(500)) {
                triggered = Some(Instant::now());
                for pipeline in ["Retries", "Halts"] {
                    fixture.trigger(pipeline, "1", 3).await;
                }
            }
            silent.retain(|(_, expression)| prometheus.numbers(expression).is_empty());
            assert!(began.elapsed() < PATIENCE / 2, "no number: {silent:#?}");
            silent.is_empty().then_some(())
        })
        .await;
        // These numbers are correct.
        let waits = "ductwork_executions_held{pipeline=\"Waits\"}";
        assert_eq!(prometheus.numbers(waits).len(), 1);
        assert_eq!(prometheus.numbers("up{job=\"ductwork\"}"), [1.0]);
        std::fs::write(fixture.path("go"), "").unwrap();
        daemon.stop().await;
    }
}
