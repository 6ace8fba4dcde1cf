//! Receive window: received packets, the congestion window, and reports of both.

use core::ops::Range;

use faircast_base::{Duration, Time};

use super::congestion::CongestionWindow;
use super::reception::Reception;
use crate::pgm::session::reach::Reach;
use crate::tram::settings::TramSettings;

const DOUBLINGS_MAX: u32 = 6;

/// Requests without effect before the head is asked for its highest packet.
const ATTEMPTS_BEFORE_HELLO: u32 = 2;

/// Acknowledgement intervals without a repair before a live head is left.
const UNREPAIRED_MAX: u32 = 10;

#[derive(Debug, Default)]
pub(crate) struct ReceiveWindow {
    pub(crate) reception: Reception,
    pub(crate) reach: Reach,
    pub(crate) congestion: CongestionWindow,
    pub(crate) ack_schedule: AckSchedule,
    pub(crate) reported: Reported,
    pub(crate) requests: Requests,
    /// First packet sent after this receiver joined: earlier packets say nothing about its path.
    pub(crate) counted_from: u64,
    /// Bound of packets that may have been delivered from forgeries.
    pub(crate) forged_until: u64,
    /// Acknowledgement windows up to the latest one whose congestion below was reported.
    congestion_reported: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// Highest H_a reported, and the one reported before.
    pub(crate) allowed: u64,
    previous_allowed: u64,
    pub(crate) receivers: (u64, u32),
}

impl Reported {
    pub(crate) fn on_ack(&mut self, allowed: u64, receivers: (u64, u32)) {
        if allowed > self.allowed {
            self.previous_allowed = core::mem::replace(&mut self.allowed, allowed);
        }
        self.receivers = receivers;
    }
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests since the last repair; each doubles the interval to the next one.
    attempts: u32,
    /// Acknowledgement intervals since the last repair, or the latest new parent.
    pub(crate) unrepaired_intervals: u32,
    /// Bound of the packets that the latest acknowledgement requested.
    pub(crate) end: u64,
}

impl Requests {
    pub(crate) fn on_repair(&mut self) {
        (self.attempts, self.unrepaired_intervals) = (0, 0);
    }

    /// True if the receiver may lack packets that no head has: a hello says how far the source is.
    pub(crate) fn needs_hello(&self) -> bool {
        self.attempts >= ATTEMPTS_BEFORE_HELLO
    }

    pub(crate) fn back_off(&mut self, first: Duration) -> Duration {
        let delay = first * (1 << self.attempts);
        self.attempts = (self.attempts + 1).min(DOUBLINGS_MAX);
        delay
    }

    /// Counts an acknowledgement interval. Returns true if the head has repaired nothing for long.
    pub(crate) fn on_interval(&mut self, has_losses: bool) -> bool {
        let intervals = if has_losses { self.unrepaired_intervals + 1 } else { 0 };
        let fails = intervals > UNREPAIRED_MAX;
        self.unrepaired_intervals = if fails { 0 } else { intervals };
        fails
    }
}

/// Schedule of acknowledgements: at packets spread over the group, and by time.
#[derive(Debug, Default)]
pub(crate) struct AckSchedule {
    pub(crate) next_ack: u64,
    ack_window: u64,
    pub(crate) packets: u64,
    first_packet_at: Time,
    window_time: Duration,
    interval_min: Duration,
    interval_max: Duration,
}

impl AckSchedule {
    /// Creates a schedule. `next_ack` is random, to spread acknowledgements.
    pub(crate) fn new(
        next_ack: u64,
        ack_window: u64,
        (interval_min, interval_max): (Duration, Duration),
    ) -> Self {
        Self { next_ack, ack_window, interval_min, interval_max, ..Self::default() }
    }

    pub(crate) fn on_packet(&mut self, now: Time, sequence: u64) -> bool {
        if self.packets == 0 {
            self.first_packet_at = now;
        }
        self.packets += 1;
        if self.packets >= (self.ack_window / 2).max(2) {
            let each = now.since(self.first_packet_at).as_nanos() / (self.packets - 1);
            self.window_time = Duration::from_nanos(each.saturating_mul(self.ack_window));
        }
        sequence >= self.next_ack
    }

    /// Returns the longest time between two acknowledgements: two windows (src: jrms).
    pub(crate) fn interval(&self) -> Duration {
        (self.window_time * 2).min(self.interval_max).max(self.interval_min)
    }
}

impl ReceiveWindow {
    /// Creates the window of a receiver that begins with `start` after `highest_sent` packets.
    /// `first_ack` ends the first acknowledgement window.
    pub(crate) fn new(
        settings: &TramSettings,
        now: Time,
        start: u64,
        highest_sent: u64,
        first_ack: u64,
    ) -> Self {
        let ack_window = u64::from(settings.ack_window);
        let intervals = (settings.ack_interval, settings.ack_interval_max);
        Self {
            reception: Reception::joining(start, highest_sent),
            reach: Reach::new(now, highest_sent.max(start.saturating_sub(1))),
            congestion: CongestionWindow::new(settings, now, start, ack_window),
            ack_schedule: AckSchedule::new(first_ack, ack_window, intervals),
            // Packets sent earlier are wanted, but are no losses.
            counted_from: start.max(highest_sent + 1),
            ..Self::default()
        }
    }

    /// True if the source is about to use the last packets that this receiver has allowed.
    pub(crate) fn is_closing(&self) -> bool {
        self.reception.end + self.congestion.ack_window > self.reported.allowed
    }

