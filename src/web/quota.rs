//! Shares: the parts that visitors take of something that is bounded.
//!
//! Owns: how much is taken and by whom, and the rule that a visitor who has some gets more only while as much is left
//! for others. Never: knows the thing that is shared.
//!
//! So there is always a little for a visitor without any, until very many take part. Visitors without a name count by
//! their address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::failed_sign_ins::Remote;
use super::visitor::Visitor;

/// The identity by which visitors are told apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The name of a token, or the one that a proxy or this host gives a visitor.
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

/// Something of which there is a bounded amount. All shares of one visitor have one `T` in common.
pub struct Shares<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    free: usize,
    owners: HashMap<Who, Owner<T>>,
    /// The last share that was refused because not enough was free.
    refused: Option<Refused>,
}

/// A share that was refused.
struct Refused {
    at: Instant,
    amount: usize,
}

impl Refused {
    /// True where it was refused within this time, and would be refused again for want of so much.
    fn is_missed(&self, within: Duration, free: usize) -> bool {
        self.at.elapsed() < within && self.amount > free
    }
}

/// A visitor who has shares.
#[derive(Default)]
struct Owner<T> {
    has: usize,
    /// The last share that this visitor was refused although enough was free.
    refused: Option<Refused>,
    common: Arc<T>,
}

/// A share, until it is dropped.
pub struct Share<T> {
    of: Shares<T>,
    /// How much it is.
    pub amount: usize,
    /// The visitor who has taken it.
    pub who: Who,
    /// All shares of the same visitor have the same one.
    pub common: Arc<T>,
}

/// The reason why there is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Not enough is free.
    All,
    /// The visitor would have more than is left for others.
    Theirs,
}

impl<T: Default> Shares<T> {
    /// So much of it, and all of it is free.
    pub fn new(all: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            free: all,
            owners: HashMap::new(),
            refused: None,
        })))
    }

    /// A share of this amount for this visitor.
    pub fn take(&self, who: Who, amount: usize) -> Result<Share<T>, Full> {
        let mut inner = self.lock();
        let theirs = inner.owners.get(&who).map_or(0, |it| it.has);
        match () {
            () if amount > inner.free + theirs => return Err(Full::All),
            () if amount + theirs > inner.free => return Err(Full::Theirs),
            () => {}
        }
        inner.free -= amount;
        let owner = inner.owners.entry(who.clone()).or_default();
        owner.has += amount;
        Ok(Share {
            of: Self(Arc::clone(&self.0)),
            amount,
            who,
            common: Arc::clone(&owner.common),
        })
    }
}

impl<T> Shares<T> {
    /// Records that this visitor was refused a share of this amount, which is missed from now on.
    pub fn miss(&self, who: &Who, amount: usize) {
        let mut inner = self.lock();
        let refused = Some(Refused {
            at: Instant::now(),
            amount,
        });
        match (amount > inner.free, inner.owners.get_mut(who)) {
            (false, Some(owner)) => owner.refused = refused,
            _ => inner.refused = refused,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Share<T> {
    /// True where another share was refused within this time, and would not be without this one and others: a share of
    /// another visitor, or of the same one, who may be many people at one address.
    pub fn is_missed(&self, within: Duration) -> bool {
        let inner = self.of.lock();
        let of_any = inner.refused.as_ref();
        let owner = inner.owners.get(&self.who);
        let of_theirs = owner.and_then(|it| it.refused.as_ref());
        let left = inner.free.saturating_sub(owner.map_or(0, |it| it.has));
        of_any.is_some_and(|it| it.is_missed(within, inner.free))
            || of_theirs.is_some_and(|it| it.is_missed(within, left))
    }
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        let mut inner = self.of.lock();
        inner.free += self.amount;
        if let Some(owner) = inner.owners.get_mut(&self.who) {
            owner.has -= self.amount;
            if owner.has == 0 {
                inner.owners.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 200;

    fn who(n: usize) -> Who {
        Who::Named(n.to_string())
    }

    #[test]
    fn nobody_takes_the_share_of_all_others() {
        let shares = Shares::<()>::new(ALL);
        let mut taken = Vec::new();
        let mut counts = Vec::new();
        for n in 0..7 {
            let before = taken.len();
            while let Ok(share) = shares.take(who(n), 1) {
                taken.push(share);
            }
            assert_eq!(shares.take(who(n), 1).err(), Some(Full::Theirs));
            counts.push(taken.len() - before);
        }
        assert_eq!(counts, [100, 50, 25, 13, 6, 3, 2]);
        // Visitors who leave make room.
        taken.truncate(50);
        assert!(shares.take(who(0), 1).is_ok() && shares.take(who(8), 1).is_ok());
        drop(taken);
        assert!(shares.lock().owners.is_empty());
        let all: Vec<_> = (0..ALL).map(|n| shares.take(who(n), 1)).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(shares.take(who(0), 1).err(), Some(Full::Theirs));
        assert_eq!(shares.take(who(ALL), 1).err(), Some(Full::All));
    }

    #[test]
    fn a_first_share_may_be_all_of_it_and_further_ones_leave_as_much_for_others() {
        let shares = Shares::<()>::new(ALL);
        let taken = |who: Who, amount| shares.take(who, amount);
        let all = taken(who(0), ALL).ok().unwrap();
        assert_eq!(taken(who(0), 1).err(), Some(Full::Theirs));
        assert_eq!(taken(who(1), 1).err(), Some(Full::All));
        drop(all);
        let some = taken(who(0), 60).ok().unwrap();
        assert_eq!(taken(who(0), 90).err(), Some(Full::Theirs));
        let more = taken(who(0), 80).ok().unwrap();
        assert!(taken(who(1), 60).is_ok());
        drop((some, more));
        assert!(taken(who(1), ALL).is_ok());
    }

    #[test]
    fn a_share_that_was_refused_is_missed_until_there_is_room_for_it() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let shares = Shares::<()>::new(ALL);
        let taken = |n, amount| shares.take(who(n), amount).ok().unwrap();
        let (one, second, other) = (taken(0, 50), taken(0, 50), taken(1, 40));
        let missed = || [&one, &other].map(|it| it.is_missed(HOUR));
        assert_eq!(missed(), [false, false]);
        shares.miss(&who(0), 50);
        assert_eq!(
            missed(),
            [true, false],
            "another visitor's shares are not in the way"
        );
        shares.miss(&who(2), 100);
        assert_eq!(missed(), [true, true]);
        assert!(!one.is_missed(Duration::ZERO), "it is long ago");
        drop(second);
        assert_eq!(missed(), [false, false], "110 are free");
    }

    #[test]
    fn the_shares_of_one_visitor_have_something_in_common() {
        let shares = Shares::<Mutex<()>>::new(ALL);
        let share = |n| shares.take(who(n), 1).ok().unwrap();
        let (one, other, third) = (share(0), share(0), share(1));
        assert!(Arc::ptr_eq(&one.common, &other.common));
        assert!(!Arc::ptr_eq(&one.common, &third.common));
    }
}
