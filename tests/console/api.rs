//! The API of a running console: every route of the table, and every parameter of each.

use std::collections::{BTreeMap, BTreeSet};

use ductwork::machine::bulk::Selection;
use ductwork::model::{Channel, RunId, Verb};
use ductwork::store::action::Actor;
use ductwork::store::bulk::{self, NewBulk};
use ductwork::store::query;
use ductwork::store::statement::Statement;
use ductwork::web::api::Form;
use ductwork::web::api::given::{About, Part};
use ductwork::web::routes::{ROUTES, Route};
use serde_json::Value;

use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::schema;
use crate::support::Db;

const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

const HALTS: &str = "pipeline: Halts\n\
     steps: { Fail: { command: [sh, -c, 'echo no luck >&2; exit 1'], max_retry: 0 } }\n\
     flow: [{ start: Fail }]\n";

const FANS: &str = "pipeline: Fans\n\
     steps: { Names: { command: [cat] }, Each: { command: [cat] }, Report: { command: [cat] } }\n\
     flow: [{ start: Names }, { expand: Each }, { collapse: Report }]\n";

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

impl Console {
    /// The JSON behind a path.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The problem in the answer to a path.
    fn problem(&self, path: &str, status: u16) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let kind = answer.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{path}");
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["status"], status, "{path}: {problem}");
        let name = problem["type"].as_str().unwrap();
        assert!(name.starts_with("/problems/"), "{path}: {problem}");
        problem
    }

    /// All items of a list, page by page; `between` is called before each further page.
    async fn walk(&self, path: &str, mut between: impl AsyncFnMut()) -> Vec<Value> {
        let (mut items, mut path) = (Vec::new(), path.to_owned());
        loop {
            let answer = self.get(&path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let page: Value = serde_json::from_str(&answer.body).unwrap();
            items.extend(page.as_array().unwrap().iter().cloned());
            let Some(link) = answer.header("link") else {
                return items;
            };
            let next = link
                .strip_prefix('<')
                .and_then(|it| it.strip_suffix(">; rel=\"next\""));
            path = next.unwrap().to_owned();
            between().await;
        }
    }
}

