//! Whole packets and the bodies of their types.

use alloc::vec::Vec;

use faircast_base::Seq;

use super::header::{Fixed, HEADER_LEN, Header, PacketType, Tsi};
use super::{DecodeError, Encoder, NakList, Nla, Options, checksum};
use crate::congestion::AckVector;

/// A packet, taken apart without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Ports, source and parity marks.
    pub header: Header,
    /// What its type adds.
    pub body: Body,
    /// Its options.
    pub options: Options<'a>,
    /// Its payload; empty for all but data.
    pub payload: Payload<'a>,
}

impl<'a> Packet<'a> {
    /// Reads a packet of `bytes` followed by `zeros` zero bytes. What follows the options of a
    /// packet that is not data is ignored.
    ///
    /// # Errors
    /// Whatever the bytes are, the answer is a packet or a [`DecodeError`].
    pub fn decode(bytes: &'a [u8], zeros: u32) -> Result<Self, DecodeError> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(DecodeError::Truncated)?;
        let fixed = Fixed::decode(head)?;
        if fixed.checksum == 0 {
            if fixed.kind.is_data() {
                return Err(DecodeError::NoChecksum);
            }
        } else if checksum(bytes) != 0 {
            return Err(DecodeError::Checksum);
        }
        let mut rest = rest;
        let body = Body::decode(fixed.kind, &mut rest)?;
        let (options, rest) =
            if fixed.has_options { Options::decode(rest)? } else { (Options::default(), rest) };
        let payload =
            if fixed.kind.is_data() { Payload { bytes: rest, zeros } } else { Payload::default() };
        if fixed.kind.is_data() && payload.len() != u64::from(fixed.payload_len) {
            return Err(DecodeError::PayloadLength);
        }
        Ok(Self { header: fixed.header, body, options, payload })
    }

    /// Its type.
    pub const fn kind(&self) -> PacketType {
        self.body.kind()
    }

    /// The session that it belongs to.
    pub const fn tsi(&self) -> Tsi {
        self.header.tsi(self.kind())
    }

    /// Appends the packet to `out` with reserved bits zero and a fresh checksum; returns how many
    /// zero bytes follow.
    pub fn encode(&self, out: &mut Vec<u8>) -> u32 {
        let mut encoder = Encoder::new(out, &self.header, &self.body);
        for option in self.options.iter() {
            encoder.raw_option(option.kind, option.specific, option.value);
        }
        if self.kind().is_data() {
            encoder.payload(|out| {
                out.extend_from_slice(self.payload.bytes);
                self.payload.zeros
            });
        }
        encoder.finish()
    }

    /// All sequence numbers that a NAK, null NAK or confirmation names; nothing for other types.
    pub fn nak_sequence(&self) -> impl Iterator<Item = Seq> + use<'a> {
        let (first, list) = match self.body {
            Body::Nak(nak) | Body::Nnak(nak) | Body::Ncf(nak) => {
                (Some(nak.first), self.options.nak_list())
            }
            _ => (None, NakList::default()),
        };
        first.into_iter().chain(list.iter())
    }
}

/// Payload: some bytes, then some zero bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// How many zero bytes follow.
    pub zeros: u32,
}

impl Payload<'_> {
    /// Bytes in all.
    pub const fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.zeros as u64
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a packet's type adds to the common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Source path message.
    Spm(Spm),
    /// Poll request.
    Poll(Poll),
    /// Poll response.
    Polr(Polr),
    /// Original data.
    Odata(Data),
    /// Repair data.
    Rdata(Data),
    /// Negative acknowledgement.
    Nak(Nak),
    /// Null negative acknowledgement: a repair head asks for state, not for repair.
    Nnak(Nak),
    /// NAK confirmation.
    Ncf(Nak),
    /// Request for a source path message.
    Spmr,
    /// Acknowledgement of congestion control.
    Ack(Ack),
}

/// A source path message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spm {
    /// Its own sequence number.
    pub sequence: Seq,
    /// Oldest data that can be repaired.
    pub trail: Seq,
    /// Newest data sent; `trail - 1` where none is kept.
    pub lead: Seq,
    /// Where NAKs go: the last PGM hop.
    pub path: Nla,
}

/// The lead of an SPM that, with trail 0, says nothing of the window.
pub const NO_WINDOW_LEAD: Seq = Seq::new(0x8000_0000);

impl Spm {
    /// Trail and lead, unless the SPM says nothing of them.
    pub fn window(&self) -> Option<(Seq, Seq)> {
        let silent = self.trail == Seq::new(0) && self.lead == NO_WINDOW_LEAD;
        (!silent).then_some((self.trail, self.lead))
    }
}

/// Data, original or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Sequence number.
    pub sequence: Seq,
    /// Oldest data that can be repaired.
    pub trail: Seq,
}

/// A NAK, a null NAK or a confirmation. More sequence numbers are in the NAK list option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak {
    /// The first sequence number asked for.
    pub first: Seq,
    /// The source of the session.
    pub source: Nla,
    /// The group of the session.
    pub group: Nla,
}

