//! The pages, as a browser without scripts shows them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ductwork::model::RunStatus;

use crate::fixture::*;
use crate::http::{Answer, Console};
use crate::on_every_database;
use crate::support::Db;

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

/// The largest size of a page.
const WEIGHT: usize = 300 << 10;

/// Text that would break out of its element if it were not escaped.
const MARKUP: &str = "'\"></pre></title><script>alert(1)</script><a href=javascript:alert(1)>";

/// Some elements fail, one only at first.
const ORDERS: &str = r#"
pipeline: Orders
steps:
  Fetch: { command: [sh, -c, 'echo "[1,2,3,4]"'] }
  Charge: { command: [sh, -c, 'read -r n; if [ "$n" = 3 ]; then echo "no money for $n" >&2; exit 3; fi; echo $n'] }
  Report: { command: [cat] }
flow: [{ start: Fetch }, { expand: Charge }, { collapse: Report }]
"#;

/// A run of it completes.
const FINE: &str = "pipeline: Fine\nsteps: { A: { command: [cat] }, B: { command: [cat] } }\nflow: [{ start: A }, { chain: B }]\n";

/// It asks a person.
const ASKS: &str = r#"
pipeline: Asks
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow:
  - start: A
  - dampen: { prompt: "Shall <b>it</b> go on?" }
  - chain: B
"#;

/// It runs until it is let go.
const WAITS: &str = "pipeline: Waits\nsteps: { Wait: { command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done; cat'] } }\nflow: [{ start: Wait }]\n";

/// One path fails at once, the other goes on until it is let go.
const SPLITS: &str = r#"
pipeline: Splits
steps:
  A: { command: [cat] }
  Bad: { command: [sh, -c, 'exit 65'], max_retry: 0 }
  Slow: { command: [sh, -c, 'until [ -e go ]; do sleep 0.1; done; cat'] }
  C: { command: [cat] }
flow: [{ start: A }, { divide: [Bad, Slow] }, { combine: C }]
"#;

/// All of its output is hostile.
const HOSTILE: &str = r#"
pipeline: Hostile
steps: { Say: { command: [sh, -c, 'cat said >&2; exit 3'], max_retry: 0 } }
flow: [{ start: Say }]
"#;

/// Asserts the properties of every page.
fn sound(path: &str, answer: &Answer) {
    let body = &answer.body;
    assert!(body.len() <= WEIGHT, "{path}: {} bytes", body.len());
    assert!(answer.head.contains("content-type: text/html"), "{path}");
    for needed in ["<!doctype html>", "<main id=\"main\"", "<h1", "</html>"] {
        assert!(body.contains(needed), "{path} has no {needed}: {body}");
    }
    // The only scripts are the console's own files.
    let scripts = body.split("<script").skip(1);
    for script in scripts {
        assert!(
            script.starts_with(" src=\"/assets/live-")
                || script.starts_with(" src=\"/assets/keys-")
                || script.starts_with(" src=\"/assets/once-"),
            "{path}: {script}"
        );
    }
    for forbidden in [" style=", "<a href=javascript", "\"javascript:", "onload="] {
        assert!(!body.contains(forbidden), "{path} has {forbidden}: {body}");
    }
    let hides =
        |char: char| char.is_control() && char != '\n' && char != '\t' || char == '\u{202e}';
    // Nothing hides, except in what a form sends back.
    let mut shown = String::new();
    for (at, part) in body.split('"').enumerate() {
        let tag = shown.rsplit('<').next().unwrap_or_default();
        let controls = ["input ", "option ", "button ", "select ", "textarea "];
        let is_sent = at % 2 == 1
            && controls.iter().any(|it| tag.starts_with(it))
            && [" name=", " value="].iter().any(|it| shown.ends_with(it));
        if !is_sent {
            shown.push_str(part);
        }
    }
    assert!(!shown.contains(hides), "{path} has what hides: {body}");
}

