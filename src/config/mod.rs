//! The settings of one daemon: file and environment in, one immutable [`Config`] out.
//!
//! Owns: the search for the file, its sections, overrides and defaults; every number is resolved and
//! checked once, at load, and all problems are found at once. Never: connects, reads a pipeline, or
//! gives two answers for the same value.
//!
//! Precedence: the command line, then variables, then the file, then the defaults of
//! [`keys::KEYS`]. Paths in variables and in the file are relative to
//! the file's directory.

mod console;
pub mod database;
mod expand;
mod fit;
pub mod keys;
mod places;
mod proxy;
mod read;
mod schema;
mod source;
mod traces;
mod value;
mod webhooks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::definition::graph::Backoff;
use crate::problem::{Problem, Problems};
use crate::step::environment::Inherit;
use crate::store::{self, Location};
use crate::telemetry::{Level, LogFormat};

pub use console::{Anonymous, Console};
pub use database::DatabaseUrl;
pub use proxy::Proxy;
pub use schema::json_schema;
pub use traces::Collector;
pub use value::{Exception, PipelineFilter};
pub use webhooks::{Endpoint, SigningKey};

use places::Places;
use read::Reader;
use source::Source;
use value::{ByStep, Scoped};

/// Names the environment where neither flag nor variable does.
pub const DEFAULT_ENVIRONMENT: &str = "development";

/// Where a configuration comes from.
#[derive(Clone)]
pub struct LoadOptions<'a> {
    /// `-c`; without it `DUCTWORK_CONFIG`, then the usual places.
    pub file: Option<PathBuf>,
    /// `-e`; without it `DUCTWORK_ENV`, then `development`.
    pub env: Option<String>,
    /// Reads an environment variable.
    pub vars: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all environment variables: the only way to find a misspelt override.
    pub names: &'a [String],
    /// The directory from which relative paths of the command line start. Absolute.
    pub cwd: PathBuf,
    /// The texts that were read before, from `file` if there was one; no file is read again.
    pub handed: Option<Handed>,
}

/// The texts that a supervisor read, for its children: they use the same until it reads anew. A child that
/// is started after a bad edit starts, and after a good one it uses the same database.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handed {
    /// The file's text; `None` if there was no file.
    text: Option<Secret>,
    /// The address in the file that a variable named.
    url: Option<Secret>,
}

impl Handed {
    /// The texts as if a file had held this one.
    #[cfg(feature = "internals")]
    pub fn of(text: String) -> Self {
        Self {
            text: Some(Secret(text)),
            url: None,
        }
    }
}

/// Everything that can be set, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file, absolute; `None` when there is none and the defaults hold.
    pub file: Option<PathBuf>,
    /// Sections of that file that are for other environments, and were not read.
    pub others: Vec<String>,
    /// Where relative paths begin: the file's directory.
    pub base_dir: PathBuf,
    /// The environment whose section was read.
    pub environment: String,
    /// Where everything is kept.
    pub database: Database,
    /// The pipelines that run here.
    pub pipelines: PipelineFilter,
    /// The directory of the pipelines' files, absolute.
    pub pipelines_path: PathBuf,
    /// The daemon's role.
    pub role: DaemonRole,
    /// How it logs.
    pub logger: Logger,
    /// The job workers' settings.
    pub job_worker: JobWorker,
    /// The advancer's settings.
    pub pipeline_advancer: PipelineAdvancer,
    /// The supervisor's settings.
    pub supervisor: Supervisor,
    /// The console's settings.
    pub console: Console,
    /// Commands around the life of a process.
    pub hooks: Hooks,
    /// Finished runs older than this are deleted; `None` keeps them.
    pub retention: Option<Duration>,
    secret_variables: Vec<String>,
    handed: Handed,
    places: Places,
    warnings: Warnings,
    /// Variables that only the console needs, and that are not set.
    unset: Warnings,
}

/// Mistakes that do not prevent a start.
#[derive(Clone, Debug, Default)]
struct Warnings(Vec<Problem>);

/// The same settings are the same configuration, however they are written.
impl PartialEq for Warnings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Written otherwise, the same settings are the same configuration.
impl PartialEq for Handed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A file's text. It may be, or hold, a password, so nothing shows it.
#[derive(Clone, Serialize, Deserialize)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("…")
    }
}

