//! The end of a daemon: the drain, the stop hook, and what the log says of both.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::sync::oneshot;

use crate::engine::counting;
use crate::engine::lifeline::Request;
use crate::engine::shared::Mode;
use crate::engine::trouble::Trouble;
use crate::failpoint::failpoint;
use crate::model::Role;
use crate::process::child::HOOK_TAKES_LONG;
use crate::process::hooks::{Functions, Hook, Moment};
use crate::process::live::Stamp;
use crate::process::signal::Signals;
use crate::process::systemd::BEYOND_DRAIN;
use crate::process::{orphan, roster};
use crate::step::StopCause;
use crate::telemetry::events;

use super::{AT_ONCE, Stopping, Supervisor};

/// How long the last sweep of a stopping supervisor may take: the next start gives back at once, with
/// the same proof, what this sweep does not.
const LAST_SWEEP: Duration = Duration::from_secs(5);

impl Supervisor {
    pub(super) fn stop(&mut self, immediate: bool) {
        failpoint!("supervisor.stopping");
        self.notify.stopping();
        let stopping = self.stopping.get_or_insert_with(|| Stopping {
            since: Instant::now(),
            signal: None,
            told: false,
            at_once: false,
        });
        stopping.at_once |= immediate;
        self.told_to_stop.send_replace(true);
        // Nobody reads the configuration again.
        self.not_reloaded = None;
        self.me.over(Trouble::Reloading, "");
        self.me.set_mode(Mode::Drain {
            until: Instant::now() + self.setup.config.supervisor.shutdown_timeout,
            cause: StopCause::Shutdown,
        });
        let at = self.at();
        self.handle(roster::Event::Stop { at, immediate });
    }

    /// Runs the stop hook, unless somebody asks for the end once more.
    pub(super) async fn run_stop_hook(&mut self, signals: &mut Signals, functions: &Functions) {
        let hook = Hook::of(Moment::SupervisorStop, &self.setup.config, functions);
        let began = Instant::now();
        let (stamp, me, notify) = (&mut self.stamp, &self.me, &self.notify);
        let telling = async {
            let mut told = began;
            loop {
                stamp.iter_mut().for_each(Stamp::touch);
                tokio::time::sleep(Duration::from_secs(1)).await;
                if told.elapsed() >= HOOK_TAKES_LONG {
                    told = Instant::now();
                    let text = "the supervisor stop hook is still running";
                    events::hook_takes_long(text, began.elapsed());
                }
            }
        };
        tokio::select! {
            biased;
            () = signals.stop_asked() => tracing::info!("stopping at once: the stop hook has not run to its end"),
            ran = hook.run_telling(|| me.progress()) => {
                if let Err(error) = ran {
                    events::hook_failed(&error);
                }
            }
            never = telling => never,
            never = notify.hook_goes_on() => match never {},
        }
    }

    pub(super) fn count_the_stop(&self, code: u8) {
        let Some(stopping) = &self.stopping else {
            return;
        };
        let outcome = match (stopping.at_once, code) {
            (true, _) => "at_once",
            (false, 0) => "drained",
            (false, _) => "failed",
        };
        let took = stopping.since.elapsed();
        let counts = &self.me.counts;
        counts.count(|counts| counting::stopped(counts, Role::Supervisor, outcome, took));
    }

    /// Reports the stop, if it takes longer than a moment. The service manager hears each time that it goes on.
    pub(super) fn report_the_stop(&mut self) {
        if let Some(stopping) = &self.stopping {
            let until =
                stopping.since + self.setup.config.supervisor.shutdown_timeout + BEYOND_DRAIN;
            self.notify
                .stop_goes_on(until.saturating_duration_since(Instant::now()));
        }
        let children = self.children.len();
        if let Some(stopping) = &mut self.stopping
            && !stopping.told
            && stopping.since.elapsed() >= AT_ONCE
        {
            stopping.told = true;
            let is_own = matches!(stopping.signal, None | Some(Signal::SIGINT));
            let is_seen = self.setup.suspends || std::io::stderr().is_terminal();
            let help = (is_own && is_seen).then_some("Ctrl-C now stops at once");
            let signal = stopping.signal.map(|signal| signal.as_str());
            tracing::info!(signal, children, help, "stopping");
        }
    }

    /// Stands still with the children and their steps until somebody sends CONT, as a job of a terminal does.
    /// Each process judges others by what it has seen since it woke up, so none is taken for dead afterwards.
    pub(super) fn suspend(&self) {
        let tags = self.children.values().map(|it| it.tag.clone()).collect();
        let stopped = orphan::stop_family(self.children.keys(), &tags);
        // The signal takes effect at once: the whole process stands still in this call.
        if let Err(error) = nix::sys::signal::raise(Signal::SIGSTOP) {
            tracing::error!(%error, "it cannot be suspended");
        }
        orphan::go_on(stopped);
    }

    /// Gives back the claims of the children that were ended, before we go.
    pub(super) async fn last_sweep(&mut self) {
        let (done, swept) = oneshot::channel();
        if self.requests.send(Request::Sweep(done)).is_ok() {
            let _ = tokio::time::timeout(LAST_SWEEP, swept).await;
        }
    }
}
