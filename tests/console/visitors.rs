//! Visitors: who is let in, what they may do, and the results of their actions.

use axum::http::Method;
use ductwork::model::{RunId, RunStatus, Scope, StepId};
use ductwork::store::{Conn, action, query, resume};
use ductwork::web::routes::{ROUTES, Route};
use serde_json::{Value, json};

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;

pub const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

pub const HALTS: &str = "pipeline: Halts\n\
     steps: { Fail: { command: [sh, -c, 'exit 1'], max_retry: 0 } }\n\
     flow: [{ start: Fail }]\n";

pub const ASKS: &str = "pipeline: Asks\n\
     steps: { A: { command: [cat] }, B: { command: [cat] } }\n\
     flow: [{ start: A }, dampen, { chain: B }]\n";

const TWICE: &str = "pipeline: Twice\n\
     steps: { A: { command: [cat] }, B: { command: [cat] }, C: { command: [cat] } }\n\
     flow: [{ start: A }, dampen, { chain: B }, dampen, { chain: C }]\n";

pub const KNOWN: &str = "  console: { listen: \"127.0.0.1:0\", visitors: known }\n";

pub const ANYBODY: &str = "  console: { listen: \"127.0.0.1:0\", visitors: anybody }\n";

/// A visitor's request.
pub struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<String>,
    body: &'a str,
}

impl<'a> Ask<'a> {
    pub fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            headers: Vec::new(),
            body: "",
        }
    }

    pub fn delete(path: &'a str) -> Self {
        Self {
            method: "DELETE",
            ..Self::get(path)
        }
    }

    pub fn post(path: &'a str, body: &'a str) -> Self {
        Self {
            method: "POST",
            body,
            ..Self::get(path)
        }
    }

    pub fn json(path: &'a str, body: &'a str) -> Self {
        Self::post(path, body).with("Content-Type", "application/json")
    }

    pub fn form(path: &'a str, body: &'a str) -> Self {
        Self::post(path, body).with("Content-Type", "application/x-www-form-urlencoded")
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push(format!("{name}: {value}\r\n"));
        self
    }

    pub fn bearer(self, token: &str) -> Self {
        self.with("Authorization", &format!("Bearer {token}"))
    }

    pub fn cookie(self, cookie: &str) -> Self {
        self.with("Cookie", cookie)
    }

    pub fn of(self, console: &Console) -> Answer {
        console.exchange(&self.text(console)).expect("a response")
    }

    pub async fn from(self, console: &Console, address: &str) -> Answer {
        let text = self.text(console);
        let answer = console.exchange_from(address, &text).await;
        answer.expect("a response")
    }

    fn text(self, console: &Console) -> String {
        let Self {
            method,
            path,
            headers,
            body,
        } = self;
        let (host, length) = (&console.address, body.len());
        let headers = headers.concat();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\
             {headers}\r\n{body}"
        )
    }
}

impl Answer {
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn run(&self) -> RunId {
        self.value()["run_id"].as_str().unwrap().parse().unwrap()
    }

    pub fn leads_to(&self) -> &str {
        assert_eq!(self.status, 303, "{self:?}");
        self.header("location").unwrap()
    }

    /// The cookie that the answer sets.
    pub fn cookie(&self) -> String {
        let cookie = self.header("set-cookie").unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }

    /// The proof in the page's forms.
    pub fn proof(&self) -> &str {
        let (_, rest) = self.body.split_once("name=\"proof\" value=\"").unwrap();
        rest.split('"').next().unwrap()
    }
}

