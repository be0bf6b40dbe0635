//! One event as one line.
//!
//! Owns: both forms, and that nothing in an event can break its line or pass for another
//! one. Never: writes it.

use std::fmt::Write;

use serde_json::Map;

use super::{Level, ProcessLabel};

/// A field's value.
pub type Value = serde_json::Value;

/// A text that is longer than this is cut: a log is not the place for payloads.
const MAX_TEXT: usize = 16 * 1024;

/// Keys that the process itself fills in JSON.
const OWN_KEYS: [&str; 6] = ["ts", "level", "msg", "role", "pid", "pipeline"];

/// An event.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its level.
    pub level: Level,
    /// The event.
    pub message: String,
    /// Its details, in the order of the event.
    pub fields: Vec<(String, Value)>,
}

impl Record {
    /// An event without fields.
    pub fn new(level: Level, message: &str) -> Self {
        Self {
            level,
            message: message.to_owned(),
            fields: Vec::new(),
        }
    }
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One object.
    Json,
    /// Time, level, process, message, fields.
    Pretty {
        /// With colours.
        colours: bool,
    },
    /// The same after `<N>`, the journal's priority; the journal knows the time.
    Journal,
}

/// Makes lines for one process.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Their form.
    pub form: Form,
    /// The process that logs.
    pub label: ProcessLabel,
    /// Its pid.
    pub pid: u32,
}

impl Writer {
    /// `record` as a line, its end included.
    pub fn line(&self, record: &Record, now: jiff::Timestamp) -> String {
        let mut line = match self.form {
            Form::Json => self.json(record, now),
            Form::Pretty { colours } => {
                let time = format!("{now:.3}");
                // `2026-11-21T12:00:01.123Z`: the reader knows the day.
                let time = time.get(11..23).unwrap_or(&time);
                match colours {
                    true => format!("\x1b[2m{time}\x1b[0m {}", self.text(record, true)),
                    false => format!("{time} {}", self.text(record, false)),
                }
            }
            Form::Journal => {
                let priority = match record.level {
                    Level::Error => 3,
                    Level::Warn => 4,
                    Level::Off | Level::Info => 6,
                    Level::Debug | Level::Trace => 7,
                };
                format!("<{priority}>{}", self.text(record, false))
            }
        };
        line.push('\n');
        line
    }

    fn json(&self, record: &Record, now: jiff::Timestamp) -> String {
        let mut object = Map::new();
        object.insert("ts".into(), format!("{now:.3}").into());
        object.insert("level".into(), record.level.as_str().into());
        object.insert("msg".into(), cut(&record.message).into());
        object.insert("role".into(), self.label.role.into());
        object.insert("pid".into(), self.pid.into());
        if let Some(pipeline) = &self.label.pipeline {
            object.insert("pipeline".into(), pipeline.as_str().into());
        }
        for (name, value) in &record.fields {
            let value = match value {
                Value::String(text) => cut(text).into(),
                value => value.clone(),
            };
            // An advancer serves many pipelines and says which one it means. The other keys
            // are the process's: an event's own would pass for them.
            match name.as_str() {
                "pipeline" => object.insert(name.clone(), value),
                name if OWN_KEYS.contains(&name) => object.insert(format!("event_{name}"), value),
                name => object.insert(name.to_owned(), value),
            };
        }
        Value::Object(object).to_string()
    }

