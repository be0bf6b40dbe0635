//! An advancer: the daemon's own operations, one at a time.

use std::time::Duration;

use super::{Advancer, Cx, advance_limits, holds, step_limits};
use crate::engine::advancer_state::{AdvancerState, Answer, Operation, Terms};
use crate::explorer::canon::Canon;
use crate::explorer::flows::LEASE;
use crate::explorer::local::refused_for_its_value;
use crate::model::*;
use crate::store::advance::{BranchClaim, Limits};
use crate::store::{Conn, Error};

impl Advancer {
    /// The letter of its next operation.
    pub(super) fn verb(&self) -> u8 {
        match self.branches.next() {
            Operation::ReadBack => b'u',
            Operation::GiveBack(..) => b'g',
            Operation::Claim => b'c',
            Operation::Advance(_) => b'd',
        }
    }

    pub(super) async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        match verb {
            // Until it is told that it is dead, it tries to use its claims.
            b'r' => {
                self.branches.forget();
                return self.life.register(Role::Advancer, cx).await;
            }
            // Somebody has locked a row of the first branch of the batch.
            b'h' => {
                if let Operation::Advance(batch) = self.branches.next() {
                    let error = Error::Gone("somebody has locked it".to_owned());
                    self.branches.set_aside(&[batch[0].id], &error);
                }
                return Ok(());
            }
            b'b' => {
                let holds = self.branches.may_hold();
                return self.life.beat(holds, cx).await.map(drop);
            }
            verb => assert_eq!(verb, self.verb(), "an advancer does one after the other"),
        }
        let operation = self.branches.next();
        let me = self.life.claimant();
        let left_out = cx.definitions.left_out();
        let terms = Terms {
            most: self.slots,
            lease: LEASE,
            limits: Limits {
                advance: &advance_limits,
                step: &step_limits,
            },
            definitions: cx.definitions,
            left_out: &left_out,
            backoff: &|_, _| Duration::from_secs(1),
        };
        let done = async |conn: &mut Conn| operation.perform(conn, me, &terms).await;
        let mut answer = cx.outcome(done).await?;
        // A refusal during an advancement is one for its value, so that budgets are spent.
        if let (Operation::Advance(_), Err(Error::Refused { statement, .. })) =
            (&operation, &answer)
        {
            answer = Err(refused_for_its_value(statement));
        }
        if let Ok(Answer::Held(held)) = &answer {
            let said = held.iter().map(|branch| branch.id.0).collect();
            holds(cx.conn, me.process, said).await?;
        }
        match self.branches.settle(&operation, answer) {
            Ok(Some(Answer::Claimed(BranchClaim::Dead))) => self.life.check = true,
            Ok(_) => {}
            Err(_) => self.life.epoch += 1,
        }
        Ok(())
    }

    pub(super) fn crash(&mut self) {
        self.branches = AdvancerState::default();
    }

    pub(super) fn write(&self, to: &mut Canon) {
        let (lists, suspects, flags) = self.branches.memory();
        for branches in lists {
            for branch in branches {
                to.id(branch.id.0.as_u128());
                to.id(branch.token.0.as_u128());
            }
            to.number(-1);
        }
        for (branch, numbers) in suspects {
            to.id(branch.0.as_u128());
            numbers.into_iter().for_each(|number| to.number(number));
        }
        to.number(flags);
    }
}
