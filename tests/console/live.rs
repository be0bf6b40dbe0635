//! Streams of the built daemon's console: the events of runs, and pages that renew themselves.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ductwork::model::RunId;
use ductwork::store::statement::Statement;
use ductwork::store::{Location, Purpose, migrate};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::{Ask, KNOWN, printed, started, token};

const PLAIN: &str = "pipeline: Plain\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";

static CANCEL_ALL: Statement = Statement::new(
    "TEST_CANCEL_ALL",
    "UPDATE ductwork_runs SET status = 'cancelled', cancelled_at = {now} WHERE status = 'in_progress'",
);

const EVENTS: &str = "/api/v1/events";

/// A stream as a client reads it: without the chunks of HTTP 1.1.
struct Heard {
    status: u16,
    lines: BufReader<TcpStream>,
    /// The last event id that it contained.
    place: String,
}

#[derive(Debug)]
struct Event {
    name: String,
    text: String,
}

impl Heard {
    fn of(console: &Console, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(&console.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = &console.address;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let lines = BufReader::new(stream);
        let place = String::new();
        let mut heard = Self {
            status: 0,
            lines,
            place,
        };
        let head = heard.line().unwrap();
        heard.status = head.split(' ').nth(1).unwrap().parse().unwrap();
        while heard.line().is_some_and(|line| !line.is_empty()) {}
        heard
    }

    fn events(console: &Console, query: &str, headers: &str) -> Self {
        let heard = Self::of(console, &format!("{EVENTS}{query}"), headers);
        assert_eq!(heard.status, 200);
        heard
    }

    fn page(console: &Console, path: &str, headers: &str) -> Self {
        Self::of(
            console,
            path,
            &format!("Accept: text/event-stream\r\n{headers}"),
        )
    }

    /// None at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).expect("it says something");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// The next event; none at the end.
    fn next(&mut self) -> Option<Event> {
        let (mut name, mut text) = (String::new(), String::new());
        loop {
            let line = self.line()?;
            if let Some(place) = line.strip_prefix("id: ") {
                place.clone_into(&mut self.place);
            } else if let Some(it) = line.strip_prefix("event: ") {
                it.clone_into(&mut name);
            } else if let Some(it) = line.strip_prefix("data: ") {
                text.push_str(it);
                text.push('\n');
            } else if line.is_empty() && !name.is_empty() {
                return Some(Event { name, text });
            }
        }
    }

    /// The next change of a run: its kind, and the run.
    fn change(&mut self) -> (String, RunId) {
        let event = self.next().expect("it goes on");
        let value: Value = serde_json::from_str(&event.text).unwrap();
        assert_eq!(value["type"], event.name.as_str());
        (
            event.name,
            value["data"]["run_id"].as_str().unwrap().parse().unwrap(),
        )
    }

    /// Collects the next changes until all of the wanted ones have come.
    fn until(&mut self, wanted: &[(&str, RunId)]) -> Vec<(String, RunId)> {
        let mut heard = Vec::new();
        let is_here = |heard: &[(String, RunId)], (kind, run): &(&str, RunId)| {
            heard.iter().any(|it| it.0 == *kind && it.1 == *run)
        };
        while !wanted.iter().all(|it| is_here(&heard, it)) {
            heard.push(self.change());
        }
        heard
    }

    /// Returns when the stream has ended.
    fn end(mut self) {
        while self.next().is_some() {}
    }
}

/// True if no event occurs twice.
fn is_told_once(heard: &[(String, RunId)]) -> bool {
    heard.iter().collect::<BTreeSet<_>>().len() == heard.len()
}

const OPEN: &str = "  console: { listen: \"127.0.0.1:0\", visitors: anybody }\n";

on_every_database! {
    async fn what_becomes_of_a_run_is_told_as_it_happens(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, OPEN).await;
        fixture.trigger("Plain", "1", 1).await;
        fixture.ended(PATIENCE).await;
        let mut heard = Heard::events(&console, "", "");
        let mut of_halts = Heard::events(&console, "?pipeline=Halts", "");
        let plain = fixture.trigger("Plain", "1", 1).await[0];
        let mut of_run = Heard::events(&console, &format!("?run={plain}"), "");
        let halts = fixture.trigger("Halts", "1", 1).await[0];
        let asks = fixture.trigger("Asks", "1", 1).await[0];
        let mut all = heard.until(&[
            ("run.started", plain), ("run.completed", plain), ("run.started", halts), ("run.halted", halts),
            ("run.started", asks), ("run.dampened", asks),
        ]);
        assert!(fixture.run(&[], &["cancel", &asks.to_string()]).status.success());
        all.extend(heard.until(&[("run.cancelled", asks)]));
        // No earlier events, and each once.
        assert!(is_told_once(&all) && all.len() == 7, "{all:?}");
        let of = |run| all.iter().filter(move |it| it.1 == run).map(|it| it.0.as_str()).collect::<Vec<_>>();
        assert_eq!(of(plain), ["run.started", "run.completed"]);
        assert_eq!(of_halts.until(&[("run.halted", halts)]).len(), 2);
        assert!(of_run.until(&[("run.completed", plain)]).iter().all(|it| it.1 == plain));
        let cold = Instant::now();
        let quick = fixture.trigger("Plain", "1", 1).await[0];
        heard.until(&[("run.completed", quick)]);
        assert!(cold.elapsed() < Duration::from_secs(10), "{:?}", cold.elapsed());
        daemon.stop().await;
        heard.end();
    }

