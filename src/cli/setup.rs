//! The needs of most commands: the configuration, a connection, a run by its id, the wakeups.
//!
//! Owns: how the command line gets these. Never: prints a result.

use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::config::{Config, keys};
use crate::definition::Definition;
use crate::definition::input::{VIOLATIONS_MAX, Violation, halves};
use crate::machine::halt;
use crate::model::{ProcessId, RunId, RunStatus};
use crate::number::grouped;
use crate::problem::{Problem, Problems, nearest};
use crate::process::start;
use crate::process::wakeup::Wakeup;
use crate::process::writer::{self, Writer};
use crate::store::bulk;
use crate::store::patience;
use crate::store::process::ProcessRow;
use crate::store::query::{self, FEWEST_DIGITS, Found, NEWEST};
use crate::store::why;
use crate::store::writable::Locked;
use crate::store::{self, Conn, Location, Purpose, migrate};
use crate::time;
use crate::view::{continued, word};

use super::Embedded;
use super::exit::{self, Failure};
use super::follow::say;
use super::live::counted;
use super::out::{Out, clean, short};
use super::patiently::{tell, waiting};

/// A command that waits for longer than this tells for whom.
const UNUSUAL: Duration = Duration::from_secs(6);

/// Shown while the database does not answer.
pub const CONNECTING: &str = "waiting for the database";

/// True where a person reads the results, and no program.
static FOR_PEOPLE: OnceLock<bool> = OnceLock::new();

/// The context of every command: its global options, and the program to which it belongs.
pub struct CliContext {
    /// `-c`.
    pub file: Option<PathBuf>,
    /// `-e`.
    pub env: Option<String>,
    /// The requested form of output.
    pub out: Out,
    /// The program's own pipelines and steps.
    pub embedded: Embedded,
}

impl CliContext {
    /// The configuration.
    pub fn config(&self) -> Result<Config, Failure> {
        let config = Config::load_here(self.file.clone(), self.env.clone())?;
        exit::remember(&config.database);
        // The first configuration of a process is its only one.
        let _ = FOR_PEOPLE.set(!self.out.json);
        Ok(config)
    }

    /// The configuration, with the value that an option gives to a key.
    pub fn config_with(&self, key: &str, value: &str, option: &str) -> Result<Config, Failure> {
        let variable = keys::variable(key);
        let (file, env) = (self.file.clone(), self.env.clone());
        let read = Config::load_here_with(file, env, (&variable, value));
        let config = read.map_err(|mut problems| {
            for problem in &mut problems.0 {
                if let Some(rest) = problem.message.strip_prefix(&variable) {
                    problem.message = format!("{option}{rest}");
                }
            }
            problems
        })?;
        exit::remember(&config.database);
        Ok(config)
    }

    /// The definition that the configuration has of this pipeline, if it has one that can be used: a mistake in a file
    /// keeps no run from going on with its own definition.
    pub fn latest(&self, config: &Config, name: &str) -> Result<Definition, halt::Obstacle> {
        let (usable, problems) = start::usable(config, &self.embedded);
        let found = usable.into_iter().find(|it| it.pipeline == name);
        found.ok_or_else(|| match problems.first().and_then(Problem::place) {
            Some(place) => halt::Obstacle::Mistake(place),
            None => halt::Obstacle::Gone,
        })
    }

    /// The definition of the pipeline with this name, and a note if another pipeline's file has a mistake, which does
    /// not affect this one.
    pub fn pipeline(
        &self,
        config: &Config,
        name: &str,
    ) -> Result<(Definition, Option<String>), Failure> {
        let (usable, problems) = start::usable(config, &self.embedded);
        match find_pipeline(&usable, name, config) {
            Ok(found) => {
                let note = problems.first().and_then(Problem::place).map(|place| {
                    format!(
                        "note: the file of another pipeline has a mistake ({}): `ductworkd check` explains it",
                        clean(&place)
                    )
                });
                Ok((found.clone(), note))
            }
            Err(missing) if problems.is_empty() => Err(missing),
            // The faulty file may define the requested pipeline.
            Err(_) => Err(start::Error::from(Problems(problems)).into()),
        }
    }
}

