//! Division of an object into parts, blocks and symbols.

use core::ops::Range;

use super::{Announcement, Part};

pub(super) const BLOCK_SYMBOLS: u32 = 64;

/// Parity symbols of a block, numbered from [`BLOCK_SYMBOLS`] on.
pub(super) const PARITY_SYMBOLS: u32 = 64;

/// Block of any part as one number: parts follow one another, with room for 2^32 blocks each.
pub(super) type BlockId = u64;

/// Symbol of any part as one number: the id of its block times 64, plus its number in the block.
pub(super) type SymbolId = u64;

pub(super) const BLOCK_ID_END: BlockId = 3 << 32;

pub(super) const fn block_id(part: Part, block: u32) -> BlockId {
    (part as u64) << 32 | block as u64
}

pub(super) const fn part_of(block_id: BlockId) -> Part {
    match block_id >> 32 {
        0 => Part::Manifest,
        1 => Part::Content,
        _ => Part::Digests,
    }
}

pub(super) const fn block_of(block_id: BlockId) -> u32 {
    block_id as u32
}

pub(super) const fn first_symbol_of(block_id: BlockId) -> SymbolId {
    block_id * BLOCK_SYMBOLS as u64
}

pub(super) const fn block_and_symbol(id: SymbolId) -> (BlockId, u32) {
    (id / BLOCK_SYMBOLS as u64, (id % BLOCK_SYMBOLS as u64) as u32)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    part_bytes: [u64; 3],
    /// Bytes of a whole symbol; the last one of a part may be shorter.
    pub(super) symbol_bytes: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self { part_bytes: [0; 3], symbol_bytes: 2 }
    }
}

impl Layout {
    /// Returns the layout of an announced object; `None` if there can be no such object.
    pub(super) fn new(announcement: &Announcement) -> Option<Self> {
        let symbol_bytes = u32::from(announcement.symbol_bytes);
        let block_bytes = u64::from(symbol_bytes) * u64::from(BLOCK_SYMBOLS);
        let part_bytes = announcement.lens;
        let [_, content, digests] = part_bytes;
        // Growing content ends with a whole block.
        let whole = block_bytes > 0 && content.is_multiple_of(block_bytes) && digests == 0;
        let sound = symbol_bytes >= 2
            && symbol_bytes.is_multiple_of(2)
            && symbol_bytes <= SYMBOL_BYTES_MAX
            && (whole || !announcement.growing)
            && part_bytes.iter().all(|bytes| bytes.div_ceil(block_bytes) <= u64::from(u32::MAX));
        sound.then_some(Self { part_bytes, symbol_bytes })
    }

    pub(super) fn len(&self, part: Part) -> u64 {
        self.part_bytes[part as usize]
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.symbol_bytes) * u64::from(BLOCK_SYMBOLS)
    }

    pub(super) fn block_ids(&self, part: Part) -> Range<BlockId> {
        let first = block_id(part, 0);
        first..first + self.len(part).div_ceil(self.block_bytes())
    }

    pub(super) fn symbol_ids(&self, part: Part) -> Range<SymbolId> {
        let first = first_symbol_of(block_id(part, 0));
        first..first + self.len(part).div_ceil(self.symbol_bytes.into())
    }

    /// Returns one past the last block of content that ends within the first `bytes`.
    pub(super) fn whole_blocks_end(&self, bytes: u64) -> BlockId {
        let block_ids = self.block_ids(Part::Content);
        if bytes >= self.len(Part::Content) {
            return block_ids.end;
        }
        (block_ids.start + bytes / self.block_bytes()).min(block_ids.end)
    }

    /// Returns how many of `len` bytes of growing content can be announced: whole blocks only.
    pub(super) fn announceable(symbol_bytes: u16, len: u64) -> u64 {
        let block_bytes = u64::from(symbol_bytes) * u64::from(BLOCK_SYMBOLS);
        len - len.checked_rem(block_bytes).unwrap_or(len)
    }

    pub(super) fn has(&self, block_id: BlockId) -> bool {
        block_id < BLOCK_ID_END && self.block_ids(part_of(block_id)).contains(&block_id)
    }

    pub(super) fn start(&self, block_id: BlockId) -> u64 {
        u64::from(block_of(block_id)) * self.block_bytes()
    }

    pub(super) fn symbols(&self, block_id: BlockId) -> u32 {
        let left = self.len(part_of(block_id)) - self.start(block_id);
        // At most 64.
        left.min(self.block_bytes()).div_ceil(u64::from(self.symbol_bytes)) as u32
    }

    pub(super) fn mask(&self, block_id: BlockId) -> u64 {
        u64::MAX >> (BLOCK_SYMBOLS - self.symbols(block_id))
    }

    /// Returns the offset in its part and the bytes of a source symbol.
    pub(super) fn extent(&self, block_id: BlockId, symbol: u32) -> (u64, u32) {
        let offset = self.start(block_id) + u64::from(symbol) * u64::from(self.symbol_bytes);
        let left = self.len(part_of(block_id)).saturating_sub(offset);
        // At most a symbol, which is below 2^16.
        (offset, left.min(u64::from(self.symbol_bytes)) as u32)
    }

    /// Returns the bytes of any symbol of a block: a parity symbol always has full length.
    pub(super) fn symbol_len(&self, block_id: BlockId, symbol: u32) -> u32 {
        if symbol < BLOCK_SYMBOLS { self.extent(block_id, symbol).1 } else { self.symbol_bytes }
    }

    /// Returns the blocks of content with any of `bytes`, and masks of the symbols with any of
    /// them in the first and in the last block.
    pub(super) fn overlapping(&self, bytes: &Range<u64>) -> Option<(Range<BlockId>, u64, u64)> {
        let end = bytes.end.min(self.len(Part::Content));
        if bytes.start >= end {
            return None;
        }
        let symbol_bytes = u64::from(self.symbol_bytes);
        let (first, last) = (bytes.start / symbol_bytes, (end - 1) / symbol_bytes);
        let per_block = u64::from(BLOCK_SYMBOLS);
        let base = block_id(Part::Content, 0);
        let block_ids = base + first / per_block..base + last / per_block + 1;
        let masks =
            (u64::MAX << (first % per_block), u64::MAX >> (per_block - 1 - last % per_block));
        Some((block_ids, masks.0, masks.1))
    }
}

