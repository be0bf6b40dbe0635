//! Tokens of the console's visitors, links that let a browser in, and the sessions of browsers.
//!
//! Owns: their rows, and the guarantee that a link is used only once. Never: sees a secret (it receives
//! digests), or decides what a scope allows.

use std::time::Duration;

use crate::model::*;

use super::conn::{Conn, Row};
use super::error::Error;
use super::micros;
use super::statement::{Rows, statements};

/// How many ended sessions and links are forgotten whenever a new one is made.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// How long a browser is let in.
pub const LET_IN_FOR: Duration = Duration::from_secs(12 * 60 * 60);

macro_rules! token_columns {
    () => {
        "t.id, t.kind, t.name, t.digest, t.scope, t.pipelines, t.created_at, t.created_by, t.expires_at,
               t.ended_at, t.parent, t.payloads, {now} AS seen_at, p.kind AS parent_kind, p.ended_at AS parent_ended_at,
               p.expires_at AS parent_expires_at"
    };
}

statements! {
    CREATE_TOKEN = "
        INSERT INTO ductwork_tokens (id, kind, name, digest, scope, pipelines, created_at, created_by, expires_at, parent,
                                     payloads)
        VALUES (:id, :kind, :name, :digest, :scope, :pipelines, {now}, :by, {now} + :valid, :parent, :payloads)";
    FIND_TOKEN = concat!("
        SELECT ", token_columns!(), "
          FROM ductwork_tokens t LEFT JOIN ductwork_tokens p ON {key:p.id;t.parent}
         WHERE t.id = :id");
    FIND_TOKENS = concat!("
        SELECT ", token_columns!(), "
          FROM {rows:b(id text)}
          JOIN ductwork_tokens t ON {key:t.id;b.id}
          LEFT JOIN ductwork_tokens p ON {key:p.id;t.parent}");
    TOKENS = concat!("
        SELECT ", token_columns!(), "
          FROM ductwork_tokens t LEFT JOIN ductwork_tokens p ON {key:p.id;t.parent}
         WHERE t.id > :after ORDER BY t.id LIMIT :n");
    /// RACE: two browsers open one link at the same moment. Both write its row; one of them finds it unused.
    /// Proven by `of_two_browsers_that_open_one_link_one_is_let_in`.
    END_TOKEN = "
        UPDATE ductwork_tokens SET ended_at = {now} WHERE id = :id AND ended_at IS NULL";
    /// Ends the sessions that were opened with a token or link.
    END_OPENED = "
        UPDATE ductwork_tokens SET ended_at = {now}
         WHERE parent = :id AND ended_at IS NULL AND expires_at > {now}";
    /// A link is kept as long as a session that it may have opened.
    OLD_TOKENS = "
        SELECT id FROM ductwork_tokens
         WHERE kind IN ('link', 'session') AND expires_at < {now} - :kept LIMIT :n";
    FORGET_TOKENS = "{delete:ductwork_tokens;b(id text)} WHERE {of:ductwork_tokens.id;b(id text)}";
}

/// A new token.
#[derive(Clone, Debug)]
pub struct NewToken<'a> {
    /// Its public part.
    pub id: &'a str,
    /// The digest of its secret part.
    pub digest: &'a str,
    /// Its purpose.
    pub kind: TokenKind,
    /// The person or the program that it stands for.
    pub name: &'a str,
    /// Its rights.
    pub scope: Scope,
    /// The only pipelines that it is valid for; `None`: all.
    pub pipelines: Option<&'a [String]>,
    /// True where its bearer may see the inputs, outputs and logs of runs.
    pub payloads: bool,
    /// The person who makes it.
    pub by: &'a str,
    /// How long it is valid; `None`: until it is revoked.
    pub valid: Option<Duration>,
    /// The token or the link that it was opened with.
    pub parent: Option<&'a str>,
}

/// A stored token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its public part.
    pub id: String,
    /// Its purpose.
    pub kind: TokenKind,
    /// The person or the program that it stands for.
    pub name: String,
    /// The digest of its secret part.
    pub digest: String,
    /// Its rights.
    pub scope: Scope,
    /// The only pipelines that it is valid for; `None`: all.
    pub pipelines: Option<Vec<String>>,
    /// True where its bearer may see the inputs, outputs and logs of runs.
    pub payloads: bool,
    /// µs since 1970.
    pub created_at: i64,
    /// The person who made it.
    pub created_by: String,
    /// µs since 1970.
    pub expires_at: Option<i64>,
    /// When it was revoked, used up, or signed out, in µs since 1970.
    pub ended_at: Option<i64>,
    /// The token or the link that it was opened with.
    pub parent: Option<String>,
    /// True where it is valid: it has not ended or expired, and the token that it was opened with
    /// does not prevent it.
    pub is_valid: bool,
}

impl Token {
    /// An error names the token, because somebody has to revoke it.
    fn read(row: &Row) -> Result<Self, Error> {
        let id: String = row.get("id")?;
        Self::whole(row).map_err(|error| Error::Corrupt(format!("the token {id}: {error}")))
    }

    fn whole(row: &Row) -> Result<Self, Error> {
        let now: i64 = row.get("seen_at")?;
        let (expires_at, ended_at) = (row.get("expires_at")?, row.get("ended_at")?);
        let holds = |expires_at: Option<i64>, ended_at: Option<i64>| {
            ended_at.is_none() && expires_at.is_none_or(|it| now < it)
        };
        let (parent, parent_kind): (Option<String>, Option<String>) =
            (row.get("parent")?, row.get("parent_kind")?);
        let of_parent = match (&parent, parent_kind.as_deref()) {
            (None, _) => true,
            // Without its parent, nobody could revoke it any more.
            (Some(_), None) => false,
            // A link ends when it opens a session; revoking the link ends the session as well.
            (Some(_), Some(kind)) if kind == TokenKind::Link.as_str() => true,
            (Some(_), Some(_)) => holds(row.get("parent_expires_at")?, row.get("parent_ended_at")?),
        };
        let pipelines: Option<String> = row.get("pipelines")?;
        let pipelines = pipelines.map(|text| {
            serde_json::from_str(&text)
                .map_err(|error| Error::Corrupt(format!("the pipelines of a token: {error}")))
        });
        Ok(Self {
            id: row.get("id")?,
            kind: row.word("kind")?,
            name: row.get("name")?,
            digest: row.get("digest")?,
            scope: row.word("scope")?,
            pipelines: pipelines.transpose()?,
            payloads: row.get::<i64>("payloads")? == 1,
            created_at: row.get("created_at")?,
            created_by: row.get("created_by")?,
            expires_at,
            ended_at,
            parent,
            is_valid: holds(expires_at, ended_at) && of_parent,
        })
    }
}

/// A row of a list.
#[derive(Clone, Debug)]
pub enum Listed {
    /// A token.
    Token(Token),
    /// A token that lets nobody in, because it cannot be read.
    Damaged {
        /// Its public part.
        id: String,
        /// The damage.
        problem: String,
        /// True where it was revoked.
        has_ended: bool,
    },
}

impl Listed {
    fn read(row: &Row) -> Result<Self, Error> {
        let id: String = row.get("id")?;
        Ok(match Token::whole(row) {
            Ok(token) => Self::Token(token),
            Err(error) => Self::Damaged {
                id,
                problem: error.to_string(),
                has_ended: row.get::<Option<i64>>("ended_at")?.is_some(),
            },
        })
    }

    /// Its public part.
    pub fn id(&self) -> &str {
        match self {
            Self::Token(token) => &token.id,
            Self::Damaged { id, .. } => id,
        }
    }
}

/// Makes a token, and forgets some ended sessions and links.
pub async fn create(conn: &mut Conn, token: &NewToken<'_>) -> Result<(), Error> {
    conn.transaction(async |conn| {
        forget(conn).await?;
        insert(conn, token).await
    })
    .await
}

async fn forget(conn: &mut Conn) -> Result<(), Error> {
    let kept = micros(LET_IN_FOR).into();
    let args = [("kept", kept), ("n", FORGOTTEN_AT_ONCE.into())];
    let old = conn.fetch(&OLD_TOKENS, &args).await?;
    if old.is_empty() {
        return Ok(());
    }
    let old: Result<Vec<String>, Error> = old.iter().map(|row| row.get("id")).collect();
    let old = old?;
    let rows = Rows::new().texts("id", old.iter().map(String::as_str));
    conn.execute(&FORGET_TOKENS, &[("b", (&rows).into())])
        .await?;
    Ok(())
}

async fn insert(conn: &mut Conn, token: &NewToken<'_>) -> Result<(), Error> {
    let pipelines = token.pipelines.map(|it| serde_json::json!(it).to_string());
    let args = [
        ("id", token.id.into()),
        ("kind", token.kind.as_str().into()),
        ("name", token.name.into()),
        ("digest", token.digest.into()),
        ("scope", token.scope.as_str().into()),
        ("pipelines", pipelines.as_deref().into()),
        ("by", token.by.into()),
        ("valid", token.valid.map(micros).into()),
        ("parent", token.parent.into()),
        ("payloads", i64::from(token.payloads).into()),
    ];
    conn.write(&CREATE_TOKEN, &args, 1).await
}

/// The token with this id, whether it is still valid or not.
pub async fn find(conn: &mut Conn, id: &str) -> Result<Option<Token>, Error> {
    let row = conn
        .fetch_optional(&FIND_TOKEN, &[("id", id.into())])
        .await?;
    row.as_ref().map(Token::read).transpose()
}

/// Those of these ids that are still valid.
pub async fn holding(conn: &mut Conn, ids: &[String]) -> Result<Vec<String>, Error> {
    let rows = Rows::new().texts("id", ids.iter().map(String::as_str));
    let mut holding = Vec::new();
    for row in conn.fetch(&FIND_TOKENS, &[("b", (&rows).into())]).await? {
        // A damaged token lets nobody in.
        let token = Token::read(&row).ok().filter(|token| token.is_valid);
        holding.extend(token.map(|token| token.id));
    }
    Ok(holding)
}

/// Tokens, links and sessions by their ids, at most `n` that follow this one.
pub async fn page(conn: &mut Conn, after: &str, n: usize) -> Result<Vec<Listed>, Error> {
    let args = [("after", after.into()), ("n", n.into())];
    let rows = conn.fetch(&TOKENS, &args).await?;
    rows.iter().map(Listed::read).collect()
}

/// The answer to a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// False where it does not exist, or had ended before.
    pub itself: bool,
    /// How many sessions that were opened with it ended with it.
    pub sessions: u64,
}

