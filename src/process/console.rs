//! The console within its process.
//!
//! Owns: when it begins to listen, and when it drains. Never: answers a request (`web` does).

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::engine::shared::{Mode, Shared};
use crate::store::Location;
use crate::telemetry;
use crate::web::{self, Running, Witness};

use super::identity::Identity;
use super::proof;
use super::roster::ChildKind;
use super::signal::Signals;

/// Between two signs of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// A child's port may be its predecessor's for so long, which drains: a little longer than that takes.
const PREDECESSOR_WITHIN: Duration = Duration::from_secs(6);

/// Listens where the configuration says, if this is a console: before anything waits for the database, because
/// it is alive without one.
///
/// # Errors
/// The exit status, when that is not possible and has been said, or when it was told to end meanwhile.
pub async fn open(
    kinds: &[ChildKind],
    config: &Config,
    location: &Location,
    is_child: bool,
    signals: &mut Signals,
) -> Result<Option<Running>, ExitCode> {
    if !kinds.contains(&ChildKind::Console) {
        return Ok(None);
    }
    let address = config.console.listen.unwrap_or(web::LISTEN);
    let within = match is_child {
        true => PREDECESSOR_WITHIN,
        false => Duration::ZERO,
    };
    let me = Identity::current();
    let witness = Witness {
        stale_after: config.supervisor.reaper_timeout,
        is_dead: Box::new(move |row| proof::is_dead(&me, row)),
    };
    let hosts = &config.console.hosts;
    let started = tokio::select! {
        biased;
        () = signals.stop_asked() => return Err(ExitCode::SUCCESS),
        started = web::start(address, hosts, location, witness, within) => started,
    };
    started.map(Some).map_err(|error| {
        let (chain, remedy) = (telemetry::chain(&error), error.remedy());
        tracing::error!(remedy, "{chain}");
        ExitCode::FAILURE
    })
}

/// Serves until the process is to end.
pub async fn run(mut console: Running, shared: Arc<Shared>) {
    let mut modes = shared.modes();
    loop {
        shared.progress();
        let mode = *modes.borrow_and_update();
        if let Mode::Drain { until, .. } = mode {
            return console.drain(until).await;
        }
        tokio::select! {
            // Its sender is in what we hold.
            _ = modes.changed() => {}
            () = tokio::time::sleep(PROGRESS_EVERY) => {}
            () = console.ended() => return,
        }
    }
}
