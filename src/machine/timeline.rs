//! The place of each step of a run on a time line.
//!
//! Owns: every coordinate of a timeline, which elements are drawn when there are too many, and which idle times
//! are folded. Never: reads a clock: a step that still runs ends at the database's time, which the caller passes
//! in.
//!
//! Up to [`ROWS`] steps have a row each, with every attempt. If there are more, each node has a row, with a sample
//! of its steps, and those that failed go before all others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::*;
use crate::time;

use super::layout::{Label, label, width};

/// The most steps that have a row each; and the most steps of one node that are drawn when nodes have rows.
pub const ROWS: usize = 200;

/// The most attempts and elements in a whole picture, so that a browser handles it quickly.
pub const BARS: usize = 600;

/// The space around the whole picture.
const MARGIN: u32 = 12;
/// The most and the least columns of a row's name.
const NAME: usize = 30;
const NAME_LEAST: usize = 6;
const LETTER: u32 = 8;
/// The space between a name and the point where the time begins.
const APART: u32 = 14;
/// The length of all times together, including the folded ones.
const SPAN: u32 = 800;
/// The length of a folded time.
const FOLD: u32 = 36;
/// The space above the rows, where the times are written.
pub const HEAD: u32 = 26;
/// The height of a row.
pub const ROW: u32 = 22;
/// The height of a bar in it.
pub const BAR: u32 = 12;
/// The least width that can be seen and pointed at.
const LEAST: u32 = 2;
/// The least distance between two written times.
const TICK: u32 = 72;

/// A run and its steps, all times in µs since 1970.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// When it was triggered.
    pub triggered_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// The database's time.
    pub now: i64,
    /// The steps, oldest first: all of them, or some of the steps of a run that is too wide.
    pub steps: Vec<StepTime>,
    /// There are more steps than these.
    pub is_sample: bool,
}

/// A step.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// The step.
    pub id: StepId,
    /// Its node.
    pub node: String,
    /// The place of its branch in a fan-out: 0, 1, ….
    pub element: Option<u64>,
    /// Its state.
    pub status: StepStatus,
    /// When it was reached.
    pub created_at: i64,
    /// When its first attempt was claimed.
    pub started_at: Option<i64>,
    /// When it ended.
    pub completed_at: Option<i64>,
    /// Its output was kept from an earlier run.
    pub is_copied: bool,
    /// Its attempts in order: the last of them, and none when nodes have rows.
    pub attempts: Vec<AttemptTime>,
}

impl StepTime {
    /// True if it has not run again in this run.
    fn is_kept(&self) -> bool {
        self.is_copied && self.started_at.is_none() && self.completed_at.is_some()
    }
}

/// An attempt.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTime {
    /// 1, 2, ….
    pub number: u32,
    /// When a process took it.
    pub claimed_at: Option<i64>,
    /// When it ended.
    pub completed_at: Option<i64>,
    /// How it ended.
    pub result: Option<ExecutionResult>,
}

/// A picture of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The size of the whole picture.
    pub width: u32,
    /// The size of the whole picture.
    pub height: u32,
    /// Where the time begins and ends.
    pub span: (u32, u32),
    /// The rows, from top to bottom.
    pub rows: Vec<Row>,
    /// Idle times that are drawn shorter than they were.
    pub folds: Vec<Fold>,
    /// The times that are written, and their positions.
    pub ticks: Vec<(u32, String)>,
    /// Nodes have rows, and only a sample of their steps is drawn.
    pub is_by_node: bool,
}

/// A row: a step, or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub label: Label,
    /// Its upper side.
    pub y: u32,
    /// The step, if the row is one.
    pub step: Option<StepId>,
    /// The whole row in words.
    pub told: String,
    /// From when until when the node had any work.
    pub extent: Option<(u32, u32)>,
    /// Its pieces, in the order in which they are drawn.
    pub bars: Vec<Bar>,
}

/// A piece of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its left side.
    pub x: u32,
    /// Its length.
    pub width: u32,
    /// How that time was spent.
    pub kind: Kind,
    /// The step.
    pub step: StepId,
    /// The same in words.
    pub told: String,
}

