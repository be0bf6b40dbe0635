//! The store, on real databases: one body for each promise, run on every database.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/cluster.rs"]
mod cluster;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/dice.rs"]
mod dice;
#[path = "../support/mod.rs"]
mod support;
#[path = "../tripwires/mod.rs"]
mod wires;

mod actions;
mod answers;
mod batches;
mod bulks;
mod bytes;
mod claims;
mod clock;
mod contexts;
mod copies;
mod costs;
mod crossings;
mod deliveries;
mod departed;
mod driver;
mod ends;
mod errors;
mod flows;
#[cfg(feature = "failpoints")]
mod guarded;
mod guards;
mod leases;
mod lists;
mod locked;
mod metrics;
mod order;
mod overview;
mod passed_over;
mod pauses;
mod queue;
mod redefined;
mod refusals;
mod reports;
mod revivals;
mod schema;
mod series;
mod spreads;
mod tokens;
mod traces;
mod tripwires;
mod unread;
mod wide;
