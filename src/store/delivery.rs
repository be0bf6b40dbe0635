//! Deliveries: the messages about runs to the endpoints of the configuration.
//!
//! Owns: their rows, finding the runs of which an endpoint has not been notified yet, and the record of each attempt; `listed`
//! reads them for people. Never: sends anything, or decides when the next attempt is due.
//!
//! Nothing is written with the end of a run: ended runs are found afterwards, by the index of their times, and a
//! process that finds one again finds its delivery. A row records a message before it is sent, so none is lost; a
//! message whose sender dies midway is sent once more.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use crate::machine::webhook::Follows;
use crate::model::*;

use super::action::{self, Actor};
use super::conn::{Conn, Row};
use super::cursor::Cursor;
use super::dialect::Dialect;
use super::error::Error;
use super::list;
use super::micros;
use super::statement::{Rows, statements};

pub(super) mod listed;

pub use listed::{
    COUNTED, Delivery, Filter, LINE, Line, Listed, STATES, find, latest, lines, unsent,
};

/// The runs that ended, in the order of their ends, after a place.
macro_rules! ended_since {
    ($columns:literal) => {
        concat!(
            "
        SELECT ",
            $columns,
            ",
               {ended:r} AS ended_at
          FROM ductwork_runs r {by:ductwork_runs_ended}
         WHERE r.status IN ('completed', 'halted', 'cancelled')
           AND {ended:r} >= :behind
           AND ({ended:r}, r.id) > (:behind, :behind_id)
           AND r.pruning_at IS NULL
         ORDER BY {ended:r}, r.id LIMIT :n"
        )
    };
}
pub(super) use ended_since;

