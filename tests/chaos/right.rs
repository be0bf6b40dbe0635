//! A correct history, made without any engine.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::history::{
    Answer, Execution, Fault, History, Kind, Line, Order, Phase, Run, Step, Told, Trigger,
};
use crate::workload::{Input, MAX_RETRY, Node, SHAPES, Shape};

/// The process that works here, and the one that was killed during its work.
const WORKER: i32 = 1;
const KILLED: i32 = 2;

/// The node whose first attempt dies with its worker.
pub const STRUCK: &str = "Slow";

/// A correct run of each pipeline, and one attempt that was lost with its worker. A halted run
/// is revived until it completes. One more run was cancelled.
pub fn right() -> History {
    let mut history = History::default();
    for shape in SHAPES {
        let mut run = Making::of(shape, None, 0).carry_out(&mut history);
        let mut revivals = 0;
        while shape.is_doomed(revivals) {
            revivals += 1;
            let from = run;
            run = Making::of(shape, Some(from), revivals).carry_out(&mut history);
            order(&mut history, from, Told::Revived(run));
        }
    }
    let mut cancelled = Making::of(&SHAPES[0], None, 0);
    cancelled.cut = Some(STRUCK);
    cancelled.asked = "\"no longer\"".to_owned();
    let run = cancelled.carry_out(&mut history);
    order(&mut history, run, Told::Cancelled);
    let mut lines = history.lines.iter();
    let struck = lines.find(|line| line.worker == KILLED).unwrap().at;
    history.faults.push(Fault {
        number: 0,
        kind: Kind::KillWorker,
        target: String::new(),
        at: struck,
        until: struck,
        hit: vec![KILLED],
    });
    history
}

/// Adds the order for a run that was just given and answered.
pub fn order(history: &mut History, run: Uuid, told: Told) {
    let until = history.lines.last().unwrap().at;
    history.orders.push(Order { run, told, until });
}

/// The database's clock, which advances with each line of the ledger.
fn now(history: &History) -> i64 {
    history.lines.len() as i64
}

/// A run under construction.
struct Making {
    id: Uuid,
    shape: &'static Shape,
    from: Option<Uuid>,
    revivals: u32,
    asked: String,
    /// The run is cancelled while this node runs.
    cut: Option<&'static str>,
}

impl Making {
    fn of(shape: &'static Shape, from: Option<Uuid>, revivals: u32) -> Self {
        Self {
            id: Uuid::new_v4(),
            shape,
            from,
            revivals,
            asked: format!("\"{}\"", shape.pipeline),
            cut: None,
        }
    }

    fn carry_out(self, history: &mut History) -> Uuid {
        let triggered = now(history);
        let mut outputs: HashMap<(&str, Vec<usize>), String> = HashMap::new();
        let mut last = None;
        let mut cut = false;
        for node in self.shape.nodes.iter() {
            for place in self.shape.places(node, self.revivals) {
                if cut {
                    continue;
                }
                let list = |of: Vec<(&'static str, Vec<usize>)>| {
                    let each = of
                        .iter()
                        .map(|(name, place)| outputs[&(*name, place.clone())].clone());
                    format!("[{}]", each.collect::<Vec<_>>().join(","))
                };
                let input = match node.input {
                    Input::Trigger => self.asked.clone(),
                    Input::Of(before) => outputs[&(before, place.clone())].clone(),
                    Input::Element(before) => {
                        let (at, above) = place.split_last().unwrap();
                        let all = &outputs[&(before, above.to_vec())];
                        let all: Vec<String> = serde_json::from_str(all).unwrap();
                        format!("\"{}\"", all[*at])
                    }
                    Input::Both(before) => {
                        list(before.iter().map(|it| (*it, place.clone())).collect())
                    }
                    Input::Gathered(before, width) => list(
                        (0..width)
                            .map(|at| (before, [&place[..], &[at]].concat()))
                            .collect(),
                    ),
                };
                cut = self.cut == Some(node.name);
                if let Some(output) = self.step(node, input, history) {
                    last = Some(output.clone());
                    outputs.insert((node.name, place), output);
                }
            }
        }
        let status = match self.shape.is_doomed(self.revivals) {
            _ if cut => "cancelled",
            true => "halted",
            false => "completed",
        };
        history.runs.push(Run {
            id: self.id,
            pipeline: self.shape.pipeline.to_owned(),
            status: status.to_owned(),
            input: self.asked.clone(),
            output: last.filter(|_| status == "completed"),
            revived_from: self.from,
            triggered,
            ended: Some(now(history)),
        });
        if self.from.is_none() {
            history.triggers.push(Trigger {
                input: self.asked,
                answer: Answer::Run(self.id),
            });
        }
        self.id
    }

    /// Copied or performed.
    fn step(&self, node: &Node, input: String, history: &mut History) -> Option<String> {
        let mut done = history.steps.iter().filter(|step| {
            let same = step.node == node.name && step.input == input;
            Some(step.run) == self.from && step.status == "completed" && same
        });
        let Some(source) = done.next().cloned() else {
            return self.perform(node, input, history);
        };
        history.steps.push(Step {
            id: Uuid::new_v4(),
            run: self.id,
            source: Some(source.id),
            ..source.clone()
        });
        source.output
    }

    fn perform(&self, node: &Node, input: String, history: &mut History) -> Option<String> {
        let step = Uuid::new_v4();
        let mut last = None;
        let mut crashes = 0;
        let mut errors = 0;
        let cut = self.cut == Some(node.name);
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
            let failed = attempt <= node.fails || node.is_doomed(self.revivals);
            let (result, phase) = match (crashed, failed) {
                _ if cut => ("cancelled", None),
                (true, _) => ("process_crashed", None),
                (_, true) => ("error", Some((Phase::Fail, "-"))),
                _ => ("success", Some((Phase::End, output.as_str()))),
            };
            let execution = Uuid::new_v4();
            let claimed = Some(now(history));
            let phases = std::iter::once((Phase::Start, input.as_str())).chain(phase);
            for (phase, payload) in phases {
                history.lines.push(Line {
                    phase,
                    run: self.id,
                    step,
                    execution,
                    attempt,
                    node: node.name.to_owned(),
                    nonce: nonce.clone(),
                    pid: 1_000 + history.lines.len() as i32,
                    worker: if result == "process_crashed" {
                        KILLED
                    } else {
                        WORKER
                    },
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
                error: None,
                claimed,
            });
            crashes += u32::from(result == "process_crashed");
            errors += u32::from(result == "error");
            if result == "success" {
                last = Some(output);
            }
            if last.is_some() || cut || errors > MAX_RETRY {
                break;
            }
        }
        let status = match last {
            Some(_) => "completed",
            None if cut => "cancelled",
            None => "failed",
        };
        history.steps.push(Step {
            id: step,
            run: self.id,
            node: node.name.to_owned(),
            status: status.to_owned(),
            input,
            output: last.clone(),
            source: None,
        });
        last
    }
}
