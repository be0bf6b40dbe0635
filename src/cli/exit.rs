//! The end of a command that fails: its message, and its exit code.
//!
//! Owns: the one place where errors become exit codes. Never: prints to standard output.

use std::io::Write;
use std::process::ExitCode;
use std::sync::OnceLock;

use crate::problem::{Problem, Problems};
use crate::{config, process, store, telemetry};

use super::refusal;

/// The meaning of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command failed: not found, halted, unhealthy.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// The run waits for a person.
    Waiting = 3,
    /// The command was told to stop before the run had ended or the copy was complete: SIGINT, by the
    /// shell's convention.
    Interrupted = 130,
    /// The database cannot be reached (EX_UNAVAILABLE).
    Unavailable = 69,
}

impl Code {
    /// Its name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The reason why a command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// These problems, and the code that says who has to solve them.
    Problems(Code, Problems),
    /// Everything was printed on standard output already.
    Quiet(Code),
    /// Nobody reads the output: a pager was closed, or `head` has read enough.
    NobodyReads,
}

impl Failure {
    /// The command failed.
    pub fn failed(problem: Problem) -> Self {
        Self::Problems(Code::Failed, Problems(vec![problem]))
    }

    /// The command was used wrongly.
    pub fn usage(problem: Problem) -> Self {
        Self::Problems(Code::Usage, Problems(vec![problem]))
    }

    /// The same with this help.
    pub fn help(mut self, help: &str) -> Self {
        if let Self::Problems(_, problems) = &mut self {
            for problem in &mut problems.0 {
                problem.help = Some(help.to_owned());
            }
        }
        self
    }

    /// Prints the problems, as JSON if that was requested; returns the exit code.
    pub fn report(self, json: bool) -> ExitCode {
        match self {
            Self::Problems(code, mut problems) => {
                for problem in &mut problems.0 {
                    problem.help = problem.help.as_deref().map(super::hint::pasteable);
                }
                // If standard error is closed, there is nobody to tell. One write: each part would be a
                // system call of its own.
                let text = match json {
                    true => format!("{}\n", refusal::of(code, &problems)),
                    false => format!("{problems}\n"),
                };
                let _ = std::io::stderr().write_all(text.as_bytes());
                ExitCode::from(code as u8)
            }
            Self::Quiet(code) => ExitCode::from(code as u8),
            Self::NobodyReads => ExitCode::SUCCESS,
        }
    }
}

/// The verdict of a command whose output was printed like this. That nobody has read the output makes no bad verdict
/// good.
pub fn verdict(printed: Result<(), Failure>, verdict: Result<(), Failure>) -> Result<(), Failure> {
    match (printed, verdict) {
        (Err(Failure::NobodyReads), Err(bad)) => Err(bad),
        (printed, verdict) => printed.and(verdict),
    }
}

/// The verdict of a command that has printed all that there is to say.
pub fn quietly(fine: bool, code: Code) -> Result<(), Failure> {
    match fine {
        true => Ok(()),
        false => Err(Failure::Quiet(code)),
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Problems(Code::Usage, problems)
    }
}

/// The server that this command speaks to.
struct Server {
    kind: &'static str,
    place: String,
    /// The name of the place from which its address comes.
    origin: String,
}

static SERVER: OnceLock<Server> = OnceLock::new();

/// The variable from which the address of a file comes.
static VARIABLE: OnceLock<String> = OnceLock::new();

/// Remembers the server, or the variable that names a file, for messages about a database that cannot be used.
pub fn remember(database: &config::Database) {
    if let Some((kind, place)) = database.url.server() {
        let origin = database.origin.clone();
        // The first configuration of a process is its only one.
        let _ = SERVER.set(Server {
            kind,
            place,
            origin,
        });
    } else if database.is_from_variable() {
        let _ = VARIABLE.set(database.origin.clone());
    }
}

/// The help for a change of which nobody knows whether it was made.
const UNKNOWN: &str = "the database did not say whether the change was committed, so it may have been made: look before you \
    give the command again (a trigger with the same `--key` is safe)";

