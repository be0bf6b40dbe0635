//! A healthy state breaks no invariant, and each corruption is found by the one it breaks.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::definition::Definition;
use crate::definition::builder::{Path, Pipeline};
use crate::definition::graph::Backoff;
use crate::machine::advance::AdvanceLimits;
use crate::machine::outcome::{Ending, StepLimits};
use crate::model::*;
use crate::store::bench::data;
use crate::store::claim::{Claim, Claimed};
use crate::store::commit::{Committer, Ended, Finished};
use crate::store::definition::{Definitions, LeftOut};
use crate::store::process::{Claimant, NewProcess};
use crate::store::recovery::{self, Death};
use crate::store::trigger::NewRun;
use crate::store::{Location, Purpose, advance, claim, commit, migrate, process, revive, trigger};

use super::*;

const LEASE: Duration = Duration::from_secs(30);

/// A database for one test: a file, or a schema or a database that is dropped at the end.
struct Db {
    location: Location,
    _directory: Option<tempfile::TempDir>,
    sandbox: Option<crate::store::sandbox::Sandbox>,
}

impl Db {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            location: Location::sqlite(directory.path().join("audit.db")),
            _directory: Some(directory),
            sandbox: None,
        }
    }

    async fn postgres() -> Self {
        let Ok(url) = std::env::var("DUCTWORK_TEST_POSTGRES_URL") else {
            panic!(
                "DUCTWORK_TEST_POSTGRES_URL is not set, so nothing was tested on PostgreSQL. \
                 Run scripts/test, which starts a server, or set it to one that tests may use."
            );
        };
        let schema = format!("audit_{}", Uuid::now_v7().simple());
        let sql: &'static str = Box::leak(format!("CREATE SCHEMA {schema}").into_boxed_str());
        let location = Location::parse(&url).unwrap();
        let mut conn = location.connect(Purpose::Query).await.unwrap();
        conn.script("create schema", sql).await.unwrap();
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}options=-csearch_path%3D{schema}");
        Self {
            location: Location::parse(&url).unwrap(),
            _directory: None,
            sandbox: None,
        }
    }

    async fn mysql() -> Self {
        let Ok(url) = std::env::var("DUCTWORK_TEST_MYSQL_URL") else {
            panic!(
                "DUCTWORK_TEST_MYSQL_URL is not set, so nothing was tested on MySQL. Run scripts/test, which \
                 starts a server, or set it to one that tests may use."
            );
        };
        let sandbox = crate::store::sandbox::Sandbox::beside(&url, "audit").unwrap();
        sandbox.make().await.unwrap();
        Self {
            location: sandbox.location().clone(),
            _directory: None,
            sandbox: Some(sandbox),
        }
    }

    async fn connect(&self) -> Conn {
        let mut conn = self.location.connect(Purpose::Query).await.unwrap();
        migrate::migrate(&mut conn).await.unwrap();
        conn
    }

    async fn drop(self, mut conn: Conn) {
        if conn.dialect() == crate::store::Dialect::Postgres {
            let drop =
                "DO $$ BEGIN EXECUTE 'DROP SCHEMA ' || current_schema() || ' CASCADE'; END $$";
            conn.script("drop schema", drop).await.unwrap();
        }
        conn.close().await;
        if let Some(sandbox) = self.sandbox {
            sandbox.remove().await.unwrap();
        }
    }
}

/// Moves work by hand, one operation at a time.
struct Hands {
    conn: Conn,
    worker: ProcessId,
    advancer: ProcessId,
    definitions: Definitions,
}

impl Hands {
    async fn new(mut conn: Conn) -> Self {
        let worker = register(&mut conn, Role::Worker).await;
        let advancer = register(&mut conn, Role::Advancer).await;
        Self {
            conn,
            worker,
            advancer,
            definitions: Definitions::default(),
        }
    }

    async fn trigger(&mut self, definition: &Definition, input: &str) -> RunId {
        let runs = [NewRun { key: None, input }];
        let triggered = trigger::trigger(&mut self.conn, definition, &runs, Duration::ZERO);
        triggered.await.unwrap()[0].run_id
    }

    async fn claim(&mut self, pipeline: &str, n: usize) -> Vec<Claimed> {
        match claim::claim(
            &mut self.conn,
            Claimant::new(self.worker),
            pipeline,
            n,
            LEASE,
        )
        .await
        .unwrap()
        {
            Claim::Taken(taken) => taken,
            Claim::Dead => panic!("the worker is alive"),
            Claim::Paused => panic!("nothing is paused"),
        }
    }

