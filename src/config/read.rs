//! From the section and the overrides to typed settings: each key once, every problem kept.
//!
//! Owns: precedence (variable, then file, then default) and the expansion of variables in the file's values.
//! Never: stops at the first problem; a bad value is replaced by its default so that the rest is still checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::definition::graph::Backoff;
use crate::file;
use crate::problem::Problem;
use crate::yaml::{Fault, Node};

use super::database::{DatabaseUrl, UrlError};
use super::expand::{self, Variables};
use super::keys::{self, Key};
use super::places::Places;
use super::source::{Source, of_variable};
use super::value::{self, BACKOFF, ByStep, Faults, Scoped};

/// Variables that hold the database's address, in order of precedence; each may also be
/// given as a file, by a variable of the same name with `_FILE` at its end.
pub const URL_VARIABLES: [&str; 3] = [
    "DUCTWORK_DATABASE_URL",
    "DUCTWORK_DATABASE__URL",
    "DATABASE_URL",
];

/// Variables that an address may well name and that are not secret.
const PUBLIC: [&str; 9] = [
    "HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER",
];

/// The largest size of a file that holds an address.
const MAX_URL_BYTES: u64 = 64 * 1024;

/// Reads keys, and remembers what was wrong with them.
pub struct Reader<'a> {
    source: Option<&'a Source>,
    section: Option<Node>,
    overrides: BTreeMap<&'static str, (String, Node)>,
    vars: Variables<'a>,
    /// The places of all settings.
    pub places: Places,
    /// The address in the file that a variable names, once it was read.
    pub url_file: Option<String>,
    /// The mistakes so far.
    pub problems: Vec<Problem>,
    /// Variables that only the console needs, and that are not set.
    pub unset: Vec<Problem>,
}

/// Where a value came from.
enum Origin {
    Variable(String),
    File,
}

impl<'a> Reader<'a> {
    /// Reads from a section of a file, below overrides.
    pub fn new(
        source: Option<&'a Source>,
        section: Option<Node>,
        overrides: BTreeMap<&'static str, (String, Node)>,
        vars: Variables<'a>,
    ) -> Self {
        let file = source.map(|source| source.shown.clone());
        Self {
            source,
            places: Places::of(file, section.as_ref(), overrides.keys().copied()),
            section,
            overrides,
            vars,
            url_file: None,
            problems: Vec::new(),
            unset: Vec::new(),
        }
    }

    /// A key that has one value, which only a console uses: a process that runs none need not have its
    /// variables.
    pub fn of_console<T>(&mut self, path: &str, parse: fn(&Node, &Key) -> Result<T, Faults>) -> T {
        let Some(Err(faults)) = self.unread(path).map(|node| expand::node(node, self.vars)) else {
            return self.one(path, parse);
        };
        let before = self.problems.len();
        self.fail(&Origin::File, faults);
        self.unset.extend(self.problems.drain(before..));
        default(path, parse)
    }

    /// The value of a key as it is written in the file, where it counts.
    pub fn unread(&self, path: &str) -> Option<&Node> {
        self.in_file(path)
            .filter(|_| !self.overrides.contains_key(path))
    }

    /// A key that has one value.
    pub fn one<T>(&mut self, path: &str, parse: fn(&Node, &Key) -> Result<T, Faults>) -> T {
        self.read(path, default(path, parse), |node, key, _| parse(node, key))
    }

    /// A key that may differ by pipeline.
    pub fn by_pipeline<T: Clone>(
        &mut self,
        path: &str,
        parse: fn(&Node, &Key) -> Result<T, Faults>,
    ) -> Scoped<T> {
        let fallback = Scoped::everywhere(default(path, parse));
        self.read(path, fallback, |node, key, fallback| {
            let leaf = |node: &Node, _: &T| parse(node, key);
            value::scoped(node, &fallback.default, value::is_scalar, &leaf)
        })
    }

    /// A key that may differ by pipeline and step.
    pub fn by_step<T: Clone>(
        &mut self,
        path: &str,
        parse: fn(&Node, &Key) -> Result<T, Faults>,
    ) -> ByStep<T> {
        let fallback = Scoped::everywhere(Scoped::everywhere(default(path, parse)));
        self.read(path, fallback, |node, key, fallback| {
            let leaf = |node: &Node, _: &T| parse(node, key);
            value::by_step(node, &fallback.default.default, value::is_scalar, &leaf)
        })
    }

    /// A backoff, which may differ by pipeline.
    pub fn backoff_by_pipeline(&mut self, path: &str) -> Scoped<Backoff> {
        let fallback = Scoped::everywhere(default_backoff(path));
        let mut backoffs = self.read(path, fallback, |node, key, fallback| {
            let leaf = |node: &Node, fallback: &Backoff| value::backoff(node, key, fallback);
            value::scoped(node, &fallback.default, value::is_backoff, &leaf)
        });
        self.finish_backoffs(path, backoffs.each_mut());
        backoffs
    }

