//! YAML as a tree that remembers the place of everything.
//!
//! Owns: aliases, merge keys, duplicate keys and the bounds that keep a small file from becoming a
//! large tree, for configurations and for pipelines. Scalars keep their text: the reader of the
//! file decides what `010` or `no` means. Never: knows a key of ours.

use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use crate::problem::lines;

/// Deeper than any file of ours needs, and shallow enough for every recursion here: a transition
/// within a transition takes three levels.
const MAX_DEPTH: usize = 64;
/// The most bytes of all texts, after aliases have been replaced.
const MAX_BYTES: usize = 8 << 20;

/// A place in the text; one-based, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// One-based.
    pub line: usize,
    /// One-based.
    pub column: usize,
    /// Characters to underline.
    pub width: usize,
}

/// A value and its place. After an alias or a merge, this is the place where it was written.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its place.
    pub at: Mark,
    /// Its value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text; `plain` when it was written without quotes.
    Scalar {
        /// Without quotes and escapes.
        text: String,
        /// Only plain text can be a number or null.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in order, merge keys already resolved.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// It was written without quotes.
    pub plain: bool,
    /// Where the key stands.
    pub at: Mark,
    /// Its content.
    pub value: Node,
}

/// Something wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place; `None` if the fault concerns the whole text.
    pub at: Option<Mark>,
    /// Lowercase, no full stop.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

impl Fault {
    /// Something wrong at `at`.
    pub fn new(at: Mark, message: impl Into<String>) -> Self {
        Self {
            at: Some(at),
            message: message.into(),
            help: None,
        }
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl Node {
    /// A plain scalar that no file contains: a default, or a variable's value.
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            at: Mark {
                line: 1,
                column: 1,
                width: 1,
            },
            value: Value::Scalar {
                text: text.into(),
                plain: true,
            },
        }
    }

    /// True for `null`, `~` and nothing at all.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if is_null(text))
    }

    /// The text of a plain scalar.
    pub fn as_plain(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, plain: true } => Some(text),
            _ => None,
        }
    }

    /// The text of any scalar.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The entries of a mapping.
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let entry = self.as_map()?.iter().find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// Its kind, for messages.
    pub fn describe(&self) -> String {
        match &self.value {
            _ if self.is_null() => "nothing".into(),
            Value::Scalar { text, plain: true } => format!("`{}`", shorten(text)),
            Value::Scalar { text, .. } => format!("the string \"{}\"", shorten(text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }

    /// The number of its nodes and the bytes of its texts.
    fn size(&self) -> Size {
        let mut size = Size { nodes: 1, bytes: 0 };
        match &self.value {
            Value::Scalar { text, .. } => size.bytes = text.len(),
            Value::List(items) => items.iter().for_each(|item| size.add(item.size())),
            Value::Map(entries) => {
                for entry in entries {
                    let (nodes, bytes) = (1, entry.key.len());
                    size.add(Size { nodes, bytes });
                    size.add(entry.value.size());
                }
            }
        }
        size
    }

    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| entry.value.depth())
                .max()
                .unwrap_or(0),
        }
    }
}

/// True for the plain scalars that mean "nothing".
pub fn is_null(text: &str) -> bool {
    matches!(text, "" | "~") || text.eq_ignore_ascii_case("null")
}

/// The size of a tree in memory.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, more: Self) {
        self.nodes = self.nodes.saturating_add(more.nodes);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// `text` on one line, cut before it would drown the message.
pub fn shorten(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let end = if short.len() < text.len() { "…" } else { "" };
    format!("{}{end}", short.escape_debug())
}

/// The one document in `text`; `None` when there is none. Problems that leave the tree
/// readable (a duplicate key) are collected and the first value is kept. `max_nodes` bounds the
/// nodes after aliases have been replaced, which ends a "billion laughs" file at once.
pub fn parse(text: &str, max_nodes: usize) -> (Option<Node>, Vec<Fault>) {
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        text,
        max_nodes,
        anchors: HashMap::new(),
        size: Size::default(),
        faults: Vec::new(),
    };
    match builder.document() {
        Ok(node) => (node, builder.faults),
        Err(fault) => {
            builder.faults.push(fault);
            (None, builder.faults)
        }
    }
}

type Input<'a> = granit_parser::StrInput<'a>;

