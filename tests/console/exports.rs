//! Traces at a collector: each ended run arrives there, whatever happens to it and to the console, with the ids
//! that its steps and its caller were told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ductwork::model::RunId;
use ductwork::store::delivery::{self, Delivery, Listed};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::certify::certify;
use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;
use crate::visitors::{Ask, HALTS, KNOWN, PLAIN, printed, started, token};
use crate::webhooks::newest;

/// A console's message when it begins; it sends no trace of a run that ended before.
const BEGINS: &str = "traces of runs are sent by this console";

const CANNOT: &str = "traces of runs cannot be sent";

const AGAIN: &str = "traces of runs are sent again";

/// Its steps write down the span that they were given; the first attempt fails.
const TELLS: &str = "pipeline: Tells\n\
     steps: { A: { command: [sh, -c, 'echo \"$TRACEPARENT $DUCTWORK_EXECUTION_ID $TRACESTATE $BAGGAGE\" >> spans; [ $DUCTWORK_ATTEMPT = 2 ]'],\n\
                   max_retry: 1, backoff: { initial: 0s } }, B: { command: [sh, -c, 'echo \"$TRACEPARENT $DUCTWORK_EXECUTION_ID\" >> spans'] } }\n\
     flow: [{ start: A }, { chain: B }]\n";

/// The same pipeline, within its caller's trace.
fn joins() -> String {
    TELLS.replace("pipeline: Tells", "pipeline: Joins\ntrace: parent")
}

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

/// The spans that have arrived.
type Spans = Arc<Mutex<Vec<Value>>>;

/// A collector that answers its first requests with these, and accepts all later ones.
struct Collector {
    address: String,
    spans: Spans,
    ends: Arc<AtomicBool>,
}

impl Collector {
    fn answering(answers: &'static [&'static str]) -> Self {
        Self::at("127.0.0.1:0", answers, Spans::default())
    }

    fn at(address: &str, answers: &'static [&'static str], spans: Spans) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ends = Arc::new(AtomicBool::new(false));
        let (told, over) = (Arc::clone(&spans), Arc::clone(&ends));
        std::thread::spawn(move || {
            let mut answers = answers.iter();
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { return };
                let Some(sent) = read(&mut stream) else {
                    continue;
                };
                let answer = answers.next().copied().unwrap_or("200 OK\r\n");
                if answer.starts_with("200") {
                    let all = sent["resourceSpans"][0]["scopeSpans"][0]["spans"]
                        .as_array()
                        .unwrap()
                        .clone();
                    assert!((1..=512).contains(&all.len()), "{}", all.len());
                    told.lock().unwrap().extend(all);
                }
                let _ = write!(
                    stream,
                    "HTTP/1.1 {answer}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}"
                );
            }
        });
        Self {
            address,
            spans,
            ends,
        }
    }

    /// Stops listening; returns the address and the spans so far.
    fn end(self) -> (String, Spans) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        (self.address, self.spans)
    }

    fn settings(&self) -> String {
        let address = &self.address;
        format!(
            "  console: {{ listen: \"127.0.0.1:0\", visitors: known, \
             traces: {{ endpoint: \"http://{address}/v1/traces\", headers: {{ x-key: sesame }} }} }}\n"
        )
    }

    /// Waits until there are spans for each of these runs; returns all spans.
    async fn has(&self, runs: &[RunId]) -> Vec<Value> {
        arrived(&self.spans, runs).await
    }
}

async fn arrived(spans: &Spans, runs: &[RunId]) -> Vec<Value> {
    eventually(PATIENCE, "each trace arrives", async || {
        let spans = spans.lock().unwrap();
        let roots: BTreeSet<&str> = spans
            .iter()
            .filter(|it| it["kind"] == 1)
            .filter_map(|it| it["spanId"].as_str())
            .collect();
        runs.iter()
            .all(|run| roots.contains(root(*run).as_str()))
            .then(|| spans.clone())
    })
    .await
}

fn hex(run: RunId) -> String {
    run.0.simple().to_string()
}

/// The id of a run's span.
fn root(run: RunId) -> String {
    hex(run)[16..].to_owned()
}

fn read(stream: &mut TcpStream) -> Option<Value> {
    let (mut bytes, mut part) = (Vec::new(), [0; 65_536]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lines = head
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> = lines
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            if body.len() >= headers["content-length"].parse().unwrap() {
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                assert_eq!(
                    (headers["content-type"].as_str(), headers["x-key"].as_str()),
                    ("application/json", "sesame")
                );
                return serde_json::from_str(body).ok();
            }
        }
        match stream.read(&mut part) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&part[..n]),
            _ => return None,
        }
    }
}

