//! Which file, which section, which variables: everything before a value is read.
//!
//! Owns: the search for the file, the bounds on it, the choice of the section, unknown keys
//! and unknown overrides. Never: interprets a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::file::{self, Refused};
use crate::problem::{Position, Problem, lines, nearest};
use crate::yaml::{self, Entry, Fault, Mark, Node};

use super::DEFAULT_ENVIRONMENT;
use super::database::cover_passwords;
use super::keys::{self, KEYS, PREFIX, RETIRED};
use super::read::URL_VARIABLES;
use super::value::unknown_key;

/// Nodes of a configuration, after aliases have been replaced.
const MAX_NODES: usize = 10_000;

/// A configuration larger than this is something else.
const MAX_BYTES: u64 = 1024 * 1024;
/// More problems than this help nobody.
const MAX_PROBLEMS: usize = 50;
/// Where a configuration is looked for when none is named.
const PLACES: [&str; 2] = ["ductwork.yml", "config/ductwork.yml"];

/// A file that was read.
#[derive(Debug)]
pub struct Source {
    /// The path as it was named, which problems show.
    pub shown: PathBuf,
    /// The absolute path.
    pub path: PathBuf,
    /// The text without a byte order mark.
    pub text: String,
}

/// The files that a directory's configuration may be.
pub fn places(directory: &Path) -> impl Iterator<Item = PathBuf> {
    PLACES.iter().map(|place| directory.join(place))
}

impl Source {
    /// The file that was asked for, or the one that is there, or none.
    pub fn find(asked: Option<&Path>, cwd: &Path) -> Result<Option<Self>, Problem> {
        if let Some(asked) = asked {
            return Self::read(asked, cwd).map(Some);
        }
        for place in PLACES {
            // A directory or a dangling link of that name is a mistake to report, not to skip.
            if cwd.join(place).symlink_metadata().is_ok() {
                return Self::read(Path::new(place), cwd).map(Some);
            }
        }
        Ok(None)
    }

    /// A file whose text is known.
    pub fn of(shown: &Path, cwd: &Path, text: String) -> Self {
        Self {
            shown: shown.to_owned(),
            path: cwd.join(shown).components().collect(),
            text,
        }
    }

