//! What a worker has to commit, what it may hold without knowing, and which transaction comes first.
//!
//! Owns: a worker's operations, and what it makes of their answers, and of none. `worker` performs
//! them when it is time; the explorer performs the same ones in every order, with answers that are
//! lost, late or refused (`store/explorer`). Pure but for `perform`, which calls the store.
//! Never: runs a step (`slots` do), decides what an ending costs (`machine::outcome`), connects,
//! waits, or tells anybody.

use std::collections::HashSet;
use std::time::Duration;

use crate::model::ExecutionId;
use crate::store::claim::{self, Claim, Claimed};
use crate::store::commit::{self, Committed, Committer, Finished};
use crate::store::place::Place;
use crate::store::process::{self, Claimant};
use crate::store::{Conn, Error};

/// Results per transaction: a bound on how much one refused commit has to take apart.
const BATCH_MAX: usize = 500;

/// The executions of a worker, as far as they do not run.
#[derive(Clone, Debug)]
pub struct Executions {
    finished: Vec<Finished>,
    /// How many of them to commit at once.
    batch: usize,
    doubt: Doubt,
}

/// After a transaction whose fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// There was none.
    No,
    /// What has been committed is not known, nor what is held.
    Landed,
    /// What is held is not known.
    Held,
}

/// What a worker does at once with the database: one transaction, and after a lost answer a question.
#[derive(Debug)]
pub enum Operation {
    /// Asks which results were committed, once nothing that an earlier connection has sent can claim
    /// or commit any more.
    ReadLanded,
    /// Asks what its process holds.
    ReadHeld,
    /// Claims as many, of what stands behind this place.
    Claim {
        /// Where the last claim ended.
        behind: Place,
        /// How many.
        room: usize,
    },
    /// Puts back what it has claimed and not started. Whoever has it done does not hold it any more.
    PutBack(Vec<ExecutionId>),
    /// Commits the first results, and takes the steps that follow along.
    Commit {
        /// So many of them.
        batch: usize,
        /// How many steps it may lease at birth.
        room: usize,
    },
}

/// What came of an operation.
#[derive(Debug)]
pub enum Answer {
    /// The results that were committed.
    Landed(HashSet<ExecutionId>),
    /// What the process holds.
    Held(Vec<Claimed>),
    /// What was claimed, and the place of the last of it.
    Claimed(Claim, Place),
    /// How many were put back.
    PutBack(usize),
    /// What a commit came to.
    Committed(Committed),
}

/// On which terms a worker claims and commits.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Whose executions it claims.
    pub pipeline: &'a str,
    /// For how long.
    pub lease: Duration,
}

impl Default for Executions {
    fn default() -> Self {
        Self {
            finished: Vec::new(),
            batch: BATCH_MAX,
            doubt: Doubt::No,
        }
    }
}

impl Executions {
    /// Takes a result, to be committed.
    pub fn finish(&mut self, finished: Finished) {
        self.finished.push(finished);
    }

    /// The results that are to be committed.
    pub fn finished(&self) -> &[Finished] {
        &self.finished
    }

    /// The result that is committed next, to be changed if the database does not take it.
    pub fn first_mut(&mut self) -> Option<&mut Finished> {
        self.finished.first_mut()
    }

    /// How many results the next commit takes.
    pub fn batch(&self) -> usize {
        self.finished.len().min(self.batch)
    }

    /// What has to be done before anything is claimed, put back or committed.
    pub fn first(&self) -> Option<Operation> {
        match self.doubt {
            Doubt::No => None,
            Doubt::Landed => Some(Operation::ReadLanded),
            Doubt::Held => Some(Operation::ReadHeld),
        }
    }

    /// False while there may be claims that are not known here.
    pub fn is_sure(&self) -> bool {
        self.doubt == Doubt::No
    }

    /// True while there may be claims whose leases a heartbeat has to extend, beside those that run.
    pub fn may_hold(&self) -> bool {
        !self.finished.is_empty() || !self.is_sure()
    }

    /// What is held has to be asked for: what was claimed was dropped before it was begun.
    pub fn doubt(&mut self) {
        self.doubt = Doubt::Landed;
    }

    /// Takes note of an operation that could not be begun, because there is no connection.
    pub fn not_begun(&mut self, operation: &Operation) {
        if let Operation::PutBack(_) = operation {
            self.doubt();
        }
    }

