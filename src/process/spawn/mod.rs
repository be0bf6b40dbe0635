//! Starting, signalling and reaping processes: the system calls of the supervisor.
//!
//! Owns: fork + exec of the daemon's own image, and `wait`. It is one of the few places with `unsafe`, which
//! `tests/tidy.rs` lists. Never: decides who is to be started or ended (`roster` does).
//!
//! Between fork and exec the child is a copy of one thread of a process that may have had others, so
//! it may do only what is async-signal-safe: everything that allocates is made before the fork.
#![expect(unsafe_code, reason = "fork, exec, prctl and wait have no safe form")]

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::SignalFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::exec;
use crate::failpoint::failpoint;

use super::roster::Pid;
use super::signal;

/// The image that every child runs: the very one that runs now, even if another one has taken its
/// place on disk.
const OWN_IMAGE: &std::ffi::CStr = c"/proc/self/exe";

/// The variables with which the service manager speaks to the supervisor, and to nobody else.
const NOT_INHERITED: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

const EXEC: &str = "exec /proc/self/exe";

/// A call of a child that may fail before it is the new image.
#[derive(Clone, Copy)]
enum InChild {
    DeathSignal,
    Input,
    Mask,
    Exec,
}

impl InChild {
    const ALL: [Self; 4] = [Self::DeathSignal, Self::Input, Self::Mask, Self::Exec];

    fn name(self) -> &'static str {
        match self {
            Self::DeathSignal => "prctl(PR_SET_PDEATHSIG)",
            Self::Input => "dup2",
            Self::Mask => "sigprocmask",
            Self::Exec => EXEC,
        }
    }
}

/// A system call without which no child can be started.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
struct Failed {
    call: &'static str,
    source: io::Error,
}

fn during(call: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |source| io::Error::new(source.kind(), Failed { call, source })
}

/// The remedy for an error of [`spawn`], for a person; none if the error does not show it.
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    let failed: &Failed = error.get_ref()?.downcast_ref()?;
    match failed.source.raw_os_error()? {
        libc::EMFILE => {
            Some("raise the limit of open files: `LimitNOFILE` of the service, or `ulimit -n`")
        }
        libc::ENFILE => Some(
            "all processes of the machine together have as many files open as the kernel allows: raise `fs.file-max`",
        ),
        libc::EAGAIN => Some(
            "raise the limit of processes: `TasksMax` of the service, the container's limit of pids, or `ulimit -u`",
        ),
        libc::ENOMEM => Some("the machine, or the container, has no memory left: give it more"),
        libc::ENOENT if failed.call == EXEC => {
            Some("mount /proc: a daemon starts its children from /proc/self/exe")
        }
        libc::ENOSYS => Some(
            "the kernel is too old for this system call, or a filter such as seccomp refuses it: take a newer kernel, or \
             allow it",
        ),
        libc::EPERM | libc::EACCES => Some(
            "the kernel, or a filter such as seccomp or AppArmor, refuses this system call: allow it",
        ),
        _ => None,
    }
}

