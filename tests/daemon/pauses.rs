//! A paused pipeline: running steps end, nothing begins, and new work waits for the end of the pause.

use ductwork::model::{Channel, Role};
use ductwork::store::action::Actor;
use ductwork::store::pause::{pause, unpause};
use nix::sys::signal::Signal;

use crate::fixture::*;
use crate::on_every_database;
use crate::support::Db;

/// Two steps, the first of which waits for a file.
const HELD: &str = r#"
pipeline: Held
steps:
  A: { command: [sh, -c, 'echo up >> begun; until [ -e go ]; do sleep 0.1; done; cat'] }
  B: { command: [sh, -c, 'echo up >> followed; cat'] }
flow: [{ start: A }, { chain: B }]
"#;

fn ana() -> Actor {
    Actor::new("ana", Channel::Cli)
}

fn two_slots() -> Settings {
    Settings {
        count: 2,
        ..Settings::default()
    }
}

/// Waits until this many attempts at a step have succeeded, and this many wait in the queue.
async fn until(fixture: &mut DaemonFixture, step: &str, succeeded: usize, waiting: usize) {
    let what = format!("{succeeded} of {step} succeeded, {waiting} wait");
    eventually(PATIENCE, &what, async || {
        let executions = fixture.executions().await;
        let of = executions.iter().filter(|it| it.step == step);
        let (open, ended): (Vec<_>, Vec<_>) = of.partition(|it| it.result.is_none());
        let free = open.iter().filter(|it| it.process_id.is_none()).count();
        (ended.len() == succeeded && open.len() == waiting && free == waiting).then_some(())
    })
    .await;
}

fn says(fixture: &DaemonFixture, verb: &[&str]) -> (String, String) {
    let told = fixture.run(&[], verb);
    assert!(told.status.success(), "{verb:?}: {told:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(told.stdout), text(told.stderr))
}

on_every_database! {
    async fn a_paused_pipeline_ends_what_runs_and_begins_nothing_until_it_is_unpaused(db: Db) {
        let mut fixture = DaemonFixture::new(&db, Settings { reaper_timeout: "2s", ..two_slots() }, &[HELD]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Held", "1", 4).await;
        fixture.said("begun", 2).await;
        let (told, _) = says(&fixture, &["pause", "Held", "--reason", "the store moves", "--by", "ana"]);
        assert_eq!(told, "Held paused\n");
        daemon.says("paused: claiming nothing").await;
        std::fs::write(fixture.path("go"), "").unwrap();
        until(&mut fixture, "A", 2, 2).await;
        until(&mut fixture, "B", 0, 2).await;

        // Work that arrives meanwhile waits, and the commands that trigger it or ask about it say
        // so.
        let (run, note) = says(&fixture, &["trigger", "Held", "7"]);
        assert!(note.contains("note: the pipeline Held is paused (by ana, "), "{note}");
        let (why, _) = says(&fixture, &["why", run.trim()]);
        assert!(why.contains("): the store moves\nremedy: ductworkd unpause Held\n"), "{why}");

        // A worker that starts during the pause respects it, and beats.
        let killed = daemon.child("worker Held", None).await;
        send(killed, Signal::SIGKILL);
        daemon.child("worker Held", Some(killed)).await;
        let began = fixture.processes().await;
        let beats = |rows: &[ductwork::store::process::ProcessRow]| rows.iter().map(|row| row.beat_seq).min();
        eventually(PATIENCE, "everybody has beaten five times", async || {
            let rows = fixture.processes().await;
            let worker = rows.iter().find(|row| row.role == Role::Worker)?;
            let is_new = worker.paused && worker.pid as i32 != killed;
            (is_new && beats(&rows) > beats(&began).map(|seq| seq + 5)).then_some(())
        })
        .await;
        until(&mut fixture, "A", 2, 3).await;
        until(&mut fixture, "B", 0, 2).await;
        assert_eq!((fixture.lines("begun").len(), fixture.lines("followed").len()), (2, 0));
        fixture.audited().await;

        says(&fixture, &["unpause", "Held"]);
        fixture.completed(PATIENCE).await;
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }

    /// The pause is so recent that no heartbeat has told the worker: its commit does.
    async fn a_worker_that_commits_while_its_pipeline_is_paused_begins_nothing_more(db: Db) {
        let mut fixture = DaemonFixture::new(&db, two_slots(), &[HELD]).await;
        let mut daemon = fixture.start();
        daemon.ready().await;
        for round in 1.. {
            assert!(round <= 20, "a heartbeat told it each time: the test is empty");
            fixture.trigger("Held", "1", 2).await;
            fixture.said("begun", 2 * round).await;
            pause(&mut fixture.conn, "Held", "why", &ana()).await.unwrap();
            std::fs::write(fixture.path("go"), "").unwrap();
            until(&mut fixture, "A", 2 * round, 0).await;
            until(&mut fixture, "B", 2 * (round - 1), 2).await;
            assert_eq!(fixture.lines("followed").len(), 2 * (round - 1));
            let told_by_commit = !daemon.logged("put back").is_empty();
            std::fs::remove_file(fixture.path("go")).unwrap();
            unpause(&mut fixture.conn, "Held", &ana()).await.unwrap();
            fixture.completed(PATIENCE).await;
            if told_by_commit {
                break;
            }
        }
        daemon.stop().await;
        fixture.succeeded_once_each().await;
        fixture.audited().await;
    }
}
