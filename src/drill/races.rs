//! The drills: the actions of each, their order, and the required outcome.
//!
//! Owns: the order, which forces each race instead of waiting for it. Never: writes to the database
//! itself; the actors do, by the calls that the engine makes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::definition::{Definition, Pipeline};
use crate::model::{ExecutionResult, RunId, RunStatus, StepStatus};
use crate::store::claim::Claimed;
use crate::store::query::RunDetail;
use crate::store::recovery::Death;
use crate::store::{self, fault_injection};

use super::stage::{PIPELINE, Player, Stage, attempts};
use super::{Drill, Error};

/// The time in which a race must come about.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which SQLite's one writer is kept out; there is no server that shows who waits.
const KEPT_OUT: Duration = Duration::from_millis(50);

/// A death seen by two witnesses: this beat was the last, and it is old enough.
fn witnessed(beat_seq: i64) -> Death<'static> {
    let stale_after = Duration::ZERO;
    Death::Witnessed {
        beat_seq,
        stale_after,
    }
}

const KILLED: Death<'static> = Death::Proven {
    how: "killed by the drill",
};

/// Plays a drill; returns the fact that it has proven, in a sentence.
pub(super) async fn play(drill: Drill, stage: &Stage) -> Result<String, Error> {
    match drill {
        Drill::LeaseRace => lease_race(stage).await,
        Drill::ZombieAdvancer => zombie_advancer(stage).await,
        Drill::CrashBeforeEffect => crash(stage, Effect::Before).await,
        Drill::CrashAfterEffect => crash(stage, Effect::After).await,
        Drill::DoubleReaper => double_reaper(stage).await,
        Drill::LostAcknowledgement => lost_acknowledgement(stage).await,
        Drill::FanInRace => fan_in_race(stage).await,
        Drill::DatabaseAway => database_away(stage).await,
    }
}

async fn lease_race(stage: &Stage) -> Result<String, Error> {
    let mut zombie = stage.player("worker-1").await?;
    let mut other = stage.player("worker-2").await?;
    let mut reaper = stage.player("reaper").await?;
    let run = reaper.trigger(&chain()?).await?;
    let claimed = zombie.claim_one().await?;
    stage.did(zombie.name, "stands still");
    let seen = reaper.look_at(zombie.actor.process).await?;
    let dead = (zombie.name, zombie.actor.process);
    must(
        reaper.recover(dead, witnessed(seen)).await?,
        "the silent worker was not declared dead",
    )?;
    let again = other.claim_one().await?;
    let result = [other.finish(again, "\"second\"").await?];
    other.commit(&result).await?;
    stage.did(zombie.name, "goes on");
    let late = [zombie.finish(claimed, "\"first\"").await?];
    let refused = zombie.commit(&late).await?.stale.len();
    must(refused == 1, "the late result was not refused")?;
    other.work().await?;
    let detail = completed_once_each(&mut other, run).await?;
    let tried: Vec<_> = attempts(&detail, "A")
        .iter()
        .map(|attempt| attempt.result)
        .collect();
    let expected = [
        Some(ExecutionResult::ProcessCrashed),
        Some(ExecutionResult::Success),
    ];
    must(
        tried == expected,
        "the attempts are not one crash and one success",
    )?;
    must(
        output(&detail, "A") == Some("\"second\""),
        "the late result was kept",
    )?;
    Ok(
        "a worker that was taken for dead came back with a result; it was refused, and the step \
        has the output of the attempt that replaced it"
            .to_owned(),
    )
}

