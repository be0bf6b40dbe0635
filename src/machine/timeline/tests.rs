//! Positions on a time line, and their texts.

use super::*;

const LEFT: u32 = MARGIN + NAME_LEAST as u32 * LETTER + APART;

fn step(
    node: &str,
    created_at: i64,
    attempts: &[(i64, Option<i64>, Option<ExecutionResult>)],
) -> StepTime {
    let attempt =
        |(at, (claimed, completed_at, result)): (usize, &(i64, Option<i64>, _))| AttemptTime {
            number: at as u32 + 1,
            claimed_at: Some(*claimed),
            completed_at: *completed_at,
            result: *result,
        };
    StepTime {
        id: StepId::new(),
        node: node.to_owned(),
        element: None,
        status: StepStatus::Completed,
        created_at,
        started_at: attempts.first().map(|it| it.0),
        completed_at: attempts.last().and_then(|it| it.1),
        is_copied: false,
        attempts: attempts.iter().enumerate().map(attempt).collect(),
    }
}

fn facts(now: i64, ended_at: Option<i64>, steps: Vec<StepTime>) -> Facts {
    Facts {
        triggered_at: 0,
        ended_at,
        now,
        steps,
        is_sample: false,
    }
}

const OK: Option<ExecutionResult> = Some(ExecutionResult::Success);
const ERROR: Option<ExecutionResult> = Some(ExecutionResult::Error);

fn bars(row: &Row) -> Vec<(u32, u32, Kind)> {
    row.bars
        .iter()
        .map(|bar| (bar.x - LEFT, bar.width, bar.kind))
        .collect()
}

#[test]
fn each_attempt_waits_and_runs_where_its_time_is() {
    let a = step("A", 0, &[(100, Some(300), ERROR), (350, Some(500), OK)]);
    let b = step("B", 500, &[(500, None, None)]);
    let drawn = place(&facts(1_000, None, vec![a, b]));
    assert_eq!(drawn.folds, []);
    assert_eq!(
        bars(&drawn.rows[0]),
        [
            (0, 80, Kind::Waited),
            (80, 160, Kind::Failed),
            (240, 40, Kind::Waited),
            (280, 120, Kind::Succeeded)
        ]
    );
    assert_eq!(
        bars(&drawn.rows[1]),
        [(400, 400, Kind::Runs)],
        "it ends now"
    );
    assert_eq!(
        drawn.rows[0].told,
        "A: waited 100µs, attempt 1 failed after 200µs, waited 50µs, attempt 2 ran 150µs"
    );
    assert_eq!(
        (drawn.width, drawn.rows[1].y),
        (LEFT + SPAN + MARGIN, HEAD + ROW)
    );
}

#[test]
fn idle_times_longer_than_a_tenth_are_folded_and_what_is_behind_keeps_its_length() {
    let hour = 3_600_000_000;
    let a = step(
        "A",
        0,
        &[
            (0, Some(1_000_000), ERROR),
            (hour, Some(hour + 1_000_000), OK),
        ],
    );
    let drawn = place(&facts(2 * hour, Some(hour + 1_000_000), vec![a]));
    let [fold] = &drawn.folds[..] else {
        panic!("{:?}", drawn.folds)
    };
    assert_eq!(
        (fold.width, time::span(fold.idle)),
        (FOLD, "59m 59s".to_owned())
    );
    let half = (SPAN - FOLD) / 2;
    assert_eq!(
        bars(&drawn.rows[0]),
        [
            (0, half, Kind::Failed),
            (half, FOLD, Kind::Waited),
            (half + FOLD, half, Kind::Succeeded)
        ]
    );
    // Exactly a tenth stays.
    let b = step("B", 0, &[(100, Some(1_000), OK)]);
    assert_eq!(place(&facts(1_000, Some(1_000), vec![b])).folds, []);
    // If nothing has run yet, the whole is idle.
    let c = StepTime {
        started_at: None,
        completed_at: None,
        ..step("C", 0, &[])
    };
    assert_eq!(place(&facts(1_000, None, vec![c])).folds, []);
}

#[test]
fn what_a_person_took_is_told_apart_and_a_copy_has_no_time() {
    let asked = StepTime {
        status: StepStatus::Waiting,
        ..step("dampen", 200, &[])
    };
    let copy = StepTime {
        is_copied: true,
        ..step("A", 0, &[])
    };
    let drawn = place(&facts(1_000, None, vec![copy, asked]));
    assert_eq!(drawn.rows[0].told, "A: kept from an earlier run");
    assert_eq!(bars(&drawn.rows[0]), []);
    assert_eq!(bars(&drawn.rows[1]), [(160, 640, Kind::Asked)]);
}

