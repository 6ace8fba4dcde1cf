//! Writes packets.

use alloc::vec::Vec;

use faircast_base::Seq;

use super::checksum::sent_checksum;
use super::header::{
    FLAG_NETWORK_SIGNIFICANT, FLAG_OPTIONS, FLAG_PARITY, FLAG_VARIABLE_LENGTH, HEADER_LEN, Header,
};
use super::options::{END, OPTIONS_MAX, OptionType};
use super::{Body, PacketType};
use crate::congestion::Wire;

/// Appends one packet to a buffer: header and body at once, then options, then payload, and at
/// [`finish`](Self::finish) whatever depends on all of them.
///
/// Panics where its user breaks the format: more than [`OPTIONS_MAX`] options, network-significant
/// options after others (except from parts, which may be those of a foreign packet), a value of
/// more than 251 bytes, payload on a packet that carries none or of more than 65535 bytes.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    kind: PacketType,
    /// Where the packet begins in `out`.
    start: usize,
    /// Where its options begin and its last option begins, and how many there are.
    options: Option<(usize, usize, usize)>,
    /// Whether an option was written that network elements need not look at.
    ordinary: bool,
    /// Where the payload begins and how many zero bytes end it.
    payload: Option<(usize, u32)>,
}

impl<'a> Encoder<'a> {
    /// Begins a packet at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, header: &Header, body: &Body) -> Self {
        let start = out.len();
        let kind = body.kind();
        let mut flags = 0;
        if header.parity {
            flags |= FLAG_PARITY;
        }
        if header.variable_length {
            flags |= FLAG_VARIABLE_LENGTH;
        }
        let mut fixed = [0; HEADER_LEN];
        fixed[0..2].copy_from_slice(&header.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&header.destination_port.to_be_bytes());
        fixed[4] = kind as u8;
        fixed[5] = flags;
        fixed[8..14].copy_from_slice(&header.gsi.0);
        out.extend_from_slice(&fixed);
        body.encode(out);
        Self { out, kind, start, options: None, ordinary: false, payload: None }
    }

    /// Adds an option without bits of its own.
    pub fn option(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        let significant = OptionType::is_network_significant(kind, self.kind == PacketType::Odata);
        assert!(!(significant && self.ordinary), "network-significant options come first");
        self.raw_option(kind, 0, value)
    }

    /// Adds the option of a scheme.
    pub fn scheme_option<W: Wire>(&mut self, scheme: &W) -> &mut Self {
        let mut value = Vec::new();
        scheme.encode(&mut value);
        self.option(W::OPTION, &value)
    }

    /// Adds the list of a NAK or of its confirmation, unless that is empty.
    pub fn nak_list(&mut self, list: &[Seq]) -> &mut Self {
        if list.is_empty() {
            return self;
        }
        let value: Vec<u8> = list.iter().flat_map(|seq| seq.value().to_be_bytes()).collect();
        self.option(OptionType::NAK_LIST, &value)
    }

    /// Adds an option from its parts, in whatever order.
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

    /// Adds the payload: `fill` appends its bytes and returns how many zero bytes follow them.
    pub fn payload(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> u32) -> &mut Self {
        assert!(self.kind.is_data() && self.payload.is_none(), "data has one payload");
        let at = self.out.len();
        let zeros = fill(self.out);
        self.payload = Some((at, zeros));
        self
    }

    /// Fills in lengths, flags and checksum. Returns how many zero bytes follow the packet's bytes.
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