    fn text(&self, record: &Record, colours: bool) -> String {
        let (name, colour) = match record.level {
            Level::Error => ("ERROR", "31"),
            Level::Warn => ("WARN ", "33"),
            Level::Off | Level::Info => ("INFO ", "32"),
            Level::Debug => ("DEBUG", "34"),
            Level::Trace => ("TRACE", "35"),
        };
        let paint = |code: &str, text: &str| match colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        };
        let mut out = paint(colour, name);
        let mut process = self.label.role.to_owned();
        if let Some(pipeline) = &self.label.pipeline {
            process.push('[');
            escape(pipeline, false, &mut process);
            process.push(']');
        }
        out.push(' ');
        out.push_str(&paint("1", &process));
        out.push(' ');
        escape(&cut(&record.message), false, &mut out);
        let laid_out = |name: &str| name == LINES && matches!(self.form, Form::Pretty { .. });
        for (name, value) in &record.fields {
            if laid_out(name) {
                continue;
            }
            out.push(' ');
            out.push_str(&paint("2", &format!("{name}=")));
            match value {
                Value::String(text) if is_id(name, text) => out.push_str(&text[ID_SHORT..]),
                Value::String(text) if !needs_quotes(text) => out.push_str(&cut(text)),
                Value::String(text) => {
                    out.push('"');
                    escape(&cut(text), true, &mut out);
                    out.push('"');
                }
                value => out.push_str(&value.to_string()),
            }
        }
        // Indented, no line passes for another event.
        let lines = record.fields.iter().filter(|(name, _)| laid_out(name));
        for line in lines.flat_map(|(_, value)| value.as_str().unwrap_or_default().lines()) {
            out.push_str("\n    ");
            escape(&cut(line), false, &mut out);
        }
        out
    }
}

/// Where the last eight digits of an id begin: the others are mostly the time. The verbs take these for the
/// whole id.
const ID_SHORT: usize = 28;

/// The field whose text has lines of its own.
const LINES: &str = "problems";

fn is_id(name: &str, text: &str) -> bool {
    (name == "run" || name.ends_with("_id"))
        && text.len() == uuid::fmt::Hyphenated::LENGTH
        && uuid::Uuid::try_parse(text).is_ok()
}

fn cut(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let end = text.floor_char_boundary(MAX_TEXT);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end).into()
}

fn needs_quotes(text: &str) -> bool {
    let special =
        |char: char| char.is_whitespace() || matches!(char, '"' | '=' | '\\') || is_unsafe(char);
    text.is_empty() || text.contains(special)
}

