//! The reverse proxy that says who a visitor is.
//!
//! Owns: the notation of its settings, and the addresses that are its own. Never: reads a request.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};

use crate::model::Scope;
use crate::yaml::{Fault, Node};

use super::keys::Key;
use super::read::Reader;
use super::value::{Faults, texts};

/// A reverse proxy that has asked visitors who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Its addresses; without one there is no such proxy.
    pub from: Vec<Network>,
    /// The header with the visitor's name.
    pub user: HeaderName,
    /// The header with the visitor's groups, with commas between them.
    pub groups: HeaderName,
    /// Those who may act on runs.
    pub operate: Groups,
    /// Those who may do everything.
    pub admin: Groups,
}

impl Proxy {
    /// Reads its settings.
    pub fn read(read: &mut Reader) -> Self {
        Self {
            from: read.one("console.proxy.from", networks),
            user: read.one("console.proxy.user", header),
            groups: read.one("console.proxy.groups", header),
            operate: read.one("console.proxy.operate", groups),
            admin: read.one("console.proxy.admin", groups),
        }
    }

    /// A proxy at these addresses, with the usual headers; members of `ops` operate, and `sre` are admins.
    #[cfg(test)]
    pub fn at(from: &[&str]) -> Self {
        let only = |name: &str| Groups::Only(vec![name.to_owned()]);
        Self {
            from: from.iter().filter_map(|it| Network::parse(it)).collect(),
            user: HeaderName::from_static("x-forwarded-email"),
            groups: HeaderName::from_static("x-forwarded-groups"),
            operate: only("ops"),
            admin: only("sre"),
        }
    }

    /// True when this address is the proxy's.
    pub fn is_at(&self, address: IpAddr) -> bool {
        self.from.iter().any(|network| network.has(address))
    }

    /// The rights of a visitor who is in these groups: everybody whom the proxy lets through may read.
    pub fn scope_of(&self, groups: &[&str]) -> Scope {
        if self.admin.has_any(groups) {
            Scope::Admin
        } else if self.operate.has_any(groups) {
            Scope::Operate
        } else {
            Scope::Read
        }
    }
}

/// Groups of visitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Everybody is meant.
    All,
    /// Those who are in one of these.
    Only(Vec<String>),
}

impl Groups {
    fn has_any(&self, groups: &[&str]) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| groups.contains(&name.as_str())),
        }
    }

    /// True when nobody is meant.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(names) if names.is_empty())
    }
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// An address, or an address with the number of bits that its network has.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits: u8 = match bits {
            Some(bits) if bits.bytes().all(|it| it.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        // A socket for both versions writes a peer's address in this form.
        match (address, address.to_canonical(), bits.checked_sub(96)) {
            (IpAddr::V6(_), canonical @ IpAddr::V4(_), Some(bits)) if bits <= 32 => Some(Self {
                address: canonical,
                bits,
            }),
            _ => (bits <= most).then_some(Self { address, bits }),
        }
    }

    /// True when every address of its version is in it.
    pub fn is_everywhere(&self) -> bool {
        self.bits == 0
    }

    fn has(&self, address: IpAddr) -> bool {
        // A socket for both versions writes an address of the older one in the form of the newer.
        let (own, other, width) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        // The machine knows no shift by the whole width.
        let differ = (own ^ other).checked_shr(width - u32::from(self.bits));
        differ.unwrap_or_default() == 0
    }
}

/// One network, networks separated by commas, or a list of networks.
fn networks(node: &Node, key: &Key) -> Result<Vec<Network>, Faults> {
    let help =
        "write the address from which the proxy connects, `10.0.0.7`, or its network, `10.0.0.0/8`";
    texts(node, key, "addresses and networks", help, Network::parse)
}

/// `*`, or groups.
fn groups(node: &Node, key: &Key) -> Result<Groups, Faults> {
    let help = "write the groups as the proxy names them, `[ops, sre]`, without commas; or `\"*\"` for everybody whom it \
                lets through";
    let name = |text: &str| (!text.is_empty() && !text.contains(',')).then(|| text.to_owned());
    texts(node, key, "`*` or names of groups", help, name).map(|names| {
        match names.iter().any(|name| name == "*") {
            true => Groups::All,
            false => Groups::Only(names),
        }
    })
}

/// The name of a header.
fn header(node: &Node, key: &Key) -> Result<HeaderName, Faults> {
    let text = node.as_text().filter(|_| !node.is_null());
    let name = text.and_then(|text| text.parse::<HeaderName>().ok());
    // These say something else, and visitors send them themselves.
    let other = [HOST, COOKIE, AUTHORIZATION, ORIGIN];
    name.filter(|name| !other.contains(name)).ok_or_else(|| {
        let found = node.describe();
        let message = format!(
            "`{}` takes the name of a header that has no other use, not {found}",
            key.path
        );
        vec![Fault::new(node.at, message).help("write it as the proxy does: `X-Forwarded-Email`")]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let cases = [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("::ffff:127.0.0.1", "127.0.0.1", true),
            ("::ffff:127.0.0.0/104", "127.3.4.5", true),
            ("::ffff:127.0.0.0/104", "128.0.0.0", false),
            ("10.0.0.0/8", "10.255.3.4", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.3/8", "10.255.3.4", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "203.0.113.9", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
        ];
        for (network, address, has) in cases {
            let parsed = Network::parse(network).expect(network);
            let address = address.parse().expect("an address");
            assert_eq!(parsed.has(address), has, "{network} {address}");
        }
        for none in [
            "",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "10.0.0/8",
            "10.0.0.1:80",
        ] {
            assert_eq!(Network::parse(none), None, "{none}");
        }
    }

    #[test]
    fn the_highest_rights_of_a_visitors_groups_count() {
        let some = Proxy::at(&[]);
        assert_eq!(some.scope_of(&[]), Scope::Read);
        assert_eq!(some.scope_of(&["Ops", "op", "ops2", ""]), Scope::Read);
        assert_eq!(some.scope_of(&["dev", "ops"]), Scope::Operate);
        assert_eq!(some.scope_of(&["ops", "sre"]), Scope::Admin);
        let all = Proxy {
            operate: Groups::All,
            ..some
        };
        assert_eq!(all.scope_of(&[]), Scope::Operate);
    }
}
