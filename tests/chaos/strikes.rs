//! What befalls the daemons: each kind of fault, done for sure and written down.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use ductwork::store::audit::{self, INVARIANTS, Kind as When};
use ductwork::store::{Conn, Location, Purpose};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::Connection;

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::dice::Dice;
use crate::history::{Fault, Kind, uptime};
use crate::house::*;
use crate::proxy::Proxy;

/// Faults that happen again and again, as often as they stand here.
const ANYWHERE: [Kind; 15] = [
    Kind::KillWorker,
    Kind::KillWorker,
    Kind::KillWorker,
    Kind::KillStep,
    Kind::KillStep,
    Kind::KillStep,
    Kind::KillAdvancer,
    Kind::KillAdvancer,
    Kind::KillSupervisor,
    Kind::Freeze,
    Kind::Freeze,
    Kind::Sleep,
    Kind::Restart,
    Kind::Storm,
    Kind::Reload,
];

/// And those of one database alone; crashes of the server have a measure of their own.
const ON_SQLITE: [Kind; 1] = [Kind::Lock];
const ON_POSTGRES: [Kind; 6] = [
    Kind::Clock,
    Kind::Reset,
    Kind::BlackHole,
    Kind::Cut,
    Kind::Cut,
    Kind::Delay,
];

/// The longest that somebody stands still.
const FROZEN_MAX: u64 = 5_000;

/// How long a host sleeps, longer than its leases last, and how much longer at most.
const ASLEEP: Duration = Duration::from_millis(3_500);
const ASLEEP_MORE: u64 = 3_000;

/// The longest that SQLite's lock is held.
const LOCKED_MAX: u64 = 3_000;

/// The longest that nothing gets through.
const HELD_MAX: u64 = 5_000;

/// Until the first crash of the server, and from one to the next: oftener, and nothing else
/// would happen.
const SERVER_FIRST: Duration = Duration::from_secs(8);
const SERVER_EVERY: Duration = Duration::from_secs(20);

/// In so long everything has happened once more, on a machine that is busy.
const ROUND: Duration = Duration::from_secs(40);

/// A host: a supervisor with its children, and its way to the database.
pub struct Host {
    pub daemon: Daemon,
    pub proxy: Option<Proxy>,
    wrapper: Vec<String>,
}

impl Host {
    /// Starts one.
    pub fn start(house: &House, wrapper: Vec<String>, proxy: Option<Proxy>) -> Self {
        Self {
            daemon: started(house, &wrapper),
            proxy,
            wrapper,
        }
    }
}

fn started(house: &House, wrapper: &[String]) -> Daemon {
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    house.start_as(&wrapper, &["start"])
}

/// Everything that faults are done to.
pub struct Scene {
    pub house: House,
    pub hosts: Vec<Host>,
    pub url: String,
    pub cluster: Option<Cluster>,
    /// By which one of the hosts lives.
    pub clock: Option<Clock>,
    /// Between whoever triggers and the database.
    pub proxy: Option<Proxy>,
    pub faults: Vec<Fault>,
    /// Late results that were refused, as daemons have said that have ended since.
    pub refused: usize,
    dice: Dice,
    deck: Vec<Kind>,
    rounds: usize,
    next_server: Duration,
}

impl Scene {
    /// A scene on which nothing has happened yet.
    pub fn new(house: House, url: String, cluster: Option<Cluster>, dice: Dice) -> Self {
        Self {
            house,
            hosts: Vec::new(),
            url,
            cluster,
            clock: None,
            proxy: None,
            faults: Vec::new(),
            refused: 0,
            dice,
            deck: Vec::new(),
            rounds: 0,
            next_server: uptime() + SERVER_FIRST,
        }
    }

