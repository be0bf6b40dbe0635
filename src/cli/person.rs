//! The person at the terminal.
//!
//! Owns: the name under which actions are recorded. Never: checks a person's identity.

use crate::machine::letters::{NAME_MAX, UID, form_of_a_name, is_name};
use crate::model::Channel;
use crate::problem::Problem;
use crate::process::identity::Identity;
use crate::store::action::Actor;

use super::exit::Failure;

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
            let problem = Problem::new(form_of_a_name());
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
