//! `logs`: the lines that a run's steps have written to standard error.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::model::*;
use crate::problem::{Problem, nearest};
use crate::store::logs::{self, Logged};
use crate::store::{Conn, Purpose, query};
use crate::wire::step::LogJson;

use super::attempt;
use super::exit::Failure;
use super::follow::{self, say};
use super::out::{self, paint, short};
use super::outage::Outages;
use super::setup::{self, CliContext};

/// The pause between two looks at a run that goes on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The number of characters of an error's message that are shown beside its attempt.
const ROOM: usize = 100;

/// Prints what the steps of a run have written to standard error.
#[derive(Debug, clap::Args)]
#[command(
    before_long_help = "Examples:
  ductworkd logs 5d91c07e
  ductworkd logs 5d91c07e LoadUser
  ductworkd logs 5d91c07e --follow
  ductworkd logs 5d91c07e --json | jq -r 'select(.result != \"success\") | .log'
",
    after_help = "The end of each attempt's log is kept: 16 KiB, or 64 KiB where it explains an error. It is \
                  available when the attempt has ended, and is deleted with the run; an attempt that is ended from \
                  outside, with its worker or with a cancelled run, leaves none. With --json, each attempt is a line of its \
                  own."
)]
pub struct Logs {
    /// The run's id, or four or more of its first or last digits
    run: String,
    /// Only the log of this step or node
    step: Option<String>,
    /// Continue until the run has ended
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let config = cli.config()?;
        setup::block_on(async {
            let mut conn = setup::connect(&config, Purpose::Query).await?;
            let run = setup::find_run(&mut conn, &self.run).await?;
            let mut shown = Shown::default();
            let mut outages = Outages::new(config.location()?);
            let status = loop {
                let began = Instant::now();
                match self.look(cli, &mut conn, run, &mut shown).await {
                    Ok(status) if status.is_terminal() || !self.follow => break status,
                    Ok(_) => tokio::time::sleep(follow::pause(began, LOOK_EVERY)).await,
                    Err(failure) if self.follow => {
                        let mut tell = |note: String| say(&note);
                        outages.ride_out(&mut conn, failure, &mut tell).await?;
                    }
                    Err(failure) => return Err(failure),
                }
            };
            match shown.attempts == 0 && !cli.out.json {
                true => cli
                    .out
                    .text(&format!("{}\n", none(status, self.step.as_deref()))),
                false => Ok(()),
            }
        })
    }
}

impl Logs {
    /// Shows new logs; returns the run's state from before that.
    async fn look(
        &self,
        cli: &CliContext,
        conn: &mut Conn,
        run: RunId,
        shown: &mut Shown,
    ) -> Result<RunStatus, Failure> {
        // The state is read first, so that nothing is missed that was written before the end.
        let Some(state) = query::brief(conn, run).await? else {
            return Err(setup::no_run(&run.to_string()));
        };
        let found = shown.show(cli, conn, run, self.step.as_deref()).await?;
        if found == 0 && (state.status.is_terminal() || !self.follow) {
            known(conn, run, self.step.as_deref()).await?;
        }
        Ok(state.status)
    }
}

/// The reason why there is nothing to show.
fn none(status: RunStatus, step: Option<&str>) -> String {
    let wrote = match step {
        Some(step) => format!("the step {} wrote nothing to stderr", out::clean(step)),
        None => "the steps of this run wrote nothing to stderr".to_owned(),
    };
    match status {
        RunStatus::Completed => wrote,
        RunStatus::Halted => format!("{wrote}; an attempt that died with its worker leaves no log"),
        RunStatus::Cancelled => {
            format!(
                "{wrote} before it ended, and an attempt that the cancellation ended leaves no log"
            )
        }
        RunStatus::InProgress | RunStatus::Dampened => {
            "no log yet: a step's log appears when the attempt has ended".to_owned()
        }
    }
}

/// Refuses a name that no step of the run has.
async fn known(conn: &mut Conn, run: RunId, name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else {
        return Ok(());
    };
    let nodes = logs::nodes(conn, run).await?;
    let help = match nearest(name, nodes.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let some: Vec<String> = nodes.iter().take(20).map(|node| short(node, 60)).collect();
            format!("it has reached: {}", some.join(", "))
        }
    };
    let name = short(name, 60);
    let problem = Problem::new(format!("the run {run} has not reached a step `{name}`"));
    Err(Failure::failed(problem.help(help)))
}

