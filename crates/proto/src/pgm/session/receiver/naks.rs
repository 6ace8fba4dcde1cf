//! NAK timers of the receiver, state of each missing packet, and NAK suppression (RFC 3208 s6.3).

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use faircast_base::{Cx, Duration, Event, Rng, Time, TimeoutKind};

use crate::keep_last;
use crate::pgm::PgmFlowSettings;
use crate::pgm::retry_timer::{RequestTimes, RetryTimer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NakState {
    /// BACK-OFF_STATE: a NAK follows at the deadline, unless it is suppressed.
    BackOff,
    /// WAIT-NCF_STATE: a NAK was sent, here or by another receiver.
    AwaitConfirmation,
    /// WAIT-DATA_STATE: an NCF has come.
    AwaitRepair,
}

#[derive(Debug)]
struct Missing {
    state: NakState,
    deadline: Time,
    requests: RequestTimes,
    confirmations: u32,
    unconfirmed: u32,
    unrepaired: u32,
}

impl Missing {
    fn set(&mut self, state: NakState, deadline: Time) -> bool {
        let moves = self.deadline != deadline;
        (self.state, self.deadline) = (state, deadline);
        moves
    }
}

/// Packet repaired within the last round trip, of which more confirmations may come.
#[derive(Debug)]
struct RecentRepair {
    at: Time,
    index: u64,
    confirmations: u32,
}

/// Repetitions of a NAK without a confirmation, or without a repair, before the packet is given up.
const RETRIES: u32 = 50;

/// Most recently repaired packets on record; in a longer burst the last ones are enough.
const RECENT_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) give_up: Vec<u64>,
    pub(crate) stuck: bool,
    pub(crate) unconfirmed: bool,
}

/// Missing packets, each with its one timer. All operations take logarithmic time.
#[derive(Debug, Default)]
#[repr(C)] // Hot fields first: see the receiver's session.
pub(crate) struct Naks {
    missing: BTreeMap<u64, Missing>,
    /// Deadlines, and stale entries of moved ones, never at the top: a heap is one piece of memory.
    timers: BinaryHeap<Reverse<(Time, u64)>>,
    due_naks: BTreeSet<u64>,
    recent_repairs: VecDeque<RecentRepair>,
    /// Times from a NAK to its confirmation, and to its repair.
    pub(crate) confirmation: RetryTimer,
    repair: RetryTimer,
    crowd: Crowd,
    /// NAKs without a confirmation, or confirmations without a repair, before a packet is given up.
    retries: u32,
}

impl Naks {
    pub(crate) fn new(settings: &PgmFlowSettings) -> Self {
        let retry = |least| RetryTimer::new(least, settings.nak_backoff);
        Self {
            confirmation: retry(settings.nak_repeat),
            repair: retry(settings.nak_repair).with_held_answers(),
            crowd: Crowd::new(settings),
            retries: RETRIES,
            ..Self::default()
        }
    }

    pub(crate) fn without_end(settings: &PgmFlowSettings) -> Self {
        Self { retries: u32::MAX, ..Self::new(settings) }
    }

    pub(crate) fn clear(&mut self) {
        self.missing.clear();
        self.timers.clear();
        self.due_naks.clear();
    }

    pub(crate) fn draw_backoff(&self, backoff: &mut Backoff, rng: &mut Rng) -> Time {
        backoff.draw(&self.crowd, rng)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.missing.len()
    }

    pub(crate) fn has(&self, index: u64) -> bool {
        self.missing.contains_key(&index)
    }

    pub(crate) fn back_off(&mut self, index: u64, backoff: &mut Backoff, rng: &mut Rng) {
        let deadline = self.draw_backoff(backoff, rng);
        self.insert(index, NakState::BackOff, deadline);
    }

    pub(crate) fn insert(&mut self, index: u64, state: NakState, deadline: Time) {
        let requests = RequestTimes::default();
        let fresh =
            Missing { state, deadline, requests, confirmations: 0, unconfirmed: 0, unrepaired: 0 };
        self.missing.insert(index, fresh);
        self.arm(index, deadline);
    }