/// How a time was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was in the queue, or not due yet.
    Waited,
    /// A person was asked.
    Asked,
    /// It still runs.
    Runs,
    /// It ran, and returned a value.
    Succeeded,
    /// It ran, and failed.
    Failed,
    /// It ran, and was given back or cancelled.
    Stopped,
}

impl Kind {
    fn of(result: Option<ExecutionResult>) -> Self {
        match result {
            None => Self::Runs,
            Some(ExecutionResult::Success) => Self::Succeeded,
            Some(ExecutionResult::Cancelled | ExecutionResult::Released) => Self::Stopped,
            Some(
                ExecutionResult::Error
                | ExecutionResult::ProcessCrashed
                | ExecutionResult::TimedOut,
            ) => Self::Failed,
        }
    }

    fn of_step(status: StepStatus) -> Self {
        match status {
            StepStatus::InProgress => Self::Runs,
            StepStatus::Waiting => Self::Asked,
            StepStatus::Advancing | StepStatus::Completed => Self::Succeeded,
            StepStatus::Failed => Self::Failed,
            StepStatus::Cancelled => Self::Stopped,
        }
    }
}

/// An idle time that is drawn shorter than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// Its left side.
    pub x: u32,
    /// Its length.
    pub width: u32,
    /// How long it was.
    pub idle: Duration,
}

/// The timeline of a run.
pub fn place(facts: &Facts) -> Timeline {
    let is_by_node = facts.is_sample || facts.steps.len() > ROWS;
    // Kept steps have the times of the run in which they ran.
    let own = facts.steps.iter().filter(|step| !step.is_kept());
    let times = own.flat_map(|step| {
        let attempts = step.attempts.iter();
        let of_attempts = attempts.flat_map(|it| [it.claimed_at, it.completed_at]);
        of_attempts
            .chain([Some(step.created_at), step.started_at, step.completed_at])
            .flatten()
    });
    // A hook runs after the end of its run.
    let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), at| {
        (first.min(at), last.max(at))
    });
    let goes_on =
        |step: &StepTime| step.completed_at.is_none() && step.status == StepStatus::InProgress;
    let mut to = facts.ended_at.unwrap_or(facts.now).max(last);
    if facts.steps.iter().any(goes_on) {
        to = to.max(facts.now);
    }
    // The time of a damaged row could overflow every sum.
    let within = |at: i64| at.clamp(i64::MIN / 4, i64::MAX / 4);
    let (from, to) = (within(facts.triggered_at.min(first)), within(to));
    let names = facts.steps.iter().map(|step| match is_by_node {
        false => width(&step.node) + step.element.map_or(0, |it| width(&number(it))),
        true => width(&step.node),
    });
    let columns = names.max().unwrap_or(0).clamp(NAME_LEAST, NAME);
    let left = MARGIN + columns as u32 * LETTER + APART;
    let scale = Scale::of(from, to, busy(facts, to), left);
    let mut placing = Placing {
        scale: &scale,
        to,
        rows: Vec::new(),
    };
    match is_by_node {
        false => placing.steps(&facts.steps),
        true => placing.nodes(facts),
    }
    let rows = placing.rows;
    Timeline {
        width: left + SPAN + MARGIN,
        height: HEAD + ROW * u32::try_from(rows.len()).unwrap_or(u32::MAX / ROW / 2) + MARGIN,
        span: (left, left + SPAN),
        folds: scale.folds(),
        ticks: scale.ticks(),
        rows,
        is_by_node,
    }
}

/// The times during which something ran.
fn busy(facts: &Facts, to: i64) -> Vec<(i64, i64)> {
    let mut busy: Vec<(i64, i64)> = Vec::new();
    for step in &facts.steps {
        let whole = step.started_at.filter(|_| step.attempts.is_empty());
        busy.extend(whole.map(|at| (at, step.completed_at.unwrap_or(to))));
        let attempts = step.attempts.iter();
        busy.extend(
            attempts.filter_map(|it| Some((it.claimed_at?, it.completed_at.unwrap_or(to)))),
        );
    }
    busy.sort_unstable();
    busy
}

/// A piece of time, and its pixels.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: i64,
    to: i64,
    x: u32,
    width: u32,
    is_fold: bool,
}

/// The mapping from times to pixels.
struct Scale {
    pieces: Vec<Piece>,
}

