//! The meaning of a command's end.
//!
//! Owns: turning exit statuses, signals and outputs into an outcome; pure. Never: knows why we ended
//! a command; `command` does.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use serde_json::value::RawValue;

use super::error::excerpt;
use super::mask::Mask;
use super::output::{JsonProblem, half, parse_json};
use super::report::Report;
use super::stderr::last_line;
use super::tail::Tail;
use super::{Outcome, StepError, report};

/// EX_DATAERR: the input is bad, and will be bad again.
const DATA_ERROR: i32 = 65;

/// At most this many bytes of the end of its standard output are kept of a command that failed.
pub const PRINTED_END: usize = 8 * 1024;

/// At most this many bytes are kept of both outputs of a command that failed.
const LOG_END: usize = 64 * 1024;

/// The line between the end of standard error and that of standard output.
const PRINTED: &str = "[standard output]";

/// So many bytes of an output are covered at once.
const CHUNK: usize = 64 * 1024;

/// The results of a command that ended by itself.
#[derive(Debug)]
pub struct Said<'a> {
    /// Its standard output, or the end of it.
    pub stdout: &'a [u8],
    /// It printed more than is allowed, and this is the end of it.
    pub overflowed: bool,
    /// The content of `$DUCTWORK_OUTPUT`; it wins over stdout when it is not empty.
    pub file: &'a [u8],
    /// The end of its log, covered.
    pub log: Option<String>,
    /// Covers its secrets in the report of a failure.
    pub mask: Option<&'a Mask>,
}

/// Judges a command that ended by itself.
pub fn judge(status: ExitStatus, said: Said<'_>, max_payload: usize) -> Outcome {
    if let Some(signal) = status.signal() {
        return killed(signal, status.core_dumped(), said, max_payload);
    }
    let code = status.code().unwrap_or_default();
    if code == 0 {
        return match returned(&said, max_payload) {
            Ok(value) => Outcome::Success(value),
            Err(error) => {
                let printed = unreported(None, &said);
                Outcome::Error(reported(error, said, None, printed))
            }
        };
    }
    let report = report(&said, max_payload);
    let printed = unreported(report.as_ref(), &said);
    // A value is for the next step, and not for those who may read no payloads.
    let is_value = match said.overflowed {
        false => parse_json(said.stdout, max_payload).is_ok(),
        true => ends_like_a_value(said.stdout),
    };
    let lines = [
        said.log.as_deref(),
        printed.as_deref().filter(|_| !is_value),
    ];
    let mut error = StepError::new(
        format!("ExitStatus({code})"),
        match lines.into_iter().flatten().find_map(last_line) {
            Some(line) => line,
            None => format!("exit status {code}"),
        },
    );
    error.retryable = code != DATA_ERROR;
    Outcome::Error(reported(error, said, report, printed))
}

/// Whether an output whose beginning is gone may have been one large value.
fn ends_like_a_value(printed: &[u8]) -> bool {
    matches!(printed.trim_ascii_end().last(), Some(b'}' | b']' | b'"'))
}

fn killed(signal: i32, core_dumped: bool, said: Said<'_>, max_payload: usize) -> Outcome {
    let known = Signal::try_from(signal).ok();
    let name = match known {
        Some(signal) => signal.as_str().trim_start_matches("SIG").to_owned(),
        // Real-time signals have numbers only.
        None => signal.to_string(),
    };
    let core = if core_dumped { ", core dumped" } else { "" };
    match known {
        Some(Signal::SIGKILL | Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) => {
            let by_whom = match known {
                Some(Signal::SIGKILL) => {
                    "by the kernel for want of memory, by a person, or by itself"
                }
                _ => "by a person, another program, or itself",
            };
            Outcome::Crashed {
                message: format!("killed by SIG{name}: {by_whom}"),
            }
        }
        _ => {
            let message = match known {
                Some(_) => format!("killed by SIG{name}{core}"),
                None => format!("killed by signal {name}{core}"),
            };
            let error = StepError::new(format!("Signal({name})"), message);
            let report = report(&said, max_payload);
            let printed = unreported(report.as_ref(), &said);
            Outcome::Error(reported(error, said, report, printed))
        }
    }
}

