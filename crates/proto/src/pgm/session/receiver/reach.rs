//! Plausible sequence numbers of original data, from the rate of the source.

use faircast_base::{Duration, Time};

use super::dissent::Dissent;

/// Newest believed original, and contradicting packets. Numbers beyond the rate are doubted.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    pub(crate) newest: u64,
    at: Time,
    /// Number up to which nothing is taken back, and steps since a jump; see [`SOLID_STEPS`].
    solid: Option<u64>,
    steps: u32,
    /// Start of the present rate measurement, and rate in packets per second.
    mark: (Time, u64),
    rate: f64,
    ahead: Dissent<Run>,
    behind: Dissent<Run>,
    /// Leads that are too far ahead, and the last believed lead.
    leads: Dissent<u64>,
    lead: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    Believed,
    /// The source cannot have sent it, unless further packets confirm it.
    Doubted,
    /// The source is behind the believed number, and continues from this one.
    Rewound(u64),
}

impl Reach {
    pub(crate) fn new(now: Time, newest: u64) -> Self {
        Self { newest, at: now, mark: (now, newest), ..Self::default() }
    }

    pub(crate) fn go_back(&mut self, now: Time, newest: u64) {
        self.solid = self.solid.map(|solid| solid.min(newest));
        self.jump(now, newest);
    }

    /// Judges original `index`. `open` is true if it may prove that the source is behind `newest`.
    pub(crate) fn take(&mut self, now: Time, index: u64, open: bool) -> Belief {
        let goes_on = |run: &Run| index > run.last && index <= run.last + FREE_PACKETS;
        if index > self.newest && self.can_be(now, index) {
            self.advance(now, index);
            return Belief::Believed;
        }
        // Near a believed lead, doubt would delay a slow source by several packets.
        let follows_lead = self.lead.is_some_and(|lead| index.abs_diff(lead) <= FREE_PACKETS);
        if index > self.newest && follows_lead {
            self.jump(now, index);
            return Belief::Believed;
        }
        let wait = self.wait();
        if index <= self.newest {
            // A source continues from its newest packet: this one or the newest is forged or late.
            self.steps = 0;
            let before = self.behind.get().filter(|run| goes_on(run));
            let first = before.map_or(index, |run| run.first);
            let run = Run { first, last: index };
            let open = open && self.solid.is_none_or(|solid| index > solid);
            if !open || !self.behind.claim(now, run, wait, goes_on) {
                return Belief::Believed;
            }
            self.jump(now, index);
            return Belief::Rewound(first);
        }
        if self.ahead.claim(now, Run { first: index, last: index }, wait, goes_on) {
            self.jump(now, index);
            return Belief::Believed;
        }
        Belief::Doubted
    }

    pub(crate) fn can_be(&self, now: Time, index: u64) -> bool {
        index <= self.newest + FREE_PACKETS || index <= self.newest + self.allowance(now)
    }

    pub(crate) fn can_lead(&mut self, now: Time, lead: u64) -> bool {
        if self.can_be(now, lead) {
            self.leads.contradict();
            return true;
        }
        let believed = self.leads.claim(now, lead, Duration::ZERO, |before| lead >= *before);
        if believed {
            self.lead = Some(lead);
        }
        believed
    }

    fn allowance(&self, now: Time) -> u64 {
        let since = now.since(self.mark.0).as_secs_f64().max(RATE_SPAN_MIN.as_secs_f64());
        let rate = self.rate.max((self.newest - self.mark.1) as f64 / since);
        let packets = RATE_FACTOR * rate * now.since(self.at).as_secs_f64();
        FREE_PACKETS + (packets as u64).min(JUMP_MAX)
    }

    fn wait(&self) -> Duration {
        let gaps = Duration::from_secs_f64(WAIT_PACKETS / self.rate.max(1.0));
        gaps.clamp(WAIT_MIN, WAIT_MAX)
    }

    fn advance(&mut self, now: Time, index: u64) {
        self.steps = if index - self.newest > STEP_MAX { 0 } else { self.steps + 1 };
        if self.steps >= SOLID_STEPS {
            (self.solid, self.steps) = (Some(index), SOLID_STEPS);
        }
        (self.newest, self.at) = (index, now);
        self.ahead.contradict();
        self.behind.contradict();
        let span = now.since(self.mark.0);
        if span >= RATE_SPAN {
            let rate = (index - self.mark.1) as f64 / span.as_secs_f64();
            self.rate = rate.max(self.rate * RATE_KEPT);
            self.mark = (now, index);
        }
    }

