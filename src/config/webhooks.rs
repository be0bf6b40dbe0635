//! The endpoints that are notified of runs.
//!
//! Owns: their notation, and what an address and a secret must be. Never: sends anything.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;

use crate::machine::webhook::{EVENTS, Interest, event};
use crate::problem::nearest;
use crate::yaml::{Fault, Node, Value};

use super::keys::Key;
use super::value::{Faults, unknown_key};

/// The largest number of endpoints; each means a few messages at once.
const ENDPOINTS_MAX: usize = 16;

/// The most letters of a name.
const NAME_MAX: usize = 64;

/// The most bytes of an address.
const URL_MAX: usize = 2_000;

/// The bytes of a secret, as Standard Webhooks requires.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;

/// The most secrets of an endpoint at once: a new one, those that it is to replace, and no more.
const SECRETS_MAX: usize = 3;

/// The beginning of a secret.
const PREFIX: &str = "whsec_";

const NAMES: [&str; 6] = ["name", "url", "secret", "events", "pipelines", "ca"];

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name, by which it is known to the database.
    pub name: String,
    /// Where messages go: `http` or `https`, with a host.
    pub url: Uri,
    /// The file of the authorities that vouch for it; `None`: the usual ones.
    pub ca: Option<PathBuf>,
    /// The keys of its signatures, the newest first: each signs.
    pub secrets: Vec<SigningKey>,
    /// The runs of which it is notified.
    pub interest: Interest,
}

/// The key of signatures; nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// Reads `whsec_` and 24 to 64 bytes in base64.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        SECRET.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("…")
    }
}

/// A list of endpoints.
pub fn webhooks(node: &Node, key: &Key) -> Result<Vec<Endpoint>, Faults> {
    let Some(items) = node.as_list() else {
        let message = format!(
            "`{}` takes a list of endpoints, not {}",
            key.path,
            node.describe()
        );
        let help = "write `- { name: shop, url: \"https://shop.example/hooks\", secret: \"${SHOP_SECRET}\" }`";
        return Err(vec![Fault::new(node.at, message).help(help)]);
    };
    let (mut endpoints, mut faults) = (Vec::<Endpoint>::new(), Vec::new());
    if items.len() > ENDPOINTS_MAX {
        let message = format!("`{}` takes at most {ENDPOINTS_MAX} endpoints", key.path);
        faults.push(Fault::new(node.at, message));
    }
    for item in items.iter().take(ENDPOINTS_MAX) {
        match endpoint(item, key) {
            Ok(endpoint) if endpoints.iter().any(|it| it.name == endpoint.name) => {
                let message = format!("two endpoints are named `{}`", endpoint.name);
                faults.push(Fault::new(item.at, message).help("give each a name of its own"));
            }
            Ok(endpoint) => endpoints.push(endpoint),
            Err(more) => faults.extend(more),
        }
    }
    match faults.is_empty() {
        true => Ok(endpoints),
        false => Err(faults),
    }
}

/// The names of the endpoints of a list, whatever else of it can be read.
pub fn names(node: &Node) -> Vec<String> {
    let items = node.as_list().unwrap_or_default().iter();
    let named = items.filter_map(|it| name(it.get("name")?).ok());
    named.take(ENDPOINTS_MAX).collect()
}

fn endpoint(node: &Node, key: &Key) -> Result<Endpoint, Faults> {
    let Some(entries) = node.as_map() else {
        let message = format!(
            "an endpoint of `{}` is a map, not {}",
            key.path,
            node.describe()
        );
        return Err(vec![
            Fault::new(node.at, message).help(format!("its keys: {}", NAMES.join(", "))),
        ]);
    };
    let unknown = entries
        .iter()
        .filter(|it| !NAMES.contains(&it.key.as_str()) && !it.key.starts_with("x-"));
    let mut faults: Faults = unknown
        .map(|it| unknown_key(&it.key, it.at, key.path, &NAMES))
        .collect();
    let part = |name: &str| node.get(name).filter(|it| !it.is_null());
    let mut missing = |name: &str, help: &str| {
        let message = format!("an endpoint of `{}` has no `{name}`", key.path);
        faults.push(Fault::new(node.at, message).help(help));
    };
    if part("name").is_none() {
        missing(
            "name",
            "give it a name, which stays the same when its address changes",
        );
    }
    if part("url").is_none() {
        missing(
            "url",
            "write where messages go: `https://shop.example/hooks`",
        );
    }
    if part("secret").is_none() {
        missing("secret", SECRET_HELP);
    }
    let mut take = |fault: Fault| faults.push(fault);
    let name = part("name").and_then(|it| name(it).map_err(&mut take).ok());
    let url =
        part("url").and_then(|it| url(it, "the `url` of an endpoint").map_err(&mut take).ok());
    let ca = part("ca").and_then(|it| ca(it, url.as_ref()).map_err(&mut take).ok());
    let secrets = part("secret").map_or_else(Vec::new, |it| secrets(it, node, &mut take));
    let mut events = EVENTS.to_vec();
    if let Some(given) = part("events") {
        events = Vec::new();
        for (at, text) in texts(given) {
            let known = EVENTS.into_iter().find(|it| event(*it) == text);
            match known {
                Some(known) if events.contains(&known) => {}
                Some(known) => events.push(known),
                None => take(unknown_event(at, &text)),
            }
        }
        if events.is_empty() && texts(given).is_empty() {
            take(unknown_event(given, ""));
        }
    }
    let mut pipelines = Vec::new();
    if let Some(given) = part("pipelines") {
        let all = texts(given);
        for (at, text) in &all {
            match text.as_str() {
                "" => take(Fault::new(
                    at.at,
                    "`pipelines` of an endpoint takes names of pipelines",
                )),
                text => pipelines.push(text.to_owned()),
            }
        }
        if all.is_empty() {
            let message = "`pipelines` of an endpoint is empty: the endpoint would receive nothing";
            take(
                Fault::new(given.at, message)
                    .help("leave it out to receive the events of all pipelines"),
            );
        }
    }
    match (name, url, faults.is_empty()) {
        (Some(name), Some(url), true) => Ok(Endpoint {
            name,
            url,
            ca,
            secrets,
            interest: Interest { events, pipelines },
        }),
        _ => Err(faults),
    }
}

