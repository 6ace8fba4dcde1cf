//! A pgmcc source and receiver with forged packets between them: no panic, time passes, drains end,
//! and both come to rest.

#![no_main]

#[path = "../../crates/proto/tests/fuzz/endpoints.rs"]
mod endpoints;

libfuzzer_sys::fuzz_target!(|data: &[u8]| endpoints::run(data));
