//! Responses on their way to visitors.
//!
//! Owns: the bound on the bytes of all long responses together that wait for their visitors to read. Never: knows the
//! content of a response.
//!
//! RACE: visitors ask for long payloads on many connections and read slowly. Each payload waits in memory, and the
//! kernel ends the console for want of it. Proven by `long_responses_wait_in_bounded_memory`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Frame, SizeHint};

use super::failed_sign_ins::Remote;
use super::quota::{Full, Share, Shares, Who};
use super::refusal::Refusal;
use super::visitor::Asking;

/// A shorter response is not counted: the number of connections bounds them.
const LONG: u64 = 64 << 10;

/// No page and no list is longer, nor the metrics of as many steps as have series of their own: they do not wait for
/// payloads.
const LONGER: u64 = 4 << 20;

/// The bytes of all long responses together, and of all longer ones. One that is longer than this has it all for itself.
const ROOMS: [usize; 2] = [32 << 20, 64 << 20];

/// A visitor has to read at this pace while the room is missed: so many bytes in each second, and all of it within a
/// time, after a while in which a network may stall.
const PACE: u64 = 64 << 10;
const READ_WITHIN: Duration = Duration::from_secs(120);
const STALL: Duration = Duration::from_secs(10);

/// The room is missed for this long after a response was refused, unless there is room for it again.
const MISSED_FOR: Duration = Duration::from_secs(60);

/// A response is handed to its connection in parts, so that it is known how much of it has been taken.
const PART: usize = 64 << 10;

/// A room for responses.
struct Room {
    bytes: usize,
    shares: Shares<()>,
}

/// The rooms for long responses and for longer ones.
pub struct Outgoing([Room; 2]);

impl Outgoing {
    /// All of it is free.
    pub fn new() -> Self {
        Self(ROOMS.map(|bytes| Room {
            bytes,
            shares: Shares::new(bytes),
        }))
    }

