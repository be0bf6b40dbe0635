//! The input of a run: what a pipeline says about it, and whether a value is so.
//!
//! Owns: the subset of JSON Schema (draft 2020-12) that `input:` may hold, the reader of it with all
//! mistakes, and the check of a value. Never: changes a value; a `default` is what a form begins with.
//! Why a subset of our own: ADR 41.

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