struct Builder<'a> {
    parser: Parser<'a, Input<'a>>,
    text: &'a str,
    max_nodes: usize,
    anchors: HashMap<usize, Node>,
    size: Size,
    faults: Vec<Fault>,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Mark), Fault> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, mark(span))),
            Some(Err(error)) => Err(syntax(self.text, &error)),
            None => Err(Fault {
                at: None,
                message: "the file ends too early".into(),
                help: Some("it looks as if its end was cut off".into()),
            }),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Fault> {
        let mut document = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(document),
                (Event::DocumentStart(..), at) if document.is_some() => {
                    return Err(Fault::new(at, "a second document begins here").help(
                        "a file is one document: remove the `---`, or make two files of it",
                    ));
                }
                (Event::DocumentStart(..), _) => {
                    let (event, at) = self.next()?;
                    document = Some(self.node(event, at, 1)?);
                }
                _ => {}
            }
        }
    }

    /// Counts the values that are kept, including copies: a small file must not become a large
    /// tree.
    fn count(&mut self, more: Size, at: Mark) -> Result<(), Fault> {
        self.size.add(more);
        let too_large = |what: String| {
            let help = "it repeats too much by way of anchors and aliases, or is too long";
            Err(Fault::new(at, format!("{what}, counting each alias in full")).help(help))
        };
        match self.size {
            size if size.nodes > self.max_nodes => {
                too_large(format!("more than {} values", self.max_nodes))
            }
            size if size.bytes > MAX_BYTES => {
                too_large(format!("more than {} MiB of text", MAX_BYTES >> 20))
            }
            _ => Ok(()),
        }
    }

    fn node(&mut self, event: Event<'a>, at: Mark, depth: usize) -> Result<Node, Fault> {
        let too_deep = || too_deep(at);
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let (tag, anchor) = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => (tag.is_some(), *anchor),
            _ => (false, 0),
        };
        if tag {
            let at = tag_before(self.text, at);
            return Err(Fault::new(at, "tags (`!…`) mean nothing here")
                .help("remove the tag; quotes make a text of anything"));
        }
        let bytes = match &event {
            Event::Scalar(text, ..) => text.len(),
            _ => 0,
        };
        self.count(Size { nodes: 1, bytes }, at)?;
        let value = match event {
            Event::Alias(anchor) => {
                // An anchor that is still open is not yet known: this is an alias of its own
                // parent.
                let Some(target) = self.anchors.get(&anchor) else {
                    return Err(Fault::new(at, "an alias inside of what it stands for")
                        .help("nothing can contain itself: write it out"));
                };
                let (size, deep) = (target.size(), target.depth());
                self.count(size, at)?;
                if depth + deep > MAX_DEPTH {
                    return Err(too_deep());
                }
                return Ok(self.anchors[&anchor].clone());
            }
            Event::Scalar(text, style, ..) => Value::Scalar {
                text: text.into_owned(),
                plain: style == ScalarStyle::Plain,
            },
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(items),
                        (event, at) => items.push(self.node(event, at, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => Value::Map(self.entries(depth)?),
            _ => return Err(Fault::new(at, "not a value").help("write a text, a list or a map")),
        };
        let node = Node { at, value };
        if anchor != 0 {
            // The value is kept a second time.
            self.count(node.size(), at)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut own: Vec<Entry> = Vec::new();
        let mut places: HashMap<String, Mark> = HashMap::new();
        let mut merged: Vec<Entry> = Vec::new();
        let mut merge_at: Option<Mark> = None;
        loop {
            let (key, at) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (event, at) => (self.node(event, at, depth + 1)?, at),
            };
            let (event, value_at) = self.next()?;
            let value = self.node(event, value_at, depth + 1)?;
            let Some(name) = key.as_text() else {
                self.faults.push(
                    Fault::new(at, "a key has to be a name, not a list or a map")
                        .help("quote it if it only looks like one"),
                );
                continue;
            };
            if key.as_plain() == Some("<<") {
                if let Some(first) = merge_at {
                    self.faults
                        .push(Fault::new(at, "a second `<<` in one map").help(format!(
                            "the first is on line {}; write `<<: [*one, *two]`",
                            first.line
                        )));
                    continue;
                }
                merge_at = Some(at);
                merged = self.merge(value, value_at);
                continue;
            }
            if let Some(first) = places.get(name) {
                let place = match first.line == at.line {
                    true => format!("in column {} of this line", first.column),
                    false => format!("on line {}", first.line),
                };
                self.faults.push(
                    Fault::new(at, format!("`{}` appears twice in one map", shorten(name)))
                        .help(format!("it first appears {place}")),
                );
                continue;
            }
            places.insert(name.to_owned(), at);
            own.push(Entry {
                plain: key.as_plain().is_some(),
                key: name.to_owned(),
                at,
                value,
            });
        }
        merged.retain(|entry| !places.contains_key(&entry.key));
        own.extend(merged);
        Ok(own)
    }

    /// The entries that `<<: value` merges in; of several maps the first takes precedence.
    fn merge(&mut self, value: Node, at: Mark) -> Vec<Entry> {
        if value.is_null() {
            return Vec::new();
        }
        let (maps, each) = match value.value {
            Value::List(items) => (items, true),
            _ => (vec![value], false),
        };
        let mut merged: Vec<Entry> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        for map in maps {
            let Value::Map(entries) = map.value else {
                let at = if each { map.at } else { at };
                self.faults.push(
                    Fault::new(at, format!("`<<` takes a map, not {}", map.describe()))
                        .help("write `<<: *anchor`"),
                );
                continue;
            };
            for entry in entries {
                if known.insert(entry.key.clone()) {
                    merged.push(entry);
                }
            }
        }
        merged
    }
}

