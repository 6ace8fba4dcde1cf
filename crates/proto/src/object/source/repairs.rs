//! Requests for single blocks until they are answered, and history of sent repairs.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use faircast_base::{BadInput, Checked, Duration, Time};

use crate::object::layout::{BlockId, PARITY_SYMBOLS};
use crate::object::wire::Entry;

/// Most blocks under repair. Receivers repeat requests that do not fit.
pub(super) const REPAIRS_MAX: usize = 1 << 16;

const HISTORY_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    due: Time,
    /// Source symbols that any receiver lacks.
    union: u64,
    /// Most symbols that one receiver lacks.
    most: u32,
    promised: bool,
    confirmed: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    at: Time,
    source: u64,
    parity: u32,
    /// First parity symbol that was never sent.
    fresh: u32,
    /// Source symbols that were ever sent in answer to a request.
    ever: u64,
}

#[derive(Clone, Copy, Debug)]
struct Serving {
    block_id: BlockId,
    source: u64,
    parity: u32,
}

/// Blocks to repair, each once, in the order of their due times.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    waiting: BTreeMap<BlockId, Waiting>,
    pub(super) waiting_symbols: u32,
    order: BTreeSet<(Time, BlockId)>,
    serving: Option<Serving>,
    sent: BTreeMap<BlockId, Answered>,
    sent_order: VecDeque<BlockId>,
    parity: bool,
    /// Parity symbols that every block got in the sweep.
    swept: u32,
}

