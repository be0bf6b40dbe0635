//! `check`: the configuration and all pipelines, with every problem at once.

mod scripts;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::config::{Config, DaemonRole};
use crate::definition::check::as_list;
use crate::definition::yaml::{misnamed, nested};
use crate::definition::{Definition, Edge, StepRunner, StepSpec};
use crate::model::Hook;
use crate::problem::{Problem, Problems, nearest};
use crate::process::start::{Embedded, Found, look, no_pipelines};
use crate::step::Outcome;
use crate::step::environment::Environment;
use crate::step::resolve::resolve;

use super::exit::{Code, Failure, quietly, verdict};
use super::live::counted;
use super::out::{self, paint};
use super::refusal::of_problem;
use super::setup::CliContext;

/// Checks the configuration, the pipelines and the programs of their steps. Connects to nothing.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd check
  ductworkd check -e production --json | jq '.problems[] | {file, message}'
  ductworkd check --strict    # before a deployment
  BANK_KEY=none ductworkd check    # without a secret of a step, as in a CI

A program that does not exist or is not executable is a mistake, and so is a variable or a secret of a step that is not \
set. A script that is an argument, as in `[python3, steps/x.py]`, is only noted if it does not exist.
")]
pub struct Check {
    /// Treat each note, such as that about a missing script of an interpreter, as a problem
    #[arg(long)]
    strict: bool,
}

impl Check {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let mut problems = cli.embedded.registry.problems();
        let (config, of_config) = Config::examine_here(cli.file.clone(), cli.env.clone())?;
        let (all, of_pipelines) = look(&config, &cli.embedded);
        let complete = of_config.is_empty() && of_pipelines.is_empty();
        problems.extend(of_config);
        problems.extend(of_pipelines);
        let here = |found: &&Found| config.pipelines.includes(&found.definition.pipeline);
        let pipelines: Vec<&Found> = all.iter().filter(here).collect();
        let mut notes = config.warnings().to_vec();
        // A file that cannot be read may have the pipeline that is named.
        if complete {
            match config.role {
                DaemonRole::Worker => notes.extend(nowhere(&config, &all)),
                _ => problems.extend(nowhere(&config, &all)),
            }
            if all.is_empty() && config.role.runs_steps() {
                problems.push(no_pipelines(&config));
            }
            notes.extend(exceptions(&config, &all));
            notes.extend(interrupted(&config, &pipelines));
        }
        notes.extend(unasked(&pipelines));
        notes.extend(unread(&config));
        notes.extend(doubtful(&config, &pipelines));
        notes.extend(compared(&pipelines));
        programs(&config, &pipelines, &cli.embedded, &mut problems);
        if self.strict {
            problems.append(&mut notes);
        }
        let fine = problems.is_empty();
        if cli.out.json {
            let names = pipelines.iter().map(|found| &found.definition.pipeline);
            let printed = cli.out.value(&json!({
                "ok": fine,
                "config": config.file,
                "environment": config.environment,
                "not_checked": config.others,
                "pipelines": names.collect::<Vec<_>>(),
                "problems": problems.iter().map(of_problem).collect::<Vec<_>>(),
                "notes": notes.iter().map(of_problem).collect::<Vec<_>>(),
            }));
            return verdict(printed, quietly(fine, Code::Usage));
        }
        match fine {
            true => cli.out.text(&summary(&config, &pipelines, &notes)),
            false => {
                let printed = cli.out.text(&told(&notes));
                verdict(printed, Err(Problems(problems).into()))
            }
        }
    }
}

