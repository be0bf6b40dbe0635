//! The life of every child, and of a single role in the foreground: register, work, drain, go.
//!
//! Owns: the order of a child's life: signals, registration, hooks, loops, drain, deregistration.
//! Never: decides what is worked (`engine` does).

use std::convert::Infallible;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::definition::Definition;
use crate::engine::advancer::Advancer;
use crate::engine::counting;
use crate::engine::lifeline::{Lifeline, PRUNE_EVERY, Request, WEDGED_AFTER};
use crate::engine::reaper::Sweeper;
use crate::engine::runner::Runner;
use crate::engine::shared::{Mode, Shared};
use crate::engine::trouble::Trouble;
use crate::engine::worker::{LAST_COMMIT, Worker};
use crate::engine::{Policy, Waker};
use crate::exec;
use crate::failpoint::failpoint;
use crate::model::{ProcessId, Role};
use crate::step::registry::Registry;
use crate::step::{Limits, StopCause};
use crate::store::definition::Definitions;
use crate::store::{self, Location};
use crate::task;
use crate::telemetry::{self, Note, events};

use super::console::{self, Console};
use super::dump::Dumper;
use super::exit_conditions::{Over, unfit, until_idle};
use super::hooks::{Functions, Hook, Moment};
use super::identity::Identity;
use super::live::Stamp;
use super::orphan::{self, Living, ZombieReaper};
use super::proof;
use super::roster::ChildKind;
use super::signal::{Event, Signals};
use super::spawn;
use super::systemd::Notify;
use super::wakeup::Wakeup;
use super::watcher::Watched;

/// How long a child that lost its supervisor lets its steps go on. Nobody restarts what it
/// leaves, and another supervisor may be starting: the host must be clean within 2 s.
const ORPHANED_DRAIN: Duration = Duration::from_millis(500);

/// The time from the end of a drain's steps until loops that still wait for the database are given up. Loops
/// that can end by themselves have done so by then.
const GIVEN_UP: Duration = Duration::from_secs(LAST_COMMIT.as_secs() + 1);

/// The time between two looks for adopted zombies; far longer than it takes to notice the end of a step.
const GLEAN_EVERY: Duration = Duration::from_secs(5);

/// How long an ending process hunts what its steps left behind.
const STRAYS_BOUND: Duration = Duration::from_millis(250);

/// The exit status of a child that ends because the database keeps it out; EX_TEMPFAIL.
pub const GAVE_UP: i32 = 75;

/// The exit status of a process in which a task has ended unexpectedly.
const FAILED: u8 = 1;

/// A process that is to end waits this long for its registration, which may have reached the database.
const REGISTERS: Duration = Duration::from_millis(500);

/// A hook that runs for longer than this is reported.
pub(super) const HOOK_TAKES_LONG: Duration = Duration::from_secs(10);

/// A process that works: a child of a supervisor, or a role of its own.
pub struct Child {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its loops: one for a child, one or more for a role of its own, all of one role.
    pub kinds: Vec<ChildKind>,
    /// The supervisor that forked it; none for a role of its own.
    pub supervisor: Option<ProcessId>,
    /// Its pid.
    pub parent: Option<u32>,
    /// The pipelines of the configuration, for a console: it starts runs of them.
    pub pipelines: Vec<Arc<Definition>>,
    /// Native steps.
    pub registry: Arc<Registry>,
    /// The program's own hooks.
    pub hooks: Functions,
    /// If it is to end when no work is left: the pipelines whose work counts (`None`: all).
    pub until_idle: Option<Option<Vec<String>>>,
    /// Its exit status if a signal ends it.
    pub after_signal: u8,
}

