//! The checks of every file of the project, which would otherwise be done by hand. Each failure
//! names the place, and the replacement.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// This file has to name what it forbids.
const SELF: &str = "tests/tidy.rs";

/// The files with fork, exec and the thread dump, the functions that SQLite calls, and calls to a
/// static C library; no other file needs it.
const UNSAFE: [&str; 8] = [
    "src/exec.rs",
    "src/process/dump/capture.rs",
    "src/process/names.rs",
    "src/process/spawn/mod.rs",
    "src/step/spawn.rs",
    "src/explorer/local.rs",
    "src/store/backend/sqlite/fingerprint.rs",
    "src/store/backend/sqlite/rows_table.rs",
];

/// A text file of the project.
struct File {
    /// Relative to the project's root, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Statements of the product.
    fn is_sql(&self) -> bool {
        self.path.starts_with("src/") && self.path.ends_with(".sql")
    }

    fn is_source(&self) -> bool {
        self.is_rust() && self.path.starts_with("src/")
    }

    /// Source that is part of the product: neither a test file nor the tests within a file.
    fn is_product(&self) -> bool {
        let test = [
            "/tests/",
            "/tests.rs",
            "_tests.rs",
            "/testing.rs",
            "/properties.rs",
            "/explorer/",
        ];
        self.is_source() && !test.iter().any(|mark| self.path.contains(mark))
    }

    /// The product's code, line by line, with numbers: without comments, without the tests at its
    /// end and without their imports.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests {");
        let code = &self.text[..end.unwrap_or(self.text.len())];
        let mut before = "";
        let numbered = code.lines().enumerate().map(|(at, line)| (at + 1, line));
        numbered.filter(move |(_, line)| {
            let of_tests = std::mem::replace(&mut before, line.trim()) == "#[cfg(test)]";
            !of_tests && !line.trim_start().starts_with("//")
        })
    }

    /// The module of the crate that it belongs to: `store` of `src/store/claim.rs`.
    fn module(&self) -> &str {
        let inner = self.path.strip_prefix("src/").expect("a source file");
        let end = inner.find(['/', '.']).expect("a source file has an ending");
        &inner[..end]
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file that is not produced by a build.
fn files() -> Vec<File> {
    let mut files = Vec::new();
    let mut directories: Vec<PathBuf> = vec![root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the project") {
            let entry = entry.expect("an entry of it");
            let (path, name) = (entry.path(), entry.file_name());
            let others = [".git", "target", "Cargo.lock", "corpus", "artifacts"];
            if others.iter().any(|other| name == *other) {
                continue;
            }
            if entry.file_type().expect("its type").is_dir() {
                directories.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let inner = path.strip_prefix(root()).expect("it is within");
                let path = inner.to_str().expect("our names are plain").to_owned();
                files.push(File { path, text });
            }
        }
    }
    assert!(files.len() > 100, "only {} files", files.len());
    files
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with all findings.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// The words of a line: letters, digits and underscores.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|char: char| !char.is_alphanumeric() && char != '_')
        .filter(|word| !word.is_empty())
}

/// Each module of the map in `src/lib.rs`, with the number of its line in the list.
fn levels() -> BTreeMap<String, usize> {
    let map = read("src/lib.rs");
    let lines = map.lines().filter(|line| line.starts_with("// - [`"));
    let mut levels = BTreeMap::new();
    for (level, line) in lines.enumerate() {
        for part in line.split("[`").skip(1) {
            let name = part.split('`').next().expect("split yields one");
            // A name that is also a macro's is marked as a module's.
            let name = name.trim_start_matches("mod@");
            levels.insert(name.to_owned(), level);
        }
    }
    levels
}

#[test]
fn every_module_is_on_the_map() {
    let levels = levels();
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_source()) {
        let module = file.module();
        if !["lib", "main"].contains(&module) && !levels.contains_key(module) {
            found.push(format!(
                "{}: add `{module}` to the map in src/lib.rs",
                file.path
            ));
        }
    }
    none(found);
}

#[test]
fn a_module_uses_only_those_above_it_on_the_map() {
    let levels = levels();
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        let own = file.module();
        let Some(level) = levels.get(own) else {
            continue;
        };
        for (at, line) in file.code() {
            for part in line.split("crate::").skip(1) {
                let used = words(part).next().unwrap_or_default();
                let instead = match levels.get(used) {
                    _ if used == own => continue,
                    Some(below) if below < level => continue,
                    Some(_) => format!(
                        "`{own}` stands above or beside `{used}`: hand the value in from a module \
                         that may use both, or move what is shared further up the map of src/lib.rs"
                    ),
                    None => {
                        format!("name the module that `{used}` comes from, in a `use` of its own")
                    }
                };
                found.push(format!("{}:{at}: {instead}", file.path));
            }
        }
    }
    none(found);
}

