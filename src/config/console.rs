//! The console's settings: the places at which it listens, the names by which it may be asked for, and the
//! endpoints that it notifies of runs.
//!
//! Owns: their notation, and the rights of a visitor without a token. Never: opens a socket.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::model::Scope;
use crate::yaml::{Fault, Node};

use super::DEFAULT_ENVIRONMENT;
use super::keys::Key;
use super::proxy::Proxy;
use super::read::Reader;
use super::traces::{self, Collector};
use super::value::{self, Faults};
use super::webhooks::{self, Endpoint};

/// Settings of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Console {
    /// Where it listens; `None`: a supervisor starts no console.
    pub listen: Option<SocketAddr>,
    /// Further host names by which it may be asked for.
    pub hosts: Vec<String>,
    /// The socket in the file system at which it also listens; those who may open it may do everything.
    pub socket: Option<PathBuf>,
    /// The reverse proxy that says who a visitor is.
    pub proxy: Proxy,
    /// Whether visitors without a token are refused; `None`: they are where other hosts can reach it.
    pub tokens: Option<bool>,
    /// The endpoints that are notified of runs; none if a variable is not set that they need.
    pub webhooks: Vec<Endpoint>,
    /// The names of the endpoints that are notified of runs.
    pub endpoints: Vec<String>,
    /// The collector of traces.
    pub traces: Collector,
}

/// The rights of visitors without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anonymous {
    /// Of one who connects; `None`: none.
    pub direct: Option<Scope>,
    /// Of one whose request a proxy has passed on; `None`: none.
    pub forwarded: Option<Scope>,
}

impl Console {
    /// Reads the settings; files are looked for from this directory.
    pub fn read(read: &mut Reader, base_dir: &Path) -> Self {
        let mut webhooks = read.of_console("console.webhooks", webhooks::webhooks);
        for endpoint in &mut webhooks {
            endpoint.ca = endpoint.ca.take().map(|it| base_dir.join(it));
        }
        let endpoints = match (webhooks.as_slice(), read.unread("console.webhooks")) {
            ([], Some(node)) => webhooks::names(node),
            (known, _) => known.iter().map(|it| it.name.clone()).collect(),
        };
        let ca = read.one("console.traces.ca", traces::ca);
        let socket = read.one("console.socket", socket);
        Self {
            listen: read.one("console.listen", address),
            hosts: read.one("console.hosts", hosts),
            socket: socket.map(|it| base_dir.join(it)),
            proxy: Proxy::read(read),
            tokens: match read.one("console.visitors", value::choice) {
                "known" => Some(true),
                "anybody" => Some(false),
                _ => None,
            },
            webhooks,
            endpoints,
            traces: Collector {
                endpoint: read.one("console.traces.endpoint", traces::endpoint),
                headers: read.of_console("console.traces.headers", traces::headers),
                ca: ca.map(|it| base_dir.join(it)),
            },
        }
    }

    /// True when it listens anywhere.
    pub fn is_wanted(&self) -> bool {
        self.listen.is_some() || self.socket.is_some()
    }

    /// The rights of visitors without a token: on a developer's own host there is nobody else.
    pub fn anonymous(&self, environment: &str) -> Anonymous {
        // A further name is a proxy's, and anybody may be behind that.
        let is_behind = !self.hosts.is_empty() || !self.proxy.from.is_empty();
        let is_reached = is_behind || self.listen.is_some_and(|it| !it.ip().is_loopback());
        let direct = match self.tokens.unwrap_or(is_reached) {
            true => None,
            false if environment == DEFAULT_ENVIRONMENT => Some(Scope::Operate),
            false => Some(Scope::Read),
        };
        Anonymous {
            direct,
            // Of a proxy that the configuration does not name, the headers alone tell.
            forwarded: direct.filter(|_| self.tokens == Some(false)),
        }
    }
}

/// The notation, for people.
const NOTATION: &str = "write an address and a port, such as `127.0.0.1:9410`, or `none`";

/// `none`, or an address with a port.
fn address(node: &Node, key: &Key) -> Result<Option<SocketAddr>, Faults> {
    let fault = |message: String, help: &str| Err(vec![Fault::new(node.at, message).help(help)]);
    let text = node.as_text().filter(|_| !node.is_null());
    if text == Some("none") {
        return Ok(None);
    }
    let Some(address) = text.and_then(parse) else {
        let message = format!("`{}` takes an address, not {}", key.path, node.describe());
        return fault(message, NOTATION);
    };
    Ok(Some(address))
}

fn parse(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        None => text.parse().ok(),
    }
}

/// One name, names separated by commas, or a list of names; in lower case, addresses without brackets.
fn hosts(node: &Node, key: &Key) -> Result<Vec<String>, Faults> {
    let help =
        "write a name as a browser shows it, without a scheme and a port: `ductwork.example.com`";
    value::texts(node, key, "names of hosts", help, host)
}

/// `none`, or the path of a socket.
fn socket(node: &Node, key: &Key) -> Result<Option<PathBuf>, Faults> {
    value::file(
        node,
        key,
        "write the path of a socket, `console.sock`, or `none`",
    )
}

/// A name, or an address without a port and brackets, in lower case.
fn host(text: &str) -> Option<String> {
    let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let name = inner.unwrap_or(text).to_ascii_lowercase();
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = inner.is_none() && !name.is_empty() && name.bytes().all(of_name);
    (is_name || name.parse::<Ipv6Addr>().is_ok()).then_some(name)
}
