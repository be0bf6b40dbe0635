//! The oracle approves a correct history, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use crate::history::{
    Answer, Execution, Fault, History, Kind, Line, Order, Phase, Run, Step, Told, Trigger,
};
use crate::oracle::judge;
use crate::right::{STRUCK, order, right};

/// The first run with this status.
fn run<'a>(history: &'a mut History, status: &str) -> &'a mut Run {
    let mut runs = history.runs.iter_mut();
    runs.find(|run| run.status == status).unwrap()
}

/// The first run that continues another.
fn successor(history: &mut History) -> &mut Run {
    let mut runs = history.runs.iter_mut();
    runs.find(|run| run.revived_from.is_some()).unwrap()
}

/// The first step that is a copy.
fn copy(history: &mut History) -> &mut Step {
    let mut steps = history.steps.iter_mut();
    steps.find(|step| step.source.is_some()).unwrap()
}

/// The first order with such an answer.
fn ordered(history: &mut History, told: fn(&Told) -> bool) -> &mut Order {
    let mut orders = history.orders.iter_mut();
    orders.find(|order| told(&order.told)).unwrap()
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

/// Removes a line, and appends it at the end.
fn to_the_end(history: &mut History, node: &str, phase: Phase) {
    let found = history
        .lines
        .iter()
        .position(|it| it.node == node && it.phase == phase);
    let line = history.lines.remove(found.unwrap());
    history.lines.push(line);
}

/// The lost attempt finished its work after all, once the next had begun.
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

/// The corruptions, and the law that each breaks.
const CORRUPTIONS: &[(&str, &str, Corruption)] = &[
    ("L1", "a run is lost", |it| {
        it.runs.remove(0);
    }),
    ("L1", "a run has not ended", |it| {
        it.runs[0].status = "in_progress".to_owned()
    }),
    ("L1", "a run that halts has completed", |it| {
        run(it, "halted").status = "completed".to_owned();
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
    (
        "L4",
        "something is claimed after the end of its run",
        |it| {
            attempt(it, "First", true).claimed = Some(1_000_000);
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
    ("L9", "a run was cancelled, and has completed", |it| {
        let id = it.runs[0].id;
        order(it, id, Told::Cancelled);
    }),
    ("L9", "a run was cancelled twice", |it| {
        let again = ordered(it, |told| *told == Told::Cancelled).clone();
        it.orders.push(again);
    }),
    ("L9", "nobody has cancelled a run", |it| {
        ordered(it, |told| *told == Told::Cancelled).told = Told::Refused;
    }),
    ("L9", "a run was over, and ended otherwise", |it| {
        let id = it.runs[0].id;
        order(it, id, Told::Over("halted".to_owned()));
    }),
    ("L9", "an order was about no run", |it| {
        order(it, Uuid::new_v4(), Told::Refused)
    }),
    ("L9", "a run goes on when it is cancelled", |it| {
        let id = run(it, "cancelled").id;
        let mut starts = it.lines.iter_mut().filter(|line| line.run == id);
        starts.next_back().unwrap().at += Duration::from_secs(10);
    }),
    ("L9", "an attempt was cancelled, and not its run", |it| {
        attempt(it, STRUCK, false).result = "cancelled".to_owned();
    }),
    ("L10", "nobody has revived a run", |it| {
        it.orders.retain(|it| !matches!(it.told, Told::Revived(_)))
    }),
    ("L10", "a run was revived, and no other goes on", |it| {
        let id = run(it, "halted").id;
        order(it, id, Told::Revived(Uuid::new_v4()));
    }),
    (
        "L10",
        "a run had been revived, and no other goes on",
        |it| {
            let id = it.runs[0].id;
            order(it, id, Told::Before(id));
        },
    ),
    ("L10", "a run goes on twice", |it| {
        let again = Run {
            id: Uuid::new_v4(),
            ..successor(it).clone()
        };
        order(it, again.revived_from.unwrap(), Told::MayBeRevived);
        it.runs.push(again);
    }),
    ("L10", "a run goes on that had completed", |it| {
        run(it, "halted").status = "completed".to_owned();
    }),
    ("L10", "a run goes on before it had halted", |it| {
        successor(it).triggered = 0
    }),
    ("L10", "a run goes on from nothing", |it| {
        successor(it).revived_from = Some(Uuid::new_v4())
    }),
    ("L10", "a run goes on with another input", |it| {
        successor(it).input.push(' ')
    }),
    ("L10", "what had completed is not copied", |it| {
        copy(it).source = None
    }),
    ("L10", "a copy is of another step", |it| {
        copy(it).output = Some(format!("\"{}\"", Uuid::new_v4()))
    }),
    ("L10", "what had completed is done again", |it| {
        let step = copy(it).id;
        let again = Execution {
            id: Uuid::new_v4(),
            step,
            ..it.executions[0].clone()
        };
        it.executions.push(again);
    }),
    ("L10", "a run that nobody has revived holds a copy", |it| {
        step(it, "First").source = Some(Uuid::new_v4())
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
    assert_eq!(laws.len(), 10, "{laws:?}");
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

#[test]
fn an_order_without_an_answer_may_have_been_carried_out_or_not() {
    let mut history = right();
    let revived = ordered(&mut history, |told| matches!(told, Told::Revived(_)));
    revived.told = Told::MayBeRevived;
    ordered(&mut history, |told| *told == Told::Cancelled).told = Told::MayBeCancelled;
    let completed = history.runs[0].id;
    order(&mut history, completed, Told::MayBeCancelled);
    let ended = run(&mut history, "completed").id;
    order(&mut history, ended, Told::Over("completed".to_owned()));
    assert_eq!(judge(&history).broken, []);
}

#[test]
fn whoever_could_not_be_told_of_a_cancellation_is_excused_and_counted() {
    let mut history = right();
    let until = ordered(&mut history, |told| *told == Told::Cancelled).until;
    let id = run(&mut history, "cancelled").id;
    let mut lines = history.lines.iter_mut().filter(|line| line.run == id);
    lines.next_back().unwrap().at = until + Duration::from_secs(4);
    history.faults.push(Fault {
        number: 1,
        kind: Kind::Server,
        target: String::new(),
        at: until,
        until: until + Duration::from_secs(3),
        hit: Vec::new(),
    });
    let verdict = judge(&history);
    assert_eq!(verdict.broken, []);
    assert_eq!((verdict.cancelled, verdict.untold), (1, 1));
}

/// The line that follows the lost attempt in the ledger is the next attempt at its step.
#[test]
fn recovery_is_measured_from_the_blow() {
    let history = right();
    let measured = crate::recovery::measure(&history).to_string();
    let line = measured.lines().find(|line| line.contains("KillWorker"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["KillWorker", "1", "p50", "0.00"], "{measured}");
}

/// A node was away between these two lines.
fn away(history: &mut History, from: usize, until: usize) {
    let [at, until] = [from, until].map(|line| history.lines[line].at);
    let blow = history.faults[0].clone();
    history.faults.push(Fault {
        kind: Kind::KillNode,
        at,
        until,
        hit: Vec::new(),
        ..blow
    });
}

/// Moves the clock of all later lines by this much.
fn later(history: &mut History, behind: usize, by: Duration) {
    let at = history.lines[behind].at;
    let lines = history.lines.iter_mut().map(|line| &mut line.at);
    let orders = history.orders.iter_mut().map(|order| &mut order.until);
    for time in lines.chain(orders).filter(|time| **time > at) {
        *time += by;
    }
}

#[test]
fn the_standstill_of_a_cluster_is_measured_until_all_nodes_are_there() {
    let mut history = right();
    later(&mut history, 4, Duration::from_secs(6));
    away(&mut history, 2, 8);
    later(&mut history, 12, Duration::from_secs(9));
    let measured = crate::recovery::measure(&history).to_string();
    let line = measured.lines().find(|line| line.contains("KillNode "));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["KillNode", "1", "p50", "6.00"], "{measured}");
}

/// The line has waited for its commit since long before the blow.
#[test]
fn a_blow_reaches_back_behind_the_time_that_a_cluster_took_no_commit() {
    let mut history = right();
    let started = history.lines.iter().position(|line| line.node == STRUCK);
    let started = started.unwrap();
    history.faults[0].at += Duration::from_secs(50);
    history.faults[0].until += Duration::from_secs(50);
    later(&mut history, started, Duration::from_secs(50));
    let laws = |history: &History| -> Vec<&str> {
        let broken = judge(history).broken;
        broken.iter().map(|(law, _)| *law).collect()
    };
    assert_eq!(laws(&history), ["L3"]);
    away(&mut history, started, started + 1);
    assert_eq!(laws(&history), [""; 0]);
}
