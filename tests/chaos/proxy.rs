//! The network between a host and its database: a relay on the loopback that loses, holds and cuts
//! packets. Never: changes a byte.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::network::Network;

/// The state of the network between host and server.
#[derive(Clone, Copy, Default)]
struct Weather {
    /// Connections opened before the latest reset are gone.
    resets: u64,
    /// Connections opened before the latest silencing are silent: incoming data is lost, and
    /// closing one tells the other side nothing.
    silences: u64,
    /// A hole in a direction lets nothing through to the server, or from it, and neither side is
    /// told. The number of current holes: each is closed by the fault that opened it.
    holes: [usize; 2],
    /// The delay of each piece; several such faults add up.
    delay: Duration,
}

/// The index of the direction to the server.
const TO: usize = 0;
/// The index of the direction back.
const FROM: usize = 1;

/// A server notices by itself after about this time that a client has gone without a word.
const KEPT_ALIVE: Duration = Duration::from_secs(10);

/// A relay to a server, or to each node of a cluster, on a thread of its own.
pub struct Proxy {
    /// The ports on which it listens, one for each server.
    pub ports: Vec<u16>,
    /// The network in which it listens, if that is not the shared one.
    pub network: Option<Network>,
    weather: Option<watch::Sender<Weather>>,
    /// Bytes until a connection is cut; the largest possible number means that no cut is ordered.
    left: Arc<AtomicUsize>,
    /// How often a piece was lost, held up or cut.
    fired: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy that passes everything on to the servers with these sockets.
    pub fn to(servers: &[PathBuf]) -> Self {
        Self::within(servers.to_vec(), || None)
    }

    /// The same, in a network of its own.
    pub fn apart(servers: &[PathBuf]) -> Self {
        Self::within(servers.to_vec(), || Some(Network::enter()))
    }

    fn within(servers: Vec<PathBuf>, enter: fn() -> Option<Network>) -> Self {
        let (weather, seen) = watch::channel(Weather::default());
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let fired = Arc::new(AtomicUsize::new(0));
        let passing = Passing {
            weather: seen,
            left: Arc::clone(&left),
            fired: Arc::clone(&fired),
        };
        let (told, listens) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let network = enter();
            let listeners = servers.into_iter().map(|server| {
                let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                listener.set_nonblocking(true).unwrap();
                (listener, server)
            });
            let listeners: Vec<_> = listeners.collect();
            let port =
                |(listener, _): &(std::net::TcpListener, _)| listener.local_addr().unwrap().port();
            told.send((listeners.iter().map(port).collect(), network))
                .unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let relay = |(listener, server)| relay(listener, server, passing.clone());
                let relays: JoinSet<()> = listeners.into_iter().map(relay).collect();
                relays.join_all().await;
            });
        });
        let (ports, network) = listens.recv().expect("it listens");
        Self {
            ports,
            network,
            weather: Some(weather),
            left,
            fired,
            thread: Some(thread),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        let weather = self.weather.as_ref().expect("there until it is dropped");
        weather.send_modify(change);
    }

    /// Ends all connections at once, like a firewall that has forgotten them.
    pub fn reset(&self) {
        self.change(|weather| weather.resets += 1);
    }

    /// From now on nothing gets through on the existing connections, in either direction.
    pub fn silence(&self) {
        self.change(|weather| weather.silences += 1);
    }

    /// How often a piece was lost, held up or cut so far.
    pub fn fired(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.fired)
    }

    /// From now on nothing gets through in these directions, to the server and from it; calling
    /// the returned function lets everything through again, with the data that was held back,
    /// unless another fault still holds it.
    pub fn held(&self, holes: [bool; 2]) -> Box<dyn FnOnce() + Send> {
        let holes = holes.map(usize::from);
        self.change(|weather| {
            (0..2).for_each(|way| weather.holes[way] += holes[way]);
        });
        self.later(move |weather| {
            (0..2).for_each(|way| weather.holes[way] -= holes[way]);
        })
    }

    /// From now on every piece takes this much longer, until the returned function is called.
    pub fn delayed(&self, delay: Duration) -> Box<dyn FnOnce() + Send> {
        self.change(|weather| weather.delay += delay);
        self.later(move |weather| weather.delay -= delay)
    }

    fn later(&self, change: impl Fn(&mut Weather) + Send + 'static) -> Box<dyn FnOnce() + Send> {
        let weather = self.weather.clone();
        Box::new(move || {
            weather
                .iter()
                .for_each(|weather| weather.send_modify(&change))
        })
    }

    /// Ends one connection after this many more bytes.
    pub fn cut_after(&self, bytes: usize) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Nothing is cut any more.
    pub fn clear(&self) {
        self.left.store(usize::MAX, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.weather = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The data that every connection needs.
#[derive(Clone)]
struct Passing {
    weather: watch::Receiver<Weather>,
    left: Arc<AtomicUsize>,
    fired: Arc<AtomicUsize>,
}

async fn relay(listener: std::net::TcpListener, server: PathBuf, mut passing: Passing) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    tokio::spawn(connection(client, server.clone(), passing.clone()));
                }
            }
            changed = passing.weather.changed() => if changed.is_err() { return },
        }
    }
}

async fn connection(client: TcpStream, server: PathBuf, passing: Passing) {
    let mut weather = passing.weather.clone();
    let Weather {
        resets: since,
        silences,
        ..
    } = *weather.borrow();
    let relayed = async {
        passing.through(TO).await;
        passing.through(FROM).await;
        // A server that is down is down for the client as well.
        let Ok(server) = UnixStream::connect(server).await else {
            return;
        };
        // A peer that is cut off learns so at once, and not after the pieces that were under way.
        let _ = (client.set_nodelay(true), client.set_zero_linger());
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = passing.pump(from_client, to_server, TO, silences) => {}
            () = passing.pump(from_server, to_client, FROM, silences) => {}
        }
    };
    tokio::select! {
        () = relayed => {}
        reset = weather.wait_for(|weather| weather.resets != since) => {
            if reset.is_ok() {
                passing.fires();
            }
        }
    }
}

impl Passing {
    fn fires(&self) {
        self.fired.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until data gets through in this direction.
    async fn through(&self, way: usize) {
        let mut weather = self.weather.clone();
        while weather.borrow_and_update().holes[way] > 0 {
            // Counts again at each change: another fault's hole may then hold it.
            self.fires();
            if weather.changed().await.is_err() {
                return;
            }
        }
    }

    async fn pump(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        way: usize,
        silences: u64,
    ) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read) = from.read(&mut buffer).await {
            let delay = self.weather.borrow().delay;
            if !delay.is_zero() {
                self.fires();
                tokio::time::sleep(delay).await;
            }
            self.through(way).await;
            if self.weather.borrow().silences != silences {
                match (read, way) {
                    (0, TO) => return tokio::time::sleep(KEPT_ALIVE).await,
                    (0, _) => return std::future::pending().await,
                    _ => self.fires(),
                }
                continue;
            }
            let budget = self.left.load(Ordering::Relaxed);
            let passed = read.min(budget);
            let sent = to.write_all(&buffer[..passed]).await;
            if read == 0 || sent.is_err() {
                return;
            }
            if passed < read {
                self.left.store(usize::MAX, Ordering::Relaxed);
                return self.fires();
            }
            if budget != usize::MAX {
                self.left.store(budget - passed, Ordering::Relaxed);
            }
        }
    }
}