/// The error object of a step that failed, if it has written one.
fn report(said: &Said<'_>, max_payload: usize) -> Option<Report> {
    match said.file.is_empty() {
        true if said.overflowed => None,
        true => report::of(said.stdout, max_payload),
        false => report::of(said.file, max_payload),
    }
}

/// The end of the standard output of a step that failed and has written no error object, without secrets. It is covered
/// before it is cut. The beginning of an output over the limit is gone: a secret may lie across the cut, but across no end
/// of a line.
fn unreported(report: Option<&Report>, said: &Said<'_>) -> Option<String> {
    if report.is_some() {
        return None;
    }
    let whole = match (said.overflowed, said.mask) {
        (true, Some(_)) => {
            let end = said.stdout.iter().position(|byte| *byte == b'\n');
            &said.stdout[end?..]
        }
        _ => said.stdout,
    };
    let mut tail = Tail::new(PRINTED_END).of_a_rest(said.overflowed);
    match said.mask.map(Mask::afresh) {
        Some(mut mask) => {
            for chunk in whole.chunks(CHUNK) {
                tail.keep(&mask.cover(chunk));
            }
            tail.keep(&mask.finish());
        }
        None => tail.keep(whole),
    }
    // Bytes that are no UTF-8 become longer.
    tail.whole()
        .map(|printed| end(&printed, PRINTED_END).into_owned())
}

fn reported(
    error: StepError,
    said: Said<'_>,
    report: Option<Report>,
    printed: Option<String>,
) -> StepError {
    let error = with_log(error, both(said.log, printed));
    match report {
        Some(report) => report::fill(error, &report, said.mask),
        None => error,
    }
}

/// The log of an attempt with both outputs.
fn both(log: Option<String>, printed: Option<String>) -> Option<String> {
    match (log, printed) {
        (log, None) => log,
        (None, Some(printed)) => Some(format!("{PRINTED}\n{printed}")),
        (Some(log), Some(printed)) => {
            let room = LOG_END - printed.len() - 2 * PRINTED.len();
            Some(format!("{}\n{PRINTED}\n{printed}", end(&log, room)))
        }
    }
}

/// The log of a command that was ended, with the end of what it had printed. Only that end is covered, because the process
/// beats on this thread.
pub fn cut_off(said: Said<'_>) -> Option<String> {
    let excess = said.stdout.len().saturating_sub(CHUNK);
    let printed = unreported(
        None,
        &Said {
            stdout: &said.stdout[excess..],
            overflowed: said.overflowed || excess > 0,
            log: None,
            ..said
        },
    );
    both(said.log, printed)
}

/// The end of a text that is longer than this, from the beginning of a line if there is one.
fn end(text: &str, max: usize) -> Cow<'_, str> {
    let Some(excess @ 1..) = text.len().checked_sub(max) else {
        return Cow::Borrowed(text);
    };
    let end = &text[text.ceil_char_boundary(excess)..];
    let end = end.split_once('\n').map_or(end, |(_, whole)| whole);
    Cow::Owned(format!("…\n{end}"))
}

fn with_log(error: StepError, log: Option<String>) -> StepError {
    match log {
        Some(log) => error.backtrace(log),
        None => error,
    }
}

/// The error class of an output that is not a JSON value.
pub const OUTPUT_INVALID: &str = "output_invalid";

/// The beginnings of the advice with which the message of such an error ends.
pub const ADVICE: [&str; 3] = [
    "Print only the value",
    "JSON needs double quotes:",
    "JSON is UTF-8:",
];

/// True for a value as Python prints it: strings in single quotes.
fn is_python(bytes: &[u8]) -> bool {
    let inner = bytes.trim_ascii_start();
    let inner = inner.iter().find(|byte| !b"[{( ".contains(byte));
    inner == Some(&b'\'')
}

/// True if the output may be a value with other text around it. Advice to print only the value mends nothing else.
fn is_among_text(problem: &JsonProblem) -> bool {
    match problem {
        JsonProblem::Syntax { message, .. } => {
            let of_value = [
                "`",
                "it starts with a byte order mark",
                "control character",
                "invalid escape",
            ];
            !of_value.iter().any(|it| message.starts_with(it))
        }
        _ => false,
    }
}

