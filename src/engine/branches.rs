//! What an advancer holds between two transactions, and which it makes next.
//!
//! Owns: the order of an advancer's operations, and what it makes of their answers, and of none.
//! `advancer` performs them one after the other; the explorer performs the same ones in every order
//! that several processes can make, with answers that are lost, late or refused
//! (`store/explorer`). Pure but for `perform`, which calls the store.
//! Never: decides where a branch goes (`machine::advance`), connects, waits, or tells anybody.

use std::time::Duration;

use crate::machine::advance::AdvanceLimits;
use crate::model::BranchId;
use crate::store::advance::{self, Advanced, BranchClaim, ClaimedBranch, GiveBack};
use crate::store::definition::Definitions;
use crate::store::process::{self, Claimant};
use crate::store::{Conn, Error};

/// The branches that an advancer has claimed.
#[derive(Clone, Debug, Default)]
pub struct Branches {
    claimed: Vec<ClaimedBranch>,
    /// A batch was refused: from now on each alone, so that one bad branch spends its own retries
    /// and nobody else's.
    alone: bool,
    /// What is to be given back before anything else; with the error, where there was one.
    giving: Option<Giving>,
    /// A transaction failed, so there may be claims that are not known here. Its process lives: its
    /// heartbeats would extend them for ever, and no reaper would take them.
    unsure: bool,
}

type Giving = (Vec<ClaimedBranch>, Option<Error>);

/// What an advancer does at once with the database: one transaction, and after an error a question.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Asks what its process holds, once nothing that an earlier connection has sent can claim any
    /// more.
    ReadBack,
    /// Gives branches back; with an error they spend a retry.
    GiveBack(Vec<ClaimedBranch>, Option<Error>),
    /// Claims a batch.
    Claim,
    /// Advances these.
    Advance(Vec<ClaimedBranch>),
}

/// What came of an operation.
#[derive(Debug)]
pub enum Answer {
    /// What the process holds.
    Held(Vec<ClaimedBranch>),
    /// They are given back.
    GivenBack,
    /// What was claimed.
    Claimed(BranchClaim),
    /// What was advanced.
    Advanced(Advanced),
}

/// On which terms an advancer claims and advances.
pub struct Terms<'a> {
    /// The pipelines it serves; `None` for all.
    pub pipelines: Option<&'a [String]>,
    /// Branches that may be claimed at once.
    pub most: usize,
    /// For how long.
    pub lease: Duration,
    /// Of the input that a fan-in makes, in bytes.
    pub max_payload: usize,
    /// What advancing a branch of a pipeline may cost.
    pub limits: &'a (dyn Fn(&str) -> AdvanceLimits + Sync),
    /// Definitions met so far.
    pub definitions: &'a Definitions,
    /// Until a branch that erred is tried again.
    pub delay: Duration,
}

impl Branches {
    /// What is to be done next: one operation, and then [`settle`](Self::settle).
    pub fn next(&self) -> Operation {
        if self.unsure {
            return Operation::ReadBack;
        }
        if let Some((branches, error)) = &self.giving {
            return Operation::GiveBack(branches.clone(), error.clone());
        }
        match self.claimed.as_slice() {
            [] => Operation::Claim,
            [first, ..] if self.alone => Operation::Advance(vec![*first]),
            claimed => Operation::Advance(claimed.to_vec()),
        }
    }

    /// True while there is something to do with what is held, before more is claimed.
    pub fn is_busy(&self) -> bool {
        !self.claimed.is_empty() || self.giving.is_some()
    }

    /// True while there may be claims whose leases a heartbeat has to extend.
    pub fn may_hold(&self) -> bool {
        self.is_busy() || self.unsure
    }

