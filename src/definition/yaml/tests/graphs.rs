//! Correct files, and the graphs that they describe.

use std::time::Duration;

use super::*;
use crate::definition::{self, Pipeline, Question, StepRunner, StepSpec, Unanswered};

#[test]
fn settings_are_read_as_they_are_written() {
    let text = "\u{feff}pipeline: P\r\nx-mine: &slow { timeout: 1h, max_retry: 7 }\r\nsteps:\r\n  \
                A:\r\n    <<: *slow\r\n    command: [sleep, 1.0, 007, 0x10, yes, true, -1, 1e3, \"a b\", '', no]\r\n    \
                timeout: 250ms\r\n    delay: 0.5\r\n    max_crash: 0\r\n    \
                backoff: { initial: 2h, factor: 2, jitter: 0.25 }\r\n    \
                env: { N: 1.50, T: true, V: \"${HOME}\" }\r\n    cwd: ${DIR}\r\n  \
                B: { native: {} }\r\n  C: { command: c }\r\n\
                flow:\r\n  - start: { to: A, delay: 3 }\r\n  - dampen\r\n  - dampen: sure?\r\n  \
                - divert: { 1.0: B, true: B, \"\": B, otherwise: { to: C, delay: 1m } }\r\n";
    let definition = parse(text, file()).unwrap_or_else(|problems| panic!("{problems}"));
    let a = &definition.steps["A"];
    let argv = [
        "sleep", "1.0", "007", "0x10", "yes", "true", "-1", "1e3", "a b", "", "no",
    ];
    assert_eq!(a.run, StepRunner::Command(argv.map(str::to_owned).to_vec()));
    assert_eq!(a.timeout, Some(Duration::from_millis(250)));
    assert_eq!(a.delay, Some(Duration::from_millis(500)));
    assert_eq!((a.max_retry, a.max_crash), (Some(7), Some(0)));
    let backoff = a.backoff.expect("a backoff");
    assert_eq!((backoff.factor, backoff.jitter), (2.0, 0.25));
    assert_eq!(
        (backoff.initial, backoff.max),
        (Duration::from_secs(7_200), Duration::from_secs(7_200))
    );
    let env: Vec<_> = a
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(env, ["N=1.50", "T=true", "V=${HOME}"]);
    assert_eq!(a.cwd.as_deref(), Some("${DIR}"));
    assert_eq!(definition.steps["B"].run, StepRunner::Native);
    assert_eq!(
        definition.steps["C"].run,
        StepRunner::Command(vec!["c".into()])
    );
    assert_eq!(definition.start_delay, Some(Duration::from_secs(3)));
    assert_eq!(
        describe(&definition),
        [
            "A: dampen dampen",
            "dampen: dampen dampen.2",
            "dampen.2 (sure?): divert 1.0=B true=B.2 =B.3 otherwise=C+60s",
            "B: end",
            "B.2: end",
            "B.3: end",
            "C: end",
        ]
    );
}

const EXAMPLE: &str = r#"# pipelines/enrich_user_data.yml
pipeline: EnrichUserData
on_halt: NotifyOps
steps:
  QueryUsers:   { command: [python3, steps/query_users.py], timeout: 30s, max_retry: 5 }
  LoadUser:     { command: [steps/load_user.sh] }
  FetchA:       { command: [curl, -sS, "http://127.0.0.1:9000/a"] }
  FetchB:       { command: [node, steps/fetch_b.js] }
  CleanB:       { command: [steps/clean_b] }
  Collate:      { command: [jq, -c, "add"] }
  Update:       { command: [steps/update] }
  Report:       { command: [steps/report] }
  NotifyOps:    { command: [steps/notify] }
  Publish:      { command: [steps/publish] }
  Fill:         { command: [steps/fill] }
  Discard:      { command: [steps/discard] }
  Close:        { command: [steps/close] }
flow:
  - start: QueryUsers
  - expand: LoadUser
  - divide:
      - FetchA
      - [FetchB, { chain: CleanB }]
  - combine: Collate
  - chain: { to: Update, delay: 10s }
  - collapse: Report
  - divert: { ok: Publish, thin: [Fill, { chain: Publish }], otherwise: Discard }
  - converge: Close