impl Child {
    /// Lives until told to stop. Needs a current-thread runtime on the process's main thread:
    /// commands die with the thread that started them.
    pub async fn live(self, mut signals: Signals) -> ExitCode {
        exec::raise_open_files();
        let context = match Context::of(&self.config) {
            Ok(context) => context,
            Err(error) => {
                tracing::error!(error = crate::telemetry::chain(&error), "no database");
                return ExitCode::from(2);
            }
        };
        let (lives, console) = match self.register(&mut signals, &context).await {
            Ok(begun) => begun,
            Err(code) => return code,
        };
        let Some(first) = lives.first() else {
            return ExitCode::SUCCESS;
        };
        let role = first.kind.role();

        // A supervisor looks after what a dead child's steps leave behind; a living worker looks after what its
        // own steps leave behind.
        let adopts = self.supervisor.is_none() || role == Role::Worker;
        if adopts {
            adopt();
        }
        let mut watched = None;
        // A supervisor speaks for its children.
        let notify = Rc::new(match self.supervisor {
            None => Notify::from_environment(),
            Some(_) => Notify::default(),
        });
        if self.supervisor.is_none() {
            stamp(&lives, &context.location, &notify);
            if role == Role::Worker {
                watched = self.be_watched(&lives);
            }
        }
        let (start, stop) = match role {
            Role::Worker => (Some(Moment::WorkerStart), Some(Moment::WorkerStop)),
            Role::Advancer => (Some(Moment::AdvancerStart), Some(Moment::AdvancerStop)),
            Role::Console | Role::Supervisor => (None, None),
        };
        // A hook may take its time; a stop does not wait for it (S2).
        let stopped = tokio::select! {
            biased;
            () = signals.stop_asked() => true,
            () = self.run_hook(start, &lives) => false,
        };
        let (ended, asked) = match stopped {
            true => {
                notify.stopping();
                (None, Instant::now())
            }
            false => {
                notify.ready();
                let worked = self.work(&mut signals, &lives, console, &context, &notify);
                worked.await
            }
        };
        // Done before the row is gone: a successor that finds the row hunts for strays.
        if adopts {
            end_strays().await;
        }
        if let Some(watched) = watched {
            watched.end().await;
        }
        tokio::select! {
            biased;
            never = notify.hook_goes_on() => match never {},
            () = self.run_hook(stop, &lives) => {}
        }
        deregister(lives).await;
        // For its children, a supervisor reports the stop.
        if self.supervisor.is_none() {
            events::stopped(None, Some(asked));
        }
        ended.unwrap_or(self.after_signal).into()
    }

    /// Registers a process for each loop, and opens the console. An exit status where the process ends here.
    async fn register(
        &self,
        signals: &mut Signals,
        context: &Context,
    ) -> Result<(Vec<RegisteredLoop>, Option<Console>), ExitCode> {
        let mut lives = Vec::new();
        let mut console = None;
        for kind in &self.kinds {
            failpoint!("child.start");
            let shared = Shared::new(ProcessId::new());
            if *kind == ChildKind::Console {
                // Opened before anything waits for the database: the console lives without one.
                let opened = console::open(
                    &self.config,
                    &self.pipelines,
                    &context.location,
                    self.supervisor.is_some(),
                    &shared,
                    (&mut *signals, self.after_signal),
                );
                console = Some(opened.await?);
            }
            let life = RegisteredLoop::begin(self, kind, shared, lives.is_empty(), context);
            let mut life = std::pin::pin!(life);
            // A stop that comes before there is anything to stop ends it here.
            let begun = tokio::select! {
                biased;
                () = signals.stop_asked() => None,
                life = &mut life => Some(life),
            };
            let Some(begun) = begun else {
                // RACE: the database has the new row already, and this process has yet to hear so. A row that is
                // left behind looks like that of a process that died. Proven by
                // `a_stop_that_comes_while_a_process_registers_leaves_no_row`.
                lives.extend(tokio::time::timeout(REGISTERS, life).await);
                deregister(lives).await;
                return Err(self.after_signal.into());
            };
            lives.push(begun);
        }
        Ok((lives, console))
    }

