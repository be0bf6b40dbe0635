//! Stopping: gracefully, in the middle of a start, at once, and the cost to the steps.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use ductwork::store::cancel::Cancelling;
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::outage::LONG;
use crate::support::Db;

const QUICK: &str = "
pipeline: Quick
steps: { A: { command: [sh, -c, cat] } }
flow: [{ start: A }]
";

/// A step that reports its pid and then takes its time, the first time.
const SLOW: &str = "
pipeline: Slow
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; if [ $DUCTWORK_ATTEMPT -gt 1 ]; then exit 0; fi; trap \"\" TERM; sleep 1000 & echo $! >> sleepers; wait; wait; sleep 1000'] }
flow: [{ start: A }]
";

/// A step that waits until it is let go.
const LET_GO: &str = "
pipeline: LetGo
steps: { A: { command: [sh, -c, 'echo $$ >> pids; until [ -e go ]; do sleep 0.1; done; cat'] } }
flow: [{ start: A }]
";

/// A step that reports that it ran.
const SAYS: &str = "
pipeline: Says
steps: { A: { command: [sh, -c, 'echo up >> ran; cat'] } }
flow: [{ start: A }]
";

on_every_database! {
    /// No timer is waited for: a wait would show in every stop, the load of the machine does not.
    async fn the_quickest_of_five_stops_of_an_idle_daemon_takes_less_than_half_a_second(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        let mut stops = Vec::new();
        while stops.len() < 5 {
            let mut daemon = fixture.start();
            daemon.ready().await;
            daemon.says_times("registered", 3).await;
            let before = daemon.log().len();
            daemon.send(Signal::SIGTERM);
            let (status, took) = daemon.ended(PATIENCE).await;
            assert_eq!(status.code(), Some(0), "{status}");
            daemon.gone(Duration::ZERO).await;
            // One line, and the last one; a stop of more than a moment has told before that it stops.
            let mut since = daemon.log().split_off(before);
            since.retain(|event| event["level"] != "debug");
            let last = since.pop().expect("it tells of its end");
            assert_eq!((&last["msg"], &last["signal"]), (&"stopped".into(), &"SIGTERM".into()), "{last}");
            let moment = last["ms"].as_u64() < Some(200);
            let told = since.iter().filter(|event| !moment && event["msg"] == "stopping").count();
            assert!(told <= 1 && since.len() == told, "{since:#?}");
            // Every process has deregistered.
            assert!(fixture.processes().await.is_empty());
            stops.push(took);
        }
        let quickest = stops.iter().min().expect("five stops");
        assert!(*quickest < Duration::from_millis(500), "{stops:?}");
    }

    /// At any moment of a start.
    async fn a_stop_during_the_start_is_never_lost(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        // Each database tries another quarter of the moments.
        let first = match db.url.split_once(':').expect("a URL").0 {
            "sqlite" => 0,
            "mysql" => 1,
            _ => 2,
        };
        let moments: Vec<u64> = (first..500).step_by(4).collect();
        let starts = moments.len();
        let mut moments = moments.into_iter().map(Duration::from_millis).peekable();
        let (mut before_main, mut ready) = (0, 0);
        while moments.peek().is_some() {
            // Ten at a time: on a busy machine a start takes its time everywhere.
            let mut daemons: Vec<(Daemon, Instant, Duration)> = Vec::new();
            for moment in moments.by_ref().take(10) {
                daemons.push((fixture.start(), Instant::now(), moment));
            }
            for (daemon, started, moment) in &daemons {
                tokio::time::sleep(moment.saturating_sub(started.elapsed())).await;
                daemon.send(Signal::SIGTERM);
            }
            for (daemon, _, moment) in &mut daemons {
                let (status, took) = daemon.ended(PATIENCE).await;
                if status.signal() == Some(Signal::SIGTERM as i32) {
                    // No program can influence what happens before its first instruction.
                    assert!(daemon.log().is_empty(), "killed at {moment:?}: {:?}", daemon.log());
                    before_main += 1;
                } else {
                    assert_eq!(status.code(), Some(0), "at {moment:?}: {status}");
                }
                assert!(took < Duration::from_secs(5), "at {moment:?}: {took:?}");
                ready += usize::from(!daemon.logged("ready").is_empty());
                daemon.gone(Duration::from_millis(100)).await;
            }
        }
        eprintln!("{before_main} had not begun, {ready} were ready");
        // The test is about those in between; their number depends on the machine.
        let between = starts - before_main - ready;
        assert!(between > 5, "{before_main} had not begun, {ready} were ready");
        assert!(fixture.processes().await.is_empty());
        fixture.audited().await;
    }

    async fn a_step_that_outlives_the_drain_is_killed_and_runs_again_at_no_cost(db: Db) {
        let settings = Settings { shutdown_timeout: "500ms", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[SLOW]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Slow", "1", 2).await;
        let steps = fixture.pids("pids", 2).await;
        let sleepers = fixture.pids("sleepers", 2).await;
        for pid in steps.iter().chain(&sleepers) {
            assert!(lives(*pid), "nothing to kill: the test is empty");
        }
        daemon.stop().await;
        let executions = fixture.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 2, "{executions:#?}");

        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 4, "{executions:#?}");
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    /// RACE: a worker waits for its turn to claim, and is told to end before its turn comes. It puts back the
    /// executions that it then gets: a step that started now would be killed soon, or outlive the host's other half.
    /// Found by chaos, when the supervisor was killed while the database was locked.
    async fn what_is_claimed_by_a_worker_that_is_to_end_is_never_started(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[SAYS]).await;
        let mut triggered = 0;
        for round in 1.. {
            assert!(round <= 20, "no worker ever waited for the lock: the test is empty");
            let mut daemon = fixture.start();
            daemon.ready().await;
            fixture.completed(PATIENCE).await;
            let ran = fixture.lines("ran");
            fixture.trigger_in(Duration::from_millis(300), "Says", "1", 1).await;
            triggered += 1;
            let lock = Lock::take(&mut fixture).await;
            // Until the run is due, and the worker waits; if that takes longer there is another
            // round.
            tokio::time::sleep(Duration::from_millis(500)).await;
            daemon.send(Signal::SIGKILL);
            daemon.ended(PATIENCE).await;
            eventually(PATIENCE, "the worker knows, or is gone", async || {
                let said = daemon.logged("the supervisor is gone");
                let knows = said.iter().any(|line| line["role"] == "worker");
                (knows || daemon.processes().is_empty()).then_some(())
            })
            .await;
            lock.release(&mut fixture).await;
            daemon.gone(PATIENCE).await;
            assert_eq!(fixture.lines("ran"), ran, "it was started in round {round}");
            if !daemon.logged("put back").is_empty() {
                break;
            }
        }
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), triggered, "{executions:#?}");
        fixture.audited().await;
    }

    /// `timeout` sends TERM to the process, and then to its group. A person who repeats a stop takes longer.
    async fn a_stop_that_timeout_sends_twice_is_no_second_term(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LET_GO]).await;
        fixture.trigger("LetGo", "1", 1).await;
        let mut daemon = fixture.start_as(&["timeout", "4"], &["start"]);
        let step = fixture.pids("pids", 1).await[0];
        daemon.says("stopping").await;
        let supervisor = daemon.children("supervisor")[0];
        assert!(lives(step));
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(124), "{status}");
        gone(supervisor, PATIENCE).await;
        assert!(daemon.logged("stopping at once").is_empty(), "{:#?}", daemon.log());
        let log = daemon.log();
        let last = log.last().unwrap();
        assert!(last["msg"] == "stopped" && last["role"] == "supervisor", "{log:#?}");
        let executions = fixture.executions().await;
        let results: Vec<&str> = executions.iter().map(|e| e.result()).collect();
        assert_eq!(results, ["success"], "{executions:#?}");

        // The same, as some service managers do. Without a pause, which on a busy machine may be longer than the time
        // within which they are one request.
        std::fs::remove_file(fixture.path("go")).unwrap();
        let mut daemon = fixture.start();
        fixture.trigger("LetGo", "1", 1).await;
        let step = fixture.pids("pids", 2).await[1];
        for _ in 0..3 {
            daemon.send(Signal::SIGTERM);
        }
        daemon.says("stopping").await;
        assert!(lives(step));
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.attempt == 1), "{executions:#?}");
        fixture.audited().await;
    }

    async fn a_second_term_ends_everything_at_once_and_releases_what_ran(db: Db) {
        let settings = Settings { max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[SLOW]).await;
        let mut daemon = fixture.start();
        fixture.trigger("Slow", "1", 3).await;
        let steps = fixture.pids("pids", 3).await;
        daemon.send(Signal::SIGTERM);
        daemon.says("stopping").await;
        // The same signal at once would be the same request.
        tokio::time::sleep(Duration::from_millis(150)).await;
        for pid in &steps {
            assert!(lives(*pid), "nothing to kill: the test is empty");
        }
        daemon.send(Signal::SIGTERM);
        let (status, took) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        daemon.gone(Duration::ZERO).await;
        let executions = fixture.executions().await;
        let released = executions.iter().filter(|e| e.result() == "released");
        assert_eq!(released.count(), 3, "{executions:#?}");
        fixture.audited().await;

        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    /// Each deployment interrupts the same long step; the budget for crashes is one.
    async fn rolling_restarts_spend_no_crash(db: Db) {
        let patient = "
pipeline: Patient
steps:
  A: { command: [sh, -c, 'echo $$ >> pids; if [ $DUCTWORK_ATTEMPT -gt 4 ]; then exit 0; fi; exec sleep 1000'] }
flow: [{ start: A }]
";
        let settings = Settings { shutdown_timeout: "100ms", max_retry: 0, max_crash: 1, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[patient]).await;
        fixture.trigger("Patient", "1", 1).await;
        for restart in 1..=4 {
            let mut daemon = fixture.start();
            let pids = fixture.pids("pids", restart).await;
            assert!(lives(pids[restart - 1]));
            daemon.stop().await;
        }
        let mut daemon = fixture.start();
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 5);
        assert!(executions.iter().all(|e| e.crash_count == 0), "{executions:#?}");
        fixture.audited().await;
    }

    async fn until_idle_ends_by_itself_when_no_work_is_left(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        fixture.trigger("Quick", "1", 20).await;
        let mut daemon = fixture.start_as(&[], &["start", "--until-idle"]);
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        daemon.gone(Duration::ZERO).await;
        fixture.completed(Duration::ZERO).await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// A job that Kubernetes moves to another node is not complete.
    async fn a_daemon_that_is_stopped_before_it_is_idle_says_so_with_its_exit_status(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        fixture.trigger_in(Duration::from_secs(3600), "Quick", "1", 1).await;
        let verb = ["start", "--until-idle"];
        let console = ["env", "DUCTWORK_ROLE=console", "DUCTWORK_CONSOLE__LISTEN=127.0.0.1:0"];
        for wrapper in [&[][..], &["env", "DUCTWORK_ROLE=worker"], &["env", "DUCTWORK_ROLE=advancer"], &console] {
            for signal in [Signal::SIGTERM, Signal::SIGINT] {
                let mut daemon = fixture.start_as(wrapper, &verb);
                daemon.says("registered").await;
                daemon.send(signal);
                let (status, _) = daemon.ended(PATIENCE).await;
                assert_eq!(status.code(), Some(130), "{wrapper:?}: {status}");
                daemon.gone(Duration::ZERO).await;
            }
        }
    }

    async fn the_last_step_may_end_in_the_drain_of_a_daemon_that_was_not_idle(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[LONG]).await;
        fixture.trigger("Long", "1", 1).await;
        let mut daemon = fixture.start_as(&[], &["start", "--until-idle"]);
        fixture.pids("pids", 1).await;
        daemon.send(Signal::SIGTERM);
        daemon.says("stopping").await;
        std::fs::write(fixture.path("go"), "").unwrap();
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(130), "{status}");
    }

    async fn until_idle_says_which_run_it_waits_for(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[QUICK]).await;
        let hour = Duration::from_secs(3600);
        let later = fixture.trigger_in(hour, "Quick", "1", 1).await[0];
        let mut daemon = fixture.start_as(&[], &["start", "--until-idle"]);
        let said = daemon.says("not idle: this run is still in progress").await;
        assert_eq!(said[0]["run_id"], later.to_string(), "{said:#?}");
        let mut cancelling = Cancelling::of(later, 1);
        while cancelling.step(&mut fixture.conn).await.unwrap().is_none() {}
        let (status, _) = daemon.ended(PATIENCE).await;
        assert_eq!(status.code(), Some(0), "{status}");
        assert_eq!(daemon.logged("not idle").len(), 1);
    }
}
