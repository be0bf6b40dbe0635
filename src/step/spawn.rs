//! From a prepared program to a running one: what happens between fork and exec.
//!
//! Owns: all `unsafe` code of the steps. Never: allocates, locks or logs in the child, which
//! is a copy of one thread of a process that has several.
#![expect(
    unsafe_code,
    reason = "what happens between fork and exec has no safe form"
)]

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Everything `execve` needs.
#[derive(Debug)]
pub struct Image {
    /// The file to execute, seen from `cwd`.
    pub file: CString,
    /// The arguments, the program's name first.
    pub argv: Vec<CString>,
    /// `NAME=value`.
    pub environment: Vec<CString>,
    /// Where it runs.
    pub cwd: CString,
}

/// The child's ends of its pipes.
#[derive(Debug)]
pub struct Ends {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Starts `image` in a session and process group of its own, tied to the calling *thread*:
/// when that ends, the kernel kills the program. An error of the child before exec is
/// returned as its error number.
pub fn spawn(image: &Image, ends: Ends) -> io::Result<Child> {
    let exec = Exec::new(image);
    let mut command = Command::new("step");
    command
        .stdin(Stdio::from(ends.stdin))
        .stdout(Stdio::from(ends.stdout))
        .stderr(Stdio::from(ends.stderr));
    // SAFETY: `Exec::run` makes nothing but async-signal-safe calls, and what it points to is
    // borrowed from `image`, which outlives the call to `spawn`.
    unsafe {
        command.pre_exec(move || Err(exec.run()));
    }
    command.spawn()
}

/// Pointers made before the fork, because the child may not allocate.
struct Exec {
    file: *const c_char,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    cwd: *const c_char,
    parent: libc::pid_t,
}

// SAFETY: the pointers are only followed by the one child, in its own copy of the memory.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(image: &Image) -> Self {
        let pointers = |texts: &[CString]| {
            let texts = texts.iter().map(|text| text.as_ptr());
            texts.chain([std::ptr::null()]).collect()
        };
        Self {
            file: image.file.as_ptr(),
            argv: pointers(&image.argv),
            environment: pointers(&image.environment),
            cwd: image.cwd.as_ptr(),
            parent: Pid::this().as_raw(),
        }
    }

    /// Runs in the child; returns only with an error. Executes the file itself instead of
    /// leaving it to the standard library, whose `execvp` hands what it cannot execute to a
    /// shell.
    fn run(&self) -> io::Error {
        // SAFETY: async-signal-safe calls with valid arguments, in a process of one thread.
        unsafe {
            // Dies with the daemon. If that is dead already, nobody will ever be told.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return io::Error::last_os_error();
            }
            if libc::getppid() != self.parent {
                libc::_exit(1);
            }
            // A session, not only a group: a terminal's signals and job control are not for it.
            if libc::setsid() == -1 || libc::chdir(self.cwd) == -1 {
                return io::Error::last_os_error();
            }
            // Ignored signals would stay ignored: under nohup, or because Rust ignores SIGPIPE.
            // Asked of the kernel, because the C library keeps two signals to itself.
            let default = [0_u64; 4];
            for signal in 1..=64 {
                let none = std::ptr::null_mut::<libc::c_void>();
                libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, 8);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            close_on_exec();
            libc::execve(self.file, self.argv.as_ptr(), self.environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Leaves the program nothing but its three pipes. Ours are marked anyway; this is for what
/// the daemon itself was started with.
///
/// # Safety
/// Only for a child before exec.
unsafe fn close_on_exec() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: system calls without pointers.
    unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) == 0 {
            return;
        }
        // Kernels before 5.11.
        let last = libc::sysconf(libc::_SC_OPEN_MAX).clamp(3, 65_536);
        for fd in 3..last as libc::c_int {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// A descriptor that becomes readable when the (unreaped) child `pid` ends.
pub fn pidfd(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new and ours, and stays open as long as it is registered.
    unsafe {
        let fd = OwnedFd::from_raw_fd(fd as libc::c_int);
        Ok(AsyncFd::register_with_interest(fd, Interest::READABLE)?)
    }
}
