//! Blocks of a receiver: received symbols, recovery by parity, and writes to the store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::content::only_zeros;
use crate::object::fec::Restorer;
use crate::object::layout::{BLOCK_SYMBOLS, BlockId, Layout, block_id, first_symbol_of, part_of};
use crate::object::{ObjectResult, Part, Store};
use crate::ranges::RangeSet;

/// Most partly received blocks. Symbols of other blocks are dropped and requested later.
pub(super) const PARTIAL_MAX: usize = 4096;

const PARITY_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
struct Partial {
    /// Missing source symbols, one bit each.
    missing: u64,
    /// Received parity symbols, by number from 0, each number once. An empty vector means zeros.
    parity: Vec<(u8, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Fresh,
    Completed,
    /// Received before, or not wanted.
    Useless,
    NoRoom,
}

/// All incomplete blocks. Blocks that were never wanted count as complete.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) layout: Layout,
    pub(super) absent: RangeSet,
    partial: BTreeMap<BlockId, Partial>,
    parity_bytes: usize,
    left: [u64; 3],
    restorer: Restorer,
    scratch: Vec<u8>,
    pub(super) content_bytes: u64,
}

impl Blocks {
    pub(super) fn want_part(&mut self, part: Part) {
        self.drop_part(part);
        self.want(self.layout.block_ids(part));
    }

    pub(super) fn want(&mut self, block_ids: Range<BlockId>) {
        if !block_ids.is_empty() {
            self.left[part_of(block_ids.start) as usize] += block_ids.end - block_ids.start;
            self.absent.insert(block_ids);
        }
    }

    fn drop_part(&mut self, part: Part) {
        let all = block_id(part, 0)..block_id(part, 0) + (1 << 32);
        self.absent.remove(all.clone());
        let block_ids: Vec<_> = self.partial.range(all).map(|(&block_id, _)| block_id).collect();
        block_ids.into_iter().for_each(|block_id| self.close(block_id));
        self.left[part as usize] = 0;
    }

    /// Removes `bytes` of content, which the store has, from the wanted blocks.
    pub(super) fn found(&mut self, bytes: &Range<u64>) {
        // A partly missing symbol is received whole.
        let symbol = u64::from(self.layout.symbol_bytes);
        let len = self.layout.len(Part::Content);
        let end = if bytes.end >= len { len } else { bytes.end / symbol * symbol };
        let inner = bytes.start.div_ceil(symbol) * symbol..end;
        let Some((block_ids, first, last)) = self.layout.overlapping(&inner) else { return };
        let (from, to) = (block_ids.start, block_ids.end - 1);
        for (at, bits) in edges(from, to, first, last) {
            self.open(at);
            if let Some(partial) = self.partial.get_mut(&at) {
                partial.missing &= !bits;
                if partial.missing == 0 {
                    self.complete(at);
                }
            }
        }
        let inner = from + 1..to.max(from + 1);
        let gone: u64 = self.absent.within(inner.clone()).map(|run| run.end - run.start).sum();
        self.left[Part::Content as usize] -= gone;
        self.absent.remove(inner.clone());
        let partly: Vec<_> = self.partial(inner).collect();
        partly.into_iter().for_each(|block_id| self.complete(block_id));
    }

    pub(super) fn damaged(&mut self, bytes: &Range<u64>) {
        let Some((block_ids, first, last)) = self.layout.overlapping(bytes) else { return };
        let (from, to) = (block_ids.start, block_ids.end - 1);
        for (at, bits) in edges(from, to, first, last) {
            self.lose(at, bits);
        }
        for at in from + 1..to {
            self.lose(at, u64::MAX);
        }
    }

