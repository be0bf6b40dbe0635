//! `init`: a directory with a configuration, a pipeline and its steps, to begin with.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::problem::Problem;
use crate::step::resolve::resolve;

use super::exit::Failure;
use super::out::{self, paint};
use super::setup::CliContext;

/// Makes a directory to begin with, or adds to one. Nothing that exists is overwritten.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  ductworkd init hello && cd hello
  ductworkd run Hello '[\"Ada\",\"Grace\"]'
")]
pub struct Init {
    /// The directory
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

struct File {
    path: &'static str,
    text: &'static str,
    mode: u32,
}

const fn text(path: &'static str, text: &'static str) -> File {
    File {
        path,
        text,
        mode: 0o644,
    }
}

const fn program(path: &'static str, text: &'static str) -> File {
    File {
        path,
        text,
        mode: 0o755,
    }
}

const COMMON: [File; 5] = [
    text("ductwork.yml", include_str!("init/ductwork.yml")),
    text("README.md", include_str!("init/README.md")),
    text(".gitignore", include_str!("init/gitignore")),
    program("steps/names.sh", include_str!("init/names.sh")),
    program("steps/greet.sh", include_str!("init/greet.sh")),
];

/// A repository has these: they stay as they are, and the rest is added.
const KEPT: [&str; 2] = ["README.md", ".gitignore"];

const WITH_PYTHON: [File; 2] = [
    text("pipelines/hello.yml", include_str!("init/hello_python.yml")),
    program("steps/report.py", include_str!("init/report.py")),
];

const WITHOUT_PYTHON: [File; 2] = [
    text("pipelines/hello.yml", include_str!("init/hello_sh.yml")),
    program("steps/report.sh", include_str!("init/report.sh")),
];

impl Init {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let mut parents = self.dir.ancestors();
        let there = parents.find(|parent| parent.symlink_metadata().is_ok());
        if let Some(file) = there.filter(|it| !it.is_dir()) {
            let message = format!("{} is a file, not a directory", file.display());
            let help = "`init` makes a directory: choose another name, or move the file";
            return Err(Failure::failed(Problem::new(message).help(help)));
        }
        let path = std::env::var_os("PATH");
        let python = resolve("python3", Path::new("/"), path.as_deref()).is_ok();
        let steps = if python {
            &WITH_PYTHON
        } else {
            &WITHOUT_PYTHON
        };
        let exists = |file: &&&File| self.dir.join(file.path).symlink_metadata().is_ok();
        let is_kept = |file: &&&File| KEPT.contains(&file.path) && exists(file);
        let all = || COMMON.iter().chain(steps);
        let kept: Vec<&File> = all().filter(|file| is_kept(&file)).collect();
        let files: Vec<&File> = all().filter(|file| !is_kept(&file)).collect();
        for file in &files {
            let path = self.dir.join(file.path);
            let parent = path.parent().unwrap_or(&self.dir);
            if parent.symlink_metadata().is_ok() && !parent.is_dir() {
                let message = format!("{} is a file, not a directory", parent.display());
                let help = "`init` makes a directory of that name: move the file";
                return Err(Failure::failed(Problem::new(message).help(help)));
            }
        }
        let taken: Vec<&str> = files.iter().filter(exists).map(|file| file.path).collect();
        if let [first, others @ ..] = taken.as_slice() {
            let place = |path: &&str| self.dir.join(path).display().to_string();
            let (message, files) = match others {
                [] => (format!("{} exists already", place(first)), "file"),
                _ => {
                    let all: Vec<String> = taken.iter().map(place).collect();
                    let (count, all) = (all.len(), all.join(", "));
                    (format!("{count} files exist already: {all}"), "files")
                }
            };
            let help = format!(
                "`init` overwrites nothing: choose another directory, or move the existing {files}"
            );
            return Err(Failure::failed(Problem::new(message).help(help)));
        }
        for file in &files {
            self.write(file)?;
        }
        if cli.out.json {
            let [files, kept] =
                [files, kept].map(|files| files.iter().map(|file| file.path).collect::<Vec<_>>());
            return cli
                .out
                .value(&json!({ "dir": self.dir, "files": files, "kept": kept }));
        }
        let mut said = String::new();
        for file in &files {
            let path = self.dir.join(file.path);
            said.push_str(&format!(
                "{} {}\n",
                paint(out::GOOD, "+"),
                out::clean(&path.display().to_string())
            ));
        }
        for file in &kept {
            let path = self.dir.join(file.path);
            said.push_str(&format!(
                "{} {} stays as it is\n",
                paint(out::DIM, "="),
                out::clean(&path.display().to_string())
            ));
            if file.path == ".gitignore"
                && path.is_file()
                && let Ok(own) = std::fs::read_to_string(&path)
            {
                let lines = file.text.lines();
                let lines = lines.filter(|line| !own.lines().any(|own| own.trim() == *line));
                let lines = lines.collect::<Vec<_>>().join(" ");
                if !lines.is_empty() {
                    said.push_str(&format!("  add to it: {lines}\n"));
                }
            }
        }
        let cd = match self.dir == Path::new(".") {
            true => String::new(),
            false => {
                let shown = self.dir.display().to_string();
                let dashes = if shown.starts_with('-') { "-- " } else { "" };
                format!(
                    "cd {dashes}{} && ",
                    super::hint::quoted(&out::clean(&shown))
                )
            }
        };
        said.push_str(&format!(
            "\nNext: {cd}ductworkd run Hello '[\"Ada\",\"Grace\"]'\n\
             Then: ductworkd start, with pages about every run at http://{}/\n",
            crate::web::LISTEN
        ));
        cli.out.text(&said)
    }

    fn write(&self, file: &File) -> Result<(), Failure> {
        let path = self.dir.join(file.path);
        let parent = path.parent().unwrap_or(&self.dir);
        let written = std::fs::create_dir_all(parent).and_then(|()| {
            // Never write through a file that somebody has put there since the check.
            let mut options = std::fs::OpenOptions::new();
            let mut to = options
                .write(true)
                .create_new(true)
                .mode(file.mode)
                .open(&path)?;
            // Half a file would be in the way of the next try.
            to.write_all(file.text.as_bytes())
                .inspect_err(|_| drop(std::fs::remove_file(&path)))
        });
        written.map_err(|error| {
            Failure::failed(Problem::new(format!(
                "{} cannot be written: {error}",
                path.display()
            )))
        })
    }
}