#[test]
fn the_machine_has_no_effects() {
    let effects = [
        "sqlx",
        "rusqlite",
        "tokio",
        "nix",
        "libc",
        "Instant",
        "SystemTime",
        "Uuid",
        "async",
        "env",
    ];
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        if file.module() != "machine" {
            continue;
        }
        for (at, line) in file.code() {
            for word in words(line).filter(|word| effects.contains(word)) {
                found.push(format!(
                    "{}:{at}: `{word}` in a decision: put the fact into the view that is decided on, \
                     and the effect into the plan",
                    file.path
                ));
            }
        }
    }
    none(found);
}

#[test]
fn no_file_of_the_product_is_longer_than_a_reader_follows() {
    const LONGEST: usize = 900;
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        let last = file.code().last().map_or(0, |(at, _)| at);
        if last >= LONGEST {
            found.push(format!("{}: {last} lines without its tests", file.path));
        }
    }
    none(found);
}

#[test]
fn sql_is_in_the_store_alone() {
    let statements = [
        "SELECT ",
        "INSERT INTO ",
        "DELETE FROM ",
        "UPDATE ductwork_",
        "CREATE TABLE ",
        "DROP ",
        "ductwork_runs",
        "ductwork_executions",
        "ductwork_branches",
        "ductwork_steps",
    ];
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        if file.module() == "store" {
            continue;
        }
        for (at, line) in file.code() {
            if statements.iter().any(|statement| line.contains(statement)) {
                found.push(format!(
                    "{}:{at}: SQL outside of src/store: give it a name in `statements!` there, and a \
                     function that is called from here",
                    file.path
                ));
            }
        }
    }
    none(found);
}

#[test]
fn no_decision_reads_a_local_clock() {
    let clocks = [
        "SystemTime::now",
        "Timestamp::now",
        "Zoned::now",
        "Utc::now",
        "wall_clock()",
    ];
    let shown = ["telemetry", "cli"];
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        // The head of a thread dump is a log line.
        if shown.contains(&file.module()) || file.path.starts_with("src/process/dump/") {
            continue;
        }
        for (at, line) in file.code() {
            if clocks.iter().any(|clock| line.contains(clock)) {
                found.push(format!(
                    "{}:{at}: the database's clock decides: write {{now}} in the statement; a span \
                     of this process is measured with Instant",
                    file.path
                ));
            }
        }
    }
    none(found);
}

#[test]
fn unsafe_code_is_where_fork_and_the_thread_dump_are() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        let exempt = file.path == SELF || UNSAFE.contains(&file.path.as_str());
        let code = file.code().filter(|_| !exempt);
        for (at, _) in code.filter(|(_, line)| words(line).any(|word| word == "unsafe")) {
            found.push(format!(
                "{}:{at}: `unsafe`: let nix or process::spawn do it; the places that may are listed \
                 in {SELF}",
                file.path
            ));
        }
    }
    none(found);
}

/// `failpoint!` compiles to nothing in the program that users get.
#[cfg(not(feature = "failpoints"))]
#[test]
fn no_failpoint_is_left_in_what_is_built_without_them() {
    let source = read("src/failpoint.rs");
    let list = source.split("POINTS: &[&str] = &[").nth(1);
    let list = list
        .and_then(|rest| rest.split("];").next())
        .expect("the list");
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert!(names.len() > 40, "{names:?}");
    let holds = |words: &[&str]| {
        let mut grep = std::process::Command::new("grep");
        grep.args(["-a", "-q", "-F"]);
        grep.args(words.iter().flat_map(|word| ["-e", word]));
        let done = grep.arg(env!("CARGO_BIN_EXE_ductworkd")).status();
        match done.expect("grep").code() {
            Some(0) => true,
            Some(1) => false,
            code => panic!("grep: {code:?}"),
        }
    };
    assert!(holds(&["ductwork_executions"]), "not even that is in it");
    assert!(!holds(&["DUCTWORK_FAIL"]));
    assert!(!holds(&names));
}

