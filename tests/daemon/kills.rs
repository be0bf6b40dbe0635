//! SIGKILL, for any process at any moment: the work goes on, and nothing counts twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::dice::Dice;
use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// Fan-outs within fan-outs; each step reports its start and the end of its work, and returns its
/// input. Each report is one write, so lines of two steps do not mix.
const NESTED: &str = r#"
pipeline: Nested
steps:
  Split: { command: [sh, step.sh] }
  Work:  { command: [sh, step.sh] }
  Left:  { command: [sh, step.sh] }
  Right: { command: [sh, step.sh] }
  Tail:  { command: [sh, step.sh] }
  Join:  { command: [sh, step.sh] }
  Sum:   { command: [sh, step.sh] }
flow:
  - start: Split
  - expand: Work
  - divide: [Left, [Right, { chain: Tail }]]
  - combine: Join
  - collapse: Sum
"#;

const STEP: &str = r#"
echo "start $DUCTWORK_EXECUTION_ID $$" >> ledger
input=$(cat)
sleep 0.03
echo "end $DUCTWORK_EXECUTION_ID $$" >> ledger
echo "$input"
"#;

/// The number of steps of one run of it.
const STEPS: usize = 1 + 4 * 5 + 1;

/// A step that runs until it is killed, the first time. It leaves a process outside of its process group, which is
/// known by its pid.
const STRAYING: &str = r#"
pipeline: Straying
steps:
  A:
    command:
      - sh
      - -c
      - |
        echo $$ >> pids
        [ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0
        setsid sleep 1000 & echo $! >> strays
        sleep 1000 & echo $! >> sleepers
        wait
flow: [{ start: A }]
"#;

/// The pids of steps that have started but not ended.
fn running(fixture: &DaemonFixture) -> Vec<i32> {
    let mut running = BTreeMap::new();
    for line in fixture.lines("ledger") {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["start", id, pid] => {
                running.insert((*id).to_owned(), pid.parse().expect("a pid"));
            }
            ["end", id, _] => {
                running.remove(*id);
            }
            _ => panic!("not a line of the ledger: {line}"),
        }
    }
    let pids = running.into_values();
    pids.filter(|pid| lives(*pid)).collect()
}

/// Leaves a process behind that has its own session and ignores signals; reports when it finds the process of an
/// earlier attempt alive.
const HAUNTED: &str = r#"
pipeline: Haunted
steps:
  A:
    command:
      - sh
      - -c
      - |
        mine=ghosts-$DUCTWORK_STEP_ID
        if [ $DUCTWORK_ATTEMPT -gt 1 ]; then
          # The command line of the dead is empty.
          [ -n "$(cat /proc/$(cat $mine)/cmdline 2>/dev/null)" ] && echo haunted >> haunted
          echo again >> again
          exit 0
        fi
        setsid sh -c 'trap "" TERM HUP INT; echo $$ > $0; while :; do sleep 0.1; done' $mine &
        until [ -s $mine ]; do sleep 0.1; done
        cat $mine >> ghosts
        until [ -e go ]; do sleep 0.1; done
flow: [{ start: A }]
"#;

/// Each attempt leaves a process with its own session, a child of that process with another session, and a process
/// whose parent is already gone.
const DETACHING: &str = r#"
pipeline: Detaching
steps:
  A: { command: [sh, leave.sh, fails] }
  B: { command: [sh, leave.sh, waits] }
flow: [{ start: A }, { chain: B }]
"#;

const LEAVE: &str = r#"
for pid in $(cat strays 2>/dev/null); do
  case $(cut -d' ' -f3 /proc/$pid/stat 2>/dev/null) in ''|Z|X) ;; *) echo $pid >> beside ;; esac
done
before=$(cat strays 2>/dev/null | wc -l)
setsid sh -c 'echo $$ >> strays; setsid sleep 1000 & echo $! >> strays; wait' >/dev/null 2>&1 &
setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $! >> strays' >/dev/null 2>&1
until [ $(cat strays | wc -l) -ge $((before + 3)) ]; do sleep 0.01; done
case $1-$DUCTWORK_ATTEMPT in fails-1) exit 1 ;; waits-*) sleep 1000 ;; esac
"#;

