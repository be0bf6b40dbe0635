//! The console's process: when there is one, what happens to it, and the effects of that on others.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use ductwork::model::{Intake, Role};
use ductwork::store::{Location, Purpose, migrate};
use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::fixture::*;
use crate::http::Console;
use crate::on_every_database;
use crate::support::Db;

/// A pipeline whose step reports its pid and waits for a file.
const WAITS: &str = "pipeline: Waits\n\
     steps: { Wait: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] } }\n\
     flow: [{ start: Wait }]\n";

const ANY_PORT: &str = "  console: { listen: \"127.0.0.1:0\" }\n";

/// The number of network sockets on which this process listens.
fn listens(pid: i32) -> usize {
    let mut listening = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // 0A is LISTEN.
            if fields[3] == "0A" {
                listening.insert(format!("socket:[{}]", fields[9]));
            }
        }
    }
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links
        .filter(|link| listening.contains(link.to_str().unwrap_or_default()))
        .count()
}

on_every_database! {
    async fn a_daemon_has_a_console_that_answers_where_its_configuration_says_so(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
        fixture.configure(ANY_PORT);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let console = Console::of(&daemon).await;
        for path in ["/livez", "/readyz", "/startupz"] {
            let answer = console.answers(path, 200).await;
            assert_eq!(answer.body, "ok\n");
        }
        let child = daemon.child("console", None).await;
        let others = daemon.processes().into_iter().filter(|it| it.pid != child);
        for other in others {
            assert_eq!(listens(other.pid), 0, "{other:?}");
        }
        assert_eq!(listens(child), 1);
        // Quiet has no meaning for a console, and it claims nothing.
        daemon.send(Signal::SIGTSTP);
        eventually(PATIENCE, "the worker is quiet", async || {
            let rows = fixture.processes().await;
            rows.iter().any(|row| row.role == Role::Worker && row.intake == Intake::Quiet).then_some(())
        })
        .await;
        // A console answers as soon as it listens, and registers meanwhile.
        let rows = eventually(PATIENCE, "the console has registered", async || {
            let rows = fixture.processes().await;
            rows.iter().any(|row| row.role == Role::Console).then_some(rows)
        })
        .await;
        let consoles: Vec<_> = rows.iter().filter(|row| row.role == Role::Console).collect();
        assert_eq!(consoles.len(), 1);
        assert!(consoles[0].intake.is_open() && consoles[0].pid as i32 == child);
        assert_eq!(console.get("/readyz").status, 200);
        daemon.stop().await;
        assert!(console.try_get("/livez").is_none());
        assert!(fixture.processes().await.is_empty());
        assert!(daemon.logged("a child died").is_empty());
    }

    async fn a_console_alone_ends_in_order(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
        fixture.configure(ANY_PORT);
        let mut alone = fixture.start_as(&[], &["console"]);
        let console = Console::of(&alone).await;
        console.answers("/readyz", 200).await;
        assert_eq!(alone.processes().len(), 1);
        // It answers as soon as it listens, and registers meanwhile.
        let roles = eventually(PATIENCE, "it has registered", async || {
            let rows = fixture.processes().await;
            (!rows.is_empty()).then(|| rows.iter().map(|row| row.role).collect::<Vec<_>>())
        })
        .await;
        assert_eq!(roles, [Role::Console]);
        // It executes nothing, and `health` and `why` do not count it as a process that does.
        let run = fixture.trigger("Waits", "1", 1).await[0].to_string();
        let why = fixture.run(&[], &["why", &run, "--json"]);
        let why = String::from_utf8(why.stdout).unwrap();
        assert!(why.contains("no_worker"), "{why}");
        let health = fixture.run(&[], &["health"]);
        assert_eq!(health.status.code(), Some(1));
        let health = String::from_utf8(health.stderr).unwrap();
        let line = "error: unhealthy: no supervisor is registered, only a console";
        assert_eq!(health.lines().next(), Some(line), "{health}");
        let health = fixture.run(&[], &["health", "--json"]);
        let health: serde_json::Value = serde_json::from_slice(&health.stdout).unwrap();
        assert_eq!((&health["healthy"], &health["supervisors"]), (&false.into(), &0.into()));
        // The console itself counts as healthy.
        assert!(fixture.run(&[], &["health", "--here"]).status.success());
        alone.stop().await;
        assert!(fixture.processes().await.is_empty());
        // The same by means of its role.
        let mut alone = fixture.start_as(&["env", "DUCTWORK_ROLE=console"], &["start"]);
        Console::of(&alone).await.answers("/startupz", 200).await;
        alone.stop().await;
    }
}

