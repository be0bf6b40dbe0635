//! Signals → events.
//!
//! Owns: which signals mean what, and that none is lost. Never: acts on one.
//!
//! Every control signal stays blocked in every thread for the whole life of the process, and is read
//! from a descriptor (signalfd). So there are no handlers that could interrupt anything, it works as
//! pid 1 too, and a signal that was sent before anybody looked is found waiting: the first call of
//! `main` is [`block_early`], and a child is born with these signals blocked. Every other program
//! (steps, hooks) must be started through [`spawn::unblocked`](super::spawn::unblocked), or no
//! SIGTERM would ever reach it: `std::process::Command` hands the mask on.
//!
//! SIGCHLD is not among them: tokio uses it to wait for a step's end where the kernel has nothing
//! better. Here it is only a hint; the supervisor reaps until nobody is left.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::SignalKind;

/// The signals that are read, and blocked for everything else.
const CONTROL: [Signal; 10] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// A request by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// TERM or INT: end gracefully. QUIT, or TERM or INT for the second time, but not the same one at once:
    /// end now. HUP of a terminal that was closed: end gracefully.
    Stop {
        /// True: wait for nobody.
        immediate: bool,
        /// The signal.
        signal: Signal,
        /// Its sender; 0 for the kernel, a terminal, or another pid namespace.
        from: i32,
    },
    /// TSTP: stop claiming, keep finishing.
    Quiet,
    /// CONT: claim again.
    Resume,
    /// TTIN: say what every thread is doing.
    Dump,
    /// TTOU, to a child from its supervisor: it reaches the database, and finds no heartbeat of the child there.
    /// To others, and from others, it means nothing (elsewhere: one worker less).
    Unseen {
        /// Its sender, as for `Stop`.
        from: i32,
    },
    /// HUP: read the configuration again.
    Reload,
    /// USR1: open the log anew.
    ReopenLog,
    /// USR2: replace all children; the old ones drain beside the new ones.
    RollingRestart,
    /// CHLD: a child may have ended.
    ChildEnded,
}

/// The set of control signals.
pub(super) fn control_signals() -> SigSet {
    CONTROL.into_iter().collect()
}

/// Blocks every control signal, from now on, in this thread and in those that it will start. It is
/// the first call of `main`, before anything starts a thread. Signals that are sent afterwards wait. Ends of children
/// are told also to a process that was started by one that ignores them.
pub fn block_early() -> io::Result<()> {
    control_signals().thread_block()?;
    crate::exec::keep_statuses()
}

/// The signals of this process, in the order in which it finds them waiting.
#[derive(Debug)]
pub struct Signals {
    control: AsyncFd<SignalFd>,
    children: Option<tokio::signal::unix::Signal>,
    waiting: VecDeque<Event>,
    escalates: bool,
    /// The log went to a terminal at first: when that is closed, whoever started the process is gone.
    on_terminal: bool,
    /// The first TERM or INT, and when it was read.
    stop: Option<(Signal, Instant)>,
}

/// The same signal again within this time is the same request: `timeout` and some service managers send it
/// to the process and to its group. No person asks twice that quickly.
const SAME_STOP: Duration = Duration::from_millis(100);

/// Lets a write past RLIMIT_FSIZE be an error, as a write to a closed pipe is, and not the end of the process (S21). The
/// signal is handled and not ignored, because steps would inherit that. Rust's runtime ignores SIGPIPE, and resets it for
/// its children.
pub fn survive_long_files() -> io::Result<()> {
    signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        Arc::new(AtomicBool::new(false)),
    )?;
    Ok(())
}

impl Signals {
    /// For the process that a person or a service manager talks to: a second TERM or INT means now.
    /// It also reports ended children. Needs a tokio runtime with I/O.
    pub fn of_supervisor() -> io::Result<Self> {
        let mut signals = Self::install(true)?;
        signals.children = Some(tokio::signal::unix::signal(SignalKind::child())?);
        // Nobody heard the signal of a child that ended before this was installed.
        signals.waiting.push_back(Event::ChildEnded);
        Ok(signals)
    }

    /// For one role in the foreground, without children of its own.
    pub fn of_single_role() -> io::Result<Self> {
        Self::install(true)
    }

    /// For a child: TERM may come several times (a supervisor repeats it, and the kernel sends it
    /// when the supervisor dies), so only QUIT means now.
    pub fn of_child() -> io::Result<Self> {
        Self::install(false)
    }

