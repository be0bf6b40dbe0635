//! The cost of an execution's end: every ending around every limit.

use std::time::Duration;

use proptest::prelude::*;

use crate::definition::Backoff;
use crate::machine::outcome::*;
use crate::model::{ExecutionResult, HaltReason};

mod chapter;

pub use chapter::chapter;

/// A backoff in whole numbers, so that expectations are calculated without floats.
#[derive(Clone, Copy, Debug)]
struct Wait {
    initial_ms: u64,
    factor: u64,
    max_ms: u64,
    jitter_percent: u64,
}

const fn wait(initial_ms: u64, factor: u64, max_ms: u64, jitter_percent: u64) -> Wait {
    Wait {
        initial_ms,
        factor,
        max_ms,
        jitter_percent,
    }
}

const WAITS: [Wait; 6] = [
    // The default.
    wait(10_000, 1, 3_600_000, 10),
    wait(2_000, 2, 20_000, 0),
    wait(1_000, 10, 60_000, 100),
    // Zero does not grow.
    wait(0, 100, 60_000, 50),
    // An initial wait above the maximum.
    wait(30_000, 3, 5_000, 0),
    wait(5_000, 2, 0, 0),
];

/// Positions within the jitter, in percent: shortest, middle, longest.
const SPREADS: [u64; 3] = [0, 50, 100];

impl Wait {
    fn backoff(self) -> Backoff {
        Backoff {
            initial: Duration::from_millis(self.initial_ms),
            factor: self.factor as f64,
            max: Duration::from_millis(self.max_ms),
            jitter: self.jitter_percent as f64 / 100.0,
        }
    }

    /// Step by step: multiply once per error after the first, stop at the maximum, then vary.
    fn after_errors(self, errors: u32, spread_percent: u64) -> Duration {
        let mut wait_ms = self.initial_ms.min(self.max_ms);
        for _ in 1..errors {
            wait_ms = (wait_ms * self.factor).min(self.max_ms);
        }
        let swing = self.jitter_percent * 2 * spread_percent / 100;
        let percent = 100 + swing - self.jitter_percent;
        Duration::from_micros(wait_ms * 10 * percent)
    }

    /// One `initial` for each crash beyond a third of the budget, up to the maximum.
    fn after_crashes(self, crashes: u32, max_crash: u32) -> Duration {
        let beyond = (1..=crashes).filter(|crash| crash * 3 > max_crash).count() as u64;
        // A third of the budget in whole crashes: with a budget of 2 there is none.
        Duration::from_millis((beyond * self.initial_ms).min(self.max_ms))
    }
}

const AFTER: Duration = Duration::from_secs(90);
const HELD_UP: Duration = Duration::from_secs(1);

fn endings() -> Vec<Ending> {
    let error = |retryable, retry_after| Ending::Error {
        retryable,
        retry_after,
    };
    vec![
        Ending::Success,
        error(true, None),
        error(true, Some(Duration::ZERO)),
        error(true, Some(AFTER)),
        error(false, None),
        error(false, Some(AFTER)),
        Ending::TimedOut,
        Ending::Crashed,
        Ending::Released {
            delay: Duration::ZERO,
        },
        Ending::Released { delay: HELD_UP },
        Ending::Cancelled,
    ]
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    view: ExecutionView,
    max_retry: u32,
    max_crash: u32,
    wait: Wait,
    spread_percent: u64,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for max_retry in [0_u32, 1, 3] {
        for retry_count in 0..=max_retry + 2 {
            for max_crash in [0_u32, 1, 2, 3, 4, 10] {
                for crash_count in 0..=max_crash + 2 {
                    for wait in WAITS {
                        for spread_percent in SPREADS {
                            cells.push(Cell {
                                view: ExecutionView {
                                    retry_count,
                                    crash_count,
                                },
                                max_retry,
                                max_crash,
                                wait,
                                spread_percent,
                            });
                        }
                    }
                }
            }
        }
    }
    cells
}

