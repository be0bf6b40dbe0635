//! Messages to the service manager (`sd_notify`).
//!
//! Owns: when which message is sent, and in which form. Never: blocks or fails anything; it does not
//! wait for a manager that does not listen, and does not miss one that is not there.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// A message puts off the end of a stop by no more than this. It is repeated every second, so a process that stands
/// still is killed soon.
const PUT_OFF: Duration = Duration::from_secs(30);

/// The time that a stop may take beyond its drain: for the grace of steps, the last sweep and the deregistration.
pub const BEYOND_DRAIN: Duration = Duration::from_secs(15);

/// The connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Notify {
    line: Option<(UnixDatagram, SocketAddr)>,
}

impl Notify {
    /// Connects as `NOTIFY_SOCKET` says; silent without it.
    pub fn from_environment() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        match connect(&address) {
            Ok(line) => Self { line: Some(line) },
            Err(error) => {
                tracing::warn!(%error, socket = ?address, "the service manager cannot be told anything");
                Self::default()
            }
        }
    }

    /// Says that every child is up or, in a role of its own, that the process works.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// Sets the line for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&[NotifyState::Status(&one_line(status))]);
    }

    /// Says that the stop has begun.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Says that the stop goes on, for no longer than this. The manager waits for it, however short the manager's own
    /// limit is.
    pub fn stop_goes_on(&self, left: Duration) {
        let micros = left.min(PUT_OFF).as_micros() as u32;
        if micros > 0 {
            self.send(&[NotifyState::ExtendTimeoutUsec(micros)]);
        }
    }

    /// Says so until the drain and the time beyond it are over.
    pub async fn drain_goes_on(&self, until: Instant) -> Infallible {
        let until = until + BEYOND_DRAIN;
        loop {
            self.stop_goes_on(until.saturating_duration_since(Instant::now()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Says so while a stop hook runs, which has its own bound; not if it ends at once, or if there is none.
    pub async fn hook_goes_on(&self) -> Infallible {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.stop_goes_on(PUT_OFF);
        }
    }

    /// Says that the configuration is being read again; [`ready`](Self::ready) ends the reload.
    /// Without the time, a `systemctl reload` would wait until it fails.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "no monotonic clock"),
        }
    }

    /// Says that the loop goes round. A supervisor calls this from its loop, and never after a wait for the database. A
    /// role of its own calls it while each of its loops has made progress within `WEDGED_AFTER`.
    pub fn watchdog(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Some((socket, to)) = &self.line else {
            return;
        };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        if let Err(error) = socket.send_to_addr(message.as_bytes(), to) {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

/// The crate's own `notify` waits while the manager's queue is full, and does not know abstract
/// addresses, so we use only its vocabulary.
fn connect(address: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

/// A line break would begin another assignment.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r'])
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::testing::{Half, part};
    use super::*;

    /// Listens as a service manager, while the other half of the test talks.
    fn messages(
        test: &str,
        more: &[(&str, &OsStr)],
        listen: UnixDatagram,
        count: usize,
    ) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let test = format!("process::systemd::tests::{test}");
        let mut half = Half::start(&test, "daemon", place.path(), more);
        let messages = heard(&listen, count);
        half.succeeded();
        messages
    }

    fn heard(listen: &UnixDatagram, count: usize) -> Vec<String> {
        listen
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        (0..count)
            .map(|_| {
                let mut buffer = [0; 4096];
                let length = listen.recv(&mut buffer).unwrap();
                String::from_utf8(buffer[..length].to_vec()).unwrap()
            })
            .collect()
    }

    fn play() {
        let notify = match std::env::var_os("TEST_SOCKET") {
            Some(address) => Notify {
                line: Some(connect(&address).unwrap()),
            },
            None => Notify::from_environment(),
        };
        notify.ready();
        notify.status("2 workers\nREADY=0");
        notify.reloading();
        notify.watchdog();
        notify.stopping();
        notify.stop_goes_on(Duration::ZERO);
        notify.stop_goes_on(Duration::from_secs(7));
        notify.stop_goes_on(Duration::from_secs(7_000_000));
    }

    fn assert_messages(messages: &[String]) {
        assert_eq!(messages[0], "READY=1\n");
        assert_eq!(messages[1], "STATUS=2 workers READY=0\n");
        let micros = messages[2]
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap();
        assert!(micros.trim_end().parse::<u64>().unwrap() > 0);
        assert_eq!(messages[3], "WATCHDOG=1\n");
        assert_eq!(messages[4], "STOPPING=1\n");
        // Never a time that is longer than the bound of the stop.
        assert_eq!(messages[5], "EXTEND_TIMEOUT_USEC=7000000\n");
        assert_eq!(messages[6], "EXTEND_TIMEOUT_USEC=30000000\n");
    }

    #[test]
    fn a_manager_is_told_everything() {
        if part().is_some() {
            return play();
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let listen = UnixDatagram::bind(&path).unwrap();
        let more: [(&str, &OsStr); 1] = [("TEST_SOCKET", path.as_os_str())];
        assert_messages(&messages("a_manager_is_told_everything", &more, listen, 7));
    }

    #[test]
    fn an_abstract_address_is_understood() {
        if part().is_some() {
            return play();
        }
        let name = format!("ductwork-test-{}", std::process::id());
        let listen =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let address = format!("@{name}");
        let more: [(&str, &OsStr); 1] = [("TEST_SOCKET", address.as_ref())];
        assert_messages(&messages(
            "an_abstract_address_is_understood",
            &more,
            listen,
            7,
        ));
    }

    #[test]
    fn the_environment_says_where_and_is_not_handed_on() {
        let test = "process::systemd::tests::the_environment_says_where_and_is_not_handed_on";
        match part().as_deref() {
            Some("daemon") => {
                play();
                let place = super::super::testing::place();
                Half::start(test, "child", &place, &[]).succeeded();
            }
            Some(_) => {
                for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
                    assert!(std::env::var_os(name).is_none(), "{name} was handed on");
                }
                play();
            }
            None => {
                let place = tempfile::tempdir().unwrap();
                let path = place.path().join("notify");
                let listen = UnixDatagram::bind(&path).unwrap();
                let status = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(&super::super::testing::argv(test)[1..])
                    .env("DUCTWORK_TEST_PART", "daemon")
                    .env("DUCTWORK_TEST_PLACE", place.path())
                    .env("NOTIFY_SOCKET", &path)
                    .env("WATCHDOG_USEC", "30000000")
                    .status()
                    .unwrap();
                assert!(status.success());
                assert_messages(&heard(&listen, 7));
                listen.set_nonblocking(true).unwrap();
                assert!(listen.recv(&mut [0; 64]).is_err());
            }
        }
    }

    #[test]
    fn without_a_manager_or_with_a_dead_or_deaf_one_nothing_fails_or_blocks() {
        play_with(Notify::default());
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let listen = UnixDatagram::bind(&path).unwrap();
        let notify = Notify {
            line: Some(connect(&path.into_os_string()).unwrap()),
        };
        // The manager is deaf: its queue is full long before.
        for _ in 0..10_000 {
            notify.watchdog();
        }
        drop(listen);
        play_with(notify);
    }

    fn play_with(notify: Notify) {
        notify.ready();
        notify.watchdog();
        notify.stopping();
    }
}
