//! The stderr of a command step: its log.
//!
//! Owns: cutting it into lines, logging them with the execution's fields, no more of them than a log
//! can bear, and keeping the end. Never: interprets the lines.

use std::time::{Duration, Instant};

use anstream::adapter::strip_str;

use super::Assignment;
use super::mask::Mask;
use super::tail::Tail;

/// Longer lines are logged in pieces: one event must not carry a megabyte.
const LINE_MAX: usize = 8 * 1024;

/// In each window, this many lines of one execution are logged. The numbers are those with which
/// journald protects itself: a step in an endless loop writes ten megabytes a second.
const LINES_MAX: u32 = 10_000;

/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(30);

/// A longer line counts as several.
const LINE_USUAL: usize = 1024;

/// One execution's log.
#[derive(Debug)]
pub struct Log<'a> {
    assignment: &'a Assignment,
    rate: Rate,
    line: Vec<u8>,
    tail: Tail,
    mask: Option<Mask>,
}

impl<'a> Log<'a> {
    /// A log that keeps the last `tail_max` bytes.
    pub fn new(assignment: &'a Assignment, tail_max: usize) -> Self {
        Self {
            assignment,
            rate: Rate::since(Instant::now()),
            line: Vec::new(),
            tail: Tail::new(tail_max),
            mask: None,
        }
    }

    /// The same log, without these secrets.
    pub fn covered_by(mut self, mask: Option<Mask>) -> Self {
        self.mask = mask;
        self
    }

    /// The mask that covers the secrets that are not to be in it.
    pub fn mask(&self) -> Option<&Mask> {
        self.mask.as_ref()
    }

    /// Takes the bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.mask.as_mut().map(|mask| mask.cover(bytes)) {
            Some(covered) => self.take(&covered),
            None => self.take(bytes),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.tail.keep(bytes);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut piece = piece;
            while !piece.is_empty() {
                let room = LINE_MAX - self.line.len();
                let (now, later) = piece.split_at(room.min(piece.len()));
                self.line.extend_from_slice(now);
                piece = later;
                if self.line.ends_with(b"\n") {
                    self.flush();
                } else if self.line.len() == LINE_MAX {
                    let rest = half_a_character(&self.line);
                    let rest = self.line.split_off(self.line.len() - rest);
                    self.flush();
                    self.line = rest;
                }
            }
        }
    }

    /// Ends the log: logs the line that had no end, and how many lines were left out.
    pub fn finish(&mut self) {
        if let Some(held) = self.mask.as_mut().map(Mask::finish) {
            self.take(&held);
        }
        self.flush();
        let left_out = self.rate.left_out;
        self.report_left_out(left_out);
    }

    fn report_left_out(&self, lines: u64) {
        if lines > 0 {
            self.warn(Some(lines), "these lines are not in it");
        }
    }

    fn warn(&self, lines: Option<u64>, follows: &str) {
        tracing::warn!(
            target: "step",
            stream = "stderr",
            run_id = %self.assignment.run_id,
            execution_id = %self.assignment.execution_id,
            step = %self.assignment.step,
            attempt = self.assignment.attempt,
            lines,
            "the step wrote more than the log takes in {} s: {follows}",
            WINDOW.as_secs()
        );
    }

    /// Logs the current line.
    fn flush(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let line = match &self.mask {
            Some(mask) if line.contains('\x1b') => mask.text(&line).into(),
            _ => line,
        };
        let line = line.trim_end_matches(['\n', '\r']);
        let (logged, left_out) = match line.is_empty() {
            true => (false, 0),
            false => self.rate.allows(logged_length(line), Instant::now()),
        };
        self.report_left_out(left_out);
        if !logged && !line.is_empty() && self.rate.left_out == 1 {
            self.warn(None, "the lines that follow are counted, and not logged");
        }
        if logged {
            tracing::info!(
                target: "step",
                stream = "stderr",
                run_id = %self.assignment.run_id,
                execution_id = %self.assignment.execution_id,
                step = %self.assignment.step,
                attempt = self.assignment.attempt,
                "{line}"
            );
        }
        self.line.clear();
    }

    /// The end of the log; `None` when nothing was written.
    pub fn tail(&mut self) -> Option<String> {
        self.tail.whole()
    }

    /// At most `max` bytes of the end of the log.
    pub fn last(&self, max: usize) -> Option<String> {
        self.tail.last(max)
    }
}

