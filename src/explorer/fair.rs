//! A world without faults: driving runs to a state to begin with, and to their end.
//!
//! Owns: the fair schedule, and the comparison of its outcome with the definition's promise.

use std::time::Duration;

use super::actors::{Actor, Cx, Fault, somebody};
use super::flows::{self, Flow, LEASE};
use super::local::EPOCH;
use super::search::{State, at_once};
use crate::model::*;
use crate::store::definition::Definitions;
use crate::store::process;
use crate::store::statement::Statement;
use crate::store::{Conn, Error, any_work, cancel, pause, resume};

/// The number of rounds after which an unfinished run never ends: more than any flow here has steps.
const ROUNDS: usize = 40;

static RUNS: Statement = Statement::new(
    "EXPLORER_RUNS",
    "SELECT r.id, r.definition, r.status, r.output, r.revived_from, r.trigger_key
       FROM ductwork_runs r ORDER BY r.id",
);
static HELD: Statement = Statement::new(
    "EXPLORER_HELD",
    "SELECT 1 AS held FROM ductwork_executions WHERE result IS NULL
     UNION ALL SELECT 1 FROM ductwork_advancements WHERE result IS NULL
     UNION ALL SELECT 1 FROM ductwork_branches
                WHERE status IN ('in_progress', 'advancing', 'waiting') LIMIT 1",
);

/// The order of the moves if there is a choice. Looking for orphans and the acts of people are not
/// included. Putting back comes last: it is done when there is nothing else to do.
const ORDER: &[u8] = b"zruvgksdbclp";

/// Does everything that an actor can do now.
fn exhaust(
    conn: &mut Conn,
    definitions: &Definitions,
    state: &mut State,
    index: usize,
) -> Result<(), Error> {
    // True after a claim or a look that returned nothing.
    let mut asked = false;
    for _ in 0..10 * ROUNDS {
        let verbs = state.actors[index].verbs(state.clock);
        let next = ORDER
            .iter()
            .copied()
            .find(|verb| verbs.contains(verb) && !(asked && matches!(verb, b'c' | b'l')));
        let Some(verb) = next else {
            break;
        };
        let mut cx = Cx {
            conn,
            definitions,
            crashed: &state.crashed,
            clock: state.clock,
            fault: Fault::None,
            may_refuse: false,
        };
        at_once(state.actors[index].act(verb, &mut cx))?;
        let verbs = state.actors[index].verbs(state.clock);
        asked = matches!(verb, b'c' | b'l') && !verbs.iter().any(|verb| b"sdkbru".contains(verb));
    }
    Ok(())
}

/// Runs and advances everything there is, alternately, `halves` times; each time all of it.
pub fn drive(
    conn: &mut Conn,
    definitions: &Definitions,
    state: &mut State,
    halves: usize,
) -> Result<(), Error> {
    let mut pair = [Actor::worker(4), Actor::advancer(4)];
    for half in 0..halves {
        state.actors.push(pair[half % 2].clone());
        let index = state.actors.len() - 1;
        let done = exhaust(conn, definitions, state, index);
        pair[half % 2] = state.actors.pop().expect("it was pushed");
        done?;
    }
    for actor in pair {
        if let Some(process) = actor.life().and_then(|life| life.process) {
            at_once(process::deregister(conn, process))?;
        }
    }
    Ok(())
}

/// The number of transactions of one cancellation: more than any of these runs needs.
const STEPS_MAX: usize = 20;