/// A connection to a database that exists and has the schema of this program.
pub async fn connect(config: &Config, purpose: Purpose) -> Result<Conn, Failure> {
    exists(config)?;
    let location = config.location()?;
    let conn = waiting(CONNECTING, async {
        let mut conn = location.connect(purpose).await?;
        match migrate::check(&mut conn).await {
            Err(store::Error::Schema(fact)) => Err(unusable(&mut conn, config, &fact).await),
            checked => checked.map(|()| conn).map_err(Failure::from),
        }
    });
    let conn = conn.await?;
    if matches!(purpose, Purpose::Engine) {
        note_elsewhere(config);
    }
    Ok(conn)
}

/// The failure that the schema of this database is not the one of this program: another database may be meant.
async fn unusable(conn: &mut Conn, config: &Config, fact: &str) -> Failure {
    let (url, origin) = (&config.database.url, config.origin());
    let is_empty = migrate::applied(conn).await.is_ok_and(|it| it.is_empty());
    if !is_empty {
        let place = format!("the database {url} ({origin})");
        let fact = fact.replacen("the database", &place, 1);
        return Failure::failed(Problem::new(clean(&fact)));
    }
    let problem = Problem::new(clean(&format!(
        "the database {url} has no tables of Ductwork ({origin})"
    )));
    let other = match (&config.database.outranked, &config.database.origin) {
        (Some(_), origin) => format!("for the database of the file, unset {origin}"),
        (None, _) if config.database.is_default() => {
            "for another database, set `database.url`".to_owned()
        }
        (None, origin) => format!("for another database, correct {origin}"),
    };
    Failure::failed(problem.help(format!("`ductworkd migrate` makes them there; {other}")))
}

/// Tells a person whose command changes something that `DATABASE_URL`, which may be meant for another program, names
/// another database than the file.
pub fn note_elsewhere(config: &Config) {
    if let Some(elsewhere) = config.elsewhere()
        && std::io::stderr().is_terminal()
        && FOR_PEOPLE.get() == Some(&true)
    {
        say(&format!("note: the database is {}", clean(&elsewhere)));
    }
}

/// A connection to a database that is created or upgraded if necessary.
pub async fn connect_or_create(config: &Config, purpose: Purpose) -> Result<Conn, Failure> {
    let location = config.location()?;
    waiting(CONNECTING, async {
        let mut conn = location.connect(purpose).await?;
        match migrate::check(&mut conn).await {
            Err(store::Error::Schema(_)) => {
                note_creation(&mut conn, config).await?;
                let is_new = migrate::applied(&mut conn).await?.is_empty();
                let applied = migrate::migrate(&mut conn).await?;
                let url = &config.database.url;
                // Perhaps the name of the database is mistyped: daemons work in another one of the server.
                if is_new && url.sqlite_path().is_none() && config.elsewhere().is_none() {
                    let url = clean(&url.to_string());
                    say(&format!(
                        "note: {url} had no tables of Ductwork: they were created"
                    ));
                }
                // A database without runs was created just now, here or by a daemon beside this command.
                if !applied.is_empty() && bulk::newest(&mut conn).await? != RunId(Uuid::nil()) {
                    let n = counted(applied.len() as u64, "migration");
                    say(&format!(
                        "note: the database was upgraded by {n}, as `ductworkd migrate` does"
                    ));
                }
            }
            other => {
                other?;
                note_elsewhere(config);
            }
        }
        Ok(conn)
    })
    .await
}

/// Says so if the tables are about to be created or changed in another database than the one that the file names.
pub async fn note_creation(conn: &mut Conn, config: &Config) -> Result<(), store::Error> {
    match config.note_of_creation() {
        Some(note) if migrate::applied(conn).await?.is_empty() => {
            say(&format!("note: {}", clean(&note)));
        }
        _ => note_elsewhere(config),
    }
    Ok(())
}

