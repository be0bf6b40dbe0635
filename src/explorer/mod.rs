//! Every interleaving of the store's operations, in small worlds on a SQLite in memory.
//!
//! Owns: a search over schedules, in which one step is one transaction of the product's own store
//! functions or one fault; and the proof that each of the statements' guards is needed, by removing it.
//! Never: a part of the product; it is compiled for tests only.
//!
//! `search` is the engine, `canon` decides when two states are one, `actors` act, `scenario` lists the
//! worlds, `flows` holds the pipelines that run in them and their outcomes, `fair` ends what was begun,
//! `invariants` are the audit's, `mutants` the statements that lack a condition, `spare` the conditions
//! that may be lacking, `local` the database.
//!
//! Every world is searched to its end, but for a few wide ones, of which narrower ones are. `DUCTWORK_EXPLORER=long`
//! requests the wide ones and more of everything, `DUCTWORK_EXPLORER=long:2/8` the second of eight parts of that.
//!
//! Two transactions at once are not covered here. On SQLite there are none; PostgreSQL has the same
//! guards in statements of its own, and tests of its own (`tests/store`).

mod actors;
mod canon;
mod fair;
mod flows;
mod invariants;
pub mod local;
mod mutants;
mod scenario;
mod search;
mod spare;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mutants::Mutant;
use scenario::Scenario;
use search::{Promises, Replayed, Seen, Violation, search};
use spare::Shown;

use crate::store::Dialect;
use crate::store::catalogue::catalogue;

/// A setting of the environment.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Does the work on every item, on two cores.
fn on_both_cores<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let work = || {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(one);
                }
            };
            // Each state is a nested call.
            let thread = std::thread::Builder::new().stack_size(256 << 20);
            thread.spawn_scoped(scope, work).expect("a thread");
        }
    });
}

/// Replays a line that a violation has printed.
fn replay(line: &str) -> Result<(), Replayed> {
    let (world, moves) = line.rsplit_once(": ").expect("a line is `SCENARIO: MOVES`");
    let (name, without) = world.split_once(" without ").unwrap_or((world, ""));
    let all = mutants::mutants();
    let without = without.split_whitespace();
    let without: Vec<Mutant> = without.map(|name| mutants::named(&all, name)).collect();
    let moves = moves.split_whitespace().map(str::parse);
    let moves: Vec<_> = moves.collect::<Result<_, _>>().expect("moves");
    let world = scenario::named(name);
    search::replay(&world, &without, &Promises::all(), &moves)
}

#[test]
fn every_schedule_keeps_every_promise() {
    if let Some(line) = setting("DUCTWORK_SCHEDULE") {
        return match replay(&line) {
            Ok(()) => eprintln!("it keeps every promise"),
            Err(Replayed::Violated(violation)) => panic!("{violation}"),
            Err(Replayed::Impossible(next)) => panic!("{next} cannot be done there"),
        };
    }
    let promises = Promises::all();
    let most = match scenario::long() {
        true => usize::MAX,
        false => {
            setting("DUCTWORK_EXPLORER_MOST").map_or(MOST, |most| most.parse().expect("a number"))
        }
    };
    let only = setting("DUCTWORK_EXPLORER_ONLY");
    let mut all = scenario::all();
    all.retain(|scenario| {
        only.as_ref()
            .is_none_or(|only| scenario.name.contains(only))
    });
    let all = scenario::piece(all);
    let sum = Mutex::new((Seen::default(), Vec::<Violation>::new(), 0));
    on_both_cores(&all, |scenario| {
        let seen = search(scenario, &[], &promises, most);
        let mut sum = sum.lock().expect("nobody panics with it");
        match seen {
            Ok(seen) => {
                eprintln!("{:40} {seen:?}", scenario.name);
                sum.0.states += seen.states;
                sum.0.moves += seen.moves;
                sum.0.leaves += seen.leaves;
                sum.2 += usize::from(seen.cut);
            }
            Err(violation) => sum.1.push(violation),
        }
    });
    let (seen, violations, cut) = sum.into_inner().expect("nobody panicked with it");
    eprintln!(
        "{seen:?}, {cut} of {} worlds not seen to their end",
        all.len()
    );
    let violations: Vec<String> = violations.iter().map(Violation::to_string).collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    let whole = only.is_none() && (most == MOST || scenario::is_whole());
    assert!(
        !whole || cut == 0,
        "{cut} worlds have more than {most} states"
    );
    assert!(!whole || seen.states >= 250_000, "{seen:?}");
    if whole {
        every_writing_statement_has_run();
    }
}

