//! Workers and advancers as a daemon would run them, in one process: each has its row, its lifeline
//! and its own connections, and whichever comes first executes the work of a run.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ductwork::config::{Config, Handed, LoadOptions};
use ductwork::definition::Definition;
use ductwork::engine::advancer::Advancer;
use ductwork::engine::lifeline::Lifeline;
use ductwork::engine::runner::Runner;
use ductwork::engine::shared::{Mode, Shared};
use ductwork::engine::worker::Worker;
use ductwork::engine::{Policy, Waker};
use ductwork::model::{ProcessId, Role, RunId, RunStatus};
use ductwork::step::StopCause;
use ductwork::store::definition::Definitions;
use ductwork::store::process::{self, NewProcess};
use ductwork::store::prune;
use ductwork::store::recovery::{self, Death};
use ductwork::store::resume::{self, Resume};
use ductwork::store::statement::Statement;
use ductwork::store::trigger::{self, NewRun};
use ductwork::store::{self, audit};
use ductwork::store::{Conn, Row, query};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::evaluate::{Expected, evaluate};
use super::flow::{AS_IT_IS, Flow, PIPELINE};
use super::json::Json;
use super::steps;
use crate::support::Db;
use crate::wires;

/// Small enough that flows wait for slots, and that batches of several sizes are committed.
const CONFIG: &str = "
default:
  job_worker:
    count: 16
    max_retry: 3
    max_crash: 1000000
    backoff: { initial: 1ms, factor: 1, max: 1ms, jitter: 0 }
    polling_timeout: 200ms
  pipeline_advancer: { count: 2, max_crash: 1000000, polling_timeout: 200ms }
";

/// Longer than any flow here takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// The largest number of steps for one of many random flows.
pub const STEPS_MAX: usize = 400;

/// A flow to be run with each input, and the blows to the processes meanwhile.
#[derive(Clone, Debug)]
pub struct Case {
    pub flow: Flow,
    pub inputs: Vec<Json>,
    pub blows: Vec<Blow>,
}

/// A blow to one of the processes, by its number.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    /// It is declared dead, but lives: it loses its claims, and comes back as another process.
    Misjudge(usize),
    /// It dies wherever it is at that moment, possibly in a transaction, and another takes its
    /// place.
    Kill(usize),
}

/// Runs under way, and their expected results.
struct Running {
    definition: Definition,
    runs: Vec<(RunId, Expected)>,
}

/// Two workers and two advancers on one database.
pub struct EngineFixture {
    pub conn: Conn,
    /// False if a failed run could not be brought to its end.
    pub settled: bool,
    killed: usize,
    /// The number of claims that blows took from processes, and that were given back.
    pub recovered: usize,
    db: Db,
    flaky: bool,
    policy: Policy,
    definitions: Arc<Definitions>,
    staff: Arc<Staff>,
    members: Vec<Member>,
}

/// The tasks of one process.
struct Member {
    role: Role,
    shared: Arc<Shared>,
    work: JoinHandle<()>,
    lifeline: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

/// Every process that can be woken.
#[derive(Default)]
struct Staff {
    workers: Mutex<Vec<Arc<Shared>>>,
    advancers: Mutex<Vec<Arc<Shared>>>,
}

impl Staff {
    fn forget(&self, one: &Arc<Shared>) {
        for list in [&self.workers, &self.advancers] {
            let mut list = list.lock().expect("nobody panics with it");
            list.retain(|other| !Arc::ptr_eq(other, one));
        }
    }
}

impl Waker for Staff {
    fn job_available(&self, _: &str) {
        let workers = self.workers.lock().expect("nobody panics with it");
        workers.iter().for_each(|worker| worker.wake.notify_one());
    }

    fn branch_available(&self) {
        let advancers = self.advancers.lock().expect("nobody panics with it");
        advancers
            .iter()
            .for_each(|advancer| advancer.wake.notify_one());
    }

    fn claims_revoked(&self) {}

    fn registered(&self) {}
}

impl EngineFixture {
    /// Opens it on a database that no other test uses. If `flaky`, steps fail at first.
    pub async fn open(db: &Db, flaky: bool) -> Self {
        let mut fixture = Self {
            conn: db.conn().await,
            settled: true,
            killed: 0,
            recovered: 0,
            db: db.clone(),
            flaky,
            policy: Policy::new(Arc::new(config())),
            definitions: Arc::default(),
            staff: Arc::default(),
            members: Vec::new(),
        };
        wires::install(&mut fixture.conn).await;
        for _ in 0..2 {
            fixture.hire(Role::Worker).await;
            fixture.hire(Role::Advancer).await;
        }
        fixture
    }

