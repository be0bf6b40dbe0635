//! Executions and branches of which a session of another program has locked a row.
//!
//! A claim takes all of its executions or none, an advance moves all of its branches or none, and both wait for a row
//! that somebody has locked. A person's transaction that is left open may last for hours. So the claims of a worker and of
//! an advancer leave out those for which it was kept waiting, and look at them again and again. Owns: which ones, and
//! when to look. Pure. Never: finds a lock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time between two looks at the locks.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// At most so many are left out: each claim sends them all.
pub const MOST: usize = 1_000;

/// The keys that claims leave out.
#[derive(Debug)]
pub struct Locked<T> {
    keys: BTreeSet<T>,
    /// When to look at them again.
    look: Option<Instant>,
}

impl<T> Default for Locked<T> {
    fn default() -> Self {
        Self {
            keys: BTreeSet::new(),
            look: None,
        }
    }
}

impl<T: Copy + Ord> Locked<T> {
    /// These were found locked. False if none of them is left out now that was not before.
    pub fn found(&mut self, locked: &[T], now: Instant) -> bool {
        let before = self.keys.len();
        let room = MOST - before;
        self.keys.extend(locked.iter().take(room));
        if !self.keys.is_empty() {
            self.look.get_or_insert(now + LOOK_EVERY);
        }
        self.keys.len() > before
    }

    /// Those that are left out.
    pub fn keys(&self) -> impl Iterator<Item = T> {
        self.keys.iter().copied()
    }

    /// A look begins: whether or not it is answered, the next one is a pause later.
    pub fn begin_look(&mut self, now: Instant) {
        self.look = self.look.map(|_| now + LOOK_EVERY);
    }

    /// The time until the next look; none while nothing is left out.
    pub fn look_in(&self, now: Instant) -> Option<Duration> {
        self.look.map(|look| look.saturating_duration_since(now))
    }

    /// Of those that were left out, these are still locked, and the others can be claimed. True if there are
    /// any.
    pub fn looked(&mut self, locked: &[T], now: Instant) -> bool {
        let before = self.keys.len();
        self.keys = locked.iter().copied().collect();
        self.look = (!self.keys.is_empty()).then(|| now + LOOK_EVERY);
        self.keys.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ExecutionId;

    #[test]
    fn what_is_locked_is_left_out_until_a_look_finds_it_free() {
        let now = Instant::now();
        let mut locked = Locked::default();
        assert!(!locked.found(&[], now));
        assert_eq!(locked.look_in(now), None);
        let ids = [(); 3].map(|()| ExecutionId::new());
        assert!(locked.found(&ids[..2], now));
        assert!(!locked.found(&ids[..2], now));
        assert_eq!(locked.look_in(now), Some(LOOK_EVERY));
        // Others that are found later do not put off the look.
        let later = now + LOOK_EVERY / 2;
        assert!(locked.found(&ids, later));
        assert_eq!(locked.look_in(later), Some(LOOK_EVERY / 2));
        assert_eq!(locked.keys().count(), 3);

        let then = now + LOOK_EVERY;
        assert!(locked.looked(&ids[1..2], then));
        assert_eq!(locked.keys().collect::<Vec<_>>(), [ids[1]]);
        assert_eq!(locked.look_in(then), Some(LOOK_EVERY));
        assert!(!locked.looked(&ids[1..2], then));
        assert!(locked.looked(&[], then));
        assert_eq!(locked.look_in(then), None);
    }

    #[test]
    fn no_more_are_left_out_than_a_claim_can_send() {
        let now = Instant::now();
        let mut locked = Locked::default();
        let many: Vec<_> = (0..=MOST).map(|_| ExecutionId::new()).collect();
        assert!(locked.found(&many, now));
        assert_eq!(locked.keys().count(), MOST);
        assert!(!locked.found(&[ExecutionId::new()], now));
    }
}
