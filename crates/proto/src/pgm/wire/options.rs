//! Option extensions (src: RFC 3208 s9, its appendices, and OpenPGM for congestion control).

use alloc::vec::Vec;

use faircast_base::Seq;

use super::{DecodeError, Nla};

/// Most options of one packet, the one that tells their length not counted (src: RFC 3208 s9.1).
pub const OPTIONS_MAX: usize = 16;

/// Most sequence numbers in a NAK list, beyond the one in the packet's body (src: RFC 3208 s9.3).
pub const NAK_LIST_MAX: usize = 62;

/// Bytes before the value of an option: type, length, reserved and OPX bits, option-specific bits.
const OPTION_HEADER_LEN: usize = 4;

/// The bit on the type of the last option.
pub(super) const END: u8 = 0x80;

/// The numbers of the options.
#[derive(Clone, Copy, Debug)]
pub struct OptionType;

impl OptionType {
    /// Length of all options together; always first, written and read by the codec itself.
    pub const LENGTH: u8 = 0x00;
    /// The packet is a fragment of a larger unit of the application.
    pub const FRAGMENT: u8 = 0x01;
    /// More sequence numbers that a NAK asks for.
    pub const NAK_LIST: u8 = 0x02;
    /// From where on late joiners may ask for repairs.
    pub const JOIN: u8 = 0x03;
    /// Back-off interval of NAKs.
    pub const NAK_BO_IVL: u8 = 0x04;
    /// Range of that interval.
    pub const NAK_BO_RNG: u8 = 0x05;
    /// Another node repairs.
    pub const REDIRECT: u8 = 0x07;
    /// Parity parameters.
    pub const PARITY_PRM: u8 = 0x08;
    /// Group number of a parity packet beyond the first group.
    pub const PARITY_GRP: u8 = 0x09;
    /// Actual size of a short transmission group.
    pub const CURR_TGSIZE: u8 = 0x0a;
    /// The neighbour is unreachable.
    pub const NBR_UNREACH: u8 = 0x0b;
    /// Address of the confirming element.
    pub const PATH_NLA: u8 = 0x0c;
    /// First data of the session.
    pub const SYN: u8 = 0x0d;
    /// The session ends with the leading sequence number.
    pub const FIN: u8 = 0x0e;
    /// The session has failed.
    pub const RST: u8 = 0x0f;
    /// Congestion report.
    pub const CR: u8 = 0x10;
    /// Request for congestion reports.
    pub const CRQST: u8 = 0x11;
    /// pgmcc's announcement on data: timestamp and acker.
    pub const PGMCC_DATA: u8 = 0x12;
    /// pgmcc's report on ACK and NAK: echoed timestamp, loss rate, who reports.
    pub const PGMCC_FEEDBACK: u8 = 0x13;
    /// The receiver that sends this ACK leaves. faircast's own: the pgmcc draft (s2.3.2) asks for
    /// such a mark and gives it no number; peers that do not know it skip it.
    pub const ACKER_LEAVING: u8 = 0x14;
    /// TFMCC's header of data. faircast's own, as are the next three: docs/schemes/tfmcc.md.
    pub const TFMCC_DATA: u8 = 0x15;
    /// TFMCC's report.
    pub const TFMCC_FEEDBACK: u8 = 0x16;
    /// ORMCC's header of data: docs/schemes/ormcc.md.
    pub const ORMCC_DATA: u8 = 0x17;
    /// ORMCC's congestion indication.
    pub const ORMCC_FEEDBACK: u8 = 0x18;
    /// What a transfer's source sends. faircast's own, as are the next three: docs/transfer.md.
    pub const OBJECT: u8 = 0x20;
    /// What a transfer's receiver lacks.
    pub const WANT: u8 = 0x21;
    /// What a transfer's source is going to send.
    pub const CONFIRM: u8 = 0x22;
    /// How a transfer's receiver is, and that its source has taken notice.
    pub const MEMBER: u8 = 0x23;
    /// What keeps a transfer's receiver busy. faircast's own: docs/transfer.md.
    pub const LOAD: u8 = 0x25;
    /// The rate that a transfer's receiver asks for at most. faircast's own: docs/transfer.md.
    pub const LIMIT: u8 = 0x26;
    /// Which scheme an end speaks. faircast's own: docs/pgm.md.
    pub const SCHEME: u8 = 0x24;

