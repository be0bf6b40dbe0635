//! The reasons for which a daemon ends although nobody asked it to.
//!
//! Owns: the watch for them: the database's file has moved, the schema has outgrown this program, or
//! no work is left, where that is to end the daemon. Never: ends anything; the supervisor and the
//! children that run alone do.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::engine::lifeline::Request;
use crate::store::backend::sqlite::file::Side;
use crate::store::{self, Location};
use crate::telemetry::events;
use crate::telemetry::growing::Growing;

/// A person who waits longer than this for the end of a daemon asks why.
const ASKED_AFTER: Duration = Duration::from_secs(5);

/// Why a daemon ends without having been asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Its exit code.
    pub code: u8,
    /// The children get no time to finish: the less they write, the better.
    pub at_once: bool,
}

impl Over {
    /// Ends with this code, when the children have finished.
    pub fn with(code: u8) -> Self {
        let at_once = false;
        Self { code, at_once }
    }
}

/// The exit status of a daemon that ends because the schema has outgrown it.
const OUTGROWN: u8 = 1;

/// The exit status of a daemon that ends because its file is not where it was. As the unit says,
/// systemd does not start it again: it would begin with the file that is there now.
const MISPLACED: u8 = 2;

/// How often a daemon, or a console that runs alone, checks whether the schema has outgrown it.
const SCHEMA_EVERY: Duration = Duration::from_secs(10);

/// How often a daemon checks whether its file is where it was: until then, commits go along with the file.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// The pause between two questions whether work is left,
const IDLE_EVERY: Duration = Duration::from_millis(100);

/// and after one without an answer.
const IDLE_AGAIN: Duration = Duration::from_secs(1);

/// Returns when this daemon cannot go on with its database, with the exit status that says so.
pub async fn unfit(requests: &mpsc::UnboundedSender<Request>, location: &Location) -> Over {
    tokio::select! {
        () = outgrown(requests) => Over::with(OUTGROWN),
        at_once = misplaced(location) => Over { code: MISPLACED, at_once },
    }
}

/// Returns when SQLite's file is not where it was, or a file that belongs to it is gone. Returns true when
/// further writes are in vain, or need the file that is gone.
async fn misplaced(location: &Location) -> bool {
    let mut displaced = None;
    loop {
        if let Err(error) = location.check_file() {
            tracing::error!(%error, "stopping");
            // A step that went on would do its work for a result that nobody will see.
            return location.is_deleted();
        }
        // The last of all connections deletes both files itself when it closes. If one is missing
        // twice, somebody else deleted it.
        let before = std::mem::replace(&mut displaced, location.displaced());
        if let Some(side) = displaced.filter(|_| before.is_some()) {
            tracing::error!(error = side.meaning(), "stopping");
            return side == Side::Index;
        }
        tokio::time::sleep(FILE_EVERY).await;
    }
}

/// Returns when a newer program has changed the schema so that this one cannot work with it any more.
/// Reports once a newer schema that it can work with.
async fn outgrown(requests: &mpsc::UnboundedSender<Request>) {
    let mut reported = None;
    loop {
        let (reply, answer) = oneshot::channel();
        if requests.send(Request::Schema(reply)).is_ok() {
            match answer.await {
                Ok(Ok(Some(version))) if reported != Some(version) => {
                    reported = Some(version);
                    tracing::warn!(
                        version,
                        "the schema is newer than this ductworkd, which can work with it: install the \
                         newer one here, too"
                    );
                }
                Ok(Err(error @ store::Error::Schema(_))) => {
                    tracing::error!(%error, "stopping");
                    return;
                }
                _ => {}
            }
        }
        tokio::time::sleep(SCHEMA_EVERY).await;
    }
}

/// Returns when no work is left in these pipelines (`None`: in all). Reports, once, each run that is waited for so long
/// that a person would ask.
pub async fn until_idle(requests: &mpsc::UnboundedSender<Request>, pipelines: Option<Vec<String>>) {
    let (mut waiting, mut since, mut told) = (None, Instant::now(), None);
    let mut failing = Growing::default();
    loop {
        let mut pause = IDLE_EVERY;
        let (reply, answer) = oneshot::channel();
        // Without a receiver, the reply is dropped.
        let _ = requests.send(Request::AnyWork(pipelines.clone(), reply));
        match answer.await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(left))) if left.run != waiting => {
                (waiting, since) = (left.run, Instant::now());
            }
            Ok(Ok(Some(_))) => {}
            Ok(Err(error)) => {
                // The loss of a connection is logged elsewhere.
                if !error.is_unavailable() && failing.meet(&(), Instant::now()).is_some() {
                    events::idleness_unknown(&error);
                }
                pause = IDLE_AGAIN;
            }
            Err(_) => {}
        }
        if let Some(run) = waiting
            && told != waiting
            && since.elapsed() >= ASKED_AFTER
        {
            told = waiting;
            events::not_idle(run);
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::telemetry::testing::Logged;

    use super::*;

    #[tokio::test]
    async fn a_daemon_that_cannot_find_out_whether_it_is_idle_says_so_once_and_asks_more_rarely() {
        let logged = Logged::begin();
        let (requests, mut asked) = mpsc::unbounded_channel();
        let answering = async {
            for failed in [true, true, false] {
                let Some(Request::AnyWork(_, reply)) = asked.recv().await else {
                    panic!("it asks for something else");
                };
                let failure = || store::Error::Corrupt("no work is a number".to_owned());
                let answer = if failed { Err(failure()) } else { Ok(None) };
                assert!(reply.send(answer).is_ok(), "it waits");
            }
        };
        let began = Instant::now();
        tokio::join!(until_idle(&requests, None), answering);
        assert!(began.elapsed() >= IDLE_AGAIN * 2);
        assert_eq!(logged.count("cannot find out whether work is left"), 1);
    }
}
