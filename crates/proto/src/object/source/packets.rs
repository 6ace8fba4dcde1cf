//! Packet order of a transfer's source: the sweep through requested blocks, and repairs.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{Duration, Time};

use super::repairs::Repairs;
use crate::keep_last;
use crate::object::fec::ParitySource;
use crate::object::layout::{self, BLOCK_SYMBOLS, KEY_END, Key, Layout, part_of};
use crate::object::wire::{Notice, SYMBOL_HEADER, SymbolName};
use crate::object::{Announcement, ObjectError, ObjectResult, Part, Supply};
use crate::pgm::wire::{Encoder, OptionType};
use crate::ranges::RangeSet;

/// Most waiting runs of blocks. Beyond that the nearest runs are joined.
pub(in crate::object) const RUNS_MAX: usize = 4096;

/// Time for which swept blocks are remembered: longest round trip in a report.
const SWEPT_KEPT: Duration = Duration::from_secs(64);

/// Most remembered sweeps; blocks swept within 1 ms share an entry.
const SWEPT_MAX: usize = 8192;

/// Packets below full length whose lengths are remembered for acknowledgements.
const SHORT_MAX: usize = 64;

pub(super) struct ObjectPackets {
    pub(super) supply: Box<dyn Supply>,
    pub(super) layout: Layout,
    pub(super) notice: Notice,
    pub(super) repairs: Repairs,
    pub(super) runs: RangeSet,
    sweep: Option<Sweep>,
    position: Key,
    /// Parity symbols sent with each swept block, as a share of its source symbols.
    proactive: f64,
    parity: ParitySource,
    pub(super) chosen: Option<SymbolName>,
    repair_turn: bool,
    /// Blocks ever swept. Beyond [`RUNS_MAX`] ranges, blocks between the nearest ranges count too.
    swept_once: RangeSet,
    swept: VecDeque<(Time, Range<Key>)>,
    /// Packets below full length with their payload lengths, latest last.
    short: VecDeque<(u64, u32)>,
    pub(super) bytes: u64,
    pub(super) failed: Option<String>,
    pub(super) sent: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) symbols: u64,
    pub(super) parity: u64,
    pub(super) repairs: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sweep {
    key: Key,
    next: u32,
    source: u32,
    parity: u32,
}

impl ObjectPackets {
    pub(super) fn new(
        supply: Box<dyn Supply>,
        layout: Layout,
        notice: Notice,
        proactive: f64,
    ) -> Self {
        // At most 64 for each block.
        let most = (proactive * f64::from(BLOCK_SYMBOLS) + 0.999) as u32;
        fresh! {
            Self {
                supply,
                layout,
                repairs: Repairs::new(notice.parity, most),
                notice,
                proactive,
                repair_turn: true,
            }
            runs, sweep, position, parity, chosen, swept_once, swept, short, bytes, failed, sent
        }
    }

    pub(super) fn poll_digests(&mut self) -> bool {
        if self.notice.announcement.digests.is_some() || self.failed.is_some() {
            return false;
        }
        match self.supply.digests() {
            // Digests of content that ended since the last look are announced with its length.
            Ok(_) if self.notice.announcement.growing => {}
            Ok(digests) => self.notice.announcement.digests = digests,
            Err(error) => self.fail(error),
        }
        self.notice.announcement.digests.is_some()
    }

    pub(super) fn poll_growth(&mut self) -> bool {
        let known = self.notice.announcement;
        if !known.growing || self.failed.is_some() {
            return false;
        }
        let announcement = announcement(self.supply.as_ref(), known.symbol_bytes);
        let Some(layout) = Layout::new(&announcement) else {
            self.failed = Some(TOO_LONG.to_string());
            return false;
        };
        self.layout = layout;
        self.notice.announcement = announcement;
        announcement != known
    }

    fn fail(&mut self, error: ObjectError) {
        self.failed.get_or_insert(error.reason);
    }

    pub(super) fn close(&mut self) {
        self.chosen = None;
    }

    pub(super) fn may_send(&self, part: Part) -> bool {
        match part {
            Part::Manifest => true,
            Part::Content => self.notice.begun,
            Part::Digests => self.notice.begun && self.notice.announcement.digests.is_some(),
        }
    }

