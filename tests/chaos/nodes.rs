//! Strikes at the nodes of a cluster. Each ends when the cluster is whole again, alongside everything else that
//! happens meanwhile, and the next one waits for that: the cluster loses its majority only where that is the fault.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use ductwork::store::{Error, Location, Purpose};
use nix::sys::signal::Signal;

use crate::fixture::{PATIENCE, eventually, freeze, lives, send};
use crate::galera::{Galera, NODES};
use crate::history::{Fault, Kind, uptime};
use crate::plan::Blow;
use crate::scene::Scene;

/// A node that has been silent for this long is left out by the others, though not at once.
const SUSPECTED: Duration = Duration::from_secs(6);

/// A node that is no member for this long hangs; joining takes seconds.
pub const HANGS: Duration = Duration::from_secs(60);

/// The longest that the cluster may take to be whole again, even when nodes hang.
pub const WHOLE: Duration = PATIENCE.saturating_mul(2);

/// The pause between two looks at a node from outside, each of which takes a process.
const LOOK: Duration = Duration::from_millis(200);

/// The variable and the value by which a node says that it is in no majority.
const STATUS: &str = "wsrep_cluster_status";
const PARTED: &str = "non-Primary";

/// The ways in which a node is given the data that it has missed, in the words of the donor's log: all data, or only
/// the later part.
const TRANSFERS: [&str; 2] = [
    "rsync SST completed on donor",
    "rsync IST completed on donor",
];

/// A cluster, and the faults that are injected into it.
pub struct Nodes {
    pub galera: Galera,
    /// Held while a fault affects a node, or the node has not come back yet.
    struck: tokio::sync::Mutex<()>,
    /// When the cluster was whole again after each fault, by the fault's number.
    ends: Mutex<BTreeMap<usize, Duration>>,
    /// The transfers of the first start.
    transfers: [usize; 2],
    /// How often a node ended by itself.
    fallen: AtomicUsize,
    /// How often a node hung, and was killed.
    hung: AtomicUsize,
    /// True when nobody waits for the cluster any more.
    over: AtomicBool,
}

impl Scene {
    /// Injects a fault of nodes; one such fault at a time.
    pub async fn nodes(&mut self, blow: &Blow) {
        let nodes = Arc::clone(self.nodes.as_ref().expect("a cluster"));
        // The daemons are watched meanwhile.
        eventually(WHOLE, "the cluster is whole", async || {
            self.watch().await;
            nodes.struck.try_lock().is_ok().then_some(())
        })
        .await;
        let at = uptime();
        let own = blow.clone();
        let (began, has_begun) = tokio::sync::oneshot::channel();
        self.beside(blow, move || async move {
            let _alone = nodes.struck.lock().await;
            let _gone = began.send(());
            let (number, striking) = (own.number, Arc::clone(&nodes));
            // A task of its own: even where it panics, the next fault finds the cluster whole.
            let strike = async move { striking.strike(&own).await };
            let tasks = tokio::task::LocalSet::new();
            let fired = tasks
                .run_until(async { tokio::task::spawn_local(strike).await })
                .await;
            if fired.is_err() {
                nodes.galera.tell();
            }
            nodes.whole().await;
            nodes.ends.lock().unwrap().insert(number, uptime());
            fired.unwrap_or(false)
        });
        has_begun.await.expect("it begins");
        let node = blow.pick as usize % NODES;
        let target = format!("node {node} for {:?}", blow.lasts);
        self.note(blow, target, at, blow.lasts, Vec::new());
    }
}

