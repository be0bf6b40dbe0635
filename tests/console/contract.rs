//! The description of the API, and a console that keeps to it. `scripts/contract` searches for deviations; this
//! file keeps the tests of those that it has found.

use serde_json::{Value, json};

use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

/// Whether the description says that a request needs no token, and whether a request without one
/// was let in.
fn of_nobody(document: &Value, path: &str, method: &str, answered: u16) -> (bool, bool) {
    let operation = &document["paths"][path][method];
    let security = operation.get("security").unwrap_or(&document["security"]);
    let says = security.as_array().unwrap().contains(&json!({}));
    (says, answered != 401 && answered != 403)
}

on_every_database! {
    async fn an_array_is_no_body_and_none_of_its_objects(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        for (path, body) in [
            ("/api/v1/pipelines/Plain/runs", r#"[5, null]"#),
            ("/api/v1/pipelines/Plain/pause", r#"["why"]"#),
            ("/api/v1/bulk", r#"["cancel", null, {}, false, null]"#),
            ("/api/v1/bulk", r#"{"verb": "cancel", "filter": [null, [], null, null]}"#),
            ("/api/v1/bulk", r#"{"verb": "revive", "filter": {"kind": [null, null, null, null, "no"]}}"#),
        ] {
            let refused = Ask::json(path, body).bearer(&secret).of(&console);
            assert_eq!(refused.status, 422, "{body}: {refused:?}");
            assert!(refused.body.contains("expected an object"), "{body}: {refused:?}");
        }
        for list in ["/api/v1/runs", "/api/v1/bulk", "/api/v1/actions"] {
            let listed = Ask::get(list).bearer(&secret).of(&console);
            assert_eq!(listed.value(), json!([]), "nothing was done");
        }
        daemon.stop().await;
    }

    async fn the_description_says_whether_this_console_asks_for_a_token(db: Db) {
        let looked_at = |console: &Console, secret: &str, reads: bool, acts: bool| {
            let document = Ask::get("/api/v1/openapi.json").bearer(secret).of(console).value();
            let asked = Ask::get("/api/v1/runs").of(console);
            assert_eq!(of_nobody(&document, "/api/v1/runs", "get", asked.status), (reads, reads));
            let asked = Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#).of(console);
            let told = of_nobody(&document, "/api/v1/pipelines/{name}/runs", "post", asked.status);
            assert_eq!(told, (acts, acts));
        };
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        looked_at(&console, &token(&fixture, &[]), false, false);
        daemon.stop().await;
        let (fixture, mut daemon, console) = started(&db, ANYBODY).await;
        looked_at(&console, &token(&fixture, &[]), true, true);
        daemon.stop().await;
        // In development a visitor without a token may act; elsewhere only reading is open.
        let file = fixture.path("ductwork.yml");
        let settings = std::fs::read_to_string(&file).unwrap().replace("default:", "production:");
        std::fs::write(&file, settings).unwrap();
        let mut daemon = fixture.start_as(&[], &["start", "-e", "production"]);
        daemon.ready().await;
        let secret = token(&fixture, &["-e", "production"]);
        looked_at(&Console::of(&daemon).await, &secret, true, false);
        daemon.stop().await;
    }

    async fn a_refusal_has_the_headers_that_the_description_promises(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let path = "/api/v1/pipelines/Plain/runs";
        let unknown = Ask::get("/api/v1/runs").of(&console);
        assert_eq!((unknown.status, unknown.header("www-authenticate")), (401, Some("Bearer")));
        let unsupported = Ask::post(path, r#"{"input": 1}"#).bearer(&secret).of(&console);
        assert_eq!(unsupported.status, 415, "{unsupported:?}");
        let no_method = Ask::delete(path).bearer(&secret).of(&console);
        assert_eq!((no_method.status, no_method.header("allow")), (405, Some("POST")), "{no_method:?}");
        let first_refused = (0..10_000).find_map(|_| {
            let answer = Ask::get("/api/v1/stats").bearer(&secret).of(&console);
            (answer.status != 200).then_some(answer)
        });
        let too_many = first_refused.unwrap();
        assert_eq!((too_many.status, too_many.header("retry-after")), (429, Some("1")), "{too_many:?}");
        daemon.stop().await;
    }
}
