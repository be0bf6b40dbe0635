//! Starts of a daemon: warnings about things that it will not find later, processes that it finds or that its hook
//! leaves, a terminal that is closed, and a server that accepts less than others.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ductwork::store::{Location, Purpose, migrate};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::unistd::ttyname;

use crate::fixture::*;
use crate::mariadb::Mariadb;
use crate::support::{self, Db};

const WORK: &str = "
pipeline: Work
steps:
  A: { command: [cat] }
  B: { command: [./nowhere] }
flow: [{ start: A }]
on_halt: B
";

const CHAIN: &str = "
pipeline: Chain
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
";

/// Its directory is not the daemon's.
const ELSEWHERE: &str = r#"
pipeline: Elsewhere
steps:
  A: { cwd: sub, command: [sh, -c, '"$DUCTWORKD" context set a 1 && echo 12 > "$DUCTWORK_OUTPUT"'] }
flow: [{ start: A }]
"#;

#[tokio::test]
async fn names_and_programs_that_are_not_there_are_told_once_and_keep_nothing_from_working() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        fixture.configure("  pipelines: [Work, Wrok]\n");
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 3).await;
        fixture.completed(PATIENCE).await;
        let warned = |part: &str| {
            let told = daemon.logged(part);
            assert_eq!(told.len(), 1, "{told:#?}");
            assert_eq!(told[0]["level"], "warn");
            told[0].clone()
        };
        let name = warned("`pipelines` names `Wrok`");
        assert_eq!(name["help"], "did you mean `Work`?");
        let program = warned("step `B` of pipeline `Work`: there is no program `./nowhere`");
        let file = program["file"].as_str().unwrap();
        assert!(file.ends_with(".yml:5"), "{file}");
        // A reload tells of those that it brings.
        let later = "pipeline: Later\nsteps: { A: { command: [./later] } }\nflow: [{ start: A }]\n";
        std::fs::write(fixture.path("pipelines/Later.yml"), later).unwrap();
        fixture.configure("  pipelines: [Work, Later]\n");
        daemon.send(Signal::SIGHUP);
        let told = daemon
            .says("step `A` of pipeline `Later`: there is no program `./later`")
            .await;
        assert_eq!(told[0]["level"], "warn");
        daemon.stop().await;
    })
    .await;
}

/// Its worker is there, and would otherwise seem to take nothing for no reason.
#[tokio::test]
async fn a_start_hook_that_takes_long_is_told_of() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[CHAIN]).await;
        let hook = "[sh, -c, \"until [ -e go ]; do sleep 0.1; done\"]";
        fixture.configure(&format!("  hooks: {{ worker: {{ start: {hook} }} }}\n"));
        let mut daemon = fixture.start();
        let run = fixture.trigger("Chain", "1", 1).await[0];
        let told = "its worker start hook is still running";
        let id = run.to_string();
        for verb in [&["health"][..], &["why", &id]] {
            eventually_every(SELDOM, PATIENCE, "it is told", async || {
                let said = fixture.run(&[], verb);
                let said = [said.stdout, said.stderr].concat();
                String::from_utf8_lossy(&said).contains(told).then_some(())
            })
            .await;
        }
        let logged = daemon.logged("a hook takes long");
        assert_eq!(logged.len(), 1);
        let lasted = logged[0]["seconds"].as_u64().unwrap_or_default();
        assert!(lasted >= 10, "as long as the hook has run: {logged:?}");
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(run).await;
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// An entrypoint that ignores the ends of its children hands that on, and so does a relative TMPDIR.
#[tokio::test]
async fn a_worker_is_indifferent_to_ignored_signals_and_to_a_relative_directory_for_files() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[ELSEWHERE]).await;
        fixture.configure("  role: worker\n");
        for directory in ["sub", "temporary"] {
            std::fs::create_dir(fixture.path(directory)).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_ductworkd").to_owned();
        fixture.variables = [("TMPDIR", "temporary".to_owned()), ("DUCTWORKD", program)].into();
        let ignores = "trap '' CHLD; exec \"$0\" \"$@\"";
        let mut daemon = fixture.start_as(&["sh", "-c", ignores], &["start"]);
        let run = fixture.trigger("Elsewhere", "1", 1).await[0];
        fixture.run_ended(run).await;
        assert_eq!(fixture.output(run).await, 12);
        assert_eq!(fixture.succeeded_once_each().await.len(), 1);
        daemon.stop().await;
        fixture.audited().await;
    })
    .await;
}

/// A terminal whose output goes to a file, until it is closed.
struct Terminal {
    closes: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// The terminal reads from `master`.
    fn open(master: OwnedFd, log: &Path) -> Self {
        let closes = Arc::new(AtomicBool::new(false));
        let (closed, mut log) = (Arc::clone(&closes), File::create(log).unwrap());
        let reader = std::thread::spawn(move || {
            let mut master = File::from(master);
            let mut bytes = [0; 4_096];
            while !closed.load(Ordering::Relaxed) {
                let mut ready = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
                if poll(&mut ready, 20_u8).unwrap() > 0 {
                    let read = master.read(&mut bytes).unwrap();
                    log.write_all(&bytes[..read]).unwrap();
                }
            }
        });
        Self { closes, reader }
    }