statements! {
    BEGIN_WEBHOOK = "
        INSERT INTO ductwork_webhooks (name, since, seen) VALUES (:name, {now}, {now})
        {keep:ductwork_webhooks;name}";
    WEBHOOK = "
        SELECT w.name, w.since, w.seen, {now} AS now FROM ductwork_webhooks w WHERE w.name = :name";
    /// RACE: a console whose duty another console has by now records its own place. Runs that were found stay found.
    /// Proven by `an_endpoint_never_goes_back_to_what_was_found`. A time that has not come yet was written before the
    /// clock was set back.
    SEE_WEBHOOK = "
        UPDATE ductwork_webhooks SET seen = :seen WHERE name = :name AND (seen < :seen OR seen > {now})";
    RUNS_ENDED_SINCE = ended_since!("r.id, r.pipeline, r.status, r.trigger_key, r.triggered_at");
    RUNS_THAT_WAIT = "
        SELECT r.id, r.pipeline, r.status, r.trigger_key, r.triggered_at, CAST(NULL AS {int}) AS ended_at
          FROM ductwork_runs r {by:ductwork_runs_others}
         WHERE r.status <> 'completed' AND r.status = 'dampened' AND r.pipeline >= :pipeline
           AND (r.pipeline, r.id) > (:pipeline, :behind_id) AND r.pruning_at IS NULL
         ORDER BY r.status, r.pipeline, r.id LIMIT :n";
    KNOWN_DELIVERIES = "
        SELECT d.run_id, d.endpoint, d.event FROM ductwork_deliveries d WHERE {any:d.run_id;b(id id)}";
    /// RACE: two consoles find one run. The second finds the row of the first. Proven by
    /// `a_run_that_is_found_twice_is_delivered_once`.
    ///
    /// RACE: prune deletes the run meanwhile. Each skips a row that the other has locked: so prune finds the message, or
    /// we find the run gone. Proven by `no_message_is_written_about_a_run_that_is_being_deleted`. (I37)
    ///
    /// A session that has locked a run's row for less than a day holds up the messages about that run alone: a later walk
    /// finds it. Proven by `somebody_who_has_locked_a_run_holds_up_the_messages_about_that_run_alone`.
    INSERT_DELIVERIES = "
        INSERT INTO ductwork_deliveries (id, endpoint, run_id, event, pipeline, body, state, attempts, created_at, due_at)
        SELECT b.id, b.endpoint, b.run_id, b.event, b.pipeline, b.body, 'waiting', 0, {now}, {now}
          FROM {rows:b(id id, endpoint text, run_id id, event text, pipeline text, body text)}
          {join:ductwork_runs r} ON {key:r.id;b.run_id}
         WHERE r.pruning_at IS NULL {skip_shared}
        {keep:ductwork_deliveries;run_id, endpoint, event}";
    HOLD_FREE_RUNS in Mysql = "
        SELECT r.id FROM {rows:b(id id)} {join:ductwork_runs r} ON {key:r.id;b.id}
         WHERE r.pruning_at IS NULL ORDER BY r.id {skip_locked}";
    /// On a cluster prune may be at another node, which sees no lock: so the rows have to change. Raced by
    /// `a_run_that_one_node_tells_of_and_another_prunes_leaves_no_message`.
    HOLD_RUNS in Mysql = "
        UPDATE {into:ductwork_runs;b(id id)} SET revivals = revivals + 1
         WHERE {of:ductwork_runs.id;b(id id)} AND ductwork_runs.pruning_at IS NULL";
    /// A message whose row somebody has locked is left out, so that it takes the place of no other one. Proven by
    /// `somebody_who_has_locked_a_message_holds_up_that_message_alone`.
    DUE_DELIVERIES = "
        SELECT d.id, d.run_id, d.event, d.body, d.attempts,
               (SELECT r.id FROM ductwork_runs r WHERE {key:r.id;d.run_id}) AS run
          FROM ductwork_deliveries d
         WHERE d.endpoint = :endpoint AND d.due_at <= {now} ORDER BY d.due_at, d.id LIMIT :n {skip_locked}";
    /// RACE: two consoles are about to send one message. The second to write finds that it is not due, or that the
    /// other one has locked it. Proven by `of_two_who_would_send_a_message_one_does`.
    ///
    /// RACE: somebody locks a message's row after it was found due. It is not taken, and the others are. Proven by
    /// `somebody_who_has_locked_a_message_holds_up_that_message_alone`.
    LEASE_DELIVERIES = "
        WITH free {materialized} (
            SELECT id FROM ductwork_deliveries WHERE {any:id;b(id id)} AND due_at <= {now} {skip_locked})
        UPDATE ductwork_deliveries SET due_at = {now} + :lease
         WHERE {within:id;SELECT id FROM free} RETURNING id",
        on Mysql [&LOCK_DUE_DELIVERIES];
    LOCK_DUE_DELIVERIES in Mysql = "
        SELECT d.id FROM {rows:b(id id)} {join:ductwork_deliveries d} ON d.id = b.id
         WHERE d.due_at <= {now} ORDER BY d.id {skip_locked}";
    LEASE_LOCKED_DELIVERIES in Mysql = "
        UPDATE {into:ductwork_deliveries;b(id id)} SET due_at = {now} + :lease
         WHERE {of:ductwork_deliveries.id;b(id id)}";
    /// RACE: a sender stalls for so long that another sends the message as well, or a person requests it once
    /// more. Each attempt counts once. Proven by `a_late_result_of_an_attempt_changes_nothing`.
    ///
    /// A message whose row somebody has locked stays without a record, and holds up no other one. Proven by
    /// `somebody_who_has_locked_a_message_holds_up_that_message_alone`.
    RECORD_DELIVERIES = "
        WITH free {materialized} (
            SELECT id FROM ductwork_deliveries WHERE {any:id;b(id id)} {skip_locked})
        UPDATE {into:ductwork_deliveries;b(id id, made int, pause int, outcome text, code int, reason text)}
           SET attempts = b.made + 1, due_at = {now} + b.pause, state = b.outcome, tried_at = {now},
               status = b.code, error = b.reason
          {from:b(id id, made int, pause int, outcome text, code int, reason text)}
         WHERE {key:ductwork_deliveries.id;b.id} AND {within:ductwork_deliveries.id;SELECT id FROM free}
           AND ductwork_deliveries.due_at IS NOT NULL AND ductwork_deliveries.attempts = b.made
        RETURNING ductwork_deliveries.id AS id",
        on Mysql [&LOCK_ATTEMPTED_DELIVERIES];
    LOCK_ATTEMPTED_DELIVERIES in Mysql = "
        SELECT d.id FROM {rows:b(id id, made int, pause int, outcome text, code int, reason text)}
          {join:ductwork_deliveries d} ON d.id = b.id
         WHERE d.due_at IS NOT NULL AND d.attempts = b.made ORDER BY d.id {skip_locked}";
    RECORD_LOCKED_DELIVERIES in Mysql = "
        UPDATE {into:ductwork_deliveries;b(id id, made int, pause int, outcome text, code int, reason text)}
           SET attempts = b.made + 1, due_at = {now} + b.pause, state = b.outcome, tried_at = {now},
               status = b.code, error = b.reason
         WHERE {key:ductwork_deliveries.id;b.id}";
    /// A message that cannot be read cannot be sent, and would block the others for ever.
    PUT_DELIVERIES_ASIDE = "
        UPDATE {into:ductwork_deliveries;b(id id)}
           SET due_at = NULL, state = 'failed', error = 'the row of this message is damaged, so it is not sent'
         WHERE {of:ductwork_deliveries.id;b(id id)}";
    /// The same for messages with invalid ids, by which nobody can name them. PostgreSQL's type guarantees valid
    /// ids.
    PUT_NAMELESS_ASIDE in Sqlite = "
        UPDATE ductwork_deliveries
           SET due_at = NULL, state = 'failed', error = 'the row of this message is damaged, so it is not sent'
         WHERE state = 'waiting' AND length(id) <> 16";
    /// The messages of runs that were deleted while they were being written.
    DELETE_ORPHANS = "{delete:ductwork_deliveries;b(id id)} WHERE {of:ductwork_deliveries.id;b(id id)}";
    SEND_DELIVERY_AGAIN = "
        UPDATE ductwork_deliveries SET attempts = 0, due_at = {now}, state = 'waiting' WHERE id = :id";
}

