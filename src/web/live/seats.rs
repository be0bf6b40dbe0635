//! Seats: the listeners, and the number of their streams.
//!
//! Owns: how many streams there are and whose they are, and the rule that nobody takes all of them. Never:
//! opens a stream.
//!
//! A visitor has at most as many seats as are left for others, so there is always one for a visitor without
//! any, until very many take part. Visitors without a name count by their address; behind a proxy, they all
//! have the proxy's address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::super::strangers::Remote;
use super::super::visitor::Visitor;
use super::lock;

/// The greatest number of streams at once.
pub const STREAMS_MAX: usize = 200;

/// The identity by which visitors are told apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The name of the token with which a visitor has signed in.
    Named(String),
    /// The address of a visitor who has not signed in.
    At(Remote),
}

impl Who {
    /// The identity of a visitor who comes from this address.
    pub fn of(visitor: &Visitor, from: Remote) -> Self {
        match visitor.has_signed_in {
            true => Self::Named(visitor.name.clone()),
            false => Self::At(from),
        }
    }
}

/// The seats of a console.
#[derive(Clone, Default)]
pub struct Seats(Arc<Mutex<HashMap<Who, Owner>>>);

/// A visitor who has seats.
#[derive(Default)]
struct Owner {
    seats: usize,
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A seat, until it is dropped.
pub struct Seat {
    seats: Seats,
    /// The visitor who has taken it.
    pub who: Who,
    /// All seats of the same owner have the same one.
    pub turn: Arc<tokio::sync::Mutex<()>>,
}

/// The reason why there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All seats are taken.
    All,
    /// The visitor has as many as are left for others.
    Theirs,
}

impl Seats {
    /// A seat for this visitor.
    pub fn take(&self, who: Who) -> Result<Seat, Full> {
        let mut owners = lock(&self.0);
        let free = STREAMS_MAX.saturating_sub(owners.values().map(|it| it.seats).sum());
        let theirs = owners.get(&who).map_or(0, |it| it.seats);
        match () {
            () if free == 0 => return Err(Full::All),
            () if theirs >= free => return Err(Full::Theirs),
            () => {}
        }
        let owner = owners.entry(who.clone()).or_default();
        owner.seats += 1;
        Ok(Seat {
            seats: self.clone(),
            who,
            turn: Arc::clone(&owner.turn),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut owners = lock(&self.seats.0);
        if let Some(owner) = owners.get_mut(&self.who) {
            owner.seats -= 1;
            if owner.seats == 0 {
                owners.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(n: usize) -> Who {
        Who::Named(n.to_string())
    }

    #[test]
    fn nobody_takes_the_seats_of_all_others() {
        let seats = Seats::default();
        let mut taken = Vec::new();
        let mut counts = Vec::new();
        for n in 0..7 {
            let before = taken.len();
            while let Ok(seat) = seats.take(who(n)) {
                taken.push(seat);
            }
            assert_eq!(seats.take(who(n)).err(), Some(Full::Theirs));
            counts.push(taken.len() - before);
        }
        assert_eq!(counts, [100, 50, 25, 13, 6, 3, 2]);
        // Visitors who leave make room.
        taken.truncate(50);
        assert!(seats.take(who(0)).is_ok() && seats.take(who(8)).is_ok());
        drop(taken);
        assert!(lock(&seats.0).is_empty());
        let all: Vec<_> = (0..STREAMS_MAX).map(|n| seats.take(who(n))).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(seats.take(who(0)).err(), Some(Full::All));
    }
}