/// Kills a supervisor and its worker so that neither learns of the other's end.
async fn kill_both(daemon: &mut Daemon, worker: &str) {
    let worker = daemon.child(worker, None).await;
    // The supervisor is frozen first: it must not replace the worker, nor recover anything.
    freeze(daemon.pid()).await;
    send(worker, Signal::SIGKILL);
    daemon.send(Signal::SIGKILL);
    daemon.ended(PATIENCE).await;
}

on_every_database! {
    async fn killing_anybody_at_any_moment_loses_nothing_and_repeats_nothing(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[NESTED]).await;
        std::fs::write(fixture.path("step.sh"), STEP).unwrap();
        let mut dice = Dice::new("DUCTWORK_TEST_SEED");
        let mut runs = fixture.trigger("Nested", "[1,2,3,4]", 4).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        let mut fired = BTreeMap::new();
        for fault in 0..28 {
            runs.extend(fixture.trigger("Nested", "[1,2,3,4]", 1).await);
            tokio::time::sleep(Duration::from_millis(dice.below(250))).await;
            // Each kind is hit equally often; the moment decides what it is doing.
            let kind = ["advancer", "worker Nested", "step", "supervisor"][fault % 4];
            let victim = eventually(PATIENCE, "there is somebody to kill", async || {
                let victims = match kind {
                    "step" => running(&fixture),
                    "supervisor" => vec![daemon.pid()],
                    kind => daemon.children(kind),
                };
                let pid = *victims.first()?;
                // A process that has just ended by itself is no victim.
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).ok()?;
                Some(pid)
            })
            .await;
            gone(victim, PATIENCE).await;
            *fired.entry(kind).or_insert(0) += 1;
            if kind == "supervisor" {
                daemon.ended(PATIENCE).await;
                // Now and then its successor meets the children that it left.
                if dice.below(2) == 0 {
                    daemon.gone(Duration::from_secs(2)).await;
                }
                let dead = std::mem::replace(&mut daemon, fixture.start());
                dead.gone(Duration::from_secs(2)).await;
                daemon.ready().await;
            }
        }
        assert_eq!(fired.into_values().collect::<Vec<_>>(), [7, 7, 7, 7]);
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;

        let expected = serde_json::json!([[1, 1], [2, 2], [3, 3], [4, 4]]);
        for run in &runs {
            assert_eq!(fixture.output(*run).await, expected);
        }
        let executions = fixture.succeeded_once_each().await;
        let mut ledger: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for line in fixture.lines("ledger") {
            let mut words = line.split(' ');
            let (phase, id) = (words.next().unwrap(), words.next().unwrap());
            let (starts, ends) = ledger.entry(id.to_owned()).or_default();
            *(if phase == "start" { starts } else { ends }) += 1;
        }
        let mut others = 0;
        for execution in &executions {
            let id = execution.id.to_string();
            let (starts, ends) = ledger.remove(&id).unwrap_or_default();
            match execution.result() {
                // A step that is stored as done was done, by this very attempt, once.
                "success" => assert_eq!((starts, ends), (1, 1), "{execution:?}"),
                "process_crashed" | "released" => {
                    assert!(starts <= 1, "{execution:?}");
                    others += 1;
                }
                _ => panic!("{execution:?}"),
            }
        }
        assert!(ledger.is_empty(), "nobody knows of: {ledger:?}");
        let successes = executions.len() - others;
        assert_eq!(successes, runs.len() * STEPS);
        assert!(others >= 4, "the kills hit nothing: {others}");
    }

    async fn a_killed_step_spends_a_crash_and_no_retry(db: Db) {
        let settings = Settings { max_retry: 0, max_crash: 3, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[STRAYING]).await;
        let mut daemon = fixture.start();
        let run = fixture.trigger("Straying", "1", 1).await[0];
        let step = fixture.pids("pids", 1).await[0];
        let sleeper = fixture.pids("sleepers", 1).await[0];
        let worker = daemon.child("worker Straying", None).await;
        send(step, Signal::SIGKILL);
        fixture.completed(PATIENCE).await;
        // Its process group ended with it; the worker did not.
        gone(sleeper, Duration::from_secs(5)).await;
        assert_eq!(daemon.children("worker Straying"), [worker]);
        daemon.stop().await;
        assert_eq!(fixture.output(run).await, serde_json::Value::Null);
        let executions = fixture.succeeded_once_each().await;
        let [first, second] = executions.as_slice() else { panic!("{executions:#?}") };
        assert_eq!((first.result(), first.crash_count), ("process_crashed", 0));
        assert_eq!((second.result(), second.crash_count), ("success", 1));
        fixture.audited().await;
    }

    async fn a_killed_workers_steps_end_with_all_they_started_and_run_again_within_a_second(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[STRAYING]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Straying", "1", 3).await;
        let steps = fixture.pids("pids", 3).await;
        let mut left = fixture.pids("strays", 3).await;
        left.extend(fixture.pids("sleepers", 3).await);
        left.extend(steps);
        for pid in &left {
            assert!(lives(*pid), "nothing to end: the test is empty");
        }
        let worker = daemon.child("worker Straying", None).await;
        send(worker, Signal::SIGKILL);
        let killed = Instant::now();
        fixture.said("pids", 6).await;
        let took = killed.elapsed();
        eprintln!("ran again after {took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        for pid in left {
            gone(pid, Duration::from_secs(2)).await;
        }
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 3, "{executions:#?}");
        fixture.audited().await;
    }

    async fn two_seconds_after_the_supervisor_was_killed_no_child_and_no_step_is_left(db: Db) {
        let stubborn = r#"
pipeline: Stubborn
steps:
  A: { command: [sh, -c, 'trap "" TERM; [ $DUCTWORK_ATTEMPT -gt 1 ] && exit 0; echo $$ >> pids; while :; do sleep 0.1; done'] }
flow: [{ start: A }]
"#;
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[stubborn]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Stubborn", "1", 3).await;
        for pid in fixture.pids("pids", 3).await {
            assert!(lives(pid), "nothing to leave behind: the test is empty");
        }
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        daemon.gone(Duration::from_secs(2)).await;

        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The step's run was cancelled: it has five seconds to end when the supervisor dies.
    async fn a_step_in_its_grace_is_gone_two_seconds_after_the_supervisor_was_killed(db: Db) {
        let asked = r#"
pipeline: Asked
steps:
  A: { command: [sh, -c, 'trap "echo $$ >> asked" TERM; echo $$ >> pids; while :; do sleep 0.1; done'] }
flow: [{ start: A }]
"#;
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[asked]).await;
        let mut daemon = fixture.start();
        let run = fixture.trigger("Asked", "1", 1).await[0].to_string();
        fixture.pids("pids", 1).await;
        let (status, _) = fixture.start_as(&[], &["cancel", &run]).ended(PATIENCE).await;
        assert!(status.success(), "{status}");
        fixture.pids("asked", 1).await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        daemon.gone(Duration::from_secs(2)).await;

        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.ended(PATIENCE).await;
        daemon.stop().await;
        fixture.audited().await;
    }

    /// The worker's row ends in order, so no successor hunts for the leftover processes: the worker ends them
    /// itself, before it releases the executions.
    async fn a_worker_whose_supervisor_was_killed_ends_what_its_steps_have_left_before_it_leaves(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[HAUNTED]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Haunted", "1", 3).await;
        let ghosts = fixture.pids("ghosts", 3).await;
        // Another daemon waits for the work.
        let mut other = fixture.start();
        other.child("worker Haunted", None).await;
        for pid in &ghosts {
            assert!(lives(*pid), "nothing to end: the test is empty");
        }
        let held = daemon.child("worker Haunted", None).await;
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        daemon.gone(Duration::from_secs(5)).await;
        assert!(!lives(held));
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.lines("again").len(), 3);
        assert_eq!(fixture.lines("haunted"), [""; 0], "they ran beside each other");
        for pid in &ghosts {
            assert!(!lives(*pid), "{pid} is left");
        }
        other.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 3, "{executions:#?}");
        fixture.audited().await;
    }

    /// While their worker lives: leftovers of a failed, a successful and a cancelled attempt.
    async fn what_an_execution_left_behind_is_gone_when_its_attempt_has_ended(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[DETACHING]).await;
        std::fs::write(fixture.path("leave.sh"), LEAVE).unwrap();
        let mut daemon = fixture.start();
        let run = fixture.trigger("Detaching", "1", 1).await[0];
        let strays = fixture.pids("strays", 9).await;
        let last = strays[6..].to_vec();
        assert!(last.iter().all(|pid| lives(*pid)), "nothing to end: the test is empty");
        for pid in &strays[..6] {
            assert!(!lives(*pid), "{pid} is left of {strays:?}");
        }
        assert_eq!(fixture.lines("beside"), [""; 0], "they ran beside each other");
        let worker = daemon.child("worker Detaching", None).await;
        let run = run.to_string();
        let (status, _) = fixture.start_as(&[], &["cancel", &run]).ended(PATIENCE).await;
        assert!(status.success(), "{status}");
        for pid in last {
            gone(pid, PATIENCE).await;
        }
        assert_eq!(daemon.children("worker Detaching"), [worker]);
        daemon.stop().await;
        fixture.audited().await;
    }

    /// Only the database still knows of them.
    async fn what_the_steps_of_the_dead_left_behind_is_gone_before_they_run_again(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[HAUNTED]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Haunted", "1", 3).await;
        let ghosts = fixture.pids("ghosts", 3).await;
        kill_both(&mut daemon, "worker Haunted").await;
        for pid in &ghosts {
            assert!(lives(*pid), "nothing to hunt: the test is empty");
        }
        let mut next = fixture.start();
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.lines("again").len(), 3);
        assert_eq!(fixture.lines("haunted"), [""; 0], "they ran beside each other");
        for pid in &ghosts {
            assert!(!lives(*pid), "{pid} is left");
        }
        next.says("ended what a dead worker's steps left behind").await;
        next.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    async fn what_a_killed_workers_steps_left_behind_is_gone_before_its_supervisor_lets_them_run_again(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[HAUNTED]).await;
        // The supervisor's own polling would come long after this test has given up.
        fixture.variables.insert("DUCTWORK_SUPERVISOR__POLLING_TIMEOUT", "1h".to_owned());
        let mut daemon = fixture.start();
        fixture.trigger("Haunted", "1", 3).await;
        let ghosts = fixture.pids("ghosts", 3).await;
        for pid in &ghosts {
            assert!(lives(*pid), "nothing to end: the test is empty");
        }
        send(daemon.child("worker Haunted", None).await, Signal::SIGKILL);
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.lines("again").len(), 3);
        assert_eq!(fixture.lines("haunted"), [""; 0], "they ran beside each other");
        for pid in &ghosts {
            assert!(!lives(*pid), "{pid} is left");
        }
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// Its environment says nothing about its worker, and two children die at once, so that the proof may come while
    /// the supervisor is busy with the second. Another daemon waits for the work.
    async fn a_process_that_hides_from_the_hunt_is_gone_before_its_step_runs_again(db: Db) {
        let hiding = HAUNTED.replace("setsid sh -c", "setsid env -i PATH=\"$PATH\" sh -c");
        assert_ne!(hiding, HAUNTED);
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[&hiding]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Haunted", "1", 3).await;
        let ghosts = fixture.pids("ghosts", 3).await;
        let mut other = fixture.start();
        other.child("worker Haunted", None).await;
        for pid in &ghosts {
            assert!(lives(*pid), "nothing to end: the test is empty");
        }
        let children = [daemon.child("advancer", None).await, daemon.child("worker Haunted", None).await];
        for child in children {
            send(child, Signal::SIGKILL);
        }
        fixture.completed(PATIENCE).await;
        assert_eq!(fixture.lines("again").len(), 3);
        assert_eq!(fixture.lines("haunted"), [""; 0], "they ran beside each other");
        for pid in &ghosts {
            gone(*pid, Duration::from_secs(2)).await;
        }
        for daemon in [&mut daemon, &mut other] {
            daemon.stop().await;
        }
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The processes of another supervisor on this host, on the same database and on another.
    async fn what_living_workers_run_is_nobody_elses_to_hunt(db: Db) {
        let settings = || Settings { count: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings(), &[HAUNTED]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Haunted", "1", 1).await;
        let dead = fixture.pids("ghosts", 1).await[0];
        let mut other = fixture.start();
        fixture.trigger("Haunted", "1", 1).await;
        let alive = fixture.pids("ghosts", 2).await[1];
        let elsewhere = Db::sqlite();
        let mut other_fixture = DaemonFixture::new(&elsewhere, settings(), &[HAUNTED]).await;
        let mut stranger = other_fixture.start();
        other_fixture.trigger("Haunted", "1", 1).await;
        let strange = other_fixture.pids("ghosts", 1).await[0];

        kill_both(&mut daemon, "worker Haunted").await;
        let mut next = fixture.start();
        gone(dead, PATIENCE).await;
        fixture.said("again", 1).await;
        // Until the daemons had looked at every row many times.
        let beats = |rows: &[ductwork::store::process::ProcessRow]| rows.iter().map(|row| row.beat_seq).min();
        let began = beats(&fixture.processes().await);
        eventually(PATIENCE, "everybody has beaten twice", async || {
            (beats(&fixture.processes().await) > began.map(|seq| seq + 1)).then_some(())
        })
        .await;
        assert!(lives(alive) && lives(strange));
        for fixture in [&fixture, &other_fixture] {
            std::fs::write(fixture.path("go"), "").unwrap();
        }
        fixture.completed(PATIENCE).await;
        other_fixture.completed(PATIENCE).await;
        // They end with their own attempts.
        for pid in [alive, strange] {
            gone(pid, PATIENCE).await;
        }
        for daemon in [&mut other, &mut next, &mut stranger] {
            daemon.stop().await;
        }
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 3, "{executions:#?}");
        fixture.audited().await;
        elsewhere.remove().await;
    }

    /// The children are not told to end, and the worker's executions are not given back.
    async fn what_a_supervisor_and_its_worker_held_runs_again_after_a_start(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[STRAYING]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Straying", "1", 2).await;
        let steps = fixture.pids("pids", 2).await;
        kill_both(&mut daemon, "worker Straying").await;
        for pid in steps {
            gone(pid, Duration::from_secs(2)).await;
        }
        let claimed = fixture.executions().await;
        assert!(claimed.iter().all(|e| e.result.is_none() && e.process_id.is_some()), "{claimed:#?}");

        // The lease is far from its end: the proof is that the pid does not exist.
        let mut next = fixture.start();
        let started = Instant::now();
        fixture.completed(Duration::from_secs(20)).await;
        assert!(started.elapsed() < Duration::from_secs(10));
        next.stop().await;
        let executions = fixture.succeeded_once_each().await;
        let crashed = executions.iter().filter(|e| e.result() == "process_crashed");
        assert_eq!(crashed.count(), 2, "{executions:#?}");
        fixture.audited().await;
    }
}

