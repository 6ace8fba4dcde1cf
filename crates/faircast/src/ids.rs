//! Random numbers of sessions and nodes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use faircast_proto::pgm::wire::{Gsi, Tsi};

/// Returns the id of a new PGM session: 48 random bits, and a port that data never uses.
pub(crate) fn new_tsi() -> Tsi {
    let [a, b, c, d, e, f, high, low] = random().to_be_bytes();
    Tsi { gsi: Gsi([a, b, c, d, e, f]), port: 0x8000 | u16::from_be_bytes([high, low]) }
}

/// Returns 64 random bits: the standard library seeds its hashers from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_differ() {
        let all: Vec<_> = (0..100).map(|_| new_tsi()).collect();
        for (i, a) in all.iter().enumerate() {
            assert!(!all[..i].contains(a) && a.port >= 0x8000);
        }
    }
}
