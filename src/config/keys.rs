//! Every configuration key: its path, the values that it takes, its default and its purpose.
//!
//! Owns: the one table that drives unknown-key checks, environment overrides, defaults,
//! ranges and the JSON schema. Never: reads a file or a variable.

// A key that a pipeline's file may also have takes its range from there, so that both are the same.
use crate::definition::{MAX_BUDGET, MAX_FACTOR};

/// A day, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The greatest `max_payload`, in bytes.
pub const PAYLOAD_MAX: u64 = 256 << 20;

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Dotted path from the top of a section.
    pub path: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Whether it may differ by pipeline and step.
    pub scope: Scope,
    /// The default, as it would be written in the file.
    pub default: &'static str,
    /// One line for people, without a full stop.
    pub doc: &'static str,
}

/// The kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The address of the database.
    Url,
    /// A path, relative to the file's directory.
    Path,
    /// `*` or a list of names.
    Names,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number in a range.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// `-1` for no limit, or a whole number from 1.
    Limit {
        /// Largest.
        max: i64,
    },
    /// A number in a range.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A span of time in a range.
    Duration {
        /// Shortest.
        min_ms: u64,
        /// Longest.
        max_ms: u64,
        /// A word that stands for "no such limit".
        or: Option<&'static str>,
    },
    /// Bytes, in a range.
    Size {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A map of `initial`, `factor`, `max` and `jitter`, each a key of its own below.
    Backoff,
    /// `inherit`, or a list of variables, each a name or `PREFIX_*`.
    Variables,
    /// `none`, or an address of this host alone, with a port.
    Listen,
    /// A list of names of hosts.
    Hosts,
    /// A list of endpoints.
    Webhooks,
    /// `none`, or an HTTP address.
    Collector,
    /// A map of headers.
    Headers,
    /// `none`, or the path of a file.
    File,
    /// A list of addresses and networks.
    Networks,
    /// The name of a header.
    Header,
    /// `*`, or a list of groups of visitors.
    Groups,
    /// One command (a list of strings) or several (a list of lists).
    Commands,
}

/// Whether a key may differ by pipeline and step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One value.
    One,
    /// A value, or a map: pipeline → value, with `default`.
    Pipeline,
    /// The same, or a map: pipeline → step → value, with `default` in both.
    Step,
}

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
const FORMATS: &[&str] = &["auto", "pretty", "json"];
const VISITORS: &[&str] = &["auto", "known", "anybody"];
const ROLES: &[&str] = &["all", "advancer", "worker", "console"];

/// More slots in one process than this is a mistake: they share two connections.
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000 };
const BUDGET: Kind = Kind::Integer {
    min: 0,
    max: MAX_BUDGET as i64,
};
/// Shorter polls would burn a core for nothing; longer ones would look dead.
const POLL: Kind = Kind::Duration {
    min_ms: 10,
    max_ms: 60 * 60 * 1_000,
    or: None,
};
const SHUTDOWN: Kind = Kind::Duration {
    min_ms: 0,
    max_ms: DAY_MS,
    or: None,
};
const WAIT: Kind = Kind::Duration {
    min_ms: 0,
    max_ms: 30 * DAY_MS,
    or: None,
};
const FACTOR: Kind = Kind::Float {
    min: 1.0,
    max: MAX_FACTOR,
};
const JITTER: Kind = Kind::Float { min: 0.0, max: 1.0 };

const fn key(
    path: &'static str,
    kind: Kind,
    scope: Scope,
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key {
        path,
        kind,
        scope,
        default,
        doc,
    }
}

