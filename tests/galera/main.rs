//! The store on a Galera cluster of three nodes: simultaneous work at two nodes, and nodes that are killed or cut
//! off.
//!
//! Locks hold on their own node only, so the writes decide: when two nodes write one row, the second transaction to
//! commit is refused. Each test has its own database, and the tests use the cluster one after the other.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[expect(dead_code, reason = "the store's own tests need more of it")]
#[path = "../store/driver.rs"]
mod driver;
mod faults;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/galera.rs"]
mod galera;
mod races;
mod support;

use std::fs::File;
use std::time::{Duration, Instant};

use ductwork::definition::{Definition, Pipeline};
use ductwork::store::error::{CLASSES, take_failed};
use ductwork::store::sandbox::Sandbox;
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, Location, Purpose};

use galera::Galera;
use support::Db;

/// The longest wait for anything.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Three nodes, and a database in them that no other test uses.
pub struct Cluster {
    sandbox: Sandbox,
    galera: Galera,
    /// Held by the one test that uses the cluster.
    _alone: File,
}

impl Cluster {
    async fn new() -> Self {
        let galera = Galera::given();
        let alone = File::create(galera.file("tests.lock")).unwrap();
        alone.lock().unwrap();
        let sandbox = Sandbox::beside(galera.node(0), "test").unwrap();
        sandbox.create().await.unwrap().close().await;
        Self {
            sandbox,
            galera,
            _alone: alone,
        }
    }

    fn database(&self) -> &str {
        self.sandbox.url().rsplit('/').next().unwrap()
    }

    /// An address of the database with all nodes, starting with the given one.
    pub fn location(&self, first: usize) -> Location {
        Location::parse(&self.galera.url(first, self.database())).unwrap()
    }

    /// The database through one node only.
    pub fn node(&self, at: usize) -> Db {
        let (server, _) = self.galera.node(at).rsplit_once('/').unwrap();
        let url = format!("{server}/{}", self.database());
        let location = Location::parse(&url).unwrap();
        Db { url, location }
    }

    /// A connection for reading, which sees what was committed at any node.
    pub async fn reader(&self) -> Conn {
        self.location(0).connect(Purpose::Query).await.unwrap()
    }

    /// The host and port of a node.
    pub fn host(&self, at: usize) -> String {
        self.galera.place(at).to_owned()
    }

    /// Does something to a node; true if that succeeded.
    pub fn script(&self, verb: &str, node: usize, more: &[&str]) -> bool {
        self.galera.script(verb, node, more)
    }
}

/// Runs a test on the cluster; its database is removed afterwards.
async fn with<F: Future<Output = ()> + 'static>(test: impl FnOnce(std::rc::Rc<Cluster>) -> F) {
    let cluster = std::rc::Rc::new(Cluster::new().await);
    let body = test(std::rc::Rc::clone(&cluster));
    let local = tokio::task::LocalSet::new();
    let done = local
        .run_until(async { tokio::task::spawn_local(body).await })
        .await;
    if done.is_err() {
        cluster.galera.tell();
    }
    // Connections that the body left behind hold locks, so they are closed first.
    drop(local);
    if done.is_err() {
        // It may have left a node killed or cut off, and the next test needs all of them.
        cluster.script("rejoin", 2, &[]);
        cluster.galera.up();
    }
    cluster.sandbox.remove().await.unwrap();
    if let Err(error) = done {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Runs all of them at once; returns their values, in order.
async fn together<T: 'static, F: Future<Output = T> + 'static>(
    all: impl IntoIterator<Item = F>,
) -> Vec<T> {
    let tasks: Vec<_> = all.into_iter().map(tokio::task::spawn_local).collect();
    let mut values = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(value) => values.push(value),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    values
}

/// The number of transactions that lost to others since the last call.
fn lost_races() -> u64 {
    let [failed] = CLASSES
        .iter()
        .zip(take_failed())
        .filter(|(class, _)| **class == "contention")
        .map(|(_, n)| n)
        .collect::<Vec<_>>()[..]
    else {
        unreachable!("contention is a class of errors")
    };
    failed
}

/// Prints the measurements.
fn told(what: &str, transactions: usize, began: Instant) {
    let (lost, took) = (lost_races(), began.elapsed());
    let share = 100.0 * lost as f64 / (transactions as f64 + lost as f64);
    eprintln!(
        "{what}: {transactions} in {took:.1?}, {lost} tries lost to another node ({share:.0} %)"
    );
}

/// A statement of a test.
fn statement(sql: impl Into<String>) -> &'static Statement {
    let sql = Box::leak(sql.into().into_boxed_str());
    Box::leak(Box::new(Statement::new("TEST", sql)))
}

/// The only number in a statement's answer.
async fn number(conn: &mut Conn, sql: &str) -> i64 {
    let rows = conn.fetch(statement(sql), &[]).await.unwrap();
    rows[0].get("it").unwrap()
}

fn one() -> Definition {
    Pipeline::named("P").start("A").build().unwrap()
}
