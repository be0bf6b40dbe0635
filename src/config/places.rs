//! The place of each setting: the line of the file, or the variable, that sets it.
//!
//! Owns: the way from a key back to that place. Never: keeps a value, which may be a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::yaml::{Mark, Node};

use super::keys;

/// The places of one configuration.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The file, as it was named.
    pub file: Option<PathBuf>,
    marks: BTreeMap<String, Mark>,
    variables: BTreeSet<&'static str>,
}

/// Written elsewhere, the same settings are the same configuration.
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    /// The places in a section of a file, and the keys that variables override.
    pub fn of(
        file: Option<PathBuf>,
        section: Option<&Node>,
        variables: impl Iterator<Item = &'static str>,
    ) -> Self {
        let mut places = Self {
            file,
            marks: BTreeMap::new(),
            variables: variables.collect(),
        };
        if let Some(section) = section {
            places.walk(section, "");
        }
        places
    }

    fn walk(&mut self, node: &Node, path: &str) {
        for entry in node.as_map().unwrap_or_default() {
            let path = keys::join(path, &entry.key);
            self.walk(&entry.value, &path);
            self.marks.insert(path, entry.at);
        }
        // Of the lists, only this one holds names.
        if path == "pipelines" {
            for item in node.as_list().unwrap_or_default() {
                if let Some(name) = item.as_text() {
                    self.marks.insert(keys::join(path, name), item.at);
                }
            }
        }
    }

    /// The variable that sets the key at `path`.
    pub fn variable(&self, path: &str) -> Option<String> {
        self.variables.contains(path).then(|| keys::variable(path))
    }

    /// The line of the file that sets the key at `path`, unless a variable does; the line of `name`
    /// in it, if the file names that.
    pub fn mark(&self, path: &str, name: Option<&str>) -> Option<Mark> {
        if self.variables.contains(path) {
            return None;
        }
        let inner = name.and_then(|name| self.marks.get(&keys::join(path, name)));
        inner.or_else(|| self.marks.get(path)).copied()
    }
}
