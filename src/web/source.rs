//! The console reads through one connection, and acts through another.
//!
//! Owns: these connections, of which the first writes nothing; one question after the other, each with its
//! budget; reconnecting after an outage. Never: knows the subject of a question, or retries one that took too
//! long.
//!
//! The connection belongs to one task, and questions are sent to it. So a route's own future need not hold a
//! connection, and a question whose visitor has gone is no longer asked. Visitors take turns.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::store::{Conn, Error, Location, Purpose, patience, query};
use crate::task;
use crate::telemetry;
use crate::telemetry::growing::Growing;

use super::guard::caught;
use super::turns::{self, Lines};

/// The time limit of a question, all its statements together. The database itself ends one statement a little
/// sooner, and then the connection can be used again.
const BUDGET: Duration = Duration::from_millis(patience::PAGE.as_millis() as u64 * 9 / 8);

/// The time limit of an action: a little less than a route's.
pub const ACTS_WITHIN: Duration = Duration::from_millis(4_500);

/// A connection that acts is kept for this long after the last action.
const IDLE: Duration = Duration::from_secs(30);

/// A connection that has answered within this time needs no look before an action.
pub const FRESH: Duration = Duration::from_millis(500);

/// The same before a page. It is read again where its connection was lost; only one that is silent would make it late.
pub const FRESH_FOR_READS: Duration = Duration::from_secs(5);

/// A connection that does not answer such a look within this time is given up.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// The number of questions of visitors that may wait, and of the console's own; further ones are refused.
const WAITING: usize = 64;

/// After a failed attempt, nobody tries to connect for this long.
const PAUSE: Duration = Duration::from_millis(500);

/// The line of the log about a question that got no answer in time.
const LATE: &str = "the database did not answer the console in time";

