//! The receiver's NAK timers and the state of each missing packet (RFC 3208 s6.3).

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use faircast_base::{Cx, Duration, Event, Rng, Time, TimeoutKind};

use super::crowd::{Backoff, Crowd};
use crate::keep_last;
use crate::pgm::PgmFlowSettings;
use crate::pgm::retry_timer::{Asked, RetryTimer};

/// Where the recovery of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A NAK will be sent unless somebody else is faster.
    BackOff,
    /// A NAK was sent or heard; its confirmation is to come.
    AwaitConfirmation,
    /// The confirmation has come; the repair is to come.
    AwaitRepair,
}

#[derive(Debug)]
struct Missing {
    state: State,
    deadline: Time,
    /// By this receiver.
    asked: Asked,
    /// Confirmations heard before anything had to be repeated.
    confirmations: u32,
    unconfirmed: u32,
    unrepaired: u32,
}

impl Missing {
    /// Goes to `state`. Returns whether the deadline is another one now.
    fn set(&mut self, state: State, deadline: Time) -> bool {
        let moves = self.deadline != deadline;
        (self.state, self.deadline) = (state, deadline);
        moves
    }
}

/// A packet that was repaired a moment ago.
#[derive(Debug)]
struct Recent {
    at: Time,
    index: u64,
    confirmations: u32,
}

/// Repetitions of a NAK for want of a confirmation, and for want of a repair, until the packet is
/// given up.
const RETRIES: u32 = 50;

/// Most of these; of a longer burst the last tell as much as all.
const RECENT_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) give_up: Vec<u64>,
    /// Whether NAKs are due that cannot be sent.
    pub(crate) stuck: bool,
    /// True if no confirmation came in its time.
    pub(crate) unconfirmed: bool,
}

/// The missing packets, each with its one timer. All operations take time logarithmic in their
/// number.
// What every packet needs stands first: see the receiver's session.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Naks {
    missing: BTreeMap<u64, Missing>,
    /// The deadline of each missing packet, and some that were moved since: stale entries stay until
    /// they come to the top, which is never one of them. Deadlines move all the time, and a heap
    /// is one piece of memory.
    timers: BinaryHeap<Reverse<(Time, u64)>>,
    /// Packets for which a NAK is to be sent now; all of them are missing.
    due: BTreeSet<u64>,
    /// Packets repaired within the last round trip.
    recent: VecDeque<Recent>,
    /// From a NAK to its confirmation, and to the repair.
    pub(crate) confirmation: RetryTimer,
    repair: RetryTimer,
    crowd: Crowd,
    /// NAKs without confirmation, or confirmations without repair, until a packet is given up.
    retries: u32,
}

impl Naks {
    pub(crate) fn new(settings: &PgmFlowSettings) -> Self {
        let retry = |least| RetryTimer::new(least, settings.nak_backoff);
        Self {
            confirmation: retry(settings.nak_repeat),
            repair: retry(settings.nak_repair).of_held_answers(),
            crowd: Crowd::new(settings),
            retries: RETRIES,
            ..Self::default()
        }
    }

    /// NAKs of a receiver that gives up no packet.
    pub(crate) fn without_end(settings: &PgmFlowSettings) -> Self {
        Self { retries: u32::MAX, ..Self::new(settings) }
    }

    /// Ends all requests, and keeps the measurements.
    pub(crate) fn clear(&mut self) {
        self.missing.clear();
        self.timers.clear();
        self.due.clear();
    }