fn actual(cell: Cell, ending: Ending) -> Verdict {
    let limits = StepLimits {
        max_retry: cell.max_retry,
        max_crash: cell.max_crash,
        backoff: cell.wait.backoff(),
    };
    decide(
        cell.view,
        ending,
        &limits,
        cell.spread_percent as f64 / 100.0,
    )
}

/// The expectation, from the number of attempts that ended like this, including this one.
fn expected(cell: Cell, ending: Ending) -> Verdict {
    let errors = cell.view.retry_count + 1;
    let crashes = cell.view.crash_count + 1;
    let erred = |delay| match errors <= cell.max_retry {
        true => Verdict::Again {
            delay,
            next: ExecutionView {
                retry_count: errors,
                crash_count: cell.view.crash_count,
            },
        },
        false => Verdict::Fail,
    };
    let backoff = cell.wait.after_errors(errors, cell.spread_percent);
    match ending {
        Ending::Success => Verdict::Succeed,
        Ending::Cancelled => Verdict::Drop,
        Ending::Released { delay } => Verdict::Again {
            delay,
            next: cell.view,
        },
        Ending::TimedOut => erred(backoff),
        Ending::Error {
            retryable: true,
            retry_after: None,
        } => erred(backoff),
        Ending::Error {
            retryable: true,
            retry_after: Some(wish),
        } => erred(wish),
        Ending::Error {
            retryable: false, ..
        } => Verdict::Fail,
        Ending::Crashed if crashes < cell.max_crash => Verdict::Again {
            delay: cell.wait.after_crashes(crashes, cell.max_crash),
            next: ExecutionView {
                retry_count: cell.view.retry_count,
                crash_count: crashes,
            },
        },
        Ending::Crashed => Verdict::Fail,
    }
}

/// The same, except for differences that floats cannot resolve: less than a microsecond.
fn alike(one: Verdict, other: Verdict) -> bool {
    match (one, other) {
        (Verdict::Again { delay: a, next: x }, Verdict::Again { delay: b, next: y }) => {
            x == y && a.abs_diff(b) < Duration::from_micros(1)
        }
        _ => one == other,
    }
}

#[test]
fn what_cannot_be_started_is_tried_ever_later_up_to_a_minute() {
    let fresh = ExecutionView {
        retry_count: 0,
        crash_count: 0,
    };
    let after = |attempt, view| not_started_delay(attempt, view).as_secs();
    let waits = [1, 2, 3, 7, 8, u32::MAX].map(|attempt| after(attempt, fresh));
    assert_eq!(waits, [1, 2, 4, 64, 64, 64]);
    // Seven attempts had started.
    let spent = ExecutionView {
        retry_count: 5,
        crash_count: 2,
    };
    assert_eq!([8, 9, 10].map(|attempt| after(attempt, spent)), [1, 2, 4]);
    assert_eq!(after(1, spent), 1);
}

#[test]
fn every_ending_costs_what_was_written_down_for_it() {
    for cell in cells() {
        for ending in endings() {
            let (actual, expected) = (actual(cell, ending), expected(cell, ending));
            assert!(
                alike(actual, expected),
                "{ending:?} {cell:?}: {actual:?}, not {expected:?}"
            );
        }
    }
}

#[test]
fn counters_at_the_end_of_numbers_are_out_of_budget() {
    for counter in [u32::MAX - 1, u32::MAX] {
        let limits = StepLimits {
            max_retry: u32::MAX,
            max_crash: u32::MAX,
            backoff: Backoff::default(),
        };
        let view = ExecutionView {
            retry_count: counter,
            crash_count: counter,
        };
        let error = Ending::Error {
            retryable: true,
            retry_after: None,
        };
        let last = counter == u32::MAX;
        assert_eq!(decide(view, error, &limits, 0.5) == Verdict::Fail, last);
        assert_eq!(
            decide(view, Ending::TimedOut, &limits, 0.5) == Verdict::Fail,
            last
        );
        assert_eq!(decide(view, Ending::Crashed, &limits, 0.5), Verdict::Fail);
    }
}

