//! From a configuration to a living daemon: the supervisor, a child, or a role of its own.
//!
//! Owns: what happens before the first loop: the schema, which pipelines get a worker, the
//! command line of a child. Never: parses the user's command line (`cli` does).

use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::config::{Config, DaemonRole, PipelineFilter};
use crate::definition::{self, Definition};
use crate::model::ProcessId;
use crate::problem::{Position, Problem, Problems};
use crate::step::registry::Registry;
use crate::store::patience::Patience;
use crate::store::{self, Location, Purpose, migrate};

use super::child::Child;
use super::exit_conditions::{Over, unfit, until_idle};
use super::hooks::Functions;
use super::roster::ChildKind;
use super::signal::Signals;
use super::spawn;
use super::supervisor::{self, ChildArgv, Handle, Reload, Served, Setup};

/// The hidden verb of a child's command line.
pub const CHILD_VERB: &str = "child";

/// The pipelines and steps of a program that embeds the library.
#[derive(Clone, Default)]
pub struct Embedded {
    /// Pipelines defined in Rust.
    pub pipelines: Vec<Definition>,
    /// Native steps.
    pub registry: Arc<Registry>,
    /// Hooks.
    pub hooks: Functions,
}

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pipelines are wrong.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// The database cannot be used.
    #[error("the database cannot be used")]
    Store(#[from] store::Error),
    /// The operating system refuses something basic.
    #[error("{what}")]
    System {
        /// The operation.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A pipeline, and where it comes from.
pub struct Found {
    /// A description.
    pub definition: Definition,
    /// The file; none for a pipeline that the program brought along.
    pub file: Option<PathBuf>,
    /// Where its steps are described.
    pub steps_at: HashMap<String, Position>,
}

/// All pipelines of the configured directory and all that the program brought along; and everything
/// that is wrong with others.
pub fn look(config: &Config, embedded: &Embedded) -> (Vec<Found>, Vec<Problem>) {
    let brought = |definition: &Definition| Found {
        definition: definition.clone(),
        file: None,
        steps_at: HashMap::new(),
    };
    let mut all: Vec<Found> = embedded.pipelines.iter().map(brought).collect();
    // A program that brings its pipelines needs no directory of them; a daemon that needs one reports
    // that there are none in it.
    if !config.pipelines_path.is_dir() {
        return (all, Vec::new());
    }
    let (files, mut problems) = match definition::yaml::look_into(&config.pipelines_path) {
        Ok(found) => found,
        Err(found) => return (all, found.0),
    };
    for (file, loaded) in files {
        let name = &loaded.definition.pipeline;
        let same = |other: &Found| other.definition.pipeline == *name;
        if all.iter().any(same) {
            let problem = Problem::new(format!("pipeline {name} is defined twice"));
            problems.push(Problem {
                file: Some(file),
                ..problem.help("this program defines it in Rust as well; remove one")
            });
            // Nobody knows which one is meant.
            all.retain(|other| !same(other));
            continue;
        }
        all.push(Found {
            definition: loaded.definition,
            file: Some(file),
            steps_at: loaded.steps_at,
        });
    }
    (all, problems)
}

/// The valid pipelines that this configuration runs, and everything that is wrong with others.
pub fn usable(config: &Config, embedded: &Embedded) -> (Vec<Definition>, Vec<Problem>) {
    let (all, problems) = look(config, embedded);
    let all = all.into_iter().map(|found| found.definition);
    let wanted = |definition: &Definition| config.pipelines.includes(&definition.pipeline);
    (all.filter(wanted).collect(), problems)
}

/// All pipelines that this configuration runs.
pub fn pipelines(config: &Config, embedded: &Embedded) -> Result<Vec<Definition>, Problems> {
    match usable(config, embedded) {
        (usable, problems) if problems.is_empty() => Ok(usable),
        (_, problems) => Err(Problems(problems)),
    }
}

/// The same; `leaves_out_mistakes`: without those that are wrong.
fn pipelines_for(
    leaves_out_mistakes: bool,
    config: &Config,
    embedded: &Embedded,
) -> Result<Vec<Definition>, Problems> {
    match leaves_out_mistakes {
        true => Ok(usable(config, embedded).0),
        false => pipelines(config, embedded),
    }
}

/// The names of the pipelines that get a worker here: the listed ones, whether this host has
/// their definition or not (runs carry their own), or all that are defined.
fn served(config: &Config, definitions: &[Definition]) -> Vec<String> {
    match &config.pipelines {
        PipelineFilter::Only(names) => names.to_vec(),
        PipelineFilter::All => definitions.iter().map(|d| d.pipeline.clone()).collect(),
    }
}

impl Served {
    fn of(config: &Config, definitions: &[Definition]) -> Self {
        Self {
            names: served(config, definitions),
            digests: definitions.iter().map(Definition::digest).collect(),
        }
    }
}

/// The runtime of every process: one thread, because waiting needs no more, and because commands die
/// with the thread that started them.
pub fn run_local<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::System {
            what: "no runtime can be started",
            source,
        })?;
    let local = tokio::task::LocalSet::new();
    let done = local.block_on(&runtime, work);
    // This gives up a wait for a database that does not answer together with its connection, and has
    // to spawn a task to let the connection go.
    let within = runtime.enter();
    drop(local);
    drop(within);
    // A thread may wait for the address of a host, as long as the system's resolver likes. Proven by
    // `a_stop_does_not_wait_for_a_resolver_that_does_not_answer`.
    runtime.shutdown_background();
    done
}