/// From this state on, nothing fails any more: every actor does everything it can, the dead are
/// found, others help, the clock goes on. Returns which run is not over at the end, or did not end as
/// promised.
pub fn finish(
    conn: &mut Conn,
    definitions: &Definitions,
    state: &State,
    flows: &[Flow],
    allowed: Allowed,
) -> Result<(), String> {
    let told = |error: Error| format!("the fair schedule met an error: {error:?}");
    let mut state = state.clone();
    let actors = state.actors.len();
    at_once(pause::unpause(conn, flows::PIPELINE, &somebody())).map_err(told)?;
    for _ in 0..ROUNDS {
        for index in 0..actors {
            exhaust(conn, definitions, &mut state, index).map_err(told)?;
        }
        state.actors.push(Actor::reaper(false));
        let reaper = exhaust(conn, definitions, &mut state, actors);
        state.actors.pop();
        reaper.map_err(told)?;
        drive(conn, definitions, &mut state, 4).map_err(told)?;
        state.clock += LEASE.as_micros() as i64;
        conn.as_local().set_clock(state.clock);
        for run in runs(conn).map_err(told)? {
            if run.status == RunStatus::Dampened {
                let _ = at_once(resume::resume(conn, run.id, None, None, None)).map_err(told)?;
            }
        }
        // A process that sweeps decides questions that were not answered in time, and finishes half-done work.
        let _ = at_once(resume::pass_deadlines(conn)).map_err(told)?;
        let (runs, _) = at_once(cancel::unfinished(
            conn,
            LEASE,
            crate::store::cursor::Cursor::FIRST,
            STEPS_MAX,
        ))
        .map_err(told)?;
        for run in runs {
            let mut cancelling = cancel::Cancelling::of(run, cancel::BATCH);
            // A cancellation that makes no progress is detected by what it leaves.
            for _ in 0..STEPS_MAX {
                if at_once(cancelling.step(conn)).map_err(told)?.is_some() {
                    break;
                }
            }
        }
        let held = at_once(conn.fetch_optional(&HELD, &[])).map_err(told)?;
        if held.is_none() && at_once(any_work(conn, None)).map_err(told)?.is_none() {
            return outcome(conn, flows, allowed);
        }
    }
    let spent = Duration::from_micros((state.clock - EPOCH) as u64);
    Err(format!("not over after {ROUNDS} fair rounds ({spent:?})"))
}

/// The permitted events of a run beside its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    pub cancelled: bool,
    pub pruned: bool,
    /// The greatest permitted number of runs, not counting those that revive others.
    pub runs: usize,
}

struct Run {
    id: RunId,
    definition: String,
    status: RunStatus,
    output: Option<String>,
    revived_from: Option<uuid::Uuid>,
}

fn runs(conn: &mut Conn) -> Result<Vec<Run>, Error> {
    let rows = at_once(conn.fetch(&RUNS, &[]))?;
    let read = |row: &crate::store::Row| {
        Ok(Run {
            id: RunId(row.get("id")?),
            definition: row.get("definition")?,
            status: row.word("status")?,
            output: row.get("output")?,
            revived_from: row.get("revived_from")?,
        })
    };
    rows.iter().map(read).collect()
}

fn outcome(conn: &mut Conn, flows: &[Flow], allowed: Allowed) -> Result<(), String> {
    let runs = runs(conn).map_err(|error| format!("{error:?}"))?;
    let first = runs.iter().filter(|run| run.revived_from.is_none()).count();
    if first > allowed.runs || first < allowed.runs && !allowed.pruned {
        return Err(format!(
            "{first} runs were begun, instead of {}",
            allowed.runs
        ));
    }
    for run in &runs {
        let flow = flows
            .iter()
            .find(|flow| flow.definition.digest() == run.definition);
        let flow = flow.ok_or("a run is of no flow")?;
        if run.status == RunStatus::Cancelled && allowed.cancelled {
            continue;
        }
        let output = run.output.as_deref().map(|output| {
            let value = serde_json::from_str(output).expect("outputs are JSON");
            flows::text(&value)
        });
        if run.status != flow.status() || output.as_deref() != flow.output {
            return Err(format!(
                "a run of {} came to {} with {output:?}, instead of {} with {:?}",
                flow.name,
                run.status,
                flow.status(),
                flow.output
            ));
        }
    }
    Ok(())
}