    fn lose(&mut self, block_id: BlockId, bits: u64) {
        let bits = bits & self.layout.mask(block_id);
        if self.absent.contains(block_id) || bits == 0 {
            return;
        }
        if let Some(partial) = self.partial.get_mut(&block_id) {
            partial.missing |= bits;
            return;
        }
        self.left[part_of(block_id) as usize] += 1;
        if bits == self.layout.mask(block_id) || self.partial.len() >= PARTIAL_MAX {
            self.absent.insert(block_id..block_id + 1);
        } else {
            self.partial.insert(block_id, Partial { missing: bits, parity: Vec::new() });
        }
    }

    pub(crate) fn left(&self, part: Part) -> u64 {
        self.left[part as usize]
    }

    pub(super) fn content_lacking(&self) -> u64 {
        let block_ids = self.layout.block_ids(Part::Content);
        let whole = |run: Range<BlockId>| {
            let end = self.layout.extent(run.end - 1, self.layout.symbols(run.end - 1) - 1);
            end.0 + u64::from(end.1) - self.layout.start(run.start)
        };
        let absent: u64 = self.absent.within(block_ids.clone()).map(whole).sum();
        let partial = self.partial.range(block_ids).map(|(&block_id, partial)| {
            let missing = bits(partial.missing);
            missing.map(|symbol| u64::from(self.layout.extent(block_id, symbol).1)).sum::<u64>()
        });
        absent + partial.sum::<u64>()
    }

    /// Returns the wanted and missing symbols, numbered with 64 per block.
    pub(crate) fn lacking(&self) -> RangeSet {
        let mut lacking = RangeSet::default();
        for run in self.absent.iter() {
            let last = run.end - 1;
            let end = first_symbol_of(last) + u64::from(self.layout.symbols(last));
            lacking.insert(first_symbol_of(run.start)..end);
        }
        for (&block_id, partial) in &self.partial {
            for symbol in bits(partial.missing) {
                let at = first_symbol_of(block_id) + u64::from(symbol);
                lacking.insert(at..at + 1);
            }
        }
        lacking
    }

    pub(super) fn partial(&self, range: Range<BlockId>) -> impl Iterator<Item = BlockId> {
        let end = range.end.max(range.start);
        self.partial.range(range.start..end).map(|(&block_id, _)| block_id)
    }

    pub(super) fn open(&mut self, block_id: BlockId) -> bool {
        if self.partial.contains_key(&block_id) {
            return true;
        }
        if !self.absent.contains(block_id) || self.partial.len() >= PARTIAL_MAX {
            return false;
        }
        self.absent.remove(block_id..block_id + 1);
        self.partial
            .insert(block_id, Partial { missing: self.layout.mask(block_id), parity: Vec::new() });
        true
    }

    /// Returns the lowest missing source symbols, fewer by the received parity symbols.
    pub(super) fn lacks(&self, block_id: BlockId) -> Option<u64> {
        let partial = self.partial.get(&block_id)?;
        let mut missing = partial.missing;
        for _ in 0..partial.parity.len() {
            missing ^= 1 << missing.checked_ilog2()?;
        }
        Some(missing)
    }

    pub(super) fn take(
        &mut self,
        store: &mut dyn Store,
        (block_id, symbol): (BlockId, u32),
        bytes: &[u8],
        zeros: u32,
    ) -> ObjectResult<Taken> {
        if !self.open(block_id) {
            let wanted = self.absent.contains(block_id);
            return Ok(if wanted { Taken::NoRoom } else { Taken::Useless });
        }
        let partial = self.partial.get_mut(&block_id).expect("it was there or has been made");
        if symbol < BLOCK_SYMBOLS {
            if partial.missing >> symbol & 1 == 0 {
                return Ok(Taken::Useless);
            }
            let (offset, len) = self.layout.extent(block_id, symbol);
            store.write(part_of(block_id), offset, bytes, zeros)?;
            partial.missing ^= 1 << symbol;
            if part_of(block_id) == Part::Content {
                self.content_bytes += u64::from(len);
            }
        } else {
            let number = (symbol - BLOCK_SYMBOLS) as u8;
            if partial.parity.iter().any(|(held, _)| *held == number) {
                return Ok(Taken::Useless);
            }
            let mut held = Vec::new();
            if !bytes.is_empty() {
                held.resize(self.layout.symbol_bytes as usize, 0);
                held[..bytes.len()].copy_from_slice(bytes);
            }
            if self.parity_bytes + PARITY_COST + held.len() > PARITY_BYTES_MAX {
                return Ok(Taken::NoRoom);
            }
            self.parity_bytes += PARITY_COST + held.len();
            partial.parity.push((number, held));
        }
        if partial.missing == 0 {
            self.complete(block_id);
            return Ok(Taken::Completed);
        }
        if partial.missing.count_ones() as usize <= partial.parity.len() {
            self.restore(store, block_id)?;
            self.complete(block_id);
            return Ok(Taken::Completed);
        }
        Ok(Taken::Fresh)
    }

