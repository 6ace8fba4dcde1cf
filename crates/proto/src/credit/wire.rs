//! Wire format of credits (`docs/credits.md`).

use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, NodeId};

use super::PolicyId;
use crate::fields::{Encoded, Fields};
use crate::pgm::wire::checksum;

const MAGIC: [u8; 2] = *b"fr";
const VERSION: u8 = 1;
const DATA: u8 = 1;
const PROBE: u8 = 2;
const CREDIT: u8 = 3;
const PULL: u8 = 4;
const PART: u8 = 5;
const CHECKSUM: core::ops::Range<usize> = 6..8;

pub(crate) const CAPSULE_BYTES: usize = 52;
pub(crate) const CREDIT_BYTES: usize = 40;

pub(crate) const PULL_BYTES: usize = 36;
pub(crate) const PART_HEADER_BYTES: usize = 40;
pub(crate) const PART_BYTES_MAX: usize = 1024;

pub(crate) const BUFFER_MAX: u16 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capsule {
    /// True if the capsule carries no packet, only the count of sent packets.
    pub(crate) probe: bool,
    pub(crate) hops: u8,
    pub(crate) layer: u8,
    pub(crate) session: u64,
    pub(crate) policy: PolicyId,
    pub(crate) parameter: u32,
    /// B: buffer of each branch in packets, 1 to [`BUFFER_MAX`].
    pub(crate) buffer: u16,
    /// M: packets for one credit, 1 to B.
    pub(crate) unit: u16,
    /// TC: capsules sent to this branch, including this one.
    pub(crate) count: u32,
    /// Last flow-control node, and its number for this branch.
    pub(crate) node: NodeId,
    pub(crate) branch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) session: u64,
    pub(crate) tag: u64,
    pub(crate) branch: u32,
    pub(crate) buffer: u32,
    pub(crate) count: u32,
    pub(crate) weight: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) session: u64,
    pub(crate) policy: PolicyId,
    pub(crate) offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) session: u64,
    pub(crate) policy: PolicyId,
    pub(crate) total: u32,
    pub(crate) offset: u32,
    /// Content of the part, 1 to [`PART_BYTES_MAX`] bytes.
    pub(crate) bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Capsule(Capsule),
    Credit(Credit),
    Pull(Pull),
    Part(Part<'a>),
}

pub(crate) fn own_bytes(bytes: &[u8]) -> usize {
    match bytes.get(3) {
        Some(&PART) => bytes.len(),
        _ => bytes.len().min(CAPSULE_BYTES),
    }
}

pub(crate) fn header_bytes(bytes: &[u8]) -> usize {
    match bytes.get(3) {
        Some(&CREDIT) => CREDIT_BYTES,
        Some(&PULL) => PULL_BYTES,
        Some(&PART) => PART_HEADER_BYTES,
        _ => CAPSULE_BYTES,
    }
}

/// Returns a packet of each kind in the session of capsule `data`, for forged packets.
pub(crate) fn specimens(data: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Packet::Capsule(capsule)) = decode(data) else { return Vec::new() };
    let Capsule { session, policy, branch, buffer, count, .. } = capsule;
    let credit = Credit { session, tag: 7, branch, buffer: buffer.into(), count, weight: 1 };
    let part = Part { session, policy, total: 64, offset: 0, bytes: &[0; 16] };
    let probe = Packet::Capsule(Capsule { probe: true, ..capsule });
    let pull = Packet::Pull(Pull { session, policy, offset: 0 });
    let others = [probe, Packet::Credit(credit), pull, Packet::Part(part)];
    let data = [&Packet::Capsule(capsule).encoded()[..], &[0; 16]].concat();
    core::iter::once(data).chain(others.iter().map(Packet::encoded)).collect()
}

pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    bytes.get(..3) == Some(&[MAGIC[0], MAGIC[1], VERSION])
}

