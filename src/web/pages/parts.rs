//! The parts of which pages are made.
//!
//! Owns: the markup of a state, a time, an id, a bar, so that each looks the same everywhere. Never: reads
//! anything.

use askama::Template;
use askama::filters::HtmlSafe;

use crate::model::*;
use crate::store::departed::Departed;
use crate::store::page::{Attempt, Holder, StepHead};
use crate::time;
use crate::view;
use crate::wire::process::State as Judged;

/// A state: a sign, a word, and a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Template)]
#[template(
    source = "<span class=\"state {{ class }}\"><span aria-hidden=\"true\">{{ sign }}</span> {{ word }}</span>",
    ext = "html"
)]
pub struct State {
    pub sign: &'static str,
    pub word: &'static str,
    pub class: &'static str,
}

impl HtmlSafe for State {}

const fn state(sign: &'static str, word: &'static str, class: &'static str) -> State {
    State { sign, word, class }
}

/// The state of a run.
pub fn of_run(status: RunStatus) -> State {
    let word = view::word(status);
    match status {
        RunStatus::Completed => state("✓", word, "good"),
        RunStatus::Halted => state("✗", word, "bad"),
        RunStatus::Dampened => state("?", word, "asks"),
        RunStatus::InProgress => state("●", word, "busy"),
        RunStatus::Cancelled => state("–", word, "dim"),
    }
}

/// The meaning of a run's state, for new users.
pub fn meaning(status: RunStatus) -> &'static str {
    match status {
        RunStatus::InProgress => "It moves, or waits for its turn",
        RunStatus::Dampened => "It waits for the answer of a person",
        RunStatus::Halted => "It stopped for good, with a reason; a revive goes on from there",
        RunStatus::Completed => "It has an output",
        RunStatus::Cancelled => "A person ended it",
    }
}

/// Whether a checked invariant holds; none: it was not checked.
pub fn of_check(holds: Option<bool>) -> State {
    match holds {
        Some(true) => state("✓", "holds", "good"),
        Some(false) => state("✗", "broken", "bad"),
        None => state("–", "not checked", "dim"),
    }
}

/// Whether a drill has shown its point.
pub fn of_drill(ok: bool) -> State {
    match ok {
        true => state("✓", "shown", "good"),
        false => state("✗", "failed", "bad"),
    }
}

/// The state of a run whose first step is not due yet.
pub const SCHEDULED: State = state("○", "scheduled", "busy");

/// The state of a step, refined by its latest attempt.
pub fn of_step(step: &StepHead) -> State {
    let latest = step.latest.as_ref().filter(|it| it.result.is_none());
    match (step.status, latest) {
        (StepStatus::InProgress, Some(attempt)) => of_open(attempt),
        (status, _) => of_step_status(status),
    }
}

/// The state of a step, from its own status alone.
fn of_step_status(status: StepStatus) -> State {
    match status {
        StepStatus::InProgress => state("●", "in progress", "busy"),
        StepStatus::Advancing | StepStatus::Completed => state("✓", "completed", "good"),
        StepStatus::Waiting => state("?", "waiting", "asks"),
        StepStatus::Failed => state("✗", "failed", "bad"),
        StepStatus::Cancelled => state("–", "cancelled", "dim"),
    }
}

/// The state of a branch of a fan-out.
pub fn of_branch(status: BranchStatus) -> State {
    match status {
        BranchStatus::InProgress | BranchStatus::Advancing | BranchStatus::Waiting => {
            state("●", "going on", "busy")
        }
        BranchStatus::Dampened => state("?", "waiting", "asks"),
        BranchStatus::Completed => state("✓", "completed", "good"),
        BranchStatus::Halted => state("✗", "halted", "bad"),
        BranchStatus::Cancelled => state("–", "cancelled", "dim"),
    }
}

/// The number of attempts, if the last one has this number: one that waits in the queue does not count yet.
pub fn attempts(number: u32, was_claimed: bool, result: Option<ExecutionResult>) -> u32 {
    let is_queued = !was_claimed && result.is_none();
    number.saturating_sub(u32::from(is_queued))
}

