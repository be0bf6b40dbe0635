//! Deliveries as people and programs see them.
//!
//! Owns: their lists, each of which reads as many rows as it returns and at most as many again for each pipeline,
//! endpoint and state: every filter has an index in its order; and the waiting messages of each endpoint. Never:
//! writes.

use uuid::Uuid;

use crate::machine::webhook::{Unsent, Waits};
use crate::model::*;

use super::{WEBHOOK, attempts};
use crate::store::conn::{Conn, Row};
use crate::store::error::Error;
use crate::store::list;
use crate::store::statement::{Arg, Statement, statements};

macro_rules! columns {
    () => {
        "d.id, d.endpoint, d.run_id, d.event, d.pipeline, d.state, d.attempts, d.created_at, d.due_at, d.tried_at,
               d.status, d.error"
    };
}

// The lists are also ordered by the first column of their index, although they want only one value of it, in a
// form in which PostgreSQL does not notice that: otherwise it may scan the index of ids, and skip the unwanted
// rows.
statements! {
    FIND_DELIVERY = concat!("
        SELECT ", columns!(), " FROM ductwork_deliveries d WHERE d.id = :id");
    /// For each endpoint that any console ever had. Ids begin with the time.
    OLDEST_UNSENT = "
        SELECT w.name AS endpoint, w.seen, d.attempts, d.status, substr(d.error, 1, 1000) AS error,
               CASE WHEN d.attempts = 0 THEN coalesce(d.tried_at, d.created_at) ELSE d.created_at END AS since
          FROM (SELECT h.name, h.seen,
                       (SELECT x.id FROM ductwork_deliveries x
                         WHERE {key:x.endpoint;h.name} AND x.state = 'waiting'
                         ORDER BY x.endpoint, x.id LIMIT 1) AS oldest
                  FROM ductwork_webhooks h) w
          JOIN ductwork_deliveries d ON {key:d.id;w.oldest}
         ORDER BY since, w.name LIMIT :n";
    /// Counts up to a bound.
    COUNT_UNSENT = "
        SELECT count(*) AS n
          FROM (SELECT d.id FROM ductwork_deliveries d
                 WHERE {key:d.endpoint;:endpoint} AND d.state = 'waiting' LIMIT :n) x";
    /// The messages of one endpoint, in the order in which they are sent.
    DELIVERIES_THAT_WAIT = concat!("
        SELECT ", columns!(), "
          FROM ductwork_deliveries d WHERE d.endpoint = :endpoint AND d.due_at IS NOT NULL
         ORDER BY d.endpoint, d.due_at, d.id LIMIT :n");
    DELIVERIES = concat!("
        SELECT ", columns!(), "
          FROM ductwork_deliveries d WHERE d.id >= :from AND d.id < :before ORDER BY d.id DESC LIMIT :n");
    DELIVERIES_OF_STATE = concat!("
        SELECT ", columns!(), "
          FROM ductwork_deliveries d WHERE {key:d.state;:state} AND d.id >= :from AND d.id < :before
         ORDER BY d.state DESC, d.id DESC LIMIT :n");
    DELIVERIES_OF_ENDPOINT = concat!("
        SELECT ", columns!(), "
          FROM ductwork_deliveries d
         WHERE {key:d.endpoint;:endpoint} AND d.state = :state AND d.id >= :from AND d.id < :before
         ORDER BY d.endpoint DESC, d.id DESC LIMIT :n");
    DELIVERIES_OF_PIPELINE = concat!("
        SELECT ", columns!(), "
          FROM ductwork_deliveries d
         WHERE {key:d.pipeline;:pipeline} AND d.endpoint = :endpoint AND d.state = :state
           AND d.id >= :from AND d.id < :before
         ORDER BY d.pipeline DESC, d.id DESC LIMIT :n");
    /// Moves from one endpoint to the next by the index, however many messages each has.
    ENDPOINTS_OF_PIPELINE = "
        WITH RECURSIVE names (endpoint) AS (
            SELECT (SELECT d.endpoint FROM ductwork_deliveries d
                     WHERE {key:d.pipeline;:pipeline} ORDER BY d.pipeline, d.endpoint LIMIT 1)
            UNION ALL
            SELECT (SELECT d.endpoint FROM ductwork_deliveries d
                     WHERE {key:d.pipeline;:pipeline} AND d.endpoint > n.endpoint
                     ORDER BY d.pipeline, d.endpoint LIMIT 1)
              FROM names n WHERE n.endpoint IS NOT NULL)
        SELECT n.endpoint AS name FROM names n WHERE n.endpoint IS NOT NULL", on Mysql [&NEXT_ENDPOINT];
    NEXT_ENDPOINT in Mysql = "
        SELECT d.endpoint AS name FROM ductwork_deliveries d {found:ductwork_deliveries_pipeline}
         WHERE d.pipeline = :pipeline AND d.endpoint > :after ORDER BY d.pipeline, d.endpoint LIMIT 1";
}

/// The states of a delivery.
pub const STATES: [&str; 3] = ["waiting", "delivered", "failed"];

/// A delivery, without its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its key.
    pub id: Uuid,
    /// The endpoint's name.
    pub endpoint: String,
    /// The run.
    pub run: RunId,
    /// The status of the run that it is about.
    pub event: String,
    /// The run's pipeline.
    pub pipeline: String,
    /// `waiting`, `delivered` or `failed`: a newer version may know further ones.
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// µs since 1970.
    pub created_at: i64,
    /// The time from which it may be sent, in µs since 1970.
    pub due_at: Option<i64>,
    /// The time at which the last attempt ended, in µs since 1970.
    pub tried_at: Option<i64>,
    /// The status of the last response.
    pub status: Option<i64>,
    /// The reason why the last attempt failed.
    pub error: Option<String>,
}

impl Delivery {
    fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get("id")?,
            endpoint: row.get("endpoint")?,
            run: RunId(row.get("run_id")?),
            event: row.get("event")?,
            pipeline: row.get("pipeline")?,
            state: row.get("state")?,
            attempts: attempts(row)?,
            created_at: row.get("created_at")?,
            due_at: row.get("due_at")?,
            tried_at: row.get("tried_at")?,
            status: row.get("status")?,
            error: row.get("error")?,
        })
    }
}

/// A delivery of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// One that can be read.
    Delivery(Box<Delivery>),
    /// One whose row is damaged.
    Unreadable(Uuid),
}

impl Listed {
    /// None where the row has no id by which it could be requested.
    fn read(row: &Row) -> Option<Self> {
        match Delivery::read(row) {
            Ok(delivery) => Some(Self::Delivery(Box::new(delivery))),
            Err(_) => row.get("id").ok().map(Self::Unreadable),
        }
    }

    /// Its key.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Delivery(delivery) => delivery.id,
            Self::Unreadable(id) => *id,
        }
    }

    /// The delivery, where it can be read.
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(delivery) => Some(delivery),
            Self::Unreadable(_) => None,
        }
    }
}

