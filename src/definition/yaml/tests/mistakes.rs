//! Faulty files: the messages about them, and the places.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::definition::tree::MAX_BYTES;

pub(super) fn problems(text: &str) -> Vec<Problem> {
    match parse(text, file()) {
        Ok(definition) => panic!("no problem in {text}\n{}", definition.canonical()),
        Err(Problems(problems)) => problems,
    }
}

/// The longest wait for an answer: the test of a parser that never gives one fails as well. The runner would end it
/// after five minutes, but would not say why.
const LAST_RESORT: Duration = Duration::from_secs(240);

/// The problems of a text, found within this much CPU time of a thread of its own: on a busy machine the thread waits
/// longer, but does no more work.
fn problems_within(most: Duration, text: &str) -> Vec<Problem> {
    let text = text.to_owned();
    let (answers, answer) = channel();
    let parser = std::thread::spawn(move || {
        let problems = problems(&text);
        // This clock begins with its thread.
        let took = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        answers.send((problems, Duration::from(took))).unwrap();
    });
    match answer.recv_timeout(LAST_RESORT) {
        Ok((problems, took)) => {
            assert!(took < most, "{took:?} of CPU time");
            problems
        }
        // The thread goes on until the process ends.
        Err(RecvTimeoutError::Timeout) => panic!("no answer within {LAST_RESORT:?}"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(parser.join().unwrap_err())
        }
    }
}

/// Asserts that exactly these problems are found, each at its line and column, by part of its
/// message.
pub(super) fn assert_found(text: &str, expected: &[(usize, usize, &str)]) {
    let problems = problems(text);
    let shown = Problems(problems.clone()).to_string();
    assert_eq!(problems.len(), expected.len(), "{text}\n{shown}");
    for (problem, (line, column, message)) in problems.iter().zip(expected) {
        let at = problem
            .at
            .as_ref()
            .unwrap_or_else(|| panic!("no place: {shown}"));
        assert_eq!((at.line, at.column), (*line, *column), "{shown}");
        let whole = format!(
            "{} = {}",
            problem.message,
            problem.help.as_deref().unwrap_or("?")
        );
        assert!(whole.contains(message), "{message:?} is not in {whole}");
        assert!(
            !whole.ends_with('?') || whole.contains("did you mean"),
            "no help: {whole}"
        );
        assert!(!whole.contains('\n'), "{whole}");
        assert_eq!(problem.file.as_deref(), Some(file()));
        let line = text.lines().nth(line - 1).unwrap_or_default();
        let line = line.trim_start_matches('\u{feff}');
        // A long line is shown in part.
        match line.chars().count() <= 72 {
            true => assert_eq!(at.source, line),
            false => assert!(line.contains(at.source.trim_matches('…')), "{}", at.source),
        }
    }
}

fn with_step(step: &str) -> String {
    format!("pipeline: P\nsteps:\n  A: {step}\nflow:\n  - start: A\n")
}

