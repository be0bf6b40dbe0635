//! Wrong MySQL and MariaDB addresses, and wrong servers at correct ones: one clear error each, with its remedy, and
//! no half-created schema.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use ductwork::store::sandbox::Sandbox;
use ductwork::store::statement::Statement;
use ductwork::store::{Location, Purpose, Row};

use super::{Ended, Place};

/// The server that tests may use.
fn url() -> String {
    std::env::var("DUCTWORK_TEST_MYSQL_URL")
        .expect("DUCTWORK_TEST_MYSQL_URL is not set: run scripts/test, which starts a server")
}

/// The directory of its certificates and its socket.
fn directory() -> String {
    std::env::var("DUCTWORK_TEST_MYSQL_DIR")
        .expect("DUCTWORK_TEST_MYSQL_DIR is not set: run scripts/test, which starts a server")
}

/// Login, host with port, and database of an address.
fn parts(url: &str) -> [&str; 3] {
    let (login, rest) = url.split_once("://").unwrap().1.split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    [login, host, database]
}

/// Queries the server of an address, as the tests' own user.
fn ask(url: &str, sql: &str) -> Vec<Row> {
    let sql: &'static str = Box::leak(sql.to_owned().into_boxed_str());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let location = Location::parse(url).unwrap();
        let mut conn = location.connect(Purpose::Query).await.unwrap();
        let rows = match sql.trim_start().starts_with("SELECT") {
            true => conn.fetch(&Statement::new("TEST", sql), &[]).await.unwrap(),
            false => {
                conn.script("TEST", sql).await.unwrap();
                Vec::new()
            }
        };
        conn.close().await;
        rows
    })
}

/// The project's tables in a database.
fn tables(server: &str, database: &str) -> Vec<String> {
    let sql = format!(
        "SELECT TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{database}' ORDER BY 1"
    );
    ask(server, &sql)
        .iter()
        .map(|row| row.get("name").unwrap())
        .collect()
}

/// A database that is removed with the value.
struct Database(Sandbox, tokio::runtime::Runtime);