    async fn whoever_comes_back_misses_nothing_and_hears_nothing_twice(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, OPEN).await;
        let mut heard = Heard::events(&console, "", "");
        let before = fixture.trigger("Plain", "1", 5).await;
        let mut all = vec![heard.change(), heard.change(), heard.change()];
        let place = heard.place.clone();
        drop(heard);
        let between = fixture.trigger("Plain", "2", 5).await;
        fixture.ended(PATIENCE).await;
        let mut heard = Heard::events(&console, "", &format!("Last-Event-ID: {place}\r\n"));
        let after = fixture.trigger("Plain", "3", 5).await;
        let runs: Vec<RunId> = [before, between, after].concat();
        while all.len() < 2 * runs.len() {
            all.push(heard.change());
        }
        assert!(is_told_once(&all), "{all:?}");
        for run in &runs {
            assert_eq!(all.iter().filter(|it| it.1 == *run).count(), 2, "{run}: {all:?}");
        }
        // Another console does not know the old numbers: it repeats some events, and reports
        // everything since.
        let (place, child) = (heard.place.clone(), daemon.child("console", None).await);
        send(child, Signal::SIGKILL);
        let meanwhile = fixture.trigger("Plain", "4", 3).await;
        let console = Console::after(&daemon, 1).await;
        console.answers("/readyz", 200).await;
        let last = format!("Last-Event-ID: {place}\r\n");
        let mut heard = Heard::events(&console, "", &last);
        let wanted: Vec<_> = meanwhile.iter().map(|run| ("run.completed", *run)).collect();
        assert!(is_told_once(&heard.until(&wanted)));
        // A listener that was away for too long is told so.
        let mut heard = Heard::events(&console, "", "Last-Event-ID: x-1-1\r\n");
        assert_eq!(heard.next().unwrap().name, "events.lost");
        daemon.stop().await;
    }

    async fn more_runs_at_once_than_a_reading_takes_are_each_told_once(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[PLAIN]).await;
        fixture.configure(OPEN);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        console.answers("/readyz", 200).await;
        let mut heard = Heard::events(&console, "", "");
        let mut runs = BTreeSet::new();
        for _ in 0..11 {
            runs.extend(fixture.trigger("Plain", "1", 1_000).await);
        }
        // So many ends at one moment.
        let cancelled = fixture.conn.execute(&CANCEL_ALL, &[]).await.unwrap();
        assert_eq!(cancelled, 11_000);
        let last = fixture.trigger("Plain", "1", 1).await[0];
        let wanted: BTreeSet<_> = runs.iter().flat_map(|run| [("run.started", *run), ("run.cancelled", *run)]).collect();
        let mut told = BTreeSet::new();
        let mut is_told = |(kind, run): (String, RunId)| {
            assert!(told.insert((kind.clone(), run)), "{kind} of {run} is told twice");
            told.len() == wanted.len() + 1
        };
        while !is_told(heard.change()) {}
        assert!(told.remove(&("run.started".to_owned(), last)));
        assert!(told.iter().all(|(kind, run)| wanted.contains(&(kind.as_str(), *run))));
        alone.stop().await;
    }

    async fn whoever_comes_back_to_a_new_console_is_told_all_whoever_came_first(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, OPEN).await;
        let mut away = Heard::events(&console, "", "");
        let before = fixture.trigger("Plain", "1", 1).await[0];
        away.until(&[("run.completed", before)]);
        let place = away.place.clone();
        // Another listener stays a little longer.
        let mut longer = Heard::events(&console, "", "");
        let between = fixture.trigger("Plain", "1", 3).await;
        let ends: Vec<_> = between.iter().map(|run| ("run.completed", *run)).collect();
        longer.until(&ends);
        let child = daemon.child("console", None).await;
        send(child, Signal::SIGKILL);
        let meanwhile = fixture.trigger("Plain", "2", 1).await[0];
        fixture.run_ended(meanwhile).await;
        let console = Console::after(&daemon, 1).await;
        console.answers("/readyz", 200).await;
        let back = |place: &str| Heard::events(&console, "", &format!("Last-Event-ID: {place}\r\n"));
        // A listener that was never here comes first, then the one with the shorter absence.
        let mut new = Heard::events(&console, "", "");
        let told = back(&longer.place).until(&[("run.completed", meanwhile)]);
        assert!(is_told_once(&told), "{told:?}");
        let all = [ends, vec![("run.completed", meanwhile)]].concat();
        let told = back(&place).until(&all);
        assert!(is_told_once(&told), "{told:?}");
        let last = fixture.trigger("Plain", "3", 1).await[0];
        let told = new.until(&[("run.completed", last)]);
        assert!(told.iter().all(|it| it.1 == last), "{told:?}");
        daemon.stop().await;
    }

    async fn one_who_asks_for_events_that_never_come_is_told_so(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let bearer = |secret: &str| format!("Authorization: Bearer {secret}\r\n");
        let all = token(&fixture, &[]);
        let some = token(&fixture, &["--pipeline", "Halts"]);
        let (own, other) = (fixture.trigger("Halts", "1", 1).await[0], fixture.trigger("Plain", "1", 1).await[0]);
        let unknown = RunId::new();
        for (query, of_all, of_some) in [
            ("pipeline=Plain".to_owned(), 200, 403),
            ("pipeline=Yet_to_come".to_owned(), 200, 403),
            ("pipeline=Halts".to_owned(), 200, 200),
            (format!("run={other}"), 200, 403),
            (format!("run={own}"), 200, 200),
            (format!("run={unknown}"), 404, 403),
            (format!("run={own}&pipeline=Halts"), 200, 200),
            (format!("run={own}&pipeline=Plain"), 404, 403),
            (format!("run={other}&pipeline=Halts"), 404, 403),
        ] {
            for (secret, status) in [(&all, of_all), (&some, of_some)] {
                let heard = Heard::of(&console, &format!("{EVENTS}?{query}"), &bearer(secret));
                assert_eq!(heard.status, status, "{query}");
            }
        }
        daemon.stop().await;
    }

    async fn a_stream_ends_with_its_token_and_tells_of_its_pipelines_alone(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, KNOWN).await;
        let bearer = |secret: &str| format!("Authorization: Bearer {secret}\r\n");
        let all = token(&fixture, &[]);
        let some = token(&fixture, &["--pipeline", "Halts"]);
        let mut of_all = Heard::events(&console, "", &bearer(&all));
        let mut of_some = Heard::events(&console, "", &bearer(&some));
        assert_eq!(Heard::of(&console, EVENTS, "").status, 401);
        let plain = fixture.trigger("Plain", "1", 1).await[0];
        fixture.run_ended(plain).await;
        let halts = fixture.trigger("Halts", "1", 1).await[0];
        of_all.until(&[("run.completed", plain), ("run.halted", halts)]);
        let told = of_some.until(&[("run.halted", halts)]);
        assert!(told.iter().all(|it| it.1 == halts), "{told:?}");
        // Its ids reveal nothing about the others' runs, and the stream still continues after them.
        let (id, header) = (of_some.place.clone(), bearer(&some));
        let (sealed, _time) = id.split_once('-').unwrap().1.rsplit_once('-').unwrap();
        assert!(sealed.len() > 40, "{id}: a number stands there");
        let back = |id: &str| Heard::events(&console, "", &format!("{header}Last-Event-ID: {id}\r\n"));
        let (mut one, mut other) = (back(&id), back(&id));
        let next = fixture.trigger("Halts", "1", 1).await[0];
        for heard in [&mut of_some, &mut one, &mut other] {
            assert_eq!(heard.until(&[("run.halted", next)]).len(), 2);
        }
        assert_ne!(one.place, other.place, "one place is written in one way");

        // A page is rendered for its own visitor, with the proof of this session.
        let operates = token(&fixture, &["--scope", "operate"]);
        let cookie = Ask::form("/sign-in", &format!("secret={operates}")).of(&console).cookie();
        let path = format!("/runs/{halts}");
        let mut page = Heard::page(&console, &path, &format!("Cookie: {cookie}\r\n"));
        let shown = page.next().unwrap();
        assert_eq!(shown.name, "page");
        let answer = Ask::get(&path).cookie(&cookie).of(&console);
        let proof = answer.body.split_once("name=\"proof\" value=\"").unwrap().1.split('"').next().unwrap();
        assert!(shown.text.contains(proof), "{}", shown.text);
        assert!(shown.text.contains("Revive</button>"), "{}", shown.text);
        let reads = Ask::form("/sign-in", &format!("secret={all}")).of(&console).cookie();
        let mut of_reader = Heard::page(&console, &path, &format!("Cookie: {reads}\r\n"));
        assert!(!of_reader.next().unwrap().text.contains("proof"));
        assert_eq!(Heard::page(&console, &path, "").status, 401);

        for secret in [&all, &operates] {
            printed(&fixture, &["token", "revoke", secret.split('_').nth(1).unwrap()]);
        }
        for ended in [of_all, page, of_reader] {
            ended.end();
        }
        let again = fixture.trigger("Halts", "1", 1).await[0];
        of_some.until(&[("run.halted", again)]);
        daemon.stop().await;
    }

    async fn a_page_is_told_anew_when_it_has_changed_and_not_before(db: Db) {
        let (mut fixture, mut daemon, console) = started(&db, OPEN).await;
        let run = fixture.trigger("Plain", "1", 1).await[0];
        fixture.run_ended(run).await;
        // No row of its pipeline's list shows an age in seconds.
        let mut page = Heard::page(&console, "/runs?pipeline=Halts", "");
        let shown = page.next().unwrap();
        assert!(shown.name == "page" && shown.text.contains("No runs match"), "{shown:?}");
        for _ in 0..3 {
            let same = page.next().unwrap();
            assert!(same.name == "read" && same.text.ends_with("UTC\n"), "{same:?}");
        }
        let run = fixture.trigger("Halts", "1", 1).await[0];
        let mut found = page.next().unwrap();
        while found.name != "page" {
            found = page.next().unwrap();
        }
        assert!(found.text.contains(&run.to_string()), "{found:?}");
        // It is the content of the page itself.
        let mut other = Heard::page(&console, &format!("/runs/{run}"), "");
        let told = other.next().unwrap().text;
        assert!(told.starts_with("<p class=\"asof\">As of ") && told.contains("<h1>"), "{told}");
        daemon.stop().await;
        other.end();
    }
}