/// The value that a successful command returned.
fn returned(said: &Said<'_>, max_payload: usize) -> Result<Box<RawValue>, StepError> {
    if said.overflowed && said.file.is_empty() {
        return Err(too_large("printed", max_payload));
    }
    let (source, bytes) = match said.file.is_empty() {
        true => ("stdout", said.stdout),
        false => ("$DUCTWORK_OUTPUT", said.file),
    };
    match parse_json(bytes, max_payload) {
        Ok(value) => match half(value.get()) {
            None => Ok(value),
            Some(half) => Err(StepError::new(OUTPUT_INVALID, format!("{source} {half}"))),
        },
        Err(JsonProblem::Empty) => Ok(RawValue::NULL.to_owned()),
        Err(JsonProblem::TooLarge { .. }) => {
            let how = match said.file.is_empty() {
                true => "printed",
                false => "wrote to $DUCTWORK_OUTPUT",
            };
            Err(too_large(how, max_payload))
        }
        Err(problem) => Err(StepError::new(
            OUTPUT_INVALID,
            format!(
                "{source} is not one JSON value: {problem}; it begins {}{}",
                excerpt(bytes, said.mask),
                match &problem {
                    _ if is_python(bytes) =>
                        format!(". {} in Python, `print(json.dumps(value))`", ADVICE[1]),
                    JsonProblem::NotUtf8 { .. } => format!(
                        ". {} encode a text so, and other bytes as a text, for example in base64",
                        ADVICE[2]
                    ),
                    problem if is_among_text(problem) => format!(
                        ". {} (and the rest to stderr), or write it to the file $DUCTWORK_OUTPUT",
                        ADVICE[0]
                    ),
                    _ => String::new(),
                }
            ),
        )),
    }
}