impl Nodes {
    /// A cluster of this storm's own.
    pub fn start() -> Self {
        let galera = Galera::start();
        let transfers = TRANSFERS.map(|line| said(&galera, line));
        Self {
            galera,
            transfers,
            struck: tokio::sync::Mutex::default(),
            ends: Mutex::default(),
            fallen: AtomicUsize::new(0),
            hung: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// The socket on which each node listens on this machine, whatever network the caller is in.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let sockets = (0..NODES).map(|node| self.galera.file_of(node, "mysql.sock"));
        sockets.collect()
    }

    /// The URL of each node alone.
    pub fn urls(&self) -> Vec<String> {
        let urls = (0..NODES).map(|node| self.galera.node(node).to_owned());
        urls.collect()
    }

    /// Sets the end of each fault to the time at which the cluster was whole again.
    pub fn tell_ends(&self, faults: &mut [Fault]) {
        let ends = self.ends.lock().unwrap();
        for fault in faults {
            fault.until = ends.get(&fault.number).copied().unwrap_or(fault.until);
        }
    }

    /// Injects the fault and ends it; true when it has struck.
    async fn strike(&self, blow: &Blow) -> bool {
        let (galera, lasts) = (&self.galera, blow.lasts);
        let node = blow.pick as usize % NODES;
        let began = Instant::now();
        let rest = async || tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
        match blow.kind {
            Kind::KillNode => {
                let pid = galera.pid(node);
                let fired = galera.script("stop", node, &["immediate"]);
                rest().await;
                if blow.amount.is_multiple_of(3) {
                    // Like a host that comes back with an empty disk.
                    std::fs::remove_file(galera.file_of(node, "data/grastate.dat")).unwrap();
                }
                // A node that does not become a member is started again.
                let _member = galera.script("start-node", node, &["30"]);
                fired && galera.pid(node) != pid
            }
            Kind::KillNodes => {
                let before = (0..NODES).map(|node| galera.pid(node));
                let before: Vec<i32> = before.collect();
                galera.down();
                let fired = before.iter().all(|pid| !lives(*pid));
                rest().await;
                // Where a node does not become a member, the later ones are not started yet.
                let _whole = galera.up();
                fired
            }
            Kind::StopNode => {
                let pid = galera.pid(node);
                freeze(pid).await;
                // As a rule, the others leave it out. Seldom they stand still with it; they are killed then, like any
                // node that hangs.
                let other = (node + 1) % NODES;
                if lasts > SUSPECTED && !self.leaves_one_out(other).await {
                    self.galera.tell();
                }
                rest().await;
                send(pid, Signal::SIGCONT);
                true
            }
            Kind::IsolateNode => {
                self.isolate(node, true).await;
                self.until_it_says(node, STATUS, PARTED).await;
                rest().await;
                self.isolate(node, false).await;
                true
            }
            Kind::NoQuorum => {
                let others = [node, (node + 1) % NODES];
                for node in others {
                    self.isolate(node, true).await;
                }
                for node in 0..NODES {
                    self.until_it_says(node, STATUS, PARTED).await;
                }
                rest().await;
                for node in others {
                    self.isolate(node, false).await;
                }
                true
            }
            Kind::LockNode => {
                self.lock(node, lasts).await.expect("a lock");
                true
            }
            other => unreachable!("{other:?} is of no node"),
        }
    }

    /// Locks all tables of a node for this long; the node cannot be used meanwhile.
    async fn lock(&self, node: usize, lasts: Duration) -> Result<(), Error> {
        let location = Location::parse(self.galera.node(node)).expect("the node's URL");
        let mut conn = location.connect(Purpose::Query).await?;
        let lock = "FLUSH TABLES WITH READ LOCK";
        conn.script("LOCK", lock).await?;
        let began = Instant::now();
        self.until_it_says(node, "wsrep_local_state_comment", "Donor/Desynced")
            .await;
        tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
        conn.script("UNLOCK", "UNLOCK TABLES").await?;
        conn.close().await;
        Ok(())
    }

    /// Cuts a node off, or ends that. A busy node may answer too late, and is told once more.
    async fn isolate(&self, node: usize, parted: bool) {
        let parted = u8::from(parted);
        let set = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={parted}'");
        let what = format!("node {node} accepts gmcast.isolate={parted}");
        eventually(PATIENCE, &what, async || self.galera.sql(node, &set).ok()).await;
    }

    /// Waits until a node reports the effect of a fault on the cluster: before that the fault has not struck. While
    /// the nodes agree on their membership, a node may give no answer.
    async fn until_it_says(&self, node: usize, variable: &str, value: &str) {
        let what = format!("node {node} says that its {variable} is {value}");
        eventually(PATIENCE, &what, async || {
            tokio::time::sleep(LOOK).await;
            self.says(node, variable, value).then_some(())
        })
        .await;
    }

    fn says(&self, node: usize, variable: &str, value: &str) -> bool {
        let said = self
            .galera
            .sql(node, &format!("SHOW GLOBAL STATUS LIKE '{variable}'"));
        said.is_ok_and(|said| said.trim() == format!("{variable}\t{value}"))
    }

    /// Waits until a node knows only one other; false if it does not say so for as long as no working node needs.
    async fn leaves_one_out(&self, node: usize) -> bool {
        let began = Instant::now();
        while began.elapsed() < HANGS {
            tokio::time::sleep(LOOK).await;
            if self.says(node, "wsrep_cluster_size", "2") {
                return true;
            }
        }
        false
    }

    /// Waits until each node knows all the others, and has all of their data. A returning node ends by itself where
    /// its donor turns away; as with a service, a watcher starts it again. It kills a node that hangs before that.
    async fn whole(&self) {
        let mut since = Instant::now();
        for node in 0..NODES {
            let location = Location::parse(self.galera.node(node)).expect("the node's URL");
            let what = format!("node {node} is one of {NODES} again");
            eventually(WHOLE, &what, async || {
                tokio::time::sleep(LOOK).await;
                assert!(!self.over.load(Ordering::Relaxed), "the storm is over");
                let mut gone = (0..NODES).any(|node| self.has_fallen(node));
                if since.elapsed() > HANGS {
                    let ended = (0..NODES).map(|node| self.end_if_it_hangs(node));
                    gone |= ended.fold(false, |any, ended| any | ended);
                    since = Instant::now();
                }
                if gone {
                    self.galera.up();
                }
                // Only a node that is synced, and reads as the others do, accepts clients.
                is_one_of_all(&location)
                    .await
                    .is_ok_and(|is| is)
                    .then_some(())
            })
            .await;
        }
    }

    /// Kills a node that is no member, or that says that it is one and hears of nothing, and prints the end of its log;
    /// true when it did so.
    fn end_if_it_hangs(&self, node: usize) -> bool {
        let ask = "SHOW GLOBAL STATUS LIKE 'wsrep_local_state_comment'";
        let state = self.galera.sql(node, ask);
        let is_member = |said: &String| said.trim().ends_with("Synced");
        let works = state.as_ref().is_ok_and(is_member) && self.hears_of_the_others(node);
        if works || !lives(self.galera.pid(node)) {
            return false;
        }
        let end = self.galera.end_of_log(node, 40);
        eprintln!("node {node} hangs, and says {state:?}:\n{end}");
        self.hung.fetch_add(1, Ordering::Relaxed);
        self.galera.script("stop", node, &["immediate"])
    }

    /// True where a node answers a read that waits for all that the cluster has committed.
    ///
    /// Two members that stay behind as a third one leaves can fail to agree on their state ("Temporary failure in sending
    /// state UUID, will try again in next primary component", in MariaDB 10.11). Both say that they are synced, nothing
    /// is committed until the membership changes again, and each waiting session keeps its connection.
    fn hears_of_the_others(&self, node: usize) -> bool {
        let causal = "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1";
        // A busy node may answer too late once.
        (0..3).any(|_| self.galera.sql(node, causal).is_ok())
    }

    /// True when a node has ended by itself; prints its reason.
    fn has_fallen(&self, node: usize) -> bool {
        let fallen = !lives(self.galera.pid(node));
        if fallen {
            self.fallen.fetch_add(1, Ordering::Relaxed);
            let log = std::fs::read(self.galera.file_of(node, "server.log")).expect("a log");
            let log = String::from_utf8_lossy(&log);
            let reason = log.lines().rfind(|line| line.contains("[ERROR]"));
            eprintln!(
                "node {node} has ended by itself: {}",
                reason.unwrap_or_default()
            );
        }
        fallen
    }

    /// Says how often a node was given all data, or the part that it had missed, since the first start; and how
    /// often a node ended by itself, or hung.
    pub fn told(&self) -> String {
        let [whole, rest] = [0, 1].map(|at| said(&self.galera, TRANSFERS[at]) - self.transfers[at]);
        let [fallen, hung] = [&self.fallen, &self.hung].map(|count| count.load(Ordering::Relaxed));
        format!(
            "nodes that came back: {whole} were given all data, {rest} what they had missed; {fallen} had ended by \
             themselves, {hung} hung"
        )
    }

    /// After a failure: ends the threads that wait for the cluster. A thread that held it for longer than this test
    /// lives would leave its processes behind.
    pub fn give_up(self: &Arc<Self>) {
        self.over.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while Arc::strong_count(self) > 1 && began.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
    }
}

/// How often the logs of all nodes contain these words.
fn said(galera: &Galera, what: &str) -> usize {
    let times = (0..NODES).map(|node| {
        let log = std::fs::read(galera.file_of(node, "server.log")).expect("a log");
        String::from_utf8_lossy(&log).matches(what).count()
    });
    times.sum()
}

async fn is_one_of_all(location: &Location) -> Result<bool, Error> {
    static SIZE: Statement = Statement::new(
        "TEST_CLUSTER_SIZE",
        "SELECT VARIABLE_VALUE AS n FROM information_schema.GLOBAL_STATUS
          WHERE VARIABLE_NAME = 'WSREP_CLUSTER_SIZE'",
    );
    let mut conn = location.connect(Purpose::Query).await?;
    let row = conn.fetch_optional(&SIZE, &[]).await?;
    let size: String = row.expect("a row").get("n")?;
    conn.close().await;
    Ok(size == NODES.to_string())
}
