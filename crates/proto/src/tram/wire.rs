//! Wire format of TRAM, which `docs/tram.md` has byte by byte. Whatever the bytes are, nothing here panics.

mod departed;
mod hello;
mod report;
mod specimens;

use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Duration};

pub(super) use self::departed::{BELOW_MAX, DEPARTURES_MAX, Departed, Departeds, Fate};
pub(super) use self::hello::Hello;
pub(super) use self::report::{Report, Telling};
pub use self::specimens::specimens;

use super::settings::HeadRole;
use crate::fields::{Encoded, Fields};
use crate::pgm::wire::checksum;

const MAGIC: [u8; 2] = *b"ft";
const VERSION: u8 = 1;

/// Bytes of the header of every packet.
pub(crate) const HEADER: usize = 24;

/// Bytes before the payload of data, where no scheme announces anything.
pub(crate) const DATA_HEADER: usize = HEADER + 32;

/// Bytes before the words of an announcement.
pub(super) const WORDS_HEADER: usize = 2;

/// Most bytes of the mask of an acknowledgement: it covers eight packets with each.
pub(super) const MASK_MAX: usize = 256;

/// Most members that one hello asks.
pub(super) const ASKED_MAX: usize = 128;

/// Numbers of packets are below this, so that what is computed with them fits into 64 bits.
const SEQUENCES: u64 = 1 << 62;

