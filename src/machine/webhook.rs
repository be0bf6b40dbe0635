//! Messages to endpoints about runs.
//!
//! Owns: which endpoint wants which run, and the consequence of an attempt. Never: sends anything.

use std::time::Duration;

use crate::model::*;
use crate::time;

/// The states of runs that endpoints are notified of.
pub const EVENTS: [RunStatus; 4] = [
    RunStatus::Completed,
    RunStatus::Halted,
    RunStatus::Cancelled,
    RunStatus::Dampened,
];

/// The waits between attempts, as Standard Webhooks proposes them. After the last wait there is one more
/// attempt.
const WAITS: [Duration; 8] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(5 * 60 * 60),
    Duration::from_secs(10 * 60 * 60),
    Duration::from_secs(14 * 60 * 60),
    Duration::from_secs(20 * 60 * 60),
];

/// The largest fraction of a wait that is added, so that messages that failed together do not arrive
/// together.
const JITTER: f64 = 0.1;

/// The runs that an endpoint wants to be notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Runs in these states.
    pub events: Vec<RunStatus>,
    /// Runs of these pipelines; if empty, of all.
    pub pipelines: Vec<String>,
}

impl Interest {
    /// True for a run that the endpoint wants to be notified of.
    pub fn wants(&self, pipeline: &str, status: RunStatus) -> bool {
        self.events.contains(&status)
            && (self.pipelines.is_empty() || self.pipelines.iter().any(|it| it == pipeline))
    }
}

/// The name of the event that a message is about.
pub fn event(status: RunStatus) -> String {
    format!("run.{status}")
}

/// The consequence of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It has arrived.
    Delivered,
    /// It is given up.
    Failed,
    /// It is sent once more, after this time.
    Again(Duration),
}

/// True if the header `Retry-After` of a response with this status counts: the endpoint is busy.
pub fn is_busy(status: Option<u16>) -> bool {
    matches!(status, Some(429 | 503))
}

/// The status with which an endpoint says that it is gone: its messages are given up at once, and none waits.
pub const GONE: u16 = 410;

/// The consequence of an attempt with this response, after this many earlier attempts, when the endpoint asked
/// for this wait. `spread` is a random number from 0 to 1.
pub fn follows(
    status: Option<u16>,
    asked: Option<Duration>,
    attempts: u32,
    spread: f64,
) -> Follows {
    match status {
        Some(200..=299) => return Follows::Delivered,
        Some(GONE) => return Follows::Failed,
        _ => {}
    }
    let wait = usize::try_from(attempts).ok().and_then(|it| WAITS.get(it));
    match wait {
        None => Follows::Failed,
        Some(wait) => {
            let wait = asked.unwrap_or_default().max(*wait);
            Follows::Again(wait.mul_f64(1.0 + JITTER * spread.clamp(0.0, 1.0)))
        }
    }
}

/// How many messages to one endpoint are on their way at once: a slow message does not hold up the others.
const AT_ONCE: usize = 4;

/// After this many refusals in a row, an endpoint gets one message at a time, with a pause of [`PROBED_EVERY`] between
/// two, until it takes one.
const REFUSALS: u32 = 8;

/// The pause between two messages to an endpoint that refuses them: refused messages cost the other endpoints their
/// share of the database.
const PROBED_EVERY: Duration = Duration::from_secs(1);

/// How many messages are taken ahead for an endpoint that takes them fast.
const STOCK: usize = 64;

/// An endpoint is fast if it takes all messages that were taken ahead for it within this time.
const FAST: Duration = Duration::from_millis(500);

/// The number of messages that an endpoint may get at once, derived from how it took earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    refusals: u32,
    stock: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            refusals: 0,
            stock: AT_ONCE,
        }
    }
}

impl Pace {
    /// Messages on their way at once.
    pub fn at_once(&self) -> usize {
        if self.is_probed() { 1 } else { AT_ONCE }
    }

    /// How many messages to take at once; those that cannot be sent yet wait.
    pub fn stock(&self) -> usize {
        if self.is_probed() { 1 } else { self.stock }
    }

    /// The pause between an attempt and the next one.
    pub fn pause(&self) -> Duration {
        match self.is_probed() {
            true => PROBED_EVERY,
            false => Duration::ZERO,
        }
    }