    /// When a NAK for what is found missing now may be sent.
    pub(crate) fn draw(&self, backoff: &mut Backoff, rng: &mut Rng) -> Time {
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

    /// A packet is missing: a NAK is to be sent when its `backoff` is over.
    pub(crate) fn hold_back(&mut self, index: u64, backoff: &mut Backoff, rng: &mut Rng) {
        let deadline = self.draw(backoff, rng);
        self.begin(index, State::BackOff, deadline);
    }

    /// A packet is missing: it waits in `state` until `deadline`.
    pub(crate) fn begin(&mut self, index: u64, state: State, deadline: Time) {
        let asked = Asked::default();
        let fresh =
            Missing { state, deadline, asked, confirmations: 0, unconfirmed: 0, unrepaired: 0 };
        self.missing.insert(index, fresh);
        self.arm(index, deadline);
    }

    /// A packet has come, or nobody waits for it any longer.
    pub(crate) fn end(&mut self, index: u64) {
        if self.missing.remove(&index).is_some() {
            if self.missing.is_empty() {
                self.timers = BinaryHeap::new();
            } else {
                self.tidy_timers(index);
            }
            if !self.due.is_empty() {
                self.due.remove(&index);
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

    /// Packets from `to` on were never sent.
    pub(crate) fn end_from(&mut self, to: u64) {
        while let Some((&index, _)) = self.missing.last_key_value()
            && index >= to
        {
            self.end(index);
        }
    }

    /// The packet has come by a repair: how long that took is a sample.
    pub(crate) fn repaired(&mut self, index: u64, now: Time) {
        if let Some(missing) = self.missing.get(&index) {
            missing.asked.answered(now, &mut self.repair);
            let confirmations = missing.confirmations;
            self.settle(now);
            keep_last(&mut self.recent, RECENT_MAX, Recent { at: now, index, confirmations });
        }
        self.end(index);
    }

    /// Counts the confirmations of packets that were repaired a round trip ago: there will be no
    /// more of them.
    fn settle(&mut self, now: Time) {
        let rtt = self.confirmation.expected();
        while let Some(recent) = self.recent.front()
            && now.since(recent.at) >= rtt.unwrap_or(Duration::ZERO)
        {
            self.crowd.note(now, recent.confirmations, self.confirmation.smoothed());
            self.recent.pop_front();
        }
    }

    /// A confirmation came. False where the packet is not missing.
    pub(crate) fn confirmed(&mut self, index: u64, now: Time) -> bool {
        let Some(missing) = self.missing.get_mut(&index) else {
            // Of a packet that is here, others ask for it still.
            if let Some(recent) = self.recent.iter_mut().find(|recent| recent.index == index) {
                recent.confirmations += 1;
            }
            return false;
        };
        if missing.state == State::AwaitConfirmation {
            missing.asked.answered(now, &mut self.confirmation);
        }
        // Later ones may answer repetitions.
        if missing.asked.times <= 1 && missing.unrepaired == 0 {
            missing.confirmations += 1;
        }
        let deadline = repair_deadline(&self.repair, &self.confirmation, missing, now);
        if missing.set(State::AwaitRepair, deadline) {
            self.arm(index, deadline);
        }
        true
    }

    /// Another receiver's NAK was heard. It leads out of back-off to the wait for a confirmation
    /// (src: RFC 3208 s6.3, by its diagram and not its prose), and restarts any other wait. False where
    /// the packet is not missing.
    pub(crate) fn heard(&mut self, index: u64, now: Time) -> bool {
        let Some(missing) = self.missing.get_mut(&index) else { return false };
        let (state, deadline) = match missing.state {
            State::BackOff | State::AwaitConfirmation => {
                (State::AwaitConfirmation, now + self.confirmation.wait(missing.unconfirmed))
            }
            State::AwaitRepair => {
                let deadline = repair_deadline(&self.repair, &self.confirmation, missing, now);
                (State::AwaitRepair, deadline)
            }
        };
        if missing.set(state, deadline) {
            self.arm(index, deadline);
        }
        true
    }

    /// The source says that it has sent all that it was asked for. What has not come by `deadline` is
    /// asked for again then, however long answers took before: a repair that was confirmed is lost, and so is
    /// a NAK or its confirmation where a round trip has gone by.
    pub(crate) fn repairs_sent(&mut self, deadline: Time) {
        let round_trip = self.confirmation.expected();
        let mut moved = Vec::new();
        for (&index, missing) in &mut self.missing {
            let answered_by = match (missing.state, missing.asked.last()) {
                (State::BackOff, _) | (State::AwaitConfirmation, None) => continue,
                (State::AwaitConfirmation, Some(asked)) => {
                    asked + round_trip.unwrap_or_default().max(self.confirmation.least)
                }
                (State::AwaitRepair, Some(asked)) => asked + self.repair.least,
                (State::AwaitRepair, None) => deadline,
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

    /// Sets the timer of a missing packet, whose deadline it is already.
    fn arm(&mut self, index: u64, deadline: Time) {
        self.timers.push(Reverse((deadline, index)));
        self.tidy_timers(index);
        // As many may lie about as there are packets missing.
        if self.timers.len() > 2 * self.missing.len() + TIMERS_SPARE {
            let timer = |(&index, missing): (&u64, &Missing)| Reverse((missing.deadline, index));
            self.timers = self.missing.iter().map(timer).collect();
        }
    }

    /// Takes what does not count any more from the top. Only the timer of `index` has changed.
    fn tidy_timers(&mut self, index: u64) {
        if self.timers.peek().is_none_or(|Reverse((_, top))| *top != index) {
            return;
        }
        while let Some(&Reverse((at, top))) = self.timers.peek()
            && self.missing.get(&top).is_none_or(|missing| missing.deadline != at)
        {
            self.timers.pop();
        }
    }

    /// Handles all timers that have run out. Where `can_ask` is false no NAK can be sent yet, and
    /// back-off begins again without counting.
    pub(crate) fn expire(&mut self, cx: &mut Cx<'_>, can_ask: bool) -> Expired {
        let now = cx.now;
        let mut expired = Expired::default();
        // The waits in which no confirmation came, and no repair.
        let (mut unconfirmed, mut unrepaired) = (None, None);
        let mut backoff = Backoff::new(now);
        while let Some(&Reverse((deadline, index))) = self.timers.peek()
            && deadline <= now
        {
            let missing = self.missing.get_mut(&index).expect("every timer is a missing packet's");
            let (state, given_up) = match missing.state {
                State::BackOff if can_ask => {
                    self.due.insert(index);
                    (State::AwaitConfirmation, false)
                }
                State::BackOff => {
                    expired.stuck = true;
                    (State::BackOff, false)
                }
                State::AwaitConfirmation => {
                    unconfirmed = Some(self.confirmation.wait(missing.unconfirmed));
                    expired.unconfirmed = true;
                    self.confirmation.run_out(now);
                    missing.unconfirmed += 1;
                    (State::BackOff, missing.unconfirmed > self.retries)
                }
                State::AwaitRepair => {
                    unrepaired = Some(self.repair.wait(missing.unrepaired));
                    self.repair.run_out(now);
                    missing.unrepaired += 1;
                    (State::BackOff, missing.unrepaired > self.retries)
                }
            };
            if given_up {
                self.end(index);
                expired.give_up.push(index);
                continue;
            }
            let deadline = if state == State::AwaitConfirmation {
                missing.asked.note(now);
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
        !self.due.is_empty()
    }

    /// The next packets for one NAK, at most `max` and ascending; empty where no NAK is due.
    pub(crate) fn take_due(&mut self, max: usize) -> Vec<u64> {
        let mut asked = Vec::new();
        while asked.len() < max
            && let Some(index) = self.due.pop_first()
        {
            asked.push(index);
        }
        asked
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }
}

/// Until when a repair that has just been confirmed is to come. The round trip counts from the NAK,
/// where it was ours, and not from its confirmation.
fn repair_deadline(
    repair: &RetryTimer,
    confirmation: &RetryTimer,
    missing: &Missing,
    now: Time,
) -> Time {
    // Before the first repair the confirmations tell the way; one from the source is just ahead of
    // its repair.
    let whole = if repair.has_estimate() { repair } else { confirmation };
    let asked = missing.asked.last().unwrap_or(now);
    (asked + whole.wait(missing.unrepaired)).max(now + repair.least)
}

/// Timers that do not count any more and may lie about however few packets are missing.
const TIMERS_SPARE: usize = 16;

#[cfg(test)]
mod tests;
