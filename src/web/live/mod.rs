//! Streams: responses that go on while somebody listens.
//!
//! Owns: the ends of streams: the listener leaves or does not read, the console drains, the visitor's token
//! ends. Never: decides what is sent: `page` does, for pages that renew themselves, and `events` does, for
//! changes of runs.
//!
//! One reading serves all listeners, and nothing is read while nobody listens.

mod change_cursor;
pub mod events;
mod feed;
mod page;
mod seal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{mpsc, watch};

use crate::store::token;
use crate::task;

use super::Site;
use super::failed_sign_ins::Remote;
use super::quota::{Full, Share, Shares, Who};
use super::refusal::Refusal;
use super::visitor::Visitor;

pub use page::page;

/// A proxy's word about a visitor counts for this long.
const VOUCHED_FOR: Duration = Duration::from_secs(60);
/// The interval between two looks at the tokens of listeners.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(2);

/// A stream is never silent for longer than this, so that a listener that has left without notice is
/// detected.
const BEAT: Duration = Duration::from_secs(15);

/// The shortest pause between two readings of a page, or of the changes, for its listeners.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The pause after a reading is this many times as long as the reading took, so readings take a twentieth of the time
/// at most; but see [`READ_WITHIN`].
const TIMES_AS_LONG: u32 = 20;

/// The greatest number of streams at once.
const STREAMS_MAX: usize = 200;

/// A visitor's turn at reading pages.
type Turn = tokio::sync::Mutex<()>;

/// A place among the streams.
type Seat = Share<Turn>;

/// The longest pause between two readings, however long a reading takes.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The time between a reading that failed, or took too long, and the next one: the cost of one reading says
/// nothing about the next.
const READ_AGAIN: Duration = Duration::from_millis(1_500);

/// A reading of changes that exist already waits for a shorter time: it takes a fifth of the time at most.
const HURRIED: (Duration, u32) = (Duration::from_millis(50), 4);

const KIND: &str = "text/event-stream";

/// Tells a proxy to pass on each part as it comes.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The streams of a console.
pub struct Live {
    seats: Shares<Turn>,
    over: watch::Sender<bool>,
    holders: Mutex<Holders>,
    rooms: page::Rooms,
    feed: events::Feed,
}

/// The tokens with which visitors listen; false: the token no longer holds.
#[derive(Default)]
struct Holders {
    of: BTreeMap<String, watch::Sender<bool>>,
    are_watched: bool,
}

impl Live {
    /// The streams of a console to which nobody listens yet.
    pub fn new() -> Self {
        Self {
            seats: Shares::new(STREAMS_MAX),
            over: watch::Sender::new(false),
            holders: Mutex::default(),
            rooms: page::Rooms::default(),
            feed: events::Feed::default(),
        }
    }

    /// Ends all streams; no other one begins.
    pub fn end(&self) {
        self.over.send_replace(true);
    }
}

/// True if a visitor asks for changes.
pub fn is_wanted(request: &Request) -> bool {
    let accepted = request.headers().get(ACCEPT).map(HeaderValue::to_str);
    *request.method() == Method::GET && accepted.is_some_and(|it| it.is_ok_and(|it| it == KIND))
}

/// The time until the next reading, after a reading that took this long.
fn pause(took: Duration) -> Duration {
    (took * TIMES_AS_LONG).clamp(READ_EVERY, READ_WITHIN)
}

/// The same, after a reading that did not reach the end.
fn hurried(took: Duration) -> Duration {
    (took * HURRIED.1).clamp(HURRIED.0, READ_WITHIN)
}

/// A stream, seen from its sending end.
struct Stream {
    parts: mpsc::Sender<Bytes>,
    over: watch::Receiver<bool>,
    /// False: the visitor's token no longer holds.
    holds: Option<watch::Receiver<bool>>,
    /// At this time the stream ends, and its reader asks again, so that the peer states again who the
    /// visitor is.
    until: Option<tokio::time::Instant>,
    seat: Arc<Seat>,
}

/// A stream to this visitor, and the response that is its other end.
fn open(site: &Arc<Site>, visitor: &Visitor, from: Remote) -> Result<(Stream, Response), Refusal> {
    let live = &site.live;
    let refused = |detail| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).later(5);
    if *live.over.borrow() {
        return Err(refused("the console is about to end"));
    }
    let seat = live.seats.take(Who::of(visitor, from), 1);
    let seat = seat.map_err(|full| {
        refused(match full {
            Full::All => "as many listen as may at once",
            Full::Theirs => "you have as many streams as are left for others: close some",
        })
    })?;
    // The next part waits until this one has been written: a listener that does not read gets less, and
    // nothing piles up here.
    let (parts, told) = mpsc::channel(1);
    let stream = Stream {
        parts,
        over: live.over.subscribe(),
        holds: visitor.token.as_ref().map(|token| holder(site, token)),
        until: (visitor.has_signed_in && visitor.token.is_none())
            .then(|| tokio::time::Instant::now() + VOUCHED_FOR),
        seat: Arc::new(seat),
    };
    let mut response = Body::new(Told(told)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok((stream, response))
}

impl Stream {
    /// Sends this part to the listener; false once the stream is over.
    async fn tell(&mut self, part: String) -> bool {
        let parts = self.parts.clone();
        let told = self.unless_over(parts.send(part.into())).await;
        told.is_some_and(|told| told.is_ok())
    }

    /// The value of a future, unless the stream ends first.
    async fn unless_over<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let Self {
            over, holds, until, ..
        } = self;
        let ends = async {
            match until {
                Some(until) => tokio::time::sleep_until(*until).await,
                None => std::future::pending().await,
            }
        };
        let revoked = async {
            match holds {
                // A sender that is gone has sent false before.
                Some(holds) => drop(holds.wait_for(|holds| !holds).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = over.wait_for(|over| *over) => None,
            () = revoked => None,
            () = ends => None,
            () = self.parts.closed() => None,
            value = future => Some(value),
        }
    }
}

/// A stream, seen from its receiving end.
struct Told(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.0.poll_recv(cx);
        part.map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

/// The channel by which the listeners with this token learn that it no longer holds.
fn holder(site: &Arc<Site>, token: &str) -> watch::Receiver<bool> {
    let mut holders = lock(&site.live.holders);
    if !holders.are_watched {
        holders.are_watched = true;
        task::anywhere(look_after(Arc::clone(site)));
    }
    let holder = holders.of.entry(token.to_owned());
    holder
        .or_insert_with(|| watch::Sender::new(true))
        .subscribe()
}

/// Checks all these tokens with one query, as long as somebody listens with one.
async fn look_after(site: Arc<Site>) {
    loop {
        tokio::time::sleep(LOOKED_AT_EVERY).await;
        let ids: Vec<String> = {
            let mut holders = lock(&site.live.holders);
            holders.of.retain(|_, holder| holder.receiver_count() > 0);
            holders.are_watched = !holders.of.is_empty();
            if !holders.are_watched {
                return;
            }
            holders.of.keys().cloned().collect()
        };
        let asked = ids.clone();
        let holding = site
            .source
            .read(async move |conn| token::holding(conn, &asked).await);
        // While the database is away, nothing is sent either.
        let Ok(holding) = holding.await else {
            continue;
        };
        let mut holders = lock(&site.live.holders);
        for id in ids.iter().filter(|id| !holding.contains(id)) {
            if let Some(holder) = holders.of.remove(id) {
                holder.send_replace(false);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
