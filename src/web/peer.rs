//! Peers: the other end of a connection, and the visitor for whom it vouches.
//!
//! Owns: the sources whose word about a visitor counts: the kernel about a user of this host, and a reverse proxy
//! that the configuration trusts. Never: knows a token, or lets anybody in.

use std::net::{IpAddr, SocketAddr};

use axum::http::StatusCode;
use axum::http::header::{FORWARDED, HeaderMap, HeaderName, VIA};

use crate::config::Proxy;
use crate::machine::letters::{UID, form_of_a_name, is_name};
use crate::model::Scope;

use super::failed_sign_ins::Remote;
use super::refusal::Refusal;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that proxies add to a request, unless somebody has told them not to; beside all those that begin with
/// `X-Forwarded-`.
const OF_PROXIES: [HeaderName; 3] = [FORWARDED, VIA, HeaderName::from_static("x-real-ip")];

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host.
    At(IpAddr),
    /// A user of this host who has opened the console's socket.
    User(u32),
}

/// A visitor named by a peer.
#[derive(Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The name under which actions are recorded.
    pub name: String,
    /// The rights.
    pub scope: Scope,
}

impl Peer {
    /// The place by which visitors without a name are told apart: behind a proxy, the address that it has added.
    pub fn remote(self, proxy: &Proxy, headers: &HeaderMap) -> Remote {
        let own = match self {
            Self::User(_) => return Remote::HERE,
            Self::At(own) => own,
        };
        if !proxy.is_at(own) {
            return Remote::of(own);
        }
        let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
        let hops = lines
            // A line that cannot be read is no reason to believe the line before it.
            .flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
        // The visitor may have written everything before the last hop that is not a proxy's.
        let mut before = hops.map(|hop| address(hop.trim()));
        let first = before.find(|hop| hop.is_none_or(|hop| !proxy.is_at(hop)));
        Remote::of(first.flatten().unwrap_or(own))
    }

    /// The visitor whom a trusted proxy names; none if it names nobody, or if the peer is no such proxy.
    ///
    /// # Errors
    /// The proxy lets a visitor's own headers through, or names a visitor whose deeds cannot be recorded.
    pub fn named(self, proxy: &Proxy, headers: &HeaderMap) -> Result<Option<Vouched>, Refusal> {
        match self {
            Self::At(own) if proxy.is_at(own) => {}
            Self::At(_) | Self::User(_) => return Ok(None),
        }
        let Some(name) = only(headers, &proxy.user)? else {
            return Ok(None);
        };
        if !is_name(name) {
            let detail = format!(
                "the visitor's name in the proxy's header `{}` cannot be recorded: {}",
                proxy.user,
                form_of_a_name()
            );
            return Err(Refusal::new(StatusCode::BAD_REQUEST, detail));
        }
        let groups = only(headers, &proxy.groups)?.unwrap_or_default();
        let groups: Vec<&str> = groups.split(',').map(str::trim_ascii).collect();
        Ok(Some(Vouched {
            name: name.to_owned(),
            scope: proxy.scope_of(&groups),
        }))
    }

    /// The user who has opened the socket, and may do everything; none if the peer is a host.
    pub fn user(self) -> Option<Vouched> {
        match self {
            Self::At(_) => None,
            Self::User(uid) => Some(Vouched {
                name: format!("{UID}{uid}"),
                scope: Scope::Admin,
            }),
        }
    }
}

/// True if a proxy has passed this request on: the visitor is behind the peer, and may be anybody.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|it| OF_PROXIES.contains(it) || it.as_str().starts_with("x-forwarded-"))
}

/// The text of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let refused = |detail: String| Err(Refusal::new(StatusCode::BAD_REQUEST, detail));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match std::str::from_utf8(value.as_bytes()) {
            Ok(text) => Ok(Some(text.trim_ascii()).filter(|it| !it.is_empty())),
            Err(_) => refused(format!("`{name}` of the proxy is no UTF-8")),
        },
        (Some(_), Some(_)) => {
            let detail = format!(
                "`{name}` stands twice: the proxy has to drop the one that a visitor sends"
            );
            refused(detail)
        }
    }
}

