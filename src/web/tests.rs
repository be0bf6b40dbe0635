//! The guard, the listener and its end, over real connections.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::routes::{OPEN, ROUTES, Route, route};
use super::source::ReadError;
use super::*;
use crate::model::Scope;
use crate::telemetry::testing::Logged;

/// A listener with these routes beside the console's own, until `body` is over.
pub(super) async fn with<F: Future>(
    routes: Vec<Route>,
    body: impl FnOnce(SocketAddr, Running) -> F,
) {
    let local = tokio::task::LocalSet::new();
    let directory = tempfile::tempdir().unwrap();
    let location = Location::sqlite(directory.path().join("t.db"));
    let served = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = Hosts::new(Some(address.ip()), &["further.example".to_owned()]);
        let terms = Terms {
            hosts: Vec::new(),
            proxy: Proxy::at(&[]),
            anonymous: Anonymous {
                direct: Some(Scope::Read),
                forwarded: None,
            },
            witness: Witness {
                stale_after: Duration::from_secs(30),
                is_dead: Box::new(|_| false),
            },
            pipelines: Vec::new(),
            max_payload: Box::new(|_| 1_024),
            has_timeout: Box::new(|_, _| false),
            traces: Collector {
                endpoint: None,
                headers: Vec::new(),
                ca: None,
            },
            exporting: Box::new(|_| {}),
            refused: Arc::new(|_, _| {}),
            webhooks: Arc::new([]),
            counts: Arc::default(),
            wake: Box::new(|_, _| Box::pin(async {})),
        };
        let site = Arc::new(Site::new(&location, hosts, terms).unwrap());
        let routes: &'static [Route] = routes.leak();
        let running = serve::start(
            Doors::new(Some(listener), None),
            ROUTES.iter().chain(routes),
            site,
        );
        body(address, running).await;
    };
    local.run_until(served).await;
}

/// Everything that comes back on a connection of its own.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    exchanged(stream, request.to_owned()).await
}

async fn exchanged(mut stream: TcpStream, request: String) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn ask(address: SocketAddr, method: &str, path: &str, more: &str) -> String {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    exchange(address, &format!("{head}{more}\r\n")).await
}

