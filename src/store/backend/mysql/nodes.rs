//! The nodes of an address, and the node that a process works on.
//!
//! Owns: the order in which the nodes are tried, and the node that a process remembers. Never: connects
//! (`connection`), or decides which node is usable (`session`).
//!
//! A cluster takes writes at each of its nodes; when two nodes write one row at once, the cluster refuses one of
//! the two writes. A process writes its own row with everything that it does, so all of its connections lead to
//! one node: the one that it has worked on, as long as that is usable, and otherwise the next one of the address.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::url::{Address, Host};

/// The process has worked on no node yet.
const NONE: usize = usize::MAX;

/// The nodes of an address. Clones share the node that is remembered.
#[derive(Clone)]
pub struct Nodes {
    /// The address.
    pub address: Address,
    at: Arc<AtomicUsize>,
}

/// The node to which a connection leads.
pub struct Berth {
    node: usize,
    at: Arc<AtomicUsize>,
    /// Host and port, where the address names several.
    pub host: Option<String>,
}

impl Berth {
    /// True when another connection of this process has moved on to another node.
    pub fn is_left(&self) -> bool {
        self.at.load(Ordering::Relaxed) != self.node
    }
}

impl Nodes {
    /// The nodes of an address.
    pub fn of(address: Address) -> Self {
        let at = Arc::new(AtomicUsize::new(NONE));
        Self { address, at }
    }

    /// The nodes in the order in which to try them, with their numbers: first the node last worked on, then
    /// those after it. `None` is the server of a socket.
    pub fn in_order(&self) -> Vec<(usize, Option<&Host>)> {
        if self.address.socket.is_some() {
            return vec![(0, None)];
        }
        let hosts = &self.address.hosts;
        let first = match self.at.load(Ordering::Relaxed) {
            NONE => 0,
            at => at,
        };
        let numbers = (first..hosts.len()).chain(0..first);
        numbers.map(|node| (node, Some(&hosts[node]))).collect()
    }

    /// Records that a node is usable.
    pub fn take(&self, node: usize) -> Berth {
        self.at.store(node, Ordering::Relaxed);
        Berth {
            node,
            at: Arc::clone(&self.at),
            host: self.host(node),
        }
    }

    /// Host and port of the node last worked on; none where the address names only one.
    pub fn current(&self) -> Option<String> {
        self.host(self.at.load(Ordering::Relaxed))
    }

    fn host(&self, node: usize) -> Option<String> {
        let several = self.address.hosts.len() > 1;
        let host = self.address.hosts.get(node);
        host.filter(|_| several).map(Host::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Nodes {
        let address = Address::parse("mysql://u@a,b:3307,c/d?ssl-mode=required");
        Nodes::of(address.expect("an address"))
    }

    fn order(nodes: &Nodes) -> Vec<&str> {
        let hosts = nodes.in_order().into_iter();
        hosts
            .map(|(_, host)| host.expect("a host").name.as_str())
            .collect()
    }

    #[test]
    fn a_process_stays_with_its_node_and_tries_those_behind_it() {
        let nodes = nodes();
        assert_eq!(
            (order(&nodes), nodes.current()),
            (vec!["a", "b", "c"], None)
        );
        let berth = nodes.take(1);
        assert_eq!(order(&nodes), ["b", "c", "a"]);
        assert_eq!(nodes.current().as_deref(), Some("b:3307"));
        assert!(!berth.is_left());
        nodes.clone().take(1);
        assert!(!berth.is_left(), "another connection leads there as well");
    }

    #[test]
    fn a_connection_to_a_node_that_the_process_has_left_is_known() {
        let nodes = nodes();
        let berth = nodes.take(0);
        let other = nodes.clone().take(2);
        assert!(berth.is_left() && !other.is_left());
        assert_eq!(order(&nodes), ["c", "a", "b"]);
    }

    #[test]
    fn where_there_is_one_server_there_is_nothing_to_choose() {
        for url in ["mysql://u@a/d?ssl-mode=required", "mysql://u@/d?socket=/s"] {
            let nodes = Nodes::of(Address::parse(url).expect(url));
            assert_eq!(nodes.in_order().len(), 1, "{url}");
            let berth = nodes.take(0);
            assert!(!berth.is_left() && nodes.current().is_none(), "{url}");
        }
    }
}
