//! The engine against a reference: real workers and advancers on real databases must come to
//! what a recursive evaluation of the same flow comes to, to the letter of every payload.
//!
//! The reference (`json`, `steps`, `flow`, `evaluate`) shares nothing with the engine but the
//! names of the verbs: its own JSON, its own tree, its own idea of what a transition means.

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
