//! Connection identifiers that the issuing node can recognize.

use std::time::Duration;

use faircast_base::{NodeId, Purpose, Rng};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

const NONCE_BYTES: usize = 4;
const TAG_BYTES: usize = 4;

/// Generator of connection identifiers: a random number and its tag under a key. A restarted node
/// with the same key recognizes identifiers of its earlier run and answers with stateless resets
/// (RFC 9000 s10.3): its peers reconnect at once.
///
/// Unlike in `quinn-proto`, identifiers come from a seeded stream: simulator runs are repeatable.
#[derive(Clone)]
pub(crate) struct Identifiers {
    key: [u8; 32],
    random: Rng,
}

impl Identifiers {
    pub(crate) fn new(key: [u8; 32], seed: u64) -> Self {
        Self { key, random: Rng::new(seed, NodeId(0), Purpose::Relay) }
    }

    fn tag(&self, nonce: &[u8]) -> [u8; TAG_BYTES] {
        let digest = blake3::keyed_hash(&self.key, nonce);
        *digest.as_bytes().first_chunk().expect("a digest has 32 bytes")
    }
}

impl ConnectionIdGenerator for Identifiers {
    fn generate_cid(&mut self) -> ConnectionId {
        let nonce = (self.random.bits() as u32).to_be_bytes();
        let mut bytes = [0; NONCE_BYTES + TAG_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&nonce);
        bytes[NONCE_BYTES..].copy_from_slice(&self.tag(&nonce));
        ConnectionId::new(&bytes)
    }

    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        match cid.split_at_checked(NONCE_BYTES) {
            Some((nonce, tag)) if *tag == self.tag(nonce) => Ok(()),
            _ => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        NONCE_BYTES + TAG_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
