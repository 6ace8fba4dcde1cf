//! Packets by which hosts test the network between them.
//!
//! All numbers are big-endian. A packet has 48 bytes; load and probes are padded with zeros.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 to 3 | `fcCK` |
//! | 4 | version, 1 |
//! | 5 | kind: 1 question, 2 answer, 3 load, 4 probe of a receiver |
//! | 6 | 1 if the sender has finished its tests, else 0 |
//! | 7 | train: number of the test |
//! | 8 to 15 | sender, a random number |
//! | 16 to 23 | answer: destination; question: a host that the sender has heard, or 0 |
//! | 24 to 27 | load: number in the train; answer: packets of the train received |
//! | 28 to 31 | load: packets of the train; answer: bytes of the longest IP packet received |
//! | 32 to 39 | answer: nanoseconds from the first to the last packet |
//! | 40 to 47 | zeros |
//!
//! Only questions and probes are answered, by packets that are not longer: no amplification.

/// Bytes of a question or an answer, and least bytes of load.
pub(super) const BYTES: usize = 48;
pub(super) const TRAINS: usize = 4;

const MAGIC: [u8; 4] = *b"fcCK";
const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) from: u64,
    pub(super) is_done: bool,
    pub(super) train: u8,
    pub(super) body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Request to every receiver for an answer. Names a host that the sender has heard.
    Question {
        heard: Option<u64>,
    },
    Answer {
        to: u64,
        received: u32,
        longest: u32,
        span_ns: u64,
    },
    Load {
        number: u32,
        total: u32,
    },
    Probe,
}

/// Returns a receiver's answer to a datagram; `None` if the datagram is no probe.
pub(crate) fn answer(probe: &[u8]) -> Option<[u8; BYTES]> {
    let packet = Packet::decode(probe)?;
    let body = Body::Answer { to: packet.from, received: 1, longest: 0, span_ns: 0 };
    (packet.body == Body::Probe).then(|| Packet { body, ..packet }.encode())
}

impl Packet {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let (kind, to, a, b, span_ns) = match self.body {
            Body::Question { heard } => (1, heard.unwrap_or(0), 0, 0, 0),
            Body::Answer { to, received, longest, span_ns } => (2, to, received, longest, span_ns),
            Body::Load { number, total } => (3, 0, number, total, 0),
            Body::Probe => (4, 0, 0, 0, 0),
        };
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[VERSION, kind, u8::from(self.is_done), self.train]);
        bytes[8..16].copy_from_slice(&self.from.to_be_bytes());
        bytes[16..24].copy_from_slice(&to.to_be_bytes());
        bytes[24..28].copy_from_slice(&a.to_be_bytes());
        bytes[28..32].copy_from_slice(&b.to_be_bytes());
        bytes[32..40].copy_from_slice(&span_ns.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<BYTES>()?;
        let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        if head[..4] != MAGIC || head[4] != VERSION || usize::from(head[7]) >= TRAINS || head[6] > 1
        {
            return None;
        }
        let body = match head[5] {
            1 if rest.is_empty() => Body::Question { heard: Some(long(16)).filter(|id| *id != 0) },
            2 if rest.is_empty() => Body::Answer {
                to: long(16),
                received: short(24),
                longest: short(28),
                span_ns: long(32),
            },
            3 => Body::Load { number: short(24), total: short(28) },
            4 => Body::Probe,
            _ => return None,
        };
        Some(Self { from: long(8), is_done: head[6] == 1, train: head[7], body })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets() -> impl Strategy<Value = Packet> {
        let body = prop_oneof![
            any::<u64>().prop_map(|id| Body::Question { heard: Some(id).filter(|id| *id != 0) }),
            (any::<u64>(), any::<u32>(), any::<u32>(), any::<u64>()).prop_map(
                |(to, received, longest, span_ns)| Body::Answer { to, received, longest, span_ns }
            ),
            (any::<u32>(), any::<u32>()).prop_map(|(number, total)| Body::Load { number, total }),
            Just(Body::Probe),
        ];
        let rest = (any::<u64>(), any::<bool>(), 0..TRAINS as u8, body);
        rest.prop_map(|(from, is_done, train, body)| Packet { from, is_done, train, body })
    }

    fn may_be_longer(packet: &Packet) -> bool {
        matches!(packet.body, Body::Load { .. } | Body::Probe)
    }

    proptest! {
        #[test]
        fn packets_survive_and_load_may_be_longer(packet in packets(), zeros in 0usize..9000) {
            let mut bytes = packet.encode().to_vec();
            prop_assert_eq!(Packet::decode(&bytes), Some(packet));
            bytes.resize(BYTES + zeros, 0);
            let is_whole = zeros == 0 || may_be_longer(&packet);
            prop_assert_eq!(Packet::decode(&bytes), is_whole.then_some(packet));
        }

        #[test]
        fn no_bytes_panic_and_what_is_read_is_written_the_same(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_ours in any::<bool>()
        ) {
            if is_ours && bytes.len() > 8 {
                bytes[..5].copy_from_slice(b"fcCK\x01");
                bytes[5] %= 6;
            }
            if let Some(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
                prop_assert!(may_be_longer(&packet) || bytes.len() == BYTES);
                prop_assert!(answer(&bytes).is_none_or(|answer| answer.len() <= bytes.len()));
            }
        }
    }
}
