//! Any text as a scenario: accepted, or refused in one line; no panic.

#![no_main]

#[path = "../../crates/sim/tests/fuzz/texts.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod texts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    texts::scenario(data);
});
