//! The error object that a failed step may print instead of a value.
//!
//! Owns: reading `{"error":{"type","message","backtrace","retryable","retry_after"}}`. Never:
//! fails. A failed step has failed; a field that is not what it should be is as if absent.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{StepError, output};

#[derive(Deserialize)]
struct Envelope {
    error: serde_json::Map<String, Value>,
}

/// Lets what the step said about its failure replace the fields of `error`.
pub fn fill(error: StepError, said: &[u8], max: usize) -> StepError {
    let envelope = output::parse_json(said, max)
        .ok()
        .and_then(|json| serde_json::from_str::<Envelope>(json.get()).ok());
    let Some(Envelope { error: fields }) = envelope else {
        return error;
    };
    let text = |name: &str| {
        let text = fields.get(name)?.as_str()?;
        (!text.trim().is_empty()).then_some(text)
    };
    // Made anew, so that the same bounds hold for what the step says.
    let mut filled = StepError::new(
        text("type").unwrap_or(&error.class),
        text("message").unwrap_or(&error.message),
    );
    filled.backtrace = error.backtrace;
    filled.retryable = match fields.get("retryable") {
        Some(Value::Bool(retryable)) => *retryable,
        _ => error.retryable,
    };
    filled.retry_after = fields
        .get("retry_after")
        .and_then(wait)
        .or(error.retry_after);
    match fields.get("backtrace").and_then(backtrace) {
        Some(backtrace) => filled.backtrace(backtrace),
        None => filled,
    }
}

fn backtrace(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => {
            let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
            lines.join("\n")
        }
        _ => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

/// Seconds, or a duration as in the configuration.
fn wait(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(seconds) => {
            let wait = Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
            (wait <= crate::duration::LONGEST).then_some(wait)
        }
        Value::String(text) => crate::duration::parse(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(said: &str) -> StepError {
        let error = StepError::new("ExitStatus(1)", "exit status 1").backtrace("log");
        fill(error, said.as_bytes(), 100_000)
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
    fn what_makes_no_sense_is_as_if_absent() {
        let plain = filled("");
        for said in [
            "not json",
            "null",
            "[]",
            r#"{"error":"text"}"#,
            r#"{"error":{}}"#,
            r#"{"error":{"type":1,"message":"","backtrace":{},"retryable":"no"}}"#,
            r#"{"error":{"retry_after":-1}}"#,
            r#"{"error":{"retry_after":1e300}}"#,
            r#"{"error":{"retry_after":1e12}}"#,
            r#"{"error":{"retry_after":"soon"}}"#,
        ] {
            assert_eq!(filled(said), plain, "{said}");
        }
    }

    #[test]
    fn what_a_step_says_is_fit_to_be_stored() {
        let error = filled(r#"{"error":{"message":"a\u0000b"}}"#);
        assert_eq!(error.message, "a\u{fffd}b");
    }
}
