//! Why a run does not move: each state of a branch, and each way in which a run ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::definition::{Definition, yaml};
use crate::machine::halt::{HALTS_MAX, HaltFact, Prospects};
use crate::machine::intake;
use crate::machine::pause::Pause;
use crate::machine::stuck::{self, DIES, UNKEPT};
use crate::machine::why::*;
use crate::model::*;
use crate::time;

const NOW: i64 = 1_700_000_000_000_000;
const SECOND: i64 = 1_000_000;

fn facts(leaf: Option<LeafState>) -> Facts {
    let leaf = leaf.map(|state| Leaf {
        deadline: None,
        node: "Load".into(),
        prompt: Some("go on?".into()),
        attempt: Some(1),
        error: None,
        state,
    });
    Facts {
        run_id: RunId(uuid::Uuid::nil()),
        pipeline: "P".into(),
        status: RunStatus::InProgress,
        ended_at: None,
        is_for_programs: false,
        cancelling_at: None,
        cancelled_by: None,
        revived_as: None,
        input: Some("[\"it's\"]".into()),
        now: NOW,
        stale_after: Duration::from_secs(30),
        processes: Vec::new(),
        leaves: leaf.into_iter().collect(),
        barriers: Vec::new(),
        halts: Vec::new(),
        prospects: Prospects::default(),
        unreadable: None,
        definition: "0123456789ab".into(),
        graph: None,
        limited: BTreeSet::new(),
        hook: None,
        untold: None,
        questions: Vec::new(),
        holder: None,
        backlog: Some(3),
        pause: None,
    }
}

/// The definition of a pipeline with these steps and this flow.
fn graph(steps: &[&str], flow: &str) -> Arc<Definition> {
    let step = |name: &&str| format!("  {name}: {{ command: [cat] }}\n");
    let steps: String = steps.iter().map(step).collect();
    let text = format!("pipeline: P\nsteps:\n{steps}flow: [{flow}]\n");
    yaml::parse(&text, Path::new("p.yml")).unwrap().into()
}

fn process(role: Role, age_s: u64) -> ProcessFact {
    ProcessFact {
        id: ProcessId(uuid::Uuid::from_u128(role as u128)),
        supervisor: (role != Role::Supervisor)
            .then(|| ProcessId(uuid::Uuid::from_u128(Role::Supervisor as u128))),
        role,
        pipeline: (role == Role::Worker).then(|| "P".into()),
        host: "box".into(),
        pid: 7,
        age: Duration::from_secs(age_s),
        dead: false,
        condemned: false,
        stopped: false,
        intake: Intake::Open,
        holds: 1,
        moved_at: NOW - 600 * SECOND,
        trouble: None,
    }
}

