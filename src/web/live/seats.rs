//! Seats: who listens, by how many streams.
//!
//! Owns: how many streams there are and whose they are, and that nobody takes all of them. Never: opens one.
//!
//! A visitor has at most as many seats as are left for others, so that there is always one for somebody who
//! has none, until very many take part. Visitors without a name count by their address; behind a proxy all of
//! these have the proxy's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::super::strangers::Remote;
use super::super::visitor::Visitor;
use super::lock;

/// So many streams at once.
pub const STREAMS_MAX: usize = 200;

/// Those who are told from each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// By the name of a token, with which somebody has signed in.
    Named(String),
    /// By an address.
    At(Remote),
}

impl Who {
    /// A visitor who comes from there.
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

/// One who has some.
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

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All are taken.
    All,
    /// They have as many as are left for others.
    Theirs,
}

impl Seats {
    /// One for them.
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
        // Those who go make room.
        taken.truncate(50);
        assert!(seats.take(who(0)).is_ok() && seats.take(who(8)).is_ok());
        drop(taken);
        assert!(lock(&seats.0).is_empty());
        let all: Vec<_> = (0..STREAMS_MAX).map(|n| seats.take(who(n))).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(seats.take(who(0)).err(), Some(Full::All));
    }
}