/// The origin of an address that nobody has written anywhere.
const DEFAULT_URL: &str = "the default of `database.url`";

/// Where everything is kept.
#[derive(Clone, Debug)]
pub struct Database {
    /// The variable or the key that the address came from, for people.
    pub origin: String,
    /// The address.
    pub url: DatabaseUrl,
    /// The address in the file, where `DATABASE_URL`, which other programs use, has another one.
    pub outranked: Option<DatabaseUrl>,
}

impl Database {
    /// True where nobody has written an address.
    pub fn is_default(&self) -> bool {
        self.origin == DEFAULT_URL
    }

    /// True where a variable has the address, and not the file.
    pub fn is_from_variable(&self) -> bool {
        !self.is_default() && !self.origin.starts_with('`')
    }
}

/// The same database, wherever its address is written: a reload names the file in full.
impl PartialEq for Database {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

/// A daemon's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonRole {
    /// A supervisor with children.
    All,
    /// One advancer, without forking.
    Advancer,
    /// Job workers, without forking.
    Worker,
    /// The console, without forking.
    Console,
}

impl DaemonRole {
    /// True for a role with workers.
    pub fn runs_steps(self) -> bool {
        matches!(self, Self::All | Self::Worker)
    }
}

/// How a daemon logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logger {
    /// The least important events that are logged.
    pub level: Level,
    /// The form of a line.
    pub format: LogFormat,
}

/// Settings of job workers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobWorker {
    count: Scoped<u32>,
    max_retry: ByStep<u32>,
    max_crash: ByStep<u32>,
    timeout: ByStep<Option<Duration>>,
    backoff: ByStep<Backoff>,
    polling_timeout: Scoped<Duration>,
    shutdown_timeout: Scoped<Duration>,
    max_payload: Scoped<u64>,
    env: Scoped<Inherit>,
}

impl JobWorker {
    /// True where a pipeline has the same settings here and there.
    fn is_same_for(&self, other: &Self, pipeline: &str) -> bool {
        // Without `..`: a new setting is compared as well.
        let Self {
            count,
            max_retry,
            max_crash,
            timeout,
            backoff,
            polling_timeout,
            shutdown_timeout,
            max_payload,
            env,
        } = self;
        count.get(pipeline) == other.count.get(pipeline)
            && max_retry.get(pipeline) == other.max_retry.get(pipeline)
            && max_crash.get(pipeline) == other.max_crash.get(pipeline)
            && timeout.get(pipeline) == other.timeout.get(pipeline)
            && backoff.get(pipeline) == other.backoff.get(pipeline)
            && polling_timeout.get(pipeline) == other.polling_timeout.get(pipeline)
            && shutdown_timeout.get(pipeline) == other.shutdown_timeout.get(pipeline)
            && max_payload.get(pipeline) == other.max_payload.get(pipeline)
            && env.get(pipeline) == other.env.get(pipeline)
    }

    /// Executions that run at once.
    pub fn count(&self, pipeline: &str) -> u32 {
        *self.count.get(pipeline)
    }

    /// Attempts after the first that errors may spend.
    pub fn max_retry(&self, pipeline: &str, step: &str) -> u32 {
        *self.max_retry.get(pipeline).get(step)
    }

    /// Crashes at which a step fails.
    pub fn max_crash(&self, pipeline: &str, step: &str) -> u32 {
        *self.max_crash.get(pipeline).get(step)
    }

    /// The longest that an attempt may take; `None` is without limit.
    pub fn timeout(&self, pipeline: &str, step: &str) -> Option<Duration> {
        *self.timeout.get(pipeline).get(step)
    }

    /// The wait between attempts.
    pub fn backoff(&self, pipeline: &str, step: &str) -> Backoff {
        *self.backoff.get(pipeline).get(step)
    }

    /// The longest sleep before looking for work.
    pub fn polling_timeout(&self, pipeline: &str) -> Duration {
        *self.polling_timeout.get(pipeline)
    }

    /// How long executions may go on after a stop was asked for.
    pub fn shutdown_timeout(&self, pipeline: &str) -> Duration {
        *self.shutdown_timeout.get(pipeline)
    }

    /// The variables that a step inherits.
    pub fn env(&self, pipeline: &str) -> &Inherit {
        self.env.get(pipeline)
    }

