//! Encoding and decoding of whole packets, and the bodies of their types.

use alloc::vec::Vec;
use core::ops::Deref;

use faircast_base::{BadInput, Checked, GroupId, NodeId, Seq};

use super::Nla;
use super::header::{
    FLAG_NETWORK_SIGNIFICANT, FLAG_OPTIONS, FLAG_PARITY, FLAG_VARIABLE_LENGTH, Fixed, HEADER_LEN,
    Header, PacketType, Tsi,
};
use super::options::{END, NAK_LIST_MAX, OPTIONS_MAX, OptionType, Options, OptionsLayout};
use crate::congestion::AckVector;
use crate::congestion::common::node;
use crate::fields::Encoded;
use crate::{Datagram, Destination};

/// Packet, decoded without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Ports, source and parity marks.
    pub header: Header,
    /// Fields of the packet's type.
    pub body: Body,
    /// Options of the packet.
    pub options: Options<'a>,
    /// Payload; empty for all but data.
    pub payload: Payload<'a>,
}

impl<'a> Packet<'a> {
    /// Decodes `bytes`, then `zeros` zero bytes. Ignores bytes after the options of non-data.
    ///
    /// # Errors
    /// `Truncated`, `Checksum` or `Malformed`.
    pub fn decode(bytes: &'a [u8], zeros: u32) -> Checked<Self> {
        Ok(Layout::decode(bytes, zeros, false)?.packet(bytes, zeros))
    }

    /// Returns the type of the packet.
    pub const fn kind(&self) -> PacketType {
        self.body.kind()
    }

    /// Returns the session of the packet.
    pub const fn tsi(&self) -> Tsi {
        self.header.tsi(self.kind())
    }

    /// Appends the packet to `out` with a fresh checksum. Returns the zero bytes that follow.
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

    /// Returns all sequence numbers of a NAK, null NAK or confirmation; none for other types.
    pub fn nak_sequence(&self) -> impl Iterator<Item = Seq> + use<'a> {
        let (first, options) = match self.body {
            Body::Nak(nak) | Body::Nnak(nak) | Body::Ncf(nak) => (Some(nak.first), self.options),
            _ => (None, Options::default()),
        };
        first.into_iter().chain(options.nak_list())
    }
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    header: Header,
    body: Body,
    options: OptionsLayout,
    payload_at: usize,
}

impl Layout {
    fn decode(bytes: &[u8], zeros: u32, authenticated: bool) -> Checked<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(BadInput::Truncated)?;
        let fixed = Fixed::decode(head)?;
        let sound = match fixed.checksum {
            0 => !fixed.kind.is_data(),
            _ => authenticated || checksum(bytes) == 0,
        };
        if !sound {
            return Err(BadInput::Checksum);
        }
        let mut rest = rest;
        let body = Body::decode(fixed.kind, &mut rest)?;
        let at = bytes.len() - rest.len();
        let options = match fixed.has_options {
            true => OptionsLayout::decode(bytes, at)?,
            false => OptionsLayout::none(at),
        };
        let payload_at = options.end;
        let payload_len = (bytes.len() - payload_at) as u64 + u64::from(zeros);
        if fixed.kind.is_data() && payload_len != u64::from(fixed.payload_len) {
            return Err(BadInput::Malformed);
        }
        Ok(Self { header: fixed.header, body, options, payload_at })
    }

    #[inline]
    fn packet<'a>(&self, bytes: &'a [u8], zeros: u32) -> Packet<'a> {
        let Self { header, body, options, payload_at } = *self;
        let payload = match body.kind().is_data() {
            true => Payload { bytes: &bytes[payload_at..], zeros },
            false => Payload::default(),
        };
        Packet { header, body, options: options.options(bytes), payload }
    }
}

/// Packet at an end of a session, decoded once for all that take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    packet: Packet<'a>,
    pub(crate) from: NodeId,
    to: Destination,
    pub(crate) congestion_experienced: bool,
    pub(crate) authenticated: bool,
}

