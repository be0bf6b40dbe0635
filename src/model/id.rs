//! Typed keys: a run's id is never taken for a branch's.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
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

/// The short form of an id, for people: its end, which differs most; its beginning is the time.
pub fn short(id: impl Into<Uuid>) -> String {
    let mut digits = id.into().simple().to_string();
    digits.split_off(digits.len() - SHORT)
}

/// The number of a UUID whose second half follows from a step's place, and whose first half is the time, as in a UUIDv7.
const PLACED: u8 = 8;

impl StepId {
    /// The id of the step that follows another one in its run: at this node, or as this element or path behind a fan-out,
    /// whose steps are told apart by their number alone.
    ///
    /// Its second half follows from that place alone, however often the step is made: a database that was restored, or
    /// a standby that lacked the last moments, makes it once more.
    pub(crate) fn following(step: StepId, node: &str, element: usize) -> Self {
        let fresh = fresh();
        #[cfg(test)]
        if counted::last().is_some() {
            return Self(fresh);
        }
        let mut place = Sha256::new();
        place.update(step.half());
        place.update(node);
        let place = place.finalize();
        // Elements follow one another: a revived run, whose copies share their first half, keeps them in order.
        let half = place
            .iter()
            .take(8)
            .fold(0, |half, byte| half << 8 | u64::from(*byte));
        let half = half.wrapping_add(element as u64);
        let time = later(fresh.as_u64_pair().0 >> 16);
        let time = time >> 12 << 16 | time & 0xfff;
        let bytes = (u128::from(time) << 64 | u128::from(half)).to_be_bytes();
        Self(placed(bytes))
    }

    /// The key for the side effect of this step of a run with this input. It is the same for every attempt, and for a
    /// step that is made once more at the same place with the same input.
    ///
    /// The first step of a run is made with its run, and a step that was copied into a revived run is never made again:
    /// their ids serve.
    pub fn idempotency_key(self, run: RunId, input: &str) -> Uuid {
        if self.0.get_version_num() != usize::from(PLACED) {
            return self.0;
        }
        let mut key = Sha256::new();
        key.update(run.0);
        key.update(self.half());
        key.update(input);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&key.finalize()[..16]);
        placed(bytes)
    }

    /// The half that a copy in a revived run shares.
    fn half(&self) -> &[u8] {
        &self.0.as_bytes()[8..]
    }
}

/// This time in ms with 12 more bits: later than the last one of this process, so that its ids are in order.
fn later(ms: u64) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let later = |last: u64| (last + 1).max(ms << 12);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(later(last))
    });
    later(last.unwrap_or_else(|last| last))
}

fn placed(mut bytes: [u8; 16]) -> Uuid {
    bytes[6] = PLACED << 4 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    Uuid::from_bytes(bytes)
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
    /// The work of one node in one run.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_made_once_more_at_its_place_has_the_key_that_it_had() {
        let (run, first) = (RunId::new(), StepId::new());
        let made = || {
            let left = StepId::following(first, "Left", 0);
            [left, StepId::following(left, "Next", 0)].map(|id| (id, id.idempotency_key(run, "1")))
        };
        let (once, again) = (made(), made());
        for (once, again) in once.iter().zip(&again) {
            assert_ne!(once.0, again.0, "a row of its own");
            assert_eq!(once.1, again.1);
        }
    }

    #[test]
    fn steps_at_other_places_and_of_other_runs_and_inputs_have_keys_of_their_own() {
        let (run, first) = (RunId::new(), StepId::new());
        let mut keys = vec![first.idempotency_key(run, "1")];
        assert_eq!(keys[0], first.0);
        for node in ["A", "B"] {
            for element in [0, 1, 256] {
                let id = StepId::following(first, node, element);
                assert!(
                    id.0.get_version_num() == 8 && id.0.get_variant() == uuid::Variant::RFC4122
                );
                keys.push(id.idempotency_key(run, "1"));
                keys.push(id.idempotency_key(run, "2"));
                keys.push(id.idempotency_key(RunId::new(), "1"));
                keys.push(StepId::following(id, node, 0).idempotency_key(run, "1"));
            }
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn the_second_halves_of_elements_are_in_their_order() {
        let first = StepId::new();
        let half = |element| StepId::following(first, "A", element).half().to_vec();
        let halves: Vec<Vec<u8>> = (0..1_000).map(half).collect();
        // All but for one in 10^15, which begin again.
        assert!(halves.is_sorted(), "{halves:?}");
    }

    #[test]
    fn ids_of_steps_are_in_the_order_in_which_they_were_made() {
        let first = StepId::new();
        let ms = |id: StepId| id.0.as_u64_pair().0 >> 16;
        let mut last = first;
        for element in 0..10_000 {
            let id = StepId::following(first, "A", element);
            assert!(id > last, "{element}");
            last = id;
        }
        assert!(
            (ms(first)..ms(first) + 60_000).contains(&ms(last)),
            "the first half is the time"
        );
    }
}
