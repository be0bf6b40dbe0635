//! Same-host wake-ups between processes: "there is work".
//!
//! Owns: a private directory with one datagram socket per process that wants to be woken.
//! Never: carries anything, blocks, or fails anybody: a bell that is not heard costs the
//! wait until the next poll, because the truth is in the database.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// How long a listing of the directory is believed.
const LISTING_TTL: Duration = Duration::from_secs(1);
/// The longest path that a socket's address holds.
const SOCKET_PATH_MAX: usize = 107;
/// The longest name in the directory: `w-`, 16 digits, `-`, 32 digits.
const NAME_MAX: usize = 2 + 16 + 1 + 32;

/// The process that wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BellName<'a> {
    /// A branch may be ready to be advanced.
    Advancer,
    /// A step of this pipeline may be ready to run.
    Worker(&'a str),
    /// Something may have changed that the supervisor waits for.
    Supervisor,
    /// Somebody's claims may have been taken away: a run was cancelled.
    Claims,
}

/// Whom to wake: everybody of the kind.
pub type Target<'a> = BellName<'a>;

/// The kind of a bell, comparable without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Advancer,
    Worker(u64),
    Supervisor,
    Claims,
}

impl Kind {
    fn of(name: &BellName<'_>) -> Self {
        match name {
            BellName::Advancer => Self::Advancer,
            BellName::Worker(pipeline) => Self::Worker(short_hash(pipeline)),
            BellName::Supervisor => Self::Supervisor,
            BellName::Claims => Self::Claims,
        }
    }

    fn file_name(self, process: Uuid) -> String {
        let process = process.simple();
        match self {
            Self::Advancer => format!("a-{process}"),
            Self::Worker(hash) => format!("w-{hash:016x}-{process}"),
            Self::Supervisor => format!("s-{process}"),
            Self::Claims => format!("c-{process}"),
        }
    }

    fn parse(file_name: &str) -> Option<Self> {
        let (kind, rest) = file_name.split_once('-')?;
        let (this, process) = match kind {
            "a" => (Self::Advancer, rest),
            "s" => (Self::Supervisor, rest),
            "c" => (Self::Claims, rest),
            "w" => {
                let (hash, process) = rest.split_once('-')?;
                (Self::Worker(u64::from_str_radix(hash, 16).ok()?), process)
            }
            _ => return None,
        };
        Uuid::try_parse(process).ok().map(|_| this)
    }
}

/// The first 16 hexadecimal digits of the SHA-256.
fn short_hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest[..8]
        .iter()
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// The directory of those who share a database, made if need be: private to this user.
/// `database` is whatever identifies it, the same in all of them.
pub fn directory(database: &str) -> io::Result<PathBuf> {
    let own = nix::unistd::geteuid();
    let mut candidates = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty()) {
        candidates.push(PathBuf::from(runtime).join("ductwork"));
    }
    if own.is_root() {
        candidates.push(PathBuf::from("/run/ductwork"));
    }
    candidates.push(PathBuf::from(format!("/tmp/ductwork-{own}")));
    first_usable(&candidates, database)
}

fn first_usable(candidates: &[PathBuf], database: &str) -> io::Result<PathBuf> {
    let mut last = io::Error::other("no place for bells");
    for candidate in candidates {
        match make_private(candidate, database) {
            Ok(directory) => return Ok(directory),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn make_private(parent: &Path, database: &str) -> io::Result<PathBuf> {
    let mut directory = parent.to_owned();
    directory.push(format!("{:016x}", short_hash(database)));
    if directory.as_os_str().len() + 1 + NAME_MAX > SOCKET_PATH_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidFilename,
            format!("{} is too long for a socket", directory.display()),
        ));
    }
    // The parent first, so that nobody can put another directory in the place of ours.
    for part in [parent, &directory] {
        match std::fs::DirBuilder::new().mode(0o700).create(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Never through a symbolic link, which anybody could have put into /tmp.
        let found = std::fs::symlink_metadata(part)?;
        let own = nix::unistd::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not a private directory of uid {own}", part.display()),
            ));
        }
    }
    Ok(directory)
}

/// The socket that wakes this process. Gone from the directory when dropped.
#[derive(Debug)]
pub struct Bell {
    socket: tokio::net::UnixDatagram,
    path: PathBuf,
}

impl Bell {
    /// Hangs it up in a directory that [`directory`] made. Needs a tokio runtime.
    pub fn bind(directory: &Path, name: &BellName<'_>, process: Uuid) -> io::Result<Self> {
        let path = directory.join(Kind::of(name).file_name(process));
        Ok(Self {
            socket: tokio::net::UnixDatagram::bind(&path)?,
            path,
        })
    }