/// How the daemon runs.
pub struct Options {
    /// The file that `-c` named, to be read again later.
    pub file: Option<PathBuf>,
    /// The environment that was chosen.
    pub env: Option<String>,
    /// It ends when no work is left.
    pub until_idle: bool,
    /// It is a job of a terminal: TSTP suspends it, and it has no console. At TSTP a daemon only stops claiming.
    pub suspends: bool,
    /// A pipeline with a mistake keeps no other from its workers.
    pub leaves_out_mistakes: bool,
    /// Changes to the environment of the children (`None` removes).
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// Logs its suspicions about a configuration that was read again: a start has logged them before.
    pub warn: fn(&Config, &Embedded),
}

/// The exit status of a daemon that was to end when no work is left, and was told to stop before that. By the shell's
/// convention it is that of SIGINT.
const INTERRUPTED: u8 = 130;

impl Options {
    /// The exit status after a signal that asked for a stop.
    fn after_signal(&self) -> u8 {
        match self.until_idle {
            true => INTERRUPTED,
            false => 0,
        }
    }
}

/// Runs the daemon in the role that the configuration gives it, until it is told to stop.
pub fn start(config: Config, embedded: Embedded, options: Options) -> Result<ExitCode, Error> {
    match config.role {
        DaemonRole::All => {
            start_until(
                config,
                embedded,
                &options,
                async |handle, config| match options.until_idle {
                    true => idle(handle, &config).await,
                    false => std::future::pending().await,
                },
            )
        }
        DaemonRole::Advancer => single(config, embedded, &options, |_| vec![ChildKind::Advancer]),
        DaemonRole::Worker => single(config, embedded, &options, |pipelines| {
            let workers = pipelines.into_iter();
            workers
                .map(|pipeline| ChildKind::Worker { pipeline })
                .collect()
        }),
        DaemonRole::Console => single(config, embedded, &options, |_| vec![ChildKind::Console]),
    }
}

/// Runs the supervisor and its children until `until` is over, or a signal asks to stop.
pub fn start_until(
    config: Config,
    embedded: Embedded,
    options: &Options,
    until: impl AsyncFnOnce(Handle, Arc<Config>) -> u8,
) -> Result<ExitCode, Error> {
    let definitions = pipelines_for(options.leaves_out_mistakes, &config, &embedded)?;
    let served = Served::of(&config, &definitions);
    if served.names.is_empty() {
        return Err(Problems(vec![no_pipelines(&config)]).into());
    }
    run_local(async {
        let mut signals = signals(Signals::of_supervisor())?;
        let location = config.location()?;
        let largest_payload = tokio::select! {
            biased;
            () = signals.stop_asked() => return Ok(options.after_signal().into()),
            ready = prepare(&location, &config) => ready?,
        };
        let config = Arc::new(config);
        let setup = Setup {
            config: Arc::clone(&config),
            location: location.clone(),
            pipelines: served,
            argv: child_argv(options),
            suspends: options.suspends,
            after_signal: options.after_signal(),
            environment: options.environment.clone(),
            hooks: embedded.hooks.clone(),
            reload: reloader(options, embedded, largest_payload),
        };
        let until = |handle: Handle| async move {
            let requests = handle.requests.clone();
            tokio::select! {
                code = until(handle, config) => Over::with(code),
                over = unfit(&requests, &location) => over,
            }
        };
        Ok(supervisor::supervise(setup, signals, until).await)
    })
}

