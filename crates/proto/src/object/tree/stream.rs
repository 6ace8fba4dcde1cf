//! Packets of an object over TRAM: announcements, and missing symbols of each part.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::log::{Item, Log};
use super::words::Lacks;
use super::{Place, places, symbol_at};
use crate::content::Packets;
use crate::object::layout::{Layout, part_of};
use crate::object::source::{NO_LAYOUT, RUNS_MAX, TOO_LONG, announcement};
use crate::object::wire::{Notice, SYMBOL_HEADER, SymbolName};
use crate::object::{Announcement, ObjectResult, Part, Supply};
use crate::ranges::RangeSet;

/// First byte of an announcement. Packets with symbols begin with a name, whose first byte is 1.
pub(super) const ANNOUNCEMENT: u8 = 2;

const ANNOUNCEMENT_BYTES: u32 = 1 + 104;

/// Interval between announcements of growing content, and between repetitions for late receivers.
const GROWTH_INTERVAL: Duration = Duration::from_secs(1);

/// Symbols between two read-ahead hints to the supply.
const EXPECTED_SYMBOLS: u64 = 64;

pub(super) struct ObjectStream {
    pub(super) supply: Box<dyn Supply>,
    pub(super) announcement: Announcement,
    layout: Layout,
    log: Log,
    /// Symbols to send, and symbols ever sent. Both may include symbols between the nearest ranges.
    needed: RangeSet,
    sent: RangeSet,
    position: Place,
    begun: bool,
    /// True if an announcement is due; times of the last growth and of the last repetition.
    news: bool,
    growth_told: Time,
    repeated: Time,
    /// True if nothing was sent since the announcement that nothing is left.
    told_exhausted: bool,
    pub(super) symbols: u64,
    chosen: Option<Item>,
    expected: Place,
    pub(super) failed: Option<String>,
}

