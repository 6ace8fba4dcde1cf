//! Repair state of a network element: requested packets, requesting ports, pending NAKs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Seq, Time};

use super::suppression::Passed;
use super::{ELIMINATION, ElementConfig, NAK_INTERVAL, NAK_REPEAT, REPAIR_WAIT};
use crate::congestion::{RelayedReport, Reported};
use crate::pgm::retry_timer::{RequestTimes, RetryTimer};
use crate::pgm::wire::Nak;
use crate::relay::PortId;

/// Most packets of one session under repair. Further NAKs are neither confirmed nor forwarded.
const REPAIRS_MAX: usize = 8192;

/// Most ports for one repair, more than a router has. Further ports get no repair.
const PORTS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Repairs {
    confirmation: RetryTimer,
    repair: RetryTimer,
    states: BTreeMap<u32, State>,
    timers: BTreeSet<(Time, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) port: PortId,
    pub(super) nak: Nak,
    pub(super) report: Option<RelayedReport>,
    pub(super) reported: Option<Reported>,
}

#[derive(Debug)]
struct State {
    nak_state: NakState,
    requests: RequestTimes,
    ports: Vec<PortId>,
    nak: Nak,
    report: Option<RelayedReport>,
    passed: Passed,
}

/// State of NAKs for a packet. `Collecting` forwards one for all NAKs after the repair, at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NakState {
    Pending { repeat_at: Time, until: Time },
    Outstanding { eliminates_until: Time, until: Time },
    Repaired { until: Time },
    Collecting { at: Time },
}

/// Least repetitions of a NAK before it is given up.
const REPETITIONS_MIN: u64 = 4;

/// Assumed time to a repair before the first one (as TCP's first timeout: RFC 6298 s2.1).
const UNKNOWN_REPAIR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) repeat: Vec<Seq>,
    pub(super) unconfirmed: bool,
    pub(super) unrepaired: bool,
}

impl NakState {
    fn due(self) -> Time {
        match self {
            Self::Pending { repeat_at, until } => repeat_at.min(until),
            Self::Outstanding { until, .. } | Self::Repaired { until } => until,
            Self::Collecting { at } => at,
        }
    }
}

impl Repairs {
    pub(super) fn new() -> Self {
        let retry = RetryTimer::new(NAK_INTERVAL, NAK_INTERVAL);
        Self {
            confirmation: retry,
            repair: retry.with_held_answers(),
            states: BTreeMap::new(),
            timers: BTreeSet::new(),
        }
    }

    fn pending(&self, now: Time) -> NakState {
        let interval = self.confirmation.wait(0);
        let whole = NAK_REPEAT.max(interval * REPETITIONS_MIN);
        NakState::Pending { repeat_at: now + interval, until: now + whole }
    }

    /// Returns the time until which NAKs are held back for a packet last requested at `asked_at`.
    fn eliminates_until(&self, asked_at: Time) -> Time {
        // The length of the upstream path is unknown until a repair has measured it.
        let overdue = if self.repair.has_estimate() { self.repair.wait(0) } else { UNKNOWN_REPAIR };
        asked_at + overdue.min(ELIMINATION)
    }

