//! Where the database is: which kind, and an address whose password is never printed.
//!
//! Owns: reading and redacting `database.url`. Never: connects.

use std::fmt::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::percent;
use crate::problem::nearest;
use crate::store::backend::mysql::url::{Address, ENCODED};
use crate::store::backend::postgres::hosts::{self, Hosts};

/// The address of the database. `Debug` and `Display` show `***` for its password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    url: String,
    path: Option<PathBuf>,
}

/// Why an address is refused: the mistake, and the remedy. Names no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    /// Lowercase, no full stop.
    pub message: String,
    /// The remedy.
    pub help: String,
}

fn refuse<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError {
        message: message.into(),
        help: help.into(),
    })
}

const SQLITE_HELP: &str = "write `sqlite://FILE`, relative to the configuration's directory, \
                           or `sqlite:///absolute/FILE`";
const POSTGRES_HELP: &str = "write `postgres://USER:PASSWORD@HOST:PORT/NAME`";
const MYSQL_HELP: &str = "write `mysql://USER:PASSWORD@HOST:PORT/NAME`";
const BLANK_HELP: &str = "write a blank as `%20`: `postgres://USER:PASSWORD@HOST:PORT/NAME`";
const ENCODE_HELP: &str = "in the user and the password write `@` as `%40`, `:` as `%3A`, \
                           `/` as `%2F`, `%` as `%25`, `?` as `%3F`, `#` as `%23` and a blank as `%20`";

impl DatabaseUrl {
    /// Reads an address; a relative SQLite path begins at `base_dir`.
    pub fn parse(text: &str, base_dir: &Path) -> Result<Self, UrlError> {
        let text = text.trim();
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        match scheme.map(str::to_ascii_lowercase).as_deref() {
            Some("sqlite" | "sqlite3") => sqlite(text, base_dir),
            Some("postgres" | "postgresql") => postgres(text),
            Some("mysql" | "mariadb") => mysql(text),
            Some(scheme)
                if !scheme.is_empty()
                    && text.contains("://")
                    && scheme.chars().all(|char| {
                        char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.')
                    }) =>
            {
                refuse(
                    format!("databases of the kind `{scheme}` are not supported by this version"),
                    "use `sqlite://`, `postgres://`, `mysql://` or `mariadb://`",
                )
            }
            _ if text.is_empty() => refuse(
                "the database's address is empty",
                "write `sqlite://FILE`, or `postgres://` or `mysql://` and `USER:PASSWORD@HOST/NAME`; where it comes \
                 from a variable of the environment, set the variable",
            ),
            _ if text.starts_with('$') => refuse(
                "the database's address is not a URL",
                "the value of a variable is written in braces: `url: \"${NAME}\"`",
            ),
            _ => refuse(
                "the database's address is not a URL",
                "write `sqlite://FILE`, or `postgres://` or `mysql://` and `USER:PASSWORD@HOST/NAME`",
            ),
        }
    }

    /// The whole address, password included: for connecting, never for showing.
    pub fn expose(&self) -> &str {
        &self.url
    }

    /// The kind of the server, with the host and port of each server as they are in the address.
    pub fn server(&self) -> Option<(&'static str, String)> {
        match &self.path {
            Some(_) => None,
            None if Address::is_of(&self.url) => {
                let address = Address::parse(&self.url).ok()?;
                let hosts = address.hosts.iter().map(ToString::to_string);
                let place = address
                    .socket
                    .unwrap_or_else(|| hosts.collect::<Vec<_>>().join(","));
                Some(("MySQL or MariaDB", place))
            }
            None => Some(("PostgreSQL", Hosts::places(&self.url).join(","))),
        }
    }

    /// The file of an SQLite database, absolute if the configuration's directory is.
    pub fn sqlite_path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// True where the other address leads to the same file, or differs in no more than the password.
    pub fn is_same(&self, other: &Self) -> bool {
        let shown = |url: &Self| url.to_string().replacen("postgresql://", "postgres://", 1);
        match (&self.path, &other.path) {
            (Some(one), Some(other)) => resolved(one) == resolved(other),
            _ => shown(self) == shown(other),
        }
    }
}