    /// The largest that any pipeline may have.
    pub fn largest_payload(&self) -> u64 {
        let each = self.max_payload.each().map(|(_, size)| *size);
        each.max().unwrap_or_default()
    }

    /// The largest input or output of a step, in bytes.
    pub fn max_payload(&self, pipeline: &str) -> u64 {
        *self.max_payload.get(pipeline)
    }
}

/// Settings of the advancer.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineAdvancer {
    /// How wide the advancer's batches are.
    pub count: u32,
    max_retry: Scoped<u32>,
    max_crash: Scoped<u32>,
    backoff: Scoped<Backoff>,
    /// The longest sleep before looking for work.
    pub polling_timeout: Duration,
    /// How long an advancement may go on after a stop was asked for.
    pub shutdown_timeout: Duration,
    max_fan_out: Scoped<Option<u64>>,
}

impl PipelineAdvancer {
    /// Failed attempts to advance a branch before it halts.
    pub fn max_retry(&self, pipeline: &str) -> u32 {
        *self.max_retry.get(pipeline)
    }

    /// Crashes while advancing a branch before it halts.
    pub fn max_crash(&self, pipeline: &str) -> u32 {
        *self.max_crash.get(pipeline)
    }

    /// The wait between attempts to advance a branch.
    pub fn backoff(&self, pipeline: &str) -> Backoff {
        *self.backoff.get(pipeline)
    }

    /// The widest fan-out allowed (`steps.max_depth`); `None` is without limit.
    pub fn max_fan_out(&self, pipeline: &str) -> Option<u64> {
        *self.max_fan_out.get(pipeline)
    }
}

/// Settings of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supervisor {
    /// The longest sleep before looking at the children and at the database.
    pub polling_timeout: Duration,
    /// How long a silent process keeps its work.
    pub reaper_timeout: Duration,
    /// How long children may drain.
    pub shutdown_timeout: Duration,
}

/// Commands around the life of a process, each an argv.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Around the life of the supervisor.
    pub supervisor: StartStop,
    /// Around the life of an advancer.
    pub advancer: StartStop,
    /// Around the life of a job worker.
    pub worker: StartStop,
}

/// Commands at the start and at the end, each an argv that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartStop {
    /// In order.
    pub start: Vec<Vec<String>>,
    /// In order.
    pub stop: Vec<Vec<String>>,
}

impl Config {
    /// The location of the configured database.
    pub fn location(&self) -> Result<Location, store::Error> {
        let location = match self.database.url.sqlite_path() {
            Some(path) => Location::sqlite(path),
            None => Location::parse(self.database.url.expose())?,
        };
        Ok(location.leased(self.supervisor.reaper_timeout))
    }

    /// The place that the address of the database comes from, and the address in the file, where `DATABASE_URL` has
    /// another one.
    pub fn origin(&self) -> String {
        let origin = &self.database.origin;
        let file = self.file.as_ref().and_then(|file| file.file_name());
        match (&self.database.outranked, file) {
            (Some(said), Some(file)) => {
                format!("from {origin}; {} says {said}", file.to_string_lossy())
            }
            _ => format!("from {origin}"),
        }
    }

    /// The database, if `DATABASE_URL`, which other programs use, names another one than the file.
    pub fn elsewhere(&self) -> Option<String> {
        self.database.outranked.as_ref()?;
        Some(format!("{} ({})", self.database.url, self.origin()))
    }

    /// The note for somebody whose tables are about to be created, if they are created in another database than the one
    /// that the file names.
    pub fn note_of_creation(&self) -> Option<String> {
        let elsewhere = self.elsewhere()?;
        Some(format!("creating the tables in {elsewhere}"))
    }

    /// Reads the configuration, or reports everything that is wrong with it. Variables that only the console
    /// needs may be missing: [`Config::complete`] reports them.
    pub fn load(options: LoadOptions) -> Result<Self, Problems> {
        let (config, problems) = Self::understand(options);
        match problems.is_empty() {
            true => Ok(config),
            false => Err(Problems(problems)),
        }
    }

    /// Reads the configuration, and reports everything that is wrong with it: there the defaults hold.
    fn examine(options: LoadOptions) -> (Self, Vec<Problem>) {
        let (config, mut problems) = Self::understand(options);
        problems.extend(config.unset.0.iter().cloned());
        in_reading_order(&mut problems);
        (config, problems)
    }

