//! Interventions in many runs at once.
//!
//! Owns: the runs that one is for, and the account of those that it has dealt with. Never: reads or changes a
//! run.

use serde::{Deserialize, Serialize};

use crate::model::*;

/// Runs that are chosen one by one.
pub const CHOSEN_MAX: usize = 500;

/// Failures that are told one by one.
const TOLD: usize = 20;

/// Characters of a reason.
const LETTERS: usize = 300;

/// The states of runs in which an intervention changes anything; none where it is not for many runs at once.
pub const fn states(verb: Verb) -> &'static [RunStatus] {
    match verb {
        Verb::Revive => &[RunStatus::Halted],
        Verb::Cancel => &[RunStatus::InProgress, RunStatus::Dampened],
        Verb::Resume => &[RunStatus::Dampened],
        Verb::Trigger | Verb::Pause | Verb::Unpause => &[],
    }
}

/// The runs that an intervention is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// These.
    Chosen(Vec<RunId>),
    /// All that match.
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
    /// Of this pipeline only.
    pub pipeline: Option<String>,
    /// In one of these states.
    pub statuses: Vec<RunStatus>,
    /// Triggered then or later: µs since 1970.
    pub since: Option<i64>,
    /// Halted in this way.
    pub kind: Option<Kind>,
}

/// A way in which a run has halted: of its first branch that did.
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

/// A run of a bulk intervention that was left as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The run.
    pub run: RunId,
    /// The reason, for people.
    pub why: String,
}

/// The account of runs that were dealt with and not changed, since the last one was written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The last of them.
    pub last: Option<RunId>,
    /// Runs that were in another state by then.
    pub skipped: i64,
    /// Runs that could not be changed.
    pub failed: i64,
    /// The first of those that failed, with those that were known before.
    pub failures: Vec<Failure>,
}

impl Account {
    /// One that goes on from these failures.
    pub fn after(failures: Vec<Failure>) -> Self {
        Self {
            failures,
            ..Self::default()
        }
    }

    /// A run that was not meant.
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
        if self.failures.len() < TOLD {
            let why = why.chars().take(LETTERS).collect();
            self.failures.push(Failure { run, why });
        }
    }

    /// Begins anew, once this is written.
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
