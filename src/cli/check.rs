//! `check`: the configuration and all pipelines, every problem at once.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::config::{Config, DaemonRole};
use crate::definition::{Definition, StepRunner, StepSpec};
use crate::problem::{Problem, Problems, nearest};
use crate::process::start::no_pipelines;
use crate::step::resolve::resolve;

use super::exit::{Code, Failure};
use super::house::House;
use super::out::{self, paint};

/// Checks the configuration and all pipelines. Connects to nothing.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd check
  ductworkd check -e production --json | jq '.problems[] | {file, line, message}'
")]
pub struct Check {}

impl Check {
    pub fn execute(self, house: &House) -> Result<(), Failure> {
        let mut problems = house.embedded.registry.problems();
        let mut pipelines = Vec::new();
        let mut config = None;
        match house.config() {
            Ok(found) => {
                match house.pipelines(&found) {
                    Ok(all) if all.is_empty() => problems.push(no_pipelines(&found)),
                    Ok(all) => pipelines = all,
                    Err(failure) => take(failure, &mut problems)?,
                }
                if found.role != DaemonRole::Advancer {
                    for pipeline in &pipelines {
                        steps(pipeline, &found, house, &mut problems);
                    }
                }
                config = Some(found);
            }
            Err(failure) => take(failure, &mut problems)?,
        }
        let fine = problems.is_empty();
        if house.out.json {
            let names: Vec<&str> = pipelines.iter().map(|one| one.pipeline.as_str()).collect();
            let file = config.as_ref().and_then(|config| config.file.as_deref());
            house.out.value(&json!({
                "ok": fine,
                "config": file,
                "environment": config.as_ref().map(|config| &config.environment),
                "pipelines": names,
                "problems": problems.iter().map(in_json).collect::<Vec<_>>(),
            }))?;
            return if fine {
                Ok(())
            } else {
                Err(Failure::Quiet(Code::Usage))
            };
        }
        match config {
            Some(config) if fine => house.out.text(&told(&config, &pipelines)),
            _ => Err(Problems(problems).into()),
        }
    }
}

fn take(failure: Failure, problems: &mut Vec<Problem>) -> Result<(), Failure> {
    match failure {
        Failure::Told(_, found) => {
            problems.extend(found.0);
            Ok(())
        }
        failure => Err(failure),
    }
}

/// What can be known of a step before it runs: that there is something to run.
fn steps(pipeline: &Definition, config: &Config, house: &House, problems: &mut Vec<Problem>) {
    for (name, step) in &pipeline.steps {
        let wrong = match &step.run {
            StepRunner::Command(argv) => command(argv, step, config),
            StepRunner::Native => native(name, house),
        };
        if let Some((message, help)) = wrong {
            let message = format!(
                "step `{name}` of pipeline `{}`: {message}",
                pipeline.pipeline
            );
            problems.push(Problem::new(message).help(help));
        }
    }
}

fn command(argv: &[String], step: &StepSpec, config: &Config) -> Option<(String, String)> {
    let cwd = match &step.cwd {
        Some(cwd) => config.base_dir.join(cwd),
        None => config.base_dir.clone(),
    };
    if !cwd.is_dir() {
        let message = format!("its working directory {} is not there", cwd.display());
        return Some((message, "make it, or correct `cwd`".into()));
    }
    let program = argv.first()?;
    let path = step
        .env
        .get("PATH")
        .map(Into::into)
        .or_else(|| std::env::var_os("PATH"));
    let file = match resolve(program, &cwd, path.as_deref()) {
        Ok(file) => cwd.join(file),
        Err(error) => {
            let help = "install it, or write the path to it".to_owned();
            return Some((error.message, help));
        }
    };
    executable(program, &file)
}

fn executable(program: &str, file: &Path) -> Option<(String, String)> {
    let shown = file.display();
    match file.metadata() {
        Err(_) => Some((
            format!("there is no program `{program}`"),
            format!("it would be {shown}"),
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

fn native(name: &str, house: &House) -> Option<(String, String)> {
    let registry = &house.embedded.registry;
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

fn in_json(problem: &Problem) -> serde_json::Value {
    json!({
        "file": problem.file,
        "line": problem.at.as_ref().map(|at| at.line),
        "column": problem.at.as_ref().map(|at| at.column),
        "message": problem.message,
        "help": problem.help,
    })
}

fn told(config: &Config, pipelines: &[Definition]) -> String {
    let good = paint(out::GOOD, "✓");
    let file = match &config.file {
        Some(file) => out::clean(&file.display().to_string()),
        None => "no configuration: the defaults hold".to_owned(),
    };
    let mut text = format!("{good} {file} ({})\n", out::clean(&config.environment));
    text.push_str(&format!(
        "{good} {}\n",
        out::clean(&config.database.url.to_string())
    ));
    for pipeline in pipelines {
        let nodes = pipeline.nodes.len();
        let name = paint(out::BOLD, &out::clean(&pipeline.pipeline));
        text.push_str(&format!("{good} {name}, {nodes} nodes\n"));
    }
    text
}