#[test]
fn every_file_says_what_it_is() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        if !file.text.starts_with("//! ") {
            found.push(format!(
                "{}: open it with `//!`: what it owns, and what it never does",
                file.path
            ));
        }
    }
    none(found);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [
        (
            "#[allow(",
            "write #[expect(…, reason = \"…\")], which says when it is no longer needed",
        ),
        (
            "#![allow(",
            "write #![expect(…, reason = \"…\")], which says when it is no longer needed",
        ),
        ("#[ignore", "make the test quick and certain, or delete it"),
        ("#[should_panic", "assert on the value, or on what is said"),
        ("todo!(", "write it, or leave it out"),
        ("unimplemented!(", "write it, or leave it out"),
        ("dbg!(", "remove it"),
        ("FIXME", "fix it, or say in the comment what the limit is"),
        ("TODO", "do it, or say in the comment what the limit is"),
        ("XXX", "fix it, or say in the comment what the limit is"),
    ];
    let mut found = Vec::new();
    let named = |file: &File| file.path == SELF || file.path.ends_with(".md");
    for file in files().iter().filter(|file| !named(file)) {
        // Templates of mktemp end in X.
        for (at, line) in file
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.contains("XXXX"))
        {
            for (_, instead) in marks.iter().filter(|(mark, _)| line.contains(mark)) {
                found.push(format!("{}:{}: {instead}", file.path, at + 1));
            }
        }
    }
    none(found);
}

/// Words that the field has better ones for.
const PRIVATE: [(&str, &str); 8] = [
    ("bell", "wakeup"),
    ("bells", "wakeups"),
    ("kid", "child"),
    ("kids", "children"),
    ("house", "deployment, context or fixture"),
    ("farewell", "deregistration"),
    ("reincarnate", "replace the identity"),
    ("ringer", "waker"),
];

#[test]
fn the_words_are_those_of_the_field() {
    let mut found = Vec::new();
    let prose = |file: &&File| file.is_rust() || file.is_sql() || file.path.ends_with(".md");
    for file in files()
        .iter()
        .filter(prose)
        .filter(|file| file.path != SELF)
    {
        for (at, line) in file.text.lines().enumerate() {
            for word in words(line).flat_map(|word| word.split('_')) {
                let known = PRIVATE
                    .iter()
                    .find(|(old, _)| word.eq_ignore_ascii_case(old));
                if let Some((old, instead)) = known {
                    found.push(format!("{}:{}: `{old}`: say {instead}", file.path, at + 1));
                }
            }
        }
    }
    none(found);
}

/// A sentence that begins with one of these hides its actor or its object, which should be named.
const HIDING: [&str; 4] = ["What", "Who", "Whoever", "Whatever"];

/// The text of a line of prose: of a document, or of a comment.
fn prose<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    match file.is_rust() {
        true => Some(
            line.trim_start()
                .strip_prefix("//")?
                .trim_start_matches(['/', '!']),
        ),
        false => Some(line),
    }
}

#[test]
fn no_sentence_of_documents_and_comments_begins_with_what_or_who() {
    let is_read = |file: &&File| file.path.ends_with(".md") || file.is_rust();
    let mut found = Vec::new();
    for file in files().iter().filter(is_read) {
        let mut ended = true;
        for (at, line) in file.text.lines().enumerate() {
            let Some(line) = prose(file, line) else {
                ended = true;
                continue;
            };
            let begun = line.trim_start_matches(['#', '-', '*', '>', '|', ' ']);
            // A list's item, a heading, or the continuation of a sentence.
            let is_marked = line.trim_start().len() != begun.len();
            let begun = if is_marked || ended { begun } else { "" };
            let inner = line.split_inclusive(['.', '!', '?', ':', ';', '|']).skip(1);
            for sentence in std::iter::once(begun).chain(inner) {
                let mut words = sentence.trim_start_matches([' ', '*', '(']).split(' ');
                if words.next().is_some_and(|word| HIDING.contains(&word)) {
                    found.push(format!("{}:{}: {}", file.path, at + 1, sentence.trim()));
                }
            }
            ended = line.trim().is_empty() || line.ends_with(['.', '!', '?', ':', ';']);
        }
    }
    none(found);
}

