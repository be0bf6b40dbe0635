//! The effects of the store's failpoints on a connection; see [`crate::failpoint`].
//!
//! Owns: the errors that they raise, which look like the driver's. Never: in a program that is
//! built without the feature `failpoints`.

use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;

use crate::failpoint::{self, Class, Fault};

use super::conn::Conn;
use super::error::{Error, Source};

impl Conn {
    /// Fails if a failpoint is set here.
    pub(super) fn reach(&mut self, name: &'static str) -> Result<(), Error> {
        let source = || {
            let error = IoError::new(ErrorKind::ConnectionReset, name);
            Arc::new(Source::Io(error))
        };
        match failpoint::reach(name) {
            None => Ok(()),
            Some(Fault::Error(Class::Retryable)) => Err(Error::Retryable {
                statement: name,
                source: source(),
            }),
            Some(Fault::Error(Class::Hindered)) => Err(Error::Hindered {
                statement: name,
                source: source(),
            }),
            Some(Fault::Error(Class::Refused)) => Err(Error::Refused {
                statement: name,
                source: source(),
            }),
            Some(Fault::Error(Class::Unavailable) | Fault::Cut) => {
                self.cut();
                Err(Error::Unavailable {
                    source: source(),
                    in_commit: false,
                })
            }
            Some(Fault::Lost) => {
                self.cut();
                Err(Error::Unavailable {
                    source: source(),
                    in_commit: true,
                })
            }
        }
    }

    /// Same effect as the driver's own error: everything on the connection is closed with it.
    fn cut(&mut self) {
        self.broken |= self.dialect().backend().is_server();
    }
}
