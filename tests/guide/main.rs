//! The guide and the README keep their promises: their links lead somewhere, their files are
//! accepted, their commands print the text that is shown, and their lists are those of the program.
//!
//! `DUCTWORK_BLESS=1` writes the generated pages and the outputs of blocks anew.

mod book;
mod compare;
mod pages;
mod play;
mod screen;

use std::collections::{BTreeMap, BTreeSet};

use book::{Chapter, chapters, read, root, source, summary};
use ductwork::model::HaltReason;

/// Fails with all findings.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_summary_names_every_chapter_once() {
    let files = std::fs::read_dir(source()).expect("the guide");
    let names = files.map(|file| file.expect("a file").file_name());
    let mut there: Vec<String> = names
        .map(|name| name.into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    let mut told = summary();
    there.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, there);
    assert!(told.len() >= 10, "{told:?}");
    // The title in the list is the title of the page.
    let list = read(&source().join("SUMMARY.md"));
    for chapter in chapters().iter().skip(1) {
        let title = chapter.text.lines().next().unwrap_or_default();
        let title = title
            .strip_prefix("# ")
            .expect("a page begins with its title");
        let name = chapter.path.rsplit('/').next().unwrap_or_default();
        assert!(
            list.contains(&format!("[{title}]({name})")),
            "{title}: {name}"
        );
    }
}

/// A book contains nothing but its chapters. `tests/tidy.rs` checks that each link leads somewhere.
#[test]
fn no_link_of_the_guide_leaves_it() {
    let mut found = Vec::new();
    for chapter in chapters().iter().skip(1) {
        for (at, line) in chapter.text.lines().enumerate() {
            for part in line.split("](").skip(1) {
                let link = part.split(')').next().unwrap_or_default();
                if link.contains('/') && !link.contains("://") {
                    found.push(format!("{}:{}: {link}", chapter.path, at + 1));
                }
            }
        }
    }
    none(found);
}

const LANGUAGES: [&str; 11] = [
    "console",
    "dockerfile",
    "ini",
    "json",
    "python",
    "rust",
    "sh",
    "sql",
    "text",
    "toml",
    "yaml",
];

#[test]
fn every_block_says_what_it_is() {
    let mut found = Vec::new();
    for chapter in chapters() {
        for block in chapter.blocks() {
            let place = chapter.place(&block);
            if !LANGUAGES.contains(&block.language.as_str()) {
                found.push(format!(
                    "{place}: `{}` is not a language of ours",
                    block.language
                ));
            }
            let marks = ["not run", "wrong on purpose"];
            if let Some(mark) = block.mark.as_deref().filter(|mark| !marks.contains(mark)) {
                found.push(format!("{place}: nobody reads the mark `{mark}`"));
            }
            if block.language == "python" && block.file().is_none() {
                found.push(format!(
                    "{place}: begin with the file's name: `# steps/a.py`"
                ));
            }
            let is_command = |line: &String| line.starts_with("$ ");
            if block.language == "text" && block.lines.iter().any(is_command) {
                found.push(format!("{place}: commands belong in a `console` block"));
            }
        }
    }
    none(found);
}

/// The words of each call of `ductworkd` in a line.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    let mut call: Option<Vec<String>> = None;
    let mut is_command = true;
    let line = line.replace("$(", " ; ").replace(')', " ; ");
    for word in line.split_whitespace() {
        let word = word.trim_matches(['`', '\'', '"']);
        let ends = ["|", "&&", "||", ";", "#", "&", ">", "2>", "<"].contains(&word);
        if ends {
            calls.extend(call.take());
        } else if word == "ductworkd" && is_command {
            call = Some(Vec::new());
        } else if let Some(call) = &mut call {
            call.push(word.to_owned());
        }
        // A command may follow variables, and xargs with its options.
        is_command = ends || word.contains('=') || ["xargs", "-rn1"].contains(&word);
    }
    calls.extend(call);
    calls
}

/// Says if the program does not know the verb or an option of a call.
fn unknown(
    call: &[String],
    helps: &mut BTreeMap<String, String>,
    verbs: &[String],
) -> Option<String> {
    let whole = helps.get("").cloned().unwrap_or_default();
    let mut words = call.iter().peekable();
    let mut verb = String::new();
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        if word.starts_with('-') && word.len() > 1 {
            options.push(word.split('=').next().unwrap_or(word).to_owned());
            // The value of a global option is not the verb.
            if ["-c", "-e", "--config", "--env", "--color"].contains(&word.as_str()) {
                words.next();
            }
        } else if verb.is_empty() {
            verb.clone_from(word);
        }
    }
    if !verb.is_empty() && !verbs.contains(&verb) {
        return Some(format!("there is no verb `{verb}`"));
    }
    let names = match verb.as_str() {
        "" => vec![],
        "context" => vec!["context", "set"],
        "token" => vec!["token", "create"],
        verb => vec![verb],
    };
    let own = helps.entry(verb.clone()).or_insert_with(|| {
        let asked: Vec<&str> = names.iter().copied().chain(["--help"]).collect();
        pages::help(&asked)
    });
    let knows = |option: &String| {
        [own.as_str(), whole.as_str()].iter().any(|help| {
            help.split([' ', ',', '\n', '[', ']', '='])
                .any(|word| word == option)
        })
    };
    let wrong = options.iter().find(|option| !knows(option))?;
    Some(format!("`ductworkd {verb}` has no option `{wrong}`"))
}

