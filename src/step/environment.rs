//! The variables that a command step sees.
//!
//! Owns: what is inherited, what is withheld and what is added. Never: reads the process's
//! environment after it was made, so a step's variables do not change under it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::mask::Mask;
use super::socket::VARIABLE;
use super::{CHILD, Outcome, StepError, is_of_the_machine};
use crate::definition::StepSpec;
use crate::definition::variables::{self, Unexpanded};
use crate::file::{self, Refused};

/// Never inherited: the database's address and credentials, the variables of the service manager for the daemon
/// alone (a step that says `READY=1`, or that takes over a socket, speaks for the daemon), and the context of
/// another run, of which the daemon may be a step: the values that it shares, and the rest of its trace's
/// context.
const WITHHELD: [&str; 16] = [
    VARIABLE,
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
    TRACESTATE,
    BAGGAGE,
];

/// The state of the trace that a step is in.
pub const TRACESTATE: &str = "TRACESTATE";

/// The baggage that an application hands on to a step.
pub const BAGGAGE: &str = "BAGGAGE";

/// In bytes. A secret is larger than this only by mistake.
const MAX_SECRET: u64 = 16 * 1024;

/// The variables that steps inherit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// Every variable that is not withheld.
    All,
    /// Of these, only those that are named; `LC_*` names every one that begins with `LC_`.
    Only(Vec<String>),
}

impl Inherit {
    fn includes(&self, name: &OsStr) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.as_bytes().starts_with(prefix.as_bytes()),
            None => name == pattern.as_str(),
        };
        match self {
            Self::All => true,
            Self::Only(patterns) => patterns.iter().any(matches),
        }
    }
}

/// True for a variable that no step inherits, even if somebody lists it.
pub fn is_withheld(name: &str) -> bool {
    WITHHELD.contains(&name)
}

/// The variables that every step inherits, made once.
#[derive(Debug)]
pub struct Environment {
    inherited: BTreeMap<OsString, CString>,
    /// Variables that are not on the list; a step may still ask for one.
    unlisted: BTreeMap<OsString, OsString>,
    /// The same, but not to be shown in a log.
    secret: BTreeMap<OsString, OsString>,
}

/// The variables that a step's definition asks for, beside those that the step inherits.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    env: &'a BTreeMap<String, String>,
    secrets: Option<&'a BTreeMap<String, String>>,
}

impl<'a> From<&'a StepSpec> for Asked<'a> {
    fn from(spec: &'a StepSpec) -> Self {
        Self {
            env: &spec.env,
            secrets: Some(&spec.secrets),
        }
    }
}

/// The same, for another thread.
#[derive(Debug)]
pub struct OwnedAsked {
    env: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
}

impl Asked<'_> {
    /// A copy, if files may have to be read for it.
    pub fn reading(self) -> Option<OwnedAsked> {
        let secrets = self.secrets.filter(|secrets| !secrets.is_empty())?;
        Some(OwnedAsked {
            env: self.env.clone(),
            secrets: secrets.clone(),
        })
    }
}

impl<'a> From<&'a OwnedAsked> for Asked<'a> {
    fn from(asked: &'a OwnedAsked) -> Self {
        Self {
            env: &asked.env,
            secrets: Some(&asked.secrets),
        }
    }
}

#[cfg(test)]
impl<'a> From<&'a BTreeMap<String, String>> for Asked<'a> {
    fn from(env: &'a BTreeMap<String, String>) -> Self {
        Self { env, secrets: None }
    }
}

/// Their values.
#[derive(Debug)]
pub struct Given {
    /// By the variable's name.
    pub values: BTreeMap<String, String>,
    /// Covers those values that are not to be shown in a log.
    pub mask: Option<Mask>,
}

/// The variables that one execution adds, by name; they win over inherited ones.
pub type Added = BTreeMap<OsString, OsString>;

/// The name of a variable that no program can be handed.
#[derive(Debug)]
pub struct Unusable(pub String);