/// One delivery.
pub async fn find(conn: &mut Conn, id: Uuid) -> Result<Option<Delivery>, Error> {
    let args = [("id", id.into())];
    let row = conn.fetch_optional(&FIND_DELIVERY, &args).await?;
    row.as_ref().map(Delivery::read).transpose()
}

/// At most this many endpoints are listed.
const ENDPOINTS: usize = 100;

/// The waiting messages of an endpoint are counted up to this number.
pub const COUNTED: usize = 1_000;

/// The waiting messages, by endpoint, first the endpoint whose oldest message has waited longest; messages to
/// endpoints other than these names are counted.
pub async fn unsent(conn: &mut Conn, configured: &[String]) -> Result<Vec<Waits>, Error> {
    let mut all = Vec::new();
    for row in conn
        .fetch(&OLDEST_UNSENT, &[("n", ENDPOINTS.into())])
        .await?
    {
        let endpoint: String = row.get("endpoint")?;
        let is_configured = configured.contains(&endpoint);
        let messages = match is_configured {
            true => None,
            false => {
                let args = [
                    ("endpoint", endpoint.as_str().into()),
                    ("n", COUNTED.into()),
                ];
                let counted = conn.fetch_optional(&COUNT_UNSENT, &args).await?;
                let n = counted.map(|row| row.get::<i64>("n")).transpose()?;
                n.map(i64::unsigned_abs)
            }
        };
        all.push(Waits {
            messages,
            seen: row.get("seen")?,
            oldest: Unsent {
                endpoint,
                since: row.get("since")?,
                attempts: row.count("attempts")?,
                status: row.get("status")?,
                error: row.get("error")?,
            },
        });
    }
    Ok(all)
}

/// The deliveries to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this state only.
    pub state: Option<&'static str>,
    /// To this endpoint only.
    pub endpoint: Option<String>,
    /// About runs of these pipelines only.
    pub pipelines: Option<Vec<String>>,
    /// Older than this one, which is the last of the previous page.
    pub before: Option<Uuid>,
    /// At most this many.
    pub limit: usize,
}

