//! Chaos with an oracle: two daemons under load, and every fault that may hit them; then the test
//! compares a ledger that the steps kept themselves with the contents of the database.
//!
//! `workload` is the work; `triggers` and `people` trigger, cancel and revive its runs; `plan` decides
//! the faults, and `strikes`, `nodes`, `foreign`, `strangers` and `aside` inject them into a `scene`.
//! `history` is the evidence afterwards; `oracle` and `orders` are the laws that it must obey. The
//! oracle shares nothing with the engine.

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
