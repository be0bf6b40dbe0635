//! Actions in many runs at once: the requests of visitors, and the work on them.
//!
//! Owns: the refusals, the duty by which one of all consoles does the work, and the pace. Never: deals with
//! a run (`store::bulk` does).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::machine::bulk::{CHOSEN_MAX, Filter, PAUSES, Selection, states};
use crate::model::*;
use crate::store::action::Actor;
use crate::store::bulk::{self, Bulk, NewBulk, Within};
use crate::store::{Error, query};
use crate::time::micros;
use crate::view::word;

use super::refusal::Refusal;
use super::source::ReadError;
use super::visitor::{Visitor, names};
use super::{Site, deeds};

/// The number of bulk actions that may be open at once.
const OPEN_MAX: usize = 20;

/// The number of runs that a refusal names.
const NAMED: usize = 3;

/// The interval between two looks for bulk actions that another console accepted and left behind.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The pause after a failure of the database.
const AGAIN: Duration = Duration::from_secs(2);

/// The name of the duty.
const DUTY: &str = "bulks";

/// A duty that was not renewed for this long is free for another console: a little more than a round may
/// take.
const LEASE: Duration = Duration::from_secs(6);

/// An action whose definition cannot be read here is left to others for this long: until the lease is over, and they
/// have looked again. It is shorter than a refusal is remembered, so `health` reports one that lasts.
const LEFT_FOR: Duration = Duration::from_secs(20);

/// A round begins no further run after this time, so that each bulk action gets its turn.
const ROUND: Duration = Duration::from_millis(1_000);

/// After this many rounds that ended at a run without a result, the run is left as it is.
const TRIES: u32 = 3;

/// The work on bulk actions.
#[derive(Default)]
pub struct Bulks {
    /// Notified when there is a new bulk action.
    made: Notify,
}

