//! Following one run to its end: looking at it, showing it, and reporting its outcome.
//!
//! Owns: the view of a run under way, and the words at its end; `run` and `watch` share them. Never:
//! starts or stops anything.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::definition::Definition;
use crate::machine::halt::{Obstacle, remedy};
use crate::machine::why::answer;
use crate::model::{RunId, RunStatus, Via, short as short_id};
use crate::problem::{Problem, Problems};
use crate::store::query::{self, NodeProgress, Run};
use crate::store::resume::{self, WaitingStep};
use crate::store::revive::prospects;
use crate::store::why::newest;
use crate::store::{self, Conn};
use crate::time;

use super::exit::{Code, Failure};
use super::glyphs::{Glyphs, glyphs};
use super::live::{Frame, Look, Screen, Style, Tree, counted, span};
use super::nobody::Lookout;
use super::out::{clean, short};
use super::outage::Outages;
use super::terminal::Terminal;
use super::{attempt, columns, hint, value};

/// The pause between two looks at the run.
pub const LOOK_EVERY: Duration = Duration::from_millis(80);

/// A look at very many rows takes long: the database gets three times that time for others.
const LOOK_SHARE: u32 = 3;

/// The interval between two lines if there is no terminal to draw on.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// The number of retries that are shown.
const RETRIES: usize = 3;

/// The number of steps that are named at the end.
const TOLD: usize = 5;

/// A terminal with fewer columns shows no picture.
const NARROWEST: usize = 20;

/// The number of lines that are shown of a value to decide on.
const VALUE_LINES: usize = 30;

/// The run as one look found it.
#[derive(Default)]
struct Seen {
    progress: Vec<NodeProgress>,
    retries: Vec<String>,
    status: Option<RunStatus>,
    /// The question, while the run waits for a person.
    asks: Vec<String>,
    /// The daemon is about to stop.
    stopping: bool,
}

impl Seen {
    /// Nothing happens any more unless a person acts.
    fn rests(&self) -> bool {
        match self.status {
            Some(RunStatus::InProgress) => false,
            Some(RunStatus::Dampened) => self.progress.iter().all(|node| node.moving == 0),
            _ => true,
        }
    }
}

/// How a run is followed.
pub struct Follow<'a> {
    /// The run.
    pub run: RunId,
    /// Its definition, frozen.
    pub definition: &'a Definition,
    /// The definition of its pipeline that the configuration has now; only the report of a halted run reads it.
    pub latest: Result<&'a Definition, Obstacle>,
    /// Colours.
    pub style: Style,
    /// Whether a waiting run is followed until somebody has answered.
    pub patient: bool,
    /// The configuration, for a run on which other processes work: the person is told if none does.
    pub others: Option<&'a Config>,
}

impl Follow<'_> {
    /// Whether following ends with a run in this state.
    fn ends_with(&self, seen: &Seen) -> bool {
        seen.rests() && !(self.patient && seen.status == Some(RunStatus::Dampened))
    }
}

/// Follows a run until it rests, whether or not the database is reachable all the time; `None` when the
/// run is gone. `stopping` tells whether the daemon that works on it has been told to stop.
pub async fn to_rest(
    conn: &mut Conn,
    follow: &Follow<'_>,
    view: &mut View<'_>,
    stopping: &dyn Fn() -> bool,
    outages: &mut Outages,
) -> Result<Option<RunStatus>, Failure> {
    let mut lookout = follow.others.map(Lookout::new);
    let mut asked = Asked::default();
    // While the database is away, the picture of the last look stays.
    let mut seen = Seen {
        status: Some(RunStatus::InProgress),
        ..Seen::default()
    };
    loop {
        let began = Instant::now();
        match look(conn, follow, &mut lookout, &mut asked).await {
            Ok(Some((found, notes))) => {
                seen = found;
                view.notes.extend(notes);
            }
            Ok(None) => continue,
            Err(failure) => {
                let mut tell = |note| {
                    view.notes.push(note);
                    view.show(&seen, false);
                };
                outages.ride_out(conn, failure, &mut tell).await?;
                lookout.iter_mut().for_each(Lookout::later);
                continue;
            }
        }
        seen.stopping = stopping();
        let rests = follow.ends_with(&seen);
        view.show(&seen, rests);
        if rests {
            return Ok(seen.status);
        }
        tokio::time::sleep(pause(began, LOOK_EVERY)).await;
    }
}

