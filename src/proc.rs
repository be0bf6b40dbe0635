//! The kernel's information about a process, in `/proc`.
//!
//! Owns: reading a process's status, environment and children. Never: signals a process, or waits for one.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// A process's number.
pub type Pid = i32;

/// The flag of a process that is about to be a corpse, and no longer has an environment.
const EXITING: u64 = 0x4;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `Z`, …
    pub state: u8,
    /// The process that receives its exit status.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// It is about to be a corpse.
    pub is_exiting: bool,
    /// Where its environment begins and ends; `None` while it executes another program. Both are the same when it has
    /// none, and when we may not know.
    pub environment: Option<(u64, u64)>,
    /// How many threads it has.
    pub threads: u64,
    /// When the kernel started it, in clock ticks since boot.
    pub started_ticks: u64,
}

impl Stat {
    /// A first thread that ended while others go on also looks like a zombie.
    pub fn is_corpse(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// The kernel's information about a process; `None` when there is no such process (or it is hidden), and when
/// nobody can tell.
pub fn stat(pid: Pid) -> Option<Stat> {
    try_stat(pid).ok().flatten()
}

/// The same, with an error when nobody can tell: descriptors or memory are short.
pub fn try_stat(pid: Pid) -> io::Result<Option<Stat>> {
    Ok(parse_stat(&read(format!("/proc/{pid}/stat"))?))
}

/// A file about a process; empty when there is no such process any more, or when the file is not for us to read. A
/// shortage is an error: it says nothing about the process.
fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    match std::fs::read(path) {
        Err(error) if !is_shortage(&error) => Ok(Vec::new()),
        read => read,
    }
}

/// True when the system or this process has no descriptor or no memory left: the answer to the question is open.
pub fn is_shortage(error: &io::Error) -> bool {
    let is_of_files = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    is_of_files || error.kind() == io::ErrorKind::OutOfMemory
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name is in parentheses and may itself contain parentheses, blanks and anything else.
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first of these fields is the third of proc(5).
    let field = |number: usize| fields.get(number - 3).copied();
    // Between two programs a process has memory and no code; its environment is at 0, or grows. Without memory it is dead,
    // or a thread of the kernel. The code of a process into which we may not look begins at 1.
    let address = |number: usize| field(number).and_then(|text| text.parse::<u64>().ok());
    let is_executing = field(23)? != "0" && field(26) == Some("0");
    let environment = address(50).zip(address(51)).filter(|_| !is_executing);
    Some(Stat {
        state: *field(3)?.as_bytes().first()?,
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        is_exiting: field(9)?.parse::<u64>().ok()? & EXITING != 0,
        environment,
        threads: field(20)?.parse().ok()?,
        started_ticks: field(22)?.parse().ok()?,
    })
}

/// True when the process was started with such a variable, `None` while it executes another program. A dead process has
/// no variables. An error when nobody can tell.
pub fn has(pid: Pid, is_such: impl Fn(&[u8]) -> bool) -> io::Result<Option<bool>> {
    Ok(environment(pid)?.map(|environment| variables(&environment).any(is_such)))
}

/// The variables of an environment.
pub fn variables(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    environment.split(|byte| *byte == 0)
}

/// The environment that a process was started with; empty when there is no such process any more, or when the
/// environment is not for us to read. An error when nobody can tell.
///
/// RACE: the process executes another program. For a moment, or for as long as the kernel reads that program from a
/// disk, it has no environment, and `None` says: look again. Proven by
/// `a_process_that_executes_one_program_after_the_other_never_hides`.
pub fn environment(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    const READS: usize = 3;
    let mut before = None;
    for _ in 0..READS {
        let mut found = read_at_once(format!("/proc/{pid}/environ"))?;
        let stat = match found.is_empty() {
            true => try_stat(pid)?,
            false => None,
        };
        let Some(stat) = stat else {
            return Ok(Some(found));
        };
        let Some((begin, end)) = stat.environment else {
            return Ok(None);
        };
        if begin == end && stat.threads > 1 {
            found = of_threads(pid)?;
        }
        let is_alone = begin == end && stat.threads <= 1;
        if !found.is_empty() || is_alone || before == Some((begin, end)) {
            return Ok(Some(found));
        }
        // It has executed another program since the file was opened, or nobody can read its environment.
        before = Some((begin, end));
    }
    Ok(None)
}

/// The environment that the threads share: a first thread that has ended has none, while others go on.
fn of_threads(pid: Pid) -> io::Result<Vec<u8>> {
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Err(error) if is_shortage(&error) => return Err(error),
        Err(_) => return Ok(Vec::new()),
        Ok(threads) => threads,
    };
    for thread in threads.flatten() {
        let found = read_at_once(thread.path().join("environ"))?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// A file about a process, as [`read`] returns it, but of one moment: between two reads the process may execute another
/// program, and the rest of the file be gone.
fn read_at_once(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    const LONGEST: usize = 128 * 1024;
    let mut found = vec![0; LONGEST];
    let read = File::open(path).and_then(|mut file| {
        let read = file.read(&mut found)?;
        found.truncate(read);
        match read {
            LONGEST => file.read_to_end(&mut found),
            _ => Ok(0),
        }
    });
    match read {
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(Vec::new()),
        Ok(_) => Ok(found),
    }
}

/// The children of this process's first thread, including dead ones: processes that become our children when
/// their own parents end are always among them.
pub fn children_of_first_thread() -> io::Result<Vec<Pid>> {
    let pid = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/self/task/{pid}/children"))?;
    let children = list.split_ascii_whitespace();
    Ok(children.filter_map(|pid| pid.parse().ok()).collect())
}

/// The resources that this process uses.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Bytes of memory.
    pub resident: Option<u64>,
    /// The processor time of all its threads.
    pub cpu: Option<Duration>,
    /// Open files, sockets and pipes.
    pub open_fds: Option<u64>,
}

impl Usage {
    /// The usage at this moment, as far as it can be read.
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let span = |time: TimeVal| {
            let microseconds = time.num_microseconds();
            Duration::from_micros(u64::try_from(microseconds).unwrap_or_default())
        };
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        // The directory itself is open while it is read.
        let open = std::fs::read_dir("/proc/self/fd").ok();
        let open = open.map(|list| list.count().saturating_sub(1) as u64);
        Self {
            resident: resident(&status),
            cpu: usage.map(|usage| span(usage.user_time()) + span(usage.system_time())),
            open_fds: open,
        }
    }
}

