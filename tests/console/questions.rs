//! The questions that wait for a person, as programs list them.

use std::collections::BTreeSet;

use ductwork::model::{RunId, RunStatus, StepId};
use ductwork::store::page;
use ductwork::store::query;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

on_every_database! {
    async fn every_open_question_is_on_one_page_and_a_token_sees_its_own_pipelines_and_payloads(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let all = token(&fixture, &["--scope", "operate"]);
        let [own, other] = ["Asks", "Plain"].map(|it| token(&fixture, &["--pipeline", it]));
        let blind = token(&fixture, &["--no-payloads"]);
        let mut runs = fixture.trigger("Asks", r#"{"amount": 7}"#, 5).await;
        runs.sort();
        for run in &runs {
            eventually(PATIENCE, "it asks", async || {
                let state = query::run_state(&mut fixture.conn, *run).await.unwrap().unwrap();
                (state.status == RunStatus::Dampened).then_some(())
            })
            .await;
        }
        let got = |path: &str, secret: &str| Ask::get(path).bearer(secret).of(&console);
        let list = "/api/v1/waiting";
        for secret in [&all, &own] {
            let (mut path, mut listed) = (format!("{list}?limit=2"), Vec::new());
            loop {
                let page = got(&path, secret);
                listed.extend(page.value().as_array().unwrap().iter().cloned());
                let Some(link) = page.header("link") else { break };
                path = link.split(['<', '>']).nth(1).unwrap().to_owned();
            }
            let ids: Vec<Value> = listed.iter().map(|it| it["run_id"].clone()).collect();
            let expected: Vec<Value> = runs.iter().map(|it| json!(it.to_string())).collect();
            assert_eq!(ids, expected);
            let steps: BTreeSet<String> = listed.iter().map(|it| it["step_id"].to_string()).collect();
            assert_eq!(steps.len(), 5, "{listed:?}");
            for it in &listed {
                assert_eq!((&it["pipeline"], &it["value"]), (&json!("Asks"), &json!({"amount": 7})), "{it}");
                assert_eq!((&it["answer_by"], it.get("value_bytes")), (&Value::Null, None), "{it}");
            }
        }
        for (path, secret, n) in [(list.to_owned(), &other, 0), (format!("{list}?pipeline=Plain"), &all, 0), (format!("{list}?pipeline=Asks"), &own, 5)] {
            assert_eq!(got(&path, secret).value().as_array().unwrap().len(), n, "{path}");
        }
        assert_eq!(got(&format!("{list}?pipeline=Asks"), &other).status, 403);
        let withheld = got(list, &blind).value();
        assert_eq!((&withheld[0]["value"], &withheld[0]["value_bytes"]), (&Value::Null, &json!(13)), "{withheld}");
        // An answer takes the question off the list.
        let step = got(list, &all).value()[0]["step_id"].clone();
        let answer = json!({ "step": step }).to_string();
        let resumed = Ask::json(&format!("/api/v1/runs/{}/resume", runs[0]), &answer).bearer(&all).of(&console);
        assert_eq!(resumed.status, 200, "{resumed:?}");
        let left = got(list, &all).value();
        assert_eq!((left.as_array().unwrap().len(), &left[0]["run_id"]), (4, &json!(runs[1].to_string())), "{left}");
        daemon.stop().await;
    }
}

/// Each element of its input is a question.
const MANY: &str = "pipeline: Many\n\
     steps: { All: { command: [cat] }, Each: { command: [cat] }, Sum: { command: [cat] } }\n\
     flow: [{ start: All }, { expand: Each }, { dampen: \"This one?\" }, { collapse: Sum }]\n";

on_every_database! {
    async fn every_question_can_be_answered_in_a_browser_however_many_there_are(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[MANY, ASKS]).await;
        fixture.configure(KNOWN);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let [secret, other] = [&["--scope", "operate"][..], &["--pipeline", "Many"]].map(|it| token(&fixture, it));
        let [cookie, foreign] = [&secret, &other].map(|secret| {
            Ask::form("/sign-in", &format!("secret={secret}")).of(&console).cookie()
        });
        let get = async |path: &str, cookie: &str| {
            eventually(PATIENCE, "it is answered", async || {
                let answer = Ask::get(path).cookie(cookie).of(&console);
                (answer.status != 429).then_some(answer)
            })
            .await
        };
        let elements: Vec<usize> = (0..103).collect();
        let many = fixture.trigger("Many", &json!(elements).to_string(), 1).await[0];
        let one = fixture.trigger("Asks", "1", 1).await[0];
        let nil = (RunId(Uuid::nil()), StepId(Uuid::nil()));
        let asked = eventually(PATIENCE, "all of them ask", async || {
            let found = page::waiting_after(&mut fixture.conn, None, nil, 200, None).await.unwrap();
            (found.len() == 104).then_some(found)
        })
        .await;
        let shown = |page: &Answer| -> Vec<String> {
            let parts = page.body.split("<li id=\"step-").skip(1);
            parts.map(|it| it.split('"').next().unwrap().to_owned()).collect()
        };
        let next = |page: &Answer| -> Option<String> {
            let (before, _) = page.body.split_once("\">More questions</a>")?;
            let (_, path) = before.rsplit_once("href=\"")?;
            Some(path.replace("&#38;", "&"))
        };
        let ids: Vec<String> = asked.iter().map(|it| it.step_id.to_string()).collect();
        let first = get("/waiting", &cookie).await;
        assert_eq!(shown(&first), ids[..100], "{first:?}");
        let second = get(&next(&first).unwrap(), &cookie).await;
        assert_eq!((shown(&second), next(&second)), (ids[100..].to_vec(), None), "{second:?}");
        assert!(second.body.contains("href=\"/waiting\">First page"), "{second:?}");
        // Each tells the element that it is about, except for the one that is about none.
        let elements = |page: &Answer| page.body.matches("</a>, element ").count();
        assert_eq!((elements(&first), elements(&second)), (100, 3));
        assert!(first.body.contains("</a>, element 1 of 103 "), "{first:?}");
        // A run's own questions: those of a younger run, and the last ones of a wide run.
        let own = get(&format!("/waiting?run={one}"), &cookie).await;
        assert_eq!(shown(&own), ids[103..], "{own:?}");
        let of_many = get(&format!("/waiting?run={many}"), &cookie).await;
        let rest = next(&of_many).unwrap();
        assert!(rest.contains(&format!("run={many}&after={many}.")), "{rest}");
        assert_eq!(shown(&get(&rest, &cookie).await), ids[100..103]);
        // The page of a run leads to its question, and so does that of each step.
        let led = async |path: &str, at: usize| {
            let page = get(path, &cookie).await;
            let (before, _) = page.body.split_once("\">Answer…</a>").unwrap();
            let (_, path) = before.rsplit_once("href=\"").unwrap();
            let (path, place) = path.rsplit_once('#').unwrap();
            assert_eq!(place, format!("step-{}", ids[at]));
            let question = get(&path.replace("&#38;", "&"), &cookie).await;
            assert_eq!(shown(&question), ids[at..=at], "{question:?}");
            question
        };
        led(&format!("/runs/{one}"), 103).await;
        let question = led(&format!("/runs/{many}/steps/{}", ids[102]), 102).await;
        let answer = format!("proof={}&step={}", question.proof(), ids[102]);
        let path = format!("/runs/{many}/resume");
        assert_eq!(Ask::form(&path, &answer).cookie(&cookie).of(&console).leads_to(), format!("/runs/{many}"));
        assert_eq!(shown(&get(&rest, &cookie).await), ids[100..102]);

        assert_eq!(get(&format!("/waiting?run={one}"), &foreign).await.status, 403);
        assert_eq!(shown(&get("/waiting", &foreign).await).len(), 100);
        let nothing = RunId::new();
        for (asks, status, says) in [
            ("limit=1".to_owned(), 400, "no parameter `limit`"),
            ("run=1".to_owned(), 400, "not the id of a run"),
            (format!("run={nothing}"), 404, "there is no run"),
            ("after=1".to_owned(), 400, "a point between them"),
            (format!("after={one}.1"), 400, "not the id of a step"),
            (format!("run={one}&after={many}.{}", ids[0]), 400, "another run&#39;s questions"),
        ] {
            let refused = get(&format!("/waiting?{asks}"), &cookie).await;
            assert_eq!(refused.status, status, "{asks}: {refused:?}");
            assert!(refused.body.contains(says), "{asks}: {refused:?}");
        }
        daemon.stop().await;
    }
}