/// An endpoint, and how far it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// It is notified of runs that ended at this time or later, in µs since 1970.
    pub since: i64,
    /// The runs that had ended by this time have been found, in µs since 1970.
    pub seen: i64,
}

/// How far an endpoint has heard. One with a new name begins now.
pub async fn heard(conn: &mut Conn, endpoint: &str) -> Result<Heard, Error> {
    let name = [("name", endpoint.into())];
    let mut row = conn.fetch_optional(&WEBHOOK, &name).await?;
    if row.is_none() {
        conn.execute(&BEGIN_WEBHOOK, &name).await?;
        row = conn.fetch_optional(&WEBHOOK, &name).await?;
    }
    let row = row.ok_or_else(|| Error::Corrupt(format!("the endpoint {endpoint} has no row")))?;
    // A time that has not come yet was written before the clock was set back.
    let now: i64 = row.get("now")?;
    Ok(Heard {
        since: row.get::<i64>("since")?.min(now),
        seen: row.get::<i64>("seen")?.min(now),
    })
}

/// Records that all runs that had ended by this time were found for an endpoint.
pub async fn see(conn: &mut Conn, endpoint: &str, seen: i64) -> Result<(), Error> {
    let args = [("name", endpoint.into()), ("seen", seen.into())];
    conn.execute(&SEE_WEBHOOK, &args).await?;
    Ok(())
}

/// A run that has ended, or that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its key.
    pub id: RunId,
    /// Its pipeline.
    pub pipeline: String,
    /// Its status.
    pub status: RunStatus,
    /// The key of its trigger.
    pub key: Option<String>,
    /// µs since 1970.
    pub triggered_at: i64,
    /// µs since 1970; none for a run that waits.
    pub ended_at: Option<i64>,
}

impl Found {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: RunId(row.get("id")?),
            pipeline: row.get("pipeline")?,
            status: row.word("status")?,
            key: row.get("trigger_key")?,
            triggered_at: row.get("triggered_at")?,
            ended_at: row.get("ended_at")?,
        })
    }
}

