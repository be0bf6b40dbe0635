//! The engine against a reference: real workers and advancers on real databases must reach the
//! same result as a recursive evaluation of the same flow, with every payload identical to the
//! letter.
//!
//! The reference (`json`, `steps`, `flow`, `evaluate`) shares nothing with the engine but the
//! names of the verbs: it has its own JSON, its own tree, and its own interpretation of the
//! transitions.

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tripwires/mod.rs"]
mod wires;

mod evaluate;
mod faults;
mod fixed;
mod fixture;
mod flow;
mod json;
mod payloads;
mod random;
mod steps;
mod wide;