    /// Whether network elements must look at the option. `odata` tells whether it sits on original
    /// data, where one of them does not count.
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

/// The options of a packet, each known to lie within it and to have a permitted length. They are
/// equal where all but their reserved bits are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// All but the first, which only tells the length.
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// Reads all options from the front of `bytes`; returns what follows them.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let (&[kind, len, t0, t1], _) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        if kind & !END != OptionType::LENGTH || len != 4 || total < OPTION_HEADER_LEN {
            return Err(DecodeError::OptionsLength);
        }
        if total > bytes.len() {
            return Err(DecodeError::Truncated);
        }
        let (own, rest) = bytes.split_at(total);
        let options = Self { bytes: &own[OPTION_HEADER_LEN..] };
        options.check()?;
        Ok((options, rest))
    }

    /// Walks all options once, so that later walks need not doubt them.
    fn check(&self) -> Result<(), DecodeError> {
        let mut rest = self.bytes;
        let mut count = 0;
        while let Some((&[kind, len, ..], _)) = rest.split_first_chunk::<OPTION_HEADER_LEN>() {
            count += 1;
            if count > OPTIONS_MAX {
                return Err(DecodeError::TooManyOptions);
            }
            let len = usize::from(len);
            if len < OPTION_HEADER_LEN || len > rest.len() {
                return Err(DecodeError::OptionLength(kind & !END));
            }
            RawOption::split(&rest[..len]).parse()?;
            rest = &rest[len..];
            if (kind & END != 0) != rest.is_empty() {
                return Err(DecodeError::OptionsLength);
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(DecodeError::OptionsLength) }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All options in order, not taken apart.
    pub fn iter(&self) -> impl Iterator<Item = RawOption<'a>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let len = usize::from(*rest.get(1)?);
            let (option, tail) = rest.split_at(len);
            rest = tail;
            Some(RawOption::split(option))
        })
    }

    /// The first option of type `kind`.
    pub fn find(&self, kind: u8) -> Option<RawOption<'a>> {
        self.iter().find(|option| option.kind == kind)
    }

    /// Whether there is an option of type `kind`.
    pub fn has(&self, kind: u8) -> bool {
        self.find(kind).is_some()
    }

    /// The sequence numbers that a NAK or its confirmation names beyond its first.
    pub fn nak_list(&self) -> NakList<'a> {
        match self.find(OptionType::NAK_LIST) {
            Some(option) => NakList { bytes: option.value },
            None => NakList::default(),
        }
    }
}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Options<'_> {}

/// One option, not taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Its number.
    pub kind: u8,
    /// Its last header byte: 7 bits of its own, and the mark of an encoded null.
    pub specific: u8,
    /// What follows its header of 4 bytes.
    pub value: &'a [u8],
}

impl<'a> RawOption<'a> {
    /// Splits header and value; `bytes` are one option of at least 4 bytes.
    fn split(bytes: &'a [u8]) -> Self {
        Self { kind: bytes[0] & !END, specific: bytes[3], value: &bytes[OPTION_HEADER_LEN..] }
    }

    /// Takes it apart.
    ///
    /// # Errors
    /// `OptionLength`, `OptionValue` and `AddressFamily` where a known option breaks its format.
    pub fn parse(&self) -> Result<PgmOption<'a>, DecodeError> {
        let wrong_len = DecodeError::OptionLength(self.kind);
        let word = |at: usize| -> Result<u32, DecodeError> {
            let bytes = self.value.get(at..at + 4).ok_or(wrong_len)?;
            Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes were taken")))
        };
        let exactly = |len: usize| if self.value.len() == len { Ok(()) } else { Err(wrong_len) };
        let address = |at: usize| match self.value.get(at..).map(Nla::decode) {
            Some(Ok((nla, _, []))) => Ok(nla),
            Some(Err(error @ DecodeError::AddressFamily(_))) => Err(error),
            _ => Err(wrong_len),
        };
        Ok(match self.kind {
            OptionType::FRAGMENT => {
                exactly(12)?;
                PgmOption::Fragment { first: Seq::new(word(0)?), offset: word(4)?, len: word(8)? }
            }
            OptionType::NAK_LIST => {
                let list = NakList { bytes: self.value };
                if !self.value.len().is_multiple_of(4) || list.len() > NAK_LIST_MAX {
                    return Err(wrong_len);
                }
                PgmOption::NakList(list)
            }
            OptionType::JOIN => {
                exactly(4)?;
                PgmOption::Join { from: Seq::new(word(0)?) }
            }
            OptionType::NAK_BO_IVL => {
                exactly(8)?;
                PgmOption::NakBackoff { interval_us: word(0)?, poll: Seq::new(word(4)?) }
            }
            OptionType::NAK_BO_RNG => {
                exactly(8)?;
                PgmOption::NakBackoffRange { max_us: word(0)?, min_us: word(4)? }
            }
            OptionType::REDIRECT => PgmOption::Redirect(address(0)?),
            OptionType::PARITY_PRM => {
                exactly(4)?;
                let (proactive, on_demand) = (self.specific & 2 != 0, self.specific & 1 != 0);
                PgmOption::ParityParameters { proactive, on_demand, group_size: word(0)? }
            }
            OptionType::PARITY_GRP => {
                exactly(4)?;
                PgmOption::ParityGroup { number: word(0)? }
            }
            OptionType::CURR_TGSIZE => {
                exactly(4)?;
                PgmOption::CurrentGroupSize { packets: word(0)? }
            }
            OptionType::PATH_NLA => {
                PgmOption::PathNla(Nla::decode_bare(self.value).ok_or(wrong_len)?)
            }
            OptionType::CR => PgmOption::CongestionReport(CongestionReport {
                worst_link: self.specific & 4 != 0,
                worst_path: self.specific & 2 != 0,
                receiver: self.specific & 1 != 0,
                lead: Seq::new(word(0)?),
                worst_link_loss: (word(4)? >> 16) as u16,
                worst_path_loss: word(4)? as u16,
                receiver_loss: (word(8)? >> 16) as u16,
                from: address(12)?,
            }),
            OptionType::NBR_UNREACH => exactly(0).map(|()| PgmOption::NeighbourUnreachable)?,
            OptionType::SYN => exactly(0).map(|()| PgmOption::Syn)?,
            OptionType::FIN => exactly(0).map(|()| PgmOption::Fin)?,
            OptionType::ACKER_LEAVING => exactly(0).map(|()| PgmOption::AckerLeaving)?,
            OptionType::RST => {
                exactly(0)?;
                PgmOption::Reset {
                    abandoned: self.specific & 0x40 != 0,
                    code: self.specific & 0x3f,
                }
            }
            OptionType::CRQST => {
                exactly(0)?;
                PgmOption::CongestionReportRequest {
                    worst_link: self.specific & 4 != 0,
                    worst_path: self.specific & 2 != 0,
                    receiver: self.specific & 1 != 0,
                }
            }
            OptionType::LENGTH => return Err(DecodeError::OptionsLength),
            _ => PgmOption::Other(*self),
        })
    }
}