/// Statements that write, and that no world runs.
const NOT_RUN: &[(&str, &str)] = &[
    ("FILL_", "benchmarks fill a database of their own"),
    ("SET_TUPLE", "a run's context: `tests/store/contexts.rs`"),
    ("SET_TUPLE_AS_STEP", "the same"),
    ("PRUNE_TUPLES", "the same: `tests/store/passed_over.rs`"),
    ("PRUNE_KEYS", "the same"),
    (
        "DUE_AGAIN",
        "a clock that was set back: `tests/store/clock.rs`",
    ),
    ("READY_AGAIN", "the same"),
    ("RECORD", "a migration: `tests/store/schema.rs`"),
    ("MARK", "a copy: `tests/store/copies.rs`"),
    ("MARK_FRESH", "the same"),
    ("UNMARK", "the same"),
    (
        "FORGET_ACTIONS",
        "what is old enough, of which worlds have nothing: `tests/store/actions.rs`",
    ),
    ("FORGET_BULKS", "the same: `tests/store/bulks.rs`"),
    (
        "REOPEN_FAN_OUT",
        "an array that is too large: `a_fan_in_that_was_too_large_fires_again`",
    ),
    ("WAIT_AGAIN", "the same"),
    (
        "ASK_REVIVED_RUN",
        "an answer that fits no way on: `tests/store/redefined.rs`",
    ),
    (
        "FAIL_UNANSWERED",
        "a run whose end is another with an answer: `tests/store/answers.rs`",
    ),
    (
        "TAKE_READABLE",
        "a definition that cannot be read: `tests/store/unread.rs`",
    ),
    (
        "TELL",
        "what keeps a process from getting on: a word beside its heartbeat",
    ),
    (
        "BEAT_ALONE",
        "the heartbeat of a process that claims nothing: `tests/store/costs.rs`",
    ),
    (
        "WRITE_METRICS",
        "what a process has counted: `tests/store/metrics.rs`",
    ),
    ("FORGET_METRICS", "the same"),
    (
        "BEGIN_SERIES",
        "counts over time, made from those: `tests/store/series.rs`",
    ),
    ("FOLLOW_SERIES", "the same"),
    ("ADD_SERIES", "the same"),
    ("FORGET_SERIES", "the same"),
    (
        "RECORD_ACTIONS",
        "an action, beside what it does: `tests/store/actions.rs`",
    ),
    (
        "COUNT_IN_BULK",
        "actions in many runs, each as one by itself: `tests/store/bulks.rs`",
    ),
    ("CREATE_BULK", "the same"),
    ("PASS_BULK", "the same"),
    ("SETTLE_BULK", "the same"),
    ("END_BULK", "the same"),
    ("STOP_BULK", "the same"),
    (
        "BEGIN_WEBHOOK",
        "messages to endpoints, made from what there is: `tests/store/deliveries.rs`",
    ),
    ("SEE_WEBHOOK", "the same"),
    ("INSERT_DELIVERIES", "the same"),
    ("LEASE_DELIVERIES", "the same"),
    ("RECORD_DELIVERIES", "the same"),
    ("PUT_DELIVERIES_ASIDE", "the same"),
    ("PUT_NAMELESS_ASIDE", "the same"),
    ("DELETE_ORPHANS", "the same"),
    ("SEND_DELIVERY_AGAIN", "the same"),
    (
        "RECORD_REPORT",
        "what an audit has found, for people: `tests/store/reports.rs`",
    ),
    ("FORGET_REPORTS", "the same"),
    ("TAKE_DUTY", "a duty of consoles: `tests/store/bulks.rs`"),
    (
        "CREATE_TOKEN",
        "visitors of the console: `tests/store/tokens.rs`",
    ),
    ("END_TOKEN", "the same"),
    ("END_OPENED", "the same"),
    ("FORGET_TOKENS", "the same"),
    (
        "WENT_ON",
        "marks a death that was none, which people read alone: `tests/store/departed.rs`",
    ),
    (
        "ADOPT",
        "names the supervisor of a child, which people read alone: `tests/daemon/stale.rs`",
    ),
    (
        "BEGIN_PRUNING",
        "a run that is wider than a transaction: `tests/store/wide.rs`",
    ),
];