impl Scale {
    /// Idle times of more than a tenth of the whole are folded, unless nothing ran at all: then the whole is one
    /// piece.
    fn of(from: i64, to: i64, busy: Vec<(i64, i64)>, left: u32) -> Self {
        let to = to.max(from.saturating_add(1));
        let long = to.saturating_sub(from) / 10;
        let mut cuts: Vec<(i64, i64)> = Vec::new();
        let mut until = from;
        let ends = (!busy.is_empty()).then_some((to, to));
        for (begins, ends) in busy.into_iter().chain(ends) {
            let (begins, ends) = (begins.clamp(from, to), ends.clamp(from, to));
            if begins - until > long {
                cuts.push((until, begins));
            }
            until = until.max(begins).max(ends);
        }
        let folded: i64 = cuts.iter().map(|(from, to)| to - from).sum();
        let drawn = (to - from - folded).max(1);
        let folds = FOLD * u32::try_from(cuts.len()).unwrap_or(10);
        let room = SPAN.saturating_sub(folds);
        let mut pieces = Vec::new();
        let (mut at, mut x, mut passed) = (from, left, 0);
        let right = left + SPAN;
        for (begins, ends) in cuts.into_iter().chain([(to, to)]) {
            // The times are summed before the division, so that rounding loses no pixel.
            let folds = left
                + FOLD
                    * u32::try_from(pieces.iter().filter(|it: &&Piece| it.is_fold).count())
                        .unwrap_or(10);
            passed += begins - at;
            let end = (folds + scaled(passed, drawn, room)).min(right);
            pieces.push(Piece {
                from: at,
                to: begins,
                x,
                width: end - x,
                is_fold: false,
            });
            (at, x) = (begins, end);
            if ends > begins {
                pieces.push(Piece {
                    from: begins,
                    to: ends,
                    x,
                    width: FOLD,
                    is_fold: true,
                });
                (at, x) = (ends, x + FOLD);
            }
        }
        Self { pieces }
    }

    fn x(&self, at: i64) -> u32 {
        let piece = self.pieces.iter().find(|piece| at <= piece.to);
        let Some(piece) = piece.or(self.pieces.last()) else {
            return 0;
        };
        let at = at.clamp(piece.from, piece.to) - piece.from;
        piece.x + scaled(at, piece.to - piece.from, piece.width)
    }

    fn folds(&self) -> Vec<Fold> {
        let folds = self.pieces.iter().filter(|piece| piece.is_fold);
        let fold = |piece: &Piece| Fold {
            x: piece.x,
            width: piece.width,
            idle: time::between(piece.from, piece.to),
        };
        folds.map(fold).collect()
    }

    /// Round times since the beginning, as many as there is space for, and none in a folded time.
    fn ticks(&self) -> Vec<(u32, String)> {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            return Vec::new();
        };
        let whole = self.pieces.iter().filter(|piece| !piece.is_fold);
        let drawn: i64 = whole.map(|piece| piece.to - piece.from).sum();
        let step = STEPS.iter().find(|step| drawn / **step <= 8).copied();
        let step = step.unwrap_or(drawn / 8).max(1);
        let mut ticks: Vec<(u32, String)> = Vec::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_fold) {
            // Starts at the first tick in this piece: a fold may span years.
            let mut after = (piece.from - first.from + step - 1) / step * step;
            while first.from + after <= piece.to {
                let x = self.x(first.from + after);
                let is_apart = ticks.last().is_none_or(|(before, _)| before + TICK <= x);
                let is_inside = x + TICK / 2 <= last.x + last.width;
                if is_apart && is_inside {
                    let text = match after {
                        0 => "0".to_owned(),
                        after => round(after),
                    };
                    ticks.push((x, text));
                }
                after += step;
            }
        }
        ticks
    }
}

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// The distances of ticks, in µs.
const STEPS: [i64; 25] = [
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
    600 * SECOND,
    1_800 * SECOND,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    24 * HOUR,
    48 * HOUR,
    168 * HOUR,
    720 * HOUR,
    8_760 * HOUR,
];