/// One option, taken apart. Schemes' options and unknown ones stay [`Other`](Self::Other).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PgmOption<'a> {
    /// This packet is part of a larger unit.
    Fragment {
        /// Sequence number of the unit's first packet.
        first: Seq,
        /// Where in the unit this payload begins, in bytes.
        offset: u32,
        /// Bytes of the unit.
        len: u32,
    },
    /// More sequence numbers that a NAK asks for.
    NakList(NakList<'a>),
    /// Late joiners may ask for repairs from here on.
    Join {
        /// The first such sequence number.
        from: Seq,
    },
    /// Back-off interval that receivers should use.
    NakBackoff {
        /// The interval in microseconds.
        interval_us: u32,
        /// The poll that it came from.
        poll: Seq,
    },
    /// Range of back-off intervals.
    NakBackoffRange {
        /// Longest, in microseconds.
        max_us: u32,
        /// Shortest, in microseconds.
        min_us: u32,
    },
    /// This node repairs.
    Redirect(Nla),
    /// The source sends parity.
    ParityParameters {
        /// Unasked.
        proactive: bool,
        /// When asked.
        on_demand: bool,
        /// Packets of a transmission group.
        group_size: u32,
    },
    /// Number of the parity group beyond the first.
    ParityGroup {
        /// The number, above zero.
        number: u32,
    },
    /// Actual size of a short transmission group.
    CurrentGroupSize {
        /// Its packets.
        packets: u32,
    },
    /// The neighbour is unreachable.
    NeighbourUnreachable,
    /// Address of the confirming element.
    PathNla(Nla),
    /// First data of the session.
    Syn,
    /// Nothing comes after the leading sequence number.
    Fin,
    /// The session has failed.
    Reset {
        /// The source gave up for its own reasons (the N bit).
        abandoned: bool,
        /// Error code, 0 to 63.
        code: u8,
    },
    /// Congestion report.
    CongestionReport(CongestionReport),
    /// Request for congestion reports.
    CongestionReportRequest {
        /// Of the worst link.
        worst_link: bool,
        /// Of the worst path.
        worst_path: bool,
        /// Of receivers.
        receiver: bool,
    },
    /// The receiver that sends this leaves.
    AckerLeaving,
    /// A scheme's option, or one that this codec does not know.
    Other(RawOption<'a>),
}

impl<'a> PgmOption<'a> {
    /// A scheme's option, whose value is encoded already.
    pub fn of_scheme(kind: u8, value: &'a [u8]) -> Self {
        Self::Other(RawOption { kind, specific: 0, value })
    }
}

impl PgmOption<'_> {
    /// Appends the value to `out`; returns number and specific bits for the header.
    pub(super) fn encode_value(&self, out: &mut Vec<u8>) -> (u8, u8) {
        let mut words = |words: &[u32]| {
            for word in words {
                out.extend_from_slice(&word.to_be_bytes());
            }
        };
        let bits = |four: bool, two: bool, one: bool| {
            u8::from(four) << 2 | u8::from(two) << 1 | u8::from(one)
        };
        let mut specific = 0;
        let kind = match *self {
            Self::Fragment { first, offset, len } => {
                words(&[first.value(), offset, len]);
                OptionType::FRAGMENT
            }
            Self::NakList(list) => {
                out.extend_from_slice(list.bytes);
                OptionType::NAK_LIST
            }
            Self::Join { from } => {
                words(&[from.value()]);
                OptionType::JOIN
            }
            Self::NakBackoff { interval_us, poll } => {
                words(&[interval_us, poll.value()]);
                OptionType::NAK_BO_IVL
            }
            Self::NakBackoffRange { max_us, min_us } => {
                words(&[max_us, min_us]);
                OptionType::NAK_BO_RNG
            }
            Self::Redirect(nla) => {
                nla.encode(0, out);
                OptionType::REDIRECT
            }
            Self::ParityParameters { proactive, on_demand, group_size } => {
                words(&[group_size]);
                specific = bits(false, proactive, on_demand);
                OptionType::PARITY_PRM
            }
            Self::ParityGroup { number } => {
                words(&[number]);
                OptionType::PARITY_GRP
            }
            Self::CurrentGroupSize { packets } => {
                words(&[packets]);
                OptionType::CURR_TGSIZE
            }
            Self::NeighbourUnreachable => OptionType::NBR_UNREACH,
            Self::PathNla(nla) => {
                nla.encode_bare(out);
                OptionType::PATH_NLA
            }
            Self::Syn => OptionType::SYN,
            Self::Fin => OptionType::FIN,
            Self::Reset { abandoned, code } => {
                specific = u8::from(abandoned) << 6 | (code & 0x3f);
                OptionType::RST
            }
            Self::CongestionReport(report) => {
                let losses =
                    u32::from(report.worst_link_loss) << 16 | u32::from(report.worst_path_loss);
                words(&[report.lead.value(), losses, u32::from(report.receiver_loss) << 16]);
                report.from.encode(0, out);
                specific = bits(report.worst_link, report.worst_path, report.receiver);
                OptionType::CR
            }
            Self::CongestionReportRequest { worst_link, worst_path, receiver } => {
                specific = bits(worst_link, worst_path, receiver);
                OptionType::CRQST
            }
            Self::AckerLeaving => OptionType::ACKER_LEAVING,
            Self::Other(raw) => {
                out.extend_from_slice(raw.value);
                specific = raw.specific;
                raw.kind
            }
        };
        (kind, specific)
    }
}

