//! Option extensions (src: RFC 3208 s9, its appendices, and OpenPGM for congestion control).

use faircast_base::{BadInput, Checked, Seq};

use super::Nla;

/// Most options of a packet, without the one for their length (src: RFC 3208 s9.1).
pub const OPTIONS_MAX: usize = 16;

/// Most sequence numbers in a NAK list, beyond the one in the packet's body (src: RFC 3208 s9.3).
pub const NAK_LIST_MAX: usize = 62;

/// Bytes before the value of an option: type, length, reserved and OPX bits, option-specific bits.
const OPTION_HEADER_LEN: usize = 4;

/// Flag on the type of the last option.
pub(super) const END: u8 = 0x80;

/// Numbers of the options.
#[derive(Clone, Copy, Debug)]
pub struct OptionType;

#[expect(missing_docs, reason = "options without a text are those of RFC 3208 and OpenPGM")]
impl OptionType {
    pub const LENGTH: u8 = 0x00;
    pub const FRAGMENT: u8 = 0x01;
    pub const NAK_LIST: u8 = 0x02;
    pub const JOIN: u8 = 0x03;
    pub const NAK_BO_IVL: u8 = 0x04;
    pub const NAK_BO_RNG: u8 = 0x05;
    pub const REDIRECT: u8 = 0x07;
    pub const PARITY_PRM: u8 = 0x08;
    pub const PARITY_GRP: u8 = 0x09;
    pub const CURR_TGSIZE: u8 = 0x0a;
    pub const NBR_UNREACH: u8 = 0x0b;
    pub const PATH_NLA: u8 = 0x0c;
    pub const SYN: u8 = 0x0d;
    pub const FIN: u8 = 0x0e;
    pub const RST: u8 = 0x0f;
    pub const CR: u8 = 0x10;
    pub const CRQST: u8 = 0x11;
    /// pgmcc's announcement on data: timestamp and acker.
    pub const PGMCC_DATA: u8 = 0x12;
    /// pgmcc's report on ACK and NAK: echoed timestamp, loss rate, reporter.
    pub const PGMCC_FEEDBACK: u8 = 0x13;
    /// Departure of the receiver that sends this ACK; faircast's own (src: pgmcc-draft s2.3.2).
    pub const ACKER_LEAVING: u8 = 0x14;
    /// TFMCC's header of data. faircast's own, as are the next three: docs/schemes/tfmcc.md.
    pub const TFMCC_DATA: u8 = 0x15;
    /// TFMCC's report.
    pub const TFMCC_FEEDBACK: u8 = 0x16;
    /// ORMCC's header of data: docs/schemes/ormcc.md.
    pub const ORMCC_DATA: u8 = 0x17;
    /// ORMCC's congestion indication.
    pub const ORMCC_FEEDBACK: u8 = 0x18;
    /// Empty announcement of a control, for transports that need a number.
    pub const OPEN_DATA: u8 = 0x19;
    /// Empty report of a control's receivers.
    pub const OPEN_FEEDBACK: u8 = 0x1a;
    /// Object of a transfer's source. faircast's own, as are the next three: docs/transfer.md.
    pub const OBJECT: u8 = 0x20;
    /// Missing symbols of a transfer's receiver.
    pub const WANT: u8 = 0x21;
    /// Symbols that a transfer's source will send.
    pub const CONFIRM: u8 = 0x22;
    /// State of a transfer's receiver, and the answer of its source.
    pub const MEMBER: u8 = 0x23;
    /// Load of a transfer's receiver. faircast's own: docs/transfer.md.
    pub const LOAD: u8 = 0x25;
    /// Rate limit of a transfer's receiver. faircast's own: docs/transfer.md.
    pub const LIMIT: u8 = 0x26;
    /// Lengths of packets that reach a transfer's receiver. faircast's own: docs/transfer.md.
    pub const PATH: u8 = 0x27;
    /// Probe of a packet length by a transfer's source. faircast's own: docs/transfer.md.
    pub const PROBE: u8 = 0x28;
    /// Scheme of an end. faircast's own: docs/pgm.md.
    pub const SCHEME: u8 = 0x24;

    /// Returns true if elements must read the option: not `CURR_TGSIZE` on original data.
    pub(super) const fn is_network_significant(kind: u8, odata: bool) -> bool {
        match kind {
            Self::NAK_LIST
            | Self::NAK_BO_IVL
            | Self::NAK_BO_RNG
            | Self::REDIRECT
            | Self::PARITY_PRM
            | Self::NBR_UNREACH
            | Self::PATH_NLA
            | Self::CR
            | Self::CRQST => true,
            Self::CURR_TGSIZE => !odata,
            _ => false,
        }
    }
}

/// Place of the options in a packet, with permitted lengths, and their types.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionsLayout {
    start: usize,
    pub(super) end: usize,
    kinds: u64,
}

impl OptionsLayout {
    pub(super) const fn none(at: usize) -> Self {
        Self { start: at, end: at, kinds: 0 }
    }

