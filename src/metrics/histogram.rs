//! How long things took, in few numbers.
//!
//! Owns: sparse buckets, each 2^¼ times as wide as the one before it, and the fixed bounds at which they are
//! shown. The bounds are powers of two, where a bucket ends: the numbers that are shown are exact.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many buckets it takes for a value to double.
const PER_DOUBLING: i16 = 4;

/// A time shorter than a microsecond is in the first bucket, one of 12 days or more in the last.
const FIRST: i16 = -20 * PER_DOUBLING;
const LAST: i16 = 20 * PER_DOUBLING;

/// The bounds at which histograms are shown, as powers of two of a second: finer where steps and commits are,
/// from 16 ms to a minute.
pub const BOUNDS: [i16; 19] = [
    -10, -8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14,
];

/// Observed times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Their sum, in nanoseconds: whole numbers add up to the same in any order.
    #[serde(rename = "ns")]
    sum: u64,
    /// How many ended in the bucket that ends at 2^(key/4) seconds.
    #[serde(rename = "b")]
    buckets: BTreeMap<i16, u64>,
}

/// No time is longer, in seconds: a hundred years.
const LONGEST: f64 = 3_155_760_000.0;

impl Histogram {
    /// Takes note of a time.
    pub fn observe(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum = self.sum.saturating_add(nanoseconds);
        *self.buckets.entry(bucket(time)).or_default() += 1;
    }

    /// Takes note of all that the other one has seen.
    pub fn merge(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        for (bucket, count) in &other.buckets {
            // A newer version may have finer ends.
            let own = self.buckets.entry(*bucket.clamp(&FIRST, &LAST));
            let own = own.or_default();
            *own = own.saturating_add(*count);
        }
    }

    /// Forgets all that the other one has seen.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.sum = self.sum.saturating_sub(other.sum);
        for (bucket, count) in &other.buckets {
            if let Some(own) = self.buckets.get_mut(bucket) {
                *own = own.saturating_sub(*count);
            }
        }
        self.buckets.retain(|_, count| *count > 0);
    }

    /// True when it has seen nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The number of times that it has seen.
    pub fn count(&self) -> u64 {
        self.buckets
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their sum, in seconds.
    pub fn seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// The time that this share of them did not exceed, up to a bucket's width more.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut sum = 0_u64;
        let bucket = self.buckets.iter().find(|(_, count)| {
            sum = sum.saturating_add(**count);
            sum >= wanted
        });
        let (bucket, _) = bucket?;
        let seconds = (f64::from(*bucket) / f64::from(PER_DOUBLING)).exp2();
        // Only a damaged row holds a longer time.
        Some(Duration::from_secs_f64(seconds.min(LONGEST)))
    }

    /// How many of them were no longer than 2^`bound` seconds.
    pub fn within(&self, bound: i16) -> u64 {
        self.buckets
            .range(..=bound * PER_DOUBLING)
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

/// The bucket of a time: the first that does not end before it.
fn bucket(time: Duration) -> i16 {
    let end = (time.as_secs_f64().log2() * f64::from(PER_DOUBLING)).ceil();
    // The cast turns minus infinity, the result for no time at all, into the least number.
    (end as i16).clamp(FIRST, LAST)
}
