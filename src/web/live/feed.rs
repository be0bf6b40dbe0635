//! Changes of runs, in the order in which they were seen.
//!
//! Owns: the events that are kept for returning listeners, the next question to the database, and reporting
//! each change once however often it is read. Never: asks the database; it only decides.

use std::collections::{BTreeSet, HashSet, VecDeque};

use crate::model::*;
use crate::store::event::{Changed, Changes, Past, Since};

use super::change_cursor::{LONG_OVERLAP, OVERLAP, Way};

/// A listener that was away for longer than this begins anew.
const BACK_MAX: i64 = 600_000_000;

/// If changes had to be read from further back than this, the console did not keep up, or nobody has listened
/// for long.
const BEHIND_MAX: i64 = BACK_MAX + 2 * LONG_OVERLAP;

/// The number of events that are kept.
const KEPT: usize = 20_000;

/// The first number of all: events from before anybody listened have room below it.
const FIRST: u64 = 1 << 32;

/// The past is read from a full minute on, so that it is read only a few times.
const MINUTE: i64 = 60_000_000;

/// The number of changes that are remembered, so that each is reported once.
const REMEMBERED: usize = 1_000_000;

/// The place of an event, as a returning listener names it: the console whose number it is, the number, and a
/// time up to which everything was reported, except for changes that are read late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The life of one console: numbers count within it.
    pub epoch: String,
    /// The number of the next event.
    pub number: u64,
    /// µs since 1970.
    pub at: i64,
}

/// Where a listener begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number of the first event.
    pub next: u64,
    /// Nothing older is reported.
    pub from: i64,
    /// Some earlier events may have been missed.
    pub lost: bool,
}

/// An event that is kept.
struct Kept {
    change: Changed,
    /// The time of the reading that found it.
    found: i64,
    /// Everything up to this time had been reported before that reading.
    after: i64,
}

/// The events.
pub struct Log {
    /// This console's life, within which numbers count.
    epoch: String,
    /// The number of the first event that is kept.
    first: u64,
    /// The number of the first event since the log has begun.
    base: u64,
    events: VecDeque<Kept>,
    /// Everything that has happened since this time was found; none before the first reading, and before a
    /// reading with which the log begins anew.
    begun: Option<i64>,
    /// Changes that the first reading found and that were reported to nobody; none once they are among the
    /// events.
    before: Option<Vec<Changed>>,
    /// The past from this time on is too much to keep.
    too_much: i64,
    started: Way,
    ended: Way,
    /// The time of the last reading.
    now: i64,
    waiting: BTreeSet<RunId>,
}

impl Log {
    /// An empty log.
    pub fn new(epoch: String) -> Self {
        Self {
            epoch,
            first: FIRST,
            base: FIRST,
            events: VecDeque::new(),
            begun: None,
            before: None,
            too_much: i64::MIN,
            started: Way::new(),
            ended: Way::new(),
            now: 0,
            waiting: BTreeSet::new(),
        }
    }

    /// The next question to the database.
    pub fn since(&self) -> Since {
        Since {
            started: self.started.behind(),
            ended: self.ended.behind(),
            at_most: BEHIND_MAX,
            // The first reading finds changes that must not be reported, although the next reading finds them
            // too.
            anew: OVERLAP,
        }
    }

    /// Takes the answer.
    pub fn take(&mut self, changes: Changes) {
        let now = changes.now;
        // The database's clock may have been set back: then the remembered changes are of no use.
        if changes.is_anew || now < self.now - LONG_OVERLAP {
            self.begin_anew();
        }
        let is_first = self.begun.is_none();
        let after = self.read_until();
        if is_first {
            self.begun = Some(now);
            self.started.begin_at(now - OVERLAP);
            self.ended.begin_at(now - OVERLAP);
        }
        let mut found = self.started.take(changes.started, now);
        found.extend(self.ended.take(changes.ended, now));
        found.sort_by_key(|it| (it.at, it.run, it.status != RunStatus::InProgress));
        let waits: BTreeSet<RunId> = changes.waiting.iter().map(|(run, _)| *run).collect();
        let waiting = changes.waiting.into_iter();
        let newly = waiting.filter(|(run, _)| !self.waiting.contains(run));
        found.extend(newly.map(|(run, pipeline)| Changed {
            run,
            pipeline,
            status: RunStatus::Dampened,
            at: now,
        }));
        self.waiting = waits;
        self.now = now;
        if is_first {
            self.before = Some(found);
        } else {
            let kept = found.into_iter().map(|change| Kept {
                change,
                found: now,
                after,
            });
            self.events.extend(kept);
        }
        let beyond = self.events.len().saturating_sub(KEPT);
        self.events.drain(..beyond);
        self.first += beyond as u64;
        if self.started.remembers() + self.ended.remembers() > REMEMBERED {
            self.begin_anew();
        }
    }