    /// The same response to a request of this method from this address, which has its room until its visitor has read
    /// it. A refusal if there is none, and if the request may be sent again.
    pub fn admit(&self, from: Remote, method: &Method, mut response: Response) -> Response {
        let bytes = response.body().size_hint().exact().unwrap_or(0);
        if bytes < LONG {
            return response;
        }
        let asking = response.extensions_mut().remove::<Asking>();
        let who = match &asking {
            Some(asking) => Who::of(&asking.visitor, from),
            None => Who::At(from),
        };
        let [long, longer] = &self.0;
        let room = if bytes < LONGER { long } else { longer };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(room.bytes);
        let share = match room.shares.take(who.clone(), bytes) {
            Ok(share) => Some(share),
            // The deed is done: its visitor learns of it.
            Err(_) if !method.is_safe() => None,
            Err(full) => {
                room.shares.miss(&who, bytes);
                let detail = match full {
                    Full::All => {
                        "other visitors are reading so many long responses that there is no room for this one"
                    }
                    Full::Theirs => {
                        "you are reading so many long responses that another one would leave too little room for others"
                    }
                };
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, detail).later(2);
                let mut refused = refusal.into_response();
                if let Some(asking) = asking {
                    refused.extensions_mut().insert(asking);
                }
                return refused;
            }
        };
        response.map(|body| {
            Body::new(Parts {
                body,
                rest: Bytes::new(),
                share,
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
    share: Option<Share<()>>,
    began: Instant,
    taken: u64,
}

impl Parts {
    /// True of a visitor who reads slowly while others need the room. A response of which nothing is counted takes none.
    fn is_in_the_way(&self) -> bool {
        let Some(share) = &self.share else {
            return false;
        };
        is_too_slow(self.taken, share.amount, self.began.elapsed()) && share.is_missed(MISSED_FOR)
    }
}

/// True of a visitor who has taken so many bytes of a share in this time.
fn is_too_slow(taken: u64, share: usize, within: Duration) -> bool {
    let pace = PACE.max(share as u64 / READ_WITHIN.as_secs());
    within > Duration::from_secs(taken / pace) + STALL
}

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_in_the_way() {
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

    fn remote(host: u8) -> Remote {
        Remote::of([192, 0, 2, host].into())
    }

    async fn part(body: &mut Body) -> Option<Result<usize, axum::Error>> {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.into_data().map_or(0, |data| data.len())))
    }

    #[tokio::test]
    async fn a_long_response_has_its_room_until_it_has_been_read() {
        let outgoing = Outgoing::new();
        let longest = outgoing.admit(remote(1), &Method::GET, response(ROOMS[1] + MUCH));
        assert_eq!(longest.status(), 200, "it has all of it");
        let status = |method, bytes| outgoing.admit(remote(2), &method, response(bytes)).status();
        assert_eq!(status(Method::GET, MUCH), 503);
        assert_eq!(status(Method::HEAD, MUCH), 503);
        // A deed has been done, whether its response has room or not.
        assert_eq!(status(Method::POST, MUCH), 200);
        // Pages, lists and metrics do not wait for payloads.
        assert_eq!(status(Method::GET, LONGER as usize - 1), 200);
        assert_eq!(status(Method::GET, LONG as usize - 1), 200);

        let (all, mut read) = (ROOMS[1] + MUCH, 0);
        let mut body = longest.into_body();
        assert_eq!(body.size_hint().exact(), Some(all as u64));
        while let Some(part) = part(&mut body).await {
            read += part.unwrap();
            assert_eq!(body.size_hint().exact(), Some((all - read) as u64));
        }
        assert!(body.is_end_stream());
        assert_eq!(read, all);
        assert_eq!(status(Method::GET, MUCH), 503, "it is not gone yet");
        drop(body);
        assert_eq!(status(Method::GET, MUCH), 200);
    }

    #[tokio::test]
    async fn a_visitor_who_takes_much_leaves_room_for_others() {
        let outgoing = Outgoing::new();
        for (bytes, room) in [(MUCH, ROOMS[1]), (LONGER as usize / 2, ROOMS[0])] {
            let mut taken = Vec::new();
            for host in 1..=3 {
                let before = taken.len();
                for _ in 0..room / bytes {
                    let response = outgoing.admit(remote(host), &Method::GET, response(bytes));
                    taken.extend((response.status() == 200).then_some(response));
                }
                let theirs = (taken.len() - before) * bytes;
                assert_eq!(theirs, room >> host, "{bytes} bytes, visitor {host}");
            }
        }
    }

    #[tokio::test]
    async fn a_visitor_who_reads_slowly_makes_room_when_others_need_it() {
        let outgoing = Outgoing::new();
        let hour = Duration::from_secs(3_600);
        let parts = |host, bytes| {
            let room = &outgoing.0[1];
            Parts {
                body: Body::from(vec![b'x'; bytes]),
                rest: Bytes::new(),
                share: room.shares.take(Who::At(remote(host)), bytes).ok(),
                began: Instant::now().checked_sub(hour).unwrap(),
                taken: 0,
            }
        };
        let mut slow = Body::new(parts(1, ROOMS[1]));
        let read = part(&mut slow).await.unwrap();
        assert_eq!(read.unwrap(), PART, "nobody needs its room");
        let ask = || {
            outgoing
                .admit(remote(2), &Method::GET, response(MUCH))
                .status()
        };
        assert_eq!(ask(), 503);
        assert!(part(&mut slow).await.unwrap().is_err());
        drop(slow);
        assert_eq!(ask(), 200);
    }

    #[test]
    fn a_network_may_stall_for_a_while() {
        let seconds = Duration::from_secs;
        let little = LONG as usize;
        assert!(!is_too_slow(0, little, STALL));
        assert!(is_too_slow(0, little, STALL + seconds(1)));
        assert!(!is_too_slow(60 * PACE, little, STALL + seconds(60)));
        assert!(is_too_slow(59 * PACE, little, STALL + seconds(60)));
        // The whole room, of which half has been read in half of the time.
        let (half, within) = (ROOMS[1] as u64 / 2, STALL + READ_WITHIN / 2);
        assert!(!is_too_slow(half, ROOMS[1], within));
        assert!(is_too_slow(half, ROOMS[1], within + seconds(2)));
    }
}
