//! Steps that the kernel does not let go of: nothing ends them, not even SIGKILL.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ductwork::model::RunStatus;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// Mounts a file system that only it can see, reports that, and then answers no request about
/// it: a process that makes one sleeps uninterruptibly (state D), as with a network file system
/// whose server is gone. The constants are named as in the kernel's headers.
const SERVER: &str = r#"
import ctypes, os, struct, sys

CLONE_NEWNS, MS_REC, MS_PRIVATE, FUSE_INIT = 0x20000, 0x4000, 0x40000, 26
libc = ctypes.CDLL(None, use_errno=True)

def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

check(libc.unshare(CLONE_NEWNS))
check(libc.mount(None, b'/', None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
device = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={device},rootmode=40000,user_id=0,group_id=0'
check(libc.mount(b'stuck', sys.argv[1].encode(), b'fuse', ctypes.c_ulong(0), options.encode()))
while True:
    opcode, unique = struct.unpack_from('<IQ', os.read(device, 1 << 20), 4)
    if opcode == FUSE_INIT:
        answer = struct.pack('<IIIIHHI', 7, 12, 65536, 0, 12, 9, 4096)
        os.write(device, struct.pack('<IiQ', 16 + len(answer), 0, unique) + answer)
        print('mounted', flush=True)
"#;

/// A file system that answers nothing, until it is dropped: then the kernel releases every process.
struct Stuck {
    server: Child,
    place: tempfile::TempDir,
}

impl Stuck {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut server = Command::new("python3")
            .args(["-c", SERVER])
            .arg(place.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut said = String::new();
        let stdout = server.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut said);
        let stuck = Self { server, place };
        assert_eq!(read.ok().map(|_| said.as_str()), Some("mounted\n"));
        stuck
    }

    /// The path of a file in it, as seen from outside.
    fn file(&self) -> String {
        let place = self.place.path().display();
        format!("/proc/{}/root{place}/file", self.server.id())
    }

    /// A pipeline whose step gets stuck when its input is 1.
    fn pipeline(&self, timeout: &str) -> String {
        let file = self.file();
        format!(
            "pipeline: Held
steps: {{ A: {{ command: [sh, -c, 'read n; [ $n = 1 ] && echo $$ >> pids && exec cat {file}; echo $n'], {timeout} }} }}
flow: [{{ start: A }}]
"
        )
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _gone = self.server.kill();
        let _gone = self.server.wait();
    }
}

/// Keeps a file from being executed until it is dropped, but lets a process that waits for that be killed, as a
/// file system on a network does whose server is gone.
struct Lease(Child);

impl Lease {
    fn on(file: &Path) -> Self {
        const HOLDER: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";
        let mut holder = Command::new("python3")
            .args(["-c", HOLDER])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut said = String::new();
        let stdout = holder.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut said);
        let lease = Self(holder);
        assert_eq!(read.ok().map(|_| said.as_str()), Some("held\n"));
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A run in which one step can be started, and two cannot: the program of one can be given up by the kernel, the
/// secret of the other cannot.
const BESIDE: &str = "pipeline: Beside
steps:
  Begin: { command: [cat] }
  Long: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; echo 1'] }
  Program: { command: [./program.sh], timeout: 1s }
  Secret: { command: [echo, '3'], timeout: 1s, env: { TOKEN: { secret: KEY } } }
  End: { command: [cat] }
flow: [{ start: Begin }, { divide: [Long, Program, Secret] }, { combine: End }]
";

/// Takes the program and the secret of `BESIDE` away, until both are dropped.
fn hold_up(fixture: &DaemonFixture, stuck: &Stuck) -> Lease {
    let program = fixture.path("program.sh");
    std::fs::write(&program, "#!/bin/sh\necho $$ >> ran; echo 2\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(stuck.file(), fixture.path("link")).unwrap();
    std::fs::rename(fixture.path("link"), fixture.path("key")).unwrap();
    Lease::on(&program)
}

const QUICK: &str = "
pipeline: Quick
steps: { A: { command: [cat] }, B: { command: [cat] } }
flow: [{ start: A }, { chain: B }]
";

/// Waits until the process sleeps in the kernel and nothing can end it.
async fn uninterruptible(pid: i32) {
    eventually(PATIENCE, "the step is in state D", async || {
        let process = Process::of(pid).expect("a process that cannot die");
        (process.state == 'D').then_some(())
    })
    .await;
}

on_every_database! {
    /// With one slot, so that a slot that is not given up shows.
    async fn a_step_that_does_not_even_die_is_timed_out_and_its_slot_is_free_again(db: Db) {
        let stuck = Stuck::new();
        let settings = Settings { count: 1, max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&stuck.pipeline("timeout: 300ms"), QUICK]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let (worker, advancer) = (daemon.child("worker Held", None).await, daemon.child("advancer", None).await);
        let held = fixture.trigger("Held", "1", 1).await[0];
        let step = fixture.pids("pids", 1).await[0];
        let next = fixture.trigger("Held", "2", 1).await[0];
        let other = fixture.trigger("Quick", "3", 1).await[0];
        fixture.run_ended(other).await;

        fixture.run_ended(held).await;
        uninterruptible(step).await;
        fixture.run_ended(next).await;
        assert_eq!(fixture.output(next).await, 2);
        let mut ended = fixture.ended(PATIENCE).await;
        ended.sort();
        assert_eq!(ended, [RunStatus::Completed, RunStatus::Completed, RunStatus::Halted]);
        let executions = fixture.executions().await;
        let timed_out: Vec<_> = executions.iter().filter(|e| e.result() != "success").collect();
        assert_eq!(timed_out.len(), 1, "{executions:#?}");
        assert_eq!(timed_out[0].result(), "timed_out");
        let message = timed_out[0].error_message.as_deref().unwrap();
        assert!(message.contains("still not dead"), "{message}");
        assert_eq!(daemon.logged("stuck in the kernel").len(), 1);
        assert_eq!((daemon.children("worker Held"), daemon.children("advancer")), (vec![worker], vec![advancer]));

        // Nor does the step hold up the stop.
        daemon.send(Signal::SIGTERM);
        let (status, took) = daemon.ended(PATIENCE).await;
        eprintln!("stopped in {took:?}");
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(lives(step), "it was not stuck: the test is empty");
        drop(stuck);
        daemon.gone(PATIENCE).await;
        fixture.audited().await;
    }

    async fn a_stop_does_not_wait_for_a_step_that_does_not_even_die(db: Db) {
        let stuck = Stuck::new();
        let settings = Settings { shutdown_timeout: "1s", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[&stuck.pipeline("timeout: 1h")]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Held", "1", 1).await;
        let step = fixture.pids("pids", 1).await[0];
        daemon.send(Signal::SIGTERM);
        let (status, took) = daemon.ended(PATIENCE).await;
        eprintln!("stopped in {took:?}");
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        uninterruptible(step).await;
        let executions = fixture.executions().await;
        assert_eq!(executions[0].result(), "released", "{executions:#?}");
        drop(stuck);
        daemon.gone(PATIENCE).await;
        fixture.audited().await;
    }

    /// A worker that waited for either would not beat, would be killed after two seconds as one that stands still,
    /// and again after that, and each time the step beside them would spend a crash.
    async fn a_step_on_a_disk_that_does_not_answer_is_given_up_and_costs_nobody_anything(db: Db) {
        let stuck = Stuck::new();
        let settings = Settings { reaper_timeout: "2s", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[BESIDE, QUICK]).await;
        let key = fixture.path("key");
        std::fs::write(&key, "secret").unwrap();
        fixture.variables.insert("KEY_FILE", key.display().to_string());
        let mut daemon = fixture.start();
        daemon.ready().await;
        let lease = hold_up(&fixture, &stuck);
        let worker = daemon.child("worker Beside", None).await;
        let run = fixture.trigger("Beside", "0", 1).await[0];
        fixture.pids("pids", 1).await;
        let released = |executions: &[Execution], step: &str| {
            let of = executions.iter().filter(|it| it.step == step && it.result() == "released");
            of.count()
        };
        eventually(PATIENCE, "both steps were given up thrice", async || {
            let executions = fixture.executions().await;
            let thrice = |step| released(&executions, step) >= 3;
            (thrice("Program") && thrice("Secret")).then_some(())
        })
        .await;
        // By then, a worker that waited would have been killed.
        assert_eq!(daemon.children("worker Beside"), [worker]);
        assert!(fixture.lines("ran").is_empty());

        drop(lease);
        std::fs::write(fixture.path("new"), "secret").unwrap();
        std::fs::rename(fixture.path("new"), &key).unwrap();
        drop(stuck);
        std::fs::write(fixture.path("go"), "").unwrap();
        fixture.run_ended(run).await;
        fixture.completed(PATIENCE).await;
        assert_eq!(daemon.children("worker Beside"), [worker]);
        assert_eq!(fixture.output(run).await, serde_json::json!([1, 2, 3]));
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|it| it.crash_count == 0), "{executions:#?}");
        let of = |step: &str| executions.iter().filter(|it| it.step == step).collect::<Vec<_>>();
        assert_eq!(of("Long").len(), 1, "{executions:#?}");
        for step in ["Program", "Secret"] {
            let message = of(step)[0].error_message.as_deref().unwrap();
            assert!(message.contains("could not be started within 5s"), "{message}");
        }
        assert_eq!(fixture.lines("ran").len(), 1, "one that was given up ran");
        daemon.stop().await;
        fixture.audited().await;
    }

    /// Neither a start that can be killed nor one that cannot outlives its worker as a program.
    async fn a_step_that_could_not_be_started_dies_with_its_daemon(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let text = BESIDE.replace(", timeout: 1s", "");
        let mut fixture = DaemonFixture::new(&db, settings, &[&text]).await;
        let stuck = Stuck::new();
        let key = fixture.path("key");
        std::fs::write(&key, "secret").unwrap();
        fixture.variables.insert("KEY_FILE", key.display().to_string());
        let mut daemon = fixture.start();
        daemon.ready().await;
        let lease = hold_up(&fixture, &stuck);
        fixture.trigger("Beside", "0", 1).await;
        fixture.pids("pids", 1).await;
        daemon.says_times("a step waits to be started", 2).await;
        let unborn = daemon.children("unborn, of worker Beside");
        assert_eq!(unborn.len(), 1, "{:#?}", daemon.processes());
        let worker = daemon.child("worker Beside", None).await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        send(worker, Signal::SIGKILL);
        eventually(PATIENCE, "what can be killed is dead", async || (!lives(unborn[0])).then_some(())).await;
        drop(lease);
        drop(stuck);
        daemon.gone(PATIENCE).await;
        assert!(fixture.lines("ran").is_empty());
    }
}