/// The amount that is logged in each window.
#[derive(Debug)]
struct Rate {
    since: Instant,
    spent: u32,
    /// Lines of this window that were not logged.
    left_out: u64,
}

impl Rate {
    fn since(since: Instant) -> Self {
        Self {
            since,
            spent: 0,
            left_out: 0,
        }
    }

    /// Whether a line of this many bytes is logged, and how many lines the last window left out.
    fn allows(&mut self, length: usize, now: Instant) -> (bool, u64) {
        let mut left_out = 0;
        if now.duration_since(self.since) >= WINDOW {
            left_out = self.left_out;
            *self = Self::since(now);
        }
        let allowed = self.spent < LINES_MAX;
        if allowed {
            // A line has 8 KiB at most, before control characters are escaped.
            self.spent += 1 + (length / LINE_USUAL) as u32;
        } else {
            self.left_out += 1;
        }
        (allowed, left_out)
    }
}

/// How many bytes of the log a line takes, at most: most control characters take six.
fn logged_length(line: &str) -> usize {
    let length = |letter: char| match letter {
        '\t' | '\r' => 2,
        _ if letter.is_control() => 6,
        _ => letter.len_utf8(),
    };
    line.chars().map(length).sum()
}

/// How many bytes at the end begin a character that is not complete.
fn half_a_character(bytes: &[u8]) -> usize {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let after = bytes
        .iter()
        .rev()
        .take(3)
        .take_while(|byte| continues(byte))
        .count();
    let Some(first) = bytes.iter().rev().nth(after) else {
        return 0;
    };
    let length = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 0,
    };
    if after + 1 < length { after + 1 } else { 0 }
}

/// The advice of `env` about every interpreter that it does not find, the right one or not.
const OF_ENV: &str = ": use -[v]S to pass options in shebang lines";

