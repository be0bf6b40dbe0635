//! Visitors whose identity somebody else vouches for: a reverse proxy, or the kernel through a socket; and tokens
//! that show no payloads.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use axum::http::Method;
use ductwork::model::Scope;
use ductwork::store::action;
use ductwork::web::routes::{ROUTES, Route};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::{ASKS, Ask, KNOWN, PLAIN, address, asked, printed, started, token};

/// A proxy at an address of this host that tests do not use by default.
const PROXIED: &str = "  console: { listen: \"127.0.0.1:0\", visitors: anybody,\n\
     \x20   proxy: { from: [127.0.0.9], operate: [ops], admin: [sre] } }\n";

const PROXY: &str = "127.0.0.9";

/// A request by a visitor in these groups.
fn by<'a>(ask: Ask<'a>, groups: &str) -> Ask<'a> {
    ask.with("X-Forwarded-Email", "ana@example.com")
        .with("X-Forwarded-Groups", groups)
}

/// The groups that have these rights.
fn groups(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "dev",
        Scope::Operate => "dev,ops",
        Scope::Admin => "sre",
    }
}

fn is_page(route: &Route) -> bool {
    !route.path.starts_with("/api/") && route.path != "/metrics"
}

on_every_database! {
    async fn a_proxys_visitors_have_the_rights_of_their_groups_on_pages_and_none_elsewhere(db: Db) {
        let known = PROXIED.replace("anybody", "known");
        let (_fixture, mut daemon, console) = started(&db, &known).await;
        let (mut refused, mut ignored) = (0, 0);
        for route in ROUTES {
            let path = address(route);
            for has in [Scope::Read, Scope::Operate, Scope::Admin] {
                let told = by(asked(route, &path), groups(has));
                let answer = told.from(&console, PROXY).await;
                let what = format!("{} {path} by {has:?}: {answer:?}", route.method);
                assert!(answer.status < 500, "{what}");
                match route.scope {
                    None => assert!(answer.status != 401, "{what}"),
                    // A page of another site could use the browser that the proxy knows.
                    Some(_) if !is_page(route) => assert_eq!(answer.status, 401, "{what}"),
                    Some(needs) if has < needs => {
                        assert_eq!(answer.status, 403, "{what}");
                        assert!(answer.body.contains("ana@example.com may only"), "{what}");
                        refused += 1;
                    }
                    Some(_) if route.method == Method::POST => {
                        assert_eq!(answer.status, 403, "{what}");
                        assert!(answer.body.contains("another session"), "{what}");
                    }
                    Some(_) => assert!(![303, 401, 403].contains(&answer.status), "{what}"),
                }
            }
            // The same headers from any other address.
            let forged = by(asked(route, &path), "sre").of(&console);
            if route.scope.is_some() {
                let is_unknown = match is_page(route) {
                    true => forged.status == 303 && forged.leads_to().starts_with("/sign-in"),
                    false => forged.status == 401,
                };
                assert!(is_unknown, "{} {path}: {forged:?}", route.method);
                ignored += 1;
            }
        }
        assert!(refused > 10 && ignored > 40, "{refused} {ignored}");
        daemon.stop().await;
    }

    async fn somebody_behind_a_proxy_acts_under_their_name_and_no_other_site_does(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, PROXIED).await;
        let ask = async |ask: Ask<'_>| by(ask, "ops").from(&console, PROXY).await;
        let page = ask(Ask::get("/pipelines/Plain/trigger")).await;
        assert!(page.body.contains("ana@example.com · operate"), "{page:?}");
        assert!(!page.body.contains("Sign out"), "the proxy lets them out: {page:?}");
        let form = format!("proof={}&input=%5B1%5D", page.proof());
        let path = "/pipelines/Plain/trigger";
        let elsewhere = ask(Ask::form(path, &form).with("Origin", "https://evil.example")).await;
        assert_eq!(elsewhere.status, 403, "{elsewhere:?}");
        assert!(elsewhere.body.contains("another site"), "{elsewhere:?}");
        // Another visitor's form is invalid for this one.
        let other = Ask::form(path, &form).with("X-Forwarded-Email", "bob").with("X-Forwarded-Groups", "ops");
        let other = other.from(&console, PROXY).await;
        assert_eq!(other.status, 403, "{other:?}");
        let made = ask(Ask::form(path, &form)).await;
        let run = made.leads_to().strip_prefix("/runs/").unwrap().parse().unwrap();
        fixture.run_ended(run).await;
        let all = action::latest(&mut fixture.conn, action::Of::All, None, 9).await.unwrap();
        let told: Vec<_> = all.iter().map(|it| (it.verb.as_str(), it.by.as_str(), it.channel.as_str())).collect();
        assert_eq!(told, [("trigger", "ana@example.com", "console")]);
        // A proxy that lets a visitor's own headers through.
        let twice = ask(Ask::get("/").with("X-Forwarded-Groups", "sre")).await;
        assert_eq!(twice.status, 400, "{twice:?}");
        assert!(twice.body.contains("stands twice"), "{twice:?}");
        // A session would have no effect, and would use up a link.
        let link = printed(&fixture, &["console", "link"]);
        let link = format!("secret={}", link.split_once("link=").unwrap().1);
        let refused = ask(Ask::form("/sign-in", &link)).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains("the reverse proxy says that you are ana@example.com"), "{refused:?}");
        Ask::form("/sign-in", &link).of(&console).leads_to();
        // A request without a visitor, such as the proxy's health checks.
        assert_eq!(Ask::get("/livez").from(&console, PROXY).await.status, 200);
        daemon.stop().await;
    }

    async fn a_visitor_behind_a_proxy_that_the_configuration_does_not_know_needs_a_token(db: Db) {
        const BOTH: &str = "  console: { listen: \"127.0.0.1:0\", socket: console.sock }\n";
        let (fixture, mut daemon, console) = started(&db, BOTH).await;
        let near = Console { address: "localhost".to_owned(), socket: Some(fixture.path("console.sock")) };
        let secret = token(&fixture, &[]);
        for console in [&console, &near] {
            assert_eq!(Ask::get("/runs").of(console).status, 200);
            assert_eq!(Ask::get("/api/v1/runs").of(console).status, 200);
            for (name, value) in [
                ("X-Forwarded-For", "192.0.2.1"),
                ("X-Forwarded-Proto", "https"),
                ("X-Real-IP", "192.0.2.1"),
                ("Forwarded", "for=192.0.2.1"),
                ("Via", "1.1 proxy"),
            ] {
                let page = Ask::get("/runs").with(name, value).of(console);
                assert!(page.leads_to().starts_with("/sign-in"), "{page:?}");
                let api = Ask::get("/api/v1/runs").with(name, value).of(console);
                assert_eq!(api.status, 401, "{api:?}");
                assert!(api.body.contains("a proxy has passed this request on"), "{api:?}");
                let signed_in = Ask::get("/api/v1/runs").with(name, value).bearer(&secret).of(console);
                assert_eq!(signed_in.status, 200, "{signed_in:?}");
            }
        }
        daemon.stop().await;
        // The configuration says that anybody may come.
        fixture.configure(&BOTH.replace(" }", ", visitors: anybody }"));
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let page = Ask::get("/runs").with("X-Forwarded-For", "192.0.2.1").of(&console);
        assert_eq!(page.status, 200, "{page:?}");
        daemon.stop().await;
    }

    async fn whoever_may_open_the_socket_may_do_everything_and_needs_no_token(db: Db) {
        let (mut fixture, mut daemon, _) = started(
            &db,
            "  console: { listen: \"127.0.0.1:0\", visitors: known, socket: console.sock }\n",
        )
        .await;
        let socket = fixture.path("console.sock");
        daemon.says("the socket of the console is open").await;
        let file = std::fs::symlink_metadata(&socket).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o660);
        let near = Console { address: "localhost".to_owned(), socket: Some(socket.clone()) };
        for route in ROUTES.iter().filter(|it| it.scope.is_some()) {
            let path = address(route);
            let answer = asked(route, &path).of(&near);
            let what = format!("{} {path}: {answer:?}", route.method);
            assert!(answer.status < 500 && answer.status != 401, "{what}");
            if answer.status == 403 {
                assert!(is_page(route) && answer.body.contains("another session"), "{what}");
            }
        }
        let made = Ask::json("/api/v1/pipelines/Plain/runs", r#"{"input": 1}"#).of(&near);
        assert_eq!(made.status, 201, "{made:?}");
        fixture.run_ended(made.run()).await;
        let all = action::latest(&mut fixture.conn, action::Of::All, None, 9).await.unwrap();
        let uid = format!("uid {}", nix::unistd::getuid());
        assert_eq!((all[0].verb.as_str(), all[0].by.as_str()), ("trigger", uid.as_str()));
        // A page of another site, in a browser whose tunnel leads here.
        let path = "/api/v1/pipelines/Plain/runs";
        let other = Ask::json(path, r#"{"input": 1}"#).with("Origin", "http://evil.example").of(&near);
        assert_eq!(other.status, 403, "{other:?}");
        let rebound = near.exchange("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(rebound.status, 421, "{rebound:?}");
        // A request with a token acts as that token's visitor.
        let secret = token(&fixture, &[]);
        let less = Ask::json(path, r#"{"input": 1}"#).bearer(&secret).of(&near);
        assert_eq!(less.status, 403, "{less:?}");
        daemon.stop().await;
        assert!(!socket.exists(), "it goes with its console");
    }

    async fn a_token_without_payloads_shows_none_anywhere(db: Db) {
        const PRINTS: &str = "pipeline: Prints\n\
             steps:\n\
             \x20 A: { command: [sh, -c, 'cat > /dev/null; echo \"\\\"S3cr3t-output\\\"\"'] }\n\
             \x20 B: { command: [sh, -c, 'echo S3cr3t-log >&2; seq 40 >&2; exit 1'], max_retry: 0 }\n\
             flow: [{ start: A }, { chain: B }]\n";
        const EXPANDS: &str = "pipeline: Expands\n\
             steps: { A: { command: [cat] }, B: { command: [cat] } }\n\
             flow: [{ start: A }, { expand: B }]\n";
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, ASKS, PRINTS, EXPANDS]).await;
        fixture.configure(KNOWN);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let halted = fixture.trigger("Prints", "\"S3cr3t-input\"", 1).await[0];
        let plain = fixture.trigger("Plain", "\"S3cr3t-input\"", 1).await[0];
        let asks = fixture.trigger("Asks", "\"S3cr3t-input\"", 1).await[0];
        // The project's own texts quote inputs as well: the command that starts a cancelled run again, and the reason
        // why an output is unusable.
        let cancelled = fixture.trigger("Asks", "\"S3cr3t-input\"", 1).await[0];
        printed(&fixture, &["cancel", &cancelled.to_string()]);
        let invalid = fixture.trigger("Expands", "\"S3cr3t\"", 1).await[0];
        fixture.run_ended(invalid).await;
        fixture.run_ended(halted).await;
        fixture.run_ended(plain).await;
        let secret = token(&fixture, &["--scope", "admin", "--no-payloads"]);
        let whole = token(&fixture, &["--scope", "admin"]);
        let cookie = |secret: &str| Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let (session, whole_session) = (cookie(&secret), cookie(&whole));
        let is_for_programs = |path: &str| path.starts_with("/api/") || path == "/metrics";
        let asked = |path: &str, token: &str, session: &str| match is_for_programs(path) {
            true => Ask::get(path).bearer(token).of(&console),
            false => Ask::get(path).cookie(session).of(&console),
        };
        // A token may make only a limited number of requests a second.
        let look = |path: &str, token: &str, session: &str| loop {
            let answer = asked(path, token, session);
            if answer.status != 429 {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        eventually(PATIENCE, "the question is asked", async || {
            look("/waiting", &whole, &whole_session).body.contains("S3cr3t-input").then_some(())
        })
        .await;
        let mut paths: Vec<String> = Vec::new();
        for run in [halted, plain, asks, cancelled, invalid] {
            let steps = look(&format!("/api/v1/runs/{run}/steps"), &whole, &whole_session).value();
            let steps = steps.as_array().unwrap();
            for route in ROUTES.iter().filter(|it| it.method == Method::GET) {
                if route.path.ends_with("/events") || route.path.starts_with("/assets") {
                    continue;
                }
                let path = route.path.replace("{name}", "Plain");
                match (path.contains("/executions/"), path.contains("{step}"), path.contains('{')) {
                    (true, ..) => paths.extend(steps.iter().flat_map(|step| {
                        step["executions"].as_array().unwrap().iter().map(|it| {
                            path.replace("{id}", it["id"].as_str().unwrap())
                        })
                    })),
                    (_, true, _) => paths.extend(steps.iter().map(|step| {
                        path.replace("{id}", &run.to_string()).replace("{step}", step["id"].as_str().unwrap())
                    })),
                    (_, _, true) => paths.push(path.replace("{id}", &run.to_string())),
                    _ => paths.push(path),
                }
            }
            paths.push(format!("/pipelines/Plain/trigger?from={run}"));
        }
        paths.sort();
        paths.dedup();
        let shows = |answer: &Answer| answer.body.contains("S3cr3t");
        let mut withheld = Vec::new();
        for path in &paths {
            let all = look(path, &whole, &whole_session);
            let less = look(path, &secret, &session);
            assert!(!shows(&less), "{path}: {less:?}");
            assert!(less.status < 500 && less.status != 401, "{path}: {less:?}");
            if shows(&all) {
                withheld.push(path.clone());
            }
        }
        // Each kind of place contains a payload, so no empty page counts as proof.
        for part in [
            "/input", "/output", "/log", "/waiting", "trigger?from=", "/api/v1/runs", "/steps", "/steps/", "/why",
        ] {
            assert!(withheld.iter().any(|path| path.contains(part)), "{part}: {withheld:#?}");
        }
        assert!(withheld.len() > 20, "{withheld:#?}");
        let list = printed(&fixture, &["token", "list", "--json"]);
        assert_eq!(list.matches("\"payloads\":false").count() + list.matches("\"payloads\": false").count(), 2);
        assert!(printed(&fixture, &["token", "list"]).contains("admin, no payloads"));
        let alone = look(&format!("/api/v1/runs/{plain}"), &secret, &session).value();
        assert_eq!((&alone["input"], &alone["input_bytes"]), (&json!(null), &json!(14)), "{alone}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_console_that_was_killed_leaves_a_socket_that_the_next_one_replaces() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
    // It listens nowhere else.
    fixture.configure("  console: { socket: console.sock }\n");
    let mut daemon = fixture.start();
    daemon.ready().await;
    let near = Console {
        address: "localhost".to_owned(),
        socket: Some(fixture.path("console.sock")),
    };
    near.answers("/api/v1/runs", 200).await;
    let link = fixture.run(&[], &["console", "link"]);
    assert_eq!(link.status.code(), Some(2), "{link:?}");
    let child = daemon.child("console", None).await;
    send(child, Signal::SIGKILL);
    daemon.child("console", Some(child)).await;
    near.answers("/api/v1/runs", 200).await;
    let left = std::fs::read_dir(fixture.path(".")).unwrap();
    let names = left.map(|it| it.unwrap().file_name().into_string().unwrap());
    let sockets: Vec<_> = names.filter(|it| it.contains("console.sock")).collect();
    assert_eq!(sockets, ["console.sock"], "nothing stays beside it");

    // Somebody has removed the file.
    std::fs::remove_file(fixture.path("console.sock")).unwrap();
    near.answers("/api/v1/runs", 200).await;

    // Another daemon's console does not take the socket away, and says so; not even while this one does not answer.
    let child = daemon.child("console", Some(child)).await;
    freeze(child).await;
    let mut second = fixture.start_as(&[], &["console"]);
    let (status, _) = second.ended(Duration::from_secs(60)).await;
    assert!(!status.success());
    let said = second.text();
    assert!(
        said.contains("another daemon's console listens there"),
        "{said}"
    );
    near.answers("/api/v1/runs", 200).await;
    daemon.stop().await;
    assert!(!fixture.path("console.sock").exists());

    // Nor does a console replace a regular file.
    std::fs::write(fixture.path("console.sock"), "mine").unwrap();
    let mut third = fixture.start_as(&[], &["console"]);
    let (status, _) = third.ended(Duration::from_secs(60)).await;
    assert!(!status.success());
    assert!(
        third
            .text()
            .contains("there is something that is no socket"),
        "{}",
        third.text()
    );
    assert_eq!(
        std::fs::read(fixture.path("console.sock")).unwrap(),
        b"mine"
    );
}

#[tokio::test]
async fn a_proxy_makes_visitors_known_and_rights_without_one_are_doubted() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
    fixture.configure("  console: { listen: \"127.0.0.1:0\", proxy: { from: [127.0.0.9] } }\n");
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    Ask::get("/").of(&console).leads_to();
    daemon.stop().await;
    fixture.configure("  console: { proxy: { operate: [ops] } }\n");
    let checked = fixture.run(&[], &["check"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned()
        + &String::from_utf8_lossy(&checked.stdout);
    assert!(
        said.contains("no proxy is trusted to say who is in them"),
        "{said}"
    );
    for (wrong, part) in [
        (
            "from: [localhost]",
            "takes addresses and networks, not `localhost`",
        ),
        (
            "from: [10.0.0.0/33]",
            "takes addresses and networks, not `10.0.0.0/33`",
        ),
        (
            "from: [127.0.0.9], user: 'a b'",
            "takes the name of a header that has no other use",
        ),
        (
            "from: [127.0.0.9], user: Cookie",
            "takes the name of a header that has no other use",
        ),
        ("from: [127.0.0.9], admin: ['']", "names of groups"),
        ("from: [127.0.0.9], admin: ['a,b']", "names of groups"),
    ] {
        fixture.configure(&format!("  console: {{ proxy: {{ {wrong} }} }}\n"));
        let checked = fixture.run(&[], &["check"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(
            !checked.status.success() && said.contains(part),
            "{wrong}: {said}"
        );
    }
}
