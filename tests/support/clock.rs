//! A host's clock that a test, or a step, moves while everything on that host runs.
//!
//! Every process that is started under it, and all its descendants, get the same time of day,
//! shifted by the offset that was set last. Spans are not affected, as with a real clock that
//! is set.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For a shell script: shifts the clock that it runs under by `$1` seconds.
pub const SET: &str = r#"set_clock() { printf '%+08d' "$1" 1<> "$TEST_CLOCK"; }"#;

/// Compiles a file of this project into a library that can be preloaded.
pub fn compile(source: &str, library: &Path) {
    cc(source, library, &["-shared", "-fPIC"]);
}

/// Compiles a file of this project into a program, or into something else.
pub fn cc(source: &str, made: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror"]).args(options).arg("-o");
    let status = cc.arg(made).arg(source).status().expect("a C compiler");
    assert!(status.success(), "{status}");
}

/// The clock of one host.
pub struct Clock {
    dir: tempfile::TempDir,
}

impl Clock {
    /// A clock without an offset.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let clock = Self { dir };
        compile("tests/support/clock.c", &clock.library());
        File::create(clock.file()).expect("a file for the clock");
        clock.set(0);
        clock
    }

    /// The command prefix for a program that is to use this clock.
    pub fn under(&self) -> [String; 3] {
        let [preload, clock] = self
            .variables()
            .map(|(name, value)| format!("{name}={value}"));
        ["env".to_owned(), preload, clock]
    }

    /// The same, as variables of its environment.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.library().display().to_string()),
            ("TEST_CLOCK", self.file().display().to_string()),
        ]
    }

    /// From now on it is off by this many seconds.
    pub fn set(&self, seconds: i64) {
        let file = OpenOptions::new().write(true).open(self.file());
        let text = format!("{seconds:+08}");
        assert_eq!(text.len(), 8, "{text}");
        let written = file.and_then(|file| file.write_all_at(text.as_bytes(), 0));
        written.expect("the clock is set");
    }

    /// True when this process uses this clock.
    pub fn governs(&self, pid: i32) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.contains(self.library().to_str().expect("a path that is text"))
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("off")
    }
}
