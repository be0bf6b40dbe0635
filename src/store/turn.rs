//! The turn of a starter to change the schema of a cluster.
//!
//! Owns: the row of the starter that has the turn: the row with version zero in the record of the migrations. Never:
//! changes the schema (`migrate`).

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::conn::Conn;
use super::error::Error;
use super::statement::{Args, Statement, statements};

/// A turn that has not been renewed for this long is over. The starter that waits measures it by its own clock, because
/// the clocks of the nodes may differ.
const LEASE: Duration = Duration::from_secs(10);

/// The pause before the next look.
const PAUSE: Duration = Duration::from_millis(250);

statements! {
    /// RACE: two nodes of a cluster change the schema at once. Each change waits for all changes before it, at every
    /// node, and a node that waits for its own change while it has to make room for another's may hang for ever, and
    /// with it the cluster. So only one starter at a time makes changes; its turn is a row, because no node sees
    /// another's locks. Raced by `starters_at_three_nodes_make_one_schema`.
    OFFER_TURN in Mysql = "
        INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (0, :holder, 0)
        {keep:ductwork_migrations;version}";
    TURN in Mysql = "SELECT name AS holder, applied_at FROM ductwork_migrations WHERE version = 0";
    /// Takes the turn from a starter that has not renewed it since this one looked, or renews its own.
    TAKE_TURN in Mysql = "
        UPDATE ductwork_migrations SET name = :holder, applied_at = {now}
         WHERE version = 0 AND name = :before AND applied_at = :renewed";
    END_TURN in Mysql = "DELETE FROM ductwork_migrations WHERE version = 0 AND name = :holder";
}

/// The turn of a starter, which is needed only on a cluster.
pub(super) struct Turn {
    holder: String,
    is_ours: bool,
    /// The turn as it was found last, and since when it has been found like that.
    found: Option<(Renewed, Instant)>,
}

/// The starter that has the turn, and the time of its last renewal by the clock of its own node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Renewed {
    holder: String,
    at: i64,
}

impl Turn {
    /// A turn that has not been taken yet.
    pub(super) fn new() -> Self {
        let holder = Uuid::new_v4().to_string();
        Self {
            holder,
            is_ours: false,
            found: None,
        }
    }

    /// Waits for the turn, or renews it. The wait is at least as long as the turn of a starter that is gone.
    ///
    /// A change of the schema holds up all commits of the cluster. So a starter that takes the turn during another's long
    /// change has it once that change is over, and the other finds this out before its next change.
    ///
    /// # Errors
    /// `Schema` when another starter has had the turn for longer than this.
    pub(super) async fn take(&mut self, conn: &mut Conn, patience: Duration) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            match self.taken(conn).await {
                Ok(true) => return Ok(()),
                // Another's change may last longer than an answer is waited for.
                Ok(false) | Err(Error::Retryable { .. }) => {}
                Err(error) => return Err(error),
            }
            if began.elapsed() >= patience.max(LEASE + 2 * PAUSE) {
                return Err(Error::Schema(
                    "another process, at another node of the cluster, has been changing the schema for too long: \
                     see to it, and try again"
                        .to_owned(),
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn taken(&mut self, conn: &mut Conn) -> Result<bool, Error> {
        let args = [("holder", self.holder.as_str().into())];
        self.is_ours = false;
        let asked = Instant::now();
        let row = match conn.fetch_optional(&TURN, &[]).await? {
            None => {
                write(conn, &OFFER_TURN, &args).await?;
                conn.fetch_optional(&TURN, &[]).await?
            }
            row => row,
        };
        let Some(row) = row else {
            return Ok(false);
        };
        let found = Renewed {
            holder: row.get("holder")?,
            at: row.get("applied_at")?,
        };
        if !self.may_take(&found, asked, Instant::now()) {
            return Ok(false);
        }
        let args = [
            ("holder", self.holder.as_str().into()),
            ("before", found.holder.as_str().into()),
            ("renewed", found.at.into()),
        ];
        self.is_ours = write(conn, &TAKE_TURN, &args).await? == 1;
        Ok(self.is_ours)
    }

    /// True where the turn is ours, or its holder has not renewed it for longer than a lease. The answer to a question may
    /// come late, and its row may be as old as the question, or as new as the answer.
    fn may_take(&mut self, found: &Renewed, asked: Instant, answered: Instant) -> bool {
        let since = match &self.found {
            Some((before, since)) if before == found => *since,
            _ => answered,
        };
        self.found = Some((found.clone(), since));
        found.holder == self.holder || asked.saturating_duration_since(since) >= LEASE
    }

    /// Passes the turn to the next starter.
    pub(super) async fn end(self, conn: &mut Conn) -> Result<(), Error> {
        if self.is_ours {
            let args = [("holder", self.holder.as_str().into())];
            write(conn, &END_TURN, &args).await?;
        }
        Ok(())
    }
}

/// Another node's starter may be writing the row: the transaction is tried again.
async fn write(conn: &mut Conn, statement: &Statement, args: Args<'_>) -> Result<u64, Error> {
    conn.transaction(async |conn| conn.execute(statement, args).await)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_taken_from_a_starter_that_has_not_renewed_it_for_a_lease_whatever_its_clock_says()
    {
        let mut turn = Turn::new();
        let start = Instant::now();
        let renewed = |at| Renewed {
            holder: "another".to_owned(),
            at,
        };
        let mut may_take = |at, asked, answered| turn.may_take(&renewed(at), asked, answered);
        assert!(!may_take(1, start, start));
        assert!(!may_take(i64::MAX, start + LEASE, start + LEASE));
        // The answer took a lease.
        let answered = start + 3 * LEASE;
        assert!(!may_take(0, start + 2 * LEASE, answered));
        let almost = answered + LEASE - Duration::from_millis(1);
        assert!(!may_take(0, almost, answered + LEASE));
        assert!(may_take(0, answered + LEASE, answered + LEASE));
        let ours = Renewed {
            holder: turn.holder.clone(),
            at: 7,
        };
        assert!(turn.may_take(&ours, start, start));
    }
}
