//! Chaos with an oracle: two daemons under load, and anything that may happen to them; then a
//! ledger that the steps kept for themselves is held against what the database says.
//!
//! `workload` is what is run; `triggers` and `people` ask for it, cancel it and revive it; `plan` says
//! what befalls it, and `strikes`, `nodes`, `foreign`, `strangers` and `aside` do so to a `scene`. `history` is what is known afterwards,
//! `oracle` and `orders` what must be true of that. The oracle shares nothing with the engine.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/clock.rs"]
mod clock;

#[path = "../support/dice.rs"]
mod dice;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/cluster.rs"]
mod cluster;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/mariadb.rs"]
mod mariadb;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/galera.rs"]
mod galera;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/server.rs"]
mod server;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../daemon/fixture.rs"]
mod fixture;

mod aside;
mod disk;
mod foreign;
mod history;
mod log;
mod network;
mod nodes;
mod oracle;
mod oracle_tests;
mod orders;
mod people;
mod plan;
mod proxy;
mod recovery;
mod right;
mod scene;
mod space;
mod storm;
mod strangers;
mod strikes;
mod triggers;
mod workload;