    pub(crate) fn end(&mut self, index: u64) {
        if self.missing.remove(&index).is_some() {
            if self.missing.is_empty() {
                self.timers = BinaryHeap::new();
            } else {
                self.drop_stale_timers(index);
            }
            if !self.due_naks.is_empty() {
                self.due_naks.remove(&index);
            }
        }
    }

    pub(crate) fn end_before(&mut self, trail: u64) {
        while let Some((&index, _)) = self.missing.first_key_value()
            && index < trail
        {
            self.end(index);
        }
    }

    pub(crate) fn end_from(&mut self, to: u64) {
        while let Some((&index, _)) = self.missing.last_key_value()
            && index >= to
        {
            self.end(index);
        }
    }

    pub(crate) fn repaired(&mut self, index: u64, now: Time) {
        if let Some(missing) = self.missing.get(&index) {
            missing.requests.on_answer(now, &mut self.repair);
            let confirmations = missing.confirmations;
            self.count_confirmations(now);
            keep_last(
                &mut self.recent_repairs,
                RECENT_MAX,
                RecentRepair { at: now, index, confirmations },
            );
        }
        self.end(index);
    }

    /// Counts the confirmations of packets repaired a round trip ago, which get no more of them.
    fn count_confirmations(&mut self, now: Time) {
        let rtt = self.confirmation.expected();
        while let Some(recent) = self.recent_repairs.front()
            && now.since(recent.at) >= rtt.unwrap_or(Duration::ZERO)
        {
            self.crowd.note(now, recent.confirmations, self.confirmation.rtt.srtt());
            self.recent_repairs.pop_front();
        }
    }

    pub(crate) fn confirmed(&mut self, index: u64, now: Time) -> bool {
        let Some(missing) = self.missing.get_mut(&index) else {
            // Other receivers may still request a packet that is here.
            if let Some(recent) =
                self.recent_repairs.iter_mut().find(|recent| recent.index == index)
            {
                recent.confirmations += 1;
            }
            return false;
        };
        if missing.state == NakState::AwaitConfirmation {
            missing.requests.on_answer(now, &mut self.confirmation);
        }
        // Later confirmations may answer repetitions.
        if missing.requests.count <= 1 && missing.unrepaired == 0 {
            missing.confirmations += 1;
        }
        let deadline = repair_deadline(&self.repair, &self.confirmation, missing, now);
        if missing.set(NakState::AwaitRepair, deadline) {
            self.arm(index, deadline);
        }
        true
    }

    /// NAK suppression: another receiver's NAK suppresses ours, or restarts a wait (src: RFC 3208
    /// s6.3, diagram, not prose). Returns false if the packet is not missing.
    pub(crate) fn suppress(&mut self, index: u64, now: Time) -> bool {
        let Some(missing) = self.missing.get_mut(&index) else { return false };
        let (state, deadline) = match missing.state {
            NakState::BackOff | NakState::AwaitConfirmation => {
                (NakState::AwaitConfirmation, now + self.confirmation.wait(missing.unconfirmed))
            }
            NakState::AwaitRepair => {
                let deadline = repair_deadline(&self.repair, &self.confirmation, missing, now);
                (NakState::AwaitRepair, deadline)
            }
        };
        if missing.set(state, deadline) {
            self.arm(index, deadline);
        }
        true
    }

    /// Everything was sent: packets missing at `deadline` are requested again.
    pub(crate) fn on_all_repairs_sent(&mut self, deadline: Time) {
        let round_trip = self.confirmation.expected();
        let mut moved = Vec::new();
        for (&index, missing) in &mut self.missing {
            let answered_by = match (missing.state, missing.requests.last()) {
                (NakState::BackOff, _) | (NakState::AwaitConfirmation, None) => continue,
                (NakState::AwaitConfirmation, Some(asked)) => {
                    asked + round_trip.unwrap_or_default().max(self.confirmation.wait_min)
                }
                (NakState::AwaitRepair, Some(asked)) => asked + self.repair.wait_min,
                (NakState::AwaitRepair, None) => deadline,
            };
            let soonest = deadline.max(answered_by);
            if missing.deadline > soonest {
                missing.deadline = soonest;
                moved.push((index, soonest));
            }
        }
        for (index, deadline) in moved {
            self.arm(index, deadline);
        }
    }

