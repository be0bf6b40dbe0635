//! Bulk actions: whoever asks for one, and whatever happens to the console, each selected run is changed
//! once.

use std::collections::BTreeSet;
use std::time::Duration;

use ductwork::definition::Pipeline;
use ductwork::machine::bulk::{Filter, Kind, Selection};
use ductwork::model::{Channel, RunId, RunStatus, Verb};
use ductwork::store::action::{self, Actor, Of};
use ductwork::store::bulk::{self, NewBulk};
use ductwork::store::statement::Statement;
use ductwork::store::{Conn, definition, duty, query};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, Executor};
use uuid::Uuid;

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::{Ask, KNOWN, led_to_nothing_else, started, token};

const BULK: &str = "/api/v1/bulk";

fn id(bulk: &Value) -> Uuid {
    bulk["id"].as_str().unwrap().parse().unwrap()
}

/// Waits until it has ended; returns its counts.
async fn ended(conn: &mut Conn, id: Uuid) -> (i64, i64, i64) {
    eventually(PATIENCE, "the bulk action ends", async || {
        let bulk = bulk::find(conn, id).await.unwrap().unwrap();
        bulk.ended_at
            .map(|_| (bulk.done, bulk.skipped, bulk.failed))
    })
    .await
}

async fn changed(conn: &mut Conn, id: Uuid) -> Vec<RunId> {
    let all = action::latest(conn, Of::Bulk(id), None, 9_999)
        .await
        .unwrap();
    all.iter().map(|it| it.run.unwrap()).collect()
}

async fn halted(fixture: &mut DaemonFixture, n: usize) -> Vec<RunId> {
    let runs = fixture.trigger("Halts", "1", n).await;
    let ended = fixture.ended(PATIENCE).await;
    assert!(
        ended
            .iter()
            .all(|it| *it == RunStatus::Halted || *it == RunStatus::Completed)
    );
    runs
}