impl Repairs {
    pub(super) fn new(parity: bool, swept: u32) -> Self {
        Self { parity, swept, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.serving.is_none()
    }

    /// Takes a request for the source symbols `missing` of a block, due at `due` at the latest.
    /// Symbols sent less than `crossing` ago may be on their way. If `crowded`, parity repairs
    /// other receivers too. Returns the confirmation, unless sent within `interval`.
    pub(super) fn ask(
        &mut self,
        block_id: BlockId,
        missing: u64,
        (now, due): (Time, Time),
        (crossing, interval): (Duration, Duration),
        crowded: bool,
    ) -> Checked<Option<Entry>> {
        let missing = self.beyond_sent(block_id, missing, now, crossing);
        let most = missing.count_ones();
        if most == 0 {
            return Ok(None);
        }
        let fresh = self.sent.get(&block_id).map_or(self.swept, |sent| sent.fresh);
        if self.waiting.len() >= REPAIRS_MAX && !self.waiting.contains_key(&block_id) {
            return Err(BadInput::TableFull);
        }
        let waiting = self.waiting.entry(block_id).or_insert_with(|| {
            self.order.insert((due, block_id));
            Waiting { due, union: 0, most: 0, promised: false, confirmed: None }
        });
        let grown = missing & !waiting.union != 0 || most > waiting.most;
        self.waiting_symbols += (missing & !waiting.union).count_ones();
        waiting.union |= missing;
        waiting.most = waiting.most.max(most);
        let room = fresh + waiting.most <= PARITY_SYMBOLS;
        let several = waiting.union.count_ones() > waiting.most;
        waiting.promised = self.parity && room && (several || crowded || waiting.promised);
        let recent = waiting.confirmed.is_some_and(|at| now.since(at) < interval);
        if recent && !grown {
            return Ok(None);
        }
        waiting.confirmed = Some(now);
        let (missing, any) = match waiting.promised {
            true => (u64::MAX >> (64 - waiting.most), true),
            false => (waiting.union, false),
        };
        Ok(Some(Entry::Block { block_id, missing, any }))
    }

    fn beyond_sent(&self, block_id: BlockId, missing: u64, now: Time, crossing: Duration) -> u64 {
        let mut missing = missing;
        let mut parity = 0;
        if let Some(serving) = self.serving.filter(|serving| serving.block_id == block_id) {
            missing &= !serving.source;
            parity += serving.parity;
        }
        if let Some(sent) = self.sent.get(&block_id).filter(|sent| now.since(sent.at) < crossing) {
            missing &= !sent.source;
            parity += sent.parity;
        }
        for _ in 0..parity.min(missing.count_ones()) {
            // Highest bit first, as receivers do for parity that they hold.
            missing ^= 1 << missing.ilog2();
        }
        missing
    }

    pub(super) fn next(&mut self, now: Time) -> Option<(BlockId, u32)> {
        if self.serving.is_none() {
            self.begin(now);
        }
        let serving = self.serving?;
        if serving.parity > 0 {
            let fresh = self.sent.get(&serving.block_id).map_or(self.swept, |sent| sent.fresh);
            return Some((serving.block_id, 64 + fresh));
        }
        Some((serving.block_id, serving.source.trailing_zeros()))
    }

    fn begin(&mut self, now: Time) {
        let Some(&(due, block_id)) = self.order.first().filter(|(due, _)| *due <= now) else {
            return;
        };
        self.order.remove(&(due, block_id));
        let Some(waiting) = self.waiting.remove(&block_id) else { return };
        self.waiting_symbols -= waiting.union.count_ones();
        if !self.sent.contains_key(&block_id) {
            while self.sent.len() >= HISTORY_MAX
                && let Some(oldest) = self.sent_order.pop_front()
            {
                self.sent.remove(&oldest);
            }
            self.sent_order.push_back(block_id);
        }
        let fresh = Answered { fresh: self.swept, ..Answered::default() };
        let sent = self.sent.entry(block_id).or_insert(fresh);
        (sent.source, sent.parity) = (0, 0);
        let room = sent.fresh + waiting.most <= PARITY_SYMBOLS;
        let fewer = waiting.most < waiting.union.count_ones() || waiting.promised;
        self.serving = Some(match self.parity && room && fewer {
            true => Serving { block_id, source: 0, parity: waiting.most },
            false => Serving { block_id, source: waiting.union, parity: 0 },
        });
    }

    /// Notes that the next symbol was sent. Returns true if it answers a repeated request.
    pub(super) fn on_sent(&mut self, now: Time) -> bool {
        let Some(serving) = &mut self.serving else { return false };
        let Some(sent) = self.sent.get_mut(&serving.block_id) else { return false };
        sent.at = now;
        let again;
        if serving.parity > 0 {
            again = sent.ever != 0;
            serving.parity -= 1;
            sent.parity += 1;
            sent.fresh += 1;
        } else {
            let bit = serving.source & serving.source.wrapping_neg();
            again = sent.ever & bit != 0;
            serving.source ^= bit;
            sent.source |= bit;
            sent.ever |= bit;
        }
        if serving.parity == 0 && serving.source == 0 {
            self.serving = None;
        }
        again
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.order.first().map(|&(due, _)| due)
    }

    pub(super) fn forget(&mut self, block_id: BlockId) {
        if let Some(waiting) = self.waiting.remove(&block_id) {
            self.waiting_symbols -= waiting.union.count_ones();
            self.order.remove(&(waiting.due, block_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;
    use alloc::vec::Vec;

    const RTT: Duration = Duration::from_millis(50);

    fn ask(repairs: &mut Repairs, now: u64, missing: u64) -> Option<(u64, bool)> {
        let moments = (at(now), at(now) + RTT);
        let spans = (RTT, Duration::from_millis(5));
        let entry = repairs.ask(7, missing, moments, spans, false).unwrap()?;
        let Entry::Block { missing, any, .. } = entry else { unreachable!("{entry:?}") };
        Some((missing, any))
    }

    fn served(repairs: &mut Repairs, now: u64) -> Vec<u32> {
        let mut symbols = Vec::new();
        while let Some((_, symbol)) = repairs.next(at(now)) {
            symbols.push(symbol);
            repairs.on_sent(at(now));
        }
        symbols
    }

    #[test]
    fn one_receiver_gets_what_it_lacks_and_several_get_parity() {
        let repairs = &mut Repairs::new(true, 0);
        assert_eq!(ask(repairs, 0, 0b101), Some((0b101, false)));
        assert_eq!(served(repairs, 49), []);
        assert_eq!(served(repairs, 50), [0, 2]);
        assert_eq!(ask(repairs, 200, 0b101), Some((0b101, false)));
        assert_eq!(ask(repairs, 203, 0b010), Some((0b11, true)));
        assert_eq!(served(repairs, 250), [64, 65]);
        ask(repairs, 400, 0b001);
        ask(repairs, 400, 0b010);
        assert_eq!(served(repairs, 500), [66], "parity is fresh each time");
    }

    #[test]
    fn those_who_lack_the_same_get_it_once_and_without_parity() {
        let repairs = &mut Repairs::new(true, 0);
        ask(repairs, 0, 0b110);
        assert_eq!(ask(repairs, 1, 0b110), None, "confirmed a moment ago");
        assert!(ask(repairs, 20, 0b110).is_some(), "but that was long ago");
        assert_eq!(served(repairs, 60), [1, 2]);
        let repairs = &mut Repairs::new(false, 0);
        ask(repairs, 0, 0b110);
        ask(repairs, 0, 0b001);
        assert_eq!(served(repairs, 60), [0, 1, 2], "without parity all that anybody lacks");
    }

    #[test]
    fn a_request_that_crosses_its_repair_counts_only_for_what_goes_beyond() {
        let repairs = &mut Repairs::new(true, 0);
        ask(repairs, 0, 0b0011);
        served(repairs, 50);
        assert_eq!(ask(repairs, 99, 0b0011), None);
        assert_eq!(ask(repairs, 99, 0b0111), Some((0b0100, false)));
        assert_eq!(served(repairs, 149), [2]);
        ask(repairs, 300, 0b01);
        ask(repairs, 300, 0b10);
        assert_eq!(served(repairs, 350), [64]);
        assert_eq!(ask(repairs, 360, 0b10), None, "one parity symbol is on its way");
        assert_eq!(ask(repairs, 360, 0b11), Some((0b01, false)));
        assert!(ask(repairs, 500, 0b11).is_some(), "what did not come is asked for again");
    }

    #[test]
    fn where_parity_is_used_up_source_symbols_serve() {
        let repairs = &mut Repairs::new(true, 60);
        ask(repairs, 0, 0b0111);
        ask(repairs, 0, 0b1100);
        assert_eq!(repairs.waiting_symbols, 4);
        assert_eq!(served(repairs, 50), [124, 125, 126]);
        assert_eq!(repairs.waiting_symbols, 0);
        ask(repairs, 200, 0b0011);
        ask(repairs, 200, 0b1100);
        assert_eq!(served(repairs, 250), [0, 1, 2, 3]);
    }

    #[test]
    fn a_flood_fills_the_tables_and_no_more() {
        let repairs = &mut Repairs::new(true, 0);
        let moments = (at(0), at(0));
        let mut refused = 0;
        for block_id in 0..REPAIRS_MAX as u64 + 10 {
            let answer = repairs.ask(block_id, 1, moments, (RTT, RTT), true);
            refused += u32::from(answer.is_err());
        }
        assert_eq!(refused, 10);
        assert_eq!(served(repairs, 1).len(), REPAIRS_MAX);
        assert_eq!((repairs.waiting.len(), repairs.order.len()), (0, 0));
        assert_eq!((repairs.sent.len(), repairs.sent_order.len()), (HISTORY_MAX, HISTORY_MAX));
        ask(repairs, 100, 1);
        repairs.forget(7);
        assert!(repairs.is_empty() && repairs.next_due().is_none());
    }
}