    /// Does an operation. `ReadLanded` is two transactions, of which the first says nothing that
    /// could be lost.
    pub async fn perform(
        &self,
        operation: &Operation,
        conn: &mut Conn,
        me: Claimant,
        terms: Terms<'_>,
    ) -> Result<Answer, Error> {
        let Terms { pipeline, lease } = terms;
        match operation {
            Operation::ReadLanded => {
                process::fence_earlier(conn, me).await?;
                let landed = commit::landed(conn, &self.finished, me.process).await;
                landed.map(Answer::Landed)
            }
            Operation::ReadHeld => claim::held(conn, me.process).await.map(Answer::Held),
            Operation::Claim { behind, room } => {
                let claim = claim::claim_behind(conn, *behind, me, pipeline, *room, lease).await;
                claim.map(|(claim, last)| Answer::Claimed(claim, last))
            }
            Operation::PutBack(ids) => {
                let count = claim::put_back(conn, me, pipeline, ids).await;
                count.map(Answer::PutBack)
            }
            Operation::Commit { batch, room } => {
                let committer = Committer {
                    claimant: me,
                    pipeline,
                    lease,
                    room: *room,
                };
                let committed = commit::commit(conn, &self.finished[..*batch], committer).await;
                committed.map(Answer::Committed)
            }
        }
    }

    /// Takes note of what came of `done`, and gives it on; of what it holds, only what is not known
    /// here. `None`: a batch was refused, and what is to blame is going to be found.
    pub fn settle(
        &mut self,
        done: &Operation,
        mut answer: Result<Answer, Error>,
    ) -> Result<Option<Answer>, Error> {
        match (done, &mut answer) {
            (_, Ok(Answer::Landed(landed))) => {
                let is_open = |it: &Finished| !landed.contains(&it.claimed.execution_id);
                self.finished.retain(is_open);
                self.doubt = Doubt::Held;
            }
            (_, Ok(Answer::Held(held))) => {
                held.retain(|claimed| !self.has(claimed.execution_id));
                self.doubt = Doubt::No;
            }
            (Operation::Commit { batch, .. }, Ok(_)) => {
                self.finished.drain(..batch);
                self.batch = (self.batch * 2).min(BATCH_MAX);
            }
            (_, Ok(_)) => {}
            // Whatever became of it, nobody here runs them.
            (Operation::Claim { .. } | Operation::PutBack(_), Err(_)) => self.doubt(),
            (_, Err(Error::Unavailable { in_commit, .. })) => {
                if *in_commit {
                    self.doubt();
                }
            }
            // One result that the database refuses must not hold up the others: by halves, until
            // it is alone. Then it is tried again after the others, if it is not to blame: the
            // work is as good as before.
            (Operation::Commit { batch, .. }, Err(error)) => match batch {
                1 if error.blames_the_value() => {}
                1 => self.finished.rotate_left(1),
                batch => {
                    self.batch = *batch / 2;
                    return Ok(None);
                }
            },
            (_, Err(_)) => {}
        }
        answer.map(Some)
    }