    /// Runs the loops until all have ended. Returns the exit status, unless a signal has ended them, and the time at
    /// which they were asked to end.
    async fn work(
        &self,
        signals: &mut Signals,
        lives: &[RegisteredLoop],
        console: Option<Console>,
        context: &Context,
        notify: &Notify,
    ) -> (Option<u8>, Instant) {
        let first = &lives[0];
        let role = first.kind.role();
        let dumper = Dumper::start();
        let mut loops = JoinSet::new();
        for life in lives {
            life.work(self, context, &mut loops);
        }
        if let Some(console) = console {
            loops.spawn_local(task::boxed(console::run(
                console,
                Arc::clone(&first.shared),
            )));
        }
        // A supervisor looks at the database, and deletes old runs, for its children.
        let alone = self.supervisor.is_none();
        let over = async {
            tokio::select! {
                () = idle(&first.requests, self.until_idle.clone()) => Over::with(0),
                over = unfit(&first.requests, &context.location), if alone => over,
            }
        };
        let all = All {
            shared: lives.iter().map(|life| Arc::clone(&life.shared)).collect(),
            connected: lives.iter().map(|life| life.connected.clone()).collect(),
            claims: role != Role::Console,
        };
        let (drain, parent) = (self.drain(), self.parent);
        let looped = run_loops(signals, &mut loops, &all, drain, parent, dumper, over);
        let retention = self.config.retention;
        let retention = retention.filter(|_| alone && role == Role::Advancer);
        let (ended, asked) = tokio::select! {
            biased;
            never = report_the_stop(&first.shared, notify) => match never {},
            never = prune_in_turn(&first.requests, retention) => match never {},
            looped = looped => looped,
        };
        count_the_stop(lives, asked);
        (ended, asked)
    }

    /// Starts a watcher, which recognises the steps of these lives by the keys of their processes.
    fn be_watched(&self, lives: &[RegisteredLoop]) -> Option<Watched> {
        let processes = lives.iter().map(|life| life.shared.process());
        let watched = Watched::start(processes, self.config.logger.format)?;
        for life in lives {
            life.shared.announce(watched.announcer());
        }
        // A process that got another key meanwhile was not heard.
        lives
            .iter()
            .map(|life| life.shared.process())
            .for_each(watched.announcer());
        Some(watched)
    }

    /// Each command that ends is progress: all of them together may take longer than a loop may stand still. Proven by
    /// `each_command_and_function_that_ends_is_told_of_whether_it_failed_or_not`.
    async fn run_hook(&self, moment: Option<Moment>, lives: &[RegisteredLoop]) {
        let Some(moment) = moment else { return };
        let hook = Hook::of(moment, &self.config, &self.hooks);
        let ended = || lives.iter().for_each(|life| life.shared.progress());
        let ended = tokio::select! {
            ended = hook.run_telling(ended) => ended,
            never = report_the_hook(moment, lives) => match never {},
        };
        for life in lives {
            life.shared.over(Trouble::Hooking, "");
        }
        if let Err(error) = ended {
            events::hook_failed(&error);
        }
    }

    /// How long work in flight may go on after a stop.
    fn drain(&self) -> Duration {
        let of = |kind: &ChildKind| match kind {
            ChildKind::Worker { pipeline } => self.config.job_worker.shutdown_timeout(pipeline),
            ChildKind::Advancer => self.config.pipeline_advancer.shutdown_timeout,
            ChildKind::Console => self.config.supervisor.shutdown_timeout,
        };
        self.kinds.iter().map(of).max().unwrap_or_default()
    }
}

/// Tells the service manager that the process is stopping, and repeats this while it drains.
async fn report_the_stop(shared: &Shared, notify: &Notify) -> Infallible {
    let mut modes = shared.modes();
    let _ = modes
        .wait_for(|mode| matches!(mode, Mode::Drain { .. }))
        .await;
    notify.stopping();
    match shared.mode() {
        Mode::Drain { until, .. } => notify.drain_goes_on(until).await,
        _ => std::future::pending().await,
    }
}

