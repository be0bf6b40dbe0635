//! Logging: one event, one line, on standard error.
//!
//! Owns: the set-up of `tracing`, the two forms of a line (JSON for machines, pretty for people and
//! the journal) and the thread that writes the lines. Never: blocks or ends the process because
//! nobody reads its log; lines are dropped instead, and counted.

pub mod events;
pub mod growing;
mod line;
mod queue;
#[cfg(test)]
pub mod testing;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer};

use line::{Form, Record, Value};
use queue::Queue;

pub use queue::take_dropped;

/// How long an ending process waits for its last lines to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The least important events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    Off,
    /// Events that need somebody's attention.
    Error,
    /// Events that may need somebody's attention soon.
    Warn,
    /// All events of note.
    Info,
    /// How events come about.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// The word in the configuration and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The directives, as in `RUST_LOG`. The database driver's own events are for its developers; and the server's notices
    /// are in the server's log: when its transaction ids run out, it sends one with each transaction.
    fn directives(self) -> String {
        match self {
            Self::Off | Self::Error => self.as_str().to_owned(),
            _ => format!("{},sqlx=warn,sqlx::postgres::notice=off", self.as_str()),
        }
    }
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Pretty on a terminal and in the journal, JSON elsewhere.
    Auto,
    /// For people.
    Pretty,
    /// For machines.
    Json,
}

impl LogFormat {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pretty => "pretty",
            Self::Json => "json",
        }
    }
}

/// The process that logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLabel {
    /// `supervisor`, `advancer`, `worker`, or the name of a one-shot command.
    pub role: &'static str,
    /// The pipeline that the process serves, if it serves one.
    pub pipeline: Option<String>,
}

/// Keeps the log's writer; when it is dropped, the last lines are written if possible.
#[derive(Debug)]
#[must_use = "the last lines are lost when this is dropped at once"]
pub struct Guard {
    queue: Arc<Queue>,
}

/// The queue of the process's log.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Waits until all lines are written, but never long: for ways of ending that drop nothing, such as
/// `process::exit`.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LAST_LINES);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.queue.flush(LAST_LINES);
    }
}

/// The destination of this process's lines.
static LINES: OnceLock<Lines> = OnceLock::new();

/// The answer to a person who asked: one line of the log, at any level.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    message: &'static str,
    fields: Vec<(&'static str, Value)>,
}

impl Note {
    /// A line with this message.
    pub fn new(message: &'static str) -> Self {
        let fields = Vec::new();
        Self { message, fields }
    }

    /// The same, with another field.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Its message.
    #[cfg(test)]
    pub fn message(&self) -> &str {
        self.message
    }

    /// The text of a field.
    #[cfg(test)]
    pub fn text(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(own, _)| *own == name)?;
        field.1.as_str()
    }

    /// The same, with the time at which something began that has lasted this long.
    pub fn since(self, lasted: Duration) -> Self {
        let lasted = jiff::SignedDuration::try_from(lasted).unwrap_or_default();
        let since = wall_clock().saturating_sub(lasted).unwrap_or_default();
        self.with("since", format!("{since:.3}"))
    }
}

/// Logs the answer to a person who asked. Does nothing if no log was started.
pub fn tell(note: &Note) {
    let Some(lines) = LINES.get() else {
        return;
    };
    let mut record = Record::new(Level::Info, note.message);
    let fields = note.fields.iter();
    record.fields = fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    lines.log(&record);
}

/// Starts logging for this process. `RUST_LOG` takes precedence over `level`. A second call changes
/// nothing, but still returns a guard.
pub fn init(level: Level, format: LogFormat, process: ProcessLabel) -> Guard {
    let var = |name: &str| std::env::var(name).ok();
    let stderr = Stderr {
        is_terminal: std::io::stderr().is_terminal(),
        is_journal: is_journal(var("JOURNAL_STREAM").as_deref()),
    };
    let writer = line::Writer {
        form: form(format, stderr, &var),
        label: process,
        pid: std::process::id(),
    };
    let notice = {
        let writer = writer.clone();
        move |lines: u64| {
            let mut record = Record::new(Level::Warn, "log lines were dropped");
            record.fields.push(("lines".into(), Value::from(lines)));
            writer.line(&record, wall_clock())
        }
    };
    let mute = {
        let writer = writer.clone();
        move |error: &std::io::Error| {
            let mut record = Record::new(Level::Error, "the log's thread cannot be started");
            let error = Value::from(error.to_string());
            record.fields.push(("error".into(), error));
            writer.line(&record, wall_clock())
        }
    };
    let queue = Queue::start(queue::write_to_stderr, notice, mute);
    let wanted = var("RUST_LOG").filter(|text| !text.trim().is_empty());
    let (filter, refused) = match wanted.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(level.directives()), Some(error)),
        None => (EnvFilter::new(level.directives()), None),
    };
    let lines = Lines {
        writer,
        queue: Arc::clone(&queue),
    };
    let _second = LINES.set(lines.clone());
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    // A program that embeds the library may already have a subscriber, which then stays.
    if tracing::subscriber::set_global_default(subscriber).is_ok()
        && let Some(error) = refused
    {
        tracing::warn!(error = %error, "RUST_LOG is not understood and not used");
    }
    let _first = QUEUE.set(Arc::clone(&queue));
    Guard { queue }
}

