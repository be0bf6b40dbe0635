//! A relay on the loopback between processes and their server, which goes silent on some of its
//! connections, or passes on the server's answers late. Never: changes a byte, or tells anyone that it
//! lost some.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Statements that only a lifeline sends: LISTEN on PostgreSQL, and a heartbeat where there is no
/// LISTEN.
const LISTEN: &[u8] = b"LISTEN \"";
const BEAT: &[u8] = b"worked_at = CASE";

fn says(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|at| at == words)
}

/// A connection through the relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// True for a lifeline.
    pub listens: bool,
    /// True when nothing is passed on any more, in either direction.
    silent: bool,
    /// How long the server's answers are kept back, at least.
    late: Duration,
    /// Bytes that were lost.
    pub lost: usize,
    /// True when the client has closed it.
    pub closed: bool,
}

/// Keyed by the client's port.
type Lines = Arc<Mutex<BTreeMap<u16, Line>>>;

/// The words that make the next client that sends them go silent.
type Trap = Arc<Mutex<Option<&'static [u8]>>>;

/// How long the relay keeps an answer of the server's.
type Delay = Arc<Mutex<Duration>>;

/// A relay to a server, on a thread of its own, until the test ends.
pub struct Relay {
    /// The port on which it listens.
    pub port: u16,
    lines: Lines,
    trap: Trap,
    delay: Delay,
}

impl Relay {
    /// A relay to this server.
    pub fn to(server: SocketAddr) -> Self {
        let lines = Lines::default();
        let (trap, delay) = (Trap::default(), Delay::default());
        let (known, set, late) = (Arc::clone(&lines), Arc::clone(&trap), Arc::clone(&delay));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("a port").port();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((client, from)) = listener.accept().await {
                    known.lock().unwrap().insert(from.port(), Line::default());
                    let of = (Arc::clone(&known), Arc::clone(&set), Arc::clone(&late));
                    tokio::spawn(connection(client, server, from.port(), of));
                }
            });
        });
        Self {
            port,
            lines,
            trap,
            delay,
        }
    }

    /// From now on each answer of the server's arrives this much later.
    pub fn answers_late(&self, by: Duration) {
        *self.delay.lock().unwrap() = by;
    }

    /// All connections so far.
    pub fn lines(&self) -> BTreeMap<u16, Line> {
        self.lines.lock().unwrap().clone()
    }

    /// Silences the next connection whose client sends these words, from then on and for good.
    pub fn silence_at(&self, words: &'static [u8]) {
        *self.trap.lock().unwrap() = Some(words);
    }

    /// From now on the answers on these connections arrive this much later. Answers that it keeps back already get the
    /// new delay too; those whose time is over arrive at once.
    pub fn answers_later_on(&self, ports: &BTreeSet<u16>, by: Duration) {
        for (port, line) in self.lines.lock().unwrap().iter_mut() {
            if ports.contains(port) {
                line.late = by;
            }
        }
    }

    /// From now on these connections are silent, for good.
    pub fn silence(&self, ports: &BTreeSet<u16>) {
        for (port, line) in self.lines.lock().unwrap().iter_mut() {
            line.silent |= ports.contains(port);
        }
    }
}

async fn connection(
    client: TcpStream,
    server: SocketAddr,
    port: u16,
    (lines, trap, delay): (Lines, Trap, Delay),
) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pump(from_client, to_server, port, &lines, Of::Client(&trap)),
        pump(from_server, to_client, port, &lines, Of::Server(&delay)),
    );
}

/// The sender of some bytes.
#[derive(Clone, Copy)]
enum Of<'a> {
    Client(&'a Trap),
    Server(&'a Delay),
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    port: u16,
    lines: &Lines,
    of: Of<'_>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let bytes = &buffer[..read];
        let silent = {
            let mut lines = lines.lock().unwrap();
            let line = lines.entry(port).or_default();
            if let Of::Client(trap) = of {
                let mut trap = trap.lock().unwrap();
                line.silent |= trap.take_if(|words| says(bytes, words)).is_some();
            }
            let of_client = matches!(of, Of::Client(_));
            line.listens |= of_client && (says(bytes, LISTEN) || says(bytes, BEAT));
            line.closed |= of_client && read == 0;
            line.lost += if line.silent { read } else { 0 };
            line.silent
        };
        match (read, silent) {
            // The packet that closes a silent connection is lost as well.
            (0, true) => return std::future::pending().await,
            (0, false) => return drop(to.shutdown().await),
            (_, true) => {}
            (_, false) => {
                if let Of::Server(delay) = of {
                    let delay = *delay.lock().unwrap();
                    tokio::time::sleep(delay).await;
                    let answered = Instant::now();
                    while answered.elapsed() < lines.lock().unwrap()[&port].late {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
                if to.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The local ports of a process's connections to this port.
pub fn ports_of(pid: i32, to: u16) -> BTreeSet<u16> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a living process");
    let sockets: BTreeSet<String> = descriptors
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's sockets");
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ours = port(words[2]) == Some(to) && sockets.contains(words[9]);
            ours.then(|| port(words[1])).flatten()
        })
        .collect()
}