/// No writing statement is forgotten.
fn every_writing_statement_has_run() {
    let run = local::RUN.lock().expect("nobody panics with it");
    let mut wrong = Vec::new();
    for statement in catalogue() {
        let writes =
            statement.is_for(Dialect::Sqlite) && mutants::writes(statement.sql(Dialect::Sqlite));
        let listed = NOT_RUN.iter().any(|(name, _)| match name.ends_with('_') {
            true => statement.name.starts_with(name),
            false => statement.name == *name,
        });
        if writes && run.contains(statement.name) == listed {
            wrong.push(statement.name);
        }
    }
    assert!(
        wrong.is_empty(),
        "not run in any world, or run although it is in `NOT_RUN`: {wrong:?}"
    );
}

/// The greatest number of states of one world: it bounds the duration of the test, and no world has as
/// many.
const MOST: usize = 80_000;

/// The greatest number of states of one world in which the lack of a condition must show.
const MOST_WITHOUT: usize = 8_000;

/// Most show at once, in one world or another: each is first searched no further than this.
const FIRST: usize = 300;

/// The defect without these conditions, in the first world that shows it.
fn missed<'a>(
    without: &[Mutant],
    promises: &Promises,
    worlds: impl Iterator<Item = &'a Scenario> + Clone,
) -> Option<Violation> {
    [FIRST, MOST_WITHOUT].into_iter().find_map(|most| {
        let mut worlds = worlds.clone();
        worlds.find_map(|world| search(world, without, promises, most).err())
    })
}

/// Each world, with the statements that run in it.
fn with_statements(worlds: Vec<Scenario>) -> Vec<(Scenario, BTreeSet<&'static str>)> {
    let found = Mutex::new(BTreeMap::new());
    let indices: Vec<usize> = (0..worlds.len()).collect();
    on_both_cores(&indices, |index| {
        let run = search::statements(&worlds[*index], &Promises::all(), MOST_WITHOUT);
        let run = run.unwrap_or_else(|violation| panic!("{violation}"));
        found
            .lock()
            .expect("nobody panics with it")
            .insert(*index, run);
    });
    let found = found.into_inner().expect("nobody panicked with it");
    worlds.into_iter().zip(found.into_values()).collect()
}

/// Conditions that are removed together, whether errors are refusals, and whether the loss must show.
struct Trial {
    without: Vec<Mutant>,
    may_refuse: bool,
    missed: bool,
}

