//! The turn of a starter to change the schema of a cluster.
//!
//! Owns: the row of the starter that has the turn: the row with version zero in the record of the migrations. Never:
//! changes the schema (`migrate`).

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::conn::Conn;
use super::error::Error;
use super::micros;
use super::statement::statements;

/// How long a starter has its turn, unless it renews it: longer than a change of a small table takes.
const LEASE: Duration = Duration::from_secs(10);

/// The pause before the next request for the turn.
const PAUSE: Duration = Duration::from_millis(250);

statements! {
    /// RACE: two nodes of a cluster change the schema at once. Each change waits for all changes before it, at every
    /// node, and a node that waits for its own change while it has to make room for another's may hang for ever, and
    /// with it the cluster. So only one starter at a time makes changes; its turn is a row, because no node sees
    /// another's locks. Raced by `starters_at_three_nodes_make_one_schema`.
    OFFER_TURN in Mysql = "
        INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (0, :holder, 0)
        {keep:ductwork_migrations;version}";
    TAKE_TURN in Mysql = "
        UPDATE ductwork_migrations SET name = :holder, applied_at = {now} + :lease
         WHERE version = 0 AND (name = :holder OR applied_at <= {now})";
    END_TURN in Mysql = "DELETE FROM ductwork_migrations WHERE version = 0 AND name = :holder";
}

/// The turn of a starter, which is needed only on a cluster.
pub(super) struct Turn {
    holder: String,
    is_ours: bool,
}

impl Turn {
    /// A turn that has not been taken yet.
    pub(super) fn new() -> Self {
        let holder = Uuid::new_v4().to_string();
        Self {
            holder,
            is_ours: false,
        }
    }

    /// Waits for the turn, or renews it.
    ///
    /// # Errors
    /// `Schema` when another starter has had the turn for longer than this.
    pub(super) async fn take(&mut self, conn: &mut Conn, patience: Duration) -> Result<(), Error> {
        let began = Instant::now();
        while conn.is_in_cluster() && !self.taken(conn).await? {
            if began.elapsed() >= patience {
                return Err(Error::Schema(
                    "another process, at another node of the cluster, has been changing the schema for too long: \
                     see to it, and try again"
                        .to_owned(),
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn taken(&mut self, conn: &mut Conn) -> Result<bool, Error> {
        let args = [
            ("holder", self.holder.as_str().into()),
            ("lease", micros(LEASE).into()),
        ];
        let taken = conn.transaction(async |conn| {
            conn.execute(&OFFER_TURN, &args).await?;
            Ok(conn.execute(&TAKE_TURN, &args).await? == 1)
        });
        self.is_ours = taken.await?;
        Ok(self.is_ours)
    }

    /// Passes the turn to the next starter.
    pub(super) async fn end(self, conn: &mut Conn) -> Result<(), Error> {
        if self.is_ours {
            let args = [("holder", self.holder.as_str().into())];
            conn.execute(&END_TURN, &args).await?;
        }
        Ok(())
    }
}
