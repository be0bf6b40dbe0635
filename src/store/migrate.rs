//! The schema, and bringing it up to date.
//!
//! Owns: the migrations and the record of those applied. Each is one transaction with its own
//! record as first write: of two supervisors that start at once one waits for the other on
//! that row, and one killed half-way leaves nothing (D15).

use super::conn::Conn;
use super::dialect::Dialect;
use super::error::Error;
use super::statement::statements;
use crate::failpoint::failpoint;

/// One step of the schema's history.
pub struct Migration {
    /// 1, 2, …, the same in every database.
    pub version: i64,
    /// What it does.
    pub name: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

/// All of them, in order. Append only: an applied migration never changes.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "initial",
        postgres: include_str!("../../migrations/postgres/0001_initial.sql"),
        sqlite: include_str!("../../migrations/sqlite/0001_initial.sql"),
    },
    Migration {
        version: 2,
        name: "epochs",
        postgres: include_str!("../../migrations/postgres/0002_epochs.sql"),
        sqlite: include_str!("../../migrations/sqlite/0002_epochs.sql"),
    },
    Migration {
        version: 3,
        name: "quiet",
        postgres: include_str!("../../migrations/postgres/0003_quiet.sql"),
        sqlite: include_str!("../../migrations/sqlite/0003_quiet.sql"),
    },
];

const CREATE_RECORD: &str = "
    CREATE TABLE IF NOT EXISTS ductwork_migrations (
        version bigint PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)";

statements! {
    RECORD = "
        INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (:version, :name, {now})";
    APPLIED = "SELECT version FROM ductwork_migrations ORDER BY version";
}

impl Migration {
    /// Its SQL.
    pub fn sql(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Postgres => self.postgres,
            Dialect::Sqlite => self.sqlite,
        }
    }
}

/// The versions that the database has. Empty for a database without our tables.
pub async fn applied(conn: &mut Conn) -> Result<Vec<i64>, Error> {
    match conn.fetch(&APPLIED, &[]).await {
        Ok(rows) => rows.iter().map(|row| row.get("version")).collect(),
        // The table is missing: nothing was ever applied.
        Err(Error::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Applies what is missing; the migrations that were applied by this call.
///
/// Fails when the database is newer than this program.
pub async fn migrate(conn: &mut Conn) -> Result<Vec<&'static Migration>, Error> {
    check_not_newer(&applied(conn).await?)?;
    create_record(conn).await?;
    let mut done = Vec::new();
    for migration in MIGRATIONS {
        if applied(conn).await?.contains(&migration.version) {
            continue;
        }
        let dialect = conn.dialect();
        failpoint!(conn, "migrate.begin");
        let applied = conn
            .transaction(async |conn| {
                let args = [
                    ("version", migration.version.into()),
                    ("name", migration.name.into()),
                ];
                conn.execute(&RECORD, &args).await?;
                conn.script(migration.name, migration.sql(dialect)).await?;
                failpoint!(conn, "migrate.written");
                Ok(())
            })
            .await;
        failpoint!(conn, "migrate.end");
        match applied {
            Ok(()) => done.push(migration),
            // Another process was faster.
            Err(Error::Constraint { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// PostgreSQL's IF NOT EXISTS may still collide with a concurrent creation, in its catalogue.
async fn create_record(conn: &mut Conn) -> Result<(), Error> {
    let mut attempts = 0;
    loop {
        let created = conn
            .script("create ductwork_migrations", CREATE_RECORD)
            .await;
        attempts += 1;
        match created {
            Err(Error::Constraint { .. } | Error::Refused { .. } | Error::Retryable(_))
                if attempts < 5 =>
            {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            created => return created,
        }
    }
}

/// Fails unless the schema is the one this program was built for.
pub async fn check(conn: &mut Conn) -> Result<(), Error> {
    let applied = applied(conn).await?;
    check_not_newer(&applied)?;
    let missing = MIGRATIONS.iter().filter(|m| !applied.contains(&m.version));
    match missing.count() {
        0 => Ok(()),
        n => Err(Error::Schema(format!(
            "the database lacks {n} of {} migrations; run `ductworkd migrate`",
            MIGRATIONS.len()
        ))),
    }
}

fn check_not_newer(applied: &[i64]) -> Result<(), Error> {
    let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
    match applied.iter().find(|version| **version > newest) {
        None => Ok(()),
        Some(version) => Err(Error::Schema(format!(
            "the database is at version {version} of the schema, this program knows {newest}; \
             install the newer ductworkd"
        ))),
    }
}
