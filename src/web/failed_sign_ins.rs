//! Strangers: visitors whose secrets are invalid.
//!
//! Owns: the number of such secrets that are looked up within a second, from one address and from all. Never:
//! knows a secret, or whom it admits.
//!
//! A secret that is refused here costs no lookup in the database. Each address has a bound of its own, so that
//! a stranger holds up nobody elsewhere; behind a proxy, all have the proxy's address. The bound over all
//! addresses limits the lookups in the database, and takes many addresses to reach.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The bounds hold for one window of this length at a time.
const WINDOW: Duration = Duration::from_secs(1);

/// The number of secrets from one address that are invalid or not yet known.
const OF_ONE: u32 = 40;

/// The same, from all addresses.
const OF_ALL: u32 = 2_000;

/// A visitor's address, as far as it tells visitors apart: an IPv6 network gives its hosts as many addresses
/// as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remote(Option<IpAddr>);

impl Remote {
    /// Every user who opens the socket on this host.
    pub const HERE: Self = Self(None);

    /// A connection from this address.
    pub fn of(address: IpAddr) -> Self {
        Self(Some(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address => address,
        }))
    }
}

/// The invalid secrets of the last window.
#[derive(Debug, Default)]
pub struct Strangers {
    since: Option<Instant>,
    /// At most as many addresses as the bound over all.
    by: HashMap<Remote, u32>,
    all: u32,
}

impl Strangers {
    /// Counts a secret from this address, which may turn out to be invalid; false if it is one too many.
    ///
    /// It counts before anybody knows: of many secrets that come at once, none waits for the outcome of the
    /// others.
    pub fn admit(&mut self, from: Remote, now: Instant) -> bool {
        let is_over = |since: Instant| now.duration_since(since) >= WINDOW;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let of_one = self.by.get(&from).copied().unwrap_or_default();
        if of_one >= OF_ONE || self.all >= OF_ALL {
            return false;
        }
        self.by.insert(from, of_one + 1);
        self.all += 1;
        true
    }

    /// A counted secret has turned out to be one of ours.
    pub fn acquit(&mut self, from: Remote) {
        // It may have been counted in the previous window.
        if let Some(of_one) = self.by.get_mut(&from).filter(|of_one| **of_one > 0) {
            *of_one -= 1;
            self.all -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> Remote {
        Remote::of(text.parse().unwrap())
    }

    fn admitted(strangers: &mut Strangers, from: Remote, now: Instant) -> u32 {
        (0..OF_ALL * 2)
            .map(|_| u32::from(strangers.admit(from, now)))
            .sum()
    }

    #[test]
    fn one_address_is_held_up_for_a_second_and_no_other_with_it() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        assert_eq!(admitted(&mut strangers, remote("192.0.2.1"), now), OF_ONE);
        assert!(strangers.admit(remote("192.0.2.2"), now));
        assert!(strangers.admit(remote("2001:db8::1"), now));
        assert_eq!(
            admitted(&mut strangers, remote("192.0.2.1"), now + WINDOW),
            OF_ONE
        );
    }

    #[test]
    fn an_address_of_ipv6_counts_by_its_network_and_one_of_ipv4_by_itself() {
        assert_eq!(remote("2001:db8:1:2::1"), remote("2001:db8:1:2:ffff::9"));
        assert_ne!(remote("2001:db8:1:2::1"), remote("2001:db8:1:3::1"));
        assert_eq!(remote("::ffff:192.0.2.1"), remote("192.0.2.1"));
        assert_ne!(remote("::ffff:192.0.2.1"), remote("::ffff:192.0.2.2"));
    }

    #[test]
    fn all_addresses_together_are_bounded_and_so_is_the_memory_of_them() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let mut networks = (0..=u16::MAX).map(|n| remote(&format!("2001:db8:0:{n:x}::1")));
        let admitted = networks.by_ref().filter(|it| strangers.admit(*it, now));
        assert_eq!(admitted.count(), OF_ALL as usize);
        assert_eq!(strangers.by.len(), OF_ALL as usize);
        assert!(strangers.admit(remote("192.0.2.1"), now + WINDOW));
        assert_eq!(strangers.by.len(), 1);
    }

    #[test]
    fn a_secret_that_turns_out_to_be_ours_does_not_count() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        let from = remote("192.0.2.1");
        for _ in 0..OF_ALL * 2 {
            assert!(strangers.admit(from, now));
            strangers.acquit(from);
        }
        // A secret of the previous window takes nothing from this one.
        assert!(strangers.admit(from, now));
        assert!(strangers.admit(remote("192.0.2.2"), now + WINDOW));
        strangers.acquit(from);
        assert_eq!(strangers.all, 1);
    }
}
