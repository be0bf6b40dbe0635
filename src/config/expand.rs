//! `${VAR}` and `${VAR:-default}` in the values of a configuration file.
//!
//! Owns: the notation. `$$` is a dollar sign, and a dollar sign before anything but `{` or
//! another one is itself, so that shell snippets in hooks stay readable. Never: expands
//! what an expansion brought in, nor a variable's own value.

use crate::yaml::{Entry, Fault, Mark, Node, Value, shorten};

/// Reads a variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `node` with all variables put in, and the variables that it named.
pub fn node(node: &Node, vars: Variables) -> Result<(Node, Vec<String>), Vec<Fault>> {
    let mut expansion = Expansion {
        vars,
        used: Vec::new(),
        faults: Vec::new(),
    };
    let expanded = expansion.node(node);
    match expansion.faults.is_empty() {
        true => Ok((expanded, expansion.used)),
        false => Err(expansion.faults),
    }
}

struct Expansion<'a> {
    vars: Variables<'a>,
    used: Vec<String>,
    faults: Vec<Fault>,
}

impl Expansion<'_> {
    fn node(&mut self, node: &Node) -> Node {
        let value = match &node.value {
            Value::Scalar { text, plain } if text.contains('$') => {
                let before = self.used.len();
                let text = self.text(text, node.at);
                Value::Scalar {
                    text,
                    // Inside of `{ }` a variable can only be written in quotes, so quotes
                    // around one do not make a string of a number.
                    plain: *plain || self.used.len() > before,
                }
            }
            Value::Scalar { .. } => node.value.clone(),
            Value::List(items) => Value::List(items.iter().map(|item| self.node(item)).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        value: self.node(&entry.value),
                        ..entry.clone()
                    })
                    .collect(),
            ),
        };
        Node { at: node.at, value }
    }

    fn text(&mut self, text: &str, at: Mark) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let Some(end) = after.find('}') else {
                    self.faults.push(
                        Fault::new(at, "a `${` without its `}`")
                            .help("write `$${` for the characters themselves"),
                    );
                    return out;
                };
                self.variable(&after[..end], at, &mut out);
                rest = &after[end + 1..];
            } else {
                out.push('$');
            }
        }
        out.push_str(rest);
        out
    }

    fn variable(&mut self, inside: &str, at: Mark, out: &mut String) {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let is_name = !name.is_empty()
            && !name.starts_with(|char: char| char.is_ascii_digit())
            && name
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '_');
        if !is_name {
            self.faults.push(
                Fault::new(at, format!("`${{{}}}` is not a variable", shorten(inside))).help(
                    "only `${VAR}` and `${VAR:-default}` are understood; `$$` is a dollar sign",
                ),
            );
            return;
        }
        if default.is_some_and(|default| default.contains("${")) {
            let fault = Fault::new(at, format!("the default of `{name}` names a variable"));
            self.faults
                .push(fault.help("a default is text, and ends at the first `}`"));
            return;
        }
        self.used.push(name.to_owned());
        match ((self.vars)(name), default) {
            (Some(value), Some(default)) if value.is_empty() => out.push_str(default),
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => self.faults.push(
                Fault::new(at, format!("the environment variable `{name}` is not set"))
                    .help(format!("set it, or give a default: `${{{name}:-…}}`")),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            "DOLLAR" => Some("${A}$$".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_put_in_once() {
        for (text, expected) in [
            ("x${A}y", "x1y"),
            ("${A}${A}", "11"),
            ("${NONE:-d}", "d"),
            ("${NONE:-}", ""),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("$${A}", "${A}"),
            ("$HOME and $1 and $", "$HOME and $1 and $"),
            ("${DOLLAR}", "${A}$$"),
            ("none", "none"),
        ] {
            let (node, _) = node(&Node::plain(text), &vars).unwrap();
            assert_eq!(node.as_text(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_put_in_is_refused() {
        for (text, expected) in [
            ("${NONE}", "the environment variable `NONE` is not set"),
            ("${A", "a `${` without its `}`"),
            ("${}", "`${}` is not a variable"),
            ("${A-x}", "`${A-x}` is not a variable"),
            ("${A\nB}", "`${A\\nB}` is not a variable"),
            ("${1A}", "`${1A}` is not a variable"),
            ("${NONE:-${A}}", "the default of `NONE` names a variable"),
        ] {
            let faults = node(&Node::plain(text), &vars).unwrap_err();
            assert_eq!(faults[0].message, expected);
        }
    }

    #[test]
    fn the_names_that_were_used_are_told() {
        let (_, used) = node(&Node::plain("${A}:${NONE:-x}"), &vars).unwrap();
        assert_eq!(used, ["A", "NONE"]);
    }
}