/// All keys, in the order in which they are documented.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    key("database.url", Kind::Url, Scope::One, "sqlite://ductwork.db",
        "where everything is kept: `sqlite://FILE`, or `postgres://` or `mysql://` and `USER:PASSWORD@HOST/NAME`"),
    key("pipelines", Kind::Names, Scope::One, "*",
        "which pipelines have workers here: `*` for all, or a list of names"),
    key("pipelines_path", Kind::Path, Scope::One, "pipelines",
        "the directory of the pipelines' files"),
    key("role", Kind::Choice(ROLES), Scope::One, "all",
        "the role of this daemon: `all` (a supervisor with children), or only `advancer`, `worker` or `console`"),
    key("logger.level", Kind::Choice(LEVELS), Scope::One, "info",
        "the least severe events to log; `RUST_LOG` takes precedence"),
    key("logger.format", Kind::Choice(FORMATS), Scope::One, "auto",
        "`pretty`, `json`, or `auto`: pretty on a terminal and in the journal, JSON elsewhere"),
    key("job_worker.count", COUNT, Scope::Pipeline, "5",
        "how many executions run at once, per pipeline"),
    key("job_worker.max_retry", BUDGET, Scope::Step, "3",
        "how many retries (attempts after the first) errors may use"),
    key("job_worker.max_crash", BUDGET, Scope::Step, "10",
        "the number of crashes (a killed process, a lost host) at which a step fails; they use no retries"),
    key("job_worker.timeout", Kind::Duration { min_ms: 1, max_ms: 365 * DAY_MS, or: Some("none") }, Scope::Step, "none",
        "the longest time that an attempt may take, unless the step sets its own"),
    key("job_worker.backoff", Kind::Backoff, Scope::Step, "",
        "the wait between attempts: `initial × factor^(n-1)`, at most `max`, spread by `jitter`"),
    key("job_worker.backoff.initial", WAIT, Scope::One, "10s",
        "the wait after the first error"),
    key("job_worker.backoff.factor", FACTOR, Scope::One, "1",
        "multiplies the wait after each further error; 1 keeps it constant"),
    key("job_worker.backoff.max", WAIT, Scope::One, "1h",
        "the longest wait, before jitter"),
    key("job_worker.backoff.jitter", JITTER, Scope::One, "0.1",
        "the fraction by which a wait varies, so that retries do not coincide"),
    key("job_worker.polling_timeout", POLL, Scope::Pipeline, "1",
        "the longest time that a worker sleeps before it looks for unannounced work"),
    key("job_worker.shutdown_timeout", SHUTDOWN, Scope::Pipeline, "20",
        "how long running executions may continue after a stop request"),
    key("job_worker.max_payload", Kind::Size { min: 1_024, max: PAYLOAD_MAX }, Scope::Pipeline, "16MiB",
        "the largest input or output of a step"),
    key("job_worker.env", Kind::Variables, Scope::Pipeline, "inherit",
        "which of the daemon's variables a step inherits: `inherit` for all, or a list such as `[PATH, LC_*]`"),
    key("pipeline_advancer.count", COUNT, Scope::One, "3",
        "the width of the advancer's batches: one advancer moves the branches of all pipelines"),
    key("pipeline_advancer.max_retry", BUDGET, Scope::Pipeline, "10",
        "the number of retries of a failed attempt to advance a branch, before the branch halts"),
    key("pipeline_advancer.max_crash", BUDGET, Scope::Pipeline, "10",
        "the number of crashes while advancing a branch before it halts"),
    key("pipeline_advancer.backoff", Kind::Backoff, Scope::Pipeline, "",
        "the wait between attempts to advance a branch"),
    key("pipeline_advancer.backoff.initial", WAIT, Scope::One, "1s",
        "the wait after the first failure"),
    key("pipeline_advancer.backoff.factor", FACTOR, Scope::One, "2",
        "multiplies the wait after each further failure; 1 keeps it constant"),
    key("pipeline_advancer.backoff.max", WAIT, Scope::One, "1m",
        "the longest wait, before jitter"),
    key("pipeline_advancer.backoff.jitter", JITTER, Scope::One, "0.1",
        "the fraction by which a wait varies"),
    key("pipeline_advancer.polling_timeout", POLL, Scope::One, "1",
        "the longest time that the advancer sleeps before it looks for unannounced work"),
    key("pipeline_advancer.shutdown_timeout", SHUTDOWN, Scope::One, "20",
        "how long an advancement may continue after a stop request"),
    key("pipeline_advancer.steps.max_depth", Kind::Limit { max: 1_000_000_000 }, Scope::Pipeline, "-1",
        "the widest fan-out allowed; -1 means no limit"),
    key("supervisor.polling_timeout", POLL, Scope::One, "1",
        "the longest time that the supervisor sleeps before it looks at its children and at the database"),
    key("supervisor.reaper_timeout", Kind::Duration { min_ms: 1_000, max_ms: DAY_MS, or: None }, Scope::One, "30",
        "how long a silent process keeps its work, the same on every host; each process beats six times in that time"),
    key("supervisor.shutdown_timeout", SHUTDOWN, Scope::One, "30",
        "how long children may drain before they are killed"),
    key("console.listen", Kind::Listen, Scope::One, "none",
        "where the console listens, such as `127.0.0.1:9410`; `none` means no console"),
    key("console.hosts", Kind::Hosts, Scope::One, "[]",
        "further names by which browsers reach the console, such as that of a reverse proxy"),
    key("console.visitors", Kind::Choice(VISITORS), Scope::One, "auto",
        "the visitors whom the console answers: `known` (only those with a token), or `anybody` on its host, who may \
         read; `auto` means `known` where other hosts or `console.hosts` reach it"),
    key("console.socket", Kind::File, Scope::One, "none",
        "a socket in the file system on which the console also listens: everybody whom its permissions let in may do \
         everything; `none` means no socket"),
    key("console.proxy.from", Kind::Networks, Scope::One, "[]",
        "addresses and networks of reverse proxies that authenticate visitors and identify them by headers"),
    key("console.proxy.user", Kind::Header, Scope::One, "X-Forwarded-Email",
        "the header in which the proxy names the visitor"),
    key("console.proxy.groups", Kind::Header, Scope::One, "X-Forwarded-Groups",
        "the header in which the proxy names the visitor's groups, separated by commas"),
    key("console.proxy.operate", Kind::Groups, Scope::One, "[]",
        "groups of visitors who may act on runs; `*` means everybody whom the proxy lets through"),
    key("console.proxy.admin", Kind::Groups, Scope::One, "[]",
        "groups of visitors who may do everything"),
    key("console.webhooks", Kind::Webhooks, Scope::One, "[]",
        "endpoints to notify of runs that have ended or wait: each has a `name`, a `url` and a `secret` (or a list of \
         secrets, the newest first, each of which signs), and may limit its `events` and `pipelines`; its `ca` is the \
         PEM file of the only authorities that vouch for it"),
    key("console.traces.endpoint", Kind::Collector, Scope::One, "none",
        "where to send the traces of runs that have ended, by OTLP over HTTP: the whole address, such as \
         `https://collector.example:4318/v1/traces`; `none`: nowhere"),
    key("console.traces.headers", Kind::Headers, Scope::One, "{}",
        "further headers of each request to the collector, such as `{ authorization: \"Bearer ${TOKEN}\" }`"),
    key("console.traces.ca", Kind::File, Scope::One, "none",
        "the PEM file of the only authorities that vouch for the collector; `none` means the usual ones"),
    key("hooks.supervisor.start", Kind::Commands, Scope::One, "[]",
        "run before the first child starts; a failure stops the start"),
    key("hooks.supervisor.stop", Kind::Commands, Scope::One, "[]",
        "run after the last child has stopped"),
    key("hooks.advancer.start", Kind::Commands, Scope::One, "[]",
        "run when an advancer has started"),
    key("hooks.advancer.stop", Kind::Commands, Scope::One, "[]",
        "run when an advancer stops"),
    key("hooks.worker.start", Kind::Commands, Scope::One, "[]",
        "run when a job worker has started"),
    key("hooks.worker.stop", Kind::Commands, Scope::One, "[]",
        "run when a job worker stops"),
    key("retention", Kind::Duration { min_ms: 60_000, max_ms: 3_650 * DAY_MS, or: Some("never") }, Scope::One, "30d",
        "finished runs older than this are deleted; `never` keeps them"),
];