#[test]
fn a_wait_that_has_outgrown_all_numbers_is_the_longest_and_not_the_shortest() {
    let backoff = Backoff {
        initial: Duration::from_secs(1),
        factor: 2.0,
        max: Duration::from_secs(60),
        jitter: 0.0,
    };
    let nothing = Backoff {
        initial: Duration::ZERO,
        ..backoff
    };
    for retry_count in [
        6,
        1_023,
        1_024,
        1 << 20,
        i32::MAX as u32,
        1 << 31,
        u32::MAX - 2,
    ] {
        // Zero stays zero, however often it is doubled.
        for (backoff, wanted) in [(backoff, backoff.max), (nothing, Duration::ZERO)] {
            let limits = StepLimits {
                max_retry: u32::MAX,
                max_crash: 10,
                backoff,
            };
            let view = ExecutionView {
                retry_count,
                crash_count: 0,
            };
            let again = decide(view, Ending::TimedOut, &limits, 0.5);
            assert_eq!(delay(again), Some(wanted), "after {retry_count} errors");
        }
    }
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    let span = || {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            any::<Duration>(),
            (0..100_000_u64).prop_map(Duration::from_millis),
        ]
    };
    let number = || {
        prop_oneof![
            Just(0.0),
            Just(1.0),
            Just(f64::MAX),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::NAN),
            any::<f64>(),
            0.0..100.0,
        ]
    };
    (span(), number(), span(), number()).prop_map(|(initial, factor, max, jitter)| Backoff {
        initial,
        factor,
        max,
        jitter,
    })
}

/// A backoff that `definition::check` lets through.
fn legal_backoff() -> impl Strategy<Value = Backoff> {
    let span = || (0..3_153_600_000_000_u64).prop_map(Duration::from_millis);
    (span(), 1.0..1_000.0, span(), 0.0..=1.0).prop_map(|(initial, factor, max, jitter)| Backoff {
        initial,
        factor,
        max,
        jitter,
    })
}

fn any_counter() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0..20_u32,
        Just(u32::MAX),
        Just(i32::MAX as u32),
        Just(1 << 31)
    ]
}

