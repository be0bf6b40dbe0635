//! Counts over time: the points of each pipeline, by minute and by hour, and the look from which the next ones follow.
//!
//! Owns: their rows. Never: counts anything, or decides what a point contains (`metrics::series`).
//!
//! Points are written with the look that they follow from, in one transaction, and only if that look follows the
//! stored one: when two processes look at once, or one comes late, only one writes. So nothing is counted twice, and
//! counts that nobody has written are found by the next look.

use std::time::Duration;

use crate::metrics::Histogram;
use crate::metrics::series::{Grain, Looked, Point, Sum};

use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::statement::{Rows, statements};

/// How long points of minutes are kept.
pub const MINUTES_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long points of hours are kept.
pub const HOURS_FOR: Duration = Duration::from_secs(400 * 24 * 3600);

/// One statement forgets at most this many.
const FORGOTTEN_AT_ONCE: usize = 1_000;

/// How many such statements one turn runs: these forget more than an hour brings.
const TURNS: usize = 20;

/// How many points of all pipelines are read at once: those of a day and a bit, for as many pipelines as have series.
const READ_MAX: usize = 10_000;

macro_rules! columns {
    () => {
        "s.pipeline, s.grain, s.at, s.since, s.started, s.completed, s.halted, s.retries"
    };
}

