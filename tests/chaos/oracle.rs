//! The laws that hold when all is over: pure, and informed by nothing of the engine but its rows.
//!
//! | | |
//! |---|---|
//! | L1 | Every acknowledged run has ended as its pipeline does, with each of its steps completed once in each of its places. |
//! | L2 | The stored output of a step is the output of the one attempt that is stored as its success. |
//! | L3 | An attempt starts at most once. Attempts are the retries that were made on purpose, and the attempts that were lost with processes that were hit; no other process lost anything. |
//! | L4 | Nothing starts after the last step of its run has ended, except by a zombie; nor is anything claimed after the end, by the database's clock. |
//! | L5 | Nothing starts before the steps whose outputs it is given have ended. |
//! | L6 | Inputs are the stored outputs of the preceding steps, each once, in order. |
//! | L7 | Two attempts of a step overlap only where a zombie made one of them. |
//! | L8 | An unanswered trigger has made one run or none, and a refused one none; no run exists without a trigger. |
//! | L9 | A run is cancelled if and only if somebody asked for it. Nothing of it starts once its workers have been told; and an order that finds the run over is told how it ended. |
//! | L10 | A run that continues another does so because somebody asked, after that one had halted. It is the only one that continues it, has a copy of each step that had completed, and does none of those again. |

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use uuid::Uuid;

use crate::history::{Answer, Execution, Fault, History, Line, Phase, Run, Step};
use crate::orders;
use crate::workload::{Input, MAX_RETRY, Node, Shape};

/// The longest time between an attempt's start and a fault that costs it: the duration of the
/// longest step plus that of the longest drain, on a busy machine.
const REACH: Duration = Duration::from_secs(20);

/// A step that is about to start when a zombie wakes up has started within this time.
pub const WAKING: Duration = Duration::from_secs(2);

/// A process beats six times in a lease, and learns by that of the actions of others.
const HEARING: u32 = 3;

/// The findings.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The law of L1 to L10 that is broken, and how.
    pub broken: Vec<(&'static str, String)>,
    /// Attempts that started, and reached neither success nor error.
    pub extra_starts: usize,
    /// Starts by zombies after the end of their run.
    pub late_starts: usize,
    /// Attempts by zombies that went on beside their successors.
    pub overlaps: usize,
    /// Attempts that were under way when their runs were cancelled.
    pub cancelled: usize,
    /// Attempts that started afterwards, where the worker could not be told.
    pub untold: usize,
}

/// The stored rows, by their keys.
pub struct Known<'a> {
    pub history: &'a History,
    pub runs: HashMap<Uuid, &'a Run>,
    pub steps: HashMap<Uuid, &'a Step>,
    steps_of: HashMap<Uuid, Vec<&'a Step>>,
    executions: HashMap<Uuid, &'a Execution>,
    attempts: HashMap<Uuid, Vec<&'a Execution>>,
    /// With their positions in the ledger.
    lines: HashMap<Uuid, Vec<(usize, &'a Line)>>,
}

/// Checks a history against all of the laws.
pub fn judge(history: &History) -> Verdict {
    let mut known = Known {
        history,
        runs: history.runs.iter().map(|run| (run.id, run)).collect(),
        steps: history.steps.iter().map(|step| (step.id, step)).collect(),
        steps_of: HashMap::new(),
        executions: HashMap::new(),
        attempts: HashMap::new(),
        lines: HashMap::new(),
    };
    for step in &history.steps {
        known.steps_of.entry(step.run).or_default().push(step);
    }
    for execution in &history.executions {
        known.executions.insert(execution.id, execution);
        known
            .attempts
            .entry(execution.step)
            .or_default()
            .push(execution);
    }
    for (at, line) in history.lines.iter().enumerate() {
        known
            .lines
            .entry(line.execution)
            .or_default()
            .push((at, line));
    }
    let mut verdict = Verdict::default();
    triggers(&known, &mut verdict);
    let mut ended = HashMap::new();
    for line in history
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.phase == Phase::End)
    {
        ended.insert(line.1.nonce.as_str(), line.0);
    }
    for (at, line) in history.lines.iter().enumerate() {
        known.line(line, &mut verdict);
        if line.phase == Phase::Start {
            causes(at, line, &ended, &mut verdict);
        }
    }
    for execution in &history.executions {
        known.execution(execution, &mut verdict);
    }
    for step in &history.steps {
        known.step(step, &mut verdict);
    }
    for run in &history.runs {
        known.run(run, &mut verdict);
    }
    orders::judge(&known, &mut verdict);
    verdict
}