/// While the loops of `lives` make progress, renews the stamp and the service manager's watchdog. A supervisor does so
/// for its children.
fn stamp(lives: &[RegisteredLoop], location: &Location, notify: &Rc<Notify>) {
    let shared: Vec<_> = lives.iter().map(|life| Arc::clone(&life.shared)).collect();
    let requests = lives.first().map(|life| life.requests.clone());
    let mut stamp = requests.and_then(|requests| Wakeup::new(location, requests).stamp());
    let notify = Rc::clone(notify);
    task::local(async move {
        loop {
            if shared.iter().all(|it| it.since_progress() < WEDGED_AFTER) {
                stamp.iter_mut().for_each(Stamp::touch);
                notify.watchdog();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
}

/// Counts that the loops of these have ended, if they were told to.
fn count_the_stop(lives: &[RegisteredLoop], asked: Instant) {
    for life in lives {
        let outcome = match life.shared.mode() {
            Mode::Drain { until, .. } if Instant::now() < until => "drained",
            Mode::Drain { .. } => "cut_short",
            Mode::Run | Mode::Quiet => continue,
        };
        let (role, took) = (life.kind.role(), asked.elapsed());
        let counts = &life.shared.counts;
        counts.count(|counts| counting::stopped(counts, role, outcome, took));
    }
}

/// The database of the loops of a process, and their limits.
struct Context {
    location: Location,
    policy: Policy,
    definitions: Arc<Definitions>,
}

impl Context {
    fn of(config: &Arc<Config>) -> Result<Self, store::Error> {
        Ok(Self {
            location: config.location()?,
            policy: Policy::new(Arc::clone(config)),
            definitions: Arc::new(Definitions::default()),
        })
    }
}

/// One loop, registered as one process. A role of its own may have several, which share nothing by
/// which the database tells them apart: when a loop asks about its process after a lost connection
/// (what it holds, whose statements are too late), the answer covers no other loop. Proven by
/// `a_worker_of_several_pipelines_is_as_many_workers`.
struct RegisteredLoop {
    kind: ChildKind,
    shared: Arc<Shared>,
    waker: Arc<dyn Waker>,
    requests: mpsc::UnboundedSender<Request>,
    connected: watch::Receiver<bool>,
    end: oneshot::Sender<()>,
    lifeline: JoinHandle<()>,
}

impl RegisteredLoop {
    /// Registers, and begins to beat.
    async fn begin(
        child: &Child,
        kind: &ChildKind,
        shared: Arc<Shared>,
        is_first: bool,
        context: &Context,
    ) -> Self {
        let Context {
            location,
            policy,
            definitions,
        } = context;
        let identity = Identity::current();
        let process = shared.process();
        let role = kind.role();
        let pipeline = match kind {
            ChildKind::Worker { pipeline } => Some(pipeline.clone()),
            ChildKind::Advancer | ChildKind::Console => None,
        };
        let (requests, answers) = mpsc::unbounded_channel();
        let wakeup = Wakeup::new(location, requests.clone());
        let waker: Arc<dyn Waker> = wakeup.waker();
        let heard = Arc::clone(&shared);
        wakeup.listen(role, pipeline.as_deref(), process, move || {
            heard.wake.notify_one()
        });
        if role == Role::Worker {
            let heard = Arc::clone(&shared);
            wakeup.listen_for_claims(process, move || heard.check.notify_one());
        }
        // A supervisor recovers for its children.
        let sweeps = child.supervisor.is_none() && is_first && *kind != ChildKind::Console;
        let sweeper = sweeps.then(|| {
            let sweeper = Sweeper::new(
                policy.clone(),
                Arc::clone(definitions),
                proof::of_strangers(),
            )
            .reporting(Arc::clone(&shared));
            (sweeper, child.config.supervisor.polling_timeout * 2)
        });
        let mut lifeline = Lifeline {
            location: location.clone(),
            row: identity.row(process, child.supervisor, role, pipeline),
            shared: Arc::clone(&shared),
            policy: policy.clone(),
            requests: answers,
            sweeper,
            connected: watch::Sender::new(false),
            origin: wakeup.origin(),
            waker: Arc::clone(&waker),
            is_first,
        };
        let connected = lifeline.connected.subscribe();
        let conn = lifeline.begin().await;
        let (end, ended) = oneshot::channel();
        Self {
            kind: kind.clone(),
            shared,
            waker,
            requests,
            connected,
            end,
            lifeline: task::local(lifeline.run(conn, ended)),
        }
    }

    /// Starts its loop.
    fn work(&self, child: &Child, context: &Context, loops: &mut JoinSet<()>) {
        let config = &child.config;
        let Context {
            location,
            policy,
            definitions,
        } = context;
        match &self.kind {
            ChildKind::Worker { pipeline } => {
                let registry = Arc::clone(&child.registry);
                let runner = Runner::new(config, pipeline, registry, self.requests.clone());
                let worker = Worker {
                    location: location.clone(),
                    pipeline: pipeline.clone(),
                    policy: policy.clone(),
                    shared: Arc::clone(&self.shared),
                    definitions: Arc::clone(definitions),
                    runner: Arc::new(runner),
                    waker: Arc::clone(&self.waker),
                };
                let shared = Arc::clone(&self.shared);
                loops.spawn_local(task::boxed(async move {
                    worker.run().await;
                    // That other loops still drain is not its concern.
                    shared.rest();
                }))
            }
            ChildKind::Advancer => {
                let advancer = Advancer {
                    location: location.clone(),
                    count: config.pipeline_advancer.count,
                    polling_timeout: config.pipeline_advancer.polling_timeout,
                    policy: policy.clone(),
                    shared: Arc::clone(&self.shared),
                    definitions: Arc::clone(definitions),
                    waker: Arc::clone(&self.waker),
                };
                loops.spawn_local(task::boxed(advancer.run()))
            }
            // It listens already.
            ChildKind::Console => return,
        };
    }
}

/// Lets each lifeline deregister its process; without a database they just end.
async fn deregister(lives: Vec<RegisteredLoop>) {
    let lifelines = lives.into_iter().map(|life| {
        let _ = life.end.send(());
        life.lifeline
    });
    let lifelines: Vec<_> = lifelines.collect();
    let gone = async {
        for lifeline in lifelines {
            let _ = lifeline.await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), gone).await;
}

/// Reports a hook that takes long, again and again.
async fn report_the_hook(moment: Moment, lives: &[RegisteredLoop]) -> Infallible {
    let text = format!("its {} hook is still running", moment.name());
    let began = Instant::now();
    loop {
        tokio::time::sleep(HOOK_TAKES_LONG).await;
        for life in lives {
            life.shared.trouble_since(began, Trouble::Hooking, &text);
        }
    }
}

/// Returns when a lifeline has ended although nobody told it to. A panic is a bug; a fresh process is better than half of
/// one. Proven by `a_process_whose_lifeline_panics_ends_and_is_replaced`.
async fn lifeline_lost(connected: &[watch::Receiver<bool>]) {
    let mut ends = JoinSet::new();
    for connected in connected {
        let mut connected = connected.clone();
        ends.spawn_local(task::boxed(async move {
            while connected.changed().await.is_ok() {}
        }));
    }
    let _ = ends.join_next().await;
}

/// Returns when there is no work left in these pipelines, or never.
async fn idle(requests: &mpsc::UnboundedSender<Request>, pipelines: Option<Option<Vec<String>>>) {
    match pipelines {
        Some(pipelines) => until_idle(requests, pipelines).await,
        None => std::future::pending().await,
    }
}

/// Asks for the deletion of old runs again and again.
async fn prune_in_turn(
    requests: &mpsc::UnboundedSender<Request>,
    retention: Option<Duration>,
) -> Infallible {
    let Some(retention) = retention else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(PRUNE_EVERY).await;
        // A lifeline that has ended is noticed elsewhere.
        let _ = requests.send(Request::Prune(retention));
    }
}

/// The state that the loops of this process share with it.
struct All {
    shared: Vec<Arc<Shared>>,
    /// Whether each lifeline reaches the database.
    connected: Vec<watch::Receiver<bool>>,
    /// They claim work, until they are told not to.
    claims: bool,
}

impl All {
    fn mode(&self) -> Mode {
        self.shared
            .first()
            .map_or(Mode::Run, |shared| shared.mode())
    }

    fn set_mode(&self, mode: Mode) {
        self.shared.iter().for_each(|shared| shared.set_mode(mode));
    }

    fn stop_all(&self, cause: StopCause) {
        self.shared.iter().for_each(|shared| shared.stop_all(cause));
    }

    fn check(&self) {
        self.shared
            .iter()
            .for_each(|shared| shared.check.notify_one());
    }

    /// The child of a supervisor has no connection.
    fn is_kept_out(&self) -> bool {
        !self.connected.iter().any(|connected| *connected.borrow())
    }

    fn describe(&self) -> Vec<Note> {
        self.shared
            .iter()
            .flat_map(|shared| shared.describe())
            .collect()
    }
}

/// Follows signals while the loops run. Returns when they have ended: with the exit status, unless a signal has ended
/// them, and with the time at which they were asked to end.
async fn run_loops(
    signals: &mut Signals,
    loops: &mut JoinSet<()>,
    shared: &All,
    drain: Duration,
    parent: Option<u32>,
    dumper: std::io::Result<Dumper>,
    over: impl Future<Output = Over>,
) -> (Option<u8>, Instant) {
    let mut over = std::pin::pin!(over);
    let mut code = None;
    // The cause for which the loops' steps were told to end.
    let mut stopped_for = None;
    let mut left = false;
    let mut lost = std::pin::pin!(lifeline_lost(&shared.connected));
    let mut is_lost = false;
    let mut answers = Answers {
        shared,
        drain,
        dumper,
        is_quiet: false,
        parent,
        since: None,
    };
    loop {
        let mode = shared.mode();
        let draining = matches!(mode, Mode::Drain { cause, .. } if cause != StopCause::Abandon);
        tokio::select! {
            biased;
            // RACE: a connection is half open: its other end is gone, and the message that said so
            // was lost. A loop that waits for an answer on it waits for ever and cannot see that it
            // is to end; its supervisor would kill it, if it still had one. Proven by
            // `orphans_end_although_their_database_says_nothing`.
            cause = time_is_up(mode, stopped_for) => {
                if stopped_for == Some(cause) {
                    events::loops_given_up();
                    return (code, answers.since());
                }
                stopped_for = Some(cause);
                shared.stop_all(cause);
            }
            () = orphaned(parent), if draining => {
                tracing::warn!("the supervisor is gone; stopping");
                answers.leave(ORPHANED_DRAIN, StopCause::Abandon);
            }
            event = signals.recv() => answers.answer(event),
            () = &mut lost, if !is_lost => {
                tracing::error!("a lifeline ended unexpectedly");
                (is_lost, code) = (true, Some(FAILED));
                answers.stop(true);
            }
            ended = &mut over, if !left && !matches!(mode, Mode::Drain { .. }) => {
                (left, code) = (true, Some(ended.code));
                answers.stop(ended.at_once);
            }
            ended = loops.join_next() => match ended {
                None => return (code, answers.since()),
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    // A panic in a loop is a bug; a fresh process is better than half of one.
                    tracing::error!(error = %error, "a loop ended unexpectedly");
                    return (Some(FAILED), answers.since());
                }
            },
        }
    }
}

/// How a process answers its signals.
struct Answers<'a> {
    shared: &'a All,
    drain: Duration,
    dumper: std::io::Result<Dumper>,
    /// It was told to claim nothing.
    is_quiet: bool,
    /// The pid of its supervisor.
    parent: Option<u32>,
    /// When it was asked to end.
    since: Option<Instant>,
}

impl Answers<'_> {
    /// The time when the process was asked to end: now, unless it was asked before.
    fn since(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now)
    }

    /// Ends the process within `room`.
    fn leave(&mut self, room: Duration, cause: StopCause) {
        self.since();
        let until = Instant::now() + room;
        // A supervisor may repeat its TERM: that gives nobody more time, in the drain or after it.
        let (until, cause) = match self.shared.mode() {
            Mode::Drain {
                until: before,
                cause: StopCause::Abandon,
            } => (until.min(before), StopCause::Abandon),
            Mode::Drain { until: before, .. } => (until.min(before), cause),
            _ => (until, cause),
        };
        self.shared.set_mode(Mode::Drain { until, cause });
    }

    fn stop(&mut self, at_once: bool) {
        match at_once {
            true => self.leave(Duration::ZERO, StopCause::Abandon),
            false => self.leave(self.drain, StopCause::Shutdown),
        }
    }

    fn answer(&mut self, event: std::io::Result<Event>) {
        let shared = self.shared;
        match event {
            Ok(Event::Stop { immediate, .. }) => self.stop(immediate),
            // A process that is told to end takes no further orders.
            Ok(Event::Quiet) if matches!(shared.mode(), Mode::Drain { .. }) => {}
            // It claims nothing anyway.
            Ok(Event::Quiet) if !shared.claims => {}
            Ok(Event::Quiet) => {
                self.is_quiet = true;
                shared.set_mode(Mode::Quiet);
                tracing::info!("quiet: claiming nothing, finishing what runs");
            }
            Ok(Event::Resume) => {
                if std::mem::take(&mut self.is_quiet) && shared.mode() == Mode::Quiet {
                    shared.set_mode(Mode::Run);
                    tracing::info!("claiming again");
                }
                // After a SIGSTOP the claims may be gone: look at once (H10).
                shared.check();
            }
            Ok(Event::Dump) => match &self.dumper {
                Ok(dumper) => dumper.request(shared.describe()),
                Err(error) => tracing::error!(%error, "no dump can be made"),
            },
            // Its supervisor, which the database lets in, kills it soon, and would take it for one that stands
            // still. Its work, which is not to blame, is released instead.
            Ok(Event::Unseen { from })
                if self.parent == Some(from as u32) && shared.is_kept_out() =>
            {
                events::gave_up();
                // The end of each task, and of each wait, would take its time.
                telemetry::flush();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "its supervisor ends what it leaves behind"
                )]
                std::process::exit(GAVE_UP);
            }
            Ok(Event::Reload | Event::RollingRestart) if self.parent.is_none() => {
                tracing::warn!("this role does not read its configuration again: restart it");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "signals cannot be read");
                self.leave(self.drain, StopCause::Shutdown);
            }
        }
    }
}

