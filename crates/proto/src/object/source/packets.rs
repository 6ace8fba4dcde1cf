//! Packets of an object's source over PGM: blocks of the sweep and repairs, in turns.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{Duration, Time};

use super::repairs::Repairs;
use crate::keep_last;
use crate::object::fec::ParitySource;
use crate::object::layout::{self, BLOCK_ID_END, BLOCK_SYMBOLS, BlockId, part_of};
use crate::object::offer::Offer;
use crate::object::planner::Planner;
use crate::object::wire::{Notice, SYMBOL_HEADER, SymbolName};
use crate::object::{Fec, ObjectResult, PacketCounts, Part, Supply};
use crate::pgm::wire::{Encoder, OptionType};

/// Packets below full length whose lengths are remembered for acknowledgements.
const SHORT_PACKETS_MAX: usize = 64;

pub(super) struct ObjectPackets {
    pub(super) offer: Offer,
    pub(super) planner: Planner,
    pub(super) repairs: Repairs,
    parity_allowed: bool,
    pub(super) status_interval: Duration,
    position: Option<BlockId>,
    pub(super) epoch: u32,
    block_in_sweep: Option<BlockInSweep>,
    pub(super) recent_sweep: RecentSweep,
    /// Parity symbols sent with each swept block, as a share of its source symbols.
    proactive_share: f64,
    parity: ParitySource,
    /// Symbol of the next packet, kept until its permit.
    pub(super) chosen: Option<SymbolName>,
    is_repair_turn: bool,
    short_packets: VecDeque<(u64, u32)>,
    pub(super) payload_bytes: u64,
    pub(super) sent: PacketCounts,
}

#[derive(Clone, Copy, Debug)]
struct BlockInSweep {
    block_id: BlockId,
    sent: u32,
    source_symbols: u32,
    parity_symbols: u32,
}

impl ObjectPackets {
    pub(super) fn new(
        supply: Box<dyn Supply>,
        symbol_bytes: u16,
        fec: Fec,
        status_interval: Duration,
    ) -> Self {
        let proactive_share = match fec {
            Fec::Ratio(share) if share > 0.0 => share.min(1.0),
            _ => 0.0,
        };
        // At most 64 for each block.
        let most = (proactive_share * f64::from(BLOCK_SYMBOLS) + 0.999) as u32;
        let parity_allowed = fec != Fec::Off;
        Self {
            offer: Offer::new(supply, symbol_bytes),
            planner: Planner::new(1),
            repairs: Repairs::new(parity_allowed, most),
            parity_allowed,
            status_interval,
            position: None,
            epoch: 0,
            block_in_sweep: None,
            recent_sweep: RecentSweep::default(),
            proactive_share,
            parity: ParitySource::default(),
            chosen: None,
            is_repair_turn: true,
            short_packets: VecDeque::new(),
            payload_bytes: 0,
            sent: PacketCounts::default(),
        }
    }

