//! The address of a MySQL or MariaDB database.
//!
//! Owns: parsing `mysql://user:password@host:port/database?key=value`, and one clear error for each
//! mistake in it. Several hosts, separated by commas, are nodes of one cluster. Never: connects, or
//! shows a password.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::super::is_loopback;
use crate::percent;

/// The port of a server where the address names none.
const PORT: u16 = 3306;

/// No server of either kind accepts a longer database name.
const NAME_MAX: usize = 64;

/// The requirement on a user or a password that contains characters which end it.
pub const ENCODED: &str = "has to be percent-encoded";

/// Keys that name a file.
const FILES: [&str; 3] = ["ssl-ca", "ssl-cert", "ssl-key"];

/// The keys after the question mark.
const KEYS: [&str; 5] = ["socket", "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"];

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where the servers may be reached, in the order in which to try them. Empty for a socket.
    pub hosts: Vec<Host>,
    /// The Unix socket of a server on this host.
    pub socket: Option<String>,
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: Secret,
    /// The database, which must exist.
    pub database: String,
    /// The protection of the connection.
    pub tls: Tls,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address; an IPv6 address without its brackets.
    pub name: String,
    /// Its port.
    pub port: u16,
}

/// A password, which no debug output shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub Option<String>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(if self.0.is_some() { "***" } else { "none" })
    }
}

/// The protection of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The mode.
    pub mode: Mode,
    /// The file with the certificate authorities that sign servers; Mozilla's list where there is
    /// none.
    pub authorities: Option<PathBuf>,
    /// The files with the client's own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The first of its files that cannot be read, and why.
    pub fn unread(&self) -> Option<String> {
        let identity = self.identity.iter();
        let identity =
            identity.flat_map(|(certificate, key)| [("ssl-cert", certificate), ("ssl-key", key)]);
        let named = self.authorities.iter().map(|file| ("ssl-ca", file));
        named.chain(identity).find_map(|(key, file)| {
            let error = std::fs::File::open(file).err()?;
            Some(format!("the file of {key}, {}: {error}", file.display()))
        })
    }
}

/// The modes of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No TLS: for the loopback interface and for sockets.
    Disabled,
    /// Encrypted, with any server at the other end.
    Required,
    /// In addition, a known authority has signed the server's certificate.
    VerifyCa,
    /// In addition, the certificate is for the host of the address.
    VerifyIdentity,
}

impl Address {
    /// True for a URL that leads to a server of this kind.
    pub fn is_of(url: &str) -> bool {
        scheme(url).is_some()
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// One line about the first mistake.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = scheme(url)
            .ok_or("the address of a MySQL server begins with mysql:// or mariadb://")?;
        if rest.contains(|char: char| char.is_whitespace() || char.is_control()) {
            return Err("it contains a blank: write it as %20".to_owned());
        }
        if rest.contains('#') {
            return Err(
                "a # has no meaning in the address of a MySQL server: write it as %23".to_owned(),
            );
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let Some((login, hosts)) = authority.rsplit_once('@') else {
            // A `/` or `?` in the password has ended the authority too early.
            if path.contains('@') || query.contains('@') {
                return Err(format!("its user or password {ENCODED}"));
            }
            return Err("it names no user: mysql://user:password@host/database".to_owned());
        };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (login, None),
        };
        let user = decoded("user", user)?;
        if user.is_empty() {
            return Err("it names no user: mysql://user:password@host/database".to_owned());
        }
        let password = password.map(|it| decoded("password", it)).transpose()?;
        let database = name(path)?;
        let given = Given::parse(query)?;
        let socket = given.socket()?;
        let hosts = match (&socket, hosts) {
            (Some(_), "" | "localhost") => Vec::new(),
            (Some(_), _) => {
                return Err("it names a socket and a host: leave one of them out".to_owned());
            }
            (None, hosts) => parse_hosts(hosts)?,
        };
        let tls = given.tls(socket.is_some(), &hosts)?;
        Ok(Self {
            hosts,
            socket,
            user,
            password: Secret(password),
            database,
            tls,
        })
    }

    /// The name of the database on this host, without secrets.
    pub fn identity(&self) -> String {
        let place = match &self.socket {
            Some(socket) => socket.clone(),
            None => {
                let hosts = self.hosts.iter().map(Host::to_string);
                hosts.collect::<Vec<_>>().join(",")
            }
        };
        format!("mysql:{place}/{}", self.database)
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.contains(':') {
            true => write!(to, "[{}]:{}", self.name, self.port),
            false => write!(to, "{}:{}", self.name, self.port),
        }
    }
}

