//! A host's disk that goes wrong when a test says so, as far as SQLite's files are concerned.
//! Never: touches what steps write, or what the test itself does.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::clock::compile;
use crate::history::Kind;

/// The disk of one host.
pub struct Disk {
    dir: tempfile::TempDir,
    control: File,
    /// The present faults, with the numbers that disk.c gives them; the last of them is in effect.
    failing: Arc<Mutex<Vec<u32>>>,
}

impl Disk {
    /// A disk that works.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        compile("tests/chaos/disk.c", &dir.path().join("disk.so"));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let control = options.open(dir.path().join("control"));
        let control = control.expect("a file for the disk");
        control.write_all_at(&[0; 8], 0).expect("it works");
        Self {
            dir,
            control,
            failing: Arc::default(),
        }
    }

    /// The command prefix for a program that is to use this disk.
    pub fn under(&self) -> [String; 2] {
        let file = |name: &str| -> PathBuf { self.dir.path().join(name) };
        [
            format!("LD_PRELOAD={}", file("disk.so").display()),
            format!("TEST_DISK={}", file("control").display()),
        ]
    }

    /// From now on this kind of operation fails; calling the returned function ends the fault and
    /// restores the previous one.
    pub fn fails(&self, kind: Kind) -> Box<dyn FnOnce() + Send> {
        // The numbers that disk.c gives them.
        let kinds = [
            Kind::NoSpace,
            Kind::WriteError,
            Kind::ShortWrite,
            Kind::SyncError,
        ];
        let number = kinds.iter().position(|it| *it == kind);
        let number = number.expect("a fault of the disk") as u32 + 1;
        let control = self.control.try_clone().expect("the same file");
        let set = move |failing: &[u32]| {
            let number = failing.last().copied().unwrap_or_default();
            let set = control.write_all_at(&number.to_ne_bytes(), 0);
            set.expect("the disk can be told");
        };
        let all = Arc::clone(&self.failing);
        let mut failing = self.failing.lock().unwrap();
        failing.push(number);
        set(&failing);
        Box::new(move || {
            let mut failing = all.lock().unwrap();
            let at = failing.iter().rposition(|other| *other == number);
            failing.remove(at.expect("it goes wrong until now"));
            set(&failing);
        })
    }

    /// How often an operation has failed.
    pub fn fired(&self) -> u32 {
        self.counter()()
    }

    /// The same count, for later use.
    pub fn counter(&self) -> impl Fn() -> u32 + Send + 'static {
        let control = self.control.try_clone().expect("the same file");
        move || {
            let mut bytes = [0; 4];
            let read = control.read_exact_at(&mut bytes, 4);
            read.expect("the disk can be asked");
            u32::from_ne_bytes(bytes)
        }
    }
}
