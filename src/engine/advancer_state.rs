//! An advancer's state between two transactions: the branches that it holds, and its next operation.
//!
//! Owns: the order of an advancer's operations, and the consequences of their answers and of
//! missing answers. `advancer` performs them one after the other; the explorer performs the same
//! ones in every order that several processes can produce, with answers that are lost, late or
//! refused (`explorer`). Pure except for `perform`, which calls the store.
//! Never: decides where a branch goes (`machine::advance`), connects, waits, or tells anybody.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use crate::model::BranchId;
use crate::store::advance::{self, Advanced, BranchClaim, ClaimedBranch, GiveBack};
use crate::store::definition::{Definitions, LeftOut, Unreadable};
use crate::store::process::{self, Claimant};
use crate::store::{Conn, Error};

use super::claim_size::ClaimSize;

/// A branch with which the connection was lost this often in a row, when the branch was alone, waits
/// before it is tried again. A single loss is an outage.
const LOST_ALONE: u32 = 2;

/// How many branches are remembered because the connection was lost with them. If there are more, all
/// of them are forgotten: those to blame are soon found again.
const SUSPECTS: usize = 10_000;

/// The branches that an advancer has claimed.
#[derive(Clone, Debug, Default)]
pub struct AdvancerState {
    claimed: Vec<ClaimedBranch>,
    /// Branches whose expand is too wide for one transaction, in the order of their turns. Between
    /// two of these turns others are claimed and advanced, so that one wide expand holds up nobody.
    spreading: VecDeque<ClaimedBranch>,
    /// The next turn belongs to the first of them.
    spreads_next: bool,
    /// A batch was refused: from now on each branch is advanced alone, so that one bad branch
    /// spends its own retries and nobody else's.
    alone: bool,
    claim_size: ClaimSize,
    /// The branches with which the connection was lost, until they are advanced.
    suspects: BTreeMap<BranchId, Suspect>,
    /// The branch that was alone when the connection was lost with it again, and the reason for giving it back. It is
    /// given back as soon as the database has confirmed that this process holds it.
    culprit: Option<(BranchId, Why)>,
    /// The branches to give back before anything else, and why.
    giving: VecDeque<(Vec<ClaimedBranch>, Why)>,
    /// Branches that could not be given back, because somebody has locked their rows: they stay claimed until a look
    /// finds them free.
    kept: Vec<(Vec<ClaimedBranch>, Why)>,
    /// How many batches in a row the database could not advance for a reason of its own.
    hindered: u32,
    /// The batch that is claimed now has already been counted in `hindered`.
    counted: bool,
    /// A transaction failed, so this process may hold claims that are not known here. The process
    /// is alive: its heartbeats would extend them for ever, and no reaper would take them.
    unsure: bool,
}

/// A branch that was being advanced when the connection was lost. A loss that repeats is no outage: the data of one
/// branch is the cause, or the batch has more branches than the database can advance in time. So branches that were
/// lost together are advanced after all others, in halves, until the cause is alone; meanwhile the other branches go
/// on.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    /// At most this many of its kind are advanced together.
    together: usize,
    /// How often in a row the connection was lost with it alone.
    alone: u32,
}

/// A branch under suspicion, as the explorer compares it.
#[cfg(test)]
pub(crate) type Suspected = (BranchId, [i64; 2]);

/// Why branches are given back.
#[derive(Clone, Debug)]
pub enum Why {
    /// The process was found to hold them, and nobody works on them.
    Unsure,
    /// The database could not advance this one now; its value is not to blame.
    Hindered {
        /// The database's answer.
        error: Error,
        /// How many batches in a row were hindered, or lost their connection.
        times: u32,
        /// It is the first of its batch.
        first: bool,
    },
    /// The database refuses the value that this one was to write.
    Refused(Error),
    /// This version cannot read the data that they depend on, for one of these reasons: nobody may claim
    /// them for this long.
    Unreadable(String, Duration),
}

impl Why {
    /// Why these branches of a batch are given back: all of them with the longest delay among them.
    fn unreadable(branches: &[(ClaimedBranch, Unreadable)]) -> Self {
        let reason = branches.first().map(|(_, why)| why.to_string());
        let delays = branches.iter().map(|(_, why)| why.delay);
        let delay = delays.max().unwrap_or_default();
        Self::Unreadable(reason.unwrap_or_default(), delay)
    }
}

/// One exchange of an advancer with the database: a transaction, or a question after an error.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Asks which branches its process holds, once no statement of an earlier connection can claim
    /// any more.
    ReadBack,
    /// Gives branches back. A refusal spends a retry.
    GiveBack(Vec<ClaimedBranch>, Why),
    /// Claims a batch.
    Claim,
    /// Advances these branches.
    Advance(Vec<ClaimedBranch>),
}