/// The address of a hop, which may have a port.
fn address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse().ok().map(|it: SocketAddr| it.ip());
    hop.parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            let value = value.parse().expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    fn at(address: &str) -> Peer {
        Peer::At(address.parse().expect("an address"))
    }

    #[test]
    fn a_visitor_behind_a_proxy_is_where_the_proxy_says_and_nowhere_else() {
        let proxy = Proxy::at(&["10.0.0.0/8"]);
        let remote = |peer: Peer, lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|it| ("x-forwarded-for", *it)).collect();
            peer.remote(&proxy, &headers(&lines))
        };
        let of = |address: &str| Remote::of(address.parse().expect("an address"));
        let behind = at("10.0.0.7");
        assert_eq!(remote(behind, &[]), of("10.0.0.7"));
        assert_eq!(remote(behind, &["192.0.2.1"]), of("192.0.2.1"));
        assert_eq!(remote(behind, &["192.0.2.1:99"]), of("192.0.2.1"));
        assert_eq!(remote(behind, &["[2001:db8::1]:99"]), of("2001:db8::1"));
        // The visitor has written the first hops, and a second proxy the last.
        let hops = "8.8.8.8, 192.0.2.1, 10.3.4.5";
        assert_eq!(remote(behind, &[hops]), of("192.0.2.1"));
        assert_eq!(remote(behind, &["8.8.8.8", "192.0.2.1"]), of("192.0.2.1"));
        assert_eq!(remote(behind, &["8.8.8.8, nonsense"]), of("10.0.0.7"));
        assert_eq!(remote(behind, &["10.3.4.5"]), of("10.0.0.7"));
        assert_eq!(
            remote(behind, &["8.8.8.8", "\u{ff}, 192.0.2.1"]),
            of("10.0.0.7")
        );
        assert_eq!(remote(behind, &["8.8.8.8", "\u{ff}"]), of("10.0.0.7"));
        // This peer is no proxy of ours.
        assert_eq!(remote(at("192.0.2.9"), &["8.8.8.8"]), of("192.0.2.9"));
        assert_eq!(remote(Peer::User(0), &["8.8.8.8"]), Remote::HERE);
    }

    #[test]
    fn a_request_with_a_header_that_proxies_add_was_passed_on() {
        let more = ["x-forwarded-for", "x-forwarded-port"].map(HeaderName::from_static);
        for name in OF_PROXIES.into_iter().chain(more) {
            let of_proxy = HeaderMap::from_iter([(name, "x".parse().expect("a value"))]);
            assert!(is_forwarded(&of_proxy), "{of_proxy:?}");
        }
        let plain = [("host", "localhost"), ("accept", "x"), ("te", "x")];
        assert!(!is_forwarded(&headers(&plain)));
    }

    #[test]
    fn a_proxys_word_counts_from_its_own_address_and_where_it_is_the_only_one() {
        let proxy = Proxy::at(&["10.0.0.0/8"]);
        let named = |peer: &str, all: &[(&'static str, &str)]| {
            at(peer)
                .named(&proxy, &headers(all))
                .map_err(Refusal::into_detail)
        };
        let user = "x-forwarded-email";
        let groups = "x-forwarded-groups";
        let of = |name: &str, scope| {
            let name = name.to_owned();
            Ok(Some(Vouched { name, scope }))
        };
        assert_eq!(
            named("10.0.0.7", &[(user, "ana@x.example")]),
            of("ana@x.example", Scope::Read)
        );
        assert_eq!(
            named("10.0.0.7", &[(user, "Zoë ❤\u{fe0f}"), (groups, "dev, ops")]),
            of("Zoë ❤\u{fe0f}", Scope::Operate)
        );
        assert_eq!(
            named("10.0.0.7", &[(user, "ana"), (groups, "sre,ops")]),
            of("ana", Scope::Admin)
        );
        for nobody in [
            named("192.0.2.1", &[(user, "ana"), (groups, "sre")]),
            named("10.0.0.7", &[]),
            named("10.0.0.7", &[(groups, "sre")]),
            named("10.0.0.7", &[(user, "  ")]),
            Peer::User(0)
                .named(&proxy, &headers(&[(user, "ana")]))
                .map_err(Refusal::into_detail),
        ] {
            assert_eq!(nobody, Ok(None));
        }
        let long = "a".repeat(201);
        for refused in [
            named("10.0.0.7", &[(user, "ana"), (user, "bob")]),
            named(
                "10.0.0.7",
                &[(user, "ana"), (groups, "dev"), (groups, "sre")],
            ),
            named("10.0.0.7", &[(user, "(deadline)")]),
            named("10.0.0.7", &[(user, "uid 0")]),
            named("10.0.0.7", &[(user, "Uid 0")]),
            named("10.0.0.7", &[(user, "uid\u{a0}0")]),
            named("10.0.0.7", &[(user, "\u{3164}")]),
            named("10.0.0.7", &[(user, "a\tb")]),
            named("10.0.0.7", &[(user, "a\u{202e}b")]),
            named("10.0.0.7", &[(user, &long)]),
        ] {
            assert!(refused.is_err(), "{refused:?}");
        }
    }
}