    fn read(shown: &Path, cwd: &Path) -> Result<Self, Problem> {
        let path: PathBuf = cwd.join(shown).components().collect();
        let problem = |message: String| Problem {
            file: Some(shown.to_owned()),
            ..Problem::new(message)
        };
        let bytes = file::read(&path, MAX_BYTES).map_err(|refused| match refused {
            Refused::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                problem("the configuration file does not exist".into())
                    .help("pass an existing file with -c, or create one with `ductworkd init`")
            }
            Refused::Io(error) => {
                problem(format!("the configuration file cannot be read: {error}"))
            }
            Refused::Directory => {
                let file = shown.join(PLACES[0]);
                problem("the configuration file is a directory".into())
                    .help(format!("name the file in it: {}", file.display()))
            }
            Refused::Special => problem("the configuration file is not a file".into())
                .help("write its contents to a regular file: a daemon reads the file again on HUP"),
            Refused::TooLarge => problem("the configuration file is larger than 1 MiB".into()),
        })?;
        if file::is_utf_16(&bytes) {
            return Err(problem("the configuration file is UTF-16".into()).help("save it as UTF-8"));
        }
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let good =
                    String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
                let source = lines(&good).last().unwrap_or_default();
                let column = source.chars().count() + 1;
                let mut at = Position::of(&cover_passwords(source), 1, column, 1);
                at.line = lines(&good).count();
                return Err(Problem {
                    at: Some(at),
                    ..problem("a byte that is not UTF-8".into()).help("save the file as UTF-8")
                });
            }
        };
        Ok(Self {
            shown: shown.to_owned(),
            path,
            text: text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(),
        })
    }

    /// A fault of this file, as it is reported.
    pub fn problem(&self, fault: Fault) -> Problem {
        Problem {
            file: Some(self.shown.clone()),
            at: fault.at.map(|at| position(&self.text, at)),
            message: cover_passwords(&fault.message),
            help: fault.help.as_deref().map(cover_passwords),
        }
    }

    /// The sections for other environments than this one.
    pub fn others(&self, environment: &str) -> Vec<String> {
        let (document, _) = yaml::parse(&self.text, MAX_NODES);
        let entries = document.as_ref().and_then(Node::as_map).unwrap_or_default();
        let names = entries.iter().filter(|entry| is_map(&entry.value));
        names
            .map(|entry| entry.key.clone())
            .filter(|name| !is_extension(name) && !is_key(name))
            .filter(|name| name != "default" && name != environment)
            .collect()
    }

    /// The settings of `environment`. Reports every unknown key, and every key that has no meaning any more.
    pub fn section(
        &self,
        environment: &str,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) -> Option<Node> {
        let (document, mut faults) = yaml::parse(&self.text, MAX_NODES);
        let section = match document {
            // The document lacks the parts that its faults are about.
            _ if !faults.is_empty() => None,
            // Nothing but comments: the defaults, as where there is no file.
            Some(node) if node.is_null() => None,
            Some(node) => choose(node, environment, &mut faults),
            None => None,
        };
        if let Some(section) = &section {
            let mut retired = Vec::new();
            unknown_keys(section, "", &mut faults, &mut retired);
            warnings.extend(retired.into_iter().map(|fault| self.problem(fault)));
        }
        faults.sort_by_key(|fault| fault.at.map(|at| (at.line, at.column)));
        let more = faults.len().saturating_sub(MAX_PROBLEMS);
        faults.truncate(MAX_PROBLEMS);
        problems.extend(faults.into_iter().map(|fault| self.problem(fault)));
        if more > 0 {
            problems.push(Problem::new(format!(
                "and {more} more problems in this file"
            )));
        }
        section
    }
}

/// A place of a configuration, without the passwords in its line.
pub fn position(text: &str, at: Mark) -> Position {
    let line = lines(text).nth(at.line.saturating_sub(1));
    let line = cover_passwords(line.unwrap_or_default());
    let mut position = Position::of(&line, 1, at.column, at.width);
    position.line = at.line;
    position
}

fn is_extension(name: &str) -> bool {
    name.starts_with("x-")
}

fn is_key(name: &str) -> bool {
    keys::children("").contains(&name)
}

/// The section for `environment`, or the whole document when it has no sections.
fn choose(document: Node, environment: &str, faults: &mut Vec<Fault>) -> Option<Node> {
    let Some(entries) = document.as_map() else {
        let found = document.describe();
        let fault = Fault::new(
            document.at,
            format!("a configuration is a map, not {found}"),
        );
        faults.push(fault.help("begin with `default:` and the keys below it"));
        return None;
    };
    let named = |name: &str| {
        let mut entries = entries.iter();
        entries.find(|entry| entry.key == name && !is_key(name))
    };
    let section = named(environment).or_else(|| {
        let sections: Vec<&str> = entries
            .iter()
            .map(|entry| entry.key.as_str())
            .filter(|name| !is_extension(name) && !is_key(name) && *name != "default")
            .collect();
        // `default` stands in for the environment that nobody names, and for no other: an environment
        // that somebody names and the file does not have is misspelt.
        let default = named("default");
        if default.is_some() && environment != DEFAULT_ENVIRONMENT {
            faults.push(unknown_environment(&sections, environment, document.at));
        }
        default
    });
    let Some(section) = section else {
        if entries.iter().any(|entry| is_key(&entry.key)) {
            return Some(document);
        }
        faults.push(no_section(entries, environment, document.at));
        return None;
    };
    for entry in entries {
        let known = is_key(&entry.key);
        if is_extension(&entry.key) || (!known && (is_map(&entry.value))) {
            continue;
        }
        let name = yaml::shorten(&entry.key);
        let fault = match known {
            true => Fault::new(
                entry.at,
                format!("`{name}` stands beside the sections, not in one"),
            )
            .help(format!("indent it under `{}:`", section.key)),
            false => Fault::new(
                entry.at,
                format!(
                    "the section `{name}` is {}, not a map",
                    entry.value.describe()
                ),
            ),
        };
        faults.push(fault);
    }
    match is_map(&section.value) {
        true => Some(section.value.clone()),
        false => None,
    }
}