/// Problems that do not prevent a daemon from starting: names that may be misspelt, and programs that do
/// not exist yet. Empty if a pipeline is wrong, because then the daemon does not start.
pub fn suspicions(config: &Config, embedded: &Embedded) -> Vec<Problem> {
    let (all, wrong) = look(config, embedded);
    if !wrong.is_empty() {
        return Vec::new();
    }
    let here = |found: &&Found| config.pipelines.includes(&found.definition.pipeline);
    let pipelines: Vec<&Found> = all.iter().filter(here).collect();
    let mut problems = config.warnings().to_vec();
    problems.extend(nowhere(config, &all));
    problems.extend(exceptions(config, &all));
    problems.extend(interrupted(config, &pipelines));
    programs(config, &pipelines, embedded, &mut problems);
    problems
}

/// Adds the programs that do not exist.
fn programs(
    config: &Config,
    pipelines: &[&Found],
    embedded: &Embedded,
    problems: &mut Vec<Problem>,
) {
    if config.role.runs_steps() {
        for found in pipelines {
            steps(found, config, embedded, problems);
        }
    }
    hooks(config, problems);
}

/// The names in `pipelines` that no file defines. A daemon starts nevertheless: a run carries its
/// definition, and another host may have triggered it.
fn nowhere(config: &Config, all: &[Found]) -> Vec<Problem> {
    // An advancer and a console serve every pipeline, and if there is none, a plainer message says so.
    if !config.role.runs_steps() || all.is_empty() {
        return Vec::new();
    }
    let names = || all.iter().map(|found| found.definition.pipeline.as_str());
    let wanted = config.pipelines.names().unwrap_or_default();
    let missing = wanted.iter().filter(|name| !names().any(|it| it == *name));
    let problem = |name: &String| {
        let message = format!("`pipelines` names `{name}`: there is no such pipeline here");
        let help = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "there are: {}",
                names().take(20).collect::<Vec<_>>().join(", ")
            ),
        };
        config.placed("pipelines", Some(name), message).help(help)
    };
    missing.map(problem).collect()
}

/// Exceptions for names that may be misspelt. They may be correct: a worker serves pipelines that another
/// host defines, and an exception may be for one of these.
fn exceptions(config: &Config, all: &[Found]) -> Vec<Problem> {
    let find = |name: &str| all.iter().find(|found| found.definition.pipeline == name);
    let names = || all.iter().map(|found| found.definition.pipeline.as_str());
    let mut notes: Vec<Problem> = Vec::new();
    let mut note = |problem: Problem, near: Option<&str>| {
        if !notes.iter().any(|other| other.message == problem.message) {
            notes.push(match near {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem,
            });
        }
    };
    for endpoint in &config.console.webhooks {
        let unknown = endpoint.interest.pipelines.iter();
        for name in unknown.filter(|name| find(name).is_none()) {
            let message = format!(
                "the endpoint `{}` of `console.webhooks` names `{name}`: there is no such pipeline here",
                endpoint.name
            );
            let placed = config.placed("console.webhooks", None, message);
            note(placed, nearest(name, names()));
        }
    }
    for (key, name, step) in config.exceptions() {
        let Some(found) = find(name) else {
            let message = format!("`{key}` names `{name}`: there is no such pipeline here");
            note(
                config.placed(key, Some(name), message),
                nearest(name, names()),
            );
            continue;
        };
        let steps = || found.definition.steps.keys().map(String::as_str);
        if let Some(step) = step.filter(|step| !steps().any(|known| known == *step)) {
            let message = format!("`{key}` names `{step}`: there is no such step in `{name}`");
            let at = format!("{name}.{step}");
            note(
                config.placed(key, Some(&at), message),
                nearest(step, steps()),
            );
        }
    }
    notes
}

