//! Places where something goes wrong on purpose, for tests.
//!
//! Owns: the list of these places, the faults that are possible at one, and the variables that
//! request them. Never: is part of a program that is built without the feature `failpoints`: there
//! `failpoint!` expands to nothing, and a test searches the built program for the names.
//!
//! `DUCTWORK_FAIL` says where and what: `NAME=[P%][N*]ACTION;…`. `P%` makes it a matter of chance;
//! `N*` limits it to the first N of all processes that reach the place. The processes count
//! together, in the file that `DUCTWORK_FAIL_LOG` names, to which every hit is appended before it
//! happens. Actions:
//!
//! | action | what happens |
//! |---|---|
//! | `error(CLASS)` | the operation fails: `unavailable`, `retryable`, `hindered`, `refused` |
//! | `droptx` | the connection is cut, with whatever transaction is open on it |
//! | `acklost` | the operation is done, and its caller is told that the connection is gone |
//! | `kill9`, `abort`, `exit(CODE)` | the process ends there |
//! | `panic` | the task, or the thread, panics there |
//! | `sleep(MS)` | the process stands still |
//! | `pause(FIFO)` | the process stands still until somebody has written to this named pipe |
//! | `clock(S)` | the host's clock is set, to be off by S seconds: under `tests/support/clock.rs`, whose file `TEST_CLOCK` names |
//!
//! `begin` is before a transaction, `written` before its COMMIT (on SQLite before its last statement,
//! if that includes the COMMIT), and `end` after it, when only the answer is missing. Other names are
//! between two statements of one transaction. Where PostgreSQL does everything in one statement
//! (claims, and commits with the edges that they cross), these places exist on SQLite alone; the
//! writes after a commit's guard go to PostgreSQL in one trip, which has no place inside it.
//!
//! `DUCTWORK_WITHOUT=STATEMENT N CONDITION` removes a condition from a statement: its Nth
//! occurrence. Tests use this to prove that other tests would fail (`tests/store/guarded.rs`).

/// A place where something may go wrong.
///
/// `failpoint!("name")`: nothing but the process can fail here. `failpoint!(io "name")`: an
/// operation of the system. `failpoint!(conn, "name")`: an operation of the store. The last two
/// return the error.
macro_rules! failpoint {
    (io $name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach_io($name)?;
    };
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reach_plain($name);
    };
    ($conn:expr, $name:literal) => {
        #[cfg(feature = "failpoints")]
        $conn.reach($name)?;
    };
}
pub(crate) use failpoint;

#[cfg(feature = "failpoints")]
pub use armed::{Class, Fault, POINTS, VARIABLES, reach};
#[cfg(feature = "failpoints")]
pub(crate) use armed::{lacking, reach_io, reach_plain};

#[cfg(feature = "failpoints")]
mod armed {
    use std::borrow::Cow;
    use std::fs::{File, OpenOptions};
    use std::io::{self, Read, Write};
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::PathBuf;
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::time::Duration;

    use nix::fcntl::{Flock, FlockArg};
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    /// Every place.
    pub const POINTS: &[&str] = &[
        "trigger.begin",
        "trigger.written",
        "trigger.end",
        "claim.begin",
        "claim.taken",
        "claim.written",
        "claim.end",
        "commit.begin",
        "commit.guarded",
        "commit.end",
        "landed.begin",
        "branches.begin",
        "branches.claimed",
        "branches.opened",
        "branches.written",
        "branches.end",
        "advance.begin",
        "advance.loaded",
        "cross.left",
        "cross.chunk",
        "cross.made",
        "cross.arriving",
        "cross.arrived",
        "cross.fired",
        "cross.recorded",
        "advance.written",
        "advance.end",
        "register.begin",
        "register.end",
        "beat.begin",
        "beat.end",
        "recover.begin",
        "recover.removed",
        "recover.written",
        "recover.end",
        "revive.begin",
        "revive.branched",
        "revive.copied",
        "revive.written",
        "revive.end",
        "cancel.begin",
        "cancel.written",
        "cancel.end",
        "resume.begin",
        "resume.written",
        "resume.end",
        "pause.begin",
        "pause.written",
        "pause.end",
        "unpause.begin",
        "unpause.written",
        "unpause.end",
        "prune.begin",
        "prune.deleted",
        "prune.written",
        "prune.end",
        "prune.between",
        "migrate.begin",
        "migrate.written",
        "migrate.end",
        "exec.fork",
        "exec.spawned",
        "exec.half_fed",
        "exec.half_read",
        "exec.ending",
        "exec.killing",
        "exec.ended",
        "child.start",
        "supervisor.fork",
        "supervisor.forked",
        "supervisor.reaped",
        "supervisor.killing",
        "supervisor.replacing",
        "supervisor.stopping",
        "supervisor.reading",
    ];