/// The kind of file that standard error is.
#[derive(Clone, Copy)]
struct Stderr {
    is_terminal: bool,
    is_journal: bool,
}

fn form(format: LogFormat, stderr: Stderr, var: &dyn Fn(&str) -> Option<String>) -> Form {
    let pretty = match format {
        LogFormat::Json => false,
        LogFormat::Pretty => true,
        LogFormat::Auto => stderr.is_terminal || stderr.is_journal,
    };
    match pretty {
        false => Form::Json,
        true if stderr.is_journal => Form::Journal,
        true => Form::Pretty {
            colours: colours(stderr.is_terminal, var),
        },
    }
}

/// Follows <https://no-color.org> and <https://bixense.com/clicolors>.
fn colours(is_terminal: bool, var: &dyn Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    is_terminal && set("TERM").is_none_or(|term| term != "dumb")
}

/// True when standard error is the journal's stream and not, for example, a file that a service's
/// shell has redirected it to: systemd passes the stream's device and inode.
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    nix::sys::stat::fstat(std::io::stderr())
        .is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

/// Turns events into lines.
#[derive(Clone, Debug)]
struct Lines {
    writer: line::Writer,
    queue: Arc<Queue>,
}

impl Lines {
    fn log(&self, record: &Record) {
        self.queue.push(self.writer.line(record, wall_clock()));
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.log(&record(event));
    }
}

/// The host's clock: for people who read lines and dumps, never for a decision.
#[expect(
    clippy::disallowed_methods,
    reason = "a line of log says when it was written here; nothing is decided by it"
)]
pub(crate) fn wall_clock() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn record(event: &Event<'_>) -> Record {
    let mut record = Record::new((*event.metadata().level()).into(), "");
    event.record(&mut record);
    record
}

