//! The input that a pipeline requires: through the API, and through a form that is made from it.

use ductwork::model::RunId;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::Ask;

const ORDERS: &str = r#"pipeline: Orders
input:
  type: object
  description: An order of a customer.
  required: [to, amount]
  additionalProperties: false
  properties:
    to:
      type: object
      required: [mail]
      properties: { mail: { type: string, format: email, title: "Mail <b>", description: "For the invoice." } }
    amount: { type: integer, minimum: 1 }
    size: { enum: [small, large], default: small }
    gift: { type: boolean }
    tags: { type: array, items: { type: string }, uniqueItems: true }
steps: { A: { command: [cat] } }
flow: [{ start: A }]
"#;

const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

const FORM: &str = "/pipelines/Orders/trigger";

fn sent(console: &Console, path: &str, kind: &str, body: &str) -> Answer {
    let (host, length) = (&console.address, body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Content-Type: {kind}\r\n\r\n{body}"
    );
    console.exchange(&request).expect("a response")
}

/// Sends a form with these fields, and with the page's proof.
fn filled(console: &Console, fields: &[(&str, &str)]) -> Answer {
    let page = console.get(FORM);
    let (_, rest) = page.body.split_once("name=\"proof\" value=\"").unwrap();
    let proof = rest.split('"').next().unwrap();
    let mut body = format!("proof={proof}");
    for (name, value) in fields {
        let encoded = |text: &str| {
            text.bytes()
                .map(|byte| format!("%{byte:02x}"))
                .collect::<String>()
        };
        body.push_str(&format!("&{}={}", encoded(name), encoded(value)));
    }
    sent(console, FORM, "application/x-www-form-urlencoded", &body)
}

/// The run that a form has started.
fn made(answer: &Answer) -> RunId {
    assert_eq!(answer.status, 303, "{answer:?}");
    let path = answer.header("location").unwrap();
    path.strip_prefix("/runs/").unwrap().parse().unwrap()
}

/// The first tag of the page that contains this part.
fn tag<'a>(page: &'a Answer, part: &str) -> &'a str {
    let mut tags = page.body.split('<').filter(|tag| tag.contains(part));
    tags.next()
        .unwrap_or_else(|| panic!("no {part} in {page:?}"))
}

async fn started(db: &Db) -> (DaemonFixture, Daemon, Console) {
    let fixture = DaemonFixture::new(db, Settings::default(), &[ORDERS, PLAIN]).await;
    fixture.configure("  console: { listen: \"127.0.0.1:0\", visitors: anybody }\n");
    let daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    (fixture, daemon, console)
}