/// One text, or a list of texts; a value that is not a text counts as an empty one.
fn texts(node: &Node) -> Vec<(&Node, String)> {
    let text = |node: &Node| node.as_text().unwrap_or_default().to_owned();
    match &node.value {
        Value::List(items) => items.iter().map(|it| (it, text(it))).collect(),
        _ => vec![(node, text(node))],
    }
}

fn unknown_event(node: &Node, text: &str) -> Fault {
    let all = EVENTS.map(event);
    let meant = nearest(text, all.iter().map(String::as_str)).or_else(|| {
        all.iter()
            .map(String::as_str)
            .find(|it| it.strip_prefix("run.") == Some(text))
    });
    let suggestion = meant.map_or_else(String::new, |it| format!("did you mean `{it}`? "));
    let message = format!("there is no event {}", node.describe());
    Fault::new(node.at, message).help(format!("{suggestion}events: {}", all.join(", ")))
}

fn name(node: &Node) -> Result<String, Fault> {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match node.as_text() {
        Some(text) if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(of_name) => {
            Ok(text.to_owned())
        }
        _ => {
            let message = format!("the name of an endpoint is a word, not {}", node.describe());
            let help = format!("write up to {NAME_MAX} letters, digits, `-`, `.` and `_`");
            Err(Fault::new(node.at, message).help(help))
        }
    }
}

/// An HTTP address.
pub(super) fn url(node: &Node, what: &str) -> Result<Uri, Fault> {
    // A path may be a secret, and the mistake is at the beginning.
    let refuse = |why: &str| {
        let message = format!("{what} {why}");
        let help =
            "write `https://HOST/PATH`, or `http://` within a network on which nobody eavesdrops";
        Err(Fault::new(node.at, message).help(help))
    };
    let text = node.as_text().unwrap_or_default();
    if text.len() > URL_MAX {
        return refuse(&format!("is longer than {URL_MAX} bytes"));
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return refuse("is not a URL");
    };
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().filter(|it| !it.host().is_empty());
    match authority {
        _ if !is_http => refuse("begins neither with `https://` nor with `http://`"),
        None => refuse("names no host"),
        Some(authority) if authority.as_str().contains('@') => {
            refuse("contains a user, which would never be sent")
        }
        // A port that is not valid would be dropped otherwise.
        Some(authority) if authority.as_str().ends_with(':') || has_no_port(authority) => {
            refuse("has an invalid port")
        }
        Some(_) => Ok(uri),
    }
}

/// The file of the authorities that vouch for an endpoint.
fn ca(node: &Node, url: Option<&Uri>) -> Result<PathBuf, Fault> {
    let of_http = url.is_some_and(|it| it.scheme_str() == Some("http"));
    match node.as_text() {
        _ if of_http => {
            let message = "the `ca` of an endpoint has no effect: its `url` begins with `http://`";
            Err(Fault::new(node.at, message).help("write `https://`, or leave `ca` out"))
        }
        Some(text) if !text.is_empty() && !text.contains('\0') => Ok(text.into()),
        _ => {
            let message = format!("the `ca` of an endpoint is a path, not {}", node.describe());
            let help = "write the path of a PEM file, which is relative to the configuration file's directory";
            Err(Fault::new(node.at, message).help(help))
        }
    }
}

fn has_no_port(authority: &hyper::http::uri::Authority) -> bool {
    let after = authority.as_str().strip_prefix(authority.host());
    after.is_some_and(|it| !it.is_empty()) && authority.port_u16().is_none_or(|port| port == 0)
}

const SECRET_HELP: &str = "write `\"${VARIABLE}\"`, and set the variable to `whsec_` and 24 to 64 random bytes in base64: \
     `head -c 32 /dev/urandom | base64` makes the second part";

/// One secret, or a list of them, of which the first is the newest. Faults have the place of the endpoint: the
/// line of a secret would show the secret.
fn secrets(node: &Node, endpoint: &Node, take: &mut impl FnMut(Fault)) -> Vec<SigningKey> {
    let all = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if !(1..=SECRETS_MAX).contains(&all.len()) {
        let message =
            format!("`secret` of an endpoint takes one secret, or a list of up to {SECRETS_MAX}");
        let help =
            "write the newest first, and take the oldest out when the endpoint knows the newest";
        take(Fault::new(endpoint.at, message).help(help));
        return Vec::new();
    }
    let mut keys = Vec::new();
    for item in all {
        match secret(item) {
            Ok(key) if keys.contains(&key) => {
                let message = "`secret` of an endpoint contains one secret twice";
                take(Fault::new(endpoint.at, message).help("take one of the two out"));
            }
            Ok(key) => keys.push(key),
            Err(message) => take(Fault::new(endpoint.at, message).help(SECRET_HELP)),
        }
    }
    keys
}

/// The message contains nothing of the text: it may be a secret that was only cut off.
fn secret(node: &Node) -> Result<SigningKey, &'static str> {
    SigningKey::read(node.as_text().unwrap_or_default())
        .ok_or("the `secret` of an endpoint is not `whsec_` and 24 to 64 bytes in base64")
}
