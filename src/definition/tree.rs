//! A pipeline's file as a tree of typed values.
//!
//! Owns: the meaning of plain scalars: only `true` and `false`, in any case, are booleans, and a number keeps
//! the text it was written with. Never: reads YAML (`yaml` does), or knows the format of a pipeline.

use super::check::Finding;
use crate::yaml::{self, Entry, Mark, Node};

/// The most bytes of a file.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
/// The most nodes of a file, after aliases have been replaced.
const MAX_NODES: usize = 200_000;

/// A YAML node and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    pub value: Value,
    pub place: Mark,
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
    /// The kind of this value, for a message that says what was expected instead.
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

/// The document in `text`, if it can be read, and everything that is wrong with its YAML.
pub(super) fn read(text: &str) -> (Option<Tree>, Vec<Finding>) {
    let (node, faults) = yaml::parse(text, MAX_NODES);
    let finding = |fault: yaml::Fault| Finding {
        place: fault.at,
        message: fault.message,
        help: fault.help,
    };
    let findings: Vec<Finding> = faults.into_iter().map(finding).collect();
    let tree = match node {
        Some(node) => Some(Tree::from(node)),
        // An empty text is a document too; the reader says what it lacks.
        None if findings.is_empty() => Some(Tree::from(Node::plain(""))),
        None => None,
    };
    (tree, findings)
}

impl From<Node> for Tree {
    fn from(node: Node) -> Self {
        let value = match node.value {
            yaml::Value::Scalar { text, plain } => scalar(text, plain),
            yaml::Value::List(items) => Value::List(items.into_iter().map(Self::from).collect()),
            yaml::Value::Map(entries) => Value::Map(entries.into_iter().map(entry).collect()),
        };
        Self {
            value,
            place: node.at,
        }
    }
}

fn entry(entry: Entry) -> (Tree, Tree) {
    let key = Tree {
        value: scalar(entry.key, entry.plain),
        place: entry.at,
    };
    (key, entry.value.into())
}

/// The type of a scalar, by YAML 1.2's core schema, in upper and in lower case.
fn scalar(text: String, plain: bool) -> Value {
    if !plain {
        return Value::Text(text);
    }
    if yaml::is_null(&text) {
        return Value::Null;
    }
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "true" | "false" => Value::Bool(text),
        word if is_number(word) => Value::Number(text),
        _ => Value::Text(text),
    }
}

/// True for a word that the core schema calls an integer or a float. `word` is in lower case.
fn is_number(word: &str) -> bool {
    let all = |text: &str, is: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is);
    if let Some(digits) = word.strip_prefix("0x") {
        return all(digits, u8::is_ascii_hexdigit);
    }
    if let Some(digits) = word.strip_prefix("0o") {
        return all(digits, |digit| (b'0'..=b'7').contains(digit));
    }
    let word = word.strip_prefix(['-', '+']).unwrap_or(word);
    if matches!(word, ".inf" | ".nan") {
        return true;
    }
    let (mantissa, exponent) = word.split_once('e').unwrap_or((word, "0"));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // A point alone is not a number.
    let any = !(whole.is_empty() && fraction.is_empty());
    any && digits(whole) && digits(fraction) && all(exponent, u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn numbers_are_those_of_the_core_schema() {
        for number in [
            "0", "-1", "+12", "007", "1.5", "1.", ".5", "-.5", "1e3", "1.5e-3", "1e+3", "0x1f",
            "0o17", ".inf", "-.inf", ".nan", "1e309",
        ] {
            assert!(is_number(number), "{number}");
        }
        for text in [
            "", ".", "-", "+", "e3", "1e", "1e+", "0x", "0xg", "0o8", "1_000", "1.2.3", "5x",
            "inf", "1 2", "--1", "-0x1",
        ] {
            assert!(!is_number(text), "{text}");
        }
    }
}