#[test]
fn every_state_of_a_branch_has_its_own_cause() {
    let running = LeafState::Running {
        process: process(Role::Worker, 0).id,
        since: NOW - 5 * SECOND,
    };
    let advancing = LeafState::Advancing {
        process: process(Role::Advancer, 0).id,
        since: NOW,
    };
    let queued = |seconds: i64| LeafState::Queued {
        due_at: NOW + seconds * SECOND,
    };
    let ready = |seconds: i64| LeafState::Ready {
        from: NOW + seconds * SECOND,
    };
    let fresh = |role| vec![process(role, 1)];
    let stale = |role| vec![process(role, 40)];
    let closed = |role, intake| {
        vec![ProcessFact {
            intake,
            ..process(role, 1)
        }]
    };
    let quiet = |role| closed(role, Intake::Quiet);
    let stopping = |role| closed(role, Intake::Stopping);
    let troubled = |role, digest: &str| {
        vec![ProcessFact {
            trouble: Some(format!(
                "definition {digest} cannot be read by this version"
            )),
            ..process(role, 1)
        }]
    };
    let one_of_two = |role| [quiet(role), fresh(role)].concat();
    let cases = [
        (running, fresh(Role::Worker), "running"),
        (running, stale(Role::Worker), "process_stale"),
        (running, vec![], "process_gone"),
        (advancing, fresh(Role::Advancer), "running"),
        (advancing, stale(Role::Advancer), "process_stale"),
        (queued(5), fresh(Role::Worker), "not_due"),
        (queued(-5), fresh(Role::Worker), "backlog"),
        (queued(-5), quiet(Role::Worker), "quiet"),
        (queued(-5), stopping(Role::Worker), "stopping"),
        (
            queued(-5),
            [stopping(Role::Worker), quiet(Role::Worker)].concat(),
            "quiet",
        ),
        (queued(-5), one_of_two(Role::Worker), "backlog"),
        (queued(-5), stale(Role::Worker), "no_worker"),
        (queued(-5), fresh(Role::Advancer), "no_worker"),
        (ready(0), fresh(Role::Advancer), "ready"),
        (ready(0), quiet(Role::Advancer), "quiet"),
        (ready(0), stopping(Role::Advancer), "stopping"),
        (ready(0), one_of_two(Role::Advancer), "ready"),
        (ready(0), fresh(Role::Worker), "no_advancer"),
        (ready(9), vec![], "advance_not_due"),
        (
            queued(-5),
            troubled(Role::Worker, "0123456789ab"),
            "trouble",
        ),
        (queued(5), troubled(Role::Worker, "0123456789ab"), "trouble"),
        (
            queued(-5),
            troubled(Role::Worker, "ba9876543210"),
            "backlog",
        ),
        (
            ready(0),
            troubled(Role::Advancer, "0123456789ab"),
            "trouble",
        ),
        (ready(0), troubled(Role::Advancer, "ba9876543210"), "ready"),
        (LeafState::Asked, vec![], "dampened"),
        (LeafState::Nothing, vec![], "unknown"),
    ];
    for (state, processes, cause) in cases {
        let facts = Facts {
            processes,
            ..facts(Some(state))
        };
        assert_eq!(why(&facts).cause, cause, "{state:?}");
    }
    assert_eq!(why(&facts(None)).cause, "unknown");
    let told = why(&Facts {
        processes: fresh(Role::Worker),
        ..facts(Some(running))
    });
    assert_eq!(
        told.fact,
        "Load has been running on box, in the worker with pid 7, for 5s"
    );
    let told = why(&Facts {
        processes: stale(Role::Worker),
        ..facts(Some(running))
    });
    assert_eq!(
        told.fact,
        "Load is held by the worker with pid 7 on box, whose heartbeat is 40s old"
    );
    // A signal has stopped the process, and this host knows it.
    let again = "a signal has stopped it; let it go on: kill -CONT 7";
    for (role, state, age_s, other) in [
        (Role::Worker, running, 1, ""),
        (
            Role::Worker,
            running,
            40,
            ". Otherwise it is recovered within ",
        ),
        (Role::Worker, queued(-5), 40, ""),
        (Role::Worker, queued(-600), 20, ""),
        (Role::Advancer, ready(-5), 40, ""),
        (Role::Advancer, ready(-600), 20, ""),
    ] {
        let told = why(&Facts {
            processes: vec![ProcessFact {
                stopped: true,
                holds: 0,
                ..process(role, age_s)
            }],
            ..facts(Some(state))
        });
        let remedy = told.remedy.unwrap_or_default();
        assert!(
            remedy.contains(&format!("{again}{other}")),
            "{}: {remedy}",
            told.fact
        );
    }
    let unread = Facts {
        unreadable: Some(Unreadable {
            fact: "definition 0123456789ab cannot be read".into(),
            remedy: "start a newer `ductworkd`",
        }),
        ..facts(Some(queued(-5)))
    };
    assert_eq!(why(&unread).cause, "unreadable");
}

#[test]
fn failed_hooks_of_questions_are_counted_as_far_as_the_questions_are_known() {
    for (asked, failed, expected) in [
        (1, 0, ""),
        (1, 1, "; its `on_wait` hook has failed: no mail"),
        (
            3,
            1,
            "; the `on_wait` hook of one question has failed: no mail",
        ),
        (
            3,
            2,
            "; the `on_wait` hook of 2 questions has failed: no mail",
        ),
        (
            QUESTIONS_MAX,
            2,
            "; the `on_wait` hook of at least 2 questions has failed: no mail",
        ),
    ] {
        let mut facts = facts(Some(LeafState::Asked));
        let alone = why(&facts).fact;
        let others = match asked {
            1 => "",
            QUESTIONS_MAX => " (and at least 99 more questions wait)",
            _ => " (and 2 more questions wait)",
        };
        facts.questions = (0..asked)
            .map(|n| Question {
                step: StepId(uuid::Uuid::nil()),
                node: "Load".into(),
                prompt: None,
                since: NOW,
                deadline: None,
                is_late: false,
                failed_hook: (n < failed).then(|| HookFact {
                    via: "on_wait".into(),
                    error: Some("no mail".into()),
                    state: HookState::Failed,
                }),
            })
            .collect();
        let told = why(&facts);
        assert_eq!(told.fact, format!("{alone}{others}{expected}"));
        assert_eq!(told.questions, facts.questions);
    }
}