/// A child of this process, with the handle by which we signal it: a pid can come to mean another
/// process, a handle cannot (S16).
#[derive(Debug)]
pub struct Spawned {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Spawned {
    /// A handle on a process that another process has started. The caller must look at the process
    /// after it has the handle: before that, the pid may have come to mean another process.
    pub fn stranger(pid: Pid) -> io::Result<Self> {
        let pidfd = exec::pidfd(nix::unistd::Pid::from_raw(pid))?;
        Ok(Self { pid, pidfd })
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A descriptor that becomes readable when the process has ended. Needs a runtime.
    pub fn end(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let descriptor = self.pidfd.try_clone()?;
        // SAFETY: the descriptor is ours, never changes, and lives in the `AsyncFd`.
        Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
    }

    /// Sends a signal. It is no error if the process is already gone: its exit is on its way (S8).
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        // SAFETY: the descriptor is ours and open; a null siginfo is allowed.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                signal as libc::c_int,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match check(sent) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl AsFd for Spawned {
    /// Readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Starts the daemon's own image with these arguments (the first is its name) and with
/// these changes to the environment (`None` removes).
///
/// The child is in a process group of its own, so that a terminal's Ctrl-C reaches only the
/// supervisor; reads `stdin` (or nothing), never the terminal; gets SIGTERM when the *thread* that called
/// this ends, so call it from a thread that lives as long as the process; and is born with
/// every control signal blocked, so that none is lost before it looks (`signal::Signals`).
pub fn spawn(
    argv: &[OsString],
    environment: &[(OsString, Option<OsString>)],
    stdin: Option<&[u8]>,
) -> io::Result<Spawned> {
    let input = match stdin {
        Some(text) => in_memory(text)?,
        None => std::fs::File::open("/dev/null").map_err(during("open /dev/null"))?,
    };
    start(argv, environment, input.as_fd())
}

/// The same, with a descriptor as its input; the caller waits for it instead of [`wait_any`].
pub fn spawn_reading(
    argv: &[OsString],
    environment: &[(OsString, Option<OsString>)],
    stdin: BorrowedFd<'_>,
) -> io::Result<(Spawned, Spared)> {
    let mut spared = spared();
    let spawned = start(argv, environment, stdin)?;
    spared.push(spawned.pid);
    let pid = spawned.pid;
    Ok((spawned, Spared(pid)))
}

fn start(
    argv: &[OsString],
    environment: &[(OsString, Option<OsString>)],
    input: BorrowedFd<'_>,
) -> io::Result<Spawned> {
    failpoint!(io "supervisor.fork");
    let argv = argv
        .iter()
        .map(|word| c_string(word.as_bytes().to_vec()))
        .collect::<io::Result<Vec<_>>>()?;
    let environment = merged_environment(environment)?;
    let argv_pointers = exec::pointers(&argv);
    let environment_pointers = exec::pointers(&environment);
    let (from_child, to_parent) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|error| during("pipe2")(error.into()))?;

    let plan = Plan {
        argv: &argv_pointers,
        environment: &environment_pointers,
        stdin: input.as_raw_fd(),
        errors: to_parent.as_raw_fd(),
        parent: std::process::id() as Pid,
        mask: signal::control_signals(),
    };

    // With everything blocked, no handler of ours can run in the child before its dispositions are
    // the default ones.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that may: everything is prepared, and an exec follows"
    )]
    // SAFETY: the child calls nothing but `Plan::run`, which keeps the rules for it.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: this is the child of a fork, and the plan was made before it.
        unsafe { plan.run() }
    }
    let fork_error = io::Error::last_os_error();
    mask.thread_set_mask()?;
    if pid < 0 {
        return Err(during("fork")(fork_error));
    }
    drop(to_parent);

    // Only we reap it, so until then the pid means this process.
    let pidfd = exec::pidfd(nix::unistd::Pid::from_raw(pid)).map_err(during("pidfd_open"));
    let exec = read_error(&from_child);
    match (exec, pidfd) {
        (Ok(()), Ok(pidfd)) => {
            failpoint!("supervisor.forked");
            Ok(Spawned { pid, pidfd })
        }
        (Err(error), _) | (Ok(()), Err(error)) => {
            // SAFETY: the pid is that of a child that nobody has reaped.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
            Err(error)
        }
    }
}

/// A file that has no name on disk, open at its beginning.
fn in_memory(text: &[u8]) -> io::Result<std::fs::File> {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let descriptor = nix::sys::memfd::memfd_create(c"ductwork", flags)
        .map_err(|error| during("memfd_create")(error.into()))?;
    let mut file = std::fs::File::from(descriptor);
    let written = file.write_all(text).and_then(|()| file.rewind());
    written.map_err(during("write to memory"))?;
    Ok(file)
}

/// The child's work between fork and exec; made entirely before the fork.
struct Plan<'a> {
    argv: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    stdin: libc::c_int,
    errors: libc::c_int,
    parent: Pid,
    mask: SigSet,
}

