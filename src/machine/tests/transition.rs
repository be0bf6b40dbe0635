//! Every status with every event, and the guards in the SQL.

use std::collections::BTreeSet;

use super::{code, table};
use crate::machine::transition::*;
use crate::model::{BranchStatus, RunStatus, StepStatus};
use crate::store::{Dialect, catalogue::catalogue};

/// Every legal change: status, event, status after it. Nothing else is legal.
const RUN: &str = "
    in_progress  dampen       dampened
    in_progress  complete     completed
    in_progress  halt         halted
    in_progress  cancel       cancelled
    dampened     dampen       dampened
    dampened     resume_one   dampened
    dampened     resume_last  in_progress
    dampened     complete     completed
    dampened     halt         halted
    dampened     cancel       cancelled";
const BRANCH: &str = "
    in_progress  ready        in_progress
    in_progress  claim        advancing
    in_progress  continue     in_progress
    in_progress  end          completed
    in_progress  cancel       cancelled
    advancing    release      in_progress
    advancing    continue     in_progress
    advancing    split        waiting
    advancing    hold         dampened
    advancing    end          completed
    advancing    halt         halted
    advancing    cancel       cancelled
    waiting      continue     in_progress
    waiting      end          completed
    waiting      halt         halted
    waiting      cancel       cancelled
    dampened     resume       in_progress
    dampened     cancel       cancelled";
const STEP: &str = "
    in_progress  commit       advancing
    in_progress  complete     completed
    in_progress  fail         failed
    in_progress  cancel       cancelled
    advancing    leave        completed
    advancing    cancel       cancelled
    waiting      resume       advancing
    waiting      expire       failed
    waiting      cancel       cancelled";
const EXECUTION: &str = "
    queued       claim        claimed
    queued       cancel       cancelled
    claimed      succeed      success
    claimed      err          error
    claimed      crash        process_crashed
    claimed      time_out     timed_out
    claimed      release      released
    claimed      put_back     queued
    claimed      cancel       cancelled";

/// The statements that make an event happen to something in a status, listed by their guards.
const GUARDS: &[(&str, &[&str], &[&str])] = &[
    ("run", &["dampen"], &["DAMPEN_RUNS"]),
    ("run", &["resume one", "resume last"], &["RESUME_RUNS"]),
    ("run", &["complete"], &["COMPLETE_RUNS", "END_RUNS"]),
    ("run", &["halt"], &["HALT_RUNS"]),
    ("run", &["cancel"], &["CANCEL_RUN"]),
    (
        "branch",
        &["ready"],
        &["MOVE_WITH_RESULT", "FAILED_BRANCHES"],
    ),
    ("branch", &["claim"], &["CLAIM_BRANCHES"]),
    (
        "branch",
        &["continue", "split", "hold", "end", "halt"],
        &["MOVE_BRANCHES"],
    ),
    ("branch", &["resume"], &["RESUME_BRANCHES"]),
    ("branch", &["cancel"], &["CANCEL_BRANCHES"]),
    ("step", &["commit", "complete", "fail"], &["END_STEPS"]),
    ("step", &["fail"], &["FAIL_STEPS"]),
    ("step", &["leave"], &["LEAVE_STEPS"]),
    ("step", &["resume"], &["RESUME_STEPS"]),
    ("step", &["expire"], &["FAIL_UNANSWERED"]),
    ("step", &["cancel"], &["CANCEL_STEPS"]),
];

fn every_pair_is_as_listed<S: Lifecycle>(listed: &str) {
    let mut legal = 0;
    let lines: Vec<&str> = listed.trim().lines().collect();
    for status in S::EVERY {
        for event in S::Event::EVERY {
            let wanted = format!("{} {} ", status.word(), event.word().replace(' ', "_"));
            let line = lines.iter().find_map(|line| {
                let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                line.strip_prefix(&wanted).map(str::to_owned)
            });
            let next = status.next(*event);
            match line {
                Some(after) => {
                    legal += 1;
                    assert_eq!(next.map(S::word), Ok(after.as_str()), "{wanted}");
                }
                None => assert_eq!(
                    next,
                    Err(Illegal {
                        entity: S::ENTITY,
                        status: status.word(),
                        event: event.word()
                    })
                ),
            }
        }
    }
    assert_eq!(
        legal,
        lines.len(),
        "a listed pair is of no status and event"
    );
}

