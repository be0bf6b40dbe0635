//! A disk of its own for a server's tables, in memory, which may be full for a while.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::statfs;

/// The disk, which is there until it is dropped.
pub struct Space {
    dir: tempfile::TempDir,
    /// So many want it to be full.
    full: Arc<Mutex<usize>>,
}

impl Space {
    /// Makes one for whoever owns this.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// True while it has no room.
    pub fn is_full(&self) -> bool {
        *self.full.lock().unwrap() > 0
    }

    /// From now on it has no more room than is taken; the answer ends it, unless another wants it
    /// still.
    pub fn filled(&self) -> Box<dyn FnOnce() + Send> {
        let (full, path) = (Arc::clone(&self.full), self.path().to_owned());
        let mut wanted = full.lock().unwrap();
        if *wanted == 0 {
            // More may be taken by then.
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

/// How many bytes of it are taken.
fn taken(path: &Path) -> u64 {
    let disk = statfs(path).expect("a disk");
    (disk.blocks() - disk.blocks_free()) * disk.block_size() as u64
}

/// False: more than that is taken.
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
