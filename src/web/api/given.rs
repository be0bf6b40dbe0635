//! The parameters of a request.
//!
//! Owns: the values that each kind of parameter may have, their description, and the refusal of everything
//! else, all at once. Never: knows a route.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::duration;
use crate::model::*;
use crate::problem::nearest;
use crate::view;
use crate::web::refusal::Refusal;
use crate::wire::problem::FaultJson;

/// A kind of parameter.
pub trait Value: Sized {
    /// True if a request may give several of them, or one with commas in it.
    const REPEATS: bool = false;

    /// Reads it; the error says what is expected.
    fn read(text: &str) -> Result<Self, String>;

    /// Its JSON Schema.
    fn schema() -> Json;
}

/// The part of a request that contains a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The path.
    Path,
    /// The part after the question mark.
    Query,
}

/// A parameter, as the table of routes describes it.
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// Where it stands.
    pub part: Part,
    /// Its purpose, for people.
    pub description: &'static str,
    /// It names a thing that must exist: otherwise the answer is 404.
    pub must_exist: bool,
    /// A request may give several.
    pub repeats: bool,
    /// Its JSON Schema.
    pub schema: fn() -> Json,
    check: fn(&str) -> Result<(), String>,
}

/// A parameter with a type.
pub struct Param<T> {
    /// The parameter without its type.
    pub about: About,
    of: PhantomData<fn() -> T>,
}

impl<T: Value> Param<T> {
    const fn new(part: Part, name: &'static str, description: &'static str) -> Self {
        Self {
            about: About {
                name,
                part,
                description,
                must_exist: matches!(part, Part::Path),
                repeats: T::REPEATS,
                schema: T::schema,
                check: |text| T::read(text).map(drop),
            },
            of: PhantomData,
        }
    }

    /// A parameter in the path.
    pub const fn path(name: &'static str, description: &'static str) -> Self {
        Self::new(Part::Path, name, description)
    }

    /// A parameter that may follow the question mark.
    pub const fn query(name: &'static str, description: &'static str) -> Self {
        Self::new(Part::Query, name, description)
    }

    /// The same parameter, for a thing that must exist: otherwise the answer is 404.
    pub const fn must_exist(mut self) -> Self {
        self.about.must_exist = true;
        self
    }
}

/// The parameters of a request: the route has each of them, and each can be read.
#[derive(Debug)]
pub struct Given(BTreeMap<&'static str, String>);

impl Given {
    /// The parameters of this request, or everything that is wrong with them.
    pub fn read<'a>(
        params: &[&'static About],
        path: impl Iterator<Item = (&'a str, &'a str)>,
        query: &str,
    ) -> Result<Self, Refusal> {
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let query = query.iter().map(|(name, value)| (&**name, &**value));
        let given = path.map(|it| (Part::Path, it));
        let given = given.chain(query.map(|it| (Part::Query, it)));
        let mut found: BTreeMap<&'static str, String> = BTreeMap::new();
        let mut faults = Vec::new();
        let mut fault = |parameter: &str, detail: String| {
            let parameter = parameter.chars().take(100).collect();
            faults.push(FaultJson {
                parameter,
                pointer: None,
                detail,
            });
        };
        for (part, (name, value)) in given {
            let known = params.iter().find(|it| it.part == part && it.name == name);
            let Some(about) = known else {
                fault(name, unknown(name, params));
                continue;
            };
            if part == Part::Query && value.contains(char::REPLACEMENT_CHARACTER) {
                fault(name, "a text in UTF-8 is expected".to_owned());
                continue;
            }
            match found.get_mut(about.name) {
                Some(before) if about.repeats => {
                    before.push(',');
                    before.push_str(value);
                }
                Some(_) => fault(name, "it may be given once".to_owned()),
                None => {
                    found.insert(about.name, value.to_owned());
                }
            }
        }
        for about in params {
            let wrong = found
                .get(about.name)
                .and_then(|text| (about.check)(text).err());
            if let Some(detail) = wrong {
                fault(about.name, detail);
            }
        }
        match faults.is_empty() {
            true => Ok(Self(found)),
            false => Err(Refusal::parameters(faults)),
        }
    }

    /// The value of this parameter, if it was given.
    pub fn get<T: Value>(&self, param: &Param<T>) -> Option<T> {
        T::read(self.0.get(param.about.name)?).ok()
    }

    /// The value of a parameter in the path.
    pub fn need<T: Value>(&self, param: &Param<T>) -> Result<T, Refusal> {
        self.get(param)
            .ok_or_else(|| Refusal::parameter(param.about.name, "it is missing"))
    }
}

fn unknown(name: &str, params: &[&'static About]) -> String {
    let query = params.iter().filter(|about| about.part == Part::Query);
    let names: Vec<&str> = query.map(|about| about.name).collect();
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("there is no such parameter; did you mean `{near}`?"),
        None if names.is_empty() => "this route has no parameters".to_owned(),
        None => format!(
            "there is no such parameter; there are: {}",
            names.join(", ")
        ),
    }
}

/// The UUID, in the form in which it is printed.
fn uuid(text: &str) -> Result<Uuid, String> {
    let plain = (text.len() == 36).then(|| Uuid::try_parse(text).ok());
    plain
        .flatten()
        .ok_or_else(|| "an id is expected: a whole UUID, as the lists have it".to_owned())
}

macro_rules! ids {
    ($($name:ident),*) => {$(
        impl Value for $name {
            fn read(text: &str) -> Result<Self, String> {
                uuid(text).map(Self)
            }

            fn schema() -> Json {
                json!({ "type": "string", "format": "uuid" })
            }
        }
    )*};
}

ids!(RunId, BranchId, StepId, ExecutionId, FanOutId);

/// The id of something that has no type of its own.
pub struct Key(pub Uuid);

impl Value for Key {
    fn read(text: &str) -> Result<Self, String> {
        uuid(text).map(Self)
    }

    fn schema() -> Json {
        json!({ "type": "string", "format": "uuid" })
    }
}

/// The greatest length of a name or a key: longer than in any definition.
const TEXT_MAX: usize = 1_000;

/// A text that users choose: the name of a pipeline, a key.
pub struct Text(pub String);

impl Value for Text {
    fn read(text: &str) -> Result<Self, String> {
        let long = text.chars().count() > TEXT_MAX;
        match text.is_empty() || long || text.contains('\0') {
            true => Err(format!(
                "a text of 1 to {TEXT_MAX} characters is expected, none of them NUL"
            )),
            false => Ok(Self(text.to_owned())),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1, "maxLength": TEXT_MAX, "pattern": "^[^\\u0000]+$" })
    }
}

