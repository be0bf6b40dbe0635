//! From a prepared program to a running one: the code between clone and exec.
//!
//! Owns: all `unsafe` code of the steps. Never: allocates, locks or logs in the child, which
//! lives in the memory of a process that has several threads.
//!
//! The child is made as `posix_spawn` makes its own: it shares the memory, and the thread that makes
//! it waits until it has executed its program. A fork would copy the page tables of all the worker's
//! memory, and make the worker pay for each page that it writes to afterwards.
//!
//! That may take as long as a file system does not answer, so the thread is one of `spawner`'s. Another thread can
//! give the start up, with its [`Flight`].
#![expect(
    unsafe_code,
    reason = "what happens between clone and exec has no safe form"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
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

/// A start between its beginning and its answer, for the thread that waits for the answer.
#[derive(Debug, Default)]
pub struct Flight {
    is_given_up: AtomicBool,
    /// The child that has not executed its program yet; 0 if there is none.
    child: AtomicI32,
    /// Held while `child` is signalled, and while it is set to 0, before it is waited for: so the number means no
    /// other process.
    signalling: Mutex<()>,
}

impl Flight {
    /// Kills the child that has not executed its program yet, and lets no other one execute it.
    ///
    /// RACE: the child is made just now. The kernel writes its number here before it begins, and it looks at
    /// `is_given_up` before it executes anything: either we find the number, or it finds that it is given up.
    /// Proven by `a_start_that_is_given_up_executes_nothing` (each of the two halves).
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        let _held = self.lock();
        match self.child.load(Ordering::SeqCst) {
            0 => {}
            // The kernel may not be able to kill it, either; then it dies before it executes anything.
            child => drop(kill(Pid::from_raw(child), Signal::SIGKILL)),
        }
    }

    /// True once it was given up.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.signalling
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn landed(&self) {
        let _held = self.lock();
        self.child.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
impl From<std::process::Child> for Process {
    fn from(child: std::process::Child) -> Self {
        Self(child.id() as libc::pid_t)
    }
}

/// Starts `image` in a session and process group of its own, tied to the calling *thread*: when that thread
/// ends, the kernel kills the program. An error of the child before exec is returned as its error number,
/// ECANCELED if it was given up. A child that was killed before exec is returned as one that has ended.
pub fn spawn(image: &Image, ends: Ends, flight: &Flight) -> io::Result<Process> {
    failpoint!(io "exec.fork");
    // Elements of sixteen bytes, the alignment of a stack. The child needs a few hundred bytes.
    let mut stack = Vec::<MaybeUninit<u128>>::with_capacity(STACK / 16);
    let mut exec = Exec::new(image, &ends, flight);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID | libc::SIGCHLD;
    let all = u64::MAX;
    let mut mask = 0_u64;
    // SAFETY: the child runs on a stack of its own, and only until it executes or ends; this thread
    // waits for that, so all that the child is given outlives it. The child makes only
    // async-signal-safe calls. No signal is delivered to it before its dispositions are the default
    // ones: a handler of ours would run in our memory.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK / 16).cast::<c_void>();
        set_mask(&all, &mut mask);
        let number = flight.child.as_ptr();
        let pid = libc::clone(child, top, flags, (&raw mut exec).cast(), number);
        let error = io::Error::last_os_error();
        set_mask(&mask, &mut 0);
        flight.landed();
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
    is_given_up: *const AtomicBool,
    /// Why the program was not executed: an error number.
    failed: c_int,
}

impl Exec {
    fn new(image: &Image, ends: &Ends, flight: &Flight) -> Self {
        Self {
            file: image.file.as_ptr(),
            argv: exec::pointers(&image.argv),
            environment: exec::pointers(&image.environment),
            cwd: image.cwd.as_ptr(),
            parent: Pid::this().as_raw(),
            stdio: [&ends.stdin, &ends.stdout, &ends.stderr].map(AsRawFd::as_raw_fd),
            is_given_up: &raw const flight.is_given_up,
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
            if libc::setsid() == -1 {
                return errno();
            }
            // RACE: the directory, or the program, is on a file system that does not answer. Until it does, this
            // process has copies of all our descriptors, and another step waits for the end of an input whose pipe
            // only we keep open. The program gets nothing of ours but its three pipes, so the others are closed,
            // and before anything that can wait. Proven by `a_start_that_is_held_up_keeps_no_other_step_waiting`.
            exec::close_from(3);
            if libc::chdir(self.cwd) == -1 {
                return errno();
            }
            if (*self.is_given_up).load(Ordering::SeqCst) {
                return libc::ECANCELED;
            }
            exec::restore_open_files();
            exec::default_signals();
            set_mask(&0, &mut 0);
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::step::command::tests::{Lease, wait_until};

    #[test]
    fn a_start_that_is_given_up_executes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        std::fs::write(&program, "#!/bin/sh\ntouch ran\n").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let text = |text: &str| CString::new(text).unwrap();
        let image = Image {
            file: text("./program"),
            argv: vec![text("program")],
            environment: Vec::new(),
            cwd: text(place.path().to_str().unwrap()),
        };
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let ends = || Ends {
            stdin: null(),
            stdout: null(),
            stderr: null(),
        };
        // After the kernel has written the child's number.
        let flight = Flight::default();
        let lease = Lease::on(&program);
        std::thread::scope(|scope| {
            let start = scope.spawn(|| spawn(&image, ends(), &flight)?.wait());
            wait_until("there is a child", || {
                flight.child.load(Ordering::SeqCst) != 0
            });
            flight.give_up();
            let status = start.join().unwrap().unwrap();
            assert_eq!(status.signal(), Some(libc::SIGKILL));
            assert_eq!(flight.child.load(Ordering::SeqCst), 0);
        });
        drop(lease);
        // Before that.
        let error = spawn(&image, ends(), &flight).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        assert!(!place.path().join("ran").exists());
        // The image is one that can be executed.
        let status = spawn(&image, ends(), &Flight::default()).unwrap().wait();
        assert!(status.is_ok());
    }
}