fn delay(verdict: Verdict) -> Option<Duration> {
    match verdict {
        Verdict::Again { delay, .. } => Some(delay),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_ending_with_any_numbers_gives_a_verdict(
        retry_count in any_counter(),
        crash_count in any_counter(),
        max_retry in any_counter(),
        max_crash in any_counter(),
        backoff in any_backoff(),
        spread in prop_oneof![any::<f64>(), 0.0..=1.0, Just(f64::NAN)],
    ) {
        let view = ExecutionView { retry_count, crash_count };
        let limits = StepLimits { max_retry, max_crash, backoff };
        for ending in endings() {
            match decide(view, ending, &limits, spread) {
                // A budget is never given back.
                Verdict::Again { next, delay } => {
                    prop_assert!(next.retry_count >= retry_count);
                    prop_assert!(next.crash_count >= crash_count);
                    prop_assert!(
                        next.retry_count - retry_count + (next.crash_count - crash_count) <= 1
                    );
                    let wished = matches!(
                        ending,
                        Ending::Released { .. } | Ending::Error { retry_after: Some(_), .. }
                    );
                    // The maximum, with all of the jitter on top; in floats, as it was calculated.
                    let most = backoff.max.as_secs_f64() * 2.0;
                    prop_assert!(wished || delay.as_secs_f64() <= most);
                }
                Verdict::Succeed => prop_assert_eq!(ending, Ending::Success),
                Verdict::Drop => prop_assert_eq!(ending, Ending::Cancelled),
                Verdict::Fail => {}
            }
        }
    }

    #[test]
    fn who_has_spent_more_is_not_better_off(
        backoff in legal_backoff(),
        max_retry in any_counter(),
        max_crash in any_counter(),
        one in any_counter(),
        other in any_counter(),
        spread in 0.0..=1.0_f64,
    ) {
        let (less, more) = (one.min(other), one.max(other));
        let limits = StepLimits { max_retry, max_crash, backoff };
        let error = Ending::Error { retryable: true, retry_after: None };
        for ending in [error, Ending::TimedOut, Ending::Crashed] {
            let after = |spent| {
                let view = ExecutionView { retry_count: spent, crash_count: spent };
                decide(view, ending, &limits, spread)
            };
            match (delay(after(less)), delay(after(more))) {
                (Some(first), Some(later)) => prop_assert!(first <= later),
                (None, again) => prop_assert_eq!(again, None),
                (Some(_), None) => {}
            }
        }
    }

    #[test]
    fn jitter_spreads_a_wait_evenly_around_its_middle(
        backoff in legal_backoff(),
        errors in 0..50_u32,
        spread in 0.0..=1.0_f64,
    ) {
        let limits = StepLimits { max_retry: 100, max_crash: 10, backoff };
        let view = ExecutionView { retry_count: errors, crash_count: 0 };
        let at = |spread| {
            let verdict = decide(view, Ending::TimedOut, &limits, spread);
            delay(verdict).expect("within budget").as_secs_f64()
        };
        let (low, middle, high) = (at(0.0), at(0.5), at(1.0));
        let tolerance = 1e-6 + middle * 1e-9;
        prop_assert!((low + high - 2.0 * middle).abs() <= tolerance);
        prop_assert!((high - middle * (1.0 + backoff.jitter)).abs() <= tolerance);
        prop_assert!(low <= at(spread) && at(spread) <= high);
    }

    #[test]
    fn a_process_that_dies_never_spends_a_retry_and_an_error_never_a_crash(
        retry_count in any_counter(),
        crash_count in any_counter(),
    ) {
        let limits = StepLimits {
            max_retry: u32::MAX,
            max_crash: u32::MAX,
            backoff: Backoff::default(),
        };
        let view = ExecutionView { retry_count, crash_count };
        if let Verdict::Again { next, .. } = decide(view, Ending::Crashed, &limits, 0.0) {
            prop_assert_eq!(next.retry_count, retry_count);
        }
        if let Verdict::Again { next, .. } = decide(view, Ending::TimedOut, &limits, 0.0) {
            prop_assert_eq!(next.crash_count, crash_count);
        }
    }
}

/// Why a branch halts, from the last execution's result and error class, and whether it could have been tried again.
fn expected_reason(last: &str, class: Option<&str>, had_retries_left: bool) -> HaltReason {
    match (last, class) {
        ("timed_out", _) => HaltReason::JobTimedOut,
        ("process_crashed", _) => HaltReason::JobCrashesExhausted,
        ("error", Some("step_undefined")) => HaltReason::StepUndefined,
        ("error", Some("ExitStatus(65)")) => HaltReason::StepRefused,
        ("error", _) if had_retries_left => HaltReason::StepRefused,
        _ => HaltReason::JobRetriesExhausted,
    }
}

/// The class of no error, of a step without code, of a command that must not be tried again, and of any
/// other error.
const CLASSES: [Option<&str>; 4] = [
    None,
    Some(STEP_UNDEFINED),
    Some("ExitStatus(65)"),
    Some("Timeout::Error"),
];

#[test]
fn a_halt_names_the_budget_that_the_last_execution_spent() {
    for last in ExecutionResult::ALL {
        for class in CLASSES {
            for left in [false, true] {
                let reason = halt_reason(*last, class, left);
                let expected = expected_reason(last.as_str(), class, left);
                assert_eq!(reason, expected, "{last} {class:?} {left}");
            }
        }
    }
}

#[test]
fn every_ending_is_stored_under_its_own_word() {
    let mut words: Vec<ExecutionResult> = endings().iter().map(|ending| ending.result()).collect();
    words.sort_unstable();
    words.dedup();
    let mut all = ExecutionResult::ALL.to_vec();
    all.sort_unstable();
    assert_eq!(words, all);
}