impl Environment {
    /// Of `variables`, keeps [`CHILD`] and those that `listed` names, but not those that are withheld or `hidden`.
    pub fn inherit(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        hidden: &[String],
        listed: &Inherit,
    ) -> Self {
        let variables = variables.into_iter();
        #[cfg(feature = "failpoints")]
        let variables = variables
            .filter(|(name, _)| !crate::failpoint::VARIABLES.iter().any(|ours| name == ours));
        let mut environment = Self {
            inherited: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            secret: BTreeMap::new(),
        };
        for (name, value) in variables {
            let withheld = WITHHELD.iter().any(|withheld| name == *withheld)
                || hidden.iter().any(|hidden| name == hidden.as_str());
            if withheld {
                environment.secret.insert(name, value);
            } else if !listed.includes(&name) && name != CHILD {
                environment.unlisted.insert(name, value);
            } else if let Ok(entry) = entry(&name, &value) {
                // A value that came from an environment fits into one, so nothing is lost here.
                environment.inherited.insert(name, entry);
            }
        }
        environment
    }

    /// The values that a step asks for: its `env` expanded, its secrets looked up.
    pub fn give<'a>(&self, asked: impl Into<Asked<'a>>) -> Result<Given, Outcome> {
        let Asked { env, secrets } = asked.into();
        let mut values = BTreeMap::new();
        let mut covered: Vec<String> = Vec::new();
        for (name, text) in env {
            let hide = |used: &str| covered.extend(self.not_for_a_log(used));
            let unreadable = Cell::new(None);
            let read = |name: &str| {
                self.variable(name).unwrap_or_else(|NotUtf8| {
                    unreadable.set(Some(name.to_owned()));
                    None
                })
            };
            let value = variables::expand(text, read, hide);
            if let Some(variable) = unreadable.take() {
                let message =
                    format!("`env` of the step, `{name}`: the variable {variable} is not UTF-8");
                return Err(Outcome::Error(StepError::new(NOT_TEXT, message)));
            }
            let value = value
                .map_err(|wrong| unexpanded(name, wrong.into_iter().next()))
                .map_err(Outcome::Error)?;
            values.insert(name.clone(), value);
        }
        for (name, secret) in secrets.into_iter().flatten() {
            let value = self.secret(secret)?;
            covered.push(value.clone());
            values.insert(name.clone(), value);
        }
        let mask = Mask::new(&covered).map_err(|_| {
            let message = "the secrets of this step have too many lines to be hidden in its log";
            Outcome::Error(StepError::new(SECRET, message))
        })?;
        Ok(Given { values, mask })
    }

    /// A variable of this process, whether steps inherit it or not.
    fn variable(&self, name: &str) -> Result<Option<String>, NotUtf8> {
        let kept = || self.unlisted.get(OsStr::new(name)).map(OsString::as_os_str);
        let secret = || self.secret.get(OsStr::new(name)).map(OsString::as_os_str);
        let value = self.get(name).or_else(kept).or_else(secret);
        let text = value.map(|value| value.to_str().map(str::to_owned).ok_or(NotUtf8));
        text.transpose()
    }

    fn not_for_a_log(&self, name: &str) -> Option<String> {
        let value = self.secret.get(OsStr::new(name))?;
        Some(value.to_string_lossy().into_owned())
    }

    /// The secret of this name: a variable of this process, or the file that is named by the variable with
    /// `_FILE` at its end. The file is read for each attempt, so that a new secret needs no new worker.
    fn secret(&self, name: &str) -> Result<String, Outcome> {
        let wrong = |message: String| Outcome::Error(StepError::new(SECRET, message));
        let given = |variable: &str| match self.variable(variable) {
            Ok(value) => Ok(value.filter(|value| !value.is_empty())),
            Err(NotUtf8) => Err(wrong(format!(
                "the secret `{name}`: {variable} is not UTF-8"
            ))),
        };
        if let Some(value) = given(name)? {
            return Ok(value);
        }
        let variable = format!("{name}_FILE");
        let Some(path) = given(&variable)? else {
            let message = format!("the secret `{name}` is not set: set {name}, or {variable}");
            return Err(wrong(message));
        };
        let because = |why: &str| format!("the secret `{name}`: {path} ({variable}): {why}");
        let unread = |why: &str| wrong(because(why));
        let bytes = file::read(path.as_ref(), MAX_SECRET).map_err(|refused| match &refused {
            Refused::Io(error) if is_of_the_machine(error) => Outcome::NotStarted {
                message: because(&refused.to_string()),
            },
            _ => unread(&refused.to_string()),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| unread("it is not UTF-8"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        match text.is_empty() {
            true => Err(unread("it is empty")),
            false => Ok(text.to_owned()),
        }
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

/// The class of an error about a secret, and about a variable.
pub const SECRET: &str = "secret_unusable";
const NOT_SET: &str = "variable_not_set";
const NOT_TEXT: &str = "variable_not_text";

/// A variable whose value is no text. No other value is put in its place.
struct NotUtf8;

fn unexpanded(name: &str, wrong: Option<Unexpanded>) -> StepError {
    let why = wrong.map_or_else(String::new, |wrong| {
        format!(": {}; {}", wrong.message, wrong.help)
    });
    StepError::new(NOT_SET, format!("`env` of the step, `{name}`{why}"))
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
        listed(variables, hidden, &Inherit::All)
    }

    fn listed<const N: usize>(
        variables: [(&str, &str); N],
        hidden: &[String],
        listed: &Inherit,
    ) -> Environment {
        Environment::inherit(variables.map(|(n, v)| (n.into(), v.into())), hidden, listed)
    }

    fn step(env: &[(&str, &str)], secrets: &[(&str, &str)]) -> StepSpec {
        let step = StepSpec::command(["a"]);
        let step = env
            .iter()
            .fold(step, |step, (name, value)| step.env(*name, *value));
        secrets
            .iter()
            .fold(step, |step, (name, secret)| step.secret(*name, *secret))
    }

    #[track_caller]
    fn refused(environment: &Environment, asked: &StepSpec) -> StepError {
        match environment.give(asked) {
            Err(Outcome::Error(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_listed_is_inherited_and_what_is_withheld_never_is() {
        let variables = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("LC", "x"),
            ("TOKEN", "t0ken"),
            ("DATABASE_URL", "postgres://u:p@h/d"),
            // A supervisor finds by it what a dead worker's steps have left behind.
            ("DUCTWORK_CHILD", "c41d"),
        ];
        let list = ["PATH", "LC_*", "DATABASE_*"].map(str::to_owned);
        let environment = listed(variables, &[], &Inherit::Only(list.to_vec()));
        assert_eq!(
            shown(environment.with(&Added::new()).unwrap()),
            ["DUCTWORK_CHILD=c41d", "LC_ALL=C", "PATH=/bin"]
        );
        assert_eq!(environment.get("TOKEN"), None);
        // A step may ask for it all the same.
        let asked = step(&[("MINE", "${TOKEN}")], &[]);
        assert_eq!(environment.give(&asked).unwrap().values["MINE"], "t0ken");
    }

    #[test]
    fn a_steps_own_variables_are_expanded_from_the_workers() {
        let environment = environment(&["MY_TOKEN".into()]);
        let asked = step(
            &[
                ("A", "<${KEPT}>"),
                ("B", "${NONE:-other}"),
                ("C", "$$5 $x"),
                ("D", "${DATABASE_URL}"),
            ],
            &[],
        );
        let mut given = environment.give(&asked).unwrap();
        let values: Vec<&str> = given.values.values().map(String::as_str).collect();
        assert_eq!(values, ["<a=b>", "other", "$5 $x", "postgres://u:p@h/d"]);
        let mask = given.mask.as_mut().expect("the address is no secret");
        assert_eq!(
            mask.cover(b"at postgres://u:p@h/d, a=b\n"),
            b"at ***, a=b\n"
        );
        let error = refused(&environment, &step(&[("E", "${NONE}")], &[]));
        assert_eq!(
            (error.class.as_str(), error.retryable),
            ("variable_not_set", true)
        );
        assert!(
            error
                .message
                .starts_with("`env` of the step, `E`: the environment variable `NONE` is not set"),
            "{}",
            error.message
        );
    }

    /// It is not replaced by a similar text.
    #[test]
    fn a_variable_that_is_not_text_is_refused_where_a_step_asks_for_it() {
        let name = |it: &str| OsString::from(it);
        let odd = OsString::from_vec(b"caf\xe9".to_vec());
        let variables = [(name("ODD"), odd.clone()), (name("KEY_FILE"), odd)];
        let environment = Environment::inherit(variables, &[], &Inherit::All);
        let error = refused(&environment, &step(&[("A", "<${ODD}>")], &[]));
        assert_eq!(error.class, "variable_not_text");
        assert_eq!(
            error.message,
            "`env` of the step, `A`: the variable ODD is not UTF-8"
        );
        for (secret, variable) in [("ODD", "ODD"), ("KEY", "KEY_FILE")] {
            let error = refused(&environment, &step(&[], &[("A", secret)]));
            assert_eq!(error.class, SECRET);
            let message = format!("the secret `{secret}`: {variable} is not UTF-8");
            assert_eq!(error.message, message);
        }
    }

    /// Nobody can read the memory of a process at its beginning: as from a broken disk.
    #[test]
    fn a_secret_that_the_machine_cannot_read_is_not_the_steps_fault() {
        let variables = [("KEY_FILE", "/proc/self/mem")];
        let environment = listed(variables, &[], &Inherit::Only(Vec::new()));
        match environment.give(&step(&[], &[("A", "KEY")])) {
            Err(Outcome::NotStarted { message }) => {
                assert!(message.contains("Input/output error"), "{message}");
            }
            other => panic!("{:?}", other.err()),
        }
    }

    #[test]
    fn a_secret_is_a_variable_or_the_content_of_a_file_and_is_covered() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("key");
        std::fs::write(&file, "from-a-file\n").unwrap();
        let path = file.to_str().unwrap();
        let variables = [("PLAIN", "from-a-variable"), ("KEY_FILE", path)];
        let environment = listed(variables, &[], &Inherit::Only(Vec::new()));
        let asked = step(&[], &[("ONE", "PLAIN"), ("TWO", "KEY")]);
        let mut given = environment.give(&asked).unwrap();
        assert_eq!(
            (given.values["ONE"].as_str(), given.values["TWO"].as_str()),
            ("from-a-variable", "from-a-file")
        );
        let mask = given.mask.as_mut().unwrap();
        assert_eq!(mask.cover(b"from-a-variable from-a-file\n"), b"*** ***\n");
        // The next attempt gets the new value.
        std::fs::write(&file, "another\n").unwrap();
        assert_eq!(environment.give(&asked).unwrap().values["TWO"], "another");
        for (bytes, why) in [
            (&b""[..], "it is empty"),
            (b"\xff", "it is not UTF-8"),
            (&[b'x'; 20_000], "it is too large"),
        ] {
            std::fs::write(&file, bytes).unwrap();
            let error = refused(&environment, &asked);
            assert!(
                error.message.contains(why) && error.message.contains("KEY_FILE"),
                "{}",
                error.message
            );
        }
        std::fs::remove_file(&file).unwrap();
        let error = refused(&environment, &asked);
        assert!(error.message.contains("No such file"), "{}", error.message);
        let error = refused(&environment, &step(&[], &[("X", "NONE")]));
        assert_eq!(
            (error.class.as_str(), error.message.as_str()),
            (
                "secret_unusable",
                "the secret `NONE` is not set: set NONE, or NONE_FILE"
            )
        );
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
}