/// The path without `.`, `..` and links, as far as it exists: SQLite reads a path in this way.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            part => {
                resolved.push(part);
                resolved = resolved.canonicalize().unwrap_or(resolved);
            }
        }
    }
    resolved
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&redact(&self.url))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "DatabaseUrl({self})")
    }
}

fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let place = match place.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => format!("{user}@{host}"),
        },
        None => place.to_owned(),
    };
    let query = query.map(|query| {
        // It is the rest of a password whose `?` was not percent-encoded, and the text before it may
        // pass for a port.
        if query.contains('@') {
            return "***".to_owned();
        }
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if name.to_ascii_lowercase().contains("password") => {
                format!("{name}=***")
            }
            _ => pair.to_owned(),
        });
        pairs.collect::<Vec<_>>().join("&")
    });
    match query {
        Some(query) => format!("{scheme}://{place}?{query}"),
        None => format!("{scheme}://{place}"),
    }
}

/// `line` with every password of a URL covered, character by character, so that columns still point
/// at the same characters.
pub fn cover_passwords(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        // A password that was not percent-encoded may hold anything but an end of the URL.
        let end = tail
            .find(|char: char| char.is_whitespace() || matches!(char, '"' | '\''))
            .unwrap_or(tail.len());
        let (url, after) = tail.split_at(end);
        match (url.find(':'), url.rfind('@')) {
            // An address as a help text shows it has no password.
            (Some(colon), Some(last)) if colon < last && &url[colon + 1..last] != "PASSWORD" => {
                out.push_str(&url[..=colon]);
                out.extend(url[colon + 1..last].chars().map(|_| '*'));
                out.push_str(&url[last..]);
            }
            _ => out.push_str(url),
        }
        rest = after;
    }
    out.push_str(rest);
    // A password may be in the query as well.
    const NAME: &str = "password=";
    if let Some(at) = out.to_ascii_lowercase().find(NAME) {
        let from = at + NAME.len();
        let end = out[from..]
            .find(|char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '&'))
            .map_or(out.len(), |end| from + end);
        let covered = "*".repeat(out[from..end].chars().count());
        out.replace_range(from..end, &covered);
    }
    cover_secrets(out)
}

/// Covers the secrets of an endpoint likewise, unless they are variables: the values after their key, and any
/// other word that begins like a secret.
fn cover_secrets(line: String) -> String {
    const NAME: &str = "secret:";
    let (mut out, mut rest) = (String::new(), line.as_str());
    while let Some(at) = rest.find(NAME) {
        let from = at + NAME.len();
        let from = rest[from..]
            .find(|char| !ends_secret(char))
            .map_or(rest.len(), |to| from + to);
        out.push_str(&rest[..from]);
        // A list goes on to its end, any other value to the end of the word.
        let is_list = rest[at..from].contains('[');
        let end = match is_list {
            true => rest[from..].find(']'),
            false => rest[from..].find(ends_secret),
        };
        let (values, after) = rest[from..].split_at(end.unwrap_or(rest.len() - from));
        for word in values.split_inclusive(ends_secret) {
            out.push_str(&covered(word));
        }
        rest = after;
    }
    out.push_str(rest);
    let words = out.split_inclusive(ends_secret);
    let words = words.map(|word| match word.starts_with("whsec_") {
        true => covered(word),
        false => word.to_owned(),
    });
    words.collect()
}

/// True for a character that no secret contains.
fn ends_secret(char: char) -> bool {
    char.is_whitespace() || matches!(char, '"' | '\'' | ',' | '[' | ']' | '}')
}

/// Covers a word, unless it is a variable; the character that ends it stays.
fn covered(word: &str) -> String {
    let cover = |char| if ends_secret(char) { char } else { '*' };
    match word.starts_with('$') {
        true => word.to_owned(),
        false => word.chars().map(cover).collect(),
    }
}

