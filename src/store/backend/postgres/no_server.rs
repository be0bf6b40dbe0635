//! The reasons why no server of an address can be worked on.
//!
//! Owns: their words, and the remedy. Never: decides which server is the right one (`servers`).

use std::fmt;

use super::super::{DriverError, UNREACHED};
use super::error::is_of_tls;
use super::hosts::Wanted;
use crate::store::blame::Blame;

/// The reason to pass over a server that lets us in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A standby.
    Standby,
    /// A setting makes it refuse writes.
    OnlyReads,
    /// Its timeline is older: its own, and that of the server that this process has worked on.
    Before(u32, u32),
}

/// No server of an address is the right one.
#[derive(Debug)]
pub struct Nobody {
    /// The kind of server that was wanted.
    pub wanted: Wanted,
    /// Host and port of each server, and the reason why it is not the right one.
    pub refused: Vec<(String, Refusal)>,
}

/// The reason why a server cannot be worked on.
#[derive(Debug)]
pub enum Refusal {
    /// It cannot be reached, or refuses to let us in.
    Failed(sqlx::Error),
    /// It lets us in, but is not the right one.
    Passed(Passed),
    /// It did not answer in time.
    Silent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => to.write_str(&error.describe()),
            Self::Passed(Passed::Standby) => to.write_str("it is a standby"),
            Self::Passed(Passed::OnlyReads) => {
                to.write_str("default_transaction_read_only is on there")
            }
            Self::Passed(Passed::Before(its, ours)) => write!(
                to,
                "it is an old primary, on timeline {its}, and this process has worked on timeline {ours}"
            ),
            Self::Silent => to.write_str("no answer in time"),
        }
    }
}

impl DriverError for Nobody {
    fn describe(&self) -> String {
        let said = self.refused.iter();
        let said = said.map(|(place, refusal)| format!("{place}: {refusal}"));
        let said = said.collect::<Vec<_>>().join("; ");
        match (self.refused.len(), self.wanted) {
            (1, _) => said,
            (_, Wanted::Any) => format!("no server of the list lets us in: {said}"),
            (_, Wanted::Primary) => format!("no server of the list is a primary: {said}"),
            (_, Wanted::ReadWrite) => format!("no server of the list takes writes: {said}"),
        }
    }

    fn blame(&self) -> Blame {
        Blame::Connection
    }

    fn constraint(&self) -> Option<String> {
        None
    }

    fn remedy(&self) -> &'static str {
        let refused = || self.refused.iter().map(|(_, refusal)| refusal);
        if refused().any(|it| matches!(it, Refusal::Passed(Passed::Before(..)))) {
            return "stop the old primary, and start its heir; where the old one is right all the same, restart \
                    ductworkd";
        }
        let failed = refused().find_map(|it| match it {
            Refusal::Failed(error) if is_of_tls(error) => Some(error.remedy()),
            Refusal::Failed(error) if error.has_answered() => Some(error.remedy()),
            _ => None,
        });
        if let Some(remedy) = failed {
            return remedy;
        }
        match refused().any(|it| matches!(it, Refusal::Passed(_))) {
            true => {
                "start the primary or promote a standby, and see that `database.url` names each server \
                     that may be the primary"
            }
            false => UNREACHED,
        }
    }

    fn has_answered(&self) -> bool {
        let mut refused = self.refused.iter().map(|(_, refusal)| refusal);
        refused.any(|it| match it {
            Refusal::Failed(error) => error.has_answered(),
            Refusal::Passed(_) => true,
            Refusal::Silent => false,
        })
    }
}