    /// Takes note of what came of `done`, and gives it on. `None`: a batch was refused, and what
    /// is to blame is going to be found.
    pub fn settle(
        &mut self,
        done: &Operation,
        answer: Result<Answer, Error>,
    ) -> Result<Option<Answer>, Error> {
        match (done, &answer) {
            (_, Ok(Answer::Held(held))) => {
                self.unsure = false;
                self.giving = (!held.is_empty()).then(|| (held.clone(), None));
            }
            (_, Ok(Answer::GivenBack)) => self.giving = None,
            (_, Ok(Answer::Claimed(BranchClaim::Taken(claimed)))) => {
                self.claimed.clone_from(claimed);
            }
            (_, Ok(Answer::Claimed(BranchClaim::Dead))) => {}
            (Operation::Advance(batch), Ok(Answer::Advanced(advanced))) => {
                let left = advanced.left.iter().copied();
                self.claimed.splice(..batch.len(), left);
            }
            (_, Ok(Answer::Advanced(_))) => unreachable!("nothing else advances"),
            (Operation::Advance(batch), Err(error)) if !error.is_unavailable() => {
                match batch.len() {
                    1 => self.giving = Some((vec![self.claimed.remove(0)], Some(error.clone()))),
                    _ => self.alone = true,
                }
                return Ok(None);
            }
            (_, Err(_)) => self.doubt(),
        }
        self.alone &= !self.claimed.is_empty();
        answer.map(Some)
    }

    /// What is held has to be asked for: the next operation failed, or could not be begun.
    pub fn doubt(&mut self) {
        *self = Self {
            unsure: true,
            ..Self::default()
        };
    }

    /// All that it remembers, for whoever compares memories.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> (&[ClaimedBranch], bool, Option<&Giving>, bool) {
        let giving = self.giving.as_ref();
        (&self.claimed, self.alone, giving, self.unsure)
    }
}

impl Operation {
    /// Does it. `ReadBack` is two transactions, of which the first says nothing that could be lost.
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
            Self::GiveBack(branches, error) => {
                let message = error.as_ref().map(|error| crate::telemetry::chain(error));
                let why = match &message {
                    None => GiveBack::Released,
                    Some(message) => GiveBack::Errored {
                        class: "advance_failed",
                        message,
                        delay: terms.delay,
                    },
                };
                let given = advance::give_back(conn, branches, why).await;
                given.map(|()| Answer::GivenBack)
            }
            Self::Claim => {
                let claim = advance::claim(conn, me, terms.pipelines, terms.most, terms.lease);
                claim.await.map(Answer::Claimed)
            }
            Self::Advance(branches) => {
                let Terms {
                    max_payload,
                    limits,
                    definitions,
                    ..
                } = *terms;
                let advanced = advance::advance(conn, branches, max_payload, limits, definitions);
                advanced.await.map(Answer::Advanced)
            }
        }
    }

    /// The branch that has erred, and how: it is to be given back for that.
    pub fn blames(&self) -> Option<(BranchId, &Error)> {
        match self {
            Self::GiveBack(branches, Some(error)) => {
                branches.first().map(|branch| (branch.id, error))
            }
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
        Error::Retryable(Arc::new(Source::Gone))
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

    /// An advancer, and what it does next is checked.
    #[derive(Default)]
    struct Stage(Branches);

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

        /// It fails, and that is the end of a turn.
        fn fails(&mut self, expected: &Operation, error: Error) {
            let next = self.next(expected);
            assert!(self.0.settle(&next, Err(error)).is_err());
        }

        /// It is refused, and taken apart.
        fn is_refused(&mut self, expected: &Operation) {
            let next = self.next(expected);
            assert!(matches!(self.0.settle(&next, Err(refused())), Ok(None)));
        }
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
            // Nothing is claimed before it is known, however often that fails.
            stage.fails(&Operation::ReadBack, gone());
            stage.succeeds(&Operation::ReadBack, Answer::Held(vec![one, two]));
            assert!(stage.0.is_busy());
            let back = Operation::GiveBack(vec![one, two], None);
            stage.succeeds(&back, Answer::GivenBack);
            assert!(!stage.0.may_hold());
            // And where nothing is held there is nothing to give back.
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