/// Characters that end or rearrange a line, or speak to the terminal.
fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn escape(text: &str, quoted: bool, out: &mut String) {
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '"' | '\\' if quoted => {
                out.push('\\');
                out.push(char);
            }
            char if is_unsafe(char) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
            }
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, pipeline: Option<&str>, record: &Record) -> String {
        let writer = Writer {
            form,
            label: ProcessLabel {
                role: "worker",
                pipeline: pipeline.map(str::to_owned),
            },
            pid: 7,
        };
        let now = "2026-11-21T12:00:01.123456Z".parse().unwrap();
        writer.line(record, now)
    }

    fn record(message: &str, fields: &[(&str, Value)]) -> Record {
        let mut record = Record::new(Level::Info, message);
        let fields = fields.iter();
        record.fields = fields
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        record
    }

    const PRETTY: Form = Form::Pretty { colours: false };

    #[test]
    fn a_pretty_line_has_time_level_process_message_and_fields() {
        let record = record(
            "step ended",
            &[
                ("step", "A".into()),
                ("ms", 12.into()),
                ("why", "no way".into()),
                ("none", "".into()),
            ],
        );
        assert_eq!(
            line(PRETTY, Some("EnrichUserData"), &record),
            "12:00:01.123 INFO  worker[EnrichUserData] step ended step=A ms=12 why=\"no way\" none=\"\"\n"
        );
        assert_eq!(
            line(Form::Journal, None, &record),
            "<6>INFO  worker step ended step=A ms=12 why=\"no way\" none=\"\"\n"
        );
        let coloured = line(Form::Pretty { colours: true }, None, &record);
        assert!(coloured.contains("\x1b[32mINFO \x1b[0m"), "{coloured:?}");
    }

    #[test]
    fn a_json_line_has_stable_keys_first_and_typed_fields() {
        let record = record(
            "step ended",
            &[
                ("run_id", "r".into()),
                ("ms", 12.into()),
                ("ok", true.into()),
            ],
        );
        assert_eq!(
            line(Form::Json, Some("P"), &record),
            "{\"ts\":\"2026-11-21T12:00:01.123Z\",\"level\":\"info\",\"msg\":\"step ended\",\
             \"role\":\"worker\",\"pid\":7,\"pipeline\":\"P\",\"run_id\":\"r\",\"ms\":12,\"ok\":true}\n"
        );
    }

    #[test]
    fn ids_are_short_for_people_and_whole_for_machines() {
        let id = "0192f3a1-7c1e-7a3b-9f00-12ab34cd56ef";
        let record = record(
            "x",
            &[
                ("run_id", id.into()),
                ("key", id.into()),
                ("step_id", "é".into()),
            ],
        );
        let pretty = line(PRETTY, None, &record);
        assert!(
            pretty.ends_with(&format!("x run_id=34cd56ef key={id} step_id=é\n")),
            "{pretty}"
        );
        assert!(line(Form::Json, None, &record).contains(&format!("\"run_id\":\"{id}\"")));
    }

    #[test]
    fn a_field_cannot_pass_for_one_of_the_process() {
        let record = record(
            "x",
            &[
                ("pid", 9.into()),
                ("pipeline", "Q".into()),
                ("msg", "y".into()),
            ],
        );
        let object: Value = serde_json::from_str(&line(Form::Json, Some("P"), &record)).unwrap();
        assert_eq!(object["pid"], 7);
        assert_eq!(object["event_pid"], 9);
        assert_eq!(object["msg"], "x");
        assert_eq!(object["event_msg"], "y");
        assert_eq!(object["pipeline"], "Q", "the event knows better");
    }

    #[test]
    fn nothing_in_an_event_can_begin_a_line_or_speak_to_the_terminal() {
        let evil = "a\n12:00:01.123 INFO  worker forged\r\x1b[2J\u{9b}\u{202e}\u{2028}\0\t\"b\\";
        let record = record(evil, &[("text", evil.into()), ("plain", "\u{202e}".into())]);
        for form in [
            PRETTY,
            Form::Journal,
            Form::Pretty { colours: true },
            Form::Json,
        ] {
            let line = line(form, Some(evil), &record);
            let body = line.strip_suffix('\n').expect("one end");
            let own = body
                .replace("\x1b[0m", "")
                .replace("\x1b[1m", "")
                .replace("\x1b[2m", "")
                .replace("\x1b[32m", "");
            let bad: Vec<char> = own.chars().filter(|char| char.is_control()).collect();
            // JSON readers take C1 characters as they are; no line begins with them.
            let bad: Vec<char> = bad
                .into_iter()
                .filter(|char| form != Form::Json || *char != '\u{9b}')
                .collect();
            assert_eq!(bad, Vec::<char>::new(), "{line:?}");
        }
        let pretty = line(PRETTY, None, &record);
        assert!(pretty.contains("text=\"a\\n12:00:01.123 INFO"), "{pretty}");
        assert!(
            pretty.contains("\\u{1b}[2J\\u{9b}\\u{202e}\\u{2028}\\u{0}\\t\\\"b\\\\\""),
            "{pretty}"
        );
        assert!(pretty.contains("plain=\"\\u{202e}\""), "{pretty}");
    }

    #[test]
    fn problems_have_lines_of_their_own_below_a_pretty_line() {
        let record = record(
            "not reloaded",
            &[
                ("problems", "error: a\n --> b:1\u{1b}".into()),
                ("n", 1.into()),
            ],
        );
        assert_eq!(
            line(PRETTY, None, &record),
            "12:00:01.123 INFO  worker not reloaded n=1\n    error: a\n     --> b:1\\u{1b}\n"
        );
        let journal = line(Form::Journal, None, &record);
        assert_eq!(journal.matches('\n').count(), 1, "{journal:?}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "é".repeat(MAX_TEXT);
        let record = record(&text, &[("text", text.as_str().into())]);
        for form in [PRETTY, Form::Json] {
            let line = line(form, None, &record);
            assert!(line.len() < 3 * MAX_TEXT, "{}", line.len());
            assert!(line.contains(&format!("… ({MAX_TEXT} bytes more)")));
        }
    }
}
