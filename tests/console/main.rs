//! The console of the built daemon: real processes, real requests, real databases.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by it, outside of the functions that the linter takes for tests too"
)]

#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

#[path = "../support/certify.rs"]
mod certify;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/cluster.rs"]
mod cluster;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../daemon/fixture.rs"]
mod fixture;
#[expect(dead_code, reason = "the daemon's tests need more of it")]
#[path = "../daemon/relay.rs"]
mod relay;
#[path = "../support/writing.rs"]
mod writing;

mod api;
mod bulks;
mod contract;
mod dashboard;
mod exports;
mod http;
mod inputs;
mod life;
mod live;
mod many;
mod metrics;
mod pages;
mod pipelines;
mod questions;
mod refused;
mod schema;
mod series;
mod source;
mod strangers;
mod tokens;
mod traces;
mod trust;
mod visitors;
mod vouched;
mod webhooks;
mod workers;
