//! A place in the configured database that nobody else uses: the rows of a benchmark or a drill must never appear
//! among real runs.
//!
//! Owns: making and removing it: a schema on PostgreSQL, a database on MySQL, a file beside the configured one on
//! SQLite. Never: touches anything outside of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::conn::{Conn, Location, Purpose};
use super::dialect::Dialect;
use super::error::Error;
use super::migrate;
use super::statement::{Only, Statement};

/// The longest wait until the server has deleted the files of tables that it has dropped.
const EMPTIED: Duration = Duration::from_secs(5);

/// The pause between two attempts to drop a database.
const PAUSE: Duration = Duration::from_millis(50);

/// The schema or the database of a connection.
static CURRENT: [Statement; 2] = [
    Statement::only(
        Only::Postgres,
        "CURRENT_SCHEMA",
        "SELECT current_schema()::text AS name",
    ),
    Statement::only(Only::Mysql, "CURRENT_SCHEMA", "SELECT DATABASE() AS name"),
];

/// A schema, database or file of its own.
pub struct Sandbox {
    /// The database that it is a part of.
    around: Location,
    location: Location,
    url: String,
    name: String,
}

impl Sandbox {
    /// A place beside the database of `url`; `purpose` is a part of its name, in lower-case
    /// letters. Nothing is created yet.
    pub fn beside(url: &str, purpose: &str) -> Result<Self, Error> {
        let around = Location::parse(url)?;
        let id = Uuid::now_v7().simple().to_string();
        let name = format!("ductwork_{purpose}_{id}");
        let url = around.dialect().backend().beside(url, &name);
        let location = Location::parse(&url)?;
        if location.file().is_some() && location.file() == around.file() {
            return Err(Error::Configured(format!("no file can stand beside {url}")));
        }
        Ok(Self {
            around,
            location,
            url,
            name,
        })
    }

    /// Creates it, with the schema of this program, and returns a connection to it.
    pub async fn create(&self) -> Result<Conn, Error> {
        self.make().await?;
        let mut conn = self.location.connect(Purpose::Query).await?;
        if let Some(current) = CURRENT.iter().find(|one| one.is_for(conn.dialect())) {
            // A pooler in between may ignore the options of a connection. Without these options,
            // everything would be written among the real runs.
            let row = conn.fetch_optional(current, &[]).await?;
            let current = row.map(|row| row.get::<Option<String>>("name"));
            if current.transpose()?.flatten().as_deref() != Some(&self.name) {
                return Err(Error::Configured(
                    "the server does not work in the place that the connection names (a pooler in between?); \
                     connect to it directly"
                        .to_owned(),
                ));
            }
        }
        migrate::migrate(&mut conn).await?;
        Ok(conn)
    }

    /// Creates it empty, unless it is a file, which is created by the first connection.
    pub async fn make(&self) -> Result<(), Error> {
        if self.file().is_some() {
            return Ok(());
        }
        let mut conn = self.around.connect(Purpose::Query).await?;
        let created = conn
            .script("CREATE SCHEMA", self.sql("CREATE SCHEMA", ""))
            .await;
        conn.close().await;
        match created {
            Err(Error::Unavailable { source, .. } | Error::Hindered { source, .. })
                if source.is_denied() =>
            {
                Err(Error::Configured(format!(
                    "the user of `database.url` may not make the database {}: grant it ALL PRIVILEGES ON \
                     `ductwork\\_%`.*, or let `database.url` name another user for this",
                    self.name
                )))
            }
            created => created,
        }
    }

    /// Removes it with all its contents; it is no error if it was never created.
    pub async fn remove(&self) -> Result<(), Error> {
        let Some(file) = self.file() else {
            let mut conn = self.around.connect(Purpose::Query).await?;
            // Where a schema is a database, it is dropped with all its contents.
            let cascade = match conn.dialect() {
                Dialect::Mysql => "",
                _ => "CASCADE",
            };
            let sql = self.sql("DROP SCHEMA IF EXISTS", cascade);
            let asked_until = Instant::now() + EMPTIED;
            // RACE: the thread of the server that drops a table and its thread that purges old rows both set out to
            // delete the table's file. Where the second one is late, the directory cannot be deleted yet. Proven by
            // `mysql: a_database_whose_files_go_late_is_dropped_all_the_same`.
            let dropped = loop {
                match conn.script("DROP SCHEMA", sql).await {
                    Err(Error::Refused { source, .. })
                        if source.is_not_empty() && Instant::now() < asked_until =>
                    {
                        tokio::time::sleep(PAUSE).await;
                    }
                    dropped => break dropped,
                }
            };
            conn.close().await;
            return dropped;
        };
        self.location.forget_file();
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = file.to_owned().into_os_string();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let path = PathBuf::from(path);
                    let text = format!("{} cannot be removed: {error}", path.display());
                    return Err(Error::LeftBehind(text));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Its location.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its address, for `DUCTWORK_DATABASE_URL`. Contains the password of the configured one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the schema, or the end of the file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, on SQLite.
    pub fn file(&self) -> Option<&Path> {
        self.location.file()
    }

    /// The name is generated here, from letters, digits and underscores: it needs no quotes.
    fn sql(&self, before: &str, after: &str) -> &'static str {
        // This leaks twice in the life of a process.
        Box::leak(format!("{before} {} {after}", self.name).into_boxed_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sandbox_on_sqlite_leaves_nothing_behind() {
        let directory = tempfile::Builder::new()
            .prefix("50% of it")
            .tempdir()
            .unwrap();
        let path = directory.path().display().to_string();
        let url = format!("sqlite://{}/real.db", path.replace('%', "%25"));
        let sandbox = Sandbox::beside(&url, "test").unwrap();
        // The address never leads to the database itself.
        assert!(Sandbox::beside(&format!("{url}?mode=ro"), "test").is_err());
        // Removing it is no error although it was not created.
        sandbox.remove().await.unwrap();
        let conn = sandbox.create().await.unwrap();
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            entries
                .map(|entry| name(entry).into_string().unwrap())
                .collect()
        };
        assert!(names().contains(&format!("real.db.{}", sandbox.name())));
        assert!(!names().contains(&"real.db".to_owned()));
        conn.close().await;
        sandbox.remove().await.unwrap();
        assert!(names().is_empty(), "{:?}", names());
    }

    #[tokio::test]
    async fn a_sandbox_on_postgres_is_a_schema_that_goes_away() {
        let url = std::env::var("DUCTWORK_TEST_POSTGRES_URL");
        let url = url.expect("DUCTWORK_TEST_POSTGRES_URL: scripts/test starts a server");
        let sandbox = Sandbox::beside(&url, "test").unwrap();
        sandbox.remove().await.unwrap();
        let mut conn = sandbox.create().await.unwrap();
        let row = conn.fetch_optional(&CURRENT[0], &[]).await.unwrap();
        let current: String = row.unwrap().get("name").unwrap();
        assert_eq!(current, sandbox.name());
        conn.close().await;
        sandbox.remove().await.unwrap();
        // Nothing can be created in a missing schema.
        let mut conn = sandbox.location().connect(Purpose::Query).await.unwrap();
        let row = conn.fetch_optional(&CURRENT[0], &[]).await.unwrap();
        let current: Option<String> = row.unwrap().get("name").unwrap();
        assert_eq!(current, None);
    }
}
