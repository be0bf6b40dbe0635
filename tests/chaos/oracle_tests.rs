//! The oracle approves of what is right, and of nothing else.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use uuid::Uuid;

use crate::history::{Answer, Execution, Fault, History, Kind, Line, Phase, Run, Step, Trigger};
use crate::oracle::judge;
use crate::workload::{Input, MAX_RETRY, Node, SHAPES, Shape};

/// Whoever works here, and whoever was killed at it.
const WORKER: i32 = 1;
const KILLED: i32 = 2;

/// The node whose first attempt dies with its worker.
const STRUCK: &str = "Slow";

/// A run of each pipeline, as it should be, and one attempt that was lost with its worker.
fn right() -> History {
    let mut history = History::default();
    for shape in SHAPES {
        carry_out(shape, &mut history);
    }
    let struck = line(&mut history, STRUCK, Phase::Start).at;
    history.faults.push(Fault {
        kind: Kind::KillWorker,
        target: String::new(),
        at: struck,
        until: struck,
        hit: vec![KILLED],
    });
    history
}

fn carry_out(shape: &Shape, history: &mut History) {
    let run = Uuid::new_v4();
    let asked = format!("\"{}\"", shape.pipeline);
    let mut outputs: HashMap<(&str, Vec<usize>), String> = HashMap::new();
    let mut last = None;
    for node in shape.nodes {
        for place in shape.places(node) {
            let list = |of: Vec<(&'static str, Vec<usize>)>| {
                let each = of
                    .iter()
                    .map(|(name, place)| outputs[&(*name, place.clone())].clone());
                format!("[{}]", each.collect::<Vec<_>>().join(","))
            };
            let input = match node.input {
                Input::Trigger => asked.clone(),
                Input::Of(before) => outputs[&(before, place.clone())].clone(),
                Input::Element(before) => {
                    let (at, above) = place.split_last().unwrap();
                    let all = &outputs[&(before, above.to_vec())];
                    let all: Vec<String> = serde_json::from_str(all).unwrap();
                    format!("\"{}\"", all[*at])
                }
                Input::Both(before) => list(before.iter().map(|it| (*it, place.clone())).collect()),
                Input::Gathered(before, width) => list(
                    (0..width)
                        .map(|at| (before, [&place[..], &[at]].concat()))
                        .collect(),
                ),
            };
            let output = perform(node, run, input, history);
            if let Some(output) = output {
                last = Some(output.clone());
                outputs.insert((node.name, place), output);
            }
        }
    }
    let doomed = shape.is_doomed();
    history.runs.push(Run {
        id: run,
        pipeline: shape.pipeline.to_owned(),
        status: if doomed { "halted" } else { "completed" }.to_owned(),
        input: asked.clone(),
        output: last.filter(|_| !doomed),
    });
    history.triggers.push(Trigger {
        input: asked,
        answer: Answer::Run(run),
    });
}

fn perform(node: &Node, run: Uuid, input: String, history: &mut History) -> Option<String> {
    let step = Uuid::new_v4();
    let mut last = None;
    let mut crashes = 0;
    let mut errors = 0;
    for attempt in 1.. {
        let nonce = Uuid::new_v4().to_string();
        let list: Vec<String> = (0..node.fan)
            .map(|at| format!("\"{nonce}:{at}\""))
            .collect();
        let output = match node.fan {
            0 => format!("\"{nonce}\""),
            _ => format!("[{}]", list.join(",")),
        };
        let crashed = node.name == STRUCK && attempt == 1;
        let failed = attempt <= node.fails;
        let (result, phase) = match (crashed, failed) {
            (true, _) => ("process_crashed", None),
            (_, true) => ("error", Some((Phase::Fail, "-"))),
            _ => ("success", Some((Phase::End, output.as_str()))),
        };
        let execution = Uuid::new_v4();
        let phases = std::iter::once((Phase::Start, input.as_str())).chain(phase);
        for (phase, payload) in phases {
            history.lines.push(Line {
                phase,
                run,
                step,
                execution,
                attempt,
                node: node.name.to_owned(),
                nonce: nonce.clone(),
                pid: 1_000 + history.lines.len() as i32,
                worker: if crashed { KILLED } else { WORKER },
                at: Duration::from_millis(history.lines.len() as u64),
                payload: payload.to_owned(),
            });
        }
        history.executions.push(Execution {
            id: execution,
            step,
            attempt,
            retries: errors,
            crashes,
            result: result.to_owned(),
        });
        crashes += u32::from(result == "process_crashed");
        errors += u32::from(result == "error");
        if result == "success" {
            last = Some(output);
        }
        if last.is_some() || errors > MAX_RETRY {
            break;
        }
    }
    history.steps.push(Step {
        id: step,
        run,
        node: node.name.to_owned(),
        status: if last.is_some() {
            "completed"
        } else {
            "failed"
        }
        .to_owned(),
        input,
        output: last.clone(),
    });
    last
}

