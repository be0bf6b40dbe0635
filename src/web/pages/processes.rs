//! The processes by host, and those that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::Response;

use crate::number::grouped;
use crate::store::{departed, page as store, process, query};
use crate::time;
use crate::view;
use crate::web::Site;
use crate::web::refusal::Refusal;

use super::asked::Asked;
use super::parts::{self, Moment, RunLink, State};
use super::text::clip;
use super::{Frame, page};

/// The number of processes that are listed as gone, the last ones first.
const GONE: usize = 50;

/// The number of executions that are listed as held, in equal shares for the processes,
const HELD: usize = 500;

/// but for one process at most this many,
const OF_ONE: usize = 20;

/// and at least this many.
const LEAST: usize = 3;

/// A trouble shows at most so many letters.
const LETTERS: usize = 1_000;

#[derive(Template)]
#[template(path = "processes.html")]
struct Page {
    frame: Frame,
    /// A sentence for each living process that reports a trouble.
    troubles: Vec<String>,
    hosts: Vec<Host>,
    gone: Vec<Gone>,
    is_partial: bool,
}

struct Host {
    name: String,
    processes: Vec<Process>,
}

struct Process {
    role: &'static str,
    pipeline: String,
    pid: u32,
    state: State,
    beat: String,
    started: Moment,
    version: String,
    holds: Vec<Held>,
    /// The number of those that are not listed, if there are any.
    holds_more: Option<String>,
    claimed: String,
    succeeded: String,
    failed: String,
}

struct Held {
    step: String,
    node: String,
    attempt: i64,
    run: RunLink,
    since: String,
}

struct Gone {
    role: String,
    pipeline: String,
    host: String,
    pid: u32,
    started: Moment,
    gone: Moment,
    state: State,
    how: String,
}

/// `GET /processes`
pub async fn processes(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Result<Response, Refusal> {
    Asked::of(&uri, &[])?;
    let read = site.source.read(async move |conn| {
        let processes = process::processes(conn).await?;
        let of_one = of_one(processes.len());
        Ok((
            processes,
            store::held(conn, of_one).await?,
            departed::latest(conn, GONE + 1).await?,
            query::now(conn).await?,
        ))
    });
    let (mut processes, held, departed, now) = read.await?;
    processes.sort_by(|a, b| (a.role, &a.pipeline, a.pid).cmp(&(b.role, &b.pipeline, b.pid)));
    let mut troubles = Vec::new();
    let mut hosts: BTreeMap<&str, Vec<Process>> = BTreeMap::new();
    for row in &processes {
        let holds = held.iter().filter(|held| held.process_id == row.id);
        let all = holds.clone().next().map_or(0, |held| held.of);
        let listed = holds.map(|held| Held {
            step: format!("/runs/{}/steps/{}", held.run_id, held.step_id),
            node: held.node.clone(),
            attempt: held.attempt,
            run: parts::run(held.run_id),
            since: held
                .claimed_at
                .map_or_else(String::new, |at| time::whole(time::between(at, now))),
        });
        let listed: Vec<Held> = listed.collect();
        let judged = site.terms.witness.state(row);
        let trouble = row.trouble.as_ref().map(|(text, _)| text.as_str());
        troubles.extend(view::trouble(row).filter(|_| judged.lives()));
        hosts.entry(&row.host).or_default().push(Process {
            role: row.role.as_str(),
            pipeline: row.pipeline.clone().unwrap_or_default(),
            pid: row.pid,
            state: parts::of_process(judged.with(row.role, trouble), row.intake),
            beat: time::whole(row.age),
            started: parts::ago(row.started_at, now),
            version: row.version.clone(),
            holds_more: all
                .checked_sub(listed.len() as u64)
                .filter(|more| *more > 0)
                .map(grouped),
            holds: listed,
            claimed: grouped(row.counters.claimed),
            succeeded: grouped(row.counters.succeeded),
            failed: grouped(row.counters.errored + row.counters.crashed),
        });
    }
    let host = |(name, processes): (&str, Vec<Process>)| Host {
        name: name.to_owned(),
        processes,
    };
    let gone = |row: &departed::Departed| Gone {
        role: row.role.clone(),
        pipeline: row.pipeline.clone().unwrap_or_default(),
        host: row.host.clone(),
        pid: row.pid,
        started: parts::ago(row.started_at, now),
        gone: parts::ago(row.gone_at, now),
        state: parts::of_departed(row),
        how: row.how().unwrap_or_default(),
    };
    page(&Page {
        frame: Frame::of("processes", now),
        troubles: troubles.iter().map(|it| clip(it, LETTERS)).collect(),
        hosts: hosts.into_iter().map(host).collect(),
        is_partial: departed.len() > GONE,
        gone: departed.iter().take(GONE).map(gone).collect(),
    })
}

/// The number of executions that are listed of each of so many processes.
fn of_one(processes: usize) -> usize {
    (HELD / processes.max(1)).clamp(LEAST, OF_ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_processes_much_is_listed_and_of_many_processes_something() {
        for (processes, each) in [(0, 20), (1, 20), (25, 20), (50, 10), (100, 5), (9_000, 3)] {
            assert_eq!(of_one(processes), each, "{processes}");
        }
    }
}