#[test]
fn every_call_has_a_verb_and_options_that_the_program_knows() {
    let whole = pages::help(&["--help"]);
    let verbs = pages::verbs(&whole);
    let mut helps = BTreeMap::from([(String::new(), whole)]);
    let mut found = Vec::new();
    let mut seen = 0;
    let is_written = |chapter: &&Chapter| !chapter.path.ends_with("/command-line.md");
    for chapter in chapters().iter().filter(is_written) {
        let mut language: Option<String> = None;
        for (at, line) in chapter.text.lines().enumerate() {
            if let Some(fence) = line.strip_prefix("```") {
                language = match language {
                    None => Some(fence.to_owned()),
                    Some(_) => None,
                };
                continue;
            }
            // Within a sentence, a call is marked as code.
            let parts: Vec<&str> = match language.as_deref() {
                Some("console") => line.strip_prefix("$ ").into_iter().collect(),
                Some("sh") => vec![line],
                Some(_) => vec![],
                None => line.split('`').skip(1).step_by(2).collect(),
            };
            for call in parts.into_iter().flat_map(calls) {
                seen += 1;
                if let Some(wrong) = unknown(&call, &mut helps, &verbs) {
                    found.push(format!("{}:{}: {wrong}", chapter.path, at + 1));
                }
            }
        }
    }
    none(found);
    assert!(seen > 60, "only {seen} calls were found");
}

/// Without this option, `xargs` calls its command once for an empty list, and so would trigger a run.
#[test]
fn no_call_of_xargs_runs_a_command_for_an_empty_list() {
    let mut found = Vec::new();
    let mut seen = 0;
    for chapter in chapters() {
        for (at, line) in chapter.text.lines().enumerate() {
            if let Some((_, call)) = line.split_once("xargs -") {
                seen += 1;
                if !call.starts_with('r') {
                    found.push(format!("{}:{}: xargs without -r", chapter.path, at + 1));
                }
            }
        }
    }
    none(found);
    assert!(seen >= 3, "only {seen} calls of xargs were found");
}

#[test]
fn the_generated_pages_say_what_the_program_says() {
    for (name, page) in [
        ("command-line.md", pages::command_line()),
        ("metrics.md", pages::metrics()),
        ("configuration-keys.md", pages::configuration_keys()),
    ] {
        let path = source().join(name);
        if std::env::var_os("DUCTWORK_BLESS").is_some() {
            std::fs::write(&path, &page).expect("the page can be written");
        }
        let drifted = format!(
            "{} has drifted from the program: run with DUCTWORK_BLESS=1",
            path.display()
        );
        assert!(read(&path) == page, "{drifted}");
    }
}

/// The first cells of the tables under a heading, without their quotes.
fn told(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading `{heading}`"));
    let rest = rest.split("\n## ").next().unwrap_or(rest);
    let cells = rest.lines().filter_map(|line| line.strip_prefix("| `"));
    let word = |cell: &str| cell.split('`').next().unwrap_or(cell).to_owned();
    cells.map(word).collect()
}

/// The error classes that the source gives an attempt: the first argument of a function that makes an error, as
/// a literal, as a constant of the file, or as the first of a case's pair.
fn classes() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![root().join("src/step"), root().join("src/engine")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("source") {
            let path = entry.expect("an entry").path();
            let is_test = path.to_string_lossy().contains("tests");
            if path.is_dir() {
                directories.push(path);
            } else if !is_test {
                let text = read(&path);
                let text = text
                    .split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap_or(&text);
                found.extend(classes_of(text));
            }
        }
    }
    assert!(found.len() > 10, "{found:?}");
    found
}

fn classes_of(text: &str) -> Vec<String> {
    let literal = |text: &str| {
        let word = text.strip_prefix('"')?.split('"').next()?;
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        (!word.is_empty() && word.bytes().all(is_letter)).then(|| word.to_owned())
    };
    let constant = |name: &str| {
        let value = text.split_once(&format!("const {name}: &str = "))?;
        literal(value.1)
    };
    let made = text.split("StepError::new(").skip(1).map(str::trim_start);
    let ended = text.split("::without_value(").skip(1);
    let ended = ended.filter_map(|rest| Some(rest.split_once(',')?.1.trim_start()));
    let named = made.chain(ended).filter_map(|rest| {
        let name = rest.split([',', ')']).next()?;
        literal(rest).or_else(|| constant(name))
    });
    let is_case = |line: &&str| line.starts_with('"') && line.ends_with("\",");
    let cases = text.lines().map(str::trim).filter(is_case);
    named.chain(cases.filter_map(literal)).collect()
}

