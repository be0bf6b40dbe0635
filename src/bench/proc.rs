//! The kernel's figures about a process.
//!
//! Owns: reading `/proc`. For a process that has gone, or figures that the kernel does not provide,
//! it returns nothing: a benchmark reports the figures that it can see.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// A process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// CPU time of all its threads.
    pub cpu: Duration,
    /// The number of times that its threads went to sleep: each is one wake-up.
    pub sleeps: u64,
    /// Resident memory, in bytes, shared pages counted whole.
    pub rss: u64,
    /// The highest resident memory so far.
    pub rss_peak: u64,
    /// Resident memory, in bytes, with shared pages divided among the processes that share them.
    pub pss: u64,
}

/// The resources that `pid` has used so far.
pub(super) fn usage(pid: u32) -> Usage {
    let mut usage = Usage::default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        // Nanoseconds on a CPU, nanoseconds in the queue for one, time slices.
        let schedstat = read("schedstat");
        let on_cpu = schedstat.split_ascii_whitespace().next();
        let on_cpu = on_cpu.and_then(|text| text.parse().ok()).unwrap_or(0);
        usage.cpu += Duration::from_nanos(on_cpu);
        usage.sleeps += field(&read("status"), "voluntary_ctxt_switches:");
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    usage.rss = field(&status, "VmRSS:") * 1024;
    usage.rss_peak = field(&status, "VmHWM:") * 1024;
    usage.pss = field(&rollup, "Pss:") * 1024;
    usage
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The number of `pid`'s connections to the database: descriptors of its file, or else established
/// TCP connections, because a daemon has no others. `None` if neither is visible: a server behind a
/// socket file.
pub(super) fn connections(pid: u32, file: Option<&Path>) -> Option<u64> {
    let links: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .collect();
    let count = match file {
        Some(file) => {
            let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
            links.iter().filter(|link| **link == file).count()
        }
        None => {
            let established = established(pid);
            let inode = |link: &Path| {
                let text = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
                text.parse::<u64>().ok()
            };
            let inodes = links.iter().filter_map(|link| inode(link));
            inodes.filter(|inode| established.contains(inode)).count()
        }
    };
    (count > 0).then_some(count as u64)
}

/// The inodes of the established TCP connections in the process's network namespace.
fn established(pid: u32) -> HashSet<u64> {
    const ESTABLISHED: &str = "01";
    let mut inodes = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if fields.get(3) == Some(&ESTABLISHED)
                && let Some(inode) = fields.get(9).and_then(|text| text.parse().ok())
            {
                inodes.insert(inode);
            }
        }
    }
    inodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_cpu() {
        let usage = usage(std::process::id());
        assert!(usage.rss > 0 && usage.rss_peak >= usage.rss, "{usage:?}");
        assert!(usage.pss > 0 && usage.pss <= usage.rss_peak, "{usage:?}");
        assert!(usage.cpu > Duration::ZERO, "{usage:?}");
    }

    #[test]
    fn connections_are_told_from_other_descriptors() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pid = std::process::id();
        // Other tests of this process may also have connections.
        let inode = |socket: &std::net::TcpStream| {
            use std::os::fd::AsRawFd;
            let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
            let text = link.to_str().unwrap().to_owned();
            text["socket:[".len()..text.len() - 1]
                .parse::<u64>()
                .unwrap()
        };
        let socket = std::net::TcpStream::connect(address).unwrap();
        assert!(established(pid).contains(&inode(&socket)));
        assert!(connections(pid, None).is_some_and(|count| count >= 1));

        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(connections(pid, Some(file.path())), Some(1));
        let second = std::fs::File::open(file.path()).unwrap();
        assert_eq!(connections(pid, Some(file.path())), Some(2));
        drop(second);
        let missing = file.path().with_extension("missing");
        assert_eq!(connections(pid, Some(&missing)), None);
    }
}