    /// Adds existing `blocks` to the sweep, except blocks that left less than `crossing` ago.
    pub(super) fn want_run(&mut self, blocks: Range<Key>, now: Time, crossing: Duration) {
        let mut wanted = RangeSet::default();
        wanted.insert(blocks);
        for swept in self.swept_within(now, crossing) {
            wanted.remove(swept.clone());
        }
        if let Some(sweep) = self.sweep {
            // A receiver that missed the sent part of this block requests that part.
            wanted.remove(sweep.key..sweep.key + 1);
        }
        let first = self.runs.is_empty();
        for range in wanted.iter() {
            self.runs.insert(range);
        }
        self.runs.limit(RUNS_MAX);
        if first && let Some(next) = self.runs.first_from(layout::key(Part::Content, 0)) {
            self.supply.expect(self.layout.start(next.min(KEY_END - 1)));
        }
    }

    fn swept_within(&self, now: Time, span: Duration) -> impl Iterator<Item = &Range<Key>> {
        let late = self.swept.iter().rev().take_while(move |(at, _)| now.since(*at) < span);
        late.map(|(_, blocks)| blocks)
    }

    pub(super) fn was_swept(&self, key: Key, now: Time, span: Duration) -> bool {
        self.swept_within(now, span).any(|blocks| blocks.contains(&key))
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.chosen.is_none()
            && self.sweep.is_none()
            && self.repairs.is_empty()
            && self.next_run().is_none()
    }

    /// Returns the next block of the sweep; receivers need the manifest first.
    fn next_run(&self) -> Option<Key> {
        let allowed = |key: &Key| self.may_send(part_of(*key));
        let manifest = self.runs.first_from(0).filter(|key| part_of(*key) == Part::Manifest);
        manifest
            .or_else(|| self.next_from(self.position))
            .or_else(|| self.next_from(0))
            .filter(allowed)
    }

    fn next_from(&self, from: Key) -> Option<Key> {
        let found = self.runs.first_from(from)?;
        if self.may_send(part_of(found)) {
            return Some(found);
        }
        let next_part = (found >> 32) + 1;
        let found = self.runs.first_from(next_part << 32)?;
        self.may_send(part_of(found)).then_some(found)
    }

    /// Chooses the next symbol until it is written. Returns payload bytes, and true for a repair.
    pub(super) fn choose(&mut self, now: Time) -> Option<(u32, bool)> {
        if self.chosen.is_none() && self.failed.is_none() {
            self.chosen = self.next_symbol(now);
        }
        self.chosen.map(|name| (self.payload_len(name), name.repair))
    }

    pub(super) fn len(&self, index: u64) -> u32 {
        let short = self.short.iter().find(|(short, _)| *short == index);
        short.map_or(self.full_len(), |&(_, len)| len)
    }

    /// Appends the chosen symbol, packet `index`, to `out`. Returns the zero bytes after it.
    pub(super) fn write(&mut self, now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let name =
            self.chosen.take().expect("only what is chosen leaves, and nothing leaves twice");
        let len = self.payload_len(name);
        let start = out.len();
        out.extend_from_slice(&name.encode());
        let zeros = self.write_symbol(name, out).unwrap_or_else(|error| {
            // The control counts on this packet. No receiver takes zeros for a symbol.
            self.fail(error);
            out.truncate(start);
            len
        });
        self.advance(now, index, name, len);
        zeros
    }

    pub(super) fn announce(&self, encoder: &mut Encoder<'_>) {
        let notice = Notice { exhausted: self.is_exhausted(), ..self.notice };
        encoder.raw_option(OptionType::OBJECT, 0, &notice.encode());
    }

    fn next_symbol(&mut self, now: Time) -> Option<SymbolName> {
        let repair = self.repairs.next(now);
        let swept = self.next_swept(now);
        let use_repair = repair.is_some() && (self.repair_turn || swept.is_none());
        let (key, symbol) = if use_repair { repair? } else { swept? };
        self.repair_turn = !use_repair;
        Some(SymbolName { key, symbol, repair: use_repair })
    }