#[test]
fn every_mistake_in_a_flow_is_found_where_it_is() {
    // `- dampen` and the unused steps keep each row about one thing only.
    let all = "  - start: A\n  - chain: B\n  - chain: C\n";
    for (flow, expected) in [
        (
            "  - chain: A\n  - chain: B\n  - chain: C\n",
            vec![(7, 5, "does not begin with `start`")],
        ),
        (
            "  - chain: A\n  - start: B\n  - chain: C\n",
            vec![(8, 5, "`start` is not at the front")],
        ),
        (
            &format!("{all}  - start: A\n"),
            vec![(10, 5, "a second `start`")],
        ),
        (
            &format!("{all}  - divide: [A, [B, {{ start: C }}]]\n"),
            vec![(10, 23, "a second `start`")],
        ),
        (
            &format!("{all}  - combine: A\n"),
            vec![(10, 5, "without a divide directly before")],
        ),
        (
            &format!("{all}  - expand: A\n  - combine: A\n"),
            vec![(11, 5, "write `collapse` to wait")],
        ),
        (
            &format!("{all}  - divide: [A, B]\n  - chain: C\n"),
            vec![(11, 5, "`chain` cannot follow a divide")],
        ),
        (
            &format!("{all}  - expand: A\n  - divide: [A, B]\n  - collapse: C\n"),
            vec![(12, 5, "`collapse` cannot follow a divide: only `combine`")],
        ),
        (
            &format!("{all}  - divide: [A, B]\n  - dampen\n"),
            vec![(11, 5, "`dampen` cannot follow a divide")],
        ),
        (
            &format!("{all}  - divert: {{ x: A, otherwise: B }}\n  - chain: C\n"),
            vec![(11, 5, "`chain` cannot follow a divert: only `converge`")],
        ),
        (
            &format!("{all}  - converge: A\n"),
            vec![(10, 5, "`converge` without a divert")],
        ),
        (
            &format!("{all}  - collapse: A\n"),
            vec![(10, 5, "`collapse` without an open expand")],
        ),
        (
            &format!("{all}  - expand: A\n  - collapse: B\n  - collapse: C\n"),
            vec![(12, 5, "`collapse` without an open expand")],
        ),
        (
            &format!("{all}  - expand: A\n  - divide: [[A, {{ collapse: B }}]]\n"),
            vec![(11, 20, "in the same list")],
        ),
        (
            &format!("{all}  - divert: {{ x: A }}\n"),
            vec![(10, 5, "no `otherwise`")],
        ),
        (
            &format!("{all}  - divert: {{ otherwise: A }}\n"),
            vec![(10, 5, "nothing to choose from")],
        ),
        (
            &format!("{all}  - divert: {{}}\n"),
            vec![(10, 5, "the divert has no paths")],
        ),
        (
            &format!("{all}  - divert: [A]\n"),
            vec![(10, 13, "a map of paths, not a list")],
        ),
        (
            &format!("{all}  - divert: {{ [x]: A, k: B, otherwise: B }}\n"),
            vec![(10, 15, "a key has to be a name")],
        ),
        (
            &format!("{all}  - divert: {{ x: A, x: B, otherwise: C }}\n"),
            vec![(10, 21, "`x` appears twice in one map")],
        ),
        (
            &format!("{all}  - divert: {{ 1: A, \"1\": B, otherwise: C }}\n"),
            vec![(10, 21, "`1` appears twice in one map")],
        ),
        (
            &format!("{all}  - divide: []\n"),
            vec![(10, 5, "the divide has no paths")],
        ),
        (
            &format!("{all}  - divide:\n"),
            vec![(10, 5, "the divide has no paths")],
        ),
        (
            &format!("{all}  - divide: A\n"),
            vec![(10, 13, "a list of paths, not a text")],
        ),
        (
            &format!("{all}  - divide: [[]]\n"),
            vec![(10, 14, "this path is empty")],
        ),
        (
            &format!("{all}  - divide: [[[A]]]\n"),
            vec![(10, 15, "a list where one step belongs")],
        ),
        (
            &format!("{all}  - divide: [{{ chain: A }}]\n"),
            vec![(10, 16, "a transition where a step")],
        ),
        (
            &format!("{all}  - chain: LoadUsr\n"),
            vec![(10, 12, "unknown step `LoadUsr`")],
        ),
        (
            &format!("{all}  - chain: AB\n"),
            vec![(10, 12, "did you mean `A`?")],
        ),
        (
            &format!("{all}  - chain: dampen\n"),
            vec![(10, 12, "write `- dampen` to wait")],
        ),
        (
            &format!("{all}  - chain:\n"),
            vec![(10, 10, "the step's name is missing")],
        ),
        (
            &format!("{all}  - chain: 5\n"),
            vec![(10, 12, "a number is not a name")],
        ),
        (
            &format!("{all}  - chain: true\n"),
            vec![(10, 12, "a boolean is not a name")],
        ),
        (
            &format!("{all}  - chain: [A]\n"),
            vec![(10, 12, "a list where one step belongs")],
        ),
        (
            &format!("{all}  - chain: {{ delay: 5s }}\n"),
            vec![(10, 12, "has no `to`")],
        ),
        (
            &format!("{all}  - chain: {{ to: A, dleay: 5s }}\n"),
            vec![(10, 21, "did you mean `delay`?")],
        ),
        (
            &format!("{all}  - chain: {{ to: A, delay: -5 }}\n"),
            vec![(10, 28, "negative")],
        ),
        (
            &format!("{all}  - chain: A\n    delay: 5s\n"),
            vec![(11, 5, "{ to: SomeStep, delay: 10s }")],
        ),
        (
            &format!("{all}  - chian: A\n"),
            vec![(10, 5, "did you mean `chain`?")],
        ),
        (
            &format!("{all}  - chain\n"),
            vec![(10, 5, "`chain` does not say where to")],
        ),
        (
            &format!("{all}  - A\n"),
            vec![(10, 5, "write `- chain: A`")],
        ),
        (
            "  - A\n  - chain: B\n  - chain: C\n",
            vec![(7, 5, "write `- start: A`")],
        ),
        (
            &format!("{all}  - {{}}\n"),
            vec![(10, 5, "this transition is empty")],
        ),
        (
            &format!("{all}  - 7\n"),
            vec![(10, 5, "a number is not a transition")],
        ),
        (
            &format!("{all}  - dampen: [who]\n"),
            vec![(10, 13, "asks with a text")],
        ),
        (
            &format!("{all}  - dampen: {{ prompt: [who], timeout: soon, then: ask, to: B }}\n"),
            vec![
                (10, 23, "asks with a text, not with a list"),
                (10, 39, "`timeout`: "),
                (10, 51, "`then` is `halt` or `approve`, not `ask`"),
                (10, 56, "unknown key `to` in a dampen"),
            ],
        ),
        (
            &format!("{all}  - dampen: {{ deadline: 3d }}\n"),
            vec![(10, 15, "did you mean `timeout`?")],
        ),
        (
            &format!("{all}  - dampen: {{ timeout: soon, then: halt }}\n"),
            vec![(10, 24, "`timeout`: ")],
        ),
        (
            &format!("{all}  - dampen: {{ timeout: 0 }}\n"),
            vec![(10, 24, "a question with a timeout of 0")],
        ),
        (
            &format!("{all}  - dampen: {{ then: approve }}\n"),
            vec![(10, 21, "`then` without a `timeout` has no effect")],
        ),
        (
            "  - start: A\n",
            vec![
                (4, 3, "step `B` is not used"),
                (5, 3, "step `C` is not used"),
            ],
        ),
        (
            "  - start: A\n  - chain: Bb\n  - chain: 8\n",
            vec![(8, 12, "`Bb`"), (9, 12, "a number")],
        ),
    ] {
        assert_found(&in_flow(flow), &expected);
    }
}

