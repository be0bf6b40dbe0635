//! Runs of which endpoints have not been notified yet.
//!
//! Owns: how far back it searches, and how far one look goes. Never: writes SQL (`delivery` does), or sends anything.
//!
//! Three walks, each a page at a time. The first follows the runs that end. A run's time of ending is a little older
//! than the commit that shows it, so that walk starts over again and again, a minute before the place that it reached.
//! The second goes through a day of ends and finds runs that were committed later than that. The third goes through the
//! runs that wait for a person.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::machine::webhook::Interest;
use crate::model::*;

use super::conn::Conn;
use super::cursor::Cursor;
use super::delivery::{self, Found, Message};
use super::error::Error;
use super::{micros, query};

/// As a rule, a run's commit follows its time of ending by at most this long.
pub const OVERLAP: Duration = Duration::from_secs(60);

/// How far back the second walk goes.
const SWEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How often the second walk starts.
const SWEEP_EVERY: Duration = Duration::from_secs(10 * 60);

/// How many runs a page has.
const PAGE: usize = 500;

/// How often the place of the first walk is stored: a process that starts over begins there.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// Makes the text of a message, from a run, the reasons why it has halted, and the database's time.
pub type Word<'a> = &'a (dyn Fn(&Found, &[&str], i64) -> String + Sync);

/// An endpoint that listens.
#[derive(Clone, Debug)]
struct Ear {
    name: String,
    interest: Interest,
    /// It is notified of runs that ended at this time or later.
    since: i64,
}

impl Ear {
    fn wants(&self, run: &Found) -> bool {
        let is_new = run.ended_at.is_none_or(|it| it >= self.since);
        is_new && self.interest.wants(&run.pipeline, run.status)
    }
}

/// The runs with damaged rows that a walk has met: it meets each again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Damaged {
    known: BTreeSet<RunId>,
    new: Vec<RunId>,
}

impl Damaged {
    pub(super) fn meet(&mut self, runs: Vec<RunId>) {
        let known = &mut self.known;
        self.new
            .extend(runs.into_iter().filter(|run| known.insert(*run)));
    }

    /// Those that were met for the first time since the last call.
    pub(super) fn take(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.new)
    }
}

/// The walks of one process that looks for runs.
#[derive(Clone, Debug)]
pub struct Finder {
    ears: Vec<Ear>,
    ended: Cursor,
    swept: Option<Cursor>,
    sweeps_at: Instant,
    waiting: (String, RunId),
    written: Option<Instant>,
    damaged: Damaged,
}

impl Finder {
    /// Begins where the last process that looked for these endpoints stopped.
    pub async fn begin(conn: &mut Conn, endpoints: &[(String, Interest)]) -> Result<Self, Error> {
        let (mut ears, mut seen) = (Vec::new(), i64::MAX);
        for (name, interest) in endpoints {
            let heard = delivery::heard(conn, name).await?;
            seen = seen.min(heard.seen);
            ears.push(Ear {
                name: name.clone(),
                interest: interest.clone(),
                since: heard.since,
            });
        }
        Ok(Self {
            ears,
            ended: Cursor::at(seen.saturating_sub(micros(OVERLAP))),
            swept: None,
            sweeps_at: Instant::now(),
            waiting: (String::new(), RunId(Uuid::nil())),
            written: None,
            damaged: Damaged::default(),
        })
    }

    /// Looks at a page of each walk and stores the messages that endpoints have not received yet. True where the
    /// first walk has not reached its end.
    pub async fn look(&mut self, conn: &mut Conn, word: Word<'_>) -> Result<bool, Error> {
        let now = query::now(conn).await?;
        // The clock may have been set back.
        for ear in &mut self.ears {
            ear.since = ear.since.min(now);
        }
        let page = delivery::ended(conn, self.ended, PAGE).await?;
        self.tell(conn, &page.runs, word, now).await?;
        self.damaged.meet(page.damaged);
        let last = page.last.filter(|_| page.is_full);
        let seen = last.map_or(now, |last| last.time());
        self.ended = last.unwrap_or(Cursor::at(now.saturating_sub(micros(OVERLAP))));
        self.write(conn, seen).await?;
        self.sweep(conn, word, now).await?;
        let hears_of_waits = |it: &Ear| it.interest.events.contains(&RunStatus::Dampened);
        if self.ears.iter().any(hears_of_waits) {
            let behind = (self.waiting.0.as_str(), self.waiting.1);
            let page = delivery::waiting(conn, behind, PAGE).await?;
            self.tell(conn, &page.runs, word, now).await?;
            self.damaged.meet(page.damaged);
            let last = page.last.filter(|_| page.is_full);
            self.waiting = last.unwrap_or((String::new(), RunId(Uuid::nil())));
        }
        Ok(last.is_some())
    }