impl Packet<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Packet::Capsule(capsule) => {
                let Capsule { hops, layer, session, policy, parameter, buffer, .. } = capsule;
                let Capsule { unit, count, node, branch, .. } = capsule;
                let kind = if capsule.probe { PROBE } else { DATA };
                let rest = (policy.0, parameter, buffer, unit, count, node, branch);
                write(out, [kind, hops, layer], session, rest);
            }
            Packet::Credit(Credit { session, tag, branch, buffer, count, weight }) => {
                write(out, [CREDIT, 0, 0], session, (tag, branch, buffer, count, weight));
            }
            Packet::Pull(Pull { session, policy, offset }) => {
                write(out, [PULL, 0, 0], session, (policy.0, offset));
            }
            Packet::Part(Part { session, policy, total, offset, bytes }) => {
                // The checksum excludes the content, which has a hash.
                write(out, [PART, 0, 0], session, (policy.0, total, offset));
                out.extend_from_slice(bytes);
            }
        }
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

fn write(out: &mut Vec<u8>, [kind, hops, layer]: [u8; 3], session: u64, rest: impl Encoded) {
    let start = out.len();
    out.reserve(CAPSULE_BYTES);
    (MAGIC, [VERSION, kind, hops, layer, 0, 0], session, rest).put(out);
    let header = &mut out[start..];
    let sum = checksum(header);
    header[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
}

/// Decodes a packet without a capsule's payload. Fails if the header is damaged or invalid.
pub(crate) fn decode(bytes: &[u8]) -> Checked<Packet<'_>> {
    let kind = *bytes.get(3).ok_or(BadInput::Malformed)?;
    let (header, rest) = bytes.split_at_checked(header_bytes(bytes)).ok_or(BadInput::Malformed)?;
    if checksum(header) != 0 {
        return Err(BadInput::Checksum);
    }
    let carries = matches!(kind, DATA | PART);
    read(kind, header, rest).filter(|_| carries || rest.is_empty()).ok_or(BadInput::Malformed)
}

fn read<'a>(kind: u8, header: &[u8], rest: &'a [u8]) -> Option<Packet<'a>> {
    let mut fields = Fields(header);
    let ([_, _, _, _, hops, layer, ..], session): ([u8; 8], _) = fields.read()?;
    if kind == CREDIT {
        let (tag, branch, buffer, count, weight) = fields.read()?;
        let credit = Credit { session, tag, branch, buffer, count, weight };
        let fits = buffer <= u32::from(BUFFER_MAX) && weight > 0;
        return fits.then_some(Packet::Credit(credit));
    }
    let policy = PolicyId(fields.read()?);
    match kind {
        PULL => return Some(Packet::Pull(Pull { session, policy, offset: fields.read()? })),
        PART => {
            let (total, offset): (u32, _) = fields.read()?;
            let part = Part { session, policy, total, offset, bytes: rest };
            let left = total.checked_sub(offset)? as usize;
            let fits = (1..=PART_BYTES_MAX.min(left)).contains(&rest.len());
            return fits.then_some(Packet::Part(part));
        }
        _ => {}
    }
    let (parameter, buffer, unit, count, node, branch) = fields.read()?;
    let probe = kind == PROBE;
    let fits = (probe || kind == DATA)
        && (1..=BUFFER_MAX).contains(&buffer)
        && (1..=buffer).contains(&unit);
    let capsule = Capsule {
        probe,
        hops,
        layer,
        session,
        policy,
        parameter,
        buffer,
        unit,
        count,
        node,
        branch,
    };
    fits.then_some(Packet::Capsule(capsule))
}

pub(crate) const fn ahead(count: u32, of: u32) -> i64 {
    count.wrapping_sub(of).cast_signed() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tables_of_the_documents_have_the_lengths_of_the_format() {
        let page = include_str!("../../../../docs/wire/credits.md");
        let lengths = [CAPSULE_BYTES, CREDIT_BYTES, PART_HEADER_BYTES];
        assert_eq!(crate::tests::tables::lengths(page), lengths);
    }
}