    async fn commit(&mut self, claimed: Claimed, ending: Ending, output: &str) {
        let definition = self
            .definitions
            .load(&mut self.conn, &claimed.definition)
            .await
            .unwrap();
        let limits = limits();
        let ended = match ending {
            Ending::Success => Ended::success(RawValue::from_string(output.into()).unwrap()),
            ending => Ended::without_value(ending, "test", "it was asked to"),
        };
        let pipeline = definition.pipeline.clone();
        let finished = Finished::new(Arc::new(claimed), definition, ended, &limits, 0.5);
        let finished = [finished];
        let committer = Committer {
            claimant: Claimant::new(self.worker),
            pipeline: &pipeline,
            lease: LEASE,
            room: 0,
        };
        let committed = commit::commit(&mut self.conn, &finished, committer);
        assert!(committed.await.unwrap().stale.is_empty());
    }

    async fn succeed(&mut self, pipeline: &str, output: &str) {
        let claimed = self.claim(pipeline, 1).await.remove(0);
        self.commit(claimed, Ending::Success, output).await;
    }

    async fn claim_branches(&mut self) -> Vec<advance::ClaimedBranch> {
        match advance::claim(
            &mut self.conn,
            Claimant::new(self.advancer),
            10,
            LEASE,
            &LeftOut::default(),
        )
        .await
        .unwrap()
        {
            advance::BranchClaim::Taken(taken) => taken,
            advance::BranchClaim::Dead => panic!("the advancer is alive"),
        }
    }

    async fn advance(&mut self) {
        let mut claimed = self.claim_branches().await;
        let (conn, definitions) = (&mut self.conn, &self.definitions);
        while !claimed.is_empty() {
            let advanced = advance::advance(conn, &claimed, LIMITS, definitions).await;
            claimed = advanced.unwrap().spreading;
        }
    }
}

const MAX_PAYLOAD: usize = 1 << 20;

const LIMITS: advance::Limits<'_> = advance::Limits {
    advance: &|_| AdvanceLimits {
        max_retry: 3,
        max_crash: 3,
        max_fan_out: None,
        max_payload: MAX_PAYLOAD,
    },
    step: &|_, _| limits(),
};

const fn limits() -> StepLimits {
    StepLimits {
        max_retry: 1,
        max_crash: 3,
        backoff: Backoff {
            initial: Duration::ZERO,
            factor: 1.0,
            max: Duration::ZERO,
            jitter: 0.0,
        },
    }
}

async fn register(conn: &mut Conn, role: Role) -> ProcessId {
    let id = ProcessId::new();
    let process = NewProcess {
        id,
        supervisor: None,
        role,
        pipeline: (role == Role::Worker).then(|| "Spread".to_owned()),
        host: "host".into(),
        boot_id: "boot".into(),
        pid_namespace: "ns".into(),
        pid: 1,
        pid_started_at: 1,
    };
    process::register(conn, &process).await.unwrap();
    id
}

const ERROR: Ending = Ending::Error {
    retryable: true,
    retry_after: None,
};