/// A digest of a definition.
pub struct Digest(pub String);

impl Value for Digest {
    fn read(text: &str) -> Result<Self, String> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == 64 && text.bytes().all(hex) {
            true => Ok(Self(text.to_owned())),
            false => Err("a digest is expected: 64 hexadecimal digits in lower case".to_owned()),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

/// States of runs.
pub struct Statuses(pub Vec<RunStatus>);

impl Value for Statuses {
    const REPEATS: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        let mut statuses = Vec::new();
        for word in text.split(',') {
            let status = view::status(word)
                .ok_or_else(|| format!("a state is one of {}", view::words().join(", ")))?;
            if !statuses.contains(&status) {
                statuses.push(status);
            }
        }
        Ok(Self(statuses))
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": { "type": "string", "enum": view::words() } })
    }
}

/// A span of time.
pub struct Span(pub Duration);

impl Value for Span {
    fn read(text: &str) -> Result<Self, String> {
        let span = duration::parse(text);
        span.map(Self)
            .map_err(|problem| format!("{problem}; {}", duration::NOTATION))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": duration::PATTERN, "examples": ["24h"] })
    }
}

/// The longest page.
pub const LIMIT_MAX: usize = 500;

/// The length of a page if the request gives none.
pub const LIMIT: usize = 50;

/// The greatest number of items.
pub struct Limit(pub usize);

impl Value for Limit {
    fn read(text: &str) -> Result<Self, String> {
        let number = digits(text).and_then(|number| usize::try_from(number).ok());
        match number {
            Some(limit @ 1..=LIMIT_MAX) => Ok(Self(limit)),
            _ => Err(format!("a whole number from 1 to {LIMIT_MAX} is expected")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT })
    }
}

/// The largest whole number that every reader of JSON can hold.
const ORDINAL_MAX: u64 = (1 << 53) - 1;

/// A place in a sequence: 0, 1, ….
pub struct Ordinal(pub u64);

impl Value for Ordinal {
    fn read(text: &str) -> Result<Self, String> {
        let number = digits(text).filter(|number| *number <= ORDINAL_MAX);
        number
            .map(Self)
            .ok_or_else(|| "a whole number is expected: 0, 1, …".to_owned())
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0, "maximum": ORDINAL_MAX, "default": 0 })
    }
}

/// A whole number, without a sign.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Yes or no.
pub struct Flag(pub bool);

impl Value for Flag {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" => Ok(Self(true)),
            "0" | "false" => Ok(Self(false)),
            _ => Err("one of `1`, `0`, `true` and `false` is expected".to_owned()),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "enum": ["1", "0", "true", "false"], "default": "0" })
    }
}
