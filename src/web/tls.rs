//! The reason why a connection to another party's server cannot be made safe, in words, with the remedy.
//!
//! Owns: these words. Never: connects, or decides who is trusted.

use std::io;

use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use crate::time;

/// The number of a certificate's names that are shown.
const NAMES: usize = 3;

/// The reason why a handshake with this host failed. `has_ca`: the configuration names the authorities; otherwise
/// the usual ones are trusted.
pub fn refused(error: &io::Error, host: &str, has_ca: bool) -> String {
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(why)) => certificate(why, host, has_ca),
        Some(Error::InvalidMessage(_)) => {
            "the server does not speak TLS at this port: write `http://`, or the port at which it does"
                .to_owned()
        }
        Some(Error::NoCertificatesPresented) => "the server has shown no certificate".to_owned(),
        Some(Error::AlertReceived(alert)) => alerted(*alert),
        Some(Error::PeerIncompatible(_)) => OLD.to_owned(),
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server has closed the connection before it was safe: perhaps it does not speak TLS at this port"
                .to_owned()
        }
        None => error.to_string(),
    }
}

/// The fault of a server that is too old.
const OLD: &str =
    "the server agrees to no version of TLS that is safe: it has to speak TLS 1.2 or 1.3";

fn alerted(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
            "the server asks for a certificate of the console, which has none".to_owned()
        }
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => OLD.to_owned(),
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for this name: see that the address names it as it is known there"
                .to_owned()
        }
        other => format!("the server has refused the handshake: {other:?}"),
    }
}

fn certificate(why: &CertificateError, host: &str, has_ca: bool) -> String {
    use CertificateError as It;
    match why {
        It::Expired => "the server's certificate has expired: renew it there".to_owned(),
        It::ExpiredContext { not_after, .. } => {
            let at = date(*not_after);
            format!("the server's certificate has expired on {at}: renew it there")
        }
        It::NotValidYet => {
            "the server's certificate does not hold yet: look at the clocks of both hosts"
                .to_owned()
        }
        It::NotValidYetContext { not_before, .. } => {
            let at = date(*not_before);
            format!(
                "the server's certificate does not hold before {at}: look at the clocks of both hosts"
            )
        }
        It::UnknownIssuer if has_ca => {
            "no authority in `ca` vouches for the server's certificate: put the one that has issued it into that \
             file, and have the server send the certificates in between"
                .to_owned()
        }
        It::UnknownIssuer => {
            "no authority that is trusted vouches for the server's certificate: name the PEM file of its authority \
             as `ca`"
                .to_owned()
        }
        It::BadSignature => {
            "the server's certificate is not signed by the authority that it names: `ca` may have another of that name"
                .to_owned()
        }
        It::NotValidForName => format!("the server's certificate is not for {host}: {RENAME}"),
        It::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented.iter().take(NAMES).map(|it| bare(it)).collect();
            let (names, more) = (names.join(", "), presented.len().saturating_sub(NAMES));
            match (names.as_str(), more) {
                ("", _) => format!("the server's certificate names no host, not {host} either: {RENAME}"),
                (names, 0) => format!("the server's certificate is for {names}, and not for {host}: {RENAME}"),
                (names, more) => format!(
                    "the server's certificate is for {names} and {more} more, and not for {host}: {RENAME}"
                ),
            }
        }
        It::Revoked => "the server's certificate is revoked: renew it there".to_owned(),
        It::InvalidPurpose | It::InvalidPurposeContext { .. } => {
            "the server's certificate is not one for servers: its extended key usage has no `serverAuth`"
                .to_owned()
        }
        It::Other(_) if why.to_string().contains("CaUsedAsEndEntity") => {
            "the server's certificate is that of an authority: give the server one that the authority has issued, or \
             make it with `basicConstraints=CA:FALSE`"
                .to_owned()
        }
        other => format!("the server's certificate cannot be used: {other}"),
    }
}

/// The remedy for a different name.
const RENAME: &str =
    "write the name that it has into the address, or give the server one for this name";

/// A name without the word for its kind: `DnsName("shop.example")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('"').and_then(|(_, it)| it.rsplit_once('"'));
    inner.map_or(name, |(it, _)| it)
}

fn date(at: UnixTime) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let text = time::rfc3339(seconds.saturating_mul(1_000_000));
    // The time of day does not matter.
    text.split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_rustls::rustls::InvalidMessage;
    use tokio_rustls::rustls::pki_types::ServerName;

    use super::*;

    fn said(error: Error, has_ca: bool) -> String {
        refused(&io::Error::other(error), "shop.example", has_ca)
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_in_words_with_the_way_out() {
        let of = |it| said(Error::InvalidCertificate(it), false);
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let expired = CertificateError::ExpiredContext {
            time: at(1_700_000_000),
            not_after: at(1_600_000_000),
        };
        assert_eq!(
            of(expired),
            "the server's certificate has expired on 2020-09-13: renew it there"
        );
        let early = CertificateError::NotValidYetContext {
            time: at(1_600_000_000),
            not_before: at(1_700_000_000),
        };
        assert!(of(early).contains("does not hold before 2023-11-14: look at the clocks"));
        assert!(of(CertificateError::UnknownIssuer).ends_with("as `ca`"));
        let named = said(
            Error::InvalidCertificate(CertificateError::UnknownIssuer),
            true,
        );
        assert!(named.starts_with("no authority in `ca` vouches"), "{named}");
        let for_names = |n: usize| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("shop.example").unwrap(),
            presented: (0..n)
                .map(|it| format!("DnsName(\"{it}.example\")"))
                .collect(),
        };
        assert!(of(for_names(0)).contains("names no host, not shop.example either: write"));
        assert!(of(for_names(1)).contains("is for 0.example, and not for shop.example: write"));
        let many = of(for_names(9));
        assert!(
            many.contains("is for 0.example, 1.example, 2.example and 6 more, and not"),
            "{many}"
        );
        let other = of(CertificateError::BadEncoding);
        assert!(
            other.starts_with("the server's certificate cannot be used: "),
            "{other}"
        );
    }

    #[test]
    fn a_server_that_speaks_something_else_is_said_to() {
        let plain = said(
            Error::InvalidMessage(InvalidMessage::InvalidContentType),
            false,
        );
        assert!(
            plain.contains("does not speak TLS at this port: write `http://`"),
            "{plain}"
        );
        let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        assert!(refused(&closed, "a", false).contains("perhaps it does not speak TLS"));
        let old = said(
            Error::AlertReceived(AlertDescription::ProtocolVersion),
            false,
        );
        assert!(old.contains("TLS 1.2 or 1.3"), "{old}");
        let asks = said(
            Error::AlertReceived(AlertDescription::CertificateRequired),
            false,
        );
        assert!(asks.contains("a certificate of the console"), "{asks}");
    }
}