    /// Begins anew, because some events may be missing: nobody goes on from an earlier number, and the next
    /// reading is the first one.
    fn begin_anew(&mut self) {
        if self.begun.take().is_some() {
            self.first = self.end() + 1;
            self.base = self.first;
            self.events.clear();
        }
        self.before = None;
        (self.started, self.ended) = (Way::new(), Way::new());
    }

    /// True before the first reading.
    pub fn is_new(&self) -> bool {
        self.begun.is_none()
    }

    /// The past that this log lacks, although a listener that returns with this place may not have received
    /// it: from the first time up to the second.
    pub fn lacks(&self, last: &Place) -> Option<(i64, i64)> {
        let begun = self.begun?;
        let from = last.at.saturating_sub(LONG_OVERLAP);
        let from = from - from.rem_euclid(MINUTE);
        let is_kept = self.first == self.base;
        let fits = last.epoch != self.epoch
            && is_kept
            && from < begun
            && from > self.too_much
            && from >= self.now - BEHIND_MAX;
        // The first reading itself has looked back a little.
        let until = match self.before {
            Some(_) => begun - OVERLAP,
            None => begun,
        };
        fits.then_some((from, until))
    }

    /// Takes the past that the log lacked; none: it is too much.
    pub fn take_past(&mut self, (from, until): (i64, i64), past: Option<Past>) {
        let Some(begun) = self.begun else { return };
        let Some((started, ended)) = past else {
            self.too_much = from;
            return;
        };
        let known: HashSet<_> = self
            .events
            .iter()
            .map(|it| (it.change.run, it.change.status))
            .chain(self.before.iter().flatten().map(|it| (it.run, it.status)))
            .collect();
        let placed = started.iter().chain(&ended).map(|(_, change)| change);
        let new = placed.filter(|it| !known.contains(&(it.run, it.status)));
        let mut found: Vec<Changed> = new.cloned().collect();
        found.extend(self.before.iter().flatten().cloned());
        if found.len() + self.events.len() > KEPT {
            self.too_much = from;
            return;
        }
        found.sort_by_key(|it| (it.at, it.run, it.status != RunStatus::InProgress));
        self.started.know(started.iter().map(|(place, _)| *place));
        self.ended.know(ended.iter().map(|(place, _)| *place));
        self.started.begin_at(from);
        self.ended.begin_at(from);
        self.first -= found.len() as u64;
        for change in found.into_iter().rev() {
            let at = change.at.clamp(from, begun.max(until));
            self.events.push_front(Kept {
                change,
                found: at,
                after: at,
            });
        }
        (self.base, self.begun, self.before) = (self.first, Some(from), None);
    }

    /// True if more can be read at once.
    pub fn has_more(&self) -> bool {
        self.started.has_more(self.now) || self.ended.has_more(self.now)
    }

    /// The time up to which all changes were found, except for those that are read late.
    fn read_until(&self) -> i64 {
        self.started.read_until().min(self.ended.read_until())
    }