/// The answer to an operation.
#[derive(Debug)]
pub enum Answer {
    /// The branches that the process holds.
    Held(Vec<ClaimedBranch>),
    /// The branches are given back.
    GivenBack,
    /// The claimed branches.
    Claimed(BranchClaim),
    /// The advanced branches.
    Advanced(Advanced),
}

/// The terms on which an advancer claims and advances.
pub struct Terms<'a> {
    /// Branches that may be claimed at once.
    pub most: usize,
    /// How long a claim is leased.
    pub lease: Duration,
    /// The limits of pipelines and of their steps.
    pub limits: advance::Limits<'a>,
    /// The definitions read so far.
    pub definitions: &'a Definitions,
    /// The branches and the definitions that claims leave out.
    pub left_out: &'a LeftOut,
    /// The wait before a branch of a pipeline is tried again, after this many failures.
    pub backoff: advance::Backoff<'a>,
}

impl AdvancerState {
    /// The next operation; its answer goes to [`settle`](Self::settle).
    pub fn next(&self) -> Operation {
        if self.unsure {
            return Operation::ReadBack;
        }
        if let Some((branches, why)) = self.giving.front() {
            return Operation::GiveBack(branches.clone(), why.clone());
        }
        match (self.claimed.as_slice(), self.spreading.front()) {
            ([], Some(first)) if self.spreads_next => Operation::Advance(vec![*first]),
            ([], _) => Operation::Claim,
            ([first, ..], _) if self.alone => Operation::Advance(vec![*first]),
            (claimed, _) => Operation::Advance(self.least_suspected(claimed)),
        }
    }

    /// Those of the claimed branches that are advanced next, together.
    fn least_suspected(&self, claimed: &[ClaimedBranch]) -> Vec<ClaimedBranch> {
        if self.suspects.is_empty() {
            return claimed.to_vec();
        }
        let together = |branch: &ClaimedBranch| {
            let suspect = self.suspects.get(&branch.id);
            suspect.map_or(usize::MAX, |suspect| suspect.together)
        };
        let most = claimed.iter().map(together).max().unwrap_or(usize::MAX);
        let alike = claimed.iter().filter(|branch| together(branch) == most);
        alike.take(most).copied().collect()
    }

    /// How many branches the next claim takes, where there is room for this many.
    pub fn claims(&mut self, room: usize) -> usize {
        self.claim_size.next(room)
    }

    /// Nothing can be claimed now. True when there is other work.
    pub fn pass(&mut self) -> bool {
        self.spreads_next = true;
        !self.spreading.is_empty()
    }

    /// No more branches are claimed. Wide expands are given back; they go on elsewhere, or later.
    pub fn stop_spreading(&mut self) {
        if self.giving.is_empty() && !self.spreading.is_empty() {
            let spreading = self.spreading.drain(..).collect();
            self.giving.push_back((spreading, Why::Unsure));
        }
    }

    /// True while branches with which the connection was lost have not been advanced: as far as they tell, the outage
    /// is not over.
    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// True while held branches need an operation before more are claimed.
    pub fn is_busy(&self) -> bool {
        !self.claimed.is_empty() || !self.spreading.is_empty() || !self.giving.is_empty()
    }

    /// False while the process may hold claims that are not known here.
    pub fn is_sure(&self) -> bool {
        !self.unsure
    }

    /// True while there may be claims whose leases a heartbeat has to extend.
    pub fn may_hold(&self) -> bool {
        self.is_busy() || self.unsure || self.keeps()
    }

    /// Gives back those of the `held` branches that this state does not know, and returns their number. While it is
    /// unsure, it gives back none: it is about to ask the database itself.
    pub fn give_back_unknown(&mut self, held: &[ClaimedBranch]) -> usize {
        let given = self.giving.iter().chain(&self.kept);
        let given = given.flat_map(|(branches, _)| branches);
        let known = self.claimed.iter().chain(&self.spreading).chain(given);
        let known: Vec<ClaimedBranch> = known.copied().collect();
        let unknown = held.iter().filter(|branch| !known.contains(branch));
        let unknown: Vec<ClaimedBranch> = unknown.copied().collect();
        let count = unknown.len();
        if self.unsure || count == 0 {
            return 0;
        }
        self.giving.push_back((unknown, Why::Unsure));
        count
    }

    /// True while branches cannot be given back.
    pub fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The branches that cannot be given back, except for the locked ones, can be given back again.
    pub fn release(&mut self, locked: &HashSet<BranchId>) {
        for (branches, why) in std::mem::take(&mut self.kept) {
            let (kept, free): (Vec<_>, Vec<_>) = branches
                .into_iter()
                .partition(|branch| locked.contains(&branch.id));
            if !free.is_empty() {
                self.giving.push_back((free, why.clone()));
            }
            if !kept.is_empty() {
                self.kept.push((kept, why));
            }
        }
    }