impl<'a> Received<'a> {
    #[inline]
    pub(crate) fn decode(datagram: &Datagram<'a>) -> Checked<Self> {
        let Datagram { from, to, bytes, zeros, congestion_experienced, authenticated, parsed } =
            *datagram;
        let decode = || Layout::decode(bytes, zeros, authenticated);
        let found = parsed.and_then(|parsed| parsed.get_or_parse(decode));
        let own;
        let layout = match found {
            Some(found) => found.as_ref().map_err(|error| *error)?,
            None => {
                own = decode()?;
                &own
            }
        };
        let packet = layout.packet(bytes, zeros);
        Ok(Self { packet, from, to, congestion_experienced, authenticated })
    }

    pub(crate) fn is_for_group(&self) -> bool {
        self.to == Destination::Group(GroupId::SESSION)
    }
}

impl<'a> Deref for Received<'a> {
    type Target = Packet<'a>;

    fn deref(&self) -> &Packet<'a> {
        &self.packet
    }
}

/// Payload: some bytes, then some zero bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Bytes before the zeros.
    pub bytes: &'a [u8],
    /// Number of zero bytes that follow.
    pub zeros: u32,
}

impl Payload<'_> {
    /// Returns the number of all bytes.
    pub const fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.zeros as u64
    }

    /// Returns true if there is no payload.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Fields of a packet's type, beside the common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants without a text are what their names say")]
pub enum Body {
    Spm(Spm),
    Odata(Data),
    Rdata(Data),
    Nak(Nak),
    /// Null negative acknowledgement, which requests no repair and carries a scheme's report.
    Nnak(Nak),
    Ncf(Nak),
    Spmr,
    Ack(AckVector),
}

/// Source path message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spm {
    /// Sequence number of the SPM.
    pub sequence: Seq,
    /// Oldest data that can be repaired.
    pub trail: Seq,
    /// Newest data sent; `trail - 1` if none is kept.
    pub lead: Seq,
    /// Last PGM hop, destination of NAKs.
    pub path: Nla,
}

/// Lead of an SPM that, with trail 0, does not state the window.
pub const NO_WINDOW_LEAD: Seq = Seq::new(0x8000_0000);

impl Spm {
    /// Returns trail and lead, if the SPM states the window.
    pub fn window(&self) -> Option<(Seq, Seq)> {
        let silent = self.trail == Seq::new(0) && self.lead == NO_WINDOW_LEAD;
        (!silent).then_some((self.trail, self.lead))
    }
}

/// Original data or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Sequence number.
    pub sequence: Seq,
    /// Oldest data that can be repaired.
    pub trail: Seq,
}

/// NAK, null NAK or confirmation. Further sequence numbers are in the NAK list option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak {
    /// First requested sequence number.
    pub first: Seq,
    /// Source of the session.
    pub source: Nla,
    /// Group of the session.
    pub group: Nla,
}

impl Body {
    /// Returns the packet type.
    pub const fn kind(&self) -> PacketType {
        match self {
            Self::Spm(_) => PacketType::Spm,
            Self::Odata(_) => PacketType::Odata,
            Self::Rdata(_) => PacketType::Rdata,
            Self::Nak(_) => PacketType::Nak,
            Self::Nnak(_) => PacketType::Nnak,
            Self::Ncf(_) => PacketType::Ncf,
            Self::Spmr => PacketType::Spmr,
            Self::Ack(_) => PacketType::Ack,
        }
    }

    fn decode(kind: PacketType, bytes: &mut &[u8]) -> Checked<Self> {
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
                Self::Ack(AckVector { highest: Seq::new(highest), bitmap })
            }
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Spm(spm) => {
                (spm.sequence.value(), spm.trail.value(), spm.lead.value()).put(out);
                spm.path.encode(out);
            }
            Self::Odata(data) | Self::Rdata(data) => {
                (data.sequence.value(), data.trail.value()).put(out);
            }
            Self::Nak(nak) | Self::Nnak(nak) | Self::Ncf(nak) => {
                nak.first.value().put(out);
                nak.source.encode(out);
                nak.group.encode(out);
            }
            Self::Spmr => {}
            Self::Ack(vector) => (vector.highest.value(), vector.bitmap).put(out),
        }
    }
}

