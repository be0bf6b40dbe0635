//! From a prepared program to a running one: the code between clone and exec.
//!
//! Owns: all `unsafe` code of the steps. Never: allocates, locks or logs in the child, which
//! lives in the memory of a process that has several threads.
//!
//! The child is made as `posix_spawn` makes its own: it shares the memory, and the thread that makes
//! it waits until it has executed its program. A fork would copy the page tables of all the worker's
//! memory, and make the worker pay for each page that it writes to afterwards.
#![expect(
    unsafe_code,
    reason = "what happens between clone and exec has no safe form"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::exec;
use crate::failpoint::failpoint;

/// Everything `execve` needs.
#[derive(Debug)]
pub struct Image {
    /// The file to execute, seen from `cwd`.
    pub file: CString,
    /// The arguments, the program's name first.
    pub argv: Vec<CString>,
    /// `NAME=value`.
    pub environment: Vec<CString>,
    /// The directory in which it runs.
    pub cwd: CString,
}

/// The child's ends of its pipes.
#[derive(Debug)]
pub struct Ends {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// A child that nobody has waited for yet.
#[derive(Debug)]
pub struct Process(libc::pid_t);

impl Process {
    /// Its pid.
    pub fn id(&self) -> Pid {
        Pid::from_raw(self.0)
    }

    /// Waits for its end. Afterwards its pid may be somebody else's: call this only once.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.collect(0) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Collects it if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.collect(libc::WNOHANG)
    }

    fn collect(&mut self, flags: c_int) -> io::Result<Option<ExitStatus>> {
        exec::wait(self.id(), flags)
    }
}

#[cfg(test)]
impl From<std::process::Child> for Process {
    fn from(child: std::process::Child) -> Self {
        Self(child.id() as libc::pid_t)
    }
}

/// Starts `image` in a session and process group of its own, tied to the calling *thread*: when that thread
/// ends, the kernel kills the program. An error of the child before exec is returned as its error number.
pub fn spawn(image: &Image, ends: Ends) -> io::Result<Process> {
    failpoint!(io "exec.fork");
    // Elements of sixteen bytes, the alignment of a stack. The child needs a few hundred bytes.
    let mut stack = Vec::<MaybeUninit<u128>>::with_capacity(STACK / 16);
    let mut exec = Exec::new(image, &ends);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let all = u64::MAX;
    let mut mask = 0_u64;
    // SAFETY: the child runs on a stack of its own, and only until it executes or ends; this thread
    // waits for that, so all that the child is given outlives it. The child makes only
    // async-signal-safe calls. No signal is delivered to it before its dispositions are the default
    // ones: a handler of ours would run in our memory.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK / 16).cast::<c_void>();
        set_mask(&all, &mut mask);
        let pid = libc::clone(child, top, flags, (&raw mut exec).cast());
        let error = io::Error::last_os_error();
        set_mask(&mask, &mut 0);
        if pid == -1 {
            return Err(error);
        }
        pid
    };
    let mut process = Process(pid);
    match exec.failed {
        0 => {
            failpoint!("exec.spawned");
            Ok(process)
        }
        error => {
            process.wait()?;
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// The child's stack, in bytes.
const STACK: usize = 32 * 1024;

/// The child begins here.
extern "C" fn child(exec: *mut c_void) -> c_int {
    // SAFETY: the pointer is the one that `spawn` gave to `clone`, and nobody else touches it meanwhile.
    unsafe {
        let exec = exec.cast::<Exec>();
        let error = (*exec).run();
        (&raw mut (*exec).failed).write_volatile(error);
        libc::_exit(127)
    }
}

/// Sets the signals that this thread blocks, and returns those that it blocked before. It asks the
/// kernel, because the C library keeps two signals to itself.
///
/// # Safety
/// A signal that is blocked for good is never delivered.
unsafe fn set_mask(mask: &u64, old: &mut u64) {
    let (set, size) = (libc::SIG_SETMASK, size_of::<u64>());
    // SAFETY: both masks have the size that is given.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            set,
            &raw const *mask,
            &raw mut *old,
            size,
        );
    }
}

/// Pointers made beforehand, because the child may not allocate.
struct Exec {
    file: *const c_char,
    argv: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    cwd: *const c_char,
    parent: libc::pid_t,
    stdio: [c_int; 3],
    /// Why the program was not executed: an error number.
    failed: c_int,
}

impl Exec {
    fn new(image: &Image, ends: &Ends) -> Self {
        Self {
            file: image.file.as_ptr(),
            argv: exec::pointers(&image.argv),
            environment: exec::pointers(&image.environment),
            cwd: image.cwd.as_ptr(),
            parent: Pid::this().as_raw(),
            stdio: [&ends.stdin, &ends.stdout, &ends.stderr].map(AsRawFd::as_raw_fd),
            failed: 0,
        }
    }

    /// Runs in the child; returns only with an error number. Executes the file itself: the C
    /// library's `execvp` hands a file that it cannot execute to a shell.
    ///
    /// # Safety
    /// Only for a child before exec.
    unsafe fn run(&self) -> c_int {
        // SAFETY: async-signal-safe calls with valid arguments.
        unsafe {
            // It dies with the daemon. If the daemon is dead already, nobody will ever be told.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return errno();
            }
            if libc::getppid() != self.parent {
                libc::_exit(1);
            }
            for (to, from) in self.stdio.iter().enumerate() {
                if libc::dup2(*from, to as c_int) == -1 {
                    return errno();
                }
            }
            // A session, not only a group: a terminal's signals and job control are not for it.
            if libc::setsid() == -1 || libc::chdir(self.cwd) == -1 {
                return errno();
            }
            exec::default_signals();
            set_mask(&0, &mut 0);
            // The program gets nothing of ours but its three pipes.
            exec::close_on_exec_from(3);
            libc::execve(self.file, self.argv.as_ptr(), self.environment.as_ptr());
        }
        errno()
    }
}

fn errno() -> c_int {
    nix::errno::Errno::last_raw()
}

/// A descriptor that becomes readable when the (unreaped) child `pid` ends.
pub fn pidfd(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = exec::pidfd(pid)?;
    // SAFETY: the descriptor is ours, and stays open as long as it is registered.
    unsafe { Ok(AsyncFd::register_with_interest(fd, Interest::READABLE)?) }
}