/// The pause after a look that began at this time, where a quick look is repeated after `every`.
pub fn pause(began: Instant, every: Duration) -> Duration {
    (began.elapsed() * LOOK_SHARE).max(every)
}

/// The questions of a run, and their number: they are read again only if that changes, because each is
/// read with its value.
#[derive(Default)]
struct Asked(u64, Vec<String>);

/// The run as it is, and lines that say why nobody moves it; `None` if it has moved on meanwhile.
async fn look(
    conn: &mut Conn,
    follow: &Follow<'_>,
    lookout: &mut Option<Lookout<'_>>,
    asked: &mut Asked,
) -> Result<Option<(Seen, Vec<String>)>, Failure> {
    let state = query::brief(conn, follow.run).await?;
    let mut seen = Seen {
        progress: query::progress(conn, follow.run).await?,
        status: state.map(|state| state.status),
        ..Seen::default()
    };
    if seen.progress.iter().any(|node| node.retrying > 0) {
        seen.retries = retries(conn, follow.run).await?;
    }
    let waiting: u64 = seen.progress.iter().map(|node| node.waiting).sum();
    if seen.status == Some(RunStatus::Dampened) && waiting != asked.0 {
        *asked = Asked(waiting, questions(conn, follow).await?);
    }
    if seen.status == Some(RunStatus::Dampened) {
        seen.asks = asked.1.clone();
    }
    let ends = follow.ends_with(&seen);
    if ends && seen.status == Some(RunStatus::Dampened) && !still_waits(conn, follow.run).await? {
        return Ok(None);
    }
    let notes = match lookout {
        Some(lookout) if !ends => lookout.look(conn, follow.run).await?,
        _ => Vec::new(),
    };
    Ok(Some((seen, notes)))
}

/// The end of a command that a person has interrupted, for a program: the run goes on.
pub fn interrupted(run: RunId) -> Failure {
    let problem = Problem::new(format!("interrupted; the run {run} goes on"));
    let help = format!("`ductworkd watch {run}` shows it");
    Failure::Problems(Code::Interrupted, Problems(vec![problem.help(help)]))
}

/// Whether a run that waited, and of which nothing went on a moment later, still waits: a person may have
/// answered between the two looks.
pub async fn still_waits(conn: &mut Conn, run: RunId) -> Result<bool, store::Error> {
    let state = query::brief(conn, run).await?;
    Ok(state.is_some_and(|state| state.status == RunStatus::Dampened))
}

/// The retries, as lines.
async fn retries(conn: &mut Conn, run: RunId) -> Result<Vec<String>, store::Error> {
    let mut lines = Vec::new();
    for retry in query::retries(conn, run, RETRIES).await? {
        let element = attempt::element(&query::spreads(conn, retry.branch_id).await?);
        let result = retry.result.map_or("error", |result| result.as_str());
        let error = attempt::told(
            result,
            retry.error_class.as_deref(),
            retry.error_message.as_deref(),
        );
        let mut place = clean(&retry.node);
        if !element.is_empty() {
            place = format!("{place}, {element}");
        }
        let left = retry
            .due_at
            .map(|due| due.saturating_sub(retry.now))
            .filter(|left| *left > 0);
        let when = match left {
            Some(left) => format!("in {}", span(Duration::from_micros(left.unsigned_abs()))),
            None => "now".to_owned(),
        };
        let attempt = retry.attempt;
        lines.push(format!("{place}: {error}; attempt {attempt} {when}"));
    }
    Ok(lines)
}

