//! The supervisor's loop: events in, the roster's orders out.
//!
//! Owns: the children, their proofs of death, the daemon's start and stop as the service manager sees them.
//! Rules: a database failure never kills a child; an exit seen by `wait` is acted on at once; nothing in the
//! loop waits for the database (its one connection belongs to the lifeline, another task), nor for anything
//! else without a bound. It runs no user code and opens no listening socket; the console does that.

mod children;
mod reloading;
mod stopping;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::Config;
use crate::engine::lifeline::{Lifeline, PRUNE_EVERY, Request};
use crate::engine::reaper::{Finding, ProvenDeath, Sweeper};
use crate::engine::shared::{Mode, Shared};
use crate::engine::trouble::Trouble;
use crate::engine::{Policy, Waker};
use crate::model::{ProcessId, Role};
use crate::store::Location;
use crate::store::definition::Definitions;
use crate::store::process::ProcessRow;
use crate::task;
use crate::telemetry::{Note, events};

use super::dump::Dumper;
use super::exit_conditions::Over;
use super::hooks::{Functions, Hook, Moment};
use super::identity::Identity;
use super::live::Stamp;
use super::orphan::{self, Living};
use super::proof::{self, DOUBT_MAX, Proofs};
use super::roster::{self, ChildKind, Pid, Roster, SlotId, Standing};
use super::signal::{Event as SignalEvent, Signals};
use super::spawn::{self, Spawned};
use super::systemd::Notify;
use super::wakeup::Wakeup;
use super::writer;

/// How a child of this kind is started: its arguments.
pub type ChildArgv = Box<dyn Fn(&Config, &ChildKind, ProcessId) -> Vec<OsString>>;

pub use reloading::Reload;
use reloading::Reloading;

/// The pipelines of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Those that get a worker.
    pub names: Vec<String>,
    /// The digests of the definitions on this host: a different digest is a different definition.
    pub digests: Vec<String>,
}

/// The set-up of a supervisor.
pub struct Setup {
    /// The configuration.
    pub config: Arc<Config>,
    /// The database that it names.
    pub location: Location,
    /// The pipelines.
    pub pipelines: Served,
    /// How a child of this kind is started: its arguments.
    pub argv: ChildArgv,
    /// It is a job of a terminal: TSTP suspends it with all that it has started, and it has no console.
    pub suspends: bool,
    /// The exit status after a signal, unless `until` was over before.
    pub after_signal: u8,
    /// Changes to the children's environment.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// Reads the configuration and the pipelines again.
    pub reload: Reload,
    /// The program's own hooks.
    pub hooks: Functions,
}

/// A handle for tasks outside of the loop.
#[derive(Clone)]
pub struct Handle {
    /// True when every child has registered.
    pub ready: watch::Receiver<bool>,
    /// Requests to the lifeline.
    pub requests: mpsc::UnboundedSender<Request>,
    /// Wakes the children.
    pub waker: Arc<dyn Waker>,
    /// True once it has been told to stop.
    pub stopping: watch::Receiver<bool>,
}

struct Child {
    slot: SlotId,
    spawned: Spawned,
    tag: String,
}

/// A person who presses Ctrl-C less than this after a drain has begun does not know of it yet.
const NOTICED: Duration = Duration::from_millis(500);

struct Supervisor {
    setup: Setup,
    /// The policy by which the lifeline judges.
    policy: Policy,
    roster: Roster,
    children: HashMap<Pid, Child>,
    me: Arc<Shared>,
    identity: Identity,
    requests: mpsc::UnboundedSender<Request>,
    /// The database takes no writes: nobody can beat, so nobody is judged.
    stalled: bool,
    /// Processes were left of which nobody could tell whether they are orphans, or which did not die.
    orphans_are_left: bool,
    /// SQLite's file, and the looks at the holder of its lock, taken while nobody can write.
    file: Option<PathBuf>,
    writer: writer::Looks,
    pids: Arc<Mutex<Pids>>,
    ready: watch::Sender<bool>,
    told_to_stop: watch::Sender<bool>,
    notify: Notify,
    stamp: Option<Stamp>,
    began: Instant,
    reloading: Reloading,
    /// The last reload failed, and why.
    not_reloaded: Option<String>,
    stopping: Option<Stopping>,
    exit: Option<u8>,
}

