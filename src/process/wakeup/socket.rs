//! Wakeups between the processes of one host: "there is work".
//!
//! Owns: a private directory with one datagram socket per process that wants to be woken. Never:
//! carries data, blocks, or fails a process: a lost wakeup costs the wait until the next poll,
//! because the truth is in the database.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// How long a listing of the directory is trusted.
const LISTING_TTL: Duration = Duration::from_secs(1);
/// The longest path that fits into a socket's address.
const SOCKET_PATH_MAX: usize = 107;
/// The longest name in the directory: `w-`, 16 digits, `-`, 32 digits.
const NAME_MAX: usize = 2 + 16 + 1 + 32;

/// The process that wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipient<'a> {
    /// A branch may be ready to be advanced.
    Advancer,
    /// A step of this pipeline may be ready to run.
    Worker(&'a str),
    /// Something may have changed that the supervisor waits for.
    Supervisor,
    /// Somebody's claims may have been taken away: a run was cancelled.
    Claims,
}

/// The kind of a recipient, comparable without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Advancer,
    Worker(u64),
    Supervisor,
    Claims,
}

impl Kind {
    fn of(name: &Recipient<'_>) -> Self {
        match name {
            Recipient::Advancer => Self::Advancer,
            Recipient::Worker(pipeline) => Self::Worker(short_hash(pipeline)),
            Recipient::Supervisor => Self::Supervisor,
            Recipient::Claims => Self::Claims,
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

/// The directory of the processes that share a database, created if need be: private to this user.
/// `database` is any text that identifies it, the same in all of them.
pub fn directory(database: &str) -> io::Result<PathBuf> {
    let own = nix::unistd::geteuid();
    let mut candidates = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty()) {
        candidates.push(PathBuf::from(runtime).join("ductwork"));
    }
    // That of a service, or of root: others cannot make it. A service may have a `/tmp` that no command sees.
    candidates.push(PathBuf::from("/run/ductwork"));
    candidates.push(PathBuf::from(format!("/tmp/ductwork-{own}")));
    first_usable(&candidates, database)
}

/// The existing directories among those that processes of this user with this database, or with any, may use, whatever
/// their environment: a service has no login's runtime directory, but the process that looks may have one.
pub fn directories(database: Option<&str>) -> Vec<PathBuf> {
    let own = nix::unistd::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty());
    let parents = runtime.map(|runtime| PathBuf::from(runtime).join("ductwork"));
    let parents = parents.into_iter().chain([
        PathBuf::from(format!("/run/user/{own}/ductwork")),
        PathBuf::from("/run/ductwork"),
        PathBuf::from(format!("/tmp/ductwork-{own}")),
    ]);
    let of_each = |parent: PathBuf| match database {
        Some(database) => vec![parent.join(format!("{:016x}", short_hash(database)))],
        None => std::fs::read_dir(parent)
            .map(|entries| entries.filter_map(|it| Some(it.ok()?.path())).collect())
            .unwrap_or_default(),
    };
    let mut found: Vec<PathBuf> = parents
        .flat_map(of_each)
        .filter(|directory| {
            let found = std::fs::symlink_metadata(directory);
            found.is_ok_and(|it| it.is_dir() && it.uid() == own.as_raw())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn first_usable(candidates: &[PathBuf], database: &str) -> io::Result<PathBuf> {
    let mut last = io::Error::other("no private directory for the sockets");
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
    // The parent first, so that nobody can replace our directory with another one.
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

/// The socket that wakes this process. Removed from the directory when dropped.
#[derive(Debug)]
pub struct WakeupSocket {
    socket: tokio::net::UnixDatagram,
    path: PathBuf,
}

impl WakeupSocket {
    /// Binds it in a directory that [`directory`] made. Needs a tokio runtime.
    pub fn bind(directory: &Path, name: &Recipient<'_>, process: Uuid) -> io::Result<Self> {
        let path = directory.join(Kind::of(name).file_name(process));
        Ok(Self {
            socket: tokio::net::UnixDatagram::bind(&path)?,
            path,
        })
    }

    /// Waits for a wakeup that came after the last returned one. A hundred of them count as one.
    /// Cancel-safe: a wakeup that was not returned is returned the next time.
    pub async fn woken(&mut self) {
        loop {
            // An error here (none is known for such a socket) must not become a loop that never rests.
            if self.socket.readable().await.is_err() {
                return std::future::pending().await;
            }
            if self.drain() {
                return;
            }
        }
    }

    /// Takes all waiting wakeups; true if there were any.
    fn drain(&self) -> bool {
        let mut woken = false;
        let mut buffer = [0; 1];
        loop {
            match self.socket.try_recv(&mut buffer) {
                Ok(_) => woken = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return woken,
            }
        }
    }
}

impl Drop for WakeupSocket {
    fn drop(&mut self) {
        // If we cannot remove it, the next sender finds it dead and removes it.
        let _left_behind = std::fs::remove_file(&self.path);
    }
}

/// Wakes others. Cheap enough to be called after every commit: while the listing of the directory is
/// trusted, it makes one system call per socket and no allocation.
#[derive(Debug)]
pub struct Sender {
    /// `None` when no datagram can be sent: then it wakes nobody.
    socket: Option<std::os::unix::net::UnixDatagram>,
    directory: PathBuf,
    listing: Mutex<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    sockets: Vec<(Kind, SocketAddr)>,
    read: Option<Instant>,
    /// When the directory was last changed, as far as this was known at that time.
    changed: Option<SystemTime>,
}

impl Sender {
    /// For the sockets in a directory that [`directory`] made.
    pub fn new(directory: &Path) -> Self {
        let socket = std::os::unix::net::UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        if let Err(error) = &socket {
            tracing::debug!(%error, "other processes cannot be woken");
        }
        Self {
            socket: socket.ok(),
            directory: directory.to_owned(),
            listing: Mutex::default(),
        }
    }

    /// Wakes all processes of this kind, once.
    pub fn wake(&self, target: Recipient<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        let kind = Kind::of(&target);
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if listing.is_old(&self.directory) {
            listing.renew(&self.directory);
        }
        if !listing.wake(socket, kind) {
            // A process died, and one that is not listed yet may have replaced it. The living are
            // woken twice, which they do not notice.
            listing.renew(&self.directory);
            listing.wake(socket, kind);
        }
    }
}

fn changed(directory: &Path) -> Option<SystemTime> {
    std::fs::metadata(directory).ok()?.modified().ok()
}

impl Listing {
    /// True when a process may have come since the listing was read: a process that was just born must hear
    /// of the work that it is for. The directory's time is coarse, so the listing is not trusted for ever.
    fn is_old(&self, directory: &Path) -> bool {
        self.read.is_none_or(|read| read.elapsed() >= LISTING_TTL)
            || changed(directory) != self.changed
    }

    fn renew(&mut self, directory: &Path) {
        self.read = Some(Instant::now());
        self.changed = changed(directory);
        self.sockets.clear();
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        self.sockets.extend(entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let kind = Kind::parse(entry.file_name().to_str()?)?;
            entry.file_type().ok()?.is_socket().then_some(())?;
            Some((kind, SocketAddr::from_pathname(entry.path()).ok()?))
        }));
    }

    /// False when one of them was dead; its socket is removed.
    fn wake(&mut self, socket: &std::os::unix::net::UnixDatagram, kind: Kind) -> bool {
        let before = self.sockets.len();
        self.sockets.retain(|(other, address)| {
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
                // A full queue means that a wakeup is under way; with any other error the recipient
                // looks at its next poll.
                _ => true,
            }
        });
        self.sockets.len() == before
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::process::testing::{Half, part, place, said, say};

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    async fn is_woken(socket: &mut WakeupSocket) -> bool {
        tokio::time::timeout(Duration::from_secs(20), socket.woken())
            .await
            .is_ok()
    }

    /// No wakeup is on its way when `wake` has returned, so this need not wait.
    fn is_silent(socket: &WakeupSocket) -> bool {
        !socket.drain()
    }

    #[tokio::test]
    async fn everybody_of_the_kind_wakes_and_nobody_else() {
        let place = tempfile::tempdir().unwrap();
        let bind = |name| WakeupSocket::bind(place.path(), &name, Uuid::now_v7()).unwrap();
        let mut one = bind(Recipient::Worker("a"));
        let mut two = bind(Recipient::Worker("a"));
        let other = bind(Recipient::Worker("b"));
        let mut advancer = bind(Recipient::Advancer);
        let mut supervisor = bind(Recipient::Supervisor);
        let sender = Sender::new(place.path());
        sender.wake(Recipient::Worker("a"));
        assert!(is_woken(&mut one).await && is_woken(&mut two).await);
        assert!(is_silent(&other) && is_silent(&advancer) && is_silent(&supervisor));
        sender.wake(Recipient::Advancer);
        assert!(is_woken(&mut advancer).await);
        sender.wake(Recipient::Supervisor);
        assert!(is_woken(&mut supervisor).await);
        assert!(is_silent(&one) && is_silent(&other));
    }

    #[tokio::test]
    async fn many_wakeups_count_once_and_a_full_socket_blocks_nobody() {
        let place = tempfile::tempdir().unwrap();
        let mut socket =
            WakeupSocket::bind(place.path(), &Recipient::Advancer, Uuid::now_v7()).unwrap();
        let sender = Sender::new(place.path());
        for _ in 0..5_000 {
            sender.wake(Recipient::Advancer);
        }
        assert!(is_woken(&mut socket).await);
        assert!(is_silent(&socket));
        sender.wake(Recipient::Advancer);
        assert!(is_woken(&mut socket).await);
    }

    #[tokio::test]
    async fn a_socket_leaves_the_directory_with_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let process = Uuid::now_v7();
        let socket = WakeupSocket::bind(place.path(), &Recipient::Worker("a"), process).unwrap();
        let expected = format!("w-ca978112ca1bbdca-{}", process.simple());
        assert_eq!(names(place.path()), [expected]);
        let sender = Sender::new(place.path());
        sender.wake(Recipient::Worker("a"));
        drop(socket);
        assert!(names(place.path()).is_empty());
        // The process in its place is heard, though the listing is younger than a second.
        let mut next =
            WakeupSocket::bind(place.path(), &Recipient::Worker("a"), Uuid::now_v7()).unwrap();
        sender.wake(Recipient::Worker("a"));
        assert!(is_woken(&mut next).await);
    }

    #[test]
    fn the_socket_of_a_killed_process_is_removed() {
        let test = "process::wakeup::socket::tests::the_socket_of_a_killed_process_is_removed";
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _guard = runtime.enter();
        if part().is_some() {
            let sockets = place().join("sockets");
            let _socket =
                WakeupSocket::bind(&sockets, &Recipient::Advancer, Uuid::now_v7()).unwrap();
            say("bound", "");
            loop {
                std::thread::park();
            }
        }
        let place = tempfile::tempdir().unwrap();
        let sockets = place.path().join("sockets");
        std::fs::create_dir(&sockets).unwrap();
        let half = Half::start(test, "advancer", place.path(), &[]);
        said(place.path(), "bound");
        let sender = Sender::new(&sockets);
        sender.wake(Recipient::Advancer);
        assert_eq!(names(&sockets).len(), 1);
        drop(half);
        sender.wake(Recipient::Advancer);
        assert!(names(&sockets).is_empty());
    }

    #[tokio::test]
    async fn a_newcomer_is_heard_within_the_listings_life() {
        let place = tempfile::tempdir().unwrap();
        let sender = Sender::new(place.path());
        sender.wake(Recipient::Advancer);
        let mut socket =
            WakeupSocket::bind(place.path(), &Recipient::Advancer, Uuid::now_v7()).unwrap();
        let waited = async {
            loop {
                sender.wake(Recipient::Advancer);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            heard = is_woken(&mut socket) => assert!(heard),
            () = waited => {}
        }
    }

    #[test]
    fn waking_where_nobody_is_does_nothing() {
        let place = tempfile::tempdir().unwrap();
        Sender::new(&place.path().join("missing")).wake(Recipient::Supervisor);
        for file in ["a-", "w-xyz-1", "stranger", "a-0123"] {
            std::fs::write(place.path().join(file), "").unwrap();
        }
        std::fs::write(place.path().join(Kind::Advancer.file_name(Uuid::nil())), "").unwrap();
        Sender::new(place.path()).wake(Recipient::Advancer);
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
        // The same directory again, and a different one for another database.
        assert_eq!(make_private(&at("fresh"), "db").unwrap(), made);
        assert_ne!(make_private(&at("fresh"), "db2").unwrap(), made);
        mode(&made, 0o770);
        assert!(make_private(&at("fresh"), "db").is_err());
    }
}