async fn zombie_advancer(stage: &Stage) -> Result<String, Error> {
    let mut worker = stage.player("worker").await?;
    let mut zombie = stage.player("advancer-1").await?;
    let mut other = stage.player("advancer-2").await?;
    let mut reaper = stage.player("reaper").await?;
    let run = worker.trigger(&split()?).await?;
    let claimed = worker.claim_one().await?;
    let result = [worker.finish(claimed, "\"A\"").await?];
    worker.commit(&result).await?;
    let held = zombie.claim_branches().await?;
    must(held.len() == 1, "there was not one branch to advance")?;
    stage.did(zombie.name, "stands still");
    let seen = reaper.look_at(zombie.actor.process).await?;
    let dead = (zombie.name, zombie.actor.process);
    must(
        reaper.recover(dead, witnessed(seen)).await?,
        "the silent advancer was not declared dead",
    )?;
    let again = other.claim_branches().await?;
    must(
        other.advance(&again).await? == 1,
        "the branch could not be advanced",
    )?;
    stage.did(zombie.name, "goes on");
    must(
        zombie.advance(&held).await? == 0,
        "the zombie advanced the branch again",
    )?;
    worker.work().await?;
    let detail = completed_once_each(&mut worker, run).await?;
    for node in ["B", "C", "D"] {
        let steps = detail.steps.iter().filter(|step| step.node == node);
        must(steps.count() == 1, "a step was made twice")?;
    }
    Ok(
        "an advancer that was taken for dead came back with an old token; it moved nothing, and \
        every step was made once"
            .to_owned(),
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Before,
    After,
}

/// A system outside the database that refuses a key which it has already seen.
#[derive(Default)]
struct Outside {
    keys: BTreeSet<Uuid>,
    asked: usize,
}

impl Outside {
    fn ask(&mut self, stage: &Stage, who: &'static str, claimed: &Claimed) {
        self.asked += 1;
        let said = "asks the world outside, with the step's idempotency key";
        let key = claimed
            .step_id
            .idempotency_key(claimed.run_id, claimed.input.get());
        match self.keys.insert(key) {
            true => stage.did(who, format!("{said}: done")),
            false => stage.refused(who, format!("{said}: refused, it was done before")),
        }
    }
}

async fn crash(stage: &Stage, effect: Effect) -> Result<String, Error> {
    let mut outside = Outside::default();
    let mut doomed = stage.player("worker-1").await?;
    let mut other = stage.player("worker-2").await?;
    let mut supervisor = stage.player("supervisor").await?;
    let run = supervisor.trigger(&chain()?).await?;
    let claimed = doomed.claim_one().await?;
    if effect == Effect::After {
        outside.ask(stage, doomed.name, &claimed);
    }
    let dead = doomed.die();
    must(
        supervisor.recover(dead, KILLED).await?,
        "the dead worker was not recovered",
    )?;
    let again = other.claim_one().await?;
    must(again.step_id == claimed.step_id, "another step was claimed")?;
    must(again.retry_count == 0, "the crash has spent a retry")?;
    must(again.crash_count == 1, "the crash was not counted once")?;
    outside.ask(stage, other.name, &again);
    let result = [other.finish(again, "\"A\"").await?];
    other.commit(&result).await?;
    other.work().await?;
    completed_once_each(&mut other, run).await?;
    must(outside.keys.len() == 1, "the effect has not happened once")?;
    Ok(match effect {
        Effect::Before => {
            must(outside.asked == 1, "the effect was asked for again")?;
            "a worker died before its step had any effect; the step ran again, and the effect \
             happened once"
        }
        Effect::After => {
            must(outside.asked == 2, "the step was not run again")?;
            "a worker died between its step's effect and the commit; the step ran again with the \
             same idempotency key, by which the world outside could refuse the second effect \
             (without looking at the key it would have happened twice: no engine can prevent that)"
        }
    }
    .to_owned())
}

async fn double_reaper(stage: &Stage) -> Result<String, Error> {
    let mut doomed = stage.player("worker-1").await?;
    let mut other = stage.player("worker-2").await?;
    let mut first = stage.player("reaper-1").await?;
    let mut second = stage.player("reaper-2").await?;
    let run = first.trigger(&chain()?).await?;
    doomed.claim_one().await?;
    let seen = first.look_at(doomed.actor.process).await?;
    must(
        second.look_at(doomed.actor.process).await? == seen,
        "the worker has beaten",
    )?;
    let dead = doomed.die();
    let (one, two) = tokio::join!(
        first.recover(dead, witnessed(seen)),
        second.recover(dead, witnessed(seen))
    );
    must(
        one? != two?,
        "not exactly one of the reapers recovered the worker",
    )?;
    let again = other.claim_one().await?;
    must(
        again.attempt == 2 && again.crash_count == 1,
        "the crash was not counted once",
    )?;
    let result = [other.finish(again, "\"A\"").await?];
    other.commit(&result).await?;
    other.work().await?;
    completed_once_each(&mut other, run).await?;
    Ok(
        "two reapers took the same dead worker at once; one of them recovered it, its crash was \
        counted once, and its step ran again once"
            .to_owned(),
    )
}

async fn lost_acknowledgement(stage: &Stage) -> Result<String, Error> {
    let mut worker = stage.player("worker").await?;
    let run = worker.trigger(&chain()?).await?;
    let claimed = worker.claim_one().await?;
    let result = [worker.finish(claimed, "\"A\"").await?];
    worker.commit_unseen(&result).await?;
    stage.refused(
        worker.name,
        "commits \"A\" for A: the answer is lost on its way",
    );
    worker.reconnect().await?;
    must(
        worker.landed(&result).await? == 1,
        "the committed result was not found",
    )?;
    let refused = worker.commit(&result).await?.stale.len();
    must(refused == 1, "the result was taken twice")?;
    worker.work().await?;
    let detail = completed_once_each(&mut worker, run).await?;
    must(attempts(&detail, "A").len() == 1, "the step ran again")?;
    Ok(
        "a commit happened and its answer was lost; the worker read back that it had, a second \
        commit was refused, and the step did not run again"
            .to_owned(),
    )
}

async fn fan_in_race(stage: &Stage) -> Result<String, Error> {
    let mut first = stage.player("worker-1").await?;
    let mut second = stage.player("worker-2").await?;
    let run = first.trigger(&split()?).await?;
    let claimed = first.claim_one().await?;
    let result = [first.finish(claimed, "\"A\"").await?];
    first.commit(&result).await?;
    let branches = first.claim_branches().await?;
    first.advance(&branches).await?;
    let (left, right) = (first.claim_one().await?, second.claim_one().await?);
    let (one, two) = (format!("\"{}\"", left.node), format!("\"{}\"", right.node));
    let left = [first.finish(left, &one).await?];
    let right = [second.finish(right, &two).await?];
    let sessions = [
        fault_injection::session(&mut first.actor.conn).await?,
        fault_injection::session(&mut second.actor.conn).await?,
    ];
    let mut holder = stage.connect().await?;
    let mut watcher = stage.connect().await?;
    fault_injection::hold_barriers(&mut holder, run).await?;
    stage.did(
        "somebody",
        "keeps the barrier, so that both have to wait for it",
    );
    let let_go = async {
        let forced = both_wait(&mut watcher, sessions).await;
        stage.did("somebody", "lets the barrier go");
        fault_injection::let_go(&mut holder).await?;
        forced
    };
    let (one, two, forced) = tokio::join!(first.commit(&left), second.commit(&right), let_go);
    forced?;
    let (one, two) = (one?, two?);
    must(
        one.stale.is_empty() && two.stale.is_empty(),
        "a result was refused",
    )?;
    must(
        one.ready != two.ready,
        "not exactly one of them was the last to arrive",
    )?;
    first.work().await?;
    let detail = completed_once_each(&mut first, run).await?;
    let fired = detail.steps.iter().filter(|step| step.node == "D").count();
    must(fired == 1, "the fan-in did not fire once")?;
    let input = detail
        .steps
        .iter()
        .find(|step| step.node == "D")
        .map(|step| step.input.get());
    must(
        input == Some("[\"B\",\"C\"]"),
        "the fan-in's input is not in the order of its branches",
    )?;
    Ok(
        "the last two branches of a fan-in arrived at once; exactly one of them was the last, and \
        the fan-in fired once, with both values in order"
            .to_owned(),
    )
}

/// Waits until both sessions wait for a lock, as far as the database shows it.
async fn both_wait(conn: &mut store::Conn, sessions: [Option<i64>; 2]) -> Result<(), Error> {
    let [Some(one), Some(two)] = sessions else {
        tokio::time::sleep(KEPT_OUT).await;
        return Ok(());
    };
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if fault_injection::waits(conn, one).await? && fault_injection::waits(conn, two).await? {
            return Ok(());
        }
        tokio::time::sleep(fault_injection::LOOK_AGAIN).await;
    }
    Err(Error::Broken(
        "the two did not come to wait for the barrier".to_owned(),
    ))
}