fn is_map(node: &Node) -> bool {
    node.is_null() || node.as_map().is_some()
}

fn unknown_environment(sections: &[&str], environment: &str, at: yaml::Mark) -> Fault {
    let environment = yaml::shorten(environment);
    let there: Vec<&str> = std::iter::once("default")
        .chain(sections.iter().copied())
        .collect();
    let help = match nearest(&environment, there.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!(
            "the file has: {}; choose one with `--env` or DUCTWORK_ENV, or add a \
             section `{environment}:`",
            yaml::shorten(&there.join(", "))
        ),
    };
    Fault::new(at, format!("there is no section `{environment}`")).help(help)
}

fn no_section(entries: &[Entry], environment: &str, at: yaml::Mark) -> Fault {
    let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let typo = entries.iter().find_map(|entry| {
        let key = nearest(&entry.key, keys::children(""))?;
        Some((entry, key))
    });
    if let Some((entry, key)) = typo {
        return Fault::new(
            entry.at,
            format!("unknown key `{}`", yaml::shorten(&entry.key)),
        )
        .help(format!(
            "did you mean `{key}`? valid keys: {}",
            keys::children("").join(", ")
        ));
    }
    let help = match nearest(environment, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => {
            "the file is empty: `ductworkd init` writes one, or begin with `database: { url: sqlite://ductwork.db }`"
                .to_owned()
        }
        None => format!(
            "the file has: {}; choose one with `--env` or DUCTWORK_ENV",
            yaml::shorten(&names.join(", "))
        ),
    };
    Fault::new(
        at,
        format!(
            "there is no section `{}` and no `default`",
            yaml::shorten(environment)
        ),
    )
    .help(help)
}

fn unknown_keys(node: &Node, group: &str, faults: &mut Vec<Fault>, retired: &mut Vec<Fault>) {
    let Some(entries) = node.as_map() else {
        if !node.is_null() {
            let found = node.describe();
            let known = keys::children(group).join(", ");
            let fault = Fault::new(node.at, format!("`{group}` takes a map, not {found}"));
            faults.push(fault.help(format!("valid keys: {known}")));
        }
        return;
    };
    let known = keys::children(group);
    for entry in entries {
        let path = keys::join(group, &entry.key);
        if is_extension(&entry.key) || keys::find(&path).is_some() {
            continue;
        }
        if let Some((path, why)) = RETIRED.iter().find(|(retired, _)| path == *retired) {
            retired.push(Fault::new(entry.at, no_meaning(path, why)).help("remove it"));
        } else if known.contains(&entry.key.as_str()) {
            unknown_keys(&entry.value, &path, faults, retired);
        } else {
            faults.push(unknown_key(&entry.key, entry.at, group, &known));
        }
    }
}

fn no_meaning(path: &str, why: &str) -> String {
    format!("`{path}` has no meaning any more: {why}")
}

/// The values of `DUCTWORK_…` variables, by the key that each overrides.
pub fn overrides(
    names: &[String],
    vars: &dyn Fn(&str) -> Option<String>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> BTreeMap<&'static str, (String, Node)> {
    let mut found = BTreeMap::new();
    for key in KEYS {
        let name = key.variable();
        // The address has variables of its own, read where it is needed.
        let Some(text) = vars(&name).filter(|text| !text.trim().is_empty()) else {
            continue;
        };
        match value_of(&text) {
            Ok(node) => {
                found.insert(key.path, (name, node));
            }
            Err(fault) => problems.push(of_variable(&name, fault)),
        }
    }
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    for name in names {
        if vars(name).is_none_or(|text| text.trim().is_empty()) {
            continue;
        }
        let retired = RETIRED
            .iter()
            .find(|(path, _)| keys::variable(path) == *name);
        if let Some((path, why)) = retired {
            let problem = Problem::new(format!("{name}: {}", no_meaning(path, why)));
            warnings.push(problem.help("remove it"));
        } else if let Some(problem) = unknown_override(name) {
            problems.push(problem);
        } else {
            warnings.extend(misspelt(name));
        }
    }
    found
}

