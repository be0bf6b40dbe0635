//! Changes of runs, in the order in which they were seen.
//!
//! Owns: the events that are kept for those who come back, what is asked of the database next, and that each
//! change is told once however often it is read. Never: asks; decides only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::str::FromStr;

use crate::model::*;
use crate::store::event::{Changed, Changes, Since};

/// A commit becomes visible a little later than the time that it wrote: changes are read again for so long,
const OVERLAP: i64 = 2_000_000;

/// and now and then for so long, for one that took longer, and for clocks that differ.
const LONG_OVERLAP: i64 = 60_000_000;

/// Every so many readings.
const LONG_EVERY: u64 = 15;

/// Those who come back from further away than that begin anew.
const BACK_MAX: i64 = 600_000_000;

/// Events that are kept.
const KEPT: usize = 20_000;

/// The place of an event, as a listener names it who comes back: whose number it is, the number, and a time
/// up to which everything was told, but for what is read late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    epoch: String,
    number: u64,
    at: i64,
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let (epoch, number, at) = (parts.next(), parts.next(), parts.next());
        match (epoch, number, at, parts.next()) {
            (Some(epoch), Some(number), Some(at), None) => Ok(Self {
                epoch: epoch.to_owned(),
                number: number.parse().map_err(drop)?,
                at: at.parse().map_err(drop)?,
            }),
            _ => Err(()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.epoch, self.number, self.at)
    }
}

/// Where a listener begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number of the first event.
    pub next: u64,
    /// Nothing older is told.
    pub from: i64,
    /// Some before it may have been missed.
    pub lost: bool,
}

/// The events.
pub struct Log {
    /// Numbers count in this console's life, from its first listener on.
    epoch: String,
    /// The number of the first event that is kept.
    first: u64,
    /// With the time of the reading that found it.
    events: VecDeque<(i64, Changed)>,
    /// All that has happened since then was found; none before the first reading.
    begun: Option<i64>,
    /// Times up to which runs that began, and that ended, were read.
    read: (i64, i64),
    /// The time of the last reading.
    now: i64,
    readings: u64,
    /// The changes that were told, and when each was read last.
    seen: HashMap<(RunId, RunStatus), i64>,
    waiting: BTreeSet<RunId>,
}

