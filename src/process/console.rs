//! The console within its process.
//!
//! Owns: when it begins to listen, how long it tries to, and when it drains. Never: answers a request (`web`
//! does).

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::config::Config;
use crate::definition::Definition;
use crate::engine::shared::{Mode, Shared};
use crate::engine::trouble::Trouble;
use crate::machine::stuck::REFUSED;
use crate::store::Location;
use crate::task;
use crate::telemetry;
use crate::web::{self, NotListening, Places, Running, Terms, Witness};

use super::identity::Identity;
use super::proof;
use super::signal::Signals;
use super::wakeup::Wakeup;

/// The time between two signs of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How long a child's port may belong to its draining predecessor before anybody is told. A predecessor that
/// waits for a request keeps it for longer: then nobody is answered meanwhile.
const PREDECESSOR_WITHIN: Duration = Duration::from_secs(1);

/// The time between two attempts to get an address that somebody else has.
const AGAIN: Duration = Duration::from_secs(1);

/// A console that listens, or that is about to.
pub enum Console {
    /// It listens.
    Open(Running),
    /// It listens when the address is free.
    Opening(JoinHandle<Running>),
}

/// Listens where the configuration says. A console that runs alone does so at once or not at all; a child,
/// which would only be started again, keeps trying and reports that in its row.
///
/// # Errors
/// The exit status, when it cannot listen and has said so, or when it was told to end meanwhile.
pub async fn open(
    config: &Arc<Config>,
    pipelines: &[Arc<Definition>],
    location: &Location,
    is_child: bool,
    shared: &Arc<Shared>,
    (signals, after_signal): (&mut Signals, u8),
) -> Result<Console, ExitCode> {
    if is_child {
        let (config, location) = (Arc::clone(config), location.clone());
        let opening = open_when_free(config, pipelines.to_vec(), location, Arc::clone(shared));
        return Ok(Console::Opening(task::local(opening)));
    }
    let opened = tokio::select! {
        biased;
        () = signals.stop_asked() => return Err(after_signal.into()),
        opened = listen(config, pipelines, location, shared, Duration::ZERO) => opened,
    };
    opened.map(Console::Open).map_err(|error| {
        let (chain, remedy) = (telemetry::chain(&error), error.remedy());
        tracing::error!(remedy, "{chain}");
        ExitCode::FAILURE
    })
}

async fn open_when_free(
    config: Arc<Config>,
    pipelines: Vec<Arc<Definition>>,
    location: Location,
    shared: Arc<Shared>,
) -> Running {
    let mut within = PREDECESSOR_WITHIN;
    loop {
        match listen(&config, &pipelines, &location, &shared, within).await {
            Ok(running) => {
                shared.over(Trouble::Listening, "");
                return running;
            }
            Err(error) => {
                let text = telemetry::chain(&error);
                shared.trouble(Trouble::Listening, "", &text);
            }
        }
        within = Duration::ZERO;
        tokio::time::sleep(AGAIN).await;
    }
}

async fn listen(
    config: &Arc<Config>,
    pipelines: &[Arc<Definition>],
    location: &Location,
    shared: &Arc<Shared>,
    within: Duration,
) -> Result<Running, NotListening> {
    let settings = &config.console;
    // A console that was started by its verb listens somewhere.
    let usual = (!settings.is_wanted()).then_some(web::LISTEN);
    let places = Places {
        address: settings.listen.or(usual),
        socket: settings.socket.as_deref(),
    };
    let me = Identity::current();
    let witness = Witness {
        stale_after: config.supervisor.reaper_timeout,
        is_dead: Box::new(move |row| proof::is_dead(&me, row)),
    };
    let (requests, _nobody) = tokio::sync::mpsc::unbounded_channel();
    let wakeup = Arc::new(Wakeup::new(location, requests));
    let (settings, shared) = (Arc::clone(config), Arc::clone(shared));
    let limits = Arc::clone(config);
    let terms = Terms {
        hosts: config.console.hosts.clone(),
        proxy: config.console.proxy.clone(),
        anonymous: config.console.anonymous(&config.environment),
        witness,
        pipelines: pipelines.to_vec(),
        max_payload: Box::new(move |pipeline| settings.job_worker.max_payload(pipeline)),
        has_timeout: Box::new(move |pipeline, step| {
            limits.job_worker.timeout(pipeline, step).is_some()
        }),
        webhooks: config.console.webhooks.as_slice().into(),
        traces: config.console.traces.clone(),
        counts: Arc::clone(&shared.counts),
        refused: {
            let shared = Arc::clone(&shared);
            Arc::new(move |statement, why| match why {
                Some(why) => {
                    let text = format!("{REFUSED}: {why}");
                    shared.trouble(Trouble::Refused, statement, &text);
                }
                None => shared.over(Trouble::Refused, statement),
            })
        },
        exporting: Box::new(move |failure| match failure {
            Some(text) => shared.trouble(Trouble::Exporting, "", text),
            None => shared.over(Trouble::Exporting, ""),
        }),
        wake: Box::new(move |conn, pipeline| {
            let wakeup = Arc::clone(&wakeup);
            Box::pin(async move { wakeup.announce(conn, pipeline).await })
        }),
    };
    web::start(places, location, terms, within).await
}

/// Serves until the process is to end.
pub async fn run(mut console: Console, shared: Arc<Shared>) {
    let mut modes = shared.modes();
    loop {
        shared.progress();
        let mode = *modes.borrow_and_update();
        if let Mode::Drain { until, .. } = mode {
            match console {
                Console::Open(running) => running.drain(until).await,
                Console::Opening(opening) => opening.abort(),
            }
            return;
        }
        let moved_on = tokio::select! {
            // We hold the sender of these changes.
            _ = modes.changed() => continue,
            () = tokio::time::sleep(PROGRESS_EVERY) => continue,
            moved_on = console.moves_on() => moved_on,
        };
        match moved_on {
            Some(running) => console = Console::Open(running),
            None => return,
        }
    }
}

impl Console {
    /// Returns when it starts to listen or, if it already listens, when it has ended.
    async fn moves_on(&mut self) -> Option<Running> {
        match self {
            Self::Open(running) => {
                running.ended().await;
                None
            }
            Self::Opening(opening) => match opening.await {
                Ok(running) => Some(running),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}
