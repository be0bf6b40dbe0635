//! Whether a value satisfies a schema.
//!
//! Owns: every rule, and the sentence that names a violation. Never: reads more than it must: an array of a million
//! elements without a rule is only counted. The check walks through a value once for each level of the schema, and
//! once more where a rule asks for equality.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;

use super::decimal::Decimal;
use super::pattern::Pattern;
use super::schema::{Kind, Properties, Schema};
use super::text::Json;
use crate::definition::check::shown;
use crate::problem::nearest;

/// The most violations that are reported: a value with more reports the first ones.
pub const VIOLATIONS_MAX: usize = 20;

/// The most characters of a key in a pointer, and of a value in a sentence.
const KEY: usize = 100;

/// The most values that a sentence lists.
const LISTED: usize = 10;

/// A part of a value that violates the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The JSON pointer (RFC 6901) of the part; empty for the whole value.
    pub pointer: String,
    /// The rest of a sentence that begins with the part: "is a string; a number is expected".
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, detail } = self;
        match pointer.as_str() {
            "" => write!(to, "the input {detail}"),
            pointer => write!(to, "`{}` {detail}", visible(pointer)),
        }
    }
}

/// A pointer without characters that would move a cursor or reverse the direction of a line.
fn visible(pointer: &str) -> String {
    let of = |token: &str| {
        let shown = shown(token);
        shown.trim_matches('`').to_owned()
    };
    pointer.split('/').map(of).collect::<Vec<_>>().join("/")
}

/// A key or an index as a part of a JSON pointer.
pub fn pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Everything in a value that violates the schema, in the value's order, up to [`VIOLATIONS_MAX`].
/// `input` is one JSON value.
pub fn judge(schema: &Schema, input: &str) -> Vec<Violation> {
    let mut judge = Judge {
        pointer: Vec::new(),
        found: Vec::new(),
    };
    judge.value(&Rules::of(schema), Json::of(input));
    judge.found
}

/// A schema, prepared for many values.
struct Rules<'s> {
    schema: &'s Schema,
    members: HashMap<&'s str, Rules<'s>>,
    items: Option<Box<Rules<'s>>>,
    /// Made when the first string is checked against it.
    pattern: OnceCell<Result<Pattern, String>>,
}

impl<'s> Rules<'s> {
    fn of(schema: &'s Schema) -> Self {
        let members = schema.properties.iter().flat_map(|it| &it.0);
        let member = |(name, schema): &'s (String, Schema)| (name.as_str(), Self::of(schema));
        Self {
            schema,
            members: members.map(member).collect(),
            items: schema.items.as_deref().map(|it| Box::new(Self::of(it))),
            pattern: OnceCell::new(),
        }
    }
}

struct Judge {
    pointer: Vec<Place>,
    found: Vec<Violation>,
}

/// One token of a pointer. Most elements violate nothing, and their indexes are never written out.
enum Place {
    Key(String),
    At(u64),
}

impl Judge {
    fn is_full(&self) -> bool {
        self.found.len() >= VIOLATIONS_MAX
    }

    fn say(&mut self, detail: impl Into<String>) {
        if !self.is_full() {
            let parts = self.pointer.iter().map(|place| match place {
                Place::Key(key) => format!("/{key}"),
                Place::At(at) => format!("/{at}"),
            });
            self.found.push(Violation {
                pointer: parts.collect(),
                detail: detail.into(),
            });
        }
    }

    fn say_of(&mut self, key: &str, detail: impl Into<String>) {
        self.pointer.push(Place::Key(part(key)));
        self.say(detail);
        self.pointer.pop();
    }

    fn value(&mut self, rules: &Rules<'_>, value: Json<'_>) {
        let schema = rules.schema;
        let number = match value.kind() {
            Kind::Number => Decimal::read(value.text()),
            _ => None,
        };
        let kind = match &number {
            Some(number) if number.is_whole() => Kind::Integer,
            _ => value.kind(),
        };
        if !schema.admits(kind) {
            let asked: Vec<&str> = schema.kinds.0.iter().map(|kind| kind.words()).collect();
            let is = match value.kind() {
                Kind::Number => format!("is the number {}", shown(value.text())),
                other => format!("is {}", other.words()),
            };
            return self.say(format!("{is}; {} is expected", either(&asked)));
        }
        self.equality(schema, value);
        match kind {
            Kind::Object => self.object(rules, value),
            Kind::Array => self.array(rules, value),
            Kind::String => self.string(rules, value),
            Kind::Number | Kind::Integer => {
                if let Some(number) = &number {
                    self.number(schema, number);
                }
            }
            Kind::Boolean | Kind::Null => {}
        }
    }

    fn equality(&mut self, schema: &Schema, value: Json<'_>) {
        if schema.values.is_empty() && schema.constant.is_none() {
            return;
        }
        let text = value.canonical();
        if let Some(constant) = &schema.constant
            && constant.text() != text
        {
            self.say(format!("must be {}", shown(constant.text())));
        }
        let mut values = schema.values.iter();
        if !schema.values.is_empty() && !values.any(|it| it.text() == text) {
            let listed = schema.values.iter().take(LISTED);
            let mut listed: Vec<String> = listed.map(|it| shown(it.text())).collect();
            if schema.values.len() > LISTED {
                listed.push("others".to_owned());
            }
            self.say(format!("is none of {}", listed.join(", ")));
        }
    }