/// A round span, without the units that are zero: `2m`, `1.5s`.
fn round(after: i64) -> String {
    let text = time::span(Duration::from_micros(after.unsigned_abs()));
    let text = text
        .strip_suffix(" 0s")
        .or(text.strip_suffix(" 0m"))
        .or(text.strip_suffix(" 0h"));
    let text = text.map_or_else(
        || time::span(Duration::from_micros(after.unsigned_abs())),
        str::to_owned,
    );
    text.replace(".0s", "s")
}

/// The pixels of a time within a longer one.
fn scaled(at: i64, whole: i64, room: u32) -> u32 {
    let pixels = i128::from(at.max(0)) * i128::from(room) / i128::from(whole.max(1));
    u32::try_from(pixels).unwrap_or(room).min(room)
}

struct Placing<'a> {
    scale: &'a Scale,
    to: i64,
    rows: Vec<Row>,
}

impl Placing<'_> {
    fn bar(&self, step: &StepTime, from: i64, to: i64, kind: Kind, told: String) -> Bar {
        let (x, end) = (self.scale.x(from), self.scale.x(to));
        Bar {
            x,
            width: end.saturating_sub(x).max(LEAST),
            kind,
            step: step.id,
            told,
        }
    }

    fn row(
        &mut self,
        name: &str,
        step: Option<StepId>,
        told: String,
        extent: Option<(u32, u32)>,
        bars: Vec<Bar>,
    ) {
        let y = HEAD + ROW * u32::try_from(self.rows.len()).unwrap_or(u32::MAX / ROW / 2);
        self.rows.push(Row {
            label: label(name, NAME),
            y,
            step,
            told,
            extent,
            bars,
        });
    }

    /// A row for each step.
    fn steps(&mut self, steps: &[StepTime]) {
        for step in steps {
            let name = match step.element {
                Some(element) => {
                    // The number distinguishes this row from the others: the name is cut before it.
                    let number = number(element);
                    let room = NAME.saturating_sub(width(&number));
                    format!("{}{number}", label(&step.node, room).text)
                }
                None => step.node.clone(),
            };
            let bars = self.attempts(step);
            let told: Vec<&str> = bars.iter().map(|bar| bar.told.as_str()).collect();
            let told = match (step.is_copied, told.is_empty()) {
                (true, _) => "kept from an earlier run".to_owned(),
                (false, true) => "reached".to_owned(),
                (false, false) => told.join(", "),
            };
            let whole = match step.element {
                Some(element) => format!("{}, element {}", step.node, element + 1),
                None => step.node.clone(),
            };
            self.row(&name, Some(step.id), format!("{whole}: {told}"), None, bars);
        }
    }

    /// The pieces of a step: its attempts, and the waits before them.
    fn attempts(&self, step: &StepTime) -> Vec<Bar> {
        let span = |from, to| time::span(time::between(from, to));
        let mut bars = Vec::new();
        if step.attempts.is_empty() && !step.is_copied {
            let ends = step.completed_at.unwrap_or(self.to);
            let told = format!("a person was asked for {}", span(step.created_at, ends));
            bars.push(self.bar(step, step.created_at, ends, Kind::Asked, told));
        }
        // It is unknown how long the first attempt in this list waited, unless it is the first of all.
        let is_whole = step.attempts.first().is_some_and(|it| it.number == 1);
        let mut since = is_whole.then_some(step.created_at);
        for attempt in &step.attempts {
            let ends = attempt.completed_at.unwrap_or(self.to);
            let waits = attempt.claimed_at.unwrap_or(ends);
            if let Some(since) = since.filter(|since| *since < waits) {
                let told = format!("waited {}", span(since, waits));
                bars.push(self.bar(step, since, waits, Kind::Waited, told));
            }
            if let Some(claimed) = attempt.claimed_at {
                let kind = Kind::of(attempt.result);
                let how = match attempt.result {
                    None => "has run for",
                    Some(ExecutionResult::Success) => "ran",
                    Some(ExecutionResult::Error) => "failed after",
                    Some(ExecutionResult::ProcessCrashed) => "crashed after",
                    Some(ExecutionResult::TimedOut) => "timed out after",
                    Some(ExecutionResult::Cancelled) => "was cancelled after",
                    Some(ExecutionResult::Released) => "was given back after",
                };
                let told = format!("attempt {} {how} {}", attempt.number, span(claimed, ends));
                bars.push(self.bar(step, claimed, ends, kind, told));
            }
            since = Some(ends);
        }
        bars
    }

    /// A row for each node, in the order in which they were reached.
    fn nodes(&mut self, facts: &Facts) {
        let mut order: Vec<&str> = Vec::new();
        let mut nodes: BTreeMap<&str, Vec<&StepTime>> = BTreeMap::new();
        for step in &facts.steps {
            let of = nodes.entry(&step.node).or_default();
            if of.is_empty() {
                order.push(&step.node);
            }
            of.push(step);
        }
        let room = (BARS / order.len().max(1)).clamp(1, ROWS);
        for node in order.into_iter().take(BARS) {
            let Some(of) = nodes.remove(node) else {
                continue;
            };
            let (kept, of): (Vec<&StepTime>, Vec<&StepTime>) =
                of.into_iter().partition(|it| it.is_kept());
            let kept = (!kept.is_empty())
                .then(|| format!("{} kept from an earlier run", steps_of(kept.len())));
            if of.is_empty() {
                let told = format!("{node}: {}", kept.unwrap_or_default());
                self.row(node, None, told, None, Vec::new());
                continue;
            }
            let failed = of
                .iter()
                .filter(|it| it.status == StepStatus::Failed)
                .count();
            let begins = of.iter().map(|it| it.created_at).min().unwrap_or(self.to);
            let ends = of.iter().map(|it| it.completed_at.unwrap_or(self.to)).max();
            let ends = ends.unwrap_or(self.to);
            let span = time::span(time::between(begins, ends));
            let is_sample = facts.is_sample && of.iter().any(|it| it.element.is_some());
            let sample_of = if is_sample { "a sample of " } else { "" };
            let mut told = format!("{node}: {sample_of}{} in {span}", steps_of(of.len()));
            if failed > 0 {
                told.push_str(&format!(", {failed} failed"));
            }
            if let Some(kept) = kept {
                told.push_str(&format!(", {kept}"));
            }
            let bars = sample(&of, room)
                .into_iter()
                .filter_map(|it| self.whole(it));
            let mut bars: Vec<Bar> = bars.collect();
            // Failures are drawn on top of the others.
            bars.sort_by_key(|bar| bar.kind == Kind::Failed);
            let extent = Some((self.scale.x(begins), self.scale.x(ends)));
            self.row(node, None, told, extent, bars);
        }
    }

    /// A step from its first attempt to its end.
    fn whole(&self, step: &StepTime) -> Option<Bar> {
        let ends = step.completed_at.unwrap_or(self.to);
        let begins = match (step.started_at, step.status) {
            (Some(at), _) => at,
            (None, StepStatus::Waiting) => step.created_at,
            (None, _) => return None,
        };
        let kind = Kind::of_step(step.status);
        let element = match step.element {
            Some(element) => format!("element {}", element + 1),
            None => step.node.clone(),
        };
        let how = match kind {
            Kind::Failed => ": failed after",
            Kind::Runs => ": for",
            Kind::Asked => ": asks for",
            _ => ":",
        };
        let span = time::span(time::between(begins, ends));
        Some(self.bar(step, begins, ends, kind, format!("{element}{how} {span}")))
    }
}

/// The number of an element, written after the name of its node.
fn number(element: u64) -> String {
    format!(" {}", element + 1)
}

fn steps_of(n: usize) -> String {
    match n {
        1 => "1 step".to_owned(),
        n => format!("{} steps", crate::number::grouped(n as u64)),
    }
}

/// This many of the steps: those that failed first, then some of the others, evenly spaced.
fn sample<'a>(steps: &[&'a StepTime], room: usize) -> Vec<&'a StepTime> {
    let (failed, others): (Vec<&StepTime>, Vec<&StepTime>) =
        steps.iter().partition(|it| it.status == StepStatus::Failed);
    let mut chosen: Vec<&StepTime> = failed.into_iter().take(room).collect();
    let left = (room - chosen.len()).min(others.len());
    // The last of the others is drawn too.
    let last = others.len().saturating_sub(1);
    chosen.extend((0..left).filter_map(|at| others.get(at * last / left.saturating_sub(1).max(1))));
    chosen
}

#[cfg(test)]
mod tests;
