//! Containers: two of them in which everything that identifies a process is the same, and pid 1.

use std::collections::BTreeSet;
use std::time::Duration;

use ductwork::model::Role;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// The relevant part of a container runtime's work. The machine id, the host's name and the boot
/// are the same in all of them.
const CONTAINER: [&str; 5] = [
    "unshare",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child=SIGKILL",
];

const WORK: &str = r#"
pipeline: Work
steps: { A: { command: [sh, -c, 'sleep 0.1; cat'] } }
flow: [{ start: A }]
"#;

/// Each leaves ten orphaned processes behind.
const DAEMONISING: &str = r#"
pipeline: Daemonising
steps:
  A:
    command:
      - sh
      - -c
      - |
        for i in 1 2; do
          ( setsid sh -c 'echo "$0" >> $DUCTWORK_STEP_ID; echo "$0" >> daemons; sleep 0.0$0' $i > /dev/null 2>&1 & )
        done
        ( ( : & ) & )
        until [ "$(cat $DUCTWORK_STEP_ID | wc -l)" -eq 2 ]; do sleep 0.01; done
flow: [{ start: A }]
"#;

/// The pid of the container's supervisor, as seen from the test.
async fn init(daemon: &Daemon) -> i32 {
    let wrapper = daemon.pid();
    eventually_every(
        SCAN,
        PATIENCE,
        "the supervisor in its container",
        async || {
            let processes = daemon.processes().into_iter();
            let mut supervisors = processes
                .filter(|process| process.kind == "supervisor" && process.parent == wrapper);
            supervisors.next().map(|process| process.pid)
        },
    )
    .await
}

async fn stop(daemon: &mut Daemon) {
    send(init(daemon).await, Signal::SIGTERM);
    let (status, _) = daemon.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{status}");
    daemon.gone(Duration::ZERO).await;
}

/// A probe that failed would have the daemon ended, which could not start again. In a container, where no other daemon of
/// this user runs.
#[tokio::test]
async fn a_daemon_lives_on_although_its_configuration_can_no_longer_be_read() {
    let db = Db::sqlite();
    let fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
    let mut daemon = fixture.start_as(&CONTAINER, &["start"]);
    daemon.ready().await;
    let pid = init(&daemon).await.to_string();
    let good = std::fs::read_to_string(fixture.path("ductwork.yml")).unwrap();
    let file = fixture.path("ductwork.yml");
    std::fs::write(&file, format!("{good}nonsense: [\n")).unwrap();
    let inside = ["nsenter", "--target", &pid, "--pid", "--mount", "--wd"];
    let said = eventually_every(SELDOM, PATIENCE, "its loop turns", async || {
        let asked = fixture.run(&inside, &["health", "--live"]);
        let said = String::from_utf8([asked.stdout, asked.stderr].concat()).unwrap();
        (asked.status.code() == Some(0)).then_some(said)
    })
    .await;
    assert!(said.contains("the configuration cannot be read"), "{said}");
    std::fs::write(&file, good).unwrap();
    stop(&mut daemon).await;
}

/// `docker run -it IMAGE watch RUN`, and Ctrl-C.
#[tokio::test]
async fn a_command_that_is_the_first_process_of_a_container_ends_by_signals() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
    let run = fixture.trigger("Work", "1", 1).await[0].to_string();
    for (verb, signal, code) in [
        (["watch", &run].as_slice(), Signal::SIGTERM, 143),
        (&["watch", &run], Signal::SIGINT, 130),
        (&["logs", "--follow", &run], Signal::SIGINT, 130),
        (&["logs", "--follow", &run], Signal::SIGTERM, 143),
        (&["trigger", "--wait", "Work", "1"], Signal::SIGINT, 130),
        (&["trigger", "--wait", "Work", "1"], Signal::SIGTERM, 143),
    ] {
        let mut command = fixture.start_as(&CONTAINER, verb);
        let wrapper = command.pid();
        let first = eventually(PATIENCE, "the command in its container", async || {
            let ended = command.has_ended();
            assert_eq!(ended, None, "{verb:?}: {}", command.text());
            let children = format!("/proc/{wrapper}/task/{wrapper}/children");
            let children = std::fs::read_to_string(children).ok()?;
            let first: i32 = children.split_whitespace().next()?.parse().ok()?;
            let status = std::fs::read_to_string(format!("/proc/{first}/status")).ok()?;
            let caught = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught & (1 << (signal as u32 - 1)) != 0).then_some(first)
        })
        .await;
        send(first, signal);
        let (status, _) = command.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(code), "{verb:?}, {signal}: {status}");
    }
    // A command that handles Ctrl-C itself.
    let mut command = fixture.start_as(&CONTAINER, &["trigger", "--wait", "Work", "1"]);
    let wrapper = command.pid();
    eventually(PATIENCE, "it waits", async || {
        command.text().contains("triggered").then_some(())
    })
    .await;
    let children = std::fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children"));
    send(children.unwrap().trim().parse().unwrap(), Signal::SIGINT);
    let (status, _) = command.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(130));
    assert!(
        command.text().contains("the run goes on"),
        "{}",
        command.text()
    );
}