/// The lock that made a command fail, if a lock did: the command began at `began`, has waited for a lock as long as it
/// may, and the lock still exists.
pub async fn lock_in_the_way(config: &Config, failure: &Failure, began: Instant) -> Option<Locked> {
    // Other failures come at once, and a quiet failure has given its answer already.
    if began.elapsed() < patience::LOOK || !matches!(failure, Failure::Problems(..)) {
        return None;
    }
    let mut conn = config.location().ok()?.connect(Purpose::Look).await.ok()?;
    store::writable::locked(&mut conn).await.ok()?
}

/// The reason why nobody can write.
pub struct Obstacle {
    /// A description.
    pub fact: String,
    /// The process, if one process is the reason.
    pub writer: Option<Writer>,
    /// The remedy, if a process or a session has a lock.
    pub remedy: Option<String>,
    /// Nobody can write anything, also no heartbeat.
    pub is_total: bool,
}

impl Obstacle {
    fn of(fact: String) -> Self {
        Self {
            fact,
            writer: None,
            remedy: None,
            is_total: false,
        }
    }
}

impl From<Locked> for Obstacle {
    fn from(locked: Locked) -> Self {
        Self {
            remedy: Some(locked.remedy()),
            ..Self::of(locked.fact)
        }
    }
}

/// The remedy where a process has SQLite's lock.
const END_WRITER: &str = "wait until it has ended its transaction, or end it";

fn held_by(writer: &Writer) -> String {
    format!("{writer} holds SQLite's write lock, so nobody else can write")
}

/// The reason why nobody can write, if nobody has written for a lease.
pub async fn obstacle(
    conn: &mut Conn,
    config: &Config,
    processes: &[ProcessRow],
) -> Result<Option<Obstacle>, Failure> {
    if let Some((writer, is_total)) = kept_out(config, processes).await {
        let text = match is_total {
            true => held_by(&writer),
            false => format!(
                "{writer} takes SQLite's write lock again and again, so others rarely get it"
            ),
        };
        return Ok(Some(Obstacle {
            writer: Some(writer),
            remedy: Some(END_WRITER.to_owned()),
            is_total,
            ..Obstacle::of(text)
        }));
    }
    // Heartbeats are written to one table, and work to others.
    if let Some(locked) = store::writable::locked(conn).await? {
        return Ok(Some(locked.into()));
    }
    let location = config.location()?;
    if let Some(full) = store::writable::full(&location) {
        return Ok(Some(Obstacle {
            is_total: true,
            ..Obstacle::of(full)
        }));
    }
    let lease = config.supervisor.reaper_timeout;
    // A recent heartbeat disproves this, however it looks to this session or on this disk.
    if processes.iter().any(|process| process.age < lease) {
        return Ok(None);
    }
    let refused = store::writable::refused(conn, &location).await?;
    Ok(refused.map(|fact| Obstacle {
        is_total: true,
        ..Obstacle::of(fact)
    }))
}

/// The silent processes that cannot beat, because somebody has locked their rows. If the database cannot answer that
/// in time, none of them can write.
pub async fn locked_rows(
    conn: &mut Conn,
    processes: &[ProcessRow],
    lease: Duration,
) -> Result<Vec<ProcessId>, Failure> {
    let silent = processes.iter().filter(|process| process.age >= lease);
    let silent: Vec<ProcessId> = silent.map(|process| process.id).collect();
    if silent.is_empty() {
        return Ok(silent);
    }
    match store::process::kept_from_beating(conn, silent.clone()).await {
        Err(error) if error.is_not_now() && !conn.is_broken() => Ok(silent),
        kept => Ok(kept?),
    }
}