/// The same address, for the database `name`.
pub fn with_database(url: &str, name: &str) -> String {
    let (before, query) = match url.split_once('?') {
        Some((before, query)) => (before, format!("?{query}")),
        None => (url, String::new()),
    };
    let from = before.find("://").map_or(0, |at| at + 3);
    let end = before[from..]
        .find('/')
        .map_or(before.len(), |at| from + at);
    format!("{}/{name}{query}", &before[..end])
}

fn scheme(url: &str) -> Option<&str> {
    let rest = url
        .strip_prefix("mysql:")
        .or_else(|| url.strip_prefix("mariadb:"))?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

fn decoded(part: &str, text: &str) -> Result<String, String> {
    let text = percent::decoded(text)
        .ok_or_else(|| format!("in its {part} a % is not followed by two hexadecimal digits"))?;
    match text.contains('\0') {
        true => Err(format!("its {part} has a zero byte")),
        false => Ok(text),
    }
}

fn name(path: &str) -> Result<String, String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let name = decoded("database", path)?;
    if name.is_empty() {
        return Err(
            "it names no database after the host, as mysql://user:password@host/database does"
                .to_owned(),
        );
    }
    if path.contains('/') {
        return Err(format!(
            "{name} is no name of a database: write a / in it as %2F"
        ));
    }
    if name.chars().count() > NAME_MAX {
        return Err(format!(
            "the name of its database has {} characters, and a server takes {NAME_MAX}",
            name.chars().count()
        ));
    }
    Ok(name)
}

fn parse_hosts(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    for host in text.split(',') {
        let host = parse_host(host)?;
        if hosts.contains(&host) {
            return Err(format!("it names the host {host} twice"));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn parse_host(text: &str) -> Result<Host, String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest
                .split_once(']')
                .ok_or_else(|| format!("the IPv6 address of {text} has no ] at its end"))?;
            let known = name.parse::<std::net::Ipv6Addr>().is_ok();
            if !known || !(port.is_empty() || port.starts_with(':')) {
                return Err(format!(
                    "{text} is no host: an IPv6 address is written as [::1]:3306"
                ));
            }
            (name.to_owned(), port.strip_prefix(':'))
        }
        None => {
            let (name, port) = match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            };
            (decoded("host", name)?, port)
        }
    };
    if name.is_empty() {
        return Err("it names no host: mysql://user:password@host/database".to_owned());
    }
    let port = match port {
        None => PORT,
        // Parsing alone would accept a sign.
        Some(port) => Some(port)
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse().ok())
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("{port:?} is no port of {name}: a number from 1 to 65535 is"))?,
    };
    Ok(Host { name, port })
}

/// The values of the keys.
struct Given<'a>(Vec<(&'a str, String)>);

impl<'a> Given<'a> {
    fn parse(query: &'a str) -> Result<Self, String> {
        let mut known = BTreeSet::new();
        let mut given = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("its key {pair} has no value: {pair}=…"))?;
            if !KEYS.contains(&key) {
                return Err(format!(
                    "its key {key} is unknown; the keys are {}",
                    KEYS.join(", ")
                ));
            }
            if !known.insert(key) {
                return Err(format!("its key {key} is there twice"));
            }
            let value = decoded(key, value)?;
            if value.is_empty() {
                return Err(format!("its key {key} is empty"));
            }
            given.push((key, value));
        }
        Ok(Self(given))
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| value.as_str())
    }

    fn socket(&self) -> Result<Option<String>, String> {
        match self.get("socket") {
            Some(path) if !path.starts_with('/') => Err(format!(
                "the socket {path} is no absolute path: it begins with /"
            )),
            path => Ok(path.map(str::to_owned)),
        }
    }

    fn tls(&self, by_socket: bool, hosts: &[Host]) -> Result<Tls, String> {
        let files = FILES.map(|key| self.get(key));
        let mode = match self.get("ssl-mode").map(str::to_lowercase).as_deref() {
            None if by_socket => Mode::Disabled,
            // A certificate authority means that the user wants to verify the server.
            None if files == [None; 3] && hosts.iter().all(Host::is_loopback) => Mode::Disabled,
            None | Some("verify_identity") => Mode::VerifyIdentity,
            Some("verify_ca") => Mode::VerifyCa,
            Some("required") => Mode::Required,
            Some("disabled") => Mode::Disabled,
            Some("preferred") => {
                return Err(
                    "ssl-mode=preferred goes on without TLS where it is refused, and says nothing: \
                     use required, verify_ca or verify_identity"
                        .to_owned(),
                );
            }
            Some(other) => {
                return Err(format!(
                    "ssl-mode={other} is unknown; the modes are disabled, required, verify_ca and \
                     verify_identity"
                ));
            }
        };
        if by_socket && mode != Mode::Disabled {
            return Err("a socket takes no ssl-mode: what passes it stays on this host".to_owned());
        }
        let named = FILES.into_iter().zip(files);
        let named = named.filter_map(|(key, file)| file.map(|_| key)).next();
        if let (Mode::Disabled, Some(key)) = (mode, named) {
            return Err(format!("its key {key} has no meaning without TLS"));
        }
        for (key, file) in FILES.into_iter().zip(files) {
            if let Some(file) = file.filter(|file| !file.starts_with('/')) {
                return Err(format!(
                    "the file of {key}, {file}, is no absolute path: it begins with /"
                ));
            }
        }
        let [authorities, certificate, key] = files.map(|file| file.map(PathBuf::from));
        if mode == Mode::Required && authorities.is_some() {
            return Err(
                "ssl-mode=required looks at no certificate, so ssl-ca has no meaning: use verify_ca \
                 or verify_identity"
                    .to_owned(),
            );
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err("ssl-cert needs ssl-key beside it".to_owned()),
            (None, Some(_)) => return Err("ssl-key needs ssl-cert beside it".to_owned()),
        };
        Ok(Tls {
            mode,
            authorities,
            identity,
        })
    }
}

