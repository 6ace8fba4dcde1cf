//! Packet input of a source: requests, reports, acknowledgements, and their confirmations.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Cx, Duration, Event, NodeId, Seq, Time};

use super::{SourcePhase, SourceSession};
use crate::congestion::{AckVector, Carrier, ReportFacts};
use crate::pgm::negotiation::{ARRIVES, PACKET_BYTES, SchemeAnnouncement, bytes_of};
use crate::pgm::wire::{Nak, OptionType, Packet, Received};
use crate::{BlackHole, StreamEvent, keep_last};

impl SourceSession {
    pub(crate) fn take_request(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>) -> Checked {
        if let Some(option) = packet.options.find(OptionType::SCHEME) {
            let event = self.scheme.take_refusal(packet.from, option.value)?;
            let mismatched = matches!(event, StreamEvent::OtherScheme { .. });
            self.events.push_back(event);
            return if mismatched { Err(BadInput::OtherScheme) } else { Ok(()) };
        }
        self.control.on_unreached_receiver(cx);
        self.spm.on_request(&mut self.timers, cx.now);
        Ok(())
    }

    /// Takes a NAK, which requests packets if `asks`. Returns its report, or an empty one.
    pub(crate) fn take_nak(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        nak: Nak,
        asks: bool,
    ) -> Checked<Option<ReportFacts>> {
        // A copy for the neighbours of its sender; the NAK itself also comes to this node.
        if packet.is_for_group() {
            return Ok(None);
        }
        if !self.is_named_by(&nak) {
            return Err(BadInput::Foreign);
        }
        let first = self.index(nak.first).ok_or(BadInput::OutOfWindow)?;
        let unsent = |index: u64| index >= self.next;
        if packet.nak_sequence().any(|seq| self.index(seq).is_none_or(unsent)) {
            return Err(BadInput::Absurd);
        }
        let told = self.read_report(cx.now, packet)?;
        if told.is_some() {
            let carrier = match asks {
                true => Carrier::Nak { first: nak.first },
                false => Carrier::NullNak { latest: nak.first },
            };
            self.control.on_report(cx, packet.from, carrier);
        } else {
            self.control.on_unreached_receiver(cx);
        }
        let count = if asks { packet.nak_sequence().count() as u32 } else { 0 };
        cx.emit(Event::NakReceived { seq: self.traced(first), count, from: packet.from });
        Ok(Some(told.unwrap_or_default()))
    }

    /// Confirms a NAK of a receiver with round trip `rtt`. Returns false if the table is full.
    pub(crate) fn confirm(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        nak: Nak,
        rtt: Option<Duration>,
    ) -> Checked<bool> {
        let trail = self.trail;
        let mut wanted = packet.nak_sequence().filter_map(|seq| self.index(seq));
        if !wanted.any(|index| index >= trail) {
            // The receiver does not know the trail yet; an SPM announces it.
            self.spm.on_request(&mut self.timers, now);
            return Err(BadInput::OutOfWindow);
        }
        if let SourcePhase::Lingering { busy, .. } = &mut self.phase {
            *busy = now;
            self.arm_linger();
        }
        let list: Vec<_> = packet.options.nak_list().collect();
        let what = Confirmation { first: nak.first, list };
        let interval = self.confirm_interval(now, rtt);
        Ok(self.confirmations.ask(now, interval, what))
    }

    /// Returns the least interval of equal confirmations, whose number receivers use as estimate.
    pub(crate) fn confirm_interval(&self, now: Time, rtt: Option<Duration>) -> Duration {
        let rtt = rtt.max(self.farthest.get(now));
        rtt.map_or(CONFIRM_INTERVAL, |rtt| CONFIRM_INTERVAL.min(rtt / CONFIRMATIONS_PER_ROUND_TRIP))
    }

