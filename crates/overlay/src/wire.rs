//! Messages between daemons.
//!
//! A link has two lanes, each an ordered stream of frames. A frame of the control lane is one
//! message. A frame of the data lane is the identifier of its configuration (config), then items to
//! the end of the frame. Integers are in network byte order. `var` is a variable-length integer as
//! in QUIC (RFC 9000 section 16). A source is a rank (index) among the members of the
//! configuration. An echo is the number of the newest hello received, and its age is in
//! microseconds. Opened is 1 at the end that opened the connection. A step counts from the previous
//! cell or clock on this link.
//!
//! | control message | bytes |
//! | --- | --- |
//! | hello | 1, version, run (16), number (8), echo (8), echo's age (4), opened (1), name |
//! | advertisement | 2, run (16), number (8), name, count (1), links (24 each) |
//! | propose | 3, config (24), graph |
//! | state | 4, config (24), rank (1), state |
//! | round | 5, greatest round that is known (8) |
//! | prices | 6, tag of the config (2), source (1), var (number), ranks (1) with prices (2) |
//!
//! | item of data | bytes |
//! | --- | --- |
//! | cell | 0, source (1), var (step of the sequence number), var (length), cell |
//! | clock | 1, source (1), var (sequence number), var (time), var (stable number), wanted (1) |
//! | acknowledgement | 2, source (1), var (sequence number), var (time) |

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use faircast_proto::RangeSet;
use faircast_proto::fields::{Encoded, Fields};

use crate::ids::{DAEMONS_MAX, DaemonRun, ViewId};
use crate::topology::{Advert, Graph, NAME_BYTES_MAX};

const VERSION: u8 = 1;
/// Maximum length of a data frame in bytes, short so that large messages do not delay control.
pub(crate) const FRAME_BYTES_MAX: usize = 16 * 1024;

/// Greatest sequence number, time and advertisement number: additions to it cannot overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 61;

/// Appends a variable-length integer (RFC 9000 section 16). Values are below 2^62.
pub(crate) fn put_var(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => (value as u16 | 0x4000).put(out),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).put(out),
        _ => (value | 0xC000_0000_0000_0000).put(out),
    }
}

pub(crate) fn take_var(fields: &mut Fields<'_>) -> Option<u64> {
    let first = *fields.0.first()?;
    Some(match first >> 6 {
        0 => u64::from(fields.read::<u8>()?),
        1 => u64::from(fields.read::<u16>()? & 0x3FFF),
        2 => u64::from(fields.read::<u32>()? & 0x3FFF_FFFF),
        _ => fields.read::<u64>()? & 0x3FFF_FFFF_FFFF_FFFF,
    })
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// Takes a name after its length, as a slice of `bytes`.
pub(crate) fn take_name(bytes: &Bytes, fields: &mut Fields<'_>) -> Option<Bytes> {
    let len = usize::from(fields.read::<u8>()?);
    fields.bytes(len).map(|name| bytes.slice_ref(name))
}

/// Appends at most 255 values after their count.
pub(crate) fn put_list(out: &mut Vec<u8>, values: &[impl Encoded]) {
    out.push(values.len() as u8);
    values.iter().for_each(|value| value.put(out));
}

pub(crate) fn take_list<T: Encoded>(fields: &mut Fields<'_>) -> Option<Vec<T>> {
    let count: u8 = fields.read()?;
    (0..count).map(|_| fields.read()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) member: DaemonRun,
    pub(crate) number: u64,
    /// Number of the newest received greeting, 0 for none, and its age in microseconds.
    pub(crate) echo: u64,
    pub(crate) echo_age_us: u32,
    pub(crate) opened: bool,
    pub(crate) name: String,
}

/// Cells of a source that a member has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamState {
    /// Sequence number up to which the member has all cells addressed to it.
    pub(crate) through: u64,
    /// Lower bound of the Lamport time of the source's further cells.
    pub(crate) clock: u64,
    pub(crate) cells: RangeSet,
}

/// State of a member that has stopped for a new configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberState {
    pub(crate) config: ViewId,
    pub(crate) view: ViewId,
    pub(crate) time: u64,
    /// Received cells of each source of `config`, by rank.
    pub(crate) streams: Vec<StreamState>,
    /// Next configuration of the view that others may have entered; Lamport time, streams.
    pub(crate) next: Option<(ViewId, u64, Vec<StreamState>)>,
}

const RANGES_MAX: u64 = 1 << 16;

fn put_streams(out: &mut Vec<u8>, streams: &[StreamState]) {
    out.push(streams.len() as u8);
    for StreamState { through, clock, cells } in streams {
        (*through, *clock).put(out);
        put_var(out, cells.len() as u64);
        let mut last = 0;
        for range in cells.iter() {
            put_var(out, range.start - last);
            put_var(out, range.end - range.start);
            last = range.end;
        }
    }
}

fn take_streams(fields: &mut Fields<'_>) -> Option<Vec<StreamState>> {
    let count: u8 = fields.read()?;
    let stream = |_| {
        let (through, clock) = fields.read()?;
        let (ranges, mut cells, mut last) = (take_var(fields)?, RangeSet::default(), 0u64);
        if ranges > RANGES_MAX {
            return None;
        }
        for _ in 0..ranges {
            let start = last.checked_add(take_var(fields)?)?;
            last = start.checked_add(take_var(fields)?.max(1))?;
            cells.insert(start..last);
        }
        Some(StreamState { through, clock, cells })
    };
    (0..count).map(stream).collect()
}