/// A page of runs that are walked through. A run whose row is damaged is left out, and the walk goes on behind it:
/// otherwise no endpoint would be notified of the runs that follow it, for as long as the row stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, P = Cursor> {
    /// The runs, in the order of their places.
    pub runs: Vec<T>,
    /// The runs whose rows are damaged.
    pub damaged: Vec<RunId>,
    /// The place of the last row.
    pub last: Option<P>,
    /// True where more rows may follow.
    pub is_full: bool,
}

impl<T, P> Page<T, P> {
    /// Reads rows, of which at most `n` were requested.
    pub(super) fn read(
        rows: &[Row],
        n: usize,
        run: impl Fn(&Row) -> Result<T, Error>,
        place: impl Fn(&Row) -> Result<P, Error>,
    ) -> Self {
        let (mut runs, mut damaged) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            match run(row) {
                Ok(run) => runs.push(run),
                Err(_) => damaged.extend(row.get("id").map(RunId).ok()),
            }
        }
        Self {
            runs,
            damaged,
            last: rows.iter().rev().find_map(|row| place(row).ok()),
            is_full: rows.len() >= n,
        }
    }
}

/// The next runs that ended, in the order of their ends: at most `n` after a place.
pub async fn ended(conn: &mut Conn, behind: Cursor, n: usize) -> Result<Page<Found>, Error> {
    let [behind, behind_id] = behind.args();
    let args = [behind, behind_id, ("n", n.into())];
    let rows = conn.fetch(&RUNS_ENDED_SINCE, &args).await?;
    let place = |row: &Row| Cursor::of(row, "ended_at", "id");
    Ok(Page::read(&rows, n, Found::read, place))
}

/// The next runs that wait for a person, by pipeline: at most `n` after this one.
pub async fn waiting(
    conn: &mut Conn,
    behind: (&str, RunId),
    n: usize,
) -> Result<Page<Found, (String, RunId)>, Error> {
    let args = [
        ("pipeline", behind.0.into()),
        ("behind_id", behind.1.0.into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&RUNS_THAT_WAIT, &args).await?;
    let place = |row: &Row| Ok((row.get("pipeline")?, RunId(row.get("id")?)));
    Ok(Page::read(&rows, n, Found::read, place))
}

/// The combinations of run, endpoint and event that have deliveries, for these runs.
pub async fn known(
    conn: &mut Conn,
    runs: impl Iterator<Item = RunId>,
) -> Result<BTreeSet<(RunId, String, String)>, Error> {
    let rows = Rows::new().ids("id", runs);
    let known = conn
        .fetch(&KNOWN_DELIVERIES, &[("b", (&rows).into())])
        .await?;
    let known = known.iter().map(|row| {
        Ok((
            RunId(row.get("run_id")?),
            row.get("endpoint")?,
            row.get("event")?,
        ))
    });
    known.collect()
}

/// The reasons for which branches of these runs have halted, each once per run.
pub async fn halt_reasons(
    conn: &mut Conn,
    runs: Vec<RunId>,
) -> Result<Vec<(RunId, String)>, Error> {
    match runs.is_empty() {
        true => Ok(Vec::new()),
        false => list::reasons(conn, runs).await,
    }
}

/// A message to an endpoint.
#[derive(Clone, Debug)]
pub struct Message {
    /// The endpoint's name.
    pub endpoint: String,
    /// The run.
    pub run: RunId,
    /// The status that it is about.
    pub event: RunStatus,
    /// The run's pipeline.
    pub pipeline: String,
    /// The text that is sent.
    pub body: String,
}

/// Stores messages, due at once, but none about a run that is being deleted. A message that exists already stays as it
/// is; this does not tell which ones these are, because some databases count them as well.
pub async fn insert(conn: &mut Conn, messages: &[Message]) -> Result<(), Error> {
    if messages.is_empty() {
        return Ok(());
    }
    if !conn.is_in_cluster() {
        return write(conn, messages).await;
    }
    let runs: BTreeSet<Uuid> = messages.iter().map(|it| it.run.0).collect();
    let runs = Rows::new().ids("id", runs);
    conn.transaction(async |conn| {
        let free = conn
            .fetch(&HOLD_FREE_RUNS, &[("b", (&runs).into())])
            .await?;
        let free: Result<BTreeSet<Uuid>, Error> = free.iter().map(|row| row.get("id")).collect();
        let free = free?;
        let rows = Rows::new().ids("id", free.iter().copied());
        conn.execute(&HOLD_RUNS, &[("b", (&rows).into())]).await?;
        let held = messages.iter().filter(|it| free.contains(&it.run.0));
        write(conn, held).await
    })
    .await
}

async fn write<'a>(
    conn: &mut Conn,
    messages: impl IntoIterator<Item = &'a Message>,
) -> Result<(), Error> {
    let messages: Vec<&Message> = messages.into_iter().collect();
    if messages.is_empty() {
        return Ok(());
    }
    let rows = Rows::new()
        .ids("id", messages.iter().map(|_| Uuid::now_v7()))
        .texts("endpoint", messages.iter().map(|it| it.endpoint.as_str()))
        .ids("run_id", messages.iter().map(|it| it.run))
        .texts("event", messages.iter().map(|it| it.event.as_str()))
        .texts("pipeline", messages.iter().map(|it| it.pipeline.as_str()))
        .texts("body", messages.iter().map(|it| it.body.as_str()));
    let args = [("b", (&rows).into())];
    conn.execute(&INSERT_DELIVERIES, &args).await.map(drop)
}

