//! An advancer: claims branches, advances them, gives back what it could not.

use std::time::Duration;

use super::{Advancer, Cx, Told, advance_limits, holds};
use crate::machine::advance::AdvanceLimits;
use crate::model::*;
use crate::store::advance::{self, BranchClaim, GiveBack};
use crate::store::explorer::flows::LEASE;
use crate::store::{Conn, Error, process};

impl Advancer {
    pub(super) async fn act(&mut self, verb: u8, cx: &mut Cx<'_>) -> Result<(), Error> {
        match verb {
            b'r' => {
                // Its claims stay in its memory: it tries, and its tokens are no longer theirs.
                self.life.register(Role::Advancer, cx).await
            }
            b'b' => {
                let holds = !self.claimed.is_empty() || self.unsure || self.give.is_some();
                self.life.beat(holds, cx).await.map(drop)
            }
            b'c' => {
                let (me, n) = (self.life.claimant(), self.slots);
                let claim = async |conn: &mut Conn| advance::claim(conn, me, None, n, LEASE).await;
                match cx.told(claim).await? {
                    Told::Done(BranchClaim::Taken(claimed)) => self.claimed = claimed,
                    Told::Done(BranchClaim::Dead) => self.life.check = true,
                    Told::Lost | Told::Cut => {
                        self.life.epoch += 1;
                        self.unsure = true;
                    }
                    Told::Refused => {}
                }
                Ok(())
            }
            b'd' => {
                let n = if self.alone { 1 } else { self.claimed.len() };
                let (batch, definitions) = (self.claimed[..n].to_vec(), cx.definitions);
                let advance = async |conn: &mut Conn| {
                    let limits: &(dyn Fn(&str) -> AdvanceLimits + Sync) = &advance_limits;
                    advance::advance(conn, &batch, 1 << 20, limits, definitions).await
                };
                match cx.told(advance).await? {
                    Told::Done(advanced) => {
                        self.claimed.splice(..n, advanced.left);
                    }
                    Told::Lost | Told::Cut => {
                        self.claimed.clear();
                        self.life.epoch += 1;
                        self.unsure = true;
                    }
                    Told::Refused if n == 1 => {
                        self.give = Some((vec![self.claimed.remove(0)], true));
                    }
                    Told::Refused => self.alone = true,
                }
                self.alone &= !self.claimed.is_empty();
                Ok(())
            }
            b'u' => {
                let process = self.life.process();
                process::fence_earlier(cx.conn, self.life.claimant()).await?;
                let left = advance::held(cx.conn, process).await?;
                let said = left.iter().map(|branch| branch.id.0).collect();
                holds(cx.conn, process, said).await?;
                self.give = (!left.is_empty()).then_some((left, false));
                self.unsure = false;
                Ok(())
            }
            b'g' => {
                let (give, erred) = self.give.take().expect("what is to be given back");
                let why = match erred {
                    true => GiveBack::Errored {
                        class: "advance_failed",
                        message: "deadlocks",
                        delay: Duration::from_secs(1),
                    },
                    false => GiveBack::Released,
                };
                let back = async |conn: &mut Conn| advance::give_back(conn, &give, why).await;
                if !matches!(cx.told(back).await?, Told::Done(())) {
                    self.claimed.clear();
                    self.life.epoch += 1;
                    self.unsure = true;
                }
                Ok(())
            }
            verb => unreachable!("an advancer does not {verb}"),
        }
    }
}
