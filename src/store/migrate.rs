//! The schema, and its migrations.
//!
//! Owns: the migrations and the record of those applied. Each is one transaction with its own
//! record as first write: when two supervisors start at once, one waits for the other on that row,
//! and one killed half-way leaves nothing (D15). On PostgreSQL, a migration waits for others no
//! longer than others can wait for it.

use std::time::{Duration, Instant};

use super::backend::Setting;
use super::conn::Conn;
use super::copy::UNFINISHED;
use super::dialect::Dialect;
use super::error::Error;
use super::statement::{Args, Only, Statement, statements};
use super::turn::Turn;
use super::writable;
use crate::failpoint::failpoint;

/// One step of the schema's history.
pub struct Migration {
    /// 1, 2, …, the same in every database.
    pub version: i64,
    /// Its name, for people.
    pub name: &'static str,
    texts: [&'static str; Dialect::COUNT],
}

/// A migration from the files of this name, in each database's SQL.
macro_rules! migration {
    ($version:literal, $name:literal, $file:literal) => {
        Migration {
            version: $version,
            name: $name,
            texts: {
                let mut texts = [""; Dialect::COUNT];
                texts[Dialect::Postgres as usize] =
                    include_str!(concat!("../../migrations/postgres/", $file));
                texts[Dialect::Sqlite as usize] =
                    include_str!(concat!("../../migrations/sqlite/", $file));
                texts[Dialect::Mysql as usize] =
                    include_str!(concat!("../../migrations/mysql/", $file));
                texts
            },
        }
    };
}

/// All migrations, in order. Append only: an applied migration never changes.
pub const MIGRATIONS: &[Migration] = &[
    migration!(1, "initial", "0001_initial.sql"),
    migration!(2, "epochs", "0002_epochs.sql"),
    migration!(3, "quiet", "0003_quiet.sql"),
    migration!(4, "part by part", "0004_part_by_part.sql"),
    migration!(5, "troubles", "0005_troubles.sql"),
    migration!(6, "rolling upgrades", "0006_rolling_upgrades.sql"),
    migration!(7, "logs", "0007_logs.sql"),
    migration!(8, "answers", "0008_answers.sql"),
    migration!(9, "console", "0009_console.sql"),
    migration!(10, "lists", "0010_lists.sql"),
    migration!(11, "metrics", "0011_metrics.sql"),
    migration!(12, "visitors", "0012_visitors.sql"),
    migration!(13, "pauses", "0013_pauses.sql"),
    migration!(14, "bulks", "0014_bulks.sql"),
    migration!(15, "webhooks", "0015_webhooks.sql"),
    migration!(16, "traces", "0016_traces.sql"),
    migration!(17, "reports", "0017_reports.sql"),
    migration!(18, "payloads", "0018_payloads.sql"),
    migration!(19, "series", "0019_series.sql"),
    migration!(20, "filters and baggage", "0020_filters_and_baggage.sql"),
    migration!(21, "questions", "0021_questions.sql"),
    migration!(22, "revivals", "0022_revivals.sql"),
    migration!(23, "queue", "0023_queue.sql"),
    migration!(24, "went on", "0024_went_on.sql"),
];

/// How long a migration waits by default for locks that others hold.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long it lets the others work before it tries again.
const PAUSE: Duration = Duration::from_secs(3);

/// The table that records which migrations were applied.
const CREATE_RECORD: &str = "
    CREATE TABLE IF NOT EXISTS ductwork_migrations (
        version bigint PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)";

statements! {
    RECORD = "
        INSERT INTO ductwork_migrations (version, name, applied_at) VALUES (:version, :name, {now})";
    /// A database without our tables refuses it.
    pub(super) APPLIED = "SELECT version FROM ductwork_migrations ORDER BY version";
    NEEDS = "
        SELECT coalesce(max(needs), 0) AS needs FROM ductwork_migrations
         WHERE version > :known";
    /// Of the sessions that hold a lock on a table of ours, the one that has held it longest.
    IN_THE_WAY in Postgres = "
        SELECT a.pid::bigint AS pid, a.application_name AS name,
               coalesce(a.state, 'unknown') AS state, left(a.query, 80) AS query,
               CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS bigint) AS seconds
          FROM pg_stat_activity a
         WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
           AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                        WHERE l.pid = a.pid AND l.granted
                          AND c.relname LIKE 'ductwork%' AND pg_table_is_visible(c.oid))
         ORDER BY a.xact_start LIMIT 1";
}

