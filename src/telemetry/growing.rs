//! How often a lasting condition is logged: at once, and then ever more rarely.
//!
//! Owns: the decision, from when the condition was met. Never: logs it, reads a clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The pause after it was logged first; it doubles each time.
const FIRST: Duration = Duration::from_secs(60);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A condition that was not met for this long is over: the next time it is new. Longer than any pause
/// between two attempts.
const QUIET: Duration = Duration::from_secs(180);

/// This many conditions are remembered; if there are more, those that were met last.
const MOST: usize = 1_000;

/// Lasting conditions, by key.
#[derive(Clone, Debug)]
pub struct Growing<K> {
    met: HashMap<K, Met>,
}

/// Since when a condition lasts, and how often it was logged.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// When it was met first.
    pub first: Instant,
    /// When it was met last.
    pub last: Instant,
    again: Instant,
    pause: Duration,
}

impl<K> Default for Growing<K> {
    fn default() -> Self {
        Self {
            met: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Growing<K> {
    /// Takes note that the condition is met at `now`. Returns how long it has lasted, if that is to be logged.
    pub fn meet(&mut self, key: &K, now: Instant) -> Option<Duration> {
        self.meet_since(key, now, now)
    }

    /// The same for a condition that had lasted since `first` if it was unknown.
    pub fn meet_since(&mut self, key: &K, first: Instant, now: Instant) -> Option<Duration> {
        self.met.retain(|_, met| now < met.last + QUIET);
        if let Some(met) = self.met.get_mut(key) {
            met.last = now;
            if now < met.again {
                return None;
            }
            met.pause = (met.pause * 2).min(LONGEST);
            met.again = now + met.pause;
            return Some(now.saturating_duration_since(met.first));
        }
        if self.met.len() >= MOST {
            let oldest = self.met.iter().min_by_key(|(_, met)| met.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.met.remove(&oldest);
            }
        }
        let met = Met {
            first,
            last: now,
            again: now + FIRST,
            pause: FIRST,
        };
        self.met.insert(key.clone(), met);
        Some(now.saturating_duration_since(first))
    }

    /// The condition is over; the next time it is new. Returns since when it had lasted, if it did.
    pub fn over(&mut self, key: &K) -> Option<Instant> {
        self.met.remove(key).map(|met| met.first)
    }

    /// All remembered conditions.
    pub fn met(&self) -> impl Iterator<Item = (&K, &Met)> {
        self.met.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_said_at_once_and_then_after_a_minute_after_two_and_so_on_up_to_an_hour() {
        let mut growing = Growing::default();
        let start = Instant::now();
        let mut said = Vec::new();
        for second in 0..20_000 {
            let now = start + Duration::from_secs(second);
            if let Some(lasted) = growing.meet(&"a", now) {
                assert_eq!(lasted, Duration::from_secs(second));
                said.push(second / 60);
            }
        }
        assert_eq!(said, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303]);
        // Another condition is logged by itself.
        assert!(
            growing
                .meet(&"b", start + Duration::from_secs(20_000))
                .is_some()
        );
    }

    #[test]
    fn what_was_over_or_not_met_for_long_is_new() {
        let mut growing = Growing::default();
        let start = Instant::now();
        assert!(growing.meet(&1, start).is_some());
        assert!(growing.meet(&1, start).is_none());
        growing.over(&1);
        assert_eq!(growing.meet(&1, start), Some(Duration::ZERO));
        assert!(growing.meet(&1, start + Duration::from_secs(59)).is_none());
        let later = start + Duration::from_secs(59) + QUIET;
        assert_eq!(growing.meet(&1, later), Some(Duration::ZERO));
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let mut growing = Growing::default();
        let start = Instant::now();
        for key in 0..MOST + 10 {
            growing.meet(&key, start + Duration::from_millis(key as u64));
        }
        assert_eq!(growing.met().count(), MOST);
        assert!(growing.met().all(|(key, _)| *key >= 10));
    }
}