    /// Does the next fault, and waits for a moment.
    pub async fn strike(&mut self) {
        if self.cluster.is_some() && uptime() >= self.next_server {
            self.server().await;
        }
        if self.deck.is_empty() {
            self.rounds += 1;
            self.deck.extend(ANYWHERE);
            match self.cluster {
                Some(_) => self.deck.extend(ON_POSTGRES),
                None => self.deck.extend(ON_SQLITE),
            }
        }
        let at = self.dice.below(self.deck.len() as u64) as usize;
        let kind = self.deck.swap_remove(at);
        for host in &self.hosts {
            assert!(lives(host.daemon.pid()), "a supervisor has ended by itself");
        }
        match kind {
            Kind::KillWorker | Kind::KillAdvancer | Kind::KillStep => self.kill(kind).await,
            Kind::KillSupervisor => self.kill_supervisor().await,
            Kind::Freeze => self.freeze().await,
            Kind::Sleep => self.sleep().await,
            Kind::Restart | Kind::Storm => self.stop(kind).await,
            Kind::Reload => self.reload(),
            Kind::Lock => self.lock(),
            Kind::Reset | Kind::BlackHole | Kind::Cut | Kind::Delay => self.network(kind),
            Kind::Clock => self.set_clock(),
            // It has its own time.
            Kind::Server => {}
        }
        tokio::time::sleep(self.span(400)).await;
    }