/// The place of the tag before a value, which the parser does not report.
fn tag_before(text: &str, at: Mark) -> Mark {
    let above: Vec<&str> = lines(text).take(at.line).collect();
    for (index, line) in above.iter().enumerate().rev() {
        let end = match index + 1 == at.line {
            true => at.column.saturating_sub(1),
            false => usize::MAX,
        };
        let chars: Vec<char> = line.chars().take(end).collect();
        let Some(last) = chars.iter().rposition(|char| *char == '!') else {
            continue;
        };
        let first = chars[..last].iter().rposition(|char| *char != '!');
        let first = first.map_or(0, |before| before + 1);
        let width = chars[first..]
            .iter()
            .take_while(|char| !char.is_whitespace());
        return Mark {
            line: index + 1,
            column: first + 1,
            width: width.count(),
        };
    }
    at
}

fn mark(span: Span) -> Mark {
    let (start, end) = (span.start, span.end);
    // If a value spans several lines, only its beginning is marked.
    let width = match start.line() == end.line() {
        true => end.col().saturating_sub(start.col()),
        false => 1,
    };
    Mark {
        line: start.line(),
        column: start.col() + 1,
        width: width.max(1),
    }
}

fn syntax(text: &str, error: &ScanError) -> Fault {
    let at = Mark {
        line: error.marker().line(),
        column: error.marker().col() + 1,
        width: 1,
    };
    let message = error.kind().to_string();
    // The parser looks for the end of a scalar on the next line.
    let ahead = usize::from(message.contains("tab"));
    for (line, text) in lines(text)
        .enumerate()
        .skip(at.line.saturating_sub(1))
        .take(1 + ahead)
    {
        let mut indentation = text.chars().take_while(|char| char.is_whitespace());
        if let Some(column) = indentation.position(|char| char == '\t') {
            let at = Mark {
                line: line + 1,
                column: column + 1,
                width: 1,
            };
            return Fault::new(at, "a tab in the indentation").help("YAML is indented with spaces");
        }
    }
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep(at);
    }
    let help = match message.contains("anchor") {
        true => "an anchor (`&name`) stands before its aliases (`*name`)",
        false if message.contains("escape") => "a backslash in double quotes is written twice",
        false => "look at the indentation, the brackets and the quotes before it",
    };
    let message = format!("not valid YAML: {}", message.trim_end_matches('.'));
    Fault::new(at, message).help(help)
}