/// Triggers a run with this header; returns the run.
fn called(console: &Console, secret: &str, pipeline: &str, traceparent: &str) -> RunId {
    let path = format!("/api/v1/pipelines/{pipeline}/runs");
    let ask = Ask::json(&path, "{\"input\": 1}")
        .bearer(secret)
        .with("traceparent", traceparent)
        .with("tracestate", STATE)
        // The list may arrive in several headers.
        .with("baggage", "user=ada")
        .with("baggage", "k=v");
    let answer = ask.of(console);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.run()
}

/// The spans with this trace id.
fn of_trace<'a>(spans: &'a [Value], trace: &str) -> Vec<&'a Value> {
    spans.iter().filter(|it| it["traceId"] == trace).collect()
}

/// Checks that each span that a step was told has arrived, with its trace and the id of its
/// execution; returns their number.
fn told(lines: &[String], spans: &[Value]) -> usize {
    let mut found = 0;
    for line in lines {
        let mut words = line.split(' ');
        let (traceparent, execution) = (
            words.next().unwrap(),
            words.next().unwrap().replace('-', ""),
        );
        let handed_on: Vec<&str> = words.collect();
        let [version, trace, span, flags] = traceparent.split('-').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert_eq!((version, flags, span), ("00", "01", &execution[16..]));
        // The state is that of the caller's trace; the daemon adds nothing of its own.
        match handed_on[..] {
            [] => {}
            [state, baggage] if trace == &CALLER[3..35] => {
                assert_eq!((state, baggage), (STATE, "user=ada,k=v"), "{line}");
            }
            [state, baggage] => {
                assert!(state.is_empty(), "{line}");
                assert!(["", "user=ada,k=v"].contains(&baggage), "{line}");
            }
            _ => panic!("{line}"),
        }
        found += usize::from(
            spans
                .iter()
                .any(|it| it["traceId"] == trace && it["spanId"] == span && it["kind"] == 5),
        );
    }
    found
}

