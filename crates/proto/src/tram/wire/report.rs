//! Wire format of a receiver's report to the scheme of the source.

use alloc::vec::Vec;

use crate::congestion::RouterView;
use crate::fields::{Encoded, Fields};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// Acknowledges those of the last 32 packets whose bits are set; bit 0 is the packet itself.
    Ack { bitmap: u32 },
    /// Requests the packet.
    Nak,
    /// Requests nothing. The packet is the latest one missing, or else the latest received.
    NullNak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    pub(crate) kind: ReportKind,
    pub(crate) sequence: u64,
    pub(crate) leaves: bool,
    pub(crate) option: u8,
    pub(crate) value: &'a [u8],
}

const ACK: u8 = 0;
const NAK: u8 = 1;
const NULL_NAK: u8 = 2;

impl<'a> Report<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, bitmap) = match self.kind {
            ReportKind::Ack { bitmap } => (ACK, bitmap),
            ReportKind::Nak => (NAK, 0),
            ReportKind::NullNak => (NULL_NAK, 0),
        };
        ([kind, self.option, 0, 0], bitmap, self.sequence).put(out);
        out.extend_from_slice(self.value);
    }

    pub(super) fn decode(leaves: bool, fields: &mut Fields<'a>) -> Option<Self> {
        let ([kind, option, ..], bitmap): ([u8; 4], _) = fields.read()?;
        let (sequence, value) = (super::sequence(fields)?, fields.rest());
        let kind = match kind {
            ACK => ReportKind::Ack { bitmap },
            NAK => ReportKind::Nak,
            NULL_NAK => ReportKind::NullNak,
            _ => return None,
        };
        // Only the report of a leaving receiver may be empty.
        let says = leaves || !value.is_empty();
        let fits = sequence > 0 && says && value.len() <= RouterView::REPORT_BYTES_MAX;
        fits.then_some(Self { kind, sequence, leaves, option, value })
    }
}
