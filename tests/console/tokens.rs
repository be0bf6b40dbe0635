//! Tokens on the command line, and the requests that use them.

use ductwork::store::Dialect;
use ductwork::store::statement::Statement;
use serde_json::{Value, json};

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

/// A verb's output as JSON.
fn told(fixture: &DaemonFixture, verb: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(verb);
    serde_json::from_str(&printed(fixture, &all)).unwrap()
}

fn id(secret: &str) -> &str {
    secret.split('_').nth(1).unwrap()
}

on_every_database! {
    async fn more_tokens_than_fit_a_page_are_listed_and_a_damaged_one_is_told_with_the_way_out(db: Db) {
        static MANY: Statement = Statement::new(
            "TEST_MANY",
            "INSERT INTO ductwork_tokens (id, kind, name, digest, scope, created_at, created_by)
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
             SELECT 'many' || CAST(i AS char(4)), 'token', 'shop', '', 'read', i, 'ana' FROM n",
        );
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE",
            "UPDATE ductwork_tokens SET scope = :scope WHERE id = 'many1050'",
        );
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.conn.execute(&MANY, &[]).await.unwrap();
        // As long as the database allows.
        let longest = if fixture.conn.dialect() == Dialect::Mysql { 50 } else { 1 << 20 };
        let scope = format!("super\u{1b}user{}", "x".repeat(longest));
        let args = [("scope", scope.as_str().into())];
        fixture.conn.execute(&DAMAGE, &args).await.unwrap();
        let output = fixture.run(&[], &["token", "list"]);
        assert!(output.status.success(), "{:?}", output.status);
        let list = String::from_utf8(output.stdout).unwrap();
        assert_eq!(list.lines().count(), 1 + 1_100);
        assert!(list.lines().any(|it| it.starts_with("many1050") && it.ends_with("damaged")));
        let note = String::from_utf8(output.stderr).unwrap();
        for part in ["many1050", "super", "`ductworkd token revoke many1050` ends it"] {
            assert!(note.contains(part), "{part}: {note}");
        }
        assert!(note.len() < 1_000 && !note.contains('\u{1b}'), "{note}");
        let told = |fixture: &DaemonFixture| {
            let all = told(fixture, &["token", "list"]);
            let all = all.as_array().unwrap().clone();
            assert_eq!(all.len(), 1_100);
            all.into_iter().find(|it| it["id"] == "many1050").unwrap()
        };
        let damaged = told(&fixture);
        assert_eq!(damaged["valid"], false);
        assert!(damaged["damaged"].as_str().unwrap().contains("super"));
        printed(&fixture, &["token", "revoke", "many1050"]);
        let again = fixture.run(&[], &["token", "revoke", "many1050"]);
        assert!(String::from_utf8_lossy(&again.stderr).contains("revoked before"), "{again:?}");
        assert!(!String::from_utf8_lossy(&fixture.run(&[], &["token", "list"]).stderr).contains("many1050"));
    }

    async fn to_revoke_a_link_ends_the_session_that_it_opened(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let link = |by: &str| {
            let url = printed(&fixture, &["console", "link", "--by", by]);
            url.split_once("link=").unwrap().1.to_owned()
        };
        let (link, other) = (link("ana"), link("ben"));
        let sign_in = |link: &str| Ask::form("/sign-in", &format!("secret={link}")).of(&console).cookie();
        let (cookie, stays) = (sign_in(&link), sign_in(&other));
        let status = |cookie: &str| Ask::get("/runs").cookie(cookie).of(&console).status;
        assert_eq!((status(&cookie), status(&stays)), (200, 200));
        let sessions = told(&fixture, &["token", "list"]);
        let sessions = sessions.as_array().unwrap().iter();
        let opened = sessions.filter(|it| it["opened_with"] == json!(id(&link)));
        assert_eq!(opened.count(), 1);
        let revoked = told(&fixture, &["token", "revoke", &link]);
        assert_eq!(revoked, json!({"id": id(&link), "revoked": false, "sessions": 1}));
        eventually(PATIENCE, "its session counts no more", async || {
            (status(&cookie) == 303).then_some(())
        })
        .await;
        assert_eq!(status(&stays), 200);
        let again = fixture.run(&[], &["token", "revoke", &link]);
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        daemon.stop().await;
    }

    async fn a_token_whose_list_of_pipelines_is_empty_reaches_none(db: Db) {
        static EMPTY: Statement = Statement::new(
            "TEST_EMPTY",
            "UPDATE ductwork_tokens SET pipelines = '[]' WHERE id = :id",
        );
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        fixture.conn.execute(&EMPTY, &[("id", id(&secret).into())]).await.unwrap();
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        for path in ["/runs", "/runs?pipeline=Plain", "/pipelines/Plain", "/"] {
            assert_eq!(Ask::get(path).cookie(&cookie).of(&console).status, 403, "{path}");
        }
        for path in ["/api/v1/runs", "/api/v1/runs?pipeline=Plain", "/api/v1/pipelines", "/metrics"] {
            let answer = Ask::get(path).bearer(&secret).of(&console);
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.body.contains("no pipeline"), "{answer:?}");
        }
        assert!(printed(&fixture, &["token", "list"]).contains("(none)"));
        daemon.stop().await;
    }
}
