//! Problems as JSON, for programs that requested it.
//!
//! Owns: the form of an error on standard error with `--json`. Never: decides what an error is.

use serde_json::{Value, json};

use crate::problem::{Problem, Problems};

use super::exit::Code;

/// The number of problems that are listed one by one.
const SHOWN: usize = 50;

/// One problem.
pub fn of_problem(problem: &Problem) -> Value {
    json!({
        "file": problem.file,
        "line": problem.at.as_ref().map(|at| at.line),
        "column": problem.at.as_ref().map(|at| at.column),
        "message": problem.message,
        "help": problem.help,
    })
}

/// The error that ends a verb: the first problem in full, and all of them in a list.
pub fn of(code: Code, Problems(problems): &Problems) -> Value {
    let first = problems.first().map(of_problem);
    let mut error = first.unwrap_or_else(|| json!({}));
    error["code"] = json!(code.name());
    error["exit_status"] = json!(code as u8);
    error["problems"] = problems.iter().take(SHOWN).map(of_problem).collect();
    error["count"] = json!(problems.len());
    json!({ "error": error })
}

/// The error of a command line that cannot be read.
pub fn of_usage(text: &str) -> Value {
    // The message extends to the first empty line, for example with the missing arguments.
    let (message, help) = text.split_once("\n\n").unwrap_or((text, ""));
    let lines = |text: &'_ str, between: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(between)
    };
    let message = lines(message, " ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let problem = Problem::new(message).help(lines(help, "; "));
    of(Code::Usage, &Problems(vec![problem]))
}