/// The output of a verb.
pub fn printed(fixture: &DaemonFixture, verb: &[&str]) -> String {
    let output = fixture.run(&[], verb);
    assert!(output.status.success(), "{verb:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub fn token(fixture: &DaemonFixture, more: &[&str]) -> String {
    let mut verb = vec!["token", "create", "shop"];
    verb.extend(more);
    printed(fixture, &verb)
}

pub async fn started(db: &Db, settings: &str) -> (DaemonFixture, Daemon, Console) {
    let fixture = DaemonFixture::new(db, Settings::default(), &[PLAIN, HALTS, ASKS]).await;
    fixture.configure(settings);
    let daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    (fixture, daemon, console)
}

/// A path of this route, with ids that do not exist.
pub fn address(route: &Route) -> String {
    let nothing = "0192f3a1-0000-7000-8000-000000000000";
    let path = route.path.replace("{name}", "Nothing");
    let path = path.replace("{digest}", &"0".repeat(64));
    ["{id}", "{step}", "{fan_out}"]
        .iter()
        .fold(path, |path, name| path.replace(name, nothing))
}

pub fn asked<'a>(route: &'a Route, path: &'a str) -> Ask<'a> {
    match route.method {
        // The request is let in, and then refused: a stream would not end.
        Method::GET if route.path.ends_with("/events") => {
            Ask::get(path).with("Last-Event-ID", "none")
        }
        Method::GET => Ask::get(path),
        Method::DELETE => Ask::delete(path),
        _ if route.path.starts_with("/api/") => Ask::json(path, "{}"),
        _ => Ask::form(path, ""),
    }
}

/// The step at which a run waits for a person, once it waits at another one than `before`.
async fn question(conn: &mut Conn, run: RunId, before: Option<StepId>) -> StepId {
    eventually(PATIENCE, "the run waits", async || {
        let waiting = resume::waiting(conn, run).await.unwrap();
        let step = waiting.first()?.step_id;
        (Some(step) != before).then_some(step)
    })
    .await
}

/// Checks that each link of a page leads a visitor with this session to a page that the visitor may
/// see.
pub async fn led_to_nothing_else(page: &Answer, cookie: &str, console: &Console) {
    let links = page.body.split("<a ").skip(1);
    let links = links.filter_map(|it| it.split_once("href=\"/")?.1.split('"').next());
    for link in links.filter(|it| !it.starts_with("assets/")) {
        let path = format!("/{}", link.replace("&#38;", "&").replace("&amp;", "&"));
        // A token may make only a limited number of requests a second.
        let answer = eventually(PATIENCE, "it is answered", async || {
            let answer = Ask::get(&path).cookie(cookie).of(console);
            (answer.status != 429).then_some(answer)
        })
        .await;
        assert!(matches!(answer.status, 200 | 303), "{path}: {answer:?}");
    }
}

on_every_database! {
    async fn every_route_asks_for_the_rights_that_the_table_says(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let scopes = [None, Some(Scope::Read), Some(Scope::Operate), Some(Scope::Admin)];
        let tokens = scopes.map(|scope| scope.map(|it| token(&fixture, &["--scope", it.as_str()])));
        let sessions = tokens.clone().map(|token| {
            let token = token?;
            let answer = Ask::form("/sign-in", &format!("secret={token}")).of(&console);
            Some(answer.cookie())
        });
        let mut refused = 0;
        for route in ROUTES {
            let path = address(route);
            let is_page = !route.path.starts_with("/api/") && route.path != "/metrics";
            for (index, scope) in scopes.iter().enumerate() {
                let ask = match (is_page, &tokens[index], &sessions[index]) {
                    (true, _, Some(cookie)) => asked(route, &path).cookie(cookie),
                    (false, Some(token), _) => asked(route, &path).bearer(token),
                    _ => asked(route, &path),
                };
                let answer = ask.of(&console);
                let status = answer.status;
                let what = format!("{} {path} by {scope:?}: {answer:?}", route.method);
                assert!(status < 500, "{what}");
                match (route.scope, scope) {
                    (None, _) => assert!(status != 401, "{what}"),
                    (Some(_), None) if is_page => {
                        assert!(answer.leads_to().starts_with("/sign-in"), "{what}");
                        refused += 1;
                    }
                    (Some(_), None) => {
                        assert_eq!(status, 401, "{what}");
                        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
                        refused += 1;
                    }
                    (Some(needs), Some(has)) if *has < needs => {
                        assert_eq!(status, 403, "{what}");
                        refused += 1;
                    }
                    // The page's form is sent without a proof here.
                    (Some(_), Some(_)) if is_page && route.method == Method::POST => {
                        assert_eq!(status, 403, "{what}");
                        assert!(answer.body.contains("another session"), "{what}");
                    }
                    (Some(_), Some(_)) => assert!(![401, 403].contains(&status), "{what}"),
                }
            }
        }
        assert!(refused > 40, "{refused}");
        daemon.stop().await;
    }

    async fn a_token_counts_for_programs_and_a_session_for_browsers_and_each_until_it_is_revoked(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &[]);
        let answer = Ask::form("/sign-in", &format!("secret={secret}&to=/runs")).of(&console);
        assert_eq!(answer.leads_to(), "/runs");
        let cookie = answer.cookie();
        // A browser keeps one jar for all ports of a host, so another console's cookie has another
        // name.
        let (_, port) = console.address.rsplit_once(':').unwrap();
        assert!(cookie.starts_with(&format!("ductwork_session_{port}=")), "{cookie}");
        assert_eq!(Ask::get("/runs").cookie(&cookie).of(&console).status, 200);
        assert_eq!(Ask::get("/api/v1/runs").bearer(&secret).of(&console).status, 200);
        // Neither works in the other's place, nor does anything else.
        Ask::get("/runs").bearer(&secret).of(&console).leads_to();
        let session = cookie.split_once('=').unwrap().1.to_owned();
        for wrong in [session.as_str(), "dw_0", "", &secret[..secret.len() - 1]] {
            assert_eq!(Ask::get("/api/v1/runs").bearer(wrong).of(&console).status, 401, "{wrong}");
        }
        assert_eq!(Ask::get("/api/v1/runs").cookie(&cookie).of(&console).status, 401);
        let id = secret.split('_').nth(1).unwrap();
        assert!(printed(&fixture, &["token", "list"]).contains(id));
        printed(&fixture, &["token", "revoke", id]);
        eventually(PATIENCE, "the token counts no more", async || {
            (Ask::get("/api/v1/runs").bearer(&secret).of(&console).status == 401).then_some(())
        })
        .await;
        eventually(PATIENCE, "its session counts no more", async || {
            (Ask::get("/runs").cookie(&cookie).of(&console).status == 303).then_some(())
        })
        .await;
        let again = fixture.run(&[], &["token", "revoke", id]);
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        daemon.stop().await;
    }

    async fn a_link_lets_one_browser_in_until_it_signs_out(db: Db) {
        let (fixture, mut daemon, console) = started(&db, KNOWN).await;
        let url = printed(&fixture, &["console", "link", "--by", "ana"]);
        let (_, secret) = url.split_once("/sign-in?link=").unwrap();
        // Looking at the link does not use it up.
        for _ in 0..2 {
            let page = console.get(&format!("/sign-in?link={secret}"));
            assert!(page.body.contains("Let this browser in"), "{page:?}");
        }
        for elsewhere in ["//evil.example/", "/%09/evil.example/", "/%5Cevil.example/", "https://evil.example/"] {
            let page = console.get(&format!("/sign-in?link={secret}&to={elsewhere}"));
            assert!(page.body.contains("name=\"to\" value=\"/\""), "{elsewhere}: {page:?}");
        }
        let form = format!("secret={secret}&to=//evil.example/");
        let answer = Ask::form("/sign-in", &form).of(&console);
        assert_eq!(answer.leads_to(), "/", "and nowhere else");
        let cookie = answer.cookie();
        assert_eq!(Ask::form("/sign-in", &form).of(&console).status, 403, "once");
        let page = Ask::get("/").cookie(&cookie).of(&console);
        assert!(page.body.contains("ana · operate"), "{page:?}");
        Ask::form("/sign-out", "").cookie(&cookie).of(&console).leads_to();
        Ask::get("/").cookie(&cookie).of(&console).leads_to();
        daemon.stop().await;
    }

    async fn a_token_for_some_pipelines_reaches_no_other(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let own = fixture.trigger("Plain", "1", 1).await[0];
        let other = fixture.trigger("Halts", "1", 1).await[0];
        let secret = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        let status = |ask: Ask<'_>| ask.bearer(&secret).of(&console).status;
        for path in [
            format!("/api/v1/runs/{own}"),
            format!("/api/v1/runs/{own}/steps"),
            "/api/v1/runs?pipeline=Plain".to_owned(),
            "/api/v1/stats?pipeline=Plain".to_owned(),
            format!("/api/v1/actions?run={own}"),
            "/api/v1/openapi.json".to_owned(),
        ] {
            assert_eq!(status(Ask::get(&path)), 200, "{path}");
        }
        for path in [
            format!("/api/v1/runs/{other}"),
            format!("/api/v1/runs/{other}/why"),
            "/api/v1/runs".to_owned(),
            "/api/v1/runs?pipeline=Halts".to_owned(),
            "/api/v1/processes".to_owned(),
            "/api/v1/actions".to_owned(),
            "/metrics".to_owned(),
            "/metrics?pipeline=Plain".to_owned(),
            "/api/v1/processes?pipeline=Plain".to_owned(),
            "/api/v1/runs?pipeline=Plain&pipeline=Halts".to_owned(),
            format!("/api/v1/runs/{}", &other.to_string()[..8]),
            format!("/api/v1/actions?run={other}"),
            // It may have been a run of another pipeline.
            format!("/api/v1/actions?run={}", RunId::new()),
            format!("/api/v1/actions?run={own}&run={other}"),
        ] {
            assert_eq!(status(Ask::get(&path)), 403, "{path}");
        }
        // Routes that find a row by its own id, where the row belongs to a run.
        fixture.ended(PATIENCE).await;
        let everything = token(&fixture, &[]);
        let seen = |path: &str| Ask::get(path).bearer(&everything).of(&console).value();
        for (run, expected) in [(own, 200), (other, 403)] {
            let steps = seen(&format!("/api/v1/runs/{run}/steps"));
            let attempt = steps[0]["executions"][0]["id"].as_str().unwrap();
            assert_eq!(status(Ask::get(&format!("/api/v1/executions/{attempt}/log"))), expected, "{attempt}");
            let digest = seen(&format!("/api/v1/runs/{run}"))["definition"].as_str().unwrap().to_owned();
            assert_eq!(status(Ask::get(&format!("/api/v1/definitions/{digest}"))), expected, "{digest}");
        }
        // The pipeline is known without the output, which may be large or damaged.
        let damage = "UPDATE ductwork_runs SET output = 'x' WHERE status = 'completed'";
        fixture.conn.script("UPDATE", damage).await.unwrap();
        for (run, expected) in [(own, 200), (other, 403)] {
            assert_eq!(status(Ask::get(&format!("/api/v1/runs/{run}/steps"))), expected, "{run}");
        }
        let cancel = format!("/api/v1/runs/{other}/cancel");
        assert_eq!(status(Ask::json(&cancel, "{}")), 403);
        let input = r#"{"input": 1}"#;
        assert_eq!(status(Ask::json("/api/v1/pipelines/Halts/runs", input)), 403);
        let made = Ask::json("/api/v1/pipelines/Plain/runs", input).bearer(&secret).of(&console);
        assert_eq!(made.status, 201);
        let path = format!("/api/v1/runs/{}", made.run());
        assert_eq!(made.header("location"), Some(&*path));
        daemon.stop().await;
    }

    async fn a_browser_with_a_token_for_some_pipelines_is_led_only_to_what_it_may_see(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let run = fixture.trigger("Asks", "1", 1).await[0];
        let other = fixture.trigger("Plain", "1", 1).await[0];
        eventually(PATIENCE, "it asks", async || {
            let state = query::run_state(&mut fixture.conn, run).await.unwrap().unwrap();
            (state.status == RunStatus::Dampened).then_some(())
        })
        .await;
        let signed_in = |more: &[&str]| {
            let secret = token(&fixture, more);
            let answer = Ask::form("/sign-in", &format!("secret={secret}")).of(&console);
            assert_eq!(answer.leads_to(), "/");
            answer.cookie()
        };
        let cookie = signed_in(&["--scope", "operate", "--pipeline", "Asks"]);
        let get = async |path: &str| {
            eventually(PATIENCE, "it is answered", async || {
                let answer = Ask::get(path).cookie(&cookie).of(&console);
                (answer.status != 429).then_some(answer)
            })
            .await
        };
        assert_eq!(get("/").await.leads_to(), "/runs?pipeline=Asks");
        let pages = [
            "/runs?pipeline=Asks".to_owned(),
            "/waiting".to_owned(),
            format!("/runs/{run}"),
            format!("/actions?run={run}"),
        ];
        for path in pages {
            let page = get(&path).await;
            assert_eq!(page.status, 200, "{path}: {page:?}");
            led_to_nothing_else(&page, &cookie, &console).await;
        }
        assert_eq!(get(&format!("/runs?id={run}")).await.leads_to(), format!("/runs/{run}"));
        let waiting = get("/waiting").await;
        assert!(waiting.body.contains(&run.to_string()), "{waiting:?}");
        let forbidden = [
            "/processes".to_owned(),
            "/actions?pipeline=Asks".to_owned(),
            "/runs?pipeline=Plain".to_owned(),
            format!("/runs?id={other}"),
            format!("/runs/{other}"),
        ];
        for path in forbidden {
            let refused = get(&path).await;
            assert_eq!(refused.status, 403, "{path}");
            assert!(refused.body.contains("Sign out"), "{path}: {refused:?}");
            assert!(!refused.body.contains("ask with `pipeline=`"), "{path}: {refused:?}");
            led_to_nothing_else(&refused, &cookie, &console).await;
        }
        // A token for another pipeline shows no question of this one, and one for several pipelines
        // offers a choice.
        let elsewhere = signed_in(&["--pipeline", "Plain"]);
        let page = Ask::get("/waiting").cookie(&elsewhere).of(&console);
        assert!(page.status == 200 && page.body.contains("No open questions"), "{page:?}");
        let both = signed_in(&["--pipeline", "Plain", "--pipeline", "Asks"]);
        let choice = Ask::get("/").cookie(&both).of(&console);
        for name in ["Plain", "Asks"] {
            assert!(choice.body.contains(&format!("\"/runs?pipeline={name}\"")), "{choice:?}");
        }
        led_to_nothing_else(&choice, &both, &console).await;
        daemon.stop().await;
    }

    async fn a_program_starts_ends_and_answers_runs_and_each_deed_has_its_name(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let sent = |ask: Ask<'_>| ask.bearer(&secret).of(&console);
        let path = "/api/v1/pipelines/Halts/runs";
        let keyed = |input| sent(Ask::json(path, input).with("Idempotency-Key", "k"));
        let made = keyed(r#"{"input": {"n": 1}}"#);
        assert_eq!((made.status, &made.value()["created"]), (201, &json!(true)));
        let run = made.run();
        let again = keyed(r#"{"input": {"n": 1}}"#);
        assert_eq!((again.status, again.run()), (200, run));
        let other = keyed(r#"{"input": {"n": 2}}"#);
        assert_eq!(other.status, 422, "{other:?}");
        assert!(other.body.contains(&run.to_string()), "{other:?}");
        fixture.run_ended(run).await;

        let revive = format!("/api/v1/runs/{run}/revive");
        let revived = sent(Ask::json(&revive, ""));
        assert_eq!(revived.status, 201, "{revived:?}");
        let again = sent(Ask::json(&revive, "{}"));
        assert_eq!((again.status, again.run()), (200, revived.run()));
        fixture.run_ended(revived.run()).await;
        for verb in ["cancel", "resume"] {
            let ended = sent(Ask::json(&format!("/api/v1/runs/{run}/{verb}"), "{}"));
            assert_eq!(ended.status, 409, "{ended:?}");
            let next = format!("it is halted, and was revived as {}, which is halted", revived.run());
            assert!(ended.body.contains(&next), "{ended:?}");
        }

        let asks = sent(Ask::json("/api/v1/pipelines/Asks/runs", r#"{"input": 1}"#)).run();
        let step = question(&mut fixture.conn, asks, None).await;
        let resume = format!("/api/v1/runs/{asks}/resume");
        let resumed = sent(Ask::json(&resume, &format!(r#"{{"step": "{step}", "value": {{"yes": true}}}}"#)));
        assert_eq!((resumed.status, &resumed.value()["resumed"]), (200, &json!(1)));
        fixture.run_ended(asks).await;
        assert_eq!(fixture.output(asks).await, json!({"yes": true}));
        assert_eq!(sent(Ask::json(&resume, "{}")).status, 409);

        let pause = |path: &str, body| sent(Ask::json(&format!("/api/v1/pipelines/Plain/{path}"), body));
        let reasoned = r#"{"reason": "the feed is bad"}"#;
        assert_eq!(pause("pause", "{}").status, 422);
        assert_eq!(pause("pause", r#"{"reason": " "}"#).status, 422);
        assert_eq!(pause("pause", reasoned).status, 201);
        let again = pause("pause", reasoned);
        assert_eq!((again.status, &again.value()["by"]), (200, &json!("shop")));
        let held = sent(Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#)).run();
        let why = sent(Ask::get(&format!("/api/v1/runs/{held}/why")));
        assert!(why.body.contains("the feed is bad"), "{why:?}");
        for was_paused in [true, false] {
            assert_eq!(pause("unpause", "").value()["was_paused"], was_paused);
        }
        fixture.run_ended(held).await;

        let later = sent(Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": null, "delay": "1h"}"#)).run();
        let cancel = format!("/api/v1/runs/{later}/cancel");
        for _ in 0..2 {
            let cancelled = sent(Ask::json(&cancel, ""));
            assert_eq!(cancelled.status, 200, "{cancelled:?}");
        }
        let ended = sent(Ask::get(&format!("/api/v1/runs/{later}"))).value();
        assert!(ended["cancelled_at"].is_string() && ended["halted_at"].is_null(), "{ended}");
        let halted = sent(Ask::get(&format!("/api/v1/runs/{run}"))).value();
        assert!(halted["cancelled_at"].is_null() && halted["halted_at"].is_string(), "{halted}");
        let why = sent(Ask::get(&format!("/api/v1/runs/{later}/why"))).value();
        let at = ended["cancelled_at"].as_str().unwrap();
        assert_eq!(why["fact"], format!("it was cancelled at {at} by shop"));
        let all = action::latest(&mut fixture.conn, action::Of::All, None, 99).await.unwrap();
        let verbs: Vec<_> = all.iter().map(|it| (it.verb.as_str(), it.by.as_str(), it.channel.as_str())).collect();
        let of = |verb| (verb, "shop", "api");
        assert_eq!(verbs, ["cancel", "trigger", "unpause", "trigger", "pause", "resume", "trigger", "revive", "trigger"].map(of));
        let listed = sent(Ask::get(&format!("/api/v1/actions?run={run}&limit=1")));
        assert_eq!(listed.value()[0]["verb"], "revive");
        assert!(listed.header("link").unwrap().contains("rel=\"next\""));

        let later = printed(&fixture, &["trigger", "Plain", "1", "--delay", "1h", "--by", "ana"]);
        printed(&fixture, &["cancel", &later, "--by", "ben"]);
        let revived = printed(&fixture, &["revive", &revived.run().to_string(), "--by", "cleo"]);
        fixture.run_ended(RunId(revived.parse().unwrap())).await;
        let latest = action::latest(&mut fixture.conn, action::Of::All, None, 3).await.unwrap();
        let latest: Vec<_> = latest.iter().map(|it| (it.verb.as_str(), it.by.as_str(), it.channel.as_str())).collect();
        assert_eq!(latest, [("revive", "cleo", "cli"), ("cancel", "ben", "cli"), ("trigger", "ana", "cli")]);
        daemon.stop().await;
        let metrics = printed(&fixture, &["metrics"]);
        for (pipeline, duplicates) in [("Halts", 2), ("Plain", 0)] {
            let counted = format!("ductwork_duplicate_triggers_total{{pipeline=\"{pipeline}\"}} {duplicates}\n");
            assert!(metrics.contains(&counted), "{metrics}");
        }
        fixture.audited().await;
    }

    /// Its own answer may have been lost, and the run may have gone on to its next question.
    async fn an_answer_that_is_sent_again_answers_no_later_question(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[TWICE]).await;
        fixture.configure(KNOWN);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let run = fixture.trigger("Twice", "1", 1).await[0];
        let path = format!("/api/v1/runs/{run}/resume");
        let sent = |body: &str| Ask::json(&path, body).bearer(&secret).of(&console);
        let first = question(&mut fixture.conn, run, None).await;
        for unnamed in [r#"{"value": 2}"#, r#"{"value": 2, "step": null}"#] {
            let refused = sent(unnamed);
            assert_eq!(refused.status, 422, "{refused:?}");
            assert!(refused.body.contains("a `value` requires a `step`"), "{refused:?}");
        }
        let answer = format!(r#"{{"step": "{first}", "value": 2}}"#);
        assert_eq!(sent(&answer).status, 200);
        let second = question(&mut fixture.conn, run, Some(first)).await;
        let again = sent(&answer);
        assert_eq!(again.status, 409, "{again:?}");
        let still = resume::waiting(&mut fixture.conn, run).await.unwrap();
        assert_eq!(still.iter().map(|it| it.step_id).collect::<Vec<_>>(), [second]);
        // Without a value, an answer is for all that wait.
        assert_eq!(sent(r#"{"value": null}"#).status, 200);
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, json!(2));
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_deed_that_cannot_be_is_refused_with_the_reason_and_does_nothing(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let sent = |ask: Ask<'_>| ask.bearer(&secret).of(&console);
        let path = "/api/v1/pipelines/Plain/runs";
        let nothing = "0192f3a1-0000-7000-8000-000000000000";
        // Only the headers: the request is refused before any of its body is read.
        let large = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 1048577\r\n\r\n",
            console.address
        );
        let large = console.exchange(&large).unwrap();
        assert_eq!(large.status, 413, "{large:?}");
        assert!(large.body.contains("1048576 bytes"), "{large:?}");
        // Malformed bodies, and bodies that never arrive.
        let begun = |more: &str| {
            let (address, secret) = (&console.address, &secret);
            format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {secret}\r\n\
                 Content-Type: application/json\r\n{more}"
            )
        };
        for (more, status, part) in [
            ("Content-Length: 50\r\n\r\n{\"input\": 1", 408, "nothing was done"),
            ("Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "cannot be read"),
        ] {
            let answer = console.exchange(&begun(more)).unwrap();
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(part), "{answer:?}");
        }
        let deep = format!("{{\"input\": {}{}}}", "[".repeat(5_000), "]".repeat(5_000));
        for (ask, status, part) in [
            (Ask::json(path, "{}"), 422, "missing field `input`"),
            (Ask::json(path, r#"{"input": }"#), 422, "expected value"),
            (Ask::json(path, r#"{"input": 1, "dalay": "5m"}"#), 422, "unknown field `dalay`"),
            (Ask::json(path, r#"{"input": 1, "delay": "soon"}"#), 422, "delay"),
            (Ask::json(path, r#"{"input": 1, "delay": 5}"#), 422, "`delay`: invalid type: integer `5`, expected a string; a duration is"),
            (Ask::post(path, "input=1"), 415, "application/json"),
            (Ask::post(path, r#"{"inputs": 1}"#).with("Content-Type", "Application/JSON"), 422, "unknown field `inputs`"),
            (Ask::post(path, r#"{"input": 1}"#).with("Content-Type", "application/json; charset=latin1"), 415, "UTF-8"),
            (Ask::json(path, r#"{"input": 1}"#).with("Content-Encoding", "gzip"), 415, "Content-Encoding"),
            (Ask::json(path, &deep), 422, "deep"),
            (Ask::json(path, r#"{"input": 1}"#).with("Idempotency-Key", &"k".repeat(513)), 422, "`Idempotency-Key`: a key has 1 to 512"),
            (Ask::json("/api/v1/pipelines/Plaim/runs", r#"{"input": 1}"#), 404, "did you mean `Plain`"),
            (Ask::json(&format!("/api/v1/runs/{nothing}/cancel"), ""), 404, "there is no run"),
            (Ask::json(&format!("/api/v1/runs/{nothing}/revive"), ""), 404, "there is no run"),
            (Ask::json(&format!("/api/v1/runs/{nothing}/resume"), ""), 404, "there is no run"),
            (Ask::json("/api/v1/runs/x/cancel", ""), 400, "UUID"),
            (Ask::get("/api/v1/run"), 404, "`/api/v1/openapi.json` lists the paths"),
            (Ask::json(path, r#"{"input": 1}"#).with("Origin", "http://evil.example"), 403, "another site"),
            (Ask::json(path, r#"{"input": 1}"#).with("Sec-Fetch-Site", "cross-site"), 403, "another site"),
        ] {
            let what = format!("{} {}", ask.path, ask.body.chars().take(60).collect::<String>());
            let answer = sent(ask);
            assert_eq!(answer.status, status, "{what}: {answer:?}");
            assert!(answer.body.contains(part), "{what}: {answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
        }
        assert_eq!(action::latest(&mut fixture.conn, action::Of::All, None, 9).await.unwrap(), []);
        assert!(fixture.all_ended().await, "nothing was started");
        daemon.stop().await;
    }

    async fn a_person_acts_by_the_forms_of_pages_without_a_script(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let url = printed(&fixture, &["console", "link", "--by", "ana"]);
        let (_, link) = url.split_once("link=").unwrap();
        let cookie = Ask::form("/sign-in", &format!("secret={link}")).of(&console).cookie();
        let got = |path: &str| Ask::get(path).cookie(&cookie).of(&console);
        let sent = |path: &str, body: &str| Ask::form(path, body).cookie(&cookie).of(&console);
        let page = got("/pipelines/Asks/trigger");
        assert!(!page.body.contains("\"/webhooks\""), "no endpoint is configured: {page:?}");
        let proof = page.proof().to_owned();
        let wrong = sent("/pipelines/Asks/trigger", &format!("proof={proof}&input=%7B"));
        assert_eq!(wrong.status, 422, "{wrong:?}");
        assert!(wrong.body.contains("not one JSON value"), "{wrong:?}");
        let made = sent("/pipelines/Asks/trigger", &format!("proof={proof}&input=%5B1%5D"));
        let path = made.leads_to().to_owned();
        let asks: RunId = path.strip_prefix("/runs/").unwrap().parse().unwrap();
        let waiting = eventually(PATIENCE, "the question is asked", async || {
            Some(got("/waiting")).filter(|page| page.body.contains(">Resume</button>"))
        })
        .await;
        let (_, rest) = waiting.body.split_once("name=\"step\" value=\"").unwrap();
        let step = rest.split('"').next().unwrap();
        assert!(waiting.body.contains(&format!("id=\"step-{step}\"")), "{waiting:?}");
        assert!(waiting.body.contains(&format!("\"{path}/cancel\"")), "{waiting:?}");
        let page = got(&path);
        let (_, address) = page.body.split_once(&format!("\"/waiting?run={asks}")).unwrap();
        let (place, anchor) = address.split('"').next().unwrap().rsplit_once('#').unwrap();
        let place = place.replace("&#38;", "&");
        let page = got(&format!("/waiting?run={asks}{place}"));
        assert!(page.body.contains(&format!("id=\"{anchor}\"")) && anchor == format!("step-{step}"), "{page:?}");
        // The typed text is not lost.
        let wrong = sent(&format!("{path}/resume"), &format!("proof={proof}&step={step}&value=%7Bbad"));
        assert_eq!(wrong.status, 422, "{wrong:?}");
        for part in ["{bad</textarea>", "not one JSON value", step, &format!("action=\"{path}/resume\"")] {
            assert!(wrong.body.contains(part), "{part}: {wrong:?}");
        }
        let answer = format!("proof={proof}&step={step}&value=2");
        sent(&format!("{path}/resume"), &answer).leads_to();
        let late = sent(&format!("{path}/resume"), &answer);
        assert_eq!(late.status, 409, "{late:?}");
        for part in ["ana has answered", &format!("href=\"{path}\"")] {
            assert!(late.body.contains(part), "{part}: {late:?}");
        }
        let nobody = uuid::Uuid::nil();
        let strange = sent(&format!("{path}/resume"), &format!("proof={proof}&step={nobody}&value=2"));
        assert_eq!(strange.status, 404, "{strange:?}");
        assert!(strange.body.contains(&format!("has no step {nobody}")), "{strange:?}");
        assert!(!strange.body.contains("has answered"), "{strange:?}");
        let none = got("/bulk/new?verb=revive");
        assert!(none.status == 400 && none.body.contains("\"/runs\">Choose some runs"), "{none:?}");
        let ended = got(&format!("/bulk/new?verb=revive&run={asks}"));
        let links = ended.body.matches(&format!("\"/runs/{asks}\"")).count();
        assert_eq!(links, 1, "{ended:?}");
        fixture.run_ended(asks).await;
        assert_eq!(fixture.output(asks).await, json!(2));

        let halted = fixture.trigger("Halts", "1", 1).await[0];
        fixture.run_ended(halted).await;
        assert!(got(&format!("/runs/{halted}")).body.contains("Revive</button>"));
        assert!(!got(&format!("/runs/{halted}")).body.contains("newest definition"));
        let revived = sent(&format!("/runs/{halted}/revive"), &format!("proof={proof}"));
        assert_ne!(revived.leads_to(), format!("/runs/{halted}"));

        sent("/pipelines/Asks/pause", &format!("proof={proof}&reason=a+bad+feed")).leads_to();
        let paused = got("/pipelines/Asks").body;
        assert!(paused.contains("a bad feed") && paused.contains("Unpause</button>"), "{paused}");
        sent("/pipelines/Asks/unpause", &format!("proof={proof}")).leads_to();
        assert!(!got("/pipelines/Asks").body.contains("a bad feed"));

        let open = fixture.trigger_in(std::time::Duration::from_secs(3_600), "Plain", "1", 1).await[0];
        let question = got(&format!("/runs/{open}/cancel"));
        assert!(question.body.contains("Cancel this run?"), "{question:?}");
        let state = query::run_state(&mut fixture.conn, open).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::InProgress, "a question changes nothing");
        for forged in ["", "proof=", "proof=0"] {
            assert_eq!(sent(&format!("/runs/{open}/cancel"), forged).status, 403, "{forged}");
        }
        sent(&format!("/runs/{open}/cancel"), &format!("proof={proof}")).leads_to();
        let state = query::run_state(&mut fixture.conn, open).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::Cancelled);
        let actions = got("/actions").body;
        for part in ["cancelled", "revived", "resumed", "triggered", "ana", "console"] {
            assert!(actions.contains(part), "{part}: {actions}");
        }
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn without_a_token_anybody_on_the_host_reads_and_a_developer_acts(db: Db) {
        let (fixture, mut daemon, console) = started(&db, ANYBODY).await;
        // The environment is `development` by default.
        assert_eq!(console.get("/runs").status, 200);
        let developer = Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#).of(&console);
        assert_eq!(developer.status, 201, "{developer:?}");
        let page = console.get("/pipelines/Plain/trigger");
        let (proof, path) = (page.proof().to_owned(), "/pipelines/Plain/trigger");
        Ask::form(path, &format!("proof={proof}&input=1")).of(&console).leads_to();
        assert_eq!(Ask::form(path, "input=1").of(&console).status, 403);
        daemon.stop().await;
        let file = fixture.path("ductwork.yml");
        let settings = std::fs::read_to_string(&file).unwrap().replace("default:", "production:");
        std::fs::write(&file, settings).unwrap();
        let mut daemon = fixture.start_as(&[], &["start", "-e", "production"]);
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        assert_eq!(console.get("/runs").status, 200);
        assert!(!console.get("/pipelines/Plain").body.contains("Start a run"));
        assert_eq!(console.get(path).status, 403);
        let anybody = Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#).of(&console);
        assert_eq!(anybody.status, 403, "{anybody:?}");
        let secret = token(&fixture, &["--scope", "operate", "-e", "production"]);
        let known = Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#).bearer(&secret);
        assert_eq!(known.of(&console).status, 201);
        daemon.stop().await;
    }
}
