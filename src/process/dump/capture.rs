//! A thread's registers and stack, copied by the thread itself in a signal handler.
//!
//! The protocol: the dumper puts a number into `TURN` and sends it with the signal. The handler takes
//! the turn only if its number is still the current one (so a handler that wakes late touches
//! nothing), copies, and says that it is done. There is one buffer, hence one turn.
#![expect(unsafe_code, reason = "a signal handler and what it may touch")]

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::unwind::Snapshot;

/// How much of a stack is copied: some hundred frames.
const STACK_MAX: usize = 64 << 10;
/// The size of each piece of the copy; a page that is not there ends the copy, and not the process.
const PAGE: usize = 4 << 10;
/// How long a thread may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a thread may take that has begun to copy (it may have lost the processor).
const PATIENCE_COPYING: Duration = Duration::from_secs(1);

/// The value of `TURN` while it is nobody's turn.
const NOBODY: u32 = 0;
/// Set in `TURN` while the handler copies …
const COPYING: u32 = 1 << 31;
/// … and when it has copied.
const DONE: u32 = 1 << 30;

static TURN: AtomicU32 = AtomicU32::new(NOBODY);
static PC: AtomicUsize = AtomicUsize::new(0);
static SP: AtomicUsize = AtomicUsize::new(0);
static FP: AtomicUsize = AtomicUsize::new(0);
static LINK: AtomicUsize = AtomicUsize::new(0);
static COPIED: AtomicUsize = AtomicUsize::new(0);
static BUFFER: Buffer = Buffer(UnsafeCell::new([0; STACK_MAX]));
static IN_USE: AtomicBool = AtomicBool::new(false);

struct Buffer(UnsafeCell<[u8; STACK_MAX]>);

// SAFETY: only the handler that has taken the turn writes it, and it is read only after that handler
// is done and before the next turn: `TURN` hands it to and fro.
unsafe impl Sync for Buffer {}

/// The outcome of asking a thread.
#[derive(Debug)]
pub enum Capture {
    /// It copied itself.
    Taken(Snapshot),
    /// It has ended.
    Gone,
    /// It did not answer in time.
    Silent,
    /// The buffer is not free.
    Busy,
}

/// The one who may ask threads for a copy. There is only one.
#[derive(Debug)]
pub struct Recorder {
    turn: u32,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The handler stays: a signal may still be on its way.
        IN_USE.store(false, Ordering::Release);
    }
}

/// An internal signal that nobody else uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

impl Recorder {
    /// Installs the handler.
    pub fn install() -> io::Result<Self> {
        if IN_USE.swap(true, Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "this process has a dumper already",
            ));
        }
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = copy;
        // SAFETY: the handler is async-signal-safe, and has the form that SA_SIGINFO says.
        let installed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
            libc::sigfillset(&raw mut action.sa_mask);
            libc::sigaction(signal(), &raw const action, std::ptr::null_mut())
        };
        if installed != 0 {
            let error = io::Error::last_os_error();
            IN_USE.store(false, Ordering::Release);
            return Err(error);
        }
        Ok(Self {
            // The next number must not be that of a predecessor, whose signals may still be on their way.
            turn: TURN.load(Ordering::Acquire) & !(COPYING | DONE),
        })
    }

    /// Makes a thread of this process (another than the caller) copy itself.
    pub fn capture(&mut self, tid: i32) -> Capture {
        if !self.is_free() {
            return Capture::Busy;
        }
        self.turn = match (self.turn + 1) & !(COPYING | DONE) {
            NOBODY => 1,
            turn => turn,
        };
        TURN.store(self.turn, Ordering::Release);
        if let Err(error) = send(tid, self.turn) {
            TURN.store(self.turn | DONE, Ordering::Release);
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Capture::Gone,
                _ => Capture::Silent,
            };
        }
        if await_done(self.turn, PATIENCE) {
            return Capture::Taken(snapshot());
        }
        // Withdraw the turn, unless the thread has just begun.
        let withdrawn = TURN.compare_exchange(
            self.turn,
            self.turn | DONE,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if withdrawn.is_err() && await_done(self.turn, PATIENCE_COPYING) {
            return Capture::Taken(snapshot());
        }
        Capture::Silent
    }

    /// False while a handler that we gave up on still copies.
    fn is_free(&self) -> bool {
        let turn = TURN.load(Ordering::Acquire);
        turn == NOBODY || turn & DONE != 0
    }
}

/// The signal's sender and value, as the kernel takes them; the layout is that of `siginfo_t` on a
/// 64-bit Linux.
#[repr(C)]
struct QueuedInfo {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    _pad: libc::c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
    _rest: [u8; 96],
}