/// A message that may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The delivery.
    pub id: Uuid,
    /// The run.
    pub run: RunId,
    /// The status that it is about.
    pub event: String,
    /// The text that is sent.
    pub body: String,
    /// Attempts so far.
    pub attempts: u32,
}

impl Due {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get("id")?,
            run: RunId(row.get("run_id")?),
            event: row.get("event")?,
            body: row.get("body")?,
            attempts: attempts(row)?,
        })
    }
}

/// A number of attempts. A negative one would never equal the recorded number.
fn attempts(row: &Row) -> Result<u32, Error> {
    match row.get::<i64>("attempts")? {
        ..0 => Err(Error::Corrupt("attempts are fewer than none".to_owned())),
        _ => row.count("attempts"),
    }
}

/// Messages that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The messages to send: one list per endpoint.
    pub due: Vec<Vec<Due>>,
    /// Deliveries whose rows are damaged. They are put aside, and nobody takes them any more.
    pub aside: Vec<Uuid>,
    /// How many more of them have invalid ids.
    pub nameless: u64,
}

/// Takes due messages, for each endpoint at most as many as are wanted, to send them within this time: until
/// then nobody else sends them. Messages about deleted runs are deleted.
pub async fn take(
    conn: &mut Conn,
    wanted: &[(&str, usize)],
    lease: Duration,
) -> Result<Taken, Error> {
    let (mut taken, mut orphans) = (Taken::default(), Vec::new());
    let mut is_nameless = false;
    for (endpoint, n) in wanted {
        let args = [("endpoint", (*endpoint).into()), ("n", (*n).into())];
        let mut all = Vec::new();
        for row in conn.fetch(&DUE_DELIVERIES, &args).await? {
            match Due::read(&row) {
                Ok(due) if row.get::<Option<Uuid>>("run")?.is_none() => orphans.push(due.id),
                Ok(due) => all.push(due),
                Err(_) => match row.get("id") {
                    Ok(id) => taken.aside.push(id),
                    Err(error) if conn.dialect() != Dialect::Sqlite => return Err(error),
                    Err(_) => is_nameless = true,
                },
            }
        }
        taken.due.push(all);
    }
    if is_nameless {
        taken.nameless = conn.execute(&PUT_NAMELESS_ASIDE, &[]).await?;
    }
    for (statement, ids) in [
        (&PUT_DELIVERIES_ASIDE, &taken.aside),
        (&DELETE_ORPHANS, &orphans),
    ] {
        if !ids.is_empty() {
            let rows = Rows::new().ids("id", ids.iter().copied());
            conn.execute(statement, &[("b", (&rows).into())]).await?;
        }
    }
    let ids: Vec<Uuid> = taken.due.iter().flatten().map(|due| due.id).collect();
    let leased = self::lease(conn, ids, lease).await?;
    for due in &mut taken.due {
        due.retain(|it| leased.contains(&it.id));
    }
    Ok(taken)
}

