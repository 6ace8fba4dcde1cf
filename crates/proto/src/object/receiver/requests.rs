//! Requests of an object's receiver: which blocks, when, and when again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use faircast_base::{Cx, Duration, Time};

use super::assembly::Want;
use super::blocks::Blocks;
use crate::object::Part;
use crate::object::layout::{BLOCK_ID_END, BlockId, block_id, block_of, part_of};
use crate::object::wire::{ENTRIES_MAX, ENTRIES_PER_OPTION, Entry};
use crate::pgm::PgmFlowSettings;
use crate::pgm::retry_timer::{RequestTimes, RetryTimer};
use crate::pgm::session::REORDER_DELAY;
use crate::pgm::session::naks::Backoff;
use crate::pgm::session::naks::{NakState, Naks};
use crate::ranges::RangeSet;
use crate::timers::{Timers, reasons};

/// Longest run requested block by block, so that requests coincide with those for partial blocks.
const SINGLE_BLOCKS: u64 = 16;

/// Position of the source's sweep in one part, as far as it concerns this receiver.
#[derive(Clone, Copy, Debug)]
struct SweepPosition {
    judged_end: BlockId,
    at: BlockId,
}

impl SweepPosition {
    fn new(at: BlockId) -> Self {
        Self { judged_end: at, at }
    }
}

/// Requests for runs of blocks, until confirmed, and for single blocks, until repaired.
#[derive(Debug, Default)]
pub(super) struct Requests {
    naks: Naks,
    /// Wanted blocks that the source has not confirmed.
    runs: RangeSet,
    timers: Timers<Timer, 2>,
    run_requests: RequestTimes,
    is_run_due: bool,
    pub(super) run_retry: RetryTimer,
    /// True if the source has confirmed the runs, so that its sweep includes them.
    source_has_runs: bool,
    sweeps: [Option<SweepPosition>; 3],
    /// Block up to which all counts as passed at [`Timer::Gaps`].
    suspected: Option<BlockId>,
    /// Blocks passed by the sweep on a reordering path, with the times at which they are overdue.
    passed: VecDeque<(Time, Range<BlockId>)>,
    pub(super) sent: u64,
    unanswered: u32,
}

reasons! {
    enum Timer {
        Runs,
        /// Gaps seen by too few later packets count as missing.
        Gaps,
    }
}

