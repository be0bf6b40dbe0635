//! The hosts of a PostgreSQL address, read as libpq reads them.
//!
//! Owns: the list (`h1:5432,h2`, or `host=` and `port=` with commas), `target_session_attrs`, and one
//! clear error for each mistake in them. The driver knows one host per address, so each host becomes an
//! address of its own. Never: connects, or shows a part of the address in an error: a text that looks like
//! a host may be the rest of a password.

use crate::percent;
use crate::problem::nearest;

/// More hosts are a mistake. While no host is known to be the right one, each is contacted.
const HOSTS_MAX: usize = 16;

/// The parameter that says which of the servers is wanted.
pub const ATTRS: &str = "target_session_attrs";

/// libpq's other values: servers that take no writes.
const READERS: [&str; 3] = ["read-only", "standby", "prefer-standby"];

/// The kind of server that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any server that lets us in.
    Any,
    /// A server that is no standby.
    Primary,
    /// A server that is no standby and takes writes from us.
    ReadWrite,
}

impl Wanted {
    /// libpq's names for them.
    const WORDS: [(&str, Self); 3] = [
        ("any", Self::Any),
        ("read-write", Self::ReadWrite),
        ("primary", Self::Primary),
    ];
}

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// An address for each host, in the order of the list; an address without a list stays as it
    /// was.
    pub urls: Vec<String>,
    /// The kind of server that is wanted.
    pub wanted: Wanted,
}

/// A mistake in an address. It names no part of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Lowercase, no full stop.
    pub message: &'static str,
    /// The remedy.
    pub help: String,
}

fn refuse<T>(message: &'static str, help: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake {
        message,
        help: help.into(),
    })
}

const HELP: &str = "write `postgres://USER:PASSWORD@HOST1:PORT,HOST2:PORT/NAME`";

impl Hosts {
    /// Splits an address into its hosts. The driver interprets everything else in it.
    ///
    /// # Errors
    /// One line about the first mistake in the list or in the wanted kind.
    pub fn parse(url: &str) -> Result<Self, Mistake> {
        let parts = Parts::of(url);
        let wanted = parts.value(ATTRS).map(|value| wanted(&value)).transpose()?;
        let urls = match parts.named()? {
            // The address stays as it is, except for the parameter that the driver does not know.
            None => vec![parts.without(&[ATTRS]).joined(parts.authority)],
            Some(several) => {
                let rest = parts.without(&[ATTRS, "host", "hostaddr", "port"]);
                let user = parts.authority.rsplit_once('@').map(|(user, _)| user);
                let at = |place: &String| match user {
                    Some(user) => rest.joined(&format!("{user}@{place}")),
                    None => rest.joined(place),
                };
                several.iter().map(at).collect()
            }
        };
        let default = match urls.len() {
            1 => Wanted::Any,
            _ => Wanted::ReadWrite,
        };
        Ok(Self {
            urls,
            wanted: wanted.unwrap_or(default),
        })
    }

    /// Host and port of each server, as the address names them.
    pub fn places(url: &str) -> Vec<String> {
        let parts = Parts::of(url);
        let host = parts.value("host").or_else(|| parts.value("hostaddr"));
        let port = parts.value("port");
        let written = match parts.named() {
            Ok(Some(several)) => several,
            _ => vec![parts.hosts().to_owned()],
        };
        let place = |written: &String| {
            let after = written.rsplit_once(']').map_or(&**written, |it| it.1);
            let port = port.as_deref().filter(|port| !port.contains(','));
            let port = port.unwrap_or("5432");
            match (written.as_str(), after.contains(':')) {
                ("", _) => format!("{}:{port}", host.as_deref().unwrap_or("localhost")),
                (_, true) => percent::decoded(written).unwrap_or_default(),
                (_, false) => format!("{}:{port}", percent::decoded(written).unwrap_or_default()),
            }
        };
        written.iter().map(place).collect()
    }
}

fn wanted(value: &str) -> Result<Wanted, Mistake> {
    let value = value.to_ascii_lowercase();
    if let Some((_, wanted)) = Wanted::WORDS.iter().find(|(word, _)| *word == value) {
        return Ok(*wanted);
    }
    if READERS.contains(&value.as_str()) {
        return refuse(
            "`target_session_attrs` of the PostgreSQL address asks for a server that takes no writes",
            "ductworkd writes: it is one of any, read-write, primary",
        );
    }
    let words = Wanted::WORDS.iter().map(|(word, _)| *word);
    refuse(
        "`target_session_attrs` of the PostgreSQL address has no such value",
        match nearest(&value, words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "it is one of any, read-write, primary".to_owned(),
        },
    )
}

/// An address, split at its separators.
#[derive(Clone, Debug)]
struct Parts<'u> {
    /// With the separator after it.
    scheme: &'u str,
    authority: &'u str,
    path: &'u str,
    query: Vec<&'u str>,
}

impl<'u> Parts<'u> {
    fn of(url: &'u str) -> Self {
        let begin = url.find("://").map_or(0, |at| at + 3);
        let (scheme, rest) = url.split_at(begin);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        let query = query.split('&').filter(|pair| !pair.is_empty()).collect();
        Self {
            scheme,
            authority,
            path,
            query,
        }
    }

