//! Runs whose traces have not been sent yet.
//!
//! Owns: how far traces have been sent, and the memory of this. Never: makes spans, or sends anything.
//!
//! No row records that the trace of a run was sent: ids follow from rows, so a trace that is sent twice is one
//! trace. The database stores a place in the order of ends, and a process that starts over begins a while before it.
//! A run's time of ending is a little older than the commit that shows it, so the walk steps back again and again,
//! and a second walk goes through an hour: both skip the runs that this process remembers having sent.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::conn::Conn;
use super::cursor::Cursor;
use super::definition::Definitions;
use super::delivery::{self, Page};
use super::error::Error;
use super::finder::{Damaged, OVERLAP};
use super::page::RunHead;
use super::{micros, query, trace};
use crate::machine::trace::Facts;
use crate::model::RunId;

/// The name of the collector's row, which no endpoint can have.
const NAME: &str = "/traces";

/// How long before the stored place a process that starts over begins, because nobody knows what was sent since.
const BEGINS_BEFORE: Duration = Duration::from_secs(5 * 60);

/// How often the walk steps back.
const BACK_EVERY: Duration = Duration::from_secs(10);

/// How far back the second walk goes.
const SWEPT: Duration = Duration::from_secs(60 * 60);

/// How often the second walk starts.
const SWEEP_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many runs a page has.
const PAGE: usize = 500;

/// How many runs are read together, at most.
const TOGETHER: usize = 100;

/// How many runs are remembered: neither walk goes further back than these.
const KEPT: usize = 100_000;

/// How often the place is stored.
const WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// The runs that were sent, by their ends.
#[derive(Debug, Default)]
struct Sent {
    ends: BTreeSet<Cursor>,
    /// All runs that were sent and that ended at this time or later are known.
    since: i64,
}

impl Sent {
    fn add(&mut self, run: Cursor) {
        self.ends.insert(run);
        if self.ends.len() > KEPT
            && let Some(oldest) = self.ends.pop_first()
        {
            self.since = oldest.time().saturating_add(1);
        }
    }

    fn forget(&mut self, before: i64) {
        self.since = self.since.max(before);
        self.ends = self.ends.split_off(&Cursor::at(self.since));
    }
}

/// The walks of one process that sends traces.
#[derive(Debug)]
pub struct Tracer {
    /// Runs that ended before this time are ignored.
    since: i64,
    /// All runs that ended before this place were sent, or wait to be sent.
    ended: Cursor,
    waiting: VecDeque<RunHead>,
    sent: Sent,
    /// How many runs are read together.
    together: usize,
    swept: Option<Cursor>,
    sweeps_at: Instant,
    steps_back_at: Instant,
    written: Option<Instant>,
    damaged: Damaged,
}

/// The result of a look.
#[derive(Debug)]
pub enum Look {
    /// There is nothing to send.
    Nothing,
    /// There may be something to send: look again at once.
    More,
    /// The traces of these runs have to be sent.
    Runs(Vec<Facts>),
}

impl Tracer {
    /// Begins a while before the place up to which traces have been sent; the first time, it begins with the
    /// runs that end from now on.
    pub async fn begin(conn: &mut Conn) -> Result<Self, Error> {
        let heard = delivery::heard(conn, NAME).await?;
        let from = heard.seen.saturating_sub(micros(BEGINS_BEFORE));
        let now = Instant::now();
        Ok(Self {
            since: heard.since,
            ended: Cursor::at(from),
            waiting: VecDeque::new(),
            sent: Sent {
                since: from,
                ..Sent::default()
            },
            together: TOGETHER,
            swept: None,
            sweeps_at: now + SWEEP_EVERY,
            steps_back_at: now + BACK_EVERY,
            written: None,
            damaged: Damaged::default(),
        })
    }

