//! Nodes that are killed or cut off while writers work: acknowledged writes stay, and the work goes on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ductwork::model::*;
use ductwork::store::claim::{self, Claim, Claimed};
use ductwork::store::commit::{self, Committer, Finished};
use ductwork::store::process::{self, Claimant};
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{Conn, Error, Location, Purpose, writable};
use serde_json::json;
use uuid::Uuid;

use crate::driver::{Did, Driver, LEASE, audit};
use crate::{Cluster, DEADLINE, number, one, statement, told, with};

/// The answers that the writers got, and their times.
#[derive(Default)]
struct Record {
    /// Keys with their runs.
    triggered: RefCell<HashMap<String, RunId>>,
    /// Successes, and the processes that committed them.
    committed: RefCell<HashMap<ExecutionId, ProcessId>>,
    /// For each writer, the times of its acknowledgements.
    acknowledged: RefCell<HashMap<usize, Vec<Instant>>>,
    /// The number of lost answers whose fate was queried, and of those that had been committed.
    unknown: Cell<(usize, usize)>,
    over: Cell<bool>,
}

/// A worker that triggers its own work, with connections and epochs like the daemon's.
struct Writer {
    number: usize,
    location: Location,
    driver: Driver,
    epoch: u32,
    record: Rc<Record>,
}

impl Writer {
    async fn new(cluster: &Cluster, number: usize, record: Rc<Record>) -> Self {
        let mut driver = Driver::new(&cluster.node(number)).await;
        driver.audited = false;
        // The addresses begin with its own node, as on each host of a deployment.
        let location = cluster.location(number).leased(Duration::from_secs(12));
        driver.conn = location.connect(Purpose::Engine).await.unwrap();
        Self {
            number,
            location,
            driver,
            epoch: 0,
            record,
        }
    }

    fn claimant(&self) -> Claimant {
        Claimant {
            process: self.driver.process,
            epoch: self.epoch,
        }
    }

    fn acknowledged(&self) {
        let mut all = self.record.acknowledged.borrow_mut();
        all.entry(self.number).or_default().push(Instant::now());
    }