/// A run that was revived a day later begins with its own first step.
#[test]
fn kept_steps_take_no_time() {
    let kept = |node, at: i64| StepTime {
        is_copied: true,
        started_at: None,
        attempts: Vec::new(),
        ..step(node, at, &[(at, Some(at + 1), OK)])
    };
    let own = |at: i64| StepTime {
        attempts: Vec::new(),
        ..step("Each", at, &[(at, Some(at + 50), OK)])
    };
    for (many, told) in [
        (
            1,
            [
                "A: kept from an earlier run",
                "Each: kept from an earlier run",
            ],
        ),
        (
            500,
            [
                "A: 1 step kept from an earlier run",
                "Each: 2 steps in 100µs, 500 steps kept from an earlier run",
            ],
        ),
    ] {
        let mut steps = vec![kept("A", -90_000_000)];
        steps.extend((0..many).map(|_| kept("Each", -80_000_000)));
        steps.extend([own(0), own(50)]);
        let drawn = place(&facts(100, Some(100), steps));
        assert_eq!(drawn.folds, []);
        assert_eq!([&*drawn.rows[0].told, &*drawn.rows[1].told], told);
        assert_eq!((drawn.rows[0].extent, bars(&drawn.rows[0])), (None, vec![]));
    }
}

#[test]
fn many_steps_have_a_row_per_node_with_a_sample_and_every_failure() {
    let element = |at: i64| StepTime {
        element: Some(at as u64),
        status: if at % 500 == 7 {
            StepStatus::Failed
        } else {
            StepStatus::Completed
        },
        attempts: Vec::new(),
        ..step("Each", 10, &[(10 + at, Some(11 + at), OK)])
    };
    let mut steps = vec![StepTime {
        attempts: Vec::new(),
        ..step("First", 0, &[(0, Some(10), OK)])
    }];
    steps.extend((0..2_000).map(element));
    let drawn = place(&facts(2_011, Some(2_011), steps));
    assert!(drawn.is_by_node);
    let [first, each] = &drawn.rows[..] else {
        panic!("two nodes")
    };
    assert_eq!(first.bars.len(), 1);
    assert_eq!(each.told, "Each: 2,000 steps in 2ms, 4 failed");
    assert_eq!(each.bars.len(), ROWS);
    let failed: Vec<&str> = each
        .bars
        .iter()
        .filter(|it| it.kind == Kind::Failed)
        .map(|it| it.told.as_str())
        .collect();
    assert_eq!(
        failed,
        [
            "element 8: failed after 1µs",
            "element 508: failed after 1µs",
            "element 1008: failed after 1µs",
            "element 1508: failed after 1µs"
        ]
    );
    assert_eq!(
        each.bars[ROWS - 5].told,
        "element 2000: 1µs",
        "the last is there, and what failed lies above"
    );
}

#[test]
fn no_picture_is_larger_than_its_bounds_and_nothing_lies_outside() {
    let times = [i64::MIN / 4, 0, 1, 1_700_000_000_000_000, i64::MAX / 4];
    for from in times {
        for to in times {
            let steps = (0..300).map(|at| StepTime {
                node: format!("N{at}"),
                attempts: Vec::new(),
                ..step("", from, &[(from, Some(to), ERROR)])
            });
            let facts = Facts {
                triggered_at: from,
                ended_at: Some(to),
                now: to,
                steps: steps.collect(),
                is_sample: true,
            };
            let drawn = place(&facts);
            assert!(drawn.rows.iter().map(|row| row.bars.len()).sum::<usize>() <= BARS);
            for bar in drawn.rows.iter().flat_map(|row| &row.bars) {
                assert!(
                    bar.x >= LEFT && bar.x + bar.width <= drawn.width,
                    "{from} {to}: {bar:?}"
                );
            }
            assert!(drawn.ticks.len() < 20);
        }
    }
    let none = place(&Facts::default());
    assert_eq!((none.rows.len(), none.height), (0, HEAD + MARGIN));
}

#[test]
fn times_that_are_written_are_round_and_apart() {
    let a = step("A", 0, &[(0, Some(90_000_000), OK)]);
    let ticks = place(&facts(90_000_000, Some(90_000_000), vec![a])).ticks;
    let texts: Vec<&str> = ticks.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["0", "30s", "1m"]);
    assert!(ticks.windows(2).all(|two| two[0].0 + TICK <= two[1].0));
}
