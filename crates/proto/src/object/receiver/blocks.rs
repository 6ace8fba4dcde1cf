//! Blocks of a receiver: received symbols, recovery by parity, and writes to the store.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::content::only_zeros;
use crate::object::fec::Restorer;
use crate::object::layout::{BLOCK_SYMBOLS, KEY_END, Key, Layout, key, part_of};
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
pub(in crate::object) enum Taken {
    Fresh,
    Completed,
    /// Received before, or not wanted.
    Useless,
    NoRoom,
}

/// All incomplete blocks. Blocks that were never wanted count as complete.
#[derive(Default)]
pub(in crate::object) struct Blocks {
    pub(in crate::object) layout: Layout,
    pub(super) absent: RangeSet,
    partial: BTreeMap<Key, Partial>,
    parity_bytes: usize,
    left: [u64; 3],
    restorer: Restorer,
    scratch: Vec<u8>,
    pub(super) content_bytes: u64,
}

impl Blocks {
    pub(super) fn want_part(&mut self, part: Part) {
        self.drop_part(part);
        self.want(self.layout.keys(part));
    }

    pub(super) fn want(&mut self, keys: Range<Key>) {
        if !keys.is_empty() {
            self.left[part_of(keys.start) as usize] += keys.end - keys.start;
            self.absent.insert(keys);
        }
    }

    fn drop_part(&mut self, part: Part) {
        let all = key(part, 0)..key(part, 0) + (1 << 32);
        self.absent.remove(all.clone());
        let keys: Vec<_> = self.partial.range(all).map(|(&key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key));
        self.left[part as usize] = 0;
    }

