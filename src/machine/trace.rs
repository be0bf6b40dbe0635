//! A run as a trace, derived from its rows.
//!
//! Owns: the spans of a run and their ids, which follow from its rows: deriving them twice gives the same spans,
//! and an attempt whose process was killed is among them. Never: sends anything, or reads a clock.
//!
//! The run is the root; each attempt is a span below it, linked to the attempt before. The trace is the run's own,
//! with a link to the caller's span, or it is the caller's, if the definition says so.

use crate::definition::RunTrace;
use crate::model::trace::SAMPLED;
use crate::model::*;

/// The most spans of one trace: those that failed before all others.
pub const SPANS: usize = 1_000;

/// A run and its attempts, all times in µs since 1970.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The run.
    pub run: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its state.
    pub status: RunStatus,
    /// The key that it was triggered with.
    pub key: Option<String>,
    /// The halted run that it continues.
    pub revived_from: Option<RunId>,
    /// The span of the caller that triggered it.
    pub within: Option<TraceParent>,
    /// The state of that span's trace, as `tracestate` writes it.
    pub state: Option<String>,
    /// The trace that its definition wants it in.
    pub trace: RunTrace,
    /// When it was triggered.
    pub triggered_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// The database's time: the end of everything that is still going on.
    pub now: i64,
    /// The attempts that began; those of a step are together and in order.
    pub attempts: Vec<Attempt>,
    /// There are more steps than those with these attempts.
    pub is_sample: bool,
}

/// An attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its execution.
    pub id: ExecutionId,
    /// The step.
    pub step: StepId,
    /// The step's node.
    pub node: String,
    /// The place of its branch in a fan-out.
    pub element: Option<u64>,
    /// 1, 2, ….
    pub number: u32,
    /// When the step was reached.
    pub created_at: i64,
    /// When a process took it.
    pub claimed_at: i64,
    /// When it ended.
    pub completed_at: Option<i64>,
    /// How it ended.
    pub result: Option<ExecutionResult>,
    /// The class of its error.
    pub class: Option<String>,
    /// Its error, for people.
    pub message: Option<String>,
    /// The host that ran it, as long as that is known.
    pub host: Option<String>,
    /// The process that ran it.
    pub process: Option<ProcessId>,
}

/// The id of a span, of 64 bits: the random half of a row's id, which is never zero because it has the
/// variant of a UUID.
pub type SpanId = u64;

/// The id of a trace, of 128 bits.
pub type TraceId = u128;

/// The id of the trace that a run is in.
pub fn trace(run: RunId, of: RunTrace, within: Option<TraceParent>) -> TraceId {
    match (of, within) {
        (RunTrace::Parent, Some(within)) => within.trace,
        _ => run.0.as_u128(),
    }
}

/// The span of an attempt, as it is passed to the step.
pub fn handed(
    run: RunId,
    of: RunTrace,
    within: Option<TraceParent>,
    execution: ExecutionId,
) -> TraceParent {
    TraceParent {
        trace: trace(run, of, within),
        span: span(execution),
        flags: SAMPLED,
    }
}

/// The id of a run's root span.
pub fn root(run: RunId) -> SpanId {
    run.0.as_u64_pair().1
}

/// The id of an attempt's span.
pub fn span(execution: ExecutionId) -> SpanId {
    execution.0.as_u64_pair().1
}

/// How a span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Without a status: the span goes on, or was withdrawn.
    Unset,
    /// As intended.
    Ok,
    /// With an error.
    Error,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// A span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its id.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// The span of the attempt before, or of the caller, and its trace.
    pub link: Option<(TraceId, SpanId)>,
    /// The state of the caller's trace: of the trace that the span is in, or of the one that its link leads to.
    pub state: Option<String>,
    /// Its name: all runs of a pipeline share a few names.
    pub name: String,
    /// True for the work of one process, taken off the queue.
    pub is_consumer: bool,
    /// µs since 1970.
    pub start: i64,
    /// µs since 1970; never before the start.
    pub end: i64,
    /// How it ended.
    pub status: End,
    /// The error, for people.
    pub message: String,
    /// Further facts.
    pub attributes: Vec<(&'static str, Value)>,
}