    /// Takes note of the answer to `done`, and returns it. `None`: a batch was refused, and the
    /// branch that is to blame is going to be found.
    pub fn settle(
        &mut self,
        done: &Operation,
        answer: Result<Answer, Error>,
    ) -> Result<Option<Answer>, Error> {
        match (done, &answer) {
            (_, Ok(Answer::Held(held))) => {
                self.unsure = false;
                self.give_back(held);
            }
            (_, Ok(Answer::GivenBack)) => drop(self.giving.pop_front()),
            (_, Ok(Answer::Claimed(claim))) => {
                self.counted = false;
                self.claim_size.worked();
                if let BranchClaim::Taken(claimed) = claim {
                    self.claimed.clone_from(claimed);
                }
                self.spreads_next = true;
            }
            (Operation::Advance(batch), Ok(Answer::Advanced(advanced))) => {
                self.leave(batch);
                self.clear_of_suspicion(batch, &advanced.left);
                self.claimed.splice(..0, advanced.left.iter().copied());
                self.spreading.extend(&advanced.spreading);
                self.spreads_next &= advanced.spreading.is_empty();
                self.hindered = 0;
                self.counted = false;
                if !advanced.unreadable.is_empty() {
                    let branches = advanced.unreadable.iter().map(|(branch, _)| *branch);
                    let why = Why::unreadable(&advanced.unreadable);
                    self.giving.push_back((branches.collect(), why));
                }
            }
            (_, Ok(Answer::Advanced(_))) => unreachable!("nothing else advances"),
            (Operation::Advance(batch), Err(error)) if !error.is_unavailable() => {
                match batch.as_slice() {
                    [alone] => {
                        self.leave(batch);
                        let why = self.why(error);
                        self.giving.push_back((vec![*alone], why));
                    }
                    _ => self.alone = true,
                }
                return Ok(None);
            }
            (Operation::Advance(batch), Err(error)) => {
                self.lost(batch, error);
                self.doubt();
            }
            // Nothing was done, and all other branches can be given back, and advanced.
            (Operation::GiveBack(..), Err(error)) if error.is_lock_wait() => {
                self.kept.extend(self.giving.pop_front());
                return Ok(None);
            }
            (_, Err(error)) => {
                if matches!(done, Operation::Claim) && error.blames_a_row() {
                    self.claim_size.failed();
                }
                self.doubt();
            }
        }
        self.alone &= !self.claimed.is_empty();
        answer.map(Some)
    }

    /// Gives back those of the claimed branches that are in `locked`: somebody has locked their rows. `error` is the
    /// error of an advance that waited for such a lock in vain.
    pub fn set_aside(&mut self, locked: &[BranchId], error: &Error) {
        let is_locked = |branch: &mut ClaimedBranch| locked.contains(&branch.id);
        let aside: Vec<_> = self.claimed.extract_if(.., is_locked).collect();
        if aside.is_empty() {
            return;
        }
        // The others may be advanced together.
        self.alone = false;
        let why = self.why(error);
        self.giving.push_back((aside, why));
    }

    /// Forgets a batch that was advanced or is given back: the first of the claimed branches or, if
    /// there are none, the first of the spreading ones.
    fn leave(&mut self, batch: &[ClaimedBranch]) {
        if self.claimed.is_empty() {
            self.spreading.pop_front();
            self.spreads_next = false;
        } else {
            let batch: HashSet<_> = batch.iter().map(|branch| branch.id).collect();
            self.claimed.retain(|branch| !batch.contains(&branch.id));
        }
    }

    /// The connection was lost when these were advanced.
    fn lost(&mut self, batch: &[ClaimedBranch], error: &Error) {
        if self.suspects.len() + batch.len() > SUSPECTS {
            self.suspects.clear();
        }
        let together = (batch.len() / 2).max(1);
        for branch in batch {
            self.suspects.entry(branch.id).or_default().together = together;
        }
        let [alone] = batch else {
            return;
        };
        let suspect = self.suspects.entry(alone.id).or_default();
        suspect.alone = suspect.alone.saturating_add(1);
        if suspect.alone >= LOST_ALONE {
            let why = Why::Hindered {
                error: error.clone(),
                times: suspect.alone - LOST_ALONE + 1,
                first: true,
            };
            self.culprit = Some((alone.id, why));
        }
    }

    /// These have been advanced, except for those that are left.
    fn clear_of_suspicion(&mut self, batch: &[ClaimedBranch], left: &[ClaimedBranch]) {
        if !self.suspects.is_empty() {
            let advanced = batch.iter().filter(|branch| !left.contains(branch));
            for branch in advanced {
                self.suspects.remove(&branch.id);
            }
        }
    }