/// The system's resolver waits in a thread that nobody can end, for 10 s here.
#[tokio::test]
async fn a_stop_does_not_wait_for_a_resolver_that_does_not_answer() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
    std::fs::write(fixture.path("resolv.conf"), "nameserver 127.53.53.53\n").unwrap();
    let url = "postgres://nobody@database.example/none".to_owned();
    fixture.variables.insert("DUCTWORK_DATABASE_URL", url);
    let resolver = "mount --bind resolv.conf /etc/resolv.conf && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", resolver, "sh"];
    for role in ["all", "worker"] {
        fixture.variables.insert("DUCTWORK_ROLE", role.to_owned());
        // At an address of loopback that nobody else uses, and anew: each asks for two addresses.
        let silent = tokio::net::UdpSocket::bind("127.53.53.53:53").await;
        let silent = silent.unwrap();
        let mut daemon = fixture.start_as(&wrapper, &["start"]);
        let mut question = [0; 512];
        let asked = tokio::time::timeout(PATIENCE, silent.recv(&mut question));
        asked.await.expect("it asks for an address").unwrap();
        daemon.send(Signal::SIGTERM);
        let (status, took) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        daemon.gone(Duration::ZERO).await;
    }
}

on_every_database! {
    async fn two_containers_that_look_the_same_never_take_each_others_claims(db: Db) {
        let settings = Settings { reaper_timeout: "3s", max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[WORK]).await;
        let mut one = fixture.start_as(&CONTAINER, &["start"]);
        one.ready().await;
        fixture.trigger("Work", "1", 250).await;
        eventually(PATIENCE, "the first works", async || {
            let executions = fixture.executions().await;
            executions.iter().any(|e| e.result() == "success").then_some(())
        })
        .await;
        // It starts while the first holds claims, and looks for dead predecessors.
        let mut two = fixture.start_as(&CONTAINER, &["start"]);
        two.ready().await;
        // A daemon is ready when its worker's row exists, which the worker itself may log later.
        let worker = async |daemon: &Daemon| {
            eventually(PATIENCE, "a worker has registered", async || {
                let registered = daemon.logged("registered");
                let worker = registered.iter().find(|event| event["role"] == "worker");
                worker.and_then(|event| event["process_id"].as_str()?.parse::<uuid::Uuid>().ok())
            })
            .await
        };
        let (first, second) = (worker(&one).await, worker(&two).await);
        eventually(PATIENCE, "both work", async || {
            let executions = fixture.executions().await;
            let works = |id| executions.iter().any(|e| e.process_id == Some(id));
            (works(first) && works(second)).then_some(())
        })
        .await;
        let supervisors = fixture.processes().await;
        let supervisors: Vec<_> = supervisors.iter().filter(|row| row.role == Role::Supervisor).collect();
        let [a, b] = supervisors.as_slice() else { panic!("{supervisors:#?}") };
        assert_eq!((a.pid, b.pid), (1, 1), "not pid 1: the test is empty");
        assert_eq!((&a.host, &a.boot_id), (&b.host, &b.boot_id));
        assert_ne!(a.pid_namespace, b.pid_namespace);
        let executions = fixture.executions().await;
        let taken: Vec<_> = executions.iter().filter(|e| e.attempt > 1 || e.crash_count > 0).collect();
        assert!(taken.is_empty(), "{taken:#?}");

        // The second container dies as a whole, and returns under the same names: its claims wait
        // for the end of their lease, and those of the first are left alone.
        let holds = async |fixture: &mut DaemonFixture| {
            let executions = fixture.executions().await;
            executions.iter().any(|e| e.process_id == Some(second) && e.result.is_none()).then_some(())
        };
        eventually(PATIENCE, "the second holds claims", async || holds(&mut fixture).await).await;
        let init = init(&two).await;
        // Its processes are stopped first, so that it still holds claims when it dies.
        freeze(init).await;
        let worker = two.child("worker Work", None).await;
        eventually(PATIENCE, "the second has stopped while it holds claims", async || {
            freeze(worker).await;
            let held = holds(&mut fixture).await;
            if held.is_none() {
                // It has just finished its last claim. It may claim again.
                send(worker, Signal::SIGCONT);
            }
            held
        })
        .await;
        send(init, Signal::SIGKILL);
        two.ended(PATIENCE).await;
        let mut three = fixture.start_as(&CONTAINER, &["start"]);
        three.ready().await;
        fixture.completed(PATIENCE).await;
        stop(&mut one).await;
        stop(&mut three).await;
        let executions = fixture.succeeded_once_each().await;
        // Only the claims of the dead container.
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        let crashed: BTreeSet<_> = crashed.filter_map(|e| e.process_id).collect();
        assert_eq!(crashed, BTreeSet::from([second]), "{executions:#?}");
        let others = executions.iter().filter(|e| !["success", "process_crashed"].contains(&e.result()));
        assert_eq!(others.count(), 0);
        fixture.audited().await;
    }

    async fn a_container_answers_for_its_own_health_alone_when_it_is_asked_so(db: Db) {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        let mut one = fixture.start_as(&CONTAINER, &["start"]);
        let mut two = fixture.start_as(&CONTAINER, &["start"]);
        one.ready().await;
        two.ready().await;
        let init = init(&one).await.to_string();
        let inside = ["nsenter", "--target", &init, "--pid", "--mount", "--wd"];
        for (wrapper, words, status, says) in [
            (&inside[..], &["health"][..], 0, "healthy: 2 of 2"),
            (&inside, &["health", "--here"], 0, "healthy: 1 of 1"),
            (&[], &["health"], 0, "healthy: 2 of 2"),
            (&[], &["health", "--here"], 1, "no supervisor is registered from here"),
        ] {
            let done = fixture.run(wrapper, words);
            let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
            assert_eq!(done.status.code(), Some(status), "{wrapper:?} {words:?}: {said}");
            assert!(said.contains(says), "{wrapper:?} {words:?}: {said}");
        }
        stop(&mut one).await;
        stop(&mut two).await;
    }
}

/// The kernel hands orphans to pid 1, whatever the database.
#[tokio::test]
async fn as_pid_1_it_leaves_no_zombie_of_all_that_steps_daemonise() {
    let db = Db::sqlite();
    let mut fixture = DaemonFixture::new(&db, Settings::default(), &[DAEMONISING]).await;
    let mut daemon = fixture.start_as(&CONTAINER, &["start"]);
    daemon.ready().await;
    let init = init(&daemon).await;
    fixture.trigger("Daemonising", "1", 1_000).await;
    fixture.completed(PATIENCE).await;
    fixture.said("daemons", 1_000 * 2).await;
    // unshare, the supervisor and its two children; all others have ended and were reaped.
    let four = eventually_every(SCAN, PATIENCE, "only the daemon is left", async || {
        let left = daemon.processes();
        (left.len() == 4 && children(init).len() == 2).then_some(left)
    })
    .await;
    assert!(four.iter().all(|process| process.state != 'Z'), "{four:#?}");
    stop(&mut daemon).await;
    fixture.succeeded_once_each().await;
    fixture.audited().await;
}

/// Its children, zombies included.
fn children(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("a process")
        .flatten()
    {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(
            list.split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    children
}
