//! All that the console reads goes through one connection, and all that it does through another.
//!
//! Owns: these connections, of which the first writes nothing; one question after the other, each with its
//! budget; coming back after an outage. Never: knows what a question is about, or retries what took too long.
//!
//! The connection belongs to one task, and questions travel to it, so a route's own future need not hold a
//! connection, and one whose visitor has gone is not asked any more.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::store::{Conn, Error, Location, Purpose, patience};
use crate::telemetry;

use super::guard::caught;

/// A question may take so long, all its statements together; the database ends one statement a little sooner
/// by itself, and then the connection can be used again.
const BUDGET: Duration = Duration::from_millis(patience::PAGE.as_millis() as u64 * 9 / 8);

/// An action has so long: a little less than a route.
const ACTS_WITHIN: Duration = Duration::from_millis(4_500);

/// A connection that acts is kept for so long after the last action.
const IDLE: Duration = Duration::from_secs(30);

/// So many questions may wait; with more, those who ask are sent away.
const WAITING: usize = 64;

/// For so long after a failed attempt nobody tries to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The database cannot be reached, or cannot be used as it is.
    #[error("the database cannot be reached")]
    Away(#[source] Error),
    /// It took too long, or somebody else was in the way: the same may be possible a little later.
    #[error("the database could not answer in time")]
    Late,
    /// So many wait that it would take too long.
    #[error("too many questions wait for the database")]
    Crowded,
    /// A row of it is damaged, or only a newer version can read it.
    #[error("a row of this is damaged, or cannot be read by this version")]
    Unreadable(#[source] Error),
    /// The database refused the question.
    #[error("the database cannot answer this")]
    Failed(#[source] Error),
    /// The question itself failed, and nobody is to blame but the console.
    #[error("the console failed at this")]
    Panicked,
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        match error {
            error if error.is_unavailable() => Self::Away(error),
            error if error.is_not_now() => Self::Late,
            error @ (Error::Corrupt(_) | Error::Damaged { .. }) => Self::Unreadable(error),
            error => Self::Failed(error),
        }
    }
}

/// The way to the connection. Clones lead to the same one.
#[derive(Clone)]
pub struct Source {
    questions: mpsc::Sender<Box<dyn Question>>,
}

impl Source {
    /// The source of this database. It connects when it is asked something.
    pub fn open(location: Location) -> Self {
        let (questions, mut asked) = mpsc::channel::<Box<dyn Question>>(WAITING);
        tokio::task::spawn_local(async move {
            let mut reader = Reader::new(location, Use::Reads);
            while let Some(question) = asked.recv().await {
                reader.answer(question).await;
            }
        });
        Self { questions }
    }

    /// The way to a connection that acts. It is there only while somebody acts, and whatever is asked through
    /// it is asked once.
    pub fn that_acts(location: Location) -> Self {
        Self::acting(location, Use::Acts)
    }

    /// The same, for one run of many after the other.
    pub fn of_bulk(location: Location) -> Self {
        Self::acting(location, Use::Bulk)
    }

    fn acting(location: Location, used_for: Use) -> Self {
        let (questions, mut asked) = mpsc::channel::<Box<dyn Question>>(WAITING);
        tokio::task::spawn_local(async move {
            let mut reader = Reader::new(location, used_for);
            loop {
                let next = match reader.conn.is_some() {
                    true => tokio::time::timeout(IDLE, asked.recv()).await,
                    false => Ok(asked.recv().await),
                };
                match next {
                    Ok(Some(question)) => reader.answer(question).await,
                    Ok(None) => return,
                    Err(_) => reader.conn = None,
                }
            }
        });
        Self { questions }
    }

    /// Asks: `source.read(async move |conn| query::runs(conn, &filter).await).await`. A question that was
    /// asked through a connection that turned out to be lost is asked once more, so it must change nothing
    /// but what it returns.
    ///
    /// # Errors
    /// See [`ReadError`]; each has a response of its own.
    pub async fn read<T: Send + 'static>(
        &self,
        ask: impl AsyncFn(&mut Conn) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ReadError> {
        let (reply, answer) = oneshot::channel();
        let reply = Some(reply);
        let question = Box::new(Asked { ask, reply });
        self.questions
            .try_send(question)
            .map_err(|_| ReadError::Crowded)?;
        // A question that panicked has taken its way back along, and its task.
        answer.await.unwrap_or(Err(ReadError::Late))
    }
}

/// A question, whatever its answer is.
trait Question: Send {
    /// True when nobody waits for the answer any more.
    fn is_forgotten(&self) -> bool;

    /// Asks it. The answer goes its way, an error comes back.
    fn ask<'a>(
        &'a mut self,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

    /// Says that there is none.
    fn refuse(&mut self, error: ReadError);
}

struct Asked<F, T> {
    ask: F,
    /// Used once.
    reply: Option<oneshot::Sender<Result<T, ReadError>>>,
}

impl<F, T> Asked<F, T> {
    fn reply(&mut self, answer: Result<T, ReadError>) {
        if let Some(reply) = self.reply.take() {
            // The visitor may have gone.
            let _ = reply.send(answer);
        }
    }
}

impl<F, T> Question for Asked<F, T>
where
    F: AsyncFn(&mut Conn) -> Result<T, Error> + Send,
    T: Send,
{
    fn is_forgotten(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn ask<'a>(
        &'a mut self,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>> {
        Box::pin(async move {
            let answer = (self.ask)(conn).await?;
            self.reply(Ok(answer));
            Ok(())
        })
    }

    fn refuse(&mut self, error: ReadError) {
        self.reply(Err(error));
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Acts,
    Bulk,
}

/// The owner of the connection.
struct Reader {
    location: Location,
    used_for: Use,
    conn: Option<Conn>,
    /// The last attempt to connect has failed, then.
    failed: Option<(Instant, Error)>,
}

impl Reader {
    fn new(location: Location, used_for: Use) -> Self {
        Self {
            location,
            used_for,
            conn: None,
            failed: None,
        }
    }

    async fn answer(&mut self, mut question: Box<dyn Question>) {
        if question.is_forgotten() {
            return;
        }
        let is_asked_again = self.used_for == Use::Reads && self.conn.is_some();
        let answered = match self.ask(question.as_mut()).await {
            // Nobody had told us that the connection was gone.
            Err(ReadError::Away(_)) if is_asked_again => self.ask(question.as_mut()).await,
            answered => answered,
        };
        if let Err(error) = answered {
            question.refuse(error);
        }
    }

    async fn ask(&mut self, question: &mut dyn Question) -> Result<(), ReadError> {
        let budget = match self.used_for {
            Use::Reads => BUDGET,
            Use::Acts | Use::Bulk => ACTS_WITHIN,
        };
        let conn = self.connected().await.map_err(ReadError::Away)?;
        // RACE: a question that panics would take the connection's owner along, and all who ask later would be
        // told that others wait. Proven by `a_question_that_panics_is_its_own_matter`.
        let Some(asked) = caught(tokio::time::timeout(budget, question.ask(conn))).await else {
            self.conn = None;
            tracing::error!("a question of the console to the database panicked");
            return Err(ReadError::Panicked);
        };
        let is_usable = asked.is_ok() && !conn.is_broken();
        let error = match asked {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        if !is_usable {
            // In the middle of a question: it must not be asked anything any more.
            self.conn = None;
        }
        let Some(error) = error else {
            tracing::info!("the database did not answer the console in time");
            return Err(ReadError::Late);
        };
        let chain = telemetry::chain(&error);
        let statement = error.statement();
        let refused = ReadError::from(error);
        match refused {
            // The lifeline tells of an outage.
            ReadError::Away(_) => {}
            ReadError::Late => {
                tracing::info!(
                    error = chain,
                    statement,
                    "the database did not answer the console in time"
                );
            }
            ReadError::Unreadable(_) => {
                tracing::warn!(error = chain, statement, "the console cannot read a row")
            }
            _ => tracing::error!(
                error = chain,
                statement,
                "the database cannot answer the console"
            ),
        }
        Err(refused)
    }

    async fn connected(&mut self) -> Result<&mut Conn, Error> {
        let conn = match self.conn.take().filter(|conn| !conn.is_broken()) {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(self.conn.insert(conn))
    }

    async fn connect(&mut self) -> Result<Conn, Error> {
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let purpose = match self.used_for {
            Use::Reads => Purpose::Page,
            Use::Acts => Purpose::Engine,
            Use::Bulk => Purpose::Bulk,
        };
        let attempt = self.location.connect(purpose);
        let connected = match tokio::time::timeout(BUDGET, attempt).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::too_late(BUDGET)),
        };
        let failed = connected.as_ref().err();
        self.failed = failed.map(|error| (Instant::now(), error.clone()));
        connected
    }
}
