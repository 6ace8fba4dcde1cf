//! Random bytes.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes` from the system's generator.
///
/// The library that encrypts has one of its own, which first measures the jitter of the processor
/// for some 40 ms: longer than a small file takes. What it would be seeded from is as good.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