/// A paragraph about a race counts only if a test forces that race.
#[test]
fn every_race_names_a_test_that_exists() {
    let files = files();
    let mut tests = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for part in file.text.split("fn ").skip(1) {
            tests.extend(words(part).next());
        }
        // `on_every_database!` turns a test's name into a module.
        for part in file.text.split("mod ").skip(1) {
            tests.extend(words(part).next());
        }
    }
    let mut found = Vec::new();
    let mut races = 0;
    let has_races = |file: &&File| file.is_product() || file.is_sql();
    for file in files.iter().filter(has_races) {
        let mark = if file.is_sql() { "--" } else { "//" };
        let mut comment = String::new();
        for (at, line) in file.text.lines().chain([""]).enumerate() {
            if let Some(said) = line.trim_start().strip_prefix(mark) {
                comment.push(' ');
                comment.push_str(said.trim_start_matches('/').trim());
                continue;
            }
            let race = comment.contains("RACE:");
            races += usize::from(race);
            let mut proofs = 0;
            // `Proven by` forces the decisive order; `Raced by` tries it many times.
            for part in comment
                .replace("Raced by ", "Proven by ")
                .replace("proven by ", "Proven by ")
                .split("Proven by ")
                .skip(1)
            {
                let name = words(part.trim_start_matches('`'))
                    .next()
                    .unwrap_or_default();
                proofs += 1;
                if !tests.contains(name) {
                    found.push(format!(
                        "{}:{at}: there is no test `{name}`: name the one that forces this race",
                        file.path
                    ));
                }
            }
            if race && proofs == 0 {
                found.push(format!(
                    "{}:{at}: end the paragraph with: Proven by `test`, or Raced by `test`",
                    file.path
                ));
            }
            comment.clear();
        }
    }
    assert!(races >= 5, "only {races} paragraphs begin with RACE:");
    none(found);
}

