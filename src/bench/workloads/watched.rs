//! The same work without viewers of the console, and with very many.
//!
//! Owns: this workload. The console runs beside the daemon, as in a pod. Its viewers are streams of this process,
//! each from an address of its own, so that none has another's share; on a host with few cores they take part of
//! what the daemon could use.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::bench::pipelines::{CHAIN, FLAT};
use crate::bench::report::BenchReport;
use crate::bench::{Bench, Error, Workload};
use crate::store::Conn;

use super::pages::get;

/// The streams that a console has room for.
const VIEWERS: u8 = 200;

/// The pages that they look at, in turn.
const PAGES: [&str; 5] = [
    "/",
    "/runs",
    "/runs?status=halted",
    "/pipelines",
    "/processes",
];

/// The interval between two scrapes of the metrics.
const SCRAPE: Duration = Duration::from_secs(1);

/// The number of repetitions in each of the two ways, in turn.
const PAIRS: usize = 8;

impl Bench {
    pub(super) async fn watched(
        &mut self,
        conn: &mut Conn,
        report: &mut BenchReport,
    ) -> Result<(), Error> {
        let workload = Workload::Watched;
        let both = format!("{CHAIN},{FLAT}");
        self.start(conn, self.set(&both)).await?;
        let console = self.start_console(conn).await?;
        let runs = self.options.runs as usize;
        for (pipeline, runs) in [(CHAIN, runs), (FLAT, runs * 10)] {
            self.all_at_once(workload, pipeline, runs, conn).await?;
            let (mut alone, mut watched) = (Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                alone.push(self.all_at_once(workload, pipeline, runs, conn).await?);
                let viewers = Viewers::come(console).await?;
                watched.push(self.all_at_once(workload, pipeline, runs, conn).await?);
                viewers.go()?;
            }
            let note = format!("the median of {PAIRS} times, {runs} runs each");
            let name = format!("{pipeline}, nobody looks");
            report.add(workload, name, median(&alone), "steps/s", note);
            let pairs = alone.iter().zip(&watched);
            let shares: Vec<f64> = pairs.map(|(alone, watched)| watched / alone).collect();
            let note = format!("{:.3} times that, the median of the pairs", median(&shares));
            let name = format!("{pipeline}, {VIEWERS} viewers and a scrape");
            report.add(workload, name, median(&watched), "steps/s", note);
        }
        self.stop().await
    }
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// All viewers, until they leave.
struct Viewers(JoinSet<Result<(), Error>>);

impl Viewers {
    /// Returns when every one of them sees its page.
    async fn come(console: SocketAddr) -> Result<Self, Error> {
        let mut all = JoinSet::new();
        for (viewer, page) in (1..=VIEWERS).zip(PAGES.iter().cycle()) {
            let stream = look(console, viewer, page).await?;
            all.spawn_local(read(stream));
        }
        all.spawn_local(async move {
            loop {
                let answer = get(console, "/metrics").await?;
                if answer.status != 200 {
                    let text = format!("/metrics is answered with {}", answer.status);
                    return Err(Error::Nonsense(text));
                }
                tokio::time::sleep(SCRAPE).await;
            }
        });
        Ok(Self(all))
    }

    /// Fails if one of them was refused: then too little was measured.
    fn go(mut self) -> Result<(), Error> {
        match self.0.try_join_next() {
            None => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(_) => Err(Error::Nonsense("a viewer was sent away".to_owned())),
        }
    }
}

fn lost(source: std::io::Error) -> Error {
    Error::System {
        what: "the console does not answer a viewer",
        source,
    }
}

/// Opens a page's stream, from this viewer's own address.
async fn look(console: SocketAddr, viewer: u8, page: &str) -> Result<TcpStream, Error> {
    let asked = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::new(127, 0, 1, viewer), 0).into())?;
        let mut stream = socket.connect(console).await?;
        let host = console.ip();
        let head =
            format!("GET {page} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut first = [0; 12];
        stream.read_exact(&mut first).await?;
        std::io::Result::Ok((stream, first))
    };
    let (stream, first) = asked.await.map_err(lost)?;
    match &first == b"HTTP/1.1 200" {
        true => Ok(stream),
        false => {
            let text = format!("{page} has no stream for a viewer");
            Err(Error::Nonsense(text))
        }
    }
}

/// Reads everything that comes, until the stream ends.
async fn read(mut stream: TcpStream) -> Result<(), Error> {
    let mut part = [0; 16 << 10];
    while stream.read(&mut part).await.map_err(lost)? > 0 {}
    Ok(())
}
