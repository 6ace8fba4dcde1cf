//! Path length limits, measured with probes (src: RFC 8899 s4.1, s5.3).

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use faircast_base::{Duration, Time};

use super::wire::Probe;
use crate::black_hole::Suspicion;

/// Lengths of the longest packets that arrive and that are sent, with the bytes that drivers add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimit {
    /// Bytes of the longest packet that has arrived.
    pub arrives: u32,
    /// Bytes of the longest packets that are sent.
    pub sent: u32,
}

impl PathLimit {
    /// Returns true if packets get lost because of their length.
    pub const fn is_short(&self) -> bool {
        self.arrives < self.sent
    }

    pub(super) const fn with(self, headers: u32) -> Self {
        Self { arrives: self.arrives + headers, sent: self.sent + headers }
    }

    /// States what arrives and what to do, in at most 120 bytes.
    pub fn advice(&self) -> String {
        let Self { arrives, sent } = self;
        match self.is_short() {
            true => format!(
                "of {sent} bytes a packet only {arrives} arrive: send with --mtu {arrives}, or raise the MTU on the way"
            ),
            false => format!("single packets of {sent} bytes arrive, and no data does"),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct PathMeter {
    suspicion: Suspicion,
    round: Option<Round>,
    /// Bytes of the longest probe that has arrived since the last full-length data packet.
    arrived: u32,
    next_at: Option<Time>,
    pub(super) limit: Option<PathLimit>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    /// Longest length known to arrive, and shortest one to be lost (or limit); 0 while unknown.
    low: u32,
    high: u32,
    /// True if the shortest probe has arrived, so that missing longer probes are lost.
    is_valid: bool,
    sent: u32,
    tries: u32,
    ends_at: Time,
}

impl PathMeter {
    pub(super) fn on_long(&mut self) {
        if self.suspicion.is_raised() || self.limit.is_some() {
            *self = Self::default();
        }
    }

    pub(super) fn on_ahead(&mut self, now: Time) {
        let since = self.suspicion.report(now);
        if self.round.is_none() && self.next_at.is_none() && self.limit.is_none() {
            self.next_at = Some(since + SUSPECT_AFTER);
        }
    }

    /// Takes a probe, unless its range belongs to other members.
    pub(super) fn on_probe(&mut self, now: Time, probe: Probe) {
        let Probe { size, sent, range } = probe;
        let Some(round) = self.round.as_mut().filter(|round| (round.low, round.high) == range)
        else {
            return;
        };
        self.arrived = self.arrived.max(size);
        round.sent = sent;
        if size <= round.low.max(PROBE_MIN) && !round.is_valid {
            round.is_valid = true;
            // The set may have begun late, since another member also requested it.
            round.ends_at = round.ends_at.max(now + ROUND);
        }
    }

    /// Returns the range of probe lengths to request; an upper length of 0 means as long as data.
    pub(super) fn on_timeout(&mut self, now: Time) -> Option<(u32, u32)> {
        if let Some(round) = self.round.filter(|round| round.ends_at <= now) {
            self.judge(now, round);
        }
        self.next_at.take_if(|at| *at <= now)?;
        if !self.suspicion.is_grounded(now, SUSPECT_TOLD, SUSPECT_AFTER) {
            self.next_at = Some(now + SUSPECT_AGAIN);
            return None;
        }
        let ends_at = now + ROUND;
        let round = match self.round {
            Some(round) => Round { is_valid: false, ends_at, ..round },
            None => Round { low: 0, high: 0, is_valid: false, sent: 0, tries: 0, ends_at },
        };
        self.round = Some(round);
        Some((round.low, round.high))
    }

    /// Ends a round: the next round covers the gap above the longest probe that arrived.
    fn judge(&mut self, now: Time, round: Round) {
        if !round.is_valid {
            let tries = round.tries + 1;
            self.round = Some(Round { tries, ..round }).filter(|_| tries < TRIES_MAX);
            self.next_at = Some(if self.round.is_some() { now } else { now + AGAIN_AFTER });
            return;
        }
        let most = round.sent.min(PROBE_MAX);
        let high = if round.high == 0 { most } else { round.high };
        let low = self.arrived.max(round.low);
        if low >= high && high < most {
            // A length that seemed too long arrives: its probes were lost for another reason.
            self.round = Some(Round { low, high: 0, tries: 0, ..round });
            self.next_at = Some(now);
            return;
        }
        let next = rungs(round.low, high).find(|rung| *rung > low).unwrap_or(low);
        if next <= low + 1 {
            let arrives = if low >= most { round.sent } else { low };
            self.limit = Some(PathLimit { arrives, sent: round.sent });
            (self.round, self.arrived) = (None, 0);
            self.next_at = Some(now + AGAIN_AFTER);
            return;
        }
        self.round = Some(Round { low, high: next, tries: 0, ..round });
        self.next_at = Some(now);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let ends_at = self.round.map(|round| round.ends_at);
        [self.next_at, ends_at].into_iter().flatten().min()
    }
}

fn rungs(low: u32, high: u32) -> impl Iterator<Item = u32> {
    let low = low.max(PROBE_MIN);
    let high = high.max(low);
    let step = (high - low).div_ceil(RUNGS).max(1);
    (0..=RUNGS)
        .map(move |rung| low + rung * step)
        .take_while(move |at| *at < high + step)
        .map(move |at| at.min(high))
}

/// Probes of a source: single packets of several lengths, requested by members (RFC 8899).
#[derive(Debug, Default)]
pub(super) struct Probes {
    sizes: VecDeque<u32>,
    range: (u32, u32),
    next_at: Time,
    data_bytes: u32,
    /// Time up to which the probes' share of the rate is spent.
    spent_until: Time,
}

impl Probes {
    pub(super) fn note_data(&mut self, bytes: u32) {
        self.data_bytes = self.data_bytes.max(bytes);
    }

    /// Requests probes for a member. Rejected members ask again.
    pub(super) fn ask(&mut self, now: Time, range: (u32, u32), bits_per_s: Option<f64>) {
        let (low, high) = range;
        let most = self.data_bytes.min(PROBE_MAX);
        let high = if high == 0 { most } else { high.min(most) };
        if !self.sizes.is_empty() || self.spent_until > now + CREDIT || low > high {
            return;
        }
        self.range = range;
        // Each length is sent twice, since packets also get lost for other reasons.
        for _ in 0..2 {
            self.sizes.extend(rungs(low, high));
        }
        // Any host can request probes, so all sets together get a share of the rate.
        let bits = self.sizes.iter().sum::<u32>() * 8;
        let wait =
            |rate: f64| Duration::from_secs_f64(f64::from(bits) / (rate * PROBE_SHARE).max(1.0));
        self.spent_until =
            self.spent_until.max(now) + bits_per_s.map_or(SET_TIME, wait).min(SET_TIME_MAX);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        (!self.sizes.is_empty()).then_some(self.next_at)
    }

    pub(super) fn poll(&mut self, now: Time) -> Option<Probe> {
        if self.next_at > now {
            return None;
        }
        let size = self.sizes.pop_front()?;
        self.next_at = now + SPACING;
        Some(Probe { size, sent: self.data_bytes, range: self.range })
    }
}

/// Time and reports (one a second) without a full-length packet before a loss is suspected.
const SUSPECT_AFTER: Duration = Duration::from_millis(2500);
const SUSPECT_TOLD: u32 = 3;
const SUSPECT_AGAIN: Duration = Duration::from_millis(500);

pub(super) const ROUND: Duration = Duration::from_millis(700);

/// Rounds without an answer before a pause; they exceed the interval between two sets.
const TRIES_MAX: u32 = 10;

const AGAIN_AFTER: Duration = Duration::from_secs(10);

const PROBE_MIN: u32 = 128;
const PROBE_MAX: u32 = 3800;

const RUNGS: u32 = 15;

/// Interval between two probes of a set: a set takes half a round.
const SPACING: Duration = Duration::from_millis(10);

/// Share of the rate for probes, interval of sets at unknown rate, longest interval; chosen.
const PROBE_SHARE: f64 = 0.25;
const SET_TIME: Duration = Duration::from_secs(1);
const SET_TIME_MAX: Duration = Duration::from_secs(5);

/// Longest time of sets sent in advance: at the lowest rates, the sets of two receivers.
const CREDIT: Duration = Duration::from_secs(40);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Returns the probes of a source whose data packets have `data_bytes`.
    fn probes(data_bytes: u32) -> Probes {
        Probes { data_bytes, ..Probes::default() }
    }

    /// Returns the limit measured if packets up to `limit` arrive, and the milliseconds.
    fn measured_at(limit: u32, sent: u32, rate: Option<f64>) -> (Option<PathLimit>, u64) {
        let (mut meter, mut probes) = (PathMeter::default(), probes(sent));
        for ms in 0..20_000 {
            if ms % 1000 == 0 {
                meter.on_ahead(at(ms));
            }
            if meter.next_timeout().is_some_and(|due| due <= at(ms))
                && let Some((low, high)) = meter.on_timeout(at(ms))
            {
                probes.ask(at(ms), (low, high), rate);
            }
            if let Some(probe) = probes.poll(at(ms)).filter(|probe| probe.size <= limit) {
                meter.on_probe(at(ms), probe);
            }
            if let Some(limit) = meter.limit {
                return (Some(limit), ms);
            }
        }
        (None, 20_000)
    }

    fn measured(limit: u32, sent: u32) -> (Option<PathLimit>, u64) {
        measured_at(limit, sent, None)
    }

    #[test]
    fn a_limit_is_measured_at_once_whatever_the_rate() {
        for (rate, most_ms) in [(1e6, 7000), (10e3, 7000)] {
            let (found, ms) = measured_at(1300, 1472, Some(rate));
            assert_eq!(found, Some(PathLimit { arrives: 1300, sent: 1472 }), "{rate}");
            assert!(ms < most_ms, "{rate}: {ms} ms");
        }
    }

    #[test]
    fn probes_have_a_share_of_the_rate_however_often_any_host_asks() {
        for (rate, sent) in [(1e6, 1472), (400e3, 1472), (10e6, 8972)] {
            let (mut probes, mut bytes) = (probes(sent), 0u64);
            for ms in 0..600_000u64 {
                let range = [(0, 0), (700, 1400), (100, 120)][ms as usize % 3];
                probes.ask(at(ms), range, Some(rate));
                bytes += probes.poll(at(ms)).map_or(0, |probe| u64::from(probe.size));
            }
            let share = bytes as f64 * 8.0 / 600.0 / rate;
            assert!(share < 0.3, "{share} of {rate} bit/s");
        }
    }

    #[test]
    fn receivers_with_different_limits_measure_beside_each_other() {
        let limits = [1300, 1310, 1400, 576, 1000];
        let (mut meters, mut probes) = (limits.map(|_| PathMeter::default()), probes(1472));
        for ms in 0..60_000 {
            let probe = probes.poll(at(ms));
            for (meter, limit) in meters.iter_mut().zip(limits) {
                if let Some(probe) = probe.filter(|probe| probe.size <= limit) {
                    meter.on_probe(at(ms), probe);
                }
                if ms % 1000 == 0 {
                    meter.on_ahead(at(ms));
                }
                if meter.limit.is_none()
                    && meter.next_timeout().is_some_and(|due| due <= at(ms))
                    && let Some(range) = meter.on_timeout(at(ms))
                {
                    probes.ask(at(ms), range, Some(10e6));
                }
            }
        }
        let found = meters.map(|meter| meter.limit.map(|limit| limit.arrives));
        assert_eq!(found, limits.map(Some));
    }

    #[test]
    fn every_limit_is_measured_to_the_byte_within_seconds() {
        for limit in (PROBE_MIN..1472).step_by(7).chain([576, 1280, 1400, 1471, 1472]) {
            let (found, ms) = measured(limit, 1472);
            assert_eq!(found, Some(PathLimit { arrives: limit, sent: 1472 }), "{limit}");
            assert!(ms < 7000, "{limit}: {ms} ms");
        }
        let (found, _) = measured(9000, 8972);
        assert!(!found.unwrap().is_short(), "longer ones are not probed");
        assert_eq!(measured(8000, 8972).0.unwrap().arrives, 8972, "longer ones are not probed");
        assert_eq!(measured(100, 1472).0, None, "nothing arrives");
    }

    #[test]
    fn a_length_whose_probes_were_lost_by_chance_is_no_limit() {
        let (mut meter, mut probes) = (PathMeter::default(), probes(1472));
        for ms in 0..10_000 {
            if ms % 1000 == 0 {
                meter.on_ahead(at(ms));
            }
            if meter.next_timeout().is_some_and(|due| due <= at(ms))
                && let Some(range) = meter.on_timeout(at(ms))
            {
                probes.ask(at(ms), range, None);
            }
            let lost = |size| size > 1300 && ms < 3200;
            if let Some(probe) = probes.poll(at(ms)).filter(|probe| !lost(probe.size)) {
                meter.on_probe(at(ms), probe);
            }
        }
        assert_eq!(meter.limit, Some(PathLimit { arrives: 1472, sent: 1472 }));
    }

    #[test]
    fn a_long_packet_ends_all_suspicion() {
        let mut meter = PathMeter::default();
        meter.on_ahead(at(0));
        meter.on_ahead(at(1000));
        meter.on_long();
        assert_eq!(meter.next_timeout(), None);
        for s in 2..5 {
            meter.on_ahead(at(s * 1000));
        }
        assert_eq!(meter.next_timeout(), Some(at(4500)));
        assert_eq!(meter.on_timeout(at(4500)), Some((0, 0)));
    }

    #[test]
    fn advice_fits_into_a_message() {
        let limit = PathLimit { arrives: 65_507, sent: 65_535 };
        assert!(limit.advice().len() <= 120, "{}", limit.advice());
    }
}