    async fn write(&mut self, conn: &mut Conn, seen: i64) -> Result<(), Error> {
        let began = Instant::now();
        if self.written.is_some_and(|at| began < at + WRITTEN_EVERY) {
            return Ok(());
        }
        for ear in &self.ears {
            delivery::see(conn, &ear.name, seen).await?;
        }
        self.written = Some(began);
        Ok(())
    }

    async fn sweep(&mut self, conn: &mut Conn, word: Word<'_>, now: i64) -> Result<(), Error> {
        let began = Instant::now();
        if self.swept.is_none() && began < self.sweeps_at {
            return Ok(());
        }
        let from = Cursor::at(now.saturating_sub(micros(SWEPT)));
        let swept = match self.swept {
            Some(swept) => swept,
            None => {
                self.sweeps_at = began + SWEEP_EVERY;
                from
            }
        };
        let page = delivery::ended(conn, swept, PAGE).await?;
        self.tell(conn, &page.runs, word, now).await?;
        self.damaged.meet(page.damaged);
        // The first walk covers the rest.
        let is_full = page.is_full;
        self.swept = page.last.filter(|last| is_full && *last < self.ended);
        Ok(())
    }

    /// The runs with damaged rows that were met since the last call: no endpoint is notified of them.
    pub fn take_damaged(&mut self) -> Vec<RunId> {
        self.damaged.take()
    }

    /// Stores messages about these runs for all endpoints that are to be notified of them and have not been.
    async fn tell(
        &self,
        conn: &mut Conn,
        found: &[Found],
        word: Word<'_>,
        now: i64,
    ) -> Result<(), Error> {
        let wanted = |run: &&Found| self.ears.iter().any(|ear| ear.wants(run));
        let found: Vec<&Found> = found.iter().filter(wanted).collect();
        if found.is_empty() {
            return Ok(());
        }
        let known = delivery::known(conn, found.iter().map(|run| run.id)).await?;
        let mut new = Vec::new();
        for run in found {
            for ear in self.ears.iter().filter(|ear| ear.wants(run)) {
                let key = (run.id, ear.name.clone(), run.status.as_str().to_owned());
                if !known.contains(&key) {
                    new.push((ear, run));
                }
            }
        }
        let halted = new
            .iter()
            .filter(|(_, run)| run.status == RunStatus::Halted);
        // Each run once, however many endpoints are notified of it.
        let halted: BTreeSet<RunId> = halted.map(|(_, run)| run.id).collect();
        let reasons = delivery::halt_reasons(conn, halted.into_iter().collect()).await?;
        let message = |(ear, run): &(&Ear, &Found)| {
            let own = reasons.iter().filter(|(id, _)| *id == run.id);
            let own: Vec<&str> = own.map(|(_, reason)| reason.as_str()).collect();
            Message {
                endpoint: ear.name.clone(),
                run: run.id,
                event: run.status,
                pipeline: run.pipeline.clone(),
                body: word(run, &own, now),
            }
        };
        let messages: Vec<Message> = new.iter().map(message).collect();
        delivery::insert(conn, &messages).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Pipeline;
    use crate::store::trigger::{NewRun, trigger};
    use crate::store::{Location, Purpose, cancel, migrate};

    #[tokio::test]
    async fn a_clock_that_was_ahead_hides_no_run_that_ends_after_it_is_set_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let location = Location::sqlite(directory.path().join("t.db"));
        let mut conn = location.connect(Purpose::Engine).await.expect("a file");
        let conn = &mut conn;
        migrate::migrate(conn).await.expect("a new schema");
        let definition = Pipeline::named("P").start("A").build().expect("one step");
        let all = Interest {
            events: vec![RunStatus::Cancelled],
            pipelines: Vec::new(),
        };
        let endpoints = [("ops".to_owned(), all)];
        let word: Word<'_> = &|_, _, _| "{}".to_owned();
        let mut finder = Finder::begin(conn, &endpoints).await.expect("a place");
        // The same as if it had begun an hour ahead.
        finder.ears[0].since += 3_600_000_000;
        finder.ended = Cursor::at(finder.ears[0].since);
        finder.look(conn, word).await.expect("a look");
        let run = [NewRun {
            key: None,
            input: "1",
        }];
        let made = trigger(conn, &definition, &run, Duration::ZERO).await;
        let run = made.expect("a run")[0].run_id;
        let cancelled = cancel::cancel(conn, run).await;
        let _ = cancelled.expect("it ends");
        finder.look(conn, word).await.expect("a look");
        let known = delivery::known(conn, [run].into_iter()).await;
        let key = (
            run,
            "ops".to_owned(),
            RunStatus::Cancelled.as_str().to_owned(),
        );
        assert!(known.expect("the messages").contains(&key));
    }
}
