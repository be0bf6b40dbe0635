//! The input of a run: the rules of a pipeline for it, and whether a value satisfies them.
//!
//! Owns: the subset of JSON Schema (draft 2020-12) that `input:` may contain, its reader, which
//! reports all mistakes, and the check of a value. Never: changes a value; a `default` is the value
//! that a form begins with. ADR 41 explains why there is a subset of our own.

mod decimal;
mod format;
mod halves;
mod judge;
mod pattern;
pub(super) mod read;
mod schema;
mod text;

pub use format::Format;
pub use halves::halves;
pub use judge::{VIOLATIONS_MAX, Violation, judge, pointer_token};
#[cfg(test)]
pub use schema::KEYWORDS;
pub use schema::{Kind, Literal, Schema};
pub use text::{Json, quote};

#[cfg(test)]
mod tests;