impl Plan<'_> {
    /// Becomes the new image, or reports why not and ends.
    ///
    /// # Safety
    /// Only in the child of a fork, with all signals blocked. Every call in here is
    /// async-signal-safe, and nothing allocates, locks or panics.
    unsafe fn run(&self) -> ! {
        // SAFETY: plain system calls on memory that was prepared before the fork.
        unsafe {
            libc::setpgid(0, 0);
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                self.fail(InChild::DeathSignal);
            }
            // The parent may have died before that was set, and then nobody tells us.
            if libc::getppid() != self.parent {
                libc::_exit(1);
            }
            exec::default_signals();
            if libc::dup2(self.stdin, 0) < 0 {
                self.fail(InChild::Input);
            }
            exec::close_on_exec_from(3);
            if libc::sigprocmask(
                libc::SIG_SETMASK,
                std::ptr::from_ref(self.mask.as_ref()),
                std::ptr::null_mut(),
            ) != 0
            {
                self.fail(InChild::Mask);
            }
            libc::execve(
                OWN_IMAGE.as_ptr(),
                self.argv.as_ptr(),
                self.environment.as_ptr(),
            );
            self.fail(InChild::Exec)
        }
    }

    /// Reports that this call failed.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn fail(&self, call: InChild) -> ! {
        // SAFETY: as `run`; errno is read before anything can change it.
        unsafe {
            let words = [*libc::__errno_location(), call as i32];
            libc::write(self.errors, words.as_ptr().cast(), size_of_val(&words));
            libc::_exit(127)
        }
    }
}

fn c_string(bytes: Vec<u8>) -> io::Result<CString> {
    CString::new(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// The environment of the child as `NAME=value`.
fn merged_environment(changes: &[(OsString, Option<OsString>)]) -> io::Result<Vec<CString>> {
    let changed = |name: &OsStr| changes.iter().any(|(other, _)| other == name);
    let kept = std::env::vars_os()
        .filter(|(name, _)| !changed(name) && !NOT_INHERITED.iter().any(|other| name == other));
    let set = changes
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    kept.chain(set)
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            c_string(entry)
        })
        .collect()
}

/// The error that the child wrote, if it did not become the new image.
fn read_error(from_child: &OwnedFd) -> io::Result<()> {
    let mut words = [0u8; 8];
    loop {
        match nix::unistd::read(from_child, &mut words) {
            Ok(8) => {
                let [errno, call] = [0, 4].map(|at| {
                    let word = words[at..].first_chunk().copied();
                    i32::from_ne_bytes(word.unwrap_or_default())
                });
                let call = InChild::ALL.into_iter().find(|it| *it as i32 == call);
                let error = io::Error::from_raw_os_error(errno);
                return Err(during(call.map_or(EXEC, InChild::name))(error));
            }
            // The child wrote nothing: the exec closed the descriptor, or the child ended before;
            // `wait` will say which.
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(during("read")(error.into())),
        }
    }
}

/// Ends a process that need not be a child of this one, if `is_it` confirms the process that has the
/// pid now. It is no error if the process is already gone.
pub fn kill_if(pid: Pid, is_it: impl FnOnce() -> bool) -> io::Result<()> {
    let pidfd = match exec::pidfd(nix::unistd::Pid::from_raw(pid)) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        pidfd => pidfd?,
    };
    // We ask only now: from here on the handle means one process, and no other.
    match is_it() {
        true => Spawned { pid, pidfd }.send(Signal::SIGKILL),
        false => Ok(()),
    }
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes a foreign program start as it expects: with no signal blocked, and with the limit of open files that this
/// process was started with. Our signals stay blocked for good, and would be blocked for the program and for all that
/// it starts.
pub fn unblocked(command: &mut std::process::Command) -> &mut std::process::Command {
    let empty = SigSet::empty();
    // SAFETY: between fork and exec the closure makes async-signal-safe calls, on a set that was made before.
    unsafe {
        command.pre_exec(move || {
            exec::restore_open_files();
            Ok(empty.thread_set_mask()?)
        })
    }
}

/// Registers the descriptor of the signals with the runtime.
pub(super) fn watched(descriptor: SignalFd) -> io::Result<AsyncFd<SignalFd>> {
    // SAFETY: a `SignalFd` owns its descriptor, never changes it, and lives in the `AsyncFd`.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// Makes this process the parent of all that its descendants leave behind.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: a plain system call.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }.into()).map(drop)
}

