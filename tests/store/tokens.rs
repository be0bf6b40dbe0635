//! Tokens, links and sessions of the console's visitors.

use std::time::Duration;

use ductwork::model::{Scope, TokenKind};
use ductwork::secret::Secret;
use ductwork::store::Conn;
use ductwork::store::statement::Statement;
use ductwork::store::token::{self, NewToken, Token};

use crate::on_every_database;
use crate::support::Db;

const DAY: Duration = Duration::from_secs(86_400);

async fn make(
    conn: &mut Conn,
    kind: TokenKind,
    valid: Option<Duration>,
    parent: Option<&str>,
) -> Token {
    let secret = Secret::new().unwrap();
    let pipelines = ["A".to_owned()];
    let new = of(&secret, kind, valid, parent, &pipelines);
    token::create(conn, &new.0.with(&new.1)).await.unwrap();
    token::find(conn, secret.id()).await.unwrap().unwrap()
}

/// A token whose texts live as long as its secret.
struct Of<'a> {
    secret: &'a Secret,
    kind: TokenKind,
    valid: Option<Duration>,
    parent: Option<&'a str>,
    pipelines: &'a [String],
}

impl<'a> Of<'a> {
    fn with(&'a self, digest: &'a str) -> NewToken<'a> {
        NewToken {
            id: self.secret.id(),
            digest,
            kind: self.kind,
            name: "shop",
            scope: Scope::Operate,
            pipelines: self.pipelines,
            by: "ana",
            valid: self.valid,
            parent: self.parent,
        }
    }
}

fn of<'a>(
    secret: &'a Secret,
    kind: TokenKind,
    valid: Option<Duration>,
    parent: Option<&'a str>,
    pipelines: &'a [String],
) -> (Of<'a>, String) {
    let of = Of {
        secret,
        kind,
        valid,
        parent,
        pipelines,
    };
    (of, secret.digest())
}

on_every_database! {
    async fn a_token_holds_until_it_is_revoked_or_its_time_is_over(db: Db) {
        let mut conn = db.conn().await;
        let token = make(&mut conn, TokenKind::Token, None, None).await;
        assert!(token.is_valid);
        assert_eq!((token.scope, token.name.as_str()), (Scope::Operate, "shop"));
        assert_eq!(token.pipelines, ["A"]);
        assert!(token::end(&mut conn, &token.id).await.unwrap());
        assert!(!token::end(&mut conn, &token.id).await.unwrap(), "once");
        let ended = token::find(&mut conn, &token.id).await.unwrap().unwrap();
        assert!(!ended.is_valid && ended.ended_at.is_some());
        let over = make(&mut conn, TokenKind::Token, Some(Duration::ZERO), None).await;
        assert!(!over.is_valid && over.ended_at.is_none());
        assert_eq!(token::find(&mut conn, "000000000000").await.unwrap(), None);
    }

    async fn a_session_ends_with_the_token_that_it_was_opened_with(db: Db) {
        let mut conn = db.conn().await;
        let token = make(&mut conn, TokenKind::Token, None, None).await;
        let session = make(&mut conn, TokenKind::Session, Some(DAY), Some(&token.id)).await;
        assert!(session.is_valid);
        token::end(&mut conn, &token.id).await.unwrap();
        let session = token::find(&mut conn, &session.id).await.unwrap().unwrap();
        assert!(!session.is_valid);
    }

    async fn sessions_and_links_that_are_over_are_forgotten_and_tokens_are_not(db: Db) {
        let mut conn = db.conn().await;
        let over = Some(Duration::ZERO);
        let token = make(&mut conn, TokenKind::Token, over, None).await;
        let session = make(&mut conn, TokenKind::Session, over, None).await;
        let link = make(&mut conn, TokenKind::Link, over, None).await;
        let open = make(&mut conn, TokenKind::Session, Some(DAY), None).await;
        let latest = make(&mut conn, TokenKind::Token, None, None).await;
        let left = token::all(&mut conn, 9).await.unwrap();
        let left: Vec<&str> = left.iter().map(|it| it.id.as_str()).collect();
        for kept in [&token, &open, &latest] {
            assert!(left.contains(&kept.id.as_str()), "{kept:?}");
        }
        for gone in [&session, &link] {
            assert!(!left.contains(&gone.id.as_str()), "{gone:?}");
        }
    }

    async fn of_two_browsers_that_open_one_link_one_is_let_in(db: Db) {
        let mut conn = db.conn().await;
        let mut other = db.conn().await;
        let link = make(&mut conn, TokenKind::Link, Some(DAY), None).await;
        let secrets = [Secret::new().unwrap(), Secret::new().unwrap()];
        let sessions = secrets.each_ref().map(|it| of(it, TokenKind::Session, Some(DAY), None, &[]));
        let [one, two] = &sessions;
        let (one, two) = (one.0.with(&one.1), two.0.with(&two.1));
        // Both have found it unused.
        let (first, second) = tokio::join!(
            token::open_session(&mut conn, &link, &one),
            token::open_session(&mut other, &link, &two),
        );
        let let_in = [first.unwrap(), second.unwrap()];
        assert_eq!(let_in.iter().filter(|it| **it).count(), 1);
        for (secret, let_in) in secrets.iter().zip(let_in) {
            let session = token::find(&mut conn, secret.id()).await.unwrap();
            assert_eq!(session.is_some(), let_in);
        }
    }

    async fn a_row_that_cannot_be_read_is_named(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE",
            "UPDATE ductwork_tokens SET scope = 'superuser'",
        );
        let mut conn = db.conn().await;
        let token = make(&mut conn, TokenKind::Token, None, None).await;
        conn.execute(&DAMAGE, &[]).await.unwrap();
        let error = token::all(&mut conn, 9).await.unwrap_err();
        assert!(error.to_string().contains(&token.id), "{error}");
    }
}