    fn hosts(&self) -> &'u str {
        let at = self.authority.rsplit_once('@');
        at.map_or(self.authority, |(_, hosts)| hosts)
    }

    /// The value of a parameter: the last one counts, as in libpq.
    fn value(&self, wanted: &str) -> Option<String> {
        let pairs = self.query.iter().rev();
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let of = |(name, _): &(&str, &str)| percent::decoded(name).as_deref() == Some(wanted);
        percent::decoded(pairs.find(of)?.1)
    }

    /// Host and port of each server of a list, in the form of an address with one host; `None` where there
    /// is no list. A parameter replaces the hosts before the path. A server that is named twice counts
    /// once.
    fn named(&self) -> Result<Option<Vec<String>>, Mistake> {
        let [host, hostaddr, port] = ["host", "hostaddr", "port"].map(|name| self.value(name));
        let counted = |text: &str| text.split(',').count();
        if let (Some(host), Some(addr)) = (&host, &hostaddr)
            && counted(host) != counted(addr)
        {
            return refuse(
                "the PostgreSQL address has another number of `hostaddr` than of `host`",
                "name as many of each, or leave `hostaddr` out",
            );
        }
        // Where there are both, the driver connects to the address, too.
        let mut named: Vec<(String, String)> = match hostaddr.or(host) {
            Some(hosts) => {
                let hosts = hosts.split(',').map(|host| (encoded(host), String::new()));
                hosts.collect()
            }
            None => self.hosts().split(',').map(host_and_port).collect(),
        };
        if let Some(ports) = &port {
            let ports: Vec<&str> = ports.split(',').collect();
            if ports.len() != 1 && ports.len() != named.len() {
                return refuse(
                    "the PostgreSQL address has another number of ports than of hosts",
                    "name one port for all hosts, or one for each",
                );
            }
            for (at, (_, port)) in named.iter_mut().enumerate() {
                *port = ports[if ports.len() == 1 { 0 } else { at }].to_owned();
            }
        }
        if named.len() < 2 {
            return Ok(None);
        }
        check(&named)?;
        let mut places: Vec<String> = Vec::new();
        for (host, port) in named {
            let place = match port.is_empty() {
                true => host,
                false => format!("{host}:{port}"),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
        Ok(Some(places))
    }

    /// The same address without these parameters.
    fn without(&self, names: &[&str]) -> Self {
        let mut parts = self.clone();
        parts.query.retain(|pair| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
            let name = percent::decoded(name).unwrap_or_default();
            !names.contains(&name.as_str())
        });
        parts
    }

    /// Joins the parts to an address, with this authority.
    fn joined(&self, authority: &str) -> String {
        let place = format!("{}{authority}{}", self.scheme, self.path);
        match self.query.is_empty() {
            true => place,
            false => format!("{place}?{}", self.query.join("&")),
        }
    }
}

/// Refuses a list with a mistake.
fn check(named: &[(String, String)]) -> Result<(), Mistake> {
    if named.len() > HOSTS_MAX {
        return refuse(
            "the PostgreSQL address has more than 16 hosts",
            "name those of one cluster that may become its primary",
        );
    }
    if named.iter().any(|(host, _)| host.is_empty()) {
        return refuse("a host of the PostgreSQL address is empty", HELP);
    }
    let good = |port: &str| port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    if !named.iter().all(|(_, port)| good(port)) {
        return refuse(
            "a port of the PostgreSQL address is not a number from 1 to 65535",
            HELP,
        );
    }
    Ok(())
}

/// An IPv6 address has its colons in brackets.
fn host_and_port(text: &str) -> (String, String) {
    let end = text.rfind(']').map_or(0, |at| at + 1);
    match text[end..].split_once(':') {
        Some((host, port)) => (format!("{}{host}", &text[..end]), port.to_owned()),
        None => (text.to_owned(), String::new()),
    }
}

