//! Actions in many runs at once.
//!
//! Owns: the runs that an action is for, the account of the runs that it has dealt with, and when it
//! returns to a run that somebody else had locked. Never: reads or changes a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::*;
use crate::time::micros;

/// The most runs that can be chosen one by one.
pub const CHOSEN_MAX: usize = 500;

/// The most failures that are reported one by one.
const TOLD: usize = 20;

/// The longest reason, in characters.
const LETTERS: usize = 300;

/// The most runs that are set aside at the same time. At that number the other runs wait: they may be locked
/// as well.
const ASIDE_MAX: usize = 50;

/// The waits before each further attempt at a run that somebody else has locked.
pub const PAUSES: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(35),
    Duration::from_secs(50),
];

/// The states of runs in which an action changes anything; none if it is not for many runs at once.
pub const fn states(verb: Verb) -> &'static [RunStatus] {
    match verb {
        Verb::Revive => &[RunStatus::Halted],
        Verb::Cancel => &[RunStatus::InProgress, RunStatus::Dampened],
        Verb::Resume => &[RunStatus::Dampened],
        Verb::Trigger | Verb::Pause | Verb::Unpause | Verb::Send => &[],
    }
}

/// The runs that an action is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// These runs.
    Chosen(Vec<RunId>),
    /// All runs that match.
    Matching(Filter),
}

impl Selection {
    /// These runs, each once.
    pub fn chosen(mut runs: Vec<RunId>) -> Self {
        runs.sort_unstable();
        runs.dedup();
        Self::Chosen(runs)
    }
}

/// The properties that runs have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only runs of this pipeline.
    pub pipeline: Option<String>,
    /// Runs in one of these states.
    pub statuses: Vec<RunStatus>,
    /// Runs triggered at this time or later: µs since 1970.
    pub since: Option<i64>,
    /// Runs that halted in this way.
    pub kind: Option<Kind>,
}

/// A way in which a run has halted: that of its first halted branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kind {
    /// The node.
    pub node: Option<String>,
    /// Why the branch halted.
    pub reason: Option<String>,
    /// The class of the error, for machines.
    pub class: Option<String>,
    /// The kind of the error's message.
    pub error: String,
}

/// A run of a bulk action that was left as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The run.
    pub run: RunId,
    /// The reason, for people.
    pub why: String,
    /// The run is set aside, and will be tried again; `None` when it has failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// The next attempt at a run that was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// The earliest time: µs since 1970.
    pub at: i64,
    /// Attempts so far.
    pub tries: u32,
}

/// The account of runs that were dealt with and not changed, since the last account was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The last of them.
    pub last: Option<RunId>,
    /// Runs that were in another state by then.
    pub skipped: i64,
    /// Runs that could not be changed.
    pub failed: i64,
    /// The first of the runs that failed, including those that were known before, and all runs that are set
    /// aside.
    pub failures: Vec<Failure>,
}

fn clipped(why: &str) -> String {
    why.chars().take(LETTERS).collect()
}

impl Account {
    /// An account that continues from these failures.
    pub fn after(failures: Vec<Failure>) -> Self {
        Self {
            failures,
            ..Self::default()
        }
    }

    /// A run that the action is not for.
    pub fn pass(&mut self, run: RunId) {
        self.last = Some(run);
    }

    /// A run in which there was nothing to do.
    pub fn skip(&mut self, run: RunId) {
        self.last = Some(run);
        self.skipped += 1;
    }

    /// A run that was left as it is.
    pub fn fail(&mut self, run: RunId, why: &str) {
        self.last = Some(run);
        self.failed += 1;
        if self.is_told() {
            let why = clipped(why);
            let again = None;
            self.failures.push(Failure { run, why, again });
        }
    }

    /// There is room for one more run that failed.
    fn is_told(&self) -> bool {
        self.failures.len() - self.aside().count() < TOLD
    }

    /// A run that somebody else has locked is left for later: until it is changed it counts as failed.
    pub fn set_aside(&mut self, run: RunId, why: &str, now: i64, pauses: &[Duration]) {
        let Some(pause) = pauses.first() else {
            return self.fail(run, why);
        };
        self.last = Some(run);
        self.failed += 1;
        self.failures.push(Failure {
            run,
            why: clipped(why),
            again: Some(Again {
                at: now.saturating_add(micros(*pause)),
                tries: 1,
            }),
        });
    }

    /// The runs that are set aside.
    pub fn aside(&self) -> impl Iterator<Item = (RunId, Again)> {
        let aside = self.failures.iter();
        aside.filter_map(|it| Some((it.run, it.again?)))
    }

    /// No more runs are set aside before one of them is dealt with.
    pub fn is_full(&self) -> bool {
        self.aside().count() >= ASIDE_MAX
    }

    /// The wait until the next attempt at a run that is set aside, and that run; `None` if there is none. A
    /// clock that was set back makes no wait longer than the longest.
    pub fn next(&self, now: i64, pauses: &[Duration]) -> Option<(Duration, RunId)> {
        let (run, again) = self.aside().min_by_key(|(_, again)| again.at)?;
        let longest = pauses.iter().max().copied().unwrap_or_default();
        let wait = u64::try_from(again.at.saturating_sub(now)).unwrap_or_default();
        let wait = Duration::from_micros(wait);
        Some((if wait > longest { Duration::ZERO } else { wait }, run))
    }