/// A stop that was asked for.
struct Stopping {
    since: Instant,
    /// None if nobody sent one.
    signal: Option<Signal>,
    /// The log already reports it.
    told: bool,
    /// It waits for nothing.
    at_once: bool,
}

/// A stop that takes no longer than this is one line of the log, written when it is over.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Supervises until a signal asks for a stop or `until` is over; in the latter case its code is the
/// exit status. `until` is given a handle and runs beside the loop.
pub async fn supervise<F: Future<Output = Over>>(
    setup: Setup,
    mut signals: Signals,
    until: impl FnOnce(Handle) -> F,
) -> ExitCode {
    let config = Arc::clone(&setup.config);
    let after_signal = setup.after_signal;
    // A failing start hook stops the start; a signal stops the hook.
    let functions = setup.hooks.clone();
    let start_hook = Hook::of(Moment::SupervisorStart, &config, &functions);
    tokio::select! {
        biased;
        () = signals.stop_asked() => {
            tracing::info!("stopped while the start hook ran: nothing was started");
            return after_signal.into();
        }
        ran = start_hook.run() => {
            if let Err(error) = ran {
                tracing::error!(%error, "a start hook failed; not starting");
                return ExitCode::FAILURE;
            }
        }
    }
    // Only now: a process that the hook has left in the background would come to us, and look like one that a dead
    // worker's step has left. Proven by `what_a_start_hook_leaves_running_goes_on_whatever_child_dies`.
    if let Err(error) = spawn::become_subreaper() {
        tracing::warn!(%error, "cannot adopt what killed workers leave behind");
    }
    let (mut supervisor, lifeline, rows) = Supervisor::new(setup);
    let connected = lifeline.connected.subscribe();
    let reachable = connected.clone();
    let handle = Handle {
        ready: supervisor.ready.subscribe(),
        requests: supervisor.requests.clone(),
        waker: Arc::clone(&lifeline.waker),
        stopping: supervisor.told_to_stop.subscribe(),
    };
    let (end, ended) = oneshot::channel();
    let lifeline = task::local(async move {
        let mut lifeline = lifeline;
        let conn = lifeline.begin().await;
        lifeline.run(conn, ended).await;
    });
    let code = supervisor
        .run(&mut signals, connected, rows, until(handle))
        .await;
    supervisor.end_orphans(0).await;
    // Without a database there is nothing to wait for: the next start finds the proof.
    if *reachable.borrow() {
        supervisor.last_sweep().await;
    }
    supervisor.count_the_stop(code.unwrap_or(0));
    // It is registered, and shown as stopping, until the hook has run.
    supervisor.run_stop_hook(&mut signals, &functions).await;
    let _ = end.send(());
    // Without a database the deregistration fails, and the reaper removes the row.
    let _ = tokio::time::timeout(Duration::from_secs(2), lifeline).await;
    let stopping = supervisor.stopping.as_ref();
    let signal = stopping.and_then(|it| it.signal).map(|it| it.as_str());
    events::stopped(signal, stopping.map(|it| it.since));
    ExitCode::from(code.unwrap_or(after_signal))
}

type Rows = watch::Receiver<Arc<[ProcessRow]>>;