/// The names `I1`, … in a text.
fn invariants(text: &str) -> BTreeSet<&str> {
    let number = |word: &&str| {
        let digits = word.strip_prefix('I').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    words(text).filter(number).collect()
}

#[test]
fn every_invariant_is_told_and_shown_to_fire() {
    let audit = read("src/store/audit.rs");
    let list = audit.split("invariants! {\n").nth(1).expect("the list");
    let audited = invariants(list.split("\n}").next().expect("split yields one"));
    assert!(audited.len() > 25, "{audited:?}");
    let architecture = read("ARCHITECTURE.md");
    let rows = architecture.lines().filter(|line| line.starts_with("| I"));
    let rows: Vec<&str> = rows
        .map(|line| line.split('|').nth(1).unwrap_or(""))
        .collect();
    let rows = rows.join(" ");
    let told = invariants(&rows);
    let tests = read("src/store/audit_tests.rs");
    let corruptions = tests.lines().filter(|line| line.starts_with("    (\"I"));
    let corruptions: Vec<&str> = corruptions
        .map(|line| &line[..12.min(line.len())])
        .collect();
    let corruptions = corruptions.join(" ");
    let fires = invariants(&corruptions);
    let mut found = Vec::new();
    for name in &audited {
        if !told.contains(name) {
            found.push(format!(
                "{name}: add its row to the invariants in ARCHITECTURE.md"
            ));
        }
        if !fires.contains(name) {
            found.push(format!(
                "{name}: add a corruption that it finds to src/store/audit_tests.rs"
            ));
        }
    }
    // I8 is about budgets, which are in the configuration and not in the database.
    for name in told
        .iter()
        .filter(|name| !audited.contains(*name) && **name != "I8")
    {
        found.push(format!("{name}: add its statement to src/store/audit.rs"));
    }
    // Every invariant that comments, tests and the schema mention is on the list.
    for file in files()
        .iter()
        .filter(|file| file.is_rust() || file.path.ends_with(".sql"))
    {
        for name in invariants(&file.text) {
            if !told.contains(name) && name != "I29" && file.path != SELF {
                found.push(format!("{}: {name} is not in ARCHITECTURE.md", file.path));
            }
        }
    }
    none(found);
}

/// Adds the objects that a migration creates to those of the schema: tables with their columns, views and
/// indexes. The domains of PostgreSQL are checks on SQLite, which rebuilds a table to change one. A column can
/// be unique by itself or through an index, so neither is included.
fn migrate(made: &mut BTreeSet<String>, sql: &str) {
    let mut table = None;
    for line in sql.lines() {
        let first = words(line).next().unwrap_or_default();
        if let Some(name) = line.strip_prefix("CREATE TABLE ") {
            table = words(name).next();
        } else if let Some(name) = line.strip_prefix("DROP TABLE ") {
            let name = words(name).next().unwrap_or_default();
            made.retain(|object| object.split('.').next() != Some(name));
        } else if let Some((name, new)) = line
            .strip_prefix("ALTER TABLE ")
            .and_then(|renamed| renamed.split_once(" RENAME TO "))
        {
            let new = words(new).next().unwrap_or_default();
            let renamed = |object: String| match object.split_once('.') {
                Some((table, column)) if table == name => format!("{new}.{column}"),
                _ => object,
            };
            *made = std::mem::take(made).into_iter().map(renamed).collect();
        } else if let Some(name) = line.strip_prefix("DROP INDEX ") {
            made.remove(words(name).next().unwrap_or_default());
        } else if line.starts_with("CREATE UNIQUE INDEX ") || line.contains(" DROP CONSTRAINT ") {
        } else if let Some(altered) = line.strip_prefix("ALTER TABLE ") {
            let mut words = words(altered);
            let (table, column) = (words.next(), words.nth(2));
            made.extend(
                table
                    .zip(column)
                    .map(|(table, column)| format!("{table}.{column}")),
            );
        } else if line.starts_with("CREATE ") && !line.starts_with("CREATE DOMAIN ") {
            made.extend(
                words(line)
                    .find(|word| word.starts_with("ductwork_"))
                    .map(str::to_owned),
            );
        } else if line.starts_with(')') {
            table = None;
        } else if let Some(table) = table {
            let column = line.starts_with("    ") && !line.starts_with("     ");
            if column && first.chars().all(|char| char.is_lowercase() || char == '_') {
                made.insert(format!("{table}.{first}"));
            }
        }
    }
}

/// The names of the migrations of a database.
fn migrations(of: &str) -> BTreeSet<String> {
    let directory = fs::read_dir(root().join("migrations").join(of)).expect("migrations");
    let names = directory.map(|entry| entry.expect("a file").file_name());
    names
        .map(|name| name.to_str().expect("a plain name").to_owned())
        .collect()
}

/// MySQL has no partial index. Columns stand in for their conditions, and some indexes for two. In
/// an entry of a unique index either no value is null or all are.
const OTHERWISE_ON_MYSQL: [&str; 11] = [
    "ductwork_runs.ended_at",
    "ductwork_runs.keyed",
    "ductwork_branches.place",
    "ductwork_branches_places",
    "ductwork_executions.only_step",
    "ductwork_executions.holder",
    "ductwork_transitions.open_branch",
    "ductwork_advancements.open_branch",
    "ductwork_advancements.holder",
    "ductwork_runs_completed",
    "ductwork_branches_halted",
];

#[test]
fn mysql_has_the_schema_of_the_others() {
    let names = migrations("postgres");
    assert_eq!(
        names,
        migrations("mysql"),
        "each migration has a file of the same name"
    );
    let [mut postgres_has, mut mysql_has] = [BTreeSet::new(), BTreeSet::new()];
    for name in names {
        migrate(
            &mut postgres_has,
            &read(&format!("migrations/postgres/{name}")),
        );
        migrate(&mut mysql_has, &read(&format!("migrations/mysql/{name}")));
    }
    let differ: BTreeSet<&str> = postgres_has
        .symmetric_difference(&mysql_has)
        .map(String::as_str)
        .collect();
    assert_eq!(differ, BTreeSet::from(OTHERWISE_ON_MYSQL));
}

#[test]
fn both_databases_have_the_same_schema() {
    let (postgres, sqlite) = (migrations("postgres"), migrations("sqlite"));
    assert_eq!(
        postgres, sqlite,
        "each migration has a file of the same name for each database"
    );
    let mut found = String::new();
    let [mut postgres_has, mut sqlite_has] = [BTreeSet::new(), BTreeSet::new()];
    for name in postgres {
        for (of, has) in [("postgres", &mut postgres_has), ("sqlite", &mut sqlite_has)] {
            migrate(has, &read(&format!("migrations/{of}/{name}")));
        }
        let (postgres, sqlite) = (&postgres_has, &sqlite_has);
        assert!(postgres.len() > 50, "{name}: {postgres:?}");
        for only in postgres.symmetric_difference(sqlite) {
            let lacks = if postgres.contains(only) {
                "sqlite"
            } else {
                "postgres"
            };
            writeln!(
                found,
                "migrations/{lacks}/{name}: add {only}, as the other has it"
            )
            .expect("a string takes everything");
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn links_lead_somewhere() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.path.ends_with(".md")) {
        let directory = root().join(&file.path);
        let directory = directory.parent().expect("a file is in a directory");
        for (at, line) in file.text.lines().enumerate() {
            for part in line.split("](").skip(1) {
                let link = part.split(')').next().expect("split yields one");
                if link.contains("://") {
                    continue;
                }
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match path {
                    "" => root().join(&file.path),
                    path => directory.join(path),
                };
                let place = format!("{}:{}: {link}", file.path, at + 1);
                if !target.exists() {
                    found.push(format!(
                        "{place} leads nowhere: write the path from this file"
                    ));
                } else if !anchor.is_empty() && !headings(&target).contains(anchor) {
                    found.push(format!(
                        "{place}: there is no such heading in {}",
                        target.display()
                    ));
                }
            }
        }
    }
    none(found);
}

/// The anchors of a document's headings.
fn headings(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).expect("a document");
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char })
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn nothing_speaks_of_the_machine_or_the_desk_it_was_written_at() {
    let paths = ["/work/", "/root/", "/home/", "/Users/"];
    let desks = ["agent", "agents", "llm", "chatgpt", "claude", "copilot"];
    let mut found = Vec::new();
    for file in files()
        .iter()
        .filter(|file| file.path != SELF && !file.path.ends_with(".csv"))
    {
        for (at, line) in file.text.lines().enumerate() {
            let place = format!("{}:{}", file.path, at + 1);
            if let Some(path) = paths.iter().find(|path| line.contains(*path)) {
                found.push(format!(
                    "{place}: {path}… is one machine's: write a path from the project"
                ));
            }
            for word in words(line).filter(|word| desks.contains(&&*word.to_lowercase())) {
                found.push(format!(
                    "{place}: `{word}` is not a word of this project: say what it does"
                ));
            }
        }
    }
    none(found);
}

