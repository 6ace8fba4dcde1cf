//! Feedback rounds, the largest round trip (R_max), and the timestamps to echo (RFC 4654 s3.5).

use alloc::collections::VecDeque;

use faircast_base::{Duration, NodeId, Time};

use super::{Echo, FEEDBACK_ROUND, RTT_MAX_INITIAL, TfmccReport};

/// Minimum R_max, the least that the RFC's format can express (src: RFC 4654 s2.2.1).
const RTT_MAX_LEAST: Duration = Duration::from_millis(1);

/// Share of R_max left by a feedback round without a longer round trip (src: RFC 4654 s3.2).
const RTT_MAX_DECAY: f64 = 0.9;

/// Margin by which a rate must be lower to escape suppression (g; src: RFC 4654 s3.4).
const SUPPRESSION_MARGIN: f64 = 0.1;

/// Clock granularity, added to the packet interval as minimum R_max (src: RFC 4654 s3.2: ts_gran).
const CLOCK_GRANULARITY: Duration = Duration::from_millis(10);

/// Rise of R_max that needs confirmation, as a factor, and the minimum time until the confirmation.
const RAISE_FACTOR: u64 = 2;
const RAISE_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default)]
pub(super) struct Rounds {
    /// Number of the feedback round (fb_nr).
    pub(super) number: u8,
    start: Time,
    /// Length of the feedback round (T).
    pub(super) span: Duration,
    has_report: bool,
    /// Rate in bits per second above which receivers need not report (X_supp).
    pub(super) suppress_above: f32,
    /// Largest reported round trip. The announced R_max is at least the packet interval.
    rtt_max: Duration,
    /// Unconfirmed rise beyond twice `rtt_max`.
    raised: Option<Raised>,
    /// Last confirmed rise of `rtt_max`, until one of its two receivers reports again.
    rise: Option<Rise>,
    peak: Option<Duration>,
    /// True while `rtt_max` is the initial guess.
    guessed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Raised {
    by: NodeId,
    rtt: Duration,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Rise {
    by: [NodeId; 2],
    before: Duration,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self {
            has_report: true,
            suppress_above: f32::MAX,
            rtt_max: RTT_MAX_INITIAL,
            guessed: true,
            ..Self::default()
        }
    }

    pub(super) fn announced_rtt_max(&self, packet_gap: Duration) -> Duration {
        let raised = self.raised.map_or(Duration::ZERO, |raised| raised.rtt);
        self.rtt_max(packet_gap).max(raised)
    }

    /// Returns the confirmed R_max at this packet interval. deviates: no 10 ms more, for LANs.
    pub(super) fn rtt_max(&self, packet_gap: Duration) -> Duration {
        self.measured_rtt_max().max(packet_gap + CLOCK_GRANULARITY.min(packet_gap))
    }

    pub(super) fn measured_rtt_max(&self) -> Duration {
        self.rtt_max.max(RTT_MAX_LEAST)
    }

    /// Begins the next round if this one is over: after T if others than the CLR reported, else
    /// with the first such report, at the latest after 2T (src: RFC 4654 s3.4).
    pub(super) fn advance(&mut self, now: Time, packet_gap: Duration) {
        let age = now.since(self.start);
        if age >= self.span * 2 || age >= self.span && self.has_report {
            self.begin(now, packet_gap);
        }
    }

    pub(super) fn begin(&mut self, now: Time, packet_gap: Duration) {
        if let Some(peak) = self.peak.take() {
            // src: RFC 4654 s3.2. deviates: the guess of 500 ms drops at once, for fast growth.
            let rest = if self.guessed { 0.0 } else { RTT_MAX_DECAY };
            self.rtt_max = self.rtt_max.mul_f64(rest).max(peak);
            self.guessed = false;
        }
        let forgotten =
            |raised: &Raised| now.since(raised.at) >= raised.rtt * FEEDBACK_ROUND + RAISE_AFTER;
        self.raised = self.raised.filter(|raised| !forgotten(raised));
        self.number = self.number.wrapping_add(1);
        self.start = now;
        self.span = self.announced_rtt_max(packet_gap) * FEEDBACK_ROUND;
        (self.has_report, self.suppress_above) = (false, f32::MAX);
    }

    /// Processes a reported round trip. deviates: the RFC takes the largest at once: a host that
    /// pauses for 2 s on a path of 40 ms would slow growth for minutes. A rise beyond twice R_max
    /// is announced at once, so that no short round suppresses reports, but counts only when
    /// reported again later. The same receiver's next report withdraws it.
    pub(super) fn measured(&mut self, now: Time, by: NodeId, rtt: Duration, packet_gap: Duration) {
        let mut believed = rtt;
        if let Some(rise) = self.rise.take_if(|rise| rise.by.contains(&by))
            && rtt <= rise.before * RAISE_FACTOR
        {
            self.rtt_max = self.rtt_max.min(rise.before);
            self.peak = None;
            self.span = self.span.min(self.rtt_max(packet_gap) * FEEDBACK_ROUND);
        }
        if rtt > self.measured_rtt_max() * RAISE_FACTOR {
            match self.raised {
                Some(raised) if now.since(raised.at) >= RAISE_AFTER => {
                    believed = rtt.min(raised.rtt);
                    self.rise = Some(Rise { by: [raised.by, by], before: self.rtt_max });
                    self.raised = None;
                }
                Some(raised) if raised.rtt >= rtt => return,
                raised => {
                    let at = raised.map_or(now, |raised| raised.at);
                    self.raised = Some(Raised { by, rtt, at });
                    return;
                }
            }
        } else if self.raised.is_some_and(|raised| raised.by == by) {
            self.raised = None;
            let span = self.rtt_max(packet_gap) * FEEDBACK_ROUND;
            self.span = self.span.min(span);
        }
        self.peak = Some(self.peak.unwrap_or(believed).max(believed));
        self.rtt_max = self.rtt_max.max(believed);
    }

    pub(super) fn on_other_report(&mut self, bits_per_s: f32) {
        self.has_report = true;
        if bits_per_s < self.suppress_above {
            // src: RFC 4654 s3.4: others report only rates lower by the margin. Zero is not valid.
            let lower = (f64::from(bits_per_s) * (1.0 - SUPPRESSION_MARGIN)) as f32;
            self.suppress_above = lower.max(f32::MIN_POSITIVE);
        }
    }
}

/// Most queued timestamps. Suppression admits some tens of reports a round, which has more packets.
pub(super) const ECHOES_MAX: usize = 64;

/// Timestamps to echo, the most urgent first.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes(pub(super) VecDeque<Waiting>);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) receiver: NodeId,
    pub(super) at: Time,
    pub(super) report: TfmccReport,
}

