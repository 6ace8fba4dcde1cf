//! Schedule of a receiver's acknowledgements: at packets spread over the group, and by time.

use faircast_base::{Duration, Time};

#[derive(Debug, Default)]
pub(crate) struct AckSchedule {
    /// Packet at which the next acknowledgement window ends.
    next_ack: u64,
    ack_window: u64,
    /// New packets since the last acknowledgement.
    pub(crate) packets: u64,
    /// Time of the first of these packets.
    first_packet_at: Time,
    /// Time in which an acknowledgement window arrives.
    window_time: Duration,
    interval_min: Duration,
    interval_max: Duration,
}

impl AckSchedule {
    /// Creates a schedule. `first` ends the first window; it is random, to spread acknowledgements.
    pub(crate) fn new(
        first: u64,
        ack_window: u64,
        (interval_min, interval_max): (Duration, Duration),
    ) -> Self {
        let window_time = Duration::ZERO;
        let first_packet_at = Time::ZERO;
        Self {
            next_ack: first,
            ack_window,
            packets: 0,
            first_packet_at,
            window_time,
            interval_min,
            interval_max,
        }
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

    pub(crate) fn schedule(&mut self, sequence: u64) {
        self.next_ack = sequence;
    }

    pub(crate) fn on_sent(&mut self) {
        self.packets = 0;
    }

    /// Returns the longest time between two acknowledgements: two windows (src: jrms).
    pub(crate) fn interval(&self) -> Duration {
        (self.window_time * 2).min(self.interval_max).max(self.interval_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms, s};

    #[test]
    fn windows_end_with_packets_and_timers_follow_their_pace() {
        let mut acks = AckSchedule::new(10, 32, (ms(500), s(60).since(at(0))));
        assert_eq!(acks.interval(), ms(500));
        for sequence in 1..10 {
            assert!(!acks.on_packet(at(40 * sequence), sequence));
        }
        assert!(acks.on_packet(at(400), 12), "the tenth is lost, the next one ends the window");
        acks.schedule(42);
        assert_eq!(acks.interval(), ms(500), "too few to tell");
        for sequence in 13..20 {
            acks.on_packet(at(40 * sequence), sequence);
        }
        let interval = acks.interval();
        assert!(interval > ms(2500) && interval < ms(3000), "{interval:?}");
        acks.on_sent();
        assert_eq!(acks.interval(), interval);
    }
}