#[test]
fn a_setting_beside_its_step_is_to_be_indented() {
    let found = |steps: &str, expected: &[_]| {
        let text = format!("pipeline: P\nsteps:\n{steps}flow:\n  - start: A\n");
        assert_found(&text, expected);
    };
    let help = "move it further to the right than `A`, to which it belongs";
    found(
        "  A:\n  command: [cat]\n  env: { B: c }\n  timeout: 5s\n",
        &[(4, 3, help), (5, 3, help), (6, 3, help)],
    );
    found(
        "  max_retry: 3\n  A: { command: [cat] }\n",
        &[(
            3,
            3,
            "`max_retry` is a key of a step, and is not inside one",
        )],
    );
    // The name of a step may be any word.
    let text = "pipeline: P\nsteps:\n  timeout: { command: [cat] }\nflow: [{ start: timeout }]\n";
    assert!(parse(text, file()).is_ok());
}

#[test]
fn every_mistake_in_a_step_is_found_where_it_is() {
    for (step, expected) in [
        ("", vec![(3, 3, "does not say what runs")]),
        ("{}", vec![(3, 3, "does not say what runs")]),
        ("{ timeout: 5s }", vec![(3, 3, "does not say what runs")]),
        ("[a]", vec![(3, 6, "must be a map, not a list")]),
        ("{ command: [] }", vec![(3, 17, "the command is empty")]),
        ("{ command: [\"\"] }", vec![(3, 17, "the command is empty")]),
        ("{ command: \"\" }", vec![(3, 17, "the command is empty")]),
        ("{ command: }", vec![(3, 15, "not nothing")]),
        ("{ command: 5 }", vec![(3, 17, "not a number")]),
        (
            "{ command: [a, ~] }",
            vec![(3, 21, "nothing cannot be an argument")],
        ),
        (
            "{ command: [a, [b]] }",
            vec![(3, 21, "a list cannot be an argument")],
        ),
        ("{ command: [a, \"x\\0\"] }", vec![(3, 17, "NUL")]),
        (
            "{ command: python3 x.py }",
            vec![(3, 17, "`[python3, x.py]`")],
        ),
        (
            "{ command: [a], native: true }",
            vec![(3, 22, "both `command` and `native`")],
        ),
        (
            "{ native: false }",
            vec![(3, 16, "`native` has no settings")],
        ),
        (
            "{ native: { a: 1 } }",
            vec![(3, 16, "`native` has no settings")],
        ),
        (
            "{ native: true, cwd: x }",
            vec![(3, 27, "`cwd` has no meaning for a native")],
        ),
        (
            "{ native: true, env: { X: y } }",
            vec![(3, 27, "`env` has no meaning")],
        ),
        (
            "{ http: { url: x } }",
            vec![(3, 8, "`http` steps are not supported")],
        ),
        (
            "{ worker: [node, w.js] }",
            vec![(3, 8, "`worker` steps are not supported")],
        ),
        (
            "{ sql: \"select 1\" }",
            vec![(3, 8, "`sql` steps are not supported")],
        ),
        (
            "{ command: [a], timout: 5 }",
            vec![(3, 22, "did you mean `timeout`?")],
        ),
        (
            "{ command: [a], [x]: 5 }",
            vec![(3, 22, "a key has to be a name")],
        ),
        (
            "{ command: [a], timeout: 0 }",
            vec![(3, 31, "`timeout` is zero")],
        ),
        ("{ command: [a], timeout: -1 }", vec![(3, 31, "negative")]),
        (
            "{ command: [a], timeout: .nan }",
            vec![(3, 31, "not a duration")],
        ),
        (
            "{ command: [a], timeout: .inf }",
            vec![(3, 31, "not a duration")],
        ),
        (
            "{ command: [a], timeout: 1e309 }",
            vec![(3, 31, "not a duration")],
        ),
        (
            "{ command: [a], timeout: 200y }",
            vec![(3, 31, "not a duration")],
        ),
        (
            "{ command: [a], timeout: 99999d }",
            vec![(3, 31, "longer than 100 years")],
        ),
        (
            "{ command: [a], timeout: }",
            vec![(3, 29, "a duration, not nothing")],
        ),
        (
            "{ command: [a], delay: [1] }",
            vec![(3, 29, "a duration, not a list")],
        ),
        (
            "{ command: [a], max_retry: -1 }",
            vec![(3, 33, "not a number from 0 to 1000000")],
        ),
        (
            "{ command: [a], max_retry: 1.5 }",
            vec![(3, 33, "not a number from 0")],
        ),
        (
            "{ command: [a], max_retry: 1000001 }",
            vec![(3, 33, "not a number from 0")],
        ),
        (
            "{ command: [a], max_retry: \"3\" }",
            vec![(3, 33, "without quotes")],
        ),
        (
            "{ command: [a], max_crash: 99999999999 }",
            vec![(3, 33, "not a number from 0")],
        ),
        (
            "{ command: [a], max_crash: no }",
            vec![(3, 33, "not a number from 0")],
        ),
        (
            "{ command: [a], backoff: 5s }",
            vec![(3, 31, "`backoff` must be a map")],
        ),
        (
            "{ command: [a], backoff: { factor: 0.5 } }",
            vec![(3, 41, "`factor` is 0.5")],
        ),
        (
            "{ command: [a], backoff: { factor: .nan } }",
            vec![(3, 41, "not a number")],
        ),
        (
            "{ command: [a], backoff: { factor: 1e309 } }",
            vec![(3, 41, "`factor` is inf")],
        ),
        (
            "{ command: [a], backoff: { jitter: 1.5 } }",
            vec![(3, 41, "`jitter` is 1.5")],
        ),
        (
            "{ command: [a], backoff: { inital: 1 } }",
            vec![(3, 33, "did you mean `initial`?")],
        ),
        (
            "{ command: [a], backoff: { initial: 2h, max: 1h } }",
            vec![(3, 42, "longer than `max`")],
        ),
        (
            "{ command: [a], env: { X: { secret: a-b } } }",
            vec![(3, 29, "`a-b` cannot be the name of a secret")],
        ),
        (
            "{ command: [a], env: { X: { secrt: A } } }",
            vec![(3, 34, "did you mean `secret`?")],
        ),
        (
            "{ command: [a], env: { X: {} } }",
            vec![(3, 32, "`X` names no secret")],
        ),
        (
            "{ command: [a], env: { X: \"a ${B\" } }",
            vec![(3, 29, "the value of `X`: a `${` without its `}`")],
        ),
        (
            "{ native: true, env: { X: { secret: A } } }",
            vec![(3, 27, "`env` has no meaning")],
        ),
        ("{ comand: [a] }", vec![(3, 8, "did you mean `command`?")]),
        (
            "{ command: [a], retries: 3 }",
            vec![(3, 22, "did you mean `max_retry`?")],
        ),
        (
            "{ http: { url: x } }",
            vec![(3, 8, "until then use `command: [curl")],
        ),
        (
            "{ command: [a], env: [X] }",
            vec![(3, 27, "`env` must be a map")],
        ),
        (
            "{ command: [a], env: { X: } }",
            vec![(3, 30, "needs a string here, and has nothing")],
        ),
        (
            "{ command: [a], env: { \"X=Y\": z } }",
            vec![(3, 29, "`X=Y` cannot be")],
        ),
        (
            "{ command: [a], env: { \"\": z } }",
            vec![(3, 29, "cannot be an environment")],
        ),
        (
            "{ command: [a], env: { X: \"a\\0\" } }",
            vec![(3, 29, "contains NUL")],
        ),
        (
            "{ command: [a], cwd: \"\" }",
            vec![(3, 27, "`cwd` is not a directory")],
        ),
        (
            "{ command: [a], cwd: [a] }",
            vec![(3, 27, "`cwd` must be a text")],
        ),
    ] {
        assert_found(&with_step(step), &expected);
    }
}

