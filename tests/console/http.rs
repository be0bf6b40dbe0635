//! A visitor of the console.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::fixture::{Daemon, PATIENCE, eventually};

/// The time without an answer after which a test fails.
const LONGEST: Duration = Duration::from_secs(60);

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Its headers, as received.
    pub head: String,
    pub body: String,
}

/// A listening console.
#[derive(Clone, Debug)]
pub struct Console {
    /// Its address and port.
    pub address: String,
    /// Its socket, which is used instead of the address if it is set.
    pub socket: Option<PathBuf>,
}

impl Console {
    /// The console that this daemon started last.
    pub async fn of(daemon: &Daemon) -> Self {
        Self::after(daemon, 0).await
    }

    /// The same, after this many earlier ones.
    pub async fn after(daemon: &Daemon, before: usize) -> Self {
        let said = daemon.says_times("the console listens", before + 1).await;
        let url = said.last().unwrap()["url"].as_str().unwrap();
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        Self {
            address: address.to_owned(),
            socket: None,
        }
    }

    /// The response to a GET.
    pub fn get(&self, path: &str) -> Answer {
        self.try_get(path).expect("a response")
    }

    /// None if nobody listens, or if the connection was lost.
    pub fn try_get(&self, path: &str) -> Option<Answer> {
        let host = &self.address;
        self.exchange(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ))
    }

    /// The response to this literal request, on a connection that ends with it.
    pub fn exchange(&self, request: &str) -> Option<Answer> {
        if let Some(socket) = &self.socket {
            let stream = UnixStream::connect(socket).ok()?;
            stream.set_read_timeout(Some(LONGEST)).ok()?;
            return exchanged(stream, request);
        }
        let stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(LONGEST)).ok()?;
        exchanged(stream, request)
    }

    /// The same from another address of this host.
    pub async fn exchange_from(&self, from: &str, request: &str) -> Option<Answer> {
        let socket = tokio::net::TcpSocket::new_v4().ok()?;
        socket.bind(format!("{from}:0").parse().ok()?).ok()?;
        let stream = socket.connect(self.address.parse().ok()?).await.ok()?;
        let stream = stream.into_std().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(LONGEST)).ok()?;
        exchanged(stream, request)
    }

    /// Waits until a GET is answered with this status.
    pub async fn answers(&self, path: &str, status: u16) -> Answer {
        eventually(PATIENCE, &format!("{path} is {status}"), async || {
            self.try_get(path).filter(|answer| answer.status == status)
        })
        .await
    }
}

/// The response to a request, on a connection that ends with it.
fn exchanged(mut stream: impl Read + Write, request: &str) -> Option<Answer> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            line.split_once(": ")
                .and_then(|(it, value)| (it == name).then_some(value))
        })
    }
}
