//! The output of a flow: one recursion over the tree, without rows, branches or barriers.

use super::flow::{Flow, Item, Step};
use super::json::Json;
use super::steps;

/// The name under which a dampen's wait is recorded.
const DAMPEN: &str = "dampen";

/// The expected end of a run.
#[derive(Debug, PartialEq)]
pub struct Expected {
    /// Its output; none if it halts.
    pub output: Option<Json>,
    /// The steps that ran, in no order: each step with its input, and its output if it had one.
    pub ran: Vec<(String, Json, Option<Json>)>,
}

/// Evaluates a flow; gives up when more than `most` steps would run.
pub fn evaluate(flow: &Flow, input: &Json, most: usize) -> Option<Expected> {
    let mut evaluation = Evaluation {
        ran: Vec::new(),
        most,
    };
    let output = evaluation.flow(flow, input.clone());
    let mut ran = evaluation.ran;
    ran.sort();
    (ran.len() <= most).then_some(Expected { output, ran })
}

struct Evaluation {
    ran: Vec<(String, Json, Option<Json>)>,
    most: usize,
}

/// `None` wherever a branch halts: no array can contain a missing value, so nothing after its
/// fan-in runs, but its siblings do.
impl Evaluation {
    fn flow(&mut self, flow: &Flow, input: Json) -> Option<Json> {
        let output = self.step(flow.first, input)?;
        self.list(&flow.then, output)
    }

    fn step(&mut self, step: Step, input: Json) -> Option<Json> {
        if self.ran.len() > self.most {
            return None;
        }
        let output = steps::apply(step, input.clone());
        self.ran.push((step.to_owned(), input, output.clone()));
        output
    }

    fn list(&mut self, items: &[Item], output: Json) -> Option<Json> {
        items
            .iter()
            .try_fold(output, |output, item| self.item(item, output))
    }

    fn item(&mut self, item: &Item, output: Json) -> Option<Json> {
        match item {
            Item::Chain(step) => self.step(step, output),
            Item::Dampen(value) => {
                let resumed = value.clone().unwrap_or_else(|| output.clone());
                let record = (DAMPEN.to_owned(), output, Some(resumed.clone()));
                self.ran.push(record);
                Some(resumed)
            }
            Item::Divide { paths, combine } => {
                let outputs = paths.iter().map(|path| self.flow(path, output.clone()));
                let outputs = all(outputs)?;
                self.fan_in(*combine, outputs)
            }
            Item::Expand { each, collapse } => {
                let elements = match output {
                    Json::Array(items) => items,
                    Json::Object(entries) => {
                        let pair = |(key, value)| Json::Array(vec![Json::Scalar(key), value]);
                        entries.into_iter().map(pair).collect()
                    }
                    Json::Scalar(_) => return None,
                };
                let outputs = elements.into_iter().map(|element| self.flow(each, element));
                let outputs = all(outputs)?;
                self.fan_in(*collapse, outputs)
            }
            Item::Divert {
                cases,
                otherwise,
                converge,
            } => {
                let key = key(&output);
                let case = cases.iter().find(|(when, _)| key.as_deref() == Some(*when));
                let path = case.map_or(otherwise, |(_, path)| path);
                let output = self.flow(path, output)?;
                self.fan_in(*converge, output)
            }
        }
    }

    fn fan_in(&mut self, step: Option<Step>, value: Json) -> Option<Json> {
        match step {
            Some(step) => self.step(step, value),
            None => Some(value),
        }
    }
}

/// The array of all of them, once all have been evaluated.
fn all(outputs: impl Iterator<Item = Option<Json>>) -> Option<Json> {
    let outputs: Vec<Option<Json>> = outputs.collect();
    outputs
        .into_iter()
        .collect::<Option<Vec<Json>>>()
        .map(Json::Array)
}

/// The value that a divert looks at; for an object its last `divert`, as in most JSON readers.
fn key(output: &Json) -> Option<String> {
    match output {
        Json::Object(_) => output.fields("divert").last()?.scalar(),
        other => other.scalar(),
    }
}
