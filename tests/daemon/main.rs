//! The built daemon: real processes, real signals, real databases, and what must hold then.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

#[path = "../support/clock.rs"]
mod clock;

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/dice.rs"]
mod dice;

#[path = "../support/certify.rs"]
mod certify;
#[path = "../support/cluster.rs"]
mod cluster;
mod fixture;

mod ahead;
mod children;
mod clocks;
mod contexts;
mod copies;
mod crowded;
mod dumps;
mod failover;
mod files;
mod giants;
mod keeping;
mod kills;
mod locks;
mod logs;
mod namespaces;
mod outage;
mod pauses;
mod pooler;
mod promotion;
mod refused;
mod relay;
mod resources;
mod roles;
mod signals;
mod silent;
mod sqlite;
mod stale;
mod starts;
mod steps;
mod stops;
mod stuck;
mod tls;
mod unread;
mod upgrades;
mod waits;
mod wide;
mod writers;