impl Encoded for MemberState {
    fn put(&self, out: &mut Vec<u8>) {
        (self.config, self.view, self.time).put(out);
        put_streams(out, &self.streams);
        out.push(u8::from(self.next.is_some()));
        if let Some((config, time, streams)) = &self.next {
            (*config, *time).put(out);
            put_streams(out, streams);
        }
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        let (config, view, time) = fields.read()?;
        let streams = take_streams(fields)?;
        let fits = |time: &u64| *time <= NUMBER_MAX;
        let next = match fields.read::<u8>()? {
            0 => None,
            _ => {
                let (config, time) = fields.read()?;
                Some((config, Some(time).filter(fits)?, take_streams(fields)?))
            }
        };
        fits(&time).then_some(Self { config, view, time, streams, next })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prices {
    /// Tag of the configuration, to which all ranks refer.
    pub(crate) tag: u16,
    pub(crate) source: u8,
    pub(crate) number: u64,
    /// Places of the links' other ends, with prices in hundredths of a dollar.
    pub(crate) links: Vec<(u8, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Hello(Hello),
    Advert(Advert),
    Propose(ViewId, Graph),
    State(ViewId, u8, MemberState),
    Round(u64),
    Prices(Prices),
}

impl Control {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Hello(Hello { member, number, echo, echo_age_us, opened, name }) => {
                (1u8, VERSION, *member, *number, *echo, *echo_age_us, u8::from(*opened))
                    .put(&mut out);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Advert(advert) => {
                out.push(2);
                advert.put(&mut out);
            }
            Self::Propose(config, graph) => {
                (3u8, *config).put(&mut out);
                graph.put(&mut out);
            }
            Self::State(config, rank, state) => {
                (4u8, *config, *rank).put(&mut out);
                state.put(&mut out);
            }
            Self::Round(round) => (5u8, *round).put(&mut out),
            Self::Prices(Prices { tag, source, number, links }) => {
                (6u8, *tag, *source).put(&mut out);
                put_var(&mut out, *number);
                links.iter().for_each(|link| link.put(&mut out));
            }
        }
        out.into()
    }

    pub(crate) fn decode(frame: &[u8]) -> Option<Self> {
        let mut fields = Fields(frame);
        let control = match fields.read::<u8>()? {
            1 if fields.read::<u8>()? == VERSION => {
                let (member, number, echo, echo_age_us, opened): (_, _, _, _, u8) =
                    fields.read()?;
                let name = core::str::from_utf8(fields.rest()).ok()?;
                let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
                let name = fits.then(|| name.into())?;
                Self::Hello(Hello { member, number, echo, echo_age_us, opened: opened == 1, name })
            }
            2 => Self::Advert(fields.read()?),
            3 => Self::Propose(fields.read()?, fields.read()?),
            4 => Self::State(fields.read()?, fields.read()?, fields.read()?),
            5 => Self::Round(fields.read()?),
            6 => {
                let ((tag, source), number) = (fields.read()?, take_var(&mut fields)?);
                let mut links = Vec::new();
                while !fields.0.is_empty() && links.len() < DAEMONS_MAX {
                    links.push(fields.read()?);
                }
                let fits = number < NUMBER_MAX;
                fits.then_some(Self::Prices(Prices { tag, source, number, links }))?
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(control)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Cell. `step` is its number less the number of the source's previous cell on this link.
    Cell { source: u8, step: u64, cell: Bytes },
    /// State of a source's stream, sent instead of cells that are not for this link.
    Clock(u8, Clock),
    /// Acknowledgement of cells up to `through` and `time` by the sender and all behind it.
    Ack { source: u8, through: u64, time: u64 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    pub(crate) sequence: u64,
    /// Lower bound of the Lamport time of the source's further cells.
    pub(crate) time: u64,
    pub(crate) stable: u64,
    /// True if the sender waits for the clocks of others to reach this time.
    pub(crate) wanted: bool,
}

impl Item {
    pub(crate) const HEAD_BYTES_MAX: usize = 32;

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, source: u8, numbers: &[u64]| {
            (kind, source).put(out);
            numbers.iter().for_each(|number| put_var(out, *number));
        };
        match *self {
            Self::Cell { source, step, ref cell } => {
                head(0, source, &[step, cell.len() as u64]);
                out.extend_from_slice(cell);
            }
            Self::Clock(source, Clock { sequence, time, stable, wanted }) => {
                head(1, source, &[sequence, time, stable]);
                out.push(wanted.into());
            }
            Self::Ack { source, through, time } => head(2, source, &[through, time]),
        }
    }

    pub(crate) fn take(frame: &mut Bytes) -> Option<Self> {
        let mut fields = Fields(frame);
        let (kind, source): (u8, u8) = fields.read()?;
        let item = match kind {
            0 => {
                let step = take_var(&mut fields)?;
                let len = usize::try_from(take_var(&mut fields)?).ok()?;
                let start = frame.len() - fields.0.len();
                if fields.0.len() < len {
                    return None;
                }
                let cell = frame.slice(start..start + len);
                *frame = frame.slice(start + len..);
                return Some(Self::Cell { source, step, cell });
            }
            1 => {
                let mut next = || take_var(&mut fields);
                let (sequence, time, stable) = (next()?, next()?, next()?);
                let wanted = fields.read::<u8>()? == 1;
                Self::Clock(source, Clock { sequence, time, stable, wanted })
            }
            2 => {
                let (through, time) = (take_var(&mut fields)?, take_var(&mut fields)?);
                Self::Ack { source, through, time }
            }
            _ => return None,
        };
        *frame = frame.slice(frame.len() - fields.0.len()..);
        Some(item)
    }
}
