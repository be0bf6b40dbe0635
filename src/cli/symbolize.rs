//! `symbolize`: names the functions in a dump that SIGTTIN requested.

use std::fmt::Write;
use std::io::{BufRead, IsTerminal, Read};

use serde_json::json;

use crate::problem::Problem;
use crate::process::dump::symbols::{Frames, Function, Symbols, frames};

use super::exit::Failure;
use super::out::{self, paint};
use super::setup::CliContext;

/// The greatest length of a log line.
const LINE_MAX: u64 = 1 << 20;

/// Names the functions in a dump.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "Examples:
  kill -TTIN PID   # the supervisor's: each process logs its threads
  journalctl -u ductworkd --since -1min | ductworkd symbolize
  ductworkd symbolize 0x1f40 0x2a18

A dump has addresses: naming them inside a daemon would cost it a hundred megabytes. This verb names them in a \
process that ends, which must be the same build: both have a build id. Lines without frames are skipped.
")]
pub struct Symbolize {
    /// Addresses, or lines of a log; without them, lines are read from standard input
    #[arg(value_name = "FRAMES")]
    frames: Vec<String>,
}

impl Symbolize {
    pub fn execute(self, cli: &CliContext) -> Result<(), Failure> {
        let symbols = Symbols::of_self();
        let mut known = Known {
            symbols,
            foreign: None,
            shown: 0,
        };
        if self.frames.is_empty() {
            if std::io::stdin().is_terminal() {
                return Err(Failure::usage(
                    Problem::new("there is nothing to name")
                        .help("give it addresses, or lines of a log on standard input"),
                ));
            }
            known.read(cli, &mut std::io::stdin().lock())?;
        } else {
            for argument in &self.frames {
                known.show(cli, argument)?;
            }
        }
        known.end()
    }
}

/// The names that this program knows, and the number of frames that it has named.
struct Known {
    symbols: Symbols,
    /// The build id of another build, whose addresses were not named.
    foreign: Option<String>,
    shown: usize,
}

impl Known {
    fn read(&mut self, cli: &CliContext, from: &mut impl BufRead) -> Result<(), Failure> {
        let mut line = Vec::new();
        loop {
            line.clear();
            match from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) => return Ok(()),
                Ok(_) => self.show(cli, &String::from_utf8_lossy(&line))?,
                Err(error) => {
                    let problem = Problem::new(format!("standard input cannot be read: {error}"));
                    return Err(Failure::failed(problem));
                }
            }
        }
    }

    fn show(&mut self, cli: &CliContext, line: &str) -> Result<(), Failure> {
        let Some(found) = frames(line) else {
            return Ok(());
        };
        // A name from another build would be wrong.
        let build = found.build_id.as_deref();
        if let Some(build) = build.filter(|build| *build != self.symbols.build_id()) {
            self.foreign.get_or_insert_with(|| build.to_owned());
            return Ok(());
        }
        self.shown += 1;
        let named: Vec<(String, Vec<Function>)> = found
            .places
            .iter()
            .map(|place| (place.clone(), self.symbols.of(place)))
            .collect();
        match cli.out.json {
            true => cli.out.raw(&format!("{}\n", as_json(&found, &named))),
            false => cli.out.text(&text(&found, &named)),
        }
    }

    fn end(self) -> Result<(), Failure> {
        let own = match self.symbols.build_id() {
            "" => "one without a build id".to_owned(),
            id => id.to_owned(),
        };
        match (self.foreign, self.shown) {
            (Some(build), _) => Err(Failure::failed(
                Problem::new(format!(
                    "some frames are of build {}; this program is build {own}",
                    out::clean(&build)
                ))
                .help(
                    "name them with the program that logged them: the same file, or the same image",
                ),
            )),
            (None, 0) => Err(Failure::failed(
                Problem::new("no line has frames of a dump")
                    .help("SIGTTIN makes a daemon log them; they are addresses such as 0x1f40"),
            )),
            (None, _) => Ok(()),
        }
    }
}

fn as_json(found: &Frames, named: &[(String, Vec<Function>)]) -> String {
    let functions = |functions: &[Function]| {
        let functions = functions.iter();
        let each = |it: &Function| json!({ "name": it.name, "source": it.source });
        functions.map(each).collect::<Vec<_>>()
    };
    let frames = named.iter();
    let frames = frames.map(|(at, named)| json!({ "at": at, "functions": functions(named) }));
    let frames: Vec<_> = frames.collect();
    json!({ "process": found.of, "thread": found.thread, "frames": frames }).to_string()
}

fn text(found: &Frames, named: &[(String, Vec<Function>)]) -> String {
    let mut text = String::new();
    if let Some(thread) = &found.thread {
        let of = found.of.as_deref().map(|of| format!(" of {of}"));
        let thread = out::clean(&format!("thread {thread}{}", of.unwrap_or_default()));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", paint(out::BOLD, &thread));
    }
    let mut number = 0;
    // A function that calls itself is shown once.
    for alike in named.chunk_by(|one, other| one == other) {
        let (place, functions) = &alike[0];
        let times = match alike.len() {
            1 => String::new(),
            times => format!("  ({times} times)"),
        };
        let _ = write!(text, "{number:4} {:<12} ", out::clean(place));
        if functions.is_empty() {
            let _ = write!(text, "?{times}");
        }
        for (nth, function) in functions.iter().enumerate() {
            // This function was inlined into the next one.
            if nth > 0 {
                let _ = write!(text, "\n{:18}", "");
            }
            let source = function.source.as_deref().unwrap_or_default();
            let _ = write!(text, "{}  {}", function.name, paint(out::DIM, source));
            text.push_str(if nth == 0 { &times } else { "" });
        }
        text.push('\n');
        number += alike.len();
    }
    text
}
