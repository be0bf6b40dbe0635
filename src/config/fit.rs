//! Settings that do not fit together, or that hardly anybody intends.
//!
//! Owns: judgements about several keys at once, and doubts about one. Never: reads a value.

use std::time::Duration;

use crate::problem::Problem;

use super::proxy::Network;
use super::{Config, DaemonRole};

const OF_SUPERVISOR: &str = "supervisor.shutdown_timeout";
const OF_WORKER: &str = "job_worker.shutdown_timeout";
const OF_ADVANCER: &str = "pipeline_advancer.shutdown_timeout";

/// How long each child may drain: the key, the pipeline that it is an exception for, the time.
fn drains(config: &Config) -> Vec<(&'static str, Option<&str>, Duration)> {
    let workers = config.job_worker.shutdown_timeout.each();
    let mut drains: Vec<_> = workers
        .map(|(name, time)| (OF_WORKER, name, *time))
        .collect();
    drains.push((OF_ADVANCER, None, config.pipeline_advancer.shutdown_timeout));
    drains
}

/// Everybody who reaches a console can read all of it.
pub fn console_open_to_others(config: &Config) -> Option<Problem> {
    let console = &config.console;
    let address = console.listen.filter(|it| !it.ip().is_loopback())?;
    if console.tokens != Some(false) {
        return None;
    }
    let message = format!("other hosts can reach {address}, and the console would answer anybody");
    let problem = config.placed("console.visitors", None, message);
    Some(problem.help(
        "leave `console.visitors` out: then each visitor needs a token (`ductworkd token create NAME`); or listen \
         at `127.0.0.1:9410`",
    ))
}

/// Rights are for those whom a proxy names.
fn rights_without_a_proxy(config: &Config) -> Option<Problem> {
    let proxy = &config.console.proxy;
    let path = [
        ("console.proxy.operate", &proxy.operate),
        ("console.proxy.admin", &proxy.admin),
    ];
    let (path, _) = path.into_iter().find(|(_, groups)| !groups.is_empty())?;
    if !proxy.from.is_empty() {
        return None;
    }
    let message =
        "groups of visitors have rights, but no proxy is trusted to say who is in them".to_owned();
    let problem = config.placed(path, None, message);
    Some(problem.help("name the proxy's address: `console: { proxy: { from: [127.0.0.1] } }`"))
}

/// The kernel bounds the path of a socket, and beside this socket there is one whose path is a little longer.
pub fn socket_too_deep(config: &Config) -> Option<Problem> {
    const MOST: usize = 96;
    let path = config.console.socket.as_ref()?;
    let long = path.as_os_str().len();
    if long <= MOST {
        return None;
    }
    let message = format!("the whole path of the socket has {long} bytes; the limit is {MOST}");
    let problem = config.placed("console.socket", None, message);
    Some(problem.help("write a shorter one, such as `/run/ductwork/console.sock`"))
}

/// A network of all hosts trusts everybody who reaches the console.
fn proxy_that_is_anybody(config: &Config) -> Option<Problem> {
    let proxy = &config.console.proxy;
    if !proxy.from.iter().any(Network::is_everywhere) {
        return None;
    }
    let message = "everybody who reaches the console can claim any name, because every address counts as the proxy's".to_owned();
    let problem = config.placed("console.proxy.from", None, message);
    Some(problem.help("name the proxy's own address, or its network"))
}

/// Further names are those of a proxy, which anybody may reach.
fn anybody_behind_a_proxy(config: &Config) -> Option<Problem> {
    let console = &config.console;
    if console.tokens != Some(false) || console.hosts.is_empty() && console.proxy.from.is_empty() {
        return None;
    }
    let message = "everybody who reaches the proxy is answered without a token".to_owned();
    let problem = config.placed("console.visitors", None, message);
    Some(
        problem.help(
            "write `known`, or leave the key out, and create tokens: `ductworkd token create`",
        ),
    )
}

/// One header for both makes everybody a member of the group of their name.
fn name_that_is_a_group(config: &Config) -> Option<Problem> {
    let proxy = &config.console.proxy;
    if proxy.user != proxy.groups {
        return None;
    }
    let message = format!(
        "`{}` is the header of both the name and the groups",
        proxy.user
    );
    let problem = config.placed("console.proxy.groups", None, message);
    Some(problem.help("name the header in which the proxy sends the groups"))
}

/// A supervisor kills the children that have not ended within its own time, so their time has to fit into that.
pub fn drains_that_do_not_fit(config: &Config) -> Option<Problem> {
    // A role of its own has no supervisor.
    if config.role != DaemonRole::All {
        return None;
    }
    let supervisor = config.supervisor.shutdown_timeout;
    let drains = drains(config);
    let (path, pipeline, longest) = drains
        .iter()
        .max_by_key(|(.., time)| *time)
        .filter(|(.., time)| *time > supervisor)?;
    // The message need not name the place that the problem shows.
    let shown = match config.places.mark(OF_SUPERVISOR, None) {
        Some(_) => OF_SUPERVISOR,
        None => path,
    };
    let said = |path: &str, name: Option<&str>| {
        let places = &config.places;
        match (places.variable(path), places.mark(path, name)) {
            (Some(variable), _) => format!(", by {variable}"),
            (None, Some(_)) if path == shown => String::new(),
            (None, Some(at)) => format!(", line {}", at.line),
            (None, None) => ", the default".to_owned(),
        }
    };
    let whose = pipeline.map_or_else(String::new, |name| format!(" of {name}"));
    let message = format!(
        "`{OF_SUPERVISOR}` ({supervisor:?}{}) is shorter than `{path}`{whose} ({longest:?}{}): \
         the supervisor would kill it in the middle of its drain",
        said(OF_SUPERVISOR, None),
        said(path, *pipeline),
    );
    let of = pipeline.filter(|_| shown == *path);
    let problem = config.placed(shown, of, message);
    Some(problem.help(format!("raise `{OF_SUPERVISOR}`, or lower `{path}`")))
}

/// Settings that are allowed, and that hardly anybody intends.
pub fn doubts(config: &Config) -> Vec<Problem> {
    let none = drains(config)
        .into_iter()
        .filter(|(.., time)| time.is_zero());
    let doubts = none.map(|(path, pipeline, _)| {
        let whose = pipeline.map_or_else(String::new, |name| format!(" of {name}"));
        let (what, again) = match path {
            OF_WORKER => (
                "running steps are ended",
                "they run again, from their beginning",
            ),
            _ => ("advancements are given up", "they are made again"),
        };
        let message =
            format!("`{path}`{whose} is 0: when the daemon stops, {what} at once, and {again}");
        let problem = config.placed(path, pipeline, message);
        problem.help("write how long a stop may wait for them, such as `20s`")
    });
    let of_proxy = [
        rights_without_a_proxy(config),
        proxy_that_is_anybody(config),
        name_that_is_a_group(config),
        anybody_behind_a_proxy(config),
    ];
    doubts.chain(of_proxy.into_iter().flatten()).collect()
}