on_every_database! {
    async fn a_step_its_run_and_its_caller_are_in_the_traces_that_they_were_told(db: Db) {
        let collector = Collector::answering(&[]);
        let joins = joins();
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[TELLS, &joins, PLAIN]).await;
        fixture.configure(&collector.settings());
        let mut daemon = fixture.start_as(&["env", "TRACESTATE=other=1", "BAGGAGE=other=2"], &["start"]);
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        daemon.says(BEGINS).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let own = called(&console, &secret, "Tells", CALLER);
        let joined = called(&console, &secret, "Joins", CALLER);
        let odd = called(&console, &secret, "Joins", "00-not-a-parent");
        let spans = collector.has(&[own, joined, odd]).await;

        let (trace, caller) = (&CALLER[3..35], &CALLER[36..52]);
        let all = of_trace(&spans, &hex(own));
        let run = all.iter().find(|it| it["spanId"] == root(own)).unwrap();
        assert_eq!(run["links"], json!([{"traceId": trace, "spanId": caller, "traceState": STATE}]));
        assert!(run["traceState"].is_null(), "{run}");
        assert!(run["parentSpanId"].is_null(), "{run}");
        assert_eq!(all.len(), 4, "a run and three attempts");
        let all = of_trace(&spans, trace);
        let run = all.iter().find(|it| it["spanId"] == root(joined)).unwrap();
        assert_eq!((&run["parentSpanId"], &run["links"]), (&json!(caller), &json!([])));
        assert_eq!(run["traceState"], STATE);
        assert_eq!(all.len(), 4);
        for span in all.iter().filter(|it| it["kind"] == 5) {
            assert_eq!(span["parentSpanId"], root(joined));
        }
        // A malformed header counts as none, and is not stored.
        let all = of_trace(&spans, &hex(odd));
        let run = all.iter().find(|it| it["spanId"] == root(odd)).unwrap();
        assert!(run["parentSpanId"].is_null() && run["links"] == json!([]), "{run}");
        assert_eq!(told(&fixture.lines("spans"), &spans), 9);

        // The same through the API, at any time, and through the command line with the variable.
        let again = Ask::get(&format!("/api/v1/runs/{joined}/trace")).bearer(&secret).of(&console).value();
        assert_eq!(again["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"], trace);
        let span = format!("TRACEPARENT={CALLER}");
        let said = fixture.run(&["env", &span, "TRACESTATE=a=1", "BAGGAGE=none"], &["trigger", "Plain", "1"]);
        assert!(said.status.success(), "{said:?}");
        let by_hand: RunId = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
        let spans = collector.has(&[by_hand]).await;
        let run = of_trace(&spans, &hex(by_hand)).into_iter().find(|it| it["kind"] == 1).unwrap();
        assert_eq!((&run["links"][0]["spanId"], &run["links"][0]["traceState"]), (&json!(caller), &json!("a=1")));
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_revived_run_keeps_its_callers_span(db: Db) {
        let collector = Collector::answering(&[]);
        let (mut fixture, mut daemon, console) = started(&db, &collector.settings()).await;
        daemon.says(BEGINS).await;
        let secret = token(&fixture, &["--scope", "operate"]);
        let first = called(&console, &secret, "Halts", CALLER);
        fixture.run_ended(first).await;
        let path = format!("/api/v1/runs/{first}/revive");
        let second = Ask::json(&path, "{}").bearer(&secret).of(&console).run();
        let spans = collector.has(&[first, second]).await;
        for run in [first, second] {
            let all = of_trace(&spans, &hex(run));
            let run = all.iter().find(|it| it["kind"] == 1).unwrap();
            assert_eq!(run["links"][0]["spanId"], CALLER[36..52], "{run}");
            assert_eq!(run["status"]["code"], 2);
        }
        daemon.stop().await;
    }

    async fn a_collector_and_consoles_that_come_and_go_miss_no_trace(db: Db) {
        let busy = "503 Service Unavailable\r\nRetry-After: 1\r\n";
        let collector = Collector::answering(vec![busy, busy].leak());
        let (mut fixture, mut daemon, _) = started(&db, &collector.settings()).await;
        daemon.says(BEGINS).await;
        let mut child = daemon.child("console", None).await;
        let mut runs = fixture.trigger("Plain", "1", 20).await;
        daemon.says(CANNOT).await;
        collector.has(&runs).await;
        daemon.says(AGAIN).await;
        // The collector goes away, runs end, and the console is killed, at any instruction.
        let (address, spans) = collector.end();
        for _ in 0..3 {
            let more = fixture.trigger("Plain", "1", 20).await;
            for run in &more {
                fixture.run_ended(*run).await;
            }
            runs.extend(more);
            send(child, Signal::SIGKILL);
            child = daemon.child("console", Some(child)).await;
        }
        let told = format!("traces cannot be sent to {address}");
        let json = eventually_every(SELDOM, PATIENCE, "`health` tells of it", async || {
            let said = fixture.run(&[], &["health", "--json"]);
            let said: Value = serde_json::from_slice(&said.stdout).unwrap();
            said["untraced"].as_str().is_some_and(|it| it.contains(&told)).then_some(said)
        })
        .await;
        // A restart of a daemon does not fix a collector, so its health is not affected.
        assert_eq!((&json["healthy"], &json["stuck"]), (&true.into(), &json!([])), "{json}");
        let said = printed(&fixture, &["health"]);
        let (fact, healthy) = said.split_once('\n').unwrap();
        assert!(fact.contains(&told) && fact.contains("`console.traces`"), "{said}");
        assert_eq!(healthy, "healthy: 1 of 1");
        let collector = Collector::at(&address, vec![busy].leak(), spans);
        let halted = fixture.trigger("Halts", "1", 3).await;
        runs.extend(halted);
        let all = collector.has(&runs).await;
        // A span that arrived twice is the same both times.
        let mut known: BTreeMap<(String, String), &Value> = BTreeMap::new();
        for span in &all {
            let id = |name: &str| span[name].as_str().unwrap().to_owned();
            let key = (id("traceId"), id("spanId"));
            assert_eq!(*known.entry(key).or_insert(span), span);
        }
        assert_eq!(known.keys().map(|(trace, _)| trace).collect::<BTreeSet<_>>().len(), runs.len());
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_request_that_is_refused_is_halved_and_what_nobody_takes_is_given_up(db: Db) {
        // The run has two spans: they are sent together, then the first alone, and then the second
        // alone.
        let collector = Collector::answering(&["400 Bad Request\r\n", "400 Bad Request\r\n", "200 OK\r\n"]);
        let (mut fixture, mut daemon, _) = started(&db, &collector.settings()).await;
        daemon.says(BEGINS).await;
        let first = fixture.trigger("Plain", "1", 1).await[0];
        let told = daemon.says(CANNOT).await;
        assert!(told[0].to_string().contains("1 span is given up"), "{told:?}");
        let second = fixture.trigger("Plain", "1", 1).await[0];
        let spans = collector.has(&[second]).await;
        daemon.says(AGAIN).await;
        let kinds: Vec<&Value> = of_trace(&spans, &hex(first)).iter().map(|it| &it["kind"]).collect();
        assert_eq!(kinds, [&json!(5)], "the attempt, and not the run");
        daemon.stop().await;
    }

    async fn without_a_collector_nothing_is_looked_for(db: Db) {
        let (mut fixture, mut daemon, _) = started(&db, KNOWN).await;
        let run = fixture.trigger("Plain", "1", 1).await[0];
        fixture.run_ended(run).await;
        assert!(daemon.logged(BEGINS).is_empty());
        daemon.stop().await;
    }
}

/// A TLS server that accepts every POST and writes its path to a file.
const SERVER: &str = "
import http.server, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        with open('posted', 'a') as posted:
            posted.write(self.path + chr(10))
        self.send_response(200)
        self.send_header('content-length', '0')
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.crt', 'server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
with open('port', 'w') as port:
    port.write(str(server.server_address[1]) + chr(10))
server.serve_forever()";

/// Ends with the test.
struct Server(Child);

impl Server {
    fn start(directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command
            .args(["-c", SERVER])
            .current_dir(directory)
            .stdin(Stdio::null());
        Self(command.spawn().expect("python3"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address of a server that answers every request in plain text.
fn no_tls() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    address
}

#[tokio::test]
async fn a_server_is_trusted_where_the_authorities_that_are_named_vouch_for_it() {
    let (right, wrong) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certify(right.path(), "right");
    certify(wrong.path(), "wrong");
    let _server = Server::start(right.path());
    let read = |name: &str| std::fs::read_to_string(right.path().join(name)).unwrap_or_default();
    let port = eventually(PATIENCE, "the server listens", async || {
        let port = read("port");
        port.ends_with('\n').then(|| port.trim().to_owned())
    })
    .await;
    let plain = no_tls();
    let ca = |directory: &Path, name: &str| format!("ca: \"{}\"", directory.join(name).display());
    let secret = "secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let endpoint = |name: &str, host: &str, ca: &str| {
        format!("{{ name: {name}, url: \"https://{host}:{port}/{name}\", {secret}, {ca} }}")
    };
    let endpoints = [
        endpoint("good", "localhost", &ca(right.path(), "right.crt")),
        endpoint("stranger", "localhost", &ca(wrong.path(), "wrong.crt")),
        endpoint("usual", "localhost", ""),
        endpoint("misnamed", "127.0.0.1", &ca(right.path(), "right.crt")),
        endpoint("unread", "localhost", &ca(right.path(), "none.crt")),
        format!("{{ name: plain, url: \"https://{plain}/\", {secret} }}"),
    ];
    let settings = format!(
        "  console: {{ listen: \"127.0.0.1:0\", webhooks: [{}], traces: {{ endpoint: \"https://localhost:{port}/v1/traces\", {} }} }}\n",
        endpoints.join(", "),
        ca(right.path(), "right.crt")
    );
    let place = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", place.path().join("t.db").display());
    let location = ductwork::store::Location::parse(&url).unwrap();
    let mut conn = location
        .connect(ductwork::store::Purpose::Engine)
        .await
        .unwrap();
    ductwork::store::migrate::migrate(&mut conn).await.unwrap();
    let mut fixture = DaemonFixture::at(&url, conn, Settings::default(), &[PLAIN, HALTS]).await;
    fixture.configure(&settings);
    let mut daemon = fixture.start();
    daemon.ready().await;
    daemon.says(BEGINS).await;
    daemon.says("this console notifies endpoints of runs").await;
    fixture.trigger("Plain", "1", 1).await;
    let conn = &mut fixture.conn;
    let all = eventually(PATIENCE, "each endpoint was tried", async || {
        let all = delivery::latest(conn, &newest(99)).await.unwrap();
        let all: Vec<Delivery> = all.iter().filter_map(Listed::delivery).cloned().collect();
        (all.len() == 6 && all.iter().all(|it| it.attempts > 0)).then_some(all)
    })
    .await;
    for it in all {
        let error = it.error.unwrap_or_default();
        match it.endpoint.as_str() {
            "good" => assert_eq!(it.state, "delivered", "{error}"),
            "unread" => assert!(error.contains("none.crt cannot be used"), "{error}"),
            other => {
                let said = match other {
                    "stranger" => "no authority in `ca` vouches for the server's certificate",
                    "usual" => "name the PEM file of its authority as `ca`",
                    "misnamed" => "certificate is for localhost, and not for 127.0.0.1",
                    _ => "the server does not speak TLS at this port",
                };
                assert!(
                    error.contains("cannot be made safe") && error.contains(said),
                    "{other}: {error}"
                );
            }
        }
    }
    eventually(PATIENCE, "the trace arrives", async || {
        read("posted").contains("/v1/traces").then_some(())
    })
    .await;
    let posted = read("posted");
    let paths: BTreeSet<&str> = posted.lines().collect();
    assert_eq!(paths, BTreeSet::from(["/good", "/v1/traces"]));
    daemon.stop().await;
}