#[test]
fn every_mistake_in_a_name_is_found_where_it_is() {
    let long = "x".repeat(129);
    for name in [
        "\"\"",
        "5x",
        "-x",
        "a.b",
        "a b",
        "\"a\\0\"",
        "\"a'b\"",
        "a;b",
        "../a",
        "ä",
        "🦆",
        "\"\\u202eab\"",
        &long,
    ] {
        let text =
            format!("pipeline: {name}\nsteps: {{ A: {{ command: [a] }} }}\nflow: [start: A]\n");
        assert_found(&text, &[(1, 11, "name")]);
        let text = format!(
            "pipeline: P\nsteps:\n  ? {name}\n  : {{ command: [a] }}\n  A: {{ native: true }}\nflow:\n  - start: A\n"
        );
        assert_found(&text, &[(3, 5, "name")]);
    }
    let text = "pipeline: P\nsteps:\n  dampen: { command: [a] }\nflow:\n  - start: dampen\n";
    assert_found(text, &[(3, 3, "`dampen` is the transition")]);
    for fine in ["a", "_", "A-1_b", "otherwise", "NO", &"x".repeat(128)] {
        let text = format!(
            "pipeline: {fine}\nsteps:\n  ? {fine}\n  : {{ command: [a] }}\nflow: [start: {fine}]\n"
        );
        parse(&text, file()).unwrap_or_else(|problems| panic!("{fine}: {problems}"));
    }
}