    /// After any error that is not a lost race: opens another connection, which fences the earlier
    /// ones.
    async fn reconnect(&mut self, error: Error) {
        assert!(error.is_unavailable() || error.is_not_now(), "{error:?}");
        let began = Instant::now();
        loop {
            assert!(
                began.elapsed() < DEADLINE,
                "writer {} finds no node: {error:?}",
                self.number
            );
            self.epoch += 1;
            let fenced = async {
                let mut conn = self.location.connect(Purpose::Engine).await?;
                process::fence_earlier(&mut conn, self.claimant()).await?;
                Ok::<Conn, Error>(conn)
            };
            match fenced.await {
                Ok(conn) => {
                    self.driver.conn = conn;
                    return;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn work(mut self) -> Self {
        let mut at = 0;
        while !self.record.over.get() {
            self.trigger(&format!("{}-{at}", self.number)).await;
            at += 1;
            for claimed in self.claim().await {
                let finished = self.driver.finished(claimed, Did::Returned(json!(1))).await;
                self.commit([finished]).await;
            }
        }
        self
    }

    async fn trigger(&mut self, key: &str) {
        loop {
            let run = [NewRun {
                key: Some(key),
                input: "1",
            }];
            match trigger::trigger(&mut self.driver.conn, &one(), &run, Duration::ZERO).await {
                Ok(runs) => {
                    self.acknowledged();
                    let known = self
                        .record
                        .triggered
                        .borrow_mut()
                        .insert(key.to_owned(), runs[0].run_id);
                    assert_eq!(known, None);
                    return;
                }
                Err(error) => self.reconnect(error).await,
            }
        }
    }

    async fn claim(&mut self) -> Vec<Claimed> {
        loop {
            let claimant = self.claimant();
            match claim::claim(&mut self.driver.conn, claimant, "P", 1, LEASE).await {
                Ok(Claim::Taken(taken)) => return taken,
                Ok(other) => panic!("{other:?}"),
                Err(error) => self.reconnect(error).await,
            }
            // The answer may be lost although the claim is not.
            match claim::held(&mut self.driver.actor.conn, self.driver.actor.process).await {
                Ok(held) if held.whole.is_empty() => {}
                Ok(held) => return held.whole,
                Err(error) => self.reconnect(error).await,
            }
        }
    }

    async fn commit(&mut self, finished: [Finished; 1]) {
        let execution = finished[0].claimed.execution_id;
        let record = Rc::clone(&self.record);
        let done = |process| record.committed.borrow_mut().insert(execution, process);
        loop {
            let committer = Committer {
                claimant: self.claimant(),
                pipeline: "P",
                lease: LEASE,
                room: 0,
            };
            match commit::commit(&mut self.driver.conn, &finished, committer).await {
                Ok(committed) => {
                    assert!(
                        !committed.dead && committed.stale.is_empty(),
                        "writer {}: {committed:?}",
                        self.number
                    );
                    self.acknowledged();
                    assert_eq!(done(self.driver.process), None);
                    return;
                }
                Err(error) => self.reconnect(error).await,
            }
            let landed = loop {
                match commit::landed(
                    &mut self.driver.actor.conn,
                    &finished,
                    self.driver.actor.process,
                )
                .await
                {
                    Ok(landed) => break landed.contains(&execution),
                    Err(error) => self.reconnect(error).await,
                }
            };
            let (asked, found) = record.unknown.get();
            record.unknown.set((asked + 1, found + usize::from(landed)));
            if landed {
                self.acknowledged();
                assert_eq!(done(self.driver.process), None);
                return;
            }
        }
    }
}

/// Everything that was acknowledged to a writer is in the database at all nodes, once, and nothing else is wrong
/// there.
async fn kept(cluster: &Cluster, record: &Record) {
    for node in 0..3 {
        let mut reader = cluster
            .node(node)
            .location
            .connect(Purpose::Query)
            .await
            .unwrap();
        let runs = reader
            .fetch(statement("SELECT id, trigger_key FROM ductwork_runs"), &[])
            .await
            .unwrap();
        let runs: HashMap<String, RunId> = runs
            .iter()
            .map(|row| {
                (
                    row.get("trigger_key").unwrap(),
                    RunId(row.get::<Uuid>("id").unwrap()),
                )
            })
            .collect();
        for (key, run) in &*record.triggered.borrow() {
            assert_eq!(runs.get(key), Some(run), "node {node} lost {key}");
        }
        let successes = "SELECT id, process_id FROM ductwork_executions WHERE result = 'success'";
        let rows = reader.fetch(statement(successes), &[]).await.unwrap();
        let successes: HashMap<ExecutionId, ProcessId> = rows
            .iter()
            .map(|row| {
                (
                    ExecutionId(row.get("id").unwrap()),
                    ProcessId(row.get("process_id").unwrap()),
                )
            })
            .collect();
        assert_eq!(successes, *record.committed.borrow(), "node {node}");
        // Two rows of one step would be two successes of one unit.
        let steps = "SELECT {big:count(DISTINCT step_id)} AS it FROM ductwork_executions WHERE result = 'success'";
        assert_eq!(number(&mut reader, steps).await, successes.len() as i64);
        audit(&mut reader).await;
        reader.close().await;
    }
}

/// Three writers, each at its own node, the last of which is struck; returns once all of them have
/// gone on.
async fn struck(cluster: Rc<Cluster>, what: &str, verb: &str, more: &[&str]) -> Rc<Record> {
    let record = Rc::new(Record::default());
    let mut writers = Vec::new();
    for number in 0..3 {
        let writer = Writer::new(&cluster, number, Rc::clone(&record)).await;
        assert_eq!(writer.location.server(), Some(cluster.host(number)));
        writers.push(tokio::task::spawn_local(writer.work()));
    }
    let working = |since: Instant, times: usize| {
        let acknowledged = record.acknowledged.borrow();
        let of = |number| {
            acknowledged.get(&number).map_or(0, |all: &Vec<Instant>| {
                all.iter().filter(|at| **at > since).count()
            })
        };
        (0..3).all(|number| of(number) >= times)
    };
    let until = async |since: Instant, times: usize| {
        let began = Instant::now();
        while !working(since, times) {
            assert!(
                began.elapsed() < DEADLINE,
                "{what}: a writer does not go on"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let began = Instant::now();
    until(began, 30).await;
    let struck = Instant::now();
    assert!(cluster.script(verb, 2, more));
    // All of them go on, and the one whose node is gone does so at another node.
    until(struck + Duration::from_secs(2), 30).await;
    record.over.set(true);
    for writer in writers {
        let writer = writer.await.unwrap();
        let moved = writer.number == 2;
        assert_eq!(
            writer.location.server() != Some(cluster.host(writer.number)),
            moved,
            "writer {}",
            writer.number
        );
        let acknowledged = record.acknowledged.borrow();
        let times = acknowledged[&writer.number]
            .iter()
            .filter(|at| **at > struck);
        let stood = std::iter::once(&struck)
            .chain(times.clone())
            .zip(times.clone())
            .map(|(one, next)| *next - *one);
        eprintln!(
            "{what}: writer {} stood still for {:.1?} at most",
            writer.number,
            stood.max().unwrap()
        );
    }
    let (asked, found) = record.unknown.get();
    eprintln!("{what}: {asked} answers of commits were lost, of which {found} had been committed");
    let done = record.triggered.borrow().len() + record.committed.borrow().len();
    told(what, done, began);
    record
}

#[tokio::test]
async fn a_node_that_is_killed_takes_nothing_with_it_that_was_acknowledged() {
    with(|cluster| async move {
        let record = struck(Rc::clone(&cluster), "a node killed", "stop", &["immediate"]).await;
        assert!(cluster.script("start-node", 2, &[]));
        kept(&cluster, &record).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_takes_no_work_and_its_writer_goes_on_at_another() {
    with(|cluster| async move {
        let record = struck(Rc::clone(&cluster), "a node cut off", "isolate", &[]).await;
        // A client without another address gets an error.
        let alone = cluster.node(2).location.connect(Purpose::Engine).await;
        let error = alone.err().expect("it is in no majority");
        assert!(error.is_unavailable(), "{error:?}");
        assert!(
            error.remedy().unwrap_or_default().contains("another node"),
            "{error:?}"
        );
        assert!(cluster.script("rejoin", 2, &[]));
        kept(&cluster, &record).await;
    })
    .await;
}

/// Each node has settings of its own.
#[tokio::test]
async fn a_node_with_a_setting_that_is_a_mistake_is_left_for_another() {
    with(|cluster| async move {
        let person = cluster.node(2).location.connect(Purpose::Query).await;
        let mut person = person.unwrap();
        let strikes = "SET GLOBAL max_allowed_packet = 16777216";
        let heals = "SET GLOBAL max_allowed_packet = 67108864";
        person.script("STRIKE", strikes).await.unwrap();
        let location = cluster.location(2);
        let another = location.connect(Purpose::Engine).await;
        let alone = cluster.node(2).location.connect(Purpose::Engine).await;
        // The other address may only be away.
        let host = cluster.host(2);
        let url = cluster
            .node(2)
            .url
            .replace(&host, &format!("{host},127.0.0.1:1"));
        let away = Location::parse(&url).unwrap();
        let away = away.connect(Purpose::Engine).await;
        person.script("HEAL", heals).await.unwrap();
        another.unwrap().close().await;
        assert!(away.err().expect("nobody is there").is_unavailable());
        assert_eq!(location.server(), Some(cluster.host(0)));
        let error = alone.err().expect("it is refused").to_string();
        assert!(error.contains("max_allowed_packet"), "{error}");
        person.close().await;
    })
    .await;
}

/// After a node was lost, living processes could be taken for dead.
#[tokio::test]
async fn a_lease_that_is_shorter_than_a_clusters_silence_is_told() {
    with(|cluster| async move {
        let mut person = cluster
            .node(0)
            .location
            .connect(Purpose::Query)
            .await
            .unwrap();
        let mut told = async |lease| {
            let told = writable::careless(&mut person, lease).await.unwrap();
            told.is_some_and(|it| it.contains("set `supervisor.reaper_timeout` to 15 at least"))
        };
        assert!(told(writable::CLUSTER_LEASE - Duration::from_millis(1)).await);
        assert!(!told(writable::CLUSTER_LEASE).await);
        person.close().await;
    })
    .await;
}

/// A process writes its own row with everything that it does: two connections at two nodes would conflict.
#[tokio::test]
async fn a_node_that_is_not_to_be_worked_with_is_left_by_all_connections_of_a_process() {
    with(|cluster| async move {
        let mut person = cluster
            .node(2)
            .location
            .connect(Purpose::Query)
            .await
            .unwrap();
        for (strikes, heals) in [
            (
                "SET GLOBAL wsrep_desync = ON",
                "SET GLOBAL wsrep_desync = OFF",
            ),
            ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"),
            // The other nodes would not receive its writes.
            ("SET GLOBAL wsrep_on = OFF", "SET GLOBAL wsrep_on = ON"),
            // It would refuse to write batches.
            (
                "SET GLOBAL wsrep_max_ws_rows = 1000000",
                "SET GLOBAL wsrep_max_ws_rows = 0",
            ),
            (
                "SET GLOBAL wsrep_max_ws_size = 2147483646",
                "SET GLOBAL wsrep_max_ws_size = 2147483647",
            ),
        ] {
            let location = cluster.location(2);
            let engine = location.connect(Purpose::Engine).await.unwrap();
            let lifeline = location.connect(Purpose::Lifeline).await.unwrap();
            assert_eq!(location.server(), Some(cluster.host(2)));
            assert!(!engine.is_broken() && !lifeline.is_broken());
            person.script("STRIKE", strikes).await.unwrap();
            let another = location.connect(Purpose::Engine).await;
            let alone = cluster.node(2).location.connect(Purpose::Engine).await;
            person.script("HEAL", heals).await.unwrap();
            let another = another.unwrap();
            assert_eq!(location.server(), Some(cluster.host(0)), "{strikes}");
            assert!(
                engine.is_broken() && lifeline.is_broken() && !another.is_broken(),
                "{strikes}"
            );
            let error = alone.err().expect(strikes);
            assert!(
                error.is_unavailable() && error.remedy().is_some(),
                "{strikes}: {error:?}"
            );
            // Nor does it come back as soon as it could.
            let further = location.connect(Purpose::Lifeline).await.unwrap();
            assert_eq!(location.server(), Some(cluster.host(0)), "{strikes}");
            for conn in [engine, lifeline, another, further] {
                conn.close().await;
            }
            until_synced(&mut person).await;
        }
        person.close().await;
    })
    .await;
}

async fn until_synced(person: &mut Conn) {
    let synced = "SELECT {big:count(*)} AS it FROM information_schema.GLOBAL_STATUS
                   WHERE VARIABLE_NAME = 'WSREP_LOCAL_STATE_COMMENT' AND VARIABLE_VALUE = 'Synced'";
    let began = Instant::now();
    while number(person, synced).await == 0 {
        assert!(began.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Locks are those of one node, and so are the numbers of sessions.
#[tokio::test]
async fn a_session_that_holds_a_lock_is_told_with_its_node() {
    with(|cluster| async move {
        let own = cluster.node(1).location;
        let mut holder = own.connect(Purpose::Engine).await.unwrap();
        let mut several = cluster
            .location(1)
            .connect(Purpose::Lifeline)
            .await
            .unwrap();
        let lock = "LOCK TABLES ductwork_runs WRITE";
        holder.script("LOCK", lock).await.unwrap();
        let locked = writable::locked(&mut several).await.unwrap().unwrap();
        let place = format!(" at {}", cluster.host(1));
        assert!(locked.fact.contains(&place), "{}", locked.fact);
        for conn in [holder, several] {
            conn.close().await;
        }
    })
    .await;
}
