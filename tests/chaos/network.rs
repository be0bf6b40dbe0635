//! A private network of a host, whose only interface can be taken away: the kernel then keeps
//! retransmitting unacknowledged data, and neither side is told.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};

use crate::clock::cc;

/// The network of one host.
pub struct Network {
    namespace: File,
    /// A thread that is in this network.
    thread: Pid,
    /// The number of faults that currently want it down.
    parted: Arc<Mutex<usize>>,
    dir: tempfile::TempDir,
}

impl Network {
    /// Moves the current thread into a new network, together with everything that it starts from
    /// now on.
    pub fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network of its own, which takes root");
        let dir = tempfile::tempdir().expect("a temporary directory");
        cc("tests/chaos/lo.c", &dir.path().join("lo"), &[]);
        let network = Self {
            namespace: File::open("/proc/thread-self/ns/net").expect("its network"),
            thread: gettid(),
            parted: Arc::default(),
            dir,
        };
        network.interface()("up");
        network
    }

    /// The command prefix for a program that is to be in this network.
    pub fn under(&self) -> [String; 2] {
        let (own, file) = (std::process::id(), self.namespace.as_raw_fd());
        ["nsenter".to_owned(), format!("--net=/proc/{own}/fd/{file}")]
    }

    /// Brings the interface up or down.
    fn interface(&self) -> impl Fn(&str) + Send + 'static {
        let [nsenter, net] = self.under();
        let lo = self.dir.path().join("lo");
        move |state| {
            let mut command = Command::new(&nsenter);
            let done = command.arg(&net).arg(&lo).arg(state).status();
            assert!(done.expect("nsenter").success(), "lo {state}");
        }
    }

    /// From now on nothing gets anywhere; calling the returned function ends this, unless another
    /// fault still wants it.
    pub fn parted(&self) -> Box<dyn FnOnce() + Send> {
        let (parted, interface) = (Arc::clone(&self.parted), self.interface());
        *parted.lock().unwrap() += 1;
        interface("down");
        Box::new(move || {
            let mut parted = parted.lock().unwrap();
            *parted -= 1;
            if *parted == 0 {
                interface("up");
            }
        })
    }

    /// True when its interface has its address.
    pub fn is_up(&self) -> bool {
        let local = format!("/proc/self/task/{}/net/fib_trie", self.thread);
        let local = std::fs::read_to_string(local).unwrap_or_default();
        local.contains("127.0.0.1")
    }

    /// Counts retransmissions of unacknowledged data; for later use.
    pub fn sent_again(&self) -> impl Fn() -> usize + Send + 'static {
        let snmp = PathBuf::from(format!("/proc/self/task/{}/net/snmp", self.thread));
        move || {
            let text = std::fs::read_to_string(&snmp).expect("the network's counters");
            let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:"));
            let mut words = || tcp.next().into_iter().flat_map(str::split_whitespace);
            let at = words().position(|name| name == "RetransSegs");
            let value = words().nth(at.expect("a counter of Linux"));
            value.expect("its value").parse().expect("a number")
        }
    }
}
