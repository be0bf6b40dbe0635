//! The person at the terminal.
//!
//! Owns: the name under which actions are recorded. Never: checks a person's identity.

use crate::model::Channel;
use crate::problem::Problem;
use crate::process::identity::Identity;
use crate::store::action::Actor;

use super::exit::Failure;
use super::out::clean;

/// The longest name, in characters.
const NAME_MAX: usize = 200;

/// The beginning of the name of an account that has only a number.
const UID: &str = "uid ";

/// The person who intervenes: with the given name, or the one from the environment.
///
/// # Errors
/// The given name is not valid.
pub fn actor(given: Option<String>) -> Result<Actor, Failure> {
    let channel = Channel::Cli;
    match given {
        None => Ok(Actor::new(person(), channel)),
        Some(name) if is_name(&name) => Ok(Actor::new(name, channel)),
        Some(_) => {
            let problem = Problem::new(format!(
                "a name has 1 to {NAME_MAX} characters, none that controls a terminal, and neither `(` nor `{UID}` at its \
                 beginning"
            ));
            Err(Failure::usage(
                problem.help("name the person who does it: `--by ana`"),
            ))
        }
    }
}

/// The name of the account under which this process runs.
fn account() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid());
    Some(user.ok()??.name)
}

/// The person at this terminal, as far as the environment names one; otherwise the account, by its name or
/// its number.
fn person() -> String {
    let given = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    let user = given
        .filter_map(|name| std::env::var(name).ok())
        .find(|user| is_name(user));
    let user = user.or_else(|| account().filter(|user| is_name(user)));
    let user = user.unwrap_or_else(|| format!("{UID}{}", nix::unistd::getuid()));
    let host = Identity::current().host;
    format!("{user}@{host}").chars().take(NAME_MAX).collect()
}

/// True for the name of a person or a program: one line that stands neither for a deadline nor for an account by its
/// number.
pub fn is_name(name: &str) -> bool {
    let is_long = name.chars().count() > NAME_MAX;
    let is_taken = name.starts_with('(') || name.starts_with(UID);
    !is_long && !name.trim().is_empty() && !is_taken && clean(name) == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_named_like_a_deadline_or_an_account() {
        for name in ["(deadline)", "uid 0", "", " ", "a\nb", "a\u{1b}[1m"] {
            assert!(!is_name(name), "{name:?}");
        }
        for name in ["ana", "uid", "Ana Uid 0", "shop (test)"] {
            assert!(is_name(name), "{name:?}");
        }
    }
}