const WAITING: &str = r#"
pipeline: Waiting
steps:
  Wait: { command: [sh, -c, 'echo $$ >> pids; exec sleep 1000'] }
flow: [{ start: Wait }]
"#;

on_every_database! {
    /// Its leases still last for half a minute.
    async fn a_daemon_that_was_killed_is_called_dead_at_once(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WAITING]).await;
        let run = fixture.trigger("Waiting", "1", 1).await[0].to_string();
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.pids("pids", 1).await;
        let children: Vec<i32> = ["advancer", "worker Waiting"].iter().flat_map(|kind| daemon.children(kind)).collect();
        // No process notices before all of them are dead.
        freeze(daemon.pid()).await;
        for child in children {
            send(child, Signal::SIGKILL);
        }
        daemon.send(Signal::SIGKILL);
        daemon.ended(PATIENCE).await;
        daemon.gone(PATIENCE).await;

        let health = fixture.run(&[], &["health"]);
        let said = String::from_utf8_lossy(&health.stderr);
        assert!(health.status.code() == Some(1) && said.contains("1 of 1 supervisors is dead"), "{said}");
        let processes = fixture.run(&[], &["processes", "--json"]).stdout;
        let processes: Vec<serde_json::Value> = serde_json::from_slice(&processes).unwrap();
        assert_eq!(processes.len(), 3);
        assert!(processes.iter().all(|it| it["dead"] == true && it["healthy"] == false), "{processes:#?}");
        let why = fixture.run(&[], &["why", &run, "--json"]).stdout;
        let why: serde_json::Value = serde_json::from_slice(&why).unwrap();
        assert_eq!(why["cause"], "process_gone", "{why}");
        assert!(why["fact"].as_str().unwrap().contains("which is dead"), "{why}");

        // Work that is overdue: the dead worker does not count as a busy one.
        fixture.trigger("Waiting", "1", 1).await;
        let wait = "UPDATE ductwork_availabilities SET due_at = due_at - 100000000";
        fixture.conn.script("wait", wait).await.unwrap();
        let health = fixture.run(&[], &["health", "--json"]).stdout;
        let health: serde_json::Value = serde_json::from_slice(&health).unwrap();
        assert_eq!(health["dead"], 1, "{health:#}");
        assert_eq!(health["stuck"][0]["cause"], "no_worker", "{health:#}");
    }
}
