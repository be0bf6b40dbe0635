//! How long it took until work went on, by the kind of fault. Pure.
//!
//! Three kinds of span. Where attempts were lost with their processes: from the blow until the next attempt at
//! the same step starts, one span for each attempt that was lost. Where no process was lost but the database
//! was out of reach: from the end of that until one of the processes concerned starts a step, one span for
//! each time. Where a fault hit nodes of a cluster: the longest time from then until the cluster was whole
//! again in which no step started anywhere. The ledger's clock has a resolution of hundredths of a second.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use crate::history::{Fault, History, Kind, Line, Phase};

/// A pid is not reused this soon: the system hands out all its other pids first.
const SAME_PIDS: Duration = Duration::from_secs(60);

/// The spans of each kind of fault: those of lost attempts, those after outages, and those of a cluster.
#[derive(Default)]
pub struct Recovery {
    lost: BTreeMap<Kind, Vec<Duration>>,
    outages: BTreeMap<Kind, Vec<Duration>>,
    standstills: BTreeMap<Kind, Vec<Duration>>,
}

/// Measures them.
pub fn measure(history: &History) -> Recovery {
    let mut recovery = Recovery::default();
    let starts = history.lines.iter();
    let starts: Vec<&Line> = starts.filter(|line| line.phase == Phase::Start).collect();
    let of: HashMap<_, _> = starts.iter().map(|line| (line.execution, *line)).collect();
    let mut hits: HashMap<i32, Vec<&Fault>> = HashMap::new();
    for fault in &history.faults {
        for pid in &fault.hit {
            hits.entry(*pid).or_default().push(fault);
        }
    }
    for (at, execution) in history.executions.iter().enumerate() {
        let lost = matches!(execution.result.as_str(), "process_crashed" | "released");
        let Some(start) = of.get(&execution.id).filter(|_| lost) else {
            continue;
        };
        // Attempts at a step are adjacent, in their order.
        let later = history.executions[at + 1..].iter();
        let mut later = later.take_while(|later| later.step == execution.step);
        let Some(next) = later.find_map(|later| of.get(&later.id)) else {
            continue;
        };
        let hits = [start.worker, start.pid].map(|pid| hits.get(&pid).into_iter().flatten());
        let blows = hits.into_iter().flatten();
        // The last blow that can have cost the attempt; a zombie may have started it after the
        // blow.
        let blow = blows
            .filter(|fault| fault.at <= next.at)
            .max_by_key(|it| it.at);
        if let Some(blow) = blow {
            let span = next.at.saturating_sub(blow.at.max(start.at));
            recovery.lost.entry(blow.kind).or_default().push(span);
        }
    }
    for fault in history
        .faults
        .iter()
        .filter(|fault| fault.kind.is_of_a_node())
    {
        let span = standstill(&starts, fault);
        let spans = recovery.standstills.entry(fault.kind);
        spans.or_default().push(span);
    }
    let outage = |fault: &&Fault| fault.kind.is_outage() && !fault.kind.is_of_a_node();
    for fault in history.faults.iter().filter(outage) {
        let network = matches!(
            fault.kind,
            Kind::BlackHole
                | Kind::OneWay
                | Kind::Silent
                | Kind::Partition
                | Kind::StatementTimeout
        );
        // A fault of the triggering client.
        if network && fault.hit.is_empty() {
            continue;
        }
        let concerned = |line: &&&Line| fault.hit.is_empty() || fault.hit.contains(&line.worker);
        let from = starts.partition_point(|line| line.at < fault.until);
        let next = starts[from..].iter().find(concerned);
        // If all of them died before they could start one, other processes have their pids at some
        // point.
        let next = next.filter(|next| next.at - fault.until < SAME_PIDS);
        if let Some(next) = next {
            let span = next.at - fault.until;
            recovery.outages.entry(fault.kind).or_default().push(span);
        }
    }
    recovery
}

/// The longest time during the fault in which no step started.
fn standstill(starts: &[&Line], fault: &Fault) -> Duration {
    let from = starts.partition_point(|line| line.at < fault.at);
    let mut since = fault.at;
    let mut longest = Duration::ZERO;
    for line in &starts[from..] {
        longest = longest.max(line.at.saturating_sub(since));
        since = line.at;
        if since > fault.until {
            break;
        }
    }
    longest
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (
                "from the blow until a lost attempt is made again",
                &self.lost,
            ),
            ("from the end of it until a step starts", &self.outages),
            (
                "the longest time without a step, until all nodes are there again",
                &self.standstills,
            ),
        ];
        for (title, kinds) in parts {
            if !kinds.is_empty() {
                writeln!(f, "{title}:")?;
            }
            for (kind, spans) in kinds {
                let mut spans = spans.clone();
                spans.sort();
                let part = |of: usize| spans[(spans.len() * of).div_ceil(100).max(1) - 1];
                let [half, most, all] = [part(50), part(99), part(100)].map(|it| it.as_secs_f64());
                let (kind, times) = (format!("{kind:?}"), spans.len());
                writeln!(
                    f,
                    "  {kind:15} {times:6}  p50 {half:6.2} s  p99 {most:6.2} s  max {all:6.2} s"
                )?;
            }
        }
        Ok(())
    }
}
