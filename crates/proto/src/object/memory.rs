//! Data of a flow as an object, for simulations: content only, delivered in order.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use core::task::Poll;

use super::layout::BLOCK_SYMBOLS;
use super::{Announcement, ObjectError, ObjectResult, Part, Store, Supply, Verdict};
use crate::content::Content;
use crate::ranges::RangeSet;

/// Supply of an object that has content only.
pub struct ContentSupply {
    content: Box<dyn Content>,
    len: u64,
}

impl ContentSupply {
    /// Creates a supply of `content`, cut at the largest object for symbols of `symbol_bytes`.
    pub fn new(content: Box<dyn Content>, symbol_bytes: u16) -> Self {
        let block = u64::from(BLOCK_SYMBOLS) * u64::from(symbol_bytes);
        let len = content.len().unwrap_or(u64::from(u32::MAX) * block);
        Self { content, len }
    }
}

impl Supply for ContentSupply {
    fn len(&self, part: Part) -> u64 {
        if part == Part::Content { self.len } else { 0 }
    }

    fn object(&self) -> [u8; 32] {
        // No end needs the identity: a flow has one object.
        [0; 32]
    }

    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>> {
        Ok(Some([0; 32]))
    }

    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32> {
        if part != Part::Content {
            return Err(ObjectError::new("there is nothing but content"));
        }
        Ok(self.content.read(offset, len, out))
    }
}

/// Store in memory that delivers content in order, and keeps its last block for recovery.
#[derive(Debug, Default)]
pub struct InOrder {
    len: u64,
    next: u64,
    /// Received symbols that are not zeros, by offset.
    held: BTreeMap<u64, Vec<u8>>,
    /// Received zeros, as ranges: an entry for each symbol of each receiver exceeds any cache.
    zeros: RangeSet,
    delivered: VecDeque<(Vec<u8>, u32)>,
    symbol: u64,
    kept: u64,
}

impl InOrder {
    fn deliver(&mut self) {
        let before = self.next;
        loop {
            if let Some(bytes) = self.held.get(&self.next) {
                self.next += bytes.len() as u64;
                self.delivered.push_back((bytes.clone(), 0));
            } else if let Some(run) = self.zeros.around(self.next) {
                let symbol = self.symbol.max(1);
                let end = run.end.min((self.next / symbol + 1) * symbol);
                // A symbol has less than 2^16 bytes.
                self.delivered.push_back((Vec::new(), (end - self.next) as u32));
                self.next = end;
            } else {
                break;
            }
        }
        if self.next == before {
            return;
        }
        let keep_from = self.next.saturating_sub(self.kept);
        self.zeros.remove(0..keep_from);
        while let Some((&offset, bytes)) = self.held.first_key_value()
            && offset + bytes.len() as u64 <= keep_from
        {
            self.held.pop_first();
        }
    }
}

impl Store for InOrder {
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult {
        self.len = announcement.len(Part::Content);
        // A block is read back while it is incomplete, so its start may already be delivered.
        self.symbol = u64::from(announcement.symbol_bytes);
        self.kept = 64 * self.symbol;
        Ok(())
    }

    fn grow(&mut self, announcement: &Announcement) -> ObjectResult {
        self.len = announcement.len(Part::Content);
        Ok(())
    }

    fn write(&mut self, _part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult {
        if bytes.is_empty() {
            self.held.remove(&offset);
            self.zeros.insert(offset..offset + u64::from(zeros));
        } else {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len() + zeros as usize, 0);
            self.zeros.remove(offset..offset + bytes.len() as u64);
            self.held.insert(offset, bytes);
        }
        self.deliver();
        Ok(())
    }

    fn read(&mut self, _part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult {
        let wanted = offset..offset + u64::from(len);
        let mut at = offset;
        while at < wanted.end {
            let end = if let Some(run) = self.zeros.around(at) {
                let end = run.end.min(wanted.end);
                out.resize(out.len() + (end - at) as usize, 0);
                end
            } else {
                let found = self.held.range(..=at).next_back();
                let found = found.filter(|(start, bytes)| at < **start + bytes.len() as u64);
                let Some((&start, bytes)) = found else {
                    return Err(ObjectError::new("it is not here any more"));
                };
                let end = (start + bytes.len() as u64).min(wanted.end);
                out.extend_from_slice(&bytes[(at - start) as usize..(end - start) as usize]);
                end
            };
            at = end;
        }
        Ok(())
    }

    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>> {
        Ok(Poll::Ready(Vec::new()))
    }

    fn verify(&mut self) -> ObjectResult<Poll<Verdict>> {
        // Checksums covered all packets; the simulator compares digests of its own.
        Ok(Poll::Ready(Verdict::Intact))
    }

    fn poll_delivered(&mut self) -> Option<(Vec<u8>, u32)> {
        self.delivered.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_whatever_order_they_came_in() {
        let mut store = InOrder::default();
        let announcement = Announcement {
            lens: [0, 12, 0],
            growing: false,
            symbol_bytes: 4,
            object: [0; 32],
            digests: None,
        };
        store.begin(&announcement).unwrap();
        store.write(Part::Content, 8, &[9, 10, 11, 12], 0).unwrap();
        store.write(Part::Content, 4, &[], 4).unwrap();
        assert_eq!(store.poll_delivered(), None);
        let mut back = Vec::new();
        store.read(Part::Content, 6, 4, &mut back).unwrap();
        assert_eq!(back, [0, 0, 9, 10]);
        store.write(Part::Content, 0, &[1, 2], 2).unwrap();
        let all: Vec<_> = core::iter::from_fn(|| store.poll_delivered()).collect();
        assert_eq!(all[0], ([1, 2, 0, 0].to_vec(), 0));
        assert_eq!((all[1].1, all[2].0.len()), (4, 4));
        assert!(store.read(Part::Content, 12, 1, &mut back).is_err());
    }

    #[test]
    fn zeros_before_the_announcement_are_taken() {
        let mut store = InOrder::default();
        store.write(Part::Content, 0, &[], 2).unwrap();
        let all: Vec<_> = core::iter::from_fn(|| store.poll_delivered()).collect();
        assert_eq!(all, [(Vec::new(), 1), (Vec::new(), 1)]);
    }

    #[test]
    fn zeros_are_held_as_ranges_and_delivered_symbol_by_symbol() {
        let mut store = InOrder::default();
        let (symbols, last) = (1000, 3);
        let announcement = Announcement {
            lens: [0, 4 * symbols + last, 0],
            growing: false,
            symbol_bytes: 4,
            object: [0; 32],
            digests: None,
        };
        store.begin(&announcement).unwrap();
        store.write(Part::Content, 4 * symbols, &[], last as u32).unwrap();
        for symbol in (1..symbols).rev() {
            store.write(Part::Content, 4 * symbol, &[], 4).unwrap();
        }
        assert_eq!((store.zeros.len(), store.held.len()), (1, 0));
        store.write(Part::Content, 0, &[7], 3).unwrap();
        let all: Vec<_> = core::iter::from_fn(|| store.poll_delivered()).collect();
        assert_eq!(all.len() as u64, symbols + 1);
        assert_eq!(all[0], (alloc::vec![7, 0, 0, 0], 0));
        assert!(all[1..1000].iter().all(|(bytes, zeros)| bytes.is_empty() && *zeros == 4));
        assert_eq!(all[1000].1, 3);
        let mut back = Vec::new();
        store.read(Part::Content, 4 * symbols - 8, 8, &mut back).unwrap();
        assert_eq!(back, [0; 8]);
        assert!(store.read(Part::Content, 0, 1, &mut back).is_err());
    }
}
