//! How one process wakes another: by a socket on the same host, by the database on others.
//!
//! Owns: the choice between the two. On the same host a datagram wakes the other process within
//! microseconds; other hosts hear the database's notification, sent outside of any hot transaction and
//! at a bounded rate. Where the database has no notifications, they look often (`engine::shared`).

mod socket;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::engine::Waker;
use crate::engine::lifeline::{CHANNEL, Request};
use crate::model::{ProcessId, Role};
use crate::store::{Conn, Location};
use crate::task;

use super::live::Stamp;

use socket::{Recipient, Sender, WakeupSocket};
pub use socket::{directories, directory};

/// The shortest time between two notifications: a NOTIFY serialises commits with others, and a
/// process that was woken looks until nothing is left.
const NOTIFY_EVERY: Duration = Duration::from_millis(50);

/// The wakeups that one process sends and hears.
pub struct Wakeup {
    dir: Option<PathBuf>,
    requests: Option<mpsc::UnboundedSender<Request>>,
}

impl Wakeup {
    /// The wakeups among the processes that use the database at `location`.
    pub fn new(location: &Location, requests: mpsc::UnboundedSender<Request>) -> Self {
        let dir = socket::directory(&location.identity())
            .map_err(
                |error| tracing::warn!(%error, "no wakeups on this host: work is found by polling"),
            )
            .ok();
        let remote = location.dialect().notifies();
        Self {
            dir,
            requests: remote.then_some(requests),
        }
    }

    /// The prefix that tells the notifications of the processes that share the directory, and so
    /// hear each other's sockets, from those of other hosts.
    pub fn origin(&self) -> String {
        use std::os::unix::fs::MetadataExt;

        let metadata = self
            .dir
            .as_ref()
            .and_then(|dir| std::fs::metadata(dir).ok());
        let boot = super::identity::Identity::current().boot_id;
        match metadata {
            Some(metadata) => format!("{boot}:{}:{}:", metadata.dev(), metadata.ino()),
            // Without a directory, others hear us only through the database.
            None => format!("{}:", uuid::Uuid::new_v4()),
        }
    }

    /// Wakes all processes that work on this pipeline, at once: for a caller that does one thing and
    /// may then end.
    pub async fn announce(&self, conn: &mut Conn, pipeline: &str) {
        let waker = self.waker();
        waker.job_available(pipeline);
        waker.branch_available();
        waker.claims_revoked();
        for payload in [pipeline, ""] {
            let payload = format!("{}{payload}", self.origin());
            let _missed = conn.notify(CHANNEL, &payload).await;
        }
    }

    /// The stamp of this process's life, beside the sockets.
    pub fn stamp(&self) -> Option<Stamp> {
        let stamp = Stamp::new(self.dir.as_deref()?);
        stamp
            .map_err(
                |error| tracing::warn!(%error, "no liveness file: `health --live` finds nobody"),
            )
            .ok()
    }

    /// The handle that wakes others.
    pub fn waker(&self) -> Arc<dyn Waker> {
        Arc::new(ProcessWaker {
            sender: self.dir.as_deref().map(Sender::new),
            requests: self.requests.clone(),
            origin: self.origin(),
            notified: Mutex::default(),
        })
    }

    /// Hears the wakeups for a role, in a task of its own, until the process ends.
    pub fn listen(
        &self,
        role: Role,
        pipeline: Option<&str>,
        process: ProcessId,
        woken: impl Fn() + Send + 'static,
    ) {
        let name = match (role, pipeline) {
            (Role::Worker, pipeline) => Recipient::Worker(pipeline.unwrap_or_default()),
            (Role::Advancer, _) => Recipient::Advancer,
            (Role::Supervisor, _) => Recipient::Supervisor,
            // Nothing that the console does waits for others.
            (Role::Console, _) => return,
        };
        self.hear(&name, process, woken);
    }

    /// Likewise hears that claims may have been taken away.
    pub fn listen_for_claims(&self, process: ProcessId, woken: impl Fn() + Send + 'static) {
        self.hear(&Recipient::Claims, process, woken);
    }

    fn hear(&self, name: &Recipient<'_>, process: ProcessId, woken: impl Fn() + Send + 'static) {
        let Some(dir) = &self.dir else { return };
        match WakeupSocket::bind(dir, name, process.0) {
            Ok(mut socket) => {
                task::local(async move {
                    loop {
                        socket.woken().await;
                        woken();
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "no wakeups: work is found by polling"),
        }
    }
}

struct ProcessWaker {
    sender: Option<Sender>,
    requests: Option<mpsc::UnboundedSender<Request>>,
    origin: String,
    /// When the last notification was sent, or will be.
    notified: Mutex<Option<Instant>>,
}

impl ProcessWaker {
    fn wake(&self, target: Recipient<'_>, payload: &str) {
        if let Some(sender) = &self.sender {
            sender.wake(target);
        }
        let Some(requests) = &self.requests else {
            return;
        };
        let Some(wait) = self.wait() else {
            return;
        };
        let (requests, request) = (
            requests.clone(),
            Request::Notify(format!("{}{payload}", self.origin)),
        );
        // If the lifeline has ended, so has this process.
        if wait.is_zero() {
            let _ = requests.send(request);
        } else {
            task::anywhere(async move {
                tokio::time::sleep(wait).await;
                let _ = requests.send(request);
            });
        }
    }

    /// How long a notification waits until the last one is old enough; `None` where one waits already, which is as good:
    /// a process that hears one looks at everything.
    ///
    /// RACE: other hosts that heard the last one have looked by now, and found nothing. A notification that was left
    /// out because it comes soon after would leave the work to their next poll. Proven by
    /// `a_wakeup_that_comes_soon_after_another_is_sent_later_and_once`.
    fn wait(&self) -> Option<Duration> {
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let wait = match *notified {
            Some(at) if at > now => return None,
            Some(at) => NOTIFY_EVERY.saturating_sub(now - at),
            None => Duration::ZERO,
        };
        *notified = Some(now + wait);
        Some(wait)
    }
}

impl Waker for ProcessWaker {
    fn claims_revoked(&self) {
        if let Some(sender) = &self.sender {
            sender.wake(Recipient::Claims);
        }
    }

    fn registered(&self) {
        if let Some(sender) = &self.sender {
            sender.wake(Recipient::Supervisor);
        }
    }

    fn job_available(&self, pipeline: &str) {
        self.wake(Recipient::Worker(pipeline), pipeline);
    }

    fn branch_available(&self) {
        self.wake(Recipient::Advancer, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wakeup_that_comes_soon_after_another_is_sent_later_and_once() {
        let (requests, mut sent) = mpsc::unbounded_channel();
        let waker = ProcessWaker {
            sender: None,
            requests: Some(requests),
            origin: "here:".to_owned(),
            notified: Mutex::default(),
        };
        let began = Instant::now();
        for _ in 0..5 {
            waker.job_available("P");
            waker.branch_available();
        }
        let mut payloads = Vec::new();
        for _ in 0..2 {
            match sent.recv().await {
                Some(Request::Notify(payload)) => payloads.push(payload),
                _ => panic!("something else was requested"),
            }
        }
        assert_eq!(payloads, ["here:P", "here:"]);
        assert!(began.elapsed() >= NOTIFY_EVERY);
        drop(waker);
        assert!(sent.recv().await.is_none(), "more was sent");
    }
}