/// The state of an attempt.
pub fn of_attempt(attempt: &Attempt) -> State {
    match attempt.result {
        None => of_open(attempt),
        Some(ExecutionResult::Success) => state("✓", "success", "good"),
        Some(ExecutionResult::Error) => state("✗", "error", "bad"),
        Some(ExecutionResult::ProcessCrashed) => state("☠", "crashed", "bad"),
        Some(ExecutionResult::TimedOut) => state("✗", "timed out", "bad"),
        Some(ExecutionResult::Cancelled) => state("–", "cancelled", "dim"),
        Some(ExecutionResult::Released) => state("↩", "given back", "dim"),
    }
}

/// The error of an attempt that did not succeed, in words.
pub fn error(attempt: &Attempt) -> Option<String> {
    let result = attempt.result?;
    let (class, message) = (
        attempt.error_class.as_deref(),
        attempt.error_message.as_deref(),
    );
    let is_told = class.is_some() || message.is_some();
    let message = message.map(str::trim).filter(|it| !it.is_empty());
    is_told.then(|| view::attempt::error(result.as_str(), class, message))
}

fn of_open(attempt: &Attempt) -> State {
    match (attempt.process_id, attempt.number) {
        (Some(_), _) => state("●", "running", "busy"),
        (None, 1) => state("○", "queued", "busy"),
        (None, _) => state("↻", "retrying", "busy"),
    }
}

/// Whether a process gives signs of life, and can do its work.
pub fn of_process(judged: Judged, intake: Intake) -> State {
    match (judged, intake) {
        (Judged::Dead, _) => state("✗", "dead", "bad"),
        (Judged::Stale, _) => state("✗", "silent", "bad"),
        (Judged::Troubled, _) => state("⚠", "trouble", "bad"),
        (Judged::Healthy, Intake::Quiet) => state("‖", "quiet", "asks"),
        (Judged::Healthy, Intake::Stopping) => state("■", "stopping", "asks"),
        (Judged::Healthy, Intake::Open) => state("✓", "healthy", "good"),
    }
}

/// How a process ended.
pub fn of_departed(process: &Departed) -> State {
    match (&process.death, process.went_on_as) {
        (None, _) => state("–", "ended cleanly", "dim"),
        (Some(_), Some(_)) => state("–", "taken for dead", "dim"),
        (Some(_), None) => state("☠", "died", "bad"),
    }
}

/// A time, as seen when the page was read.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(
    source = "<time datetime=\"{{ at }}\" title=\"{{ at }}\">{{ text }}</time>",
    ext = "html"
)]
pub struct Moment {
    pub at: String,
    pub text: String,
}

impl HtmlSafe for Moment {}

/// A time as its distance from now.
pub fn ago(at: i64, now: i64) -> Moment {
    Moment {
        at: time::rfc3339(at),
        text: time::relative(at, now),
    }
}

/// A time itself, to the second.
pub fn at(at: i64) -> Moment {
    Moment {
        text: seconds(at),
        at: time::rfc3339(at),
    }
}

/// `2026-11-24 12:34:56 UTC`.
pub fn seconds(at: i64) -> String {
    let whole = time::rfc3339(at);
    match whole.split_once('T') {
        Some((day, rest)) => format!("{day} {} UTC", rest.get(..8).unwrap_or(rest)),
        None => whole,
    }
}

/// A run's id in its short form, as a link.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(
    source = "<a class=\"id\" href=\"/runs/{{ id }}\" title=\"{{ id }}\">{{ short }}</a>",
    ext = "html"
)]
pub struct RunLink {
    pub id: RunId,
    pub short: String,
}

impl HtmlSafe for RunLink {}

/// The link to a run.
pub fn run(id: RunId) -> RunLink {
    RunLink {
        id,
        short: short(id),
    }
}

/// A process that holds or held something.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(
    source = "<span class=\"id\">{{ place }}</span>{% if is_gone %} <span class=\"dim\">(gone{% if let Some(how) = death %}: {{ how }}{% endif %})</span>{% endif %}",
    ext = "html"
)]
pub struct Place {
    pub place: String,
    pub is_gone: bool,
    /// How its death became known, if it did not end in order.
    pub death: Option<String>,
}

impl HtmlSafe for Place {}