/// The refusal of a request that cannot be fulfilled.
pub fn unfit(detail: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

/// A bulk action that a visitor requests.
pub struct Wanted {
    pub verb: Verb,
    pub selection: Selection,
    /// Only runs that were triggered within this time.
    pub since: Option<Duration>,
    /// Revived runs go on with the newest definition.
    pub latest: bool,
    /// No run with a greater id; `None`: than that of the newest run.
    pub newest: Option<RunId>,
}

impl Wanted {
    /// The same request with the states that it implies, or the reason why it cannot be fulfilled.
    pub fn checked(mut self) -> Result<Self, Refusal> {
        let states = states(self.verb);
        if states.is_empty() {
            let verb = self.verb;
            return Err(unfit(format!(
                "`{verb}` is for one run or pipeline at a time; many runs at once are revived, cancelled or resumed"
            )));
        }
        let is_revival = self.verb == Verb::Revive;
        match &mut self.selection {
            Selection::Chosen(runs) if runs.is_empty() || runs.len() > CHOSEN_MAX => {
                let detail =
                    format!("1 to {CHOSEN_MAX} runs are chosen; for more there is a filter");
                return Err(unfit(detail));
            }
            Selection::Chosen(_) if self.newest.is_some() => {
                return Err(unfit(
                    "`newest` belongs to a filter: without one, the action is in exactly the runs in `runs`",
                ));
            }
            Selection::Chosen(_) => {}
            Selection::Matching(filter) => {
                if filter.statuses.is_empty() {
                    filter.statuses = states.to_vec();
                }
                if let Some(wrong) = filter.statuses.iter().find(|it| !states.contains(it)) {
                    let right: Vec<&str> = states.iter().map(|it| word(*it)).collect();
                    return Err(unfit(format!(
                        "`{}` changes nothing in runs that are {}: it is for those that are {}",
                        self.verb,
                        word(*wrong),
                        right.join(" or ")
                    )));
                }
                if filter.kind.is_some() && !is_revival {
                    return Err(unfit("a kind of failure is only revived"));
                }
            }
        }
        if self.latest {
            let of = match &self.selection {
                Selection::Matching(filter) => filter.pipeline.is_some(),
                Selection::Chosen(_) => false,
            };
            if !is_revival || !of {
                return Err(unfit(
                    "`latest` is for the revival of runs that a filter finds, and that names their pipeline",
                ));
            }
        }
        Ok(self)
    }
}

/// Records a bulk action, which begins at once; returns its id.
pub async fn create(
    site: &Arc<Site>,
    wanted: Wanted,
    visitor: &Visitor,
    by: Actor,
) -> Result<Uuid, Refusal> {
    let Wanted {
        verb,
        selection,
        since: within,
        latest,
        newest,
    } = wanted.checked()?;
    let pipeline = match &selection {
        Selection::Matching(filter) => filter.pipeline.clone(),
        Selection::Chosen(_) => None,
    };
    let definition = match (latest, &pipeline) {
        (true, Some(name)) => {
            let own = site.terms.definition_of(name).cloned();
            let detail = || format!("the console's configuration has no pipeline {name}");
            Some(own.ok_or_else(|| deeds::conflict(detail()))?)
        }
        _ => None,
    };
    own_alone(site, &selection, visitor).await?;
    if let Some(name) = &pipeline {
        deeds::known(site, name).await?;
    }
    let asked = site.acts.read(async move |conn| {
        if bulk::open(conn, OPEN_MAX).await?.len() >= OPEN_MAX {
            return Ok(Err(deeds::conflict(format!(
                "{OPEN_MAX} bulk actions go on: stop one, or wait for the end of one"
            ))));
        }
        let last = bulk::newest_of(conn, &selection).await?;
        // Runs that are triggered later are excluded, whatever the request says.
        let newest = newest.map_or(last, |newest| newest.min(last));
        let selection = match &selection {
            Selection::Matching(filter) => {
                Selection::Matching(since(filter, within, query::now(conn).await?))
            }
            chosen => chosen.clone(),
        };
        let new = NewBulk {
            verb,
            selection: &selection,
            definition: definition.as_deref(),
            newest,
            by: &by,
        };
        bulk::create(conn, new).await.map(Ok)
    });
    let unsure = |error| {
        let remedy = "look at `/api/v1/bulk` whether it is there: a request that is sent again makes another bulk \
                      action";
        deeds::unsure_with(error, remedy)
    };
    let id = asked.await.map_err(unsure)??;
    site.bulks.made.notify_one();
    Ok(id)
}

/// This filter, limited to runs that were triggered within a time before now.
pub fn since(filter: &Filter, within: Option<Duration>, now: i64) -> Filter {
    Filter {
        since: within.map(|within| now.saturating_sub(micros(within))),
        ..filter.clone()
    }
}

/// Refuses a request that reaches beyond the pipelines that a visitor may act on. Chosen runs that are gone are in
/// nobody's way: nothing changes them.
pub async fn own_alone(
    site: &Arc<Site>,
    selection: &Selection,
    visitor: &Visitor,
) -> Result<(), Refusal> {
    match reaches(site, selection, visitor, Visitor::may_act_on).await? {
        Reached::All | Reached::Left => return Ok(()),
        Reached::Others => {}
    }
    let own = names(visitor.pipelines.as_deref().unwrap_or_default());
    let detail = format!("this token is for {own} alone: name the pipeline, or choose runs of it");
    Err(Refusal::new(StatusCode::FORBIDDEN, detail))
}

/// Refuses a selection of runs of which some do not exist, or are of pipelines that a visitor may not act on: the answer
/// does not tell these from those.
pub async fn all_there(
    site: &Arc<Site>,
    selection: &Selection,
    visitor: &Visitor,
) -> Result<(), Refusal> {
    let Selection::Chosen(runs) = selection else {
        return Ok(());
    };
    let asked = runs.clone();
    let read = site
        .source
        .read(async move |conn| bulk::chosen(conn, &asked).await);
    let found = read.await?;
    let found = found.iter().filter(|it| visitor.may_act_on(&it.pipeline));
    let found: HashSet<RunId> = found.map(|it| it.id).collect();
    let missing = runs.iter().filter(|run| !found.contains(run));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = format!("{}{more}", missing[..missing.len().min(NAMED)].join(", "));
    Err(match &visitor.pipelines {
        Some(own) => {
            let own = names(own);
            let detail =
                format!("this token is for {own} alone, where there are no such runs: {named}");
            Refusal::new(StatusCode::FORBIDDEN, detail)
        }
        None => unfit(format!("there are no such runs: {named}")).remedy(
            "leave them out: they were deleted, as the configuration's retention says, or never existed",
        ),
    })
}

/// How far a selection is among the pipelines for which a visitor may do something.
enum Reached {
    All,
    /// All chosen runs that are left: nobody knows of which pipelines those that are gone were.
    Left,
    Others,
}

/// How far these runs are among them.
async fn reaches(
    site: &Arc<Site>,
    selection: &Selection,
    visitor: &Visitor,
    may: fn(&Visitor, &str) -> bool,
) -> Result<Reached, Refusal> {
    let runs = match selection {
        _ if visitor.may_see_all() => return Ok(Reached::All),
        Selection::Matching(filter) => {
            let named = filter.pipeline.as_deref();
            return Ok(match named.is_some_and(|it| may(visitor, it)) {
                true => Reached::All,
                false => Reached::Others,
            });
        }
        Selection::Chosen(runs) => runs.clone(),
    };
    let chosen = runs.len();
    let read = site
        .source
        .read(async move |conn| bulk::chosen(conn, &runs).await);
    let found = read.await?;
    let are_own = found.iter().all(|it| may(visitor, &it.pipeline));
    Ok(match found.len() {
        n if n == chosen && are_own => Reached::All,
        1.. if are_own => Reached::Left,
        _ => Reached::Others,
    })
}

/// One bulk action, for a visitor that may see it, and the database's time.
pub async fn find(site: &Arc<Site>, id: Uuid, visitor: &Visitor) -> Result<(Bulk, i64), Refusal> {
    let read = site
        .source
        .read(async move |conn| Ok((bulk::find(conn, id).await?, query::now(conn).await?)));
    let (bulk, now) = read.await?;
    let bulk = bulk.ok_or_else(|| missing(id))?;
    match reaches(site, &bulk.selection, visitor, Visitor::may_see).await? {
        Reached::All | Reached::Left => Ok((bulk, now)),
        Reached::Others => Err(missing(id)),
    }
}

/// The refusal of a request for a bulk action that does not exist.
pub fn missing(id: Uuid) -> Refusal {
    let detail = format!("there is no bulk action {id}");
    Refusal::new(StatusCode::NOT_FOUND, detail)
        .remedy("look in the list of bulk actions: one that ended is deleted with the history")
}

/// Stops a bulk action; false if it had already ended.
pub async fn stop(
    site: &Arc<Site>,
    id: Uuid,
    visitor: &Visitor,
    by: Actor,
) -> Result<bool, Refusal> {
    // A visitor that may act on all pipelines can also stop one that only another version can read.
    if !visitor.may_act_on_all() {
        find(site, id, visitor).await?;
    }
    let asked = site.acts.read(
        async move |conn| match bulk::stop(conn, id, &by.name).await? {
            true => Ok(Some(true)),
            false => Ok(bulk::is_there(conn, id).await?.then_some(false)),
        },
    );
    let stopped = asked.await.map_err(deeds::unsure)?;
    stopped.ok_or_else(|| missing(id))
}

/// By bulk action, the run at which rounds have ended without a result, and the number of those rounds.
#[derive(Default)]
struct Late(HashMap<Uuid, (RunId, u32)>);

impl Late {
    fn given_up(&self, bulk: Uuid) -> Option<RunId> {
        let late = self.0.get(&bulk).filter(|(_, tries)| *tries >= TRIES);
        late.map(|(run, _)| *run)
    }

    fn meet(&mut self, bulk: Uuid, run: RunId) {
        let late = self.0.entry(bulk).or_insert((run, 0));
        *late = match late.0 == run {
            true => (run, late.1 + 1),
            false => (run, 1),
        };
    }
}

/// Works on bulk actions for as long as the console lives, while no other console does.
pub async fn work(site: Arc<Site>) {
    let mut late = Late::default();
    let mut left: HashMap<Uuid, Instant> = HashMap::new();
    loop {
        let look = site
            .source
            .read(async |conn| bulk::open(conn, OPEN_MAX).await);
        let look = look.await;
        let mut pause = match look {
            Ok(_) => LOOK_EVERY,
            Err(_) => AGAIN,
        };
        left.retain(|_, at| at.elapsed() < LEFT_FOR);
        for bulk in look.unwrap_or_default() {
            if left.contains_key(&bulk.id) {
                continue;
            }
            match round(&site, bulk.id, &mut late).await {
                Ok(Round::Unreadable) => drop(left.insert(bulk.id, Instant::now())),
                Ok(Round::More) => pause = Duration::ZERO,
                Ok(Round::Later(wait)) => pause = pause.min(wait),
                Ok(Round::Ended) => {
                    late.0.remove(&bulk.id);
                }
                Ok(Round::Others) => {
                    pause = LEASE;
                    break;
                }
                Err(_) => pause = pause.min(AGAIN),
            }
        }
        if !left.is_empty() {
            pause = pause.min(LEFT_FOR);
        }
        if !pause.is_zero() {
            let _ = tokio::time::timeout(pause, site.bulks.made.notified()).await;
        }
    }
}

/// The end of a round.
enum Round {
    More,
    /// There is nothing to do for this long.
    Later(Duration),
    Ended,
    /// Its definition cannot be read here. A newer console may read it, if this one lets the duty lapse.
    Unreadable,
    /// Another console has the duty.
    Others,
}

async fn round(site: &Arc<Site>, bulk: Uuid, late: &mut Late) -> Result<Round, ReadError> {
    let at = Arc::new(Mutex::new(None));
    let (shared, told) = (Arc::clone(site), Arc::clone(&at));
    let given_up = late.given_up(bulk);
    let asked = site.bulk_acts.read(async move |conn| {
        if !shared.duties.take(conn, DUTY, LEASE).await? {
            return Ok(Round::Others);
        }
        let until = Instant::now() + ROUND;
        let why = format!(
            "{TRIES} attempts failed or took too long: do it by itself (`ductworkd revive`, `cancel` or `resume`), which \
             says why"
        );
        let within = Within {
            until,
            given_up: given_up.map(|run| (run, why.as_str())),
            pauses: &PAUSES,
        };
        let mut tell = |run| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
        let definitions = &shared.definitions;
        let worked = bulk::work(conn, bulk, definitions, within, &mut tell).await;
        let worked = match worked {
            Ok(worked) => worked,
            // It was stopped, or another console has it: a look a little later will show. A trigger may leave its row as
            // it is for as long as it likes.
            Err(Error::Gone(_)) => return Ok(Round::Later(AGAIN)),
            Err(error) => return Err(error),
        };
        for pipeline in &worked.pipelines {
            (shared.terms.wake)(conn, pipeline).await;
        }
        Ok(match (worked.more, worked.later) {
            (true, Some(wait)) => Round::Later(wait),
            (true, None) => Round::More,
            (false, _) => Round::Ended,
        })
    });
    let done = asked.await;
    let run = *at.lock().unwrap_or_else(PoisonError::into_inner);
    let is_of_run = |error: &ReadError| {
        !matches!(
            error,
            ReadError::Away(_)
                | ReadError::OnlyReads(_)
                | ReadError::Hindered(_)
                | ReadError::Crowded
        )
    };
    if let (true, Some(run)) = (done.as_ref().is_err_and(is_of_run), run) {
        late.meet(bulk, run);
    }
    match (done, run) {
        (Err(ReadError::Unreadable(_)), None) => Ok(Round::Unreadable),
        (done, _) => done,
    }
}
