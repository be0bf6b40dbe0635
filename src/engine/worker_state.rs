//! A worker's state between two transactions: its uncommitted results, the executions that it may hold
//! without knowing, and its next operation.
//!
//! Owns: a worker's operations, and the consequences of their answers and of missing answers.
//! `worker` performs them when it is time; the explorer performs the same ones in every order, with
//! answers that are lost, late or refused (`explorer`). Pure except for `perform`, which calls the
//! store.
//! Never: runs a step (`slots` do), decides what an ending costs (`machine::outcome`), connects,
//! waits, or tells anybody.

use std::collections::HashSet;
use std::time::Duration;

use crate::model::ExecutionId;
use crate::store::claim::{self, Claim, Held, Rest};
use crate::store::commit::{self, Committed, Committer, Finished};
use crate::store::cursor::Cursor;
use crate::store::definition::LeftOut;
use crate::store::process::{self, Claimant};
use crate::store::{Conn, Error, batch_size};

use super::claim_size::ClaimSize;

/// Results per transaction: a bound on how much one refused commit has to take apart. Their bytes
/// have a bound of their own.
const BATCH_MAX: usize = 500;

/// A worker sets aside at most this many results, with at most this many bytes: half of `RESULTS_MAX`, the bytes of
/// results with which it begins no more steps.
pub const ASIDE_MAX: usize = 1_000;
const ASIDE_BYTES: usize = 2 * batch_size::BYTES_MAX;

/// A batch with which the connection was lost this often in a row is taken apart. A single loss is an
/// outage.
const LOST_TOGETHER: u32 = 2;

/// A result with which the connection was lost this often in a row, when the result was alone and
/// large, is not sent again. In between, the database has answered each time.
const LOST_ALONE: u32 = 3;

/// A smaller result is never the cause of a lost connection.
const LARGE: usize = 64 << 20;

/// The executions of a worker, except those that run.
#[derive(Clone, Debug)]
pub struct WorkerState {
    finished: Vec<Finished>,
    /// Results that are not sent with the others: somebody has locked a row that they write, or the database cannot
    /// store them for another reason, such as a damaged row.
    aside: Vec<Finished>,
    /// How many of them to commit at once.
    batch: usize,
    claim_size: ClaimSize,
    /// How often in a row the connection was lost with the next batch. The count begins again after a commit, when
    /// another result comes first, and when the first result is about to be sent alone.
    lost: u32,
    /// The first result is too large to be sent again: this was the answer each time.
    unsent: Option<Error>,
    /// The last commit has failed with this error, because somebody was in the way.
    contended: Option<Error>,
    doubt: Doubt,
    /// The pipeline is paused, as far as this process knows.
    paused: bool,
}

/// After a transaction whose fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// There was no such transaction.
    No,
    /// It is unknown which results have been committed, and which executions are held.
    Landed,
    /// It is unknown which executions are held.
    Held,
}

/// One exchange of a worker with the database: a transaction, or a question after a lost answer.
#[derive(Debug)]
pub enum Operation {
    /// Asks which results were committed, once no statement of an earlier connection can claim or
    /// commit any more.
    ReadLanded,
    /// Asks which executions its process holds.
    ReadHeld,
    /// Claims up to `room` executions that follow `behind` in the queue.
    Claim {
        /// Where the last claim ended.
        behind: Cursor,
        /// How many.
        room: usize,
    },
    /// Puts back executions that it has claimed and not started; they are due again after this time. The
    /// caller no longer holds them.
    PutBack(Vec<ExecutionId>, Duration),
    /// Commits the first `batch` results, and leases up to `room` of the next steps.
    Commit {
        /// How many of them.
        batch: usize,
        /// How many steps the commit may lease to the worker at their birth.
        room: usize,
    },
}

/// The answer to an operation.
#[derive(Debug)]
pub enum Answer {
    /// The results that were committed.
    Landed(HashSet<ExecutionId>),
    /// The executions that the process holds.
    Held(Held),
    /// The claimed executions.
    Claimed(Claim, Rest),
    /// How many were put back.
    PutBack(usize),
    /// The result of a commit.
    Committed(Committed),
}

/// The terms on which a worker claims and commits.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The pipeline whose executions it claims.
    pub pipeline: &'a str,
    /// How long a claim is leased.
    pub lease: Duration,
    /// The executions that a claim leaves out.
    pub left_out: &'a LeftOut,
}