impl Verdict {
    /// Records that this law is broken.
    pub fn breaks(&mut self, law: &'static str, what: String) {
        self.broken.push((law, what));
    }
}

/// L1, L8.
fn triggers(known: &Known<'_>, verdict: &mut Verdict) {
    let mut made: BTreeMap<&str, Vec<Uuid>> = BTreeMap::new();
    let asked = known.history.runs.iter();
    for run in asked.filter(|run| run.revived_from.is_none()) {
        made.entry(&run.input).or_default().push(run.id);
    }
    for trigger in &known.history.triggers {
        let runs = made.remove(trigger.input.as_str()).unwrap_or_default();
        match trigger.answer {
            Answer::Run(id) if runs.is_empty() => {
                verdict.breaks("L1", format!("run {id} is lost: {trigger:?}"));
            }
            Answer::Run(id) if runs == [id] => {}
            Answer::Refused if runs.is_empty() => {}
            Answer::Unknown if runs.len() <= 1 => {}
            _ => verdict.breaks("L8", format!("{trigger:?} has made {runs:?}")),
        }
    }
    for (input, runs) in made {
        verdict.breaks("L8", format!("nobody has triggered {input}: {runs:?}"));
    }
}

/// L5: the steps that made an input have ended before, according to the ledger.
fn causes(at: usize, line: &Line, ended: &HashMap<&str, usize>, verdict: &mut Verdict) {
    let Some(node) = known_node(line) else { return };
    if matches!(node.input, Input::Trigger) {
        return;
    }
    for nonce in nonces(&line.payload) {
        if ended.get(nonce.as_str()).is_none_or(|end| *end > at) {
            verdict.breaks("L5", format!("{nonce} had not ended before {line:?}"));
        }
    }
}

/// The node of a line, in whichever pipeline it is: the names of nodes are unique.
fn known_node(line: &Line) -> Option<&'static Node> {
    let mut shapes = crate::workload::SHAPES.iter();
    shapes.find_map(|shape| shape.node(&line.node))
}

/// The values that an input or output consists of.
fn values(payload: &str) -> Vec<String> {
    serde_json::from_str(payload)
        .or_else(|_| serde_json::from_str(payload).map(|value| vec![value]))
        .unwrap_or_default()
}

/// The nonces in a payload.
fn nonces(payload: &str) -> Vec<String> {
    let values = values(payload).into_iter();
    values
        .map(|value| value.split(':').next().unwrap_or_default().to_owned())
        .collect()
}

