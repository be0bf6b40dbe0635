//! The run to which a key belongs: an earlier command has triggered it.
//!
//! Owns: the run that continues it now, and the words for its state. Never: decides what a key starts
//! (`store::trigger` does).

use crate::definition::Definition;
use crate::machine::halt::remedy;
use crate::model::{RunId, RunStatus};
use crate::store::query::{self, Run};
use crate::store::why::newest;
use crate::store::{Conn, revive};
use crate::time;

use super::exit::Failure;
use super::follow::say;
use super::out::clean;
use super::why;

/// Tells a person that the key belongs to this run, and how the newest run that continues it is doing. The trigger has had
/// its effect, so nothing that fails here is a failure of the command.
pub async fn note(conn: &mut Conn, run: RunId, latest: &Definition) {
    const NOTE: &str =
        "note: no run was started: this key belongs to a run that was triggered before";
    match state(conn, run, latest).await {
        Ok(Some((state, remedy))) => {
            say(&clean(&format!("{NOTE}; {state}")));
            if let Some(remedy) = remedy {
                say(&clean(&format!("remedy: {remedy}")));
            }
        }
        Ok(None) | Err(_) => say(NOTE),
    }
}

/// The state in words, and the remedy where one is needed; `None` if the run is gone.
async fn state(
    conn: &mut Conn,
    run: RunId,
    latest: &Definition,
) -> Result<Option<(String, Option<String>)>, Failure> {
    let newest = newest(conn, run).await?;
    let Some(found) = query::run_without_payloads(conn, newest).await? else {
        return Ok(None);
    };
    let who = match newest == run {
        true => "it".to_owned(),
        false => format!("it halted, and was revived as {newest}, which"),
    };
    let now = query::now(conn).await?;
    let state = format!("{who} {}", words(&found, now));
    let (keeps, newest_one) = match newest == run {
        true => (", and keeps the key", "it".to_owned()),
        false => ("; the first run keeps the key", newest.to_string()),
    };
    Ok(Some(match found.status {
        RunStatus::Halted => {
            let own = why::own_definition(conn, newest).await?;
            let halts = why::halts(conn, newest, own.as_deref()).await?;
            let halts: Vec<_> = halts.into_iter().map(|halt| halt.fact).collect();
            let prospects = revive::prospects(conn, newest, Ok(latest)).await?;
            let remedy = remedy(&halts, own.as_deref(), newest, &prospects);
            let state = format!("{state}{keeps}: revive {newest_one}, or give another key");
            (state, Some(remedy))
        }
        RunStatus::Cancelled => {
            let state = format!("{state}{keeps}: give another key for a new run");
            (state, None)
        }
        RunStatus::Dampened if found.cancelling_at.is_none() => {
            let asked = format!("`ductworkd why {newest}` says what it asks");
            (state, Some(asked))
        }
        _ => (state, None),
    }))
}

/// The state of a run, as a predicate.
fn words(run: &Run, now: i64) -> String {
    let ended = run.ended_at().map(|at| time::relative(at, now));
    let ended = ended.unwrap_or_default();
    match (run.status, run.due_at) {
        (RunStatus::Completed, _) => format!("completed {ended}"),
        (RunStatus::Halted, _) => format!("halted {ended}"),
        (RunStatus::Cancelled, _) => format!("was cancelled {ended}"),
        _ if run.cancelling_at.is_some() => "is being cancelled".to_owned(),
        (RunStatus::Dampened, _) => "waits for a person".to_owned(),
        (RunStatus::InProgress, Some(at)) => format!("begins {}", time::relative(at, now)),
        (RunStatus::InProgress, None) => "is running".to_owned(),
    }
}