    /// Takes note of an attempt.
    pub fn meet(&mut self, follows: Follows) {
        match follows {
            Follows::Delivered => self.refusals = 0,
            Follows::Failed | Follows::Again(_) => {
                self.refusals = self.refusals.saturating_add(1);
                self.stock = AT_ONCE;
            }
        }
    }

    /// Takes note that all messages that were taken have been sent, after this time.
    pub fn used_up(&mut self, took: Duration) {
        self.stock = match took <= FAST {
            true => (self.stock * 2).min(STOCK),
            false => (self.stock / 2).max(AT_ONCE),
        };
    }

    fn is_probed(&self) -> bool {
        self.refusals >= REFUSALS
    }
}

/// The log reports an endpoint that takes nothing for this long.
pub const SOON: Duration = Duration::from_secs(60);

/// An endpoint that takes nothing for this long is reported: two attempts fall within this time, and none
/// within the next minutes.
pub const LONG: Duration = Duration::from_secs(10 * 60);

/// The most letters of an endpoint's name and of its error.
const LETTERS: usize = 200;

/// The oldest message that has not arrived and has not been given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The endpoint's name.
    pub endpoint: String,
    /// Since when it has been due: µs since 1970.
    pub since: i64,
    /// Attempts so far.
    pub attempts: u32,
    /// The status of the last response.
    pub status: Option<i64>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// The messages that wait for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The oldest message.
    pub oldest: Unsent,
    /// All runs that had ended by then have been found for it: µs since 1970.
    pub seen: i64,
    /// The number of messages, counted up to a bound; none for an endpoint that is configured here.
    pub messages: Option<u64>,
}

impl Waits {
    /// The number of messages that are kept for an endpoint that is no longer configured: it is not configured
    /// here, and no console has looked for its runs for a long time.
    pub fn kept(&self, now: i64) -> Option<u64> {
        let is_seen = time::between(self.seen, now) < LONG;
        self.messages.filter(|_| !is_seen)
    }
}

/// The part of an endpoint's name, or of its error, that is shown.
pub fn short(text: &str) -> String {
    text.chars().take(LETTERS).collect()
}