on_every_database! {
    async fn a_bulk_action_outlives_the_consoles_that_are_killed_at_it(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let runs = halted(&mut fixture, 150).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let body = r#"{"verb": "revive", "filter": {"pipeline": "Halts"}}"#;
        // Found before there is an action: that may end soon.
        let mut child = daemon.child("console", None).await;
        let made = Ask::json(BULK, body).bearer(&secret).of(&console);
        assert_eq!(made.status, 201, "{made:?}");
        let id = id(&made.value());
        let mut killed = 0;
        let mut seen = 0;
        while killed < 3 {
            let conn = &mut fixture.conn;
            let open = eventually(PATIENCE, "the bulk action goes on", async || {
                let bulk = bulk::find(conn, id).await.unwrap().unwrap();
                (bulk.ended_at.is_some() || bulk.done > seen).then_some((bulk.ended_at.is_none(), bulk.done))
            })
            .await;
            if !open.0 {
                break;
            }
            seen = open.1;
            send(child, Signal::SIGKILL);
            killed += 1;
            child = daemon.child("console", Some(child)).await;
        }
        assert!(killed > 0, "nobody was killed while it went on");
        assert_eq!(ended(&mut fixture.conn, id).await, (150, 0, 0));
        let changed = changed(&mut fixture.conn, id).await;
        assert_eq!(changed.len(), 150);
        assert_eq!(changed.into_iter().collect::<BTreeSet<_>>(), runs.into_iter().collect());
        fixture.ended(PATIENCE).await;
        // A console that was killed early has not logged where it listens.
        let console = eventually(PATIENCE, "a console answers", async || {
            let console = Console::of(&daemon).await;
            console.try_get("/livez").is_some().then_some(console)
        })
        .await;
        let seen = Ask::get(&format!("{BULK}/{id}")).bearer(&secret).of(&console).value();
        assert_eq!((&seen["state"], &seen["done"], &seen["by"]), (&json!("ended"), &json!(150), &json!("shop")));
        let listed = Ask::get(BULK).bearer(&secret).of(&console).value();
        assert_eq!(listed.as_array().unwrap().len(), 1);
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_person_revives_a_kind_of_failure_and_cancels_chosen_runs_by_forms(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let runs = halted(&mut fixture, 3).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let page = |path: &str| Ask::get(path).cookie(&cookie).of(&console);
        let kinds = page("/halted").body;
        let (_, rest) = kinds.split_once("href=\"/bulk/new?").expect("a way to revive them");
        let address = format!("/bulk/new?{}", rest.split('"').next().unwrap().replace("&#38;", "&"));
        let question = page(&address);
        assert!(question.body.contains("Revive 3 runs?"), "{question:?}");
        // The form sends the fields that the page contains.
        let mut form = Vec::new();
        for field in question.body.split("<input type=\"hidden\" name=\"").skip(1) {
            let (name, rest) = field.split_once("\" value=\"").unwrap();
            let value = rest.split('"').next().unwrap().replace("&#38;", "&");
            let mut pair = form_urlencoded::Serializer::new(String::new());
            form.push(pair.append_pair(name, &value).finish());
        }
        let made = Ask::form("/bulk", &form.join("&")).cookie(&cookie).of(&console);
        let path = made.leads_to().to_owned();
        let id: Uuid = path.strip_prefix("/bulk/").unwrap().parse().unwrap();
        assert_eq!(ended(&mut fixture.conn, id).await, (3, 0, 0));
        let shown = page(&path);
        assert!(shown.body.contains("ended"), "{shown:?}");
        // Each page has a link to it.
        let here = "<a href=\"/bulk\" aria-current=\"page\">Bulk actions</a>";
        assert!(shown.body.contains(here), "{shown:?}");
        assert!(page("/").body.contains("<a href=\"/bulk\">Bulk actions</a>"));
        assert!(page(&format!("/actions?bulk={id}")).body.contains("revived"));
        assert!(page("/bulk").body.contains(&path));
        fixture.ended(PATIENCE).await;

        // A halted run cannot be cancelled; a waiting one can.
        let waits = fixture.trigger("Asks", "1", 2).await;
        for run in &waits {
            let conn = &mut fixture.conn;
            eventually(PATIENCE, "the run waits", async || {
                let state = query::run_state(conn, *run).await.unwrap().unwrap();
                (state.status == RunStatus::Dampened).then_some(())
            })
            .await;
        }
        let list = page("/runs").body;
        assert!(list.contains(&format!("name=\"run\" value=\"{}\"", waits[0])), "{list}");
        let chosen = format!("/bulk/new?run={}&run={}&verb=cancel", waits[0], runs[0]);
        let question = page(&chosen);
        assert!(question.body.contains("Cancel 1 of 2 runs?"), "{question:?}");
        assert!(question.body.contains("1 of 2 can be cancelled"), "{question:?}");
        assert!(question.body.contains("was revived before"), "{question:?}");
        let gone = format!("/bulk/new?run={}&run={}&verb=revive", waits[0], RunId::new());
        let question_of_none = page(&gone);
        for part in ["None of the chosen runs can be revived", "does not exist", "waits for a person"] {
            assert!(question_of_none.body.contains(part), "{part}: {question_of_none:?}");
        }
        assert_eq!(page("/bulk/new?verb=revive&all=1&pipeline=Halt").status, 404);
        let form = format!("proof={}&verb=cancel&run={}&run={}", question.proof(), waits[0], runs[0]);
        let path = Ask::form("/bulk", &form).cookie(&cookie).of(&console).leads_to().to_owned();
        let id: Uuid = path.strip_prefix("/bulk/").unwrap().parse().unwrap();
        assert_eq!(ended(&mut fixture.conn, id).await, (1, 1, 0));
        assert_eq!(changed(&mut fixture.conn, id).await, [waits[0]]);
        // The form of an older version sends the newest run as well.
        let form = format!("proof={}&verb=revive&run={}&newest={}", question.proof(), runs[0], waits[0]);
        let outdated = Ask::form("/bulk", &form).cookie(&cookie).of(&console);
        assert_eq!(outdated.status, 422, "{outdated:?}");
        let again = format!("/bulk/new?verb=revive&#38;run={}", runs[0]);
        for part in ["this page is out of date", "load the page again", &again] {
            assert!(outdated.body.contains(part), "{part}: {outdated:?}");
        }
        assert_eq!(page(&again.replace("&#38;", "&")).status, 200);
        // An empty choice does not mean all runs.
        let nothing = format!("proof={}&verb=cancel", question.proof());
        let refused = Ask::form("/bulk", &nothing).cookie(&cookie).of(&console);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.body.contains("choose some runs"), "{refused:?}");
        let letters = format!("{nothing}&run=%ff");
        assert_eq!(Ask::form("/bulk", &letters).cookie(&cookie).of(&console).status, 400);
        let stop = format!("{path}/stop");
        let unproven = Ask::form(&stop, "").cookie(&cookie).of(&console);
        assert_eq!(unproven.status, 403);
        let form = format!("proof={}", question.proof());
        assert_eq!(Ask::form(&stop, &form).cookie(&cookie).of(&console).leads_to(), path);
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn bulk_actions_are_listed_shown_and_stopped_by_the_command_line(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[]).await;
        let ran = |fixture: &DaemonFixture, args: &[&str]| {
            let ran = fixture.run(&[], &[&["bulk"], args].concat());
            (ran.status.code(), String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap())
        };
        assert!(ran(&fixture, &["list"]).1.contains("there are no bulk actions"));
        let selection = Selection::chosen(vec![RunId::new(), RunId::new()]);
        let by = Actor::new("ana", Channel::Api);
        let new = |verb| NewBulk { verb, selection: &selection, definition: None, newest: RunId::new(), by: &by };
        let unreadable = bulk::create(&mut fixture.conn, new(Verb::Pause)).await.unwrap().to_string();
        let id = bulk::create(&mut fixture.conn, new(Verb::Revive)).await.unwrap().to_string();
        let (code, list, note) = ran(&fixture, &["list"]);
        assert!(code == Some(0) && note.is_empty(), "{note}");
        for part in [id.as_str(), "revive", "at work", "ana", unreadable.as_str(), "unreadable"] {
            assert!(list.contains(part), "{part}: {list}");
        }
        let (_, list, note) = ran(&fixture, &["list", "--limit", "1"]);
        assert!(list.contains(&id) && !list.contains(&unreadable) && note.contains("older ones"), "{list} {note}");
        let list: Value = serde_json::from_str(&ran(&fixture, &["list", "--json"]).1).unwrap();
        assert_eq!((&list[0]["state"], &list[1]["state"]), (&json!("open"), &json!("unreadable")));
        let shown = ran(&fixture, &["show", &id]).1;
        assert!(shown.contains("revive at work") && shown.contains("2 chosen runs"), "{shown}");
        assert_eq!(ran(&fixture, &["show", &id[id.len() - 8..]]).1, shown);
        let kind = Kind { node: Some("Pay".into()), error: "exit status N".into(), ..Kind::default() };
        let (pipeline, statuses) = (Some("Orders".into()), vec![RunStatus::Halted]);
        let filter = Filter { pipeline, statuses, kind: Some(kind), ..Filter::default() };
        let selection = Selection::Matching(filter);
        let new = NewBulk { verb: Verb::Revive, selection: &selection, definition: None, newest: RunId::new(), by: &by };
        let matching = bulk::create(&mut fixture.conn, new).await.unwrap().to_string();
        let shown = ran(&fixture, &["show", &matching]).1;
        for line in ["of  all runs that match:", "pipeline  Orders", "state  halted", "node  Pay", "message  exit status N"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        // Both were created in the same minute.
        let (code, _, told) = ran(&fixture, &["show", &id[..4]]);
        assert!(code == Some(1) && told.contains("several bulk actions have an id"), "{told}");
        let (code, _, told) = ran(&fixture, &["show", "xyz"]);
        assert!(code == Some(2) && told.contains("is not the id of a bulk action"), "{told}");
        assert_eq!(ran(&fixture, &["show", &unreadable]).0, Some(1));
        for (verb, expected) in [(id.as_str(), "stopped"), (id.as_str(), "had ended"), (unreadable.as_str(), "stopped")] {
            let (code, told, _) = ran(&fixture, &["stop", verb, "--by", "ben"]);
            assert!(code == Some(0) && told.contains(expected), "{told}");
        }
        let shown: Value = serde_json::from_str(&ran(&fixture, &["show", &id, "--json"]).1).unwrap();
        assert_eq!((&shown["state"], &shown["stopped_by"]), (&json!("stopped"), &json!("ben")));
        let nothing = Uuid::new_v4().to_string();
        for verb in ["show", "stop"] {
            let (code, _, told) = ran(&fixture, &[verb, &nothing]);
            assert!(code == Some(1) && told.contains("there is no bulk action"), "{told}");
        }
    }

    async fn an_entry_of_the_halted_is_a_kind_to_revive(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        halted(&mut fixture, 2).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let kinds = Ask::get("/api/v1/halted").bearer(&secret).of(&console).value();
        let entry = kinds["kinds"][0].clone();
        let body = json!({"verb": "revive", "filter": {"kind": entry}}).to_string();
        let made = Ask::json(BULK, &body).bearer(&secret).of(&console);
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(made.value()["filter"]["pipeline"], "Halts");
        assert_eq!(ended(&mut fixture.conn, id(&made.value())).await, (2, 0, 0));
        let part = json!({"verb": "revive", "filter": {"kind": {"node": "Fail", "kind": ""}}}).to_string();
        let refused = Ask::json(BULK, &part).bearer(&secret).of(&console);
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.body.contains("missing field `reason`"), "{refused:?}");
        let mut other = entry.clone();
        other["pipeline"] = json!("Plain");
        let body = json!({"verb": "revive", "filter": {"pipeline": "Halts", "kind": other}}).to_string();
        assert_eq!(Ask::json(BULK, &body).bearer(&secret).of(&console).status, 422);
        daemon.stop().await;
    }

    async fn a_bulk_action_that_only_another_version_can_read_is_listed_and_can_be_stopped(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let selection = Selection::chosen(vec![RunId::new()]);
        let new = NewBulk {
            verb: Verb::Pause,
            selection: &selection,
            definition: None,
            newest: RunId::new(),
            by: &Actor::new("ana", Channel::Api),
        };
        let id = bulk::create(&mut fixture.conn, new).await.unwrap();
        let listed = Ask::get(BULK).bearer(&secret).of(&console).value();
        assert_eq!(listed, json!([{"id": id.to_string(), "state": "unreadable"}]));
        let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
        let page = Ask::get("/bulk").cookie(&cookie).of(&console);
        assert!(page.body.contains(&format!("/bulk/{id}/stop")), "{page:?}");
        for was_open in [true, false] {
            let stopped = Ask::delete(&format!("{BULK}/{id}")).bearer(&secret).of(&console);
            assert_eq!(stopped.value(), json!({"was_open": was_open}));
        }
        daemon.stop().await;
    }

    /// During a rolling upgrade, another console may read it.
    async fn a_bulk_action_whose_definition_cannot_be_read_is_left_to_others(db: Db) {
        static NEWER: Statement = Statement::new(
            "TEST_NEWER", "UPDATE ductwork_definitions SET body = '[' WHERE digest = :digest");
        let (mut fixture, mut daemon, _console) = started(&db, KNOWN).await;
        let run = halted(&mut fixture, 1).await[0];
        let definition = Pipeline::named("Halts").start("Other").build().unwrap();
        let digest = definition::save(&mut fixture.conn, &definition).await.unwrap();
        let args = [("digest", digest.as_str().into())];
        assert_eq!(fixture.conn.execute(&NEWER, &args).await.unwrap(), 1);
        let selection = Selection::chosen(vec![run]);
        let new = NewBulk {
            verb: Verb::Revive,
            selection: &selection,
            definition: Some(&definition),
            newest: run,
            by: &Actor::new("ana", Channel::Api),
        };
        bulk::create(&mut fixture.conn, new).await.unwrap();
        daemon.says("the console cannot do all of its work").await;
        // Its lease of the duty is over soon, and it does not renew it.
        let (other, lease) = (Uuid::now_v7(), Duration::from_secs(3_600));
        eventually(PATIENCE, "another console has the duty", async || {
            let is_taken = duty::take(&mut fixture.conn, "bulks", other, lease).await.unwrap();
            is_taken.then_some(())
        })
        .await;
        daemon.stop().await;
    }

    async fn a_wish_for_many_runs_that_cannot_be_is_refused_with_the_reason(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let own = halted(&mut fixture, 1).await[0];
        let other = fixture.trigger("Plain", "1", 1).await[0];
        fixture.ended(PATIENCE).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let limited = token(&fixture, &["--scope", "operate", "--pipeline", "Halts"]);
        let reader = token(&fixture, &["--scope", "read"]);
        let many = format!("{{\"verb\":\"revive\",\"runs\":[{}]}}", vec![format!("\"{own}\""); 1].join(","));
        let nothing = "0192f3a1-0000-7000-8000-000000000000";
        let too_many: Vec<String> = (0..501).map(|_| format!("\"{}\"", RunId::new())).collect();
        let too_many = format!("{{\"verb\":\"revive\",\"runs\":[{}]}}", too_many.join(","));
        let foreign = format!("{{\"verb\":\"revive\",\"runs\":[\"{own}\",\"{other}\"]}}");
        let gone = format!("{{\"verb\":\"revive\",\"runs\":[\"{nothing}\"]}}");
        let newest = format!("{{\"verb\":\"revive\",\"runs\":[\"{own}\"],\"newest\":\"{own}\"}}");
        let nil = format!("{{\"verb\":\"revive\",\"runs\":[\"{own}\",\"{}\"]}}", Uuid::nil());
        let several: Vec<String> = (0..5).map(|_| format!("\"{}\"", RunId::new())).collect();
        let several = format!("{{\"verb\":\"revive\",\"runs\":[{}]}}", several.join(","));
        let left = format!("{{\"verb\":\"revive\",\"runs\":[\"{own}\",\"{nothing}\"]}}");
        // The run of another pipeline has the same answer.
        let none_of_halts = format!("this token is for Halts alone, where there are no such runs: {nothing}\"");
        let unknown = format!("{BULK}/{nothing}");
        for (ask, by, status, part) in [
            (Ask::json(BULK, "{}"), &secret, 422, "missing field `verb`"),
            (Ask::json(BULK, r#"{"verb": "trigger"}"#), &secret, 422, "unknown variant"),
            (Ask::json(BULK, r#"{"verb": "revive"}"#), &secret, 422, "either `runs` or a `filter`"),
            (Ask::json(BULK, r#"{"verb": "revive", "runs": [], "filter": {}}"#), &secret, 422, "either"),
            (Ask::json(BULK, r#"{"verb": "revive", "runs": []}"#), &secret, 422, "1 to 500 runs"),
            (Ask::json(BULK, &too_many), &secret, 422, "1 to 500 runs"),
            (Ask::json(BULK, &newest), &secret, 422, "`newest` belongs to a filter"),
            (Ask::json(BULK, &gone), &secret, 422, nothing),
            (Ask::json(BULK, &nil), &secret, 422, "there are no such runs: 00000000-0000-0000-0000-000000000000\""),
            (Ask::json(BULK, &several), &secret, 422, " and 2 more\""),
            (Ask::json(BULK, &left), &limited, 403, &none_of_halts),
            (Ask::json(BULK, &foreign), &limited, 403, &none_of_halts.replace(nothing, &other.to_string())),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"status": ["completed"]}}"#), &secret, 422, "halted"),
            (Ask::json(BULK, r#"{"verb": "cancel", "filter": {"status": ["x"]}}"#), &secret, 422, "a state is one of"),
            (Ask::json(BULK, r#"{"verb": "cancel", "filter": {"since": "x"}}"#), &secret, 422, "since"),
            (Ask::json(BULK, r#"{"verb": "cancel", "filter": {"kind": {"node": null, "reason": null, "class": null, "kind": ""}}}"#), &secret, 422, "revived"),
            (Ask::json(BULK, r#"{"verb": "cancel", "filter": {}}"#), &secret, 422, "the filter is empty"),
            (Ask::json(BULK, r#"{"verb": "cancel", "filter": {"pipeline": null, "all": false}}"#), &secret, 422, "the filter is empty"),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"all": true}, "latest": true}"#), &secret, 422, "names their pipeline"),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"pipeline": "X"}, "latest": true}"#), &secret, 409, "no pipeline X"),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"pipeline": "Halt"}}"#), &secret, 404, "did you mean `Halts`?"),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"all": true}}"#), &limited, 403, "Halts alone"),
            (Ask::json(BULK, r#"{"verb": "revive", "filter": {"pipeline": "Plain"}}"#), &limited, 403, "Halts alone"),
            (Ask::json(BULK, &foreign), &limited, 403, "Halts alone"),
            (Ask::json(BULK, &gone), &limited, 403, "Halts alone"),
            (Ask::get(BULK), &limited, 403, "Halts alone"),
            (Ask::json(BULK, &many), &reader, 403, "needs operate"),
            (Ask::get(&unknown), &secret, 404, "no bulk action"),
            (Ask::delete(&unknown), &secret, 404, "no bulk action"),
        ] {
            let answer = ask.bearer(by).of(&console);
            assert_eq!(answer.status, status, "{part}: {answer:?}");
            assert!(answer.body.contains(part), "{part}: {answer:?}");
        }
        assert_eq!(bulk::latest(&mut fixture.conn, None, 9).await.unwrap(), []);
        // The newest run of all is one of another pipeline.
        let cancel = r#"{"verb": "cancel", "filter": {"pipeline": "Halts"}}"#;
        let made = Ask::json(BULK, cancel).bearer(&limited).of(&console);
        assert_eq!((made.status, &made.value()["newest"]), (201, &json!(own)), "{made:?}");
        // One of the chosen runs was deleted meanwhile.
        let cookie = Ask::form("/sign-in", &format!("secret={limited}")).of(&console).cookie();
        let left = format!("/bulk/new?run={own}&run={nothing}&verb=revive");
        let question = Ask::get(&left).cookie(&cookie).of(&console);
        assert!(question.body.contains("does not exist"), "{question:?}");
        let left = format!("proof={}&verb=revive&run={own}&run={nothing}", question.proof());
        let made = Ask::form("/bulk", &left).cookie(&cookie).of(&console);
        let id: Uuid = made.leads_to().strip_prefix("/bulk/").unwrap().parse().unwrap();
        ended(&mut fixture.conn, id).await;
        let path = format!("{BULK}/{id}");
        assert_eq!(Ask::get(&path).bearer(&limited).of(&console).value()["done"], 1);
        // The page of one whose runs are there offers only what the token may see.
        let again = Ask::json(BULK, &many).bearer(&limited).of(&console);
        let again = again.value()["id"].as_str().unwrap().to_owned();
        let looked = async |secret: &str| {
            let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
            let page = Ask::get(&format!("/bulk/{again}")).cookie(&cookie).of(&console);
            assert_eq!(page.status, 200, "{page:?}");
            led_to_nothing_else(&page, &cookie, &console).await;
            page.body.contains(&format!("/actions?bulk={again}"))
        };
        assert!(!looked(&limited).await && looked(&secret).await);
        // A token with the same name is for other pipelines.
        let namesake = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        for ask in [Ask::get(&path), Ask::delete(&path)] {
            assert_eq!(ask.bearer(&namesake).of(&console).status, 404);
        }
        assert_eq!(Ask::delete(&path).bearer(&limited).of(&console).value()["was_open"], false);
        for address in [
            "/bulk/new", "/bulk/new?verb=trigger", "/bulk/new?verb=cancel", "/bulk/new?verb=cancel&run=",
            "/bulk/new?verb=revive&all=1&status=completed", "/bulk/new?verb=revive&run=x",
            "/bulk/new?verb=revive&all=1&since=x", "/bulk/new?verb=revive&verb=cancel", "/bulk/x", "/bulk?before=x",
        ] {
            let cookie = Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie();
            let answer = Ask::get(address).cookie(&cookie).of(&console);
            assert!([400, 422].contains(&answer.status), "{address}: {answer:?}");
        }
        daemon.stop().await;
    }
}

/// Only PostgreSQL locks a single row.
#[tokio::test]
async fn a_console_goes_on_beside_a_run_that_somebody_has_locked_and_comes_back_to_it() {
    let body = async |db: Db| {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let runs = halted(&mut fixture, 3).await;
        let mut held = sqlx::PgConnection::connect(&db.url).await.unwrap();
        let lock = format!(
            "SET application_name = 'somebody'; BEGIN; SELECT 1 FROM ductwork_runs WHERE id = '{}' FOR UPDATE",
            runs[0]
        );
        held.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock)))
            .await
            .unwrap();
        let secret = token(&fixture, &["--scope", "operate"]);
        let body = r#"{"verb": "revive", "filter": {"pipeline": "Halts"}}"#;
        let made = Ask::json(BULK, body).bearer(&secret).of(&console);
        let id = id(&made.value());
        let path = format!("{BULK}/{id}");
        let seen = || Ask::get(&path).bearer(&secret).of(&console).value();
        let bulk = eventually(PATIENCE, "the others are revived", async || {
            Some(seen()).filter(|it| it["done"] == 2)
        })
        .await;
        assert_eq!(
            (&bulk["aside"], &bulk["failed"]),
            (&json!(1), &json!(0)),
            "{bulk}"
        );
        let failure = &bulk["failures"][0];
        assert_eq!(failure["run_id"], json!(runs[0].to_string()), "{bulk}");
        assert!(failure["again_at"].is_string(), "{bulk}");
        let why = failure["why"].as_str().unwrap();
        assert!(
            why.contains("locked by the session") && why.contains("somebody"),
            "{why}"
        );
        let cookie = Ask::form("/sign-in", &format!("secret={secret}"))
            .of(&console)
            .cookie();
        let page = Ask::get(&format!("/bulk/{id}"))
            .cookie(&cookie)
            .of(&console);
        assert!(
            page.body.contains("locked by others, to be tried again"),
            "{page:?}"
        );
        held.execute("COMMIT").await.unwrap();
        assert_eq!(ended(&mut fixture.conn, id).await, (3, 0, 0));
        assert_eq!(seen()["failures"], json!([]));
        fixture.ended(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    };
    crate::support::with(Db::postgres().await, body).await;
}

/// Only PostgreSQL locks a single row. Another try would take as long as the first one.
#[tokio::test]
async fn the_answer_to_an_action_on_a_run_that_others_hold_says_what_helps() {
    static MARKED: Statement = Statement::new(
        "TEST_MARKED",
        "UPDATE ductwork_runs SET cancelling_at = {now} WHERE id = :run",
    );
    let body = async |db: Db| {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let run = halted(&mut fixture, 1).await[0];
        let asks = fixture.trigger("Asks", "1", 1).await[0];
        eventually(PATIENCE, "it asks", async || {
            let state = query::run_state(&mut fixture.conn, asks).await.unwrap()?;
            (state.status == RunStatus::Dampened).then_some(())
        })
        .await;
        let mut held = sqlx::PgConnection::connect(&db.url).await.unwrap();
        let lock = "BEGIN; SELECT 1 FROM ductwork_runs FOR UPDATE";
        held.execute(sqlx::raw_sql(lock)).await.unwrap();
        let secret = token(&fixture, &["--scope", "operate"]);
        let act = |run: RunId, verb: &str| {
            let path = format!("/api/v1/runs/{run}/{verb}");
            Ask::json(&path, "{}").bearer(&secret).of(&console)
        };
        let revived = act(run, "revive");
        assert_eq!(revived.status, 503, "{revived:?}");
        assert_eq!(revived.header("retry-after"), Some("60"));
        assert!(revived.body.contains("`ductworkd revive`"), "{revived:?}");
        let cancelled = act(asks, "cancel");
        assert_eq!(cancelled.status, 503, "{cancelled:?}");
        held.execute("COMMIT").await.unwrap();
        // As if somebody else had cancelled the first part of it, and were at work on the next one.
        let args = [("run", asks.0.into())];
        fixture.conn.execute(&MARKED, &args).await.unwrap();
        for lock in [lock, "BEGIN; SELECT 1 FROM ductwork_branches FOR UPDATE"] {
            held.execute(sqlx::raw_sql(lock)).await.unwrap();
            let cancelled = act(asks, "cancel");
            assert_eq!(cancelled.status, 202, "{cancelled:?}");
            assert_eq!(cancelled.value()["ending"], json!(true));
            held.execute("COMMIT").await.unwrap();
        }
        assert_eq!(act(run, "revive").status, 201);
        let cancelled = act(asks, "cancel");
        assert_eq!(cancelled.value()["ending"], json!(false), "{cancelled:?}");
        fixture.ended(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    };
    crate::support::with(Db::postgres().await, body).await;
}

/// A trigger of somebody leaves the row of the bulk action as it is, so that each round finds it changed by another.
#[tokio::test]
async fn a_bulk_action_that_cannot_go_on_is_tried_again_after_a_pause() {
    let body = async |db: Db| {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        halted(&mut fixture, 1).await;
        let stays = "CREATE SEQUENCE rounds;
            CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM nextval('rounds'); RETURN NULL; END $$;
            CREATE TRIGGER stays BEFORE UPDATE ON ductwork_bulks FOR EACH ROW EXECUTE FUNCTION stays()";
        fixture.conn.script("TEST_STAYS", stays).await.unwrap();
        let mut asks = sqlx::PgConnection::connect(&db.url).await.unwrap();
        let secret = token(&fixture, &["--scope", "operate"]);
        let body = r#"{"verb": "revive", "filter": {"pipeline": "Halts"}}"#;
        let made = Ask::json(BULK, body).bearer(&secret).of(&console);
        let id = id(&made.value());
        let began = std::time::Instant::now();
        eventually(PATIENCE, "there were some rounds", async || {
            let rounds = sqlx::query_scalar::<_, i64>("SELECT last_value FROM rounds");
            let rounds = rounds.fetch_one(&mut asks).await.unwrap();
            (rounds >= 4).then_some(())
        })
        .await;
        let took = began.elapsed();
        assert!(took >= std::time::Duration::from_secs(2), "{took:?}");
        let goes = "DROP TRIGGER stays ON ductwork_bulks";
        fixture.conn.script("TEST_GOES", goes).await.unwrap();
        assert_eq!(ended(&mut fixture.conn, id).await, (1, 0, 0));
        fixture.ended(PATIENCE).await;
        daemon.stop().await;
    };
    crate::support::with(Db::postgres().await, body).await;
}
