//! Division of an object into blocks and symbols.

use core::ops::Range;

use super::{Announcement, Part};

pub(super) const BLOCK_SYMBOLS: u32 = 64;

/// Parity symbols of a block, numbered from [`BLOCK_SYMBOLS`] on.
pub(super) const PARITY_SYMBOLS: u32 = 64;

/// Block of any part as one number: parts follow one another, with room for 2^32 blocks each.
pub(super) type Key = u64;

/// One past the last block of the last part.
pub(super) const KEY_END: Key = 3 << 32;

pub(super) const fn key(part: Part, block: u32) -> Key {
    (part as u64) << 32 | block as u64
}

pub(super) const fn part_of(key: Key) -> Part {
    match key >> 32 {
        0 => Part::Manifest,
        1 => Part::Content,
        _ => Part::Digests,
    }
}

pub(super) const fn block_of(key: Key) -> u32 {
    key as u32
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    lens: [u64; 3],
    symbol: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self { lens: [0; 3], symbol: 2 }
    }
}

impl Layout {
    pub(super) fn new(announcement: &Announcement) -> Option<Self> {
        let symbol = u32::from(announcement.symbol_bytes);
        let block = u64::from(symbol) * u64::from(BLOCK_SYMBOLS);
        let [_, content, digests] = announcement.lens;
        // Growing content ends with a whole block.
        let whole = block > 0 && content.is_multiple_of(block) && digests == 0;
        let sound = symbol >= 2
            && symbol.is_multiple_of(2)
            && symbol <= SYMBOL_BYTES_MAX
            && (whole || !announcement.growing)
            && announcement.lens.iter().all(|len| len.div_ceil(block) <= u64::from(u32::MAX));
        sound.then_some(Self { lens: announcement.lens, symbol })
    }

    pub(super) fn symbol_bytes(&self) -> u32 {
        self.symbol
    }

    pub(super) fn len(&self, part: Part) -> u64 {
        self.lens[part as usize]
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.symbol) * u64::from(BLOCK_SYMBOLS)
    }

    pub(super) fn keys(&self, part: Part) -> Range<Key> {
        let first = key(part, 0);
        first..first + self.len(part).div_ceil(self.block_bytes())
    }

    pub(super) fn reach(&self, offset: u64) -> Key {
        let keys = self.keys(Part::Content);
        if offset >= self.len(Part::Content) {
            return keys.end;
        }
        (keys.start + offset / self.block_bytes()).min(keys.end)
    }

    /// Returns how many of `len` bytes of growing content can be announced: whole blocks only.
    pub(super) fn announceable(symbol_bytes: u16, len: u64) -> u64 {
        let block = u64::from(symbol_bytes) * u64::from(BLOCK_SYMBOLS);
        len - len.checked_rem(block).unwrap_or(len)
    }

    pub(super) fn has(&self, key: Key) -> bool {
        key < KEY_END && self.keys(part_of(key)).contains(&key)
    }

    pub(super) fn start(&self, key: Key) -> u64 {
        u64::from(block_of(key)) * self.block_bytes()
    }

    pub(super) fn symbols(&self, key: Key) -> u32 {
        let left = self.len(part_of(key)) - self.start(key);
        // At most 64.
        left.min(self.block_bytes()).div_ceil(u64::from(self.symbol)) as u32
    }

    pub(super) fn mask(&self, key: Key) -> u64 {
        u64::MAX >> (BLOCK_SYMBOLS - self.symbols(key))
    }

    /// Returns the offset in its part and the bytes of a source symbol.
    pub(super) fn extent(&self, key: Key, symbol: u32) -> (u64, u32) {
        let offset = self.start(key) + u64::from(symbol) * u64::from(self.symbol);
        let left = self.len(part_of(key)).saturating_sub(offset);
        // At most a symbol, which is below 2^16.
        (offset, left.min(u64::from(self.symbol)) as u32)
    }

    /// Returns the bytes of any symbol of a block: a parity symbol always has full length.
    pub(super) fn symbol_len(&self, key: Key, symbol: u32) -> u32 {
        if symbol < BLOCK_SYMBOLS { self.extent(key, symbol).1 } else { self.symbol }
    }

    /// Returns the blocks that overlap `bytes`, with masks of the symbols in the first and last.
    pub(super) fn touched(&self, bytes: &Range<u64>) -> Option<(Range<Key>, u64, u64)> {
        let end = bytes.end.min(self.len(Part::Content));
        if bytes.start >= end {
            return None;
        }
        let symbol = u64::from(self.symbol);
        let (first, last) = (bytes.start / symbol, (end - 1) / symbol);
        let block = u64::from(BLOCK_SYMBOLS);
        let base = key(Part::Content, 0);
        let keys = base + first / block..base + last / block + 1;
        Some((keys, u64::MAX << (first % block), u64::MAX >> (block - 1 - last % block)))
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
        let keys = layout.keys(Part::Content);
        assert_eq!(keys, 1 << 32..(1 << 32) + 3);
        let last = keys.end - 1;
        assert_eq!((layout.symbols(keys.start), layout.symbols(last)), (64, 3));
        assert_eq!((layout.mask(keys.start), layout.mask(last)), (u64::MAX, 7));
        assert_eq!(layout.extent(last, 2), (13_000, 50));
        assert_eq!((layout.symbol_len(last, 2), layout.symbol_len(last, 64)), (50, 100));
        assert!(layout.has(0) && !layout.has(1) && !layout.has(keys.end) && !layout.has(2 << 32));
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
            assert_eq!(layout.touched(&bytes), want, "{bytes:?}");
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
            assert_eq!(layout.reach(offset), base + blocks, "{offset}");
        }
    }
}