/// A remedy that names the server, and the place where its address is written.
fn located(remedy: &str) -> String {
    match SERVER.get() {
        Some(Server {
            kind,
            place,
            origin,
        }) => match remedy.contains("the server is running") {
            true => remedy
                .replace(
                    "the server is running",
                    &format!("a {kind} server is running at {place}"),
                )
                .replace("`database.url`", &format!("the URL (from {origin})")),
            false => remedy.replace(
                "`database.url`",
                &format!("the URL of {place} (from {origin})"),
            ),
        },
        // SQLite has no server.
        None if remedy.contains("the server is running") => {
            "another process has probably locked the database's file; `fuser` names the processes that have it open".to_owned()
        }
        None => match VARIABLE.get() {
            Some(variable) => remedy.replace("`database.url`", variable),
            None => remedy.to_owned(),
        },
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let problem = Problem::new(one_line(&telemetry::chain(&error)));
        let remedy = error.remedy();
        let is_cut_short = error.is_cut_short();
        match error {
            store::Error::Unavailable { source, in_commit } => {
                let remedy = located(source.remedy());
                let help = match in_commit {
                    true => format!("{UNKNOWN}; {remedy}"),
                    false => remedy,
                };
                Self::Problems(Code::Unavailable, Problems(vec![problem.help(help)]))
            }
            store::Error::Gone(_) => {
                Self::failed(problem.help("nothing is wrong: give the same command again"))
            }
            store::Error::LeftBehind(_) => {
                Self::failed(problem.help("nobody uses it any more: remove it by hand"))
            }
            store::Error::Hindered { source, .. } if source.is_damage() => Self::Problems(
                Code::Unavailable,
                Problems(vec![problem.help(source.remedy())]),
            ),
            _ if is_cut_short => Self::failed(problem.help(
                "somebody has ended the query, or it reached the server's time limit: try again",
            )),
            store::Error::Hindered { .. } => Self::failed(problem.help(
                "nothing was written; fix what the database reports, or wait, and try again",
            )),
            store::Error::Retryable { .. } => Self::failed(problem.help(
                "another session has held a lock for a long time: `ductworkd health` names it, if the database tells; \
                 try again when it is free",
            )),
            store::Error::Damaged { .. } => Self::failed(problem.help(remedy.unwrap_or_default())),
            // A service manager does not restart the daemon for this either.
            store::Error::Misplaced(_) | store::Error::Configured(_) => Self::usage(problem),
            _ => Self::failed(problem),
        }
    }
}

impl From<process::start::Error> for Failure {
    fn from(error: process::start::Error) -> Self {
        match error {
            process::start::Error::Problems(problems) => problems.into(),
            process::start::Error::Store(error) => error.into(),
            error => Self::failed(Problem::new(one_line(&telemetry::chain(&error)))),
        }
    }
}

/// Errors of databases may have several lines; a problem has one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code of an error of the database, its first line and its remedy.
    fn told(error: store::Error) -> (Code, String) {
        match Failure::from(error) {
            Failure::Problems(code, problems) => (code, problems.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_error_of_the_database_says_what_a_person_can_do_about_it() {
        let text = || "it is so".to_owned();
        let (code, gone) = told(store::Error::Gone(text()));
        assert_eq!(code, Code::Failed);
        assert!(
            gone.contains("it is so") && gone.contains("give the same command again"),
            "{gone}"
        );
        let (code, left) = told(store::Error::LeftBehind(text()));
        assert_eq!(code, Code::Failed);
        assert!(left.contains("remove it by hand"), "{left}");
        let (code, locked) = told(store::Error::Retryable {
            statement: "TRIGGER",
            source: std::sync::Arc::new(std::io::Error::other("locked").into()),
        });
        assert_eq!(code, Code::Failed);
        assert!(locked.contains("`ductworkd health` names it"), "{locked}");
        for in_commit in [false, true] {
            let (code, lost) = told(store::Error::Unavailable {
                source: std::sync::Arc::new(std::io::Error::other("reset").into()),
                in_commit,
            });
            assert_eq!(code, Code::Unavailable);
            assert_eq!(lost.contains("may have been made"), in_commit, "{lost}");
        }
        assert_eq!(told(store::Error::Configured(text())).0, Code::Usage);
        assert_eq!(told(store::Error::Schema(text())).0, Code::Failed);
    }
}