#[tokio::test]
async fn a_console_alone_listens_where_its_command_says_whatever_the_configuration_does() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    fixture.configure(&format!("  console: {{ listen: \"{taken}\" }}\n"));
    let variable = format!("DUCTWORK_CONSOLE__LISTEN={taken}");
    let listen = ["console", "--listen", "127.0.0.1:0"];
    let mut alone = fixture.start_as(&["env", &variable], &listen);
    let console = Console::of(&alone).await;
    assert_ne!(console.address, taken);
    for path in ["/livez", "/readyz", "/startupz"] {
        console.answers(path, 200).await;
    }
    eventually(PATIENCE, "it has registered", async || {
        (fixture.processes().await.len() == 1).then_some(())
    })
    .await;
    alone.stop().await;
    assert!(fixture.processes().await.is_empty());

    let refused = fixture.run(&[], &["console", "--listen", "here:9410"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    let line = "error: --listen: `console.listen` takes an address, not `here:9410`\n";
    assert!(said.starts_with(line), "{said}");
}

#[tokio::test]
async fn a_daemon_without_a_console_listens_nowhere() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    assert!(daemon.children("console").is_empty());
    for process in daemon.processes() {
        assert_eq!(listens(process.pid), 0, "{process:?}");
    }
    daemon.stop().await;
    // A run at a terminal has no console, even if the configuration has one for a daemon.
    fixture.configure(ANY_PORT);
    let mut run = fixture.start_as(&[], &["run", "Waits", "1"]);
    fixture.pids("pids", 1).await;
    assert!(run.children("console").is_empty());
    std::fs::write(fixture.path("go"), "").unwrap();
    let (status, _) = run.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0));
    assert!(run.logged("the console").is_empty());
}

#[tokio::test]
async fn a_console_that_is_killed_or_stands_still_is_replaced_and_no_run_is_touched() {
    let db = Db::sqlite();
    let settings = Settings {
        reaper_timeout: "2s",
        max_crash: 1,
        ..Settings::default()
    };
    let mut fixture = DaemonFixture::new(&db, settings, &[WAITS]).await;
    fixture.configure(ANY_PORT);
    let mut daemon = fixture.start();
    daemon.ready().await;
    Console::of(&daemon).await.answers("/readyz", 200).await;
    let workers = daemon.children("worker Waits");
    fixture.trigger("Waits", "1", 1).await;
    let step = fixture.pids("pids", 1).await[0];

    let first = daemon.child("console", None).await;
    send(first, Signal::SIGKILL);
    let second = daemon.child("console", Some(first)).await;
    let console = Console::after(&daemon, 1).await;
    console.answers("/readyz", 200).await;

    freeze(second).await;
    daemon.child("console", Some(second)).await;
    let console = Console::after(&daemon, 2).await;
    console.answers("/readyz", 200).await;
    gone(second, PATIENCE).await;

    assert!(lives(step));
    assert_eq!(daemon.children("worker Waits"), workers);
    std::fs::write(fixture.path("go"), "").unwrap();
    fixture.completed(PATIENCE).await;
    assert_eq!(fixture.succeeded_once_each().await.len(), 1);
    daemon.stop().await;
    fixture.audited().await;
}

