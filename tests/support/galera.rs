//! A Galera cluster of three nodes, as scripts/galera starts it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of nodes.
pub const NODES: usize = 3;

/// Names the nodes that tests may use, as scripts/galera prints them.
const URLS: &str = "DUCTWORK_TEST_GALERA_URLS";
/// The directory of these nodes.
const DIRECTORY: &str = "DUCTWORK_TEST_GALERA_DIR";

/// Three nodes, which are counted from 0 here.
pub struct Galera {
    directory: PathBuf,
    /// One for each node, with the same user and database.
    urls: Vec<String>,
    /// A cluster of the test's own is removed with this value.
    own: Option<tempfile::TempDir>,
}

impl Galera {
    /// Creates and starts one that no other test has.
    pub fn start() -> Self {
        let own = tempfile::tempdir().expect("a temporary directory");
        let directory = own.path().to_owned();
        let said = galera(&["start", &NODES.to_string(), path(&directory)]);
        let urls = said.lines().find_map(|line| line.split_once("_URLS="));
        let (_, urls) = urls.unwrap_or_else(|| panic!("no URLs: {said}"));
        Self::of(directory, urls.trim_matches('"'), Some(own))
    }

    /// The one that the environment names.
    pub fn given() -> Self {
        let [urls, directory] = [URLS, DIRECTORY].map(|name| {
            std::env::var(name).unwrap_or_else(|_| {
                panic!("{name} is not set, so nothing was tested on a cluster: eval \"$(scripts/galera start 3 DIR)\"")
            })
        });
        Self::of(PathBuf::from(directory), &urls, None)
    }

    fn of(directory: PathBuf, urls: &str, own: Option<tempfile::TempDir>) -> Self {
        let urls: Vec<String> = urls.split(' ').map(str::to_owned).collect();
        assert_eq!(urls.len(), NODES, "these tests need {NODES} nodes");
        Self {
            directory,
            urls,
            own,
        }
    }

    /// The URL of a single node, for a user who may do everything.
    pub fn node(&self, node: usize) -> &str {
        &self.urls[node]
    }

    /// Host and port of a node.
    pub fn place(&self, node: usize) -> &str {
        let (_, place) = self.urls[node].rsplit_once('@').expect("a user");
        place.split_once('/').expect("a database").0
    }

    /// The URL of a database through all nodes, starting with the given one.
    pub fn url(&self, first: usize, database: &str) -> String {
        let (login, _) = self.urls[0].rsplit_once('@').expect("a user");
        let places = (0..NODES).map(|at| self.place((first + at) % NODES));
        let places: Vec<&str> = places.collect();
        format!("{login}@{}/{database}", places.join(","))
    }

    /// A file that all nodes share.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file of a node.
    pub fn file_of(&self, node: usize, name: &str) -> PathBuf {
        self.directory.join(format!("node{}", node + 1)).join(name)
    }

    /// The pid of a node.
    pub fn pid(&self, node: usize) -> i32 {
        let pid = std::fs::read_to_string(self.file_of(node, "pid")).expect("a node");
        pid.trim().parse().expect("a pid")
    }

    /// Does something to a node; true if that succeeded.
    pub fn script(&self, verb: &str, node: usize, more: &[&str]) -> bool {
        let node = (node + 1).to_string();
        let args = [&[verb, path(&self.directory), &node], more].concat();
        script(&args).status().expect("scripts/galera").success()
    }

    /// Ends the processes of all nodes, like a crash of all hosts.
    pub fn down(&self) {
        galera(&["stop", path(&self.directory), "all", "immediate"]);
    }

    /// Starts all nodes that do not run; if none does, the one with the most data starts first.
    /// True when all are members.
    pub fn up(&self) -> bool {
        let start = ["start", &NODES.to_string(), path(&self.directory)];
        script(&start)
            .output()
            .expect("scripts/galera")
            .status
            .success()
    }

    /// Runs SQL at a node as its own user, whatever state it is in; returns the answer, or its
    /// error.
    pub fn sql(&self, node: usize, sql: &str) -> Result<String, String> {
        let configuration = self.file_of(node, "my.cnf");
        let text = std::fs::read_to_string(&configuration).expect("the node's configuration");
        let set = |name: &str| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
            values.next().expect("a setting of the node")
        };
        let client = Path::new(set("basedir = ")).join("bin/mariadb");
        // A node that stands still does not answer.
        let done = Command::new("timeout")
            .arg("3")
            .arg(client)
            .arg(format!("--defaults-file={}", configuration.display()))
            .args(["--host=127.0.0.1", "--port", set("extra_port = ")])
            .args(["-N", "-B", "-e", sql])
            .output()
            .expect("a client");
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// Prints what each node is doing: the cluster may have stood still.
    pub fn tell(&self) {
        const ASKED: &str = "SHOW FULL PROCESSLIST; \
            SELECT trx_id, trx_state, trx_started, trx_mysql_thread_id, trx_query, trx_rows_locked, trx_rows_modified \
              FROM information_schema.INNODB_TRX; \
            SELECT * FROM information_schema.INNODB_LOCK_WAITS; \
            SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_last_committed', 'wsrep_local_state_comment', \
              'wsrep_cluster_size', 'wsrep_local_recv_queue', 'wsrep_local_send_queue', 'wsrep_local_replays', \
              'wsrep_flow_control_active', 'wsrep_flow_control_requested')";
        for node in 0..NODES {
            let said = self.sql(node, ASKED).unwrap_or_else(|error| error);
            eprintln!(
                "node {node}:\n{said}\nthe end of its log:\n{}",
                self.end_of_log(node, 12)
            );
        }
    }

    /// The last lines of a node's log, without those about clients that went.
    pub fn end_of_log(&self, node: usize, count: usize) -> String {
        let log = std::fs::read(self.file_of(node, "server.log")).expect("a log");
        let log = String::from_utf8_lossy(&log);
        let of_clients = |line: &&str| line.contains("Aborted connection");
        let lines = log.lines().rev().filter(|line| !of_clients(line));
        let mut lines: Vec<&str> = lines.take(count).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl Drop for Galera {
    fn drop(&mut self) {
        if self.own.is_some() {
            let stop = ["stop", path(&self.directory), "all", "immediate"];
            let done = script(&stop).output();
            let done = done.is_ok_and(|done| done.status.success());
            assert!(done || std::thread::panicking(), "the nodes are not ended");
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn script(args: &[&str]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/galera");
    let mut command = Command::new(script);
    command.args(args);
    command
}

fn galera(args: &[&str]) -> String {
    let output = script(args).output().expect("scripts/galera runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}
