//! Packets of an object over TRAM: announcements, and the requested symbols of each part.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::log::{Item, Log};
use super::words::Lacks;
use crate::content::Packets;
use crate::object::layout::{SymbolId, block_and_symbol, part_of};
use crate::object::offer::Offer;
use crate::object::planner::Planner;
use crate::object::wire::{Notice, SYMBOL_HEADER, SymbolName};
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
    /// Items of all sent packets.
    log: Log,
    announcements: Announcements,
    /// Number of packets with symbols.
    pub(super) symbols: u64,
    /// Item of the next packet, kept until its permit.
    chosen: Option<Item>,
    /// One past the last symbol that the supply was told to expect.
    expected_end: SymbolId,
}

/// Announcements in the stream: the first, at each change, and when nothing is left to send.
#[derive(Debug)]
struct Announcements {
    is_due: bool,
    grown_at: Time,
    /// Time of the last repetition for a late receiver.
    repeated_at: Time,
    /// True if nothing was sent or requested since the announcement that nothing is left.
    is_exhaustion_sent: bool,
}

impl ObjectStream {
    pub(super) fn new(supply: Box<dyn Supply>, symbol_bytes: u16) -> Self {
        let offer = Offer::new(supply, symbol_bytes);
        let mut planner = Planner::of_symbols();
        planner.insert(offer.layout.symbol_ids(Part::Manifest));
        if offer.announcement.growing {
            // No receiver can have growing content already.
            planner.insert(offer.layout.symbol_ids(Part::Content));
        }
        Self {
            offer,
            planner,
            log: Log::default(),
            announcements: Announcements {
                is_due: true,
                grown_at: Time::ZERO,
                repeated_at: Time::ZERO,
                is_exhaustion_sent: false,
            },
            symbols: 0,
            chosen: None,
            expected_end: 0,
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.announcements.is_exhaustion_sent && self.chosen.is_none()
    }

    pub(super) const fn packets(&self) -> u64 {
        self.log.end
    }

    pub(super) fn announce_again(&mut self, now: Time) {
        let Announcements { is_due, repeated_at, .. } = &mut self.announcements;
        if now.since(*repeated_at) >= ANNOUNCEMENT_INTERVAL {
            (*is_due, *repeated_at) = (true, now);
        }
    }

    pub(super) fn poll_digests(&mut self) {
        if self.offer.poll_digests() {
            self.planner.insert(self.offer.layout.symbol_ids(Part::Digests));
            self.announcements.is_due = true;
        }
    }

    pub(super) fn poll_growth(&mut self, now: Time) -> bool {
        let known_end = self.offer.layout.symbol_ids(Part::Content).end;
        let busy = self.planner.has_requests() && self.offer.begun;
        let recent = now.since(self.announcements.grown_at) < ANNOUNCEMENT_INTERVAL;
        if !self.offer.poll_growth(|grown| !(busy && grown.growing && recent)) {
            return false;
        }
        self.planner.insert(known_end..self.offer.layout.symbol_ids(Part::Content).end);
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
            let notice = Notice {
                announcement: offer.announcement,
                parity: false,
                begun: offer.begun,
                exhausted,
                status_interval: Duration::ZERO,
                position: None,
                epoch: 0,
            };
            out.push(ANNOUNCEMENT);
            out.extend_from_slice(&notice.encode());
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
