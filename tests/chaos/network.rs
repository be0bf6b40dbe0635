//! A network that a host has for itself, whose only interface can be taken away: then the kernel
//! sends again and again what nobody acknowledges, and nobody is told.

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
    /// The thread that is in it.
    thread: Pid,
    /// So many want it to be parted.
    parted: Arc<Mutex<usize>>,
    dir: tempfile::TempDir,
}

impl Network {
    /// Takes the present thread into a new one, and whatever it starts from now on.
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

    /// The prefix of a program that is to be in it.
    pub fn under(&self) -> [String; 2] {
        let (own, file) = (std::process::id(), self.namespace.as_raw_fd());
        ["nsenter".to_owned(), format!("--net=/proc/{own}/fd/{file}")]
    }

    /// Takes the interface up, or down.
    fn interface(&self) -> impl Fn(&str) + Send + 'static {
        let [nsenter, net] = self.under();
        let lo = self.dir.path().join("lo");
        move |state| {
            let mut command = Command::new(&nsenter);
            let done = command.arg(&net).arg(&lo).arg(state).status();
            assert!(done.expect("nsenter").success(), "lo {state}");
        }
    }

    /// From now on nothing gets anywhere; the answer ends it, unless another wants it still.
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

    /// How often something was sent again because nobody acknowledged it; to be asked later.
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
