//! Stamps of life, for probes that must ask nobody: a process is not unfit because its database is away.
//!
//! Owns: a file for each supervisor and each process of a role of its own, in the directory of the
//! wakeups, and how it is read. Never: judges what the process does; heartbeats are for that.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::identity::{self, Identity};
use super::roster::Pid;

/// The age at which a stamp says that the loop of its process stands still.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The shortest time between two stamps.
const EVERY: Duration = Duration::from_secs(1);

const PREFIX: &str = "live-";

/// Written once for each turn of a loop.
pub struct Stamp {
    file: File,
    path: PathBuf,
    me: String,
    last: Option<Duration>,
    is_told: bool,
}

impl Stamp {
    /// The stamp of this process, in `directory`.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let me = Identity::current();
        tidy(directory);
        // Containers that share the directory have processes of the same pid. Proven by
        // `processes_of_the_same_pid_in_two_namespaces_have_a_stamp_each`.
        let path = directory.join(format!("{PREFIX}{}-{}", me.pid_namespace, me.pid));
        Ok(Self {
            file: Self::new_file(&path)?,
            path,
            me: format!("{} {}", me.pid_namespace, me.started_ticks),
            last: None,
            is_told: false,
        })
    }

    fn new_file(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)
    }

    /// Records that the loop has turned.
    pub fn touch(&mut self) {
        let Some(now) = now() else { return };
        if self.last.is_some_and(|last| now < last + EVERY) {
            return;
        }
        let age = self.last.map_or(Duration::ZERO, |last| now - last);
        if age >= STALE_AFTER {
            tracing::warn!(
                seconds = age.as_secs(),
                "the loop of this process stood still: perhaps a signal, its container or its host has stopped it"
            );
        }
        self.last = Some(now);
        // Somebody may have tidied up.
        if !self.path.exists() {
            match Self::new_file(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => return self.tell(&error),
            }
        }
        // One write, always of the same length: a concurrent reader reads either the old or the new line.
        let line = format!("{} {:020}\n", self.me, now.as_millis());
        match self.file.write_all_at(line.as_bytes(), 0) {
            Ok(()) => self.is_told = false,
            Err(error) => self.tell(&error),
        }
    }

    /// Once, until a stamp is written.
    fn tell(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_told, true) {
            let file = self.path.display();
            tracing::warn!(%error, %file, "no liveness file: `health --live` does not find this process");
        }
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // A stamp that stays is ignored, because its process is dead, and is deleted some day.
        let _left_behind = std::fs::remove_file(&self.path);
    }
}

/// The age at which a stamp of nobody is deleted. A living process makes its own anew.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Deletes what killed processes of other namespaces have left behind.
fn tidy(directory: &Path) {
    let now = now().unwrap_or_default();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let is_stamp = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_stamp && std::fs::read_to_string(entry.path()).is_ok_and(|it| is_old(&it, now)) {
            // Somebody else may have deleted it.
            let _gone = std::fs::remove_file(entry.path());
        }
    }
}

/// True of a stamp from long ago, or from before the host started.
fn is_old(text: &str, now: Duration) -> bool {
    let at = text.split_ascii_whitespace().nth(2);
    let at = at.and_then(|at| Some(Duration::from_millis(at.parse().ok()?)));
    at.is_some_and(|at| at > now || now - at > LEFT_BEHIND)
}

/// The time since the host started; the same for all its processes, and nobody sets it.
fn now() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .ok()
        .map(Duration::from)
}

/// A living process, by its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its pid.
    pub pid: Pid,
    /// How long ago its loop turned.
    pub age: Duration,
}

impl Living {
    /// True when its loop turns.
    pub fn is_live(&self) -> bool {
        self.age < STALE_AFTER
    }
}

impl fmt::Display for Living {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.age.as_secs();
        write!(
            to,
            "the loop of process {} has stood still for {seconds}s",
            self.pid
        )
    }
}