/// The stopped processes of a server, which answer nothing as long as this value lives.
struct Silent(Vec<i32>);

impl Silent {
    /// Stops the processes of a server: connections stay open, and nothing is answered.
    fn of(cluster: &Cluster) -> Self {
        let pid = std::fs::read_to_string(cluster.data("postmaster.pid")).expect("it runs");
        let pid: i32 = pid.lines().next().unwrap().parse().expect("a pid");
        // The first of them forks the others, so it is stopped first.
        let mut silent = Self(Vec::new());
        let next = |silent: &Self| family(pid).into_iter().find(|it| !silent.0.contains(it));
        while let Some(next) = next(&silent) {
            silent.0.push(next);
            send(next, Signal::SIGSTOP);
        }
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        for pid in &self.0 {
            // The server may have ended the process meanwhile.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
        }
    }
}

/// The process and its children.
fn family(pid: i32) -> Vec<i32> {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).expect("it lives");
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(pid).chain(children).collect()
}

/// A server that hangs is worse than one that is gone: no connection breaks.
#[tokio::test]
async fn pages_and_streams_outlive_a_database_that_says_nothing_for_a_while() {
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let mut fixture = DaemonFixture::at(&cluster.url, conn, Settings::default(), &[PLAIN]).await;
    fixture.configure(OPEN);
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    console.answers("/readyz", 200).await;
    let child = daemon.child("console", None).await;
    let mut page = Heard::page(&console, "/runs", "");
    assert_eq!(page.next().unwrap().name, "page");
    let mut events = Heard::events(&console, "", "");

    let silent = Silent::of(&cluster);
    while page.next().unwrap().name != "away" {}
    console.answers("/readyz", 503).await;
    assert_eq!(console.get("/livez").status, 200);
    // A page that is requested now reports it too, and in time.
    let refused = console.get("/pipelines");
    assert!(
        refused.status == 503 && refused.body.contains("database"),
        "{refused:?}"
    );
    drop(silent);

    while page.next().unwrap().name == "away" {}
    console.answers("/readyz", 200).await;
    let run = fixture.trigger("Plain", "1", 1).await[0];
    events.until(&[("run.started", run), ("run.completed", run)]);
    while !page.next().unwrap().text.contains(&run.to_string()) {}
    assert_eq!(daemon.children("console"), [child]);
    daemon.stop().await;
    page.end();
    events.end();
    fixture.audited().await;
}

#[tokio::test]
async fn a_console_with_streams_ends_at_once() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[]).await;
    fixture.configure(OPEN);
    let mut alone = fixture.start_as(&[], &["console"]);
    let console = Console::of(&alone).await;
    console.answers("/readyz", 200).await;
    let events = (0..20).map(|_| Heard::events(&console, "", ""));
    let pages = (0..20).map(|_| Heard::page(&console, "/runs", ""));
    let open: Vec<Heard> = events.chain(pages).collect();
    let began = Instant::now();
    alone.stop().await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    for heard in open {
        heard.end();
    }
}