impl Default for WorkerState {
    fn default() -> Self {
        Self {
            finished: Vec::new(),
            aside: Vec::new(),
            batch: BATCH_MAX,
            claim_size: ClaimSize::default(),
            lost: 0,
            unsent: None,
            contended: None,
            doubt: Doubt::No,
            paused: false,
        }
    }
}

impl WorkerState {
    /// Takes a result that is to be committed.
    pub fn finish(&mut self, finished: Finished) {
        self.finished.push(finished);
    }

    /// The results that are to be committed.
    pub fn finished(&self) -> &[Finished] {
        &self.finished
    }

    /// The results that are set aside until their rows are unlocked or they are tried again.
    pub fn aside(&self) -> &[Finished] {
        &self.aside
    }

    /// Sets aside these results, whose rows are locked or which cannot be stored, because the results that are sent
    /// with them would wait or fail as well. It sets aside no more results than there is room for; all others are sent
    /// from now on. True if a result has changed its place.
    ///
    /// No commit may be in doubt here, because nobody asks whether a result that was set aside has landed.
    pub fn set_aside(&mut self, locked: &HashSet<ExecutionId>) -> bool {
        debug_assert_ne!(self.doubt, Doubt::Landed);
        let is_locked = |it: &Finished| locked.contains(&it.claimed.execution_id);
        let first = self.first_id();
        let (aside, free): (Vec<_>, Vec<_>) = self.aside.drain(..).partition(is_locked);
        let mut bytes: usize = aside.iter().map(Finished::bytes).sum();
        let before = (aside.len(), self.finished.len());
        self.aside = aside;
        for result in std::mem::take(&mut self.finished) {
            let more = bytes + result.bytes();
            if is_locked(&result) && self.aside.len() < ASIDE_MAX && more <= ASIDE_BYTES {
                bytes = more;
                self.aside.push(result);
            } else {
                self.finished.push(result);
            }
        }
        let moved = self.finished.len() < before.1 || !free.is_empty();
        if self.aside.len() > before.0 {
            // The lock is overcome, because of which the last batch was halved.
            self.batch = (self.batch * 2).min(BATCH_MAX);
        }
        self.finished.extend(free);
        if self.first_id() != first {
            self.lost = 0;
            self.unsent = None;
        }
        moved
    }

    /// The error of the last commit, if somebody was in its way: perhaps a row of a result is locked. Returned once.
    pub fn take_contended(&mut self) -> Option<Error> {
        self.contended.take()
    }

    fn first_id(&self) -> Option<ExecutionId> {
        let first = self.finished.first();
        first.map(|first| first.claimed.execution_id)
    }

    /// The result that is committed next, to be changed if the database refuses it.
    pub fn first_mut(&mut self) -> Option<&mut Finished> {
        self.finished.first_mut()
    }

    /// How many executions the next claim takes, where there is room for this many.
    pub fn claims(&mut self, room: usize) -> usize {
        self.claim_size.next(room)
    }

    /// How many results the next commit takes.
    pub fn batch(&self) -> usize {
        batch_size::first(self.batch, self.finished.iter().map(Finished::bytes))
    }

    /// The bytes of all results.
    pub fn bytes(&self) -> usize {
        let results = self.finished.iter().chain(&self.aside);
        results.map(Finished::bytes).sum()
    }

    /// The error of the first result, if its size is to blame and the result must be changed before
    /// anything is committed. Returned once.
    pub fn take_unsent(&mut self) -> Option<Error> {
        self.unsent.take()
    }

    /// The operation that must come before any claim, putting back or commit.
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