    fn arm(&mut self, index: u64, deadline: Time) {
        self.timers.push(Reverse((deadline, index)));
        self.drop_stale_timers(index);
        // The heap holds at most about as many stale entries as missing packets.
        if self.timers.len() > 2 * self.missing.len() + TIMERS_SPARE {
            let timer = |(&index, missing): (&u64, &Missing)| Reverse((missing.deadline, index));
            self.timers = self.missing.iter().map(timer).collect();
        }
    }

    /// Removes stale entries from the top, after a change of only the timer of `index`.
    fn drop_stale_timers(&mut self, index: u64) {
        if self.timers.peek().is_none_or(|Reverse((_, top))| *top != index) {
            return;
        }
        while let Some(&Reverse((at, top))) = self.timers.peek()
            && self.missing.get(&top).is_none_or(|missing| missing.deadline != at)
        {
            self.timers.pop();
        }
    }

    /// Handles all expired timers. If `can_ask` is false, back-off begins again without counting.
    pub(crate) fn expire(&mut self, cx: &mut Cx<'_>, can_ask: bool) -> Expired {
        let now = cx.now;
        let mut expired = Expired::default();
        let (mut unconfirmed, mut unrepaired) = (None, None);
        let mut backoff = Backoff::new(now);
        while let Some(&Reverse((deadline, index))) = self.timers.peek()
            && deadline <= now
        {
            let missing = self.missing.get_mut(&index).expect("every timer is a missing packet's");
            let (state, given_up) = match missing.state {
                NakState::BackOff if can_ask => {
                    self.due_naks.insert(index);
                    (NakState::AwaitConfirmation, false)
                }
                NakState::BackOff => {
                    expired.stuck = true;
                    (NakState::BackOff, false)
                }
                NakState::AwaitConfirmation => {
                    unconfirmed = Some(self.confirmation.wait(missing.unconfirmed));
                    expired.unconfirmed = true;
                    self.confirmation.on_timeout(now);
                    missing.unconfirmed += 1;
                    (NakState::BackOff, missing.unconfirmed > self.retries)
                }
                NakState::AwaitRepair => {
                    unrepaired = Some(self.repair.wait(missing.unrepaired));
                    self.repair.on_timeout(now);
                    missing.unrepaired += 1;
                    (NakState::BackOff, missing.unrepaired > self.retries)
                }
            };
            if given_up {
                self.end(index);
                expired.give_up.push(index);
                continue;
            }
            let deadline = if state == NakState::AwaitConfirmation {
                missing.requests.on_request(now);
                now + self.confirmation.wait(missing.unconfirmed)
            } else {
                backoff.draw(&self.crowd, cx.rng)
            };
            if missing.set(state, deadline) {
                self.arm(index, deadline);
            }
        }
        let waits =
            [(unconfirmed, TimeoutKind::NakConfirmation), (unrepaired, TimeoutKind::NakRepair)];
        for (wait, kind) in waits {
            if let Some(wait) = wait {
                cx.emit(Event::Timeout { kind, after_ns: wait.as_nanos() });
            }
        }
        expired
    }

    pub(crate) fn has_due(&self) -> bool {
        !self.due_naks.is_empty()
    }