impl Migration {
    /// Its SQL.
    pub fn sql(&self, dialect: Dialect) -> &'static str {
        self.texts[dialect as usize]
    }

    /// The same with its record, for people who apply it by hand.
    fn script(&self, dialect: Dialect) -> String {
        let Self { version, name, .. } = self;
        let record = RECORD.sql(dialect).trim();
        let values = [version.to_string(), format!("'{name}'")];
        let numbered = dialect.backend().numbers();
        let record =
            (1..)
                .zip(values)
                .fold(record.to_owned(), |record, (at, value)| match numbered {
                    true => record
                        .replace(&format!("${at}"), &value)
                        .replace(&format!("?{at}"), &value),
                    false => record.replacen('?', &value, 1),
                });
        let sql = self.sql(dialect).trim();
        format!(
            "-- {version}: {name} ({})\n\n{sql}\n\n{record};\n\n",
            dialect.as_str()
        )
    }
}

/// All migrations as one script, which leaves a database in the same state as `migrate`.
pub fn script(dialect: Dialect) -> String {
    let scripts = MIGRATIONS.iter().map(|migration| migration.script(dialect));
    let record = CREATE_RECORD.trim();
    let script = format!("{record};\n\n{}", scripts.collect::<String>());
    dialect.backend().by_hand(script)
}