impl Supervisor {
    fn new(setup: Setup) -> (Self, Lifeline, Rows) {
        let config = Arc::clone(&setup.config);
        let identity = Identity::current();
        let id = ProcessId::new();
        let me = Shared::new(id);
        let policy = Policy::new(Arc::clone(&config));
        let location = setup.location.clone();
        let file = location.file().map(PathBuf::from);
        let (requests, answers) = mpsc::unbounded_channel();
        let wakeup = Wakeup::new(&location, requests.clone());
        let living = Living::before_the_first().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot see the children from before the start");
            Living::default()
        });
        let pids = Pids {
            living,
            ..Pids::default()
        };
        let pids = Arc::new(Mutex::new(pids));
        // A child that registers is ready at once, not at the next look.
        let asked = requests.clone();
        wakeup.listen(Role::Supervisor, None, id, move || {
            let (done, _) = oneshot::channel();
            let _ = asked.send(Request::Sweep(done));
        });
        let (show, rows) = watch::channel(Arc::from([]));
        let sweeper = Sweeper::new(
            policy.clone(),
            Arc::new(Definitions::default()),
            proof_of(identity.clone(), Arc::clone(&me), Arc::clone(&pids)),
        )
        .showing(show)
        .reporting(Arc::clone(&me));
        let lifeline = Lifeline {
            location,
            row: identity.row(id, None, Role::Supervisor, None),
            shared: Arc::clone(&me),
            policy: policy.clone(),
            requests: answers,
            sweeper: Some((sweeper, config.supervisor.polling_timeout)),
            connected: watch::Sender::new(false),
            origin: wakeup.origin(),
            waker: wakeup.waker(),
            is_first: true,
        };
        let limits = roster::Limits {
            reaper_timeout: config.supervisor.reaper_timeout,
            shutdown_timeout: config.supervisor.shutdown_timeout,
        };
        let roster = Roster::new(wanted(&setup), limits);
        let supervisor = Self {
            policy,
            setup,
            roster,
            children: HashMap::new(),
            me,
            identity,
            requests,
            stalled: false,
            orphans_are_left: false,
            file,
            writer: writer::Looks::default(),
            pids,
            ready: watch::Sender::new(false),
            told_to_stop: watch::Sender::new(false),
            notify: Notify::from_environment(),
            stamp: wakeup.stamp(),
            began: Instant::now(),
            reloading: Reloading::default(),
            not_reloaded: None,
            stopping: None,
            exit: None,
        };
        (supervisor, lifeline, rows)
    }

    /// The current time, as the roster counts it.
    fn at(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns when the children have ended: with the exit status, unless a signal has ended them.
    async fn run(
        &mut self,
        signals: &mut Signals,
        mut connected: watch::Receiver<bool>,
        mut rows: Rows,
        until: impl Future<Output = Over>,
    ) -> Option<u8> {
        let dumper = Dumper::start();
        let mut until = std::pin::pin!(until);
        let (mut done, mut is_over) = (None, false);
        let mut pruned_at = Instant::now();
        loop {
            self.me.progress();
            self.handle(roster::Event::Tick { at: self.at() });
            self.reap().await;
            self.look();
            if let Some(code) = self.exit {
                return done.or((code != 0).then_some(code));
            }
            self.report_status();
            self.report_the_stop();
            self.watch_own_beat();
            self.watch_the_writer(&rows.borrow());
            self.watch_the_reload();
            self.notify.watchdog();
            self.stamp.iter_mut().for_each(Stamp::touch);
            if let Some(retention) = self.setup.config.retention
                && pruned_at.elapsed() >= PRUNE_EVERY
            {
                pruned_at = Instant::now();
                let _ = self.requests.send(Request::Prune(retention));
            }
            let next = self.roster.next_deadline();
            let longest = match &self.stopping {
                Some(Stopping { told: false, .. }) => AT_ONCE,
                _ => Duration::from_secs(1),
            };
            let wait = next.map_or(longest, |next| next.saturating_sub(self.at()).min(longest));
            tokio::select! {
                event = signals.recv() => match event {
                    Ok(event) => self.signalled(event, &dumper),
                    Err(error) => {
                        tracing::error!(%error, "signals cannot be read; stopping");
                        self.stop(false);
                    }
                },
                changed = connected.changed() => {
                    if changed.is_err() {
                        // A panic is a bug; a fresh process is better than half of one. Proven by
                        // `a_process_whose_lifeline_panics_ends_and_is_replaced`.
                        tracing::error!("the lifeline ended unexpectedly");
                        return Some(1);
                    }
                    let back = *connected.borrow_and_update();
                    let at = self.at();
                    self.handle(match back {
                        true => roster::Event::DatabaseBack { at },
                        false => roster::Event::DatabaseLost,
                    });
                },
                changed = rows.changed() => if changed.is_ok() {
                    let rows = Arc::clone(&rows.borrow_and_update());
                    self.judge(&rows);
                },
                read = self.reloading.read() => self.reloaded(read),
                over = &mut until, if !is_over => {
                    is_over = true;
                    // Work that ends in the drain makes no difference to the signal that began it.
                    if over.code != 0 || self.stopping.is_none() {
                        done = Some(over.code);
                    }
                    self.stop(over.at_once);
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// A database that answers but takes no writes (a lock, a full disk) looks reachable, and every
    /// heartbeat in it grows old. Ours is one of them: while it cannot be written, the children's
    /// heartbeats say nothing about the children.
    fn watch_own_beat(&mut self) {
        let stalled = self.me.since_beat() > self.setup.config.supervisor.reaper_timeout / 2;
        if std::mem::replace(&mut self.stalled, stalled) == stalled {
            return;
        }
        let at = self.at();
        self.handle(match stalled {
            true => roster::Event::DatabaseLost,
            false => roster::Event::DatabaseBack { at },
        });
    }

    /// Names the process that has held SQLite's lock for longer than a lease, and ends it if it is a
    /// process of ours that stands still, even under another supervisor: that one may stand still as
    /// well, and nobody can work or be recovered until the lock is free.
    fn watch_the_writer(&mut self, rows: &[ProcessRow]) {
        let lease = self.setup.config.supervisor.reaper_timeout;
        let kept_out = self.me.since_beat() > lease;
        let file = self.file.as_ref().filter(|_| kept_out);
        let found = file.and_then(|file| writer::of(file));
        let looked = self.writer.look(found.as_ref(), Instant::now());
        let Some((found, lasts)) = found.zip(looked) else {
            return;
        };
        if lasts == writer::Lasts::Newly {
            events::kept_out(&found.to_string(), self.me.since_beat());
        }
        if writer::is_to_be_ended(&found, &self.identity, rows, lease) {
            events::writer_ended(&found.to_string());
            if let Err(error) = writer::end(&found) {
                tracing::error!(pid = found.pid, %error, "it cannot be ended");
            }
        }
    }

    fn signalled(&mut self, event: SignalEvent, dumper: &std::io::Result<Dumper>) {
        match event {
            SignalEvent::Stop {
                immediate, signal, ..
            } => {
                let again = self.stopping.is_some();
                // The work was over, and the drain began without a signal: a person who presses Ctrl-C now wants more.
                let is_own = |it: &Stopping| it.signal.is_none() && it.since.elapsed() >= NOTICED;
                let immediate = immediate
                    || (signal == Signal::SIGINT && self.stopping.as_ref().is_some_and(is_own));
                self.stop(immediate);
                let stopping = self.stopping.as_mut().expect("it stops");
                stopping.signal.get_or_insert(signal);
                if immediate {
                    stopping.told = true;
                    tracing::info!(signal = signal.as_str(), again, "stopping at once");
                }
            }
            SignalEvent::Quiet if self.setup.suspends => self.suspend(),
            // It claims nothing anyway, and no CONT would end that.
            SignalEvent::Quiet if self.stopping.is_some() => {}
            SignalEvent::Quiet => {
                let pid = std::process::id();
                tracing::info!(
                    "quiet: claiming nothing, finishing what runs; `kill -CONT {pid}` lets it claim again"
                );
                self.handle(roster::Event::Quiet(true));
                self.me.set_mode(Mode::Quiet);
            }
            SignalEvent::Resume => {
                self.handle(roster::Event::Quiet(false));
                if self.stopping.is_none() {
                    self.me.set_mode(Mode::Run);
                }
            }
            SignalEvent::Dump => {
                match dumper {
                    Ok(dumper) => dumper.request(self.describe()),
                    Err(error) => tracing::error!(%error, "no dump can be made"),
                }
                for child in self.children.values() {
                    let _ = child.spawned.send(nix::sys::signal::Signal::SIGTTIN);
                }
            }
            SignalEvent::Reload => self.reload(),
            SignalEvent::RollingRestart if self.stopping.is_some() => {
                tracing::info!("stopping: no child is replaced");
            }
            SignalEvent::RollingRestart => {
                tracing::info!("replacing every child");
                self.replace(Vec::new());
            }
            SignalEvent::ChildEnded => {}
            SignalEvent::ReopenLog => tracing::info!("nothing to reopen: logs go to stderr"),
            SignalEvent::Unseen { .. } => {
                tracing::info!("TTOU means nothing here; set job_worker.count and send HUP");
            }
        }
    }

    /// Tells the service manager and the holders of a handle.
    fn report_status(&mut self) {
        let ready = self.roster.is_ready();
        if ready && !*self.ready.borrow() {
            self.ready.send_replace(true);
            self.notify.ready();
            tracing::info!(
                children = self.children.len(),
                database = %self.setup.config.database.url,
                config = self.setup.config.file.as_ref().map(|file| file.display().to_string()),
                pipelines = named(&self.setup.pipelines.names),
                ms = self.began.elapsed().as_millis() as u64,
                "ready"
            );
        }
        let up = self
            .roster
            .children()
            .filter(|child| child.standing == Standing::Up);
        let failed = match &self.not_reloaded {
            Some(why) => {
                self.me.trouble(Trouble::Reloading, "", why);
                "; reload failed, see the log"
            }
            None => "",
        };
        self.notify.status(&format!(
            "{} of {} processes up{failed}",
            up.count(),
            self.children.len()
        ));
    }

    fn describe(&self) -> Vec<Note> {
        let head = Note::new("dump")
            .with("process_id", self.me.process().to_string())
            .with("version", env!("CARGO_PKG_VERSION"))
            .since(self.at())
            .with("children", self.children.len());
        let children = self.roster.children().map(|child| {
            let note = Note::new("child")
                .with("child", child.kind.to_string())
                .with("standing", child.standing.to_string())
                .with("deaths", child.deaths);
            match child.pid {
                Some(pid) => note.with("child_pid", pid),
                None => note,
            }
        });
        std::iter::once(head).chain(children).collect()
    }
}

/// Some of these names, and the number of the others.
fn named(pipelines: &[String]) -> String {
    const NAMED: usize = 10;
    let some = &pipelines[..pipelines.len().min(NAMED)];
    match pipelines.len() - some.len() {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

fn wanted(setup: &Setup) -> Vec<ChildKind> {
    let has_console = setup.config.console.is_wanted() && !setup.suspends;
    let workers = setup
        .pipelines
        .names
        .iter()
        .map(|pipeline| ChildKind::Worker {
            pipeline: pipeline.clone(),
        });
    std::iter::once(ChildKind::Advancer)
        .chain(workers)
        .chain(has_console.then_some(ChildKind::Console))
        .collect()
}

/// The pids of children, for the proof.
#[derive(Debug, Default)]
struct Pids {
    /// Children that nobody has waited for yet.
    living: Living,
    /// Children that died because the daemon stops: what they held is released.
    stopped: HashSet<Pid>,
}

fn lock(pids: &Mutex<Pids>) -> MutexGuard<'_, Pids> {
    pids.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A supervisor's proof: the row is of this host, and its process does not exist. Of its own children,
/// the proof tells the crashed from the stopped.
fn proof_of(
    me: Identity,
    own: Arc<Shared>,
    pids: Arc<Mutex<Pids>>,
) -> Box<crate::engine::reaper::Proof> {
    let mut proofs = Proofs::default();
    // A supervisor that was declared dead goes on under another key, and its children name the first until it has swept.
    let mut own_ids = HashSet::from([own.process()]);
    Box::new(move |row, rows| {
        own_ids.insert(own.process());
        // RACE: a child of ours has died, and nobody has waited for it yet. Only the roster knows why
        // it died, and learns of the death when somebody waits for it: a child that was stopped has not
        // crashed. Nobody waits for it between these two looks, because this thread does the waiting.
        // Raced by `rolling_restarts_spend_no_crash`.
        if !proof::is_dead(&me, row) || proof::identity(row).is_unreaped_child() {
            return Finding::MayLive;
        }
        let pids = lock(&pids);
        let is_ours = row.supervisor.is_some_and(|id| own_ids.contains(&id));
        let death = match is_ours && pids.stopped.contains(&(row.pid as Pid)) {
            true => ProvenDeath::Stopped,
            false => ProvenDeath::Crashed(format!("pid {} does not exist any more", row.pid)),
        };
        // The processes that our own child's steps left behind have come to us, and we are ending them.
        let precedence = match is_ours {
            true if orphan::left_nothing(&pids.living).unwrap_or(false) => {
                return Finding::Dead(death);
            }
            true => DOUBT_MAX,
            false => proof::precedence(&me, row, rows),
        };
        proofs.finding(row, rows, precedence, death)
    })
}