    fn install(escalates: bool) -> io::Result<Self> {
        block_early()?;
        let descriptor = SignalFd::with_flags(
            &control_signals(),
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?;
        Ok(Self {
            control: super::spawn::watched(descriptor)?,
            children: None,
            waiting: VecDeque::new(),
            escalates,
            on_terminal: escalates && io::stderr().is_terminal(),
            stop: None,
        })
    }

    /// The next event. Several of one kind that came before anybody looked are one.
    ///
    /// Cancel-safe: an event that was read is either returned or still waiting.
    pub async fn recv(&mut self) -> io::Result<Event> {
        loop {
            // Reading the descriptor costs a system call and comes first all the same: a storm of
            // ending children must not hold up a stop.
            self.read_all()?;
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                // Cleared before the next look, so a signal that comes in between wakes us again.
                readable = self.control.readable() => readable?.clear_ready(),
                () = ended(&mut self.children) => return Ok(Event::ChildEnded),
            }
        }
    }

    /// Resolves when a stop is asked for, or nothing can be read any more. Other signals keep waiting for
    /// [`recv`](Self::recv). It is for the time in which a process can do nothing but end. Cancel-safe.
    pub async fn stop_asked(&mut self) {
        let is_stop = |event: &Event| matches!(event, Event::Stop { .. });
        loop {
            if self.read_all().is_err() || self.waiting.iter().any(is_stop) {
                return;
            }
            match self.control.readable().await {
                Ok(mut readable) => readable.clear_ready(),
                Err(_) => return,
            }
        }
    }

    fn read_all(&mut self) -> io::Result<()> {
        loop {
            match self.control.get_ref().read_signal() {
                Ok(Some(found)) => {
                    let signal = Signal::try_from(found.ssi_signo as i32)?;
                    let event = self.event(signal, found.ssi_pid as i32);
                    // The order of control signals counts, their number does not.
                    if let Some(event) = event.filter(|event| self.waiting.back() != Some(event)) {
                        self.waiting.push_back(event);
                    }
                }
                Ok(None) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// None if it says nothing new.
    fn event(&mut self, signal: Signal, from: i32) -> Option<Event> {
        Some(match signal {
            Signal::SIGQUIT => Event::Stop {
                immediate: true,
                signal,
                from,
            },
            Signal::SIGTSTP => Event::Quiet,
            Signal::SIGCONT => Event::Resume,
            Signal::SIGTTIN => Event::Dump,
            Signal::SIGTTOU => Event::Unseen { from },
            // The kernel closes the terminal first. Proven by
            // `a_process_on_a_terminal_ends_when_the_terminal_is_closed`.
            Signal::SIGHUP if self.on_terminal && is_hangup(from) => {
                // A shell hands it on, and the kernel sends it again when the shell has ended.
                if self.stop.is_some() {
                    return None;
                }
                self.stop = Some((signal, Instant::now()));
                Event::Stop {
                    immediate: false,
                    signal,
                    from,
                }
            }
            Signal::SIGHUP => Event::Reload,
            Signal::SIGUSR1 => Event::ReopenLog,
            Signal::SIGUSR2 => Event::RollingRestart,
            // TERM and INT; the set holds no other signals.
            _ => {
                let again = is_again(&mut self.stop, signal, Instant::now())?;
                Event::Stop {
                    immediate: again && self.escalates,
                    signal,
                    from,
                }
            }
        })
    }
}

/// True for the HUP of a terminal that was closed: the kernel sends it, or the shell of the same session. A person who
/// wants a reload of a process that has outlived its terminal is in another session.
///
/// That shell may have ended by now, so that nobody can tell its session; but it led the session, whose number is its pid.
fn is_hangup(from: i32) -> bool {
    let session = |pid: i32| {
        let session = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid)));
        session.ok().map(nix::unistd::Pid::as_raw)
    };
    let own = session(0);
    let is_own = own == Some(from) || (own.is_some() && session(from) == own);
    !io::stderr().is_terminal() && (from == 0 || is_own)
}

/// True when somebody asks for a stop once more; `None` when it is the first request, sent twice.
fn is_again(first: &mut Option<(Signal, Instant)>, signal: Signal, now: Instant) -> Option<bool> {
    match first {
        None => {
            *first = Some((signal, now));
            Some(false)
        }
        Some((same, at)) if *same == signal && now < *at + SAME_STOP => None,
        Some(_) => Some(true),
    }
}

/// Waits for an ended child; for ever if there are none to wait for.
async fn ended(children: &mut Option<tokio::signal::unix::Signal>) {
    if let Some(children) = children
        && children.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