/// Called first in a child: fails when the parent that started it is gone, because then nobody will
/// ever send the SIGTERM that was asked for at the parent's death.
pub fn parent_watch(expected_parent: Pid) -> io::Result<()> {
    // SAFETY: plain system calls. We ask for it again because exec of an image with capabilities forgets it.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM).into())?;
        if libc::getppid() == expected_parent {
            return Ok(());
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotConnected,
        format!("the supervisor (pid {expected_parent}) is gone"),
    ))
}

/// Children that other code (tokio, for a hook) waits for.
static SPARED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn spared() -> MutexGuard<'static, Vec<Pid>> {
    SPARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that `wait_any` and `orphan` leave alone until this is dropped.
#[derive(Debug)]
#[must_use = "a child is spared only as long as this lives"]
pub struct Spared(Pid);

impl Drop for Spared {
    fn drop(&mut self) {
        let mut spared = spared();
        if let Some(index) = spared.iter().position(|pid| *pid == self.0) {
            spared.swap_remove(index);
        }
    }
}

/// Starts a process that other code waits for: nothing is reaped between its start and the moment it
/// is spared, so nobody can steal its exit status.
pub fn spawn_spared(
    command: &mut tokio::process::Command,
) -> io::Result<(tokio::process::Child, Spared)> {
    let mut spared = spared();
    let child = command.spawn()?;
    let pid = child.id().map_or(0, |pid| pid as Pid);
    spared.push(pid);
    Ok((child, Spared(pid)))
}

/// True when other code waits for this child.
pub fn is_spared(pid: Pid) -> bool {
    spared().contains(&pid)
}

/// Reaps one dead child, if there is any: its own or an adopted one, but never a spared one. Never
/// blocks; call it until it returns `None`.
pub fn wait_any() -> io::Result<Option<(Pid, ExitStatus)>> {
    // Held throughout, so that nothing is spared between the look and the reaping.
    let spared = spared();
    let Some(first) = peek()? else {
        return Ok(None);
    };
    if !spared.contains(&first) {
        return reap(first);
    }
    // The look always shows the same child, so we have to ask for the others one by one.
    for pid in super::orphan::children_of_self()? {
        if !spared.contains(&pid)
            && let Some(dead) = reap(pid)?
        {
            return Ok(Some(dead));
        }
    }
    Ok(None)
}

/// Reaps this child if it is dead and no other code waits for it.
pub fn wait_for(pid: Pid) -> io::Result<Option<(Pid, ExitStatus)>> {
    let spared = spared();
    if spared.contains(&pid) {
        return Ok(None);
    }
    reap(pid)
}

/// True while a signal (SIGSTOP) has stopped a child of this process, but not while a debugger holds
/// it. Asks the kernel, and changes nothing.
pub fn is_frozen(pid: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let id = Id::Pid(nix::unistd::Pid::from_raw(pid));
    matches!(waitid(id, flags), Ok(WaitStatus::Stopped(..)))
}

/// The pid of some dead child, which is not reaped.
fn peek() -> io::Result<Option<Pid>> {
    // SAFETY: the zeroed siginfo is plain memory that the call fills.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(
            libc::P_ALL,
            0,
            &raw mut found,
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        );
        match check(result.into()) {
            Ok(_) => Ok(Some(found.si_pid()).filter(|pid| *pid != 0)),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn reap(pid: Pid) -> io::Result<Option<(Pid, ExitStatus)>> {
    match exec::wait(nix::unistd::Pid::from_raw(pid), libc::WNOHANG) {
        Ok(status) => Ok(status.map(|status| (pid, status))),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

/// For tests that start a process by other means than `spawn`.
#[cfg(test)]
pub(super) fn born_blocked(command: &mut std::process::Command) -> &mut std::process::Command {
    // SAFETY: the closure only changes the signal mask.
    unsafe { command.pre_exec(signal::block_early) }
}

#[cfg(test)]
mod tests;