/// Some of the questions that a run asks.
async fn questions(conn: &mut Conn, follow: &Follow<'_>) -> Result<Vec<String>, store::Error> {
    let waiting = resume::asked(conn, follow.run).await?;
    let asked = waiting.iter().take(RETRIES);
    Ok(asked
        .map(|step| question(step, waiting.len(), follow.definition))
        .collect())
}

/// The name of a waiting step, with the id that `resume --step` takes if several steps wait.
pub fn place(step: &WaitingStep, of: usize) -> String {
    match of {
        0 | 1 => clean(&step.node),
        _ => format!("{} ({})", clean(&step.node), short_id(step.step_id)),
    }
}

/// The question that a waiting step asks; `of` steps wait.
fn question(step: &WaitingStep, of: usize, definition: &Definition) -> String {
    let prompt = definition
        .find(&step.node)
        .and_then(|at| definition.node(at).prompt.clone());
    let deadline = match &step.deadline {
        Some(deadline) => format!(" ({})", clean(&deadline.words())),
        None => String::new(),
    };
    match prompt {
        Some(prompt) => format!("{}: {}{deadline}", place(step, of), short(&prompt, 1_000)),
        None => format!("{}{deadline}", place(step, of)),
    }
}

/// Shows progress: a picture on a terminal, plain lines elsewhere.
pub struct View<'a> {
    follow: &'a Follow<'a>,
    tree: Tree,
    glyphs: &'static Glyphs,
    screen: Option<Screen>,
    terminal: Option<&'a Terminal>,
    hidden: u64,
    /// Lines to show above the picture.
    notes: Vec<String>,
    since: Instant,
    /// When its first step may be claimed, if it was triggered for later.
    due: Option<Instant>,
    frame: usize,
    said: Vec<String>,
    last_said: Option<Instant>,
    said_stopping: bool,
}

/// Standard error is a terminal that can show a picture.
pub fn is_drawable() -> bool {
    hindrance().is_none()
}

/// The reason why standard error cannot show a picture, if there is one.
pub fn hindrance() -> Option<String> {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let size = terminal_size::terminal_size_of(std::io::stderr());
    let columns = size.map_or(0, |(width, _)| usize::from(width.0));
    hinders(std::io::stderr().is_terminal(), dumb, columns)
}

/// The reason why standard error cannot show a picture: it is no terminal, its terminal is dumb, or it has too few
/// columns (0: their number is unknown). None if it can.
fn hinders(terminal: bool, dumb: bool, columns: usize) -> Option<String> {
    match (terminal, dumb) {
        (false, _) => Some("standard error is not one".to_owned()),
        (true, true) => Some("TERM is `dumb`: this one cannot be drawn on".to_owned()),
        (true, false) if (1..NARROWEST).contains(&columns) => Some(format!(
            "this one has {columns} columns: it needs {NARROWEST}"
        )),
        (true, false) => None,
    }
}

impl<'a> View<'a> {
    /// A picture on `screen`, with the lines that `terminal` catches above it; or plain lines.
    pub fn new(
        follow: &'a Follow<'a>,
        screen: Option<Screen>,
        terminal: Option<&'a Terminal>,
    ) -> Self {
        Self {
            follow,
            tree: Tree::of(follow.definition),
            glyphs: glyphs(),
            screen,
            terminal,
            hidden: 0,
            notes: Vec::new(),
            since: Instant::now(),
            due: None,
            frame: 0,
            said: Vec::new(),
            last_said: None,
            said_stopping: false,
        }
    }

    /// The same, for a run that was there before.
    pub fn of(mut self, run: &Run, now: i64) -> Self {
        let age = time::between(run.triggered_at, run.ended_at().unwrap_or(now));
        self.since = self.since.checked_sub(age).unwrap_or(self.since);
        let within = run.due_at.map(|at| time::between(now, at));
        self.due = within.and_then(|within| Instant::now().checked_add(within));
        self
    }

