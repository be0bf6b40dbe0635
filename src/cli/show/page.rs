//! A run on a page: its steps in the flow's order on one timeline, then the errors, the steps that wait
//! for a person, and the result.
//!
//! Owns: the layout, pure. One line per step, however many elements it ran for.

use std::collections::HashMap;
use std::fmt::Write;

use anstyle::Style;

use crate::definition::Definition;
use crate::machine::why::answer;
use crate::model::*;
use crate::store::action::Action;
use crate::store::definition::short as digits;
use crate::store::query::{NodeProgress, RunDetail, Spread, StepRow};
use crate::store::resume::Due;
use crate::time;
use crate::view::{self, took, word};

use super::super::columns::{cut_with, width};
use super::super::glyphs::Glyphs;
use super::super::live::counted;
use super::super::out::{self, paint, short};
use super::super::runs::style;
use super::super::{attempt, flow, value};

/// The number of log lines of the last failed attempt, and of an earlier one; `--json` has everything
/// that is kept.
const LOG_LINES: usize = 10;
const EARLIER_LINES: usize = 4;
/// The longest value, in characters.
const ROOM: usize = 100;
/// The longest name of a person, in characters.
const NAME: usize = 60;
/// The number of actions beside the trigger: those that came last.
const ACTS: usize = 5;
/// The widest label of a step.
const LABEL: usize = 40;
/// The widest timeline.
const BAR: usize = 32;
/// The number of lines of the run's output.
const OUTPUT_LINES: usize = 40;

/// The parts of a page.
pub struct Page<'a> {
    /// The run, as far as it was read.
    pub detail: &'a RunDetail,
    /// The last run of the line, if the run was revived.
    pub newest: Option<RunId>,
    /// The reason why it halted, as far as no failed step shows it: whole lines.
    pub explained: String,
    /// The remedy of a run that halted.
    pub remedy: Option<String>,
    /// Its definition, if this version can read it.
    pub definition: Option<&'a Definition>,
    /// Its steps by node.
    pub nodes: Vec<NodeRow>,
    /// These are all steps, of which not all were read.
    pub is_summary: bool,
    /// Steps with errors that are shown in full, with their places; failed ones first.
    pub troubled: Vec<(&'a StepRow, Vec<Spread>)>,
    /// The number of other steps with errors.
    pub more: usize,
    /// Steps that wait for a person, with their places and deadlines.
    pub waiting: Vec<(&'a StepRow, Vec<Spread>, Option<&'a Due>)>,
    /// The actions in it, newest first.
    pub actions: &'a [Action],
    /// The action that made it from another run.
    pub revival: Option<&'a Action>,
    /// The columns of the terminal.
    pub columns: usize,
    /// The marks with which it is drawn.
    pub glyphs: &'static Glyphs,
}

/// The steps of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRow {
    node: String,
    total: u64,
    completed: u64,
    running: u64,
    failed: u64,
    cancelled: u64,
    waiting: u64,
    copied: u64,
    /// Attempts that were not the first of their step.
    retries: u64,
    /// The time of the first claim, and the time of the last end, of steps that were not kept.
    from: Option<i64>,
    to: Option<i64>,
    /// The output, if there is one step.
    output: Option<String>,
    /// The person who answered.
    by: Option<String>,
}