/// Takes messages, and returns those that were due and that nobody had locked.
pub async fn lease(
    conn: &mut Conn,
    ids: Vec<Uuid>,
    lease: Duration,
) -> Result<BTreeSet<Uuid>, Error> {
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = Rows::new().ids("id", ids);
    let lease = || ("lease", micros(lease).into());
    let args = [("b", (&rows).into()), lease()];
    if conn.dialect() != Dialect::Mysql {
        return self::ids(&conn.fetch_autocommit(&LEASE_DELIVERIES, &args).await?);
    }
    conn.transaction(async |conn| {
        let free = self::ids(&conn.fetch(&LEASE_DELIVERIES, &args).await?)?;
        if !free.is_empty() {
            let rows = Rows::new().ids("id", free.iter().copied());
            let args = [("b", (&rows).into()), lease()];
            conn.fetch_and_commit(&LEASE_LOCKED_DELIVERIES, &args)
                .await?;
        }
        Ok(free)
    })
    .await
}

fn ids(rows: &[Row]) -> Result<BTreeSet<Uuid>, Error> {
    rows.iter().map(|row| row.get("id")).collect()
}

/// An attempt that ended.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// The message.
    pub due: &'a Due,
    /// Its consequence.
    pub follows: Follows,
    /// The status of the response.
    pub status: Option<u16>,
    /// The reason why there was no response, or the text of the response.
    pub error: Option<&'a str>,
}

/// Records how attempts ended, and returns the recorded deliveries. An attempt is not recorded when it was
/// recorded before, or no longer counts, or somebody has locked the message's row.
pub async fn record(conn: &mut Conn, attempts: &[Attempt<'_>]) -> Result<BTreeSet<Uuid>, Error> {
    let rows = outcomes(attempts.iter());
    let args = [("b", (&rows).into())];
    if conn.dialect() != Dialect::Mysql {
        return ids(&conn.fetch_autocommit(&RECORD_DELIVERIES, &args).await?);
    }
    conn.transaction(async |conn| {
        let free = ids(&conn.fetch(&RECORD_DELIVERIES, &args).await?)?;
        if !free.is_empty() {
            let rows = outcomes(attempts.iter().filter(|it| free.contains(&it.due.id)));
            let args = [("b", (&rows).into())];
            conn.fetch_and_commit(&RECORD_LOCKED_DELIVERIES, &args)
                .await?;
        }
        Ok(free)
    })
    .await
}

/// The rows that record attempts.
fn outcomes<'a>(attempts: impl Iterator<Item = &'a Attempt<'a>> + Clone) -> Rows<'a> {
    let state = |it: &Attempt<'_>| match it.follows {
        Follows::Again(_) => STATES[0],
        Follows::Delivered => STATES[1],
        Follows::Failed => STATES[2],
    };
    let pause = |it: &Attempt<'_>| match it.follows {
        Follows::Again(pause) => Some(micros(pause)),
        Follows::Delivered | Follows::Failed => None,
    };
    let each = || attempts.clone();
    Rows::new()
        .ids("id", each().map(|it| it.due.id))
        .ints("made", each().map(|it| i64::from(it.due.attempts)))
        .optional_ints("pause", each().map(pause))
        .texts("outcome", each().map(state))
        .optional_ints("code", each().map(|it| it.status.map(i64::from)))
        .optional_texts("reason", each().map(|it| it.error))
}

/// Makes a message due once more, with all its attempts; false when the delivery does not exist.
pub async fn send_again(conn: &mut Conn, id: Uuid, by: &Actor) -> Result<bool, Error> {
    let sent = conn.transaction(async |conn| {
        let Some(found) = find(conn, id).await? else {
            return Ok(false);
        };
        let args = [("id", id.into())];
        if conn.execute(&SEND_DELIVERY_AGAIN, &args).await? != 1 {
            return Ok(false);
        }
        action::record(conn, Some(by), Verb::Send, [found.run], None).await?;
        Ok(true)
    });
    sent.await
}
