//! Executions and branches of which a session of another program has locked a row.
//!
//! A claim takes all of its executions or none, an advance moves all of its branches or none, and both wait for a row
//! that somebody has locked. A person's transaction that is left open may last for hours. So the claims of a worker and of
//! an advancer leave out those for which it was kept waiting, and look at them again and again. Owns: which ones, and
//! when to look. Pure. Never: finds a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time between two looks at the locks.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// At most so many are left out: each claim sends them all.
pub const MOST: usize = 1_000;

/// The longest time for which a key is left out although no look has found a lock on its rows.
const UNEXPLAINED_MAX: Duration = Duration::from_secs(30);

/// A key without a known lock is forgotten this long after its pause is over, unless it is kept waiting again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);

/// The keys that claims leave out.
#[derive(Debug)]
pub struct Locked<T> {
    keys: BTreeSet<T>,
    /// Those that were kept waiting alone although no look finds a lock.
    unexplained: BTreeMap<T, Unexplained>,
    /// When to look at them again.
    look: Option<Instant>,
}

/// It is left out until a time that is later each time that it is kept waiting.
#[derive(Clone, Copy, Debug)]
struct Unexplained {
    pause: Duration,
    until: Instant,
}

impl<T> Default for Locked<T> {
    fn default() -> Self {
        Self {
            keys: BTreeSet::new(),
            unexplained: BTreeMap::new(),
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

    /// This key was kept waiting alone, although no look has found a lock: it waits for a row that no look examines.
    /// The first time, the lock may have been one of ours, so the key is left out only from the second time on.
    pub fn waited_in_vain(&mut self, key: T, now: Instant) {
        let pause = match self.unexplained.get(&key) {
            Some(before) => (before.pause * 2).clamp(LOOK_EVERY, UNEXPLAINED_MAX),
            None if self.unexplained.len() == MOST => return,
            None => Duration::ZERO,
        };
        let until = now + pause;
        self.unexplained.insert(key, Unexplained { pause, until });
        match pause.is_zero() {
            true => drop(self.look.get_or_insert(now + LOOK_EVERY)),
            false => drop(self.found(&[key], now)),
        }
    }

    /// These were moved, and not kept waiting.
    pub fn moved(&mut self, keys: impl Iterator<Item = T>) {
        if !self.unexplained.is_empty() {
            for key in keys {
                self.unexplained.remove(&key);
            }
        }
    }

    /// Those that have to wait, whether they are left out or tried again.
    pub fn waiting(&self) -> BTreeSet<T> {
        let unexplained = self.unexplained.iter();
        let unexplained = unexplained.filter(|(_, one)| !one.pause.is_zero());
        let unexplained = unexplained.map(|(key, _)| key);
        self.keys.iter().chain(unexplained).copied().collect()
    }

    /// Those that are left out.
    pub fn keys(&self) -> impl Iterator<Item = T> {
        self.keys.iter().copied()
    }

    /// A look begins: whether or not it is answered, the next one is a pause later.
    pub fn begin_look(&mut self, now: Instant) {
        self.look = self.look.map(|_| now + LOOK_EVERY);
    }

    /// The time until the next look; none while nothing waits.
    pub fn look_in(&self, now: Instant) -> Option<Duration> {
        self.look.map(|look| look.saturating_duration_since(now))
    }

    /// Of those that were left out, these are still locked, and the others can be claimed. True if there are
    /// any.
    pub fn looked(&mut self, locked: &[T], now: Instant) -> bool {
        let before = self.keys.len();
        // One that has not been kept waiting for so long is moved, or gone.
        self.unexplained
            .retain(|_, one| now < one.until + FORGOTTEN_AFTER);
        let unexplained = self.unexplained.iter();
        let kept = unexplained.filter(|(key, one)| self.keys.contains(*key) && now < one.until);
        let kept: Vec<T> = kept.map(|(key, _)| *key).collect();
        self.keys = locked.iter().copied().chain(kept).collect();
        let goes_on = !self.keys.is_empty() || !self.unexplained.is_empty();
        self.look = goes_on.then(|| now + LOOK_EVERY);
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
    fn one_that_waits_for_a_lock_that_no_look_finds_is_left_out_for_longer_each_time() {
        let mut now = Instant::now();
        let mut locked = Locked::default();
        let ids = [(); 2].map(|()| ExecutionId::new());
        let look = |locked: &mut Locked<ExecutionId>, now: &mut Instant| {
            *now += LOOK_EVERY;
            assert_eq!(locked.look_in(*now), Some(Duration::ZERO));
            let before = locked.keys().count();
            let are_fewer = locked.looked(&[], *now);
            assert_eq!(are_fewer, locked.keys().count() < before);
        };
        let mut pauses = Vec::new();
        for times in 0..9 {
            locked.waited_in_vain(ids[0], now);
            let began = now;
            while locked.keys().next().is_some() {
                look(&mut locked, &mut now);
            }
            // It may have been a lock of ours.
            assert_eq!(locked.waiting().len(), usize::from(times > 0));
            pauses.push(now.duration_since(began).as_secs());
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
        locked.moved(ids.into_iter());
        assert!(locked.waiting().is_empty());
        look(&mut locked, &mut now);
        assert_eq!(locked.look_in(now), None);

        // Or its run is cancelled, and nobody tries again.
        locked.waited_in_vain(ids[1], now);
        locked.waited_in_vain(ids[1], now);
        for _ in 0..15 {
            look(&mut locked, &mut now);
            assert_eq!(locked.waiting().len(), 1);
        }
        look(&mut locked, &mut now);
        assert!(locked.waiting().is_empty());
        assert_eq!(locked.look_in(now), None);
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