    fn close(self) {
        self.closes.store(true, Ordering::Relaxed);
        self.reader.join().unwrap();
    }
}

/// As long as the terminal is open, HUP asks for the configuration to be read again.
#[tokio::test]
async fn a_process_on_a_terminal_ends_when_the_terminal_is_closed() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[CHAIN]).await;
        for role in ["all", "worker"] {
            fixture.configure(&format!("  role: {role}\n"));
            let pty = openpty(None, None).unwrap();
            // The daemon itself would keep its terminal open.
            fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
            let name = ttyname(&pty.slave).unwrap();
            // The first terminal that the leader of a session opens is the session's.
            let opens = format!("exec \"$0\" \"$@\" < {}", name.display());
            let wrapper = ["setsid", "--wait", "sh", "-c", &opens];
            let mut daemon = fixture.start_into(&wrapper, &["start"], Some(pty.slave.into()));
            let terminal = Terminal::open(pty.master, &daemon.log);
            let run = fixture.trigger("Chain", "1", 1).await[0];
            fixture.run_ended(run).await;
            let pid = daemon.child("supervisor", None).await;
            send(pid, Signal::SIGHUP);
            let told = match role {
                "all" => "configuration reloaded",
                _ => "does not read its configuration again",
            };
            daemon.says(told).await;
            assert!(lives(pid));
            terminal.close();
            let (status, _) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
            daemon.gone(PATIENCE).await;
            assert_eq!(fixture.processes().await.len(), 0);
        }
        fixture.audited().await;
    })
    .await;
}

/// A script starts a process and then becomes the daemon, whose start hook starts another one. Neither descends from a
/// child that dies.
#[tokio::test]
async fn what_a_start_hook_leaves_running_goes_on_whatever_child_dies() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[CHAIN]).await;
        fixture.configure(
            "  hooks: { supervisor: { start: [sh, -c, \"sleep 1000 & echo $! >> left\"] } }\n",
        );
        let script = "sleep 1000 & echo $! >> left; exec \"$@\"";
        let mut daemon = fixture.start_as(&["sh", "-c", script, "sh"], &["start"]);
        daemon.ready().await;
        let left = fixture.pids("left", 2).await;
        for kind in ["advancer", "worker Chain"] {
            let dead = daemon.child(kind, None).await;
            send(dead, Signal::SIGKILL);
            daemon.child(kind, Some(dead)).await;
        }
        fixture.trigger("Chain", "1", 1).await;
        fixture.completed(PATIENCE).await;
        daemon.send(Signal::SIGTERM);
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        let ended = daemon.logged("left behind");
        assert!(ended.is_empty(), "{ended:#?}");
        for pid in left {
            assert!(lives(pid), "{pid} was ended");
            send(pid, Signal::SIGKILL);
        }
        daemon.gone(PATIENCE).await;
    })
    .await;
}

/// A service manager starts it again and again, and each start would leave one more.
#[tokio::test]
async fn a_start_hook_that_fails_leaves_no_process_behind() {
    support::with(Db::sqlite(), |db| async move {
        let fixture = DaemonFixture::new(&db, Settings::default(), &[CHAIN]).await;
        let hook = "[sh, -c, \"sleep 1000 & echo $! >> left; exit 3\"]";
        fixture.configure(&format!("  hooks: {{ supervisor: {{ start: {hook} }} }}\n"));
        let mut daemon = fixture.start();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert!(!status.success(), "{status}");
        let left = fixture.pids("left", 1).await;
        gone(left[0], PATIENCE).await;
        daemon.gone(PATIENCE).await;
    })
    .await;
}

/// Rows on their way to a MariaDB server are kept in Aria tables, where those are allowed.
#[tokio::test]
async fn a_server_that_takes_no_tables_of_another_engine_is_worked_with_as_any_other() {
    let server = Mariadb::start();
    server.sql("SET GLOBAL enforce_storage_engine = 'InnoDB'");
    let location = Location::parse(&server.url).expect("the server's URL");
    let mut conn = location.connect(Purpose::Engine).await.unwrap();
    let refused = conn
        .script(
            "ARIA",
            "CREATE TEMPORARY TABLE ductwork_other (n bigint) ENGINE=Aria",
        )
        .await;
    assert!(refused.is_err(), "any engine will do");
    migrate::migrate(&mut conn).await.unwrap();
    let pipelines = [CHAIN];
    let mut fixture = DaemonFixture::at(&server.url, conn, Settings::default(), &pipelines).await;
    let mut daemon = fixture.start();
    daemon.ready().await;
    fixture.trigger("Chain", "1", 20).await;
    fixture.completed(PATIENCE).await;
    daemon.stop().await;
    fixture.audited().await;
}