    /// Returns the time after a repair in which a NAK crossed it: its sender's round trip.
    pub(crate) fn crossing_time(&mut self, now: Time, rtt: Option<Duration>) -> Duration {
        if let Some(rtt) = rtt {
            self.farthest.note(now, rtt);
            // The repair may meet a longer queue, and reports have a resolution of milliseconds.
            return (rtt + rtt / 8 + REPORT_RESOLUTION).max(CONFIRM_INTERVAL);
        }
        let others = [self.control.gauges().rtt, self.farthest.get(now)];
        others.into_iter().flatten().fold(self.config.settings.repair_interval, Duration::max)
    }

    pub(crate) fn longest_round_trip(&self, now: Time) -> Option<Duration> {
        self.farthest.get(now).max(self.control.gauges().rtt)
    }

    pub(crate) fn read_report(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
    ) -> Checked<Option<ReportFacts>> {
        let option = packet.options.find(self.control.options().report);
        option.map(|option| self.control.read_report(now, option.value)).transpose()
    }

    pub(crate) fn take_ack(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        vector: AckVector,
        len: impl Fn(u64) -> u32,
    ) -> Checked {
        let highest = self.index(vector.highest).ok_or(BadInput::OutOfWindow)?;
        if highest >= self.next {
            return Err(BadInput::Absurd);
        }
        let fresh: u64 =
            self.acked.mark(highest, vector.bitmap).map(|index| u64::from(len(index))).sum();
        // At most 32 payloads of less than 2^16 bytes.
        let (seq, bytes) = (self.traced(highest), fresh as u32);
        cx.emit(Event::AckReceived { seq, bytes, from: packet.from });
        let told = self.read_report(cx.now, packet)?;
        if told.is_some() {
            self.control.on_report(cx, packet.from, Carrier::Ack(vector));
        }
        if packet.options.has(OptionType::ACKER_LEAVING) {
            // The control knows the number in reports, which may differ from that of the address.
            let reporter = told.and_then(|told| told.reporter);
            self.control.on_leave(cx, reporter.unwrap_or(packet.from));
        }
        Ok(())
    }
}

/// Least interval between equal confirmations, far below the interval of NAKs (src: RFC 3208 s5.2).
const CONFIRM_INTERVAL: Duration = Duration::from_millis(10);

/// Least number of confirmations of one loss that fit into a round trip.
const CONFIRMATIONS_PER_ROUND_TRIP: u64 = 16;

/// Resolution of round trips in reports, of both ends together.
const REPORT_RESOLUTION: Duration = Duration::from_millis(2);

/// Most waiting confirmations. Receivers repeat requests without one.
const CONFIRMATIONS_MAX: usize = 256;

/// Most recent confirmations on record, which are not repeated at once.
const RECENT_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confirmation {
    pub(super) first: Seq,
    pub(super) list: Vec<Seq>,
}

#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pub(super) queue: VecDeque<Confirmation>,
    recent: VecDeque<(Time, Confirmation)>,
}

impl Confirmations {
    /// Queues a confirmation, unless an equal one is recent. Returns false if the table is full.
    pub(super) fn ask(&mut self, now: Time, interval: Duration, what: Confirmation) -> bool {
        if self.queue.contains(&what) {
            return true;
        }
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) >= interval) {
            self.recent.pop_front();
        }
        if self.recent.iter().any(|(_, recent)| *recent == what) {
            return true;
        }
        if self.queue.len() >= CONFIRMATIONS_MAX {
            return false;
        }
        if interval > Duration::ZERO {
            keep_last(&mut self.recent, RECENT_MAX, (now, what.clone()));
        }
        self.queue.push_back(what);
        true
    }
}

#[derive(Debug, Default)]
pub(super) struct Farthest(Option<(Duration, Time)>);

impl Farthest {
    pub(super) fn note(&mut self, now: Time, rtt: Duration) {
        let farther = self.get(now).is_none_or(|longest| rtt >= longest);
        if farther {
            self.0 = Some((rtt, now));
        }
    }

    pub(super) fn get(&self, now: Time) -> Option<Duration> {
        self.0.filter(|(_, at)| now.since(*at) < FARTHEST_KEPT).map(|(rtt, _)| rtt)
    }
}

/// Time for which a round trip counts: paths change in minutes.
const FARTHEST_KEPT: Duration = Duration::from_secs(60);