on_every_database! {
    async fn an_edited_definition_holds_for_the_console_after_a_reload_and_a_wrong_one_changes_nothing(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        let worker = daemon.child("worker Plain", None).await;
        let api = "/api/v1/pipelines/Plain/runs";
        let anything = r#"{"input": 7}"#;
        let before = sent(&console, api, "application/json", anything);
        assert_eq!(before.status, 201, "{before:?}");

        let file = fixture.path("pipelines/Plain.yml");
        std::fs::write(file, "pipeline: Plain\nflow: [{ start: Nobody }]\n").unwrap();
        daemon.send(Signal::SIGHUP);
        daemon.says("not reloaded").await;
        let kept = sent(&console, api, "application/json", anything);
        assert_eq!(kept.status, 201, "{kept:?}");

        fixture.define(&format!("{PLAIN}input: {{ type: object }}\n"));
        daemon.send(Signal::SIGHUP);
        daemon.says("replacing the console").await;
        let console = Console::after(&daemon, 1).await;
        let refused = sent(&console, api, "application/json", anything);
        assert_eq!(refused.status, 422, "{refused:?}");
        let after = sent(&console, api, "application/json", r#"{"input": {}}"#);
        assert_eq!(after.status, 201, "{after:?}");
        // Runs carry their definitions, so no other process has an old one.
        assert_eq!(daemon.children("worker Plain"), [worker]);
        daemon.send(Signal::SIGHUP);
        daemon.says_times("configuration reloaded", 2).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.logged("replacing the console").len(), 1);

        // Of a definition to which somebody has gone back, nobody is told that it is the older one.
        fixture.define(PLAIN);
        daemon.send(Signal::SIGHUP);
        daemon.says_times("replacing the console", 2).await;
        let console = Console::after(&daemon, 2).await;
        let run = before.value()["run_id"].as_str().unwrap().to_owned();
        let definition = console.json(&format!("/api/v1/runs/{run}"))["definition"].clone();
        let digest = definition.as_str().unwrap();
        let page = console.get("/pipelines/Plain").body;
        let row = format!("version={digest}\" aria-current=\"true\">{}</a> <span class=\"chip\">latest", &digest[..12]);
        assert!(page.contains(&row), "{page}");
        let again = sent(&console, api, "application/json", anything);
        assert_eq!(again.status, 201, "{again:?}");
        let listed = console.json("/api/v1/pipelines");
        let plain = listed.as_array().unwrap().iter().find(|it| it["name"] == "Plain");
        assert_eq!(plain.unwrap()["definition"], definition);
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn no_way_leads_to_a_run_whose_input_is_not_as_its_pipeline_asks(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        let api = "/api/v1/pipelines/Orders/runs";
        let wrong = r#"{"input": {"to": {"mail": "x"}, "amount": 1.5, "sise": 1}}"#;
        let refused = sent(&console, api, "application/json", wrong);
        assert_eq!(refused.status, 422, "{refused:?}");
        let problem: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(
            problem["errors"],
            json!([
                { "parameter": "input", "pointer": "/to/mail", "detail": "`/to/mail` is not a mail address" },
                { "parameter": "input", "pointer": "/amount",
                  "detail": "`/amount` is the number `1.5`; an integer is expected" },
                { "parameter": "input", "pointer": "/sise", "detail": "`/sise` is not expected; did you mean `size`?" },
            ])
        );
        let command = fixture.run(&[], &["trigger", "Orders", "[1]"]);
        assert_eq!(command.status.code(), Some(2), "{command:?}");
        let said = String::from_utf8_lossy(&command.stderr);
        assert!(said.contains("the input is an array; an object is expected"), "{said}");
        let by_form = filled(&console, &[("as", "json"), ("input", "{\"amount\": 0}")]);
        assert_eq!(by_form.status, 422, "{by_form:?}");
        assert!(by_form.body.contains("`/amount` is less than 1.") && by_form.body.contains("`/to` is missing."), "{by_form:?}");
        let by_form = filled(&console, &[("as", "fields"), ("at:/to/mail", "x"), ("at:/amount", "1")]);
        assert_eq!(by_form.status, 422, "{by_form:?}");
        assert_eq!(console.get("/api/v1/runs").body.trim(), "[]", "nothing was started");
        let right = r#"{"input": {"to": {"mail": "a@b"}, "amount": 1.0}}"#;
        let run: Value = serde_json::from_str(&sent(&console, api, "application/json", right).body).unwrap();
        fixture.run_ended(run["run_id"].as_str().unwrap().parse().unwrap()).await;
        daemon.stop().await;
    }

    /// The answer to the first request may be lost, and the pipeline deployed with another schema before the second.
    async fn a_key_leads_to_its_run_although_its_pipeline_has_another_schema_by_now(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        let api = "/api/v1/pipelines/Plain/runs";
        let keyed = |console: &Console, key: &str, body: &str| {
            Ask::json(api, body).with("Idempotency-Key", key).of(console)
        };
        let seven = r#"{"input": 7}"#;
        let first = keyed(&console, "k", seven);
        assert_eq!(first.status, 201, "{first:?}");
        fixture.define(&format!("{PLAIN}input: {{ type: object }}\n"));
        daemon.send(Signal::SIGHUP);
        daemon.says("replacing the console").await;
        let console = Console::after(&daemon, 1).await;
        let again = keyed(&console, "k", seven);
        assert_eq!((again.status, again.run()), (200, first.run()), "{again:?}");
        let other = keyed(&console, "k", r#"{"input": 8}"#);
        assert_eq!(other.status, 422, "{other:?}");
        assert!(other.body.contains("already belongs to the run"), "{other:?}");
        // A new run is judged by the rules of today.
        let new = keyed(&console, "another", seven);
        assert_eq!(new.status, 422, "{new:?}");
        assert!(new.body.contains("an object is expected"), "{new:?}");
        let form = "/pipelines/Plain/trigger";
        let fields = format!("proof={}&as=json&input=7&key=", console.get(form).proof());
        let by_form = |key: &str| Ask::form(form, &(fields.clone() + key)).of(&console);
        assert_eq!(made(&by_form("k")), first.run());
        assert_eq!(by_form("another").status, 422);
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn an_input_with_half_a_character_is_refused_wherever_it_is_given(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        let api = "/api/v1/pipelines/Plain/runs";
        let refused = sent(&console, api, "application/json", r#"{"input": {"name": ["\ud83d"]}}"#);
        assert_eq!(refused.status, 422, "{refused:?}");
        let problem: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(problem["errors"][0]["pointer"], "/name/0", "{problem}");
        assert!(!refused.body.contains("schema"), "it has none: {refused:?}");
        let command = fixture.run(&[], &["trigger", "Plain", r#"["\ud83d"]"#]);
        assert_eq!(command.status.code(), Some(2), "{command:?}");
        let said = String::from_utf8_lossy(&command.stderr);
        assert!(said.contains("half of a surrogate pair"), "{said}");
        assert!(!said.contains("says what it takes"), "{said}");
        assert_eq!(console.get("/api/v1/runs").body.trim(), "[]", "nothing was started");
        let whole = sent(&console, api, "application/json", r#"{"input": ["\ud83d\ude00"]}"#);
        assert_eq!(whole.status, 201, "{whole:?}");
        // So are an answer and a value of a context.
        let run = whole.run().to_string();
        let half = r#"["\ud83d"]"#;
        for verb in [&["resume", &run, half][..], &["context", "--run", &run, "set", "a", half]] {
            let command = fixture.run(&[], verb);
            assert_eq!(command.status.code(), Some(2), "{command:?}");
            let said = String::from_utf8_lossy(&command.stderr);
            assert!(said.contains("the value has half of a surrogate pair"), "{said}");
        }
        let answer = format!(r#"{{"step": "{run}", "value": {half}}}"#);
        let refused = sent(&console, &format!("/api/v1/runs/{run}/resume"), "application/json", &answer);
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.body.contains("the value has half of a surrogate pair"), "{refused:?}");
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
    }

    async fn no_way_leads_to_an_answer_that_is_longer_than_the_values_of_its_pipeline(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.configure("  console: { listen: \"127.0.0.1:0\", visitors: anybody }\n");
        let file = fixture.path("ductwork.yml");
        let wide = std::fs::read_to_string(&file).unwrap();
        let narrow = wide.replace("max_crash: 1000\n    backoff", "max_crash: 1000\n    max_payload: 1KiB\n    backoff");
        assert_ne!(wide, narrow);
        std::fs::write(&file, narrow).unwrap();
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let run = sent(&console, "/api/v1/pipelines/Plain/runs", "application/json", r#"{"input": 1}"#).run();
        fixture.completed(PATIENCE).await;
        let page = console.get("/pipelines/Plain/trigger");
        let proof = page.proof();
        let answered = |run: String, value: &str| {
            let body = format!(r#"{{"step": "{run}", "value": {value}}}"#);
            let form = format!("proof={proof}&step={run}&value={value}");
            [
                sent(&console, &format!("/api/v1/runs/{run}/resume"), "application/json", &body),
                sent(&console, &format!("/runs/{run}/resume"), "application/x-www-form-urlencoded", &form),
            ]
        };
        let (long, short) = ("1".repeat(1_025), "1".repeat(1_024));
        for refused in answered(run.to_string(), &long) {
            assert_eq!(refused.status, 422, "{refused:?}");
            assert!(refused.body.contains("larger than max_payload (1024 bytes)"), "{refused:?}");
        }
        for judged in answered(run.to_string(), &short) {
            assert_eq!(judged.status, 404, "{judged:?}");
            assert!(judged.body.contains("has no step"), "{judged:?}");
        }
        for unknown in answered(RunId::new().to_string(), &short) {
            assert_eq!(unknown.status, 404, "{unknown:?}");
            assert!(unknown.body.contains("there is no run"), "{unknown:?}");
        }
        daemon.stop().await;
    }

    async fn a_form_has_the_fields_of_the_input_and_keeps_what_was_typed(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        let page = console.get(FORM);
        assert!(page.body.contains("An order of a customer."), "{page:?}");
        assert!(page.body.contains("Mail &#60;b&#62;") && page.body.contains("For the invoice. · a mail address"), "{page:?}");
        assert!(tag(&page, "at:/to/mail").contains(" required"), "{page:?}");
        assert!(!tag(&page, "at:/tags").contains(" required"), "{page:?}");
        assert!(tag(&page, "value=\"&#34;small&#34;\"").contains("selected"), "{page:?}");
        let fields = [
            ("as", "fields"), ("at:/to/mail", "a@b"), ("at:/amount", "many \"<i>"), ("at:/tags", "[1]"),
            ("at:/size", ""), ("at:/gift", ""), ("key", "k"), ("delay", ""),
        ];
        let wrong = filled(&console, &fields);
        assert_eq!(wrong.status, 422, "{wrong:?}");
        let amount = tag(&wrong, "at:/amount");
        assert!(amount.contains("value=\"many &#34;&#60;i&#62;\""), "{amount}");
        let id = amount.split("id=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(amount.contains("aria-invalid=\"true\"") && amount.contains(&format!("{id}-wrong\"")), "{amount}");
        assert!(wrong.body.contains(&format!("id=\"{id}-wrong\">This is not a number")), "{wrong:?}");
        assert!(tag(&wrong, "name=\"key\"").contains("value=\"k\""), "{wrong:?}");
        // All mistakes are reported at once, each at its field.
        assert!(wrong.body.contains("`/tags/0` is the number `1`; a string is expected."), "{wrong:?}");
        let long = "k".repeat(513);
        let many = [
            ("as", "fields"), ("at:/to/mail", ""), ("at:/amount", "many"), ("at:/tags", "[1"), ("at:/gift", "true"),
            ("at:/size", "\"small\""), ("delay", "soon"), ("key", &long),
        ];
        let many = filled(&console, &many);
        assert_eq!(many.status, 422, "{many:?}");
        for part in ["This is missing.", "This is not a number", "This is not one JSON value", "The delay: ", "A key has 1 to"] {
            assert!(many.body.contains(part), "{part}: {many:?}");
        }
        for (field, is_wrong) in [("at:/to/mail", true), ("at:/amount", true), ("at:/tags", true), ("at:/gift", false)] {
            assert_eq!(tag(&many, field).contains("aria-invalid"), is_wrong, "{field}: {many:?}");
        }
        assert_eq!(many.body.matches("-wrong\">This").count(), 3, "{many:?}");
        let mut fields = fields;
        fields[2] = ("at:/amount", " 9007199254740993 ");
        let wrong = filled(&console, &fields);
        assert!(wrong.body.contains("`/tags/0` is the number `1`; a string is expected."), "{wrong:?}");
        fields[3] = ("at:/tags", "[\"x\"]");
        let run = made(&filled(&console, &fields));
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, json!({ "to": { "mail": "a@b" }, "amount": 9_007_199_254_740_993_u64, "tags": ["x"] }));

        let page = console.get(&format!("{FORM}?from={run}"));
        assert!(tag(&page, "at:/amount").contains("value=\"9007199254740993\""), "{page:?}");
        assert!(console.get(&format!("/runs/{run}")).body.contains(&format!("{FORM}?from={run}\"")));
        let page = console.get(&format!("{FORM}?from={run}&as=json"));
        assert!(page.body.contains("&#34;amount&#34;:9007199254740993"), "{page:?}");
        let shown = filled(&console, &[("as", "fields"), ("show", "json"), ("at:/amount", "7")]);
        assert!(shown.status == 200 && shown.body.contains("{&#34;to&#34;:{},&#34;amount&#34;:7}"), "{shown:?}");
        let shown = filled(&console, &[("as", "json"), ("show", "fields"), ("input", "{\"amount\": 8}")]);
        assert!(shown.status == 200 && tag(&shown, "at:/amount").contains("value=\"8\""), "{shown:?}");
        let beyond = filled(&console, &[("as", "json"), ("show", "fields"), ("input", "{\"other\": 8}")]);
        assert!(beyond.body.contains("The fields cannot express all of this input"), "{beyond:?}");
        daemon.stop().await;
    }

    async fn a_form_takes_no_field_that_it_does_not_have_and_no_input_of_another_pipeline(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db).await;
        for (fields, says) in [
            (vec![("as", "fields"), ("at:/amuont", "1")], "`at:/amuont` is not in this form"),
            (vec![("as", "fields"), ("input", "1")], "`input` is not in this form"),
            (vec![("as", "json"), ("at:/amount", "1")], "`at:/amount` is not in this form"),
            (vec![("as", "fields"), ("at:/amount", "1"), ("at:/amount", "2")], "`at:/amount` is given twice"),
        ] {
            let refused = filled(&console, &fields);
            assert_eq!(refused.status, 400, "{refused:?}");
            assert!(refused.body.contains(says), "{says}: {refused:?}");
        }
        let large = json!({ "to": { "mail": "a@b" }, "amount": 1, "tags": ["<".repeat(30_000)] });
        let large = fixture.trigger("Orders", &large.to_string(), 1).await[0];
        let other = fixture.trigger("Plain", "\"not-yours\"", 1).await[0];
        let page = console.get(&format!("{FORM}?from={large}"));
        assert!(page.body.contains("is longer than a form can carry") && page.body.contains("ductworkd show"), "{page:?}");
        for broken in ["%7B%C3%A9", "%5B%22", "%7B%7D%7D", "%7B%22amount%22"] {
            let page = console.get(&format!("{FORM}?input={broken}"));
            assert!(page.status == 200 && page.body.contains("id=\"input\""), "{page:?}");
        }
        let page = console.get(&format!("{FORM}?from={other}"));
        assert!(page.status == 404 && !page.body.contains("not-yours"), "{page:?}");
        let page = console.get(&format!("/pipelines/Plain/trigger?from={other}"));
        assert!(page.body.contains("&#34;not-yours&#34;") && !page.body.contains("As fields"), "{page:?}");
        let page = console.get("/pipelines/Orders");
        assert!(page.body.contains("The schema of the input") && page.body.contains("&#34;uniqueItems&#34;: true"), "{page:?}");
        daemon.stop().await;
    }
}