    pub(super) fn decode(packet: &[u8], at: usize) -> Checked<Self> {
        let bytes = &packet[at..];
        let (&[kind, len, t0, t1], _) = bytes.split_first_chunk().ok_or(BadInput::Truncated)?;
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        if kind & !END != OptionType::LENGTH || len != 4 || total < OPTION_HEADER_LEN {
            return Err(BadInput::Malformed);
        }
        if total > bytes.len() {
            return Err(BadInput::Truncated);
        }
        let kinds = kinds(&bytes[OPTION_HEADER_LEN..total])?;
        Ok(Self { start: at + OPTION_HEADER_LEN, end: at + total, kinds })
    }

    #[inline]
    pub(super) fn options<'a>(&self, packet: &'a [u8]) -> Options<'a> {
        Options { bytes: &packet[self.start..self.end], kinds: self.kinds }
    }
}

fn kinds(bytes: &[u8]) -> Checked<u64> {
    let (mut rest, mut count, mut kinds) = (bytes, 0, 0);
    while let Some((&[kind, len, ..], _)) = rest.split_first_chunk::<OPTION_HEADER_LEN>() {
        count += 1;
        if count > OPTIONS_MAX {
            return Err(BadInput::Malformed);
        }
        let len = usize::from(len);
        if len < OPTION_HEADER_LEN || len > rest.len() {
            return Err(BadInput::Malformed);
        }
        RawOption::split(&rest[..len]).check()?;
        kinds |= kind_bit(kind & !END);
        rest = &rest[len..];
        if (kind & END != 0) != rest.is_empty() {
            return Err(BadInput::Malformed);
        }
    }
    if rest.is_empty() { Ok(kinds) } else { Err(BadInput::Malformed) }
}

/// Returns the bit for option type `kind`, 0 to 0x7f. Types with a distance of 64 share a bit.
const fn kind_bit(kind: u8) -> u64 {
    1 << (kind & 63)
}

/// Options of a packet, of permitted lengths. Equality ignores reserved bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// All options but the first, which only states the length.
    bytes: &'a [u8],
    /// Bits of the present types: most searched types are absent.
    kinds: u64,
}

impl<'a> Options<'a> {
    /// Returns true if there are no options.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all options in order, undecoded.
    pub fn iter(&self) -> impl Iterator<Item = RawOption<'a>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let len = usize::from(*rest.get(1)?);
            let (option, tail) = rest.split_at(len);
            rest = tail;
            Some(RawOption::split(option))
        })
    }

    /// Returns the first option of type `kind`.
    #[inline]
    pub fn find(&self, kind: u8) -> Option<RawOption<'a>> {
        let can_be = self.kinds & kind_bit(kind) != 0;
        if can_be { self.iter().find(|option| option.kind == kind) } else { None }
    }

    /// Returns true if there is an option of type `kind`.
    #[inline]
    pub fn has(&self, kind: u8) -> bool {
        self.find(kind).is_some()
    }

    /// Returns the sequence numbers of a NAK or its confirmation beyond the first. deviates: their
    /// order (RFC 3208 s9.3) is not checked, since receivers may list by their timers.
    pub fn nak_list(&self) -> impl Iterator<Item = Seq> + use<'a> {
        let value = self.find(OptionType::NAK_LIST).map_or(&[][..], |option| option.value);
        value.as_chunks().0.iter().map(|bytes| Seq::new(u32::from_be_bytes(*bytes)))
    }
}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Options<'_> {}

/// Undecoded option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Number of the option.
    pub kind: u8,
    /// Last header byte: 7 bits of the option's own, and the mark of an encoded null.
    pub specific: u8,
    /// Bytes after the header of 4 bytes.
    pub value: &'a [u8],
}

impl<'a> RawOption<'a> {
    fn split(bytes: &'a [u8]) -> Self {
        Self { kind: bytes[0] & !END, specific: bytes[3], value: &bytes[OPTION_HEADER_LEN..] }
    }

    fn check(&self) -> Checked {
        let len = self.value.len();
        let fits = match self.kind {
            OptionType::LENGTH => return Err(BadInput::Malformed),
            OptionType::NBR_UNREACH
            | OptionType::SYN
            | OptionType::FIN
            | OptionType::RST
            | OptionType::CRQST
            | OptionType::ACKER_LEAVING => len == 0,
            OptionType::JOIN
            | OptionType::PARITY_PRM
            | OptionType::PARITY_GRP
            | OptionType::CURR_TGSIZE => len == 4,
            OptionType::NAK_BO_IVL | OptionType::NAK_BO_RNG => len == 8,
            OptionType::FRAGMENT => len == 12,
            OptionType::PATH_NLA => len == 4 || len == 16,
            OptionType::NAK_LIST => len.is_multiple_of(4),
            OptionType::REDIRECT => return self.check_address(0),
            OptionType::CR => return self.check_address(CR_ADDRESS),
            _ => true,
        };
        if fits { Ok(()) } else { Err(BadInput::Malformed) }
    }

    fn check_address(&self, at: usize) -> Checked {
        let mut address = self.value.get(at..).unwrap_or_default();
        match Nla::decode(&mut address) {
            Ok(_) if address.is_empty() => Ok(()),
            _ => Err(BadInput::Malformed),
        }
    }

    /// Returns the sequence number in the value of a JOIN; `None` for another length.
    pub fn seq(&self) -> Option<Seq> {
        self.value.try_into().ok().map(|bytes| Seq::new(u32::from_be_bytes(bytes)))
    }
}

/// Bytes of a congestion report before its address: the lead, three losses, and reserved bytes.
const CR_ADDRESS: usize = 12;