/// An output over the limit.
pub fn too_large(how: &str, max_payload: usize) -> StepError {
    StepError::new(
        "output_too_large",
        format!(
            "the step {how} more than {max_payload} bytes (max_payload): keep large values \
             elsewhere and return their location"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: i32, said: Said<'_>) -> Outcome {
        judge(ExitStatus::from_raw(status), said, 1000)
    }

    fn said(stdout: &[u8]) -> Said<'_> {
        Said {
            stdout,
            overflowed: false,
            file: b"",
            log: Some("first\nlast".into()),
            mask: None,
        }
    }

    fn error(outcome: Outcome) -> StepError {
        match outcome {
            Outcome::Error(error) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_exit_status_but_zero_is_an_error_and_only_65_is_final() {
        for code in 1..=255 {
            let error = error(judged(code << 8, said(b"printed\n")));
            assert_eq!(error.class, format!("ExitStatus({code})"));
            assert_eq!(error.message, "last");
            let log = "first\nlast\n[standard output]\nprinted";
            assert_eq!(error.backtrace.as_deref(), Some(log));
            assert_eq!(error.retryable, code != 65, "{code}");
        }
    }

    #[test]
    fn four_signals_are_crashes_and_every_other_is_an_error() {
        for signal in 1..=64 {
            match judged(signal, said(b"")) {
                Outcome::Crashed { .. } => assert!([1, 2, 9, 15].contains(&signal), "{signal}"),
                Outcome::Error(error) => {
                    assert!(![1, 2, 9, 15].contains(&signal), "{signal}");
                    assert!(error.class.starts_with("Signal("), "{error:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        let error = error(judged(11 | 0x80, said(b"")));
        assert_eq!(error.class, "Signal(SEGV)");
        assert_eq!(error.message, "killed by SIGSEGV, core dumped");
    }

    #[test]
    fn half_an_output_is_an_error_that_says_where_and_what_to_do() {
        let error = error(judged(0, said(b"{\"a\": 1,\n \"b\"")));
        assert_eq!(error.class, "output_invalid");
        assert!(error.retryable);
        for part in [
            "stdout",
            "line 2, column",
            r#""{\"a\": 1"#,
            "$DUCTWORK_OUTPUT",
        ] {
            assert!(error.message.contains(part), "{part}: {}", error.message);
        }
    }

    #[test]
    fn an_output_with_half_of_a_surrogate_pair_is_refused_as_an_input_is() {
        for (output, told) in [
            (
                &br#"["\ud83d"]"#[..],
                "stdout has half of a surrogate pair, `\\ud83d`",
            ),
            (
                br#"{"\udc00": 1}"#,
                "stdout has a key with half of a surrogate pair",
            ),
        ] {
            let error = error(judged(0, said(output)));
            assert_eq!(error.class, "output_invalid");
            assert!(error.message.starts_with(told), "{}", error.message);
        }
        match judged(0, said(br#""\ud83d\ude00""#)) {
            Outcome::Success(value) => assert_eq!(value.get(), r#""\ud83d\ude00""#),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_output_in_pythons_quotes_says_how_json_is_printed() {
        let python = error(judged(0, said(b"{'a': 1}\n")));
        let advice = ". JSON needs double quotes: in Python, `print(json.dumps(value))`";
        assert!(python.message.ends_with(advice), "{}", python.message);
        let error = error(judged(0, said(b"[it's]\n")));
        assert!(!error.message.contains("Python"), "{}", error.message);
    }

    #[test]
    fn an_output_that_is_no_utf8_shows_its_bytes_and_says_how_they_are_encoded() {
        let told = error(judged(0, said(b"\"\xff\xfe\""))).message;
        assert_eq!(
            told,
            r#"stdout is not one JSON value: it is not UTF-8 at byte 1 (line 1); it begins "\"\xff\xfe\"". JSON is "#
                .to_owned()
                + "UTF-8: encode a text so, and other bytes as a text, for example in base64"
        );
        let (_, advice) = crate::view::attempt::parted(&told);
        assert!(advice.is_some_and(|it| it.starts_with("JSON is UTF-8:")));
    }

    #[test]
    fn the_end_of_stdout_is_kept_of_a_failure_alone_and_explains_it_where_stderr_is_empty() {
        let mute = |stdout| Said {
            log: None,
            ..said(stdout)
        };
        let failed = error(judged(256, mute(b"10%\nERROR: disk quota exceeded\n\n")));
        assert_eq!(failed.message, "ERROR: disk quota exceeded");
        let log = "[standard output]\n10%\nERROR: disk quota exceeded";
        assert_eq!(failed.backtrace.as_deref(), Some(log));
        assert_eq!(error(judged(256, mute(b" \n"))).message, "exit status 1");
        // A value is no message; nor is a list an error object.
        for value in [
            &br#"{"customer":"Ada"}"#[..],
            br#"[{"message":"hello","retryable":false}]"#,
            br#"{"ok":false,"error":{"code":12}}"#,
            b"7\n",
        ] {
            let failed = error(judged(256, mute(value)));
            assert_eq!(
                (failed.message.as_str(), failed.retryable),
                ("exit status 1", true)
            );
            let log = failed.backtrace.unwrap();
            let printed = log.strip_prefix("[standard output]\n").unwrap();
            assert_eq!(printed.as_bytes(), value.trim_ascii_end());
        }
        let signal = error(judged(11, mute(b"printed")));
        assert_eq!(signal.message, "killed by SIGSEGV");
        assert_eq!(
            signal.backtrace.as_deref(),
            Some("[standard output]\nprinted")
        );
        // The end of a large value is not one either, but that of other outputs over the limit is.
        for (end, message) in [
            (&b"1},\n {\"customer\":\"Ada\"}]\n"[..], "exit status 1"),
            (
                b"99%\nERROR: disk quota exceeded\n",
                "ERROR: disk quota exceeded",
            ),
        ] {
            let cut = Said {
                overflowed: true,
                ..mute(end)
            };
            assert_eq!(error(judged(256, cut)).message, message);
        }
        // The message about a wrong output shows its beginning.
        let wrong = error(judged(0, mute(b"[1,\n2,\n3;]")));
        assert_eq!(wrong.class, "output_invalid");
        let log = "[standard output]\n[1,\n2,\n3;]";
        assert_eq!(wrong.backtrace.as_deref(), Some(log));
        // The log of an error object has none of it.
        let report = br#"{"error":{"message":"no"}}"#;
        assert_eq!(error(judged(256, mute(report))).backtrace, None);
        let beside = Said {
            file: report,
            ..mute(b"printed")
        };
        assert_eq!(error(judged(256, beside)).backtrace, None);
    }

    #[test]
    fn both_outputs_of_a_failure_are_kept_within_the_bound_of_a_log() {
        let stdout = format!("{}\n", "o".repeat(99)).repeat(1_000);
        let both = Said {
            log: Some("e\n".repeat(32 * 1024).trim_end().to_owned()),
            ..said(stdout.as_bytes())
        };
        let log = error(judged(256, both)).backtrace.unwrap();
        let (stderr, printed) = log.split_once("\n[standard output]\n").unwrap();
        assert!(
            log.len() <= LOG_END && log.len() > LOG_END - 1_000,
            "{}",
            log.len()
        );
        assert!(stderr.starts_with("…\ne\n") && stderr.ends_with("\ne"));
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!((lines[0], lines.len()), ("…", 82));
        assert!(lines[1..].iter().all(|line| line.len() == 99));
        // Bytes that are no UTF-8 become longer.
        let latin = b"\xe4\xf6\xfc\n".repeat(4 * 1024);
        let both = Said {
            log: Some("e\n".repeat(32 * 1024).trim_end().to_owned()),
            ..said(&latin)
        };
        let log = error(judged(256, both)).backtrace.unwrap();
        assert!(
            log.len() <= LOG_END && log.ends_with('\u{fffd}'),
            "{}",
            log.len()
        );
        let over = Said {
            overflowed: true,
            log: None,
            ..said(b"half\nwhole\nlast\n")
        };
        let log = error(judged(256, over)).backtrace.unwrap();
        assert_eq!(log, "[standard output]\n…\nwhole\nlast");
    }

    #[test]
    fn a_secret_with_a_colour_in_it_is_in_no_text_of_a_failure() {
        let mask = Mask::new(&["s3cr3t-key".into()]).unwrap().unwrap();
        let wrong = Said {
            mask: Some(&mask),
            ..said(b"{bad s3\x1b[1mcr3t-key")
        };
        let message = error(judged(0, wrong)).message;
        assert!(message.contains("it begins \"{bad ***\""), "{message}");
        let coloured = Said {
            log: Some("no such key: s3\x1b[1mcr3t\x1b[0m-key".into()),
            mask: Some(&mask),
            ..said(b"")
        };
        let failed = error(judged(256, coloured).covered_by(&mask));
        assert_eq!(failed.message, "no such key: ***");
        assert_eq!(failed.backtrace.as_deref(), Some("no such key: ***"));
    }

    #[test]
    fn a_secret_is_covered_before_a_text_is_cut() {
        let mask = Mask::new(&["s3cr3t-key".into()]).unwrap().unwrap();
        let told = |status, stdout: &str| {
            let said = Said {
                stdout: stdout.as_bytes(),
                overflowed: false,
                file: b"",
                log: None,
                mask: Some(&mask),
            };
            let error = error(judge(ExitStatus::from_raw(status), said, 1_000_000));
            format!(
                "{} {} {}",
                error.class,
                error.message,
                error.backtrace.unwrap_or_default()
            )
        };
        // The secret lies across each of the places where something is cut, in every way.
        for cut in [200, 256, 8 * 1024, 64 * 1024] {
            for before in cut - 12..=cut {
                let text = format!("{}s3cr3t-key", "x".repeat(before));
                let mut told_of = vec![told(0, &text), told(256, &text)];
                for field in ["type", "message", "backtrace"] {
                    told_of.push(told(256, &format!(r#"{{"error":{{"{field}":"{text}"}}}}"#)));
                }
                for told in told_of {
                    assert!(!told.contains("s3c"), "{cut} {before}");
                }
            }
        }
    }

    #[test]
    fn the_file_wins_over_stdout_in_success_and_failure() {
        let both = |stdout, file| Said {
            file,
            ..said(stdout)
        };
        match judged(0, both(b"chatter", b"[1]")) {
            Outcome::Success(value) => assert_eq!(value.get(), "[1]"),
            other => panic!("{other:?}"),
        }
        let report = br#"{"error":{"type":"T"}}"#;
        assert_eq!(error(judged(256, both(b"chatter", report))).class, "T");
        assert_eq!(error(judged(256, both(report, b""))).class, "T");
    }
}
