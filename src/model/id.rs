//! Typed keys: a run's id is never taken for a branch's.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[cfg_attr(
            not(feature = "internals"),
            allow(unnameable_types, reason = "the facade has two of them; the lint takes all of a macro")
        )]
        pub struct $name(pub Uuid);

        impl $name {
            /// A fresh UUIDv7: unique everywhere, and close in the index to the rows that were made
            /// with it.
            #[cfg_attr(
                feature = "internals",
                expect(clippy::new_without_default, reason = "a fresh id is no default")
            )]
            #[cfg_attr(
                not(feature = "internals"),
                allow(clippy::new_without_default, reason = "the facade has two of them")
            )]
            pub fn new() -> Self {
                Self(fresh())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(to)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(to, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text.trim()).map(Self)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Uuid {
                id.0
            }
        }
    )*};
}

/// Digits of the short form of an id.
const SHORT: usize = 8;

/// The short form of an id, for people: its end, which is random; its beginning is the time.
pub fn short(id: impl Into<Uuid>) -> String {
    let mut digits = id.into().simple().to_string();
    digits.split_off(digits.len() - SHORT)
}

/// A UUIDv7, except in the explorer.
fn fresh() -> Uuid {
    #[cfg(test)]
    if let Some(id) = counted::next() {
        return id;
    }
    Uuid::now_v7()
}

/// Ids that are counted, for a thread that goes back and forth between states.
#[cfg(test)]
pub mod counted {
    use std::cell::Cell;

    use uuid::Uuid;

    thread_local! {
        static LAST: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Counts from this number on; with `None`, does not count.
    pub fn set(last: Option<u64>) {
        LAST.set(last);
    }

    /// The last number that was taken.
    pub fn last() -> Option<u64> {
        LAST.get()
    }

    /// The number is in both halves: a copy's id is made of one half of each of two ids.
    pub(super) fn next() -> Option<Uuid> {
        let number = LAST.get()? + 1;
        LAST.set(Some(number));
        Some(of(number))
    }

    /// The id of a number; greater numbers have greater ids.
    pub fn of(number: u64) -> Uuid {
        Uuid::from_u128(u128::from(number) << 80 | 0x7 << 76 | 0x2 << 62 | u128::from(number))
    }
}

ids! {
    /// A triggered instance of a pipeline.
    RunId,
    /// One line of progress inside a run.
    BranchId,
    /// A barrier, and the fan-out whose branches it waits for.
    FanOutId,
    /// The work of one node in one run; also the idempotency key handed to the step.
    StepId,
    /// One attempt at a step.
    ExecutionId,
    /// The record of a branch crossing an edge.
    TransitionId,
    /// One attempt by one process to take a branch across a transition.
    AdvancementId,
    /// One incarnation of a process; no other incarnation adopts its row.
    ProcessId,
    /// The fencing token that the owner of a branch claim must present to commit.
    ClaimToken,
}
