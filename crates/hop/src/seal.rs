//! Encryption of multicast datagrams with a key of the sending relay.
//!
//! | datagram | bytes |
//! | --- | --- |
//! | frame of a link | 1, link (4), number (8), 0 or 1 if more follows, part, tag (16) |
//! | beacon | 1, 0 (4), beacon number (8), network (2), tag (16) |

use bytes::Bytes;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

pub(crate) const BEACON: u32 = 0;
const MAGIC: u8 = 1;
const HEAD_BYTES: usize = 13;

/// Multicast key of a relay (ChaCha20-Poly1305, RFC 8439). The nonce is link and frame number: a
/// repeat is the same datagram, and no link number is reused under one key.
#[derive(Debug)]
pub(crate) struct Seal(LessSafeKey);

impl Seal {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has 32 bytes");
        Self(LessSafeKey::new(key))
    }

    pub(crate) fn seal(&self, link: u32, seq: u64, frame: &[u8]) -> Vec<u8> {
        let (head, nonce) = head(link, seq);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + frame.len() + CHACHA20_POLY1305.tag_len());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(frame);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(head), &mut bytes[HEAD_BYTES..])
            .expect("frames are shorter than 256 GB");
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    pub(crate) fn open(&self, bytes: &[u8]) -> Option<Bytes> {
        let (link, seq) = peek(bytes)?;
        let (head, nonce) = head(link, seq);
        let mut sealed = bytes[HEAD_BYTES..].to_vec();
        let length = self.0.open_in_place(nonce, Aad::from(head), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(Bytes::from(sealed))
    }
}

fn head(link: u32, seq: u64) -> ([u8; HEAD_BYTES], Nonce) {
    let mut head = [MAGIC; HEAD_BYTES];
    head[1..5].copy_from_slice(&link.to_be_bytes());
    head[5..].copy_from_slice(&seq.to_be_bytes());
    let nonce = Nonce::try_assume_unique_for_key(&head[1..]).expect("a nonce has 12 bytes");
    (head, nonce)
}

/// Returns the unauthenticated link and number of a datagram.
pub(crate) fn peek(bytes: &[u8]) -> Option<(u32, u64)> {
    let (magic, rest) = bytes.split_first()?;
    let (link, rest) = rest.split_first_chunk()?;
    let (seq, _) = rest.split_first_chunk()?;
    (*magic == MAGIC).then(|| (u32::from_be_bytes(*link), u64::from_be_bytes(*seq)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_opens_under_its_key_and_unchanged() {
        let seal = Seal::new(&[1; 32]);
        let sealed = seal.seal(7, 3, b"frame");
        assert_eq!(sealed, seal.seal(7, 3, b"frame"));
        assert_eq!(peek(&sealed), Some((7, 3)));
        assert_eq!(seal.open(&sealed).unwrap(), &b"frame"[..]);
        assert_eq!(Seal::new(&[2; 32]).open(&sealed), None);
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(seal.open(&forged), None, "byte {at}");
            assert_eq!(seal.open(&sealed[..at]), None, "{at} bytes");
        }
    }
}