    /// The next runs whose traces have to be sent.
    pub async fn look(
        &mut self,
        conn: &mut Conn,
        definitions: &Definitions,
    ) -> Result<Look, Error> {
        let mut more = false;
        if self.waiting.is_empty() {
            let now = query::now(conn).await?;
            more = self.walk(conn, now).await?;
            if self.waiting.is_empty() && !more {
                more = self.sweep(conn, now).await?;
            }
        }
        let heads = self.waiting.make_contiguous();
        let all = trace::some(conn, heads, self.together, definitions).await?;
        match (all.is_empty(), more) {
            (false, _) => {
                self.together = (2 * all.len()).min(TOGETHER);
                Ok(Look::Runs(all))
            }
            (true, true) => Ok(Look::More),
            (true, false) => Ok(Look::Nothing),
        }
    }

    /// The runs with damaged rows that were met since the last call: their traces are not sent.
    pub fn take_damaged(&mut self) -> Vec<RunId> {
        self.damaged.take()
    }

    /// Records that the first `n` runs of the last look are finished.
    pub fn sent(&mut self, n: usize) {
        let n = n.min(self.waiting.len());
        for head in self.waiting.drain(..n) {
            self.sent.add(cursor_of(&head));
        }
    }

    /// Reads a page of the runs that have ended; true where more are left.
    async fn walk(&mut self, conn: &mut Conn, now: i64) -> Result<bool, Error> {
        // The clock may have been set back.
        self.since = self.since.min(now);
        self.sent.since = self.sent.since.min(now);
        // Nothing waits, so everything before this place was sent.
        self.write(conn, self.ended.time().min(now)).await?;
        let page = trace::ended(conn, self.ended, PAGE).await?;
        let is_full = page.is_full;
        self.ended = page.last.unwrap_or(self.ended);
        self.take(page);
        let began = Instant::now();
        if !is_full && began >= self.steps_back_at {
            self.steps_back_at = began + BACK_EVERY;
            self.sent.forget(now.saturating_sub(micros(SWEPT)));
            let before = now.saturating_sub(micros(OVERLAP));
            self.ended = Cursor::at(before.max(self.sent.since));
        }
        Ok(is_full)
    }

    async fn sweep(&mut self, conn: &mut Conn, now: i64) -> Result<bool, Error> {
        let began = Instant::now();
        if self.swept.is_none() && began < self.sweeps_at {
            return Ok(false);
        }
        let from = now.saturating_sub(micros(SWEPT)).max(self.sent.since);
        let swept = match self.swept {
            Some(swept) => swept.max(Cursor::at(self.sent.since)),
            None => {
                self.sweeps_at = began + SWEEP_EVERY;
                Cursor::at(from)
            }
        };
        let page = trace::ended(conn, swept, PAGE).await?;
        let (last, is_full) = (page.last, page.is_full);
        self.take(page);
        // The first walk covers the rest.
        self.swept = last.filter(|last| is_full && *last < self.ended);
        Ok(self.swept.is_some())
    }

    fn take(&mut self, page: Page<RunHead>) {
        self.damaged.meet(page.damaged);
        let is_new = |head: &RunHead| {
            let cursor = cursor_of(head);
            cursor.time() >= self.since && !self.sent.ends.contains(&cursor)
        };
        self.waiting.extend(page.runs.into_iter().filter(is_new));
    }

    async fn write(&mut self, conn: &mut Conn, seen: i64) -> Result<(), Error> {
        let began = Instant::now();
        if self.written.is_some_and(|at| began < at + WRITTEN_EVERY) {
            return Ok(());
        }
        delivery::see(conn, NAME, seen).await?;
        self.written = Some(began);
        Ok(())
    }
}