/// Deliveries, newest first. A filter by endpoint or pipeline finds only the states that this version
/// knows.
pub async fn latest(conn: &mut Conn, filter: &Filter) -> Result<Vec<Listed>, Error> {
    let states: Vec<&str> = filter.state.map_or(STATES.to_vec(), |it| vec![it]);
    let endpoint = filter.endpoint.as_deref();
    conn.snapshot(async |conn| {
        let mut list = List {
            found: Vec::new(),
            from: Uuid::nil(),
            filter,
        };
        match (endpoint, &filter.pipelines, filter.state) {
            (None, None, None) => list.read(conn, &DELIVERIES, &[]).await?,
            (None, None, Some(state)) => {
                let of = [("state", state.into())];
                list.read(conn, &DELIVERIES_OF_STATE, &of).await?;
            }
            (Some(endpoint), None, _) => {
                for state in &states {
                    let of = [("endpoint", endpoint.into()), ("state", (*state).into())];
                    list.read(conn, &DELIVERIES_OF_ENDPOINT, &of).await?;
                }
            }
            (_, Some(pipelines), _) => {
                for pipeline in pipelines {
                    let endpoints = match endpoint {
                        Some(endpoint) => vec![endpoint.to_owned()],
                        None => endpoints_of(conn, pipeline).await?,
                    };
                    for (endpoint, state) in endpoints
                        .iter()
                        .flat_map(|it| states.iter().map(move |state| (it, *state)))
                    {
                        let of = [
                            ("pipeline", pipeline.as_str().into()),
                            ("endpoint", endpoint.as_str().into()),
                            ("state", state.into()),
                        ];
                        list.read(conn, &DELIVERIES_OF_PIPELINE, &of).await?;
                    }
                }
            }
        }
        Ok(list.found)
    })
    .await
}

/// The endpoints that have messages about runs of a pipeline.
async fn endpoints_of(conn: &mut Conn, pipeline: &str) -> Result<Vec<String>, Error> {
    list::names(
        conn,
        &ENDPOINTS_OF_PIPELINE,
        &[("pipeline", pipeline.into())],
    )
    .await
}

/// A list that is assembled from several sources.
struct List<'a> {
    found: Vec<Listed>,
    /// No older delivery is listed.
    from: Uuid,
    filter: &'a Filter,
}

impl List<'_> {
    /// Merges the rows of a source. A full list limits the request to the next source.
    async fn read(
        &mut self,
        conn: &mut Conn,
        source: &Statement,
        of: &[(&'static str, Arg<'_>)],
    ) -> Result<(), Error> {
        let limit = self.filter.limit;
        // A row without an id is not listed, and takes no other row's place.
        let mut more = 0;
        let rows = loop {
            let mut args = vec![
                ("from", self.from.into()),
                ("before", self.filter.before.unwrap_or(Uuid::max()).into()),
                ("n", (limit + more).into()),
            ];
            args.extend_from_slice(of);
            let rows = conn.fetch(source, &args).await?;
            let unnamed = rows
                .iter()
                .filter(|it| it.get::<Uuid>("id").is_err())
                .count();
            if unnamed == more || rows.len() < limit + more {
                break rows;
            }
            more = unnamed;
        };
        self.found.extend(rows.iter().filter_map(Listed::read));
        self.found.sort_by_key(|it| std::cmp::Reverse(it.id()));
        self.found.truncate(limit);
        if let Some(last) = self.found.last().filter(|_| self.found.len() == limit) {
            self.from = last.id();
        }
        Ok(())
    }
}

/// At most this many waiting messages of an endpoint are listed.
pub const LINE: usize = 100;

/// An endpoint, and its waiting messages.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The runs that had ended by this time have been found, in µs since 1970.
    pub seen: i64,
    /// The first ones due, at most `LINE`.
    pub waiting: Vec<Listed>,
}

/// Those of these endpoints for which anybody has looked for runs.
pub async fn lines(conn: &mut Conn, names: &[String]) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    for name in names {
        let args = [("name", name.as_str().into())];
        let Some(row) = conn.fetch_optional(&WEBHOOK, &args).await? else {
            continue;
        };
        let args = [("endpoint", name.as_str().into()), ("n", LINE.into())];
        let rows = conn.fetch(&DELIVERIES_THAT_WAIT, &args).await?;
        lines.push(Line {
            name: name.clone(),
            seen: row.get("seen")?,
            waiting: rows.iter().filter_map(Listed::read).collect(),
        });
    }
    Ok(lines)
}