    /// Removes `bytes` of content, which the store has, from the wanted blocks.
    pub(super) fn found(&mut self, bytes: &Range<u64>) {
        // A partly missing symbol is received whole.
        let symbol = u64::from(self.layout.symbol_bytes());
        let len = self.layout.len(Part::Content);
        let end = if bytes.end >= len { len } else { bytes.end / symbol * symbol };
        let inner = bytes.start.div_ceil(symbol) * symbol..end;
        let Some((keys, first, last)) = self.layout.touched(&inner) else { return };
        let (from, to) = (keys.start, keys.end - 1);
        for (at, bits) in edges(from, to, first, last) {
            if self.absent.contains(at) && self.partial.len() < PARTIAL_MAX {
                self.absent.remove(at..at + 1);
                let missing = self.layout.mask(at);
                self.partial.insert(at, Partial { missing, parity: Vec::new() });
            }
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
        partly.into_iter().for_each(|key| self.complete(key));
    }

    pub(super) fn damaged(&mut self, bytes: &Range<u64>) {
        let Some((keys, first, last)) = self.layout.touched(bytes) else { return };
        let (from, to) = (keys.start, keys.end - 1);
        for (at, bits) in edges(from, to, first, last) {
            self.lose(at, bits);
        }
        for at in from + 1..to {
            self.lose(at, u64::MAX);
        }
    }

    fn lose(&mut self, key: Key, bits: u64) {
        let bits = bits & self.layout.mask(key);
        if self.absent.contains(key) || bits == 0 {
            return;
        }
        if let Some(partial) = self.partial.get_mut(&key) {
            partial.missing |= bits;
            return;
        }
        self.left[part_of(key) as usize] += 1;
        if bits == self.layout.mask(key) || self.partial.len() >= PARTIAL_MAX {
            self.absent.insert(key..key + 1);
        } else {
            self.partial.insert(key, Partial { missing: bits, parity: Vec::new() });
        }
    }

    pub(in crate::object) fn left(&self, part: Part) -> u64 {
        self.left[part as usize]
    }

    pub(super) fn content_lacking(&self) -> u64 {
        let keys = self.layout.keys(Part::Content);
        let whole = |run: Range<Key>| {
            let end = self.layout.extent(run.end - 1, self.layout.symbols(run.end - 1) - 1);
            end.0 + u64::from(end.1) - self.layout.start(run.start)
        };
        let absent: u64 = self.absent.within(keys.clone()).map(whole).sum();
        let partial = self.partial.range(keys).map(|(&key, partial)| {
            let missing = (0..BLOCK_SYMBOLS).filter(|i| partial.missing >> i & 1 == 1);
            missing.map(|symbol| u64::from(self.layout.extent(key, symbol).1)).sum::<u64>()
        });
        absent + partial.sum::<u64>()
    }

    /// Returns the wanted and missing symbols, numbered with 64 per block.
    pub(in crate::object) fn lacking(&self) -> RangeSet {
        let first = |key: Key| key * u64::from(BLOCK_SYMBOLS);
        let mut lacking = RangeSet::default();
        for run in self.absent.iter() {
            lacking.insert(
                first(run.start)..first(run.end - 1) + u64::from(self.layout.symbols(run.end - 1)),
            );
        }
        for (&key, partial) in &self.partial {
            let missing = (0..BLOCK_SYMBOLS).filter(|symbol| partial.missing >> symbol & 1 == 1);
            missing.for_each(|symbol| {
                let at = first(key) + u64::from(symbol);
                lacking.insert(at..at + 1);
            });
        }
        lacking
    }

    pub(super) fn partial(&self, range: Range<Key>) -> impl Iterator<Item = Key> {
        let end = range.end.max(range.start);
        self.partial.range(range.start..end).map(|(&key, _)| key)
    }

    pub(super) fn open(&mut self, key: Key) -> bool {
        if self.partial.contains_key(&key) {
            return true;
        }
        if !self.absent.contains(key) || self.partial.len() >= PARTIAL_MAX {
            return false;
        }
        self.absent.remove(key..key + 1);
        self.partial.insert(key, Partial { missing: self.layout.mask(key), parity: Vec::new() });
        true
    }

    /// Returns the lowest missing source symbols, fewer by the received parity symbols.
    pub(super) fn lacks(&self, key: Key) -> Option<u64> {
        let partial = self.partial.get(&key)?;
        let mut missing = partial.missing;
        for _ in 0..partial.parity.len() {
            missing ^= 1 << missing.checked_ilog2()?;
        }
        Some(missing)
    }

    pub(super) fn take(
        &mut self,
        store: &mut dyn Store,
        (key, symbol): (Key, u32),
        bytes: &[u8],
        zeros: u32,
    ) -> ObjectResult<Taken> {
        if !self.partial.contains_key(&key) {
            if !self.absent.contains(key) {
                return Ok(Taken::Useless);
            }
            if !self.open(key) {
                return Ok(Taken::NoRoom);
            }
        }
        let partial = self.partial.get_mut(&key).expect("it was there or has been made");
        if symbol < BLOCK_SYMBOLS {
            if partial.missing >> symbol & 1 == 0 {
                return Ok(Taken::Useless);
            }
            let (offset, len) = self.layout.extent(key, symbol);
            store.write(part_of(key), offset, bytes, zeros)?;
            partial.missing ^= 1 << symbol;
            if part_of(key) == Part::Content {
                self.content_bytes += u64::from(len);
            }
        } else {
            let number = (symbol - BLOCK_SYMBOLS) as u8;
            if partial.parity.iter().any(|(held, _)| *held == number) {
                return Ok(Taken::Useless);
            }
            let held = if zeros as usize == self.layout.symbol_bytes() as usize {
                Vec::new()
            } else {
                let mut held = Vec::with_capacity(bytes.len() + zeros as usize);
                held.extend_from_slice(bytes);
                held.resize(bytes.len() + zeros as usize, 0);
                held
            };
            if self.parity_bytes + PARITY_COST + held.len() > PARITY_BYTES_MAX {
                return Ok(Taken::NoRoom);
            }
            self.parity_bytes += PARITY_COST + held.len();
            partial.parity.push((number, held));
        }
        if partial.missing == 0 {
            self.complete(key);
            return Ok(Taken::Completed);
        }
        if partial.missing.count_ones() as usize <= partial.parity.len() {
            self.restore(store, key)?;
            self.complete(key);
            return Ok(Taken::Completed);
        }
        Ok(Taken::Fresh)
    }

    fn restore(&mut self, store: &mut dyn Store, key: Key) -> ObjectResult {
        let Some(partial) = self.partial.get(&key) else { return Ok(()) };
        let (part, symbols, size) =
            (part_of(key), self.layout.symbols(key), self.layout.symbol_bytes());
        let present = self.layout.mask(key) & !partial.missing;
        let block = &mut self.scratch;
        block.clear();
        let mut symbol = 0;
        while symbol < symbols {
            let run = if present >> symbol & 1 == 1 {
                let run = (present >> symbol).trailing_ones();
                let (offset, _) = self.layout.extent(key, symbol);
                let (last, last_len) = self.layout.extent(key, symbol + run - 1);
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
            let (offset, len) = self.layout.extent(key, symbol);
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
            (0..symbols).filter(|i| partial.missing >> i & 1 == 1).for_each(|i| put(i, None));
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

    fn complete(&mut self, key: Key) {
        self.close(key);
        debug_assert!(!self.absent.contains(key), "nothing of a complete block is absent");
        self.left[part_of(key) as usize] -= 1;
    }

    fn close(&mut self, key: Key) {
        if let Some(partial) = self.partial.remove(&key) {
            let held = partial.parity.iter().map(|(_, parity)| PARITY_COST + parity.len());
            self.parity_bytes -= held.sum::<usize>();
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.partial.len() <= PARTIAL_MAX && self.parity_bytes <= PARITY_BYTES_MAX);
        for part in Part::ALL {
            let keys = self.layout.keys(part);
            let absent: u64 = self.absent.within(keys.clone()).map(|r| r.end - r.start).sum();
            let partial = self.partial.range(keys).count() as u64;
            assert_eq!(absent + partial, self.left(part), "{part:?}");
        }
        for (key, partial) in &self.partial {
            assert!(partial.missing != 0 && partial.missing & !self.layout.mask(*key) == 0);
            assert!(!self.absent.contains(*key) && *key < KEY_END);
        }
    }
}

fn edges(from: Key, to: Key, first: u64, last: u64) -> impl Iterator<Item = (Key, u64)> {
    let one = from == to;
    let head = (from, if one { first & last } else { first });
    [head].into_iter().chain((!one).then_some((to, last)))
}

/// Memory of a parity symbol beside its bytes.
const PARITY_COST: usize = 64;

// No wanted block is beyond the last part.
const _: () = assert!(KEY_END == 3 << 32);

#[cfg(test)]
mod tests;
