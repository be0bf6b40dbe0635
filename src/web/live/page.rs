//! Pages that renew themselves while somebody looks at them.
//!
//! Owns: one reading of a page for all its viewers, and sending them its content when that has changed. Never:
//! knows a page: it asks the page's own route.
//!
//! Each part of the stream is the page's whole content, so a reader that missed one misses nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::task;

use super::super::Site;
use super::super::failed_sign_ins::Remote;
use super::super::guard::caught;
use super::super::pages::main_of;
use super::super::quota::Who;
use super::super::refusal::Refusal;
use super::super::visitor::{Visitor, as_asked_by};
use super::{BEAT, READ_AGAIN, Seat, Stream, Turn, lock, open, pause};

/// The time limit of a reading.
const WITHIN: Duration = Duration::from_secs(5);

/// The largest page.
const BYTES_MAX: usize = 4 << 20;

/// An address, and the visitors that share the page: a visitor without a name, and with a proof that stands for
/// each visitor's own. The inside of a page contains nobody's name.
type Key = (String, Visitor);

/// The pages that somebody looks at.
#[derive(Default)]
pub struct Rooms {
    of: Mutex<HashMap<Key, Room>>,
    /// Held while a page is read: pages are read one after the other, so that each knows its own cost. Before
    /// this turn, each visitor has a turn of their own, so that a visitor who looks at many pages waits for those
    /// alone.
    turn: Turn,
}

/// A page that somebody looks at.
struct Room {
    seen: watch::Sender<Option<View>>,
    /// The seats of those who look at it, while they do.
    seats: Vec<Weak<Seat>>,
    /// The duration of the last reading that did not fail.
    took: Duration,
    /// The last content and its number. They outlive an outage, after which a reader may still show a content
    /// from before it.
    shown: (u64, Arc<str>),
}

impl Room {
    fn new(seat: Weak<Seat>) -> Self {
        Self {
            seen: watch::Sender::new(None),
            seats: vec![seat],
            took: Duration::ZERO,
            shown: (0, "".into()),
        }
    }

    fn owners(&self) -> BTreeSet<Who> {
        let seats = self.seats.iter().filter_map(Weak::upgrade);
        seats.map(|seat| seat.who.clone()).collect()
    }

    /// Gives a reading of the page its number.
    fn numbered(&mut self, mut view: View) -> View {
        if let View::Page { version, main, .. } = &mut view {
            let (last, shown) = &self.shown;
            *version = last + u64::from(!is_same(main, shown));
            self.shown = (*version, Arc::clone(main));
        }
        view
    }
}

/// A page as it was read.
#[derive(Clone)]
enum View {
    Page {
        /// The number of different contents so far.
        version: u64,
        main: Arc<str>,
        read_at: Arc<str>,
    },
    /// It cannot be read now.
    Away(String),
    /// It no longer exists.
    Gone(String),
}

impl Rooms {
    /// Records a reading; returns the time until the next one, so that the total cost of all pages is bounded.
    fn show(&self, key: &Key, view: View, took: Duration) -> Duration {
        let mut rooms = lock(&self.of);
        let failed = matches!(view, View::Away(_));
        if let Some(room) = rooms.get_mut(key) {
            room.seats.retain(|seat| seat.strong_count() > 0);
            if !failed {
                room.took = took;
            }
            let view = room.numbered(view);
            room.seen.send_replace(Some(view));
        }
        if failed {
            return READ_AGAIN;
        }
        let owners = rooms.get(key).map(Room::owners).unwrap_or_default();
        let all: Vec<_> = rooms.values().map(|it| (it.owners(), it.took)).collect();
        pause(cost(&owners, &all))
    }

