//! Scripts that would not start or do not exist, and words for a shell, as far as a command shows it.
//!
//! Owns: the notes about a command whose program exists. Never: starts anything.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use crate::step::resolve::resolve;

use super::super::hint::quoted;

/// Programs whose first argument is a script, and the letters of the options that take code instead.
const INTERPRETERS: [(&str, &str); 12] = [
    ("sh", "cs"),
    ("bash", "cs"),
    ("dash", "cs"),
    ("zsh", "cs"),
    ("python", "cm"),
    ("python3", "cm"),
    ("node", "epr"),
    ("ruby", "er"),
    ("perl", "eEMm"),
    ("php", "r"),
    ("lua", "el"),
    ("Rscript", "e"),
];

/// Endings that show that a word is a script.
const ENDINGS: [&str; 9] = [
    ".sh", ".bash", ".py", ".js", ".mjs", ".rb", ".pl", ".php", ".R",
];

/// Words that have a meaning for a shell alone.
const OF_A_SHELL: [&str; 9] = ["|", "||", "&&", "&", ";", "<", ">", ">>", "2>&1"];

/// Programs that give such a word a meaning of their own, or have a shell read it.
const READ_THEM: [&str; 18] = [
    "[", "awk", "bash", "dash", "egrep", "expr", "fgrep", "find", "grep", "parallel", "rg", "sed",
    "sh", "ssh", "test", "tr", "watch", "zsh",
];

/// The greatest length of a `#!` line.
const FIRST_LINE: u64 = 256;

/// A doubt, and the remedy.
pub type Note = (String, String);

/// The doubt about a command, if there is one; its program was found as `file`.
pub fn doubt(argv: &[String], file: &Path, cwd: &Path, path: Option<&OsStr>) -> Option<Note> {
    missing(argv, cwd)
        .or_else(|| unstartable(&argv[0], file, cwd, path))
        .or_else(|| unread(argv))
}

/// The note that a word for a shell is passed to the program.
fn unread(argv: &[String]) -> Option<Note> {
    let program = argv.first()?;
    // Another program may start such a program, as in `nice find … -exec … ;`.
    let name = |word: &String| Path::new(word).file_name()?.to_str().map(str::to_owned);
    let reads = |word: &String| name(word).is_some_and(|name| READ_THEM.contains(&&*name));
    if argv.iter().any(reads) {
        return None;
    }
    // One character may be the value of an option, as in `cut -d ;`.
    let is_option = |before: &str| before.len() > 1 && before.starts_with('-');
    let is_value = |before: &str, word: &str| word.len() == 1 && is_option(before);
    let word = argv.windows(2).find_map(|pair| match &pair[1] {
        word if is_value(&pair[0], word) => None,
        word => OF_A_SHELL.contains(&word.as_str()).then_some(word),
    })?;
    let quoted = |word: &String| match OF_A_SHELL.contains(&word.as_str()) {
        true => word.clone(),
        false => quoted(word).into_owned(),
    };
    let line = match argv.last() == Some(word) {
        // It would be no command of a shell either.
        true => "…".to_owned(),
        false => argv.iter().map(quoted).collect::<Vec<_>>().join(" "),
    };
    Some((
        format!("`{word}` is passed to `{program}` as an argument: no shell reads this command"),
        format!("for a shell, write `command: [sh, -c, {line:?}]`"),
    ))
}

/// The note that an interpreter's script does not exist.
fn missing(argv: &[String], cwd: &Path) -> Option<Note> {
    let (program, arguments) = argv.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    let (_, code) = INTERPRETERS.iter().find(|(known, _)| *known == name)?;
    let takes_code =
        |option: &str| option.starts_with("--") || option.contains(|c| code.contains(c));
    for argument in arguments {
        match argument.strip_prefix('-') {
            Some(option) if takes_code(option) => return None,
            Some(_) => {}
            None => {
                let file = cwd.join(argument);
                let gone = is_script(argument) && !file.exists();
                return gone.then(|| {
                    (
                        format!("there is no script `{argument}`"),
                        format!("it was expected at {}", file.display()),
                    )
                });
            }
        }
    }
    None
}

/// True for a word that means a relative path.
fn is_script(word: &str) -> bool {
    let odd = |char: char| char.is_whitespace() || "$*'\"`;|&<>(){}".contains(char);
    let known = word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending));
    known && !word.starts_with('/') && !word.contains("://") && !word.contains(odd)
}