impl Requests {
    pub(super) fn new(settings: &PgmFlowSettings) -> Self {
        Self {
            naks: Naks::without_end(settings),
            run_retry: RetryTimer::new(settings.nak_repeat, settings.nak_backoff),
            sweeps: [None; 3],
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, cx: &mut Cx<'_>, blocks: &Blocks, want: Want) {
        match want {
            Want::Part(part) => self.want(cx, blocks.layout.block_ids(part), false),
            Want::Lacking { fresh } => self.want_lacking(cx, blocks, fresh),
            Want::More(block_ids) if block_ids.is_empty() => {}
            Want::More(block_ids) => {
                // Without a seen symbol of a part, its sweep from here on is for this receiver.
                let begin = SweepPosition::new(block_ids.start);
                self.sweeps[part_of(block_ids.start) as usize].get_or_insert(begin);
                self.runs.insert(block_ids);
                self.plan_runs(cx);
            }
            Want::Nothing => self.clear(),
        }
    }

    /// Requests blocks from the start; `fresh` if nothing of their part has been swept yet.
    pub(super) fn want(&mut self, cx: &mut Cx<'_>, blocks: Range<BlockId>, fresh: bool) {
        if blocks.is_empty() {
            return;
        }
        let part = part_of(blocks.start);
        if fresh {
            self.sweeps[part as usize] = Some(SweepPosition::new(block_id(part, 0)));
        }
        self.source_has_runs = fresh;
        self.runs.insert(blocks);
        self.plan_runs(cx);
    }

    /// Requests everything missing: absent blocks in runs, partly received blocks as overdue ones.
    pub(super) fn want_lacking(&mut self, cx: &mut Cx<'_>, blocks: &Blocks, fresh: bool) {
        for part in [Part::Content, Part::Digests] {
            let block_ids = blocks.layout.block_ids(part);
            for run in blocks.absent.within(block_ids.clone()) {
                self.want(cx, run, fresh);
            }
            let mut backoff = Backoff::new(cx.now);
            for block_id in blocks.partial(block_ids) {
                if !self.naks.has(block_id) {
                    self.naks.back_off(block_id, &mut backoff, cx.rng);
                }
            }
        }
    }

    fn plan_runs(&mut self, cx: &mut Cx<'_>) {
        if !self.timers.is_armed(Timer::Runs) && !self.runs.is_empty() {
            self.run_requests = RequestTimes::default();
            let mut backoff = Backoff::new(cx.now);
            self.timers.arm(Timer::Runs, self.naks.draw_backoff(&mut backoff, cx.rng));
        }
    }

    pub(super) fn on_welcome(&mut self, now: Time) {
        if self.run_requests.count == 0 && self.timers.is_armed(Timer::Runs) {
            self.timers.arm(Timer::Runs, now);
        }
    }

    /// Handles the latest packet of the sweep. Two later packets, or one and a delay, show a loss;
    /// on a reordering path only the session's reordering tolerance does.
    pub(super) fn on_swept(
        &mut self,
        cx: &mut Cx<'_>,
        blocks: &mut Blocks,
        at: BlockId,
        reordering: Option<Duration>,
    ) {
        let part = part_of(at);
        let Some(sweep) = &mut self.sweeps[part as usize] else {
            self.sweeps[part as usize] = Some(SweepPosition::new(at));
            return;
        };
        if !self.source_has_runs {
            *sweep = SweepPosition::new(at);
            return;
        }
        let before = core::mem::replace(&mut sweep.at, at);
        if let Some(tolerance) = reordering {
            let last = core::mem::replace(&mut sweep.judged_end, at);
            if at < before {
                let end = blocks.layout.block_ids(part).end;
                self.pass(cx, blocks, tolerance, last..end);
                self.pass(cx, blocks, tolerance, block_id(part, 0)..at);
            } else {
                self.pass(cx, blocks, tolerance, last..at);
            }
            return;
        }
        if at < before {
            // The sweep has begun a new round, so nothing of the last round follows.
            let last = core::mem::replace(&mut sweep.judged_end, block_id(part, 0));
            self.overdue(cx, blocks, last..blocks.layout.block_ids(part).end);
        } else if before > sweep.judged_end || at == before && at > sweep.judged_end {
            let from = core::mem::replace(&mut sweep.judged_end, before);
            self.overdue(cx, blocks, from..before);
        }
        let open = self.sweeps[part as usize].is_some_and(|sweep| sweep.judged_end < at);
        if open && !self.timers.is_armed(Timer::Gaps) {
            self.suspect(cx.now, at);
        }
    }

    /// Notes that the sweep has passed these blocks, which are overdue after `tolerance`.
    fn pass(
        &mut self,
        cx: &mut Cx<'_>,
        blocks: &mut Blocks,
        tolerance: Duration,
        range: Range<BlockId>,
    ) {
        if range.is_empty() {
            return;
        }
        let due = cx.now + tolerance;
        let full = self.passed.len() >= PASSED_MAX;
        match self.passed.back_mut() {
            Some((at, last)) if last.end == range.start && (full || *at == due) => {
                (*at, last.end) = (due, range.end);
            }
            Some(_) if full => self.overdue(cx, blocks, range),
            _ => self.passed.push_back((due, range)),
        }
        self.plan_passed();
    }

    fn plan_passed(&mut self) {
        if let Some((due, _)) = self.passed.front() {
            self.timers.arm_by(Timer::Gaps, *due);
        }
    }

    fn suspect(&mut self, now: Time, to: BlockId) {
        self.suspected = Some(to);
        self.timers.arm(Timer::Gaps, now + REORDER_DELAY);
    }

    pub(super) fn on_exhausted(
        &mut self,
        cx: &mut Cx<'_>,
        blocks: &mut Blocks,
        sent: [bool; 3],
        reordering: Option<Duration>,
    ) {
        for part in Part::ALL {
            let block_ids = blocks.layout.block_ids(part);
            match reordering {
                _ if !sent[part as usize] => {}
                // The message may have overtaken the last packets.
                Some(tolerance) => self.pass(cx, blocks, tolerance, block_ids),
                None => self.overdue(cx, blocks, block_ids),
            }
        }
        // Confirmed blocks that are missing are lost too, even if earlier answers took longer.
        let delay = REORDER_DELAY.max(reordering.unwrap_or_default());
        self.naks.on_all_repairs_sent(cx.now + delay);
    }

    fn overdue(&mut self, cx: &mut Cx<'_>, blocks: &mut Blocks, range: Range<BlockId>) {
        if range.is_empty() {
            return;
        }
        let absent: Vec<_> = blocks.absent.within(range.clone()).collect();
        for run in absent {
            if run.end - run.start <= SINGLE_BLOCKS {
                for block_id in run {
                    if !self.runs.contains(block_id) && !blocks.open(block_id) {
                        self.runs.insert(block_id..block_id + 1);
                    }
                }
            } else {
                self.runs.insert(run);
            }
        }
        let mut backoff = Backoff::new(cx.now);
        for block_id in blocks.partial(range) {
            if !self.naks.has(block_id) && !self.runs.contains(block_id) {
                self.naks.back_off(block_id, &mut backoff, cx.rng);
            }
        }
        self.plan_runs(cx);
    }

    pub(super) fn on_complete(&mut self, now: Time, block_id: BlockId, by_repair: bool) {
        self.unanswered = 0;
        if self.naks.is_empty() {
            return;
        }
        if by_repair { self.naks.repaired(block_id, now) } else { self.naks.end(block_id) }
    }

    pub(super) fn on_progress(&mut self, now: Time, block_id: BlockId) {
        self.unanswered = 0;
        if !self.naks.is_empty() {
            self.naks.suppress(block_id, now);
        }
    }

    pub(super) fn on_confirmed(&mut self, now: Time, blocks: &Blocks, entry: Entry) {
        self.unanswered = 0;
        match entry {
            Entry::Run { first, count } => {
                let run = first..first + u64::from(count);
                if !self.runs.is_empty() {
                    self.confirm_run(now, run.clone());
                }
                for block_id in blocks.partial(run) {
                    self.naks.confirmed(block_id, now);
                }
            }
            Entry::Block { block_id, missing, any } => {
                if let Some(lacks) = blocks.lacks(block_id) {
                    let covered = match any {
                        true => lacks.count_ones() <= missing.count_ones(),
                        false => lacks & !missing == 0,
                    };
                    if !covered {
                        return;
                    }
                    let sweep = self.sweeps[part_of(block_id) as usize];
                    let passed = sweep.is_some_and(|sweep| block_id < sweep.at);
                    if !self.naks.has(block_id) && passed && self.source_has_runs {
                        self.naks.insert(block_id, NakState::AwaitConfirmation, now);
                    }
                }
                self.naks.confirmed(block_id, now);
                if self.runs.contains(block_id) {
                    self.confirm_run(now, block_id..block_id + 1);
                }
            }
        }
    }

    fn confirm_run(&mut self, now: Time, run: Range<BlockId>) {
        self.run_requests.on_answer(now, &mut self.run_retry);
        self.runs.remove(run);
        self.source_has_runs = true;
        if self.runs.is_empty() {
            self.timers.disarm(Timer::Runs);
            self.is_run_due = false;
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>, blocks: &mut Blocks, can_ask: bool) {
        if self.timers.take_due(Timer::Gaps, cx.now) {
            while self.passed.front().is_some_and(|(due, _)| *due <= cx.now)
                && let Some((_, range)) = self.passed.pop_front()
            {
                self.overdue(cx, blocks, range);
            }
            self.plan_passed();
            if let Some(suspected) = self.suspected.take() {
                self.judge_until(cx, blocks, suspected);
            }
        }
        self.naks.expire(cx, can_ask);
        if self.timers.take_due(Timer::Runs, cx.now) {
            let tries = self.run_requests.count;
            if tries > 0 && !self.is_run_due {
                self.run_retry.on_timeout(cx.now);
                // Request or confirmation was lost; passing data may already concern this receiver.
                self.source_has_runs = true;
            }
            if can_ask {
                self.is_run_due = true;
                self.run_requests.on_request(cx.now);
            }
            self.timers.arm(Timer::Runs, cx.now + self.run_retry.wait(tries));
        }
    }

    fn judge_until(&mut self, cx: &mut Cx<'_>, blocks: &mut Blocks, to: BlockId) {
        let Some(sweep) = &mut self.sweeps[part_of(to) as usize] else { return };
        if sweep.judged_end < to && to <= sweep.at {
            let from = core::mem::replace(&mut sweep.judged_end, to);
            self.overdue(cx, blocks, from..to);
        }
        let at = self.sweeps[part_of(to) as usize].map_or(to, |sweep| sweep.at);
        if at > to {
            self.suspect(cx.now, at);
        }
    }

    pub(super) fn has_due(&self) -> bool {
        self.is_run_due || self.naks.has_due()
    }

    pub(super) fn take_due(&mut self, blocks: &Blocks) -> Vec<Entry> {
        let mut entries = Vec::new();
        // The return path may lose long packets.
        let narrow = self.unanswered >= UNANSWERED_MAX;
        let most = if narrow { ENTRIES_PER_OPTION } else { ENTRIES_MAX };
        if core::mem::take(&mut self.is_run_due) {
            let mut wanted = RangeSet::default();
            for run in self.runs.iter().take(RUNS_LOOKED_AT) {
                // Partly received blocks are judged after the sweep has passed them.
                for run in blocks.absent.within(run) {
                    wanted.insert(run);
                }
            }
            self.runs = wanted.clone();
            wanted.limit(most);
            entries.extend(wanted.iter().map(|run| Entry::Run {
                first: run.start,
                // A part has at most 2^32 - 1 blocks.
                count: block_of(run.end - 1) - block_of(run.start) + 1,
            }));
            if entries.is_empty() {
                self.timers.disarm(Timer::Runs);
            }
        }
        let room = most - entries.len().min(most);
        for block_id in self.naks.take_due(room) {
            if let Some(missing) = blocks.lacks(block_id).filter(|missing| *missing != 0) {
                entries.push(Entry::Block { block_id, missing, any: false });
            }
        }
        self.sent += u64::from(!entries.is_empty());
        self.unanswered = self.unanswered.saturating_add(u32::from(!entries.is_empty()));
        entries
    }

    pub(super) fn clear(&mut self) {
        self.naks.clear();
        self.runs = RangeSet::default();
        self.timers.disarm_all();
        self.is_run_due = false;
        self.sweeps = [None; 3];
        (self.suspected, self.passed) = (None, VecDeque::new());
    }

    /// Discards conclusions from the sweep after a restart of the source, and requests everything.
    pub(super) fn restart(&mut self, cx: &mut Cx<'_>, blocks: &Blocks) {
        self.clear();
        self.source_has_runs = false;
        self.want(cx, blocks.layout.block_ids(Part::Manifest), false);
        self.want_lacking(cx, blocks, false);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        [self.naks.next_timeout(), self.timers.next()].into_iter().flatten().min()
    }
}

/// Consecutive requests without an answer after which requests are short.
const UNANSWERED_MAX: u32 = 4;

/// Most waiting runs of passed blocks. Further adjacent runs share an entry; others do not wait.
const PASSED_MAX: usize = 256;

const RUNS_LOOKED_AT: usize = 4096;

// Every block has an id, and every id a part.
const _: () = assert!(BLOCK_ID_END >> 32 == Part::ALL.len() as u64);