impl Known<'_> {
    /// The attempts at a step.
    pub fn attempts(&self, step: Uuid) -> &[&Execution] {
        self.attempts.get(&step).map_or(&[], Vec::as_slice)
    }

    /// The steps of a run.
    pub fn steps_of(&self, run: Uuid) -> &[&Step] {
        self.steps_of.get(&run).map_or(&[], Vec::as_slice)
    }

    fn run_of(&self, execution: &Execution) -> Option<&Run> {
        let step = self.steps.get(&execution.step)?;
        self.runs.get(&step.run).copied()
    }

    /// How often a run's work has been revived.
    fn revivals(&self, run: &Run) -> u32 {
        let mut revivals = 0;
        let mut from = run.revived_from;
        // A cycle is no lineage, and breaks another law.
        while let Some(id) = from.filter(|_| revivals < 100) {
            revivals += 1;
            from = self.runs.get(&id).and_then(|run| run.revived_from);
        }
        revivals
    }

    /// The time within which a worker hears of the actions of others.
    pub fn hearing(&self) -> Duration {
        WAKING.max(self.history.lease / HEARING)
    }

    fn lines(&self, execution: Uuid) -> &[(usize, &Line)] {
        self.lines.get(&execution).map_or(&[], Vec::as_slice)
    }

    /// True when a fault took this attempt, or its process, away.
    fn hit(&self, line: &Line, counts: impl Fn(&Fault) -> bool) -> bool {
        let mut faults = self.history.faults.iter();
        faults.any(|fault| {
            let hit = fault.hit.contains(&line.worker) || fault.hit.contains(&line.pid);
            let reach = REACH + self.away(line, fault);
            hit && counts(fault) && fault.at <= line.at + reach && line.at <= fault.until + WAKING
        })
    }

    /// How long, between the fault and the line, a cluster may have taken no commit: a step that has
    /// started waits for that.
    fn away(&self, line: &Line, fault: &Fault) -> Duration {
        let faults = self.history.faults.iter();
        let between = faults.filter(|other| {
            other.kind.is_of_a_node() && other.at <= fault.at && line.at <= other.until
        });
        between.map(|other| other.until - other.at).sum()
    }

    fn zombie(&self, line: &Line) -> bool {
        let result = self.executions.get(&line.execution);
        let lost = result.is_some_and(|execution| execution.result == "process_crashed");
        lost && self.hit(line, |fault| fault.kind.leaves_zombies())
    }

    /// L3, L6: the ledger names attempts that are stored, with the inputs that they were given.
    fn line(&self, line: &Line, verdict: &mut Verdict) {
        let execution = self.executions.get(&line.execution);
        let Some(execution) =
            execution.filter(|it| it.step == line.step && it.attempt == line.attempt)
        else {
            return verdict.breaks("L3", format!("no such attempt is stored: {line:?}"));
        };
        let step = self.steps.get(&execution.step);
        let Some(step) = step.filter(|it| it.run == line.run && it.node == line.node) else {
            return verdict.breaks("L3", format!("no such step is stored: {line:?}"));
        };
        if line.phase == Phase::Start && line.payload != step.input {
            verdict.breaks("L6", format!("{} was stored for {line:?}", step.input));
        }
    }

    /// L1, L2, L3.
    fn execution(&self, execution: &Execution, verdict: &mut Verdict) {
        let lines = self.lines(execution.id);
        let of = |phase| {
            let found = lines.iter().filter(move |(_, line)| line.phase == phase);
            found.map(|(_, line)| *line).collect::<Vec<_>>()
        };
        let (starts, ends, fails) = (of(Phase::Start), of(Phase::End), of(Phase::Fail));
        let counts = [starts.len(), ends.len(), fails.len()];
        match (execution.result.as_str(), counts) {
            ("success", [1, 1, 0]) => {
                let step = self.steps.get(&execution.step);
                let stored = step.and_then(|step| step.output.as_deref());
                if stored != Some(ends[0].payload.as_str()) {
                    verdict.breaks("L2", format!("{stored:?} is stored for {:?}", ends[0]));
                }
            }
            ("success", [_, 0, _]) => {
                verdict.breaks("L1", format!("its work was never done: {execution:?}"));
            }
            ("error", [1, 0, 1]) => {}
            ("process_crashed" | "released" | "cancelled", [0, 0, 0]) => {}
            ("cancelled", [1, 0 | 1, 0 | 1]) => verdict.cancelled += 1,
            ("process_crashed" | "released", [1, 0 | 1, 0 | 1]) => {
                verdict.extra_starts += 1;
                if !self.hit(starts[0], |_| true) {
                    verdict.breaks("L3", format!("nobody hit {:?}: {execution:?}", starts[0]));
                }
            }
            _ => verdict.breaks(
                "L3",
                format!("started, ended, failed {counts:?}: {execution:?}"),
            ),
        }
        // Every failure of a step is on purpose, unless the machine itself has a problem.
        let run = self.run_of(execution);
        if run.is_some_and(|run| execution.claimed > run.ended) {
            verdict.breaks("L4", format!("claimed after {run:?}: {execution:?}"));
        }
        let node = starts.first().and_then(|line| known_node(line));
        let revivals = run.map_or(0, |run| self.revivals(run));
        let on_purpose = |node: &Node| execution.attempt <= node.fails || node.is_doomed(revivals);
        if execution.result == "error" && !node.is_some_and(on_purpose) {
            verdict.breaks(
                "L3",
                format!("{:?} on nobody's purpose: {execution:?}", execution.error),
            );
        }
    }

    /// L1, L2, L3, L7.
    fn step(&self, step: &Step, verdict: &mut Verdict) {
        let attempts = self.attempts(step.id);
        let with = |result: &str| {
            let found = attempts
                .iter()
                .filter(|execution| execution.result == result);
            found.count()
        };
        let successes = with("success");
        // A copy was executed in another run. A step that was done but not yet followed up may be
        // cancelled.
        let done = step.output.is_some();
        let fits = match step.status.as_str() {
            "completed" => done,
            "cancelled" => true,
            _ => !done,
        };
        if !fits || successes != usize::from(done && step.source.is_none()) {
            verdict.breaks("L2", format!("{successes} successes of {step:?}"));
        }
        if let Some(last) = attempts.last() {
            let counted = (last.retries as usize, last.crashes as usize);
            let ended = usize::from(last.result == "error");
            let told = (with("error") - ended, with("process_crashed"));
            if counted != told {
                verdict.breaks("L3", format!("{told:?} retries and crashes: {last:?}"));
            }
        }
        for (at, later) in attempts.iter().enumerate() {
            let starts = self
                .lines(later.id)
                .iter()
                .find(|(_, line)| line.phase == Phase::Start);
            let Some((start, _)) = starts else { continue };
            for earlier in &attempts[..at] {
                let beside = self.lines(earlier.id).iter().find(|(line, _)| line > start);
                let Some((_, line)) = beside else { continue };
                verdict.overlaps += 1;
                if !self.zombie(line) {
                    verdict.breaks("L7", format!("{line:?} beside {later:?}"));
                }
            }
        }
    }

    /// L1, L4, L6.
    fn run(&self, run: &Run, verdict: &mut Verdict) {
        let shape = Shape::of(&run.pipeline);
        let revivals = self.revivals(run);
        let cancelled = run.status == "cancelled";
        let expected = match shape.is_doomed(revivals) {
            _ if cancelled => "cancelled",
            true => "halted",
            false => "completed",
        };
        if run.status != expected {
            verdict.breaks("L1", format!("it should be {expected}: {run:?}"));
        }
        let mut made: HashMap<String, (&str, Vec<usize>)> = HashMap::new();
        let mut last = None;
        for node in shape.nodes {
            let steps = self.steps_of(run.id).iter();
            let mut places = Vec::new();
            for step in steps.filter(|step| step.node == node.name) {
                let Some(place) = place(node, run, &step.input, &made) else {
                    let what = format!("{} is no input of {step:?}", step.input);
                    verdict.breaks("L6", what);
                    continue;
                };
                let doomed = node.is_doomed(revivals);
                match step.status.as_str() {
                    "completed" if !doomed => {}
                    "failed" if doomed => self.spent(step, verdict),
                    "cancelled" if cancelled => {}
                    status => verdict.breaks("L1", format!("it is {status}: {step:?}")),
                }
                if let Some(output) = &step.output {
                    made.insert(output.clone(), (node.name, place.clone()));
                    last = Some(output);
                }
                places.push(place);
            }
            places.sort();
            let mut all = shape.places(node, revivals);
            if cancelled {
                // A cancelled run has only the places that it had reached.
                all.retain(|place| places.contains(place));
            }
            if places != all {
                let what = format!("{run:?} has {} at {places:?}", node.name);
                verdict.breaks("L1", what);
            }
        }
        let output = last.filter(|_| expected == "completed");
        if run.output.as_ref() != output {
            verdict.breaks("L1", format!("{output:?} is what {run:?} came to"));
        }
        if !cancelled {
            self.after_the_end(run, verdict);
        }
    }

    /// L3: a step that fails for good has been tried as often as allowed.
    fn spent(&self, step: &Step, verdict: &mut Verdict) {
        let attempts = self.attempts(step.id).iter();
        let errors = attempts
            .filter(|execution| execution.result == "error")
            .count();
        if errors != MAX_RETRY as usize + 1 {
            verdict.breaks("L3", format!("{errors} errors of {step:?}"));
        }
    }

    /// L4.
    fn after_the_end(&self, run: &Run, verdict: &mut Verdict) {
        let steps = self.steps_of(run.id).iter();
        let executions = steps.flat_map(|step| self.attempts(step.id));
        let mut lines: Vec<(usize, &Line, bool)> = Vec::new();
        for execution in executions {
            let counts = matches!(execution.result.as_str(), "success" | "error");
            let of = self.lines(execution.id).iter();
            lines.extend(of.map(|(at, line)| (*at, *line, counts)));
        }
        let ended = lines
            .iter()
            .filter(|(_, line, counts)| *counts && line.phase != Phase::Start);
        let Some(ended) = ended.map(|(at, ..)| *at).max() else {
            return;
        };
        for (at, line, _) in lines {
            if line.phase == Phase::Start && at > ended {
                verdict.late_starts += 1;
                if !self.zombie(line) {
                    verdict.breaks("L4", format!("its run had ended: {line:?}"));
                }
            }
        }
    }
}