    /// Takes note of whether its pipeline is paused, as the last answer or heartbeat said.
    pub fn hear(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// True while its pipeline is paused, as far as this process knows: executions that it has claimed
    /// and not started are to be put back, and a step that follows goes to the queue. Whether it may
    /// claim, a claim itself finds out.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// True while there may be claims whose leases a heartbeat has to extend, besides those that run.
    pub fn may_hold(&self) -> bool {
        !self.finished.is_empty() || !self.aside.is_empty() || !self.is_sure()
    }

    /// The database must be asked for the held executions: claimed ones were dropped before they began.
    pub fn doubt(&mut self) {
        self.doubt = Doubt::Landed;
    }

    /// Takes note of an operation that could not begin because there is no connection.
    pub fn not_begun(&mut self, operation: &Operation) {
        if let Operation::PutBack(..) = operation {
            self.doubt();
        }
    }

    /// Performs an operation. `ReadLanded` is two transactions; the first has no answer that could
    /// be lost.
    pub async fn perform(
        &self,
        operation: &Operation,
        conn: &mut Conn,
        me: Claimant,
        terms: Terms<'_>,
    ) -> Result<Answer, Error> {
        let Terms {
            pipeline,
            lease,
            left_out,
        } = terms;
        match operation {
            Operation::ReadLanded => {
                process::fence_earlier(conn, me).await?;
                let landed = commit::landed(conn, &self.finished, me.process).await;
                landed.map(Answer::Landed)
            }
            Operation::ReadHeld => claim::held(conn, me.process).await.map(Answer::Held),
            Operation::Claim { behind, room } => {
                let claim =
                    claim::claim_behind(conn, *behind, me, pipeline, *room, lease, left_out);
                claim
                    .await
                    .map(|(claim, rest)| Answer::Claimed(claim, rest))
            }
            Operation::PutBack(ids, delay) => {
                let count = claim::put_back(conn, me, pipeline, ids, *delay).await;
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

    /// Takes note of the answer to `done`, and returns it; of the held executions, it returns only
    /// those that are not known here. `None`: a batch was refused, and the result that is to blame
    /// is going to be found.
    pub fn settle(
        &mut self,
        done: &Operation,
        mut answer: Result<Answer, Error>,
    ) -> Result<Option<Answer>, Error> {
        match (done, &mut answer) {
            (_, Ok(Answer::Landed(landed))) => {
                let is_open = |it: &Finished| !landed.contains(&it.claimed.execution_id);
                let before = self.finished.len();
                self.finished.retain(is_open);
                if self.finished.len() < before {
                    // Only the answer was lost.
                    self.lost = 0;
                    self.unsent = None;
                }
                self.doubt = Doubt::Held;
            }
            (_, Ok(Answer::Held(held))) => {
                held.whole.retain(|claimed| !self.has(claimed.execution_id));
                held.large.retain(|id| !self.has(*id));
                self.doubt = Doubt::No;
            }
            (Operation::Commit { batch, .. }, Ok(answer)) => {
                let mut unwritten = &Vec::new();
                if let Answer::Committed(committed) = answer {
                    unwritten = &committed.unwritten;
                    if !committed.dead {
                        self.paused = committed.paused;
                    }
                }
                // The result itself is still valid.
                let mut again: Vec<_> = self.finished.drain(..batch).collect();
                again.retain(|it| unwritten.contains(&it.claimed.execution_id));
                self.finished.extend(again);
                self.batch = (self.batch * 2).min(BATCH_MAX);
                self.lost = 0;
            }
            (_, Ok(Answer::Claimed(claim, _))) => {
                self.claim_size.worked();
                match claim {
                    Claim::Taken(_) => self.paused = false,
                    Claim::Paused => self.paused = true,
                    Claim::Dead => {}
                }
            }
            (_, Ok(_)) => {}
            (Operation::Claim { .. }, Err(error)) => {
                if error.blames_a_row() {
                    self.claim_size.failed();
                }
                self.doubt();
            }
            // Nobody here runs these executions, whether they were put back or not.
            (Operation::PutBack(..), Err(_)) => self.doubt(),
            (_, Err(error)) if error.is_unavailable() => {
                if matches!(
                    error,
                    Error::Unavailable {
                        in_commit: true,
                        ..
                    }
                ) {
                    self.doubt();
                }
                if let Operation::Commit { batch, .. } = done {
                    self.lost(*batch, error);
                }
            }
            // One result that the database refuses must not hold up the others: the batch is halved
            // until that result is alone. If the result is not to blame, it is then tried again
            // after the others: the result itself is still valid.
            (Operation::Commit { batch, .. }, Err(error)) => {
                self.contended = error.is_not_now().then(|| error.clone());
                match batch {
                    1 if error.blames_the_value() => {}
                    1 if error.may_blame_the_size() && self.is_large() => self.lost(1, error),
                    1 => self.finished.rotate_left(1),
                    batch => {
                        self.batch = *batch / 2;
                        return Ok(None);
                    }
                }
            }
            (_, Err(_)) => {}
        }
        answer.map(Some)
    }

    /// A commit was lost with its connection, and the worker first asks what became of it. So
    /// another commit is sent only after the database has answered: if the loss happens again and
    /// again, it is no outage; the content is the cause. As with a refusal, the batch is taken apart
    /// until the result is alone.
    fn lost(&mut self, batch: usize, error: &Error) {
        if !error.may_blame_the_size() {
            return;
        }
        self.lost += 1;
        match batch {
            1 if self.lost < LOST_ALONE => {}
            1 => {
                self.lost = 0;
                match self.is_large() {
                    true => self.unsent = Some(error.clone()),
                    false => self.finished.rotate_left(1),
                }
            }
            batch if self.lost >= LOST_TOGETHER => {
                self.batch = batch / 2;
                // Each further loss halves it again; a result that is alone is counted from the
                // beginning.
                self.lost = match self.batch {
                    1 => 0,
                    _ => LOST_TOGETHER - 1,
                };
            }
            _ => {}
        }
    }

    fn is_large(&self) -> bool {
        self.finished.first().is_some_and(|it| it.bytes() >= LARGE)
    }

    /// Its memory besides the results, for the explorer, which compares memories.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> [i64; 4] {
        let paused = i64::from(self.paused);
        [
            self.batch as i64,
            i64::from(self.lost),
            self.doubt as i64,
            paused,
        ]
    }

    /// Whether the result of this execution is to be committed.
    pub fn has(&self, id: ExecutionId) -> bool {
        let mut results = self.finished.iter().chain(&self.aside);
        results.any(|finished| finished.claimed.execution_id == id)
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
    use crate::store::commit::Ended;
    use crate::store::error::Source;

    fn finished() -> Finished {
        let definition = Pipeline::named("Tests").start("Step").build();
        let definition = Arc::new(definition.expect("a definition"));
        Finished {
            claimed: Arc::new(claimed(&definition, &assignment("1"))),
            definition,
            ended: Ended {
                ending: Ending::Success,
                output: None,
                error: None,
                log: None,
            },
            verdict: Verdict::Succeed,
        }
    }

    /// This many results, and their ids in the order in which they are committed.
    fn with(count: usize) -> (WorkerState, Vec<ExecutionId>) {
        let mut executions = WorkerState::default();
        (0..count).for_each(|_| executions.finish(finished()));
        let ids = ids(&executions);
        (executions, ids)
    }

    fn ids(executions: &WorkerState) -> Vec<ExecutionId> {
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
        Err(Error::Retryable {
            statement: "TEST",
            source: Arc::new(Source::Gone),
        })
    }

    fn blamed() -> Result<Answer, Error> {
        Err(Error::Constraint {
            constraint: "output".to_owned(),
            source: Arc::new(Source::Gone),
        })
    }

    /// A result of this many bytes.
    fn finished_of(bytes: usize) -> Finished {
        Finished {
            ended: Ended::without_value(Ending::Success, "Own", "x".repeat(bytes)),
            ..finished()
        }
    }

    fn succeeds(executions: &mut WorkerState) {
        let commit = next_commit(executions);
        let done = Ok(Answer::Committed(Committed::default()));
        assert!(matches!(executions.settle(&commit, done), Ok(Some(_))));
    }

    /// The connection is lost with a commit, and the database answers again: only these results
    /// have landed.
    fn is_lost(executions: &mut WorkerState, landed: &[ExecutionId]) {
        let commit = next_commit(executions);
        assert!(executions.settle(&commit, gone(true)).is_err());
        let landed = Answer::Landed(landed.iter().copied().collect());
        for answer in [landed, Answer::Held(Held::default())] {
            let question = executions.first().expect("a question");
            assert!(matches!(
                executions.settle(&question, Ok(answer)),
                Ok(Some(_))
            ));
        }
        assert!(executions.is_sure());
    }

    fn next_commit(executions: &WorkerState) -> Operation {
        Operation::Commit {
            batch: executions.batch(),
            room: 0,
        }
    }

    fn claim() -> Operation {
        Operation::Claim {
            behind: Cursor::FIRST,
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
        // A result that is alone waits until the others are committed; or it is changed, if it is to
        // blame itself.
        let alone = next_commit(&executions);
        assert!(executions.settle(&alone, refused()).is_err());
        assert_eq!(ids(&executions), [&all[1..], &all[..1]].concat());
        assert!(executions.settle(&alone, blamed()).is_err());
        let first = executions
            .first_mut()
            .map(|first| first.claimed.execution_id);
        assert_eq!(first, Some(all[1]));
        // After a success the batches grow again.
        for left in [4, 2, 0] {
            let commit = next_commit(&executions);
            let done = Ok(Answer::Committed(Committed::default()));
            assert!(matches!(executions.settle(&commit, done), Ok(Some(_))));
            assert_eq!(executions.finished().len(), left);
        }
        assert!(executions.is_sure() && !executions.may_hold());
    }

    #[test]
    fn a_result_that_the_database_kept_out_of_a_commit_is_sent_again_after_the_others() {
        let (mut executions, all) = with(3);
        let commit = Operation::Commit { batch: 2, room: 0 };
        let done = Answer::Committed(Committed {
            unwritten: vec![all[0]],
            ..Committed::default()
        });
        assert!(matches!(executions.settle(&commit, Ok(done)), Ok(Some(_))));
        assert_eq!(ids(&executions), [all[2], all[0]]);
        succeeds(&mut executions);
        assert!(executions.finished().is_empty());
    }

    #[test]
    fn results_that_are_locked_are_set_aside_until_they_are_free_and_the_others_are_sent() {
        let (mut executions, all) = with(4);
        let commit = next_commit(&executions);
        assert!(matches!(executions.settle(&commit, refused()), Ok(None)));
        assert!(executions.take_contended().is_some() && executions.take_contended().is_none());
        let locked = HashSet::from([all[0], all[2]]);
        assert!(executions.set_aside(&locked));
        assert_eq!(
            (ids(&executions), executions.batch()),
            (vec![all[1], all[3]], 2)
        );
        assert!(!executions.set_aside(&locked));
        assert_eq!(executions.bytes(), with(4).0.bytes());
        succeeds(&mut executions);
        // They are still held, and known.
        assert!(executions.finished().is_empty() && executions.may_hold());
        assert!(locked.iter().all(|id| executions.has(*id)));
        assert!(executions.set_aside(&HashSet::from([all[2]])));
        assert_eq!(ids(&executions), all[..1]);
        assert!(executions.set_aside(&HashSet::new()));
        assert_eq!(ids(&executions), [all[0], all[2]]);
        assert!(executions.aside().is_empty());
        // A value that is refused is nobody's lock.
        let commit = next_commit(&executions);
        assert!(matches!(executions.settle(&commit, blamed()), Ok(None)));
        assert!(executions.take_contended().is_none());
    }

    #[test]
    fn no_more_results_are_set_aside_than_there_is_room_for() {
        let (mut executions, all) = with(ASIDE_MAX + 2);
        assert!(executions.set_aside(&all.iter().copied().collect()));
        assert_eq!(executions.aside().len(), ASIDE_MAX);
        assert_eq!(ids(&executions), all[ASIDE_MAX..]);

        let mut executions = WorkerState::default();
        for bytes in [ASIDE_BYTES - 1, 2, 1] {
            executions.finish(finished_of(bytes));
        }
        let all = ids(&executions);
        assert!(executions.set_aside(&all.iter().copied().collect()));
        assert_eq!(ids(&executions), all[1..2]);
    }

    #[test]
    fn losses_are_counted_for_the_first_result_until_it_is_set_aside() {
        let (mut executions, all) = with(3);
        is_lost(&mut executions, &[]);
        assert!(executions.set_aside(&HashSet::from([all[1]])));
        assert_eq!(executions.lost, 1);
        assert!(executions.set_aside(&HashSet::from([all[0], all[1]])));
        assert_eq!(executions.lost, 0);
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
        let large = ExecutionId::new();
        let held = Held {
            large: vec![known.execution_id, large],
            whole: [known, Arc::clone(&unknown)]
                .map(Arc::unwrap_or_clone)
                .to_vec(),
            unread: Vec::new(),
        };
        let answer = executions.settle(&second, Ok(Answer::Held(held)));
        let Ok(Some(Answer::Held(held))) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(held.whole.len(), 1);
        assert_eq!(held.whole[0].execution_id, unknown.execution_id);
        assert_eq!(held.large, [large]);
        assert!(executions.first().is_none());
    }

    #[test]
    fn a_commit_that_failed_for_sure_leaves_no_doubt_and_a_claim_or_a_putting_back_always_does() {
        let put_back = || Operation::PutBack(vec![finished().claimed.execution_id], Duration::ZERO);
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
        // A claim may have been committed before it was found that one of its rows cannot be understood.
        for answer in [gone(false), refused(), gone(true)] {
            assert!(doubtful(claim(), answer));
        }
        for answer in [gone(false), refused(), gone(true)] {
            assert!(doubtful(put_back(), answer));
        }
        // Even if there was no connection to send it through.
        for (operation, doubtful) in [(claim(), false), (commit(), false), (put_back(), true)] {
            let (mut executions, _) = with(1);
            executions.not_begun(&operation);
            assert_eq!(!executions.is_sure(), doubtful);
        }
    }

    #[test]
    fn a_batch_has_as_many_results_as_fit_together() {
        let (mut executions, _) = with(3);
        let half = batch_size::BYTES_MAX / 2;
        for bytes in [half, half, 1, batch_size::BYTES_MAX + 1, 1] {
            executions.finish(finished_of(bytes));
        }
        for (batch, left) in [(5, 3), (1, 2), (1, 1), (1, 0)] {
            assert_eq!(executions.batch(), batch);
            succeeds(&mut executions);
            assert_eq!(executions.finished().len(), left);
        }
        assert_eq!(executions.batch(), 0);
        let (executions, _) = with(2 * BATCH_MAX);
        assert_eq!(executions.batch(), BATCH_MAX);
    }

    #[test]
    fn a_batch_with_which_the_connection_is_lost_again_and_again_is_taken_apart() {
        let (mut executions, all) = with(9);
        // A single loss is an outage.
        is_lost(&mut executions, &[]);
        assert_eq!(executions.batch(), 9);
        for batch in [4, 2, 1, 1, 1] {
            is_lost(&mut executions, &[]);
            assert_eq!(executions.batch(), batch);
            assert_eq!(ids(&executions), all);
        }
        // When it is alone, it lets the others go first; small as it is, it is not to blame.
        is_lost(&mut executions, &[]);
        assert_eq!(ids(&executions), [&all[1..], &all[..1]].concat());
        assert!(executions.take_unsent().is_none());
        for left in [8, 6, 2, 0] {
            succeeds(&mut executions);
            assert_eq!(executions.finished().len(), left);
        }
    }

    #[test]
    fn a_large_result_with_which_alone_the_connection_is_lost_three_times_is_not_sent_again() {
        let large = || {
            let mut executions = WorkerState::default();
            executions.finish(finished_of(LARGE));
            executions.finish(finished());
            assert_eq!(executions.batch(), 1);
            executions
        };
        let mut executions = large();
        let all = ids(&executions);
        for _ in 0..2 {
            is_lost(&mut executions, &[]);
            assert!(executions.take_unsent().is_none());
        }
        is_lost(&mut executions, &[]);
        assert!(
            executions
                .take_unsent()
                .is_some_and(|error| error.is_unavailable())
        );
        assert!(executions.take_unsent().is_none());
        assert_eq!(ids(&executions), all);

        // If it was stored after all, nothing is to blame.
        let mut executions = large();
        (0..2).for_each(|_| is_lost(&mut executions, &[]));
        let landed = [executions.finished[0].claimed.execution_id];
        is_lost(&mut executions, &landed);
        assert!(executions.take_unsent().is_none());
        assert_eq!(executions.finished().len(), 1);

        // A commit that succeeded in between, a smaller result, a full disk: these are outages.
        let mut executions = large();
        (0..2).for_each(|_| is_lost(&mut executions, &[]));
        succeeds(&mut executions);
        executions.finished.insert(0, finished_of(LARGE));
        (0..2).for_each(|_| is_lost(&mut executions, &[]));
        assert!(executions.take_unsent().is_none());

        let mut executions = WorkerState::default();
        executions.finish(finished_of(LARGE - 1));
        for _ in 0..20 {
            is_lost(&mut executions, &[]);
            assert!(executions.take_unsent().is_none());
        }

        let mut executions = large();
        for in_commit in [false, true].repeat(10) {
            let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None);
            let source = Arc::new(Source::Sqlite(full));
            let commit = next_commit(&executions);
            let full = Err(Error::Unavailable { source, in_commit });
            assert!(executions.settle(&commit, full).is_err());
            assert!(executions.take_unsent().is_none());
        }
    }
}