    /// Fails where this configuration starts a console, and a variable that it needs is not set.
    pub fn complete(&self) -> Result<(), Problems> {
        let has_console = match self.role {
            DaemonRole::All => self.console.is_wanted(),
            DaemonRole::Console => true,
            DaemonRole::Advancer | DaemonRole::Worker => false,
        };
        match has_console && !self.unset.0.is_empty() {
            true => Err(Problems(self.unset.0.clone())),
            false => Ok(()),
        }
    }

    fn understand(options: LoadOptions) -> (Self, Vec<Problem>) {
        let var = |name: &str| (options.vars)(name).filter(|text| !text.trim().is_empty());
        let asked = options
            .file
            .or_else(|| var("DUCTWORK_CONFIG").map(PathBuf::from));
        let environment = options
            .env
            .filter(|env| !env.is_empty())
            .or_else(|| var("DUCTWORK_ENV"))
            .unwrap_or_else(|| DEFAULT_ENVIRONMENT.to_owned());
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let overrides =
            source::overrides(options.names, options.vars, &mut problems, &mut warnings);
        let (found, url) = match options.handed {
            Some(Handed { text, url }) => {
                let file = asked.as_deref().zip(text);
                let of = |(file, text): (_, Secret)| Source::of(file, &options.cwd, text.0);
                (Ok(file.map(of)), url)
            }
            None => (Source::find(asked.as_deref(), &options.cwd), None),
        };
        let source = found.unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        let section = source
            .as_ref()
            .and_then(|source| source.section(&environment, &mut problems, &mut warnings));
        let mut reader = Reader::new(source.as_ref(), section, overrides, options.vars);
        reader.url_file = url.map(|url| url.0);
        let mut config = resolve(&mut reader, source.as_ref(), environment, &options.cwd);
        // A value that cannot be read was replaced by its default, which other settings need not fit.
        if reader.problems.is_empty() {
            problems.extend(fit::drains_that_do_not_fit(&config));
            problems.extend(fit::console_open_to_others(&config));
            problems.extend(fit::socket_too_deep(&config));
            warnings.extend(fit::doubts(&config));
        }
        problems.append(&mut reader.problems);
        in_reading_order(&mut problems);
        in_reading_order(&mut warnings);
        config.warnings = Warnings(warnings);
        (config, problems)
    }

    /// Reads the configuration of this process: its variables and its working directory.
    pub fn load_here(file: Option<PathBuf>, env: Option<String>) -> Result<Self, Problems> {
        Self::load_here_as(file, env, None)
    }

    /// Like [`Config::load_here`], as if this variable had this value.
    pub fn load_here_with(
        file: Option<PathBuf>,
        env: Option<String>,
        given: (&str, &str),
    ) -> Result<Self, Problems> {
        here(file, env, None, Some(given), Self::load)?
    }

    /// Like [`Config::load_here`], but returns the settings that are right even if some are wrong.
    pub fn examine_here(
        file: Option<PathBuf>,
        env: Option<String>,
    ) -> Result<(Self, Vec<Problem>), Problems> {
        here(file, env, None, None, Self::examine)
    }

    /// Like [`Config::load_here`], for a child to which its supervisor handed the texts that it had
    /// read: from `file`, if there was one.
    pub fn load_here_as(
        file: Option<PathBuf>,
        env: Option<String>,
        handed: Option<Handed>,
    ) -> Result<Self, Problems> {
        here(file, env, handed, None, Self::load)?
    }