/// A poll request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// Its own sequence number.
    pub sequence: Seq,
    /// Round.
    pub round: u16,
    /// 0 for a general poll, 1 for a search of repairers.
    pub sub_type: u16,
    /// Where responses go.
    pub path: Nla,
    /// Back-off interval of responses in microseconds.
    pub backoff_us: u32,
    /// Random string.
    pub random: u32,
    /// Which of its bits must match.
    pub mask: u32,
}

/// A poll response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polr {
    /// Sequence number of the poll.
    pub sequence: Seq,
    /// Round of the poll.
    pub round: u16,
}

/// An acknowledgement of congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which of the last 32 packets have arrived.
    pub vector: AckVector,
}

impl Body {
    /// The type.
    pub const fn kind(&self) -> PacketType {
        match self {
            Self::Spm(_) => PacketType::Spm,
            Self::Poll(_) => PacketType::Poll,
            Self::Polr(_) => PacketType::Polr,
            Self::Odata(_) => PacketType::Odata,
            Self::Rdata(_) => PacketType::Rdata,
            Self::Nak(_) => PacketType::Nak,
            Self::Nnak(_) => PacketType::Nnak,
            Self::Ncf(_) => PacketType::Ncf,
            Self::Spmr => PacketType::Spmr,
            Self::Ack(_) => PacketType::Ack,
        }
    }

    /// Takes the body of a packet of type `kind` off the front of `bytes`.
    fn decode(kind: PacketType, bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(match kind {
            PacketType::Odata => Self::Odata(decode_data(bytes)?),
            PacketType::Rdata => Self::Rdata(decode_data(bytes)?),
            PacketType::Nak => Self::Nak(decode_nak(bytes)?),
            PacketType::Nnak => Self::Nnak(decode_nak(bytes)?),
            PacketType::Ncf => Self::Ncf(decode_nak(bytes)?),
            PacketType::Spmr => Self::Spmr,
            PacketType::Spm => {
                let [sequence, trail, lead] = words(bytes)?.map(Seq::new);
                Self::Spm(Spm { sequence, trail, lead, path: Nla::decode(bytes)? })
            }
            PacketType::Ack => {
                let [highest, bitmap] = words(bytes)?;
                Self::Ack(Ack { vector: AckVector { highest: Seq::new(highest), bitmap } })
            }
            PacketType::Poll => {
                let [sequence, kind] = words(bytes)?;
                let (sequence, path) = (Seq::new(sequence), Nla::decode(bytes)?);
                let (round, sub_type) = ((kind >> 16) as u16, kind as u16);
                let [backoff_us, random, mask] = words(bytes)?;
                Self::Poll(Poll { sequence, round, sub_type, path, backoff_us, random, mask })
            }
            PacketType::Polr => {
                let [sequence, round] = words(bytes)?;
                Self::Polr(Polr { sequence: Seq::new(sequence), round: (round >> 16) as u16 })
            }
        })
    }

    /// Appends the body to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |words: &[u32]| {
            for word in words {
                out.extend_from_slice(&word.to_be_bytes());
            }
        };
        match self {
            Self::Spm(spm) => {
                put(&[spm.sequence.value(), spm.trail.value(), spm.lead.value()]);
                spm.path.encode(out);
            }
            Self::Odata(data) | Self::Rdata(data) => {
                put(&[data.sequence.value(), data.trail.value()]);
            }
            Self::Nak(nak) | Self::Nnak(nak) | Self::Ncf(nak) => {
                put(&[nak.first.value()]);
                nak.source.encode(out);
                nak.group.encode(out);
            }
            Self::Spmr => {}
            Self::Ack(ack) => put(&[ack.vector.highest.value(), ack.vector.bitmap]),
            Self::Poll(poll) => {
                let kind = u32::from(poll.round) << 16 | u32::from(poll.sub_type);
                put(&[poll.sequence.value(), kind]);
                poll.path.encode(out);
                let words = [poll.backoff_us, poll.random, poll.mask];
                out.extend(words.into_iter().flat_map(u32::to_be_bytes));
            }
            Self::Polr(polr) => put(&[polr.sequence.value(), u32::from(polr.round) << 16]),
        }
    }
}

/// Takes `N` big-endian words off the front.
fn words<const N: usize>(bytes: &mut &[u8]) -> Result<[u32; N], DecodeError> {
    let front = bytes.split_off(..4 * N).ok_or(DecodeError::Truncated)?;
    let mut out = [0; N];
    for (word, bytes) in out.iter_mut().zip(front.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    Ok(out)
}

fn decode_data(bytes: &mut &[u8]) -> Result<Data, DecodeError> {
    let [sequence, trail] = words(bytes)?.map(Seq::new);
    Ok(Data { sequence, trail })
}

fn decode_nak(bytes: &mut &[u8]) -> Result<Nak, DecodeError> {
    let [first] = words(bytes)?.map(Seq::new);
    Ok(Nak { first, source: Nla::decode(bytes)?, group: Nla::decode(bytes)? })
}