/// Encoder of one packet: header and body, options, payload, then [`finish`](Self::finish). Panics
/// above [`OPTIONS_MAX`] options, 251 bytes in an option or 65535 in the payload, for payload on a
/// packet without, and for network-significant options after others (except raw options).
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    kind: PacketType,
    start: usize,
    /// Start of the options, start of the last option, and number of options.
    options: Option<(usize, usize, usize)>,
    /// True if an option was written that network elements need not read.
    ordinary: bool,
    /// Start of the payload, and number of zero bytes at its end.
    payload: Option<(usize, u32)>,
}

impl<'a> Encoder<'a> {
    /// Begins a packet at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, header: &Header, body: &Body) -> Self {
        let start = out.len();
        let kind = body.kind();
        let flags = (u8::from(header.parity) * FLAG_PARITY)
            | (u8::from(header.variable_length) * FLAG_VARIABLE_LENGTH);
        let Header { source_port, destination_port, gsi, .. } = *header;
        // The checksum and the length of the payload are known at the end.
        let (checksum, payload_len) = (0u16, 0u16);
        let first = [kind as u8, flags];
        (source_port, destination_port, first, checksum, gsi.0, payload_len).put(out);
        body.encode(out);
        Self { out, kind, start, options: None, ordinary: false, payload: None }
    }

    /// Adds an option without option-specific bits.
    pub fn option(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        let significant = OptionType::is_network_significant(kind, self.kind == PacketType::Odata);
        assert!(!(significant && self.ordinary), "network-significant options come first");
        self.raw_option(kind, 0, value)
    }

    /// Adds the list of a NAK or of its confirmation, if not empty; at most [`NAK_LIST_MAX`].
    pub fn nak_list(&mut self, list: impl IntoIterator<Item = Seq>) -> &mut Self {
        let (mut value, mut len) = ([0; 4 * NAK_LIST_MAX], 0);
        for seq in list {
            value[len..len + 4].copy_from_slice(&seq.value().to_be_bytes());
            len += 4;
        }
        if len > 0 { self.option(OptionType::NAK_LIST, &value[..len]) } else { self }
    }

    /// Adds an option from its parts, in any order.
    pub fn raw_option(&mut self, kind: u8, specific: u8, value: &[u8]) -> &mut Self {
        assert!(self.payload.is_none(), "options come before the payload");
        let (first, count) = match self.options {
            Some((first, _, count)) => (first, count),
            None => {
                let first = self.out.len();
                self.out.extend_from_slice(&[OptionType::LENGTH, 4, 0, 0]);
                (first, 0)
            }
        };
        assert!(count < OPTIONS_MAX, "a packet has at most {OPTIONS_MAX} options");
        let at = self.out.len();
        let len = u8::try_from(4 + value.len()).expect("an option has at most 255 bytes");
        self.out.extend_from_slice(&[kind & !END, len, 0, specific]);
        self.out.extend_from_slice(value);
        self.options = Some((first, at, count + 1));
        if OptionType::is_network_significant(kind, self.kind == PacketType::Odata) {
            self.out[self.start + 5] |= FLAG_NETWORK_SIGNIFICANT;
        } else {
            self.ordinary = true;
        }
        self
    }

    /// Adds options of one kind, the first with `value`, up to `len` bytes without payload.
    pub fn pad_options(&mut self, kind: u8, value: &[u8], len: usize) -> &mut Self {
        let written = self.out.len() - self.start + if self.options.is_some() { 0 } else { 4 };
        let free = len.saturating_sub(written).max(4 + value.len());
        let count = free.div_ceil(255).min(OPTIONS_MAX - 1);
        let each = (free / count).min(255);
        let first = (free - each * (count - 1)).min(255);
        for number in 0..count {
            let bytes = if number == 0 { first } else { each };
            let mut padded = if number == 0 { value.to_vec() } else { Vec::new() };
            padded.resize(bytes - 4, 0);
            self.raw_option(kind, 0, &padded);
        }
        self
    }

    /// Adds the payload: `fill` appends its bytes and returns the number of zero bytes that follow.
    pub fn payload(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> u32) -> &mut Self {
        assert!(self.kind.is_data() && self.payload.is_none(), "data has one payload");
        let at = self.out.len();
        let zeros = fill(self.out);
        self.payload = Some((at, zeros));
        self
    }

    /// Fills in lengths, flags and checksum. Returns the number of zero bytes that follow.
    pub fn finish(self) -> u32 {
        let end = self.payload.map_or(self.out.len(), |(at, _)| at);
        if let Some((first, last, _)) = self.options {
            let total = u16::try_from(end - first).expect("16 options of 255 bytes fit");
            self.out[first + 2..first + 4].copy_from_slice(&total.to_be_bytes());
            self.out[last] |= END;
            self.out[self.start + 5] |= FLAG_OPTIONS;
        }
        let mut zeros = 0;
        if let Some((at, tail)) = self.payload {
            let len = (self.out.len() - at) as u64 + u64::from(tail);
            let len = u16::try_from(len).expect("a payload has at most 65535 bytes");
            self.out[self.start + 14..self.start + 16].copy_from_slice(&len.to_be_bytes());
            zeros = tail;
        }
        let sum = sent_checksum(&self.out[self.start..]);
        self.out[self.start + 6..self.start + 8].copy_from_slice(&sum.to_be_bytes());
        zeros
    }
}

