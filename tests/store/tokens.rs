//! Tokens, links and sessions of the console's visitors.

use std::time::Duration;

use ductwork::model::{Scope, TokenKind};
use ductwork::secret::Secret;
use ductwork::store::Conn;
use ductwork::store::statement::Statement;
use ductwork::store::token::{self, LET_IN_FOR, Listed, NewToken, Revoked, Token};

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

async fn found(conn: &mut Conn, id: &str) -> Token {
    token::find(conn, id).await.unwrap().unwrap()
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
            payloads: true,
            id: self.secret.id(),
            digest,
            kind: self.kind,
            name: "shop",
            scope: Scope::Operate,
            pipelines: Some(self.pipelines),
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
        assert_eq!(token.pipelines, Some(vec!["A".to_owned()]));
        assert!(token::end(&mut conn, &token.id).await.unwrap());
        assert!(!token::end(&mut conn, &token.id).await.unwrap(), "once");
        let ended = token::find(&mut conn, &token.id).await.unwrap().unwrap();
        assert!(!ended.is_valid && ended.ended_at.is_some());
        let over = make(&mut conn, TokenKind::Token, Some(Duration::ZERO), None).await;
        assert!(!over.is_valid && over.ended_at.is_none());
        assert_eq!(token::find(&mut conn, "000000000000").await.unwrap(), None);
    }

    async fn a_session_ends_with_what_it_was_opened_with(db: Db) {
        let mut conn = db.conn().await;
        for kind in [TokenKind::Token, TokenKind::Link] {
            let opener = make(&mut conn, kind, None, None).await;
            let opened = Some(opener.id.as_str());
            let session = make(&mut conn, TokenKind::Session, Some(DAY), opened).await;
            let signed_out = make(&mut conn, TokenKind::Session, Some(DAY), opened).await;
            let over = make(&mut conn, TokenKind::Session, Some(Duration::ZERO), opened).await;
            let other = make(&mut conn, TokenKind::Session, Some(DAY), None).await;
            assert!(token::end(&mut conn, &signed_out.id).await.unwrap());
            let before = found(&mut conn, &signed_out.id).await;
            assert!(session.is_valid);
            let itself = kind == TokenKind::Token;
            if !itself {
                // Opening a link uses it up.
                assert!(token::end(&mut conn, &opener.id).await.unwrap());
                assert!(found(&mut conn, &session.id).await.is_valid);
            }
            let revoked = token::revoke(&mut conn, &opener.id).await.unwrap();
            assert_eq!(revoked, Revoked { itself, sessions: 1 });
            let session = found(&mut conn, &session.id).await;
            assert!(!session.is_valid && session.ended_at.is_some());
            assert_eq!(found(&mut conn, &signed_out.id).await.ended_at, before.ended_at);
            assert_eq!(found(&mut conn, &over.id).await.ended_at, None);
            assert!(found(&mut conn, &other.id).await.is_valid);
            let again = token::revoke(&mut conn, &opener.id).await.unwrap();
            assert_eq!(again, Revoked { itself: false, sessions: 0 });
        }
    }

    async fn a_session_whose_token_is_revoked_revoked_by_hand_or_gone_lets_nobody_in(db: Db) {
        static BY_HAND: Statement = Statement::new(
            "TEST_BY_HAND",
            "UPDATE ductwork_tokens SET ended_at = 1 WHERE id = :id",
        );
        static GONE: Statement =
            Statement::new("TEST_GONE", "DELETE FROM ductwork_tokens WHERE id = :id");
        let mut conn = db.conn().await;
        for (kind, change) in [
            (TokenKind::Token, &BY_HAND),
            (TokenKind::Token, &GONE),
            (TokenKind::Link, &GONE),
        ] {
            let opener = make(&mut conn, kind, None, None).await;
            let session = make(&mut conn, TokenKind::Session, Some(DAY), Some(&opener.id)).await;
            assert!(session.is_valid);
            conn.execute(change, &[("id", opener.id.as_str().into())]).await.unwrap();
            assert!(!found(&mut conn, &session.id).await.is_valid, "{kind}");
        }
    }

    async fn a_token_for_an_empty_list_of_pipelines_is_for_none(db: Db) {
        let mut conn = db.conn().await;
        let secrets = [Secret::new().unwrap(), Secret::new().unwrap()];
        for (secret, only) in secrets.iter().zip([None, Some([].as_slice())]) {
            let (of, digest) = of(secret, TokenKind::Token, None, None, &[]);
            let new = NewToken { pipelines: only, ..of.with(&digest) };
            token::create(&mut conn, &new).await.unwrap();
            let token = found(&mut conn, secret.id()).await;
            assert_eq!(token.pipelines.as_deref(), only);
        }
    }

    async fn sessions_and_links_that_are_over_are_forgotten_and_tokens_are_not(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_LONG_AGO",
            "UPDATE ductwork_tokens SET expires_at = expires_at - :by WHERE expires_at <= {now}",
        );
        let mut conn = db.conn().await;
        let over = Some(Duration::ZERO);
        let token = make(&mut conn, TokenKind::Token, over, None).await;
        let session = make(&mut conn, TokenKind::Session, over, None).await;
        let link = make(&mut conn, TokenKind::Link, over, None).await;
        // SQLite's clock counts milliseconds: all of this may happen within one.
        let by = i64::try_from((LET_IN_FOR + Duration::from_secs(1)).as_micros()).unwrap();
        conn.execute(&LONG_AGO, &[("by", by.into())]).await.unwrap();
        // A session that it opened may still exist.
        let used = make(&mut conn, TokenKind::Link, over, None).await;
        let open = make(&mut conn, TokenKind::Session, Some(DAY), Some(&used.id)).await;
        let latest = make(&mut conn, TokenKind::Token, None, None).await;
        let left = token::page(&mut conn, "", 9).await.unwrap();
        let left: Vec<&str> = left.iter().map(Listed::id).collect();
        for kept in [&token, &used, &open, &latest] {
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

    async fn a_link_that_is_revoked_while_a_browser_opens_it_lets_nobody_in(db: Db) {
        let mut conn = db.conn().await;
        let mut other = db.conn().await;
        for _ in 0..20 {
            let link = make(&mut conn, TokenKind::Link, Some(DAY), None).await;
            let secret = Secret::new().unwrap();
            let (of, digest) = of(&secret, TokenKind::Session, Some(DAY), Some(&link.id), &[]);
            let new = of.with(&digest);
            let (opened, revoked) = tokio::join!(
                token::open_session(&mut conn, &link, &new),
                token::revoke(&mut other, &link.id),
            );
            let (opened, revoked) = (opened.unwrap(), revoked.unwrap());
            let session = token::find(&mut conn, secret.id()).await.unwrap();
            assert!(session.is_none_or(|it| !it.is_valid), "{opened} {revoked:?}");
            assert_eq!(revoked, Revoked { itself: !opened, sessions: u64::from(opened) });
        }
    }

    async fn all_are_listed_page_by_page_and_one_that_is_damaged_among_them(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE",
            "UPDATE ductwork_tokens SET scope = 'superuser' WHERE id = :id",
        );
        let mut conn = db.conn().await;
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(make(&mut conn, TokenKind::Token, None, None).await.id);
        }
        ids.sort();
        let id = ids[3].as_str();
        conn.execute(&DAMAGE, &[("id", id.into())]).await.unwrap();
        let mut listed: Vec<Listed> = Vec::new();
        for n in [2, 2, 1, 0] {
            let after = listed.last().map_or("", Listed::id).to_owned();
            let page = token::page(&mut conn, &after, 2).await.unwrap();
            assert_eq!(page.len(), n);
            listed.extend(page);
        }
        assert_eq!(listed.iter().map(Listed::id).collect::<Vec<_>>(), ids);
        let Listed::Damaged { problem, has_ended: false, .. } = &listed[3] else {
            panic!("{:?}", listed[3]);
        };
        assert!(problem.contains("superuser"), "{problem}");
        let error = token::find(&mut conn, id).await.unwrap_err();
        assert!(error.to_string().contains(id), "{error}");
        assert!(token::revoke(&mut conn, id).await.unwrap().itself);
        let page = token::page(&mut conn, &ids[2], 1).await.unwrap();
        assert!(matches!(page[0], Listed::Damaged { has_ended: true, .. }), "{page:?}");
    }
}