const CHECKSUM: core::ops::Range<usize> = 6..8;
const SENDER: core::ops::Range<usize> = 16..24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) session: u64,
    /// Whoever sent it, by a random number of its own.
    pub(super) sender: u64,
    /// The time to live with which it was sent.
    pub(super) ttl: u8,
    pub(super) body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Beacon(Front),
    /// A packet of the session's data; from the source, or repaired by a head.
    Data(Data<'a>),
    Advertisement(Advertisement),
    Solicitation(Solicitation),
    /// A receiver wants this head.
    Bind(Bind),
    Accept(Accept),
    /// The head does not take it, or no longer.
    Reject(RejectReason),
    Hello(Hello<'a>),
    Ack(Ack<'a>),
    /// What a receiver tells the source of itself, where the session is an object's.
    Member(&'a [u8]),
    Answer(&'a [u8]),
    /// The settings of the source that are not the usual ones, as PGM's option SCHEME has them.
    Settings(&'a [u8]),
    /// A receiver's report to the scheme that steers the source, on its way up the tree or to the source at once.
    Report(Report<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data<'a> {
    pub(super) front: Front,
    /// What the scheme that steers the source announces; `None` where none does, and on repairs by heads.
    pub(super) announce: Option<Words<'a>>,
    pub(super) payload: &'a [u8],
}

/// Words of the scheme that steers a source: the value of one of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words<'a> {
    pub(super) option: u8,
    pub(super) value: &'a [u8],
}

impl<'a> Data<'a> {
    /// That of a session which no scheme steers.
    pub(super) fn plain(front: Front, payload: &'a [u8]) -> Self {
        Self { front, announce: None, payload }
    }
}

/// What the source says of the session with each of its packets, and heads repeat with repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Front {
    /// Of data its number, from 1 on; of a beacon that of the last packet sent.
    pub(super) sequence: u64,
    /// Packets before this one are not repaired any more.
    pub(super) forget_before: u64,
    /// Payload rate of an open window, which heads repair with.
    pub(super) rate: Bitrate,
    /// W_a.
    pub(super) ack_window: u16,
    /// Time between the advertisements of heads; zero where they answer solicitations only.
    pub(super) advertise_interval: Duration,
    /// The worst loss of all receivers, in parts of 65535.
    pub(super) worst_loss: u16,
    /// After so long without one the source wants a word of a receiver itself; zero where it wants none.
    pub(super) status_interval: Duration,
    pub(super) repair: bool,
    /// Nothing follows after `sequence` of a beacon, or this packet.
    pub(super) done: bool,
    /// Heads remove members that are too slow.
    pub(super) prune: bool,
}

/// How a head stands to new members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadState {
    Accepting,
    AcceptingHeads,
    NotAccepting,
    Resigning,
    /// It takes those who never become heads, where no other head does.
    AcceptingMembers,
}

/// What a head says of itself to whoever may want one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advertisement {
    pub(super) state: HeadState,
    pub(super) role: HeadRole,
    /// Of the source 1, of others one more than their head's.
    pub(super) level: u8,
    pub(super) members: u16,
    pub(super) members_max: u16,
    /// The first packet that it can repair.
    pub(super) low: u64,
    /// It is its LAN's head, or stands for that.
    pub(super) lan: bool,
    /// The number of its name; 0 without one.
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Solicitation {
    pub(super) role: HeadRole,
    /// The number of the name of the only head that is wanted; 0 for any head. Of the source the name of a receiver
    /// that has started again: heads ask earlier members of that name.
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) role: HeadRole,
    /// The time to live with which its head was heard.
    pub(super) distance: u8,
    /// How many heads have had it.
    pub(super) joins: u16,
    /// The first packet that it lacks; 0 where it has had none yet.
    pub(super) first_missing: u64,
    /// The number of its name; 0 without one.
    pub(super) name: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    /// From this packet on it repairs.
    pub(super) start: u64,
    /// The head's own.
    pub(super) level: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RejectReason {
    Full,
    Resigning,
    HeadsOnly,
    /// It is no head, or has not heard of this member.
    NoMember,
    /// The member was too slow for the good of the whole.
    Pruned,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ack<'a> {
    /// It has all packets before this one.
    pub(super) first_missing: u64,
    /// The last packet that it and all below it allow (H_a).
    pub(super) allowed: u64,
    /// The last packet that it has heard of.
    pub(super) highest: u64,
    /// The worst loss of its subtree, in parts of 65535.
    pub(super) loss: u16,
    /// Its own members, the receivers below these, and how many of all of them advertise themselves as heads.
    pub(super) members: u16,
    pub(super) indirect: u32,
    pub(super) heads: u32,
    /// The loss is that of one of its members.
    pub(super) of_subtree: bool,
    /// It has met congestion, or heard of it from below.
    pub(super) congested: bool,
    pub(super) leaves: bool,
    /// It has all that there is to have.
    pub(super) complete: bool,
    pub(super) hello_missing: bool,
    /// It never gets all: it goes before, or some of it cannot be repaired any more.
    pub(super) short: bool,
    /// Receivers that went without everything.
    pub(super) departed: Departeds<'a>,
    /// Bit by bit from `first_missing` on, the most significant first: whether the packet is missing.
    pub(super) mask: &'a [u8],
}

impl Ack<'_> {
    pub(super) fn missing(&self) -> impl Iterator<Item = u64> {
        let first = self.first_missing;
        let bits = self.mask.iter().enumerate().flat_map(|(i, byte)| {
            (0..8).filter(move |bit| byte >> (7 - bit) & 1 == 1).map(move |bit| 8 * i as u64 + bit)
        });
        bits.map(move |place| first.saturating_add(place))
    }
}

/// Appends the mask of these ascending runs of missing packets, the first of which begins at `first`.
pub(super) fn mask(
    first: u64,
    missing: impl Iterator<Item = core::ops::Range<u64>>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let end = first + 8 * MASK_MAX as u64;
    for sequence in
        missing.take_while(|run| run.start < end).flat_map(|run| run.start..run.end.min(end))
    {
        let place = (sequence - first) as usize;
        out.resize(out.len().max(start + place / 8 + 1), 0);
        out[start + place / 8] |= 0x80 >> (place % 8);
    }
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
const MEMBER: u8 = 10;
const ANSWER: u8 = 11;
const REPORT: u8 = 12;
const SETTINGS: u8 = 13;

/// The flag of data that carries an announcement, after those of a front.
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

/// The number of a name, at the end of a packet; nothing where there is none.
fn encode_name(name: u64, out: &mut Vec<u8>) {
    if name != 0 {
        name.put(out);
    }
}

/// The same backwards.
fn decode_name(fields: &mut Fields<'_>) -> Option<u64> {
    if fields.0.is_empty() { Some(0) } else { fields.read().filter(|name| *name != 0) }
}

fn one_of<T: Copy>(all: &[T], number: u8) -> Option<T> {
    all.get(usize::from(number)).copied()
}

/// The flags that are set, the first as the least significant bit.
fn flags<const N: usize>(set: [bool; N]) -> u8 {
    set.iter().enumerate().fold(0, |flags, (i, set)| flags | u8::from(*set) << i)
}

/// The same backwards; `None` where others are set.
fn flagged<const N: usize>(flags: u8) -> Option<[bool; N]> {
    (flags >> N == 0).then(|| core::array::from_fn(|i| flags >> i & 1 == 1))
}

impl<'a> Packet<'a> {
    /// Appends the encoding, without checksum: see [`seal`].
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags) = self.body.kind();
        let first = (MAGIC, [VERSION, kind, flags, self.ttl, 0, 0]);
        (first, self.session, self.sender).put(out);
        self.body.encode(out);
    }

    /// Reads a packet whose checksum has been looked at, where there is need.
    ///
    /// # Errors
    /// The bytes are no packet.
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
}

/// The session of a packet, and whether it begins one for those who hear it: data, a beacon or settings, of the
/// source. `None` for what is no packet of TRAM.
pub fn peek(bytes: &[u8]) -> Option<(u64, bool)> {
    let mut fields = Fields(bytes);
    let [m0, m1, version, kind, flags, _, _, _] = fields.array()?;
    let session = fields.read()?;
    // The first of a front's flags says that it is a repair.
    let begins = [BEACON, SETTINGS].contains(&kind) || kind == DATA && flags & 1 == 0;
    ([m0, m1] == MAGIC && version == VERSION).then_some((session, begins))
}

/// The number that the end which wrote a packet has drawn for itself.
pub fn sender_of(bytes: &[u8]) -> Option<u64> {
    bytes.get(SENDER).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes))
}