/// The tests, the examples and the documentation also see the modules, through the feature
/// `internals`, so the compiler does not notice when one of them is shown to users.
#[test]
fn users_are_shown_the_facade_alone() {
    let library = read("src/lib.rs");
    let exports = library.lines().filter(|line| line.starts_with("pub use "));
    let facade: BTreeSet<&str> = exports.flat_map(words).collect();
    assert!(facade.contains("Program") && !facade.contains("Conn"));
    let mut found = Vec::new();
    for file in files() {
        let is_shown = |line: &str| match file.is_source() {
            true => line.trim_start().starts_with("///"),
            false => file.path == "README.md" || file.path.starts_with("examples/"),
        };
        for (at, line) in file.text.lines().enumerate() {
            let Some((_, names)) = line.split_once("use ductwork::") else {
                continue;
            };
            let is_type = |word: &&str| word.starts_with(char::is_uppercase);
            let other = words(names).find(|word| !is_type(word) || !facade.contains(word));
            if let Some(name) = other.filter(|_| is_shown(line)) {
                found.push(format!(
                    "{}:{}: users cannot name `{name}`",
                    file.path,
                    at + 1
                ));
            }
        }
    }
    none(found);
}

/// The quoted words of a list in `deny.toml`, without comments.
fn listed(text: &str, list: &str) -> BTreeSet<String> {
    let (_, rest) = text
        .split_once(&format!("\n{list} = [\n"))
        .expect("the list is there");
    let (rest, _) = rest.split_once("\n]").expect("the list ends");
    let first = |line: &str| line.split('"').nth(1).map(str::to_owned);
    rest.lines().filter_map(first).collect()
}

/// True when an SPDX licence expression can be met with these licences: AND binds closer than OR,
/// and parentheses closest. A slash is an old form of OR.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ");
    let text = text.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    let met = is_any_met(&words, &mut at, allowed);
    met && at == words.len()
}

fn is_any_met(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = false;
    loop {
        let mut all = true;
        loop {
            all &= is_one_met(words, at, allowed);
            if words.get(*at) != Some(&"AND") {
                break;
            }
            *at += 1;
        }
        met |= all;
        if words.get(*at) != Some(&"OR") {
            return met;
        }
        *at += 1;
    }
}

