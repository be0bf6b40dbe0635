//! Doors: the places at which the console listens.
//!
//! Owns: an address, a socket in the file system, and the permissions that decide who may connect to the socket.
//! Never: reads from a connection.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::peer::Peer;

/// The pause between two attempts to take a place that another process still has.
const AGAIN: Duration = Duration::from_millis(50);

/// The time limit for finding out whether a process listens at the socket.
const ASKED_WITHIN: Duration = Duration::from_secs(1);

/// The owner and the group may connect.
const PERMISSIONS: Mode = Mode::from_bits_truncate(0o660);

/// The number of connections that may wait in the kernel.
const WAITING: i32 = 1_024;

/// The places at which a console listens: one, or both.
pub struct Doors {
    address: Option<TcpListener>,
    socket: Option<Socket>,
}

/// An accepted connection.
pub enum Guest {
    /// From any host, over TCP.
    Far(TcpStream),
    /// From this host, through the socket.
    Near(UnixStream),
}

impl Doors {
    /// The doors that are open.
    pub fn new(address: Option<TcpListener>, socket: Option<Socket>) -> Self {
        Self { address, socket }
    }

    /// Makes the socket anew if somebody has deleted its file: nobody could connect to it any more.
    pub async fn look_after(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        match std::fs::symlink_metadata(&socket.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = socket.path.clone();
                self.socket = Some(Socket::open(&path).await?);
                tracing::warn!(socket = %path.display(), "somebody has deleted the console's socket: it was made anew");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<(Guest, Peer)> {
        let far = async {
            match &self.address {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let near = async {
            match &self.socket {
                Some(socket) => socket.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = far => {
                let (stream, from) = accepted?;
                Ok((Guest::Far(stream), Peer::At(from.ip())))
            }
            accepted = near => {
                let (stream, _) = accepted?;
                let peer = Peer::User(stream.peer_cred()?.uid());
                Ok((Guest::Near(stream), peer))
            }
        }
    }
}

/// Tries again for this long while another process has the place: a predecessor that drains.
pub async fn when_free<T>(
    within: Duration,
    open: impl AsyncFn() -> io::Result<T>,
) -> io::Result<T> {
    let until = Instant::now() + within;
    loop {
        match open().await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// A socket in the file system, whose file is deleted when this value is dropped.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Identifies the file, as long as nobody has put another in its place.
    inode: u64,
}

impl Socket {
    /// Listens at this path. A socket at which nobody listens any more, such as that of a killed console, is replaced.
    ///
    /// # Errors
    /// The path is that of a file that is no socket or of a socket at which a process listens, or its directory does
    /// not exist or is not writable.
    pub async fn open(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => {
                let text = "there is something that is no socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            Ok(_) if is_listened_at(path).await => return Err(io::ErrorKind::AddrInUse.into()),
            _ => {}
        }
        // RACE: a client connects between the call that makes the file and the call that restricts it, or finds no
        // file between the end of the old one and the creation of the new one. So the new file is made beside the old
        // one, with its permissions, and then replaces it. Proven by
        // `a_console_that_was_killed_leaves_a_socket_that_the_next_one_replaces`.
        let mut beside = OsString::from(path);
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let made = bind(&beside).and_then(|listener| {
            let inode = std::fs::symlink_metadata(&beside)?.ino();
            std::fs::rename(&beside, path)?;
            Ok((listener, inode))
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        let (listener, inode) = made?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            path: path.to_owned(),
            inode,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A successor's socket is another file.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// False only if it is certain that nobody listens: a process that does not answer in time, whose queue is full, or to
/// which this user may not connect, may be listening.
async fn is_listened_at(path: &Path) -> bool {
    match tokio::time::timeout(ASKED_WITHIN, UnixStream::connect(path)).await {
        Ok(Err(error)) => !matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ),
        Ok(Ok(_)) | Err(_) => true,
    }
}

/// A socket at this path that has its permissions from the beginning: the kernel takes those of the descriptor.
fn bind(path: &Path) -> io::Result<StdUnixListener> {
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket: OwnedFd = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&socket, PERMISSIONS)?;
    let _ = std::fs::remove_file(path);
    socket::bind(socket.as_raw_fd(), &address)?;
    // The process's own mask has removed some of them.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(PERMISSIONS.bits());
    std::fs::set_permissions(path, permissions)?;
    socket::listen(&socket, Backlog::new(WAITING)?)?;
    Ok(socket.into())
}
