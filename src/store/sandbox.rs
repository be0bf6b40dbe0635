//! A place in the configured database that nobody else uses: the rows of a benchmark or a drill must never appear
//! among real runs.
//!
//! Owns: making and removing it: a schema on PostgreSQL, a database on MySQL, on SQLite a file in a directory of its
//! own, beside the configured file. Never: touches anything outside of it.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::conn::{Conn, Location, Purpose};
use super::dialect::Dialect;
use super::error::{Error, Source};
use super::migrate;
use super::statement::{Only, Statement};

/// The longest wait until the server has deleted the files of tables that it has dropped.
const EMPTIED: Duration = Duration::from_secs(5);

/// The longest wait until nobody creates files any more in a directory that is being removed. An interrupted person
/// waits for the removal, so it is short.
const VACATED: Duration = Duration::from_secs(2);

/// The name of SQLite's file, in the directory.
const FILE: &str = "sandbox.db";

/// The pause between two attempts to drop a database, or to remove a directory.
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
        let mut url = around.dialect().backend().beside(url, &name);
        if around.file().is_some() {
            url = format!("{url}/{FILE}");
        }
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

    /// Creates it empty. On SQLite this is the directory alone: the first connection creates the file.
    pub async fn make(&self) -> Result<(), Error> {
        if let Some(directory) = self.directory() {
            let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
            return made.map_err(|error| {
                let text = format!("{}: {error}", directory.display());
                let error = std::io::Error::new(error.kind(), text);
                Error::unavailable(Source::Io(error))
            });
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
                let name = &self.name;
                Err(Error::Configured(match self.around.dialect() {
                    Dialect::Mysql => format!(
                        "the user of `database.url` may not make the database {name}: grant it ALL PRIVILEGES ON \
                         `ductwork\\_%`.*, or let `database.url` name another user for this"
                    ),
                    _ => format!(
                        "the role of `database.url` may not make the schema {name}: GRANT CREATE ON DATABASE … TO it, or let \
                         `database.url` name another role for this"
                    ),
                }))
            }
            created => created,
        }
    }

    /// Removes it with all its contents; it is no error if it was never created.
    pub async fn remove(&self) -> Result<(), Error> {
        let Some(directory) = self.directory() else {
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
        // RACE: the thread that opens the file outlives the interrupted work that asked for it, and so does a command
        // that a benchmark has started. Either may create the file when it has just been removed. SQLite opens -wal
        // at some time after it has looked for the database, and creates -shm without another look; as it closes a
        // database that has lost its name, it deletes neither. In a directory that is gone, nobody creates
        // anything. Proven by `a_thread_that_still_opens_the_file_of_a_removed_sandbox_creates_nothing`.
        let removed = vacated(|| std::fs::remove_dir_all(directory)).await;
        removed.map_err(|error| {
            let directory = directory.display();
            Error::LeftBehind(format!("{directory} cannot be removed: {error}"))
        })
    }

    /// Its location.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Its address, for `DUCTWORK_DATABASE_URL`. Contains the password of the configured one.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the schema, or the end of the directory's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, on SQLite.
    pub fn file(&self) -> Option<&Path> {
        self.location.file()
    }

    /// The directory of its own that the file is in, on SQLite.
    fn directory(&self) -> Option<&Path> {
        self.file()?.parent()
    }

    /// The name is generated here, from letters, digits and underscores: it needs no quotes.
    fn sql(&self, before: &str, after: &str) -> &'static str {
        // This leaks twice in the life of a process.
        Box::leak(format!("{before} {} {after}", self.name).into_boxed_str())
    }
}

/// Waits until `remove` has removed a directory with all its contents; it is no error if there is none.
///
/// RACE: somebody creates a file after the contents have been listed, and the directory is not empty when it is to go.
/// An opening creates a handful of files, so this ends soon. Proven by
/// `a_directory_in_which_a_file_appears_during_its_removal_is_removed_all_the_same`.
async fn vacated(mut remove: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let asked_until = Instant::now() + VACATED;
    loop {
        match remove() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == std::io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < asked_until =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            removed => return removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all that is in a directory.
    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }

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
        let names = || names(directory.path());
        assert_eq!(names(), [format!("real.db.{}", sandbox.name())]);
        assert!(sandbox.file().unwrap().is_file());
        conn.close().await;
        sandbox.remove().await.unwrap();
        assert!(names().is_empty(), "{:?}", names());
        // The same place is used again.
        sandbox.create().await.unwrap().close().await;
        sandbox.remove().await.unwrap();
        assert!(names().is_empty(), "{:?}", names());
    }

    #[tokio::test]
    async fn a_thread_that_still_opens_the_file_of_a_removed_sandbox_creates_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/real.db", directory.path().display());
        let sandbox = Sandbox::beside(&url, "test").unwrap();
        let names = || names(directory.path());

        // The thread begins after the removal.
        sandbox.make().await.unwrap();
        sandbox.remove().await.unwrap();
        let opened = sandbox.location().connect(Purpose::Query).await;
        assert!(opened.is_err());
        assert!(names().is_empty(), "{:?}", names());

        // It is about to create one of the files, and has made every check that comes before. SQLite has no place
        // in which a test could hold it there, so the test makes SQLite's system call.
        sandbox.create().await.unwrap().close().await;
        sandbox.remove().await.unwrap();
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut path = sandbox.file().unwrap().to_owned().into_os_string();
            path.push(suffix);
            let error = std::fs::File::create(&path).err();
            let kind = error.map(|error| error.kind());
            assert_eq!(kind, Some(std::io::ErrorKind::NotFound), "{suffix}");
        }
        assert!(names().is_empty(), "{:?}", names());

        // It has opened everything.
        let conn = sandbox.create().await.unwrap();
        sandbox.remove().await.unwrap();
        assert!(names().is_empty(), "{:?}", names());
        conn.close().await;
        assert!(names().is_empty(), "{:?}", names());
    }

    #[tokio::test]
    async fn a_directory_in_which_a_file_appears_during_its_removal_is_removed_all_the_same() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("sandbox");
        std::fs::create_dir(&directory).unwrap();
        let mut attempts = 0;
        let removed = vacated(|| {
            attempts += 1;
            if attempts > 1 {
                return std::fs::remove_dir_all(&directory);
            }
            // All that was listed is gone, and now the directory itself is to go.
            std::fs::write(directory.join("late"), "")?;
            std::fs::remove_dir(&directory)
        });
        removed.await.unwrap();
        assert_eq!(attempts, 2);
        assert!(!directory.exists());
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
