//! Streams over real connections, and the readings for them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use super::super::routes::page;
use super::super::tests::with;
use super::STREAMS_MAX;

/// A stream as a listener gets it, without the parts of HTTP 1.1.
struct Heard(BufReader<TcpStream>);

impl Heard {
    async fn of(address: SocketAddr, path: &str) -> (u16, Self) {
        Self::from(1, address, path).await
    }

    /// A listener from this address of this host.
    async fn from(host: u8, address: SocketAddr, path: &str) -> (u16, Self) {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::from(([127, 0, 0, host], 0)))
            .unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut heard = Self(BufReader::new(stream));
        let head = heard.line().await.unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        while heard.line().await.is_some_and(|line| !line.is_empty()) {}
        (status, heard)
    }

    /// None at the end.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).await.ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// The name and the text of the next event.
    async fn event(&mut self) -> Option<(String, String)> {
        let (mut name, mut text) = (String::new(), String::new());
        loop {
            let line = self.line().await?;
            if let Some(it) = line.strip_prefix("event: ") {
                it.clone_into(&mut name);
            } else if let Some(it) = line.strip_prefix("data: ") {
                text.push_str(it);
            } else if line.is_empty() && !name.is_empty() {
                return Some((name, text));
            }
        }
    }
}

/// A page with this text.
fn says(what: &str) -> axum::response::Response {
    let main = format!(
        "<main id=\"main\" tabindex=\"-1\">\n<p class=\"asof\">As of <span class=\"id\">now</span></p>{what}\n</main>"
    );
    ([(CONTENT_TYPE, "text/html")], main).into_response()
}

static READ: AtomicU64 = AtomicU64::new(0);
static SHOWN: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn many_who_look_are_told_by_one_reading_when_it_changes_and_nobody_by_none() {
    let routes = vec![
        page("/looked-at", "a page", || {
            get(|| async {
                READ.fetch_add(1, Ordering::Relaxed);
                says(&SHOWN.load(Ordering::Relaxed).to_string())
            })
        }),
        page("/clock", "another one", || get(|| async { says("it") })),
    ];
    with(routes, async |address, _running| {
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(Heard::of(address, "/looked-at").await.1);
        }
        let (began, before) = (Instant::now(), READ.load(Ordering::Relaxed));
        for heard in &mut all {
            let (name, text) = heard.event().await.unwrap();
            assert!(name == "page" && text.ends_with("</p>0"), "{name} {text}");
            for _ in 0..2 {
                assert_eq!(heard.event().await.unwrap(), ("read".into(), "now".into()));
            }
        }
        SHOWN.store(1, Ordering::Relaxed);
        for heard in &mut all {
            let told = loop {
                let (name, text) = heard.event().await.unwrap();
                if name == "page" {
                    break text;
                }
            };
            assert!(told.ends_with("</p>1"), "{told}");
        }
        let read = READ.load(Ordering::Relaxed) - before;
        let most = began.elapsed().as_secs() + 2;
        assert!(
            (2..=most).contains(&read),
            "{read} readings, and at most {most}"
        );

        drop(all);
        let (_, mut clock) = Heard::of(address, "/clock").await;
        let mut seen = Vec::new();
        // A listener that has left is noticed when the next part is sent to it.
        while seen.len() < 4 || seen[seen.len() - 4] != seen[seen.len() - 1] {
            assert!(seen.len() < 30, "{seen:?}");
            clock.event().await.unwrap();
            seen.push(READ.load(Ordering::Relaxed));
        }
    })
    .await;
}

#[tokio::test]
async fn one_address_takes_not_all_streams_and_one_more_than_may_be_is_refused_until_another_ends()
{
    let routes = vec![page("/it", "a page", || get(|| async { says("it") }))];
    with(routes, async |address, _running| {
        let mut all = Vec::new();
        // Each has at most as many as are left for others.
        for (host, has) in [(1, 100), (2, 50), (3, 25), (4, 13)] {
            for _ in 0..has {
                let (status, heard) = Heard::from(host, address, "/it").await;
                assert_eq!(status, 200);
                all.push(heard);
            }
            assert_eq!(Heard::from(host, address, "/it").await.0, 503);
        }
        assert!(all.len() < STREAMS_MAX);
        for host in 0..STREAMS_MAX - all.len() {
            let host = 100 + u8::try_from(host).unwrap();
            let (status, heard) = Heard::from(host, address, "/it").await;
            assert_eq!(status, 200);
            all.push(heard);
        }
        assert_eq!(Heard::from(200, address, "/it").await.0, 503);
        all.pop();
        let began = Instant::now();
        while Heard::from(200, address, "/it").await.0 == 503 {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "no place is free"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn streams_end_when_the_console_does_and_keep_nobody_waiting() {
    let routes = vec![page("/it", "a page", || get(|| async { says("it") }))];
    with(routes, async |address, running| {
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(Heard::of(address, "/it").await.1);
        }
        let began = Instant::now();
        running.drain(began + Duration::from_secs(60)).await;
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        for heard in &mut all {
            while heard.event().await.is_some() {}
        }
    })
    .await;
}

#[tokio::test]
async fn a_page_that_took_too_long_to_fail_is_asked_for_again_soon() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let routes = vec![page("/away", "a page", || {
        get(|| async {
            if ASKED.fetch_add(1, Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                return axum::http::StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
            says("it")
        })
    })];
    with(routes, async |address, _running| {
        let (_, mut heard) = Heard::of(address, "/away").await;
        assert_eq!(heard.event().await.unwrap().0, "away");
        // No beat comes first: going by its cost, the next reading would follow after thirty seconds, and a beat comes
        // every fifteen.
        let mut lines = Vec::new();
        while !lines
            .iter()
            .any(|line: &String| line.starts_with("event: "))
        {
            lines.push(heard.line().await.unwrap());
        }
        assert!(!lines.iter().any(|line| line.starts_with(':')), "{lines:?}");
        assert!(lines.contains(&"event: page".to_owned()), "{lines:?}");
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_there_no_more_says_so_and_ends() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let routes = vec![page("/goes", "a page", || {
        get(|| async {
            match ASKED.fetch_add(1, Ordering::Relaxed) {
                0 => says("it"),
                _ => axum::http::StatusCode::NOT_FOUND.into_response(),
            }
        })
    })];
    with(routes, async |address, _running| {
        let (_, mut heard) = Heard::of(address, "/goes").await;
        assert_eq!(heard.event().await.unwrap().0, "page");
        assert_eq!(heard.event().await.unwrap().0, "gone");
        assert_eq!(heard.event().await, None);
    })
    .await;
}
