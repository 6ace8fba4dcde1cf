//! Wire format of segments: the TCP header of RFC 9293 s3.1 with the SACK option of RFC 2018 s3.
//! Numbers count packets, as in ns-2; both ports carry the flow; the checksum field stays zero.

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, FlowId};

use crate::fields::{Encoded, Fields};

pub(super) const HEADER_LEN: u32 = 20;
pub(super) const IP_HEADER_LEN: u32 = 20;
/// Bytes that ns-2 counts for a SYN or an acknowledgement, and for each SACK block in it.
pub(super) const CONTROL_WIRE_LEN: u32 = 40;
pub(super) const SACK_BLOCK_WIRE_LEN: u32 = 8;
/// Most SACK blocks in a segment: the capacity of 40 bytes of options.
pub(super) const SACK_BLOCKS_MAX: usize = 4;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// First of the reserved bits.
const AGAIN: u8 = 0x08;

/// Checksum and urgent pointer, which stay zero.
const CHECKSUM_AND_URGENT: u32 = 0;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_SACK: u8 = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    pub(super) fn push(&mut self, start: u32, end: u32) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = (start, end);
            self.len += 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Data {
        flow: FlowId,
        seq: u32,
        syn: bool,
        fin: bool,
        /// True for a retransmission, not a late packet: first reserved bit (src: RFC 9293 s3.1).
        again: bool,
    },
    Ack {
        flow: FlowId,
        next: u32,
        sack: SackBlocks,
    },
}

impl Segment {
    pub(super) fn encode(&self, buf: &mut Vec<u8>) {
        let (flow, seq, ack, flags, sack) = match self {
            Self::Data { flow, seq, syn, fin, .. } => {
                let flags = if *syn { SYN } else { 0 } | if *fin { FIN } else { 0 };
                (flow, *seq, 0, flags, [].as_slice())
            }
            Self::Ack { flow, next, sack } => (flow, 0, *next, ACK, sack.as_slice()),
        };
        let again = matches!(self, Self::Data { again: true, .. });
        let words = HEADER_LEN / 4 + if sack.is_empty() { 0 } else { 1 + 2 * sack.len() as u32 };
        let offset = (words as u8) << 4 | if again { AGAIN } else { 0 };
        // Maximum window field: the sender's limit is its own setting.
        (flow.0, seq, ack, [offset, flags], (u16::MAX, CHECKSUM_AND_URGENT)).put(buf);
        if !sack.is_empty() {
            let len = 2 + 8 * sack.len() as u8;
            [OPTION_NOP, OPTION_NOP, OPTION_SACK, len].put(buf);
            sack.iter().for_each(|block| block.put(buf));
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Checked<(Self, usize)> {
        let mut fields = Fields(bytes);
        let header: Option<(_, _, _, [u8; 2], (u16, u32))> = fields.read();
        let (flow, seq, next, [offset, flags], _) = header.ok_or(BadInput::Truncated)?;
        let len = usize::from(offset >> 4) * 4;
        let options = len.checked_sub(HEADER_LEN as usize).ok_or(BadInput::Malformed)?;
        let options = fields.bytes(options).ok_or(BadInput::Truncated)?;
        let flow = FlowId(flow);
        let segment = match flags {
            flags if flags & !(SYN | FIN) == 0 => Self::Data {
                flow,
                seq,
                syn: flags & SYN != 0,
                fin: flags & FIN != 0,
                again: offset & AGAIN != 0,
            },
            ACK => Self::Ack { flow, next, sack: decode_sack(options)? },
            _ => return Err(BadInput::Malformed),
        };
        Ok((segment, len))
    }
}

fn decode_sack(mut options: &[u8]) -> Checked<SackBlocks> {
    let mut sack = SackBlocks::default();
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            OPTION_END => break,
            OPTION_NOP => options = rest,
            _ => {
                let len = usize::from(*rest.first().ok_or(BadInput::Malformed)?);
                if len < 2 || len > options.len() {
                    return Err(BadInput::Malformed);
                }
                if kind == OPTION_SACK {
                    let mut blocks = Fields(&options[2..len]);
                    while let Some((start, end)) = blocks.read() {
                        sack.push(start, end);
                    }
                }
                options = &options[len..];
            }
        }
    }
    Ok(sack)
}