#[test]
fn every_mistake_in_a_file_is_found_where_it_is() {
    let rest = "steps: { A: { command: [a] } }\nflow: [start: A]\n";
    for (text, expected) in [
        ("", vec![(1, 1, "the file is empty")]),
        ("\n# nothing\n", vec![(1, 1, "the file is empty")]),
        ("\u{feff}", vec![(1, 1, "the file is empty")]),
        ("- a", vec![(1, 1, "a map, not a list")]),
        ("P", vec![(1, 1, "a map, not a text")]),
        (rest, vec![(1, 1, "file has no `pipeline`")]),
        (
            "pipeline: P",
            vec![(1, 1, "has no `steps`"), (1, 1, "has no `flow`")],
        ),
        (
            "pipeline: P\nflow: [start: A]\n",
            vec![(1, 1, "has no `steps`")],
        ),
        (
            "pipeline: P\nsteps: 5\nflow: [start: A]\n",
            vec![(2, 8, "`steps` must be a map")],
        ),
        (
            "pipeline: P\nsteps: {}\nflow: []\n",
            vec![(3, 1, "the flow is empty")],
        ),
        (
            "pipeline: P\nsteps: {}\nflow:\n",
            vec![(3, 1, "the flow is empty")],
        ),
        (
            "pipeline: P\nsteps: {}\nflow: A\n",
            vec![(3, 7, "a flow must be a list")],
        ),
        (
            &format!("pipeline: P\nfolw: 5\n{rest}"),
            vec![(2, 1, "did you mean `flow`?")],
        ),
        (
            &format!("pipeline: P\nflow: 5\n{rest}"),
            vec![(4, 1, "`flow` appears twice in one map")],
        ),
        (
            &format!("pipeline: P\nschedule: daily\n{rest}"),
            vec![(2, 1, "starts no second run")],
        ),
        (
            &format!("pipeline: P\ncron: daily\n{rest}"),
            vec![(
                2,
                1,
                "`--key \"$(date -u +%FT%H)\"` hourly, a call that is repeated starts no second run; a crontab needs `\\%`",
            )],
        ),
        (
            &format!("pipline: P\n{rest}"),
            vec![(1, 1, "did you mean `pipeline`?")],
        ),
        (
            &format!("name: P\n{rest}"),
            vec![(1, 1, "did you mean `pipeline`?")],
        ),
        (
            &format!("pipeline: P\n5: x\n{rest}"),
            vec![(2, 1, "unknown key `5`")],
        ),
        (
            &format!("pipeline:\n{rest}"),
            vec![(1, 9, "the pipeline's name is missing")],
        ),
        (
            &format!("pipeline: 5\n{rest}"),
            vec![(1, 11, "a number is not a name for a pipeline")],
        ),
        (
            &format!("pipeline: P\non_halt: B\n{rest}"),
            vec![(2, 10, "unknown step `B`")],
        ),
        (
            &format!("pipeline: P\n---\n{rest}"),
            vec![(2, 1, "a second document begins here")],
        ),
        (
            "pipeline: P\n\tsteps: 1\n",
            vec![(2, 1, "a tab in the indentation")],
        ),
        ("pipeline: \"P", vec![(1, 11, "unclosed quote")]),
        ("a: b: c", vec![(1, 5, "mapping values are not allowed")]),
        ("pipeline: *name", vec![(1, 11, "unknown anchor")]),
        (
            "pipeline: &x [*x]",
            vec![(1, 15, "an alias inside of what it stands for")],
        ),
        (
            "pipeline: !rust P",
            vec![(1, 11, "tags (`!…`) mean nothing here")],
        ),
    ] {
        assert_found(text, &expected);
    }
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_and_in_order() {
    let text = "pipeline: 1st\non_halt: Nobody\nsteps:\n  A: { comand: [a] }\n  B: { command: b c }\n  \
                C: { command: [c], timeout: soon, max_retry: -1 }\nextra: 1\nflow:\n  - chain: A\n  \
                - divide: [B, C, D]\n  - collapse: A\n";
    assert_found(
        text,
        &[
            (1, 11, "`1st`"),
            (2, 10, "unknown step `Nobody`"),
            (4, 8, "did you mean `command`?"),
            (5, 17, "`[b, c]`"),
            (6, 31, "not a duration"),
            (6, 48, "max_retry"),
            (7, 1, "unknown key `extra`"),
            (9, 5, "does not begin with `start`"),
            (10, 20, "unknown step `D`"),
            (11, 5, "cannot follow a divide"),
        ],
    );
}

#[test]
fn a_problem_is_shown_with_its_line() {
    let shown = Problems(problems(&in_flow(
        "  - start: A\n  - chain: B\n  - chain: Cc\n",
    )))
    .to_string();
    let expected = "error: unknown step `Cc`
 --> pipelines/p.yml:9:12
  |
9 |   - chain: Cc
  |            ^^
  = help: did you mean `C`?";
    assert_eq!(shown, expected);
}

#[test]
fn bombs_fail_fast() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        laughs += &format!("a{level}: &a{level} [{}]\n", vec![before; 9].join(", "));
    }
    let deep_flow = format!("a: {}", "[".repeat(10_000));
    let deep_block: String = (0..400)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    let aliases = format!("a: &a x\nb: [{}]\n", vec!["*a"; 100_000].join(", "));
    let merges = format!(
        "a: &a {{ x: y }}\nb:\n  <<: [{}]\n",
        vec!["*a"; 70_000].join(", ")
    );
    let large = format!("# {}", "x".repeat(MAX_BYTES));
    for (text, message) in [
        (&laughs, "more than 200000 values"),
        (&deep_flow, "nested more than 64 deep"),
        (&deep_block, "nested more than 64 deep"),
        (&aliases, "more than 200000 values"),
        (&merges, "more than 200000 values"),
        (&large, "larger than 1024 KiB"),
    ] {
        let problems = problems_within(Duration::from_secs(10), text);
        assert_eq!(problems.len(), 1, "{message}");
        assert!(
            problems[0].message.contains(message),
            "{}",
            problems[0].message
        );
    }
}