/// The last line that says something, without its colours. Advice comes after the error of our own commands and of `env`,
/// whose line is meant.
pub fn last_line(log: &str) -> Option<String> {
    let lines = log.lines().rev().map(|line| strip_str(line).to_string());
    let mut lines = lines.filter(|line| !line.trim().is_empty());
    let last = lines.next()?;
    let error = match last.trim() {
        advice if advice.starts_with("= help: ") => {
            lines.find(|line| line.trim().starts_with("error: "))
        }
        advice if advice.ends_with(OF_ENV) => lines.next(),
        _ => None,
    };
    Some(error.unwrap_or(last).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::command::tests::assignment;
    use super::*;

    fn tail_of(max: usize, pieces: &[&[u8]]) -> Option<String> {
        let assignment = assignment("null");
        let mut log = Log::new(&assignment, max);
        for piece in pieces {
            log.push(piece);
        }
        log.tail()
    }

    #[test]
    fn the_tail_begins_with_a_whole_line_and_says_that_it_was_cut() {
        assert_eq!(tail_of(10, &[b"one\ntwo\n"]).as_deref(), Some("one\ntwo"));
        assert_eq!(
            tail_of(10, &[b"first\n", b"second\nthird\n"]).as_deref(),
            Some("…\nthird")
        );
        assert_eq!(tail_of(4, &[&[b'x'; 100]]).as_deref(), Some("…\nxxxx"));
        assert_eq!(tail_of(4, &[b" \n\n"]), None);
        assert_eq!(
            tail_of(64, &[b"a\0\xff"]).as_deref(),
            Some("a\u{fffd}\u{fffd}")
        );
    }

    #[test]
    fn less_than_the_tail_can_be_had_of_it() {
        let assignment = assignment("null");
        let mut log = Log::new(&assignment, 100);
        assert_eq!(log.last(4), None);
        log.push(b"one\ntwo\n");
        assert_eq!(log.last(100).as_deref(), Some("one\ntwo"));
        assert_eq!(log.last(6).as_deref(), Some("…\ntwo"));
        assert_eq!(log.tail().as_deref(), Some("one\ntwo"));
    }

    #[test]
    fn lines_are_logged_with_the_execution_and_long_ones_in_pieces() {
        let assignment = assignment("null");
        let (logged, writer) = std::io::pipe().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(std::sync::Mutex::new(writer))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut log = Log::new(&assignment, 100);
            log.push(b"one\r\n\ntw");
            log.push(b"o\n");
            log.push(format!("x{}", "é".repeat(LINE_MAX / 2 + 2)).as_bytes());
            log.flush();
        });
        let events: Vec<serde_json::Value> = std::io::read_to_string(logged)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let messages: Vec<&str> = events
            .iter()
            .map(|event| event["fields"]["message"].as_str().unwrap())
            .collect();
        assert_eq!(messages[..2], ["one", "two"]);
        assert_eq!(messages[2..].concat()[1..], "é".repeat(LINE_MAX / 2 + 2));
        assert!(messages.iter().all(|message| message.len() <= LINE_MAX));
        for event in &events {
            let fields = &event["fields"];
            assert_eq!(
                (&event["target"], &event["level"]),
                (&"step".into(), &"INFO".into())
            );
            assert_eq!(fields["run_id"], assignment.run_id.to_string());
            assert_eq!(fields["execution_id"], assignment.execution_id.to_string());
            assert_eq!(
                (&fields["step"], &fields["attempt"]),
                (&"Step".into(), &3.into())
            );
            assert_eq!(fields["stream"], "stderr");
        }
    }

    #[test]
    fn an_endless_log_is_logged_at_a_rate_and_what_is_left_out_is_counted() {
        let began = Instant::now();
        let mut rate = Rate::since(began);
        let lines = u64::from(LINES_MAX);
        for _ in 0..lines {
            assert_eq!(rate.allows(10, began), (true, 0));
        }
        for _ in 0..7 {
            assert_eq!(rate.allows(10, began + WINDOW / 2), (false, 0));
        }
        assert_eq!(rate.allows(10, began + WINDOW), (true, 7));
        assert_eq!(rate.allows(10, began + WINDOW), (true, 0));

        // Zeros are escaped.
        assert_eq!(logged_length("é\t\0\u{7f}"), 16);
        // Fewer long lines are allowed.
        let mut rate = Rate::since(began);
        let long = (0..lines).filter(|_| rate.allows(LINE_MAX, began).0);
        assert_eq!(long.count() as u32, LINES_MAX.div_ceil(9));

        let assignment = assignment("null");
        let (logged, writer) = std::io::pipe().unwrap();
        let reader = std::thread::spawn(move || std::io::read_to_string(logged).unwrap());
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(std::sync::Mutex::new(writer))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut log = Log::new(&assignment, 100);
            log.push("x\n".repeat(LINES_MAX as usize + 1).as_bytes());
            log.push("\n".repeat(100).as_bytes());
            log.push(b"x\nx\n\n");
            log.finish();
        });
        let events = reader.join().unwrap();
        assert_eq!(events.lines().count(), LINES_MAX as usize + 2);
        let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["level"], &last["fields"]["lines"]),
            (&"WARN".into(), &3.into())
        );
    }

    #[test]
    fn the_memory_of_an_endless_log_is_bounded() {
        let assignment = assignment("null");
        let mut log = Log::new(&assignment, 1000);
        for _ in 0..10_000 {
            log.push(b"0123456789");
        }
        assert!(log.tail.bytes.capacity() <= 8_000 && log.line.capacity() <= 2 * LINE_MAX);
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        let last = |log| last_line(log).unwrap_or_default();
        assert_eq!(last("a\nb\n \n\n"), "b");
        assert_eq!(last_line(" \n"), None);
        let ours = "error: this is wrong\n  --> <argument>:1:1\n  = help: do that\n";
        assert_eq!(last(ours), "error: this is wrong");
        assert_eq!(last("= help: me"), "= help: me");
        let of_env = "env: 'python3\\r': No such file or directory\nenv: use -[v]S to pass options in shebang lines\n";
        assert_eq!(last(of_env), "env: 'python3\\r': No such file or directory");
        // Tools that colour their output reset the colour on a line of its own.
        let coloured = "a\n\x1b[1;31merror\x1b[0m: no such user\n\x1b[0m\n\x1b[?25h";
        assert_eq!(last(coloured), "error: no such user");
        assert_eq!(last_line("\x1b[0m\n"), None);
    }
}