impl Log {
    /// An empty one.
    pub fn new(epoch: String) -> Self {
        Self {
            epoch,
            first: 0,
            events: VecDeque::new(),
            begun: None,
            read: (i64::MIN, i64::MIN),
            now: 0,
            readings: 0,
            seen: HashMap::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Somebody comes back to a console that has heard of nothing: it begins where they were. False where that
    /// is too long ago.
    pub fn begin_for(&mut self, place: &Place, now: i64) -> bool {
        let from = place.at.min(now).saturating_sub(LONG_OVERLAP);
        let fits = self.begun.is_none() && from >= now - BACK_MAX + LONG_OVERLAP;
        if fits {
            self.begun = Some(from);
            (self.read, self.now) = ((from, from), from);
        }
        fits
    }

    /// True before the first reading.
    pub fn is_new(&self) -> bool {
        self.begun.is_none()
    }

    /// Nobody has listened for a while: the next reading looks as far back as the first late one.
    pub fn awake(&mut self) {
        self.readings = 0;
    }

    /// The next question.
    pub fn since(&self) -> Since {
        let overlap = match self.readings % LONG_EVERY {
            0 => LONG_OVERLAP,
            _ => OVERLAP,
        };
        Since {
            started: self.read.0.saturating_sub(overlap),
            ended: self.read.1.saturating_sub(overlap),
            // The first reading is for what is not to be told, although the next one finds it.
            at_most: match self.begun {
                None => OVERLAP,
                Some(_) => BACK_MAX,
            },
        }
    }

    /// Takes the answer.
    pub fn take(&mut self, changes: Changes) {
        let Changes {
            now,
            started,
            ended,
            waiting,
        } = changes;
        let is_first = self.begun.is_none();
        self.begun.get_or_insert(now);
        self.readings += 1;
        if !is_first && now - self.now > BACK_MAX {
            // Nobody has listened for so long that not all of it is read: no number goes on.
            self.first = self.end() + 1;
            self.events.clear();
            self.begun = Some(now);
        }
        // RACE: a commit whose time is before this reading becomes visible after it. The next readings look
        // further back than this one's time, and what they find again is known. Proven by
        // `a_change_that_is_seen_late_is_told_once`.
        self.read = (started.1.unwrap_or(now), ended.1.unwrap_or(now));
        let mut found: Vec<Changed> = Vec::new();
        for change in started.0.into_iter().chain(ended.0) {
            let key = (change.run, change.status);
            if self.seen.insert(key, now).is_none() && !is_first {
                found.push(change);
            }
        }
        found.sort_by_key(|it| (it.at, it.run, it.status != RunStatus::InProgress));
        let waits: BTreeSet<RunId> = waiting.iter().map(|(run, _)| *run).collect();
        let newly = waiting
            .into_iter()
            .filter(|(run, _)| !is_first && !self.waiting.contains(run));
        found.extend(newly.map(|(run, pipeline)| Changed {
            run,
            pipeline,
            status: RunStatus::Dampened,
            at: now,
        }));
        self.waiting = waits;
        self.events.extend(found.into_iter().map(|it| (now, it)));
        let beyond = self.events.len().saturating_sub(KEPT);
        self.events.drain(..beyond);
        self.first += beyond as u64;
        self.now = now;
        // Twice as long as it may be read again.
        self.seen.retain(|_, read| *read >= now - 2 * LONG_OVERLAP);
    }

    /// Where somebody begins who was told everything up to this place; nobody yet: with what comes.
    pub fn start(&self, last: Option<&Place>) -> Start {
        let end = self.end();
        let anew = Start {
            next: end,
            from: self.now - OVERLAP,
            lost: false,
        };
        let at = |next| Start {
            next,
            from: i64::MIN,
            lost: false,
        };
        let lost = Start { lost: true, ..anew };
        let Some(last) = last else {
            return anew;
        };
        if last.epoch == self.epoch {
            return match (self.first..=end).contains(&last.number) {
                true => at(last.number),
                false => lost,
            };
        }
        // Of another console: some are told again.
        let from = last.at.saturating_sub(LONG_OVERLAP);
        let is_here = self.begun.is_some_and(|begun| begun <= from);
        let before = self.events.partition_point(|(found, _)| *found < from);
        match is_here && (before > 0 || self.first == 0) {
            true => at(self.first + before as u64),
            false => lost,
        }
    }

    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The events from this number on; none where some of them are kept no longer.
    pub fn from(&self, next: u64) -> Option<impl Iterator<Item = &Changed>> {
        let skipped = usize::try_from(next.checked_sub(self.first)?).ok()?;
        Some(self.events.iter().skip(skipped).map(|(_, event)| event))
    }

    /// The place before the event of this number.
    pub fn place(&self, number: u64) -> Place {
        Place {
            epoch: self.epoch.clone(),
            number,
            at: self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn log() -> Log {
        let mut log = Log::new("a".to_owned());
        log.take(at(1_000));
        log
    }

    /// A reading at this second, which finds nothing.
    fn at(second: i64) -> Changes {
        Changes {
            now: second * SECOND,
            ..Changes::default()
        }
    }

    fn ended(run: RunId, second: i64) -> Changed {
        Changed {
            run,
            pipeline: "P".to_owned(),
            status: RunStatus::Completed,
            at: second * SECOND,
        }
    }

    fn told(log: &Log, next: u64) -> Vec<RunId> {
        let events = log.from(next).expect("they are kept");
        events.map(|event| event.run).collect()
    }

    #[test]
    fn a_change_that_is_seen_late_is_told_once() {
        let (mut log, on_time, late) = (log(), RunId::new(), RunId::new());
        let mut reading = at(1_010);
        reading.ended.0 = vec![ended(on_time, 1_009)];
        log.take(reading.clone());
        assert_eq!(told(&log, 0), [on_time]);
        let since = log.since();
        assert_eq!(since.ended, 1_010 * SECOND - OVERLAP);
        // It was written before the reading and committed after it.
        reading.now += SECOND;
        reading.ended.0.push(ended(late, 1_009));
        log.take(reading.clone());
        reading.now += SECOND;
        log.take(reading);
        assert_eq!(told(&log, 0), [on_time, late]);
        // One that took far longer is looked for now and then.
        let far = (0..LONG_EVERY).map(|n| {
            log.take(at(1_020 + n as i64));
            log.since().ended - log.now
        });
        assert_eq!(far.min(), Some(-LONG_OVERLAP));
    }

    #[test]
    fn a_run_that_is_found_for_long_is_told_once_all_the_same() {
        // The clock of whoever triggered is ahead.
        let (mut log, run) = (log(), RunId::new());
        for second in 0..600 {
            let mut reading = at(1_001 + second);
            let begun = Changed {
                status: RunStatus::InProgress,
                ..ended(run, 1_001)
            };
            reading.started.0 = vec![begun];
            log.take(reading);
        }
        assert_eq!(told(&log, 0), [run]);
        for second in 0..600 {
            log.take(at(1_601 + second));
        }
        assert!(log.seen.is_empty());
    }

    #[test]
    fn what_cannot_be_read_at_once_is_read_on_from_there() {
        let mut log = log();
        let mut reading = at(1_010);
        reading.ended = (vec![ended(RunId::new(), 1_002)], Some(1_002 * SECOND));
        log.take(reading);
        let since = log.since();
        assert_eq!(since.ended, 1_002 * SECOND - OVERLAP);
        assert_eq!(since.started, 1_010 * SECOND - OVERLAP);
    }

    #[test]
    fn what_was_before_anybody_listened_is_told_to_nobody() {
        let (mut log, before, after) = (Log::new("a".to_owned()), RunId::new(), RunId::new());
        assert_eq!(log.since().at_most, OVERLAP);
        let mut reading = at(1_000);
        reading.ended.0 = vec![ended(before, 999)];
        log.take(reading.clone());
        reading.now += SECOND;
        reading.ended.0.push(ended(after, 1_000));
        log.take(reading);
        assert_eq!(told(&log, 0), [after]);
        // After a long silence numbers mean nothing any more.
        let place = log.place(1);
        log.take(at(1_700));
        assert!(log.start(Some(&place)).lost);
        assert_eq!(log.since().ended, 1_700 * SECOND - OVERLAP);
    }

    #[test]
    fn whoever_waits_is_told_of_when_the_waiting_begins() {
        let mut log = Log::new("a".to_owned());
        let (old, new) = (RunId::new(), RunId::new());
        let waits = |second, runs: &[RunId]| Changes {
            waiting: runs.iter().map(|run| (*run, "P".to_owned())).collect(),
            ..at(second)
        };
        log.take(waits(1, &[old]));
        assert!(
            told(&log, 0).is_empty(),
            "it waited before anybody listened"
        );
        for (second, runs) in [
            (2, &[old, new][..]),
            (3, &[old, new]),
            (4, &[old]),
            (5, &[old, new]),
        ] {
            log.take(waits(second, runs));
        }
        assert_eq!(told(&log, 0), [new, new]);
    }

    #[test]
    fn one_who_comes_back_goes_on_where_they_were_or_hears_that_some_are_lost() {
        let mut log = log();
        let runs = [RunId::new(), RunId::new(), RunId::new()];
        for (second, run) in (1_001..).zip(runs) {
            let mut reading = at(second);
            reading.ended.0 = vec![ended(run, second)];
            log.take(reading);
        }
        let place = |text: &str| text.parse::<Place>().expect("a place");
        let start = |text: &str| log.start(Some(&place(text)));
        let sound = |next| Start {
            next,
            from: i64::MIN,
            lost: false,
        };
        let anew = Start {
            next: 3,
            from: 1_003 * SECOND - OVERLAP,
            lost: false,
        };
        let lost = Start { lost: true, ..anew };
        assert_eq!(log.start(None), anew);
        assert_eq!(start("a-1-0"), sound(1));
        assert_eq!(place(&log.place(2).to_string()), log.place(2));
        assert_eq!(start("a-4-0"), lost, "it was never told");
        // Of another console: all that this one has heard since, if it has heard long enough.
        let other = |second: i64| start(&format!("b-77-{}", second * SECOND));
        assert_eq!(other(1_062), sound(1));
        assert_eq!(other(1_059), lost);
        let mut new = Log::new("c".to_owned());
        assert!(!new.begin_for(&place("b-7-0"), 1_000 * SECOND));
        assert!(new.begin_for(&place(&format!("b-7-{}", 900 * SECOND)), 1_000 * SECOND));
        let since = new.since();
        assert!(since.ended <= 840 * SECOND);
        for wrong in ["", "a", "a-1", "a-x-1", "a-1-x", "a-1-1-1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn as_many_are_kept_as_may_be_and_those_who_fall_behind_are_told() {
        let mut log = log();
        let mut reading = at(1_001);
        reading.ended.0 = (0..=KEPT).map(|_| ended(RunId::new(), 1_001)).collect();
        log.take(reading);
        assert!(log.from(0).is_none());
        assert_eq!(log.from(1).map(Iterator::count), Some(KEPT));
        let first = "a-0-0".parse().expect("a place");
        assert!(log.start(Some(&first)).lost);
    }
}
