//! Sending traces to a collector.
//!
//! Owns: the consequence of an answer, the wait before the next attempt, and how many spans go together. Never:
//! sends anything.

use std::time::Duration;

use super::retry_after::WAIT_MAX;

/// Spans per request: as many as the processors of OpenTelemetry send together.
pub const SPANS_MAX: usize = 512;

/// Bytes per request, except for a single span that is larger: collectors refuse requests that are too large.
pub const BYTES_MAX: usize = 1 << 20;

/// The wait after a failure, the first and the longest, unless the collector names another.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The consequence of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It has arrived.
    Sent,
    /// It is sent once more, after this time.
    Again(Duration),
    /// The collector refuses it, but perhaps not each part of it.
    Halved,
    /// It is given up.
    GivenUp,
}

/// The consequence of an answer of this status, or of no answer, after this many earlier failures: as OTLP says,
/// few answers are worth another attempt. `wait` is the wait that the collector asked for, `spread` a random
/// number from 0 to 1.
pub fn follows(status: Option<u16>, wait: Option<Duration>, failures: u32, spread: f64) -> Follows {
    match status {
        Some(200..=299) => Follows::Sent,
        None | Some(429 | 502 | 503 | 504) => {
            let grown = WAITS
                .0
                .saturating_mul(2_u32.saturating_pow(failures.min(16)));
            let own = grown
                .min(WAITS.1)
                .mul_f64(0.5 + spread.clamp(0.0, 1.0) / 2.0);
            Follows::Again(wait.map_or(own, |wait| wait.clamp(own, WAIT_MAX)))
        }
        Some(400 | 413) => Follows::Halved,
        Some(_) => Follows::GivenUp,
    }
}

/// How many of the spans of these sizes go into the next request: as many as fit, but at least one.
pub fn fit(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take(SPANS_MAX).take_while(|size| {
        bytes += size;
        bytes <= BYTES_MAX
    });
    fit.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_otlp_names_is_sent_again() {
        for status in [200, 202, 299] {
            assert_eq!(follows(Some(status), None, 3, 0.0), Follows::Sent);
        }
        for status in [None, Some(429), Some(502), Some(503), Some(504)] {
            assert_eq!(follows(status, None, 0, 1.0), Follows::Again(WAITS.0));
        }
        for status in [400, 413] {
            assert_eq!(follows(Some(status), None, 0, 0.0), Follows::Halved);
        }
        for status in [301, 401, 403, 404, 408, 500, 501] {
            assert_eq!(follows(Some(status), None, 0, 0.0), Follows::GivenUp);
        }
    }

    #[test]
    fn the_wait_grows_to_a_minute_and_is_no_shorter_than_the_collector_asks_for() {
        let wait = |failures, asked, spread| match follows(Some(503), asked, failures, spread) {
            Follows::Again(wait) => wait.as_secs_f64(),
            other => panic!("{other:?}"),
        };
        let whole: Vec<f64> = (0..8).map(|failures| wait(failures, None, 1.0)).collect();
        assert_eq!(whole, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        assert_eq!(wait(u32::MAX, None, 0.0), 30.0, "half of it is spread");
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(0, seconds(20), 1.0), 20.0);
        assert_eq!(wait(3, seconds(0), 1.0), 8.0, "nobody is asked in a loop");
        assert_eq!(wait(0, seconds(86_400), 1.0), 3_600.0);
    }

    #[test]
    fn a_request_has_as_many_spans_as_fit_and_one_at_least() {
        assert_eq!(fit([10; 3].into_iter()), 3);
        assert_eq!(fit([1; 2_000].into_iter()), SPANS_MAX);
        assert_eq!(fit([BYTES_MAX / 2, BYTES_MAX / 2, 1].into_iter()), 2);
        assert_eq!(fit([2 * BYTES_MAX, 1].into_iter()), 1);
    }
}
