//! Packets of an object over TRAM: announcements, and the requested symbols of each part.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{Duration, Time};

use super::words::Lacks;
use crate::content::Packets;
use crate::object::layout::{BLOCK_SYMBOLS, SymbolId, block_and_symbol, part_of};
use crate::object::offer::Offer;
use crate::object::planner::Planner;
use crate::object::wire::{SYMBOL_HEADER, SymbolName};
use crate::object::{Announcement, ObjectResult, Part, Supply};

/// First byte of an announcement. Packets with symbols begin with a name, whose first byte is 1.
pub(super) const ANNOUNCEMENT: u8 = 2;

const ANNOUNCEMENT_BYTES: u32 = 1 + 104;

/// Interval between announcements of growing content, and between repetitions for late receivers.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);

/// Symbols between two read-ahead hints to the supply.
const EXPECTED_SYMBOLS: u64 = 64;

pub(super) struct ObjectStream {
    pub(super) offer: Offer,
    planner: Planner,
    pub(super) log: Log,
    announcements: Announcements,
    pub(super) symbols: u64,
    chosen: Option<Item>,
    /// One past the last symbol that the supply was told to expect.
    expected_end: SymbolId,
}

/// Announcements in the stream: the first, at each change, and when nothing is left to send.
#[derive(Debug, Default)]
struct Announcements {
    is_due: bool,
    grown_at: Time,
    repeated_at: Time,
    /// True if nothing was sent or requested since the announcement that nothing is left.
    is_exhaustion_sent: bool,
}

impl ObjectStream {
    pub(super) fn new(supply: Box<dyn Supply>, symbol_bytes: u16) -> Self {
        let offer = Offer::new(supply, symbol_bytes);
        let mut planner = Planner::new(BLOCK_SYMBOLS);
        planner.requested.insert(offer.layout.symbol_ids(Part::Manifest));
        if offer.announcement.growing {
            // No receiver can have growing content already.
            planner.requested.insert(offer.layout.symbol_ids(Part::Content));
        }
        Self {
            offer,
            planner,
            log: Log::default(),
            announcements: Announcements { is_due: true, ..Announcements::default() },
            symbols: 0,
            chosen: None,
            expected_end: 0,
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.announcements.is_exhaustion_sent && self.chosen.is_none()
    }

    pub(super) fn announce_again(&mut self, now: Time) {
        let Announcements { is_due, repeated_at, .. } = &mut self.announcements;
        if now.since(*repeated_at) >= ANNOUNCEMENT_INTERVAL {
            (*is_due, *repeated_at) = (true, now);
        }
    }

    pub(super) fn poll_digests(&mut self) {
        if self.offer.poll_digests() {
            self.planner.requested.insert(self.offer.layout.symbol_ids(Part::Digests));
            self.announcements.is_due = true;
        }
    }

    pub(super) fn poll_growth(&mut self, now: Time) -> bool {
        let known_end = self.offer.layout.symbol_ids(Part::Content).end;
        let busy = !self.planner.requested.is_empty() && self.offer.begun;
        let recent = now.since(self.announcements.grown_at) < ANNOUNCEMENT_INTERVAL;
        if !self.offer.poll_growth(|grown| !(busy && grown.growing && recent)) {
            return false;
        }
        let content = self.offer.layout.symbol_ids(Part::Content);
        self.planner.requested.insert(known_end..content.end);
        let announcements = &mut self.announcements;
        (announcements.is_due, announcements.grown_at) = (true, now);
        announcements.is_exhaustion_sent = false;
        true
    }

    /// Queues symbols that a receiver lacks and no packet brings; sent ones as `repeats_allowed`.
    pub(super) fn request(&mut self, lacks: &Lacks, repeats_allowed: impl FnOnce(u64) -> u64) {
        // Digests that are not known yet will be sent completely.
        let known = self.offer.announcement.digests.is_some();
        let parts = Part::ALL.into_iter().filter(|part| known || *part != Part::Digests);
        let layout = self.offer.layout;
        let lacking = parts.map(|part| layout.symbol_ids(part)).flat_map(|all| {
            lacks.ranges.iter().map(move |ids| ids.start.max(all.start)..ids.end.min(all.end))
        });
        let chosen = match self.chosen {
            Some(Item::Symbol(id)) => Some(id..id + 1),
            _ => None,
        };
        let under_way = self.log.symbols(lacks.after.saturating_sub(1)).chain(chosen);
        let full = self.log.is_full();
        let repeats = |count| if full { 0 } else { repeats_allowed(count) };
        if self.planner.request(lacking, under_way, repeats) {
            self.announcements.is_exhaustion_sent = false;
        }
    }

    fn next_item(&mut self) -> Option<Item> {
        if core::mem::take(&mut self.announcements.is_due) {
            return Some(Item::Announcement { exhausted: false });
        }
        if let Some(id) = self.planner.next(&self.offer) {
            return Some(Item::Symbol(id));
        }
        if !self.offer.begun {
            return None;
        }
        if !self.offer.announcement.growing {
            self.poll_digests();
        }
        if core::mem::take(&mut self.announcements.is_due) {
            return Some(Item::Announcement { exhausted: false });
        }
        let Announcement { growing, digests, .. } = self.offer.announcement;
        let whole = !growing && (digests.is_some() || self.offer.layout.len(Part::Digests) == 0);
        let told = &mut self.announcements.is_exhaustion_sent;
        (whole && !core::mem::replace(told, true)).then_some(Item::Announcement { exhausted: true })
    }

    fn item_len(&self, item: Item) -> u32 {
        match item {
            Item::Announcement { .. } => ANNOUNCEMENT_BYTES,
            Item::Symbol(id) => {
                let (block_id, symbol) = block_and_symbol(id);
                SYMBOL_HEADER as u32 + self.offer.layout.extent(block_id, symbol).1
            }
        }
    }

    fn on_sent(&mut self, item: Item) {
        self.log.push(item);
        if let Item::Symbol(id) = item {
            self.planner.on_sent(id);
            self.symbols += 1;
            self.announcements.is_exhaustion_sent = false;
        }
    }

    fn expect(&mut self, id: SymbolId) {
        let (block_id, symbol) = block_and_symbol(id);
        let end = self.expected_end;
        if part_of(block_id) == Part::Content
            && !(end.saturating_sub(EXPECTED_SYMBOLS)..end).contains(&id)
        {
            self.expected_end = id + EXPECTED_SYMBOLS;
            self.offer.supply.expect(self.offer.layout.extent(block_id, symbol).0);
        }
    }
}

fn write(offer: &mut Offer, item: Item, out: &mut Vec<u8>) -> ObjectResult<u32> {
    match item {
        Item::Announcement { exhausted } => {
            out.push(ANNOUNCEMENT);
            out.extend_from_slice(&offer.notice(exhausted).encode());
            Ok(0)
        }
        Item::Symbol(id) => {
            let (block_id, symbol) = block_and_symbol(id);
            out.extend_from_slice(&SymbolName { block_id, symbol, repair: false }.encode());
            offer.read_symbol(block_id, symbol, out)
        }
    }
}

impl Packets for ObjectStream {
    /// Returns `None`: a receiver may always request more, so the stream does not know its end.
    fn end(&self) -> Option<u64> {
        None
    }