#[test]
fn a_question_that_nobody_decides_names_the_process_that_has_reported_why() {
    let unkept = format!("{UNKEPT}: permission denied");
    let told = |late_s: i64, is_late, processes: Vec<ProcessFact>| {
        let mut facts = facts(Some(LeafState::Asked));
        facts.questions = vec![Question {
            step: StepId(uuid::Uuid::nil()),
            node: "Load".into(),
            prompt: None,
            since: NOW - 900 * SECOND,
            deadline: Some((NOW - late_s * SECOND, "halt".into())),
            is_late,
            failed_hook: None,
        }];
        facts.processes = processes;
        why(&facts)
    };
    let with = |age_s, trouble: &str| {
        let trouble = Some(trouble.to_owned());
        let supervisor = ProcessFact {
            trouble,
            ..process(Role::Supervisor, age_s)
        };
        vec![process(Role::Advancer, 1), supervisor]
    };
    let why = told(40, true, with(1, &unkept));
    assert_eq!(why.cause, "trouble");
    assert_eq!(
        why.fact,
        format!(
            "Load waits: nobody has answered in time, and the supervisor (pid 7 on box) cannot decide: {unkept}"
        )
    );
    assert_eq!(why.remedy, stuck::remedy(&unkept, None));
    let locked = told(900, true, with(1, &format!("{UNKEPT}: they {LOCKED}: 1")));
    assert_eq!(locked.remedy.as_deref(), Some(END_TRANSACTION));
    // The time of a grace, a deadline that may still be met, other troubles, and a process that is gone.
    for (late_s, is_late, processes) in [
        (39, true, with(1, &unkept)),
        (900, false, with(1, &unkept)),
        (900, true, with(1, "step Load cannot be started")),
        (900, true, with(40, &unkept)),
    ] {
        let why = told(late_s, is_late, processes);
        assert_eq!(why.cause, "dampened", "{why:?}");
    }
}

#[test]
fn what_waits_in_the_queue_of_a_paused_pipeline_says_who_paused_it_and_why() {
    let pause = Pause {
        pipeline: "P".into(),
        reason: "the warehouse moves".into(),
        by: "ana".into(),
        at: NOW - 720 * SECOND,
    };
    let due = LeafState::Queued { due_at: NOW - 1 };
    let later = LeafState::Queued {
        due_at: NOW + SECOND,
    };
    for (state, processes) in [
        (due, vec![process(Role::Worker, 1)]),
        (due, vec![]),
        (later, vec![]),
    ] {
        let facts = Facts {
            pause: Some(pause.clone()),
            processes,
            ..facts(Some(state))
        };
        let why = why(&facts);
        assert_eq!(why.cause, "paused");
        assert_eq!(
            why.fact,
            "Load waits: the pipeline P is paused (by ana, 12m 0s ago): the warehouse moves"
        );
        assert_eq!(why.remedy.as_deref(), Some("ductworkd unpause P"));
    }
    // A branch that stands elsewhere goes on.
    for (state, cause) in [
        (LeafState::Ready { from: NOW }, "ready"),
        (LeafState::Asked, "dampened"),
    ] {
        let facts = Facts {
            pause: Some(pause.clone()),
            processes: vec![process(Role::Advancer, 1)],
            ..facts(Some(state))
        };
        assert_eq!(why(&facts).cause, cause);
    }
}

#[test]
fn a_worker_is_called_busy_only_while_it_beats_and_holds_steps() {
    let worker = |age_s, holds| ProcessFact {
        holds,
        ..process(Role::Worker, age_s)
    };
    let due = |seconds: i64, processes| {
        let state = LeafState::Queued {
            due_at: NOW - seconds * SECOND,
        };
        why(&Facts {
            processes,
            ..facts(Some(state))
        })
    };
    let busy = due(12, vec![worker(1, 2), worker(12, 0)]);
    assert_eq!(busy.cause, "backlog");
    assert!(
        busy.fact
            .ends_with("its 2 workers are busy (steps that run or are claimed: 2)"),
        "{}",
        busy.fact
    );
    // A worker that was stopped may hold steps, but does not run them.
    for holds in [0, 2] {
        let silent = due(12, vec![worker(12, holds)]);
        assert_eq!(silent.cause, "not_taken");
        let told = format!(
            "Load has been due for 12s, but its worker takes nothing: the last heartbeat of pid 7 on box is 12s old \
             (steps that it holds: {holds})"
        );
        assert_eq!(silent.fact, told);
        let remedy = silent.remedy.unwrap_or_default();
        assert!(
            remedy.starts_with("wait: ") && remedy.contains("30s"),
            "{remedy}"
        );
    }
    let idle = due(12, vec![worker(1, 0)]);
    assert_eq!(idle.cause, "not_taken");
    let remedy = idle.remedy.unwrap_or_default();
    assert!(remedy.contains("`ductworkd health`"), "{remedy}");
    let young = due(1, vec![worker(1, 0)]);
    assert_eq!((young.cause, young.remedy), ("due", None));
}

