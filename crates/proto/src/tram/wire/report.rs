//! Wire format of a receiver's report to the scheme of the source.

use alloc::vec::Vec;

use crate::congestion::RouterView;
use crate::fields::{Encoded, Fields};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) enum Telling {
    /// Acknowledges those of the last 32 packets whose bits are set; bit 0 is the packet itself.
    Acknowledges {
        bitmap: u32,
    },
    Asks,
    /// Requests nothing. The packet is the latest one missing, or else the latest received.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Report<'a> {
    pub(in crate::tram) telling: Telling,
    pub(in crate::tram) sequence: u64,
    pub(in crate::tram) leaves: bool,
    pub(in crate::tram) option: u8,
    pub(in crate::tram) value: &'a [u8],
}

const ACKNOWLEDGES: u8 = 0;
const ASKS: u8 = 1;
const NOTHING: u8 = 2;

impl<'a> Report<'a> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (telling, bitmap) = match self.telling {
            Telling::Acknowledges { bitmap } => (ACKNOWLEDGES, bitmap),
            Telling::Asks => (ASKS, 0),
            Telling::Nothing => (NOTHING, 0),
        };
        ([telling, self.option, 0, 0], bitmap, self.sequence).put(out);
        out.extend_from_slice(self.value);
    }

    pub(super) fn decode(leaves: bool, fields: &mut Fields<'a>) -> Option<Self> {
        let ([telling, option, ..], bitmap): ([u8; 4], _) = fields.read()?;
        let (sequence, value) = (super::sequence(fields)?, fields.rest());
        let telling = match telling {
            ACKNOWLEDGES => Telling::Acknowledges { bitmap },
            ASKS => Telling::Asks,
            NOTHING => Telling::Nothing,
            _ => return None,
        };
        // Only the report of a leaving receiver may be empty.
        let says = leaves || !value.is_empty();
        let fits = sequence > 0 && says && value.len() <= RouterView::REPORT_BYTES_MAX;
        fits.then_some(Self { telling, sequence, leaves, option, value })
    }
}
