//! Whole directories of files on a disk.

use std::fs;

use super::*;
use crate::definition::tree::MAX_BYTES;

#[test]
fn what_is_not_a_readable_file_is_a_problem() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("dir.yml")).expect("a directory");
    std::os::unix::fs::symlink("loop.yml", at("loop.yml")).expect("a link");
    std::os::unix::fs::symlink("nowhere.yml", at("gone.yml")).expect("a link");
    nix::unistd::mkfifo(&at("pipe.yml"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    fs::write(at("latin.yml"), b"pipeline: P\non_halt: \xe9\n").expect("a file");
    fs::write(at("wide.yml"), b"\xff\xfep\0").expect("a file");
    fs::write(at("large.yml"), vec![b'#'; MAX_BYTES + 1]).expect("a file");
    for (name, message) in [
        ("dir.yml", "this is a directory"),
        ("gone.yml", "nothing is where it leads"),
        ("latin.yml", "a byte that is not UTF-8"),
        ("loop.yml", "the file cannot be read"),
        ("large.yml", "larger than 1024 KiB"),
        ("none.yml", "the file cannot be read"),
        ("pipe.yml", "this is not a file"),
        ("wide.yml", "the file is UTF-16"),
    ] {
        let Err(Problems(found)) = load_file(&at(name)) else {
            panic!("{name} was read");
        };
        assert_eq!(found.len(), 1);
        assert!(
            found[0].message.contains(message),
            "{name}: {}",
            found[0].message
        );
        assert_eq!(found[0].file, Some(at(name)));
    }
    let Err(Problems(found)) = load_file(&at("latin.yml")) else {
        panic!("it was read");
    };
    let place = found[0].at.as_ref().expect("a place");
    assert_eq!((place.line, place.column), (2, 10));
    let Err(Problems(found)) = load_dir(dir.path()) else {
        panic!("the directory was read");
    };
    assert_eq!(found.len(), 7);
    let Err(Problems(found)) = load_dir(&at("nowhere")) else {
        panic!("there is no such directory");
    };
    assert_eq!(found[0].file, Some(at("nowhere")));
}

#[test]
fn a_directory_is_read_in_order_and_a_name_belongs_to_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |file: &str, name: &str| {
        let text = HEAD.replace("pipeline: P", &format!("# mine\npipeline: {name}"));
        let text = format!("{text}  - start: A\n  - chain: B\n  - chain: C\n");
        fs::write(dir.path().join(file), text).expect("a file");
    };
    assert_eq!(load_dir(dir.path()), Ok(Vec::new()));
    for (file, name) in [
        ("b.yml", "One"),
        ("a.yaml", "Two"),
        (".c.yml", "1"),
        ("d.txt", "1"),
    ] {
        write(file, name);
    }
    let read = load_dir(dir.path()).unwrap_or_else(|problems| panic!("{problems}"));
    let read: Vec<_> = read
        .iter()
        .map(|(path, definition)| (path.file_name(), definition.pipeline.as_str()))
        .collect();
    let expected = [("a.yaml", "Two"), ("b.yml", "One")];
    assert_eq!(
        read,
        expected.map(|(file, name)| (Some(file.as_ref()), name))
    );

    write("e.yml", "One");
    write("f.yml", "5x");
    let Err(Problems(found)) = load_dir(dir.path()) else {
        panic!("two pipelines have one name");
    };
    assert_eq!(found.len(), 2);
    assert!(
        found[0].message.contains("pipeline `One` is in"),
        "{}",
        found[0].message
    );
    assert!(found[0].message.contains("b.yml"), "{}", found[0].message);
    assert_eq!(found[0].file, Some(dir.path().join("e.yml")));
    let place = found[0].at.as_ref().expect("a place");
    assert_eq!((place.line, place.column), (2, 11));
    assert_eq!(found[1].file, Some(dir.path().join("f.yml")));
}