    /// The pipelines, and their steps, for which it makes an exception, with the key.
    pub fn exceptions(&self) -> Vec<Exception<'_>> {
        let (worker, advancer) = (&self.job_worker, &self.pipeline_advancer);
        let mut all = Vec::new();
        all.extend(worker.count.named("job_worker.count"));
        all.extend(worker.max_retry.named_steps("job_worker.max_retry"));
        all.extend(worker.max_crash.named_steps("job_worker.max_crash"));
        all.extend(worker.timeout.named_steps("job_worker.timeout"));
        all.extend(worker.backoff.named_steps("job_worker.backoff"));
        all.extend(worker.polling_timeout.named("job_worker.polling_timeout"));
        all.extend(worker.shutdown_timeout.named("job_worker.shutdown_timeout"));
        all.extend(worker.max_payload.named("job_worker.max_payload"));
        all.extend(worker.env.named("job_worker.env"));
        all.extend(advancer.max_retry.named("pipeline_advancer.max_retry"));
        all.extend(advancer.max_crash.named("pipeline_advancer.max_crash"));
        all.extend(advancer.backoff.named("pipeline_advancer.backoff"));
        all.extend(
            advancer
                .max_fan_out
                .named("pipeline_advancer.steps.max_depth"),
        );
        all
    }

    /// Mistakes that do not prevent a start, each with its place.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings.0
    }

    /// A problem with the setting at `path`, with the place that sets it; in a map or a list of names,
    /// that is the place of `name`.
    pub fn placed(&self, path: &str, name: Option<&str>, message: String) -> Problem {
        if let Some(variable) = self.places.variable(path) {
            return Problem::new(format!("{variable}: {message}"));
        }
        let text = self.handed.text.as_ref().map_or("", |text| &text.0);
        let at = self.places.mark(path, name);
        Problem {
            file: at.and_then(|_| self.places.file.clone()),
            at: at.map(|at| source::position(text, at)),
            ..Problem::new(message)
        }
    }

    /// A configuration in a directory above, where there is none here.
    pub fn above(&self) -> Option<PathBuf> {
        let above = self.base_dir.ancestors().skip(1);
        let above = above.filter(|_| self.file.is_none());
        above.flat_map(source::places).find(|file| file.is_file())
    }

    /// Variables that hold the database's address or a part of it: not for steps.
    pub fn secret_variables(&self) -> &[String] {
        &self.secret_variables
    }

    /// The settings of another configuration that a daemon cannot take over while it runs with this one:
    /// leases are judged by the supervisor's settings, and work lies in one database.
    pub fn fixed(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            (self.database != other.database, "database"),
            (self.supervisor != other.supervisor, "supervisor"),
            (self.role != other.role, "role"),
        ];
        let differ = differ.into_iter().filter(|(differs, _)| *differs);
        differ.map(|(_, key)| key).collect()
    }

    /// True where a worker of this pipeline works with `before` exactly as with this configuration.
    pub fn is_same_for_worker(&self, before: &Self, pipeline: &str) -> bool {
        if !self.job_worker.is_same_for(&before.job_worker, pipeline) {
            return false;
        }
        let hooks = Hooks {
            worker: before.hooks.worker.clone(),
            ..self.hooks.clone()
        };
        // A setting that is not named here counts for workers.
        *self
            == Self {
                others: self.others.clone(),
                pipelines: self.pipelines.clone(),
                pipelines_path: self.pipelines_path.clone(),
                pipeline_advancer: self.pipeline_advancer.clone(),
                console: self.console.clone(),
                retention: self.retention,
                job_worker: self.job_worker.clone(),
                hooks,
                ..before.clone()
            }
    }

    /// The texts to hand to a child, besides the path of [`Config::file`].
    pub fn handed(&self) -> &Handed {
        &self.handed
    }
}

/// Reads with the variables and the working directory of this process, and one more variable if it was given
/// one.
fn here<T>(
    file: Option<PathBuf>,
    env: Option<String>,
    handed: Option<Handed>,
    given: Option<(&str, &str)>,
    read: impl FnOnce(LoadOptions) -> T,
) -> Result<T, Problems> {
    let cwd = std::env::current_dir().map_err(|error| {
        let problem = Problem::new(format!("the working directory cannot be read: {error}"));
        Problems(vec![problem.help("change to a directory that exists")])
    })?;
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let vars = |name: &str| match given {
        Some((given, value)) if given == name => Some(value.to_owned()),
        _ => std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
    };
    // Such a name may be a section or an address in other letters than were meant.
    let ours = |name: &&String| name.starts_with(keys::PREFIX) || name.starts_with("DATABASE_URL");
    let unclear = |name: &&String| std::env::var(name.as_str()).is_err();
    let unclear = names.iter().filter(ours).filter(unclear);
    let unclear = unclear.map(|name| Problem::new(format!("{name}: is not UTF-8")));
    let unclear: Vec<_> = unclear.collect();
    if !unclear.is_empty() {
        return Err(Problems(unclear));
    }
    names.retain(|name| given.is_none_or(|(given, _)| given != name));
    names.extend(given.map(|(given, _)| given.to_owned()));
    Ok(read(LoadOptions {
        file,
        env,
        vars: &vars,
        names: &names,
        cwd,
        handed,
    }))
}