/// The attempts that were shown.
#[derive(Default)]
struct Shown {
    attempts: usize,
    /// Steps that will not be attempted again.
    done: HashSet<StepId>,
    /// The last attempt that was shown of each other step.
    last: HashMap<StepId, u32>,
}

impl Shown {
    /// Shows the logs that were not shown yet; returns the number of steps.
    async fn show(
        &mut self,
        cli: &CliContext,
        conn: &mut Conn,
        run: RunId,
        name: Option<&str>,
    ) -> Result<usize, Failure> {
        let all = logs::steps(conn, run, name).await?;
        let new: Vec<(StepId, bool)> = all
            .iter()
            .filter(|(step, _)| !self.done.contains(step))
            .copied()
            .collect();
        for part in new.chunks(logs::STEPS) {
            loop {
                let last = |step: StepId| self.last.get(&step).copied().unwrap_or_default();
                let steps: Vec<_> = part.iter().map(|(step, _)| (*step, last(*step))).collect();
                let read = logs::logs(conn, &steps).await?;
                for logged in &read {
                    print(cli, conn, run, logged, self.attempts > 0).await?;
                    self.attempts += 1;
                    self.last.insert(logged.step_id, logged.attempt);
                }
                if read.len() < logs::LOGS_MAX {
                    break;
                }
            }
            for (step, _) in part.iter().filter(|(_, open)| !open) {
                self.last.remove(step);
                self.done.insert(*step);
            }
        }
        Ok(all.len())
    }
}

async fn print(
    cli: &CliContext,
    conn: &mut Conn,
    run: RunId,
    logged: &Logged,
    follows: bool,
) -> Result<(), Failure> {
    let spreads = query::spreads(conn, logged.branch_id).await?;
    if cli.out.json {
        return cli.out.value(&LogJson::of(run, logged, &spreads));
    }
    // An age needs the database's clock; only a terminal shows one.
    let now = match cli.out.terminal {
        true => query::now(conn).await?,
        false => logged.completed_at,
    };
    cli.out.text(&text(
        logged,
        &attempt::element(&spreads),
        &cli.out.time(logged.completed_at, now),
        follows,
    ))
}

fn text(logged: &Logged, element: &str, when: &str, follows: bool) -> String {
    let style = match logged.result {
        ExecutionResult::Success => out::GOOD,
        ExecutionResult::Cancelled | ExecutionResult::Released => out::DIM,
        _ => out::BAD,
    };
    let mut text = String::new();
    if follows {
        text.push('\n');
    }
    let _ = write!(
        text,
        "{}{}  attempt {}  {}  {}",
        paint(out::BOLD, &short(&logged.node, ROOM)),
        match element {
            "" => String::new(),
            element => format!(", {element}"),
        },
        logged.attempt,
        paint(style, logged.result.as_str()),
        paint(out::DIM, when),
    );
    if let Some(message) = &logged.error_message {
        let _ = write!(text, "  {}", short(message.trim(), ROOM));
    }
    text.push('\n');
    for line in logged.log.lines() {
        let _ = writeln!(text, "  {}", readable(line).trim_end());
    }
    text
}

/// A line as its step meant it: without colours, which would continue after it, and with its tabs.
fn readable(line: &str) -> String {
    let plain = anstream::adapter::strip_str(line).to_string();
    let parts: Vec<String> = plain.split('\t').map(out::clean).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cannot_steer_a_terminal_nor_forge_the_line_of_another_attempt() {
        let logged = Logged {
            execution: ExecutionId::new(),
            step_id: StepId::new(),
            branch_id: BranchId::new(),
            node: "Load".into(),
            step: "Load".into(),
            attempt: 2,
            claimed_at: None,
            completed_at: 1,
            result: ExecutionResult::Error,
            error_class: Some("E".into()),
            error_message: Some("no\nEnd  attempt 9".into()),
            log: "one\r\nEnd  attempt 9\u{1b}[2J\n\u{1b}[31mred\u{1b}[0m\tb\u{202e}\n".into(),
        };
        let plain =
            anstream::adapter::strip_str(&text(&logged, "element 2 of 7", "now", true)).to_string();
        assert_eq!(
            plain,
            "\nLoad, element 2 of 7  attempt 2  error  now  no\\nEnd  attempt 9\n  one\n  End  attempt 9\n  red\tb\\u{202e}\n"
        );
    }
}