/// One run in every possible state, stopped midway.
async fn busy(conn: Conn) -> Hands {
    let mut hands = Hands::new(conn).await;
    let spread = Pipeline::named("Spread")
        .start("A")
        .expand("B")
        .collapse("C")
        .build()
        .unwrap();
    let split = Pipeline::named("Split")
        .start("A")
        .divide([Path::to("B"), Path::from("C").chain("D")]);
    let split = split.combine("E").chain("F").build().unwrap();
    let ask = Pipeline::named("Ask")
        .on_wait("Tell")
        .start("A")
        .dampen("go on?")
        .chain("B")
        .build()
        .unwrap();
    let fail = Pipeline::named("Fail")
        .on_halt("Tell")
        .start("A")
        .chain("B")
        .build()
        .unwrap();
    let again = Pipeline::named("Again")
        .start("A")
        .chain("B")
        .build()
        .unwrap();

    // Completed runs, inline and by an advancer; among them one with an empty expand.
    hands.trigger(&spread, "null").await;
    hands.succeed("Spread", "[1,2]").await;
    hands.advance().await;
    hands.succeed("Spread", "1").await;
    hands.succeed("Spread", "2").await;
    hands.advance().await;
    hands.succeed("Spread", "3").await;
    hands.trigger(&spread, "null").await;
    hands.succeed("Spread", "[]").await;
    hands.advance().await;
    hands.succeed("Spread", "0").await;

    // A barrier with one of three branches arrived, one claimed after a released attempt, one
    // waiting.
    hands.trigger(&spread, "null").await;
    hands.succeed("Spread", "[1,2,3]").await;
    hands.advance().await;
    hands.succeed("Spread", "1").await;
    hands.advance().await;
    let claimed = hands.claim("Spread", 1).await.remove(0);
    let delay = Duration::ZERO;
    hands.commit(claimed, Ending::Released { delay }, "").await;
    hands.claim("Spread", 1).await;

    // Branches that an advancer has claimed, and one that is ready for an advancer.
    hands.trigger(&split, "1").await;
    hands.succeed("Split", "2").await;
    hands.claim_branches().await;
    hands.trigger(&split, "1").await;
    hands.succeed("Split", "2").await;

    // Dampened.
    hands.trigger(&ask, "1").await;
    hands.succeed("Ask", "2").await;
    let ready = hands.claim_branches().await;
    let advanced = ready.iter();
    assert_eq!(advanced.len(), 2, "the split and the question");
    advance::advance(&mut hands.conn, &ready, LIMITS, &hands.definitions)
        .await
        .unwrap();

    hands.succeed("Ask", "\"told\"").await;

    // Completed, with its hook still to run.
    let done = Pipeline::named("Done").on_complete("Tell").start("A");
    hands.trigger(&done.build().unwrap(), "1").await;
    hands.succeed("Done", "2").await;
    hands.advance().await;

    // Halted after an error, a crash and a second error, with its hook still to run.
    hands.trigger(&fail, "1").await;
    let claimed = hands.claim("Fail", 1).await.remove(0);
    hands.commit(claimed, ERROR, "").await;
    let healthy = hands.worker;
    hands.worker = register(&mut hands.conn, Role::Worker).await;
    hands.claim("Fail", 1).await;
    let death = Death::Proven { how: "SIGKILL" };
    let of = |_: &Definition, _: &str| self::limits();
    let recovered = recovery::recover(
        &mut hands.conn,
        hands.worker,
        death,
        &of,
        &hands.definitions,
    );
    assert_eq!(recovered.await.unwrap().again, 1);
    hands.worker = healthy;
    let claimed = hands.claim("Fail", 1).await.remove(0);
    assert_eq!((claimed.retry_count, claimed.crash_count), (1, 1));
    hands.commit(claimed, ERROR, "").await;
    hands.advance().await;

    // Revived after its second step failed: with a copy of the first.
    let halted = hands.trigger(&again, "1").await;
    hands.succeed("Again", "{\"n\": 2}").await;
    for _ in 0..2 {
        let claimed = hands.claim("Again", 1).await.remove(0);
        hands.commit(claimed, ERROR, "").await;
    }
    hands.advance().await;
    let revived = revive::revive(&mut hands.conn, halted).await.unwrap();
    assert!(matches!(revived, revive::Revive::Done(_)), "{revived:?}");

    // Ready again after a failed attempt to advance; nobody holds it.
    hands.trigger(&ask, "1").await;
    hands.succeed("Ask", "2").await;
    let ready = hands.claim_branches().await;
    assert_eq!(ready.len(), 1, "the question");
    let why = advance::GiveBack::Errored {
        message: "it was asked to",
    };
    let an_hour = |_: &str, _| Duration::from_secs(3_600);
    advance::give_back(&mut hands.conn, &ready, why, &an_hour)
        .await
        .unwrap();
    hands
}

async fn databases() -> Vec<Db> {
    vec![Db::sqlite(), Db::postgres().await, Db::mysql().await]
}

fn names(audited: Audited) -> BTreeSet<&'static str> {
    let violations = audited.violations.iter();
    violations.map(|violation| violation.invariant).collect()
}

async fn broken(conn: &mut Conn, grace: Duration) -> BTreeSet<&'static str> {
    names(audited(conn, grace).await.unwrap())
}

#[tokio::test]
async fn a_healthy_busy_state_breaks_no_invariant() {
    for db in databases().await {
        let mut hands = busy(db.connect().await).await;
        let violations = audit(&mut hands.conn, GRACE).await.unwrap();
        assert_eq!(violations, []);
        let mut statuses = BTreeSet::new();
        let filter = crate::store::list::RunFilter {
            pipeline: None,
            statuses: &[],
            since: None,
            before: None,
            limit: 100,
            key: None,
            whole: crate::store::query::WHOLE,
        };
        for run in crate::store::list::runs(&mut hands.conn, &filter)
            .await
            .unwrap()
        {
            statuses.insert(run.status);
        }
        let expected = [
            RunStatus::InProgress,
            RunStatus::Dampened,
            RunStatus::Completed,
            RunStatus::Halted,
        ];
        assert_eq!(statuses, BTreeSet::from(expected));
        db.drop(hands.conn).await;
    }
}