    /// Waits until somebody has rung since it was last heard. Ringing a hundred times wakes
    /// once. Cancel-safe: what was not returned is heard the next time.
    pub async fn rung(&mut self) {
        loop {
            // An error here (there is none known for such a socket) must not become a loop
            // that never rests.
            if self.socket.readable().await.is_err() {
                return std::future::pending().await;
            }
            if self.drain() {
                return;
            }
        }
    }

    /// Takes all that is waiting; true when there was something.
    fn drain(&self) -> bool {
        let mut rung = false;
        let mut buffer = [0; 1];
        loop {
            match self.socket.try_recv(&mut buffer) {
                Ok(_) => rung = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return rung,
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // The next process that rings finds it dead and removes it, if we cannot.
        let _left_behind = std::fs::remove_file(&self.path);
    }
}

/// Rings the bells of others. Cheap enough to be called after every commit: while the listing
/// of the directory is believed, it makes one system call per bell and no allocation.
#[derive(Debug)]
pub struct Ringer {
    /// `None` when there is no way to ring anybody: then every ring is silent.
    socket: Option<std::os::unix::net::UnixDatagram>,
    directory: PathBuf,
    listing: Mutex<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    bells: Vec<(Kind, SocketAddr)>,
    read: Option<Instant>,
    /// When the directory was last changed, as far as it was known then.
    changed: Option<SystemTime>,
}

impl Ringer {
    /// For the bells in a directory that [`directory`] made.
    pub fn new(directory: &Path) -> Self {
        let socket = std::os::unix::net::UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        if let Err(error) = &socket {
            tracing::debug!(%error, "no bells can be rung");
        }
        Self {
            socket: socket.ok(),
            directory: directory.to_owned(),
            listing: Mutex::default(),
        }
    }

    /// Wakes everybody of this kind, once.
    pub fn ring(&self, target: Target<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        let kind = Kind::of(&target);
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if listing.is_old(&self.directory) {
            listing.renew(&self.directory);
        }
        if !listing.ring(socket, kind) {
            // Somebody died, and may have been replaced by one who is not listed yet. The
            // living are rung twice, which they do not notice.
            listing.renew(&self.directory);
            listing.ring(socket, kind);
        }
    }
}

fn changed(directory: &Path) -> Option<SystemTime> {
    std::fs::metadata(directory).ok()?.modified().ok()
}

impl Listing {
    /// True when somebody may have come since it was read: a process that was just born must
    /// hear of the work that it is for. The directory's time is coarse, so it is not believed
    /// for ever.
    fn is_old(&self, directory: &Path) -> bool {
        self.read.is_none_or(|read| read.elapsed() >= LISTING_TTL)
            || changed(directory) != self.changed
    }

    fn renew(&mut self, directory: &Path) {
        self.read = Some(Instant::now());
        self.changed = changed(directory);
        self.bells.clear();
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        self.bells.extend(entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let kind = Kind::parse(entry.file_name().to_str()?)?;
            entry.file_type().ok()?.is_socket().then_some(())?;
            Some((kind, SocketAddr::from_pathname(entry.path()).ok()?))
        }));
    }

    /// False when one of them was dead; it is removed.
    fn ring(&mut self, socket: &std::os::unix::net::UnixDatagram, kind: Kind) -> bool {
        let before = self.bells.len();
        self.bells.retain(|(other, address)| {
            if *other != kind {
                return true;
            }
            match socket.send_to_addr(&[1], address) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    // The socket of a dead process: its name is never used again.
                    if let Some(path) = address.as_pathname() {
                        let _already_gone = std::fs::remove_file(path);
                    }
                    false
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                // A full queue is a bell that has been rung; anything else is its owner's
                // next poll.
                _ => true,
            }
        });
        self.bells.len() == before
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::testing::{Half, part, place, said, say};
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    async fn is_rung(bell: &mut Bell) -> bool {
        tokio::time::timeout(Duration::from_secs(20), bell.rung())
            .await
            .is_ok()
    }

    /// Nothing is on its way when `ring` has returned, so this need not wait.
    fn is_silent(bell: &Bell) -> bool {
        !bell.drain()
    }