/// A congestion report (src: RFC 3208 appendix B). Losses: 0 to 65535 for 0 to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionReport {
    /// Elements report their worst link.
    pub worst_link: bool,
    /// Elements report their worst path.
    pub worst_path: bool,
    /// The receiver reports itself.
    pub receiver: bool,
    /// Leading sequence number at the receiver.
    pub lead: Seq,
    /// Loss of the worst link.
    pub worst_link_loss: u16,
    /// Loss of the worst path.
    pub worst_path_loss: u16,
    /// Loss that the worst receiver measured.
    pub receiver_loss: u16,
    /// The receiver that it speaks of.
    pub from: Nla,
}

/// The sequence numbers of a NAK list, as they lie in the packet.
///
/// deviates: the order, which RFC 3208 s9.3 wants to be ascending and unique, is not checked on
/// input because receivers that list by their timers (a packet asked for again may come after a
/// later one) lose nothing by it; whoever writes a list keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NakList<'a> {
    bytes: &'a [u8],
}

impl<'a> NakList<'a> {
    /// Writes `list` to `buf` and gives the list that lies there; `None` where it has more than
    /// [`NAK_LIST_MAX`] numbers or is not ascending and unique.
    pub fn write(list: &[Seq], buf: &'a mut [u8; 4 * NAK_LIST_MAX]) -> Option<Self> {
        let ascending = list.windows(2).all(|pair| pair[1].after(pair[0]));
        if list.len() > NAK_LIST_MAX || !ascending {
            return None;
        }
        for (slot, seq) in buf.chunks_exact_mut(4).zip(list) {
            slot.copy_from_slice(&seq.value().to_be_bytes());
        }
        Some(Self { bytes: &buf[..4 * list.len()] })
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.bytes.len() / 4
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The numbers in the order of the packet.
    pub fn iter(&self) -> impl Iterator<Item = Seq> + use<'a> {
        self.bytes.chunks_exact(4).map(|bytes| {
            Seq::new(u32::from_be_bytes(bytes.try_into().expect("chunks of four have four bytes")))
        })
    }
}