/// The spans of a run, its root first.
pub fn spans(facts: &Facts) -> Vec<Span> {
    let mut chosen: Vec<(usize, &Attempt)> = facts.attempts.iter().enumerate().collect();
    let is_long = chosen.len() >= SPANS;
    if is_long {
        chosen.sort_by_key(|(at, attempt)| (end(attempt.result) != End::Error, *at));
        chosen.truncate(SPANS - 1);
        chosen.sort_by_key(|(at, _)| *at);
    }
    let mut all = facts.attempts.iter().enumerate();
    let is_cut = all.any(|(at, it)| it.number > 1 && facts.before(at, it).is_none());
    let mut spans = vec![of_run(facts, is_long || is_cut)];
    let trace = facts.trace_id();
    for (at, attempt) in chosen {
        let before = facts.before(at, attempt);
        spans.push(of_attempt(facts, trace, attempt, before));
    }
    spans
}

impl Facts {
    /// The attempt of the same step before the one at this place, unless it is left out.
    fn before(&self, at: usize, attempt: &Attempt) -> Option<&Attempt> {
        let before = self.attempts.get(at.checked_sub(1)?)?;
        (before.step == attempt.step).then_some(before)
    }

    /// The trace that all spans are in.
    pub fn trace_id(&self) -> TraceId {
        trace(self.run, self.trace, self.within)
    }
}

fn of_run(facts: &Facts, is_cut: bool) -> Span {
    let mut attributes = vec![
        ("ductwork.pipeline", Value::Text(facts.pipeline.clone())),
        ("ductwork.run.id", Value::Text(facts.run.to_string())),
        (
            "ductwork.run.status",
            Value::Text(facts.status.as_str().to_owned()),
        ),
    ];
    if let Some(key) = &facts.key {
        attributes.push(("ductwork.run.key", Value::Text(key.clone())));
    }
    if let Some(from) = facts.revived_from {
        attributes.push(("ductwork.run.revived_from", Value::Text(from.to_string())));
    }
    if facts.is_sample || is_cut {
        attributes.push(("ductwork.trace.is_sample", Value::Flag(true)));
    }
    let (parent, link) = match (facts.trace, facts.within) {
        (_, None) => (None, None),
        (RunTrace::Own, Some(within)) => (None, Some((within.trace, within.span))),
        (RunTrace::Parent, Some(within)) => (Some(within.span), None),
    };
    Span {
        id: root(facts.run),
        parent,
        link,
        state: facts.state.clone(),
        name: facts.pipeline.clone(),
        is_consumer: false,
        start: facts.triggered_at,
        end: facts.ended_at.unwrap_or(facts.now).max(facts.triggered_at),
        status: match facts.status {
            RunStatus::Completed => End::Ok,
            RunStatus::Halted => End::Error,
            _ => End::Unset,
        },
        message: match facts.status {
            RunStatus::Halted => "the run has halted".to_owned(),
            _ => String::new(),
        },
        attributes,
    }
}