    /// What it remembers beside the results, for whoever compares memories.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> (usize, i64) {
        (self.batch, self.doubt as i64)
    }

    fn has(&self, id: ExecutionId) -> bool {
        let mut finished = self.finished.iter();
        finished.any(|finished| finished.claimed.execution_id == id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::definition::Pipeline;
    use crate::engine::slots::tests::claimed;
    use crate::machine::outcome::{Ending, Verdict};
    use crate::step::command::tests::assignment;
    use crate::store::error::Source;

    fn finished() -> Finished {
        let definition = Pipeline::named("Tests").start("Step").build();
        let definition = Arc::new(definition.expect("a definition"));
        Finished {
            claimed: Arc::new(claimed(&definition, &assignment("1"))),
            definition,
            ending: Ending::Success,
            verdict: Verdict::Succeed,
            output: None,
            error: None,
        }
    }

    /// So many results, and their ids in the order in which they are committed.
    fn with(count: usize) -> (Executions, Vec<ExecutionId>) {
        let mut executions = Executions::default();
        (0..count).for_each(|_| executions.finish(finished()));
        let ids = ids(&executions);
        (executions, ids)
    }

    fn ids(executions: &Executions) -> Vec<ExecutionId> {
        let finished = executions.finished().iter();
        finished
            .map(|finished| finished.claimed.execution_id)
            .collect()
    }

    fn gone(in_commit: bool) -> Result<Answer, Error> {
        let source = Arc::new(Source::Gone);
        Err(Error::Unavailable { source, in_commit })
    }

    fn refused() -> Result<Answer, Error> {
        Err(Error::Retryable(Arc::new(Source::Gone)))
    }

    fn blamed() -> Result<Answer, Error> {
        Err(Error::Constraint {
            constraint: "output".to_owned(),
            source: Arc::new(Source::Gone),
        })
    }

    fn next_commit(executions: &Executions) -> Operation {
        Operation::Commit {
            batch: executions.batch(),
            room: 0,
        }
    }

    fn claim() -> Operation {
        Operation::Claim {
            behind: Place::FIRST,
            room: 1,
        }
    }

    #[test]
    fn a_refused_batch_is_halved_until_the_refused_result_is_alone() {
        let (mut executions, all) = with(5);
        for batch in [5, 2] {
            assert_eq!(executions.batch(), batch);
            let commit = next_commit(&executions);
            assert!(matches!(executions.settle(&commit, refused()), Ok(None)));
        }
        // Alone, it waits until the others are committed; or is changed, if it is to blame itself.
        let alone = next_commit(&executions);
        assert!(executions.settle(&alone, refused()).is_err());
        assert_eq!(ids(&executions), [&all[1..], &all[..1]].concat());
        assert!(executions.settle(&alone, blamed()).is_err());
        let first = executions
            .first_mut()
            .map(|first| first.claimed.execution_id);
        assert_eq!(first, Some(all[1]));
        // What goes well goes on in larger ones.
        for left in [4, 2, 0] {
            let commit = next_commit(&executions);
            let done = Ok(Answer::Committed(Committed::default()));
            assert!(matches!(executions.settle(&commit, done), Ok(Some(_))));
            assert_eq!(executions.finished().len(), left);
        }
        assert!(executions.is_sure() && !executions.may_hold());
    }

    #[test]
    fn a_lost_answer_is_followed_by_two_questions_and_only_what_is_unknown_is_taken_up() {
        let (mut executions, all) = with(2);
        let commit = next_commit(&executions);
        assert!(executions.settle(&commit, gone(true)).is_err());
        assert!(!executions.is_sure());

        let first = executions.first().expect("a question");
        assert!(matches!(first, Operation::ReadLanded));
        assert!(executions.settle(&first, gone(false)).is_err());
        assert!(matches!(executions.first(), Some(Operation::ReadLanded)));
        let landed = Ok(Answer::Landed(HashSet::from([all[0]])));
        assert!(executions.settle(&first, landed).is_ok());
        assert_eq!(ids(&executions), all[1..]);

        let second = executions.first().expect("another");
        assert!(matches!(second, Operation::ReadHeld));
        assert!(executions.settle(&second, gone(false)).is_err());
        assert!(matches!(executions.first(), Some(Operation::ReadHeld)));
        let (known, unknown) = (
            Arc::clone(&executions.finished()[0].claimed),
            finished().claimed,
        );
        let held = [known, Arc::clone(&unknown)].map(Arc::unwrap_or_clone);
        let answer = executions.settle(&second, Ok(Answer::Held(held.to_vec())));
        let Ok(Some(Answer::Held(held))) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].execution_id, unknown.execution_id);
        assert!(executions.first().is_none());
    }

    #[test]
    fn a_commit_that_failed_for_sure_leaves_no_doubt_and_a_claim_or_a_putting_back_always_does() {
        let put_back = || Operation::PutBack(vec![finished().claimed.execution_id]);
        let doubtful = |operation: Operation, answer| {
            let (mut executions, _) = with(1);
            assert!(executions.settle(&operation, answer).is_err());
            !executions.is_sure()
        };
        let commit = || Operation::Commit { batch: 1, room: 0 };
        for answer in [gone(false), refused()] {
            assert!(!doubtful(commit(), answer));
        }
        assert!(doubtful(commit(), gone(true)));
        // A claim may have been committed before it was found that a row of it means nothing.
        for answer in [gone(false), refused(), gone(true)] {
            assert!(doubtful(claim(), answer));
        }
        for answer in [gone(false), refused(), gone(true)] {
            assert!(doubtful(put_back(), answer));
        }
        // Even if there was no connection to say it through.
        for (operation, doubtful) in [(claim(), false), (commit(), false), (put_back(), true)] {
            let (mut executions, _) = with(1);
            executions.not_begun(&operation);
            assert_eq!(!executions.is_sure(), doubtful);
        }
    }
}
