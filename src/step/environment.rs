//! The variables that a command step sees.
//!
//! Owns: what is inherited, what is withheld and what is added. Never: reads the process's
//! environment after it was made, so a step's variables do not change under it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::model::{ExecutionId, RunId};

/// Never inherited: where the database is and how to get in, and what the service manager
/// said to the daemon alone (a step that says `READY=1`, or that takes over a socket,
/// speaks for the daemon).
const WITHHELD: [&str; 13] = [
    "DUCTWORK_DATABASE_URL",
    "DUCTWORK_DATABASE_URL_FILE",
    "DUCTWORK_DATABASE__URL",
    "DUCTWORK_DATABASE__URL_FILE",
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
];

/// The variables that every step inherits, made once.
#[derive(Debug)]
pub struct Environment {
    inherited: BTreeMap<OsString, CString>,
}

/// The variables that one execution adds, by name; they win over inherited ones.
pub type Added = BTreeMap<OsString, OsString>;

/// A variable that no program could be handed: its name.
#[derive(Debug)]
pub struct Unusable(pub String);

impl Environment {
    /// Everything in `variables` but what is withheld or `hidden`.
    pub fn inherit(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        hidden: &[String],
    ) -> Self {
        let variables = variables.into_iter();
        #[cfg(feature = "failpoints")]
        let variables = variables
            .filter(|(name, _)| !crate::failpoint::VARIABLES.iter().any(|ours| name == ours));
        let inherited = variables
            .filter(|(name, _)| {
                !WITHHELD.iter().any(|withheld| name == withheld)
                    && !hidden.iter().any(|hidden| name == hidden.as_str())
            })
            // A value that came from an environment fits into one, so nothing is lost here.
            .filter_map(|(name, value)| Some((entry(&name, &value).ok()?, name)))
            .map(|(entry, name)| (name, entry))
            .collect();
        Self { inherited }
    }

    /// The whole environment, as `execve` takes it.
    pub fn with(&self, added: &Added) -> Result<Vec<CString>, Unusable> {
        let kept = self
            .inherited
            .iter()
            .filter(|(name, _)| !added.contains_key(*name))
            .map(|(_, entry)| Ok(entry.clone()));
        let added = added.iter().map(|(name, value)| entry(name, value));
        kept.chain(added).collect()
    }

    /// The inherited value of `name`.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let entry = self.inherited.get(OsStr::new(name))?;
        Some(OsStr::from_bytes(&entry.as_bytes()[name.len() + 1..]))
    }
}

fn entry(name: &OsStr, value: &OsStr) -> Result<CString, Unusable> {
    let unusable = || Unusable(name.to_string_lossy().into_owned());
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(unusable());
    }
    let mut entry = name.to_owned();
    entry.push("=");
    entry.push(value);
    CString::new(entry.into_vec()).map_err(|_| unusable())
}

/// W3C trace context: one trace per run, one span per execution, the same whoever asks.
pub fn traceparent(run: RunId, execution: ExecutionId) -> String {
    // The low half of a UUIDv7 is random, and never zero because it holds the variant.
    let (_, span) = execution.0.as_u64_pair();
    format!("00-{}-{span:016x}-01", run.0.simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(hidden: &[String]) -> Environment {
        let variables = [
            ("PATH", "/bin"),
            ("DATABASE_URL", "postgres://u:p@h/d"),
            ("NOTIFY_SOCKET", "/run/x"),
            ("MY_TOKEN", "t"),
            ("KEPT", "a=b"),
        ];
        Environment::inherit(variables.map(|(n, v)| (n.into(), v.into())), hidden)
    }

    fn shown(entries: Vec<CString>) -> Vec<String> {
        entries
            .into_iter()
            .map(|entry| entry.into_string().unwrap())
            .collect()
    }

    #[test]
    fn secrets_are_withheld_unless_they_are_added() {
        let environment = environment(&["MY_TOKEN".into()]);
        assert_eq!(
            shown(environment.with(&Added::new()).unwrap()),
            ["KEPT=a=b", "PATH=/bin"]
        );
        let added = Added::from([("DATABASE_URL".into(), "x".into())]);
        assert_eq!(
            shown(environment.with(&added).unwrap()),
            ["KEPT=a=b", "PATH=/bin", "DATABASE_URL=x"]
        );
    }

    #[test]
    fn what_is_added_replaces_what_is_inherited() {
        let environment = environment(&[]);
        let added = Added::from([("PATH".into(), "/opt".into())]);
        let entries = shown(environment.with(&added).unwrap());
        assert_eq!(entries.iter().filter(|e| e.starts_with("PATH=")).count(), 1);
        assert_eq!(environment.get("PATH"), Some(OsStr::new("/bin")));
        assert_eq!(environment.get("KEPT"), Some(OsStr::new("a=b")));
    }

    #[test]
    fn a_variable_that_no_program_could_be_handed_is_named() {
        for name in ["", "a=b", "a\0"] {
            let added = Added::from([(name.into(), "x".into())]);
            assert_eq!(environment(&[]).with(&added).unwrap_err().0, name);
        }
    }

    #[test]
    fn a_traceparent_is_well_formed_and_the_same_each_time() {
        let (run, execution) = (RunId::new(), ExecutionId::new());
        let text = traceparent(run, execution);
        assert_eq!(text, traceparent(run, execution));
        let parts: Vec<&str> = text.split('-').collect();
        assert_eq!(parts[0], "00");
        assert_eq!(parts[1], run.to_string().replace('-', ""));
        assert!(execution.to_string().replace('-', "").ends_with(parts[2]));
        assert_eq!((parts[2].len(), parts[3]), (16, "01"));
    }
}
