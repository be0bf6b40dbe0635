//! One value of the file, a variable or the table of defaults → the type that it stands for.
//!
//! Owns: numbers, durations, sizes, words, lists, commands and the maps by pipeline and
//! step, each with the range that its key gives. Never: knows where a value came from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::definition::graph::Backoff;
use crate::definition::variables::is_name;
use crate::duration;
use crate::problem::{meant, nearest};
use crate::step::environment::{Inherit, is_withheld};
use crate::yaml::{Fault, Mark, Node, Value, shorten};

use super::keys::{self, Key, Kind};

/// The mistakes in one value.
pub type Faults = Vec<Fault>;

/// A value, and its exceptions by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Scoped<T> {
    /// The value where no exception is made.
    pub default: T,
    /// The exceptions.
    pub by_name: BTreeMap<String, T>,
}

impl<T> Scoped<T> {
    /// The same value everywhere.
    pub fn everywhere(default: T) -> Self {
        Self {
            default,
            by_name: BTreeMap::new(),
        }
    }

    /// The value for `name`.
    pub fn get(&self, name: &str) -> &T {
        self.by_name.get(name).unwrap_or(&self.default)
    }

    /// Every value in it, and the name that it is for.
    pub fn each(&self) -> impl Iterator<Item = (Option<&str>, &T)> {
        let named = self.by_name.iter();
        let named = named.map(|(name, value)| (Some(name.as_str()), value));
        std::iter::once((None, &self.default)).chain(named)
    }

    /// Every value in it.
    pub fn each_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.default).chain(self.by_name.values_mut())
    }
}

/// A value by pipeline and step.
pub type ByStep<T> = Scoped<Scoped<T>>;

/// An exception: the key, the pipeline, and the step if it is for one.
pub type Exception<'a> = (&'static str, &'a str, Option<&'a str>);

impl<T> Scoped<T> {
    /// The exceptions, by pipeline.
    pub fn named(&self, key: &'static str) -> impl Iterator<Item = Exception<'_>> {
        self.by_name
            .keys()
            .map(move |name| (key, name.as_str(), None))
    }
}

impl<T> ByStep<T> {
    /// The exceptions, by pipeline and step.
    pub fn named_steps(&self, key: &'static str) -> impl Iterator<Item = Exception<'_>> {
        self.by_name.iter().flat_map(move |(name, steps)| {
            let steps = steps.by_name.keys();
            let steps = steps.map(move |step| (key, name.as_str(), Some(step.as_str())));
            std::iter::once((key, name.as_str(), None)).chain(steps)
        })
    }
}

/// The pipelines that run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineFilter {
    /// All pipelines.
    All,
    /// These, each once.
    Only(Vec<String>),
}

impl PipelineFilter {
    /// True when `pipeline` runs here.
    pub fn includes(&self, pipeline: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == pipeline),
        }
    }

    /// The names, if the filter lists names.
    pub fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::All => None,
            Self::Only(names) => Some(names.clone()),
        }
    }
}

fn fault<T>(node: &Node, message: String) -> Result<T, Faults> {
    Err(vec![Fault::new(node.at, message)])
}

fn expected<T>(node: &Node, key: &Key, what: &str) -> Result<T, Faults> {
    let found = node.describe();
    fault(node, format!("`{}` takes {what}, not {found}", key.path))
}