    /// The time until a run begins that was triggered for later, in words.
    fn begins(&self, seen: &Seen) -> Option<String> {
        let left = self.due?.checked_duration_since(Instant::now())?;
        let waits = seen.status == Some(RunStatus::InProgress);
        waits.then(|| format!("begins in {}", time::whole(left)))
    }

    fn show(&mut self, seen: &Seen, rests: bool) {
        let took = span(self.since.elapsed());
        let Some(mut screen) = self.screen.take() else {
            return self.say(seen, rests, &took);
        };
        let style = self.follow.style;
        let above = self.above();
        let (_, columns) = screen.size();
        let look = Look {
            frame: self.frame,
            style,
            glyphs: self.glyphs,
            columns,
        };
        let pipeline = style.bold(&clean(&self.follow.definition.pipeline));
        let id = style.dim(&short_id(self.follow.run));
        screen.draw(
            &above,
            &Frame {
                title: format!("{pipeline} {id}"),
                rows: self.tree.lines(&seen.progress, look),
                first: self.tree.first_open(&seen.progress),
                last: self.last(seen, rests, &took),
                ended: rests,
            },
        );
        self.screen = Some(screen);
        self.frame += 1;
    }

    /// The lines below a picture: the state of the run, and its events.
    fn last(&self, seen: &Seen, rests: bool, took: &str) -> Vec<String> {
        let style = self.follow.style;
        let state = match seen.status {
            Some(RunStatus::Completed) => style.green("completed"),
            Some(RunStatus::Halted) => style.red("halted"),
            Some(RunStatus::InProgress) => style.yellow("running"),
            Some(RunStatus::Dampened) => style.yellow("waiting"),
            Some(other) => other.to_string(),
            None => "gone".to_owned(),
        };
        let mut lines = vec![match self.begins(seen) {
            Some(begins) => format!("{}  {begins}", style.yellow("scheduled")),
            None => format!("{state}  {}  {took}", summary(&seen.progress)),
        }];
        if seen.stopping && !rests {
            lines.push(style.yellow(&stopping(&seen.progress)));
        }
        let again = self.glyphs.again;
        if !rests {
            lines.extend(
                seen.retries
                    .iter()
                    .map(|line| style.dim(&format!("{again} {line}"))),
            );
        }
        if !rests && !seen.asks.is_empty() {
            let (asks, id) = (self.glyphs.asks, short_id(self.follow.run));
            lines.extend(
                seen.asks
                    .iter()
                    .map(|line| style.yellow(&format!("{asks} {line}"))),
            );
            let answer = answer(&id, seen.asks.len());
            lines.push(hint::pasteable(&format!("answer: {answer}")));
        }
        if self.hidden > 0 && rests && seen.status != Some(RunStatus::Completed) {
            let (hidden, id) = (counted(self.hidden, "log line"), short_id(self.follow.run));
            let text = format!("{hidden} hidden; see them with: ductworkd logs {id}");
            lines.push(style.dim(&hint::pasteable(&text)));
        }
        lines
    }

    /// The lines of the log that are shown.
    fn above(&mut self) -> Vec<String> {
        let mut shown = std::mem::take(&mut self.notes);
        if let Some(terminal) = self.terminal {
            let lines = terminal.lines(Some(self.follow.run));
            self.hidden += lines.hidden;
            shown.extend(lines.shown);
        }
        shown
    }

