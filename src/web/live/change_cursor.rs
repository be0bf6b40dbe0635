//! The way through the changes of a kind: how far they were read, and which of them are read again.
//!
//! Owns: the places behind which the database is asked next, and finding each change once however often it is read.
//! Never: asks the database, or knows the meaning of a change.
//!
//! A commit becomes visible a little later than the time that it wrote, so changes are read again. Reading new changes
//! goes on from its own place, whatever is read again, and may take several readings. Reading again may take several
//! readings too, and then goes on from its own place. A change that was found is remembered for as long as it may be
//! read again.

use std::collections::BTreeSet;

use crate::store::cursor::Cursor;
use crate::store::event::{Behind, Changed, Found};

/// Changes are read again for this long,
pub const OVERLAP: i64 = 2_000_000;

/// and now and then for this long, for a commit that took longer, and for clocks that differ.
pub const LONG_OVERLAP: i64 = 60_000_000;

/// The number of readings after which a long one follows.
const LONG_EVERY: u64 = 15;

/// How far the changes of a kind were read.
pub struct Way {
    /// Everything that was visible up to this place was read.
    on: Cursor,
    /// Reading again goes on from this place,
    again: Cursor,
    /// and ends at this one.
    until: Cursor,
    /// Reading again has not begun yet.
    is_next: bool,
    /// Reading again goes back for the longer time.
    is_long: bool,
    /// The time of the reading in which it began, and the time of the reading in which the last long one began.
    began: (i64, i64),
    /// Readings since the last long one began.
    readings: u64,
    /// Nothing before this place is read again.
    least: Cursor,
    /// The changes that were found, as far back as they may be read again.
    seen: BTreeSet<Cursor>,
}

impl Way {
    /// A way on which nothing was read.
    pub fn new() -> Self {
        Self {
            on: Cursor::FIRST,
            again: Cursor::FIRST,
            until: Cursor::FIRST,
            is_next: true,
            is_long: true,
            began: (0, 0),
            readings: 0,
            least: Cursor::FIRST,
            seen: BTreeSet::new(),
        }
    }

    /// The places for the next question.
    pub fn behind(&self) -> Behind {
        Behind {
            again: self.again,
            on: self.on,
        }
    }

    /// Reads nothing again from before this time.
    pub fn begin_at(&mut self, time: i64) {
        self.least = Cursor::at(time);
    }

    /// Marks these changes as known: they were found elsewhere.
    pub fn know(&mut self, places: impl Iterator<Item = Cursor>) {
        self.seen.extend(places);
    }

    /// Takes an answer of this time; returns the changes that were not known.
    pub fn take(&mut self, found: Found, now: i64) -> Vec<Changed> {
        if self.is_next {
            self.is_next = false;
            self.began.0 = now;
            if self.is_long {
                self.began.1 = now;
                self.readings = 0;
            }
        }
        self.readings += 1;
        // The clock of the process that triggered a run may be ahead: no earlier change is skipped.
        let now = Cursor::at(now);
        self.on = found.on.map_or(now, |on| on.min(now));
        match found.again {
            Some(stopped) if stopped < self.until => self.again = stopped,
            _ => self.read_again(),
        }
        let changes = found.changes.into_iter();
        let new = changes.filter(|(place, _)| self.seen.insert(*place));
        let new = new.map(|(_, change)| change).collect();
        let long = Cursor::at(self.began.1.saturating_sub(LONG_OVERLAP));
        let least = self.again.min(self.on).min(long).max(self.least);
        self.seen = self.seen.split_off(&least);
        new
    }

    /// Reading again is complete. The next time, it covers the changes that may have become visible since it began.
    ///
    /// RACE: a commit becomes visible after the way has passed its time, and after reading again has passed it too.
    /// Reading again began before the commit was visible, so the next one goes back from that beginning, however long
    /// it all took. Proven by `however_much_is_read_again_what_was_late_is_found_once`.
    fn read_again(&mut self) {
        self.is_long = self.readings >= LONG_EVERY;
        let back = match self.is_long {
            true => self.began.1.saturating_sub(LONG_OVERLAP),
            false => self.began.0.saturating_sub(OVERLAP),
        };
        (self.is_next, self.until) = (true, self.on);
        self.again = Cursor::at(back).max(self.least).min(self.on);
    }

    /// True if more can be read at once.
    pub fn has_more(&self, now: i64) -> bool {
        !self.is_next || self.on < Cursor::at(now)
    }