    fn ready(&mut self, _now: Time, _index: u64) -> Option<u32> {
        if self.offer.failed.is_none() && self.chosen.is_none() {
            self.chosen = self.next_item();
            if let Some(Item::Symbol(id)) = self.chosen {
                self.expect(id);
            }
        }
        self.chosen.filter(|_| self.offer.failed.is_none()).map(|item| self.item_len(item))
    }

    fn len(&self, index: u64) -> u32 {
        self.log.get(index).map_or(0, |item| self.item_len(item))
    }

    /// Appends any sent packet, or the chosen one. The sender checks for failure before it sends.
    fn read(&mut self, _now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let new = self.chosen.filter(|_| index == self.log.end);
        if let Some(item) = new {
            self.chosen = None;
            self.on_sent(item);
        }
        let Some(item) = self.log.get(index) else { return 0 };
        let len = self.item_len(item);
        self.offer.write_payload(len, out, |offer, out| write(offer, item, out))
    }

    fn completed(&self, _count: u64) -> Option<u64> {
        Some(self.offer.announcement.len(Part::Content))
    }
}

/// Most recorded runs of packets. With a full record no symbol is sent again.
const RUNS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// Announcement of the object; `exhausted` is true if nothing was left to send.
    Announcement {
        exhausted: bool,
    },
    Symbol(SymbolId),
}

/// Consecutive packets with consecutive symbols, or one announcement.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    item: Item,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    runs: Vec<Run>,
    pub(super) end: u64,
}

impl Log {
    fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX
    }

    fn push(&mut self, item: Item) {
        let follows = match (self.runs.last(), item) {
            (Some(&Run { first, item: Item::Symbol(id) }), Item::Symbol(next)) => {
                id + (self.end - first) == next
            }
            _ => false,
        };
        if !follows {
            self.runs.push(Run { first: self.end, item });
        }
        self.end += 1;
    }

    fn get(&self, index: u64) -> Option<Item> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= index)].last()?;
        (index < self.end).then_some(match run.item {
            Item::Symbol(id) => Item::Symbol(id + (index - run.first)),
            announcement => announcement,
        })
    }

    fn symbols(&self, after: u64) -> impl Iterator<Item = Range<SymbolId>> {
        // A receiver sends this number, so it may be anything.
        let after = after.min(self.end);
        let from = self.runs.partition_point(|run| run.first <= after).saturating_sub(1);
        let ends = self.runs[from..].iter().skip(1).map(|run| run.first).chain([self.end]);
        self.runs[from..].iter().zip(ends).filter_map(move |(run, end)| {
            let Item::Symbol(id) = run.item else { return None };
            let skipped = after.saturating_sub(run.first);
            (run.first + skipped < end).then_some(id + skipped..id + (end - run.first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Returns a log of an announcement, symbols 5 to 9, an announcement, symbols 0 to 2 and 20.
    fn log() -> Log {
        let mut log = Log::default();
        let announcement = Item::Announcement { exhausted: false };
        let symbols = |range: Range<u64>| range.map(Item::Symbol);
        let all = [announcement].into_iter().chain(symbols(5..10)).chain([announcement]);
        all.chain(symbols(0..3)).chain(symbols(20..21)).for_each(|item| log.push(item));
        log
    }

    #[test]
    fn every_packet_holds_what_it_held() {
        let log = log();
        let held: Vec<_> = (0..12).map(|index| log.get(index)).collect();
        let announcement = Some(Item::Announcement { exhausted: false });
        let symbol = |id| Some(Item::Symbol(id));
        let mut want = vec![announcement];
        want.extend((5..10).map(symbol));
        want.push(announcement);
        want.extend([0, 1, 2, 20].map(symbol));
        want.push(None);
        assert_eq!(held, want);
        assert_eq!((log.end, log.runs.len()), (11, 5));
    }

    #[test]
    fn what_comes_after_a_packet_is_known() {
        let log = log();
        let symbols = |after| log.symbols(after).collect::<Vec<_>>();
        assert_eq!(symbols(0), [5..10, 0..3, 20..21]);
        assert_eq!(symbols(3), [7..10, 0..3, 20..21]);
        assert_eq!(symbols(8), [1..3, 20..21]);
        assert_eq!(symbols(11), []);
    }
}