    /// Returns the packets for the next NAK, at most `max` and ascending; empty if no NAK is due.
    pub(crate) fn take_due(&mut self, max: usize) -> Vec<u64> {
        let mut asked = Vec::new();
        while asked.len() < max
            && let Some(index) = self.due_naks.pop_first()
        {
            asked.push(index);
        }
        asked
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}

/// Returns the deadline of a confirmed repair, counted from this receiver's NAK, if any.
fn repair_deadline(
    repair: &RetryTimer,
    confirmation: &RetryTimer,
    missing: &Missing,
    now: Time,
) -> Time {
    // Before the first repair, confirmations measure the path.
    let whole = if repair.rtt.srtt().is_some() { repair } else { confirmation };
    let asked = missing.requests.last().unwrap_or(now);
    (asked + whole.wait(missing.unrepaired)).max(now + repair.wait_min)
}

/// Stale timer entries that are always allowed.
const TIMERS_SPARE: usize = 16;

/// Bounds of confirmations of a loss beyond the first: a few NAKs cost less than avoiding them.
const MORE_ABOVE: f64 = 3.5;
const FAR_MORE_ABOVE: f64 = 6.0;
const FEWER_BELOW: f64 = 3.0;

const GAIN: f64 = 0.25;

/// Most doublings of the crowd: some thousand receivers behind one lossy link.
const DOUBLINGS_MAX: u32 = 13;

/// Mean of the draw in round trips: about four receivers, e^(4/3), send a NAK in any crowd.
const MEAN_ROUND_TRIPS: f64 = 0.75;

/// Estimator of the number of receivers that miss the same packets, by confirmations of a loss.
/// Back-offs drawn evenly from less than a round trip suppress no NAK; the remedy is a span of
/// some round trips with few early draws (src: RFC 5401 s4.3).
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    backoff: Duration,
    doublings: u32,
    surplus: f64,
    changed_at: Time,
    rtt: Duration,
}

impl Crowd {
    pub(crate) fn new(settings: &PgmFlowSettings) -> Self {
        Self { backoff: settings.nak_backoff, ..Self::default() }
    }

    /// Notes a repaired packet with its confirmations; `rtt` is the time to a confirmation.
    pub(crate) fn note(&mut self, now: Time, confirmations: u32, rtt: Option<Duration>) {
        if confirmations == 0 {
            return;
        }
        self.rtt = rtt.unwrap_or(self.rtt);
        self.surplus += GAIN * (f64::from(confirmations - 1) - self.surplus);
        // Packets lost together give the same information, and a change affects later losses only.
        if now.since(self.changed_at) < Duration::from_secs_f64(self.shape().1) + self.rtt {
            return;
        }
        let guess = if self.surplus > MORE_ABOVE {
            let step = if self.surplus > FAR_MORE_ABOVE { 2 } else { 1 };
            (self.doublings + step).min(DOUBLINGS_MAX)
        } else if self.surplus < FEWER_BELOW {
            self.doublings.saturating_sub(1)
        } else {
            return;
        };
        if guess != self.doublings {
            (self.doublings, self.changed_at) = (guess, now);
            self.surplus = (MORE_ABOVE + FEWER_BELOW) / 2.0;
        }
    }

    fn shape(&self) -> (f64, f64) {
        // The span is ln N + 1 means (src: RFC 5401 s4.3); ln 2 is 0.69.
        let means = 1.0 + 0.69 * f64::from(self.doublings);
        let shortest = self.backoff.as_secs_f64() / means;
        let mean = MEAN_ROUND_TRIPS * self.rtt.as_secs_f64();
        let mean = if mean > shortest { mean } else { shortest };
        (mean, mean * means)
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> Duration {
        if self.doublings == 0 {
            return rng.up_to(self.backoff);
        }
        let (mean, span) = self.shape();
        for _ in 0..8 {
            let before_end = rng.exponential(mean);
            if before_end < span {
                return Duration::from_secs_f64(span - before_end);
            }
        }
        rng.up_to(Duration::from_secs_f64(span))
    }
}

/// Back-offs of one moment. Packets found missing together share one draw and one NAK.
#[derive(Debug)]
pub(crate) struct Backoff {
    now: Time,
    drawn: Option<Time>,
}

impl Backoff {
    pub(crate) fn new(now: Time) -> Self {
        Self { now, drawn: None }
    }

    pub(crate) fn draw(&mut self, crowd: &Crowd, rng: &mut Rng) -> Time {
        *self.drawn.get_or_insert_with(|| self.now + crowd.draw(rng))
    }
}

#[cfg(test)]
mod tests;