/// The process that keeps others from writing, and whether it keeps out all of ours: it holds SQLite's lock, and a
/// process of ours has written no heartbeat for a lease. While some of ours get through, it is a program that has the lock
/// again and again, and one look could meet anybody who writes.
async fn kept_out(config: &Config, processes: &[ProcessRow]) -> Option<(Writer, bool)> {
    let lease = config.supervisor.reaper_timeout;
    let silent = processes.iter().filter(|it| it.age >= lease).count();
    let path = config.database.url.sqlite_path().filter(|_| silent > 0)?;
    if silent == processes.len() {
        return writer::of(path).map(|writer| (writer, true));
    }
    let writer = lasting_writer(path).await?;
    let mut ours = processes.iter().map(|it| it.pid);
    (!ours.any(|pid| pid == writer.pid.unsigned_abs())).then_some((writer, false))
}

/// The process that has SQLite's lock at two looks: one look meets anybody who writes.
async fn lasting_writer(path: &Path) -> Option<Writer> {
    const AGAIN: Duration = Duration::from_millis(200);
    let first = writer::of(path)?;
    tokio::time::sleep(AGAIN).await;
    writer::of(path).filter(|again| again.pid == first.pid)
}

/// Checks that the database exists, or that somebody has named it: a command in the wrong directory must not make one,
/// which no daemon would use.
pub fn exists_or_is_named(config: &Config) -> Result<(), Failure> {
    match config.file.is_none() && config.database.is_default() {
        true => exists(config),
        false => Ok(()),
    }
}

/// The remedy for a command in the wrong directory.
const NOT_HERE: &str =
    "there is no ductwork.yml here: name one with -c, or change to its directory";

/// Checks that the database exists: a command that only reads must not leave an empty one behind.
pub fn exists(config: &Config) -> Result<(), Failure> {
    match config.database.url.sqlite_path() {
        Some(path) if !path.exists() => {
            store::backend::sqlite::file::File::at(path.to_owned()).check()?;
            let mut message = format!("there is no database yet at {}", path.display());
            let database = &config.database;
            if database.is_from_variable() {
                message.push_str(&format!(" ({})", config.origin()));
            }
            let correct = match database.is_from_variable() {
                true => {
                    let origin = &database.origin;
                    format!(
                        "its directory does not exist either: make it, or correct or unset {origin}"
                    )
                }
                false => "its directory does not exist either: make it, or correct `database.url`"
                    .to_owned(),
            };
            let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
            let help = match directory {
                Some(directory) if !directory.is_dir() => correct.as_str(),
                _ if config.file.is_none() => &format!(
                    "{NOT_HERE}. Without one, `ductworkd` creates this database when it starts"
                ),
                _ => "`ductworkd` makes it when it starts, and so does `ductworkd migrate`",
            };
            let problem = Problem::new(message);
            Err(Failure::failed(match start::use_above(config) {
                Some(above) => problem.help(above),
                None => problem.help(help),
            }))
        }
        _ => Ok(()),
    }
}

/// The run whose id begins or ends with these digits.
pub async fn find_run(conn: &mut Conn, given: &str) -> Result<RunId, Failure> {
    let shown = short(given, 60);
    match query::find_run(conn, given).await? {
        Found::One(run) => Ok(run),
        Found::None => {
            let mut help = "`ductworkd runs` lists them".to_owned();
            if !store::metrics::has_at_most(conn, NEWEST as u64).await? {
                let newest = grouped(NEWEST as u64);
                help += &format!(
                    "; runs older than the newest {newest} can be found only by their first digits"
                );
            }
            let problem = Problem::new(format!("there is no run {shown}"));
            Err(Failure::failed(problem.help(help)))
        }
        Found::Ambiguous(runs) => Err(ambiguous(conn, &shown, &runs).await?),
        Found::Malformed => {
            let help = format!(
                "give an id, or at least {FEWEST_DIGITS} of its first or last hexadecimal digits; \
                 `ductworkd runs` lists them"
            );
            let message = format!("`{shown}` is not the id of a run");
            Err(Failure::usage(Problem::new(message).help(help)))
        }
    }
}

/// The number of runs that are listed if several have the same digits.
const CANDIDATES: usize = 6;

