//! Wire format of TRAM (`docs/tram.md` has every byte). No input makes this module panic.

mod departed;
mod specimens;

use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{BadInput, Bitrate, Checked, Duration};

pub(super) use self::departed::{BELOW_MAX, DEPARTURES_MAX, Departed, DepartureList, Fate};
pub use self::specimens::specimens;

use super::settings::HeadRole;
use crate::Datagram;
use crate::congestion::RouterView;
use crate::fields::{Encoded, Fields};
use crate::pgm::wire::checksum;

const MAGIC: [u8; 2] = *b"ft";
const VERSION: u8 = 1;

pub(crate) const HEADER: usize = 24;

/// Header bytes before the payload of a data packet, without a scheme's announcement.
pub(crate) const DATA_HEADER: usize = HEADER + 32;

pub(super) const ANNOUNCEMENT_HEADER: usize = 2;

/// Most bytes of the mask of an acknowledgement; each byte covers eight packets.
pub(super) const MASK_MAX: usize = 256;

/// Most members that one hello requests acknowledgements from.
pub(super) const ASKED_MAX: usize = 128;

/// Upper bound of packet numbers, so that arithmetic on them fits into 64 bits.
const SEQUENCES: u64 = 1 << 62;

const CHECKSUM: Range<usize> = 6..8;
const SENDER: Range<usize> = 16..24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) session: u64,
    pub(super) sender: u64,
    pub(super) ttl: u8,
    pub(super) body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Beacon(SourceState),
    Data(Data<'a>),
    Advertisement(Advertisement),
    Solicitation(Solicitation),
    Bind(Bind),
    Accept(Accept),
    Reject(RejectReason),
    Hello(Hello<'a>),
    Ack(Ack<'a>),
    /// Status of a receiver to the source's application, and its answer.
    Status(&'a [u8]),
    StatusReply(&'a [u8]),
    /// Settings of the source that differ from the defaults, encoded as PGM's option SCHEME.
    Settings(&'a [u8]),
    Report(Report<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data<'a> {
    pub(super) state: SourceState,
    /// `None` without a scheme, and on repairs from heads.
    pub(super) announce: Option<Announcement<'a>>,
    pub(super) payload: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement<'a> {
    pub(super) option: u8,
    pub(super) value: &'a [u8],
}

/// Session state that the source puts into each of its packets, and heads into repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceState {
    /// Number of a data packet, from 1 on. In a beacon, the number of the last packet sent.
    pub(super) sequence: u64,
    /// First packet that is still repaired; 0 if all are.
    pub(super) forget_before: u64,
    pub(super) rate: Bitrate,
    pub(super) ack_window: u16,
    pub(super) advertise_interval: Duration,
    pub(super) worst_loss: u16,
    pub(super) status_interval: Duration,
    pub(super) repair: bool,
    pub(super) done: bool,
    pub(super) prune: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadState {
    Accepting,
    AcceptingHeads,
    NotAccepting,
    Resigning,
    /// Takes only receivers that never become heads, for lack of another head.
    AcceptingMembers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advertisement {
    pub(super) state: HeadState,
    pub(super) role: HeadRole,
    /// Level in the tree: 1 for the source, one more than its head's for others.
    pub(super) level: u8,
    pub(super) members: u16,
    pub(super) members_max: u16,
    pub(super) low: u64,
    pub(super) lan: bool,
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solicitation {
    pub(super) role: HeadRole,
    /// Number of the wanted head's name, 0 for any; from the source, that of a restarted receiver.
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) role: HeadRole,
    /// Time to live with which the head's packets arrive.
    pub(super) distance: u8,
    pub(super) joins: u16,
    pub(super) first_missing: u64,
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) start: u64,
    pub(super) level: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectReason {
    Full,
    Resigning,
    HeadsOnly,
    /// The sender is no head, or the head does not know this member.
    NoMember,
    Pruned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ack<'a> {
    pub(super) first_missing: u64,
    /// Last packet that the subtree allows, H_a, and the highest that the member knows.
    pub(super) allowed: u64,
    pub(super) highest: u64,
    /// Worst loss of the subtree, in parts of 65535.
    pub(super) loss: u16,
    /// Own members, receivers below these, and advertising heads among all of them.
    pub(super) members: u16,
    pub(super) indirect: u32,
    pub(super) heads: u32,
    pub(super) of_subtree: bool,
    pub(super) congested: bool,
    pub(super) leaves: bool,
    /// True if the member has everything that can still be had.
    pub(super) complete: bool,
    pub(super) hello_missing: bool,
    /// True if the member leaves early, or some packets cannot be repaired any more.
    pub(super) short: bool,
    pub(super) departed: DepartureList<'a>,
    /// Bit mask of missing packets from `first_missing` on, most significant bit first.
    pub(super) mask: &'a [u8],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hello<'a> {
    pub(super) resigns: bool,
    pub(super) level: u8,
    /// First packet that the head can repair, and highest packet number that it knows.
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) done: bool,
    /// Numbers of the members that must acknowledge, eight bytes each.
    pub(super) asked: &'a [u8],
}

impl Hello<'_> {
    pub(super) fn asks(&self, id: u64) -> bool {
        self.asked.as_chunks().0.iter().any(|asked| u64::from_be_bytes(*asked) == id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report<'a> {
    pub(super) kind: ReportKind,
    pub(super) sequence: u64,
    pub(super) leaves: bool,
    pub(super) option: u8,
    pub(super) value: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportKind {
    /// Acknowledges those of the last 32 packets whose bits are set; bit 0 is the packet itself.
    Ack {
        bitmap: u32,
    },
    Nak,
    /// Requests nothing. The packet is the latest one missing, or else the latest received.
    NullNak,
}

impl<'a> Report<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, bitmap) = match self.kind {
            ReportKind::Ack { bitmap } => (0, bitmap),
            ReportKind::Nak => (1, 0),
            ReportKind::NullNak => (2, 0),
        };
        ([kind, self.option, 0, 0], bitmap, self.sequence).put(out);
        out.extend_from_slice(self.value);
    }

    fn decode(leaves: bool, fields: &mut Fields<'a>) -> Option<Self> {
        let ([kind, option, ..], bitmap): ([u8; 4], _) = fields.read()?;
        let (sequence, value) = (sequence(fields)?, fields.rest());
        let kind =
            one_of(&[ReportKind::Ack { bitmap }, ReportKind::Nak, ReportKind::NullNak], kind)?;
        // Only the report of a leaving receiver may be empty.
        let says = leaves || !value.is_empty();
        let fits = sequence > 0 && says && value.len() <= RouterView::REPORT_BYTES_MAX;
        fits.then_some(Self { kind, sequence, leaves, option, value })
    }
}

impl Advertisement {
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let [state, role, level, lan] = fields.read()?;
        let (members, members_max) = fields.read()?;
        let (state, role) = (one_of(&HeadState::ALL, state)?, one_of(HeadRole::ALL, role)?);
        let (low, lan) = (sequence(fields)?, one_of(&[false, true], lan)?);
        let name = decode_name(fields)?;
        Some(Self { state, role, level, members, members_max, low, lan, name })
    }
}

impl<'a> Ack<'a> {
    fn decode(flags: u8, fields: &mut Fields<'a>) -> Option<Self> {
        let [of_subtree, congested, leaves, complete, hello_missing, short, has_departed] =
            flagged(flags)?;
        let first_missing = sequence(fields).filter(|first| *first > 0)?;
        let (allowed, highest) = (sequence(fields)?, sequence(fields)?);
        let (loss, members, indirect, heads) = fields.read()?;
        let departed =
            if has_departed { DepartureList::decode(fields)? } else { Default::default() };
        Some(Self {
            first_missing,
            allowed,
            highest,
            loss,
            members,
            indirect,
            heads,
            of_subtree,
            congested,
            leaves,
            complete,
            hello_missing,
            short,
            departed,
            mask: Some(fields.rest()).filter(|mask| mask.len() <= MASK_MAX)?,
        })
    }

    /// Returns the fate of a leaving member that lacks packets.
    pub(super) fn fate_of_leaver(&self) -> Fate {
        if self.complete { Fate::Gaps } else { Fate::Left }
    }

    pub(super) fn missing(&self) -> impl Iterator<Item = u64> {
        let first = self.first_missing;
        let bits = self.mask.iter().enumerate().flat_map(|(i, byte)| {
            (0..8).filter(move |bit| byte >> (7 - bit) & 1 == 1).map(move |bit| 8 * i as u64 + bit)
        });
        bits.map(move |place| first.saturating_add(place))
    }
}

pub(super) fn mask(first: u64, missing: impl Iterator<Item = Range<u64>>) -> Vec<u8> {
    let (mut mask, end) = (Vec::new(), first + 8 * MASK_MAX as u64);
    let missing = missing.take_while(|run| run.start < end);
    for sequence in missing.flat_map(|run| run.start..run.end.min(end)) {
        let place = (sequence - first) as usize;
        mask.resize(mask.len().max(place / 8 + 1), 0);
        mask[place / 8] |= 0x80 >> (place % 8);
    }
    mask
}

const BEACON: u8 = 1;
const DATA: u8 = 2;
const ADVERTISEMENT: u8 = 3;
const SOLICITATION: u8 = 4;
const BIND: u8 = 5;
const ACCEPT: u8 = 6;
const REJECT: u8 = 7;
const HELLO: u8 = 8;
const ACK: u8 = 9;
const STATUS: u8 = 10;
const STATUS_REPLY: u8 = 11;
const REPORT: u8 = 12;
const SETTINGS: u8 = 13;

/// Flag of data with an announcement, after the flags of a state.
const ANNOUNCES: u8 = 1 << 3;

impl HeadState {
    const ALL: [Self; 5] = [
        Self::Accepting,
        Self::AcceptingHeads,
        Self::NotAccepting,
        Self::Resigning,
        Self::AcceptingMembers,
    ];

    pub(super) fn takes(self, may_be_head: bool) -> bool {
        match self {
            Self::Accepting => true,
            Self::AcceptingHeads => may_be_head,
            Self::AcceptingMembers => !may_be_head,
            Self::NotAccepting | Self::Resigning => false,
        }
    }
}

impl RejectReason {
    const ALL: [Self; 5] =
        [Self::Full, Self::Resigning, Self::HeadsOnly, Self::NoMember, Self::Pruned];
}

fn sequence(fields: &mut Fields<'_>) -> Option<u64> {
    fields.read().filter(|number| *number < SEQUENCES)
}

fn encode_name(name: u64, out: &mut Vec<u8>) {
    if name != 0 {
        name.put(out);
    }
}

fn decode_name(fields: &mut Fields<'_>) -> Option<u64> {
    if fields.0.is_empty() { Some(0) } else { fields.read().filter(|name| *name != 0) }
}

fn one_of<T: Copy>(all: &[T], number: u8) -> Option<T> {
    all.get(usize::from(number)).copied()
}

/// Packs flags into a byte, the first as the least significant bit.
fn flags<const N: usize>(set: [bool; N]) -> u8 {
    set.iter().enumerate().fold(0, |flags, (i, set)| flags | u8::from(*set) << i)
}

/// Unpacks [`flags`]; `None` if other bits are set.
fn flagged<const N: usize>(flags: u8) -> Option<[bool; N]> {
    (flags >> N == 0).then(|| core::array::from_fn(|i| flags >> i & 1 == 1))
}

impl<'a> Packet<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags) = self.body.kind();
        let first = (MAGIC, [VERSION, kind, flags, self.ttl, 0, 0]);
        (first, self.session, self.sender).put(out);
        self.body.encode(out);
    }

    /// Decodes a packet, whose checksum is not verified here. Fails if the bytes are no packet.
    pub(super) fn decode(bytes: &'a [u8]) -> Checked<Self> {
        let mut fields = Fields(bytes);
        let header: Option<([u8; 8], _, _)> = fields.read();
        let ([m0, m1, version, kind, flags, ttl, ..], session, sender) =
            header.ok_or(BadInput::Truncated)?;
        if [m0, m1] != MAGIC || version != VERSION {
            return Err(BadInput::Malformed);
        }
        let body = Body::decode(kind, flags, fields).ok_or(BadInput::Malformed)?;
        Ok(Self { session, sender, ttl, body })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.encode(out);
        seal(out);
    }

    /// Decodes a datagram of this session. Fails if it is damaged, or of another session.
    pub(super) fn of_datagram(datagram: &Datagram<'a>, session: u64) -> Checked<Self> {
        if !datagram.authenticated && !is_sound(datagram.bytes) {
            return Err(BadInput::Checksum);
        }
        let packet = Packet::decode(datagram.bytes)?;
        if packet.session == session { Ok(packet) } else { Err(BadInput::Foreign) }
    }
}

/// Returns the session of a packet, and true if it starts the session at a receiver: data, beacon
/// or settings. `None` if the bytes are no packet of TRAM.
pub fn peek(bytes: &[u8]) -> Option<(u64, bool)> {
    let mut fields = Fields(bytes);
    let [m0, m1, version, kind, flags, _, _, _] = fields.read()?;
    let session = fields.read()?;
    // The first flag of a state marks a repair.
    let begins = [BEACON, SETTINGS].contains(&kind) || kind == DATA && flags & 1 == 0;
    ([m0, m1] == MAGIC && version == VERSION).then_some((session, begins))
}

/// Returns the random number of the end that sent a packet.
pub fn sender_of(bytes: &[u8]) -> Option<u64> {
    bytes.get(SENDER).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes))
}

/// True if the kind is a status of a receiver or an answer to it. Cheaper than decoding.
pub(super) fn is_status(bytes: &[u8]) -> bool {
    bytes.get(3).is_some_and(|kind| [STATUS, STATUS_REPLY].contains(kind))
}

/// Writes the checksum of a packet. Appended zeros do not change the checksum.
pub(super) fn seal(packet: &mut [u8]) {
    let sum = checksum(packet);
    packet[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn is_sound(packet: &[u8]) -> bool {
    packet.len() >= HEADER && checksum(packet) == 0
}

impl<'a> Body<'a> {
    fn kind(&self) -> (u8, u8) {
        match self {
            Self::Beacon(state) => (BEACON, state.flags()),
            Self::Data(Data { state, announce, .. }) => {
                (DATA, state.flags() | if announce.is_some() { ANNOUNCES } else { 0 })
            }
            Self::Advertisement(_) => (ADVERTISEMENT, 0),
            Self::Solicitation(_) => (SOLICITATION, 0),
            Self::Bind(_) => (BIND, 0),
            Self::Accept(_) => (ACCEPT, 0),
            Self::Reject(_) => (REJECT, 0),
            Self::Hello(hello) => (HELLO, flags([hello.resigns, hello.done])),
            Self::Ack(ack) => {
                let Ack { of_subtree, congested, leaves, complete, hello_missing, short, .. } =
                    *ack;
                let tells = !ack.departed.is_empty();
                let set = [of_subtree, congested, leaves, complete, hello_missing, short, tells];
                (ACK, flags(set))
            }
            Self::Status(_) => (STATUS, 0),
            Self::StatusReply(_) => (STATUS_REPLY, 0),
            Self::Report(report) => (REPORT, flags([report.leaves])),
            Self::Settings(_) => (SETTINGS, 0),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Beacon(state) => state.encode(out),
            Self::Data(Data { state, announce, payload }) => {
                state.encode(out);
                if let Some(Announcement { option, value }) = announce {
                    // Schemes bound the length of their announcements.
                    [option, value.len() as u8].put(out);
                    out.extend_from_slice(value);
                }
                out.extend_from_slice(payload);
            }
            Self::Advertisement(it) => {
                [it.state as u8, it.role as u8, it.level, u8::from(it.lan)].put(out);
                (it.members, it.members_max, it.low).put(out);
                encode_name(it.name, out);
            }
            Self::Solicitation(Solicitation { role, name }) => {
                [role as u8, 0, 0, 0].put(out);
                encode_name(name, out);
            }
            Self::Bind(bind) => {
                ([bind.role as u8, bind.distance], bind.joins, bind.first_missing).put(out);
                encode_name(bind.name, out);
            }
            Self::Accept(accept) => ([accept.level, 0, 0, 0], accept.start).put(out),
            Self::Reject(reason) => [reason as u8, 0, 0, 0].put(out),
            Self::Hello(Hello { level, low, high, asked, .. }) => {
                ([level, 0], (asked.len() / 8) as u16, low, high).put(out);
                out.extend_from_slice(asked);
            }
            Self::Ack(ack) => {
                (ack.first_missing, ack.allowed, ack.highest).put(out);
                (ack.loss, ack.members, ack.indirect, ack.heads).put(out);
                if !ack.departed.is_empty() {
                    ack.departed.encode(out);
                }
                out.extend_from_slice(ack.mask);
            }
            Self::Status(bytes) | Self::StatusReply(bytes) | Self::Settings(bytes) => {
                out.extend_from_slice(bytes);
            }
            Self::Report(report) => report.encode(out),
        }
    }

    fn decode(kind: u8, flags: u8, mut fields: Fields<'a>) -> Option<Self> {
        let plain = |body| (flags == 0).then_some(body);
        let all = &mut fields;
        let body = match kind {
            BEACON => Self::Beacon(SourceState::decode(flags, all)?),
            DATA => {
                let state = SourceState::decode(flags & !ANNOUNCES, all)?;
                let mut announce = None;
                if flags & ANNOUNCES != 0 {
                    let [option, len] = all.read()?;
                    announce = Some(Announcement { option, value: all.bytes(usize::from(len))? });
                }
                let data = Data { state, announce, payload: all.rest() };
                (state.sequence > 0).then_some(Self::Data(data))?
            }
            ADVERTISEMENT => plain(Self::Advertisement(Advertisement::decode(all)?))?,
            SOLICITATION => {
                let [role, ..]: [u8; 4] = all.read()?;
                let role = one_of(HeadRole::ALL, role)?;
                plain(Self::Solicitation(Solicitation { role, name: decode_name(all)? }))?
            }
            BIND => {
                let ([role, distance], joins) = all.read()?;
                let (role, first_missing) = (one_of(HeadRole::ALL, role)?, sequence(all)?);
                let name = decode_name(all)?;
                plain(Self::Bind(Bind { role, distance, joins, first_missing, name }))?
            }
            ACCEPT => {
                let [level, ..]: [u8; 4] = all.read()?;
                let start = sequence(all).filter(|start| *start > 0)?;
                plain(Self::Accept(Accept { start, level }))?
            }
            REJECT => {
                let [reason, ..]: [u8; 4] = all.read()?;
                plain(Self::Reject(one_of(&RejectReason::ALL, reason)?))?
            }
            HELLO => {
                let [resigns, done] = flagged(flags)?;
                let ([level, _], count): (_, u16) = all.read()?;
                let (low, high) = (sequence(all)?, sequence(all)?);
                let count = Some(usize::from(count)).filter(|count| *count <= ASKED_MAX)?;
                let asked = all.bytes(8 * count)?;
                Self::Hello(Hello { resigns, level, low, high, done, asked })
            }
            ACK => Self::Ack(Ack::decode(flags, all)?),
            STATUS => plain(Self::Status(all.rest()))?,
            STATUS_REPLY => plain(Self::StatusReply(all.rest()))?,
            REPORT => {
                let [leaves] = flagged(flags)?;
                Self::Report(Report::decode(leaves, all)?)
            }
            SETTINGS => plain(Self::Settings(all.rest()))?,
            _ => return None,
        };
        fields.end()?;
        Some(body)
    }
}

impl SourceState {
    fn flags(&self) -> u8 {
        flags([self.repair, self.done, self.prune])
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (self.sequence, self.forget_before, self.rate.bits_per_s(), self.ack_window).put(out);
        // Both intervals are at most one minute.
        let millis = |interval: Duration| interval.as_millis() as u16;
        let (advertise, status) = (millis(self.advertise_interval), millis(self.status_interval));
        (advertise, self.worst_loss, status).put(out);
    }

    fn decode(flags: u8, fields: &mut Fields<'_>) -> Option<Self> {
        let [repair, done, prune] = flagged(flags)?;
        let (sequence, forget_before) = (sequence(fields)?, fields.read()?);
        let (rate, ack_window, advertise, worst_loss, status): (_, _, u16, _, u16) =
            fields.read()?;
        // Only sent packets can be forgotten.
        (forget_before <= sequence + 1).then_some(Self {
            sequence,
            forget_before,
            rate: Bitrate::from_bits_per_s(rate),
            ack_window,
            advertise_interval: Duration::from_millis(advertise.into()),
            worst_loss,
            status_interval: Duration::from_millis(status.into()),
            repair,
            done,
            prune,
        })
    }
}

#[cfg(test)]
mod tests;
