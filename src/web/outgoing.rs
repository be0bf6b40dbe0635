//! Responses on their way to visitors.
//!
//! Owns: the bound on the bytes of all long responses together that wait for their visitors to read. Never: knows the
//! content of a response.
//!
//! RACE: visitors ask for long payloads on many connections and read slowly. Each payload waits in memory, and the
//! kernel ends the console for want of it. Proven by `long_responses_wait_in_bounded_memory`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;

/// A shorter response is not counted: the number of connections bounds them.
const LONG: u64 = 64 << 10;

/// The bytes of all long responses together. One that is longer than this has it all for itself.
const ROOM: u32 = 64 << 20;

/// While less than this is free, a visitor has to read at a certain pace.
const SCARCE: usize = ROOM as usize / 4;

/// This pace: so many bytes in each second, after a while in which a network may stall.
const PACE: u64 = 64 << 10;
const STALL: Duration = Duration::from_secs(10);

/// A response is handed to its connection in parts, so that it is known how much of it has been taken.
const PART: usize = 64 << 10;

/// The room for long responses.
pub struct Outgoing(Arc<Semaphore>);

impl Outgoing {
    /// All of it is free.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOM as usize)))
    }

    /// The same response to a request of this method, which has its room until its visitor has read it. A refusal if
    /// there is none, and if the request may be sent again.
    pub fn admit(&self, method: &Method, response: Response) -> Response {
        let bytes = response.body().size_hint().exact().unwrap_or(0);
        if bytes < LONG {
            return response;
        }
        let bytes = u32::try_from(bytes).unwrap_or(ROOM).min(ROOM);
        let room = Arc::clone(&self.0).try_acquire_many_owned(bytes).ok();
        if room.is_none() && method.is_safe() {
            let detail = "other visitors are reading so many long responses that there is no room for this one";
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail);
            return refusal.later(2).into_response();
        }
        response.map(|body| {
            Body::new(Parts {
                body,
                rest: Bytes::new(),
                all: Arc::clone(&self.0),
                _room: room,
                began: Instant::now(),
                taken: 0,
            })
        })
    }
}

/// The body of a long response.
struct Parts {
    body: Body,
    /// Of the last frame of `body`.
    rest: Bytes,
    all: Arc<Semaphore>,
    _room: Option<OwnedSemaphorePermit>,
    began: Instant,
    taken: u64,
}

/// True of a visitor who has taken so many bytes in this time, and in whose way others are.
fn is_too_slow(taken: u64, within: Duration, free: usize) -> bool {
    free < SCARCE && within > Duration::from_secs(taken / PACE) + STALL
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if is_too_slow(
            self.taken,
            self.began.elapsed(),
            self.all.available_permits(),
        ) {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let part = PART.min(self.rest.len());
        // A copy, because the last part would otherwise keep the whole response in memory.
        let part = Bytes::copy_from_slice(&self.rest.split_to(part));
        self.taken += part.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(bytes) => SizeHint::with_exact(bytes + rest),
            None => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 8 << 20;

    fn response(bytes: usize) -> Response {
        vec![b'x'; bytes].into_response()
    }

    async fn part(body: &mut Body) -> Option<Result<usize, axum::Error>> {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().map_or(0, |data| data.len())))
    }

    #[tokio::test]
    async fn a_long_response_has_its_room_until_it_has_been_read() {
        let outgoing = Outgoing::new();
        let mut bodies: Vec<Body> = (0..8)
            .map(|_| outgoing.admit(&Method::GET, response(MUCH)).into_body())
            .collect();
        let status = |method, bytes| outgoing.admit(&method, response(bytes)).status();
        assert_eq!(status(Method::GET, MUCH), 503);
        assert_eq!(status(Method::HEAD, MUCH), 503);
        // A deed has been done, whether its response has room or not.
        assert_eq!(status(Method::POST, MUCH), 200);
        assert_eq!(status(Method::GET, LONG as usize - 1), 200);

        let mut body = bodies.pop().unwrap();
        let mut read = 0;
        assert_eq!(body.size_hint().exact(), Some(MUCH as u64));
        while let Some(part) = part(&mut body).await {
            read += part.unwrap();
            assert_eq!(body.size_hint().exact(), Some((MUCH - read) as u64));
        }
        assert!(body.is_end_stream());
        assert_eq!(read, MUCH);
        assert_eq!(status(Method::GET, MUCH), 503, "it is not gone yet");
        drop(body);
        assert_eq!(status(Method::GET, MUCH), 200);
    }

    #[tokio::test]
    async fn a_response_that_is_longer_than_the_room_has_all_of_it() {
        let outgoing = Outgoing::new();
        let longest = outgoing.admit(&Method::GET, response(ROOM as usize + MUCH));
        assert_eq!(longest.status(), 200);
        assert_eq!(outgoing.admit(&Method::GET, response(MUCH)).status(), 503);
    }

    #[test]
    fn a_visitor_is_too_slow_below_a_certain_pace_while_there_is_little_room() {
        let seconds = Duration::from_secs;
        let little = SCARCE - 1;
        assert!(!is_too_slow(0, STALL, little));
        assert!(is_too_slow(0, STALL + seconds(1), little));
        assert!(!is_too_slow(60 * PACE, STALL + seconds(60), little));
        assert!(is_too_slow(59 * PACE, STALL + seconds(60), little));
        assert!(
            !is_too_slow(0, seconds(3_600), SCARCE),
            "nobody needs the room yet"
        );
    }
}
