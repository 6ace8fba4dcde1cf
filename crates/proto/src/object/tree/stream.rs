//! Packets of an object over TRAM: announcements, and of each part the symbols that somebody lacks.

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

/// The first byte of a packet with an announcement. Others begin with the name of a symbol, whose first byte is 1.
pub(super) const ANNOUNCEMENT: u8 = 2;

/// Bytes of an announcement, with that one.
const ANNOUNCEMENT_BYTES: u32 = 1 + 104;

/// While content grows and is being sent it is announced so often, and no more often to those who come late.
const GROWTH_INTERVAL: Duration = Duration::from_secs(1);

/// After how many symbols the supply is told again where content is asked for.
const EXPECTED_SYMBOLS: u64 = 64;

pub(super) struct ObjectStream {
    pub(super) supply: Box<dyn Supply>,
    pub(super) announcement: Announcement,
    layout: Layout,
    log: Log,
    /// Symbols that are to be sent, and those that ever were. Where they lie in too many places those between the
    /// nearest count too.
    needed: RangeSet,
    sent: RangeSet,
    position: Place,
    begun: bool,
    /// Something is to be announced; when growth last was, and when it was last done for a late receiver.
    news: bool,
    growth_told: Time,
    repeated: Time,
    /// Since it was announced that nothing was left nothing has been sent.
    told_exhausted: bool,
    pub(super) symbols: u64,
    chosen: Option<Item>,
    /// Up to where content was read ahead.
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
            // Nobody can have it.
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

    /// Content may be sent from now on.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Whether nothing is left to send but the end of what grows.
    pub(super) fn is_exhausted(&self) -> bool {
        self.told_exhausted && self.chosen.is_none()
    }

    /// Number of packets that have left, repairs aside.
    pub(super) const fn packets(&self) -> u64 {
        self.log.end
    }

    /// A receiver has come that no earlier announcement will reach.
    pub(super) fn announce_again(&mut self, now: Time) {
        if now.since(self.repeated) >= GROWTH_INTERVAL {
            (self.news, self.repeated) = (true, now);
        }
    }

    /// Learns what the digests hash to, once the supply knows.
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

    /// Learns how much there is by now of content that grows. Returns whether that is news.
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

    /// What is wanted of what a receiver lacks and nothing brings to it that is sent already or will be: symbols that
    /// were sent before are sent again as far as `again` allows, the first ones first.
    pub(super) fn want(&mut self, lacks: &Lacks, again: impl FnOnce(u64) -> u64) {
        let mut wanted = RangeSet::default();
        for part in [Part::Manifest, Part::Content, Part::Digests] {
            let all = places(&self.layout, part);
            // Of what is not known yet all is sent anyway.
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
            // A manifest that is sent again for a late receiver leaves the place in the content.
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

    /// Reads ahead where content is read in another place than before.
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
    /// Whoever lacks something may still ask for it: when all have it is not for the stream to say.
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
            // It never leaves: whoever sends it looks at `failed` first.
            out.truncate(start);
            self.item_len(item)
        })
    }

    fn completed(&self, _count: u64) -> Option<u64> {
        Some(self.announcement.len(Part::Content))
    }
}