/// The bytes of memory of a process, from its `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::testing::{Killed, eventually};

    #[test]
    fn a_name_cannot_forge_the_rest_of_the_line() {
        let line = b"42 (a) Z 1 1 (b)) S 7 9 8 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 12345 0 0";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                state: b'S',
                parent: 7,
                group: 9,
                session: 8,
                is_exiting: true,
                environment: None,
                threads: 3,
                started_ticks: 12345
            })
        );
        for torn in [&b""[..], b"42", b"42 (x)", b"42 (x) S 1", b"42 (x) S x 1 1"] {
            assert_eq!(parse_stat(torn), None);
        }
    }

    #[test]
    fn the_environment_is_unknown_while_a_process_executes_another_program() {
        for (memory, code, begin, end, expected) in [
            ("4096", "0", "0", "0", None),
            ("4096", "0", "7000", "7000", None),
            ("4096", "50", "7000", "7900", Some((7000, 7900))),
            ("4096", "50", "7000", "7000", Some((7000, 7000))),
            // Not ours to look into.
            ("4096", "1", "0", "0", Some((0, 0))),
            ("0", "0", "0", "0", Some((0, 0))),
        ] {
            let between = "0 ".repeat(23);
            let line = format!(
                "42 (a) S 7 9 8 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 {memory} 0 0 {code} {between}{begin} {end} 0"
            );
            let stat = parse_stat(line.as_bytes()).unwrap();
            assert_eq!(stat.environment, expected, "{line}");
        }
    }

    /// The environment of a program that waits, as soon as it has one.
    fn environment_of(command: &mut Command) -> (Killed, Vec<u8>) {
        let child = Killed(command.spawn().unwrap());
        let pid = child.0.id() as Pid;
        let known = eventually("it has executed its program", || environment(pid).unwrap());
        (child, known)
    }

    #[test]
    fn an_environment_is_read_whole() {
        let mut command = Command::new("sleep");
        let command = command.arg("1000").env_clear();
        let (mut child, known) = environment_of(command);
        assert_eq!(known, b"");
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert_eq!(environment(child.0.id() as Pid).unwrap(), Some(Vec::new()));

        let long = "x".repeat(100_000);
        let (_child, known) = environment_of(command.env("A", &long).env("B", &long));
        let expected = format!("A={long}\0B={long}\0");
        assert!(known == expected.as_bytes(), "{} bytes", known.len());
    }

    /// It is a program like any other, and has an environment like any other.
    #[test]
    fn a_process_whose_first_thread_has_ended_has_the_environment_of_the_others() {
        let ends = "import ctypes, threading, time\n\
                    threading.Thread(target=time.sleep, args=(1000,)).start()\n\
                    ctypes.CDLL(None).syscall(60, 0)";
        let mut command = Command::new("python3");
        let command = command.args(["-c", ends]).env("NAME", "value");
        let child = Killed(command.spawn().unwrap());
        let pid = child.0.id() as Pid;
        eventually("its first thread has ended", || {
            stat(pid).filter(|stat| stat.state == b'Z' && stat.threads == 2)
        });
        assert_eq!(has(pid, |it| it == b"NAME=value").unwrap(), Some(true));
    }

    #[test]
    fn memory_is_read_from_a_status_and_is_nothing_where_that_has_none() {
        let status = "Name:\tVmRSS: 9 kB\nVmRSS:\t   12345 kB\nThreads:\t2\n";
        assert_eq!(resident(status), Some(12345 * 1024));
        for other in [
            "",
            "VmRSS:",
            "VmRSS: many kB",
            "VmRSS: 18446744073709551615 kB",
        ] {
            assert_eq!(resident(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_sees_what_it_uses() {
        let before = Usage::now();
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null")).collect();
        let mut bytes = vec![0_u8; 64 << 20];
        bytes.iter_mut().step_by(512).for_each(|byte| *byte = 1);
        let now = Usage::now();
        // Other tests of this process open and close files as well.
        assert!(
            files.iter().all(Result::is_ok) && now.open_fds >= Some(20),
            "{now:?}"
        );
        assert!(now.resident >= Some(64 << 20), "{now:?}");
        assert!(
            now.cpu >= before.cpu && now.cpu > Some(Duration::ZERO),
            "{now:?}"
        );
        assert_eq!(
            bytes.iter().filter(|byte| **byte == 1).count(),
            (64 << 20) / 512
        );
    }
}