#[test]
fn a_large_file_full_of_mistakes_is_answered_in_time() {
    let mut text = "pipeline: P\nsteps:\n".to_owned();
    for step in 0..15_000 {
        text += &format!("  UnusedStep{step}: {{ command: [x] }}\n");
    }
    text += "flow:\n  - start: A\n";
    for step in 0..11_000 {
        text += &format!("  - chain: UnknownStep{step}\n");
    }
    let problems = problems_within(Duration::from_secs(30), &text);
    assert!(problems.len() > 25_000, "{}", problems.len());
    assert!(
        problems
            .iter()
            .any(|problem| problem.message.contains("more than 10000 nodes"))
    );
}

#[test]
fn too_many_open_expands_are_refused() {
    let expands = |count| {
        in_flow(&format!(
            "  - start: A\n{}  - chain: C\n",
            "  - expand: B\n".repeat(count)
        ))
    };
    assert!(parse(&expands(64), file()).is_ok());
    assert_found(&expands(65), &[(72, 5, "nested more than 64 deep")]);
    assert_eq!(problems(&expands(90)).len(), 1);
}

#[test]
fn a_trace_is_the_runs_own_or_its_callers() {
    let rest = "steps: { A: { command: [a] } }\nflow: [{ start: A }]\n";
    for (value, said) in [
        ("caller", "is `own` or `parent`, and not `caller`"),
        ("true", "is `own` or `parent`, and not"),
        ("", "is `own` or `parent`, and not"),
        ("[parent]", "is `own` or `parent`, and not a list"),
        ("Parent", "makes it a part of its caller's trace"),
    ] {
        let text = format!("pipeline: P\ntrace: {value}\n{rest}");
        let column = if value.is_empty() { 6 } else { 8 };
        assert_found(&text, &[(2, column, said)]);
    }
}
