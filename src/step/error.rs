//! Making a [`StepError`], and keeping its texts fit to be stored.
//!
//! Owns: the constructors that native steps use, and the bounds of an error's texts. Never:
//! decides whether a step is tried again.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use anstream::adapter::strip_bytes;

use super::StepError;
use super::mask::Mask;

/// The longest error class: a word for machines, not a text.
const CLASS_MAX: usize = 256;

/// The longest message: it is shown in one line of a list; the backtrace has the rest.
const MESSAGE_MAX: usize = 8 * 1024;

/// The longest backtrace, as much as is kept of a log.
const BACKTRACE_MAX: usize = 64 * 1024;

impl StepError {
    /// An error that may be tried again.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            class: storable(class.into(), CLASS_MAX),
            message: storable(message.into(), MESSAGE_MAX),
            backtrace: None,
            retryable: true,
            retry_after: None,
        }
    }

    /// An error from anything that can be made one (`anyhow::Error`, `Box<dyn Error>`, a text), under
    /// a class of the caller's choice; its sources become the backtrace.
    pub fn caused_by(
        class: impl Into<String>,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let error = error.into();
        Self::new(class, error.to_string()).with_sources(&*error)
    }

    /// Says that trying again is useless, whatever budget is left.
    pub fn no_retry(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Says to try again no sooner and no later than this; overrides the backoff.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Adds the place where it happened, or the end of a log.
    pub fn backtrace(mut self, backtrace: impl Into<String>) -> Self {
        self.backtrace = Some(storable(backtrace.into(), BACKTRACE_MAX));
        self
    }

    fn with_sources(self, error: &dyn Error) -> Self {
        let sources: Vec<String> = std::iter::successors(error.source(), |&error| error.source())
            // A source that leads back to itself must not fill the memory.
            .take(64)
            .map(|source| format!("caused by: {source}"))
            .collect();
        if sources.is_empty() {
            return self;
        }
        self.backtrace(sources.join("\n"))
    }
}

/// So that `?` works on every error inside a native step; the class is the error's type.
impl<E: Error> From<E> for StepError {
    fn from(error: E) -> Self {
        Self::new(std::any::type_name::<E>(), error.to_string()).with_sources(&error)
    }
}

/// Bounds a text, visibly, and replaces the one character that PostgreSQL cannot store.
pub(super) fn storable(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    if text.contains('\0') {
        text = text.replace('\0', "\u{fffd}");
    }
    text
}

/// The first bytes of something that is not JSON, in quotes and on one line, those that are no UTF-8 as `\xff`. It is
/// covered before it is cut: half of a secret would not be found any more, and tells enough.
pub(super) fn excerpt(bytes: &[u8], mask: Option<&Mask>) -> String {
    const SHOWN: usize = 200;
    const COLOURED: usize = 16 * 1024;
    let bytes: Cow<'_, [u8]> = match mask {
        Some(mask) => {
            // A colour within a secret keeps it from being found.
            let without = strip_bytes(&bytes[..bytes.len().min(COLOURED)]).into_vec();
            let again = mask.beginning(&without, SHOWN);
            match without.starts_with(&again) {
                true => mask.beginning(bytes, SHOWN).into(),
                false => again.into(),
            }
        }
        None => bytes.into(),
    };
    let is_cut = bytes.len() > SHOWN;
    let mut shown = String::new();
    let mut chunks = bytes[..bytes.len().min(SHOWN)].utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        let valid = format!("{:?}", chunk.valid());
        shown.push_str(&valid[1..valid.len() - 1]);
        // At the cut, this may be a part of a character.
        if !is_cut || chunks.peek().is_some() {
            let escaped = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
            shown.extend(escaped);
        }
    }
    let more = if is_cut { "…" } else { "" };
    format!("\"{shown}\"{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_question_mark_keeps_type_message_and_sources() {
        fn fails() -> Result<(), StepError> {
            Err(Outer(std::io::Error::other("the inner")))?
        }
        let error = fails().unwrap_err();
        assert!(error.class.ends_with("Outer"), "{}", error.class);
        assert_eq!(error.message, "the outer");
        assert_eq!(error.backtrace.as_deref(), Some("caused by: the inner"));
        assert!(error.retryable);
    }

    #[test]
    fn a_boxed_error_or_a_text_can_be_an_error() {
        let boxed: Box<dyn Error + Send + Sync> = "boxed".into();
        assert_eq!(StepError::caused_by("x", boxed).message, "boxed");
        assert_eq!(StepError::caused_by("x", "text").message, "text");
    }

    #[test]
    fn texts_are_cut_visibly_at_a_character_and_hold_no_nul() {
        let error = StepError::new("c\0", "é".repeat(MESSAGE_MAX));
        assert_eq!(error.class, "c\u{fffd}");
        assert!(error.message.ends_with("é…"));
        assert!(error.message.len() <= MESSAGE_MAX + '…'.len_utf8());
    }

    #[test]
    fn an_excerpt_is_one_line_whatever_it_holds() {
        assert_eq!(excerpt(b"a\n\x1b[1m\xff", None), "\"a\\n\\u{1b}[1m\\xff\"");
        assert_eq!(excerpt(b"\"\xff\xfe\"\xc3\xa9", None), r#""\"\xff\xfe\"é""#);
        assert!(excerpt(&[b'x'; 500], None).ends_with("x\"…"));
        let halved = format!("x{}", "é".repeat(200));
        assert!(excerpt(halved.as_bytes(), None).ends_with("é\"…"));
    }
}
