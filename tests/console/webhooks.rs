//! Webhooks: an endpoint hears of each run that it wants to hear of, through signed messages, whatever happens
//! to the console.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ductwork::model::RunStatus;
use ductwork::store::delivery::{self, Filter, Listed};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, duty};
use nix::sys::signal::Signal;
use ring::hmac;
use serde_json::Value;
use uuid::Uuid;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::{Ask, KNOWN, printed, started, token};

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const NEWER: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

const STRANGE: &str = "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";

/// A console's message when it begins; it reports no run that ended before.
const BEGINS: &str = "this console notifies endpoints of runs";

/// A received request.
#[derive(Clone, Debug)]
struct Heard {
    headers: BTreeMap<String, String>,
    body: String,
}

impl Heard {
    fn message(&self) -> &str {
        &self.headers["webhook-id"]
    }

    fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn is_signed(&self) -> bool {
        let header = &self.headers["webhook-signature"];
        !header.contains(' ') && self.is_signed_by(SECRET)
    }

    /// Verifies like a Standard Webhooks library that knows only this secret.
    fn is_signed_by(&self, secret: &str) -> bool {
        let text = format!(
            "{}.{}.{}",
            self.message(),
            self.headers["webhook-timestamp"],
            self.body
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(secret).unwrap());
        let mut signatures = self.headers["webhook-signature"].split(' ');
        signatures.any(|it| {
            let tag = STANDARD.decode(it.strip_prefix("v1,").unwrap()).unwrap();
            hmac::verify(&key, text.as_bytes(), &tag).is_ok()
        })
    }
}

/// An endpoint that answers each request with the next of these, and later ones with 204.
struct Endpoint {
    address: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Endpoint {
    fn answering(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read(&mut stream) else {
                    continue;
                };
                let before = {
                    let mut told = told.lock().unwrap();
                    told.push(request);
                    told.len() - 1
                };
                let answer = answers.get(before).copied().unwrap_or("204 No Content\r\n");
                let _ = write!(stream, "HTTP/1.1 {answer}Connection: close\r\n\r\n");
                // The announced body never arrives.
                if answer.contains("Content-Length") {
                    held.push(stream);
                }
            }
        });
        Self { address, heard }
    }

    fn settings(&self, more: &str) -> String {
        let (address, console) = (&self.address, "listen: \"127.0.0.1:0\", visitors: known");
        let endpoint =
            format!("name: crm, url: \"http://{address}/hook?a=1\", secret: whsec_{SECRET}{more}");
        format!("  console: {{ {console}, webhooks: [{{ {endpoint} }}] }}\n")
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    async fn hears(&self, n: usize) -> Vec<Heard> {
        eventually(PATIENCE, &format!("{n} messages come"), async || {
            let heard = self.heard();
            (heard.len() >= n).then_some(heard)
        })
        .await
    }
}

fn read(stream: &mut std::net::TcpStream) -> Option<Heard> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            assert!(head.starts_with("POST /hook?a=1 HTTP/1.1\r\n"), "{head}");
            let lines = head
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> = lines
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            if body.len() >= headers["content-length"].parse().unwrap() {
                let body = body.to_owned();
                return Some(Heard { headers, body });
            }
        }
        match stream.read(&mut part) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&part[..n]),
            _ => return None,
        }
    }
}

/// The newest, without any other filter.
pub fn newest(limit: usize) -> Filter {
    Filter {
        limit,
        ..Filter::default()
    }
}

async fn states(conn: &mut Conn) -> Vec<(String, u32)> {
    let all = delivery::latest(conn, &newest(999)).await.unwrap();
    let all = all.iter().filter_map(Listed::delivery);
    all.map(|it| (it.state.clone(), it.attempts)).collect()
}

/// The duties that are held.
async fn held(conn: &mut Conn) -> Vec<String> {
    static HELD: Statement = Statement::new(
        "TEST_DUTIES",
        "SELECT name FROM ductwork_duties WHERE until > {now}",
    );
    let rows = conn.fetch(&HELD, &[]).await.unwrap();
    rows.iter().map(|row| row.get("name").unwrap()).collect()
}

