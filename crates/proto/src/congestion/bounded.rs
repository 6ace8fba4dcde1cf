//! A rate that a person sets above or below what a scheme wants.

use faircast_base::{Bitrate, Cx, Duration, NodeId, Seq, Time};

use crate::congestion::Pace;
use crate::congestion::{Carrier, Gauges, Permit, Regime, SenderControl};

/// Bounds that a person sets to a sending rate; none unless set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Most payload, repairs too, and packets without payload.
    pub max: Option<Bitrate>,
    /// Least payload while there is any to send, whatever the scheme says.
    pub min: Option<Bitrate>,
}

/// A control within bounds: never faster than the one rate, never slower than the other. Without
/// bounds it is the control itself.
#[derive(Clone, Debug)]
pub struct Bounded<C> {
    control: C,
    bounds: Bounds,
    max: Option<Pace>,
    min: Option<Pace>,
    /// Whether the upper bound, and not the control, held back what was to leave last.
    capped: bool,
}

impl<C> Bounded<C> {
    /// `control` within `bounds`. Where they contradict each other the upper one holds.
    pub fn new(control: C, bounds: &Bounds) -> Self {
        Self {
            control,
            bounds: *bounds,
            max: bounds.max.map(|rate| pace(rate, BURST)),
            // It is there for when the scheme says no, so nothing is saved up for it.
            min: bounds.min.map(|rate| pace(rate, Duration::ZERO)),
            capped: false,
        }
    }

    /// The control within.
    pub fn inner(&self) -> &C {
        &self.control
    }
}

fn pace(rate: Bitrate, burst: Duration) -> Pace {
    Pace::new(rate.bits_per_s() as f64, burst)
}

/// The least to which receivers can limit a sender: about a packet a second.
const LIMIT_MIN: Bitrate = Bitrate::from_bits_per_s(16_000);

/// How far behind an even pace is caught up with: timers of real systems wake some milliseconds
/// late.
const BURST: Duration = Duration::from_millis(4);

impl<C: SenderControl> Bounded<C> {
    fn on_leaving(&mut self, now: Time, len: u32) {
        if let Some(max) = &mut self.max {
            max.spend(now, len);
        }
        if let Some(min) = &mut self.min {
            min.restart(now, len);
        }
    }
}

impl<C: SenderControl> SenderControl for Bounded<C> {
    type Announce = C::Announce;
    type Report = C::Report;

    fn permit(&mut self, cx: &mut Cx<'_>, len: u32, repair: bool) -> Permit {
        let own = self.control.permit(cx, len, repair);
        let mut permit = own;
        if let Some(min) = &self.min {
            permit = permit.min(min.permit(cx.now));
        }
        if let Some(max) = &self.max {
            let bound = max.permit(cx.now);
            self.capped = bound > permit;
            permit = permit.max(bound);
            if self.capped && own == Permit::Now {
                // What a path was never asked for it has not granted: a window that grew on would
                // take many losses to be felt when others come.
                self.control.on_idle(cx);
            }
        }
        permit
    }

    fn on_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> C::Announce {
        self.on_leaving(cx.now, len);
        self.control.on_sent(cx, seq, len)
    }

    fn on_repair_sent(&mut self, cx: &mut Cx<'_>, seq: Seq, len: u32) -> Option<C::Announce> {
        self.on_leaving(cx.now, len);
        self.control.on_repair_sent(cx, seq, len)
    }

    fn permit_overhead(&self, now: Time) -> Permit {
        self.max.as_ref().map_or(Permit::Now, |max| max.permit(now))
    }

    fn on_overhead(&mut self, now: Time, bytes: u32) {
        if let Some(max) = &mut self.max {
            max.spend(now, bytes);
        }
    }

    fn on_report(&mut self, cx: &mut Cx<'_>, from: NodeId, carrier: Carrier, report: &C::Report) {
        self.control.on_report(cx, from, carrier, report);
    }

    fn on_leave(&mut self, cx: &mut Cx<'_>, from: NodeId) {
        self.control.on_leave(cx, from);
    }

    fn on_heard(&mut self, cx: &mut Cx<'_>) {
        self.control.on_heard(cx);
    }

    fn on_idle(&mut self, cx: &mut Cx<'_>) {
        self.control.on_idle(cx);
    }

    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool {
        // Anybody can announce one: it brings nobody below the lower bound.
        let least = self.bounds.min.map_or(LIMIT_MIN, |min| min.max(LIMIT_MIN));
        let limit = limit.map(|limit| limit.max(least));
        let rate = limit.into_iter().chain(self.bounds.max).min();
        match (&mut self.max, rate) {
            (Some(max), Some(rate)) => max.set(now, rate.bits_per_s() as f64),
            (max, rate) => *max = rate.map(|rate| pace(rate, BURST)),
        }
        limit.is_some_and(|limit| self.bounds.max.is_none_or(|max| limit < max))
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        self.control.on_timeout(cx);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.control.next_timeout()
    }

    fn round_trip(&self, now: Time, report: &C::Report) -> Option<Duration> {
        self.control.round_trip(now, report)
    }

    fn reporter(report: &C::Report) -> Option<NodeId> {
        C::reporter(report)
    }

    fn gauges(&self) -> Gauges {
        let gauges = self.control.gauges();
        if self.capped { Gauges { regime: Regime::Cap, ..gauges } } else { gauges }
    }
}