    fn jump(&mut self, now: Time, index: u64) {
        (self.newest, self.at, self.mark, self.steps) = (index, now, (now, index), 0);
        self.lead = None;
        self.ahead.contradict();
        self.behind.contradict();
    }
}

/// Packets that any source can be ahead, at any rate: a burst that a host sends at once.
const FREE_PACKETS: u64 = 64;

/// Longest distance of packets that count as steps, and steps that show where a source is.
const STEP_MAX: u64 = 16;
const SOLID_STEPS: u32 = 12;

/// Factor by which a source may exceed its measured rate while it is not received.
const RATE_FACTOR: f64 = 4.0;

const JUMP_MAX: u64 = 1 << 24;

/// Span of a rate measurement, shortest span, and decay with each lower measurement.
const RATE_SPAN: Duration = Duration::from_millis(50);
const RATE_SPAN_MIN: Duration = Duration::from_millis(1);
const RATE_KEPT: f64 = 0.75;

/// Longest pause in a run of other numbers: in packets at the measured rate, with bounds in time.
const WAIT_PACKETS: f64 = 8.0;
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    fn running() -> Reach {
        let mut reach = Reach::new(at(0), 0);
        for ms in 1..=1000 {
            assert_eq!(reach.take(at(ms), ms, true), Belief::Believed);
        }
        reach
    }

    #[test]
    fn what_the_rate_could_have_sent_is_believed_at_once() {
        for (after_ms, jump, want) in [
            (0, 64, Belief::Believed),
            (0, 65, Belief::Doubted),
            (100, 450, Belief::Believed),
            (100, 500, Belief::Doubted),
            (10_000, 40_000, Belief::Believed),
            (10_000, 100_000, Belief::Doubted),
        ] {
            let mut reach = running();
            let belief = reach.take(at(1000 + after_ms), 1000 + jump, true);
            assert_eq!(belief, want, "{jump} packets after {after_ms} ms");
        }
    }

    #[test]
    fn ten_packets_from_far_ahead_move_nothing_and_a_source_that_is_there_does() {
        let mut reach = running();
        for i in 0..10 {
            assert_eq!(reach.take(at(1000), 100_000 + i, true), Belief::Doubted);
        }
        assert_eq!(reach.take(at(1001), 1001, true), Belief::Believed);
        assert_eq!(reach.take(at(1001), 100_010, true), Belief::Doubted);
        let doubted =
            (0..).take_while(|i| reach.take(at(1100 + i), 200_000 + i, true) == Belief::Doubted);
        assert_eq!(doubted.count(), 11);
        assert_eq!(reach.take(at(1200), 200_012, true), Belief::Believed);
    }

    #[test]
    fn a_source_that_goes_on_below_the_newest_is_followed_and_late_packets_are_not() {
        let mut reach = running();
        assert_eq!(reach.take(at(1001), 1060, true), Belief::Believed);
        let followed = (1001..).find(|i| reach.take(at(*i), *i, true) == Belief::Rewound(1001));
        assert_eq!(followed, Some(1012));
        let mut reach = running();
        for late in 950..1000 {
            assert_eq!(reach.take(at(1000), late, true), Belief::Believed, "they are old");
        }
    }

    #[test]
    fn a_source_that_is_said_to_be_behind_goes_on_from_there() {
        let mut reach = running();
        assert_eq!(reach.take(at(1001), 1060, true), Belief::Believed);
        reach.go_back(at(1002), 1000);
        assert_eq!(reach.newest, 1000);
        assert_eq!(reach.take(at(1003), 1001, true), Belief::Believed);
        assert_eq!(reach.newest, 1001);
    }

    #[test]
    fn noise_all_around_does_not_keep_the_source_from_being_followed() {
        let mut reach = running();
        reach.take(at(11_000), 30_000, true);
        let mut noise = 7u64;
        let followed = (11_001..13_000).find(|ms| {
            for _ in 0..6 {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                reach.take(at(*ms), noise >> 33, true);
            }
            matches!(reach.take(at(*ms), *ms - 10_000, true), Belief::Rewound(_))
        });
        assert!(followed.is_some());
    }

    #[test]
    fn a_lead_is_believed_where_several_spms_say_so() {
        let mut reach = running();
        assert!(reach.can_lead(at(1000), 1050));
        assert!(!reach.can_lead(at(1000), 9000) && !reach.can_lead(at(1500), 9000));
        assert!(reach.can_lead(at(2000), 9001));
        assert_eq!(reach.take(at(2001), 9002, true), Belief::Believed);
    }
}