#[tokio::test]
async fn a_console_lives_through_an_outage_of_the_database_and_says_that_it_is_not_ready() {
    let cluster = Cluster::start();
    let location = Location::parse(&cluster.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    migrate::migrate(&mut conn).await.unwrap();
    let fixture = DaemonFixture::at(&cluster.url, conn, Settings::default(), &[WAITS]).await;
    fixture.configure(ANY_PORT);
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    console.answers("/readyz", 200).await;
    let child = daemon.child("console", None).await;
    cluster.down();
    let answer = console.answers("/readyz", 503).await;
    assert_eq!(answer.body, "database\n");
    for path in ["/livez", "/startupz"] {
        assert_eq!(console.get(path).status, 200, "{path}");
    }
    // A console that starts now lives as well.
    send(child, Signal::SIGKILL);
    let console = Console::after(&daemon, 1).await;
    console.answers("/livez", 200).await;
    for path in ["/readyz", "/startupz"] {
        assert_eq!(console.get(path).body, "database\n", "{path}");
    }
    let second = daemon.child("console", Some(child)).await;
    cluster.up();
    for path in ["/startupz", "/readyz", "/livez"] {
        console.answers(path, 200).await;
    }
    assert_eq!(daemon.children("console"), [second]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_port_that_somebody_has_keeps_nobody_but_the_console_from_working() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    fixture.configure(&format!("  console: {{ listen: \"127.0.0.1:{port}\" }}\n"));
    std::fs::write(fixture.path("go"), "").unwrap();

    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Waits", "1", 3).await;
    fixture.completed(PATIENCE).await;
    let child = daemon.child("console", None).await;
    let health = eventually_every(
        SELDOM,
        Duration::from_secs(60),
        "`health` tells of it",
        async || {
            let health = fixture.run(&[], &["health"]);
            (health.status.code() == Some(1)).then(|| String::from_utf8(health.stderr).unwrap())
        },
    )
    .await;
    let fact = format!("the console cannot listen on 127.0.0.1:{port}: ");
    assert!(
        health.starts_with("error: unhealthy: console (pid "),
        "{health}"
    );
    assert!(
        health.contains(&fact) && health.contains("`console.listen`"),
        "{health}"
    );
    assert_eq!(health.matches("error: ").count(), 1, "{health}");
    let said = daemon.logged("the console cannot listen");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0]["error"].as_str().unwrap().starts_with(&fact),
        "{said:#?}"
    );
    // No process had to be restarted, and the others work.
    assert_eq!(daemon.children("console"), [child]);
    assert!(daemon.logged("a child died").is_empty());
    fixture.trigger("Waits", "1", 3).await;
    fixture.completed(PATIENCE).await;
    drop(taken);
    let console = Console::of(&daemon).await;
    console.answers("/readyz", 200).await;
    eventually_every(
        SELDOM,
        PATIENCE,
        "`health` has nothing to tell",
        async || (fixture.run(&[], &["health"]).status.code() == Some(0)).then_some(()),
    )
    .await;

    // A console without a daemon reports it, and ends.
    let alone = fixture.run(&[], &["console"]);
    assert_eq!(alone.status.code(), Some(1));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(
        said.contains("the console cannot listen on 127.0.0.1:"),
        "{said}"
    );

    // A reload with another port moves the console, and one that stays finds its predecessor's port free.
    daemon.send(Signal::SIGUSR2);
    Console::after(&daemon, 1)
        .await
        .answers("/readyz", 200)
        .await;
    fixture.configure(ANY_PORT);
    daemon.send(Signal::SIGHUP);
    let moved = Console::after(&daemon, 2).await;
    assert_ne!(moved.address, console.address);
    moved.answers("/readyz", 200).await;
    assert_eq!(daemon.logged("the console cannot listen").len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_drain_is_watched_on_the_console_until_the_others_have_ended() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITS]).await;
    fixture.configure(ANY_PORT);
    let mut daemon = fixture.start();
    daemon.ready().await;
    let console = Console::of(&daemon).await;
    let run = fixture.trigger("Waits", "1", 1).await[0];
    fixture.pids("pids", 1).await;
    let worker = daemon.child("worker Waits", None).await;
    daemon.send(Signal::SIGTERM);
    daemon.says("stopping").await;
    eventually_every(SCAN, PATIENCE, "the advancer has ended", async || {
        daemon.children("advancer").is_empty().then_some(())
    })
    .await;
    // The step runs on, and the console shows it.
    assert_eq!(console.get("/readyz").status, 200);
    let page = console.get(&format!("/runs/{run}"));
    assert_eq!(page.status, 200);
    assert_eq!(daemon.children("worker Waits"), [worker]);
    std::fs::write(fixture.path("go"), "").unwrap();
    let (status, _) = daemon.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0));
    assert!(console.try_get("/livez").is_none());
    assert!(fixture.processes().await.is_empty());
    assert!(daemon.logged("killing a child").is_empty());
}