    /// A run that was set aside is dealt with, and has not failed.
    pub fn settle(&mut self, run: RunId) {
        self.failures
            .retain(|it| it.run != run || it.again.is_none());
    }

    /// A further attempt at a run that was set aside has failed as well: schedules the next one, or gives the
    /// run up.
    pub fn put_off(&mut self, run: RunId, why: &str, now: i64, pauses: &[Duration]) {
        let tries = self.aside().find(|(id, _)| *id == run);
        let tries = tries.map_or(0, |(_, again)| again.tries);
        let Some(pause) = pauses.get(tries as usize) else {
            return self.give_up(run, why);
        };
        let of_run = self.failures.iter_mut().filter(|it| it.run == run);
        for failure in of_run {
            failure.why = clipped(why);
            failure.again = Some(Again {
                at: now.saturating_add(micros(*pause)),
                tries: tries + 1,
            });
        }
    }

    /// A run that was set aside has failed for good. It is already counted as failed.
    pub fn give_up(&mut self, run: RunId, why: &str) {
        self.settle(run);
        if self.is_told() {
            let why = clipped(why);
            let again = None;
            self.failures.push(Failure { run, why, again });
        }
    }

    /// Starts afresh, once this account is written.
    pub fn clear(&mut self) {
        (self.last, self.skipped, self.failed) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_reads_what_it_writes() {
        let (one, other) = (RunId::new(), RunId::new());
        let filter = Filter {
            pipeline: Some("Import".to_owned()),
            statuses: vec![RunStatus::Halted],
            since: Some(5),
            kind: Some(Kind {
                error: "HTTP #".to_owned(),
                ..Kind::default()
            }),
        };
        for selection in [
            Selection::chosen(vec![one, other, one]),
            Selection::Matching(filter),
            Selection::Matching(Filter::default()),
        ] {
            let text = serde_json::to_string(&selection).expect("it has no map");
            let read: Selection = serde_json::from_str(&text).expect("it is our own");
            assert_eq!(read, selection);
        }
        assert_eq!(
            Selection::chosen(vec![other, one, other]),
            Selection::Chosen(vec![one.min(other), one.max(other)])
        );
    }

    #[test]
    fn a_run_that_is_set_aside_is_tried_again_with_growing_pauses_and_then_has_failed() {
        let mut account = Account::after(Vec::new());
        let (locked, other) = (RunId::new(), RunId::new());
        let mut now = 7;
        account.set_aside(locked, "locked", now, &PAUSES);
        account.fail(other, "no");
        assert_eq!((account.failed, account.last), (2, Some(other)));
        for (n, pause) in PAUSES.iter().enumerate() {
            assert_eq!(account.next(now, &PAUSES), Some((*pause, locked)), "{n}");
            // A clock that was set back does not hold the run up.
            assert_eq!(
                account.next(i64::MIN / 2, &PAUSES),
                Some((Duration::ZERO, locked))
            );
            now += micros(*pause);
            assert_eq!(account.next(now, &PAUSES), Some((Duration::ZERO, locked)));
            account.put_off(locked, &format!("locked {n}"), now, &PAUSES);
        }
        assert_eq!(account.next(now, &PAUSES), None);
        assert_eq!(account.failed, 2, "it is counted once");
        let told: Vec<&str> = account.failures.iter().map(|it| it.why.as_str()).collect();
        assert_eq!(told, ["no", "locked 4"]);
        assert!(PAUSES.iter().sum::<Duration>() >= Duration::from_secs(120));
    }

    #[test]
    fn those_that_are_set_aside_are_bounded_and_take_no_room_of_those_that_failed() {
        let mut account = Account::after(Vec::new());
        let first = RunId::new();
        account.set_aside(first, "locked", 0, &PAUSES);
        for _ in 1..ASIDE_MAX {
            assert!(!account.is_full());
            account.set_aside(RunId::new(), "locked", 1, &PAUSES);
        }
        assert!(account.is_full());
        account.fail(RunId::new(), "no");
        assert_eq!(account.failures.len(), ASIDE_MAX + 1);
        account.settle(first);
        assert!(!account.is_full());
        assert_eq!(account.aside().count(), ASIDE_MAX - 1);
        for (run, _) in account.aside().collect::<Vec<_>>() {
            account.give_up(run, "locked");
        }
        assert_eq!(account.failures.len(), TOLD);
    }

    #[test]
    fn an_account_tells_some_failures_and_counts_all() {
        let mut account = Account::after(Vec::new());
        for _ in 0..TOLD + 5 {
            account.fail(RunId::new(), &"é".repeat(LETTERS + 1));
        }
        assert_eq!(account.failed, (TOLD + 5) as i64);
        assert_eq!(account.failures.len(), TOLD);
        assert_eq!(account.failures[0].why.chars().count(), LETTERS);
        account.clear();
        account.skip(RunId::new());
        let last = RunId::new();
        account.pass(last);
        assert_eq!((account.skipped, account.failed), (1, 0));
        assert_eq!(account.last, Some(last));
        assert_eq!(account.failures.len(), TOLD, "those are told on");
    }
}