impl Database {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sandbox = Sandbox::beside(&url(), "wrong").unwrap();
        runtime.block_on(sandbox.make()).unwrap();
        Self(sandbox, runtime)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn tables(&self) -> Vec<String> {
        tables(&url(), self.name())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let removed = self.1.block_on(self.0.remove());
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

fn run(url: &str, args: &[&str]) -> Ended {
    let place = Place::empty();
    place.run(["init"]).fine();
    let mut command = place.command();
    Ended::of(
        command
            .args(args)
            .env("DUCTWORK_DATABASE_URL", url)
            .output()
            .unwrap(),
    )
}

/// Asserts the end of a command that could not use its database.
#[track_caller]
fn refused(url: &str, code: i32, says: &str, remedy: &str) {
    for args in [&["migrate"][..], &["start"]] {
        let ended = run(url, args);
        let told = format!("{url}\n{args:?}: {:?}\n{}", ended.code, ended.stderr);
        assert_eq!(ended.code, Some(code), "{told}");
        assert!(ended.stderr.contains(says), "{told}\nlacks {says}");
        assert!(ended.stderr.contains(remedy), "{told}\nlacks {remedy}");
        assert_eq!(ended.stdout, "", "{told}");
        let password = parts_of_login(url);
        assert!(
            password.is_none_or(|it| it.len() < 3 || !ended.stderr.contains(it)),
            "the password is shown: {told}"
        );
    }
}

fn parts_of_login(url: &str) -> Option<&str> {
    let (login, _) = url.split_once("://")?.1.rsplit_once('@')?;
    Some(login.split_once(':')?.1)
}

#[test]
fn an_address_that_is_wrong_is_told_with_what_is_wrong_in_it() {
    let long = format!("mysql://u@h/{}", "n".repeat(65));
    for (url, says) in [
        ("mysql://db.example/jobs", "it names no user"),
        ("mysql://:secret@h/jobs", "it names no user"),
        (
            "mysql://u:sec/ret@h/jobs",
            "its user or password has to be percent-encoded",
        ),
        ("mysql://u:secret@h", "it names no database"),
        ("mysql://u:secret@h/", "it names no database"),
        ("mysql://u:secret@/jobs", "it names no host"),
        (
            "mysql://u:secret@h:0/jobs",
            "\"0\" is no port of h: a number from 1 to 65535 is",
        ),
        (
            "mariadb://u:secret@h:99999/jobs",
            "\"99999\" is no port of h",
        ),
        ("mysql://u:secret@h:x/jobs", "\"x\" is no port of h"),
        (
            "mysql://u:se%zzcret@h/jobs",
            "in its password a % is not followed by two hexadecimal digits",
        ),
        ("mysql://u:secret#1@h/jobs", "write it as %23"),
        ("mysql://u:secret@h/a/b", "write a / in it as %2F"),
        (&long, "has 65 characters, and a server takes 64"),
        (
            "mysql://u:secret@h,h/jobs",
            "it names the host h:3306 twice",
        ),
        ("mysql://u:secret@[::1/jobs", "has no ] at its end"),
        (
            "mysql://u:secret@h/jobs?sslmode=require",
            "its key sslmode is unknown; the keys are socket, ssl-mode",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-mode",
            "its key ssl-mode has no value",
        ),
        ("mysql://u:secret@h/jobs?ssl-ca=", "its key ssl-ca is empty"),
        (
            "mysql://u:secret@h/jobs?ssl-ca=/a&ssl-ca=/b",
            "its key ssl-ca is there twice",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-mode=verify",
            "the modes are disabled, required, verify_ca and verify_identity",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-mode=preferred",
            "use required, verify_ca or verify_identity",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-mode=disabled&ssl-ca=/a",
            "its key ssl-ca has no meaning without TLS",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-mode=required&ssl-ca=/a",
            "use verify_ca or verify_identity",
        ),
        (
            "mysql://u:secret@h/jobs?ssl-cert=/a",
            "ssl-cert needs ssl-key beside it",
        ),
        (
            "mysql://u:secret@/jobs?socket=run/my.sock",
            "it begins with /",
        ),
        (
            "mysql://u:secret@h/jobs?socket=/run/my.sock",
            "it names a socket and a host: leave one of them out",
        ),
        (
            "mysql://u:secret@/jobs?socket=/run/my.sock&ssl-mode=required",
            "a socket takes no ssl-mode",
        ),
        (
            "mysql2://u:secret@h/jobs",
            "databases of the kind `mysql2` are not supported",
        ),
    ] {
        refused(url, 2, says, "");
    }
}

/// A server that sends this to every client, and then nothing.
fn says(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = (&stream).write_all(words);
            kept.push(stream);
        }
    });
    at
}