/// The first line of this kind that this node has written.
fn line<'a>(history: &'a mut History, node: &str, phase: Phase) -> &'a mut Line {
    let mut lines = history.lines.iter_mut();
    lines
        .find(|line| line.node == node && line.phase == phase)
        .unwrap()
}

fn step<'a>(history: &'a mut History, node: &str) -> &'a mut Step {
    history
        .steps
        .iter_mut()
        .find(|step| step.node == node)
        .unwrap()
}

/// The first or last attempt at a node's first step.
fn attempt<'a>(history: &'a mut History, node: &str, last: bool) -> &'a mut Execution {
    let step = step(history, node).id;
    let mut attempts = history.executions.iter_mut().filter(|it| it.step == step);
    if last {
        attempts.next_back()
    } else {
        attempts.next()
    }
    .unwrap()
}

/// Takes a line out, and writes it once more at the end.
fn to_the_end(history: &mut History, node: &str, phase: Phase) {
    let found = history
        .lines
        .iter()
        .position(|it| it.node == node && it.phase == phase);
    let line = history.lines.remove(found.unwrap());
    history.lines.push(line);
}

/// The lost attempt had done its work after all, when the next had begun.
fn done_late(history: &mut History) {
    let mut late = line(history, STRUCK, Phase::Start).clone();
    late.phase = Phase::End;
    late.payload = format!("\"{}\"", late.nonce);
    history.lines.push(late);
}

fn frozen(history: &mut History) {
    let fault = &mut history.faults[0];
    fault.kind = Kind::Freeze;
    fault.until = fault.at + Duration::from_secs(5);
}

fn two_places(history: &mut History, node: &str) {
    let step = step(history, node);
    let mut values: Vec<String> = serde_json::from_str(&step.input).unwrap();
    values.swap(0, 1);
    let swapped = serde_json::to_string(&values).unwrap();
    let id = step.id;
    step.input.clone_from(&swapped);
    let lines = history.lines.iter_mut();
    for line in lines.filter(|line| line.step == id && line.phase == Phase::Start) {
        line.payload.clone_from(&swapped);
    }
}

type Corruption = fn(&mut History);

