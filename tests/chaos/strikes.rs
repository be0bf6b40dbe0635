//! Strikes at the daemons: each kind of fault is certain to happen, and is recorded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ductwork::store::statement::Statement;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::Clock;
use crate::fixture::*;
use crate::history::{Kind, uptime};
use crate::plan::Blow;
use crate::scene::{Scene, found_nothing, unborn, wake_after};

impl Scene {
    /// Injects the planned fault.
    pub async fn strike(&mut self, blow: &Blow) {
        self.watch().await;
        match blow.kind {
            Kind::KillWorker | Kind::KillAdvancer | Kind::KillStep => self.kill(blow).await,
            Kind::KillSupervisor => self.kill_supervisor(blow).await,
            Kind::Freeze => self.freeze(blow).await,
            Kind::Sleep => self.sleep(blow).await,
            Kind::Restart | Kind::Storm => self.stop(blow).await,
            Kind::Replace => self.replace_children(blow),
            Kind::Log => self.log(blow),
            Kind::Descriptors => self.descriptors(blow).await,
            Kind::KillNode
            | Kind::KillNodes
            | Kind::StopNode
            | Kind::IsolateNode
            | Kind::NoQuorum
            | Kind::LockNode => self.nodes(blow).await,
            Kind::Server => self.server(blow).await,
            Kind::Lock => self.lock(blow),
            Kind::NoSpace | Kind::WriteError | Kind::ShortWrite | Kind::SyncError => {
                self.disk(blow);
            }
            Kind::Partition => self.part(blow),
            Kind::Reset
            | Kind::BlackHole
            | Kind::OneWay
            | Kind::Silent
            | Kind::Cut
            | Kind::Delay => {
                self.network(blow).await;
            }
            Kind::Clock => self.set_clock(blow).await,
            Kind::TableLock => self.lock_table(blow).await,
            Kind::StatementTimeout => self.end_statements(blow),
            Kind::FullTablespace => self.fill_space(blow),
            Kind::WideCancel => self.cancel_wide(blow),
            Kind::Prune => self.prune(blow),
            Kind::Newer => self.newer(blow),
        }
    }

    async fn kill(&mut self, blow: &Blow) {
        loop {
            let victim = self.somebody(blow).await;
            let at = uptime();
            // A process that has just ended by itself is no victim.
            if kill(Pid::from_raw(victim.pid), Signal::SIGKILL).is_ok() {
                let target = format!("{} {}", victim.kind, victim.pid);
                return self.note(blow, target, at, Duration::ZERO, vec![victim.pid]);
            }
        }
    }

    async fn kill_supervisor(&mut self, blow: &Blow) {
        let host = blow.host;
        let (at, hit) = (uptime(), self.everybody(host));
        self.hosts[host].daemon.send(Signal::SIGKILL);
        self.hosts[host].daemon.ended(PATIENCE).await;
        self.note(blow, format!("host {host}"), at, Duration::ZERO, hit);
        // Now and then its successor meets the children that it left.
        if blow.amount.is_multiple_of(2) {
            self.hosts[host].daemon.gone(PATIENCE).await;
        }
        self.replace(host).await;
    }

    async fn freeze(&mut self, blow: &Blow) {
        loop {
            let victim = self.somebody(blow).await;
            let at = uptime();
            if kill(Pid::from_raw(victim.pid), Signal::SIGSTOP).is_ok() {
                wake_after(blow.lasts, vec![victim.pid]);
                let target = format!("{} {} for {:?}", victim.kind, victim.pid, blow.lasts);
                return self.note(blow, target, at, blow.lasts, vec![victim.pid]);
            }
        }
    }

    /// Stops all processes of a host except its steps, which end meanwhile: the host's knowledge is
    /// then old.
    async fn sleep(&mut self, blow: &Blow) {
        // A sleeping supervisor starts no process, so it is the first. It may have ended just now, and the end of an
        // earlier fault may let it go on at once.
        let at = uptime();
        let supervisor = eventually(PATIENCE, "a supervisor stands still", async || {
            self.watch().await;
            let pid = self.hosts[blow.host].daemon.pid();
            let _gone = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            let process = Process::of(pid);
            process.is_some_and(|it| it.state == 'T').then_some(pid)
        })
        .await;
        let mut hit = vec![supervisor];
        for process in self.hosts[blow.host].daemon.processes() {
            let child = process.parent == supervisor;
            // The child may have ended just now.
            if child && kill(Pid::from_raw(process.pid), Signal::SIGSTOP).is_ok() {
                hit.push(process.pid);
            }
        }
        wake_after(blow.lasts, hit.clone());
        let target = format!("host {} for {:?}", blow.host, blow.lasts);
        self.note(blow, target, at, blow.lasts, hit);
    }

