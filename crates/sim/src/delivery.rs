//! Data delivered to a receiver's application, compared with the sent data.

use std::sync::Arc;

use faircast_base::Time;
use faircast_proto::content::{Content, InMemory, Zeros, only_zeros};
use faircast_scenario::{Data, Flow};

/// Reason why a run cannot start: a file to send is unreadable, or a protocol is the lab's alone.
#[derive(Debug, thiserror::Error)]
#[error("flow \"{flow}\": {reason}")]
pub struct SimError {
    pub(crate) flow: String,
    pub(crate) reason: String,
}

/// Data delivered to one receiver's application.
// The fields of the packet path come first: see `Agent`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Delivery {
    /// Bytes delivered in order.
    pub bytes: u64,
    /// Digest of the real bytes; `None` for content of zeros.
    digest: Option<Box<blake3::Hasher>>,
    only_zeros: bool,
    /// Packets reported as lost for good.
    pub lost_packets: u64,
    /// Delivery time of the last byte of a finished transfer.
    pub completed: Option<Time>,
}

impl Delivery {
    /// Makes an empty delivery. `real` is true if the flow sends real bytes.
    pub fn new(real: bool) -> Self {
        Self {
            bytes: 0,
            lost_packets: 0,
            completed: None,
            digest: real.then(|| Box::new(blake3::Hasher::new())),
            only_zeros: true,
        }
    }

    /// Adds bytes and zeros delivered by the machine.
    pub fn take(&mut self, bytes: &[u8], zeros: u32) {
        self.bytes += bytes.len() as u64 + u64::from(zeros);
        match &mut self.digest {
            Some(digest) => {
                digest.update(bytes);
                const BLOCK: [u8; 1024] = [0; 1024];
                let mut left = zeros as usize;
                while left > 0 {
                    digest.update(&BLOCK[..left.min(BLOCK.len())]);
                    left -= left.min(BLOCK.len());
                }
            }
            None => self.only_zeros &= only_zeros(bytes),
        }
    }

    /// Returns the BLAKE3 digest of the delivered real bytes.
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.digest.as_ref().map(|digest| *digest.finalize().as_bytes())
    }

    /// True if anything was delivered, lost or completed, so that the delivery can be judged.
    pub fn has_any(&self) -> bool {
        self.bytes > 0 || self.lost_packets > 0 || self.completed.is_some()
    }

    /// True if the data is an exact prefix of what `senders` send, or all of it after completion.
    pub fn intact(&self, sent: &SentContent, senders: u64) -> bool {
        if self.lost_packets > 0 {
            return false;
        }
        let whole = |len: u64| self.bytes <= len && (self.completed.is_none() || self.bytes == len);
        match sent {
            SentContent::Zeros(len) => {
                self.only_zeros && len.is_none_or(|len| whole(len.saturating_mul(senders)))
            }
            SentContent::Real { bytes, digest } => {
                whole(bytes.len() as u64)
                    && if self.bytes == bytes.len() as u64 {
                        self.digest() == Some(*digest)
                    } else {
                        let prefix = blake3::hash(&bytes[..self.bytes as usize]);
                        self.digest() == Some(*prefix.as_bytes())
                    }
            }
        }
    }
}

/// Content that each sender of a flow sends.
#[derive(Clone, Debug)]
pub enum SentContent {
    /// Zeros: the number of bytes, or endless.
    Zeros(Option<u64>),
    /// Real bytes.
    Real {
        /// Content of the file.
        bytes: Arc<[u8]>,
        /// BLAKE3 digest of `bytes`.
        digest: [u8; 32],
    },
}

impl SentContent {
    /// Returns the content that the senders of `flow` send.
    ///
    /// # Errors
    /// A file to send cannot be read.
    pub fn of(flow: &Flow) -> Result<Self, SimError> {
        let path = match &flow.data {
            Data::Unlimited => return Ok(Self::Zeros(None)),
            Data::Size(bytes) => return Ok(Self::Zeros(Some(bytes.count()))),
            Data::File(path) => path,
        };
        let failed = |error| SimError {
            flow: flow.name.clone(),
            reason: format!("cannot read {}: {error}", path.display()),
        };
        let bytes: Arc<[u8]> = std::fs::read(path).map_err(failed)?.into();
        let digest = *blake3::hash(&bytes).as_bytes();
        Ok(Self::Real { bytes, digest })
    }

    /// True if the content has real bytes.
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real { .. })
    }

    /// Returns the content for a machine.
    pub fn content(&self) -> Box<dyn Content> {
        match self {
            Self::Zeros(len) => Box::new(Zeros { len: *len }),
            Self::Real { bytes, .. } => Box::new(InMemory(bytes.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(bytes: &[u8]) -> SentContent {
        SentContent::Real { bytes: bytes.into(), digest: *blake3::hash(bytes).as_bytes() }
    }

    #[test]
    fn only_an_exact_prefix_is_intact() {
        let sent = real(b"hello world");
        for (case, delivered, completed, intact) in [
            ("nothing", &b""[..], false, true),
            ("a prefix", b"hello", false, true),
            ("a prefix called complete", b"hello", true, false),
            ("everything", b"hello world", true, true),
            ("a wrong byte", b"hellO", false, false),
            ("too much", b"hello world!", false, false),
        ] {
            let mut delivery = Delivery::new(true);
            delivery.take(delivered, 0);
            delivery.completed = completed.then_some(Time::ZERO);
            assert_eq!(delivery.intact(&sent, 1), intact, "{case}");
        }
        let mut gap = Delivery::new(true);
        gap.take(b"hello", 0);
        gap.lost_packets = 1;
        assert!(!gap.intact(&sent, 1));
    }

    #[test]
    fn data_that_stands_for_zeros_must_be_zeros() {
        let mut delivery = Delivery::new(false);
        delivery.take(&[0, 0], 5);
        assert!(delivery.intact(&SentContent::Zeros(Some(10)), 1));
        delivery.take(&[], 4);
        assert!(!delivery.intact(&SentContent::Zeros(Some(10)), 1));
        assert!(delivery.intact(&SentContent::Zeros(Some(10)), 2));
        let mut wrong = Delivery::new(false);
        wrong.take(&[1], 0);
        assert!(!wrong.intact(&SentContent::Zeros(None), 1));
    }
}