/// Steps that may take longer than a stop waits for them: one note for each pipeline.
fn interrupted(config: &Config, pipelines: &[&Found]) -> Vec<Problem> {
    let mut notes = Vec::new();
    for found in pipelines {
        let name = &found.definition.pipeline;
        let drain = config.job_worker.shutdown_timeout(name);
        let mut longer: Vec<_> = found
            .definition
            .steps
            .iter()
            .filter_map(|(step, spec)| {
                let of_config = || config.job_worker.timeout(name, step);
                let timeout = spec.timeout.or_else(of_config)?;
                (timeout > drain).then_some((timeout, step))
            })
            .collect();
        longer.sort_by(|one, other| other.cmp(one));
        // A stop that waits for nothing is reported elsewhere.
        let Some((timeout, step)) = longer.first().filter(|_| !drain.is_zero()) else {
            continue;
        };
        let others = match longer.len() - 1 {
            0 => String::new(),
            others => format!(
                ", and {} more may be too long",
                counted(others as u64, "step")
            ),
        };
        let message = format!(
            "step `{step}` of pipeline `{name}` may take {timeout:?}, and a stop waits {drain:?} for it: then it is \
             ended, and runs again from its beginning{others}"
        );
        let help = "raise `job_worker.shutdown_timeout` and `supervisor.shutdown_timeout`, or lower \
                    the step's `timeout`";
        notes.push(Problem {
            file: found.file.clone(),
            at: found.steps_at.get(*step).cloned(),
            ..Problem::new(message).help(help)
        });
    }
    notes
}

/// Pipelines in directories inside the one that is read, and in files whose names do not end as they should.
fn unread(config: &Config) -> Vec<Problem> {
    let dir = &config.pipelines_path;
    let inside = format!("it is in a directory inside `{}`", dir.display());
    let note = |files: Vec<PathBuf>, because: &str, help: &str| {
        let first = files.first()?.clone();
        let more = match files.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more like it)"),
        };
        let message = format!("this pipeline is not read, because {because}{more}");
        Some(Problem {
            file: Some(first),
            ..Problem::new(message).help(help)
        })
    };
    let nested = note(
        nested(dir),
        &inside,
        "move the file up, or name its directory as `pipelines_path`",
    );
    let misnamed = note(
        misnamed(dir),
        "its file's name does not end in `.yml` or `.yaml`",
        "write the end of the name in small letters",
    );
    nested.into_iter().chain(misnamed).collect()
}

/// Hooks for questions, in pipelines that ask no questions.
fn unasked(pipelines: &[&Found]) -> Vec<Problem> {
    let asks = |definition: &Definition| {
        let mut nodes = definition.nodes.iter();
        nodes.any(|node| matches!(node.next, Edge::Dampen(_)))
    };
    let note = |found: &&Found| {
        let definition = &found.definition;
        let step = definition.hook(Hook::Wait).filter(|_| !asks(definition))?;
        let message = format!(
            "`on_wait` of pipeline `{}` is never called: no `dampen` of its flow waits for a person",
            definition.pipeline
        );
        let help = format!("add `- dampen: …` to the flow, or remove `on_wait: {step}`");
        Some(Problem {
            file: found.file.clone(),
            at: found.steps_at.get(step).cloned(),
            ..Problem::new(message).help(help)
        })
    };
    pipelines.iter().filter_map(note).collect()
}

/// Cases of a divert that look like comparisons.
fn compared(pipelines: &[&Found]) -> Vec<Problem> {
    let mut notes = Vec::new();
    for found in pipelines {
        for node in &found.definition.nodes {
            let Edge::Divert { cases, .. } = &node.next else {
                continue;
            };
            for case in cases {
                if !case.when.starts_with(['<', '>', '=', '!']) {
                    continue;
                }
                let message = format!(
                    "the divert after `{}` of pipeline `{}` treats `{}` as a text: it is not computed",
                    node.name, found.definition.pipeline, case.when
                );
                let step = node.step.as_ref();
                notes.push(Problem {
                    file: found.file.clone(),
                    at: step.and_then(|step| found.steps_at.get(step).cloned()),
                    ..Problem::new(message)
                        .help("let the step return a word for each path, such as `large`")
                });
            }
        }
    }
    notes
}