fn mysql(text: &str) -> Result<DatabaseUrl, UrlError> {
    match Address::parse(text) {
        Ok(_) => Ok(DatabaseUrl {
            url: text.to_owned(),
            path: None,
        }),
        Err(message) if message.ends_with(ENCODED) => refuse(message, ENCODE_HELP),
        Err(message) => refuse(message, MYSQL_HELP),
    }
}

fn sqlite(text: &str, base_dir: &Path) -> Result<DatabaseUrl, UrlError> {
    let rest = text.split_once(':').map_or("", |(_, rest)| rest);
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.contains(":memory:") || path.contains("mode=memory") {
        return refuse(
            "an SQLite database in memory cannot be shared by several processes",
            SQLITE_HELP,
        );
    }
    if path.contains('?') {
        return refuse(
            "options (`?…`) are not understood for SQLite",
            "remove them: the daemon sets what it needs",
        );
    }
    let Some(path) = percent::decoded(path) else {
        return refuse(
            "a `%` in the database's path is not followed by two hexadecimal digits",
            "write `%25` for a percent sign",
        );
    };
    // The last part of the path has to name a file: a directory is no file.
    let name = path.rsplit('/').next().unwrap_or_default();
    if matches!(name, "" | "." | "..") || path.contains('\0') {
        return refuse("the SQLite address names no file", SQLITE_HELP);
    }
    let path: PathBuf = base_dir.join(path).components().collect();
    Ok(DatabaseUrl {
        url: format!("sqlite://{}", percent_encoded(&path.to_string_lossy())),
        path: Some(path),
    })
}

/// Writes characters that would end the path, or be trimmed off it, as their bytes in hexadecimal.
fn percent_encoded(path: &str) -> String {
    let mut url = String::with_capacity(path.len());
    for char in path.chars() {
        if matches!(char, '%' | '?' | '#') || char.is_whitespace() || char.is_control() {
            for byte in char.to_string().bytes() {
                write!(url, "%{byte:02X}").expect("a string takes all");
            }
        } else {
            url.push(char);
        }
    }
    url
}

fn postgres(text: &str) -> Result<DatabaseUrl, UrlError> {
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(':') => rest,
        _ => return refuse("the PostgreSQL address is not a URL", POSTGRES_HELP),
    };
    if text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return refuse("the PostgreSQL address contains a blank", BLANK_HELP);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let not_encoded = || {
        refuse(
            "the user or password of the PostgreSQL address has to be percent-encoded",
            ENCODE_HELP,
        )
    };
    // An `@` further on means that a `/`, `?` or `#` of the password ended the host too early.
    let cut_short = !authority.contains('@') && (path.contains('@') || query.contains('@'));
    if user.contains('@')
        || user.matches(':').count() > 1
        || percent::decoded(user).is_none()
        || path.contains('@')
        || tail.contains('#')
        || (cut_short && bad_port(host))
    {
        return not_encoded();
    }
    if !host.contains(',') && bad_port(host) {
        return refuse(
            "the port of the PostgreSQL address is not a number from 1 to 65535",
            POSTGRES_HELP,
        );
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match parameter(pair) {
            // A text that looks like a parameter may be the rest of a password.
            Err(_) if cut_short => return not_encoded(),
            judged => judged?,
        }
    }
    Hosts::parse(text).map_err(|mistake| UrlError {
        message: mistake.message.to_owned(),
        help: mistake.help,
    })?;
    Ok(DatabaseUrl {
        url: text.to_owned(),
        path: None,
    })
}

/// The parameters of an address that the driver understands. It leaves out all others with a warning, even
/// a misspelt wish for TLS.
const PARAMETERS: [&str; 19] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    // Ours, for lists of hosts.
    hosts::ATTRS,
];

const SSL_MODES: [&str; 4] = ["disable", "require", "verify-ca", "verify-full"];

