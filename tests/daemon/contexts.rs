//! Steps that use their run's context, in an environment that says nothing about the database.

use std::os::unix::fs::PermissionsExt;

use ductwork::model::RunStatus;
use ductwork::store::query;

use crate::fixture::*;
use crate::foreign::Foreign;
use crate::support::Db;
use crate::{on_every_database, on_servers};

const TALK: &str = "
pipeline: Talk
steps: { Sets: { command: [./sets] }, Reads: { command: [./reads] } }
flow: [{ start: Sets }, { chain: Reads }]
";

const SETS: &str = r#"#!/bin/sh
exec 2>> said
env | grep -q DATABASE_URL && exit 9
ductworkd context set a '{"n": 1}' || exit 1
echo 2 | ductworkd context set b - || exit 1
ductworkd context get b --run "$DUCTWORK_RUN_ID" >&2
ductworkd context get nothing; echo "unset $?" >&2
ductworkd context set '' 1; echo "empty $?" >&2
ductworkd context get "$(printf 'k%.0s' $(seq 300))"; echo "long $?" >&2
ductworkd context set c nonsense; echo "nonsense $?" >&2
head -c 2000 /dev/zero | tr '\0' 7 | ductworkd context set large -; echo "large $?" >&2
ductworkd context get a --run 00000000-0000-7000-8000-000000000000; echo "other $?" >&2
echo "section $DUCTWORK_ENV" >&2
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
    ductworkd context set "c$i" "$i" &
done
wait
"#;

const READS: &str = r#"#!/bin/sh
ductworkd context list --json
"#;

const FLOOD: &str = "
pipeline: Flood
steps: { A: { command: [./either] } }
flow: [{ start: A }]
";

const EITHER: &str = r#"#!/usr/bin/env python3
import os, socket, subprocess, sys, time
path = os.environ["DUCTWORK_CONTEXT"].split(":", 2)[2]
if sys.stdin.read().strip() == '"talk"':
    while not os.path.exists("flooded"): time.sleep(0.02)
    for i in range(10):
        subprocess.run(["ductworkd", "context", "set", "k", str(i)], check=True)
    subprocess.run(["ductworkd", "context", "get", "k"], check=True)
    open("enough", "w")
else:
    held, made = [], 0
    while not os.path.exists("enough"):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(1)
        try:
            one.connect(path)
            one.send([b"", b"{", b"nonsense\n", b"x" * 100000][made % 4])
        except OSError:
            pass
        held.append(one)
        made += 1
        if len(held) > 200: held.pop(0).close()
        if made == 1000: open("flooded", "w")
    print(made)
"#;

const NOTES: &str = "
pipeline: Notes
steps: { A: { command: [./notes] } }
flow: [{ start: A }]
";

/// The first run writes once its row is locked, and again after that; the second one meanwhile.
const NOTE: &str = r#"#!/bin/sh
read -r which
[ "$which" = 1 ] && { echo $$ >> pids; until [ -e locked ]; do sleep 0.1; done; echo asks >> asks; }
for i in 1 2 3 4 5 6 7 8 9 10; do ductworkd context set k "$i" || exit 1; done
ductworkd context get k
"#;

/// Writes a step's program, and puts the ductworkd under test on its path.
fn program(fixture: &mut DaemonFixture, name: &str, text: &str) {
    let path = fixture.path(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let ours = std::path::Path::new(env!("CARGO_BIN_EXE_ductworkd"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", ours.parent().unwrap().display());
    fixture.variables.insert("PATH", path);
}

/// Leaves the database's location in the daemon's environment alone.
fn hide_the_database(fixture: &mut DaemonFixture, db: &Db) {
    let file = fixture.path("ductwork.yml");
    let text = std::fs::read_to_string(&file).unwrap();
    let url = format!("\"{}\"", db.url);
    assert!(text.contains(&url));
    let text = text.replace(&url, "\"${DATABASE_URL}\"");
    std::fs::write(&file, text).unwrap();
    fixture.variables.insert("DATABASE_URL", db.url.clone());
}

on_every_database! {
    async fn a_step_uses_its_runs_context_without_the_database(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[TALK]).await;
        fixture.configure("other: { job_worker: { max_payload: 1KiB } }\n");
        hide_the_database(&mut fixture, &db);
        program(&mut fixture, "sets", SETS);
        program(&mut fixture, "reads", READS);
        let mut daemon = fixture.start_as(&[], &["start", "-e", "other"]);
        daemon.ready().await;
        let run = fixture.trigger("Talk", "1", 1).await[0];
        fixture.run_ended(run).await;
        let said = fixture.lines("said").join("\n");
        for part in [
            "2\n", "the key `nothing` is not set", "unset 1", "a key has 1 to 256 characters", "empty 2", "long 2",
            "the value is not one JSON value", "nonsense 2", "more than the 1024 of `job_worker.max_payload`", "large 1",
            "other 1", "section other",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let mut all = serde_json::json!({ "a": { "n": 1 }, "b": 2 });
        for i in 1..=24 {
            all[format!("c{i}")] = i.into();
        }
        assert_eq!(fixture.output(run).await, all, "{said}");
        daemon.stop().await;
        fixture.audited().await;
    }

    async fn a_step_that_floods_the_socket_holds_up_neither_heartbeats_nor_other_steps(db: Db) {
        let settings = Settings { max_retry: 0, reaper_timeout: "6s", ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[FLOOD]).await;
        hide_the_database(&mut fixture, &db);
        program(&mut fixture, "either", EITHER);
        let mut daemon = fixture.start();
        daemon.ready().await;
        let worker = daemon.child("worker Flood", None).await;
        let flood = fixture.trigger("Flood", "\"flood\"", 1).await[0];
        let talk = fixture.trigger("Flood", "\"talk\"", 1).await[0];
        fixture.run_ended(talk).await;
        assert_eq!(fixture.output(talk).await, 9);
        fixture.run_ended(flood).await;
        assert!(fixture.output(flood).await.as_u64() >= Some(1000));
        assert_eq!(daemon.children("worker Flood"), [worker]);
        let executions = fixture.succeeded_once_each().await;
        assert_eq!(executions.len(), 2, "{executions:#?}");
        daemon.stop().await;
        fixture.audited().await;
    }
}

on_servers! {
    async fn a_write_that_somebody_holds_up_holds_up_no_other_run(db: Db) {
        let settings = Settings { max_retry: 0, ..Settings::default() };
        let mut fixture = DaemonFixture::new(&db, settings, &[NOTES]).await;
        program(&mut fixture, "notes", NOTE);
        let mut foreign = Foreign::on(&db.url).await;
        let mut daemon = fixture.start();
        let held_up = fixture.trigger("Notes", "1", 1).await[0];
        fixture.pids("pids", 1).await;
        foreign.lock_rows("ductwork_runs WHERE status = 'in_progress'").await;
        std::fs::write(fixture.path("locked"), "").unwrap();
        fixture.said("asks", 1).await;
        let free = fixture.trigger("Notes", "2", 1).await[0];
        fixture.run_ended(free).await;
        assert_eq!(fixture.output(free).await, 10);
        let state = query::run_state(&mut fixture.conn, held_up).await.unwrap().unwrap();
        assert_eq!(state.status, RunStatus::InProgress);
        foreign.release().await;
        fixture.run_ended(held_up).await;
        assert_eq!(fixture.output(held_up).await, 10);
        daemon.stop().await;
        fixture.audited().await;
    }
}
