//! The listener and its connections.
//!
//! Owns: accepting within a bound, one task for each connection, and the orderly end of all. Never: knows a route, or
//! the content of a request.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::task;
use crate::telemetry::growing::Growing;

use super::Site;
use super::bulks;
use super::listeners::{Doors, Guest};
use super::peer::Peer;
use super::routes::{Route, router};
use super::series;
use super::traces;
use super::unstalled::Unstalled;
use super::webhooks;

/// The greatest number of connections at once; further ones wait in the kernel until one of these ends.
const CONNECTIONS_MAX: usize = 512;

/// The time in which a connection must send the head of a request, and in which it may be idle before its next one.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// This many are reserved for clients that send their requests promptly: while no more are free, the head of a request
/// has less time, and so has its body; and a connection is answered once.
const SPARE: usize = CONNECTIONS_MAX / 4;
pub const HURRIED_WITHIN: Duration = Duration::from_secs(1);

/// The connections that are still free.
#[derive(Clone)]
pub struct Slots(Arc<Semaphore>);

impl Slots {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS_MAX)))
    }

    async fn take(&self) -> OwnedSemaphorePermit {
        let slot = Arc::clone(&self.0).acquire_owned().await;
        slot.expect("nobody closes the semaphore")
    }

    /// True while those who wait need the connections of those who have been answered, or who are slow.
    ///
    /// RACE: a visitor with as many connections as there may be sends a request on each now and then. Nobody else is
    /// answered, not even a probe. Proven by `visitors_who_come_again_and_again_make_room`.
    pub fn are_scarce(&self) -> bool {
        self.0.available_permits() < SPARE
    }
}

/// A larger head is not even read. The bound lies somewhat above the guard's, so that the guard can give the reason.
const HEAD_MAX: usize = 32 << 10;

/// This many bytes of a request or a response wait in a connection's own buffer.
const BUFFER_MAX: usize = 128 << 10;

/// A client that has gone without a word is detected within these times: the kernel probes it after the first time and
/// then at this interval, and sent data may stay unacknowledged for the whole time.
const SILENT: Duration = Duration::from_secs(15);
const ASKED_AGAIN: (Duration, u32) = (Duration::from_secs(5), 3);
const GONE_AFTER: Duration = Duration::from_secs(30);

/// This many bytes wait in the kernel for a client that does not read, plus as many of the kernel's own.
const UNSENT: usize = 256 << 10;

/// The time limit for requests under way at the end.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);

/// The interval between two signs that the loop turns.
const TURN: Duration = Duration::from_secs(1);

/// A listener that is running.
pub struct Running {
    /// The time by which everything must have ended.
    until: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends by then: requests under way are answered, and so are others as long as one of these is under way.
    pub async fn drain(mut self, until: Instant) {
        let until = until.min(Instant::now() + DRAINS_WITHIN);
        self.until.send_replace(Some(until));
        self.ended().await;
    }