/// The check that is possible before a step runs: its program exists.
fn steps(found: &Found, config: &Config, embedded: &Embedded, problems: &mut Vec<Problem>) {
    let pipeline = &found.definition;
    // The environment that the worker of this pipeline will have.
    let environment = Environment::inherit(
        std::env::vars_os(),
        config.secret_variables(),
        config.job_worker.env(&pipeline.pipeline),
    );
    for (name, step) in &pipeline.steps {
        let wrong = match &step.run {
            StepRunner::Command(argv) => command(argv, step, config, &environment),
            StepRunner::Native => native(name, embedded),
        };
        if let Some((message, help)) = wrong {
            let message = format!(
                "step `{name}` of pipeline `{}`: {message}",
                pipeline.pipeline
            );
            problems.push(Problem {
                file: found.file.clone(),
                at: found.steps_at.get(name).cloned(),
                ..Problem::new(message).help(help)
            });
        }
    }
}

/// The same for hooks.
fn hooks(config: &Config, problems: &mut Vec<Problem>) {
    let hooks = &config.hooks;
    let all = [
        ("supervisor", &hooks.supervisor, DaemonRole::All),
        ("advancer", &hooks.advancer, DaemonRole::Advancer),
        ("worker", &hooks.worker, DaemonRole::Worker),
    ];
    // A role that runs alone runs its own hooks.
    let here = |role| config.role == DaemonRole::All || config.role == role;
    for (of, both, _) in all.into_iter().filter(|(.., role)| here(*role)) {
        for (moment, commands) in [("start", &both.start), ("stop", &both.stop)] {
            for argv in commands {
                let path = std::env::var_os("PATH");
                if let Some((message, help)) = program(argv, &config.base_dir, path.as_deref()) {
                    let message = format!("`hooks.{of}.{moment}`: {message}");
                    let key = format!("hooks.{of}.{moment}");
                    problems.push(config.placed(&key, None, message).help(help));
                }
            }
        }
    }
}

fn command(
    argv: &[String],
    step: &StepSpec,
    config: &Config,
    environment: &Environment,
) -> Option<(String, String)> {
    let cwd = match &step.cwd {
        Some(cwd) => config.base_dir.join(cwd),
        None => config.base_dir.clone(),
    };
    if !cwd.is_dir() {
        let message = format!("its working directory {} does not exist", cwd.display());
        return Some((message, "make it, or correct `cwd`".into()));
    }
    let given = match environment.give(step) {
        Ok(given) => given.values,
        Err(Outcome::Error(error)) => {
            let help = match error.class == crate::step::environment::SECRET {
                true => "set it in the daemon's environment, or put it in a file",
                false => "set it in the daemon's environment, or give a default: `${NAME:-…}`",
            };
            return Some((error.message, help.to_owned()));
        }
        // A shortage of this command's own is no mistake in the step.
        Err(_) => return None,
    };
    let path = given.get("PATH").map(AsRef::as_ref);
    program(argv, &cwd, path.or(environment.get("PATH")))
}

