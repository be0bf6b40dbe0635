//! A relay between a client and the server that a test can cut, and fake servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards to the server from an address of its own, until it falls silent.
pub struct Wire {
    /// The address on which it listens.
    pub at: SocketAddr,
    silent: Arc<AtomicBool>,
}

impl Wire {
    /// A relay from an address to the server.
    pub fn between(address: &str, server: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let silent = Arc::new(AtomicBool::new(false));
        let (server, dead) = (server.to_owned(), Arc::clone(&silent));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let dead = Arc::clone(&dead);
                    std::thread::spawn(move || forward(from, to, &dead));
                }
            }
        });
        Self { at, silent }
    }

    /// From now on nothing passes, and neither side is told.
    pub fn fall_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, dead: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(_) if dead.load(Ordering::SeqCst) => {}
            Ok(n) => {
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
        }
    }
    if !dead.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// A server that sends this to every client, and then nothing, or closes the connection.
pub fn says(words: &'static [u8], and_stays: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.write_all(words).unwrap();
            if and_stays {
                kept.push(client);
            }
        }
    });
    at
}
