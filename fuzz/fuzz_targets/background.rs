//! Any packets at any time into the ends of every kind of TCP and of CBR: no panic, drains end.

#![no_main]

#[path = "../../crates/sim/tests/fuzz/background.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod background;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    background::run(data);
});