/// Refuses a parameter of the query that the driver would leave out. Shows no value.
fn parameter(pair: &str) -> Result<(), UrlError> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let (Some(name), Some(value)) = (percent::decoded(name), percent::decoded(value)) else {
        let message = "the query of the PostgreSQL address is not percent-encoded".to_owned();
        let help = "write `%25` for a percent sign".to_owned();
        return Err(UrlError { message, help });
    };
    let (name, value) = (name.as_str(), value.to_ascii_lowercase());
    if !PARAMETERS.contains(&name) && !name.starts_with("options[") {
        let known = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let shown = match known && name.len() <= 40 {
            true => format!("the parameter `{name}` of the PostgreSQL address is not understood"),
            false => "a parameter of the PostgreSQL address is not understood".to_owned(),
        };
        return Err(UrlError {
            message: shown,
            help: match nearest(name, PARAMETERS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "remove it: the driver would ignore it".to_owned(),
            },
        });
    }
    if ["sslmode", "ssl-mode"].contains(&name) && ["allow", "prefer"].contains(&value.as_str()) {
        return Err(UrlError {
            message: format!(
                "`{name}={value}` goes on without TLS where it is refused, and says nothing"
            ),
            help: format!("leave it out, or use one of {}", SSL_MODES.join(", ")),
        });
    }
    if ["sslmode", "ssl-mode"].contains(&name) && !SSL_MODES.contains(&value.as_str()) {
        return Err(UrlError {
            message: format!("`{name}` of the PostgreSQL address has no such value"),
            help: format!("it is one of {}", SSL_MODES.join(", ")),
        });
    }
    Ok(())
}

