//! The laws of runs that people cancelled or revived: L9 and L10 of the oracle.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::history::{Line, Order, Phase, Run, Told};
use crate::oracle::{Known, Verdict};

/// Checks the answers that people got against the stored rows.
pub fn judge(known: &Known<'_>, verdict: &mut Verdict) {
    let mut orders: HashMap<Uuid, Vec<&Order>> = HashMap::new();
    for order in &known.history.orders {
        orders.entry(order.run).or_default().push(order);
        answer(order, known, verdict);
    }
    let mut successors: HashMap<Uuid, Uuid> = HashMap::new();
    for run in &known.history.runs {
        let orders = |id: &Uuid| orders.get(id).map_or(&[][..], Vec::as_slice);
        if run.status == "cancelled" {
            cancelled(run, orders(&run.id), verdict);
        }
        let Some(from) = run.revived_from else {
            continue;
        };
        revived(run, orders(&from), known, verdict);
        if let Some(other) = successors.insert(from, run.id) {
            verdict.breaks("L10", format!("{other} and {} go on from {from}", run.id));
        }
    }
    for step in &known.history.steps {
        let run = known.runs.get(&step.run);
        if step.source.is_some() && run.is_none_or(|run| run.revived_from.is_none()) {
            verdict.breaks("L10", format!("nobody has revived the run of {step:?}"));
        }
    }
    for execution in &known.history.executions {
        let step = known.steps.get(&execution.step);
        let run = step.and_then(|step| known.runs.get(&step.run));
        let whole = run.is_none_or(|run| run.status != "cancelled");
        if execution.result == "cancelled" && whole {
            verdict.breaks("L9", format!("nobody has cancelled {execution:?}"));
        }
    }
    for line in &known.history.lines {
        let run = known.runs.get(&line.run);
        let cancelled = run.is_some_and(|run| run.status == "cancelled");
        if cancelled && line.phase == Phase::Start {
            let orders = orders.get(&line.run).map_or(&[][..], Vec::as_slice);
            started(line, orders, known, verdict);
        }
    }
}

/// An answer is true, and stays true.
fn answer(order: &Order, known: &Known<'_>, verdict: &mut Verdict) {
    let Some(run) = known.runs.get(&order.run) else {
        return verdict.breaks("L9", format!("there is no such run: {order:?}"));
    };
    let is = |status: &str| run.status == status;
    let goes_on = |id: &Uuid| {
        let successor = known.runs.get(id);
        successor.is_some_and(|successor| successor.revived_from == Some(run.id))
    };
    match &order.told {
        Told::Cancelled if !is("cancelled") => {
            verdict.breaks("L9", format!("{order:?}, and yet: {run:?}"));
        }
        Told::Over(status) if !is(status) => {
            verdict.breaks("L9", format!("{order:?}, and yet: {run:?}"));
        }
        Told::Revived(id) | Told::Before(id) if !goes_on(id) => {
            verdict.breaks("L10", format!("no run goes on from {run:?}: {order:?}"));
        }
        _ => {}
    }
}

fn cancelled(run: &Run, orders: &[&Order], verdict: &mut Verdict) {
    let with = |told: Told| orders.iter().filter(|order| order.told == told).count();
    match (with(Told::Cancelled), with(Told::MayBeCancelled)) {
        (1, _) | (0, 1..) => {}
        (times, _) => verdict.breaks("L9", format!("cancelled {times} times: {run:?}")),
    }
}

/// L10, except that there is only one such run.
fn revived(run: &Run, orders: &[&Order], known: &Known<'_>, verdict: &mut Verdict) {
    let asked = |order: &&&Order| {
        matches!(&order.told, Told::Revived(id) if *id == run.id)
            || order.told == Told::MayBeRevived
    };
    if orders.iter().filter(asked).count() == 0 {
        verdict.breaks("L10", format!("nobody has asked for {run:?}"));
    }
    let origin = run.revived_from.and_then(|from| known.runs.get(&from));
    let Some(origin) = origin else {
        return verdict.breaks("L10", format!("it goes on from nothing: {run:?}"));
    };
    let halted = origin.status == "halted" && origin.ended <= Some(run.triggered);
    if !halted || (&origin.input, &origin.pipeline) != (&run.input, &run.pipeline) {
        verdict.breaks("L10", format!("{run:?} goes on from {origin:?}"));
    }
    let mut copies: HashMap<Uuid, usize> = HashMap::new();
    for copy in known.steps_of(run.id) {
        let Some(source) = copy.source else { continue };
        *copies.entry(source).or_default() += 1;
        let same = known.steps.get(&source).is_some_and(|source| {
            source.run == origin.id
                && (&source.node, &source.input, &source.output, &source.status)
                    == (&copy.node, &copy.input, &copy.output, &copy.status)
        });
        let redone = !known.attempts(copy.id).is_empty();
        if !same || redone || copy.status != "completed" {
            verdict.breaks("L10", format!("it is no copy: {copy:?}"));
        }
    }
    for step in known.steps_of(origin.id) {
        let times = copies.get(&step.id).copied().unwrap_or_default();
        if times != usize::from(step.status == "completed") {
            verdict.breaks("L10", format!("{times} copies in {} of {step:?}", run.id));
        }
    }
}

/// L9: a worker learns by its next beat that a step is no longer its own, unless it could not
/// beat.
fn started(line: &Line, orders: &[&Order], known: &Known<'_>, verdict: &mut Verdict) {
    let hearing = known.hearing();
    let cancel = |order: &&&Order| matches!(order.told, Told::Cancelled | Told::MayBeCancelled);
    let until: Option<Duration> = orders.iter().filter(cancel).map(|it| it.until).max();
    let Some(until) = until.filter(|until| line.at > *until + hearing) else {
        return;
    };
    let deaf = known.history.faults.iter().any(|fault| {
        let kept = fault.kind.is_outage() || fault.kind.leaves_zombies();
        kept && fault.at <= line.at && until <= fault.until + hearing
    });
    verdict.untold += 1;
    if !deaf {
        verdict.breaks(
            "L9",
            format!("its run was cancelled at {until:?}: {line:?}"),
        );
    }
}