/// Commands whose program exists, but whose script may not.
fn doubtful(config: &Config, pipelines: &[&Found]) -> Vec<Problem> {
    if !config.role.runs_steps() {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for found in pipelines {
        let pipeline = &found.definition;
        for (name, step) in &pipeline.steps {
            let StepRunner::Command(argv) = &step.run else {
                continue;
            };
            let cwd = step.cwd.as_ref();
            let cwd = cwd.map_or(config.base_dir.clone(), |cwd| config.base_dir.join(cwd));
            let path = std::env::var_os("PATH");
            let file = argv
                .first()
                .and_then(|it| resolve(it, &cwd, path.as_deref()).ok());
            let doubt = file
                .map(|file| cwd.join(file))
                .filter(|file| file.is_file());
            let doubt = doubt.and_then(|file| scripts::doubt(argv, &file, &cwd, path.as_deref()));
            let Some((message, help)) = doubt else {
                continue;
            };
            let message = format!(
                "step `{name}` of pipeline `{}`: {message}",
                pipeline.pipeline
            );
            notes.push(Problem {
                file: found.file.clone(),
                at: found.steps_at.get(name).cloned(),
                ..Problem::new(message).help(help)
            });
        }
    }
    notes
}

fn program(argv: &[String], cwd: &Path, path: Option<&OsStr>) -> Option<(String, String)> {
    let program = argv.first()?;
    // No file, but a line that a shell would split.
    let line = (argv.len() == 1 && program.contains(char::is_whitespace)).then(|| as_list(program));
    let file = match resolve(program, cwd, path) {
        Ok(file) => cwd.join(file),
        Err(_) if line.is_some() => {
            return line.map(|help| (format!("there is no program `{program}`"), help));
        }
        Err(error) => {
            let help = format!("install {program}, or give its path");
            return Some((error.message, help));
        }
    };
    executable(program, &file).map(|(message, help)| match line {
        Some(line) if !file.exists() => (message, line),
        _ => (message, help),
    })
}

/// A file that is there, but out of reach, has another remedy.
fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn executable(program: &str, file: &Path) -> Option<(String, String)> {
    let shown = file.display();
    match file.metadata() {
        Err(error) if !is_missing(&error) => Some((
            format!("the program `{program}` cannot be looked at: {error}"),
            format!("let this user reach {shown}"),
        )),
        Err(_) => Some((
            format!("there is no program `{program}`"),
            format!("it was expected at {shown}"),
        )),
        Ok(found) if !found.is_file() => Some((
            format!("`{program}` is not a file"),
            format!("it is {shown}"),
        )),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Some((
            format!("`{program}` is not executable"),
            format!("chmod +x {shown}"),
        )),
        Ok(_) => None,
    }
}

fn native(name: &str, embedded: &Embedded) -> Option<(String, String)> {
    let registry = &embedded.registry;
    if registry.names().any(|known| known == name) {
        return None;
    }
    let help = match nearest(name, registry.names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "register it, or say with `command` what runs".to_owned(),
    };
    Some((
        "this program has no native step of that name".to_owned(),
        help,
    ))
}

fn summary(config: &Config, pipelines: &[&Found], notes: &[Problem]) -> String {
    let good = paint(out::GOOD, "✓");
    let file = match &config.file {
        Some(file) => out::clean(&file.display().to_string()),
        None => "no configuration file: the defaults are used".to_owned(),
    };
    let mut text = format!("{good} {file} ({})\n", out::clean(&config.environment));
    if !config.others.is_empty() {
        let others = out::clean(&config.others.join(", "));
        let other = format!("not checked: {others} (name it with -e)");
        text.push_str(&format!("{} {other}\n", paint(out::DIM, "·")));
    }
    // A variable wins over the file, and may have been set for another program.
    let origin = &config.database.origin;
    let origin = match origin.ends_with("DATABASE_URL") {
        true => format!("from {origin}, "),
        false => String::new(),
    };
    text.push_str(&format!(
        "{} {} ({origin}not contacted)\n",
        paint(out::DIM, "·"),
        out::clean(&config.database.url.to_string())
    ));
    for pipeline in pipelines {
        let pipeline = &pipeline.definition;
        let nodes = counted(pipeline.nodes.len() as u64, "node");
        let steps = counted(pipeline.steps.len() as u64, "step");
        let name = paint(out::BOLD, &out::clean(&pipeline.pipeline));
        text.push_str(&format!("{good} {name}: {nodes}, {steps}\n"));
    }
    text + &told(notes)
}

/// The notes, one to a line.
fn told(notes: &[Problem]) -> String {
    let mut text = String::new();
    for note in notes {
        let mark = paint(out::ASKS, "!");
        let help = note.help.as_deref().map(|help| format!("; {help}"));
        let place = note.place().map(|place| format!(" ({place})"));
        let said = format!(
            "{}{}{}",
            note.message,
            help.unwrap_or_default(),
            place.unwrap_or_default()
        );
        text.push_str(&format!("{mark} {}\n", out::clean(&said)));
    }
    text
}