    async fn stop(&mut self, blow: &Blow) {
        let host = blow.host;
        let (at, hit) = (uptime(), self.everybody(host));
        let times = match blow.kind {
            Kind::Restart => 1,
            _ => 2 + blow.amount % 3,
        };
        let daemon = &mut self.hosts[host].daemon;
        for _ in 0..times {
            // The last signals may find no process.
            let _gone = kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM);
            tokio::time::sleep(Duration::from_millis(blow.amount % 100)).await;
        }
        let (status, _) = daemon.ended(PATIENCE).await;
        let pid = daemon.pid();
        let in_the_way = self.stood_in_the_way(pid, status);
        let within = if in_the_way { PATIENCE } else { Duration::ZERO };
        self.hosts[host].daemon.gone(within).await;
        self.note(blow, format!("host {host}"), at, Duration::ZERO, hit);
        let said = self.replace(host).await;
        let ended = in_the_way || unborn(status, &said) || found_nothing(status, &said);
        assert!(ended || status.code() == Some(0), "{status}: {said}");
    }

    fn replace_children(&mut self, blow: &Blow) {
        let (at, hit) = (uptime(), self.everybody(blow.host));
        let supervisor = self.hosts[blow.host].daemon.pid();
        self.hosts[blow.host].daemon.send(Signal::SIGUSR2);
        let still = self.faults.iter().filter(|fault| {
            let stops = matches!(fault.kind, Kind::Freeze | Kind::Sleep);
            stops && fault.hit.contains(&supervisor)
        });
        let until = still.map(|fault| fault.until).max().unwrap_or_default();
        // The replaced processes have this long to end, once their supervisor no longer stands still.
        let lasts = Duration::from_secs(5) + until.saturating_sub(uptime());
        self.note(blow, format!("host {}", blow.host), at, lasts, hit);
    }

    /// Whether it was full shows when it is read again.
    fn log(&mut self, blow: &Blow) {
        let at = uptime();
        let end = self.hosts[blow.host].log.stops();
        self.ends(blow, blow.lasts, || true, end);
        let target = format!("host {} for {:?}", blow.host, blow.lasts);
        self.note(blow, target, at, blow.lasts, Vec::new());
    }

    /// Keeps a worker from opening more descriptors, until a step could not be started.
    async fn descriptors(&mut self, blow: &Blow) {
        for other in 0.. {
            let victim = Blow {
                pick: blow.pick + other,
                ..blow.clone()
            };
            let victim = self.somebody(&victim).await;
            let before = self.not_started().await;
            let (at, began) = (uptime(), Instant::now());
            let Some((most, open)) = descriptors_of(victim.pid) else {
                continue;
            };
            // A process that is started meanwhile all the same is a shell, and must make do with
            // the descriptors that are left.
            let free = (0..).find(|number| !open.contains(number));
            let fewer = free.unwrap_or_default().max(16);
            if !limit(victim.pid, fewer) {
                continue;
            }
            let fired = loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if self.not_started().await > before {
                    break true;
                }
                // The worker has nothing to do: the next victim will.
                if began.elapsed() > Duration::from_secs(1) || !lives(victim.pid) {
                    break false;
                }
            };
            if fired {
                tokio::time::sleep(blow.lasts.saturating_sub(began.elapsed())).await;
            }
            limit(victim.pid, most);
            if fired {
                let target = format!("{} {}: {fewer} instead of {most}", victim.kind, victim.pid);
                return self.note(blow, target, at, Duration::ZERO, Vec::new());
            }
        }
    }

    /// How many attempts could not be started so far. Their ids do not tell which are new: the hosts that made them
    /// have clocks of their own.
    async fn not_started(&mut self) -> i64 {
        static NOT_STARTED: Statement = Statement::new(
            "TEST_NOT_STARTED",
            "SELECT {big:count(*)} AS n FROM ductwork_executions WHERE error_class = 'not_started'",
        );
        loop {
            let counted = self.fixture.conn.fetch_optional(&NOT_STARTED, &[]).await;
            if self.nodes.is_none() || counted.is_ok() {
                let row = counted.expect("attempts").expect("a row");
                return row.get("n").expect("a number");
            }
            self.reconnect().await;
        }
    }

    async fn server(&mut self, blow: &Blow) {
        // A server that has crashed does not come back where it has no room.
        let space = self.space.as_ref();
        eventually(PATIENCE, "the server has room", async || {
            space.is_none_or(|space| !space.is_full()).then_some(())
        })
        .await;
        let at = uptime();
        let server = self.server.as_ref().expect("a server of our own");
        server.down();
        tokio::time::sleep(blow.lasts).await;
        server.up();
        self.reconnect().await;
        self.note(blow, String::new(), at, Duration::ZERO, Vec::new());
    }

    fn lock(&mut self, blow: &Blow) {
        let path = self.url.trim_start_matches("sqlite://").to_owned();
        let lasts = blow.lasts;
        let (locked, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let conn = rusqlite::Connection::open(path).unwrap();
            let begin = "PRAGMA busy_timeout = 60000; BEGIN IMMEDIATE";
            conn.execute_batch(begin).unwrap();
            locked.send(()).unwrap();
            std::thread::sleep(lasts);
            conn.execute_batch("COMMIT").unwrap();
        });
        let at = uptime();
        told.recv().expect("the lock is taken");
        self.note(blow, format!("for {lasts:?}"), at, lasts, Vec::new());
    }

    /// Fails the disk of one host, which may be given up meanwhile, or of all hosts, none of which
    /// may.
    fn disk(&mut self, blow: &Blow) {
        let at = uptime();
        let (whom, hit) = match self.hosts.get(blow.host) {
            Some(_) => (blow.host..blow.host + 1, self.everybody(blow.host)),
            None => (0..self.hosts.len(), Vec::new()),
        };
        for host in &self.hosts[whom.clone()] {
            let disk = host.disk.as_ref().expect("a host with a disk of its own");
            let before = disk.fired();
            let end = disk.fails(blow.kind);
            let fired = disk.counter();
            self.ends(blow, blow.lasts, move || fired() > before, end);
        }
        let target = format!("hosts {whom:?} for {:?}", blow.lasts);
        self.note(blow, target, at, blow.lasts, hit);
    }

    /// Disturbs the network of a host, or of the triggering client.
    async fn network(&mut self, blow: &Blow) {
        let (at, hit) = match self.hosts.get(blow.host) {
            Some(_) => (uptime(), self.everybody(blow.host)),
            None => (uptime(), Vec::new()),
        };
        let proxy = match self.hosts.get(blow.host) {
            Some(host) => &host.proxy,
            None => &self.proxy,
        };
        let proxy = Arc::clone(proxy.as_ref().expect("everybody has one"));
        let counter = proxy.fired();
        let before = counter.load(Ordering::Relaxed);
        let fired = move || counter.load(Ordering::Relaxed) > before;
        let target = format!("{}: {}, {:?}", blow.host, blow.amount, blow.lasts);
        let mut lost = Vec::new();
        let mut lasts = blow.lasts;
        let end: Box<dyn FnOnce() + Send> = match blow.kind {
            Kind::Reset => {
                // There may be no connection, because the database was gone when the processes
                // started.
                eventually(PATIENCE, "a connection to reset", async || {
                    self.watch().await;
                    proxy.reset();
                    tokio::task::yield_now().await;
                    fired().then_some(())
                })
                .await;
                return self.note(blow, target, at, Duration::ZERO, lost);
            }
            Kind::Cut => {
                proxy.cut_after(blow.amount as usize % 20_000);
                lasts = Duration::ZERO;
                Box::new(|| {})
            }
            Kind::Silent => {
                lost = hit;
                // There may be no connection: the network is down, or the connections were just
                // reset.
                eventually(PATIENCE, "a connection to silence", async || {
                    self.watch().await;
                    proxy.silence();
                    tokio::task::yield_now().await;
                    fired().then_some(())
                })
                .await;
                Box::new(|| {})
            }
            Kind::Delay => proxy.delayed(Duration::from_millis(1 + blow.amount % 30)),
            _ => {
                // Another host may find that this host's leases are over.
                lost = hit;
                let to = blow.amount.is_multiple_of(2);
                let both = blow.kind == Kind::BlackHole;
                proxy.held([both || to, both || !to])
            }
        };
        self.ends(blow, lasts, fired, end);
        self.note(blow, target, at, lasts, lost);
    }

    fn part(&mut self, blow: &Blow) {
        let (at, hit) = (uptime(), self.everybody(blow.host));
        let proxy = self.hosts[blow.host].proxy.as_ref();
        let network = proxy.and_then(|proxy| proxy.network.as_ref());
        let network = network.expect("a network of its own");
        let sent_again = network.sent_again();
        let before = sent_again();
        let end = network.parted();
        self.ends(blow, blow.lasts, move || sent_again() > before, end);
        let target = format!("host {} for {:?}", blow.host, blow.lasts);
        self.note(blow, target, at, blow.lasts, hit);
    }

    fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("a host that lives by one")
    }

    async fn set_clock(&mut self, blow: &Blow) {
        let seconds = [-3_600, 3_600, 0, 60][blow.amount as usize % 4];
        // Its daemon may have been started a moment ago, or have found no database and ended.
        eventually(PATIENCE, "the host lives by its clock", async || {
            self.watch().await;
            let pid = self.hosts.last().expect("that host").daemon.pid();
            self.clock().governs(pid).then_some(())
        })
        .await;
        self.clock().set(seconds);
        let target = format!("off by {seconds} s");
        self.note(blow, target, uptime(), Duration::ZERO, Vec::new());
    }
}

/// The limit of a process's descriptors, and the open ones; none if it is gone.
fn descriptors_of(pid: i32) -> Option<(usize, Vec<usize>)> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))?;
    let most = line.split_whitespace().nth(3)?.parse().ok()?;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let open = open.flatten();
    let open = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some((most, open.collect()))
}

/// Sets the limit of its descriptors; false if it is gone.
fn limit(pid: i32, most: usize) -> bool {
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={most}:")])
        .stderr(std::process::Stdio::null())
        .status();
    limited.expect("prlimit").success()
}