    /// Nobody works on these branches, which the process was found to hold.
    fn give_back(&mut self, held: &[ClaimedBranch]) {
        let mut held = held.to_vec();
        // Those that are kept are known.
        for (branches, _) in &mut self.kept {
            branches.retain(|branch| held.contains(branch));
            held.retain(|branch| !branches.contains(branch));
        }
        self.kept.retain(|(branches, _)| !branches.is_empty());
        if let Some((culprit, why)) = self.culprit.take() {
            let its = held.extract_if(.., |branch| branch.id == culprit).collect();
            self.giving.push_back((its, why));
        }
        self.giving.push_back((held, Why::Unsure));
        self.giving.retain(|(branches, _)| !branches.is_empty());
    }

    /// Why a branch that could not be advanced alone is given back. A hindrance counts once for a batch:
    /// the wait grows with how long the hindrance lasts, not with how many branches it has met.
    fn why(&mut self, error: &Error) -> Why {
        if error.blames_the_value() {
            return Why::Refused(error.clone());
        }
        let first = !std::mem::replace(&mut self.counted, true);
        self.hindered = self.hindered.saturating_add(u32::from(first));
        Why::Hindered {
            error: error.clone(),
            times: self.hindered,
            first,
        }
    }

    /// The database must be asked for the held branches: the last operation failed, or could not begin.
    pub fn doubt(&mut self) {
        *self = Self {
            unsure: true,
            hindered: self.hindered,
            claim_size: self.claim_size,
            suspects: std::mem::take(&mut self.suspects),
            culprit: self.culprit.take(),
            kept: std::mem::take(&mut self.kept),
            ..Self::default()
        };
    }

    /// It holds nothing any more: its process was declared dead.
    pub fn forget(&mut self) {
        self.doubt();
        self.unsure = false;
        self.culprit = None;
        self.kept.clear();
    }

    /// Its whole memory, for the explorer, which compares memories: claims in lists, each with a
    /// meaning of its own, the branches under suspicion with two numbers each, and the rest as bits.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> ([Vec<ClaimedBranch>; 4], Vec<Suspected>, i64) {
        let mut giving = [Vec::new(), Vec::new()];
        for (branches, why) in &self.giving {
            giving[usize::from(matches!(why, Why::Unsure))].extend(branches);
        }
        let [given, unsure] = giving;
        debug_assert!(self.kept.is_empty(), "nothing waits for a lock there");
        let spreading = self.spreading.iter().copied().collect();
        let flags = [self.unsure, self.alone, self.spreads_next];
        let bits = flags.iter().enumerate();
        let bits = bits.map(|(bit, flag)| i64::from(*flag) << bit).sum();
        let culprit = self.culprit.as_ref().map(|(culprit, _)| *culprit);
        let suspects = self.suspects.iter().map(|(id, suspect)| {
            let lost = suspect.alone.min(LOST_ALONE) + u32::from(culprit == Some(*id));
            (*id, [suspect.together as i64, i64::from(lost)])
        });
        let lists = [self.claimed.clone(), given, unsure, spreading];
        (lists, suspects.collect(), bits)
    }
}

impl Operation {
    /// Performs it. `ReadBack` is two transactions; the first has no answer that could be lost.
    pub async fn perform(
        &self,
        conn: &mut Conn,
        me: Claimant,
        terms: &Terms<'_>,
    ) -> Result<Answer, Error> {
        match self {
            Self::ReadBack => {
                process::fence_earlier(conn, me).await?;
                advance::held(conn, me.process).await.map(Answer::Held)
            }
            Self::GiveBack(branches, why) => {
                let message = match why {
                    Why::Unsure => String::new(),
                    Why::Hindered { error, .. } | Why::Refused(error) => {
                        crate::telemetry::chain(error)
                    }
                    Why::Unreadable(reason, _) => reason.clone(),
                };
                let message = message.as_str();
                let why = match why {
                    Why::Unsure => GiveBack::Released,
                    Why::Hindered { times, .. } => GiveBack::Hindered {
                        message,
                        times: *times,
                    },
                    Why::Refused(_) => GiveBack::Errored { message },
                    Why::Unreadable(_, delay) => GiveBack::Unreadable {
                        message,
                        delay: *delay,
                    },
                };
                let given = advance::give_back(conn, branches, why, terms.backoff).await;
                given.map(|()| Answer::GivenBack)
            }
            Self::Claim => {
                let claim = advance::claim(conn, me, terms.most, terms.lease, terms.left_out);
                claim.await.map(Answer::Claimed)
            }
            Self::Advance(branches) => {
                let advanced = advance::advance(conn, branches, terms.limits, terms.definitions);
                advanced.await.map(Answer::Advanced)
            }
        }
    }