#[test]
fn a_branch_that_no_advancer_takes_is_told_with_its_time_and_a_way_out() {
    let advancer = |age_s, holds| ProcessFact {
        holds,
        ..process(Role::Advancer, age_s)
    };
    let ready = |seconds: i64, processes| {
        let from = NOW - seconds * SECOND;
        let facts = Facts {
            processes,
            ..facts(Some(LeafState::Ready { from }))
        };
        why(&facts)
    };
    let young = ready(1, vec![advancer(1, 0)]);
    assert_eq!((young.cause, young.remedy), ("ready", None));
    let busy = ready(90, vec![advancer(1, 3)]);
    assert_eq!(
        busy.fact,
        "Load has ended, and has been ready to be advanced for 1m 30s; the advancers are busy (branches that they \
         hold: 3)"
    );
    assert_eq!((busy.cause, busy.remedy), ("ready", None));
    // It holds nothing between two batches.
    let between = ProcessFact {
        moved_at: NOW - 39 * SECOND,
        ..advancer(1, 0)
    };
    let between = ready(90, vec![advancer(1, 0), between]);
    assert_eq!((between.cause, between.remedy), ("ready", None));
    let untaken = ready(90, vec![advancer(1, 0), advancer(2, 0)]);
    assert_eq!(untaken.cause, "not_taken");
    assert_eq!(
        untaken.fact,
        "Load has ended, and has been ready to be advanced for 1m 30s, but none of the 2 advancers takes it: the last \
         heartbeat of pid 7 on box is 2s old (branches that it holds: 0)"
    );
    let remedy = untaken.remedy.unwrap_or_default();
    assert!(remedy.contains("restart `ductworkd`"), "{remedy}");
}

#[test]
fn a_quiet_process_claims_again_when_its_supervisor_is_told() {
    let quiet = |role, pid, host: &str| ProcessFact {
        intake: Intake::Quiet,
        pid,
        host: host.into(),
        ..process(role, 1)
    };
    let mut facts = facts(Some(LeafState::Queued { due_at: NOW - 1 }));
    let own = ProcessId::new();
    let alone = ProcessFact {
        supervisor: None,
        ..quiet(Role::Worker, 8, "box")
    };
    facts.processes = vec![alone];
    let remedy = |facts: &Facts| why(facts).remedy.unwrap_or_default();
    let again = |pid: u32| format!("let it claim again, on box: kill -CONT {pid}");
    facts.processes.push(quiet(Role::Supervisor, 7, "box"));
    assert_eq!(remedy(&facts), again(8), "it runs alone");
    // A supervisor that registers anew has another key: the only one of the host is meant.
    facts.processes[0].supervisor = Some(own);
    facts.processes.push(quiet(Role::Supervisor, 9, "other"));
    assert_eq!(remedy(&facts), again(7));
    facts.processes.push(quiet(Role::Supervisor, 6, "box"));
    assert_eq!(
        remedy(&facts),
        again(8),
        "none of the two is known to be meant"
    );
    facts.processes[3].id = own;
    assert_eq!(remedy(&facts), again(6));
    facts.processes[3].intake = Intake::Open;
    assert_eq!(remedy(&facts), again(8), "it alone was told to be quiet");
}

