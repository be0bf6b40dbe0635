//! The collector that traces are sent to.
//!
//! Owns: the notation of its settings. Never: sends anything.

use std::path::PathBuf;

use hyper::Uri;
use hyper::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING, USER_AGENT,
};

use crate::yaml::{Fault, Node};

use super::keys::Key;
use super::value::{self, Faults};
use super::webhooks::url;

/// The largest number of headers.
const HEADERS_MAX: usize = 16;

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// The whole address, with its path: `http` or `https`, with a host; `None`: traces are sent nowhere.
    pub endpoint: Option<Uri>,
    /// Further headers; nothing shows their values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The file of the authorities that vouch for it; `None`: the usual ones.
    pub ca: Option<PathBuf>,
}

/// `none`, or an address.
pub fn endpoint(node: &Node, key: &Key) -> Result<Option<Uri>, Faults> {
    match node.as_text().filter(|_| !node.is_null()) {
        Some("none") => Ok(None),
        _ => url(node, &format!("`{}`", key.path))
            .map(Some)
            .map_err(|fault| vec![fault]),
    }
}

/// A map of names and values.
pub fn headers(node: &Node, key: &Key) -> Result<Vec<(HeaderName, HeaderValue)>, Faults> {
    let fault = |node: &Node, message: String| {
        let help = "write `{ authorization: \"Bearer ${TOKEN}\" }`";
        Fault::new(node.at, message).help(help)
    };
    let Some(entries) = node.as_map().filter(|it| it.len() <= HEADERS_MAX) else {
        let path = key.path;
        let message = match node.as_map() {
            None => format!("`{path}` takes a map of headers, not {}", node.describe()),
            Some(_) => format!("`{path}` takes at most {HEADERS_MAX} headers"),
        };
        return Err(vec![fault(node, message)]);
    };
    let (mut headers, mut faults) = (Vec::new(), Vec::new());
    for entry in entries {
        let Ok(name) = entry.key.parse::<HeaderName>() else {
            let message = format!("`{}`: this is not a valid header name", key.path);
            faults.push(fault(&entry.value, message));
            continue;
        };
        if is_ours(&name) {
            let message = format!(
                "`{}`: `{name}` cannot be set here: each request has its own",
                key.path
            );
            faults.push(fault(&entry.value, message));
            continue;
        }
        let text = entry.value.as_text().filter(|it| !it.is_empty());
        let text = text.filter(|_| !entry.value.is_null());
        let value = text.and_then(|it| it.parse::<HeaderValue>().ok());
        let Some(mut value) = value else {
            // Nothing of it is shown: it may be a secret with a line break too many.
            let message = format!(
                "`{}`: the value of `{name}` is not a valid header value",
                key.path
            );
            faults.push(fault(&entry.value, message));
            continue;
        };
        value.set_sensitive(true);
        headers.push((name, value));
    }
    match faults.is_empty() {
        true => Ok(headers),
        false => Err(faults),
    }
}

/// Each request has these anyway.
fn is_ours(name: &HeaderName) -> bool {
    let ours = [
        HOST,
        CONNECTION,
        CONTENT_TYPE,
        CONTENT_LENGTH,
        CONTENT_ENCODING,
        TRANSFER_ENCODING,
        USER_AGENT,
    ];
    ours.contains(name)
}

/// `none`, or the path of a file of authorities.
pub fn ca(node: &Node, key: &Key) -> Result<Option<PathBuf>, Faults> {
    value::file(node, key, "write the path of a PEM file, or `none`")
}
