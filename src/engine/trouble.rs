//! Troubles: conditions that keep a living process from making progress. They are logged ever more
//! rarely, and reported with its row to people who look.
//!
//! Owns: which troubles there are, since when, and which of them is reported. Never: writes; mends.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::telemetry::events;
use crate::telemetry::growing::Growing;

/// A kind of trouble. Most concern one thing: a definition, a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// A definition that this version cannot read.
    Definition,
    /// A row in which this version does not understand a word.
    Row,
    /// A row that is due or ready, and cannot be claimed.
    Damaged,
    /// Another session of the database has locked executions that are due, or rows of results.
    Locked,
    /// The connection for the work cannot be used.
    Reaching,
    /// Deadlines, unfinished cancellations and retention: the database refuses the work.
    Keeping,
    /// The database hides rows from this program.
    Hidden,
    /// A step waits for the context of its run.
    Context,
    /// Some results cannot be stored, and the others can.
    Storing,
    /// Claims or commits fail.
    Working,
    /// A step cannot be started, because the machine lacks something, or a disk fails.
    Starting,
    /// A child of ours cannot register.
    Registering,
    /// A child of ours dies again and again. When that is over, it is no longer met.
    Dying,
    /// A hook of the process takes long; until it has ended, a start goes no further.
    Hooking,
    /// Claims of branches fail, or advancing them in general fails.
    Advancing,
    /// The console's address is taken by somebody else.
    Listening,
    /// Traces cannot be sent.
    Exporting,
    /// The database refuses a statement of the console. The console has several statements under way at once, and does not
    /// say which of them succeeds again: when this is over, it is no longer met.
    Refused,
    /// The configuration could not be read anew.
    Reloading,
}

impl Trouble {
    /// Once it has lasted this long, it is reported with the process's row: a trouble that is over by the
    /// next attempt concerns nobody.
    fn report_after(self) -> Duration {
        Duration::from_secs(match self {
            // Nobody tries again.
            Self::Reloading => 0,
            // A predecessor that drains has released the address by then.
            Self::Listening => 6,
            // It has taken a while when it is met first.
            Self::Hooking => 0,
            _ => 15,
        })
    }

    fn report_for(self) -> Duration {
        match self {
            Self::Refused => REFUSED_FOR,
            Self::Dying | Self::Starting => 2 * REPORT_FOR,
            _ => REPORT_FOR,
        }
    }

    /// True where it keeps only some of the work from being done.
    fn is_of_some(self) -> bool {
        matches!(
            self,
            Self::Locked | Self::Storing | Self::Context | Self::Keeping | Self::Refused
        )
    }
}

/// After this long without being met, it is no longer reported. Longer than the pause between two
/// attempts. A child that has lived for a minute is started again within half a minute, and a start that hangs is given
/// up after a minute and tried again a minute later: these may be twice as far apart.
const REPORT_FOR: Duration = Duration::from_secs(90);

/// A refusal that a console has not met again for this long is no longer reported: a console tries again within
/// seconds, so a later refusal is another trouble.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// The longest text of a trouble in a row, in characters.
const REPORT_MAX: usize = 500;

type Key = (Trouble, String);

/// The troubles of a process.
#[derive(Debug, Default)]
pub struct Troubles {
    lasting: Growing<Key>,
    texts: HashMap<Key, String>,
}

/// A trouble that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// Its text.
    pub text: String,
    /// For how long.
    pub lasted: Duration,
}

impl Troubles {
    /// Takes note of one at `now`; logs it, if it is time to.
    pub fn meet(&mut self, trouble: Trouble, about: &str, text: &str, now: Instant) {
        self.meet_since(trouble, about, text, [now, now]);
    }

    /// The same for one that had lasted since the first of the two times if it was unknown.
    pub fn meet_since(
        &mut self,
        trouble: Trouble,
        about: &str,
        text: &str,
        [first, now]: [Instant; 2],
    ) {
        let key = (trouble, about.to_owned());
        let last = self.lasting.met().find(|(known, _)| **known == key);
        let last = last.map(|(_, met)| now.saturating_duration_since(met.last));
        if trouble == Trouble::Refused && last.is_some_and(|last| last >= REFUSED_FOR) {
            self.lasting.over(&key);
        }
        if let Some(lasted) = self.lasting.meet_since(&key, first, now) {
            match trouble {
                Trouble::Definition | Trouble::Row => events::unreadable(text, lasted),
                Trouble::Damaged => events::unclaimable(text, lasted),
                Trouble::Locked => events::locked(text, lasted),
                // The log has said so already.
                Trouble::Reaching | Trouble::Dying => {}
                // Two branches of a run often set a value at once: one of them waits for a moment.
                Trouble::Context if lasted.is_zero() => {}
                Trouble::Context => events::context_waits(text, lasted),
                Trouble::Keeping => events::keeping_failed(text, lasted),
                Trouble::Hidden => events::rows_hidden(text, lasted),
                Trouble::Refused => events::console_refused(text, lasted),
                Trouble::Storing => events::not_stored(text, lasted),
                Trouble::Working => events::working_failed(text, lasted),
                Trouble::Registering => events::not_registered(text, lasted),
                Trouble::Starting => events::not_started(text, lasted),
                Trouble::Hooking => events::hook_takes_long(text, lasted),
                Trouble::Advancing => events::advancing_failed(text, lasted),
                Trouble::Listening => events::not_listening(text, lasted),
                Trouble::Exporting => events::not_exported(text, lasted),
                // The log said so when the reload was requested.
                Trouble::Reloading if lasted.is_zero() => {}
                Trouble::Reloading => events::reload_failed(text, lasted),
            }
        }
        self.texts
            .insert(key, text.chars().take(REPORT_MAX).collect());
        if self.texts.len() > self.lasting.met().count() {
            let lasting = &self.lasting;
            self.texts
                .retain(|key, _| lasting.met().any(|(known, _)| known == key));
        }
    }

