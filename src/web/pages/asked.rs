//! The parameters and ids in an address.
//!
//! Owns: reading them, and the words that refuse each mistake. Never: queries the database.

use std::str::FromStr;

use axum::http::{StatusCode, Uri};

use crate::percent::form_decoded;
use crate::web::refusal::Refusal;

/// The parameters of an address.
#[derive(Debug, Default)]
pub struct Asked(Vec<(String, String)>);

impl Asked {
    /// Reads them. A page names the parameters that it knows and refuses others: a filter whose name is
    /// misspelled would be taken for one that lets everything through.
    pub fn of(uri: &Uri, known: &[&str]) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        let query = uri.query().unwrap_or_default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (form_decoded(name), form_decoded(value)) else {
                return Err(wrong("the address has a parameter that is not text"));
            };
            if value.contains('\0') {
                return Err(wrong(format!(
                    "`{name}` contains a NUL, which is not allowed"
                )));
            }
            if !known.contains(&name.as_str()) {
                let has = match known {
                    [] => "it has none".to_owned(),
                    known => format!("it has {}", known.join(", ")),
                };
                return Err(wrong(format!("this page has no parameter `{name}`: {has}")));
            }
            // A form also sends the fields that nobody has filled in.
            if !value.trim().is_empty() {
                pairs.push((name, value.trim().to_owned()));
            }
        }
        Ok(Self(pairs))
    }

    /// All values of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let of = move |(own, _): &&(String, String)| own == name;
        self.0.iter().filter(of).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may occur once.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (_, Some(_)) => Err(wrong(format!("the parameter `{name}` is given twice"))),
            (one, None) => Ok(one),
        }
    }

    /// The same, as a number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.one(name)? else {
            return Ok(None);
        };
        let number = text.parse::<u64>().ok();
        // The database counts no further than this.
        match number.filter(|number| i64::try_from(*number).is_ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!(
                "`{name}` must be a whole number, not `{text}`"
            ))),
        }
    }
}

/// The refusal of a request for something impossible.
pub fn wrong(detail: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, detail)
}

/// The refusal of a request for something that does not exist.
pub fn missing(detail: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, detail)
}

/// An id in a path.
pub fn id<T: FromStr>(text: &str, what: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| {
        wrong(format!(
            "`{text}` is not the id of {what}: an id has 32 hexadecimal digits"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<Asked, Refusal> {
        let uri = format!("/runs?{query}").parse().expect("an address");
        Asked::of(&uri, &["a", "b"])
    }

    #[test]
    fn parameters_are_read_as_a_form_sends_them() {
        let read = asked("a=x+y%2fz&b=&a=%E6%BC%A2").expect("they are sound");
        assert_eq!(read.all("a").collect::<Vec<_>>(), ["x y/z", "漢"]);
        assert_eq!(read.one("b").expect("it is empty"), None);
    }

    #[test]
    fn a_parameter_that_is_unknown_or_there_twice_or_no_text_is_refused() {
        for (query, says) in [
            ("c=1", "no parameter `c`: it has a, b"),
            ("a=%ff", "not text"),
            ("a=%f", "not text"),
            ("a=%zz", "not text"),
        ] {
            let refused = asked(query).expect_err(query);
            assert!(format!("{refused:?}").contains(says), "{refused:?}");
        }
        let twice = asked("a=1&a=2").expect("they are sound");
        assert!(twice.one("a").is_err());
        for number in [
            "-1",
            "x",
            "1.5",
            "99999999999999999999",
            "9223372036854775808",
        ] {
            let read = asked(&format!("a={number}")).expect("they are sound");
            assert!(read.number("a").is_err(), "{number}");
        }
    }
}