    /// A backoff, which may differ by pipeline and step.
    pub fn backoff_by_step(&mut self, path: &str) -> ByStep<Backoff> {
        let fallback = Scoped::everywhere(Scoped::everywhere(default_backoff(path)));
        let mut backoffs = self.read(path, fallback, |node, key, fallback| {
            let leaf = |node: &Node, fallback: &Backoff| value::backoff(node, key, fallback);
            value::by_step(node, &fallback.default.default, value::is_backoff, &leaf)
        });
        self.finish_backoffs(path, backoffs.each_mut().flat_map(Scoped::each_mut));
        backoffs
    }

    /// Overrides of single parts hold everywhere; after them, the parts have to fit together.
    fn finish_backoffs<'b>(&mut self, path: &str, backoffs: impl Iterator<Item = &'b mut Backoff>) {
        let key = known(path);
        let mut longest_first: Option<Backoff> = None;
        let mut faulty: BTreeMap<&str, Faults> = BTreeMap::new();
        for backoff in backoffs {
            for name in BACKOFF {
                let part = keys::join(path, name);
                if let Some((_, node)) = self.overrides.get(part.as_str())
                    && let Err(faults) = value::set_backoff(backoff, name, node, key)
                {
                    faulty.insert(name, faults);
                }
            }
            if backoff.initial > backoff.max {
                longest_first = Some(*backoff);
            }
        }
        for (name, faults) in faulty {
            let variable = keys::variable(&keys::join(path, name));
            self.fail(&Origin::Variable(variable), faults);
        }
        if let Some(Backoff { initial, max, .. }) = longest_first {
            let message =
                format!("`{path}`: `initial` ({initial:?}) is longer than `max` ({max:?})");
            let at = self.in_file(path).map(|node| node.at);
            let fault = Fault {
                at,
                message,
                help: Some("raise `max`, or lower `initial`".into()),
            };
            self.fail(&Origin::File, vec![fault]);
        }
    }

    /// The database's address, the variable or key that it came from, and the names of all variables
    /// that hold a part of it.
    pub fn database_url(&mut self, base_dir: &Path) -> (DatabaseUrl, String, Vec<String>) {
        let mut secrets: Vec<String> = URL_VARIABLES
            .iter()
            .flat_map(|name| [(*name).to_owned(), format!("{name}_FILE")])
            .collect();
        let file = self.in_file("database.url").cloned();
        let mut from_file = None;
        if let Some(node) = &file {
            let expanded = expand::node(node, self.vars);
            // A value of the file is a secret even where a variable wins over the file. The path of
            // an SQLite database is not.
            if let Ok((node, used)) = &expanded
                && !node.as_text().unwrap_or_default().starts_with("sqlite")
            {
                let used = used.iter().filter(|name| !PUBLIC.contains(&name.as_str()));
                secrets.extend(used.cloned());
            }
            from_file = Some(expanded.map(|(node, _)| node));
        }
        secrets.sort();
        secrets.dedup();
        let origin = match (self.url_name(), self.source) {
            (Some(name), _) => name,
            (None, Some(source)) if from_file.is_some() => {
                format!("`database.url` of {}", source.shown.display())
            }
            _ => super::DEFAULT_URL.to_owned(),
        };
        (self.choose_url(from_file, base_dir), origin, secrets)
    }

    /// The address in the file, where a variable that other programs use wins over it and has another one.
    pub fn outranked_url(&self, chosen: &DatabaseUrl, base_dir: &Path) -> Option<DatabaseUrl> {
        self.url_name()
            .filter(|name| name.starts_with("DATABASE_URL"))?;
        let (node, _used) = expand::node(self.in_file("database.url")?, self.vars).ok()?;
        let url = DatabaseUrl::parse(node.as_text()?, base_dir).ok()?;
        (!url.is_same(chosen)).then_some(url)
    }

    /// The variables that a value of the file names, and the one that overrides it: they are secrets.
    pub fn variables_of(&self, path: &str) -> Vec<String> {
        let node = self.in_file(path);
        let mut used = node.map_or_else(Vec::new, |node| expand::used(node, self.vars));
        used.retain(|name| !PUBLIC.contains(&name.as_str()));
        used.push(keys::variable(path));
        used
    }

    fn choose_url(
        &mut self,
        from_file: Option<Result<Node, Faults>>,
        base_dir: &Path,
    ) -> DatabaseUrl {
        let key = known("database.url");
        let fallback =
            DatabaseUrl::parse(key.default, base_dir).expect("the default is an address");
        match self.url_variable() {
            Some((name, Ok(text))) => {
                return DatabaseUrl::parse(&text, base_dir).unwrap_or_else(|error| {
                    self.problems.push(Problem {
                        help: Some(error.help),
                        ..Problem::new(format!("{name}: {}", error.message))
                    });
                    fallback
                });
            }
            Some((name, Err(why))) => {
                self.problems.push(Problem::new(format!("{name}: {why}")));
                return fallback;
            }
            None => {}
        }
        let node = match from_file {
            None => return fallback,
            Some(Err(faults)) => {
                self.fail(&Origin::File, faults);
                return fallback;
            }
            Some(Ok(node)) => node,
        };
        let parsed = match node.as_text() {
            Some(text) => DatabaseUrl::parse(text, base_dir),
            None => Err(UrlError {
                message: format!("`database.url` takes a URL, not {}", node.describe()),
                help: format!("write it in quotes, such as \"{}\"", key.default),
            }),
        };
        parsed.unwrap_or_else(|error| {
            let fault = Fault::new(node.at, error.message).help(error.help);
            self.fail(&Origin::File, vec![fault]);
            fallback
        })
    }

    /// The variable that gives the database's address, if there is one.
    fn url_name(&self) -> Option<String> {
        let is_set = |name: &String| (self.vars)(name).is_some_and(|text| !text.trim().is_empty());
        let mut names = URL_VARIABLES
            .iter()
            .flat_map(|name| [(*name).to_owned(), format!("{name}_FILE")]);
        names.find(is_set)
    }

    fn url_variable(&mut self) -> Option<(String, Result<String, String>)> {
        let known = self.url_file.take();
        let (name, text, of_file) = URL_VARIABLES.iter().find_map(|name| {
            if let Some(text) = (self.vars)(name).filter(|text| !text.trim().is_empty()) {
                return Some(((*name).to_owned(), Ok(text), false));
            }
            let name = format!("{name}_FILE");
            let path = (self.vars)(&name).filter(|path| !path.is_empty())?;
            let text = match &known {
                Some(text) => Ok(text.clone()),
                None => first_line(Path::new(&path)),
            };
            let text = text.map_err(|why| format!("cannot read {path}: {why}"));
            Some((name, text, true))
        })?;
        if of_file {
            self.url_file = text.clone().ok();
        }
        Some((name, text))
    }

    fn in_file(&self, path: &str) -> Option<&Node> {
        let mut node = self.section.as_ref()?;
        for name in path.split('.') {
            node = node.get(name)?;
        }
        (!node.is_null()).then_some(node)
    }

    fn read<T>(
        &mut self,
        path: &str,
        fallback: T,
        parse: impl FnOnce(&Node, &Key, &T) -> Result<T, Faults>,
    ) -> T {
        let key = known(path);
        let (origin, node) = if let Some((variable, node)) = self.overrides.get(path) {
            (Origin::Variable(variable.clone()), Ok(node.clone()))
        } else if let Some(node) = self.in_file(path) {
            let expanded = expand::node(node, self.vars).map(|(node, _)| node);
            (Origin::File, expanded)
        } else {
            return fallback;
        };
        match node.and_then(|node| parse(&node, key, &fallback)) {
            Ok(value) => value,
            Err(faults) => {
                self.fail(&origin, faults);
                fallback
            }
        }
    }

    fn fail(&mut self, origin: &Origin, faults: Faults) {
        for fault in faults {
            let problem = match (origin, self.source) {
                (Origin::Variable(name), _) => of_variable(name, fault),
                (Origin::File, Some(source)) if fault.at.is_some() => source.problem(fault),
                _ => Problem {
                    help: fault.help,
                    ..Problem::new(fault.message)
                },
            };
            self.problems.push(problem);
        }
    }
}

fn first_line(path: &Path) -> Result<String, String> {
    let bytes = file::read(path, MAX_URL_BYTES).map_err(|refused| refused.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err("it is empty".to_owned()),
    }
}

fn known(path: &str) -> &'static Key {
    keys::find(path).expect("only keys of the table are read, which a test reads in full")
}

/// The default of a key, through the same reading as a user's value.
pub fn default<T>(path: &str, parse: fn(&Node, &Key) -> Result<T, Faults>) -> T {
    let key = known(path);
    let node = match key.default {
        "[]" => Node {
            value: crate::yaml::Value::List(Vec::new()),
            ..Node::plain("")
        },
        "{}" => Node {
            value: crate::yaml::Value::Map(Vec::new()),
            ..Node::plain("")
        },
        text => Node::plain(text),
    };
    parse(&node, key).expect("defaults are values, which a test reads in full")
}

fn default_backoff(path: &str) -> Backoff {
    let part = |name: &str| keys::join(path, name);
    Backoff {
        initial: default::<Duration>(&part("initial"), value::span),
        factor: default(&part("factor"), value::float),
        max: default::<Duration>(&part("max"), value::span),
        jitter: default(&part("jitter"), value::float),
    }
}
