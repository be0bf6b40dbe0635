//! One unit of work after another: claim, run or decide, commit.
//!
//! Owns: the loops of the worker, the advancer and the reaper, and the state that they share within
//! a process. Never: knows signals or forks (`process` does), writes SQL (`store` does), decides
//! what an outcome costs or where a branch goes (`machine` does).

pub mod actor;
pub mod advancer;
pub mod advancer_state;
mod claim_size;
pub mod counting;
pub mod keeping;
pub mod lifeline;
mod locked;
pub mod outages;
pub mod policy;
pub mod prefetch;
pub mod reaper;
pub mod runner;
pub mod shared;
pub mod slots;
pub mod stuck;
pub mod trouble;
pub mod worker;
pub mod worker_state;

pub use policy::Policy;

use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::model::ProcessId;
use crate::store::process::Claimant;
use crate::store::{Conn, Error, Location, Purpose, chance};
use crate::telemetry::events;

use outages::{Outages, Say};

/// Wakes other processes. A wakeup is a hint that saves a wait: the truth is in the database, and a
/// process that missed the wakeup finds the work at its next poll.
pub trait Waker: Send + Sync {
    /// Executions of this pipeline can be claimed.
    fn job_available(&self, pipeline: &str);
    /// Branches can be advanced.
    fn branch_available(&self);
    /// A cancellation may have revoked claims: their workers learn it now instead of at their next
    /// heartbeat.
    fn claims_revoked(&self);
    /// This process has registered: its supervisor need not wait for its own next look.
    fn registered(&self);
}

/// A connection that is opened when it is needed, and again after it broke.
pub struct Link {
    location: Location,
    conn: Option<Conn>,
    failures: u32,
    /// None of these failures happened because the database could not be reached.
    reached: bool,
    outages: Outages,
    /// How many connections were given up.
    epoch: u32,
    /// How many had been given up when the caller last asked whether the connection is another.
    known: u32,
}

/// The longest wait between attempts to reconnect: work resumes within it after an outage.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// A loop that has lost its connection hears no wakeup for this long: others that work may send hundreds per second.
const DEAF: Duration = Duration::from_millis(100);

/// How long a loop hears no wakeup after this error: for the whole of its wait, unless the error is an outage. Proven by
/// `a_loop_whose_work_is_refused_does_not_try_again_with_each_wakeup`.
fn deaf_for(error: &Error) -> Duration {
    match error.is_unavailable() {
        true => DEAF,
        false => Duration::MAX,
    }
}

/// Waits for a wakeup, which is heard only after this time.
async fn wakeup(of: &Notify, after: Duration) {
    if !after.is_zero() {
        tokio::time::sleep(after).await;
    }
    of.notified().await;
}

impl Link {
    /// A link that is not connected yet.
    pub fn new(location: Location) -> Self {
        Self {
            location,
            conn: None,
            failures: 0,
            reached: true,
            outages: Outages::default(),
            epoch: 0,
            known: 0,
        }
    }

    /// The connection, opened if need be. This is one attempt: the caller waits between attempts.
    pub async fn get(&mut self) -> Result<&mut Conn, Error> {
        if self.conn.as_ref().is_some_and(Conn::is_broken) {
            self.replace();
        }
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.location.connect(Purpose::Engine).await?,
        };
        Ok(self.conn.insert(conn))
    }

    /// The same, with the identity under which the process claims through it.
    pub async fn claiming(&mut self, process: ProcessId) -> Result<(&mut Conn, Claimant), Error> {
        self.get().await?;
        let epoch = self.epoch;
        Ok((self.get().await?, Claimant { process, epoch }))
    }

    /// Connects if need be; returns true, once, when the connection is another than before.
    ///
    /// RACE: the connection leads to an heir of the server that lacks the last commits: work that we had
    /// seen committed is ours again there, and our heartbeats would keep it for ever. So a process that
    /// reconnects asks what it holds. Raced by
    /// `a_promoted_standby_that_lacks_the_last_commits_is_worked_on_from_where_it_is`.
    pub async fn is_another(&mut self) -> Result<bool, Error> {
        self.get().await?;
        Ok(std::mem::replace(&mut self.known, self.epoch) != self.epoch)
    }

    /// Gives up the connection: the next operation opens another one.
    pub fn replace(&mut self) {
        self.conn = None;
        self.epoch += 1;
    }

    /// Statements sent since the last call. Those of a connection that broke in between are not
    /// counted.
    pub fn take_statements(&mut self) -> u64 {
        self.conn.as_mut().map_or(0, Conn::take_statements)
    }

    /// Takes note of a failure; returns how long to wait before the next attempt. The wait is
    /// spread, so that the processes of a deployment do not all come back at once.
    pub fn failed(&mut self, error: &Error) -> Duration {
        self.replace();
        if error.is_unavailable() {
            self.location.doubt();
        }
        self.failures += 1;
        match self.outages.failed(error.is_not_now(), Instant::now()) {
            Say::Nothing => {}
            Say::Lost if error.is_not_now() => events::database_hindered(error),
            Say::Lost => events::database_lost(error),
            Say::ComesAndGoes => events::database_comes_and_goes(error),
        }
        self.reached &= error.is_not_now();
        let wait = Duration::from_millis(50 << self.failures.min(6)).min(RECONNECT_MAX);
        spread(wait)
    }

    /// Takes note of a success.
    pub fn worked(&mut self) {
        if self.failures > 0 && self.outages.over() {
            events::database_back(self.failures, self.reached, self.location.server());
        }
        self.reached = true;
        self.failures = 0;
    }

    /// Closes it.
    pub async fn close(self) {
        if let Some(conn) = self.conn {
            conn.close().await;
        }
    }
}

/// A wait, ± 25 %: many processes with the same wait must not all wake at once.
pub fn spread(wait: Duration) -> Duration {
    wait.mul_f64(0.75 + 0.5 * chance())
}