    /// It is over.
    pub fn over(&mut self, trouble: Trouble, about: &str) {
        let key = (trouble, about.to_owned());
        let since = self.lasting.over(&key);
        self.texts.remove(&key);
        if let (Trouble::Locked, Some(since)) = (trouble, since) {
            events::unlocked(about, since.elapsed());
        }
    }

    /// All of this kind are over.
    pub fn all_over(&mut self, trouble: Trouble) {
        let its = self.lasting.met().filter(|((kind, _), _)| *kind == trouble);
        let its: Vec<String> = its.map(|((_, about), _)| about.clone()).collect();
        for about in its {
            self.over(trouble, &about);
        }
    }

    /// The trouble that has lasted longest, if any lasts; one that keeps only some of the work from being done
    /// gives precedence to any other.
    pub fn longest(&self, now: Instant) -> Option<Lasting> {
        let lasting = self.lasting.met().filter(|((trouble, _), met)| {
            met.last.saturating_duration_since(met.first) >= trouble.report_after()
                && now.saturating_duration_since(met.last) < trouble.report_for()
        });
        let (key, met) = lasting.min_by_key(|(key, met)| (key.0.is_of_some(), met.first))?;
        Some(Lasting {
            text: self.texts.get(key)?.clone(),
            lasted: now.saturating_duration_since(met.first),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_that_failed_is_told_at_once_and_a_taken_address_after_its_predecessor_has_drained()
    {
        let start = Instant::now();
        for (trouble, seconds) in [(Trouble::Reloading, 0), (Trouble::Listening, 6)] {
            let mut troubles = Troubles::default();
            troubles.meet(trouble, "", "text", start);
            let after = start + Duration::from_secs(seconds);
            assert_eq!(troubles.longest(start).is_some(), seconds == 0);
            troubles.meet(trouble, "", "text", after);
            assert!(troubles.longest(after).is_some());
            troubles.over(trouble, "");
            assert_eq!(troubles.longest(after), None);
        }
    }

    #[test]
    fn a_lock_that_some_of_the_work_waits_for_hides_no_other_trouble() {
        let mut troubles = Troubles::default();
        let start = Instant::now();
        let minute = start + Duration::from_secs(60);
        for at in [start, minute] {
            troubles.meet(Trouble::Locked, "", "some", at);
        }
        assert_eq!(
            troubles.longest(minute).map(|it| it.text).as_deref(),
            Some("some")
        );
        for at in [minute, minute + Duration::from_secs(20)] {
            troubles.meet(Trouble::Working, "", "all", at);
        }
        let told = troubles.longest(minute + Duration::from_secs(20));
        assert_eq!(told.map(|it| it.text).as_deref(), Some("all"));
    }

    #[test]
    fn refusals_that_a_console_meets_now_and_then_are_several_troubles() {
        let mut troubles = Troubles::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in [0, 40, 80] {
            troubles.meet(Trouble::Refused, "ONE", "no room", at(seconds));
            assert_eq!(troubles.longest(at(seconds)), None);
        }
        troubles.meet(Trouble::Refused, "ONE", "no room", at(100));
        assert!(troubles.longest(at(129)).is_some());
        assert_eq!(troubles.longest(at(130)), None);
        troubles.all_over(Trouble::Refused);
        assert_eq!(troubles.longest(at(100)), None);
    }

    #[test]
    fn what_lasts_is_told_until_it_is_over_and_what_was_met_once_is_not() {
        let mut troubles = Troubles::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        troubles.meet(Trouble::Working, "", "refused", start);
        assert_eq!(troubles.longest(at(60)), None, "it was met once");
        troubles.meet(Trouble::Working, "", "refused again", at(20));
        troubles.meet(Trouble::Definition, "d", "unread", at(5));
        troubles.meet(Trouble::Definition, "d", "unread", at(25));
        let first = Lasting {
            text: "refused again".to_owned(),
            lasted: Duration::from_secs(30),
        };
        assert_eq!(troubles.longest(at(30)), Some(first));
        troubles.over(Trouble::Working, "");
        let reported = troubles.longest(at(30)).map(|lasting| lasting.text);
        assert_eq!(reported.as_deref(), Some("unread"));
        assert_eq!(troubles.longest(at(25) + REPORT_FOR), None);
        assert_eq!(troubles.texts.len(), 1);
    }
}