    /// The turn of a visitor who looks at this page: the one who looks at the fewest.
    fn turn_of(&self, key: &Key) -> Option<Arc<Turn>> {
        let rooms = lock(&self.of);
        let seats = rooms.get(key)?.seats.iter().filter_map(Weak::upgrade);
        let pages_of = |who: &Who| {
            rooms
                .values()
                .filter(|it| it.owners().contains(who))
                .count()
        };
        let seat = seats.min_by_key(|seat| pages_of(&seat.who));
        seat.map(|seat| Arc::clone(&seat.common))
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

/// The cost of pages, for a page that these visitors look at: every visitor who looks at any page has an equal
/// share of the time, and a page gets the largest share among its own visitors.
fn cost(owners: &BTreeSet<Who>, rooms: &[(BTreeSet<Who>, Duration)]) -> Duration {
    let all: BTreeSet<&Who> = rooms.iter().flat_map(|(owners, _)| owners).collect();
    let all = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let of = |who: &Who| {
        let theirs = rooms.iter().filter(|(owners, _)| owners.contains(who));
        theirs.map(|(_, took)| *took).sum::<Duration>()
    };
    owners.iter().map(of).min().unwrap_or_default() * all
}

/// True if two readings differ at most in the time of reading, which comes first.
fn is_same(one: &str, other: &str) -> bool {
    let rest = one.split_once("</p>").zip(other.split_once("</p>"));
    rest.map_or(one == other, |((_, one), (_, other))| one == other)
}

/// The stream of a page that this visitor has requested and may see.
pub fn page(
    site: &Arc<Site>,
    visitor: &Arc<Visitor>,
    from: Remote,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let (stream, response) = open(site, visitor, from)?;
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
    let seat = Arc::downgrade(&stream.seat);
    let seen = match rooms.get_mut(&key) {
        Some(room) => {
            room.seats.push(seat);
            room.seen.subscribe()
        }
        None => {
            let room = Room::new(seat);
            let seen = room.seen.subscribe();
            rooms.insert(key.clone(), room);
            task::anywhere(renew(Arc::clone(site), key, parts, next));
            seen
        }
    };
    task::anywhere(tell(stream, seen, stand_in, visitor.proof.clone()));
    Ok(response)
}

/// Reads a page again and again while somebody looks at it.
async fn renew(site: Arc<Site>, key: Key, parts: Parts, next: Next) {
    let rooms = &site.live.rooms;
    let visitor = Arc::new(key.1.clone());
    loop {
        let pause = {
            let own = rooms.turn_of(&key);
            let _own = match &own {
                Some(own) => Some(own.lock().await),
                None => None,
            };
            let _turn = rooms.turn.lock().await;
            if rooms.is_deserted(&key) {
                return;
            }
            let began = Instant::now();
            let mut request = Request::from_parts(parts.clone(), Body::empty());
            request.extensions_mut().insert(Arc::clone(&visitor));
            // All open pages have one line: they are read one after the other.
            let who = Who::Named(visitor.name.clone());
            let asked = as_asked_by(
                &site,
                Arc::clone(&visitor),
                who,
                look(request, next.clone()),
            );
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

/// Requests the page from its own route.
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

/// Sends a visitor the page's content each time that it has changed, and otherwise the time of the reading.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Scope;

    /// The number of the content that a reader finds in this room.
    fn number(seen: &watch::Receiver<Option<View>>) -> Option<u64> {
        match *seen.borrow() {
            Some(View::Page { version, .. }) => Some(version),
            _ => None,
        }
    }

    #[test]
    fn a_content_that_changed_during_an_outage_has_a_number_of_its_own() {
        let rooms = Rooms::default();
        let visitor = Visitor {
            name: String::new(),
            scope: Scope::Read,
            pipelines: None,
            payloads: true,
            has_signed_in: false,
            token: None,
            proof: String::new(),
        };
        let key = ("/waiting".to_owned(), visitor);
        let room = Room::new(Weak::new());
        let seen = room.seen.subscribe();
        lock(&rooms.of).insert(key.clone(), room);
        let read = |main: &str| {
            let view = View::Page {
                version: 0,
                main: main.into(),
                read_at: "now".into(),
            };
            rooms.show(&key, view, Duration::ZERO);
            number(&seen)
        };
        let away = || {
            rooms.show(&key, View::Away(String::new()), Duration::ZERO);
            number(&seen)
        };
        let before = read("<p>1</p>no question");
        assert!(before.is_some());
        assert_eq!(away(), None);
        assert_eq!(read("<p>2</p>no question"), before, "nothing has changed");
        assert_eq!(away(), None);
        let after = read("<p>3</p>a question");
        assert!(after > before, "{after:?} after {before:?}");
        assert_eq!(read("<p>4</p>a question"), after);
    }

    #[test]
    fn one_who_looks_at_many_pages_makes_nobody_elses_old() {
        let who = |names: &[&str]| {
            names
                .iter()
                .map(|it| Who::Named((*it).to_owned()))
                .collect()
        };
        let took = Duration::from_millis(20);
        let of_many: BTreeSet<Who> = who(&["many"]);
        let of_one: BTreeSet<Who> = who(&["one"]);
        let shared: BTreeSet<Who> = who(&["many", "one"]);
        let mut rooms = vec![(of_many.clone(), took); 180];
        rooms.push((of_one.clone(), took));
        assert_eq!(cost(&of_one, &rooms), took * 2);
        assert_eq!(cost(&of_many, &rooms), took * 180 * 2);
        // A page that both look at is as fresh as the one visitor gets it.
        rooms.push((shared.clone(), took));
        assert_eq!(cost(&shared, &rooms), took * 2 * 2);
        // Together the pages cost no more than one page that costs as much as all of them.
        let share = |rooms: &[(BTreeSet<Who>, Duration)]| -> f64 {
            let of = |it: &(BTreeSet<Who>, Duration)| {
                it.1.as_secs_f64() / cost(&it.0, rooms).as_secs_f64()
            };
            rooms.iter().map(of).sum()
        };
        assert!(share(&rooms) <= 1.000_001, "{}", share(&rooms));
        assert_eq!(cost(&who(&[]), &rooms), Duration::ZERO);
    }
}