/// The host of a parameter in the form that it has before the path.
fn encoded(host: &str) -> String {
    if host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_ok() {
        return format!("[{host}]");
    }
    percent::encoded(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(url: &str) -> Vec<String> {
        Hosts::parse(url).expect(url).urls
    }

    #[test]
    fn each_host_of_a_list_has_an_address_of_its_own() {
        for (url, each) in [
            (
                "postgres://u:p@h1:1,h2/db?sslmode=require",
                [
                    "postgres://u:p@h1:1/db?sslmode=require",
                    "postgres://u:p@h2/db?sslmode=require",
                ],
            ),
            (
                "postgresql://h1,[::1]:7",
                ["postgresql://h1", "postgresql://[::1]:7"],
            ),
            (
                "postgres://u:a%2Cb@%2Frun%2Fpg,h2/d",
                [
                    "postgres://u:a%2Cb@%2Frun%2Fpg/d",
                    "postgres://u:a%2Cb@h2/d",
                ],
            ),
            // A comma in the password does not belong to the list.
            (
                "postgres://u:a,b@h1,h2",
                ["postgres://u:a,b@h1", "postgres://u:a,b@h2"],
            ),
            (
                "postgres://u@/d?host=h1,h2&port=1,2&user=x",
                ["postgres://u@h1:1/d?user=x", "postgres://u@h2:2/d?user=x"],
            ),
            (
                "postgres:///d?host=%2Frun%2Fpg,::1&port=7",
                ["postgres://%2Frun%2Fpg:7/d", "postgres://[::1]:7/d"],
            ),
            (
                "postgres://h1:1,h2:2/d?port=7",
                ["postgres://h1:7/d", "postgres://h2:7/d"],
            ),
            (
                "postgres:///d?host=h1,h2&port=,2",
                ["postgres://h1/d", "postgres://h2:2/d"],
            ),
            (
                "postgres://x/d?host=a,b&hostaddr=10.0.0.1,10.0.0.2",
                ["postgres://10.0.0.1/d", "postgres://10.0.0.2/d"],
            ),
            // The last one counts.
            (
                "postgres:///d?host=x&%68ost=h1,h2",
                ["postgres://h1/d", "postgres://h2/d"],
            ),
        ] {
            assert_eq!(urls(url), each, "{url}");
        }
    }

    #[test]
    fn an_address_of_one_host_is_left_as_it_is() {
        for url in [
            "postgres://localhost",
            "postgres://u:p%40@[::1]:5432/db?sslmode=require&application_name=a",
            "postgres:///db?host=/run/postgresql&port=7",
            "postgres://u:p@h/db?options=-c%20a%3Db",
            "",
        ] {
            assert_eq!(urls(url), [url]);
        }
        assert_eq!(urls("postgres://h,h:5432,h/d").len(), 2);
        assert_eq!(urls("postgres://h,h/d"), ["postgres://h/d"]);
        let url = "postgres://h/d?target_session_attrs=primary&sslmode=require";
        assert_eq!(urls(url), ["postgres://h/d?sslmode=require"]);
    }

    #[test]
    fn of_several_servers_one_that_takes_writes_is_wanted_and_of_one_nothing() {
        for (url, wanted) in [
            ("postgres://h", Wanted::Any),
            ("postgres://h1,h2", Wanted::ReadWrite),
            ("postgres:///d?host=h1,h2", Wanted::ReadWrite),
            (
                "postgres://h?target_session_attrs=read-write",
                Wanted::ReadWrite,
            ),
            (
                "postgres://h1,h2?target_session_attrs=Primary",
                Wanted::Primary,
            ),
            ("postgres://h1,h2?target%5fsession_attrs=any", Wanted::Any),
        ] {
            assert_eq!(Hosts::parse(url).unwrap().wanted, wanted, "{url}");
        }
    }

    #[test]
    fn a_broken_list_has_one_clear_error_that_shows_no_part_of_it() {
        let many = "s3cret,".repeat(HOSTS_MAX);
        for (url, message, help) in [
            ("postgres://s3cret,,h2/d", "is empty", "HOST1:PORT"),
            ("postgres://s3cret,/d", "is empty", "HOST1:PORT"),
            ("postgres://,s3cret/d", "is empty", "HOST1:PORT"),
            ("postgres:///d?host=s3cret,", "is empty", "HOST1:PORT"),
            ("postgres://h,:s3cret/d", "is empty", "HOST1:PORT"),
            ("postgres://h1:0,s3cret/d", "a port", "HOST1:PORT"),
            ("postgres://h1,h2:s3cret/d", "a port", "HOST1:PORT"),
            ("postgres:///d?host=a,b&port=s3cret", "a port", "HOST1:PORT"),
            (
                "postgres://h1,h2/d?port=1,2,3",
                "another number of ports",
                "one port for all",
            ),
            (
                "postgres:///d?host=a&port=1,2",
                "another number of ports",
                "one port for all",
            ),
            (
                "postgres:///d?host=a,b&hostaddr=s3cret",
                "another number of `hostaddr`",
                "as many of each",
            ),
            (
                &format!("postgres://{many}h/d"),
                "more than 16 hosts",
                "one cluster",
            ),
            (
                "postgres://h1,h2?target_session_attrs=standby",
                "takes no writes",
                "ductworkd writes",
            ),
            (
                "postgres://h1?target_session_attrs=prefer-standby",
                "takes no writes",
                "ductworkd writes",
            ),
            (
                "postgres://h1,h2?target_session_attrs=readwrite",
                "no such value",
                "did you mean `read-write`?",
            ),
            (
                "postgres://h1,h2?target_session_attrs=s3cret",
                "no such value",
                "it is one of any, read-write, primary",
            ),
            (
                "postgres://h1,h2?target_session_attrs",
                "no such value",
                "it is one of",
            ),
        ] {
            let mistake = Hosts::parse(url).unwrap_err();
            assert!(mistake.message.contains(message), "{url}: {mistake:?}");
            assert!(mistake.help.contains(help), "{url}: {mistake:?}");
            assert!(!format!("{mistake:?}").contains("s3cret"), "{mistake:?}");
        }
    }
}