/// What breaks which law.
const CORRUPTIONS: &[(&str, &str, Corruption)] = &[
    ("L1", "a run is lost", |it| {
        it.runs.remove(0);
    }),
    ("L1", "a run has not ended", |it| {
        it.runs[0].status = "in_progress".to_owned()
    }),
    ("L1", "a run that halts has completed", |it| {
        let doomed = it.runs.last_mut().unwrap();
        doomed.status = "completed".to_owned();
    }),
    ("L1", "a step is missing", |it| {
        let tail = it.steps.iter().position(|step| step.node == "Tail");
        it.steps.remove(tail.unwrap());
    }),
    ("L1", "a step is there twice", |it| {
        let again = Step {
            id: Uuid::new_v4(),
            ..step(it, "Tail").clone()
        };
        it.steps.push(again);
    }),
    ("L1", "a success has no work", |it| {
        let end = it.lines.iter().position(|it| it.phase == Phase::End);
        it.lines.remove(end.unwrap());
    }),
    ("L1", "a run has the output of another step", |it| {
        it.runs[0].output = step(it, "First").output.clone();
    }),
    ("L1", "a step that cannot succeed has", |it| {
        step(it, "Try").status = "completed".to_owned()
    }),
    ("L2", "the output is that of another attempt", |it| {
        step(it, "Last").output = Some(format!("\"{}\"", Uuid::new_v4()));
    }),
    ("L2", "two attempts have succeeded", |it| {
        attempt(it, STRUCK, false).result = "success".to_owned();
    }),
    ("L2", "a step is done that nobody has done", |it| {
        attempt(it, STRUCK, true).result = "process_crashed".to_owned();
    }),
    ("L3", "an attempt has started twice", |it| {
        let again = line(it, "West", Phase::Start).clone();
        it.lines.insert(0, again);
    }),
    ("L3", "an attempt was lost that nobody hit", |it| {
        it.faults.clear()
    }),
    ("L3", "an attempt was lost long before the blow", |it| {
        let fault = &mut it.faults[0];
        fault.at += Duration::from_secs(60);
        fault.until = fault.at;
    }),
    (
        "L3",
        "an attempt was lost that began after the blow",
        |it| {
            line(it, STRUCK, Phase::Start).at += Duration::from_secs(10);
        },
    ),
    ("L3", "a crash has spent a retry", |it| {
        let last = attempt(it, STRUCK, true);
        (last.retries, last.crashes) = (last.crashes, last.retries);
    }),
    ("L3", "what was lost is an error", |it| {
        attempt(it, STRUCK, false).result = "error".to_owned();
    }),
    ("L3", "somebody has failed whom nobody told to", |it| {
        let execution = attempt(it, "Foot", true).clone();
        attempt(it, "Foot", true).result = "error".to_owned();
        let mut lines = it.lines.iter_mut();
        let end = lines.find(|line| line.execution == execution.id && line.phase == Phase::End);
        end.unwrap().phase = Phase::Fail;
    }),
    ("L3", "it gave up too early", |it| {
        let id = attempt(it, "Try", true).id;
        it.executions.retain(|execution| execution.id != id);
    }),
    ("L3", "an attempt is in no database", |it| {
        line(it, "Top", Phase::Start).execution = Uuid::new_v4();
    }),
    ("L3", "a step is still open", |it| {
        attempt(it, "Top", true).result.clear()
    }),
    (
        "L4",
        "an attempt starts after its run, and its worker was dead",
        |it| {
            to_the_end(it, STRUCK, Phase::Start);
        },
    ),
    ("L4", "what counts starts after its run", |it| {
        frozen(it);
        to_the_end(it, "East", Phase::Start);
    }),
    (
        "L5",
        "an input is there before the work that it is made of",
        |it| {
            to_the_end(it, "Right", Phase::End);
        },
    ),
    ("L5", "an input is of nobody's work", |it| {
        line(it, "Bottom", Phase::Start).payload = r#"["here","there"]"#.to_owned();
    }),
    ("L6", "two paths are exchanged", |it| two_places(it, "Join")),
    ("L6", "two elements are exchanged", |it| {
        two_places(it, "Sum")
    }),
    ("L6", "an attempt is given something else", |it| {
        line(it, "Foot", Phase::Start).payload = r#""something""#.to_owned();
    }),
    ("L6", "a step follows from the wrong one", |it| {
        let input = step(it, "Top").output.clone();
        step(it, "Foot").input = input.unwrap();
    }),
    ("L6", "an element is given twice", |it| {
        let sum = step(it, "Sum");
        let mut values: Vec<String> = serde_json::from_str(&sum.input).unwrap();
        values[1] = values[0].clone();
        sum.input = serde_json::to_string(&values).unwrap();
    }),
    ("L7", "a killed worker's attempt goes on", done_late),
    (
        "L8",
        "a trigger without an answer has made two runs",
        |it| {
            it.triggers[0].answer = Answer::Unknown;
            let again = Run {
                id: Uuid::new_v4(),
                ..it.runs[0].clone()
            };
            it.runs.push(again);
        },
    ),
    ("L8", "a trigger was refused, and has made a run", |it| {
        it.triggers[0].answer = Answer::Refused;
    }),
    ("L8", "a trigger has made another run than it said", |it| {
        it.triggers[0].answer = Answer::Run(Uuid::new_v4());
    }),
    ("L8", "nobody has triggered a run", |it| {
        it.triggers.remove(0);
    }),
];

#[test]
fn every_law_is_broken_by_a_corruption_of_its_own() {
    assert_eq!(judge(&right()).broken, []);
    let mut laws = BTreeSet::new();
    for (law, what, corrupt) in CORRUPTIONS {
        let mut history = right();
        corrupt(&mut history);
        let broken = judge(&history).broken;
        let found = broken.iter().any(|(broken, _)| broken == law);
        assert!(found, "{law} is not broken where {what}: {broken:#?}");
        laws.insert(*law);
    }
    assert_eq!(laws.len(), 8, "{laws:?}");
}

#[test]
fn what_a_zombie_does_is_excused_and_counted() {
    let mut history = right();
    frozen(&mut history);
    done_late(&mut history);
    let verdict = judge(&history);
    assert_eq!(verdict.broken, []);
    assert_eq!((verdict.overlaps, verdict.late_starts), (1, 0));

    let mut history = right();
    frozen(&mut history);
    to_the_end(&mut history, STRUCK, Phase::Start);
    let verdict = judge(&history);
    assert_eq!(verdict.broken, []);
    assert_eq!((verdict.overlaps, verdict.late_starts), (1, 1));
    assert_eq!(verdict.extra_starts, 1);
}

#[test]
fn a_trigger_without_an_answer_may_have_made_a_run_or_none() {
    let mut history = right();
    history.triggers[0].answer = Answer::Unknown;
    let none = Trigger {
        input: "\"nobody\"".to_owned(),
        answer: Answer::Unknown,
    };
    history.triggers.push(none);
    assert_eq!(judge(&history).broken, []);
}