/// Where an attempt runs or ran.
pub fn place(process: Option<ProcessId>, holders: &[Holder]) -> Option<Place> {
    let id = process?;
    let found = holders.iter().find(|holder| holder.id == id);
    Some(match found {
        Some(holder) => Place {
            place: format!("{}/{}", holder.host, holder.pid),
            is_gone: holder.is_gone,
            death: holder.death.clone(),
        },
        None => Place {
            place: short(id),
            is_gone: true,
            death: Some("nothing more is known of it".to_owned()),
        },
    })
}

/// A span within a longer one: a piece in which it waits, and one in which it runs.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(
    source = "<svg class=\"bar\" viewBox=\"0 0 200 10\" width=\"200\" height=\"10\" role=\"img\" aria-label=\"{{ label }}\"><title>{{ label }}</title><rect class=\"bar-track\" width=\"200\" height=\"10\" rx=\"2\"/>{% if waits.1 > 0 %}<rect class=\"bar-wait\" x=\"{{ waits.0 }}\" width=\"{{ waits.1 }}\" height=\"10\"/>{% endif %}{% if runs.1 > 0 %}<rect class=\"bar-run {{ class }}\" x=\"{{ runs.0 }}\" width=\"{{ runs.1 }}\" height=\"10\"/>{% endif %}</svg>",
    ext = "html"
)]
pub struct Bar {
    pub label: String,
    pub waits: (u64, u64),
    pub runs: (u64, u64),
    pub class: &'static str,
}

impl HtmlSafe for Bar {}

/// The number of a bar's columns.
const COLUMNS: u128 = 200;

impl Bar {
    /// Within the span from `from` to `to`: it waits from `since` on, runs from `began`, and ends.
    pub fn of(
        (from, to): (i64, i64),
        since: i64,
        began: Option<i64>,
        ended: i64,
        class: &'static str,
    ) -> Self {
        let whole = time::between(from, to).as_micros().max(1);
        let column = |at: i64| {
            let at = time::between(from, at.min(to)).as_micros();
            u64::try_from(at * COLUMNS / whole).unwrap_or_default()
        };
        let piece = |start: i64, end: i64| {
            let (start, end) = (column(start).min(198), column(end));
            // Even the shortest piece is visible.
            (start, end.saturating_sub(start).max(2))
        };
        let begins = began.unwrap_or(ended);
        let span = |from, to| time::span(time::between(from, to));
        let waited = format!("waited {}", span(since, begins));
        Self {
            label: match began {
                Some(began) => format!("{waited}, ran {}", span(began, ended)),
                None => waited,
            },
            waits: match begins > since {
                true => piece(since, begins),
                false => (0, 0),
            },
            runs: began.map_or((0, 0), |began| piece(began, ended)),
            class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_in_the_queue_is_not_counted_yet() {
        let cancelled = Some(ExecutionResult::Cancelled);
        for (number, was_claimed, result, counted) in [
            (1, false, None, 0),
            (2, false, None, 1),
            (2, true, None, 2),
            (1, false, cancelled, 1),
        ] {
            assert_eq!(attempts(number, was_claimed, result), counted, "{number}");
        }
    }

    #[test]
    fn a_bar_is_where_its_time_is_and_can_be_seen() {
        let bar = Bar::of((0, 1_000_000), 250_000, Some(500_000), 1_000_000, "good");
        assert_eq!((bar.waits, bar.runs), ((50, 50), (100, 100)));
        assert_eq!(bar.label, "waited 250ms, ran 500ms");
        let short = Bar::of((0, 1_000_000), 999_999, Some(999_999), 1_000_000, "good");
        assert_eq!(short.runs, (198, 2));
        let none = Bar::of((5, 5), 5, None, 5, "busy");
        assert_eq!((none.waits, none.runs), ((0, 0), (0, 0)));
    }

    #[test]
    fn a_part_escapes_what_is_in_it() {
        let holder = Holder {
            id: ProcessId::new(),
            host: "<b>\"'&".to_owned(),
            pid: 7,
            is_gone: true,
            death: Some("<i>".to_owned()),
        };
        let place = place(Some(holder.id), std::slice::from_ref(&holder)).expect("it is known");
        let markup = place.to_string();
        assert!(
            !markup.contains("<b>") && !markup.contains("<i>"),
            "{markup}"
        );
        assert!(markup.contains("&#60;b&#62;"), "{markup}");
    }
}
