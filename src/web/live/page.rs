//! Pages that renew themselves while they are looked at.
//!
//! Owns: one reading of a page for all who look at it, and telling them what it shows when that has changed.
//! Never: knows a page: it asks the page's own route.
//!
//! A part of the stream is all that the page shows, so whoever missed one misses nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::super::Site;
use super::super::guard::caught;
use super::super::pages::main_of;
use super::super::refusal::Refusal;
use super::super::visitor::{Visitor, as_asked_by};
use super::{BEAT, Stream, lock, open, pause};

/// A reading may take so long.
const WITHIN: Duration = Duration::from_secs(5);

/// The largest page.
const BYTES_MAX: usize = 4 << 20;

/// An address, and whoever it is the same page for: a visitor without a name, and with a proof that stands for
/// the own proof of each. The inside of a page tells nobody's name.
type Key = (String, Visitor);

/// Pages that are looked at.
#[derive(Default)]
pub struct Rooms {
    of: Mutex<HashMap<Key, Room>>,
    /// Held while one is read: one after the other, and each knows what it alone cost.
    turn: tokio::sync::Mutex<()>,
}

/// A page that is looked at.
struct Room {
    seen: watch::Sender<Option<View>>,
    /// The last reading took so long.
    took: Duration,
}

/// A page as it was read.
#[derive(Clone)]
enum View {
    Page {
        /// How many different ones there were.
        version: u64,
        main: Arc<str>,
        read_at: Arc<str>,
    },
    /// It cannot be read now.
    Away(String),
    /// It is there no more.
    Gone(String),
}

impl Rooms {
    /// Takes note of a reading. The time until the next one: what all pages together cost is bounded.
    fn show(&self, key: &Key, view: View, took: Duration) -> Duration {
        let mut rooms = lock(&self.of);
        if let Some(room) = rooms.get_mut(key) {
            room.took = took;
            room.seen.send_modify(|seen| {
                let next = match (view, &*seen) {
                    (
                        View::Page { main, read_at, .. },
                        Some(View::Page {
                            version,
                            main: shown,
                            ..
                        }),
                    ) => View::Page {
                        version: version + u64::from(!is_same(&main, shown)),
                        main,
                        read_at,
                    },
                    (view, _) => view,
                };
                *seen = Some(next);
            });
        }
        pause(rooms.values().map(|room| room.took).sum())
    }

    /// Closes a page that nobody looks at.
    fn is_deserted(&self, key: &Key) -> bool {
        let mut rooms = lock(&self.of);
        let is_deserted = rooms
            .get(key)
            .is_none_or(|room| room.seen.receiver_count() == 0);
        if is_deserted {
            rooms.remove(key);
        }
        is_deserted
    }
}

/// The same but for the time at which it was read, which is told first.
fn is_same(one: &str, other: &str) -> bool {
    let rest = one.split_once("</p>").zip(other.split_once("</p>"));
    rest.map_or(one == other, |((_, one), (_, other))| one == other)
}

/// The stream of a page that this visitor has asked for, and may see.
pub fn page(
    site: &Arc<Site>,
    visitor: &Arc<Visitor>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (stream, response) = open(site, visitor)?;
    let (mut parts, _) = request.into_parts();
    parts.headers.clear();
    let path = parts.uri.path_and_query().map(ToString::to_string);
    let anyone = Visitor {
        name: String::new(),
        token: None,
        proof: site.visitors.stand_in(),
        ..Visitor::clone(visitor)
    };
    let stand_in = anyone.proof.clone();
    let key = (path.unwrap_or_default(), anyone);
    let mut rooms = lock(&site.live.rooms.of);
    let seen = match rooms.get(&key) {
        Some(room) => room.seen.subscribe(),
        None => {
            let (seen, receiver) = watch::channel(None);
            let took = Duration::ZERO;
            rooms.insert(key.clone(), Room { seen, took });
            tokio::spawn(renew(Arc::clone(site), key, parts, next));
            receiver
        }
    };
    tokio::spawn(tell(stream, seen, stand_in, visitor.proof.clone()));
    Ok(response)
}

/// Reads a page again and again while somebody looks at it.
async fn renew(site: Arc<Site>, key: Key, parts: Parts, next: Next) {
    let rooms = &site.live.rooms;
    let visitor = Arc::new(key.1.clone());
    loop {
        let pause = {
            let _turn = rooms.turn.lock().await;
            if rooms.is_deserted(&key) {
                return;
            }
            let began = Instant::now();
            let mut request = Request::from_parts(parts.clone(), Body::empty());
            request.extensions_mut().insert(Arc::clone(&visitor));
            let asked = as_asked_by(Arc::clone(&visitor), look(request, next.clone()));
            let view = match tokio::time::timeout(WITHIN, caught(asked)).await {
                Ok(Some(view)) => view,
                Ok(None) => View::Away("the console's log says why".to_owned()),
                Err(_) => View::Away("the page took too long".to_owned()),
            };
            rooms.show(&key, view, began.elapsed())
        };
        tokio::time::sleep(pause).await;
    }
}

/// Asks the page's own route.
async fn look(request: Request, next: Next) -> View {
    let response = next.run(request).await;
    let status = response.status();
    let refusal = response.extensions().get::<Refusal>();
    let detail = refusal.map_or_else(String::new, |refusal| refusal.clone().into_detail());
    if status.is_server_error() {
        return View::Away(detail);
    }
    if !status.is_success() {
        return View::Gone(detail);
    }
    let Ok(body) = axum::body::to_bytes(response.into_body(), BYTES_MAX).await else {
        return View::Away("the page is too large".to_owned());
    };
    match main_of(&String::from_utf8_lossy(&body)) {
        Some((main, read_at)) => View::Page {
            version: 0,
            main: main.into(),
            read_at: read_at.into(),
        },
        None => View::Gone(detail),
    }
}

/// Tells one who looks at a page what it shows, each time that this has changed, and otherwise that it has not.
async fn tell(
    mut stream: Stream,
    mut seen: watch::Receiver<Option<View>>,
    stand_in: String,
    proof: String,
) {
    let mut told = None;
    loop {
        let view = seen.borrow_and_update().clone();
        let part = match &view {
            None => String::new(),
            Some(View::Page {
                version, read_at, ..
            }) if told == Some(*version) => event("read", read_at),
            Some(View::Page { version, main, .. }) => {
                told = Some(*version);
                event("page", &main.replace(&stand_in, &proof))
            }
            Some(View::Away(why)) => event("away", why),
            Some(View::Gone(why)) => event("gone", why),
        };
        if !part.is_empty() && !stream.tell(part).await || matches!(view, Some(View::Gone(_))) {
            return;
        }
        let until = tokio::time::Instant::now() + BEAT;
        match stream.unless_over(timeout_at(until, seen.changed())).await {
            None | Some(Ok(Err(_))) => return,
            Some(Ok(Ok(()))) => {}
            Some(Err(_)) if !stream.tell(":\n\n".to_owned()).await => return,
            Some(Err(_)) => {}
        }
    }
}

/// An event of this name.
fn event(name: &str, text: &str) -> String {
    let mut event = format!("event: {name}\n");
    for line in text.split('\n') {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    event
}