async fn gets(address: SocketAddr, path: &str) -> String {
    ask(address, "GET", path, "").await
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn every_route_is_told_of_and_stands_once() {
    let mut seen = std::collections::BTreeSet::new();
    for route in ROUTES {
        let place = (route.path, route.method.as_str());
        assert!(seen.insert(place), "{place:?} stands twice");
        assert!(route.path.starts_with('/'), "{place:?}");
        let summary = route.summary;
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{place:?}");
    }
}

#[tokio::test]
async fn strangers_of_many_addresses_at_once_leave_room_for_the_questions_of_others() {
    with(Vec::new(), async |address, _running| {
        let guess = format!(
            "Authorization: Bearer dw_{}_{}\r\n",
            "0".repeat(12),
            "1".repeat(64)
        );
        let mut streams = Vec::new();
        for host in 2..7 {
            for _ in 0..40 {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                let from = Ipv4Addr::new(127, 0, 0, host);
                socket.bind((from, 0).into()).unwrap();
                streams.push(socket.connect(address).await.unwrap());
            }
        }
        let head = "GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let request = format!("{head}{guess}\r\n");
        let mut guesses = tokio::task::JoinSet::new();
        for stream in streams {
            // All requests have arrived before the first is read.
            stream.try_write(request.as_bytes()).unwrap();
            guesses.spawn_local(exchanged(stream, String::new()));
        }
        for answer in guesses.join_all().await {
            assert!(!answer.contains("too many questions"), "{answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn every_response_has_the_headers_that_keep_a_page_to_itself() {
    with(Vec::new(), async |address, _running| {
        for path in ["/nowhere", "/api/nowhere"] {
            let answer = gets(address, path).await;
            for header in [
                "content-security-policy: default-src 'none'; script-src 'self';",
                "x-content-type-options: nosniff",
                "cross-origin-resource-policy: same-origin",
                "cross-origin-opener-policy: same-origin",
                "referrer-policy: same-origin",
                "cache-control: no-store",
            ] {
                assert!(answer.contains(header), "{answer}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_a_problem_for_programs_a_page_for_people_and_a_line_for_orchestrators() {
    let routes = vec![
        route(Method::GET, "/page", OPEN, "a page", || {
            get(|| async { "page" })
        }),
        route(Method::GET, "/api/it", OPEN, "it", || {
            get(|| async { "it" })
        }),
        route(Method::POST, "/api/body", OPEN, "a body", || {
            post(|_: String| async { "taken" })
        }),
    ];
    with(routes, async |address, _running| {
        let answer = gets(address, "/page").await;
        assert!(
            status(&answer) == "200" && answer.ends_with("\r\n\r\npage"),
            "{answer}"
        );
        let answer = ask(address, "HEAD", "/page", "").await;
        assert!(
            status(&answer) == "200" && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        assert!(answer.contains("content-length: 4"), "{answer}");

        let answer = gets(address, "/nowhere").await;
        assert!(answer.contains("content-type: text/html"), "{answer}");
        assert!(answer.contains("there is no such page"), "{answer}");
        assert!(
            answer.contains("<title>Not Found · Ductwork</title>"),
            "{answer}"
        );
        let answer = ask(address, "POST", "/livez", "").await;
        assert!(answer.contains("content-type: text/plain"), "{answer}");
        let told = "405 Method Not Allowed: this address takes GET, HEAD\n";
        assert!(answer.ends_with(told), "{answer}");
        let answer = gets(address, "/api/nowhere").await;
        assert!(
            answer.contains("content-type: application/problem+json"),
            "{answer}"
        );
        let problem: serde_json::Value =
            serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(
            (&problem["status"], &problem["title"]),
            (&404.into(), &"Not Found".into())
        );

        let answer = ask(address, "POST", "/api/it", "").await;
        assert!(
            status(&answer) == "405" && answer.contains("allow: GET,HEAD"),
            "{answer}"
        );
        let long = format!("/page?{}", "x".repeat(9_000));
        assert_eq!(status(&gets(address, &long).await), "414");
        let header = format!("X: {}\r\n", "x".repeat(17_000));
        let answer = ask(address, "GET", "/api/it", &header).await;
        assert!(
            status(&answer) == "431" && answer.contains("application/problem+json"),
            "{answer}"
        );
        // A head that is too large to be read at all, or that is none, has no path and so no form.
        let header = format!("X: {}\r\n", "x".repeat(40_000));
        let answer = ask(address, "GET", "/api/it", &header).await;
        assert!(
            status(&answer) == "431" && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        let answer = exchange(address, "GET\r\n\r\n").await;
        assert!(
            status(&answer) == "400" && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
        let answer = ask(address, "POST", "/api/body", "Content-Length: 65537\r\n").await;
        assert_eq!(status(&answer), "413", "{answer}");
        // A body that does not say how large it is.
        let chunk = format!(
            "Transfer-Encoding: chunked\r\n\r\n10001\r\n{}\r\n0\r\n",
            "x".repeat(65_537)
        );
        assert_eq!(
            status(&ask(address, "POST", "/api/body", &chunk).await),
            "413"
        );
        let whole = format!("Content-Length: 65536\r\n\r\n{}", "x".repeat(65_536));
        assert_eq!(
            status(&ask(address, "POST", "/api/body", &whole).await),
            "200"
        );
    })
    .await;
}

#[test]
fn a_row_that_goes_while_it_is_read_may_be_asked_for_again() {
    let gone = ReadError::from(crate::store::Error::Gone("it is being deleted".to_owned()));
    assert!(matches!(gone, ReadError::Late), "{gone:?}");
}

#[tokio::test]
async fn the_console_answers_to_known_names_alone() {
    let routes = vec![route(Method::GET, "/page", OPEN, "a page", || {
        get(|| async { "page" })
    })];
    with(routes, async |address, _running| {
        let asked = async |lines: &str| {
            let answer = exchange(address, &format!("{lines}\r\nConnection: close\r\n\r\n")).await;
            status(&answer).to_owned()
        };
        for host in [
            "localhost",
            "LOCALHOST:9410",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:80",
            "further.example",
            "Further.Example:443",
        ] {
            assert_eq!(
                asked(&format!("GET /page HTTP/1.1\r\nHost: {host}")).await,
                "200",
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1:80@evil.example",
            "[::1]evil.example",
            "evil.example:9410",
            "further.example.",
            "10.0.0.1",
            "[::2]",
            "[localhost",
            "@localhost",
            "",
        ] {
            assert_eq!(
                asked(&format!("GET /page HTTP/1.1\r\nHost: {host}")).await,
                "421",
                "{host}"
            );
        }
        assert_eq!(asked("GET /page HTTP/1.0").await, "400");
        assert_eq!(
            asked("GET /page HTTP/1.1\r\nHost: localhost\r\nHost: localhost").await,
            "400"
        );
        let other = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost";
        assert_eq!(asked(other).await, "421");
        assert_eq!(
            asked("GET http://localhost/page HTTP/1.1\r\nHost: localhost").await,
            "200"
        );
    })
    .await;
}

#[tokio::test]
async fn a_route_that_panics_or_hangs_fails_its_own_request_alone() {
    let routes = vec![
        route(Method::GET, "/panics", OPEN, "panics", || {
            get(|| async {
                if true {
                    panic!("on purpose");
                }
            })
        }),
        route(Method::GET, "/hangs", OPEN, "hangs", || {
            get(std::future::pending::<()>)
        }),
        route(Method::GET, "/page", OPEN, "a page", || {
            get(|| async { "page" })
        }),
    ];
    with(routes, async |address, _running| {
        // All requests use one connection, which lives on.
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for (path, code) in [("/page", "200"), ("/panics", "500"), ("/page", "200")] {
            stream.write_all(request(path).as_bytes()).await.unwrap();
            let mut answer = vec![0; 4_096];
            let read = stream.read(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert_eq!(status(&answer), code, "{path}");
            assert!(!answer.contains("on purpose"), "{answer}");
        }
        let began = Instant::now();
        let (hung, other) = tokio::join!(gets(address, "/hangs"), gets(address, "/page"));
        assert_eq!((status(&hung), status(&other)), ("503", "200"));
        assert!(hung.contains("retry-after: 5"), "{hung}");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
    })
    .await;
}

#[tokio::test]
async fn a_question_that_panics_is_its_own_matter() {
    let routes = vec![
        route(Method::GET, "/panics", OPEN, "panics", || {
            get(async |State(site): State<Arc<Site>>| {
                let read = site.source.read(async |_: &mut crate::store::Conn| {
                    if true {
                        panic!("on purpose");
                    }
                    Ok(())
                });
                read.await.map(|()| "never")
            })
        }),
        route(Method::GET, "/reads", OPEN, "reads", || {
            get(async |State(site): State<Arc<Site>>| {
                let read = site.source.read(async |conn: &mut crate::store::Conn| {
                    crate::store::query::now(conn).await
                });
                read.await.map(|_| "read")
            })
        }),
    ];
    with(routes, async |address, _running| {
        for (path, code) in [
            ("/reads", "200"),
            ("/panics", "500"),
            ("/panics", "500"),
            ("/reads", "200"),
        ] {
            let answer = gets(address, path).await;
            assert_eq!(status(&answer), code, "{path}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn questions_that_the_database_does_not_answer_in_time_are_logged_once() {
    let logged = Logged::begin();
    let routes = vec![route(Method::GET, "/late", OPEN, "late", || {
        get(async |State(site): State<Arc<Site>>| {
            let read = site
                .source
                .read(async |_: &mut crate::store::Conn| std::future::pending().await);
            read.await.map(|()| "never")
        })
    })];
    with(routes, async |address, _running| {
        for _ in 0..2 {
            let answer = gets(address, "/late").await;
            assert_eq!(status(&answer), "503", "{answer}");
        }
    })
    .await;
    assert_eq!(logged.count("did not answer the console in time"), 1);
}

/// One visitor asks for as many slow pages as there is room for, and the questions of others are answered between them.
#[tokio::test]
async fn a_visitor_who_asks_for_many_slow_pages_waits_for_those_alone() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    const MANY: usize = 80;
    /// The answer to the visitor who asks for much.
    async fn asks(address: SocketAddr, path: &'static str, more: String) -> String {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        let stream = socket.connect(address).await.unwrap();
        let head = format!("HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
        exchanged(stream, format!("GET {path} {head}")).await
    }
    fn reads() -> MethodRouter<Arc<Site>> {
        get(async |State(site): State<Arc<Site>>| {
            let read = site
                .source
                .read(async |conn: &mut crate::store::Conn| crate::store::query::now(conn).await);
            read.await.map(|_| "read")
        })
    }
    let routes = vec![
        route(Method::GET, "/slow", Some(Scope::Read), "slow", || {
            get(async |State(site): State<Arc<Site>>| {
                let read = site.source.read(async |_: &mut crate::store::Conn| {
                    BEGUN.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok(())
                });
                read.await.map(|()| "slow")
            })
        }),
        route(Method::GET, "/reads", Some(Scope::Read), "reads", reads),
        // Nobody asks: the question is the console's own.
        route(Method::GET, "/own", OPEN, "own", reads),
    ];
    with(routes, async |address, _running| {
        let mut all = JoinSet::new();
        for _ in 0..MANY {
            all.spawn_local(asks(address, "/slow", String::new()));
        }
        let greedy = all.join_all();
        let others = async {
            while BEGUN.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let own = gets(address, "/reads").await;
            let health = gets(address, "/own").await;
            let begun = BEGUN.load(Ordering::Relaxed);
            // A secret has to be looked up, and that is one more question of the visitor who shows it.
            let (id, secret) = ("0".repeat(12), "1".repeat(64));
            let shown = format!("Authorization: Bearer dw_{id}_{secret}\r\n");
            let looked_up = asks(address, "/api/v1/runs", shown).await;
            let waited = BEGUN.load(Ordering::Relaxed) - begun;
            let is_full = looked_up.contains("too many questions");
            assert!(is_full || waited > 16, "after {waited}: {looked_up}");
            (own, health, begun)
        };
        let (greedy, (own, health, begun)) = tokio::join!(greedy, others);
        assert_eq!((status(&own), status(&health)), ("200", "200"));
        let of = |code: &str| greedy.iter().filter(|it| status(it) == code).count();
        let (answered, refused) = (of("200"), of("503"));
        assert_eq!(answered + refused, MANY);
        assert!(
            (32..MANY).contains(&answered),
            "half of the room: {answered}"
        );
        assert!(begun < answered / 2, "{begun} of {answered} came first");
    })
    .await;
}

/// A body of which there is always more.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        let part = axum::body::Bytes::from_static(&[b'x'; 4_096]);
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(part))))
    }
}

/// As many visitors as there may be ask for much and read nothing: the kernel keeps some of it, and a
/// write waits.
#[tokio::test]
async fn visitors_who_do_not_read_make_room() {
    let routes = vec![route(Method::GET, "/much", OPEN, "much", || {
        get(|| async { axum::body::Body::new(Endless).into_response() })
    })];
    with(routes, async |address, _running| {
        let mut silent = Vec::new();
        let began = Instant::now();
        for _ in 0..520 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).await.unwrap();
            silent.push(stream);
        }
        let answer = gets(address, "/livez").await;
        assert_eq!(status(&answer), "200");
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            began.elapsed()
        );
        // A connection that was given up ends, although its response has no end.
        let mut given_up = false;
        for stream in silent {
            let (mut rest, most) = (Vec::new(), 16 << 20);
            let read = stream.take(most).read_to_end(&mut rest).await;
            given_up = read.is_err() || (rest.len() as u64) < most;
            if given_up {
                break;
            }
        }
        assert!(given_up);
    })
    .await;
}

/// Visitors ask for more than there may be on the way at once, and read nothing.
#[tokio::test]
async fn long_responses_wait_in_bounded_memory() {
    let routes = vec![route(Method::GET, "/much", OPEN, "much", || {
        get(|| async { vec![b'x'; 16 << 20] })
    })];
    with(routes, async |address, _running| {
        let begun = async |host: u8| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, host], 0).into()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            let request = b"GET /much HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.unwrap();
            (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
        };
        let mut readers = Vec::new();
        // The first visitor leaves half of the room for others, who take it.
        for (host, expected) in [
            (1, "200"),
            (1, "200"),
            (1, "503"),
            (2, "200"),
            (3, "200"),
            (4, "503"),
        ] {
            let (status, stream) = begun(host).await;
            assert_eq!(status, expected, "visitor {host}");
            readers.push(stream);
        }
        for (reader, reason) in [
            (2, "too little room for others"),
            (5, "no room for this one"),
        ] {
            let mut refusal = String::new();
            readers[reader].read_to_string(&mut refusal).await.unwrap();
            assert!(refusal.contains("retry-after: 2"), "{refusal}");
            assert!(refusal.contains(reason), "{refusal}");
        }
        // Short responses need no room.
        assert_eq!(status(&gets(address, "/livez").await), "200");
        let mut rest = Vec::new();
        readers[0].read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() > 16 << 20, "{}", rest.len());
        assert_eq!(begun(4).await.0, "200");
    })
    .await;
}

/// All possible connections have sent nothing yet; a head that arrives in drops does not last.
#[tokio::test]
async fn those_who_are_slow_do_not_keep_others_out() {
    with(Vec::new(), async |address, _running| {
        let mut drip = TcpStream::connect(address).await.unwrap();
        drip.write_all(b"GET /page HTTP/1.1\r\nHost: loc")
            .await
            .unwrap();
        let mut silent = Vec::new();
        for _ in 0..600 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let began = Instant::now();
        let answer = gets(address, "/nowhere").await;
        assert_eq!(status(&answer), "404");
        // As long as the last of them may take, not the first.
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        let mut rest = Vec::new();
        drip.read_to_end(&mut rest).await.unwrap();
        assert!(!String::from_utf8_lossy(&rest).contains("404"), "{rest:?}");
        eprintln!("answered after {:?}", began.elapsed());
    })
    .await;
}

/// More connections than there may be ask for a page again and again: each is answered once and closed while others wait,
/// so that a newcomer is soon accepted.
#[tokio::test]
async fn visitors_who_come_again_and_again_make_room() {
    with(Vec::new(), async |address, _running| {
        let closed = Rc::new(Cell::new(0));
        let mut visitors = JoinSet::new();
        for _ in 0..520 {
            let closed = Rc::clone(&closed);
            let mut stream = TcpStream::connect(address).await.unwrap();
            visitors.spawn_local(async move {
                let mut answer = [0; 4_096];
                let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
                while stream.write_all(request).await.is_ok() {
                    match stream.read(&mut answer).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => tokio::time::sleep(Duration::from_millis(600)).await,
                    }
                }
                closed.set(closed.get() + 1);
            });
        }
        let answer = tokio::time::timeout(Duration::from_secs(8), gets(address, "/livez")).await;
        let answer = answer.expect("a newcomer is answered soon");
        assert_eq!(status(&answer), "200");
        // Those that came last found the others there.
        let one_is_closed = async {
            while closed.get() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let is_closed = tokio::time::timeout(Duration::from_secs(30), one_is_closed).await;
        is_closed.expect("the connections had been taken");
        visitors.shutdown().await;
    })
    .await;
}

/// The rest of a body has as long as the rest of a head.
#[tokio::test]
async fn a_body_that_does_not_come_makes_room() {
    let routes = vec![route(Method::POST, "/takes", OPEN, "takes", || {
        post(|body: String| async move { body })
    })];
    with(routes, async |address, _running| {
        let mut slow = Vec::new();
        for _ in 0..520 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"POST /takes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na";
            stream.write_all(request).await.unwrap();
            slow.push(stream);
        }
        assert_eq!(status(&gets(address, "/livez").await), "200");
        // One that came late, when the others had taken the connections.
        let mut answer = String::new();
        slow[500].read_to_string(&mut answer).await.unwrap();
        assert_eq!(status(&answer), "408", "{answer}");
        assert!(answer.contains("did not come within 1 s"), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn a_console_that_drains_answers_as_long_as_somebody_waits_for_a_response() {
    static GO: tokio::sync::Notify = tokio::sync::Notify::const_new();
    static BEGUN: tokio::sync::Notify = tokio::sync::Notify::const_new();
    let slow = || {
        get(|| async {
            BEGUN.notify_one();
            GO.notified().await;
            "at last"
        })
    };
    let routes = vec![route(Method::GET, "/slow", OPEN, "slow", slow)];
    with(routes, async |address, running| {
        let mut idle = TcpStream::connect(address).await.unwrap();
        let slow = tokio::task::spawn_local(async move { gets(address, "/slow").await });
        BEGUN.notified().await;
        let until = Instant::now() + Duration::from_secs(60);
        let draining = tokio::task::spawn_local(running.drain(until));
        // Until the console has learned that it drains.
        let ready = loop {
            let ready = gets(address, "/readyz").await;
            if status(&ready) == "503" && ready.ends_with("draining\n") {
                break ready;
            }
            tokio::task::yield_now().await;
        };
        assert!(ready.contains("content-type: text/plain"), "{ready}");
        assert_eq!(status(&gets(address, "/livez").await), "200");
        assert!(!draining.is_finished());
        GO.notify_one();
        let answer = slow.await.unwrap();
        assert!(answer.ends_with("at last"), "{answer}");
        // A connection without a request is not waited for.
        let mut rest = Vec::new();
        let closed = idle.read_to_end(&mut rest);
        let (_closed, ended) = tokio::join!(closed, draining);
        ended.unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    })
    .await;
}

#[test]
fn a_console_that_listens_everywhere_is_found_at_the_loopback() {
    for (listen, found) in [
        ("0.0.0.0:9410", "127.0.0.1:9410"),
        ("[::]:80", "[::1]:80"),
        ("192.0.2.7:1", "192.0.2.7:1"),
    ] {
        let listen = listen.parse().unwrap();
        assert_eq!(from_here(listen).to_string(), found);
    }
}