    /// True if a lost acknowledgement would stall: packets are missing, or a raised H_a is unused.
    pub(crate) fn awaits_answer(&self) -> bool {
        let (end, before) = (self.reception.end, self.reported.previous_allowed);
        let window = self.congestion.ack_window;
        let is_closed = before > 0 && end <= before + 1 && end + window > before;
        self.reception.has_losses() || is_closed
    }

    /// Returns the lost packets to request. The window bounds them: a late joiner lacks everything.
    pub(crate) fn request(&mut self) -> impl Iterator<Item = Range<u64>> {
        let end = self.reception.first_missing() + self.congestion.size as u64;
        self.requests.end = end;
        let lost = self.reception.lost().map(move |run| run.start..run.end.min(end));
        lost.take_while(move |run| run.start < end)
    }

    /// True if congestion below is to be reported: once in an acknowledgement window.
    pub(crate) fn reports_congestion_below(&mut self) -> bool {
        let window = self.reception.end / self.congestion.ack_window;
        core::mem::replace(&mut self.congestion_reported, window + 1) <= window
    }

    /// Ends an acknowledgement window at `highest`, without the packets before `from`. Returns true
    /// if the window was congested.
    pub(crate) fn end_ack_window(&mut self, now: Time, highest: u64, from: u64) -> bool {
        let missing = self.reception.lost_packets_from(from);
        let known = self.reception.end.saturating_sub(self.reception.first_missing().max(from));
        let congested = self.congestion.end_ack_window(now, missing, known);
        self.ack_schedule.next_ack = highest + self.congestion.ack_window;
        congested
    }

    pub(crate) fn on_progress(&mut self, level: u8) {
        let (first_missing, base) = (self.reception.first_missing(), self.reception.window_base());
        self.congestion.on_progress(first_missing, base, level);
    }

    /// Returns the growth of H_a acknowledged at once. Members that allow only `below` are slower:
    /// a new member's window must not stay closed.
    pub(crate) fn report_step(&self, below: Option<u64>) -> u64 {
        match below.is_some_and(|below| below < self.congestion.allowed) {
            true => self.congestion.ack_window / 2,
            false => self.congestion.report_step(),
        }
    }

    /// Returns H_a of this subtree: the least of own window, own room and the members' H_a.
    pub(crate) fn allowed(&self, room_until: u64, below: Option<u64>) -> u64 {
        let own = self.congestion.allowed.min(room_until - 1);
        // H_a never decreases: the source may have sent the packets by now.
        below.map_or(own, |below| below.min(own)).max(self.reported.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms, s};

    fn window() -> ReceiveWindow {
        let settings = TramSettings { ack_window: 10, ..TramSettings::default() };
        ReceiveWindow::new(&settings, at(0), 1, 0, 10)
    }

    #[test]
    fn requests_double_their_delay_up_to_a_limit_and_a_repair_resets_it() {
        let mut requests = Requests::default();
        let first = Duration::from_millis(50);
        let mut delays = || requests.back_off(first).as_millis();
        assert_eq!([(); 8].map(|()| delays()), [50, 100, 200, 400, 800, 1600, 3200, 3200]);
        assert!(requests.needs_hello());
        requests.on_repair();
        assert!(!requests.needs_hello() && requests.back_off(first) == first);
    }

    #[test]
    fn a_head_fails_after_more_than_ten_intervals_without_a_repair() {
        let mut requests = Requests::default();
        assert!((0..UNREPAIRED_MAX).all(|_| !requests.on_interval(true)));
        assert!(requests.on_interval(true) && !requests.on_interval(true));
        assert!(!requests.on_interval(false) && requests.unrepaired_intervals == 0);
    }

    #[test]
    fn an_answer_is_awaited_for_losses_and_for_an_unused_window() {
        let mut window = window();
        assert!(!window.awaits_answer());
        window.reported.on_ack(20, (0, 0));
        assert!(!window.awaits_answer(), "no earlier window was used up");
        window.reception.extend_to(at(0), 20, (false, None));
        window.reception.find_lost(at(0));
        assert!(window.awaits_answer() && window.is_closing(), "20 packets are lost");
        window.reception.give_up(21, |_| ());
        assert!(!window.awaits_answer());
        window.reported.on_ack(40, (0, 0));
        assert!(window.awaits_answer(), "the source has used the window up to 20");
    }

    #[test]
    fn congestion_below_is_reported_once_in_an_acknowledgement_window() {
        let mut window = window();
        let reports = [(); 2].map(|()| window.reports_congestion_below());
        window.reception.extend_to(at(0), 10, (false, None));
        assert_eq!((reports, window.reports_congestion_below()), ([true, false], true));
    }

    #[test]
    fn windows_end_with_packets_and_timers_follow_their_pace() {
        let mut acks = AckSchedule::new(10, 32, (ms(500), s(60).since(at(0))));
        assert_eq!(acks.interval(), ms(500));
        for sequence in 1..10 {
            assert!(!acks.on_packet(at(40 * sequence), sequence));
        }
        assert!(acks.on_packet(at(400), 12), "the tenth is lost, the next one ends the window");
        acks.next_ack = 42;
        assert_eq!(acks.interval(), ms(500), "too few to tell");
        for sequence in 13..20 {
            acks.on_packet(at(40 * sequence), sequence);
        }
        let interval = acks.interval();
        assert!(interval > ms(2500) && interval < ms(3000), "{interval:?}");
        acks.packets = 0;
        assert_eq!(acks.interval(), interval);
    }
}
