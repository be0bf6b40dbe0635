//! Properties of every text that somebody writes: nothing panics, and what is accepted is accepted
//! again in the form in which it is written, and means the same.
//!
//! Shared by the fuzz targets and by `tests/fuzz.rs`, which goes through the seeds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ductwork::StepError;
use ductwork::config::{Config, DatabaseUrl, Handed, LoadOptions};
use ductwork::definition::{Definition, yaml};
use ductwork::duration;
use ductwork::model::{BranchId, RunId};
use ductwork::problem::{Problems, lines};
use ductwork::step::output::{DEPTH_MAX, JsonProblem, parse_json};
use ductwork::step::report;

/// A pipeline's file.
pub fn definition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match yaml::parse(text, Path::new("pipeline.yml")) {
        Ok(definition) => {
            let canonical = definition.canonical();
            let again = Definition::from_canonical(&canonical).expect("what was written is read");
            assert_eq!(again, definition);
            assert_eq!(again.canonical(), canonical);
            assert_eq!(again.digest(), definition.digest());
            for node in &definition.nodes {
                assert_eq!(
                    definition
                        .find(&node.name)
                        .map(|index| definition.node(index)),
                    Some(node),
                    "a node is found by its name"
                );
            }
        }
        Err(problems) => told(text, &problems),
    }
    // And what a database could hold in its place.
    if let Ok(stored) = Definition::from_canonical(text) {
        let canonical = stored.canonical();
        let again = Definition::from_canonical(&canonical).expect("what was written is read");
        assert_eq!(again.canonical(), canonical);
    }
}

/// The configuration.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let load = |text: String| {
        Config::load(LoadOptions {
            file: Some(PathBuf::from("ductwork.yml")),
            env: None,
            vars: &|name| (name == "SET").then(|| "7".to_owned()),
            names: &[],
            cwd: PathBuf::from("/nowhere"),
            handed: Some(Handed::of(text)),
        })
    };
    match load(text.to_owned()) {
        Ok(config) => {
            // A comment changes nothing.
            assert_eq!(load(format!("# x\n{text}")), Ok(config.clone()));
            for pipeline in ["Work", "default", ""] {
                let worker = &config.job_worker;
                let spans = [
                    worker.polling_timeout(pipeline),
                    worker.shutdown_timeout(pipeline),
                    worker.backoff(pipeline, "A").max,
                    worker.timeout(pipeline, "A").unwrap_or_default(),
                    config.pipeline_advancer.polling_timeout,
                    config.supervisor.reaper_timeout,
                ];
                for span in spans {
                    assert!(span <= duration::LONGEST, "{span:?}");
                }
                assert!(worker.count(pipeline) > 0);
            }
            let url = &config.database.url;
            let again = DatabaseUrl::parse(url.expose(), Path::new("/elsewhere"));
            assert_eq!(again.as_ref(), Ok(url));
        }
        Err(problems) => told(text, &problems),
    }
}

/// A step's answer: a value, or why it failed.
pub fn output(bytes: &[u8]) {
    const MAX: usize = 1 << 16;
    match parse_json(bytes, MAX) {
        Ok(value) => {
            let text = value.get();
            assert!(text.len() <= bytes.len() && bytes.len() <= MAX);
            let again = parse_json(text.as_bytes(), MAX).expect("what was accepted");
            assert_eq!(again.get(), text, "to the letter");
            // A later reader counts by recursion.
            if let Ok(read) = serde_json::from_str::<serde_json::Value>(text) {
                assert!(depth(&read) <= DEPTH_MAX);
            }
        }
        Err(JsonProblem::NotUtf8 { offset, line }) => {
            assert!(offset < bytes.len());
            let lines = bytes[..offset].iter().filter(|byte| **byte == b'\n');
            assert_eq!(line, lines.count() + 1);
        }
        Err(JsonProblem::TooDeep { line, column } | JsonProblem::Syntax { line, column, .. }) => {
            let text = std::str::from_utf8(bytes).expect("that was asked before");
            inside(text.split('\n'), line, column);
        }
        Err(JsonProblem::TooLarge { max }) => assert!(bytes.len() > max),
        Err(JsonProblem::Empty) => assert!(bytes.iter().all(u8::is_ascii_whitespace)),
    }
    let error = StepError::new("ExitStatus(1)", "it failed");
    let filled = match report::of(bytes, MAX) {
        Some(report) => report::fill(error, &report, None),
        None => error,
    };
    for text in [&filled.class, &filled.message] {
        assert!(!text.is_empty() && !text.contains('\0'));
    }
    assert!(filled.retry_after <= Some(duration::LONGEST));
}

/// Words on the command line and in URLs: durations, ids, addresses of databases.
pub fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match duration::parse(text) {
        Ok(span) => {
            assert!(span <= duration::LONGEST, "{span:?}");
            let written = format!("{}ms", span.as_millis());
            assert_eq!(duration::parse(&written), Ok(span));
            assert!(span == Duration::ZERO || span >= Duration::from_millis(1));
        }
        Err(said) => assert!(!said.contains(char::is_control), "{said:?}"),
    }
    if let Ok(id) = text.parse::<RunId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(text.parse::<BranchId>().map(|id| id.0), Ok(id.0));
    }
    match DatabaseUrl::parse(text, Path::new("/base")) {
        Ok(url) => {
            let again = DatabaseUrl::parse(url.expose(), Path::new("/elsewhere"));
            assert_eq!(again.as_ref(), Ok(&url));
            assert!(!url.to_string().contains(":s3cret@"), "{url}");
        }
        Err(error) => assert!(!error.message.contains(char::is_control), "{error:?}"),
    }
}

/// Problems point into the text, and take one line each.
fn told(text: &str, problems: &Problems) {
    assert!(!problems.0.is_empty(), "refused without a reason");
    for problem in &problems.0 {
        let message = &problem.message;
        assert!(
            !message.is_empty() && !message.contains(char::is_control),
            "{message:?}"
        );
        if let Some(at) = &problem.at {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            inside(lines(text), at.line, at.column);
            assert!(at.width > 0 && at.source.chars().count() <= 240);
        }
        let shown = problem.to_string();
        assert!(shown.starts_with("error: "), "{shown}");
    }
}

fn inside<'a>(lines: impl Iterator<Item = &'a str> + Clone, line: usize, column: usize) {
    let of = lines.clone().nth(line.wrapping_sub(1));
    let lines = lines.count();
    let Some(of) = of else {
        panic!("line {line} of {lines}");
    };
    let width = of.chars().count();
    assert!(
        (1..=width + 1).contains(&column),
        "column {column} of {width} in line {line}"
    );
}

fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