    fn span(&mut self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.dice.below(milliseconds))
    }

    /// One of the hosts.
    fn host(&mut self) -> usize {
        self.dice.below(self.hosts.len() as u64) as usize
    }

    /// Writes down what has been done, since then and for so long.
    pub fn note(
        &mut self,
        kind: Kind,
        target: String,
        at: Duration,
        lasts: Duration,
        hit: Vec<i32>,
    ) {
        self.faults.push(Fault {
            kind,
            target,
            at,
            until: uptime() + lasts,
            hit,
        });
    }

    fn everybody(&self, host: usize) -> Vec<i32> {
        let processes = self.hosts[host].daemon.processes();
        processes.iter().map(|process| process.pid).collect()
    }

    /// Somebody of this kind, and what they are.
    async fn somebody(&mut self, kind: &str) -> Process {
        eventually(PATIENCE, "there is somebody of this kind", async || {
            let host = self.host();
            let mut found = self.hosts[host].daemon.processes();
            found.retain(|process| process.kind.starts_with(kind));
            let at = self.dice.below(found.len().max(1) as u64) as usize;
            (!found.is_empty()).then(|| found.swap_remove(at))
        })
        .await
    }

    async fn kill(&mut self, kind: Kind) {
        let whom = match kind {
            Kind::KillWorker => "worker",
            Kind::KillAdvancer => "advancer",
            _ => "sh step.sh",
        };
        loop {
            let at = uptime();
            let victim = self.somebody(whom).await;
            // One that has just ended by itself is no victim.
            if kill(Pid::from_raw(victim.pid), Signal::SIGKILL).is_ok() {
                let target = format!("{} {}", victim.kind, victim.pid);
                return self.note(kind, target, at, Duration::ZERO, vec![victim.pid]);
            }
        }
    }

    async fn kill_supervisor(&mut self) {
        let host = self.host();
        let (at, hit) = (uptime(), self.everybody(host));
        self.hosts[host].daemon.send(Signal::SIGKILL);
        self.hosts[host].daemon.ended(PATIENCE).await;
        let target = format!("host {host}");
        self.note(Kind::KillSupervisor, target, at, Duration::ZERO, hit);
        // Now and then its successor meets the children that it left.
        if self.dice.below(2) == 0 {
            self.hosts[host].daemon.gone(PATIENCE).await;
        }
        self.replace(host).await;
    }

    /// A new daemon, where one has ended.
    async fn replace(&mut self, host: usize) {
        let next = started(&self.house, &self.hosts[host].wrapper);
        let old = std::mem::replace(&mut self.hosts[host].daemon, next);
        old.gone(PATIENCE).await;
        self.refused += refusals(&old);
    }

    async fn freeze(&mut self) {
        let whom = ["worker", "worker", "advancer", "supervisor"];
        let whom = whom[self.dice.below(4) as usize];
        let lasts = match self.dice.below(2) {
            0 => 100 + self.dice.below(900),
            _ => self.dice.below(FROZEN_MAX),
        };
        let lasts = Duration::from_millis(lasts);
        let at = uptime();
        let victim = self.somebody(whom).await;
        if kill(Pid::from_raw(victim.pid), Signal::SIGSTOP).is_err() {
            self.deck.push(Kind::Freeze);
            return;
        }
        wake_after(lasts, vec![victim.pid]);
        let target = format!("{} {} for {lasts:?}", victim.kind, victim.pid);
        self.note(Kind::Freeze, target, at, lasts, vec![victim.pid]);
    }

    /// All of a host but its steps, which end meanwhile: what it then knows is old.
    async fn sleep(&mut self) {
        let host = self.host();
        let lasts = ASLEEP + self.span(ASLEEP_MORE);
        // Who sleeps starts nobody, so the supervisor is the first.
        let at = uptime();
        let supervisor = self.hosts[host].daemon.pid();
        freeze(supervisor).await;
        let mut hit = vec![supervisor];
        for process in self.hosts[host].daemon.processes() {
            let child = process.parent == supervisor;
            // It may have ended just now.
            if child && kill(Pid::from_raw(process.pid), Signal::SIGSTOP).is_ok() {
                hit.push(process.pid);
            }
        }
        wake_after(lasts, hit.clone());
        self.note(
            Kind::Sleep,
            format!("host {host} for {lasts:?}"),
            at,
            lasts,
            hit,
        );
    }

    async fn stop(&mut self, kind: Kind) {
        let host = self.host();
        let (at, hit) = (uptime(), self.everybody(host));
        let times = match kind {
            Kind::Restart => 1,
            _ => 2 + self.dice.below(3),
        };
        for _ in 0..times {
            // The last ones may find nobody.
            let _gone = kill(
                Pid::from_raw(self.hosts[host].daemon.pid()),
                Signal::SIGTERM,
            );
            tokio::time::sleep(self.span(100)).await;
        }
        let daemon = &mut self.hosts[host].daemon;
        let (status, _) = daemon.ended(PATIENCE).await;
        // No program can help what comes before its first instruction.
        let unborn = status.signal() == Some(Signal::SIGTERM as i32) && daemon.text().is_empty();
        assert!(unborn || status.code() == Some(0), "{status}");
        daemon.gone(Duration::ZERO).await;
        self.note(kind, format!("host {host}"), at, Duration::ZERO, hit);
        self.replace(host).await;
    }

    fn reload(&mut self) {
        let host = self.host();
        let (at, hit) = (uptime(), self.everybody(host));
        self.hosts[host].daemon.send(Signal::SIGHUP);
        // Those who are replaced have so long to end.
        self.note(
            Kind::Reload,
            format!("host {host}"),
            at,
            Duration::from_secs(5),
            hit,
        );
    }

    async fn server(&mut self) {
        self.next_server = uptime() + SERVER_EVERY;
        let (at, away) = (uptime(), self.span(1_500));
        let cluster = self.cluster.as_ref().expect("a server of our own");
        cluster.down();
        tokio::time::sleep(away).await;
        cluster.up();
        let location = Location::parse(&self.url).unwrap();
        self.house.conn = location.connect(Purpose::Engine).await.unwrap();
        self.note(Kind::Server, String::new(), at, Duration::ZERO, Vec::new());
    }

    fn lock(&mut self) {
        let lasts = self.span(LOCKED_MAX);
        let url = self.url.clone();
        let (locked, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let mut conn = sqlx::SqliteConnection::connect(&url).await.unwrap();
                let begin = "PRAGMA busy_timeout = 60000; BEGIN IMMEDIATE";
                sqlx::raw_sql(begin).execute(&mut conn).await.unwrap();
                locked.send(()).unwrap();
                tokio::time::sleep(lasts).await;
                sqlx::raw_sql("COMMIT").execute(&mut conn).await.unwrap();
            });
        });
        let at = uptime();
        told.recv().expect("the lock is taken");
        self.note(Kind::Lock, format!("for {lasts:?}"), at, lasts, Vec::new());
    }

    /// To a host, or to whoever triggers.
    fn network(&mut self, kind: Kind) {
        let whom = self.dice.below(self.hosts.len() as u64 + 1) as usize;
        let (at, hit) = match whom < self.hosts.len() {
            true => (uptime(), self.everybody(whom)),
            false => (uptime(), Vec::new()),
        };
        let lasts = self.span(HELD_MAX);
        let bytes = self.dice.below(20_000) as usize;
        let slower = Duration::from_millis(1 + self.dice.below(30));
        let proxy = match self.hosts.get(whom) {
            Some(host) => host.proxy.as_ref(),
            None => self.proxy.as_ref(),
        };
        let proxy = proxy.expect("everybody has one");
        let mut later: Option<Box<dyn FnOnce() + Send>> = None;
        let mut lost = Vec::new();
        match kind {
            Kind::Reset => proxy.reset(),
            Kind::Cut => proxy.cut_after(bytes),
            Kind::Delay => later = Some(proxy.delayed(slower)),
            _ => {
                later = Some(proxy.held());
                // Another host may find that its leases are over.
                lost = hit;
            }
        }
        let target = format!("{whom}: for {lasts:?}, after {bytes} bytes, by {slower:?}");
        match later {
            Some(end) => {
                std::thread::spawn(move || {
                    std::thread::sleep(lasts);
                    end();
                });
                self.note(kind, target, at, lasts, lost);
            }
            None => self.note(kind, target, at, Duration::ZERO, lost),
        }
    }

    fn set_clock(&mut self) {
        let seconds = [-3_600, 3_600, 0, 60][self.dice.below(4) as usize];
        let clock = self.clock.as_ref().expect("a host that lives by one");
        clock.set(seconds);
        let target = format!("off by {seconds} s");
        self.note(Kind::Clock, target, uptime(), Duration::ZERO, Vec::new());
    }

    /// What must hold at every moment does.
    pub async fn audit(&mut self) {
        audited(&mut self.house.conn).await;
    }

    /// Late results that were refused, as all daemons have said.
    pub fn refusals(&self) -> usize {
        let living: usize = self.hosts.iter().map(|host| refusals(&host.daemon)).sum();
        self.refused + living
    }

    /// True when every fault has had its turn, however slow the machine is.
    pub fn has_seen_all(&self) -> bool {
        self.rounds > 1 || (self.rounds == 1 && self.deck.is_empty())
    }

    /// How often each fault is done at least in so long a time.
    pub fn expected(&self, length: Duration) -> BTreeMap<Kind, usize> {
        let rounds = (length.as_secs() / ROUND.as_secs()).max(1) as usize;
        let own: &[Kind] = match self.cluster {
            Some(_) => &ON_POSTGRES,
            None => &ON_SQLITE,
        };
        let mut expected = BTreeMap::new();
        for kind in ANYWHERE.iter().chain(own) {
            *expected.entry(*kind).or_default() += rounds;
        }
        if self.cluster.is_some() && length > SERVER_FIRST {
            expected.insert(Kind::Server, rounds);
        }
        expected
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

async fn audited(conn: &mut Conn) {
    let mut broken = audit::audit(conn, audit::GRACE).await.expect("an audit");
    broken.retain(|violation| {
        let mut invariants = INVARIANTS.iter();
        let of = invariants.find(|invariant| invariant.name == violation.invariant);
        of.is_some_and(|invariant| invariant.kind == When::Always)
    });
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Lets them go on; some may have been killed by then.
fn wake_after(lasts: Duration, pids: Vec<i32>) {
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