#[test]
fn a_trouble_with_the_database_is_told_with_its_remedy_while_a_step_runs_and_while_it_waits() {
    let running = LeafState::Running {
        process: process(Role::Worker, 0).id,
        since: NOW - 5 * SECOND,
    };
    for (trouble, remedy) in [
        (stuck::STATEMENT_REFUSED, "remove the obstacle"),
        (stuck::UNSTORED, "`ductworkd audit` finds damaged rows"),
        (LOCKED, "end that transaction"),
    ] {
        for leaf in [running, LeafState::Queued { due_at: NOW }] {
            let mut facts = facts(Some(leaf));
            facts.processes = vec![ProcessFact {
                trouble: Some(format!("{trouble}: no")),
                ..process(Role::Worker, 1)
            }];
            let told = why(&facts);
            let given = told.remedy.unwrap_or_default();
            assert!(given.starts_with(remedy), "{}: {given}", told.fact);
        }
    }
}

#[test]
fn branches_that_are_awaited_are_told_with_the_node_at_which_they_arrive() {
    let steps = ["A", "B", "C", "Load", "Merge"];
    let of = |end: &str, halts: usize| {
        let mut facts = facts(Some(LeafState::Queued { due_at: NOW }));
        facts.halts = vec![HaltFact::default(); halts];
        facts.barriers = vec![BarrierFact {
            node: "A".into(),
            width: 2,
            arrived: 1,
        }];
        facts.graph = Some(graph(&steps, end));
        why(&facts).fact
    };
    let combined = "{ start: A }, { divide: [B, Load] }, { combine: Merge }, { chain: C }";
    let fact = of(combined, 0);
    let told = "; 1 of the 2 branches of A have arrived at Merge";
    assert!(fact.contains(told), "{fact}");
    let told = "; 1 of the 2 branches of A have ended";
    let alone = "{ start: A }, { divide: [[B, { chain: C }, { chain: Merge }], Load] }";
    // One that has halted arrives nowhere.
    for fact in [of(alone, 0), of(combined, 1)] {
        assert!(fact.contains(told), "{fact}");
    }
}

