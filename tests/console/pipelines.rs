//! Pipelines that are known without a run, the pipelines of a visitor who may not see others, and
//! damaged rows about pipelines.

use std::time::Duration;

use ductwork::definition::{Pipeline, StepSpec};
use ductwork::model::{ProcessId, Role};
use ductwork::store::Dialect;
use ductwork::store::action::{self, Of};
use ductwork::store::process::{self, NewProcess};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{NewRun, trigger};

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::*;

/// A worker of a pipeline that this host's configuration does not contain.
fn elsewhere() -> NewProcess {
    NewProcess {
        id: ProcessId::new(),
        supervisor: None,
        role: Role::Worker,
        pipeline: Some("Elsewhere".to_owned()),
        host: "far".to_owned(),
        boot_id: "boot".to_owned(),
        pid_namespace: "pid:[1]".to_owned(),
        pid: 4_711,
        pid_started_at: 1,
    }
}

fn let_in(console: &Console, secret: &str) -> String {
    Ask::form("/sign-in", &format!("secret={secret}"))
        .of(console)
        .cookie()
}

/// The error of a refused verb.
fn refused(fixture: &DaemonFixture, verb: &[&str]) -> String {
    let output = fixture.run(&[], verb);
    assert!(!output.status.success(), "{verb:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Everything that a verb prints.
fn told(fixture: &DaemonFixture, verb: &[&str]) -> String {
    let output = fixture.run(&[], verb);
    assert!(output.status.success(), "{verb:?}: {output:?}");
    [output.stdout, output.stderr]
        .map(|it| String::from_utf8(it).unwrap())
        .concat()
}

on_every_database! {
    async fn a_pipeline_without_a_run_has_a_page_on_which_it_is_started_and_paused(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        process::register(&mut fixture.conn, &elsewhere()).await.unwrap();
        let secret = token(&fixture, &["--scope", "operate"]);
        let cookie = let_in(&console, &secret);
        let got = |path: &str| Ask::get(path).cookie(&cookie).of(&console);
        let sent = |path: &str, body: &str| Ask::form(path, body).cookie(&cookie).of(&console);
        let all = got("/pipelines");
        let configured = got("/pipelines/Plain");
        assert_eq!(configured.status, 200, "{configured:?}");
        for part in ["It has had no runs yet", "Start a run", "Pause the pipeline", "<svg"] {
            assert!(configured.body.contains(part), "{part}: {configured:?}");
        }
        let far = got("/pipelines/Elsewhere");
        assert_eq!(far.status, 200, "{far:?}");
        for part in ["It has had no runs yet", "where its workers are configured", "Pause the pipeline"] {
            assert!(far.body.contains(part), "{part}: {far:?}");
        }
        assert!(!far.body.contains("Start a run"), "{far:?}");
        for name in ["Plain", "Elsewhere"] {
            assert!(all.body.contains(&format!("/pipelines/{name}\"")), "{name}: {all:?}");
            let proof = format!("proof={}&reason=a+bad+feed", configured.proof());
            assert_eq!(sent(&format!("/pipelines/{name}/pause"), &proof).leads_to(), format!("/pipelines/{name}"));
            assert!(got(&format!("/pipelines/{name}")).body.contains("a bad feed"), "{name}");
            let unpause = format!("/api/v1/pipelines/{name}/unpause");
            let ended = Ask::json(&unpause, "").bearer(&secret).of(&console);
            assert_eq!(ended.value()["was_paused"], true, "{name}: {ended:?}");
        }
        let pause = |name: &str| {
            let path = format!("/api/v1/pipelines/{name}/pause");
            Ask::json(&path, r#"{"reason": "why"}"#).bearer(&secret).of(&console)
        };
        assert_eq!(pause("Elsewhere").status, 201);
        let typo = pause("Elsewhera");
        assert_eq!(typo.status, 404, "{typo:?}");
        assert!(typo.body.contains("did you mean `Elsewhere`?"), "{typo:?}");
        let start = Ask::json("/api/v1/pipelines/Elsewhere/runs", r#"{"input": 1}"#);
        let start = start.bearer(&secret).of(&console);
        assert_eq!(start.status, 409, "{start:?}");
        assert_eq!(got("/pipelines/Nobody").status, 404);
        daemon.stop().await;
    }

    async fn a_version_tells_its_changes_since_the_one_before(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let mut digests = Vec::new();
        for program in ["old", "<b>new</b>"] {
            let pipeline = Pipeline::named("Versioned").start("A").chain("B");
            let pipeline = pipeline.step("B", StepSpec::command([program])).build().unwrap();
            let run = [NewRun { key: None, input: "1" }];
            trigger(&mut fixture.conn, &pipeline, &run, Duration::from_secs(3_600)).await.unwrap();
            digests.push(pipeline.digest());
        }
        let newest = console.get("/pipelines/Versioned").body;
        for part in [
            format!("since version <a class=\"id\" href=\"/pipelines/Versioned?version={}\"", digests[0]),
            "<li>the step `B` has changed</li>".to_owned(),
            "&#34;old&#34;".to_owned(),
            "&#34;&#60;b&#62;new".to_owned(),
        ] {
            assert!(newest.contains(&part), "{part}: {newest}");
        }
        let first = console.get(&format!("/pipelines/Versioned?version={}", digests[0])).body;
        assert!(first.contains(&digests[0]) && !first.contains("Changes"), "{first}");
        daemon.stop().await;
    }

    async fn a_token_is_for_pipelines_that_somebody_knows(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        process::register(&mut fixture.conn, &elsewhere()).await.unwrap();
        for (pipeline, says) in [
            ("", "the name of a pipeline is empty"),
            ("Plaim", "did you mean `Plain`?"),
            ("Elsewher", "did you mean `Elsewhere`?"),
            ("Nothing", "there are: Elsewhere, Plain"),
        ] {
            let verb = ["token", "create", "shop", "--pipeline", "Plain", "--pipeline", pipeline];
            let error = refused(&fixture, &verb);
            assert!(error.contains(says), "{pipeline}: {error}");
        }
        assert!(printed(&fixture, &["token", "list"]).contains("there are no tokens"));
        for known in ["Plain", "Elsewhere"] {
            token(&fixture, &["--pipeline", known]);
        }
    }

    async fn a_browser_for_some_pipelines_is_told_the_names_of_no_others(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        for pipeline in ["Plain", "Halts"] {
            let run = fixture.trigger(pipeline, "1", 1).await[0];
            fixture.run_ended(run).await;
        }
        let secret = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        let cookie = let_in(&console, &secret);
        let own = fixture.trigger("Plain", "1", 1).await[0];
        for path in ["/runs?pipeline=Plain", "/halted?pipeline=Plain", "/pipelines/Plain", &format!("/runs/{own}")] {
            let page = Ask::get(path).cookie(&cookie).of(&console);
            assert_eq!(page.status, 200, "{path}");
            assert!(page.body.contains("Plain"), "{path}");
            assert!(!page.body.contains("Halts") && !page.body.contains("Asks"), "{path}: {page:?}");
        }
        // The token is for a pipeline that no longer exists, whose name is similar to another's.
        static NAMED: Statement = Statement::new(
            "TEST_NAMED",
            "UPDATE ductwork_tokens SET pipelines = '[\"Haltz\"]' WHERE kind = 'token' AND ended_at IS NULL",
        );
        let gone = token(&fixture, &["--scope", "operate", "--pipeline", "Plain"]);
        fixture.conn.execute(&NAMED, &[]).await.unwrap();
        let pause = Ask::json("/api/v1/pipelines/Haltz/pause", r#"{"reason": "why"}"#);
        let pause = pause.bearer(&gone).of(&console);
        assert_eq!(pause.status, 404, "{pause:?}");
        assert!(!pause.body.contains("Halts"), "{pause:?}");
        daemon.stop().await;
    }

    async fn rows_with_texts_of_a_megabyte_make_no_page_and_no_answer_long(db: Db) {
        static PAUSE: Statement = Statement::new(
            "TEST_PAUSE",
            "INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
             VALUES (:pipeline, :long, :long, 1)",
        );
        static ACTIONS: Statement = Statement::new(
            "TEST_ACTIONS",
            "UPDATE ductwork_actions SET verb = :word, channel = :word, by_whom = :long, pipeline = :word",
        );
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let long = "x".repeat(1 << 20);
        for pipeline in ["Plain", "Other"] {
            let args = [("pipeline", pipeline.into()), ("long", long.as_str().into())];
            fixture.conn.execute(&PAUSE, &args).await.unwrap();
        }
        for _ in 0..3 {
            let path = "/api/v1/pipelines/Plain/runs";
            assert_eq!(Ask::json(path, r#"{"input": 1}"#).of(&console).status, 201);
        }
        // As long as the database allows.
        let longest = if fixture.conn.dialect() == Dialect::Mysql { 64 } else { long.len() };
        let args = [("long", long.as_str().into()), ("word", (&long[..longest]).into())];
        fixture.conn.execute(&ACTIONS, &args).await.unwrap();
        for path in ["/", "/actions", "/pipelines/Plain", "/api/v1/actions", "/api/v1/pipelines"] {
            let Answer { status, body, .. } = console.get(path);
            assert_eq!(status, 200, "{path}");
            assert!(body.contains("xxx") && body.len() < 64 << 10, "{path}: {} bytes", body.len());
        }
        let health = fixture.run(&[], &["health"]);
        assert!(health.stdout.len() < 64 << 10, "{}", health.stdout.len());
        daemon.stop().await;
    }

    async fn a_request_with_two_keys_is_refused_and_starts_nothing(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, ANYBODY).await;
        let path = "/api/v1/pipelines/Plain/runs";
        let both = Ask::json(path, r#"{"input": 1}"#);
        let both = both.with("Idempotency-Key", "a").with("Idempotency-Key", "b");
        let refused = both.of(&console);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert!(refused.body.contains("one `Idempotency-Key`"), "{refused:?}");
        assert_eq!(action::latest(&mut fixture.conn, Of::All, None, 9).await.unwrap(), []);
        daemon.stop().await;
    }

    async fn lists_and_runs_say_that_their_pipeline_is_paused_and_who_ended_that_is_recorded(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS]).await;
        printed(&fixture, &["pause", "Plain", "--reason", "a bad feed", "--by", "ana"]);
        let is_told = |text: &str| {
            text.contains("the pipeline Plain is paused (by ana, ") && text.contains("): a bad feed\n")
        };
        // Also for a pipeline that is named explicitly, even before its first run.
        assert!(is_told(&told(&fixture, &["runs", "--pipeline", "Plain"])));
        assert!(!is_told(&told(&fixture, &["runs"])));
        let run = fixture.trigger_in(Duration::from_secs(3_600), "Plain", "1", 1).await[0].to_string();
        let other = fixture.trigger_in(Duration::from_secs(3_600), "Halts", "1", 1).await[0].to_string();
        assert!(is_told(&told(&fixture, &["runs"])));
        assert!(!is_told(&told(&fixture, &["runs", "--pipeline", "Halts"])));
        assert!(is_told(&told(&fixture, &["show", &run])));
        assert!(!is_told(&told(&fixture, &["show", &other])));
        printed(&fixture, &["unpause", "Plain", "--by", "ben"]);
        assert!(!is_told(&told(&fixture, &["runs"])) && !is_told(&told(&fixture, &["show", &run])));
        let actions = action::latest(&mut fixture.conn, Of::All, None, 1).await.unwrap();
        assert_eq!((actions[0].verb.as_str(), actions[0].by.as_str()), ("unpause", "ben"));
    }
}
