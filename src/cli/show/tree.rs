//! A run drawn as a tree: branches under the fan-outs that made them.
//!
//! Owns: the drawing, pure. A fan-out wider than a screen is drawn by its nodes.

use std::collections::HashMap;
use std::fmt::Write;

use crate::model::*;
use crate::store::definition::short as digits;
use crate::store::query::{BranchRow, FanOutRow, NodeProgress, RunDetail, StepRow};
use crate::time;

use super::super::out::{self, paint, short};
use super::super::runs::{style, took};

/// Branches of one fan-out that are drawn one by one.
const BRANCHES_MAX: usize = 8;
/// Failed steps that are named where branches are not.
const FAILURES_MAX: usize = 5;
/// Lines of what a step wrote before it failed; `--json` has all that is kept.
const LOG_LINES: usize = 10;
/// Characters of a value or an error.
const ROOM: usize = 100;

/// A run with all its steps.
pub fn draw(detail: &RunDetail) -> String {
    let mut tree = Tree::of(detail);
    tree.head();
    let roots = detail
        .branches
        .iter()
        .filter(|branch| branch.fan_out_id.is_none());
    for root in roots {
        tree.branch(root, "");
    }
    if detail.truncated {
        let _ = writeln!(
            tree.text,
            "{}",
            paint(out::DIM, "… and more: raise --limit")
        );
    }
    tree.text
}

/// A run with too many steps for a tree.
pub fn by_node(detail: &RunDetail, nodes: &[NodeProgress], failed: &[StepRow]) -> String {
    let mut tree = Tree::of(detail);
    tree.head();
    for node in nodes {
        let line = counts(
            &node.node,
            node.total,
            &[
                (node.completed, "✓", out::GOOD),
                (node.running, "●", out::BUSY),
                (node.failed, "✗", out::BAD),
                (node.cancelled, "–", out::DIM),
            ],
        );
        let _ = writeln!(tree.text, "{line}");
    }
    for step in failed {
        tree.step(step, "");
    }
    tree.text
}

fn counts(node: &str, total: u64, kinds: &[(u64, &str, anstyle::Style)]) -> String {
    let mut line = format!("{} ×{total}", paint(out::BOLD, &out::clean(node)));
    for (count, mark, style) in kinds.iter().filter(|(count, ..)| *count > 0) {
        let _ = write!(line, "  {}", paint(*style, &format!("{mark} {count}")));
    }
    line
}

struct Tree<'a> {
    detail: &'a RunDetail,
    steps: HashMap<BranchId, Vec<&'a StepRow>>,
    fan_outs: HashMap<BranchId, Vec<&'a FanOutRow>>,
    children: HashMap<FanOutId, Vec<&'a BranchRow>>,
    text: String,
}

impl<'a> Tree<'a> {
    fn of(detail: &'a RunDetail) -> Self {
        let mut tree = Self {
            detail,
            steps: HashMap::new(),
            fan_outs: HashMap::new(),
            children: HashMap::new(),
            text: String::new(),
        };
        for step in &detail.steps {
            tree.steps.entry(step.branch_id).or_default().push(step);
        }
        for fan_out in &detail.fan_outs {
            tree.fan_outs
                .entry(fan_out.branch_id)
                .or_default()
                .push(fan_out);
        }
        for branch in &detail.branches {
            if let Some(fan_out) = branch.fan_out_id {
                tree.children.entry(fan_out).or_default().push(branch);
            }
        }
        for steps in tree.steps.values_mut() {
            steps.sort_by_key(|step| step.ordinal);
        }
        for branches in tree.children.values_mut() {
            branches.sort_by_key(|branch| branch.ordinal);
        }
        tree
    }

