//! A rate that a person sets above or below what a scheme wants.

use faircast_base::{Bitrate, Duration, Time};

use crate::congestion::{Pace, Permit};

/// Bounds that a person sets to a sending rate; none unless set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Most payload, repairs too, and packets without payload.
    pub max: Option<Bitrate>,
    /// Least payload while there is any to send, whatever the scheme says.
    pub min: Option<Bitrate>,
}

/// The least to which receivers can limit a sender: about a packet a second.
const LIMIT_MIN: Bitrate = Bitrate::from_bits_per_s(16_000);

/// Bounds at work beside a control: never faster than the one rate, never slower than the other. Where
/// they contradict each other the upper one holds.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    bounds: Bounds,
    max: Option<Pace>,
    min: Option<Pace>,
    /// Whether the upper bound, and not the control, held back what was to leave last.
    capped: bool,
}

impl Bounded {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            max: bounds.max.map(|rate| pace(rate, Pace::BURST)),
            // It is there for when the scheme says no, so nothing is saved up for it.
            min: bounds.min.map(|rate| pace(rate, Duration::ZERO)),
            capped: false,
        }
    }

    /// What is left of a permit of the control.
    pub(super) fn permit(&mut self, now: Time, own: Permit) -> Permit {
        let permit = self.min.as_ref().map_or(own, |min| own.min(min.permit(now)));
        let Some(max) = &self.max else { return permit };
        let bound = max.permit(now);
        self.capped = bound > permit;
        permit.max(bound)
    }

    /// Whether a packet without data may leave now.
    pub(super) fn permit_overhead(&self, now: Time) -> Permit {
        self.max.as_ref().map_or(Permit::Now, |max| max.permit(now))
    }

    /// Data of `len` bytes leaves.
    pub(super) fn on_leaving(&mut self, now: Time, len: u32) {
        self.on_overhead(now, len);
        if let Some(min) = &mut self.min {
            min.restart(now, len);
        }
    }

    /// A packet of `bytes` without data leaves.
    pub(super) fn on_overhead(&mut self, now: Time, bytes: u32) {
        if let Some(max) = &mut self.max {
            max.spend(now, bytes);
        }
    }

    /// Receivers ask for no more than this, or for nothing of the kind. Returns whether it is less
    /// than the upper bound.
    pub(super) fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool {
        // Anybody can announce one: it brings nobody below the lower bound.
        let least = self.bounds.min.map_or(LIMIT_MIN, |min| min.max(LIMIT_MIN));
        let limit = limit.map(|limit| limit.max(least));
        let rate = limit.into_iter().chain(self.bounds.max).min();
        match (&mut self.max, rate) {
            (Some(max), Some(rate)) => max.set(now, rate.bits_per_s() as f64),
            (max, rate) => *max = rate.map(|rate| pace(rate, Pace::BURST)),
        }
        limit.is_some_and(|limit| self.bounds.max.is_none_or(|max| limit < max))
    }

    pub(super) fn is_capped(&self) -> bool {
        self.capped
    }
}

fn pace(rate: Bitrate, burst: Duration) -> Pace {
    Pace::new(rate.bits_per_s() as f64, burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_holds_whatever_the_control_says() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let bounds = Bounds { min: Some(Bitrate::from_bits_per_s(8_000_000)), max: None };
        for own in [Permit::At(at(8000)), Permit::Blocked] {
            let mut bounded = Bounded::new(bounds);
            bounded.on_leaving(at(0), 1000);
            assert_eq!(bounded.permit(at(0), own), Permit::At(at(1)));
            assert_eq!(bounded.permit(at(1), own), Permit::Now);
        }
    }
}