/// Returns when the steps of a drain are to be stopped or, if they were `stopped_for` this cause already, when its loops
/// are to be given up.
///
/// RACE: the steps were told to end, and have their grace, when the process is told to end at once, or loses its
/// supervisor. They are told again, which ends the grace. Proven by
/// `a_stop_at_once_ends_the_grace_that_steps_have_after_a_drain`.
async fn time_is_up(mode: Mode, stopped_for: Option<StopCause>) -> StopCause {
    let Mode::Drain { until, cause } = mode else {
        return std::future::pending().await;
    };
    // A step that is stopped may take all of its grace.
    let grace = match cause {
        StopCause::Shutdown => Limits::default().kill_grace,
        StopCause::Cancel | StopCause::Abandon => Duration::ZERO,
    };
    let until = match stopped_for == Some(cause) {
        true => until + grace + GIVEN_UP,
        false => until,
    };
    tokio::time::sleep_until(until.into()).await;
    cause
}

/// Returns when the parent is gone, if there was one.
///
/// RACE: a supervisor is killed. We get the signal for its death when the thread that forked us is gone;
/// while another of its threads still lives, we still have a parent, and the stop looks like one that the
/// supervisor asked for. So a process that has been told to stop keeps looking. The order in which the kernel
/// ends threads cannot be forced. Raced by `what_is_claimed_by_a_worker_that_is_to_end_is_never_started`.
async fn orphaned(parent: Option<u32>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    while std::os::unix::process::parent_id() == parent {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Adopts the processes that daemonising steps leave behind, so that they can be ended with their executions. A
/// role of its own has no supervisor to do so, and may be pid 1.
fn adopt() {
    if let Err(error) = spawn::become_subreaper() {
        tracing::warn!(%error, "cannot adopt what steps leave behind");
    }
    task::local(async {
        let mut zombies = ZombieReaper::default();
        loop {
            tokio::time::sleep(GLEAN_EVERY).await;
            if let Err(error) = zombies.reap() {
                tracing::warn!(%error, "cannot look for zombies");
            }
        }
    });
}

/// Ends the processes that steps left behind and that nobody could attribute to an execution: they end with
/// their worker, whether its supervisor is still there or not.
async fn end_strays() {
    match orphan::sweep(&Living::default(), STRAYS_BOUND).await {
        Ok(sweep) if sweep.killed > 0 => {
            tracing::warn!(processes = sweep.killed, "ended what steps left behind");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "cannot look for what steps left behind"),
    }
}
