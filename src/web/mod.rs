//! The console: pages and an API over HTTP.
//!
//! Owns: the one listening socket of a deployment's processes, the guard before it, the routes, and the
//! connection through which they read. Never: decides anything about a run, or writes SQL; a route calls
//! an operation of `store`, as a verb of the command line does.
//!
//! [`start`] is the entry point. A route is a line of [`routes::ROUTES`] and a function that takes the
//! [`Site`], which has the [`source::Source`] for everything that is read.

pub mod api;
mod bulks;
mod deeds;
mod duties;
mod failed_sign_ins;
mod guard;
mod health;
mod listeners;
mod live;
mod metrics;
mod outgoing;
mod pages;
mod peer;
mod post;
mod quota;
mod refusal;
mod request;
pub mod routes;
mod series;
mod serve;
pub mod source;
mod tls;
mod traces;
mod turns;
mod unstalled;
mod visitor;
mod webhooks;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::config::{Anonymous, Collector, Endpoint, Proxy};
use crate::definition::Definition;
use crate::machine::halt::Obstacle;
use crate::machine::why::Facts;
use crate::metrics::Own;
use crate::model::{RunId, RunStatus};
use crate::store::definition::Definitions;
use crate::store::process::ProcessRow;
use crate::store::{Conn, Error, Location, revive, why};
use crate::wire::process::State;

use api::openapi::Description;
use api::pipelines::Load;
use bulks::Bulks;
use duties::Duties;
use guard::Hosts;
use health::Health;
use listeners::{Doors, Socket};
use live::Live;
use metrics::Scrapes;
use outgoing::Outgoing;
use series::Series;
use source::{Refused, Source};
use visitor::Visitors;
use webhooks::Webhooks;

pub use serve::Running;

/// The address of a console that was requested without an address.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9410);

/// The address at which a browser on the same host finds a console that listens here.
pub fn from_here(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listen.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, listen.port()).into(),
        _ => listen,
    }
}

/// Everything that a route may use.
pub struct Site {
    /// Reads from the database.
    pub source: Source,
    /// Changes the database.
    acts: Source,
    /// Changes the database for bulk actions, so that nobody who acts on one run waits for them.
    bulk_acts: Source,
    bulks: Bulks,
    /// Changes the database for messages to endpoints and to the collector of traces, and for counts over
    /// time.
    duty_acts: Source,
    webhooks: Webhooks,
    duties: Arc<Duties>,
    visitors: Visitors,
    terms: Terms,
    /// The definitions that routes have read.
    definitions: Arc<Definitions>,
    load: Load,
    description: Description,
    health: Health,
    live: Live,
    metrics: Scrapes,
    series: Series,
    hosts: Hosts,
    outgoing: Outgoing,
}

impl Site {
    fn new(location: &Location, hosts: Hosts, terms: Terms) -> std::io::Result<Self> {
        Ok(Self {
            source: Source::open(location.clone(), Arc::clone(&terms.refused)),
            acts: Source::that_acts(location.clone(), Arc::clone(&terms.refused)),
            bulk_acts: Source::of_bulk(location.clone(), Arc::clone(&terms.refused)),
            bulks: Bulks::default(),
            duty_acts: Source::of_duties(location.clone(), Arc::clone(&terms.refused)),
            webhooks: Webhooks::default(),
            duties: Arc::new(Duties::new()),
            visitors: Visitors::new(terms.anonymous)?,
            terms,
            definitions: Arc::default(),
            load: Load::default(),
            description: Description::default(),
            health: Health::new(),
            live: Live::new(),
            metrics: Scrapes::default(),
            series: Series::default(),
            hosts,
            outgoing: Outgoing::new(),
        })
    }

    /// The facts from which a run's state is explained, as far as this visitor may see them, with those that the
    /// configuration knows.
    async fn facts(
        &self,
        conn: &mut Conn,
        run: RunId,
        may_see_payloads: bool,
    ) -> Result<Option<Facts>, Error> {
        let facts = why::facts(conn, run, self.terms.witness.stale_after, &self.definitions);
        let Some(mut facts) = facts.await? else {
            return Ok(None);
        };
        if facts.status == RunStatus::Halted && facts.revived_as.is_none() {
            let latest = self.terms.definition_of(&facts.pipeline);
            let latest = latest.map(|it| &**it).ok_or(Obstacle::Gone);
            facts.prospects = revive::prospects(conn, run, latest).await?;
        }
        let pipeline = facts.pipeline.clone();
        facts.limit(|step| (self.terms.has_timeout)(&pipeline, step));
        if !may_see_payloads {
            facts.withhold_payloads();
        }
        Ok(Some(facts))
    }
}

/// Wakes the processes that work on a pipeline, through this connection and beside it.
pub type Wake = Box<
    dyn for<'a> Fn(&'a mut Conn, &'a str) -> Pin<Box<dyn Future<Output = ()> + 'a>> + Send + Sync,
>;