/// A whole number in the key's range. `010` is ten: there is no octal.
pub fn integer(node: &Node, key: &Key) -> Result<i64, Faults> {
    let (min, max, what) = match key.kind {
        Kind::Integer { min, max } => (min, max, format!("a whole number from {min} to {max}")),
        Kind::Limit { max } => (
            -1,
            max,
            format!("-1 (no limit) or a whole number from 1 to {max}"),
        ),
        ref kind => unreachable!("{} is {kind:?}, not a whole number", key.path),
    };
    let number = node.as_plain().filter(|text| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    match number.map(str::parse::<i64>) {
        Some(Ok(0)) if matches!(key.kind, Kind::Limit { .. }) => expected(node, key, &what),
        Some(Ok(number)) if (min..=max).contains(&number) => Ok(number),
        _ => expected(node, key, &what),
    }
}

/// The same, for a key whose range is within `u32`.
pub fn count(node: &Node, key: &Key) -> Result<u32, Faults> {
    let number = integer(node, key)?;
    u32::try_from(number).or_else(|_| expected(node, key, "a smaller number"))
}

/// A limit: `-1` is none.
pub fn limit(node: &Node, key: &Key) -> Result<Option<u64>, Faults> {
    Ok(u64::try_from(integer(node, key)?).ok())
}

/// A finite number in the key's range.
pub fn float(node: &Node, key: &Key) -> Result<f64, Faults> {
    let Kind::Float { min, max } = key.kind else {
        unreachable!("{} is {:?}, not a number", key.path, key.kind);
    };
    let number = node.as_plain().filter(|text| {
        // Words such as `inf` and `nan` parse as floats and are not numbers here.
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'))
    });
    match number.map(str::parse::<f64>) {
        Some(Ok(number)) if (min..=max).contains(&number) => Ok(number),
        _ => expected(node, key, &format!("a number from {min} to {max}")),
    }
}

/// A span of time in the key's range; `None` is the key's word for "no such limit".
pub fn duration_or(node: &Node, key: &Key) -> Result<Option<Duration>, Faults> {
    let Kind::Duration { min_ms, max_ms, or } = key.kind else {
        unreachable!("{} is {:?}, not a duration", key.path, key.kind);
    };
    let what = || {
        let or = or.map_or(String::new(), |word| format!("`{word}` or "));
        let (min, max) = (write(min_ms), write(max_ms));
        format!("{or}a duration from {min} to {max}")
    };
    let Some(text) = node.as_text().filter(|_| !node.is_null()) else {
        return expected(node, key, &what());
    };
    if or == Some(text) {
        return Ok(None);
    }
    match duration::parse(text) {
        Ok(span) if (u128::from(min_ms)..=u128::from(max_ms)).contains(&span.as_millis()) => {
            Ok(Some(span))
        }
        Ok(_) => expected(node, key, &what()),
        Err(error) => Err(vec![
            Fault::new(node.at, format!("`{}` takes {}: {error}", key.path, what()))
                .help(duration::NOTATION),
        ]),
    }
}

/// A span of time.
pub fn span(node: &Node, key: &Key) -> Result<Duration, Faults> {
    match duration_or(node, key)? {
        Some(span) => Ok(span),
        None => expected(node, key, "a duration"),
    }
}

/// Milliseconds in the largest unit that holds them whole.
fn write(ms: u64) -> String {
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ] {
        if ms >= size && ms.is_multiple_of(size) {
            return format!("{}{unit}", ms / size);
        }
    }
    match ms {
        0 => "0".into(),
        ms => format!("{ms}ms"),
    }
}

const SIZES: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

/// Bytes in the key's range.
pub fn size(node: &Node, key: &Key) -> Result<u64, Faults> {
    let Kind::Size { min, max } = key.kind else {
        unreachable!("{} is {:?}, not a size", key.path, key.kind);
    };
    let bytes = node.as_text().and_then(|text| {
        let end = text.find(|char: char| !char.is_ascii_digit());
        let (number, unit) = text.split_at(end.unwrap_or(text.len()));
        let unit = unit.trim_start().to_ascii_lowercase();
        let (_, factor) = SIZES.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(*factor)
    });
    match bytes {
        Some(bytes) if (min..=max).contains(&bytes) => Ok(bytes),
        _ => expected(
            node,
            key,
            &format!("a size from {min} to {max} bytes, such as `16MiB` or `1MB`"),
        )
        .map_err(|mut faults| {
            if bytes.is_some_and(|bytes| bytes > max) {
                let help = "a database takes a value in one piece, and holds several copies of it: \
                            keep larger values elsewhere, and pass on their location";
                faults
                    .iter_mut()
                    .for_each(|fault| fault.help = Some(help.into()));
            }
            faults
        }),
    }
}

