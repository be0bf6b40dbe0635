//! A database that cannot be used, and what a person can do about it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{Ended, Place};

#[test]
fn a_directory_in_the_place_of_the_database_is_told_as_such() {
    let place = Place::ready();
    std::fs::create_dir(place.path().join("data")).unwrap();
    for args in [
        &["runs"][..],
        &["start"],
        &["migrate"],
        &["trigger", "Hello"],
    ] {
        let mut command = place.command();
        let output = command
            .args(args)
            .env("DATABASE_URL", "sqlite:data")
            .output();
        let ended = Ended::of(output.unwrap());
        let said = "data is a directory, not a database file: let `database.url` name a file in it";
        assert!(
            ended.code == Some(2) && ended.stderr.contains(said),
            "{args:?}: {ended:?}"
        );
    }
}

/// SQLite opens such a file all the same, for reading.
#[test]
fn a_daemon_that_may_not_write_its_file_does_not_start() {
    let place = Place::ready();
    let everybody = |path: &str, mode| {
        let path = place.path().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Root may write everything, so another user starts it, from a place that is open to all.
    let program = place.path().join("ductworkd");
    std::fs::copy(env!("CARGO_BIN_EXE_ductworkd"), &program).unwrap();
    for (path, mode) in [(".", 0o777), ("pipelines", 0o755), ("ductwork.yml", 0o644)] {
        everybody(path, mode);
    }
    for file in std::fs::read_dir(place.path().join("pipelines")).unwrap() {
        let file = file.unwrap().path();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    everybody("ductwork.db", 0o444);
    let mut command = Command::new(program);
    command.arg("start").current_dir(place.path()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let ended = Ended::of(command.output().unwrap());
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(
        ended.stderr.contains("this user may not write"),
        "{ended:?}"
    );
    assert!(
        ended
            .stderr
            .contains("and that this user may write there, and to the file itself"),
        "{ended:?}"
    );
}

#[test]
fn a_database_that_a_server_does_not_have_is_told_with_the_server_and_the_place_of_its_address() {
    let server = std::env::var("DUCTWORK_TEST_POSTGRES_URL");
    let server = server.expect("scripts/test starts a server");
    let (address, _) = server.rsplit_once('/').unwrap();
    let host = address.rsplit_once(['@', '/']).unwrap().1;
    let place = Place::ready();
    let mut command = place.command();
    let command = command.arg("runs");
    let command = command.env(
        "DUCTWORK_DATABASE_URL",
        format!("{address}/no_such_database"),
    );
    let ended = Ended::of(command.output().unwrap());
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let told = format!("correct its name in the URL of {host}");
    assert!(
        ended.stderr.contains(&told) && ended.stderr.contains("(from DUCTWORK_DATABASE_URL)"),
        "{ended:?}"
    );
}

#[test]
fn a_copy_blames_the_url_that_it_was_given() {
    let place = Place::ready();
    std::fs::write(place.path().join("letter.db"), "not a database at all").unwrap();
    for (to, said, help) in [
        (
            "postgres://u:p@127.0.0.1:9/d",
            "`--to`: the database cannot be reached",
            "`--to` is right",
        ),
        ("sqlite://nowhere/ductwork.db", "`--to`: ", "`--to` exists"),
        ("sqlite://letter.db", "`--to`: ", "`--to`"),
    ] {
        let ended = place.run(["copy", "--to", to]);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        assert!(
            ended.stderr.contains(said) && ended.stderr.contains(help),
            "{ended:?}"
        );
    }
    // The address to change is the one that counts.
    for (variable, set) in [
        (None, "set `database.url` to it; "),
        (
            Some("DATABASE_URL"),
            "set `DATABASE_URL` to it, because that outranks `database.url`; ",
        ),
    ] {
        let mut command = place.command();
        let to = format!("sqlite://copy-{}.db", variable.unwrap_or("of-file"));
        command.args(["copy", "--to", &to]);
        command.envs(variable.map(|name| (name, "sqlite://ductwork.db")));
        let ended = Ended::of(command.output().unwrap());
        ended.fine();
        assert!(ended.stdout.contains(set), "{ended:?}");
        assert!(
            ended
                .stdout
                .contains("the old database is not marked as copied"),
            "{ended:?}"
        );
    }
    place
        .run(["copy", "--to", "oracle://h/d"])
        .failed(2, "`--to`: databases of the kind `oracle`");
    place
        .run(["copy", "--to", "sqlite://ductwork.db"])
        .failed(2, "`--to` names the configured database itself");
}

#[test]
fn tables_that_are_created_elsewhere_than_the_file_says_are_announced_once() {
    let place = Place::empty();
    place.run(["init"]).fine();
    for (name, args) in [
        ("one", &["migrate"][..]),
        ("two", &["trigger", "Hello", "[]"]),
        ("three", &["start", "--until-idle"]),
    ] {
        let with = |variable: &str| {
            let mut command = place.command();
            let url = format!("sqlite:{name}.db");
            let output = command.args(args).env(variable, url).output();
            Ended::of(output.unwrap())
        };
        let note = format!("{name}.db (from DATABASE_URL; ductwork.yml says sqlite://");
        let created = with("DATABASE_URL");
        let begins = "creating the tables in sqlite://";
        assert!(
            created.stderr.contains(begins) && created.stderr.contains(&note),
            "{created:?}"
        );
        let again = with("DATABASE_URL");
        assert!(!again.stderr.contains(begins), "{again:?}");
        if name == "three" {
            assert!(
                again.stderr.contains("the database is sqlite://"),
                "{again:?}"
            );
            assert!(again.stderr.contains(&note), "{again:?}");
        }
        std::fs::remove_file(place.path().join(format!("{name}.db"))).unwrap();
        // Nobody sets a variable of ours for another program.
        let meant = with("DUCTWORK_DATABASE_URL");
        assert!(!meant.stderr.contains(begins), "{meant:?}");
    }
}

/// Of a program whose variable names its own database, or a place where there is none.
#[test]
fn a_database_that_a_variable_names_is_told_with_the_variable_and_the_address_in_the_file() {
    let place = Place::ready();
    rusqlite::Connection::open(place.path().join("app.db"))
        .and_then(|app| app.execute_batch("CREATE TABLE users (id)"))
        .unwrap();
    let with = |url: &str, args: &[&str]| {
        let output = place.command().args(args).env("DATABASE_URL", url).output();
        Ended::of(output.unwrap())
    };
    let says = "from DATABASE_URL; ductwork.yml says sqlite://";
    for verb in ["runs", "health"] {
        let ended = with("sqlite:app.db", &[verb]);
        ended.failed(1, "app.db has no tables of Ductwork (");
        for told in [says, "for the database of the file, unset DATABASE_URL"] {
            assert!(ended.stderr.contains(told), "{ended:?}");
        }
        let ended = with("sqlite:///nonexistent/dir/x.db", &[verb]);
        ended.failed(1, "there is no database yet at /nonexistent/dir/x.db (");
        for told in [says, "make it, or correct or unset DATABASE_URL"] {
            assert!(ended.stderr.contains(told), "{ended:?}");
        }
    }
    let ended = with("sqlite:///nonexistent/dir/x.db", &["trigger", "Hello"]);
    ended.failed(69, "/nonexistent/dir/x.db: No such file");
    assert!(
        ended
            .stderr
            .contains("the directory of DATABASE_URL exists"),
        "{ended:?}"
    );
    // One whose schema is older is named as well.
    let old = |sql: &str| {
        let conn = rusqlite::Connection::open(place.path().join("ductwork.db")).unwrap();
        conn.execute_batch(sql).unwrap();
    };
    old(
        "DELETE FROM ductwork_migrations WHERE version = (SELECT max(version) FROM ductwork_migrations)",
    );
    let ended = place.run(["runs"]);
    ended.failed(1, "ductwork.db (from `database.url` of ");
    assert!(ended.stderr.contains(") lacks 1 of "), "{ended:?}");
}

#[test]
fn a_person_whose_command_writes_elsewhere_than_the_file_says_is_told_so() {
    let place = Place::ready();
    let mut made = place.command();
    let made = made.arg("migrate").env("DATABASE_URL", "sqlite:other.db");
    assert!(made.output().unwrap().status.success());
    let note = "note: the database is sqlite://";
    for (args, is_told) in [
        ("trigger Hello", true),
        ("pause Hello --reason feed", true),
        ("migrate", true),
        ("trigger Hello --json", false),
        ("runs", false),
    ] {
        let seen = |variable: &str| {
            let args = format!("{args}; exit 0");
            super::typed_with(&place, &args, b"", (variable, "sqlite:other.db")).stdout
        };
        assert_eq!(seen("DATABASE_URL").contains(note), is_told, "{args}");
        assert!(!seen("DUCTWORK_DATABASE_URL").contains(note), "{args}");
    }
}