fn bad_port(hosts: &str) -> bool {
    hosts.split(',').any(|host| {
        // The colons of an IPv6 address are in brackets.
        let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
        match after.split_once(':') {
            Some((_, port)) => !port.parse::<u16>().is_ok_and(|port| port > 0),
            None => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_without_the_user_and_the_password() {
        for (url, server) in [
            ("postgres://u:p%40ss@db.example/x", "db.example:5432"),
            (
                "postgres://u:p@127.0.0.1:1/x?sslmode=disable",
                "127.0.0.1:1",
            ),
            ("postgres://[::1]:6000/x", "[::1]:6000"),
            ("postgres:///x?host=%2Frun%2Fpg&port=7", "/run/pg:7"),
            ("postgres://localhost", "localhost:5432"),
            ("postgres://u:p%40ss,x@h1:1,h2/x", "h1:1,h2:5432"),
            ("postgres:///x?host=h1,%2Frun%2Fpg&port=7", "h1:7,/run/pg:7"),
        ] {
            let url = DatabaseUrl::parse(url, Path::new("/")).unwrap();
            assert_eq!(url.server(), Some(("PostgreSQL", server.to_owned())));
        }
        let file = DatabaseUrl::parse("sqlite://a.db", Path::new("/")).unwrap();
        assert_eq!(file.server(), None);
    }

    #[test]
    fn a_parameter_that_would_be_left_out_is_refused() {
        for (query, said) in [
            (
                "sslmod=require",
                "the parameter `sslmod` of the PostgreSQL address is not understood",
            ),
            (
                "sslmode=requir",
                "`sslmode` of the PostgreSQL address has no such value",
            ),
            (
                "a&sslmode=require",
                "the parameter `a` of the PostgreSQL address is not understood",
            ),
            (
                "%73slmode=x",
                "`sslmode` of the PostgreSQL address has no such value",
            ),
            (
                "sslmode=prefer",
                "`sslmode=prefer` goes on without TLS where it is refused, and says nothing",
            ),
            (
                "ssl-mode=Allow",
                "`ssl-mode=allow` goes on without TLS where it is refused, and says nothing",
            ),
            (
                "a/b=x",
                "a parameter of the PostgreSQL address is not understood",
            ),
            (
                "host=%zz",
                "the query of the PostgreSQL address is not percent-encoded",
            ),
        ] {
            let refused = parse(&format!("postgres://u:s3cret@h/d?{query}")).unwrap_err();
            assert_eq!(refused.message, said);
            assert!(!refused.help.is_empty() && !refused.help.contains("s3cret"));
        }
        for query in [
            "",
            "sslmode=verify-full&sslrootcert=/ca.pem",
            "options[search_path]=x&host=/run",
            "options%5Bsearch_path%5D=x&sslmode=Require",
        ] {
            assert!(parse(&format!("postgres://h/d?{query}")).is_ok(), "{query}");
        }
    }

    fn parse(text: &str) -> Result<DatabaseUrl, UrlError> {
        DatabaseUrl::parse(text, Path::new("/base"))
    }

    #[test]
    fn sqlite_paths_begin_at_the_configuration() {
        for (text, path, url) in [
            (
                "sqlite://ductwork.db",
                "/base/ductwork.db",
                "sqlite:///base/ductwork.db",
            ),
            (
                "sqlite:ductwork.db",
                "/base/ductwork.db",
                "sqlite:///base/ductwork.db",
            ),
            ("sqlite://./d.db", "/base/d.db", "sqlite:///base/d.db"),
            ("sqlite:///abs/d.db", "/abs/d.db", "sqlite:///abs/d.db"),
            ("sqlite:/abs/d.db", "/abs/d.db", "sqlite:///abs/d.db"),
            (
                "sqlite:d.db%20%c2%85",
                "/base/d.db \u{85}",
                "sqlite:///base/d.db%20%C2%85",
            ),
            (
                "sqlite://a%20b%3F.db",
                "/base/a b?.db",
                "sqlite:///base/a%20b%3F.db",
            ),
        ] {
            let parsed = parse(text).unwrap();
            assert!(parsed.sqlite_path().is_some());
            assert_eq!(parsed.sqlite_path(), Some(Path::new(path)), "{text}");
            assert_eq!(parsed.expose(), url);
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let url = "postgres://u:s3cret@h:5432/db?sslmode=require&password=s3cret";
        let parsed = parse(url).unwrap();
        assert_eq!(parsed.expose(), url);
        for shown in [
            format!("{parsed}"),
            format!("{parsed:?}"),
            format!("{parsed:#?}"),
        ] {
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("u:***@h:5432/db?sslmode=require&password=***"));
        }
        let parsed = parse("postgres://u:s3cret,x@h1,h2:5433/db").unwrap();
        assert_eq!(parsed.to_string(), "postgres://u:***@h1,h2:5433/db");
    }

    #[test]
    fn what_follows_a_question_mark_in_a_password_is_not_shown() {
        for url in [
            "postgres://u:12?s3cret@h/db",
            "postgres://u:12?s3cret=x@h/db",
        ] {
            assert_eq!(redact(url), "postgres://u:12?***");
            let refused = parse(url).unwrap_err();
            assert!(refused.message.contains("percent-encoded"), "{refused:?}");
        }
    }

    #[test]
    fn good_postgres_addresses_are_kept_as_they_are() {
        for text in [
            "postgres://localhost/db",
            "postgresql://u@localhost",
            "postgres://u:p%40%3A%2F%25@h/db",
            "postgres:///db?host=/run/postgresql&user=a@b",
            "postgres://u:p@[::1]:5432/db",
            "postgres://u:p@[::1]/db?application_name=a@b",
            "postgres://u:p,q@h1:5432,[::1],h3:5433/db?target_session_attrs=read-write",
            "postgres:///db?host=h1,/run/pg&port=5432,5433",
        ] {
            assert_eq!(parse(text).unwrap().expose(), text);
        }
    }

    #[test]
    fn bad_addresses_say_what_to_do_and_show_no_password() {
        for (text, message) in [
            ("sqlite::memory:", "in memory"),
            ("sqlite://file?mode=memory", "in memory"),
            ("sqlite://", "names no file"),
            ("sqlite://dir/", "names no file"),
            ("sqlite:/.", "names no file"),
            ("sqlite://dir/..", "names no file"),
            ("sqlite://a%zz", "two hexadecimal digits"),
            ("sqlite://a%+f", "two hexadecimal digits"),
            ("sqlite://a.db?mode=ro", "options (`?…`)"),
            ("mysql2://u:s3cret@h/db", "kind `mysql2` are not supported"),
            ("mariadb://h/db", "names no user"),
            ("mysql://u:s3cret@h", "names no database"),
            ("mysql://u:s3%cret@h/db", "two hexadecimal digits"),
            ("mysql://u:s3cret@h:0/db", "is no port of h"),
            ("mysql://u:s3/cret@h/db", "percent-encoded"),
            ("mysql://u:s3?cret@h/db", "percent-encoded"),
            ("mysql://u:12/s3cret@h/db", "percent-encoded"),
            ("mysql://u:s3 cret@h/db", "a blank"),
            ("ductwork.db", "not a URL"),
            ("host=h password=s3cret", "not a URL"),
            ("", "address is empty"),
            ("postgres:db", "not a URL"),
            ("postgres:/:s3cret@h/://db", "not a URL"),
            ("postgres://u:s3@cret@h/db", "percent-encoded"),
            ("postgres://u:s3/cret@h/db", "percent-encoded"),
            ("postgres://u:12/s3cret@h/db", "percent-encoded"),
            ("postgres://u:s3:cret@h/db", "percent-encoded"),
            ("postgres://u:s3%cret@h/db", "percent-encoded"),
            ("postgres://u:s3?cret@h/db", "percent-encoded"),
            ("postgres://u:s3#cret@h/db", "percent-encoded"),
            ("postgres://h:port/db", "the port"),
            ("postgres://h:0/db", "the port"),
            ("postgres://h:99999/db", "the port"),
            ("postgres://u:s3 cret@h/db", "a blank"),
            ("postgres://u:s3cret@h1,,h2/db", "a host of the"),
            ("postgres://u:s3cret@h1:0,h2/db", "a port of the"),
            ("postgres://u:s3cret@h1,h2/db?port=1,2,3", "number of ports"),
            (
                "postgres://u:s3cret@h/db?target_session_attrs=standby",
                "takes no writes",
            ),
            (
                "postgres://u:s3cret@h/db?target_session_attrs=first",
                "no such value",
            ),
            (
                "postgres://h/db?target_session_attr=any",
                "the parameter `target_session_attr`",
            ),
            ("postgres://u:p@h1,v:s3cret@h2/db", "percent-encoded"),
            ("postgres://u:s3,cret/x@h1,h2/db", "percent-encoded"),
            ("postgres://u:12,s3/cret@h1,h2/db", "percent-encoded"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(message), "{text}: {error:?}");
            let shown = format!("{error:?}");
            assert!(!shown.contains("cret"), "{shown}");
        }
        let blank = parse("postgres://u:s3 cret@h/db").unwrap_err();
        assert!(blank.help.contains("a blank as `%20`"), "{blank:?}");
        let named = parse("$SECRET").unwrap_err();
        assert!(named.help.contains("`url: \"${NAME}\"`"), "{named:?}");
    }

    #[test]
    fn a_line_is_shown_with_its_passwords_covered() {
        for (line, covered) in [
            (
                "url: postgres://u:pass@h/db # x",
                "url: postgres://u:****@h/db # x",
            ),
            (
                "url: \"postgres://u:p@ss@h/db\"",
                "url: \"postgres://u:****@h/db\"",
            ),
            (
                "write `mysql://USER:PASSWORD@HOST`",
                "write `mysql://USER:PASSWORD@HOST`",
            ),
            ("a://u:p@h b://v:qq@i", "a://u:*@h b://v:**@i"),
            ("url: sqlite://x.db", "url: sqlite://x.db"),
            (
                "url: a://h:1/d?password=abc&x=1",
                "url: a://h:1/d?password=***&x=1",
            ),
            ("{secret: abc, name: a}", "{secret: ***, name: a}"),
            ("secret: \"${S}\"", "secret: \"${S}\""),
            (
                "  - secret: [abc, \"${S}\", 'd']  # x",
                "  - secret: [***, \"${S}\", '*']  # x",
            ),
            (
                "{secret: [abc, defg], name: a}",
                "{secret: [***, ****], name: a}",
            ),
            ("secret: [abc, d", "secret: [***, *"),
            ("    - whsec_ab= # x", "    - ********* # x"),
            ("secret:", "secret:"),
        ] {
            assert_eq!(cover_passwords(line), covered);
        }
    }
}