    async fn hire(&mut self, role: Role) {
        let id = ProcessId::new();
        let shared = Shared::new(id);
        let (requests, answers) = mpsc::unbounded_channel();
        let staff = Arc::clone(&self.staff);
        let waker: Arc<dyn Waker> = staff;
        let mut lifeline = Lifeline {
            location: self.db.location.clone(),
            row: NewProcess {
                id,
                supervisor: None,
                role,
                pipeline: (role == Role::Worker).then(|| PIPELINE.to_owned()),
                host: "here".to_owned(),
                boot_id: "boot".to_owned(),
                pid_namespace: "namespace".to_owned(),
                pid: std::process::id(),
                pid_started_at: 1,
            },
            shared: Arc::clone(&shared),
            policy: self.policy.clone(),
            requests: answers,
            sweeper: None,
            connected: watch::Sender::new(false),
            is_first: true,
            origin: "nobody".to_owned(),
            waker: Arc::clone(&waker),
        };
        let conn = lifeline.begin().await;
        let (end, ended) = oneshot::channel();
        let lifeline = tokio::task::spawn_local(lifeline.run(conn, ended));
        // As in a daemon, no process shares its knowledge.
        let definitions = Arc::new(Definitions::default());
        let (location, policy) = (self.db.location.clone(), self.policy.clone());
        let work = if role == Role::Worker {
            let registry = Arc::new(steps::registry(self.flaky));
            let worker = Worker {
                location,
                pipeline: PIPELINE.to_owned(),
                runner: Arc::new(Runner::new(&policy.config(), PIPELINE, registry, requests)),
                policy,
                shared: Arc::clone(&shared),
                definitions,
                waker,
            };
            self.staff
                .workers
                .lock()
                .expect("a list")
                .push(Arc::clone(&shared));
            tokio::task::spawn_local(worker.run())
        } else {
            let advancer = Advancer {
                location,
                count: 1,
                polling_timeout: policy.config().pipeline_advancer.polling_timeout,
                policy,
                shared: Arc::clone(&shared),
                definitions,
                waker,
            };
            self.staff
                .advancers
                .lock()
                .expect("a list")
                .push(Arc::clone(&shared));
            tokio::task::spawn_local(advancer.run())
        };
        self.members.push(Member {
            role,
            shared,
            work,
            lifeline,
            end,
        });
    }

    /// Lets every process finish and deregister.
    pub async fn close(&mut self) {
        let until = Instant::now() + Duration::from_secs(20);
        let cause = StopCause::Shutdown;
        for member in &self.members {
            member.shared.set_mode(Mode::Drain { until, cause });
        }
        for member in self.members.drain(..) {
            member.work.await.expect("a loop ends in order");
            let _ = member.end.send(());
            member.lifeline.await.expect("a lifeline ends in order");
        }
        // A process that was killed while it was coming back as another one has left a row, for the
        // reaper.
        let left = process::processes(&mut self.conn).await;
        let left = left.expect("the processes");
        assert!(left.len() <= self.killed, "they did not sign off: {left:?}");
    }

    async fn strike(&mut self, blow: Blow) {
        let number = match blow {
            Blow::Misjudge(number) | Blow::Kill(number) => number % self.members.len(),
        };
        let process = self.members[number].shared.process();
        if let Blow::Kill(_) = blow {
            let role = self.members[number].role;
            self.kill(number).await;
            self.recover(process).await;
            self.hire(role).await;
        } else {
            self.recover(process).await;
        }
        self.staff.job_available(PIPELINE);
        self.staff.branch_available();
    }

    /// Aborts the tasks of a process where they wait. Statements that they had already sent to the
    /// database may still be executed, even after the process is found dead.
    async fn kill(&mut self, number: usize) {
        let member = self.members.remove(number);
        self.staff.forget(&member.shared);
        self.killed += 1;
        for task in [member.work, member.lifeline] {
            task.abort();
            let ended = task.await;
            assert!(
                ended.is_err_and(|error| error.is_cancelled()),
                "it had ended"
            );
        }
    }