#[test]
fn every_status_and_event_is_legal_or_refused_as_listed() {
    every_pair_is_as_listed::<RunStatus>(RUN);
    every_pair_is_as_listed::<BranchStatus>(BRANCH);
    every_pair_is_as_listed::<StepStatus>(STEP);
    every_pair_is_as_listed::<ExecutionStatus>(EXECUTION);
}

fn every_status_is_reached_and_can_be_left<S: Lifecycle>() {
    let after = |status: &S| -> Vec<S> {
        let events = S::Event::EVERY.iter();
        events
            .filter_map(|event| status.next(*event).ok())
            .collect()
    };
    let mut reached: Vec<S> = S::BORN.to_vec();
    let mut at = 0;
    while at < reached.len() {
        for status in after(&reached[at]) {
            if !reached.contains(&status) {
                reached.push(status);
            }
        }
        at += 1;
    }
    for status in S::EVERY {
        assert!(reached.contains(status), "{status:?} is never reached");
        let stuck = after(status).is_empty();
        assert_eq!(stuck, status.is_over(), "{status:?}");
    }
}

#[test]
fn every_status_is_reached_and_only_the_last_ones_are_final() {
    every_status_is_reached_and_can_be_left::<RunStatus>();
    every_status_is_reached_and_can_be_left::<BranchStatus>();
    every_status_is_reached_and_can_be_left::<StepStatus>();
    every_status_is_reached_and_can_be_left::<ExecutionStatus>();
}

#[test]
fn an_illegal_event_is_told_in_words() {
    let refused = BranchStatus::Halted.next(BranchEvent::Claim);
    let message = refused.expect_err("a halted branch is over").to_string();
    assert_eq!(
        message,
        "`claim` does not happen to a branch that is `halted`"
    );
}

fn from<S: Lifecycle>(events: &[&str]) -> BTreeSet<String> {
    let named = |event: &&S::Event| events.contains(&event.word());
    let statuses = S::EVERY.iter().filter(|status| {
        let mut events = S::Event::EVERY.iter().filter(named);
        events.any(|event| status.next(*event).is_ok())
    });
    statuses.map(|status| status.word().to_owned()).collect()
}

