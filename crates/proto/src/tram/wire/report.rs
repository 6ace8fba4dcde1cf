//! A receiver's report to the scheme that steers the source, as it goes over the wire.

use alloc::vec::Vec;

use crate::congestion::RouterView;
use crate::fields::{Encoded, Fields};

/// What a report says of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) enum Telling {
    /// It acknowledges the latest packet, and of the last 32 those whose bits are set; bit 0 is the latest itself.
    Acknowledges {
        bitmap: u32,
    },
    Asks,
    /// Nothing is asked for: the packet is the latest that was found missing, or else the latest that came.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tram) struct Report<'a> {
    pub(in crate::tram) telling: Telling,
    /// The packet that it speaks of.
    pub(in crate::tram) sequence: u64,
    pub(in crate::tram) leaves: bool,
    /// The number of the scheme's option, and its value; none where the scheme has nothing to say.
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
        // Who leaves may have nothing to report; others would have been silent.
        let says = leaves || !value.is_empty();
        let fits = sequence > 0 && says && value.len() <= RouterView::REPORT_BYTES_MAX;
        fits.then_some(Self { telling, sequence, leaves, option, value })
    }
}