fn too_deep(at: Mark) -> Fault {
    Fault::new(
        at,
        format!("lists and maps are nested more than {MAX_DEPTH} deep"),
    )
    .help("move a part into a file of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_NODES: usize = 10_000;

    fn tree(text: &str) -> Node {
        let (node, faults) = parse(text, MAX_NODES);
        assert_eq!(faults, []);
        node.expect("a document")
    }

    fn faults(text: &str) -> Vec<String> {
        parse(text, MAX_NODES)
            .1
            .iter()
            .map(|fault| match fault.at {
                Some(at) => format!("{}:{} {}", at.line, at.column, fault.message),
                None => fault.message.clone(),
            })
            .collect()
    }

    #[test]
    fn places_are_one_based_and_counted_in_characters() {
        let node = tree("é: {ünï: 12}\nb: \"x\"\n");
        let entry = &node.as_map().unwrap()[0].value.as_map().unwrap()[0];
        assert_eq!((entry.at.line, entry.at.column, entry.at.width), (1, 5, 3));
        let at = entry.value.at;
        assert_eq!((at.line, at.column, at.width), (1, 10, 2));
        let at = node.get("b").unwrap().at;
        assert_eq!((at.line, at.column, at.width), (2, 4, 3));
    }

    #[test]
    fn what_is_written_wins_over_what_is_merged_and_the_first_merge_wins() {
        let node = tree("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\n");
        let c = node.get("c").unwrap();
        assert_eq!(c.get("x").unwrap().as_plain(), Some("3"));
        assert_eq!(c.get("y").unwrap().as_plain(), Some("1"));
        assert_eq!(c.get("z").unwrap().as_plain(), Some("2"));
        assert_eq!(c.get("z").unwrap().at.line, 2, "where it was written");
    }

    #[test]
    fn a_quoted_null_is_a_string() {
        let node = tree("a: ~\nb: \"~\"\nc:\nd: null\n");
        assert!(node.get("a").unwrap().is_null());
        assert!(!node.get("b").unwrap().is_null());
        assert!(node.get("c").unwrap().is_null());
        assert!(node.get("d").unwrap().is_null());
    }

    #[test]
    fn a_billion_laughs_end_at_once() {
        let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
        for level in 1..12 {
            let item = format!("*a{}", level - 1);
            let items = vec![item; 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        let began = std::time::Instant::now();
        let found = faults(&text);
        assert!(found[0].contains("more than 10000 values"), "{found:?}");
        assert!(began.elapsed().as_secs() < 2);
    }

    #[test]
    fn copies_of_a_large_text_and_of_nested_anchors_end_at_once() {
        let text = format!(
            "a: &a \"{}\"\nb: [{}]\n",
            "x".repeat(100_000),
            "*a, ".repeat(1_000)
        );
        let found = faults(&text);
        assert!(found[0].contains("more than 8 MiB of text"), "{found:?}");
        let anchors: String = (0..50).map(|level| format!("&a{level} [")).collect();
        let found = faults(&format!(
            "a: {anchors}{}{}",
            "x, ".repeat(1_000),
            "]".repeat(50)
        ));
        assert!(found[0].contains("more than 10000 values"), "{found:?}");
    }

    #[test]
    fn depth_ends_before_the_stack_does() {
        for text in ["[".repeat(10_000), "- ".repeat(10_000), {
            let levels = (0..2_000).map(|level| format!("{}a:\n", " ".repeat(level)));
            levels.collect::<String>()
        }] {
            let found = faults(&text);
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("nested more than 64 deep"), "{found:?}");
        }
    }

    #[test]
    fn each_kind_of_bad_yaml_is_named_with_its_place() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "2:1 `a` appears twice in one map"),
            ("a: 1\n---\nb: 2\n", "2:1 a second document begins here"),
            ("a:\n\tb: 1\n", "2:1 a tab in the indentation"),
            ("a: !!int 3\n", "1:4 tags (`!…`) mean nothing here"),
            (
                "? [a]\n: 1\n",
                "1:3 a key has to be a name, not a list or a map",
            ),
            ("a: 1\n<<: 3\n", "2:5 `<<` takes a map, not `3`"),
            ("a: &a [*a]\n", "1:8 an alias inside of what it stands for"),
            (
                "a: {<<: {b: 1}, <<: {c: 1}}\n",
                "1:17 a second `<<` in one map",
            ),
        ] {
            assert_eq!(faults(text), [expected], "{text:?}");
        }
        for (text, help) in [
            ("a: 1\na: 2\n", "it first appears on line 1"),
            (
                "b: {a: 1, a: 2}\n",
                "it first appears in column 5 of this line",
            ),
        ] {
            let (_, found) = parse(text, MAX_NODES);
            assert_eq!(found[0].help.as_deref(), Some(help));
        }
        let found = faults("a: [1, 2\n");
        assert!(found[0].contains("not valid YAML: "), "{found:?}");
        let found = faults("a: *nobody\n");
        assert!(found[0].starts_with("1:4 not valid YAML: "), "{found:?}");
    }
}