#[test]
fn every_code_of_the_program_is_explained_and_no_other() {
    let page = read(&source().join("codes.md"));
    let reasons = HaltReason::ALL
        .iter()
        .map(|reason| reason.as_str().to_owned());
    assert_eq!(told(&page, "Halt reasons"), reasons.collect());
    // Some contain the status or the signal.
    let explained = told(&page, "Error classes of an attempt").into_iter();
    let explained = explained.filter(|class| !class.contains('('));
    assert_eq!(explained.collect::<BTreeSet<_>>(), classes());
}

#[test]
fn every_exit_status_is_explained_and_no_other() {
    let page = read(&source().join("codes.md"));
    let text = read(&root().join("src/cli/exit.rs"));
    let (_, codes) = text.split_once("pub enum Code {").expect("the list");
    let codes = codes.split('}').next().unwrap_or(codes);
    let codes = codes.lines().filter_map(|line| line.split_once(" = "));
    let codes = codes.map(|(_, code)| code.trim_end_matches(',').to_owned());
    let codes: BTreeSet<String> = codes.chain(["0".to_owned()]).collect();
    assert_eq!(told(&page, "Exit status"), codes);
}

/// A book has no links to the project's files, but it names them.
#[test]
fn every_file_of_the_project_that_is_named_is_there() {
    let directories = [
        "config/",
        "deploy/",
        "docs/",
        "examples/",
        "scripts/",
        "src/",
        "systemd/",
    ];
    let mut found = Vec::new();
    let mut seen = 0;
    for chapter in chapters() {
        for (at, line) in chapter.text.lines().enumerate() {
            for name in line.split('`').skip(1).step_by(2) {
                if directories
                    .iter()
                    .any(|directory| name.starts_with(directory))
                {
                    seen += 1;
                    if !root().join(name).exists() {
                        found.push(format!("{}:{}: there is no {name}", chapter.path, at + 1));
                    }
                }
            }
        }
    }
    none(found);
    assert!(seen > 5, "only {seen} names were found");
}

/// A test for each chapter, so that they run side by side.
macro_rules! played {
    ($($name:ident: $path:literal),* $(,)?) => {
        const PLAYED: &[&str] = &[$($path),*];

        $(#[test]
        fn $name() {
            let chapters = chapters();
            let chapter = chapters.iter().find(|chapter| chapter.path.ends_with($path));
            none(play::play(chapter.expect("SUMMARY.md names it")));
        })*
    };
}

played! {
    the_readme_prints_what_it_shows: "README.md",
    introduction_prints_what_it_shows: "/introduction.md",
    install_prints_what_it_shows: "/install.md",
    first_pipeline_prints_what_it_shows: "/first-pipeline.md",
    transitions_prints_what_it_shows: "/transitions.md",
    steps_prints_what_it_shows: "/steps.md",
    configuration_prints_what_it_shows: "/configuration.md",
    inputs_prints_what_it_shows: "/inputs.md",
    failures_prints_what_it_shows: "/failures.md",
    people_prints_what_it_shows: "/people.md",
    operating_prints_what_it_shows: "/operating.md",
    console_prints_what_it_shows: "/console.md",
    traces_prints_what_it_shows: "/traces.md",
    troubleshooting_prints_what_it_shows: "/troubleshooting.md",
}

/// Pages with nothing but tables; one whose commands need a port that this host may not have free: the test of
/// the API compares its table with the routes; one about a cluster, which `scripts/kubernetes` checks; one about
/// several servers, for which the daemon's tests promote one; and one about MySQL, which needs such a server.
const NOT_PLAYED: [&str; 10] = [
    "/api.md",
    "/failover.md",
    "/kubernetes.md",
    "/metrics.md",
    "/mysql.md",
    "/command-line.md",
    "/configuration-keys.md",
    "/codes.md",
    "/limits.md",
    "/comparison.md",
];

#[test]
fn every_chapter_with_something_to_try_is_tried() {
    let is_listed = |path: &str, list: &[&str]| list.iter().any(|name| path.ends_with(name));
    for Chapter { path, text } in chapters() {
        let tried = is_listed(&path, PLAYED);
        let exempt = is_listed(&path, &NOT_PLAYED);
        assert!(tried != exempt, "{path}: add it to one of the lists");
        let has_some = ["\n```console", "\n```yaml", "\n```python"];
        assert!(
            tried || !has_some.iter().any(|mark| text.contains(mark)),
            "{path}"
        );
    }
}