/// Problems with a place first, from the top down, then the others as they were found.
fn in_reading_order(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| match &problem.at {
        Some(at) => (0, at.line, at.column),
        None => (1, 0, 0),
    });
}

fn resolve(read: &mut Reader, source: Option<&Source>, environment: String, cwd: &Path) -> Config {
    let file = source.map(|source| source.path.clone());
    let parent = file.as_deref().and_then(Path::parent);
    let base_dir = parent.unwrap_or(cwd).to_owned();
    let (url, origin, mut secret_variables) = read.database_url(&base_dir);
    secret_variables.extend(read.variables_of("console.webhooks"));
    secret_variables.extend(read.variables_of("console.traces.headers"));
    let pipelines_path = read.one("pipelines_path", value::path);
    Config {
        others: source.map_or_else(Vec::new, |source| source.others(&environment)),
        database: Database {
            outranked: read.outranked_url(&url, &base_dir),
            origin,
            url,
        },
        pipelines: read.one("pipelines", value::names),
        pipelines_path: base_dir.join(pipelines_path).components().collect(),
        role: match read.one("role", value::choice) {
            "advancer" => DaemonRole::Advancer,
            "worker" => DaemonRole::Worker,
            "console" => DaemonRole::Console,
            _ => DaemonRole::All,
        },
        logger: Logger {
            level: level(read.one("logger.level", value::choice)),
            format: match read.one("logger.format", value::choice) {
                "pretty" => LogFormat::Pretty,
                "json" => LogFormat::Json,
                _ => LogFormat::Auto,
            },
        },
        job_worker: JobWorker {
            count: read.by_pipeline("job_worker.count", value::count),
            max_retry: read.by_step("job_worker.max_retry", value::count),
            max_crash: read.by_step("job_worker.max_crash", value::count),
            timeout: read.by_step("job_worker.timeout", value::duration_or),
            backoff: read.backoff_by_step("job_worker.backoff"),
            polling_timeout: read.by_pipeline("job_worker.polling_timeout", value::span),
            shutdown_timeout: read.by_pipeline("job_worker.shutdown_timeout", value::span),
            max_payload: read.by_pipeline("job_worker.max_payload", value::size),
            env: read.by_pipeline("job_worker.env", value::variables),
        },
        pipeline_advancer: PipelineAdvancer {
            count: read.one("pipeline_advancer.count", value::count),
            max_retry: read.by_pipeline("pipeline_advancer.max_retry", value::count),
            max_crash: read.by_pipeline("pipeline_advancer.max_crash", value::count),
            backoff: read.backoff_by_pipeline("pipeline_advancer.backoff"),
            polling_timeout: read.one("pipeline_advancer.polling_timeout", value::span),
            shutdown_timeout: read.one("pipeline_advancer.shutdown_timeout", value::span),
            max_fan_out: read.by_pipeline("pipeline_advancer.steps.max_depth", value::limit),
        },
        supervisor: Supervisor {
            polling_timeout: read.one("supervisor.polling_timeout", value::span),
            reaper_timeout: read.one("supervisor.reaper_timeout", value::span),
            shutdown_timeout: read.one("supervisor.shutdown_timeout", value::span),
        },
        console: Console::read(read, &base_dir),
        hooks: Hooks {
            supervisor: hooks(read, "hooks.supervisor"),
            advancer: hooks(read, "hooks.advancer"),
            worker: hooks(read, "hooks.worker"),
        },
        retention: read.one("retention", value::duration_or),
        file,
        base_dir,
        environment,
        secret_variables,
        handed: Handed {
            text: source.map(|source| Secret(source.text.clone())),
            url: read.url_file.take().map(Secret),
        },
        places: std::mem::take(&mut read.places),
        warnings: Warnings::default(),
        unset: Warnings(std::mem::take(&mut read.unset)),
    }
}

fn level(word: &str) -> Level {
    match word {
        "off" => Level::Off,
        "error" => Level::Error,
        "warn" => Level::Warn,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => Level::Info,
    }
}

fn hooks(read: &mut Reader, path: &str) -> StartStop {
    StartStop {
        start: read.one(&keys::join(path, "start"), value::commands),
        stop: read.one(&keys::join(path, "stop"), value::commands),
    }
}

#[cfg(test)]
mod tests;