/// The statuses that a statement's first condition on `status` lets through.
fn guard(statement: &str) -> BTreeSet<String> {
    let all = catalogue();
    let found = all.iter().find(|of| of.name == statement);
    let sql = found
        .expect("the statement is in the catalogue")
        .sql(Dialect::Postgres)
        .replace("coalesce(ductwork_runs.status, '')", "status");
    let (_, condition) = sql.split_once("WHERE").expect("it has a condition");
    let words = match (condition.find("status IN ("), condition.find("status = '")) {
        (Some(at), _) => condition[at..].split_once(')').expect("the list ends").0,
        (None, Some(at)) => condition[at..].lines().next().expect("a line"),
        (None, None) => panic!("{statement} has no guard: {condition}"),
    };
    words
        .split('\'')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_guards_of_the_statements_let_through_what_is_legal_and_nothing_else() {
    for (entity, events, statements) in GUARDS {
        let legal = match *entity {
            "run" => from::<RunStatus>(events),
            "branch" => from::<BranchStatus>(events),
            _ => from::<StepStatus>(events),
        };
        for statement in *statements {
            assert_eq!(guard(statement), legal, "{statement} ({events:?})");
        }
    }
}

/// The statements that make the event happen, for the table. Claims have no status in their
/// guard, but a token or an owner.
fn statements(entity: &str, event: &str) -> String {
    let by_hand: &[&str] = match (entity, event) {
        ("branch", "release") => &["RELEASE_BRANCHES", "GIVE_BACK_BRANCHES"],
        ("branch", "continue" | "end") => &["MOVE_WITH_RESULT"],
        ("execution", "put back") => &["UNCLAIM"],
        ("execution", "claim") => &["STAMP_EXECUTIONS"],
        ("execution", "crash" | "release") => &["CLOSE_EXECUTIONS", "LOST_EXECUTIONS"],
        ("execution", "cancel") => &["CANCEL_EXECUTIONS"],
        ("execution", _) => &["CLOSE_EXECUTIONS"],
        _ => &[],
    };
    let listed = GUARDS
        .iter()
        .filter(|row| row.0 == entity && row.1.contains(&event));
    let names: Vec<String> = listed
        .flat_map(|row| row.2)
        .chain(by_hand)
        .map(|name| {
            assert!(catalogue().iter().any(|of| of.name == *name), "{name}");
            code(name)
        })
        .collect();
    assert!(
        !names.is_empty(),
        "nothing makes `{event}` happen to a {entity}"
    );
    names.join(", ")
}

fn section<S: Lifecycle>(title: &str, entity: &str, note: &str) -> String {
    let mut diagram = String::from("```mermaid\nstateDiagram-v2\n");
    for status in S::BORN {
        diagram.push_str(&format!("    [*] --> {}\n", status.word()));
    }
    for status in S::EVERY {
        for after in S::EVERY {
            let events = S::Event::EVERY.iter();
            let events: Vec<&str> = events
                .filter(|event| status.next(**event) == Ok(*after))
                .map(|event| event.word())
                .collect();
            if !events.is_empty() {
                let (from, to) = (status.word(), after.word());
                diagram.push_str(&format!("    {from} --> {to}: {}\n", events.join(", ")));
            }
        }
    }
    for status in S::EVERY.iter().filter(|status| status.is_over()) {
        diagram.push_str(&format!("    {} --> [*]\n", status.word()));
    }
    diagram.push_str("```\n");
    let open: Vec<&S> = S::EVERY.iter().filter(|status| !status.is_over()).collect();
    let mut head = vec!["event".to_owned()];
    head.extend(open.iter().map(|status| code(status.word())));
    head.push("statement".to_owned());
    let rows = S::Event::EVERY.iter().map(|event| {
        let mut row = vec![event.word().to_owned()];
        row.extend(open.iter().map(|status| match status.next(*event) {
            Ok(after) => code(after.word()),
            Err(_) => "–".to_owned(),
        }));
        row.push(statements(entity, event.word()));
        row
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let ended = S::EVERY.iter().filter(|status| status.is_over());
    let ended: Vec<String> = ended.map(|status| code(status.word())).collect();
    format!(
        "### {title}\n\n{note}\n\n{diagram}\n{}\nNothing happens any more to what is {}.\n",
        table(&head, rows),
        ended.join(", ")
    )
}

pub fn chapter() -> String {
    [
        "## 1. Statuses\n\n\
         A dash means that the event does not happen to what is in that status: the statement that\n\
         would write it is guarded and matches no row. (`revive` builds a new run in one\n\
         transaction; what it sets and sets again before its commit is seen by nobody.)\n"
            .to_owned(),
        section::<RunStatus>(
            "Run",
            "run",
            "A run is over when its root branch is: everything else of it has arrived by then.",
        ),
        section::<BranchStatus>(
            "Branch",
            "branch",
            "A process that moves a branch holds its claim token (`advancing`), has just committed its step\n\
             (`in_progress`), or is the last arrival at its barrier (`waiting`). `MOVE_BRANCHES` has one\n\
             guard for five events; that only a claimed branch is split or held follows from who decides.",
        ),
        section::<StepStatus>(
            "Step",
            "step",
            "A step is born `waiting` where a branch waits for a person. Another attempt leaves it\n\
             `in_progress`.",
        ),
        section::<ExecutionStatus>(
            "Execution",
            "execution",
            "An execution has no column for its status: `queued` is one without a `process_id`,\n\
             `claimed` one with it and without a `result`. It is born `claimed` when the worker that\n\
             commits a step takes the next step with it. Only the process that holds an execution, or\n\
             whoever recovers that process, closes it; another attempt is another execution.",
        ),
    ]
    .join("\n")
}