/// Receives the reason why traces cannot be sent.
pub type Exporting = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// True where the configuration gives a timeout to a step: takes the pipeline and the step.
pub type HasTimeout = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The terms on which a console runs.
pub struct Terms {
    /// Further host names to which the console answers.
    pub hosts: Vec<String>,
    /// The reverse proxy that says who a visitor is.
    pub proxy: Proxy,
    /// The rights of visitors without a token.
    pub anonymous: Anonymous,
    /// The judge of processes.
    pub witness: Witness,
    /// The pipelines of the configuration.
    pub pipelines: Vec<Arc<Definition>>,
    /// The longest input of a pipeline, in bytes.
    pub max_payload: Box<dyn Fn(&str) -> u64 + Send + Sync>,
    /// True where the configuration gives a timeout to this step of a pipeline.
    pub has_timeout: HasTimeout,
    /// The endpoints that are told about runs.
    pub webhooks: Arc<[Endpoint]>,
    /// The collector to which traces are sent.
    pub traces: Collector,
    /// Called with the reason why traces cannot be sent, and with nothing when they are sent again.
    pub exporting: Exporting,
    /// Called again and again while the database refuses a statement, or a connection.
    pub refused: Refused,
    /// The console's own counts.
    pub counts: Arc<Own>,
    /// Called after a change that a process has to work on.
    pub wake: Wake,
}

impl Terms {
    /// The configuration's definition of this pipeline.
    fn definition_of(&self, pipeline: &str) -> Option<&Arc<Definition>> {
        self.pipelines.iter().find(|it| it.pipeline == pipeline)
    }

    /// The names of its pipelines.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.pipelines.iter().map(|it| it.pipeline.as_str())
    }
}

/// Judges other processes by this process's own knowledge beside the database.
pub struct Witness {
    /// The age at which a heartbeat is stale.
    pub stale_after: Duration,
    /// True if this host knows that a process is dead.
    pub is_dead: Box<dyn Fn(&ProcessRow) -> bool + Send + Sync>,
}

impl Witness {
    fn state(&self, process: &ProcessRow) -> State {
        State::of(process.age, self.stale_after, || (self.is_dead)(process))
    }
}

/// The console cannot listen at a place.
#[derive(Debug, thiserror::Error)]
#[error("the console cannot listen on {place}")]
pub struct NotListening {
    place: String,
    is_socket: bool,
    #[source]
    source: std::io::Error,
}

impl NotListening {
    /// The remedy, for a person.
    pub fn remedy(&self) -> &'static str {
        match (self.source.kind(), self.is_socket) {
            (std::io::ErrorKind::AddrInUse, false) => {
                "another program has that port, or another daemon's console: end it, or let \
                 `console.listen` name another port"
            }
            (std::io::ErrorKind::AddrInUse, true) => {
                "another daemon's console listens there: end it, or let `console.socket` name another path"
            }
            (std::io::ErrorKind::AlreadyExists, true) => {
                "remove it, or let `console.socket` name another path"
            }
            (_, false) => "let `console.listen` name an address and a port that this user may have",
            (_, true) => {
                "let `console.socket` name a path of less than 100 letters in a directory that is there, and \
                 that this user may write"
            }
        }
    }
}

/// The places at which a console must listen: at least one.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// An address.
    pub address: Option<SocketAddr>,
    /// A socket in the file system.
    pub socket: Option<&'a Path>,
}

/// Listens and answers, in tasks of this thread, until it is told to drain. Waits this long for a place
/// that another process still has: a predecessor that drains.
pub async fn start(
    places: Places<'_>,
    location: &Location,
    terms: Terms,
    within: Duration,
) -> Result<Running, NotListening> {
    let (mut listener, mut bound, mut socket) = (None, None, None);
    // The socket comes first, so that no port is taken at which nobody will answer.
    if let Some(path) = places.socket {
        let opened = listeners::when_free(within, async || Socket::open(path).await).await;
        let opened = opened.map_err(|source| NotListening {
            place: path.display().to_string(),
            is_socket: true,
            source,
        })?;
        socket = Some(opened);
    }
    if let Some(address) = places.address {
        let opened = listeners::when_free(within, async || TcpListener::bind(address).await).await;
        let named = opened.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (at, opened) = named.map_err(|source| NotListening {
            place: address.to_string(),
            is_socket: false,
            source,
        })?;
        (listener, bound) = (Some(opened), Some(at));
    }
    let hosts = Hosts::new(bound.map(|it| it.ip()), &terms.hosts);
    let site = Site::new(location, hosts, terms).map_err(|source| NotListening {
        place: "any place".to_owned(),
        is_socket: false,
        source,
    })?;
    let running = serve::start(Doors::new(listener, socket), routes::ROUTES, Arc::new(site));
    if let Some(bound) = bound {
        let url = format!("http://{bound}/");
        tracing::info!(url, "the console listens");
    }
    if let Some(path) = places.socket {
        tracing::info!(socket = %path.display(), "the socket of the console is open");
    }
    Ok(running)
}

#[cfg(test)]
mod tests;
