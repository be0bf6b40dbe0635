//! Reading the configuration again.
//!
//! Owns: the thread that reads the files, and the use of what it has read. One thread at a time: a file system that does
//! not answer (a network's, or that of a dying disk) stops this thread and nothing else, least of all the heartbeat. Never:
//! starts or ends a child (the roster decides).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::config::Config;
use crate::engine::trouble::Trouble;
use crate::failpoint::failpoint;
use crate::machine::stuck::NOT_RELOADED;
use crate::process::roster::{self, ChildKind};
use crate::telemetry::events;

use super::{Served, Supervisor, wanted};

/// Reads the configuration and the pipelines again, to replace this one; a failure is shown as it is.
pub type Reload = Arc<dyn Fn(&Config) -> Read + Send + Sync>;

/// The result.
type Read = Result<(Arc<Config>, Served), String>;

/// The time after which files that have not been read are reported.
const ANSWERS_WITHIN: Duration =
    Duration::from_secs(if cfg!(feature = "failpoints") { 2 } else { 10 });

/// The words for that.
const LATE: &str = "the files have not been read in time: their file system does not answer";

/// A reload under way.
#[derive(Default)]
pub(super) struct Reloading {
    reads: Option<oneshot::Receiver<Read>>,
    /// Another one was asked for meanwhile: the files may have changed after they were read.
    next: Option<(Reload, Arc<Config>)>,
    /// When the wait for the files becomes worth a report.
    late_at: Option<Instant>,
}

impl Reloading {
    /// Begins to read, or notes that the files have to be read once more.
    fn begin(&mut self, reload: Reload, config: Arc<Config>) -> std::io::Result<()> {
        if self.reads.is_some() {
            self.next = Some((reload, config));
            // If this one was reported as late, so is the next.
            self.late_at
                .get_or_insert_with(|| Instant::now() + ANSWERS_WITHIN);
            return Ok(());
        }
        let (send, reads) = oneshot::channel();
        let thread = std::thread::Builder::new().name("reload".to_owned());
        thread.spawn(move || {
            failpoint!("supervisor.reading");
            // Nobody waits for it in a process that ends.
            let _ = send.send(reload(&config));
        })?;
        self.reads = Some(reads);
        self.late_at = Some(Instant::now() + ANSWERS_WITHIN);
        Ok(())
    }

    /// The result, when there is one; pending while nothing is read.
    pub(super) async fn read(&mut self) -> Read {
        loop {
            let read = match &mut self.reads {
                Some(reads) => reads.await,
                None => std::future::pending().await,
            };
            (self.reads, self.late_at) = (None, None);
            let again = self.next.take();
            match again.map(|(reload, config)| self.begin(reload, config)) {
                Some(Ok(())) => {}
                Some(Err(_)) | None => {
                    return read.unwrap_or_else(|_| Err("error: the reader panicked".to_owned()));
                }
            }
        }
    }

    /// True once, when the files have not been read for too long.
    fn is_late(&mut self) -> bool {
        self.late_at.take_if(|at| Instant::now() >= *at).is_some()
    }
}

impl Supervisor {
    /// Begins to read the configuration again.
    pub(super) fn reload(&mut self) {
        if self.stopping.is_some() {
            tracing::info!("stopping: the configuration is not read again");
            return;
        }
        self.notify.reloading();
        let (reload, config) = (
            Arc::clone(&self.setup.reload),
            Arc::clone(&self.setup.config),
        );
        if let Err(error) = self.reloading.begin(reload, config) {
            self.refuse(&format!("error: no thread can be started: {error}"));
        }
    }

    /// Reports files that do not answer. When they do, what was read is used.
    pub(super) fn watch_the_reload(&mut self) {
        if self.stopping.is_none() && self.reloading.is_late() {
            self.refuse(&format!("error: {LATE}"));
        }
    }

    /// Uses a configuration that was read, or reports why it is not used.
    pub(super) fn reloaded(&mut self, read: Read) {
        if self.stopping.is_some() {
            return;
        }
        match read {
            Ok((config, pipelines)) => {
                self.take_over(config, pipelines);
                self.settle();
            }
            Err(problems) => self.refuse(&problems),
        }
    }

    fn take_over(&mut self, config: Arc<Config>, pipelines: Served) {
        self.not_reloaded = None;
        self.me.over(Trouble::Reloading, "");
        let before = &self.setup.pipelines;
        let same = config == self.setup.config && pipelines.names == before.names;
        let defined = pipelines.digests == before.digests;
        // A replacement drains a worker's steps and kills those that outlast the drain: not for nothing.
        let old = &self.setup.config;
        let stays = pipelines
            .names
            .iter()
            .filter(|name| before.names.contains(name) && config.is_same_for_worker(old, name));
        let stays: Vec<ChildKind> = stays
            .map(|pipeline| ChildKind::Worker {
                pipeline: pipeline.clone(),
            })
            .collect();
        events::reloaded(&before.names, &pipelines.names, stays.len());
        if config.logger != old.logger {
            tracing::warn!("the supervisor itself logs as before until it is started again");
        }
        self.policy.take_over(Arc::clone(&config));
        self.setup.config = config;
        self.setup.pipelines = pipelines;
        if !same {
            self.replace(stays);
        } else if !defined && wanted(&self.setup).contains(&ChildKind::Console) {
            // Runs carry their own definitions, so no other child has them from files.
            tracing::info!("definitions have changed: replacing the console");
            let at = self.at();
            self.handle(roster::Event::Redefined { at });
        }
    }

    /// The old configuration stays in use.
    fn refuse(&mut self, problems: &str) {
        tracing::error!(
            %problems,
            "the configuration was not reloaded; the old one stays in use"
        );
        let mut lines = problems.lines();
        let first = lines.next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        let place = lines
            .next()
            .and_then(|line| line.trim_start().strip_prefix("--> "))
            .map_or(String::new(), |place| format!(" ({place})"));
        // A different mistake is a different trouble.
        self.me.over(Trouble::Reloading, "");
        self.not_reloaded = Some(format!("{NOT_RELOADED}: {first}{place}"));
        self.settle();
    }

    /// Tells the service manager that the reload has ended. `health` reports it without waiting for the next heartbeat.
    fn settle(&mut self) {
        // One that is still starting says so when it is ready.
        if *self.ready.borrow() {
            self.notify.ready();
        }
        self.report_status();
        self.me.check.notify_one();
    }
}