    fn object(&mut self, rules: &Rules<'_>, value: Json<'_>) {
        let schema = rules.schema;
        let is_closed = schema.additional_properties == Some(false);
        if schema.required.is_empty() && rules.members.is_empty() && !is_closed {
            return;
        }
        let mut missing: HashSet<&str> = schema.required.iter().map(String::as_str).collect();
        let mut unknown = Vec::new();
        for (key, member) in value.members() {
            if self.is_full() {
                return;
            }
            let key = key.string().unwrap_or_default();
            missing.remove(&*key);
            match rules.members.get(&*key) {
                Some(rules) => {
                    self.pointer.push(Place::Key(part(&key)));
                    self.value(rules, member);
                    self.pointer.pop();
                }
                None if is_closed && unknown.len() < VIOLATIONS_MAX => unknown.push(key),
                None => {}
            }
        }
        let is_missing = |name: &&String| missing.contains(name.as_str());
        for name in schema.required.iter().filter(is_missing) {
            self.say_of(name, "is missing");
        }
        let properties = schema.properties.as_ref();
        let names = || properties.into_iter().flat_map(Properties::names);
        for key in unknown {
            let known = match nearest(&key, names()) {
                Some(near) => format!("; did you mean {}?", shown(near)),
                None => String::new(),
            };
            self.say_of(&key, format!("is not expected{known}"));
        }
    }

    fn array(&mut self, rules: &Rules<'_>, value: Json<'_>) {
        let schema = rules.schema;
        let is_unique = schema.unique_items == Some(true);
        let counts = schema.min_items.is_some() || schema.max_items.is_some();
        if !counts && !is_unique && rules.items.is_none() {
            return;
        }
        let mut seen = HashSet::new();
        let mut count = 0_u64;
        for element in value.elements() {
            if self.is_full() {
                return;
            }
            self.pointer.push(Place::At(count));
            if let Some(items) = &rules.items {
                self.value(items, element);
            }
            if is_unique && !seen.insert(element.same()) {
                self.say("repeats an earlier element; each element must be unique");
            }
            self.pointer.pop();
            count += 1;
        }
        let has =
            |asked: &str, most: u64| format!("has {}; {asked} {most}", counted(count, "element"));
        if let Some(least) = schema.min_items.filter(|least| count < *least) {
            self.say(has("the minimum is", least));
        }
        if let Some(most) = schema.max_items.filter(|most| count > *most) {
            self.say(has("the maximum is", most));
        }
    }

    fn string(&mut self, rules: &Rules<'_>, value: Json<'_>) {
        let schema = rules.schema;
        let lengths = schema.min_length.is_some() || schema.max_length.is_some();
        if !lengths && schema.pattern.is_none() && schema.format.is_none() {
            return;
        }
        let Some(text) = value.string() else {
            return self.say("is not a text: it has one half of a surrogate pair");
        };
        if lengths {
            let count = text.chars().count() as u64;
            let has = |asked: &str, most: u64| {
                format!("has {}; {asked} {most}", counted(count, "character"))
            };
            if let Some(least) = schema.min_length.filter(|least| count < *least) {
                self.say(has("the minimum is", least));
            }
            if let Some(most) = schema.max_length.filter(|most| count > *most) {
                self.say(has("the maximum is", most));
            }
        }
        if let Some(written) = &schema.pattern {
            match rules.pattern.get_or_init(|| Pattern::of(written)) {
                Ok(pattern) if pattern.is_in(&text) => {}
                Ok(_) => self.say(format!("does not match the pattern {}", shown(written))),
                // A newer version wrote this pattern, or somebody has edited it in the database.
                Err(reason) => self.say(format!("cannot be checked by its pattern: {reason}")),
            }
        }
        if let Some(format) = schema.format.filter(|format| !format.admits(&text)) {
            self.say(format!("is not {}", format.words()));
        }
    }

    fn number(&mut self, schema: &Schema, number: &Decimal) {
        let bounds = [
            (&schema.minimum, "is less than"),
            (&schema.maximum, "is greater than"),
            (&schema.exclusive_minimum, "is not greater than"),
            (&schema.exclusive_maximum, "is not less than"),
        ];
        for (at, (bound, says)) in bounds.into_iter().enumerate() {
            let Some(bound) = bound else { continue };
            let is_against = match at {
                0 => number < bound,
                1 => number > bound,
                2 => number <= bound,
                _ => number >= bound,
            };
            if is_against {
                self.say(format!("{says} {bound}"));
            }
        }
        if let Some(divisor) = &schema.multiple_of
            && !number.is_multiple_of(divisor)
        {
            self.say(format!("is not a multiple of {divisor}"));
        }
    }
}

/// A key as a part of a pointer; a long key is cut.
fn part(key: &str) -> String {
    let mut short: String = key.chars().take(KEY).collect();
    if short.len() < key.len() {
        short.push('…');
    }
    pointer_token(&short)
}

fn either(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} or {last}", words.join(", ")),
    }
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
