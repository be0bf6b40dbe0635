//! The questions that wait for a person, as programs list them.

use std::collections::BTreeSet;

use ductwork::model::RunStatus;
use ductwork::store::query;
use serde_json::{Value, json};

use crate::fixture::*;
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