/// The reason why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The database cannot be reached, or lets nobody in.
    #[error("the database cannot be reached")]
    Away(#[source] Error),
    /// The server, or the session, takes no writes. This transaction did nothing.
    #[error("the database takes no writes at the moment")]
    OnlyReads(#[source] Error),
    /// The environment of the database prevents it: a right, a disk, memory.
    #[error("the database cannot do this at the moment")]
    Hindered(#[source] Error),
    /// It took too long, or another session was in the way: the same question may succeed a little later.
    #[error("the database could not answer in time")]
    Late,
    /// Too many questions wait: it would take too long.
    #[error("too many questions wait for the database")]
    Crowded,
    /// A row is damaged, or only a newer version can read it.
    #[error("a row of this is damaged, or cannot be read by this version")]
    Unreadable(#[source] Error),
    /// The database refused the question.
    #[error("the database cannot answer this")]
    Failed(#[source] Error),
    /// The question itself failed, and only the console is to blame.
    #[error("the console failed at this")]
    Panicked,
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        match error {
            error if error.only_reads() => Self::OnlyReads(error),
            error if error.is_unavailable() => Self::Away(error),
            error if error.is_of_environment() => Self::Hindered(error),
            error if error.is_not_now() => Self::Late,
            // A row went while it was read: the next look finds it or not.
            Error::Gone(_) => Self::Late,
            error @ (Error::Corrupt(_) | Error::Damaged { .. }) => Self::Unreadable(error),
            error => Self::Failed(error),
        }
    }
}

/// Receives the statement that the database refuses for a reason that lies in the database, or the word for a connection,
/// and the reason; without a reason, it is refused no more.
pub type Refused = Arc<dyn Fn(&str, Option<&str>) + Send + Sync>;

const CONNECTION: &str = "a connection";

/// Sends questions to the connection. Clones share the connection.
#[derive(Clone)]
pub struct Source {
    lines: Arc<Mutex<Lines<Question>>>,
    /// Announces each question that joins a line; it may have left since.
    joined: mpsc::UnboundedSender<()>,
}

/// Receives the questions.
struct Asked {
    lines: Arc<Mutex<Lines<Question>>>,
    joined: mpsc::UnboundedReceiver<()>,
}

impl Drop for Asked {
    /// Nobody answers any more: those who wait are told so.
    fn drop(&mut self) {
        self.joined.close();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.clear();
    }
}

impl Asked {
    /// Waits for the next question; none if nobody can ask any more.
    async fn next(&mut self) -> Option<Question> {
        loop {
            self.joined.recv().await?;
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            // The question that was announced may have left.
            if let Some(question) = lines.next() {
                return Some(question);
            }
        }
    }
}

impl Source {
    /// The source of this database. It connects when it gets a question.
    pub fn open(location: Location, refused: Refused) -> Self {
        let (source, mut asked) = Self::new();
        task::local(async move {
            let mut reader = Reader::new(location, Use::Reads, refused);
            while let Some(question) = asked.next().await {
                reader.answer(question).await;
            }
        });
        source
    }

    fn new() -> (Self, Asked) {
        let lines = Arc::new(Mutex::new(Lines::new(WAITING)));
        let (sender, receiver) = mpsc::unbounded_channel();
        let source = Self {
            lines: Arc::clone(&lines),
            joined: sender,
        };
        let asked = Asked {
            lines,
            joined: receiver,
        };
        (source, asked)
    }

    /// The source of a connection that acts. The connection exists only while somebody acts, and each question
    /// to it is asked once.
    pub fn that_acts(location: Location, refused: Refused) -> Self {
        Self::acting(location, Use::Acts, refused)
    }

    /// The same for what the console does by itself.
    pub fn of_duties(location: Location, refused: Refused) -> Self {
        Self::acting(location, Use::Duties, refused)
    }

    /// The same for the actions in many runs, one run after the other.
    pub fn of_bulk(location: Location, refused: Refused) -> Self {
        Self::acting(location, Use::Bulk, refused)
    }

    fn acting(location: Location, used_for: Use, refused: Refused) -> Self {
        let (source, mut asked) = Self::new();
        task::local(async move {
            let mut reader = Reader::new(location, used_for, refused);
            loop {
                let next = match reader.conn.is_some() {
                    true => tokio::time::timeout(IDLE, asked.next()).await,
                    false => Ok(asked.next().await),
                };
                match next {
                    Ok(Some(question)) => reader.answer(question).await,
                    Ok(None) => return,
                    Err(_) => reader.conn = None,
                }
            }
        });
        source
    }

    /// Asks: `source.read(async move |conn| query::runs(conn, &filter).await).await`. If the connection turns
    /// out to be lost, the question is asked once more, so it must change nothing but its return value.
    ///
    /// # Errors
    /// See [`ReadError`]; each has a response of its own.
    pub async fn read<T: Send + 'static>(
        &self,
        ask: impl AsyncFn(&mut Conn) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ReadError> {
        let ask = async move |conn: &mut Conn| {
            let answer = ask(conn).await?;
            Ok(Box::new(answer) as Answer)
        };
        let answer = self.answer(Box::new(ask)).await?;
        // It is of the type that `ask` has just given it.
        let answer = answer.downcast().map_err(|_| ReadError::Panicked)?;
        Ok(*answer)
    }

    async fn answer(&self, ask: Box<dyn Ask>) -> Result<Answer, ReadError> {
        let (reply, answer) = oneshot::channel();
        self.join(Question { ask, reply })?;
        // A reader that is gone has dropped the question, and the reply channel with it.
        answer.await.unwrap_or(Err(ReadError::Late))
    }

    fn join(&self, question: Question) -> Result<(), ReadError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if self.joined.is_closed() {
            return Err(ReadError::Late);
        }
        // Otherwise the questions of visitors who have gone keep their places, and others of the same name or address are
        // refused.
        lines.retain(|question| !question.reply.is_closed());
        match lines.join(turns::who(), question) && self.joined.send(()).is_ok() {
            true => Ok(()),
            false => Err(ReadError::Crowded),
        }
    }
}

/// An answer of any type. There are a hundred types: the channel and the lines need not be compiled for each.
type Answer = Box<dyn Any + Send>;

/// A question, and the one who asked it.
struct Question {
    ask: Box<dyn Ask>,
    reply: oneshot::Sender<Result<Answer, ReadError>>,
}

trait Ask: Send {
    /// Asks the question.
    fn ask<'a>(
        &'a self,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Error>> + 'a>>;
}

impl<F> Ask for F
where
    F: AsyncFn(&mut Conn) -> Result<Answer, Error> + Send,
{
    fn ask<'a>(
        &'a self,
        conn: &'a mut Conn,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Error>> + 'a>> {
        Box::pin(self(conn))
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Acts,
    Duties,
    Bulk,
}

/// The owner of the connection.
struct Reader {
    location: Location,
    used_for: Use,
    refused: Refused,
    conn: Option<Conn>,
    /// The time of the last answer.
    answered: Instant,
    /// The time and the error of the last attempt to connect, if it failed.
    failed: Option<(Instant, Error)>,
    /// The failures of questions, which pages ask every few seconds: the statement and the text.
    failures: Growing<(Option<&'static str>, String)>,
}

impl Reader {
    fn new(location: Location, used_for: Use, refused: Refused) -> Self {
        Self {
            location,
            used_for,
            refused,
            conn: None,
            answered: Instant::now(),
            failed: None,
            failures: Growing::default(),
        }
    }

    async fn answer(&mut self, question: Question) {
        let Question { ask, reply } = question;
        if reply.is_closed() {
            return;
        }
        let is_asked_again = self.used_for == Use::Reads && self.conn.is_some();
        let answer = match self.ask(ask.as_ref()).await {
            // Nothing had shown that the connection was lost.
            Err(ReadError::Away(_)) if is_asked_again => self.ask(ask.as_ref()).await,
            answer => answer,
        };
        // The visitor may have gone.
        let _ = reply.send(answer);
    }

    async fn ask(&mut self, question: &dyn Ask) -> Result<Answer, ReadError> {
        let budget = match self.used_for {
            Use::Reads => BUDGET,
            Use::Acts | Use::Duties | Use::Bulk => ACTS_WITHIN,
        };
        let catches_up = self.used_for != Use::Reads;
        let began = Instant::now();
        let fresh = match self.used_for {
            Use::Reads => FRESH_FOR_READS,
            Use::Acts | Use::Duties | Use::Bulk => FRESH,
        };
        self.look_at_idle(fresh).await;
        let conn = match self.connected().await {
            Ok(conn) => conn,
            Err(error) if error.only_reads() => return Err(ReadError::OnlyReads(error)),
            Err(error) => return Err(ReadError::Away(error)),
        };
        let left = budget.saturating_sub(began.elapsed());
        let answer = async {
            // On a cluster, somebody may refer to what another node has just acknowledged.
            if catches_up {
                conn.catch_up().await?;
            }
            question.ask(conn).await
        };
        // RACE: a question that panics would take the connection's owner along, and everybody who asks later
        // would be told that others wait. Proven by `a_question_that_panics_is_its_own_matter`.
        let Some(asked) = caught(tokio::time::timeout(left, answer)).await else {
            self.conn = None;
            tracing::error!("a question of the console to the database panicked");
            return Err(ReadError::Panicked);
        };
        let is_usable = asked.is_ok() && !conn.is_broken();
        let error = match asked {
            Ok(Ok(answer)) => {
                self.answered = Instant::now();
                return Ok(answer);
            }
            // RACE: on a busy machine, the connection gives up in the same moment, which does not mean that the database
            // cannot be reached. Raced by `the_console_reads_and_writes_nothing_and_no_question_takes_long`.
            Ok(Err(error)) if error.is_unavailable() && began.elapsed() >= budget => None,
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        if !is_usable {
            // The connection stopped in the middle of a question: it must not be used again.
            self.conn = None;
        }
        let Some(error) = error else {
            let key = (None, LATE.to_owned());
            if self.failures.meet(&key, Instant::now()).is_some() {
                tracing::info!("{LATE}");
            }
            return Err(ReadError::Late);
        };
        let chain = telemetry::chain(&error);
        let statement = error.statement();
        let refused = ReadError::from(error);
        // A setting with which this session began may be the cause.
        if matches!(
            refused,
            ReadError::OnlyReads(_) | ReadError::Hindered(_) | ReadError::Failed(_)
        ) {
            self.conn = None;
        }
        let key = (statement, chain.clone());
        let is_new = self.failures.meet(&key, Instant::now()).is_some();
        match refused {
            // If the next connection is refused as well, that is reported.
            ReadError::Away(_) => {}
            ReadError::OnlyReads(_) | ReadError::Hindered(_) => {
                self.report(statement.unwrap_or_default(), Some(&chain))
            }
            // Nobody waits for the answer who could be told.
            ReadError::Failed(_) | ReadError::Unreadable(_) if self.acts_by_itself() => {
                self.report(statement.unwrap_or_default(), Some(&chain))
            }
            _ if !is_new => {}
            ReadError::Late => {
                tracing::info!(error = chain, statement, "{LATE}");
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

    /// Gives up a connection that was lost, or fell silent, while nobody used it: an action is asked for once, and its
    /// failure would leave open whether it was carried out. Proven by
    /// `the_first_act_after_an_outage_finds_a_connection` and `the_first_page_after_a_silence_finds_a_connection`.
    async fn look_at_idle(&mut self, fresh: Duration) {
        if self.answered.elapsed() < fresh {
            return;
        }
        if let Some(conn) = &mut self.conn {
            let answers = tokio::time::timeout(ANSWERS_WITHIN, query::now(conn)).await;
            if !matches!(answers, Ok(Ok(_))) {
                self.conn = None;
            }
        }
    }

    async fn connected(&mut self) -> Result<&mut Conn, Error> {
        let conn = match self.conn.take().filter(|conn| !conn.is_broken()) {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(self.conn.insert(conn))
    }

    /// True where no person asks.
    fn acts_by_itself(&self) -> bool {
        matches!(self.used_for, Use::Duties | Use::Bulk)
    }

    /// Reports a refusal, or its end. The person whose page cannot be read is told by the page.
    fn report(&self, statement: &str, why: Option<&str>) {
        if self.used_for != Use::Reads {
            (self.refused)(statement, why);
        }
    }

    async fn connect(&mut self) -> Result<Conn, Error> {
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let purpose = match self.used_for {
            Use::Reads => Purpose::Page,
            Use::Acts | Use::Duties => Purpose::Engine,
            Use::Bulk => Purpose::Bulk,
        };
        let attempt = self.location.connect(purpose);
        let connected = match tokio::time::timeout(BUDGET, attempt).await {
            Ok(connected) => connected,
            Err(_) => Err(Error::too_late(BUDGET)),
        };
        let failed = connected.as_ref().err();
        self.failed = failed.map(|error| (Instant::now(), error.clone()));
        let why = connected
            .as_ref()
            .err()
            .map(|error| telemetry::chain(error));
        self.report(CONNECTION, why.as_deref());
        connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_have_gone_leave_their_places_to_others() {
        let (source, mut asked) = Source::new();
        let ask = || source.read(async |_: &mut Conn| Ok(()));
        for _ in 0..2 * WAITING {
            let gone = tokio::time::timeout(Duration::ZERO, ask()).await;
            assert!(gone.is_err(), "it waits, and goes: {gone:?}");
        }
        let waits = tokio::spawn({
            let source = source.clone();
            async move { source.read(async |_: &mut Conn| Ok(())).await }
        });
        // Its question joins the line.
        tokio::task::yield_now().await;
        let question = asked.next().await.expect("one question waits");
        assert!(!question.reply.is_closed());
        assert!(question.reply.send(Ok(Box::new(()))).is_ok());
        assert!(waits.await.expect("it ends").is_ok());
    }
}