/// Whether a packet may be a word of a receiver or its answer: what is neither need not be decoded to see that.
pub(super) fn is_word(bytes: &[u8]) -> bool {
    bytes.get(3).is_some_and(|kind| [MEMBER, ANSWER].contains(kind))
}

/// Writes the checksum of a packet; a tail of zeros changes nothing.
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
            Self::Beacon(front) => (BEACON, front.flags()),
            Self::Data(data) => {
                (DATA, data.front.flags() | if data.announce.is_some() { ANNOUNCES } else { 0 })
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
            Self::Member(_) => (MEMBER, 0),
            Self::Answer(_) => (ANSWER, 0),
            Self::Report(report) => (REPORT, flags([report.leaves])),
            Self::Settings(_) => (SETTINGS, 0),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Beacon(front) => front.encode(out),
            Self::Data(Data { front, announce, payload }) => {
                front.encode(out);
                if let Some(Words { option, value }) = announce {
                    // Schemes bound their words.
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
                // At most `ASKED_MAX` of them.
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
            Self::Member(bytes) | Self::Answer(bytes) | Self::Settings(bytes) => {
                out.extend_from_slice(bytes);
            }
            Self::Report(report) => report.encode(out),
        }
    }

    fn decode(kind: u8, flags: u8, mut fields: Fields<'a>) -> Option<Self> {
        let plain = |body| (flags == 0).then_some(body);
        let all = &mut fields;
        let body = match kind {
            BEACON => Self::Beacon(Front::decode(flags, all)?),
            DATA => {
                let front = Front::decode(flags & !ANNOUNCES, all)?;
                let announce =
                    if flags & ANNOUNCES == 0 { None } else { Some(Words::decode(all)?) };
                let data = Data { front, announce, payload: all.rest() };
                (front.sequence > 0).then_some(Self::Data(data))?
            }
            ADVERTISEMENT => {
                let [state, role, level, lan] = all.array()?;
                let (members, members_max) = all.read()?;
                plain(Self::Advertisement(Advertisement {
                    state: one_of(&HeadState::ALL, state)?,
                    role: one_of(HeadRole::ALL, role)?,
                    level,
                    members,
                    members_max,
                    low: sequence(all)?,
                    lan: one_of(&[false, true], lan)?,
                    name: decode_name(all)?,
                }))?
            }
            SOLICITATION => {
                let [role, ..]: [u8; 4] = all.array()?;
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
                let [level, ..]: [u8; 4] = all.array()?;
                let start = sequence(all).filter(|start| *start > 0)?;
                plain(Self::Accept(Accept { start, level }))?
            }
            REJECT => {
                let [reason, ..]: [u8; 4] = all.array()?;
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
            ACK => {
                let [of_subtree, congested, leaves, complete, hello_missing, short, tells] =
                    flagged(flags)?;
                let first_missing = sequence(all).filter(|first| *first > 0)?;
                let (allowed, highest) = (sequence(all)?, sequence(all)?);
                let (loss, members, indirect, heads) = all.read()?;
                let departed = if tells { Departeds::decode(all)? } else { Departeds::default() };
                Self::Ack(Ack {
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
                    mask: Some(all.rest()).filter(|mask| mask.len() <= MASK_MAX)?,
                })
            }
            MEMBER => plain(Self::Member(all.rest()))?,
            ANSWER => plain(Self::Answer(all.rest()))?,
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

impl<'a> Words<'a> {
    fn decode(fields: &mut Fields<'a>) -> Option<Self> {
        let [option, len] = fields.array()?;
        Some(Self { option, value: fields.bytes(usize::from(len))? })
    }
}

impl Front {
    fn flags(&self) -> u8 {
        flags([self.repair, self.done, self.prune])
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (self.sequence, self.forget_before, self.rate.bits_per_s(), self.ack_window).put(out);
        // At most a minute.
        let millis = |interval: Duration| interval.as_millis() as u16;
        let (advertise, status) = (millis(self.advertise_interval), millis(self.status_interval));
        (advertise, self.worst_loss, status).put(out);
    }

    fn decode(flags: u8, fields: &mut Fields<'_>) -> Option<Self> {
        let [repair, done, prune] = flagged(flags)?;
        let (sequence, forget_before) = (sequence(fields)?, fields.read()?);
        let (rate, ack_window, advertise, worst_loss, status): (_, _, u16, _, u16) =
            fields.read()?;
        // What was not sent cannot be forgotten.
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
