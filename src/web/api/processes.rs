//! Processes: those that are registered and those that are gone.

use std::sync::Arc;

use crate::store::{departed, process};
use crate::web::Site;
use crate::wire::process::{DepartedJson, ProcessJson, ProcessesJson};

use super::given::{Flag, Given, LIMIT, Param};
use super::runs::LIMIT_;
use super::{Answer, Answered};

/// The other list.
pub static GONE: Param<Flag> = Param::query(
    "gone",
    "List the processes that are gone instead: at most `limit` of them, the most recent first",
);

/// The registered processes, or those that are gone.
pub async fn list(site: Arc<Site>, given: Given) -> Answered {
    if given.get(&GONE).is_some_and(|gone| gone.0) {
        let limit = given.get(&LIMIT_).map_or(LIMIT, |it| it.0);
        let read = site
            .source
            .read(async move |conn| departed::latest(conn, limit).await);
        let departed = read.await?;
        let forms = departed.iter().map(DepartedJson::of).collect();
        return Answer::json(&ProcessesJson::Departed(forms));
    }
    let read = site
        .source
        .read(async |conn| process::processes(conn).await);
    let processes = read.await?;
    let form = |row| ProcessJson::of(row, site.terms.witness.state(row));
    // All of them unless the request says otherwise: a monitor must not miss one.
    let limit = given.get(&LIMIT_).map_or(usize::MAX, |it| it.0);
    let forms = processes.iter().take(limit).map(form).collect();
    Answer::json(&ProcessesJson::Registered(forms))
}