fn of_attempt(facts: &Facts, trace: TraceId, attempt: &Attempt, before: Option<&Attempt>) -> Span {
    let text = |text: &str| Value::Text(text.to_owned());
    // An attempt waits from the end of the attempt before, and the first attempt from when its step was
    // reached. It is unknown how long an attempt waited if the attempt before is left out.
    let since = match before {
        Some(before) => before.completed_at,
        None => (attempt.number == 1).then_some(attempt.created_at),
    };
    let mut attributes = vec![
        ("ductwork.pipeline", text(&facts.pipeline)),
        ("ductwork.run.id", Value::Text(facts.run.to_string())),
        ("ductwork.step.id", Value::Text(attempt.step.to_string())),
        ("ductwork.step.node", text(&attempt.node)),
        ("ductwork.attempt", Value::Number(attempt.number.into())),
    ];
    if let Some(since) = since {
        let waited = attempt.claimed_at.saturating_sub(since).max(0);
        attributes.push(("ductwork.waited_us", Value::Number(waited)));
    }
    if let Some(result) = attempt.result {
        attributes.push(("ductwork.result", text(result.as_str())));
    }
    if let Some(element) = attempt.element.and_then(|it| i64::try_from(it).ok()) {
        attributes.push(("ductwork.element", Value::Number(element)));
    }
    if let Some(class) = &attempt.class {
        attributes.push(("error.type", text(class)));
    }
    if let Some(host) = &attempt.host {
        attributes.push(("host.name", text(host)));
    }
    if let Some(process) = attempt.process {
        attributes.push(("ductwork.process.id", Value::Text(process.to_string())));
    }
    Span {
        id: span(attempt.id),
        parent: Some(root(facts.run)),
        link: before.map(|it| (trace, span(it.id))),
        state: None,
        name: attempt.node.clone(),
        is_consumer: true,
        start: attempt.claimed_at,
        end: attempt
            .completed_at
            .unwrap_or(facts.now)
            .max(attempt.claimed_at),
        status: end(attempt.result),
        message: match end(attempt.result) {
            End::Error => attempt.message.clone().unwrap_or_default(),
            _ => String::new(),
        },
        attributes,
    }
}