on_every_database! {
    async fn an_endpoint_hears_of_each_end_by_a_signed_message(db: Db) {
        let endpoint = Endpoint::answering(&[]);
        let (mut fixture, mut daemon, console) = started(&db, &endpoint.settings("")).await;
        daemon.says(BEGINS).await;
        let completed = fixture.trigger("Plain", "1", 1).await[0];
        let halted = fixture.trigger("Halts", "1", 1).await[0];
        let waits = fixture.trigger("Asks", "1", 1).await[0];
        let heard = endpoint.hears(3).await;
        let mut events: Vec<(String, String)> = Vec::new();
        for request in &heard {
            assert!(request.is_signed(), "{request:?}");
            assert_eq!(request.headers["content-type"], "application/json");
            assert_eq!(request.headers["host"], endpoint.address);
            let value = request.value();
            events.push((request.message().to_owned(), value["type"].as_str().unwrap().to_owned()));
            let reasons = value["data"]["halt_reasons"].as_array().unwrap().len();
            assert_eq!(reasons, usize::from(value["type"] == "run.halted"), "{value}");
            assert_eq!(value["data"]["ended_at"].is_null(), value["type"] == "run.dampened", "{value}");
        }
        events.sort();
        let mut expected = [
            (format!("{completed}:completed"), "run.completed".to_owned()),
            (format!("{halted}:halted"), "run.halted".to_owned()),
            (format!("{waits}:dampened"), "run.dampened".to_owned()),
        ];
        expected.sort();
        assert_eq!(events, expected);
        let secret = token(&fixture, &["--scope", "operate"]);
        let listed = eventually(PATIENCE, "all are delivered", async || {
            let listed = Ask::get("/api/v1/webhooks?state=delivered").bearer(&secret).of(&console).value();
            let n = listed.as_array().unwrap_or_else(|| panic!("{listed}")).len();
            (n == 3).then_some(listed)
        })
        .await;
        // Sent again, it is the same message.
        let path = format!("/api/v1/webhooks/{}/send", listed[0]["id"].as_str().unwrap());
        assert_eq!(Ask::json(&path, "{}").bearer(&secret).of(&console).status, 200);
        let heard = endpoint.hears(4).await;
        assert_eq!(Some(heard[3].message()), listed[0]["message"].as_str());
        let first = heard[..3].iter().find(|it| it.message() == heard[3].message()).unwrap();
        assert_eq!(first.body, heard[3].body);
        // The endpoint hears a message a moment before its delivery is recorded.
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "all are delivered again", async || {
            states(conn).await.iter().all(|(state, _)| state == "delivered").then_some(())
        })
        .await;
        // A person sees and does the same on the page.
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let page = Ask::get("/webhooks").cookie(&cookie).of(&console);
        assert!(page.body.contains("run.halted") && page.body.contains("crm"), "{page:?}");
        assert!(page.body.contains("no message waits"), "{page:?}");
        assert!(page.body.contains("<a href=\"/webhooks\" aria-current=\"page\">"), "{page:?}");
        let (_, rest) = page.body.split_once("action=\"/webhooks/").unwrap();
        let path = format!("/webhooks/{}", rest.split('"').next().unwrap());
        let form = format!("proof={}", page.proof());
        assert_eq!(Ask::form(&path, &form).cookie(&cookie).of(&console).leads_to(), "/webhooks");
        endpoint.hears(5).await;
        let nothing = "/api/v1/webhooks/0192f3a1-0000-7000-8000-000000000000/send";
        assert_eq!(Ask::json(nothing, "{}").bearer(&secret).of(&console).status, 404);
        for wrong in ["/webhooks?state=x", "/webhooks?before=x", "/webhooks?x=1"] {
            assert_eq!(Ask::get(wrong).cookie(&cookie).of(&console).status, 400, "{wrong}");
        }
        daemon.stop().await;
        // The duty is free, so another console can take it at once.
        assert_eq!(held(&mut fixture.conn).await, Vec::<String>::new());
    }

    async fn while_a_secret_is_replaced_a_message_verifies_with_either(db: Db) {
        let endpoint = Endpoint::answering(&[]);
        let both = format!("secret: [whsec_{NEWER}, whsec_{SECRET}]");
        let settings = endpoint.settings("").replace(&format!("secret: whsec_{SECRET}"), &both);
        let (mut fixture, mut daemon, _) = started(&db, &settings).await;
        daemon.says(BEGINS).await;
        fixture.trigger("Plain", "1", 1).await;
        let heard = endpoint.hears(1).await;
        for (secret, expected) in [(NEWER, true), (SECRET, true), (STRANGE, false)] {
            assert_eq!(heard[0].is_signed_by(secret), expected, "{secret}: {heard:?}");
        }
        daemon.stop().await;
    }

    async fn a_message_to_an_endpoint_that_is_no_longer_configured_says_so(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_GONE_LONG_AGO", "UPDATE ductwork_webhooks SET seen = seen - 3600000000 WHERE name = 'gone'");
        static OLD: Statement = Statement::new(
            "TEST_OLD", "UPDATE ductwork_deliveries SET created_at = created_at - 3600000000");
        let endpoint = Endpoint::answering(&[]);
        let (mut fixture, mut daemon, console) = started(&db, &endpoint.settings(", events: run.halted")).await;
        let run = fixture.trigger("Plain", "1", 1).await[0];
        let message = delivery::Message {
            endpoint: "gone".to_owned(),
            run,
            event: RunStatus::Completed,
            pipeline: "Plain".to_owned(),
            body: "{}".to_owned(),
        };
        delivery::heard(&mut fixture.conn, "gone").await.unwrap();
        delivery::insert(&mut fixture.conn, &[message]).await.unwrap();
        fixture.conn.execute(&OLD, &[]).await.unwrap();
        // The endpoint may be in another console's configuration.
        let said = printed(&fixture, &["health"]);
        assert!(said.starts_with("a message to the endpoint gone waits for 1h 0m"), "{said}");
        fixture.conn.execute(&LONG_AGO, &[]).await.unwrap();
        assert_eq!(printed(&fixture, &["health"]), "healthy: 1 of 1", "nobody is warned for ever");
        let json: Value = serde_json::from_str(&printed(&fixture, &["health", "--json"])).unwrap();
        let kept = serde_json::json!([{ "endpoint": "gone", "messages": 1, "is_more": false }]);
        assert_eq!((&json["kept"], &json["undelivered"]), (&kept, &Value::Null));
        let said = printed(&fixture, &["health", "-v"]);
        assert!(said.contains("kept for gone, an endpoint that is no longer configured: 1"), "{said}");
        let secret = token(&fixture, &["--scope", "operate"]);
        let listed = Ask::get("/api/v1/webhooks").bearer(&secret).of(&console).value();
        assert_eq!((&listed[0]["endpoint"], &listed[0]["is_configured"]), (&"gone".into(), &false.into()));
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let page = Ask::get("/webhooks").cookie(&cookie).of(&console);
        assert!(page.body.contains("endpoint is not configured"), "{page:?}");
        assert!(page.body.contains(">gone</a>, an endpoint that is no longer configured: 1"), "{page:?}");
        assert!(!page.body.contains("Send again"), "{page:?}");
        daemon.stop().await;
    }

    async fn a_token_for_some_pipelines_sees_and_sends_their_messages_alone(db: Db) {
        let endpoint = Endpoint::answering(&[]);
        let (mut fixture, mut daemon, console) = started(&db, &endpoint.settings("")).await;
        daemon.says(BEGINS).await;
        fixture.trigger("Plain", "1", 2).await;
        fixture.trigger("Halts", "1", 1).await;
        endpoint.hears(3).await;
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "all are delivered", async || {
            states(conn).await.iter().all(|(state, _)| state == "delivered").then_some(())
        })
        .await;
        let every = token(&fixture, &["--scope", "operate"]);
        let plain = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        let listed = |secret: &str, query: &str| -> Vec<(String, String)> {
            let path = format!("/api/v1/webhooks{query}");
            let answer = Ask::get(&path).bearer(secret).of(&console);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let all = answer.value();
            all.as_array().unwrap().iter().map(|it| (text(&it["pipeline"]), text(&it["id"]))).collect()
        };
        let all = listed(&every, "");
        let halts = listed(&every, "?pipeline=Halts");
        assert_eq!((all.len(), halts.len(), halts[0].0.as_str()), (3, 1, "Halts"));
        assert_eq!(listed(&every, "?endpoint=crm&state=delivered"), all);
        assert_eq!(listed(&every, "?endpoint=crm&state=waiting"), []);
        assert_eq!(listed(&every, "?endpoint=other"), []);
        // A token for one pipeline needs no filter, and gets its own messages.
        let own = listed(&plain, "");
        assert_eq!(own, all.iter().filter(|it| it.0 == "Plain").cloned().collect::<Vec<_>>());
        for query in ["?pipeline=Plain", "?endpoint=crm", "?state=delivered"] {
            assert_eq!(listed(&plain, query), own, "{query}");
        }
        let status = |ask: Ask<'_>| ask.bearer(&plain).of(&console).status;
        assert_eq!(status(Ask::get("/api/v1/webhooks?pipeline=Halts")), 403);
        let send = |id: &str| format!("/api/v1/webhooks/{id}/send");
        assert_eq!(status(Ask::json(&send(&halts[0].1), "{}")), 403);
        assert_eq!(status(Ask::json(&send(&own[0].1), "{}")), 200);
        // The same on the page.
        let cookie = Ask::form("/sign-in", &format!("secret={plain}")).of(&console).cookie();
        let page = Ask::get("/webhooks").cookie(&cookie).of(&console);
        assert!(page.body.contains("run.completed") && !page.body.contains("run.halted"), "{page:?}");
        assert!(!page.body.contains("no message waits"), "how an endpoint fares tells of all: {page:?}");
        let form = format!("proof={}", page.proof());
        let other = format!("/webhooks/{}/send", halts[0].1);
        assert_eq!(Ask::form(&other, &form).cookie(&cookie).of(&console).status, 403);
        let own = format!("/webhooks/{}/send", own[0].1);
        assert_eq!(Ask::form(&own, &form).cookie(&cookie).of(&console).leads_to(), "/webhooks");
        assert_eq!(Ask::get("/webhooks?pipeline=Halts").cookie(&cookie).of(&console).status, 403);
        // A visitor who may see all filters, and who continues to older messages with the same
        // filter.
        let cookie = Ask::form("/sign-in", &format!("secret={every}")).of(&console).cookie();
        let page = Ask::get("/webhooks?pipeline=Halts&endpoint=crm&state=delivered").cookie(&cookie).of(&console);
        assert!(page.body.contains("run.halted") && !page.body.contains("run.completed</td>"), "{page:?}");
        assert!(page.body.contains("?endpoint=crm&#38;pipeline=Halts&#38;state=failed"), "{page:?}");
        daemon.stop().await;
    }

    async fn an_endpoint_begins_at_once_and_says_that_it_waits_for_another_console(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_SEEN_LONG_AGO", "UPDATE ductwork_webhooks SET seen = seen - 3600000000");
        let mut conn = db.conn().await;
        let hour = Duration::from_secs(3_600);
        assert!(duty::take(&mut conn, "webhooks", Uuid::new_v4(), hour).await.unwrap());
        let endpoint = Endpoint::answering(&[]);
        let (fixture, mut daemon, console) = started(&db, &endpoint.settings("")).await;
        let names = ["crm".to_owned()];
        eventually(PATIENCE, "the endpoint begins", async || {
            let lines = delivery::lines(&mut conn, &names).await.unwrap();
            (lines.len() == 1).then_some(())
        })
        .await;
        conn.execute(&LONG_AGO, &[]).await.unwrap();
        daemon.says("an endpoint of this console waits").await;
        let secret = token(&fixture, &[]);
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let page = Ask::get("/webhooks").cookie(&cookie).of(&console);
        assert!(page.body.contains("no console has looked for runs for it since"), "{page:?}");
        assert!(daemon.logged(BEGINS).is_empty());
        daemon.stop().await;
    }

    async fn a_message_that_is_refused_is_sent_again_and_one_that_is_unwelcome_is_not(db: Db) {
        let endpoint = Endpoint::answering(&["302 Found\r\nLocation: /x\r\n", "204 No Content\r\n", "410 Gone\r\n"]);
        let (mut fixture, mut daemon, _) = started(&db, &endpoint.settings(", events: run.completed")).await;
        daemon.says(BEGINS).await;
        fixture.trigger("Halts", "1", 1).await;
        fixture.trigger("Plain", "1", 1).await;
        let heard = endpoint.hears(2).await;
        assert_eq!(heard[0].message(), heard[1].message());
        assert_eq!(heard[0].body, heard[1].body);
        assert!(heard[1].is_signed());
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "it is delivered", async || {
            (states(conn).await == [("delivered".to_owned(), 2)]).then_some(())
        })
        .await;
        fixture.trigger("Plain", "2", 1).await;
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "it is given up", async || {
            (states(conn).await.first() == Some(&("failed".to_owned(), 1))).then_some(())
        })
        .await;
        daemon.says("messages to an endpoint are given up").await;
        assert_eq!(endpoint.heard().len(), 3);
        daemon.stop().await;
        let metrics = printed(&fixture, &["metrics"]);
        for outcome in ["delivered", "again", "failed"] {
            let counted = format!("ductwork_webhook_deliveries_total{{outcome=\"{outcome}\"}} 1\n");
            assert!(metrics.contains(&counted), "{outcome}: {metrics}");
        }
    }

    async fn an_answer_counts_though_its_body_never_comes(db: Db) {
        let endpoint = Endpoint::answering(&["500 Broken\r\nContent-Length: 9\r\n", "410 Gone\r\nContent-Length: 9\r\n"]);
        let (mut fixture, mut daemon, _) = started(&db, &endpoint.settings("")).await;
        daemon.says(BEGINS).await;
        fixture.trigger("Plain", "1", 1).await;
        let conn = &mut fixture.conn;
        let mut seen = Vec::new();
        eventually(PATIENCE, "it is given up", async || {
            let all = delivery::latest(conn, &newest(9)).await.unwrap();
            let now = all.first().and_then(Listed::delivery).map(|it| (it.status, it.state.clone()));
            seen.extend(now.filter(|now| seen.last() != Some(now) && now.0.is_some()));
            seen.last().is_some_and(|(_, state)| state == "failed").then_some(())
        })
        .await;
        assert_eq!(seen, [(Some(500), "waiting".to_owned()), (Some(410), "failed".to_owned())]);
        daemon.stop().await;
    }

    async fn an_endpoint_that_takes_nothing_for_long_is_no_fault_and_yet_told(db: Db) {
        static LONG_AGO: Statement = Statement::new(
            "TEST_LONG_AGO", "UPDATE ductwork_deliveries SET created_at = created_at - 3600000000");
        // There is no other attempt within the test, however long it takes.
        let endpoint = Endpoint::answering(&["503 Busy\r\nRetry-After: 600\r\n"]);
        let (mut fixture, mut daemon, _) = started(&db, &endpoint.settings("")).await;
        daemon.says(BEGINS).await;
        let run = fixture.trigger("Plain", "1", 1).await[0];
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "it was tried", async || {
            let states = states(conn).await;
            states.first().is_some_and(|(state, attempts)| state == "waiting" && *attempts > 0).then_some(())
        })
        .await;
        assert_eq!(printed(&fixture, &["health"]), "healthy: 1 of 1");
        fixture.conn.execute(&LONG_AGO, &[]).await.unwrap();
        let said = printed(&fixture, &["health"]);
        let (fact, healthy) = said.split_once('\n').unwrap();
        assert!(fact.starts_with("the endpoint crm has not taken a message for 1h 0m, in "), "{said}");
        assert!(fact.ends_with(": 503"), "{said}");
        assert_eq!(healthy, "healthy: 1 of 1");
        let json: Value = serde_json::from_str(&printed(&fixture, &["health", "--json"])).unwrap();
        assert_eq!((&json["healthy"], json["undelivered"].as_str()), (&true.into(), Some(fact)));
        // Another endpoint hides none.
        for endpoint in ["a", "b", "c", "d"] {
            let message = delivery::Message {
                endpoint: endpoint.to_owned(),
                run,
                event: RunStatus::Completed,
                pipeline: "Plain".to_owned(),
                body: "{}".to_owned(),
            };
            delivery::heard(&mut fixture.conn, endpoint).await.unwrap();
            delivery::insert(&mut fixture.conn, &[message]).await.unwrap();
        }
        fixture.conn.execute(&LONG_AGO, &[]).await.unwrap();
        let said = printed(&fixture, &["health"]);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("the endpoint crm has not taken a message for 2h 0m, in "), "{said}");
        for line in &lines[1..3] {
            assert!(line.starts_with("a message to the endpoint ") && line.contains(" waits for 1h 0m"), "{said}");
        }
        let more = "2 more endpoints have not taken a message for long: the console's page `/webhooks` has them";
        assert_eq!(lines[3..], [more, "healthy: 1 of 1"], "{said}");
        let json: Value = serde_json::from_str(&printed(&fixture, &["health", "--json"])).unwrap();
        assert_eq!(json["undelivered"].as_str().unwrap().split("; ").last(), Some(more), "{json}");
        daemon.stop().await;
    }

    async fn consoles_that_are_killed_at_it_lose_no_message(db: Db) {
        let endpoint = Endpoint::answering(&[]);
        let (mut fixture, mut daemon, _) = started(&db, &endpoint.settings(", pipelines: [Plain]")).await;
        daemon.says(BEGINS).await;
        let mut child = daemon.child("console", None).await;
        let mut runs = Vec::new();
        for round in 1..=3 {
            runs.extend(fixture.trigger("Plain", "1", 40).await);
            endpoint.hears(round * 10).await;
            send(child, Signal::SIGKILL);
            child = daemon.child("console", Some(child)).await;
        }
        let mut expected: Vec<String> = runs.iter().map(|run| format!("{run}:completed")).collect();
        expected.sort();
        eventually(PATIENCE, "each run is told", async || {
            let mut heard: Vec<String> = endpoint.heard().iter().map(|it| it.message().to_owned()).collect();
            heard.sort();
            heard.dedup();
            (heard == expected).then_some(())
        })
        .await;
        let conn = &mut fixture.conn;
        eventually(PATIENCE, "each is recorded", async || {
            let states = states(conn).await;
            (states.len() == 120 && states.iter().all(|(state, _)| state == "delivered")).then_some(())
        })
        .await;
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn without_endpoints_nothing_is_looked_for(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let run = fixture.trigger("Plain", "1", 1).await[0];
        fixture.run_ended(run).await;
        let secret = token(&fixture, &[]);
        let listed = Ask::get("/api/v1/webhooks").bearer(&secret).of(&console);
        assert_eq!(listed.value(), serde_json::json!([]));
        assert!(daemon.logged(BEGINS).is_empty());
        daemon.stop().await;
    }
}