/// The steps of each node, counted, in the order in which they were first reached.
pub fn by_node(steps: &[StepRow]) -> Vec<NodeRow> {
    let mut rows: Vec<NodeRow> = Vec::new();
    let mut places = HashMap::new();
    for step in steps {
        let at = *places.entry(step.node.as_str()).or_insert_with(|| {
            rows.push(NodeRow {
                node: step.node.clone(),
                ..NodeRow::default()
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        row.total += 1;
        match step.status {
            StepStatus::Completed | StepStatus::Advancing => row.completed += 1,
            StepStatus::Failed => row.failed += 1,
            StepStatus::Cancelled => row.cancelled += 1,
            StepStatus::Waiting => row.waiting += 1,
            StepStatus::InProgress => row.running += u64::from(is_running(step)),
        }
        row.copied += u64::from(step.source_step_id.is_some() && step.executions.is_empty());
        row.retries += step.attempts().saturating_sub(1);
        row.from = [row.from, step.started_at()].into_iter().flatten().min();
        if !step.executions.is_empty() {
            row.to = row.to.max(step.completed_at.or(last_end(step)));
        }
        let output = step.output.as_ref().map(|output| output.get().to_owned());
        row.output = output.filter(|_| row.total == 1);
        row.by = step.answered_by.clone().filter(|_| row.total == 1);
    }
    rows
}

/// The same, for a run of very many steps, of which these attempts were not the first of their step. A step begins when it
/// is reached, and not when it is claimed.
pub fn of_progress(nodes: &[NodeProgress], retried: &HashMap<String, u64>) -> Vec<NodeRow> {
    let row = |node: &NodeProgress| NodeRow {
        node: node.node.clone(),
        total: node.total,
        completed: node.completed,
        running: node.running,
        failed: node.failed,
        cancelled: node.cancelled,
        waiting: node.waiting,
        copied: node.copied,
        retries: retried.get(&node.node).copied().unwrap_or_default(),
        from: node.first_at,
        to: node.last_at,
        ..NodeRow::default()
    };
    nodes.iter().map(row).collect()
}

fn last_end(step: &StepRow) -> Option<i64> {
    step.executions
        .iter()
        .filter_map(|it| it.completed_at)
        .max()
}

fn is_running(step: &StepRow) -> bool {
    let mut open = step.executions.iter().filter(|it| it.result.is_none());
    open.any(|execution| execution.process_id.is_some())
}

/// True if an attempt of the step did not succeed.
pub fn is_troubled(step: &StepRow) -> bool {
    let bad = |result: &ExecutionResult| {
        !matches!(
            result,
            ExecutionResult::Success | ExecutionResult::Released | ExecutionResult::Cancelled
        )
    };
    step.executions
        .iter()
        .any(|it| it.result.as_ref().is_some_and(bad))
}

/// The page.
pub fn draw(page: &Page<'_>) -> String {
    let mut text = String::new();
    head(page, &mut text);
    text.push('\n');
    timeline(page, &mut text);
    let more = match (page.detail.truncated, page.is_summary) {
        (false, _) => None,
        (true, true) => Some("with the time in the queue; `--limit N` reads the first N steps"),
        (true, false) => Some("and more: raise --limit"),
    };
    if let Some(more) = more {
        let _ = writeln!(text, "{}", paint(out::DIM, more));
    }
    scheduled(page, &mut text);
    for (step, spreads) in &page.troubled {
        trouble(page, step, spreads, &mut text);
    }
    if page.more > 0 {
        // Of a wide run, only the first ones were read.
        let more = match page.detail.truncated {
            true => "\nand more steps with errors: `--json` has them all".to_owned(),
            false => format!(
                "\n{} more steps with errors: `--json` has them all",
                page.more
            ),
        };
        let _ = writeln!(text, "{}", paint(out::DIM, &more));
    }
    for (step, spreads, deadline) in &page.waiting {
        asked(page, step, spreads, *deadline, &mut text);
    }
    if let Some(output) = &page.detail.run.output
        && output.get().len() > ROOM
    {
        let lines = value::lines(output, page.columns);
        let _ = writeln!(text, "\n{}", paint(out::DIM, "output"));
        for line in lines.lines().take(OUTPUT_LINES) {
            let _ = writeln!(text, "{line}");
        }
        if let Some(more @ 1..) = lines.lines().count().checked_sub(OUTPUT_LINES) {
            let more = format!(
                "{} {more} more lines: `--json` has them all",
                page.glyphs.more
            );
            let _ = writeln!(text, "{}", paint(out::DIM, &more));
        }
    }
    if !page.explained.is_empty() {
        let _ = write!(text, "\n{}", page.explained);
    }
    let next = next(page);
    if !next.is_empty() {
        text.push('\n');
    }
    for line in next {
        let _ = writeln!(text, "{}", paint(out::DIM, &line));
    }
    text
}

/// The likely next commands, each on a line of its own, so that a narrow terminal breaks none in two.
fn next(page: &Page<'_>) -> Vec<String> {
    let id = page.detail.run.id;
    if let Some(newest) = page.newest {
        return vec![format!("it was revived: ductworkd show {newest}")];
    }
    match page.detail.run.status {
        RunStatus::Halted => {
            let revive = || format!("ductworkd revive {id}");
            let remedy = page.remedy.clone().unwrap_or_else(revive);
            vec![
                format!("why it halted: ductworkd why {id}"),
                format!("go on: {}", out::clean(&remedy)),
            ]
        }
        RunStatus::Dampened => {
            let questions = page.nodes.iter().map(|row| row.waiting).sum::<u64>();
            let questions = usize::try_from(questions).unwrap_or(usize::MAX);
            vec![format!("answer: {}", answer(id, questions))]
        }
        RunStatus::InProgress => vec![
            format!("follow it: ductworkd watch {id}"),
            format!("why it is waiting: ductworkd why {id}"),
        ],
        RunStatus::Completed | RunStatus::Cancelled => Vec::new(),
    }
}

fn head(page: &Page<'_>, text: &mut String) {
    let (run, now) = (&page.detail.run, page.detail.now);
    // A label stands before each value.
    let room = page.columns.saturating_sub(12).clamp(20, ROOM);
    let status = paint(style(run.status), word(run.status));
    let pipeline = paint(out::BOLD, &out::clean(&run.pipeline));
    let _ = writeln!(
        text,
        "{} {pipeline} {status} {}",
        run.id,
        took(run.triggered_at, run.ended_at(), now)
    );
    let mut line = |name: &str, value: &str| {
        let name = paint(out::DIM, &format!("{name:>10}"));
        let _ = writeln!(text, "{name}  {value}");
    };
    let moment = |at| format!("{} ({})", time::rfc3339(at), time::relative(at, now));
    let by = |action: &Action| {
        let (name, channel) = (short(&action.by, NAME), view::channel(&action.channel));
        format!(", by {name} ({})", out::clean(channel))
    };
    let is_trigger = |action: &&Action| action.verb == Verb::Trigger.as_str();
    let triggered = page.actions.iter().rfind(is_trigger).map(by);
    line(
        "triggered",
        &format!(
            "{}{}",
            moment(run.triggered_at),
            triggered.unwrap_or_default()
        ),
    );
    let others = page.actions.iter().filter(|it| !is_trigger(it));
    let others: Vec<&Action> = others.take(ACTS).collect();
    for action in others.into_iter().rev() {
        let did = match action.verb.parse() {
            Ok(Verb::Send) => "resent",
            _ => view::did(&action.verb),
        };
        line(
            &short(did, 10),
            &format!("{}{}", moment(action.at), by(action)),
        );
    }
    if let Some(from) = run.revived_from {
        let other = match &page.detail.definition_was {
            Some(was) => format!(
                ", with another definition ({} in place of {})",
                digits(&run.definition),
                digits(was)
            ),
            None => String::new(),
        };
        let by = page.revival.map(by).unwrap_or_default();
        line("continues", &format!("{from}{other}{by}"));
    }
    if let Some(key) = &run.trigger_key {
        line("key", &short(key, ROOM));
    }
    if run.cancelling_at.is_some() {
        line(
            "cancelled",
            "not completely yet: its branches are closed in batches",
        );
    }
    line("input", &short(run.input.get(), room));
    if let Some(output) = run
        .output
        .as_ref()
        .filter(|output| output.get().len() <= ROOM)
    {
        line("output", &short(output.get(), ROOM));
    }
    if !run.halt_reasons.is_empty() {
        line("halted by", &paint(out::BAD, &run.halt_reasons.join(", ")));
    }
}

/// A line for each step of the flow; a bar shows when the step ran.
fn timeline(page: &Page<'_>, text: &mut String) {
    let (run, glyphs) = (&page.detail.run, page.glyphs);
    let end = run.ended_at().unwrap_or(page.detail.now);
    let lines = lines(page);
    let label = lines
        .iter()
        .map(|(label, _)| width(label))
        .max()
        .unwrap_or_default();
    let label = label.min(LABEL);
    let spans: Vec<String> = lines
        .iter()
        .map(|(_, row)| row.map_or_else(String::new, |row| span(row, end)))
        .collect();
    let counts: Vec<String> = lines
        .iter()
        .map(|(_, row)| row.map_or_else(String::new, |row| counts(row, glyphs)))
        .collect();
    let widest = |texts: &[String]| {
        texts
            .iter()
            .map(|text| width(text))
            .max()
            .unwrap_or_default()
    };
    let (span_width, counts_width) = (widest(&spans), widest(&counts));
    // A mark, the columns, and the spaces between them.
    let left = page
        .columns
        .saturating_sub(2 + label + 2 + span_width + 2 + counts_width + 2);
    let bar = if left >= 10 { left.min(BAR) } else { 0 };
    for (at, (name, row)) in lines.iter().enumerate() {
        let (mark, mark_style) = match row {
            // It may have been reached by a step that was not read.
            None if page.detail.truncated && !page.is_summary => (glyphs.more, out::DIM),
            row => mark(*row, glyphs),
        };
        let name_style = if row.is_some() { out::BOLD } else { out::DIM };
        let name = cut_with(name, label, glyphs.more);
        let mut line = format!("{} {}", paint(mark_style, mark), paint(name_style, &name));
        if let Some(row) = row {
            let pad = |text: &str, width: usize| {
                " ".repeat(width.saturating_sub(super::super::columns::width(text)))
            };
            let _ = write!(
                line,
                "{}  {}{}",
                pad(&name, label),
                pad(&spans[at], span_width),
                spans[at]
            );
            if bar > 0 {
                let drawn = cells(row, run.triggered_at, end, bar);
                let (before, full) = (" ".repeat(drawn.0), glyphs.full.repeat(drawn.1));
                let after = " ".repeat(bar - drawn.0 - drawn.1);
                let full = match drawn.1 {
                    0 => full,
                    _ => paint(mark_style, &full),
                };
                let _ = write!(line, "  {before}{full}{after}");
            }
            let _ = write!(line, "  {}", counts[at]);
            let used = width(&line);
            if let Some(output) = row.output.as_ref().filter(|_| used + 12 <= page.columns) {
                let by = row.by.as_ref();
                let by = by.map_or(String::new(), |by| format!("by {by}: "));
                let output = cut_with(
                    &short(&format!("{by}{output}"), page.columns),
                    page.columns - used - 2,
                    glyphs.more,
                );
                let _ = write!(line, "  {}", paint(out::DIM, &output));
            }
        }
        let _ = writeln!(
            text,
            "{}",
            cut_with(line.trim_end(), page.columns.max(40), glyphs.more)
        );
    }
}

/// The steps of the flow, in its order, and any steps beside it, such as a hook.
fn lines<'a>(page: &'a Page<'_>) -> Vec<(String, Option<&'a NodeRow>)> {
    let of = |node: &str| page.nodes.iter().find(|row| row.node == node);
    let places = page.definition.map(flow::places).unwrap_or_default();
    let mut lines = Vec::new();
    for place in &places {
        let label = format!("{}{}", "  ".repeat(place.depth), out::clean(&place.label));
        lines.push((label, of(&place.node)));
    }
    for row in &page.nodes {
        if !places.iter().any(|place| place.node == row.node) {
            lines.push((out::clean(&row.node), Some(row)));
        }
    }
    lines
}

fn mark(row: Option<&NodeRow>, glyphs: &Glyphs) -> (&'static str, Style) {
    match row {
        None => (glyphs.ahead, out::DIM),
        Some(row) if row.failed > 0 => (glyphs.failed, out::BAD),
        Some(row) if row.waiting > 0 => (glyphs.asks, out::ASKS),
        Some(row) if row.completed == row.total => (glyphs.done, out::GOOD),
        Some(row) if row.running > 0 => (glyphs.running, out::BUSY),
        Some(row) if row.cancelled > 0 => (glyphs.cancelled, out::DIM),
        Some(_) => (glyphs.queued, out::BUSY),
    }
}

/// The time span of a node's steps together. A hook runs after the end of the timeline.
fn span(row: &NodeRow, end: i64) -> String {
    match row.from.zip(over(row).or(Some(end))) {
        Some((from, to)) if from <= to => time::span(time::between(from, to)),
        _ => String::new(),
    }
}

/// The time when the last step of a node ended, if all have.
fn over(row: &NodeRow) -> Option<i64> {
    let is_over = row.completed + row.failed + row.cancelled == row.total;
    row.to.filter(|_| is_over)
}

/// The same on the timeline, whose end it is while a step goes on.
fn ended(row: &NodeRow, end: i64) -> i64 {
    over(row).unwrap_or(end).min(end)
}

/// The number of cells before a bar, and of the bar: at least one, if anything ran.
fn cells(row: &NodeRow, begin: i64, end: i64, bar: usize) -> (usize, usize) {
    let Some(from) = row.from else {
        return (0, 0);
    };
    let whole = time::between(begin, end).as_micros().max(1);
    let cell = |at: i64| (time::between(begin, at).as_micros() * bar as u128 / whole) as usize;
    let first = cell(from).min(bar - 1);
    let last = cell(ended(row, end)).clamp(first + 1, bar);
    (first, last - first)
}

fn counts(row: &NodeRow, glyphs: &Glyphs) -> String {
    let mut parts = Vec::new();
    if row.total > 1 {
        parts.push(format!("{}{}", glyphs.times, row.total));
        if row.completed > 0 && row.completed < row.total {
            parts.push(paint(
                out::GOOD,
                &format!("{} {}", glyphs.done, row.completed),
            ));
        }
    }
    for (count, mark, style) in [
        (row.failed, glyphs.failed, out::BAD),
        (row.running, glyphs.running, out::BUSY),
        (row.waiting, glyphs.asks, out::ASKS),
        (row.cancelled, glyphs.cancelled, out::DIM),
    ] {
        if count > 0 && row.total > 1 {
            parts.push(paint(style, &format!("{mark} {count}")));
        }
    }
    if row.retries > 0 {
        parts.push(paint(
            out::ASKS,
            &format!("{} {}", glyphs.again, row.retries),
        ));
    }
    match row.copied {
        0 => {}
        n if n == row.total => parts.push(paint(out::DIM, "kept")),
        n => parts.push(paint(out::DIM, &format!("{n} kept"))),
    }
    parts.join(" ")
}

/// A step with errors, with each attempt that failed and the end of its log.
fn trouble(page: &Page<'_>, step: &StepRow, spreads: &[Spread], text: &mut String) {
    let glyphs = page.glyphs;
    let (mark, mark_style) = match step.status {
        StepStatus::Failed => (glyphs.failed, out::BAD),
        _ => (glyphs.again, out::ASKS),
    };
    let mut title = paint(out::BOLD, &out::clean(&step.node));
    let element = attempt::element(spreads);
    if !element.is_empty() {
        let _ = write!(title, ", {element}");
    }
    let _ = write!(title, ", {}", counted(step.attempts(), "attempt"));
    let input = paint(
        out::DIM,
        &format!("input {}", short(step.input.get(), ROOM)),
    );
    let title = format!("{} {title}  {input}", paint(mark_style, mark));
    let _ = writeln!(
        text,
        "\n{}",
        cut_with(&title, page.columns.max(40), glyphs.more)
    );
    let last = step
        .executions
        .iter()
        .rev()
        .find(|it| attempt::error(it).is_some());
    if let Some(first) = step.executions.first().filter(|first| first.attempt > 1) {
        let line = format!(
            "attempts 1 to {}: `ductworkd logs {} {}` shows their logs",
            first.attempt - 1,
            crate::model::short(page.detail.run.id),
            out::clean(&step.node)
        );
        let _ = writeln!(text, "    {}", paint(out::DIM, &line));
    }
    for execution in &step.executions {
        let Some(error) = attempt::error(execution)
            .filter(|_| execution.result != Some(ExecutionResult::Success))
        else {
            continue;
        };
        let took = execution.claimed_at.zip(execution.completed_at);
        let took = took.map_or_else(String::new, |(from, to)| {
            format!(" after {}", time::span(time::between(from, to)))
        });
        let line = format!("attempt {}{took}: {error}", execution.attempt);
        let _ = writeln!(text, "    {}", paint(out::BAD, &line));
        let is_last = last.is_some_and(|last| last.id == execution.id);
        if let Some(advice) = attempt::advice(execution).filter(|_| is_last) {
            let _ = writeln!(text, "      {}", out::clean(advice));
        }
        let room = if is_last { LOG_LINES } else { EARLIER_LINES };
        log(
            execution.error_backtrace.as_deref().unwrap_or_default(),
            room,
            text,
        );
    }
    let open = step.executions.iter().find(|it| it.result.is_none());
    let due = open.and_then(|open| due(open.due_at?, open.attempt, page.detail.now));
    if let Some(due) = due {
        let _ = writeln!(text, "    {due}");
    }
}

/// The time of an attempt that is still to come, in words.
fn due(due_at: i64, attempt: u32, now: i64) -> Option<String> {
    let due = || format!("attempt {attempt} is due {}", time::relative(due_at, now));
    (due_at > now).then(due)
}

/// For each node whose steps wait for the time of their first attempt, the earliest of these times.
fn scheduled(page: &Page<'_>, text: &mut String) {
    let mut nodes: Vec<(&str, i64)> = Vec::new();
    for step in &page.detail.steps {
        let first = step.executions.iter().find(|it| it.result.is_none());
        let at = first.filter(|it| it.attempt == 1).and_then(|it| it.due_at);
        let Some(at) = at.filter(|at| *at > page.detail.now) else {
            continue;
        };
        match nodes.iter_mut().find(|(node, _)| *node == step.node) {
            Some((_, earliest)) => *earliest = at.min(*earliest),
            None => nodes.push((&step.node, at)),
        }
    }
    for (node, at) in nodes {
        if let Some(due) = due(at, 1, page.detail.now) {
            let (mark, node) = (page.glyphs.queued, paint(out::BOLD, &out::clean(node)));
            let _ = writeln!(text, "\n{} {node}, {due}", paint(out::BUSY, mark));
        }
    }
}

/// The end of an attempt's log, unless it consists of its last line alone, which is the message.
fn log(log: &str, room: usize, text: &mut String) {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    if lines.len() < 2 {
        return;
    }
    for line in &lines[lines.len().saturating_sub(room)..] {
        let line = paint(out::DIM, &format!("| {}", short(line, ROOM)));
        let _ = writeln!(text, "      {line}");
    }
}

/// A step that waits for a person: the question, and the value to decide on.
fn asked(
    page: &Page<'_>,
    step: &StepRow,
    spreads: &[Spread],
    deadline: Option<&Due>,
    text: &mut String,
) {
    let prompt = page
        .definition
        .and_then(|it| it.node(it.find(&step.node)?).prompt.clone());
    let prompt = prompt.unwrap_or_else(|| "goes on with this value, or another".to_owned());
    let (mark, mut node) = (
        paint(out::ASKS, page.glyphs.asks),
        paint(out::BOLD, &out::clean(&step.node)),
    );
    // In the form that `resume --step` takes.
    if page.waiting.len() > 1 {
        let _ = write!(node, " ({})", crate::model::short(step.id));
    }
    let element = attempt::element(spreads);
    if !element.is_empty() {
        let _ = write!(node, ", {element},");
    }
    let deadline = match deadline {
        Some(deadline) => format!(" ({})", out::clean(&deadline.words())),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "\n{mark} {node} waits for a person: {}{deadline}",
        short(&prompt, 1_000)
    );
    for line in value::lines(&step.input, page.columns.saturating_sub(4))
        .lines()
        .take(OUTPUT_LINES)
    {
        let _ = writeln!(text, "    {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::glyphs::UNICODE;
    use super::*;

    #[test]
    fn a_summary_of_a_wide_run_counts_kept_steps_and_further_attempts() {
        let node = NodeProgress {
            node: "Row".to_owned(),
            step: "Row".to_owned(),
            via: Via::Expand.to_string(),
            total: 3_000,
            completed: 3_000,
            running: 0,
            retrying: 0,
            moving: 0,
            waiting: 0,
            failed: 0,
            cancelled: 0,
            copied: 2_995,
            first_at: Some(10),
            last_at: Some(150_010),
        };
        let retried = HashMap::from([("Row".to_owned(), 16)]);
        let rows = of_progress(&[node], &retried);
        let told = counts(&rows[0], &UNICODE);
        for part in ["×3000", "↻ 16", "2995 kept"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(span(&rows[0], 900_000), "150ms");
    }
}
