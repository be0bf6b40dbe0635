//! A separate disk for a server's tables, in memory, which may be full for a while.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::statfs;

/// The disk, which exists until it is dropped.
pub struct Space {
    dir: tempfile::TempDir,
    /// The number of faults that currently want it full.
    full: Arc<Mutex<usize>>,
}

impl Space {
    /// Makes one with the same owner as this path.
    pub fn like(owned: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Some("tmpfs");
        mount(disk, dir.path(), disk, MsFlags::empty(), None::<&str>)
            .expect("a disk of its own, which takes root");
        let space = Self {
            dir,
            full: Arc::default(),
        };
        let of = std::fs::metadata(owned).expect("somebody's directory");
        std::os::unix::fs::chown(space.path(), Some(of.uid()), Some(of.gid())).expect("a disk");
        space
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// True while it has no room.
    pub fn is_full(&self) -> bool {
        *self.full.lock().unwrap() > 0
    }

    /// From now on it has no more room than is in use; calling the returned function ends this,
    /// unless another fault still wants it.
    pub fn filled(&self) -> Box<dyn FnOnce() + Send> {
        let (full, path) = (Arc::clone(&self.full), self.path().to_owned());
        let mut wanted = full.lock().unwrap();
        if *wanted == 0 {
            // More may be in use by then.
            while !is_resized(&path, &format!("size={}", taken(&path))) {}
        }
        *wanted += 1;
        drop(wanted);
        Box::new(move || {
            let mut wanted = full.lock().unwrap();
            *wanted -= 1;
            if *wanted == 0 {
                assert!(
                    is_resized(&path, "size=50%"),
                    "there is more room than that"
                );
            }
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _gone = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

/// The number of bytes in use.
fn taken(path: &Path) -> u64 {
    let disk = statfs(path).expect("a disk");
    (disk.blocks() - disk.blocks_free()) * disk.block_size() as u64
}

/// False if more than that is in use.
fn is_resized(path: &Path, size: &str) -> bool {
    let resized = mount(
        None::<&str>,
        path,
        None::<&str>,
        MsFlags::MS_REMOUNT,
        Some(size),
    );
    match resized {
        Err(Errno::EINVAL) => false,
        resized => resized.map(|()| true).expect("a disk can be resized"),
    }
}
