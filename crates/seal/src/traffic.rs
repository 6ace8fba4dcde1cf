//! Traffic keys, which seal datagrams.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{self, Prk};
use ring::hmac;
use zeroize::Zeroizing;

use crate::header::{HEADER_BYTES, OVERHEAD, Role, Salt, TAG_BYTES};
use crate::key::{GroupKey, Length};

/// Datagrams sealed with one traffic key. AES-GCM stays indistinguishable from random for as many
/// packets of up to 2048 bytes (src: RFC 9001 sB.1.1). A party's counter selects the next key.
pub(crate) const PACKETS_PER_KEY: u64 = 1 << 28;

/// Secret from which the keys of all parties of a session are derived.
#[derive(Clone)]
pub(crate) struct SessionSecret(Zeroizing<[u8; SECRET_BYTES]>);

/// Key of one party for [`PACKETS_PER_KEY`] datagrams.
pub(crate) struct TrafficKey {
    key: LessSafeKey,
    /// Start of each nonce; the counter follows.
    prefix: [u8; PREFIX_BYTES],
}

impl SessionSecret {
    pub(crate) fn new(key: &GroupKey, salt: Salt) -> Self {
        // HKDF-Extract by HMAC, because ring's own result is not zeroized.
        let salt = hmac::Key::new(hmac::HMAC_SHA256, &salt.0);
        let mut secret = Zeroizing::new([0u8; SECRET_BYTES]);
        secret.copy_from_slice(hmac::sign(&salt, key.secret()).as_ref());
        Self(secret)
    }

    pub(crate) fn traffic(&self, role: Role, party: u64, counter: u64) -> TrafficKey {
        let info: [&[u8]; 4] = [
            b"faircast v1",
            &[role as u8],
            &party.to_be_bytes(),
            &(counter / PACKETS_PER_KEY).to_be_bytes(),
        ];
        let mut derived = Zeroizing::new([0; KEY_BYTES + PREFIX_BYTES]);
        Prk::new_less_safe(hkdf::HKDF_SHA256, &self.0[..])
            .expand(&info, Length(KEY_BYTES + PREFIX_BYTES))
            .and_then(|okm| okm.fill(&mut derived[..]))
            .expect("HKDF-SHA256 gives up to 8160 bytes");
        let (key, prefix) = derived.split_at(KEY_BYTES);
        let key = UnboundKey::new(&AES_128_GCM, key).expect("AES-128 takes a key of 16 bytes");
        let prefix = prefix.try_into().expect("it was split there");
        TrafficKey { key: LessSafeKey::new(key), prefix }
    }
}

impl TrafficKey {
    pub(crate) fn seal(
        &self,
        header: &[u8; HEADER_BYTES],
        counter: u64,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len() + HEADER_BYTES;
        out.reserve(plain.len() + OVERHEAD);
        out.extend_from_slice(header);
        out.extend_from_slice(plain);
        let sealed = self.key.seal_in_place_separate_tag(
            self.nonce(counter),
            Aad::from(header),
            &mut out[start..],
        );
        let tag = sealed.expect("no datagram is as long as AES-GCM's limit");
        out.extend_from_slice(tag.as_ref());
    }

    /// Decrypts the part after the header of `datagram`, which is at least header and tag long.
    pub(crate) fn open<'a>(
        &self,
        counter: u64,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Unspecified> {
        let (header, sealed) = datagram.split_at_mut(HEADER_BYTES);
        let plain = self.key.open_in_place(self.nonce(counter), Aad::from(&*header), sealed)?;
        debug_assert!(plain.len() + TAG_BYTES + HEADER_BYTES >= OVERHEAD, "the tag is taken off");
        Ok(plain)
    }

    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = [0; PREFIX_BYTES + 8];
        nonce[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        nonce[PREFIX_BYTES..].copy_from_slice(&counter.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

const SECRET_BYTES: usize = 32;
const KEY_BYTES: usize = 16;
const PREFIX_BYTES: usize = 4;