/// The failure that several runs have these digits, with some of them in the form of a list.
async fn ambiguous(conn: &mut Conn, shown: &str, runs: &[RunId]) -> Result<Failure, Failure> {
    let now = query::now(conn).await?;
    let mut candidates = Vec::new();
    for id in runs.iter().take(CANDIDATES) {
        if let Some(run) = query::run_without_payloads(conn, *id).await? {
            let (pipeline, at) = (short(&run.pipeline, 60), run.triggered_at);
            let (status, age) = (word(run.status), time::relative(at, now));
            candidates.push(format!("{id} ({pipeline}, {status}, {age})"));
        }
    }
    if let Some(more @ 1..) = runs.len().checked_sub(CANDIDATES) {
        let least = if runs.len() >= query::CANDIDATES {
            "at least "
        } else {
            ""
        };
        candidates.push(format!("… and {least}{more} more"));
    }
    let message = format!("several runs have an id that begins or ends with `{shown}`");
    let help = format!("give more digits; there are {}", candidates.join(", "));
    Ok(Failure::usage(Problem::new(message).help(help)))
}

/// The failure that there is no such run.
pub fn no_run(shown: &str) -> Failure {
    let problem = Problem::new(format!("there is no run {shown}"));
    Failure::failed(problem.help("`ductworkd runs` lists them"))
}

/// The definition of the pipeline with this name.
fn find_pipeline<'a>(
    pipelines: &'a [Definition],
    name: &str,
    config: &Config,
) -> Result<&'a Definition, Failure> {
    if let Some(found) = pipelines.iter().find(|one| one.pipeline == name) {
        return Ok(found);
    }
    let names: Vec<&str> = pipelines.iter().map(|one| one.pipeline.as_str()).collect();
    Err(no_pipeline(&names, name, config))
}

/// Refuses a pipeline that is neither defined here nor known to the database.
pub async fn known(
    conn: &mut Conn,
    config: &Config,
    cli: &CliContext,
    name: &str,
) -> Result<(), Failure> {
    let (here, _) = start::look(config, &cli.embedded);
    let here = || here.iter().map(|found| found.definition.pipeline.as_str());
    if here().any(|one| one == name) {
        return Ok(());
    }
    let known = store::known::pipelines(conn, here()).await?;
    match known.contains(name) {
        true => Ok(()),
        false => {
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            Err(no_pipeline(&names, name, config))
        }
    }
}