/// Without this test, an audit of a long history could become slow again unnoticed.
#[tokio::test]
async fn a_history_without_incidents_is_cleared_by_a_look_at_each_table() {
    for db in databases().await {
        let mut conn = db.connect().await;
        let chain = Pipeline::named("Chain").start("A").chain("B").chain("C");
        let mut numbers = data::Numbers::now(&mut conn).await.unwrap();
        data::completed(
            &mut conn,
            &chain.build().unwrap(),
            100,
            &mut numbers,
            &|_| {},
        )
        .await
        .unwrap();
        let prefilter = Prefilter::take(&mut conn).await.unwrap();
        for invariant in INVARIANTS {
            for cleared in invariant.checks.iter().filter_map(|check| check.cleared) {
                assert!(cleared(&prefilter).unwrap(), "{}", invariant.name);
            }
        }
        assert_eq!(broken(&mut conn, GRACE).await, BTreeSet::new());
        db.drop(conn).await;
    }
}

/// The constraints that uphold an invariant are removed first; otherwise they would refuse every
/// corruption.
const LOOSEN_SQLITE: &str = "
    PRAGMA ignore_check_constraints = ON;
    DROP INDEX ductwork_executions_open; DROP INDEX ductwork_executions_success;
    DROP INDEX ductwork_executions_attempt; DROP INDEX ductwork_branches_fan_out;
    DROP INDEX ductwork_advancements_open; DROP INDEX ductwork_runs_trigger_key;
    CREATE TABLE loose AS SELECT * FROM ductwork_transitions; DROP TABLE ductwork_transitions;
    ALTER TABLE loose RENAME TO ductwork_transitions";
const LOOSEN_POSTGRES: &str = "
    DROP INDEX ductwork_executions_open; DROP INDEX ductwork_executions_success;
    DROP INDEX ductwork_executions_attempt; DROP INDEX ductwork_branches_fan_out;
    DROP INDEX ductwork_advancements_open; DROP INDEX ductwork_runs_trigger_key;
    DROP INDEX ductwork_transitions_open;
    ALTER TABLE ductwork_runs DROP CONSTRAINT ductwork_runs_times;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_claim;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_ready;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_halt;
    ALTER TABLE ductwork_fan_outs DROP CONSTRAINT ductwork_fan_outs_arithmetic;
    ALTER TABLE ductwork_steps DROP CONSTRAINT ductwork_steps_output;
    ALTER TABLE ductwork_executions DROP CONSTRAINT ductwork_executions_claim;
    ALTER TABLE ductwork_executions DROP CONSTRAINT ductwork_executions_result;
    ALTER TABLE ductwork_transitions DROP CONSTRAINT ductwork_transitions_completed;
    ALTER TABLE ductwork_transitions DROP CONSTRAINT ductwork_transitions_from_step_id_key;
    ALTER TABLE ductwork_advancements DROP CONSTRAINT ductwork_advancements_result";
const LOOSEN_MYSQL: &str = "
    DROP INDEX ductwork_executions_only ON ductwork_executions;
    DROP INDEX ductwork_executions_attempt ON ductwork_executions;
    DROP INDEX ductwork_branches_fan_out ON ductwork_branches;
    DROP INDEX ductwork_advancements_open ON ductwork_advancements;
    DROP INDEX ductwork_runs_trigger_key ON ductwork_runs;
    DROP INDEX ductwork_transitions_open ON ductwork_transitions;
    DROP INDEX ductwork_transitions_from ON ductwork_transitions;
    ALTER TABLE ductwork_runs DROP CONSTRAINT ductwork_runs_times;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_claim;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_ready_check;
    ALTER TABLE ductwork_branches DROP CONSTRAINT ductwork_branches_halt;
    ALTER TABLE ductwork_fan_outs DROP CONSTRAINT ductwork_fan_outs_arithmetic;
    ALTER TABLE ductwork_steps DROP CONSTRAINT ductwork_steps_output;
    ALTER TABLE ductwork_executions DROP CONSTRAINT ductwork_executions_claim;
    ALTER TABLE ductwork_executions DROP CONSTRAINT ductwork_executions_result;
    ALTER TABLE ductwork_transitions DROP CONSTRAINT ductwork_transitions_completed;
    ALTER TABLE ductwork_advancements DROP CONSTRAINT ductwork_advancements_result";