fn cursor_of(head: &RunHead) -> Cursor {
    Cursor::new(head.ended_at.unwrap_or_default(), head.id.0)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::definition::{Definition, Pipeline};
    use crate::store::trigger::{NewRun, trigger};
    use crate::store::{Location, Purpose, cancel, migrate};

    /// Moves the end of the newest run half a minute back,
    const LATE: &str = "
        UPDATE ductwork_runs SET cancelled_at = cancelled_at - 30000000
         WHERE id = (SELECT max(id) FROM ductwork_runs)";

    /// or nearly an hour.
    const SLOW: &str = "
        UPDATE ductwork_runs SET cancelled_at = cancelled_at - 3500000000
         WHERE id = (SELECT max(id) FROM ductwork_runs)";

    /// A new database, and a pipeline of one step.
    async fn begun() -> (tempfile::TempDir, Conn, Definition) {
        let directory = tempfile::tempdir().expect("a directory");
        let location = Location::sqlite(directory.path().join("t.db"));
        let mut conn = location.connect(Purpose::Engine).await.expect("a file");
        migrate::migrate(&mut conn).await.expect("a new schema");
        let definition = Pipeline::named("P").start("A").build();
        (directory, conn, definition.expect("one step"))
    }

    async fn ended(conn: &mut Conn, definition: &Definition) -> RunId {
        let run = [NewRun {
            key: None,
            input: "1",
        }];
        let made = trigger(conn, definition, &run, Duration::ZERO).await;
        let run = made.expect("a run")[0].run_id;
        let cancelled = cancel::cancel(conn, run).await;
        let _ = cancelled.expect("it ends");
        run
    }

    async fn looked(tracer: &mut Tracer, conn: &mut Conn) -> Vec<RunId> {
        let mut found = Vec::new();
        loop {
            match tracer.look(conn, &Definitions::default()).await {
                Ok(Look::Runs(runs)) => {
                    found.extend(runs.iter().map(|it| it.run));
                    tracer.sent(runs.len());
                }
                Ok(Look::More) => {}
                Ok(Look::Nothing) => return found,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_walk_that_steps_back_passes_over_what_it_has_sent_and_finds_what_came_late() {
        let (_directory, mut conn, definition) = begun().await;
        let conn = &mut conn;
        let mut tracer = Tracer::begin(conn).await.expect("a place");
        let first = ended(conn, &definition).await;
        assert_eq!(looked(&mut tracer, conn).await, [first]);
        assert_eq!(looked(&mut tracer, conn).await, []);
        // The same as if its commit had followed long after its end.
        let later = ended(conn, &definition).await;
        let late = ended(conn, &definition).await;
        tracer.since -= micros(SWEPT);
        tracer.sent.since -= micros(SWEPT);
        let moved = conn.script("late", LATE).await;
        moved.expect("an update");
        assert_eq!(looked(&mut tracer, conn).await, [later]);
        tracer.steps_back_at = Instant::now();
        assert_eq!(looked(&mut tracer, conn).await, [], "it has stepped back");
        assert_eq!(looked(&mut tracer, conn).await, [late]);
        // The same as if it had followed after nearly an hour.
        let slow = ended(conn, &definition).await;
        let moved = conn.script("slow", SLOW).await;
        moved.expect("an update");
        tracer.steps_back_at = Instant::now();
        assert_eq!(looked(&mut tracer, conn).await, []);
        assert_eq!(looked(&mut tracer, conn).await, []);
        tracer.sweeps_at = Instant::now();
        assert_eq!(looked(&mut tracer, conn).await, [slow]);
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_hides_no_run_that_ends_after_it_is_set_back() {
        let (_directory, mut conn, definition) = begun().await;
        let conn = &mut conn;
        let mut tracer = Tracer::begin(conn).await.expect("a place");
        // The same as if it had begun an hour ahead, and sent what ended then.
        tracer.since += micros(SWEPT);
        tracer.sent.since += micros(SWEPT);
        tracer.ended = Cursor::at(tracer.since);
        assert_eq!(looked(&mut tracer, conn).await, []);
        let run = ended(conn, &definition).await;
        tracer.steps_back_at = Instant::now();
        assert_eq!(looked(&mut tracer, conn).await, [], "it has stepped back");
        assert_eq!(looked(&mut tracer, conn).await, [run]);
    }

    #[test]
    fn of_too_many_that_were_sent_the_oldest_are_forgotten_and_not_looked_for_again() {
        let mut sent = Sent::default();
        let cursor = |time: i64| Cursor::new(time, Uuid::nil());
        for time in 0..KEPT as i64 + 5 {
            sent.add(cursor(time));
        }
        assert_eq!((sent.ends.len(), sent.since), (KEPT, 5));
        assert!(sent.ends.contains(&cursor(5)) && !sent.ends.contains(&cursor(4)));
        sent.forget(50);
        assert_eq!((sent.ends.len(), sent.since), (KEPT - 45, 50));
        sent.forget(7);
        assert_eq!(sent.since, 50, "what is forgotten stays so");
    }
}
