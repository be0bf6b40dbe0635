//! `scripts/fuzz words`: what must hold is in `properties.rs`.
#![no_main]

#[path = "../properties.rs"]
#[expect(dead_code, reason = "the other targets need more of it")]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::words(bytes));