    fn restore(&mut self, store: &mut dyn Store, block_id: BlockId) -> ObjectResult {
        let Some(partial) = self.partial.get(&block_id) else { return Ok(()) };
        let (part, symbols, size) =
            (part_of(block_id), self.layout.symbols(block_id), self.layout.symbol_bytes);
        let present = self.layout.mask(block_id) & !partial.missing;
        let block = &mut self.scratch;
        block.clear();
        let mut symbol = 0;
        while symbol < symbols {
            let run = if present >> symbol & 1 == 1 {
                let run = (present >> symbol).trailing_ones();
                let (offset, _) = self.layout.extent(block_id, symbol);
                let (last, last_len) = self.layout.extent(block_id, symbol + run - 1);
                store.read(part, offset, (last - offset) as u32 + last_len, block)?;
                run
            } else {
                (partial.missing >> symbol).trailing_ones()
            };
            symbol += run;
            block.resize((symbol * size) as usize, 0);
        }
        let nothing =
            partial.parity.iter().all(|(_, parity)| parity.is_empty()) && only_zeros(block);
        let mut content = 0;
        let mut outcome = Ok(());
        let mut put = |symbol: u32, bytes: Option<&[u8]>| {
            let (offset, len) = self.layout.extent(block_id, symbol);
            content += u64::from(len);
            let written = match bytes {
                Some(bytes) => store.write(part, offset, &bytes[..len as usize], 0),
                None => store.write(part, offset, &[], len),
            };
            if outcome.is_ok() {
                outcome = written;
            }
        };
        if nothing {
            // The code is linear: zeros restore to zeros.
            bits(partial.missing).for_each(|symbol| put(symbol, None));
        } else {
            let size = (symbols, size);
            self.restorer.restore(size, present, block, &partial.parity, |symbol, bytes| {
                put(symbol, Some(bytes));
            });
        }
        if part == Part::Content {
            self.content_bytes += content;
        }
        outcome
    }

    fn complete(&mut self, block_id: BlockId) {
        self.close(block_id);
        debug_assert!(!self.absent.contains(block_id), "nothing of a complete block is absent");
        self.left[part_of(block_id) as usize] -= 1;
    }

    fn close(&mut self, block_id: BlockId) {
        if let Some(partial) = self.partial.remove(&block_id) {
            let held = partial.parity.iter().map(|(_, parity)| PARITY_COST + parity.len());
            self.parity_bytes -= held.sum::<usize>();
        }
    }
}

fn edges(
    from: BlockId,
    to: BlockId,
    first: u64,
    last: u64,
) -> impl Iterator<Item = (BlockId, u64)> {
    let one = from == to;
    let head = (from, if one { first & last } else { first });
    [head].into_iter().chain((!one).then_some((to, last)))
}

fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..BLOCK_SYMBOLS).filter(move |bit| mask >> bit & 1 == 1)
}

/// Memory of a parity symbol beside its bytes.
const PARITY_COST: usize = 64;

#[cfg(test)]
mod tests;