/// Remembered packets below the highest acknowledged one, for late acknowledgements too.
const REMEMBERED: u64 = 128;

#[derive(Debug, Default)]
pub(super) struct Acked {
    end: u64,
    /// Bit i: true if packet `end - 1 - i` is acknowledged.
    bits: u128,
}

impl Acked {
    /// Marks `highest`, and `highest - i` for each bit i of `bitmap`. Returns the new ones.
    pub(super) fn mark(&mut self, highest: u64, bitmap: u32) -> impl Iterator<Item = u64> + use<> {
        if highest >= self.end {
            let step = highest + 1 - self.end;
            self.bits = if step < REMEMBERED { self.bits << step } else { 0 };
            self.end = highest + 1;
        }
        let below = self.end - 1 - highest;
        let mut fresh = 0;
        if below < REMEMBERED {
            // Bits beyond the record are dropped; packets before the first do not exist.
            let exists = if highest < 31 { u32::MAX >> (31 - highest) } else { u32::MAX };
            let bits = u128::from(bitmap & exists) << below;
            fresh = bits & !self.bits;
            self.bits |= bits;
        }
        let end = self.end;
        core::iter::from_fn(move || {
            let bit = (fresh != 0).then(|| fresh.trailing_zeros())?;
            fresh &= fresh - 1;
            Some(end - 1 - u64::from(bit))
        })
    }
}

/// Most receivers of other schemes, and most starved receivers, that are reported.
const REFUSALS_MAX: usize = 64;

/// Scheme of a source: its announcement in SPMs, and receivers that refuse it.
#[derive(Debug, Default)]
pub(crate) struct SourceScheme {
    name: &'static str,
    pub(super) announced: Option<Vec<u8>>,
    packet_bytes: Option<u32>,
    /// Receivers of another scheme: the first [`REFUSALS_MAX`].
    mismatched: Vec<NodeId>,
    /// Receivers that have reported that no data arrives: the first [`REFUSALS_MAX`].
    starved: Vec<NodeId>,
}

impl SourceScheme {
    pub(crate) fn speak(&mut self, name: &'static str, announced: Option<SchemeAnnouncement>) {
        self.name = name;
        self.packet_bytes =
            announced.as_ref().and_then(|announced| bytes_of(&announced.settings, PACKET_BYTES));
        self.announced = announced.and_then(|announced| announced.encode());
    }

    /// Takes a receiver's message of another scheme or no data. Returns an event once for each.
    pub(super) fn take_refusal(&mut self, from: NodeId, value: &[u8]) -> Checked<StreamEvent> {
        let other = SchemeAnnouncement::decode(value).ok_or(BadInput::Malformed)?;
        let arrives = bytes_of(&other.settings, ARRIVES).filter(|_| other.scheme == self.name);
        let refused = if arrives.is_some() { &mut self.starved } else { &mut self.mismatched };
        if refused.contains(&from) {
            return Err(BadInput::Duplicate);
        }
        if refused.len() >= REFUSALS_MAX {
            return Err(BadInput::TableFull);
        }
        refused.push(from);
        Ok(match arrives {
            Some(arrives) => {
                let hole = BlackHole { arrives, sent: self.packet_bytes };
                StreamEvent::BlackHole { node: from, hole }
            }
            None => {
                let (sender, receiver) = (self.name.to_string(), other.scheme);
                StreamEvent::OtherScheme { node: from, sender, receiver }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_counts_once_however_acknowledgements_come() {
        let mut acked = Acked::default();
        let mut mark = |highest, bitmap| acked.mark(highest, bitmap).collect::<Vec<_>>();
        // A first bitmap of all ones names no packet before the first.
        assert_eq!(mark(0, u32::MAX), [0]);
        assert_eq!(mark(3, 0b1011), [3, 2]);
        assert_eq!(mark(3, 0b1111), [1]);
        assert_eq!(mark(100, 1), [100]);
        assert_eq!(mark(5, 0b111), [5, 4]);
        assert_eq!(mark(400, 1), [400]);
        assert_eq!(mark(101, 1), []);
        assert_eq!(mark(399, 0b11), [399, 398]);
    }
}
