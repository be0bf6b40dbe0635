//! The chapter of the document.

use super::*;
use crate::machine::tests::{code, table};

const DEFAULT: Cell = Cell {
    view: ExecutionView {
        retry_count: 0,
        crash_count: 0,
    },
    max_retry: 3,
    max_crash: 10,
    wait: WAITS[0],
    spread_percent: 50,
};

fn span(duration: Duration) -> String {
    // To the millisecond; smaller differences come from the floats.
    if duration.is_zero() {
        return "0s".to_owned();
    }
    let ms = (duration.as_micros() + 500) / 1_000;
    format!("{:?}", Duration::from_millis(ms as u64))
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Succeed => "the step has its output".to_owned(),
        Verdict::Again { delay, .. } if delay.is_zero() => "again at once".to_owned(),
        Verdict::Again { delay, .. } => format!("again after {}", span(delay)),
        Verdict::Fail => "the step fails".to_owned(),
        Verdict::Drop => "nothing".to_owned(),
    }
}

fn spends(ending: Ending) -> &'static str {
    // With a budget that is large enough, the counters show which budget is spent.
    let limits = StepLimits {
        max_retry: 100,
        max_crash: 100,
        backoff: Backoff::default(),
    };
    match decide(DEFAULT.view, ending, &limits, 0.5) {
        Verdict::Again { next, .. } => match (next.retry_count, next.crash_count) {
            (0, 0) => "nothing",
            (1, 0) => "a retry",
            (0, 1) => "a crash",
            _ => unreachable!("one attempt spends at most one thing"),
        },
        Verdict::Fail => "all retries",
        Verdict::Succeed | Verdict::Drop => "nothing",
    }
}

fn name(ending: Ending) -> String {
    match ending {
        Ending::Success => "success".to_owned(),
        Ending::Error {
            retryable,
            retry_after,
        } => {
            let retryable = if retryable {
                "error"
            } else {
                "error, not retryable"
            };
            match retry_after {
                Some(wish) => format!("{retryable}, `retry_after` {}", span(wish)),
                None => retryable.to_owned(),
            }
        }
        Ending::TimedOut => "timed out".to_owned(),
        Ending::Crashed => "crashed".to_owned(),
        Ending::Released { delay } if delay.is_zero() => "released at a shutdown".to_owned(),
        Ending::Released { delay } => format!("could not be started, wait {}", span(delay)),
        Ending::Cancelled => "cancelled".to_owned(),
    }
}

fn costs() -> String {
    let rows = endings().into_iter().map(|ending| {
        let retries = 0..=DEFAULT.max_retry + 1;
        let mut verdicts: Vec<String> = Vec::new();
        for retry_count in retries {
            let mut cell = DEFAULT;
            cell.view.retry_count = retry_count;
            verdicts.push(verdict(actual(cell, ending)));
        }
        let mut row = vec![
            name(ending),
            code(ending.result()),
            spends(ending).to_owned(),
        ];
        row.extend(verdicts);
        row
    });
    let head = [
        "ending",
        "stored as",
        "spends",
        "`retry_count` 0",
        "1",
        "2",
        "3 = `max_retry`",
        "4",
    ];
    table(&head, rows)
}

fn waits() -> String {
    let columns: Vec<String> = WAITS
        .iter()
        .map(|wait| {
            let backoff = wait.backoff();
            format!(
                "{} × {}, max {}, ± {} %",
                span(backoff.initial),
                wait.factor,
                span(backoff.max),
                wait.jitter_percent
            )
        })
        .collect();
    let mut head = vec!["after error"];
    head.extend(columns.iter().map(String::as_str));
    let rows = (1..=8_u32).map(|errors| {
        let mut row = vec![errors.to_string()];
        row.extend(WAITS.map(|wait| {
            let mut waits: Vec<String> = Vec::new();
            for spread_percent in SPREADS {
                let mut cell = DEFAULT;
                cell.max_retry = 100;
                cell.view.retry_count = errors - 1;
                (cell.wait, cell.spread_percent) = (wait, spread_percent);
                let delay = delay(actual(cell, Ending::TimedOut)).expect("within budget");
                waits.push(span(delay));
            }
            waits.dedup();
            waits.join(" · ")
        }));
        row
    });
    table(&head, rows)
}

fn crashes() -> String {
    const BUDGETS: [u32; 6] = [0, 1, 2, 3, 4, 10];
    let columns = BUDGETS.map(|max| format!("`max_crash` {max}"));
    let mut head = vec!["crash"];
    head.extend(columns.iter().map(String::as_str));
    let rows = (1..=11_u32).map(|crash| {
        let mut row = vec![crash.to_string()];
        row.extend(BUDGETS.map(|max_crash| {
            let mut cell = DEFAULT;
            cell.max_crash = max_crash;
            cell.view.crash_count = crash - 1;
            verdict(actual(cell, Ending::Crashed))
        }));
        row
    });
    table(&head, rows)
}

fn reasons() -> String {
    let rows = ExecutionResult::ALL.iter().map(|last| {
        let mut row = vec![code(last)];
        row.extend(CLASSES.map(|class| code(halt_reason(*last, class, false))));
        row.push(code(halt_reason(*last, None, true)));
        row
    });
    table(
        &[
            "last result",
            "no error class",
            "class `step_undefined`",
            "class `ExitStatus(65)`",
            "any other class",
            "tries left, no class or another",
        ],
        rows,
    )
}

pub fn chapter() -> String {
    format!(
        "## 2. The end of an execution\n\n\
         ### Costs\n\n\
         With `max_retry` 3, no crash so far, and the default backoff in the middle of its jitter:\n\n\
         {}\n\
         A step's own `retry_after` is taken as it is: neither `max` nor jitter applies to it.\n\n\
         ### Waits between attempts\n\n\
         The headings are `initial` × `factor`, `max`, ± `jitter`; the cells the shortest, middle\n\
         and longest wait. `max` is applied before the jitter.\n\n\
         {}\n\
         ### Crashes\n\n\
         They never spend a retry. The first third of the budget is tried again at once; then the\n\
         wait grows by `initial` with each (here 10 s), at most to `max`, without jitter.\n\n\
         {}\n\
         ### Why the branch of a failed step halts\n\n\
         Told by the step's last execution. Only `error`, `timed_out` and `process_crashed` are the\n\
         last of a failed step; the others are here because the function is total.\n\n\
         {}",
        costs(),
        waits(),
        crashes(),
        reasons()
    )
}
