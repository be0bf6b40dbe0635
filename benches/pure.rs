//! The cost of the pure parts: `cargo bench`. No database, no processes; `ductworkd bench` has
//! those.
//!
//! Each line is the least of a few rounds: what the code costs when nothing else disturbs it.
//! Words behind `--` choose: `cargo bench -- decide`.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, NodeIndex, Pipeline, yaml};
use ductwork::machine::advance::{AdvanceLimits, BranchView, StepView, decide, decide_simple};
use ductwork::metrics::{EXECUTIONS_ENDED, Own, STEP_DURATION, STEPS_MAX};
use ductwork::model::StepId;
use ductwork::store::statement::Rows;
use serde_json::value::RawValue;

/// How long one round takes, about.
const ROUND: Duration = Duration::from_millis(50);

/// How many rounds.
const ROUNDS: usize = 7;

/// Steps of the large definitions.
const LARGE: usize = 1_000;

/// Rows of a batch.
const BATCH: usize = 500;

/// Measures `work`, and prints what it costs, whole and per part of it.
fn measure<T>(name: &str, parts: usize, mut work: impl FnMut() -> T) {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo says `--bench`.
    let mut words = words
        .iter()
        .filter(|word| !word.starts_with('-'))
        .peekable();
    if words.peek().is_some() && !words.any(|word| name.contains(word.as_str())) {
        return;
    }
    let began = Instant::now();
    let mut times = 0u32;
    while began.elapsed() < ROUND {
        black_box(work());
        times += 1;
    }
    let round = || {
        let began = Instant::now();
        for _ in 0..times {
            black_box(work());
        }
        began.elapsed().as_nanos() as f64 / f64::from(times)
    };
    let best = std::iter::repeat_with(round)
        .take(ROUNDS)
        .fold(f64::MAX, f64::min);
    let each = match parts {
        1 => String::new(),
        parts => format!("{:>12.0} ns each of {parts}", best / parts as f64),
    };
    // Standard output is the report.
    println!("{name:<40}{best:>14.0} ns{each}");
}

/// The flow of a pipeline of so many steps, as people write it.
fn text(steps: usize) -> String {
    let mut text = String::from("pipeline: Large\nsteps:\n");
    for step in 0..steps {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  Step{step}: {{ command: [steps/run, \"{step}\"], timeout: 30s, max_retry: 5 }}"
        );
    }
    text.push_str("flow:\n  - start: Step0\n");
    for step in 1..steps {
        let _ = writeln!(text, "  - chain: Step{step}");
    }
    text
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("it is JSON")
}

fn crossing(definition: &Definition, name: &str, output: &RawValue, parts: usize) {
    let limits = AdvanceLimits {
        max_retry: 10,
        max_crash: 10,
        max_fan_out: None,
        max_payload: usize::MAX,
    };
    let view = BranchView {
        node: NodeIndex(0),
        step: StepView::Succeeded(output),
        retries: 0,
        crashes: 0,
        begun: false,
    };
    measure(name, parts, || {
        black_box(decide(black_box(&view), definition, &limits));
    });
}

fn main() {
    let chain = Pipeline::named("Chain").start("A").chain("B").build();
    let expand = Pipeline::named("Expand")
        .start("A")
        .expand("B")
        .collapse("C")
        .build();
    let divide = Pipeline::named("Divide")
        .start("A")
        .divide(["B", "C"])
        .combine("D")
        .build();
    let divert = Pipeline::named("Divert")
        .start("A")
        .divert([("ok", "B")], "C")
        .build();
    let [chain, expand, divide, divert] =
        [chain, expand, divide, divert].map(|built| built.expect("it is valid"));

    let small = raw("{\"divert\":\"ok\",\"value\":1}".to_owned());
    let wide: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let wide = raw(format!("[{}]", wide.join(",")));
    measure("decide_simple, chain", 1, || {
        decide_simple(black_box(&small), NodeIndex(0), &chain).is_some()
    });
    measure("decide_simple, divert", 1, || {
        decide_simple(black_box(&small), NodeIndex(0), &divert).is_some()
    });
    crossing(&chain, "decide, chain", &small, 1);
    crossing(&divide, "decide, divide", &small, 1);
    crossing(&expand, "decide, expand", &wide, 10_000);

    let yaml = text(LARGE);
    let file = Path::new("large.yml");
    measure("yaml::parse", LARGE, || {
        yaml::parse(black_box(&yaml), file).is_ok()
    });
    let large = yaml::parse(&yaml, file).unwrap_or_else(|problems| panic!("{problems}"));
    let canonical = large.canonical();
    measure("Definition::canonical", LARGE, || large.canonical().len());
    measure("Definition::digest", LARGE, || large.digest().len());
    measure("Definition::from_canonical", LARGE, || {
        Definition::from_canonical(black_box(&canonical)).is_ok()
    });

    measure("a new id", 1, StepId::new);
    let ids: Vec<StepId> = (0..BATCH).map(|_| StepId::new()).collect();
    let rows = || {
        Rows::new()
            .ids("id", ids.iter().copied())
            .texts("status", ids.iter().map(|_| "completed"))
            .optional_texts("output", ids.iter().map(|_| Some("{\"value\":1}")))
    };
    measure("rows, as columns", BATCH, rows);

    let steps: Vec<String> = (0..STEPS_MAX)
        .map(|step| format!("LoadUser{step}"))
        .collect();
    let own = Own::default();
    measure("counting the end of executions", BATCH, || {
        own.count(|counts| {
            for step in steps.iter().cycle().take(BATCH) {
                let ended = ["EnrichUserData", step.as_str(), "success"];
                counts.add(&EXECUTIONS_ENDED, &ended, 1);
                let took = Duration::from_micros(step.len() as u64 * 700);
                counts.observe(&STEP_DURATION, &ended[..2], took);
            }
        });
    });
    measure("counts, as they are written", 1, || own.to_write());
}