/// One of the key's words.
pub fn choice(node: &Node, key: &Key) -> Result<&'static str, Faults> {
    let Kind::Choice(words) = key.kind else {
        unreachable!("{} is {:?}, not a word", key.path, key.kind);
    };
    let text = node.as_text().unwrap_or_default();
    if let Some(word) = words.iter().find(|word| **word == text) {
        return Ok(word);
    }
    let all = words.iter().map(|word| format!("`{word}`"));
    let all = all.collect::<Vec<_>>().join(", ");
    let mut fault = Fault::new(
        node.at,
        format!("`{}` is one of {all}, not {}", key.path, node.describe()),
    );
    fault.help = nearest(&text.to_lowercase(), words.iter().copied())
        .map(|word| format!("did you mean `{word}`?"));
    Err(vec![fault])
}

/// A path: any text but an empty one.
pub fn path(node: &Node, key: &Key) -> Result<String, Faults> {
    match node.as_text() {
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text.to_owned()),
        _ => expected(node, key, "a path"),
    }
}

/// The texts of one scalar with commas between them, or of a list, each as it is parsed.
pub fn texts<T>(
    node: &Node,
    key: &Key,
    what: &str,
    help: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Faults> {
    let texts: Vec<(&Node, &str)> = match &node.value {
        Value::Scalar { text, .. } if !node.is_null() => {
            text.split(',').map(|text| (node, text.trim())).collect()
        }
        Value::List(items) => items
            .iter()
            .map(|item| (item, item.as_text().unwrap_or_default().trim()))
            .collect(),
        _ => vec![(node, "")],
    };
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for (node, text) in texts {
        if let Some(one) = parse(text) {
            all.push(one);
            continue;
        }
        let found = match text {
            "" => node.describe(),
            text => format!("`{}`", shorten(text)),
        };
        let message = format!("`{}` takes {what}, not {found}", key.path);
        faults.push(Fault::new(node.at, message).help(help));
    }
    match faults.is_empty() {
        true => Ok(all),
        false => Err(faults),
    }
}

/// `none`, or the path of a file.
pub fn file(node: &Node, key: &Key, help: &str) -> Result<Option<PathBuf>, Faults> {
    match node.as_text().filter(|_| !node.is_null()) {
        Some("none") => Ok(None),
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(Some(text.into())),
        _ => {
            let message = format!("`{}` takes a path, not {}", key.path, node.describe());
            Err(vec![Fault::new(node.at, message).help(help)])
        }
    }
}

/// `*`, one name, names separated by commas, or a list of names.
pub fn names(node: &Node, key: &Key) -> Result<PipelineFilter, Faults> {
    let what = "`*` or a list of names";
    let mut names: Vec<String> = Vec::new();
    let mut add = |node: &Node, name: &str| match name.trim() {
        "" => expected(node, key, what),
        name => {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
            Ok(())
        }
    };
    match &node.value {
        Value::Scalar { text, .. } if text == "*" => return Ok(PipelineFilter::All),
        Value::Scalar { text, .. } => {
            for name in text.split(',') {
                add(node, name)?;
            }
        }
        Value::List(items) if items.is_empty() => {
            return Err(vec![
                Fault::new(node.at, format!("`{}` names nothing to run", key.path))
                    .help("write `*` for all pipelines"),
            ]);
        }
        Value::List(items) => {
            for item in items {
                match item.as_text() {
                    Some("*") => {
                        return Err(vec![
                            Fault::new(item.at, "`*` stands alone, not in a list")
                                .help(format!("write `{}: \"*\"`", key.path)),
                        ]);
                    }
                    Some(name) => add(item, name)?,
                    None => return expected(item, key, what),
                }
            }
        }
        Value::Map(_) => return expected(node, key, what),
    }
    Ok(PipelineFilter::Only(names))
}

/// `inherit`, or the names of variables, each of which may end with `*`.
pub fn variables(node: &Node, key: &Key) -> Result<Inherit, Faults> {
    let what = "`inherit` or a list of variables";
    let mut listed = Vec::new();
    let mut faults = Vec::new();
    let mut add = |at: Mark, text: &str| {
        let name = text.trim();
        let stem = name.strip_suffix('*').unwrap_or(name);
        let fault = if name == "*" || name == "inherit" {
            Fault::new(at, format!("`{name}` stands alone, not in a list"))
                .help(format!("write `{}: inherit` for all variables", key.path))
        } else if !is_name(stem) {
            Fault::new(
                at,
                format!("`{}` is not the name of a variable", shorten(name)),
            )
            .help("write `NAME`, or `PREFIX_*` for all names that begin with `PREFIX_`")
        } else if is_withheld(name) {
            let help = "a step that needs it asks for it, in its own `env`: `NAME: \"${NAME}\"`";
            Fault::new(
                at,
                format!("`{name}` is the daemon's own, and no step inherits it"),
            )
            .help(help.replace("NAME", name))
        } else {
            listed.push(name.to_owned());
            return;
        };
        faults.push(fault);
    };
    match &node.value {
        Value::Scalar { text, .. } if text == "inherit" => return Ok(Inherit::All),
        _ if node.is_null() => return expected(node, key, what),
        Value::Scalar { text, .. } => text.split(',').for_each(|name| add(node.at, name)),
        Value::List(items) => {
            for item in items {
                match item.as_text() {
                    Some(name) => add(item.at, name),
                    None => return expected(item, key, what),
                }
            }
        }
        Value::Map(_) => return expected(node, key, what),
    }
    match faults.is_empty() {
        true => Ok(Inherit::Only(listed)),
        false => Err(faults),
    }
}

/// One command (a list of strings) or several (a list of lists).
pub fn commands(node: &Node, key: &Key) -> Result<Vec<Vec<String>>, Faults> {
    let refuse =
        |node: &Node| {
            let message = format!(
                "`{}` takes a command as a list, not {}",
                key.path,
                node.describe()
            );
            vec![Fault::new(node.at, message).help(
                "write `[program, argument, …]`, or a list of such lists; no shell is involved",
            )]
        };
    let argv = |items: &[Node]| -> Result<Vec<String>, Faults> {
        items
            .iter()
            .enumerate()
            .map(|(index, item)| match item.as_text() {
                Some("") if index == 0 => Err(refuse(item)),
                Some(text) if !text.contains('\0') => Ok(text.to_owned()),
                _ => Err(refuse(item)),
            })
            .collect()
    };
    let Value::List(items) = &node.value else {
        return Err(refuse(node));
    };
    if items.is_empty() {
        return Ok(Vec::new());
    }
    if !items
        .iter()
        .any(|item| matches!(item.value, Value::List(_)))
    {
        return Ok(vec![argv(items)?]);
    }
    items
        .iter()
        .map(|item| match &item.value {
            Value::List(items) if !items.is_empty() => argv(items),
            _ => Err(refuse(item)),
        })
        .collect()
}

/// The names below a backoff key.
pub const BACKOFF: [&str; 4] = ["initial", "factor", "max", "jitter"];

/// A backoff; the parts that it leaves out are as in `fallback`.
pub fn backoff(node: &Node, key: &Key, fallback: &Backoff) -> Result<Backoff, Faults> {
    let Some(entries) = node.as_map() else {
        return expected(
            node,
            key,
            "a map of `initial`, `factor`, `max` and `jitter`",
        );
    };
    let mut backoff = *fallback;
    let mut faults = Vec::new();
    for entry in entries {
        if entry.key.starts_with("x-") {
            continue;
        }
        let Some(name) = BACKOFF.iter().find(|name| **name == entry.key) else {
            faults.push(unknown_key(&entry.key, entry.at, key.path, &BACKOFF));
            continue;
        };
        if !entry.value.is_null()
            && let Err(more) = set_backoff(&mut backoff, name, &entry.value, key)
        {
            faults.extend(more);
        }
    }
    match faults.is_empty() {
        true => Ok(backoff),
        false => Err(faults),
    }
}

/// Sets one part of a backoff.
pub fn set_backoff(to: &mut Backoff, name: &str, node: &Node, key: &Key) -> Result<(), Faults> {
    let part = keys::find(&keys::join(key.path, name)).expect("each backoff has all four keys");
    match name {
        "initial" => to.initial = span(node, part)?,
        "factor" => to.factor = float(node, part)?,
        "max" => to.max = span(node, part)?,
        _ => to.jitter = float(node, part)?,
    }
    Ok(())
}

/// The problem of a name that `group` does not have.
pub fn unknown_key(name: &str, at: crate::yaml::Mark, group: &str, known: &[&str]) -> Fault {
    let place = match group {
        "" => String::new(),
        group => format!(" in `{group}`"),
    };
    let suggestion = meant(name, known.iter().copied())
        .map(str::to_owned)
        .or_else(|| elsewhere(name))
        .map(|name| format!("did you mean `{name}`? "))
        .unwrap_or_default();
    Fault::new(at, format!("unknown key `{}`{place}", shorten(name)))
        .help(format!("{suggestion}valid keys: {}", known.join(", ")))
}

/// The path of a key in another group that has this name, here or in other systems.
fn elsewhere(name: &str) -> Option<String> {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let known: Vec<&str> = keys::KEYS.iter().map(|key| last(key.path)).collect();
    let ours = meant(name, known.iter().copied())?;
    // A name that is only similar may mean anything.
    if ours != name && nearest(name, known.iter().copied()) == Some(ours) {
        return None;
    }
    let key = keys::KEYS.iter().find(|key| last(key.path) == ours)?;
    Some(key.path.to_owned())
}

/// A leaf, or a map of names → leaf with `default`. Without one, `fallback` is the default.
pub fn scoped<T: Clone>(
    node: &Node,
    fallback: &T,
    is_leaf: fn(&Node) -> bool,
    leaf: &dyn Fn(&Node, &T) -> Result<T, Faults>,
) -> Result<Scoped<T>, Faults> {
    let Some(entries) = node.as_map().filter(|_| !is_leaf(node)) else {
        return Ok(Scoped::everywhere(leaf(node, fallback)?));
    };
    let mut faults = Vec::new();
    let default = match node.get("default").filter(|node| !node.is_null()) {
        Some(node) => leaf(node, fallback).unwrap_or_else(|more| {
            faults.extend(more);
            fallback.clone()
        }),
        None => fallback.clone(),
    };
    let mut by_name = BTreeMap::new();
    for entry in entries {
        if entry.key == "default" || entry.value.is_null() {
            continue;
        }
        match leaf(&entry.value, &default) {
            Ok(value) => {
                by_name.insert(entry.key.clone(), value);
            }
            Err(more) => faults.extend(more),
        }
    }
    match faults.is_empty() {
        true => Ok(Scoped { default, by_name }),
        false => Err(faults),
    }
}

/// The same, two names deep: pipeline → step.
pub fn by_step<T: Clone>(
    node: &Node,
    fallback: &T,
    is_leaf: fn(&Node) -> bool,
    leaf: &dyn Fn(&Node, &T) -> Result<T, Faults>,
) -> Result<ByStep<T>, Faults> {
    scoped(
        node,
        &Scoped::everywhere(fallback.clone()),
        is_leaf,
        &|node: &Node, fallback: &Scoped<T>| scoped(node, &fallback.default, is_leaf, leaf),
    )
}

/// True for everything but a map: a number is a leaf.
pub fn is_scalar(node: &Node) -> bool {
    node.as_map().is_none()
}

/// True for a backoff itself, as opposed to a map of pipelines to backoffs.
pub fn is_backoff(node: &Node) -> bool {
    node.as_map().is_none_or(|entries| {
        let named = entries.iter().any(|entry| entry.key == "default");
        let maps = entries.iter().all(|entry| entry.value.as_map().is_some());
        entries.is_empty() || !(named || maps)
    })
}
