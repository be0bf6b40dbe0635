//! The signals that end a command.
//!
//! Owns: that they end a command which is the first process of a container, too, and how a command that waits handles
//! Ctrl-C itself. Never: the daemon's signals (`process::signal`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::signal::{SigSet, SigmaskHow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failure;
use crate::problem::Problem;

/// True as long as Ctrl-C ends a command that is the first process of a container.
static ENDS: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The first process of a container gets no signal that it does not handle: without this, nothing but KILL ends a command
/// that leaves its end to the signal. It is called before anything starts a thread.
pub fn end_the_first_process() {
    let always = Arc::new(AtomicBool::new(true));
    let until_caught = ENDS.get_or_init(|| Arc::new(AtomicBool::new(true)));
    // RACE: a signal between the installation of its handler and the registration of the action does nothing. A blocked
    // one waits. Raced by `a_command_that_is_the_first_process_of_a_container_ends_by_signals`.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    for (signal, ends) in [
        (SIGTERM, &always),
        (SIGHUP, &always),
        (SIGQUIT, &always),
        (SIGINT, until_caught),
    ] {
        // As a shell says it. Where this fails, the signal is ignored as before.
        let ends = Arc::clone(ends);
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, ends);
    }
    // Where the mask could not be read, nothing was blocked.
    let _ = mask.and_then(|mask| mask.thread_set_mask());
}

/// Ctrl-C, as long as this lives, for a command that ends in its own way.
pub struct Caught(Signal);

/// Catches Ctrl-C from now on.
///
/// # Errors
///
/// The kernel refuses.
pub fn caught() -> Result<Caught, Failure> {
    let caught = signal(SignalKind::interrupt()).map_err(|error| {
        Failure::failed(Problem::new(format!("signals cannot be read: {error}")))
    })?;
    ends(false);
    Ok(Caught(caught))
}

impl Caught {
    /// Waits for it.
    pub async fn recv(&mut self) {
        self.0.recv().await;
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        ends(true);
    }
}

fn ends(yes: bool) {
    if let Some(ends) = ENDS.get() {
        ends.store(yes, Ordering::SeqCst);
    }
}