/// Ends a token or link, and the sessions that were opened with it.
pub async fn revoke(conn: &mut Conn, id: &str) -> Result<Revoked, Error> {
    conn.transaction(async |conn| {
        // RACE: a browser opens a link while the link is revoked. Both write its row first: the browser
        // finds it ended, or this waits for the browser's session and ends it. Raced by
        // `a_link_that_is_revoked_while_a_browser_opens_it_lets_nobody_in`.
        let itself = end(conn, id).await?;
        let sessions = conn.execute(&END_OPENED, &[("id", id.into())]).await?;
        Ok(Revoked { itself, sessions })
    })
    .await
}

/// Ends a token, link or session: false where it does not exist, or had ended before.
pub async fn end(conn: &mut Conn, id: &str) -> Result<bool, Error> {
    Ok(conn.execute(&END_TOKEN, &[("id", id.into())]).await? == 1)
}

/// Opens a browser's session with a valid token or link, which the caller has found and whose secret
/// the caller has compared. This uses up a link: false where another browser was faster.
pub async fn open_session(
    conn: &mut Conn,
    with: &Token,
    session: &NewToken<'_>,
) -> Result<bool, Error> {
    conn.transaction(async |conn| {
        if with.kind == TokenKind::Link && !end(conn, &with.id).await? {
            return Ok(false);
        }
        forget(conn).await?;
        insert(conn, session).await?;
        Ok(true)
    })
    .await
}