#[test]
fn a_step_that_runs_long_without_a_timeout_is_told_with_what_can_be_done() {
    let remedy = |seconds: i64, timeout: bool, limited: bool| {
        let mut facts = facts(Some(LeafState::Running {
            process: process(Role::Worker, 0).id,
            since: NOW - seconds * SECOND,
        }));
        facts.processes = vec![process(Role::Worker, 1)];
        let graph = graph(&["Load"], "{ start: Load }");
        let mut graph = Arc::unwrap_or_clone(graph);
        if let Some(step) = graph.steps.get_mut("Load").filter(|_| timeout) {
            step.timeout = Some(Duration::from_secs(600));
        }
        facts.graph = Some(graph.into());
        facts.limit(|step| limited && step == "Load");
        why(&facts).remedy
    };
    let told = remedy(61, false, false).unwrap_or_default();
    for part in [
        "the log of `ductworkd` on box has the lines that it writes",
        "; ductworkd cancel 0",
        "with a `timeout` of the step, ",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // The step has a timeout, or `job_worker.timeout` has one for it.
    let others = [
        remedy(59, false, false),
        remedy(61, true, false),
        remedy(61, false, true),
    ];
    assert_eq!(others, [None, None, None]);
}

#[test]
fn a_role_that_is_missing_beside_others_that_run_alone_is_named() {
    let alone = |role| ProcessFact {
        supervisor: None,
        ..process(role, 1)
    };
    let remedy = |facts: &Facts| why(facts).remedy.unwrap_or_default();
    let mut ready = facts(Some(LeafState::Ready { from: NOW }));
    ready.processes = vec![alone(Role::Console)];
    assert_eq!(remedy(&ready), "start `ductworkd`");
    ready.processes.push(alone(Role::Worker));
    let told = remedy(&ready);
    assert!(told.contains("DUCTWORK_ROLE=advancer ductworkd"), "{told}");
    let mut due = facts(Some(LeafState::Queued { due_at: NOW }));
    due.processes = vec![alone(Role::Advancer)];
    let told = remedy(&due);
    assert!(told.contains("DUCTWORK_ROLE=worker ductworkd"), "{told}");
}

#[test]
fn a_daemon_that_is_stopping_is_told_nothing_and_counts_for_nothing() {
    let stopping = |role, pid| ProcessFact {
        intake: Intake::Stopping,
        pid,
        ..process(role, 1)
    };
    let mut due = facts(Some(LeafState::Queued { due_at: NOW }));
    due.processes = vec![stopping(Role::Supervisor, 8)];
    let mut ready = facts(Some(LeafState::Ready { from: NOW }));
    ready.processes = due.processes.clone();
    let mut held = facts(Some(LeafState::Queued { due_at: NOW }));
    held.processes = [stopping(Role::Supervisor, 8), stopping(Role::Worker, 9)].to_vec();
    for facts in [&due, &ready, &held] {
        let told = why(facts);
        assert_eq!(
            told.remedy.as_deref(),
            Some(intake::STOPPING),
            "{}",
            told.fact
        );
    }
    // A daemon that goes on can learn of the pipeline. It starts another worker in place of the one that ends.
    due.processes.push(process(Role::Supervisor, 1));
    let other = ProcessFact {
        id: ProcessId::new(),
        ..process(Role::Supervisor, 1)
    };
    held.processes.push(other.clone());
    let told = why(&due).remedy.unwrap_or_default();
    assert!(told.ends_with("on box: kill -HUP 7"), "{told}");
    let remedy = |facts: &Facts| why(facts).remedy.unwrap_or_default();
    assert_eq!(remedy(&held), intake::STOPPING, "its own daemon ends");
    held.processes[0].dead = true;
    assert_eq!(remedy(&held), intake::STOPPING, "its own daemon has died");
    held.processes[1].supervisor = Some(other.id);
    assert_eq!(remedy(&held), intake::REPLACED);
    // The worker that is stopping does not count beside one that is busy.
    held.processes.push(process(Role::Worker, 1));
    let told = why(&held).fact;
    assert!(
        told.contains("its worker is busy (steps that run or are claimed: 1)"),
        "{told}"
    );
}

/// Each claim of a dead process that was left waits for a lock; the others are given back within seconds.
#[test]
fn a_claim_that_a_recovery_left_waits_for_a_lock_and_others_of_the_dead_do_not() {
    let told = |condemned| {
        let dead = ProcessFact {
            dead: true,
            condemned,
            ..process(Role::Worker, 1)
        };
        let mut runs = facts(Some(LeafState::Running {
            process: dead.id,
            since: NOW,
        }));
        let mut supervisor = process(Role::Supervisor, 1);
        supervisor.trouble = Some(format!("{LEFT} {LOCKED} (now: 1)"));
        runs.processes = vec![dead, supervisor];
        (why(&runs), runs)
    };
    let (left, mut facts) = told(true);
    assert!(left.fact.contains(LEFT), "{}", left.fact);
    assert_eq!(left.remedy.as_deref(), Some(END_TRANSACTION));
    facts.holder = Some("end 7".to_owned());
    assert_eq!(why(&facts).remedy.as_deref(), Some("end 7"));
    let (other, _) = told(false);
    assert!(!other.fact.contains(LEFT), "{}", other.fact);
    assert!(
        other
            .remedy
            .is_some_and(|it| it.contains("recovers it within seconds"))
    );
}

#[test]
fn who_is_dead_is_not_taken_for_busy_however_young_its_heartbeat_is() {
    let dead = |role| ProcessFact {
        dead: true,
        ..process(role, 0)
    };
    let mut waits = facts(Some(LeafState::Queued { due_at: NOW }));
    waits.processes.push(dead(Role::Worker));
    let answer = why(&waits);
    assert_eq!(answer.cause, "no_worker");
    assert!(answer.fact.contains("(1 dead)"), "{}", answer.fact);
    for (pipeline, cause) in [("Q", "no_worker"), ("P", "worker_dies")] {
        let trouble = format!("the worker {pipeline} {DIES} (7 times by now)");
        waits.processes.push(ProcessFact {
            trouble: Some(trouble.clone()),
            ..process(Role::Supervisor, 1)
        });
        let answer = why(&waits);
        assert_eq!(answer.cause, cause);
        assert_eq!(
            answer.fact.contains(&trouble),
            cause == "worker_dies",
            "{}",
            answer.fact
        );
        waits.processes.pop();
    }
    let mut runs = facts(Some(LeafState::Running {
        process: dead(Role::Worker).id,
        since: NOW - 5 * SECOND,
    }));
    runs.processes.push(dead(Role::Worker));
    let answer = why(&runs);
    assert_eq!(answer.cause, "process_gone");
    assert!(
        answer
            .fact
            .contains("the worker with pid 7 on box, which is dead"),
        "{}",
        answer.fact
    );
}

#[test]
fn what_waits_to_be_tried_again_says_what_the_attempt_before_came_to() {
    let due_at = NOW + 9 * SECOND;
    for state in [
        LeafState::Queued { due_at },
        LeafState::Ready { from: due_at },
    ] {
        let mut facts = facts(Some(state));
        assert!(!why(&facts).fact.contains("previous attempt"), "{state:?}");
        facts.leaves[0].error = Some("no such host".into());
        facts.leaves[0].attempt = Some(3);
        let fact = why(&facts).fact;
        let retry = "Load waits to retry: attempt 3 is due in 9s (2023-11-14T22:13:29.000000Z); attempt 2 failed: no such host";
        match state {
            LeafState::Queued { .. } => assert_eq!(fact, retry),
            _ => assert!(
                fact.ends_with("; the previous attempt failed: no such host"),
                "{fact}"
            ),
        }
    }
}

#[test]
fn a_halted_run_whose_continuation_was_cancelled_is_begun_anew() {
    let mut facts = facts(None);
    facts.status = RunStatus::Halted;
    let next = RunId(uuid::Uuid::from_u128(7));
    let revived_as = |newest, status| {
        Some(Successor {
            run: next,
            newest,
            status,
        })
    };
    facts.revived_as = revived_as(next, Some(RunStatus::Halted));
    let told = why(&facts);
    assert_eq!(told.fact, format!("it halted; it was revived as {next}"));
    let explains = format!("`ductworkd why {next}` explains the run that goes on");
    assert_eq!(told.remedy, Some(explains));
    let anew = r#"ductworkd trigger P '["it'\''s"]'    # a new run does all work again"#;
    for (state, ended) in [
        (Some(RunStatus::Cancelled), "was cancelled"),
        // It can no longer be shown, and no run is revived twice.
        (None, "is being deleted"),
    ] {
        facts.revived_as = revived_as(next, state);
        let told = why(&facts);
        let fact = format!("it halted; it was revived as {next}, which {ended}");
        assert_eq!(told.fact, fact);
        assert_eq!(told.remedy.as_deref(), Some(anew));
    }
    // The last run of the line counts, however many there are.
    let last = RunId(uuid::Uuid::from_u128(9));
    let line = format!("it halted; it was revived as {next}, and last as {last}");
    facts.revived_as = revived_as(last, Some(RunStatus::InProgress));
    assert_eq!(why(&facts).fact, line);
    facts.revived_as = revived_as(last, Some(RunStatus::Cancelled));
    let told = why(&facts);
    assert_eq!(told.fact, format!("{line}, which was cancelled"));
    assert_eq!(told.remedy.as_deref(), Some(anew));
}

#[test]
fn a_cancelled_run_is_begun_anew_with_its_own_input() {
    let mut facts = facts(None);
    facts.status = RunStatus::Cancelled;
    let remedy = |facts: &Facts| why(facts).remedy.unwrap_or_default();
    assert_eq!(why(&facts).fact, "it was cancelled");
    facts.cancelled_by = Some("ana".into());
    assert_eq!(why(&facts).fact, "it was cancelled by ana");
    assert_eq!(remedy(&facts), r#"ductworkd trigger P '["it'\''s"]'"#);
    facts.input = Some("null".into());
    assert_eq!(remedy(&facts), "ductworkd trigger P");
    for long in [None, Some("1".repeat(INPUT_MAX + 1))] {
        facts.input = long;
        assert!(remedy(&facts).ends_with(" --input | ductworkd trigger P -"));
    }
}

#[test]
fn a_run_of_which_branches_have_halted_says_how_it_will_end_and_why() {
    let mut facts = facts(Some(LeafState::Asked));
    let alone = why(&facts).fact;
    let halt = HaltFact {
        reason: HaltReason::JobRetriesExhausted.to_string(),
        node: "Load".into(),
        error: Some("exit status 3".into()),
        ..HaltFact::default()
    };
    for (n, halted) in [
        (1, "a branch has halted"),
        (2, "2 branches have halted, the first one"),
        (
            HALTS_MAX,
            "at least 100 branches have halted, the first one",
        ),
    ] {
        facts.halts = vec![halt.clone(); n];
        let expected = format!(
            "{alone}; the run will halt when its other branches have ended, because {halted}: job_retries_exhausted at \
             Load: exit status 3"
        );
        assert_eq!(why(&facts).fact, expected);
    }
}

#[test]
fn a_run_that_has_ended_says_how_far_its_hook_is() {
    let queued = |attempt, seconds: i64| HookState::Queued {
        attempt,
        due_at: NOW + seconds * SECOND,
    };
    let running = |attempt, is_alive| HookState::Running { attempt, is_alive };
    let free =
        "`ductworkd health` says whether a worker of P is alive; start `ductworkd` if none is";
    let gone = "it is recovered once its lease has expired; start `ductworkd` if none runs";
    let previous = "; the previous attempt failed: no such host";
    for (state, told, remedy) in [
        (running(1, true), "is running", None),
        (running(2, true), "is running (attempt 2)", None),
        (
            running(1, false),
            "is held by a process that has died or hangs",
            Some(gone),
        ),
        (queued(1, -1), "has yet to run", None),
        (queued(1, -60), "has yet to run", Some(free)),
        (
            queued(2, -60),
            "has yet to run again (attempt 2)",
            Some(free),
        ),
        (queued(2, 9), "is due in 9s", None),
        // A damaged row.
        (
            HookState::Queued {
                attempt: 2,
                due_at: i64::MIN,
            },
            "has yet to run again (attempt 2)",
            Some(free),
        ),
    ] {
        let is_first = matches!(
            state,
            HookState::Running { attempt: 1, .. } | HookState::Queued { attempt: 1, .. }
        );
        for status in [RunStatus::Completed, RunStatus::Halted] {
            let mut facts = facts(None);
            facts.status = status;
            facts.hook = Some(HookFact {
                via: "on_x".into(),
                error: (!is_first).then(|| "no such host".into()),
                state,
            });
            let answer = why(&facts);
            let after = if is_first { "" } else { previous };
            let expected = format!("; its `on_x` hook {told}{after}");
            assert!(
                answer.fact.ends_with(&expected),
                "{state:?}: {}",
                answer.fact
            );
            if status == RunStatus::Completed {
                assert_eq!(answer.remedy.as_deref(), remedy, "{state:?}");
            }
            if let HookState::Queued { .. } = state {
                facts.pause = Some(Pause {
                    pipeline: "P".into(),
                    reason: "the warehouse moves".into(),
                    by: "ana".into(),
                    at: NOW - 720 * SECOND,
                });
                let answer = why(&facts);
                let expected = format!(
                    "; its `on_x` hook waits: the pipeline P is paused (by ana, 12m 0s ago): the warehouse moves{after}"
                );
                assert!(answer.fact.ends_with(&expected), "{}", answer.fact);
                if status == RunStatus::Completed {
                    assert_eq!(answer.remedy.as_deref(), Some("ductworkd unpause P"));
                }
            }
        }
    }
}

#[test]
fn a_run_that_has_ended_says_how_and_what_now() {
    let mut facts = facts(None);
    facts.ended_at = Some(NOW - 90 * SECOND);
    facts.status = RunStatus::Completed;
    assert_eq!(why(&facts).fact, "it completed 1m 30s ago");
    facts.is_for_programs = true;
    let at = time::rfc3339(NOW - 90 * SECOND);
    assert_eq!(why(&facts).fact, format!("it completed at {at}"));
    facts.is_for_programs = false;
    assert_eq!(why(&facts).remedy, None);
    facts.hook = Some(HookFact {
        via: "on_complete".into(),
        error: Some("no such host".into()),
        state: HookState::Failed,
    });
    let failed = "it completed 1m 30s ago; its `on_complete` hook has failed: no such host";
    assert_eq!(why(&facts).fact, failed);
    assert!(
        why(&facts)
            .remedy
            .unwrap()
            .starts_with("do the work of the hook by hand")
    );
    facts.hook = None;
    facts.untold = Some(HookFact {
        via: "on_wait".into(),
        error: None,
        state: HookState::Failed,
    });
    let untold = "it completed 1m 30s ago; the `on_wait` hook of a question that nobody answered in time has failed";
    assert_eq!(why(&facts).fact, untold);
    assert_eq!(why(&facts).remedy, None);
    facts.untold = None;
    facts.status = RunStatus::Halted;
    facts.halts.push(HaltFact {
        reason: HaltReason::JobRetriesExhausted.to_string(),
        node: "Load".into(),
        error: Some("exit status 3".into()),
        class: Some("ExitStatus(3)".into()),
        ..HaltFact::default()
    });
    let answer = why(&facts);
    assert_eq!(
        answer.fact,
        "it halted 1m 30s ago: job_retries_exhausted at Load: exit status 3"
    );
    let revive = "fix Load, then: ductworkd revive 00000000-0000-0000-0000-000000000000 ";
    let remedy = answer.remedy.unwrap_or_default();
    assert!(remedy.starts_with(revive), "{remedy}");
}