/// The path of a route, with these parameter values.
fn address(route: &Route, values: &BTreeMap<&str, String>) -> String {
    let parts = route.path.split('/').map(|part| {
        let name = part.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let execution = route.path.contains("/executions/");
        match name {
            Some("id") if execution => values["execution"].clone(),
            Some(name) => values[name].clone(),
            None => part.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Parameter values for the paths of routes, from a run that has one object of each kind.
fn values(console: &Console, run: RunId) -> BTreeMap<&'static str, String> {
    let steps = console.json(&format!("/api/v1/runs/{run}/steps"));
    let fan_outs = console.json(&format!("/api/v1/runs/{run}/fan-outs"));
    let whole = console.json(&format!("/api/v1/runs/{run}"));
    BTreeMap::from([
        ("id", run.to_string()),
        ("step", text(&steps[0]["id"])),
        ("execution", text(&steps[0]["executions"][0]["id"])),
        ("fan_out", text(&fan_outs[0]["id"])),
        ("digest", text(&whole["definition"])),
        ("name", text(&whole["pipeline"])),
    ])
}

/// Creates a bulk action for this run; returns its id.
async fn bulk_of(fixture: &mut DaemonFixture, run: RunId) -> String {
    let new = NewBulk {
        verb: Verb::Revive,
        selection: &Selection::chosen(vec![run]),
        definition: None,
        newest: run,
        by: &Actor::new("ana", Channel::Cli),
    };
    let id = bulk::create(&mut fixture.conn, new).await.unwrap();
    id.to_string()
}

/// The routes whose answer ends, which leaves out streams.
fn of_api() -> impl Iterator<Item = &'static Route> {
    let answers = |route: &&Route| {
        let form = route.form.filter(|form| !matches!(form, Form::Events(_)));
        form.is_some() && route.method == axum::http::Method::GET
    };
    ROUTES.iter().filter(answers)
}

on_every_database! {
    async fn every_route_answers_in_the_form_that_the_description_says(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS, FANS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        fixture.trigger("Plain", "1", 2).await;
        let halted = fixture.trigger("Halts", "1", 2).await[0];
        let run = fixture.trigger("Fans", "[1, 2, 3]", 1).await[0];
        fixture.ended(PATIENCE).await;
        let document = console.json("/api/v1/openapi.json");
        let bulk = bulk_of(&mut fixture, halted).await;
        let mut values = values(&console, run);
        values.insert("bulk", bulk);
        let mut looked_at = 0;
        let mut look = |route: &Route, path: &str| {
            let answer = console.get(path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let content = format!("/paths/{}/get/responses/200/content", route.path.replace('/', "~1"));
            let content = document.pointer(&content).unwrap().as_object().unwrap();
            let (kind, said) = content.iter().next().unwrap();
            assert_eq!(answer.header("content-type"), Some(kind.as_str()), "{path}");
            assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
            if kind == "application/json" {
                let body: Value = serde_json::from_str(&answer.body).unwrap();
                let faults = schema::faults(&document, &said["schema"], &body);
                assert!(faults.is_empty(), "{path}: {faults:#?}");
            } else {
                assert!(answer.body.starts_with("<svg "), "{path}");
                let policy = answer.header("content-security-policy");
                let policy = policy.unwrap();
                assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
            }
            looked_at += 1;
        };
        for route in of_api() {
            look(route, &address(route, &values));
            if route.path.contains("{id}") && values.keys().filter(|it| route.path.contains(&format!("{{{it}}}"))).count() == 1
                && !route.path.contains("/executions/")
            {
                let other = BTreeMap::from([("id", halted.to_string())]);
                look(route, &address(route, &other));
            }
        }
        let processes = ROUTES.iter().find(|it| it.path == "/api/v1/processes").unwrap();
        look(processes, "/api/v1/processes?gone=1");
        let [all, one] = ["", "?limit=1"].map(|query| console.json(&format!("/api/v1/processes{query}")));
        assert!(all.as_array().unwrap().len() > 1, "{all}");
        assert_eq!((one.as_array().unwrap().len(), &one[0]["id"]), (1, &all[0]["id"]));
        assert!(looked_at > 15, "{looked_at}");

        // Some forms are checked only if there is something in them.
        let alone = console.json(&format!("/api/v1/runs/{halted}"));
        assert_eq!(alone["halts"][0]["node"], "Fail", "{alone}");
        let kinds = console.json("/api/v1/halted?pipeline=Halts");
        assert_eq!((&kinds["kinds"][0]["runs"], &kinds["is_partial"]), (&2.into(), &false.into()));
        assert_eq!(kinds["kinds"][0]["message"], "no luck", "{kinds}");
        assert_eq!(console.json("/api/v1/halted?pipeline=Plain")["kinds"], Value::Array(Vec::new()));
        let failed = console.json(&format!("/api/v1/runs/{halted}/steps"));
        let log = text(&failed[0]["executions"][0]["id"]);
        let log = console.json(&format!("/api/v1/executions/{log}/log"));
        assert!(log["log"].as_str().unwrap().contains("no luck"), "{log}");
        let pipelines = console.json("/api/v1/pipelines");
        let fans = pipelines.as_array().unwrap().iter().find(|it| it["name"] == "Fans").unwrap();
        assert_eq!((&fans["runs"]["completed"], &fans["workers"]), (&1.into(), &1.into()), "{fans}");
        assert_eq!(fans["definition"], values["digest"]);
        let why = console.json(&format!("/api/v1/runs/{halted}/why"));
        assert_eq!((&why["status"], &why["run_id"]), (&"halted".into(), &halted.to_string().into()));

        // The command line prints the same forms.
        let printed = |verb: &[&str]| -> Value {
            let out = fixture.run(&[], verb);
            serde_json::from_slice(&out.stdout).unwrap()
        };
        assert_eq!(printed(&["runs", "--json"]), console.json("/api/v1/runs"));
        let whole = printed(&["show", &run.to_string(), "--json"]);
        let alone = console.json(&format!("/api/v1/runs/{run}"));
        for (name, value) in alone.as_object().unwrap() {
            assert_eq!(&whole[name], value, "{name}");
        }
        let by_id = |steps: &Value| -> BTreeMap<String, Value> {
            let steps = steps.as_array().unwrap().iter();
            steps.map(|step| (text(&step["id"]), step.clone())).collect()
        };
        let steps = console.json(&format!("/api/v1/runs/{run}/steps"));
        assert_eq!(by_id(&whole["steps"]), by_id(&steps));

        for route in of_api().filter(|it| !it.path.ends_with("/processes")) {
            let path = address(route, &values);
            let first = console.get(&path);
            let tag = first.header("etag").unwrap();
            let ask = |method: &str, more: &str| {
                let host = &console.address;
                let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
                console.exchange(&request).unwrap()
            };
            // This answer contains ages, which change.
            if !path.ends_with("/pipelines") {
                for tags in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
                    let known = ask("GET", &format!("If-None-Match: {tags}\r\n"));
                    assert_eq!((known.status, known.body.as_str()), (304, ""), "{path}");
                    assert_eq!(known.header("etag"), Some(tag), "{path}");
                }
                let head = ask("HEAD", "");
                assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
                assert_eq!(head.header("content-length"), first.header("content-length"), "{path}");
            }
            let other = ask("GET", "If-None-Match: \"other\"\r\n");
            assert_eq!(other.status, 200, "{path}");
            if ROUTES.iter().any(|it| it.path == route.path && it.method != route.method) {
                continue;
            }
            let post = ask("POST", "Content-Length: 0\r\n");
            assert_eq!((post.status, post.header("allow")), (405, Some("GET,HEAD")), "{path}");
            assert_eq!(post.header("content-type"), Some("application/problem+json"), "{path}");
            let problem: Value = serde_json::from_str(&post.body).unwrap();
            assert_eq!(problem["detail"], "this address takes GET, HEAD", "{path}");
        }
        daemon.stop().await;
    }

    async fn pages_have_every_item_once_whatever_is_triggered_meanwhile(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, FANS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let first: BTreeSet<String> = fixture
            .trigger("Plain", "1", 23).await.iter().map(ToString::to_string).collect();
        let mut later = 0;
        for list in ["/api/v1/runs?limit=5", "/api/v1/runs?limit=4&pipeline=Plain"] {
            let walked = console.walk(list, async || {
                fixture.trigger("Plain", "2", 3).await;
                later += 1;
            });
            let walked: Vec<String> = walked.await.iter().map(|run| text(&run["id"])).collect();
            let once: BTreeSet<String> = walked.iter().cloned().collect();
            assert_eq!(once.len(), walked.len(), "{list}: {walked:?}");
            assert!(once.is_superset(&first), "{list}");
        }
        assert!(later > 9, "{later}");

        let wide: Vec<u32> = (0..30).collect();
        let run = fixture.trigger("Fans", &format!("{wide:?}"), 1).await[0];
        fixture.ended(PATIENCE).await;
        let none = async || {};
        let statuses = "/api/v1/runs?limit=7&status=completed,halted&status=running,in_progress,waiting&since=1h";
        let walked = console.walk(statuses, none).await;
        assert_eq!(walked.len(), first.len() + 3 * later + 1);
        let steps = console.walk(&format!("/api/v1/runs/{run}/steps?limit=4"), none).await;
        let ids: BTreeSet<String> = steps.iter().map(|step| text(&step["id"])).collect();
        assert_eq!((steps.len(), ids.len()), (32, 32));
        let whole = query::show(&mut fixture.conn, run, usize::MAX, usize::MAX).await.unwrap().unwrap();
        let all: BTreeSet<String> = whole.steps.iter().map(|step| step.id.to_string()).collect();
        assert_eq!(ids, all);
        let fan_out = text(&console.json(&format!("/api/v1/runs/{run}/fan-outs"))[0]["id"]);
        let elements = format!("/api/v1/runs/{run}/fan-outs/{fan_out}/elements");
        let walked = console.walk(&format!("{elements}?limit=7&from=3"), none).await;
        let ordinals: Vec<u64> = walked.iter().map(|it| it["ordinal"].as_u64().unwrap()).collect();
        assert_eq!(ordinals, (3..30).collect::<Vec<_>>());

        // A cursor belongs to one list.
        let cursor = |path: &str| {
            let answer = console.get(path);
            let link = answer.header("link").unwrap();
            let (_, after) = link.split_once("after=").unwrap();
            after.split('>').next().unwrap().to_owned()
        };
        let of_steps = cursor(&format!("/api/v1/runs/{run}/steps?limit=1"));
        let of_runs = cursor("/api/v1/runs?limit=1");
        let other = &first.first().unwrap();
        for path in [
            format!("/api/v1/runs?after={of_steps}"),
            format!("/api/v1/runs/{run}/steps?after={of_runs}"),
            format!("/api/v1/runs/{other}/steps?after={of_steps}"),
        ] {
            let problem = console.problem(&path, 400);
            assert_eq!(problem["errors"][0]["parameter"], "after", "{path}");
        }
        daemon.stop().await;
    }

    async fn a_parameter_that_is_not_what_is_expected_is_refused_by_its_name(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, FANS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let run = fixture.trigger("Fans", "[1, 2]", 1).await[0];
        fixture.ended(PATIENCE).await;
        let bulk = bulk_of(&mut fixture, run).await;
        let mut values = values(&console, run);
        values.insert("bulk", bulk);
        let refused = |path: &str, name: &str| {
            let problem = console.problem(path, 400);
            let errors = problem["errors"].as_array().unwrap();
            let fault = errors.iter().find(|it| it["parameter"] == name);
            let fault = fault.unwrap_or_else(|| panic!("{path}: {problem}"));
            assert!(fault["detail"].as_str().unwrap().len() > 10, "{path}: {problem}");
        };
        let mut tried = 0;
        for route in of_api() {
            let path = address(route, &values);
            refused(&format!("{path}?no_such=1"), "no_such");
            for about in route.params {
                for wrong in wrong_values(about) {
                    match about.part {
                        Part::Query => refused(&format!("{path}?{}={wrong}", about.name), about.name),
                        // An empty part makes another path.
                        Part::Path if wrong.is_empty() => continue,
                        Part::Path => {
                            let mut values = values.clone();
                            let name = if path.contains("/executions/") { "execution" } else { about.name };
                            values.insert(name, wrong);
                            refused(&address(route, &values), about.name);
                        }
                    }
                    tried += 1;
                }
                if about.part == Part::Query && !about.repeats {
                    let name = about.name;
                    refused(&format!("{path}?{name}=1&{name}=1"), name);
                }
            }
            // An id that does not exist, or that of another kind of object.
            for about in route.params.iter().filter(|it| it.part == Part::Path) {
                let mut values = values.clone();
                let execution = path.contains("/executions/");
                let name = if execution { "execution" } else { about.name };
                let other = match about.name {
                    "digest" => "0".repeat(64),
                    "step" => values["execution"].clone(),
                    _ => values["step"].clone(),
                };
                values.insert(name, other.clone());
                let path = address(route, &values);
                let problem = console.problem(&path, 404);
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(&other) && problem["remedy"].is_string(), "{path}: {problem}");
            }
        }
        assert!(tried > 60, "{tried}");
        refused("/api/v1/runs?key=a", "key");
        let near = console.problem("/api/v1/runs?limt=3", 400);
        let detail = near["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("did you mean `limit`"), "{near}");
        let nowhere = console.problem("/api/v1/nowhere", 404);
        assert_eq!(nowhere["type"], "/problems/not-found");
        daemon.stop().await;
    }

    async fn what_is_damaged_or_large_hides_nothing_else(db: Db) {
        static DAMAGE: Statement = Statement::new(
            "TEST_DAMAGE", "UPDATE ductwork_runs SET input = 'a' WHERE id = :id");
        static DAMAGE_STEP: Statement = Statement::new(
            "TEST_DAMAGE_STEP", "UPDATE ductwork_steps SET output = 'x' WHERE run_id = :id");
        static FORGET: Statement = Statement::new(
            "TEST_FORGET", "DELETE FROM ductwork_definitions WHERE pipeline = 'Fans'");
        static BREAK: Statement = Statement::new(
            "TEST_BREAK", "UPDATE ductwork_definitions SET body = substr(body, 1, 30) WHERE pipeline = 'Fans'");
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, FANS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        let fans = fixture.trigger("Fans", "[1]", 1).await[0];
        let damaged = fixture.trigger("Plain", "1", 1).await[0];
        let long = format!("\"{}\"", "x".repeat(70_000));
        let large = fixture.trigger("Plain", &long, 1).await[0];
        fixture.ended(PATIENCE).await;
        for statement in [&DAMAGE, &DAMAGE_STEP] {
            let changed = fixture.conn.execute(statement, &[("id", damaged.0.into())]).await;
            assert_eq!(changed.unwrap(), 1);
        }
        let list = console.json("/api/v1/runs");
        let of = |list: &Value, id: RunId| {
            let mut items = list.as_array().unwrap().iter();
            items.find(|it| it["id"] == id.to_string()).unwrap().clone()
        };
        let alone = console.json(&format!("/api/v1/runs/{damaged}"));
        for told in [of(&list, damaged), alone] {
            assert!(told["input"].is_null(), "{told}");
            let why = format!("the input of the run {damaged} is damaged");
            assert!(told["damaged"].as_str().unwrap().contains(&why), "{told}");
        }
        let steps = console.json(&format!("/api/v1/runs/{damaged}/steps"));
        assert!(steps[0]["damaged"].as_str().unwrap().contains("the output of the step"), "{steps}");
        assert_eq!((&steps[0]["input"], &steps[0]["output"]), (&1.into(), &Value::Null));
        let step = text(&steps[0]["id"]);
        assert_eq!(console.json(&format!("/api/v1/runs/{damaged}/steps/{step}")), steps[0]);
        let problem = console.problem(&format!("/api/v1/runs/{damaged}/why"), 409);
        assert!(problem["detail"].as_str().unwrap().contains("is damaged"), "{problem}");
        assert_eq!(console.get(&format!("/api/v1/runs/{damaged}/graph.svg")).status, 200);
        let times = console.get(&format!("/api/v1/runs/{damaged}/timeline.svg"));
        assert_eq!((times.status, times.header("content-type")), (200, Some("image/svg+xml")));
        assert!(times.body.contains("class=\"graph times\"") && times.body.contains("prefers-color-scheme"));

        let listed = of(&list, large);
        assert!(listed["input"].is_null() && listed["output"].is_null(), "{listed}");
        assert_eq!((&listed["input_bytes"], &listed["output_bytes"]), (&70_002.into(), &70_002.into()));
        let alone = console.json(&format!("/api/v1/runs/{large}"));
        assert_eq!(alone["input"].as_str().unwrap().len(), 70_000);
        assert!(alone.get("input_bytes").is_none());
        let steps = console.json(&format!("/api/v1/runs/{large}/steps"));
        assert_eq!((&steps[0]["input"], &steps[0]["input_bytes"]), (&Value::Null, &70_002.into()));
        let step = text(&steps[0]["id"]);
        let step = console.json(&format!("/api/v1/runs/{large}/steps/{step}"));
        assert_eq!(step["output"].as_str().unwrap().len(), 70_000);

        // A damaged definition, and then a missing one.
        let digest = text(&of(&list, fans)["definition"]);
        assert_eq!(fixture.conn.execute(&BREAK, &[]).await.unwrap(), 1);
        let graph = format!("/api/v1/runs/{fans}/graph.svg");
        let problem = console.problem(&format!("/api/v1/definitions/{digest}"), 409);
        assert!(text(&problem["detail"]).contains("is damaged in the database: it is no JSON"), "{problem}");
        assert!(text(&problem["remedy"]).contains("backup"), "{problem}");
        let problem = console.problem(&graph, 409);
        assert!(text(&problem["detail"]).contains("is damaged in the database"), "{problem}");
        assert!(text(&problem["remedy"]).contains("backup"), "{problem}");
        let page = console.get("/pipelines/Fans");
        assert!(page.status == 200 && page.body.contains("is damaged in the database"), "{page:?}");
        assert!(!page.body.contains("by this version") && page.body.contains("put a backup"), "{page:?}");
        fixture.conn.execute(&FORGET, &[]).await.unwrap();
        console.problem(&format!("/api/v1/definitions/{digest}"), 404);
        eventually(PATIENCE, "it is looked for again", async || {
            let problem = console.problem(&graph, 409);
            text(&problem["detail"]).contains("it is not there").then_some(())
        })
        .await;
        for path in ["", "/why", "/steps", "/fan-outs"] {
            console.json(&format!("/api/v1/runs/{fans}{path}"));
        }
        daemon.stop().await;
    }

    async fn why_names_what_keeps_the_newest_definition_from_continuing_a_run(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        let keyed = fixture.run(&[], &["trigger", "Halts", "5", "--key", "k"]);
        let run: RunId = String::from_utf8(keyed.stdout).unwrap().trim().parse().unwrap();
        fixture.run_ended(run).await;
        // The run's page gives the same advice.
        let remedy = |console: &Console, part: &str| {
            let page = console.get(&format!("/runs/{run}"));
            assert!(page.body.contains(part), "{part}: {page:?}");
            text(&console.json(&format!("/api/v1/runs/{run}/why"))["remedy"])
        };
        let told = remedy(&Console::of(&daemon).await, "and another key");
        let latest = "# add --latest if you edited the pipeline's file; or trigger it again with another input and another key";
        assert!(told.ends_with(latest), "{told}");
        daemon.stop().await;

        fixture.define(&HALTS.replace("Fail", "Other"));
        let mut daemon = fixture.start();
        let told = remedy(&Console::of(&daemon).await, "it has no `Fail`");
        let refused = "# not with --latest: the pipeline's file cannot continue this run (it has no `Fail`)";
        assert!(told.contains(refused), "{told}");
        daemon.stop().await;

        std::fs::remove_file(fixture.path("pipelines/Halts.yml")).unwrap();
        let mut daemon = fixture.start();
        let gone = "; --latest and a new run need a configuration that has this pipeline";
        let told = remedy(&Console::of(&daemon).await, &gone[2..]);
        assert!(told.ends_with(gone), "{told}");
        daemon.stop().await;
    }

    async fn a_scaler_is_told_what_waits_and_a_key_leads_to_its_run(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN, HALTS]).await;
        fixture.configure(ANY_PORT);
        let mut console = fixture.start_as(&[], &["console"]);
        let api = Console::of(&console).await;
        let stats = |path: &str| api.json(&format!("/api/v1/stats{path}"));
        let nothing = serde_json::json!({ "queue": { "depth": 0, "claimable": 0, "oldest_seconds": 0.0 }, "running": 0 });
        assert_eq!(stats("?pipeline=Plain"), nothing);
        fixture.trigger("Plain", "1", 7).await;
        fixture.trigger("Halts", "1", 2).await;
        eventually(PATIENCE, "the answer is a second old", async || {
            (stats("?pipeline=Plain")["queue"]["depth"] == 7).then_some(())
        })
        .await;
        assert_eq!(stats("")["queue"]["depth"], 9);
        // No worker is to be started for the work of a paused pipeline.
        let paused = fixture.run(&[], &["pause", "Plain", "--reason", "a bad feed"]);
        assert!(paused.status.success(), "{paused:?}");
        eventually(PATIENCE, "the answer is a second old", async || {
            (stats("?pipeline=Plain")["queue"]["claimable"] == 0).then_some(())
        })
        .await;
        assert_eq!(stats("?pipeline=Plain")["queue"]["depth"], 7);
        assert_eq!((&stats("")["queue"]["claimable"], &stats("")["queue"]["depth"]), (&2.into(), &9.into()));
        let unpaused = fixture.run(&[], &["unpause", "Plain"]);
        assert!(unpaused.status.success(), "{unpaused:?}");
        eventually(PATIENCE, "the answer is a second old", async || {
            (stats("?pipeline=Plain")["queue"]["claimable"] == 7).then_some(())
        })
        .await;
        // A misspelled name is not answered as a pipeline without work.
        for path in ["stats", "halted", "runs", "waiting", "webhooks"] {
            let path = format!("/api/v1/{path}?pipeline=Plaim");
            let missing = api.get(&path);
            assert_eq!(missing.status, 404, "{path}: {missing:?}");
            assert!(missing.body.contains("did you mean `Plain`"), "{missing:?}");
        }
        let keyed = fixture.run(&[], &["trigger", "Plain", "5", "--key", "order 4711", "--json"]);
        assert!(keyed.status.success(), "{keyed:?}");
        let found = api.json("/api/v1/runs?pipeline=Plain&key=order+4711");
        assert_eq!(found.as_array().unwrap().len(), 1);
        assert_eq!((&found[0]["input"], &found[0]["key"]), (&5.into(), &"order 4711".into()));
        let ended = api.json("/api/v1/runs?pipeline=Plain&key=order+4711&status=completed");
        let others = api.json("/api/v1/runs?pipeline=Halts&key=order+4711");
        assert_eq!((ended, others), (Value::Array(Vec::new()), Value::Array(Vec::new())));
        let run = text(&found[0]["id"]);
        let why = api.json(&format!("/api/v1/runs/{run}/why"));
        assert_eq!(why["cause"], "no_worker", "{why}");
        console.stop().await;
    }
}