    fn head(&mut self) {
        let (run, now) = (&self.detail.run, self.detail.now);
        let status = paint(style(run.status), run.status.as_str());
        let pipeline = paint(out::BOLD, &out::clean(&run.pipeline));
        let _ = writeln!(
            self.text,
            "{} {pipeline} {status} {}",
            run.id,
            took(run, now)
        );
        let mut line = |name: &str, value: &str| {
            let name = paint(out::DIM, &format!("{name:>10}"));
            let _ = writeln!(self.text, "{name}  {value}");
        };
        line(
            "triggered",
            &format!(
                "{} ({})",
                time::rfc3339(run.triggered_at),
                time::relative(run.triggered_at, now)
            ),
        );
        if let Some(from) = run.revived_from {
            let other = match &self.detail.definition_was {
                Some(was) => format!(
                    ", with another definition ({} in place of {})",
                    digits(&run.definition),
                    digits(was)
                ),
                None => String::new(),
            };
            line("continues", &format!("{from}{other}"));
        }
        if let Some(key) = &run.trigger_key {
            line("key", &short(key, ROOM));
        }
        if run.cancelling_at.is_some() {
            line(
                "cancelled",
                "not yet wholly: its branches are closed part by part",
            );
        }
        line("input", &short(run.input.get(), ROOM));
        if let Some(output) = &run.output {
            line("output", &short(output.get(), ROOM));
        }
        if !run.halt_reasons.is_empty() {
            line("halted by", &paint(out::BAD, &run.halt_reasons.join(", ")));
        }
        self.text.push('\n');
    }

    /// A branch's steps, each followed by the fan-out that left it.
    fn branch(&mut self, branch: &BranchRow, indent: &str) {
        for step in self.steps.remove(&branch.id).unwrap_or_default() {
            self.step(step, indent);
            let fan_outs = self.fan_outs.get(&branch.id);
            let at_step = |fan_out: &&&FanOutRow| fan_out.node == step.node;
            let fan_out = fan_outs.and_then(|all| all.iter().find(at_step).copied());
            if let Some(fan_out) = fan_out {
                self.fan_out(fan_out, indent);
            }
        }
    }

    fn fan_out(&mut self, fan_out: &FanOutRow, indent: &str) {
        let arrived = match fan_out.fired_at {
            Some(_) => String::new(),
            None => format!(", {} arrived", fan_out.arrived),
        };
        let halted = match fan_out.halted {
            0 => String::new(),
            n => format!(", {}", paint(out::BAD, &format!("{n} halted"))),
        };
        let _ = writeln!(
            self.text,
            "{indent}  {} into {}{arrived}{halted}",
            fan_out.via, fan_out.width
        );
        let children = self.children.remove(&fan_out.id).unwrap_or_default();
        if children.len() > BRANCHES_MAX {
            return self.aggregate(&children, &format!("{indent}  │ "));
        }
        let last = children.len().saturating_sub(1);
        for (index, child) in children.into_iter().enumerate() {
            let (corner, below) = if index == last {
                ("└─", "  ")
            } else {
                ("├─", "│ ")
            };
            let before = self.text.len();
            self.branch(child, &format!("{indent}  {below} "));
            // The first line of a branch hangs on the fan-out, the others below it.
            let prefix = format!("{indent}  {below} ");
            if self.text[before..].starts_with(&prefix) {
                let first = format!("{indent}  {corner} ");
                self.text
                    .replace_range(before..before + prefix.len(), &first);
            }
        }
    }

    /// Many branches, by their nodes; with what failed in them.
    fn aggregate(&mut self, children: &[&BranchRow], indent: &str) {
        let mut todo: Vec<&BranchRow> = children.to_vec();
        let mut nodes: Vec<(&str, [u64; 5])> = Vec::new();
        let mut failed = Vec::new();
        while let Some(branch) = todo.pop() {
            for step in self.steps.remove(&branch.id).unwrap_or_default() {
                let known = nodes.iter().position(|(node, _)| *node == step.node);
                let index = known.unwrap_or_else(|| {
                    nodes.push((&step.node, [0; 5]));
                    nodes.len() - 1
                });
                let counts = &mut nodes[index].1;
                counts[0] += 1;
                match step.status {
                    StepStatus::Completed | StepStatus::Advancing => counts[1] += 1,
                    StepStatus::Failed => counts[3] += 1,
                    StepStatus::Cancelled => counts[4] += 1,
                    StepStatus::InProgress if running(step) => counts[2] += 1,
                    StepStatus::InProgress | StepStatus::Waiting => {}
                }
                if step.status == StepStatus::Failed {
                    failed.push(step);
                }
            }
            for fan_out in self.fan_outs.get(&branch.id).into_iter().flatten() {
                todo.extend(self.children.remove(&fan_out.id).unwrap_or_default());
            }
        }
        for (node, [total, completed, running, failed, cancelled]) in nodes {
            let line = counts(
                node,
                total,
                &[
                    (completed, "✓", out::GOOD),
                    (running, "●", out::BUSY),
                    (failed, "✗", out::BAD),
                    (cancelled, "–", out::DIM),
                ],
            );
            let _ = writeln!(self.text, "{indent}{line}");
        }
        failed.sort_by_key(|step| step.id);
        for step in failed.iter().take(FAILURES_MAX) {
            self.step(step, indent);
        }
        if failed.len() > FAILURES_MAX {
            let more = format!("… and {} more that failed", failed.len() - FAILURES_MAX);
            let _ = writeln!(self.text, "{indent}{}", paint(out::DIM, &more));
        }
    }

