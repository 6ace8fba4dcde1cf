//! Repair state of a network element: requested packets, requesting ports, pending NAKs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Rng, Seq, Time};

use super::{ELIMINATION, ElementConfig, NAK_INTERVAL, NAK_REPEAT, REPAIR_WAIT};
use crate::congestion::{RelayedReport, Reported, SchemeEntry};
use crate::pgm::retry_timer::{RequestTimes, RetryTimer};
use crate::pgm::wire::{Nak, Packet};
use crate::relay::PortId;
use crate::settings::choices;

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
    passed: Reported,
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
        let overdue =
            if self.repair.rtt.srtt().is_some() { self.repair.wait(0) } else { UNKNOWN_REPAIR };
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
                state.passed = Reported::default();
                self.set(seq, NakState::Collecting { at: until });
                return Some(false);
            }
            NakState::Collecting { .. } => return Some(false),
            NakState::Pending { .. } => true,
            NakState::Outstanding { eliminates_until, .. } => now < eliminates_until,
        };
        let passes = !eliminated || config.lets_pass(cx.rng, &state.passed, ask.reported);
        if passes {
            state.passed = state.passed.max(ask.reported.unwrap_or_default());
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
        state.passed = ask.reported.unwrap_or_default();
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
        let (requests, passed) = (RequestTimes::default(), Reported::default());
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
    /// deviates: later NAKs are collected for a repetition interval, not each forwarded.
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

    pub(super) fn latest(&self, seq: Seq) -> Option<(Nak, Option<RelayedReport>)> {
        self.states.get(&seq.value()).map(|state| (state.nak, state.report))
    }

    pub(super) fn expire(&mut self, now: Time) -> Expired {
        let mut expired = Expired::default();
        while let Some(&(due, value)) = self.timers.first()
            && due <= now
        {
            let pending = self.pending(now);
            let state = self.states.get_mut(&value).expect("every timer is a state's");
            let repeated = match state.nak_state {
                NakState::Pending { until, .. } if now < until => {
                    self.confirmation.on_timeout(now);
                    let repeat_at = now + self.confirmation.wait(state.requests.count);
                    Some(NakState::Pending { repeat_at, until })
                }
                NakState::Collecting { .. } => Some(pending),
                ended => {
                    expired.unconfirmed |= matches!(ended, NakState::Pending { .. });
                    expired.unrepaired |= matches!(ended, NakState::Outstanding { .. });
                    None
                }
            };
            if let Some(nak_state) = repeated {
                state.requests.on_request(now);
                expired.repeat.push(Seq::new(value));
                self.set(Seq::new(value), nak_state);
            } else {
                self.states.remove(&value);
                self.timers.pop_first();
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

choices! {
    /// NAKs that pass for a packet that was already requested.
    pub enum Suppression {
        /// All NAKs.
        None = "none",
        /// None until the elimination interval is over (src: RFC 3208 s7.4).
        Rfc3208 = "rfc3208",
        /// NAKs with more loss than any that passed (src: seada-helmy s4.3, from pgmcc).
        Loss = "loss",
        /// NAKs with less throughput, by loss and round trip below here (src: seada-helmy s4.3).
        Throughput = "throughput",
        /// NAKs chosen at random (src: seada-helmy s4.3).
        Random = "random",
    }
}

/// Probability for each NAK with `Suppression::Random`; at one half, the load is halved.
pub(super) const PASS_PROBABILITY: f64 = 0.5;

pub(super) fn report_on(
    now: Time,
    schemes: &'static [SchemeEntry],
    pgm: &Packet<'_>,
) -> Option<RelayedReport> {
    let (view, value) = schemes.iter().find_map(|SchemeEntry { view, .. }| {
        Some((view, pgm.options.find(view.report_option)?.value))
    })?;
    RelayedReport::new(now, view, value)
}

impl ElementConfig {
    /// Returns true if a held-back NAK passes, beside `passed`; without a report only by chance.
    pub(super) fn lets_pass(
        &self,
        rng: &mut Rng,
        passed: &Reported,
        reported: Option<Reported>,
    ) -> bool {
        match (self.suppression, reported) {
            (Suppression::None, _) => true,
            (Suppression::Random, _) => rng.chance(PASS_PROBABILITY),
            (Suppression::Loss, Some(reported)) => reported.loss > passed.loss,
            (Suppression::Throughput, Some(reported)) => {
                reported.slowness_squared > passed.slowness_squared
            }
            (Suppression::Rfc3208 | Suppression::Loss | Suppression::Throughput, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::encoded;
    use crate::congestion::pgmcc::{Pgmcc, PgmccReport};
    use crate::congestion::{RouterView, Stamps};
    use crate::world::at;
    use faircast_base::{Duration, NodeId, Purpose};

    const VIEW: RouterView = RouterView::of::<Pgmcc>();

    fn reported(at: Time, echo_ms: u32, loss: f64, stamps: &Stamps) -> Reported {
        let report =
            PgmccReport { echo_ms, loss: (loss * 65535.0) as u16, receiver: Some(NodeId(1)) };
        let report = RelayedReport::new(at, &VIEW, &encoded(&report)).expect("it is short enough");
        report.reported(stamps, Duration::ZERO).expect("a loss rate is in it")
    }

    #[test]
    fn policies_pass_what_they_say() {
        let stamps = Stamps::example();
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let near = reported(at(1130), 8030, 0.01, &stamps);
        let far = reported(at(1430), 8030, 0.01, &stamps);
        let lossy = reported(at(1130), 8030, 0.02, &stamps);
        for (policy, passes_far, passes_lossy) in [
            (Suppression::None, true, true),
            (Suppression::Rfc3208, false, false),
            (Suppression::Loss, false, true),
            (Suppression::Throughput, true, true),
        ] {
            let config = ElementConfig { suppression: policy };
            let mut lets = |reported| config.lets_pass(&mut rng, &near, reported);
            assert_eq!(lets(Some(far)), passes_far, "{policy:?}");
            assert_eq!(lets(Some(lossy)), passes_lossy, "{policy:?}");
            let blind = policy == Suppression::None;
            assert_eq!(lets(None), blind, "{policy:?} without a report");
            let same = lets(Some(near));
            assert_eq!(same, blind, "{policy:?} for the same again");
        }
    }

    #[test]
    fn chance_passes_its_share() {
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let config = ElementConfig { suppression: Suppression::Random };
        let passed = Reported::default();
        let count = (0..10_000).filter(|_| config.lets_pass(&mut rng, &passed, None)).count();
        // Standard deviation 50.
        assert!((4750..5250).contains(&count), "{count}");
    }
}