    /// Takes a NAK for `seq`. Returns true if it is forwarded; `None` if the table is full.
    pub(super) fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        config: &ElementConfig,
        seq: Seq,
        ask: Ask,
    ) -> Option<bool> {
        let now = cx.now;
        let Some(state) = self.states.get_mut(&seq.value()) else {
            return self.begin(now, seq, ask);
        };
        if !state.ports.contains(&ask.port) && state.ports.len() < PORTS_MAX {
            state.ports.push(ask.port);
        }
        let eliminated = match state.nak_state {
            NakState::Repaired { until } => {
                state.nak = ask.nak;
                state.report = ask.report;
                state.passed = Passed::default();
                self.set(seq, NakState::Collecting { at: until });
                return Some(false);
            }
            NakState::Collecting { .. } => return Some(false),
            NakState::Pending { .. } => true,
            NakState::Outstanding { eliminates_until, .. } => now < eliminates_until,
        };
        let passes = !eliminated || config.lets_pass(cx.rng, &state.passed, ask.reported);
        if passes {
            state.passed.note(ask.reported);
            state.nak = ask.nak;
            state.report = ask.report.or(state.report);
            state.requests.on_request(now);
        }
        if !eliminated {
            self.set(seq, self.pending(now));
        }
        Some(passes)
    }

    fn begin(&mut self, now: Time, seq: Seq, ask: Ask) -> Option<bool> {
        let nak_state = self.pending(now);
        let state = self.insert(seq, nak_state, ask.nak)?;
        state.passed.note(ask.reported);
        state.requests.on_request(now);
        state.ports.push(ask.port);
        state.report = ask.report;
        Some(true)
    }

    fn insert(&mut self, seq: Seq, nak_state: NakState, nak: Nak) -> Option<&mut State> {
        if self.states.len() == REPAIRS_MAX {
            return None;
        }
        self.timers.insert((nak_state.due(), seq.value()));
        let (requests, passed) = (RequestTimes::default(), Passed::default());
        let state = State { nak_state, requests, ports: Vec::new(), nak, report: None, passed };
        Some(self.states.entry(seq.value()).or_insert(state))
    }

    pub(super) fn confirm(&mut self, now: Time, seq: Seq, nak: Nak) -> bool {
        let until = now + REPAIR_WAIT;
        if let Some(state) = self.states.get(&seq.value()) {
            if matches!(state.nak_state, NakState::Repaired { .. }) {
                return true;
            }
            if matches!(state.nak_state, NakState::Pending { .. }) {
                state.requests.on_answer(now, &mut self.confirmation);
            }
            let asked_at = state.requests.last().unwrap_or(now);
            let eliminates_until = self.eliminates_until(asked_at);
            self.set(seq, NakState::Outstanding { eliminates_until, until });
            return true;
        }
        let eliminates_until = self.eliminates_until(now);
        self.insert(seq, NakState::Outstanding { eliminates_until, until }, nak).is_some()
    }

    /// Handles a repair. Returns the ports that requested it; `None` for an unknown packet.
    ///
    /// deviates: NAKs after the repair are collected for a repetition interval before one is
    /// forwarded. In RFC 3208 s7.3 the state ends with the repair, so that each would cause a
    /// repair.
    pub(super) fn repaired(&mut self, now: Time, seq: Seq) -> Option<Vec<PortId>> {
        let state = self.states.get_mut(&seq.value())?;
        state.requests.on_answer(now, &mut self.repair);
        let ports = core::mem::take(&mut state.ports);
        state.requests = RequestTimes::default();
        if !matches!(state.nak_state, NakState::Repaired { .. }) {
            self.set(seq, NakState::Repaired { until: now + NAK_INTERVAL });
        }
        Some(ports)
    }

    fn finish(&mut self, seq: Seq) {
        if let Some(state) = self.states.remove(&seq.value()) {
            self.timers.remove(&(state.nak_state.due(), seq.value()));
        }
    }

    pub(super) fn latest(&self, seq: Seq) -> Option<(Nak, Option<RelayedReport>)> {
        self.states.get(&seq.value()).map(|state| (state.nak, state.report))
    }

    pub(super) fn expire(&mut self, now: Time) -> Expired {
        let mut expired = Expired::default();
        while let Some(&(due, value)) = self.timers.first()
            && due <= now
        {
            let seq = Seq::new(value);
            match self.states.get(&value).expect("every timer is a state's").nak_state {
                NakState::Pending { until, .. } if now < until => {
                    expired.repeat.push(seq);
                    self.confirmation.on_timeout(now);
                    let state = self.states.get_mut(&value).expect("it was found above");
                    let repeat_at = now + self.confirmation.wait(state.requests.count);
                    state.requests.on_request(now);
                    self.set(seq, NakState::Pending { repeat_at, until });
                }
                NakState::Collecting { .. } => {
                    expired.repeat.push(seq);
                    let pending = self.pending(now);
                    self.states
                        .get_mut(&value)
                        .expect("it was found above")
                        .requests
                        .on_request(now);
                    self.set(seq, pending);
                }
                NakState::Repaired { .. } => self.finish(seq),
                NakState::Pending { .. } => {
                    expired.unconfirmed = true;
                    self.finish(seq);
                }
                NakState::Outstanding { .. } => {
                    expired.unrepaired = true;
                    self.finish(seq);
                }
            }
        }
        // Sorted by value: serial order is total only within half the number space.
        expired.repeat.sort_by_key(|seq| seq.value());
        expired
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(due, _)| due)
    }

    fn set(&mut self, seq: Seq, nak_state: NakState) {
        let state = self.states.get_mut(&seq.value()).expect("only known states change");
        self.timers.remove(&(state.nak_state.due(), seq.value()));
        self.timers.insert((nak_state.due(), seq.value()));
        state.nak_state = nak_state;
    }
}
