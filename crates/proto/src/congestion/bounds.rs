//! Rate bounds of a sender: the rate cap, and the floor below which no scheme takes the rate.

use faircast_base::{Bitrate, Duration, Time};

use super::{Pace, Permit};

/// Operator's rate bounds, none by default: `rate_max` caps the rate, `rate_min` overrides the
/// scheme. If they contradict, the cap wins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Rate cap: highest rate of payload, repairs and packets without payload.
    pub cap: Option<Bitrate>,
    /// Lowest rate of payload while there is data to send, even if the scheme allows less.
    pub floor: Option<Bitrate>,
}

/// Lowest limit that receivers can set: about one packet a second.
const RECEIVER_LIMIT_MIN: Bitrate = Bitrate::from_bits_per_s(16_000);

/// Pacers of a sender's rate bounds. The rate cap is the operator's or the receivers' limit,
/// whichever is lower.
#[derive(Debug)]
pub(super) struct BoundPacers {
    bounds: Bounds,
    cap: Option<Pace>,
    floor: Option<Pace>,
    /// True if the cap, not the scheme, limited the latest permit.
    is_capped: bool,
}

impl BoundPacers {
    pub(super) fn new(bounds: Bounds) -> Self {
        let cap = bounds.cap.map(|rate| pace(rate, Pace::BURST));
        let floor = bounds.floor.map(|rate| pace(rate, Duration::ZERO));
        Self { bounds, cap, floor, is_capped: false }
    }

    pub(super) fn is_capped(&self) -> bool {
        self.is_capped
    }

    /// Returns the scheme's permit within the bounds. An earlier permit sends sooner: the floor
    /// takes the earlier one, the cap the later one.
    pub(super) fn permit(&mut self, now: Time, scheme: Permit) -> Permit {
        let floored = self.floor.as_ref().map_or(scheme, |floor| scheme.min(floor.permit(now)));
        let Some(cap) = &self.cap else {
            self.is_capped = false;
            return floored;
        };
        let capped = cap.permit(now);
        self.is_capped = capped > floored;
        floored.max(capped)
    }

    /// Returns when a packet without payload may leave.
    pub(super) fn permit_overhead(&self, now: Time) -> Permit {
        self.cap.as_ref().map_or(Permit::Now, |cap| cap.permit(now))
    }

    /// Charges a packet with `bytes` of payload.
    pub(super) fn charge(&mut self, now: Time, bytes: u32) {
        self.charge_overhead(now, bytes);
        if let Some(floor) = &mut self.floor {
            floor.restart(now, bytes);
        }
    }

    /// Charges a packet of `bytes` without payload, which counts for the cap only.
    pub(super) fn charge_overhead(&mut self, now: Time, bytes: u32) {
        if let Some(cap) = &mut self.cap {
            cap.spend(now, bytes);
        }
    }

    /// Sets the receivers' rate limit. Returns true if it is below the operator's cap.
    pub(super) fn set_receiver_limit(&mut self, now: Time, limit: Option<Bitrate>) -> bool {
        // Anybody can announce a limit, so no limit goes below the floor.
        let limit_min =
            self.bounds.floor.map_or(RECEIVER_LIMIT_MIN, |floor| floor.max(RECEIVER_LIMIT_MIN));
        let limit = limit.map(|limit| limit.max(limit_min));
        let rate = limit.into_iter().chain(self.bounds.cap).min();
        match (&mut self.cap, rate) {
            (Some(cap), Some(rate)) => cap.set(now, rate.bits_per_s() as f64),
            (cap, rate) => *cap = rate.map(|rate| pace(rate, Pace::BURST)),
        }
        limit.is_some_and(|limit| self.bounds.cap.is_none_or(|cap| limit < cap))
    }
}

fn pace(rate: Bitrate, burst: Duration) -> Pace {
    Pace::new(rate.bits_per_s() as f64, burst)
}