#[test]
fn a_server_that_cannot_be_reached_is_told_with_its_place() {
    let server = url();
    let [login, host, _] = parts(&server);
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let to = |place: &dyn std::fmt::Display| format!("mysql://{login}@{place}/ductwork");
    let running =
        |place: &str| format!("check that a MySQL or MariaDB server is running at {place}");
    for (url, says, place) in [
        (to(&closed), "Connection refused", closed.to_string()),
        (
            to(&says(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
            "the program there is not a MySQL server",
            String::new(),
        ),
        (to(&says(b"")), "no answer within 5 s", String::new()),
        (
            format!("mysql://{login}@/ductwork?socket=/nowhere/mysql.sock"),
            "No such file or directory",
            "/nowhere/mysql.sock".to_owned(),
        ),
    ] {
        let remedy = if place.is_empty() {
            "check that a MySQL or MariaDB server is running at ".to_owned()
        } else {
            running(&place)
        };
        refused(&url, 69, says, &remedy);
    }
    let other = format!("postgres://postgres@{host}/ductwork");
    let no_postgres = "the program there is not a PostgreSQL server";
    let remedy = format!("check that a PostgreSQL server is running at {host}");
    refused(&other, 69, no_postgres, &remedy);
    // It has a certificate from its own authority.
    let strict = format!("mysql://{login}@{host}/ductwork?ssl-mode=verify_identity");
    refused(&strict, 69, "UnknownIssuer", "let ssl-ca in the URL of");
    let key = format!("{}/tls/openssl.cnf", directory());
    let files = format!("mysql://{login}@{host}/ductwork?ssl-cert={key}&ssl-key={key}");
    refused(&files, 2, "the file of ssl-key", "holds no private key");
}

#[test]
fn a_login_that_a_server_refuses_is_told_with_what_to_look_at() {
    let server = url();
    let [login, host, database] = parts(&server);
    let user = login.split(':').next().unwrap();
    let who = "check the user and the password in the URL of";
    for (url, says, remedy) in [
        (
            format!("mysql://{user}:wrong@{host}/{database}"),
            "Access denied for user",
            who,
        ),
        (
            format!("mysql://{user}@{host}/{database}"),
            "using password: NO",
            who,
        ),
        (
            format!("mysql://nobody:wrong@{host}/{database}"),
            "Access denied for user 'nobody'",
            who,
        ),
        (
            format!("mysql://{login}@{host}/no_such_database"),
            "Unknown database 'no_such_database'",
            "create the database, or correct its name in the URL of",
        ),
    ] {
        refused(&url, 69, says, remedy);
    }
}

/// A user with some privileges on one database, who is removed with the value.
struct User {
    name: String,
    url: String,
}

impl User {
    fn with(rights: &str, database: &str) -> Self {
        let server = url();
        let [_, host, _] = parts(&server);
        let id = uuid::Uuid::now_v7().simple().to_string();
        let name = format!("u{}", &id[id.len() - 12..]);
        ask(
            &server,
            &format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'secret-{name}'"),
        );
        if !rights.is_empty() {
            ask(
                &server,
                &format!("GRANT {rights} ON {database}.* TO '{name}'@'%'"),
            );
        }
        Self {
            url: format!("mysql://{name}:secret-{name}@{host}/{database}"),
            name,
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ask(&url(), &format!("DROP USER '{}'@'%'", self.name));
        }
    }
}

/// Missing privileges are found before anything is created: no server can roll back a change of the schema.
#[test]
fn a_user_without_enough_rights_makes_nothing_and_is_told_which_are_lacking() {
    const REST: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES";
    let database = Database::new();
    for (rights, code, says, remedy) in [
        (
            "",
            69,
            "Access denied for user",
            "give the user of the URL of",
        ),
        (
            "SELECT",
            69,
            "has no right to CREATE TEMPORARY TABLES",
            "give the user of the URL of",
        ),
        (
            "SELECT, INSERT, UPDATE, DELETE, DROP, CREATE, INDEX, ALTER, CREATE VIEW",
            69,
            "has no right to CREATE TEMPORARY TABLES: GRANT CREATE TEMPORARY TABLES ON `",
            "give the user of the URL of",
        ),
        (
            REST,
            2,
            "has no right to DROP",
            "grant it ALL PRIVILEGES on its database",
        ),
        (
            &format!("{REST}, DROP"),
            2,
            "has no right to CREATE",
            "grant it ALL PRIVILEGES on its database",
        ),
        (
            &format!("{REST}, DROP, CREATE, ALTER"),
            2,
            "has no right to INDEX",
            "grant it ALL PRIVILEGES",
        ),
        (
            &format!("{REST}, DROP, CREATE, INDEX"),
            2,
            "has no right to ALTER",
            "grant it ALL PRIVILEGES",
        ),
        (
            "SELECT, INSERT, UPDATE, DELETE, DROP, CREATE, INDEX, ALTER, CREATE TEMPORARY TABLES",
            2,
            "has no right to CREATE VIEW",
            "grant it",
        ),
        (
            "SELECT, INSERT, UPDATE, DROP, CREATE, INDEX, ALTER, CREATE TEMPORARY TABLES",
            2,
            "has no right to DELETE",
            "grant it",
        ),
    ] {
        let user = User::with(rights, database.name());
        refused(&user.url, code, says, remedy);
        assert_eq!(database.tables(), Vec::<String>::new(), "{rights}");
    }
    let user = User::with("ALL PRIVILEGES", database.name());
    let ended = run(&user.url, &["migrate"]);
    ended.fine();
    assert!(database.tables().len() > 20, "{:?}", database.tables());
    // A drill creates a database, which this user may not do.
    let ended = run(&user.url, &["drill", "lease-race"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let says = "grant it ALL PRIVILEGES ON `ductwork\\_%`.*";
    assert!(ended.stderr.contains(says), "{ended:?}");
}

/// Without PROCESS, the user sees no transactions of others, and of its own sessions only how long each has been
/// executing a statement.
#[test]
fn a_user_with_the_rights_that_the_guide_gives_sees_every_drill() {
    let server = url();
    let [_, _, database] = parts(&server);
    let user = User::with("ALL PRIVILEGES", database);
    ask(
        &server,
        &format!(
            "GRANT ALL PRIVILEGES ON `ductwork\\_%`.* TO '{}'@'%'",
            user.name
        ),
    );
    let ended = run(&user.url, &["drill"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("8 of 8 drills"), "{}", ended.stdout);
}

/// A table without transactions is not one of Ductwork's, whoever created it.
#[test]
fn tables_of_another_engine_are_refused() {
    let database = Database::new();
    ask(
        database.0.url(),
        "CREATE TABLE ductwork_runs (id int) ENGINE=MyISAM",
    );
    refused(
        database.0.url(),
        2,
        "ductwork_runs is a table of MyISAM",
        "ALTER TABLE … ENGINE=InnoDB",
    );
    assert_eq!(database.tables(), ["ductwork_runs"]);
}

/// A test's own server, with options that other tests could not work with.
struct Server {
    directory: tempfile::TempDir,
    url: String,
}

impl Server {
    fn script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/mariadb")
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("server")
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Its owner is not root, and must be able to reach its directory.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let mut server = Self {
            directory,
            url: String::new(),
        };
        server.start(&[]);
        server
    }

    fn start(&mut self, options: &[&str]) {
        let mut command = Command::new(Self::script());
        let output = command
            .arg("start")
            .arg(self.path())
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("export DUCTWORK_TEST_MYSQL_URL="));
        self.url = line.unwrap().trim_matches('\'').to_owned();
    }

    fn stop(&self) {
        let output = Command::new(Self::script())
            .arg("stop")
            .arg(self.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Applies settings to the whole server, as root through its socket.
    fn set(&self, sql: &str) {
        let bin = std::env::var("DUCTWORK_TEST_MYSQL_BIN").expect("scripts/test starts a server");
        let mut command = Command::new(Path::new(&bin).join("mariadb"));
        let file = format!("--defaults-file={}", self.path().join("my.cnf").display());
        let output = command.arg(file).args(["-e", sql]).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(Self::script())
            .arg("remove")
            .arg(self.path())
            .output();
    }
}

#[test]
fn a_server_that_is_not_fit_is_refused_before_anything_is_made() {
    let mut server = Server::new();
    for (sql, back, code, says, remedy) in [
        (
            "SET GLOBAL read_only = 1",
            "SET GLOBAL read_only = 0",
            69,
            "read_only is on",
            "name another",
        ),
        (
            "SET GLOBAL max_allowed_packet = 16777216",
            "SET GLOBAL max_allowed_packet = 67108864",
            2,
            "the server has max_allowed_packet=16777216",
            "set it to 67108864 (64M) or more",
        ),
    ] {
        server.set(sql);
        refused(&server.url, code, says, remedy);
        server.set(back);
        assert_eq!(
            tables(&server.url, "ductwork"),
            Vec::<String>::new(),
            "{sql}"
        );
    }
    // A suitable server, but not for this configuration.
    let place = Place::empty();
    place.run(["init"]).fine();
    for (size, is_fit) in [("17MiB", false), ("16MiB", true)] {
        let mut command = place.command();
        let start = command.args(["run", "Hello", "\"a\""]);
        start.env("DATABASE_URL", &server.url);
        start.env("DUCTWORK_JOB_WORKER__MAX_PAYLOAD", size);
        let ended = Ended::of(start.output().unwrap());
        let says = "`job_worker.max_payload` is 17825792 bytes, for which the server's max_allowed_packet has to be 71303168";
        assert_eq!(ended.stderr.contains(says), !is_fit, "{ended:?}");
        assert_eq!(ended.code, Some(if is_fit { 0 } else { 2 }), "{ended:?}");
    }
    server.set("DROP DATABASE ductwork; CREATE DATABASE ductwork");
    for (options, code, says, remedy) in [
        (
            &["--log-bin=binlog", "--binlog-format=STATEMENT"][..],
            2,
            "the server has binlog_format=STATEMENT",
            "set it to ROW",
        ),
        (
            &["--version=10.5.29-MariaDB"],
            2,
            "the server is MariaDB 10.5.29",
            "MariaDB 10.6.0 or newer",
        ),
        (
            &["--version=8.0.11"],
            2,
            "the server is MySQL 8.0.11",
            "MySQL 8.0.19 or newer",
        ),
    ] {
        server.stop();
        server.start(options);
        refused(&server.url, code, says, remedy);
    }
    // A server that may lose writes is used, and commands that ask about it report that.
    server.stop();
    server.start(&["--innodb-flush-log-at-trx-commit=2"]);
    let forgetful = run(&server.url, &["migrate"]);
    forgetful.fine();
    let told = run(&server.url, &["health"]);
    let says = "the server has innodb_flush_log_at_trx_commit=2, with which it may lose what it has acknowledged";
    assert!(told.stdout.contains(says), "{told:?}");
    server.set("DROP DATABASE ductwork; CREATE DATABASE ductwork");
    // Harmless settings of a server: each session sets the values that matter.
    server.stop();
    server.start(&[
        "--default-storage-engine=MyISAM",
        "--transaction-isolation=SERIALIZABLE",
        "--sql-mode=",
        "--character-set-server=latin1",
        "--collation-server=latin1_german1_ci",
    ]);
    assert_eq!(tables(&server.url, "ductwork"), Vec::<String>::new());
    run(&server.url, &["migrate"]).fine();
    let engines = "SELECT count(*) AS n FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = 'ductwork' AND ENGINE <> 'InnoDB'";
    assert_eq!(ask(&server.url, engines)[0].get::<i64>("n").unwrap(), 0);
    let ended = run(&server.url, &["run", "Hello", "\"a\"", "--json"]);
    assert!(ended.code == Some(0), "{ended:?}");
}

/// Nobody carries a run out in a database whose name is mistyped.
#[test]
fn a_trigger_that_makes_the_tables_of_a_database_says_so() {
    let fresh = Database::new();
    for is_told in [true, false] {
        let triggered = run(fresh.0.url(), &["trigger", "Hello", "[]"]);
        assert_eq!(triggered.code, Some(0), "{triggered:?}");
        let told = "had no tables of Ductwork: they were created";
        assert_eq!(triggered.stderr.contains(told), is_told, "{triggered:?}");
    }
}

/// The script is applied with the server's own client, whose session has the server's defaults.
#[test]
fn the_schema_as_it_is_printed_is_that_which_is_made() {
    let [printed, made] = [Database::new(), Database::new()];
    let script = run(printed.0.url(), &["migrate", "--print"]);
    script.fine();
    let bin = std::env::var("DUCTWORK_TEST_MYSQL_BIN").expect("scripts/test starts a server");
    let mut child = Command::new(Path::new(&bin).join("mariadb"))
        .arg(format!("--defaults-file={}/my.cnf", directory()))
        .arg(printed.name())
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.stdout.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    run(made.0.url(), &["migrate"]).fine();
    let told = run(printed.0.url(), &["migrate"]);
    assert_eq!(told.stdout, "the schema is up to date\n", "{told:?}");
    let describe = |database: &Database| {
        let sql = format!(
            "SELECT TABLE_NAME || '.' || COLUMN_NAME || ' ' || COLUMN_TYPE || ' ' || IS_NULLABLE || ' '
                    || coalesce(COLLATION_NAME, '') || ' ' || COLUMN_KEY AS it
               FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{}' ORDER BY 1",
            database.name()
        );
        let rows = ask(&url(), &sql);
        rows.iter()
            .map(|row| row.get::<String>("it").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(describe(&printed), describe(&made));
}