    /// The variables of the places and faults, of the file of hits, and of the condition to leave out.
    pub const VARIABLES: [&str; 3] = ["DUCTWORK_FAIL", "DUCTWORK_FAIL_LOG", "DUCTWORK_WITHOUT"];

    /// The variable of the file that contains, as eight characters, by how many seconds the host's clock is
    /// off.
    const CLOCK: &str = "TEST_CLOCK";

    /// The effect on an operation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The operation fails.
        Error(Class),
        /// The operation's connection is gone.
        Cut,
        /// The operation is done, and then its connection is gone.
        Lost,
    }

    /// The classes of errors, by the caller's possible reaction.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Class {
        /// Wait, reconnect, go on.
        Unavailable,
        /// Try the whole operation again.
        Retryable,
        /// Wait: its environment is in the way.
        Hindered,
        /// Nothing: a bug.
        Refused,
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Action {
        Fault(Fault),
        Kill,
        Abort,
        Panic,
        Exit(i32),
        Sleep(Duration),
        Pause(PathBuf),
        Clock(i32),
    }

    #[derive(Debug)]
    struct Rule {
        name: String,
        percent: u128,
        most: usize,
        action: Action,
        /// The rule as it was written.
        text: String,
    }

    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLES[0]).unwrap_or_default();
        rules(&text).unwrap_or_else(|rule| panic!("{}: {rule}", VARIABLES[0]))
    });

    /// The text of a statement, without the condition that `DUCTWORK_WITHOUT` removes from it:
    /// `STATEMENT N CONDITION` means the Nth occurrence. A statement of one database may be a part of
    /// another database's statement.
    pub(crate) fn lacking<'a>(statement: &str, text: &'a str) -> Cow<'a, str> {
        let without = std::env::var(VARIABLES[2]).unwrap_or_default();
        let [name, nth, condition] = without.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            return Cow::Borrowed(text);
        };
        let part = match name == statement {
            true => Some(0..text.len()),
            false => part(name, text),
        };
        let Some(part) = part else {
            return Cow::Borrowed(text);
        };
        let nth = nth.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
        let found = nth.and_then(|nth| text[part.clone()].match_indices(condition).nth(nth));
        let Some((at, _)) = found else {
            panic!("not found: {without}");
        };
        let (before, after) = text.split_at(part.start + at);
        Cow::Owned(format!("{before}TRUE{}", &after[condition.len()..]))
    }

    /// The range of the part of this name in a statement.
    fn part(name: &str, text: &str) -> Option<std::ops::Range<usize>> {
        const MARK: &str = "-- part: ";
        let from = text.find(&format!("{MARK}{name}\n"))?;
        let behind = from + MARK.len();
        let until = text[behind..].find(MARK);
        Some(from..until.map_or(text.len(), |next| behind + next))
    }

    /// The hits of this process, if there is no file to count them in.
    static HITS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn rules(text: &str) -> Result<Vec<Rule>, String> {
        let written = text.split(';').filter(|rule| !rule.is_empty());
        written
            .map(|rule| read(rule).ok_or_else(|| format!("not a rule: {rule}")))
            .collect()
    }

    fn read(rule: &str) -> Option<Rule> {
        let (name, text) = rule.split_once('=')?;
        let (percent, rest) = match text.split_once('%') {
            Some((percent, rest)) => (percent.parse().ok()?, rest),
            None => (100, text),
        };
        let (most, rest) = match rest.split_once('*') {
            Some((most, rest)) => (most.parse().ok()?, rest),
            None => (usize::MAX, rest),
        };
        let (word, argument) = match rest.split_once('(') {
            Some((word, argument)) => (word, argument.strip_suffix(')')?),
            None => (rest, ""),
        };
        let action = match (word, argument) {
            ("error", "unavailable") => Action::Fault(Fault::Error(Class::Unavailable)),
            ("error", "retryable") => Action::Fault(Fault::Error(Class::Retryable)),
            ("error", "hindered") => Action::Fault(Fault::Error(Class::Hindered)),
            ("error", "refused") => Action::Fault(Fault::Error(Class::Refused)),
            ("droptx", "") => Action::Fault(Fault::Cut),
            ("acklost", "") => Action::Fault(Fault::Lost),
            ("kill9", "") => Action::Kill,
            ("abort", "") => Action::Abort,
            ("panic", "") => Action::Panic,
            ("exit", code) => Action::Exit(code.parse().ok()?),
            ("sleep", ms) => Action::Sleep(Duration::from_millis(ms.parse().ok()?)),
            ("pause", fifo) => Action::Pause(fifo.into()),
            ("clock", seconds) => Action::Clock(seconds.parse().ok()?),
            _ => return None,
        };
        POINTS.contains(&name).then(|| Rule {
            name: name.to_owned(),
            percent,
            most,
            action,
            text: rest.to_owned(),
        })
    }

    /// The fault to apply here; any other action is over (or has ended everything) when this returns.
    pub fn reach(name: &'static str) -> Option<Fault> {
        let rule = RULES.iter().find(|rule| rule.name == name)?;
        if uuid::Uuid::new_v4().as_u128() % 100 >= rule.percent || !hit(rule) {
            return None;
        }
        match &rule.action {
            Action::Fault(fault) => return Some(*fault),
            Action::Kill => drop(kill(Pid::this(), Signal::SIGKILL)),
            Action::Abort => std::process::abort(),
            // Without the message that a test takes for that of a defect.
            Action::Panic => std::panic::resume_unwind(Box::new(name)),
            #[expect(clippy::disallowed_methods, reason = "it is to end here and now")]
            Action::Exit(code) => std::process::exit(*code),
            Action::Sleep(span) => std::thread::sleep(*span),
            Action::Pause(fifo) => {
                let mut told = Vec::new();
                let read = File::open(fifo).and_then(|mut fifo| fifo.read_to_end(&mut told));
                read.unwrap_or_else(|error| panic!("{}: {error}", fifo.display()));
            }
            Action::Clock(seconds) => {
                let file = std::env::var_os(CLOCK).unwrap_or_default();
                let set = OpenOptions::new().write(true).open(&file);
                let set =
                    set.and_then(|file| file.write_all_at(format!("{seconds:+08}").as_bytes(), 0));
                set.unwrap_or_else(|error| panic!("{CLOCK}: {error}"));
            }
        }
        None
    }

    /// For places where no operation can fail.
    pub(crate) fn reach_plain(name: &'static str) {
        let fault = reach(name);
        assert_eq!(fault, None, "nothing can fail at {name} but the process");
    }

    /// For places where the operating system could refuse something.
    pub(crate) fn reach_io(name: &'static str) -> io::Result<()> {
        match reach(name) {
            None => Ok(()),
            Some(_) => Err(io::Error::from_raw_os_error(nix::libc::EAGAIN)),
        }
    }

    /// Records the hit; false when there have been enough.
    fn hit(rule: &Rule) -> bool {
        let Some(path) = std::env::var_os(VARIABLES[1]) else {
            let mut hits = HITS.lock().unwrap_or_else(PoisonError::into_inner);
            hits.push(rule.name.clone());
            return hits.iter().filter(|name| **name == rule.name).count() <= rule.most;
        };
        let counted = || {
            let mut options = OpenOptions::new();
            let file = options.create(true).read(true).append(true).mode(0o600);
            let lock = Flock::lock(file.open(&path)?, FlockArg::LockExclusive);
            let mut file = lock.map_err(|(_, errno)| io::Error::from(errno))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let of = |line: &&str| line.split(' ').next() == Some(&rule.name);
            if text.lines().filter(of).count() >= rule.most {
                return Ok(false);
            }
            let line = format!("{} {} {}\n", rule.name, rule.text, std::process::id());
            file.write_all(line.as_bytes())?;
            Ok::<bool, io::Error>(true)
        };
        counted().unwrap_or_else(|error| panic!("{}: {error}", VARIABLES[1]))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_rule_is_a_name_a_chance_a_number_and_an_action() {
            let text = "commit.end=acklost;claim.begin=5%2*sleep(30);beat.end=clock(-60);";
            let read = rules(text).unwrap();
            assert_eq!(read.len(), 3);
            assert_eq!(read[2].action, Action::Clock(-60));
            assert_eq!(read[0].action, Action::Fault(Fault::Lost));
            assert_eq!((read[0].percent, read[0].most), (100, usize::MAX));
            assert_eq!(read[1].action, Action::Sleep(Duration::from_millis(30)));
            assert_eq!((read[1].percent, read[1].most), (5, 2));
            for wrong in [
                "nowhere=kill9",
                "commit.end",
                "commit.end=error(x)",
                "commit.end=kill",
            ] {
                assert!(rules(wrong).is_err(), "{wrong}");
            }
        }
    }
}
