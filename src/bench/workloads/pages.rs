//! Pages and answers of the console, on a long history, a long queue and a wide run.
//!
//! Owns: this workload. The console is the same program that runs now, alone, as in a pod; the
//! benchmark sends it requests over HTTP, one after the other.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::daemon::Set;
use crate::bench::pipelines::{FLAT, WIDE};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::model::RunId;
use crate::store::bench::data;
use crate::store::trigger::{NewRun, trigger};
use crate::store::{Conn, fan_out};

use super::{PATIENCE, definition};

/// The number of requests for each page; the first is a warm-up.
const TIMES: usize = 40;

/// A pipeline with only this many runs, older than all others.
const RARE: (&str, u64) = ("Rare", 3);

impl Bench {
    pub(super) async fn pages(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Pages;
        let (history, waiting) = (self.options.history.into(), self.options.backlog.into());
        let flat = definition(FLAT)?;
        let mut rare = flat.clone();
        rare.pipeline = RARE.0.to_owned();
        let mut numbers = data::Numbers::now(conn).await?;
        data::completed(conn, &rare, RARE.1, &mut numbers, &|_| {}).await?;
        let progress = &self.progress;
        let say = |done| progress.say(&format!("pages: {done} of {history} runs of history"));
        data::completed(conn, &flat, history, &mut numbers, &say).await?;
        let say = |done| progress.say(&format!("pages: {done} of {waiting} runs that wait"));
        data::waiting(conn, &flat, waiting, &mut numbers, &say).await?;
        self.start(conn, self.set(WIDE)).await?;
        let wide = self.spread(conn, true).await?;
        let open = self.spread(conn, false).await?;
        self.stop().await?;
        data::settle(conn).await?;
        let run = NewRun {
            key: None,
            input: "null",
        };
        let waits = trigger(conn, &flat, &[run], Duration::ZERO).await?[0].run_id;

        let console = self.start_console(conn).await?;
        for (name, path) in self.questions(conn, wide, open, waits).await? {
            self.progress.say(&format!("pages: {name}"));
            let (mut times, mut bytes) = (Vec::with_capacity(TIMES), 0);
            for time in 0..=TIMES {
                let began = Instant::now();
                let answer = get(console, &path).await?;
                let took = began.elapsed();
                if answer.status != 200 {
                    let text = format!("{path} is answered with {}", answer.status);
                    return Err(Error::Nonsense(text));
                }
                bytes = answer.bytes;
                if time > 0 {
                    times.push(took);
                }
            }
            let note = format!("{} kB", bytes.div_ceil(1_000));
            report.add_times(workload, &name, &times, &note);
        }
        self.stop().await
    }

    /// The requests, by name and path.
    async fn questions(
        &self,
        conn: &mut Conn,
        wide: RunId,
        open: RunId,
        waits: RunId,
    ) -> Result<Vec<(String, String)>, Error> {
        let mut questions: Vec<(String, String)> = [
            "/",
            "/runs",
            "/runs?pipeline=Rare",
            "/runs?status=halted",
            "/runs?status=completed",
            "/runs?since=1h",
            "/halted",
            "/waiting",
            "/pipelines",
            "/processes",
            "/api/v1/runs",
            "/api/v1/pipelines",
            "/metrics",
        ]
        .map(|path| (path.to_owned(), path.to_owned()))
        .into();
        let width = self.options.width;
        for (run, is) in [
            (waits, "waits".to_owned()),
            (wide, format!("{width} wide, completed")),
            (open, format!("{width} wide, open")),
        ] {
            questions.push((format!("a run: {is}"), format!("/runs/{run}")));
        }
        for fan_out in fan_out::of_root(conn, open).await? {
            let from = u64::from(width) * 7 / 10;
            questions.push((
                format!("elements from {from} on"),
                format!("/runs/{open}/fan-outs/{}?from={from}", fan_out.id),
            ));
        }
        Ok(questions)
    }

    /// Starts a console beside the running daemons, and waits until it has reached the database.
    pub(super) async fn start_console(&mut self, conn: &mut Conn) -> Result<SocketAddr, Error> {
        let system = |source| Error::System {
            what: "there is no port for a console",
            source,
        };
        // The port is free again at once, and nobody else is likely to want it.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let free = free.and_then(|free| free.local_addr()).map_err(system)?;
        let set = Set {
            console: Some(free),
            ..self.set(FLAT)
        };
        self.start_another(conn, set).await?;
        let since = Instant::now();
        loop {
            self.daemon()?;
            match get(free, "/readyz").await {
                Ok(answer) if answer.status == 200 => return Ok(free),
                _ if since.elapsed() > PATIENCE => {
                    return Err(Error::Stuck("the console is not ready after a minute"));
                }
                _ => tokio::time::sleep(super::LOOK).await,
            }
        }
    }
}

/// An answer of the console.
pub(super) struct Answer {
    pub status: u16,
    bytes: usize,
}

/// Requests a page, on a connection of its own.
pub(super) async fn get(console: SocketAddr, path: &str) -> Result<Answer, Error> {
    let asked = async {
        let mut stream = TcpStream::connect(console).await?;
        let host = console.ip();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = asked.await.map_err(|source| Error::System {
        what: "the console does not answer",
        source,
    })?;
    let first = answer.split(|byte| *byte == b' ').nth(1);
    let status = first.and_then(|word| std::str::from_utf8(word).ok());
    Ok(Answer {
        status: status.and_then(|word| word.parse().ok()).unwrap_or(0),
        bytes: answer.len(),
    })
}
