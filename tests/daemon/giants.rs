//! Values too large to be sent together, or at all.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ductwork::model::RunStatus;
use ductwork::store::{Location, Purpose, migrate, query};

use crate::fixture::*;
use crate::mariadb::Mariadb;
use crate::on_every_database;
use crate::support::{self, Db};

/// Prints a text of as many bytes as its input says, as soon as it may.
const SIZES: &str = r#"
pipeline: Sizes
steps:
  A: { command: [sh, -c, 'read n; echo >> begun; until [ -e go ]; do sleep 0.1; done; printf \"; head -c $n /dev/zero | tr "\0" x; printf \"'] }
flow: [{ start: A }]
"#;

/// A value that must be sent alone because of its size takes every path that a value can take.
const WAYS: &str = r#"
pipeline: Ways
steps:
  A: { command: [sh, -c, 'printf \"; head -c 17000000 /dev/zero | tr "\0" x; printf \"'] }
  B: { command: [cat] }
  C: { command: [cat] }
  D: { command: [wc, -c] }
flow: [{ start: A }, { divide: [B, C] }, { combine: D }]
"#;

/// A proxy for a server that ends a connection when a message to the server is too long, as a server
/// with that limit does.
struct Limited {
    /// The URL of the database through the proxy.
    url: String,
    limit: Arc<AtomicUsize>,
    cuts: Arc<AtomicUsize>,
}

impl Limited {
    fn before(url: &str, limit: usize) -> Self {
        let (head, tail) = url.rsplit_once('@').expect("a user");
        let (server, tail) = tail.split_once('/').expect("a name");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a port");
        let limited = Self {
            url: format!("{head}@{address}/{tail}"),
            limit: Arc::new(AtomicUsize::new(limit)),
            cuts: Arc::default(),
        };
        let (limit, cuts) = (Arc::clone(&limited.limit), Arc::clone(&limited.cuts));
        let server = server.to_owned();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (limit, cuts) = (Arc::clone(&limit), Arc::clone(&cuts));
                std::thread::spawn(move || {
                    let _ = pass(&client, &server, &limit, &cuts);
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = server.shutdown(Shutdown::Both);
                });
            }
        });
        limited
    }

    fn allow(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// Passes messages on, until one is too long.
fn pass(
    mut client: &TcpStream,
    mut server: &TcpStream,
    limit: &AtomicUsize,
    cuts: &AtomicUsize,
) -> std::io::Result<()> {
    // The first messages have no type byte before their length.
    let mut letter = 0;
    loop {
        let mut head = [0; 5];
        let head = &mut head[..letter + 4];
        client.read_exact(head)?;
        let length = u32::from_be_bytes(head[letter..].try_into().expect("four bytes"));
        if length as usize > limit.load(Ordering::SeqCst) {
            cuts.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body)?;
        server.write_all(head)?;
        server.write_all(&body)?;
        // Only the message that announces the protocol version changes this.
        if letter == 0 && body.starts_with(&196_608_u32.to_be_bytes()) {
            letter = 1;
        }
    }
}

const MB: usize = 1_000_000;

/// Only two things distinguish an outage from a value that no connection survives: other statements
/// are answered, and the value is large.
#[tokio::test]
async fn a_result_that_no_connection_survives_fails_its_step_and_an_outage_fails_none() {
    support::with(Db::postgres().await, async |db| {
        let settings = Settings {
            count: 8,
            max_retry: 0,
            level: "info",
            ..Settings::default()
        };
        let limited = Limited::before(&db.url, MB);
        let mut fixture =
            DaemonFixture::at(&limited.url, db.conn().await, settings, &[SIZES]).await;
        let most = ("DUCTWORK_JOB_WORKER__MAX_PAYLOAD", "128MiB".to_owned());
        fixture.variables.insert(most.0, most.1);
        let mut daemon = fixture.start();
        daemon.ready().await;

        // None of them can be sent, for as long as anybody could wait: it is an outage.
        fixture.trigger("Sizes", "3000000", 6).await;
        fixture.said("begun", 6).await;
        std::fs::write(fixture.path("go"), "").unwrap();
        eventually(PATIENCE, "it was tried again and again", async || {
            (limited.cuts() >= 8).then_some(())
        })
        .await;
        // Now each can be sent, but no two together.
        limited.allow(4 * MB);
        let before = limited.cuts();
        fixture.completed(PATIENCE).await;
        assert!(limited.cuts() >= before + 2, "two of them went together");
        let executions = fixture.executions().await;
        assert_eq!(executions.len(), 6);
        assert!(
            executions.iter().all(|it| it.result() == "success"),
            "{executions:#?}"
        );

        // The large value is sent alone, and fails; the values next to it succeed.
        let before = limited.cuts();
        let large = fixture.trigger("Sizes", "67200000", 1).await[0];
        let small = fixture.trigger("Sizes", "10", 20).await;
        fixture.run_ended(large).await;
        for run in small {
            fixture.run_ended(run).await;
            let state = query::run_state(&mut fixture.conn, run)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(state.status, RunStatus::Completed);
        }
        daemon.stop().await;
        let state = query::run_state(&mut fixture.conn, large)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(state.status, RunStatus::Halted);
        assert_eq!(limited.cuts(), before + 3);
        let executions = fixture.executions().await;
        let failed = executions.iter().filter(|it| it.result() != "success");
        let failed: Vec<_> = failed.collect();
        assert_eq!(executions.len(), 6 + 1 + 20);
        let [failed] = failed[..] else {
            panic!("{failed:#?}");
        };
        assert_eq!((failed.result(), failed.crash_count), ("error", 0));
        assert_eq!(failed.error_class.as_deref(), Some("output_not_stored"));
        let message = failed.error_message.as_deref().unwrap_or_default();
        let said =
            "its output of 67200002 bytes could not be stored: the connection was lost each time";
        assert!(message.starts_with(said), "{message}");
        fixture.audited().await;
    })
    .await;
}

on_every_database! {
    async fn a_value_that_goes_alone_goes_every_way(db: Db) {
        let settings = Settings { max_retry: 0, level: "info", ..Settings::default() };
        // The server that all tests share takes no values of that size.
        let server = db.url.starts_with("mysql:").then(Mariadb::start);
        let mut fixture = match &server {
            Some(server) => {
                server.sql("SET GLOBAL max_allowed_packet = 167772160");
                let location = Location::parse(&server.url).unwrap();
                let mut conn = location.connect(Purpose::Engine).await.unwrap();
                migrate::migrate(&mut conn).await.unwrap();
                DaemonFixture::at(&server.url, conn, settings, &[WAYS]).await
            }
            None => DaemonFixture::new(&db, settings, &[WAYS]).await,
        };
        let most = ("DUCTWORK_JOB_WORKER__MAX_PAYLOAD", "40MB".to_owned());
        fixture.variables.insert(most.0, most.1);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let run = fixture.trigger("Ways", "1", 1).await[0];
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        // Two texts in an array, and the end of the line that is each step's input.
        assert_eq!(fixture.output(run).await, 2 * 17_000_002 + 3 + 1);
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}