    /// The changes, at most once a second.
    fn say(&mut self, seen: &Seen, rests: bool, took: &str) {
        for note in self.notes.drain(..) {
            say(&note);
        }
        if rests {
            let status = match seen.status {
                Some(status) => crate::view::word(status),
                None => "gone",
            };
            return say(&format!("{status}: {} in {took}", summary(&seen.progress)));
        }
        if seen.stopping && !std::mem::replace(&mut self.said_stopping, true) {
            say(&stopping(&seen.progress));
        }
        if self
            .last_said
            .is_some_and(|last| last.elapsed() < SAY_EVERY)
        {
            return;
        }
        let node = |node: &NodeProgress| {
            let retried = match node.retrying {
                0 => String::new(),
                n => format!(" ({n} retrying)"),
            };
            format!("{} {}/{}{retried}", node.node, node.completed, node.total)
        };
        let now: Vec<String> = seen
            .progress
            .iter()
            .map(node)
            .chain(seen.asks.iter().cloned())
            .collect();
        if now != self.said {
            let begins = self.begins(seen).map(|begins| format!(", {begins}"));
            let begins = begins.unwrap_or_default();
            say(&format!("{took}: {}{begins}", now.join(", ")));
            self.said = now;
        }
        self.last_said = Some(Instant::now());
    }
}

/// Gives the terminal back, with the lines that came last, even if following ends early.
impl Drop for View<'_> {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal {
            terminal.give_back();
            for line in self.above() {
                say(&line);
            }
        }
    }
}

/// The steps of a run in a few words. Steps beside its flow do not count: whether one has run by the end
/// of the run is a matter of milliseconds.
fn summary(progress: &[NodeProgress]) -> String {
    let is_hook = |node: &&NodeProgress| node.via.parse().is_ok_and(Via::is_hook);
    let flow = || progress.iter().filter(|node| !is_hook(node));
    let sum = |of: fn(&NodeProgress) -> u64| flow().map(of).sum::<u64>();
    let (done, failed) = (sum(|node| node.completed), sum(|node| node.failed));
    match failed {
        0 => counted(done, "step"),
        _ => format!("{} completed, {failed} failed", counted(done, "step")),
    }
}

/// The steps for which a stop waits, and how to stop at once.
fn stopping(progress: &[NodeProgress]) -> String {
    let running: Vec<String> = progress
        .iter()
        .filter(|node| node.running > 0)
        .map(|node| match node.running {
            1 => clean(&node.node),
            n => format!("{} ({n})", clean(&node.node)),
        })
        .collect();
    let waits = match running.is_empty() {
        true => "stopping".to_owned(),
        false => format!(
            "stopping: waiting for running steps: {}",
            running.join(", ")
        ),
    };
    format!("{waits}; Ctrl-C again stops at once")
}

