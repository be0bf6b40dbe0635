//! The error object that a failed step may print instead of a value.
//!
//! Owns: reading `{"error":{"type","message","backtrace","retryable","retry_after"}}`. Never: fails.
//! A failed step has failed; a field of the wrong form counts as absent, and the message names one that decides about
//! another attempt.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use super::mask::Mask;
use super::{StepError, output};

/// Each field is read by itself, so that one that makes no sense does not take others with it.
#[derive(Deserialize)]
struct Envelope {
    error: HashMap<String, Box<RawValue>>,
}

/// A string in which invalid characters are replaced: half of a surrogate pair can be written, and
/// can be the value that a step was given.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Text;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        // As bytes, serde_json takes every escape.
        from.deserialize_bytes(Bytes)
    }
}

fn read<T: for<'de> Deserialize<'de>>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn text(raw: &RawValue) -> Option<String> {
    // An array of numbers can be read as bytes, too.
    let is_string = raw.get().starts_with('"');
    read::<Text>(raw).filter(|_| is_string).map(|text| text.0)
}

/// A step's own report of its failure: the fields of its error object.
pub struct Report(HashMap<String, Box<RawValue>>);

/// The fields of an error object.
const FIELDS: [&str; 5] = ["type", "message", "backtrace", "retryable", "retry_after"];

/// The report in an output of at most `max` bytes, if the output is one: an object with an error object in which at least
/// one field is known. Serde would read a list with one object as well.
pub fn of(said: &[u8], max: usize) -> Option<Report> {
    let json = output::parse_json(said, max).ok()?;
    let text = json.get().trim_start();
    let Envelope { error: fields } = serde_json::from_str(text).ok()?;
    let is_known = fields.keys().any(|name| FIELDS.contains(&name.as_str()));
    (text.starts_with('{') && is_known).then_some(Report(fields))
}

/// Lets the step's report replace the fields of `error`. Its texts are covered before they are cut to the length that is
/// kept: a part of a secret would not be found any more.
pub fn fill(error: StepError, report: &Report, mask: Option<&Mask>) -> StepError {
    let Report(fields) = report;
    let field = |name: &str| fields.get(name).map(AsRef::as_ref);
    let covered = |text: String| match mask {
        Some(mask) => mask.text(&text),
        None => text,
    };
    let said = |name: &str| {
        let said = field(name).and_then(text);
        said.filter(|text| !text.trim().is_empty()).map(covered)
    };
    let retryable: Option<bool> = field("retryable").and_then(read);
    let retry_after = field("retry_after").and_then(wait);
    let mut message = said("message").unwrap_or(error.message);
    // Either one decides whether, and when, the step runs again.
    let wanted = "a wait such as `90` or `90s`";
    for (is_read, name, wanted) in [
        (retryable.is_some(), "retryable", "true or false"),
        (retry_after.is_some(), "retry_after", wanted),
    ] {
        let is_given = field(name).is_some_and(|raw| raw.get() != "null");
        if is_given && !is_read {
            let _ = write!(
                message,
                " [`{name}` in the step's error object is not {wanted}: ignored]"
            );
        }
    }
    // Made anew, so that the same bounds hold for the step's texts.
    let mut filled = StepError::new(said("type").unwrap_or(error.class), message);
    filled.backtrace = error.backtrace;
    filled.retryable = retryable.unwrap_or(error.retryable);
    filled.retry_after = retry_after.or(error.retry_after);
    match field("backtrace").and_then(backtrace) {
        Some(backtrace) => filled.backtrace(covered(backtrace)),
        None => filled,
    }
}

fn backtrace(raw: &RawValue) -> Option<String> {
    let whole = text(raw).or_else(|| {
        let lines: Vec<Box<RawValue>> = read(raw)?;
        let lines: Vec<String> = lines.iter().filter_map(|line| text(line)).collect();
        Some(lines.join("\n"))
    });
    whole.filter(|text| !text.trim().is_empty())
}

/// Seconds, or a duration as in the configuration.
fn wait(raw: &RawValue) -> Option<Duration> {
    match read::<f64>(raw) {
        Some(seconds) => {
            let wait = Duration::try_from_secs_f64(seconds).ok()?;
            (wait <= crate::duration::LONGEST).then_some(wait)
        }
        None => crate::duration::parse(&text(raw)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(said: &str) -> StepError {
        let error = StepError::new("ExitStatus(1)", "exit status 1").backtrace("log");
        match of(said.as_bytes(), 100_000) {
            Some(report) => fill(error, &report, None),
            None => error,
        }
    }

    #[test]
    fn every_field_can_be_filled() {
        let error = filled(
            r#"{"error":{"type":"RateLimited","message":"slow down","backtrace":["a","b"],
                "retryable":false,"retry_after":1.5}}"#,
        );
        assert_eq!(error.class, "RateLimited");
        assert_eq!(error.message, "slow down");
        assert_eq!(error.backtrace.as_deref(), Some("a\nb"));
        assert!(!error.retryable);
        assert_eq!(error.retry_after, Some(Duration::from_millis(1500)));
        let error = filled(r#"{"error":{"backtrace":"x","retry_after":"2m"}}"#);
        assert_eq!(error.backtrace.as_deref(), Some("x"));
        assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
        assert_eq!(error.class, "ExitStatus(1)");
    }

    #[test]
    fn an_order_that_makes_no_sense_is_ignored_and_told() {
        let plain = filled("");
        for (name, value) in [
            ("retryable", r#""no""#),
            ("retryable", "0"),
            ("retry_after", "-1"),
            ("retry_after", "1e300"),
            ("retry_after", "1e12"),
            ("retry_after", r#""soon""#),
        ] {
            let error = filled(&format!(
                r#"{{"error":{{"message":"no","{name}":{value}}}}}"#
            ));
            let told = format!("no [`{name}` in the step's error object is not ");
            assert!(error.message.starts_with(&told), "{error:?}");
            assert_eq!(
                (error.retryable, error.retry_after),
                (plain.retryable, plain.retry_after)
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_as_if_absent() {
        let plain = filled("");
        for said in [
            "not json",
            "null",
            "[]",
            r#"{"error":"text"}"#,
            r#"{"error":{}}"#,
            r#"{"error":{"type":1,"message":"","backtrace":{},"retryable":null,"retry_after":null}}"#,
        ] {
            assert_eq!(filled(said), plain, "{said}");
        }
    }

    #[test]
    fn half_of_a_surrogate_pair_voids_nothing() {
        let error = filled(
            r#"{"error":{"type":"Own","message":"a\ud800b","retryable":false,
                "backtrace":["x","\udc00",[1,2]],"retry_after":"2m"}}"#,
        );
        assert_eq!(error.class, "Own");
        assert!(
            error.message.starts_with('a') && error.message.ends_with('b'),
            "{error:?}"
        );
        assert!(error.message.contains('\u{fffd}'), "{error:?}");
        assert!(!error.retryable && error.retry_after == Some(Duration::from_secs(120)));
        assert!(error.backtrace.unwrap().starts_with("x\n"));
    }

    #[test]
    fn what_a_step_says_is_fit_to_be_stored() {
        let error = filled(r#"{"error":{"message":"a\u0000b"}}"#);
        assert_eq!(error.message, "a\u{fffd}b");
    }
}