    async fn recover(&mut self, process: ProcessId) {
        let policy = self.policy.clone();
        let limits = move |definition: &Definition, step: &str| policy.step(definition, step);
        let death = Death::Proven { how: "so we say" };
        // As a sweeper, until nothing is left: a statement that is under way has locked what it writes.
        loop {
            let recovered =
                recovery::recover(&mut self.conn, process, death, &limits, &self.definitions);
            let recovered = recovered.await.expect("a recovery");
            self.recovered += recovered.again + recovered.branches;
            if recovered.left.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Executes all of these at once, and compares everything with the reference; an error names
    /// the wrong case, and the difference. Flows with more than `most` steps are left out.
    pub async fn check(&mut self, cases: &[Case], most: usize) -> Result<(), (usize, String)> {
        let checked = self.carry_out(cases, most).await;
        if checked.is_err() {
            self.settle().await;
        }
        checked
    }

    async fn carry_out(&mut self, cases: &[Case], most: usize) -> Result<(), (usize, String)> {
        let mut running = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            let begun = self.begin(case, most).await;
            running.push(begun.map_err(|why| (index, why))?);
        }
        self.staff.job_available(PIPELINE);
        for (index, (case, running)) in cases.iter().zip(running).enumerate() {
            if let Some(running) = running {
                let finished = self.finish(case, running).await;
                finished.map_err(|why| (index, why))?;
            }
        }
        // A violation in all of them together belongs to no single case.
        self.audit().await.map_err(|why| (0, why))
    }

    /// Triggers a run for each input.
    async fn begin(&mut self, case: &Case, most: usize) -> Result<Option<Running>, String> {
        let expected = case
            .inputs
            .iter()
            .map(|input| evaluate(&case.flow, input, most));
        let Some(expected) = expected.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let definition = case.flow.pipeline().build();
        let definition = definition.map_err(|problems| format!("it is refused: {problems:?}"))?;
        let texts: Vec<String> = case.inputs.iter().map(Json::to_string).collect();
        let runs: Vec<NewRun<'_>> = texts
            .iter()
            .map(|input| NewRun { key: None, input })
            .collect();
        let runs = trigger::trigger(&mut self.conn, &definition, &runs, Duration::ZERO).await;
        let runs = runs.map_err(said)?;
        Ok(Some(Running {
            definition,
            runs: runs
                .into_iter()
                .map(|run| run.run_id)
                .zip(expected)
                .collect(),
        }))
    }

    async fn finish(&mut self, case: &Case, running: Running) -> Result<(), String> {
        let mut blows = case.blows.iter().copied();
        for (run, _) in &running.runs {
            self.wait(*run, &running.definition, &mut blows).await?;
        }
        for ((run, expected), input) in running.runs.iter().zip(&case.inputs) {
            let actual = self.outcome(*run).await?;
            compare(&actual, expected).map_err(|why| format!("with {input}: {why}"))?;
            self.order(*run).await?;
        }
        Ok(())
    }

    /// After a failure: waits for the other runs, so that they do not disturb the next attempt.
    async fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let work = store::any_work(&mut self.conn, None).await;
            self.settled = matches!(work, Ok(None));
            if self.settled || Instant::now() > deadline {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn audit(&mut self) -> Result<(), String> {
        let broken = audit::audit(&mut self.conn, Duration::ZERO).await;
        let broken = broken.map_err(said)?;
        if !broken.is_empty() {
            return Err(format!("{broken:#?}"));
        }
        let tripped = wires::tripped(&mut self.conn).await;
        if !tripped.is_empty() {
            return Err(format!("{tripped:#?}"));
        }
        // So that the next audit is quick.
        let pruned = prune::prune(&mut self.conn, Duration::ZERO, 10_000).await;
        pruned.map_err(said)?;
        Ok(())
    }

    /// Waits for the run's end; answers in place of a person.
    async fn wait(
        &mut self,
        run: RunId,
        definition: &Definition,
        blows: &mut impl Iterator<Item = Blow>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = query::run_state(&mut self.conn, run).await.map_err(said)?;
            match state.ok_or("the run is gone")?.status {
                RunStatus::Completed | RunStatus::Halted => return Ok(()),
                RunStatus::Cancelled => return Err("the run was cancelled".to_owned()),
                RunStatus::Dampened => self.resume(run, definition).await?,
                RunStatus::InProgress => {}
            }
            if Instant::now() > deadline {
                let stuck = self.outcome(run).await?;
                return Err(format!("it did not end: {stuck:#?}"));
            }
            if let Some(blow) = blows.next() {
                self.strike(blow).await;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    async fn resume(&mut self, run: RunId, definition: &Definition) -> Result<(), String> {
        let waiting = resume::waiting(&mut self.conn, run).await.map_err(said)?;
        for waits in waiting {
            let node = definition
                .find(&waits.node)
                .ok_or("an unknown node waits")?;
            let prompt = definition.node(node).prompt.as_deref();
            let value = prompt.filter(|prompt| *prompt != AS_IT_IS);
            let step = Some(waits.step_id);
            let resumed = resume::resume(&mut self.conn, run, step, value, None).await;
            let resumed = resumed.map_err(said)?;
            if resumed != Resume::Done(1) {
                return Err(format!("{resumed:?}"));
            }
        }
        self.staff.branch_available();
        Ok(())
    }

    /// A run's outcome in the database.
    async fn outcome(&mut self, run: RunId) -> Result<Outcome, String> {
        static STEPS: Statement = Statement::new(
            "reference steps",
            "SELECT step, input, output FROM ductwork_steps WHERE run_id = :run",
        );
        let state = query::run_state(&mut self.conn, run).await.map_err(said)?;
        let state = state.ok_or("the run is gone")?;
        let mut ran = Vec::new();
        for row in self.rows(&STEPS, run).await? {
            let output: Option<String> = row.get("output").map_err(said)?;
            let input: String = row.get("input").map_err(said)?;
            ran.push((
                row.get("step").map_err(said)?,
                Json::parse(&input),
                output.map(|output| Json::parse(&output)),
            ));
        }
        ran.sort();
        Ok(Outcome {
            status: state.status,
            output: state.output.map(|output| output.get().to_owned()),
            ran,
        })
    }

    /// Checks that no part of an ended run is left half done.
    async fn order(&mut self, run: RunId) -> Result<(), String> {
        static LEFT: [Statement; 5] = [
            Statement::new(
                "steps that succeeded twice",
                "SELECT e.step_id FROM ductwork_executions e JOIN ductwork_steps s ON s.id = e.step_id
                  WHERE s.run_id = :run AND e.result = 'success'
                  GROUP BY e.step_id HAVING count(*) > 1",
            ),
            Statement::new(
                "branches that are not over",
                "SELECT id FROM ductwork_branches
                  WHERE run_id = :run AND status NOT IN ('completed', 'halted')",
            ),
            Statement::new(
                "barriers that did not fire",
                "SELECT id FROM ductwork_fan_outs
                  WHERE run_id = :run AND (fired_at IS NULL OR arrived <> width)",
            ),
            Statement::new(
                "places in the queue",
                "SELECT a.execution_id FROM ductwork_availabilities a
                   JOIN ductwork_executions e ON e.id = a.execution_id
                   JOIN ductwork_steps s ON s.id = e.step_id
                  WHERE s.run_id = :run",
            ),
            Statement::new(
                "open executions",
                "SELECT e.id FROM ductwork_executions e JOIN ductwork_steps s ON s.id = e.step_id
                  WHERE s.run_id = :run AND e.completed_at IS NULL",
            ),
        ];
        for left in &LEFT {
            let rows = self.rows(left, run).await?;
            if !rows.is_empty() {
                return Err(format!("{}: {}", left.name, rows.len()));
            }
        }
        Ok(())
    }

    async fn rows(
        &mut self,
        statement: &'static Statement,
        run: RunId,
    ) -> Result<Vec<Row>, String> {
        let rows = self.conn.fetch(statement, &[("run", run.0.into())]).await;
        rows.map_err(said)
    }
}

/// The end of a run.
#[derive(Debug)]
struct Outcome {
    status: RunStatus,
    output: Option<String>,
    ran: Vec<(String, Json, Option<Json>)>,
}

fn compare(actual: &Outcome, expected: &Expected) -> Result<(), String> {
    let output = expected.output.as_ref().map(Json::to_string);
    let status = match output {
        Some(_) => RunStatus::Completed,
        None => RunStatus::Halted,
    };
    let same = actual.status == status && actual.output == output && actual.ran == expected.ran;
    if same {
        return Ok(());
    }
    let only = |of: &[(String, Json, Option<Json>)], not: &[(String, Json, Option<Json>)]| {
        let alone = of.iter().filter(|ran| {
            let count = |all: &[_]| all.iter().filter(|other| other == ran).count();
            count(of) > count(not)
        });
        format!("{:#?}", alone.collect::<Vec<_>>())
    };
    Err(format!(
        "the run is {:?} with {:?},\nthe reference {status:?} with {output:?}.\nOnly there ran {}\nonly here {}",
        actual.status,
        actual.output,
        only(&actual.ran, &expected.ran),
        only(&expected.ran, &actual.ran),
    ))
}

fn said(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn config() -> Config {
    let options = LoadOptions {
        file: Some("ductwork.yml".into()),
        env: Some("default".to_owned()),
        vars: &|_| None,
        names: &[],
        cwd: "/".into(),
        handed: Some(Handed::of(CONFIG.to_owned())),
    };
    Config::load(options).expect("a configuration")
}