/// Reports the outcome of a run that rests; the error is the exit status with which the command ends.
pub async fn report(
    conn: &mut Conn,
    follow: &Follow<'_>,
    status: Option<RunStatus>,
) -> Result<(), Failure> {
    let (style, run) = (follow.style, follow.run);
    let id = short_id(run);
    match status {
        Some(RunStatus::Completed) => return Ok(()),
        Some(RunStatus::Halted) => {
            say(&style.red(&format!("run {id} halted")));
            let failed = query::failed_steps(conn, run, TOLD + 1).await?;
            for step in failed.iter().take(TOLD) {
                let element = attempt::element(&query::spreads(conn, step.branch_id).await?);
                let mut place = clean(&step.node);
                if !element.is_empty() {
                    place = format!("{place}, {element}");
                }
                let attempts = counted(step.attempts(), "attempt");
                let error = step.executions.iter().rev().find_map(attempt::error);
                let error = error.unwrap_or_else(|| "no error was reported".to_owned());
                say(&format!("  {place} ({attempts}): {error}"));
                if let Some(advice) = step.executions.iter().rev().find_map(attempt::advice) {
                    say(&format!("    {}", clean(advice)));
                }
            }
            if failed.len() > TOLD {
                say("  and more");
            }
            // A key may have led to a run of an earlier definition.
            let own = super::why::own_definition(conn, run).await?;
            let halts = super::why::halts(conn, run, own.as_deref()).await?;
            let mut others = halts.iter().filter(|halt| !halt.fact.is_of_step());
            for halt in others.by_ref().take(TOLD) {
                let explanation = halt.explanation.as_deref().unwrap_or_default();
                say(&clean(&format!("  {}: {explanation}", halt.fact.reason)));
            }
            if others.next().is_some() {
                say("  and more");
            }
            let facts: Vec<_> = halts.into_iter().map(|halt| halt.fact).collect();
            say(&format!("  look at it:  ductworkd show {id}"));
            match newest(conn, run).await? {
                newest if newest != run => say(&format!("  revived as:  ductworkd watch {newest}")),
                _ => {
                    let prospects = prospects(conn, run, follow.latest.clone()).await?;
                    let remedy = remedy(&facts, own.as_deref(), run, &prospects);
                    say(&format!("  go on:       {}", clean(&remedy)));
                }
            }
        }
        Some(RunStatus::Dampened) => {
            say(&style.yellow(&format!("run {id} waits for a person")));
            let waiting = resume::waiting(conn, run).await?;
            for step in waiting.iter().take(TOLD) {
                let question = question(step, waiting.len(), follow.definition);
                say(&format!("  {question}"));
                for line in decide(step, style) {
                    say(&format!("    {line}"));
                }
            }
            say(&format!("  answer:  {}", answer(&id, waiting.len())));
            return Err(Failure::Quiet(Code::Waiting));
        }
        Some(status) => say(&format!("run {id} is {status}")),
        None => say(&format!(
            "run {id} is gone: it was pruned, or a backup of the database was restored"
        )),
    }
    Err(Failure::Quiet(Code::Failed))
}

/// The lines of the value that a person decides on.
pub fn decide(step: &WaitingStep, style: Style) -> Vec<String> {
    let Some(input) = &step.input else {
        return Vec::new();
    };
    let size = terminal_size::terminal_size_of(std::io::stderr());
    let room = size.map_or(80, |(width, _)| usize::from(width.0).max(40));
    let Ok(value) = serde_json::value::RawValue::from_string(input.clone()) else {
        // It is the beginning of a long value.
        return vec![columns::cut_with(&clean(input), room - 4, glyphs().more)];
    };
    let text = value::lines(&value, room - 4);
    let text = match style.colour {
        true => text,
        false => anstream::adapter::strip_str(&text).to_string(),
    };
    let lines = text.lines().take(VALUE_LINES);
    lines
        .map(|line| columns::cut_with(line, room - 4, glyphs().more))
        .collect()
}

/// Prints a line for people. If nobody reads it, it is lost; a run is not given up for that.
pub fn say(line: &str) {
    let line = format!("{}\n", hint::pasteable(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::yaml;

    #[test]
    fn a_picture_says_when_a_run_begins_that_was_triggered_for_later() {
        let text = "pipeline: P\nsteps: { A: { command: [cat] } }\nflow: [{ start: A }]\n";
        let definition = yaml::parse(text, std::path::Path::new("p.yml")).unwrap();
        let follow = Follow {
            run: RunId::new(),
            definition: &definition,
            latest: Ok(&definition),
            style: Style { colour: false },
            patient: true,
            others: None,
        };
        let mut view = View::new(&follow, None, None);
        let mut seen = Seen {
            status: Some(RunStatus::InProgress),
            ..Seen::default()
        };
        assert_eq!(
            view.last(&seen, false, "6.3 s"),
            ["running  0 steps  6.3 s"]
        );
        view.due = Some(Instant::now() + Duration::from_secs(7_199));
        let last = view.last(&seen, false, "6.3 s");
        assert_eq!(last, ["scheduled  begins in 1h 59m"]);
        // It was cancelled before it began.
        seen.status = Some(RunStatus::Cancelled);
        assert_eq!(view.last(&seen, true, "7 s"), ["cancelled  0 steps  7 s"]);
    }
}