statements! {
    SERIES_LOOK = "
        SELECT l.turn, l.body FROM ductwork_series_looks l WHERE l.id = 1";
    BEGIN_SERIES = "
        INSERT INTO ductwork_series_looks (id, turn, body) VALUES (1, 0, :body)
        {keep:ductwork_series_looks;id}";
    /// RACE: two consoles have looked at the sums at once, or one was delayed and writes counts that another has
    /// written by now. The second finds another turn, and writes nothing. Proven by
    /// `of_two_who_tell_the_same_minute_one_does_and_nothing_is_counted_twice`.
    FOLLOW_SERIES = "
        UPDATE ductwork_series_looks SET turn = turn + 1, body = :body WHERE id = 1 AND turn = :turn";
    /// An existing minute was written before a clock was set back: its counts are kept, and the newer times replace
    /// its times.
    ADD_SERIES = "
        INSERT INTO ductwork_series (pipeline, grain, at, since, started, completed, halted, retries, waited, lasted)
        SELECT b.pipeline, b.grain, b.at, b.since, b.started, b.completed, b.halted, b.retries, b.waited, b.lasted
          FROM {rows:b(pipeline text, grain text, at int, since int, started int, completed int, halted int, retries int,
                       waited text, lasted text)} WHERE true
        {replace:pipeline, grain, at}
               started = ductwork_series.started + {new:started},
               completed = ductwork_series.completed + {new:completed},
               halted = ductwork_series.halted + {new:halted},
               retries = ductwork_series.retries + {new:retries},
               waited = {new:waited}, lasted = {new:lasted}";
    FORGET_SERIES = "
        DELETE FROM ductwork_series
         WHERE (pipeline, grain, at) IN (SELECT s.pipeline, s.grain, s.at FROM ductwork_series s
                WHERE s.grain = :grain AND s.at <= {now} - :age ORDER BY s.grain, s.at LIMIT :n)",
        on Mysql [&FORGET_OLDEST];
    FORGET_OLDEST in Mysql = "
        DELETE FROM ductwork_series
         WHERE grain = :grain AND at <= {now} - :age ORDER BY grain, at LIMIT :n";
    // A damaged row may have texts of any length: this bounds how much of them is read.
    SERIES_OF_PIPELINE = concat!("
        SELECT ", columns!(), ", substr(s.waited, 1, 10000) AS waited, substr(s.lasted, 1, 10000) AS lasted
          FROM ductwork_series s
         WHERE s.pipeline = :pipeline AND s.grain = :grain AND s.at >= :from AND s.at < :before
         ORDER BY s.pipeline DESC, s.grain DESC, s.at DESC LIMIT :n");
    /// Reads the times of the latest points only: they are most of a row.
    SERIES_OF_ALL = concat!("
        SELECT ", columns!(), ",
               CASE WHEN s.at >= :lately THEN substr(s.waited, 1, 10000) END AS waited,
               CASE WHEN s.at >= :lately THEN substr(s.lasted, 1, 10000) END AS lasted
          FROM ductwork_series s
         WHERE s.grain = :grain AND s.at >= :from AND s.at < :before ORDER BY s.grain, s.at LIMIT :n");
}

/// The stored look, and the number of looks that have written points before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub turn: i64,
    /// The look; none where it cannot be read.
    pub looked: Option<Looked>,
}

/// The last look that has written points; none before the first.
pub async fn last(conn: &mut Conn) -> Result<Option<Stored>, Error> {
    let row = conn.fetch_optional(&SERIES_LOOK, &[]).await?;
    let stored = |row: Row| {
        let body: String = row.get("body")?;
        Ok(Stored {
            turn: row.get("turn")?,
            looked: serde_json::from_str(&body).ok(),
        })
    };
    row.map(stored).transpose()
}

/// Stores the very first look, where none is stored yet.
pub async fn begin(conn: &mut Conn, looked: &Looked) -> Result<(), Error> {
    let body = body(looked);
    conn.execute(&BEGIN_SERIES, &[("body", (&body).into())])
        .await?;
    Ok(())
}

/// Writes points with the look that they follow from, which follows the look of this turn. False: another process has
/// continued from there, and nothing was written.
pub async fn follow(
    conn: &mut Conn,
    turn: i64,
    looked: &Looked,
    points: &[Point],
) -> Result<bool, Error> {
    let body = body(looked);
    let times = |point: &Point| [text(&point.sum.waited), text(&point.sum.lasted)];
    let times: Vec<[Option<String>; 2]> = points.iter().map(times).collect();
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let sums = || points.iter().map(|it| &it.sum);
    let rows = Rows::new()
        .texts("pipeline", points.iter().map(|it| it.pipeline.as_str()))
        .texts("grain", points.iter().map(|it| it.grain.as_str()))
        .ints("at", points.iter().map(|it| it.at))
        .ints("since", points.iter().map(|it| it.since))
        .ints("started", sums().map(|it| number(it.started)))
        .ints("completed", sums().map(|it| number(it.completed)))
        .ints("halted", sums().map(|it| number(it.halted)))
        .ints("retries", sums().map(|it| number(it.retries)))
        .optional_texts("waited", times.iter().map(|it| it[0].as_deref()))
        .optional_texts("lasted", times.iter().map(|it| it[1].as_deref()));
    conn.transaction(async |conn| {
        let args = [("turn", turn.into()), ("body", (&body).into())];
        if conn.execute(&FOLLOW_SERIES, &args).await? == 0 {
            return Ok(false);
        }
        if !points.is_empty() {
            conn.execute(&ADD_SERIES, &[("b", (&rows).into())]).await?;
        }
        Ok(true)
    })
    .await
}

fn body(looked: &Looked) -> String {
    serde_json::to_string(looked).expect("texts and numbers are JSON")
}

fn text(times: &Histogram) -> Option<String> {
    let text = || serde_json::to_string(times).expect("numbers are JSON");
    (times.count() > 0).then(text)
}

/// Forgets points that are too old, at most as many as one turn may.
pub async fn forget(conn: &mut Conn) -> Result<(), Error> {
    for (grain, age) in [(Grain::Minute, MINUTES_FOR), (Grain::Hour, HOURS_FOR)] {
        let args = [
            ("grain", grain.as_str().into()),
            ("age", micros(age).into()),
            ("n", FORGOTTEN_AT_ONCE.into()),
        ];
        for _ in 0..TURNS {
            let forgotten = conn.execute(&FORGET_SERIES, &args).await?;
            if forgotten < FORGOTTEN_AT_ONCE as u64 {
                break;
            }
        }
    }
    Ok(())
}

/// Points of a pipeline, newest first: at most `n` that begin at `from` or later and before `before`.
pub async fn of_pipeline(
    conn: &mut Conn,
    pipeline: &str,
    grain: Grain,
    (from, before): (i64, i64),
    n: usize,
) -> Result<Vec<Point>, Error> {
    let args = [
        ("pipeline", pipeline.into()),
        ("grain", grain.as_str().into()),
        ("from", from.into()),
        ("before", before.into()),
        ("n", n.into()),
    ];
    let rows = conn.fetch(&SERIES_OF_PIPELINE, &args).await?;
    rows.iter().map(|row| point(row, grain)).collect()
}

/// Points of all pipelines, oldest first, that begin at `from` or later and before `before`; their times are included
/// from `lately` on.
pub async fn of_all(
    conn: &mut Conn,
    grain: Grain,
    (from, before): (i64, i64),
    lately: i64,
) -> Result<Vec<Point>, Error> {
    let args = [
        ("grain", grain.as_str().into()),
        ("from", from.into()),
        ("before", before.into()),
        ("lately", lately.into()),
        ("n", READ_MAX.into()),
    ];
    let rows = conn.fetch(&SERIES_OF_ALL, &args).await?;
    rows.iter().map(|row| point(row, grain)).collect()
}

fn point(row: &Row, grain: Grain) -> Result<Point, Error> {
    let number = |name| Ok::<u64, Error>(u64::try_from(row.get::<i64>(name)?).unwrap_or_default());
    let times = |name| {
        let text: Option<String> = row.get(name)?;
        // Times that cannot be read count as none.
        let read = text.and_then(|text| serde_json::from_str(&text).ok());
        Ok::<Histogram, Error>(read.unwrap_or_default())
    };
    Ok(Point {
        pipeline: row.get("pipeline")?,
        grain,
        at: row.get("at")?,
        since: row.get("since")?,
        sum: Sum {
            started: number("started")?,
            completed: number("completed")?,
            halted: number("halted")?,
            retries: number("retries")?,
            waited: times("waited")?,
            lasted: times("lasted")?,
        },
    })
}