/// The failure that none of these pipelines has this name.
fn no_pipeline(names: &[&str], name: &str, config: &Config) -> Failure {
    let help = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{}`?", short(near, 100)),
        None if names.is_empty() => start::use_above(config).unwrap_or_else(|| {
            let none = format!(
                "there is none at all in {}",
                config.pipelines_path.display()
            );
            match config.file {
                Some(_) => none,
                None => format!("{none}; {NOT_HERE}"),
            }
        }),
        None => {
            let names = names.iter().take(20).map(|name| short(name, 100));
            format!("there are: {}", names.collect::<Vec<_>>().join(", "))
        }
    };
    let problem = Problem::new(format!("there is no pipeline `{}`", short(name, 100)));
    Failure::failed(problem.help(help))
}

/// Wakes the processes that now have work: on this host through their sockets, on others through the database. This is
/// only a hint: a process that misses it finds the work at its next poll.
pub async fn wake(conn: &mut Conn, location: &Location, pipeline: &str) {
    let (requests, _nobody) = tokio::sync::mpsc::unbounded_channel();
    Wakeup::new(location, requests)
        .announce(conn, pipeline)
        .await;
}

/// The same, for the pipeline of `run`, which it returns if it can be read.
pub async fn wake_for(conn: &mut Conn, config: &Config, run: RunId) -> Option<String> {
    let pipeline = query::brief(conn, run).await.ok()??.pipeline;
    wake(conn, &config.location().ok()?, &pipeline).await;
    Some(pipeline)
}

/// The failure that `verb` does not change a run which is over. Where another run continues it, the person means that one.
pub async fn has_ended(
    conn: &mut Conn,
    run: RunId,
    status: RunStatus,
    verb: &str,
) -> Result<Failure, store::Error> {
    let ended = format!("the run {run} has ended: it is {status}");
    if status == RunStatus::Halted
        && let Some(next) = why::continued(conn, run).await?
    {
        let newest = next.newest;
        let problem = Problem::new(format!("{ended}, and {}", continued(&next)));
        return Ok(Failure::failed(match (next.status, verb) {
            (None, _) => problem,
            (Some(now), "cancel") if !now.is_terminal() => {
                problem.help(format!("`ductworkd cancel {newest}` cancels that run"))
            }
            (Some(RunStatus::Dampened), "resume") => {
                problem.help(format!("`ductworkd resume {newest}` answers that run"))
            }
            (Some(_), _) => problem.help(format!("`ductworkd show {newest}` shows that run")),
        }));
    }
    let problem = Problem::new(ended);
    let help = match status {
        RunStatus::Halted => format!(
            "`ductworkd revive {run}` continues it where it halted; if nobody wants that, nothing has to be done"
        ),
        _ => format!("`ductworkd show {run}` shows it"),
    };
    Ok(Failure::failed(problem.help(help)))
}

/// Runs one command to its end.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            // One type of future: a runtime need not be compiled for each command.
            let work: Pin<Box<dyn Future<Output = Result<T, Failure>>>> = Box::pin(work);
            let done = runtime.block_on(work);
            // See `start::run_local`.
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(Failure::failed(Problem::new(format!(
            "no runtime can be started: {error}"
        )))),
    }
}

/// The same for a command that waits for other sessions for as long as they lock what it needs: after a while, it tells
/// which one that is.
pub fn block_on_telling<T>(
    config: &Config,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    block_on(async {
        tokio::select! {
            biased;
            done = work => done,
            never = tell_of_locks(config) => match never {},
        }
    })
}

async fn tell_of_locks(config: &Config) -> Infallible {
    tokio::time::sleep(UNUSUAL).await;
    if let Ok(Some(text)) = locked_by(config).await {
        tell(&text);
    }
    std::future::pending().await
}

/// The session that has locked a table or, perhaps, rows of ours, and the remedy.
async fn locked_by(config: &Config) -> Result<Option<String>, Failure> {
    if let Some(path) = config.database.url.sqlite_path() {
        let writer = lasting_writer(path).await;
        return Ok(writer.map(|writer| format!("{}: {END_WRITER}", held_by(&writer))));
    }
    let mut conn = config.location()?.connect(Purpose::Look).await?;
    if let Some(locked) = store::writable::locked(&mut conn).await? {
        return Ok(Some(format!("{}: {}", locked.fact, locked.remedy())));
    }
    Ok(store::writable::blocker(&mut conn).await?)
}

/// True if a bracket at this line and column closes directly after a comma.
fn follows_comma(bytes: &[u8], line: usize, column: usize) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let above = text.split_inclusive('\n').take(line.saturating_sub(1));
    let chars = above.map(|line| line.chars().count()).sum::<usize>() + column.saturating_sub(1);
    let at = text
        .char_indices()
        .nth(chars)
        .map_or(text.len(), |(at, _)| at);
    text[..at].trim_end().ends_with(',') && text[at..].starts_with(['}', ']'])
}

/// The input of a run of this pipeline, which conforms to the pipeline's schema; given as text or, as `-`, on standard
/// input.
pub fn input(
    definition: &Definition,
    given: &str,
    max: u64,
) -> Result<Box<serde_json::value::RawValue>, Failure> {
    let input = json(given, "input", max)?;
    let violations = definition.violations(input.get());
    let Some(last) = violations.len().checked_sub(1) else {
        return Ok(input);
    };
    let more = (violations.len() == VIOLATIONS_MAX).then(|| "there may be more".to_owned());
    // No pipeline takes half of a character.
    let rules = (definition.input.is_some() && halves(input.get()).is_empty()).then(|| {
        let pipeline = &definition.pipeline;
        format!("`input` of the pipeline {pipeline} says what it takes")
    });
    let help: Vec<String> = more.into_iter().chain(rules).collect();
    let problem = |(at, violation): (usize, &Violation)| {
        let problem = Problem::new(violation.to_string());
        // The help is given once.
        match at == last && !help.is_empty() {
            true => problem.help(help.join("; ")),
            false => problem,
        }
    };
    let problems = violations.iter().enumerate().map(problem).collect();
    Err(Failure::Problems(
        super::exit::Code::Usage,
        Problems(problems),
    ))
}

/// One JSON value, given as text or, as `-`, on standard input.
pub fn json(
    given: &str,
    what: &str,
    max: u64,
) -> Result<Box<serde_json::value::RawValue>, Failure> {
    use crate::step::output::{JsonProblem, parse_json, room};
    use std::io::Read;

    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    if given == "-" {
        // One byte more than allowed, so that a longer value is recognised without being held.
        let read = std::io::stdin()
            .lock()
            .take((room(max) as u64).saturating_add(1))
            .read_to_end(&mut bytes);
        if let Err(error) = read {
            let message = format!("standard input cannot be read: {error}");
            return Err(Failure::failed(Problem::new(message)));
        }
    } else {
        bytes.extend_from_slice(given.as_bytes());
    }
    parse_json(&bytes, max).map_err(|error| {
        let help = match &error {
            JsonProblem::Empty if what == "input" => "leave it out for `null`".to_owned(),
            JsonProblem::Empty => "give `null` if that is meant".to_owned(),
            JsonProblem::TooLarge { .. } => {
                "pass large data by reference, or raise `job_worker.max_payload`".to_owned()
            }
            JsonProblem::Syntax { line, column, .. } if follows_comma(&bytes, *line, *column) => {
                "remove the comma before the closing bracket".to_owned()
            }
            _ if given == "-" && what == "input" => {
                "one JSON value is read from standard input; for a run for each line of a file: \
                 `xargs -r -d '\\n' -n 1 ductworkd trigger NAME < FILE`"
                    .to_owned()
            }
            _ if given == "-" => "one JSON value is read from standard input".to_owned(),
            _ if Path::new(given.trim_start_matches('@')).is_file() => {
                format!("to read a file: `- < {}`", given.trim_start_matches('@'))
            }
            _ if given.starts_with('@') => "to read a file: `- < FILE`".to_owned(),
            _ if given.starts_with(['{', '[']) => {
                "keys and strings need double quotes, and the whole single ones for the shell: '{\"key\": \"text\"}'"
                    .to_owned()
            }
            _ => "strings need double quotes of their own: '\"text\"'".to_owned(),
        };
        let message = match &error {
            JsonProblem::TooLarge { max } => {
                format!("the {what} is larger than max_payload ({max} bytes)")
            }
            _ => format!("the {what} is not one JSON value: {error}"),
        };
        let mut problem = Problem::new(message).help(help);
        if let (
            JsonProblem::Syntax { line, column, .. } | JsonProblem::TooDeep { line, column },
            Ok(text),
        ) = (&error, std::str::from_utf8(&bytes))
        {
            problem.at = Some(crate::problem::Position::of(text, *line, *column, 1));
            problem.file = Some(
                Path::new(if given == "-" {
                    "<stdin>"
                } else {
                    "<argument>"
                })
                .into(),
            );
        }
        Failure::Problems(super::exit::Code::Usage, Problems(vec![problem]))
    })
}

/// The same, of a value that a step is going to read as it is.
pub fn value(given: &str, max: u64) -> Result<Box<serde_json::value::RawValue>, Failure> {
    let value = json(given, "value", max)?;
    match crate::step::output::half(value.get()) {
        Some(half) => Err(Failure::usage(Problem::new(format!("the value {half}")))),
        None => Ok(value),
    }
}
