//! Every interleaving of the store's operations, in small worlds on a SQLite in memory.
//!
//! Owns: a search over schedules, of which one step is one transaction of the product's own store
//! functions or one fault; and the proof, by taking them away, that each of the statements' guards
//! is needed. Never: a part of the product; it is compiled for tests only.
//!
//! `search` is the engine, `canon` says when two states are one, `actors` act, `scenario` lists the
//! worlds, `flows` what runs in them and what it comes to, `fair` ends what was begun,
//! `invariants` are the audit's, `mutants` the statements that lack a condition, `spare` the
//! conditions that may be lacking, `local` the database.
//!
//! A world of more than `MOST` states is not seen to its end, unless `DUCTWORK_EXPLORER=long` asks
//! for that; the test says how many were not.
//!
//! What is not seen here: two transactions at once. On SQLite there are none; PostgreSQL has the
//! same statements joined, and tests of its own (`tests/store`).

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

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mutants::Mutant;
use scenario::Scenario;
use search::{Replayed, Seen, Violation, search};

/// A setting of the environment.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Does all of it, on two cores.
fn on_both_cores<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let work = || {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(one);
                }
            };
            // A state is a call.
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
    search::replay(
        &scenario::named(name),
        &without,
        &invariants::joined(),
        &moves,
    )
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
    let joined = invariants::joined();
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
    let sum = Mutex::new((Seen::default(), Vec::<Violation>::new(), 0));
    on_both_cores(&all, |scenario| {
        let seen = search(scenario, &[], &joined, most);
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
    assert!(
        only.is_some() || most < MOST || seen.states >= 250_000,
        "{seen:?}"
    );
}

/// States of one world, so that the large ones do not take all the time.
const MOST: usize = 8_000;

/// What goes wrong without these conditions, in the first world that shows it.
fn missed(without: &[Mutant], joined: &str, worlds: &[Scenario]) -> Option<Violation> {
    let violation = |world| search(world, without, joined, MOST).err();
    worlds.iter().find_map(violation)
}

#[test]
fn without_any_one_of_its_guards_the_store_breaks_a_promise() {
    let joined = invariants::joined();
    let worlds = scenario::sharp();
    let only = setting("DUCTWORK_EXPLORER_ONLY");
    let all = mutants::mutants();
    // Conditions that are taken away together, and whether that is to be missed.
    let mut trials: Vec<(Vec<Mutant>, bool)> = Vec::new();
    for mutant in &all {
        let others = spare::of(mutant);
        let alone = vec![mutant.clone()];
        match others {
            None => trials.push((alone, true)),
            // What is spare is looked at by those who have the time.
            Some([]) if scenario::long() => trials.push((alone, false)),
            Some([]) => {}
            Some(others) => {
                let others = others.iter().map(|name| mutants::named(&all, name));
                trials.push((alone.into_iter().chain(others).collect(), true));
            }
        }
    }
    trials.retain(|(trial, _)| {
        let name = trial[0].to_string();
        let named = |only: &String| only.split(' ').any(|only| name == only);
        only.as_ref().is_none_or(named)
    });
    assert!(only.is_some() || trials.len() > 45, "only {}", trials.len());
    let wrong = Mutex::new(Vec::new());
    on_both_cores(&trials, |(trial, expected)| {
        let names: Vec<String> = trial.iter().map(Mutant::to_string).collect();
        let found = missed(trial, &joined, &worlds);
        if found.is_some() != *expected {
            let found = found.map_or_else(|| "nobody misses it".to_owned(), |v| v.to_string());
            let wrong_one = format!("{}: {}: {found}", names.join(" "), trial[0].condition);
            wrong.lock().expect("nobody panics with it").push(wrong_one);
        } else if let Some(violation) = found {
            eprintln!("{}: {violation}", names.join(" "));
        }
    });
    let wrong = wrong.into_inner().expect("nobody panicked with it");
    assert!(
        wrong.is_empty(),
        "add a world to `scenario::sharp` in which it is missed, or the reason to `spare`:\n{}",
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
    let violation = missed(&without, &invariants::joined(), &worlds).expect("it is missed");
    let line = violation.line();
    match replay(&line) {
        Err(Replayed::Violated(again)) => assert_eq!(again.what, violation.what),
        other => panic!("{line} came to {other:?}"),
    }
    // The same with its guard: every promise is kept.
    let guarded = line.replace(" without CLOSE_EXECUTIONS.2", "");
    assert_ne!(guarded, line);
    assert!(replay(&guarded).is_ok(), "{guarded}");
    // And a schedule that cannot be is told from one that is well.
    let (world, _) = guarded.split_once(": ").expect("a line");
    let impossible = replay(&format!("{world}: z!"));
    assert!(
        matches!(impossible, Err(Replayed::Impossible(_))),
        "{impossible:?}"
    );
}