/// Returns the 64-bit number nearest to `near` with low half `low`; `None` if negative.
pub(super) fn unwrap_near(near: u64, low: u32) -> Option<u64> {
    near.checked_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::formats::Snapshot;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn segments_survive_the_wire() {
        let flow = FlowId(0x0001_0203);
        let mut sack = SackBlocks::default();
        let ack = |sack| Segment::Ack { flow, next: 7, sack };
        let mut segments = vec![
            (Segment::Data { flow, seq: 0, syn: true, fin: false, again: false }, 20),
            (Segment::Data { flow, seq: u32::MAX, syn: false, fin: true, again: true }, 20),
            (ack(sack), 20),
        ];
        for i in 1..=5 {
            sack.push(10 * i, 10 * i + 5);
            segments.push((ack(sack), 24 + 8 * i.min(4) as usize));
        }
        let mut snapshot = Snapshot::new("tcp");
        for (segment, len) in segments {
            let mut bytes = Vec::new();
            segment.encode(&mut bytes);
            snapshot.add(&bytes);
            assert_eq!(bytes.len(), len, "{segment:?}");
            assert_eq!(Segment::decode(&bytes), Ok((segment, len)));
        }
        snapshot.check();
    }

    #[test]
    fn options_that_are_not_known_are_passed_over() {
        let mut bytes = Vec::new();
        Segment::Ack { flow: FlowId(1), next: 3, sack: SackBlocks::default() }.encode(&mut bytes);
        // A timestamp option (kind 8, 10 bytes), a SACK block and the end of the list.
        bytes.extend_from_slice(&[8, 10, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[5, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
        bytes.extend_from_slice(&[0, 0, 0, 0]);
        bytes[12] = 11 << 4;
        let mut sack = SackBlocks::default();
        sack.push(5, 6);
        let want = Segment::Ack { flow: FlowId(1), next: 3, sack };
        assert_eq!(Segment::decode(&bytes), Ok((want, 44)));
    }

    #[test]
    fn bad_headers_are_refused() {
        let mut good = Vec::new();
        Segment::Ack { flow: FlowId(1), next: 3, sack: SackBlocks::default() }.encode(&mut good);
        assert_eq!(Segment::decode(&good[..19]), Err(BadInput::Truncated));
        for (at, value, want) in [
            (12, 4 << 4, BadInput::Malformed),
            (12, 6 << 4, BadInput::Truncated),
            (13, 0x12, BadInput::Malformed),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Segment::decode(&bad), Err(want), "byte {at}");
        }
        for option in [[5, 0, 0, 0], [5, 5, 0, 0], [1, 1, 1, 5]] {
            let mut bad = good.clone();
            bad[12] = 6 << 4;
            bad.extend_from_slice(&option);
            assert_eq!(Segment::decode(&bad), Err(BadInput::Malformed), "{option:?}");
        }
    }

    #[test]
    fn numbers_unwrap_to_the_nearest() {
        for (near, low, want) in [
            (0, 5, Some(5)),
            (5, u32::MAX, None),
            (1 << 32, u32::MAX, Some((1 << 32) - 1)),
            ((1 << 32) - 1, 2, Some((1 << 32) + 2)),
        ] {
            assert_eq!(unwrap_near(near, low), want, "{near} {low}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Segment::decode(&bytes);
        }

        #[test]
        fn options_of_any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 60)) {
            bytes[13] = ACK;
            bytes[12] |= 0x50;
            let _ = Segment::decode(&bytes);
        }
    }
}
