//! The place of the database, as a URL names it, and the ways to connect to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::percent;
use crate::store::backend::mysql::connection::Mysql;
use crate::store::backend::mysql::nodes::Nodes;
use crate::store::backend::mysql::url::Address;
use crate::store::backend::postgres::connection::Postgres;
use crate::store::backend::postgres::servers::Servers;
use crate::store::backend::sqlite::connection::Sqlite;
use crate::store::backend::sqlite::file::{File, Side};
use crate::store::dialect::Dialect;
use crate::store::error::Error;
use crate::store::patience::{self, Patience};

use super::{Conn, Inner};

/// How long a connection attempt may take: longer than a busy server's handshake, shorter than a lease.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The location of the database, with which every process of a deployment connects.
#[derive(Clone)]
pub struct Location {
    target: Target,
    /// How long claims last: the permitted waits depend on it.
    lease: Duration,
}

#[derive(Clone)]
enum Target {
    Postgres(Box<Servers>),
    Sqlite(File),
    Mysql(Box<Nodes>),
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The engine: short statements by key. Sequential scans and hash joins are priced out, so that
    /// a plan made while the tables were empty is still right when they are full.
    Engine,
    /// The same, for many runs one after another: a row that somebody else holds does not hold up
    /// the rest.
    Bulk,
    /// The same as for the engine, plus heartbeats: no wait may delay them.
    Lifeline,
    /// Reading and administration: the planner's default settings.
    Query,
    /// Diagnosis: somebody's lock is reported instead of waited for.
    Look,
    /// A page of the console: it writes nothing, and no statement takes longer than a page may.
    Page,
}

impl Location {
    /// A PostgreSQL, MySQL or SQLite database. `url` is `postgres://…`, with several hosts where one of them is the
    /// primary, or `sqlite://path`, in which `%20` is a blank.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let target = if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let path = path.split('?').next().unwrap_or(path);
            let path = percent::decoded(path)
                .ok_or_else(|| Error::Configured(format!("not a path in a URL: {path}")))?;
            Target::Sqlite(File::at(PathBuf::from(path)))
        } else if Address::is_of(url) {
            let address = Address::parse(url)
                .map_err(|error| Error::Configured(format!("not a database URL: {error}")))?;
            Target::Mysql(Box::new(Nodes::of(address)))
        } else {
            let servers = Servers::parse(url)
                .map_err(|error| Error::Configured(format!("not a database URL: {error}")))?;
            Target::Postgres(Box::new(servers))
        };
        Ok(Self::of(target))
    }

    /// A SQLite file.
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::of(Target::Sqlite(File::at(path.into())))
    }

    fn of(target: Target) -> Self {
        let lease = patience::LEASE;
        Self { target, lease }
    }

    /// The same, where claims last for this long.
    pub fn leased(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// SQLite's file.
    pub fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::Postgres(_) | Target::Mysql(_) => None,
            Target::Sqlite(file) => Some(file.path()),
        }
    }

    /// The side file of SQLite's database that this process has open and that is no longer in its place.
    pub fn displaced(&self) -> Option<Side> {
        match &self.target {
            Target::Sqlite(file) => file.displaced(),
            _ => None,
        }
    }

    /// Fails with `Misplaced` when SQLite's file is not the one that was opened here first.
    pub fn check_file(&self) -> Result<(), Error> {
        match &self.target {
            Target::Postgres(_) | Target::Mysql(_) => Ok(()),
            Target::Sqlite(file) => file.check(),
        }
    }

    /// True when SQLite's file, which this process has open, was deleted: nobody will see its
    /// commits.
    pub fn is_deleted(&self) -> bool {
        match &self.target {
            Target::Postgres(_) | Target::Mysql(_) => false,
            Target::Sqlite(file) => file.is_deleted(),
        }
    }

    /// Records that SQLite's file was removed on purpose.
    pub(in crate::store) fn forget_file(&self) {
        if let Target::Sqlite(file) = &self.target {
            file.forget();
        }
    }

    /// The kind of the database.
    pub fn dialect(&self) -> Dialect {
        match self.target {
            Target::Postgres(_) => Dialect::Postgres,
            Target::Sqlite(_) => Dialect::Sqlite,
            Target::Mysql(_) => Dialect::Mysql,
        }
    }

    /// The name of the database on this host: two processes with the same name are in one
    /// deployment, and wake each other. Contains no secret.
    pub fn identity(&self) -> String {
        match &self.target {
            Target::Sqlite(file) => {
                let path = file.path();
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                // The file may not exist yet; its directory does.
                let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
                match (directory, path.file_name()) {
                    (Some(directory), Some(name)) => {
                        format!("sqlite:{}", directory.join(name).display())
                    }
                    _ => format!("sqlite:{}", path.display()),
                }
            }
            Target::Mysql(nodes) => nodes.address.identity(),
            Target::Postgres(servers) => servers.identity(),
        }
    }

    /// A connection was lost: where there are several servers, another one may be the right one by
    /// now.
    pub fn doubt(&self) {
        if let Target::Postgres(servers) = &self.target {
            servers.doubt();
        }
    }

    /// The server that the last connection led to, where there are several.
    pub fn server(&self) -> Option<String> {
        match &self.target {
            Target::Postgres(servers) => servers.current(),
            Target::Mysql(nodes) => nodes.current(),
            Target::Sqlite(_) => None,
        }
    }

    /// Opens a connection.
    pub async fn connect(&self, purpose: Purpose) -> Result<Conn, Error> {
        let patience = Patience::of(purpose, self.lease);
        let mut server = None;
        let inner = match &self.target {
            Target::Postgres(servers) => {
                let connected = Postgres::connect(servers, purpose, patience, CONNECT_TIMEOUT);
                let (connected, at) = connected.await?;
                server = at;
                Inner::Postgres(connected)
            }
            Target::Sqlite(file) => {
                let file = file.clone();
                let waits = patience.lock.filter(|_| patience.hurried);
                Inner::Sqlite(Sqlite::open(file, purpose, waits, CONNECT_TIMEOUT).await?)
            }
            Target::Mysql(nodes) => {
                let connected = Mysql::connect(nodes, purpose, patience, CONNECT_TIMEOUT);
                Inner::Mysql(Box::new(connected.await?))
            }
        };
        Ok(Conn {
            server,
            ..Conn::of(inner, patience)
        })
    }

    /// Opens a connection for a lifeline, which also receives notifications where the database has
    /// them.
    pub async fn listen(&self, channel: &str) -> Result<Conn, Error> {
        let Target::Postgres(servers) = &self.target else {
            return self.connect(Purpose::Lifeline).await;
        };
        let patience = Patience::of(Purpose::Lifeline, self.lease);
        let listener = Postgres::listen(servers, channel, patience, CONNECT_TIMEOUT);
        let (listener, server) = listener.await?;
        Ok(Conn {
            server,
            ..Conn::of(Inner::Postgres(listener), patience)
        })
    }
}