    fn next_swept(&mut self, now: Time) -> Option<(Key, u32)> {
        if self.sweep.is_none() {
            let key = self.next_run()?;
            self.runs.remove(key..key + 1);
            self.repairs.forget(key);
            let source = self.layout.symbols(key);
            let share = self.proactive * f64::from(source);
            let parity = share as u32 + u32::from(share > f64::from(share as u32));
            if part_of(key) != Part::Manifest {
                self.position = key;
                self.notice.position = Some(key);
            }
            self.note_swept(now, key);
            self.sweep = Some(Sweep { key, next: 0, source, parity });
        }
        let sweep = self.sweep?;
        let symbol = match sweep.next.checked_sub(sweep.source) {
            None => sweep.next,
            Some(parity) => BLOCK_SYMBOLS + parity,
        };
        Some((sweep.key, symbol))
    }

    fn note_swept(&mut self, now: Time, key: Key) {
        self.swept_once.insert(key..key + 1);
        self.swept_once.limit(RUNS_MAX);
        while self.swept.len() >= SWEPT_MAX
            || self.swept.front().is_some_and(|(at, _)| now.since(*at) >= SWEPT_KEPT)
        {
            self.swept.pop_front();
        }
        match self.swept.back_mut() {
            Some((at, blocks))
                if blocks.end == key && now.since(*at) < Duration::from_millis(1) =>
            {
                blocks.end = key + 1;
            }
            _ => self.swept.push_back((now, key..key + 1)),
        }
    }

    fn payload_len(&self, name: SymbolName) -> u32 {
        SYMBOL_HEADER as u32 + self.layout.symbol_len(name.key, name.symbol)
    }

    fn advance(&mut self, now: Time, index: u64, name: SymbolName, len: u32) {
        if name.repair {
            let again = self.repairs.on_sent(now);
            self.sent.repairs += u64::from(again || self.swept_once.contains(name.key));
        } else if let Some(sweep) = &mut self.sweep {
            sweep.next += 1;
            if sweep.next == sweep.source + sweep.parity {
                self.position = self.position.max(sweep.key + 1);
                self.sweep = None;
            }
        }
        if name.symbol < BLOCK_SYMBOLS {
            self.sent.symbols += 1;
        } else {
            self.sent.parity += 1;
        }
        if len < self.full_len() {
            keep_last(&mut self.short, SHORT_MAX, (index, len));
        }
        self.bytes += u64::from(len);
    }

    fn full_len(&self) -> u32 {
        SYMBOL_HEADER as u32 + self.layout.symbol_bytes()
    }

    fn write_symbol(&mut self, name: SymbolName, out: &mut Vec<u8>) -> ObjectResult<u32> {
        let part = part_of(name.key);
        if name.symbol < BLOCK_SYMBOLS {
            let (offset, len) = self.layout.extent(name.key, name.symbol);
            return self.supply.read(part, offset, len, out);
        }
        let (supply, layout) = (&mut self.supply, &self.layout);
        let size = (layout.symbols(name.key), layout.symbol_bytes());
        self.parity.write(name.key, name.symbol - BLOCK_SYMBOLS, size, out, |out| {
            read_block(supply.as_mut(), layout, name.key, out)
        })
    }
}

pub(in crate::object) fn announcement(supply: &dyn Supply, symbol_bytes: u16) -> Announcement {
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

pub(in crate::object) const TOO_LONG: &str =
    "the content has become too long for packets of this size";

fn read_block(
    supply: &mut dyn Supply,
    layout: &Layout,
    key: Key,
    out: &mut Vec<u8>,
) -> ObjectResult<bool> {
    let symbols = layout.symbols(key);
    let (offset, _) = layout.extent(key, 0);
    let (last, last_len) = layout.extent(key, symbols - 1);
    // At most 64 symbols of less than 2^16 bytes.
    let zeros = supply.read(part_of(key), offset, (last - offset) as u32 + last_len, out)?;
    if zeros > 0 {
        return Ok(false);
    }
    out.resize((symbols * layout.symbol_bytes()) as usize, 0);
    Ok(true)
}
