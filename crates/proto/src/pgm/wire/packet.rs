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
        let (body, rest) = Body::decode(fixed.kind, rest)?;
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

    fn decode(kind: PacketType, bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        match kind {
            PacketType::Odata => decode_data(bytes).map(|(data, rest)| (Self::Odata(data), rest)),
            PacketType::Rdata => decode_data(bytes).map(|(data, rest)| (Self::Rdata(data), rest)),
            PacketType::Spm => decode_spm(bytes).map(|(spm, rest)| (Self::Spm(spm), rest)),
            PacketType::Nak => decode_nak(bytes).map(|(nak, rest)| (Self::Nak(nak), rest)),
            PacketType::Nnak => decode_nak(bytes).map(|(nak, rest)| (Self::Nnak(nak), rest)),
            PacketType::Ncf => decode_nak(bytes).map(|(nak, rest)| (Self::Ncf(nak), rest)),
            PacketType::Spmr => Ok((Self::Spmr, bytes)),
            PacketType::Ack => {
                let ([highest, bitmap], rest) = words(bytes)?;
                let vector = AckVector { highest: Seq::new(highest), bitmap };
                Ok((Self::Ack(Ack { vector }), rest))
            }
            PacketType::Poll => decode_poll(bytes).map(|(poll, rest)| (Self::Poll(poll), rest)),
            PacketType::Polr => {
                let ([sequence, round], rest) = words(bytes)?;
                let (sequence, round) = (Seq::new(sequence), (round >> 16) as u16);
                Ok((Self::Polr(Polr { sequence, round }), rest))
            }
        }
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
                for word in [poll.backoff_us, poll.random, poll.mask] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
            Self::Polr(polr) => put(&[polr.sequence.value(), u32::from(polr.round) << 16]),
        }
    }
}

/// Splits `N` big-endian words off the front.
fn words<const N: usize>(bytes: &[u8]) -> Result<([u32; N], &[u8]), DecodeError> {
    let (front, rest) = bytes.split_at_checked(4 * N).ok_or(DecodeError::Truncated)?;
    let mut out = [0; N];
    for (word, bytes) in out.iter_mut().zip(front.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four have four bytes"));
    }
    Ok((out, rest))
}

fn decode_data(bytes: &[u8]) -> Result<(Data, &[u8]), DecodeError> {
    let ([sequence, trail], rest) = words(bytes)?;
    Ok((Data { sequence: Seq::new(sequence), trail: Seq::new(trail) }, rest))
}

fn decode_spm(bytes: &[u8]) -> Result<(Spm, &[u8]), DecodeError> {
    let ([sequence, trail, lead], rest) = words(bytes)?;
    let (path, rest) = Nla::decode(rest)?;
    let [sequence, trail, lead] = [sequence, trail, lead].map(Seq::new);
    Ok((Spm { sequence, trail, lead, path }, rest))
}

fn decode_nak(bytes: &[u8]) -> Result<(Nak, &[u8]), DecodeError> {
    let ([first], rest) = words(bytes)?;
    let (source, rest) = Nla::decode(rest)?;
    let (group, rest) = Nla::decode(rest)?;
    Ok((Nak { first: Seq::new(first), source, group }, rest))
}

fn decode_poll(bytes: &[u8]) -> Result<(Poll, &[u8]), DecodeError> {
    let ([sequence, kind], rest) = words(bytes)?;
    let (path, rest) = Nla::decode(rest)?;
    let ([backoff_us, random, mask], rest) = words(rest)?;
    let (round, sub_type) = ((kind >> 16) as u16, kind as u16);
    Ok((
        Poll { sequence: Seq::new(sequence), round, sub_type, path, backoff_us, random, mask },
        rest,
    ))
}
