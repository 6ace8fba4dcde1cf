//! Any bytes as a trace file: read as far as they make sense; no panic.

#![no_main]

#[path = "../../crates/sim/tests/fuzz/texts.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod texts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    texts::trace_file(data);
});