/// Values that a parameter cannot have.
fn wrong_values(about: &About) -> Vec<String> {
    let schema = (about.schema)();
    let mut wrong = vec![String::new(), "%00".to_owned()];
    if about.part == Part::Query {
        wrong.push("%ff".to_owned());
    }
    let text = schema["maxLength"].is_number();
    let more: &[&str] = match schema["type"].as_str() {
        _ if text => &[],
        Some("integer") => &["-1", "+1", "1.0", "x", "99999999999999999999999"],
        _ => &["x!", "0192f3a1", "ä", "-"],
    };
    wrong.extend(more.iter().map(|it| (*it).to_owned()));
    wrong
}

/// The promise to programs, which a person reads at each change: `DUCTWORK_BLESS=1` writes it anew.
#[tokio::test]
async fn the_description_of_the_api_is_what_was_read_last() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
    fixture.configure(ANY_PORT);
    let mut daemon = fixture.start_as(&[], &["console"]);
    let console = Console::of(&daemon).await;
    let mut document = console.json("/api/v1/openapi.json");
    daemon.stop().await;
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    document["info"]["version"] = "0.0.0".into();
    let told = document["paths"].as_object().unwrap();
    let paths: BTreeSet<&str> = told.keys().map(String::as_str).collect();
    let all = ROUTES.iter().filter(|route| route.form.is_some());
    assert_eq!(paths, all.map(|route| route.path).collect());
    let guide = include_str!("../../docs/guide/src/api.md");
    for path in &paths {
        let own = path.trim_start_matches("/api/v1");
        assert!(guide.contains(&format!("| `{own}` |")), "api.md: {path}");
    }
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi.json");
    if std::env::var_os("DUCTWORK_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let read = std::fs::read_to_string(path).unwrap_or_default();
    assert!(text == read, "{path}: run with DUCTWORK_BLESS=1");
}