fn is_one_met(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let first = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if first == "(" {
        let met = is_any_met(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
        return false;
    }
    allowed.contains(first)
}

#[test]
fn a_licence_expression_is_met_where_one_of_its_choices_is() {
    let allowed = ["MIT", "ISC"].map(str::to_owned).into();
    for met in [
        "MIT",
        "MIT/Apache-2.0",
        "Zlib OR ISC",
        "(Zlib OR MIT) AND ISC",
        "A WITH b OR MIT",
        "(MIT OR Zlib)",
        "Zlib OR MIT AND Zlib OR ISC",
    ] {
        assert!(is_met(met, &allowed), "{met}");
    }
    for unmet in [
        "",
        "Zlib",
        "MIT AND Zlib",
        "(MIT OR ISC) AND Zlib",
        "MIT WITH b",
        "(MIT",
        "Zlib OR MIT AND Zlib",
    ] {
        assert!(!is_met(unmet, &allowed), "{unmet}");
    }
}

/// The same checks as `cargo deny check bans licenses sources`, from the same file: cargo-deny
/// itself takes minutes to compile, and not every machine has it.
#[test]
fn every_dependency_is_one_that_deny_toml_allows() {
    let rules = read("deny.toml");
    let (licences, banned) = (listed(&rules, "allow"), listed(&rules, "deny"));
    assert!(licences.contains("MIT") && banned.contains("openssl-sys"));
    let mut found = Vec::new();
    for target in listed(&rules, "targets") {
        let metadata = std::process::Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", &target])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        let told = String::from_utf8_lossy(&metadata.stderr);
        assert!(metadata.status.success(), "{told}");
        let metadata: serde_json::Value =
            serde_json::from_slice(&metadata.stdout).expect("metadata is JSON");
        let packages = metadata["packages"].as_array().expect("it has packages");
        assert!(packages.len() > 50, "only {} packages", packages.len());
        for package in packages {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            let name = text("name");
            if name == env!("CARGO_PKG_NAME") {
                continue;
            }
            if banned.contains(name) {
                found.push(format!("{name}: deny.toml says why it is not wanted"));
            }
            if text("source") != "registry+https://github.com/rust-lang/crates.io-index" {
                found.push(format!("{name}: it does not come from crates.io"));
            }
            if !is_met(text("license"), &licences) {
                let licence = text("license");
                found.push(format!(
                    "{name}: its licence, {licence:?}, is not in deny.toml's list"
                ));
            }
        }
    }
    none(found);
}

/// Each key of the configuration, and the code outside of `config` that uses it: the file, and the expression
/// without its spaces.
#[rustfmt::skip]
const READERS: [(&str, &str, &str); 53] = [
    ("database.url", "src/process/start.rs", "config.location()"),
    ("pipelines", "src/process/start.rs", "config.pipelines.includes("),
    ("pipelines_path", "src/process/start.rs", "look_into(&config.pipelines_path)"),
    ("role", "src/process/start.rs", "matchconfig.role{"),
    ("logger.level", "src/cli/start.rs", "config.logger.level"),
    ("logger.format", "src/cli/start.rs", "config.logger.format"),
    ("job_worker.count", "src/engine/worker.rs", "job_worker.count(&self.pipeline)"),
    ("job_worker.max_retry", "src/engine/policy.rs", "of_config.max_retry(pipeline,step)"),
    ("job_worker.max_crash", "src/engine/policy.rs", "of_config.max_crash(pipeline,step)"),
    ("job_worker.timeout", "src/engine/policy.rs", "job_worker.timeout(&definition.pipeline,step)"),
    ("job_worker.backoff", "src/engine/policy.rs", "of_config.backoff(pipeline,step)"),
    ("job_worker.backoff.initial", "src/machine/outcome.rs", "backoff.initial.as_secs_f64()"),
    ("job_worker.backoff.factor", "src/machine/outcome.rs", "backoff.factor.powi("),
    ("job_worker.backoff.max", "src/machine/outcome.rs", "backoff.max.as_secs_f64()"),
    ("job_worker.backoff.jitter", "src/machine/outcome.rs", "backoff.jitter.clamp("),
    ("job_worker.polling_timeout", "src/engine/worker.rs", "job_worker.polling_timeout(&self.pipeline)"),
    ("job_worker.shutdown_timeout", "src/process/child.rs", "job_worker.shutdown_timeout(pipeline)"),
    ("job_worker.max_payload", "src/engine/runner.rs", "job_worker.max_payload(pipeline)"),
    ("job_worker.env", "src/engine/runner.rs", "job_worker.env(pipeline)"),
    ("pipeline_advancer.count", "src/process/child.rs", "pipeline_advancer.count"),
    ("pipeline_advancer.max_retry", "src/engine/policy.rs", "of_config.max_retry(pipeline),"),
    ("pipeline_advancer.max_crash", "src/engine/policy.rs", "of_config.max_crash(pipeline),"),
    ("pipeline_advancer.backoff", "src/engine/policy.rs", "pipeline_advancer.backoff(pipeline)"),
    ("pipeline_advancer.backoff.initial", "src/engine/policy.rs", "retry_delay(times,backoff,"),
    ("pipeline_advancer.backoff.factor", "src/engine/policy.rs", "retry_delay(times,backoff,"),
    ("pipeline_advancer.backoff.max", "src/engine/policy.rs", "retry_delay(times,backoff,"),
    ("pipeline_advancer.backoff.jitter", "src/engine/policy.rs", "retry_delay(times,backoff,"),
    ("pipeline_advancer.polling_timeout", "src/process/child.rs", "pipeline_advancer.polling_timeout"),
    ("pipeline_advancer.shutdown_timeout", "src/process/child.rs", "pipeline_advancer.shutdown_timeout"),
    ("pipeline_advancer.steps.max_depth", "src/engine/policy.rs", "of_config.max_fan_out(pipeline)"),
    ("supervisor.polling_timeout", "src/process/supervisor.rs", "supervisor.polling_timeout"),
    ("supervisor.reaper_timeout", "src/process/supervisor.rs", "supervisor.reaper_timeout"),
    ("supervisor.shutdown_timeout", "src/process/supervisor.rs", "supervisor.shutdown_timeout"),
    ("console.listen", "src/process/console.rs", "settings.listen.or(usual)"),
    ("console.socket", "src/process/console.rs", "settings.socket.as_deref()"),
    ("console.proxy.from", "src/config/proxy.rs", "self.from.iter()"),
    ("console.proxy.user", "src/web/peer.rs", "&proxy.user"),
    ("console.proxy.groups", "src/web/peer.rs", "&proxy.groups"),
    ("console.proxy.operate", "src/config/proxy.rs", "self.operate.has_any("),
    ("console.proxy.admin", "src/config/proxy.rs", "self.admin.has_any("),
    ("console.hosts", "src/process/console.rs", "config.console.hosts"),
    ("console.visitors", "src/process/console.rs", "config.console.anonymous("),
    ("console.webhooks", "src/process/console.rs", "config.console.webhooks"),
    ("console.traces.endpoint", "src/web/traces.rs", "collector.endpoint.clone()"),
    ("console.traces.headers", "src/web/traces.rs", "&collector.headers"),
    ("console.traces.ca", "src/web/traces.rs", "collector.ca.as_deref()"),
    ("hooks.supervisor.start", "src/process/hooks.rs", "&hooks.supervisor.start"),
    ("hooks.supervisor.stop", "src/process/hooks.rs", "&hooks.supervisor.stop"),
    ("hooks.advancer.start", "src/process/hooks.rs", "&hooks.advancer.start"),
    ("hooks.advancer.stop", "src/process/hooks.rs", "&hooks.advancer.stop"),
    ("hooks.worker.start", "src/process/hooks.rs", "&hooks.worker.start"),
    ("hooks.worker.stop", "src/process/hooks.rs", "&hooks.worker.stop"),
    ("retention", "src/process/supervisor.rs", "self.setup.config.retention"),
];

#[test]
fn every_key_of_the_configuration_is_read_by_somebody() {
    let keys = read("src/config/keys.rs");
    let keys: BTreeSet<&str> = keys
        .lines()
        .filter_map(|line| line.trim().strip_prefix("key(\"")?.split('"').next())
        .collect();
    let told: BTreeSet<&str> = READERS.iter().map(|(key, ..)| *key).collect();
    assert_eq!(
        told, keys,
        "a key without a reader, or a reader without a key"
    );
    let files = files();
    let mut found = Vec::new();
    for (key, path, expression) in READERS {
        let file = files.iter().find(|file| file.path == path);
        let code: String = file.map_or_else(String::new, |file| {
            let lines = file.code().flat_map(|(_, line)| line.chars());
            lines.filter(|char| !char.is_whitespace()).collect()
        });
        if !code.contains(expression) {
            found.push(format!(
                "{path}: nothing reads `{key}` here ({expression}): a setting that does nothing goes, \
                 into RETIRED of src/config/keys.rs; one that is read elsewhere is named here"
            ));
        }
    }
    none(found);
}
