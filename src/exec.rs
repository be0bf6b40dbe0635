//! The system calls that every child needs, between fork and exec and afterwards.
//!
//! Owns: the signals, descriptors and limits of a new program, the descriptor by which a process is
//! watched, and the status of a process that has ended: for the daemon's own children
//! (`process::spawn`) as well as for the commands of steps (`step::spawn`), which create their
//! children in different ways. Never: starts anything.
#![expect(
    unsafe_code,
    reason = "the calls before exec, and those on a process by its number, have no safe form"
)]

use std::ffi::{CString, c_char, c_int, c_uint};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::OnceLock;

use nix::unistd::Pid;

/// The most files that a process of ours asks to keep open.
const OPEN_FILES: libc::rlim_t = 65_536;

/// The same on kernels before 5.9, where one descriptor after another, up to the limit, is closed for each program.
const OPEN_FILES_ONE_BY_ONE: libc::rlim_t = 4_096;

/// The limit of open files with which this process was started, where it has raised its own.
static STARTED_WITH: OnceLock<libc::rlimit> = OnceLock::new();

/// The null-terminated array that exec expects; valid as long as the strings are.
pub fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let strings = strings.iter().map(|string| string.as_ptr());
    strings.chain([std::ptr::null()]).collect()
}

/// Gives every signal its default disposition: an ignored signal would stay ignored in the new
/// program, for example under nohup, or because Rust ignores SIGPIPE. Calls the kernel directly,
/// because the C library keeps two signals to itself.
///
/// # Safety
/// Only in a child before exec, with all signals blocked. Async-signal-safe.
pub unsafe fn default_signals() {
    const LAST: c_int = 64;
    let default = [0_u64; 4];
    for signal in 1..=LAST {
        // The kernel refuses KILL and STOP: they have no handler either.
        // SAFETY: a system call on memory of the size that the kernel expects.
        unsafe {
            let none = std::ptr::null_mut::<libc::c_void>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, 8);
        }
    }
}

/// Lets the kernel keep the status of each child that ends: it keeps none for a process that ignores SIGCHLD, and a
/// program inherits that from the one that starts it. A handler stays. Async-signal-safe.
pub fn keep_statuses() -> io::Result<()> {
    // SAFETY: the memory is the call's own, and a default disposition runs no code of ours.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut done = libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
        if done == 0 && action.sa_sigaction == libc::SIG_IGN {
            action.sa_sigaction = libc::SIG_DFL;
            done = libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
        }
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Marks every descriptor from `first` on as close-on-exec. Rust opens all descriptors this way;
/// this function is for the descriptors that the daemon itself was started with.
///
/// # Safety
/// Only in a child before exec: it changes descriptors that belong to others. Async-signal-safe.
pub unsafe fn close_on_exec_from(first: c_int) {
    // SAFETY: system calls without pointers.
    unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, flags) == 0 {
            return;
        }
        // For kernels before 5.11.
        for descriptor in first..descriptors() {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Closes every descriptor from `first` on.
///
/// # Safety
/// Only in a child before exec: it closes descriptors that belong to others. Async-signal-safe.
pub unsafe fn close_from(first: c_int) {
    // SAFETY: system calls without pointers.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, 0) == 0 {
            return;
        }
        // For kernels before 5.9.
        for descriptor in first..descriptors() {
            libc::close(descriptor);
        }
    }
}

/// One more than the largest descriptor that there can be, within reason.
///
/// # Safety
/// Async-signal-safe: this `sysconf` is a system call, getrlimit.
unsafe fn descriptors() -> c_int {
    // SAFETY: a system call without pointers.
    unsafe { libc::sysconf(libc::_SC_OPEN_MAX).clamp(1_024, 65_536) as c_int }
}

/// Lets this process keep as many files open as the system allows, [`OPEN_FILES`] at most. The usual limit of 1,024 is for the
/// sake of programs that use `select`; so programs that this process starts get the limit that it was started with
/// ([`restore_open_files`]).
pub fn raise_open_files() {
    let mut found = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: system calls on numbers of ours.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut found) != 0 {
            return;
        }
        // No descriptor has this number.
        let closes_at_once = libc::syscall(libc::SYS_close_range, c_uint::MAX, c_uint::MAX, 0) == 0;
        let most = match closes_at_once {
            true => OPEN_FILES,
            false => OPEN_FILES_ONE_BY_ONE,
        };
        let raised = libc::rlimit {
            rlim_cur: found.rlim_max.min(most),
            ..found
        };
        if found.rlim_cur < raised.rlim_cur
            && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0
        {
            STARTED_WITH.get_or_init(|| found);
        }
    }
}

/// Gives a new program the limit of open files with which this process was started.
///
/// # Safety
/// Only in a child before exec. Async-signal-safe.
pub unsafe fn restore_open_files() {
    if let Some(found) = STARTED_WITH.get() {
        // SAFETY: a system call on numbers that nobody changes any more.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, std::ptr::from_ref(found)) };
    }
}

/// A descriptor that becomes readable when the process ends. A child that has not been waited for
/// keeps its number until then.
pub fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers; the descriptor that it returns is new and ours.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor as c_int))
    }
}

/// The status of a child of ours that has ended; this call reaps it. `None` while the child runs,
/// if `flags` say not to wait.
pub fn wait(pid: Pid, flags: c_int) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: a system call that writes to a number of ours.
    match unsafe { libc::waitpid(pid.as_raw(), &raw mut status, flags) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}