"#;

/// The same in Rust.
fn example() -> Pipeline {
    let steps = [
        ("LoadUser", "steps/load_user.sh"),
        ("CleanB", "steps/clean_b"),
        ("Update", "steps/update"),
        ("Report", "steps/report"),
        ("NotifyOps", "steps/notify"),
        ("Publish", "steps/publish"),
        ("Fill", "steps/fill"),
        ("Discard", "steps/discard"),
        ("Close", "steps/close"),
    ];
    let query = StepSpec::command(["python3", "steps/query_users.py"])
        .timeout(Duration::from_secs(30))
        .max_retry(5);
    let pipeline = Pipeline::named("EnrichUserData")
        .on_halt("NotifyOps")
        .step("QueryUsers", query)
        .step(
            "FetchA",
            StepSpec::command(["curl", "-sS", "http://127.0.0.1:9000/a"]),
        )
        .step("FetchB", StepSpec::command(["node", "steps/fetch_b.js"]))
        .step("Collate", StepSpec::command(["jq", "-c", "add"]));
    let pipeline = steps
        .into_iter()
        .fold(pipeline, |pipeline, (name, program)| {
            pipeline.step(name, StepSpec::command([program]))
        });
    pipeline
        .start("QueryUsers")
        .expand("LoadUser")
        .divide([
            definition::Path::to("FetchA"),
            definition::Path::from("FetchB").chain("CleanB"),
        ])
        .combine("Collate")
        .chain(("Update", Duration::from_secs(10)))
        .collapse("Report")
        .divert(
            [
                ("ok", definition::Path::to("Publish")),
                ("thin", definition::Path::from("Fill").chain("Publish")),
            ],
            "Discard",
        )
        .converge("Close")
}

/// Every node in a line: its name, prompt and edge.
fn describe(definition: &Definition) -> Vec<String> {
    use crate::definition::{Edge, Target, Then};
    let to = |target: &Target| {
        let name = &definition.node(target.node).name;
        match target.delay {
            Some(delay) => format!("{name}+{}s", delay.as_secs_f64()),
            None => name.clone(),
        }
    };
    let after = |then: &Then| match then {
        Then::End => "then end".to_owned(),
        Then::Combine(target) => format!("then combine {}", to(target)),
        Then::Collapse(target) => format!("then collapse {}", to(target)),
        Then::Converge(target) => format!("then converge {}", to(target)),
    };
    let edge = |edge: &Edge| match edge {
        Edge::End => "end".to_owned(),
        Edge::Chain(target) => format!("chain {}", to(target)),
        Edge::Converge(target) => format!("converge {}", to(target)),
        Edge::Dampen(node) => format!("dampen {}", definition.node(*node).name),
        Edge::Divide { paths, then } => {
            let paths: Vec<_> = paths.iter().map(to).collect();
            format!("divide {} {}", paths.join(" "), after(then))
        }
        Edge::Expand { to: target, then } => format!("expand {} {}", to(target), after(then)),
        Edge::Divert { cases, otherwise } => {
            let cases = cases
                .iter()
                .map(|case| format!("{}={}", case.when, to(&case.to)));
            let cases: Vec<_> = cases
                .chain([format!("otherwise={}", to(otherwise))])
                .collect();
            format!("divert {}", cases.join(" "))
        }
    };
    let node = |node: &crate::definition::graph::Node| {
        let prompt = node
            .prompt
            .as_ref()
            .map_or(String::new(), |prompt| format!(" ({prompt})"));
        format!("{}{prompt}: {}", node.name, edge(&node.next))
    };
    definition.nodes.iter().map(node).collect()
}

fn graph(flow: &str) -> Vec<String> {
    match parse(&in_flow(flow), file()) {
        Ok(definition) => describe(&definition),
        Err(problems) => panic!("{problems}"),
    }
}