    #[tokio::test]
    async fn everybody_of_the_kind_wakes_and_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        let bind = |name| Bell::bind(place.path(), &name, Uuid::now_v7()).unwrap();
        let mut one = bind(BellName::Worker("a"));
        let mut two = bind(BellName::Worker("a"));
        let other = bind(BellName::Worker("b"));
        let mut advancer = bind(BellName::Advancer);
        let mut supervisor = bind(BellName::Supervisor);
        let ringer = Ringer::new(place.path());
        ringer.ring(Target::Worker("a"));
        assert!(is_rung(&mut one).await && is_rung(&mut two).await);
        assert!(is_silent(&other) && is_silent(&advancer) && is_silent(&supervisor));
        ringer.ring(Target::Advancer);
        assert!(is_rung(&mut advancer).await);
        ringer.ring(Target::Supervisor);
        assert!(is_rung(&mut supervisor).await);
        assert!(is_silent(&one) && is_silent(&other));
    }

    #[tokio::test]
    async fn many_rings_wake_once_and_a_full_bell_blocks_nobody() {
        let place = tempfile::tempdir().unwrap();
        let mut bell = Bell::bind(place.path(), &BellName::Advancer, Uuid::now_v7()).unwrap();
        let ringer = Ringer::new(place.path());
        for _ in 0..5_000 {
            ringer.ring(Target::Advancer);
        }
        assert!(is_rung(&mut bell).await);
        assert!(is_silent(&bell));
        ringer.ring(Target::Advancer);
        assert!(is_rung(&mut bell).await);
    }

    #[tokio::test]
    async fn a_bell_leaves_the_directory_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let process = Uuid::now_v7();
        let bell = Bell::bind(place.path(), &BellName::Worker("a"), process).unwrap();
        let expected = format!("w-ca978112ca1bbdca-{}", process.simple());
        assert_eq!(names(place.path()), [expected]);
        let ringer = Ringer::new(place.path());
        ringer.ring(Target::Worker("a"));
        drop(bell);
        assert!(names(place.path()).is_empty());
        // And the one in its place is heard, though the listing is younger than a second.
        let mut next = Bell::bind(place.path(), &BellName::Worker("a"), Uuid::now_v7()).unwrap();
        ringer.ring(Target::Worker("a"));
        assert!(is_rung(&mut next).await);
    }

    #[test]
    fn the_bell_of_a_killed_process_is_removed() {
        let test = "process::bell::tests::the_bell_of_a_killed_process_is_removed";
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        if part().is_some() {
            let bells = place().join("bells");
            let _bell = Bell::bind(&bells, &BellName::Advancer, Uuid::now_v7()).unwrap();
            say("bound", "");
            loop {
                std::thread::park();
            }
        }
        let place = tempfile::tempdir().unwrap();
        let bells = place.path().join("bells");
        std::fs::create_dir(&bells).unwrap();
        let half = Half::start(test, "advancer", place.path(), &[]);
        said(place.path(), "bound");
        let ringer = Ringer::new(&bells);
        ringer.ring(Target::Advancer);
        assert_eq!(names(&bells).len(), 1);
        drop(half);
        ringer.ring(Target::Advancer);
        assert!(names(&bells).is_empty());
    }

    #[tokio::test]
    async fn a_newcomer_is_heard_within_the_listings_life() {
        let place = tempfile::tempdir().unwrap();
        let ringer = Ringer::new(place.path());
        ringer.ring(Target::Advancer);
        let mut bell = Bell::bind(place.path(), &BellName::Advancer, Uuid::now_v7()).unwrap();
        let waited = async {
            loop {
                ringer.ring(Target::Advancer);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            heard = is_rung(&mut bell) => assert!(heard),
            () = waited => {}
        }
    }

    #[test]
    fn ringing_where_nothing_is_does_nothing() {
        let place = tempfile::tempdir().unwrap();
        Ringer::new(&place.path().join("missing")).ring(Target::Supervisor);
        for file in ["a-", "w-xyz-1", "stranger", "a-0123"] {
            std::fs::write(place.path().join(file), "").unwrap();
        }
        std::fs::write(place.path().join(Kind::Advancer.file_name(Uuid::nil())), "").unwrap();
        Ringer::new(place.path()).ring(Target::Advancer);
        assert_eq!(names(place.path()).len(), 5);
    }

    #[test]
    fn the_directory_is_private_or_not_used() {
        // Not below TMPDIR: a socket's path is short.
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let at = |name: &str| place.path().join(name);
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(at("open")).unwrap();
        mode(&at("open"), 0o755);
        std::fs::create_dir(at("real")).unwrap();
        mode(&at("real"), 0o700);
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        for bad in ["open", "link", "file", "missing/below", &"x".repeat(90)] {
            let error = make_private(&at(bad), "db").unwrap_err();
            assert!(!error.to_string().is_empty(), "{bad}");
        }
        let made = first_usable(&[at("open"), at("link"), at("fresh")], "db").unwrap();
        assert_eq!(made, at("fresh").join(format!("{:016x}", short_hash("db"))));
        assert_eq!(std::fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        // The same again, and another for another database.
        assert_eq!(make_private(&at("fresh"), "db").unwrap(), made);
        assert_ne!(make_private(&at("fresh"), "db2").unwrap(), made);
        mode(&made, 0o770);
        assert!(make_private(&at("fresh"), "db").is_err());
    }
}