    /// The time up to which all changes were read, except for those that are read late.
    pub fn read_until(&self) -> i64 {
        self.on.time()
    }

    /// The number of changes that are remembered.
    pub fn remembers(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use crate::model::*;

    use super::*;

    const SECOND: i64 = 1_000_000;

    /// Changes of a kind by their places, each with the time from which it is visible.
    #[derive(Default)]
    struct Database(BTreeMap<Cursor, (i64, Changed)>);

    impl Database {
        fn add(&mut self, at: i64, visible: i64) {
            let run = RunId::new();
            let change = Changed {
                run,
                pipeline: "P".to_owned(),
                status: RunStatus::Completed,
                at,
            };
            self.0.insert(Cursor::new(at, run.0), (visible, change));
        }

        /// Answers as the store does, in pages of a few.
        fn answer(&self, now: i64, behind: Behind) -> Found {
            const PAGE: usize = 5;
            let mut found = Found::default();
            let mut walk = |mut from: Cursor, until: Option<Cursor>, pages: usize| {
                for _ in 0..pages {
                    let behind = (std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded);
                    let there = self.0.range(behind).filter(|(_, it)| it.0 <= now);
                    let page = there.take(PAGE).map(|(place, it)| (*place, it.1.clone()));
                    let page: Vec<_> = page.collect();
                    let is_full = page.len() == PAGE;
                    from = page.last().map_or(from, |(place, _)| *place);
                    found.changes.extend(page);
                    if !is_full {
                        return None;
                    }
                    if until.is_some_and(|until| from >= until) {
                        break;
                    }
                }
                Some(from)
            };
            let again = walk(behind.again, Some(behind.on), 3);
            let on = again.and_then(|again| walk(again.max(behind.on), None, 2));
            Found { again, on, ..found }
        }
    }

    /// Reads once a second, from the first time to the second.
    fn read(way: &mut Way, database: &Database, from: i64, to: i64) -> Vec<Changed> {
        let mut told = Vec::new();
        for second in from..to {
            let now = second * SECOND;
            told.extend(way.take(database.answer(now, way.behind()), now));
        }
        told
    }

    fn way() -> Way {
        let mut way = Way::new();
        let found = way.take(Found::default(), 1_000 * SECOND);
        assert!(found.is_empty());
        way.begin_at(990 * SECOND);
        way
    }

    fn is_each_told_once(database: &Database, told: &[Changed]) -> bool {
        let runs: BTreeSet<_> = told.iter().map(|it| it.run).collect();
        runs.len() == told.len() && runs.len() == database.0.len()
    }

    #[test]
    fn more_changes_of_one_time_than_a_reading_takes_are_read_on_the_next_time() {
        let (mut way, mut database) = (way(), Database::default());
        for _ in 0..200 {
            database.add(1_001 * SECOND, 1_001 * SECOND);
        }
        let told = read(&mut way, &database, 1_001, 1_004);
        assert!((20..200).contains(&told.len()), "{}", told.len());
        assert!(way.has_more(1_003 * SECOND));
        let told = [told, read(&mut way, &database, 1_004, 1_060)].concat();
        assert!(is_each_told_once(&database, &told), "{}", told.len());
        assert!(!way.has_more(1_059 * SECOND));
        read(&mut way, &database, 1_060, 1_200);
        assert_eq!(way.remembers(), 0);
    }

    #[test]
    fn what_was_triggered_by_a_clock_that_is_ahead_is_told_once_and_passes_nothing_by() {
        let (mut way, mut database) = (way(), Database::default());
        database.add(1_600 * SECOND, 1_001 * SECOND);
        database.add(1_100 * SECOND, 1_100 * SECOND);
        let told = read(&mut way, &database, 1_001, 2_000);
        assert!(is_each_told_once(&database, &told), "{told:?}");
        assert_eq!((told[0].at, way.remembers()), (1_600 * SECOND, 0));
    }

    proptest! {
        #[test]
        fn however_much_is_read_again_what_was_late_is_found_once(
            bursts in prop::collection::vec((1_001..1_150_i64, 1..60_usize, 0..59_i64), 1..12),
        ) {
            let (mut way, mut database) = (way(), Database::default());
            for (second, n, late) in bursts {
                for _ in 0..n {
                    database.add(second * SECOND, (second + late) * SECOND);
                }
            }
            let told = read(&mut way, &database, 1_001, 1_700);
            prop_assert!(is_each_told_once(&database, &told), "{}", told.len());
            prop_assert_eq!(way.remembers(), 0);
        }
    }
}