/// Creates or upgrades the schema, if the database takes the largest value that steps may return. Returns the
/// largest value that the server takes, where it sets a limit.
///
/// A connection may go silent while it is asked for these few facts, whereas a migration may take any time. So
/// this waits for the facts no longer than the engine waits for an answer; a start that waits longer has failed,
/// and is to be made again. Proven by `a_start_whose_connection_goes_silent_ends_and_says_so`.
async fn prepare(location: &Location, config: &Config) -> Result<Option<u64>, store::Error> {
    store::writable::allowed(location)?;
    let look = async {
        let mut conn = location.connect(Purpose::Query).await?;
        let payload = config.job_worker.largest_payload();
        let largest = store::writable::largest_payload(&mut conn, payload).await?;
        let is_current = migrate::is_current(&mut conn).await?;
        if let Some(hidden) = store::writable::hidden(&mut conn).await? {
            return Err(store::Error::Configured(hidden));
        }
        conn.close().await;
        Ok::<_, store::Error>((largest, is_current))
    };
    let within = Patience::of(Purpose::Engine, config.supervisor.reaper_timeout).answer;
    let (largest, is_current) = match tokio::time::timeout(within, look).await {
        Ok(looked) => looked?,
        Err(_) => return Err(store::Error::too_late(within)),
    };
    if is_current {
        note_elsewhere(config);
        return Ok(largest);
    }
    let mut conn = location.connect(Purpose::Query).await?;
    match config.note_of_creation() {
        Some(note) if migrate::applied(&mut conn).await?.is_empty() => tracing::warn!("{note}"),
        _ => note_elsewhere(config),
    }
    let mut report = |waits: &str| tracing::warn!("{waits}");
    let migrated = migrate::migrate_within(&mut conn, migrate::PATIENCE, &mut report).await?;
    if let Some(last) = migrated.last() {
        tracing::info!(
            version = last.version,
            name = last.name,
            migrations = migrated.len(),
            "migrated"
        );
    }
    conn.close().await;
    Ok(largest)
}

/// Logs that `DATABASE_URL`, which may be meant for another program, names another database than the file.
fn note_elsewhere(config: &Config) {
    if let Some(elsewhere) = config.elsewhere() {
        tracing::info!("the database is {elsewhere}");
    }
}

fn signals(installed: std::io::Result<Signals>) -> Result<Signals, Error> {
    installed.map_err(|source| Error::System {
        what: "signals cannot be read",
        source,
    })
}

/// The message when nothing can run.
pub fn no_pipelines(config: &Config) -> Problem {
    let path = config.pipelines_path.display();
    let missing = match (
        config.pipelines_path.is_dir(),
        config.pipelines_path.exists(),
    ) {
        (true, _) => "",
        (false, true) => ", which is a file: `pipelines_path` names a directory",
        (false, false) => ", which does not exist",
    };
    let problem = Problem::new(format!("there are no pipelines in {path}{missing}"));
    problem.help(use_above(config).unwrap_or_else(|| {
        "add a file there, create an example with `ductworkd init`, or change to your project's directory".to_owned()
    }))
}

/// The remedy when there is no configuration here, but one in a directory above.
pub fn use_above(config: &Config) -> Option<String> {
    let above = config.above()?;
    let (file, parent) = (above.display(), above.parent()?.display());
    Some(format!(
        "there is a configuration in {parent}: use -c {file}"
    ))
}

fn child_argv(options: &Options) -> ChildArgv {
    let env = options.env.clone();
    let name = std::env::args_os()
        .next()
        .unwrap_or_else(|| "ductworkd".into());
    Box::new(move |config, kind, supervisor| {
        let mut argv = vec![name.clone()];
        if let Some(file) = &config.file {
            argv.extend(["-c".into(), file.into()]);
        }
        if let Some(env) = &env {
            argv.extend(["-e".into(), env.into()]);
        }
        argv.push(CHILD_VERB.into());
        argv.push("--supervisor".into());
        argv.push(supervisor.to_string().into());
        argv.push("--parent".into());
        argv.push(std::process::id().to_string().into());
        match kind {
            ChildKind::Advancer => argv.push("advancer".into()),
            ChildKind::Worker { pipeline } => {
                argv.extend(["worker".into(), OsString::from(pipeline)]);
            }
            ChildKind::Console => argv.push("console".into()),
        }
        argv
    })
}

/// The pipelines of which these start runs: a console does. Those who need the others report the mistakes in
/// them.
fn triggered_by(kinds: &[ChildKind], config: &Config, embedded: &Embedded) -> Vec<Arc<Definition>> {
    match kinds.contains(&ChildKind::Console) {
        true => usable(config, embedded)
            .0
            .into_iter()
            .map(Arc::new)
            .collect(),
        false => Vec::new(),
    }
}