impl ObjectStream {
    pub(super) fn new(supply: Box<dyn Supply>, symbol_bytes: u16) -> Self {
        let announcement = announcement(supply.as_ref(), symbol_bytes);
        let layout = Layout::new(&announcement);
        let failed = layout.is_none().then(|| NO_LAYOUT.to_string());
        let layout = layout.unwrap_or_default();
        let mut needed = RangeSet::default();
        needed.insert(places(&layout, Part::Manifest));
        if announcement.growing {
            // No receiver can have growing content already.
            needed.insert(places(&layout, Part::Content));
        }
        fresh! {
            Self {
                supply,
                announcement,
                layout,
                needed,
                news: true,
                failed,
            }
            log, sent, position, begun, growth_told, repeated, told_exhausted, symbols, chosen,
            expected
        }
    }

    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.told_exhausted && self.chosen.is_none()
    }

    pub(super) const fn packets(&self) -> u64 {
        self.log.end
    }

    pub(super) fn announce_again(&mut self, now: Time) {
        if now.since(self.repeated) >= GROWTH_INTERVAL {
            (self.news, self.repeated) = (true, now);
        }
    }

    pub(super) fn poll_digests(&mut self) {
        let growing = self.announcement.growing;
        if growing || self.announcement.digests.is_some() || self.failed.is_some() {
            return;
        }
        match self.supply.digests() {
            Ok(None) => {}
            Ok(digests) => {
                self.announcement.digests = digests;
                self.needed.insert(places(&self.layout, Part::Digests));
                self.news = true;
            }
            Err(error) => self.failed = Some(error.reason),
        }
    }

    pub(super) fn poll_growth(&mut self, now: Time) -> bool {
        if !self.announcement.growing || self.failed.is_some() {
            return false;
        }
        if let Err(error) = self.supply.digests() {
            self.failed = Some(error.reason);
            return false;
        }
        let new = announcement(self.supply.as_ref(), self.announcement.symbol_bytes);
        let busy = !self.needed.is_empty() && self.begun && new.growing;
        if new == self.announcement || busy && now.since(self.growth_told) < GROWTH_INTERVAL {
            return false;
        }
        let Some(layout) = Layout::new(&new) else {
            self.failed = Some(TOO_LONG.to_string());
            return false;
        };
        let before = places(&self.layout, Part::Content).end;
        self.needed.insert(before..places(&layout, Part::Content).end);
        (self.layout, self.announcement) = (layout, new);
        (self.news, self.growth_told, self.told_exhausted) = (true, now, false);
        true
    }

    /// Queues symbols that a receiver lacks and no packet brings; sent ones as `again` allows.
    pub(super) fn want(&mut self, lacks: &Lacks, again: impl FnOnce(u64) -> u64) {
        let mut wanted = RangeSet::default();
        for part in [Part::Manifest, Part::Content, Part::Digests] {
            let all = places(&self.layout, part);
            // Digests that are not known yet will be sent completely.
            if part == Part::Digests && self.announcement.digests.is_none() {
                continue;
            }
            for range in &lacks.ranges {
                wanted.insert(range.start.max(all.start)..range.end.min(all.end));
            }
        }
        for range in self.needed.iter().chain(self.log.symbols(lacks.after.saturating_sub(1))) {
            wanted.remove(range);
        }
        if let Some(Item::Symbol(place)) = self.chosen {
            wanted.remove(place..place + 1);
        }
        let repeats: Vec<_> = wanted.iter().flat_map(|range| self.sent.within(range)).collect();
        let count = repeats.iter().map(|range| range.end - range.start).sum();
        let mut left = if count == 0 || self.log.is_full() { 0 } else { again(count) };
        for range in repeats {
            let taken = left.min(range.end - range.start);
            left -= taken;
            wanted.remove(range.start + taken..range.end);
        }
        if !wanted.is_empty() {
            self.told_exhausted = false;
        }
        for range in wanted.iter() {
            self.needed.insert(range);
        }
        self.needed.limit(RUNS_MAX);
    }

    fn next_item(&mut self) -> Option<Item> {
        if core::mem::take(&mut self.news) {
            return Some(Item::Announcement { exhausted: false });
        }
        let manifest = places(&self.layout, Part::Manifest);
        let first = self.needed.first_from(0);
        let place = match first {
            Some(place) if place < manifest.end => Some(place),
            _ if !self.begun => return None,
            first => self.needed.first_from(self.position).or(first),
        };
        if let Some(place) = place {
            return Some(Item::Symbol(place));
        }
        self.poll_digests();
        if core::mem::take(&mut self.news) {
            return Some(Item::Announcement { exhausted: false });
        }
        let Announcement { growing, digests, .. } = self.announcement;
        let whole = !growing && (digests.is_some() || self.layout.len(Part::Digests) == 0);
        (whole && !core::mem::replace(&mut self.told_exhausted, true))
            .then_some(Item::Announcement { exhausted: true })
    }

    fn item_len(&self, item: Item) -> u32 {
        match item {
            Item::Announcement { .. } => ANNOUNCEMENT_BYTES,
            Item::Symbol(place) => {
                let (key, symbol) = symbol_at(place);
                SYMBOL_HEADER as u32 + self.layout.extent(key, symbol).1
            }
        }
    }

    fn note_sent(&mut self, item: Item) {
        self.log.push(item);
        if let Item::Symbol(place) = item {
            self.needed.remove(place..place + 1);
            self.sent.insert(place..place + 1);
            if self.sent.len() > 2 * RUNS_MAX {
                self.sent.limit(RUNS_MAX);
            }
            // A repeated manifest does not move the position in the content.
            if place >= places(&self.layout, Part::Manifest).end {
                self.position = place + 1;
            }
            self.symbols += 1;
            self.told_exhausted = false;
        }
    }

    fn write(&mut self, item: Item, out: &mut Vec<u8>) -> ObjectResult<u32> {
        match item {
            Item::Announcement { exhausted } => {
                let notice = Notice {
                    announcement: self.announcement,
                    parity: false,
                    begun: self.begun,
                    exhausted,
                    status_interval: Duration::ZERO,
                    position: None,
                    epoch: 0,
                };
                out.push(ANNOUNCEMENT);
                out.extend_from_slice(&notice.encode());
                Ok(0)
            }
            Item::Symbol(place) => {
                let (key, symbol) = symbol_at(place);
                let (offset, len) = self.layout.extent(key, symbol);
                out.extend_from_slice(&SymbolName { key, symbol, repair: false }.encode());
                self.supply.read(part_of(key), offset, len, out)
            }
        }
    }

    fn expect(&mut self, place: Place) {
        if part_of(symbol_at(place).0) == Part::Content
            && !(self.expected.saturating_sub(EXPECTED_SYMBOLS)..self.expected).contains(&place)
        {
            self.expected = place + EXPECTED_SYMBOLS;
            let (key, symbol) = symbol_at(place);
            self.supply.expect(self.layout.extent(key, symbol).0);
        }
    }
}

impl Packets for ObjectStream {
    /// Returns `None`: a receiver may always request more, so the stream does not know its end.
    fn end(&self) -> Option<u64> {
        None
    }

    fn ready(&mut self, _now: Time, _index: u64) -> Option<u32> {
        if self.failed.is_none() && self.chosen.is_none() {
            self.chosen = self.next_item();
            if let Some(Item::Symbol(place)) = self.chosen {
                self.expect(place);
            }
        }
        self.chosen.filter(|_| self.failed.is_none()).map(|item| self.item_len(item))
    }

    fn len(&self, index: u64) -> u32 {
        self.log.get(index).map_or(0, |item| self.item_len(item))
    }

    fn read(&mut self, _now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let new = self.chosen.filter(|_| index == self.log.end);
        if let Some(item) = new {
            self.chosen = None;
            self.note_sent(item);
        }
        let Some(item) = self.log.get(index) else { return 0 };
        let start = out.len();
        self.write(item, out).unwrap_or_else(|error| {
            self.failed.get_or_insert(error.reason);
            // The packet is never sent: the sender checks `failed` first.
            out.truncate(start);
            self.item_len(item)
        })
    }

    fn completed(&self, _count: u64) -> Option<u64> {
        Some(self.announcement.len(Part::Content))
    }
}