fn end(result: Option<ExecutionResult>) -> End {
    match result {
        Some(ExecutionResult::Success) => End::Ok,
        Some(
            ExecutionResult::Error | ExecutionResult::ProcessCrashed | ExecutionResult::TimedOut,
        ) => End::Error,
        Some(ExecutionResult::Cancelled | ExecutionResult::Released) | None => End::Unset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(step: StepId, number: u32, result: Option<ExecutionResult>) -> Attempt {
        let claimed_at = 100 * i64::from(number);
        Attempt {
            id: ExecutionId::new(),
            step,
            node: "A".to_owned(),
            element: None,
            number,
            created_at: 90,
            claimed_at,
            completed_at: result.map(|_| claimed_at + 30),
            result,
            class: None,
            message: Some("no luck".to_owned()),
            host: None,
            process: None,
        }
    }

    fn facts(attempts: Vec<Attempt>) -> Facts {
        Facts {
            run: RunId::new(),
            pipeline: "P".to_owned(),
            status: RunStatus::InProgress,
            key: None,
            revived_from: None,
            within: None,
            state: None,
            trace: RunTrace::Own,
            triggered_at: 80,
            ended_at: None,
            now: 1_000,
            attempts,
            is_sample: false,
        }
    }

    #[test]
    fn each_attempt_is_a_span_below_the_run_linked_to_the_one_before() {
        let (one, other) = (StepId::new(), StepId::new());
        let attempts = vec![
            attempt(one, 1, Some(ExecutionResult::ProcessCrashed)),
            attempt(one, 2, Some(ExecutionResult::Success)),
            attempt(other, 1, None),
        ];
        let facts = facts(attempts);
        let spans = spans(&facts);
        let [run, crashed, succeeded, open] = spans.as_slice() else {
            panic!("{spans:?}");
        };
        assert_eq!(run.id, facts.run.0.as_u64_pair().1);
        assert_eq!((run.parent, run.start, run.end), (None, 80, 1_000));
        for span in [crashed, succeeded, open] {
            assert_eq!(span.parent, Some(run.id));
        }
        assert_eq!((crashed.status, crashed.link), (End::Error, None));
        assert_eq!(crashed.message, "no luck");
        assert_eq!(
            (succeeded.status, succeeded.link),
            (End::Ok, Some((facts.run.0.as_u128(), crashed.id)))
        );
        assert_eq!(succeeded.message, "", "it is no error's");
        assert_eq!(
            (open.status, open.link, open.end),
            (End::Unset, None, 1_000)
        );
        let waited = |span: &Span| {
            let mut all = span.attributes.iter();
            all.find(|(name, _)| *name == "ductwork.waited_us")
                .unwrap()
                .1
                .clone()
        };
        assert_eq!(waited(crashed), Value::Number(10));
        assert_eq!(waited(succeeded), Value::Number(70));
        assert_eq!(super::spans(&facts), spans, "twice is once");
    }

    #[test]
    fn a_run_has_a_link_to_its_caller_or_is_in_its_trace() {
        let within = TraceParent {
            trace: 7,
            span: 8,
            flags: 0,
        };
        let step = StepId::new();
        let attempts = vec![attempt(step, 1, None), attempt(step, 2, None)];
        let last = attempts[1].id;
        let mut facts = facts(attempts);
        facts.within = Some(within);
        let own = facts.run.0.as_u128();
        let all = spans(&facts);
        assert_eq!(facts.trace_id(), own);
        assert_eq!((all[0].parent, all[0].link), (None, Some((7, 8))));
        assert_eq!(all[2].link, Some((own, all[1].id)));

        facts.trace = RunTrace::Parent;
        let joined = spans(&facts);
        assert_eq!(facts.trace_id(), 7);
        assert_eq!((joined[0].parent, joined[0].link), (Some(8), None));
        assert_eq!(joined[2].link, Some((7, all[1].id)));
        let ids = |spans: &[Span]| spans.iter().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(ids(&joined), ids(&all), "the spans are the same in either");
        let told = handed(facts.run, facts.trace, facts.within, last);
        assert_eq!((told.trace, told.span), (7, joined[2].id));
        assert_eq!(
            told.flags, SAMPLED,
            "the run is recorded, whatever its caller is"
        );

        facts.within = None;
        assert_eq!(facts.trace_id(), own, "nobody has told one");
        assert_eq!(
            (spans(&facts)[0].parent, spans(&facts)[0].link),
            (None, None)
        );
    }

    #[test]
    fn of_too_many_attempts_those_that_failed_are_kept() {
        let mut attempts: Vec<Attempt> = (0..SPANS)
            .map(|_| attempt(StepId::new(), 1, Some(ExecutionResult::Success)))
            .collect();
        attempts.push(attempt(StepId::new(), 1, Some(ExecutionResult::TimedOut)));
        let spans = spans(&facts(attempts));
        assert_eq!(spans.len(), SPANS);
        assert_eq!(spans.iter().filter(|it| it.status == End::Error).count(), 1);
        let is_sample = ("ductwork.trace.is_sample", Value::Flag(true));
        assert!(spans[0].attributes.contains(&is_sample));
    }

    #[test]
    fn a_step_whose_first_attempts_are_left_out_says_so_and_tells_no_wait_that_is_unknown() {
        let (often, once) = (StepId::new(), StepId::new());
        let failed = Some(ExecutionResult::Error);
        let mut facts = facts(vec![
            attempt(often, 1, failed),
            attempt(often, 2, failed),
            attempt(often, 3, None),
            attempt(once, 1, None),
        ]);
        let is_sample = ("ductwork.trace.is_sample", Value::Flag(true));
        let waited = |span: &Span| {
            let mut all = span.attributes.iter();
            let found = all.find(|(name, _)| *name == "ductwork.waited_us");
            found.map(|(_, value)| value.clone())
        };
        let whole = spans(&facts);
        assert!(!whole[0].attributes.contains(&is_sample));
        assert!(whole[1..].iter().all(|span| waited(span).is_some()));

        facts.attempts.remove(0);
        let cut = spans(&facts);
        assert!(cut[0].attributes.contains(&is_sample));
        let waits: Vec<_> = cut[1..].iter().map(waited).collect();
        assert_eq!(
            waits,
            [None, Some(Value::Number(70)), Some(Value::Number(10))]
        );
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_span_that_ends_before_it_begins() {
        let mut odd = attempt(StepId::new(), 1, Some(ExecutionResult::Success));
        odd.completed_at = Some(odd.claimed_at - 50);
        odd.created_at = odd.claimed_at + 7;
        let facts = Facts {
            ended_at: Some(10),
            ..facts(vec![odd])
        };
        assert!(spans(&facts).iter().all(|it| it.end >= it.start));
    }
}
