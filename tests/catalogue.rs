//! The catalogue of `docs/durability.md` is complete, and the tests that it names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The last row of each letter.
const ROWS: [(char, u32); 8] = [
    ('C', 15),
    ('E', 28),
    ('A', 21),
    ('H', 29),
    ('S', 32),
    ('D', 35),
    ('T', 24),
    ('V', 7),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of the catalogue's tables: the name, and the other cells.
fn rows(document: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, cells @ ..] = cells.as_slice() else {
            continue;
        };
        let number = name.strip_prefix(|letter| ROWS.iter().any(|(known, _)| letter == *known));
        if cells.len() == 3 && number.is_some_and(|number| number.parse::<u32>().is_ok()) {
            let cells = cells.iter().map(|cell| (*cell).to_owned()).collect();
            assert!(
                rows.insert((*name).to_owned(), cells).is_none(),
                "{name} is there twice"
            );
        }
    }
    rows
}

/// The names of all functions in the sources and the tests, and of modules that contain a test for each
/// database.
fn functions(directory: &Path, to: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory of the project") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            functions(&path, to);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            for (word, end) in [("fn ", '('), ("mod ", ' ')] {
                let names = text.split(word).skip(1);
                to.extend(
                    names
                        .filter_map(|after| after.split(end).next())
                        .map(str::to_owned),
                );
            }
        }
    }
}

#[test]
fn every_row_of_the_catalogue_has_a_test_or_says_why_not() {
    let document = fs::read_to_string(root().join("docs/durability.md")).expect("the document");
    let rows = rows(&document);
    let mut known = BTreeSet::new();
    functions(&root().join("src"), &mut known);
    functions(&root().join("tests"), &mut known);
    let mut found = Vec::new();
    for (letter, last) in ROWS {
        for number in 1..=last {
            let name = format!("{letter}{number}");
            let Some([what, stops, tests]) = rows.get(&name).map(Vec::as_slice) else {
                found.push(format!("{name} is missing"));
                continue;
            };
            if what.is_empty() || stops.is_empty() {
                found.push(format!("{name}: say what goes wrong, and what stops it"));
            }
            let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
            for test in &named {
                if !known.contains(*test) {
                    found.push(format!("{name}: there is no test {test}"));
                }
            }
            let excused = stops.starts_with("cannot: ") || tests.starts_with("open: ");
            if named.is_empty() && !excused {
                found.push(format!(
                    "{name}: name a test, or say why it cannot be or what is open"
                ));
            }
        }
    }
    let all: u32 = ROWS.iter().map(|(_, last)| last).sum();
    assert_eq!(rows.len(), all as usize, "rows beyond the catalogue");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
