//! Problems in a user's files: where, what, and what to do instead.
//!
//! Owns: the one form in which configuration and definitions are refused. Never: decides
//! what a problem is.

use std::fmt;
use std::path::PathBuf;

/// One thing wrong in a file that a person wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; `None` for a problem in the environment or in Rust code.
    pub file: Option<PathBuf>,
    /// One-based line and column (in characters); `None` if there is no text to point at.
    pub at: Option<Position>,
    /// Lowercase, no full stop, one line.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// One-based.
    pub line: usize,
    /// One-based, in characters.
    pub column: usize,
    /// The offending line, without its end; if it is long, the part around the column.
    pub source: String,
    /// How many characters to underline, at least one.
    pub width: usize,
}

/// The lines of a text, without their ends, as YAML counts them: a carriage return alone ends a line
/// too. There is always a last line, even if it is empty.
pub fn lines(text: &str) -> impl Iterator<Item = &str> + Clone {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find(['\n', '\r']) else {
            return rest.take();
        };
        let (line, after) = text.split_at(at);
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..));
        Some(line)
    })
}

impl Position {
    /// The most characters of a line that are shown: they fit beside its number into a terminal of 80 columns, which would
    /// break a longer line, and point at nothing.
    const SHOWN: usize = 72;
    /// How many of these come before a column that lies further to the right.
    const BEFORE: usize = 24;

    /// The column's place within `source`, one-based.
    fn caret(&self) -> usize {
        match self.column > Self::SHOWN {
            true => Self::BEFORE + 1,
            false => self.column,
        }
    }

    /// The place at `line`:`column` of `text`.
    pub fn of(text: &str, line: usize, column: usize, width: usize) -> Self {
        let source = lines(text).nth(line.saturating_sub(1)).unwrap_or_default();
        let (cut, skipped) = match column > Self::SHOWN {
            true => (Some('…'), column - Self::BEFORE),
            false => (None, 0),
        };
        let mut rest = source.chars().skip(skipped);
        let room = Self::SHOWN - usize::from(cut.is_some());
        let mut source: String = cut.into_iter().chain(rest.by_ref().take(room)).collect();
        if rest.next().is_some() {
            source.pop();
            source.push('…');
        }
        Self {
            line,
            column,
            source,
            width: width.max(1),
        }
    }
}

impl Problem {
    /// A problem without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            file: None,
            at: None,
            message: message.into(),
            help: None,
        }
    }

    /// The file, and the line in it, for a message of one line.
    pub fn place(&self) -> Option<String> {
        let file = self.file.as_ref()?.display();
        Some(match &self.at {
            Some(at) => format!("{file}:{}", at.line),
            None => file.to_string(),
        })
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "error: {}", plain(&self.message))?;
        let file = self
            .file
            .as_ref()
            .map(|file| plain(&file.display().to_string()));
        let help = self.help.as_deref().map(plain);
        match (&file, &self.at) {
            (file, Some(at)) => {
                let gutter = at.line.to_string().len();
                let file = file.as_deref().unwrap_or("<input>");
                write!(to, "\n{:gutter$}--> {file}:{}:{}", "", at.line, at.column)?;
                write!(to, "\n{:gutter$} |", "")?;
                // A terminal would obey a control character.
                let source = at.source.replace(char::is_control, " ");
                write!(to, "\n{} | {source}", at.line)?;
                let before = at.caret().saturating_sub(1);
                let room = at.source.chars().count().saturating_sub(before).max(1);
                let marks = "^".repeat(at.width.min(room));
                write!(to, "\n{:gutter$} | {:before$}{marks}", "", "")?;
                if let Some(help) = &help {
                    write!(to, "\n{:gutter$} = help: {help}", "")?;
                }
            }
            (Some(file), None) => {
                write!(to, "\n --> {file}")?;
                if let Some(help) = &help {
                    write!(to, "\n  = help: {help}")?;
                }
            }
            (None, None) => {
                if let Some(help) = &help {
                    write!(to, "\n  = help: {help}")?;
                }
            }
        }
        Ok(())
    }
}

/// All problems at once; never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nobody reads more at once; and the same mistake may be found in every line of a long file.
        const SHOWN: usize = 50;
        for (index, problem) in self.0.iter().take(SHOWN).enumerate() {
            if index > 0 {
                to.write_str("\n\n")?;
            }
            problem.fmt(to)?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(to, "\n\nerror: {more} more; mend these first"),
        }
    }
}

impl std::error::Error for Problems {}

/// The name among `known` that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .filter_map(|name| {
            let length = name.chars().count();
            let most = 1.max(length / 3);
            // A long list consists mostly of names that are too long or too short, which this check sees
            // quickly.
            if length.abs_diff(word.chars().count()) > most {
                return None;
            }
            let distance = strsim::osa_distance(word, name);
            (distance <= most).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The words of other systems, with our words for the same.
