//! Which packets were asked for, from where, and how far the asking has come.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use faircast_base::{Cx, Seq, Time};

use super::ElementConfig;
use crate::relay::PortId;
use crate::relay::suppression::{Claim, Passed};
use crate::schemes::pgmcc::PgmccReport;
use crate::wire::pgm::Nak;

/// How many packets of one session can be asked for at a time. NAKs for more are neither confirmed
/// nor passed on; their senders repeat them.
const REPAIRS_MAX: usize = 8192;

/// How many ports one repair can be sent to; more than a router has. NAKs from further ports are
/// confirmed and their repair does not come; their senders repeat them.
const PORTS_MAX: usize = 256;

/// The state of all repairs of one session.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    states: BTreeMap<u32, State>,
    /// Each state once, by when something is due.
    timers: BTreeSet<(Time, u32)>,
}

/// One NAK for one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) port: PortId,
    pub(super) nak: Nak,
    pub(super) report: Option<PgmccReport>,
    pub(super) claim: Option<Claim>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    ports: Vec<PortId>,
    nak: Nak,
    report: Option<(PgmccReport, Time)>,
    passed: Passed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A NAK went up; it is repeated until it is confirmed.
    Pending { repeat_at: Time, until: Time },
    /// It was confirmed; the repair is to come.
    Outstanding { eliminates_until: Time, until: Time },
}

/// What the passing of time has brought.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Packets to ask for again, in runs that ascend.
    pub(super) repeat: Vec<Seq>,
    /// A NAK was given up.
    pub(super) unconfirmed: bool,
    /// A repair was given up.
    pub(super) unrepaired: bool,
}

impl Phase {
    fn pending(now: Time, config: &ElementConfig) -> Self {
        Self::Pending { repeat_at: now + config.nak_interval, until: now + config.nak_repeat }
    }

    fn due(self) -> Time {
        match self {
            Self::Pending { repeat_at, until } => repeat_at.min(until),
            Self::Outstanding { until, .. } => until,
        }
    }
}

impl Repairs {
    /// Takes a NAK for `seq`. Whether it passes; `None` where there is no room for it.
    pub(super) fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        config: &ElementConfig,
        seq: Seq,
        ask: Ask,
    ) -> Option<bool> {
        let now = cx.now;
        let Some(state) = self.states.get_mut(&seq.value()) else {
            return self.begin(now, config, seq, ask);
        };
        if !state.ports.contains(&ask.port) && state.ports.len() < PORTS_MAX {
            state.ports.push(ask.port);
        }
        let eliminated = match state.phase {
            Phase::Pending { .. } => true,
            Phase::Outstanding { eliminates_until, .. } => now < eliminates_until,
        };
        let passes = !eliminated
            || config.suppression.lets_pass(cx.rng, &state.passed, ask.claim, config.loss_change);
        if passes {
            state.passed.note(ask.claim);
            state.nak = ask.nak;
            state.report = ask.report.map(|report| (report, now)).or(state.report);
        }
        if !eliminated {
            self.set(seq, Phase::pending(now, config));
        }
        Some(passes)
    }

    /// The first NAK for a packet makes its state and passes.
    fn begin(&mut self, now: Time, config: &ElementConfig, seq: Seq, ask: Ask) -> Option<bool> {
        if self.states.len() == REPAIRS_MAX {
            return None;
        }
        let mut passed = Passed::default();
        passed.note(ask.claim);
        let phase = Phase::pending(now, config);
        let report = ask.report.map(|report| (report, now));
        let state = State { phase, ports: vec![ask.port], nak: ask.nak, report, passed };
        self.states.insert(seq.value(), state);
        self.timers.insert((phase.due(), seq.value()));
        Some(true)
    }

    /// A confirmation has come from above; without a NAK of ours it foretells a repair. `false`
    /// where there is no room for it.
    pub(super) fn confirm(
        &mut self,
        now: Time,
        config: &ElementConfig,
        seq: Seq,
        nak: Nak,
    ) -> bool {
        let phase = Phase::Outstanding {
            eliminates_until: now + config.elimination,
            until: now + config.repair_wait,
        };
        if self.states.contains_key(&seq.value()) {
            self.set(seq, phase);
            return true;
        }
        if self.states.len() == REPAIRS_MAX {
            return false;
        }
        let passed = Passed::default();
        let state = State { phase, ports: Vec::new(), nak, report: None, passed };
        self.states.insert(seq.value(), state);
        self.timers.insert((phase.due(), seq.value()));
        true
    }

    /// The repair has come: where it goes. `None` where nobody knows of it.
    pub(super) fn finish(&mut self, seq: Seq) -> Option<Vec<PortId>> {
        let state = self.states.remove(&seq.value())?;
        self.timers.remove(&(state.phase.due(), seq.value()));
        Some(state.ports)
    }

    /// The latest NAK that passed for `seq`, and its report with when it came.
    pub(super) fn latest(&self, seq: Seq) -> Option<(Nak, Option<(PgmccReport, Time)>)> {
        self.states.get(&seq.value()).map(|state| (state.nak, state.report))
    }

    /// Handles all timers that have run out.
    pub(super) fn expire(&mut self, now: Time, config: &ElementConfig) -> Expired {
        let mut expired = Expired::default();
        while let Some(&(due, value)) = self.timers.first()
            && due <= now
        {
            let seq = Seq::new(value);
            match self.states.get(&value).expect("every timer is a state's").phase {
                Phase::Pending { until, .. } if now < until => {
                    expired.repeat.push(seq);
                    self.set(seq, Phase::Pending { repeat_at: now + config.nak_interval, until });
                }
                Phase::Pending { .. } => {
                    expired.unconfirmed = true;
                    self.finish(seq);
                }
                Phase::Outstanding { .. } => {
                    expired.unrepaired = true;
                    self.finish(seq);
                }
            }
        }
        // By value, because serial order is total only within half the number space, and NAKs may
        // name anything.
        expired.repeat.sort_by_key(|seq| seq.value());
        expired
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|&(due, _)| due)
    }

    fn set(&mut self, seq: Seq, phase: Phase) {
        let state = self.states.get_mut(&seq.value()).expect("only known states change");
        self.timers.remove(&(state.phase.due(), seq.value()));
        self.timers.insert((phase.due(), seq.value()));
        state.phase = phase;
    }
}
