//! A MariaDB server that belongs to one test alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ductwork::store::Conn;
use ductwork::store::statement::Statement;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest time that the kernel takes to stop or continue it.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// A separate server, with its own data and port, which can be stopped and started.
pub struct Mariadb {
    dir: tempfile::TempDir,
    /// The URL of a user who may do everything.
    pub url: String,
}

impl Mariadb {
    /// Creates and starts it.
    pub fn start() -> Self {
        Self::start_in(&std::env::temp_dir())
    }

    /// The same, on the disk of this directory.
    pub fn start_in(parent: &Path) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("a temporary directory");
        let url = url(&mariadb(&["start", path(dir.path())]));
        Self { dir, url }
    }

    /// A file of its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Host and port.
    pub fn place(&self) -> &str {
        let rest = self.url.rsplit_once('@').expect("a user").1;
        rest.split_once('/').expect("a database").0
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        let (_, port) = self.place().rsplit_once(':').expect("a port");
        port.parse().expect("a port")
    }

    /// The URL of a user who may do everything with the test's database, and nothing with the server.
    pub fn ordinary(&self) -> String {
        self.sql(
            "CREATE USER IF NOT EXISTS duct IDENTIFIED BY 'duct'; GRANT ALL ON ductwork.* TO duct",
        );
        format!("mysql://duct:duct@{}/ductwork", self.place())
    }

    /// Runs SQL as the server's own user, whom `read_only` does not affect and whose client makes no demands
    /// on it.
    pub fn sql(&self, sql: &str) -> String {
        let client = Path::new(&bin()).join("mariadb");
        let file = format!("--defaults-file={}", self.file("my.cnf").display());
        let done = Command::new(client)
            .args([&file, "-N", "-B", "-e", sql])
            .output();
        let done = done.expect("a client");
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{sql}: {error}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// Sets whether it takes writes from ordinary users.
    pub fn take_writes(&self, takes: bool) {
        self.sql(&format!("SET GLOBAL read_only = {}", u8::from(!takes)));
    }

    /// Stops it in order: it ends its sessions.
    pub fn stop(&self) {
        mariadb(&["stop", path(self.dir.path())]);
    }

    /// Stops it like a crash: by KILL.
    pub fn down(&self) {
        mariadb(&["stop", path(self.dir.path()), "immediate"]);
    }

    /// Starts it again.
    pub fn up(&self) {
        mariadb(&["start", path(self.dir.path())]);
    }

    /// Makes it stand still: it keeps its connections, and answers nothing.
    pub fn freeze(&self) {
        let pid = self.pid();
        kill(pid, Signal::SIGSTOP).expect("a server");
        let began = Instant::now();
        while state(pid) != Some('T') {
            assert!(began.elapsed() < STOPPED_WITHIN, "it does not stand still");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("a server");
    }

    /// Ends the sessions of clients at these ports, from a separate session; returns how many there
    /// were.
    pub async fn cut(&self, killer: &mut Conn, ports: &BTreeSet<u16>) -> usize {
        static CLIENTS: Statement = Statement::new(
            "TEST_CLIENTS",
            "SELECT CAST(ID AS SIGNED) AS id, HOST AS host FROM information_schema.PROCESSLIST
              WHERE ID <> CONNECTION_ID()",
        );
        let rows = killer.fetch(&CLIENTS, &[]).await.expect("the sessions");
        let mut cut = 0;
        for row in rows {
            let host: String = row.get("host").expect("a host");
            let port = host
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok());
            if port.is_some_and(|port| ports.contains(&port)) {
                let id: i64 = row.get("id").expect("a number");
                let kill = format!("KILL {id}").leak();
                // The session may have ended by itself.
                cut += usize::from(killer.script("KILL", kill).await.is_ok());
            }
        }
        cut
    }

    fn pid(&self) -> Pid {
        let pid = std::fs::read_to_string(self.file("pid")).expect("a server");
        Pid::from_raw(pid.trim().parse().expect("a pid"))
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = script(&["stop", path(self.dir.path()), "immediate"]);
        } else {
            self.down();
        }
    }
}

/// The kernel's state of a process; `None` if the process does not exist.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn url(said: &str) -> String {
    let url = said
        .lines()
        .find_map(|line| line.split_once("TEST_MYSQL_URL="));
    let (_, url) = url.unwrap_or_else(|| panic!("no URL: {said}"));
    url.to_owned()
}

/// The directory of the client.
fn bin() -> String {
    mariadb(&["bin"]).trim().to_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn script(args: &[&str]) -> std::io::Result<std::process::Output> {
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/mariadb");
    Command::new(script).args(args).output()
}

fn mariadb(args: &[&str]) -> String {
    let output = script(args).expect("scripts/mariadb runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}