/// The note that the kernel cannot start a file of one's own: the file names no interpreter, or one that does not
/// exist.
fn unstartable(program: &str, file: &Path, cwd: &Path, path: Option<&OsStr>) -> Option<Note> {
    if !program.contains('/') {
        return None;
    }
    let mut first = Vec::new();
    let opened = std::fs::File::open(file).ok()?;
    opened.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    if first.starts_with(b"\xef\xbb\xbf#!") {
        return Some((
            format!("`{program}` begins with a byte order mark, which hides its `#!` line"),
            format!("save it without one: sed -i '1s/^\\xEF\\xBB\\xBF//' {program}"),
        ));
    }
    let Some(line) = first.strip_prefix(b"#!") else {
        // A binary of some kind, about which the kernel may know more.
        let text = !first.contains(&0) && std::str::from_utf8(&first).is_ok();
        return text.then(|| {
            (
                format!("`{program}` has no `#!` line"),
                format!("begin it with `#!/bin/sh`, or write `command: [sh, {program}]`"),
            )
        });
    };
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    if line.ends_with('\r') {
        return Some((
            format!("the `#!` line of `{program}` ends with a carriage return"),
            format!("save it with the line ends of Unix: sed -i 's/\\r$//' {program}"),
        ));
    }
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    let help = |name: &str| format!("install {name}, or correct the first line of {program}");
    if !cwd.join(interpreter).exists() {
        let message = format!("`{program}` begins with `#!{interpreter}`, which does not exist");
        return Some((message, help(interpreter)));
    }
    let by_name = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
    let mut given = words.clone();
    let splits = |it: &str| {
        ["-S", "-vS", "--split-string"]
            .iter()
            .any(|option| it.starts_with(option))
    };
    if by_name && given.next().is_some_and(|it| !splits(it)) && given.next().is_some() {
        let given = words.collect::<Vec<_>>().join(" ");
        return Some((
            format!("`{program}` begins with `#!{line}`, and `env` gets `{given}` as one word"),
            format!("write `#!{interpreter} -S {given}`"),
        ));
    }
    let name = words.find(|word| by_name && !word.starts_with('-') && !word.contains('='))?;
    let missing = resolve(name, cwd, path).is_err();
    missing.then(|| {
        let message =
            format!("`{program}` begins with `#!{line}`, and `{name}` was not found in PATH");
        (message, help(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dir: &Path, argv: &[&str]) -> Option<String> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let path = Some(OsStr::new("/usr/bin:/bin"));
        doubt(&argv, &dir.join(&argv[0]), dir, path).map(|(message, _)| message)
    }

    #[test]
    fn a_script_that_is_not_there_is_noted_and_code_is_not_taken_for_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.py"), "").unwrap();
        for fine in [
            &["python3", "a.py"][..],
            &["python3", "-u", "a.py"],
            &["python3", "-m", "steps/b.py"],
            &["sh", "-c", "cat steps/b.sh"],
            &["sh", "-ec", "steps/b.sh"],
            &["node", "-e", "b.js"],
            &["perl", "-ne", "print b.pl"],
            &["jq", "b.py"],
            &["sh", "/opt/b.sh"],
            &["bash"],
        ] {
            assert_eq!(noted(dir.path(), fine), None, "{fine:?}");
        }
        for gone in [
            &["python3", "b.py"][..],
            &["python3", "-u", "b.py"],
            &["/usr/bin/python3", "b.py", "a.py"],
            &["sh", "-eu", "b.py"],
        ] {
            let told = Some("there is no script `b.py`".to_owned());
            assert_eq!(noted(dir.path(), gone), told, "{gone:?}");
        }
    }

    #[test]
    fn a_word_for_a_shell_is_noted_where_no_shell_reads_it() {
        let dir = Path::new("/usr/bin");
        for fine in [
            &["sh", "-c", "cat | cat", "|"][..],
            &["find", ".", "-exec", "cat", "{}", ";"],
            &["cut", "-d", "|"],
            &["cat", "a|b", ">a"],
            &["expr", "1", "<", "2"],
            &["nice", "find", ".", "-exec", "cat", "{}", ";"],
            &["grep", "|", "a"],
        ] {
            assert_eq!(noted(dir, fine), None, "{fine:?}");
        }
        for (argv, word) in [
            (&["cat", "a", "|", "cat"][..], "|"),
            (&["cat", "-", "&&", "cat"], "&&"),
            (&["cat", "-", "|", "cat"], "|"),
            (&["cat", "-n", "2>&1"], "2>&1"),
            (&["/usr/bin/python3", "-V", "a", ">", "b"], ">"),
        ] {
            let told = format!("`{word}` is passed to `{}` as an argument", argv[0]);
            let found = noted(dir, argv).unwrap_or_default();
            assert!(found.starts_with(&told), "{argv:?}: {found}");
        }
        let (_, help) = unread(&["cat".to_owned(), "|".to_owned()]).unwrap();
        assert!(help.ends_with("[sh, -c, \"…\"]`"), "{help}");
        let argv = ["jq", ".a | \"b\"", "|", "cat"].map(str::to_owned);
        let (_, help) = unread(&argv).unwrap();
        let line = r#"[sh, -c, "jq '.a | \"b\"' | cat"]"#;
        assert!(help.contains(line), "{help}");
    }

    #[test]
    fn a_file_that_the_kernel_cannot_start_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        for (text, told) in [
            (&b"#!/bin/sh\necho 1\n"[..], None),
            (b"#!/usr/bin/env sh\n", None),
            (b"#!/usr/bin/env -S sh -e\n", None),
            (b"\x7fELF\0\0", None),
            (b"echo 1\n", Some("has no `#!` line")),
            (
                b"\xef\xbb\xbf#!/bin/sh\n",
                Some("begins with a byte order mark, which hides its `#!` line"),
            ),
            (
                b"#!/bin/sh\r\necho 1\r\n",
                Some("ends with a carriage return"),
            ),
            (
                b"#!/no/such/thing -u\n",
                Some("`#!/no/such/thing`, which does not exist"),
            ),
            (
                b"#!/usr/bin/env sh -e\n",
                Some("and `env` gets `sh -e` as one word"),
            ),
            (
                b"#!/usr/bin/env -i sh\n",
                Some("and `env` gets `-i sh` as one word"),
            ),
            (
                b"#!/usr/bin/env no-such-thing\n",
                Some("`no-such-thing` was not found in PATH"),
            ),
        ] {
            std::fs::write(dir.path().join("step"), text).unwrap();
            let found = noted(dir.path(), &["./step"]);
            match told {
                None => assert_eq!(found, None, "{text:?}"),
                Some(told) => assert!(found.is_some_and(|it| it.contains(told)), "{told}"),
            }
        }
    }
}