/// A fault of a variable's value, as it is reported.
pub fn of_variable(name: &str, fault: Fault) -> Problem {
    Problem {
        help: fault.help,
        ..Problem::new(format!("{name}: {}", fault.message))
    }
}

/// A variable's value: a list or a map where it looks like one, else text.
fn value_of(text: &str) -> Result<Node, Fault> {
    let text = text.trim();
    if !text.starts_with(['[', '{']) {
        return Ok(Node::plain(text));
    }
    let (node, mut faults) = yaml::parse(text, MAX_NODES);
    match (node, faults.pop()) {
        (Some(node), None) => Ok(node),
        (_, fault) => Err(fault.unwrap_or_else(|| Fault::new(Node::plain("").at, "is empty"))),
    }
}

/// Variables of ours that override no key.
const OTHERS: [&str; 5] = [
    "CONFIG",
    "ENV",
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "COPY_TO",
];

/// The suspicion about a variable that looks like one of ours. It need not be one: steps are handed
/// some, and our caller may have some.
fn misspelt(name: &str) -> Option<Problem> {
    let rest = name.strip_prefix(PREFIX)?;
    // Steps are handed these, which are only a few letters away from a key.
    if matches!(rest, "PIPELINE" | "CONTEXT_SOCKET") {
        return None;
    }
    let known = KEYS
        .iter()
        .map(|key| key.variable().split_off(PREFIX.len()));
    let known: Vec<String> = OTHERS.map(str::to_owned).into_iter().chain(known).collect();
    if known.iter().any(|known| known == rest) || URL_VARIABLES.contains(&name) {
        return None;
    }
    // One underscore where two belong is one more mistake in the same name.
    let flat = |name: &str| name.replace('_', "");
    let flats: Vec<String> = known.iter().map(|known| flat(known)).collect();
    let near = nearest(&flat(rest), flats.iter().map(String::as_str))?;
    let at = flats.iter().position(|flat| flat == near)?;
    let problem = Problem::new(format!("{name}: nothing reads this variable"));
    Some(problem.help(format!("did you mean {PREFIX}{}?", known[at])))
}

fn unknown_override(name: &str) -> Option<Problem> {
    let rest = name.strip_prefix(PREFIX)?;
    let known: Vec<String> = KEYS.iter().map(keys::Key::variable).collect();
    if rest.starts_with("TEST_") || known.iter().any(|known| known == name) {
        return None;
    }
    let top = keys::children("");
    let first = rest.split("__").next().unwrap_or_default().to_lowercase();
    // One underscore where two belong.
    let flat = |name: &str| name.replace('_', "");
    let meant = known.iter().find(|known| flat(known) == flat(name));
    if let Some(meant) = meant.filter(|_| !URL_VARIABLES.contains(&name)) {
        let problem = Problem::new(format!("{name}: matches no configuration key"));
        return Some(problem.help(format!("did you mean {meant}?")));
    }
    if !rest.contains("__") && !top.contains(&first.as_str()) {
        // The daemon hands it to steps, or it is somebody else's.
        return None;
    }
    let below: Vec<&String> = known
        .iter()
        .filter(|known| known.starts_with(&format!("{name}__")))
        .collect();
    if let Some(example) = below.first() {
        return Some(
            Problem::new(format!("{name}: names a group of keys, not a key"))
                .help(format!("set one of its keys, such as {example}")),
        );
    }
    let problem = Problem::new(format!("{name}: matches no configuration key"));
    Some(match nearest(name, known.iter().map(String::as_str)) {
        Some(known) => problem.help(format!("did you mean {known}?")),
        None => problem.help(format!("an override is named like {}", known[0])),
    })
}
