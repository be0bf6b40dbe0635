//! The fields that a page's form sends.
//!
//! Owns: reading them, and the proof that the form was made for its visitor. Never: acts.

use axum::body::Bytes;
use axum::http::StatusCode;

use crate::percent::form_decoded;
use crate::secret::same;
use crate::web::refusal::Refusal;
use crate::web::visitor::Visitor;

use super::asked::wrong;

/// The fields of a form.
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads them.
    pub fn read(body: &Bytes) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(body).ok();
        let parts = text.map(|text| text.split('&').filter(|part| !part.is_empty()));
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Some((form_decoded(name)?, form_decoded(value)?))
        };
        let pairs: Option<Vec<(String, String)>> =
            parts.and_then(|parts| parts.map(pair).collect());
        match pairs {
            Some(pairs) if pairs.iter().any(|(_, value)| value.contains('\0')) => {
                Err(wrong("the fields of a form must not contain a NUL"))
            }
            Some(pairs) => Ok(Self(pairs)),
            // Other characters in their place would change the text that was sent.
            None => Err(wrong("a form must be sent as UTF-8 text")),
        }
    }

    /// The same, for a form that was made for this visitor: a page of another site cannot know its
    /// proof.
    pub fn of(body: &Bytes, visitor: &Visitor) -> Result<Self, Refusal> {
        let form = Self::read(body)?;
        let is_of = |proof| same(proof, &visitor.proof);
        match form.get("proof").is_some_and(is_of) {
            true => Ok(form),
            false => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this form was made for another session, or before the console started: go back, load the \
                 page again, and send it from there",
            )),
        }
    }

    /// The values of a field that may have several.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let of = move |(own, _): &&(String, String)| own == name;
        let values = self.0.iter().filter(of).map(|(_, value)| value.trim());
        values.filter(|value| !value.is_empty())
    }

    /// Every field as it was sent.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of a field that somebody has filled in.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }
}