impl Record {
    fn field(&mut self, field: &Field, value: Value) {
        // A field whose name is a keyword of Rust is written `r#type`.
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        self.fields.push((name.to_owned(), value));
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.field(field, Value::from(format!("{value:?}"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            _ => self.field(field, Value::from(value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.field(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, Value::from(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        // The text of an error does not include its source; a log without the source says nothing.
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        self.field(field, Value::from(text));
    }
}

/// An error with its sources, on one line, as a log shows it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        // Many drivers repeat their source in their own text.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn chosen(
        format: LogFormat,
        is_terminal: bool,
        is_journal: bool,
        vars: &[(&str, &str)],
    ) -> Form {
        let var = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let stderr = Stderr {
            is_terminal,
            is_journal,
        };
        form(format, stderr, &var)
    }

    #[test]
    fn auto_is_pretty_on_a_terminal_and_in_the_journal_and_json_elsewhere() {
        use LogFormat::{Auto, Json, Pretty};
        let pretty = |colours| Form::Pretty { colours };
        assert_eq!(chosen(Auto, true, false, &[]), pretty(true));
        assert_eq!(chosen(Auto, false, true, &[]), Form::Journal);
        assert_eq!(chosen(Auto, false, false, &[]), Form::Json);
        assert_eq!(chosen(Json, true, false, &[]), Form::Json);
        assert_eq!(chosen(Json, false, true, &[]), Form::Json);
        assert_eq!(chosen(Pretty, false, false, &[]), pretty(false));
        assert_eq!(chosen(Pretty, false, true, &[]), Form::Journal);
    }

    #[test]
    fn colours_are_the_users_choice() {
        for (is_terminal, vars, expected) in [
            (true, &[][..], true),
            (true, &[("NO_COLOR", "")], true),
            (true, &[("NO_COLOR", "1")], false),
            (true, &[("TERM", "dumb")], false),
            (false, &[("CLICOLOR_FORCE", "1")], true),
            (false, &[("CLICOLOR_FORCE", "0")], false),
            (false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        ] {
            let found = chosen(LogFormat::Pretty, is_terminal, false, vars);
            assert_eq!(found, Form::Pretty { colours: expected }, "{vars:?}");
        }
    }

    #[test]
    fn another_stream_is_not_the_journal() {
        for stream in [
            None,
            Some(""),
            Some("1"),
            Some("0:0"),
            Some("a:b"),
            Some("1:2:3"),
        ] {
            assert!(!is_journal(stream), "{stream:?}");
        }
        let stat = nix::sys::stat::fstat(std::io::stderr()).unwrap();
        assert!(is_journal(Some(&format!(
            "{}:{}",
            stat.st_dev, stat.st_ino
        ))));
    }

    #[test]
    fn an_event_becomes_a_record_with_typed_fields() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::fmt::Error);

        struct Keep(Arc<Mutex<Vec<Record>>>);
        impl<S: Subscriber> Layer<S> for Keep {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                self.0.lock().unwrap().push(record(event));
            }
        }
        let kept = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Keep(Arc::clone(&kept)));
        tracing::subscriber::with_default(subscriber, || {
            let outer = Outer(std::fmt::Error);
            let error: &(dyn std::error::Error + 'static) = &outer;
            tracing::warn!(n = 3, below = -1, part = 0.5, r#type = "t", shown = %"x y", ok = true, error, "child {}", "died");
        });
        let record = kept.lock().unwrap().pop().expect("one event");
        assert_eq!(
            (record.level, record.message.as_str()),
            (Level::Warn, "child died")
        );
        let fields: Vec<_> = record
            .fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            fields,
            [
                "n=3",
                "below=-1",
                "part=0.5",
                "type=\"t\"",
                "shown=\"x y\"",
                "ok=true",
                "error=\"outer: an error occurred when formatting an argument\""
            ]
        );
    }

    #[test]
    fn every_level_is_a_filter() {
        for level in [
            Level::Off,
            Level::Error,
            Level::Warn,
            Level::Info,
            Level::Debug,
            Level::Trace,
        ] {
            assert!(EnvFilter::try_new(level.directives()).is_ok(), "{level:?}");
        }
    }

    /// Runs one of the tests below in a process of its own, which recognises its task by a variable.
    fn again(test: &str, vars: &[(&str, &str)]) -> std::process::Child {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                &format!("telemetry::tests::{test}"),
                "--nocapture",
            ])
            .env_remove("RUST_LOG")
            .env_remove("JOURNAL_STREAM")
            .env(CHILD, "1")
            .envs(vars.iter().copied())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    }

    const CHILD: &str = "DUCTWORK_TEST_TELEMETRY_CHILD";

    fn label() -> ProcessLabel {
        ProcessLabel {
            role: "worker",
            pipeline: Some("P".into()),
        }
    }

    #[test]
    fn a_process_whose_log_nobody_reads_goes_on_and_ends() {
        if std::env::var_os(CHILD).is_some() {
            let _guard = init(Level::Info, LogFormat::Json, label());
            for number in 0..50_000 {
                tracing::info!(number, "nobody reads this");
            }
            return;
        }
        let mut child = again("a_process_whose_log_nobody_reads_goes_on_and_ends", &[]);
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if std::time::Instant::now() > deadline {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the child is blocked by its log");
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }

    #[test]
    fn the_last_lines_of_a_process_are_written_and_rust_log_wins() {
        if std::env::var_os(CHILD).is_some() {
            let _guard = init(Level::Error, LogFormat::Auto, label());
            tracing::info!(target: "ductwork", attempt = 2, "last words");
            tracing::debug!("too little");
            return;
        }
        for (rust_log, expected) in [("info", 1), ("", 0), ("error", 0)] {
            let test = "the_last_lines_of_a_process_are_written_and_rust_log_wins";
            let child = again(test, &[("RUST_LOG", rust_log)]);
            let pid = child.id();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            let text = String::from_utf8(output.stderr).unwrap();
            let lines: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(lines.len(), expected, "{text}");
            for line in lines {
                assert_eq!(line["msg"], "last words");
                assert_eq!(line["level"], "info");
                assert_eq!(line["pid"], pid);
                assert_eq!(line["pipeline"], "P");
                assert_eq!(line["attempt"], 2);
                let time = line["ts"].as_str().unwrap();
                assert!(time.ends_with('Z') && time.len() == 24, "{time}");
            }
        }
    }
}
