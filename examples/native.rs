//! A program that is its own daemon: a pipeline and its steps in Rust.
//!
//! `cargo run --example native -- run Letters '"to be or not to be"'` runs it once, on SQLite;
//! `cargo run --example native` is the daemon; `-- --help` shows the rest.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use ductwork::{Moment, Path, Pipeline, Program, StepContext, StepError, StepSpec};

/// Splits a text into its words; the expand makes a branch of each.
async fn split(_: StepContext, text: String) -> Result<Vec<String>, StepError> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match words.len() {
        // Trying again would not help.
        0 => Err(StepError::new("empty", "there are no words in the text").no_retry()),
        _ => Ok(words),
    }
}

/// Counts letters, on a thread of its own: this is work, not waiting.
fn count(_: StepContext, word: String) -> Result<BTreeMap<char, u32>, StepError> {
    let mut counts = BTreeMap::new();
    for letter in word.chars().filter(|letter| letter.is_alphabetic()) {
        *counts.entry(letter.to_ascii_lowercase()).or_insert(0) += 1;
    }
    Ok(counts)
}

async fn measure(_: StepContext, word: String) -> Result<usize, StepError> {
    Ok(word.chars().count())
}

/// The combine hands over the outputs in the order in which the paths are listed.
async fn pair(
    _: StepContext,
    (counts, length): (BTreeMap<char, u32>, usize),
) -> Result<(BTreeMap<char, u32>, usize), StepError> {
    Ok((counts, length))
}

#[derive(serde::Serialize)]
struct Report {
    words: usize,
    longest: usize,
    letters: BTreeMap<char, u32>,
}

/// The collapse hands over the outputs in the order of the words.
async fn report(
    step: StepContext,
    words: Vec<(BTreeMap<char, u32>, usize)>,
) -> Result<Report, StepError> {
    let mut letters = BTreeMap::new();
    for (letter, count) in words.iter().flat_map(|(counts, _)| counts) {
        *letters.entry(*letter).or_insert(0) += count;
    }
    // The run's own key/value store, shared by its steps; its key is kept with the run.
    let run = step.context();
    run.set("words", &words.len())
        .await
        .map_err(StepError::from)?;
    Ok(Report {
        words: words.len(),
        longest: words.iter().map(|(_, length)| *length).max().unwrap_or(0),
        letters,
    })
}

fn main() -> ExitCode {
    let letters = Pipeline::named("Letters")
        .step("Count", StepSpec::native().max_retry(5))
        .start("Split")
        .expand("Word")
        .divide([Path::to("Count"), Path::to("Measure")])
        .combine("Pair")
        .collapse("Report");
    Program::new()
        .pipeline(letters)
        .step("Split", split)
        .step("Word", async |_, word: String| Ok::<_, StepError>(word))
        .blocking_step("Count", count)
        .step("Measure", measure)
        .step("Pair", pair)
        .step("Report", report)
        // Once in each process that runs steps, before its first: the place for what they all need.
        .on(Moment::WorkerStart, || {
            writeln!(std::io::stderr(), "about to count letters")
        })
        .main()
}