/// The processes of this pid namespace that stamp in `directory`.
pub fn living(directory: &Path) -> io::Result<Vec<Living>> {
    let namespace = Identity::current().pid_namespace;
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        // Its last process has gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = name.and_then(|name| name.rsplit('-').next()?.parse::<Pid>().ok());
        let Some(pid) = pid else { continue };
        // It may be gone by now.
        let Ok(text) = std::fs::read_to_string(entry.path()) else {
            continue;
        };
        found.extend(read(&text, &namespace, pid));
    }
    Ok(found)
}

fn read(text: &str, namespace: &str, pid: Pid) -> Option<Living> {
    let mut words = text.split_ascii_whitespace();
    let (theirs, started, at) = (words.next()?, words.next()?, words.next()?);
    let started: u64 = started.parse().ok()?;
    let at = Duration::from_millis(at.parse().ok()?);
    let is_it = identity::stat(pid).is_some_and(|stat| stat.started_ticks == started);
    (theirs == namespace && is_it).then(|| Living {
        pid,
        age: now().unwrap_or_default().saturating_sub(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_while_its_loop_turns_and_is_gone_with_its_stamp() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(living(place.path()).unwrap(), []);
        let mut stamp = Stamp::new(place.path()).unwrap();
        assert_eq!(
            living(place.path()).unwrap(),
            [],
            "its loop has not turned yet"
        );
        stamp.touch();
        let found = living(place.path()).unwrap();
        assert_eq!(found[0].pid, std::process::id() as Pid);
        assert!(found[0].is_live());
        // It was tidied away.
        std::fs::remove_file(&stamp.path).unwrap();
        stamp.last = None;
        stamp.touch();
        assert_eq!(living(place.path()).unwrap().len(), 1);
        drop(stamp);
        assert_eq!(living(place.path()).unwrap(), []);
    }

    #[test]
    fn processes_of_the_same_pid_in_two_namespaces_have_a_stamp_each() {
        let place = tempfile::tempdir().unwrap();
        let me = Identity::current();
        let mut mine = Stamp::new(place.path()).unwrap();
        mine.touch();
        let name = mine.path.file_name().unwrap().to_str().unwrap();
        assert!(name.contains(&me.pid_namespace), "{name}");
        let other = place
            .path()
            .join(name.replace(&me.pid_namespace, "pid:[1]"));
        let now = now().unwrap();
        let line = |at: Duration| format!("pid:[1] 1 {:020}\n", at.as_millis());
        std::fs::write(&other, line(now)).unwrap();
        assert_eq!(living(place.path()).unwrap().len(), 1);
        drop(mine);
        let mine = Stamp::new(place.path()).unwrap();
        assert!(other.exists());
        drop(mine);
        // The host has started anew since.
        std::fs::write(&other, line(now + LEFT_BEHIND)).unwrap();
        let _mine = Stamp::new(place.path()).unwrap();
        assert!(!other.exists());
    }

    #[test]
    fn a_stamp_is_old_after_a_day_and_one_that_is_not_written_yet_is_not() {
        let at = |seconds: u64| format!("pid:[1] 1 {:020}\n", seconds * 1_000);
        let now = 2 * LEFT_BEHIND;
        assert!(is_old(&at(60), now));
        assert!(!is_old(&at(now.as_secs() - 60), now));
        assert!(is_old(&at(now.as_secs() + 60), now));
        assert!(!is_old("", now));
    }

    #[test]
    fn an_old_stamp_tells_of_a_loop_that_stands_still_and_another_process_is_passed_over() {
        let me = Identity::current();
        let at = now().unwrap().saturating_sub(Duration::from_secs(7));
        let line =
            |namespace: &str, ticks: u64| format!("{namespace} {ticks} {:020}\n", at.as_millis());
        let of = |text: &str| read(text, &me.pid_namespace, me.pid);
        let found = of(&line(&me.pid_namespace, me.started_ticks)).unwrap();
        assert!(!found.is_live());
        assert!(
            found.to_string().ends_with("has stood still for 7s"),
            "{found}"
        );
        assert_eq!(of(&line(&me.pid_namespace, me.started_ticks + 1)), None);
        assert_eq!(of(&line("pid:[1]", me.started_ticks)), None);
        assert_eq!(of("what somebody else wrote"), None);
    }
}