/// The server reports a full disk for one table, and then a trigger of somebody refuses rows of another one; everything
/// else goes on.
#[tokio::test]
async fn messages_that_the_database_refuses_to_take_are_told_of_and_go_out_later() {
    crate::support::with(Db::postgres().await, async |db: Db| {
        let endpoint = Endpoint::answering(&[]);
        let (mut fixture, mut daemon, _) = started(&db, &endpoint.settings("")).await;
        daemon.says(BEGINS).await;
        for (known, (why, refuse, accept)) in [
            (
                "no room",
                "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
                        $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$;
                    CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON ductwork_duties
                        FOR EACH ROW EXECUTE FUNCTION no_room()",
                "DROP TRIGGER no_room ON ductwork_duties",
            ),
            (
                "not today",
                "CREATE FUNCTION not_today() RETURNS trigger LANGUAGE plpgsql AS
                        $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
                    CREATE TRIGGER not_today BEFORE INSERT OR UPDATE ON ductwork_deliveries
                        FOR EACH ROW EXECUTE FUNCTION not_today()",
                "DROP TRIGGER not_today ON ductwork_deliveries",
            ),
        ]
        .into_iter()
        .enumerate()
        {
            fixture.conn.script("TEST_REFUSE", refuse).await.unwrap();
            fixture.trigger("Plain", "1", 1).await;
            eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
                let health = fixture.run(&[], &["health"]);
                let told = String::from_utf8_lossy(&health.stderr);
                let refused = told.contains("the console's work is held up: ");
                let fails = !health.status.success();
                (fails && refused && told.contains(why)).then_some(())
            })
            .await;
            assert_eq!(endpoint.heard().len(), known);
            assert_eq!(
                daemon.logged("the console cannot do all of its work").len(),
                known + 1
            );
            fixture.conn.script("TEST_ACCEPT", accept).await.unwrap();
            endpoint.hears(known + 1).await;
            // The next refusal is that of a new message, and not of the record of this one.
            let conn = &mut fixture.conn;
            eventually(PATIENCE, "it is delivered", async || {
                let states = states(conn).await;
                states
                    .iter()
                    .all(|(state, _)| state == "delivered")
                    .then_some(())
            })
            .await;
        }
        daemon.stop().await;
    })
    .await;
}