/// The trials for a condition.
fn trials(mutant: &Mutant, all: &[Mutant]) -> Vec<Trial> {
    let trial = |without: Vec<Mutant>, may_refuse, missed| Trial {
        without,
        may_refuse,
        missed,
    };
    let others = |names: &[&str]| -> Vec<Mutant> {
        let found = names.iter().map(|name| mutants::named(all, name));
        found.collect()
    };
    let with = |names: &[&str]| [vec![mutant.clone()], others(names)].concat();
    let alone = || trial(with(&[]), false, false);
    match spare::of(mutant) {
        None => vec![trial(with(&[]), false, true)],
        Some(Shown::With(names)) if scenario::long() => {
            vec![trial(with(names), false, true), alone()]
        }
        Some(Shown::With(names)) => vec![trial(with(names), false, true)],
        Some(Shown::Behind(names)) => vec![
            trial(with(names), true, true),
            trial(others(names), true, false),
            alone(),
        ],
        // Spare conditions are tried only in the long mode.
        Some(Shown::Test | Shown::Cost(_) | Shown::Depth(_)) if scenario::long() => {
            vec![alone()]
        }
        Some(Shown::Test | Shown::Cost(_) | Shown::Depth(_)) => Vec::new(),
    }
}

#[test]
fn without_any_one_of_its_guards_the_store_breaks_a_promise() {
    let promises = [Promises::all(), Promises::safety()];
    let worlds = with_statements(scenario::sharp());
    let only = setting("DUCTWORK_EXPLORER_ONLY");
    let all = mutants::mutants();
    let named = |mutant: &&Mutant| {
        let name = mutant.to_string();
        let is = |only: &String| only.split(' ').any(|only| name == only);
        only.as_ref().is_none_or(is)
    };
    let mutants = all.iter().filter(named);
    let trials: Vec<Trial> = mutants.flat_map(|mutant| trials(mutant, &all)).collect();
    let trials = scenario::piece(trials);
    assert!(only.is_some() || trials.len() > 12, "only {}", trials.len());
    let wrong = Mutex::new(Vec::new());
    on_both_cores(&trials, |trial| {
        let without = &trial.without;
        let names: Vec<String> = without.iter().map(Mutant::to_string).collect();
        let is_run = |run: &BTreeSet<&str>| without.iter().any(|one| run.contains(one.statement));
        let concerned = worlds.iter().filter(|(_, run)| is_run(run));
        let concerned = concerned.map(|(world, _)| world);
        let found = missed(without, &promises[usize::from(trial.may_refuse)], concerned);
        if found.is_some() != trial.missed {
            let found = found.map_or_else(|| "nobody misses it".to_owned(), |v| v.to_string());
            let wrong_one = format!("{}: {}: {found}", names.join(" "), without[0].condition);
            wrong.lock().expect("nobody panics with it").push(wrong_one);
        } else if let Some(violation) = found {
            eprintln!("{}: {violation}", names.join(" "));
        }
    });
    let wrong = wrong.into_inner().expect("nobody panicked with it");
    assert!(
        wrong.is_empty(),
        "add a world to `scenario::sharp` in which it is missed, or to `spare` what shows that it is \
         needed:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_line_that_was_printed_is_replayed() {
    let all = mutants::mutants();
    let without = [mutants::named(&all, "CLOSE_EXECUTIONS.2")];
    assert!(
        without[0].condition.ends_with("result IS NULL"),
        "{:?}",
        without[0]
    );
    let worlds = scenario::sharp();
    let violation = missed(&without, &Promises::all(), worlds.iter()).expect("it is missed");
    let line = violation.line();
    match replay(&line) {
        Err(Replayed::Violated(again)) => assert_eq!(again.what, violation.what),
        other => panic!("{line} came to {other:?}"),
    }
    // The same with its guard: every promise is kept.
    let guarded = line.replace(" without CLOSE_EXECUTIONS.2", "");
    assert_ne!(guarded, line);
    assert!(replay(&guarded).is_ok(), "{guarded}");
    // An impossible schedule is told apart from one that ends well.
    let (world, _) = guarded.split_once(": ").expect("a line");
    let impossible = replay(&format!("{world}: z!"));
    assert!(
        matches!(impossible, Err(Replayed::Impossible(_))),
        "{impossible:?}"
    );
}