const _: () = assert!(size_of::<QueuedInfo>() == 128);

fn send(tid: i32, turn: u32) -> io::Result<()> {
    let pid = std::process::id() as libc::pid_t;
    let info = QueuedInfo {
        signo: signal(),
        errno: 0,
        code: libc::SI_QUEUE,
        _pad: 0,
        pid,
        uid: nix::unistd::getuid().as_raw(),
        value: turn as usize,
        _rest: [0; 96],
    };
    // SAFETY: the structure is as large as the kernel's and outlives the call.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            tid,
            signal(),
            &raw const info,
        )
    };
    if sent == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits until the handler is done with this turn.
fn await_done(turn: u32, patience: Duration) -> bool {
    let started = Instant::now();
    loop {
        let now = TURN.load(Ordering::Acquire);
        if now == turn | DONE {
            return true;
        }
        let Some(left) = patience.checked_sub(started.elapsed()) else {
            return false;
        };
        let timeout = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(left.subsec_nanos()),
        };
        // SAFETY: the call waits on a static; it returns at once if the static has changed meanwhile.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                TURN.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                now,
                &raw const timeout,
            );
        }
    }
}

fn snapshot() -> Snapshot {
    let copied = COPIED.load(Ordering::Acquire).min(STACK_MAX);
    // SAFETY: the handler is done, and no other runs before the next turn, which only we give.
    let buffer = unsafe { &*BUFFER.0.get() };
    Snapshot {
        pc: PC.load(Ordering::Relaxed),
        sp: SP.load(Ordering::Relaxed),
        fp: FP.load(Ordering::Relaxed),
        link: Some(LINK.load(Ordering::Relaxed)).filter(|link| *link != 0),
        stack: buffer[..copied].to_vec(),
    }
}

/// The handler. It interrupts code at any point, so: no allocation, no lock, no panic, and errno as it was.
extern "C" fn copy(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands in both, for SA_SIGINFO; the rest are plain system calls and
    // memory that the turn gives to us.
    unsafe {
        let errno = *libc::__errno_location();
        let turn = (*info).si_value().sival_ptr as usize as u32;
        let taken = turn != NOBODY
            && turn & (COPYING | DONE) == 0
            && TURN
                .compare_exchange(turn, turn | COPYING, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        if taken {
            let registers = registers(&*context.cast::<libc::ucontext_t>());
            PC.store(registers.pc, Ordering::Relaxed);
            SP.store(registers.sp, Ordering::Relaxed);
            FP.store(registers.fp, Ordering::Relaxed);
            LINK.store(registers.link, Ordering::Relaxed);
            COPIED.store(copy_stack(registers.sp), Ordering::Release);
            TURN.store(turn | DONE, Ordering::Release);
            libc::syscall(
                libc::SYS_futex,
                TURN.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
        *libc::__errno_location() = errno;
    }
}

/// Copies the stack from `sp` on, as far as there is any, and returns how much it copied.
///
/// # Safety
/// Only the handler that has the turn may call this. The kernel does the copying, so that a missing
/// page ends the copy and is no fault.
unsafe fn copy_stack(sp: usize) -> usize {
    const PIECES: usize = STACK_MAX / PAGE + 1;
    let mut pieces = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; PIECES];
    let mut from = sp;
    let mut left = STACK_MAX;
    for piece in &mut pieces {
        let length = (PAGE - from % PAGE).min(left);
        piece.iov_base = from as *mut libc::c_void;
        piece.iov_len = length;
        from = from.wrapping_add(length);
        left -= length;
    }
    let into = libc::iovec {
        iov_base: BUFFER.0.get().cast(),
        iov_len: STACK_MAX,
    };
    // SAFETY: the buffer is ours for the turn; the addresses are the kernel's to check.
    let copied = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::getpid(),
            &raw const into,
            1,
            pieces.as_ptr(),
            PIECES,
            0,
        )
    };
    usize::try_from(copied).unwrap_or(0)
}

struct Registers {
    pc: usize,
    sp: usize,
    fp: usize,
    link: usize,
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext.gregs;
    Registers {
        pc: registers[libc::REG_RIP as usize] as usize,
        sp: registers[libc::REG_RSP as usize] as usize,
        fp: registers[libc::REG_RBP as usize] as usize,
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        pc: machine.pc as usize,
        sp: machine.sp as usize,
        fp: machine.regs[29] as usize,
        link: machine.regs[30] as usize,
    }
}