    /// The branch that could not be advanced, and why; it is to be given back for that reason.
    pub fn blames(&self) -> Option<(BranchId, &Why)> {
        match self {
            Self::GiveBack(_, Why::Unsure | Why::Unreadable(..)) => None,
            Self::GiveBack(branches, why) => branches.first().map(|branch| (branch.id, why)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::ClaimToken;
    use crate::store::error::Source;

    fn branch() -> ClaimedBranch {
        ClaimedBranch {
            id: BranchId::new(),
            token: ClaimToken::new(),
        }
    }

    fn gone() -> Error {
        Error::Unavailable {
            source: Arc::new(Source::Gone),
            in_commit: false,
        }
    }

    fn refused() -> Error {
        Error::Retryable {
            statement: "TEST",
            source: Arc::new(Source::Gone),
        }
    }

    /// Hindered by the environment; the next one is refused for its value.
    fn hindered() -> Error {
        Error::Hindered {
            statement: "MOVE_BRANCHES",
            source: Arc::new(Source::Gone),
        }
    }

    fn refused_for_its_value() -> Error {
        Error::Constraint {
            constraint: "output".to_owned(),
            source: Arc::new(Source::Gone),
        }
    }

    fn taken<const N: usize>(claimed: [ClaimedBranch; N]) -> Answer {
        Answer::Claimed(BranchClaim::Taken(claimed.to_vec()))
    }

    fn advance<const N: usize>(branches: [ClaimedBranch; N]) -> Operation {
        Operation::Advance(branches.to_vec())
    }

    fn advanced<const N: usize>(left: [ClaimedBranch; N]) -> Answer {
        let left = left.to_vec();
        Answer::Advanced(Advanced {
            left,
            ..Advanced::default()
        })
    }

    /// An advancer whose next operation is checked.
    #[derive(Default)]
    struct Stage(AdvancerState);

    impl Stage {
        fn next(&self, expected: &Operation) -> Operation {
            let next = self.0.next();
            assert_eq!(format!("{next:?}"), format!("{expected:?}"));
            next
        }

        fn succeeds(&mut self, expected: &Operation, answer: Answer) {
            let next = self.next(expected);
            assert!(matches!(self.0.settle(&next, Ok(answer)), Ok(Some(_))));
        }

        /// The operation fails, and the turn ends.
        fn fails(&mut self, expected: &Operation, error: Error) {
            let next = self.next(expected);
            assert!(self.0.settle(&next, Err(error)).is_err());
        }

        /// The batch is refused, and taken apart.
        fn is_refused(&mut self, expected: &Operation) {
            let next = self.next(expected);
            assert!(matches!(self.0.settle(&next, Err(refused())), Ok(None)));
        }
    }

    /// They stay claimed, whatever else happens, and hold up neither other branches nor a drain.
    #[test]
    fn branches_that_cannot_be_given_back_are_kept_until_they_are_free() {
        let [locked, free, other] = [branch(), branch(), branch()];
        let mut state = AdvancerState::default();
        state.kept.push((vec![locked, free], Why::Unsure));
        assert!(state.may_hold() && !state.is_busy());
        assert!(matches!(state.next(), Operation::Claim));

        // After a reconnect, the others that the process holds are given back, and these are not.
        state.doubt();
        let held = Answer::Held(vec![locked, free, other]);
        state.settle(&Operation::ReadBack, Ok(held)).unwrap();
        assert!(matches!(state.next(), Operation::GiveBack(given, _) if given == [other]));
        let given = state.next();
        state.settle(&given, Ok(Answer::GivenBack)).unwrap();
        assert!(matches!(state.next(), Operation::Claim) && state.keeps());

        state.release(&HashSet::from([locked.id]));
        assert!(matches!(state.next(), Operation::GiveBack(given, _) if given == [free]));
        assert!(state.keeps());
        state.release(&HashSet::new());
        assert!(!state.keeps());

        state.kept.push((vec![locked], Why::Unsure));
        state.doubt();
        // Somebody else has it by now.
        state
            .settle(&Operation::ReadBack, Ok(Answer::Held(vec![])))
            .unwrap();
        assert!(!state.keeps());
    }

    #[test]
    fn whatever_fails_is_followed_by_asking_what_is_held_and_by_giving_that_back() {
        let [one, two] = [branch(), branch()];
        let claims = |stage: &mut Stage| stage.succeeds(&Operation::Claim, taken([one, two]));
        let blames = |stage: &mut Stage| {
            claims(stage);
            stage.is_refused(&advance([one, two]));
            stage.is_refused(&advance([one]));
        };
        let reads_back = |mut stage: Stage| {
            assert!(stage.0.may_hold() && !stage.0.is_busy());
            // Nothing is claimed before the held branches are known, however often the question fails.
            stage.fails(&Operation::ReadBack, gone());
            stage.succeeds(&Operation::ReadBack, Answer::Held(vec![one, two]));
            assert!(stage.0.is_busy());
            let back = Operation::GiveBack(vec![one, two], Why::Unsure);
            stage.succeeds(&back, Answer::GivenBack);
            assert!(!stage.0.may_hold());
            // And if none are held, there is nothing to give back.
            stage.fails(&Operation::Claim, gone());
            stage.succeeds(&Operation::ReadBack, Answer::Held(Vec::new()));
            stage.succeeds(&Operation::Claim, taken([]));
        };
        for error in [gone, refused] {
            let mut stage = Stage::default();
            stage.fails(&Operation::Claim, error());
            reads_back(stage);

            let mut stage = Stage::default();
            blames(&mut stage);
            let back = stage.0.next();
            assert!(stage.0.settle(&back, Err(error())).is_err());
            reads_back(stage);
        }
        let mut stage = Stage::default();
        claims(&mut stage);
        stage.fails(&advance([one, two]), gone());
        reads_back(stage);

        let mut stage = Stage::default();
        claims(&mut stage);
        stage.0.doubt();
        reads_back(stage);
    }

    #[test]
    fn a_refused_batch_is_taken_apart_and_only_what_is_refused_alone_is_blamed() {
        let [good, bad, last] = [branch(), branch(), branch()];
        let mut stage = Stage::default();
        stage.succeeds(&Operation::Claim, taken([good, bad, last]));
        stage.is_refused(&advance([good, bad, last]));
        stage.succeeds(&advance([good]), advanced([]));
        stage.is_refused(&advance([bad]));
        let back = stage.0.next();
        assert_eq!(back.blames().map(|(id, _)| id), Some(bad.id));
        assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
        stage.succeeds(&advance([last]), advanced([]));
        assert!(!stage.0.may_hold());
        // The next batch is whole again.
        stage.succeeds(&Operation::Claim, taken([good, last]));
        stage.succeeds(&advance([good, last]), advanced([]));
    }

    /// If each branch of a batch counted, a moment's hindrance would put off the last of them for a
    /// minute.
    #[test]
    fn what_hinders_a_batch_counts_once_however_many_branches_it_has() {
        let all: [ClaimedBranch; 9] = std::array::from_fn(|_| branch());
        let mut stage = Stage::default();
        for round in 1..=3 {
            stage.succeeds(&Operation::Claim, taken(all));
            let batch = stage.next(&advance(all));
            assert!(matches!(stage.0.settle(&batch, Err(hindered())), Ok(None)));
            for (at, one) in all.into_iter().enumerate() {
                let alone = stage.next(&advance([one]));
                assert!(matches!(stage.0.settle(&alone, Err(hindered())), Ok(None)));
                let back = stage.0.next();
                assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
                let Operation::GiveBack(branches, Why::Hindered { times, first, .. }) = back else {
                    panic!("{back:?}");
                };
                // It is logged once.
                assert_eq!((branches, times, first), (vec![one], round, at == 0));
            }
        }
    }

    #[test]
    fn only_a_value_that_is_refused_spends_a_retry_and_what_hinders_is_counted_until_it_is_over() {
        let [one, other] = [branch(), branch()];
        let mut stage = Stage::default();
        // How a branch that met this error alone is given back.
        let given_back = |stage: &mut Stage, error: fn() -> Error| {
            stage.succeeds(&Operation::Claim, taken([one]));
            let advance = stage.next(&advance([one]));
            assert!(matches!(stage.0.settle(&advance, Err(error())), Ok(None)));
            let back = stage.0.next();
            assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
            match back {
                Operation::GiveBack(branches, why) if branches == [one] => why,
                other => panic!("{other:?}"),
            }
        };
        for (error, times) in [(hindered as fn() -> Error, 1), (refused, 2), (hindered, 3)] {
            let why = given_back(&mut stage, error);
            assert!(
                matches!(why, Why::Hindered { times: count, first: true, .. } if count == times),
                "{why:?}"
            );
        }
        let why = given_back(&mut stage, refused_for_its_value);
        assert!(matches!(why, Why::Refused(_)), "{why:?}");
        // A connection that is lost in between does not reset the count; an advance does.
        stage.fails(&Operation::Claim, gone());
        stage.succeeds(&Operation::ReadBack, Answer::Held(Vec::new()));
        let why = given_back(&mut stage, hindered);
        assert!(matches!(why, Why::Hindered { times: 4, .. }), "{why:?}");
        stage.succeeds(&Operation::Claim, taken([other]));
        stage.succeeds(&advance([other]), advanced([]));
        let why = given_back(&mut stage, hindered);
        assert!(matches!(why, Why::Hindered { times: 1, .. }), "{why:?}");
    }

    fn spreading<const N: usize>(branches: [ClaimedBranch; N]) -> Answer {
        Answer::Advanced(Advanced {
            spreading: branches.to_vec(),
            ..Advanced::default()
        })
    }

    #[test]
    fn between_two_turns_of_wide_expands_others_are_claimed_and_advanced() {
        let [wide, wider, other] = [branch(), branch(), branch()];
        let mut stage = Stage::default();
        stage.succeeds(&Operation::Claim, taken([wide, wider]));
        stage.succeeds(&advance([wide, wider]), spreading([wide, wider]));
        // The turn of the others, then of the first, of the others, of the second.
        stage.succeeds(&Operation::Claim, taken([other]));
        stage.succeeds(&advance([other]), advanced([]));
        stage.succeeds(&advance([wide]), spreading([wide]));
        stage.succeeds(&Operation::Claim, taken([]));
        stage.succeeds(&advance([wider]), spreading([wider]));
        // If there is nothing to claim, the wide expands do not wait.
        assert!(stage.0.pass());
        stage.succeeds(&advance([wide]), advanced([]));
        assert!(stage.0.is_busy() && stage.0.pass());
        stage.succeeds(&advance([wider]), advanced([]));
        assert!(!stage.0.pass() && !stage.0.may_hold());
    }

    #[test]
    fn whoever_claims_no_more_gives_back_what_spreads() {
        let [wide, wider] = [branch(), branch()];
        let mut stage = Stage::default();
        stage.succeeds(&Operation::Claim, taken([wide, wider]));
        stage.succeeds(&advance([wide, wider]), spreading([wide, wider]));
        stage.0.stop_spreading();
        let back = Operation::GiveBack(vec![wide, wider], Why::Unsure);
        stage.succeeds(&back, Answer::GivenBack);
        assert!(!stage.0.may_hold());
        // A spreading branch that is refused is given back alone.
        stage.succeeds(&Operation::Claim, taken([wide, wider]));
        stage.succeeds(&advance([wide, wider]), spreading([wide, wider]));
        stage.succeeds(&Operation::Claim, taken([]));
        stage.is_refused(&advance([wide]));
        let back = stage.0.next();
        assert_eq!(back.blames().map(|(id, _)| id), Some(wide.id));
        assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
        stage.succeeds(&Operation::Claim, taken([]));
        stage.succeeds(&advance([wider]), advanced([]));
    }

    #[test]
    fn what_cannot_be_read_is_given_back_for_nothing_and_the_rest_goes_on() {
        let [bad, last] = [branch(), branch()];
        let unread = || Unreadable {
            digest: "d".to_owned(),
            reason: "it is new".to_owned(),
            is_damaged: false,
            delay: Duration::from_secs(20),
        };
        for lost in [false, true] {
            let mut stage = Stage::default();
            stage.succeeds(&Operation::Claim, taken([bad, last]));
            let advanced = Answer::Advanced(Advanced {
                left: vec![last],
                unreadable: vec![(bad, unread())],
                ..Advanced::default()
            });
            stage.succeeds(&advance([bad, last]), advanced);
            let next = stage.0.next();
            let Operation::GiveBack(branches, Why::Unreadable(reason, delay)) = &next else {
                panic!("{next:?}");
            };
            assert_eq!(*branches, [bad]);
            assert!(reason.contains("it is new"));
            assert_eq!(*delay, unread().delay);
            assert!(next.blames().is_none() && stage.0.may_hold());
            if lost {
                assert!(stage.0.settle(&next, Err(gone())).is_err());
                stage.next(&Operation::ReadBack);
                continue;
            }
            assert!(stage.0.settle(&next, Ok(Answer::GivenBack)).is_ok());
            stage.succeeds(&advance([last]), self::advanced([]));
            assert!(!stage.0.may_hold());
        }
    }

    /// The operations between a lost connection and the next claim: `held` is what the process is found
    /// to hold. Returns how each part of it is given back.
    fn gives_back(stage: &mut Stage, held: &[ClaimedBranch]) -> Vec<(Vec<ClaimedBranch>, Why)> {
        stage.succeeds(&Operation::ReadBack, Answer::Held(held.to_vec()));
        let mut given = Vec::new();
        loop {
            match stage.0.next() {
                Operation::GiveBack(branches, why) => given.push((branches, why)),
                Operation::Claim => return given,
                other => panic!("{other:?}"),
            }
            let back = stage.0.next();
            assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
        }
    }

    #[test]
    fn branches_that_cost_the_connection_are_advanced_in_halves_until_the_one_to_blame_waits_alone()
    {
        let all: [ClaimedBranch; 8] = std::array::from_fn(|_| branch());
        let bad = all[5];
        let mut stage = Stage::default();
        let mut lost = 0;
        let mut advanced_of = HashSet::new();
        // Each time the connection is lost if the bad one is among them.
        let waits = loop {
            let open = all.iter().filter(|it| !advanced_of.contains(&it.id));
            stage.succeeds(
                &Operation::Claim,
                Answer::Claimed(BranchClaim::Taken(open.copied().collect())),
            );
            let batch = loop {
                let next = stage.0.next();
                let Operation::Advance(batch) = &next else {
                    panic!("{next:?}");
                };
                if batch.contains(&bad) {
                    assert!(stage.0.settle(&next, Err(gone())).is_err());
                    break batch.clone();
                }
                advanced_of.extend(batch.iter().map(|it| it.id));
                assert!(stage.0.settle(&next, Ok(advanced([]))).is_ok());
            };
            lost += 1;
            let given = gives_back(&mut stage, &batch);
            match given.as_slice() {
                [(branches, Why::Unsure)] => assert_eq!(*branches, batch),
                [(branches, why)] => {
                    assert_eq!(*branches, [bad]);
                    break why.clone();
                }
                other => panic!("{other:?}"),
            }
        };
        // With eight, four, two, alone, and alone again.
        assert_eq!((lost, advanced_of.len()), (5, 7));
        assert!(matches!(waits, Why::Hindered { times: 1, .. }), "{waits:?}");
        // From then on the good ones are advanced first, and its wait grows with each loss.
        let others = [branch(), branch()];
        for times in 2..4 {
            stage.succeeds(&Operation::Claim, taken([bad, others[0], others[1]]));
            stage.succeeds(&advance(others), advanced([]));
            stage.fails(&advance([bad]), gone());
            let given = gives_back(&mut stage, &[bad]);
            assert!(
                matches!(given.as_slice(), [(_, Why::Hindered { times: count, .. })] if *count == times),
                "{given:?}"
            );
        }
        // It is advanced at last, and is as good as any other.
        stage.succeeds(&Operation::Claim, taken([bad]));
        stage.succeeds(&advance([bad]), advanced([]));
        stage.succeeds(&Operation::Claim, taken([bad, others[0]]));
        stage.succeeds(&advance([bad, others[0]]), advanced([]));
    }

    /// An outage is no branch's fault.
    #[test]
    fn a_connection_lost_once_makes_no_branch_wait_and_a_lost_answer_to_a_question_changes_nothing()
    {
        let [one, two, other] = [branch(), branch(), branch()];
        let mut stage = Stage::default();
        stage.succeeds(&Operation::Claim, taken([one]));
        stage.fails(&advance([one]), gone());
        stage.fails(&Operation::ReadBack, gone());
        let given = gives_back(&mut stage, &[one]);
        assert!(matches!(given.as_slice(), [(_, Why::Unsure)]), "{given:?}");
        // The second time, the others that are held do not wait with it.
        stage.succeeds(&Operation::Claim, taken([two, one, other]));
        stage.succeeds(&advance([two, other]), advanced([other]));
        stage.succeeds(&advance([other]), advanced([]));
        stage.fails(&advance([one]), gone());
        stage.fails(&Operation::ReadBack, gone());
        stage.0.doubt();
        stage.succeeds(&Operation::ReadBack, Answer::Held(vec![one, two]));
        let back = stage.0.next();
        assert_eq!(back.blames().map(|(id, _)| id), Some(one.id));
        assert!(stage.0.settle(&back, Ok(Answer::GivenBack)).is_ok());
        let back = Operation::GiveBack(vec![two], Why::Unsure);
        stage.succeeds(&back, Answer::GivenBack);
        assert!(!stage.0.may_hold());
        // If it is not held any more, its advance was committed.
        stage.succeeds(&Operation::Claim, taken([one]));
        stage.fails(&advance([one]), gone());
        assert!(gives_back(&mut stage, &[]).is_empty());
    }

    #[test]
    fn the_memory_of_lost_branches_is_bounded() {
        let mut stage = Stage::default();
        for _ in 0..SUSPECTS + 10 {
            let one = branch();
            stage.succeeds(&Operation::Claim, taken([one]));
            stage.fails(&advance([one]), gone());
            gives_back(&mut stage, &[]);
            assert!(stage.0.suspects.len() <= SUSPECTS);
        }
        assert_eq!(stage.0.suspects.len(), 10);
    }

    #[test]
    fn what_is_left_of_a_batch_is_advanced_before_more_is_claimed() {
        let [one, two] = [branch(), branch()];
        let mut stage = Stage::default();
        stage.succeeds(&Operation::Claim, taken([one, two]));
        stage.succeeds(&advance([one, two]), advanced([two]));
        stage.succeeds(&advance([two]), advanced([]));
        stage.succeeds(&Operation::Claim, Answer::Claimed(BranchClaim::Dead));
        assert!(!stage.0.may_hold());
    }
}
