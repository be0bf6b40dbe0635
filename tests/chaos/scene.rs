//! Everything that faults can hit, and the faults so far.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ductwork::store::audit::{self, INVARIANTS, Kind as When, Violation};
use ductwork::store::{Dialect, Location, Purpose};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::aside::Aside;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::fixture::*;
use crate::history::{Fault, Kind, uptime};
use crate::log::{self, LogReader};
use crate::nodes::{HANGS, Nodes, WHOLE};
use crate::plan::{Blow, HOSTS};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::space::Space;

/// A fault that has not struck within this time did not happen.
pub const UNPROVEN: Duration = Duration::from_secs(30);

/// The same on a cluster: while a node hangs, all sessions may stand still, and there is nobody to strike.
const UNPROVEN_ON_NODES: Duration = HANGS.saturating_mul(2);

/// A host: a supervisor with its children, and its path to the database.
pub struct Host {
    pub daemon: Daemon,
    pub log: LogReader,
    pub proxy: Option<Arc<Proxy>>,
    pub disk: Option<Disk>,
    wrapper: Vec<String>,
}

impl Host {
    /// Starts one.
    pub fn start(
        fixture: &DaemonFixture,
        wrapper: Vec<String>,
        proxy: Option<Arc<Proxy>>,
        disk: Option<Disk>,
    ) -> Self {
        let (daemon, log) = started(fixture, &wrapper);
        Self {
            daemon,
            log,
            proxy,
            disk,
            wrapper,
        }
    }

    /// Its processes, its network and the last lines of its log, for the reader of a failure.
    pub fn told(&self) -> String {
        let processes = self.daemon.processes().into_iter().map(|it| {
            let wchan = std::fs::read_to_string(format!("/proc/{}/wchan", it.pid));
            let wchan = wchan.unwrap_or_default();
            format!(
                "\n  {} of {} {} {} in {wchan}",
                it.pid, it.parent, it.state, it.kind
            )
        });
        let processes: String = processes.collect();
        let network = self.proxy.as_ref().and_then(|it| it.network.as_ref());
        let up = network.map(|network| network.is_up());
        let text = std::fs::read_to_string(&self.daemon.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(5);
        let last = lines[from..].join("\n  ");
        format!("network up: {up:?}{processes}\n  {last}")
    }
}

fn started(fixture: &DaemonFixture, wrapper: &[String]) -> (Daemon, LogReader) {
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let (reader, stderr) = log::pipe();
    let daemon = fixture.start_into(&wrapper, &["start"], Some(stderr));
    let log = LogReader::start(reader, daemon.log.clone());
    (daemon, log)
}

/// Everything that faults can hit.
pub struct Scene {
    /// Declared before the fixture: a host that is dropped after a failure reads its log there.
    pub hosts: Vec<Host>,
    pub fixture: DaemonFixture,
    pub url: String,
    pub server: Option<Server>,
    /// The nodes, where the server is a cluster.
    pub nodes: Option<Arc<Nodes>>,
    /// The disk of the server's tables.
    pub space: Option<Space>,
    /// The clock of the second host.
    pub clock: Option<Clock>,
    /// The proxy between the triggering client and the database.
    pub proxy: Option<Arc<Proxy>>,
    pub aside: Aside,
    pub faults: Vec<Fault>,
    /// Late results that were refused, from the logs of daemons that have ended since.
    refused: usize,
    /// How often the log of such a daemon was found full.
    full: usize,
    /// Starts that ended because there was no database.
    pub vain_starts: usize,
    /// Lasting faults that are over without having struck.
    unproven: Arc<Mutex<Vec<String>>>,
}

/// The longest that a fault may take: it waits for others, and on busy cores for its turn.
pub const TAKES: Duration = WHOLE;

/// Within this time, a process that was made to stand still in the way of others has been ended.
const STOOD: Duration = Duration::from_secs(10);

impl Scene {
    /// A scene on which nothing has happened yet.
    pub fn new(fixture: DaemonFixture, url: String, server: Option<Server>) -> Self {
        let location = Location::parse(&url).expect("the database's URL");
        Self {
            fixture,
            hosts: Vec::new(),
            aside: Aside::new(location, TAKES),
            url,
            server,
            nodes: None,
            space: None,
            clock: None,
            proxy: None,
            faults: Vec::new(),
            refused: 0,
            full: 0,
            vain_starts: 0,
            unproven: Arc::default(),
        }
    }

    /// Records a fault, from that time until this long from now.
    pub fn note(
        &mut self,
        blow: &Blow,
        target: String,
        at: Duration,
        lasts: Duration,
        hit: Vec<i32>,
    ) {
        self.faults.push(Fault {
            number: blow.number,
            kind: blow.kind,
            target,
            at,
            until: uptime() + lasts,
            hit,
        });
    }