    fn step(&mut self, step: &StepRow, indent: &str) {
        let (mark, style) = match step.status {
            StepStatus::Completed | StepStatus::Advancing => ("✓", out::GOOD),
            StepStatus::Failed => ("✗", out::BAD),
            StepStatus::Cancelled => ("–", out::DIM),
            StepStatus::Waiting => ("?", out::ASKS),
            StepStatus::InProgress if running(step) => ("●", out::BUSY),
            StepStatus::InProgress => ("○", out::DIM),
        };
        let mut line = format!(
            "{} {}",
            paint(style, mark),
            paint(out::BOLD, &out::clean(&step.node))
        );
        if let Some(started) = step.started_at() {
            let end = step.completed_at.unwrap_or(self.detail.now);
            let _ = write!(line, "  {}", time::span(time::between(started, end)));
        }
        if step.source_step_id.is_some() && step.executions.is_empty() {
            let _ = write!(line, "  {}", paint(out::DIM, "copied"));
        }
        if step.status == StepStatus::Waiting {
            let _ = write!(line, "  {}", paint(out::ASKS, "waits for a person"));
        }
        let open = step
            .executions
            .iter()
            .find(|execution| execution.result.is_none());
        if let Some(due) = open
            .and_then(|execution| execution.due_at)
            .filter(|due| *due > self.detail.now)
        {
            let _ = write!(line, "  due {}", time::relative(due, self.detail.now));
        }
        if let Some(output) = &step.output {
            let _ = write!(line, "  {}", paint(out::DIM, &short(output.get(), 60)));
        }
        let _ = writeln!(self.text, "{indent}{line}");
        let many = step.executions.len() > 1;
        for execution in &step.executions {
            let Some(result) = execution
                .result
                .filter(|result| *result != ExecutionResult::Success)
            else {
                continue;
            };
            let attempt = match many {
                true => format!("attempt {}: ", execution.attempt),
                false => String::new(),
            };
            let class = match &execution.error_class {
                Some(class) if class != result.as_str() => format!(" {}", short(class, 40)),
                _ => String::new(),
            };
            let message = match &execution.error_message {
                Some(message) => format!(": {}", short(message.trim(), ROOM)),
                None => String::new(),
            };
            let text = paint(out::BAD, &format!("{attempt}{result}{class}{message}"));
            let _ = writeln!(self.text, "{indent}    {text}");
        }
        let last = step.executions.last();
        let log = last.and_then(|last| last.error_backtrace.as_deref());
        if let Some(log) = log.filter(|_| step.status == StepStatus::Failed) {
            self.log(log, indent);
        }
    }

    /// The end of what a failed attempt wrote, unless its last line, which is its message, is all.
    fn log(&mut self, log: &str, indent: &str) {
        let lines: Vec<&str> = log.trim_end().lines().collect();
        if lines.len() < 2 {
            return;
        }
        for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
            let line = paint(out::DIM, &format!("| {}", short(line, ROOM)));
            let _ = writeln!(self.text, "{indent}    {line}");
        }
    }
}

fn running(step: &StepRow) -> bool {
    let open = step
        .executions
        .iter()
        .find(|execution| execution.result.is_none());
    open.is_some_and(|execution| execution.process_id.is_some())
}