fn reloader(options: &Options, embedded: Embedded, largest_payload: Option<u64>) -> Reload {
    let (file, env) = (options.file.clone(), options.env.clone());
    let (leaves_out_mistakes, warn) = (options.leaves_out_mistakes, options.warn);
    Arc::new(move |before| {
        // A file that was found is not looked for again.
        let file = file.clone().or_else(|| before.file.clone());
        let config = Config::load_here(file, env.clone()).map_err(|p| p.to_string())?;
        config.complete().map_err(|p| p.to_string())?;
        let payload = config.job_worker.largest_payload();
        if let Some(most) = largest_payload.filter(|most| *most < payload) {
            return Err(format!(
                "error: `job_worker.max_payload` is {payload} bytes, and the server's max_allowed_packet allowed {most} \
                 when the daemon was started: raise max_allowed_packet and restart the daemon"
            ));
        }
        let definitions = pipelines_for(leaves_out_mistakes, &config, &embedded);
        let definitions = definitions.map_err(|p| p.to_string())?;
        let served = Served::of(&config, &definitions);
        if served.names.is_empty() {
            return Err(no_pipelines(&config).to_string());
        }
        let fixed = before.fixed(&config);
        if !fixed.is_empty() {
            return Err(format!(
                "error: `{}` changes with a restart only",
                fixed.join("`, `")
            ));
        }
        warn(&config, &embedded);
        Ok((Arc::new(config), served))
    })
}

/// Runs one role in the foreground, without a supervisor.
fn single(
    config: Config,
    embedded: Embedded,
    options: &Options,
    kinds: impl FnOnce(Vec<String>) -> Vec<ChildKind>,
) -> Result<ExitCode, Error> {
    let definitions = match config.role {
        DaemonRole::Worker => pipelines(&config, &embedded)?,
        _ => Vec::new(),
    };
    let kinds = kinds(served(&config, &definitions));
    let pipelines = triggered_by(&kinds, &config, &embedded);
    if kinds.is_empty() {
        return Err(Problems(vec![no_pipelines(&config)]).into());
    }
    run_local(async {
        let mut signals = signals(Signals::of_single_role())?;
        let location = config.location()?;
        tokio::select! {
            biased;
            () = signals.stop_asked() => return Ok(options.after_signal().into()),
            ready = prepare(&location, &config) => drop(ready?),
        }
        let child = Child {
            until_idle: options.until_idle.then(|| config.pipelines.names()),
            after_signal: options.after_signal(),
            config: Arc::new(config),
            kinds,
            supervisor: None,
            parent: None,
            pipelines,
            registry: embedded.registry,
            hooks: embedded.hooks,
        };
        Ok(child.live(signals).await)
    })
}

/// Gives a child in `ps` and `top` its supervisor's name, and not that of the link by which it was started.
fn name_as_started() {
    let name = std::env::args_os().next().map(PathBuf::from);
    let name = name.as_deref().and_then(std::path::Path::file_name);
    if let Some(name) = name.and_then(|name| CString::new(name.as_encoded_bytes()).ok()) {
        // A name is for people.
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// The life of a child, as its supervisor started it.
pub fn child(
    config: Config,
    embedded: Embedded,
    kind: ChildKind,
    supervisor: ProcessId,
    parent: i32,
) -> Result<ExitCode, Error> {
    name_as_started();
    if let Err(error) = spawn::parent_watch(parent) {
        tracing::warn!(%error, "not starting");
        return Ok(ExitCode::SUCCESS);
    }
    let kinds = vec![kind];
    let pipelines = triggered_by(&kinds, &config, &embedded);
    run_local(async {
        let child = Child {
            config: Arc::new(config),
            kinds,
            pipelines,
            supervisor: Some(supervisor),
            parent: Some(parent as u32),
            registry: embedded.registry,
            hooks: embedded.hooks,
            until_idle: None,
            after_signal: 0,
        };
        Ok(child.live(signals(Signals::of_child())?).await)
    })
}

/// Resolves when no work is left for this daemon.
async fn idle(handle: Handle, config: &Config) -> u8 {
    let mut ready = handle.ready.clone();
    // The sender lives as long as the supervisor.
    let _ = ready.wait_for(|ready| *ready).await;
    until_idle(&handle.requests, config.pipelines.names()).await;
    0
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Says whether there is a runtime when it is dropped.
    struct Held(Rc<std::cell::Cell<Option<bool>>>);

    impl Drop for Held {
        fn drop(&mut self) {
            let runtime = tokio::runtime::Handle::try_current();
            self.0.set(Some(runtime.is_ok()));
        }
    }

    #[test]
    fn what_is_given_up_at_the_end_is_let_go_within_the_runtime() {
        let within = Rc::default();
        let held = Held(Rc::clone(&within));
        let done = run_local(async move {
            tokio::task::spawn_local(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            Ok(())
        });
        assert!(done.is_ok());
        assert_eq!(within.get(), Some(true));
    }
}