async fn database_away(stage: &Stage) -> Result<String, Error> {
    let mut worker = stage.player("worker").await?;
    let run = worker.trigger(&chain()?).await?;
    let claimed = worker.claim_one().await?;
    let result = [worker.finish(claimed, "\"A\"").await?];
    let mut other = stage.connect().await?;
    let outcome = match fault_injection::session(&mut worker.actor.conn).await? {
        Some(session) => {
            fault_injection::cut(&mut other, session).await?;
            match worker.commit_unseen(&result).await {
                Err(Error::Store(error)) if error.is_unavailable() => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(Error::Broken("the connection was not cut".to_owned())),
            }
            stage.refused(
                worker.name,
                "commits \"A\" for A: the server has ended the connection",
            );
            worker.reconnect().await?;
            must(
                worker.landed(&result).await? == 0,
                "what was not committed was found",
            )?;
            must(
                worker.commit(&result).await?.stale.is_empty(),
                "the result was refused",
            )?;
            "the server ended a worker's connection while it held a result; nobody was declared \
             dead, and the result was committed over the next connection"
        }
        None => {
            fault_injection::hold_barriers(&mut other, run).await?;
            stage.did("somebody", "keeps SQLite's one writer out");
            let let_go = async {
                tokio::time::sleep(KEPT_OUT).await;
                stage.did("somebody", "lets go");
                fault_injection::let_go(&mut other).await
            };
            let (committed, gone) = tokio::join!(worker.commit(&result), let_go);
            gone?;
            must(committed?.stale.is_empty(), "the result was refused")?;
            "nobody could write to the file while a worker held a result; nobody was declared \
             dead, and the result was committed when the file was free"
        }
    };
    worker.work().await?;
    let detail = completed_once_each(&mut worker, run).await?;
    must(attempts(&detail, "A").len() == 1, "the step ran again")?;
    Ok(outcome.to_owned())
}