fn words<const N: usize>(bytes: &mut &[u8]) -> Checked<[u32; N]> {
    bytes.split_off(..4 * N).and_then(node::words).ok_or(BadInput::Truncated)
}

fn decode_data(bytes: &mut &[u8]) -> Checked<Data> {
    let [sequence, trail] = words(bytes)?.map(Seq::new);
    Ok(Data { sequence, trail })
}

fn decode_nak(bytes: &mut &[u8]) -> Checked<Nak> {
    let [first] = words(bytes)?.map(Seq::new);
    Ok(Nak { first, source: Nla::decode(bytes)?, group: Nla::decode(bytes)? })
}

/// Returns the Internet checksum of `bytes`; 0 over an intact packet (src: RFC 3208 s8). A tail of
/// zero bytes changes nothing, at any length or offset: there is no pseudo-header.
pub fn checksum(bytes: &[u8]) -> u16 {
    // Words are added in native order and swapped at the end (src: RFC 1071 s2), four at a time in
    // vector instructions: 2^32 fit without a lost carry. Folding keeps the sum modulo 2^16 - 1.
    let (eights, rest) = bytes.as_chunks::<8>();
    let (mut low, mut high) = (0u64, 0u64);
    for eight in eights {
        let eight = u64::from_ne_bytes(*eight);
        low += eight & 0xffff_ffff;
        high += eight >> 32;
    }
    let mut sum = low + high;
    let (four, rest) = rest.as_chunks::<4>();
    if let [four] = four {
        sum += u64::from(u32::from_ne_bytes(*four));
    }
    let (two, rest) = rest.as_chunks::<2>();
    if let [two] = two {
        sum += u64::from(u16::from_ne_bytes(*two));
    }
    if let [one] = rest {
        sum += u64::from(u16::from_ne_bytes([*one, 0]));
    }
    // At most 2^33, then 2^18, then 2^16 + 2.
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    for _ in 0..3 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::from_be(sum as u16)
}

/// Returns the checksum to send: a computed 0 becomes 0xffff, since 0 means that there is none.
pub(super) fn sent_checksum(bytes: &[u8]) -> u16 {
    match checksum(bytes) {
        0 => 0xffff,
        sum => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest::proptest! {
        #[test]
        fn fast_sum_is_the_defined_one(bytes: Vec<u8>) {
            proptest::prop_assert_eq!(checksum(&bytes), slow(&bytes));
        }

        #[test]
        fn a_tail_of_zeros_costs_nothing(bytes: Vec<u8>, zeros in 0usize..9) {
            let mut long = bytes.clone();
            long.resize(bytes.len() + zeros, 0);
            proptest::prop_assert_eq!(checksum(&bytes), checksum(&long));
        }
    }

    #[test]
    fn no_carry_of_the_largest_sums_is_lost() {
        for len in [1, 2, 3, 7, 8, 9, 1500, 65_535] {
            let bytes = std::vec![0xff; len];
            assert_eq!(checksum(&bytes), slow(&bytes), "{len}");
        }
    }

    #[test]
    fn a_computed_zero_is_sent_as_all_ones() {
        assert_eq!(checksum(&[0xff, 0xff]), 0);
        assert_eq!(sent_checksum(&[0xff, 0xff]), 0xffff);
        assert_eq!(sent_checksum(&[]), 0xffff);
    }
}