    /// Returns when the listener has ended.
    pub async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Serves these routes in tasks of this thread.
pub fn start(
    doors: Doors,
    routes: impl IntoIterator<Item = &'static Route>,
    site: Arc<Site>,
) -> Running {
    let (until, told) = watch::channel(None);
    let router = router(routes, Arc::clone(&site));
    let mut duties = JoinSet::new();
    duties.spawn_local(task::boxed(bulks::work(Arc::clone(&site))));
    duties.spawn_local(task::boxed(webhooks::work(Arc::clone(&site))));
    duties.spawn_local(task::boxed(traces::work(Arc::clone(&site))));
    duties.spawn_local(task::boxed(series::work(Arc::clone(&site))));
    let task = task::local(async move {
        tokio::select! {
            () = serve(doors, router, Arc::clone(&site), told) => {}
            panic = panic_of(&mut duties) => std::panic::resume_unwind(panic),
        }
        // The run that is being worked on is changed or is not, and a minute is written or is not. Messages and traces
        // that are on their way are sent once more.
        duties.shutdown().await;
        site.duties.give_back(&site.duty_acts).await;
    });
    Running { until, task }
}

/// Returns the panic of a duty, which is a bug. Nobody would notice that a console neither sends messages nor works on bulk
/// actions, so the process has to end, and another one begins. A duty without an endpoint or a collector ends at once.
async fn panic_of(duties: &mut JoinSet<()>) -> Box<dyn std::any::Any + Send> {
    while let Some(ended) = duties.join_next().await {
        if let Err(ended) = ended {
            return ended.into_panic();
        }
    }
    std::future::pending().await
}

async fn serve(
    mut doors: Doors,
    router: Router,
    site: Arc<Site>,
    mut told: watch::Receiver<Option<Instant>>,
) {
    let slots = Slots::new();
    let mut connections = JoinSet::new();
    let mut turn = tokio::time::interval(TURN);
    let mut refused = Growing::default();
    loop {
        let until = *told.borrow_and_update();
        if until.is_some() && connections.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            () = over(until) => return,
            changed = told.changed() => match changed {
                Ok(()) => {
                    site.health.drain();
                    site.live.end();
                }
                // Nobody is left who could tell it anything.
                Err(_) => return,
            },
            _ = turn.tick() => {
                site.health.turn();
                if let Err(error) = doors.look_after().await
                    && refused.meet(&(), Instant::now()).is_some()
                {
                    tracing::warn!(%error, "the console's socket was deleted, and cannot be made anew");
                }
            }
            Some(_) = connections.join_next() => {}
            (accepted, slot) = accept(&doors, &slots) => match accepted {
                Ok((guest, peer)) => {
                    let (router, told) = (router.clone(), told.clone());
                    let held = (slots.clone(), slot);
                    connections.spawn_local(match guest {
                        Guest::Far(stream) => {
                            bound(&stream);
                            task::boxed(connection(stream, peer, router, told, held))
                        }
                        Guest::Near(stream) => {
                            task::boxed(connection(stream, peer, router, told, held))
                        }
                    });
                }
                Err(error) => {
                    // Perhaps too many files are open: other connections may end.
                    if refused.meet(&(), Instant::now()).is_some() {
                        tracing::warn!(%error, "the console cannot accept connections");
                    }
                    drop(slot);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

async fn accept(
    doors: &Doors,
    slots: &Slots,
) -> (std::io::Result<(Guest, Peer)>, OwnedSemaphorePermit) {
    let slot = slots.take().await;
    (doors.accept().await, slot)
}

/// Lets the kernel end the connection when the other end has gone, or has read nothing for long.
///
/// A kernel that refuses one of these options keeps a connection for longer; nothing else depends on them.
fn bound(stream: &TcpStream) {
    let seconds = |it: Duration| u32::try_from(it.as_secs()).unwrap_or(u32::MAX);
    let gone = u32::try_from(GONE_AFTER.as_millis()).unwrap_or(u32::MAX);
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &seconds(SILENT));
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &seconds(ASKED_AGAIN.0));
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &ASKED_AGAIN.1);
    let _ = setsockopt(stream, sockopt::TcpUserTimeout, &gone);
    let _ = setsockopt(stream, sockopt::SndBuf, &UNSENT);
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Peer,
    router: Router,
    mut told: watch::Receiver<Option<Instant>>,
    (slots, _slot): (Slots, OwnedSemaphorePermit),
) {
    let head_within = match slots.are_scarce() {
        true => HURRIED_WITHIN,
        false => HEAD_WITHIN,
    };
    // RACE: a visitor comes while the console drains. Telling the connection at once would close it before its request
    // is read, so it answers one request instead. Proven by
    // `a_console_that_drains_answers_as_long_as_somebody_waits_for_a_response`.
    let is_late = told.borrow().is_some();
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(slots.clone());
        let (answered, slots) = (router.call(request), slots.clone());
        async move {
            let mut response = answered.await?;
            if slots.are_scarce() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(!is_late)
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_header_size(HEAD_MAX)
        .max_buf_size(BUFFER_MAX)
        .serve_connection(TokioIo::new(Unstalled::new(stream, head_within)), service);
    let mut connection = pin!(connection);
    // A client that leaves, or does not speak HTTP, fails alone.
    tokio::select! {
        _ended = connection.as_mut() => return,
        _told = told.wait_for(Option::is_some), if !is_late => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_duty_that_panics_is_noticed_although_others_have_nothing_to_do() {
        let mut duties = JoinSet::new();
        duties.spawn(async {});
        duties.spawn(std::future::pending());
        tokio::task::yield_now().await;
        duties.spawn(async { panic!("a bug") });
        let panic = panic_of(&mut duties).await;
        assert_eq!(panic.downcast_ref(), Some(&"a bug"));
    }

    #[tokio::test]
    async fn a_connection_whose_other_end_has_gone_is_ended_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, stream) = (client.unwrap(), accepted.unwrap().0);
        bound(&stream);
        assert!(getsockopt(&stream, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&stream, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&stream, sockopt::TcpKeepInterval).unwrap();
        let count = getsockopt(&stream, sockopt::TcpKeepCount).unwrap();
        assert_eq!(idle + interval * count, 30);
        assert_eq!(
            getsockopt(&stream, sockopt::TcpUserTimeout).unwrap(),
            30_000
        );
        // The kernel includes its own overhead.
        assert!(getsockopt(&stream, sockopt::SndBuf).unwrap() <= 2 * UNSENT);
    }
}