const SYNONYMS: [(&str, &str); 39] = [
    ("retries", "max_retry"),
    ("retry", "max_retry"),
    ("attempts", "max_retry"),
    ("max_attempts", "max_retry"),
    ("crashes", "max_crash"),
    ("worker_count", "count"),
    ("workers", "count"),
    ("concurrency", "count"),
    ("parallelism", "count"),
    ("threads", "count"),
    ("slots", "count"),
    ("poll_interval", "polling_timeout"),
    ("polling_interval", "polling_timeout"),
    ("drain_timeout", "shutdown_timeout"),
    ("stop_timeout", "shutdown_timeout"),
    ("grace_period", "shutdown_timeout"),
    ("run", "command"),
    ("cmd", "command"),
    ("exec", "command"),
    ("program", "command"),
    ("script", "command"),
    ("environment", "env"),
    ("variables", "env"),
    ("workdir", "cwd"),
    ("working_directory", "cwd"),
    ("time_limit", "timeout"),
    ("deadline", "timeout"),
    ("name", "pipeline"),
    ("parallel", "divide"),
    ("map", "expand"),
    ("foreach", "expand"),
    ("switch", "divert"),
    ("approve", "dampen"),
    ("wait", "dampen"),
    ("on_fail", "on_halt"),
    ("on_failure", "on_halt"),
    ("on_error", "on_halt"),
    ("on_success", "on_complete"),
    ("on_approval", "on_wait"),
];

/// The name among `known` that `word` was probably meant to be: one that is spelled almost the same, or
/// the one that other systems call so.
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let ours = SYNONYMS.iter().find(|(theirs, _)| *theirs == word);
    let ours = ours.and_then(|(_, ours)| known.clone().into_iter().find(|name| name == ours));
    ours.or_else(|| nearest(word, known))
}

/// `text` without characters that would move a terminal's cursor: names of files and of keys may contain
/// any character.
fn plain(text: &str) -> String {
    match text.contains(char::is_control) {
        true => text
            .chars()
            .flat_map(|char| match char.is_control() {
                true => char.escape_default().collect::<Vec<_>>(),
                false => vec![char],
            })
            .collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_system_is_ours_where_ours_is_known() {
        assert_eq!(meant("retries", ["max_retry", "count"]), Some("max_retry"));
        assert_eq!(meant("worker_count", ["count"]), Some("count"));
        assert_eq!(meant("max_retrie", ["max_retry"]), Some("max_retry"));
        assert_eq!(meant("retries", ["count"]), None);
        // Nearer to the spelling of another of our words.
        assert_eq!(meant("on_fail", ["on_wait", "on_halt"]), Some("on_halt"));
    }

    #[test]
    fn nothing_in_a_problem_moves_a_cursor() {
        let problem = Problem {
            file: Some("a\u{1b}[2J.yml".into()),
            ..Problem::new("no pipelines in /x\u{1b}]0;title\u{7}/y").help("a\rb")
        };
        let shown = problem.to_string();
        assert!(
            !shown.contains(|char: char| char.is_control() && char != '\n'),
            "{shown:?}"
        );
        assert!(shown.contains("/x\\u{1b}]0;title"), "{shown}");
    }

    #[test]
    fn a_line_ends_where_yaml_ends_it() {
        let of = |text| lines(text).collect::<Vec<_>>();
        assert_eq!(of("a\rb\r\nc\n\nd\r"), ["a", "b", "c", "", "d", ""]);
        assert_eq!(of(""), [""]);
        assert_eq!(Position::of("# é\rname: x", 2, 7, 1).source, "name: x");
    }

    #[test]
    fn a_mistake_far_to_the_right_is_shown_with_what_is_around_it() {
        let line = format!("{}wrong{}", " ".repeat(70_000), "x".repeat(9_000));
        let at = Position::of(&line, 1, 70_001, 5);
        let problem = Problem {
            at: Some(at),
            ..Problem::new("it is wrong")
        };
        let shown = problem.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let place = |line: &str, text: &str| line.find(text).map(|at| line[..at].chars().count());
        assert!(lines[1].ends_with(":1:70001"), "{shown}");
        assert_eq!(
            place(lines[3], "wrong"),
            place(lines[4], "^^^^^"),
            "{shown}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        // A line that is a little too long keeps its beginning.
        let line = format!("{}wrong{}", " ".repeat(50), "x".repeat(40));
        let shown = Position::of(&line, 1, 51, 5).source;
        assert_eq!(shown, format!("{}wrong{}…", " ".repeat(50), "x".repeat(16)));
    }

    #[test]
    fn of_many_problems_the_first_are_shown_and_the_others_counted() {
        let problems = Problems(vec![Problem::new("it is wrong"); 30_000]);
        let shown = problems.to_string();
        assert!(
            shown.ends_with("error: 29950 more; mend these first"),
            "{shown}"
        );
        assert_eq!(shown.matches("it is wrong").count(), 50);
    }
}