/// The place of a step in its run's fan-outs, from its input; none if no such input can exist.
fn place(
    node: &Node,
    run: &Run,
    input: &str,
    made: &HashMap<String, (&str, Vec<usize>)>,
) -> Option<Vec<usize>> {
    // In the form in which outputs are stored.
    let given = |value: &String| made.get(&format!("\"{value}\""));
    match node.input {
        Input::Trigger => (input == run.input).then(Vec::new),
        Input::Of(before) => {
            let (name, place) = made.get(input)?;
            (*name == before).then(|| place.clone())
        }
        Input::Element(before) => {
            let mut lists = made.iter().filter(|(_, (name, _))| *name == before);
            lists.find_map(|(list, (_, place))| {
                let elements: Vec<&serde_json::value::RawValue> =
                    serde_json::from_str(list).ok()?;
                let at = elements.iter().position(|element| element.get() == input)?;
                Some([&place[..], &[at]].concat())
            })
        }
        Input::Both(before) => {
            let given: Option<Vec<_>> = values(input).iter().map(given).collect();
            let given = given.filter(|given| given.len() == before.len())?;
            let (_, place) = given.first()?;
            let all = given.iter().zip(before);
            let fit = all
                .into_iter()
                .all(|((name, its), before)| name == before && its == place);
            fit.then(|| place.clone())
        }
        Input::Gathered(before, width) => {
            let given: Option<Vec<_>> = values(input).iter().map(given).collect();
            let given = given.filter(|given| given.len() == width)?;
            let (_, above) = given.first()?.1.split_last()?;
            let fit = given.iter().enumerate().all(|(at, (name, place))| {
                *name == before && place.split_last() == Some((&at, above))
            });
            fit.then(|| above.to_vec())
        }
    }
}
