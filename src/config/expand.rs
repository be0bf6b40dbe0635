//! `${VAR}` and `${VAR:-default}` in the values of a configuration file.
//!
//! Owns: the way through a tree. Never: knows the notation (`definition::variables` does), nor expands
//! a variable's own value.

use crate::definition::variables::{self, Unexpanded};
use crate::yaml::{Entry, Fault, Mark, Node, Value};

/// Reads a variable.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `node` with all variables replaced, and the variables that it named.
pub fn node(node: &Node, vars: Variables) -> Result<(Node, Vec<String>), Vec<Fault>> {
    let mut expansion = Expansion {
        vars,
        in_secret: false,
        used: Vec::new(),
        faults: Vec::new(),
    };
    let expanded = expansion.node(node);
    match expansion.faults.is_empty() {
        true => Ok((expanded, expansion.used)),
        false => Err(expansion.faults),
    }
}

/// The variables that `node` names, whether they are set or not.
pub fn used(node: &Node, vars: Variables) -> Vec<String> {
    let mut expansion = Expansion {
        vars,
        in_secret: false,
        used: Vec::new(),
        faults: Vec::new(),
    };
    expansion.node(node);
    expansion.used
}

/// Keys that have secrets below them: nobody is to write one into the file as a default.
const SECRETS: [&str; 2] = ["secret", "headers"];

struct Expansion<'a> {
    vars: Variables<'a>,
    /// The node is below one of these keys.
    in_secret: bool,
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
                    .map(|entry| {
                        let above = self.in_secret;
                        self.in_secret |= SECRETS.contains(&entry.key.as_str());
                        let value = self.node(&entry.value);
                        self.in_secret = above;
                        Entry {
                            value,
                            ..entry.clone()
                        }
                    })
                    .collect(),
            ),
        };
        Node { at: node.at, value }
    }

    fn text(&mut self, text: &str, at: Mark) -> String {
        let used = |name: &str| self.used.push(name.to_owned());
        variables::expand(text, self.vars, used).unwrap_or_else(|wrong| {
            let in_secret = self.in_secret;
            let fault = |wrong: Unexpanded| {
                let help = match wrong.is_unset && in_secret {
                    true => "set it where `ductworkd` starts: a secret has no default".to_owned(),
                    false => wrong.help,
                };
                Fault::new(at, wrong.message).help(help)
            };
            self.faults.extend(wrong.into_iter().map(fault));
            String::new()
        })
    }
}
