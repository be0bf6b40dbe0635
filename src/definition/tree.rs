//! A YAML document as a tree in which everything knows where it was written.
//!
//! Owns: the limits on what is read, the meaning of plain scalars (only `true` and `false`
//! are booleans, a number keeps the text it was written with), and the wording of YAML's own
//! errors. Never: knows what a pipeline is.
//!
//! `serde` stops at the first thing it does not expect; walking a tree finds them all.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_yaml::{Location, MessageFormatter, Spanned, UserMessageFormatter};

use super::builder::Place;
use super::check::Finding;

/// A file may not be larger, in bytes.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
/// A transition within a transition is three levels of YAML, so this is twenty of them.
const MAX_DEPTH: usize = 64;
const TOO_DEEP: &str = "lists and maps are nested more than 64 deep";
const TOO_DEEP_HELP: &str = "move a part into a pipeline of its own";
/// The YAML library recurses, and without optimisation a level costs it tens of kilobytes, more
/// than the stack of an ordinary thread has for `MAX_DEPTH` of them. Only what is used of this
/// is ever backed by memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;
const MAX_NODES: usize = 200_000;
const MAX_ALIASES: usize = 1_000;

/// A YAML node and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    pub value: Value,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    /// As written.
    Bool(String),
    /// As written, because `1.0` and `0x10` are not `1` and `16` to a program.
    Number(String),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    /// The kind of this, for a message that says what was expected instead.
    pub fn what(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The text of a scalar as it was written, whatever its type.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Bool(text) | Value::Number(text) | Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}

/// Reads the one document of `text`.
pub(super) fn read(text: &str) -> Result<Tree, Finding> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("yaml".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || read_here(text));
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(Finding {
                place: None,
                message: format!("no thread to read the file with: {error}"),
                help: Some("the limit of processes or memory is reached".into()),
            }),
        }
    })
}

fn read_here(text: &str) -> Result<Tree, Finding> {
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            // Beyond the limit above, which says it better.
            flow_nesting_limit: 2 * MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_merge_keys: MAX_ALIASES,
            max_documents: 2,
            max_recorded_anchor_events: MAX_NODES,
            max_recorded_anchor_bytes: 8 * MAX_BYTES,
            max_total_scalar_bytes: 8 * MAX_BYTES,
            // A pipeline may well name one anchor often; the limits above are enough.
            enforce_alias_anchor_ratio: false,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: MAX_NODES / 2,
            max_replay_stack_depth: 16,
        },
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: serde_yaml::options::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    match serde_yaml::from_str_with_options::<Raw>(text, options) {
        Ok(raw) => Ok(raw.tree(text)),
        Err(error) => Err(finding(error.without_snippet())),
    }
}

/// The same as [`Tree`], before the source text is at hand.
struct Raw(Spanned<RawValue>);

enum RawValue {
    Null,
    Bool,
    Number,
    Text(String),
    List(Vec<Raw>),
    Map(Vec<(Raw, Raw)>),
}

impl Raw {
    fn tree(self, source: &str) -> Tree {
        let at = self.0.referenced;
        let scalar = !matches!(self.0.value, RawValue::List(_) | RawValue::Map(_));
        let written = || slice(source, self.0.defined).unwrap_or_default();
        let value = match self.0.value {
            RawValue::Null => Value::Null,
            RawValue::Bool => Value::Bool(written()),
            RawValue::Number => Value::Number(written()),
            RawValue::Text(text) => Value::Text(text),
            RawValue::List(items) => {
                Value::List(items.into_iter().map(|item| item.tree(source)).collect())
            }
            RawValue::Map(entries) => {
                let entry = |(key, value): (Raw, Raw)| (key.tree(source), value.tree(source));
                Value::Map(entries.into_iter().map(entry).collect())
            }
        };
        let width = match scalar && slice(source, at).is_some_and(|text| !text.contains('\n')) {
            true => at.span().len() as usize,
            false => 1,
        };
        Tree {
            value,
            place: place(at, width),
        }
    }
}

fn place(at: Location, width: usize) -> Place {
    Place {
        line: at.line() as usize,
        column: at.column() as usize,
        width: width.max(1),
    }
}

/// The source text at a location.
fn slice(source: &str, at: Location) -> Option<String> {
    let start = at.span().byte_offset()? as usize;
    let end = start + at.span().byte_len()? as usize;
    let text = source.get(start..end)?.trim();
    // A tagged number may stand in quotes.
    let bare = text.trim_matches(['"', '\'']);
    Some(bare.to_owned())
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Spanned::deserialize(from).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = RawValue;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool)
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawValue, E> {
        Ok(RawValue::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<RawValue, E> {
        Ok(RawValue::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(RawValue::Map(map))
    }
}

/// YAML's own errors, in our words where theirs speak of options that nobody here can set.
fn finding(error: &serde_yaml::Error) -> Finding {
    use serde_yaml::Error as Yaml;
    use serde_yaml::budget::BudgetBreach;

    if let Yaml::AliasError {
        error, locations, ..
    } = error
    {
        let mut inner = finding(error.without_snippet());
        inner.place = Some(place(locations.reference_location, 1));
        return inner;
    }
    let mut width = 1;
    let (message, help) = match error {
        Yaml::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or_default();
            width = key.chars().count();
            let message = format!("duplicate key {}", super::check::shown(key));
            (message, "remove one of the two")
        }
        Yaml::MultipleDocuments { .. } => (
            "a second YAML document".to_owned(),
            "put each pipeline into a file of its own",
        ),
        Yaml::Budget {
            breach: BudgetBreach::Depth { .. },
            ..
        } => (TOO_DEEP.to_owned(), TOO_DEEP_HELP),
        Yaml::Budget { .. }
        | Yaml::AliasReplayLimitExceeded { .. }
        | Yaml::AliasExpansionLimitExceeded { .. }
        | Yaml::AliasReplayStackDepthExceeded { .. } => (
            "the file grows too large when it is read".to_owned(),
            "it repeats too much by way of anchors and aliases, or is simply too long",
        ),
        Yaml::UnsupportedTag { tag, .. } => (
            format!("unsupported tag {}", super::check::shown(tag)),
            "remove it; quotes make a text of anything",
        ),
        Yaml::UnknownAnchor { .. } => (
            "an alias of an anchor that does not exist".to_owned(),
            "an anchor (`&name`) stands before its aliases (`*name`)",
        ),
        Yaml::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias inside its own anchor".to_owned(),
            "nothing can contain itself; write it out",
        ),
        other => {
            let text = UserMessageFormatter.format_message(other);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            // The scanner looks ahead, and meets its own limit before the budget's is met.
            if text == "recursion limit exceeded" {
                return Finding {
                    place: error.location().map(|at| place(at, 1)),
                    message: TOO_DEEP.into(),
                    help: Some(TOO_DEEP_HELP.into()),
                };
            }
            let help = match text.contains("tab") {
                true => "indent with spaces; YAML does not allow tabs there",
                false => "this is not valid YAML; look at the indentation and the quotes",
            };
            (text, help)
        }
    };
    Finding {
        place: error
            .location()
            .filter(|at| *at != Location::UNKNOWN)
            .map(|at| place(at, width)),
        message,
        help: Some(help.to_owned()),
    }
}