impl Unsent {
    /// The fact in a sentence, for people; none for a message that is still on its way.
    pub fn fact(&self, now: i64) -> Option<String> {
        let waited = time::between(self.since, now);
        if waited < LONG {
            return None;
        }
        let (endpoint, waited) = (short(&self.endpoint), time::whole(waited));
        if self.attempts == 0 {
            return Some(format!(
                "a message to the endpoint {endpoint} waits for {waited}, and nobody has tried to send it: a console \
                 that has this endpoint in its configuration does"
            ));
        }
        let status = self.status.map(|status| status.to_string());
        let error = self.error.as_deref().map(str::trim);
        let error = error.filter(|it| !it.is_empty()).map(short);
        let last: Vec<String> = status.into_iter().chain(error).collect();
        let attempts = match self.attempts {
            1 => "1 attempt".to_owned(),
            n => format!("{n} attempts"),
        };
        Some(format!(
            "the endpoint {endpoint} has not taken a message for {waited}, in {attempts}: {}",
            last.join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_takes_nothing_for_long_is_told_of() {
        let now = 1_700_000_000_000_000;
        let mut unsent = Unsent {
            endpoint: "crm".to_owned(),
            since: now - 599_000_000,
            attempts: 2,
            status: Some(503),
            error: Some(" ".to_owned()),
        };
        assert_eq!(unsent.fact(now), None);
        unsent.since -= 1_000_000;
        let fact = unsent.fact(now).unwrap();
        assert_eq!(
            fact,
            "the endpoint crm has not taken a message for 10m 0s, in 2 attempts: 503"
        );
        unsent.attempts = 0;
        let fact = unsent.fact(now).unwrap();
        assert!(
            fact.starts_with(
                "a message to the endpoint crm waits for 10m 0s, and nobody has tried"
            ),
            "{fact}"
        );
    }

    #[test]
    fn messages_are_kept_for_an_endpoint_that_is_not_configured_and_that_no_console_looks_for() {
        let now = 1_700_000_000_000_000;
        let waits = |messages, seconds: i64| Waits {
            oldest: Unsent {
                endpoint: "crm".to_owned(),
                since: 0,
                attempts: 0,
                status: None,
                error: None,
            },
            seen: now - seconds * 1_000_000,
            messages,
        };
        assert_eq!(waits(Some(3), 600).kept(now), Some(3));
        assert_eq!(
            waits(Some(3), 599).kept(now),
            None,
            "another console has it"
        );
        assert_eq!(waits(None, 600).kept(now), None, "it is configured here");
    }

    #[test]
    fn an_answer_of_success_ends_it_and_gone_gives_it_up_at_once() {
        for status in [200, 202, 204, 299] {
            assert_eq!(follows(Some(status), None, 0, 0.0), Follows::Delivered);
            assert_eq!(follows(Some(status), None, 99, 0.0), Follows::Delivered);
        }
        assert_eq!(follows(Some(410), None, 0, 0.0), Follows::Failed);
        for status in [
            None,
            Some(100),
            Some(301),
            Some(400),
            Some(404),
            Some(429),
            Some(500),
        ] {
            let again = Follows::Again(Duration::from_secs(5));
            assert_eq!(follows(status, None, 0, 0.0), again, "{status:?}");
        }
    }

    #[test]
    fn waits_grow_from_five_seconds_to_twenty_hours_and_then_it_is_given_up() {
        let mut waits = Vec::new();
        let mut attempts = 0;
        while let Follows::Again(wait) = follows(None, None, attempts, 0.0) {
            waits.push(wait.as_secs());
            attempts += 1;
        }
        let hour = 3_600;
        let hours = [2, 5, 10, 14, 20].map(|it| it * hour);
        assert_eq!(waits, [&[5, 300, 1_800][..], &hours].concat());
        assert_eq!(follows(Some(500), None, 8, 0.0), Follows::Failed);
        assert_eq!(follows(Some(500), None, u32::MAX, 0.0), Follows::Failed);
        let spread = follows(None, None, 1, 1.0);
        assert_eq!(spread, Follows::Again(Duration::from_secs(330)));
    }

    #[test]
    fn an_endpoint_that_refuses_all_gets_one_at_a_time_until_it_takes_one() {
        let mut pace = Pace::default();
        for _ in 0..REFUSALS {
            assert_eq!((pace.at_once(), pace.stock()), (AT_ONCE, AT_ONCE));
            assert_eq!(pace.pause(), Duration::ZERO);
            pace.meet(Follows::Again(LONG));
        }
        assert_eq!((pace.at_once(), pace.stock()), (1, 1));
        assert_eq!(pace.pause(), PROBED_EVERY);
        pace.meet(Follows::Failed);
        assert_eq!(pace.at_once(), 1);
        pace.meet(Follows::Delivered);
        assert_eq!(pace, Pace::default());
    }

    #[test]
    fn an_endpoint_that_is_fast_gets_more_ahead_and_one_that_is_slow_less() {
        let mut pace = Pace::default();
        for expected in [8, 16, 32, 64, 64] {
            pace.used_up(FAST);
            assert_eq!(pace.stock(), expected);
        }
        for expected in [32, 16, 8, AT_ONCE, AT_ONCE] {
            pace.used_up(FAST * 2);
            assert_eq!(pace.stock(), expected);
        }
        pace.used_up(FAST);
        pace.meet(Follows::Failed);
        assert_eq!((pace.at_once(), pace.stock()), (AT_ONCE, AT_ONCE));
    }

    #[test]
    fn a_busy_endpoint_gets_the_wait_that_it_asks_for_and_none_that_is_shorter() {
        let again =
            |asked, attempts| follows(Some(503), Some(Duration::from_secs(asked)), attempts, 0.0);
        let seconds = |n| Follows::Again(Duration::from_secs(n));
        assert_eq!(again(120, 0), seconds(120));
        assert_eq!(again(1, 0), seconds(5));
        assert_eq!(again(120, 1), seconds(300));
        assert_eq!(again(120, 8), Follows::Failed);
        assert!(is_busy(Some(429)) && is_busy(Some(503)) && !is_busy(Some(500)) && !is_busy(None));
    }

    #[test]
    fn an_endpoint_hears_of_its_events_and_pipelines() {
        let all = Interest {
            events: EVENTS.to_vec(),
            pipelines: Vec::new(),
        };
        assert!(all.wants("A", RunStatus::Completed) && all.wants("B", RunStatus::Dampened));
        assert!(!all.wants("A", RunStatus::InProgress));
        let some = Interest {
            events: vec![RunStatus::Halted],
            pipelines: vec!["A".into()],
        };
        assert!(some.wants("A", RunStatus::Halted));
        assert!(!some.wants("B", RunStatus::Halted) && !some.wants("A", RunStatus::Completed));
    }
}