#[test]
fn the_example_becomes_the_graph_that_it_describes() {
    let definition = parse(EXAMPLE, file()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(
        describe(&definition),
        [
            "QueryUsers: expand LoadUser then collapse Report",
            "LoadUser: divide FetchA FetchB then combine Collate",
            "FetchA: end",
            "FetchB: chain CleanB",
            "CleanB: end",
            "Collate: chain Update+10s",
            "Update: end",
            "Report: divert ok=Publish thin=Fill otherwise=Discard",
            "Publish: converge Close",
            "Fill: chain Publish.2",
            "Publish.2: converge Close",
            "Discard: converge Close",
            "Close: end",
        ]
    );
    assert_eq!(definition.on_halt.as_deref(), Some("NotifyOps"));
    assert_eq!(definition.steps.len(), 13);
}

#[test]
fn yaml_and_rust_give_the_same_definition() {
    let yaml = parse(EXAMPLE, file()).unwrap_or_else(|problems| panic!("{problems}"));
    let rust = example()
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(yaml, rust);
    assert_eq!(yaml.digest(), rust.digest());
}

#[test]
fn the_digest_never_changes() {
    // Runs in databases refer to the digest: a change of it needs a way to read the older form.
    let rust = example()
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(
        rust.digest(),
        "d29f7c533586d334cdc83008c7de7adcd1a5698001ce985cceb5366989d68198"
    );
}

#[test]
fn the_digest_does_not_depend_on_how_the_file_is_laid_out() {
    let digest = |text: &str| match parse(text, file()) {
        Ok(definition) => definition.digest(),
        Err(problems) => panic!("{problems}"),
    };
    let flow =
        "flow:\n- start: A\n- divert:\n    otherwise: B\n    x: [C, dampen]\n- converge: C\n";
    let one = format!(
        "pipeline: P\nsteps:\n  A: {{ command: [a], timeout: 1m }}\n  B: {{ native: true }}\n  C: {{ native: true }}\n{flow}"
    );
    let other = "{\"flow\": [{\"start\": {\"to\": \"A\"}}, {\"divert\": {\"x\": [\"C\", {\"dampen\": \"\"}], \
                 \"otherwise\": [\"B\"]}}, {\"converge\": \"C\"}], \"steps\": {\"C\": {\"native\": {}}, \
                 \"B\": {\"native\": true}, \"A\": {\"timeout\": 60, \"delay\": 0, \"command\": \"a\"}}, \"pipeline\": \"P\"}";
    assert_eq!(digest(&one), digest(other));
    assert_ne!(digest(&one), digest(&one.replace("1m", "2m")));
}

#[test]
fn a_fan_out_without_fan_in_goes_where_its_list_goes() {
    // At the end of the flow, and of a divide's path.
    assert_eq!(
        graph("  - start: A\n  - divide: [[A, { expand: B }], [C, { divide: [A, B] }]]\n"),
        [
            "A: divide A.2 C then end",
            "A.2: expand B then end",
            "B: end",
            "C: divide A.3 B.2 then end",
            "A.3: end",
            "B.2: end",
        ]
    );
    // At the end of a diverted path that converges.
    assert_eq!(
        graph(
            "  - start: A\n  - divert:\n      x: [A, { divide: [B, C] }]\n      \
             y: [A, { expand: B }, { expand: C }]\n      \
             z: [A, { expand: B }, { divide: [B, C] }]\n      \
             w: [A, { divert: { x: B, otherwise: C } }]\n      \
             otherwise: [A, { dampen: why }]\n  - converge: { to: C, delay: 1s }\n  - chain: A\n"
        ),
        [
            "A: divert x=A.2 y=A.3 z=A.4 w=A.5 otherwise=A.6",
            "A.2: divide B C then converge C.5+1s",
            "B: end",
            "C: end",
            "A.3: expand B.2 then converge C.5+1s",
            "B.2: expand C.2 then end",
            "C.2: end",
            "A.4: expand B.3 then converge C.5+1s",
            "B.3: divide B.4 C.3 then end",
            "B.4: end",
            "C.3: end",
            "A.5: divert x=B.5 otherwise=C.4",
            "B.5: converge C.5+1s",
            "C.4: converge C.5+1s",
            "A.6: dampen dampen",
            "dampen (why): converge C.5+1s",
            "C.5: chain A.7",
            "A.7: end",
        ]
    );
}

#[test]
fn expands_nest_and_the_innermost_is_collapsed_first() {
    assert_eq!(
        graph(
            "  - start: A\n  - expand: B\n  - expand: C\n  - collapse: A\n  - chain: B\n  - collapse: C\n  - chain: A\n"
        ),
        [
            "A: expand B then collapse C.2",
            "B: expand C then collapse A.2",
            "C: end",
            "A.2: chain B.2",
            "B.2: end",
            "C.2: chain A.3",
            "A.3: end",
        ]
    );
    // A divert inside an expand without collapse: its paths end the element.
    assert_eq!(
        graph(
            "  - start: A\n  - divert:\n      x: [B, { expand: C }, { divert: { x: A, otherwise: B } }]\n      otherwise: C\n  - converge: A\n"
        ),
        [
            "A: divert x=B otherwise=C.2",
            "B: expand C then converge A.3",
            "C: divert x=A.2 otherwise=B.2",
            "A.2: end",
            "B.2: end",
            "C.2: converge A.3",
            "A.3: end",
        ]
    );
}

#[test]
fn a_question_may_have_a_deadline_and_a_run_hooks() {
    let of = |question: &str| {
        let text = format!(
            "pipeline: P\non_complete: C\non_wait: W\nsteps: {{ A: {{ command: [a] }}, \
             C: {{ command: [c] }}, W: {{ command: [w] }} }}\nflow:\n  - start: A\n  - dampen: {question}\n"
        );
        parse(&text, file()).unwrap_or_else(|problems| panic!("{problems}"))
    };
    let read = of("{ prompt: sure?, timeout: 3d, then: approve }");
    let question =
        Question::new("sure?").within(Duration::from_secs(3 * 86_400), Unanswered::Approve);
    let command = |name: &str| StepSpec::command([name]);
    let built = Pipeline::named("P")
        .on_complete("C")
        .on_wait("W")
        .step("A", command("a"))
        .step("C", command("c"))
        .step("W", command("w"))
        .start("A")
        .dampen(question);
    assert_eq!(read, built.build().unwrap());
    assert!(
        read.canonical().starts_with(
            r#"{"pipeline":"P","on_complete":"C","on_wait":"W","nodes":[{"name":"A","step":"A","next":{"dampen":1}},{"name":"dampen","prompt":"sure?","deadline":{"timeout":259200000,"then":"approve"},"next":"end"}]"#
        ),
        "{}",
        read.canonical()
    );
    // Unless the question says otherwise, its branch halts; without a timeout the branch waits.
    let halts = of("{ timeout: 1h }").nodes[1].deadline.unwrap();
    assert_eq!(halts.then, Unanswered::Halt);
    assert_eq!(of("{ prompt: sure? }").nodes[1].deadline, None);
    assert_eq!(of("{ prompt: sure? }"), of("sure?"));
}

#[test]
fn a_run_is_in_a_trace_of_its_own_unless_its_pipeline_says_otherwise() {
    let rest = "steps: { A: { command: [a] } }\nflow: [{ start: A }]\n";
    let parsed = |text: &str| parse(text, file()).expect("it is well formed");
    let own = parsed(&format!("pipeline: P\n{rest}"));
    assert_eq!(own.trace, RunTrace::Own);
    assert_eq!(parsed(&format!("pipeline: P\ntrace: own\n{rest}")), own);
    let joins = parsed(&format!("pipeline: P\ntrace: parent\n{rest}"));
    let built = Pipeline::named("P").step("A", StepSpec::command(["a"]));
    let built = built.trace(RunTrace::Parent).start("A").build().unwrap();
    assert_eq!(joins, built);
    assert!(
        !own.canonical().contains("trace"),
        "its digest is as it was"
    );
    let canonical = joins.canonical();
    assert!(canonical.contains(r#""trace":"parent""#), "{canonical}");
    assert_eq!(Definition::from_canonical(&canonical).unwrap(), joins);
}