/// The versions that the database has. Empty for a database without our tables.
pub async fn applied(conn: &mut Conn) -> Result<Vec<i64>, Error> {
    match conn.fetch(&APPLIED, &[]).await {
        Ok(rows) => {
            let versions = rows.iter().map(|row| row.get("version"));
            let versions: Vec<i64> = versions.collect::<Result<_, Error>>()?;
            // Version zero records whose turn it is.
            Ok(versions.into_iter().filter(|it| *it > 0).collect())
        }
        // The table is missing: nothing was ever applied.
        Err(Error::Refused { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The version of the schema, where it is newer than this program but the program can still work with
/// it: a newer program has added to it.
///
/// Fails when a newer program has changed something that this one relies on.
pub async fn newer(conn: &mut Conn) -> Result<Option<i64>, Error> {
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    let Some(version) = applied(conn).await?.pop().filter(|it| *it > known) else {
        return Ok(None);
    };
    if version == UNFINISHED {
        return Err(Error::Schema(
            "the database holds an incomplete copy, which `ductworkd copy` began: if it is no longer running, make the \
             copy again, to a fresh database"
                .to_owned(),
        ));
    }
    let row = conn
        .fetch_optional(&NEEDS, &[("known", known.into())])
        .await?;
    let needs = row.map(|row| row.get::<i64>("needs")).transpose()?;
    match needs.is_some_and(|needs| needs > known) {
        false => Ok(Some(version)),
        true => Err(Error::Schema(format!(
            "the database is at version {version} of the schema; this program knows version {known} and \
             cannot work with it: install the newer ductworkd"
        ))),
    }
}

/// Applies the missing migrations, and returns those that this call applied.
///
/// Fails when a newer program has changed something that this one relies on.
pub async fn migrate(conn: &mut Conn) -> Result<Vec<&'static Migration>, Error> {
    migrate_within(conn, PATIENCE, &mut |_| {}).await
}

/// The same, waiting for as long as others hold locks that it needs, but no longer than `patience`.
/// `report` receives the holder that each migration waits for.
pub async fn migrate_within(
    conn: &mut Conn,
    patience: Duration,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<&'static Migration>, Error> {
    newer(conn).await?;
    prepare(conn).await?;
    add_missing(conn, patience, report).await
}

/// The same for a fresh database that every program has to avoid from the beginning: `mark` records this.
pub(super) async fn migrate_marked(
    conn: &mut Conn,
    mark: &Statement,
    args: Args<'_>,
) -> Result<(), Error> {
    prepare(conn).await?;
    conn.execute(mark, args).await?;
    add_missing(conn, PATIENCE, &mut |_| {}).await.map(drop)
}

/// Makes the table of migrations, where the user has all rights that they need.
async fn prepare(conn: &mut Conn) -> Result<(), Error> {
    if conn.fetch(&APPLIED, &[]).await.is_err() && !conn.dialect().backend().undoes_schema() {
        writable::check(conn).await?;
        check_rights(conn).await?;
    }
    create_record(conn).await
}

async fn add_missing(
    conn: &mut Conn,
    patience: Duration,
    report: &mut dyn FnMut(&str),
) -> Result<Vec<&'static Migration>, Error> {
    let began = Instant::now();
    let mut done = Vec::new();
    let mut turn = Turn::new();
    for migration in MIGRATIONS {
        if is_applied(conn, migration).await? {
            continue;
        }
        loop {
            if conn.is_in_cluster() {
                turn.take(conn, patience).await?;
            }
            if is_applied(conn, migration).await? {
                break;
            }
            match apply(conn, migration, &mut turn, patience).await? {
                Applied::Now => done.push(migration),
                Applied::ByAnother => {}
                Applied::Locked => {
                    let Migration { version, name, .. } = migration;
                    let holder = in_the_way(conn).await?;
                    if began.elapsed() >= patience {
                        return Err(Error::Schema(format!(
                            "migration {version} ({name}) was not applied, because others hold locks \
                             on our tables: {holder}; wait until that has ended, or end it, and try \
                             again"
                        )));
                    }
                    report(&format!("migration {version} ({name}) waits for {holder}"));
                    tokio::time::sleep(PAUSE.min(patience)).await;
                    continue;
                }
            }
            break;
        }
    }
    turn.end(conn).await?;
    Ok(done)
}

async fn is_applied(conn: &mut Conn, migration: &Migration) -> Result<bool, Error> {
    Ok(applied(conn).await?.contains(&migration.version))
}

enum Applied {
    Now,
    /// Another process was faster.
    ByAnother,
    /// Somebody holds a lock that it needs.
    Locked,
}

async fn apply(
    conn: &mut Conn,
    migration: &'static Migration,
    turn: &mut Turn,
    patience: Duration,
) -> Result<Applied, Error> {
    let dialect = conn.dialect();
    if !dialect.backend().undoes_schema() {
        return apply_again(conn, migration, turn, patience).await;
    }
    let mut is_locked = false;
    failpoint!(conn, "migrate.begin");
    let applied = conn
        .transaction(async |conn| {
            let args = [
                ("version", migration.version.into()),
                ("name", migration.name.into()),
            ];
            let written = async {
                conn.set(Setting::MigrationLockWait).await?;
                conn.execute(&RECORD, &args).await?;
                conn.script(migration.name, migration.sql(dialect)).await
            };
            let written = written.await;
            is_locked = matches!(written, Err(Error::Retryable { .. }));
            match written {
                // The transaction is not tried again at once, although it could be: a writer that
                // waits behind it would hardly get its turn.
                Err(Error::Retryable { .. }) if conn.locks_rows() => {
                    Err(Error::Schema("a lock is held by another".to_owned()))
                }
                written => written,
            }?;
            failpoint!(conn, "migrate.written");
            Ok(())
        })
        .await;
    failpoint!(conn, "migrate.end");
    match applied {
        Ok(()) => Ok(Applied::Now),
        Err(Error::Constraint { .. }) => Ok(Applied::ByAnother),
        Err(_) if is_locked => Ok(Applied::Locked),
        Err(error) => Err(error),
    }
}

/// Where a statement that changes the schema commits by itself, each is run alone, and the record comes last. All
/// starters do so at once, except on a cluster: when two reach the same statement, one of them learns that it was done
/// already, and so does one that comes back after it was killed half-way.
async fn apply_again(
    conn: &mut Conn,
    migration: &'static Migration,
    turn: &mut Turn,
    patience: Duration,
) -> Result<Applied, Error> {
    let args = [
        ("version", migration.version.into()),
        ("name", migration.name.into()),
    ];
    failpoint!(conn, "migrate.begin");
    let applied = async {
        conn.set(Setting::MigrationLockWait).await?;
        let text = migration.sql(conn.dialect());
        conn.change_schema(migration.name, text, async |conn| {
            if !conn.is_in_cluster() {
                return Ok(true);
            }
            turn.take(conn, patience).await?;
            // Another may have had the turn, and may have applied the rest.
            if is_applied(conn, migration).await? {
                return Ok(false);
            }
            // The transaction has ended this setting.
            conn.set(Setting::MigrationLockWait).await?;
            Ok(true)
        })
        .await?;
        failpoint!(conn, "migrate.written");
        conn.execute(&RECORD, &args).await
    };
    let applied = applied.await;
    failpoint!(conn, "migrate.end");
    match applied {
        Ok(_) => Ok(Applied::Now),
        Err(Error::Constraint { .. }) => Ok(Applied::ByAnother),
        Err(Error::Retryable { .. }) => Ok(Applied::Locked),
        Err(error) => Err(error),
    }
}

/// The holders of locks on our tables, as far as the database tells.
async fn in_the_way(conn: &mut Conn) -> Result<String, Error> {
    if !IN_THE_WAY.is_for(conn.dialect()) {
        return Ok("another process writes, or has locked the whole database".to_owned());
    }
    let Some(row) = conn.fetch_optional(&IN_THE_WAY, &[]).await? else {
        return Ok("a session that the server does not show".to_owned());
    };
    let name: String = row.get("name")?;
    let query: String = row.get("query")?;
    Ok(format!(
        "pid {} ({}, {}, for {} s): {}",
        row.get::<i64>("pid")?,
        if name.is_empty() { "no name" } else { &name },
        row.get::<String>("state")?,
        row.get::<i64>("seconds")?,
        query.split_whitespace().collect::<Vec<_>>().join(" ")
    ))
}

/// The rights that a schema and the work in it need, tried on a table that is dropped afterwards.
const RIGHTS: [(&str, &str); 10] = [
    ("DROP", "DROP TABLE IF EXISTS ductwork_rights"),
    (
        "CREATE",
        "CREATE TABLE IF NOT EXISTS ductwork_rights (id bigint NOT NULL PRIMARY KEY, n bigint)",
    ),
    (
        "INDEX",
        "CREATE INDEX ductwork_rights_n ON ductwork_rights (n)",
    ),
    ("ALTER", "ALTER TABLE ductwork_rights ADD COLUMN m bigint"),
    ("INSERT", "INSERT INTO ductwork_rights (id) VALUES (1)"),
    ("UPDATE", "UPDATE ductwork_rights SET n = 1 WHERE id = 1"),
    ("DELETE", "DELETE FROM ductwork_rights WHERE id = 1"),
    // RACE: starters at several nodes of a cluster do this at once. Two that create a view of the same name each lock
    // it before they ask for their turn in the cluster, and then neither makes progress, nor does any other writer.
    // Proven by `starters_at_three_nodes_make_one_schema`.
    (
        "CREATE VIEW",
        "CREATE VIEW ductwork_rights_{own} AS SELECT 1 AS n",
    ),
    ("DROP", "DROP VIEW IF EXISTS ductwork_rights_{own}"),
    ("DROP", "DROP TABLE IF EXISTS ductwork_rights"),
];

/// The place of the tables on PostgreSQL, and the role that is to make them.
static PLACE: Statement = Statement::only(
    Only::Postgres,
    "PLACE",
    "SELECT current_schema()::text AS schema, current_user::text AS role, current_setting('search_path') AS path,
            (CASE WHEN has_schema_privilege(current_schema(), 'CREATE') THEN 1 ELSE 0 END)::bigint AS may_create",
);

/// Fails where this user lacks a right that is needed. A change of the schema that commits by itself could otherwise
/// stop halfway. The right to drop comes first, so that the trial table can be dropped.
async fn check_rights(conn: &mut Conn) -> Result<(), Error> {
    let mut lacking = None;
    for (right, sql) in RIGHTS {
        match conn.script("RIGHTS", sql).await {
            Err(Error::Unavailable { source, in_commit }) => {
                return Err(Error::Unavailable { source, in_commit });
            }
            Err(Error::Hindered { source, .. }) if source.is_denied() => {
                lacking = lacking.or(Some(right));
            }
            // Another starter tries the same on the same table.
            Ok(()) | Err(_) => {}
        }
        // The trial table is dropped, whatever other rights are missing.
        if lacking == Some("DROP") {
            break;
        }
    }
    match lacking {
        None => Ok(()),
        Some(right) => Err(Error::Configured(format!(
            "the user of the database has no right to {right} there, so nothing was made: grant it ALL PRIVILEGES on its \
             database"
        ))),
    }
}

/// PostgreSQL's IF NOT EXISTS may still collide with a concurrent creation, in its catalogue; and a
/// user who may not create a table may not even run it for an existing one.
async fn create_record(conn: &mut Conn) -> Result<(), Error> {
    if conn.fetch(&APPLIED, &[]).await.is_ok() {
        return Ok(());
    }
    let mut attempts = 0;
    loop {
        let created = conn
            .script("create ductwork_migrations", CREATE_RECORD)
            .await;
        attempts += 1;
        match created {
            Err(Error::Constraint { .. } | Error::Refused { .. } | Error::Retryable { .. })
                if attempts < 5 =>
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) if !error.is_unavailable() => return Err(explained(conn, error).await),
            created => return created,
        }
    }
}

/// The same error, or the right or the schema that is missing on PostgreSQL.
async fn explained(conn: &mut Conn, error: Error) -> Error {
    if !PLACE.is_for(conn.dialect()) {
        return error;
    }
    let place = async {
        let row = conn.fetch_optional(&PLACE, &[]).await.ok().flatten()?;
        let schema: Option<String> = row.get("schema").ok()?;
        let [role, path] = ["role", "path"].map(|column| row.get::<String>(column));
        let (role, path) = (role.ok()?, path.ok()?);
        match schema {
            None => Some(format!(
                "the search_path ({path}) has no schema that the role {role} may use: CREATE SCHEMA …, GRANT USAGE, CREATE ON \
                 SCHEMA … TO {role}, or correct `options` in the URL"
            )),
            Some(schema) if row.get::<i64>("may_create").ok()? == 0 => Some(format!(
                "the role {role} may not make tables in the schema {schema}, so nothing was made: GRANT CREATE ON SCHEMA \
                 {schema} TO {role}, or let `database.url` name a role that may"
            )),
            Some(_) => None,
        }
    };
    place.await.map_or(error, Error::Configured)
}

/// False where migrations are missing.
///
/// Fails when a newer program has changed something that this one relies on.
pub async fn is_current(conn: &mut Conn) -> Result<bool, Error> {
    Ok(missing(conn).await? == 0)
}

async fn missing(conn: &mut Conn) -> Result<usize, Error> {
    newer(conn).await?;
    let applied = applied(conn).await?;
    let missing = MIGRATIONS.iter().filter(|m| !applied.contains(&m.version));
    Ok(missing.count())
}

/// Fails unless this program can work with the schema.
pub async fn check(conn: &mut Conn) -> Result<(), Error> {
    match missing(conn).await? {
        0 => Ok(()),
        n => Err(Error::Schema(format!(
            "the database lacks {n} of {} migrations; run `ductworkd migrate`",
            MIGRATIONS.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements of a script, in lower case and with one blank between words.
    fn statements(sql: &str) -> Vec<String> {
        let lines = sql
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join(" ").to_lowercase();
        let statements = sql.split(';').map(|statement| {
            let words: Vec<&str> = statement.split_whitespace().collect();
            words.join(" ")
        });
        statements.filter(|it| !it.is_empty()).collect()
    }

    /// The quoted words of a statement.
    fn quoted(statement: &str) -> Vec<&str> {
        statement.split('\'').skip(1).step_by(2).collect()
    }

    /// True where the words of a list are still allowed, and others may be added: a program that does not know
    /// the new words skips the rows that have them (`process::has_known_role`).
    fn widens(before: &[String], is_list: impl Fn(&&String) -> bool, new: &str) -> bool {
        let old = before.iter().rev().find(is_list);
        let (old, new) = (old.map_or(Vec::new(), |it| quoted(it)), quoted(new));
        !old.is_empty() && old.iter().all(|word| new.contains(word))
    }

    /// True where a table is rebuilt with all its columns and rows: SQLite cannot change a constraint
    /// otherwise.
    fn makes_anew(before: &[String], [create, copy, drop, rename]: [&String; 4]) -> bool {
        let Some(table) = drop.strip_prefix("drop table ") else {
            return false;
        };
        let made = format!("create table {table} (");
        let anew = format!("create table {table}_anew (");
        let Some(columns) = create.strip_prefix(&anew) else {
            return false;
        };
        let Some((to, from)) = copy
            .strip_prefix(&format!("insert into {table}_anew ("))
            .and_then(|copy| copy.strip_suffix(&format!(" from {table}")))
            .and_then(|copy| copy.split_once(") select "))
        else {
            return false;
        };
        let added = format!("alter table {table} add column ");
        let added = before.iter().filter_map(|it| it.strip_prefix(&added));
        let had = before.iter().find_map(|it| it.strip_prefix(&made));
        // No column of ours has a comma in its definition, except for lists of words.
        let had = had.unwrap_or_default().split(", ").chain(added);
        let had = had.map(str::trim).filter(|it| !it.starts_with('\''));
        let mut names = had.filter_map(|column| column.split(' ').next());
        let to: Vec<&str> = to.split(", ").collect();
        to == from.split(", ").collect::<Vec<_>>()
            && names.all(|name| to.contains(&name) && columns.contains(name))
            && widens(before, |it| it.starts_with(&made), create)
            && *rename == format!("alter table {table}_anew rename to {table}")
    }

    /// Changes that are no additions, and that make no difference to an older program.
    const UNNOTICED: &[(&str, &str)] = &[
        (
            "drop index ductwork_runs_status",
            "its lists of the runs of a status take longer",
        ),
        (
            "drop index ductwork_branches_run",
            "ductwork_branches_of_run begins with the same column",
        ),
        (
            "drop index ductwork_availabilities_due",
            "the next statement makes it anew; from PostgreSQL 17 on, its lists of queues read the whole queue",
        ),
        (
            "create unique index ductwork_runs_revived_from on ductwork_runs (revived_from) where revived_from is not null",
            "it refuses the rows that the constraint refuses",
        ),
        (
            "alter table ductwork_runs drop constraint ductwork_runs_revived_from_key",
            "the index stands in for it",
        ),
    ];

    /// True when a program that knows the schema `before` can keep working with the new one.
    fn only_adds(before: &[String], sql: &str) -> bool {
        let all = statements(sql);
        let mut rest = all.as_slice();
        while let Some((statement, after)) = rest.split_first() {
            if let [create, copy, drop, rename, others @ ..] = rest
                && makes_anew(before, [create, copy, drop, rename])
            {
                rest = others;
                continue;
            }
            let words: Vec<&str> = statement.split(' ').collect();
            let adds = match words.as_slice() {
                _ if UNNOTICED.iter().any(|(it, _)| it == statement) => true,
                ["create", "table" | "index", ..] => true,
                ["alter", "type", _, "add", "value", ..] => true,
                ["alter", "table", _, "add", "column", _, _, rest @ ..] => {
                    !rest.contains(&"not") || rest.contains(&"default")
                }
                ["alter", "domain", domain, "drop", "constraint", name] => {
                    let again = format!("alter domain {domain} add constraint {name} check ");
                    let is_list =
                        |it: &&String| it.contains(&format!("domain {domain} as text check"));
                    let widened = after.first().filter(|next| next.starts_with(&again));
                    widened.is_some_and(|new| widens(before, is_list, new))
                }
                [
                    "alter",
                    "table",
                    _,
                    "drop",
                    "constraint",
                    name,
                    "add",
                    "constraint",
                    again,
                    "check",
                    ..,
                ] if name.strip_suffix(',') == Some(*again) => {
                    let is_list = |it: &&String| it.contains(&format!("constraint {again} check"));
                    widens(before, is_list, statement)
                }
                // It belongs to the statement before it, which was checked.
                ["alter", "domain", _, "add", "constraint", ..] => true,
                _ => false,
            };
            if !adds {
                return false;
            }
            rest = after;
        }
        true
    }

    #[test]
    fn a_migration_only_adds_or_says_how_old_a_program_may_be_that_works_with_it() {
        let mut before = [(); Dialect::COUNT].map(|()| Vec::new());
        for migration in MIGRATIONS {
            for (sql, before) in migration.texts.iter().zip(&mut before) {
                assert!(
                    migration.version <= 5
                        || only_adds(before, sql)
                        || sql.contains("UPDATE ductwork_migrations SET needs = "),
                    "migration {} ({})",
                    migration.version,
                    migration.name
                );
                before.extend(statements(sql));
            }
        }
        let before = statements(
            "CREATE DOMAIN d AS text CHECK (VALUE IN ('a', 'b'));
             CREATE TABLE t (x text CHECK (x IN ('a', 'b')), y integer); ALTER TABLE t ADD COLUMN z text",
        );
        let domain = |words: &str| {
            format!(
                "ALTER DOMAIN d DROP CONSTRAINT c; ALTER DOMAIN d ADD CONSTRAINT c CHECK (VALUE IN ({words}))"
            )
        };
        let table = |words: &str, columns: &str| {
            format!(
                "CREATE TABLE t_anew (x text CHECK (x IN ({words})), y integer, z text);
                 INSERT INTO t_anew ({columns}) SELECT {columns} FROM t; DROP TABLE t;
                 ALTER TABLE t_anew RENAME TO t"
            )
        };
        assert!(only_adds(&before, &domain("'a', 'b', 'c'")));
        assert!(only_adds(&before, &table("'a', 'b', 'c'", "x, y, z")));
        for sql in [
            domain("'a', 'c'"),
            "ALTER DOMAIN d DROP CONSTRAINT c".to_owned(),
            table("'b', 'c'", "x, y, z"),
            table("'a', 'b', 'c'", "x, y"),
            table("'a', 'b', 'c'", "x, y, z").replace("DROP TABLE t;", ""),
            table("'a', 'b', 'c'", "x, y, z").replace("FROM t;", "FROM t WHERE y > 1;"),
        ] {
            assert!(!only_adds(&before, &sql), "{sql}");
        }
        let only_adds = |sql: &str| only_adds(&[], sql);
        assert!(only_adds(
            "-- a\nCREATE INDEX x ON y (z);\nALTER TABLE a ADD COLUMN b text"
        ));
        assert!(only_adds(
            "ALTER TABLE a ADD COLUMN b bigint NOT NULL DEFAULT 0"
        ));
        for sql in [
            "ALTER TABLE a ADD COLUMN b bigint NOT NULL",
            "ALTER TABLE a DROP COLUMN b",
            "DROP TABLE a",
            "CREATE UNIQUE INDEX x ON y (z)",
            "UPDATE a SET b = 1",
        ] {
            assert!(!only_adds(sql), "{sql}");
        }
    }
}
