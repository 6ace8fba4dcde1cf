//! Object at its source over any transport: supply, announcement, layout, and failures.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::Duration;

use super::layout::{BlockId, Layout, part_of};
use super::wire::Notice;
use super::{Announcement, ObjectResult, Part, Supply};

/// Object that a source offers. [`planner`](super::planner) decides which of its units go next.
pub(super) struct Offer {
    pub(super) supply: Box<dyn Supply>,
    pub(super) announcement: Announcement,
    pub(super) layout: Layout,
    pub(super) begun: bool,
    /// Reason for which nothing more can be sent, until the course of the source takes it.
    pub(super) failed: Option<String>,
}

impl Offer {
    /// Creates the offer. An object without a layout has failed already.
    pub(super) fn new(supply: Box<dyn Supply>, symbol_bytes: u16) -> Self {
        let announcement = announcement(supply.as_ref(), symbol_bytes);
        let layout = Layout::new(&announcement);
        let failed = layout.is_none().then(|| NO_LAYOUT.to_string());
        let layout = layout.unwrap_or_default();
        Self { supply, announcement, layout, begun: false, failed }
    }

    /// Returns the notice of the object, without state of the PGM source.
    pub(super) fn notice(&self, exhausted: bool) -> Notice {
        Notice {
            announcement: self.announcement,
            parity: false,
            begun: self.begun,
            exhausted,
            status_interval: Duration::ZERO,
            position: None,
            epoch: 0,
        }
    }

    pub(super) fn may_send(&self, part: Part) -> bool {
        match part {
            Part::Manifest => true,
            Part::Content => self.begun,
            Part::Digests => self.begun && self.announcement.digests.is_some(),
        }
    }

    /// Asks the supply for the digests. Returns true if the digests become known by this call.
    pub(super) fn poll_digests(&mut self) -> bool {
        if self.announcement.digests.is_some() || self.failed.is_some() {
            return false;
        }
        match self.supply.digests() {
            // Digests of content that ended since the last poll are announced with its length.
            Ok(_) if self.announcement.growing => {}
            Ok(digests) => self.announcement.digests = digests,
            Err(error) => self.failed = Some(error.reason),
        }
        self.announcement.digests.is_some()
    }

    /// Takes over the grown content if it `may_be_announced` now. Returns true if it has grown.
    pub(super) fn poll_growth(
        &mut self,
        may_be_announced: impl FnOnce(&Announcement) -> bool,
    ) -> bool {
        if !self.announcement.growing || self.failed.is_some() {
            return false;
        }
        let grown = announcement(self.supply.as_ref(), self.announcement.symbol_bytes);
        if grown == self.announcement || !may_be_announced(&grown) {
            return false;
        }
        let Some(layout) = Layout::new(&grown) else {
            self.failed = Some(TOO_LONG.to_string());
            return false;
        };
        (self.layout, self.announcement) = (layout, grown);
        true
    }

    /// Appends a payload of `len` bytes by `write`, and returns the zeros that follow it. If the
    /// supply fails, the whole payload is zeros, which no receiver takes for a symbol.
    pub(super) fn write_payload(
        &mut self,
        len: u32,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> ObjectResult<u32>,
    ) -> u32 {
        let start = out.len();
        write(self, out).unwrap_or_else(|error| {
            self.failed.get_or_insert(error.reason);
            out.truncate(start);
            len
        })
    }

    /// Appends a source symbol, or returns its length if it has only zeros.
    pub(super) fn read_symbol(
        &mut self,
        block_id: BlockId,
        symbol: u32,
        out: &mut Vec<u8>,
    ) -> ObjectResult<u32> {
        let (offset, len) = self.layout.extent(block_id, symbol);
        self.supply.read(part_of(block_id), offset, len, out)
    }

    /// Appends all source symbols of a block at full length, or returns false if all are zeros.
    pub(super) fn read_block(
        &mut self,
        block_id: BlockId,
        out: &mut Vec<u8>,
    ) -> ObjectResult<bool> {
        let layout = &self.layout;
        let symbols = layout.symbols(block_id);
        let (offset, _) = layout.extent(block_id, 0);
        let (last, last_len) = layout.extent(block_id, symbols - 1);
        // At most 64 symbols of less than 2^16 bytes.
        let len = (last - offset) as u32 + last_len;
        let zeros = self.supply.read(part_of(block_id), offset, len, out)?;
        if zeros > 0 {
            return Ok(false);
        }
        out.resize((symbols * layout.symbol_bytes) as usize, 0);
        Ok(true)
    }
}

fn announcement(supply: &dyn Supply, symbol_bytes: u16) -> Announcement {
    // `growing` is read first: content that has ended then has its final length.
    let growing = supply.growing();
    let mut lens = Part::ALL.map(|part| supply.len(part));
    if growing {
        let [_, content, digests] = &mut lens;
        *content = Layout::announceable(symbol_bytes, *content);
        *digests = 0;
    }
    Announcement { lens, growing, symbol_bytes, object: supply.object(), digests: None }
}

const NO_LAYOUT: &str =
    "the object has too many blocks, or its symbols are not of an even length: choose another";

const TOO_LONG: &str = "the content has become too long for packets of this size";
