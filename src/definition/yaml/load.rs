//! Pipeline files and directories of them.
//!
//! Owns: which files are pipelines, and the reasons why one cannot be read. Never:
//! understands a file's content. Tested in `tests/files.rs`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path as FilePath, PathBuf};

#[cfg(test)]
use super::Definition;
use super::{Loaded, read};
use crate::definition::tree::MAX_BYTES;
use crate::file::{self, Refused};
use crate::problem::{Position, Problem, Problems, lines};

/// A search for pipelines that nobody reads looks at this many files of a directory, and at this many in all.
const NESTED_MAX: usize = 100;

/// The definition in `file`, or everything that is wrong with it.
#[cfg(test)]
pub fn load_file(file: &FilePath) -> Result<Definition, Problems> {
    Ok(load(file)?.definition)
}

/// The definitions in all `*.yml` and `*.yaml` files of `dir`, sorted by the files' names, or
/// everything that is wrong with all of them. Hidden files are ignored: editors create them.
#[cfg(test)]
pub fn load_dir(dir: &FilePath) -> Result<Vec<(PathBuf, Definition)>, Problems> {
    let (loaded, problems) = look_into(dir)?;
    match problems.is_empty() {
        true => {
            let loaded = loaded.into_iter();
            Ok(loaded
                .map(|(file, loaded)| (file, loaded.definition))
                .collect())
        }
        false => Err(Problems(problems)),
    }
}

/// The same, but with the correct files even if others have mistakes.
#[expect(
    clippy::type_complexity,
    reason = "two lists, and an error for neither"
)]
pub fn look_into(dir: &FilePath) -> Result<(Vec<(PathBuf, Loaded)>, Vec<Problem>), Problems> {
    let unreadable = |error: std::io::Error| {
        let mut problem = Problem::new(format!(
            "the directory of the pipelines cannot be read: {error}"
        ))
        .help("`pipelines_path` in the configuration says where they are");
        problem.file = Some(dir.to_owned());
        Problems(vec![problem])
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if may_be_a_pipeline(&path) {
            files.push(path);
        }
    }
    files.sort();

    let mut problems = Vec::new();
    let mut definitions = Vec::new();
    let mut first_in: HashMap<String, PathBuf> = HashMap::new();
    // Nobody knows which of the two is meant.
    let mut twice: HashSet<String> = HashSet::new();
    for file in files {
        let loaded = match load(&file) {
            Ok(loaded) => loaded,
            Err(Problems(more)) => {
                problems.extend(more);
                continue;
            }
        };
        let name = loaded.definition.pipeline.clone();
        if let Some(first) = first_in.get(&name) {
            problems.push(Problem {
                file: Some(file),
                at: loaded.name_at,
                message: format!("pipeline `{name}` is in {} as well", first.display()),
                help: Some("give one of the two another name".into()),
            });
            twice.insert(name);
            continue;
        }
        first_in.insert(name, file.clone());
        definitions.push((file, loaded));
    }
    definitions.retain(|(_, loaded)| !twice.contains(&loaded.definition.pipeline));
    Ok((definitions, problems))
}

fn is_hidden(path: &FilePath) -> bool {
    let name = path.file_name();
    name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn may_be_a_pipeline(path: &FilePath) -> bool {
    let is_yaml = path
        .extension()
        .is_some_and(|extension| extension == "yml" || extension == "yaml");
    is_yaml && !is_hidden(path)
}

/// Pipelines that nobody reads, because the ends of their names have capital letters.
pub fn misnamed(dir: &FilePath) -> Vec<PathBuf> {
    let mut files = inside(dir, |path| {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let is_yaml = extension == "yml" || extension == "yaml";
        is_yaml && !is_hidden(path) && !may_be_a_pipeline(path)
    });
    files.retain(|file| load(file).is_ok());
    files
}

/// Pipelines that nobody reads, because they are in directories inside `dir`: some of them, where there are very
/// many files.
pub fn nested(dir: &FilePath) -> Vec<PathBuf> {
    let directories = inside(dir, |path| path.is_dir() && !is_hidden(path));
    let files = directories
        .iter()
        .flat_map(|it| inside(it, may_be_a_pipeline));
    let files = files.take(NESTED_MAX);
    files.filter(|file| load(file).is_ok()).collect()
}

/// Some of the entries of a directory that are meant, sorted.
fn inside(dir: &FilePath, is_meant: fn(&FilePath) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| is_meant(path))
        .take(NESTED_MAX)
        .collect();
    paths.sort();
    paths
}

fn load(file: &FilePath) -> Result<Loaded, Problems> {
    let problem = |message: String, help: &str| {
        let mut problem = Problem::new(message).help(help);
        problem.file = Some(file.to_owned());
        Problems(vec![problem])
    };
    let bytes = file::read(file, MAX_BYTES as u64).map_err(|refused| match refused {
        Refused::Io(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_symlink() => {
            let help = "remove the link, or put a pipeline where it leads";
            problem("this is a link, and nothing is where it leads".into(), help)
        }
        Refused::Io(error) => {
            let help = "make the file readable for the user that the daemon runs as";
            problem(format!("the file cannot be read: {error}"), help)
        }
        Refused::Directory => {
            let help = "a pipeline is a file; call the directory something else";
            problem("this is a directory".into(), help)
        }
        Refused::Special => {
            let help = "a pipeline is a regular file";
            problem("this is not a file".into(), help)
        }
        Refused::TooLarge => too_large(file),
    })?;
    if file::is_utf_16(&bytes) {
        return Err(problem("the file is UTF-16".into(), "save it as UTF-8"));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes());
            // Valid text is decoded unchanged, so its length is still that of the text.
            let before = &text[..valid];
            let line = lines(before).count();
            let column = lines(before).last().map_or(0, |last| last.chars().count()) + 1;
            let mut found = problem("a byte that is not UTF-8".into(), "save the file as UTF-8");
            found.0[0].at = Some(Position::of(&text, line, column, 1));
            return Err(found);
        }
    };
    read(&text, file)
}

pub(super) fn too_large(file: &FilePath) -> Problems {
    let message = format!("the file is larger than {} KiB", MAX_BYTES / 1024);
    let mut problem =
        Problem::new(message).help("a file that people write is smaller; split the pipeline");
    problem.file = Some(file.to_owned());
    Problems(vec![problem])
}