    /// The start of a listener that has received everything up to this place; without a place it starts with
    /// the next event.
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
        // The place is another console's: some events are reported again.
        let from = last.at.saturating_sub(LONG_OVERLAP);
        let is_here = self.begun.is_some_and(|begun| begun <= from);
        let before = self.events.partition_point(|it| it.found < from);
        match is_here && (before > 0 || self.first == self.base) {
            true => at(self.first + before as u64),
            false => lost,
        }
    }

    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The events from this number on; none if some of them are no longer kept.
    pub fn from(&self, next: u64) -> Option<impl Iterator<Item = &Changed>> {
        let skipped = usize::try_from(next.checked_sub(self.first)?).ok()?;
        let skipped = Some(skipped).filter(|it| *it <= self.events.len())?;
        Some(self.events.iter().skip(skipped).map(|it| &it.change))
    }

    /// The place behind the event with this number: it is the same whatever came behind the event.
    pub fn behind(&self, number: u64) -> Place {
        let skipped = number.checked_sub(self.first).map(usize::try_from);
        let event = skipped.and_then(|it| self.events.get(it.ok()?));
        self.position(number + 1, event.map_or(0, |event| event.after))
    }

    /// The place behind everything.
    pub fn here(&self) -> Place {
        self.position(self.end(), self.read_until().max(0))
    }

    /// The place at which a listener begins that returned with this place, or without one.
    pub fn begins(&self, start: &Start, last: Option<&Place>) -> Place {
        match last {
            Some(last) if !start.lost => self.position(start.next, last.at),
            _ => self.here(),
        }
    }

    fn position(&self, number: u64, at: i64) -> Place {
        Place {
            epoch: self.epoch.clone(),
            number,
            at,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::store::cursor::Cursor;
    use crate::store::event::Placed;

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

    /// A change, placed by its own time.
    fn placed(change: Changed) -> Placed {
        (Cursor::new(change.at, change.run.0), change)
    }

    /// A reading at this second, which finds these ends.
    fn finds(second: i64, ends: &[(RunId, i64)]) -> Changes {
        let mut reading = at(second);
        let ends = ends.iter().map(|(run, second)| ended(*run, *second));
        reading.ended.changes = ends.map(placed).collect();
        reading
    }

    fn changed_runs(log: &Log, next: u64) -> Vec<RunId> {
        let events = log.from(FIRST + next).expect("they are kept");
        events.map(|event| event.run).collect()
    }

    #[test]
    fn a_change_that_is_seen_late_is_told_once() {
        let (mut log, on_time, late) = (log(), RunId::new(), RunId::new());
        log.take(finds(1_010, &[(on_time, 1_009)]));
        assert_eq!(changed_runs(&log, 0), [on_time]);
        // The late change was written before the reading and committed after it.
        log.take(finds(1_011, &[(on_time, 1_009), (late, 1_009)]));
        log.take(finds(1_012, &[(on_time, 1_009), (late, 1_009)]));
        assert_eq!(changed_runs(&log, 0), [on_time, late]);
    }

    #[test]
    fn what_was_before_anybody_listened_is_told_to_nobody() {
        let (mut log, before, after) = (Log::new("a".to_owned()), RunId::new(), RunId::new());
        log.take(finds(1_000, &[(before, 999)]));
        log.take(finds(1_001, &[(before, 999), (after, 1_000)]));
        assert_eq!(changed_runs(&log, 0), [after]);
    }

    #[test]
    fn where_some_may_be_missing_no_number_goes_on() {
        let (mut log, run) = (log(), RunId::new());
        log.take(finds(1_001, &[(run, 1_001)]));
        let place = log.behind(FIRST);
        assert!(!log.start(Some(&place)).lost);
        // Nobody has listened for long, or there was too much to read: the store began elsewhere.
        let mut reading = finds(2_000, &[(RunId::new(), 1_999)]);
        reading.is_anew = true;
        log.take(reading);
        assert!(log.start(Some(&place)).lost);
        assert!(log.from(FIRST + 1).is_none(), "a listener notices it");
        let anew = log.start(None);
        assert_eq!(log.from(anew.next).map(Iterator::count), Some(0));
        log.take(finds(2_001, &[(run, 2_001)]));
        assert_eq!(log.from(anew.next).map(Iterator::count), Some(1));
        // The database's clock was set back, and everything that is remembered lies in the future.
        log.take(finds(1_500, &[(RunId::new(), 1_500)]));
        assert!(log.from(anew.next).is_none());
        assert_eq!(log.since().ended.on, Cursor::at(1_500 * SECOND));
    }

    #[test]
    fn more_than_can_be_remembered_is_not_told_in_part() {
        let mut log = log();
        let ends: Vec<_> = (0..=REMEMBERED).map(|_| (RunId::new(), 1_001)).collect();
        log.take(finds(1_001, &ends));
        assert!(log.from(FIRST).is_none() && log.is_new());
        assert_eq!(log.since().ended.on, Cursor::FIRST);
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
            changed_runs(&log, 0).is_empty(),
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
        assert_eq!(changed_runs(&log, 0), [new, new]);
    }

    fn position(epoch: &str, number: u64, second: i64) -> Place {
        Place {
            epoch: epoch.to_owned(),
            number,
            at: second * SECOND,
        }
    }

    const ANYTHING: i64 = i64::MIN;

    #[test]
    fn one_who_comes_back_goes_on_where_they_were_or_hears_that_some_are_lost() {
        let mut log = log();
        for second in 1_001..1_004 {
            log.take(finds(second, &[(RunId::new(), second)]));
        }
        let start = |epoch, number, second| {
            let start = log.start(Some(&position(epoch, number, second)));
            (start.next.wrapping_sub(FIRST), start.from, start.lost)
        };
        let now = 1_003 * SECOND - OVERLAP;
        assert_eq!(log.start(None).from, now);
        assert_eq!(start("a", FIRST + 1, 0), (1, ANYTHING, false));
        assert_eq!(
            start("a", FIRST + 4, 0),
            (3, now, true),
            "it was never told"
        );
        // The place is another console's: the listener gets all that this one has heard since, if it has
        // listened long enough.
        assert_eq!(start("b", 77, 1_062), (1, ANYTHING, false));
        assert_eq!(start("b", 77, 1_059), (3, now, true));
        // A place names a time up to which everything before it was reported.
        assert_eq!(log.behind(FIRST), position("a", FIRST + 1, 1_000));
        assert_eq!(log.here(), position("a", FIRST + 3, 1_003));
        let last = position("b", 77, 1_062);
        let begins = log.begins(&log.start(Some(&last)), Some(&last));
        assert_eq!(begins, position("a", FIRST + 1, 1_062));
        assert_eq!(log.begins(&log.start(None), None), log.here());
    }

    #[test]
    fn the_place_behind_an_event_says_nothing_of_what_came_then() {
        let (mut one, mut other, run) = (log(), log(), RunId::new());
        one.take(finds(1_001, &[(run, 1_001)]));
        other.take(finds(1_001, &[(run, 1_001), (RunId::new(), 1_002)]));
        assert_eq!(one.behind(FIRST), other.behind(FIRST));
    }

    #[test]
    fn a_place_is_of_the_time_up_to_which_was_read_and_not_of_the_reading() {
        let mut log = log();
        let mut reading = finds(1_010, &[(RunId::new(), 1_002)]);
        reading.ended.on = reading.ended.changes.last().map(|(place, _)| *place);
        reading.ended.again = reading.ended.on;
        log.take(reading);
        assert!(log.has_more());
        assert_eq!(log.here().at, 1_002 * SECOND);
    }

    #[test]
    fn a_new_console_reads_the_past_for_each_who_comes_back_whoever_came_first() {
        let mut log = Log::new("new".to_owned());
        let [old, older, at_first, late, new] = [(); 5].map(|()| RunId::new());
        // A listener without a place, and one that was away for longer than the first reading looks back.
        log.take(finds(1_000, &[(at_first, 999)]));
        log.take(finds(1_001, &[(at_first, 999), (late, 999), (new, 1_001)]));
        let listener = log.start(None).next - 2;
        assert!(log.start(Some(&position("b", 7, 995))).lost);
        let lacks = log.lacks(&position("b", 7, 995)).expect("the past");
        assert_eq!(lacks, (900 * SECOND, 1_000 * SECOND - OVERLAP));
        let past = |ends: &[(RunId, i64)]| {
            let ends = ends
                .iter()
                .map(|(run, second)| placed(ended(*run, *second)));
            Some((Vec::new(), ends.collect()))
        };
        log.take_past(lacks, past(&[(old, 950)]));
        let start = log.start(Some(&position("b", 7, 995)));
        assert!(!start.lost);
        let changed_runs =
            |log: &Log, next| -> Vec<RunId> { log.from(next).unwrap().map(|it| it.run).collect() };
        assert_eq!(changed_runs(&log, start.next), [old, at_first, late, new]);
        assert_eq!(
            changed_runs(&log, listener),
            [late, new],
            "no other listener gets it"
        );
        // Now and then a long look back reaches that far, and finds changes that are known.
        log.take(finds(1_002, &[(old, 950), (at_first, 999), (late, 999)]));
        assert_eq!(changed_runs(&log, listener), [late, new]);
        // Another listener was away for longer, and one for too long.
        let lacks = log.lacks(&position("b", 7, 800)).expect("more of the past");
        assert_eq!(lacks, (720 * SECOND, 900 * SECOND));
        log.take_past(lacks, past(&[(older, 800)]));
        let start = log.start(Some(&position("b", 7, 800)));
        assert_eq!(
            changed_runs(&log, start.next),
            [older, old, at_first, late, new]
        );
        assert_eq!(log.lacks(&position("b", 7, 995)), None);
        assert_eq!(log.lacks(&position("b", 7, 200)), None);
        assert!(log.start(Some(&position("b", 7, 200))).lost);
        // Too much has happened: the log reads that once, and says so.
        let lacks = log.lacks(&position("b", 7, 700)).expect("still more of it");
        log.take_past(lacks, None);
        assert_eq!(log.lacks(&position("b", 7, 700)), None);
        assert!(log.start(Some(&position("b", 7, 700))).lost);
    }

    #[test]
    fn as_many_are_kept_as_may_be_and_those_who_fall_behind_are_told() {
        let mut log = log();
        let ends: Vec<_> = (0..=KEPT).map(|_| (RunId::new(), 1_001)).collect();
        log.take(finds(1_001, &ends));
        assert!(log.from(FIRST).is_none());
        assert_eq!(log.from(FIRST + 1).map(Iterator::count), Some(KEPT));
        assert!(log.start(Some(&position("a", FIRST, 0))).lost);
    }
}