    /// Ends a fault after a while, but not before it has struck.
    pub fn ends(
        &self,
        blow: &Blow,
        lasts: Duration,
        fired: impl Fn() -> bool + Send + 'static,
        end: Box<dyn FnOnce() + Send>,
    ) {
        let (unproven, blow) = (Arc::clone(&self.unproven), blow.to_string());
        let patience = self.patience();
        std::thread::spawn(move || {
            std::thread::sleep(lasts);
            let since = Instant::now();
            while !fired() && since.elapsed() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !fired() {
                unproven.lock().unwrap().push(blow);
            }
            end();
        });
    }

    /// How long a fault may take to strike, from its end on.
    pub fn patience(&self) -> Duration {
        match self.nodes {
            Some(_) => UNPROVEN_ON_NODES,
            None => UNPROVEN,
        }
    }

    /// Runs a fault beside everything else; it returns false when it has struck nothing.
    pub fn beside<F: Future<Output = bool>>(
        &self,
        blow: &Blow,
        what: impl FnOnce() -> F + Send + 'static,
    ) {
        let (unproven, blow) = (Arc::clone(&self.unproven), blow.to_string());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let what = || runtime.unwrap().block_on(what());
            // A task that panics has printed its reason.
            let fired = catch_unwind(AssertUnwindSafe(what)).unwrap_or(false);
            if !fired {
                unproven.lock().unwrap().push(blow);
            }
        });
    }

    /// All processes of a host.
    pub fn everybody(&self, host: usize) -> Vec<i32> {
        let processes = self.hosts[host].daemon.processes();
        processes.iter().map(|process| process.pid).collect()
    }

    /// The process that a blow is meant for; one of the other host, if this host has none of the
    /// kind.
    pub async fn somebody(&mut self, blow: &Blow) -> Process {
        let what = format!("there is somebody for {blow}");
        eventually(PATIENCE, &what, async || {
            // Both hosts may have been started while no database could be found.
            self.watch().await;
            (0..HOSTS).find_map(|other| {
                let host = &self.hosts[(blow.host + other) % HOSTS];
                let mut found = host.daemon.processes();
                found.retain(|process| process.kind.starts_with(blow.whom));
                found.sort_by(|one, other| (&one.kind, one.pid).cmp(&(&other.kind, other.pid)));
                let at = blow.pick as usize % found.len().max(1);
                (!found.is_empty()).then(|| found.swap_remove(at))
            })
        })
        .await
    }

    /// A start that does not find its database ends with a message and an exit status of its own,
    /// and the service manager starts another. No other supervisor ends by itself.
    pub async fn watch(&mut self) {
        for host in 0..self.hosts.len() {
            if let Some(status) = self.hosts[host].daemon.has_ended() {
                let in_the_way = self.stood_in_the_way(self.hosts[host].daemon.pid(), status);
                let said = self.replace(host).await;
                let asked = in_the_way || unborn(status, &said);
                assert!(asked || found_nothing(status, &said), "{status}: {said}");
                self.vain_starts += 1;
            }
        }
    }

    /// True for a supervisor that was made to stand still, perhaps while it held SQLite's lock: the
    /// others then end it.
    pub fn stood_in_the_way(&self, supervisor: i32, status: ExitStatus) -> bool {
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        let stood_still = |fault: &Fault| {
            let still = matches!(fault.kind, Kind::Freeze | Kind::Sleep);
            still && fault.hit.contains(&supervisor) && uptime() < fault.until + STOOD
        };
        let on_sqlite = self.fixture.conn.dialect() == Dialect::Sqlite;
        on_sqlite && killed && self.faults.iter().any(stood_still)
    }

    /// Replaces a daemon that has ended; returns the old one's log.
    pub async fn replace(&mut self, host: usize) -> String {
        let host = &mut self.hosts[host];
        let (daemon, log) = started(&self.fixture, &host.wrapper);
        let old = std::mem::replace(&mut host.daemon, daemon);
        let mut read = std::mem::replace(&mut host.log, log);
        old.gone(PATIENCE).await;
        self.full += read.ended();
        self.refused += refusals(&old);
        old.text()
    }

    /// Ends all daemons; returns the numbers of refused late results and of full logs.
    pub async fn ended(&mut self) -> (usize, usize) {
        for host in &mut self.hosts {
            host.daemon.stop().await;
            self.full += host.log.ended();
            self.refused += refusals(&host.daemon);
        }
        (self.refused, self.full)
    }

    /// Checks the invariants that hold at every moment.
    pub async fn audit(&mut self) {
        let broken = self.broken().await;
        if broken.is_empty() {
            return;
        }
        // A violation that disappears by itself has another cause than one that stays.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let later = self.broken().await;
        panic!("at {:?}: {broken:?}; 2 s later: {later:?}", uptime());
    }

    /// Opens a new connection of the test's own, after the server or node of the old one went away.
    pub async fn reconnect(&mut self) {
        let location = Location::parse(&self.url).expect("the database's URL");
        self.fixture.conn = eventually(PATIENCE, "the database answers", async || {
            location.connect(Purpose::Query).await.ok()
        })
        .await;
    }

    /// The violations of the invariants that hold at every moment.
    async fn broken(&mut self) -> Vec<Violation> {
        let mut asked = Instant::now();
        let audited = loop {
            match audit::audited(&mut self.fixture.conn, audit::GRACE).await {
                // The server has no room for its sorting.
                Err(error) if error.is_not_now() => asked = Instant::now(),
                Err(error) if self.nodes.is_some() && error.is_unavailable() => {
                    self.reconnect().await;
                    asked = Instant::now();
                }
                audited => break audited.expect("an audit"),
            }
        };
        // Far longer than an audit takes on an idle machine: the output says where the time went.
        if asked.elapsed() > Duration::from_secs(5) {
            let mut took = audited.took;
            took.sort_by_key(|(_, took)| *took);
            let longest: Vec<_> = took.iter().rev().take(3).collect();
            eprintln!(
                "an audit took {:?}: prefilter {:?}, {longest:?}",
                asked.elapsed(),
                audited.prefilter
            );
        }
        let always = |violation: &Violation| {
            let mut invariants = INVARIANTS.iter();
            let of = invariants.find(|invariant| invariant.name == violation.invariant);
            of.is_some_and(|invariant| invariant.kind == When::Always)
        };
        audited.violations.into_iter().filter(always).collect()
    }

    /// The faults that struck nobody.
    pub fn unproven(&self) -> Vec<String> {
        self.unproven.lock().unwrap().clone()
    }

    /// Waits until all lasting faults are over, and have struck or are known to have struck nobody.
    pub async fn quiet(&mut self) {
        let last = self.faults.iter().map(|fault| fault.until).max();
        tokio::time::sleep(last.unwrap_or_default().saturating_sub(uptime())).await;
        // Each thread that ends a fault holds a clone, until the fault has struck or given up.
        eventually(TAKES, "all faults have ended", async || {
            self.watch().await;
            (Arc::strong_count(&self.unproven) == 1).then_some(())
        })
        .await;
        if let Some(nodes) = &self.nodes {
            nodes.tell_ends(&mut self.faults);
            self.reconnect().await;
        }
        self.clear();
        for host in 0..self.hosts.len() {
            eventually(PATIENCE, "everybody works", async || {
                self.watch().await;
                let ready = self.hosts[host].daemon.logged("ready");
                (!ready.is_empty()).then_some(())
            })
            .await;
        }
    }

    fn clear(&self) {
        let proxies = self.hosts.iter().filter_map(|host| host.proxy.as_ref());
        proxies.chain(&self.proxy).for_each(|proxy| proxy.clear());
    }

    /// How often each fault was done.
    pub fn tally(&self) -> BTreeMap<Kind, usize> {
        let mut tally = BTreeMap::new();
        for fault in &self.faults {
            *tally.entry(fault.kind).or_default() += 1;
        }
        tally
    }
}

/// True when a signal came before the first instruction of a program, which cannot prevent that.
pub fn unborn(status: ExitStatus, said: &str) -> bool {
    let signals = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2];
    let by = signals.map(|signal| Some(signal as i32));
    by.contains(&status.signal()) && said.is_empty()
}

/// True when a start has found no database, or lost it before it registered, or was kept from its work
/// there and says that it did nothing. The log may also contain messages of the server.
pub fn found_nothing(status: ExitStatus, said: &str) -> bool {
    let kept = [
        "nothing was written; fix",
        "another session of the database was in the way",
    ];
    let hindered = status.code() == Some(1) && kept.iter().any(|words| said.contains(words));
    (hindered || status.code() == Some(69)) && !said.contains("\"msg\":\"registered\"")
}

/// Lets these processes go on after a while; some may have been killed by then.
pub fn wake_after(lasts: Duration, pids: Vec<i32>) {
    std::thread::spawn(move || {
        std::thread::sleep(lasts);
        for pid in pids {
            let _gone = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    });
}

fn refusals(daemon: &Daemon) -> usize {
    daemon.logged("stale commit refused").len()
}