/// Keys of earlier versions, and why they are gone. A file that still has one is used as it is.
pub const RETIRED: &[(&str, &str)] = &[(
    "database.pool",
    "each process has two connections, whatever `count` is",
)];

/// The beginning of every override's name.
pub const PREFIX: &str = "DUCTWORK_";

/// The key with this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The names that may be directly below `group` (`""` is the top), in order.
pub fn children(group: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for key in KEYS {
        let rest = match group {
            "" => Some(key.path),
            group => key
                .path
                .strip_prefix(group)
                .and_then(|rest| rest.strip_prefix('.')),
        };
        let Some(name) = rest.and_then(|rest| rest.split('.').next()) else {
            continue;
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// `group` and `name` as one path.
pub fn join(group: &str, name: &str) -> String {
    match group {
        "" => name.to_owned(),
        group => format!("{group}.{name}"),
    }
}

impl Key {
    /// The variable that overrides it: `DUCTWORK_JOB_WORKER__COUNT`.
    pub fn variable(&self) -> String {
        variable(self.path)
    }
}

/// The variable for a path.
pub fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.to_uppercase().replace('.', "__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_a_key_is_its_path_in_capitals() {
        let key = find("supervisor.reaper_timeout").unwrap();
        assert_eq!(key.variable(), "DUCTWORK_SUPERVISOR__REAPER_TIMEOUT");
        assert_eq!(find("role").unwrap().variable(), "DUCTWORK_ROLE");
    }

    #[test]
    fn paths_and_variables_are_unique_and_documented() {
        let mut seen = std::collections::BTreeSet::new();
        for key in KEYS {
            assert!(seen.insert(key.variable()), "{} stands twice", key.path);
            assert!(
                !key.doc.is_empty() && !key.doc.ends_with('.'),
                "{}",
                key.path
            );
        }
    }

    #[test]
    fn children_are_listed_once_and_in_order() {
        assert_eq!(children("database"), ["url"]);
        assert_eq!(children("hooks"), ["supervisor", "advancer", "worker"]);
        assert_eq!(children("pipelines"), Vec::<&str>::new());
        assert!(children("").starts_with(&["database", "pipelines", "pipelines_path"]));
    }
}