/// A page that must exist and be sound.
fn page(console: &Console, path: &str) -> String {
    let answer = console.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    sound(path, &answer);
    // A form shows no data with an age.
    let is_form = path.starts_with("/sign-in") || path.contains("/trigger");
    assert!(
        is_form || answer.body.contains("As of"),
        "{path}: {}",
        answer.body
    );
    answer.body
}

/// The addresses that a page leads to.
fn links(body: &str) -> BTreeSet<String> {
    let links = body.split("href=\"").skip(1).filter_map(|rest| {
        let link = rest.split('"').next()?;
        let link = link.replace("&#38;", "&").replace("&amp;", "&");
        let link = link.split('#').next()?.to_owned();
        (link.starts_with('/')).then_some(link)
    });
    links.collect()
}

fn has(body: &str, what: &[&str]) {
    for what in what {
        assert!(body.contains(what), "no {what}: {body}");
    }
}

on_every_database! {
    async fn every_page_leads_to_pages_that_are_there_for_runs_in_every_state(db: Db) {
        let settings = Settings { max_retry: 1, ..Settings::default() };
        let pipelines = [ORDERS, FINE, ASKS, WAITS];
        let mut fixture = DaemonFixture::new(&db, settings, &pipelines).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;

        let halted = fixture.trigger("Orders", "{}", 1).await[0];
        let fine = fixture.trigger("Fine", "{\"a\": [1e400]}", 1).await[0];
        let asks = fixture.trigger("Asks", "{\"amount\": 7}", 1).await[0];
        let waits = fixture.trigger("Waits", "1", 2).await;
        fixture.run_ended(halted).await;
        fixture.run_ended(fine).await;
        for (run, verb) in [(waits[0].to_string(), "cancel"), (halted.to_string(), "revive")] {
            let done = fixture.run(&[], &[verb, &run]);
            assert!(done.status.success(), "{verb}: {done:?}");
        }
        let revived = format!("/runs/{halted}");
        eventually(PATIENCE, "the successor has halted, and Asks asks", async || {
            let halted = page(&console, "/runs?pipeline=Orders&status=halted");
            let waits = page(&console, "/waiting");
            let steps = page(&console, &format!("/runs/{}", waits_of(&waits)?));
            (halted.matches("✗</span> halted").count() >= 3 && steps.contains("dampen")).then_some(())
        })
        .await;

        // Everything that a visitor can reach from the overview.
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let mut ahead = VecDeque::from(["/".to_owned()]);
        while let Some(path) = ahead.pop_front() {
            let is_file = path.ends_with("/input") || path.ends_with("/output");
            let body = match () {
                () if path.starts_with("/assets/") || is_file => {
                    let file = console.get(&path);
                    assert_eq!(file.status, 200, "{path}");
                    String::new()
                }
                () => page(&console, &path),
            };
            for link in links(&body) {
                if !known.contains_key(&link) && !ahead.contains(&link) {
                    ahead.push_back(link);
                }
            }
            known.insert(path, body);
            assert!(known.len() < 500, "{:?}", known.keys());
        }
        let at = |path: &str| known.get(path).unwrap_or_else(|| panic!("{path} is nowhere: {:?}", known.keys()));
        has(at("/"), &["title=\"Steps that workers have claimed\">Busy", "Orders", "no money for #", "1</span> question waits", "supervisor", "console"]);
        has(at("/runs"), &["halted", "completed", "running", "waiting", "cancelled"]);
        has(at("/halted"), &["Orders / Charge", "job_retries_exhausted", "exit status 3", "no money for #", "The newest: no money for 3"]);
        has(at("/waiting"), &["Shall &#60;b&#62;it&#60;/b&#62; go on?", "&#34;amount&#34;: 7"]);
        has(at("/pipelines"), &["Orders", "Fine", "Asks", "Waits"]);
        has(at("/pipelines/Orders"), &["<svg", "Charge", "latest"]);
        has(at("/processes"), &["supervisor", "worker", "Wait</a>"]);
        has(at(&revived), &["Revived as", "no money for 3", "class=\"graph\"", "Fan-outs"]);
        // The failed step, its error and its log come before everything else.
        let halted_at = at(&revived).split("Halted at").nth(1).and_then(|rest| rest.split("class=\"graph\"").next());
        let halted_at = halted_at.unwrap_or_else(|| panic!("{}", at(&revived)));
        has(halted_at, &[">Charge</a>", "element 3</a>", "no money for 3", "?attempt=2#log\">Log of attempt 2"]);
        let steps = at(&revived).split("<h2 id=\"steps\">").nth(1).unwrap();
        let row = steps.split("<tr><th scope=\"row\">").nth(1).unwrap();
        has(row, &[">Charge</a>", "failed", "no money for 3"]);
        has(at(&format!("/runs/{fine}")), &["completed", "1e400", "Output"]);
        has(at(&format!("/runs/{asks}")), &["it waits for a person at dampen"]);
        has(at(&format!("/runs/{}", waits[1])), &["running", "has been running on"]);
        has(at(&format!("/runs/{}", waits[0])), &["cancelled"]);
        let failed = format!("/runs/{halted}?node=Charge&status=failed");
        let body = page(&console, &failed);
        assert_eq!(body.matches("<th scope=\"row\">").count(), 2, "a fan-out and a step: {body}");
        let step = links(&body).into_iter().find(|link| link.contains("/steps/")).unwrap();
        has(at(&step), &["element 3 of 4 from Fetch", "exit status 3: no money for 3", "<svg class=\"bar\""]);
        has(&page(&console, &format!("{step}?attempt=1")), &["Attempt 1"]);
        let elements = known.keys().find(|path| path.contains("/fan-outs/") && path.contains(&halted.to_string()));
        let elements = elements.unwrap().split('?').next().unwrap();
        has(&page(&console, &format!("{elements}?element=4")), &["4 to 4", "Halted", "Previous"]);
        // A state can be given by the displayed word, and by the stored one.
        for word in ["running", "in_progress", "waiting", "dampened"] {
            page(&console, &format!("/runs/{halted}?status={word}"));
            let runs = page(&console, &format!("/runs?status={word}"));
            let run = if ["running", "in_progress"].contains(&word) { waits[1] } else { asks };
            has(&runs, &[&format!("/runs/{run}\"")]);
        }
        // The same as a timeline.
        for (run, says) in [
            (halted, "Charge, element 3: waited"),
            (asks, "dampen: a person was asked for"),
            (waits[1], "attempt 1 has run for"),
        ] {
            let body = page(&console, &format!("/runs/{run}?view=timeline"));
            has(&body, &["<h2 id=\"h-graph\">Timeline", "class=\"graph times\"", says, &format!("<a href=\"/runs/{run}/steps/")]);
        }
        // HEAD gives the same headers, without the body.
        let host = &console.address;
        for path in ["/", "/runs", &revived] {
            let head = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let head = console.exchange(&head).unwrap();
            assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        }
        // Some digits of an id lead to its run.
        let short = ductwork::model::short(fine);
        for digits in [&short[..], &short[..6], &short[2..], &format!("+{short}+")] {
            let found = console.get(&format!("/runs?id={digits}"));
            assert_eq!(found.status, 303, "{digits}");
            assert!(found.head.contains(&format!("location: /runs/{fine}")), "{found:?}");
        }
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(waits[1]).await;
        daemon.stop().await;
    }

    async fn a_run_that_will_halt_or_is_yet_to_begin_says_so(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[SPLITS, FINE]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;
        let splits = fixture.trigger("Splits", "1", 1).await[0];
        let path = format!("/runs/{splits}");
        let body = eventually(PATIENCE, "one path has halted, the other runs", async || {
            let body = page(&console, &path);
            (body.contains("Halted at") && body.contains("Slow has been running")).then_some(body)
        })
        .await;
        has(&body, &["the run will halt when its other branches have ended, because a branch has halted: ", " at Bad", ">Bad</a>"]);
        has(&page(&console, "/runs?status=running"), &["will halt, "]);
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(splits).await;
        let body = page(&console, &path);
        assert!(body.contains("it halted") && !body.contains("will halt"), "{body}");
        let later = fixture.run(&[], &["trigger", "Fine", "1", "--delay", "1h"]);
        let later = String::from_utf8(later.stdout).unwrap().trim().to_owned();
        has(&page(&console, &format!("/runs/{later}")), &["scheduled</span> <span class=\"due\">due <time", "scheduled: A is due in 59m"]);
        has(&page(&console, "/runs?status=running"), &["scheduled</span>", "begins in 59m"]);
        daemon.stop().await;
    }

    async fn a_request_for_what_is_not_there_is_refused_with_a_page(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[FINE]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;
        let runs = fixture.trigger("Fine", "1", 2).await;
        for run in &runs {
            fixture.run_ended(*run).await;
        }
        let (run, other) = (runs[0], runs[1]);
        let body = page(&console, &format!("/runs/{run}"));
        let step = links(&body).into_iter().find(|link| link.contains("/steps/")).unwrap();
        let step = step.rsplit('/').next().unwrap().to_owned();
        let none = "01a20d9a-03eb-732c-a31b-c9269dc89ec8";
        let refused = [
            ("/nowhere".to_owned(), 404, "there is no such page"),
            ("/runs/zz".to_owned(), 400, "32 hexadecimal digits"),
            (format!("/runs/{none}"), 404, "there is no run"),
            (format!("/runs/{none}/input"), 404, "no such run"),
            (format!("/runs/{run}?node=A&node=B"), 400, "given twice"),
            ("/runs?pipeline=%00".to_owned(), 400, "a NUL"),
            ("/halted?pipeline=a%00b".to_owned(), 400, "a NUL"),
            ("/pipelines/%00".to_owned(), 400, "a NUL"),
            ("/pipelines/a%00b/trigger".to_owned(), 400, "a NUL"),
            (format!("/runs/{run}?status=lost"), 400, "not a state of a step"),
            (format!("/runs/{run}?view=gantt"), 400, "there are `graph` and `timeline`"),
            (format!("/runs/{run}?colour=red"), 400, "no parameter `colour`"),
            (format!("/runs/{run}/steps/{none}"), 404, "has no step"),
            (format!("/runs/{other}/steps/{step}"), 404, "has no step"),
            (format!("/runs/{other}/steps/{step}/input"), 404, "no such run or step"),
            (format!("/runs/{run}/steps/1"), 400, "not the id of a step"),
            (format!("/runs/{run}/steps/{step}?attempt=9"), 404, "no attempt 9"),
            (format!("/runs/{run}/steps/{step}?attempt=x"), 400, "a whole number"),
            (format!("/runs/{run}/steps/{step}?attempt=99999999999"), 400, "so many"),
            (format!("/runs/{run}/fan-outs/{none}"), 404, "no fan-out"),
            (format!("/runs/{run}/fan-outs/{none}?from=-1"), 400, "a whole number"),
            ("/runs?status=lost".to_owned(), 400, "not a state of a run"),
            ("/runs?since=yesterday".to_owned(), 400, "not a duration"),
            ("/runs?before=1".to_owned(), 400, "not the id of a run"),
            ("/runs?id=xyz!".to_owned(), 400, "4 to 32 hexadecimal digits"),
            ("/runs?id=00000000".to_owned(), 404, "no run's id"),
            ("/runs?limit=1".to_owned(), 400, "no parameter `limit`"),
            ("/runs?key=%ff".to_owned(), 400, "not text"),
            ("/pipelines/Nobody".to_owned(), 404, "there is no pipeline `Nobody`"),
            ("/pipelines/Fine?version=1".to_owned(), 404, "no version 1"),
            ("/pipelines/%ff".to_owned(), 400, "a path is text in UTF-8"),
            ("/pipelines/a%c3/trigger".to_owned(), 400, "a path is text in UTF-8"),
            ("/assets/style-0.css".to_owned(), 404, "no such file"),
            ("/runs/%3Cscript%3E%E2%80%AE".to_owned(), 400, "&#60;script&#62;\\u{202e}"),
        ];
        for (path, status, says) in refused {
            let answer = console.get(&path);
            let body = answer.body.replace("&#39;", "'");
            assert_eq!(answer.status, status, "{path}: {body}");
            sound(&path, &answer);
            assert!(body.contains(says), "{path}: {body}");
        }
        let host = &console.address;
        let post = format!("POST /runs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let post = console.exchange(&post).unwrap();
        assert_eq!(post.status, 405);
        sound("POST /runs", &post);
        // A page of the list outlives the run at which the page before it ended.
        let gone = "ffffffff-ffff-7fff-bfff-ffffffffffff";
        has(&page(&console, &format!("/runs?before={gone}")), &[&run.to_string(), &other.to_string(), "First page"]);
        // A filter without matches is no mistake.
        for path in ["/runs?pipeline=Nobody", "/runs?key=none&pipeline=Fine", "/runs?status=halted&status=waiting&since=1h"] {
            has(&page(&console, path), &["No runs match."]);
        }
        daemon.stop().await;
    }

    async fn hostile_text_stays_in_its_element_and_what_hides_in_it_is_named(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[HOSTILE, ASKS]).await;
        fixture.configure(ANY_PORT);
        let said = format!("\u{1b}[31m{MARKUP}\u{202e}end\n");
        std::fs::write(fixture.path("said"), said.repeat(3_000)).unwrap();
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;
        let input = serde_json::json!({ MARKUP: format!("{MARKUP}\u{202e}"), "long": "\"<\u{202e}".repeat(9_000) });
        let input = input.to_string();
        let key = format!("{MARKUP}\u{202e}");
        let triggered = fixture.run(&[], &["trigger", "Hostile", &input, "--key", &key]);
        assert!(triggered.status.success(), "{triggered:?}");
        let run = String::from_utf8(triggered.stdout).unwrap().trim().to_owned();
        fixture.run_ended(run.parse().unwrap()).await;
        let asks = fixture.trigger("Asks", &input, 1).await[0];
        eventually(PATIENCE, "it asks", async || {
            page(&console, "/waiting").contains(&asks.to_string()).then_some(())
        })
        .await;
        let body = page(&console, &format!("/runs/{run}"));
        has(&body, &["&#60;script&#62;alert(1)&#60;/script&#62;", "\\u{202e}", "open as a file"]);
        let step = links(&body).into_iter().find(|link| link.contains("/steps/")).unwrap();
        let body = page(&console, &step);
        has(&body, &["&#60;script&#62;alert(1)", "\\u{1b}[31m", "\\u{202e}end"]);
        let encoded: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let body = page(&console, &format!("/runs?key={encoded}"));
        has(&body, &[&run, "value=\"&#39;&#34;&#62;&#60;/pre", "alert(1)&#62;\u{202e}\" autocomplete"]);
        for path in ["/", "/runs", "/halted", "/waiting", &format!("/runs/{asks}")] {
            page(&console, path);
        }
        let file = console.get(&format!("/runs/{run}/input"));
        assert_eq!((file.status, file.body.as_str()), (200, input.as_str()));
        has(&file.head, &["content-type: application/json", "nosniff"]);
        daemon.stop().await;
        fixture.conn.script("UPDATE", "UPDATE ductwork_runs SET input = '{\"a\": <b>' WHERE status = 'halted'").await.unwrap();
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;
        has(&page(&console, &format!("/runs/{run}")), &["Damaged: it is not JSON", "{&#34;a&#34;: &#60;b&#62;"]);
        has(&page(&console, "/runs"), &["damaged"]);
        // Both runs were made in the same hours.
        let several = page(&console, &format!("/runs?id={}", &run[..6]));
        has(&several, &["damaged", &run, &asks.to_string()]);
        daemon.stop().await;
    }

    async fn a_wide_run_is_told_by_its_fan_outs_at_once_and_each_element_is_found(db: Db) {
        const WIDE: &str = r#"
pipeline: Wide
steps:
  Query: { command: [sh, -c, 'seq -s, 2100 | sed "s/.*/[&]/"'] }
  Each: { command: [sh, -c, 'read -r n; [ "$n" != 2 ] || exit 4; until [ -e go ]; do sleep 0.1; done'], max_retry: 0 }
  Sum: { command: [cat] }
flow: [{ start: Query }, { expand: Each }, { collapse: Sum }]
"#;
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WIDE]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        console.answers("/readyz", 200).await;
        let run = fixture.trigger("Wide", "null", 1).await[0];
        let path = format!("/runs/{run}");
        let body = eventually(PATIENCE, "one of its elements has failed", async || {
            // The database may be too busy with them to answer in time.
            let answer = console.get(&path);
            let is_made = answer.status == 200 && answer.body.contains("This run is wide");
            (is_made && answer.body.contains("#failed")).then(|| page(&console, &path))
        })
        .await;
        has(&body, &["× 2,100", "Query"]);
        has(&body, &["Halted at", "element 2</a>", "exit status 4"]);
        let times = page(&console, &format!("{path}?view=timeline"));
        has(&times, &["element 2: failed after", "Each: a sample of 201 steps", "Query: 1 step in", "a row for each node"]);
        let failed = page(&console, &format!("{path}?status=failed"));
        let failed = failed.split("<h2 id=\"steps\">").nth(1).unwrap();
        has(failed, &["the steps at which its branches have halted", ">Each</a>", "exit status 4"]);
        let elements = links(&body).into_iter().find(|link| link.ends_with("#failed") || link.contains("/fan-outs/") && !link.contains('?')).unwrap();
        eventually(PATIENCE, "all of its elements are made", async || {
            let last = page(&console, &format!("{elements}?element=2100"));
            // The halted element is on each of these pages.
            let steps = links(&last).into_iter().filter(|link| link.contains("/steps/"));
            (steps.count() > 1).then_some(())
        })
        .await;
        for path in ["/", &path, &elements, &format!("{elements}?from=2000")] {
            page(&console, path);
        }
        let body = page(&console, &elements);
        has(&body, &["Halted", "exit status 4", "1 to 50", "Next"]);
        let last = page(&console, &format!("{elements}?element=2100"));
        has(&last, &["2,100", "Previous"]);
        // Its first attempt waits in the queue.
        has(&last, &["<td>Each</td><td class=\"number\"></td>"]);
        let mut steps = links(&last).into_iter();
        let step = steps.rfind(|link| link.contains("/steps/")).unwrap();
        has(&page(&console, &step), &["element 2,100 of 2,100 from Query"]);
        let beyond = console.get(&format!("{elements}?element=2101"));
        assert_eq!(beyond.status, 404);
        has(&beyond.body, &["has 2,100 elements"]);
        let cancelled = fixture.run(&[], &["cancel", &run.to_string()]);
        assert!(cancelled.status.success(), "{cancelled:?}");
        assert_eq!(fixture.ended(PATIENCE).await, [RunStatus::Cancelled]);
        page(&console, &path);
        daemon.stop().await;
    }
}

/// The run of a question on the page of questions, if there is one.
fn waits_of(page: &str) -> Option<String> {
    let link = links(page)
        .into_iter()
        .find(|link| link.contains("/steps/"))?;
    link.split('/').nth(2).map(str::to_owned)
}

#[tokio::test]
async fn the_stylesheet_is_kept_for_good_under_a_name_that_changes_with_it() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[FINE]).await;
    fixture.configure(ANY_PORT);
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    let nobody = console.get("/nowhere").body;
    let style = links(&nobody)
        .into_iter()
        .find(|link| link.starts_with("/assets/"))
        .unwrap();
    let answer = console.get(&style);
    assert_eq!(answer.status, 200);
    has(
        &answer.head,
        &[
            "content-type: text/css",
            "cache-control: public, max-age=31536000, immutable",
        ],
    );
    has(&answer.body, &["prefers-color-scheme: dark", ".graph .box"]);
    daemon.stop().await;
}