/// Most bytes of a symbol. Chosen: a UDP payload of 65507 bytes leaves 99 bytes for headers.
pub(crate) const SYMBOL_BYTES_MAX: u32 = 65_408;

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(lens: [u64; 3], symbol_bytes: u16) -> Announcement {
        Announcement { lens, growing: false, symbol_bytes, object: [0; 32], digests: None }
    }

    fn layout(content: u64) -> Layout {
        let lens = [10, content, 0];
        let announcement = announcement(lens, 100);
        Layout::new(&announcement).unwrap()
    }

    #[test]
    fn short_ends_are_where_they_belong() {
        let layout = layout(6400 * 2 + 250);
        let block_ids = layout.block_ids(Part::Content);
        assert_eq!(block_ids, 1 << 32..(1 << 32) + 3);
        let last = block_ids.end - 1;
        assert_eq!((layout.symbols(block_ids.start), layout.symbols(last)), (64, 3));
        assert_eq!((layout.mask(block_ids.start), layout.mask(last)), (u64::MAX, 7));
        assert_eq!(layout.extent(last, 2), (13_000, 50));
        assert_eq!((layout.symbol_len(last, 2), layout.symbol_len(last, 64)), (50, 100));
        assert!(
            layout.has(0) && !layout.has(1) && !layout.has(block_ids.end) && !layout.has(2 << 32)
        );
        assert!(!layout.has(u64::MAX));
    }

    #[test]
    fn ranges_of_bytes_touch_whole_symbols() {
        let layout = layout(6400 * 3);
        let base = 1 << 32;
        for (bytes, want) in [
            (0..1, Some((base..base + 1, u64::MAX, 1))),
            (99..101, Some((base..base + 1, u64::MAX, 3))),
            (6300..6500, Some((base..base + 2, 1 << 63, 1))),
            (6400..12_800, Some((base + 1..base + 2, u64::MAX, u64::MAX))),
            (19_100..u64::MAX, Some((base + 2..base + 3, 1 << 63, u64::MAX))),
            (5..5, None),
            (90_000..90_001, None),
        ] {
            assert_eq!(layout.overlapping(&bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn absurd_announcements_have_no_layout() {
        for (lens, symbol_bytes) in
            [([0; 3], 0), ([0; 3], 1), ([0; 3], 3), ([0; 3], 65_410), ([0, u64::MAX, 0], 2)]
        {
            let announcement = announcement(lens, symbol_bytes);
            assert_eq!(Layout::new(&announcement), None, "{announcement:?}");
        }
    }

    #[test]
    fn content_that_grows_has_whole_blocks_and_no_digests() {
        for (lens, sound) in [
            ([10, 0, 0], true),
            ([10, 6400, 0], true),
            ([10, 6401, 0], false),
            ([10, 100, 0], false),
            ([10, 6400, 32], false),
        ] {
            let announcement = Announcement { growing: true, ..announcement(lens, 100) };
            assert_eq!(Layout::new(&announcement).is_some(), sound, "{lens:?}");
        }
        let announceable = |len| Layout::announceable(100, len);
        assert_eq!([6399, 6400, 12_900].map(announceable), [0, 6400, 12_800]);
    }

    #[test]
    fn a_window_reaches_as_far_as_whole_blocks_do() {
        let (layout, base) = (layout(6400 * 2 + 250), 1 << 32);
        for (offset, blocks) in
            [(0, 0), (6399, 0), (6400, 1), (12_800, 2), (13_049, 2), (13_050, 3), (u64::MAX, 3)]
        {
            assert_eq!(layout.whole_blocks_end(offset), base + blocks, "{offset}");
        }
    }
}