impl Host {
    fn is_loopback(&self) -> bool {
        is_loopback(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Address::parse(url).expect_err(url)
    }

    fn host(name: &str, port: u16) -> Host {
        Host {
            name: name.to_owned(),
            port,
        }
    }

    #[test]
    fn an_address_has_a_user_hosts_and_a_database() {
        let read = Address::parse("mysql://me:p%40ss%3A@db.example:3307/jobs").unwrap();
        assert_eq!(read.hosts, [host("db.example", 3307)]);
        assert_eq!(read.user, "me");
        assert_eq!(read.password.0.as_deref(), Some("p@ss:"));
        assert_eq!(read.database, "jobs");
        assert_eq!(read.tls.mode, Mode::VerifyIdentity);
        assert_eq!(read.identity(), "mysql:db.example:3307/jobs");
        assert!(!format!("{read:?}").contains("p@ss"), "{read:?}");
        let read = Address::parse("mariadb://me@a,b:3307,[::1]:3308/jobs/").unwrap();
        let hosts = [host("a", 3306), host("b", 3307), host("::1", 3308)];
        assert_eq!(read.hosts, hosts);
        assert_eq!(read.identity(), "mysql:a:3306,b:3307,[::1]:3308/jobs");
        let read = Address::parse("mysql://me:x@/jobs?socket=/run/my%20sql.sock").unwrap();
        assert_eq!(read.socket.as_deref(), Some("/run/my sql.sock"));
        assert_eq!(read.tls.mode, Mode::Disabled);
    }

    #[test]
    fn what_leaves_this_host_is_encrypted_unless_the_address_says_otherwise() {
        let mode = |url: &str| Address::parse(url).unwrap().tls.mode;
        assert_eq!(mode("mysql://u@127.0.0.1/d"), Mode::Disabled);
        assert_eq!(mode("mysql://u@[::1]/d"), Mode::Disabled);
        assert_eq!(mode("mysql://u@localhost/d"), Mode::Disabled);
        assert_eq!(mode("mysql://u@localhost,other/d"), Mode::VerifyIdentity);
        assert_eq!(
            mode("mysql://u@localhost/d?ssl-ca=/ca.pem"),
            Mode::VerifyIdentity
        );
        assert_eq!(mode("mysql://u@10.0.0.1/d"), Mode::VerifyIdentity);
        assert_eq!(
            mode("mysql://u@10.0.0.1/d?ssl-mode=REQUIRED"),
            Mode::Required
        );
        assert_eq!(
            mode("mysql://u@10.0.0.1/d?ssl-mode=disabled"),
            Mode::Disabled
        );
    }

    #[test]
    fn each_mistake_has_one_clear_error() {
        for (url, error) in [
            (
                "mysql://h/d",
                "it names no user: mysql://user:password@host/database",
            ),
            (
                "mysql://:p@h/d",
                "it names no user: mysql://user:password@host/database",
            ),
            (
                "mysql://u:p@/d",
                "it names no host: mysql://user:password@host/database",
            ),
            (
                "mysql://u:p@h",
                "it names no database after the host, as mysql://user:password@host/database does",
            ),
            (
                "mysql://u:p@h/",
                "it names no database after the host, as mysql://user:password@host/database does",
            ),
            (
                "mysql://u:p@h/a/b",
                "a/b is no name of a database: write a / in it as %2F",
            ),
            (
                "mysql://u:p@h:0/d",
                "\"0\" is no port of h: a number from 1 to 65535 is",
            ),
            (
                "mysql://u:p@h:65536/d",
                "\"65536\" is no port of h: a number from 1 to 65535 is",
            ),
            (
                "mysql://u:p@h:+1/d",
                "\"+1\" is no port of h: a number from 1 to 65535 is",
            ),
            (
                "mysql://u:p@h:x/d",
                "\"x\" is no port of h: a number from 1 to 65535 is",
            ),
            (
                "mysql://u:p@h:/d",
                "\"\" is no port of h: a number from 1 to 65535 is",
            ),
            ("mysql://u:p@h,h:3306/d", "it names the host h:3306 twice"),
            (
                "mysql://u:p@h,/d",
                "it names no host: mysql://user:password@host/database",
            ),
            (
                "mysql://u:p@[::1/d",
                "the IPv6 address of [::1 has no ] at its end",
            ),
            (
                "mysql://u:p@[x]:1/d",
                "[x]:1 is no host: an IPv6 address is written as [::1]:3306",
            ),
            (
                "mysql://u:p%4@h/d",
                "in its password a % is not followed by two hexadecimal digits",
            ),
            (
                "mysql://u%zz:p@h/d",
                "in its user a % is not followed by two hexadecimal digits",
            ),
            ("mysql://u:p%00@h/d", "its password has a zero byte"),
            (
                "mysql://u:p#q@h/d",
                "a # has no meaning in the address of a MySQL server: write it as %23",
            ),
            (
                "mysql://u@h/d?sslmode=require",
                "its key sslmode is unknown; the keys are socket, ssl-mode, ssl-ca, ssl-cert, ssl-key",
            ),
            (
                "mysql://u@h/d?ssl-mode",
                "its key ssl-mode has no value: ssl-mode=…",
            ),
            ("mysql://u@h/d?ssl-mode=", "its key ssl-mode is empty"),
            (
                "mysql://u@h/d?ssl-mode=required&ssl-mode=required",
                "its key ssl-mode is there twice",
            ),
            (
                "mysql://u@h/d?ssl-mode=on",
                "ssl-mode=on is unknown; the modes are disabled, required, verify_ca and verify_identity",
            ),
            (
                "mysql://u@h/d?ssl-mode=preferred",
                "ssl-mode=preferred goes on without TLS where it is refused, and says nothing: use required, verify_ca or verify_identity",
            ),
            (
                "mysql://u@h/d?ssl-mode=disabled&ssl-ca=/x",
                "its key ssl-ca has no meaning without TLS",
            ),
            (
                "mysql://u@h/d?ssl-ca=tls/ca.pem",
                "the file of ssl-ca, tls/ca.pem, is no absolute path: it begins with /",
            ),
            (
                "mysql://u@h/d?ssl-mode=required&ssl-ca=/x",
                "ssl-mode=required looks at no certificate, so ssl-ca has no meaning: use verify_ca or verify_identity",
            ),
            (
                "mysql://u@h/d?ssl-cert=/x",
                "ssl-cert needs ssl-key beside it",
            ),
            (
                "mysql://u@h/d?ssl-key=/x",
                "ssl-key needs ssl-cert beside it",
            ),
            (
                "mysql://u@h/d?socket=/x",
                "it names a socket and a host: leave one of them out",
            ),
            (
                "mysql://u@/d?socket=x",
                "the socket x is no absolute path: it begins with /",
            ),
            (
                "mysql://u@/d?socket=/x&ssl-mode=required",
                "a socket takes no ssl-mode: what passes it stays on this host",
            ),
            (
                "postgres://u@h/d",
                "the address of a MySQL server begins with mysql:// or mariadb://",
            ),
        ] {
            assert_eq!(refused(url), error, "{url}");
        }
        let long = format!("mysql://u@h/{}", "d".repeat(65));
        assert_eq!(
            refused(&long),
            "the name of its database has 65 characters, and a server takes 64"
        );
    }

    #[test]
    fn another_database_of_the_same_server_has_the_same_address_but_for_its_name() {
        for (url, other) in [
            (
                "mysql://u:p@h:1,i:2/d?ssl-mode=required",
                "mysql://u:p@h:1,i:2/e?ssl-mode=required",
            ),
            ("mysql://u@/d?socket=/x/y", "mysql://u@/e?socket=/x/y"),
            ("mysql://u@h", "mysql://u@h/e"),
        ] {
            assert_eq!(with_database(url, "e"), other);
        }
    }
}