fn chain() -> Result<Definition, Error> {
    let flow = Pipeline::named(PIPELINE).start("A").chain("B");
    flow.definition()
        .map_err(|problems| Error::Broken(problems.to_string()))
}

fn split() -> Result<Definition, Error> {
    let flow = Pipeline::named(PIPELINE)
        .start("A")
        .divide(["B", "C"])
        .combine("D");
    flow.definition()
        .map_err(|problems| Error::Broken(problems.to_string()))
}

/// The run is complete, every step of it has one success, and nothing has spent a retry.
async fn completed_once_each(player: &mut Player<'_>, run: RunId) -> Result<RunDetail, Error> {
    let detail = player.read(run).await?;
    must(
        detail.run.status == RunStatus::Completed,
        "the run is not complete",
    )?;
    for step in &detail.steps {
        let successes = step
            .executions
            .iter()
            .filter(|e| e.result == Some(ExecutionResult::Success));
        must(successes.count() == 1, "a step has not succeeded once")?;
        must(
            step.status == StepStatus::Completed,
            "a step is not complete",
        )?;
        must(
            step.executions.iter().all(|e| e.retry_count == 0),
            "a retry was spent",
        )?;
    }
    Ok(detail)
}

fn output<'a>(detail: &'a RunDetail, node: &str) -> Option<&'a str> {
    let step = detail.steps.iter().find(|step| step.node == node)?;
    step.output.as_deref().map(|output| output.get())
}

fn must(holds: bool, otherwise: &str) -> Result<(), Error> {
    holds
        .then_some(())
        .ok_or_else(|| Error::Broken(otherwise.to_owned()))
}