    /// Adds existing `blocks` to the sweep, except blocks that left less than `crossing` ago.
    pub(super) fn request_run(&mut self, blocks: Range<BlockId>, now: Time, crossing: Duration) {
        // A receiver that missed the sent part of the block in the sweep requests that part.
        let in_sweep = self.block_in_sweep.map(|sweep| sweep.block_id..sweep.block_id + 1);
        let under_way = self.recent_sweep.within(now, crossing).chain(in_sweep);
        let first = self.planner.requested.is_empty();
        self.planner.request([blocks], under_way, |repeats| repeats);
        let content = layout::block_id(Part::Content, 0);
        if first && let Some(next) = self.planner.requested.first_from(content) {
            self.offer.supply.expect(self.offer.layout.start(next.min(BLOCK_ID_END - 1)));
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.chosen.is_none()
            && self.block_in_sweep.is_none()
            && self.repairs.is_empty()
            && self.planner.next(&self.offer).is_none()
    }

    /// Chooses the next symbol until it is written. Returns payload bytes, and true for a repair.
    pub(super) fn choose(&mut self, now: Time) -> Option<(u32, bool)> {
        if self.chosen.is_none() && self.offer.failed.is_none() {
            self.chosen = self.next_symbol(now);
        }
        self.chosen.map(|name| (self.payload_len(name), name.repair))
    }

    pub(super) fn len(&self, index: u64) -> u32 {
        let short = self.short_packets.iter().find(|(short, _)| *short == index);
        short.map_or(self.full_len(), |&(_, len)| len)
    }

    /// Appends the chosen symbol, packet `index`, to `out`. Returns the zero bytes after it.
    pub(super) fn write(&mut self, now: Time, index: u64, out: &mut Vec<u8>) -> u32 {
        let name =
            self.chosen.take().expect("only what is chosen leaves, and nothing leaves twice");
        let len = self.payload_len(name);
        let parity = &mut self.parity;
        // The control counts on this packet even if the supply fails.
        let zeros = self.offer.write_payload(len, out, |offer, out| {
            out.extend_from_slice(&name.encode());
            write_symbol(offer, parity, name, out)
        });
        self.on_sent(now, index, name, len);
        zeros
    }

    pub(super) fn announce(&self, encoder: &mut Encoder<'_>) {
        let notice = Notice {
            parity: self.parity_allowed,
            status_interval: self.status_interval,
            position: self.position,
            epoch: self.epoch,
            ..self.offer.notice(self.is_exhausted())
        };
        encoder.raw_option(OptionType::OBJECT, 0, &notice.encode());
    }

    fn next_symbol(&mut self, now: Time) -> Option<SymbolName> {
        let repair = self.repairs.next(now);
        let swept = self.next_of_sweep(now);
        let use_repair = repair.is_some() && (self.is_repair_turn || swept.is_none());
        let (block_id, symbol) = if use_repair { repair? } else { swept? };
        self.is_repair_turn = !use_repair;
        Some(SymbolName { block_id, symbol, repair: use_repair })
    }

    fn next_of_sweep(&mut self, now: Time) -> Option<(BlockId, u32)> {
        if self.block_in_sweep.is_none() {
            let block_id = self.planner.next(&self.offer)?;
            self.planner.on_sent(block_id);
            self.repairs.forget(block_id);
            self.recent_sweep.note(now, block_id);
            if part_of(block_id) != Part::Manifest {
                self.position = Some(block_id);
            }
            let source_symbols = self.offer.layout.symbols(block_id);
            let share = self.proactive_share * f64::from(source_symbols);
            let parity_symbols = share as u32 + u32::from(share > f64::from(share as u32));
            self.block_in_sweep =
                Some(BlockInSweep { block_id, sent: 0, source_symbols, parity_symbols });
        }
        let sweep = self.block_in_sweep?;
        let symbol = match sweep.sent.checked_sub(sweep.source_symbols) {
            None => sweep.sent,
            Some(parity) => BLOCK_SYMBOLS + parity,
        };
        Some((sweep.block_id, symbol))
    }

    fn payload_len(&self, name: SymbolName) -> u32 {
        SYMBOL_HEADER as u32 + self.offer.layout.symbol_len(name.block_id, name.symbol)
    }

    fn on_sent(&mut self, now: Time, index: u64, name: SymbolName, len: u32) {
        if name.repair {
            let again = self.repairs.on_sent(now) || self.planner.sent.contains(name.block_id);
            self.sent.repairs += u64::from(again);
        } else if let Some(sweep) = &mut self.block_in_sweep {
            sweep.sent += 1;
            if sweep.sent == sweep.source_symbols + sweep.parity_symbols {
                self.block_in_sweep = None;
            }
        }
        if name.symbol < BLOCK_SYMBOLS {
            self.sent.symbols += 1;
        } else {
            self.sent.parity += 1;
        }
        if len < self.full_len() {
            keep_last(&mut self.short_packets, SHORT_PACKETS_MAX, (index, len));
        }
        self.payload_bytes += u64::from(len);
    }

    fn full_len(&self) -> u32 {
        SYMBOL_HEADER as u32 + self.offer.layout.symbol_bytes
    }
}

fn write_symbol(
    offer: &mut Offer,
    parity: &mut ParitySource,
    SymbolName { block_id, symbol, .. }: SymbolName,
    out: &mut Vec<u8>,
) -> ObjectResult<u32> {
    if symbol < BLOCK_SYMBOLS {
        return offer.read_symbol(block_id, symbol, out);
    }
    let size = (offer.layout.symbols(block_id), offer.layout.symbol_bytes);
    let read = |out: &mut Vec<u8>| offer.read_block(block_id, out);
    parity.write(block_id, symbol - BLOCK_SYMBOLS, size, out, read)
}

/// Time for which swept blocks are remembered: longest round trip in a report.
const SWEEP_KEPT: Duration = Duration::from_secs(64);

/// Most entries. Adjacent blocks swept within [`SWEPT_TOGETHER`] share one.
const SWEEP_ENTRIES_MAX: usize = 8192;

const SWEPT_TOGETHER: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(super) struct RecentSweep {
    runs: VecDeque<(Time, Range<BlockId>)>,
}

impl RecentSweep {
    fn note(&mut self, now: Time, block_id: BlockId) {
        while self.runs.len() >= SWEEP_ENTRIES_MAX
            || self.runs.front().is_some_and(|(at, _)| now.since(*at) >= SWEEP_KEPT)
        {
            self.runs.pop_front();
        }
        match self.runs.back_mut() {
            Some((at, run)) if run.end == block_id && now.since(*at) < SWEPT_TOGETHER => {
                run.end = block_id + 1;
            }
            _ => self.runs.push_back((now, block_id..block_id + 1)),
        }
    }

    /// Returns the runs whose sweep began less than `span` ago.
    fn within(&self, now: Time, span: Duration) -> impl Iterator<Item = Range<BlockId>> {
        let late = self.runs.iter().rev().take_while(move |(at, _)| now.since(*at) < span);
        late.map(|(_, run)| run.clone())
    }

    pub(super) fn has(&self, block_id: BlockId, now: Time, span: Duration) -> bool {
        self.within(now, span).any(|run| run.contains(&block_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};
    use alloc::vec::Vec;

    #[test]
    fn blocks_of_one_millisecond_share_an_entry_and_old_ones_go() {
        let mut recent = RecentSweep::default();
        let nanos = |nanos| at(0) + Duration::from_nanos(nanos);
        for (now, block_id) in [(nanos(0), 5), (nanos(999_999), 6), (at(1), 7), (at(1), 9)] {
            recent.note(now, block_id);
        }
        let within = |now, span| recent.within(now, span).collect::<Vec<_>>();
        assert_eq!(within(at(1), ms(2)), [9..10, 7..8, 5..7]);
        assert_eq!(within(at(1), ms(1)), [9..10, 7..8]);
        assert!(recent.has(6, at(1), ms(2)) && !recent.has(6, at(1), ms(1)));
        assert!(!recent.has(8, at(1), ms(2)));
        for block_id in 0..2 * SWEEP_ENTRIES_MAX as u64 {
            recent.note(at(2), 10 * block_id);
        }
        assert_eq!(recent.runs.len(), SWEEP_ENTRIES_MAX);
        recent.note(at(2) + SWEEP_KEPT, 3);
        assert_eq!(recent.runs.len(), 1);
    }
}