impl Waiting {
    /// True if this goes first: no round trip, older rounds, lower rates (src: RFC 4654 s3.5).
    fn before(&self, other: &Self) -> bool {
        let (this, other) = (&self.report, &other.report);
        if this.have_rtt != other.have_rtt {
            return !this.have_rtt;
        }
        let newer = this.round.wrapping_sub(other.round) as i8;
        newer < 0 || newer == 0 && this.bits_per_s < other.bits_per_s
    }

    pub(super) fn echo(&self, now: Time, is_clr: bool) -> Echo {
        let held_us = (now.since(self.at).as_nanos() / 1000) as u32;
        Echo { receiver: self.receiver, is_clr, stamp_us: self.report.sent_us, held_us }
    }
}

impl Echoes {
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.forget(waiting.receiver);
        let index = self.0.partition_point(|other| !waiting.before(other));
        self.0.insert(index, waiting);
        self.0.truncate(ECHOES_MAX);
    }

    pub(super) fn forget(&mut self, receiver: NodeId) {
        self.0.retain(|waiting| waiting.receiver != receiver);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::at;

    const GAP: Duration = Duration::from_millis(5);

    fn measure(rounds: &mut Rounds, at_ms: u64, by: u32, rtt_ms: u64) {
        let rtt = Duration::from_millis(rtt_ms);
        rounds.measured(at(at_ms), NodeId(by), rtt, GAP);
    }

    fn rounds() -> Rounds {
        let mut rounds = Rounds::new();
        measure(&mut rounds, 9_000, 1, 100);
        rounds.begin(at(10_000), GAP);
        rounds
    }

    #[test]
    fn a_round_ends_after_t_if_somebody_reported_and_after_2t_if_nobody_did() {
        let mut rounds = rounds();
        let number = rounds.number;
        rounds.advance(at(11_199), GAP);
        assert_eq!(rounds.number, number);
        rounds.advance(at(11_200), GAP);
        assert_eq!(rounds.number, number + 1, "2T of 600 ms");
        rounds.on_other_report(1e6);
        rounds.advance(at(11_799), GAP);
        assert_eq!(rounds.number, number + 1);
        rounds.advance(at(11_800), GAP);
        assert_eq!(rounds.number, number + 2, "T");
        rounds.advance(at(12_500), GAP);
        rounds.on_other_report(1e6);
        rounds.advance(at(12_501), GAP);
        assert_eq!(rounds.number, number + 3, "the first report after T ends it");
    }

    #[test]
    fn a_report_suppresses_all_but_clearly_lower_rates() {
        let mut rounds = rounds();
        assert_eq!(rounds.suppress_above, f32::MAX);
        for (reported, above) in [(1e6, 9e5), (9.5e5, 9e5), (8e5, 7.2e5)] {
            rounds.on_other_report(reported);
            assert!((rounds.suppress_above - above).abs() < 1.0, "{reported}");
        }
        rounds.begin(at(20_000), GAP);
        assert_eq!(rounds.suppress_above, f32::MAX);
        rounds.on_other_report(f32::MIN_POSITIVE / 8.0);
        assert!(rounds.suppress_above > 0.0);
    }

    #[test]
    fn the_largest_round_trip_rises_at_once_and_falls_by_a_tenth_a_round() {
        let mut rounds = rounds();
        let ms = |rounds: &Rounds| rounds.measured_rtt_max().as_millis();
        assert_eq!(ms(&rounds), 100, "the guess is gone");
        measure(&mut rounds, 10_500, 1, 200);
        assert_eq!(ms(&rounds), 200);
        rounds.begin(at(11_000), GAP);
        assert_eq!(ms(&rounds), 200, "it was this round's");
        rounds.begin(at(12_000), GAP);
        assert_eq!(ms(&rounds), 200, "nobody told anything");
        for want in [180, 162, 160] {
            measure(&mut rounds, 12_500, 1, 160);
            rounds.begin(at(13_000), GAP);
            assert_eq!(ms(&rounds), want);
        }
        let long = Duration::from_secs(8);
        assert_eq!(rounds.rtt_max(long), long + Duration::from_millis(10));
    }

    #[test]
    fn a_much_larger_one_is_announced_at_once_and_believed_when_it_is_told_again() {
        let ms = |rounds: &Rounds| {
            let announced = rounds.announced_rtt_max(GAP).as_millis();
            (rounds.rtt_max(GAP).as_millis(), announced)
        };
        let mut paused = rounds();
        measure(&mut paused, 10_100, 1, 2_000);
        measure(&mut paused, 10_140, 1, 1_960);
        measure(&mut paused, 10_200, 2, 90);
        assert_eq!(ms(&paused), (100, 2_000));
        paused.begin(at(10_700), GAP);
        assert_eq!((ms(&paused), paused.span.as_millis()), ((90, 2_000), 12_000));
        measure(&mut paused, 10_800, 1, 95);
        assert_eq!((ms(&paused), paused.span.as_millis()), ((95, 95), 540));
        let mut far = rounds();
        measure(&mut far, 10_100, 1, 800);
        measure(&mut far, 10_599, 1, 810);
        assert_eq!(ms(&far), (100, 810));
        measure(&mut far, 10_600, 3, 805);
        assert_eq!(ms(&far), (805, 805));
        for (by, rtt, want) in [(1, 110, (110, 110)), (3, 790, (805, 805)), (4, 90, (805, 805))] {
            let mut far = far.clone();
            measure(&mut far, 11_700, by, rtt);
            assert_eq!(ms(&far), want, "{by} measures {rtt} ms");
            measure(&mut far, 11_800, 3, 90);
            assert_eq!(ms(&far).0, if by == 4 { 100 } else { want.0 }, "{by} measured {rtt} ms");
        }
        let mut gone = rounds();
        measure(&mut gone, 10_100, 1, 800);
        gone.begin(at(15_399), GAP);
        assert_eq!(ms(&gone), (100, 800));
        gone.begin(at(15_400), GAP);
        assert_eq!(ms(&gone), (100, 100));
    }

    fn waiting(receiver: u32, have_rtt: bool, round: u8, bits_per_s: f32) -> Waiting {
        let report = TfmccReport { have_rtt, round, bits_per_s, ..TfmccReport::default() };
        Waiting { receiver: NodeId(receiver), at: Time::ZERO, report }
    }

    #[test]
    fn receivers_without_a_round_trip_come_first_then_the_slow() {
        let mut echoes = Echoes::default();
        for w in [
            waiting(1, true, 5, 10.0),
            waiting(2, true, 4, 5.0),
            waiting(3, false, 0, 30.0),
            waiting(4, false, 255, 40.0),
            waiting(5, false, 0, 20.0),
            waiting(2, true, 5, 50.0),
            waiting(6, true, 4, 60.0),
        ] {
            echoes.push(w);
        }
        let order = core::iter::from_fn(|| echoes.0.pop_front().map(|w| w.receiver.0));
        assert!(order.eq([4, 5, 3, 6, 1, 2]));
    }

    #[test]
    fn beyond_the_limit_the_least_urgent_is_dropped() {
        let mut echoes = Echoes::default();
        for k in (0..1000).rev() {
            echoes.push(waiting(k, true, 0, k as f32));
        }
        assert_eq!(echoes.0.len(), ECHOES_MAX);
        assert_eq!(echoes.0.pop_front().map(|w| w.receiver), Some(NodeId(0)));
    }
}