/// At least one way to break each invariant.
const CORRUPTIONS: &[(&str, &str)] = &[
    ("I1", "UPDATE ductwork_executions SET completed_at = NULL, result = NULL WHERE result = 'released'"),
    ("I2", "UPDATE ductwork_executions SET lease_until = NULL WHERE completed_at IS NULL AND process_id IS NOT NULL"),
    ("I3", "UPDATE ductwork_executions SET completed_at = 5 WHERE completed_at IS NULL AND process_id IS NOT NULL"),
    ("I3", "UPDATE ductwork_advancements SET result = NULL WHERE result = 'error'"),
    ("I4", "UPDATE ductwork_executions SET result = 'success' WHERE result IN ('error', 'process_crashed')"),
    ("I4", "UPDATE ductwork_executions SET result = 'error' WHERE result = 'success'"),
    ("I4", "UPDATE ductwork_steps SET output = NULL WHERE status = 'completed'"),
    ("I5", "UPDATE ductwork_executions SET result = 'success' WHERE result = 'released'"),
    ("I6", "UPDATE ductwork_executions SET attempt = 7 WHERE result = 'process_crashed'"),
    ("I6", "UPDATE ductwork_executions SET attempt = 2 WHERE attempt = 3"),
    ("I6", "UPDATE ductwork_executions SET attempt = 2 WHERE result = 'success'"),
    ("I7", "UPDATE ductwork_executions SET retry_count = 1 WHERE attempt = 1"),
    ("I7", "UPDATE ductwork_executions SET retry_count = 2 WHERE attempt = 3"),
    ("I7", "UPDATE ductwork_executions SET result = 'error' WHERE result = 'released'"),
    ("I7", "UPDATE ductwork_transitions SET crash_count = crash_count + 1 WHERE via = 'end'"),
    ("I7", "UPDATE ductwork_advancements SET result = 'process_crashed' WHERE result = 'error'"),
    ("I9", "UPDATE ductwork_branches SET status = 'in_progress' WHERE status = 'advancing'"),
    ("I9", "UPDATE ductwork_branches SET claim_token = id WHERE status = 'advancing'"),
    ("I9", "UPDATE ductwork_advancements SET completed_at = 5, result = 'released' WHERE completed_at IS NULL"),
    ("I9", "UPDATE ductwork_advancements SET completed_at = NULL, result = NULL WHERE result = 'error'"),
    ("I10", "UPDATE ductwork_transitions SET completed_at = NULL, via = NULL, produced = NULL,
                    branch_id = (SELECT branch_id FROM ductwork_fan_outs WHERE fired_at IS NULL LIMIT 1)"),
    ("I10", "UPDATE ductwork_transitions SET from_step_id = (SELECT from_step_id FROM ductwork_transitions LIMIT 1)
              WHERE via = 'end'"),
    ("I11", "UPDATE ductwork_transitions SET produced = 9 WHERE via = 'expand'"),
    ("I11", "UPDATE ductwork_transitions SET via = NULL WHERE via = 'expand'"),
    ("I12", "UPDATE ductwork_steps SET transition_id = NULL WHERE via = 'expand'"),
    ("I12", "UPDATE ductwork_steps SET run_id = id WHERE via = 'collapse'"),
    ("I13", "UPDATE ductwork_fan_outs SET arrived = 2 WHERE fired_at IS NULL"),
    ("I13", "UPDATE ductwork_fan_outs SET fired_at = 5 WHERE fired_at IS NULL"),
    ("I14", "UPDATE ductwork_steps SET status = 'failed' WHERE status = 'in_progress'"),
    ("I14", "DELETE FROM ductwork_executions WHERE completed_at IS NULL"),
    ("I14", "UPDATE ductwork_steps SET status = 'completed', output = '1' WHERE status = 'in_progress'"),
    ("I15", "UPDATE ductwork_runs SET status = 'completed', completed_at = 5, output = '1' WHERE status = 'in_progress'"),
    ("I15", "UPDATE ductwork_branches SET status = 'halted' WHERE status = 'completed'"),
    ("I15", "UPDATE ductwork_branches SET status = 'cancelled' WHERE status = 'halted'"),
    ("I15", "DELETE FROM ductwork_branches"),
    ("I15", "UPDATE ductwork_branches SET status = 'cancelled' WHERE status = 'dampened'"),
    ("I16", "UPDATE ductwork_runs SET halted_at = 5 WHERE status = 'in_progress'"),
    ("I17", "UPDATE ductwork_runs SET status = 'halted', halted_at = 5 WHERE status = 'in_progress'"),
    ("I17", "UPDATE ductwork_runs SET status = 'cancelled', cancelled_at = 5 WHERE status = 'halted'"),
    ("I18", "DELETE FROM ductwork_executions WHERE completed_at IS NULL"),
    ("I18", "UPDATE ductwork_branches SET ready_at = NULL"),
    ("I18", "UPDATE ductwork_branches SET ready_at = 5 WHERE status = 'in_progress'"),
    ("I18", "UPDATE ductwork_steps SET status = 'cancelled' WHERE status = 'waiting'"),
    ("I19", "UPDATE ductwork_branches SET step_id = id WHERE status = 'in_progress'"),
    ("I19", "UPDATE ductwork_branches SET step_id = (SELECT s.id FROM ductwork_steps s
              WHERE s.branch_id = ductwork_branches.id AND s.ordinal = 0) WHERE status = 'dampened'"),
    ("I20", "UPDATE ductwork_branches SET status = 'waiting' WHERE status = 'dampened'"),
    ("I20", "UPDATE ductwork_branches SET status = 'completed' WHERE status = 'waiting'"),
    ("I20", "UPDATE ductwork_fan_outs SET fired_at = NULL,
                    branch_id = (SELECT branch_id FROM ductwork_fan_outs WHERE fired_at IS NULL LIMIT 1)"),
    ("I21", "UPDATE ductwork_runs SET revived_from = (SELECT id FROM ductwork_runs WHERE status = 'completed' LIMIT 1)
              WHERE status = 'halted' AND pipeline = 'Fail'"),
    ("I21", "UPDATE ductwork_runs SET revived_from = (SELECT id FROM ductwork_branches LIMIT 1)
              WHERE status = 'halted' AND pipeline = 'Fail'"),
    ("I22", "DELETE FROM ductwork_processes WHERE role = 'worker'"),
    ("I22", "DELETE FROM ductwork_processes WHERE role = 'advancer'"),
    ("I23", "DELETE FROM ductwork_steps WHERE via = 'on_halt'"),
    ("I23", "UPDATE ductwork_runs SET status = 'completed' WHERE status = 'halted'"),
    ("I23", "DELETE FROM ductwork_steps WHERE via = 'on_complete'"),
    ("I23", "DELETE FROM ductwork_steps WHERE via = 'on_wait'"),
    ("I23", "UPDATE ductwork_steps SET via = 'on_halt' WHERE run_id = (SELECT id FROM ductwork_runs WHERE status = 'halted' AND pipeline = 'Fail')"),
    ("I24", "UPDATE ductwork_steps SET source_step_id = id WHERE via = 'collapse'"),
    ("I24", "UPDATE ductwork_runs SET revived_from = (SELECT id FROM ductwork_runs WHERE status = 'halted' AND pipeline = 'Fail')
              WHERE id = (SELECT run_id FROM ductwork_steps WHERE via = 'collapse' LIMIT 1);
             UPDATE ductwork_steps SET source_step_id = run_id WHERE via = 'collapse'"),
    ("I24", "UPDATE ductwork_runs SET status = 'cancelled' WHERE status = 'halted'"),
    ("I24", "UPDATE ductwork_steps SET status = 'failed', output = NULL WHERE source_step_id IS NOT NULL"),
    ("I24", "UPDATE ductwork_steps SET status = 'cancelled', output = NULL WHERE source_step_id IS NOT NULL"),
    ("I24", "UPDATE ductwork_steps SET output = '{\"n\": 3}' WHERE source_step_id IS NOT NULL"),
    ("I25", "UPDATE ductwork_executions SET lease_until = 5 WHERE completed_at IS NULL AND process_id IS NOT NULL"),
    ("I25", "UPDATE ductwork_advancements SET lease_until = 5 WHERE completed_at IS NULL"),
    ("I25", "UPDATE ductwork_runs SET cancelling_at = 5 WHERE status = 'in_progress'"),
    ("I25", "UPDATE ductwork_runs SET pruning_at = 5 WHERE status = 'completed'"),
    ("I26", "UPDATE ductwork_processes SET started_at = 5;
             UPDATE ductwork_availabilities SET due_at = 5;
             UPDATE ductwork_executions SET process_id = NULL WHERE completed_at IS NULL"),
    ("I26", "UPDATE ductwork_processes SET started_at = 5; UPDATE ductwork_branches SET ready_at = 5 WHERE ready_at IS NOT NULL;
             UPDATE ductwork_advancements SET completed_at = 5 WHERE completed_at IS NULL"),
    ("I27", "UPDATE ductwork_processes SET last_heartbeat_at = last_heartbeat_at + 60000000"),
    ("I28", "UPDATE ductwork_runs SET trigger_key = 'same' WHERE pipeline = 'Spread'"),
    ("I30", "UPDATE ductwork_branches SET ordinal = 0 WHERE fan_out_id IS NOT NULL"),
    ("I30", "UPDATE ductwork_fan_outs SET parent_ordinal = 3"),
    ("I31", "DELETE FROM ductwork_availabilities"),
    ("I31", "UPDATE ductwork_availabilities SET pipeline = 'Other'"),
    ("I31", "INSERT INTO ductwork_availabilities SELECT id, pipeline, 5 FROM ductwork_executions WHERE result = 'success'"),
    ("I32", "UPDATE ductwork_runs SET dampened = 2 WHERE status = 'dampened'"),
    ("I32", "UPDATE ductwork_runs SET status = 'in_progress' WHERE status = 'dampened'"),
    ("I33", "DELETE FROM ductwork_runs"),
    ("I33", "DELETE FROM ductwork_branches WHERE fan_out_id IS NULL AND status = 'completed'"),
    ("I33", "DELETE FROM ductwork_definitions"),
    ("I33", "INSERT INTO ductwork_tuples (run_id, \"key\", value, first_set_at, last_set_at)
             SELECT step_id, 'k', '1', 5, 5 FROM ductwork_branches"),
    ("I34", "DELETE FROM ductwork_transitions"),
    ("I34", "DELETE FROM ductwork_transitions WHERE id IN (SELECT transition_id FROM ductwork_advancements WHERE result = 'error')"),
    ("I34", "DELETE FROM ductwork_transitions WHERE via = 'end'"),
    ("I34", "DELETE FROM ductwork_advancements WHERE result = 'success'"),
    ("I34", "UPDATE ductwork_advancements SET branch_id = id WHERE result = 'success'"),
    ("I34", "INSERT INTO ductwork_executions (id, step_id, pipeline, attempt, process_id, claimed_at, lease_until, completed_at, result)
             SELECT step_id, id, pipeline, attempt, process_id, claimed_at, lease_until, completed_at, result
               FROM ductwork_executions WHERE result = 'success' AND attempt = 1"),
    ("I35", "UPDATE ductwork_processes SET paused = 1 WHERE role = 'worker'"),
    ("I35", "INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
             SELECT pipeline, 'why', 'who', 1 FROM ductwork_processes WHERE role = 'worker'"),
    ("I36", "INSERT INTO ductwork_bulks SELECT id, 'revive', '{}', NULL, id, id, 0, -1, 1, '[]', 5, 'who', 'api', 5, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I36", "INSERT INTO ductwork_bulks SELECT id, 'revive', '{}', NULL, id, id, 0, 0, 0, '[]', 5, 'who', 'api', NULL, 'ben'
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I36", "INSERT INTO ductwork_bulks SELECT id, 'revive', '{}', NULL, id, id, 0, 0, 0, '[]', 5, 'who', 'api', 5, NULL
               FROM ductwork_runs WHERE status = 'completed';
             INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, bulk_id)
             SELECT id, 5, 'who', 'api', 'revive', pipeline, id, id FROM ductwork_runs WHERE status = 'completed'"),
    ("I36", "INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, bulk_id)
             SELECT s.id, 5, 'who', 'api', 'revive', 'P', s.run_id, s.run_id FROM ductwork_steps s"),
    ("I37", "INSERT INTO ductwork_deliveries SELECT id, 'e', id, 'completed', 'P', 'm', 'sent', 0, 5, NULL, NULL, NULL, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I37", "INSERT INTO ductwork_deliveries SELECT id, 'e', id, 'completed', 'P', 'm', 'failed', -1, 5, NULL, NULL, NULL, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I37", "INSERT INTO ductwork_deliveries SELECT id, 'e', id, 'completed', 'P', 'm', 'failed', 1, 5, 5, NULL, NULL, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I37", "INSERT INTO ductwork_deliveries SELECT id, 'e', id, 'completed', 'P', 'm', 'waiting', 1, 5, NULL, NULL, NULL, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
    ("I37", "INSERT INTO ductwork_deliveries SELECT id, 'e', (SELECT b.id FROM ductwork_branches b WHERE b.run_id = ductwork_runs.id ORDER BY b.id LIMIT 1), 'completed', 'P', 'm', 'failed', 1, 5, NULL, NULL, NULL, NULL
               FROM ductwork_runs WHERE status = 'completed'"),
];

/// Each corruption is made, seen and undone in a transaction of its own, in one busy database.
async fn every_corruption_is_found(db: Db) {
    let checks = INVARIANTS.iter().flat_map(|invariant| invariant.checks);
    let mut unseen: BTreeSet<&str> = checks.map(|check| check.statement.name).collect();
    let args = [
        ("grace", micros(GRACE).into()),
        ("slack", micros(CLOCK_SLACK).into()),
        ("rows", ROWS_MAX.into()),
    ];
    let mut conn = busy(db.connect().await).await.conn;
    let loosen = match conn.dialect() {
        crate::store::Dialect::Postgres => LOOSEN_POSTGRES,
        crate::store::Dialect::Sqlite => LOOSEN_SQLITE,
        crate::store::Dialect::Mysql => LOOSEN_MYSQL,
    };
    conn.script("loosen", loosen).await.unwrap();
    for (name, corruption) in CORRUPTIONS {
        assert_eq!(broken(&mut conn, GRACE).await, BTreeSet::new());
        conn.script("begin", "BEGIN").await.unwrap();
        let done = conn.script("corrupt", corruption).await;
        done.unwrap_or_else(|error| panic!("{name}: {error:?}: {corruption}"));
        let prefilter = Prefilter::take(&mut conn).await.unwrap();
        let found = names(check(&mut conn, GRACE, Some(&prefilter)).await.unwrap());
        let exactly = names(check(&mut conn, GRACE, None).await.unwrap());
        let of = |invariant: &&Invariant| invariant.name == *name;
        for check in INVARIANTS.iter().find(of).unwrap().checks {
            if !conn.fetch(check.statement, &args).await.unwrap().is_empty() {
                unseen.remove(check.statement.name);
            }
        }
        conn.script("undo", "ROLLBACK").await.unwrap();
        assert!(
            found.contains(name),
            "{name} does not see it ({found:?}): {corruption}"
        );
        assert_eq!(
            found, exactly,
            "the prefilter clears too much: {corruption}"
        );
    }
    db.drop(conn).await;
    assert_eq!(
        unseen,
        BTreeSet::new(),
        "each has a corruption that shows it firing"
    );
}

#[tokio::test]
async fn every_invariant_fires_on_its_corruption() {
    every_corruption_is_found(Db::sqlite()).await;
}

#[tokio::test]
async fn every_invariant_fires_on_its_corruption_on_postgres() {
    every_corruption_is_found(Db::postgres().await).await;
}

#[tokio::test]
async fn every_invariant_fires_on_its_corruption_on_mysql() {
    every_corruption_is_found(Db::mysql().await).await;
}

#[tokio::test]
async fn an_audit_says_of_which_invariants_it_tells_some_breaches_only() {
    let db = Db::sqlite();
    let mut conn = db.connect().await;
    let insert = |n: usize| {
        let sql = format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
             INSERT INTO ductwork_bulks
             SELECT randomblob(16), 'revive', '{{}}', NULL, zeroblob(16), zeroblob(16), -1, 0, 0, '[]', 5, 'who',
                    'api', 5, NULL
               FROM n"
        );
        Box::leak(sql.into_boxed_str()) as &'static str
    };
    conn.script("all that are told", insert(ROWS_MAX))
        .await
        .unwrap();
    let all = audited(&mut conn, GRACE).await.unwrap();
    assert_eq!((all.violations.len(), all.more), (ROWS_MAX, vec![]));
    conn.script("one more", insert(1)).await.unwrap();
    let some = audited(&mut conn, GRACE).await.unwrap();
    assert_eq!((some.violations.len(), some.more), (ROWS_MAX, vec!["I36"]));
}

#[tokio::test]
async fn a_row_whose_key_is_no_id_is_told_with_all_others() {
    let db = Db::sqlite();
    let mut conn = db.connect().await;
    for key in ["x'0102'", "randomblob(16)"] {
        let sql = format!(
            "INSERT INTO ductwork_bulks
             VALUES ({key}, 'revive', '{{}}', NULL, zeroblob(16), zeroblob(16), -1, 0, 0, '[]', 5, 'who', 'api', 5, NULL)"
        );
        conn.script("insert", sql.leak()).await.unwrap();
    }
    let violations = audit(&mut conn, GRACE).await.unwrap();
    assert_eq!(violations.len(), 2, "{violations:?}");
    let mut told = violations.iter();
    assert!(
        told.any(|it| it.id.is_nil() && it.detail.contains("its key is no id: ")),
        "{violations:?}"
    );
}

/// SQLite stores such a text as it is.
#[tokio::test]
async fn a_text_that_is_none_is_told_with_all_other_breaches() {
    let db = Db::sqlite();
    let mut conn = busy(db.connect().await).await.conn;
    let other = "UPDATE ductwork_executions SET lease_until = lease_until - 400000000
                  WHERE completed_at IS NULL AND process_id IS NOT NULL";
    conn.script("expire", other).await.unwrap();
    let before = broken(&mut conn, GRACE).await;
    let damage =
        "PRAGMA ignore_check_constraints = on; UPDATE ductwork_steps SET via = CAST(x'ff' AS TEXT)
                   WHERE id = (SELECT min(id) FROM ductwork_steps)";
    conn.script("damage", damage).await.unwrap();
    let violations = audit(&mut conn, GRACE).await.unwrap();
    let mut told = violations.iter();
    let unread = told.find(|it| it.detail.contains("it cannot be read: "));
    let unread = unread.unwrap_or_else(|| panic!("{violations:?}"));
    assert!(!unread.id.is_nil());
    let others = violations.iter().map(|it| it.invariant).collect();
    assert!(before.is_subset(&others), "{before:?} {others:?}");
}

#[tokio::test]
async fn a_breach_within_its_grace_is_none() {
    let db = Db::sqlite();
    let mut conn = busy(db.connect().await).await.conn;
    let expire = "UPDATE ductwork_executions SET lease_until = lease_until - 40000000
                   WHERE completed_at IS NULL AND process_id IS NOT NULL";
    conn.script("expire", expire).await.unwrap();
    assert_eq!(broken(&mut conn, GRACE).await, BTreeSet::new());
    assert_eq!(
        broken(&mut conn, Duration::ZERO).await,
        BTreeSet::from(["I25"])
    );
}
